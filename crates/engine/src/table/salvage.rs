//! Reading a data object without the meta extent that lists its blocks: by the
//! trailers that end them.
//!
//! A trailer says how long its payload is before compression, not how long it
//! is stored. Blocks follow one another, so a block nearly always begins where
//! the one before ended; where that one is damaged, its own trailer is a place
//! to begin, then the length of a payload that is not compressed, and at last
//! every byte of the stretch is tried against the checksum.

use thermocline_model::{SeqNo, TableId};

use super::block::Block;
use super::block_cursor::BlockCursor;
use super::meta::{META_MAGIC, Meta};
use super::trailer::{BLOCK_MAGIC, TRAILER_BYTES, Trailer};

/// The longest stretch in which every byte is tried as the start of a block:
/// the work grows with its square.
const TRIED_BYTES_MAX: usize = 64 << 10;

/// A stretch of a data object.
pub(crate) enum Piece<'a> {
    Block {
        offset: usize,
        stored: &'a [u8],
        trailer: Trailer,
    },
    /// Neither a block nor a part of one that can be told.
    Damaged { offset: usize, length: usize },
}

/// Everything in a data object, from front to back.
pub(crate) fn pieces(bytes: &[u8]) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut done = 0;
    // Ends of trailers behind `done` whose blocks are damaged.
    let mut starts = Vec::new();
    let mut from = 0;
    while let Some(end) = next_trailer_end(bytes, from) {
        from = end - 7;
        if end < done + TRAILER_BYTES {
            continue;
        }
        let Some((start, trailer)) = find_start(bytes, done, &starts, end) else {
            starts.push(end);
            continue;
        };
        if start > done {
            pieces.push(Piece::Damaged {
                offset: done,
                length: start - done,
            });
        }
        pieces.push(Piece::Block {
            offset: start,
            stored: &bytes[start..end],
            trailer,
        });
        done = end;
        starts.clear();
    }
    if done < bytes.len() {
        pieces.push(Piece::Damaged {
            offset: done,
            length: bytes.len() - done,
        });
    }
    pieces
}

/// Where the next thing ends that looks like a trailer, the magic lying at
/// `from` or later.
fn next_trailer_end(bytes: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let rest = bytes.get(from..)?;
        let at = from + rest.windows(4).position(|w| w == BLOCK_MAGIC)?;
        let end = at + 8;
        let trailer = end
            .checked_sub(TRAILER_BYTES)
            .and_then(|start| bytes.get(start..end));
        // Entries, interval, compression, and the two bytes that are zero.
        if let Some(t) = trailer
            && t[20..24] != [0; 4]
            && t[34] != 0
            && t[37] <= 2
            && t[38..40] == [0, 0]
        {
            return Some(end);
        }
        from = at + 1;
    }
}

/// Where the block begins that ends at `end`.
fn find_start(bytes: &[u8], done: usize, starts: &[usize], end: usize) -> Option<(usize, Trailer)> {
    let matches = |start: usize| {
        Trailer::of(&bytes[start..end])
            .ok()
            .map(|(t, _)| (start, t))
    };
    let last = end - TRAILER_BYTES;
    let trailer = &bytes[last..end];
    let payload = u32::from_le_bytes([trailer[28], trailer[29], trailer[30], trailer[31]]);
    let plain = last.checked_sub(payload as usize);
    let likely = std::iter::once(done)
        .chain(starts.iter().rev().copied())
        .chain(plain);
    let found = likely.filter(|&s| s >= done && s <= last).find_map(matches);
    if found.is_some() {
        return found;
    }
    let tried = done.max(last.saturating_sub(TRIED_BYTES_MAX));
    (tried..=last).find_map(matches)
}

/// An entry: its key, its tag (number and kind) and its value.
pub(crate) type Entry = (Vec<u8>, SeqNo, bool, Vec<u8>);

/// All entries of a stored block, in order: key, number, whether it is a put,
/// value.
///
/// # Errors
/// In words, when the bytes are no block or make no sense.
pub(crate) fn entries(stored: &[u8]) -> Result<Vec<Entry>, String> {
    let (block, _) = Block::decode(stored, Vec::new())?;
    let mut at = BlockCursor::default();
    let mut entries = Vec::new();
    let mut position = at.enter_first(&block).map(|()| true);
    while let Some(true) = position {
        let (start, end) = at.value();
        let value = block.bytes().get(start..end);
        let value = value.ok_or("a value lies outside of its block")?;
        let (seq, is_put) = (SeqNo(at.tag() >> 1), at.tag() & 1 == 1);
        entries.push((at.key().to_vec(), seq, is_put, value.to_vec()));
        position = at.next(&block);
    }
    match position {
        Some(_) => Ok(entries),
        None => Err("its entries make no sense".to_string()),
    }
}

/// The meta extent `bytes`, whosever it is.
///
/// # Errors
/// In words.
pub(crate) fn meta(bytes: &[u8]) -> Result<Meta, String> {
    let id = bytes.get(16..24).and_then(|b| b.first_chunk::<8>());
    let id = id.filter(|_| bytes.starts_with(&META_MAGIC));
    let id = id.ok_or("this is no table meta: its magic is missing")?;
    Meta::decode(bytes, TableId(u64::from_le_bytes(*id))).map_err(|error| match error {
        super::meta::MetaError::Wrong(what) => what,
        super::meta::MetaError::Version(version) => format!("format version {version} is unknown"),
    })
}

/// Whether `bytes` begin as a meta extent does.
pub(crate) fn is_meta(bytes: &[u8]) -> bool {
    bytes.starts_with(&META_MAGIC)
}

/// Whether `stored` is a sound block with this checksum.
pub(crate) fn is_block(stored: &[u8], checksum: u32) -> bool {
    Trailer::of(stored).is_ok_and(|(_, found)| found == checksum)
}
