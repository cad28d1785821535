//! Staging compaction (LogStore, section V-D): overlapping tables of L1 are merged
//! with each other, on the fast tier, so that they overlap no more.
//!
//! It is done
//! - when reads suffer: what lookups and scans have cost that found nothing in a
//!   table, because an older one has the key, exceeds what the merge costs
//!   (equations 10 and 11 with the degree of overlap). A lookup that a filter
//!   answered counts with what a filter costs, not with a seek;
//! - instead of a merge to the slow tier, which makes room before it is needed
//!   ([`super::headroom`]), if the coldest table overlaps more tables of the last level
//!   than a threshold: merged with the others it becomes several
//!   narrow ones, of which the cold ones go and the hot ones stay;
//! - instead of that merge, too, if three tenths of L1 overlap something older, or a fifth where
//!   a quarter of it is to go: it has taken in that much since it was last in order, and what
//!   was overwritten falls away without a byte going to the slow tier. Where keys are written
//!   with skew that makes several times as much room in a second as a merge to a slow tier;
//! - instead of that merge, and whatever overlaps, if much is to go, that is dear
//!   (`plan/leaving.rs`), and the fast device takes no longer than the slow one may then: what came
//!   last goes down with the rest, so that fewer bytes are rewritten for each;
//! - when what overlaps has cost as much as the merge costs: the older entries that it has replaced
//!   lie beside it, and what could lie in their place is read from a slower tier
//!   ([`super::overwritten`] has the same rule for levels of one run);
//! - when the store is not written to, the fast levels are full, and what reads of
//!   the slow tier have cost exceeds what the merge costs: it parts what is hot from
//!   what is cold, so that the cold can make room;
//! - when L1 has [`RUNS_MAX`] runs, each of which costs every read something.
//!
//! Where room is to be made, cold intervals go to the slow tier in the same merge
//! (`plan/deeper.rs`).
//!
//! A merge needs room for its outputs on the device of the fast tier, beside what it
//! reads. Of the tier's capacity it needs none, as they take the place of that. If all
//! that overlaps does not fit, or is more than 64 tables of full size, as much of it is
//! merged as does: runs one behind the other, four or more, which parts what was flushed
//! wide; or tables with all that is older and overlaps them, from the oldest on; or the
//! newest runs with each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_model::job::{Job, Merge, Reason};
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::tier::TierId;
use thermocline_model::version::Level;
use thermocline_model::view::View;

use crate::Planner;
use crate::cost::compaction::{self, Device, SEEKS};
use crate::plan::coldest;
use crate::plan::deeper::GoingDown;
use crate::plan::fast_levels::{
    FIRST, FastLevels, FastTable, Share, bytes_of, cost_s, fast_device, is_free, merge,
    newest_waits,
};
use crate::plan::headroom::{kept_bytes, wanted_bytes};
use crate::plan::leaving;
use crate::plan::replaced::{Replaced, Worth};

/// Runs of L1 beyond which they are merged whatever it costs.
pub const RUNS_MAX: usize = 64;

/// Runs of L1 beyond which cuts do not move, as that hands down runs: so many that it may have
/// any time, and so few that moves alone never make it too many.
pub const RUNS_CUT_MAX: usize = RUNS_MAX / 2;

/// Of L1, the share that may overlap something older before room is made by
/// merging it with that.
const OVERLAPPING_SHARE_MAX: f64 = 0.3;

/// The same where so much of L1 is to go that it is written anew for that alone.
const OVERLAPPING_SHARE_GOING: f64 = 0.2;

/// That much, of L1.
const GOING_SHARE: f64 = 0.25;

/// Runs that are worth being merged into one, where not all that overlap can be.
const WINDOW_RUNS_MIN: usize = 4;

/// What a merge takes by equation 10, in the reasons that compare something with it.
const MERGE_S: &str = "merge_s";

/// Seconds that a filter takes to answer.
const FILTER_S: f64 = 2e-7;

/// Tables of full size that one merge takes, at most.
pub(super) const TABLES_MAX: u64 = 64;

/// Tables that are looked at for a merge of a part of L1.
const CANDIDATES_MAX: usize = 256;

/// See the module.
#[derive(Debug)]
pub struct Staging;

impl Planner for Staging {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let on = view.shape.staging.on;
        if !on.staging {
            return None;
        }
        let mut share = None;
        let keyspaces = view.version.keyspaces.values();
        let merge = keyspaces.into_iter().find_map(|keyspace| {
            let levels = FastLevels::of(keyspace);
            if levels.first_runs() < 2 || newest_waits(view, keyspace, on.deferred) {
                return None;
            }
            let wanted = || {
                let share = Share::of(view);
                (share, wanted_bytes(view, &share, on.deferred))
            };
            runs(view, &levels)
                .or_else(|| space(view, &levels, share.get_or_insert_with(wanted)))
                .or_else(|| reads(view, &levels))
                .or_else(|| overwritten(view, &levels, share.get_or_insert_with(wanted)))
        });
        merge.map(Job::Merge)
    }
}

/// The tables of L1 that overlap an older one of it.
fn overlapping<'a>(levels: &FastLevels<'a>) -> Vec<FastTable<'a>> {
    let runs = levels.first_runs();
    let mut tables: Vec<_> = levels.tables().filter(|t| t.run < runs).collect();
    tables.retain(|t| !levels.is_settled(*t));
    tables
}

/// As [`FastLevels::closure`], within L1.
fn closure<'a>(
    levels: &FastLevels<'a>,
    tables: impl IntoIterator<Item = FastTable<'a>>,
) -> Vec<FastTable<'a>> {
    let mut closure = levels.closure(tables);
    closure.retain(|t| t.run < levels.first_runs());
    closure
}

fn metas<'a>(tables: &[FastTable<'a>]) -> Vec<&'a Arc<TableMeta>> {
    tables.iter().map(|t| t.table).collect()
}

/// Bytes that the outputs of a merge may have.
fn output_room_bytes(view: &View<'_>) -> u64 {
    let most = TABLES_MAX.saturating_mul(view.shape.table_bytes);
    let fast = view.tiers.first().map_or(0, |t| t.room_beside(u64::MAX));
    most.min(fast.saturating_sub(view.shape.flush_bytes))
}

/// What to merge of the tables that overlap: all, or as much as there is room for.
fn group<'a>(
    view: &View<'_>,
    levels: &FastLevels<'a>,
    overlapping: &[FastTable<'a>],
) -> Option<Vec<FastTable<'a>>> {
    let room = output_room_bytes(view);
    let fits = |tables: &[FastTable<'a>]| {
        tables.len() > 1
            && bytes_of(tables.iter().map(|t| t.table)) <= room
            && is_free(view, levels.keyspace, &metas(tables))
    };
    // With all that is older they take no less.
    if bytes_of(overlapping.iter().map(|t| t.table)) <= room {
        let all = closure(levels, overlapping.iter().copied());
        if fits(&all) {
            return Some(all);
        }
    }
    let runs = by_run(levels);
    if let Some(tables) = window(&runs, room, fits) {
        return Some(tables);
    }
    let mut chosen: BTreeMap<(usize, TableId), FastTable<'a>> = BTreeMap::new();
    let mut chosen_bytes = 0;
    let id = |t: &FastTable<'_>| (t.run, t.table.id);
    for table in overlapping.iter().rev().take(CANDIDATES_MAX) {
        // What came with another brought along all that it needs itself.
        if chosen.contains_key(&id(table)) || chosen_bytes + table.table.size_bytes() > room {
            continue;
        }
        let part = closure(levels, [*table]);
        let added = part.iter().filter(|t| !chosen.contains_key(&id(t)));
        let bytes = chosen_bytes + bytes_of(added.map(|t| t.table));
        if part.len() < 2 || bytes > room {
            continue;
        }
        let mut more = chosen.clone();
        more.extend(part.iter().map(|t| (id(t), *t)));
        let tables: Vec<_> = more.values().copied().collect();
        if fits(&tables) {
            (chosen, chosen_bytes) = (more, bytes);
        }
    }
    if !chosen.is_empty() {
        return Some(chosen.into_values().collect());
    }
    let mut newest: Vec<FastTable<'a>> = Vec::new();
    for run in &runs {
        let more = [&newest[..], run].concat();
        if !fits(&more) && more.len() > 1 {
            break;
        }
        newest = more;
    }
    let within = |t: &FastTable<'a>| newest.iter().any(|n| n.table.id == t.table.id);
    let meets = |t: &FastTable<'a>| closure(levels, [*t]).iter().skip(1).any(within);
    let newest_overlap = newest.iter().any(meets);
    (newest_overlap && fits(&newest)).then_some(newest)
}

/// The tables of L1, run by run, the newest first.
fn by_run<'a>(levels: &FastLevels<'a>) -> Vec<Vec<FastTable<'a>>> {
    let mut runs = vec![Vec::new(); levels.first_runs()];
    for table in levels.tables() {
        if let Some(run) = runs.get_mut(table.run) {
            run.push(table);
        }
    }
    runs
}

/// Of the runs that lie one behind the other as many as `fits` lets be merged at once, which take
/// no more than `room`, the newest of equals; none if these are few.
fn window<'a>(
    runs: &[Vec<FastTable<'a>>],
    room: u64,
    fits: impl Fn(&[FastTable<'a>]) -> bool,
) -> Option<Vec<FastTable<'a>>> {
    let (mut begin, mut bytes) = (0, 0);
    let mut best = 0..0;
    // Both ends go on: what fits without the newest run may be longer.
    for end in 1..=runs.len() {
        let of = |run: &[FastTable<'_>]| bytes_of(run.iter().map(|t| t.table));
        bytes += of(&runs[end - 1]);
        while end - begin > 1 && (bytes > room || !fits(&runs[begin..end].concat())) {
            bytes -= of(&runs[begin]);
            begin += 1;
        }
        if end - begin > best.len() {
            best = begin..end;
        }
    }
    (best.len() >= WINDOW_RUNS_MIN).then(|| runs[best].concat())
}

fn staging(
    view: &View<'_>,
    levels: &FastLevels<'_>,
    tables: &[FastTable<'_>],
    reason: Reason,
) -> Merge {
    let bytes = bytes_of(tables.iter().map(|t| t.table));
    let reason = reason
        .with("tables", tables.len() as f64)
        .with("bytes", bytes as f64);
    merge(view, levels.keyspace, &metas(tables), FIRST, reason)
}

fn runs(view: &View<'_>, levels: &FastLevels<'_>) -> Option<Merge> {
    let runs = levels.first_runs();
    if runs <= RUNS_MAX {
        return None;
    }
    let tables = group(view, levels, &overlapping(levels))?;
    let reason = Reason::new("staging-runs")
        .with("runs", runs as f64)
        .with("runs_max", RUNS_MAX as f64);
    Some(staging(view, levels, &tables, reason))
}

/// Instead of a merge to the slow tier.
fn space(
    view: &View<'_>,
    levels: &FastLevels<'_>,
    (share, wanted): &(Share, u64),
) -> Option<Merge> {
    if *wanted == 0 {
        return hotter(view, levels, share);
    }
    let overlapping = overlapping(levels);
    if overlapping.is_empty() {
        return None;
    }
    let over = bytes_of(overlapping.iter().map(|t| t.table));
    let first = levels.tables().filter(|t| t.run < levels.first_runs());
    let all = bytes_of(first.map(|t| t.table));
    let most = view.shape.staging.overlap_tables_max;
    let victim = coldest::order(view, levels, true).into_iter();
    let victim = victim.take(1).next();
    let below = victim
        .and_then(|v| levels.below(&[v]))
        .map_or(0, |b| b.len());
    let wide = below > most;
    let much = *wanted as f64 >= all as f64 * GOING_SHARE;
    let overlapping_max = match much {
        true => OVERLAPPING_SHARE_GOING,
        false => OVERLAPPING_SHARE_MAX,
    };
    let enough = over as f64 >= all as f64 * overlapping_max;
    let last = levels.keyspace.levels.get(levels.last);
    let dear = much && leaving::is_dear(all, last.map_or(0, Level::size_bytes));
    if !wide && !enough && !dear {
        return None;
    }
    let tables = group(view, levels, &overlapping)?;
    if !wide && !enough && cost_s(view, &tables) > leaving::DEAR_S {
        return None;
    }
    let rule = if wide {
        "staging-wide"
    } else {
        "staging-space"
    };
    let reason = Reason::new(rule)
        .with("fast_bytes", share.fast_bytes as f64)
        .with("limit_bytes", share.limit_bytes as f64)
        .with("overlapping_bytes", over as f64)
        .with("coldest_overlaps_tables", below as f64)
        .with("overlap_tables_max", most as f64);
    let ids = |tables: &[FastTable<'_>]| tables.iter().map(|t| t.table.id).collect::<Vec<_>>();
    let is_all = ids(&tables) == ids(&closure(levels, overlapping));
    let both = || deeper(view, levels, &tables, *wanted, reason.clone());
    let both = is_all.then(both).flatten();
    if !wide && !enough {
        return both;
    }
    both.or_else(|| Some(staging(view, levels, &tables, reason)))
}

/// The merge of `tables`, all that overlap, which sends down as much as room is to be made, so that
/// what is overwritten is won beside that, and merges are few; none if nothing can go.
fn deeper(
    view: &View<'_>,
    levels: &FastLevels<'_>,
    tables: &[FastTable<'_>],
    wanted_bytes: u64,
    reason: Reason,
) -> Option<Merge> {
    let on = view.shape.staging.on;
    if view.idle || !on.informed || !on.deferred || view.tiers.len() < 2 {
        return None;
    }
    let bytes = bytes_of(tables.iter().map(|t| t.table));
    let room = output_room_bytes(view).saturating_sub(bytes);
    let down = GoingDown::of(view, levels, tables, wanted_bytes, room)?;
    let reason = down.reason(reason);
    let tables: Vec<_> = tables.iter().chain(&down.upper).copied().collect();
    let mut merge = staging(view, levels, &tables, reason);
    let inputs: Vec<_> = metas(&tables).into_iter().chain(down.below).collect();
    merge.inputs = inputs.iter().map(|t| t.id).collect();
    merge.deeper = Some(down.deeper);
    is_free(view, levels.keyspace, &inputs).then_some(merge)
}

/// Whether a table more has room, beside what is kept for writes, so that nothing has to make way.
fn has_room(view: &View<'_>, share: &Share) -> bool {
    let kept = kept_bytes(view, share.limit_bytes);
    let taken = share.fast_bytes.saturating_add(kept);
    taken.saturating_add(view.shape.table_bytes) <= share.limit_bytes
}

/// While the store is not written to, and reads of the slow tier have cost more than
/// it takes: cold entries lie in one table with hot ones, and keep a place that hot
/// tables of the slow tier could have.
fn hotter(view: &View<'_>, levels: &FastLevels<'_>, share: &Share) -> Option<Merge> {
    if !view.idle || view.tiers.len() < 2 || has_room(view, share) {
        return None;
    }
    let devices = Device::of(view.tiers);
    let slow = levels.keyspace.levels.get(levels.last)?;
    let spent = slow.tables().filter(|t| t.tier() > TierId(0)).map(|t| {
        let reads = view.heat.get(&t.id).map_or(0, |h| h.block_reads);
        let device = devices.get(t.tier().0 as usize);
        device.map_or(0.0, |d| compaction::reads_s(reads as f64, SEEKS, *d))
    });
    let spent: f64 = spent.sum();
    if spent == 0.0 {
        return None;
    }
    let tables = group(view, levels, &overlapping(levels))?;
    let cost = cost_s(view, &tables);
    let reason = Reason::new("staging-hotter").compared(("slow_reads_s", spent), (MERGE_S, cost));
    (spent > cost).then(|| staging(view, levels, &tables, reason))
}

/// Because older entries keep room that hotter tables of a slower tier could have.
fn overwritten(
    view: &View<'_>,
    levels: &FastLevels<'_>,
    (share, wanted): &(Share, u64),
) -> Option<Merge> {
    // Where room is to be made that goes first.
    if view.tiers.len() < 2 || view.shape.is_lent() || *wanted > 0 || has_room(view, share) {
        return None;
    }
    let worth = Worth::of(view)?;
    // If all together have cost as much as their merge, one of them has.
    let first = levels.tables().filter(|t| t.run + 1 < levels.first_runs());
    let costs = |t: &FastTable<'_>| worth.most_s(view, t.table) >= cost_s(view, &[*t]);
    if !first.into_iter().any(|t| costs(&t)) {
        return None;
    }
    let overlapping = overlapping(levels);
    let most: f64 = overlapping
        .iter()
        .map(|t| worth.most_s(view, t.table))
        .sum();
    if most < cost_s(view, &overlapping) {
        return None;
    }
    let merged = group(view, levels, &overlapping)?;
    let replaced = Replaced::of(view, &merged);
    let waited = worth.read_s(replaced.won_bytes) * replaced.waited_s;
    let cost = cost_s(view, &merged);
    let reason = Reason::new("staging-overwritten")
        .with("overlapping_bytes", replaced.upper_bytes as f64)
        .with("waited_seconds", replaced.waited_s)
        .compared(("waiting_s", waited), (MERGE_S, cost));
    let due = waited > cost;
    due.then(|| staging(view, levels, &merged, reason))
}

/// Seconds lost to reads that looked into these tables for nothing.
fn lost_s(view: &View<'_>, tables: &[FastTable<'_>]) -> f64 {
    let device = fast_device(view);
    let lost = |table: &FastTable<'_>| {
        let heat = view.heat.get(&table.table.id).copied().unwrap_or_default();
        let failed = heat.probes.saturating_sub(heat.hits);
        let read = failed.saturating_sub(heat.rejects) + heat.scans;
        let filtered = failed.min(heat.rejects) as f64 * FILTER_S;
        compaction::reads_s(read as f64, SEEKS, device) + filtered
    };
    tables.iter().map(lost).sum()
}

/// Because reads suffer.
fn reads(view: &View<'_>, levels: &FastLevels<'_>) -> Option<Merge> {
    let first = levels.tables().filter(|t| t.run < levels.first_runs());
    let first: Vec<_> = first.collect();
    let smallest = first.iter().map(|t| t.table.size_bytes()).min()?;
    let device = fast_device(view);
    let least_s = 2.0 * device.seek_s + 4.0 * smallest as f64 / device.bytes_per_s;
    if lost_s(view, &first) < least_s {
        return None;
    }
    let overlapping = overlapping(levels);
    let pays = |merged: &[FastTable<'_>], lost: f64| {
        let cost = cost_s(view, merged);
        let reason = Reason::new("staging-reads").compared(("lost_reads_s", lost), (MERGE_S, cost));
        (lost > cost).then(|| staging(view, levels, merged, reason))
    };
    let lost = lost_s(view, &overlapping);
    let all = group(view, levels, &overlapping);
    if let Some(merge) = all.and_then(|all| pays(&all, lost)) {
        return Some(merge);
    }
    let mut worst = overlapping;
    worst.sort_by(|a, b| lost_s(view, &[*b]).total_cmp(&lost_s(view, &[*a])));
    worst.truncate(CANDIDATES_MAX);
    worst.into_iter().find_map(|table| {
        let part = closure(levels, [table]);
        let mut above = part.clone();
        above.retain(|t| !levels.is_settled(*t));
        let lost = lost_s(view, &above);
        let merged = group_of(view, levels, part)?;
        pays(&merged, lost)
    })
}

/// `tables`, if they can be merged now.
fn group_of<'a>(
    view: &View<'_>,
    levels: &FastLevels<'a>,
    tables: Vec<FastTable<'a>>,
) -> Option<Vec<FastTable<'a>>> {
    let fits = tables.len() > 1
        && bytes_of(tables.iter().map(|t| t.table)) <= output_room_bytes(view)
        && is_free(view, levels.keyspace, &metas(&tables));
    fits.then_some(tables)
}
