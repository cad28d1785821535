//! Jobs: what the background does. Each takes plain data from a planner, does
//! its I/O without holding a lock, and ends in one edit.

use std::time::Duration;

use crate::error::Result;
use crate::events::PlacedTable;
use crate::sync::atomic::{AtomicU64, Ordering};

mod below;
mod flush;
mod fold;
mod lanes;
mod merge;
pub(crate) mod output;
mod read_back;
mod relocate;
mod stretches;
pub(crate) mod survive;

pub(crate) use flush::Sealed;
pub(crate) use lanes::{SpareThreads, stretches_max};
pub(crate) use read_back::PIECE_BYTES;

/// How long a job waits for the write path, which somebody may hold who waits for the job.
pub(crate) const COMMIT_WAIT: Duration = Duration::from_millis(20);

/// What was done, or why it could not be done just now and nothing has changed: words for an event.
pub(crate) type Attempt<T> = Result<std::result::Result<T, &'static str>>;

/// How far a merge is, as others may ask while it runs.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    begun_us: AtomicU64,
    bytes: AtomicU64,
    merged_bytes: AtomicU64,
}

impl Progress {
    /// The merge begins, or begins anew, and has so many bytes of keys and values to merge.
    pub(crate) fn begin(&self, now_us: u64, bytes: u64) {
        self.merged_bytes.store(0, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.begun_us.store(now_us, Ordering::Relaxed);
    }

    /// So many of these are merged, too.
    pub(crate) fn add(&self, bytes: u64) {
        self.merged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The share that is merged, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let merged = self.merged_bytes.load(Ordering::Relaxed).min(bytes);
        merged as f64 / bytes.max(1) as f64
    }

    /// For how long it has run at `now_us`, in microseconds.
    pub(crate) fn ran_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.begun_us.load(Ordering::Relaxed))
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
    pub(crate) deeper: WentDeeper,
}

/// What a merge did below the slot that it is for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WentDeeper {
    /// Of the bytes that it read above, those that went there, whether they were overwritten on
    /// the way or not.
    pub(crate) bytes_in: u64,
    /// Of the bytes that it wrote, those that lie there.
    pub(crate) bytes_out: u64,
}

impl Done {
    /// What was written where it does not count as deeper.
    pub(crate) fn bytes_out_above(&self) -> u64 {
        self.bytes_out.saturating_sub(self.deeper.bytes_out)
    }

    /// The plan was out of date.
    pub(crate) fn nothing() -> Done {
        Done {
            what: "nothing left to do".to_string(),
            ..Done::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use thermocline_model::job::{Merge, Reason};
    use thermocline_model::version::{KeyspaceId, Slot};

    use super::*;
    use crate::{Compression, Db, Options, Tier};

    /// Once by what was stored: 0.4 of the way through what is compressed to two fifths it was
    /// done.
    #[test]
    fn a_merge_says_how_far_it_is_whatever_is_compressed() {
        let directory = tempfile::tempdir().unwrap();
        let tier = Tier::new("only", directory.path()).compression(Compression::Zstd);
        let options = Options::new().tier(tier).background_threads(0);
        let db = Db::open(options).unwrap();
        for _ in 0..2 {
            for n in 0..4_000u32 {
                db.put(&n.to_be_bytes(), &[7; 1_000]).unwrap();
            }
            db.flush().unwrap();
        }
        let engine = db.engine();
        let space = engine.space(KeyspaceId::DEFAULT).unwrap();
        let inputs: Vec<_> = {
            let view = space.view.load();
            let runs = view.tree.parts.iter().flatten();
            runs.flat_map(|run| &run.tables)
                .map(|t| t.meta.id)
                .collect()
        };
        let merge = Merge {
            keyspace: KeyspaceId::DEFAULT,
            inputs,
            output: Slot::Level(6),
            table_bytes: 1 << 20,
            rewrite: false,
            deeper: None,
            reason: Reason::new("test"),
        };
        let progress = Progress::default();
        assert!(progress.share() <= 0.0);
        let done = engine.run_merge(&merge, &progress).unwrap();
        let bytes = progress.bytes.load(Ordering::Relaxed);
        let merged = progress.merged_bytes.load(Ordering::Relaxed);
        assert_eq!((bytes, merged), (8_000 * 1_004, bytes));
        assert!(done.bytes_in < bytes / 2);
        let begun_us = progress.begun_us.load(Ordering::Relaxed);
        assert_eq!(progress.ran_us(begun_us + 7), 7);
        // Anew, as on another tier.
        progress.begin(begun_us + 5, 100);
        progress.add(200);
        assert_eq!((progress.ran_us(begun_us + 7), progress.ran_us(0)), (2, 0));
        assert!(progress.share() >= 1.0);
    }
}
