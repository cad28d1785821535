//! A memtable: the sorted list of point entries, its range deletes, a filter.
//!
//! Inserts and reads run side by side without a lock, but for range deletes,
//! whose writers take turns. What a reader may see is not decided here: entries
//! are found as soon as they are inserted, and readers pass a snapshot below
//! what is still being written.
//!
//! Invariant: the filter knows a key, and a range delete is in the cover, before
//! the call that inserts it returns.

use std::sync::Arc;

use thermocline_model::cover::{Cover, RangeDelete};
use thermocline_model::key::{Kind, Prefix, SeqNo};

use super::arena::ArenaPool;
use super::filter::Filter;
use super::skiplist::{Hit, ListCursor, MemValue, SkipList};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{ArcSwap, Mutex};

/// What an entry takes beyond its key and value, about.
const ENTRY_BYTES: usize = 48;

/// How to make a [`Memtable`].
#[derive(Clone)]
pub struct MemtableOptions {
    /// Bytes of entries, with what it takes to hold them, after which the
    /// memtable is full.
    pub capacity_bytes: usize,
    /// What the keys are expected to have in common. A wrong guess costs speed
    /// and nothing else.
    pub prefix: Prefix,
    /// Keep a filter, so that asking for an absent key costs one line of memory.
    pub filter: bool,
    /// Where the memory comes from and returns to.
    pub pool: Arc<ArenaPool>,
}

/// Entries in memory.
pub struct Memtable {
    list: Arc<SkipList>,
    filter: Option<Filter>,
    has_range_deletes: AtomicBool,
    capacity_bytes: usize,
    cover: ArcSwap<Cover>,
    cover_bytes: AtomicUsize,
    /// Held to change `cover`.
    cover_writer: Mutex<()>,
}

impl Memtable {
    /// An empty memtable.
    #[must_use]
    pub fn new(options: MemtableOptions) -> Memtable {
        let capacity = options.capacity_bytes;
        // A memtable is looked at before a batch, not within: room for what a
        // batch adds past the capacity. Pages not written take no memory.
        let arena_bytes = capacity + capacity / 8 + (256 << 10);
        Memtable {
            list: Arc::new(SkipList::new(arena_bytes, options.prefix, options.pool)),
            filter: options.filter.then(|| Filter::new(capacity)),
            has_range_deletes: AtomicBool::new(false),
            capacity_bytes: capacity,
            cover: ArcSwap::from_pointee(Cover::default()),
            cover_bytes: AtomicUsize::new(0),
            cover_writer: Mutex::new(()),
        }
    }

    /// Inserts a put or a delete. Always finds room; a memtable that is full
    /// merely grows. A second entry of the same key and number is ignored.
    ///
    /// `hash` is the key's 64-bit hash, the same one for the same key always.
    ///
    /// Requires: `key` and `value` within the limits of the model.
    #[inline]
    pub fn insert(&self, key: &[u8], hash: u64, seq: SeqNo, kind: Kind, value: &[u8]) {
        match &self.filter {
            Some(filter) => {
                filter.prefetch(hash);
                self.list.insert(key, seq, kind, value, || filter.add(hash));
            }
            None => self.list.insert(key, seq, kind, value, || ()),
        }
    }

    /// Deletes every key from `start` up to `end`, exclusive, that is older than
    /// `seq`. Costs time in proportion to the range deletes already here.
    pub fn insert_range_delete(&self, start: &[u8], end: &[u8], seq: SeqNo) {
        let _turn = self.cover_writer.lock();
        let cover = self.cover.load().with(&RangeDelete {
            start: start.into(),
            end: end.into(),
            seq,
        });
        self.cover_bytes.store(cover.bytes(), Ordering::Relaxed);
        let any = !cover.is_empty();
        self.cover.store(Arc::new(cover));
        self.has_range_deletes.store(any, Ordering::Release);
    }

    /// Inserts all range deletes of `added`, at the cost of those that are there once.
    pub fn insert_range_deletes(&self, added: &Cover) {
        let _turn = self.cover_writer.lock();
        let cover = Cover::merge([&*self.cover.load_full(), added]);
        self.cover_bytes.store(cover.bytes(), Ordering::Relaxed);
        let any = !cover.is_empty();
        self.cover.store(Arc::new(cover));
        self.has_range_deletes.store(any, Ordering::Release);
    }

    /// The newest put or delete of `key` with a number up to `snapshot`. Range
    /// deletes are not looked at: see [`Memtable::cover`].
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8], hash: u64, snapshot: SeqNo) -> Option<Hit<'_>> {
        if self.surely_lacks(hash) {
            return None;
        }
        self.list.get(key, snapshot)
    }

    /// As [`Memtable::get`], with a value that outlives the memtable.
    #[inline]
    #[must_use]
    pub fn get_pinned(
        &self,
        key: &[u8],
        hash: u64,
        snapshot: SeqNo,
    ) -> Option<(SeqNo, Kind, MemValue)> {
        if self.surely_lacks(hash) {
            return None;
        }
        self.list.get_pinned(key, snapshot)
    }

    /// The newest range delete over `key` with a number up to `snapshot`.
    #[inline]
    #[must_use]
    pub fn cover(&self, key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        if !self.has_range_deletes() {
            return None;
        }
        self.cover.load().newest(key, snapshot)
    }

    /// The range deletes as of now.
    #[must_use]
    pub fn range_deletes(&self) -> Arc<Cover> {
        self.cover.load_full()
    }

    /// True when there is any range delete.
    #[inline]
    #[must_use]
    pub fn has_range_deletes(&self) -> bool {
        self.has_range_deletes.load(Ordering::Acquire)
    }

    /// Memory in use: entries, large values and range deletes, without the filter.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.list.bytes() + self.cover_bytes.load(Ordering::Relaxed)
    }

    /// Memory that the system gives it: what is in use, by whole pages, pages that
    /// earlier memtables have written, and the filter.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        self.list.resident_bytes() + self.cover_bytes.load(Ordering::Relaxed) + self.filter_bytes()
    }

    /// Memory of the filter, which is there from the start.
    #[must_use]
    pub fn filter_bytes(&self) -> usize {
        self.filter.as_ref().map_or(0, |f| f.bytes())
    }

    /// True when the next entry should go to another memtable.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.size_bytes() >= self.capacity_bytes
    }

    /// Bytes at which it is full.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Point entries inserted.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.list.entries()
    }

    /// How many keys there are, and the bytes of their newest entries with what it
    /// takes to hold them, if there are fewer than `keys_max`; each stretch of range
    /// deletes counts as a key. Costs one search a key, however many entries there are.
    #[must_use]
    pub fn few_keys(&self, keys_max: usize) -> Option<(usize, usize)> {
        let cover = self.cover.load();
        let (mut keys, mut bytes) = (cover.len(), cover.bytes());
        let mut cursor = self.cursor();
        let mut key = Vec::new();
        cursor.seek_first();
        while cursor.valid() && keys < keys_max {
            keys += 1;
            bytes += cursor.key().len() + cursor.value().len() + ENTRY_BYTES;
            key.clear();
            key.extend_from_slice(cursor.key());
            // Numbers begin at 1, so this lies behind every entry of the key.
            cursor.seek(&key, SeqNo::ZERO);
        }
        (keys < keys_max).then_some((keys, bytes))
    }

    /// True when there is neither a point entry nor a range delete.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_range_deletes()
    }

    /// The smallest key of point entries.
    #[must_use]
    pub fn smallest_key(&self) -> Option<&[u8]> {
        self.list.first_key()
    }

    /// The largest key of point entries.
    #[must_use]
    pub fn largest_key(&self) -> Option<&[u8]> {
        self.list.last_key()
    }

    /// A cursor over the point entries, at none as yet. It keeps the entries
    /// alive, and sees those inserted after it was made.
    #[must_use]
    pub fn cursor(&self) -> MemtableCursor {
        MemtableCursor(ListCursor::new(Arc::clone(&self.list)))
    }

    #[inline]
    fn surely_lacks(&self, hash: u64) -> bool {
        self.filter
            .as_ref()
            .is_some_and(|filter| !filter.may_contain(hash))
    }
}

/// A position among the point entries of a memtable, or none ("not valid").
///
/// Entries stand in the order of the store: key ascending, number descending.
/// Asking for the entry of a cursor that is not valid panics.
pub struct MemtableCursor(ListCursor);

impl MemtableCursor {
    /// True when the cursor is at an entry.
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.0.valid()
    }

    /// Goes to the first entry, if there is any.
    pub fn seek_first(&mut self) {
        self.0.seek_first();
    }

    /// Goes to the last entry, if there is any.
    pub fn seek_last(&mut self) {
        self.0.seek_last();
    }

    /// Goes to the first entry at or after `key` and `seq`, if there is one.
    #[inline]
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) {
        self.0.seek(key, seq);
    }

    /// Goes to the last entry before `key` and `seq`, if there is one.
    #[inline]
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) {
        self.0.seek_before(key, seq);
    }

    /// Goes one entry on; past the last, and from nowhere, the cursor is not valid.
    #[inline]
    pub fn next(&mut self) {
        self.0.next();
    }

    /// Goes one entry back; before the first, and from nowhere, the cursor is
    /// not valid. A run of calls costs little more each than `next`.
    #[inline]
    pub fn prev(&mut self) {
        self.0.prev();
    }

    /// The entry's user key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// The entry's sequence number.
    #[inline]
    #[must_use]
    pub fn seq(&self) -> SeqNo {
        self.0.entry().seq
    }

    /// Put or delete.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.entry().kind
    }

    /// The entry's value; empty for a delete.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.0.entry().value
    }

    /// The entry's value, without a copy and for as long as wanted.
    #[must_use]
    pub fn value_ref(&self) -> MemValue {
        self.0.value_ref()
    }
}
