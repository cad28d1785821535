//! Writing an object: gathered into large pieces, which the device is given while more is made.
//!
//! Invariant: a writer that failed once refuses everything after (I5), whether the system told of
//! it in a write, in a sync, or while the writer waited for the device.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::object::ObjectWriter;
use super::super::{Advice, Buffer, File, IoBudget, write_all_at};
use super::Shared;
use crate::{Error, ErrorKind, Result};

/// What a writer gathers before it writes.
pub(crate) const WRITE_BUFFER_BYTES: usize = 512 << 10;

/// What is written between two requests that it be given to the device. Less, and the file
/// system would lay the file out in pieces, of which each is a request to read.
const WRITE_BACK_BYTES: u64 = 8 << 20;
/// The same of the background where flushes write as well: with each request it waits for the one
/// before.
const WRITE_BACK_BYTES_PACED: u64 = 4 << 20;

/// A page of the cache, at least.
const PAGE_BYTES: u64 = 4 << 10;

/// Writes one object.
#[derive(Debug)]
pub(super) struct LocalWriter {
    shared: Arc<Shared>,
    budget: Option<Arc<IoBudget>>,
    path: PathBuf,
    file: Arc<dyn File>,
    buffer: Buffer,
    /// Bytes in the file, all of them counted as used.
    written_bytes: u64,
    /// Of these, bytes that the device has been or is being given.
    leaving_bytes: u64,
    /// And of these, bytes that it was waited for.
    left_bytes: u64,
    state: WriterState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriterState {
    /// Never persisted: the name may vanish in a crash.
    Unnamed,
    /// Persisted at least once.
    Named,
    /// Failed; `named` tells which of the two it was.
    Poisoned { named: bool },
}

impl ObjectWriter for LocalWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.check()?;
        if self.buffer.len() + bytes.len() > WRITE_BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= WRITE_BUFFER_BYTES {
            return self.write(bytes);
        }
        if self.buffer.capacity() < WRITE_BUFFER_BYTES {
            self.buffer = Buffer::with_capacity(WRITE_BUFFER_BYTES);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    fn begin_persist(&mut self) -> Result<()> {
        self.check()?;
        self.flush()?;
        self.buffer = Buffer::default();
        self.write_back(self.written_bytes)
    }

    fn persist(&mut self) -> Result<()> {
        self.check()?;
        self.flush()?;
        if let Err(error) = self.file.sync() {
            return Err(self.poison("sync object", error));
        }
        if self.state == WriterState::Unnamed {
            if let Err(error) = self
                .shared
                .file_system
                .sync_directory(&self.shared.directory)
            {
                return Err(self.poison("sync the directory of object", error));
            }
            self.state = WriterState::Named;
        }
        if self.shared.options.direct {
            self.file.advise(0, self.written_bytes, Advice::DontNeed);
        }
        Ok(())
    }

    fn abandon(mut self: Box<Self>) {
        self.delete();
        self.state = WriterState::Poisoned { named: true };
    }
}

impl LocalWriter {
    /// One of `file`, which is new and lies at `path`; with a budget it is of the background.
    pub(super) fn new(
        shared: Arc<Shared>,
        budget: Option<Arc<IoBudget>>,
        path: PathBuf,
        file: Arc<dyn File>,
    ) -> LocalWriter {
        LocalWriter {
            shared,
            budget,
            path,
            file,
            buffer: Buffer::default(),
            written_bytes: 0,
            leaving_bytes: 0,
            left_bytes: 0,
            state: WriterState::Unnamed,
        }
    }

    fn check(&self) -> Result<()> {
        if matches!(self.state, WriterState::Poisoned { .. }) {
            let message = "an earlier write of this object failed";
            return Err(Error::new(ErrorKind::Poisoned, message).at(&self.path));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let result = self.write(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        result
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(budget) = &self.budget {
            budget.take(bytes.len() as u64);
        }
        let written = write_all_at(&*self.file, bytes, self.written_bytes);
        // After a failure the file itself knows how much of it got there.
        let size_bytes = match &written {
            Ok(()) => self.written_bytes + bytes.len() as u64,
            Err(_) => self.file.size_bytes().unwrap_or(self.written_bytes),
        };
        let grown = size_bytes.saturating_sub(self.written_bytes);
        self.shared.used_bytes.fetch_add(grown, Ordering::Relaxed);
        self.written_bytes += grown;
        let whole_pages = self.written_bytes / PAGE_BYTES * PAGE_BYTES;
        written.map_err(|error| self.poison("write object", error))?;
        let step_bytes = match self.is_paced() {
            true => WRITE_BACK_BYTES_PACED,
            false => WRITE_BACK_BYTES,
        };
        match whole_pages >= self.leaving_bytes + step_bytes {
            true => self.write_back(whole_pages),
            false => Ok(()),
        }
    }

    /// Has the system begin to give the device what was written before `end`: nobody will
    /// read it from the cache, and the device is busy while more is made, not when all is
    /// made and waited for. On a tier that is read by way of the cache the system decides, as
    /// this advice would also empty it.
    ///
    /// Where flushes write as well the background waits until the device has what it was given
    /// before that: a flush, for which writers wait, would be behind whatever a merge has made
    /// faster than it is written.
    fn write_back(&mut self, end: u64) -> Result<()> {
        let bytes = end.saturating_sub(self.leaving_bytes);
        if !self.shared.options.direct || bytes == 0 {
            return Ok(());
        }
        let (left, leaving) = (self.left_bytes, self.leaving_bytes);
        self.file.advise(leaving, bytes, Advice::DontNeed);
        self.leaving_bytes = end;
        if self.is_paced() {
            let written = self.file.wait_written(left, leaving - left);
            written.map_err(|error| self.poison("write object", error))?;
            self.left_bytes = leaving;
        }
        Ok(())
    }

    fn is_paced(&self) -> bool {
        self.shared.options.flushed_to && self.budget.is_some()
    }

    fn poison(&mut self, doing: &str, error: io::Error) -> Error {
        self.state = WriterState::Poisoned {
            named: self.state == WriterState::Named,
        };
        Error::io(doing, &self.path, error)
    }

    fn delete(&mut self) {
        // What cannot be deleted now is an orphan, swept at the next open.
        if self.shared.file_system.unlink(&self.path).is_ok() {
            self.shared.release(self.written_bytes);
            self.written_bytes = 0;
        }
    }
}

impl Drop for LocalWriter {
    fn drop(&mut self) {
        match self.state {
            WriterState::Unnamed | WriterState::Poisoned { named: false } => self.delete(),
            WriterState::Named | WriterState::Poisoned { named: true } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use parking_lot::Mutex;

    use super::super::super::{Environment, Mapped, OpenHow};
    use super::super::LocalStoreOptions;
    use super::super::tests::{data, pattern, store};
    use super::*;

    /// A file of which the device is waited for, and may fail to write what it was given.
    #[derive(Debug)]
    struct Given {
        file: Arc<dyn File>,
        waited: Mutex<Vec<(u64, u64)>>,
        fails: bool,
    }

    impl File for Given {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.file.read_at(buffer, offset)
        }
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
            self.file.write_at(bytes, offset)
        }
        fn sync(&self) -> io::Result<()> {
            self.file.sync()
        }
        fn size_bytes(&self) -> io::Result<u64> {
            self.file.size_bytes()
        }
        fn set_size(&self, size_bytes: u64) -> io::Result<()> {
            self.file.set_size(size_bytes)
        }
        fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
            self.file.allocate(offset, length)
        }
        fn advise(&self, offset: u64, length: u64, advice: Advice) {
            self.file.advise(offset, length, advice);
        }
        fn wait_written(&self, offset: u64, length: u64) -> io::Result<()> {
            self.waited.lock().push((offset, length));
            match self.fails && length > 0 {
                true => Err(io::Error::from_raw_os_error(libc::EIO)),
                false => self.file.wait_written(offset, length),
            }
        }
        fn direct_alignment(&self) -> Option<usize> {
            self.file.direct_alignment()
        }
        fn map(&self, length: u64) -> Option<Box<dyn Mapped>> {
            self.file.map(length)
        }
    }

    /// A writer of such a file in `directory`, in the background or not.
    fn writer_of_given(
        directory: &Path,
        background: bool,
        flushed_to: bool,
        fails: bool,
    ) -> (LocalWriter, Arc<Given>) {
        let mut shared = store(directory, false).shared;
        // Memory has no way past the cache, but is written back as it is.
        Arc::get_mut(&mut shared).unwrap().options = LocalStoreOptions {
            direct: true,
            flushed_to,
        };
        let path = shared.path(data(1));
        let file = Arc::new(Given {
            file: shared.file_system.open(&path, OpenHow::NEW).unwrap(),
            waited: Mutex::default(),
            fails,
        });
        let unlimited = || Arc::new(IoBudget::unlimited(Environment::real().clock));
        let budget = background.then(unlimited);
        let writer = LocalWriter::new(shared, budget, path, file.clone());
        (writer, file)
    }

    #[test]
    fn the_background_waits_until_what_the_device_was_given_before_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let step = WRITE_BACK_BYTES_PACED;
        let waits = vec![(0, 0), (0, step), (step, step), (2 * step, step)];
        for (background, flushed_to, expected) in [
            (true, true, waits),
            (true, false, vec![]),
            (false, true, vec![]),
        ] {
            let (mut writer, file) =
                writer_of_given(directory.path(), background, flushed_to, false);
            for _ in 0..3 {
                writer.append(&pattern(step as usize)).unwrap();
            }
            writer.append(b"the end").unwrap();
            writer.begin_persist().unwrap();
            writer.persist().unwrap();
            assert_eq!(*file.waited.lock(), expected);
            let mut last = [0; 7];
            file.read_at(&mut last, 3 * step).unwrap();
            assert_eq!(&last, b"the end");
            writer.delete();
        }
    }

    /// A sync may not tell of what was waited for.
    #[test]
    fn a_write_that_failed_behind_the_writer_is_told_and_nothing_is_persisted() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = writer_of_given(directory.path(), true, true, true);
        let step = pattern(WRITE_BACK_BYTES_PACED as usize);
        writer.append(&step).unwrap();
        let error = writer.append(&step).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(writer.persist().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(writer.append(b"x").unwrap_err().kind(), ErrorKind::Poisoned);
        drop(writer);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
