//! Cuts: the boundaries between parts.

use serde::{Deserialize, Serialize};

/// Most parts a keyspace may have.
pub const PARTS_MAX: usize = 1024;

/// The boundaries between the parts of a keyspace: `n` strictly ascending
/// boundaries make `n + 1` parts; part `i` holds the keys from boundary `i - 1`
/// (inclusive) to boundary `i` (exclusive).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cuts {
    bounds: Vec<Box<[u8]>>,
}

impl Cuts {
    /// Cuts at `bounds`.
    ///
    /// # Errors
    /// In words, when the bounds are not strictly ascending, one is empty, or
    /// there are more than [`PARTS_MAX`] parts.
    pub fn new(bounds: Vec<Box<[u8]>>) -> Result<Cuts, String> {
        if bounds.len() >= PARTS_MAX {
            return Err(format!(
                "{} cuts, at most {} allowed",
                bounds.len(),
                PARTS_MAX - 1
            ));
        }
        if bounds.first().is_some_and(|b| b.is_empty()) {
            return Err("a cut is empty".to_string());
        }
        if let Some(pair) = bounds.windows(2).find(|p| p[0] >= p[1]) {
            return Err(format!(
                "cuts are not ascending: {} is followed by {}",
                pair[0].escape_ascii(),
                pair[1].escape_ascii()
            ));
        }
        Ok(Cuts { bounds })
    }

    /// The number of parts.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.bounds.len() + 1
    }

    /// The part that holds `key`.
    #[inline]
    #[must_use]
    pub fn part_of(&self, key: &[u8]) -> usize {
        if self.bounds.is_empty() {
            0
        } else {
            self.bounds.partition_point(|b| &**b <= key)
        }
    }

    /// The interval of part `part`: inclusive start and exclusive end, `None`
    /// where it is unbounded.
    #[must_use]
    pub fn interval(&self, part: usize) -> (Option<&[u8]>, Option<&[u8]>) {
        let start = part.checked_sub(1).and_then(|i| self.bounds.get(i));
        (start.map(|b| &**b), self.bounds.get(part).map(|b| &**b))
    }

    /// The boundaries.
    #[must_use]
    pub fn bounds(&self) -> &[Box<[u8]>] {
        &self.bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_belongs_to_the_part_it_starts() {
        let cuts = Cuts::new(vec![b"g".as_slice().into(), b"p".as_slice().into()]).unwrap();
        assert_eq!(cuts.parts(), 3);
        for (key, part) in [(&b"a"[..], 0), (b"g", 1), (b"g\0", 1), (b"p", 2), (b"z", 2)] {
            assert_eq!(cuts.part_of(key), part);
            let (start, end) = cuts.interval(part);
            assert!(start.is_none_or(|s| s <= key) && end.is_none_or(|e| key < e));
        }
    }

    #[test]
    fn unsorted_equal_and_empty_cuts_are_refused() {
        for bad in [vec!["b", "a"], vec!["a", "a"], vec![""]] {
            let bounds = bad.iter().map(|b| b.as_bytes().into()).collect();
            assert!(Cuts::new(bounds).is_err(), "{bad:?}");
        }
    }
}
