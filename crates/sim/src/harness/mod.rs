//! The kinds of proof, one a file. Each takes a seed, runs, counts what it
//! did, and panics with the seed when the store breaks a promise, as a test
//! does.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub mod corruption;
pub mod crash;
pub mod decode;
pub mod faults;
pub mod history;
pub mod metamorphic;
pub mod process;
pub mod workload;

use crate::Tally;

/// A kind of proof that the prover can run.
#[derive(Clone, Copy, Debug)]
pub struct Harness {
    /// Its name, for the command line.
    pub name: &'static str,
    /// What it shows, in a sentence.
    pub about: &'static str,
    /// How often it is drawn, beside the others.
    pub weight: u64,
    /// One run. Panics when a promise is broken.
    pub run: fn(seed: u64, tally: &mut Tally),
}

/// All kinds.
pub const ALL: &[Harness] = &[
    Harness {
        name: "crash",
        about: "random operations, crashes at random calls and in recovery, against the oracle",
        weight: 4,
        run: crash::run,
    },
    Harness {
        name: "faults",
        about: "fixed workloads with errors, lies, full devices and crashes at drawn calls",
        weight: 4,
        run: faults::run,
    },
    Harness {
        name: "corruption",
        about: "drawn damage to small stores: named, or the right answer; repairs that tell the truth",
        weight: 4,
        run: corruption::run,
    },
    Harness {
        name: "decode",
        about: "garbled files, edits and options to every decoder, with checksums put right",
        weight: 2,
        run: decode::run,
    },
    Harness {
        name: "metamorphic",
        about: "one sequence of operations under drawn options and every preset: the same answers",
        weight: 8,
        run: metamorphic::run,
    },
    Harness {
        name: "process",
        about: "real processes, killed and stopped while they work on a real store",
        weight: 1,
        run: process::run,
    },
];

/// `count` seeds from `first` on, or those that `THERMOCLINE_SEED` and
/// `THERMOCLINE_COUNT` say.
///
/// # Panics
/// When a variable is no number.
#[must_use]
pub fn seeds(first: u64, count: u64) -> Range<u64> {
    let from = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let first = from("THERMOCLINE_SEED").unwrap_or(first);
    first..first + from("THERMOCLINE_COUNT").unwrap_or(count)
}

/// Runs these [`seeds`], and prints what was done.
///
/// # Panics
/// As `run`.
pub fn run_seeds(first: u64, count: u64, run: fn(u64, &mut Tally)) {
    let seeds = seeds(first, count);
    let mut tally = Tally::default();
    println!("seeds {seeds:?}");
    for seed in seeds {
        run(seed, &mut tally);
    }
    println!("{tally}");
}

/// Names the seed in front of whatever `run` panics with, and behind it the
/// command that replays it: the test is given as file and name.
fn seeded(test: (&str, &str), seed: u64, run: impl FnOnce()) {
    let Err(reason) = catch_unwind(AssertUnwindSafe(run)) else {
        return;
    };
    let text = reason.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| reason.downcast_ref::<&str>().copied());
    let (file, name) = test;
    panic!(
        "seed {seed}: {}\nreplay: THERMOCLINE_SEED={seed} THERMOCLINE_COUNT=1 \
         cargo test -p thermocline-sim --test {file} {name}",
        text.unwrap_or("a panic without words"),
    );
}
