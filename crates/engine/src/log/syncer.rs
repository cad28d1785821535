//! Group commit: many writers, one sync.
//!
//! The first writer to ask becomes the leader and syncs for all frames that
//! were appended by then, the segments in their order; those who ask meanwhile
//! wait, and one of them leads the next round. Nothing here needs the engine's
//! commit mutex, so appends go on during a sync.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_model::SeqNo;

use super::format::segment_path;
use super::segment::OpenSegment;
use super::{Closed, LogPersist};
use crate::store::{File, FileSystem};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::{Error, ErrorKind, Result};

/// Most complete segments that wait for [`LogSyncer::tidy`].
const RETIRED_MAX: usize = 4;

/// Makes the frames of a [`LocalLog`](super::LocalLog) durable.
pub struct LogSyncer {
    file_system: Arc<dyn FileSystem>,
    directory: PathBuf,
    /// The last number appended; everything up to it is in a segment that is
    /// in `State::unsynced` or was synced.
    appended: AtomicU64,
    durable: AtomicU64,
    poisoned: AtomicBool,
    syncs: AtomicU64,
    state: Mutex<State>,
    round_over: Condvar,
    /// Complete segments still mapped and longer than their frames.
    retired: Mutex<VecDeque<OpenSegment>>,
    /// The segments and the last number before each, oldest first.
    bases: Mutex<VecDeque<(u64, u64)>>,
}

struct State {
    /// Segments with frames that may not be durable, oldest first.
    unsynced: VecDeque<Unsynced>,
    /// Whether somebody leads a round.
    syncing: bool,
    failure: Option<Error>,
}

#[derive(Clone)]
struct Unsynced {
    segment: u64,
    file: Arc<dyn File>,
    /// Whether its name is durable.
    named: bool,
}

impl LogSyncer {
    /// Requires: everything up to `last_seq` is durable.
    pub(super) fn new(
        file_system: Arc<dyn FileSystem>,
        directory: &Path,
        last_seq: u64,
    ) -> LogSyncer {
        LogSyncer {
            file_system,
            directory: directory.to_path_buf(),
            appended: AtomicU64::new(last_seq),
            durable: AtomicU64::new(last_seq),
            poisoned: AtomicBool::new(false),
            syncs: AtomicU64::new(0),
            state: Mutex::new(State {
                unsynced: VecDeque::new(),
                syncing: false,
                failure: None,
            }),
            round_over: Condvar::new(),
            retired: Mutex::new(VecDeque::new()),
            bases: Mutex::new(VecDeque::new()),
        }
    }

    /// Returns when every frame up to `upto` is durable. Any number of threads
    /// may call; they share syncs.
    ///
    /// # Errors
    /// `Poisoned` from the first failure on, for good (I5). `InvalidArgument`
    /// if `upto` was never appended.
    pub fn persist(&self, upto: SeqNo) -> Result<()> {
        if upto.0 > self.appended.load(Ordering::Acquire) {
            return Err(Error::invalid("persist of what was never appended"));
        }
        self.check()?;
        if self.durable.load(Ordering::Acquire) >= upto.0 {
            return Ok(());
        }
        let mut state = self.state.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if self.durable.load(Ordering::Acquire) >= upto.0 {
                return Ok(());
            }
            if !state.syncing {
                break;
            }
            self.round_over.wait(&mut state);
        }
        state.syncing = true;
        // A segment is listed, under this mutex, before a number in it is
        // published: what is listed now holds everything up to `target`.
        let target = self.appended.load(Ordering::Acquire);
        let segments: Vec<Unsynced> = state.unsynced.iter().cloned().collect();
        drop(state);

        let synced = catch_unwind(AssertUnwindSafe(|| self.sync_all(&segments)));

        let mut state = self.state.lock();
        state.syncing = false;
        self.round_over.notify_all();
        let synced = match synced {
            Ok(synced) => synced,
            Err(panic) => {
                // Those who wait would do so for ever; nobody knows what is durable.
                let what = "the caller that led a sync panicked";
                self.poison(&mut state, &Error::new(ErrorKind::Poisoned, what));
                drop(state);
                resume_unwind(panic);
            }
        };
        if let Err(error) = synced {
            return Err(self.poison(&mut state, &error));
        }
        self.durable.fetch_max(target, Ordering::Release);
        if let Some(last) = segments.last() {
            // All but the last were complete when the round began.
            state.unsynced.retain(|entry| entry.segment >= last.segment);
            for entry in &mut state.unsynced {
                entry.named |= entry.segment == last.segment;
            }
        }
        drop(state);
        self.tidy();
        Ok(())
    }

    /// Unmaps complete segments and gives back the room reserved behind their
    /// frames. That takes milliseconds, which no append should wait for; who
    /// never calls [`LogSyncer::persist`], which does it too, should call this
    /// after each rotation, from a thread in the background. Forgetting to is
    /// harmless: the oldest are then done by the append that needs a segment.
    pub fn tidy(&self) {
        loop {
            let retired = self.retired.lock().pop_front();
            let Some(segment) = retired else {
                break;
            };
            segment.close();
        }
    }

    /// As [`LogPersist::delete`].
    ///
    /// # Errors
    /// `Io`; the rest is left in `segments`.
    pub fn delete(&self, segments: &mut VecDeque<Closed>) -> Result<u64> {
        let mut freed_bytes = 0;
        while let Some(closed) = segments.front() {
            let path = segment_path(&self.directory, closed.segment);
            match self.file_system.unlink(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("delete log segment", &path, error));
                }
                _ => {}
            }
            self.forget_before(closed.segment + 1);
            freed_bytes += closed.size_bytes;
            segments.pop_front();
        }
        Ok(freed_bytes)
    }

    /// The last number appended.
    #[must_use]
    pub fn appended_seq(&self) -> SeqNo {
        SeqNo(self.appended.load(Ordering::Acquire))
    }

    /// Everything up to this number is durable.
    #[inline]
    pub fn durable_seq(&self) -> SeqNo {
        SeqNo(self.durable.load(Ordering::Acquire))
    }

    /// Syncs of files done so far.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// The failure that poisoned the log, if one did.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(self.failure());
        }
        Ok(())
    }

    /// Says that frames up to `last_seq` are in listed segments.
    #[inline]
    pub(super) fn publish(&self, last_seq: u64) {
        self.appended.store(last_seq, Ordering::Release);
    }

    /// Lists a segment that holds its first frame.
    pub(super) fn add(&self, segment: u64, file: Arc<dyn File>) {
        self.state.lock().unsynced.push_back(Unsynced {
            segment,
            file,
            named: false,
        });
    }

    /// Takes a complete segment, to be closed off the path of appends.
    pub(super) fn retire(&self, segment: OpenSegment) {
        let overdue = {
            let mut retired = self.retired.lock();
            retired.push_back(segment);
            if retired.len() > RETIRED_MAX {
                retired.pop_front()
            } else {
                None
            }
        };
        if let Some(segment) = overdue {
            segment.close();
        }
    }

    /// The last number logged before segment `segment`, which may not be made yet.
    /// Requires: it is not deleted.
    pub(crate) fn base_of(&self, segment: u64) -> SeqNo {
        let bases = self.bases.lock();
        let from = bases.iter().find(|(id, _)| *id >= segment);
        from.map_or_else(|| self.appended_seq(), |&(_, base)| SeqNo(base))
    }

    /// Notes the last number before `segment`, which comes after all that were noted.
    /// Requires: nothing was appended to it.
    pub(super) fn note_base(&self, segment: u64, base: u64) {
        self.bases.lock().push_back((segment, base));
    }

    /// Forgets segments whose entries are durable elsewhere.
    fn forget_before(&self, segment: u64) {
        self.bases.lock().retain(|&(id, _)| id >= segment);
        let mut state = self.state.lock();
        state.unsynced.retain(|entry| entry.segment >= segment);
    }

    /// Syncs one file and the directory, outside any round; a failure poisons.
    pub(super) fn sync_with_name(&self, segment: u64, file: Arc<dyn File>) -> Result<()> {
        let entry = Unsynced {
            segment,
            file,
            named: false,
        };
        self.sync_all(&[entry])
            .map_err(|error| self.poison(&mut self.state.lock(), &error))
    }

    fn sync_all(&self, segments: &[Unsynced]) -> Result<()> {
        for entry in segments {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            entry.file.sync().map_err(|error| {
                let path = segment_path(&self.directory, entry.segment);
                Error::io("sync log segment", &path, error)
            })?;
        }
        if segments.iter().any(|entry| !entry.named) {
            self.file_system
                .sync_directory(&self.directory)
                .map_err(|error| Error::io("sync log directory", &self.directory, error))?;
        }
        Ok(())
    }

    #[cold]
    fn poison(&self, state: &mut State, cause: &Error) -> Error {
        let message = format!("the log could not be made durable ({cause})");
        let failure = Error::new(ErrorKind::Poisoned, message).at(&self.directory);
        let failure = state.failure.get_or_insert(failure).clone();
        self.poisoned.store(true, Ordering::Release);
        failure
    }

    #[cold]
    fn failure(&self) -> Error {
        let state = self.state.lock();
        let failure = state.failure.clone();
        failure.expect("the mark is set after the failure is stored")
    }
}

impl LogPersist for LogSyncer {
    fn persist(&self, upto: SeqNo) -> Result<()> {
        LogSyncer::persist(self, upto)
    }

    fn durable_seq(&self) -> SeqNo {
        LogSyncer::durable_seq(self)
    }

    fn delete(&self, segments: &mut VecDeque<Closed>) -> Result<u64> {
        LogSyncer::delete(self, segments)
    }
}

impl fmt::Debug for LogSyncer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogSyncer")
            .field("directory", &self.directory)
            .field("appended", &self.appended)
            .field("durable", &self.durable)
            .field("poisoned", &self.poisoned)
            .finish_non_exhaustive()
    }
}
