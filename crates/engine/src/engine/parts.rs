//! The parts of a keyspace in memory: memtables, and the picture that reads hold.

use std::sync::{Arc, OnceLock};

use thermocline_model::cuts::Cuts;
use thermocline_model::edit::Change;
use thermocline_model::key::Prefix;
use thermocline_model::version::{Keyspace, KeyspaceId, Tiny};
use thermocline_model::view::FewKeys;

use super::RANGE_DELETES_MAX;
use crate::memory::{ArenaPool, Memtable, MemtableOptions, TinyCounts};
use crate::merge::{PieceCursor, Source};
use crate::options::Options;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::version::tree::Tree;

/// The least that a folded memtable is made for, in bytes.
const FOLDED_BYTES_MIN: usize = 4 << 10;

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
    /// Of a memtable that a fold made, the last number under which its entries were
    /// logged anew: up to there the log must be durable before what they were in goes.
    /// 0 for any other.
    pub(crate) restated_upto: AtomicU64,
    /// What number the lookup index knows it by; 0 if it does not (see [`crate::lookup`]).
    pub(crate) stamp: AtomicU64,
    /// How many keys it has and what they take, if these are fewer than the options
    /// say; known once it is sealed and whole.
    few: OnceLock<Option<FewKeys>>,
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
        takers: u64,
        prefix: Prefix,
        pool: &Arc<ArenaPool>,
    ) -> Arc<LiveMemtable> {
        LiveMemtable::around(Memtable::new(MemtableOptions {
            capacity_bytes: options.memtable_capacity(takers),
            prefix,
            filter: options.memtable_filters,
            pool: Arc::clone(pool),
        }))
    }

    fn around(table: Memtable) -> Arc<LiveMemtable> {
        Arc::new(LiveMemtable {
            table: Arc::new(table),
            oldest_segment: AtomicU64::new(u64::MAX),
            last_seq: AtomicU64::new(0),
            first_seq: AtomicU64::new(u64::MAX),
            pending: AtomicUsize::new(0),
            restated_upto: AtomicU64::new(0),
            stamp: AtomicU64::new(0),
            few: OnceLock::new(),
            holders: AtomicUsize::new(1),
            older: AtomicBool::new(false),
        })
    }

    /// Memory that an empty one takes where so many share the write buffer, in bytes.
    pub(crate) fn empty_bytes(options: &Options, takers: u64) -> u64 {
        // One whose pages nobody has written before.
        let none = ArenaPool::new(0);
        let empty = LiveMemtable::new(options, takers, Prefix::default(), &none);
        empty.table.resident_bytes() as u64
    }

    /// A memtable for what survives of others, about `bytes` bytes.
    pub(crate) fn folded(options: &Options, bytes: usize, prefix: Prefix) -> Arc<LiveMemtable> {
        let table = Memtable::new(MemtableOptions {
            capacity_bytes: bytes.max(FOLDED_BYTES_MIN),
            prefix,
            filter: options.memtable_filters,
            // Of a size that no other memtable has.
            pool: ArenaPool::new(0),
        });
        LiveMemtable::around(table)
    }

    /// Notes that it holds what `other` does, or some of it: the log must be there for both.
    pub(crate) fn widen(&self, other: &LiveMemtable) {
        let order = Ordering::AcqRel;
        let of = |bound: &AtomicU64| bound.load(Ordering::Acquire);
        self.oldest_segment
            .fetch_min(of(&other.oldest_segment), order);
        self.first_seq.fetch_min(of(&other.first_seq), order);
        self.last_seq.fetch_max(of(&other.last_seq), order);
        self.restated_upto
            .fetch_max(of(&other.restated_upto), order);
    }

    /// Whether a fold made it.
    pub(crate) fn is_folded(&self) -> bool {
        self.restated_upto.load(Ordering::Acquire) > 0
    }

    /// Its keys, if they are fewer than `keys_max`. What is found of a sealed one is
    /// kept.
    pub(crate) fn few_keys(&self, keys_max: usize, is_sealed: bool) -> Option<FewKeys> {
        let count = || self.table.few_keys(keys_max).map(FewKeys::from);
        if !is_sealed || self.pending.load(Ordering::Acquire) > 0 {
            return count();
        }
        *self.few.get_or_init(count)
    }

    /// What it has of the keys from `low` up to `high`, exclusive: those of a part that has it.
    pub(crate) fn source(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Source {
        let cursor = self.table.cursor();
        Source::Memory(match self.older.load(Ordering::Acquire) {
            true => PieceCursor::new(cursor, low, high),
            false => cursor.into(),
        })
    }

    /// Bytes of it for each part that has it.
    pub(crate) fn size_share(&self) -> usize {
        self.table.size_bytes() / self.holders.load(Ordering::Relaxed).max(1)
    }

    /// Memory of it for each part that has it, in bytes.
    pub(crate) fn resident_share(&self) -> usize {
        self.table.resident_bytes() / self.holders.load(Ordering::Relaxed).max(1)
    }

    /// Memory of it, whoever else has it, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.table.resident_bytes() as u64
    }

    /// The most memory that it comes to take before it is sealed, in bytes; a batch larger than
    /// that goes to it all the same.
    pub(crate) fn memory_bytes_max(&self) -> u64 {
        crate::footprint::memtable_bytes_max(self.table.capacity_bytes() as u64)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.oldest_segment.load(Ordering::Acquire) == u64::MAX
    }

    pub(crate) fn is_full(&self) -> bool {
        self.table.is_full() || self.table.range_deletes().len() >= RANGE_DELETES_MAX
    }
}

/// The stamp by which the index may pass over all of `memtables` together.
pub(crate) fn lowest_stamp(memtables: &[Arc<LiveMemtable>]) -> u64 {
    let stamps = memtables.iter().map(|m| m.stamp.load(Ordering::Acquire));
    stamps.min().unwrap_or(0)
}

/// What the manifest has the writes to all parts of a keyspace sum up to.
const RECORDED_WRITES: u64 = 1 << 20;

/// What the manifest is told of `parts`: their duplicates, and their shares of the writes. Shares,
/// since parts are recorded one by one as they are flushed, and all counters are halved now and
/// then in between.
pub(crate) fn recorded(
    keyspace: KeyspaceId,
    parts: &[PartView],
) -> impl Iterator<Item = Change> + '_ {
    let counters = parts.iter().filter_map(|part| part.tiny.as_ref());
    let all: u64 = counters.map(|tiny| tiny.total()).sum();
    let share = move |tiny: Tiny| {
        let writes = u128::from(tiny.writes) * u128::from(RECORDED_WRITES) / u128::from(all.max(1));
        Tiny {
            writes: writes as u64,
            ..tiny
        }
    };
    parts.iter().zip(0..).map(move |(part, at)| {
        let tiny = part.tiny.as_ref().map_or_else(Vec::new, |t| t.tiny());
        Change::SetTiny {
            keyspace,
            part: at,
            duplicates: part.twins.len() as u32,
            tiny: tiny.into_iter().map(share).collect(),
        }
    })
}

/// What an opening recalls of the writes to the parts of `keyspace`: shares as the manifest has
/// them, of `writes_max` writes at most. There are a million in the manifest however few were
/// counted, against which a few thousand new ones would weigh nothing. They are rounded together,
/// so that each part has its share to one write.
pub(crate) fn recalled(keyspace: &Keyspace, writes_max: u64) -> Vec<Vec<Tiny>> {
    let parts = keyspace.parts.iter();
    let writes = parts.clone().flat_map(|part| &part.tiny);
    let all: u128 = writes.map(|tiny| u128::from(tiny.writes)).sum();
    let most = all.min(u128::from(writes_max));
    let (mut before, mut given) = (0u128, 0u128);
    let mut share = |tiny: &Tiny| {
        before += u128::from(tiny.writes);
        let upto = before.saturating_mul(most) / all.max(1);
        let writes = (upto - given) as u64;
        given = upto;
        Tiny {
            start: tiny.start.clone(),
            writes,
        }
    };
    parts
        .map(|part| part.tiny.iter().map(&mut share).collect())
        .collect()
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

    /// The one that takes the writes of a batch; any number does as `turn`, if it is the same for
    /// all of the batch.
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

    /// A flush has put `memtables` into tables.
    pub(crate) fn let_go(&mut self, memtables: &[Arc<LiveMemtable>]) {
        let bytes: usize = memtables.iter().map(|m| m.size_share()).sum();
        self.flushed_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        self.sealed
            .retain(|m| !memtables.iter().any(|s| Arc::ptr_eq(s, m)));
        self.by_number &= !self.twins.is_empty() || !self.sealed.is_empty();
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
    /// Of each part, the stamps of its memtables and newest runs, newest first, each no
    /// higher than the one before; none where no memtable has one.
    stamps: Vec<Box<[u64]>>,
}

impl ReadView {
    pub(crate) fn new(cuts: Arc<Cuts>, parts: Vec<PartView>, tree: Arc<Tree>) -> ReadView {
        let stamp = |part: &PartView| part.active.stamp.load(Ordering::Acquire);
        let stamps = match parts.iter().any(|part| stamp(part) > 0) {
            true => parts.iter().enumerate(),
            false => [].iter().enumerate(),
        };
        let stamps = stamps.map(|(at, part)| {
            let memtables = part.memtables();
            let memtables = memtables.map(|m| m.stamp.load(Ordering::Acquire));
            let runs = tree.newest(at).iter().map(|run| run.stamp);
            let mut lowest = u64::MAX;
            let falling = memtables.chain(runs).map(|stamp| {
                // What lies behind something that cannot be passed over cannot either.
                lowest = lowest.min(stamp);
                lowest
            });
            falling.collect()
        });
        ReadView {
            stamps: stamps.collect(),
            cuts,
            parts,
            tree,
        }
    }

    /// How many memtables take writes.
    pub(crate) fn takers(&self) -> usize {
        self.parts.iter().map(|part| part.takers().count()).sum()
    }

    /// See the field; empty where there are none.
    #[inline]
    pub(crate) fn stamps(&self, part: usize) -> &[u64] {
        self.stamps.get(part).map_or(&[], |stamps| stamps)
    }
}
