//! What the engine may hold in memory, and what it holds.
//!
//! Every kind of memory that grows with the data or the load has a bound that
//! follows from the options, and the bounds are written down here, once, as a
//! formula. `tests/memory.rs` holds the engine to it with an allocator that
//! counts. In the formula are bytes asked of the allocator and pages of memtables.
//! What an allocator adds, and does not give back to the system at once, is about as
//! much again as what is asked of it for blocks' books and for jobs. That is in the formula
//! too, so that it holds for the process and not for the requests alone. Memtables and
//! cached blocks lie in mappings of their own, of which no allocator keeps anything.
//!
//! Not in the formula, since the caller decides on it: batches while they are written, values and
//! iterators that the caller holds ([`Options::iterator_bytes_max`]), and what they keep alive; and
//! a job for each thread that asks for a compaction
//! ([`Db::compact_range`](crate::Db::compact_range)), beside those of the background. Nor are pages
//! of files, among them those of the mapped log: the system takes them back as it needs them.

use serde::{Deserialize, Serialize};
use thermocline_policy::pressure::patience_max;

use crate::job::{PIECE_BYTES, stretches_max};
use crate::options::{Options, Tier};
use crate::store::{SCRATCH_BYTES_MAX, WRITE_BUFFER_BYTES};
use crate::table::{
    MERGE_READ_BYTES, MERGE_READ_SLOW_BYTES, READ_AHEAD_BYTES_FIRST, READ_AHEAD_BYTES_MAX,
    STREAM_BYTES_MAX,
};

/// Memory by what it is for, in bytes.
///
/// ```
/// # use thermocline::{MemoryBytes, Options};
/// let memory: MemoryBytes = Options::at("/x").block_cache_bytes(0).memory_max(1);
/// assert_eq!(memory.block_cache, 0);
/// assert_eq!(memory.memtables, 64 << 20); // The default write buffer.
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryBytes {
    /// Memtables: those that take entries, those that wait for a flush, those that
    /// a flush still holds, and emptied ones kept for later.
    pub memtables: u64,
    /// The block cache, with its own books.
    pub block_cache: u64,
    /// Block lists and filters of tables.
    pub table_metadata: u64,
    /// Buffers of flushes, merges and relocations. As a use: the most that the
    /// jobs running now may take, and the stretches that merges are shared out into.
    pub jobs: u64,
    /// The lookup index.
    pub lookup_index: u64,
    /// Everything else: what is known of heat, the version, counters, the events of the last jobs,
    /// what large reads land in. As a use only the first of these, the rest is not measured.
    pub other: u64,
}

impl MemoryBytes {
    /// All of it.
    ///
    /// ```
    /// # use thermocline::MemoryBytes;
    /// let memory = MemoryBytes { memtables: 1, jobs: 2, ..MemoryBytes::default() };
    /// assert_eq!(memory.total(), 3);
    /// ```
    #[must_use]
    pub fn total(&self) -> u64 {
        let data = [self.memtables, self.block_cache, self.table_metadata];
        let books = [self.jobs, self.lookup_index, self.other];
        let all = data.into_iter().chain(books);
        all.fold(0, u64::saturating_add)
    }
}

/// Levels below the newest, as far as a merge or a scan meets them.
const LEVELS: u64 = 8;

/// Buffers of a cursor where the store's own threads read ahead: the one it decodes
/// from, the one under way, and the one that was left last.
const STREAM_BUFFERS: u64 = 3;

/// Compression contexts and other small things of a job.
const JOB_FIXED_BYTES: u64 = 2 << 20;

/// The bytes of a key, and the least bytes of an entry, that the metadata of a
/// table being written is reckoned with.
const KEY_BYTES: u64 = 64;

/// What a block is in a block list, beside its two keys.
const BLOCK_ENTRY_BYTES: u64 = 64;

/// How often the metadata of one table is in memory while it is written: grown by
/// doubling, then encoded, then read back.
const METADATA_COPIES: u64 = 5;

/// Of the memtables that a flush takes, the share that the filter of its tables may
/// need while it is made: 13 bits for an entry, which takes 52 bytes or more there.
const FLUSH_FILTER_SHARE: u64 = 32;

/// What a table that moves has in memory: a piece of it, and what is gathered before it is written.
const MOVE_BYTES: u64 = (PIECE_BYTES + WRITE_BUFFER_BYTES) as u64;

/// What a job that moves cuts holds for each key of its sample, beside the key: it sorts, weighs
/// and groups them.
const SAMPLE_KEY_BYTES: u64 = 192;

/// The least bytes of a memtable that an entry takes.
const ENTRY_BYTES_MIN: u64 = 52;

/// Memory of the process for the bytes that jobs ask for: their buffers come and go in
/// many threads, and an allocator keeps some of each.
const ALLOCATOR_COPIES: u64 = 2;

/// See [`MemoryBytes::other`]: the events, and a store of some thousand tables.
const OTHER_BYTES: u64 = 4 << 20;

/// The most memory that a memtable of this capacity takes, in bytes: writers that were let to it
/// before it was full, pages, and its filter.
pub(crate) fn memtable_bytes_max(capacity_bytes: u64) -> u64 {
    capacity_bytes.saturating_add(capacity_bytes / 8 + (256 << 10))
}

impl Options {
    /// The most memory that the engine holds with these options, in bytes, for the
    /// default keyspace with its cuts, or those that the preset makes. The sum of
    /// [`Options::memory_max`]`(parts)`.
    ///
    /// ```
    /// # use thermocline::Options;
    /// let small = Options::at("/x")
    ///     .write_buffer_bytes(8 << 20)
    ///     .block_cache_bytes(16 << 20)
    ///     .pinned_meta_bytes(8 << 20);
    /// assert!(small.memory_bytes_max() < 128 << 20);
    /// ```
    #[must_use]
    pub fn memory_bytes_max(&self) -> u64 {
        self.memory_max(self.parts_expected()).total()
    }

    /// The most memory that the engine holds with these options and `parts` parts in all keyspaces
    /// together, each duplicate of a part ([`Options::duplicates_max`]) counting as one more, by
    /// kind:
    ///
    /// - memtables: `write_buffer_bytes`, and what the block cache lends and then has less
    ///   ([`Options::write_buffer_grows`]; what is lent now is in
    ///   [`MemoryStats::max`](crate::MemoryStats::max)). With so many parts that their active
    ///   memtables alone take more than half of it: half of it, and for each part
    ///   an eighth more than `memtable_bytes`, and 256 KiB.
    /// - block cache: `block_cache_bytes`, and what memtables leave of theirs and then may not have
    ///   ([`Options::block_cache_grows`]; what each may hold now is in the same place).
    /// - table metadata: `pinned_meta_bytes`. Kept to at the end of every job, and
    ///   whenever a thread of the background finds nothing else to do.
    /// - jobs: for each job that may run at a time, what a merge reads ahead (1.5 MiB from slower
    ///   tiers, and beside it 512 KiB, or 32 KiB for each run when there are more than 16, and a
    ///   block for each run where blocks are larger than that; three times that where the store's
    ///   own threads read ahead), two blocks for each run, 1 MiB of write buffers, 2 MiB for
    ///   compression, and five times the metadata of one table, reckoned with keys of 64 bytes and
    ///   entries of no less; where cuts move no less than what a sample takes
    ///   ([`RecutTriggers`](crate::RecutTriggers): its bytes, and 192 for each of its keys); all
    ///   that twice, for the allocator. There are twice [`Options::newest_runs_stop`] runs and one
    ///   for each level, and where memtables may be lent more memory than twice their own, up to
    ///   three times. One job without background threads or with one of them;
    ///   with `n` of them (where no number is given, as many as the machine has processors:
    ///   [`Options::background_threads`]), a flush and `2n - 3` stretches of merges, twice as many
    ///   with `logstore` on several tiers, whose merges send intervals deeper. And where that is
    ///   more than what a merge reads ahead, a thirty-second of what memtables may have at most,
    ///   for the filter of a flush, and 1.5 MiB for a table that moves beside it.
    /// - lookup index: a sixteenth of `write_buffer_bytes`, unless it is off.
    /// - everything else: 4 MiB, and 8 MiB of huge pages that large reads land in, where a
    ///   tier has `direct_io`.
    ///
    /// It holds once a store is open for writing. While it opens, the log is read to its end before
    /// anything is flushed: what has no room is compacted to the latest version of each key, of
    /// which memory may hold twice what the log has, and what is still too much after that is
    /// flushed before [`Db::open`](crate::Db::open) returns. Only where no tier takes it, it stays
    /// until one does, and writers wait. A store that is open for reading only holds all that the
    /// log has of latest versions, if these take more.
    ///
    /// Larger keys and values add what a handful of them take. See the module
    /// for what is left out: memory that the caller holds on to.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// let max = options.memory_max(1);
    /// let db = Db::open(options)?;
    /// db.put(b"key", b"value")?;
    /// assert!(db.stats().memory.used.memtables <= max.memtables);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn memory_max(&self, parts: u64) -> MemoryBytes {
        let memtable = self.memtable_bytes_max(parts.min(self.parts_expected()));
        let half = self.write_buffer_bytes / 2;
        let jobs = self.jobs_bytes_max(self.threads());
        MemoryBytes {
            memtables: self
                .write_buffer_bytes
                .max(half.saturating_add(parts.saturating_mul(memtable))),
            block_cache: self.block_cache_bytes,
            table_metadata: self.pinned_meta_bytes,
            jobs: jobs.saturating_add(self.flush_filter_bytes()),
            lookup_index: self.lookup_bytes(),
            other: OTHER_BYTES + self.scratch_bytes(),
        }
    }

    /// The most memory that one open iterator takes, in bytes: for each run that there may be,
    /// those included that are handed down when cuts move, 256 KiB read ahead and two blocks; three
    /// times 512 KiB, or three blocks more if those are larger, where the store's own threads read
    /// ahead. It also keeps alive the memtables that it was made over.
    ///
    /// ```
    /// # use thermocline::Options;
    /// assert!(Options::at("/x").iterator_bytes_max() < 48 << 20);
    /// ```
    #[must_use]
    pub fn iterator_bytes_max(&self) -> u64 {
        let ahead = match self.reader_count() {
            0 => READ_AHEAD_BYTES_MAX as u64,
            _ => STREAM_BUFFERS * self.block_bytes_max().max(STREAM_BYTES_MAX as u64),
        };
        let handed_down = match self.moves_cuts() {
            true => self.newest_runs_max(),
            false => 0,
        };
        let runs = self.runs_max().saturating_add(handed_down);
        runs.saturating_mul(ahead + 2 * self.block_bytes_max())
    }

    /// The most memory that a memtable takes where so many that take writes share the write buffer,
    /// in bytes.
    pub(crate) fn memtable_bytes_max(&self, takers: u64) -> u64 {
        memtable_bytes_max(self.memtable_capacity(takers) as u64)
    }

    /// What large reads past the page cache land in, for all stores of the process.
    fn scratch_bytes(&self) -> u64 {
        match self.tiers.iter().any(Tier::is_direct) {
            true => SCRATCH_BYTES_MAX,
            false => 0,
        }
    }

    /// Bytes by which memtables may grow before the memory is looked at again.
    pub(crate) fn memory_step_bytes(&self) -> u64 {
        self.write_buffer_bytes / 32
    }

    /// The most memory that one job takes, in bytes, but for
    /// [`Options::flush_filter_bytes`].
    pub(crate) fn job_bytes_max(&self) -> u64 {
        let buffers = 2 * WRITE_BUFFER_BYTES as u64;
        let block = self.tiers.iter().map(|t| t.block_size() as u64).min();
        let table = self.table_size();
        let blocks = table / block.unwrap_or(4096).max(1);
        let list = blocks.saturating_mul(BLOCK_ENTRY_BYTES + 2 * KEY_BYTES);
        let bits = u64::from(self.filter_bits_per_key);
        let filters = (table / KEY_BYTES).saturating_mul(bits) / 8;
        let metadata = list.saturating_add(filters).saturating_mul(METADATA_COPIES);
        let merge = self.merge_read_bytes().saturating_add(buffers);
        let merge = merge.saturating_add(metadata);
        JOB_FIXED_BYTES.saturating_add(merge.max(self.sample_bytes()))
    }

    /// What a job that moves cuts takes for its sample, in bytes: of what memory has, so many keys
    /// at most.
    fn sample_bytes(&self) -> u64 {
        if !self.moves_cuts() {
            return 0;
        }
        let triggers = &self.recut_triggers;
        let memtables = self
            .write_buffer_bytes
            .saturating_add(self.lendable_bytes());
        let keys = (triggers.sample_keys_max as u64).min(memtables / ENTRY_BYTES_MIN);
        let keys = keys.saturating_mul(SAMPLE_KEY_BYTES);
        keys.saturating_add(triggers.sample_bytes_max.min(memtables))
    }

    /// What a merge holds of its inputs at most, in bytes.
    fn merge_read_bytes(&self) -> u64 {
        let runs = self.runs_max();
        let copies = match self.reader_count() {
            0 => 1,
            _ => STREAM_BUFFERS,
        };
        let fast = MERGE_READ_BYTES - MERGE_READ_SLOW_BYTES;
        let least = runs.saturating_mul(READ_AHEAD_BYTES_FIRST as u64);
        let ahead = least
            .max(fast as u64)
            .saturating_add(MERGE_READ_SLOW_BYTES as u64);
        // A piece is of one block at least.
        let ahead = match self.block_bytes_max() {
            block if block > READ_AHEAD_BYTES_FIRST as u64 => {
                ahead.saturating_add(runs.saturating_mul(block))
            }
            _ => ahead,
        };
        let blocks = runs.saturating_mul(2 * self.block_bytes_max());
        ahead.saturating_mul(copies).saturating_add(blocks)
    }

    /// What the filter of a flush may take beyond that, and a table that makes room beside it, in
    /// bytes: a flush, of which there is one at a time, reads no tables.
    fn flush_filter_bytes(&self) -> u64 {
        let memtables = self
            .write_buffer_bytes
            .saturating_add(self.lendable_bytes());
        let moves = match self.tiers.len() {
            0 | 1 => 0,
            _ => MOVE_BYTES,
        };
        let beside = (memtables / FLUSH_FILTER_SHARE).saturating_add(moves);
        beside.saturating_sub(self.merge_read_bytes())
    }

    /// What the process has for the jobs of so many threads at most, in bytes, but for
    /// [`Options::flush_filter_bytes`].
    pub(crate) fn jobs_bytes_max(&self, threads: usize) -> u64 {
        let jobs = self.jobs_max(threads).saturating_mul(ALLOCATOR_COPIES);
        jobs.saturating_mul(self.job_bytes_max())
    }

    /// The most jobs, or stretches of a merge, that run at a time with so many threads.
    fn jobs_max(&self, threads: usize) -> u64 {
        if threads < 2 {
            return 1;
        }
        // What goes deeper in the same merge has as many threads again.
        let goes_deeper = self.tiers.len() > 1 && self.entry().is_some_and(|p| p.goes_deeper);
        let stretches = stretches_max(threads) as u64;
        stretches
            .saturating_mul(1 + u64::from(goes_deeper))
            .saturating_add(1)
    }

    fn runs_max(&self) -> u64 {
        self.newest_runs_max().saturating_add(LEVELS)
    }

    /// The most runs that a part's newest level has before writers stop. Small ones count half, and
    /// while hardly anybody reads all count for less: see `step/brake.rs`.
    fn newest_runs_max(&self) -> u64 {
        let own = self.write_buffer_bytes.max(1);
        let lent_times = own.saturating_add(self.lendable_bytes()) as f64 / own as f64;
        let times = patience_max(lent_times).max(2.0);
        (self.newest_runs_stop as f64 * times).ceil() as u64
    }

    fn block_bytes_max(&self) -> u64 {
        let blocks = self.tiers.iter().map(|t| t.block_size() as u64);
        blocks.max().unwrap_or(4096)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{MergeRun, ReadMode};

    #[test]
    fn the_runs_of_a_merge_share_what_it_may_read_ahead() {
        let sum = |runs: &[MergeRun]| -> usize {
            let modes = ReadMode::merge_of(runs);
            modes.iter().map(|mode| mode.read_ahead_bytes).sum()
        };
        let run = |is_slow: bool, bytes: u64| MergeRun { is_slow, bytes };
        let sizes: [fn(u64) -> u64; 4] = [|_| 0, |_| 1 << 20, |n| n << 20, |n| 1 << (n % 50)];
        for runs in 1..=96 {
            for size in sizes {
                let made = |slow: u64| -> Vec<MergeRun> {
                    (0..runs).map(|n| run(n < slow, size(n))).collect()
                };
                let all = MERGE_READ_BYTES.max(runs as usize * READ_AHEAD_BYTES_FIRST);
                assert!(sum(&made(0)) <= all);
                assert!(sum(&made(runs)) <= all);
                for slow in 1..runs {
                    let most = MERGE_READ_SLOW_BYTES.max(slow as usize * READ_AHEAD_BYTES_FIRST);
                    let fast = MERGE_READ_BYTES - MERGE_READ_SLOW_BYTES;
                    let most = most + fast.max((runs - slow) as usize * READ_AHEAD_BYTES_FIRST);
                    assert!(sum(&made(slow)) <= most, "{slow} of {runs}");
                }
            }
        }
        // A slow level below many runs is still read more than a MiB at a time.
        let mut runs = vec![run(false, 1 << 20); 64];
        runs.push(run(true, 200 << 20));
        let last = |runs: &[MergeRun]| ReadMode::merge_of(runs).last().unwrap().read_ahead_bytes;
        assert_eq!(last(&runs), (1280 << 10) - (8 << 10));
        // And nearly so beside small runs that lie on its tier as well.
        runs.truncate(10);
        runs.iter_mut().for_each(|run| run.is_slow = true);
        runs.push(run(true, 200 << 20));
        assert!(last(&runs) > 900 << 10, "{}", last(&runs));
    }

    #[test]
    fn the_promise_is_the_sum_of_the_options_and_of_the_jobs() {
        let growing = Options::at("/x").block_cache_bytes(1 << 30);
        let growing = growing.background_threads(2);
        let options = growing.clone().write_buffer_grows(false);
        let max = options.memory_max(1);
        assert_eq!(max.memtables, 64 << 20);
        assert_eq!(max.block_cache, 1 << 30);
        assert_eq!(max.total(), options.memory_bytes_max());
        let one = options.clone().background_threads(0).memory_max(1).jobs;
        assert_eq!(max.jobs, 2 * one);
        let many = options.clone().background_threads(4).memory_max(1).jobs;
        assert_eq!(many, 6 * one);
        // A flush, seven merges, and six threads that these share.
        let eight = options.clone().background_threads(8);
        assert_eq!(eight.memory_max(1).jobs, (1 + 7 + 6) * one);
        assert_eq!(one, 2 * options.job_bytes_max());
        // Without a sample, which may be larger than a merge.
        let two = options.clone().tier(Tier::new("slow", "/y"));
        let two = two.moving_cuts(false);
        let of_two = |preset: &str| two.clone().preset(preset).memory_max(1).jobs;
        assert_eq!(of_two("logstore"), 3 * of_two("leveled") / 2);
        let keys = |sample_keys_max| {
            let triggers = crate::RecutTriggers {
                sample_keys_max,
                ..crate::RecutTriggers::default()
            };
            let options = options.clone().preset("nova").recut_triggers(triggers);
            options.memory_max(1).jobs
        };
        // Twice two jobs, with 192 bytes for each key.
        assert_eq!(keys(1 << 20) - keys(1 << 19), (4 * 192) << 19);
        assert_eq!(keys(1000), keys(100));
        // A large flush has a larger filter than a merge reads ahead, and only one does.
        let large = options.clone().write_buffer_bytes(1 << 30).memory_max(1);
        let filter = large.jobs - max.jobs;
        assert_eq!(filter, (32 << 20) - options.merge_read_bytes());
        // What memtables borrow is the cache's, but a flush of it is larger.
        assert_eq!(growing.lendable_bytes(), 192 << 20);
        let grown = growing.memory_max(1);
        assert_eq!(
            grown.jobs - growing.jobs_bytes_max(2),
            (8 << 20) - growing.merge_read_bytes().min(8 << 20)
        );
        // And more runs wait while it is lent.
        let runs = [&options, &growing].map(Options::newest_runs_max);
        assert_eq!(runs, [2 * 24, 3 * 24]);
        assert_eq!(
            grown.memtables + grown.block_cache,
            max.memtables + max.block_cache
        );
    }

    /// Nobody has looked at them before a store is opened: an options file may say anything.
    #[test]
    fn of_options_that_no_store_opens_with_the_sums_are_large_and_none_overflows() {
        let most = Options::at("/x").moving_cuts(true).preset("nova");
        let most = most.tier(Tier::new("slow", "/y"));
        let all = most
            .clone()
            .write_buffer_bytes(u64::MAX)
            .memtable_bytes(u64::MAX)
            .block_cache_bytes(u64::MAX)
            .pinned_meta_bytes(u64::MAX)
            .table_bytes(u64::MAX)
            .newest_runs_stop(usize::MAX)
            .log_bytes_max(u64::MAX)
            .filter_bits_per_key(u32::MAX)
            .partitions(usize::MAX)
            .duplicates_max(u32::MAX)
            .background_threads(usize::MAX);
        for preset in ["leveled", "nova", "ohdb", "logstore", "mutant"] {
            for one in [
                all.clone(),
                most.clone().write_buffer_bytes(u64::MAX),
                most.clone().memtable_bytes(u64::MAX),
                most.clone().newest_runs_stop(usize::MAX),
                most.clone().table_bytes(u64::MAX),
                most.clone().partitions(usize::MAX),
                most.clone().background_threads(usize::MAX),
            ] {
                let options = one.preset(preset);
                assert!(options.check().is_err());
                assert!(options.sealed_memtables_least() >= 1);
                let bytes = [options.memory_bytes_max(), options.iterator_bytes_max()];
                assert!(bytes.iter().all(|&bytes| bytes > 1 << 20), "{bytes:?}");
            }
        }
        assert_eq!(all.memory_bytes_max(), u64::MAX);
        assert_eq!(most.memory_max(u64::MAX).total(), u64::MAX);
    }
}
