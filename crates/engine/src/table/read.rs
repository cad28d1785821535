//! An open table: point reads, and the blocks for cursors.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_model::cover::Cover;
use thermocline_model::{Extent, Kind, SeqNo, TableId, TableMeta};

use super::block::{Block, BlockSlice, Found};
use super::block_list::{BlockList, CONTINUES, HAS_DELETES, HAS_VERSIONS};
use super::context::TableContext;
use super::counters::Counters;
use super::filter;
use super::index::Index;
use super::recorded::{check_place, corrupt, loaded_seq, read_meta};
use super::share::RecentShare;
use crate::cache::BlockCache;
use crate::error::{Error, Result};
use crate::store::{Advice, Buffer, ObjectReader, PendingRead};

/// The number in the entries of a bulk-loaded table, whatever their number.
pub const LOADED_SEQ: SeqNo = SeqNo(1);

/// An entry that a point read found.
#[derive(Clone, Debug)]
pub struct TableHit {
    /// Its number.
    pub seq: SeqNo,
    /// Put or delete.
    pub kind: Kind,
    /// Its value; empty for a delete.
    pub value: BlockSlice,
    /// Whether its block was read from the device, and not found in the cache.
    pub from_device: bool,
}

/// How often a table was used since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableAccesses {
    /// Point reads.
    pub probes: u64,
    /// Point reads that found their key.
    pub hits: u64,
    /// Blocks read from the device, by point reads and cursors.
    pub block_reads: u64,
    /// Point reads that a filter answered.
    pub filter_rejects: u64,
    /// Cursors made.
    pub cursors: u64,
}

const PROBES: usize = 0;
const HITS: usize = 1;
const BLOCK_READS: usize = 2;
const FILTER_REJECTS: usize = 3;
const CURSORS: usize = 4;

/// What a merge wants to know of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockInfo {
    /// Bytes on the device.
    pub stored_bytes: u32,
    /// Whether it holds deletes.
    pub has_deletes: bool,
    /// Whether it holds several versions of a key.
    pub has_versions: bool,
    /// Whether its first key is the last key of the block before.
    pub continues: bool,
}

/// An open table.
#[derive(Debug)]
pub struct Table {
    id: TableId,
    index: Index,
    probes: u32,
    extents: Vec<(Arc<dyn ObjectReader>, Extent)>,
    pub(super) context: Arc<TableContext>,
    /// Whether scans go on where they have begun.
    pub(super) going_on: RecentShare,
    accesses: Counters<5>,
    /// How many uses of a block in the cache count as one.
    uses_for_one: u32,
    /// Whether no block costs more to read, and some cost less: one that somebody asked for then
    /// counts as used when it comes. Else blocks of faster tiers, asked for so much more
    /// often, would have driven it out before it is asked for again.
    is_dearest: bool,
    filter_bits_per_key: u32,
    loaded_seq: Option<SeqNo>,
    cover: Cover,
    pub(super) record: TableMeta,
    meta_reader: Arc<dyn ObjectReader>,
    pinned_bytes: u64,
}

/// What the meta extent of a table says.
struct Known {
    loaded_seq: Option<SeqNo>,
    index: Index,
    filter_bits_per_key: u32,
    cover: Cover,
}

impl Table {
    /// Opens the table that the manifest records as `record`. The readers are
    /// those of the objects that its extents name, in order.
    ///
    /// # Errors
    /// `Corruption` when the meta extent is not the one recorded or makes no
    /// sense, `Unsupported` when its format is unknown, I/O errors.
    pub fn open(
        record: &TableMeta,
        meta_reader: Arc<dyn ObjectReader>,
        data_readers: Vec<Arc<dyn ObjectReader>>,
        context: Arc<TableContext>,
    ) -> Result<Table> {
        let meta = read_meta(record, &*meta_reader)?;
        let known = Known {
            loaded_seq: loaded_seq(record, &meta),
            index: Index::new(&meta.blocks),
            filter_bits_per_key: meta.filter_bits_per_key,
            cover: Cover::new(&meta.range_deletes),
        };
        Table::of(record, known, meta_reader, data_readers, context)
    }

    /// The same table, whose data `record` has elsewhere, where `data_readers` read it. It shares
    /// the metadata, and counts accesses anew. Requires that `record` has the meta extent that this
    /// was opened with.
    ///
    /// # Errors
    /// `Corruption` when an object is too short for its extent.
    pub(crate) fn moved(
        &self,
        record: &TableMeta,
        data_readers: Vec<Arc<dyn ObjectReader>>,
    ) -> Result<Table> {
        let known = Known {
            loaded_seq: self.loaded_seq,
            index: self.index.clone(),
            filter_bits_per_key: self.filter_bits_per_key,
            cover: self.cover.clone(),
        };
        let (meta_reader, context) = (Arc::clone(&self.meta_reader), Arc::clone(&self.context));
        Table::of(record, known, meta_reader, data_readers, context)
    }

    fn of(
        record: &TableMeta,
        known: Known,
        meta_reader: Arc<dyn ObjectReader>,
        data_readers: Vec<Arc<dyn ObjectReader>>,
        context: Arc<TableContext>,
    ) -> Result<Table> {
        if data_readers.len() != record.data.len() {
            return Err(Error::invalid(format!(
                "table {}: a reader for each data extent is needed",
                record.id
            )));
        }
        for (reader, extent) in data_readers.iter().zip(&record.data) {
            check_place(&**reader, extent).map_err(|e| e.at(reader.path()))?;
        }
        let Known {
            loaded_seq,
            index,
            filter_bits_per_key,
            cover,
        } = known;
        let pinned_bytes = (index.memory_bytes() + cover.bytes() + size_of::<Table>()) as u64;
        context
            .pinned_bytes
            .fetch_add(pinned_bytes, Ordering::Relaxed);
        let uses_for_one = |extent: &Extent| context.uses_for_one.get(extent.tier.0 as usize);
        let uses_for_one = record.data.iter().filter_map(uses_for_one).min();
        let uses_for_one = uses_for_one.copied().unwrap_or(1);
        let any_cheaper = context.uses_for_one.iter().any(|uses| *uses > 1);
        Ok(Table {
            id: record.id,
            uses_for_one,
            is_dearest: uses_for_one == 1 && any_cheaper,
            index,
            probes: filter::probes_for(filter_bits_per_key),
            extents: data_readers
                .into_iter()
                .zip(record.data.iter().copied())
                .collect(),
            going_on: context.going_on.of(record.tier()).clone(),
            context,
            accesses: Counters::default(),
            filter_bits_per_key,
            loaded_seq,
            cover,
            record: record.clone(),
            meta_reader,
            pinned_bytes,
        })
    }

    /// The newest version of `key` that `snapshot` sees, if it is in this table
    /// (range deletes are for the caller to look at, see [`Table::cover`]).
    /// `hash` is the [`super::key_hash`] of the key.
    ///
    /// # Errors
    /// `Corruption` when a block is not what was written; I/O errors.
    pub fn get(&self, key: &[u8], hash: u64, snapshot: SeqNo) -> Result<Option<TableHit>> {
        self.accesses.add(PROBES);
        if self.loaded_seq.is_some() {
            return self.get_loaded(key, hash, snapshot);
        }
        self.get_stored(key, hash, snapshot)
    }

    #[cold]
    fn get_loaded(&self, key: &[u8], hash: u64, snapshot: SeqNo) -> Result<Option<TableHit>> {
        match self.loaded_seq {
            Some(seq) if seq <= snapshot => {
                let hit = self.get_stored(key, hash, SeqNo::MAX)?;
                Ok(hit.map(|hit| TableHit { seq, ..hit }))
            }
            _ => Ok(None),
        }
    }

    #[inline]
    fn get_stored(&self, key: &[u8], hash: u64, snapshot: SeqNo) -> Result<Option<TableHit>> {
        let (until, starts_next) = self.index.blocks_until(key, snapshot);
        if !starts_next {
            let Some(block) = until.checked_sub(1) else {
                return Ok(None);
            };
            if !self.index.may_contain(block, self.probes, hash) {
                self.accesses.add(FILTER_REJECTS);
                return Ok(None);
            }
            return self.get_in(block, key, snapshot);
        }
        // The block after the candidate goes on with older versions of the key.
        if let Some(block) = until.checked_sub(1)
            && let Some(hit) = self.get_in(block, key, snapshot)?
        {
            return Ok(Some(hit));
        }
        self.get_in(until, key, snapshot)
    }

    fn get_in(&self, block: usize, key: &[u8], snapshot: SeqNo) -> Result<Option<TableHit>> {
        match self.cached(block) {
            Some(content) => self.find_in(content, block, key, snapshot, false),
            None => {
                let content = self.load_block(block, true)?;
                self.find_in(content, block, key, snapshot, true)
            }
        }
    }

    #[inline]
    pub(super) fn find_in(
        &self,
        content: Arc<Block>,
        block: usize,
        key: &[u8],
        snapshot: SeqNo,
        from_device: bool,
    ) -> Result<Option<TableHit>> {
        let found = content.find(key, snapshot);
        let found = found.ok_or_else(|| self.block_error(block, "its entries make no sense"))?;
        let Some(Found {
            seq,
            kind,
            value_start,
            value_end,
        }) = found
        else {
            return Ok(None);
        };
        self.accesses.add(HITS);
        Ok(Some(TableHit {
            seq,
            kind,
            value: BlockSlice::new(content, value_start, value_end),
            from_device,
        }))
    }

    /// Block `block`, read from the device; the cache gets it if `fill`.
    #[inline(never)]
    pub(crate) fn load_block(&self, block: usize, fill: bool) -> Result<Arc<Block>> {
        let stored = self.read_stored(block)?;
        self.decode_read(block, stored, fill)
    }

    /// Block `block`, if the cache has it.
    #[inline]
    pub(super) fn cached(&self, block: usize) -> Option<Arc<Block>> {
        let cache = &self.context.cache;
        cache.get_one_in(self.uses_for_one, self.id, block as u32)
    }

    /// Offers `content`, block `block`, to the cache, as scans do.
    pub(super) fn keep(&self, block: usize, content: Block) -> Arc<Block> {
        let cache = &self.context.cache;
        match self.is_worth_a_place(block) {
            true => cache.insert_one_in(self.uses_for_one, self.id, block as u32, content),
            false => Arc::new(content),
        }
    }

    /// Block `block` out of the bytes read for it; the cache gets it if `fill`.
    pub(super) fn decode_read(
        &self,
        block: usize,
        stored: Vec<u8>,
        fill: bool,
    ) -> Result<Arc<Block>> {
        let decoded = Block::decode_owned(stored);
        let content = self.checked(block, decoded)?;
        Ok(match fill {
            false => Arc::new(content),
            true if !self.is_dearest => self.keep(block, content),
            true if self.is_worth_a_place(block) => {
                self.context
                    .cache
                    .insert_used(self.id, block as u32, content)
            }
            true => Arc::new(content),
        })
    }

    /// The block, if its checksum and length are those of the block list.
    pub(crate) fn checked(
        &self,
        block: usize,
        decoded: Result<(Block, u32), String>,
    ) -> Result<Block> {
        let (content, checksum) = decoded.map_err(|what| self.block_error(block, &what))?;
        // The trailer, which the checksum covers, says the payload's length.
        let entry = self.index.place(block);
        if checksum != entry.checksum {
            return Err(self.block_error(block, "it is another block").expected(
                format_args!("checksum {:08x}", entry.checksum),
                format_args!("{checksum:08x}"),
            ));
        }
        Ok(content)
    }

    fn read_stored(&self, block: usize) -> Result<Vec<u8>> {
        let entry = self.index.place(block);
        // Opening checked that the extent, which the object holds, holds this.
        let mut stored = self.context.cache.buffer(entry.stored_bytes as usize);
        stored.resize(entry.stored_bytes as usize, 0);
        self.read_at(entry.extent, entry.offset, &mut stored)?;
        self.accesses.add(BLOCK_READS);
        Ok(stored)
    }

    /// Asks for bytes of an extent ahead of need, into `buffer`. None where the
    /// operating system reads ahead, or when too much is asked for already.
    pub(super) fn request(
        &self,
        extent: u16,
        offset: u64,
        length: usize,
        buffer: Buffer,
    ) -> Option<PendingRead> {
        let (reader, place) = &self.extents[usize::from(extent)];
        let readers = self.context.readers().filter(|_| reader.is_direct())?;
        readers.request(reader, place.offset + offset, length, buffer)
    }

    /// Whether its blocks can be asked for ahead of need.
    #[inline]
    pub(super) fn takes_requests(&self) -> bool {
        self.context.readers().is_some() && self.extents.iter().any(|(r, _)| r.is_direct())
    }

    /// Tells the operating system that block `block` will be read.
    pub(super) fn advise(&self, block: usize) {
        let entry = self.index.place(block);
        self.advise_bytes(entry.extent, entry.offset, u64::from(entry.stored_bytes));
    }

    /// The same of `bytes` of an extent, unless they are read past its cache.
    pub(super) fn advise_bytes(&self, extent: u16, offset: u64, bytes: u64) {
        let (reader, place) = &self.extents[usize::from(extent)];
        if !reader.is_direct() {
            reader.advise(place.offset + offset, bytes, Advice::WillNeed);
        }
    }

    /// Counts a point read, and whether a filter answered it.
    pub(super) fn count_probe(&self, rejected: bool) {
        self.accesses.add(PROBES);
        if rejected {
            self.accesses.add(FILTER_REJECTS);
        }
    }

    /// Counts blocks that a cursor read in one go.
    pub(crate) fn count_block_read(&self) {
        self.accesses.add(BLOCK_READS);
    }

    /// Counts a cursor.
    pub(crate) fn count_cursor(&self) {
        self.accesses.add(CURSORS);
    }

    /// Bytes that a scan may read in vain for a read less.
    pub(super) fn bytes_for_one_read(&self) -> u64 {
        let bytes = &self.context.bytes_for_one_read;
        let bytes = bytes.get(self.record.tier().0 as usize);
        bytes.copied().unwrap_or(u64::MAX)
    }

    /// Whether block `block` is in the cache.
    #[must_use]
    pub fn is_cached(&self, block: usize) -> bool {
        self.context.cache.contains(self.id, block as u32)
    }

    /// The stored bytes of block `block`, verified, for
    /// `TableWriter::add_block_raw`.
    ///
    /// # Errors
    /// `Corruption` when they are not that block's; I/O errors.
    pub fn read_block_stored(&self, block: usize) -> Result<Vec<u8>> {
        let stored = self.read_stored(block)?;
        self.check_stored(block, &stored)?;
        Ok(stored)
    }

    /// Whether `stored` is block `block`.
    pub(crate) fn check_stored(&self, block: usize, stored: &[u8]) -> Result<()> {
        let trailer = super::trailer::Trailer::of(stored);
        let (_, checksum) = trailer.map_err(|what| self.block_error(block, &what))?;
        let expected = self.index.place(block).checksum;
        if checksum != expected {
            return Err(self.block_error(block, "it is another block").expected(
                format_args!("checksum {expected:08x}"),
                format_args!("{checksum:08x}"),
            ));
        }
        Ok(())
    }

    /// The error that says `what` is wrong with block `block`.
    pub(crate) fn block_error(&self, block: usize, what: &str) -> Error {
        let entry = self.index.place(block);
        let (reader, place) = &self.extents[usize::from(entry.extent)];
        corrupt(self.id, &format!("block {block}: {what}"), reader.path())
            .offset(place.offset + entry.offset)
    }

    /// Where `(key, seq)` lies among the numbers stored in the entries.
    #[inline]
    pub(crate) fn stored_seq(&self, seq: SeqNo) -> SeqNo {
        match self.loaded_seq {
            None => seq,
            Some(loaded) if seq >= loaded => SeqNo::MAX,
            Some(_) => SeqNo::ZERO,
        }
    }

    /// The number of every entry, if it is not the one stored.
    #[inline]
    pub(crate) fn loaded_seq(&self) -> Option<SeqNo> {
        self.loaded_seq
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> TableId {
        self.id
    }

    /// What the manifest records of it.
    #[must_use]
    pub fn record(&self) -> &TableMeta {
        &self.record
    }

    /// Its range deletes.
    #[must_use]
    pub fn cover(&self) -> &Cover {
        &self.cover
    }

    /// The number of its blocks.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.index.len()
    }

    /// What is known of block `block` without reading it. Requires: there is
    /// one.
    #[must_use]
    pub fn block_info(&self, block: usize) -> BlockInfo {
        let entry = self.index.place(block);
        BlockInfo {
            stored_bytes: entry.stored_bytes,
            has_deletes: entry.flags & HAS_DELETES != 0,
            has_versions: entry.flags & HAS_VERSIONS != 0,
            continues: entry.flags & CONTINUES != 0,
        }
    }

    /// Filter bits a key.
    #[must_use]
    pub fn filter_bits_per_key(&self) -> u32 {
        self.filter_bits_per_key
    }

    /// Data bytes before `key`, to the accuracy of a block.
    #[must_use]
    pub fn approximate_offset(&self, key: &[u8]) -> u64 {
        let (until, _) = self.index.blocks_until(key, SeqNo::MAX);
        let before = (0..until.saturating_sub(1)).map(|block| self.index.place(block));
        before.map(|place| u64::from(place.stored_bytes)).sum()
    }

    /// The block in which `key` lies if it is here at all, or the one before.
    #[inline]
    #[must_use]
    pub fn search_index(&self, key: &[u8]) -> usize {
        self.index
            .blocks_until(key, SeqNo::ZERO)
            .0
            .saturating_sub(1)
    }

    /// How often it was used since it was opened.
    #[must_use]
    pub fn accesses(&self) -> TableAccesses {
        TableAccesses {
            probes: self.accesses.sum(PROBES),
            hits: self.accesses.sum(HITS),
            block_reads: self.accesses.sum(BLOCK_READS),
            filter_rejects: self.accesses.sum(FILTER_REJECTS),
            cursors: self.accesses.sum(CURSORS),
        }
    }

    /// Bytes of its index, filters and range deletes in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    pub(crate) fn cache(&self) -> &BlockCache {
        &self.context.cache
    }

    pub(crate) fn filter_probes(&self) -> u32 {
        self.probes
    }

    pub(crate) fn extents(&self) -> &[(Arc<dyn ObjectReader>, Extent)] {
        &self.extents
    }

    /// The block list, read anew: of an open table there is only an index.
    ///
    /// # Errors
    /// `Corruption` when the meta extent is not the one recorded; I/O errors.
    pub(crate) fn read_list(&self) -> Result<BlockList> {
        let meta = read_meta(&self.record, &*self.meta_reader)?;
        Ok(meta.blocks)
    }

    /// The error that says `what` is wrong with the table.
    pub(crate) fn error(&self, what: &str) -> Error {
        corrupt(self.id, what, self.meta_reader.path())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.context
            .pinned_bytes
            .fetch_sub(self.pinned_bytes, Ordering::Relaxed);
    }
}
