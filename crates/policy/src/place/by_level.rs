//! New tables go where their level belongs.
//!
//! A level that fits the tiers down to `t`, together with all newer levels,
//! lies on `t`. A level that spans several tiers keeps its new tables on the
//! tier where most of the tables they replace lay, so that a hot stretch of
//! keys stays on the fast tier when it is merged; the [`crate::plan::Balance`]
//! planner corrects the sum. Meta extents go to the fast tier while it has
//! room: one read of the slow tier finds any entry.
//!
//! The rule goes by what lies there, so a new table may find its tier filled
//! by older levels that are yet to leave. It goes there nevertheless while the
//! capacity and the device have room, rather than be moved again soon. Of the
//! capacity, tables count that the version names, less those that a merge reads: what it
//! writes takes their place, and both are there only until it ends. Counted, a level
//! that fills its tier would lie on the next one after each merge, and here again after
//! the one that follows.

use thermocline_model::job::{Layout, NewTable};
use thermocline_model::table::TableId;
use thermocline_model::tier::{TIERS_MAX, TierId};
use thermocline_model::version::Slot;
use thermocline_model::view::View;

use crate::Placer;
use crate::place::fill::{Fill, depth, parents, replaced};
use crate::place::lower::Lower;
use crate::place::seen::Seen;
use crate::plan::targets::Targets;
use crate::why::{Explanation, by_level};

/// About how much of a table its meta extent is.
const META_DIVISOR: u64 = 20;

/// See the module.
#[derive(Debug, Default)]
pub struct ByLevel;

/// As [`ByLevel`], for merges by part ([`crate::plan::Buckets`]), whose levels have other
/// sizes.
#[derive(Debug, Default)]
pub struct ByBucket;

impl Placer for ByBucket {
    fn place_as_seen(&self, view: &View<'_>, seen: &Seen, new: &NewTable) -> Layout {
        ByLevel.place_as_seen(view, seen, new)
    }

    fn why_each(&self, view: &View<'_>, tables: &[TableId]) -> Vec<Option<Explanation>> {
        by_level::why_each_with(view, tables, Targets::under_buckets)
    }

    fn lower(&self, view: &View<'_>) -> Lower {
        Lower::of(view)
    }
}

impl Placer for ByLevel {
    fn place_as_seen(&self, view: &View<'_>, seen: &Seen, new: &NewTable) -> Layout {
        let tiers = view.tiers.len().clamp(1, TIERS_MAX);
        let fill = seen.fill(view);
        let parents = parents(view, new);
        let replaced = replaced(view, &parents);
        let flushed = parents.is_empty() && matches!(new.slot, Slot::Newest(_));
        let has_room = |tier: usize, bytes: u64| match parents.is_empty() {
            _ if tier + 1 >= tiers => true,
            true => fill.has_room(view, tier, bytes + new.written_bytes[tier], flushed),
            false => fill.has_room_for_output(view, tier, bytes, new, &replaced),
        };
        let first_with_room = |from: usize, bytes: u64| {
            (from..tiers)
                .find(|&t| has_room(t, bytes))
                .unwrap_or(tiers - 1)
        };
        let meta = first_with_room(0, new.size_bytes / META_DIVISOR);
        if tiers == 1 {
            return Layout {
                meta: tier_id(meta),
                data: tier_id(0),
                wanted: tier_id(0),
                rule: "only-tier",
                migrates: false,
            };
        }
        let (fitting, rule) = wanted(&fill, view, new);
        let data = first_with_room(fitting, new.size_bytes);
        let unhindered = fill.by_capacity(view);
        let wanted = match unhindered == fill {
            true => fitting,
            // Others fill a device, so that levels lie lower than they should.
            false => wanted(&unhindered, view, new).0.min(data),
        };
        Layout {
            meta: tier_id(meta),
            data: tier_id(data),
            wanted: tier_id(wanted),
            rule: if data == wanted { rule } else { "tier-full" },
            migrates: false,
        }
    }

    fn why_each(&self, view: &View<'_>, tables: &[TableId]) -> Vec<Option<Explanation>> {
        by_level::why_each(view, tables)
    }

    fn lower(&self, view: &View<'_>) -> Lower {
        Lower::of(view)
    }
}

fn tier_id(index: usize) -> TierId {
    TierId(u32::try_from(index).unwrap_or(u32::MAX))
}

fn wanted(fill: &Fill, view: &View<'_>, new: &NewTable) -> (usize, &'static str) {
    let at = depth(new.slot);
    // A merge's outputs replace tables that are counted already; what is
    // flushed adds to them.
    let added = if new.parents.is_empty() {
        new.size_bytes
    } else {
        0
    };
    let mut grown = fill.clone();
    let last = grown.tiers - 1;
    grown.data[at][last] += added;
    if grown.data[at].iter().all(|&b| b == 0) {
        grown.data[at][last] = new.size_bytes;
    }
    let quota = grown.quotas(&[0; TIERS_MAX])[at];
    let first = quota.iter().position(|&b| b > 0).unwrap_or(last);
    let deepest = quota.iter().rposition(|&b| b > 0).unwrap_or(last);
    if first == deepest {
        return (first, "level-fits");
    }
    let mut parents = [0u64; TIERS_MAX];
    if let Some(keyspace) = view.version.keyspaces.get(&new.keyspace) {
        let level = keyspace.level(new.slot);
        let tables = level.into_iter().flat_map(|l| l.tables());
        for table in tables.filter(|t| new.parents.contains(&t.id)) {
            // Only those that the new table replaces say where it belongs.
            if new.range.as_ref().is_none_or(|r| r.overlaps(&table.range)) {
                parents[fill.index(table.tier())] += table.data_bytes();
            }
        }
    }
    let most = (first..=deepest).rev().max_by_key(|&t| parents[t]);
    match most {
        Some(tier) if parents[tier] > 0 => (tier, "level-spans-as-parents"),
        _ if fill.fits(first, new.size_bytes) => (first, "level-spans"),
        _ => (deepest, "level-spans"),
    }
}
