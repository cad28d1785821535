//! Cuts: the boundaries between parts.

use serde::{Deserialize, Serialize};

use crate::range::KeyRange;

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
        if bounds.iter().any(|b| b.is_empty()) {
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

    /// Cuts that divide `keys` into at most `parts` parts of about as many keys
    /// each, and only between keys that differ in their first `prefix_bytes` bytes (0:
    /// in any). `keys` is called twice and gives them ascending; a key may come
    /// several times. A key shorter than the prefix counts as it is. Where few
    /// prefixes differ there are fewer parts, and none has less than `least` keys;
    /// of keys with one prefix no cuts are made.
    #[must_use]
    pub fn derive<K: AsRef<[u8]>, I: Iterator<Item = K>>(
        keys: impl Fn() -> I,
        prefix_bytes: usize,
        parts: usize,
        least: usize,
    ) -> Cuts {
        let count = keys().count();
        let parts = parts.min(PARTS_MAX).min(count / least.max(1)).max(1);
        let mut bounds: Vec<Box<[u8]>> = Vec::with_capacity(parts - 1);
        let mut last: Option<Box<[u8]>> = None;
        // Where the present part begins.
        let mut begun = 0;
        for (at, key) in keys().enumerate() {
            let key = key.as_ref();
            let prefix = match prefix_bytes {
                0 => key,
                bytes => &key[..bytes.min(key.len())],
            };
            if last.as_deref() == Some(prefix) {
                continue;
            }
            // An even share of what is left, so that a prefix with many keys does
            // not cost the others their cuts.
            let left = parts - bounds.len();
            if last.is_some() && left > 1 && (at - begun) * left >= count - begun {
                bounds.push(prefix.into());
                begun = at;
            }
            last = Some(prefix.into());
        }
        Cuts { bounds }
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

    /// Of the bytes of `tables`, each a range and a size, what overlaps each part.
    #[must_use]
    pub fn shares<'a>(&self, tables: impl Iterator<Item = (&'a KeyRange, u64)>) -> Vec<u64> {
        let mut shares = vec![0u64; self.parts()];
        for (range, bytes) in tables {
            let first = self.part_of(&range.start);
            let is_behind = |part: &usize| {
                let start = self.interval(*part).0;
                start.is_some_and(|start| range.ends_before(start))
            };
            let end = (first + 1..self.parts()).find(is_behind);
            for share in &mut shares[first..end.unwrap_or(self.parts())] {
                *share = share.saturating_add(bytes);
            }
        }
        shares
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
    fn a_table_counts_for_each_part_that_it_overlaps() {
        let cuts = Cuts::new(vec![b"g".as_slice().into(), b"p".as_slice().into()]).unwrap();
        let tables = [
            (KeyRange::inclusive(b"a", b"f"), 1),
            (KeyRange::exclusive(b"b", b"g"), 10),
            (KeyRange::inclusive(b"b", b"g"), 100),
            (KeyRange::inclusive(b"a", b"z"), 1000),
            (KeyRange::inclusive(b"q", b"z"), 10_000),
        ];
        let sized = || tables.iter().map(|(range, bytes)| (range, *bytes));
        assert_eq!(cuts.shares(sized()), [1111, 1100, 11_000]);
        assert_eq!(Cuts::default().shares(sized()), [11_111]);
        assert_eq!(cuts.shares(std::iter::empty()), [0, 0, 0]);
    }

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
    fn derived_cuts_divide_the_keys_evenly_and_only_between_prefixes() {
        let keys: Vec<String> = (0..10_000).map(|n| format!("{:016}", n * 7)).collect();
        let derive = |prefix_bytes, parts| Cuts::derive(|| keys.iter(), prefix_bytes, parts, 16);
        for (prefix_bytes, parts) in [(0, 10), (16, 10), (100, 10), (0, 1), (13, 7), (0, 600)] {
            let cuts = derive(prefix_bytes, parts);
            assert_eq!(cuts.parts(), parts, "{prefix_bytes}");
            assert!(Cuts::new(cuts.bounds().to_vec()).is_ok());
            let mut counts = vec![0_usize; parts];
            keys.iter()
                .for_each(|k| counts[cuts.part_of(k.as_bytes())] += 1);
            let even = 10_000 / parts;
            assert!(
                counts.iter().all(|c| c.abs_diff(even) <= 200),
                "{prefix_bytes}: {counts:?}"
            );
        }
        // The first digit that differs has seven values.
        let cuts = derive(12, 10);
        assert_eq!(cuts.parts(), 7);
        assert!(cuts.bounds().iter().all(|b| b.len() == 12));
        // They all begin alike.
        assert_eq!(derive(4, 10).parts(), 1);
    }

    #[test]
    fn few_keys_one_key_and_no_key_make_few_parts() {
        let derive = |keys: &[&str]| Cuts::derive(|| keys.iter(), 0, 10, 16).parts();
        assert_eq!(derive(&[]), 1);
        assert_eq!(derive(&["a", "b"]), 1);
        assert_eq!(derive(&["a"; 1000]), 1);
        assert_eq!(derive(&[&["a"; 999][..], &["b"]].concat()), 2);
        let few: Vec<String> = (0..50).map(|n| format!("{n:03}")).collect();
        let few: Vec<&str> = few.iter().map(String::as_str).collect();
        assert_eq!(derive(&few), 3);
    }

    #[test]
    fn unsorted_equal_and_empty_cuts_are_refused() {
        for bad in [vec!["b", "a"], vec!["a", "a"], vec![""]] {
            let bounds = bad.iter().map(|b| b.as_bytes().into()).collect();
            assert!(Cuts::new(bounds).is_err(), "{bad:?}");
        }
    }
}
