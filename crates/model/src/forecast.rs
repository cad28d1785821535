//! Forecasts: what would happen, as plain data.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A table that would move.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ForecastMove {
    /// The table's number.
    pub table: u64,
    /// Its data bytes.
    pub bytes: u64,
    /// The tier that it lies on now, counted from 0.
    pub from: usize,
    /// The tier that it would come to lie on.
    pub to: usize,
    /// Its temperature in block reads per second and MiB, if it has one.
    pub temperature: Option<f64>,
    /// The rule that would move it.
    pub rule: String,
}

/// A store's bytes, price and reads.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ForecastState {
    /// What the tables cost, in USD a month.
    pub cost_usd_month: f64,
    /// And on average, in USD per 10^9 bytes and month.
    pub price_usd_gb_month: f64,
    /// Microseconds that a block read takes on average, by the profiles of the
    /// devices; none where nothing is known to be read.
    pub read_us: Option<f64>,
    /// Bytes of tables by tier.
    pub tier_bytes: Vec<u64>,
    /// Of the block reads, as far as heat tells, the share on each tier; empty where
    /// nothing is known to be read.
    pub read_shares: Vec<f64>,
}

/// What would happen.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Forecast {
    /// The preset that would plan.
    pub preset: String,
    /// The target that it would keep to, in USD per 10^9 bytes and month.
    pub cost_target_usd_gb_month: Option<f64>,
    /// The names of the tiers, fast to cheap.
    pub tiers: Vec<String>,
    /// Tables that would end on another tier, and their data bytes.
    pub moved_tables: u64,
    /// See `moved_tables`.
    pub moved_bytes: u64,
    /// Bytes that relocations would copy; more than `moved_bytes` if a table moved
    /// twice.
    pub copied_bytes: u64,
    /// Seconds of devices that this and the merges would take, by their profiles or, where these
    /// are not all known, by nominal ones.
    pub device_seconds: f64,
    /// Merges that would be made, and the bytes that they would read and write anew, as if nothing
    /// in them were overwritten.
    pub merges: u64,
    /// See `merges`.
    pub merge_bytes: u64,
    /// Tables with data, and those of them whose use is not known.
    pub tables: u64,
    /// See `tables`.
    pub unknown_tables: u64,
    /// Whether the planners came to rest; else there is more than was followed.
    pub rests: bool,
    /// Where the price would stay above the target: why, as far as is known.
    pub target_missed: Option<String>,
    /// How things are.
    pub before: ForecastState,
    /// How they would come to be.
    pub after: ForecastState,
    /// What would move, in the order in which it would begin to; of many, the first.
    pub moves: Vec<ForecastMove>,
}

impl Forecast {
    /// Of the reads of tables, the share that the first tier serves and would serve;
    /// none where nothing is known to be read.
    #[must_use]
    pub fn fast_shares(&self) -> Option<(f64, f64)> {
        let first = |state: &ForecastState| state.read_shares.first().copied();
        Some((first(&self.before)?, first(&self.after)?))
    }

    fn tier(&self, tier: usize) -> &str {
        self.tiers.get(tier).map_or("?", String::as_str)
    }
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "preset {}", self.preset)?;
        match self.cost_target_usd_gb_month {
            Some(target) => writeln!(f, ", target {target} USD per GB and month")?,
            None => writeln!(f, ", no target")?,
        }
        let at_least = if self.rests { "" } else { "at least " };
        writeln!(
            f,
            "would move {at_least}{} of {} tables, {}; copies {}, {:.2} s of devices",
            self.moved_tables,
            self.tables,
            size(self.moved_bytes),
            size(self.copied_bytes),
            self.device_seconds
        )?;
        let (before, after) = (&self.before, &self.after);
        for (at, name) in self.tiers.iter().enumerate() {
            let bytes = |state: &ForecastState| {
                let bytes = state.tier_bytes.get(at).copied().unwrap_or(0);
                size(bytes)
            };
            writeln!(
                f,
                "  {name:<12} {:>11}  -> {:>11}",
                bytes(before),
                bytes(after)
            )?;
        }
        writeln!(
            f,
            "price {:.4} -> {:.4} USD per GB and month; {:.6} -> {:.6} USD a month ({:+.6})",
            before.price_usd_gb_month,
            after.price_usd_gb_month,
            before.cost_usd_month,
            after.cost_usd_month,
            after.cost_usd_month - before.cost_usd_month
        )?;
        if let (Some(why), Some(target)) = (&self.target_missed, self.cost_target_usd_gb_month) {
            let price = after.price_usd_gb_month;
            writeln!(
                f,
                "the target of {target} is not reached, {price:.4} is left: {why}"
            )?;
        }
        match self.fast_shares() {
            Some((now, then)) => writeln!(
                f,
                "reads of tables served by {}: {:.1} % -> {:.1} %",
                self.tier(0),
                100.0 * now,
                100.0 * then
            )?,
            None => writeln!(f, "reads served fast: nothing is known to be read")?,
        }
        if let (Some(now), Some(then)) = (before.read_us, after.read_us) {
            writeln!(f, "mean read of a block: {now:.0} -> {then:.0} us")?;
        }
        if self.unknown_tables > 0 {
            writeln!(
                f,
                "of {} tables it is not known how much they are read",
                self.unknown_tables
            )?;
        }
        if self.merges > 0 {
            writeln!(
                f,
                "merges {at_least}{}, {}; reckoned as if nothing in them were overwritten",
                self.merges,
                size(self.merge_bytes)
            )?;
        }
        for step in &self.moves {
            write!(
                f,
                "  table {:06} {} -> {}, {}",
                step.table,
                self.tier(step.from),
                self.tier(step.to),
                size(step.bytes)
            )?;
            if let Some(temperature) = step.temperature {
                write!(f, ", temperature {temperature:.3}")?;
            }
            writeln!(f, ": {}", step.rule)?;
        }
        let rest = self.moved_tables.saturating_sub(self.moves.len() as u64);
        if rest > 0 {
            writeln!(f, "  and {rest} more")?;
        }
        Ok(())
    }
}
