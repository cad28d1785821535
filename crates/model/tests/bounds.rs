//! The bounds that the guard keeps, each from both sides.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use thermocline_model::key::SeqNo;
use thermocline_model::table::{Extent, ObjectId, TableId, TableMeta};
use thermocline_model::version::{
    Keyspace, KeyspaceId, LEVELS_MAX, Level, Run, RunId, Slot, TINY_MAX, Version,
};
use thermocline_model::{
    Ahead, Broken, Change, Cuts, Edit, Invariant, Tiny, check_edit, check_version, picture,
};

const K: KeyspaceId = KeyspaceId::DEFAULT;

fn keyspace(version: &mut Version) -> &mut Keyspace {
    Arc::make_mut(version.keyspaces.get_mut(&K).unwrap())
}

fn run(version: &mut Version) -> &mut Run {
    &mut keyspace(version).levels.last_mut().unwrap().runs[0]
}

/// The first table of the last level.
fn table(version: &mut Version) -> &mut TableMeta {
    Arc::make_mut(&mut run(version).tables[0])
}

/// What is said of the picture after the change.
fn said(text: &str, change: impl FnOnce(&mut Version)) -> Option<Invariant> {
    let mut version = picture::parse(text).unwrap();
    change(&mut version);
    check_version(&version).err().map(|broken| broken.invariant)
}

fn judge(before: &Version, changes: Vec<Change>) -> Result<(), Broken> {
    check_version(before).unwrap();
    let edit = Edit { changes };
    let after = edit.apply(before).unwrap();
    check_edit(before, &edit, &after)
}

fn refused(judged: Result<(), Broken>, invariant: Invariant) {
    let broken = judged.expect_err("it is refused");
    assert_eq!(broken.invariant, invariant, "{broken}");
}

const ONE: &str = "L1: #1[a..b]";

#[test]
fn a_keyspace_bears_its_own_number_and_name_below_the_next() {
    assert_eq!(said(ONE, |_| ()), None);
    let numbers = Some(Invariant::Numbers);
    assert_eq!(said(ONE, |v| keyspace(v).id = KeyspaceId(7)), numbers);
    assert_eq!(said(ONE, |v| v.next_keyspace = 0), numbers);
    let another = |name: &'static str| {
        move |v: &mut Version| {
            let one = Keyspace::new(KeyspaceId(1), name, Cuts::default());
            v.keyspaces.insert(one.id, Arc::new(one));
            v.next_keyspace = 2;
        }
    };
    assert_eq!(said(ONE, another("other")), None);
    assert_eq!(said(ONE, another("default")), numbers);
}

#[test]
fn a_keyspace_has_as_many_parts_as_its_cuts_make_and_sixteen_levels() {
    let shape = Some(Invariant::Shape);
    let part = |v: &mut Version| keyspace(v).parts.push(Default::default());
    assert_eq!(said(ONE, part), shape);
    assert_eq!(LEVELS_MAX, 16);
    assert_eq!(said("L16: #1[a..b]", |_| ()), None);
    for more in [1, 2] {
        let deeper = |v: &mut Version| {
            for _ in 0..more {
                keyspace(v).levels.insert(0, Level::default());
            }
        };
        assert_eq!(said("L16: #1[a..b]", deeper), shape);
    }
    let empty = |v: &mut Version| keyspace(v).levels.push(Level::default());
    assert_eq!(said(ONE, empty), shape);
}

/// Of three parts the second begins and ends, and the third begins.
const THREE: &str = "cuts g p | L1: #5[a..z]";

#[test]
fn tiny_ranges_begin_with_their_part_ascend_and_end_within_it() {
    let shape = Some(Invariant::Shape);
    let said = |part: usize, starts: &[&str]| {
        let tiny = starts.iter().map(|start| Tiny {
            start: start.as_bytes().into(),
            writes: 1,
        });
        said(THREE, |v| keyspace(v).parts[part].tiny = tiny.collect())
    };
    for lawful in [&[][..], &["g"], &["g", "h", "o"]] {
        assert_eq!(said(1, lawful), None, "{lawful:?}");
    }
    for start in ["", "f", "h"] {
        assert_eq!(said(1, &[start]), shape, "{start}");
    }
    assert_eq!(said(1, &["g", "h", "h"]), shape);
    assert_eq!(said(1, &["g", "i", "h"]), shape);
    assert_eq!(said(1, &["g", "p"]), shape);
    assert_eq!(said(1, &["g", "q"]), shape);
    // The first part begins before every key, the last one has no end.
    assert_eq!(said(0, &["", "a"]), None);
    assert_eq!(said(0, &["a"]), shape);
    assert_eq!(said(2, &["p", "zz"]), None);
}

#[test]
fn a_part_has_at_most_256_tiny_ranges() {
    assert_eq!(TINY_MAX, 256);
    let of = |count: usize| {
        let starts = (0..count).map(|at| match at {
            0 => Box::default(),
            _ => format!("{at:03}").into_bytes().into(),
        });
        let tiny = starts.map(|start| Tiny { start, writes: 1 }).collect();
        said(ONE, |v| keyspace(v).parts[0].tiny = tiny)
    };
    assert_eq!(of(256), None);
    assert_eq!(of(257), Some(Invariant::Shape));
    assert_eq!(of(258), Some(Invariant::Shape));
}

/// Keys of a part that are ahead of it: first key, end, number.
type AheadOf<'a> = (&'a str, Option<&'a str>, u64);

fn ahead(keys: &[AheadOf<'_>]) -> Vec<Ahead> {
    let ahead = keys.iter().map(|(start, end, flushed)| Ahead {
        start: start.as_bytes().into(),
        end: end.map(|end| end.as_bytes().into()),
        flushed: SeqNo(*flushed),
    });
    ahead.collect()
}

#[test]
fn keys_that_are_ahead_lie_in_their_part_in_order_and_apart() {
    let said = |part: usize, keys: &[AheadOf<'_>]| {
        said(THREE, |v| {
            v.last_seq = SeqNo(9);
            keyspace(v).parts[part].ahead = ahead(keys);
        })
    };
    let lawful: [(usize, &[AheadOf<'_>]); 6] = [
        (0, &[("", Some("b"), 6), ("d", Some("g"), 7)]),
        (1, &[("g", Some("h"), 6), ("h", Some("p"), 7)]),
        (1, &[("i", Some("k"), 7), ("l", Some("m"), 6)]),
        (2, &[("p", None, 6)]),
        (2, &[("q", None, 6)]),
        (2, &[("p", Some("q"), 6), ("r", None, 7)]),
    ];
    for (part, keys) in lawful {
        assert_eq!(said(part, keys), None, "{part} {keys:?}");
    }
    let unlawful: [(usize, &[AheadOf<'_>]); 9] = [
        // Before the part, beyond it, and without an end where it has one.
        (1, &[("f", Some("h"), 6)]),
        (1, &[("h", Some("q"), 6)]),
        (1, &[("h", None, 6)]),
        (1, &[("q", Some("r"), 6)]),
        // No keys.
        (1, &[("h", Some("h"), 6)]),
        (1, &[("i", Some("h"), 6)]),
        // Some keys twice.
        (1, &[("g", Some("i"), 6), ("h", Some("k"), 7)]),
        (1, &[("i", Some("k"), 6), ("g", Some("h"), 7)]),
        (2, &[("p", None, 6), ("q", None, 7)]),
    ];
    for (part, keys) in unlawful {
        let shape = Some(Invariant::Shape);
        assert_eq!(said(part, keys), shape, "{part} {keys:?}");
    }
}

#[test]
fn keys_that_are_ahead_are_further_than_their_part_and_not_than_the_last_entry() {
    let to = |flushed: u64| {
        said(ONE, |v| {
            v.last_seq = SeqNo(9);
            keyspace(v).parts[0].flushed = SeqNo(5);
            keyspace(v).parts[0].ahead = ahead(&[("c", Some("e"), flushed)]);
        })
    };
    for flushed in [6, 7, 9] {
        assert_eq!(to(flushed), None, "{flushed}");
    }
    for flushed in [4, 5, 10, 11] {
        assert_eq!(to(flushed), Some(Invariant::Progress), "{flushed}");
    }
}

#[test]
fn keys_are_ahead_until_the_rest_of_their_part_has_caught_up() {
    let mut before = picture::parse(ONE).unwrap();
    before.last_seq = SeqNo(9);
    keyspace(&mut before).parts[0].flushed = SeqNo(5);
    keyspace(&mut before).parts[0].ahead = ahead(&[("c", Some("e"), 7), ("e", None, 9)]);
    let flushed_to = |flushed: u64| {
        let change = Change::SetFlushed {
            keyspace: K,
            part: 0,
            flushed: SeqNo(flushed),
        };
        let mut after = Edit::of(change).apply(&before).unwrap();
        check_version(&after).unwrap();
        let part = &keyspace(&mut after).parts[0];
        let of = |key: &[u8]| part.flushed_of(key).0;
        (part.ahead.len(), [of(b"b"), of(b"c"), of(b"d"), of(b"e")])
    };
    assert_eq!(flushed_to(5), (2, [5, 7, 7, 9]));
    assert_eq!(flushed_to(6), (2, [6, 7, 7, 9]));
    assert_eq!(flushed_to(7), (1, [7, 7, 7, 9]));
    assert_eq!(flushed_to(8), (1, [8, 8, 8, 9]));
    assert_eq!(flushed_to(9), (0, [9, 9, 9, 9]));
}

#[test]
fn numbers_lie_between_zero_and_the_next() {
    let numbers = Some(Invariant::Numbers);
    for next in [false, true] {
        let number = |v: &Version| if next { v.next_id } else { 0 };
        let of_run = |v: &mut Version| run(v).id = RunId(number(v));
        assert_eq!(said(ONE, of_run), numbers);
        let of_table = |v: &mut Version| table(v).id = TableId(number(v));
        assert_eq!(said(ONE, of_table), numbers);
        let of_object = |v: &mut Version| table(v).data[0].object = ObjectId(number(v));
        assert_eq!(said(ONE, of_object), numbers);
        let of_meta = |v: &mut Version| table(v).meta.object = ObjectId(number(v));
        assert_eq!(said(ONE, of_meta), numbers);
    }
}

#[test]
fn a_run_has_tables() {
    let text = "L0.0: #2[a..b] | L1: #1[a..b]";
    assert_eq!(
        said(text, |v| run(v).tables.clear()),
        Some(Invariant::Shape)
    );
}

#[test]
fn entries_are_numbered_up_to_the_last_and_within_56_bits() {
    let numbered = |min: u64, max: u64, last: u64| {
        said(ONE, |v| {
            table(v).seq_min = SeqNo(min);
            table(v).seq_max = SeqNo(max);
            v.last_seq = SeqNo(last);
            keyspace(v).parts[0].flushed = SeqNo::ZERO;
        })
    };
    let wrong = Some(Invariant::Table);
    assert_eq!(numbered(3, 3, 3), None);
    assert_eq!(numbered(4, 3, 9), wrong);
    assert_eq!(numbered(3, 4, 3), wrong);
    let max = SeqNo::MAX.0;
    assert_eq!(numbered(1, max, max), None);
    assert_eq!(numbered(1, max + 1, max + 1), wrong);
    assert_eq!(numbered(1, max + 2, max + 2), wrong);
}

#[test]
fn a_table_may_hold_deletes_alone_and_range_deletes_alone() {
    let wrong = Some(Invariant::Table);
    assert_eq!(said("L1: #1[a..b]{deletes=100}", |_| ()), None);
    assert_eq!(said("L1: #1[a..b]{deletes=101}", |_| ()), wrong);
    assert_eq!(
        said("L1: #1[a..b]{entries=0,ranges=1,size=0}", |_| ()),
        None
    );
    assert_eq!(said("L1: #1[a..b]{entries=0,size=0}", |_| ()), wrong);
    assert_eq!(
        said("L1: #1[a..b]{entries=1,ranges=1,size=0}", |_| ()),
        wrong
    );
}

#[test]
fn the_bytes_of_a_table_are_counted_in_64_bits() {
    let sized = |data: u64, meta: u64| {
        said(ONE, |v| {
            table(v).data[0].length = data;
            table(v).meta.length = meta;
        })
    };
    assert_eq!(sized(u64::MAX - 9, 9), None);
    assert_eq!(sized(u64::MAX - 9, 10), Some(Invariant::Table));
    assert_eq!(sized(u64::MAX, 1), Some(Invariant::Table));
    let dead = |bytes: u64| said("L1: #1[a..b]{size=100}", |v| table(v).dead_bytes = bytes);
    assert_eq!(dead(100), None);
    assert_eq!(dead(101), Some(Invariant::Table));
}

#[test]
fn extents_of_one_object_lie_side_by_side() {
    // The second extent, and what becomes of a table whose first is 100..200.
    let placed = |offset: u64, length: u64| {
        said(ONE, |v| {
            let first = Extent {
                offset: 100,
                length: 100,
                ..table(v).data[0]
            };
            table(v).data = vec![
                first,
                Extent {
                    offset,
                    length,
                    ..first
                },
            ];
        })
    };
    let wrong = Some(Invariant::Table);
    assert_eq!(placed(0, 100), None);
    assert_eq!(placed(0, 101), wrong);
    assert_eq!(placed(200, 100), None);
    assert_eq!(placed(199, 100), wrong);
    assert_eq!(placed(120, 10), wrong);
    assert_eq!(placed(u64::MAX - 10, 10), None);
    assert_eq!(placed(u64::MAX - 10, 11), wrong);
}

#[test]
fn what_may_only_grow_may_stay() {
    let before = picture::parse("L1: #5[a..g]").unwrap();
    let flushed = |to| Change::SetFlushed {
        keyspace: K,
        part: 0,
        flushed: SeqNo(to),
    };
    judge(&before, vec![flushed(5)]).unwrap();
    refused(judge(&before, vec![flushed(4)]), Invariant::Progress);
    refused(judge(&before, vec![flushed(6)]), Invariant::Progress);
    let floor = |segment| Change::SetLogFloor { segment };
    let before = Edit::of(floor(3)).apply(&before).unwrap();
    judge(&before, vec![floor(3)]).unwrap();
    refused(judge(&before, vec![floor(2)]), Invariant::Progress);
}

#[test]
fn the_log_need_not_reach_past_the_last_entry() {
    let reach = |to| said("L1: #5[a..g]", |v| v.log_reach = SeqNo(to));
    assert_eq!((reach(4), reach(5)), (None, None));
    assert_eq!(reach(6), Some(Invariant::Progress));
    assert_eq!(reach(7), Some(Invariant::Progress));
    let before = picture::parse("L1: #5[a..g]").unwrap();
    let reach = |to| judge(&before, vec![Change::SetLogReach { seq: SeqNo(to) }]);
    reach(4).unwrap();
    reach(5).unwrap();
    refused(reach(6), Invariant::Progress);
    refused(reach(7), Invariant::Progress);
}

#[test]
fn the_log_begins_no_later_than_behind_the_last_entry_and_its_beginning_never_goes_back() {
    let base = |to| said("L1: #5[a..g]", |v| v.log_base = SeqNo(to));
    assert_eq!((base(4), base(5)), (None, None));
    assert_eq!(base(6), Some(Invariant::Progress));
    assert_eq!(base(7), Some(Invariant::Progress));
    let before = picture::parse("L1: #5[a..g]").unwrap();
    let base = |to| Change::SetLogBase { seq: SeqNo(to) };
    judge(&before, vec![base(5)]).unwrap();
    refused(judge(&before, vec![base(6)]), Invariant::Progress);
    let before = Edit::of(base(3)).apply(&before).unwrap();
    judge(&before, vec![base(3)]).unwrap();
    refused(judge(&before, vec![base(2)]), Invariant::Progress);
}

#[test]
fn each_counter_may_stay_and_none_may_shrink() {
    let mut before = picture::parse("L1: #5[a..g]").unwrap();
    before.next_keyspace = 4;
    let (id, keyspace, seq) = (before.next_id, before.next_keyspace, before.last_seq.0);
    let set = |next_id, next_keyspace, last_seq| {
        let counters = Change::SetCounters {
            next_id,
            next_keyspace,
            last_seq: SeqNo(last_seq),
        };
        judge(&before, vec![counters])
    };
    set(id, keyspace, seq).unwrap();
    set(id + 1, keyspace + 1, seq + 1).unwrap();
    refused(set(id - 1, keyspace, seq), Invariant::Numbers);
    refused(set(id, keyspace - 1, seq), Invariant::Numbers);
    refused(set(id, keyspace, seq - 1), Invariant::Numbers);
    let max = SeqNo::MAX.0;
    set(id, keyspace, max).unwrap();
    refused(set(id, keyspace, max + 1), Invariant::Numbers);
    refused(set(id, keyspace, max + 2), Invariant::Numbers);
}

#[test]
fn the_number_of_a_dropped_keyspace_is_not_given_again() {
    let mut before = picture::parse("L1: #5[a..g]").unwrap();
    let add = |number| Change::AddKeyspace {
        keyspace: KeyspaceId(number),
        name: "other".to_string(),
        cuts: Cuts::default(),
    };
    let drop = |number| Change::DropKeyspace {
        keyspace: KeyspaceId(number),
    };
    judge(&before, vec![add(1)]).unwrap();
    before = Edit::of(add(1)).apply(&before).unwrap();
    judge(&before, vec![drop(1)]).unwrap();
    before = Edit::of(drop(1)).apply(&before).unwrap();
    refused(judge(&before, vec![add(1)]), Invariant::Numbers);
    judge(&before, vec![add(2)]).unwrap();
    judge(&before, vec![add(7)]).unwrap();
}

#[test]
fn two_new_tables_of_one_run_do_not_share_an_object() {
    let before = picture::parse("L1: #5[a..g]").unwrap();
    let new = |number: u64, text: &str, object: u64| {
        let mut table = picture::parse_table(text).unwrap();
        table.id = TableId(number);
        table.meta.object = ObjectId(number + 1);
        table.data[0].object = ObjectId(object);
        Change::AddTable {
            keyspace: K,
            slot: Slot::Newest(0),
            run: RunId(100),
            behind: None,
            table: Arc::new(table),
        }
    };
    let flushed = Change::SetFlushed {
        keyspace: K,
        part: 0,
        flushed: SeqNo(9),
    };
    let counters = Change::SetCounters {
        next_id: 1000,
        next_keyspace: 1,
        last_seq: SeqNo(9),
    };
    let judged = |number, object| {
        let one = new(200, "#1[a..c]{seq=6..9}", 300);
        let other = new(number, "#1[d..e]{seq=6..9}", object);
        let changes = vec![counters.clone(), one, other, flushed.clone()];
        judge(&before, changes)
    };
    judged(210, 310).unwrap();
    refused(judged(210, 300), Invariant::Numbers);
    refused(judged(200, 310), Invariant::Numbers);
}
