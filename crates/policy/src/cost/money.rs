//! Money: what a cost target allows (Mutant, section 3.1.1, equations 1 and 2).
//!
//! A cost target is an average price of all bytes. With prices `p` and bytes `s`
//! by tier it asks for `sum(p s) <= target * sum(s)` (equation 1, for any number of
//! tiers). On two tiers that is a bound on the fast bytes (equation 2).
//!
//! A target is meant seriously, so it needs prices that mean something: each a
//! number above 0, and not all the same. It must lie between the cheapest and the
//! dearest placement there is: before anything is stored all bytes on the cheapest and all on the
//! dearest tier, and then what [`Bounds`] says of what is stored.

use std::fmt;

/// Bytes that a price is given for.
pub const GB: f64 = 1e9;

/// What sums of costs may be off by.
pub const ROUNDING: f64 = 1e-9;

/// Why a cost target is refused. It names what must be put right.
#[derive(Clone, PartialEq, Debug)]
pub enum MoneyError {
    /// There is only one tier, so that nothing can be chosen.
    OneTier,
    /// The price of a tier is not a number above 0, or not finite.
    Price {
        /// Which tier, counted from 0.
        tier: usize,
        /// Its price, in USD per GB and month.
        price: f64,
    },
    /// All tiers have the same price.
    EqualPrices {
        /// That price.
        price: f64,
    },
    /// The target is below the cheapest or above the dearest placement, or not a
    /// number.
    Target {
        /// The target, in USD per GB and month.
        target: f64,
        /// The cheapest placement.
        cheapest: f64,
        /// The dearest placement.
        dearest: f64,
    },
    /// The same of what is stored, with its metadata where it lies and within the limits of tiers.
    Stored {
        /// The target, in USD per GB and month.
        target: f64,
        /// What placements of it cost.
        bounds: Bounds,
    },
}

impl fmt::Display for MoneyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MoneyError::OneTier => write!(f, "a cost target needs two tiers or more"),
            MoneyError::Price { tier, price } => write!(
                f,
                "a cost target needs a price above 0 for every tier, tier {tier} has {price}"
            ),
            MoneyError::EqualPrices { price } => write!(
                f,
                "a cost target needs tiers of different price, all cost {price} USD per GB and month"
            ),
            MoneyError::Target {
                target,
                cheapest,
                dearest,
            } => write!(
                f,
                "{target} USD per GB and month is out of reach: the cheapest placement costs \
                 {cheapest}, the dearest {dearest}"
            ),
            MoneyError::Stored {
                target,
                bounds: Bounds { cheapest, dearest },
            } => write!(
                f,
                "{target} USD per GB and month is out of reach: of what is stored the cheapest \
                 placement costs {cheapest}, the dearest {dearest}, as metadata stays where it lies \
                 and tiers hold what they may"
            ),
        }
    }
}

impl std::error::Error for MoneyError {}

/// Refuses a target that no placement can meet. Prices are by tier, both in USD
/// per GB and month.
///
/// # Errors
/// See [`MoneyError`].
pub fn check_target(target: f64, prices: &[f64]) -> Result<(), MoneyError> {
    if prices.len() < 2 {
        return Err(MoneyError::OneTier);
    }
    let unsound = |price: &f64| !(price.is_finite() && *price > 0.0);
    if let Some(tier) = prices.iter().position(unsound) {
        let price = prices[tier];
        return Err(MoneyError::Price { tier, price });
    }
    let cheapest = prices.iter().copied().fold(f64::INFINITY, f64::min);
    let dearest = prices.iter().copied().fold(0.0, f64::max);
    if cheapest == dearest {
        return Err(MoneyError::EqualPrices { price: cheapest });
    }
    // Not a number is in no range.
    if !(cheapest..=dearest).contains(&target) {
        return Err(MoneyError::Target {
            target,
            cheapest,
            dearest,
        });
    }
    Ok(())
}

/// Most bytes that may lie on the fast one of two tiers when there are
/// `total_bytes` in all (equation 2). Prices in USD per GB and month.
///
/// # Errors
/// As [`check_target`].
pub fn fast_bytes_max(
    target: f64,
    fast_price: f64,
    slow_price: f64,
    total_bytes: u64,
) -> Result<u64, MoneyError> {
    check_target(target, &[fast_price, slow_price])?;
    if fast_price < slow_price {
        // The fast tier is the cheap one: it may hold everything.
        return Ok(total_bytes);
    }
    let share = (target - slow_price) / (fast_price - slow_price);
    Ok((share * total_bytes as f64) as u64)
}

/// A tier on which data may be placed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TierRoom {
    /// In USD per GB and month.
    pub price: f64,
    /// Bytes of metadata that lie there and stay.
    pub meta_bytes: u64,
    /// Bytes that may lie there, those included.
    pub limit_bytes: u64,
}

/// What the cheapest and the dearest placement cost on average, in USD per GB and month.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Everything as cheap as it can be.
    pub cheapest: f64,
    /// And as dear.
    pub dearest: f64,
}

/// Bounds are given to so many parts of a USD, so that they can be typed: the cheapest is rounded
/// down, the dearest up.
const BOUND_PARTS: f64 = 1e6;

impl Bounds {
    /// Of `data_bytes` that may lie on each of `tiers`, beside metadata. Of nothing it is the
    /// prices.
    #[must_use]
    pub fn of(data_bytes: u64, tiers: &[TierRoom]) -> Bounds {
        let mut order: Vec<&TierRoom> = tiers.iter().collect();
        order.sort_by(|a, b| a.price.total_cmp(&b.price));
        let (Some(first), Some(last)) = (order.first(), order.last()) else {
            return Bounds {
                cheapest: 0.0,
                dearest: f64::INFINITY,
            };
        };
        let cheap = average(data_bytes, order.iter().copied()).unwrap_or(first.price);
        let dear = average(data_bytes, order.iter().rev().copied()).unwrap_or(last.price);
        Bounds {
            cheapest: ((cheap * BOUND_PARTS).floor() / BOUND_PARTS).max(first.price),
            dearest: ((dear * BOUND_PARTS).ceil() / BOUND_PARTS).min(last.price),
        }
    }

    /// Refuses a target beyond them.
    ///
    /// # Errors
    /// [`MoneyError::Stored`].
    pub fn check(self, target: f64) -> Result<(), MoneyError> {
        match (self.cheapest..=self.dearest).contains(&target) {
            true => Ok(()),
            false => Err(MoneyError::Stored {
                target,
                bounds: self,
            }),
        }
    }
}

/// The average price with the first of `tiers` filled first; `None` of nothing.
fn average<'a>(data_bytes: u64, tiers: impl Iterator<Item = &'a TierRoom>) -> Option<f64> {
    let (mut left, mut bytes, mut usd) = (data_bytes, 0u64, 0.0);
    for tier in tiers {
        let data = left.min(tier.limit_bytes.saturating_sub(tier.meta_bytes));
        left -= data;
        let held = data.saturating_add(tier.meta_bytes);
        bytes = bytes.saturating_add(held);
        usd += usd_month(held, tier.price);
    }
    (bytes > 0).then(|| usd / (bytes as f64 / GB))
}

/// What may be spent, and what is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Budget {
    /// What the bytes cost where they lie, in USD per month.
    pub spent_usd_month: f64,
    /// What they may cost; no limit without a target.
    pub limit_usd_month: f64,
    /// All bytes.
    pub total_bytes: u64,
}

impl Budget {
    /// Of bytes by tier, for a target if there is one.
    #[must_use]
    pub fn of(bytes: &[u64], prices: &[f64], target: Option<f64>) -> Budget {
        let total_bytes = bytes.iter().sum();
        let spent = bytes.iter().zip(prices).map(|(&b, p)| usd_month(b, *p));
        Budget {
            spent_usd_month: spent.sum(),
            limit_usd_month: target.map_or(f64::INFINITY, |t| usd_month(total_bytes, t)),
            total_bytes,
        }
    }

    /// Whether more is spent than may be, roundings left out.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.spent_usd_month > self.limit_usd_month * (1.0 + ROUNDING)
    }

    /// The average price of all bytes, in USD per GB and month; 0 of nothing.
    #[must_use]
    pub fn price_usd_gb_month(&self) -> f64 {
        match self.total_bytes {
            0 => 0.0,
            total => self.spent_usd_month / (total as f64 / GB),
        }
    }
}

/// What `bytes` cost a month at a price per GB and month.
#[must_use]
pub fn usd_month(bytes: u64, price_usd_gb_month: f64) -> f64 {
    bytes as f64 / GB * price_usd_gb_month
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equation_2_gives_the_fast_bytes_that_meet_equation_1_exactly() {
        // The paper's prices and targets.
        for target in [0.4, 0.2, 0.3, 0.045, 0.528] {
            let total = 1_000_000_000_000;
            let fast = fast_bytes_max(target, 0.528, 0.045, total).unwrap();
            let budget = Budget::of(&[fast, total - fast], &[0.528, 0.045], Some(target));
            assert!((budget.price_usd_gb_month() - target).abs() < 1e-9);
            assert!(budget.spent_usd_month <= budget.limit_usd_month + 1e-9);
        }
        // (0.2 - 0.045) / (0.528 - 0.045) of all bytes.
        assert_eq!(fast_bytes_max(0.2, 0.528, 0.045, 1000), Ok(320));
    }

    #[test]
    fn the_papers_example_of_records_comes_out() {
        // Figure 6: USD 3 a record on tiers of USD 5 and 1; A of 3, B and C of 2.
        let records = |n: u64| n * 1_000_000_000;
        let budget = Budget::of(&[records(3), records(4)], &[5.0, 1.0], Some(3.0));
        assert!((budget.price_usd_gb_month() - 19.0 / 7.0).abs() < 1e-12);
        assert_eq!(fast_bytes_max(3.0, 5.0, 1.0, records(7)), Ok(3_500_000_000));
    }

    #[test]
    fn a_target_out_of_reach_is_refused_naming_both_bounds() {
        for target in [0.01, 0.6, 0.0, -1.0, f64::INFINITY, f64::NAN] {
            let error = check_target(target, &[0.528, 0.1, 0.045]).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, MoneyError::Target { .. }), "{text}");
            assert!(text.contains("0.045") && text.contains("0.528"), "{text}");
        }
        assert_eq!(check_target(0.045, &[0.528, 0.045]), Ok(()));
        assert_eq!(check_target(0.528, &[0.528, 0.045]), Ok(()));
    }

    // `tune` compared a target with the prices of tiers alone. One below what metadata on the fast
    // tier leaves possible, or above what a small fast tier can hold, was taken and never met.
    #[test]
    fn bounds_have_metadata_where_it_lies_and_tiers_within_their_limits() {
        let tier = |price, meta_bytes, limit_bytes| TierRoom {
            price,
            meta_bytes,
            limit_bytes,
        };
        let tiers = [tier(0.5, 10, 310), tier(0.1, 0, u64::MAX)];
        // 10 of 1,000 bytes cannot leave the fast tier, and no more than 310 can come to it.
        let bounds = Bounds::of(990, &tiers);
        assert!((bounds.cheapest - 0.104).abs() < 2e-6, "{bounds:?}");
        assert!((bounds.dearest - 0.224).abs() < 2e-6, "{bounds:?}");
        for target in [bounds.cheapest, 0.2, bounds.dearest] {
            assert_eq!(bounds.check(target), Ok(()));
        }
        for target in [0.1, 0.3, f64::NAN] {
            let text = bounds.check(target).unwrap_err().to_string();
            assert!(text.contains("0.10") && text.contains("0.22"), "{text}");
        }
        // What fits anywhere is bounded by the prices, to the last digit.
        let tiers = [tier(0.528, 0, 1000), tier(0.045, 0, u64::MAX)];
        for data_bytes in [0, 990] {
            let bounds = Bounds::of(data_bytes, &tiers);
            assert_eq!((bounds.cheapest, bounds.dearest), (0.045, 0.528));
        }
    }

    #[test]
    fn prices_that_mean_nothing_are_refused_by_name() {
        assert_eq!(check_target(0.1, &[0.1]), Err(MoneyError::OneTier));
        let equal = Err(MoneyError::EqualPrices { price: 0.1 });
        assert_eq!(check_target(0.1, &[0.1, 0.1]), equal);
        for price in [0.0, -0.1, f64::NAN, f64::INFINITY] {
            let error = check_target(0.1, &[0.2, price]).unwrap_err();
            let named = matches!(error, MoneyError::Price { tier: 1, .. });
            assert!(named, "{error}");
        }
    }

    #[test]
    fn nothing_costs_nothing() {
        let budget = Budget::of(&[0, 0], &[0.5, 0.1], Some(0.2));
        assert_eq!(budget.price_usd_gb_month(), 0.0);
        assert_eq!(
            Budget::of(&[5], &[0.5], None).limit_usd_month,
            f64::INFINITY
        );
    }
}
