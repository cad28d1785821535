//! The block list: which blocks a table has, where they lie, their keys and
//! filters. Written by the table writer, recorded in the meta extent, pinned in
//! memory while a table is open.

use std::hint::select_unpredictable;

use thermocline_model::SeqNo;
use thermocline_model::key::{Prefix, load_be};

use super::block::word_after;
use super::filter;

/// A block holds deletes.
pub(crate) const HAS_DELETES: u8 = 1;
/// A block holds several versions of a key.
pub(crate) const HAS_VERSIONS: u8 = 2;
/// The first key of a block is the last key of the block before.
pub(crate) const CONTINUES: u8 = 4;
/// All flags there are.
pub(crate) const BLOCK_FLAGS: u8 = HAS_DELETES | HAS_VERSIONS | CONTINUES;

/// Where a block lies and what a merge wants to know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlockEntry {
    /// First byte within the extent.
    pub(crate) offset: u64,
    /// Sequence number of the first entry.
    pub(crate) first_seq: SeqNo,
    /// Largest sequence number.
    pub(crate) seq_max: SeqNo,
    /// Length with trailer.
    pub(crate) stored_bytes: u32,
    /// Length of the payload before compression.
    pub(crate) payload_bytes: u32,
    /// The checksum that ends the trailer.
    pub(crate) checksum: u32,
    /// Which of the table's data extents.
    pub(crate) extent: u16,
    /// [`HAS_DELETES`], [`HAS_VERSIONS`], [`CONTINUES`].
    pub(crate) flags: u8,
}

/// Blocks in key order. Arrays rather than one array of structures with boxed
/// keys: a table of 8,000 blocks is then a handful of allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockList {
    pub(crate) entries: Vec<BlockEntry>,
    /// First and last key of each block, in turn.
    keys: Vec<u8>,
    /// Ends of the keys in `keys`: two a block.
    key_ends: Vec<u32>,
    /// The filters of all blocks.
    pub(crate) filters: Vec<u64>,
    /// Ends of the filters in `filters`.
    filter_ends: Vec<u32>,
}

impl BlockList {
    /// The number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a block. Its filter is what was added to `filters` since the block
    /// before.
    ///
    /// # Errors
    /// In words, when the keys or filters of one table exceed 32-bit offsets.
    pub(crate) fn push(
        &mut self,
        entry: BlockEntry,
        first: &[u8],
        last: &[u8],
    ) -> Result<(), String> {
        let first_end = u32::try_from(self.keys.len() + first.len());
        let last_end = u32::try_from(self.keys.len() + first.len() + last.len());
        let filter_end = u32::try_from(self.filters.len());
        let (Ok(first_end), Ok(last_end), Ok(filter_end)) = (first_end, last_end, filter_end)
        else {
            return Err("table has more than 4 GiB of block keys or filters".to_string());
        };
        self.keys.extend_from_slice(first);
        self.keys.extend_from_slice(last);
        self.key_ends.extend([first_end, last_end]);
        self.filter_ends.push(filter_end);
        self.entries.push(entry);
        Ok(())
    }

    fn key(&self, i: usize) -> &[u8] {
        let start = i.checked_sub(1).map_or(0, |before| self.key_ends[before]);
        &self.keys[start as usize..self.key_ends[i] as usize]
    }

    /// The first key of block `block`.
    #[inline]
    pub(crate) fn first_key(&self, block: usize) -> &[u8] {
        self.key(2 * block)
    }

    /// The last key of block `block`.
    pub(crate) fn last_key(&self, block: usize) -> &[u8] {
        self.key(2 * block + 1)
    }

    /// The filter of block `block`.
    #[inline]
    pub(crate) fn filter(&self, block: usize) -> &[u64] {
        let start = block
            .checked_sub(1)
            .map_or(0, |before| self.filter_ends[before]);
        &self.filters[start as usize..self.filter_ends[block] as usize]
    }

    /// Words of the filter of block `block`.
    pub(crate) fn filter_words(&self, block: usize) -> usize {
        self.filter(block).len()
    }

    /// Gives the blocks the filters in `filters`, of the lengths in `words`.
    pub(crate) fn set_filters(&mut self, filters: Vec<u64>, ends: Vec<u32>) {
        debug_assert_eq!(ends.len(), self.len());
        self.filters = filters;
        self.filter_ends = ends;
    }

    /// Whether block `block` may hold a key with this hash.
    #[inline]
    pub(crate) fn may_contain(&self, block: usize, probes: u32, hash: u64) -> bool {
        filter::may_contain(self.filter(block), probes, hash)
    }

    fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<BlockEntry>()
            + self.keys.capacity()
            + self.key_ends.capacity() * 4
            + self.filters.capacity() * 8
            + self.filter_ends.capacity() * 4
    }

    pub(crate) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.keys.shrink_to_fit();
        self.key_ends.shrink_to_fit();
        self.filters.shrink_to_fit();
        self.filter_ends.shrink_to_fit();
    }
}

/// Blocks a sample of the index stands for: two cache lines of prefixes.
const SAMPLE_BLOCKS: usize = 16;

/// A block list with what is needed to search it fast: one word of each first
/// key, and every sixteenth of these words once more. The samples of 8,000
/// blocks take 4 KiB and stay in the nearest cache; below them a search looks
/// at two lines. Keys are compared only where words tie.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) list: BlockList,
    prefix: Prefix,
    prefixes: Vec<u64>,
    samples: Vec<u64>,
}

impl Index {
    /// The index of `list`.
    pub(crate) fn new(mut list: BlockList) -> Index {
        list.shrink();
        let blocks = list.len();
        let prefix = match blocks {
            0 => Prefix::default(),
            _ => Prefix::between(list.first_key(0), list.last_key(blocks - 1)),
        };
        let of = |block: usize| {
            load_be(
                list.first_key(block)
                    .get(prefix.shared().len()..)
                    .unwrap_or(&[]),
            )
        };
        let prefixes: Vec<u64> = (0..blocks).map(of).collect();
        let samples = prefixes.iter().copied().step_by(SAMPLE_BLOCKS).collect();
        Index {
            list,
            prefix,
            prefixes,
            samples,
        }
    }

    /// Bytes that the index takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.list.memory_bytes() + (self.prefixes.capacity() + self.samples.capacity()) * 8
    }

    /// The number of blocks whose first entry is at or before `(key, seq)`, and
    /// whether the first key of the block after those is `key`.
    #[inline]
    pub(crate) fn blocks_until(&self, key: &[u8], seq: SeqNo) -> (usize, bool) {
        let shared = self.prefix.shared();
        let word = if key.len() >= shared.len() && key[..shared.len()] == *shared {
            word_after(key, shared.len())
        } else {
            self.prefix.of(key)
        };
        let sample = below(&self.samples, word);
        let start = sample.saturating_sub(1) * SAMPLE_BLOCKS;
        let end = (start + SAMPLE_BLOCKS).min(self.prefixes.len());
        // The samples before `sample` are smaller than the word, the one at it
        // is not; so is the first block's word at `end`.
        let first = start + below(&self.prefixes[start..end], word);
        if self.prefixes.get(first) != Some(&word) {
            return (first, false);
        }
        self.blocks_until_among_ties(first, word, key, seq)
    }

    #[inline(never)]
    fn blocks_until_among_ties(
        &self,
        first: usize,
        word: u64,
        key: &[u8],
        seq: SeqNo,
    ) -> (usize, bool) {
        let ties = self.prefixes[first..].partition_point(|&p| p == word);
        let mut low = first;
        let mut high = first + ties;
        while low < high {
            let middle = low.midpoint(high);
            let order = self.list.first_key(middle).cmp(key);
            // Within a key, newer entries come first.
            let order = order.then_with(|| seq.cmp(&self.list.entries[middle].first_seq));
            if order.is_le() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let starts_next = low < first + ties && self.list.first_key(low) == key;
        (low, starts_next)
    }
}

/// How many of the ascending `words` are below `word`.
#[inline(always)]
fn below(words: &[u64], word: u64) -> usize {
    let mut first = 0;
    let mut size = words.len();
    while size > 1 {
        let half = size / 2;
        // Where a key lies cannot be predicted: no branch.
        let is_below = words[first + half - 1] < word;
        first = select_unpredictable(is_below, first + half, first);
        size -= half;
    }
    first + usize::from(words.get(first).is_some_and(|&w| w < word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_agrees_with_partition_point() {
        for length in 0..40u64 {
            let words: Vec<u64> = (0..length).map(|i| i / 2 * 3).collect();
            for word in 0..70 {
                assert_eq!(below(&words, word), words.partition_point(|&w| w < word));
            }
        }
    }

    #[test]
    fn the_index_finds_the_block_as_a_scan_of_all_first_entries_does() {
        let mut list = BlockList::default();
        let mut firsts = Vec::new();
        for i in 0..500u64 {
            let key = format!("common/{:03}/{:04}", i / 90, i / 3);
            let seq = SeqNo(100 - i % 3 * 10);
            let entry = BlockEntry {
                first_seq: seq,
                ..BlockEntry::default()
            };
            list.push(entry, key.as_bytes(), key.as_bytes()).unwrap();
            firsts.push((key.into_bytes(), seq));
        }
        let index = Index::new(list);
        let mut keys: Vec<Vec<u8>> = firsts.iter().map(|f| f.0.clone()).collect();
        keys.extend(firsts.iter().map(|f| [f.0.as_slice(), b"x"].concat()));
        keys.extend([
            b"".to_vec(),
            b"a".to_vec(),
            b"z".to_vec(),
            b"common/".to_vec(),
        ]);
        for key in keys {
            for seq in [0, 80, 85, 90, 95, 100, 101].map(SeqNo) {
                let expected = firsts.partition_point(|f| {
                    thermocline_model::key::compare_entries((&f.0, f.1), (&key, seq)).is_le()
                });
                let tie = firsts.get(expected).is_some_and(|f| f.0 == key);
                assert_eq!(index.blocks_until(&key, seq), (expected, tie));
            }
        }
    }
}
