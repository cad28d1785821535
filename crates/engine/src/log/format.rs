//! The bytes of a log: segment headers and frames. See docs/formats/log.md.

use std::path::{Path, PathBuf};

use thermocline_model::SeqNo;

use crate::store::{Advice, File, read_exact_at};
use crate::store::{is_given_id, parse_id};
use crate::{Error, ErrorKind, Result};

/// Bytes of a segment's header; the first frame follows.
pub const SEGMENT_HEADER_BYTES: usize = 96;

/// Bytes of a frame's header; the payload follows.
pub const FRAME_HEADER_BYTES: usize = 32;

/// Largest payload of one frame: just under 2 GiB.
pub const PAYLOAD_BYTES_MAX: usize = (1 << 31) - 1;

/// Frames begin at multiples of this.
pub(super) const FRAME_ALIGNMENT_BYTES: usize = 8;

pub(super) const MAGIC: [u8; 8] = *b"THC_LOG\n";
const FORMAT_VERSION: u32 = 1;

/// What a segment says of itself and of the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The store the log belongs to.
    pub store_id: u128,
    /// This segment's number.
    pub segment: u64,
    /// The first number of the first frame.
    pub first_seq: u64,
    /// The segment before this one; 0 if there was none.
    pub previous_segment: u64,
    /// The first number of the segment before.
    pub previous_first_seq: u64,
    /// The last valid number before this segment.
    pub previous_last_seq: u64,
    /// Everything up to this number was durable when this was written.
    pub durable_seq: u64,
}

/// What a frame says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameHeader {
    pub(super) payload_crc: u32,
    pub(super) payload_bytes: u32,
    /// Entries in the payload; 0 for a seal.
    pub(super) count: u32,
    pub(super) first_seq: u64,
    /// Everything up to this number was durable when this was written.
    pub(super) durable_seq: u64,
}

/// Why some bytes are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Damage {
    pub(super) what: &'static str,
    pub(super) expected: u64,
    pub(super) found: u64,
}

impl Damage {
    pub(super) fn new(what: &'static str, expected: u64, found: u64) -> Damage {
        Damage {
            what,
            expected,
            found,
        }
    }
}

/// The file of a segment.
pub(crate) fn segment_path(directory: &Path, segment: u64) -> PathBuf {
    directory.join(format!("{segment:06}.log"))
}

/// The segment whose file has this name.
pub(crate) fn parse_segment(file_name: &str) -> Option<u64> {
    parse_id(file_name.strip_suffix(".log")?).filter(|&id| id > 0 && is_given_id(id))
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store_id.to_le_bytes());
        let numbers = [
            self.segment,
            self.first_seq,
            self.previous_segment,
            self.previous_first_seq,
            self.previous_last_seq,
            self.durable_seq,
        ];
        for (place, number) in bytes[32..80].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let crc = header_checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of the segment in `file`. What is wrong is read twice: a bit
    /// may have been flipped on the way from the device, and what the header says
    /// decides what is dropped.
    ///
    /// # Errors
    /// As [`SegmentHeader::decode`], and `Io`.
    pub(super) fn read(
        file: &dyn File,
        path: &Path,
        store_id: u128,
        segment: u64,
    ) -> Result<Result<SegmentHeader, Damage>> {
        let read = || {
            let mut bytes = [0; SEGMENT_HEADER_BYTES];
            let read = read_exact_at(file, &mut bytes, 0);
            let read = read.map_err(|error| Error::io("read log segment", path, error))?;
            SegmentHeader::decode(&bytes[..read], path, Some(store_id), segment)
        };
        match read() {
            Ok(Ok(header)) => Ok(Ok(header)),
            Err(error) if error.kind() == ErrorKind::Io => Err(error),
            _ => {
                file.advise(0, 0, Advice::DontNeed);
                read()
            }
        }
    }

    /// Reads the header at the front of a segment's bytes. The inner error is
    /// damage, as a crash leaves it; the outer one is a sound header that has
    /// no business here.
    pub(super) fn decode(
        bytes: &[u8],
        path: &Path,
        store_id: Option<u128>,
        segment: u64,
    ) -> Result<Result<SegmentHeader, Damage>> {
        let Some(bytes) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else {
            let (expected, found) = (SEGMENT_HEADER_BYTES as u64, bytes.len() as u64);
            return Ok(Err(Damage::new(
                "segment header cut short",
                expected,
                found,
            )));
        };
        let (magic, expected) = (u64_at(bytes, 0), u64::from_le_bytes(MAGIC));
        if magic != expected {
            return Ok(Err(Damage::new("no segment header", expected, magic)));
        }
        let (stored, computed) = (u32_at(bytes, 12), header_checksum(bytes));
        if stored != computed {
            let what = "wrong checksum of the segment header";
            return Ok(Err(Damage::new(what, stored.into(), computed.into())));
        }
        let version = u32_at(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(Error::new(ErrorKind::Unsupported, "log segment")
                .at(path)
                .expected(
                    format_args!("format version {FORMAT_VERSION}"),
                    format_args!("version {version}"),
                ));
        }
        let header = SegmentHeader {
            store_id: u128::from(u64_at(bytes, 16)) | u128::from(u64_at(bytes, 24)) << 64,
            segment: u64_at(bytes, 32),
            first_seq: u64_at(bytes, 40),
            previous_segment: u64_at(bytes, 48),
            previous_first_seq: u64_at(bytes, 56),
            previous_last_seq: u64_at(bytes, 64),
            durable_seq: u64_at(bytes, 72),
        };
        if let Some(store_id) = store_id
            && header.store_id != store_id
        {
            return Err(Error::corruption("log segment of another store")
                .at(path)
                .offset(16)
                .expected(
                    format_args!("store {store_id:032x}"),
                    format_args!("store {:032x}", header.store_id),
                ));
        }
        if header.segment != segment {
            // A file that a crash left with its size and the blocks of an
            // older one; whether anything durable is missing, others say.
            let what = "the header of another segment";
            return Ok(Err(Damage::new(what, segment, header.segment)));
        }
        if header.durable_seq > header.previous_last_seq {
            let (last, found) = (header.previous_last_seq, header.durable_seq);
            let what = "segment header that calls durable what is not before it";
            return Ok(Err(Damage::new(what, last, found)));
        }
        if header.first_seq <= header.previous_last_seq {
            let (last, found) = (header.previous_last_seq, header.first_seq);
            let what = "segment header that goes back behind its last number";
            return Ok(Err(Damage::new(what, last.saturating_add(1), found)));
        }
        if header.first_seq > SeqNo::MAX.0 {
            let what = "segment header beyond the last number there is";
            return Ok(Err(Damage::new(what, SeqNo::MAX.0, header.first_seq)));
        }
        Ok(Ok(header))
    }
}

/// CRC-32C of everything but the four bytes it is stored in.
fn header_checksum(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

/// The state of a frame header's checksum after store and segment: the part
/// that is the same for all frames of a segment.
pub(super) fn frame_seed(store_id: u128, segment: u64) -> u32 {
    let store = crc32c::crc32c(&store_id.to_le_bytes());
    crc32c::crc32c_append(store, &segment.to_le_bytes())
}

/// Bytes of a frame with its padding.
pub(super) fn frame_bytes(payload_bytes: usize) -> u64 {
    (FRAME_HEADER_BYTES + payload_bytes).next_multiple_of(FRAME_ALIGNMENT_BYTES) as u64
}

impl FrameHeader {
    /// The header of the frame at `offset` in the segment of `seed`.
    #[inline]
    pub(super) fn encode(&self, seed: u32, offset: u64) -> [u8; FRAME_HEADER_BYTES] {
        // The checksum covers the offset and then the fields; so the offset is
        // put before them, and its upper half gives way to the checksum.
        let mut bytes = [0; 4 + FRAME_HEADER_BYTES];
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.count.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.first_seq.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.durable_seq.to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        *bytes.last_chunk().expect("36 bytes have a last 32")
    }

    /// The header at `offset` of a segment's `bytes`, if there is a sound one.
    pub(super) fn decode(bytes: &[u8], seed: u32, offset: usize) -> Result<FrameHeader, Damage> {
        let rest = bytes.get(offset..).unwrap_or_default();
        let Some(head) = rest.first_chunk::<FRAME_HEADER_BYTES>() else {
            let (expected, found) = (FRAME_HEADER_BYTES as u64, rest.len() as u64);
            return Err(Damage::new("frame header cut short", expected, found));
        };
        let bound = crc32c::crc32c_append(seed, &(offset as u64).to_le_bytes());
        let computed = crc32c::crc32c_append(bound, &head[4..]);
        let stored = u32_at(head, 0);
        if stored != computed {
            let what = "wrong checksum of a frame header";
            return Err(Damage::new(what, stored.into(), computed.into()));
        }
        let header = FrameHeader {
            payload_crc: u32_at(head, 4),
            payload_bytes: u32_at(head, 8),
            count: u32_at(head, 12),
            first_seq: u64_at(head, 16),
            durable_seq: u64_at(head, 24),
        };
        if header.first_seq == 0
            || header.first_seq > SeqNo::MAX.0
            || header.durable_seq >= header.first_seq
        {
            let what = "a frame that claims itself durable";
            let (expected, found) = (header.first_seq.saturating_sub(1), header.durable_seq);
            return Err(Damage::new(what, expected, found));
        }
        if header.last_seq() > SeqNo::MAX.0 {
            let what = "a frame beyond the last number there is";
            return Err(Damage::new(what, SeqNo::MAX.0, header.last_seq()));
        }
        Ok(header)
    }

    /// The payload of the frame with this header at `offset` of a segment's
    /// `bytes`, if it and its padding are sound.
    pub(super) fn payload<'a>(&self, bytes: &'a [u8], offset: usize) -> Result<&'a [u8], Damage> {
        let rest = &bytes[offset + FRAME_HEADER_BYTES..];
        let length = self.payload_bytes as usize;
        let padded = length.next_multiple_of(FRAME_ALIGNMENT_BYTES);
        let Some((payload, padding)) = rest.get(..padded).map(|rest| rest.split_at(length)) else {
            return Err(Damage::new(
                "frame cut short",
                padded as u64,
                rest.len() as u64,
            ));
        };
        let computed = crc32c::crc32c(payload);
        if computed != self.payload_crc {
            let what = "wrong checksum of a frame's payload";
            return Err(Damage::new(what, self.payload_crc.into(), computed.into()));
        }
        if let Some(&byte) = padding.iter().find(|&&byte| byte != 0) {
            return Err(Damage::new("a frame's padding is not zero", 0, byte.into()));
        }
        Ok(payload)
    }

    /// The number of the last entry; of a seal, the one before it.
    pub(super) fn last_seq(&self) -> u64 {
        self.first_seq + u64::from(self.count) - 1
    }

    /// Where the next frame begins if this one begins at `offset`.
    pub(super) fn end(&self, offset: usize) -> usize {
        offset + frame_bytes(self.payload_bytes as usize) as usize
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes[at..at + 4].first_chunk().expect("four bytes taken");
    u32::from_le_bytes(*word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..at + 8].first_chunk().expect("eight bytes taken");
    u64::from_le_bytes(*word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_round_trip() {
        let header = SegmentHeader {
            store_id: 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210,
            segment: 7,
            first_seq: 101,
            previous_segment: 5,
            previous_first_seq: 50,
            previous_last_seq: 99,
            durable_seq: 42,
        };
        let bytes = header.encode();
        let path = Path::new("000007.log");
        let decoded = SegmentHeader::decode(&bytes, path, Some(header.store_id), 7);
        assert_eq!(decoded.unwrap(), Ok(header));
        let error = SegmentHeader::decode(&bytes, path, Some(1), 7).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(
            SegmentHeader::decode(&bytes, path, None, 8)
                .unwrap()
                .is_err()
        );
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let decoded = SegmentHeader::decode(&bytes, path, None, 7).unwrap();
            assert!(decoded.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_is_bound_to_its_place() {
        let header = FrameHeader {
            payload_crc: 1,
            payload_bytes: 2,
            count: 3,
            first_seq: 40,
            durable_seq: 39,
        };
        let seed = frame_seed(77, 5);
        let mut bytes = vec![0; 96];
        bytes.extend_from_slice(&header.encode(seed, 96));
        assert_eq!(FrameHeader::decode(&bytes, seed, 96), Ok(header));
        assert!(FrameHeader::decode(&bytes, frame_seed(77, 6), 96).is_err());
        assert!(FrameHeader::decode(&bytes, frame_seed(78, 5), 96).is_err());
        bytes.splice(0..0, [0; 8]);
        assert!(FrameHeader::decode(&bytes, seed, 104).is_err());
    }

    #[test]
    fn file_names_survive_the_round_trip() {
        for segment in [1, 7, 999_999, 1_000_000] {
            let path = segment_path(Path::new("d"), segment);
            let name = path.file_name().unwrap().to_str().unwrap();
            assert_eq!(parse_segment(name), Some(segment));
        }
        assert_eq!(parse_segment("7.log"), None);
        assert_eq!(parse_segment("000007.data"), None);
    }
}
