//! YCSB's `ScrambledZipfianGenerator`: ranks of 10^10 items, hashed, modulo the
//! records. Several items fall on one record, so the skew over records is less
//! than the name says; published results have it so.

use super::text::fnv;
use super::zipfian::Zipfian;
use super::{YCSB_THETA, weights};
use crate::dice::Dice;

/// YCSB's `ITEM_COUNT`. Its Zipfian generator counts both ends and so has one
/// item more.
const ITEMS: u64 = 10_000_000_000;

/// YCSB's `ZETAN`, the sum of 1 / i^0.99 over all items.
const ZETA: f64 = 26.469_028_201_783_02;

/// The most items whose records are computed one by one for the weights.
const ITEMS_HASHED_MAX: u64 = 1 << 24;

/// Hashed ranks.
#[derive(Clone, Debug)]
pub(crate) struct Scrambled {
    zipfian: Zipfian,
    records: u64,
}

impl Scrambled {
    /// Draws from `records` records, at least 1.
    pub(crate) fn new(records: u64) -> Scrambled {
        Scrambled {
            zipfian: Zipfian::with_zeta(ITEMS + 1, YCSB_THETA, ZETA),
            records,
        }
    }

    /// The next record.
    #[inline]
    pub(crate) fn draw(&self, dice: &mut Dice) -> u64 {
        fnv(self.zipfian.draw(dice)) % self.records
    }

    /// The probability of each record. The frequent items are hashed one by
    /// one; the others, thousands on each record, count as spread evenly.
    pub(super) fn weights(&self) -> Vec<f64> {
        let hashed = (4 * self.records).clamp(1 << 20, ITEMS_HASHED_MAX);
        let mut weights = vec![0.0; weights::length(self.records)];
        let mut below = 0.0;
        for item in 0..hashed {
            let next = self.zipfian.below(item + 1);
            weights[(fnv(item) % self.records) as usize] += next - below;
            below = next;
        }
        let rest = (1.0 - below) / self.records as f64;
        weights.iter_mut().for_each(|weight| *weight += rest);
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::super::zipfian::zeta;
    use super::*;

    #[test]
    fn the_published_sum_is_the_sum() {
        // The first million terms, then the integral with half of its ends and
        // the first correction of Euler and Maclaurin.
        let (from, to) = (1e6_f64, 1e10_f64);
        let power = |x: f64| x.powf(1.0 - YCSB_THETA) / (1.0 - YCSB_THETA);
        let ends = (to.powf(-YCSB_THETA) - from.powf(-YCSB_THETA)) / 2.0;
        let sum = zeta(0, 1_000_000, YCSB_THETA) + power(to) - power(from) + ends;
        assert!((sum - ZETA).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn the_most_frequent_records_are_where_ycsb_puts_them() {
        // YCSB's hashes of 0 and 1, known from the keys of its first records.
        let records = 1_000_000;
        let weights = Scrambled::new(records).weights();
        let first = (6_284_781_860_667_377_211 % records) as usize;
        let second = (8_517_097_267_634_966_620 % records) as usize;
        assert!((weights[first] - 1.0 / ZETA).abs() < 1e-4);
        assert!((weights[second] - 0.5_f64.powf(YCSB_THETA) / ZETA).abs() < 1e-4);
    }
}
