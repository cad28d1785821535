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
    let total = Mutex::new((Tally::default(), [0; 4]));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < end {
                    let mut tally = Tally::default();
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let worked = lives(program(), seed, 10, &mut tally);
                    let mut total = total.lock().unwrap();
                    total.0.add(&tally);
                    total.1[0] += worked.flushes;
                    total.1[1] += worked.merges;
                    total.1[2] += worked.relocations;
                    total.1[3] += worked.checkpoints;
                }
            });
        }
    });
    let stores = next.into_inner() - 1;
    let (tally, [flushes, merges, relocations, checkpoints]) = total.into_inner().unwrap();
    println!(
        "{stores} stores in {seconds} s: {tally}; the processes did {flushes} flushes, {merges} merges, \
         {relocations} relocations; {checkpoints} checkpoints compared"
    );
    // Work that a kill can interrupt was there to be interrupted.
    assert!(flushes > 0 && merges > 0 && relocations > 0);
    assert!(tally.crashes >= 10);
}
