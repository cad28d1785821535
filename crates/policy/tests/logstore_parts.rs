//! The preset `logstore` with several parts: what their newest levels pass on lies side by side.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Dice, KEYS, KEYSPACE, M, World, key, line, logstore, numbered, two_tiers};
use thermocline_model::job::Job;
use thermocline_model::range::KeyRange;
use thermocline_model::version::{Run, Slot};
use thermocline_model::{check_version, picture};

const LARGE: u64 = 1 << 40;

/// A store with room for all on its fast tier.
fn world(text: &str) -> World {
    let mut world = two_tiers(World::of(text, &[LARGE, LARGE]));
    world.shape.staging.fast_share = 1.0;
    world.shape.newest_runs_merge = 2;
    world.idle = false;
    // Nothing comes, so no room is made for it.
    world.flushed_bytes_per_s = 0.0;
    world
}

/// Does the next job; what it was.
fn done(world: &mut World) -> String {
    let job = world.plan(&mut logstore());
    if let Some(job) = &job {
        world.start(job);
        world.finish(job);
    }
    line(job)
}

fn runs(world: &World, slot: Slot) -> &[Run] {
    let level = world.version.keyspaces[&KEYSPACE].level(slot);
    level.map_or(&[], |l| &l.runs)
}

fn first_runs(world: &World) -> usize {
    runs(world, Slot::Level(0)).len()
}

#[test]
fn parts_pass_runs_on_side_by_side_by_one_edit() {
    let mut world = world(
        "cuts g p | L0.0: #30[a..c] / #20[b..f] / #10[a..f] | L0.1: #31[g..k] / #21[h..o] | \
         L0.2: #32[q..z]",
    );
    assert_eq!(done(&mut world), "newest-deferred: [21, 10] into L1");
    assert_eq!(done(&mut world), "newest-deferred: [20] into L1");
    assert_eq!(done(&mut world), "rest", "no part has two runs");
    // Now each joins the oldest run above all it overlaps, whatever the others do.
    world.idle = true;
    assert_eq!(done(&mut world), "newest-deferred: [30] into L1");
    assert_eq!(done(&mut world), "newest-deferred: [31] into L1");
    assert_eq!(done(&mut world), "newest-deferred: [32] into L1");
    let picture = picture::print(&world.version.keyspaces[&KEYSPACE]);
    let first = "L1: #30[a..c] / #20[b..f] #31[g..k] / #10[a..f] #21[h..o] #32[q..z]";
    assert!(picture.contains(first), "{picture}");
    assert_eq!(world.merged_bytes, 0);
}

#[test]
fn a_run_that_a_job_has_waits_and_those_beside_it_do_not() {
    let mut world = world("cuts g | L0.0: #4[a..c] / #2[a..c] | L0.1: #5[h..i] / #3[h..i]");
    world.busy = runs(&world, Slot::Newest(1))[1]
        .tables
        .iter()
        .map(|t| t.id)
        .collect();
    assert_eq!(done(&mut world), "newest-deferred: [2] into L1");
}

/// Whatever the order of flushes: L1 has as many runs as the part that passed on most, and as many
/// edits were made for it.
#[test]
fn l1_has_as_many_runs_as_one_part_and_newer_above_older() {
    const PARTS: u64 = 10;
    let width = KEYS / PARTS;
    let cuts: Vec<String> = (1..PARTS)
        .map(|p| String::from_utf8(key(width * p)).unwrap())
        .collect();
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let mut world = world(&numbered(&format!("cuts {}", cuts.join(" "))));
        let mut flushed = [0; PARTS as usize];
        for _ in 0..100 {
            // Some parts get more than others.
            let part = dice.below(PARTS).min(dice.below(PARTS));
            let range = KeyRange::inclusive(&key(width * part), &key(width * (part + 1) - 1));
            world.flush(part as u32, range, M, 0.0);
            flushed[part as usize] += 1;
            if dice.below(3) > 0 {
                done(&mut world);
            }
        }
        world.idle = true;
        let before = first_runs(&world);
        let mut edits = 0;
        while done(&mut world) != "rest" {
            edits += 1;
        }
        check_version(&world.version).unwrap();
        let most = *flushed.iter().max().unwrap();
        assert_eq!(first_runs(&world), most, "seed {seed}: {flushed:?}");
        assert!(
            edits <= 3 * most,
            "seed {seed}: {edits} edits beside {before} runs"
        );
        for run in runs(&world, Slot::Level(0)).windows(2) {
            for newer in &run[0].tables {
                for older in run[1].overlapping(&newer.range) {
                    assert!(newer.seq_min > older.seq_max, "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn parts_that_rest_together_take_one_edit_for_each_rank() {
    let mut world = world("cuts g p | L1: #1[a..z]");
    for round in 0..3 {
        for (part, low, high) in [(0, "a", "f"), (1, "g", "o"), (2, "p", "z")] {
            let range = KeyRange::inclusive(low.as_bytes(), high.as_bytes());
            world.flush(part, range, M, 0.0);
        }
        assert_eq!(first_runs(&world), 1, "round {round}");
    }
    world.idle = true;
    for rank in 1..=3 {
        let Some(job @ Job::Merge(merge)) = &world.plan(&mut logstore()) else {
            panic!("rank {rank}");
        };
        assert_eq!((merge.inputs.len(), merge.rewrite), (3, false));
        world.start(job);
        world.finish(job);
        assert_eq!(first_runs(&world), 1 + rank);
    }
}
