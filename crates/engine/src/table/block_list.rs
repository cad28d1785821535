//! The block list: which blocks a table has, where they lie, their keys and
//! filters. Written by the table writer and recorded in the meta extent. Of an
//! open table only the [`super::index::Index`] made of it stays in memory.

use thermocline_model::SeqNo;

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
