//! Writes a table.
//!
//! Entries come in order and are packed into blocks; each block goes to the
//! data object as soon as it is full. The block list and the filters stay in
//! memory until [`TableWriter::finish`] writes them to the meta object, after it has
//! persisted the data, so that a meta object that survives a crash has its data. A job that
//! writes many tables persists some at a time ([`persist_all`]).

use std::sync::Arc;

use thermocline_model::cover::{Cover, RangeDelete};
use thermocline_model::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX, common_prefix_len};
use thermocline_model::{
    Compression, Extent, KeyRange, Kind, ObjectId, SeqNo, TableId, TableMeta, TierId,
};

use super::Table;
use super::block::Block;
use super::block_build::BlockBuilder;
use super::block_cursor::BlockCursor;
use super::block_list::{
    BlockEntry, BlockList, CONTINUES, HAS_DELETES, HAS_VERSIONS, separator_of,
};
use super::compress::Compressor;
use super::filter;
use super::meta::{FILTER_BITS_MAX, Meta, range_deletes_of};
use super::trailer::{SEVERAL_VERSIONS, TRAILER_BYTES, Trailer};
use crate::cache::BlockCache;
use crate::error::{Error, Result};
use crate::store::ObjectWriter;

/// Largest payload at which a block of several entries ends.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;

/// What an entry takes beside its key and value, at most: lengths, tag, restart.
const ENTRY_OVERHEAD_BYTES: usize = 32;

/// A block ends at so many key bytes, however well they compress: its counts
/// have 32 bits.
const ENTRY_BYTES_MAX: u64 = 1 << 30;

/// How a table is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableWriterOptions {
    /// Bytes of a block before compression, its trailer included, which only a
    /// single larger entry exceeds; at most [`BLOCK_BYTES_MAX`].
    /// Smaller blocks make point reads cheaper and the block list longer.
    pub block_bytes: usize,
    /// Entries from one restart to the next, from 1 to 255. Fewer make point
    /// reads cheaper and blocks larger.
    pub restart_interval: u8,
    /// How blocks are compressed, where it saves an eighth or more.
    pub compression: Compression,
    /// Filter bits a key, at most 30; 0 for no filters.
    pub filter_bits_per_key: u32,
    /// Now, in microseconds since the Unix epoch.
    pub created_us: u64,
}

impl Default for TableWriterOptions {
    fn default() -> TableWriterOptions {
        TableWriterOptions {
            block_bytes: 4096,
            restart_interval: 4,
            compression: Compression::None,
            filter_bits_per_key: 10,
            created_us: 0,
        }
    }
}

/// What was written: a [`TableMeta`] but for where it lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenTable {
    /// Its number.
    pub id: TableId,
    /// See [`TableMeta::range`].
    pub range: KeyRange,
    /// See [`TableMeta::seq_min`].
    pub seq_min: SeqNo,
    /// See [`TableMeta::seq_max`].
    pub seq_max: SeqNo,
    /// See [`TableMeta::entries`].
    pub entries: u64,
    /// See [`TableMeta::deletes`].
    pub deletes: u64,
    /// See [`TableMeta::range_deletes`].
    pub range_deletes: u64,
    /// See [`TableMeta::raw_bytes`].
    pub raw_bytes: u64,
    /// See [`TableMeta::created_us`].
    pub created_us: u64,
    /// Length of the meta object, in bytes.
    pub meta_bytes: u64,
    /// CRC-32C of the meta object.
    pub meta_checksum: u32,
    /// Length of the data object, in bytes; 0 when there is none.
    pub data_bytes: u64,
    /// CRC-32C of the data object.
    pub data_checksum: u32,
}

impl WrittenTable {
    /// The record of the table for the manifest, its objects lying at `meta`
    /// and `data`. There is no data extent when no data was written.
    #[must_use]
    pub fn into_meta(self, meta: (TierId, ObjectId), data: (TierId, ObjectId)) -> TableMeta {
        let extent = |(tier, object), length, checksum| Extent {
            tier,
            object,
            offset: 0,
            length,
            checksum,
        };
        let data = (self.data_bytes > 0).then(|| extent(data, self.data_bytes, self.data_checksum));
        TableMeta {
            id: self.id,
            range: self.range,
            seq_min: self.seq_min,
            seq_max: self.seq_max,
            entries: self.entries,
            deletes: self.deletes,
            range_deletes: self.range_deletes,
            raw_bytes: self.raw_bytes,
            dead_bytes: 0,
            created_us: self.created_us,
            meta: extent(meta, self.meta_bytes, self.meta_checksum),
            data: data.into_iter().collect(),
        }
    }
}

/// Writes one table.
pub struct TableWriter {
    id: TableId,
    options: TableWriterOptions,
    data: Box<dyn ObjectWriter>,
    /// Gets the blocks that are [`TableWriter::keep_warm`].
    cache: Option<Arc<BlockCache>>,
    warm: bool,
    data_bytes: u64,
    data_checksum: u32,
    builder: BlockBuilder,
    compressor: Compressor,
    compressed: Vec<u8>,
    /// Hashes of the distinct keys of the block.
    hashes: Vec<u64>,
    list: BlockList,
    /// Key and tag of the last entry; an empty key before the first one.
    last_key: Vec<u8>,
    last_tag: u64,
    /// The first key of the block continues the one before.
    continues: bool,
    /// Bytes of the block's first key that separate it from the block before.
    separator_bytes: usize,
    range_deletes: Vec<RangeDelete>,
    entries: u64,
    deletes: u64,
    raw_bytes: u64,
    seq_min: u64,
    seq_max: u64,
}

impl TableWriter {
    /// A writer of table `id`, whose blocks go to `data`. Options out of their
    /// range are brought into it.
    #[must_use]
    pub fn new(
        id: TableId,
        options: TableWriterOptions,
        data: Box<dyn ObjectWriter>,
    ) -> TableWriter {
        let options = TableWriterOptions {
            block_bytes: options.block_bytes.clamp(1, BLOCK_BYTES_MAX),
            restart_interval: options.restart_interval.max(1),
            filter_bits_per_key: options.filter_bits_per_key.min(FILTER_BITS_MAX),
            ..options
        };
        TableWriter {
            id,
            options,
            data,
            cache: None,
            warm: false,
            data_bytes: 0,
            data_checksum: 0,
            builder: BlockBuilder::new(options.restart_interval),
            compressor: Compressor::new(options.compression),
            compressed: Vec::new(),
            hashes: Vec::new(),
            list: BlockList::default(),
            last_key: Vec::new(),
            last_tag: 0,
            continues: false,
            separator_bytes: 0,
            range_deletes: Vec::new(),
            entries: 0,
            deletes: 0,
            raw_bytes: 0,
            seq_min: u64::MAX,
            seq_max: 0,
        }
    }

    /// Adds an entry, which must come after all before it.
    ///
    /// # Errors
    /// `InvalidArgument` when it does not, when it is a range delete, or when
    /// key, value or number exceed their bounds; I/O errors of the data object.
    #[inline]
    pub fn add(&mut self, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8]) -> Result<()> {
        let tag = seq.0 << 1 | u64::from(kind == Kind::Put);
        let shared = common_prefix_len(&self.last_key, key);
        let same_key = shared == key.len() && shared == self.last_key.len();
        let ascends = match (self.last_key.get(shared), key.get(shared)) {
            (None, Some(_)) => true,
            (Some(last), Some(next)) => last < next,
            (None, None) => seq.0 < self.last_tag >> 1,
            (Some(_), None) => false,
        };
        let lawful = key.len().wrapping_sub(1) < KEY_BYTES_MAX
            && value.len() <= VALUE_BYTES_MAX
            && seq <= SeqNo::MAX
            && kind != Kind::RangeDelete;
        if !(ascends && lawful) {
            return Err(self.refusal(key, seq, kind, value));
        }
        if !self.builder.is_empty() && !self.has_room(key.len(), value.len()) {
            self.flush_block()?;
        }
        if self.builder.is_empty() {
            self.continues = same_key;
            self.separator_bytes = separator_of(&self.last_key, key).len();
        }
        if self.options.filter_bits_per_key != 0 && (!same_key || self.builder.is_empty()) {
            self.hashes.push(filter::key_hash(key));
        }
        self.builder.add(key, shared, tag, value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.last_tag = tag;
        Ok(())
    }

    /// The [`key_hash`](filter::key_hash) of the key added last, if filters asked for it.
    #[inline]
    pub(crate) fn last_hash(&self) -> Option<u64> {
        self.hashes.last().copied()
    }

    /// Whether an entry fits the block that is being made. A large entry gets a
    /// block of its own.
    #[inline]
    fn has_room(&self, key_bytes: usize, value_bytes: usize) -> bool {
        // Never more than wanted, trailer included: a block of 4 KiB that was a
        // few bytes longer would take the allocator's next size in the cache.
        let size = self.builder.size_bytes() + key_bytes + value_bytes;
        size + ENTRY_OVERHEAD_BYTES + TRAILER_BYTES <= self.options.block_bytes
            && self.builder.entry_bytes() < ENTRY_BYTES_MAX
    }

    #[cold]
    fn refusal(&self, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8]) -> Error {
        let what = if key.is_empty() || key.len() > KEY_BYTES_MAX {
            "key length is out of bounds"
        } else if value.len() > VALUE_BYTES_MAX {
            "value is too long"
        } else if seq > SeqNo::MAX {
            "sequence number is too large"
        } else if kind == Kind::RangeDelete {
            "range deletes do not go into blocks"
        } else {
            "entry does not come after the one before"
        };
        let after = SeqNo(self.last_tag >> 1);
        Error::invalid(format!("table {}: {what}", self.id)).expected(
            format_args!("an entry after {}@{after}", self.last_key.escape_ascii()),
            format_args!("{}@{seq}", key.escape_ascii()),
        )
    }

    fn flush_block(&mut self) -> Result<()> {
        let Some(first_tag) = self.builder.first_tag() else {
            return Ok(());
        };
        let separator = self.builder.first_key()[..self.separator_bytes].to_vec();
        let mut trailer = self.builder.finish(&self.last_key);
        if self.warm {
            self.warm_up(&trailer);
        }
        let payload = self.builder.payload();
        trailer.compression = self.compressor.compress(payload, &mut self.compressed);
        let stored = if trailer.compression == Compression::None {
            payload
        } else {
            &mut self.compressed
        };
        let checksum = trailer.append_to(stored, 0);
        self.data.append(stored)?;
        self.data_checksum = crc32c::crc32c_append(self.data_checksum, stored);
        let stored_bytes = stored.len();
        filter::build(
            &self.hashes,
            self.options.filter_bits_per_key,
            &mut self.list.filters,
        );
        let continues = self.continues.then_some(SeqNo(first_tag >> 1));
        let entry = self.count(&trailer, stored_bytes, checksum, continues);
        let pushed = self.list.push(entry, &separator);
        pushed.map_err(|what| Error::invalid(format!("table {}: {what}", self.id)))?;
        self.hashes.clear();
        self.builder.clear();
        Ok(())
    }

    /// Counts a block that was appended; its entry in the block list. If it
    /// continues the one before, `continues` is its first entry's number.
    fn count(
        &mut self,
        trailer: &Trailer,
        stored_bytes: usize,
        checksum: u32,
        continues: Option<SeqNo>,
    ) -> BlockEntry {
        let flags = if continues.is_some() { CONTINUES } else { 0 };
        let has_deletes = if trailer.deletes > 0 { HAS_DELETES } else { 0 };
        let has_versions = if trailer.flags & SEVERAL_VERSIONS != 0 {
            HAS_VERSIONS
        } else {
            0
        };
        let entry = BlockEntry {
            offset: self.data_bytes,
            first_seq: continues.unwrap_or_default(),
            // Keys and values are bounded: a block stays below 1 GiB.
            stored_bytes: stored_bytes as u32,
            checksum,
            extent: 0,
            flags: flags | has_deletes | has_versions,
        };
        self.data_bytes += stored_bytes as u64;
        self.entries += u64::from(trailer.entries);
        self.deletes += u64::from(trailer.deletes);
        self.raw_bytes += u64::from(trailer.entry_bytes);
        self.seq_min = self.seq_min.min(trailer.base_tag >> 1);
        self.seq_max = self.seq_max.max(trailer.seq_max);
        entry
    }

    /// Gives the writer the cache that readers of the table will use.
    #[must_use]
    pub fn with_cache(mut self, cache: Arc<BlockCache>) -> TableWriter {
        self.cache = Some(cache);
        self
    }

    /// Says that the block being made holds an entry that was in the cache in
    /// its former place: the block goes there too, so that a merge does not
    /// make hot keys cold.
    #[inline]
    pub fn keep_warm(&mut self) {
        self.warm = true;
    }

    fn warm_up(&mut self, trailer: &Trailer) {
        self.warm = false;
        if let Some(cache) = &self.cache {
            let payload = self.builder.payload();
            let mut buffer = cache.buffer(payload.len());
            buffer.clear();
            buffer.extend_from_slice(payload);
            if let Ok(block) = Block::of(trailer, buffer) {
                drop(cache.insert_used(self.id, self.list.len() as u32, block));
            }
        }
    }

    /// Whether blocks of `from` can be copied undecoded: their filters must be
    /// of the kind that this table has, and their entries carry their numbers.
    #[must_use]
    pub fn can_copy_from(&self, from: &Table) -> bool {
        self.options.filter_bits_per_key == from.filter_bits_per_key()
            && from.loaded_seq().is_none()
    }

    /// Adds a block of `from` as it is. `stored` is what
    /// [`Table::read_block_stored`] returned, and `content` is that decoded. The
    /// block that was being made ends. Every entry of the block must come after
    /// all before it.
    ///
    /// # Errors
    /// `InvalidArgument` when it does not or the tables' filters differ;
    /// `Corruption` when `stored` is not that block; I/O errors of the data
    /// object.
    pub(crate) fn add_block_raw(
        &mut self,
        from: &Table,
        block: usize,
        stored: &[u8],
        content: &Block,
    ) -> Result<()> {
        if !self.can_copy_from(from) {
            return Err(Error::invalid(
                "the tables' filters differ: the block cannot be copied",
            ));
        }
        let (trailer, checksum) =
            Trailer::of(stored).map_err(|what| from.block_error(block, &what))?;
        if checksum != from.index().place(block).checksum {
            return Err(from.block_error(block, "it is another block"));
        }
        let mut at = BlockCursor::default();
        let broken = || from.block_error(block, "its entries make no sense");
        at.enter_first(content).ok_or_else(broken)?;
        let (first, first_seq) = (at.key().to_vec(), SeqNo(at.tag() >> 1));
        let order = self.last_key.cmp(&first);
        let continues = order.is_eq();
        if order.is_gt() || (continues && first_seq.0 >= self.last_tag >> 1) {
            return Err(self.refusal(&first, first_seq, Kind::Put, &[]));
        }
        let separator_bytes = separator_of(&self.last_key, &first).len();
        at.enter_last(content).ok_or_else(broken)?;
        let last = at.key();
        self.flush_block()?;
        self.data.append(stored)?;
        self.data_checksum = crc32c::crc32c_append(self.data_checksum, stored);
        let continues = continues.then_some(first_seq);
        let entry = self.count(&trailer, stored.len(), checksum, continues);
        let filter = from.index().filter(block);
        self.list.filters.extend_from_slice(filter);
        let pushed = self.list.push(entry, &first[..separator_bytes]);
        pushed.map_err(|what| Error::invalid(format!("table {}: {what}", self.id)))?;
        self.last_key.clear();
        self.last_key.extend_from_slice(last);
        // The last entry's number is not known undecoded: any may follow.
        self.last_tag = u64::MAX;
        Ok(())
    }

    /// Adds the range deletes of `cover`, which may lie anywhere.
    pub fn add_range_deletes(&mut self, cover: &Cover) {
        self.range_deletes.extend(range_deletes_of(cover));
    }

    /// Bytes that the data object has or is about to have.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes + self.builder.size_bytes() as u64
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last_key.is_empty() && self.range_deletes.is_empty()
    }

    /// The last key added; empty when none was.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Deletes what was written.
    pub fn abandon(self) {
        self.data.abandon();
    }

    /// Writes the meta object and persists both. A table of range deletes only
    /// has no data object: it is deleted.
    ///
    /// # Errors
    /// `InvalidArgument` when the table is empty; I/O errors of the objects,
    /// which are then deleted.
    pub fn finish(self, meta: Box<dyn ObjectWriter>) -> Result<WrittenTable> {
        let (written, unpersisted) = self.end(meta)?;
        persist_all(vec![unpersisted])?;
        Ok(written)
    }

    /// The same without waiting for the devices: what is left to be done, after which the
    /// table may be named ([`persist_all`]).
    ///
    /// # Errors
    /// As [`TableWriter::finish`].
    pub(crate) fn end(
        mut self,
        meta: Box<dyn ObjectWriter>,
    ) -> Result<(WrittenTable, Unpersisted)> {
        let (written, meta_bytes) = match self.finish_data() {
            Ok(done) => done,
            Err(error) => {
                self.data.abandon();
                meta.abandon();
                return Err(error);
            }
        };
        let data = match written.data_bytes {
            0 => {
                self.data.abandon();
                None
            }
            _ => Some(self.data),
        };
        let unpersisted = Unpersisted {
            data,
            meta,
            meta_bytes,
        };
        Ok((written, unpersisted))
    }

    /// Writes the last block. Returns the bytes of the meta extent, too.
    fn finish_data(&mut self) -> Result<(WrittenTable, Vec<u8>)> {
        self.flush_block()?;
        // Through a cover, so that what is written is cut into fragments.
        let cover = Cover::new(&self.range_deletes);
        let range_deletes = range_deletes_of(&cover);
        for one in &range_deletes {
            self.seq_min = self.seq_min.min(one.seq.0);
            self.seq_max = self.seq_max.max(one.seq.0);
        }
        // The first block's separator is its whole first key.
        let points = (self.list.len() > 0)
            .then(|| KeyRange::inclusive(self.list.separator(0), &self.last_key));
        let covered = range_deletes.first().zip(range_deletes.last());
        let covered = covered.map(|(first, last)| KeyRange::exclusive(&first.start, &last.end));
        let range = match (points, covered) {
            (Some(points), Some(covered)) => points.hull(&covered),
            (Some(range), None) | (None, Some(range)) => range,
            (None, None) => return Err(Error::invalid(format!("table {} is empty", self.id))),
        };
        let count = range_deletes.len() as u64;
        let meta = Meta {
            id: self.id,
            created_us: self.options.created_us,
            compression: self.options.compression,
            block_bytes: self.options.block_bytes as u64,
            interval: self.options.restart_interval,
            filter_bits_per_key: self.options.filter_bits_per_key,
            entries: self.entries,
            deletes: self.deletes,
            raw_bytes: self.raw_bytes,
            seq_min: SeqNo(self.seq_min),
            seq_max: SeqNo(self.seq_max),
            range,
            extents: if self.data_bytes > 0 {
                vec![self.data_bytes]
            } else {
                Vec::new()
            },
            blocks: std::mem::take(&mut self.list),
            range_deletes,
        };
        let bytes = meta.encode();
        if self.data_bytes > 0 {
            self.data.begin_persist()?;
        }
        let written = WrittenTable {
            id: self.id,
            range: meta.range,
            seq_min: meta.seq_min,
            seq_max: meta.seq_max,
            entries: meta.entries,
            deletes: meta.deletes,
            range_deletes: count,
            raw_bytes: meta.raw_bytes,
            created_us: meta.created_us,
            meta_bytes: bytes.len() as u64,
            meta_checksum: crc32c::crc32c(&bytes),
            data_bytes: self.data_bytes,
            data_checksum: self.data_checksum,
        };
        Ok((written, bytes))
    }
}

/// What a written table lacks: its data is on the way to the device, its meta extent in
/// memory. Dropped, its objects are deleted.
pub(crate) struct Unpersisted {
    data: Option<Box<dyn ObjectWriter>>,
    meta: Box<dyn ObjectWriter>,
    meta_bytes: Vec<u8>,
}

impl Unpersisted {
    /// Bytes that it keeps in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.meta_bytes.len()
    }
}

/// Persists all data, then writes and persists all meta extents.
///
/// # Errors
/// As [`ObjectWriter::persist`]; then all objects are deleted.
pub(crate) fn persist_all(mut tables: Vec<Unpersisted>) -> Result<()> {
    let done = persist_each(&mut tables);
    if done.is_err() {
        for table in tables {
            table.data.into_iter().for_each(|data| data.abandon());
            table.meta.abandon();
        }
    }
    done
}

fn persist_each(tables: &mut [Unpersisted]) -> Result<()> {
    for table in tables.iter_mut() {
        if let Some(data) = &mut table.data {
            data.persist()?;
        }
    }
    for table in tables.iter_mut() {
        table.meta.append(&table.meta_bytes)?;
        table.meta.begin_persist()?;
    }
    tables.iter_mut().try_for_each(|table| table.meta.persist())
}

impl std::fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableWriter")
            .field("id", &self.id)
            .field("blocks", &self.list.len())
            .field("data_bytes", &self.data_bytes)
            .finish_non_exhaustive()
    }
}
