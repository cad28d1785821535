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
    /// How the file began that was last read, and how far it was read.
    identity: Vec<u8>,
    offset: u64,
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
            identity: Vec::new(),
            offset: 0,
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
        let path = self.directory.join(EVENTS_FILE);
        let bytes = self.bytes(&path, 0)?;
        let mut events = Vec::new();
        let is_known = (1..=bytes.len() as u64).contains(&self.offset);
        if !(is_known && bytes.starts_with(&self.identity)) {
            // Begun anew since: the rest of the one before has the old name.
            let path = self.directory.join(OLD_EVENTS_FILE);
            let old = self.bytes(&path, 0)?;
            let from = if self.offset > 0 && old.starts_with(&self.identity) {
                self.offset as usize
            } else {
                0
            };
            events = find(old.get(from..).unwrap_or_default()).events;
            self.offset = 0;
        }
        let from = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let found = find(bytes.get(from..).unwrap_or_default());
        self.offset += found.done as u64;
        let begins = (self.offset as usize).min(IDENTITY_BYTES);
        self.identity = bytes[..begins].to_vec();
        events.extend(found.events);
        Ok(events)
    }

    fn bytes(&self, path: &Path, offset: u64) -> Result<Vec<u8>> {
        read_from(&self.environment, path, offset).map_err(|e| Error::io("reading events", path, e))
    }
}

/// The bytes of a file of the record from `offset` on; none where there is no file.
pub(super) fn read_from(
    environment: &Environment,
    path: &Path,
    offset: u64,
) -> std::io::Result<Vec<u8>> {
    let file = match environment.file_system.open(path, OpenHow::READ) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let size = file.size_bytes()?.min(READ_BYTES_MAX);
    let mut bytes = vec![0; size.saturating_sub(offset) as usize];
    let length = read_exact_at(&*file, &mut bytes, offset)?;
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
