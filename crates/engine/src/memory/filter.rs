//! A filter over the keys of a memtable, or of the tables of a flush: a miss costs
//! one line of memory.
//!
//! Each key sets six bits, three in each of two words of one 64-byte line, so
//! adding one is at most two atomic operations and asking touches one line.
//! At the planned twelve bits per entry about one absent key in fifty passes
//! at the fullest.
//!
//! A memtable's filter is planned for small entries, before there are any. What stands
//! before the tables of a flush is one filter, made of the keys that they have
//! ([`FilterBuilder`]): of entries of a kilobyte the filters of the memtables would take
//! ten times as much, and a read would have to ask each of them.
//!
//! Invariant: the bits of a key are set before its entry can be found.

use super::arena::prefetch;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The size of entry that the filter is planned for, key and value.
const ENTRY_BYTES: usize = 100;

/// Bits for each planned entry.
const BITS_PER_ENTRY: usize = 12;

/// Bits of a line.
const LINE_BITS: usize = 512;

/// Lines from which on a filter that is being built can be halved, and about what
/// the halving may leave.
const HALVED_LINES: usize = 16;

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
        let lines = (capacity_bytes / ENTRY_BYTES * BITS_PER_ENTRY / LINE_BITS).max(1);
        Filter::of_lines(lines)
    }

    fn of_lines(lines: usize) -> Filter {
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

    /// As [`Filter::add`], where nobody else adds.
    #[inline]
    fn add_alone(&mut self, hash: u64) {
        let line = self.line(hash);
        let bits = Bits::of(hash);
        for (&word, &mask) in bits.words.iter().zip(&bits.masks) {
            let before = line.0[word].load(Ordering::Relaxed);
            line.0[word].store(before | mask, Ordering::Relaxed);
        }
    }

    /// The filter of the same keys with half as many lines. Requires: their number is even.
    fn halved(self) -> Filter {
        let mut lines = self.lines.into_vec();
        let half = lines.len() / 2;
        for at in 0..half {
            // A line's number is a share of their count, so two neighbours become one.
            for word in 0..LINE_BITS / 64 {
                let of = |at: usize| lines[at].0[word].load(Ordering::Relaxed);
                let both = of(2 * at) | of(2 * at + 1);
                lines[at].0[word].store(both, Ordering::Relaxed);
            }
        }
        lines.truncate(half);
        Filter {
            lines: lines.into_boxed_slice(),
        }
    }
}

/// Makes a filter of keys that come in order. How many there are need not be known
/// before, only how many there are at most.
pub(crate) struct FilterBuilder {
    filter: Filter,
    keys: usize,
    last: Option<u64>,
}

impl FilterBuilder {
    /// For no more than `keys_max` keys; with fewer bits for each if there are more.
    pub(crate) fn new(keys_max: usize) -> FilterBuilder {
        let lines = lines_for(keys_max);
        let halvings = (lines / HALVED_LINES).checked_ilog2().unwrap_or(0);
        FilterBuilder {
            filter: Filter::of_lines(lines.next_multiple_of(1 << halvings)),
            keys: 0,
            last: None,
        }
    }

    /// Adds the hash of a key. Further versions of a key follow it at once.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64) {
        if self.last != Some(hash) {
            self.last = Some(hash);
            self.keys += 1;
            self.filter.add_alone(hash);
        }
    }

    /// The filter, no larger than twice what the keys ask for, but for
    /// [`HALVED_LINES`] lines or so.
    pub(crate) fn finish(self) -> Filter {
        let mut filter = self.filter;
        let least = lines_for(self.keys);
        while filter.lines.len().is_multiple_of(2) && filter.lines.len() / 2 >= least {
            filter = filter.halved();
        }
        filter
    }
}

/// Lines of a filter for so many keys.
fn lines_for(keys: usize) -> usize {
    let bits = keys.saturating_mul(BITS_PER_ENTRY);
    bits.div_ceil(LINE_BITS).max(1)
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

    #[test]
    fn a_built_filter_is_as_large_as_its_keys_ask_for() {
        for keys_max in [1, 7, 100, 1_000, 30_000, 100_000] {
            for divisor in [1, 3, 16, 1000] {
                let keys = (keys_max / divisor).max(1);
                let mut builder = FilterBuilder::new(keys_max as usize);
                for i in 0..keys {
                    // Versions of a key are added as often as there are.
                    (0..1 + i % 3).for_each(|_| builder.add(hash(i)));
                }
                let filter = builder.finish();
                assert!((0..keys).all(|i| filter.may_contain(hash(i))));
                let asked = (keys * 12).div_ceil(512) * 64;
                let bytes = filter.bytes() as u64;
                let most = (2 * asked + 128).max(34 * 64);
                assert!(
                    (asked..=most).contains(&bytes),
                    "{keys} of {keys_max} keys: {bytes} bytes, {asked} asked for"
                );
                if keys >= 1_000 {
                    let absent = keys_max..keys_max + 100_000;
                    let wrong = absent.filter(|&i| filter.may_contain(hash(i))).count();
                    assert!(wrong < 2_000, "{keys} of {keys_max} keys: {wrong} pass");
                }
            }
        }
    }

    #[test]
    fn halving_loses_no_key() {
        let mut filter = Filter::of_lines(64);
        (0..500).for_each(|i| filter.add_alone(hash(i)));
        for lines in [32, 16, 8, 4, 2, 1] {
            filter = filter.halved();
            assert_eq!(filter.bytes(), lines * 64);
            assert!((0..500).all(|i| filter.may_contain(hash(i))));
        }
    }
}
