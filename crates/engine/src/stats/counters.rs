//! What is counted while a store is in use, without threads disturbing each other.

use parking_lot::Mutex;
use thermocline_model::tier::{TIERS_MAX, TierId};

use super::job_time::JobTimes;
use super::stalled::Stalled;
use crate::error::Error;
use crate::step::What;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

const SHARDS: usize = 8;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(std::sync::atomic::AtomicU64);

/// A counter that threads raise without disturbing each other.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    shards: [Shard; SHARDS],
}

/// The shard of this thread.
fn shard() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    MINE.with(|&mine| mine)
}

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.shards[shard()].0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.shards
            .iter()
            .map(|s| s.0.load(Ordering::Relaxed))
            .sum()
    }
}

/// What one tier did since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct TierCounters {
    pub(crate) written_bytes: Counter,
    pub(crate) job_read_bytes: Counter,
    pub(crate) relocated_in_bytes: Counter,
    pub(crate) spills: Counter,
    pub(crate) spilled_bytes: Counter,
    /// When the first and the last spill were; 0 for never.
    pub(crate) spilled_first_us: AtomicU64,
    pub(crate) spilled_last_us: AtomicU64,
}

impl TierCounters {
    /// A table of `bytes` that belongs here was put on a lower tier.
    pub(crate) fn spilled(&self, bytes: u64, now_us: u64) {
        self.spills.add(1);
        self.spilled_bytes.add(bytes);
        let (first, relaxed) = (&self.spilled_first_us, Ordering::Relaxed);
        // Fails for all but the first.
        let _ = first.compare_exchange(0, now_us, relaxed, relaxed);
        self.spilled_last_us.fetch_max(now_us, Ordering::Relaxed);
    }
}

/// What writers are slowed for.
#[derive(Debug, Default)]
pub(crate) struct BrakeFor(AtomicU8);

impl BrakeFor {
    pub(crate) fn get(&self) -> What {
        match self.0.load(Ordering::Relaxed) {
            what if what == What::Runs as u8 => What::Runs,
            what if what == What::Room as u8 => What::Room,
            _ => What::Memory,
        }
    }

    pub(crate) fn set(&self, what: What) {
        self.0.store(what as u8, Ordering::Relaxed);
    }
}

/// Everything counted since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) writes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) failed_writes: Counter,
    pub(crate) scans: Counter,
    pub(crate) memtable_hits: Counter,
    pub(crate) cached_hits: Counter,
    pub(crate) misses: Counter,
    tier_hits: [Counter; TIERS_MAX],
    pub(crate) slowdowns: Counter,
    /// When writers waited.
    pub(crate) stalled: Stalled,
    /// When somebody did for each of what writers fill.
    pub(crate) stalled_for: [Stalled; What::COUNT],
    /// When somebody could not go on at all.
    pub(crate) stopped: Stalled,
    pub(crate) flushes: Counter,
    pub(crate) flushed_bytes: Counter,
    pub(crate) folds: Counter,
    pub(crate) folded_bytes: Counter,
    pub(crate) restated_bytes: Counter,
    pub(crate) merges: Counter,
    pub(crate) merges_by_edit: Counter,
    pub(crate) merge_in_bytes: Counter,
    /// Time of merges, and of flushes, where [`Options::heeds_waits`](crate::Options).
    pub(crate) merge_times: JobTimes,
    pub(crate) flush_times: JobTimes,
    pub(crate) merge_out_bytes: Counter,
    pub(crate) tables_moved: Counter,
    pub(crate) blocks_copied: Counter,
    pub(crate) relocations: Counter,
    pub(crate) relocated_bytes: Counter,
    pub(crate) migrations_saved: Counter,
    pub(crate) migrations_saved_bytes: Counter,
    pub(crate) bulk_bytes: Counter,
    pub(crate) recuts: Counter,
    pub(crate) job_errors: Counter,
    /// Picoseconds a byte takes of all writers together; `u64::MAX` means stop.
    pub(crate) brake: AtomicU64,
    /// What it is on for.
    pub(crate) brake_for: BrakeFor,
    /// Whether live tables fill the capacity of all tiers.
    pub(crate) is_full: AtomicBool,
    last_error: Mutex<Option<Error>>,
}

impl Counters {
    #[inline]
    pub(crate) fn tier_hit(&self, tier: TierId) {
        if let Some(counter) = self.tier_hits.get(tier.0 as usize) {
            counter.add(1);
        }
    }

    pub(crate) fn tier_hits(&self, tier: TierId) -> u64 {
        self.tier_hits.get(tier.0 as usize).map_or(0, Counter::get)
    }

    pub(crate) fn background_error(&self, error: &Error) {
        self.job_errors.add(1);
        *self.last_error.lock() = Some(error.clone());
    }

    pub(crate) fn last_error(&self) -> Option<Error> {
        self.last_error.lock().clone()
    }
}
