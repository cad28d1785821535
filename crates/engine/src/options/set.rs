//! Setting options: one method each, named like the option in the file.
//!
//! Nothing is refused here: `check.rs` judges the whole when the store opens.

use super::{Durability, Options};

impl Options {
    /// Bytes of all memtables together; writes wait for a flush beyond it. Up to
    /// about as much again is kept, emptied, for the next memtables.
    /// Default 64 MiB.
    #[must_use]
    pub fn write_buffer_bytes(mut self, bytes: u64) -> Options {
        self.write_buffer_bytes = bytes;
        self
    }

    /// Bytes of one memtable. Small ones take inserts several times faster, as
    /// they fit the processor's caches; many are flushed together. Default: an
    /// eighth of the write buffer.
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: u64) -> Options {
        self.memtable_bytes = Some(bytes);
        self
    }

    /// Bytes of the block cache; 0 switches it off. Default 128 MiB.
    #[must_use]
    pub fn block_cache_bytes(mut self, bytes: u64) -> Options {
        self.block_cache_bytes = bytes;
        self
    }

    /// Bytes of table metadata (block lists and filters) kept in memory. Beyond
    /// it, the metadata of the least used tables is read again when needed.
    /// Default 1 GiB.
    #[must_use]
    pub fn pinned_meta_bytes(mut self, bytes: u64) -> Options {
        self.pinned_meta_bytes = bytes;
        self
    }

    /// Filter bits per key; 0 writes no filters, 10 lets 1 % of useless block
    /// reads through. At most 30. Default 10.
    #[must_use]
    pub fn filter_bits_per_key(mut self, bits: u32) -> Options {
        self.filter_bits_per_key = bits;
        self
    }

    /// The durability of writes that do not name their own. Default: the
    /// operating system.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// The preset: which planners, placer and heat tracker decide. Default
    /// `leveled`.
    #[must_use]
    pub fn preset(mut self, name: &str) -> Options {
        self.preset = name.to_string();
        self
    }

    /// Threads for flush, merge and relocation. With 0 nothing happens in the
    /// background: [`crate::Db::step`] runs one job at a time. Default 2.
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Options {
        self.background_threads = threads;
        self
    }

    /// Data bytes at which a merge starts a new table: the grain of placement.
    /// Default: a sixteenth of the smallest tier's capacity, from 1 to 32 MiB;
    /// 32 MiB where no tier has one.
    #[must_use]
    pub fn table_bytes(mut self, bytes: u64) -> Options {
        self.table_bytes = Some(bytes);
        self
    }

    /// Runs in a part's newest level that start a merge. Default 4.
    #[must_use]
    pub fn newest_runs_merge(mut self, runs: usize) -> Options {
        self.newest_runs_merge = runs;
        self
    }

    /// Runs in a part's newest level at which writes wait; slowdown begins at
    /// half of it. Default 24.
    #[must_use]
    pub fn newest_runs_stop(mut self, runs: usize) -> Options {
        self.newest_runs_stop = runs;
        self
    }

    /// Bytes of the first level below the newest. Default 64 MiB.
    #[must_use]
    pub fn first_level_bytes(mut self, bytes: u64) -> Options {
        self.first_level_bytes = bytes;
        self
    }

    /// How many times larger each level is than the one above. Default 10.
    #[must_use]
    pub fn level_ratio(mut self, ratio: u64) -> Options {
        self.level_ratio = ratio;
        self
    }

    /// Bytes of a log segment. Default 32 MiB.
    #[must_use]
    pub fn log_segment_bytes(mut self, bytes: u64) -> Options {
        self.log_segment_bytes = bytes;
        self
    }

    /// Log bytes beyond which the memtable that holds the oldest segment is
    /// flushed. Default 512 MiB.
    #[must_use]
    pub fn log_bytes_max(mut self, bytes: u64) -> Options {
        self.log_bytes_max = bytes;
        self
    }

    /// Whether the log is written through a memory map, which is several times
    /// faster and survives the end of the process just the same. Turn off on
    /// file systems whose maps misbehave. Default true.
    #[must_use]
    pub fn log_mapped(mut self, mapped: bool) -> Options {
        self.log_mapped = mapped;
        self
    }

    /// Entries between two restart points of a block: fewer make seeks and
    /// backward scans faster, more make blocks smaller. From 1 to 255.
    /// Default 4.
    #[must_use]
    pub fn restart_interval(mut self, entries: u8) -> Options {
        self.restart_interval = entries;
        self
    }

    /// The share of a tier's capacity that placement fills, from 0.1 to 1.
    /// Default 0.95.
    #[must_use]
    pub fn tier_fill_share(mut self, share: f64) -> Options {
        self.tier_fill_share = share;
        self
    }

    /// Bytes of the first tier that only log, manifest and flush may use.
    /// Default 16 MiB.
    #[must_use]
    pub fn reserve_bytes(mut self, bytes: u64) -> Options {
        self.reserve_bytes = bytes;
        self
    }

    /// Cuts of the default keyspace, strictly ascending: `n` cuts make `n + 1`
    /// parts, each with its own memtables. Only a new store takes them.
    /// Default: none.
    #[must_use]
    pub fn cuts(mut self, cuts: Vec<Vec<u8>>) -> Options {
        self.cuts_bytes = cuts;
        self
    }

    /// Whether a store is created where there is none. Default true.
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Options {
        self.create_if_missing = create;
        self
    }

    /// Whether to open for reading only: nothing is written, not even the
    /// recovery of the log, which is kept in memory. Default false.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.read_only = read_only;
        self
    }
}
