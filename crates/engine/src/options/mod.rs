//! Options: built in code or read from a TOML file.
//!
//! Every option has a default that suits a store of any size on one directory.
//! Options that describe the store's files (tiers) are remembered in the file
//! `thermocline.toml` of the first tier, so that tools find the others.

mod check;
mod cost;
mod manifest;
mod memtables;
mod parts;
mod ranges;
mod set;
mod staging;
mod threads;
mod tier;
mod triggers;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thermocline_model::cuts::Cuts;
use thermocline_model::key::KEY_BYTES_MAX;
use thermocline_model::triggers::{PartTriggers, RecutTriggers};
use thermocline_model::view::{CostOptions, Optimisations, ShapeOptions, StagingOptions};
use thermocline_policy::heat::HeatOptions;
use thermocline_policy::plan;

use crate::error::{Error, Result};

pub use tier::Tier;

/// The name of the options file in the first tier's directory.
///
/// ```
/// # use thermocline::{Db, OPTIONS_FILE, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// Db::open(Options::at(directory.path()).level_ratio(8))?.close()?;
/// let kept = Options::from_file(&directory.path().join(OPTIONS_FILE))?;
/// assert_eq!(kept, Options::at(directory.path()).level_ratio(8));
/// # Ok::<(), thermocline::Error>(())
/// ```
pub const OPTIONS_FILE: &str = "thermocline.toml";

/// The option that a refused target is named by.
pub(crate) const COST_TARGET: &str = "option cost_target_usd_per_gb_month";

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What an acknowledged write has survived.
///
/// ```
/// use thermocline::{Db, Durability, Options, WriteBatch, WriteOptions};
/// # let directory = tempfile::tempdir().unwrap();
/// // Most writes may be lost to a power failure, this one may not.
/// let db = Db::open(Options::at(directory.path()).durability(Durability::OperatingSystem))?;
/// db.put(b"visits", b"17")?;
/// let mut payment = WriteBatch::new();
/// payment.put(b"paid", b"yes")?;
/// db.write_with(&payment, WriteOptions::default().durability(Durability::Device))?;
/// assert!(db.get(b"paid")?.is_some());
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// The operating system has it: it survives the end of this process, not a
    /// power failure. What a power failure leaves is still a gap-free prefix of
    /// all writes.
    #[default]
    OperatingSystem,
    /// The device has it: it survives a power failure. Concurrent writers share
    /// one persist (group commit).
    Device,
}

/// When reads are told by an index which memtables they can pass over. See
/// [`Options::lookup_index`].
///
/// ```
/// # use thermocline::{Db, LookupIndex, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let db = Db::open(Options::at(directory.path()).lookup_index(LookupIndex::Off))?;
/// db.put(b"key", b"value")?;
/// assert_eq!(db.stats().lookup.bytes, 0);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LookupIndex {
    /// Never.
    Off,
    /// For every memtable.
    On,
    /// Where a read has many places to look in, and as long as it gives what it costs.
    #[default]
    Auto,
}

/// The options of a store.
///
/// ```
/// use thermocline::{Options, Tier};
/// let options = Options::new()
///     .tier(Tier::new("nvme", "/mnt/nvme/store").price_usd_gb_month(0.2))
///     .tier(Tier::new("hdd", "/mnt/hdd/store").price_usd_gb_month(0.02))
///     .block_cache_bytes(256 << 20);
/// assert_eq!(Options::from_toml(&options.to_toml()).unwrap(), options);
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    pub(crate) write_buffer_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memtable_bytes: Option<u64>,
    pub(crate) write_buffer_grows: bool,
    pub(crate) block_cache_bytes: u64,
    pub(crate) block_cache_grows: bool,
    pub(crate) pinned_meta_bytes: u64,
    pub(crate) filter_bits_per_key: u32,
    pub(crate) durability: Durability,
    pub(crate) preset: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) background_threads: Option<usize>,
    pub(crate) read_threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) table_bytes: Option<u64>,
    pub(crate) newest_runs_merge: usize,
    pub(crate) newest_runs_stop: usize,
    pub(crate) first_level_bytes: u64,
    pub(crate) level_ratio: u64,
    pub(crate) log_segment_bytes: u64,
    pub(crate) log_bytes_max: u64,
    pub(crate) log_mapped: bool,
    pub(crate) verify_outputs: bool,
    pub(crate) restart_interval: u8,
    pub(crate) tier_fill_share: f64,
    pub(crate) reserve_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost_target_usd_per_gb_month: Option<f64>,
    pub(crate) heat_epoch_ms: u64,
    pub(crate) cooling_coefficient: f64,
    pub(crate) cooling_from_start: bool,
    pub(crate) migration_resistance: f64,
    pub(crate) migration_bytes_per_second_max: u64,
    pub(crate) migration_cool_down_s: u64,
    pub(crate) migration_payback_s: u64,
    pub(crate) fast_share: f64,
    pub(crate) staging_overlap_tables: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) optimisations_off: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partitions: Option<usize>,
    pub(crate) partition_prefix_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) moving_cuts: Option<bool>,
    pub(crate) tiny_ranges: usize,
    pub(crate) recut_excess: f64,
    pub(crate) recut_major_excess: f64,
    pub(crate) recut_writes: u64,
    pub(crate) duplicates_max: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) active_memtables_total_max: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sealed_memtables_max: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sealed_memtables_total_max: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) part_memory_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) merges_end_at_cuts: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flush_together_bytes_min: Option<u64>,
    pub(crate) fold_keys_max: Option<usize>,
    pub(crate) flush_drops_versions: bool,
    pub(crate) lookup_index: LookupIndex,
    pub(crate) memtable_filters: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log_tier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event_tier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) manifest_tier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) newest_tier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) levels_tier: Option<String>,
    pub(crate) cuts: Vec<String>,
    #[serde(skip)]
    pub(crate) cuts_bytes: Vec<Vec<u8>>,
    #[serde(skip)]
    pub(crate) create_if_missing: bool,
    #[serde(skip)]
    pub(crate) read_only: bool,
    pub(crate) recut_triggers: RecutTriggers,
    pub(crate) part_triggers: PartTriggers,
    #[serde(rename = "tier")]
    pub(crate) tiers: Vec<Tier>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            write_buffer_bytes: 64 * MIB,
            memtable_bytes: None,
            write_buffer_grows: true,
            block_cache_bytes: 128 * MIB,
            block_cache_grows: true,
            pinned_meta_bytes: 1024 * MIB,
            filter_bits_per_key: 10,
            durability: Durability::OperatingSystem,
            preset: "leveled".to_string(),
            background_threads: None,
            read_threads: 8,
            table_bytes: None,
            newest_runs_merge: 4,
            newest_runs_stop: 24,
            first_level_bytes: 64 * MIB,
            level_ratio: 10,
            log_segment_bytes: 32 * MIB,
            log_bytes_max: 512 * MIB,
            log_mapped: true,
            verify_outputs: false,
            restart_interval: 4,
            tier_fill_share: 0.97,
            reserve_bytes: 16 * MIB,
            cost_target_usd_per_gb_month: None,
            heat_epoch_ms: 1000,
            cooling_coefficient: 0.999,
            cooling_from_start: false,
            migration_resistance: 0.05,
            migration_bytes_per_second_max: 64 * MIB,
            migration_cool_down_s: 30,
            migration_payback_s: 0,
            fast_share: 0.5,
            staging_overlap_tables: 30,
            optimisations_off: Vec::new(),
            partitions: None,
            partition_prefix_bytes: 0,
            moving_cuts: None,
            tiny_ranges: 16,
            recut_excess: 0.2,
            recut_major_excess: 0.6,
            recut_writes: 1000,
            duplicates_max: 7,
            active_memtables_total_max: None,
            sealed_memtables_max: None,
            sealed_memtables_total_max: None,
            part_memory_bytes_max: None,
            merges_end_at_cuts: None,
            flush_together_bytes_min: None,
            fold_keys_max: None,
            flush_drops_versions: true,
            lookup_index: LookupIndex::Auto,
            memtable_filters: true,
            log_tier: None,
            event_tier: None,
            manifest_tier: None,
            newest_tier: None,
            levels_tier: None,
            cuts: Vec::new(),
            cuts_bytes: Vec::new(),
            create_if_missing: true,
            read_only: false,
            recut_triggers: RecutTriggers::default(),
            part_triggers: PartTriggers::default(),
            tiers: Vec::new(),
        }
    }
}

impl Options {
    /// Defaults without a tier: add at least one.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// // Without a tier there is no place for a store.
    /// let error = Db::open(Options::new()).unwrap_err();
    /// assert!(error.to_string().contains("number of tiers: expected 1 to 16, found 0"));
    /// ```
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }

    /// A store of one tier, called `main`, in the directory `path`.
    ///
    /// ```
    /// let options = thermocline::Options::at("/data");
    /// assert_eq!(options.tier_list().len(), 1);
    /// assert_eq!(options.tier_list()[0].name(), "main");
    /// ```
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Options {
        Options::new().tier(Tier::new("main", path))
    }

    /// Adds a tier, cheaper than those added before.
    ///
    /// ```
    /// # use thermocline::{Options, Tier};
    /// let options = Options::new()
    ///     .tier(Tier::new("nvme", "/mnt/nvme/store").capacity_bytes(20_000_000_000))
    ///     .tier(Tier::new("hdd", "/mnt/hdd/store"));
    /// assert_eq!(options.tier_list()[1].name(), "hdd");
    /// ```
    #[must_use]
    pub fn tier(mut self, tier: Tier) -> Options {
        self.tiers.push(tier);
        self
    }

    /// Options from TOML text; what it does not name has its default.
    ///
    /// ```
    /// # use thermocline::Options;
    /// let options = Options::from_toml(
    ///     r#"
    ///     level_ratio = 8
    ///     [[tier]]
    ///     name = "main"
    ///     path = "/data"
    ///     "#,
    /// )?;
    /// assert_eq!(options, Options::at("/data").level_ratio(8));
    /// let error = Options::from_toml("levle_ratio = 8").unwrap_err();
    /// assert!(error.to_string().contains("levle_ratio"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] with line and column when the text
    /// is not TOML, names an unknown option, or a value has the wrong type.
    pub fn from_toml(text: &str) -> Result<Options> {
        toml::from_str(text)
            .map_err(|e| Error::invalid(format!("options: {}", e.to_string().trim_end())))
    }

    /// Options from a TOML file. Relative tier paths are relative to the file.
    ///
    /// ```
    /// # use thermocline::Options;
    /// # let directory = tempfile::tempdir().unwrap();
    /// let file = directory.path().join("options.toml");
    /// std::fs::write(&file, "[[tier]]\nname = 'main'\npath = 'store'\n").unwrap();
    /// let options = Options::from_file(&file)?;
    /// assert_eq!(options.tier_list()[0].path(), directory.path().join("store"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Options::from_toml`], and [`crate::ErrorKind::Io`] when the file
    /// cannot be read.
    pub fn from_file(path: &Path) -> Result<Options> {
        let bytes = std::fs::read(path).map_err(|e| Error::io("reading options", path, e))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::invalid("options file is not UTF-8").at(path))?;
        let mut options = Options::from_toml(&text).map_err(|e| e.at(path))?;
        let base = path.parent().unwrap_or(Path::new(""));
        for tier in &mut options.tiers {
            tier.path = if tier.path == Path::new(".") {
                base.to_path_buf()
            } else {
                base.join(&tier.path)
            };
        }
        Ok(options)
    }

    /// These options as TOML text. Of a path that is not UTF-8, what cannot be
    /// said is replaced.
    ///
    /// ```
    /// # use thermocline::Options;
    /// let options = Options::at("/data").newest_runs_merge(6);
    /// assert!(options.to_toml().contains("newest_runs_merge = 6"));
    /// assert_eq!(Options::from_toml(&options.to_toml())?, options);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_else(|_| {
            // A path that is no text; numbers, strings and tables cannot fail.
            let mut options = self.clone();
            for tier in &mut options.tiers {
                tier.path = tier.path.to_string_lossy().into_owned().into();
            }
            toml::to_string(&options).unwrap_or_default()
        })
    }

    /// These options as the store keeps them in the directory of its first
    /// tier, which may be moved: its own path is relative, all others absolute.
    pub(crate) fn to_toml_in_first_tier(&self) -> String {
        let mut options = self.clone();
        for (index, tier) in options.tiers.iter_mut().enumerate() {
            tier.path = if index == 0 {
                PathBuf::from(".")
            } else {
                std::path::absolute(&tier.path).unwrap_or_else(|_| tier.path.clone())
            };
        }
        options.to_toml()
    }

    /// The tiers, fast to cheap.
    ///
    /// ```
    /// # use thermocline::{Options, Tier};
    /// let options = Options::at("/fast").tier(Tier::new("cheap", "/slow"));
    /// let names: Vec<_> = options.tier_list().iter().map(Tier::name).collect();
    /// assert_eq!(names, ["main", "cheap"]);
    /// ```
    #[must_use]
    pub fn tier_list(&self) -> &[Tier] {
        &self.tiers
    }

    /// Replaces the tiers, keeping every other option.
    ///
    /// ```
    /// # use thermocline::{Options, Tier};
    /// // The same options for a copy of the store elsewhere.
    /// let options = Options::at("/data").level_ratio(8);
    /// let copy = options.with_tiers(vec![Tier::new("main", "/copy/main")]);
    /// assert_eq!(copy, Options::at("/copy/main").level_ratio(8));
    /// ```
    #[must_use]
    pub fn with_tiers(mut self, tiers: Vec<Tier>) -> Options {
        self.tiers = tiers;
        self
    }

    pub(crate) fn default_cuts(&self) -> Result<Cuts> {
        let texts = self.cuts.iter().map(|c| c.as_bytes().into());
        let bounds: Vec<Box<[u8]>> = texts
            .chain(self.cuts_bytes.iter().map(|c| c.as_slice().into()))
            .collect();
        // No key is longer, so that none would come to lie behind it.
        if let Some(long) = bounds.iter().find(|c| c.len() > KEY_BYTES_MAX) {
            return Err(Error::invalid("option cuts: bytes of a cut")
                .expected(format!("at most {KEY_BYTES_MAX}"), long.len()));
        }
        Cuts::new(bounds).map_err(|e| Error::invalid(format!("option cuts: {e}")))
    }

    /// Threads that read ahead: none where nothing runs in the background, and
    /// none where the operating system reads ahead.
    pub(crate) fn reader_count(&self) -> usize {
        let direct = self.tiers.iter().any(Tier::is_direct);
        if direct && self.has_threads() {
            self.read_threads
        } else {
            0
        }
    }

    /// Data bytes of a full table.
    pub(crate) fn table_size(&self) -> u64 {
        let capacities = self.tiers.iter().filter_map(|t| t.capacity_bytes);
        // A disk that seeks takes as long to find 4 MiB as to read them, about.
        let auto = |smallest: u64| (smallest / 64).max((4 * MIB).min(smallest / 16));
        let auto = capacities.min().map_or(32 * MIB, auto);
        self.table_bytes.unwrap_or(auto.clamp(MIB, 32 * MIB))
    }

    /// Bytes of a memtable where so many that take writes share the write buffer.
    pub(crate) fn memtable_capacity(&self, takers: u64) -> usize {
        let auto = plan::parts::memtable_bytes(self.write_buffer_bytes, takers);
        self.memtable_bytes.unwrap_or(auto) as usize
    }

    pub(crate) fn cost(&self) -> CostOptions {
        CostOptions {
            target_usd_gb_month: self.cost_target_usd_per_gb_month,
            migration_resistance: self.migration_resistance,
            migration_bytes_per_second_max: self.migration_bytes_per_second_max,
            migration_cool_down_us: self.migration_cool_down_s.saturating_mul(1_000_000),
            migration_payback_us: self.migration_payback_s.saturating_mul(1_000_000),
        }
    }

    pub(crate) fn heat(&self) -> HeatOptions {
        HeatOptions {
            epoch_us: self.heat_epoch_ms.saturating_mul(1000),
            cooling_coefficient: self.cooling_coefficient,
            cooling_from_start: self.cooling_from_start,
        }
    }

    pub(crate) fn shape(&self) -> ShapeOptions {
        ShapeOptions {
            table_bytes: self.table_size(),
            newest_runs_merge: self.newest_runs_merge,
            newest_runs_stop: self.newest_runs_stop,
            first_level_bytes: self.first_level_bytes,
            level_ratio: self.level_ratio,
            flush_bytes: flush_bytes_of(self.write_buffer_bytes),
            usual_flush_bytes: flush_bytes_of(self.write_buffer_bytes),
            flush_together_bytes_min: self.flushes_together_from(),
            log_bytes_max: self.log_bytes_max,
            fold_keys_max: self.folds_below(),
            sealed_max: self.sealed_memtables_max.unwrap_or(usize::MAX),
            sealed_total_max: self.sealed_memtables_total_max.unwrap_or(usize::MAX),
            part_memory_bytes_max: self.part_memory_bytes_max.unwrap_or(u64::MAX),
            reads_back: self.verify_outputs,
            tier_fill_share: self.tier_fill_share,
            staging: StagingOptions {
                fast_share: self.fast_share,
                overlap_tables_max: self.staging_overlap_tables,
                on: self.optimisations().unwrap_or(Optimisations::all(true)),
            },
            pins: self.pins(),
            ranges: self.ranges(),
        }
    }

    /// What is switched on; the error is a name that means nothing.
    pub(crate) fn optimisations(&self) -> std::result::Result<Optimisations, &str> {
        Optimisations::without(self.optimisations_off.iter().map(String::as_str))
    }
}

/// Bytes of sealed memtables that are flushed, of a write buffer.
pub(crate) fn flush_bytes_of(write_buffer_bytes: u64) -> u64 {
    write_buffer_bytes / 4
}

#[cfg(test)]
mod tests {
    use thermocline_model::tier::DeviceProfile;

    use super::*;

    /// Found in review: a checkpoint joins the tier's name to its directory, and
    /// a tier called `../x` put it outside.
    #[test]
    fn a_tier_name_is_a_portable_file_name() {
        let check = |name: &str| Options::new().tier(Tier::new(name, "/x")).check();
        for name in [
            "a",
            "fast",
            "SSD-1",
            "nvme_0.v2",
            "0",
            "comet",
            &"x".repeat(64),
        ] {
            check(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "../a",
            "/a",
            "a\\b",
            "a b",
            "a:",
            "a.",
            ".a",
            "-a",
            "é",
            "a\0",
            "con",
            "NUL.txt",
            "com1",
            "Thermocline.toml",
            &"x".repeat(65),
        ] {
            let error = check(name).expect_err(name);
            assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("name of tier 0"), "{error}");
        }
        let twice = Options::at("/x").tier(Tier::new("MAIN", "/y")).check();
        assert!(twice.unwrap_err().to_string().contains("MAIN"));
    }

    #[test]
    fn options_survive_toml() {
        let options = Options::new()
            .tier(
                Tier::new("a", "/a")
                    .capacity_bytes(5)
                    .price_usd_gb_month(0.25),
            )
            .tier(Tier::new("b", "/b").profile(DeviceProfile {
                random_read_iops: 100.0,
                sequential_mb_s: 150.0,
            }))
            .durability(Durability::Device)
            .table_bytes(1 << 20);
        assert_eq!(Options::from_toml(&options.to_toml()).unwrap(), options);
    }

    #[test]
    fn tables_are_a_sixty_fourth_of_the_smallest_tier_and_no_trifle() {
        let size = |mib: u64| {
            let tier = Tier::new("a", "/a").capacity_bytes(mib << 20);
            let options = Options::new().tier(tier).tier(Tier::new("b", "/b"));
            options.table_size()
        };
        let expected = [
            (8, 1 << 20),
            (48, 3 << 20),
            (124, 4 << 20),
            (320, 5 << 20),
            (1 << 20, 32 << 20),
        ];
        for (mib, bytes) in expected {
            assert_eq!(size(mib), bytes, "{mib} MiB");
        }
        assert_eq!(Options::at("/x").table_size(), 32 << 20);
    }

    #[test]
    fn bad_options_are_named() {
        for (options, word) in [
            (Options::new(), "tiers"),
            (Options::at("/x").tier(Tier::new("main", "/y")), "main"),
            (Options::at("/x").tier(Tier::new("y", "/x")), "directory"),
            (
                Options::at("/x").filter_bits_per_key(1000),
                "filter_bits_per_key",
            ),
            (
                Options::at("/x").write_buffer_bytes(1),
                "write_buffer_bytes",
            ),
            (
                Options::at("/x").tier_fill_share(f64::NAN),
                "tier_fill_share",
            ),
            (
                Options::new().tier(Tier::new("t", "/x").price_usd_gb_month(f64::NAN)),
                "price",
            ),
            (
                Options::at("/x").cuts(vec![b"b".to_vec(), b"a".to_vec()]),
                "cuts",
            ),
            // Not that it keeps to no target, as `leveled` does not.
            (
                Options::at("/x")
                    .preset("mutannt")
                    .cost_target_usd_per_gb_month(0.1),
                "leveled or mutant or",
            ),
        ] {
            let error = options.check().expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(Options::from_toml("no_such_option = 1").is_err());
        assert!(Options::from_toml("table_bytes = \"many\"").is_err());
    }
}
