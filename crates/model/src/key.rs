//! Entries and their order.
//!
//! An entry is a user key, a sequence number, a kind and a value. Entries are
//! ordered by user key ascending (plain byte order), then by sequence number
//! descending, so that the newest version of a key comes first.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// Longest user key, in bytes. The shortest is one byte.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// Longest value, in bytes. A value may be empty.
pub const VALUE_BYTES_MAX: usize = 512 << 20;

/// A sequence number: the position of an entry in the store's commit order.
///
/// The first entry ever written has number 1; 0 means "before everything".
/// Only 56 bits are used, so that a number and a [`Kind`] fit one word.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SeqNo(pub u64);

impl SeqNo {
    /// Before every entry.
    pub const ZERO: SeqNo = SeqNo(0);
    /// After every entry: as a snapshot it sees everything.
    pub const MAX: SeqNo = SeqNo((1 << 56) - 1);

    /// The number that follows this one.
    #[must_use]
    pub fn next(self) -> SeqNo {
        SeqNo(self.0 + 1)
    }
}

impl std::fmt::Display for SeqNo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What an entry says about its key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Kind {
    /// The key has no value from here on.
    Delete = 0,
    /// The key has this value.
    Put = 1,
    /// Every key from this one up to the value (exclusive) has no value from
    /// here on. Kept apart from the other two kinds: never inside a block.
    RangeDelete = 2,
}

impl Kind {
    /// The kind stored as `byte`, if there is one.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Kind> {
        match byte {
            0 => Some(Kind::Delete),
            1 => Some(Kind::Put),
            2 => Some(Kind::RangeDelete),
            _ => None,
        }
    }
}

/// Compares two entries in the order of the store: key ascending, sequence
/// number descending.
#[must_use]
pub fn compare_entries(a: (&[u8], SeqNo), b: (&[u8], SeqNo)) -> Ordering {
    a.0.cmp(b.0).then_with(|| b.1.cmp(&a.1))
}

/// The number of leading bytes that `a` and `b` share.
#[must_use]
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let n = a.len().min(b.len());
    let mut i = 0;
    while i + 8 <= n {
        let x = load_be(&a[i..]) ^ load_be(&b[i..]);
        if x != 0 {
            return i + (x.leading_zeros() / 8) as usize;
        }
        i += 8;
    }
    while i < n && a[i] == b[i] {
        i += 1;
    }
    i
}

/// The first eight bytes of `bytes` as a big-endian number, zero-padded on the
/// right when there are fewer. `load_be(a) < load_be(b)` implies `a < b`.
#[inline]
#[must_use]
pub fn load_be(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        u64::from_be_bytes(*first)
    } else {
        let mut word = [0u8; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_be_bytes(word)
    }
}

/// Turns keys into numbers that sort as the keys do, so that most comparisons
/// look at one word.
///
/// Keys of one store often begin alike (`user0000...`), which would make their
/// first eight bytes worthless. A `Prefix` knows the bytes that most of them
/// share and takes the eight bytes after those; keys that do not share them
/// become 0 or `u64::MAX`, whichever side they lie on. The mapping is monotone
/// for every key: `of(a) < of(b)` implies `a < b`, and equality says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    shared: Box<[u8]>,
}

impl Prefix {
    /// For keys that share `shared`.
    #[must_use]
    pub fn new(shared: &[u8]) -> Prefix {
        Prefix {
            shared: shared.into(),
        }
    }

    /// For keys between `first` and `last` inclusive.
    #[must_use]
    pub fn between(first: &[u8], last: &[u8]) -> Prefix {
        Prefix::new(&first[..common_prefix_len(first, last)])
    }

    /// The number of `key`.
    #[inline]
    #[must_use]
    pub fn of(&self, key: &[u8]) -> u64 {
        let n = self.shared.len();
        if n == 0 {
            return load_be(key);
        }
        if key.len() >= n && key[..n] == *self.shared {
            return load_be(&key[n..]);
        }
        if key < &*self.shared { 0 } else { u64::MAX }
    }

    /// The shared bytes.
    #[must_use]
    pub fn shared(&self) -> &[u8] {
        &self.shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_monotone_for_keys_on_both_sides_of_the_shared_bytes() {
        let prefix = Prefix::new(b"user");
        let mut keys: Vec<&[u8]> = vec![
            b"a",
            b"use",
            b"user",
            b"user\0",
            b"user0",
            b"user00000001",
            b"user00000002",
            b"uses",
            b"v",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        keys.sort_unstable();
        for pair in keys.windows(2) {
            assert!(prefix.of(pair[0]) <= prefix.of(pair[1]), "{pair:?}");
        }
        assert!(prefix.of(b"user00000001") < prefix.of(b"user00000002"));
    }

    #[test]
    fn common_prefix_len_agrees_with_counting_bytes() {
        for (a, b, n) in [
            (&b"abcdefgh1"[..], &b"abcdefgh2"[..], 8),
            (b"", b"x", 0),
            (b"abc", b"abcdef", 3),
            (b"0123456789abcdef", b"0123456789abcdeg", 15),
            (b"same", b"same", 4),
        ] {
            assert_eq!(common_prefix_len(a, b), n);
        }
    }

    #[test]
    fn newer_entries_of_a_key_come_first() {
        let older = (&b"k"[..], SeqNo(1));
        let newer = (&b"k"[..], SeqNo(2));
        assert_eq!(compare_entries(newer, older), Ordering::Less);
        assert_eq!(compare_entries((b"j", SeqNo(1)), newer), Ordering::Less);
    }
}
