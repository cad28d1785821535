//! How hard writers must brake, by memory and by runs.

use crate::engine::{Engine, PartView};
use crate::sync::atomic::Ordering;

/// The share of the write buffer, in percent, at which writers begin to slow.
const MEMORY_SLOW_PERCENT: u64 = 60;
/// The share of the runs at which writes stop, in percent, at which writers
/// begin to slow.
const RUNS_SLOW_PERCENT: u64 = 40;
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
            newest_runs = view
                .tree
                .parts
                .iter()
                .map(Vec::len)
                .max()
                .unwrap_or(0)
                .max(newest_runs);
        }
        // What may be added before this is looked at again: half of it unseen,
        // half by writers that are past the brake.
        let resident = self.memtable_resident_bytes() + 2 * self.options.memory_step_bytes();
        let limit = self.options.write_buffer_bytes;
        self.arenas
            .shrink_to(limit.saturating_sub(resident) as usize);
        // Below half of the limit nothing may be worth a flush, so nothing would
        // ever let writers go on (see the planner of flushes).
        let full = resident >= limit && memory >= limit / 2;
        let memory = if full { memory.max(limit) } else { memory };
        let by_memory = brake(memory, self.options.write_buffer_bytes, MEMORY_SLOW_PERCENT);
        let by_runs = brake(
            newest_runs as u64,
            self.options.newest_runs_stop as u64,
            RUNS_SLOW_PERCENT,
        );
        let brake = by_memory.max(by_runs);
        self.counters.brake.store(brake, Ordering::Relaxed);
        brake
    }
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
}
