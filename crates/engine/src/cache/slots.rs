//! Memory of the block cache: one mapping, cut into slots for the payloads of blocks.
//!
//! Blocks are loaded by one thread and evicted by another, long after, and differ in
//! size. A general allocator keeps what is freed so by thread and by size, and a cache
//! that it serves goes on growing when it is full: by 30 % and more, measured. Here the
//! mapping is as large as the cache may be, and nothing else serves it, so that the
//! bound on the cache is one on memory.
//!
//! The mapping is divided into *chunks*, a chunk into slots of one size. When a size
//! needs a chunk and there is none, the one that is used least gives up its blocks: the
//! cache forgets them ([`Slots::most_idle`]), and the chunk goes to the size in need.
//! A block that somebody still reads keeps its slot until then, and its chunk with it.
//!
//! A chunk that is needed no more goes back to the system. Huge pages would undo that: the
//! system makes a whole one of what is left in it, by itself and within seconds, and then
//! the cache has memory that nobody counts. So a huge page of which a chunk went back is one
//! of ordinary pages from then on, until all of its chunks are in use again.
//!
//! All books (which slot is whose) stand outside of the mapping, in safe code. Invariant:
//! a slot is given to one [`Payload`] at a time, and comes back when that is dropped.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

// Not the lock of `crate::sync`: it is taken within the shards of the cache, where no
// model of threads may switch.
use parking_lot::Mutex;
use rustix::mm::{Advice, madvise};

use super::{Key, OVERHEAD_BYTES, allocation_bytes};
use crate::pages::Pages;
use crate::table::Block;

/// The smallest slot, as a power of two.
const SMALLEST_LOG2: u32 = 6;

/// Sizes between one power of two and the next.
const STEPS: usize = 16;

/// How many of these are one in a small mapping, whose few chunks must not be shared out
/// among too many sizes.
const STEPS_TOGETHER: usize = 4;

/// The largest slot, as a power of two.
const LARGEST_LOG2: u32 = 18;

/// Sizes of slots.
const SIZES: usize = (LARGEST_LOG2 - SMALLEST_LOG2) as usize * STEPS + 1;

/// Chunks that a mapping is divided into, if they then are not too small or too large.
const CHUNKS: u64 = 256;

/// The size of a chunk, at least and at most.
const CHUNK_BYTES: (u64, u64) = (64 << 10, 1 << 20);

/// The share of a chunk that may be left over behind its last slot.
const LEFT_OVER_SHARE: usize = 4;

/// The share of chunks that keep their memory while they have no slots.
const IDLE_SHARE: usize = 16;

/// What the books take for a slot, in bytes.
const SLOT_BOOK_BYTES: usize = size_of::<Slot>();

/// What a block is charged beside its payload, in bytes: what it takes on the heap, and as
/// much again, since allocators keep that of what they were given back. Measured, with
/// mimalloc (docs/performance.md).
pub(super) const BESIDE_BYTES: usize = 2 * (OVERHEAD_BYTES + Block::FIXED_BYTES);

/// The alignment that lets a mapping be made of huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Smaller mappings are made of ordinary pages and have few sizes.
const LARGE_FROM_BYTES: usize = 32 << 20;

/// The bytes that the whole cache may take, and takes.
#[derive(Debug)]
pub(super) struct Budget {
    max_bytes: AtomicU64,
    used_bytes: AtomicU64,
    /// Of these, bytes of blocks on the heap.
    heap_bytes: AtomicU64,
}

impl Budget {
    pub(super) fn new(max_bytes: u64) -> Budget {
        Budget {
            max_bytes: AtomicU64::new(max_bytes),
            used_bytes: AtomicU64::new(0),
            heap_bytes: AtomicU64::new(0),
        }
    }

    /// Allows another number of bytes from now on. What is taken stays taken.
    pub(super) fn allow(&self, max_bytes: u64) {
        self.max_bytes.store(max_bytes, Ordering::Relaxed);
    }

    /// Bytes taken: chunks that hold or held something, and what else was charged.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Of these, bytes of blocks on the heap.
    pub(super) fn heap_bytes(&self) -> u64 {
        self.heap_bytes.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, if there are so many left.
    fn charge(&self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let before = self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.max_bytes.load(Ordering::Relaxed);
        if !fits {
            self.credit(bytes as usize);
        }
        fits
    }

    fn credit(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// The bytes of a block in memory: on the heap, or in a slot of the cache.
pub(crate) struct Payload {
    start: NonNull<u8>,
    bytes: u32,
    /// Bytes that are taken for it.
    taken_bytes: u32,
    /// Whose slot it is, or whose budget it is charged to.
    slots: Option<Arc<Slots>>,
}

// SAFETY: a payload owns its bytes, on the heap or in a slot, and never changes them.
unsafe impl Send for Payload {}
// SAFETY: as above; `&Payload` only reads.
unsafe impl Sync for Payload {}

impl Payload {
    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self.is_in_slot() {
            true => self.taken_bytes as usize,
            false => allocation_bytes(self.taken_bytes as usize),
        }
    }

    /// The buffer, to be used again; an empty one if it is not on the heap.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        if self.is_in_slot() {
            return Vec::new();
        }
        let mut this = ManuallyDrop::new(self);
        if let Some(slots) = this.slots.take() {
            slots.discharge(this.memory_bytes());
        }
        this.heap()
    }

    /// Whether it is charged to a cache though it lies on the heap.
    pub(super) fn is_charged(&self) -> bool {
        self.slots.is_some() && !self.is_in_slot()
    }

    fn is_in_slot(&self) -> bool {
        self.slots.as_ref().is_some_and(|s| s.map.holds(self.start))
    }

    /// The vector that it was made of. Requires: on the heap, and not used after.
    fn heap(&self) -> Vec<u8> {
        let (bytes, capacity) = (self.bytes as usize, self.taken_bytes as usize);
        // SAFETY: the three are those of the vector that `From` took apart, and the
        // two callers give up `self`.
        unsafe { Vec::from_raw_parts(self.start.as_ptr(), bytes, capacity) }
    }
}

impl From<Vec<u8>> for Payload {
    /// Takes `bytes` over. More than 4 GiB, which no block has, are cut off.
    fn from(mut bytes: Vec<u8>) -> Payload {
        bytes.truncate(u32::MAX as usize);
        if bytes.capacity() > u32::MAX as usize {
            bytes = Vec::from(&bytes[..]);
        }
        let mut bytes = ManuallyDrop::new(bytes);
        let start = NonNull::new(bytes.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Payload {
            start,
            bytes: bytes.len() as u32,
            taken_bytes: bytes.capacity() as u32,
            slots: None,
        }
    }
}

impl Deref for Payload {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` leads to `bytes` bytes, written before the payload was made,
        // that are its own until it is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes as usize) }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        match self.slots.take() {
            None => drop(self.heap()),
            Some(slots) if slots.map.holds(self.start) => slots.take_back(self.start),
            Some(slots) => {
                slots.discharge(self.memory_bytes());
                drop(self.heap());
            }
        }
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

/// The memory of the slots.
struct Map {
    pages: Pages,
    /// The part in use: aligned to a huge page when it may consist of such.
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to no thread.
unsafe impl Send for Map {}
// SAFETY: `&Map` gives out only addresses; access is the business of payloads.
unsafe impl Sync for Map {}

impl Map {
    /// None if the system refuses it.
    fn new(bytes: usize) -> Option<Map> {
        let huge = bytes >= LARGE_FROM_BYTES;
        let alignment = if huge { HUGE_PAGE_BYTES } else { 1 };
        // Longer than what is used by as much as aligning it may skip.
        let pages = Pages::new(bytes.checked_add(alignment - 1)?)?;
        let base = pages.aligned_start(alignment);
        let map = Map { pages, base, bytes };
        map.let_be_huge(0, bytes, huge);
        Some(map)
    }

    /// Whether the `bytes` bytes from `at` may be made of huge pages.
    fn let_be_huge(&self, at: usize, bytes: usize, huge: bool) {
        debug_assert!(at + bytes <= self.bytes);
        // SAFETY: the place lies inside the mapping.
        let start = unsafe { self.base.add(at) };
        self.pages.let_be_huge(start, bytes, huge);
    }

    fn holds(&self, start: NonNull<u8>) -> bool {
        start.addr().get().wrapping_sub(self.base.addr().get()) < self.bytes
    }

    /// Gives the memory of `bytes` bytes from `at` back to the system. What was in them
    /// is lost.
    fn release(&self, at: usize, bytes: usize) {
        debug_assert!(at + bytes <= self.bytes);
        // SAFETY: the range lies inside the mapping, and the caller says that no
        // payload is in it.
        let _ = unsafe {
            let start = self.base.as_ptr().add(at);
            madvise(start.cast(), bytes, Advice::LinuxDontNeed)
        };
    }
}

/// A slot in the books.
#[derive(Clone, Copy)]
enum Slot {
    /// Holds, or is about to, the block of that key.
    Taken(Key),
    /// Is free, as is the one named.
    Free(u32),
}

/// No further free slot.
const NONE: u32 = u32::MAX;

/// A chunk in the books. Without slots it belongs to no size.
struct Chunk {
    size: usize,
    slots: Vec<Slot>,
    /// Slots that were ever taken: the first ones.
    begun: u32,
    first_free: u32,
    /// When it was given to its size: chunks given before.
    begun_at: u64,
    taken: u32,
    /// Gives out no slots any more.
    draining: bool,
}

impl Chunk {
    fn has_room(&self) -> bool {
        !self.draining && (self.taken as usize) < self.slots.len()
    }

    fn take(&mut self, key: Key) -> usize {
        let slot = match self.first_free {
            NONE => {
                self.begun += 1;
                self.begun - 1
            }
            free => free,
        } as usize;
        if let Slot::Free(next) = self.slots[slot] {
            self.first_free = next;
        }
        self.slots[slot] = Slot::Taken(key);
        self.taken += 1;
        slot
    }
}

struct Books {
    chunks: Vec<Chunk>,
    /// Of each size, the chunks with room.
    with_room: Vec<Vec<u32>>,
    /// Chunks given to sizes so far.
    given: u64,
    /// Chunks without slots: those whose memory is still there.
    idle: Vec<u32>,
    /// Those whose memory the system has.
    released: Vec<u32>,
    /// The huge pages of the mapping; none of a small one.
    pages: Vec<Page>,
}

/// A huge page in the books.
#[derive(Clone, Copy, Default)]
struct Page {
    /// Chunks of it that have memory.
    resident: u32,
    /// Is of ordinary pages, as a chunk of it went back to the system.
    ordinary: bool,
}

/// The slots of a cache, or of a part of it.
pub(crate) struct Slots {
    map: Map,
    chunk_bytes: usize,
    budget: Arc<Budget>,
    books: Mutex<Books>,
}

impl Slots {
    /// Slots in `bytes` of memory, charged to `budget` as they are used. None where the
    /// bytes are few or the system has no room for them.
    pub(super) fn new(bytes: u64, budget: &Arc<Budget>) -> Option<Arc<Slots>> {
        let (least, most) = CHUNK_BYTES;
        let chunk_bytes = (bytes / CHUNKS).next_power_of_two().clamp(least, most);
        let chunks = u32::try_from(bytes / chunk_bytes).ok()?;
        let chunk_bytes = chunk_bytes as usize;
        if chunks < 4 {
            return None;
        }
        let map_bytes = chunks as usize * chunk_bytes;
        let pages = match map_bytes >= LARGE_FROM_BYTES {
            true => map_bytes.div_ceil(HUGE_PAGE_BYTES),
            false => 0,
        };
        Some(Arc::new(Slots {
            map: Map::new(map_bytes)?,
            chunk_bytes,
            budget: Arc::clone(budget),
            books: Mutex::new(Books {
                chunks: (0..chunks).map(|_| Chunk::default()).collect(),
                with_room: (0..SIZES).map(|_| Vec::new()).collect(),
                given: 0,
                idle: Vec::new(),
                // The first are taken first, so that huge pages fill.
                released: (0..chunks).rev().collect(),
                pages: vec![Page::default(); pages],
            }),
        }))
    }

    /// Whether payloads of `bytes` go to slots, not to the heap.
    pub(super) fn suit(&self, bytes: usize) -> bool {
        let slot_bytes = slot_bytes(self.size_of(bytes));
        bytes <= slot_bytes
            && slot_bytes <= self.chunk_bytes
            && self.chunk_bytes % slot_bytes <= self.chunk_bytes / LEFT_OVER_SHARE
    }

    fn size_of(&self, bytes: usize) -> usize {
        let size = size_of_slot(bytes);
        match self.map.bytes < LARGE_FROM_BYTES {
            true => size.next_multiple_of(STEPS_TOGETHER),
            false => size,
        }
    }

    /// A copy of `content`, the payload of the block of `key`, in a slot. None where no
    /// slot is free. Requires: it suits.
    pub(super) fn put(self: &Arc<Slots>, key: Key, content: &[u8]) -> Option<Payload> {
        let size = self.size_of(content.len());
        let slot_bytes = slot_bytes(size);
        if !self.budget.charge(BESIDE_BYTES) {
            return None;
        }
        let Some((chunk, slot)) = self.books.lock().take(self, size, key) else {
            self.budget.credit(BESIDE_BYTES);
            return None;
        };
        let at = chunk * self.chunk_bytes + slot * slot_bytes;
        debug_assert!(content.len() <= slot_bytes && at + slot_bytes <= self.map.bytes);
        // SAFETY: the slot lies inside the mapping and has room for the content. It was
        // just taken, so that nobody else has its address.
        let start = unsafe {
            let start = self.map.base.add(at);
            start.copy_from_nonoverlapping(NonNull::from(content).cast(), content.len());
            start
        };
        Some(Payload {
            start,
            bytes: content.len() as u32,
            taken_bytes: (self.chunk_bytes / (self.chunk_bytes / slot_bytes)) as u32,
            slots: Some(Arc::clone(self)),
        })
    }

    /// Charges a payload on the heap. Whether there was room for it.
    pub(super) fn charge(self: &Arc<Slots>, payload: &mut Payload) -> bool {
        let bytes = payload.memory_bytes() + BESIDE_BYTES;
        let fits = payload.slots.is_none() && self.budget.charge(bytes);
        if fits {
            let bytes = payload.memory_bytes() as u64;
            self.budget.heap_bytes.fetch_add(bytes, Ordering::Relaxed);
            payload.slots = Some(Arc::clone(self));
        }
        fits
    }

    fn discharge(&self, bytes: usize) {
        self.budget.credit(bytes + BESIDE_BYTES);
        let heap = &self.budget.heap_bytes;
        heap.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Makes room: gives a chunk without slots back to the system or, if there is none,
    /// names the blocks of the chunk that is used least, which gives out no more slots.
    /// The caller forgets them and, if that was not enough, asks again.
    pub(super) fn most_idle(&self) -> Vec<Key> {
        let mut books = self.books.lock();
        if !books.idle.is_empty() {
            self.release_one(&mut books);
            return Vec::new();
        }
        // The younger half is left alone: its blocks came last, and it may be filling.
        let in_use = books.chunks.iter().enumerate();
        let in_use = in_use.filter(|(_, c)| !c.draining && c.taken > 0);
        let mut in_use: Vec<(u64, usize)> = in_use.map(|(i, c)| (c.begun_at, i)).collect();
        in_use.sort_unstable();
        in_use.truncate(in_use.len().div_ceil(2));
        let share = |c: &Chunk| (u64::from(c.taken) << 32) / c.slots.len() as u64;
        let least = in_use.iter().min_by_key(|(_, i)| share(&books.chunks[*i]));
        let Some((_, least)) = least.copied() else {
            return Vec::new();
        };
        let size = books.chunks[least].size;
        books.with_room[size].retain(|c| *c as usize != least);
        let chunk = &mut books.chunks[least];
        chunk.draining = true;
        let keys = chunk.slots.iter().filter_map(|slot| match slot {
            Slot::Taken(key) => Some(*key),
            Slot::Free(_) => None,
        });
        keys.collect()
    }

    /// Gives an idle chunk back to the system.
    fn release_one(&self, books: &mut Books) {
        if let Some(chunk) = books.idle.pop() {
            let at = chunk as usize * self.chunk_bytes;
            if let Some(page) = books.pages.get_mut(at / HUGE_PAGE_BYTES) {
                page.resident -= 1;
                if !page.ordinary {
                    page.ordinary = true;
                    self.let_page_be_huge(at / HUGE_PAGE_BYTES, false);
                }
            }
            self.map.release(at, self.chunk_bytes);
            self.budget.credit(self.chunk_bytes);
            books.released.push(chunk);
        }
    }

    /// A released chunk has memory again.
    fn take_released(&self, pages: &mut [Page], chunk: u32) {
        let number = chunk as usize * self.chunk_bytes / HUGE_PAGE_BYTES;
        if let Some(page) = pages.get_mut(number) {
            page.resident += 1;
            if page.ordinary && page.resident as usize == HUGE_PAGE_BYTES / self.chunk_bytes {
                page.ordinary = false;
                self.let_page_be_huge(number, true);
            }
        }
    }

    fn let_page_be_huge(&self, number: usize, huge: bool) {
        let at = number * HUGE_PAGE_BYTES;
        let bytes = HUGE_PAGE_BYTES.min(self.map.bytes - at);
        self.map.let_be_huge(at, bytes, huge);
    }

    /// Bytes of the mapping that have memory.
    pub(super) fn resident_bytes(&self) -> u64 {
        let released = self.books.lock().released.len();
        (self.map.bytes - released * self.chunk_bytes) as u64
    }

    /// The slot of a payload that is being dropped.
    fn take_back(&self, start: NonNull<u8>) {
        let at = start.addr().get() - self.map.base.addr().get();
        let (chunk, within) = (at / self.chunk_bytes, at % self.chunk_bytes);
        let mut books = self.books.lock();
        let freed_bytes = books.give(chunk, within);
        self.budget.credit(freed_bytes + BESIDE_BYTES);
        if books.idle.len() > books.chunks.len() / IDLE_SHARE {
            self.release_one(&mut books);
        }
    }
}

impl Books {
    /// A slot of `size`: its chunk, and its number there.
    fn take(&mut self, slots: &Slots, size: usize, key: Key) -> Option<(usize, usize)> {
        let chunk = match self.with_room[size].last() {
            Some(chunk) => *chunk,
            None => self.begin(slots, size)?,
        };
        let place = chunk as usize;
        let slot = self.chunks[place].take(key);
        if !self.chunks[place].has_room() {
            self.with_room[size].pop();
        }
        Some((place, slot))
    }

    /// A chunk for slots of `size`.
    fn begin(&mut self, slots: &Slots, size: usize) -> Option<u32> {
        let count = slots.chunk_bytes / slot_bytes(size);
        let book_bytes = count * SLOT_BOOK_BYTES;
        let chunk = match self.idle.pop() {
            Some(chunk) if slots.budget.charge(book_bytes) => chunk,
            Some(chunk) => {
                self.idle.push(chunk);
                return None;
            }
            None if self.released.is_empty() => return None,
            None if !slots.budget.charge(slots.chunk_bytes + book_bytes) => return None,
            None => {
                let chunk = self.released.pop()?;
                slots.take_released(&mut self.pages, chunk);
                chunk
            }
        };
        self.chunks[chunk as usize] = Chunk {
            size,
            slots: vec![Slot::Free(NONE); count],
            begun_at: self.given,
            ..Chunk::default()
        };
        self.given += 1;
        self.with_room[size].push(chunk);
        Some(chunk)
    }

    /// Takes the slot at byte `within` of `chunk` back. Gives the bytes that the books
    /// need no more.
    fn give(&mut self, chunk: usize, within: usize) -> usize {
        let place = chunk;
        let chunk = &mut self.chunks[place];
        let slot = within / slot_bytes(chunk.size);
        let had_room = chunk.has_room();
        chunk.slots[slot] = Slot::Free(chunk.first_free);
        chunk.first_free = slot as u32;
        chunk.taken -= 1;
        let with_room = &mut self.with_room[chunk.size];
        if chunk.taken > 0 {
            if !had_room && chunk.has_room() {
                with_room.push(place as u32);
            }
            return 0;
        }
        if had_room {
            with_room.retain(|c| *c as usize != place);
        }
        let freed_bytes = chunk.slots.len() * SLOT_BOOK_BYTES;
        *chunk = Chunk::default();
        self.idle.push(place as u32);
        freed_bytes
    }
}

impl Default for Chunk {
    fn default() -> Chunk {
        Chunk {
            size: 0,
            slots: Vec::new(),
            begun: 0,
            first_free: NONE,
            begun_at: 0,
            taken: 0,
            draining: false,
        }
    }
}

/// The place among the sizes of slots for `bytes`; the largest where none is so large.
fn size_of_slot(bytes: usize) -> usize {
    let bytes = bytes.max(1 << SMALLEST_LOG2);
    if bytes == 1 << SMALLEST_LOG2 {
        return 0;
    }
    let power = (bytes - 1).ilog2();
    let step = (bytes - 1 - (1 << power)) >> (power - STEPS.ilog2());
    let size = (power - SMALLEST_LOG2) as usize * STEPS + step + 1;
    size.min(SIZES - 1)
}

/// The bytes of a slot of `size`.
fn slot_bytes(size: usize) -> usize {
    let Some(above) = size.checked_sub(1) else {
        return 1 << SMALLEST_LOG2;
    };
    let power = above / STEPS + SMALLEST_LOG2 as usize;
    let step = above % STEPS + 1;
    (1 << power) + (step << (power - STEPS.ilog2() as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { table: 1, block: 1 };

    fn dice(seed: &mut u64) -> usize {
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x >> 31) as usize
    }

    fn slots(bytes: u64) -> (Arc<Budget>, Arc<Slots>) {
        let budget = Arc::new(Budget::new(bytes));
        let slots = Slots::new(bytes, &budget).unwrap();
        (budget, slots)
    }

    #[test]
    fn a_slot_has_room_for_what_it_is_taken_for_and_little_more() {
        let mut last = 0;
        for bytes in 1..=1 << LARGEST_LOG2 {
            let size = size_of_slot(bytes);
            assert!(size == last || size == last + 1, "{bytes}");
            last = size;
            let slot = slot_bytes(size);
            assert!(slot >= bytes, "{bytes} in {slot}");
            assert!(
                slot <= 64 || slot - bytes <= bytes / STEPS,
                "{bytes} in {slot}"
            );
        }
        assert_eq!(last, SIZES - 1);
        let (_, slots) = slots(1 << 30);
        assert!(!slots.suit((1 << LARGEST_LOG2) + 1) && slots.suit(4100));
    }

    #[test]
    fn what_is_in_a_slot_is_nobody_elses() {
        let mut seed = 11;
        let (budget, slots) = slots(1 << 20);
        let mut held: Vec<(Payload, u8)> = Vec::new();
        let mut full = 0;
        for turn in 0..20_000 {
            let bytes = 1 + dice(&mut seed) % 9000;
            let filler = turn as u8;
            let content = vec![filler; bytes];
            match slots.put(KEY, &content).filter(|_| slots.suit(bytes)) {
                Some(payload) => held.push((payload, filler)),
                None => full += 1,
            }
            while held.len() > 30 + dice(&mut seed) % 60 {
                let (payload, filler) = held.swap_remove(dice(&mut seed) % held.len());
                assert!(payload.iter().all(|b| *b == filler));
            }
            assert!(budget.used_bytes() <= 1 << 20);
        }
        // There were times without room, and they passed.
        assert!(full > 0 && full < 15_000, "{full}");
        drop(held);
        // All chunks are free again, and what is charged is their memory.
        assert_eq!(budget.used_bytes(), slots.resident_bytes());
        while budget.used_bytes() > 0 {
            assert!(slots.most_idle().is_empty());
        }
        assert_eq!(slots.resident_bytes(), 0);
    }

    #[test]
    fn a_chunk_that_gives_up_its_blocks_serves_another_size() {
        let (_, slots) = slots(320 << 10);
        let mut small = Vec::new();
        while let Some(payload) = slots.put(KEY, &[1; 1000]) {
            small.push(payload);
        }
        assert!(slots.put(KEY, &[2; 5000]).is_none());
        // Whichever chunk is named, its blocks are those of no other.
        let named = slots.most_idle().len();
        assert_eq!(named, 64);
        for i in (0..small.len()).rev() {
            drop(small.swap_remove(i));
            if let Some(large) = slots.put(KEY, &[2; 5000]) {
                assert!(large.iter().all(|b| *b == 2));
                return;
            }
        }
        panic!("no chunk became free");
    }

    /// Whether the system may make a huge page of the one at `address`.
    fn may_be_huge(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let bound = |text| usize::from_str_radix(text, 16).ok();
            if let Some((Some(start), Some(end))) = range.map(|(a, b)| (bound(a), bound(b))) {
                inside = (start..end).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
                return !flags.split_whitespace().any(|flag| flag == "nh");
            }
        }
        panic!("no mapping at {address:x}");
    }

    #[test]
    fn a_huge_page_that_gave_up_a_chunk_is_none_until_it_is_full() {
        let bytes = LARGE_FROM_BYTES as u64;
        let (budget, slots) = slots(bytes);
        let fill = |held: &mut Vec<Payload>| {
            while let Some(payload) = slots.put(KEY, &[1; 4000]) {
                held.push(payload);
            }
        };
        let mut held = Vec::new();
        fill(&mut held);
        let base = slots.map.base.addr().get();
        // A system without huge pages has no such flags.
        let huge = |count: &mut Vec<bool>| {
            count.clear();
            let pages = (0..bytes as usize).step_by(HUGE_PAGE_BYTES);
            count.extend(pages.map(|at| may_be_huge(base + at)));
        };
        let mut now = Vec::new();
        huge(&mut now);
        assert!(now.iter().all(|page| *page));
        // Each second page loses what lies at its start.
        held.retain(|payload| {
            let at = payload.start.addr().get() - base;
            (at / HUGE_PAGE_BYTES).is_multiple_of(2) || at % HUGE_PAGE_BYTES >= slots.chunk_bytes
        });
        budget.allow(bytes / 2);
        while slots.resident_bytes() == bytes || !slots.books.lock().idle.is_empty() {
            assert!(slots.most_idle().is_empty());
        }
        huge(&mut now);
        let used: Vec<bool> = {
            let books = slots.books.lock();
            books.pages.iter().map(|page| !page.ordinary).collect()
        };
        assert_eq!(now, used);
        let ordinary = now.iter().filter(|page| !**page).count();
        assert!(
            ordinary >= now.len() / 4 && ordinary <= now.len().div_ceil(2),
            "{now:?}"
        );
        budget.allow(2 * bytes);
        fill(&mut held);
        assert_eq!(slots.resident_bytes(), bytes);
        huge(&mut now);
        assert!(now.iter().all(|page| *page));
    }

    #[test]
    fn a_payload_on_the_heap_is_charged_until_it_goes() {
        let (budget, slots) = slots(1 << 20);
        let mut payload = Payload::from(vec![3; 100_000]);
        assert!(slots.charge(&mut payload));
        assert!(budget.used_bytes() >= 100_000);
        let mut large = Payload::from(vec![3; 1 << 20]);
        assert!(!slots.charge(&mut large));
        assert_eq!(payload.into_vec(), vec![3; 100_000]);
        assert_eq!(budget.used_bytes(), 0);
        let mut payload = Payload::from(vec![3; 100_000]);
        assert!(slots.charge(&mut payload));
        drop(payload);
        assert_eq!(budget.used_bytes(), 0);
    }
}
