//! Merges of a part through a level: its newest runs, what the level has there, and what both
//! overlap of the next one, at once.
//!
//! Newest runs are merged into the first level, and this, part by part, into the next. Where a
//! share of the level is due to go down as well, what the first of these merges writes is read by
//! the second, and what the second rewrites of the next level it rewrites for what the level holds
//! alone, while as much may lie in newest runs. So where newest runs and level together rewrite no
//! more of the next level for each of their bytes than the cheapest share would, they go there
//! together. It takes longer than either, and the newest runs of other parts wait for it, so it is
//! done while hardly anybody reads.
//!
//! Why it passes nothing (I1): all newest runs of the part go, none of them is busy, nothing lies
//! above the level in their keys, and all that it has of these goes along.

use std::sync::Arc;

use thermocline_model::job::{Merge, Reason};
use thermocline_model::table::TableMeta;

use crate::plan::between::{Between, Piece};
use crate::plan::leveled::{bytes_of, hull, in_the_way, merge_of, overlapping, overlaps_level};

/// The largest, in tables of full size.
const THROUGH_TABLES_MAX: u64 = 64;

/// See the module.
pub(super) struct Through<'a> {
    between: &'a Between<'a>,
    inputs: Vec<&'a Arc<TableMeta>>,
    runs: usize,
    /// Bytes that go down.
    bytes: u64,
    /// Bytes that they overlap there.
    overlap_bytes: u64,
}

impl<'a> Through<'a> {
    /// Of `part`; `None` while it has fewer runs than are merged, or something is in the way, or it
    /// would be too large.
    pub(super) fn of(between: &'a Between<'a>, part: usize) -> Option<Through<'a>> {
        let Between {
            view,
            keyspace,
            level,
            to,
            ..
        } = *between;
        let runs = &keyspace.parts.get(part)?.newest.runs;
        if runs.len() < view.shape.newest_runs_merge {
            return None;
        }
        let mut inputs: Vec<_> = runs.iter().flat_map(|r| &r.tables).collect();
        let range = hull(inputs.iter().copied())?;
        if (0..level).any(|l| overlaps_level(keyspace, l, &range)) {
            return None;
        }
        inputs.extend(overlapping(keyspace, level, &range)?);
        let bytes = bytes_of(inputs.iter().copied());
        let below = overlapping(keyspace, to, &hull(inputs.iter().copied())?)?;
        inputs.extend(below);
        let overlap_bytes = bytes_of(below);
        let fits = bytes + overlap_bytes <= THROUGH_TABLES_MAX * view.shape.table_bytes;
        let is_busy = inputs.iter().any(|t| view.busy.contains(&t.id));
        let range = hull(inputs.iter().copied())?;
        let may = fits && !is_busy && !in_the_way(view, keyspace, 0, to, &range);
        may.then_some(Through {
            between,
            inputs,
            runs: runs.len(),
            bytes,
            overlap_bytes,
        })
    }

    /// That of the part for which it costs least.
    pub(super) fn cheapest(between: &'a Between<'a>) -> Option<Through<'a>> {
        let parts = 0..between.keyspace.parts.len();
        let all = parts.filter_map(|part| Through::of(between, part));
        all.min_by(|a, b| a.cost().total_cmp(&b.cost()))
    }

    /// Bytes that are rewritten of the next level for each that goes there.
    fn cost(&self) -> f64 {
        self.overlap_bytes as f64 / self.bytes.max(1) as f64
    }

    /// Whether it costs no more than to merge down this `share` of the level, if there is one.
    pub(super) fn is_as_cheap_as(&self, share: Option<&Piece>) -> bool {
        share.is_none_or(|share| self.cost() <= share.cost)
    }

    /// The merge; `score` is that of what is due.
    pub(super) fn merge(self, score: f64) -> Option<Merge> {
        let Between {
            view, keyspace, to, ..
        } = *self.between;
        let reason = Reason::new("part-through")
            .with("score", score)
            .with("runs", self.runs as f64)
            .with("bytes", self.bytes as f64)
            .with("overlap_bytes", self.overlap_bytes as f64);
        merge_of(view, keyspace, self.inputs, to, reason)
    }
}
