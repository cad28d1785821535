//! New tables go where the shape puts their level (LogStore, section V): the fast
//! levels on the first tier, the last level on the others.
//!
//! Of several slow tiers the first that has room takes what comes down from the fast
//! levels; a table that replaces others of the last level goes where most of them
//! lay. Meta extents go to the fastest tier with room, so that a read of the slow
//! tier takes one seek.
//!
//! Of the capacity, what a merge reads does not count, as what it writes takes its place; and
//! for what is flushed, tables count that the version names, and not what merges are writing.
//!
//! A bulk load's tables go where their level is about to be: the first tier while it
//! has room and the share of the fast levels lasts, else the next.

use thermocline_model::job::{Layout, NewTable};
use thermocline_model::table::TableId;
use thermocline_model::tier::{TIERS_MAX, TierId};
use thermocline_model::version::Slot;
use thermocline_model::view::View;

use crate::Placer;
use crate::place::fill::{Fill, parents, replaced};
use crate::place::seen::Seen;
use crate::plan::fast_levels::{Share, is_fast};
use crate::plan::targets::BOTTOM;
use crate::why::{Explanation, by_shape};

/// About how much of a table its meta extent is.
const META_DIVISOR: u64 = 20;

/// See the module.
#[derive(Debug)]
pub struct ByShape {
    /// Whether optimisations may be on, for explanations.
    pub optimised: bool,
}

impl Placer for ByShape {
    fn place_as_seen(&self, view: &View<'_>, seen: &Seen, new: &NewTable) -> Layout {
        let tiers = view.tiers.len().clamp(1, TIERS_MAX);
        let fill = seen.fill(view);
        let replaced = replaced(view, &parents(view, new));
        let first_with_room = |from: usize, bytes: u64| {
            let has_room = |t: &usize| match view.tiers.get(*t) {
                Some(tier) if is_loaded(new) => tier.room_bytes() >= bytes,
                _ if !new.parents.is_empty() => {
                    fill.has_room_for_output(view, *t, bytes, new, &replaced)
                }
                _ => fill.has_room_for_flush(view, *t, bytes + new.written_bytes[*t]),
            };
            (from..tiers - 1).find(has_room).unwrap_or(tiers - 1)
        };
        let keyspace = view.version.keyspaces.get(&new.keyspace);
        let fast = match (keyspace, new.slot) {
            (Some(keyspace), slot) => is_fast(keyspace, slot),
            (None, Slot::Level(level)) => (level as usize) < BOTTOM,
            (None, Slot::Newest(_)) => true,
        };
        let (wanted, rule) = match fast {
            _ if tiers == 1 => (0, "only-tier"),
            true if is_loaded(new) && !holds(view, new.size_bytes) => (1, "load-beyond-share"),
            true => (0, "fast-level"),
            false => (slow_tier(view, &fill, new), "last-level"),
        };
        let data = first_with_room(wanted, new.size_bytes);
        Layout {
            meta: tier_id(first_with_room(0, new.size_bytes / META_DIVISOR)),
            data: tier_id(data),
            wanted: tier_id(wanted),
            rule: if data == wanted { rule } else { "tier-full" },
            migrates: false,
        }
    }

    fn why_each(&self, view: &View<'_>, tables: &[TableId]) -> Vec<Option<Explanation>> {
        by_shape::why_each(view, tables, self.optimised)
    }
}

fn tier_id(index: usize) -> TierId {
    TierId(u32::try_from(index).unwrap_or(u32::MAX))
}

/// Whether it is a bulk load's: those have no parents and are not flushed.
fn is_loaded(new: &NewTable) -> bool {
    new.parents.is_empty() && matches!(new.slot, Slot::Level(_))
}

/// Whether the first tier may hold `bytes` more. What a bulk load has written so
/// far is in no version yet, but on its device.
fn holds(view: &View<'_>, bytes: u64) -> bool {
    let share = Share::of(view);
    let used: u64 = view.tiers.iter().map(|t| t.used_bytes).sum();
    let asked = used as f64 * view.shape.staging.fast_share;
    let limit = (asked as u64).max(view.shape.first_level_bytes);
    let held = view.tiers.first().map_or(0, |t| t.used_bytes);
    let first = Fill::limits(view).limit[0];
    let limit = limit.min(first).max(share.limit_bytes.min(first));
    held.saturating_add(bytes) <= limit
}

/// Where a table of the last level belongs.
fn slow_tier(view: &View<'_>, fill: &Fill, new: &NewTable) -> usize {
    if view.tiers.len() == 2 {
        return 1;
    }
    let mut parents = [0u64; TIERS_MAX];
    if let Some(keyspace) = view.version.keyspaces.get(&new.keyspace) {
        let level = keyspace.level(new.slot);
        let tables = level.into_iter().flat_map(|l| l.tables());
        for table in tables.filter(|t| new.parents.contains(&t.id)) {
            if new.range.as_ref().is_none_or(|r| r.overlaps(&table.range)) {
                parents[fill.index(table.tier())] += table.data_bytes();
            }
        }
    }
    let most = (1..fill.tiers).rev().max_by_key(|&t| parents[t]);
    match most {
        Some(tier) if parents[tier] > 0 => tier,
        _ => fill.first_that_fits(1, new.size_bytes),
    }
}
