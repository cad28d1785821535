//! An engine that does nothing: what a row costs with it is the driver's own
//! cost, to be kept in mind beside every other number.

use std::hint::black_box;
use std::time::Duration;

use super::{Counted, Cursor, Engine, EngineOptions, Home, Load, Result};

/// The value that every key seems to have.
const VALUE: [u8; 100] = [b'v'; 100];

/// The engine that does nothing.
pub(crate) struct Null {
    entries: u64,
}

/// A cursor that counts its steps.
pub(crate) struct NullCursor {
    left: u64,
    entries: u64,
}

/// A load that forgets.
pub(crate) struct NullLoad;

impl Engine for Null {
    const CHECKED: bool = false;
    type Cursor<'a> = NullCursor;
    type Load<'a> = NullLoad;

    fn open(_homes: &[Home], options: &EngineOptions) -> Result<Self> {
        Ok(Null {
            entries: options.entries,
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        black_box((key, value));
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        black_box(key);
        Ok(())
    }

    fn get(&self, key: &[u8], mut see: impl FnMut(&[u8])) -> Result<bool> {
        black_box(key);
        see(black_box(&VALUE));
        Ok(true)
    }

    fn multi_get(&self, keys: &[&[u8]], mut see: impl FnMut(&[u8])) -> Result<usize> {
        for key in keys {
            black_box(key);
            see(black_box(&VALUE));
        }
        Ok(keys.len())
    }

    fn cursor(&self) -> Result<NullCursor> {
        Ok(NullCursor {
            left: 0,
            entries: self.entries,
        })
    }

    fn bulk_load(&self) -> Result<NullLoad> {
        Ok(NullLoad)
    }

    fn settle(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn counted(&self) -> Result<Vec<Counted>> {
        Ok(Vec::new())
    }
}

impl Cursor for NullCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        black_box(key);
        self.left = self.entries;
        Ok(())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.left = self.entries;
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.left = self.entries;
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.left = black_box(self.left - 1);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.left = black_box(self.left - 1);
        Ok(())
    }

    fn valid(&self) -> bool {
        self.left > 0
    }

    fn key(&self) -> &[u8] {
        &VALUE[..16]
    }

    fn value(&self) -> &[u8] {
        &VALUE
    }

    fn status(&self) -> Result<()> {
        Ok(())
    }
}

impl Load for NullLoad {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        black_box((key, value));
        Ok(())
    }

    fn finish(self) -> Result<()> {
        Ok(())
    }
}
