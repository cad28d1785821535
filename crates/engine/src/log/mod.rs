//! The write-ahead log: one for all parts and keyspaces of a store.
//!
//! A batch is appended here, with the operating system on return, before it
//! goes into any memtable. So a killed process loses nothing; what a killed
//! machine may lose is decided by [`LogSyncer::persist`], whose concurrent
//! callers share one sync.
//!
//! The log is a row of segment files. Every segment and every frame says which
//! sequence numbers come before it and up to which number everything was
//! durable when it was written. From that alone, recovery tells the two cases
//! that look alike: a tail that never was durable (normal after a crash, and
//! dropped) and damage to what had been durable (an error, never skipped).
//!
//! Invariants:
//! - What [`replay`] visits is a gap-free prefix of the appended frames, and it
//!   contains every frame that was ever persisted (I9), or replay is an error.
//! - Nothing that replay dropped comes back later, once [`truncate_torn`] has
//!   returned.
//! - A failed append closes the segment at its last good frame; the next
//!   segment names the last good sequence number, so that no remains of the
//!   failed frame are ever replayed once the log has gone on.
//! - A failed sync poisons the log for good (I5).
//!
//! Byte layout and recovery rules: docs/formats/log.md.
//!
//! ```
//! # let directory = tempfile::tempdir().unwrap();
//! use thermocline::log::{LocalLog, LogOptions, replay};
//! use thermocline::store::Environment;
//! use thermocline_model::SeqNo;
//! let environment = Environment::real();
//! let options = LogOptions::default();
//! let mut log = LocalLog::create(&environment, directory.path(), 1, options, 1, SeqNo::ZERO)?;
//! log.append(SeqNo(1), 3, b"three entries", crc32c::crc32c(b"three entries"))?;
//! drop(log); // As if the process had died here.
//! let mut frames = Vec::new();
//! replay(&environment, directory.path(), 1, 1, SeqNo::ZERO, &mut |frame| {
//!     frames.push((frame.first_seq, frame.count, frame.payload.to_vec()));
//!     Ok(())
//! })?;
//! assert_eq!(frames, [(SeqNo(1), 3, b"three entries".to_vec())]);
//! # Ok::<(), thermocline::Error>(())
//! ```

mod format;
mod local;
mod replay;
mod scan;
mod segment;
mod syncer;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use thermocline_model::SeqNo;

use crate::Result;

pub use format::{FRAME_HEADER_BYTES, PAYLOAD_BYTES_MAX, SEGMENT_HEADER_BYTES, SegmentHeader};
pub(crate) use format::{parse_segment, segment_path};
pub use local::{ClosingNote, LocalLog, LogOptions};
pub(crate) use local::{closing_note, list_segments};
pub(crate) use replay::{Reading, replay_as};
pub use replay::{ReplayReport, ReplayedFrame, Torn, replay, truncate_torn};
pub use scan::{Found, scan_frames};
pub(crate) use scan::{claimed_segment, scan_bytes};
pub use syncer::LogSyncer;

/// Where the engine's commits are logged: on this machine a [`LocalLog`], in a
/// cluster a log that lives on other machines. Opening and replaying are each
/// kind's own; what follows is what the engine does with an open one.
pub trait LogSink: Send {
    /// Appends a frame of `count` entries numbered from `first_seq`. On return
    /// it survives the death of this process.
    ///
    /// # Errors
    /// `NoSpace` and `Io`: the frame is not in the log, its numbers may be
    /// skipped or given to another frame, and a later append may succeed.
    /// `Poisoned`: no append will.
    fn append(
        &mut self,
        first_seq: SeqNo,
        count: u32,
        payload: &[u8],
        payload_crc: u32,
    ) -> Result<()>;

    /// The segment that the next append goes to, or an earlier one.
    fn segment(&self) -> u64;

    /// Sees to it that later appends go to the returned segment or later ones
    /// and that no earlier append did.
    ///
    /// # Errors
    /// `Poisoned`.
    fn rotate(&mut self) -> Result<u64>;

    /// What makes appended frames durable, without this sink.
    fn persister(&self) -> Arc<dyn LogPersist>;

    /// Takes the segments before `segment`, except the current one, off the books: it names and
    /// counts them no more, and [`LogPersist::delete`] deletes them, which takes milliseconds that
    /// no append should wait for. Requires: every entry in them is in durable tables and the
    /// manifest says so durably (I3).
    fn take_before(&mut self, segment: u64) -> VecDeque<Closed>;

    /// Puts those back that could not be deleted, for the next time. Requires: they were taken, and
    /// none that is newer was since.
    fn put_back(&mut self, segments: VecDeque<Closed>);

    /// Bytes in all segments, without room reserved ahead.
    fn size_bytes(&self) -> u64;

    /// Makes everything durable and marks the log as cleanly closed, so that
    /// any later damage to it can be told from a torn tail.
    ///
    /// # Errors
    /// `Poisoned`, `NoSpace`, `Io`. The log is then as after a killed process.
    fn close(&mut self) -> Result<()>;
}

/// A segment that takes no appends any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Its number.
    pub segment: u64,
    /// Its size, without room reserved ahead.
    pub size_bytes: u64,
}

/// Makes appended frames durable, and deletes those that need not be; shared by all writers.
pub trait LogPersist: Send + Sync {
    /// Returns when every frame up to `upto` is durable.
    ///
    /// # Errors
    /// `Poisoned` from the first failure on, for good (I5). `InvalidArgument`
    /// if `upto` was never appended.
    fn persist(&self, upto: SeqNo) -> Result<()>;

    /// Everything up to this number is durable.
    fn durable_seq(&self) -> SeqNo;

    /// Deletes the first of `segments`, which [`LogSink::take_before`] gave, and takes it from
    /// them, until none is left; returns the bytes freed.
    ///
    /// # Errors
    /// `Io`; the rest is left in `segments`.
    fn delete(&self, segments: &mut VecDeque<Closed>) -> Result<u64>;
}
