//! Reading the record of events, also while another process writes it.

use std::path::{Path, PathBuf};

use super::Event;
use super::frame::find;
use super::record::{EVENTS_FILE, OLD_EVENTS_FILE, READ_BYTES_MAX};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::store::{Environment, OpenHow, read_exact_at};

/// So many bytes at its beginning tell one file of the record from another: the
/// mark, the checksum of its first event, and more.
const IDENTITY_BYTES: usize = 64;

/// Follows the events of a store, whoever has it open. Takes no lock and changes
/// nothing. What is damaged is passed over.
///
/// ```
/// # use thermocline::{Db, EventReader, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::at(directory.path());
/// let db = Db::open(options.clone())?;
/// db.put(b"key", b"value")?;
/// db.flush()?;
/// db.close()?; // What a store that goes on does is there within a second.
/// let mut reader = EventReader::new(&options);
/// assert_eq!(reader.read()?[0].job, "flush");
/// assert_eq!(reader.read()?, []); // Nothing new.
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Debug)]
pub struct EventReader {
    environment: Environment,
    directory: PathBuf,
    /// How far each of the two files was read.
    newer: Place,
    older: Place,
}

/// How far a file was read, and how it begins: that is how it is known again.
#[derive(Debug, Default)]
struct Place {
    offset: usize,
    identity: Vec<u8>,
}

impl Place {
    /// Whether `bytes` are those that were read, and perhaps more.
    fn is_in(&self, bytes: &[u8]) -> bool {
        (1..=bytes.len()).contains(&self.offset) && bytes.starts_with(&self.identity)
    }

    /// The events in `bytes` from here on; goes on behind them.
    fn read(&mut self, bytes: &[u8]) -> Vec<Event> {
        let found = find(bytes.get(self.offset..).unwrap_or_default());
        self.offset += found.done;
        let begins = self.offset.min(IDENTITY_BYTES).min(bytes.len());
        self.identity = bytes[..begins].to_vec();
        found.events
    }
}

impl EventReader {
    /// A reader of the store of `options`, at the oldest event that is left.
    ///
    /// ```
    /// # use thermocline::{EventReader, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let mut reader = EventReader::new(&Options::at(directory.path()));
    /// assert_eq!(reader.read()?, []); // No store, no events.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Panics
    /// If `options` name no tier.
    #[must_use]
    pub fn new(options: &Options) -> EventReader {
        EventReader::in_directory(&Environment::real(), options.event_directory())
    }

    pub(crate) fn in_directory(environment: &Environment, directory: &Path) -> EventReader {
        EventReader {
            environment: environment.clone(),
            directory: directory.to_path_buf(),
            newer: Place::default(),
            older: Place::default(),
        }
    }

    /// The events that came since the last call; of the first call, all that are
    /// left.
    ///
    /// ```
    /// # use thermocline::{Db, EventReader, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// for _ in 0..2 {
    ///     let db = Db::open(options.clone())?;
    ///     db.put(b"key", b"value")?;
    ///     db.flush()?;
    ///     db.close()?;
    /// }
    /// let events = EventReader::new(&options).read()?; // Of both openings.
    /// assert_eq!(events.iter().filter(|e| e.job == "flush").count(), 2);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when a file is there and cannot be
    /// read.
    pub fn read(&mut self) -> Result<Vec<Event>> {
        let bytes = self.bytes(EVENTS_FILE)?;
        let mut events = Vec::new();
        if !self.newer.is_in(&bytes) {
            // Begun anew since: the rest of the one before has the old name.
            let old = self.bytes(OLD_EVENTS_FILE)?;
            let before = std::mem::take(&mut self.newer);
            if before.is_in(&old) {
                self.older = before;
            } else if !self.older.is_in(&old) {
                self.older = Place::default();
            }
            events = self.older.read(&old);
        }
        events.extend(self.newer.read(&bytes));
        Ok(events)
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.directory.join(name);
        read_file(&self.environment, &path).map_err(|e| Error::io("reading events", &path, e))
    }
}

/// The bytes of a file of the record; none where there is no file.
pub(super) fn read_file(environment: &Environment, path: &Path) -> std::io::Result<Vec<u8>> {
    let file = match environment.file_system.open(path, OpenHow::READ) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let size = file.size_bytes()?.min(READ_BYTES_MAX);
    let mut bytes = vec![0; size as usize];
    let length = read_exact_at(&*file, &mut bytes, 0)?;
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::frame::tests::event;
    use super::super::record::Record;
    use super::*;

    fn numbers(reader: &mut EventReader) -> Vec<u64> {
        let events = reader.read().unwrap();
        events.iter().map(|e| e.number).collect()
    }

    #[test]
    fn a_reader_misses_nothing_and_repeats_nothing_while_files_are_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (environment, record) = (Environment::real(), Record::default());
        let mut reader = EventReader::in_directory(&environment, directory.path());
        assert_eq!(numbers(&mut reader), []);
        let mut seen = Vec::new();
        for at in 0..20_000 {
            record.add(&mut event(0));
            if at % 7 == 0 {
                record.write(&environment, directory.path());
            }
            if at % 100 == 0 {
                seen.extend(numbers(&mut reader));
            }
        }
        record.write(&environment, directory.path());
        seen.extend(numbers(&mut reader));
        assert!(seen.iter().copied().eq(1..=20_000), "{}", seen.len());
    }

    // Found when the fuzz target `events` was written: while the newer file had no whole event
    // (just begun anew on a device that then was full, deleted, or damaged at its beginning), a
    // reader forgot how far it had read the older one, and gave all of that again with every call.
    #[test]
    fn a_reader_repeats_nothing_while_the_newer_file_is_empty_or_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(EVENTS_FILE);
        let (environment, record) = (Environment::real(), Record::default());
        let mut reader = EventReader::in_directory(&environment, directory.path());
        let write = || {
            record.add(&mut event(0));
            record.write(&environment, directory.path());
        };
        write();
        assert_eq!(numbers(&mut reader), [1]);
        write();
        std::fs::rename(&path, directory.path().join(OLD_EVENTS_FILE)).unwrap();
        assert_eq!(numbers(&mut reader), [2], "the rest of what was followed");
        assert_eq!(numbers(&mut reader), []);
        std::fs::write(&path, b"").unwrap();
        assert_eq!(numbers(&mut reader), []);
        std::fs::write(&path, [0xff; 100]).unwrap();
        assert_eq!(numbers(&mut reader), []);
        write();
        assert_eq!(numbers(&mut reader), [3]);
        let mut late = EventReader::in_directory(&environment, directory.path());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(numbers(&mut late), [1, 2]);
        assert_eq!(numbers(&mut late), []);
    }

    #[test]
    fn a_reader_stands_files_that_vanish_shrink_or_are_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(EVENTS_FILE);
        let (environment, record) = (Environment::real(), Record::default());
        let mut reader = EventReader::in_directory(&environment, directory.path());
        let write = |count: u32| {
            for _ in 0..count {
                record.add(&mut event(0));
            }
            record.write(&environment, directory.path());
        };
        write(3);
        assert_eq!(numbers(&mut reader), [1, 2, 3]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(numbers(&mut reader), []);
        write(2);
        assert_eq!(numbers(&mut reader), [4, 5]);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(80);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(numbers(&mut reader), []);
        write(1);
        std::fs::write(&path, [0xff; 3000]).unwrap();
        assert_eq!(numbers(&mut reader), []);
        write(1);
        assert_eq!(numbers(&mut reader), [7]);
    }
}
