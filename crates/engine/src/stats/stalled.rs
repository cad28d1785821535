//! The time in which writers wait, however many do at once, and that of each of them, added up; and
//! what for.

use std::fmt;

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use super::Counters;
use crate::step::What;
use crate::store::Clock;

/// Of the time in which some writer waited, in microseconds, what for. That of one may overlap that
/// of another: writers that wait at once may do so for different things.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// assert_eq!(db.stats().stalled_for, thermocline::StalledFor::default());
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StalledFor {
    /// Memtables fill the write buffer: flushes and folds have to empty it.
    pub memory_us: u64,
    /// A part has many newest runs: merges have to take them away.
    pub runs_us: u64,
    /// Flushes wait for room on the first tier: merges have to make it.
    pub room_us: u64,
    /// Of all of these, the time in which some writer could not go on at all; in the rest they were
    /// slowed.
    pub stopped_us: u64,
}

impl StalledFor {
    pub(crate) fn of(counters: &Counters, clock: &dyn Clock) -> StalledFor {
        let micros = |what: What| counters.stalled_for[what as usize].micros(clock);
        StalledFor {
            memory_us: micros(What::Memory),
            runs_us: micros(What::Runs),
            room_us: micros(What::Room),
            stopped_us: counters.stopped.micros(clock),
        }
    }
}

impl fmt::Display for StalledFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [memory, runs, room, stopped] =
            [self.memory_us, self.runs_us, self.room_us, self.stopped_us].map(|us| us as f64 / 1e6);
        write!(
            f,
            "for memory {memory:.3}, runs {runs:.3}, room {room:.3}; stopped {stopped:.3}"
        )
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Stalled(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    writers: usize,
    /// When a writer last began or ended.
    since_us: u64,
    /// Up to then, with writers.
    some_us: u64,
    /// Up to then, of all of them.
    all_us: u64,
}

impl Waiting {
    /// Up to `now_us`.
    fn pass(&mut self, now_us: u64) {
        let passed_us = match self.writers {
            0 => 0,
            _ => now_us.saturating_sub(self.since_us),
        };
        let of_all_us = passed_us.saturating_mul(self.writers as u64);
        self.some_us = self.some_us.saturating_add(passed_us);
        self.all_us = self.all_us.saturating_add(of_all_us);
        self.since_us = now_us;
    }
}

/// A writer that waits.
pub(crate) struct StalledWriter<'a> {
    stalled: &'a Stalled,
    clock: &'a dyn Clock,
}

impl Stalled {
    /// A writer waits until it drops what it gets.
    pub(crate) fn begin<'a>(&'a self, clock: &'a dyn Clock) -> StalledWriter<'a> {
        let mut waiting = self.0.lock();
        waiting.pass(clock.now_micros());
        waiting.writers += 1;
        let stalled = self;
        StalledWriter { stalled, clock }
    }

    /// In all up to now, in microseconds.
    pub(crate) fn micros(&self, clock: &dyn Clock) -> u64 {
        self.passed(clock).some_us
    }

    /// The same of each writer, added up.
    pub(crate) fn writers_micros(&self, clock: &dyn Clock) -> u64 {
        self.passed(clock).all_us
    }

    fn passed(&self, clock: &dyn Clock) -> MutexGuard<'_, Waiting> {
        let mut waiting = self.0.lock();
        if waiting.writers > 0 {
            waiting.pass(clock.now_micros());
        }
        waiting
    }
}

/// A writer that waits now, or not yet.
pub(crate) struct Stall<'a> {
    counters: &'a Counters,
    clock: &'a dyn Clock,
    any: Option<StalledWriter<'a>>,
    what_for: Option<(What, StalledWriter<'a>)>,
    stopped: Option<StalledWriter<'a>>,
}

impl<'a> Stall<'a> {
    /// One that does not wait yet.
    pub(crate) fn of(counters: &'a Counters, clock: &'a dyn Clock) -> Stall<'a> {
        Stall {
            counters,
            clock,
            any: None,
            what_for: None,
            stopped: None,
        }
    }

    /// It cannot go on from now on.
    pub(crate) fn stop(&mut self, what: What) {
        self.wait(what);
        let stopped = &self.counters.stopped;
        self.stopped
            .get_or_insert_with(|| stopped.begin(self.clock));
    }

    /// It is slowed from now on.
    pub(crate) fn slow(&mut self, what: What) {
        self.stopped = None;
        self.wait(what);
    }

    fn wait(&mut self, what: What) {
        let (counters, clock) = (self.counters, self.clock);
        self.any
            .get_or_insert_with(|| counters.stalled.begin(clock));
        if self.what_for.as_ref().is_none_or(|(last, _)| *last != what) {
            // What it waited for before ends first.
            self.what_for = None;
            let stalled = &counters.stalled_for[what as usize];
            self.what_for = Some((what, stalled.begin(clock)));
        }
    }
}

impl Drop for StalledWriter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.stalled.0.lock();
        waiting.pass(self.clock.now_micros());
        waiting.writers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Sleeper;
    use crate::sync::atomic::Ordering;

    #[test]
    fn the_time_of_writers_that_wait_together_counts_once_and_for_each() {
        let (clock, stalled) = (Sleeper::default(), Stalled::default());
        let set = |us| clock.0.store(us, Ordering::Relaxed);
        set(10);
        let first = stalled.begin(&clock);
        set(20);
        let second = stalled.begin(&clock);
        set(30);
        drop(first);
        assert_eq!(stalled.micros(&clock), 20);
        assert_eq!(stalled.writers_micros(&clock), 30);
        set(45);
        assert_eq!(stalled.writers_micros(&clock), 45);
        drop(second);
        set(100);
        assert_eq!(stalled.micros(&clock), 35);
        assert_eq!(stalled.writers_micros(&clock), 45);
        drop(stalled.begin(&clock));
        assert_eq!(stalled.micros(&clock), 35);
        let third = stalled.begin(&clock);
        set(107);
        assert_eq!(stalled.micros(&clock), 42);
        set(0); // Clocks jump.
        drop(third);
        assert_eq!(stalled.micros(&clock), 42);
    }

    #[test]
    fn what_writers_wait_for_is_counted_as_it_changes() {
        let (clock, counters) = (Sleeper::default(), Counters::default());
        let at = |us| clock.0.store(us, Ordering::Relaxed);
        let mut stall = Stall::of(&counters, &clock);
        at(10);
        stall.slow(What::Memory);
        at(30);
        stall.stop(What::Runs);
        at(60);
        stall.stop(What::Room);
        at(100);
        stall.slow(What::Memory);
        at(150);
        drop(stall);
        at(1000);
        assert_eq!(counters.stalled.micros(&clock), 140);
        let stalled_for = StalledFor::of(&counters, &clock);
        let expected = StalledFor {
            memory_us: 20 + 50,
            runs_us: 30,
            room_us: 40,
            stopped_us: 70,
        };
        assert_eq!(stalled_for, expected);
        assert_eq!(
            stalled_for.to_string(),
            "for memory 0.000, runs 0.000, room 0.000; stopped 0.000"
        );
    }
}
