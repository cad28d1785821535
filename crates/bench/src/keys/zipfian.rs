//! YCSB's `ZipfianGenerator`: the method of Gray et al., "Quickly Generating
//! Billion-Record Synthetic Databases" (SIGMOD 1994), with which the first two
//! ranks are exact and the others follow a continuous approximation.

use crate::dice::Dice;

/// Ranks of a fixed or growing number of items.
#[derive(Clone, Debug)]
pub(crate) struct Zipfian {
    items: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

/// The sum of 1 / i^theta for i in `from + 1 ..= to`.
pub(super) fn zeta(from: u64, to: u64, theta: f64) -> f64 {
    // From the smallest term up, for accuracy.
    (from + 1..=to)
        .rev()
        .map(|rank| (rank as f64).powf(-theta))
        .sum()
}

impl Zipfian {
    /// Ranks of `items` items, at least 1. Requires: `theta` is above 0 and not
    /// 1, for which the method has no answer.
    pub(crate) fn new(items: u64, theta: f64) -> Zipfian {
        Zipfian::with_zeta(items, theta, zeta(0, items, theta))
    }

    /// The same where the sum over all items is known.
    pub(super) fn with_zeta(items: u64, theta: f64, zeta: f64) -> Zipfian {
        let mut zipfian = Zipfian {
            items,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta,
            eta: 0.0,
        };
        zipfian.set_eta();
        zipfian
    }

    fn set_eta(&mut self) {
        let first_two = 1.0 + 0.5_f64.powf(self.theta);
        let span = 1.0 - (2.0 / self.items as f64).powf(1.0 - self.theta);
        self.eta = span / (1.0 - first_two / self.zeta);
    }

    /// Widens to `items` items. Fewer than before change nothing, as in YCSB.
    #[inline]
    pub(crate) fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta += zeta(self.items, items, self.theta);
            self.items = items;
            self.set_eta();
        }
    }

    /// The next rank; 0 is the most frequent.
    #[inline]
    pub(crate) fn draw(&self, dice: &mut Dice) -> u64 {
        self.rank(dice.unit())
    }

    #[inline]
    fn rank(&self, unit: f64) -> u64 {
        let scaled = unit * self.zeta;
        if scaled < 1.0 || self.items == 1 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) || self.items == 2 {
            return 1;
        }
        let rank = self.items as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }

    /// The probability of a rank below `rank`: the inverse of the draw.
    pub(super) fn below(&self, rank: u64) -> f64 {
        match rank {
            0 => 0.0,
            _ if rank >= self.items => 1.0,
            1 => 1.0 / self.zeta,
            _ => {
                let first_two = (1.0 + 0.5_f64.powf(self.theta)) / self.zeta;
                let share = (rank as f64 / self.items as f64).powf(1.0 - self.theta);
                let unit = (share - 1.0 + self.eta) / self.eta;
                unit.max(first_two)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_approximation_is_near_the_law() {
        let zipfian = Zipfian::new(10_000, 0.99);
        let whole = zeta(0, 10_000, 0.99);
        for rank in [1, 2, 10, 100, 1000, 5000] {
            let law = zeta(0, rank, 0.99) / whole;
            let got = zipfian.below(rank);
            assert!((got - law).abs() < 0.02, "{rank}: {got} {law}");
        }
    }

    #[test]
    fn ten_percent_of_the_records_get_the_greater_part() {
        // Nova-LSM, section 8.1, says 85 % of its ten million records.
        let zipfian = Zipfian::new(10_000_000, 0.99);
        let share = zipfian.below(1_000_000);
        assert!((0.84..0.88).contains(&share), "{share}");
    }

    #[test]
    fn growing_is_the_same_as_beginning_large() {
        let mut grown = Zipfian::new(10, 0.99);
        grown.grow(500);
        grown.grow(2000);
        let whole = Zipfian::new(2000, 0.99);
        for step in 0..1000 {
            let unit = f64::from(step) / 1000.0;
            assert_eq!(grown.rank(unit), whole.rank(unit));
        }
    }
}
