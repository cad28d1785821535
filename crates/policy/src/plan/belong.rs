//! Keeps levels on their tiers where merges alone do not (LogStore's shape).
//!
//! Merges write the fast levels to the first tier and the last level to the others.
//! What lies elsewhere is relocated: a table of a fast level that found the first
//! tier full goes there as soon as it has room; a table of the last level that a
//! manual compaction, a bulk load or another preset left on the first tier goes to
//! the next.
//!
//! Of more than two tiers the last level has all but the first. A tier beyond its
//! limit gives up its coldest table to the next. The hottest table of a tier goes to
//! the one above if its reads have cost more than it would cost to move it and, where
//! there is no room, to move the coldest one there down first, less what reading that
//! one will cost more; and if chance does not make as much of a difference.

use std::sync::Arc;

use thermocline_model::job::{Job, Reason, Relocate};
use thermocline_model::table::TableMeta;
use thermocline_model::tier::TierId;
use thermocline_model::version::KeyspaceId;
use thermocline_model::view::View;

use crate::Planner;
use crate::cost::compaction::{Device, SEEKS, reads_s};
use crate::place::fill::Fill;
use crate::plan::balance::{spare_bytes, spare_for_writes};
use crate::plan::fast_levels::{Share, is_fast};

/// Standard deviations of a count by which two tables must differ.
const DEVIATIONS: f64 = 3.0;

/// See the module.
#[derive(Debug)]
pub struct Belong;

/// A table that may be moved.
#[derive(Clone, Copy)]
struct Found<'a> {
    keyspace: KeyspaceId,
    table: &'a Arc<TableMeta>,
    tier: usize,
    is_fast: bool,
    reads: f64,
    /// Block reads per byte.
    warmth: f64,
}

impl Planner for Belong {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        if view.tiers.len() < 2 {
            return None;
        }
        let tables = tables(view, &Fill::limits(view));
        if tables.is_empty() {
            return None;
        }
        let fill = Fill::of(view);
        up(view, &fill, &tables)
            .or_else(|| down(view, &fill, &tables))
            .or_else(|| among(view, &fill, &tables))
            .map(Job::Relocate)
    }
}

/// Those with data that no job uses, and of two tiers only what lies on the wrong one.
fn tables<'a>(view: &'a View<'_>, fill: &Fill) -> Vec<Found<'a>> {
    let mut found = Vec::new();
    for keyspace in view.version.keyspaces.values() {
        for (slot, _, table) in keyspace.tables() {
            let is_fast = is_fast(keyspace, slot);
            let tier = fill.index(table.tier());
            if fill.tiers == 2 && is_fast == (tier == 0) {
                continue;
            }
            let bytes = table.data_bytes();
            if bytes == 0 || view.busy.contains(&table.id) {
                continue;
            }
            let heat = view.heat.get(&table.id).copied().unwrap_or_default();
            let reads = heat.block_reads as f64;
            found.push(Found {
                keyspace: keyspace.id,
                table,
                tier,
                is_fast,
                reads,
                warmth: reads / bytes as f64,
            });
        }
    }
    found
}

fn hottest<'a>(tables: impl Iterator<Item = &'a Found<'a>>) -> Option<&'a Found<'a>> {
    tables.max_by(|a, b| {
        let warmth = a.warmth.total_cmp(&b.warmth);
        warmth.then(b.table.id.cmp(&a.table.id))
    })
}

fn coldest<'a>(tables: impl Iterator<Item = &'a Found<'a>>) -> Option<&'a Found<'a>> {
    tables.min_by(|a, b| {
        let warmth = a.warmth.total_cmp(&b.warmth);
        warmth.then(a.table.id.cmp(&b.table.id))
    })
}

fn relocate(found: &Found<'_>, to: usize, reason: Reason) -> Relocate {
    Relocate {
        keyspace: found.keyspace,
        table: found.table.id,
        to: TierId(u32::try_from(to).unwrap_or(u32::MAX)),
        reason: reason
            .with("from_tier", found.tier as f64)
            .with("to_tier", to as f64)
            .with("bytes", found.table.data_bytes() as f64)
            .with("block_reads", found.reads),
    }
}

/// Whether `bytes` more fit, both what placement fills and the device.
fn fits(view: &View<'_>, fill: &Fill, tier: usize, bytes: u64, spare: u64) -> bool {
    let has_room = view.tiers[tier].room_bytes() >= bytes;
    has_room && (tier + 1 == fill.tiers || fill.fits(tier, bytes.saturating_add(spare)))
}

/// A table of a fast level to the first tier.
fn up(view: &View<'_>, fill: &Fill, tables: &[Found<'_>]) -> Option<Relocate> {
    let lower = tables.iter().filter(|t| t.is_fast && t.tier > 0);
    let found = hottest(lower)?;
    let share = Share::of(view);
    let spare = spare_for_writes(view, fill);
    let bytes = found.table.data_bytes();
    let allowed = share.fast_bytes <= share.limit_bytes;
    let reason = Reason::new("fast-level")
        .with("fast_bytes", share.fast_bytes as f64)
        .with("limit_bytes", share.limit_bytes as f64);
    (allowed && fits(view, fill, 0, bytes, spare)).then(|| relocate(found, 0, reason))
}

/// A table of the last level from the first tier.
fn down(view: &View<'_>, fill: &Fill, tables: &[Found<'_>]) -> Option<Relocate> {
    let here = tables.iter().filter(|t| !t.is_fast && t.tier == 0);
    let found = coldest(here)?;
    let to = lower_tier(view, fill, 1, found.table.data_bytes())?;
    Some(relocate(found, to, Reason::new("last-level")))
}

/// The first tier from `from` on that takes `bytes`.
fn lower_tier(view: &View<'_>, fill: &Fill, from: usize, bytes: u64) -> Option<usize> {
    (from..fill.tiers).find(|&t| fits(view, fill, t, bytes, 0))
}

/// Among the tiers of the last level.
fn among(view: &View<'_>, fill: &Fill, tables: &[Found<'_>]) -> Option<Relocate> {
    let last = fill.tiers - 1;
    let on = |tier: usize| tables.iter().filter(move |t| !t.is_fast && t.tier == tier);
    let spare = spare_bytes(view, fill);
    let devices = Device::of(view.tiers);
    for tier in 1..last {
        let used = fill.used[tier].saturating_sub(fill.busy[tier]);
        if used > fill.limit[tier] {
            let found = coldest(on(tier));
            let to = found.and_then(|f| {
                let to = lower_tier(view, fill, tier + 1, f.table.data_bytes())?;
                Some((f, to))
            });
            if let Some((found, to)) = to {
                let reason = Reason::new("tier-over")
                    .with("used_bytes", used as f64)
                    .with("limit_bytes", fill.limit[tier] as f64);
                return Some(relocate(found, to, reason));
            }
        }
        let lower = tables.iter().filter(|t| !t.is_fast && t.tier > tier);
        let Some(hot) = hottest(lower) else {
            continue;
        };
        let bytes = hot.table.data_bytes();
        let (to, from) = (devices[tier], devices[hot.tier]);
        let move_s = |from: Device, to: Device| {
            from.seek_s + bytes as f64 * (1.0 / from.bytes_per_s + 1.0 / to.bytes_per_s)
        };
        let won_s = |reads: f64| reads_s(reads, SEEKS, from) - reads_s(reads, SEEKS, to);
        let reason = |rule: &str, won: f64, cost: f64| {
            Reason::new(rule).compared(("reads_s", won), ("moves_s", cost))
        };
        let cost = move_s(from, to);
        if fits(view, fill, tier, bytes, spare[tier]) {
            if won_s(hot.reads) > cost {
                let reason = reason("hotter", won_s(hot.reads), cost);
                return Some(relocate(hot, tier, reason));
            }
            continue;
        }
        let Some(cold) = coldest(on(tier)) else {
            continue;
        };
        let equal = cold.warmth * bytes as f64;
        let cost = cost + move_s(to, from);
        let apart = hot.reads - equal > DEVIATIONS * (hot.reads + equal).sqrt();
        if apart
            && won_s(hot.reads - equal) > cost
            && let Some(down) = lower_tier(view, fill, tier + 1, cold.table.data_bytes())
        {
            let reason = reason("yields-to-hotter", won_s(hot.reads - equal), cost);
            return Some(relocate(cold, down, reason));
        }
    }
    None
}
