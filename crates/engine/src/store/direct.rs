//! Reads past the page cache, and the memory that they land in.
//!
//! Such a read begins and ends on whole pages, and so does the memory that it lands in, from
//! where the bytes that were asked for are copied.
//!
//! The kernel makes requests of a read, each of so many pieces of memory at most (128 is
//! usual) that lie in one piece physically. In pages of 4 KiB, a read of 1 MiB is two requests or
//! three, and a volume that is rented by requests a second counts each. In a huge page
//! it is one. So large reads land in a few huge pages that the process keeps, for all stores.

use std::cell::RefCell;
use std::io;
use std::ptr::NonNull;

use parking_lot::Mutex;

use super::buffer::Buffer;
use super::{File, read_exact_at};
use crate::pages::Pages;

/// The largest read in one call.
pub(super) const READ_BYTES_MAX: usize = 1280 << 10;

/// Larger reads land in huge pages, where there is one free.
const SMALL_READ_BYTES_MAX: usize = 256 << 10;

/// Bytes of a huge page.
const BYTES: usize = 2 << 20;

/// How many there are at most; who finds none does without.
const COUNT_MAX: usize = 4;

/// Bytes of all of them.
pub(crate) const SCRATCH_BYTES_MAX: u64 = (COUNT_MAX * BYTES) as u64;

/// What a thread keeps for its reads, at most. What is larger, and finds no huge page or is too
/// small for one, lands in a [`Buffer`].
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Where direct reads land that are small; grows to the largest of them.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads any range of a file opened past the cache, by reading the aligned
/// range around it. Returns the bytes of `buffer` that were filled.
pub(super) fn read_direct(
    file: &dyn File,
    alignment: usize,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    if buffer.len() > SMALL_READ_BYTES_MAX {
        let large = Scratch::with(|scratch| {
            let most = READ_BYTES_MAX.min(scratch.len());
            read_pieces(file, alignment, buffer, offset, &mut scratch[..most])
        });
        if let Some(read) = large {
            return read;
        }
    }
    let around = (buffer.len() + alignment).next_multiple_of(alignment);
    let most = around.min(READ_BYTES_MAX);
    // From somewhere within them on so many are aligned.
    let bytes = most + alignment;
    let mut read_by = |scratch: &mut [u8]| {
        let scratch = aligned(scratch, alignment, most);
        read_pieces(file, alignment, buffer, offset, scratch)
    };
    if bytes > KEPT_BYTES_MAX {
        let mut scratch = Buffer::default();
        scratch.resize(bytes);
        return read_by(&mut scratch);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < bytes {
            *scratch = vec![0; bytes];
        }
        read_by(scratch)
    })
}

/// The same by way of `scratch`, a piece of whole pages at a time.
fn read_pieces(
    file: &dyn File,
    alignment: usize,
    buffer: &mut [u8],
    offset: u64,
    scratch: &mut [u8],
) -> io::Result<usize> {
    debug_assert!(scratch.len().is_multiple_of(alignment));
    let mut done = 0;
    while done < buffer.len() {
        let position = offset + done as u64;
        let skip = (position % alignment as u64) as usize;
        let wanted = (buffer.len() - done).min(scratch.len() - skip);
        let length = (skip + wanted).next_multiple_of(alignment);
        let read = read_exact_at(file, &mut scratch[..length], position - skip as u64)?;
        let got = read.saturating_sub(skip).min(wanted);
        buffer[done..done + got].copy_from_slice(&scratch[skip..skip + got]);
        done += got;
        if got < wanted {
            break;
        }
    }
    Ok(done)
}

/// `length` bytes of `scratch` that begin at a multiple of `alignment`. Requires: it has
/// `alignment` more.
fn aligned(scratch: &mut [u8], alignment: usize, length: usize) -> &mut [u8] {
    let start = scratch.as_ptr().addr().next_multiple_of(alignment) - scratch.as_ptr().addr();
    &mut scratch[start..start + length]
}

/// A huge page for one read at a time, at an address that is a multiple of [`BYTES`].
struct Scratch {
    /// Twice as long as what is used of it.
    _pages: Pages,
    base: NonNull<u8>,
}

// SAFETY: it owns its mapping, which belongs to no thread.
unsafe impl Send for Scratch {}

/// Those that nobody uses, and how many there are.
struct Pool {
    free: Vec<Scratch>,
    made: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: Vec::new(),
    made: 0,
});

impl Scratch {
    /// Does `work` with one; `None` where all are in use, or the system has no memory.
    fn with<T>(work: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
        let mut lent = Lent(Some(Scratch::take()?));
        lent.0.as_mut().map(|scratch| work(scratch.bytes()))
    }

    fn take() -> Option<Scratch> {
        let mut pool = POOL.lock();
        if let Some(scratch) = pool.free.pop() {
            return Some(scratch);
        }
        if pool.made == COUNT_MAX {
            return None;
        }
        let made = Scratch::map()?;
        pool.made += 1;
        Some(made)
    }

    fn map() -> Option<Scratch> {
        let pages = Pages::new(2 * BYTES)?;
        let base = pages.aligned_start(BYTES);
        pages.let_be_huge(base, BYTES, true);
        Some(Scratch {
            _pages: pages,
            base,
        })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `BYTES` bytes from `base` on lie inside the mapping, which is this one's own
        // and begins as zeros.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), BYTES) }
    }
}

/// One in use; goes back to the others, also when the work panics.
struct Lent(Option<Scratch>);

impl Drop for Lent {
    fn drop(&mut self) {
        POOL.lock().free.extend(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_only_so_many_and_each_comes_back() {
        fn nested(depth: usize) -> usize {
            let deeper = Scratch::with(|bytes| {
                assert_eq!(bytes.len(), BYTES);
                assert_eq!(bytes.as_ptr().addr() % BYTES, 0);
                bytes.fill(depth as u8);
                let deepest = nested(depth + 1);
                assert!(bytes.iter().all(|b| *b == depth as u8));
                deepest
            });
            deeper.unwrap_or(depth)
        }
        // Other tests may have some for a moment.
        for _ in 0..3 {
            assert!(nested(0) <= COUNT_MAX);
        }
        let panics = || Scratch::with(|_| panic!("within"));
        for _ in 0..2 * COUNT_MAX {
            assert!(std::panic::catch_unwind(panics).is_err() || nested(0) == 0);
        }
        let pool = POOL.lock();
        assert!(pool.made <= COUNT_MAX && pool.free.len() <= pool.made);
    }
}
