//! The machine's file system with slow data objects: each read of one takes a
//! given time, and how many are under way at once is counted. It can pretend to
//! read past the cache, or refuse to, whatever the real one does, and it knows
//! which files are open.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thermocline::store::{
    Advice, DirectoryEntry, Environment, File, FileSystem, Lock, Mapped, Metadata, OpenHow,
    RealFileSystem, Space,
};

/// What reads past the pretended cache must be aligned to.
const ALIGNMENT_BYTES: usize = 512;

/// See the module. Clones are the same file system.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slow(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    read_micros: AtomicU64,
    refuses_direct: AtomicBool,
    reads: AtomicUsize,
    reading: AtomicUsize,
    reading_max: AtomicUsize,
    /// Reads of data objects that reach this offset fail, if it is not 0.
    fails_from: AtomicU64,
    open: Mutex<Vec<PathBuf>>,
}

impl Slow {
    pub(crate) fn environment(&self) -> Environment {
        Environment {
            file_system: Arc::new(self.clone()),
            ..Environment::real()
        }
    }

    /// Each read of a data object takes this long.
    pub(crate) fn set_read_micros(&self, micros: u64) {
        self.0.read_micros.store(micros, Ordering::Relaxed);
    }

    pub(crate) fn refuse_direct(&self) {
        self.0.refuses_direct.store(true, Ordering::Relaxed);
    }

    /// Reads of data objects fail that end behind this offset; 0 ends that.
    pub(crate) fn fail_from(&self, offset: u64) {
        self.0.fails_from.store(offset, Ordering::Relaxed);
    }

    /// Reads of data objects, and the most that were under way at once, since
    /// this was last asked.
    pub(crate) fn take_counts(&self) -> (usize, usize) {
        let reads = self.0.reads.swap(0, Ordering::Relaxed);
        (reads, self.0.reading_max.swap(0, Ordering::Relaxed))
    }

    /// Open data objects whose names are gone.
    pub(crate) fn open_and_deleted(&self) -> usize {
        let open = self.0.open.lock();
        open.iter().filter(|path| !path.exists()).count()
    }

    /// Open data objects.
    pub(crate) fn open_objects(&self) -> usize {
        self.0.open.lock().len()
    }
}

#[derive(Debug)]
struct SlowFile {
    file: Arc<dyn File>,
    direct: bool,
    /// Only of data objects.
    shared: Option<Arc<Shared>>,
    path: PathBuf,
}

impl Drop for SlowFile {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            let mut open = shared.open.lock();
            let at = open.iter().position(|path| *path == self.path).unwrap();
            open.swap_remove(at);
        }
    }
}

impl FileSystem for Slow {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let direct = how.direct && !self.0.refuses_direct.load(Ordering::Relaxed);
        let how = OpenHow {
            direct: false,
            ..how
        };
        let file = RealFileSystem.open(path, how)?;
        let is_data = path.extension().is_some_and(|e| e == "data");
        if is_data {
            self.0.open.lock().push(path.to_path_buf());
        }
        Ok(Arc::new(SlowFile {
            file,
            direct,
            shared: is_data.then(|| Arc::clone(&self.0)),
            path: path.to_path_buf(),
        }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFileSystem.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.unlink(path)
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        RealFileSystem.list(directory)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.create_directory(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.remove_directory(path)
    }
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        RealFileSystem.sync_directory(directory)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFileSystem.hard_link(from, to)
    }
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        RealFileSystem.metadata(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        RealFileSystem.lock(path)
    }
    fn space(&self, directory: &Path) -> io::Result<Space> {
        RealFileSystem.space(directory)
    }
}

impl File for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.direct && offset >= self.file.size_bytes()? {
            // Looking for more behind the end need not be aligned.
            return Ok(0);
        }
        if self.direct {
            let odd = buffer.as_ptr().addr() | buffer.len() | offset as usize;
            assert_eq!(odd % ALIGNMENT_BYTES, 0, "a direct read is not aligned");
        }
        let Some(shared) = &self.shared else {
            return self.file.read_at(buffer, offset);
        };
        shared.reads.fetch_add(1, Ordering::Relaxed);
        let reading = shared.reading.fetch_add(1, Ordering::SeqCst) + 1;
        shared.reading_max.fetch_max(reading, Ordering::SeqCst);
        let micros = shared.read_micros.load(Ordering::Relaxed);
        if micros > 0 {
            std::thread::sleep(Duration::from_micros(micros));
        }
        let read = self.file.read_at(buffer, offset);
        shared.reading.fetch_sub(1, Ordering::SeqCst);
        let from = shared.fails_from.load(Ordering::Relaxed);
        if from > 0 && offset + buffer.len() as u64 > from {
            return Err(io::Error::other("the device failed"));
        }
        read
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
    fn direct_alignment(&self) -> Option<usize> {
        self.direct.then_some(ALIGNMENT_BYTES)
    }
    fn map(&self, length: u64) -> Option<Box<dyn Mapped>> {
        self.file.map(length)
    }
}
