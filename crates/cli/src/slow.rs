//! A file system below one directory of which reads take their time, so that a tier
//! on the same device as the others behaves like a slower one.
//!
//! Only reading is slowed: by a fixed time a call, as a seek or a round trip does, and
//! by the bytes. The delay is slept, not computed, so that as many reads wait at once
//! as are made at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thermocline::store::{
    Advice, DirectoryEntry, Environment, File, FileSystem, Lock, Mapped, Metadata, OpenHow, Space,
};

/// How slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slowness {
    /// Each call to read takes so much longer.
    pub(crate) read: Duration,
    /// And transfers so many bytes a second.
    pub(crate) bytes_per_second: u64,
}

/// The machine, with `directory` made slow.
pub(crate) fn environment(directory: &Path, slowness: Slowness) -> Environment {
    let real = Environment::real();
    Environment {
        file_system: Arc::new(SlowDirectory {
            inner: Arc::clone(&real.file_system),
            directory: directory.to_path_buf(),
            slowness,
        }),
        ..real
    }
}

#[derive(Debug)]
struct SlowDirectory {
    inner: Arc<dyn FileSystem>,
    directory: PathBuf,
    slowness: Slowness,
}

#[derive(Debug)]
struct SlowFile {
    inner: Arc<dyn File>,
    slowness: Slowness,
}

impl FileSystem for SlowDirectory {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, how)?;
        if !path.starts_with(&self.directory) {
            return Ok(inner);
        }
        Ok(Arc::new(SlowFile {
            inner,
            slowness: self.slowness,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inner.unlink(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.inner.list(directory)
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
        self.inner.metadata(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.inner.lock(path)
    }

    fn space(&self, directory: &Path) -> io::Result<Space> {
        self.inner.space(directory)
    }
}

impl File for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.inner.read_at(buffer, offset)?;
        let transfer = read as f64 / self.slowness.bytes_per_second as f64;
        std::thread::sleep(self.slowness.read + Duration::from_secs_f64(transfer));
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.inner.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.inner.size_bytes()
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

    fn wait_written(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.wait_written(offset, length)
    }

    fn direct_alignment(&self) -> Option<usize> {
        self.inner.direct_alignment()
    }

    fn map(&self, length: u64) -> Option<Box<dyn Mapped>> {
        self.inner.map(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_below_the_directory_are_slow() {
        let directory = tempfile::tempdir().unwrap();
        let slow = directory.path().join("slow");
        std::fs::create_dir(&slow).unwrap();
        let slowness = Slowness {
            read: Duration::from_millis(20),
            bytes_per_second: 1 << 30,
        };
        let environment = environment(&slow, slowness);
        let began = std::time::Instant::now();
        let file = environment
            .file_system
            .open(&slow.join("file"), OpenHow::NEW)
            .unwrap();
        file.write_at(b"bytes", 0).unwrap();
        let mut buffer = [0; 5];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 5);
        assert_eq!(&buffer, b"bytes");
        assert!(began.elapsed() >= slowness.read);
        let beside = environment
            .file_system
            .open(&directory.path().join("beside"), OpenHow::NEW);
        assert!(!format!("{:?}", beside.unwrap()).contains("SlowFile"));
    }
}
