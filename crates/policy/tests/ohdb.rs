//! The preset `ohdb`: buckets, shares, and the tiers that levels begin on.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{Dice, KEYS, KEYSPACE, M, World, empty, key, leveled, ohdb};
use thermocline_model::job::{Job, Merge, NewTable, Reason};
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableId;
use thermocline_model::tier::{TIERS_MAX, TierId};
use thermocline_model::version::{KeyspaceId, Slot, Tiny};
use thermocline_model::view::{PartLoad, TierPins};
use thermocline_policy::place::{ByBucket, ByLevel, Fill};
use thermocline_policy::plan::first_cuts::first_cuts;
use thermocline_policy::plan::targets::{BOTTOM, Targets};
use thermocline_policy::pressure::base_shares;
use thermocline_policy::{Placer, Preset};

const LARGE: u64 = 1 << 40;

fn merge(world: &World, preset: &mut Preset) -> Option<Merge> {
    match world.plan(preset)? {
        Job::Merge(merge) => Some(merge),
        other => panic!("{other:?}"),
    }
}

fn inputs(merge: &Merge) -> Vec<u64> {
    let mut inputs: Vec<u64> = merge.inputs.iter().map(|t| t.0).collect();
    inputs.sort_unstable();
    inputs
}

const BUCKETS: &str = "cuts h p | \
     L0.0: #32[a..g]{size=4M} / #31[a..g]{size=4M} | \
     L0.1: #44[h..o]{size=4M} / #43[h..o]{size=4M} / #42[h..o]{size=4M} / #41[h..o]{size=4M} | \
     L0.2: #53[p..z]{size=4M} / #52[p..z]{size=4M} / #51[p..z]{size=4M} | \
     L7: #1[a..g]{size=8M} #2[h..k]{size=8M} #3[l..o]{size=8M} #4[p..z]{size=8M}";

/// Flushed one by one, each flush has the log of what is older in the other parts made durable
/// first: with ten parts all of it was written to the device, with one hardly any.
#[test]
fn parts_that_are_about_as_full_are_flushed_together() {
    let load = |bytes| PartLoad {
        active_bytes: bytes,
        oldest_segment: (bytes > 0).then_some(1),
        ..PartLoad::default()
    };
    let planned_beside = |least: u64, loads: &[PartLoad], of_another: u64| {
        let mut world = World::of("cuts c h p t |", &[LARGE]);
        world.shape.flush_together_bytes_min = Some(least);
        for (&load, part) in loads.iter().zip(0..) {
            world.memtables.insert((KEYSPACE, part), load);
        }
        world.memtables.insert((KeyspaceId(1), 0), load(of_another));
        match world.plan(&mut ohdb()) {
            Some(Job::Flush(flush)) => (flush.part, flush.beside, flush.active),
            other => panic!("{other:?}"),
        }
    };
    let planned_from = |least, loads: &[PartLoad]| planned_beside(least, loads, 0);
    let planned = |loads: &[PartLoad]| planned_from(1, loads);
    let even = [2 * M, 2 * M, 3 * M, 2 * M, 0].map(load);
    assert_eq!(planned_from(0, &even), (2, vec![], true));
    assert_eq!(planned_from(9 * M / 4 + 1, &even), (2, vec![], true));
    assert_eq!(planned_from(9 * M / 4, &even).1, [0, 1, 3]);
    assert_eq!(planned(&even), (2, vec![0, 1, 3], true));
    // What another keyspace has may be older, and needs the log in any case.
    assert_eq!(planned_beside(1, &even, 1), (2, vec![], true));
    // A part alone is full before half of the memory is.
    let mut sealed = even;
    (sealed[1].sealed, sealed[1].sealed_bytes) = (1, 4 * M);
    sealed[2] = load(M);
    assert_eq!(planned(&sealed), (1, vec![0, 2, 3], true));
    // Three times the share of each is the most.
    assert_eq!(planned(&[9 * M, M, M, M, 3 * M].map(load)).1, [1, 2, 3, 4]);
    assert_eq!(
        planned(&[9 * M + 6, M, M, M, 3 * M].map(load)),
        (0, vec![], true)
    );
    // One that is being flushed would be waited for, and what is older than the cuts is in several
    // parts.
    let with = |change: fn(&mut PartLoad)| {
        let mut loads = [2 * M, 2 * M, 3 * M, 2 * M, 2 * M].map(load);
        change(&mut loads[3]);
        planned(&loads).1
    };
    assert_eq!(with(|_| {}), [0, 1, 3, 4]);
    assert!(with(|load| load.flushing = true).is_empty());
    assert!(with(|load| (load.sealed, load.older) = (1, true)).is_empty());
}

/// Where nobody says, they are where flushes of single parts wait for the log, and writers for
/// flushes.
#[test]
fn parts_are_flushed_together_where_flushes_wait_for_the_log() {
    let mut world = World::of("cuts c h p t |", &[LARGE]);
    for part in 0..5 {
        let load = PartLoad {
            active_bytes: 2 * M,
            oldest_segment: Some(1),
            ..PartLoad::default()
        };
        world.memtables.insert((KEYSPACE, part), load);
    }
    let mut planned = |least, share, stalled| {
        world.shape.flush_together_bytes_min = least;
        (world.log_wait_share, world.stalled_share) = (share, stalled);
        match world.plan(&mut ohdb()) {
            Some(Job::Flush(flush)) => (flush.beside.len(), flush.reason),
            other => panic!("{other:?}"),
        }
    };
    let says = |reason: &Reason| {
        reason
            .numbers
            .iter()
            .any(|(name, _)| name == "log_wait_share")
    };
    assert_eq!(planned(None, None, 1.0).0, 0);
    for (share, stalled, others) in [(0.19, 0.1, 0), (0.2, 0.09, 0), (0.2, 0.1, 4)] {
        let (beside, reason) = planned(None, Some(share), stalled);
        assert_eq!(beside, others);
        assert!(says(&reason), "{reason:?}");
    }
    for (least, others) in [(0, 0), (1, 4)] {
        let (beside, reason) = planned(Some(least), Some(1.0), 1.0);
        assert_eq!(beside, others);
        assert!(!says(&reason), "{reason:?}");
    }
    // With a second tier the log has less of what merges write beside it, unless it lies there,
    // too.
    let mut world = World {
        tiers: World::of("|", &[LARGE, LARGE]).tiers,
        ..world
    };
    for (log, others) in [(None, 0), (Some(TierId(0)), 0), (Some(TierId(1)), 4)] {
        world.shape.flush_together_bytes_min = None;
        world.shape.pins.log = log;
        match world.plan(&mut ohdb()) {
            Some(Job::Flush(flush)) => assert_eq!(flush.beside.len(), others, "{log:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_bucket_is_merged_as_a_whole_when_it_is_full_and_the_others_are_left() {
    let world = World::of(BUCKETS, &[LARGE]);
    let merge = merge(&world, &mut ohdb()).unwrap();
    assert_eq!(inputs(&merge), [2, 3, 41, 42, 43, 44]);
    assert_eq!(merge.output, Slot::Level(BOTTOM as u32));
    assert_eq!(merge.reason.rule, "newest-runs");
}

#[test]
fn buckets_that_are_full_together_are_merged_side_by_side() {
    let text = BUCKETS.replace("L0.0: ", "L0.0: #34[a..g]{size=4M} / #33[a..g]{size=4M} / ");
    let mut world = World::of(&text, &[LARGE]);
    let mut preset = ohdb();
    let first = world.plan(&mut preset).unwrap();
    world.start(&first);
    let second = world.plan(&mut preset).unwrap();
    // Panics if they share a table or write to the same place.
    world.start(&second);
    assert!(world.plan(&mut preset).is_none());
}

/// A flush is planned by a planner of its own, whatever buckets wait.
#[test]
fn a_flush_goes_before_buckets_that_filled_together() {
    let text = BUCKETS
        .replace("L0.0: ", "L0.0: #34[a..g]{size=4M} / #33[a..g]{size=4M} / ")
        .replace("L0.2: ", "L0.2: #54[p..z]{size=4M} / ");
    let mut world = World::of(&text, &[LARGE]);
    let mut preset = ohdb();
    for part in [2, 0, 1] {
        let load = PartLoad {
            sealed: 1,
            sealed_bytes: world.shape.flush_bytes,
            ..PartLoad::default()
        };
        world.memtables.insert((KEYSPACE, part), load);
        match world.plan(&mut preset) {
            Some(Job::Flush(flush)) => assert_eq!(flush.part, part),
            other => panic!("{other:?}"),
        }
        // A merge is under way: the next flush goes first again.
        world.memtables.clear();
        let merge = world.plan(&mut preset).unwrap();
        assert!(matches!(merge, Job::Merge(_)));
        world.start(&merge);
    }
}

/// Measured: without it a run held one memtable of 2.6 MiB, with ten parts and a write
/// buffer of 64 MiB, and its part went on holding half as much.
#[test]
fn the_fullest_part_is_flushed_with_the_memtable_that_takes_writes_if_that_has_much() {
    let planned = |loads: &[(u64, u64)]| {
        let mut world = World::of("cuts h p |", &[LARGE]);
        for (&(active_bytes, sealed_bytes), part) in loads.iter().zip(0..) {
            let load = PartLoad {
                active_bytes,
                sealed: usize::from(sealed_bytes > 0),
                sealed_bytes,
                oldest_segment: Some(1),
                ..PartLoad::default()
            };
            world.memtables.insert((KEYSPACE, part), load);
        }
        match world.plan(&mut ohdb()) {
            Some(Job::Flush(flush)) => Some((flush.part, flush.active)),
            other => {
                assert!(other.is_none(), "{other:?}");
                None
            }
        }
    };
    // Half of the memory are two flushes of 4 MiB each.
    assert_eq!(planned(&[(M, M), (M, M), (M, 2 * M)]), None);
    assert_eq!(planned(&[(M, M), (M, 3 * M), (2 * M, M)]), Some((1, false)));
    assert_eq!(
        planned(&[(M, M), (2 * M, 2 * M), (2 * M, M)]),
        Some((1, true))
    );
    assert_eq!(
        planned(&[(3 * M, 0), (3 * M, 0), (3 * M, 0)]),
        Some((0, true))
    );
}

#[test]
fn a_full_level_gives_up_the_share_of_a_part_as_a_whole() {
    // L6 is the base of a last level of this size, and full.
    let mut world = World::of(
        "cuts h p | \
         L6: #11[a..c]{size=90M} #12[d..g]{size=90M} #13[h..i]{size=100M} #14[j..k]{size=100M} \
         #15[l..o]{size=100M} #16[p..z]{size=60M} | \
         L7: #1[a..g]{size=900M} #2[h..o]{size=900M} #3[p..z]{size=900M}",
        &[LARGE],
    );
    world.shape.table_bytes = 32 * M;
    let merge = merge(&world, &mut ohdb()).unwrap();
    assert_eq!(inputs(&merge), [2, 13, 14, 15]);
    assert_eq!(merge.reason.rule, "level-full");
    // A share too large for one merge goes in several.
    world.shape.table_bytes = 8 * M;
    let merge = self::merge(&world, &mut ohdb()).unwrap();
    assert_eq!(inputs(&merge), [2, 13]);
}

/// And first the piece that overlaps least for its size, wherever in the share it lies.
#[test]
fn of_a_large_share_the_cheapest_piece_goes_first() {
    let text = "cuts p | \
         L6: #11[a..c]{size=60M} #12[d..g]{size=60M} #13[h..k]{size=90M} #14[l..o]{size=60M} \
         #15[p..z]{size=10M} | \
         L7: #1[a..c]{size=400M} #2[d..g]{size=400M} #3[h..k]{size=400M} #4[l..o]{size=400M} \
         #5[p..z]{size=400M}";
    let mut world = World::of(text, &[LARGE]);
    world.shape.table_bytes = 4 * M;
    let first = merge(&world, &mut ohdb()).unwrap();
    assert_eq!(inputs(&first), [3, 13]);
    world.busy.insert(TableId(3));
    let second = merge(&world, &mut ohdb()).unwrap();
    assert_eq!(inputs(&second).len(), 2);
    assert!(!inputs(&second).contains(&15), "{second:?}");
}

#[test]
fn shares_of_parts_that_writes_have_made_go_in_smaller_pieces() {
    let text = "cuts p | L6: #11[a..c]{size=90M} #12[d..g]{size=90M} #13[p..z]{size=10M} | \
         L7: #1[a..c]{size=500M} #2[d..g]{size=500M} #3[p..z]{size=500M}";
    let mut world = World::of(text, &[LARGE]);
    world.shape.table_bytes = 20 * M;
    let whole = merge(&world, &mut ohdb()).unwrap();
    assert_eq!(inputs(&whole), [1, 2, 11, 12]);
    let keyspace = world.version.keyspaces.get_mut(&KEYSPACE).unwrap();
    let start: Box<[u8]> = b"".as_slice().into();
    Arc::make_mut(keyspace).parts[0].tiny = vec![Tiny { start, writes: 1 }];
    let piece = merge(&world, &mut ohdb()).unwrap();
    assert_eq!(inputs(&piece).len(), 2);
}

/// Three parts, of which a level holds about as much each, with as many runs as are merged in some
/// of them; the level is full.
fn full_level_under(newest: &str) -> World {
    let text = format!(
        "cuts h p | {newest} | L6: #11[a..g]{{size=150M}} #12[h..o]{{size=160M}} #13[p..z]{{size=150M}} | \
         L7: #1[a..g]{{size=800M}} #2[h..o]{{size=800M}} #3[p..z]{{size=800M}}"
    );
    let mut world = World::of(&text, &[LARGE]);
    world.shape.table_bytes = 64 * M;
    world.shape.flush_bytes = world.shape.usual_flush_bytes * 5 / 4;
    world
}

/// Four runs of a part, of so many MiB each.
fn runs(part: u32, range: &str, mib: u64) -> String {
    let runs = (0..4).map(|n| format!("#{}[{range}]{{size={mib}M}}", 10 * part + 54 - n));
    format!("L0.{part}: {}", runs.collect::<Vec<_>>().join(" / "))
}

/// Measured with uniform writes: what the level holds of a part was rewritten for what came from
/// above, and the next level for it alone.
#[test]
fn newest_runs_go_through_a_full_level_where_that_rewrites_less_of_the_next() {
    let through = |world: &World| {
        let merge = merge(world, &mut ohdb()).unwrap();
        (merge.reason.rule.clone(), inputs(&merge), merge.output)
    };
    let level_first = |first: &[u64]| ("level-full".to_string(), first.to_vec(), Slot::Level(6));
    // The cheapest share is that of the second part, but the third has half as much again in newest
    // runs.
    let world = full_level_under(&runs(2, "p..z", 20));
    let (rule, tables, output) = through(&world);
    assert_eq!((rule.as_str(), output), ("part-through", Slot::Level(6)));
    assert_eq!(tables, [3, 13, 71, 72, 73, 74]);
    // Where somebody reads, runs wait for no longer merges than they must.
    let mut world = full_level_under(&runs(2, "p..z", 20));
    world.shape.flush_bytes = world.shape.usual_flush_bytes;
    assert_eq!(through(&world), level_first(&[2, 12]));
    // Little of it rewrites more for each byte.
    assert_eq!(
        through(&full_level_under(&runs(2, "p..z", 2))),
        level_first(&[2, 12])
    );
    // Fewer than are merged wait for more.
    let few = "L0.2: #73[p..z]{size=40M} / #72[p..z]{size=40M}";
    assert_eq!(through(&full_level_under(few)), level_first(&[2, 12]));
    // Nothing passes what is busy, or being made.
    for busy in [3, 13, 71, 74] {
        let mut world = full_level_under(&runs(2, "p..z", 20));
        world.busy.insert(TableId(busy));
        assert_eq!(through(&world), level_first(&[2, 12]), "{busy}");
    }
    for slot in [1, 5, 6] {
        let mut world = full_level_under(&runs(2, "p..z", 20));
        let range = KeyRange::inclusive(b"x", b"z");
        world.busy_outputs = vec![(KEYSPACE, Slot::Level(slot), range)];
        assert_eq!(through(&world), level_first(&[2, 12]), "{slot}");
    }
    // Above the level nothing of the part may stay.
    let text = format!("{} | L3: #9[q..r]{{size=1M}}", runs(2, "p..z", 20));
    let merge = merge(&full_level_under(&text), &mut ohdb()).unwrap();
    assert!(merge.reason.rule != "part-through", "{merge:?}");
    // Nor is it larger than other merges.
    let mut world = full_level_under(&runs(2, "p..z", 20));
    world.shape.table_bytes = 15 * M;
    assert_eq!(through(&world), level_first(&[2, 12]));
}

/// What is due are the runs: many of one part, while the level waits as well.
#[test]
fn runs_that_go_first_take_along_what_a_full_level_has_of_their_part() {
    let many = |mib: u64| {
        let all = (0..20).map(|n| format!("#{}[a..g]{{size={mib}M}}", 60 - n));
        format!("L0.0: {}", all.collect::<Vec<_>>().join(" / "))
    };
    let of = |mib| merge(&full_level_under(&many(mib)), &mut ohdb()).unwrap();
    let large = of(20);
    assert_eq!(large.reason.rule, "part-through");
    assert_eq!(
        (inputs(&large)[..2].to_vec(), large.output),
        (vec![1, 11], Slot::Level(6))
    );
    // What rewrites more of the next level stops at this one.
    let mut small = full_level_under(&many(9));
    let keyspace = small.version.keyspaces.get_mut(&KEYSPACE).unwrap();
    let level = &mut Arc::make_mut(keyspace).levels[6];
    let lower = Arc::make_mut(&mut level.runs[0].tables[0]);
    lower.data[0].length *= 4;
    small.shape.table_bytes = 512 * M;
    let small = merge(&small, &mut ohdb()).unwrap();
    assert_eq!(
        (small.reason.rule.as_str(), small.output),
        ("newest-runs", Slot::Level(5))
    );
    // Nor while the level is not full.
    let text = format!(
        "cuts h p | {} | L6: #11[a..g]{{size=60M}} | L7: #1[a..g]{{size=800M}} #2[h..z]{{size=1600M}}",
        many(9)
    );
    let mut world = World::of(&text, &[LARGE]);
    world.shape.table_bytes = 64 * M;
    assert_eq!(
        merge(&world, &mut ohdb()).unwrap().reason.rule,
        "newest-runs"
    );
    // One part is no part.
    let text = format!(
        "{} | L6: #11[a..g]{{size=600M}} | L7: #1[a..g]{{size=800M}} #2[h..z]{{size=1600M}}",
        many(20)
    );
    let mut world = World::of(&text, &[LARGE]);
    world.shape.table_bytes = 128 * M;
    assert!(merge(&world, &mut ohdb()).unwrap().reason.rule != "part-through");
}

/// What newest runs wait for is a share of what their own merge rewrites, not of what those of
/// others do.
#[test]
fn runs_above_a_large_share_wait_for_more_of_their_kind() {
    let runs = |part: &str, range: &str, from: u32| {
        let runs = (0..4).map(|n| format!("#{}[{range}]{{size=8M}}", from - n));
        format!("L0.{part}: {} | ", runs.collect::<Vec<_>>().join(" / "))
    };
    let text =
        |newest: &str| format!("cuts d | {newest}L7: #1[a..c]{{size=10M}} #2[d..z]{{size=54M}}");
    let few = World::of(&text(&runs("0", "a..c", 40)), &[LARGE]);
    assert_eq!(
        inputs(&merge(&few, &mut ohdb()).unwrap()),
        [1, 37, 38, 39, 40]
    );
    let many = World::of(&text(&runs("1", "d..z", 40)), &[LARGE]);
    assert_eq!(merge(&many, &mut ohdb()), None);
    let shares = base_shares(&many.version.keyspaces[&KEYSPACE], BOTTOM);
    assert_eq!(shares.iter().map(|b| b / M).collect::<Vec<_>>(), [32, 54]);
}

#[test]
fn with_one_part_the_levels_are_those_of_leveled() {
    for text in [
        "L0.0: #9[a..z] / #8[a..z] / #7[a..z] / #6[a..z]",
        "L6: #11[a..c]{size=90M} #12[d..g]{size=90M} | L7: #1[a..g]{size=300M}",
        "L5: #11[a..c]{size=90M} | L6: #12[a..g]{size=190M} #13[k..l] | L7: #1[a..g]{size=300M}",
    ] {
        let world = World::of(text, &[LARGE]);
        assert_eq!(
            world.plan(&mut ohdb()),
            world.plan(&mut leveled()),
            "{text}"
        );
    }
}

/// What a stream of flushes of uniform keys costs.
struct Cost {
    merges: usize,
    /// Bytes that merges wrote, for each byte flushed.
    rewritten: f64,
}

/// Memtables of 32 MB, tables of 8 MB, a first level of 10 MB, as in table II; each
/// flush of a quarter of a write buffer of two memtables, or of a part at a time.
fn fill(parts: u64, preset: &mut Preset, bytes: u64) -> Cost {
    let mut world = empty(parts, &[LARGE]);
    world.shape.table_bytes = 8 * M;
    world.shape.first_level_bytes = 10 * M;
    world.shape.flush_bytes = 16 * M;
    world.shape.usual_flush_bytes = 16 * M;
    let mut dice = Dice(1);
    let mut merges = 0;
    let width = KEYS / parts;
    let mut part = 0;
    while world.flushed_bytes < bytes {
        let (low, high) = (width * part, width * (part + 1) - 1);
        let range = KeyRange::inclusive(&key(low + dice.below(99)), &key(high - dice.below(99)));
        let flushed = if parts == 1 { 16 * M } else { 64 * M / parts };
        world.flush(part as u32, range, flushed, 0.0);
        part = (part + 1) % parts;
        while let Some(job) = world.plan(preset) {
            world.start(&job);
            world.finish(&job);
            merges += 1;
        }
    }
    let keyspace = &world.version.keyspaces[&KEYSPACE];
    let targets = Targets::under_buckets(keyspace, &world.shape);
    if parts > 1 {
        for level in 0..targets.bottom() {
            assert!(targets.excess_bytes(level) == 0, "{targets:?}");
        }
    }
    Cost {
        merges,
        rewritten: world.merged_bytes as f64 / world.flushed_bytes as f64,
    }
}

/// The paper's claim, tables II to VI, without data: at least four times fewer.
#[test]
fn parts_make_merges_at_least_four_times_fewer_and_rewrite_less() {
    for bytes in [1 << 30, 4 << 30, 12 << 30] {
        let whole = fill(1, &mut leveled(), bytes);
        let parts = fill(10, &mut ohdb(), bytes);
        println!(
            "{} MiB: {} merges and {:.2} bytes for each flushed, in parts {} and {:.2}",
            bytes >> 20,
            whole.merges,
            whole.rewritten,
            parts.merges,
            parts.rewritten
        );
        assert!(4 * parts.merges <= whole.merges);
        assert!(parts.rewritten <= whole.rewritten);
    }
}

/// Three jobs at a time that end in any order, parts of very different load.
#[test]
fn merges_that_run_side_by_side_come_to_rest_within_bounds() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut dice = Dice(seed);
        let parts = 2 + dice.below(15);
        let mut world = empty(parts, &[LARGE]);
        // Small, so that levels are used.
        world.shape.flush_bytes = M;
        world.shape.usual_flush_bytes = M;
        world.shape.first_level_bytes = 4 * M;
        let mut preset = ohdb();
        let mut running: Vec<Job> = Vec::new();
        let width = KEYS / parts;
        for _ in 0..3000 {
            let part = dice.below(parts).min(dice.below(parts));
            let (low, high) = (width * part, width * (part + 1) - 1);
            let start = low + dice.below(width / 2);
            let end = start + 2 + dice.below(high - start - 2);
            let range = KeyRange::inclusive(&key(start), &key(end));
            world.flush(part as u32, range, M / 2 + dice.below(M), 0.1);
            for _ in 0..dice.below(4) {
                if running.len() < 3
                    && let Some(job) = world.plan(&mut preset)
                {
                    world.start(&job);
                    running.push(job);
                } else if !running.is_empty() {
                    let at = dice.below(running.len() as u64) as usize;
                    world.finish(&running.swap_remove(at));
                }
            }
        }
        running.drain(..).for_each(|job| world.finish(&job));
        let mut left = 20_000;
        while let Some(job) = world.plan(&mut preset) {
            world.start(&job);
            world.finish(&job);
            left -= 1;
            assert!(left > 0, "does not come to rest");
        }
        let keyspace = &world.version.keyspaces[&KEYSPACE];
        let targets = Targets::under_buckets(keyspace, &world.shape);
        assert!(targets.base < BOTTOM, "{targets:?}");
        for level in 0..targets.bottom() {
            assert_eq!(targets.excess_bytes(level), 0, "{targets:?}");
        }
        for part in &keyspace.parts {
            assert!(part.newest.runs.len() < 2 * world.shape.newest_runs_merge);
        }
    }
}

fn pinned(text: &str, capacities: &[u64], newest: Option<u32>, levels: Option<u32>) -> World {
    let mut world = World::of(text, capacities);
    world.shape.pins = TierPins {
        newest: newest.map(TierId),
        levels: levels.map(TierId),
        log: None,
    };
    world
}

fn placed(world: &World, slot: Slot) -> u32 {
    let new = NewTable {
        keyspace: KEYSPACE,
        slot,
        range: None,
        start: None,
        size_bytes: 4 * M,
        parents: Vec::new(),
        written_bytes: [0; TIERS_MAX],
    };
    let layout = ByBucket.place(&world.view(), &new);
    assert_eq!(layout, ByLevel.place(&world.view(), &new));
    layout.data.0
}

#[test]
fn newest_levels_and_all_others_begin_on_the_tiers_named_for_them() {
    let level = Slot::Level(BOTTOM as u32);
    let at = |newest, levels| {
        let world = pinned("", &[LARGE, LARGE], newest, levels);
        (placed(&world, Slot::Newest(0)), placed(&world, level))
    };
    assert_eq!(at(None, None), (0, 0));
    assert_eq!(at(None, Some(1)), (0, 1));
    assert_eq!(at(Some(1), None), (1, 0));
    assert_eq!(at(Some(1), Some(0)), (1, 0));
    assert_eq!(at(Some(1), Some(1)), (1, 1));
}

#[test]
fn a_tier_that_is_full_passes_levels_on_to_the_next_whatever_they_begin_on() {
    let text = "L0.0: #9[a..z]{size=20M,tier=1} | L7: #1[a..z]{size=80M,tier=0}";
    let world = pinned(text, &[100 * M, LARGE], Some(1), None);
    let fill = Fill::of(&world.view());
    let quotas = fill.quotas(&[0; 16]);
    assert_eq!(quotas[0][..2], [0, 20 * M]);
    assert_eq!(quotas[BOTTOM + 1][..2], [80 * M, 0]);
    let world = pinned(text, &[50 * M, LARGE], Some(1), None);
    let quotas = Fill::of(&world.view()).quotas(&[0; 16]);
    assert_eq!(quotas[0][..2], [0, 20 * M]);
    assert!(quotas[BOTTOM + 1][0] <= 45 * M && quotas[BOTTOM + 1][1] >= 35 * M);
}

#[test]
fn nothing_is_moved_up_to_a_tier_above_the_one_it_begins_on() {
    let text = "L0.0: #9[a..z]{size=20M,tier=1} | L7: #1[a..z]{size=80M,tier=1}";
    let mut world = pinned(text, &[LARGE, LARGE], Some(1), Some(1));
    world.idle = false;
    assert!(world.plan(&mut ohdb()).is_none());
    world.shape.pins = TierPins::default();
    assert!(matches!(world.plan(&mut ohdb()), Some(Job::Relocate(_))));
}

/// Where a store as in `text` is cut by a hundred keys, if so many parts are allowed.
fn cut(text: &str, slots: usize, change: impl Fn(&mut World)) -> Vec<String> {
    let mut world = World::of(text, &[LARGE]);
    world.shape.ranges.once = true;
    world.shape.ranges.slots = slots;
    world.memtables.insert((KEYSPACE, 0), PartLoad::default());
    change(&mut world);
    let keys = || (0..100).map(|n| format!("{n:02}"));
    let first = first_cuts(&world.view(), KEYSPACE, keys);
    let bounds = first.map_or_else(Vec::new, |first| first.cuts.bounds().to_vec());
    bounds
        .iter()
        .map(|b| b.escape_ascii().to_string())
        .collect()
}

#[test]
fn a_keyspace_is_cut_once_evenly_by_its_first_keys() {
    let nothing: [&str; 0] = [];
    assert_eq!(cut("", 4, |_| ()), ["25", "50", "75"]);
    assert_eq!(cut("", 1, |_| ()), nothing);
    assert_eq!(cut("", 4, |w| w.shape.ranges.prefix_bytes = 1).len(), 3);
    // Levels below know nothing of parts, a table of the newest level lies in one.
    assert_eq!(cut("L1: #1[a..b]", 2, |_| ()), ["50"]);
    assert_eq!(cut("L0.0: #1[a..b]", 2, |_| ()), nothing);
    // It has parts already.
    assert_eq!(cut("cuts m |", 4, |_| ()), nothing);
    // Cuts that move are another planner's.
    assert_eq!(cut("", 4, |w| w.shape.ranges.once = false), nothing);
    // Each part must have so many keys.
    let least = |least| cut("", 4, |w| w.shape.ranges.triggers.part_keys_min = least);
    assert_eq!([25, 26, 50, 51].map(|n| least(n).len()), [3, 2, 1, 0]);
    // A flush is about to name the part.
    let flushing = |w: &mut World| {
        let load = w.memtables.get_mut(&(KEYSPACE, 0));
        load.unwrap().flushing = true;
    };
    assert_eq!(cut("", 4, flushing), nothing);
}

#[test]
fn keys_are_only_asked_for_where_the_view_allows_cuts() {
    let mut world = World::of("cuts m |", &[LARGE]);
    world.shape.ranges.once = true;
    world.shape.ranges.slots = 4;
    let keys = || -> std::iter::Empty<Vec<u8>> { panic!("asked for keys") };
    assert!(first_cuts(&world.view(), KEYSPACE, keys).is_none());
}
