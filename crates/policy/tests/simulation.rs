//! The leveled preset under a stream of flushes, without data: jobs are done
//! on versions alone, up to three at a time, finishing in any order. Every edit
//! passes the guard of the one door (`World::commit`).

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Instant;

use common::{Dice, KEYS, KEYSPACE, M, World, empty, key, leveled};
use thermocline_model::range::KeyRange;
use thermocline_model::{Job, Slot, check_version};
use thermocline_policy::place::Fill;
use thermocline_policy::plan::targets::Targets;

/// Jobs that run to the end without a flush, at most.
const JOBS_MAX: usize = 20_000;

struct Case {
    parts: u64,
    capacities: Vec<u64>,
    flushes: u64,
    jobs: usize,
    narrow: bool,
    deletes_share: f64,
    seed: u64,
}

fn run(case: &Case) -> World {
    println!("seed {}", case.seed);
    let mut dice = Dice(case.seed);
    let mut world = empty(case.parts, &case.capacities);
    let mut preset = leveled();
    let mut running: Vec<Job> = Vec::new();
    for _ in 0..case.flushes {
        let part = dice.below(case.parts);
        let width = KEYS / case.parts;
        let (low, high) = (width * part, width * (part + 1) - 1);
        let (start, end) = if case.narrow {
            let start = low + dice.below(width / 2);
            (start, start + 2 + dice.below(high - start - 2))
        } else {
            (low + dice.below(1000), high - dice.below(1000))
        };
        let range = KeyRange::inclusive(&key(start), &key(end));
        world.flush(
            part as u32,
            range,
            3 * M + dice.below(2 * M),
            case.deletes_share,
        );
        // Writers are slower than merges on the whole, but not at every moment.
        for _ in 0..dice.below(6) {
            step(&mut world, &mut preset, &mut running, case.jobs, &mut dice);
        }
    }
    let mut steps = 0;
    while step(&mut world, &mut preset, &mut running, case.jobs, &mut dice) {
        steps += 1;
        assert!(steps < JOBS_MAX, "does not come to rest");
    }
    assert!(running.is_empty() && world.busy.is_empty() && world.busy_outputs.is_empty());
    check_version(&world.version).unwrap();
    world
}

/// Starts a job if there is one and room for it, else finishes one. Says
/// whether anything was done.
fn step(
    world: &mut World,
    preset: &mut thermocline_policy::Preset,
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
    world.now_us += 120_000_000;
    if running.is_empty() {
        // What waited for its age is planned now, if anything is.
        return world.plan(preset).is_some();
    }
    let job = running.swap_remove(dice.below(running.len() as u64) as usize);
    world.finish(&job);
    true
}

fn levels_are_in_bounds(world: &World) {
    let keyspace = &world.version.keyspaces[&KEYSPACE];
    let targets = Targets::of(keyspace, &world.shape);
    for level in 0..targets.bottom() {
        assert!(
            targets.bytes[level] <= targets.target_bytes[level],
            "{targets:?}"
        );
    }
    for part in &keyspace.parts {
        assert!(part.newest.runs.len() < world.shape.newest_runs_merge);
    }
    let above: u64 = targets.bytes[..targets.bottom()].iter().sum();
    let share = above as f64 / targets.bytes[targets.bottom()].max(1) as f64;
    assert!(share < 0.13, "{share} of the last level lies above it");
}

fn tiers_are_in_bounds(world: &World) {
    let fill = Fill::of(&world.view());
    for tier in 0..fill.tiers - 1 {
        assert!(
            fill.used[tier] <= fill.limit[tier],
            "tier {tier} of {fill:?}"
        );
    }
}

fn written_share(world: &World) -> f64 {
    (world.flushed_bytes + world.merged_bytes) as f64 / world.flushed_bytes as f64
}

#[test]
fn levels_converge_and_write_amplification_is_bounded() {
    for (parts, jobs, narrow) in [
        (1, 1, false),
        (1, 3, true),
        (2, 3, false),
        (4, 3, false),
        (8, 3, true),
        (8, 1, false),
    ] {
        let world = run(&Case {
            parts,
            capacities: vec![1 << 40],
            flushes: 1000,
            jobs,
            narrow,
            deletes_share: 0.0,
            seed: 1 + parts,
        });
        levels_are_in_bounds(&world);
        let written = written_share(&world);
        println!("parts {parts} jobs {jobs} narrow {narrow}: write amplification {written:.2}");
        assert!(written < 16.0, "{written}");
    }
}

#[test]
fn tiers_fill_from_the_fast_one_and_nothing_goes_to_and_fro() {
    let kinds: [&[u64]; 4] = [
        &[1 << 40],
        &[400 * M, 1 << 40],
        &[100 * M, 500 * M, 1 << 40],
        &[60 * M, 200 * M, 800 * M, 1 << 40],
    ];
    for capacities in kinds {
        for (parts, jobs) in [(1, 1), (4, 3), (8, 3)] {
            let world = run(&Case {
                parts,
                capacities: capacities.to_vec(),
                flushes: 600,
                jobs,
                narrow: false,
                deletes_share: 0.0,
                seed: 40 + parts,
            });
            levels_are_in_bounds(&world);
            tiers_are_in_bounds(&world);
            let share = world.relocated_bytes as f64 / world.flushed_bytes as f64;
            println!(
                "tiers {} parts {parts} jobs {jobs}: relocated {share:.2} and written {:.2} of \
                 what was flushed; used {:?} MiB",
                capacities.len(),
                written_share(&world),
                world
                    .tiers
                    .iter()
                    .map(|t| t.used_bytes / M)
                    .collect::<Vec<_>>()
            );
            assert!(share < 0.5, "{share}");
            let fill = Fill::of(&world.view());
            for tier in 0..fill.tiers - 1 {
                let limit = fill.limit[tier] as f64;
                assert!(
                    fill.used[tier] as f64 > 0.6 * limit,
                    "tier {tier} is not used: {fill:?}"
                );
            }
        }
    }
}

#[test]
fn a_store_at_rest_stays_at_rest_when_heat_changes() {
    let mut world = run(&Case {
        parts: 2,
        capacities: vec![200 * M, 1 << 40],
        flushes: 300,
        jobs: 1,
        narrow: false,
        deletes_share: 0.0,
        seed: 7,
    });
    let mut dice = Dice(8);
    let mut preset = leveled();
    for _ in 0..10 {
        let tables: Vec<_> = world.version.tables().map(|t| t.id).collect();
        for table in tables {
            world.heat.entry(table).or_default().probes = dice.below(1000);
        }
        assert_eq!(world.plan(&mut preset), None);
    }
}

#[test]
fn deletes_are_won_back_and_then_leave_peace() {
    let world = run(&Case {
        parts: 2,
        capacities: vec![1 << 40],
        flushes: 200,
        jobs: 2,
        narrow: true,
        deletes_share: 0.6,
        seed: 11,
    });
    let keyspace = &world.version.keyspaces[&KEYSPACE];
    for (slot, _, table) in keyspace.tables() {
        let newest = matches!(slot, Slot::Newest(_));
        assert!(
            newest || table.deletes * 4 <= table.entries,
            "{slot} {}",
            table.id
        );
    }
}

#[test]
fn planning_is_quick_with_two_thousand_tables() {
    let mut world = run(&Case {
        parts: 4,
        capacities: vec![2000 * M, 1 << 40],
        flushes: 2100,
        jobs: 1,
        narrow: false,
        deletes_share: 0.0,
        seed: 3,
    });
    world.heat.clear();
    let mut preset = leveled();
    let tables = world.version.tables().count();
    let view = world.view();
    let mut best_us = f64::MAX;
    for _ in 0..50 {
        let start = Instant::now();
        for planner in &mut preset.planners {
            assert_eq!(planner.plan(&view), None);
        }
        best_us = best_us.min(start.elapsed().as_secs_f64() * 1e6);
    }
    println!("{tables} tables: all planners in {best_us:.0} us");
    assert!(tables > 1500);
    if !cfg!(debug_assertions) {
        assert!(best_us < 200.0, "{best_us} us");
    }
}
