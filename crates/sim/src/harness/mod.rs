//! The kinds of proof, one a file. Each takes a seed, runs, counts what it
//! did, and panics with the seed when the store breaks a promise, as a test
//! does.

pub mod crash;
pub mod faults;
pub mod history;
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
        weight: 1,
        run: crash::run,
    },
    Harness {
        name: "faults",
        about: "fixed workloads with errors, lies, full devices and crashes at drawn calls",
        weight: 1,
        run: faults::run,
    },
];
