//! Skewed choice of keys.

use crate::Dice;

/// The skew of LogStore's workloads.
const EXPONENT: f64 = 0.9;

/// Plain Zipfian ranks with the skew of LogStore's workloads, 0.9: rank 0 is the most
/// frequent.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Of each rank, the weights of all up to it.
    sums: Vec<f64>,
}

impl Zipf {
    /// Of `ranks` ranks, at least one.
    #[must_use]
    pub fn new(ranks: u32) -> Zipf {
        let mut sum = 0.0;
        let weights = (1..=ranks.max(1)).map(|n| f64::from(n).powf(-EXPONENT));
        let sums = weights.map(|w| {
            sum += w;
            sum
        });
        Zipf {
            sums: sums.collect(),
        }
    }

    /// A rank.
    pub fn draw(&self, dice: &mut Dice) -> u32 {
        let all = self.sums[self.sums.len() - 1];
        let at = dice.below(1 << 50) as f64 / (1u64 << 50) as f64 * all;
        self.sums.partition_point(|&s| s < at) as u32
    }

    /// The share of accesses that the first `share` of the ranks has.
    #[must_use]
    pub fn share(&self, share: f64) -> f64 {
        let count = (self.sums.len() as f64 * share) as usize;
        self.sums[count.clamp(1, self.sums.len()) - 1] / self.sums[self.sums.len() - 1]
    }
}
