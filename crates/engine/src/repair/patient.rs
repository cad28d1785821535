//! The file system as a repair reads it: it asks again before it takes bytes for
//! lost, and remembers what was no fault of theirs.
//!
//! A repair leaves out what cannot be read, so an error that passes must not look
//! like one that stays. A device that fails to read is asked a few times. What has
//! another cause, such as too few descriptors, says nothing about the bytes: the
//! repair is to end with it, and not to go on without them.
//!
//! A place that the device cannot read however often it is asked is damage like any
//! other: what lies around it is read, and it itself as bytes that no checksum fits.
//! A device that does not answer at all is not taken for one with such places.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::store::{
    Advice, Clock, DirectoryEntry, Environment, File, FileSystem, Lock, Mapped, Metadata, OpenHow,
    Space,
};

/// How often a device is asked.
const TRIES: u32 = 3;
/// How long is waited before it is asked again.
const PAUSE: Duration = Duration::from_millis(20);
/// The least that a device reads or does not read, where it does not say.
const PIECE_BYTES: usize = 512;
/// What stands for bytes that cannot be read. Not zeros: those are room that is still
/// free.
const UNREADABLE: u8 = 0xff;
/// What a device answers when the bytes are at fault, or it is itself.
const OF_THE_DEVICE: [Errno; 4] = [Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::NODATA];

/// See the module.
pub(super) struct Patient {
    inner: Arc<dyn FileSystem>,
    asker: Arc<Asker>,
}

/// Asks again, and remembers.
struct Asker {
    clock: Arc<dyn Clock>,
    failure: Mutex<Option<Error>>,
    /// Files of which places cannot be read.
    unreadable: Mutex<BTreeSet<PathBuf>>,
}

impl Patient {
    pub(super) fn new(environment: &Environment) -> Arc<Patient> {
        Arc::new(Patient {
            inner: Arc::clone(&environment.file_system),
            asker: Arc::new(Asker {
                clock: Arc::clone(&environment.clock),
                failure: Mutex::new(None),
                unreadable: Mutex::new(BTreeSet::new()),
            }),
        })
    }

    /// Files with places that their device cannot read.
    pub(super) fn unreadable(&self) -> Vec<PathBuf> {
        self.asker.unreadable.lock().iter().cloned().collect()
    }

    /// Requires that everything that could not be read is at fault itself.
    pub(super) fn check(&self) -> Result<()> {
        self.asker.failure.lock().clone().map_or(Ok(()), Err)
    }
}

impl Asker {
    fn ask<T>(
        &self,
        doing: &str,
        path: &Path,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut attempt = 1;
        loop {
            let error = match call() {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let of_the_device = is_of_the_device(&error);
            let expected = matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::Interrupted
            );
            if of_the_device && attempt < TRIES {
                self.clock.sleep(PAUSE);
                attempt += 1;
                continue;
            }
            if !of_the_device && !expected {
                let same = io::Error::new(error.kind(), error.to_string());
                let mut failure = self.failure.lock();
                failure.get_or_insert_with(|| Error::io(doing, path, same));
            }
            return Err(error);
        }
    }
}

impl FileSystem for Patient {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let open = || self.inner.open(path, how);
        let inner = if how == OpenHow::READ || how.direct {
            self.asker.ask("opening", path, open)?
        } else {
            open()?
        };
        Ok(Arc::new(PatientFile {
            inner,
            path: path.to_path_buf(),
            file_system: Arc::clone(&self.inner),
            asker: Arc::clone(&self.asker),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inner.unlink(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let list = || self.inner.list(directory);
        self.asker.ask("listing", directory, list)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_directory(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.inner.sync_directory(directory)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.hard_link(from, to)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let look = || self.inner.metadata(path);
        self.asker.ask("looking for", path, look)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.inner.lock(path)
    }

    fn space(&self, directory: &Path) -> io::Result<Space> {
        self.inner.space(directory)
    }
}

impl fmt::Debug for Patient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patient")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

fn is_of_the_device(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|number| OF_THE_DEVICE.contains(&number))
}

struct PatientFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    file_system: Arc<dyn FileSystem>,
    asker: Arc<Asker>,
}

impl PatientFile {
    /// Reads what lies around places that cannot be read. `Requires:` a read of
    /// `buffer` at `offset` failed as often as is asked.
    fn read_around(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let piece = self.inner.direct_alignment().unwrap_or(PIECE_BYTES) as u64;
        // Parts from the front on, as stretches of the buffer.
        let mut parts = vec![(0, buffer.len())];
        let mut done = 0;
        while let Some((start, end)) = parts.pop() {
            let part = &mut buffer[start..end];
            let at = offset + start as u64;
            let middle = (at + (end - start) as u64 / 2).next_multiple_of(piece);
            let middle = start + (middle - at) as usize;
            let read = (1..=TRIES).find_map(|attempt| match self.inner.read_at(part, at) {
                Err(error) if is_of_the_device(&error) && attempt < TRIES => None,
                answer => Some(answer),
            });
            match read.unwrap_or(Ok(0)) {
                Err(error) if is_of_the_device(&error) && start < middle && middle < end => {
                    parts.extend([(middle, end), (start, middle)]);
                }
                Err(error) if is_of_the_device(&error) => {
                    part.fill(UNREADABLE);
                    done = end;
                }
                Err(error) => return Err(error),
                Ok(length) => {
                    done = start + length;
                    if length < end - start {
                        break;
                    }
                }
            }
        }
        // The last of them may reach beyond the end.
        let rest = self.inner.size_bytes()?.saturating_sub(offset);
        Ok(done.min(usize::try_from(rest).unwrap_or(done)))
    }
}

impl File for PatientFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = || self.inner.read_at(buffer, offset);
        let failed = match self.asker.ask("reading", &self.path, read) {
            Err(error) if is_of_the_device(&error) => error,
            answer => return answer,
        };
        // It answers, but for the bytes.
        let is_there = self.file_system.metadata(&self.path);
        if !is_there.is_ok_and(|metadata| metadata.is_some()) {
            return Err(failed);
        }
        let length = self.read_around(buffer, offset)?;
        self.asker.unreadable.lock().insert(self.path.clone());
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.inner.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn size_bytes(&self) -> io::Result<u64> {
        let size = || self.inner.size_bytes();
        self.asker.ask("looking at", &self.path, size)
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.inner.set_size(size_bytes)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.allocate(offset, length)
    }

    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        self.inner.advise(offset, length, advice);
    }

    fn direct_alignment(&self) -> Option<usize> {
        self.inner.direct_alignment()
    }

    fn map(&self, length: u64) -> Option<Box<dyn Mapped>> {
        self.inner.map(length)
    }
}

impl fmt::Debug for PatientFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PatientFile")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
