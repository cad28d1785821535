//! A block in memory: its payload and the search in it.
//!
//! The payload is `entries, tags, restart prefixes, restart offsets` (see
//! `docs/formats/table.md`). Tags stand apart from the entries because their
//! width is known only when the block is complete, and because a search needs
//! them only where a key matches.
//!
//! Nothing in a payload is trusted: every decoding step is checked and yields
//! `None` where the bytes make no sense, which the caller reports as
//! corruption. The checksum was right, so this is a bug of whoever wrote the
//! block, but it must not become a panic of whoever reads it.

use std::cmp::Ordering;
use std::hint::select_unpredictable;
use std::ops::Deref;
use std::sync::Arc;

use thermocline_model::key::{common_prefix_len, load_be};
use thermocline_model::{Compression, Kind, SeqNo};

use super::compress::decompress;
use super::trailer::{SEVERAL_VERSIONS, TRAILER_BYTES, Trailer, WIDE_OFFSETS};
use crate::cache::Payload;

/// A decoded payload.
#[derive(Debug)]
pub struct Block {
    bytes: Payload,
    base_tag: u64,
    /// Where the entries end and the tags begin.
    entries_end: u32,
    /// Where the restart prefixes begin.
    prefixes: u32,
    entries: u32,
    restarts: u32,
    shared_bytes: u16,
    interval: u8,
    tag_width: u8,
    flags: u8,
}

/// One entry, as positions in the payload.
#[derive(Clone, Copy)]
pub(crate) struct RawEntry {
    /// Bytes shared with the key before.
    pub(crate) shared: usize,
    /// The rest of the key.
    pub(crate) key_start: usize,
    /// Where the rest of the key ends and the value begins.
    pub(crate) value_start: usize,
    /// Where the value ends and the next entry begins.
    pub(crate) value_end: usize,
}

/// What a search found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) seq: SeqNo,
    pub(crate) kind: Kind,
    pub(crate) value_start: usize,
    pub(crate) value_end: usize,
}

impl Block {
    /// The block whose stored bytes are `stored`, and its checksum. `spare` is
    /// a buffer to use for the payload.
    ///
    /// # Errors
    /// In words, when the bytes are no block.
    pub(crate) fn decode(stored: &[u8], mut spare: Vec<u8>) -> Result<(Block, u32), String> {
        let (trailer, checksum) = Trailer::of(stored)?;
        let payload = &stored[..stored.len() - TRAILER_BYTES];
        let bytes = if trailer.compression == Compression::None {
            spare.clear();
            spare.extend_from_slice(payload);
            spare
        } else {
            check_ratio(&trailer, payload)?;
            decompress(trailer.compression, payload, trailer.payload_bytes as usize)?
        };
        Ok((Block::of(&trailer, bytes)?, checksum))
    }

    /// As [`Block::decode`], keeping an uncompressed payload in its buffer.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn decode_owned(mut stored: Vec<u8>) -> Result<(Block, u32), String> {
        let (trailer, checksum) = Trailer::of(&stored)?;
        if trailer.compression == Compression::None {
            stored.truncate(stored.len() - TRAILER_BYTES);
            return Ok((Block::of(&trailer, stored)?, checksum));
        }
        Block::decode(&stored, Vec::new())
    }

    /// The block with this payload.
    ///
    /// # Errors
    /// As [`Block::decode`].
    pub(crate) fn of(trailer: &Trailer, bytes: Vec<u8>) -> Result<Block, String> {
        let wrong = |what: &str| Err(format!("block trailer: {what}"));
        if bytes.len() != trailer.payload_bytes as usize {
            return wrong("payload length is not that of the payload");
        }
        if trailer.entries == 0 || trailer.interval == 0 {
            return wrong("no entries or no restarts");
        }
        if trailer.tag_width > 8 {
            return wrong("tags are wider than eight bytes");
        }
        let restarts = u64::from(trailer.restarts());
        let offset_width = if trailer.flags & WIDE_OFFSETS != 0 {
            4
        } else {
            2
        };
        let prefixes = (bytes.len() as u64).checked_sub(restarts * (8 + offset_width));
        let tags = u64::from(trailer.entries) * u64::from(trailer.tag_width);
        let entries_end = prefixes.and_then(|p| p.checked_sub(tags));
        let (Some(prefixes), Some(entries_end)) = (prefixes, entries_end) else {
            return wrong("payload is too short for its entries");
        };
        // Both lie within the payload, whose length has 32 bits.
        Ok(Block {
            bytes: Payload::from(bytes),
            base_tag: trailer.base_tag,
            entries_end: entries_end as u32,
            prefixes: prefixes as u32,
            entries: trailer.entries,
            restarts: restarts as u32,
            shared_bytes: trailer.shared_bytes,
            interval: trailer.interval,
            tag_width: trailer.tag_width,
            flags: trailer.flags,
        })
    }

    /// What a block takes beside its payload, behind an `Arc`, in bytes.
    pub(crate) const FIXED_BYTES: usize = size_of::<Block>() + 2 * size_of::<usize>();

    /// The payload's buffer, to be used again; an empty one if it is the cache's.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.bytes.into_vec()
    }

    /// Where the payload lies.
    pub(crate) fn payload(&self) -> &Payload {
        &self.bytes
    }

    /// The payload, to be put elsewhere.
    pub(crate) fn payload_mut(&mut self) -> &mut Payload {
        &mut self.bytes
    }

    /// A block of one entry that makes no sense, with this payload.
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Block {
        Block {
            bytes: Payload::from(bytes),
            base_tag: 0,
            entries_end: 0,
            prefixes: 0,
            entries: 1,
            restarts: 0,
            shared_bytes: 0,
            interval: 1,
            tag_width: 0,
            flags: 0,
        }
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.entries as usize
    }

    /// Entries from one restart to the next.
    pub(crate) fn interval(&self) -> usize {
        usize::from(self.interval)
    }

    /// The payload.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The entry at byte `at` of the payload.
    #[inline(always)]
    pub(crate) fn entry_at(&self, at: usize) -> Option<RawEntry> {
        let entries = self.bytes.get(..self.entries_end as usize)?;
        let head = entries.get(at..)?.first_chunk::<3>()?;
        let (shared, rest, value, key_start) = if (head[0] | head[1] | head[2]) < 0x80 {
            let [a, b, c] = head.map(usize::from);
            (a, b, c, at + 3)
        } else {
            let mut next = at;
            let shared = number_at(entries, &mut next)?;
            let rest = number_at(entries, &mut next)?;
            let value = number_at(entries, &mut next)?;
            (shared, rest, value, next)
        };
        // Each number has 32 bits: the sums do not overflow 64.
        let value_start = key_start + rest;
        let value_end = value_start + value;
        (value_end <= entries.len()).then_some(RawEntry {
            shared,
            key_start,
            value_start,
            value_end,
        })
    }

    /// The tag of entry `index`.
    #[inline(always)]
    pub(crate) fn tag(&self, index: usize) -> Option<u64> {
        let width = usize::from(self.tag_width);
        let at = self.entries_end as usize + index * width;
        // At least one restart prefix of eight bytes follows the tags.
        let word = u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk::<8>()?);
        let mask = if width == 8 {
            u64::MAX
        } else {
            (1 << (8 * width)) - 1
        };
        Some(self.base_tag.wrapping_add(word & mask))
    }

    /// Where the entry of restart `restart` begins.
    #[inline(always)]
    pub(crate) fn restart_offset(&self, restart: usize) -> Option<usize> {
        let offsets = self
            .bytes
            .get(self.prefixes as usize + self.restarts as usize * 8..)?;
        if self.flags & WIDE_OFFSETS == 0 {
            let bytes = offsets.get(restart * 2..)?.first_chunk::<2>()?;
            Some(usize::from(u16::from_le_bytes(*bytes)))
        } else {
            let bytes = offsets.get(restart * 4..)?.first_chunk::<4>()?;
            Some(u32::from_le_bytes(*bytes) as usize)
        }
    }

    /// The prefixes of the restart keys.
    #[inline(always)]
    fn prefixes(&self) -> &[[u8; 8]] {
        let end = self.prefixes as usize + self.restarts as usize * 8;
        self.bytes[self.prefixes as usize..end].as_chunks().0
    }

    /// The whole key of restart `restart`.
    fn restart_key(&self, restart: usize) -> Option<&[u8]> {
        let entry = self.entry_at(self.restart_offset(restart)?)?;
        (entry.shared == 0).then(|| &self.bytes[entry.key_start..entry.value_start])
    }

    /// How the entry of restart `restart` compares to `(key, seq)`.
    fn compare_restart(&self, restart: usize, key: &[u8], seq: SeqNo) -> Option<Ordering> {
        let order = self.restart_key(restart)?.cmp(key);
        if order != Ordering::Equal {
            return Some(order);
        }
        let found = self.tag(restart * self.interval())? >> 1;
        Some(seq.0.cmp(&found))
    }

    /// The restarts whose prefix is `prefix`: first and end.
    #[inline(always)]
    fn ties(&self, prefix: u64) -> (usize, usize) {
        let prefixes = self.prefixes();
        let is_below = |i: usize| u64::from_le_bytes(prefixes[i]) < prefix;
        let mut first = 0;
        let mut size = prefixes.len();
        while size > 1 {
            let half = size / 2;
            // Where a key lies cannot be predicted: no branch.
            let next = first + half;
            first = select_unpredictable(is_below(next - 1), next, first);
            size -= half;
        }
        first += usize::from(size > 0 && is_below(first));
        let equal = |p: &&[u8; 8]| u64::from_le_bytes(**p) == prefix;
        (
            first,
            first + prefixes[first..].iter().take_while(equal).count(),
        )
    }

    /// The last restart whose entry lies before `(key, seq)`, or the first one.
    /// `None` when the bytes make no sense.
    pub(crate) fn restart_before(&self, key: &[u8], seq: SeqNo) -> Option<usize> {
        let shared = usize::from(self.shared_bytes);
        let (mut first, mut end) = match key.len() >= shared {
            true => self.ties(word_after(key, shared)),
            false => (0, 0),
        };
        // The word says something only of a key that begins as all the block's
        // do. The restart that it leads to is about to be read anyway, so its
        // key, rather than the first one, shows how they begin.
        let begin = self.restart_key(first.saturating_sub(1))?.get(..shared)?;
        if !key.starts_with(begin) {
            first = if key < begin {
                0
            } else {
                self.restarts as usize
            };
            end = first;
        }
        while first < end {
            let middle = first.midpoint(end);
            if self.compare_restart(middle, key, seq)? == Ordering::Less {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        Some(first.saturating_sub(1))
    }

    /// The newest version of `key` that `snapshot` sees. The outer `None`
    /// means that the bytes make no sense.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], snapshot: SeqNo) -> Option<Option<Found>> {
        let shared = usize::from(self.shared_bytes);
        // A key of the block has its shared bytes, so there is no need to look
        // whether this one does: if not, it equals none of the keys below.
        if key.len() < shared {
            return Some(None);
        }
        let word = word_after(key, shared);
        let (mut first, mut end) = self.ties(word);
        while first < end {
            let middle = first.midpoint(end);
            match self.compare_restart(middle, key, snapshot)? {
                Ordering::Less => first = middle + 1,
                Ordering::Equal => return self.found_at_restart(middle),
                Ordering::Greater => end = middle,
            }
        }
        // A key with one version that is a restart's needs no look before it.
        if self.flags & SEVERAL_VERSIONS == 0
            && first < self.restarts as usize
            && self.prefixes()[first] == word.to_le_bytes()
            && self.restart_key(first)? == key
        {
            return self.found_at_restart(first);
        }
        match first.checked_sub(1) {
            Some(restart) => self.find_from(restart, key, snapshot),
            // Every restart lies behind: only the first entry can be the key's.
            None => self.find_from(0, key, snapshot),
        }
    }

    fn found_at_restart(&self, restart: usize) -> Option<Option<Found>> {
        let entry = self.entry_at(self.restart_offset(restart)?)?;
        Some(Some(self.found(restart * self.interval(), entry)?))
    }

    #[inline(always)]
    fn found(&self, index: usize, entry: RawEntry) -> Option<Found> {
        let tag = self.tag(index)?;
        Some(Found {
            seq: SeqNo(tag >> 1),
            kind: kind_of(tag),
            value_start: entry.value_start,
            value_end: entry.value_end,
        })
    }

    /// Looks for `key` from `restart` on, without rebuilding keys: how many
    /// bytes a key shares with the one before and how many that one has in
    /// common with the wanted key mostly settle the comparison.
    #[inline(always)]
    fn find_from(&self, restart: usize, key: &[u8], snapshot: SeqNo) -> Option<Option<Found>> {
        let interval = self.interval();
        let mut index = restart * interval;
        let mut restart_index = index;
        let mut at = self.restart_offset(restart)?;
        let mut matched = 0;
        while index < self.entries as usize {
            let entry = self.entry_at(at)?;
            if index == restart_index {
                matched = 0;
                restart_index += interval;
            }
            if entry.shared < matched {
                return Some(None);
            }
            if entry.shared == matched {
                let rest = &self.bytes[entry.key_start..entry.value_start];
                let wanted = &key[matched..];
                let common = common_prefix_len(rest, wanted);
                matched += common;
                if common == rest.len() {
                    if matched == key.len() {
                        let found = self.found(index, entry)?;
                        if found.seq <= snapshot {
                            return Some(Some(found));
                        }
                    }
                } else if common == wanted.len() || rest[common] > wanted[common] {
                    return Some(None);
                }
            }
            at = entry.value_end;
            index += 1;
        }
        Some(None)
    }
}

/// Refuses a payload length that no compression of so few bytes can have, lest
/// a wrong length allocates what is not there.
fn check_ratio(trailer: &Trailer, payload: &[u8]) -> Result<(), String> {
    // LZ4 packs at most 255 bytes into one; Zstandard repeats up to 128 KiB by
    // three bytes.
    let most = match trailer.compression {
        Compression::Lz4 => 256,
        _ => 64 << 10,
    };
    if trailer.payload_bytes as usize > (payload.len() + 16) * most {
        return Err(format!(
            "block trailer: {} bytes cannot decompress to {}",
            payload.len(),
            trailer.payload_bytes
        ));
    }
    Ok(())
}

/// The eight bytes of `key` after the first `shared` ones, as [`load_be`] has
/// them. Requires: `key` has the shared ones. Fewer than eight are loaded from
/// the end of the key, which is faster than to copy them.
#[inline(always)]
pub(crate) fn word_after(key: &[u8], shared: usize) -> u64 {
    let rest = &key[shared..];
    if let Some(first) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    match key.last_chunk::<8>() {
        Some(last) if !rest.is_empty() => u64::from_be_bytes(*last) << (8 * (8 - rest.len())),
        _ => load_be(rest),
    }
}

/// The kind of an entry with this tag.
#[inline(always)]
pub(crate) fn kind_of(tag: u64) -> Kind {
    if tag & 1 == 1 {
        Kind::Put
    } else {
        Kind::Delete
    }
}

/// A LEB128 number of at most 32 bits.
#[cold]
fn number_at(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut n = 0u64;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        n |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return u32::try_from(n).ok().map(|n| n as usize);
        }
    }
    None
}

/// A value that keeps its block in memory.
#[derive(Clone, Debug)]
pub struct BlockSlice {
    block: Arc<Block>,
    start: u32,
    end: u32,
}

impl BlockSlice {
    /// The payload bytes from `start` to `end`. Requires: both within it.
    pub(crate) fn new(block: Arc<Block>, start: usize, end: usize) -> BlockSlice {
        debug_assert!(start <= end && end <= block.bytes.len());
        BlockSlice {
            block,
            start: start as u32,
            end: end as u32,
        }
    }
}

impl Deref for BlockSlice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.block.bytes[self.start as usize..self.end as usize]
    }
}

impl AsRef<[u8]> for BlockSlice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
