//! Thermocline through its public interface, with default options but for the
//! means that every engine is given.

use std::path::Path;
use std::time::Duration;

use ::thermocline::{BulkLoad, Db, Iter, Options};

use super::{Cursor, Engine, EngineOptions, Load, Result};

/// An open Thermocline.
pub(crate) struct Thermocline {
    db: Db,
}

impl Engine for Thermocline {
    type Cursor<'a> = ThermoclineCursor;
    type Load<'a> = ThermoclineLoad;

    fn open(path: &Path, given: &EngineOptions) -> Result<Self> {
        let options = Options::at(path)
            .write_buffer_bytes(given.write_buffer_bytes as u64)
            .block_cache_bytes(given.block_cache_bytes as u64)
            .filter_bits_per_key(given.filter_bits_per_key)
            .background_threads(given.background_threads as usize);
        Ok(Thermocline {
            db: Db::open(options)?,
        })
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
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

    fn memory_bytes_max(&self) -> Option<u64> {
        let memory = self.db.stats().memory;
        // The default bound of metadata is far above what a store of this size
        // has: what it has is the tighter promise.
        Some(memory.max.total() - memory.max.table_metadata + memory.used.table_metadata)
    }
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
