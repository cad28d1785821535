//! Merges by part: OHDB's buckets (section III-A), above a leveled tree.
//!
//! The newest level of a part is its *bucket*. A bucket is merged into the next level as a whole
//! once it has its number of runs, whatever the others have. As parts do not overlap, that rewrites
//! only the part's share of the next level, so the buckets together are a level like any other:
//! what they feed may be `level_ratio` times as large as they are
//! ([`super::targets::Targets::under_buckets`]), and the levels in between, through which an
//! unpartitioned first level has to pass its data, are not needed.
//!
//! A level that is full gives up a part's share as a whole too, up to 128 tables, of the part that
//! overlaps least of the next level for its size (`between.rs`); or a bucket goes through it
//! (`through.rs`). Shares that grow together are merged one after the other, each when it is about
//! twice the average, so that they are cheaper than single tables, and fewer. That is where the
//! paper's small number of merges comes from.
//!
//! When cuts move, the runs of parts that are divided are handed down to the first level,
//! which then has several. They go on from there as buckets do: what overlaps
//! is merged together, straight into the level that buckets are merged into.
//!
//! Which bucket goes first, what waits for what, and everything else is as in
//! [`super::leveled`]. With one part the two are the same.

use std::sync::Arc;

use thermocline_model::job::{Job, Merge, Reason};
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableMeta;
use thermocline_model::version::Keyspace;
use thermocline_model::view::View;

use crate::Planner;
use crate::plan::leveled::{
    Unit, bytes_of, in_the_way, merge_of, overlapping, overlaps_level, plan,
};
use crate::plan::targets::Targets;

/// See the module.
#[derive(Debug, Default)]
pub struct Buckets;

impl Planner for Buckets {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        plan(view, |_| Unit::Part)
    }
}

/// A merge of tables of a level of several runs, above the base: of those that overlap each other,
/// with the tables of the first level below that is in their way. Nothing that stays overlaps them,
/// so they may go down together (I1).
pub(super) fn merge_handed_down(
    view: &View<'_>,
    keyspace: &Keyspace,
    targets: &Targets,
    level: usize,
) -> Option<Merge> {
    let mut tables: Vec<&Arc<TableMeta>> = keyspace.levels[level].tables().collect();
    tables.sort_by(|a, b| a.range.start.cmp(&b.range.start));
    let mut groups: Vec<(KeyRange, Vec<&Arc<TableMeta>>)> = Vec::new();
    for table in tables {
        match groups.last_mut() {
            Some((hull, group)) if hull.overlaps(&table.range) => {
                *hull = hull.hull(&table.range);
                group.push(table);
            }
            _ => groups.push((table.range.clone(), vec![table])),
        }
    }
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.len()));
    let mut groups = groups.into_iter();
    groups.find_map(|(range, group)| {
        let to = (level + 1..targets.base).find(|&l| overlaps_level(keyspace, l, &range));
        let to = to.unwrap_or(targets.base);
        let below = overlapping(keyspace, to, &range)?;
        let hull = below.iter().fold(range, |hull, t| hull.hull(&t.range));
        if in_the_way(view, keyspace, level, to, &hull) {
            return None;
        }
        let reason = Reason::new("handed-down")
            .with("tables", group.len() as f64)
            .with("bytes", bytes_of(group.iter().copied()) as f64)
            .with("overlap_bytes", bytes_of(below) as f64);
        let inputs = group.into_iter().chain(below).collect();
        merge_of(view, keyspace, inputs, to, reason)
    })
}
