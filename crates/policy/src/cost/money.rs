//! Money: what a cost target allows (Mutant, section 3.1.1, equations 1 and 2).
//!
//! A cost target is an average price of all bytes. With prices `p` and bytes `s`
//! by tier it asks for `sum(p s) <= target * sum(s)` (equation 1, for any number of
//! tiers). On two tiers that is a bound on the fast bytes (equation 2).
//!
//! A target is meant seriously, so it needs prices that mean something: each a
//! number above 0, and not all the same. It must lie between the cheapest and the
//! dearest placement there is, which are all bytes on the cheapest and all on the
//! dearest tier.

use std::fmt;

/// Bytes that a price is given for.
pub const GB: f64 = 1e9;

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
                "cost target of {target} USD per GB and month: the cheapest placement costs \
                 {cheapest}, the dearest {dearest}"
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
