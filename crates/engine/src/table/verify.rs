//! Reads all of a table and checks all that can be checked.

use std::sync::Arc;

use thermocline_model::SeqNo;
use thermocline_model::key::compare_entries;

use super::Table;
use super::ahead::{Chunk, Span, Way};
use super::block_cursor::BlockCursor;
use super::block_list::{BlockList, HAS_DELETES, HAS_VERSIONS};
use super::filter;
use super::trailer::{SEVERAL_VERSIONS, Trailer};
use crate::error::{Error, Result};

/// Bytes read in one go.
const READ_BYTES: u64 = 1 << 20;

/// A data extent as far as it was read from its beginning.
#[derive(Clone, Copy, Default)]
struct Begun {
    bytes: u64,
    checksum: u32,
}

impl Begun {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
    }
}

/// Blocks that are read together, as each is looked at in turn: the system reads nothing ahead by
/// itself.
#[derive(Default)]
struct Along {
    chunk: Chunk,
    /// Blocks up to here are read one by one: some of them cannot be read.
    alone_until: usize,
    /// Of each extent, what its blocks have shown of it, so that it is read once.
    extents: Vec<Begun>,
}

impl Along {
    /// The stored bytes of block `index` of `table`.
    fn take(&mut self, table: &Table, index: usize) -> Result<Vec<u8>> {
        let stored = match self.take_of_several(table, index) {
            Some(stored) => {
                table.count_block_read();
                table.check_stored(index, &stored)?;
                stored
            }
            None => table.read_block_stored(index)?,
        };
        let place = table.index().place(index);
        let extent = self.extents.get_mut(usize::from(place.extent));
        if let Some(extent) = extent.filter(|extent| extent.bytes == place.offset) {
            extent.add(&stored);
        }
        Ok(stored)
    }

    /// The same, if it is read with others.
    fn take_of_several(&mut self, table: &Table, index: usize) -> Option<Vec<u8>> {
        let place = table.index().place(index);
        if self.chunk.range_of(place).is_none() {
            let span = Span::of(table.index(), index, Way::Forward, READ_BYTES as usize);
            if index < self.alone_until || !span.is_of_several() {
                return None;
            }
            if self.chunk.read(table, &span).is_err() {
                let next = span.next(table.index(), Way::Forward);
                self.alone_until = next.unwrap_or(usize::MAX);
            }
        }
        let range = self.chunk.range_of(place)?;
        Some(self.chunk.bytes[range].to_vec())
    }
}

/// What [`Table::verify`] looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableReport {
    /// Blocks.
    pub blocks: u64,
    /// Puts and deletes.
    pub entries: u64,
    /// Bytes of all extents.
    pub bytes: u64,
}

impl Table {
    /// Reads the whole table from its devices and checks every checksum, the
    /// order of all entries, every filter, and every count.
    ///
    /// # Errors
    /// `Corruption` that names the first thing wrong; I/O errors.
    pub fn verify(self: &Arc<Self>) -> Result<TableReport> {
        let mut first = None;
        let mut wrong = |error| {
            first.get_or_insert(error);
        };
        let report = self.verify_all(&mut wrong, &mut |_| {});
        first.map_or(Ok(report), Err)
    }

    /// As [`Table::verify`], but goes on behind what is wrong and gives every
    /// finding to `wrong`. Tells `done` of bytes as they are done; they make
    /// the bytes of all live blocks and of the meta extent.
    pub fn verify_all(
        self: &Arc<Self>,
        wrong: &mut dyn FnMut(Error),
        done: &mut dyn FnMut(u64),
    ) -> TableReport {
        let record = self.record();
        let list = match self.read_list() {
            Ok(list) => list,
            Err(error) => {
                wrong(error);
                // It was whole when the table was opened: nothing now says what
                // its blocks should be.
                BlockList::default()
            }
        };
        done(record.meta.length);
        let mut found = Trailer::default();
        let (mut entries, mut deletes, mut raw_bytes) = (0, 0, 0);
        let (mut seq_min, mut seq_max) = (SeqNo::MAX, SeqNo::ZERO);
        let mut damaged = vec![false; self.extents().len()];
        let mut along = Along {
            extents: vec![Begun::default(); self.extents().len()],
            ..Along::default()
        };
        for block in 0..list.len() {
            match self.verify_block_in(&list, block, &mut along) {
                Ok(trailer) => {
                    entries += u64::from(trailer.entries);
                    deletes += u64::from(trailer.deletes);
                    raw_bytes += u64::from(trailer.entry_bytes);
                    seq_min = seq_min.min(SeqNo(trailer.base_tag >> 1));
                    seq_max = seq_max.max(SeqNo(trailer.seq_max));
                    found = trailer;
                }
                Err(error) => {
                    wrong(error);
                    damaged[usize::from(list.entries[block].extent)] = true;
                }
            }
            done(u64::from(list.entries[block].stored_bytes));
        }
        if !damaged.contains(&true) && list.len() == self.block_count() {
            let counts = (entries, deletes, raw_bytes);
            if counts != (record.entries, record.deletes, record.raw_bytes) {
                wrong(
                    self.error("blocks do not have the entries recorded")
                        .expected(
                            format_args!(
                                "{} entries, {} deletes, {} bytes",
                                record.entries, record.deletes, record.raw_bytes
                            ),
                            format_args!("{entries}, {deletes}, {raw_bytes}"),
                        ),
                );
            }
            if found.entries > 0 && self.loaded_seq().is_none() && seq_min < record.seq_min {
                wrong(
                    self.error("an entry is older than recorded")
                        .expected(format_args!("{} or later", record.seq_min), seq_min),
                );
            }
            if self.loaded_seq().is_none() && seq_max > record.seq_max {
                wrong(
                    self.error("an entry is newer than recorded")
                        .expected(format_args!("{} or earlier", record.seq_max), seq_max),
                );
            }
        }
        // A damaged block has been reported, and the whole extent can add
        // nothing to that.
        for (index, &begun) in along.extents.iter().enumerate() {
            if !damaged[index]
                && let Err(error) = self.verify_extent(index, begun)
            {
                wrong(error);
            }
        }
        TableReport {
            blocks: self.block_count() as u64,
            entries,
            bytes: record.size_bytes(),
        }
    }

    /// Checks extent `index`, of which `read` was read, and reads the rest: there is some where the
    /// list of blocks could not be read, or where something lies between two of them.
    fn verify_extent(&self, index: usize, mut read: Begun) -> Result<()> {
        let (reader, extent) = &self.extents()[index];
        let mut buffer = Vec::new();
        while read.bytes < extent.length {
            buffer.resize((extent.length - read.bytes).min(READ_BYTES) as usize, 0);
            reader.read_at(extent.offset + read.bytes, &mut buffer)?;
            read.add(&buffer);
        }
        let checksum = read.checksum;
        if checksum != extent.checksum {
            return Err(self
                .error("data extent is not the one recorded")
                .at(reader.path())
                .offset(extent.offset)
                .expected(
                    format_args!("checksum {:08x}", extent.checksum),
                    format_args!("{checksum:08x}"),
                ));
        }
        Ok(())
    }

    /// Checks a block against `list`, the table's. Ensures: its entries lie between
    /// what separates it from the block before and what separates the next one from
    /// it, so that they are in order across blocks that were checked, whatever lies
    /// between these.
    pub(crate) fn verify_block(
        self: &Arc<Self>,
        list: &BlockList,
        index: usize,
    ) -> Result<Trailer> {
        let mut alone = Along {
            alone_until: index + 1,
            ..Along::default()
        };
        self.verify_block_in(list, index, &mut alone)
    }

    /// The same, with what is read along with it.
    fn verify_block_in(
        self: &Arc<Self>,
        list: &BlockList,
        index: usize,
        along: &mut Along,
    ) -> Result<Trailer> {
        let wrong = |what: &str| Err(self.block_error(index, what));
        let stored = along.take(self, index)?;
        let trailer = Trailer::of(&stored);
        let (trailer, _) = trailer.map_err(|what| self.block_error(index, &what))?;
        let decoded = super::Block::decode(&stored, Vec::new());
        let block = self.checked(index, decoded)?;
        let entry = &list.entries[index];
        let expected_flags = [
            (HAS_DELETES, trailer.deletes > 0),
            (HAS_VERSIONS, trailer.flags & SEVERAL_VERSIONS != 0),
        ];
        if expected_flags
            .iter()
            .any(|&(flag, set)| (entry.flags & flag != 0) != set)
        {
            return wrong("flags in the block list are wrong");
        }
        let mut at = BlockCursor::default();
        let mut found = Trailer::default();
        let mut before = (Vec::new(), SeqNo::ZERO);
        let mut position = at.enter_first(&block).map(|()| true);
        while let Some(true) = position {
            let (key, seq) = (at.key(), SeqNo(at.tag() >> 1));
            if found.entries == 0 && !list.may_begin(index, key, seq) {
                return wrong("it does not begin as the block list says");
            }
            if found.entries > 0 && compare_entries((&before.0, before.1), (key, seq)).is_ge() {
                return wrong("entries are out of order");
            }
            if block.find(key, seq).flatten().is_none_or(|f| f.seq != seq) {
                return wrong("a search does not find an entry");
            }
            let hash = filter::key_hash(key);
            if !list.may_contain(index, self.filter_probes(), hash) {
                return wrong("filter excludes a key");
            }
            found.entries += 1;
            found.deletes += u32::from(at.tag() & 1 == 0);
            found.seq_max = found.seq_max.max(seq.0);
            let (value_start, value_end) = at.value();
            found.entry_bytes += (key.len() + value_end - value_start) as u32;
            before.0.clear();
            before.0.extend_from_slice(key);
            before.1 = seq;
            position = at.next(&block);
        }
        if position.is_none() {
            return wrong("its entries make no sense");
        }
        let counts = |t: &Trailer| (t.entries, t.deletes, t.seq_max, t.entry_bytes);
        if counts(&found) != counts(&trailer) {
            return wrong("trailer miscounts");
        }
        if !list.may_end(index, &before.0, before.1) || !self.may_end(list, index, &before.0) {
            return wrong("it does not end as the block list says");
        }
        Ok(trailer)
    }

    /// Whether `key` may be the last key of block `index`, as far as the table's range
    /// says. If that ends with a key, and not before one that is deleted by range, this
    /// is the last key of all.
    fn may_end(&self, list: &BlockList, index: usize, key: &[u8]) -> bool {
        let range = &self.record().range;
        match range.end_inclusive && index + 1 == list.len() {
            true => *key == *range.end,
            false => !range.ends_before(key),
        }
    }
}
