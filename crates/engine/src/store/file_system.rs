//! The seam below everything: what Thermocline asks of a file system.
//!
//! The real file system implements it, and so does the simulated one of the
//! `sim` crate, which loses unsynced bytes and directory entries on purpose.
//! It is object safe and names no type of any operating system.
//!
//! The contract follows what POSIX really promises: a written byte is durable
//! only after [`File::sync`], a name only after [`FileSystem::sync_directory`],
//! and a failed sync says nothing about which bytes were lost.

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What an open file may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// Whether opening may make the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// The file must exist.
    Never,
    /// The file must not exist and is made.
    New,
    /// The file is made if it does not exist.
    IfAbsent,
}

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenHow {
    /// What for.
    pub access: Access,
    /// Whether it may be made.
    pub create: Create,
    /// Past the operating system's cache, where the file system can do that.
    pub direct: bool,
}

impl OpenHow {
    /// An existing file, for reading.
    pub const READ: OpenHow = OpenHow {
        access: Access::Read,
        create: Create::Never,
        direct: false,
    };
    /// An existing file, for reading and writing.
    pub const WRITE: OpenHow = OpenHow {
        access: Access::ReadWrite,
        create: Create::Never,
        direct: false,
    };
    /// A file that does not exist yet, for reading and writing.
    pub const NEW: OpenHow = OpenHow {
        access: Access::ReadWrite,
        create: Create::New,
        direct: false,
    };
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    /// The name, without the directory.
    pub name: OsString,
    /// The file's size; of no meaning for a directory.
    pub size_bytes: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// What is known of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// The file's size; of no meaning for a directory.
    pub size_bytes: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// What tells it from all others, whatever the path that leads to it: device and number.
    /// `None` where paths tell.
    pub identity: Option<(u64, u64)>,
}

/// The room on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes an ordinary user can still write.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// How a range of a file will be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Soon: read it ahead.
    WillNeed,
    /// Not soon: drop its clean pages.
    DontNeed,
    /// From front to back.
    Sequential,
    /// In no order: do not read ahead.
    Random,
}

/// A held lock; dropping it releases it.
pub trait Lock: Send + Sync + Debug {}

/// Files and directories.
pub trait FileSystem: Send + Sync + Debug {
    /// Opens the file at `path`. What is there and is no file, as a directory, a pipe or a device,
    /// is refused, and not waited for.
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>>;
    /// Gives `from` the name `to`, replacing what had it, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes the name of a file.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Everything in `directory`, in no order.
    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>>;
    /// Makes `path` and the directories above it, where they do not exist.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in `directory` durable.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
    /// Gives the file `from` the second name `to`.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// What is at `path`; `None` if nothing is.
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>>;
    /// Locks the file `path`, making it if it does not exist. `None` if
    /// another process, or another handle in this one, holds it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;
    /// The room on the device of `directory`.
    fn space(&self, directory: &Path) -> io::Result<Space>;
}

/// An open file. Offsets and lengths are in bytes.
pub trait File: Send + Sync + Debug {
    /// Reads some bytes at `offset`; 0 means the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes some bytes at `offset`, growing the file if needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes content and size durable. After an error any unsynced byte may be
    /// gone, and a second call may falsely succeed.
    fn sync(&self) -> io::Result<()>;
    /// The size of the file.
    fn size_bytes(&self) -> io::Result<u64>;
    /// Cuts the file, or grows it by zeros.
    fn set_size(&self, size_bytes: u64) -> io::Result<()>;
    /// Reserves room for a range and grows the file to hold it.
    /// `ErrorKind::Unsupported` where the file system cannot.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;
    /// A hint; it may do nothing.
    fn advise(&self, offset: u64, length: u64, advice: Advice);
    /// Waits until the device has written what it is being given of a range, which does not make it
    /// durable; it may do nothing. An error is of a write that failed: a sync may not tell of it
    /// any more.
    fn wait_written(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }
    /// The same file, opened once more: advice on how all of it is used then holds for this one
    /// alone. `None` where that makes no difference or cannot be had.
    fn reopened(&self) -> Option<Arc<dyn File>> {
        None
    }
    /// `Some(n)` if the file was opened past the cache, and buffers, offsets
    /// and lengths of reads and writes must be multiples of `n`.
    fn direct_alignment(&self) -> Option<usize>;
    /// A shared, writable map of the first `length` bytes, if there is such a
    /// thing here and now. The range should have been allocated.
    fn map(&self, length: u64) -> Option<Box<dyn Mapped>>;
}

/// A file mapped for writing.
pub trait Mapped: Send {
    /// Writes `bytes` at `offset`. On return they are with the operating
    /// system and survive the death of this process, not of the machine.
    ///
    /// # Errors
    /// When the device or the file failed under the map. Some of the bytes may
    /// have been written; every later write fails too.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

/// Reads until `buffer` is full or the file ends; returns the bytes read.
///
/// # Errors
/// Those of [`File::read_at`], interruptions excepted.
pub fn read_exact_at(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of `bytes`.
///
/// # Errors
/// Those of [`File::write_at`], interruptions excepted; a write of nothing is
/// [`io::ErrorKind::WriteZero`]. Some of the bytes may have been written.
pub fn write_all_at(file: &dyn File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
