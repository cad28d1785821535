//! What becomes of the newest levels in LogStore: deferred compaction (section V-C).
//!
//! Once a newest level has its number of runs, the oldest one is passed on to L1 as
//! it is: as a run of its own, by an edit of the version, without a byte being read
//! or written. No merge is done until reads suffer or room is needed
//! ([`super::staging`], [`super::coldest`]); the fast tier is a very large buffer. When
//! the store rests, or room is to be made, all of them are passed on, so that nothing is kept from
//! these: a merge that makes room makes the more of it, the more there is for what it rewrites.
//!
//! With deferred compaction switched off the newest runs are merged with what they
//! overlap of L1, which so has one run, as LevelDB does it.

use std::cell::LazyCell;
use std::sync::Arc;

use thermocline_model::job::{Job, Merge, Reason};
use thermocline_model::table::TableMeta;
use thermocline_model::version::{Keyspace, Run};
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

impl Planner for Newest {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let deferred = self.optimised && view.shape.staging.on.deferred;
        let room_is_wanted =
            LazyCell::new(|| deferred && wanted_bytes(view, &Share::of(view), deferred) > 0);
        let mut due: Vec<(usize, &Keyspace, &[Run])> = Vec::new();
        for keyspace in view.version.keyspaces.values() {
            for part in &keyspace.parts {
                let runs = oldest_free(view, &part.newest.runs);
                let all = deferred && !runs.is_empty() && (view.idle || *room_is_wanted);
                if all || runs.len() >= view.shape.newest_runs_merge {
                    due.push((runs.len(), keyspace, runs));
                }
            }
        }
        // Of equals the first.
        due.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
        let merge = due
            .into_iter()
            .find_map(|(count, keyspace, runs)| match deferred {
                true => pass_on(view, keyspace, runs),
                false => merge_down(view, keyspace, runs, count),
            });
        merge.map(Job::Merge)
    }
}

fn pass_on(view: &View<'_>, keyspace: &Keyspace, runs: &[Run]) -> Option<Merge> {
    let oldest: Vec<&Arc<TableMeta>> = runs.last()?.tables.iter().collect();
    let reason = Reason::new("newest-deferred")
        .with("runs", runs.len() as f64)
        .with("runs_due", view.shape.newest_runs_merge as f64)
        .with("bytes", bytes_of(oldest.iter().copied()) as f64);
    let mut passed = merge(view, keyspace, &oldest, FIRST, reason);
    passed.rewrite = false;
    Some(passed)
}

fn merge_down(view: &View<'_>, keyspace: &Keyspace, runs: &[Run], count: usize) -> Option<Merge> {
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
        .with("runs", count as f64)
        .with("bytes", bytes as f64)
        .with("overlap_bytes", overlap_bytes as f64);
    let mut merged = merge(view, keyspace, &inputs, FIRST, reason);
    merged.rewrite = false;
    Some(merged)
}
