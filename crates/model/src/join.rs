//! Where the outputs of a merge join a level: by position alone, as I1 is kept.
//!
//! A level may hold several runs. Of every table that stays, and that overlaps
//! an input and an output, the outputs must lie on the side that the input came from. Between
//! these bounds they join the oldest run that has room for them between its
//! tables, so that runs stay few; if none has, they make a run of their own, as
//! old as it may be. In a level of one run that is that run.
//!
//! And which inputs are not rewritten for that ([`alone`]).

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use crate::range::KeyRange;
use crate::table::{TableId, TableMeta};
use crate::version::{Keyspace, Run, RunId, Slot};

/// The run that outputs go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// One that is there.
    Run(RunId),
    /// A new one: behind the run given, or before all others.
    New {
        /// The run of the same slot that is next newer.
        behind: Option<RunId>,
    },
}

/// The tables in groups that hang together by overlapping, in the order of their keys.
#[must_use]
pub fn stretches<T: Deref<Target = TableMeta>>(tables: impl IntoIterator<Item = T>) -> Vec<Vec<T>> {
    let mut tables: Vec<T> = tables.into_iter().collect();
    tables.sort_by(|a, b| a.range.start.cmp(&b.range.start));
    // By their starts, a table overlaps one before it if it overlaps the hull of those that hang
    // together.
    let mut stretches: Vec<(KeyRange, Vec<T>)> = Vec::new();
    for table in tables {
        match stretches.last_mut() {
            Some((hull, group)) if hull.overlaps(&table.range) => {
                *hull = hull.hull(&table.range);
                group.push(table);
            }
            _ => stretches.push((table.range.clone(), vec![table])),
        }
    }
    stretches.into_iter().map(|(_, group)| group).collect()
}

/// Of `tables`, those that overlap no other: a merge that need not rewrite them passes them down as
/// they are.
#[must_use]
pub fn alone<'a>(tables: impl IntoIterator<Item = &'a TableMeta>) -> BTreeSet<TableId> {
    let stretches = stretches(tables).into_iter();
    let alone = stretches.filter(|group| group.len() == 1);
    alone.flatten().map(|table| table.id).collect()
}

/// Where a run lies in the order of recency: smaller is newer.
fn place(slot: Slot, run: usize) -> (u32, usize) {
    match slot {
        Slot::Newest(_) => (0, run),
        Slot::Level(level) => (level + 1, run),
    }
}

/// Where outputs that cover `outputs` and are made from `inputs` join `slot` of
/// `keyspace`, which still has the inputs. Where no place is lawful the answer is
/// none that [`crate::check_edit`] lets pass.
#[must_use]
pub fn join(keyspace: &Keyspace, slot: Slot, inputs: &[TableId], outputs: &[KeyRange]) -> Join {
    let inputs: BTreeSet<TableId> = inputs.iter().copied().collect();
    let taken = |run: &Run| run.tables.iter().all(|t| inputs.contains(&t.id));
    let runs = keyspace.level(slot).map_or(&[][..], |l| &l.runs);
    // With their places before the inputs go.
    let staying: Vec<(usize, &Run)> = runs.iter().enumerate().filter(|(_, r)| !taken(r)).collect();
    // What no output reaches into may lie on either side of them.
    let reached = |run: &Run| -> Vec<Arc<TableMeta>> {
        let met = outputs.iter().flat_map(|range| run.overlapping(range));
        let mut met: Vec<_> = met.filter(|t| !inputs.contains(&t.id)).cloned().collect();
        met.dedup_by_key(|t| t.id);
        met
    };
    let reached: Vec<_> = staying.iter().map(|(_, run)| reached(run)).collect();
    // Before the runs from `lowest` on, behind those up to `highest`.
    let (mut highest, mut lowest) = (0, staying.len());
    if !staying.is_empty() {
        for from in keyspace.slots() {
            let level = keyspace.level(from).map_or(&[][..], |l| &l.runs);
            for (at, run) in level.iter().enumerate() {
                let moved = run.tables.iter().filter(|t| inputs.contains(&t.id));
                for input in moved {
                    let from = place(from, at);
                    for (index, (at, _)) in staying.iter().enumerate() {
                        if !reached[index]
                            .iter()
                            .any(|t| t.range.overlaps(&input.range))
                        {
                            continue;
                        }
                        if from < place(slot, *at) {
                            lowest = lowest.min(index);
                        } else {
                            highest = highest.max(index + 1);
                        }
                    }
                }
            }
        }
    }
    let joined = (highest..lowest).rev().find(|&i| reached[i].is_empty());
    match joined {
        Some(i) => Join::Run(staying[i].1.id),
        None => Join::New {
            behind: lowest.checked_sub(1).map(|i| staying[i].1.id),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture;
    use crate::version::KeyspaceId;

    /// The number of a table of the run that is joined, or behind which a new run
    /// begins.
    fn joined(text: &str, slot: Slot, inputs: &[u64], outputs: &[(&str, &str)]) -> String {
        let version = picture::parse(text).unwrap();
        let keyspace = &version.keyspaces[&KeyspaceId::DEFAULT];
        let inputs: Vec<TableId> = inputs.iter().map(|&t| TableId(t)).collect();
        let ranges = outputs
            .iter()
            .map(|(a, b)| KeyRange::inclusive(a.as_bytes(), b.as_bytes()));
        let ranges: Vec<KeyRange> = ranges.collect();
        let first = |id: RunId| {
            let runs = &keyspace.level(slot).unwrap().runs;
            let run = runs.iter().find(|r| r.id == id).unwrap();
            let kept = run.tables.iter().find(|t| !inputs.contains(&t.id));
            kept.unwrap().id.0
        };
        match join(keyspace, slot, &inputs, &ranges) {
            Join::Run(id) => format!("join {}", first(id)),
            Join::New { behind: None } => "new, first".to_string(),
            Join::New { behind: Some(id) } => format!("new, behind {}", first(id)),
        }
    }

    const L1: Slot = Slot::Level(0);

    #[test]
    fn alone_is_what_overlaps_no_other() {
        for (text, expected) in [
            ("L1: #1[a..c] #2[d..f] / #3[g..h]", &[1, 2, 3][..]),
            ("L1: #1[a..c] #2[d..f] / #3[c..c]", &[2]),
            ("L1: #1[a..z] / #2[b..c] #3[x..y] / #4[zz..zzz]", &[4]),
            (
                "L1: #1[a..b] #2[c..m] / #3[d..e] / #4[l..n] #5[o..p]",
                &[1, 5],
            ),
            ("L1: #1[a..b] / #2[a..b]", &[]),
            ("L1:", &[]),
        ] {
            let keyspace = picture::parse(text).unwrap();
            let keyspace = &keyspace.keyspaces[&KeyspaceId::DEFAULT];
            let tables: Vec<_> = keyspace.tables().map(|(.., t)| &**t).collect();
            let pairs = |t: &&&TableMeta| {
                let mut others = tables.iter().filter(|o| o.id != t.id);
                !others.any(|o| o.range.overlaps(&t.range))
            };
            let by_pairs: BTreeSet<_> = tables.iter().filter(pairs).map(|t| t.id).collect();
            let found = alone(tables.iter().copied());
            assert_eq!(found, by_pairs, "{text}");
            assert_eq!(found.iter().map(|t| t.0).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn outputs_join_the_one_run_of_a_strict_level() {
        let text = "L0.0: #9[a..c] | L1: #1[a..c] #2[d..f]";
        assert_eq!(joined(text, L1, &[9, 1], &[("a", "c")]), "join 2");
        assert_eq!(joined("L0.0: #9[a..c]", L1, &[9], &[]), "new, first");
        // Nothing of it stays.
        assert_eq!(joined(text, L1, &[9, 1, 2], &[("a", "f")]), "new, first");
    }

    #[test]
    fn a_run_moved_down_lies_just_above_what_it_overlaps() {
        let text = "L0.0: #9[d..e] | L1: #4[a..c] / #3[a..z] / #2[f..h] / #1[d..d]";
        assert_eq!(joined(text, L1, &[9], &[("d", "e")]), "join 4");
        let text = "L0.0: #9[d..e] | L1: #4[a..d] / #3[a..z]";
        assert_eq!(joined(text, L1, &[9], &[("d", "e")]), "new, first");
        let text = "L0.0: #9[d..e] | L1: #4[a..c] / #3[a..c] / #2[f..h]";
        assert_eq!(joined(text, L1, &[9], &[("d", "e")]), "join 2");
    }

    #[test]
    fn what_comes_up_lies_below_all_that_is_newer() {
        let text = "L1: #4[a..c] / #3[a..d] / #2[b..b] #1[k..m] | L7: #5[a..f]{seq=1..1}";
        // With what it overlaps of the oldest run.
        assert_eq!(joined(text, L1, &[5, 2], &[("a", "f")]), "join 1");
        // With nothing: a run behind all others.
        assert_eq!(joined(text, L1, &[5], &[("a", "f")]), "new, behind 2");
    }

    /// A part of a merge may go deeper than the rest: what its inputs overlap elsewhere is not met.
    #[test]
    fn what_no_output_reaches_into_is_not_in_the_way() {
        let text = "L1: #9[a..z] | L7: #1[a..c] #2[f..h] #3[k..m]";
        let last = Slot::Level(6);
        assert_eq!(joined(text, last, &[9, 2], &[("d", "j")]), "join 1");
        assert_eq!(joined(text, last, &[9, 2], &[("c", "j")]), "new, first");
        let text = "L1: #9[a..z] / #8[a..c] / #7[f..h]";
        assert_eq!(joined(text, L1, &[9], &[("d", "e")]), "join 7");
        assert_eq!(joined(text, L1, &[9], &[("d", "e"), ("f", "f")]), "join 8");
    }

    #[test]
    fn what_is_merged_within_its_level_stays_between_newer_and_older() {
        let text = "L1: #5[a..f] / #4[a..c] / #3[b..d] / #2[a..z]";
        assert_eq!(joined(text, L1, &[4, 3], &[("a", "d")]), "new, behind 5");
        let text = "L1: #5[a..f] / #4[a..c] #6[m..n] / #3[b..d] / #2[a..z]";
        assert_eq!(joined(text, L1, &[4, 3], &[("a", "d")]), "join 6");
        assert_eq!(joined(text, L1, &[4, 3], &[("a", "m")]), "new, behind 6");
    }
}
