//! Memory by the page: what is too large, or too often given back, for an allocator.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The size of an ordinary page: memory is given by it.
pub(crate) const PAGE_BYTES: usize = 4 << 10;

/// What is noted of mappings.
static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that large buffers and the indexes of tables have beside what allocators give, over all
/// stores of this process. For tests that hold a store to what it promises.
#[must_use]
pub fn mapped_bytes() -> usize {
    MAPPED_BYTES.load(Ordering::Relaxed)
}

/// Counts `bytes` among [`mapped_bytes`].
pub(crate) fn note_mapped(bytes: usize) {
    MAPPED_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// Ends what [`note_mapped`] began.
pub(crate) fn note_unmapped(bytes: usize) {
    MAPPED_BYTES.fetch_sub(bytes, Ordering::Relaxed);
}

/// An anonymous mapping, unmapped on drop. Pages take memory once they are written to, and
/// begin as zeros. Access is its owner's business.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its mapping, which belongs to no thread.
unsafe impl Send for Pages {}
// SAFETY: `&Pages` gives out only the address.
unsafe impl Sync for Pages {}

impl Pages {
    /// None if the system refuses it.
    pub(crate) fn new(bytes: usize) -> Option<Pages> {
        // SAFETY: a new anonymous mapping at an address of the system's choice touches no
        // memory that anything else owns.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let start = NonNull::new(mapped.ok()?.cast::<u8>())?;
        Some(Pages { start, bytes })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The first address that is a multiple of `alignment`, a power of two. Requires: the
    /// mapping is longer than that.
    pub(crate) fn aligned_start(&self, alignment: usize) -> NonNull<u8> {
        let skip = self.start.as_ptr().align_offset(alignment);
        assert!(skip < self.bytes);
        // SAFETY: that lies inside the mapping.
        unsafe { self.start.add(skip) }
    }

    /// Whether the `bytes` bytes from `start`, which lie inside, may be made of huge pages. A
    /// hint, which changes no byte: a system without huge pages refuses it.
    pub(crate) fn let_be_huge(&self, start: NonNull<u8>, bytes: usize, huge: bool) {
        let at = start.addr().get().wrapping_sub(self.start.addr().get());
        assert!(at <= self.bytes && bytes <= self.bytes - at);
        let advice = match huge {
            true => Advice::LinuxHugepage,
            false => Advice::LinuxNoHugepage,
        };
        // SAFETY: the range lies inside the mapping.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, advice) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what was mapped, and its owner is going. Failing would
        // leak address space, which a drop cannot report.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
