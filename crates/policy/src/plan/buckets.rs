//! Merges by part: OHDB's buckets (section III-A), above a leveled tree.
//!
//! The newest level of a part is its *bucket*. A bucket is merged into the next level
//! as a whole once it has its number of runs, whatever the others have. As parts do
//! not overlap, that rewrites only the part's share of the next level, so the
//! buckets together are a level like any other: what they feed may be `level_ratio`
//! times as large as they are ([`super::targets::Targets::under_buckets`]), and the levels in between,
//! through which an unpartitioned first level has to pass its data, are not needed.
//!
//! A level that is full gives up a part's share as a whole too, up to 128 tables, of the part
//! that overlaps least of the next level for its size. Shares that grow together are
//! merged one after the other, each when it is about twice the average, so that
//! they are cheaper than single tables, and fewer. That is where the paper's small
//! number of merges comes from.
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
    Pick, Unit, bytes_of, in_the_way, merge_of, overlapping, overlaps_level, plan,
};
use crate::plan::parts::are_by_writes;
use crate::plan::targets::Targets;

/// Largest merge of a part's share with what it overlaps, in tables of full size,
/// unless a single table overlaps more.
const SHARE_TABLES_MAX: u64 = 128;

/// The same where writes have made the cuts. There one part may hold nearly all keys, those that are seldom
/// written, and while its share is merged nothing newer of it is, nor of others where one merge runs at a time.
const SHARE_BY_WRITES_TABLES_MAX: u64 = 10;

/// See [`SHARE_TABLES_MAX`].
pub(super) fn share_tables_max(keyspace: &Keyspace) -> u64 {
    match are_by_writes(keyspace) {
        true => SHARE_BY_WRITES_TABLES_MAX,
        false => SHARE_TABLES_MAX,
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Buckets;

impl Planner for Buckets {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        plan(view, |_| Unit::Part)
    }
}

/// The part's share of a level that is merged down best, as a range of indices of
/// `upper`, ends included: of the shares that `is_free` allows, the one that overlaps
/// least for its size. A share that is too large for `bytes_max` is divided into pieces that are not, each of
/// at least one table, and each counts as a share.
pub(super) fn share(
    keyspace: &Keyspace,
    upper: &[Arc<TableMeta>],
    lower: &[Arc<TableMeta>],
    picks: &[Pick],
    bytes_max: u64,
    is_free: impl Fn(usize, usize) -> bool,
) -> Option<(usize, usize)> {
    // Of the lower level, what a piece overlaps ends here; what lies in between goes along.
    let end = |a: usize, b: usize| picks[b].to.max(picks[a].from);
    let bytes = |from: usize, to: usize| bytes_of(&lower[from..to]);
    let mut best: Option<(f64, usize, usize)> = None;
    let part = |at: usize| keyspace.cuts.part_of(&upper[at].range.start);
    let mut a = 0;
    while a < upper.len() {
        let (mut b, mut size) = (a, picks[a].size_bytes);
        let mut overlap = bytes(picks[a].from, end(a, a));
        while b + 1 < upper.len() && part(b + 1) == part(a) {
            let with_next = overlap + bytes(end(a, b), end(a, b + 1));
            if size + picks[b + 1].size_bytes + with_next > bytes_max {
                break;
            }
            b += 1;
            size += picks[b].size_bytes;
            overlap = with_next;
        }
        let cost = overlap as f64 / size.max(1) as f64;
        let free = picks[a..=b].iter().all(|p| p.free) && is_free(a, b);
        if free && best.is_none_or(|(least, ..)| cost < least) {
            best = Some((cost, a, b));
        }
        a = b + 1;
    }
    best.map(|(_, a, b)| (a, b))
}

/// A merge of tables of a level of several runs, above the base: of those that
/// overlap each other, with the tables of the first level below that is in their way. Nothing that stays
/// overlaps them, so they may go down together (I1).
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
