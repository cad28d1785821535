//! The records that exist: numbers are given out to inserting clients in order,
//! and a record may be read once it and all before it are acknowledged (YCSB's
//! `AcknowledgedCounterGenerator`).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A growing number of records.
#[derive(Debug)]
pub(super) struct Inserted {
    next: AtomicU64,
    readable: AtomicU64,
    /// Acknowledged numbers above `readable`: at most one for each client.
    ahead: Mutex<BTreeSet<u64>>,
}

impl Inserted {
    /// The records below `records` exist.
    pub(super) fn new(records: u64) -> Inserted {
        Inserted {
            next: AtomicU64::new(records),
            readable: AtomicU64::new(records),
            ahead: Mutex::new(BTreeSet::new()),
        }
    }

    /// A number to insert.
    pub(super) fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The record `number` is in the store.
    pub(super) fn acknowledge(&self, number: u64) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.insert(number);
        let mut readable = self.readable.load(Ordering::Relaxed);
        while ahead.remove(&readable) {
            readable += 1;
        }
        self.readable.store(readable, Ordering::Release);
    }

    /// All records below this number are in the store.
    #[inline]
    pub(super) fn readable(&self) -> u64 {
        self.readable.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_readable_when_all_before_it_are() {
        let inserted = Inserted::new(10);
        assert_eq!(
            (inserted.take(), inserted.take(), inserted.take()),
            (10, 11, 12)
        );
        inserted.acknowledge(12);
        inserted.acknowledge(11);
        assert_eq!(inserted.readable(), 10);
        inserted.acknowledge(10);
        assert_eq!(inserted.readable(), 13);
    }
}
