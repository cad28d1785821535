//! Jobs: what the background does. Each takes plain data from a planner, does
//! its I/O without holding a lock, and ends in one edit.

use std::time::Duration;

use crate::events::PlacedTable;
use crate::sync::atomic::{AtomicU64, Ordering};

mod below;
mod flush;
mod fold;
mod merge;
pub(crate) mod output;
mod relocate;
mod survive;

/// How long a job waits for the write path, which somebody may hold who waits for the job.
pub(crate) const COMMIT_WAIT: Duration = Duration::from_millis(20);

/// How far a merge is, as others may ask while it runs.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    bytes: AtomicU64,
    merged_bytes: AtomicU64,
}

impl Progress {
    /// The merge begins, or begins anew, and has so many bytes to merge.
    pub(crate) fn begin(&self, bytes: u64) {
        self.merged_bytes.store(0, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.merged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The share that is done, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let merged = self.merged_bytes.load(Ordering::Relaxed).min(bytes);
        merged as f64 / bytes.max(1) as f64
    }
}

/// What a job did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    pub(crate) what: String,
    pub(crate) tables_in: Vec<u64>,
    pub(crate) tables_out: Vec<PlacedTable>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Done {
    /// The plan was out of date.
    pub(crate) fn nothing() -> Done {
        Done {
            what: "nothing left to do".to_string(),
            ..Done::default()
        }
    }
}
