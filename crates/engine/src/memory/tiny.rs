//! The write counters of a part's tiny ranges.

use std::sync::Arc;

use thermocline_model::version::Tiny;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Where the tiny ranges of a part begin, and the writes that each got. See
/// [`thermocline_model::version::Part::tiny`].
#[derive(Debug)]
pub struct TinyCounts {
    starts: Arc<[Box<[u8]>]>,
    writes: Box<[AtomicU64]>,
}

impl TinyCounts {
    /// Of `tiny`, which are ascending and at least one.
    #[must_use]
    pub fn new(tiny: &[Tiny]) -> TinyCounts {
        TinyCounts {
            starts: tiny.iter().map(|t| t.start.clone()).collect(),
            writes: tiny.iter().map(|t| AtomicU64::new(t.writes)).collect(),
        }
    }

    /// Counts a write of `key`, which is in the part.
    #[inline]
    pub fn count(&self, key: &[u8]) {
        let at = match self.starts.len() {
            0 | 1 => 1,
            _ => self.starts.partition_point(|s| **s <= *key),
        };
        if let Some(writes) = self.writes.get(at.saturating_sub(1)) {
            writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Where they begin.
    #[must_use]
    pub fn starts(&self) -> &Arc<[Box<[u8]>]> {
        &self.starts
    }

    /// The writes of each.
    #[must_use]
    pub fn writes(&self) -> Vec<u64> {
        let counts = self.writes.iter();
        counts.map(|w| w.load(Ordering::Relaxed)).collect()
    }

    /// The writes of all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.writes().iter().sum()
    }

    /// As the manifest keeps them.
    #[must_use]
    pub fn tiny(&self) -> Vec<Tiny> {
        let starts = self.starts.iter().cloned();
        let tiny = starts.zip(self.writes());
        tiny.map(|(start, writes)| Tiny { start, writes }).collect()
    }

    /// Forgets half of all writes; gives how many.
    pub fn halve(&self) -> u64 {
        let mut gone = 0;
        for writes in &self.writes {
            // Others add meanwhile, and nobody else takes away.
            let half = writes.load(Ordering::Relaxed) / 2;
            writes.fetch_sub(half, Ordering::Relaxed);
            gone += half;
        }
        gone
    }
}
