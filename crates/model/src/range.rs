//! Intervals of the key space.

use serde::{Deserialize, Serialize};

/// A non-empty interval of user keys with an inclusive start and an end that
/// is inclusive (the key of an entry) or exclusive (the end of a range delete).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct KeyRange {
    /// The first key.
    pub start: Box<[u8]>,
    /// The last key, or the one after it.
    pub end: Box<[u8]>,
    /// Whether `end` itself belongs to the interval.
    pub end_inclusive: bool,
}

impl KeyRange {
    /// `[start, end]`. Requires: `start <= end`.
    #[must_use]
    pub fn inclusive(start: &[u8], end: &[u8]) -> KeyRange {
        debug_assert!(start <= end);
        KeyRange {
            start: start.into(),
            end: end.into(),
            end_inclusive: true,
        }
    }

    /// `[start, end)`. Requires: `start < end`.
    #[must_use]
    pub fn exclusive(start: &[u8], end: &[u8]) -> KeyRange {
        debug_assert!(start < end);
        KeyRange {
            start: start.into(),
            end: end.into(),
            end_inclusive: false,
        }
    }

    /// Whether the interval is not empty.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        if self.end_inclusive {
            self.start <= self.end
        } else {
            self.start < self.end
        }
    }

    /// Bytes of its two keys.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.start.len() + self.end.len()
    }

    /// Whether `key` lies in the interval.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        &*self.start <= key && !self.ends_before(key)
    }

    /// Whether the whole interval lies before `key`.
    #[must_use]
    pub fn ends_before(&self, key: &[u8]) -> bool {
        if self.end_inclusive {
            &*self.end < key
        } else {
            &*self.end <= key
        }
    }

    /// Whether the whole interval lies before `other`.
    #[must_use]
    pub fn is_before(&self, other: &KeyRange) -> bool {
        self.ends_before(&other.start)
    }

    /// Whether some key may lie in both.
    #[must_use]
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        !self.is_before(other) && !other.is_before(self)
    }

    /// Whether some key may lie in this interval and in `[start, end)`, where
    /// `None` is unbounded.
    #[must_use]
    pub fn overlaps_bounds(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        !start.is_some_and(|s| self.ends_before(s)) && end.is_none_or(|e| e > &*self.start)
    }

    /// The smallest interval that covers both.
    #[must_use]
    pub fn hull(&self, other: &KeyRange) -> KeyRange {
        let start = (&self.start).min(&other.start).clone();
        let (end, end_inclusive) = match self.end.cmp(&other.end) {
            std::cmp::Ordering::Less => (&other.end, other.end_inclusive),
            std::cmp::Ordering::Greater => (&self.end, self.end_inclusive),
            std::cmp::Ordering::Equal => (&self.end, self.end_inclusive || other.end_inclusive),
        };
        KeyRange {
            start,
            end: end.clone(),
            end_inclusive,
        }
    }
}

impl std::fmt::Display for KeyRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let close = if self.end_inclusive { ']' } else { ')' };
        write!(
            f,
            "[{}, {}{close}",
            self.start.escape_ascii(),
            self.end.escape_ascii()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_at_an_exclusive_end_is_no_overlap() {
        let deleted = KeyRange::exclusive(b"a", b"m");
        let points = KeyRange::inclusive(b"m", b"z");
        assert!(!deleted.overlaps(&points));
        assert!(deleted.is_before(&points));
        assert!(KeyRange::inclusive(b"a", b"m").overlaps(&points));
        assert_eq!(deleted.hull(&points), KeyRange::inclusive(b"a", b"z"));
    }

    #[test]
    fn bounds_are_half_open() {
        let range = KeyRange::inclusive(b"c", b"f");
        assert!(range.overlaps_bounds(None, None));
        assert!(range.overlaps_bounds(Some(b"f"), None));
        assert!(!range.overlaps_bounds(Some(b"g"), None));
        assert!(!range.overlaps_bounds(None, Some(b"c")));
        assert!(range.overlaps_bounds(None, Some(b"d")));
    }
}
