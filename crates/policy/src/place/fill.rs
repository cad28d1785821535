//! How the levels fill the tiers: newest first, fast tier first.
//!
//! Walking from the newest levels to the oldest, each byte goes to the first
//! tier that is not yet full; so a level may span two tiers or more. Only how
//! *many* bytes of a level go to a tier is decided here, never which tables.
//! Levels of the same depth in all keyspaces count as one.
//!
//! The newest levels, and all others, may begin on another tier than the fastest
//! ([`thermocline_model::view::TierPins`]: OHDB's two disk components): the walk of their
//! bytes then begins there.
//!
//! The last tier takes whatever is left. Of the others, placement fills
//! `tier_fill_share` of the capacity (or of what the device really has), less
//! the reserve and less the meta extents that lie there.

use std::sync::Arc;

use thermocline_model::job::NewTable;
use thermocline_model::table::TableMeta;
use thermocline_model::tier::{TIERS_MAX, TierId, TierState};
use thermocline_model::version::{LEVELS_MAX, Slot};
use thermocline_model::view::View;

/// Depths: the newest levels together, then each level.
pub const DEPTHS: usize = LEVELS_MAX + 1;

/// Bytes by tier.
pub type ByTier = [u64; TIERS_MAX];

/// The depth of a slot: 0 is newest.
#[must_use]
pub fn depth(slot: Slot) -> usize {
    match slot {
        Slot::Newest(_) => 0,
        Slot::Level(level) => (level as usize + 1).min(DEPTHS - 1),
    }
}

/// What lies where, and what may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fill {
    /// The number of tiers.
    pub tiers: usize,
    /// Data bytes by depth and tier.
    pub data: [ByTier; DEPTHS],
    /// Bytes of data and meta extents by tier.
    pub used: ByTier,
    /// Of these, meta extents.
    pub meta: ByTier,
    /// Bytes of busy tables by the tier of their data.
    pub busy: ByTier,
    /// Bytes of tables that are being moved away or merged down, by the tier that they leave.
    pub leaving: ByTier,
    /// Bytes that placement may fill; no limit for the last tier.
    pub limit: ByTier,
    /// The first tier of the newest levels, and that of all others.
    first: [usize; 2],
}

impl Fill {
    /// As `view` shows it.
    #[must_use]
    pub fn of(view: &View<'_>) -> Fill {
        let mut fill = Fill::limits(view);
        for keyspace in view.version.keyspaces.values() {
            for (slot, _, table) in keyspace.tables() {
                fill.add(view, depth(slot), table);
            }
        }
        if !view.busy_outputs.is_empty() {
            fill.add_merged_down(view);
        }
        fill
    }

    /// Adds what running merges take to a level further down: as much of it leaves its tier as of
    /// that level lies on slower ones.
    fn add_merged_down(&mut self, view: &View<'_>) {
        for keyspace in view.version.keyspaces.values() {
            for (slot, _, table) in keyspace.tables() {
                if !view.busy.contains(&table.id) || view.moves.is_running(table.id) {
                    continue;
                }
                let mut outputs = view.busy_outputs.iter();
                let joins = outputs.find(|(id, to, range)| {
                    *id == keyspace.id && depth(*to) > depth(slot) && range.overlaps(&table.range)
                });
                let Some((_, to, _)) = joins else { continue };
                let there = self.data[depth(*to)];
                let all: u64 = there.iter().sum();
                for extent in &table.data {
                    let tier = self.index(extent.tier);
                    let slower: u64 = there[tier + 1..].iter().sum();
                    let share = slower as f64 / all.max(1) as f64;
                    self.leaving[tier] += (extent.length as f64 * share) as u64;
                }
            }
        }
    }

    /// What may lie where, without a look at what does.
    #[must_use]
    pub fn limits(view: &View<'_>) -> Fill {
        let tiers = view.tiers.len().clamp(1, TIERS_MAX);
        let mut fill = Fill {
            tiers,
            data: [[0; TIERS_MAX]; DEPTHS],
            used: [0; TIERS_MAX],
            meta: [0; TIERS_MAX],
            busy: [0; TIERS_MAX],
            leaving: [0; TIERS_MAX],
            limit: [u64::MAX; TIERS_MAX],
            first: [0; 2],
        };
        let pins = view.shape.pins;
        fill.first = [pins.newest, pins.levels].map(|pin| pin.map_or(0, |tier| fill.index(tier)));
        for (limit, tier) in fill.limit.iter_mut().zip(view.tiers).take(tiers - 1) {
            let real = tier.used_bytes.saturating_add(tier.device_free_bytes);
            let share = view.shape.tier_fill_share;
            *limit = limit_bytes(tier, tier.capacity_bytes.min(real), share);
        }
        fill
    }

    /// The same tables, where the tiers hold and may hold what `view` says.
    #[must_use]
    pub fn under(&self, view: &View<'_>) -> Fill {
        Fill {
            data: self.data,
            used: self.used,
            meta: self.meta,
            busy: self.busy,
            leaving: self.leaving,
            ..Fill::limits(view)
        }
    }

    /// The same, if the devices had room for all of their tiers' capacities.
    #[must_use]
    pub fn by_capacity(&self, view: &View<'_>) -> Fill {
        let mut fill = self.clone();
        let tiers = fill.limit.iter_mut().zip(view.tiers);
        for (limit, tier) in tiers.take(self.tiers - 1) {
            *limit = limit_bytes(tier, tier.capacity_bytes, view.shape.tier_fill_share);
        }
        fill
    }

    fn add(&mut self, view: &View<'_>, depth: usize, table: &TableMeta) {
        let busy = !view.busy.is_empty() && view.busy.contains(&table.id);
        let leaves = busy && view.moves.is_running(table.id);
        for extent in &table.data {
            let tier = self.index(extent.tier);
            self.data[depth][tier] += extent.length;
            self.used[tier] += extent.length;
            if busy {
                self.busy[tier] += extent.length;
            }
            if leaves {
                self.leaving[tier] += extent.length;
            }
        }
        let tier = self.index(table.meta.tier);
        self.meta[tier] += table.meta.length;
        self.used[tier] += table.meta.length;
    }

    /// The last depth that holds anything.
    #[must_use]
    pub fn last_depth(&self) -> Option<usize> {
        let holds = |by: &ByTier| by.iter().any(|&bytes| bytes > 0);
        self.data.iter().rposition(holds)
    }

    /// The position of `tier`; one that is not there counts as the last.
    #[must_use]
    pub fn index(&self, tier: TierId) -> usize {
        (tier.0 as usize).min(self.tiers - 1)
    }

    /// Bytes that each depth should have on each tier, when `spare` bytes of
    /// every tier's limit are kept free.
    #[must_use]
    pub fn quotas(&self, spare: &ByTier) -> [ByTier; DEPTHS] {
        let mut quotas = [[0; TIERS_MAX]; DEPTHS];
        let mut left = [0; TIERS_MAX];
        for (tier, left) in left.iter_mut().enumerate().take(self.tiers) {
            *left = self.data_limit(tier, spare);
        }
        let depths = quotas.iter_mut().zip(&self.data).enumerate();
        for (depth, (quota, data)) in depths {
            let mut bytes: u64 = data.iter().sum();
            for tier in self.first[depth.min(1)]..self.tiers {
                let take = if tier + 1 == self.tiers {
                    bytes
                } else {
                    bytes.min(left[tier])
                };
                quota[tier] += take;
                left[tier] = left[tier].saturating_sub(take);
                bytes -= take;
            }
        }
        quotas
    }

    /// Data bytes that `tier` may hold with `spare` bytes kept free.
    fn data_limit(&self, tier: usize, spare: &ByTier) -> u64 {
        match self.limit[tier] {
            u64::MAX => u64::MAX,
            limit => limit.saturating_sub(spare[tier] + self.meta[tier]),
        }
    }

    /// Whether `bytes` more fit the limit of `tier`.
    #[must_use]
    pub fn fits(&self, tier: usize, bytes: u64) -> bool {
        self.used[tier].saturating_add(bytes) <= self.limit[tier]
    }

    /// Whether `bytes` more have room on `tier`: of its capacity, beside the tables
    /// that the version names there, and on its device. The reserve is for what is
    /// flushed.
    #[must_use]
    pub fn has_room(&self, view: &View<'_>, tier: usize, bytes: u64, flushed: bool) -> bool {
        view.tiers.get(tier).is_none_or(|state| {
            let by_capacity = state.capacity_bytes.saturating_sub(self.used[tier]);
            let room = by_capacity.min(state.device_free_bytes);
            let reserve = if flushed { 0 } else { state.reserve_bytes };
            room.saturating_sub(reserve) >= bytes
        })
    }

    /// Whether what is flushed has room there: [`Fill::room_for_flush`].
    #[must_use]
    pub fn has_room_for_flush(&self, view: &View<'_>, tier: usize, bytes: u64) -> bool {
        self.room_for_flush(view, tier) >= bytes
    }

    /// Bytes of room for what is flushed, of which the reserve of the device is left: it is for the
    /// log and the manifest as well, without which nothing at all can be written. What is being
    /// moved away or merged down does not count against the capacity, as for what a merge writes
    /// what it reads does not ([`Fill::has_room_for_output`]): writers would wait for it.
    #[must_use]
    pub fn room_for_flush(&self, view: &View<'_>, tier: usize) -> u64 {
        view.tiers.get(tier).map_or(u64::MAX, |state| {
            let stays = self.used[tier].saturating_sub(self.leaving[tier]);
            let by_capacity = state.capacity_bytes.saturating_sub(stays);
            let by_device = state.device_free_bytes.saturating_sub(state.reserve_bytes);
            by_capacity.min(by_device)
        })
    }

    /// The same for `bytes` of what is made of tables that have `replaced` bytes on each tier:
    /// it takes their place, less what the same merge has written before. Only the device
    /// must hold both. What other merges write meanwhile does not count either, as it takes
    /// the place of what they read. The reserve is left of both.
    #[must_use]
    pub fn has_room_for_output(
        &self,
        view: &View<'_>,
        tier: usize,
        bytes: u64,
        new: &NewTable,
        replaced: &ByTier,
    ) -> bool {
        view.tiers.get(tier).is_none_or(|state| {
            let used = self.used[tier].saturating_add(new.written_bytes[tier]);
            let capacity = state.capacity_bytes.saturating_add(replaced[tier]);
            let by_capacity = capacity.saturating_sub(used);
            let room = by_capacity.min(state.device_free_bytes);
            room.saturating_sub(state.reserve_bytes) >= bytes
        })
    }

    /// The first tier from `from` on that `bytes` more fit, else the last.
    #[must_use]
    pub fn first_that_fits(&self, from: usize, bytes: u64) -> usize {
        let last = self.tiers - 1;
        (from..last).find(|&t| self.fits(t, bytes)).unwrap_or(last)
    }
}

/// The tables that `new` is made from.
#[must_use]
pub fn parents<'a>(view: &'a View<'_>, new: &NewTable) -> Vec<&'a Arc<TableMeta>> {
    if new.parents.is_empty() {
        return Vec::new();
    }
    let mut ids = new.parents.clone();
    ids.sort_unstable();
    let keyspace = view.version.keyspaces.get(&new.keyspace);
    let tables = keyspace.into_iter().flat_map(|k| k.tables());
    let tables = tables.map(|(_, _, table)| table);
    tables
        .filter(|t| ids.binary_search(&t.id).is_ok())
        .collect()
}

/// Bytes that `parents` have on each tier: what is made of them takes their place.
#[must_use]
pub fn replaced(view: &View<'_>, parents: &[&Arc<TableMeta>]) -> ByTier {
    let mut replaced = [0; TIERS_MAX];
    let tiers = view.tiers.len().clamp(1, TIERS_MAX);
    for table in parents {
        for extent in table.data.iter().chain([&table.meta]) {
            replaced[(extent.tier.0 as usize).min(tiers - 1)] += extent.length;
        }
    }
    replaced
}

/// Bytes of `capacity` that placement fills.
fn limit_bytes(tier: &TierState, capacity: u64, share: f64) -> u64 {
    let filled = (capacity as f64 * share.clamp(0.0, 1.0)) as u64;
    filled.saturating_sub(tier.reserve_bytes)
}

/// Bytes that all tiers together take: what placement fills of each, and all of
/// the last one.
#[must_use]
pub fn limit_of_all(tiers: &[TierState], share: f64) -> u64 {
    let Some((last, others)) = tiers.split_last() else {
        return 0;
    };
    let filled = others
        .iter()
        .map(|t| limit_bytes(t, t.capacity_bytes, share));
    filled.fold(last.capacity_bytes, u64::saturating_add)
}
