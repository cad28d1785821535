//! How far a long work has come, for whoever wants to show it.

/// What is being done. See [`crate::repair_with`] for the order.
///
/// ```
/// use thermocline::Phase;
/// let words = |phase| match phase {
///     Phase::Check => "checking",
///     Phase::Save => "saving",
///     Phase::CheckAgain => "checking again",
/// };
/// assert_eq!(words(Phase::Save), "saving");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The store is read and checked.
    Check,
    /// What can be read of a damaged store is put together (repair only).
    Save,
    /// The repaired store is read and checked (repair only).
    CheckAgain,
}

/// How far `verify` or `repair` has come. See [`crate::verify_with`].
///
/// ```
/// use thermocline::{Phase, Progress};
/// let progress = Progress { phase: Phase::Check, done_bytes: 30, total_bytes: 120 };
/// assert_eq!(100 * progress.done_bytes / progress.total_bytes, 25);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Bytes done in this phase, from 0 to `total_bytes`; it never falls.
    pub done_bytes: u64,
    /// Bytes to do in this phase.
    pub total_bytes: u64,
}

/// Counts bytes and tells the observer.
pub(crate) struct Meter<'a> {
    observer: &'a mut dyn FnMut(Progress),
    now: Progress,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(observer: &'a mut dyn FnMut(Progress)) -> Meter<'a> {
        Meter {
            observer,
            now: Progress {
                phase: Phase::Check,
                done_bytes: 0,
                total_bytes: 0,
            },
        }
    }

    /// Begins a phase.
    pub(crate) fn begin(&mut self, phase: Phase, total_bytes: u64) {
        self.now = Progress {
            phase,
            done_bytes: 0,
            total_bytes,
        };
        (self.observer)(self.now);
    }

    /// The phase that is running.
    pub(crate) fn phase(&self) -> Phase {
        self.now.phase
    }

    /// So many more bytes are done.
    pub(crate) fn add(&mut self, bytes: u64) {
        let done = self.now.done_bytes.saturating_add(bytes);
        self.now.done_bytes = done.min(self.now.total_bytes);
        (self.observer)(self.now);
    }

    /// All of the phase is done: what was not read could not be.
    pub(crate) fn end(&mut self) {
        self.add(self.now.total_bytes);
    }
}
