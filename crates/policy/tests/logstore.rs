//! The preset `logstore`: a picture in, a job out, by the sentences of the paper's
//! section V; and without data, under a stream of flushes and reads.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{
    Dice, KEYS, KEYSPACE, M, World, empty, key, line, logstore, numbered, read, two_tiers,
};
use thermocline_model::job::{Job, Merge, NewTable};
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableId;
use thermocline_model::tier::TIERS_MAX;
use thermocline_model::version::Slot;
use thermocline_model::view::{Optimisations, PartLoad, TableHeat};
use thermocline_model::{Reason, TierId, check_version};
use thermocline_policy::heat::{HeatOptions, Histogram, histogram};
use thermocline_policy::place::ByShape;
use thermocline_policy::plan::fast_levels::{FastLevels, Share};
use thermocline_policy::{Placer, Preset, by_name};

const LARGE: u64 = 1 << 40;

const BY_SHAPE: ByShape = ByShape { optimised: true };

/// Two tiers, the paper's NVMe and HDD.
fn world(text: &str) -> World {
    two_tiers(World::of(text, &[LARGE, LARGE]))
}

fn decide(world: &World) -> String {
    line(world.plan(&mut logstore()))
}

fn unoptimised() -> Preset {
    by_name("logstore-unoptimised", &HeatOptions::default()).unwrap()
}

fn number(reason: &Reason, name: &str) -> f64 {
    let mut numbers = reason.numbers.iter();
    let found = numbers.find(|(n, _)| n == name);
    found.unwrap_or_else(|| panic!("no {name} in {reason}")).1
}

// V-C: "when a Memtable fills up it is immediately flushed to the youngest level on
// the SSD, but no compaction is between Level-0 and Level-1".

const FOUR: &str =
    "L0.0: #9[a..z] / #8[a..z] / #7[a..z] / #6[a..z] | L7: #1[a..z]{size=40M,tier=1}";

/// Found on an emulated disk that seeks: flushes for which a merge had left no room went to the
/// slow tier, and merging them there took three times as long as waiting would have.
#[test]
fn a_flush_waits_for_room_while_a_job_may_make_some() {
    let mut world = world(FOUR);
    let flush = |world: &World| matches!(world.plan(&mut logstore()), Some(Job::Flush(_)));
    let load = PartLoad {
        sealed: 1,
        sealed_bytes: 8 * M,
        ..PartLoad::default()
    };
    world.memtables.insert((KEYSPACE, 0), load);
    assert!(flush(&world), "there is room");
    world.tiers[0].device_free_bytes = 7 * M;
    assert!(flush(&world), "nobody makes room");
    world.busy.insert(TableId(6));
    assert!(!flush(&world), "table 6 may go");
    world.tiers[0].device_free_bytes = 8 * M;
    assert!(flush(&world), "there is room again");
    world.tiers[0].device_free_bytes = 7 * M;
    world.busy = [TableId(1)].into();
    assert!(flush(&world), "table 1 takes no room there");
    world.tiers.truncate(1);
    world.busy.insert(TableId(6));
    assert!(flush(&world), "there is but one tier");
}

/// And those that came between the end of one such merge and the begin of the next.
#[test]
fn a_flush_waits_for_room_while_a_job_is_due_that_makes_some() {
    let text = "L1: #1[a..m]{size=40M} #2[n..z]{size=40M} | L7: #3[a..z]{size=40M,tier=1}";
    let mut world = two_tiers(World::of(text, &[100 * M, LARGE]));
    world.idle = false;
    world.tiers[0].device_free_bytes = 7 * M;
    let load = PartLoad {
        sealed: 1,
        sealed_bytes: 8 * M,
        ..PartLoad::default()
    };
    world.memtables.insert((KEYSPACE, 0), load);
    assert!(decide(&world).starts_with("coldest"), "{}", decide(&world));
}

#[test]
fn deferred_newest_runs_are_passed_on_as_they_are() {
    let mut world = world(FOUR);
    world.idle = false;
    let job = world.plan(&mut logstore()).unwrap();
    let Job::Merge(merge) = &job else { panic!() };
    assert!(!merge.rewrite, "nothing is read or written");
    assert_eq!(line(Some(job.clone())), "newest-deferred: [6] into L1");
    world.start(&job);
    world.finish(&job);
    assert_eq!(world.merged_bytes, 0);
    assert_eq!(decide(&world), "rest", "until there are as many again");
    world.idle = true;
    assert_eq!(
        decide(&world),
        "newest-deferred: [7] into L1",
        "or nothing else is done"
    );
}

#[test]
fn without_deferring_newest_runs_are_merged_as_leveldb_does() {
    let mut world = world(&format!("{FOUR} | L1: #5[a..c] #4[d..f]"));
    world.shape.staging.on.deferred = false;
    assert_eq!(decide(&world), "newest-runs: [9, 8, 7, 6, 5, 4] into L1");
    world.shape.staging.on.deferred = true;
    let plan = world.plan(&mut unoptimised());
    assert_eq!(line(plan), "newest-runs: [9, 8, 7, 6, 5, 4] into L1");
}

// V-A: "first consults the level's histogram to determine the coldest key-range", and
// "LogStore finds all SSTs on the last level that overlap".

/// Five fast tables of 10 MiB and two slow ones of 20.
const FIVE: &str = "L1: #1[a..c]{size=10M} #2[d..f]{size=10M} #3[g..i]{size=10M} \
                    #4[j..l]{size=10M} #5[m..o]{size=10M} | \
                    L7: #6[a..e]{size=20M,tier=1} #7[k..z]{size=20M,tier=1}";

#[test]
fn informed_compaction_evicts_the_coldest_with_all_it_overlaps() {
    let mut world = world(FIVE);
    read(&mut world, &[(1, 50), (2, 40), (3, 30), (4, 20), (5, 10)]);
    // 50 of 90 MiB are fast, 5 too many.
    assert_eq!(decide(&world), "coldest: [7, 5] into L7");
    read(&mut world, &[(1, 5), (2, 6)]);
    assert_eq!(decide(&world), "coldest: [6, 1] into L7");
    // While the store is written to, two fifths of the 45 are made free at once.
    world.idle = false;
    world.flushed_bytes_per_s = 30e6;
    assert_eq!(decide(&world), "coldest: [6, 2, 1] into L7");
    world.shape.staging.fast_share = 0.6;
    world.flushed_bytes_per_s = 0.0;
    assert_eq!(decide(&world), "rest");
}

/// While the store is written to, what is written often would be back soon.
#[test]
fn of_what_is_as_cold_that_goes_which_makes_room_for_longest() {
    let text = "L1: #1[a..c]{size=20M} #2[m..o]{size=10M} | \
                L7: #3[a..e]{size=20M,tier=1} #4[m..z]{size=20M,tier=1}";
    let mut world = world(text);
    world.idle = false;
    world.shape.staging.fast_share = 0.42;
    // Two tables are to be free.
    world.shape.flush_bytes = 5 * M;
    world.flushed_bytes_per_s = 0.0;
    let aged = |world: &mut World, table: u64, seconds: u64| {
        let created_us = world.now_us - seconds * 1_000_000;
        let keyspace = world.version.keyspaces.get_mut(&KEYSPACE).unwrap();
        let run = &mut Arc::make_mut(keyspace).levels[6].runs[0];
        for meta in run.tables.iter_mut().filter(|t| t.id == TableId(table)) {
            Arc::make_mut(meta).created_us = created_us;
        }
    };
    // 20 MiB for 60 of work, or 10 for 50: 0.33 and 0.2 for each second of age.
    aged(&mut world, 3, 100);
    aged(&mut world, 4, 100);
    assert_eq!(decide(&world), "coldest: [3, 1] into L7");
    // What 3 has was brought down a moment ago: as much will be there again soon.
    aged(&mut world, 3, 50);
    assert_eq!(decide(&world), "coldest: [4, 2] into L7");
    // At rest the coldest goes, or of equals what was written first.
    world.idle = true;
    assert_eq!(decide(&world), "coldest: [3, 1] into L7");
}

#[test]
fn uninformed_compaction_draws_tables_whatever_their_heat() {
    let mut seen = std::collections::BTreeSet::new();
    for hot in 1..6 {
        let mut world = world(FIVE);
        let reads: Vec<_> = (1..6).map(|t| (t, if t == hot { 90 } else { 1 })).collect();
        read(&mut world, &reads);
        world.shape.staging.on.informed = false;
        seen.insert(line(world.plan(&mut logstore())));
        assert!(decide(&world).starts_with("drawn"), "{}", decide(&world));
        let plan = line(world.plan(&mut unoptimised()));
        assert!(plan.starts_with("drawn"), "{plan}");
    }
    assert_eq!(seen.len(), 1, "heat makes no difference: {seen:?}");
}

#[test]
fn only_what_has_nothing_older_below_it_is_evicted() {
    // 1 is the coldest, but 3 is older and would be passed.
    let text = "L1: #1[a..c]{size=10M} #2[x..z]{size=45M} / #3[b..b1]{size=10M} | \
                L7: #4[a..z]{size=20M,tier=1}";
    let mut world = world(text);
    world.shape.staging.fast_share = 0.7;
    read(&mut world, &[(1, 1), (2, 30), (3, 20)]);
    assert_eq!(decide(&world), "coldest: [4, 3] into L7");
}

// V-B: the hottest table of the last level, "all overlapping SSTs on Level-1", the two
// conditions.

#[test]
fn reverse_compaction_waits_until_reads_have_cost_more_than_the_merge() {
    // One table of 2 MB alone: 1/60 + 2 (1/480 + 1/150) s, that is 2.05 seeks.
    let text = "L1: #1[a..c]{size=2M} | L7: #2[d..f]{size=2M,tier=1} #3[g..z]{size=90M,tier=1}";
    let mut world = world(text);
    read(&mut world, &[(1, 1), (2, 2), (3, 0)]);
    assert_eq!(decide(&world), "rest");
    read(&mut world, &[(2, 3)]);
    let job = world.plan(&mut logstore()).unwrap();
    let reason = job.reason().clone();
    assert_eq!(line(Some(job)), "reverse: [2] into L1");
    let size = (2 << 20) as f64 + 1.0;
    let cost = 1.0 / 60.0 + size * (1.0 / 480e6 + 1.0 / 150e6);
    assert!((number(&reason, "against_merge_s") - cost).abs() < 1e-9);
    assert!((number(&reason, "compared_reads_s") - 3.0 / 60.0).abs() < 1e-9);
    world.shape.staging.on.reverse = false;
    assert_eq!(decide(&world), "rest");
}

#[test]
fn reverse_compaction_takes_along_the_oldest_run_and_leaves_newer_ones_above() {
    let text = "L1: #1[100..900]{size=4M} / #2[100..200]{size=2M} #3[400..500]{size=2M} | \
                L7: #4[190..300]{size=2M,tier=1} #5[600..900]{size=90M,tier=1}";
    let mut world = world(&numbered(text));
    read(&mut world, &[(1, 9), (2, 9), (3, 9), (4, 500)]);
    // For whom reads suffer is another matter.
    world.shape.staging.on.staging = false;
    let job = world.plan(&mut logstore()).unwrap();
    assert_eq!(line(Some(job.clone())), "reverse: [4, 2] into L1");
    world.start(&job);
    world.finish(&job);
    let runs = &world.version.keyspaces[&KEYSPACE].levels[0].runs;
    assert_eq!(runs.len(), 2, "it is part of the oldest run");
    assert_eq!(runs[0].tables[0].id, TableId(1));
    assert!(runs[1].tables.iter().all(|t| t.tier() == TierId(0)));
}

/// Ten fast tables that are read 10 to 100 times, and a slow one.
fn full(hot: u64) -> World {
    let fast: Vec<String> = (1..11)
        .map(|i| format!("#{i}[{i}00..{i}99]{{size=4M}}"))
        .collect();
    let text = format!(
        "L1: {} | L7: #20[10..20]{{size=4M,tier=1}} #21[2000..9000]{{size=38M,tier=1}}",
        fast.join(" ")
    );
    let mut world = world(&numbered(&text));
    let reads: Vec<_> = (1..11).map(|i| (i, 10 * i)).chain([(20, hot)]).collect();
    read(&mut world, &reads);
    world
}

#[test]
fn reverse_compaction_asks_for_more_reads_than_the_least_read_tenth_has() {
    // Ten tables: the least read tenth is the one that was read 10 times.
    let world = full(10);
    let keyspace = &world.version.keyspaces[&KEYSPACE];
    let levels = FastLevels::of(keyspace);
    let view = world.view();
    let histogram = Histogram::of(&view, levels.tables().map(|t| t.table));
    assert_eq!(histogram.least(0.1).unwrap().table.id, TableId(1));
    assert_eq!(histogram.least(0.11).unwrap().table.id, TableId(2));
    assert_eq!(decide(&world), "rest");
}

/// It named neither the rest nor the room, and called the edit a merge's target alone.
#[test]
fn what_a_newest_run_waits_for_is_told() {
    let mut world = world("L0.0: #9[a..z] / #8[a..z] | L7: #1[a..z]{size=40M,tier=1}");
    world.idle = false;
    let why = |world: &World, placer: ByShape| placer.why(&world.view(), TableId(8)).unwrap();
    let next = |world: &World, placer: ByShape| why(world, placer).next.unwrap();
    let waits =
        "an edit to L1, as it is, at 4 runs, now 2; earlier if the store rests or room is needed";
    assert_eq!(next(&world, BY_SHAPE), waits);
    let unoptimised = ByShape { optimised: false };
    let merges = "a merge into L1 at 4 runs, now 2";
    assert_eq!(next(&world, unoptimised), merges);
    world.shape.staging.on.deferred = false;
    assert_eq!(next(&world, BY_SHAPE), merges);
    world.shape.staging.on.deferred = true;
    let text = "L0.0: #8[a..z] | L1: #2[a..z]{size=90M} | L7: #1[a..z]{size=40M,tier=1}";
    let mut full = two_tiers(World::of(text, &[60 * M, LARGE]));
    full.idle = false;
    let told = why(&full, BY_SHAPE);
    let makes_room = "an edit to L1, as it is, before a merge that makes room";
    assert_eq!(told.next.as_deref(), Some(makes_room));
    assert!(
        told.numbers
            .iter()
            .any(|(n, bytes)| n == "wanted_bytes" && *bytes > 0.0)
    );
    assert_eq!(decide(&full), "newest-deferred: [8] into L1");
}

// `explain` said of a table of L7 that it would come up once its reads had cost more than the
// merge, beside numbers by which they had: what failed was another condition.
#[test]
fn what_a_table_of_the_last_level_waits_for_is_the_condition_that_fails() {
    let next = |world: &World| BY_SHAPE.why(&world.view(), TableId(20)).unwrap();
    let why = next(&full(10));
    assert_eq!(
        why.next.as_deref(),
        Some("a merge up to L1, once it is read more often than the least read tenth of L1")
    );
    let number = |name: &str| {
        let found = why.numbers.iter().find(|(n, _)| n == name);
        found.unwrap_or_else(|| panic!("no {name} in {why:?}")).1
    };
    assert!(number("compared_reads_s") > number("against_merge_s"));
    let (own, least) = (
        number("temperature"),
        number("temperature_of_the_least_read_tenth_of_l1"),
    );
    assert!(own <= least, "{own} {least}");
    let until = |hot: u64| next(&full(hot)).next.unwrap();
    assert!(
        until(1).ends_with("once its reads here have cost more than that merge"),
        "{}",
        until(1)
    );
    assert!(until(20).contains("more than chance"), "{}", until(20));
    assert_eq!(until(40), "a merge up to L1, when its turn comes");
    // What has no such merges promises none, and none of the coldest where tables are drawn.
    let unoptimised = ByShape { optimised: false };
    let mut world = full(40);
    let of = |world: &World, placer: &ByShape, table| {
        let why = placer.why(&world.view(), TableId(table));
        why.and_then(|why| why.next).unwrap_or_default()
    };
    let switched = "a merge up to L1, once reverse compaction is switched on";
    assert_eq!(of(&world, &unoptimised, 20), switched);
    let mut fast = (0..23).filter(|&t| of(&world, &BY_SHAPE, t).ends_with("among the coldest"));
    let fast = fast.next().unwrap();
    assert!(of(&world, &unoptimised, fast).ends_with("it is drawn"));
    world.shape.staging.on.informed = false;
    assert!(of(&world, &BY_SHAPE, fast).ends_with("it is drawn"));
    let mut world = full(40);
    let job = world.plan(&mut logstore()).unwrap();
    let compared = job.reason().numbers.iter();
    assert!(
        compared
            .clone()
            .any(|(n, _)| n == "temperature_of_the_least_read_tenth_of_l1")
    );
    let all: Vec<TableId> = (0..23).map(TableId).collect();
    let alone = all.iter().map(|t| BY_SHAPE.why(&world.view(), *t));
    let alone: Vec<_> = alone.collect();
    assert_eq!(BY_SHAPE.why_each(&world.view(), &all), alone);
    assert_eq!(alone.iter().flatten().count(), 12);
    world.shape.staging.on.reverse = false;
    assert!(next(&world).next.unwrap().contains("switched on"));
}

#[test]
fn a_hotter_table_takes_the_place_of_the_coldest_which_leaves_first() {
    // 40 against 10 is more than chance, and 30 seeks are more than the merge costs.
    let mut world = full(40);
    assert_eq!(decide(&world), "yields-to-hotter: [1] into L7");
    for expected in ["yields-to-hotter", "reverse"] {
        let job = world.plan(&mut logstore()).unwrap();
        assert_eq!(job.reason().rule, expected);
        let names = job.reason().numbers.iter().map(|(name, _)| name);
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert!(names.is_sorted_by(|a, b| a < b), "{expected}: {names:?}");
        world.start(&job);
        world.finish(&job);
    }
    assert_eq!(decide(&world), "rest");
    // 20 against 10 may be chance.
    assert_eq!(decide(&full(20)), "rest");
}

#[test]
fn room_made_for_writes_is_not_taken_by_what_is_hardly_hotter() {
    let mut world = full(20);
    world.shape.staging.fast_share = 0.55;
    assert_eq!(decide(&world), "reverse: [20] into L1");
    world.idle = false;
    world.flushed_bytes_per_s = 0.0;
    assert_eq!(decide(&world), "rest");
    read(&mut world, &[(20, 60)]);
    assert_eq!(decide(&world), "reverse: [20] into L1");
}

// V-D: the source and target level are the same, and always on the SSD.

const OVERLAPPING: &str = "L1: #3[100..900]{size=10M} / #2[100..900]{size=10M} / \
     #1[110..200]{size=10M} #4[800..890]{size=10M} | \
     L7: #5[100..300]{size=9M,tier=1} #6[400..500]{size=9M,tier=1} #7[700..900]{size=9M,tier=1}";

#[test]
fn staging_makes_room_before_anything_goes_to_the_slow_tier() {
    let mut world = world(&numbered(OVERLAPPING));
    let job = world.plan(&mut logstore()).unwrap();
    assert_eq!(
        line(Some(job.clone())),
        "staging-space: [4, 3, 2, 1] into L1"
    );
    world.start(&job);
    world.finish(&job);
    let keyspace = &world.version.keyspaces[&KEYSPACE];
    assert_eq!(keyspace.levels[0].runs.len(), 1, "they overlap no more");
    let fast = |t: &std::sync::Arc<thermocline_model::TableMeta>| t.tier() == TierId(0);
    assert!(keyspace.levels[0].tables().all(fast));
    let mut world = self::world(&numbered(OVERLAPPING));
    world.shape.staging.on.staging = false;
    assert_eq!(decide(&world), "coldest: [5, 1] into L7");
}

#[test]
fn staging_goes_before_a_merge_that_overlaps_more_than_the_threshold() {
    let slow: Vec<String> = (0..12)
        .map(|i| (20 + i, (b'a' + i) as char))
        .map(|(i, c)| format!("#{i}[{c}0..{c}9]{{size=1M,tier=1}}"))
        .collect();
    let slow = slow.join(" ");
    // The oldest overlaps all twelve; what is above it is little.
    let text = format!("L1: #2[c..d]{{size=4M}} / #1[a..z]{{size=30M}} | L7: {slow}");
    let decided = |text: &str, most: usize| {
        let mut world = world(text);
        world.shape.staging.overlap_tables_max = most;
        decide(&world)
    };
    assert_eq!(decided(&text, 11), "staging-wide: [2, 1] into L1");
    assert!(decided(&text, 12).starts_with("coldest: "));
    // With nothing else to merge it with, it goes.
    let text = format!("L1: #1[a..z]{{size=30M}} | L7: {slow}");
    assert!(decided(&text, 11).starts_with("coldest: "));
}

#[test]
fn staging_is_done_when_what_reads_have_lost_exceeds_its_cost() {
    let text = "L1: #2[a..z]{size=4M} / #1[a..z]{size=4M} | L7: #5[a..z]{size=90M,tier=1}";
    let mut world = world(text);
    // Two seeks, 8 MiB read and written at 480 MB a second: 35.29 ms, 212 seeks.
    let lose = |world: &mut World, failed: u64, rejects: u64| {
        let heat = TableHeat {
            probes: failed + 50,
            hits: 50,
            rejects,
            ..TableHeat::default()
        };
        world.heat.insert(TableId(2), heat);
    };
    lose(&mut world, 211, 0);
    assert_eq!(decide(&world), "rest");
    lose(&mut world, 213, 0);
    let job = world.plan(&mut logstore()).unwrap();
    let reason = job.reason().clone();
    assert_eq!(line(Some(job)), "staging-reads: [2, 1] into L1");
    assert!(
        (number(&reason, "against_merge_s") - 0.035_287).abs() < 1e-5,
        "{reason}"
    );
    assert!(
        (number(&reason, "compared_lost_reads_s") - 0.0355).abs() < 1e-5,
        "{reason}"
    );
    // A filter answers for next to nothing.
    lose(&mut world, 500, 400);
    assert_eq!(decide(&world), "rest");
    lose(&mut world, 500_000, 500_000);
    assert_eq!(decide(&world), "staging-reads: [2, 1] into L1");
    // What lies in order loses nothing, however often it is looked into.
    world.heat.clear();
    read(&mut world, &[(1, 100_000)]);
    assert_eq!(decide(&world), "rest");
}

#[test]
fn staging_takes_no_more_than_there_is_room_for() {
    let text = "L1: #4[a..c]{size=30M} #5[p..r]{size=30M} / #2[a..c]{size=30M} #3[p..r]{size=30M}";
    let mut world = two_tiers(World::of(text, &[200 * M, LARGE]));
    // Of the device 76 MiB may be filled: 4 are for a flush.
    world.tiers[0].device_free_bytes = 80 * M;
    assert_eq!(decide(&world), "staging-space: [5, 3] into L1");
    world.tiers[0].device_free_bytes = 30 * M;
    let plan = decide(&world);
    assert!(plan.starts_with("coldest: "), "{plan}");
}

/// Found on an emulated disk that seeks: merges were cut to the room that the capacity left,
/// of which there was hardly any, though they put nothing there that was not there before.
#[test]
fn staging_needs_room_on_the_device_and_none_of_the_capacity() {
    let text = "L1: #4[a..c]{size=30M} #5[p..r]{size=30M} / #2[a..c]{size=30M} #3[p..r]{size=30M}";
    let mut world = two_tiers(World::of(text, &[121 * M, LARGE]));
    world.tiers[0].device_free_bytes = LARGE;
    assert_eq!(decide(&world), "staging-space: [5, 4, 3, 2] into L1");
    // Nor more than 64 tables at once.
    world.shape.table_bytes = M;
    assert_eq!(decide(&world), "staging-space: [5, 3] into L1");
}

#[test]
fn what_a_merge_writes_takes_the_place_of_what_it_reads() {
    let text = "L1: #1[a..m]{size=30M} / #2[a..m]{size=30M} | L7: #3[a..m]{size=30M,tier=1}";
    let mut world = World::of(text, &[61 * M, LARGE]);
    world.tiers[0].device_free_bytes = LARGE;
    let after = |written: u64, world: &World, slot, parents: &[u64]| {
        let mut new = NewTable {
            keyspace: KEYSPACE,
            slot,
            range: None,
            start: None,
            size_bytes: 20 * M,
            parents: parents.iter().map(|&t| TableId(t)).collect(),
            written_bytes: [0; TIERS_MAX],
        };
        new.written_bytes[0] = written;
        BY_SHAPE.place(&world.view(), &new).data.0
    };
    let place = |world: &World, slot, parents: &[u64]| after(0, world, slot, parents);
    let first = Slot::Level(0);
    assert_eq!(place(&world, first, &[1, 2]), 0);
    assert_eq!(place(&world, first, &[3]), 1, "it replaces nothing there");
    assert_eq!(place(&world, Slot::Newest(0), &[]), 1, "nor does a flush");
    // What it has written counts, and what others are writing does not.
    assert_eq!(after(45 * M, &world, first, &[1, 2]), 1);
    world.tiers[0].used_bytes += 45 * M;
    assert_eq!(place(&world, first, &[1, 2]), 0);
    world.tiers[0].used_bytes -= 45 * M;
    world.tiers[0].device_free_bytes = 19 * M;
    assert_eq!(place(&world, first, &[1, 2]), 1, "the device has no room");
}

/// At rest there is nothing to keep room for: a tenth of the fast tier and more lay empty, and
/// uniform reads were served by the slow one instead.
#[test]
fn at_rest_the_fast_levels_take_what_is_else_kept_for_writes() {
    let text = "L1: #1[a..m]{size=80M} | L7: #2[n..z]{size=80M,tier=1}";
    let mut world = two_tiers(World::of(text, &[100 * M, LARGE]));
    world.shape.staging.fast_share = 1.0;
    let limit = |world: &World| Share::of(&world.view()).limit_bytes / M;
    world.idle = true;
    let rests = limit(&world);
    // Full but for the share that is never filled, and one flush.
    let filled = (100.0 * world.shape.tier_fill_share) as u64 - 4;
    assert!((filled - 1..=filled).contains(&rests), "{rests}");
    world.idle = false;
    assert_eq!(
        limit(&world),
        rests,
        "a key now and then makes no difference"
    );
    let load = PartLoad {
        active_bytes: world.shape.flush_bytes / 2,
        ..PartLoad::default()
    };
    world.memtables.insert((KEYSPACE, 0), load);
    let written = limit(&world);
    assert!(written <= rests * 9 / 10, "{written} of {rests}");
}

#[test]
fn what_another_preset_left_is_brought_into_shape() {
    let text = "L1: #1[1..3] | L3: #2[2..6] / #3[1..4] | L7: #4[1..9]{tier=1}";
    let mut world = world(&numbered(text));
    assert_eq!(decide(&world), "level-unused: [4, 3] into L7");
    for _ in 0..8 {
        let Some(job) = world.plan(&mut logstore()) else {
            break;
        };
        world.start(&job);
        world.finish(&job);
    }
    let keyspace = &world.version.keyspaces[&KEYSPACE];
    assert!(keyspace.levels[1..6].iter().all(|l| l.runs.is_empty()));
    assert_eq!(keyspace.levels[6].runs.len(), 1);
}

#[test]
fn levels_keep_to_their_tiers() {
    let text = "L1: #1[a..c]{tier=1} | L7: #2[d..f] #3[g..z]{size=9M,tier=1}";
    let mut world = world(text);
    assert_eq!(decide(&world), "fast-level: move 1 to 0");
    world.tiers[0].capacity_bytes = 0;
    assert_eq!(decide(&world), "coldest-move: [1] into L7");
    world.shape.first_level_bytes = 64 * M;
    let job = world.plan(&mut logstore()).unwrap();
    world.start(&job);
    world.finish(&job);
    assert_eq!(world.merged_bytes, 0, "it lies there already");
    assert_eq!(decide(&world), "last-level: move 2 to 1");
}

#[test]
fn new_tables_go_where_the_shape_puts_their_level() {
    let mut world = world("L1: #1[a..c] | L7: #2[a..m]{tier=1} #3[n..z]{tier=1}");
    let place = |world: &World, slot, parents: &[u64]| {
        let new = NewTable {
            keyspace: KEYSPACE,
            slot,
            range: None,
            start: None,
            size_bytes: M,
            parents: parents.iter().map(|&t| TableId(t)).collect(),
            written_bytes: [0; TIERS_MAX],
        };
        let layout = BY_SHAPE.place(&world.view(), &new);
        (layout.data.0, layout.rule, layout.meta.0)
    };
    assert_eq!(place(&world, Slot::Newest(0), &[]), (0, "fast-level", 0));
    assert_eq!(place(&world, Slot::Level(0), &[2]), (0, "fast-level", 0));
    assert_eq!(place(&world, Slot::Level(6), &[1, 2]), (1, "last-level", 0));
    world.tiers[0].capacity_bytes = 0;
    assert_eq!(place(&world, Slot::Newest(0), &[]), (1, "tier-full", 1));
    let one = World::of("L1: #1[a..c]", &[LARGE]);
    assert_eq!(place(&one, Slot::Level(6), &[1]), (0, "only-tier", 0));
}

/// A stream of flushes and reads under drawn options, up to three jobs at a time,
/// finishing in any order. Every edit passes the guard of the one door.
fn stream(seed: u64) {
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let parts = [1, 1, 3][dice.below(3) as usize];
    let tiers = dice.below(4) as usize + 1;
    let mut capacities: Vec<u64> = (0..tiers)
        .map(|_| [40, 150, 1000][dice.below(3) as usize] * M)
        .collect();
    capacities[tiers - 1] = LARGE;
    let mut world = empty(parts, &capacities);
    world.by_shape = true;
    world.shape.first_level_bytes = [0, 16 * M][dice.below(2) as usize];
    let staging = &mut world.shape.staging;
    staging.fast_share = [0.0, 0.2, 0.5, 1.0][dice.below(4) as usize];
    staging.overlap_tables_max = dice.below(12) as usize;
    let on = |dice: &mut Dice| dice.below(4) > 0;
    staging.on = Optimisations {
        informed: on(&mut dice),
        reverse: on(&mut dice),
        deferred: on(&mut dice),
        staging: on(&mut dice),
        ..Optimisations::all(true)
    };
    let mut preset = if dice.below(4) == 0 {
        unoptimised()
    } else {
        logstore()
    };
    let jobs = dice.below(3) as usize + 1;
    let mut running: Vec<Job> = Vec::new();
    for _ in 0..120 {
        let part = dice.below(parts);
        let width = KEYS / parts;
        let low = width * part + dice.below(width / 2);
        let narrow = dice.below(2) == 0;
        let high = low + if narrow { width / 50 } else { width / 2 - 1 };
        let range = KeyRange::inclusive(&key(low), &key(high));
        world.flush(part as u32, range, 3 * M + dice.below(2 * M), 0.1);
        let hot = dice.below(KEYS);
        for table in world.version.tables() {
            let heat = world.heat.entry(table.id).or_default();
            let near = table.range.contains(&key(hot)) || dice.below(9) == 0;
            let reads = if near { dice.below(300) } else { 0 };
            heat.block_reads += reads;
            heat.probes += 2 * reads;
            heat.hits += reads;
            heat.temperature = Some(heat.block_reads as f64 / table.data_bytes() as f64);
        }
        world.idle = dice.below(2) == 0;
        for _ in 0..dice.below(8) {
            step(&mut world, &mut preset, &mut running, jobs, &mut dice);
        }
    }
    world.idle = true;
    let mut steps = 0;
    while step(&mut world, &mut preset, &mut running, jobs, &mut dice) {
        steps += 1;
        assert!(steps < 5000, "does not come to rest: {running:?}");
    }
    check_version(&world.version).unwrap();
    let keyspace = &world.version.keyspaces[&KEYSPACE];
    let levels = FastLevels::of(keyspace);
    assert!(!levels.has_strays());
    let last = keyspace.levels.get(levels.last);
    assert!(
        last.is_none_or(|l| l.runs.len() < 2),
        "the last level is strict"
    );
    let share = Share::of(&world.view());
    assert!(
        share.excess_bytes() == 0 || levels.tables().count() == 0,
        "{share:?} of {} tables",
        levels.tables().count()
    );
}

fn step(
    world: &mut World,
    preset: &mut Preset,
    running: &mut Vec<Job>,
    jobs: usize,
    dice: &mut Dice,
) -> bool {
    if running.len() < jobs
        && let Some(job) = world.plan(preset)
    {
        world.start(&job);
        running.push(job);
        return true;
    }
    if running.is_empty() {
        return false;
    }
    let job = running.swap_remove(dice.below(running.len() as u64) as usize);
    let before: Vec<TableId> = world.version.tables().map(|t| t.id).collect();
    world.finish(&job);
    if let Job::Merge(Merge { inputs, .. }) = &job {
        inherit(world, inputs, &before);
    }
    true
}

/// The outputs have what the inputs had, in equal parts.
fn inherit(world: &mut World, inputs: &[TableId], before: &[TableId]) {
    let new: Vec<_> = world
        .version
        .tables()
        .filter(|t| !before.contains(&t.id))
        .cloned()
        .collect();
    let reads: u64 = inputs
        .iter()
        .filter_map(|t| world.heat.get(t))
        .map(|h| h.block_reads)
        .sum();
    for table in &new {
        let block_reads = reads / new.len() as u64;
        let heat = TableHeat {
            block_reads,
            probes: block_reads,
            hits: block_reads,
            temperature: Some(block_reads as f64 / table.data_bytes() as f64),
            ..TableHeat::default()
        };
        world.heat.insert(table.id, heat);
    }
}

#[test]
fn streams_of_flushes_come_to_rest_in_shape_under_drawn_options() {
    for seed in 0..60 {
        stream(seed);
    }
}

// V: "buckets sorted by smallest key", "min/max heaps to ensure fast access".

#[test]
fn a_levels_histogram_finds_the_bucket_of_a_key_the_coldest_and_the_hottest() {
    let mut world = world("L7: #1[a..c] #2[d..f] #3[h..k] #4[m..z]");
    read(&mut world, &[(1, 5), (2, 9), (3, 1)]);
    let view = world.view();
    let keyspace = &world.version.keyspaces[&KEYSPACE];
    let histogram = Histogram::of(&view, keyspace.levels[6].tables());
    let bucket = |key: &str| histogram.bucket_of(key.as_bytes()).map(|b| b.table.id.0);
    assert_eq!(bucket("e"), Some(2));
    assert_eq!(bucket("h"), Some(3));
    assert_eq!(bucket("g"), None, "a gap");
    let ids = |list: Vec<u64>| list;
    assert_eq!(
        ids(histogram.coldest().map(|b| b.table.id.0).collect()),
        [3, 1, 2, 4]
    );
    let hottest = |most: usize| histogram::hottest(&view, keyspace.levels[6].tables(), most);
    let hottest = |most| ids(hottest(most).iter().map(|b| b.table.id.0).collect());
    assert_eq!(
        hottest(8),
        [2, 1, 3],
        "what is young is not known to be hot"
    );
    assert_eq!(hottest(2), [2, 1]);
}

/// Found by the prover (seed 65 of its metamorphic runs): while the store was written
/// to, a hot table was given the room of the last one that L1 had, and then refused it
/// because there was none to compare it with; the other came back, for ever.
#[test]
fn a_table_that_room_was_made_for_takes_it_though_nothing_is_left_to_compare_it_with() {
    let text = "L1: #1[100..199]{size=30M} | \
                L7: #2[300..400]{size=44M,tier=1} #3[500..900]{size=26M,tier=1}";
    let mut world = world(&numbered(text));
    read(&mut world, &[(1, 120), (2, 8000)]);
    world.idle = false;
    world.flushed_bytes_per_s = 0.0;
    for expected in ["yields-to-hotter", "reverse"] {
        let job = world.plan(&mut logstore()).unwrap();
        assert_eq!(job.reason().rule, expected);
        world.start(&job);
        world.finish(&job);
    }
    assert_eq!(decide(&world), "rest");
}

// V-D: "teasing apart hot and cold data stored together in wide SSTs".

#[test]
fn staging_parts_hot_from_cold_when_reads_of_the_slow_tier_have_cost_more() {
    let text = "L1: #2[a..z]{size=4M} / #1[a..z]{size=4M} | L7: #5[a..z]{size=90M,tier=1}";
    let mut world = world(text);
    world.now_us = 0; // Nothing has waited for long.
    world.shape.staging.fast_share = 0.1;
    // 8 MiB read and written on the fast tier: 35.29 ms; two seeks of the slow one are
    // 33.33 ms, three are 50.
    read(&mut world, &[(1, 9), (2, 9), (5, 2)]);
    assert_eq!(decide(&world), "rest");
    read(&mut world, &[(5, 3)]);
    assert_eq!(decide(&world), "staging-hotter: [2, 1] into L1");
    world.idle = false;
    world.flushed_bytes_per_s = 0.0;
    assert_eq!(decide(&world), "rest");
    world.idle = true;
    world.shape.staging.fast_share = 0.2;
    assert!(decide(&world).starts_with("reverse") || decide(&world) == "rest");
}
