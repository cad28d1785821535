//! How large each level should be.
//!
//! The last level holds almost everything, and its size is what it is. The levels above are sized
//! from it, upwards, each `level_ratio` times smaller, until one is no larger than about
//! `first_level_bytes`: the *base*, into which the newest levels are merged. About: up to twice as
//! large. A level above it would be a fifth of `first_level_bytes` or less, which the newest runs
//! alone can hold, so that it would cost a rewrite of the base for every time it fills, and save
//! none. So the levels above the last hold about `1 / (level_ratio - 1)` of what the last holds,
//! however full the store is, which bounds the space that stale entries take (1.11 at a ratio of
//! 10; while memtables are lent memory levels may wait until they are up to twice as large, see
//! [`super::leveled`]). Sizing downwards from a fixed first level would let a freshly begun last
//! level hold less than the one above it.
//!
//! For this the last level has a fixed place, [`BOTTOM`]: a young store merges
//! straight into it, and further levels come into use above it as it grows.
//! A base in use stays in use until the last level has shrunk to half of what
//! called for it, so that a size that wavers does not move tables to and fro.

use thermocline_model::version::Keyspace;
use thermocline_model::view::ShapeOptions;

use crate::plan::parts::are_by_writes;

/// Index of the last level: L7. Seven levels at a ratio of 10 and a first
/// level of 256 MiB reach 256 TiB.
pub const BOTTOM: usize = 6;

/// How many times `first_level_bytes` the base may have.
const BASE_SLACK: u64 = 2;

/// Flushes' worth of memory that one run of every part holds: parts that fill evenly
/// are flushed one after the other, the fullest one when half of the memory is taken, and that
/// has twice the average.
const MEMORY_FLUSHES: u64 = 4;

/// Bytes of a keyspace's levels, and what they should be.
#[derive(Clone, PartialEq, Debug)]
pub struct Targets {
    /// Index of the level that newest levels are merged into.
    pub base: usize,
    /// Bytes really there, by level; at least to the last one.
    pub bytes: Vec<u64>,
    /// Bytes that each level may have before it is merged down; 0 above the
    /// base, no limit at the last.
    pub target_bytes: Vec<u64>,
}

impl Targets {
    /// For `keyspace`.
    #[must_use]
    pub fn of(keyspace: &Keyspace, shape: &ShapeOptions) -> Targets {
        Targets::above(keyspace, shape, shape.first_level_bytes)
    }

    /// For `keyspace` where the newest levels of its parts are merged each by itself:
    /// together they are the level above the base, which so may have up to
    /// `level_ratio` times what they have when they are full.
    #[must_use]
    pub fn under_buckets(keyspace: &Keyspace, shape: &ShapeOptions) -> Targets {
        let mut first = shape.first_level_bytes;
        if keyspace.parts.len() > 1 {
            let full = (shape.newest_runs_merge as u64).saturating_mul(MEMORY_FLUSHES)
                * shape.usual_flush_bytes;
            first = first.max(full.saturating_mul(shape.level_ratio) / BASE_SLACK);
        }
        Targets::above(keyspace, shape, first)
    }

    /// As [`Targets::under_buckets`] where parts are merged each by itself with presets that
    /// do not always do so, else as [`Targets::of`].
    #[must_use]
    pub fn by_parts(keyspace: &Keyspace, shape: &ShapeOptions) -> Targets {
        match are_by_writes(keyspace) {
            true => Targets::under_buckets(keyspace, shape),
            false => Targets::of(keyspace, shape),
        }
    }

    fn above(keyspace: &Keyspace, shape: &ShapeOptions, first_level_bytes: u64) -> Targets {
        let count = keyspace.levels.len().max(BOTTOM + 1);
        let mut bytes: Vec<u64> = keyspace.levels.iter().map(|l| l.size_bytes()).collect();
        bytes.resize(count, 0);
        let first = first_level_bytes.max(1);
        let ratio = shape.level_ratio.max(2);
        let mut target_bytes = vec![0; count];
        let mut base = count - 1;
        let mut target = bytes[base].max(first);
        target_bytes[base] = u64::MAX;
        while base > 0 {
            let above = target / ratio;
            // A level smaller than one table would only pass tables on.
            let useful = target > first.saturating_mul(BASE_SLACK) && above >= shape.table_bytes;
            let in_use = bytes[base - 1] > 0 && target > first.saturating_mul(BASE_SLACK) / 2;
            let in_use = in_use && above >= shape.table_bytes / 2;
            if !(useful || in_use) {
                break;
            }
            target = above;
            base -= 1;
            target_bytes[base] = target;
        }
        Targets {
            base,
            bytes,
            target_bytes,
        }
    }

    /// Index of the last level.
    #[must_use]
    pub fn bottom(&self) -> usize {
        self.bytes.len() - 1
    }

    /// How urgently the level should be merged down: 1 or less is not at all.
    /// `busy_bytes` of it are on their way already.
    #[must_use]
    pub fn score(&self, level: usize, busy_bytes: u64, shape: &ShapeOptions) -> f64 {
        let bytes = self.bytes[level].saturating_sub(busy_bytes) as f64;
        if bytes == 0.0 || level == self.bottom() {
            0.0
        } else if level < self.base {
            // No longer in use: emptied, but nothing else waits for it.
            1.0 + bytes / shape.first_level_bytes.max(1) as f64
        } else {
            bytes / self.target_bytes[level].max(1) as f64
        }
    }

    /// Bytes above the target, which merges have yet to move down.
    #[must_use]
    pub fn excess_bytes(&self, level: usize) -> u64 {
        self.bytes[level].saturating_sub(self.target_bytes[level])
    }
}
