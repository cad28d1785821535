//! Real processes; see `thermocline_sim::harness::process`.
//!
//! `THERMOCLINE_PROCESS_SECONDS` says for how long workers are killed; 6 if it
//! is not set.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
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
    let next = AtomicU64::new(1);
    let total = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < end {
                    let mut tally = Tally::default();
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    lives(program(), seed, 10, &mut tally);
                    total.lock().unwrap().add(&tally);
                }
            });
        }
    });
    let (stores, tally) = (next.into_inner() - 1, total.into_inner().unwrap());
    println!("{stores} stores in {seconds} s: {tally}");
    assert!(tally.crashes >= 10);
}
