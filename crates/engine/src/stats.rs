//! Statistics: what a store says of itself. They are made of what it counts ([`counters`]).

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::footprint::MemoryBytes;

mod cost;
mod counters;
mod job_time;
mod lookup;
mod parts;
mod range_index;
mod running;
mod stalled;

pub use cost::CostStats;
pub(crate) use counters::{Counters, TierCounters};
pub(crate) use job_time::JobTimes;
pub use lookup::LookupStats;
pub use parts::PartStats;
pub use range_index::RangeIndexStats;
pub use running::{stats, tables};
pub(crate) use stalled::Stall;
pub use stalled::StalledFor;

/// What the last opening found in the log.
///
/// ```
/// # use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// Db::open(Options::at(directory.path()))?.put(b"key", b"value")?;
/// let db = Db::open(Options::at(directory.path()))?;
/// let recovery = db.stats().recovery;
/// assert_eq!((recovery.entries, recovery.torn_bytes), (1, 0));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Recovery {
    /// Log records replayed.
    pub records: u64,
    /// Entries replayed that had not reached tables.
    pub entries: u64,
    /// Log bytes read.
    pub bytes: u64,
    /// Times that a part's memtables were compacted into one, as memory was short: the log has more
    /// than what memtables had where folds left something out, or the options gave more memory
    /// before.
    pub compactions: u64,
    /// The most bytes of memory that memtables took meanwhile, the latest versions that a
    /// compaction makes beside what it makes them of included.
    pub memory_bytes: u64,
    /// Entries of tables that were read so that the lookup index knows them.
    pub indexed_entries: u64,
    /// Bytes of a torn tail that were dropped: writes that were never
    /// acknowledged at device durability, from after the last crash's gap.
    pub torn_bytes: u64,
    /// Bytes of a torn last edit of the manifest that were dropped.
    pub torn_manifest_bytes: u64,
    /// Objects deleted that no version named.
    pub orphans: u64,
}

/// The state and history of a store since it was opened.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// db.get(b"key")?;
/// db.get(b"no such key")?;
/// let stats = db.stats();
/// assert_eq!((stats.writes, stats.memtable_hits, stats.misses), (1, 1, 1));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// The tiers, fast to cheap.
    pub tiers: Vec<TierStats>,
    /// The keyspaces.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Memory, by what it is for.
    pub memory: MemoryStats,
    /// Bytes of memtables, sealed ones included.
    pub memtable_bytes: u64,
    /// The number of memtables.
    pub memtables: u64,
    /// Of these, those that take writes: at most [`crate::Options::active_memtables_total_max`].
    pub active_memtables: u64,
    /// Sealed ones, which wait for a flush; one that several parts have counts once. At most
    /// [`crate::Options::sealed_memtables_total_max`].
    pub sealed_memtables: u64,
    /// Bytes that the block cache takes.
    pub cache_bytes: u64,
    /// Of these, bytes that it has of the system itself, in a mapping of its own.
    pub cache_mapped_bytes: u64,
    /// Block reads answered by the cache.
    pub cache_hits: u64,
    /// Block reads that went to a device.
    pub cache_misses: u64,
    /// Bytes of table metadata held in memory.
    pub pinned_meta_bytes: u64,
    /// The lookup index.
    pub lookup: LookupStats,
    /// What cuts save scans.
    pub range_index: RangeIndexStats,
    /// Log segments.
    pub log_segments: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// Bytes of the manifest.
    pub manifest_bytes: u64,
    /// Entries written.
    pub writes: u64,
    /// Their log bytes.
    pub written_bytes: u64,
    /// Writes refused: by the log, or because all tiers are full.
    pub failed_writes: u64,
    /// Point reads answered by a memtable. Every point read is counted once:
    /// here, in `cached_hits`, in the `hits` of one tier, or in `misses`.
    pub memtable_hits: u64,
    /// Point reads answered by a table's block that was in the block cache.
    pub cached_hits: u64,
    /// Point reads of keys that are nowhere.
    pub misses: u64,
    /// Iterators made.
    pub scans: u64,
    /// Writes slowed down or stopped because the background fell behind.
    pub slowdowns: u64,
    /// Microseconds that writers waited so, of all of them together. What a slowed writer that need
    /// not sleep waits for a processor, which it gives to the background first, does not count.
    pub stall_us: u64,
    /// Microseconds in which a writer waited, or several at a time.
    pub stalled_us: u64,
    /// What for.
    #[serde(default)]
    pub stalled_for: StalledFor,
    /// Nanoseconds that a byte takes of all writers together, as they are slowed now;
    /// none when not at all, `u64::MAX` when writes are stopped.
    pub brake_ns_per_byte: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes written by them.
    pub flushed_bytes: u64,
    /// Folds: memtables with few keys that became one instead of a table.
    pub folds: u64,
    /// Bytes of memtables that went into them.
    pub folded_bytes: u64,
    /// Bytes that they logged anew.
    pub restated_bytes: u64,
    /// Merges that read tables.
    pub merges: u64,
    /// Bytes read by them.
    pub merge_in_bytes: u64,
    /// Bytes written by them.
    pub merge_out_bytes: u64,
    /// Merges that only moved tables, by an edit of the version: nothing was read or
    /// written. They are not among [`Stats::merges`].
    pub merges_by_edit: u64,
    /// Tables that merges of either kind moved without rewriting them.
    pub tables_moved: u64,
    /// Blocks that a merge copied without decoding them.
    pub blocks_copied: u64,
    /// Relocations.
    pub relocations: u64,
    /// Bytes written by them.
    pub relocated_bytes: u64,
    /// Times that cuts were made or moved: reorganisations of parts.
    pub recuts: u64,
    /// Bytes of tables built by bulk loads.
    pub bulk_bytes: u64,
    /// Bytes written to tables, by flushes, merges and relocations, for each byte written by the
    /// user.
    pub write_amplification: f64,
    /// Bytes on the tiers for each byte of live data, as far as known: table
    /// bytes over bytes in the last level of each keyspace.
    pub space_amplification: f64,
    /// Price of the bytes on all tiers, in USD per month.
    pub price_usd_month: f64,
    /// Background jobs that failed, and were or will be tried again.
    pub job_errors: u64,
    /// The last of their errors.
    pub last_error: Option<String>,
    /// When the numbers were taken, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// Bytes that all tiers together may hold, if every tier has a
    /// `capacity_bytes`: all of the last one's, and of the others what placement
    /// fills. Once live tables have as many, puts are refused with
    /// [`crate::ErrorKind::NoSpace`] until they have fewer.
    pub capacity_bytes: Option<u64>,
    /// Whether that is so now.
    pub is_full: bool,
    /// What the opening found.
    pub recovery: Recovery,
    /// Prices, and what was moved for them.
    pub cost: CostStats,
}

/// Memory held beside the most that the options allow. See [`Stats`].
///
/// ```
/// # use thermocline::{Db, MemoryStats, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let db = Db::open(Options::at(directory.path()))?;
/// let memory: MemoryStats = db.stats().memory;
/// assert!(memory.used.total() <= memory.max.total());
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemoryStats {
    /// Held now.
    pub used: MemoryBytes,
    /// Held at most, by [`crate::Options::memory_max`] with the parts that there are and what
    /// the block cache lends to memtables.
    pub max: MemoryBytes,
}

/// One tier. See [`Stats`].
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// db.flush()?;
/// let tier = &db.stats().tiers[0];
/// assert_eq!((&*tier.name, tier.tables), ("main", 1));
/// assert!(tier.used_bytes > 0 && tier.used_bytes <= tier.capacity_bytes);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TierStats {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// Bytes it may hold.
    pub capacity_bytes: u64,
    /// Bytes of objects on it.
    pub used_bytes: u64,
    /// Of these, table metadata.
    pub meta_bytes: u64,
    /// Bytes free on its device.
    pub device_free_bytes: u64,
    /// Tables whose data lies here.
    pub tables: u64,
    /// Price in USD per 10^9 bytes and month.
    pub price_usd_gb_month: f64,
    /// Price of the bytes used, in USD per month.
    pub price_usd_month: f64,
    /// Point reads answered by a block read from here.
    pub hits: u64,
    /// Blocks read from the device for point reads and scans.
    pub block_reads: u64,
    /// Bytes written by flushes, merges, relocations and bulk loads.
    pub written_bytes: u64,
    /// Bytes that relocations brought here.
    pub relocated_in_bytes: u64,
    /// Tables that a flush or merge put on a lower tier since the store was
    /// opened: they belong here, and there was no room. That levels which the
    /// tier does not hold go to the next one is no spill.
    pub spills: u64,
    /// Their data bytes.
    pub spilled_bytes: u64,
    /// When the first of them was written, in microseconds since the Unix
    /// epoch; none if there is none.
    pub spilled_first_us: Option<u64>,
    /// When the last one was.
    pub spilled_last_us: Option<u64>,
    /// Tables that lie on a lower tier now, though they belong here, because
    /// this one has no room for them.
    pub lower_tables: u64,
    /// Their data bytes.
    pub lower_bytes: u64,
    /// Whether direct I/O is in use: the option is set, and the file system
    /// does it.
    pub direct_io: bool,
}

/// One keyspace. See [`Stats`].
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// let default = &db.stats().keyspaces[0];
/// assert_eq!((&*default.name, default.parts), ("default", 1));
/// assert!(default.levels.is_empty()); // Nothing has been flushed.
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Its number of parts.
    pub parts: u64,
    /// Each of them, in key order.
    pub part_list: Vec<PartStats>,
    /// Its levels, newest first, empty ones left out.
    pub levels: Vec<LevelStats>,
}

/// One level, or the newest level of one part. See [`Stats`].
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// db.flush()?;
/// let level = &db.stats().keyspaces[0].levels[0];
/// assert_eq!((&*level.slot, level.runs, level.entries), ("L0.0", 1, 1));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LevelStats {
    /// `L0.p` for the newest level of part `p`, else `L1`, `L2`, ...
    pub slot: String,
    /// Runs.
    pub runs: u64,
    /// Tables.
    pub tables: u64,
    /// Bytes of data and metadata.
    pub bytes: u64,
    /// Entries, deletes included.
    pub entries: u64,
    /// Bytes of data by tier.
    pub tier_bytes: Vec<u64>,
    /// Point reads answered here.
    pub hits: u64,
}

/// One table as `tables` lists it.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// db.delete(b"other key")?;
/// db.flush()?;
/// let table = &db.tables()[0];
/// assert_eq!((table.entries, table.deletes), (2, 1));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TableInfo {
    /// Its number.
    pub id: u64,
    /// Its keyspace.
    pub keyspace: String,
    /// Where it lies in the order of recency.
    pub slot: String,
    /// The tier of its data.
    pub tier: String,
    /// The tier of its metadata.
    pub meta_tier: String,
    /// Its key range, escaped.
    pub range: String,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of metadata.
    pub meta_bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Of these, deletes.
    pub deletes: u64,
    /// Range deletes.
    pub range_deletes: u64,
    /// Point reads that looked into it.
    pub probes: u64,
    /// Point reads that it answered.
    pub hits: u64,
    /// Blocks read from the device for point reads and scans.
    pub block_reads: u64,
    /// Block reads per second and MiB, smoothed; none where the preset keeps no
    /// temperatures, and for a table that is too young to have one.
    pub temperature: Option<f64>,
    /// When it was written, in microseconds since the Unix epoch.
    pub created_us: u64,
}

/// A number of bytes for people: `1536` as `1.5 KiB`.
///
/// ```
/// assert_eq!(thermocline::human_bytes(1 << 20), "1.0 MiB");
/// ```
#[must_use]
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    // The limit is where three digits would round up to 1024.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<10} {:>9} {:>11} {:>7} {:>10} {:>12} {:>10} {:>10}",
            "tier", "used", "capacity", "tables", "hits", "block reads", "written", "USD/month"
        )?;
        for t in &self.tiers {
            writeln!(
                f,
                "{:<10} {:>9} {:>11} {:>7} {:>10} {:>12} {:>10} {:>10.4}",
                t.name,
                human_bytes(t.used_bytes),
                human_bytes(t.capacity_bytes),
                t.tables,
                t.hits,
                t.block_reads,
                human_bytes(t.written_bytes),
                t.price_usd_month
            )?;
            if t.spills > 0 {
                let ago = |at: Option<u64>| self.now_us.saturating_sub(at.unwrap_or(0)) / 1_000_000;
                writeln!(
                    f,
                    "           warning: {} was full: {} tables ({}) were written to a lower tier, \
                     the first {} s ago, the last {} s ago",
                    t.name,
                    t.spills,
                    human_bytes(t.spilled_bytes),
                    ago(t.spilled_first_us),
                    ago(t.spilled_last_us)
                )?;
            }
            if t.lower_tables > 0 {
                writeln!(
                    f,
                    "           warning: {} is full: {} tables ({}) that belong there lie on a lower tier",
                    t.name,
                    t.lower_tables,
                    human_bytes(t.lower_bytes)
                )?;
            }
        }
        if let Some(capacity) = self.capacity_bytes.filter(|_| self.is_full) {
            writeln!(
                f,
                "warning: all tiers are full: puts are refused until less than {} is used",
                human_bytes(capacity)
            )?;
        }
        for k in &self.keyspaces {
            let parts = if k.parts == 1 { "part" } else { "parts" };
            writeln!(f, "\nkeyspace {} ({} {parts})", k.name, k.parts)?;
            parts::display(&k.part_list, f)?;
            if k.levels.is_empty() {
                writeln!(f, "no tables")?;
                continue;
            }
            writeln!(
                f,
                "{:<7} {:>4} {:>7} {:>10} {:>11} {:>10}  bytes by tier",
                "level", "runs", "tables", "bytes", "entries", "hits"
            )?;
            for l in &k.levels {
                let by_tier: Vec<String> = l.tier_bytes.iter().map(|&b| human_bytes(b)).collect();
                writeln!(
                    f,
                    "{:<7} {:>4} {:>7} {:>10} {:>11} {:>10}  {}",
                    l.slot,
                    l.runs,
                    l.tables,
                    human_bytes(l.bytes),
                    l.entries,
                    l.hits,
                    by_tier.join(" | ")
                )?;
            }
        }
        writeln!(
            f,
            "\nwrites {} ({}), scans {}, point reads answered by memtables {}, by the block cache {}, \
             by tiers {}, of absent keys {}",
            self.writes,
            human_bytes(self.written_bytes),
            self.scans,
            self.memtable_hits,
            self.cached_hits,
            self.tiers.iter().map(|t| t.hits).sum::<u64>(),
            self.misses
        )?;
        writeln!(
            f,
            "memtables {} ({}), {} active, {} sealed, block cache {} ({} hits, {} misses), pinned metadata {}",
            self.memtables,
            human_bytes(self.memtable_bytes),
            self.active_memtables,
            self.sealed_memtables,
            human_bytes(self.cache_bytes),
            self.cache_hits,
            self.cache_misses,
            human_bytes(self.pinned_meta_bytes)
        )?;
        let (used, max) = (&self.memory.used, &self.memory.max);
        let of = |used: u64, max: u64| format!("{} of {}", human_bytes(used), human_bytes(max));
        writeln!(
            f,
            "memory {}: memtables {}, block cache {}, table metadata {}, jobs {}, lookup index {}, heat and other {}",
            of(used.total(), max.total()),
            of(used.memtables, max.memtables),
            of(used.block_cache, max.block_cache),
            of(used.table_metadata, max.table_metadata),
            of(used.jobs, max.jobs),
            of(used.lookup_index, max.lookup_index),
            of(used.other, max.other)
        )?;
        writeln!(
            f,
            "log {} segments ({}), manifest {}",
            self.log_segments,
            human_bytes(self.log_bytes),
            human_bytes(self.manifest_bytes)
        )?;
        writeln!(
            f,
            "flushes {} ({}), folds {} ({} in, {} logged anew), merges {} ({} in, {} out), \
             {} by edit alone, tables moved {}, blocks copied {}, relocations {} ({}), cuts moved {} times",
            self.flushes,
            human_bytes(self.flushed_bytes),
            self.folds,
            human_bytes(self.folded_bytes),
            human_bytes(self.restated_bytes),
            self.merges,
            human_bytes(self.merge_in_bytes),
            human_bytes(self.merge_out_bytes),
            self.merges_by_edit,
            self.tables_moved,
            self.blocks_copied,
            self.relocations,
            human_bytes(self.relocated_bytes),
            self.recuts
        )?;
        writeln!(
            f,
            "write amplification {:.2}, space amplification {:.2}, price {:.4} USD a month",
            self.write_amplification, self.space_amplification, self.price_usd_month
        )?;
        write!(f, "{}{}", self.lookup, self.range_index)?;
        writeln!(f, "{}", self.cost)?;
        write!(
            f,
            "stalls: {} writes slowed, in {:.3} s",
            self.slowdowns,
            self.stalled_us as f64 / 1e6
        )?;
        if self.stalled_us > 0 {
            write!(f, " ({})", self.stalled_for)?;
        }
        write!(
            f,
            ", {:.3} s of all writers; job errors {}",
            self.stall_us as f64 / 1e6,
            self.job_errors
        )?;
        if let Some(error) = &self.last_error {
            write!(f, " (last: {error})")?;
        }
        if self.recovery.torn_bytes > 0 {
            write!(
                f,
                "\nthe last crash left a torn log: {} bytes dropped",
                self.recovery.torn_bytes
            )?;
        }
        Ok(())
    }
}
