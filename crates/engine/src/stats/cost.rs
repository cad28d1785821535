//! Prices, and what was moved for them.

use std::fmt;

use serde::{Deserialize, Serialize};
use thermocline_model::view::View;
use thermocline_policy::cost::money;
use thermocline_policy::place::Fill;
use thermocline_policy::plan::organisation;

use super::human_bytes;
use crate::engine::Engine;

/// What the store costs and what it may cost. See [`Stats`](super::Stats).
///
/// ```
/// # use thermocline::{Db, Options, Tier};
/// # let directory = tempfile::tempdir().unwrap();
/// let tier = |name, price| Tier::new(name, directory.path().join(name)).price_usd_gb_month(price);
/// let options = Options::new().tier(tier("ssd", 0.5)).tier(tier("hdd", 0.05));
/// let db = Db::open(options.preset("mutant").cost_target_usd_per_gb_month(0.1))?;
/// db.put(b"key", b"value")?;
/// db.flush()?;
/// let cost = db.stats().cost;
/// assert_eq!(cost.target_usd_gb_month, Some(0.1));
/// assert!(cost.fast_bytes_max.unwrap() > 0);
/// assert_eq!(cost.price_usd_gb_month, 0.5); // What is flushed lies on the fast tier.
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CostStats {
    /// What all tables together may cost, in USD per 10^9 bytes and month; none
    /// where price is no object.
    pub target_usd_gb_month: Option<f64>,
    /// What they cost.
    pub price_usd_gb_month: f64,
    /// Of two tiers with a target: bytes that may lie on the first one, of all that there are
    /// (Mutant, equation 2).
    pub fast_bytes_max: Option<u64>,
    /// Of all bytes of tables, those that lie on the first tier, from 0 to 1.
    pub fast_share: f64,
    /// Tables that were relocated since the store was opened.
    pub migrations: u64,
    /// Their data bytes.
    pub migrated_bytes: u64,
    /// Tables that a merge put on another tier than what they replace lay on,
    /// so that they need not be relocated.
    pub migrations_saved: u64,
    /// Their data bytes.
    pub migrations_saved_bytes: u64,
}

impl CostStats {
    pub(crate) fn of(engine: &Engine, view: &View<'_>) -> CostStats {
        let fill = Fill::of(view);
        let budget = organisation::budget(view, &fill);
        let counters = &engine.counters;
        let fast_bytes_max = match (organisation::target(view), view.tiers) {
            (Some(target), [fast, slow]) => {
                let prices = (fast.price_usd_gb_month, slow.price_usd_gb_month);
                money::fast_bytes_max(target, prices.0, prices.1, budget.total_bytes).ok()
            }
            _ => None,
        };
        CostStats {
            fast_bytes_max,
            target_usd_gb_month: view.cost.target_usd_gb_month,
            price_usd_gb_month: budget.price_usd_gb_month(),
            fast_share: fill.used[0] as f64 / budget.total_bytes.max(1) as f64,
            migrations: counters.relocations.get(),
            migrated_bytes: counters.relocated_bytes.get(),
            migrations_saved: counters.migrations_saved.get(),
            migrations_saved_bytes: counters.migrations_saved_bytes.get(),
        }
    }
}

impl fmt::Display for CostStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "price {:.4} USD per GB and month",
            self.price_usd_gb_month
        )?;
        match self.target_usd_gb_month {
            Some(target) => write!(f, ", target {target}")?,
            None => write!(f, ", no target")?,
        }
        if let Some(bytes) = self.fast_bytes_max {
            write!(f, " (fast bytes allowed: {})", human_bytes(bytes))?;
        }
        write!(
            f,
            "; {:.1} % of all bytes on the first tier; migrations {} ({}), saved by merges {} ({})",
            100.0 * self.fast_share,
            self.migrations,
            human_bytes(self.migrated_bytes),
            self.migrations_saved,
            human_bytes(self.migrations_saved_bytes)
        )
    }
}
