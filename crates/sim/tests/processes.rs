//! Real processes; see `thermocline_sim::harness::process`.
//!
//! `THERMOCLINE_PROCESS_SECONDS` says for how long workers are killed; 6 if it
//! is not set.

use std::path::Path;
use std::time::{Duration, Instant};

use thermocline_sim::Tally;
use thermocline_sim::harness::process::lives;

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_thermocline-sim"))
}

#[test]
fn a_killed_process_loses_nothing_acknowledged_and_leaves_nothing_by_half() {
    let seconds = std::env::var("THERMOCLINE_PROCESS_SECONDS");
    let seconds = seconds.ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tally = Tally::default();
    let mut seed = 1;
    while Instant::now() < end {
        lives(program(), seed, 10, &mut tally);
        seed += 1;
    }
    println!("{} stores in {seconds} s: {tally}", seed - 1);
    assert!(tally.crashes >= 10);
}
