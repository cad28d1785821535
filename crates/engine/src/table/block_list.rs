//! The block list: which blocks a table has, where they lie, what separates
//! their keys, and their filters. Written by the table writer and recorded in the
//! meta extent. Of an open table only the [`super::index::Index`] made of it stays
//! in memory.
//!
//! A block's *separator* is a beginning of its first key that is greater than the
//! last key of the block before, as short as can be. A key at or behind a block's
//! separator is in that block or a later one, or nowhere. The first block's is its
//! whole first key.
//!
//! A block that *continues* the one before begins with that one's last key, in an
//! older version. No beginning of the key separates the two, so its separator is
//! the whole key together with its first entry's number.

use thermocline_model::SeqNo;
use thermocline_model::key::common_prefix_len;

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
    /// Sequence number of the first entry of a block that continues the one
    /// before; of others it is not kept.
    pub(crate) first_seq: SeqNo,
    /// Length with trailer.
    pub(crate) stored_bytes: u32,
    /// The checksum that ends the trailer.
    pub(crate) checksum: u32,
    /// Which of the table's data extents.
    pub(crate) extent: u16,
    /// [`HAS_DELETES`], [`HAS_VERSIONS`], [`CONTINUES`].
    pub(crate) flags: u8,
}

impl BlockEntry {
    /// Whether the block continues the one before.
    #[inline]
    pub(crate) fn continues(&self) -> bool {
        self.flags & CONTINUES != 0
    }
}

/// The separator of a block that begins with `first`, behind one that ends with
/// `before`: the whole key where they are the same, and where `before` is empty, as
/// there is no such block.
pub(crate) fn separator_of<'a>(before: &[u8], first: &'a [u8]) -> &'a [u8] {
    match before.is_empty() {
        true => first,
        false => &first[..first.len().min(common_prefix_len(before, first) + 1)],
    }
}

/// Blocks in key order. Arrays rather than one array of structures with boxed
/// keys: a table of 8,000 blocks is then a handful of allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockList {
    pub(crate) entries: Vec<BlockEntry>,
    separators: Vec<u8>,
    /// Ends of the separators in `separators`.
    separator_ends: Vec<u32>,
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

    /// Makes room for so many blocks more.
    pub(crate) fn reserve(&mut self, blocks: usize) {
        self.entries.reserve_exact(blocks);
        self.separator_ends.reserve_exact(blocks);
        self.filter_ends.reserve_exact(blocks);
    }

    /// Adds a block. Its filter is what was added to `filters` since the block
    /// before.
    ///
    /// # Errors
    /// In words, when the separators or filters of one table exceed 32-bit offsets.
    pub(crate) fn push(&mut self, entry: BlockEntry, separator: &[u8]) -> Result<(), String> {
        let separator_end = u32::try_from(self.separators.len() + separator.len());
        let filter_end = u32::try_from(self.filters.len());
        let (Ok(separator_end), Ok(filter_end)) = (separator_end, filter_end) else {
            return Err("table has more than 4 GiB of block keys or filters".to_string());
        };
        self.separators.extend_from_slice(separator);
        self.separator_ends.push(separator_end);
        self.filter_ends.push(filter_end);
        self.entries.push(entry);
        Ok(())
    }

    /// The separator of block `block`.
    #[inline]
    pub(crate) fn separator(&self, block: usize) -> &[u8] {
        let start = block
            .checked_sub(1)
            .map_or(0, |before| self.separator_ends[before]);
        &self.separators[start as usize..self.separator_ends[block] as usize]
    }

    /// Whether `(key, seq)` may be the first entry of block `block`.
    pub(crate) fn may_begin(&self, block: usize, key: &[u8], seq: SeqNo) -> bool {
        let (entry, separator) = (&self.entries[block], self.separator(block));
        match (block, entry.continues()) {
            (_, true) => (key, seq) == (separator, entry.first_seq),
            (0, false) => key == separator,
            (_, false) => key.starts_with(separator),
        }
    }

    /// Whether `(key, seq)` may be the last entry of block `block`, as far as the
    /// block after it says.
    pub(crate) fn may_end(&self, block: usize, key: &[u8], seq: SeqNo) -> bool {
        let Some(next) = self.entries.get(block + 1) else {
            return true;
        };
        match next.continues() {
            true => key == self.separator(block + 1) && seq > next.first_seq,
            false => key < self.separator(block + 1),
        }
    }

    /// The filter of block `block`.
    #[inline]
    pub(crate) fn filter(&self, block: usize) -> &[u64] {
        let start = block
            .checked_sub(1)
            .map_or(0, |before| self.filter_ends[before]);
        &self.filters[start as usize..self.filter_ends[block] as usize]
    }

    /// Ends of the filters in `filters`.
    pub(crate) fn filter_ends(&self) -> &[u32] {
        &self.filter_ends
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
}
