//! Setting options: one method each, named like the option in the file.
//!
//! Nothing is refused here: [`crate::Db::open`] judges the whole and names what
//! is out of range.

use super::{Durability, Options};

impl Options {
    /// Bytes of all memtables together, emptied ones that are kept for later included; writes wait
    /// for a flush beyond it. What they leave of it the block cache has
    /// ([`Options::block_cache_grows`]). With so many parts that their active memtables alone are
    /// more than half of it, somewhat more ([`Options::memory_max`]). More while the block cache
    /// lends some ([`Options::write_buffer_grows`]). From 64 KiB to 1 TiB, default 64 MiB.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().write_buffer_bytes(16 << 20)).is_ok()); // 16 MiB
    /// let error = Db::open(options.write_buffer_bytes(16)).unwrap_err();
    /// assert!(error.to_string().contains("write_buffer_bytes: expected 65536 to"));
    /// ```
    #[must_use]
    pub fn write_buffer_bytes(mut self, bytes: u64) -> Options {
        self.write_buffer_bytes = bytes;
        self
    }

    /// Bytes of one memtable. Small ones take inserts several times faster, as
    /// they fit the processor's caches; many are flushed together. From 16 KiB to
    /// the write buffer, at most 2 GiB. Default: an eighth of the write buffer; while there
    /// are so many parts that these would fill more than half of it, as much less; from
    /// 64 KiB to 64 MiB.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).write_buffer_bytes(16 << 20);
    /// assert!(Db::open(options.clone().memtable_bytes(1 << 20)).is_ok()); // 1 MiB
    /// let error = Db::open(options.memtable_bytes(32 << 20)).unwrap_err();
    /// assert!(error.to_string().contains("memtable_bytes: expected 16384 to 16777216"));
    /// ```
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: u64) -> Options {
        self.memtable_bytes = Some(bytes);
        self
    }

    /// Whether memtables have memory of the block cache, beyond `write_buffer_bytes`, while
    /// hardly any blocks are asked for: up to three quarters of the cache, three
    /// times the write buffer, and half of `log_bytes_max` with it. Makes fewer and larger runs, so
    /// that merges are fewer; both together take no more memory than they were given. All is lent
    /// where nobody reads, nothing where a quarter of the operations ask for a block
    /// ([`thermocline_policy::lending`]). Default true.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).write_buffer_grows(false);
    /// let db = Db::open(options.block_cache_grows(false))?;
    /// db.put(b"key", b"value")?;
    /// assert_eq!(db.stats().memory.max.memtables, 64 << 20); // Now and always.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn write_buffer_grows(mut self, grows: bool) -> Options {
        self.write_buffer_grows = grows;
        self
    }

    /// Bytes of the block cache, with all that it takes to find and to replace blocks, and with
    /// what the allocator adds to that; 0 switches it off. Less while memtables have some of it
    /// ([`Options::write_buffer_grows`]), and more while they leave some of theirs
    /// ([`Options::block_cache_grows`]). At most 1 TiB, default 128 MiB.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()).block_cache_bytes(0))?;
    /// db.put(b"key", b"value")?;
    /// db.flush()?;
    /// assert!(db.get(b"key")?.is_some());
    /// assert_eq!(db.stats().cache_bytes, 0);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn block_cache_bytes(mut self, bytes: u64) -> Options {
        self.block_cache_bytes = bytes;
        self
    }

    /// Whether the block cache has what memtables leave of `write_buffer_bytes`, beyond
    /// `block_cache_bytes` and at most as much again. Memtables have it back before they fill it,
    /// at the cost of the blocks that were used least; and what they leave goes to the cache by
    /// 1/256 each tenth of a second, so that a store that writes all the time leaves it little.
    /// Both together take no more memory than they were given. Default true.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).write_buffer_bytes(16 << 20);
    /// let db = Db::open(options.block_cache_grows(false))?;
    /// assert_eq!(db.stats().memory.max.block_cache, 128 << 20); // As long as nobody writes.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn block_cache_grows(mut self, grows: bool) -> Options {
        self.block_cache_grows = grows;
        self
    }

    /// Bytes of table metadata (indexes of blocks and filters) kept in memory. Beyond
    /// it, the metadata of the least used tables is read again when needed. Kept
    /// to at the end of each job and when the background rests. At most 1 TiB,
    /// default 1 GiB.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// // Small memory: the metadata of tables in use is read again and again.
    /// let db = Db::open(Options::at(directory.path()).pinned_meta_bytes(64 << 20))?; // 64 MiB
    /// assert!(db.stats().pinned_meta_bytes <= 64 << 20);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn pinned_meta_bytes(mut self, bytes: u64) -> Options {
        self.pinned_meta_bytes = bytes;
        self
    }

    /// Filter bits per key; 0 writes no filters, 10 lets 1 % of useless block
    /// reads through. At most 30. Default 10.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().filter_bits_per_key(16)).is_ok());
    /// let error = Db::open(options.filter_bits_per_key(31)).unwrap_err();
    /// assert!(error.to_string().contains("filter_bits_per_key: expected 0 to 30, found 31"));
    /// ```
    #[must_use]
    pub fn filter_bits_per_key(mut self, bits: u32) -> Options {
        self.filter_bits_per_key = bits;
        self
    }

    /// The durability of writes that do not name their own. Default: the
    /// operating system.
    ///
    /// ```
    /// # use thermocline::{Db, Durability, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()).durability(Durability::Device))?;
    /// db.put(b"paid", b"yes")?; // Survives a power failure from here on.
    /// assert!(db.options().to_toml().contains(r#"durability = "device""#));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// The preset: which planners, placer and heat tracker decide. Default
    /// `leveled`.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// assert!(Db::open(Options::at(directory.path()).preset("leveled")).is_ok());
    /// let error = Db::open(Options::at(directory.path()).preset("magic")).unwrap_err();
    /// assert!(error.to_string().contains("preset: expected leveled or mutant or logstore"));
    /// ```
    #[must_use]
    pub fn preset(mut self, name: &str) -> Options {
        self.preset = name.to_string();
        self
    }

    /// Threads for flush, merge and relocation. With 0 nothing happens in the background:
    /// [`crate::Db::step`] runs one job at a time, as does a writer for whom memory has no room; if
    /// that job fails the writer has its error, and the next one is not run sooner than 0.2 seconds
    /// later. With 2 or more, large merges have up to one less for a while, which they share, and
    /// what they send to a slower device as many again; and with `mutant` or `nova` on several
    /// tiers there is one more, for what moves to make room. At most 64.
    ///
    /// Default: as many as the process may use processors, from 2 to 8, but no more than whose jobs
    /// need half as much memory as `write_buffer_bytes`, `block_cache_bytes` and
    /// `pinned_meta_bytes` together ([`Options::memory_max`]). It is not written to the options
    /// file, so that a store on another machine has that one's.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()).background_threads(0))?;
    /// assert!(!db.step()?, "an empty store has nothing to do");
    /// let error = Db::open(Options::at(directory.path()).background_threads(65)).unwrap_err();
    /// assert!(error.to_string().contains("background_threads: expected 0 to 64"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Options {
        self.background_threads = Some(threads);
        self
    }

    /// Threads that read from tiers with [`crate::Tier::direct_io`] ahead of need: as
    /// many reads of scans, merges and multi-gets are in flight there at once.
    /// They are started when first needed; a store without such a tier, or with
    /// no background threads, has none. More suit devices that serve many reads
    /// side by side; 0 reads everything when it is needed. Besides what they
    /// have in flight (at most 64 MiB in all) each keeps up to 1 MiB. From 0 to
    /// 256; default 8.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = Tier::new("nvme", directory.path()).direct_io(true);
    /// let db = Db::open(Options::new().tier(tier).read_threads(32))?;
    /// db.put(b"key", b"value")?;
    /// db.flush()?;
    /// assert_eq!(db.multi_get(&[b"key", b"no"])?[0].as_deref(), Some(&b"value"[..]));
    /// let error = Db::open(Options::at("/x").read_threads(257)).unwrap_err();
    /// assert!(error.to_string().contains("read_threads: expected 0 to 256"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn read_threads(mut self, threads: usize) -> Options {
        self.read_threads = threads;
        self
    }

    /// Data bytes at which a merge starts a new table: the grain of placement.
    /// Default: a sixty-fourth of the smallest tier's capacity, from 4 to 32 MiB, or a
    /// sixteenth where that is less than 4, but at least 1 MiB;
    /// 32 MiB where no tier has one. From 4 KiB to 1 TiB.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()).table_bytes(64 << 10))?; // 64 KiB
    /// for i in 0..40u32 {
    ///     db.put(&i.to_be_bytes(), &[0; 10_000])?;
    /// }
    /// db.compact_range(None, None)?;
    /// assert!(db.tables().len() >= 4);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn table_bytes(mut self, bytes: u64) -> Options {
        self.table_bytes = Some(bytes);
        self
    }

    /// Runs in a part's newest level that start a merge; twice as many, while they
    /// hold less than a quarter of the level that they would rewrite. From 1 to
    /// 1000, default 4.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()).newest_runs_merge(2))?;
    /// for value in [b"1", b"2"] {
    ///     db.put(b"key", value)?;
    ///     db.flush()?;
    /// }
    /// db.settle()?;
    /// assert_eq!(db.stats().merges, 1);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn newest_runs_merge(mut self, runs: usize) -> Options {
        self.newest_runs_merge = runs;
        self
    }

    /// Runs in a part's newest level at which writes wait; slowdown begins at two fifths of it with
    /// one part, three quarters with several, or with the first where merges of late took a quarter
    /// of a second and more and writers had to be slowed. Twice as many while they hold less than
    /// half of what they would be merged into; and while hardly any blocks are asked for as many
    /// times as many as memtables have times the memory that [`Options::write_buffer_bytes`] gives
    /// them, up to three times ([`Options::write_buffer_grows`]), fewer where newest levels take
    /// more than half of their tier: each is one more place to look, which is nobody's loss then.
    /// From one more than [`Options::newest_runs_merge`] to 10000, default 24.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).newest_runs_merge(8);
    /// assert!(Db::open(options.clone().newest_runs_stop(40)).is_ok());
    /// // Writes must not wait before there is anything to merge.
    /// let error = Db::open(options.newest_runs_stop(8)).unwrap_err();
    /// assert!(error.to_string().contains("newest_runs_stop: expected 9 to 10000, found 8"));
    /// ```
    #[must_use]
    pub fn newest_runs_stop(mut self, runs: usize) -> Options {
        self.newest_runs_stop = runs;
        self
    }

    /// Bytes of the first level below the newest. From 4 KiB to 1 TiB, default
    /// 64 MiB.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().first_level_bytes(256 << 20)).is_ok()); // 256 MiB
    /// let error = Db::open(options.first_level_bytes(256)).unwrap_err();
    /// assert!(error.to_string().contains("first_level_bytes: expected 4096 to"));
    /// ```
    #[must_use]
    pub fn first_level_bytes(mut self, bytes: u64) -> Options {
        self.first_level_bytes = bytes;
        self
    }

    /// How many times larger each level is than the one above. From 2 to
    /// 1000, default 10.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().level_ratio(8)).is_ok());
    /// let error = Db::open(options.level_ratio(1)).unwrap_err();
    /// assert!(error.to_string().contains("level_ratio: expected 2 to 1000, found 1"));
    /// ```
    #[must_use]
    pub fn level_ratio(mut self, ratio: u64) -> Options {
        self.level_ratio = ratio;
        self
    }

    /// Bytes of a log segment. From 16 KiB to 4 GiB, default 32 MiB.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()).log_segment_bytes(64 << 10))?; // 64 KiB
    /// for i in 0..3u8 {
    ///     db.put(&[i], &[0; 50_000])?;
    /// }
    /// assert_eq!(db.stats().log_segments, 3);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn log_segment_bytes(mut self, bytes: u64) -> Options {
        self.log_segment_bytes = bytes;
        self
    }

    /// Log bytes beyond which the memtable that holds the oldest segment is
    /// flushed. From one segment to 1 TiB, default 512 MiB.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().log_bytes_max(128 << 20)).is_ok()); // 128 MiB
    /// // Less than one segment cannot be kept.
    /// let error = Db::open(options.log_bytes_max(1 << 20)).unwrap_err();
    /// assert!(error.to_string().contains("log_bytes_max: expected 33554432 to"));
    /// ```
    #[must_use]
    pub fn log_bytes_max(mut self, bytes: u64) -> Options {
        self.log_bytes_max = bytes;
        self
    }

    /// Whether the log is written through a memory map, which is several times
    /// faster and survives the end of the process just the same. Turn off on
    /// file systems whose maps misbehave. Default true.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// Db::open(Options::at(directory.path()).log_mapped(false))?.put(b"key", b"value")?;
    /// // The bytes of the log are the same either way.
    /// let db = Db::open(Options::at(directory.path()).log_mapped(true))?;
    /// assert!(db.get(b"key")?.is_some());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn log_mapped(mut self, mapped: bool) -> Options {
        self.log_mapped = mapped;
        self
    }

    /// Whether what a flush, a merge or a bulk load has written is read back from its device, past
    /// the system's cache, and compared with its checksums before what it was made of is let go, as
    /// a copy to another tier is in any case. What a device has spoiled is then
    /// [`ErrorKind::Corruption`](crate::ErrorKind::Corruption) with the place: the job fails, what
    /// it wrote is deleted, what it was made of stays, and it is tried again. Without it, such
    /// damage is met by the first read of it, when there is no other copy. It reads each byte that
    /// is written once more, paid from the budget of the tier
    /// ([`Tier::io_budget_bytes_per_second`](crate::Tier::io_budget_bytes_per_second)); what jobs
    /// are predicted to cost has it, what planners weigh has not. Set it where devices or what lies
    /// between are not trusted. Default false.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()).verify_outputs(true))?;
    /// db.put(b"key", b"value")?;
    /// db.flush()?;
    /// assert!(db.get(b"key")?.is_some());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn verify_outputs(mut self, verify: bool) -> Options {
        self.verify_outputs = verify;
        self
    }

    /// Entries between two restart points of a block: fewer make seeks and
    /// backward scans faster, more make blocks smaller. From 1 to 255.
    /// Default 4.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().restart_interval(16)).is_ok());
    /// let error = Db::open(options.restart_interval(0)).unwrap_err();
    /// assert!(error.to_string().contains("restart_interval: expected 1 to 255, found 0"));
    /// ```
    #[must_use]
    pub fn restart_interval(mut self, entries: u8) -> Options {
        self.restart_interval = entries;
        self
    }

    /// The share of a tier's capacity that placement fills, from 0.1 to 1.
    /// Default 0.97.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().tier_fill_share(0.8)).is_ok()); // 80 %
    /// let error = Db::open(options.tier_fill_share(80.0)).unwrap_err();
    /// assert!(error.to_string().contains("tier_fill_share: expected 0.1 to 1, found 80"));
    /// ```
    #[must_use]
    pub fn tier_fill_share(mut self, share: f64) -> Options {
        self.tier_fill_share = share;
        self
    }

    /// Bytes of the first tier, and of those of log and manifest, that only log, manifest and flush
    /// may use. Default 16 MiB.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = Tier::new("nvme", directory.path()).capacity_bytes(1 << 30);
    /// let db = Db::open(Options::new().tier(tier).reserve_bytes(64 << 20))?; // 64 MiB
    /// assert!(db.options().to_toml().contains("reserve_bytes = 67108864"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn reserve_bytes(mut self, bytes: u64) -> Options {
        self.reserve_bytes = bytes;
        self
    }

    /// Cuts of the default keyspace, strictly ascending, none empty, at most
    /// 1023: `n` cuts make `n + 1` parts, each with its own memtables. Only a new
    /// store takes them. Default: none.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let cuts = vec![b"h".to_vec(), b"p".to_vec()];
    /// let db = Db::open(Options::at(directory.path()).cuts(cuts))?;
    /// assert_eq!(db.stats().keyspaces[0].parts, 3);
    /// db.close()?;
    /// let db = Db::open(Options::at(directory.path()))?; // It keeps them.
    /// assert_eq!(db.stats().keyspaces[0].parts, 3);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn cuts(mut self, cuts: Vec<Vec<u8>>) -> Options {
        self.cuts_bytes = cuts;
        self
    }

    /// Whether a store is created where there is none. Default true.
    ///
    /// ```
    /// # use thermocline::{Db, ErrorKind, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let error = Db::open(Options::at(directory.path()).create_if_missing(false)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    /// ```
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Options {
        self.create_if_missing = create;
        self
    }

    /// Whether to open for reading only: nothing is written, not even the
    /// recovery of the log, which is kept in memory. Default false.
    ///
    /// It takes no lock. Where another process writes meanwhile, what is opened is the store as it
    /// was at some moment of the opening, which begins anew, up to ten times, when files went that
    /// it needed. Tables that go later are [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) to
    /// reads of them.
    ///
    /// ```
    /// # use thermocline::{Db, ErrorKind, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// Db::open(Options::at(directory.path()))?.put(b"key", b"value")?;
    /// let db = Db::open(Options::at(directory.path()).read_only(true))?;
    /// assert!(db.get(b"key")?.is_some());
    /// assert_eq!(db.put(b"key", b"2").unwrap_err().kind(), ErrorKind::InvalidArgument);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.read_only = read_only;
        self
    }
}
