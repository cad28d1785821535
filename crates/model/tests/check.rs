//! What the guard of the one door lets pass and what it refuses.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use thermocline_model::key::SeqNo;
use thermocline_model::table::{ObjectId, TableId, TableMeta};
use thermocline_model::version::{Keyspace, KeyspaceId, RunId, Slot, Version};
use thermocline_model::{Broken, Change, Edit, Invariant, check_edit, check_version, picture};

const K: KeyspaceId = KeyspaceId::DEFAULT;
const L0: Slot = Slot::Newest(0);
const L1: Slot = Slot::Level(0);
const L2: Slot = Slot::Level(1);

/// Where a new table goes.
#[derive(Clone, Copy)]
enum At {
    /// Into a new run, the newest of its slot.
    Newest,
    /// Into the run of that table.
    With(u64),
    /// Into a new run behind the run of that table.
    Behind(u64),
}

fn keyspace(version: &Version) -> &Keyspace {
    &version.keyspaces[&K]
}

fn remove(table: u64) -> Change {
    Change::RemoveTable {
        keyspace: K,
        table: TableId(table),
    }
}

fn add(before: &Version, slot: Slot, at: At, table: &str) -> Change {
    let run_of = |t| keyspace(before).find(TableId(t)).expect("it is there").1;
    let mut table = picture::parse_table(table).unwrap();
    // Objects of pictures are numbered from below 1000.
    table.meta.object = ObjectId(2000 + table.id.0);
    table.data[0].object = ObjectId(3000 + table.id.0);
    let old = keyspace(before)
        .find(table.id)
        .map(|(_, _, t)| Arc::clone(t));
    let table = old.unwrap_or_else(|| Arc::new(table));
    let fresh = RunId(4000 + table.id.0);
    let (run, behind) = match at {
        At::Newest => (fresh, None),
        At::With(t) => (run_of(t), None),
        At::Behind(t) => (fresh, Some(run_of(t))),
    };
    Change::AddTable {
        keyspace: K,
        slot,
        run,
        behind,
        table,
    }
}

fn flushed(to: u64) -> Change {
    Change::SetFlushed {
        keyspace: K,
        part: 0,
        flushed: SeqNo(to),
    }
}

fn counters() -> Change {
    Change::SetCounters {
        next_id: 9999,
        next_keyspace: 1,
        last_seq: SeqNo(999),
    }
}

/// Merges `inputs` into `outputs`.
fn merge(before: &str, inputs: &[u64], outputs: &[(Slot, At, &str)]) -> Result<(), Broken> {
    let version = picture::parse(before).unwrap();
    let mut changes: Vec<Change> = vec![counters()];
    changes.extend(inputs.iter().map(|&t| remove(t)));
    changes.extend(outputs.iter().map(|(s, at, t)| add(&version, *s, *at, t)));
    judge(&version, changes)
}

fn judge(before: &Version, changes: Vec<Change>) -> Result<(), Broken> {
    check_version(before).unwrap();
    let edit = Edit { changes };
    let after = edit.apply(before).unwrap();
    let judged = check_edit(before, &edit, &after);
    if judged.is_ok() {
        check_version(&after).unwrap();
    }
    judged
}

fn refused(judged: Result<(), Broken>, invariant: Invariant) {
    let broken = judged.expect_err("it is refused");
    assert_eq!(broken.invariant, invariant, "{broken}");
}

const TREE: &str = "L0.0: #9[a..f] / #8[c..z] | L1: #5[a..g] #6[h..p] | L2: #2[a..m] #3[n..z]";

#[test]
fn a_merge_of_the_newest_runs_with_all_below_that_overlaps_passes() {
    let out = [
        (L1, At::Newest, "#20[a..m]{seq=1..9}"),
        (L1, At::With(6), "#21[n..z]{seq=1..9}"),
    ];
    let out = [(out[0].0, At::With(6), out[0].2), out[1]];
    merge(TREE, &[9, 8, 5, 6], &out).unwrap();
}

#[test]
fn a_merge_whose_inputs_skip_an_overlapping_table_is_refused() {
    let out = [(L2, At::With(3), "#20[a..m]{seq=1..9}")];
    refused(merge(TREE, &[9, 2], &out), Invariant::Recency);
    refused(merge(TREE, &[9, 5, 2], &out), Invariant::Recency);
    merge(TREE, &[5, 2], &[(L2, At::With(3), "#20[a..m]{seq=2..5}")]).unwrap();
}

#[test]
fn an_output_left_above_a_newer_run_is_refused() {
    // 8 and what lies below go up to where 9 was newer.
    let out = [(L0, At::Newest, "#20[c..z]{seq=1..9}")];
    refused(merge(TREE, &[8, 6], &out), Invariant::Recency);
    refused(merge(TREE, &[8], &out), Invariant::Recency);
    merge(TREE, &[8], &[(L0, At::Behind(9), "#20[c..z]{seq=8}")]).unwrap();
}

#[test]
fn a_newer_run_is_not_merged_below_an_older_one() {
    let out = [(L1, At::With(6), "#20[a..g]{seq=1..9}")];
    refused(merge(TREE, &[9, 5], &out), Invariant::Recency);
}

#[test]
fn a_table_that_overlaps_nothing_on_its_way_is_moved_as_it_is() {
    let before = "L0.0: #9[a..b] | L1: #5[c..d] #6[h..p] | L2: #2[e..m] #3[n..z]";
    merge(before, &[9], &[(L1, At::With(5), "#9[a..b]")]).unwrap();
    merge(before, &[9], &[(L2, At::With(2), "#9[a..b]")]).unwrap();
    merge(before, &[5], &[(L0, At::Newest, "#5[c..d]")]).unwrap();
    refused(
        merge(before, &[6], &[(L2, At::Behind(2), "#6[h..p]")]),
        Invariant::Recency,
    );
}

#[test]
fn moving_two_overlapping_tables_keeps_their_order() {
    let before = "L1: #5[a..g] | L2: #2[a..m] | L4: #1[x..z]";
    let right = [
        (L2, At::Newest, "#5[a..g]"),
        (Slot::Level(2), At::Newest, "#2[a..m]"),
    ];
    let wrong = [
        (Slot::Level(2), At::Newest, "#5[a..g]"),
        (L2, At::Newest, "#2[a..m]"),
    ];
    merge(before, &[5, 2], &right).unwrap();
    refused(merge(before, &[5, 2], &wrong), Invariant::Recency);
}

#[test]
fn moving_two_tables_whose_numbers_interleave_keeps_their_order() {
    let before = "L1: #5[a..g]{seq=1..5} | L2: #2[a..m]{seq=2..4}";
    let to = |upper, lower| [(L2, At::Newest, upper), (Slot::Level(2), At::Newest, lower)];
    merge(before, &[5, 2], &to("#5[a..g]", "#2[a..m]")).unwrap();
    refused(
        merge(before, &[5, 2], &to("#2[a..m]", "#5[a..g]")),
        Invariant::Recency,
    );
}

#[test]
fn a_table_that_changes_as_it_moves_is_refused() {
    let before = picture::parse("L1: #5[a..g]").unwrap();
    let mut change = add(&before, L2, At::Newest, "#5[a..g]");
    judge(&before, vec![counters(), remove(5), change.clone()]).unwrap();
    if let Change::AddTable { table, .. } = &mut change {
        Arc::make_mut(table).entries -= 1;
    }
    refused(
        judge(&before, vec![counters(), remove(5), change]),
        Invariant::Table,
    );
}

#[test]
fn one_table_is_not_parted_into_two_that_share_keys_and_numbers() {
    let merged = |lower| {
        let upper = "#20[a..e]{seq=4..9,entries=50}";
        let out = [(L1, At::Newest, upper), (L2, At::Newest, lower)];
        merge("L1: #5[a..g]{seq=1..9}", &[5], &out)
    };
    merged("#21[d..g]{seq=1..3,entries=50}").unwrap();
    refused(merged("#21[d..g]{seq=1..4,entries=50}"), Invariant::Recency);
    merged("#21[f..g]{seq=1..9,entries=50}").unwrap();
}

/// Loads a table into L2 of a store whose entries are flushed up to 9.
fn load(before: &str, table: &str, parts: &[u32]) -> Result<(), Broken> {
    let before = picture::parse(before).unwrap();
    let mut changes = vec![counters(), add(&before, L2, At::Newest, table)];
    changes.extend(parts.iter().map(|&part| Change::SetFlushed {
        keyspace: K,
        part,
        flushed: SeqNo(10),
    }));
    judge(&before, changes)
}

#[test]
fn a_bulk_load_lies_where_nothing_overlaps_it_and_is_newer_than_all() {
    let before = "L0.0: #9[a..c] | L1: #5[d..g] #6[p..z]";
    load(before, "#20[h..m]{seq=10}", &[0]).unwrap();
    refused(load(before, "#20[g..m]{seq=10}", &[0]), Invariant::Recency);
    refused(load(before, "#20[c..c]{seq=10}", &[0]), Invariant::Recency);
    for seq in ["9", "9..10", "10..11", "11"] {
        let table = format!("#20[h..m]{{seq={seq}}}");
        refused(load(before, &table, &[0]), Invariant::Progress);
    }
    refused(load(before, "#20[h..m]{seq=10}", &[]), Invariant::Progress);
}

#[test]
fn a_bulk_load_concerns_the_parts_it_reaches() {
    let before = "cuts h | L0.0: #9[a..c] | L0.1: #8[p..q]";
    load(before, "#20[d..g]{seq=10}", &[0]).unwrap();
    load(before, "#20[h..m]{seq=10}", &[1]).unwrap();
    load(before, "#20[d..m]{seq=10}", &[0, 1]).unwrap();
    for parts in [[0], [1]] {
        let judged = load(before, "#20[d..m]{seq=10}", &parts);
        refused(judged, Invariant::Progress);
    }
}

#[test]
fn a_refusal_names_the_invariant_and_the_place() {
    let before = picture::parse(TREE).unwrap();
    let judged = judge(&before, vec![flushed(8)]);
    assert_eq!(
        judged.unwrap_err().to_string(),
        "I3 log before forget: keyspace 0 part 0: flushed goes from 9 to 8, the last entry is 9"
    );
    let names = [
        (Invariant::Recency, "I1 recency"),
        (Invariant::Shape, "shape"),
        (Invariant::Numbers, "numbers"),
        (Invariant::Table, "table"),
    ];
    for (invariant, name) in names {
        assert_eq!(invariant.to_string(), name);
    }
}

#[test]
fn outputs_of_one_merge_may_overlap_only_when_numbers_tell_them_apart() {
    let out = |low: &'static str| {
        [
            (L1, At::With(6), "#20[a..g]{seq=7..9,entries=9}"),
            (L2, At::With(3), low),
        ]
    };
    let inputs = [9, 8, 5, 6, 2];
    let mut apart = out("#21[a..m]{seq=1..6}").to_vec();
    apart[0].1 = At::Newest;
    merge(TREE, &inputs, &apart).unwrap();
    apart[1].2 = "#21[a..m]{seq=1..7}";
    refused(merge(TREE, &inputs, &apart), Invariant::Recency);
}

#[test]
fn an_exclusive_end_touches_but_does_not_overlap() {
    let before = "L0.0: #9[a..h) | L1: #5[h..p] | L2: #2[q..z]";
    merge(before, &[9], &[(L2, At::With(2), "#9[a..h)")]).unwrap();
    let before = "L0.0: #9[a..h] | L1: #5[h..p] | L2: #2[q..z]";
    refused(
        merge(before, &[9], &[(L2, At::With(2), "#9[a..h]")]),
        Invariant::Recency,
    );
}

#[test]
fn an_output_keeps_to_range_numbers_and_entries_of_its_inputs() {
    let judge = |table| merge(TREE, &[5, 2], &[(L2, At::With(3), table)]);
    judge("#20[a..m]{seq=2..5,entries=200}").unwrap();
    refused(judge("#20[a..mm]{seq=2..5}"), Invariant::Recency);
    refused(judge("#20[a..m]{seq=2..6}"), Invariant::Recency);
    refused(judge("#20[a..m]{seq=2..5,entries=201}"), Invariant::Table);
}

fn flush(slot: Slot, at: At, table: &str, to: u64) -> Result<(), Broken> {
    let before = picture::parse(TREE).unwrap();
    let table = add(&before, slot, at, table);
    judge(&before, vec![counters(), table, flushed(to)])
}

#[test]
fn a_flush_makes_the_newest_run_of_its_part() {
    flush(L0, At::Newest, "#20[a..z]{seq=10..20}", 20).unwrap();
    refused(
        flush(L0, At::Behind(9), "#20[a..z]{seq=10..20}", 20),
        Invariant::Recency,
    );
    refused(
        flush(L0, At::With(9), "#20[g..z]{seq=10..20}", 20),
        Invariant::Recency,
    );
    refused(
        flush(L1, At::Newest, "#20[a..b]{seq=10..20}", 20),
        Invariant::Recency,
    );
}

#[test]
fn a_flush_holds_what_was_not_flushed_and_says_so() {
    refused(
        flush(L0, At::Newest, "#20[a..z]{seq=9..20}", 20),
        Invariant::Progress,
    );
    refused(
        flush(L0, At::Newest, "#20[a..z]{seq=10..20}", 19),
        Invariant::Progress,
    );
}

#[test]
fn what_may_only_grow_does_not_shrink() {
    let before = picture::parse(TREE).unwrap();
    refused(judge(&before, vec![flushed(8)]), Invariant::Progress);
    refused(judge(&before, vec![flushed(10)]), Invariant::Progress);
    let floor = |segment| Change::SetLogFloor { segment };
    let after = Edit::of(floor(5)).apply(&before).unwrap();
    refused(judge(&after, vec![floor(4)]), Invariant::Progress);
    judge(&after, vec![floor(6)]).unwrap();
    let mut low = counters();
    if let Change::SetCounters { next_id, .. } = &mut low {
        *next_id = 3;
    }
    refused(judge(&before, vec![low]), Invariant::Numbers);
}

#[test]
fn a_replaced_table_differs_in_its_extents_only() {
    let before = picture::parse(TREE).unwrap();
    let replace = |change: fn(&mut TableMeta)| {
        let mut table = TableMeta::clone(keyspace(&before).find(TableId(5)).unwrap().2);
        table.data[0].object = ObjectId(7000);
        change(&mut table);
        let table = Arc::new(table);
        judge(
            &before,
            vec![counters(), Change::ReplaceTable { keyspace: K, table }],
        )
    };
    replace(|_| {}).unwrap();
    replace(|t| t.data[0].tier.0 = 1).unwrap();
    refused(replace(|t| t.entries += 1), Invariant::Table);
    refused(replace(|t| t.range.end = (*b"ga").into()), Invariant::Table);
    refused(replace(|t| t.data[0].tier.0 = 16), Invariant::Table);
    refused(
        replace(|t| t.data[0].object = ObjectId(11)),
        Invariant::Numbers,
    );
}

#[test]
fn a_keyspace_is_cut_at_any_time_and_nothing_else_changes_with_it() {
    let cuts = |bounds: &[&str]| {
        let bounds = bounds.iter().map(|b| b.as_bytes().into());
        Change::SetCuts {
            keyspace: K,
            cuts: thermocline_model::Cuts::new(bounds.collect()).unwrap(),
        }
    };
    // Levels below the parts are not divided.
    let below = picture::parse("L1: #1[a..z] | L7: #2[a..z]").unwrap();
    judge(&below, vec![cuts(&["g", "p"])]).unwrap();
    let after = Edit::of(cuts(&["g", "p"])).apply(&below).unwrap();
    let flushed = keyspace(&below).parts[0].flushed;
    assert_eq!(keyspace(&after).parts.len(), 3);
    assert!(keyspace(&after).parts.iter().all(|p| p.flushed == flushed));
    assert_eq!(keyspace(&after).levels, keyspace(&below).levels);
    check_version(&after).unwrap();
    // And back.
    judge(&after, vec![cuts(&[])]).unwrap();

    let tables = picture::parse("L0.0: #3[a..z] | L7: #2[a..z]").unwrap();
    judge(&tables, vec![cuts(&["g"])]).unwrap();
    // Parts that were flushed at different times can be told apart afterwards.
    let mut uneven = after.clone();
    Arc::make_mut(uneven.keyspaces.get_mut(&K).unwrap()).parts[1].flushed = SeqNo(0);
    judge(&uneven, vec![cuts(&["c"])]).unwrap();
    let moved = Edit::of(cuts(&["c"])).apply(&uneven).unwrap();
    let of =
        |key: &[u8]| keyspace(&moved).parts[keyspace(&moved).cuts.part_of(key)].flushed_of(key);
    assert_eq!((of(b"a"), of(b"f")), (flushed, flushed));
    assert_eq!((of(b"g"), of(b"p")), (SeqNo(0), flushed));
    let moving = vec![cuts(&["g"]), remove(1)];
    refused(judge(&below, moving), Invariant::Shape);
    let new = add(&below, L1, At::Newest, "#20[a..b]{seq=1}");
    let moving = vec![counters(), cuts(&["g"]), new];
    refused(judge(&below, moving), Invariant::Shape);
}

/// The newest runs of a part that is divided go into the first level, above all that it
/// has. Elsewhere they would lie in a level that is made by other rules.
#[test]
fn a_cut_leaves_the_runs_of_levels_as_they_are() {
    let before = picture::parse("L0.0: #9[a..c] | L1: #3[n..z] | L2: #2[a..z]").unwrap();
    let cuts = thermocline_model::Cuts::new(vec![(*b"b").into()]).unwrap();
    let edit = Edit::of(Change::SetCuts { keyspace: K, cuts });
    let judged = |spoil: &dyn Fn(&mut Keyspace)| {
        let mut after = edit.apply(&before).unwrap();
        spoil(Arc::make_mut(after.keyspaces.get_mut(&K).unwrap()));
        check_edit(&before, &edit, &after)
    };
    judged(&|k| assert_eq!(k.levels[0].runs.len(), 2)).unwrap();
    refused(
        judged(&|k| k.levels[0].runs[1].id = RunId(1)),
        Invariant::Shape,
    );
    refused(judged(&|k| k.levels[0].runs.swap(0, 1)), Invariant::Shape);
    refused(
        judged(&|k| {
            let run = k.levels[0].runs.remove(0);
            k.levels[1].runs.insert(0, run);
        }),
        Invariant::Shape,
    );
}

/// What a wrong recut would make of a version: the check does not go by how parts are
/// made, so it sees through each.
#[test]
fn cuts_that_lose_turn_or_forget_something_are_refused() {
    let before =
        picture::parse("cuts m | L0.0: #9[a..c] / #8[b..f] | L0.1: #7[n..z] | L1: #3[a..z]");
    let before = before.unwrap();
    let cuts = |bounds: &[&str]| {
        let bounds = bounds.iter().map(|b| b.as_bytes().into());
        let cuts = thermocline_model::Cuts::new(bounds.collect()).unwrap();
        Edit::of(Change::SetCuts { keyspace: K, cuts })
    };
    let edit = cuts(&["b", "m"]);
    let judged = |spoil: &dyn Fn(&mut thermocline_model::Keyspace)| {
        let mut after = edit.apply(&before).unwrap();
        spoil(Arc::make_mut(after.keyspaces.get_mut(&K).unwrap()));
        check_edit(&before, &edit, &after)
    };
    judged(&|_| {}).unwrap();
    refused(judged(&|k| k.levels[0].runs.swap(0, 1)), Invariant::Recency);
    refused(judged(&|k| k.levels[0].runs.swap(1, 2)), Invariant::Recency);
    refused(
        judged(&|k| drop(k.levels[0].runs.remove(0))),
        Invariant::Recency,
    );
    refused(
        judged(&|k| k.parts[2].newest.runs.clear()),
        Invariant::Recency,
    );
    refused(
        judged(&|k| k.parts[1].flushed = SeqNo(2)),
        Invariant::Progress,
    );
    refused(
        judged(&|k| {
            let runs = std::mem::take(&mut k.levels[0].runs);
            k.parts[0].newest.runs = runs[..2].to_vec();
            k.levels[0].runs = runs[2..].to_vec();
        }),
        Invariant::Shape,
    );
    let tiny = |starts: &[&str]| Change::SetTiny {
        keyspace: K,
        part: 1,
        duplicates: 0,
        tiny: starts
            .iter()
            .map(|s| thermocline_model::Tiny {
                start: s.as_bytes().into(),
                writes: 1,
            })
            .collect(),
    };
    judge(&before, vec![tiny(&["m", "o"])]).unwrap();
    judge(&before, vec![tiny(&[])]).unwrap();
    for bad in [&["n"][..], &["m", "m"], &["m", "o", "n"], &["a", "m"]] {
        refused(judge(&before, vec![tiny(bad)]), Invariant::Shape);
    }
    let ahead = Change::SetAhead {
        keyspace: K,
        part: 1,
        ahead: thermocline_model::Ahead {
            start: (*b"n").into(),
            end: None,
            flushed: SeqNo(9),
        },
    };
    refused(judge(&before, vec![ahead]), Invariant::Progress);
}

#[test]
fn numbers_name_one_thing_each() {
    let same_table = merge(TREE, &[5], &[(L1, At::With(6), "#6[a..g]{seq=5}")]);
    assert!(same_table.is_err());
    let before = picture::parse(TREE).unwrap();
    let other = keyspace(&before).levels[1].runs[0].id;
    let mut change = add(&before, L1, At::Newest, "#20[a..g]{seq=5}");
    if let Change::AddTable { run, .. } = &mut change {
        *run = other;
    }
    refused(
        judge(&before, vec![counters(), remove(5), change]),
        Invariant::Numbers,
    );
}

#[test]
fn the_default_keyspace_stays() {
    let before = picture::parse(TREE).unwrap();
    refused(
        judge(&before, vec![Change::DropKeyspace { keyspace: K }]),
        Invariant::Shape,
    );
}

#[test]
fn unlawful_versions_are_refused() {
    let spoilt = |text: &str, spoil: fn(&mut Version)| {
        let mut version = picture::parse(text).unwrap();
        spoil(&mut version);
        check_version(&version)
            .expect_err("it is refused")
            .invariant
    };
    fn table(version: &mut Version) -> &mut TableMeta {
        let keyspace = Arc::make_mut(version.keyspaces.get_mut(&K).unwrap());
        Arc::make_mut(&mut keyspace.levels[0].runs[0].tables[0])
    }
    let none: fn(&mut Version) = |_| {};
    assert_eq!(spoilt("cuts g | L0.0: #1[a..g]", none), Invariant::Shape);
    assert_eq!(spoilt("cuts g | L0.1: #1[f..h]", none), Invariant::Shape);
    assert!(check_version(&picture::parse("cuts g | L0.0: #1[a..g)").unwrap()).is_ok());
    assert_eq!(spoilt("L1: #1[a..b] #1[c..d]", none), Invariant::Numbers);
    assert_eq!(spoilt("L1: #1[b..a]", none), Invariant::Table);
    assert_eq!(spoilt("L1: #1[a..b]{seq=2..1}", none), Invariant::Table);
    assert_eq!(spoilt("L1: #1[a..b]{deletes=101}", none), Invariant::Table);
    assert_eq!(spoilt("L1: #1[a..b]{entries=0}", none), Invariant::Table);
    assert_eq!(spoilt("L1: #1[a..b]{size=0}", none), Invariant::Table);
    assert_eq!(spoilt("L1: #1[a..b]{dead=2M}", none), Invariant::Table);
    let text = "L1: #1[a..c] #2[d..e]";
    assert_eq!(
        spoilt(text, |v| table(v).range.end = (*b"d").into()),
        Invariant::Shape
    );
    assert_eq!(spoilt(text, |v| v.next_id = 2), Invariant::Numbers);
    assert_eq!(spoilt(text, |v| v.last_seq = SeqNo(1)), Invariant::Progress);
    assert_eq!(
        spoilt(text, |v| table(v).meta.object = ObjectId(6)),
        Invariant::Numbers
    );
    assert_eq!(
        spoilt(text, |v| table(v).data[0].object = table(v).meta.object),
        Invariant::Table
    );
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Runs of narrow tables at random, in L0 to L3, newest with largest numbers.
fn random_version(dice: &mut Dice) -> Version {
    let mut sections = Vec::new();
    let mut number = 100;
    for name in ["L0.0", "L1", "L2", "L3"] {
        let mut tables = Vec::new();
        for _ in 0..if name == "L0.0" { 3 } else { 1 } {
            let mut at = dice.below(20);
            while at < 90 {
                let end = (at + dice.below(20)).min(99);
                tables.push(format!("#{number}[{at:02}..{end:02}]"));
                number -= 1;
                at = end + 1 + dice.below(20);
            }
            tables.push("/".to_string());
        }
        sections.push(format!("{name}: {}", tables.join(" ")));
    }
    picture::parse(&sections.join(" | ")).unwrap()
}

/// For any set of inputs and any place, the guard agrees with the definition:
/// key by key, whatever stays keeps its side of whatever moves.
#[test]
fn the_guard_agrees_with_recency_key_by_key() {
    let seed = 42;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let (mut passed, mut stopped) = (0, 0);
    for _ in 0..3000 {
        let before = random_version(&mut dice);
        let tables: Vec<_> = keyspace(&before).tables().collect();
        let order = |id: TableId| tables.iter().position(|(_, _, t)| t.id == id).unwrap();
        let upper = dice.below(tables.len() as u64) as usize;
        let (_, _, source) = tables[upper];
        let level = dice.below(3) as u32;
        let slot = Slot::Level(level);
        let Some(run) = keyspace(&before).level(slot).and_then(|l| l.runs.first()) else {
            continue;
        };
        let mut inputs: Vec<_> = run.overlapping(&source.range).to_vec();
        inputs.retain(|t| t.id != source.id);
        inputs.push(Arc::clone(source));
        let hull = inputs
            .iter()
            .map(|t| t.range.clone())
            .reduce(|a, b| a.hull(&b))
            .unwrap();
        let mut output = TableMeta::clone(source);
        output.id = TableId(5000);
        output.meta.object = ObjectId(5001);
        output.data[0].object = ObjectId(5002);
        output.range = hull;
        output.seq_min = inputs.iter().map(|t| t.seq_min).min().unwrap();
        output.seq_max = inputs.iter().map(|t| t.seq_max).max().unwrap();
        let mut changes = vec![counters()];
        changes.extend(inputs.iter().map(|t| remove(t.id.0)));
        changes.push(Change::AddTable {
            keyspace: K,
            slot,
            run: run.id,
            behind: None,
            table: Arc::new(output.clone()),
        });
        let edit = Edit { changes };
        let after = edit.apply(&before).unwrap();
        let later: Vec<_> = keyspace(&after).tables().collect();
        let place = later
            .iter()
            .position(|(_, _, t)| t.id == output.id)
            .unwrap();
        let lawful = (0..100).all(|n| {
            let key = format!("{n:02}").into_bytes();
            let here = |t: &TableMeta| t.range.contains(&key);
            inputs.iter().filter(|t| here(t)).all(|input| {
                later.iter().enumerate().all(|(at, (_, _, stays))| {
                    let concerned = stays.id != output.id && here(stays);
                    !concerned || (order(input.id) < order(stays.id)) == (place < at)
                })
            })
        });
        let judged = check_edit(&before, &edit, &after);
        assert_eq!(
            judged.is_ok(),
            lawful,
            "{judged:?}\n{}",
            picture::print(keyspace(&before))
        );
        *(if lawful { &mut passed } else { &mut stopped }) += 1;
    }
    println!("{passed} passed, {stopped} stopped");
    assert!(passed > 300 && stopped > 300);
}
