//! The kinds of proof, one a file. Each takes a seed, runs, and panics with the
//! seed when the store breaks a promise, as a test does.

use std::panic::{AssertUnwindSafe, catch_unwind};

pub mod crash;
pub mod faults;
pub mod metamorphic;

/// Names the kind of proof, the seed and the command that replays it in front
/// of whatever `run` panics with.
fn seeded(test: &str, seed: u64, run: impl FnOnce()) {
    let Err(reason) = catch_unwind(AssertUnwindSafe(run)) else {
        return;
    };
    let text = reason.downcast_ref::<String>().cloned();
    let text = text.or_else(|| reason.downcast_ref::<&str>().map(|t| (*t).to_string()));
    panic!(
        "seed {seed}: {}\nreplay: THERMOCLINE_SEED={seed} THERMOCLINE_COUNT=1 \
         cargo test -p thermocline-sim --test {} {test}",
        text.unwrap_or_default(),
        test.split('_').next().unwrap_or(test),
    );
}
