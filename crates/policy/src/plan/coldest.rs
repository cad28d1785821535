//! Informed compaction (LogStore, section V-A): when the fast levels hold more than
//! they may, their coldest tables are merged into the last level, on the slow tier.
//!
//! Settled tables go first: those that overlap nothing older above the last level. What is newer
//! and overlaps them stays above, unless they are not enough. With them are merged all tables of
//! the last level that they overlap, so that this keeps its one run.
//!
//! With deferred compaction a good deal of room is made at once while the store is written to, in
//! one merge, so that merges are few and their writes long; without, table by table. While the
//! store is written to, those of the colder tables, or of all, go first whose room is worth most
//! for what that merge costs (`plan/leaving.rs`). At rest the coldest go, and no more than must.
//! How much goes at once, and when, is in [`super::headroom`].
//!
//! With informed
//! compaction switched off the tables that go are drawn, by a number made from
//! theirs, as the paper does it.
//!
//! What another preset left between L1 and the last level goes first, and a last
//! level of several runs is made one. When L1 has far too many runs its oldest ones
//! go, whatever they hold. And when nothing else is due, space is won back from
//! tables full of deletes, as in [`super::leveled`].

use std::collections::BTreeSet;
use std::sync::Arc;

use thermocline_model::job::{Job, Merge, Reason};
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::tier::TierId;
use thermocline_model::view::View;

use crate::Planner;
use crate::cost::compaction::{Device, Work};
use crate::plan::fast_levels::{
    FIRST, FastLevels, FastTable, Share, bytes_of, is_free, merge, newest_waits,
};
use crate::plan::headroom::{TABLES_MAX, wanted_bytes};
use crate::plan::leaving::{self, Leaving};
use crate::plan::leveled::merge_runs;
use crate::plan::reclaim::{
    DEAD_SHARE_MAX, DELETES_SHARE_MAX, dead_share, deletes_share, reclaim_table,
};
use crate::plan::staging::RUNS_MAX;

/// See the module.
#[derive(Debug)]
pub struct Coldest {
    /// Whether optimisations may be on.
    pub optimised: bool,
}

impl Planner for Coldest {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let on = view.shape.staging.on;
        let deferred = self.optimised && on.deferred;
        let informed = self.optimised && on.informed;
        let staging = self.optimised && on.staging;
        let keyspaces = view.version.keyspaces.values();
        let all: Vec<FastLevels<'_>> = keyspaces
            .filter(|k| !newest_waits(view, k, deferred))
            .map(|k| FastLevels::of(k))
            .collect();
        let runs_max = if staging { 2 * RUNS_MAX } else { RUNS_MAX };
        let shaped = all.iter().find_map(|levels| {
            one_run(view, levels)
                .or_else(|| strays(view, levels))
                .or_else(|| oldest_runs(view, levels, runs_max))
        });
        shaped
            .or_else(|| over(view, &all, informed, deferred))
            .map(Job::Merge)
    }
}

/// The settled tables of `levels` in the order in which they go.
#[must_use]
pub fn order<'a>(view: &View<'_>, levels: &FastLevels<'a>, informed: bool) -> Vec<FastTable<'a>> {
    let is_settled = |table: &FastTable<'_>| levels.is_settled(*table);
    if informed {
        let coldest = levels.coldest_first(view).into_iter().map(|t| t.fast);
        return coldest.filter(is_settled).collect();
    }
    let mut settled: Vec<_> = levels.tables().filter(is_settled).collect();
    settled.sort_by_key(|t| (drawn(t.table.id), t.table.id));
    settled
}

/// A number without meaning, always the same for a table.
fn drawn(table: TableId) -> u64 {
    let mut z = table.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

/// What goes down together.
#[derive(Debug, Default)]
pub struct Descent<'a> {
    tables: Vec<FastTable<'a>>,
    below: Vec<&'a Arc<TableMeta>>,
    /// All of both.
    known: BTreeSet<TableId>,
    /// Bytes that leave the fast levels.
    bytes: u64,
    /// Whether nothing need be written.
    moves: bool,
}

impl<'a> Descent<'a> {
    /// From the tables of `order`, those that can go now, until `bytes` or one table
    /// more are together. What overlaps something older goes only with that.
    pub fn take(
        view: &View<'_>,
        levels: &FastLevels<'a>,
        order: impl IntoIterator<Item = FastTable<'a>>,
        bytes: u64,
    ) -> Descent<'a> {
        let mut descent = Descent::default();
        for table in order {
            if descent.bytes >= bytes && !descent.tables.is_empty() {
                break;
            }
            descent.add(view, levels, table);
        }
        descent
    }

    /// Adds `table` if it can go now.
    fn add(&mut self, view: &View<'_>, levels: &FastLevels<'a>, table: FastTable<'a>) {
        let Some(mut met) = levels.below(&[table]) else {
            return;
        };
        let is_slow = view.tiers.len() < 2 || table.table.tier() > TierId(0);
        let moves = met.is_empty() && is_slow;
        if !self.tables.is_empty() && moves != self.moves {
            return;
        }
        let id = table.table.id;
        let older = levels.closure([table]);
        let goes = |t: &FastTable<'_>| t.table.id == id || self.known.contains(&t.table.id);
        if self.known.contains(&id) || !older.iter().all(goes) {
            return;
        }
        met.retain(|t| !self.known.contains(&t.id));
        let others = self.tables.iter().map(|t| t.table);
        let mut inputs: Vec<_> = others.chain(self.below.iter().copied()).collect();
        inputs.push(table.table);
        inputs.extend(&met);
        if !is_free(view, levels.keyspace, &inputs) {
            return;
        }
        self.moves = moves;
        self.bytes += table.table.size_bytes();
        self.tables.push(table);
        self.known.insert(id);
        self.known.extend(met.iter().map(|t| t.id));
        self.below.extend(met);
    }

    /// The merge, if there is anything to merge.
    #[must_use]
    pub fn merge(self, view: &View<'_>, levels: &FastLevels<'_>, reason: Reason) -> Option<Merge> {
        let coldest = self.tables.first()?;
        let reason = reason
            .with("tables", self.tables.len() as f64)
            .with("bytes", self.bytes as f64)
            .with("overlap_bytes", bytes_of(self.below.iter().copied()) as f64)
            .with("coldest_temperature", temperature(view, coldest.table.id));
        let tables = self.tables.iter().map(|t| t.table);
        let inputs: Vec<_> = tables.chain(self.below).collect();
        let mut merged = merge(view, levels.keyspace, &inputs, levels.last, reason);
        merged.rewrite = !self.moves;
        Some(merged)
    }

    /// Bytes that leave the fast levels.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Seconds that the devices take for it: equation 10 the other way round.
    #[must_use]
    pub fn cost_s(&self, devices: &[Device]) -> f64 {
        if self.moves {
            return 0.0;
        }
        let on_tier = |tier: TierId| {
            let last = devices.len().saturating_sub(1);
            devices.get((tier.0 as usize).min(last)).copied()
        };
        let read = |table: &Arc<TableMeta>| {
            let work = Work {
                tables: 1,
                read_bytes: table.size_bytes(),
                written_bytes: 0,
            };
            on_tier(table.tier()).map_or(0.0, |device| work.seconds(device))
        };
        let tables = self.tables.iter().map(|t| t.table);
        let read_s: f64 = tables.chain(self.below.iter().copied()).map(read).sum();
        let written = Work {
            written_bytes: self.bytes + bytes_of(self.below.iter().copied()),
            ..Work::default()
        };
        // What goes down goes to the first of the slow tiers.
        read_s + on_tier(TierId(1)).map_or(0.0, |device| written.seconds(device))
    }

    /// Block reads of the tables that leave the fast levels.
    #[must_use]
    pub fn block_reads(&self, view: &View<'_>) -> f64 {
        let heat = |t: &FastTable<'_>| view.heat.get(&t.table.id).map_or(0, |h| h.block_reads);
        self.tables.iter().map(heat).sum::<u64>() as f64
    }
}

fn temperature(view: &View<'_>, table: TableId) -> f64 {
    let heat = view.heat.get(&table);
    heat.and_then(|h| h.temperature).unwrap_or(0.0)
}

/// Makes one run of a last level that has several.
fn one_run(view: &View<'_>, levels: &FastLevels<'_>) -> Option<Merge> {
    let last = levels.keyspace.levels.get(levels.last)?;
    if last.runs.len() < 2 {
        return None;
    }
    let tables: Vec<_> = last.tables().collect();
    if !is_free(view, levels.keyspace, &tables) {
        return None;
    }
    merge_runs(view, levels.keyspace, levels.last)
}

/// Merges down what lies between L1 and the last level, the oldest run first.
fn strays(view: &View<'_>, levels: &FastLevels<'_>) -> Option<Merge> {
    if !levels.has_strays() {
        return None;
    }
    let oldest = levels.tables().map(|t| t.run).max()?;
    let tables = levels.tables().filter(|t| t.run == oldest);
    let bytes = TABLES_MAX * view.shape.table_bytes;
    let descent = Descent::take(view, levels, tables, bytes);
    descent.merge(view, levels, Reason::new("level-unused"))
}

/// Merges down the oldest run of an L1 with too many.
fn oldest_runs(view: &View<'_>, levels: &FastLevels<'_>, runs_max: usize) -> Option<Merge> {
    let runs = levels.first_runs();
    if runs <= runs_max || levels.has_strays() {
        return None;
    }
    let tables = levels.tables().filter(|t| t.run + 1 == runs);
    let bytes = TABLES_MAX * view.shape.table_bytes;
    let reason = Reason::new("oldest-run")
        .with("runs", runs as f64)
        .with("runs_max", runs_max as f64);
    Descent::take(view, levels, tables, bytes).merge(view, levels, reason)
}

/// Makes room in fast levels that hold more than they may, or are about to.
fn over(view: &View<'_>, all: &[FastLevels<'_>], informed: bool, deferred: bool) -> Option<Merge> {
    let share = Share::of(view);
    let bytes = wanted_bytes(view, &share, deferred);
    if bytes == 0 {
        return None;
    }
    let mut orders: Vec<_> = all.iter().map(|l| (l, order(view, l, informed))).collect();
    orders.retain(|(_, order)| !order.is_empty());
    orders.sort_by(|(_, a), (_, b)| {
        let coldest = |o: &[FastTable<'_>]| temperature(view, o[0].table.id);
        coldest(a).total_cmp(&coldest(b))
    });
    orders.into_iter().find_map(|(levels, mut order)| {
        // Where the settled ones are not enough, those above them, oldest first.
        let mut above: Vec<_> = levels.tables().filter(|t| !levels.is_settled(*t)).collect();
        above.reverse();
        let bytes = match deferred && informed && !view.idle {
            true => worth_first(view, levels, &mut order, bytes),
            false => bytes,
        };
        order.extend(above);
        let descent = Descent::take(view, levels, order, bytes);
        let rule = match (informed, descent.moves) {
            (_, true) => "coldest-move",
            (true, false) => "coldest",
            (false, false) => "drawn",
        };
        let reason = Reason::new(rule)
            .with("fast_bytes", share.fast_bytes as f64)
            .with("limit_bytes", share.limit_bytes as f64)
            .with("total_bytes", share.total_bytes as f64);
        descent.merge(view, levels, reason)
    })
}

/// Puts those of `order` first whose going is worth most; how many of `bytes` go at once.
fn worth_first(
    view: &View<'_>,
    levels: &FastLevels<'_>,
    order: &mut [FastTable<'_>],
    bytes: u64,
) -> u64 {
    let leaving = |t: &FastTable<'_>| Leaving {
        bytes: t.table.size_bytes(),
        known_bytes: t.table.size_bytes(),
        temperature: view.heat.get(&t.table.id).and_then(|h| h.temperature),
        below: levels.below(&[*t]).unwrap_or_default(),
    };
    let all: Vec<_> = order.iter().map(leaving).collect();
    let first = leaving::first(view, &all, bytes);
    let bytes = leaving::at_once(view, first.iter().map(|&at| &all[at]), bytes, 0.0);
    let first: Vec<_> = first.into_iter().map(|at| order[at]).collect();
    order[..first.len()].copy_from_slice(&first);
    bytes
}

/// Wins back space when nothing else is due; see the module.
#[derive(Debug)]
pub struct Reclaim;

impl Planner for Reclaim {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        if view.memtables.values().any(|l| l.sealed > 0) {
            return None;
        }
        let mut keyspaces = view.version.keyspaces.values();
        let merge = keyspaces.find_map(|keyspace| {
            let levels = FastLevels::of(keyspace);
            let alone = |t: &FastTable<'_>| {
                let range = &t.table.range;
                let mut others = levels.tables().filter(|o| o.table.id != t.table.id);
                !others.any(|o| o.table.range.overlaps(range))
            };
            let full = |t: &TableMeta| {
                deletes_share(t) > DELETES_SHARE_MAX || dead_share(t) > DEAD_SHARE_MAX
            };
            let reclaim = |level: usize, table: &Arc<TableMeta>| {
                let shares = (deletes_share(table), dead_share(table));
                let merge = reclaim_table(view, keyspace, level, table, shares.0, shares.1)?;
                let inputs = |t: &&Arc<TableMeta>| merge.inputs.contains(&t.id);
                let inputs: Vec<_> = keyspace.tables().map(|(.., t)| t).filter(inputs).collect();
                is_free(view, keyspace, &inputs).then_some(merge)
            };
            let fast = levels.tables().filter(|t| t.run < levels.first_runs());
            let mut fast = fast.filter(|t| full(t.table) && alone(t));
            let found = fast.find_map(|t| reclaim(FIRST, t.table));
            found.or_else(|| {
                let last = keyspace.levels.get(levels.last)?;
                let mut tables = last.tables().filter(|t| full(t));
                tables.find_map(|t| reclaim(levels.last, t))
            })
        });
        merge.map(Job::Merge)
    }
}
