//! Which keys may have older entries outside a merge.

use std::sync::Arc;

use thermocline_model::range::KeyRange;
use thermocline_model::table::TableMeta;

/// The tables that a merge does not read and that may hold entries older than
/// its inputs.
#[derive(Debug)]
pub(crate) struct Below {
    /// By run: sorted, not overlapping; with the index of the first table that
    /// does not end before the last key asked about.
    runs: Vec<(Vec<Arc<TableMeta>>, usize)>,
}

impl Below {
    /// `runs` are sorted tables that do not overlap within a run.
    pub(crate) fn new(runs: Vec<Vec<Arc<TableMeta>>>) -> Below {
        Below {
            runs: runs.into_iter().map(|r| (r, 0)).collect(),
        }
    }

    /// Whether an older entry of `key` may exist. Requires: keys ascend.
    pub(crate) fn may_hold(&mut self, key: &[u8]) -> bool {
        self.runs.iter_mut().any(|(tables, at)| {
            while tables.get(*at).is_some_and(|t| t.range.ends_before(key)) {
                *at += 1;
            }
            tables.get(*at).is_some_and(|t| t.range.contains(key))
        })
    }

    /// Whether an older entry may exist in `[start, end)`.
    pub(crate) fn may_overlap(&self, start: &[u8], end: &[u8]) -> bool {
        let range = KeyRange::exclusive(start, end);
        self.runs.iter().any(|(tables, _)| {
            let from = tables.partition_point(|t| t.range.is_before(&range));
            tables.get(from).is_some_and(|t| t.range.overlaps(&range))
        })
    }
}
