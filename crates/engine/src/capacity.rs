//! When all tiers are full.
//!
//! A tier that is full gives way to the next one down. Once the last one is full
//! too, there is nowhere to go, and puts are refused by name. What is measured
//! is the live tables of the version in force: not what a merge holds twice for
//! a while, or that merge could never be the one that makes room. Deletes are
//! taken, and flushes and merges go on, on the room that the devices really
//! have: that is how space comes back, and writing resumes by itself. So the
//! tiers may hold more than their capacities by what memory held, by deletes,
//! by the inputs of running merges, and by tables that are merged already but have a reader
//! still. A merge that brings data up, beside another one or a flush, may take the same room
//! as that: then the tier is over for a while, until a table is moved down.
//!
//! A tier without `capacity_bytes` is full when its device is: then calls fail,
//! and not this check.

use std::sync::atomic::Ordering;

use thermocline_model::key::Kind;
use thermocline_policy::place::limit_of_all;

use crate::batch::Operations;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};

impl Engine {
    /// Bytes that the tiers together may hold, if all have a capacity.
    pub(crate) fn capacity_bytes(&self) -> Option<u64> {
        if self.tiers.iter().any(|t| t.spec.capacity().is_none()) {
            return None;
        }
        let share = self.options.tier_fill_share;
        Some(limit_of_all(&self.tier_states(), share))
    }

    /// Looks again whether all tiers are full.
    pub(crate) fn update_full(&self) -> bool {
        let full = self.check_capacity(0).is_err();
        self.counters.is_full.store(full, Ordering::Relaxed);
        full
    }

    /// Requires that live tables and `more_bytes` leave room.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn check_capacity(&self, more_bytes: u64) -> Result<()> {
        let Some(capacity) = self.capacity_bytes() else {
            return Ok(());
        };
        let version = std::sync::Arc::clone(&self.versions.lock().current);
        let live: u64 = version.tables().map(|t| t.size_bytes()).sum();
        let used = live.saturating_add(more_bytes);
        if used < capacity {
            return Ok(());
        }
        let what = "all tiers have reached their capacity_bytes: deletes are taken, puts are not";
        Err(Error::new(ErrorKind::NoSpace, what)
            .at(&self.directory())
            .expected(
                format!("less than {capacity} bytes in tables"),
                format!("{used}"),
            ))
    }

    /// Refuses a batch with puts when all tiers are full.
    #[inline]
    pub(crate) fn admit(&self, payload: &[u8]) -> Result<()> {
        if !self.counters.is_full.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.admit_when_full(payload)
    }

    #[cold]
    fn admit_when_full(&self, payload: &[u8]) -> Result<()> {
        let puts = |operation: Result<_, _>| {
            operation.is_ok_and(|o: crate::batch::Operation<'_>| o.kind == Kind::Put)
        };
        // Space may have come back since the last job.
        if !Operations::new(payload).any(puts) || !self.update_full() {
            return Ok(());
        }
        self.counters.failed_writes.add(1);
        self.check_capacity(0)
    }
}
