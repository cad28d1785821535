//! The lookup index of a store: when it is used, what it costs.
//!
//! One index serves all keyspaces. A memtable made while it is in use has a stamp, which the tables
//! made of it keep; those without one, and all behind them, are searched as if there were no index.
//! So what a bulk load brings and what a merge makes is outside of it, until merges have taken it
//! to the levels below. An opening has the index know what tables have of the newest runs
//! (`open/indexed.rs`).
//!
//! What the index saves is asking the filter of each memtable and run that is newer than the key's
//! entry, one line of memory each. What it costs is one line for each put and for each read. With
//! few memtables it costs more; so by default a memtable gets a stamp only if a read of its part
//! has many places to look in ([`PLACES_MIN`]), and only as long as what is passed over was worth
//! it ([`thermocline_policy::plan::lookup`]). Uses are counted by samples.
//!
//! Range deletes are no keys: nothing is passed over that is not newer than the newest
//! memtable that got one.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};

use thermocline_model::view::{LookupTurns, LookupUse, LookupView};
use thermocline_policy::plan::lookup::{PLACES_PER_USE, turns};

use crate::engine::PartView;
use crate::memory::Lookup;
use crate::options::{LookupIndex, Options};
use crate::stats::LookupStats;
use crate::store::Clock;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::tree::RunTables;

/// Memtables and newest runs that a read of a part may have to ask, from which on the index is
/// used: with 8 it gains nothing, with 16 something, with 64 much (docs/papers/nova.md). A memtable
/// without filter is as many by itself.
const PLACES_MIN: usize = 12;

/// Of so many uses one is timed.
const SAMPLE: u64 = 64;

/// See the module.
pub(crate) struct Indexing {
    mode: LookupIndex,
    /// As how many places a memtable counts: without a filter it is searched.
    memtable_places: usize,
    bytes: usize,
    index: OnceLock<Lookup>,
    /// The stamp that the next memtable gets.
    next: AtomicU64,
    /// The newest memtable with a range delete.
    covered: AtomicU64,
    clock: Arc<dyn Clock>,
    notes: AtomicU64,
    reads: AtomicU64,
    /// Of the reads, those that passed over something, and all that was passed over.
    answered: AtomicU64,
    passed_over: AtomicU64,
    /// The same by what they would have cost.
    saved_places: AtomicU64,
    /// Whether it was worth it, where that is asked.
    turns: Mutex<LookupTurns>,
    /// Microseconds of the uses that were timed.
    timed_us: AtomicU64,
}

impl std::fmt::Debug for Indexing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Indexing")
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Indexing {
    pub(crate) fn new(options: &Options, clock: Arc<dyn Clock>) -> Indexing {
        let memtable_places = match options.memtable_filters {
            true => 1,
            false => PLACES_PER_USE as usize,
        };
        Indexing {
            mode: options.lookup_index,
            memtable_places,
            bytes: options.lookup_bytes() as usize,
            index: OnceLock::new(),
            next: AtomicU64::new(1),
            covered: AtomicU64::new(0),
            clock,
            notes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            passed_over: AtomicU64::new(0),
            saved_places: AtomicU64::new(0),
            turns: Mutex::new(LookupTurns::default()),
            timed_us: AtomicU64::new(0),
        }
    }

    /// The stamp of the memtable that will be the newest of a part; 0 for none.
    /// Requires: the write path, so that stamps rise with recency.
    pub(crate) fn stamp(&self, part: &PartView, runs: &[Arc<RunTables>]) -> u64 {
        let is_wanted = match self.mode {
            LookupIndex::Off => false,
            LookupIndex::On => true,
            LookupIndex::Auto => {
                // What has no stamp is never passed over, whatever the index knows.
                let runs = runs.iter().take_while(|run| run.stamp > 0);
                let memtables = 2 + part.sealed.len();
                memtables * self.memtable_places + runs.count() >= PLACES_MIN
                    && self.next_is_known()
            }
        };
        if is_wanted { self.next_stamp() } else { 0 }
    }

    /// Whether the memtable that is made now is to be known to the index.
    fn next_is_known(&self) -> bool {
        let mut last = self.turns.lock();
        *last = turns(&LookupView {
            used: self.used(),
            turns: *last,
        });
        !last.is_paused()
    }

    /// The stamp of the first memtable of a part, which has no place to look in yet.
    pub(crate) fn first_stamp(&self) -> u64 {
        match self.mode {
            LookupIndex::On => self.next_stamp(),
            LookupIndex::Auto | LookupIndex::Off => 0,
        }
    }

    fn next_stamp(&self) -> u64 {
        self.index.get_or_init(|| Lookup::new(self.bytes));
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether an opening is to have the index know so many newest runs of a part.
    pub(crate) fn is_wanted_of(&self, runs: usize) -> bool {
        match self.mode {
            LookupIndex::Off => false,
            LookupIndex::On => runs > 0,
            // With the memtables that there will be.
            LookupIndex::Auto => runs > 0 && 2 * self.memtable_places + runs >= PLACES_MIN,
        }
    }

    /// How many keys the index can tell apart.
    pub(crate) fn room_keys(&self) -> u64 {
        (self.bytes / Lookup::BYTES_PER_KEY) as u64
    }

    /// So many stamps for runs, of which later memtables have higher ones.
    pub(crate) fn stamps_of(&self, runs: usize) -> std::ops::Range<u64> {
        if runs > 0 {
            self.index.get_or_init(|| Lookup::new(self.bytes));
        }
        let first = self.next.fetch_add(runs as u64, Ordering::Relaxed);
        first..first + runs as u64
    }

    /// Notes, uncounted, that a run with `stamp` has a key with this hash.
    pub(crate) fn enter(&self, hash: u64, stamp: u64) {
        if let Some(index) = self.index.get() {
            index.insert(hash, stamp);
        }
    }

    /// Notes that the memtable with `stamp` is about to have a key with this hash; the
    /// `n`-th such note, about.
    #[inline]
    pub(crate) fn note(&self, hash: u64, stamp: u64, n: u64) {
        if stamp == 0 {
            return;
        }
        // A stamp was given, so there is an index.
        if let Some(index) = self.index.get() {
            if n.is_multiple_of(SAMPLE) {
                self.notes.fetch_add(SAMPLE, Ordering::Relaxed);
                self.timed(|| index.insert(hash, stamp));
            } else {
                index.insert(hash, stamp);
            }
        }
    }

    /// Notes that the memtable with `stamp` is about to have a range delete.
    pub(crate) fn note_cover(&self, stamp: u64) {
        self.covered.fetch_max(stamp, Ordering::AcqRel);
    }

    /// Of a part's memtables, so many, and newest runs, whose stamps are `stamps`, newest first,
    /// so many surely have nothing to say of a key with this hash.
    #[inline]
    pub(crate) fn passed_over(&self, stamps: &[u64], memtables: usize, hash: u64) -> usize {
        // Without an index, and where even the newest has no stamp.
        let (Some(index), Some(1..)) = (self.index.get(), stamps.first()) else {
            return 0;
        };
        thread_local! {
            static TICK: Cell<u64> = const { Cell::new(0) };
        }
        let look = || {
            let bound = index.bound(hash).max(self.covered.load(Ordering::Acquire));
            stamps.partition_point(|&stamp| stamp > bound)
        };
        let tick = TICK.with(|tick| tick.replace(tick.get().wrapping_add(1)));
        if !tick.is_multiple_of(SAMPLE) {
            return look();
        }
        self.reads.fetch_add(SAMPLE, Ordering::Relaxed);
        let passed_over = self.timed(look);
        if passed_over > 0 {
            self.answered.fetch_add(SAMPLE, Ordering::Relaxed);
            self.passed_over
                .fetch_add(SAMPLE * passed_over as u64, Ordering::Relaxed);
            let searches = passed_over.min(memtables) * (self.memtable_places - 1);
            self.saved_places
                .fetch_add(SAMPLE * (passed_over + searches) as u64, Ordering::Relaxed);
        }
        passed_over
    }

    fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        let from = self.clock.now_micros();
        let done = work();
        let took_us = self.clock.now_micros().saturating_sub(from);
        self.timed_us.fetch_add(took_us, Ordering::Relaxed);
        done
    }

    /// What it did so far.
    fn used(&self) -> LookupUse {
        let answered = self.answered.load(Ordering::Relaxed);
        LookupUse {
            answered,
            in_vain: self.reads.load(Ordering::Relaxed).saturating_sub(answered),
            notes: self.notes.load(Ordering::Relaxed),
            passed_over: self.saved_places.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn stats(&self) -> LookupStats {
        let used = self.used();
        LookupStats {
            bytes: self.index.get().map_or(0, |index| index.bytes() as u64),
            notes: used.notes,
            reads: used.answered + used.in_vain,
            answered: used.answered,
            passed_over: self.passed_over.load(Ordering::Relaxed),
            is_paused: self.turns.lock().is_paused(),
            cpu_us: self.timed_us.load(Ordering::Relaxed) * SAMPLE,
        }
    }
}
