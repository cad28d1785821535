//! The same answers under every preset and option set; see
//! `thermocline_sim::harness::metamorphic`.
//!
//! `THERMOCLINE_SEED` sets the first seed, `THERMOCLINE_COUNT` how many.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::ops::Range;

use thermocline_sim::Tally;
use thermocline_sim::harness::metamorphic;

fn seeds(first: u64, count: u64) -> Range<u64> {
    let from = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let first = from("THERMOCLINE_SEED").unwrap_or(first);
    first..first + from("THERMOCLINE_COUNT").unwrap_or(count)
}

#[test]
fn metamorphic_answers_are_the_same_under_every_option_set() {
    let mut tally = Tally::default();
    let seeds = seeds(0, 100);
    println!("seeds {seeds:?}");
    for seed in seeds {
        metamorphic::run(seed, &mut tally);
    }
    println!("{tally}");
}

#[test]
fn metamorphic_with_threads_answers_are_the_same_on_a_real_disk() {
    let mut tally = Tally::default();
    let directory = tempfile::tempdir().unwrap();
    let seeds = seeds(0, 20);
    println!("seeds {seeds:?}");
    for seed in seeds {
        metamorphic::run_with_threads(seed, directory.path(), &mut tally);
    }
    println!("{tally}");
}
