//! Which records are used how often, and so which share of the reads each tier
//! answers (LogStore, equations 1 and 4 to 6).
//!
//! The model places records, the most used first: memory holds copies of the
//! hottest, the fastest tier the hottest, the next tier those that follow. No
//! store does better, and one that places whole tables does so only where hot
//! keys lie side by side. Under a uniform distribution there is no hottest
//! record, and memory holds something of every tier.

/// Terms of a sum that are added one by one; the rest is an integral with two
/// corrections, whose error is below 1e-12 of the sum.
const EXACT_TERMS: u64 = 4096;

/// How accesses are spread over records.
#[derive(Clone, PartialEq, Debug)]
pub enum Access {
    /// All records alike.
    Uniform,
    /// The record of rank `n` in proportion to `1 / n^skew`.
    Zipfian {
        /// The paper's `s`, from 0 to 10; the paper runs 0.9.
        skew: f64,
    },
    /// A share of the operations on a share of the records, both from 0 to 1.
    /// The paper has no such distribution.
    Hotspot {
        /// Share of the operations.
        operations: f64,
        /// Share of the records.
        records: f64,
    },
    /// Shares known from elsewhere, as those stated in the paper or measured.
    Given(Shares),
}

/// Which share of the reads is answered where, each from 0 to 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Shares {
    /// By memory.
    pub memory: f64,
    /// By each tier, fast to cheap.
    pub tiers: Vec<f64>,
}

impl Access {
    /// The share of the reads that go to memory and to each tier. `memory` is the
    /// share of the data that has a copy in memory, `data` the share of the data on each tier,
    /// together 1.
    #[must_use]
    pub fn shares(&self, memory: f64, data: &[f64], records: u64) -> Shares {
        match self {
            Access::Uniform => Shares {
                memory,
                tiers: data.iter().map(|share| (1.0 - memory) * share).collect(),
            },
            Access::Given(shares) => shares.clone(),
            Access::Zipfian { .. } | Access::Hotspot { .. } => {
                let cached = self.share_of_hottest(memory, records);
                let mut placed = 0.0;
                let mut answered = cached;
                let mut tiers = Vec::with_capacity(data.len());
                for (at, share) in data.iter().enumerate() {
                    placed += share;
                    // Sums of shares need not reach 1 exactly.
                    let last = at + 1 == data.len();
                    let up_to = if last { 1.0 } else { placed };
                    let reached = self.share_of_hottest(up_to, records).max(answered);
                    tiers.push(reached - answered);
                    answered = reached;
                }
                Shares {
                    memory: cached,
                    tiers,
                }
            }
        }
    }

    /// The share of the accesses that go to the most used `share` of the records.
    #[must_use]
    pub fn share_of_hottest(&self, share: f64, records: u64) -> f64 {
        if share >= 1.0 {
            return 1.0;
        }
        match self {
            Access::Uniform | Access::Given(_) => share,
            Access::Zipfian { skew } => {
                let count = (share * records as f64) as u64;
                zeta(count, *skew) / zeta(records, *skew)
            }
            Access::Hotspot {
                operations,
                records: hot,
            } => {
                if share <= *hot {
                    // `hot` is above 0 here, unless nothing is asked for.
                    return if *hot > 0.0 {
                        operations * share / hot
                    } else {
                        0.0
                    };
                }
                operations + (1.0 - operations) * (share - hot) / (1.0 - hot)
            }
        }
    }
}

/// The sum of `1 / n^skew` for `n` from 1 to `count`.
#[must_use]
pub fn zeta(count: u64, skew: f64) -> f64 {
    let term = |n: u64| (n as f64).powf(-skew);
    if count <= EXACT_TERMS {
        return (1..=count).map(term).sum();
    }
    // Euler and Maclaurin, from the first term that is not added by itself.
    let (first, last) = (EXACT_TERMS as f64, count as f64);
    let exact: f64 = (1..EXACT_TERMS).map(term).sum();
    let power = 1.0 - skew;
    let logarithm = (last / first).ln();
    let integral = if power == 0.0 {
        logarithm
    } else {
        // The difference of two powers that may be close to each other.
        first.powf(power) * (power * logarithm).exp_m1() / power
    };
    let ends = (term(EXACT_TERMS) + term(count)) / 2.0;
    let slopes = skew * (first.powf(-skew - 1.0) - last.powf(-skew - 1.0)) / 12.0;
    exact + integral + ends + slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_many_terms_is_that_of_adding_them_one_by_one() {
        for skew in [0.0, 0.5, 0.9, 0.99, 1.0, 1.000_000_001, 1.2, 3.0] {
            for count in [0u32, 1, 4095, 4096, 4097, 5000, 300_000] {
                let one_by_one: f64 = (1..=count).map(|n| f64::from(n).powf(-skew)).sum();
                let sum = zeta(u64::from(count), skew);
                let error = (sum - one_by_one).abs();
                assert!(
                    error <= 1e-11 * one_by_one,
                    "{count} terms, skew {skew}: {error}"
                );
            }
        }
    }

    #[test]
    fn shares_add_up_to_one_whatever_lies_where() {
        let distributions = [
            Access::Uniform,
            Access::Zipfian { skew: 0.9 },
            Access::Zipfian { skew: 1.0 },
            Access::Hotspot {
                operations: 0.95,
                records: 0.05,
            },
            Access::Hotspot {
                operations: 1.0,
                records: 1.0,
            },
        ];
        for access in &distributions {
            for memory in [0.0, 0.01, 0.3, 1.0] {
                for data in [
                    &[1.0][..],
                    &[0.5, 0.5],
                    &[0.0, 1.0],
                    &[1.0, 0.0],
                    &[0.1, 0.2, 0.7],
                ] {
                    let shares = access.shares(memory, data, 10_000);
                    let sum: f64 = shares.memory + shares.tiers.iter().sum::<f64>();
                    let case = format!("{access:?}, {memory}, {data:?}: {shares:?}");
                    assert!((sum - 1.0).abs() < 1e-12, "{case}");
                    assert!(shares.tiers.iter().all(|share| *share >= 0.0), "{case}");
                }
            }
        }
    }

    #[test]
    fn a_fast_tier_smaller_than_memory_answers_nothing() {
        // Equation 5, its second case.
        let shares = Access::Zipfian { skew: 0.9 }.shares(0.2, &[0.1, 0.9], 1_000_000);
        assert_eq!(shares.tiers[0], 0.0);
        assert!((shares.memory + shares.tiers[1] - 1.0).abs() < 1e-12);
    }
}
