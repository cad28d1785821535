//! What readers may see: every entry up to a number, which only rises.
//!
//! Writers insert concurrently and end in any order, but their entries become
//! visible in sequence order. A writer that ends before the one ahead of it does
//! not only wait: it leaves a note, and whoever is awake when its turn has come
//! publishes for it. Else two writers that share a processor would fall into step,
//! each waiting for the other to run at every single write.
//!
//! Invariants: the number rises from the `first - 1` of a write to its `last` in
//! one store, so a batch is visible whole or not at all. Exactly one thread makes
//! that store: the write's own while there is no note of it, else the one that
//! takes the note.

use thermocline_model::key::SeqNo;

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{spin_loop, yield_now};

/// Writes that may wait with a note. Others wait without one.
const NOTES: usize = 64;

/// How often a writer looks whether its turn has come before it lets others have
/// the processor: about as long as an insert takes.
const SPINS: u32 = 16;

/// No number of an entry.
const FREE: u64 = 0;
const BEING_WRITTEN: u64 = u64::MAX;

/// A write that is done and not visible yet.
#[derive(Debug)]
#[repr(align(64))]
struct Note {
    /// The write's first number, or [`FREE`], or [`BEING_WRITTEN`].
    first: AtomicU64,
    last: AtomicU64,
}

/// The number up to which everything is visible.
#[derive(Debug)]
pub(crate) struct Published {
    upto: AtomicU64,
    /// A write that had its numbers will never be published.
    is_broken: AtomicBool,
    notes: [Note; NOTES],
}

impl Published {
    /// Everything up to `upto` is visible.
    pub(crate) fn new(upto: SeqNo) -> Published {
        Published {
            upto: AtomicU64::new(upto.0),
            is_broken: AtomicBool::new(false),
            notes: std::array::from_fn(|_| Note {
                first: AtomicU64::new(FREE),
                last: AtomicU64::new(FREE),
            }),
        }
    }

    /// The number up to which everything is visible.
    #[inline]
    pub(crate) fn upto(&self) -> SeqNo {
        SeqNo(self.upto.load(Ordering::Acquire))
    }

    /// Sets the number. Requires: nobody else has the store yet.
    pub(crate) fn begin_at(&mut self, upto: SeqNo) {
        *self.upto.get_mut() = upto.0;
    }

    /// Lets nobody wait any more for what is not published yet: the thread of one
    /// write panicked between its numbers and its publication.
    pub(crate) fn break_off(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Makes the entries `first..=last` visible, after all before them. Returns
    /// when they are, or with false where one before them never will be. Requires:
    /// they are where readers look; each number is published once.
    #[must_use]
    pub(crate) fn publish(&self, first: SeqNo, last: SeqNo) -> bool {
        if self.upto.load(Ordering::Acquire) == first.0 - 1 {
            self.upto.store(last.0, Ordering::Release);
            return true;
        }
        let noted = self.leave_note(first.0, last.0);
        let mut tries = 0;
        loop {
            let upto = self.upto.load(Ordering::Acquire);
            if upto >= last.0 {
                return true;
            }
            if !noted && upto == first.0 - 1 {
                self.upto.store(last.0, Ordering::Release);
                return true;
            }
            if let Some(next) = self.take_note(upto + 1) {
                self.upto.store(next, Ordering::Release);
                continue;
            }
            tries += 1;
            if tries < SPINS {
                spin_loop();
            } else if self.is_broken.load(Ordering::Acquire) {
                return false;
            } else {
                yield_now();
            }
        }
    }

    /// Leaves a note, unless another write has its place.
    fn leave_note(&self, first: u64, last: u64) -> bool {
        let note = &self.notes[first as usize % NOTES];
        let free =
            note.first
                .compare_exchange(FREE, BEING_WRITTEN, Ordering::Acquire, Ordering::Relaxed);
        if free.is_err() {
            return false;
        }
        note.last.store(last, Ordering::Relaxed);
        note.first.store(first, Ordering::Release);
        true
    }

    /// Takes the note of the write that begins with `first`: its last number, and
    /// the right to publish it.
    fn take_note(&self, first: u64) -> Option<u64> {
        let note = &self.notes[first as usize % NOTES];
        if note.first.load(Ordering::Acquire) != first {
            return None;
        }
        // Read before the place is free. If another takes the note meanwhile, the
        // exchange fails: `first` never comes again.
        let last = note.last.load(Ordering::Relaxed);
        let taken = note
            .first
            .compare_exchange(first, FREE, Ordering::AcqRel, Ordering::Relaxed);
        taken.ok().map(|_| last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::thread;

    fn seq(range: std::ops::RangeInclusive<u64>) -> (SeqNo, SeqNo) {
        (SeqNo(*range.start()), SeqNo(*range.end()))
    }

    #[test]
    fn a_write_that_ended_early_is_published_by_the_one_before_it() {
        let published = Published::new(SeqNo(0));
        assert!(published.leave_note(2, 5));
        let (first, last) = seq(1..=1);
        assert!(published.publish(first, last));
        // Its own thread has not run since; the next writer does it instead.
        let (first, last) = seq(6..=6);
        assert!(published.publish(first, last));
        assert_eq!(published.upto(), SeqNo(6));
    }

    #[test]
    fn nobody_waits_for_a_write_that_will_never_be_published() {
        let published = Published::new(SeqNo(0));
        let told = thread::scope(|scope| {
            let waiting = scope.spawn(|| published.publish(SeqNo(2), SeqNo(5)));
            published.break_off();
            waiting.join().unwrap()
        });
        assert!(!told && published.upto() == SeqNo(0));
    }

    #[test]
    fn a_place_that_is_taken_makes_no_note() {
        let published = Published::new(SeqNo(0));
        assert!(published.leave_note(2, 2));
        assert!(!published.leave_note(2 + NOTES as u64, 2 + NOTES as u64));
        assert_eq!(published.take_note(2 + NOTES as u64), None);
        assert_eq!(published.take_note(2), Some(2));
        assert_eq!(published.take_note(2), None);
    }

    #[test]
    fn numbers_rise_by_whole_writes_whoever_publishes() {
        const WRITES: u64 = 40_000;
        // The last number of every write, in its place by the first.
        let published = Published::new(SeqNo(0));
        let next = Mutex::new(1_u64);
        let ends = Mutex::new(std::collections::HashSet::from([0]));
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (published, next, ends) = (&published, &next, &ends);
                scope.spawn(move || {
                    for i in 0..WRITES / 4 {
                        let count = 1 + (i * 7 + thread) % (2 * NOTES as u64);
                        let mut next = next.lock().unwrap();
                        let first = *next;
                        *next += count;
                        ends.lock().unwrap().insert(*next - 1);
                        drop(next);
                        let last = first + count - 1;
                        assert!(published.publish(SeqNo(first), SeqNo(last)));
                        let seen = published.upto().0;
                        assert!(seen >= last, "a write is visible to its own thread");
                        assert!(ends.lock().unwrap().contains(&seen), "half a batch");
                    }
                });
            }
        });
        assert_eq!(published.upto().0, *next.lock().unwrap() - 1);
    }
}
