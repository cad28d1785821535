//! How much of the block cache's memory memtables may have while hardly anybody reads.
//!
//! A block cache that nobody asks gives nothing; more memory for memtables always gives
//! something: runs are larger, so that each is merged less often, and what is overwritten
//! soon is never written to a table at all. So the cache lends what it has, by how few
//! blocks are asked of it for each operation. It gives up to [`LENT_SHARE_MAX`] of itself
//! where none are, nothing from [`READS_SHARE_MAX`] on, and what lies between in between.
//!
//! Blocks that merges and flushes read do not count: they pass the cache by. What a get
//! finds in a memtable, and what a filter answers, asks the cache for nothing either.
//!
//! More is lent after two windows in a row in which so much would be; the cache has its memory back
//! as soon as one window says so. While next to nothing is done nothing changes: windows last until
//! enough was done to say something.

/// The most that a block cache lends, as a share of itself.
pub const LENT_SHARE_MAX: f64 = 0.75;

/// The most that memtables borrow, in write buffers: four times as much memory for them
/// as was asked for, so that a recovery has no more than four times as much log to replay.
pub const LENT_BUFFERS_MAX: u64 = 3;

/// Blocks asked for, as a share of all operations, from which on nothing is lent.
pub const READS_SHARE_MAX: f64 = 0.25;

/// How long is looked before something is said, in microseconds.
pub const WINDOW_US: u64 = 1_000_000;

/// Operations below which a window says nothing, and goes on.
pub const OPERATIONS_MIN: u64 = 256;

/// The steps between nothing and all that may be lent.
const STEPS: f64 = 8.0;

/// What memory was used for since the store was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryUse {
    /// Entries written.
    pub writes: u64,
    /// Blocks asked of the cache, found or not.
    pub block_reads: u64,
}

/// What is lent; see the module.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Lending {
    /// When the window began, and the use then; none before the first.
    begun: Option<(u64, MemoryUse)>,
    /// What the last window would have lent.
    last: f64,
    share: f64,
}

impl Lending {
    /// Which share is to be lent of all that may be, 0 to 1, where `used` was used up to
    /// now. May be asked at any time.
    pub fn share(&mut self, used: MemoryUse, now_us: u64) -> f64 {
        let Some((begun_us, before)) = self.begun else {
            self.begun = Some((now_us, used));
            return self.share;
        };
        // A clock that was put back begins another window.
        if now_us >= begun_us && now_us - begun_us < WINDOW_US {
            return self.share;
        }
        let writes = used.writes.saturating_sub(before.writes);
        let reads = used.block_reads.saturating_sub(before.block_reads);
        let says = writes.saturating_add(reads) >= OPERATIONS_MIN;
        if says || now_us < begun_us {
            self.begun = Some((now_us, used));
        }
        if says {
            let wanted = wanted(writes, reads);
            self.share = wanted.min(self.last.max(self.share));
            self.last = wanted;
        }
        self.share
    }
}

/// Which share so many writes and blocks asked for would have lent.
fn wanted(writes: u64, reads: u64) -> f64 {
    let asked = reads as f64 / (writes as f64 + reads as f64);
    let share = 1.0 - asked / READS_SHARE_MAX;
    (share.max(0.0) * STEPS).round() / STEPS
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Store {
        lending: Lending,
        used: MemoryUse,
        now_us: u64,
    }

    impl Store {
        fn new() -> Store {
            let mut store = Store {
                lending: Lending::default(),
                used: MemoryUse::default(),
                now_us: 7,
            };
            assert_eq!(store.after(0, 0), 0.0);
            store
        }

        /// A window later.
        fn after(&mut self, writes: u64, block_reads: u64) -> f64 {
            self.used.writes += writes;
            self.used.block_reads += block_reads;
            let share = self.lending.share(self.used, self.now_us);
            self.now_us += WINDOW_US;
            share
        }
    }

    #[test]
    fn who_only_writes_gets_all_and_who_reads_has_it_back_at_once() {
        let mut store = Store::new();
        assert_eq!(store.after(10_000, 0), 0.0, "one window is no habit");
        assert_eq!(store.after(10_000, 0), 1.0);
        assert_eq!(store.after(10_000, 0), 1.0);
        assert_eq!(store.after(5000, 5000), 0.0);
        assert_eq!(store.after(10_000, 0), 0.0);
        assert_eq!(store.after(10_000, 0), 1.0);
    }

    #[test]
    fn what_lies_between_is_lent_in_part() {
        let mut store = Store::new();
        for (reads, share) in [(0, 0.0), (500, 0.75), (500, 0.75), (1250, 0.5), (2500, 0.0)] {
            assert_eq!(store.after(10_000 - reads, reads), share, "{reads} reads");
        }
        assert_eq!(wanted(0, 1), 0.0);
        assert_eq!(wanted(1, 0), 1.0);
    }

    #[test]
    fn rest_changes_nothing_and_neither_does_a_look_within_the_window() {
        let mut store = Store::new();
        store.after(10_000, 0);
        store.after(10_000, 0);
        store.used.block_reads += 10_000;
        let soon_us = store.now_us - WINDOW_US / 2;
        assert_eq!(store.lending.share(store.used, soon_us), 1.0);
        assert_eq!(store.after(0, 0), 0.0);
        store.after(10_000, 0);
        assert_eq!(store.after(10_000, 0), 1.0);
        assert_eq!(store.after(0, 0), 1.0);
        assert_eq!(store.after(OPERATIONS_MIN / 2, OPERATIONS_MIN / 2 - 1), 1.0);
    }

    /// Once: windows in which too little was done began anew, and a store that was read by
    /// two hundred blocks a second never had back what a bulk of writes had borrowed.
    #[test]
    fn a_window_lasts_until_enough_was_done_to_say_something() {
        let mut store = Store::new();
        store.after(1000, 0);
        assert_eq!(store.after(1000, 0), 1.0);
        assert_eq!(store.after(1, 200), 1.0);
        assert_eq!(store.after(1, 200), 0.0);
    }

    #[test]
    fn a_clock_that_is_put_back_begins_another_window() {
        let mut store = Store::new();
        store.now_us += 1_000_000_000;
        store.after(10_000, 0);
        store.now_us = 5;
        assert_eq!(store.after(10_000, 0), 1.0);
        assert_eq!(store.after(0, 10_000), 0.0);
    }
}
