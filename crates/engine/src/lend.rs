//! Memory of the block cache that memtables have while hardly anybody reads.
//!
//! How much that should be is policy ([`thermocline_policy::lending`]). Here it changes
//! hands, and what both take together never exceeds what the options say: the cache lets
//! go of blocks before memtables may have their memory, and has it back only once
//! memtables have less.
//!
//! What is lent makes the *write buffer in force* larger, by which flushes are planned and writers
//! are stopped. It grows at once. It shrinks by a little at a time, so that writers
//! are not stopped for as long as it takes to flush all that there may be too much of.

use thermocline_model::view::ShapeOptions;
use thermocline_policy::lending::{LENT_BUFFERS_MAX, LENT_SHARE_MAX, Lending, MemoryUse};

use crate::engine::Engine;
use crate::options::{Options, flush_bytes_of};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// How often it is looked at, in microseconds.
pub(crate) const LOOK_MICROS: u64 = 100_000;

/// Of all that may be lent, the share by which the write buffer shrinks with each look.
const SHRINK_SHARE: u64 = 16;

/// What is lent now.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// Bytes that the cache does without.
    given: AtomicU64,
    /// Of these, bytes that memtables may fill.
    allowed: AtomicU64,
    lending: Mutex<Lending>,
}

impl Options {
    /// The most that the block cache lends to memtables, in bytes.
    pub(crate) fn lendable_bytes(&self) -> u64 {
        if !self.write_buffer_grows {
            return 0;
        }
        let spare = (self.block_cache_bytes as f64 * LENT_SHARE_MAX) as u64;
        // A log that is full makes small flushes, whatever memory there is.
        let logged = (self.log_bytes_max / 2).saturating_sub(self.write_buffer_bytes);
        let borrowed = self.write_buffer_bytes.saturating_mul(LENT_BUFFERS_MAX);
        spare.min(logged).min(borrowed)
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

    /// Bytes that memtables may have beyond the options and the block cache has less.
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

    /// Sees to it that the block cache lends what it should.
    pub(crate) fn lend_memory(&self) {
        let lendable = self.options.lendable_bytes();
        if lendable == 0 || self.options.read_only {
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
        let share = lending.share(used, self.environment.clock.now_micros());
        let wanted = (lendable as f64 * share) as u64;
        let allowed = self.borrowable_bytes();
        if wanted > self.lent_bytes() {
            let given = cache.lend(wanted);
            self.lent.given.store(given, Ordering::Release);
        }
        let next = match wanted >= allowed {
            true => wanted.min(self.lent_bytes()),
            false => wanted.max(allowed.saturating_sub(lendable / SHRINK_SHARE)),
        };
        self.lent.allowed.store(next, Ordering::Release);
        self.take_back();
        drop(lending);
        if wanted < allowed {
            self.update_brake();
        }
    }

    /// Lends what a recovery found in the log beyond what memtables have of their own: they
    /// had it before. The cache is empty, so that it can.
    pub(crate) fn lend_to_replayed(&self) {
        let needed = self.borrowed_bytes().min(self.options.lendable_bytes());
        let given = self.home.context.cache.lend(needed);
        self.lent.given.store(given, Ordering::Release);
        self.lent.allowed.store(given, Ordering::Release);
    }

    /// Bytes that memtables hold beyond what the options give them. As `update_brake` does it,
    /// what may be added unseen counts as there.
    fn borrowed_bytes(&self) -> u64 {
        // What a memtable takes of the idle memory meanwhile is in one of the two.
        let idle = self.arenas.idle_bytes();
        let resident = self.memtable_resident_bytes();
        let held = resident + idle.max(self.arenas.idle_bytes()) as u64;
        let held = held + 2 * self.options.memory_step_bytes();
        held.saturating_sub(self.options.write_buffer_bytes)
    }

    /// Gives the cache back what memtables neither have nor may have. Requires: the
    /// caller's turn.
    fn take_back(&self) {
        let allowed = self.borrowable_bytes();
        let given = self.lent_bytes();
        if allowed >= given {
            return;
        }
        let keep = allowed.max(self.borrowed_bytes().min(given));
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
        let borrowed = engine.borrowed_bytes();
        assert!(borrowed > 1 << 20, "{borrowed}");
        lent.allowed.store(0, Ordering::Release);
        engine.take_back();
        assert_eq!(engine.lent_bytes(), borrowed.min(given));
        let memory = db.stats().memory;
        assert!(memory.used.memtables <= memory.max.memtables, "{memory:?}");
        db.flush().unwrap();
        engine.arenas.shrink_to(0);
        engine.take_back();
        let left = engine.lent_bytes();
        assert!(left < 256 << 10, "{left}");
        let cache = cache.stats();
        assert_eq!(cache.capacity_bytes, (4 << 20) - left);
    }
}
