//! The record of events: two files on the first tier, or the one named for them, `EVENTS` and, once
//! that is full, `EVENTS.old`. So it holds the last ones and never grows beyond a bound.
//!
//! Events wait in memory and are appended together now and then, by whoever plans
//! the next job, and when the store closes; never while a job waits. The file is
//! opened anew each time, so that one that somebody has deleted is begun again.
//! It is never synced: a power failure may cost the last events.

use std::collections::VecDeque;
use std::path::Path;

use parking_lot::Mutex;

use super::frame::{encode, newest, seal};
use super::{Event, follow};
use crate::store::{Access, Create, Environment, OpenHow, write_all_at};

/// The record, and what it was before it was last begun anew.
pub(crate) const EVENTS_FILE: &str = "EVENTS";
pub(crate) const OLD_EVENTS_FILE: &str = "EVENTS.old";

/// A file that has so many bytes gets no more.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most bytes of events that wait to be written; beyond them the oldest are
/// given up.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// Most bytes that a file of the record can have.
pub(super) const READ_BYTES_MAX: u64 = FILE_BYTES_MAX + WAITING_BYTES_MAX as u64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Held for no longer than memory takes, so that no job waits for the file.
    state: Mutex<State>,
    /// Held by whoever writes the file. Nobody waits for it.
    file: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the newest event.
    number: u64,
    waiting: Waiting,
}

/// Frames that wait to be written, oldest first.
#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, frame: Vec<u8>) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
        while self.bytes > WAITING_BYTES_MAX {
            match self.frames.pop_front() {
                Some(oldest) => self.bytes -= oldest.len(),
                None => break,
            }
        }
    }
}

impl Record {
    /// Goes on from the newest event that the files in `directory` know.
    pub(crate) fn begin(&self, environment: &Environment, directory: &Path) {
        for name in [OLD_EVENTS_FILE, EVENTS_FILE] {
            let bytes = follow::read_file(environment, &directory.join(name));
            // What cannot be read numbers nothing.
            let newest = newest(&bytes.unwrap_or_default());
            let mut state = self.state.lock();
            state.number = state.number.max(newest);
        }
    }

    /// Numbers `event` and has it wait for the next [`Record::write`].
    pub(super) fn add(&self, event: &mut Event) {
        let mut state = self.state.lock();
        // What a damaged file says may be the last number there is.
        state.number = state.number.saturating_add(1);
        event.number = state.number;
        let Some(frame) = seal(&encode(event)) else {
            return;
        };
        state.waiting.push(frame);
    }

    /// Appends what waits. If that fails, it goes on waiting.
    pub(crate) fn write(&self, environment: &Environment, directory: &Path) {
        // Who finds another at it has better things to do.
        let Some(_writing) = self.file.try_lock() else {
            return;
        };
        let mut waiting = std::mem::take(&mut self.state.lock().waiting);
        if waiting.frames.is_empty() {
            return;
        }
        let bytes = waiting.frames.make_contiguous().concat();
        if append(environment, directory, &bytes).is_err() {
            let state = &mut *self.state.lock();
            for newer in std::mem::take(&mut state.waiting).frames {
                waiting.push(newer);
            }
            state.waiting = waiting;
        }
    }
}

/// Appends `bytes` to the record in `directory`. What an attempt that failed has
/// left behind the last whole frame is written over by the next.
fn append(environment: &Environment, directory: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let file_system = &environment.file_system;
    let path = directory.join(EVENTS_FILE);
    let how = OpenHow {
        access: Access::ReadWrite,
        create: Create::IfAbsent,
        direct: false,
    };
    let mut file = file_system.open(&path, how)?;
    let mut size = file.size_bytes()?;
    if size >= FILE_BYTES_MAX {
        file_system.rename(&path, &directory.join(OLD_EVENTS_FILE))?;
        file = file_system.open(&path, how)?;
        size = file.size_bytes()?;
    }
    write_all_at(&*file, bytes, size).inspect_err(|_| {
        // Half a frame is no harm: readers step over it.
        let _ = file.set_size(size);
    })
}

#[cfg(test)]
mod tests {
    use super::super::frame::{find, tests::event};
    use super::*;

    fn read(directory: &Path) -> Vec<u64> {
        let environment = Environment::real();
        let numbers = [OLD_EVENTS_FILE, EVENTS_FILE].map(|name| {
            let bytes = follow::read_file(&environment, &directory.join(name));
            let events = find(&bytes.unwrap_or_default()).events;
            events.iter().map(|e| e.number).collect::<Vec<_>>()
        });
        numbers.concat()
    }

    #[test]
    fn the_record_holds_the_last_events_and_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let (environment, record) = (Environment::real(), Record::default());
        let each = seal(&encode(&event(1))).unwrap().len() as u64;
        let count = 3 * FILE_BYTES_MAX / each;
        for at in 0..count {
            record.add(&mut event(0));
            if at % 50 == 0 {
                record.write(&environment, directory.path());
            }
            let entries = std::fs::read_dir(directory.path()).unwrap();
            let sizes = entries.map(|e| e.unwrap().metadata().unwrap().len());
            assert!(at % 1000 != 0 || sizes.sum::<u64>() <= 2 * READ_BYTES_MAX);
        }
        record.write(&environment, directory.path());
        let numbers = read(directory.path());
        assert_eq!(numbers.last(), Some(&count));
        assert!(numbers.len() as u64 >= FILE_BYTES_MAX / each);
        assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        // The next opening goes on.
        let next = Record::default();
        next.begin(&environment, directory.path());
        let mut after = event(0);
        next.add(&mut after);
        assert_eq!(after.number, count + 1);
    }

    #[test]
    fn what_waits_is_bounded_and_the_oldest_goes_first() {
        let record = Record::default();
        for _ in 0..20_000 {
            record.add(&mut event(0));
        }
        let directory = tempfile::tempdir().unwrap();
        assert!(record.state.lock().waiting.bytes <= WAITING_BYTES_MAX);
        record.write(&Environment::real(), &directory.path().join("gone"));
        assert!(
            !record.state.lock().waiting.frames.is_empty(),
            "nothing was lost"
        );
        record.write(&Environment::real(), directory.path());
        assert_eq!(read(directory.path()).last(), Some(&20_000));
    }

    #[test]
    fn a_torn_or_deleted_record_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(EVENTS_FILE);
        let (environment, record) = (Environment::real(), Record::default());
        record.add(&mut event(0));
        record.write(&environment, directory.path());
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        record.add(&mut event(0));
        record.write(&environment, directory.path());
        assert_eq!(read(directory.path()), [2]);
        std::fs::remove_file(&path).unwrap();
        record.add(&mut event(0));
        record.write(&environment, directory.path());
        assert_eq!(read(directory.path()), [3]);
    }
}
