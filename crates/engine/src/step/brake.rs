//! How hard writers must brake, by memory and by runs.
//!
//! Runs count by what they hold: see [`counted_runs`].

use std::time::Duration;

use thermocline_policy::pressure::{RUNS_SLOW_PERCENT, counted_runs};

use crate::engine::{Engine, PartView};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::tree::{RunTables, Tree};

/// The share of the write buffer, in percent, at which writers begin to slow.
const MEMORY_SLOW_PERCENT: u64 = 60;
/// Nanoseconds per byte just before writes stop.
const BRAKE_NS_PER_BYTE_MAX: u64 = 200;

impl Engine {
    /// How hard writers must brake now: nothing, nanoseconds per byte, or
    /// `u64::MAX` for stop. Also fits the emptied memory that is kept for later
    /// memtables into what the write buffer has left.
    pub(crate) fn update_brake(&self) -> u64 {
        // One look at a time: an older answer never takes the place of a newer.
        let _turn = self.brake_turn.lock();
        let (mut memory, mut newest_runs) = (0u64, 0);
        for space in self.spaces.load().values() {
            let view = space.view.load();
            let memtables = view.parts.iter().flat_map(PartView::memtables);
            memory += memtables
                .filter(|m| !m.is_empty())
                .map(|m| m.size_share() as u64)
                .sum::<u64>();
            newest_runs = newest_runs.max(runs_of(&view.tree));
        }
        // What may be added before this is looked at again: half of it unseen,
        // half by writers that are past the brake.
        let resident = self.memtable_resident_bytes() + 2 * self.options.memory_step_bytes();
        let limit = self.write_buffer_bytes();
        self.arenas
            .shrink_to(limit.saturating_sub(resident) as usize);
        // Below half of the limit nothing may be worth a flush, so nothing would
        // ever let writers go on (see the planner of flushes).
        let full = resident >= limit && memory >= limit / 2;
        let memory = if full { memory.max(limit) } else { memory };
        let by_memory = brake(memory, limit, MEMORY_SLOW_PERCENT);
        let by_runs = brake(
            newest_runs,
            self.options.newest_runs_stop as u64,
            RUNS_SLOW_PERCENT,
        );
        let brake = by_memory.max(by_runs);
        let for_runs = by_runs > 0 && by_runs >= by_memory;
        self.counters
            .brake_for_runs
            .store(for_runs, Ordering::Relaxed);
        self.counters.brake.store(brake, Ordering::Relaxed);
        brake
    }
}

/// The runs of the fullest part of `tree`, as they count.
fn runs_of(tree: &Tree) -> u64 {
    let bytes = |run: &RunTables| -> u64 { run.tables.iter().map(|t| t.meta.size_bytes()).sum() };
    let base = tree.levels.iter().find(|runs| !runs.is_empty());
    let base: u64 = base.map_or(0, |runs| runs.iter().map(|r| bytes(r)).sum());
    let base = base / tree.parts.len().max(1) as u64;
    let counted = tree.parts.iter().map(|runs| {
        let held = runs.iter().map(|r| bytes(r)).sum();
        counted_runs(runs.len() as u64, held, base)
    });
    counted.max().unwrap_or(0)
}

/// Nothing below `slow_percent` of `limit`, stop at the limit, and a cubic rise
/// in between: gentle at first, so that the background can catch up early.
fn brake(value: u64, limit: u64, slow_percent: u64) -> u64 {
    if value >= limit {
        return u64::MAX;
    }
    let slow = limit * slow_percent / 100;
    if value <= slow {
        return 0;
    }
    let share = (value - slow) as f64 / (limit - slow) as f64;
    1 + (share.powi(3) * BRAKE_NS_PER_BYTE_MAX as f64) as u64
}

/// Takes off `debt_ns` what a writer is to sleep now. What one pays no other pays: were it
/// taken off twice, the debt would fall below nothing, which is the largest there is, and
/// every writer would sleep at every write.
pub(crate) fn pay(debt_ns: &AtomicU64) -> Option<Duration> {
    const SLEEP_NS: u64 = 1_000_000;
    let order = Ordering::Relaxed;
    let mut debt = debt_ns.load(order);
    while debt >= SLEEP_NS {
        let paid = debt.min(10 * SLEEP_NS);
        match debt_ns.compare_exchange(debt, debt - paid, order, order) {
            Ok(_) => return Some(Duration::from_nanos(paid)),
            Err(other) => debt = other,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brake_rises_from_nothing_to_stop() {
        let steps: Vec<u64> = [0, 50, 60, 70, 80, 90, 99, 100, 200]
            .map(|v| brake(v, 100, 60))
            .into();
        assert_eq!(&steps[..3], &[0, 0, 0]);
        assert!(steps.is_sorted());
        assert_eq!(&steps[7..], &[u64::MAX, u64::MAX]);
    }

    /// Several writers once took the same debt off, each by itself. It fell below nothing,
    /// and from then on whoever had to brake slept ten milliseconds for every write.
    #[test]
    fn a_debt_is_paid_once_whoever_pays_it() {
        let debt_ns = AtomicU64::new(0);
        let (mut owed, paid) = (0, AtomicU64::new(0));
        for round in 1..=200 {
            owed += round * 100_000;
            debt_ns.fetch_add(round * 100_000, Ordering::Relaxed);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        if let Some(sleep) = pay(&debt_ns) {
                            paid.fetch_add(sleep.as_nanos() as u64, Ordering::Relaxed);
                        }
                    });
                }
            });
            let left = debt_ns.load(Ordering::Relaxed);
            assert_eq!(left + paid.load(Ordering::Relaxed), owed);
        }
    }
}
