//! Memory that memtables and the block cache share.
//!
//! What memtables leave of the write buffer the block cache has ([`Options::block_cache_grows`]),
//! and while hardly anybody reads memtables have memory of the cache as well
//! ([`Options::write_buffer_grows`]). How much of the second there should be is policy
//! ([`thermocline_policy::lending`]). Here it changes hands, and what both take together never
//! exceeds what the options say: the cache lets go of blocks before memtables may have their
//! memory, and has it back only once memtables have less.
//!
//! Of the write buffer, memtables are given what they hold, and some more, before they fill it;
//! they need not ask whether there is any. They give it back by a little at a time, so that
//! memtables that fill and empty by turns do not empty the cache each time. What is lent beyond
//! that makes the *write buffer in force* larger, by which flushes are planned and writers are
//! stopped. It grows at once, and shrinks by a little at a time as well, so that writers are not
//! stopped for as long as it takes to flush all that there may be too much of.
//!
//! Where memtables are full and nothing is lent, as somebody reads, they are lent some all the
//! same, and not again before all of that was given back: a burst of writes, or a flush whose turn
//! for a processor comes late, costs some blocks of the cache, and stops no writer.

use thermocline_model::view::ShapeOptions;
use thermocline_policy::lending::{LENT_BUFFERS_MAX, LENT_SHARE_MAX, Lending, MemoryUse};

use crate::cache::BlockCache;
use crate::engine::Engine;
use crate::options::{Options, flush_bytes_of};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// How often it is looked at, in microseconds; more seldom where there is nothing else to do.
pub(crate) const LOOK_MICROS: u64 = 100_000;

/// Of all that may be lent, the share by which the write buffer shrinks in that time.
const SHRINK_SHARE: u64 = 16;

/// Of all that may be lent, the share that a burst of writes is lent at once.
const BURST_SHARE: u64 = 4;

/// Of the write buffer, the share that memtables are given at a time, beside what they need.
const GRANT_SHARE: u64 = 8;

/// Of what the cache may have of the write buffer, the share that it gets in the time of a look at
/// most: all of it in 26 seconds.
const RETURN_SHARE: u64 = 256;

/// What is lent now.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// Bytes that the cache does without, of those that it may ever have.
    given: AtomicU64,
    /// Of these, bytes that memtables may fill beyond the write buffer.
    pub(crate) allowed: AtomicU64,
    lending: Mutex<Lending>,
    /// When it was looked at last.
    looked_us: AtomicU64,
}

impl Lent {
    /// For how many looks this one stands: threads that have nothing to do look more seldom.
    /// Requires: the caller's turn.
    fn looks(&self, now_us: u64) -> u64 {
        let before_us = self.looked_us.load(Ordering::Relaxed);
        self.looked_us.store(now_us, Ordering::Relaxed);
        (now_us.saturating_sub(before_us) / LOOK_MICROS).clamp(1, RETURN_SHARE)
    }
}

impl Options {
    /// Bytes of the write buffer that the block cache has while memtables leave them: at most as
    /// many as it has itself.
    pub(crate) fn pooled_bytes(&self) -> u64 {
        match self.block_cache_grows {
            true => self.write_buffer_bytes.min(self.block_cache_bytes),
            false => 0,
        }
    }

    /// The most that the block cache lends to memtables beyond the write buffer, in bytes.
    pub(crate) fn lendable_bytes(&self) -> u64 {
        if !self.write_buffer_grows {
            return 0;
        }
        // A log that is full makes small flushes, whatever memory there is.
        let logged = (self.log_bytes_max / 2).saturating_sub(self.write_buffer_bytes);
        let borrowed = self.write_buffer_bytes.saturating_mul(LENT_BUFFERS_MAX);
        self.spare_bytes().min(logged).min(borrowed)
    }

    /// Bytes that the block cache can do without, of its own.
    fn spare_bytes(&self) -> u64 {
        (self.block_cache_bytes as f64 * LENT_SHARE_MAX) as u64
    }

    /// A block cache that has all of the memory that it may ever have.
    pub(crate) fn block_cache(&self) -> BlockCache {
        let own = self.block_cache_bytes;
        let kept = own.saturating_sub(self.spare_bytes());
        BlockCache::keeping(kept, own.saturating_add(self.pooled_bytes()))
    }
}

impl Engine {
    /// Bytes that memtables may take now.
    pub(crate) fn write_buffer_bytes(&self) -> u64 {
        self.options.write_buffer_bytes + self.borrowable_bytes()
    }

    /// Of these, bytes of the block cache.
    pub(crate) fn borrowable_bytes(&self) -> u64 {
        self.lent.allowed.load(Ordering::Acquire)
    }

    /// Bytes that the block cache does without, of those that it may ever have
    /// ([`Options::pooled_bytes`] and its own).
    pub(crate) fn lent_bytes(&self) -> u64 {
        self.lent.given.load(Ordering::Acquire)
    }

    /// The shape that the options ask for, with the write buffer in force.
    pub(crate) fn shape(&self) -> ShapeOptions {
        ShapeOptions {
            flush_bytes: flush_bytes_of(self.write_buffer_bytes()),
            ..self.options.shape()
        }
    }

    /// Sees to it that memtables and the block cache have of each other's memory what they should.
    pub(crate) fn lend_memory(&self) {
        let (pooled, lendable) = (self.options.pooled_bytes(), self.options.lendable_bytes());
        if pooled + lendable == 0 || self.options.read_only {
            return;
        }
        let mut lending = self.lent.lending.lock();
        let cache = &self.home.context.cache;
        let used = {
            let cache = cache.stats();
            MemoryUse {
                writes: self.counters.writes.get(),
                block_reads: cache.hits + cache.misses,
            }
        };
        let now_us = self.environment.clock.now_micros();
        let looks = self.lent.looks(now_us);
        let share = lending.share(used, now_us);
        let wanted = (lendable as f64 * share) as u64;
        let allowed = self.borrowable_bytes();
        if wanted > 0 && pooled + wanted > self.lent_bytes() {
            let given = cache.lend(pooled + wanted);
            self.lent.given.store(given, Ordering::Release);
        }
        let next = match wanted >= allowed {
            true => wanted.min(self.lent_bytes().saturating_sub(pooled)),
            false => wanted.max(allowed.saturating_sub(lendable / SHRINK_SHARE * looks)),
        };
        self.lent.allowed.store(next, Ordering::Release);
        self.take_back(looks);
        drop(lending);
        if wanted < allowed {
            self.update_brake();
        }
    }

    /// Lends full memtables what lets writers go on for a while, if nothing is lent. Says whether
    /// there is more than before. Stores without threads have no use for it: writers that find
    /// memory full flush it themselves.
    pub(crate) fn lend_for_burst(&self) -> bool {
        let burst = self.options.lendable_bytes() / BURST_SHARE;
        if burst == 0 || self.borrowable_bytes() > 0 || !self.options.has_threads() {
            return false;
        }
        let _lending = self.lent.lending.lock();
        // Policy may have lent some meanwhile.
        if self.borrowable_bytes() == 0 {
            self.lend_beyond(burst);
        }
        self.borrowable_bytes() > 0
    }

    /// Lends memtables `bytes` beyond the write buffer, and for now all of that. Requires: nobody
    /// else lends.
    fn lend_beyond(&self, bytes: u64) {
        let pooled = self.options.pooled_bytes();
        let given = self.home.context.cache.lend(pooled + bytes);
        let given = given.max(self.lent_bytes());
        self.lent.given.store(given, Ordering::Release);
        let allowed = given.saturating_sub(pooled);
        self.lent.allowed.store(allowed, Ordering::Release);
    }

    /// Lends what a recovery found in the log beyond what memtables have of their own: they
    /// had it before; and for now all of the write buffer. The cache is empty, so that it can.
    pub(crate) fn lend_to_replayed(&self) {
        let pooled = self.options.pooled_bytes();
        let borrowed = self.needed_bytes(0).saturating_sub(pooled);
        self.lend_beyond(borrowed.min(self.options.lendable_bytes()));
    }

    /// Has the block cache do without what memtables need of the write buffer, where they are about
    /// to take `more` bytes. What readers hold of the cache is not waited for.
    pub(crate) fn grant_memory(&self, more: u64) {
        if self.options.pooled_bytes() == 0 || self.needed_bytes(more) <= self.lent_bytes() {
            return;
        }
        let _lending = self.lent.lending.lock();
        let most = self.options.pooled_bytes() + self.borrowable_bytes();
        let needed = self.needed_bytes(more).min(most);
        if needed > self.lent_bytes() {
            let step = self.options.write_buffer_bytes / GRANT_SHARE;
            let wanted = (needed + step).min(most);
            let given = self.home.context.cache.lend(wanted).max(needed);
            self.lent.given.store(given, Ordering::Release);
        }
    }

    /// Bytes that memtables, about to take `more`, hold of what they share with the cache. As
    /// `update_brake` does it, what may be added unseen counts as there.
    fn needed_bytes(&self, more: u64) -> u64 {
        // What a memtable takes of the idle memory meanwhile is in one of the two.
        let idle = self.arenas.idle_bytes();
        let soon = self.memtable_bytes_soon();
        let held = soon + idle.max(self.arenas.idle_bytes()) as u64 + more;
        held.saturating_sub(self.unshared_bytes())
    }

    /// Bytes of the write buffer that are never the cache's.
    fn unshared_bytes(&self) -> u64 {
        self.options.write_buffer_bytes - self.options.pooled_bytes()
    }

    /// Gives the cache back what memtables neither have nor may have, and of the write buffer some
    /// of what they leave, as much as in the time of so many looks. Requires: the caller's turn.
    fn take_back(&self, looks: u64) {
        let (allowed, given) = (self.borrowable_bytes(), self.lent_bytes());
        let pooled = self.options.pooled_bytes();
        let wanted = match allowed {
            0 => given
                .min(pooled)
                .saturating_sub(pooled / RETURN_SHARE * looks),
            _ => pooled + allowed,
        };
        if wanted >= given {
            return;
        }
        // Emptied memtables are kept only in what there is for memtables.
        let room = wanted + self.unshared_bytes();
        let kept = room.saturating_sub(self.memtable_bytes_soon());
        self.arenas.shrink_to(kept as usize);
        let keep = wanted.max(self.needed_bytes(0).min(given));
        if keep < given {
            // Before the cache takes it.
            self.lent.given.store(keep, Ordering::Release);
            self.home.context.cache.lend(keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Db;

    /// Memtables full of what they borrowed do not shrink because they may have less.
    #[test]
    fn the_cache_has_its_memory_back_when_memtables_have_less_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::at(directory.path())
            .write_buffer_bytes(1 << 20)
            .memtable_bytes(1 << 20)
            .block_cache_bytes(4 << 20)
            .block_cache_grows(false)
            .background_threads(0);
        let db = Db::open(options).unwrap();
        let engine = &db.handle.engine;
        let (lent, cache) = (&engine.lent, &engine.home.context.cache);
        let given = cache.lend(engine.options.lendable_bytes());
        assert_eq!(given, 3 << 20);
        lent.given.store(given, Ordering::Release);
        lent.allowed.store(given, Ordering::Release);
        // Nobody takes a step, so nothing is flushed.
        for n in 0..2000u32 {
            db.put(&n.to_be_bytes(), &[7; 1000]).unwrap();
        }
        let borrowed = engine.needed_bytes(0);
        assert!(borrowed > 1 << 20, "{borrowed}");
        lent.allowed.store(0, Ordering::Release);
        engine.take_back(1);
        assert_eq!(engine.lent_bytes(), borrowed.min(given));
        let memory = db.stats().memory;
        assert!(memory.used.memtables <= memory.max.memtables, "{memory:?}");
        db.flush().unwrap();
        engine.arenas.shrink_to(0);
        engine.take_back(1);
        let left = engine.lent_bytes();
        assert!(left < 256 << 10, "{left}");
        let cache = cache.stats();
        assert_eq!(cache.capacity_bytes, (4 << 20) - left);
    }

    /// What `db` holds and may hold, by kind; what it may hold in all is always the same.
    fn holds_to_its_promise(db: &Db) -> crate::stats::MemoryStats {
        let memory = db.stats().memory;
        let (used, max) = (memory.used, memory.max);
        assert!(used.memtables <= max.memtables, "{memory:?}");
        assert!(used.block_cache <= max.block_cache, "{memory:?}");
        let promised = db.handle.engine.options.memory_bytes_max();
        assert_eq!(max.total(), promised, "{memory:?}");
        memory
    }

    #[test]
    fn the_cache_has_what_memtables_leave_and_gives_it_up_before_they_fill_it() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::at(directory.path())
            .write_buffer_bytes(1 << 20)
            .memtable_bytes(128 << 10)
            .block_cache_bytes(4 << 20)
            .write_buffer_grows(false)
            .background_threads(0);
        let db = Db::open(options).unwrap();
        let engine = &db.handle.engine;
        let cache_max = || holds_to_its_promise(&db).max.block_cache;
        assert_eq!(
            cache_max(),
            4 << 20,
            "at first memtables have all of theirs"
        );
        for n in 0..3000u32 {
            db.put(&n.to_be_bytes(), &[7; 1000]).unwrap();
            if db.stats().memtable_bytes > 700 << 10 {
                db.flush().unwrap();
            }
        }
        db.flush().unwrap();
        for _ in 0..=RETURN_SHARE {
            engine.lend_memory();
            let all = (0..3000u32).step_by(30);
            all.for_each(|n| drop(db.get(&n.to_be_bytes()).unwrap()));
            holds_to_its_promise(&db);
        }
        let most = cache_max();
        assert!(most > (4 << 20) + (3 << 18), "{most}");
        // The cache is full, and every one of these writes may be the one that wants its memory.
        (0..3000u32).for_each(|n| drop(db.get(&n.to_be_bytes()).unwrap()));
        let full = db.stats().memory.used.block_cache;
        assert!(full > 5 << 19, "{full}");
        for n in 0..700u32 {
            db.put(&n.to_be_bytes(), &[8; 1000]).unwrap();
            holds_to_its_promise(&db);
        }
        assert!(cache_max() < most - (1 << 19));
    }

    /// A flush that had to wait for a processor stopped all writers, beside a cache full of blocks
    /// that next to nobody read.
    #[test]
    fn a_burst_of_writes_is_lent_some_of_the_cache_once() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::at(directory.path())
            .write_buffer_bytes(1 << 20)
            .memtable_bytes(128 << 10)
            .block_cache_bytes(4 << 20);
        let db = Db::open(options.clone().background_threads(1)).unwrap();
        let engine = &db.handle.engine;
        let burst = engine.options.lendable_bytes() / BURST_SHARE;
        assert_eq!(burst, 768 << 10);
        // No job begins.
        let scheduler = engine.scheduler.lock();
        let mut written = 0;
        while engine.borrowable_bytes() == 0 {
            db.put(&u32::to_be_bytes(written), &[7; 1000]).unwrap();
            written += 1;
            assert!(written < 1048, "writers would have stopped");
        }
        assert!(written > 700, "{written}");
        assert_ne!(engine.update_brake(), u64::MAX);
        // A thread may have looked before it came to a stop at the scheduler.
        let lent = engine.borrowable_bytes();
        assert!((1..=burst).contains(&lent), "{lent}");
        assert!(!engine.lend_for_burst());
        drop(scheduler);
        holds_to_its_promise(&db);
        db.flush().unwrap();
        while engine.borrowable_bytes() > 0 {
            engine.lend_memory();
            holds_to_its_promise(&db);
        }
        assert!(engine.lend_for_burst());
        drop(db);
        // Writers that do the work themselves need no loan for it.
        let db = Db::open(options.background_threads(0)).unwrap();
        assert!(!db.handle.engine.lend_for_burst());
    }

    #[test]
    fn a_cache_that_is_off_or_must_not_grow_has_nothing_of_the_write_buffer() {
        let options = Options::at("/x").write_buffer_bytes(8 << 20);
        assert_eq!(options.clone().block_cache_bytes(0).pooled_bytes(), 0);
        assert_eq!(options.clone().block_cache_grows(false).pooled_bytes(), 0);
        assert_eq!(options.clone().pooled_bytes(), 8 << 20);
        let small = options.block_cache_bytes(1 << 20);
        assert_eq!(small.pooled_bytes(), 1 << 20);
        assert_eq!(small.block_cache().stats().capacity_bytes, 2 << 20);
    }
}
