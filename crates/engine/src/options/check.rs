//! Which options are refused.

use thermocline_model::tier::{TIERS_MAX, is_tier_name};
use thermocline_model::view::Optimisations;
use thermocline_policy::cost::money;
use thermocline_policy::{Preset, by_name, presets};

use super::{COST_TARGET, KIB, MIB, OPTIONS_FILE, Options};
use crate::error::{Error, Result};

/// Longest times.
pub(super) const HOUR_MS: u64 = 3_600_000;
pub(super) const DAY_MS: u64 = 24 * HOUR_MS;
const YEAR_S: u64 = 365 * 86_400;

/// Refuses a value out of bounds, naming its option.
pub(super) fn within<T: PartialOrd + std::fmt::Display>(
    name: &str,
    value: T,
    low: T,
    high: T,
) -> Result<()> {
    if value >= low && value <= high {
        return Ok(());
    }
    Err(Error::invalid(format!("option {name}")).expected(format!("{low} to {high}"), value))
}

impl Options {
    /// Refuses what cannot work, naming option, value and bounds.
    pub(crate) fn check(&self) -> Result<()> {
        const TIB: u64 = 1 << 40;
        if self.tiers.is_empty() || self.tiers.len() > TIERS_MAX {
            let expected = format!("1 to {TIERS_MAX}");
            return Err(Error::invalid("number of tiers").expected(expected, self.tiers.len()));
        }
        // What else is refused may say that this preset does not do it.
        self.policies()?;
        within("write_buffer_bytes", self.write_buffer_bytes, 64 * KIB, TIB)?;
        if let Some(bytes) = self.memtable_bytes {
            within(
                "memtable_bytes",
                bytes,
                16 * KIB,
                self.write_buffer_bytes.min(2 << 30),
            )?;
        }
        within("block_cache_bytes", self.block_cache_bytes, 0, TIB)?;
        within("pinned_meta_bytes", self.pinned_meta_bytes, 0, TIB)?;
        within("filter_bits_per_key", self.filter_bits_per_key, 0, 30)?;
        within(
            "background_threads",
            self.background_threads.unwrap_or(0),
            0,
            64,
        )?;
        within("read_threads", self.read_threads, 0, 256)?;
        within("table_bytes", self.table_size(), 4 * KIB, TIB)?;
        within("newest_runs_merge", self.newest_runs_merge, 1, 1000)?;
        within(
            "newest_runs_stop",
            self.newest_runs_stop,
            self.newest_runs_merge + 1,
            10_000,
        )?;
        within("first_level_bytes", self.first_level_bytes, 4 * KIB, TIB)?;
        within("level_ratio", self.level_ratio, 2, 1000)?;
        within(
            "log_segment_bytes",
            self.log_segment_bytes,
            16 * KIB,
            4 << 30,
        )?;
        within(
            "log_bytes_max",
            self.log_bytes_max,
            self.log_segment_bytes,
            TIB,
        )?;
        within("restart_interval", self.restart_interval, 1, 255)?;
        within("tier_fill_share", self.tier_fill_share, 0.1, 1.0)?;
        within("heat_epoch_ms", self.heat_epoch_ms, 10, HOUR_MS)?;
        // At 0 a table would be as hot as its last epoch.
        let cooling = self.cooling_coefficient;
        if !(cooling > 0.0 && cooling <= 1.0) {
            let error = Error::invalid("option cooling_coefficient");
            return Err(error.expected("above 0, to 1", cooling));
        }
        within("migration_resistance", self.migration_resistance, 0.0, 1.0)?;
        within(
            "migration_bytes_per_second_max",
            self.migration_bytes_per_second_max,
            KIB,
            u64::MAX,
        )?;
        within(
            "migration_cool_down_s",
            self.migration_cool_down_s,
            0,
            YEAR_S,
        )?;
        within("migration_payback_s", self.migration_payback_s, 0, YEAR_S)?;
        within("fast_share", self.fast_share, 0.0, 1.0)?;
        within(
            "staging_overlap_tables",
            self.staging_overlap_tables,
            0,
            100_000,
        )?;
        self.optimisations().map(drop).map_err(|unknown| {
            let known = Optimisations::NAMES.join(", ");
            Error::invalid("option optimisations_off").expected(known, unknown)
        })?;
        for (i, tier) in self.tiers.iter().enumerate() {
            let name = &tier.name;
            if !is_tier_name(name) || name.eq_ignore_ascii_case(OPTIONS_FILE) {
                return Err(Error::invalid(format!("name of tier {i}")).expected(
                    "1 to 64 letters, digits, '-', '_' or '.', the first a letter or digit, the last \
                     no '.', and no device's or options file's name",
                    format!("{name:?}"),
                ));
            }
            // A checkpoint may lie where case makes no difference.
            if let Some(other) = self.tiers[..i]
                .iter()
                .find(|t| t.name.eq_ignore_ascii_case(name))
            {
                return Err(Error::invalid(format!(
                    "two tiers are called {name:?} and {:?}",
                    other.name
                )));
            }
            if self.tiers[..i].iter().any(|t| t.path == tier.path) {
                return Err(Error::invalid(format!(
                    "two tiers have one directory, {name:?} is the second"
                ))
                .at(&tier.path));
            }
            // The options file of the first tier names all others.
            if i > 0 && tier.path.to_str().is_none() {
                return Err(Error::invalid(format!(
                    "the path of tier {name:?} is not UTF-8, which only the first tier's may be"
                ))
                .at(&tier.path));
            }
            if !(tier.price_usd_gb_month.is_finite() && tier.price_usd_gb_month >= 0.0) {
                return Err(
                    Error::invalid(format!("price_usd_gb_month of tier {name:?}"))
                        .expected("a number from 0", tier.price_usd_gb_month),
                );
            }
            within(
                &format!("block_bytes of tier {name:?}"),
                tier.block_bytes,
                512,
                4 * MIB,
            )?;
            within(
                &format!("capacity_bytes of tier {name:?}"),
                tier.capacity_bytes.unwrap_or(MIB),
                0,
                u64::MAX,
            )?;
            let budget = tier.io_budget_bytes_per_second.unwrap_or(MIB);
            within(
                &format!("io_budget_bytes_per_second of tier {name:?}"),
                budget,
                MIB,
                u64::MAX,
            )?;
            if let Some(p) = tier.profile
                && !(p.random_read_iops > 0.0 && p.sequential_mb_s > 0.0)
            {
                return Err(Error::invalid(format!("profile of tier {name:?}"))
                    .expected("numbers above 0", format!("{p:?}")));
            }
        }
        self.check_parts()?;
        self.check_ranges()?;
        self.check_memtables()?;
        if let Some(target) = self.cost_target_usd_per_gb_month {
            self.check_cost_target(target)?;
        }
        self.default_cuts().map(drop)
    }

    /// The policies of the preset, anew. Refuses a name that no preset has.
    pub(crate) fn policies(&self) -> Result<Preset> {
        by_name(&self.preset, &self.heat()).ok_or_else(|| {
            let names: Vec<_> = presets().iter().map(|p| p.name).collect();
            Error::invalid("option preset").expected(names.join(" or "), &self.preset)
        })
    }

    /// Whether the preset keeps to a cost target, and its moves to their bounds.
    pub(crate) fn keeps_cost(&self) -> bool {
        let mut keeping = presets().iter().filter(|p| p.keeps_cost);
        keeping.any(|p| p.name == self.preset)
    }

    /// Refuses a cost target that cannot be met with these tiers and this preset.
    pub(crate) fn check_cost_target(&self, target: f64) -> Result<()> {
        let what = COST_TARGET;
        if !self.keeps_cost() {
            let keeping = presets().iter().filter(|p| p.keeps_cost).map(|p| p.name);
            let keeping: Vec<_> = keeping.collect();
            return Err(Error::invalid(format!(
                "{what}: no preset but {} keeps to one, and this is {}",
                keeping.join(" or "),
                self.preset
            )));
        }
        let prices: Vec<f64> = self.tiers.iter().map(|t| t.price_usd_gb_month).collect();
        money::check_target(target, &prices).map_err(|e| Error::invalid(format!("{what}: {e}")))
    }
}
