//! What merges cost where a level lies, counted as reads.
//!
//! Mutant gives the fast tier to what is read most for its size, as that saves those who read most time. While writers
//! wait for merges, what these read and write keeps clients waiting as reads do: a level that is rewritten every few seconds
//! on a slow tier holds up all writers, however seldom it is read. So each MiB of a level counts as read as
//! often as would cost clients the same time:
//!
//! ```text
//! times that it is rewritten in a second
//!     x by how much longer the slowest tier takes to read and to write it than the fastest
//!     x writers that wait
//!     / by how much longer it takes for one read
//! ```
//!
//! A merge rewrites what lies below what it brings down. So a level is rewritten as often as the one above it fills, by what is
//! flushed in a second: at most, as on the way entries fall away; and no more often than those above. The newest levels are
//! written and read as often as the first below them. Where no writer waits, or nobody measures what is flushed, rewriting
//! costs nobody anything.

use thermocline_model::view::View;

use crate::MIB;
use crate::cost::{Devices, Transfers};
use crate::place::fill::{DEPTHS, Fill};

/// Reads, in blocks per second and MiB, that rewriting counts as, by depth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rewriting([f64; DEPTHS]);

impl Rewriting {
    /// Of what `view` shows; `fill` is what it holds.
    #[must_use]
    pub fn of(view: &View<'_>, fill: &Fill) -> Rewriting {
        let waiting = view.waits.writers_waiting(&view.shape.ranges.part_triggers);
        let flushed = view.flushed_bytes_per_s;
        let counts = view.shape.staging.on.rewritten && waiting > 0.0 && flushed.is_finite();
        if !counts {
            return Rewriting([0.0; DEPTHS]);
        }
        let filled = |depth: usize| fill.data[depth].iter().sum::<u64>();
        let runs = view.shape.newest_runs_merge as u64;
        let mut above = filled(0).max(view.shape.flush_bytes.saturating_mul(runs));
        let per_rewrite = waiting * reads_for_one_rewrite(view);
        let mut reads = [0.0; DEPTHS];
        for (depth, reads) in reads.iter_mut().enumerate() {
            *reads = per_rewrite * flushed / above.max(1) as f64;
            above = above.max(filled(depth));
        }
        Rewriting(reads)
    }

    /// What it counts as at a depth.
    #[must_use]
    pub fn reads(&self, depth: usize) -> f64 {
        self.0[depth.min(DEPTHS - 1)]
    }

    /// Whether it counts anywhere.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.0.iter().any(|reads| *reads > 0.0)
    }
}

/// How many reads of a block save as much on the fastest tier, for the slowest, as rewriting a MiB does.
fn reads_for_one_rewrite(view: &View<'_>) -> f64 {
    let devices = Devices::of(view);
    let last = devices.tiers().saturating_sub(1);
    let rewrite_s = |tier| Transfers::of_rewrite(tier, MIB as u64).seconds(&devices, tier);
    let read_s = |tier| devices.read_us(tier) / 1e6;
    let reads = (rewrite_s(last) - rewrite_s(0)) / (read_s(last) - read_s(0));
    // Of one tier, or of two of which the slower one reads faster.
    if reads.is_finite() {
        reads.max(0.0)
    } else {
        0.0
    }
}
