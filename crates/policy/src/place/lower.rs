//! Which tables lie lower than they should because their tier is full.
//!
//! Levels fill the tiers in order ([`super::fill`]), so a level or a part of one
//! on a lower tier is nothing special: that is how much the tiers above hold. A
//! table lies *lower* if it lies below every tier that its level has a share
//! of, by the capacities that the operator set, and the lowest of these tiers
//! has no room for it now. Where there is room, [`crate::plan::Balance`] is about
//! to bring it up, the last level's once memtables are lent no memory, and nobody need know.

use thermocline_model::tier::TIERS_MAX;
use thermocline_model::view::View;

use super::fill::{ByTier, Fill, depth};

/// What lies lower than the tiers it belongs on, by the lowest of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lower {
    /// Tables.
    pub tables: ByTier,
    /// Their data bytes.
    pub bytes: ByTier,
}

impl Lower {
    /// As `view` shows it.
    #[must_use]
    pub fn of(view: &View<'_>) -> Lower {
        let fill = Fill::of(view).by_capacity(view);
        let quotas = fill.quotas(&[0; TIERS_MAX]);
        let mut lower = Lower::default();
        for keyspace in view.version.keyspaces.values() {
            for (slot, _, table) in keyspace.tables() {
                let quota = &quotas[depth(slot)];
                let Some(lowest) = quota.iter().rposition(|&bytes| bytes > 0) else {
                    continue;
                };
                let bytes = table.data_bytes();
                let room = view.tiers.get(lowest).map_or(0, |t| t.room_bytes());
                if fill.index(table.tier()) > lowest && room < bytes {
                    lower.tables[lowest] += 1;
                    lower.bytes[lowest] += bytes;
                }
            }
        }
        lower
    }
}
