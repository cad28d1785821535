//! Thermocline through its public interface, with default options, or those of
//! a file, but for the tiers and the means that every engine is given.
//!
//! The capacity of a fast tier is what its tables may have, as RocksDB's target
//! sizes are; the log and the reserve for flushes come beside it. Where the fast
//! tier is small the first level is no larger than half of it, and segments of
//! the log are no larger than the write buffer.

use std::time::Duration;

use ::thermocline::{BulkLoad, Db, DeviceProfile, Durability, Iter, Options, Tier};

use super::{Compression, Counted, Cursor, Engine, EngineOptions, Home, Load, Result};

/// The reserve of the fast tier for log and flushes: the engine's default.
const RESERVE_BYTES_MAX: u64 = 16 << 20;

/// The least first level, and the most, which is RocksDB's default.
const FIRST_LEVEL_BYTES: [u64; 2] = [1 << 20, 256 << 20];

/// The least and the default log segment.
const LOG_SEGMENT_BYTES: [u64; 2] = [1 << 20, 32 << 20];

/// An open Thermocline.
pub(crate) struct Thermocline {
    db: Db,
}

impl Engine for Thermocline {
    type Cursor<'a> = ThermoclineCursor;
    type Load<'a> = ThermoclineLoad;

    fn open(homes: &[Home], given: &EngineOptions) -> Result<Self> {
        Ok(Thermocline {
            db: Db::open(options(homes, given)?)?,
        })
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete(key)?)
    }

    #[inline]
    fn get(&self, key: &[u8], mut see: impl FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get(key)?;
        if let Some(value) = &value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], mut see: impl FnMut(&[u8])) -> Result<usize> {
        let mut found = 0;
        for value in self.db.multi_get(keys)?.iter().flatten() {
            see(value);
            found += 1;
        }
        Ok(found)
    }

    fn cursor(&self) -> Result<ThermoclineCursor> {
        Ok(ThermoclineCursor(self.db.iter()?))
    }

    fn bulk_load(&self) -> Result<ThermoclineLoad> {
        Ok(ThermoclineLoad(self.db.bulk_load()?))
    }

    fn settle(&self) -> Result<Duration> {
        self.db.flush()?;
        self.db.settle()?;
        Ok(Duration::ZERO)
    }

    fn counted(&self) -> Result<Vec<Counted>> {
        let stats = self.db.stats();
        let mut counted = vec![
            Counted::new("flushes", stats.flushes),
            Counted::new("merges", stats.merges),
            Counted::new("merges by edit alone", stats.merges_by_edit),
            Counted::new("tables moved", stats.tables_moved),
            Counted::new("relocations", stats.relocations),
            Counted::new("flushed bytes", stats.flushed_bytes),
            Counted::new("merge read bytes", stats.merge_in_bytes),
            Counted::new("merged bytes", stats.merge_out_bytes),
            Counted::new("relocated bytes", stats.relocated_bytes),
            Counted::new("folds", stats.folds),
            Counted::new("logged anew bytes", stats.restated_bytes),
            Counted::new("lookup index us", stats.lookup.cpu_us),
            Counted::new("stall us", stats.stall_us),
            Counted::new("stalled us", stats.stalled_us),
            Counted::new("of these for memory", stats.stalled_for.memory_us),
            Counted::new("for runs", stats.stalled_for.runs_us),
            Counted::new("for room", stats.stalled_for.room_us),
            Counted::new("stopped us", stats.stalled_for.stopped_us),
            Counted::new("memtable hits", stats.memtable_hits),
            Counted::new("cached hits", stats.cached_hits),
        ];
        for tier in &stats.tiers {
            counted.push(Counted::new(format!("{} hits", tier.name), tier.hits));
        }
        Ok(counted)
    }

    fn tables(&self) -> Option<u64> {
        Some(self.db.stats().tiers.iter().map(|tier| tier.tables).sum())
    }

    fn memory_bytes_max(&self) -> Option<u64> {
        let memory = self.db.stats().memory;
        // The default bound of metadata is far above what a store of this size
        // has: what it has is the tighter promise.
        Some(memory.max.total() - memory.max.table_metadata + memory.used.table_metadata)
    }
}

impl Thermocline {
    /// The store itself, for what no other engine has.
    pub(crate) fn db(&self) -> &Db {
        &self.db
    }
}

/// The store's options.
fn options(homes: &[Home], given: &EngineOptions) -> Result<Options> {
    let mut options = match &given.options_file {
        Some(path) => Options::from_file(path)?,
        None => Options::new(),
    };
    let compression = match given.compression {
        Compression::None => thermocline::Compression::None,
        Compression::Lz4 => thermocline::Compression::Lz4,
        Compression::Zstd => thermocline::Compression::Zstd,
        Compression::Snappy => return given.compression.refused("thermocline"),
    };
    let fast_bytes = homes.first().and_then(|home| home.capacity_bytes);
    let reserve_bytes = (given.write_buffer_bytes as u64).min(RESERVE_BYTES_MAX);
    let mut tiers = Vec::new();
    for (index, home) in homes.iter().enumerate() {
        let mut tier = Tier::new(&home.name, &home.path)
            .compression(compression)
            .price_usd_gb_month(home.price_usd_gb_month)
            .direct_io(given.direct_reads);
        if let Some(bytes) = home.capacity_bytes {
            let beside = if index == 0 { reserve_bytes } else { 0 };
            tier = tier.capacity_bytes(bytes + beside);
        }
        if let Some([random_read_iops, sequential_mb_s]) = home.profile {
            tier = tier.profile(DeviceProfile {
                random_read_iops,
                sequential_mb_s,
            });
        }
        tiers.push(tier);
    }
    if given.options_file.is_none() {
        if let Some(bytes) = fast_bytes {
            let [least, most] = FIRST_LEVEL_BYTES;
            options = options.first_level_bytes((bytes / 2).clamp(least, most));
        }
        let [least, most] = LOG_SEGMENT_BYTES;
        let segment = (given.write_buffer_bytes as u64).clamp(least, most);
        options = options.log_segment_bytes(segment);
    }
    if let Some(preset) = &given.preset {
        options = options.preset(preset);
    }
    Ok(options
        .with_tiers(tiers)
        // The bytes are a budget and not what the device has: none are to be left.
        .tier_fill_share(1.0)
        .reserve_bytes(reserve_bytes)
        .write_buffer_bytes(given.write_buffer_bytes as u64)
        .block_cache_bytes(given.block_cache_bytes as u64)
        .filter_bits_per_key(given.filter_bits_per_key)
        .background_threads(given.background_threads as usize)
        .durability(match given.synced {
            true => Durability::Device,
            false => Durability::OperatingSystem,
        }))
}

/// A cursor over a Thermocline.
pub(crate) struct ThermoclineCursor(Iter);

impl Cursor for ThermoclineCursor {
    #[inline]
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.0.seek(key)?)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        Ok(self.0.seek_to_first()?)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        Ok(self.0.seek_to_last()?)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        Ok(self.0.next()?)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        Ok(self.0.prev()?)
    }

    #[inline]
    fn valid(&self) -> bool {
        self.0.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.0.key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.0.value()
    }

    fn status(&self) -> Result<()> {
        // Every move has already returned its error.
        Ok(())
    }
}

/// A bulk load of a Thermocline.
pub(crate) struct ThermoclineLoad(BulkLoad);

impl Load for ThermoclineLoad {
    #[inline]
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.add(key, value)?)
    }

    fn finish(self) -> Result<()> {
        self.0.finish()?;
        Ok(())
    }
}
