//! Makes the payload of one block after the other.

use thermocline_model::key::{common_prefix_len, load_be};

use super::trailer::{SEVERAL_VERSIONS, Trailer, WIDE_OFFSETS};

/// Larger buffers are given back after a block of one large value.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// A block being made.
pub(crate) struct BlockBuilder {
    interval: u8,
    payload: Vec<u8>,
    tags: Vec<u64>,
    smallest_tag: u64,
    largest_tag: u64,
    restarts: Vec<u32>,
    until_restart: u8,
    entry_bytes: u64,
    deletes: u32,
    several_versions: bool,
    first_key_bytes: usize,
    first_key_start: usize,
}

impl BlockBuilder {
    /// A builder with `interval` entries from one restart to the next.
    pub(crate) fn new(interval: u8) -> BlockBuilder {
        BlockBuilder {
            interval: interval.max(1),
            payload: Vec::new(),
            tags: Vec::new(),
            smallest_tag: u64::MAX,
            largest_tag: 0,
            restarts: Vec::new(),
            until_restart: 0,
            entry_bytes: 0,
            deletes: 0,
            several_versions: false,
            first_key_bytes: 0,
            first_key_start: 0,
        }
    }

    /// Whether there are no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// What the payload will take at least.
    pub(crate) fn size_bytes(&self) -> usize {
        let spread = self.largest_tag.saturating_sub(self.smallest_tag);
        let tag_width = (u64::BITS - spread.leading_zeros()).div_ceil(8) as usize;
        self.payload.len() + self.tags.len() * tag_width + self.restarts.len() * 10
    }

    /// Key and value bytes of all entries.
    pub(crate) fn entry_bytes(&self) -> u64 {
        self.entry_bytes
    }

    /// Adds an entry whose key has `shared` bytes in common with the key before
    /// it, be that of this block or not.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], mut shared: usize, tag: u64, value: &[u8]) {
        let same_key = shared == key.len() && !self.tags.is_empty();
        self.several_versions |= same_key;
        if self.until_restart == 0 {
            self.until_restart = self.interval;
            // A payload never reaches 4 GiB: the writer ends it long before.
            self.restarts.push(self.payload.len() as u32);
            shared = 0;
        }
        self.until_restart -= 1;
        let rest = &key[shared..];
        if (shared | rest.len() | value.len()) < 0x80 {
            let head = [shared as u8, rest.len() as u8, value.len() as u8];
            self.payload.extend_from_slice(&head);
        } else {
            number(&mut self.payload, shared);
            number(&mut self.payload, rest.len());
            number(&mut self.payload, value.len());
        }
        if self.tags.is_empty() {
            self.first_key_start = self.payload.len();
            self.first_key_bytes = key.len();
        }
        self.payload.extend_from_slice(rest);
        self.payload.extend_from_slice(value);
        self.entry_bytes += (key.len() + value.len()) as u64;
        self.deletes += u32::from(tag & 1 == 0);
        self.smallest_tag = self.smallest_tag.min(tag);
        self.largest_tag = self.largest_tag.max(tag);
        self.tags.push(tag);
    }

    /// The first key. Requires: there is one.
    pub(crate) fn first_key(&self) -> &[u8] {
        &self.payload[self.first_key_start..self.first_key_start + self.first_key_bytes]
    }

    /// The first entry's tag, if there is one.
    pub(crate) fn first_tag(&self) -> Option<u64> {
        self.tags.first().copied()
    }

    /// Completes the payload and says what the trailer must (but for the
    /// compression). Requires: there are entries; `last_key` is the last key.
    pub(crate) fn finish(&mut self, last_key: &[u8]) -> Trailer {
        let shared = common_prefix_len(self.first_key(), last_key).min(usize::from(u16::MAX));
        let mut smallest = u64::MAX;
        let mut largest = 0;
        for &tag in &self.tags {
            smallest = smallest.min(tag);
            largest = largest.max(tag);
        }
        let width = (64 - (largest - smallest).leading_zeros()).div_ceil(8) as usize;
        let entries_end = self.payload.len();
        let tags_end = entries_end + self.tags.len() * width;
        self.payload.resize(tags_end + 8, 0);
        for (&tag, at) in self.tags.iter().zip((entries_end..).step_by(width.max(1))) {
            let at = if width == 0 { entries_end } else { at };
            self.payload[at..at + 8].copy_from_slice(&(tag - smallest).to_le_bytes());
        }
        self.payload.truncate(tags_end);
        for &restart in &self.restarts {
            let prefix = restart_prefix(&self.payload[restart as usize..entries_end], shared);
            self.payload.extend_from_slice(&prefix.to_le_bytes());
        }
        let wide = entries_end > usize::from(u16::MAX);
        for &restart in &self.restarts {
            let bytes = restart.to_le_bytes();
            let bytes = if wide { &bytes[..] } else { &bytes[..2] };
            self.payload.extend_from_slice(bytes);
        }
        let mut flags = if wide { WIDE_OFFSETS } else { 0 };
        flags |= if self.several_versions {
            SEVERAL_VERSIONS
        } else {
            0
        };
        Trailer {
            base_tag: smallest,
            seq_max: largest >> 1,
            entry_bytes: u32::try_from(self.entry_bytes).unwrap_or(u32::MAX),
            entries: self.tags.len() as u32,
            deletes: self.deletes,
            payload_bytes: self.payload.len() as u32,
            shared_bytes: shared as u16,
            interval: self.interval,
            tag_width: width as u8,
            flags,
            compression: thermocline_model::Compression::None,
        }
    }

    /// The payload, to be extended by the trailer.
    pub(crate) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.payload
    }

    /// Begins the next block.
    pub(crate) fn clear(&mut self) {
        self.payload.clear();
        self.payload.shrink_to(BUFFER_BYTES_MAX);
        self.tags.clear();
        self.smallest_tag = u64::MAX;
        self.largest_tag = 0;
        self.restarts.clear();
        self.until_restart = 0;
        self.entry_bytes = 0;
        self.deletes = 0;
        self.several_versions = false;
    }
}

/// The eight bytes after the `shared` first ones of the key of the restart
/// entry at the start of `entry`.
fn restart_prefix(entry: &[u8], shared: usize) -> u64 {
    let mut numbers = entry;
    let mut take = || {
        let length = numbers.iter().position(|&b| b < 0x80).map_or(0, |i| i + 1);
        let (number, rest) = numbers.split_at(length);
        numbers = rest;
        let digits = number.iter().rev();
        digits.fold(0usize, |n, &b| n << 7 | usize::from(b & 0x7f))
    };
    let (_, key_bytes, _) = (take(), take(), take());
    load_be(&numbers[shared..key_bytes])
}

fn number(out: &mut Vec<u8>, mut n: usize) {
    while n >= 0x80 {
        out.push((n as u8) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}
