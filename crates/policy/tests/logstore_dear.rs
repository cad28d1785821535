//! The preset `logstore` above a last level that is several times as large as the fast levels,
//! under writes: what goes down is dear there, and the more so the less there is of it. Found where
//! keys were written evenly with a sixth of the data fast: 18,420 writes a second, of which
//! `leveled` made 29,403.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use common::{M, World, line, logstore, numbered, two_tiers};
use thermocline_model::job::{Job, Merge};

const LARGE: u64 = 1 << 40;

/// Ten tables of 4 MiB, each over one of so many MiB, and `above` them.
fn even(above: &str, below_mib: u64) -> World {
    let tables = |first: u64, size: &str| {
        let table = |at: u64| {
            let start = 100 * (at + 1);
            format!("#{}[{start}..{}]{size}", first + at, start + 90)
        };
        (0..10).map(table).collect::<Vec<_>>().join(" ")
    };
    let upper = tables(1, "{size=4M}");
    let lower = tables(11, &format!("{{size={below_mib}M,tier=1}}"));
    let text = format!("{above}{upper} | L7: {lower}");
    let mut world = two_tiers(World::of(&numbered(&text), &[LARGE, LARGE]));
    world.idle = false;
    world.flushed_bytes_per_s = 20.0 * M as f64;
    world
}

fn merge(world: &World) -> Merge {
    match world.plan(&mut logstore()) {
        Some(Job::Merge(merge)) => merge,
        other => panic!("{}", line(other)),
    }
}

fn number(merge: &Merge, name: &str) -> Option<f64> {
    let numbers = &merge.reason.numbers;
    numbers.iter().find(|(n, _)| n == name).map(|(_, v)| *v)
}

/// Two fifths of the fast levels were wanted at once, for five bytes rewritten each, and while that
/// went on what was flushed had to have room.
#[test]
fn what_is_dear_goes_by_what_the_slow_device_does_meanwhile() {
    let mut world = even("L1: ", 20);
    // 31 of 40 MiB are too many. The paper's disk takes 0.32 s for each four of them.
    world.shape.staging.fast_share = 9.0 / 240.0;
    let dear = merge(&world);
    assert_eq!(number(&dear, "tables"), Some(4.0));
    let mut world = even("L1: ", 7);
    world.shape.staging.fast_share = 9.0 / 110.0;
    let cheap = merge(&world);
    assert_eq!(number(&cheap, "tables"), Some(8.0));
}

/// Tables went down without what had come to lie above them, since a fifth of all has to overlap
/// before L1 is put in order: each rewrote as much again for less.
#[test]
fn what_came_last_goes_down_with_what_is_dear() {
    let above = "L1: #30[100..1090]{size=3M} / ";
    let mut world = even(above, 20);
    world.shape.staging.fast_share = 8.0 / 243.0;
    let dear = merge(&world);
    assert_eq!(dear.reason.rule, "staging-space");
    let deeper = dear.deeper.as_ref().unwrap();
    assert!((16 * M..19 * M).contains(&deeper.bytes), "{deeper:?}");
    // Where less is rewritten for it, it waits until more overlaps.
    let mut world = even(above, 7);
    world.shape.staging.fast_share = 8.0 / 113.0;
    assert_eq!(merge(&world).reason.rule, "coldest");
}

/// Up to three flushes lay in the newest level while room was made, and none of their keys went
/// along.
#[test]
fn newest_runs_are_passed_on_when_room_is_to_be_made() {
    let above = "L0.0: #30[100..1090]{size=3M} / #31[100..1090]{size=3M} | L1: ";
    let mut world = even(above, 20);
    world.shape.newest_runs_merge = 4;
    world.shape.staging.fast_share = 1.0;
    assert_eq!(line(world.plan(&mut logstore())), "rest");
    world.shape.staging.fast_share = 8.0 / 246.0;
    let passed = line(world.plan(&mut logstore()));
    assert!(passed.starts_with("newest-deferred: "), "{passed}");
}
