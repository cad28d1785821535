//! Of what happened of late, the share that was of one kind.

use std::sync::atomic::{AtomicU32, Ordering};

/// All of it, as a number that the share is one of.
const ALL: u32 = 1 << 16;

/// About so many count.
const COUNT: u32 = 64;

/// See the module. Two of one moment may count as one. On a cache line of its own, as whoever
/// counts writes it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct RecentShare(AtomicU32);

impl RecentShare {
    /// Where all was of that kind.
    pub(super) fn all() -> RecentShare {
        RecentShare(ALL.into())
    }

    /// One more happens.
    pub(super) fn begin(&self) {
        let before = self.0.load(Ordering::Relaxed);
        let after = before - before / COUNT;
        self.0.store(after, Ordering::Relaxed);
    }

    /// That one was of the kind.
    pub(super) fn add(&self) {
        let before = self.0.load(Ordering::Relaxed).min(ALL);
        let after = before + ALL / COUNT;
        self.0.store(after, Ordering::Relaxed);
    }

    /// Whether it is more than one in so many.
    pub(super) fn exceeds_one_in(&self, many: u32) -> bool {
        self.0.load(Ordering::Relaxed) > ALL / many
    }
}

impl Clone for RecentShare {
    fn clone(&self) -> RecentShare {
        RecentShare(self.0.load(Ordering::Relaxed).into())
    }
}
