//! The file system as a repair reads it: it asks again before it takes bytes for
//! lost, and remembers what was no fault of theirs.
//!
//! A repair leaves out what cannot be read, so an error that passes must not look
//! like one that stays. A device that fails to read is asked a few times. What has
//! another cause, such as too few descriptors, says nothing about the bytes: the
//! repair is to end with it, and not to go on without them.

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
}

impl Patient {
    pub(super) fn new(environment: &Environment) -> Arc<Patient> {
        Arc::new(Patient {
            inner: Arc::clone(&environment.file_system),
            asker: Arc::new(Asker {
                clock: Arc::clone(&environment.clock),
                failure: Mutex::new(None),
            }),
        })
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
            let of_the_device =
                Errno::from_io_error(&error).is_some_and(|number| OF_THE_DEVICE.contains(&number));
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

struct PatientFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    asker: Arc<Asker>,
}

impl File for PatientFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = || self.inner.read_at(buffer, offset);
        self.asker.ask("reading", &self.path, read)
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
