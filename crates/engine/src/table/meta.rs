//! The bytes of a meta extent: `docs/formats/table.md` describes them.

mod blocks;
mod v1;

use thermocline_model::codec::{Reader, Writer};
use thermocline_model::cover::{Cover, RangeDelete};
use thermocline_model::{Compression, KeyRange, SeqNo, TableId};

use super::block_list::BlockList;
use super::filter;
use super::trailer::masked;

/// Begins every meta extent.
pub(crate) const META_MAGIC: [u8; 8] = *b"tclmeta\n";

/// The version of the format that is written, described in
/// `docs/formats/table.md`.
pub(crate) const META_VERSION: u32 = 2;

/// Bytes before the body: magic, version, checksum, table id, body length.
pub(crate) const HEADER_BYTES: usize = 32;

/// Most filter bits a key.
pub(crate) const FILTER_BITS_MAX: u32 = 30;

/// What a meta extent says.
#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) id: TableId,
    pub(crate) created_us: u64,
    pub(crate) compression: Compression,
    pub(crate) block_bytes: u64,
    pub(crate) interval: u8,
    pub(crate) filter_bits_per_key: u32,
    pub(crate) entries: u64,
    pub(crate) deletes: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) seq_min: SeqNo,
    pub(crate) seq_max: SeqNo,
    pub(crate) range: KeyRange,
    /// Length of each data extent.
    pub(crate) extents: Vec<u64>,
    pub(crate) blocks: BlockList,
    pub(crate) range_deletes: Vec<RangeDelete>,
}

/// The range deletes of `cover`: one for each fragment and number.
pub(crate) fn range_deletes_of(cover: &Cover) -> Vec<RangeDelete> {
    let mut range_deletes = Vec::new();
    for (start, end, seqs) in cover.fragments() {
        range_deletes.extend(seqs.iter().map(|&seq| RangeDelete {
            start: start.into(),
            end: end.into(),
            seq,
        }));
    }
    range_deletes
}

impl Meta {
    /// The bytes of the extent.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.number(self.created_us);
        w.byte(self.compression as u8);
        w.number(self.block_bytes);
        w.byte(self.interval);
        w.number(u64::from(self.filter_bits_per_key));
        w.number(self.entries);
        w.number(self.deletes);
        w.number(self.raw_bytes);
        w.number(self.seq_min.0);
        w.number(self.seq_max.0);
        w.bytes(&self.range.start);
        w.bytes(&self.range.end);
        w.byte(u8::from(self.range.end_inclusive));
        w.length(self.extents.len());
        for &length in &self.extents {
            w.number(length);
        }
        blocks::encode(&self.blocks, &mut w);
        for word in &self.blocks.filters {
            w.raw(&word.to_le_bytes());
        }
        w.length(self.range_deletes.len());
        for one in &self.range_deletes {
            w.bytes(&one.start);
            w.bytes(&one.end);
            w.number(one.seq.0);
        }
        let body = w.finish();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend_from_slice(&META_MAGIC);
        bytes.extend_from_slice(&META_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.id.0.to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        let checksum = checksum(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// What the extent `bytes` of table `id` says. Ensures: keys ascend, places
    /// lie within the extents, counts and lengths fit each other.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn decode(bytes: &[u8], id: TableId) -> Result<Meta, MetaError> {
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(MetaError::wrong(format!(
                "meta of {} bytes has no header",
                bytes.len()
            )));
        };
        if header[..8] != META_MAGIC {
            return Err(MetaError::wrong(
                "this is no table meta: its magic is missing",
            ));
        }
        let u32_at = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let version = u32_at(8);
        let found = u32_at(12);
        let computed = checksum(bytes);
        if found != computed {
            return Err(MetaError::wrong(format!(
                "meta checksum is {found:08x}, its bytes have {computed:08x}"
            )));
        }
        let decode_blocks = match version {
            1 => v1::decode,
            META_VERSION => blocks::decode,
            _ => return Err(MetaError::Version(version)),
        };
        if u64_at(16) != id.0 {
            return Err(MetaError::wrong(format!(
                "meta is that of table {}, not of table {id}",
                TableId(u64_at(16))
            )));
        }
        if u64_at(24) != body.len() as u64 {
            return Err(MetaError::wrong(format!(
                "meta body has {} bytes, its header says {}",
                body.len(),
                u64_at(24)
            )));
        }
        decode_body(body, id, decode_blocks).map_err(MetaError::Wrong)
    }
}

/// Why a meta extent cannot be used.
#[derive(Debug)]
pub(crate) enum MetaError {
    /// It is not what was written.
    Wrong(String),
    /// It is of a format version that we do not know.
    Version(u32),
}

impl MetaError {
    fn wrong(message: impl Into<String>) -> MetaError {
        MetaError::Wrong(message.into())
    }
}

/// The checksum of a meta extent: all of it but the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    let before = crc32c::crc32c(&bytes[..12]);
    masked(crc32c::crc32c_append(before, &bytes[16..]))
}

/// Reads a block list into a meta that has all that comes before it. Returns the
/// filter length of each block, in words.
type DecodeBlocks = fn(&mut Reader<'_>, &mut Meta) -> Result<Vec<usize>, String>;

fn decode_body(body: &[u8], id: TableId, decode_blocks: DecodeBlocks) -> Result<Meta, String> {
    let r = &mut Reader::new(body);
    let created_us = r.number()?;
    let compression = r.byte()?;
    let compression = Compression::from_byte(compression)
        .ok_or_else(|| format!("compression {compression} is unknown"))?;
    let block_bytes = r.number()?;
    let interval = r.byte()?;
    let filter_bits_per_key = r.number32()?;
    if filter_bits_per_key > FILTER_BITS_MAX {
        return Err(format!("{filter_bits_per_key} filter bits a key"));
    }
    let entries = r.number()?;
    let deletes = r.number()?;
    let raw_bytes = r.number()?;
    let seq_min = SeqNo(r.number()?);
    let seq_max = SeqNo(r.number()?);
    let range = KeyRange {
        start: r.bytes()?.into(),
        end: r.bytes()?.into(),
        end_inclusive: r.flag()?,
    };
    if !range.is_valid() || seq_min > seq_max || deletes > entries {
        return Err("range, sequence numbers or counts contradict themselves".to_string());
    }
    let mut extents = Vec::new();
    for _ in 0..r.length()? {
        extents.push(r.number()?);
    }
    let mut meta = Meta {
        id,
        created_us,
        compression,
        block_bytes,
        interval,
        filter_bits_per_key,
        entries,
        deletes,
        raw_bytes,
        seq_min,
        seq_max,
        range,
        extents,
        blocks: BlockList::default(),
        range_deletes: Vec::new(),
    };
    let words = decode_blocks(r, &mut meta)?;
    decode_filters(r, &mut meta, &words)?;
    for _ in 0..r.length()? {
        let one = RangeDelete {
            start: r.bytes()?.into(),
            end: r.bytes()?.into(),
            seq: SeqNo(r.number()?),
        };
        let within =
            meta.range.start <= one.start && one.start < one.end && one.end <= meta.range.end;
        if !within || one.seq < seq_min || one.seq > seq_max {
            return Err("range delete lies outside of the table".to_string());
        }
        meta.range_deletes.push(one);
    }
    r.end()?;
    if meta.blocks.len() == 0 && (entries != 0 || meta.range_deletes.is_empty()) {
        return Err("table is empty".to_string());
    }
    Ok(meta)
}

fn decode_filters(r: &mut Reader<'_>, meta: &mut Meta, words: &[usize]) -> Result<(), String> {
    let mut ends = Vec::with_capacity(words.len());
    let mut end = 0usize;
    for &count in words {
        if !filter::is_lawful_length(count) {
            return Err(format!("filter of {count} words"));
        }
        end = end.checked_add(count).ok_or("filters are too long")?;
        ends.push(u32::try_from(end).map_err(|_| "filters exceed 32 GiB")?);
    }
    let bytes = r.raw(end.checked_mul(8).ok_or("filters are too long")?)?;
    let filters = bytes.as_chunks::<8>().0.iter();
    let filters = filters.map(|w| u64::from_le_bytes(*w)).collect();
    meta.blocks.set_filters(filters, ends);
    Ok(())
}
