//! A file system whose calls are places where threads may change, and which
//! notices when a deleted object is read.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use shuttle::sync::atomic::AtomicBool;
use thermocline::store::{
    Advice, DirectoryEntry, Environment, File, FileSystem, Lock, Mapped, Metadata, OpenHow, Space,
};
use thermocline_sim::disk::Disk;

/// Lets the scheduler choose who goes on: a read of an atomic of its own.
fn point() {
    AtomicBool::new(false).load(Ordering::SeqCst);
}

/// A simulated disk under watch. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    disk: Disk,
    /// Files of tables that were deleted.
    deleted: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Watched {
    pub(crate) fn new(disk: &Disk) -> Watched {
        Watched {
            disk: disk.clone(),
            deleted: Arc::default(),
        }
    }

    pub(crate) fn environment(&self) -> Environment {
        Environment {
            file_system: Arc::new(self.clone()),
            ..self.disk.environment()
        }
    }
}

impl FileSystem for Watched {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        point();
        Ok(Arc::new(WatchedFile {
            file: self.disk.open(path, how)?,
            path: path.to_path_buf(),
            deleted: Arc::clone(&self.deleted),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        point();
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        point();
        self.disk.unlink(path)?;
        self.deleted.lock().insert(path.to_path_buf());
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        point();
        self.disk.list(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        point();
        self.disk.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        point();
        self.disk.remove_directory(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        point();
        self.disk.sync_directory(directory)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        point();
        self.disk.hard_link(from, to)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        point();
        self.disk.metadata(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        point();
        self.disk.lock(path)
    }

    fn space(&self, directory: &Path) -> io::Result<Space> {
        point();
        self.disk.space(directory)
    }
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    deleted: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl File for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        point();
        // The real file system would still serve it; a bucket would not.
        let deleted = self.deleted.lock().contains(&self.path);
        assert!(!deleted, "{} is read after its end", self.path.display());
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        point();
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        point();
        let synced = self.file.sync();
        // Who waits for it has not heard of it yet.
        point();
        synced
    }

    fn size_bytes(&self) -> io::Result<u64> {
        point();
        self.file.size_bytes()
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        point();
        self.file.set_size(size_bytes)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        point();
        self.file.allocate(offset, length)
    }

    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        self.file.advise(offset, length, advice);
    }

    fn direct_alignment(&self) -> Option<usize> {
        self.file.direct_alignment()
    }

    fn map(&self, length: u64) -> Option<Box<dyn Mapped>> {
        point();
        self.file.map(length)
    }
}
