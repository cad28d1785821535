//! A file mapped for writing, whose failures are errors and not the end of the
//! process.
//!
//! Writing 150 bytes through the page cache by `pwrite` costs over a
//! microsecond, most of it the system call; copying them into a shared map
//! costs a tenth. But where a system call returns an error, a store to a mapped
//! page raises SIGBUS: the file was truncated, or its file system failed. Two
//! defences:
//!
//! 1. Pages are made present and writable ahead of the write position by
//!    `MADV_POPULATE_WRITE`, which reports errors in the ordinary way and also
//!    takes the page faults out of the copy.
//! 2. A process-wide SIGBUS handler knows our maps. It puts an anonymous page
//!    in place of the failing one, marks the map failed and lets the copy go
//!    on; the writer looks at the mark after every copy and returns the error.
//!    A fault anywhere else goes to the handler that was there before.
//!
//! What is written stays in the page cache whether it is mapped or not, so pages behind the write
//! position are let go from the map: otherwise every process would seem to hold whole segments, and
//! under a limit of memory does; and a sync, which has to know what is written after it, would take
//! the right to write from each of them and tell all processors so, one page after the other.
//!
//! The third signal of a write that cannot be done, SIGXFSZ, is dealt with here
//! as well.
//!
//! Invariants: the table of maps is read only by atomics, so the handler takes
//! no lock and allocates nothing; a map stays in the table for exactly as long
//! as it is mapped; a failed map never accepts another write.

use std::fs;
use std::io;
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

use rustix::mm::{self, MapFlags, ProtFlags};

use super::Mapped;

/// How far ahead of the write position pages are made present.
const POPULATE_BYTES: usize = 64 << 10;

/// Most files mapped at one time in the process; further ones are refused and
/// written without a map.
const MAPS_MAX: usize = 256;

/// One entry of the table of maps, a sequence lock over `start` and `end`:
/// `version` is odd while the entry is free or being changed.
struct Slot {
    taken: AtomicBool,
    version: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
    failed: AtomicBool,
}

static SLOTS: [Slot; MAPS_MAX] = [const {
    Slot {
        taken: AtomicBool::new(false),
        version: AtomicU64::new(1),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    }
}; MAPS_MAX];

/// The handler that was installed before ours.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Whether our handler stands.
static INSTALLED: OnceLock<bool> = OnceLock::new();

/// A shared, writable map of the head of a file.
pub(super) struct MappedFile {
    start: *mut u8,
    length: usize,
    /// Up to here pages have been made present.
    populated: usize,
    /// Up to here pages have been let go.
    released: usize,
    slot: &'static Slot,
}

// SAFETY: the mapping belongs to this value alone and memory maps are not tied
// to a thread; writing needs `&mut`.
unsafe impl Send for MappedFile {}

impl MappedFile {
    /// Maps the first `length` bytes of `file`; `None` if that cannot be had.
    pub(super) fn new(file: &fs::File, length: u64) -> Option<MappedFile> {
        let length = usize::try_from(length).ok().filter(|&n| n > 0)?;
        if !*INSTALLED.get_or_init(install_handler) {
            return None;
        }
        let slot = SLOTS.iter().find(|slot| {
            slot.taken
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })?;
        // SAFETY: a new mapping at an address the kernel chooses overlaps no
        // memory of ours. The file may shrink while mapped; the handler below
        // deals with the faults that follow, and nothing is ever read through
        // the map.
        let mapped = unsafe {
            mm::mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        let Ok(start) = mapped else {
            slot.taken.store(false, Ordering::Release);
            return None;
        };
        slot.publish(start as usize, length);
        Some(MappedFile {
            start: start.cast(),
            length,
            populated: 0,
            released: 0,
            slot,
        })
    }

    /// Makes pages present beyond `end`, and lets go of those before `offset`, from where on is
    /// written.
    #[cold]
    fn populate(&mut self, offset: usize, end: usize) -> io::Result<()> {
        self.release(offset);
        let target = end
            .saturating_add(POPULATE_BYTES)
            .next_multiple_of(POPULATE_BYTES)
            .min(self.length);
        // SAFETY: the range lies inside our mapping and begins at a page
        // (`populated` is 0 or a multiple of POPULATE_BYTES here, for once it
        // is `length` no write can exceed it); populating changes no content.
        let populated = unsafe {
            mm::madvise(
                self.start.add(self.populated).cast(),
                target - self.populated,
                mm::Advice::LinuxPopulateWrite,
            )
        };
        match populated {
            Ok(()) => self.populated = target,
            // A kernel before 5.14: the faults will come one by one, and the
            // handler remains.
            Err(rustix::io::Errno::INVAL) => self.populated = self.length,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => {
                self.slot.failed.store(true, Ordering::Relaxed);
                return Err(failed());
            }
        }
        Ok(())
    }

    /// Takes pages before `offset` out of the map, not out of the file. A write that comes back
    /// there finds them again.
    fn release(&mut self, offset: usize) {
        let behind = offset / POPULATE_BYTES * POPULATE_BYTES;
        if behind <= self.released {
            return;
        }
        // SAFETY: the range lies inside our mapping (`offset` does) and begins at a page. That is
        // shared, so that what was written is the file's, dirty or not, whether mapped or not.
        let released = unsafe {
            mm::madvise(
                self.start.add(self.released).cast(),
                behind - self.released,
                mm::Advice::LinuxDontNeed,
            )
        };
        // A kernel that refuses keeps them: they cost memory and nothing else.
        if released.is_ok() {
            self.released = behind;
        }
    }
}

impl Mapped for MappedFile {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = usize::try_from(offset)
            .ok()
            .and_then(|offset| offset.checked_add(bytes.len()))
            .filter(|&end| end <= self.length)
            .ok_or(io::ErrorKind::InvalidInput)?;
        if self.slot.failed.load(Ordering::Relaxed) {
            return Err(failed());
        }
        if end > self.populated {
            self.populate(offset as usize, end)?;
        }
        // SAFETY: `offset + bytes.len()` was just found to be within the
        // mapping, which is writable and which no Rust reference points into.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(offset as usize), bytes.len());
        }
        // The handler runs on this thread in the middle of the copy: only the
        // compiler could move the look at its mark before the copy.
        compiler_fence(Ordering::SeqCst);
        if self.slot.failed.load(Ordering::Relaxed) {
            return Err(failed());
        }
        Ok(())
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        self.slot.withdraw();
        // SAFETY: the mapping is ours, from `new`, and nothing refers to it.
        // It is unmapped before its slot can be taken again.
        let unmapped = unsafe { mm::munmap(self.start.cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "a whole mapping can be unmapped");
        self.slot.taken.store(false, Ordering::Release);
    }
}

impl Slot {
    /// Requires: taken by the caller, not published.
    fn publish(&self, start: usize, length: usize) {
        self.failed.store(false, Ordering::Relaxed);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(start + length, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Requires: published by the caller.
    fn withdraw(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
        // Orders the odd version before the stores of the next `publish`.
        fence(Ordering::Release);
    }

    /// Whether `address` lies in this slot's map. Async-signal-safe. A slot
    /// that changes meanwhile is not the one a fault belongs to, for the
    /// faulting thread holds its own map.
    fn contains(&self, address: usize) -> bool {
        let version = self.version.load(Ordering::Acquire);
        if version % 2 == 1 {
            return false;
        }
        let start = self.start.load(Ordering::Relaxed);
        let end = self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version && (start..end).contains(&address)
    }
}

/// The error of a map whose device or file failed.
fn failed() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

/// Installs the handler; false if the system will not have it.
fn install_handler() -> bool {
    // SAFETY: an all-zero sigaction is a valid value of that C structure.
    let mut previous: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: a null new action only asks for the present one.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) } != 0 {
        return false;
    }
    // Known before our handler can run, which may be at once.
    PREVIOUS.get_or_init(|| previous);
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is fully initialised, its handler has the signature
    // that SA_SIGINFO asks for and is async-signal-safe; the mask is a valid
    // place for sigemptyset to write.
    unsafe {
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0
    }
}

/// The SIGBUS handler. Async-signal-safe: atomics and system calls only.
extern "C" fn on_bus_error(
    signal: libc::c_int,
    information: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel hands a valid siginfo_t to an SA_SIGINFO handler, and
    // for SIGBUS its address field is the one that is set.
    let address = unsafe { (*information).si_addr() } as usize;
    // SAFETY: __errno_location points to this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    let replaced = SLOTS
        .iter()
        .find(|slot| slot.contains(address))
        .is_some_and(|slot| replace_page(slot, address));
    // SAFETY: as above. The interrupted code must find its own errno.
    unsafe { *libc::__errno_location() = errno };
    if !replaced {
        pass_on(signal, information, context);
    }
}

/// Sees to it that a write beyond the process's limit of file sizes is an error
/// (EFBIG) and not, by SIGXFSZ, the end of the process. Who handles or ignores
/// that signal already is left alone. A handler that does nothing is better
/// than ignoring: programs that this process starts do not inherit it.
pub(super) fn survive_file_size_limit() {
    static DONE: OnceLock<()> = OnceLock::new();
    extern "C" fn nothing(_: libc::c_int) {}
    DONE.get_or_init(|| {
        // SAFETY: an all-zero sigaction is a valid value of that C structure.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: a null new action only asks for the present one.
        let asked = unsafe { libc::sigaction(libc::SIGXFSZ, ptr::null(), &raw mut action) };
        if asked != 0 || action.sa_sigaction != libc::SIG_DFL {
            return;
        }
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: `action` is fully initialised and its handler, which does
        // nothing, has the signature for flags without SA_SIGINFO; the mask is
        // a valid place for sigemptyset to write.
        unsafe {
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGXFSZ, &raw const action, ptr::null_mut());
        }
    });
}

/// Puts an anonymous page under `address` and marks the map failed.
fn replace_page(slot: &Slot, address: usize) -> bool {
    // SAFETY: sysconf reads a constant.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let page = address & !(page_bytes - 1);
    // SAFETY: the page belongs to the map in `slot`, which the faulting thread
    // holds; what it replaces could not be written anyway, and the mark makes
    // sure that nobody takes what is written there for logged.
    let mapped = unsafe {
        libc::mmap(
            page as *mut libc::c_void,
            page_bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    slot.failed.store(true, Ordering::Relaxed);
    mapped != libc::MAP_FAILED
}

/// Hands a fault that is not ours to the handler that was there before us.
fn pass_on(signal: libc::c_int, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type WithInformation = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    type Plain = extern "C" fn(libc::c_int);

    let previous = PREVIOUS.get();
    let handler = previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: restoring the default action is async-signal-safe; on return
        // the faulting instruction runs again and ends the process as it would
        // have without us.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    } else if previous.is_some_and(|action| action.sa_flags & libc::SA_SIGINFO != 0) {
        // SAFETY: an action with SA_SIGINFO holds a function of this type.
        let handler = unsafe { mem::transmute::<usize, WithInformation>(handler) };
        handler(signal, information, context);
    } else {
        // SAFETY: an action without SA_SIGINFO holds a function of this type.
        let handler = unsafe { mem::transmute::<usize, Plain>(handler) };
        handler(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn file_of(size_bytes: u64) -> fs::File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size_bytes).unwrap();
        file
    }

    #[test]
    fn what_is_written_to_the_map_is_read_from_the_file() {
        let file = file_of(1 << 20);
        let mut map = MappedFile::new(&file, 1 << 20).unwrap();
        map.write(12_345, b"hello").unwrap();
        map.write((1 << 20) - 3, b"end").unwrap();
        let mut buffer = [0; 5];
        file.read_exact_at(&mut buffer, 12_345).unwrap();
        assert_eq!(&buffer, b"hello");
        drop(map);
        file.read_exact_at(&mut buffer[..3], (1 << 20) - 3).unwrap();
        assert_eq!(&buffer[..3], b"end");
    }

    #[test]
    fn pages_behind_the_write_position_are_let_go_and_keep_their_bytes() {
        let length = 16 << 20;
        let file = file_of(length as u64);
        let mut map = MappedFile::new(&file, length as u64).unwrap();
        let record: Vec<u8> = (0..1000).map(|n| n as u8).collect();
        for at in (0..length - 1000).step_by(1000) {
            map.write(at as u64, &record).unwrap();
        }
        let resident = resident_bytes(map.start as usize);
        assert!(
            resident <= 3 * POPULATE_BYTES,
            "{resident} bytes are resident"
        );

        map.write(500, b"come back").unwrap();
        let mut found = vec![0; length];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found[500..509], b"come back");
        assert_eq!(found[..500], record[..500]);
        assert!(
            found[1000..length - 1000]
                .chunks_exact(1000)
                .all(|chunk| chunk == record)
        );
    }

    /// What of the map that begins at `start` is resident, by the kernel's account of this process.
    fn resident_bytes(start: usize) -> usize {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let of_map = maps.split_once(&format!("{start:x}-")).unwrap().1;
        let (_, rest) = of_map.split_once("Rss:").unwrap();
        let kilobytes: usize = rest.split_whitespace().next().unwrap().parse().unwrap();
        kilobytes << 10
    }

    #[test]
    fn a_write_past_the_map_is_refused() {
        let file = file_of(4096);
        let mut map = MappedFile::new(&file, 4096).unwrap();
        let error = map.write(4090, b"0123456789").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        map.write(4086, b"0123456789").unwrap();
    }

    #[test]
    fn a_bus_error_on_a_present_page_becomes_an_error_and_stays_one() {
        let file = file_of(1 << 20);
        let mut map = MappedFile::new(&file, 1 << 20).unwrap();
        map.write(0, b"present").unwrap();
        file.set_len(0).unwrap();
        assert_eq!(
            map.write(8192, b"lost").unwrap_err().raw_os_error(),
            Some(libc::EIO)
        );
        file.set_len(1 << 20).unwrap();
        assert!(map.write(8192, b"still lost").is_err());
        // Another map is not concerned.
        let other = file_of(4096);
        let mut map = MappedFile::new(&other, 4096).unwrap();
        map.write(0, b"fine").unwrap();
    }

    #[test]
    fn populating_past_a_truncated_file_becomes_an_error() {
        let file = file_of(4 << 20);
        let mut map = MappedFile::new(&file, 4 << 20).unwrap();
        file.set_len(0).unwrap();
        assert!(map.write(3 << 20, b"lost").is_err());
    }

    #[test]
    fn slots_are_given_back() {
        let file = file_of(4096);
        for _ in 0..3 * MAPS_MAX {
            let mut map = MappedFile::new(&file, 4096).unwrap();
            map.write(1, b"x").unwrap();
        }
    }

    #[test]
    fn many_threads_fault_at_once_and_each_gets_its_own_error() {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for _ in 0..50 {
                        let file = file_of(64 << 10);
                        let mut map = MappedFile::new(&file, 64 << 10).unwrap();
                        map.write(0, b"x").unwrap();
                        if thread % 2 == 0 {
                            file.set_len(0).unwrap();
                            assert!(map.write(100, b"x").is_err());
                        } else {
                            map.write(60_000, b"x").unwrap();
                        }
                    }
                });
            }
        });
    }
}
