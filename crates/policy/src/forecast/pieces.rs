//! What a merge would make, reckoned from the intervals and sizes of its inputs alone.
//!
//! Which entries are overwritten only the entries tell, so outputs have all bytes of their inputs.
//! How these spread over keys is taken to be even within each input ([`Span`]); an output ends
//! where an input begins, so that the key is one that the store has.

use std::sync::Arc;

use thermocline_model::job::Merge;
use thermocline_model::join::{Join, join, stretches};
use thermocline_model::range::KeyRange;
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::version::{Keyspace, Slot};

use crate::place::span::Span;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Goes on to the output slot as it is.
    pub(super) passed: Vec<Arc<TableMeta>>,
    /// Is read, and written anew.
    pub(super) merged: Vec<Arc<TableMeta>>,
    /// What is written.
    pub(super) made: Vec<Piece>,
}

/// A table to be.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) slot: Slot,
    pub(super) range: KeyRange,
    /// Bytes of data, and of metadata.
    pub(super) data_bytes: u64,
    pub(super) meta_bytes: u64,
}

impl Pieces {
    /// Of a merge of `inputs`, which are all that it names, in `keyspace`.
    pub(super) fn of(keyspace: &Keyspace, merge: &Merge, inputs: &[Arc<TableMeta>]) -> Pieces {
        let run = keyspace.level(merge.output).and_then(|l| l.runs.first());
        let stays = |table: &Arc<TableMeta>| run.is_some_and(|r| r.tables.contains(table));
        let mut pieces = Pieces::default();
        let mut groups = Vec::new();
        for group in stretches(inputs.iter().cloned()) {
            match &group[..] {
                [table] if !merge.rewrite && stays(table) => {}
                [table] if !merge.rewrite => pieces.passed.push(Arc::clone(table)),
                _ => groups.push(group),
            }
        }
        pieces.merged = groups.concat();
        let walls = walls(keyspace, merge, &pieces);
        for group in groups {
            pieces.made.extend(made(merge, &walls, &group));
        }
        pieces
    }

    /// The inputs that do not stay where they are.
    pub(super) fn leaving(&self) -> Vec<TableId> {
        let all = self.passed.iter().chain(&self.merged);
        all.map(|t| t.id).collect()
    }
}

/// Where an output must end: what stays in its run begins there, or what goes deeper begins or
/// ends.
fn walls(keyspace: &Keyspace, merge: &Merge, pieces: &Pieces) -> Vec<Box<[u8]>> {
    let leaving = pieces.leaving();
    let deeper = merge.deeper.iter().flat_map(|deeper| &deeper.ranges);
    let ends = deeper.flat_map(|range| {
        let mut behind = range.end.to_vec();
        behind.extend(range.end_inclusive.then_some(0));
        [range.start.clone(), behind.into()]
    });
    let mut walls: Vec<_> = ends.collect();
    for slot in merge.slots() {
        let ranges: Vec<_> = pieces.merged.iter().map(|t| t.range.clone()).collect();
        let Join::Run(run) = join(keyspace, slot, &leaving, &ranges) else {
            continue;
        };
        let runs = keyspace.level(slot).into_iter().flat_map(|l| &l.runs);
        let tables = runs.filter(|r| r.id == run).flat_map(|r| &r.tables);
        let staying = tables.filter(|t| !leaving.contains(&t.id));
        walls.extend(staying.map(|t| t.range.start.clone()));
    }
    walls.extend(pieces.passed.iter().map(|t| t.range.start.clone()));
    walls
}

/// The outputs of a group of inputs that overlap.
fn made(merge: &Merge, walls: &[Box<[u8]>], group: &[Arc<TableMeta>]) -> Vec<Piece> {
    let hull = group.iter().map(|t| t.range.clone());
    let (Some(hull), Some(span)) = (hull.reduce(|a, b| a.hull(&b)), Span::of(group)) else {
        return Vec::new();
    };
    let starts = group.iter().map(|t| &t.range.start);
    let within = walls.iter().filter(|key| hull.contains(key));
    let mut cuts: Vec<_> = starts.chain(within).cloned().collect();
    cuts.sort_unstable();
    cuts.dedup();
    let ranges = cuts.iter().enumerate().map(|(at, start)| {
        let start = start.clone();
        match cuts.get(at + 1) {
            Some(end) => KeyRange::exclusive(&start, end),
            None => KeyRange {
                start,
                ..hull.clone()
            },
        }
    });
    let ranges: Vec<_> = ranges.collect();
    // By range: data and metadata.
    let mut bytes = vec![(0.0, 0.0); ranges.len()];
    for table in group {
        let within = |range| span.shared(&table.range, range);
        let all: f64 = ranges.iter().map(within).sum();
        for (range, (data, meta)) in ranges.iter().zip(&mut bytes) {
            let share = within(range) / all;
            *data += share * table.data_bytes() as f64;
            *meta += share * table.meta.length as f64;
        }
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for (range, (data, meta)) in ranges.into_iter().zip(bytes) {
        let end = (!range.end_inclusive).then_some(&*range.end);
        let slot = merge.slot_of(Some(&range.start), end);
        let (data_bytes, meta_bytes) = (data.round() as u64, meta.round() as u64);
        let joins = |last: &&mut Piece| {
            let ends = last.data_bytes >= merge.table_bytes || walls.contains(&range.start);
            last.slot == slot && !ends
        };
        match pieces.last_mut().filter(joins) {
            Some(last) => {
                last.range = last.range.hull(&range);
                last.data_bytes += data_bytes;
                last.meta_bytes += meta_bytes;
            }
            None => pieces.push(Piece {
                slot,
                range,
                data_bytes,
                meta_bytes,
            }),
        }
    }
    pieces.retain(|piece| piece.data_bytes + piece.meta_bytes > 0);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_model::job::{Deeper, Reason};
    use thermocline_model::picture::parse;

    /// The merge of `inputs` of the first keyspace of `picture` into L1.
    fn pieces(picture: &str, inputs: &[u64], change: impl FnOnce(&mut Merge)) -> Pieces {
        let version = parse(picture).unwrap();
        let (&id, keyspace) = version.keyspaces.iter().next().unwrap();
        let mut merge = Merge {
            keyspace: id,
            inputs: inputs.iter().map(|&id| TableId(id)).collect(),
            output: Slot::Level(0),
            table_bytes: 8 << 10,
            rewrite: false,
            deeper: None,
            reason: Reason::new("test"),
        };
        change(&mut merge);
        let named = keyspace
            .tables()
            .filter(|(_, _, t)| merge.inputs.contains(&t.id));
        let named: Vec<_> = named.map(|(_, _, t)| Arc::clone(t)).collect();
        let pieces = Pieces::of(keyspace, &merge, &named);
        let ids = |tables: &[Arc<TableMeta>]| tables.iter().map(|t| t.id.0).collect::<Vec<_>>();
        let bytes = |pieces: &Pieces| pieces.made.iter().map(|p| p.data_bytes).sum::<u64>();
        let merged: u64 = pieces.merged.iter().map(|t| t.data_bytes()).sum();
        let made = bytes(&pieces);
        assert!(made.abs_diff(merged) <= 8, "{made} of {merged}");
        for two in pieces.made.windows(2) {
            assert!(two[0].range.is_before(&two[1].range), "{two:?}");
        }
        assert!(ids(&pieces.merged).iter().all(|id| inputs.contains(id)));
        pieces
    }

    fn shown(pieces: &Pieces) -> Vec<String> {
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let made = pieces.made.iter().map(|p| {
            let end = if p.range.end_inclusive { "]" } else { ")" };
            let (from, to) = (text(&p.range.start), text(&p.range.end));
            format!("{} [{from}..{to}{end}", p.slot)
        });
        made.collect()
    }

    const TWO: &str =
        "L0.0: #9[a..z]{size=16K} | L1: #1[a..f]{size=8K} #2[g..m]{size=8K} #3[n..z]{size=8K}";

    #[test]
    fn outputs_end_where_inputs_begin_and_have_all_bytes() {
        let made = pieces(TWO, &[9, 1, 2, 3], |_| {});
        assert_eq!(shown(&made), ["L1 [a..g)", "L1 [g..n)", "L1 [n..z]"]);
        let made = pieces(TWO, &[9, 1, 2, 3], |m| m.table_bytes = 20 << 10);
        assert_eq!(shown(&made), ["L1 [a..n)", "L1 [n..z]"]);
    }

    #[test]
    fn what_overlaps_nothing_passes_or_stays() {
        let picture =
            "L0.0: #9[a..c]{size=16K} #8[x..z]{size=9K} | L1: #1[b..f]{size=8K} #2[g..m]{size=8K}";
        let made = pieces(picture, &[9, 8, 1, 2], |_| {});
        assert_eq!(made.leaving(), [8, 9, 1].map(TableId));
        assert_eq!(made.passed[0].id, TableId(8));
        let made = pieces(picture, &[8], |m| m.rewrite = true);
        assert_eq!(shown(&made), ["L1 [x..z]"]);
    }

    #[test]
    fn no_output_reaches_across_what_stays_or_into_what_goes_deeper() {
        let picture =
            "L0.0: #9[a..z]{size=6K} #8[b..y]{size=6K} | L1: #1[m..n]{size=8K} | L2: #2[p..q]";
        let made = pieces(picture, &[9, 8, 1], |m| m.table_bytes = 1 << 20);
        assert_eq!(shown(&made), ["L1 [a..z]"]);
        let made = pieces(picture, &[9, 8, 1, 2], |m| {
            m.table_bytes = 1 << 20;
            m.deeper = Some(Deeper {
                slot: Slot::Level(1),
                ranges: vec![KeyRange::inclusive(b"p", b"q")],
                bytes: 0,
            });
        });
        assert_eq!(shown(&made), ["L1 [a..p)", "L2 [p..q\0)", "L1 [q\0..z]"]);
    }
}
