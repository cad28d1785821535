//! A picture in, a job out.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Dice, KEYSPACE, M, World, leveled, mutant, nova, ohdb};
use thermocline_model::job::{Job, NewTable};
use thermocline_model::key::SeqNo;
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableId;
use thermocline_model::tier::{TIERS_MAX, TierId};
use thermocline_model::version::{KeyspaceId, Slot};
use thermocline_model::view::{FewKeys, PartLoad, TableHeat};
use thermocline_policy::place::{ByLevel, Fill};
use thermocline_policy::plan::Balance;
use thermocline_policy::pressure::{RUNS_DUE_PERCENT, counted_runs, patience, runs_slow_percent};
use thermocline_policy::{Placer, Planner, pressure};

const LARGE: u64 = 1 << 40;

/// The job, in a line: rule, inputs in order, where to.
fn decide(world: &World) -> String {
    match world.plan(&mut leveled()) {
        None => "rest".to_string(),
        Some(Job::Fold(job)) => format!("{}: fold {}", job.reason.rule, job.part),
        Some(Job::Flush(job)) => format!("{}: flush {}", job.reason.rule, job.part),
        Some(Job::Merge(job)) => {
            let mut inputs: Vec<u64> = job.inputs.iter().map(|t| t.0).collect();
            inputs.sort_unstable_by(|a, b| b.cmp(a));
            let again = if job.rewrite { " anew" } else { "" };
            format!(
                "{}: merge {inputs:?} into {}{again}",
                job.reason.rule, job.output
            )
        }
        Some(Job::Relocate(job)) => {
            format!("{}: move {} to {}", job.reason.rule, job.table.0, job.to)
        }
        Some(Job::Recut(job)) => format!("{}: recut", job.reason.rule),
    }
}

fn claim(picture: &str, decision: &str) {
    assert_eq!(decide(&World::of(picture, &[LARGE])), decision, "{picture}");
}

const FOUR: &str = "L0.0: #9[a..z] / #8[a..z] / #7[a..z] / #6[a..z]";

#[test]
fn newest_runs_wait_until_there_are_enough() {
    claim("", "rest");
    claim("L0.0: #9[a..z] / #8[a..z] / #7[a..z]", "rest");
    claim(FOUR, "newest-runs: merge [9, 8, 7, 6] into L7");
}

#[test]
fn newest_runs_take_all_they_overlap_of_the_base_level() {
    claim(
        "L0.0: #9[c..f] / #8[c..f] / #7[c..f] / #6[c..f] | L7: #1[a..b] #2[b1..d] #3[e..g] #4[h..z]",
        "newest-runs: merge [9, 8, 7, 6, 3, 2] into L7",
    );
}

#[test]
fn newest_runs_stop_at_a_level_above_the_base_that_is_in_their_way() {
    claim(
        "L0.0: #9[c..f] / #8[c..f] / #7[c..f] / #6[c..f] / #5[a..f] | L5: #3[b..d] | L7: #1[a..z]",
        "newest-runs: merge [9, 8, 7, 6, 5, 3] into L5",
    );
    let text = "L0.0: #9[c..f] / #8[c..f] / #7[c..f] / #6[c..f] | L5: #3[b..d] | L7: #1[a..z]";
    let mut world = World::of(text, &[LARGE]);
    assert_eq!(decide(&world), "level-unused: merge [3, 1] into L7");
    world.busy.insert(TableId(1));
    assert_eq!(decide(&world), "newest-runs: merge [9, 8, 7, 6, 3] into L5");
}

#[test]
fn runs_above_a_busy_run_wait_for_it() {
    let mut world = World::of(&format!("{FOUR} / #5[a..z]"), &[LARGE]);
    world.busy.insert(TableId(5));
    assert_eq!(decide(&world), "rest");
    world.busy = [TableId(9)].into();
    assert_eq!(decide(&world), "newest-runs: merge [8, 7, 6, 5] into L7");
}

#[test]
fn parts_merge_at_the_same_time_unless_they_share_what_lies_below() {
    let newest = "cuts m | L0.0: #9[a..f] / #8[a..f] / #7[a..f] / #6[a..f] | \
                  L0.1: #15[n..z] / #14[n..z] / #13[n..z] / #12[n..z]";
    let mut world = World::of(newest, &[LARGE]);
    let first = world.plan(&mut leveled()).unwrap();
    world.start(&first);
    assert_eq!(
        decide(&world),
        "newest-runs: merge [15, 14, 13, 12] into L7"
    );
    let mut world = World::of(&format!("{newest} | L7: #1[b..y]"), &[LARGE]);
    let first = world.plan(&mut leveled()).unwrap();
    world.start(&first);
    assert_eq!(decide(&world), "rest");
}

#[test]
fn a_busy_output_keeps_its_range_to_itself() {
    let mut world = World::of(FOUR, &[LARGE]);
    let level = |l| Slot::Level(l);
    world.busy_outputs = vec![(KEYSPACE, level(6), KeyRange::inclusive(b"x", b"zz"))];
    assert_eq!(decide(&world), "rest");
    // On the way, too.
    world.busy_outputs[0].1 = level(3);
    assert_eq!(decide(&world), "rest");
    world.busy_outputs[0].2 = KeyRange::inclusive(b"za", b"zz");
    assert_eq!(decide(&world), "newest-runs: merge [9, 8, 7, 6] into L7");
}

/// A last level of 200 MiB: L6 is the base, with a target of 20 MiB.
const LAST: &str =
    "L7: #1[a..f]{size=40M} #2[g..l]{size=60M} #3[m..r]{size=40M} #4[s..z]{size=60M}";

#[test]
fn a_full_level_merges_the_table_that_overlaps_least_for_its_size() {
    claim(
        &format!("L6: #10[a..c]{{size=9M}} #11[h..i]{{size=10M}} | {LAST}"),
        "rest",
    );
    claim(
        &format!("L6: #10[a..c]{{size=8M}} #11[h..k]{{size=8M}} #12[n..o]{{size=9M}} | {LAST}"),
        "level-full: merge [12, 3] into L7",
    );
}

#[test]
fn neighbours_that_cost_no_more_come_along() {
    claim(
        &format!("L6: #10[a..b]{{size=8M}} #11[c..d]{{size=8M}} #12[e..g]{{size=9M}} | {LAST}"),
        "level-full: merge [11, 10, 1] into L7",
    );
}

#[test]
fn a_table_that_overlaps_nothing_is_moved_first() {
    claim(
        &format!("L6: #10[a..b]{{size=15M}} #11[f1..f2]{{size=8M}} | {LAST}"),
        "level-full-move: merge [11] into L7",
    );
}

#[test]
fn a_level_whose_best_table_is_busy_merges_the_next_best() {
    let text =
        format!("L6: #10[a..c]{{size=28M}} #11[h..k]{{size=28M}} #12[n..o]{{size=9M}} | {LAST}");
    let mut world = World::of(&text, &[LARGE]);
    assert_eq!(decide(&world), "level-full: merge [10, 1] into L7");
    world.busy.insert(TableId(1));
    assert_eq!(decide(&world), "level-full: merge [11, 2] into L7");
}

#[test]
fn the_more_urgent_goes_first() {
    let newest = "L0.0: #29[a..c] / #28[a..c] / #27[a..c] / #26[a..c]";
    claim(
        &format!("{newest} | L6: #10[a..c]{{size=50M}} | {LAST}"),
        "level-full: merge [10, 1] into L7",
    );
    claim(
        &format!("{newest} | L6: #10[a..c]{{size=16M}} | {LAST}"),
        "newest-runs: merge [29, 28, 27, 26, 10] into L6",
    );
}

/// Found on emulated devices: runs of little memory were merged into a base ten
/// times as large, four at a time, and each byte was rewritten ten times there alone.
#[test]
fn newest_runs_that_are_little_of_the_base_wait_for_as_many_again() {
    let base = format!("L6: #10[a..c]{{size=19M}} | {LAST}");
    let four = "#29[a..c] / #28[a..c] / #27[a..c] / #26[a..c]";
    claim(&format!("L0.0: {four} | {base}"), "rest");
    let others = "#25[a..c] / #24[a..c] / #23[a..c] / #22[a..c]";
    claim(
        &format!("L0.0: {four} / {others} | {base}"),
        "newest-runs: merge [29, 28, 27, 26, 25, 24, 23, 22, 10] into L6",
    );
}

fn runs(from: u64, count: u64) -> String {
    let runs = (0..count).map(|run| format!("#{}[a..c]{{size=800000}}", from - run));
    runs.collect::<Vec<_>>().join(" / ")
}

/// While hardly anybody reads, memtables have memory of the cache, and merges wait for more.
#[test]
fn what_memtables_are_lent_merges_wait_for() {
    let lent = |text: &str| {
        let mut world = World::of(text, &[LARGE]);
        world.shape.flush_bytes = 3 * world.shape.usual_flush_bytes;
        world
    };
    let base = format!("L6: #10[a..c]{{size=19M}} | {LAST}");
    let all = |count: u64| format!("L0.0: {} | {base}", runs(60, count));
    assert_eq!(decide(&lent(&all(15))), "rest");
    assert!(decide(&lent(&all(16))).starts_with("newest-runs: merge [60, 59, 58"));
    // Runs that hold three quarters of the base wait for no more.
    let large = runs(60, 4).replace("800000", "4M");
    let world = lent(&format!("L0.0: {large} | {base}"));
    assert!(decide(&world).starts_with("newest-runs: merge [60, 59"));
    // A level may be 1.7 times as large; at rest it may not.
    let full = |mib: u64| lent(&format!("L6: #10[a..c]{{size={mib}M}} | {LAST}"));
    assert_eq!(decide(&full(30)), "rest");
    assert_eq!(decide(&full(40)), "level-full: merge [10, 1] into L7");
    // What waits for more is as urgent as the times that it has waited for too long.
    let over = |mib: u64, runs| {
        let newest = self::runs(60, runs);
        lent(&format!(
            "L0.0: {newest} | L6: #10[a..c]{{size={mib}M}} | {LAST}"
        ))
    };
    assert!(decide(&over(60, 20)).starts_with("level-full"));
    assert!(decide(&over(40, 20)).starts_with("newest-runs"));
    let mut world = full(30);
    world.idle = true;
    assert_eq!(decide(&world), "level-full: merge [10, 1] into L7");
}

/// Measured: levels that had waited for longer went first, while newest runs came near the number
/// from which on writers are slowed for them, and beyond.
#[test]
fn newest_runs_go_before_levels_before_writers_are_slowed_for_them() {
    let of = |capacity: u64, level_mib: u64, count: u64| {
        let newest = runs(90, count).replace("800000", "10M");
        let level = format!("L6: #10[a..c]{{size=30M}} #11[d..z]{{size={level_mib}M}}");
        let text = format!("L0.0: {newest} | {level} | {LAST}");
        let mut world = World::of(&text, &[capacity, LARGE]);
        world.shape.flush_bytes = 3 * world.shape.usual_flush_bytes;
        world
    };
    let stop = of(LARGE, 30, 1).shape.newest_runs_stop as u64;
    let slowed = stop * runs_slow_percent(2, false) / 100;
    let first_of = |capacity: u64, mib: u64| {
        let is_first = |count: &u64| decide(&of(capacity, mib, *count)).starts_with("newest-runs");
        let first = (1..=3 * stop).find(is_first).unwrap();
        let others = 1..first;
        let others = others.map(|count| decide(&of(capacity, mib, count)));
        let others: Vec<_> = others.filter(|o| !o.starts_with("level-full")).collect();
        assert!(others.is_empty(), "before {first} of {mib} MiB: {others:?}");
        first
    };
    // Three times as many may wait while hardly anybody reads.
    assert_eq!((3 * slowed, 3 * stop), (54, 72));
    assert_eq!([30, 60].map(|mib| first_of(LARGE, mib)), [28, 42]);
    // A level that is much too large goes first, until writers are about to stop.
    assert_eq!(first_of(LARGE, 400), 62);
    // No more than else where their tier has no room for them.
    assert_eq!((slowed, stop), (18, 24));
    assert_eq!([30, 60].map(|mib| first_of(1, mib)), [7, 11]);
}

/// Measured: with no such bound newest levels and what they drove down took twice the data's room.
#[test]
fn the_more_newest_levels_take_of_their_tier_the_fewer_runs_wait() {
    let text = format!("L0.0: {} | {LAST}", runs(90, 4).replace("800000", "100M"));
    let of = |capacity: u64, free: u64| {
        let mut world = World::of(&text, &[capacity, LARGE]);
        world.shape.flush_bytes = 4 * world.shape.usual_flush_bytes;
        world.tiers[0].device_free_bytes = free;
        world
    };
    let bytes = 4 * (100 << 20);
    let rounded = |times: f64| (1000.0 * times).round() / 1000.0;
    let patience_of = |capacity, free| rounded(patience(&of(capacity, free).view()));
    let times = [4, 2, 1].map(|times| patience_of(bytes * times, LARGE));
    assert_eq!(times, [3.0, 3.0, 1.0]);
    assert_eq!(patience_of(bytes * 4 / 3, LARGE), 2.0);
    // By what the device has as well, and never below one.
    assert_eq!(patience_of(LARGE, bytes), 3.0);
    assert_eq!(patience_of(LARGE, bytes / 3), 2.0);
    assert_eq!([patience_of(LARGE, 0), patience_of(0, 0)], [1.0, 1.0]);
    // Where newest levels begin on another tier, by that.
    let mut world = of(bytes, LARGE);
    world.shape.pins.newest = Some(TierId(1));
    assert_eq!(patience(&world.view()), 3.0);
    // Nor does anything wait at rest, or while as much is read as memory is there for.
    world.idle = true;
    assert_eq!(patience(&world.view()), 1.0);
    let mut world = of(LARGE, LARGE);
    world.shape.flush_bytes = world.shape.usual_flush_bytes;
    assert_eq!(patience(&world.view()), 1.0);
}

/// Once: they waited for more while writers were stopped for them, until nobody had written
/// for five seconds.
#[test]
fn no_runs_wait_that_writers_are_slowed_down_for() {
    let mut braked = 0;
    for (merge, stop) in [(4, 24), (4, 8), (2, 3), (8, 24), (1, 2)] {
        for (runs, mib) in (1..80).flat_map(|runs| [(runs, 1), (runs, 2), (runs, 9)]) {
            let newest = (0..runs).map(|n| format!("#{}[a..c]{{size={mib}M}}", 90 - n));
            let newest: Vec<_> = newest.collect();
            let text = format!(
                "L0.0: {} | L6: #10[a..c]{{size=20M}} | {LAST}",
                newest.join(" / ")
            );
            let mut world = World::of(&text, &[LARGE]);
            world.shape.flush_bytes = 4 * world.shape.usual_flush_bytes;
            (world.shape.newest_runs_merge, world.shape.newest_runs_stop) = (merge, stop);
            let bytes = world.version.keyspaces[&KEYSPACE].parts[0]
                .newest
                .size_bytes();
            let base = world.version.keyspaces[&KEYSPACE].levels[5].size_bytes();
            let due = stop as u64 * RUNS_DUE_PERCENT / 100;
            let counted = counted_runs(runs, bytes, base, patience(&world.view()));
            if runs as usize >= merge && counted > due {
                braked += 1;
                assert_ne!(
                    decide(&world),
                    "rest",
                    "{runs} runs of {mib} MiB, {merge}, {stop}"
                );
            }
        }
    }
    assert!(braked > 100, "{braked}");
    assert!((1..100).all(|parts| runs_slow_percent(parts, false) >= RUNS_DUE_PERCENT));
}

#[test]
fn several_runs_in_a_level_become_one() {
    claim(
        "L7: #9[a..f] / #8[c..z]",
        "level-runs: merge [9, 8] into L7",
    );
    // Above the level that newest runs are merged into they go straight there.
    claim(
        "L3: #9[a..f] / #8[c..z]",
        "handed-down: merge [9, 8] into L7",
    );
}

#[test]
fn deletes_are_merged_towards_what_they_delete_when_idle() {
    let text = format!("L6: #10[a..c]{{deletes=30}} #11[h..i]{{deletes=20}} | {LAST}");
    claim(&text, "many-deletes: merge [10, 1] into L7");
    let mut world = World::of(&text, &[LARGE]);
    let load = PartLoad {
        sealed: 1,
        ..PartLoad::default()
    };
    world.memtables.insert((KEYSPACE, 0), load);
    assert_eq!(decide(&world), "rest");
}

#[test]
fn deletes_with_nothing_below_are_dropped_once_no_snapshot_needs_them() {
    let text = "L7: #10[a..c]{deletes=30}";
    claim(text, "last-deletes: merge [10] into L7 anew");
    let mut world = World::of(text, &[LARGE]);
    world.oldest_snapshot = SeqNo(9);
    assert_eq!(decide(&world), "rest");
    world.oldest_snapshot = SeqNo(10);
    world.now_us = 1000;
    assert_eq!(decide(&world), "rest");
    claim(
        "L7: #10[a..c]{entries=0,size=0,ranges=3}",
        "last-deletes: merge [10] into L7 anew",
    );
}

#[test]
fn a_table_of_mostly_dead_blocks_is_rewritten() {
    claim("L7: #10[a..c]{dead=500K}", "rest");
    claim(
        "L7: #10[a..c]{dead=600K}",
        "dead-blocks: merge [10] into L7 anew",
    );
}

fn loads(loads: &[PartLoad]) -> World {
    let mut world = World::of("cuts g p", &[LARGE]);
    world.memtables = loads
        .iter()
        .zip(0..)
        .map(|(l, p)| ((KEYSPACE, p), *l))
        .collect();
    world
}

fn sealed(bytes: u64) -> PartLoad {
    PartLoad {
        sealed: 1,
        sealed_bytes: bytes,
        ..PartLoad::default()
    }
}

#[test]
fn the_part_with_most_sealed_bytes_is_flushed_first() {
    assert_eq!(
        decide(&loads(&[sealed(4 * M), sealed(5 * M), sealed(M)])),
        "memtable-full: flush 1"
    );
    assert_eq!(decide(&loads(&[sealed(3 * M)])), "rest");
    let mut flushing = sealed(9 * M);
    flushing.flushing = true;
    assert_eq!(
        decide(&loads(&[sealed(4 * M), flushing])),
        "memtable-full: flush 0"
    );
}

#[test]
fn a_part_whose_next_memtables_would_be_too_many_is_flushed_before_others() {
    let listed = |sealed, takers| PartLoad {
        takers,
        sealed,
        sealed_bytes: M,
        ..PartLoad::default()
    };
    let mut world = loads(&[sealed(5 * M), listed(2, 1), listed(1, 2)]);
    assert_eq!(decide(&world), "memtable-full: flush 0");
    world.shape.sealed_max = 3;
    assert_eq!(decide(&world), "memtable-full: flush 0", "all have room");
    world.shape.sealed_max = 2;
    // Of those without room the one with most: two beside one, one beside two.
    let reason = |world: &World| match world.plan(&mut leveled()) {
        Some(Job::Flush(flush)) => (flush.part, flush.reason.to_string()),
        other => panic!("{other:?}"),
    };
    let (part, why) = reason(&world);
    assert_eq!(part, 1);
    assert!(
        why.starts_with("sealed-full (sealed 2, sealed_memtables_max 2"),
        "{why}"
    );
    world.memtables.get_mut(&(KEYSPACE, 1)).unwrap().flushing = true;
    assert_eq!(reason(&world).0, 2);
    // Of all four, with room for one more, the next two of part 2 have none.
    world.shape.sealed_max = usize::MAX;
    world.shape.sealed_total_max = 6;
    assert_eq!(decide(&world), "memtable-full: flush 0");
    world.shape.sealed_total_max = 5;
    let (part, why) = reason(&world);
    assert_eq!(part, 0, "part 1 is being flushed");
    let numbers = "sealed-full (sealed 1, of_all 4, sealed_memtables_total_max 5";
    assert!(why.starts_with(numbers), "{why}");
}

#[test]
fn a_part_whose_next_memtables_would_take_too_much_memory_is_flushed_before_others() {
    let held = |memory: u64, takers: u64| PartLoad {
        takers: takers as usize,
        sealed: 1,
        sealed_bytes: memory / 2,
        sealed_memory_bytes: memory,
        takers_memory_bytes_max: takers * M,
        ..PartLoad::default()
    };
    let mut world = loads(&[sealed(5 * M), held(3 * M, 1), held(2 * M, 2)]);
    // Those that take writes will be as large, and then others take their place.
    world.shape.part_memory_bytes_max = 6 * M;
    assert_eq!(decide(&world), "memtable-full: flush 0");
    world.shape.part_memory_bytes_max = 5 * M;
    let Some(Job::Flush(flush)) = world.plan(&mut leveled()) else {
        panic!("{}", decide(&world));
    };
    let why = flush.reason.to_string();
    let numbers =
        "sealed-full (sealed 1, sealed_memory_bytes 2097152, part_memory_bytes_max 5242880";
    assert!(flush.part == 2 && why.starts_with(numbers), "{why}");
}

/// With 64 parts a flush wrote half a megabyte, and waited for its device as long as one of more.
#[test]
fn where_the_fullest_part_holds_little_the_next_ones_are_flushed_with_it() {
    let active = |&active_bytes: &u64| PartLoad {
        takers: 1,
        active_bytes,
        oldest_segment: Some(1),
        ..PartLoad::default()
    };
    let on_tiers = |held: &[u64], tiers: usize| {
        let held: Vec<PartLoad> = held.iter().map(active).collect();
        World {
            memtables: loads(&held).memtables,
            ..World::of("cuts g p", &[LARGE; 2][..tiers])
        }
    };
    let flushed_on = |tiers: usize, held: &[u64]| {
        let mut world = on_tiers(held, tiers);
        world.log_segments = (1, 9);
        let Some(Job::Flush(flush)) = world.plan(&mut leveled()) else {
            panic!("{}", decide(&world));
        };
        (flush.part, flush.beside, flush.active)
    };
    let flushed = |held: &[u64]| flushed_on(2, held);
    // Full at 8 MiB, of which a flush takes 0.8 at least.
    assert_eq!(flushed(&[M; 8]), (0, vec![], true));
    assert_eq!(flushed(&[M / 2; 16]), (0, vec![1], true));
    let mut uneven = [M / 4; 40];
    (uneven[7], uneven[30]) = (M / 2, M / 3);
    assert_eq!(flushed(&uneven), (7, vec![30], true));
    uneven[30] = M / 4;
    assert_eq!(flushed(&uneven), (7, vec![0, 1], true));
    assert_eq!(flushed_on(1, &uneven), (7, vec![], true));
    // What will be folded is left alone.
    let mut world = on_tiers(&uneven, 2);
    let few = Some(FewKeys::default());
    world.memtables.get_mut(&(KEYSPACE, 0)).unwrap().active_few = few;
    let Some(Job::Flush(flush)) = world.plan(&mut leveled()) else {
        panic!("{}", decide(&world));
    };
    assert_eq!((flush.part, flush.beside), (7, vec![1, 2]));
    // However little there is of each.
    let (_, beside, _) = flushed(&[M / 64; 600]);
    assert_eq!(beside.len(), 51);
}

/// A flush without sealed memtables seals first, so it would find nothing, again and again.
#[test]
fn no_part_is_flushed_that_has_nothing_sealed_and_no_room_to_seal() {
    let active = PartLoad {
        takers: 1,
        active_bytes: 6 * M,
        oldest_segment: Some(1),
        ..PartLoad::default()
    };
    let flushing = PartLoad {
        flushing: true,
        ..sealed(4 * M)
    };
    let mut world = loads(&[active, flushing]);
    world
        .memtables
        .get_mut(&(KEYSPACE, 0))
        .unwrap()
        .active_bytes = 9 * M;
    world.log_segments = (1, 9);
    assert_eq!(decide(&world), "memory-full: flush 0");
    world.shape.sealed_total_max = 1;
    assert_eq!(decide(&world), "rest");
    world.log_bytes = 65 * M;
    assert_eq!(decide(&world), "rest");
    world.shape.sealed_total_max = 2;
    assert_eq!(decide(&world), "log-full: flush 0");
}

/// Found on emulated devices: where writes wait for reads of a slow device, only a quarter of the
/// write buffer was ever used. What is slow was said by a constant first; beside it flushes in
/// memory took a twentieth of the time in which it was filled, and scans looked into twice as many
/// runs.
#[test]
fn writers_much_slower_than_flushes_fill_half_of_the_memory_before_it_is_flushed() {
    let mut preset = leveled();
    let sealed = |bytes| PartLoad {
        oldest_segment: Some(1),
        ..sealed(bytes)
    };
    let mut flushes = |world: &World| matches!(world.plan(&mut preset), Some(Job::Flush(_)));
    let mut world = loads(&[sealed(4 * M)]);
    world.idle = false;
    assert!(flushes(&world), "nothing is known of the writers yet");
    world.now_us += 1_000_000;
    assert!(flushes(&world), "nothing is known of flushes yet");
    // 4 MiB in 10 ms.
    world.freed_bytes_per_s = Some(400.0 * M as f64);
    world.now_us += 79_000;
    assert!(flushes(&world), "writers are fast");
    world.now_us += 79_000;
    assert!(flushes(&world), "and as fast again");
    world.now_us += 81_000;
    assert!(!flushes(&world), "they are slow");
    // In 100 ms, of the same device while others keep it busy.
    world.freed_bytes_per_s = Some(40.0 * M as f64);
    assert!(flushes(&world), "flushes are slow too");
    world.now_us += 1_000_000;
    assert!(!flushes(&world), "writers are slower than they");
    world.memtables = loads(&[sealed(8 * M)]).memtables;
    assert!(flushes(&world), "half is full");
    world.memtables = loads(&[sealed(4 * M)]).memtables;
    world.now_us += 1_000_000;
    world.idle = true;
    assert!(flushes(&world), "they have stopped");
}

/// A merge of a whole level used to find its tier full of its own inputs, and left
/// half of the level on the next one.
#[test]
fn what_a_merge_writes_has_the_room_of_what_it_reads() {
    let text = "L0.0: #9[a..z]{size=10M} | L6: #5[a..m]{size=40M} #6[n..z]{size=30M} | \
                L7: #1[a..z]{size=900M,tier=1}";
    let mut world = World::of(text, &[100 * M, LARGE]);
    // The outputs so far lie beside the inputs.
    world.tiers[0].used_bytes = 130 * M;
    world.tiers[0].device_free_bytes = 500 * M;
    let new = NewTable {
        keyspace: KEYSPACE,
        slot: Slot::Level(5),
        range: None,
        start: Some(b"n".as_slice().into()),
        size_bytes: 10 * M,
        parents: [9, 5, 6].map(TableId).to_vec(),
        written_bytes: [0; TIERS_MAX],
    };
    assert_eq!(leveled().placer.place(&world.view(), &new).data, TierId(0));
    // But not what the device has not.
    world.tiers[0].device_free_bytes = 9 * M;
    assert_eq!(leveled().placer.place(&world.view(), &new).data, TierId(1));
}

#[test]
fn a_part_that_pins_the_log_is_flushed_once_the_log_is_too_large() {
    let pinning = |segment| PartLoad {
        active_bytes: 1,
        oldest_segment: Some(segment),
        ..PartLoad::default()
    };
    let mut world = loads(&[pinning(7), pinning(5), pinning(9)]);
    world.log_segments = (5, 9);
    assert_eq!(decide(&world), "rest");
    world.log_bytes = 65 * M;
    assert_eq!(decide(&world), "log-full: flush 1");
    world.memtables.get_mut(&(KEYSPACE, 1)).unwrap().flushing = true;
    assert_eq!(decide(&world), "rest");
    world.log_segments = (9, 9);
    world.memtables = loads(&[pinning(9)]).memtables;
    assert_eq!(decide(&world), "rest");
}

#[test]
fn a_tier_that_is_over_gives_up_the_coldest_of_its_oldest_level() {
    let text = "L0.0: #9[a..z]{size=40M} | L7: #1[a..f]{size=40M} #2[g..z]{size=40M}";
    let mut world = World::of(text, &[100 * M, LARGE]);
    let used = |probes| TableHeat {
        probes,
        ..TableHeat::default()
    };
    world.heat = [(TableId(1), used(5)), (TableId(2), used(3))].into();
    assert_eq!(decide(&world), "tier-over: move 2 to 1");
    world.busy.insert(TableId(2));
    assert_eq!(decide(&world), "rest");
}

/// Found on an emulated disk: with writes only the fast tier was full of tables that nobody
/// touched, and flushes went to the slow one, for as long as a merge took.
#[test]
fn before_a_flush_spills_the_least_used_table_of_the_last_level_gives_way() {
    let text = "L0.0: #9[a..z]{size=10M} | L6: #5[a..z]{size=30M} | \
                L7: #1[a..f]{size=26M} #2[g..m]{size=26M} #3[n..z]{size=30M,tier=1}";
    let mut world = World::of(text, &[96 * M, LARGE]);
    world.shape.newest_runs_merge = 1;
    world.memtables = loads(&[sealed(8 * M)]).memtables;
    world.heat.entry(TableId(1)).or_default().probes = 1;
    let makes_room = "flush-needs-room: move 2 to 1";
    let flushes = "memtable-full: flush 0";
    assert_eq!(decide(&world), makes_room);
    let job = world.plan(&mut leveled()).unwrap();
    let uses = job
        .reason()
        .numbers
        .iter()
        .find(|(n, _)| n == "uses_per_mib");
    assert_eq!(uses.map(|(_, uses)| *uses), Some(0.0), "what was compared");
    for mut preset in [nova(), ohdb()] {
        let job = world.plan(&mut preset).unwrap();
        assert_eq!(job.reason().rule, "flush-needs-room", "{}", preset.name);
    }
    // None that a merge reads, or that has just been moved.
    world.busy.insert(TableId(2));
    assert_eq!(decide(&world), "flush-needs-room: move 1 to 1");
    world.busy.clear();
    world.cost.migration_cool_down_us = 1_000_000;
    world.moves.begin(TableId(2), 0, u64::MAX, world.now_us);
    assert_eq!(decide(&world), "flush-needs-room: move 1 to 1");
    world.moves.end(TableId(2));
    world.now_us += 1;
    assert_eq!(decide(&world), "flush-needs-room: move 1 to 1");
    world.now_us += world.cost.migration_cool_down_us;
    assert_eq!(decide(&world), makes_room);
    // Nor where the next tier has no room either,
    let free = std::mem::replace(&mut world.tiers[1].device_free_bytes, M);
    assert_eq!(decide(&world), flushes);
    world.tiers[1].device_free_bytes = free;
    // or nothing but the newest level is there,
    world.busy.extend([TableId(1), TableId(2)]);
    assert_eq!(decide(&world), "flush-needs-room: move 5 to 1");
    world.busy.insert(TableId(5));
    assert_eq!(decide(&world), flushes);
    world.busy.clear();
    // or flushes go elsewhere.
    world.shape.pins.newest = Some(TierId(1));
    assert_eq!(decide(&world), flushes);
    world.shape.pins.newest = None;
    assert_eq!(decide(&world), makes_room);
    (
        world.tiers[0].capacity_bytes,
        world.tiers[0].device_free_bytes,
    ) = (LARGE, LARGE);
    assert_eq!(decide(&world), flushes);
}

/// Each as large as what is lacking, if there is one: small ones were moved one by one, and the
/// flush spilled.
#[test]
fn tables_give_way_until_a_flush_has_room_and_no_longer_than_two_seconds() {
    let world_of = |capacity: u64, moved: &[u64]| {
        let tier = |id: u64| if moved.contains(&id) { ",tier=1" } else { "" };
        let text = format!(
            "L6: #5[a..z]{{size=30M{}}} | L7: #1[a..f]{{size=1M{}}} #2[g..m]{{size=5M{}}} #3[n..z]{{size=30M,tier=1}}",
            tier(5),
            tier(1),
            tier(2)
        );
        let here = [(5, 30), (1, 1), (2, 5)].into_iter();
        let here = here
            .filter(|(id, _)| !moved.contains(id))
            .map(|(_, size)| size * M);
        let mut world = World::of(&text, &[capacity, LARGE]);
        let tier = &mut world.tiers[0];
        tier.used_bytes = here.sum();
        tier.device_free_bytes = capacity.saturating_sub(tier.used_bytes);
        world.shape.flush_bytes = 8 * M;
        world.memtables = loads(&[sealed(8 * M)]).memtables;
        world
    };
    for mut preset in [leveled(), mutant(), nova(), ohdb()] {
        let mut flush = |world: &World| common::line(preset.flush.plan(&world.view()));
        // All of 36 MiB are used, 8 are needed: those of the last level are too small.
        assert!(flush(&world_of(36 * M, &[])).contains("move 5 to 1"));
        assert!(flush(&world_of(36 * M, &[5])).contains("memtable-full"));

        // One of 5 MiB is enough if less is lacking.
        assert!(flush(&world_of(40 * M, &[])).contains("move 2 to 1"));
        // Once that has gone another goes, if there is still too little,
        let mut world = world_of(32 * M, &[2]);
        world.now_us += 1_000_000;
        assert!(flush(&world).contains("move 5 to 1"));
        // but not for longer.
        let mut world = world_of(8 * M, &[2, 5]);
        world.now_us += 2_000_000;
        assert!(flush(&world).contains("memtable-full"));
        assert!(flush(&world).contains("move 1 to 1"), "for the next flush");
    }
}

/// Up to a second before the bound on moved bytes allows it, and beside another.
#[test]
fn what_gives_way_to_a_flush_begins_ahead_of_the_bound_on_moved_bytes() {
    let text = "L7: #1[a..f]{size=46M} #2[g..m]{size=46M} #3[n..z]{size=30M,tier=1}";
    let mut world = World::of(text, &[96 * M, LARGE]);
    world.memtables = loads(&[sealed(8 * M)]).memtables;
    world.moves.begin(TableId(3), 2 * M, M, world.now_us);
    assert_eq!(decide(&world), "memtable-full: flush 0");
    world.now_us += 1_000_000;
    assert_eq!(decide(&world), "flush-needs-room: move 1 to 1");
}

/// Measured: writers waited for a third of a second for each table that gave way, and what a merge
/// reads did not count either.
#[test]
fn what_is_being_moved_away_takes_no_room_from_a_flush() {
    let text = "L7: #1[a..f]{size=46M} #2[g..m]{size=46M} #3[n..z]{size=30M,tier=1}";
    let mut world = World::of(text, &[96 * M, LARGE]);
    world.memtables = loads(&[sealed(8 * M)]).memtables;
    world.tiers[0].device_free_bytes = LARGE;
    assert_eq!(decide(&world), "flush-needs-room: move 1 to 1");
    world.moves.begin(TableId(1), 1, LARGE, world.now_us);
    world.busy.insert(TableId(1));
    assert_eq!(decide(&world), "memtable-full: flush 0");
    // Only as much as it holds,
    world.memtables = loads(&[sealed(51 * M)]).memtables;
    assert_eq!(decide(&world), "flush-needs-room: move 2 to 1");
    world.memtables = loads(&[sealed(8 * M)]).memtables;
    // and not on a device that is full.
    world.tiers[0].device_free_bytes = 4 * M;
    assert_eq!(decide(&world), "flush-needs-room: move 2 to 1");
    // What has ended is gone, or counts again.
    world.tiers[0].device_free_bytes = LARGE;
    world.moves.end(TableId(1));
    assert_eq!(decide(&world), "flush-needs-room: move 2 to 1");
}

/// Measured: for a quarter of the time tables were moved down to make room for flushes, while a
/// merge took ten times as much there.
#[test]
fn what_is_being_merged_down_takes_no_room_from_a_flush() {
    let text = "L6: #1[a..f]{size=46M} #2[g..m]{size=46M} | L7: #3[a..f]{size=30M,tier=1} #4[n..z]{size=30M,tier=1}";
    let mut world = World::of(text, &[96 * M, LARGE]);
    world.tiers[0].device_free_bytes = LARGE;
    world.memtables = loads(&[sealed(8 * M)]).memtables;
    let flush = |world: &World| common::line(leveled().flush.plan(&world.view()));
    assert!(flush(&world).contains("flush-needs-room"));
    let range = KeyRange::inclusive(b"a", b"f");
    let merge_to = |world: &mut World, level| {
        world.busy = [TableId(1), TableId(3)].into();
        world.busy_outputs = vec![(KEYSPACE, Slot::Level(level), range.clone())];
    };
    merge_to(&mut world, 6);
    assert!(flush(&world).contains("memtable-full"));
    assert_eq!(Fill::of(&world.view()).leaving, bytes_on_first(46 * M));
    // What stays in its level stays where it is, as far as anybody knows,
    merge_to(&mut world, 5);
    assert!(flush(&world).contains("flush-needs-room"));
    // and so does as much as the level below has on the same tier.
    let text = "L6: #1[a..f]{size=46M} #2[g..i]{size=16M} | L7: #3[a..f]{size=30M} #4[n..z]{size=90M,tier=1}";
    let mut world = World::of(text, &[96 * M, LARGE]);
    merge_to(&mut world, 6);
    assert_eq!(
        Fill::of(&world.view()).leaving,
        bytes_on_first(46 * M * 3 / 4)
    );
    // Another keyspace's, or other keys', is none of its.
    world.busy_outputs[0].2 = KeyRange::inclusive(b"n", b"z");
    assert_eq!(Fill::of(&world.view()).leaving, bytes_on_first(0));
    merge_to(&mut world, 6);
    world.busy_outputs[0].0 = KeyspaceId(7);
    assert_eq!(Fill::of(&world.view()).leaving, bytes_on_first(0));
}

fn bytes_on_first(bytes: u64) -> [u64; TIERS_MAX] {
    let mut by_tier = [0; TIERS_MAX];
    by_tier[0] = bytes;
    by_tier
}

/// Once: a table with a rotten block was chosen to give way again and again, and nothing was
/// flushed any more.
#[test]
fn after_one_table_that_gave_way_or_could_not_comes_the_flush_itself() {
    let text = "L7: #1[a..f]{size=46M} #2[g..m]{size=46M} #3[n..z]{size=30M,tier=1}";
    let mut world = World::of(text, &[96 * M, LARGE]);
    world.memtables = loads(&[sealed(8 * M)]).memtables;
    for mut preset in [leveled(), mutant(), nova(), ohdb()] {
        for _ in 0..3 {
            let mut flush = || common::line(preset.flush.plan(&world.view()));
            assert!(flush().contains("flush-needs-room"));
            // However long that took: not only when there is twice as much to flush.
            world.now_us += 1_000_000;
            let mut flush = || common::line(preset.flush.plan(&world.view()));
            assert!(flush().contains("memtable-full"));
            world.now_us += 190_000;
        }
    }
}

#[test]
fn a_tier_with_room_gets_the_most_used_and_an_older_level_yields_to_a_newer() {
    let text = "L7: #1[a..f]{size=20M,tier=1} #2[g..z]{size=20M,tier=1}";
    let mut world = World::of(text, &[100 * M, LARGE]);
    world.heat.entry(TableId(2)).or_default().probes = 1;
    assert_eq!(decide(&world), "tier-under: move 2 to 0");
    // The room is for what is flushed, while so much is written that memtables are lent memory.
    world.shape.flush_bytes = 4 * world.shape.usual_flush_bytes;
    assert_eq!(decide(&world), "rest");
    world.idle = true;
    assert_eq!(decide(&world), "tier-under: move 2 to 0");
    let text = "L0.0: #9[a..z]{size=20M,tier=1} | L7: #1[a..f]{size=40M} #2[g..z]{size=40M}";
    let mut world = World::of(text, &[100 * M, LARGE]);
    assert_eq!(decide(&world), "tier-yield: move 1 to 1");
    world.shape.flush_bytes = 4 * world.shape.usual_flush_bytes;
    assert_eq!(decide(&world), "tier-yield: move 1 to 1");
}

#[test]
fn a_new_table_lies_where_its_level_belongs() {
    let text = "L0.0: #9[a..z]{size=20M} | L6: #5[a..z]{size=30M} | \
                L7: #1[a..f]{size=30M} #2[g..z]{size=40M,tier=1}";
    let world = World::of(text, &[100 * M, LARGE]);
    let place = |slot, parents: &[u64], range| {
        let new = NewTable {
            keyspace: KEYSPACE,
            slot,
            range,
            start: None,
            size_bytes: 4 * M,
            parents: parents.iter().map(|&t| TableId(t)).collect(),
            written_bytes: [0; TIERS_MAX],
        };
        let layout = ByLevel.place(&world.view(), &new);
        assert_eq!(layout.meta.0, 0);
        (layout.data.0, layout.rule)
    };
    assert_eq!(place(Slot::Newest(0), &[], None), (0, "level-fits"));
    assert_eq!(place(Slot::Level(5), &[9, 5], None), (0, "level-fits"));
    assert_eq!(
        place(Slot::Level(6), &[5, 1], None),
        (0, "level-spans-as-parents")
    );
    let right = Some(KeyRange::inclusive(b"h", b"k"));
    assert_eq!(
        place(Slot::Level(6), &[5, 1, 2], right),
        (1, "level-spans-as-parents")
    );
}

#[test]
fn a_tier_without_room_passes_a_new_table_on() {
    let world = World::of("L0.0: #9[a..z]{size=98M}", &[100 * M, LARGE]);
    let new = NewTable {
        keyspace: KEYSPACE,
        slot: Slot::Newest(0),
        range: None,
        start: None,
        size_bytes: 4 * M,
        parents: Vec::new(),
        written_bytes: [0; TIERS_MAX],
    };
    let layout = ByLevel.place(&world.view(), &new);
    assert_eq!((layout.data.0, layout.meta.0), (1, 0));
}

#[test]
fn pressure_counts_runs_and_what_should_lie_further_down() {
    let world = World::of(
        &format!("{FOUR} | L6: #5[a..c]{{size=50M}} | {LAST}").replace("#4[", "#44["),
        &[LARGE],
    );
    let pressure = pressure(&world.view());
    assert_eq!(pressure.newest_runs_max, 4);
    let debt = pressure.merge_debt_bytes / M;
    assert_eq!(debt, 4 + 30, "four runs, and 50 MiB where 20 belong");
}

#[test]
fn every_table_can_say_why_it_lies_there() {
    let text = "L0.0: #9[a..z]{size=20M} | L7: #1[a..f]{size=90M} #2[g..z]{size=40M,tier=1}";
    let world = World::of(text, &[100 * M, LARGE]);
    let why = |t| ByLevel.why(&world.view(), TableId(t));
    let of = |t| why(t).unwrap();
    assert_eq!((of(9).rule.as_str(), of(9).tier.0), ("level-fits", 0));
    assert_eq!(
        of(9).next.as_deref(),
        Some("a merge into L6 at 4 runs, now 1")
    );
    assert_eq!((of(2).rule.as_str(), of(2).next), ("level-spans", None));
    assert!(why(77).is_none());
    let all = [9, 77, 1, 2].map(TableId);
    let each = all.map(|table| ByLevel.why(&world.view(), table));
    assert_eq!(ByLevel.why_each(&world.view(), &all), each);
}

/// Once: an older level gave up a table to a newer one that did not fit even then, and got it back
/// at once, as it was larger than the level's quota of that one tier: 20,000 moves and no end.
#[test]
fn moves_between_tiers_come_to_an_end_wherever_tables_lie() {
    let mut dice = Dice(1);
    for world_at in 0..3000 {
        let mut number = 0;
        let mut level = |name: &str, tables: u64| -> String {
            let one = |at: u64| {
                number += 1;
                let (size, tier) = (1 + dice.below(40), dice.below(4));
                format!("#{number}[{at}0..{at}9]{{size={size}M,tier={tier}}} ")
            };
            format!("{name}: {}", (1..=tables).map(one).collect::<String>())
        };
        let text = format!(
            "{} | {} | {} | {}",
            level("L0.0", 1),
            level("L1", 1 + world_at % 2),
            level("L2", 1 + world_at % 3),
            level("L7", 1 + world_at % 4)
        );
        let capacities = [0; 3].map(|_| (10 + dice.below(70)) * M);
        let [fast, middle, slow] = capacities;
        let mut world = World::of(&text, &[fast, middle, slow, LARGE]);
        world.idle = true;
        let mut moved = Vec::new();
        while let Some(job) = Balance.plan(&world.view()) {
            world.start(&job);
            world.finish(&job);
            moved.push(job);
            assert!(
                moved.len() < 100,
                "{capacities:?} {text}: {:?}",
                &moved[96..]
            );
        }
    }
}
