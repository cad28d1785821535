//! Jobs: what the background does. Each takes plain data from a planner, does
//! its I/O without holding a lock, and ends in one edit.

use std::time::Duration;

use crate::events::PlacedTable;

mod below;
mod flush;
mod fold;
mod merge;
pub(crate) mod output;
mod relocate;
mod survive;

/// How long a job waits for the write path, which somebody may hold who waits for the job.
pub(crate) const COMMIT_WAIT: Duration = Duration::from_millis(20);

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
