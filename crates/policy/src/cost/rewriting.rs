//! What merges cost where a level lies, counted as reads.
//!
//! Mutant gives the fast tier to what is read most for its size, as that saves those who read most
//! time. While writers wait for merges, what these read and write keeps clients waiting as reads
//! do: a level that is rewritten every few seconds on a slow tier holds up all writers, however
//! seldom it is read. So each MiB of a level counts as read as often as would cost clients the same
//! time:
//!
//! ```text
//! times that it is rewritten in a second
//!     x by how much longer the slowest tier takes to read and to write it than the fastest
//!     x writers that wait
//!     / by how much longer it takes for one read
//!     x reads that temperatures tell of / reads now
//! ```
//!
//! Temperatures are means of a quarter of an hour, and do not cool while nobody reads: then nobody
//! would wait for what is taken from the fast tier either.
//!
//! A merge rewrites what lies below what it brings down. So a level is rewritten as often as the
//! one above it fills, by what is flushed in a second: at most, as on the way entries fall away;
//! and no more often than those above. The newest levels are written and read as often as the first
//! below them. Where no writer waits, or nobody measures what is flushed, rewriting costs nobody
//! anything. Where nothing was ever read it need not count: tables that are as hot lie by level as
//! it is.

use thermocline_model::view::View;

use crate::MIB;
use crate::cost::{Devices, Transfers};
use crate::place::fill::{DEPTHS, Fill};

/// How many times as much as now was read, at most, by what temperatures remember.
const REMEMBERED_MAX: f64 = 100.0;

/// Reads, in blocks per second and MiB, that rewriting counts as, by depth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rewriting([f64; DEPTHS]);

impl Rewriting {
    /// Of what `view` shows; `fill` is what it holds, and all tables are read so often by their
    /// temperatures, in blocks per second.
    #[must_use]
    pub fn of(view: &View<'_>, fill: &Fill, block_reads_per_s: f64) -> Rewriting {
        if !Rewriting::may_count(view) || block_reads_per_s <= 0.0 {
            return Rewriting([0.0; DEPTHS]);
        }
        let flushed = view.flushed_bytes_per_s;
        let remembered = match view.block_reads_per_s {
            f64::INFINITY => 1.0,
            now => (block_reads_per_s / now.max(f64::MIN_POSITIVE)).min(REMEMBERED_MAX),
        };
        let filled = |depth: usize| fill.data[depth].iter().sum::<u64>();
        let runs = view.shape.newest_runs_merge as u64;
        let mut above = filled(0).max(view.shape.flush_bytes.saturating_mul(runs));
        let per_rewrite = view.waits.writers * reads_for_one_rewrite(view) * remembered;
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

    /// Whether it may count anywhere: a writer waits, and what is flushed is known.
    #[must_use]
    pub fn may_count(view: &View<'_>) -> bool {
        let flushed = view.flushed_bytes_per_s;
        let waits = view.waits.writers > 0.0 && flushed > 0.0 && flushed.is_finite();
        waits && view.shape.staging.on.rewritten
    }
}

/// How many reads of a block save as much on the fastest tier, for the slowest, as rewriting a MiB
/// does.
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
