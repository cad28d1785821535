//! A hot set that moves: Zipf's law whose ranks fall on other records after
//! every period, as when the interest of users moves on (compare LogStore,
//! figure 9, where a distribution is exchanged during the run).

use super::zipf::Zipf;
use crate::dice::Dice;

/// The golden ratio less one: turns by it leave the hottest records of many
/// periods far from each other.
const TURN: f64 = 0.618_033_988_749_894_8;

/// Ranks turned round the records by the time.
#[derive(Clone, Debug)]
pub(crate) struct Shifting {
    zipf: Zipf,
    records: u64,
    every_seconds: f64,
}

impl Shifting {
    /// Ranks of `records` records that move every `every_seconds`.
    pub(crate) fn new(records: u64, exponent: f64, every_seconds: f64) -> Shifting {
        Shifting {
            zipf: Zipf::new(records, exponent),
            records,
            every_seconds,
        }
    }

    /// The next record, `seconds` after the beginning.
    #[inline]
    pub(crate) fn draw(&self, dice: &mut Dice, seconds: f64) -> u64 {
        let period = (seconds / self.every_seconds) as u64;
        (self.zipf.draw(dice) + self.start(period)) % self.records
    }

    /// Where the most frequent record of a period is.
    fn start(&self, period: u64) -> u64 {
        let turns = period as f64 * TURN;
        (turns.fract() * self.records as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_record_moves_with_each_period_and_not_before() {
        let mut dice = Dice::new(2);
        let shifting = Shifting::new(1000, 1.5, 10.0);
        let mut hottest = |seconds: f64| {
            let mut seen = [0; 1000];
            for _ in 0..2000 {
                seen[shifting.draw(&mut dice, seconds) as usize] += 1;
            }
            (0..1000).max_by_key(|&record| seen[record]).unwrap()
        };
        assert_eq!(hottest(0.0), 0);
        assert_eq!(hottest(9.9), 0);
        assert_eq!(hottest(10.1), 618);
        assert_eq!(hottest(20.1), 236);
    }
}
