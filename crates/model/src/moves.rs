//! What has been moved between tiers lately: how a policy knows when to leave a
//! table, or all tables, alone.
//!
//! Kept by whoever runs the jobs, and read by planners. It follows a clock that
//! may be wrong: a moment that lies ahead of now is taken for now, so that a
//! clock set back neither stops moves for long nor lets them go on unbounded.

use std::collections::BTreeMap;

use crate::table::TableId;

/// See the module. Moments are microseconds since the Unix epoch.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Moves {
    /// When each table's last move began, as long as it matters.
    begun_us: BTreeMap<TableId, u64>,
    /// Those that are under way.
    running: Vec<TableId>,
    /// When the last one began, and how long after that no other may.
    last_us: u64,
    wait_us: u64,
}

impl Moves {
    /// A move of `bytes` begins; at `bytes_per_second_max` it takes its time
    /// before the next one may.
    pub fn begin(&mut self, table: TableId, bytes: u64, bytes_per_second_max: u64, now_us: u64) {
        self.begun_us.insert(table, now_us);
        self.running.push(table);
        // One that begins ahead of the bound leaves what was owed to the next.
        let owed_us = self.wait_us(now_us);
        self.last_us = now_us;
        let wait_us = u128::from(bytes) * 1_000_000 / u128::from(bytes_per_second_max.max(1));
        self.wait_us = u64::try_from(wait_us)
            .unwrap_or(u64::MAX)
            .saturating_add(owed_us);
    }

    /// A move that began in a former opening.
    pub fn recall(&mut self, table: TableId, begun_us: u64) {
        self.begun_us.insert(table, begun_us);
    }

    /// The move of `table` has ended, whether it succeeded or not.
    pub fn end(&mut self, table: TableId) {
        self.running.retain(|running| *running != table);
    }

    /// Whether any is under way.
    #[must_use]
    pub fn are_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Whether one of `table` is under way.
    #[must_use]
    pub fn is_running(&self, table: TableId) -> bool {
        self.running.contains(&table)
    }

    /// Goes with the clock: forgets tables that have cooled down, and pulls
    /// moments that are yet to come back to now.
    pub fn follow(&mut self, now_us: u64, cool_down_us: u64) {
        self.last_us = self.last_us.min(now_us);
        self.begun_us.retain(|_, begun_us| {
            *begun_us = (*begun_us).min(now_us);
            now_us - *begun_us < cool_down_us
        });
    }

    /// The operator wants something else: every table may move at once.
    pub fn release(&mut self) {
        self.begun_us.clear();
    }

    /// Microseconds until the bound on bytes lets the next move begin.
    #[must_use]
    pub fn wait_us(&self, now_us: u64) -> u64 {
        let passed_us = now_us.saturating_sub(self.last_us);
        self.wait_us.saturating_sub(passed_us)
    }

    /// Whether a move may begin now: none is under way, and the bound on bytes
    /// allows it.
    #[must_use]
    pub fn may_begin(&self, now_us: u64) -> bool {
        !self.are_running() && self.wait_us(now_us) == 0
    }

    /// Whether a move that cannot wait may begin now, beside another and up to `ahead_us`
    /// microseconds before the bound on bytes allows it. Those after it wait for as much longer.
    #[must_use]
    pub fn may_begin_ahead(&self, now_us: u64, ahead_us: u64) -> bool {
        self.wait_us(now_us) <= ahead_us
    }

    /// Whether `table` was moved so lately that it stays where it is.
    #[must_use]
    pub fn is_cooling(&self, table: TableId, now_us: u64, cool_down_us: u64) -> bool {
        let begun_us = self.begun_us.get(&table);
        begun_us.is_some_and(|&begun_us| now_us.saturating_sub(begun_us) < cool_down_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_000_000;

    #[test]
    fn moves_wait_for_each_other_and_for_their_bytes() {
        let mut moves = Moves::default();
        assert!(moves.may_begin(0));
        moves.begin(TableId(1), 2 * RATE, RATE, 5_000_000);
        assert!(!moves.may_begin(9_000_000), "one is under way");
        assert!(moves.is_running(TableId(1)) && !moves.is_running(TableId(2)));
        moves.end(TableId(2));
        assert!(moves.are_running(), "another has ended");
        moves.end(TableId(1));
        assert_eq!(moves.wait_us(5_500_000), 1_500_000);
        assert!(!moves.may_begin(6_999_999));
        assert!(moves.may_begin(7_000_000));
    }

    #[test]
    fn a_move_that_cannot_wait_borrows_from_those_after_it() {
        let mut moves = Moves::default();
        moves.begin(TableId(1), RATE, RATE, 0);
        assert!(!moves.may_begin_ahead(400_000, 500_000));
        assert!(moves.may_begin_ahead(500_000, 500_000));
        moves.begin(TableId(2), RATE, RATE, 500_000);
        moves.end(TableId(1));
        moves.end(TableId(2));
        assert_eq!(moves.wait_us(500_000), 1_500_000, "what was owed, too");
        assert!(!moves.may_begin(1_999_999));
        assert!(moves.may_begin(2_000_000), "both in two seconds");
    }

    #[test]
    fn a_table_cools_down_unless_it_is_released() {
        let mut moves = Moves::default();
        moves.begin(TableId(1), 1, RATE, 100);
        assert!(moves.is_cooling(TableId(1), 109, 10));
        assert!(!moves.is_cooling(TableId(1), 110, 10));
        assert!(!moves.is_cooling(TableId(2), 101, 10));
        moves.release();
        assert!(!moves.is_cooling(TableId(1), 101, 10));
        let mut recalled = Moves::default();
        recalled.recall(TableId(1), 100);
        assert!(recalled.may_begin(100), "it has ended");
        assert!(recalled.is_cooling(TableId(1), 109, 10));
    }

    #[test]
    fn a_clock_that_jumps_neither_stops_moves_for_long_nor_frees_them() {
        let mut moves = Moves::default();
        moves.begin(TableId(1), RATE, RATE, 1 << 50);
        moves.end(TableId(1));
        // Back by years: waits as long as it would have.
        moves.follow(1_000, 10);
        assert!(!moves.may_begin(1_001));
        assert!(moves.may_begin(1_001_000));
        assert!(moves.is_cooling(TableId(1), 1_009, 10));
        // And far ahead.
        moves.follow(u64::MAX, 10);
        assert!(moves.may_begin(u64::MAX));
        assert_eq!(moves.begun_us.len(), 0);
    }
}
