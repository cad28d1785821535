//! The file system of the machine.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};

use super::written::wait_written;
use super::{
    Access, Advice, Create, DirectoryEntry, File, FileSystem, Lock, Mapped, Metadata, OpenHow,
    Space,
};

/// What reads and writes past the cache are aligned to. A multiple of the
/// logical block size of every device we know of (512 or 4096 bytes).
const DIRECT_ALIGNMENT_BYTES: usize = 4096;

/// With which every file is opened: a pipe that nobody writes is not waited for, and a terminal
/// does not become that of this process. Neither is of any effect on a file.
const OPEN_FLAGS: i32 = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits() as i32;

/// The file system of the machine this process runs on.
#[derive(Clone, Copy, Debug)]
pub struct RealFileSystem;

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    direct: bool,
    writable: bool,
}

/// An open file description that holds an advisory lock; the death of the
/// process releases it.
#[derive(Debug)]
struct RealLock(fs::File);

impl Drop for RealLock {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread is just starting
        // has a copy of the description until it runs its own program.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Lock for RealLock {}

impl FileSystem for RealFileSystem {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let writable = how.access == Access::ReadWrite;
        #[cfg(target_os = "linux")]
        if writable {
            super::mapped::survive_file_size_limit();
        }
        let mut options = fs::OpenOptions::new();
        options.read(true).write(writable).custom_flags(OPEN_FLAGS);
        match how.create {
            Create::Never => {}
            Create::New => {
                options.create_new(true);
            }
            Create::IfAbsent => {
                options.create(true).truncate(false);
            }
        }
        if how.direct {
            options.custom_flags(OPEN_FLAGS | OFlags::DIRECT.bits() as i32);
            match options.open(path) {
                Ok(file) => return RealFile::regular(file, true, writable),
                // Some file systems in memory have no cache to go past. Where
                // the refusal left a new file behind, opening it is the rest.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    options.custom_flags(OPEN_FLAGS);
                    if how.create == Create::New {
                        options.create_new(false).create(true).truncate(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        RealFile::regular(options.open(path)?, false, writable)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Removed since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            entries.push(DirectoryEntry {
                name: entry.file_name(),
                size_bytes: metadata.len(),
                is_directory: metadata.is_dir(),
            });
        }
        Ok(entries)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut opened = fs::File::open(directory);
        if !lacks_descriptor(&opened) {
            return opened?.sync_all();
        }
        let mut spare = SPARE.lock();
        for _ in 0..SPARE_TRIES {
            *spare = None;
            opened = fs::File::open(directory);
            if !lacks_descriptor(&opened) {
                break;
            }
            std::thread::sleep(SPARE_WAIT);
        }
        let synced = opened.and_then(|directory| directory.sync_all());
        keep_spare(&mut spare);
        synced
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(Metadata {
                size_bytes: metadata.len(),
                is_directory: metadata.is_dir(),
                identity: Some((metadata.dev(), metadata.ino())),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        // Who locks will write.
        keep_spare(&mut SPARE.lock());
        let mut how = fs::OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false);
        let file = match how.open(path) {
            // Who may only read, as `verify` does, can lock what is there; and
            // a read-only medium may be writable on another path.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
                ) =>
            {
                fs::File::open(path).map_err(|_| error)?
            }
            opened => opened?,
        };
        // flock belongs to the open file description: a second handle in this
        // very process is kept out as another process is.
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(RealLock(file)))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn space(&self, directory: &Path) -> io::Result<Space> {
        let statistics = rustix::fs::statvfs(directory)?;
        Ok(Space {
            free_bytes: statistics.f_bavail.saturating_mul(statistics.f_frsize),
            total_bytes: statistics.f_blocks.saturating_mul(statistics.f_frsize),
        })
    }
}

/// A descriptor in reserve. A directory is synced after what it names has been
/// written and, mostly, renamed: having no descriptor for that would be a failed
/// persist, which is final (I5). So one is put by while there are some.
static SPARE: Mutex<Option<fs::File>> = Mutex::new(None);

/// How often somebody else may snatch the descriptor just freed, and how long
/// to wait for it then.
const SPARE_TRIES: u32 = 100;
const SPARE_WAIT: Duration = Duration::from_millis(2);

/// Puts a descriptor by, if one can be had.
fn keep_spare(spare: &mut Option<fs::File>) {
    if spare.is_none() {
        *spare = fs::File::open("/").ok();
    }
}

/// Whether a call failed for want of a descriptor.
fn lacks_descriptor(result: &io::Result<fs::File>) -> bool {
    let error = result.as_ref().err().and_then(io::Error::raw_os_error);
    matches!(error, Some(libc::EMFILE | libc::ENFILE))
}

/// Whether the device of `file` is set not to be read ahead (`read_ahead_kb` is 0). The system then
/// reads page by page, however much is read at once, but for what it was told of before.
#[cfg(target_os = "linux")]
fn reads_nothing_ahead(file: &fs::File) -> bool {
    let Ok(metadata) = file.metadata() else {
        return false;
    };
    let device = metadata.dev();
    let device = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    let paths = [
        format!("/sys/class/bdi/{device}/read_ahead_kb"),
        // Of a partition, that of the whole.
        format!("/sys/dev/block/{device}/../queue/read_ahead_kb"),
    ];
    let found = paths.iter().find_map(|path| fs::read_to_string(path).ok());
    found.is_some_and(|kib| kib.trim() == "0")
}

impl RealFile {
    /// `file`, if it is one.
    fn regular(file: fs::File, direct: bool, writable: bool) -> io::Result<Arc<dyn File>> {
        let kind = file.metadata()?.file_type();
        match (kind.is_file(), kind.is_dir()) {
            (true, _) => Ok(Arc::new(RealFile {
                file,
                direct,
                writable,
            })),
            (false, true) => Err(io::ErrorKind::IsADirectory.into()),
            (false, false) => {
                let what = "neither a file nor a directory";
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            }
        }
    }
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.file.set_len(size_bytes)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, length) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        let advice = match advice {
            Advice::WillNeed => rustix::fs::Advice::WillNeed,
            Advice::DontNeed => rustix::fs::Advice::DontNeed,
            Advice::Sequential => rustix::fs::Advice::Sequential,
            Advice::Random => rustix::fs::Advice::Random,
        };
        // A hint that is not taken changes no result.
        let _ = rustix::fs::fadvise(
            &self.file,
            offset,
            std::num::NonZeroU64::new(length),
            advice,
        );
    }

    fn wait_written(&self, offset: u64, length: u64) -> io::Result<()> {
        wait_written(&self.file, offset, length)
    }

    #[cfg(target_os = "linux")]
    fn reopened(&self) -> Option<Arc<dyn File>> {
        if self.direct || self.writable || reads_nothing_ahead(&self.file) {
            return None;
        }
        // By its descriptor: its name may be another's by now, or nobody's.
        let number = std::os::fd::AsRawFd::as_raw_fd(&self.file);
        let path = format!("/proc/self/fd/{number}");
        let file = fs::File::open(path).ok()?;
        Some(Arc::new(RealFile {
            file,
            direct: false,
            writable: false,
        }))
    }

    fn direct_alignment(&self) -> Option<usize> {
        self.direct.then_some(DIRECT_ALIGNMENT_BYTES)
    }

    #[cfg(target_os = "linux")]
    fn map(&self, length: u64) -> Option<Box<dyn Mapped>> {
        if !self.writable {
            return None;
        }
        let map = super::mapped::MappedFile::new(&self.file, length)?;
        Some(Box::new(map))
    }

    #[cfg(not(target_os = "linux"))]
    fn map(&self, _length: u64) -> Option<Box<dyn Mapped>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::{read_exact_at, write_all_at};
    use super::*;

    #[test]
    fn lock_excludes_a_second_opener_in_the_same_process_until_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let held = RealFileSystem.lock(&path).unwrap();
        assert!(held.is_some());
        assert!(RealFileSystem.lock(&path).unwrap().is_none());
        drop(held);
        assert!(RealFileSystem.lock(&path).unwrap().is_some());
    }

    /// The process harness, killing on two threads, was refused a store that the
    /// same thread had just let go: the other thread was starting a process,
    /// which held a copy of the lock's descriptor until it ran its program.
    #[test]
    fn a_dropped_lock_is_free_while_a_copy_of_its_descriptor_lives() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let file = fs::File::create(&path).unwrap();
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let copy = file.try_clone().unwrap();
        drop(RealLock(file));
        assert!(RealFileSystem.lock(&path).unwrap().is_some());
        drop(copy);
    }

    #[test]
    fn files_and_directories_do_what_their_names_say() {
        let fs: &dyn FileSystem = &RealFileSystem;
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b");
        fs.create_directory(&deep).unwrap();
        fs.create_directory(&deep).unwrap();
        let path = deep.join("f");
        assert_eq!(fs.metadata(&path).unwrap(), None);
        let file = fs.open(&path, OpenHow::NEW).unwrap();
        assert_eq!(
            fs.open(&path, OpenHow::NEW).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        write_all_at(&*file, b"hello", 3).unwrap();
        file.sync().unwrap();
        fs.sync_directory(&deep).unwrap();
        let mut buffer = [9u8; 10];
        assert_eq!(read_exact_at(&*file, &mut buffer, 0).unwrap(), 8);
        assert_eq!(&buffer[..8], b"\0\0\0hello");
        file.allocate(0, 100).unwrap();
        assert_eq!(file.size_bytes().unwrap(), 100);
        file.set_size(4).unwrap();
        let twin = deep.join("g");
        fs.hard_link(&path, &twin).unwrap();
        fs.rename(&path, &deep.join("h")).unwrap();
        let mut names: Vec<_> = fs.list(&deep).unwrap();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(names.len(), 2);
        assert_eq!(names[0].name, "g");
        assert_eq!(names[1].size_bytes, 4);
        fs.unlink(&twin).unwrap();
        fs.unlink(&deep.join("h")).unwrap();
        fs.remove_directory(&deep).unwrap();
        let space = fs.space(root.path()).unwrap();
        assert!(space.free_bytes > 0 && space.free_bytes <= space.total_bytes);
    }

    #[test]
    fn a_file_opened_for_reading_is_not_mapped() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        let file = RealFileSystem.open(&path, OpenHow::NEW).unwrap();
        file.allocate(0, 4096).unwrap();
        let reader = RealFileSystem.open(&path, OpenHow::READ).unwrap();
        assert!(reader.map(4096).is_none());
    }
}
