//! A file system that fails when told to, and remembers what was synced. It
//! syncs nothing for real: no test here pulls the plug of the real device.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::{
    Advice, DirectoryEntry, Environment, File, FileSystem, Lock, Mapped, Metadata, OpenHow,
    RealFileSystem, Space,
};

/// The real file system with faults and without syncs.
#[derive(Clone, Debug)]
pub(super) struct FaultyFileSystem(Arc<Faults>);

#[derive(Debug)]
struct Faults {
    /// Bytes that can still be written before the device is full.
    room_bytes: AtomicI64,
    sync_fails: AtomicBool,
    cut_fails: AtomicBool,
    mapping: AtomicBool,
    sync_micros: AtomicU64,
    synced: Mutex<Vec<String>>,
}

impl FaultyFileSystem {
    pub(super) fn new() -> FaultyFileSystem {
        FaultyFileSystem(Arc::new(Faults {
            room_bytes: AtomicI64::new(i64::MAX),
            sync_fails: AtomicBool::new(false),
            cut_fails: AtomicBool::new(false),
            mapping: AtomicBool::new(true),
            sync_micros: AtomicU64::new(0),
            synced: Mutex::new(Vec::new()),
        }))
    }

    pub(super) fn environment(&self) -> Environment {
        Environment {
            file_system: Arc::new(self.clone()),
            ..Environment::real()
        }
    }

    pub(super) fn room_bytes(&self, bytes: i64) {
        self.0.room_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn sync_fails(&self, fails: bool) {
        self.0.sync_fails.store(fails, Ordering::Relaxed);
    }

    pub(super) fn cut_and_unlink_fail(&self, fails: bool) {
        self.0.cut_fails.store(fails, Ordering::Relaxed);
    }

    pub(super) fn sync_micros(&self, micros: u64) {
        self.0.sync_micros.store(micros, Ordering::Relaxed);
    }

    pub(super) fn refuse_maps(&self) {
        self.0.mapping.store(false, Ordering::Relaxed);
    }

    /// Names of the files synced so far, and `directory`.
    pub(super) fn synced(&self) -> Vec<String> {
        self.0.synced.lock().clone()
    }

    /// Syncs of files so far.
    pub(super) fn syncs(&self) -> u64 {
        let synced = self.0.synced.lock();
        synced.iter().filter(|name| *name != "directory").count() as u64
    }
}

impl Faults {
    fn sync(&self, name: &str) -> io::Result<()> {
        match self.sync_micros.load(Ordering::Relaxed) {
            0 => {}
            micros => std::thread::sleep(Duration::from_micros(micros)),
        }
        if self.sync_fails.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.synced.lock().push(name.to_owned());
        Ok(())
    }

    fn cut(&self) -> io::Result<()> {
        if self.cut_fails.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(())
    }
}

impl FileSystem for FaultyFileSystem {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(FaultyFile {
            file: RealFileSystem.open(path, how)?,
            name: path.file_name().unwrap().to_str().unwrap().to_owned(),
            faults: self.0.clone(),
        }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFileSystem.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.0.cut()?;
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
        assert!(directory.is_dir());
        self.0.sync("directory")
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

#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn File>,
    name: String,
    faults: Arc<Faults>,
}

impl File for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let room = self.faults.room_bytes.load(Ordering::Relaxed);
        if room == 0 && !bytes.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        // The part that fits is written, as a real device does.
        let fits = bytes.len().min(room as usize);
        let written = self.file.write_at(&bytes[..fits], offset)?;
        self.faults
            .room_bytes
            .fetch_sub(written as i64, Ordering::Relaxed);
        Ok(written)
    }
    fn sync(&self) -> io::Result<()> {
        self.faults.sync(&self.name)
    }
    fn size_bytes(&self) -> io::Result<u64> {
        self.file.size_bytes()
    }
    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.faults.cut()?;
        self.file.set_size(size_bytes)
    }
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        if !self.faults.mapping.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.file.allocate(offset, length)
    }
    fn advise(&self, _offset: u64, _length: u64, _advice: Advice) {}
    fn direct_alignment(&self) -> Option<usize> {
        None
    }
    fn map(&self, length: u64) -> Option<Box<dyn Mapped>> {
        self.file.map(length)
    }
}
