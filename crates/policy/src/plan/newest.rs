//! What becomes of the newest levels in LogStore: deferred compaction (section V-C).
//!
//! Once a newest level has its number of runs, the oldest one is passed on to L1 as
//! it is: as a run of its own, by an edit of the version, without a byte being read
//! or written. No merge is done until reads suffer or room is needed
//! ([`super::staging`], [`super::coldest`]); the fast tier is a very large buffer. When
//! the store rests, or room is to be made, all of them are passed on, so that nothing is kept from
//! these: a merge that makes room makes the more of it, the more there is for what it rewrites.
//!
//! Parts do not overlap, so what several pass on lies side by side: each run joins the oldest run
//! of L1 that is above all it overlaps and has room for it (`model/join.rs`). So L1 gets as many
//! runs as the part with most passes on, however many parts there are, and in each part newer stays
//! above older (I1).
//!
//! With deferred compaction switched off the newest runs are merged with what they
//! overlap of L1, which so has one run, as LevelDB does it.

use std::cell::LazyCell;
use std::sync::Arc;

use thermocline_model::job::{Job, Merge, Reason};
use thermocline_model::join::{Join, join};
use thermocline_model::range::KeyRange;
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::version::{Keyspace, Run, Slot};
use thermocline_model::view::View;

use crate::Planner;
use crate::plan::fast_levels::{FIRST, FastLevels, Share, bytes_of, is_free, merge};
use crate::plan::headroom::wanted_bytes;
use crate::plan::leveled::oldest_free;

/// See the module.
#[derive(Debug)]
pub struct Newest {
    /// Whether optimisations may be on.
    pub optimised: bool,
}

/// A part with runs to pass on or to merge.
#[derive(Clone, Copy)]
struct Due<'a> {
    keyspace: &'a Keyspace,
    /// Free ones, from the oldest on.
    runs: &'a [Run],
}

impl Planner for Newest {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let deferred = self.optimised && view.shape.staging.on.deferred;
        let room_is_wanted =
            LazyCell::new(|| deferred && wanted_bytes(view, &Share::of(view), deferred) > 0);
        let mut due: Vec<Due<'_>> = Vec::new();
        for keyspace in view.version.keyspaces.values() {
            for part in &keyspace.parts {
                let runs = oldest_free(view, &part.newest.runs);
                let all = deferred && !runs.is_empty() && (view.idle || *room_is_wanted);
                if all || runs.len() >= view.shape.newest_runs_merge {
                    due.push(Due { keyspace, runs });
                }
            }
        }
        // Of equals the first.
        due.sort_by_key(|due| std::cmp::Reverse(due.runs.len()));
        let merge = match deferred {
            true => pass_on(view, &due),
            false => due.iter().find_map(|due| merge_down(view, *due)),
        };
        merge.map(Job::Merge)
    }
}

/// The oldest run of the part with most, and of all parts of its keyspace that are due those which
/// come to lie in the same run of L1: what each would join by itself, so that L1 has as many runs
/// as if they were passed on one after the other, by one edit.
fn pass_on(view: &View<'_>, due: &[Due<'_>]) -> Option<Merge> {
    let first = due.first()?;
    let keyspace = first.keyspace;
    let joined = joined(keyspace, first.runs.last()?);
    let beside = due.iter().filter(|d| d.keyspace.id == keyspace.id);
    let beside = beside.filter_map(|d| d.runs.last());
    let beside: Vec<&Run> = beside
        .filter(|run| self::joined(keyspace, run) == joined)
        .collect();
    let oldest: Vec<&Arc<TableMeta>> = beside.iter().flat_map(|run| &run.tables).collect();
    let reason = Reason::new("newest-deferred")
        .with("runs", first.runs.len() as f64)
        .with("runs_due", view.shape.newest_runs_merge as f64)
        .with("parts", beside.len() as f64)
        .with("bytes", bytes_of(oldest.iter().copied()) as f64);
    let mut passed = merge(view, keyspace, &oldest, FIRST, reason);
    passed.rewrite = false;
    Some(passed)
}

/// Where `run` comes to lie in L1. Parts do not overlap, so runs of several that would join the
/// same run, or each begin one in the same place, are one run there.
fn joined(keyspace: &Keyspace, run: &Run) -> Join {
    let inputs: Vec<TableId> = run.tables.iter().map(|t| t.id).collect();
    let ranges: Vec<KeyRange> = run.tables.iter().map(|t| t.range.clone()).collect();
    join(keyspace, Slot::Level(FIRST as u32), &inputs, &ranges)
}

fn merge_down(view: &View<'_>, due: Due<'_>) -> Option<Merge> {
    let Due { keyspace, runs } = due;
    let newest: Vec<&Arc<TableMeta>> = runs.iter().flat_map(|r| &r.tables).collect();
    let levels = FastLevels::of(keyspace);
    let mut met = Vec::new();
    for table in levels.tables() {
        if newest.iter().any(|t| t.range.overlaps(&table.table.range)) {
            met.push(table);
        }
    }
    // What is left of other presets below L1 stays below.
    let mut below = levels.closure(met);
    below.retain(|t| t.run < levels.first_runs());
    let bytes = bytes_of(newest.iter().copied());
    let overlap_bytes = bytes_of(below.iter().map(|t| t.table));
    let mut inputs = newest;
    inputs.extend(below.iter().map(|t| t.table));
    if !is_free(view, keyspace, &inputs) {
        return None;
    }
    let reason = Reason::new("newest-runs")
        .with("runs", runs.len() as f64)
        .with("bytes", bytes as f64)
        .with("overlap_bytes", overlap_bytes as f64);
    let mut merged = merge(view, keyspace, &inputs, FIRST, reason);
    merged.rewrite = false;
    Some(merged)
}
