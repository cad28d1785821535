//! The trailer of a stored block: everything about the block that fits a fixed
//! place, uncompressed, so that a block can be copied into another table, or
//! salvaged from a table whose meta extent is lost, without being decoded.

use thermocline_model::Compression;

/// Bytes of a trailer.
pub(crate) const TRAILER_BYTES: usize = 48;

/// Marks the end of a block: "blk" and the version of the block format.
pub(crate) const BLOCK_MAGIC: [u8; 4] = *b"blk\x01";

/// Restart offsets take four bytes instead of two.
pub(crate) const WIDE_OFFSETS: u8 = 1;

/// Some key of the block has more than one version in it.
pub(crate) const SEVERAL_VERSIONS: u8 = 2;

/// What a block's trailer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Trailer {
    /// The smallest tag; a tag is `seq << 1 | is_put`.
    pub(crate) base_tag: u64,
    /// The largest sequence number.
    pub(crate) seq_max: u64,
    /// Key and value bytes of all entries.
    pub(crate) entry_bytes: u32,
    /// Entries.
    pub(crate) entries: u32,
    /// Of these, deletes.
    pub(crate) deletes: u32,
    /// Bytes of the payload before compression.
    pub(crate) payload_bytes: u32,
    /// Leading bytes that all keys share.
    pub(crate) shared_bytes: u16,
    /// Entries from one restart to the next.
    pub(crate) interval: u8,
    /// Bytes of a tag.
    pub(crate) tag_width: u8,
    /// [`WIDE_OFFSETS`] and [`SEVERAL_VERSIONS`].
    pub(crate) flags: u8,
    /// How the payload is compressed.
    pub(crate) compression: Compression,
}

impl Trailer {
    /// Appends the trailer to the stored payload, which begins at `start`.
    /// Returns the checksum that ends it.
    pub(crate) fn append_to(&self, stored: &mut Vec<u8>, start: usize) -> u32 {
        let mut bytes = [0u8; TRAILER_BYTES];
        bytes[0..8].copy_from_slice(&self.base_tag.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seq_max.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.entry_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.entries.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.deletes.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[32..34].copy_from_slice(&self.shared_bytes.to_le_bytes());
        bytes[34] = self.interval;
        bytes[35] = self.tag_width;
        bytes[36] = self.flags;
        bytes[37] = self.compression as u8;
        bytes[40..44].copy_from_slice(&BLOCK_MAGIC);
        stored.extend_from_slice(&bytes);
        let checksum = checksum(&stored[start..stored.len() - 4]);
        let end = stored.len();
        stored[end - 4..].copy_from_slice(&checksum.to_le_bytes());
        checksum
    }

    /// The trailer at the end of `stored`, and its checksum as computed from
    /// the bytes.
    ///
    /// # Errors
    /// In words, when the bytes are not those that were written.
    pub(crate) fn of(stored: &[u8]) -> Result<(Trailer, u32), String> {
        let Some(bytes) = stored.last_chunk::<TRAILER_BYTES>() else {
            return Err(format!("block of {} bytes has no trailer", stored.len()));
        };
        let found = u32_at(bytes, 44);
        let computed = checksum(&stored[..stored.len() - 4]);
        if found != computed {
            return Err(format!(
                "block checksum is {found:08x}, its bytes have {computed:08x}"
            ));
        }
        if bytes[40..44] != BLOCK_MAGIC {
            return Err("block magic is missing".to_string());
        }
        let compression = Compression::from_byte(bytes[37])
            .ok_or_else(|| format!("compression {} is unknown", bytes[37]))?;
        let trailer = Trailer {
            base_tag: u64_at(bytes, 0),
            seq_max: u64_at(bytes, 8),
            entry_bytes: u32_at(bytes, 16),
            entries: u32_at(bytes, 20),
            deletes: u32_at(bytes, 24),
            payload_bytes: u32_at(bytes, 28),
            shared_bytes: u16::from_le_bytes([bytes[32], bytes[33]]),
            interval: bytes[34],
            tag_width: bytes[35],
            flags: bytes[36],
            compression,
        };
        Ok((trailer, computed))
    }

    /// Restarts of the block.
    pub(crate) fn restarts(&self) -> u32 {
        self.entries.div_ceil(u32::from(self.interval.max(1)))
    }
}

/// CRC-32C, rotated and added to. A plain CRC at the end of the bytes it covers
/// would make the CRC of bytes and CRC together the same for all bytes, and the
/// checksum of a whole extent of such blocks would say nothing of their content.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    masked(crc32c::crc32c(bytes))
}

/// See [`checksum`].
pub(crate) fn masked(crc: u32) -> u32 {
    crc.rotate_left(11).wrapping_add(0x7465_726d)
}

fn u32_at(bytes: &[u8; TRAILER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; TRAILER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_over_checksummed_blocks_depends_on_their_content() {
        let extent = |content: &[u8]| {
            let mut bytes = content.to_vec();
            Trailer::default().append_to(&mut bytes, 0);
            crc32c::crc32c(&bytes)
        };
        assert_ne!(extent(b"one"), extent(b"two"));
    }
}
