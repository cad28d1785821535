//! Keys as places on a line, to say how much of an interval lies in another.
//!
//! Keys are strings and have no distance. Behind the prefix that all ends of the intervals at hand
//! share, their next bytes are read as a number, whose digits are the bytes that such keys are
//! written with: those of decimal or hexadecimal numbers, letters, or all. That is monotonic, and
//! about right where keys spread evenly between the ends. Were all bytes always digits, there would
//! be nearly 250 times as much between the keys "19" and "20" as between "18" and "19". Keys
//! without that prefix lie before or behind all others. It serves estimates only, of heat and of
//! bytes, and is corrected by counting.

use std::ops::RangeInclusive;
use std::sync::Arc;

use thermocline_model::range::KeyRange;
use thermocline_model::table::TableMeta;

/// Of the tables of a merge, one is *wide* in whose interval so many others lie that are
/// less than half as wide.
const WITHIN_WIDE: usize = 4;

/// Bytes of a key that are looked at for what keys are written with.
const BYTES_MAX: usize = 16;

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
    digits: Digits,
}

impl Span {
    /// For intervals of these tables; `None` when there are none.
    #[must_use]
    pub fn of<'a, I>(tables: I) -> Option<Span>
    where
        I: IntoIterator<Item = &'a Arc<TableMeta>>,
        I::IntoIter: Clone,
    {
        let ends = |table: &'a Arc<TableMeta>| [&*table.range.start, &*table.range.end];
        let ends = tables.into_iter().flat_map(ends);
        let first = ends.clone().next()?;
        let shared = ends.clone().map(|end| shared_bytes(first, end));
        let shared = shared.min().unwrap_or(0);
        let rests = ends.filter_map(|end| end.get(shared..));
        Some(Span {
            digits: Digits::of(rests),
            prefix: first.get(..shared)?.into(),
        })
    }

    /// The place of `key`.
    #[must_use]
    pub fn at(&self, key: &[u8]) -> f64 {
        match key.strip_prefix(&*self.prefix) {
            Some(rest) => self.digits.number(rest),
            None if key < &*self.prefix => 0.0,
            None => u64::MAX as f64,
        }
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

/// The bytes that keys are written with, as the digits of a number.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Digits {
    /// By byte how many digits are lower, and whether it is one.
    values: Box<[(u16, bool); 256]>,
    /// What a digit counts, the first one most.
    units: Box<[u64]>,
}

impl Digits {
    /// Those of `keys`: where they are text the decimal ones, the letters to `f` or all, and every
    /// other character, as far as there is one of its kind; else all bytes.
    fn of<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Digits {
        let mut is_digit = [false; 256];
        for key in keys {
            // The end of an interval may be what comes next behind a key.
            let key = key.strip_suffix(&[0]).unwrap_or(key);
            for &byte in key.iter().take(BYTES_MAX) {
                is_digit[usize::from(byte)] = true;
            }
        }
        let seen = |byte: u8| is_digit[usize::from(byte)];
        let is_text = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        if !(0..=u8::MAX).filter(|byte| seen(*byte)).all(is_text) {
            return Digits::new(|_| true);
        }
        let any = |mut kind: RangeInclusive<u8>| kind.any(seen);
        let letters = |byte: u8, [first, hex, last]: [u8; 3]| {
            let is_one = (first..=last).contains(&byte) && any(first..=last);
            is_one && (byte <= hex || any(hex + 1..=last))
        };
        Digits::new(|byte| {
            seen(byte)
                || byte.is_ascii_digit() && any(b'0'..=b'9')
                || letters(byte, *b"AFZ")
                || letters(byte, *b"afz")
        })
    }

    fn new(is_digit: impl Fn(u8) -> bool) -> Digits {
        let mut lower = 0;
        let mut values = Box::new([(0, false); 256]);
        for byte in 0..=u8::MAX {
            values[usize::from(byte)] = (lower, is_digit(byte));
            lower += u16::from(is_digit(byte));
        }
        let base = u64::from(lower.max(2));
        // All numbers of so many digits are less than what comes behind them.
        let fits = |unit: &u64| u128::from(*unit) * u128::from(base) <= 1 << 64;
        let units = std::iter::successors(Some(1), |unit: &u64| unit.checked_mul(base));
        let mut units: Vec<u64> = units.take_while(fits).collect();
        units.reverse();
        Digits {
            values,
            units: units.into(),
        }
    }

    fn number(&self, key: &[u8]) -> f64 {
        let mut number = 0;
        for (byte, unit) in key.iter().zip(&self.units) {
            let (value, is_digit) = self.values[usize::from(*byte)];
            number += u128::from(value) * u128::from(*unit);
            // What is no digit lies where the next one begins.
            if !is_digit {
                break;
            }
        }
        number as f64
    }
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
    fn numbers_are_as_far_apart_as_they_are_however_they_are_written() {
        let even = |key: &dyn Fn(u64) -> Vec<u8>| {
            let ends = |i: u64| KeyRange::inclusive(&key(i * 40), &key(i * 40 + 39));
            let tables: Vec<_> = (0..50)
                .map(|i| {
                    let mut table = parse_table("#1[a..b]").unwrap();
                    table.range = ends(i);
                    Arc::new(table)
                })
                .collect();
            let span = Span::of(&tables).unwrap();
            let (first, last) = (span.at(&key(0)), span.at(&key(1999)));
            let unit = (last - first) / 1999.0;
            for i in 0..2000 {
                let off = (span.at(&key(i)) - first) / unit - i as f64;
                assert!(off.abs() < 0.01, "{i}: {off}");
            }
        };
        even(&|i| format!("user:{i:012}").into_bytes());
        even(&|i| format!("{:016x}", i * 97).into_bytes());
        even(&|i| format!("{:08X}", i * 97).into_bytes());
        even(&|i| (i * 1_000_003).to_be_bytes().to_vec());
    }

    #[test]
    fn places_ascend_with_keys_of_any_kind() {
        let mut words: Vec<&[u8]> = vec![
            b"",
            b"!",
            b"0",
            b"00",
            b"9",
            b"A",
            b"F",
            b"Z",
            b"a",
            b"ab\0",
            b"b",
            b"f",
            b"zz",
            b"\0",
            b"\xff",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        words.sort_unstable();
        let pairs = words.iter().flat_map(|a| words.iter().map(move |b| (a, b)));
        for (start, end) in pairs.filter(|(a, b)| a < b) {
            let mut table = parse_table("#1[a..b]").unwrap();
            table.range = KeyRange::inclusive(start, end);
            let span = Span::of([&Arc::new(table)]).unwrap();
            let places: Vec<_> = words.iter().map(|w| span.at(w)).collect();
            assert!(places.is_sorted(), "{start:?} to {end:?}: {places:?}");
        }
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
