//! Looking for frames where they may be: behind a gap, to learn what had been
//! durable, and in a single file, to show it.

use std::path::Path;

use thermocline_model::SeqNo;

use super::format::{
    Damage, FRAME_ALIGNMENT_BYTES, FRAME_HEADER_BYTES, FrameHeader, MAGIC, SEGMENT_HEADER_BYTES,
    SegmentHeader, frame_seed, parse_segment,
};
use crate::store::{Environment, FileSystem, OpenHow, read_exact_at};
use crate::{Error, Result};

/// A frame header found by looking at every place a frame may begin.
pub(super) struct FoundFrame {
    pub(super) offset: usize,
    pub(super) header: FrameHeader,
    /// Whether the payload is sound too.
    pub(super) whole: bool,
}

/// The next sound frame header in `bytes` at `offset` or later.
pub(super) fn find_frame(bytes: &[u8], seed: u32, mut offset: usize) -> Option<FoundFrame> {
    while offset + FRAME_HEADER_BYTES <= bytes.len() {
        // Zeros are most of what lies behind a torn tail. The first word of a
        // header is two checksums, and both are zero once in 2^64 frames.
        if bytes[offset..offset + FRAME_ALIGNMENT_BYTES] != [0; FRAME_ALIGNMENT_BYTES]
            && let Ok(header) = FrameHeader::decode(bytes, seed, offset)
        {
            let whole = header.payload(bytes, offset).is_ok();
            return Some(FoundFrame {
                offset,
                header,
                whole,
            });
        }
        offset += FRAME_ALIGNMENT_BYTES;
    }
    None
}

impl FoundFrame {
    /// Where to look for the next one.
    pub(super) fn next_offset(&self) -> usize {
        if self.whole {
            self.header.end(self.offset)
        } else {
            self.offset + FRAME_ALIGNMENT_BYTES
        }
    }
}

/// The length of `bytes` without zeros at the end.
pub(super) fn trimmed_length(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |at| at + 1)
}

/// Reads the whole file at `path` into `buffer`.
pub(super) fn read_whole(
    file_system: &dyn FileSystem,
    path: &Path,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let fail = |error| Error::io("read log segment", path, error);
    let file = file_system.open(path, OpenHow::READ).map_err(fail)?;
    let size_bytes = file.size_bytes().map_err(fail)? as usize;
    buffer.clear();
    buffer.resize(size_bytes, 0);
    let read = read_exact_at(&*file, buffer, 0).map_err(fail)?;
    buffer.truncate(read);
    Ok(())
}

/// Something in a segment file, for [`scan_frames`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found<'a> {
    /// The segment's header.
    Header(SegmentHeader),
    /// A frame.
    Frame {
        /// Where it begins.
        offset: u64,
        /// The number of its first entry.
        first_seq: SeqNo,
        /// Its entries; 0 for the seal of a clean close.
        count: u32,
        /// Everything up to this number was durable when it was written.
        durable_seq: SeqNo,
        /// Its bytes.
        payload: &'a [u8],
    },
    /// Bytes that are neither a frame nor zeros.
    Damaged {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        length: u64,
        /// What is wrong at their beginning.
        what: &'static str,
        /// What should have been there, as far as a number can say it.
        expected: u64,
        /// What is there instead.
        found: u64,
    },
    /// Zeros: room reserved and never written, or written and lost.
    Zeros {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        length: u64,
    },
}

/// Visits everything in the segment file `path`, from front to back, whatever
/// its state: every frame, every damaged stretch, every stretch of zeros.
///
/// Frames are bound to their store. `store_id` names it where the segment's own
/// header may be damaged; without, the header's word is taken.
///
/// # Errors
/// `InvalidArgument` if the file's name is not a segment's; `Unsupported`;
/// `Corruption` if the segment is another store's or another's by name; `Io`;
/// and what `visit` returns.
pub fn scan_frames(
    environment: &Environment,
    path: &Path,
    store_id: Option<u128>,
    visit: &mut dyn FnMut(Found<'_>) -> Result<()>,
) -> Result<()> {
    let segment = path
        .file_name()
        .and_then(|name| parse_segment(name.to_str()?))
        .ok_or_else(|| Error::invalid("not the name of a log segment").at(path))?;
    let mut bytes = Vec::new();
    read_whole(&*environment.file_system, path, &mut bytes)?;
    scan_bytes(&bytes, path, segment, store_id, visit)
}

/// As [`scan_frames`], for bytes that were read already.
pub(crate) fn scan_bytes(
    bytes: &[u8],
    path: &Path,
    segment: u64,
    store_id: Option<u128>,
    visit: &mut dyn FnMut(Found<'_>) -> Result<()>,
) -> Result<()> {
    let head = &bytes[..bytes.len().min(SEGMENT_HEADER_BYTES)];
    let store_id = match SegmentHeader::decode(head, path, store_id, segment)? {
        Ok(header) => {
            visit(Found::Header(header))?;
            header.store_id
        }
        Err(damage) => {
            visit_gap(head, 0, damage, visit)?;
            store_id.unwrap_or_else(|| claimed_store(head))
        }
    };
    let seed = frame_seed(store_id, segment);
    let mut offset = head.len();
    while offset < bytes.len() {
        let (frame, gap_end) = match next_whole_frame(bytes, seed, offset) {
            Some(frame) => (Some(frame), frame.0),
            None => (None, bytes.len()),
        };
        if gap_end > offset {
            let damage = damage_at(bytes, seed, offset);
            visit_gap(&bytes[offset..gap_end], offset as u64, damage, visit)?;
        }
        let Some((at, header, payload)) = frame else {
            break;
        };
        visit(Found::Frame {
            offset: at as u64,
            first_seq: SeqNo(header.first_seq),
            count: header.count,
            durable_seq: SeqNo(header.durable_seq),
            payload,
        })?;
        offset = header.end(at);
    }
    Ok(())
}

/// The store that a damaged header names; any number if it names none.
fn claimed_store(head: &[u8]) -> u128 {
    head.get(16..32)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |bytes| u128::from_le_bytes(*bytes))
}

fn next_whole_frame(
    bytes: &[u8],
    seed: u32,
    mut offset: usize,
) -> Option<(usize, FrameHeader, &[u8])> {
    while let Some(found) = find_frame(bytes, seed, offset) {
        if let Ok(payload) = found.header.payload(bytes, found.offset) {
            return Some((found.offset, found.header, payload));
        }
        offset = found.next_offset();
    }
    None
}

fn damage_at(bytes: &[u8], seed: u32, offset: usize) -> Damage {
    FrameHeader::decode(bytes, seed, offset)
        .and_then(|header| header.payload(bytes, offset).map(drop))
        .err()
        .unwrap_or(Damage::new("no frame", 0, 0))
}

/// Visits a stretch without frames: its damaged part, then its zeros.
fn visit_gap(
    stretch: &[u8],
    offset: u64,
    damage: Damage,
    visit: &mut dyn FnMut(Found<'_>) -> Result<()>,
) -> Result<()> {
    let damaged = trimmed_length(stretch) as u64;
    if damaged > 0 {
        visit(Found::Damaged {
            offset,
            length: damaged,
            what: damage.what,
            expected: damage.expected,
            found: damage.found,
        })?;
    }
    let zeros = stretch.len() as u64 - damaged;
    if zeros > 0 {
        visit(Found::Zeros {
            offset: offset + damaged,
            length: zeros,
        })?;
    }
    Ok(())
}

/// The segment that the header at the beginning of `bytes` claims to be,
/// unchecked: for a file that does not have its name any more.
pub(crate) fn claimed_segment(bytes: &[u8]) -> Option<u64> {
    let number = bytes.get(32..40)?.first_chunk()?;
    bytes
        .starts_with(&MAGIC)
        .then(|| u64::from_le_bytes(*number))
}
