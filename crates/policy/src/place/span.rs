//! Keys as places on a line, to say how much of an interval lies in another.
//!
//! Keys are strings and have no distance. Behind the prefix that all ends of the
//! intervals at hand share, their next eight bytes are read as a number; that is
//! monotonic, and about right where keys spread evenly between the ends. Keys without
//! that prefix lie before or behind all others. It
//! serves estimates only, of heat and of bytes, and is corrected by counting.

use std::sync::Arc;

use thermocline_model::range::KeyRange;
use thermocline_model::table::TableMeta;

/// Of the tables of a merge, one is *wide* in whose interval so many others lie that are
/// less than half as wide.
const WITHIN_WIDE: usize = 4;

/// Which of the tables of a merge, given by their places, are wide: a flush has keys
/// from everywhere, and where it is read, nobody counted. It is read where the narrow
/// ones below it are, as both have the same keys' neighbours.
#[must_use]
pub fn wide(places: &[(f64, f64)]) -> Vec<bool> {
    let mut sorted = places.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let is_wide = |&(start, width): &(f64, f64)| {
        let end = start + width;
        let from = sorted.partition_point(|other| other.0 < start);
        let begin_within = sorted[from..].iter().take_while(|other| other.0 < end);
        let within = begin_within.filter(|o| o.0 + o.1 <= end && o.1 * 2.0 < width);
        within.take(WITHIN_WIDE).count() == WITHIN_WIDE
    };
    places.iter().map(is_wide).collect()
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    prefix: Box<[u8]>,
}

impl Span {
    /// For intervals of these tables; `None` when there are none.
    #[must_use]
    pub fn of<'a>(tables: impl IntoIterator<Item = &'a Arc<TableMeta>>) -> Option<Span> {
        let mut tables = tables.into_iter();
        let first = &tables.next()?.range;
        let mut prefix = shared_bytes(&first.start, &first.end);
        for table in tables {
            let (start, end) = (&table.range.start, &table.range.end);
            prefix = prefix
                .min(shared_bytes(&first.start, start))
                .min(shared_bytes(&first.start, end));
        }
        let prefix = first.start.get(..prefix)?.into();
        Some(Span { prefix })
    }

    /// The place of `key`.
    #[must_use]
    pub fn at(&self, key: &[u8]) -> f64 {
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            return if key < &*self.prefix {
                0.0
            } else {
                u64::MAX as f64
            };
        };
        let mut bytes = [0; 8];
        let count = rest.len().min(8);
        bytes[..count].copy_from_slice(&rest[..count]);
        u64::from_be_bytes(bytes) as f64
    }

    /// Start and width of `range`; never without any width.
    #[must_use]
    pub fn place(&self, range: &KeyRange) -> (f64, f64) {
        let (start, end) = (self.at(&range.start), self.at(&range.end));
        // Large numbers are apart by more than 1.
        let least = (start.abs() * f64::EPSILON).max(1.0);
        (start, (end - start).max(least))
    }

    /// The share of `range` that lies in `other`, from 0 to 1; above 0 if they
    /// overlap at all.
    #[must_use]
    pub fn shared(&self, range: &KeyRange, other: &KeyRange) -> f64 {
        if !range.overlaps(other) {
            return 0.0;
        }
        let within = |key: &[u8]| other.contains(key);
        if within(&range.start) && (within(&range.end) || *range.end == *other.end) {
            return 1.0;
        }
        let (start, width) = self.place(range);
        let (other_start, other_width) = self.place(other);
        let end = (start + width).min(other_start + other_width);
        ((end - start.max(other_start)) / width).clamp(1e-9, 1.0)
    }
}

fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_model::picture::parse_table;

    #[test]
    fn wide_is_what_has_four_narrow_ones_within_it() {
        let narrow = [(0.0, 9.0), (10.0, 9.0), (20.0, 9.0), (30.0, 9.0)];
        let with = |more: &[(f64, f64)]| wide(&[&narrow[..], more].concat());
        assert_eq!(with(&[(0.0, 40.0)]), [false, false, false, false, true]);
        assert_eq!(with(&[(0.0, 29.0)]), [false; 5]);
        // However many wide ones lie above them.
        let four = with(&[(0.0, 40.0); 5]);
        assert_eq!((&four[..4], &four[4..]), (&[false; 4][..], &[true; 5][..]));
        assert_eq!(wide(&[(0.0, 40.0); 9]), [false; 9]);
    }

    fn table(start: &str, end: &str) -> Arc<TableMeta> {
        let mut table = parse_table("#1[a..b]").unwrap();
        table.range = KeyRange::inclusive(start.as_bytes(), end.as_bytes());
        Arc::new(table)
    }

    #[test]
    fn shares_follow_the_keys_behind_their_common_prefix() {
        let whole = table("user:0000", "user:9999");
        let left = table("user:0000", "user:4999");
        let span = Span::of([&whole, &left]).unwrap();
        assert_eq!(span.shared(&left.range, &whole.range), 1.0);
        let half = span.shared(&whole.range, &left.range);
        assert!((0.4..0.6).contains(&half), "{half}");
        let apart = table("user:6", "user:7");
        assert_eq!(span.shared(&left.range, &apart.range), 0.0);
    }

    #[test]
    fn one_key_is_wholly_within() {
        let whole = table("a", "z");
        let one = table("k", "k");
        let span = Span::of([&whole, &one]).unwrap();
        assert_eq!(span.shared(&one.range, &whole.range), 1.0);
        let share = span.shared(&whole.range, &one.range);
        assert!(share > 0.0 && share < 0.01, "{share}");
        assert!(Span::of([]).is_none());
    }
}
