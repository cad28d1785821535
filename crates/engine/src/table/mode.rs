//! How cursors read: for whom, and how many bytes in one go.

use super::Table;

/// Bytes of the first read of a scan that changes over to read-ahead, from devices on which a
/// request costs much beside what it transfers. Each further one is half as large again. Also the
/// least that a source of a merge reads ahead, however many there are.
pub(crate) const READ_AHEAD_BYTES_FIRST: usize = 32 << 10;

/// The same from devices on which a request costs little: two blocks.
const READ_AHEAD_BYTES_LEAST: usize = 8 << 10;

/// Bytes of the largest read of a scan.
pub(crate) const READ_AHEAD_BYTES_MAX: usize = 256 << 10;

/// Bytes of the largest read of a merge: with what a read past the page cache has beyond them, to
/// begin and end on whole pages, the 1.25 MiB that the kernel makes one request of, where it
/// does not do so of less.
const READ_AHEAD_BYTES_MERGE: usize = (1280 << 10) - (8 << 10);

/// Bytes that all sources of one merge may have read ahead together, unless there are so
/// many that the least of each is more.
pub(crate) const MERGE_READ_BYTES: usize = 2 << 20;

/// Of these, bytes for the sources that lie on slower tiers than others.
pub(crate) const MERGE_READ_SLOW_BYTES: usize = MERGE_READ_BYTES / 4 * 3;

/// Bytes that a read past the page cache has beyond those wanted, about, as it begins and ends on
/// whole pages.
const DIRECT_VAIN_BYTES: u64 = 4096;

/// Bytes of the largest read of a scan where the store's own threads read ahead. One such is in
/// memory, one under way, and one left for the next, so a cursor takes three times this, or three
/// blocks if those are larger.
pub(crate) const STREAM_BYTES_MAX: usize = 512 << 10;

/// How a cursor reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadMode {
    /// Whether blocks read from the device go into the cache.
    pub fill_cache: bool,
    /// Bytes to read in one go from the start; 0 to begin with single blocks.
    pub read_ahead_bytes: usize,
}

impl ReadMode {
    /// For a scan on behalf of a user.
    pub const SCAN: ReadMode = ReadMode {
        fill_cache: true,
        read_ahead_bytes: 0,
    };
    /// For a merge, which reads a table once from end to end.
    pub const MERGE: ReadMode = ReadMode {
        fill_cache: false,
        read_ahead_bytes: READ_AHEAD_BYTES_MERGE,
    };

    /// For each run of a merge. They share what they read ahead, as the buffers of one
    /// merge are bounded together. Where each request costs a seek, most is read by one:
    /// among 64 runs of a fast tier a slow level would else be read in requests of 32 KiB.
    /// Requests are fewest, for all runs of a kind together, if each gets as much as the
    /// root of its bytes: the sum of bytes / share is then least for a given sum of shares.
    pub(crate) fn merge_of(runs: &[MergeRun]) -> Vec<ReadMode> {
        let is_slow = |run: &&MergeRun| run.is_slow;
        let slow = runs.iter().filter(is_slow).count();
        let shares = match (slow, runs.len() - slow) {
            (0, _) | (_, 0) => [MERGE_READ_BYTES; 2],
            _ => [
                MERGE_READ_BYTES - MERGE_READ_SLOW_BYTES,
                MERGE_READ_SLOW_BYTES,
            ],
        };
        let kinds = [false, true].map(|kind| {
            let same = runs.iter().filter(|run| run.is_slow == kind);
            let roots: f64 = same.clone().map(MergeRun::root).sum();
            let least = same.count() * READ_AHEAD_BYTES_FIRST;
            let rest = shares[usize::from(kind)].saturating_sub(least);
            rest as f64 / roots.max(1.0)
        });
        let mode = |run: &MergeRun| {
            let more = (kinds[usize::from(run.is_slow)] * run.root()) as usize;
            ReadMode {
                read_ahead_bytes: (READ_AHEAD_BYTES_FIRST + more).min(READ_AHEAD_BYTES_MERGE),
                ..ReadMode::MERGE
            }
        };
        runs.iter().map(mode).collect()
    }
}

/// What a merge reads of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeRun {
    /// Whether it lies on a slower tier than others do.
    pub is_slow: bool,
    /// Bytes.
    pub bytes: u64,
}

impl MergeRun {
    /// The root of its bytes, at least 1.
    fn root(&self) -> f64 {
        (self.bytes as f64).sqrt().max(1.0)
    }
}

impl Table {
    /// Bytes of the first read of several blocks: what the device transfers in the time of a
    /// request, or, where the store's own threads read (`streams`), as large as the next one if the
    /// scan goes as far again as this.
    pub(super) fn first_bytes(&self, mode: ReadMode, streams: bool) -> usize {
        let bytes = match streams {
            true => self.bytes_for_one_direct_read().saturating_mul(2),
            false => self.bytes_for_one_read(),
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        bytes
            .clamp(READ_AHEAD_BYTES_LEAST, READ_AHEAD_BYTES_FIRST)
            .max(mode.read_ahead_bytes)
    }

    /// Bytes of the next read of a scan where the store's own threads read, if it has read
    /// `passed_bytes` since it was positioned, the last ones `last_bytes` at once. It is taken to
    /// go as far again: reads of s bytes then cost as much as `passed_bytes` / s requests and the
    /// half of s that is read in vain at the end, which is least for the root of both.
    pub(super) fn streamed_bytes(&self, passed_bytes: usize, last_bytes: usize) -> usize {
        let for_one_read = self.bytes_for_one_direct_read() as f64;
        let root = (2.0 * for_one_read * passed_bytes as f64).sqrt() as usize;
        let grown = root.min(2 * last_bytes).max(last_bytes);
        grown.min(STREAM_BYTES_MAX)
    }

    fn bytes_for_one_direct_read(&self) -> u64 {
        self.bytes_for_one_read().saturating_add(DIRECT_VAIN_BYTES)
    }
}
