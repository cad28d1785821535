//! Values that name their record, so that a read is known to be right.
//!
//! The first eight bytes are the record's number; the others are a slice of a
//! buffer of random bytes, which does not compress but for the share that is asked
//! for: that repeats what stands before it. A read-modify-write changes the last
//! eight. Shorter values prove nothing.

use crate::dice::Dice;

/// The buffer is this much longer than the longest value.
const POOL_BYTES: usize = 64 << 10;

/// Bytes that name the record.
const STAMP_BYTES: usize = 8;

/// The buffer repeats itself, if at all, within pieces of so many bytes.
const PIECE_BYTES: usize = 100;

/// Makes values.
pub(super) struct Content {
    pool: Vec<u8>,
    value: Vec<u8>,
    offset: usize,
}

impl Content {
    /// Values that differ with `seed`, of which about the share `compressible`
    /// compresses away: from 0 to 1.
    pub(super) fn new(seed: u64, compressible: f64) -> Content {
        let mut dice = Dice::new(seed);
        let mut pool: Vec<u8> = (0..POOL_BYTES).map(|_| dice.next() as u8).collect();
        let random = (PIECE_BYTES as f64 * (1.0 - compressible)) as usize;
        for piece in pool.chunks_mut(PIECE_BYTES) {
            for at in random.max(1)..piece.len() {
                piece[at] = piece[at - random.max(1)];
            }
        }
        Content {
            pool,
            value: Vec::new(),
            offset: 0,
        }
    }

    /// A new value of `record`.
    #[inline]
    pub(super) fn make(&mut self, record: u64, bytes: usize) -> &[u8] {
        self.value.clear();
        while self.value.len() < bytes {
            self.offset = ((self.offset + bytes) | 1) % (POOL_BYTES / 2);
            let more = (bytes - self.value.len()).min(POOL_BYTES / 2);
            let piece = &self.pool[self.offset..self.offset + more];
            self.value.extend_from_slice(piece);
        }
        if let Some(stamp) = self.value.get_mut(..STAMP_BYTES) {
            stamp.copy_from_slice(&record.to_le_bytes());
        }
        &self.value
    }

    /// The value `old` with a part changed.
    #[inline]
    pub(super) fn change(&mut self, old: &[u8], dice: &mut Dice) -> &[u8] {
        self.value.clear();
        self.value.extend_from_slice(old);
        if let Some(start) = old.len().checked_sub(2 * STAMP_BYTES) {
            let part = &mut self.value[start + STAMP_BYTES..];
            part.copy_from_slice(&dice.next().to_le_bytes());
        }
        &self.value
    }

    /// The value that was made or changed last.
    #[inline]
    pub(super) fn made(&self) -> &[u8] {
        &self.value
    }
}

/// Whether `value` may be one of `record`.
#[inline]
pub(super) fn is_of(value: &[u8], record: u64) -> bool {
    value
        .get(..STAMP_BYTES)
        .is_none_or(|stamp| stamp == record.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_share_that_is_asked_for_compresses_away() {
        for (compressible, least, most) in [(0.0, 0.98, 1.02), (0.5, 0.5, 0.62), (1.0, 0.0, 0.1)] {
            let mut content = Content::new(1, compressible);
            let values: Vec<u8> = (0..16)
                .flat_map(|n| content.make(n, 1024).to_vec())
                .collect();
            let mut packed =
                flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
            packed.write_all(&values).unwrap();
            let share = packed.finish().unwrap().len() as f64 / values.len() as f64;
            assert!((least..=most).contains(&share), "{compressible}: {share}");
        }
    }

    #[test]
    fn a_value_names_its_record_and_stays_so_when_changed() {
        let (mut content, mut dice) = (Content::new(1, 0.0), Dice::new(2));
        for bytes in [0, 1, 7, 8, 9, 15, 16, 17, 1000, 40_000, 200_000] {
            let value = content.make(77, bytes).to_vec();
            assert_eq!(value.len(), bytes);
            assert!(is_of(&value, 77));
            assert!(bytes < 8 || !is_of(&value, 78));
            let changed = content.change(&value, &mut dice);
            assert!(is_of(changed, 77));
            assert_eq!(changed.len(), bytes);
            assert_eq!(bytes >= 16, changed != value, "{bytes}");
        }
    }
}
