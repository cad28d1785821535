//! Memory of one memtable: a bump arena, its overflow, and the pool it returns to.
//!
//! One mapping holds everything that a memtable of its intended size needs;
//! allocating is one `fetch_add` on a word that counts bytes and entries at
//! once. Places are 32-bit numbers of 8-byte units, small enough to share a
//! word with four bytes of the key they lead to. The arena never refuses: past
//! its mapping it adds overflow chunks, each as large as all before it, and
//! values too large for it get an allocation of their own.
//!
//! Mappings go back to an [`ArenaPool`] when a memtable is dropped. The next one
//! then writes to pages that are mapped already, which saves a page fault and
//! the zeroing of a page for every 4 KiB written. Nothing relies on zeroed memory.
//! How much the pool keeps is not decided here: the engine tells it what is left
//! of the write buffer.
//!
//! Memory is counted as the system counts it: a page that was ever written takes
//! memory until its mapping goes, whoever uses it now. Only the first half of a
//! mapping is made of huge pages, so that a memtable that ends somewhere in the
//! second takes no more than it needs.
//!
//! Invariant: a place handed out stays valid, and its bytes never move, for the
//! life of the arena.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::pages::{PAGE_BYTES, Pages};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The grain of allocation, and the alignment of every place.
pub(super) const UNIT_BYTES: usize = 8;

/// The size, and the alignment, that lets a mapping be made of huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The smallest mapping.
const CHUNK_BYTES_MIN: usize = 64 << 10;

/// The largest first mapping: half of what 32-bit places can name.
const CHUNK_BYTES_MAX: usize = 16 << 30;

/// Overflow chunks double, so no more than this many fit the 32-bit places.
const CHUNKS_MAX: usize = 32;

/// In the state word, entries are counted above this bit and units below it.
const ENTRY_SHIFT: u32 = 32;

/// Where an allocation lies: a number of units from the start of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place(pub(super) u32);

/// The memory of an arena, or of a part of it.
struct Chunk {
    _pages: Pages,
    /// The part in use: aligned to a huge page when it is as large as one.
    base: NonNull<u8>,
    bytes: usize,
    /// Of these, from the start, those that may lie in huge pages.
    huge_bytes: usize,
    /// Bytes from the start that earlier owners have written.
    touched_bytes: usize,
}

// SAFETY: a chunk owns its mapping; nothing about it belongs to one thread.
unsafe impl Send for Chunk {}
// SAFETY: `&Chunk` gives out only the address; access is the arena's business.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Maps `bytes` bytes, the first `huge_bytes` of them as huge pages. Ends the
    /// process when the system has no memory left, as every allocation in Rust does.
    fn map(bytes: usize, huge_bytes: usize) -> Chunk {
        let huge = huge_bytes > 0;
        let mapping_bytes = if huge { bytes + HUGE_PAGE_BYTES } else { bytes };
        let Some(pages) = Pages::new(mapping_bytes) else {
            let layout = std::alloc::Layout::from_size_align(mapping_bytes, UNIT_BYTES);
            std::alloc::handle_alloc_error(
                layout.unwrap_or_else(|_| std::alloc::Layout::new::<u8>()),
            );
        };
        let mut base = pages.start();
        if huge {
            base = pages.aligned_start(HUGE_PAGE_BYTES);
            pages.let_be_huge(base, huge_bytes, true);
        }
        // SAFETY: the rest lies inside the mapping, behind what may be huge.
        let rest = unsafe { base.add(huge_bytes) };
        pages.let_be_huge(rest, bytes - huge_bytes, false);
        Chunk {
            _pages: pages,
            base,
            bytes,
            huge_bytes,
            touched_bytes: 0,
        }
    }

    /// Bytes of memory that the chunk takes when its owner has written the first
    /// `used_bytes`.
    fn resident_bytes(&self, used_bytes: usize) -> usize {
        let written = used_bytes.max(self.touched_bytes);
        let page = if written < self.huge_bytes {
            HUGE_PAGE_BYTES
        } else {
            PAGE_BYTES
        };
        written.next_multiple_of(page).min(self.bytes)
    }
}

/// Mappings of dropped memtables, kept for the next ones.
pub struct ArenaPool {
    /// No more is kept than this, in bytes of memory.
    idle_bytes_max: usize,
    chunks: Mutex<Vec<Chunk>>,
}

impl ArenaPool {
    /// A pool that keeps at most `idle_bytes_max` bytes of memory for later use,
    /// until told otherwise; 0 keeps none.
    #[must_use]
    pub fn new(idle_bytes_max: usize) -> Arc<ArenaPool> {
        Arc::new(ArenaPool {
            idle_bytes_max,
            chunks: Mutex::new(Vec::new()),
        })
    }

    /// Memory held for later use, in bytes; pages that were never written take
    /// no memory.
    #[must_use]
    pub fn idle_bytes(&self) -> usize {
        idle_bytes(&self.chunks.lock())
    }

    /// Lets go of what is more than `bytes`, now. What comes back later is kept
    /// up to the bound that the pool was made with.
    pub fn shrink_to(&self, bytes: usize) {
        shrink(&mut self.chunks.lock(), bytes);
    }

    fn take(&self, bytes: usize) -> Chunk {
        let mut chunks = self.chunks.lock();
        // The newest is the warmest.
        if let Some(i) = chunks.iter().rposition(|chunk| chunk.bytes == bytes) {
            return chunks.remove(i);
        }
        drop(chunks);
        Chunk::map(bytes, bytes / 2 / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES)
    }

    /// Takes back a chunk of which `used_bytes` were written.
    fn give(&self, mut chunk: Chunk, used_bytes: usize) {
        chunk.touched_bytes = chunk.touched_bytes.max(used_bytes);
        let mut chunks = self.chunks.lock();
        chunks.push(chunk);
        shrink(&mut chunks, self.idle_bytes_max);
    }
}

fn idle_bytes(chunks: &[Chunk]) -> usize {
    chunks.iter().map(|chunk| chunk.resident_bytes(0)).sum()
}

/// Drops the oldest of `chunks` until the rest takes no more than `bytes_max`.
fn shrink(chunks: &mut Vec<Chunk>, bytes_max: usize) {
    let mut excess = idle_bytes(chunks).saturating_sub(bytes_max);
    let old = chunks.iter().take_while(|chunk| {
        let goes = excess > 0;
        excess = excess.saturating_sub(chunk.resident_bytes(0));
        goes
    });
    let count = old.count();
    chunks.drain(..count);
}

/// Kept apart from what readers load at every step, since writers change it.
#[repr(align(64))]
struct State(AtomicU64);

/// A value that has an allocation of its own.
struct Large(NonNull<[u8]>);

// SAFETY: a `Large` owns its bytes, which are never written after its making.
unsafe impl Send for Large {}

impl Drop for Large {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `store_large`, and freed only here.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Everything that is not on the fast path.
struct Overflow {
    /// Chunks past the first; `Arena::bases` holds their addresses.
    chunks: Vec<Chunk>,
    /// Units `next..end` are free in the newest of them.
    next: u64,
    end: u64,
    large: Vec<Large>,
}

/// The memory of one memtable.
pub(super) struct Arena {
    base: NonNull<u8>,
    /// Units in the first chunk.
    units: u64,
    /// Places of the first chunk lie below `1 << span_bits`, those of overflow
    /// chunk `i` (from 1) in `1 << (span_bits + i - 1) .. 1 << (span_bits + i)`.
    span_bits: u32,
    first: Option<Chunk>,
    bases: [AtomicPtr<u8>; CHUNKS_MAX],
    pool: Arc<ArenaPool>,
    overflow: Mutex<Overflow>,
    /// Bytes in overflow chunks and large values.
    overflow_bytes: AtomicUsize,
    state: State,
}

// SAFETY: the arena hands out places, each to one caller; `base` is the address
// of a mapping that the arena owns, and all its own state is atomic or locked.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena whose first mapping has room for `bytes`, from `pool` if it has one.
    pub(super) fn new(bytes: usize, pool: Arc<ArenaPool>) -> Arena {
        let bytes = bytes
            .clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
            .next_multiple_of(CHUNK_BYTES_MIN);
        let chunk = pool.take(bytes);
        let units = (bytes / UNIT_BYTES) as u64;
        Arena {
            base: chunk.base,
            units,
            span_bits: units.next_power_of_two().trailing_zeros(),
            first: Some(chunk),
            bases: Default::default(),
            pool,
            overflow: Mutex::new(Overflow {
                chunks: Vec::new(),
                next: 0,
                end: 0,
                large: Vec::new(),
            }),
            overflow_bytes: AtomicUsize::new(0),
            state: State(AtomicU64::new(0)),
        }
    }

    /// Room for `bytes` bytes and one entry more in the count.
    ///
    /// # Panics
    /// When a memtable holds 32 GiB outside large values: more than any batch
    /// that fits in memory beside it.
    #[inline]
    pub(super) fn allocate(&self, bytes: usize) -> Place {
        let need = bytes.div_ceil(UNIT_BYTES) as u64;
        let used = self.state.0.load(Ordering::Relaxed) & u64::from(u32::MAX);
        // Asking first keeps the count from growing without end once it is full.
        if used + need <= self.units {
            let before = self
                .state
                .0
                .fetch_add((1 << ENTRY_SHIFT) + need, Ordering::Relaxed);
            let start = before & u64::from(u32::MAX);
            if start + need <= self.units {
                // Fits 32 bits: `units` is at most 2^31.
                return Place(start as u32);
            }
            // Another thread took the room: the rest of the chunk stays unused.
            self.uncount_entry();
        }
        self.allocate_overflow(need)
    }

    #[cold]
    fn allocate_overflow(&self, need: u64) -> Place {
        let mut overflow = self.overflow.lock();
        if overflow.end - overflow.next < need {
            // A chunk is as large as all places before it, so its end, a power
            // of two, is the start of the next.
            let mut start = overflow.end.max(1 << self.span_bits);
            while start < need {
                start *= 2;
            }
            assert!(
                start * 2 <= u64::from(u32::MAX) + 1,
                "a memtable holds less than 32 GiB outside large values"
            );
            let chunk = Chunk::map(start as usize * UNIT_BYTES, 0);
            let slot = (start.trailing_zeros() - self.span_bits) as usize;
            self.bases[slot].store(chunk.base.as_ptr(), Ordering::Release);
            overflow.chunks.push(chunk);
            overflow.next = start;
            overflow.end = start * 2;
        }
        let place = Place(overflow.next as u32);
        overflow.next += need;
        self.overflow_bytes
            .fetch_add(need as usize * UNIT_BYTES, Ordering::Relaxed);
        self.state.0.fetch_add(1 << ENTRY_SHIFT, Ordering::Relaxed);
        place
    }

    /// Takes one entry back out of the count.
    pub(super) fn uncount_entry(&self) {
        self.state.0.fetch_sub(1 << ENTRY_SHIFT, Ordering::Relaxed);
    }

    /// The address of `place`, aligned to a unit.
    ///
    /// Requires: `place` is of this arena, or lies inside an allocation of it.
    #[inline(always)]
    pub(super) fn address(&self, place: Place) -> NonNull<u8> {
        if u64::from(place.0) < self.units {
            // SAFETY: the place lies inside the first chunk.
            unsafe { self.base.add(place.0 as usize * UNIT_BYTES) }
        } else {
            self.address_overflow(place)
        }
    }

    #[cold]
    fn address_overflow(&self, place: Place) -> NonNull<u8> {
        let bits = place.0.ilog2();
        let slot = (bits - self.span_bits) as usize;
        let base = NonNull::new(self.bases[slot].load(Ordering::Acquire))
            .expect("a place is known only after its chunk was stored");
        // SAFETY: this chunk holds the places from `1 << bits` to twice that.
        unsafe { base.add((place.0 - (1 << bits)) as usize * UNIT_BYTES) }
    }

    /// Copies `bytes` to an allocation that lives as long as the arena.
    pub(super) fn store_large(&self, bytes: &[u8]) -> NonNull<u8> {
        let pointer = NonNull::from(Box::leak(Box::<[u8]>::from(bytes)));
        self.overflow.lock().large.push(Large(pointer));
        self.overflow_bytes
            .fetch_add(bytes.len(), Ordering::Relaxed);
        pointer.cast()
    }

    /// Asks for `lines` lines of memory that the next allocations will write to.
    #[inline]
    pub(super) fn prefetch_after(&self, place: Place, bytes: usize, lines: usize) {
        let next = self
            .base
            .as_ptr()
            .wrapping_add(place.0 as usize * UNIT_BYTES + bytes);
        for line in 0..lines {
            prefetch(next.wrapping_add(line * 64));
        }
    }

    /// Bytes in use: to the unit, and with large values.
    pub(super) fn bytes(&self) -> usize {
        self.first_bytes() + self.overflow_bytes.load(Ordering::Relaxed)
    }

    /// Bytes in the first chunk that were written.
    fn first_bytes(&self) -> usize {
        let used = (self.state.0.load(Ordering::Relaxed) & u64::from(u32::MAX)).min(self.units);
        used as usize * UNIT_BYTES
    }

    /// Bytes of memory that the arena takes: whole pages, and those that earlier
    /// owners of its mapping have written.
    pub(super) fn resident_bytes(&self) -> usize {
        let used = self.first_bytes();
        let first = self.first.as_ref().map_or(0, |c| c.resident_bytes(used));
        let overflow = self.overflow_bytes.load(Ordering::Relaxed);
        first + overflow.next_multiple_of(PAGE_BYTES)
    }

    /// Allocations counted as entries.
    pub(super) fn entries(&self) -> u64 {
        self.state.0.load(Ordering::Relaxed) >> ENTRY_SHIFT
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let used = self.first_bytes();
        if let Some(chunk) = self.first.take() {
            self.pool.give(chunk, used);
        }
    }
}

/// Asks the processor to bring the line at `address` near. Any address will do.
#[inline(always)]
pub(super) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint that never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_do_not_overlap_and_survive_overflow() {
        let arena = Arena::new(CHUNK_BYTES_MIN, ArenaPool::new(1));
        let sizes = [1, 15, 16, 17, 100, 4096, 70_000, 300_000];
        let mut given: Vec<(usize, usize)> = Vec::new();
        for round in 0..40 {
            let bytes = sizes[round % sizes.len()];
            let place = arena.allocate(bytes);
            let address = arena.address(place);
            assert_eq!(address.as_ptr() as usize % UNIT_BYTES, 0);
            // SAFETY: the allocation is ours and `bytes` long.
            unsafe { address.write_bytes(round as u8, bytes) };
            given.push((address.as_ptr() as usize, bytes));
        }
        given.sort_unstable();
        assert!(given.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
        assert_eq!(arena.entries(), 40);
        assert!(arena.bytes() >= given.iter().map(|g| g.1).sum());
    }

    #[test]
    fn a_dropped_arena_gives_its_mapping_to_the_next_and_the_pool_is_bounded() {
        let pool = ArenaPool::new(1 << 20);
        let two = [(); 2].map(|()| {
            let arena = Arena::new(1 << 20, Arc::clone(&pool));
            arena.allocate(1 << 20);
            arena
        });
        let first = two[1].base;
        drop(two);
        assert_eq!(pool.idle_bytes(), 1 << 20);
        let next = Arena::new(1 << 20, Arc::clone(&pool));
        assert_eq!(next.base, first, "the newest is the one that is kept");
        assert_eq!(pool.idle_bytes(), 0);
        drop(next);
        assert_eq!(pool.idle_bytes(), 1 << 20);
        pool.shrink_to((1 << 20) - 1);
        assert_eq!(pool.idle_bytes(), 0);
    }

    #[test]
    fn memory_is_counted_by_the_page_and_for_as_long_as_it_is_mapped() {
        let pool = ArenaPool::new(64 << 20);
        let arena = Arena::new(16 << 20, Arc::clone(&pool));
        assert_eq!(arena.resident_bytes(), 0);
        arena.allocate(8);
        assert_eq!(arena.resident_bytes(), HUGE_PAGE_BYTES);
        arena.allocate(9 << 20);
        assert_eq!(arena.resident_bytes(), (9 << 20) + PAGE_BYTES);
        arena.store_large(&[1; 1000]);
        assert_eq!(arena.resident_bytes(), (9 << 20) + 2 * PAGE_BYTES);
        drop(arena);
        assert_eq!(pool.idle_bytes(), (9 << 20) + PAGE_BYTES);
        // Its new owner has written nothing, and the pages are still there.
        let next = Arena::new(16 << 20, Arc::clone(&pool));
        assert_eq!(next.resident_bytes(), (9 << 20) + PAGE_BYTES);
    }
}
