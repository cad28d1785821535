//! Crash safety on a simulated disk; see `thermocline_sim::harness::crash`.
//!
//! `THERMOCLINE_SEED` sets the first seed, `THERMOCLINE_COUNT` how many.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::ops::Range;

use thermocline_sim::Tally;
use thermocline_sim::harness::crash;

fn seeds(first: u64, count: u64) -> Range<u64> {
    let from = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let first = from("THERMOCLINE_SEED").unwrap_or(first);
    first..first + from("THERMOCLINE_COUNT").unwrap_or(count)
}

fn crash_all(seeds: Range<u64>) {
    let mut tally = Tally::default();
    println!("seeds {seeds:?}");
    for seed in seeds {
        crash::run(seed, &mut tally);
    }
    println!("{tally}");
}

#[test]
fn crash_survivors_are_a_prefix_with_everything_acknowledged() {
    crash_all(seeds(0, 400));
}

#[test]
fn crash_survivors_are_a_prefix_under_other_seeds() {
    crash_all(seeds(1_000_000, 400));
}
