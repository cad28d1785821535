//! The kinds of proof, one a file. Each takes a seed, runs, and panics with the
//! seed when the store breaks a promise, as a test does.

use std::panic::{AssertUnwindSafe, catch_unwind};

pub mod crash;
pub mod faults;
pub mod metamorphic;

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
