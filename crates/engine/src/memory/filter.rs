//! A filter over the keys of a memtable: a miss costs one line of memory.
//!
//! Each key sets six bits, three in each of two words of one 64-byte line, so
//! adding one is at most two atomic operations and asking touches one line.
//! At the planned twelve bits per entry about one absent key in fifty passes
//! at the fullest.
//!
//! Invariant: the bits of a key are set before its entry can be found.

use super::arena::prefetch;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The size of entry that the filter is planned for, key and value.
const ENTRY_BYTES: usize = 100;

/// Bits for each planned entry.
const BITS_PER_ENTRY: usize = 12;

#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; 8]);

/// See the module.
pub struct Filter {
    lines: Box<[Line]>,
}

/// Where the bits of one hash lie in its line.
struct Bits {
    words: [usize; 2],
    masks: [u64; 2],
}

impl Bits {
    #[inline(always)]
    fn of(hash: u64) -> Bits {
        let mask = |shift: u32| {
            (1 << (hash >> shift & 63))
                | (1 << (hash >> (shift + 6) & 63))
                | (1 << (hash >> (shift + 12) & 63))
        };
        Bits {
            words: [(hash & 7) as usize, (hash >> 3 & 7) as usize],
            masks: [mask(6), mask(24)],
        }
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter")
            .field("lines", &self.lines.len())
            .finish()
    }
}

impl Filter {
    /// For a memtable of `capacity_bytes`.
    pub(super) fn new(capacity_bytes: usize) -> Filter {
        let lines = (capacity_bytes / ENTRY_BYTES * BITS_PER_ENTRY / 512).max(1);
        Filter {
            lines: (0..lines).map(|_| Line::default()).collect(),
        }
    }

    /// The line of `hash`: by its upper bits, those inside the line by its lower.
    #[inline(always)]
    fn line(&self, hash: u64) -> &Line {
        &self.lines[((u128::from(hash) * self.lines.len() as u128) >> 64) as usize]
    }

    /// Brings the line of `hash` near.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(self.line(hash));
    }

    /// Adds `hash`.
    #[inline]
    pub(super) fn add(&self, hash: u64) {
        let line = self.line(hash);
        let bits = Bits::of(hash);
        for (&word, &mask) in bits.words.iter().zip(&bits.masks) {
            // A new version of a key finds its bits set: no need to own the line.
            if line.0[word].load(Ordering::Relaxed) & mask != mask {
                line.0[word].fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// False when `hash` was never added.
    #[inline]
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        let line = self.line(hash);
        let bits = Bits::of(hash);
        let missing = (!line.0[bits.words[0]].load(Ordering::Relaxed) & bits.masks[0])
            | (!line.0[bits.words[1]].load(Ordering::Relaxed) & bits.masks[1]);
        missing == 0
    }

    /// Memory of the filter.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any good 64-bit mixer stands in for the hash of keys.
    fn hash(i: u64) -> u64 {
        let mut x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    #[test]
    fn every_added_key_passes_and_few_others_do() {
        let filter = Filter::new(1 << 20);
        let entries = ((1 << 20) / ENTRY_BYTES) as u64;
        for i in 0..entries {
            filter.add(hash(i));
        }
        assert!((0..entries).all(|i| filter.may_contain(hash(i))));
        let wrong = (entries..entries + 100_000)
            .filter(|&i| filter.may_contain(hash(i)))
            .count();
        assert!(wrong < 2_000, "{wrong} of 100000 absent keys pass");
    }
}
