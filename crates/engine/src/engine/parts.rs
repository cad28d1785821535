//! The parts of a keyspace in memory: memtables, and the picture that reads hold.

use std::sync::Arc;

use thermocline_model::cuts::Cuts;
use thermocline_model::key::Prefix;

use super::RANGE_DELETES_MAX;
use crate::memory::{ArenaPool, Memtable, MemtableOptions, TinyCounts};
use crate::merge::{PieceCursor, Source};
use crate::options::Options;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::version::tree::Tree;

/// A memtable with what the log and the flush must know of it.
pub(crate) struct LiveMemtable {
    pub(crate) table: Arc<Memtable>,
    /// The oldest log segment with an entry of it; `u64::MAX` while empty.
    pub(crate) oldest_segment: AtomicU64,
    /// The newest entry that was assigned to it.
    pub(crate) last_seq: AtomicU64,
    /// The oldest entry that was assigned to it, or older; `u64::MAX` while empty.
    pub(crate) first_seq: AtomicU64,
    /// Writers that were assigned entries and have not inserted them yet.
    pub(crate) pending: AtomicUsize,
    /// Parts that have it in their lists: when cuts move, those that it reaches into.
    pub(crate) holders: AtomicUsize,
    /// Whether it was there before the cuts moved, so that it may hold entries of other
    /// parts, some of which may be out of date: they are in tables already.
    pub(crate) older: AtomicBool,
}

impl std::fmt::Debug for LiveMemtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveMemtable")
            .field("size_bytes", &self.table.size_bytes())
            .finish_non_exhaustive()
    }
}

impl LiveMemtable {
    pub(super) fn new(
        options: &Options,
        prefix: Prefix,
        pool: &Arc<ArenaPool>,
    ) -> Arc<LiveMemtable> {
        let table = Memtable::new(MemtableOptions {
            capacity_bytes: options.memtable_capacity(),
            prefix,
            filter: true,
            pool: Arc::clone(pool),
        });
        Arc::new(LiveMemtable {
            table: Arc::new(table),
            oldest_segment: AtomicU64::new(u64::MAX),
            last_seq: AtomicU64::new(0),
            first_seq: AtomicU64::new(u64::MAX),
            pending: AtomicUsize::new(0),
            holders: AtomicUsize::new(1),
            older: AtomicBool::new(false),
        })
    }

    /// What it has of the keys from `low` up to `high`, exclusive: those of a part that has it.
    pub(crate) fn source(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Source {
        let cursor = self.table.cursor();
        match self.older.load(Ordering::Acquire) {
            true => Source::Piece(PieceCursor::new(cursor, low, high)),
            false => Source::Memory(cursor),
        }
    }

    /// Bytes of it for each part that has it.
    pub(crate) fn size_share(&self) -> usize {
        self.table.size_bytes() / self.holders.load(Ordering::Relaxed).max(1)
    }

    /// Memory of it for each part that has it, in bytes.
    pub(crate) fn resident_share(&self) -> usize {
        self.table.resident_bytes() / self.holders.load(Ordering::Relaxed).max(1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.oldest_segment.load(Ordering::Acquire) == u64::MAX
    }

    pub(crate) fn is_full(&self) -> bool {
        self.table.is_full() || self.table.range_deletes().len() >= RANGE_DELETES_MAX
    }
}

/// The memtables of a part as reads see them.
#[derive(Clone, Debug)]
pub(crate) struct PartView {
    pub(crate) active: Arc<LiveMemtable>,
    /// Those that take writes as well, where the part is duplicated.
    pub(crate) twins: Vec<Arc<LiveMemtable>>,
    /// Newest first.
    pub(crate) sealed: Vec<Arc<LiveMemtable>>,
    /// Whether the part is duplicated, or was and its memtables are still there: of a key
    /// that is in several, numbers tell the newest entry, not positions.
    pub(crate) by_number: bool,
    /// Counts its writes, where cuts move.
    pub(crate) tiny: Option<Arc<TinyCounts>>,
    /// Bytes of memtables that were flushed since the store was opened.
    pub(crate) flushed_bytes: Arc<AtomicU64>,
}

impl PartView {
    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<LiveMemtable>> {
        self.takers().chain(&self.sealed)
    }

    /// The memtables that take writes.
    pub(crate) fn takers(&self) -> impl Iterator<Item = &Arc<LiveMemtable>> {
        std::iter::once(&self.active).chain(&self.twins)
    }

    /// The one that takes the writes of a batch; any number does as `turn`, if it is the same for all of
    /// the batch.
    #[inline]
    pub(crate) fn taker(&self, turn: u64) -> &Arc<LiveMemtable> {
        match self.twins.len() as u64 {
            0 => &self.active,
            twins => self
                .twins
                .get((turn % (twins + 1)) as usize)
                .unwrap_or(&self.active),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.takers().any(|m| m.is_full())
    }

    /// Whether nothing was written to it since it was sealed.
    pub(crate) fn takers_are_empty(&self) -> bool {
        self.takers().all(|m| m.is_empty())
    }
}

/// Everything a read needs of a keyspace: an immutable picture.
#[derive(Debug)]
pub(crate) struct ReadView {
    pub(crate) cuts: Arc<Cuts>,
    pub(crate) parts: Vec<PartView>,
    pub(crate) tree: Arc<Tree>,
}
