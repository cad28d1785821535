//! What the open tables of a store share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ahead::GoingOnByTier;
use super::read_cost::ReadCosts;
use crate::cache::BlockCache;
use crate::store::{Clock, Readers};

/// What the open tables of a store share.
#[derive(Debug)]
pub struct TableContext {
    /// The block cache.
    pub cache: Arc<BlockCache>,
    /// Bytes of the indexes and filters of all open tables.
    pub(super) pinned_bytes: AtomicU64,
    /// None where nothing is to be read ahead of need.
    readers: Option<Readers>,
    /// By tier, how many uses of a block in the cache count as one.
    pub(super) uses_for_one: Vec<u32>,
    /// By tier, the bytes that may be read in vain for a read less.
    pub(super) bytes_for_one_read: Vec<u64>,
    /// Whether scans go on where they have begun.
    pub(super) going_on: GoingOnByTier,
    /// What reads take of late.
    pub(super) read_costs: ReadCosts,
}

impl TableContext {
    /// A context around `cache`.
    #[must_use]
    pub fn new(cache: Arc<BlockCache>) -> TableContext {
        TableContext {
            cache,
            pinned_bytes: AtomicU64::new(0),
            readers: None,
            uses_for_one: Vec::new(),
            bytes_for_one_read: Vec::new(),
            going_on: GoingOnByTier::default(),
            read_costs: ReadCosts::by(None),
        }
    }

    /// Times reads by `clock`, so that what costs next to nothing to read only gets a place in the
    /// cache if it is missed again soon; without, all does.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> TableContext {
        self.read_costs = ReadCosts::by(Some(clock));
        self
    }

    /// Where of each tier so many uses of its blocks in the cache count as one; without, each
    /// counts.
    #[must_use]
    pub fn with_uses_for_one(mut self, uses_for_one: Vec<u32>) -> TableContext {
        self.uses_for_one = uses_for_one;
        self
    }

    /// Where of each tier so many bytes may be read in vain for a read less; without, scans read
    /// ahead as from the slowest devices.
    #[must_use]
    pub fn with_bytes_for_one_read(mut self, bytes_for_one_read: Vec<u64>) -> TableContext {
        self.bytes_for_one_read = bytes_for_one_read;
        self
    }

    /// With `threads` threads that read ahead of need from objects that the
    /// operating system does not read ahead from; 0 for none.
    #[must_use]
    pub fn with_readers(mut self, threads: usize) -> TableContext {
        self.readers = (threads > 0).then(|| Readers::new(threads));
        self
    }

    /// The threads that read ahead.
    #[inline]
    pub(crate) fn readers(&self) -> Option<&Readers> {
        self.readers.as_ref()
    }

    /// Ends the threads that read ahead: everything is then read when needed.
    pub(crate) fn close_readers(&self) {
        if let Some(readers) = &self.readers {
            readers.close();
        }
    }

    /// Bytes of the indexes and filters of all open tables.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }
}
