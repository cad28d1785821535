//! Options from dice: every shape that a store may have, far beyond what
//! anybody would choose.

use std::path::{Path, PathBuf};

use thermocline::{
    Compression, DeviceProfile, Durability, LookupIndex, Options, RecutTriggers, Tier, presets,
};

use crate::Dice;
use crate::operation::Keys;

/// Most tiers of a drawn store.
const TIERS_MAX: usize = 4;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What options drawn again must agree in: where the store is, and on how many
/// tiers.
#[derive(Clone, Debug)]
pub struct Place {
    /// The tiers are directories below it, as in a checkpoint.
    pub root: PathBuf,
    /// How many.
    pub tiers: usize,
    /// Whether time and devices are real: then with background threads, and
    /// without I/O budgets.
    pub real: bool,
    /// The preset; none draws one.
    pub preset: Option<&'static str>,
}

impl Place {
    /// Draws the number of tiers.
    #[must_use]
    pub fn draw(dice: &mut Dice, root: &Path, real: bool) -> Place {
        Place {
            root: root.to_path_buf(),
            tiers: dice.below(TIERS_MAX as u64) as usize + 1,
            real,
            preset: None,
        }
    }

    /// The same elsewhere.
    #[must_use]
    pub fn at(&self, root: &Path) -> Place {
        Place {
            root: root.to_path_buf(),
            ..self.clone()
        }
    }

    /// The same with one more tier, if there may be one.
    #[must_use]
    pub fn with_one_more_tier(mut self) -> Place {
        self.tiers = (self.tiers + 1).min(TIERS_MAX);
        self
    }
}

/// From `low` to `high`, each power of two as likely as any other.
fn spread(dice: &mut Dice, low: u64, high: u64) -> u64 {
    let doublings = u64::from((high / low).ilog2());
    let base = low << dice.below(doublings + 1);
    (base + dice.below(base)).min(high)
}

/// A tier, and its price in cents.
fn tier(dice: &mut Dice, place: &Place, index: usize) -> (Tier, u64) {
    let name = format!("tier{index}");
    let blocks = [512, 512, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB, 4 * MIB];
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
    let cents = dice.below(100);
    let mut tier = Tier::new(&name, place.root.join(&name))
        .block_bytes(dice.one_of(&blocks))
        .compression(dice.one_of(&compressions))
        .direct_io(dice.percent(30))
        .price_usd_gb_month(cents as f64 / 100.0);
    if dice.percent(30) {
        tier = tier.profile(DeviceProfile {
            random_read_iops: 100.0 + dice.below(1_000_000) as f64,
            sequential_mb_s: 1.0 + dice.below(10_000) as f64,
        });
    }
    // Where all tiers are full, puts are refused: see the tests of that.
    let last = index + 1 == place.tiers;
    if !last && dice.percent(90) {
        let capacity = if dice.percent(5) {
            0
        } else {
            spread(dice, 6 * KIB, MIB)
        };
        tier = tier.capacity_bytes(capacity);
    }
    if !place.real && dice.percent(10) {
        tier = tier.io_budget_bytes_per_second(spread(dice, MIB, 64 * MIB));
    }
    (tier, cents)
}

/// Options of a store in that place. A new store takes cuts among `keys`.
#[must_use]
pub fn options(dice: &mut Dice, place: &Place, keys: &Keys) -> Options {
    let names: Vec<&str> = presets().iter().map(|p| p.name).collect();
    let preset = place.preset.unwrap_or_else(|| dice.one_of(&names));
    let write_buffer = dice.one_of(&[64 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, MIB, 16 * MIB]);
    let runs_merge = dice.below(6) as usize + 1;
    let segment = dice.one_of(&[16 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 256 * KIB]);
    let parts = dice.one_of(&[0, 0, 2, 8, 40]);
    let threads = if place.real {
        dice.below(4) as usize + 1
    } else {
        0
    };
    let durabilities = [Durability::OperatingSystem, Durability::Device];
    let mut options = Options::new()
        .preset(preset)
        .write_buffer_bytes(write_buffer)
        .table_bytes(dice.one_of(&[4 * KIB, 4 * KIB, 8 * KIB, 32 * KIB, 256 * KIB, 8 * MIB]))
        .first_level_bytes(dice.one_of(&[4 * KIB, 8 * KIB, 32 * KIB, MIB]))
        .level_ratio(dice.one_of(&[2, 2, 3, 4, 10, 1000]))
        .newest_runs_merge(runs_merge)
        .newest_runs_stop(runs_merge + 1 + dice.below(12) as usize)
        .log_segment_bytes(segment)
        .log_bytes_max(segment * (dice.below(8) + 1))
        .log_mapped(dice.percent(50))
        .block_cache_bytes(dice.one_of(&[0, 0, 4 * KIB, 64 * KIB, MIB]))
        .pinned_meta_bytes(dice.one_of(&[0, 4 * KIB, 64 * KIB, 1024 * MIB]))
        .filter_bits_per_key(dice.one_of(&[0, 1, 5, 10, 30]))
        // Not drawn, so that seeds mean what they did.
        .memtable_filters(segment != 64 * KIB)
        .block_cache_grows(runs_merge != 4)
        .flush_drops_versions(runs_merge != 5)
        .verify_outputs(runs_merge == 3)
        .restart_interval(dice.one_of(&[1, 2, 4, 16, 255]))
        .tier_fill_share(dice.one_of(&[0.1, 0.5, 0.95, 1.0]))
        .reserve_bytes(dice.one_of(&[0, 0, 10 * KIB, 16 * MIB]))
        .durability(dice.one_of(&durabilities))
        .background_threads(threads)
        .cuts(keys.cuts(dice, parts));
    let lookup = [LookupIndex::Off, LookupIndex::On, LookupIndex::Auto];
    options = options.lookup_index(dice.one_of(&lookup));
    if dice.percent(50) {
        options = options.flush_together_bytes_min(dice.one_of(&[0, 1, 1, 4 * KIB]));
    }
    if dice.percent(40) {
        options = options.fold_keys_max(dice.one_of(&[0, 2, 10, 100, 100_000]));
    }
    if dice.percent(80) {
        options = options.memtable_bytes(spread(dice, 16 * KIB, write_buffer));
    }
    let mut cents = Vec::new();
    for index in 0..place.tiers {
        let (tier, price) = tier(dice, place, index);
        options = options.tier(tier);
        cents.push(price);
    }
    let keeps_cost = presets().iter().any(|p| p.name == preset && p.keeps_cost);
    let makes_cuts = presets().iter().any(|p| p.name == preset && p.makes_cuts);
    let options = if keeps_cost {
        let options = priced(dice, options, &cents);
        // With dice of its own, so that seeds mean what they did.
        let mut aside = Dice(dice.0);
        let mut off = vec!["joined", "organised", "rewritten"];
        off.retain(|_| aside.percent(20));
        options.optimisations_off(&off)
    } else if preset.starts_with("logstore") {
        let options = staged(dice, options);
        // With dice of its own, so that seeds mean what they did.
        let mut aside = Dice(dice.0);
        match preset == "logstore" && aside.percent(50) {
            true => {
                let options = divided(&mut aside, options);
                moving(&mut aside, options).moving_cuts(true)
            }
            false => options,
        }
    } else if makes_cuts {
        let options = parted(dice, options);
        moving(dice, options)
    } else {
        options
    };
    let options = limited(options, runs_merge, segment);
    // With dice of its own, so that seeds mean what they did.
    manifest_somewhere(&mut Dice(dice.0), options)
}

/// The manifest on some tier, or on the first without a word.
fn manifest_somewhere(dice: &mut Dice, options: Options) -> Options {
    let tiers = options.tier_list();
    let tier = &tiers[dice.below(tiers.len() as u64) as usize];
    let tier = tier.name().to_string();
    match dice.percent(80) {
        true => options.manifest_tier(&tier),
        false => options,
    }
}

/// Limits on the number of sealed memtables, and on the memory of a part's: the least that a part
/// may need, or a few more. Not drawn, so that seeds mean what they did.
fn limited(options: Options, runs_merge: usize, segment: u64) -> Options {
    let least = options.sealed_memtables_least();
    let options = match runs_merge {
        2 => options.sealed_memtables_max(least),
        4 => options.sealed_memtables_max(least + 2),
        _ => options,
    };
    let memory = options.part_memory_bytes_least();
    match segment / KIB {
        64 => options.part_memory_bytes_max(memory),
        32 => options.sealed_memtables_total_max(least),
        256 => options.sealed_memtables_total_max(least + 5),
        _ => options,
    }
}

/// Options of overlapping fast levels.
fn staged(dice: &mut Dice, options: Options) -> Options {
    let all = ["informed", "reverse", "deferred", "staging"];
    let off = if dice.percent(50) { 0 } else { 30 };
    let off: Vec<&str> = all.into_iter().filter(|_| dice.percent(off)).collect();
    options
        .heat_epoch_ms(dice.one_of(&[10, 100, 1000, 3_600_000]))
        .cooling_coefficient(dice.one_of(&[0.01, 0.5, 0.999, 1.0]))
        .fast_share(dice.one_of(&[0.0, 0.1, 0.5, 0.5, 0.9, 1.0]))
        .staging_overlap_tables(dice.one_of(&[0, 1, 3, 30]))
        .optimisations_off(&off)
}

/// How many parts there are, and where they may begin.
fn divided(dice: &mut Dice, options: Options) -> Options {
    options
        .partitions(dice.one_of(&[1, 2, 3, 10, 10, 100]))
        .partition_prefix_bytes(dice.one_of(&[0, 0, 1, 2, 100]))
}

/// Options of parts that are cut by the first keys, and tiers that levels begin on.
fn parted(dice: &mut Dice, options: Options) -> Options {
    let tiers: Vec<String> = options
        .tier_list()
        .iter()
        .map(|t| t.name().to_string())
        .collect();
    let mut options = divided(dice, options);
    if dice.percent(30) {
        options = options.newest_tier(&tiers[dice.below(tiers.len() as u64) as usize]);
    }
    if dice.percent(30) {
        options = options.levels_tier(&tiers[dice.below(tiers.len() as u64) as usize]);
    }
    options
}

/// Every key may be worth a part, and every look new cuts.
const EAGER: RecutTriggers = RecutTriggers {
    duplicate_shares: 1.0,
    gain_share_min: 0.0,
    few_parts_share: 1.0,
    uncut_looks: 1,
    wait_doublings_max: 0,
    looks_kept: 1,
    half_keys_min: 1,
    part_keys_min: 1,
    sample_keys_max: 64,
    sample_bytes_max: 4 * KIB,
};

/// Options of cuts that move: most draws make them move often.
fn moving(dice: &mut Dice, options: Options) -> Options {
    let excess = dice.one_of(&[0.01, 0.1, 0.2, 2.0]);
    let options = options
        .tiny_ranges(dice.one_of(&[1, 2, 4, 16, 256]))
        .recut_excess(excess)
        .recut_major_excess(dice.one_of(&[excess, 1000.0]).max(excess))
        .recut_writes(dice.one_of(&[16, 16, 64, 1000]))
        .duplicates_max(dice.one_of(&[0, 1, 7]))
        // Not drawn, so that seeds mean what they did.
        .recut_triggers(match excess == 0.01 {
            true => EAGER,
            false => RecutTriggers::default(),
        });
    let options = match dice.percent(60) {
        true => options.moving_cuts(dice.percent(80)),
        false => options,
    };
    match dice.percent(50) {
        true => options.merges_end_at_cuts(dice.percent(50)),
        false => options,
    }
}

/// Options of placement by price, and a target where there can be one.
fn priced(dice: &mut Dice, options: Options, cents: &[u64]) -> Options {
    let epoch_ms = dice.one_of(&[10, 100, 1000, 3_600_000]);
    let cooling = dice.one_of(&[0.01, 0.5, 0.999, 1.0]);
    let options = options
        .heat_epoch_ms(epoch_ms)
        .cooling_coefficient(cooling)
        // Not drawn, so that seeds mean what they did.
        .cooling_from_start(cooling == 0.5)
        .migration_resistance(dice.one_of(&[0.0, 0.05, 0.3, 1.0]))
        .migration_bytes_per_second_max(spread(dice, MIB, 1 << 40))
        .migration_cool_down_s(dice.one_of(&[0, 1, 60]));
    match target(dice, cents) {
        Some(target) if dice.percent(70) => options.cost_target_usd_per_gb_month(target),
        _ => options,
    }
}

/// A target that tiers at these prices can meet, if they are such that there can
/// be one.
fn target(dice: &mut Dice, cents: &[u64]) -> Option<f64> {
    let (cheapest, dearest) = (*cents.iter().min()?, *cents.iter().max()?);
    let steps = (cheapest > 0 && dearest > cheapest).then_some(dearest - cheapest)?;
    Some((cheapest + dice.below(steps + 1)) as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_drawn_options_are_lawful_and_differ() {
        let disk = crate::disk::Disk::new(1);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let keys = Keys::draw(&mut dice);
            let place = Place::draw(&mut dice, Path::new("/store"), seed % 2 == 0);
            let drawn = options(&mut dice, &place, &keys).background_threads(0);
            seen.insert(drawn.to_toml());
            let opened = thermocline::Db::open_in(drawn, &disk.environment());
            drop(opened.unwrap_or_else(|e| panic!("seed {seed}: {e}")));
            disk.remove_all(Path::new("/store"));
        }
        assert!(seen.len() > 290);
    }
}
