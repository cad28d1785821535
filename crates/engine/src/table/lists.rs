//! The lists of a table's index, one behind the other in memory of their own.
//!
//! Indexes are most of what a store holds for long beside its cache. An allocator has pages by size
//! and by thread, in which what merges want for a moment lies among them, and a page goes back to
//! the system once nothing at all is in it: of a heap of 60 MiB 34 were in use. So the lists of a
//! large index are a mapping, which takes the pages that they fill and gives them back with the
//! table. A process may have so many mappings; past [`MAPPINGS_MAX`], and for what is small, it is
//! the allocator's after all, in one piece.
//!
//! Invariant: what a [`List`] has is written before the list is made, and never again.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pages::{PAGE_BYTES, Pages, note_mapped, note_unmapped};

/// Lists of no more bytes, all together, are the allocator's.
const SMALL_BYTES: usize = 16 << 10;

/// The mappings of all indexes of this process. A system allows 65,530 by default, for everything.
const MAPPINGS_MAX: usize = 8 << 10;

/// Every list begins at a multiple of it.
const ALIGNMENT: usize = align_of::<u64>();

/// Mappings that there are.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// Memory into which lists are written.
#[derive(Debug)]
pub(super) struct Lists {
    region: Arc<Region>,
    /// What lists have of it, from the start.
    used: usize,
}

impl Lists {
    /// Room for so many bytes: the sum of [`Lists::bytes_of`] of all lists.
    pub(super) fn with_bytes(bytes: usize) -> Lists {
        Lists {
            region: Arc::new(Region::new(bytes)),
            used: 0,
        }
    }

    /// What a list of so many takes.
    pub(super) const fn bytes_of<T>(length: usize) -> usize {
        (length * size_of::<T>()).next_multiple_of(ALIGNMENT)
    }

    /// The list of `values`, as many as it says that it has at most. Without room for these it has
    /// memory of its own.
    pub(super) fn list<T: Copy>(&mut self, values: impl ExactSizeIterator<Item = T>) -> List<T> {
        const { assert!(align_of::<T>() <= ALIGNMENT) };
        let promised = values.len();
        let bytes = Lists::bytes_of::<T>(promised);
        if bytes > self.region.bytes - self.used {
            return Lists::with_bytes(bytes).list(values);
        }
        // SAFETY: `used` is within the region.
        let start = unsafe { self.region.start().add(self.used) }.cast::<T>();
        self.used += bytes;
        let mut length = 0;
        for value in values.take(promised) {
            // SAFETY: there is room for `promised` of them from `start` on, which is aligned,
            // as the region and all lists before are multiples of `ALIGNMENT`; and no list
            // has these bytes yet.
            unsafe { start.add(length).write(value) };
            length += 1;
        }
        List {
            start,
            length,
            region: Arc::clone(&self.region),
        }
    }
}

/// Values that do not change. A clone shares them.
pub(super) struct List<T> {
    /// Of `length` values within the region.
    start: NonNull<T>,
    length: usize,
    region: Arc<Region>,
}

impl<T> List<T> {
    /// Bytes of memory of all lists that were made with this one.
    pub(super) fn region_bytes(&self) -> usize {
        self.region.bytes
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: these were written when the list was made, nothing writes them afterwards, and
        // the region lives as long as the list.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T> Clone for List<T> {
    fn clone(&self) -> List<T> {
        List {
            start: self.start,
            length: self.length,
            region: Arc::clone(&self.region),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

// SAFETY: its values are only read, and the region belongs to no thread.
unsafe impl<T: Send + Sync> Send for List<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for List<T> {}

/// Memory of so many bytes, a multiple of [`ALIGNMENT`].
#[derive(Debug)]
struct Region {
    memory: Memory,
    bytes: usize,
}

#[derive(Debug)]
enum Memory {
    Mapped(Pages),
    /// From a box, to which it goes back.
    Heap(NonNull<[MaybeUninit<u64>]>),
}

// SAFETY: it owns its memory, which belongs to no thread, and gives out only the address.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn new(bytes: usize) -> Region {
        Region::mapped(bytes).unwrap_or_else(|| {
            let words = bytes.div_ceil(size_of::<u64>());
            Region {
                memory: Memory::Heap(NonNull::from(Box::leak(Box::new_uninit_slice(words)))),
                bytes: words * size_of::<u64>(),
            }
        })
    }

    /// None where it is too small, or the system or this process has enough of them.
    fn mapped(bytes: usize) -> Option<Region> {
        if bytes <= SMALL_BYTES {
            return None;
        }
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let took = MAPPINGS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |mappings| {
            (mappings < MAPPINGS_MAX).then_some(mappings + 1)
        });
        took.ok()?;
        let Some(pages) = Pages::new(bytes) else {
            MAPPINGS.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        note_mapped(bytes);
        Some(Region {
            memory: Memory::Mapped(pages),
            bytes,
        })
    }

    fn start(&self) -> NonNull<u8> {
        match &self.memory {
            Memory::Mapped(pages) => pages.start(),
            Memory::Heap(words) => words.cast(),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match &self.memory {
            Memory::Mapped(_) => {
                MAPPINGS.fetch_sub(1, Ordering::Relaxed);
                note_unmapped(self.bytes);
            }
            // SAFETY: it came from such a box, and nobody has it any more.
            Memory::Heap(words) => drop(unsafe { Box::from_raw(words.as_ptr()) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// For tests that ask how many mappings there are: one at a time.
    static TURN: Mutex<()> = Mutex::new(());

    fn is_mapped(region: &Region) -> bool {
        matches!(region.memory, Memory::Mapped(_))
    }

    /// Three lists of each length, in memory for `bytes`.
    fn three(length: usize, bytes: usize) -> (List<u16>, List<(u32, u64)>, List<u64>) {
        let mut lists = Lists::with_bytes(bytes);
        (
            lists.list((0..length).map(|i| i as u16)),
            lists.list((0..length).map(|i| (i as u32, !(i as u64)))),
            lists.list((0..length).map(|i| i as u64 * 3)),
        )
    }

    fn bytes_of_three(length: usize) -> usize {
        Lists::bytes_of::<u16>(length)
            + Lists::bytes_of::<(u32, u64)>(length)
            + Lists::bytes_of::<u64>(length)
    }

    fn assert_three((first, second, third): &(List<u16>, List<(u32, u64)>, List<u64>), n: usize) {
        assert_eq!((first.len(), second.len(), third.len()), (n, n, n));
        for i in 0..n {
            assert_eq!(first[i], i as u16);
            assert_eq!(second[i], (i as u32, !(i as u64)));
            assert_eq!(third[i], i as u64 * 3);
        }
    }

    #[test]
    fn past_as_many_mappings_as_there_may_be_lists_are_the_allocators() {
        let _turn = TURN.lock();
        let regions: Vec<Region> = (0..=MAPPINGS_MAX)
            .map(|_| Region::new(SMALL_BYTES + 1))
            .collect();
        // Other tests have a few of them too.
        let mapped = regions.iter().filter(|region| is_mapped(region)).count();
        assert!(mapped <= MAPPINGS_MAX && mapped > MAPPINGS_MAX / 2);
        let one_more = three(2_000, bytes_of_three(2_000));
        assert_three(&one_more, 2_000);
        drop(regions);
        assert!(is_mapped(&Region::new(SMALL_BYTES + 1)));
    }

    #[test]
    fn lists_are_as_written_in_memory_of_either_kind() {
        let _turn = TURN.lock();
        for length in [0, 1, 2, 3, 5, 100, 3_000, 10_000] {
            let bytes = bytes_of_three(length);
            let lists = three(length, bytes);
            assert_three(&lists, length);
            // No more than is asked for but for what fills up the last page.
            let taken = lists.0.region_bytes();
            assert!(taken >= bytes && taken < bytes + PAGE_BYTES);
            assert_eq!(is_mapped(&lists.0.region), bytes > SMALL_BYTES);
            assert!(Arc::ptr_eq(&lists.0.region, &lists.2.region));
        }
    }

    #[test]
    fn what_has_no_room_has_memory_of_its_own() {
        for (length, bytes) in [(5, 0), (5, 24), (40_000, 100), (40_000, 700_000)] {
            assert_three(&three(length, bytes), length);
        }
    }

    #[test]
    fn values_beyond_those_promised_are_left_out() {
        struct Wrong(u32);
        impl Iterator for Wrong {
            type Item = u32;
            fn next(&mut self) -> Option<u32> {
                self.0 += 1;
                (self.0 < 100).then_some(self.0)
            }
            fn size_hint(&self) -> (usize, Option<usize>) {
                (3, Some(3))
            }
        }
        impl ExactSizeIterator for Wrong {}
        let mut lists = Lists::with_bytes(32);
        assert_eq!(*lists.list(Wrong(0)), [1, 2, 3]);
        assert_eq!(*lists.list(Wrong(98)), [99]);
    }

    #[test]
    fn a_list_outlives_the_others_and_moves_to_another_thread() {
        let (first, second, third) = three(20_000, bytes_of_three(20_000));
        let shared = third.clone();
        drop((first, second, third));
        let sum = std::thread::spawn(move || shared.iter().sum::<u64>());
        assert_eq!(sum.join().ok(), Some(3 * 20_000 * 19_999 / 2));
    }
}
