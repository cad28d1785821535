//! The shape of LogStore (section V): fast levels that overlap above one strict
//! level, and what may be merged where without passing anything (I1).
//!
//! The newest levels and L1 are the *fast levels*; the last level, L7, is the
//! strict one of the slow tier: where the other presets have their data too, so
//! that a store can change between them. Levels in between are empty here; what
//! another preset left there counts as the oldest of the fast levels until it has
//! been merged down.
//!
//! L1 holds runs, newest first. A table that overlaps nothing older above the last
//! level is *settled*: it can be merged into the last level by itself. Any other
//! takes along what is older and overlaps it ([`FastLevels::closure`]). What is
//! newer stays where it is, above both.

use std::collections::BTreeSet;
use std::sync::Arc;

use thermocline_model::job::{Merge, Reason};
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableMeta;
use thermocline_model::tier::TierId;
use thermocline_model::version::{Keyspace, Level, Run, Slot};
use thermocline_model::view::View;

use crate::cost::compaction::{Device, Work};
use crate::heat::histogram::by_heat;
use crate::place::fill::Fill;
use crate::plan::balance::spare_for_writes;
use crate::plan::leveled::hull;
use crate::plan::targets::BOTTOM;

/// L1.
pub const FIRST: usize = 0;

/// The index of the strict level of `keyspace`.
#[must_use]
pub fn last_level(keyspace: &Keyspace) -> usize {
    keyspace.levels.len().max(BOTTOM + 1) - 1
}

/// Whether `slot` is one of the fast levels.
#[must_use]
pub fn is_fast(keyspace: &Keyspace, slot: Slot) -> bool {
    match slot {
        Slot::Newest(_) => true,
        Slot::Level(level) => (level as usize) < last_level(keyspace),
    }
}

/// Bytes of the fast levels, and how many they may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// All bytes of the store.
    pub total_bytes: u64,
    /// Bytes of the fast levels.
    pub fast_bytes: u64,
    /// Of these, bytes of tables that a running job reads.
    pub busy_bytes: u64,
    /// Bytes of the last level that a running merge is about to bring up.
    pub coming_bytes: u64,
    /// Bytes that they may have.
    pub limit_bytes: u64,
}

impl Share {
    /// The limit is the fast share of all bytes, but at least `first_level_bytes`,
    /// and no more than the first of several tiers holds besides meta extents of the
    /// last level and a spare for what is written next ([`spare_for_writes`]).
    #[must_use]
    pub fn of(view: &View<'_>) -> Share {
        let mut share = Share {
            total_bytes: 0,
            fast_bytes: 0,
            busy_bytes: 0,
            coming_bytes: 0,
            limit_bytes: u64::MAX,
        };
        let mut metas_below = 0;
        for keyspace in view.version.keyspaces.values() {
            for slot in keyspace.slots() {
                let level = keyspace.level(slot);
                let is_fast = is_fast(keyspace, slot);
                let bytes = level.map_or(0, Level::size_bytes);
                share.total_bytes += bytes;
                share.fast_bytes += if is_fast { bytes } else { 0 };
                if !is_fast {
                    let metas = level.into_iter().flat_map(|l| l.tables()).map(|t| &t.meta);
                    let metas = metas.filter(|m| m.tier == TierId(0));
                    metas_below += metas.map(|m| m.length).sum::<u64>();
                }
                if view.busy.is_empty() {
                    continue;
                }
                let tables = level.into_iter().flat_map(|l| l.tables());
                for table in tables.filter(|t| view.busy.contains(&t.id)) {
                    if is_fast {
                        share.busy_bytes += table.size_bytes();
                    } else if rises(view, keyspace, table) {
                        share.coming_bytes += table.size_bytes();
                    }
                }
            }
        }
        let asked = share.total_bytes as f64 * view.shape.staging.fast_share;
        share.limit_bytes = (asked as u64).max(view.shape.first_level_bytes);
        if view.tiers.len() > 1 {
            let fill = Fill::limits(view);
            let spare = spare_for_writes(view, &fill);
            let held = fill.limit[0].saturating_sub(spare + metas_below);
            share.limit_bytes = share.limit_bytes.min(held);
        }
        share
    }

    /// Bytes above the limit, what is on its way left out.
    #[must_use]
    pub fn excess_bytes(&self) -> u64 {
        self.staying_bytes().saturating_sub(self.limit_bytes)
    }

    /// Bytes below it, as well.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.staying_bytes())
    }

    fn staying_bytes(&self) -> u64 {
        self.fast_bytes.saturating_sub(self.busy_bytes)
    }
}

/// Whether a running merge writes what it reads of `table` to L1.
fn rises(view: &View<'_>, keyspace: &Keyspace, table: &TableMeta) -> bool {
    let written = |to: usize| {
        let mut outputs = view.busy_outputs.iter();
        outputs.any(|(id, slot, range)| {
            let into = *id == keyspace.id && *slot == Slot::Level(to as u32);
            into && range.overlaps(&table.range)
        })
    };
    // What one merge writes to both stays in its level.
    written(FIRST) && !written(last_level(keyspace))
}

/// A table of the fast levels below the newest ones.
#[derive(Clone, Copy, Debug)]
pub struct FastTable<'a> {
    /// The table.
    pub table: &'a Arc<TableMeta>,
    /// Its run, counted from the newest.
    pub run: usize,
}

/// The same with what is known of its heat.
#[derive(Clone, Copy, Debug)]
pub struct WarmTable<'a> {
    /// The table.
    pub fast: FastTable<'a>,
    /// Its temperature; `None` where it is too young to have one.
    pub temperature: Option<f64>,
}

/// The fast levels of a keyspace, the newest levels left out.
#[derive(Clone, Debug)]
pub struct FastLevels<'a> {
    /// The keyspace.
    pub keyspace: &'a Keyspace,
    /// The index of the strict level.
    pub last: usize,
    /// The runs, newest first, with the level that each lies in.
    runs: Vec<(usize, &'a Run)>,
}

impl<'a> FastLevels<'a> {
    /// Of `keyspace`.
    #[must_use]
    pub fn of(keyspace: &'a Keyspace) -> FastLevels<'a> {
        let last = last_level(keyspace);
        let levels = keyspace.levels.iter().enumerate().take(last);
        let runs = levels.flat_map(|(at, level)| level.runs.iter().map(move |run| (at, run)));
        FastLevels {
            keyspace,
            last,
            runs: runs.collect(),
        }
    }

    /// Its tables, newest run first.
    pub fn tables(&self) -> impl Iterator<Item = FastTable<'a>> {
        let runs = self.runs.iter().enumerate();
        runs.flat_map(|(run, (_, r))| r.tables.iter().map(move |table| FastTable { table, run }))
    }

    /// Its tables in the order of their heat, as a [`crate::heat::Histogram`] has them:
    /// coldest first, what is young last.
    #[must_use]
    pub fn coldest_first(&self, view: &View<'_>) -> Vec<WarmTable<'a>> {
        let warm = |fast: FastTable<'a>| {
            let heat = view.heat.get(&fast.table.id);
            let temperature = heat.and_then(|h| h.temperature);
            WarmTable { fast, temperature }
        };
        let mut tables: Vec<_> = self.tables().map(warm).collect();
        tables.sort_unstable_by(|a, b| {
            let (one, other) = (a.fast.table, b.fast.table);
            by_heat((a.temperature, one), (b.temperature, other))
        });
        tables
    }

    /// Runs of L1.
    #[must_use]
    pub fn first_runs(&self) -> usize {
        self.runs.iter().filter(|(at, _)| *at == FIRST).count()
    }

    /// Whether something lies between L1 and the last level.
    #[must_use]
    pub fn has_strays(&self) -> bool {
        self.runs.last().is_some_and(|(at, _)| *at > FIRST)
    }

    /// The oldest run of L1.
    #[must_use]
    pub fn oldest_first_run(&self) -> Option<&'a Run> {
        let first = self.runs.iter().rev().find(|(at, _)| *at == FIRST);
        first.map(|(_, run)| *run)
    }

    /// Its tables that overlap `range`, newest run first.
    #[must_use]
    pub fn overlapping(&self, range: &KeyRange) -> Vec<FastTable<'a>> {
        let runs = self.runs.iter().enumerate();
        let met = runs.flat_map(|(at, (_, run))| {
            let met = run.overlapping(range).iter();
            met.map(move |table| FastTable { table, run: at })
        });
        met.collect()
    }

    /// Whether nothing older above the last level overlaps the table.
    #[must_use]
    pub fn is_settled(&self, table: FastTable<'_>) -> bool {
        let older = self.runs.iter().skip(table.run + 1);
        older
            .map(|(_, run)| run.overlapping(&table.table.range))
            .all(<[_]>::is_empty)
    }

    /// The tables given and, run by run, all older ones that overlap one of them. Requires: they
    /// are of these levels.
    #[must_use]
    pub fn closure(&self, tables: impl IntoIterator<Item = FastTable<'a>>) -> Vec<FastTable<'a>> {
        let mut chosen: Vec<Vec<FastTable<'a>>> = vec![Vec::new(); self.runs.len()];
        for table in tables {
            if let Some(run) = chosen.get_mut(table.run) {
                run.push(table);
            }
        }
        for (at, (_, run)) in self.runs.iter().enumerate() {
            let (above, below) = chosen.split_at_mut(at);
            let here = &mut below[0];
            for upper in above.iter().flatten() {
                let met = run.overlapping(&upper.table.range).iter();
                here.extend(met.map(|table| FastTable { table, run: at }));
            }
            here.sort_unstable_by_key(|t| t.table.id);
            here.dedup_by_key(|t| t.table.id);
        }
        chosen.concat()
    }

    /// The tables of the last level that overlap one of `tables`; `None` when that
    /// level has several runs, which must be merged first.
    #[must_use]
    pub fn below(&self, tables: &[FastTable<'_>]) -> Option<Vec<&'a Arc<TableMeta>>> {
        let runs = self.keyspace.levels.get(self.last);
        let run = match runs.map_or(&[][..], |l| &l.runs) {
            [] => return Some(Vec::new()),
            [run] => run,
            _ => return None,
        };
        let mut seen = BTreeSet::new();
        let mut below = Vec::new();
        for table in tables {
            for other in run.overlapping(&table.table.range) {
                if seen.insert(other.id) {
                    below.push(other);
                }
            }
        }
        Some(below)
    }
}

/// Bytes of all `tables`.
#[must_use]
pub fn bytes_of<'a>(tables: impl IntoIterator<Item = &'a Arc<TableMeta>>) -> u64 {
    tables.into_iter().map(|t| t.size_bytes()).sum()
}

/// What merging `tables` on the fast tier costs, in seconds: equation 10, all on one device.
#[must_use]
pub fn cost_s(view: &View<'_>, tables: &[FastTable<'_>]) -> f64 {
    let bytes = bytes_of(tables.iter().map(|t| t.table));
    let work = Work {
        tables: tables.len(),
        read_bytes: bytes,
        written_bytes: bytes,
    };
    work.seconds(fast_device(view))
}

/// The device of the first tier.
#[must_use]
pub fn fast_device(view: &View<'_>) -> Device {
    let devices = Device::of(view.tiers);
    devices
        .first()
        .copied()
        .unwrap_or(Device::new(6000.0, 480.0))
}

/// Whether a job may read and replace `tables` now: none is busy, and no running
/// merge of the keyspace writes below the newest levels into the interval that
/// they cover.
#[must_use]
pub fn is_free(view: &View<'_>, keyspace: &Keyspace, tables: &[&Arc<TableMeta>]) -> bool {
    if !view.busy.is_empty() && tables.iter().any(|t| view.busy.contains(&t.id)) {
        return false;
    }
    let outputs = view.busy_outputs.iter();
    let into_levels =
        outputs.filter(|(id, slot, _)| *id == keyspace.id && matches!(slot, Slot::Level(_)));
    let mut written = into_levels.map(|(_, _, range)| range).peekable();
    if written.peek().is_none() {
        return !tables.is_empty();
    }
    let hull = hull(tables.iter().copied());
    hull.is_some_and(|hull| !written.any(|range| range.overlaps(&hull)))
}

/// A merge of `tables` into the level `to`.
#[must_use]
pub fn merge(
    view: &View<'_>,
    keyspace: &Keyspace,
    tables: &[&Arc<TableMeta>],
    to: usize,
    reason: Reason,
) -> Merge {
    Merge {
        keyspace: keyspace.id,
        inputs: tables.iter().map(|t| t.id).collect(),
        output: Slot::Level(u32::try_from(to).unwrap_or(u32::MAX)),
        table_bytes: view.shape.table_bytes,
        // What overlaps nothing must change its tier all the same.
        rewrite: true,
        deeper: None,
        reason,
    }
}

/// Whether newest levels of `keyspace` wait for a merge so long that no other may
/// be begun that would keep them waiting. Where newest runs are passed on as they
/// are, they wait for nothing.
#[must_use]
pub fn newest_waits(view: &View<'_>, keyspace: &Keyspace, deferred: bool) -> bool {
    let urgent = view.shape.newest_runs_merge.saturating_mul(2);
    let mut parts = keyspace.parts.iter();
    !deferred && parts.any(|p| p.newest.runs.len() >= urgent)
}
