//! The time in which writers wait, however many do at once, and that of each of them, added up.

use parking_lot::{Mutex, MutexGuard};

use super::Counters;
use crate::store::Clock;
use crate::sync::atomic::Ordering;

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
    for_runs: Option<StalledWriter<'a>>,
}

impl<'a> Stall<'a> {
    /// One that does not wait yet.
    pub(crate) fn of(counters: &'a Counters, clock: &'a dyn Clock) -> Stall<'a> {
        Stall {
            counters,
            clock,
            any: None,
            for_runs: None,
        }
    }

    /// It waits from now on, for what the brake is on for.
    pub(crate) fn look(&mut self) {
        let (counters, clock) = (self.counters, self.clock);
        self.any
            .get_or_insert_with(|| counters.stalled.begin(clock));
        match counters.brake_for_runs.load(Ordering::Relaxed) {
            false => self.for_runs = None,
            true => {
                let runs = &counters.stalled_for_runs;
                self.for_runs.get_or_insert_with(|| runs.begin(clock));
            }
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
}
