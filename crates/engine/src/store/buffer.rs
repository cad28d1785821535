//! Memory for what is read or written in one go.
//!
//! Merges and long scans read in pieces of up to 1.25 MiB, as many at a time and as large as
//! what their runs share allows, tables are written by half a mebibyte, and reads past the
//! system's cache land beside what asked for them. An allocator keeps
//! what it was given back by size and by thread: of pieces of twenty sizes it kept 20 MiB for
//! 6 in use. So a large buffer is a mapping, and all mappings have one size, of which only what
//! is written to takes memory: any serves any piece. A few that nobody uses are kept, since
//! the pages of a new one cost a twentieth of the writes that a machine can do.
//!
//! Invariant: a mapping belongs to one buffer, or to none and is kept. Its bytes begin as zeros
//! of the system's and are those of an earlier owner afterwards.

use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;

use crate::pages::{PAGE_BYTES, Pages, note_mapped, note_unmapped};

/// Buffers of no more bytes are the allocator's.
const SMALL_BYTES: usize = 64 << 10;

/// The size of a mapping, unless more is asked for: the largest read of a merge.
const MAPPING_BYTES: usize = 1280 << 10;

/// What mappings that nobody uses may take of memory, all together.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Mappings that nobody uses.
static KEPT: Mutex<Kept> = Mutex::new(Kept {
    mappings: Vec::new(),
    bytes: 0,
});

/// Bytes that come and go, of no meaning until somebody writes them.
#[derive(Debug)]
pub struct Buffer(Memory);

#[derive(Debug)]
enum Memory {
    Heap(Vec<u8>),
    Mapped(Mapped),
}

/// The first `length` bytes of a mapping.
#[derive(Debug)]
struct Mapped {
    /// There until it is dropped.
    mapping: Option<Mapping>,
    length: usize,
    /// What it takes of memory, at most: bytes that it ever had.
    touched_bytes: usize,
}

impl Buffer {
    /// Room for `bytes` bytes, of which none is there yet.
    pub(crate) fn with_capacity(bytes: usize) -> Buffer {
        let mapping = (bytes > SMALL_BYTES).then(|| Mapping::take(bytes));
        Buffer(match mapping.flatten() {
            Some(mapping) => Memory::Mapped(Mapped {
                mapping: Some(mapping),
                length: 0,
                touched_bytes: 0,
            }),
            // Also where the system refuses a mapping.
            None => Memory::Heap(Vec::with_capacity(bytes)),
        })
    }

    /// Gives it `bytes` bytes, whose values are of no meaning, and no memory for more than
    /// that takes: it would double.
    pub(crate) fn resize(&mut self, bytes: usize) {
        if bytes > self.capacity() {
            *self = Buffer::with_capacity(bytes);
        }
        match &mut self.0 {
            Memory::Heap(heap) => heap.resize(bytes, 0),
            Memory::Mapped(mapped) => mapped.resize(bytes),
        }
    }

    /// Appends `bytes`.
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        let (before, after) = (self.len(), self.len() + bytes.len());
        if let Memory::Heap(heap) = &mut self.0 {
            heap.extend_from_slice(bytes);
            return;
        }
        if after > self.capacity() {
            let mut larger = Buffer::with_capacity(after.max(2 * self.capacity()));
            larger.extend_from_slice(self);
            *self = larger;
            return self.extend_from_slice(bytes);
        }
        self.resize(after);
        self[before..].copy_from_slice(bytes);
    }

    /// Takes what it has away, and keeps the room.
    pub(crate) fn clear(&mut self) {
        match &mut self.0 {
            Memory::Heap(heap) => heap.clear(),
            Memory::Mapped(mapped) => mapped.length = 0,
        }
    }

    /// The bytes that there is room for.
    pub(crate) fn capacity(&self) -> usize {
        match &self.0 {
            Memory::Heap(heap) => heap.capacity(),
            Memory::Mapped(mapped) => mapped.mapping.as_ref().map_or(0, |m| m.bytes),
        }
    }

    /// What it takes of memory.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.0 {
            Memory::Heap(heap) => heap.capacity(),
            Memory::Mapped(mapped) => mapped.touched_bytes,
        }
    }

    /// Its bytes on the heap: a copy if they are many.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Memory::Heap(heap) => heap,
            Memory::Mapped(_) => self.to_vec(),
        }
    }
}

impl Mapped {
    /// Requires: the mapping has so many.
    fn resize(&mut self, bytes: usize) {
        self.length = bytes;
        let touched_bytes = bytes.next_multiple_of(PAGE_BYTES);
        if touched_bytes > self.touched_bytes {
            note_mapped(touched_bytes - self.touched_bytes);
            self.touched_bytes = touched_bytes;
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        note_unmapped(self.touched_bytes);
        if let Some(mut mapping) = self.mapping.take() {
            mapping.touched_bytes = mapping.touched_bytes.max(self.touched_bytes);
            mapping.leave();
        }
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer(Memory::Heap(Vec::new()))
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(heap: Vec<u8>) -> Buffer {
        Buffer(Memory::Heap(heap))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Heap(heap) => heap,
            Memory::Mapped(mapped) => mapped.mapping.as_ref().map_or(&[], |mapping| {
                let length = mapped.length.min(mapping.bytes);
                // SAFETY: the bytes lie inside the mapping, which is this buffer's own, and
                // are zeros or what somebody wrote.
                unsafe { std::slice::from_raw_parts(mapping.pages.start().as_ptr(), length) }
            }),
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Heap(heap) => heap,
            Memory::Mapped(mapped) => mapped.mapping.as_mut().map_or(&mut [], |mapping| {
                let length = mapped.length.min(mapping.bytes);
                // SAFETY: as for reading, and who has the buffer alone has the mapping alone.
                unsafe { std::slice::from_raw_parts_mut(mapping.pages.start().as_ptr(), length) }
            }),
        }
    }
}

struct Kept {
    mappings: Vec<Mapping>,
    /// What they take of memory.
    bytes: usize,
}

/// What buffers have, one after the other.
#[derive(Debug)]
struct Mapping {
    pages: Pages,
    bytes: usize,
    /// Of these, from the start, those that owners have had.
    touched_bytes: usize,
}

impl Mapping {
    /// One of at least `bytes` bytes. None if the system refuses it.
    fn take(bytes: usize) -> Option<Mapping> {
        if bytes > MAPPING_BYTES {
            return Mapping::new(bytes);
        }
        let mut kept = KEPT.lock();
        if let Some(mapping) = kept.mappings.pop() {
            kept.bytes -= mapping.touched_bytes;
            return Some(mapping);
        }
        drop(kept);
        Mapping::new(MAPPING_BYTES)
    }

    /// Nobody uses it any more.
    fn leave(self) {
        let mut kept = KEPT.lock();
        let bytes = kept.bytes + self.touched_bytes;
        if self.bytes == MAPPING_BYTES && bytes <= KEPT_BYTES_MAX {
            kept.bytes = bytes;
            kept.mappings.push(self);
            return;
        }
        // Outside of the lock: this takes the system a while.
        drop(kept);
        drop(self);
    }

    fn new(bytes: usize) -> Option<Mapping> {
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let pages = Pages::new(bytes)?;
        // What is not written to is to take no memory.
        pages.let_be_huge(pages.start(), bytes, false);
        Some(Mapping {
            pages,
            bytes,
            touched_bytes: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::mapped_bytes;

    const SIZES: [usize; 9] = [
        0,
        1,
        4096,
        SMALL_BYTES,
        SMALL_BYTES + 1,
        100_000,
        512 << 10,
        MAPPING_BYTES,
        3 << 20,
    ];

    #[test]
    fn a_buffer_takes_what_is_asked_for_and_at_most_a_page_more() {
        for bytes in SIZES {
            let mut buffer = Buffer::default();
            buffer.resize(bytes);
            assert_eq!(buffer.len(), bytes);
            assert!(buffer.memory_bytes() < bytes + PAGE_BYTES);
            buffer.fill(7);
            for smaller in SIZES.into_iter().filter(|smaller| *smaller <= bytes) {
                buffer.resize(smaller);
                assert!(buffer.len() == smaller && buffer.capacity() >= bytes);
            }
            if bytes > SMALL_BYTES {
                assert!(mapped_bytes() >= bytes);
            }
        }
    }

    #[test]
    fn what_is_appended_is_there() {
        let piece: Vec<u8> = (0..=250).collect();
        for capacity in SIZES {
            for pieces in [0, 1, 300, 3000, 9000] {
                let mut buffer = Buffer::with_capacity(capacity);
                for _ in 0..pieces {
                    buffer.extend_from_slice(&piece);
                }
                assert!(*buffer == piece.repeat(pieces));
                assert!(buffer.into_vec() == piece.repeat(pieces));
            }
        }
        let mut buffer = Buffer::with_capacity(512 << 10);
        buffer.extend_from_slice(&piece);
        buffer.clear();
        assert!(buffer.is_empty() && buffer.capacity() >= 512 << 10);
        assert_eq!(Buffer::from(piece.clone()).into_vec(), piece);
    }

    #[test]
    fn what_is_kept_serves_again_and_is_little() {
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                scope.spawn(move || {
                    for turn in 0..100 {
                        let mut held: Vec<Buffer> = Vec::new();
                        for i in 0..8 {
                            let mut buffer = Buffer::default();
                            buffer.resize(SMALL_BYTES + 1 + (turn * 8 + i) * 1500);
                            buffer.fill(thread);
                            held.push(buffer);
                        }
                        assert!(held.iter().all(|b| b.iter().all(|byte| *byte == thread)));
                    }
                });
            }
        });
        let kept = KEPT.lock();
        let touched = kept.mappings.iter().map(|m| m.touched_bytes).sum::<usize>();
        assert!(kept.bytes == touched && touched <= KEPT_BYTES_MAX);
        assert!(kept.mappings.iter().all(|m| m.bytes == MAPPING_BYTES));
    }
}
