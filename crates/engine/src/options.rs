//! Options: built in code or read from a TOML file.
//!
//! Every option has a default that suits a store of any size on one directory.
//! Options that describe the store's files (tiers) are remembered in the file
//! `thermocline.toml` of the first tier, so that tools find the others.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thermocline_model::cuts::Cuts;
use thermocline_model::table::Compression;
use thermocline_model::tier::{DeviceProfile, TIERS_MAX};
use thermocline_model::view::ShapeOptions;

use crate::error::{Error, Result};

/// The name of the options file in the first tier's directory.
pub const OPTIONS_FILE: &str = "thermocline.toml";

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What an acknowledged write has survived.
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

/// One tier: a directory on one kind of storage.
///
/// ```
/// use thermocline::{Compression, Tier};
/// let tier = Tier::new("hdd", "/mnt/hdd/store")
///     .capacity_bytes(500 << 30)
///     .price_usd_gb_month(0.025)
///     .compression(Compression::Zstd);
/// assert_eq!(tier.name(), "hdd");
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    name: String,
    path: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capacity_bytes: Option<u64>,
    #[serde(default)]
    price_usd_gb_month: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<DeviceProfile>,
    #[serde(default)]
    compression: Compression,
    #[serde(default = "default_block_bytes")]
    block_bytes: u64,
    #[serde(default)]
    direct_io: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    io_budget_bytes_per_second: Option<u64>,
}

fn default_block_bytes() -> u64 {
    4 * KIB
}

impl Tier {
    /// A tier called `name` in the directory `path`, created if missing.
    #[must_use]
    pub fn new(name: &str, path: impl Into<PathBuf>) -> Tier {
        Tier {
            name: name.to_string(),
            path: path.into(),
            capacity_bytes: None,
            price_usd_gb_month: 0.0,
            profile: None,
            compression: Compression::None,
            block_bytes: default_block_bytes(),
            direct_io: false,
            io_budget_bytes_per_second: None,
        }
    }

    /// Bytes the store may keep here. Default: whatever the device has.
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: u64) -> Tier {
        self.capacity_bytes = Some(bytes);
        self
    }

    /// What it costs, in USD per 10^9 bytes and month. Default 0.
    #[must_use]
    pub fn price_usd_gb_month(mut self, price: f64) -> Tier {
        self.price_usd_gb_month = price;
        self
    }

    /// How fast its device is. Default: unknown.
    #[must_use]
    pub fn profile(mut self, profile: DeviceProfile) -> Tier {
        self.profile = Some(profile);
        self
    }

    /// How blocks written here are compressed. Default: not at all.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Tier {
        self.compression = compression;
        self
    }

    /// Bytes of a block before compression, from 512 to 4 MiB. Larger blocks
    /// compress better and suit devices that seek slowly. Default 4 KiB.
    #[must_use]
    pub fn block_bytes(mut self, bytes: u64) -> Tier {
        self.block_bytes = bytes;
        self
    }

    /// Whether to bypass the page cache, so that what is read from this tier
    /// pushes nothing out of it. Where the file system refuses direct I/O the
    /// store reads through the page cache.
    /// Default false.
    #[must_use]
    pub fn direct_io(mut self, direct: bool) -> Tier {
        self.direct_io = direct;
        self
    }

    /// Bytes per second that background work may read and write here, at least
    /// 1 MiB. Default: no limit.
    #[must_use]
    pub fn io_budget_bytes_per_second(mut self, bytes: u64) -> Tier {
        self.io_budget_bytes_per_second = Some(bytes);
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn moved_to(mut self, path: &Path) -> Tier {
        self.path = path.to_path_buf();
        self
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn capacity(&self) -> Option<u64> {
        self.capacity_bytes
    }

    pub(crate) fn price(&self) -> f64 {
        self.price_usd_gb_month
    }

    pub(crate) fn device_profile(&self) -> Option<DeviceProfile> {
        self.profile
    }

    pub(crate) fn block_compression(&self) -> Compression {
        self.compression
    }

    pub(crate) fn block_size(&self) -> usize {
        self.block_bytes as usize
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.direct_io
    }

    pub(crate) fn io_budget(&self) -> Option<u64> {
        self.io_budget_bytes_per_second
    }
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
    pub(crate) block_cache_bytes: u64,
    pub(crate) pinned_meta_bytes: u64,
    pub(crate) filter_bits_per_key: u32,
    pub(crate) durability: Durability,
    pub(crate) preset: String,
    pub(crate) background_threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) table_bytes: Option<u64>,
    pub(crate) newest_runs_merge: usize,
    pub(crate) newest_runs_stop: usize,
    pub(crate) first_level_bytes: u64,
    pub(crate) level_ratio: u64,
    pub(crate) log_segment_bytes: u64,
    pub(crate) log_bytes_max: u64,
    pub(crate) log_mapped: bool,
    pub(crate) restart_interval: u8,
    pub(crate) tier_fill_share: f64,
    pub(crate) reserve_bytes: u64,
    pub(crate) cuts: Vec<String>,
    #[serde(skip)]
    pub(crate) cuts_bytes: Vec<Vec<u8>>,
    #[serde(skip)]
    pub(crate) create_if_missing: bool,
    #[serde(skip)]
    pub(crate) read_only: bool,
    #[serde(rename = "tier")]
    pub(crate) tiers: Vec<Tier>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            write_buffer_bytes: 64 * MIB,
            memtable_bytes: None,
            block_cache_bytes: 128 * MIB,
            pinned_meta_bytes: 1024 * MIB,
            filter_bits_per_key: 10,
            durability: Durability::OperatingSystem,
            preset: "leveled".to_string(),
            background_threads: 2,
            table_bytes: None,
            newest_runs_merge: 4,
            newest_runs_stop: 24,
            first_level_bytes: 64 * MIB,
            level_ratio: 10,
            log_segment_bytes: 32 * MIB,
            log_bytes_max: 512 * MIB,
            log_mapped: true,
            restart_interval: 4,
            tier_fill_share: 0.95,
            reserve_bytes: 16 * MIB,
            cuts: Vec::new(),
            cuts_bytes: Vec::new(),
            create_if_missing: true,
            read_only: false,
            tiers: Vec::new(),
        }
    }
}

impl Options {
    /// Defaults without a tier: add at least one.
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }

    /// A store of one tier, called `main`, in the directory `path`.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Options {
        Options::new().tier(Tier::new("main", path))
    }

    /// Adds a tier, cheaper than those added before.
    #[must_use]
    pub fn tier(mut self, tier: Tier) -> Options {
        self.tiers.push(tier);
        self
    }

    /// Options from TOML text; what it does not name has its default.
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

    /// These options as TOML text.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // Cannot fail: plain numbers, strings and tables.
        toml::to_string(self).unwrap_or_default()
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

    /// Bytes of all memtables together, emptied ones that are kept for later
    /// included; writes wait for a flush beyond it. Default 64 MiB.
    #[must_use]
    pub fn write_buffer_bytes(mut self, bytes: u64) -> Options {
        self.write_buffer_bytes = bytes;
        self
    }

    /// Bytes of one memtable. Small ones take inserts several times faster, as
    /// they fit the processor's caches; many are flushed together. Default: an
    /// eighth of the write buffer.
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: u64) -> Options {
        self.memtable_bytes = Some(bytes);
        self
    }

    /// Bytes of the block cache, with all that it takes to find and to replace
    /// blocks; 0 switches it off. Default 128 MiB.
    #[must_use]
    pub fn block_cache_bytes(mut self, bytes: u64) -> Options {
        self.block_cache_bytes = bytes;
        self
    }

    /// Bytes of table metadata (block lists and filters) kept in memory. Beyond
    /// it, the metadata of the least used tables is read again when needed. Kept
    /// to at the end of each job and when the background rests. Default 1 GiB.
    #[must_use]
    pub fn pinned_meta_bytes(mut self, bytes: u64) -> Options {
        self.pinned_meta_bytes = bytes;
        self
    }

    /// Filter bits per key; 0 writes no filters, 10 lets 1 % of useless block
    /// reads through. At most 30. Default 10.
    #[must_use]
    pub fn filter_bits_per_key(mut self, bits: u32) -> Options {
        self.filter_bits_per_key = bits;
        self
    }

    /// The durability of writes that do not name their own. Default: the
    /// operating system.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// The preset: which planners, placer and heat tracker decide. Default
    /// `leveled`.
    #[must_use]
    pub fn preset(mut self, name: &str) -> Options {
        self.preset = name.to_string();
        self
    }

    /// Threads for flush, merge and relocation. With 0 nothing happens in the
    /// background: [`crate::Db::step`] runs one job at a time. Default 2.
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Options {
        self.background_threads = threads;
        self
    }

    /// Data bytes at which a merge starts a new table: the grain of placement.
    /// Default: a sixteenth of the smallest tier's capacity, from 1 to 32 MiB;
    /// 32 MiB where no tier has one.
    #[must_use]
    pub fn table_bytes(mut self, bytes: u64) -> Options {
        self.table_bytes = Some(bytes);
        self
    }

    /// Runs in a part's newest level that start a merge. Default 4.
    #[must_use]
    pub fn newest_runs_merge(mut self, runs: usize) -> Options {
        self.newest_runs_merge = runs;
        self
    }

    /// Runs in a part's newest level at which writes wait; slowdown begins at
    /// half of it. Default 24.
    #[must_use]
    pub fn newest_runs_stop(mut self, runs: usize) -> Options {
        self.newest_runs_stop = runs;
        self
    }

    /// Bytes of the first level below the newest. Default 64 MiB.
    #[must_use]
    pub fn first_level_bytes(mut self, bytes: u64) -> Options {
        self.first_level_bytes = bytes;
        self
    }

    /// How many times larger each level is than the one above. Default 10.
    #[must_use]
    pub fn level_ratio(mut self, ratio: u64) -> Options {
        self.level_ratio = ratio;
        self
    }

    /// Bytes of a log segment. Default 32 MiB.
    #[must_use]
    pub fn log_segment_bytes(mut self, bytes: u64) -> Options {
        self.log_segment_bytes = bytes;
        self
    }

    /// Log bytes beyond which the memtable that holds the oldest segment is
    /// flushed. Default 512 MiB.
    #[must_use]
    pub fn log_bytes_max(mut self, bytes: u64) -> Options {
        self.log_bytes_max = bytes;
        self
    }

    /// Whether the log is written through a memory map, which is several times
    /// faster and survives the end of the process just the same. Turn off on
    /// file systems whose maps misbehave. Default true.
    #[must_use]
    pub fn log_mapped(mut self, mapped: bool) -> Options {
        self.log_mapped = mapped;
        self
    }

    /// Entries between two restart points of a block: fewer make seeks and
    /// backward scans faster, more make blocks smaller. From 1 to 255.
    /// Default 4.
    #[must_use]
    pub fn restart_interval(mut self, entries: u8) -> Options {
        self.restart_interval = entries;
        self
    }

    /// The share of a tier's capacity that placement fills, from 0.1 to 1.
    /// Default 0.95.
    #[must_use]
    pub fn tier_fill_share(mut self, share: f64) -> Options {
        self.tier_fill_share = share;
        self
    }

    /// Bytes of the first tier that only log, manifest and flush may use.
    /// Default 16 MiB.
    #[must_use]
    pub fn reserve_bytes(mut self, bytes: u64) -> Options {
        self.reserve_bytes = bytes;
        self
    }

    /// Cuts of the default keyspace, strictly ascending: `n` cuts make `n + 1`
    /// parts, each with its own memtables. Only a new store takes them.
    /// Default: none.
    #[must_use]
    pub fn cuts(mut self, cuts: Vec<Vec<u8>>) -> Options {
        self.cuts_bytes = cuts;
        self
    }

    /// Whether a store is created where there is none. Default true.
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Options {
        self.create_if_missing = create;
        self
    }

    /// Whether to open for reading only: nothing is written, not even the
    /// recovery of the log, which is kept in memory. Default false.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.read_only = read_only;
        self
    }

    /// The tiers, fast to cheap.
    #[must_use]
    pub fn tier_list(&self) -> &[Tier] {
        &self.tiers
    }

    /// Replaces the tiers, keeping every other option.
    #[must_use]
    pub fn with_tiers(mut self, tiers: Vec<Tier>) -> Options {
        self.tiers = tiers;
        self
    }

    pub(crate) fn default_cuts(&self) -> Result<Cuts> {
        let texts = self.cuts.iter().map(|c| c.as_bytes().into());
        let bounds = texts
            .chain(self.cuts_bytes.iter().map(|c| c.as_slice().into()))
            .collect();
        Cuts::new(bounds).map_err(|e| Error::invalid(format!("option cuts: {e}")))
    }

    /// Data bytes of a full table.
    pub(crate) fn table_size(&self) -> u64 {
        let capacities = self.tiers.iter().filter_map(|t| t.capacity_bytes);
        let auto = capacities.min().map_or(32 * MIB, |smallest| smallest / 16);
        self.table_bytes.unwrap_or(auto.clamp(MIB, 32 * MIB))
    }

    pub(crate) fn memtable_capacity(&self) -> usize {
        let auto = (self.write_buffer_bytes / 8).clamp(64 * KIB, 64 * MIB);
        self.memtable_bytes.unwrap_or(auto) as usize
    }

    pub(crate) fn shape(&self) -> ShapeOptions {
        ShapeOptions {
            table_bytes: self.table_size(),
            newest_runs_merge: self.newest_runs_merge,
            first_level_bytes: self.first_level_bytes,
            level_ratio: self.level_ratio,
            flush_bytes: self.write_buffer_bytes / 4,
            log_bytes_max: self.log_bytes_max,
            tier_fill_share: self.tier_fill_share,
        }
    }

    /// Refuses what cannot work, naming option, value and bounds.
    pub(crate) fn check(&self) -> Result<()> {
        fn within<T: PartialOrd + std::fmt::Display>(
            name: &str,
            value: T,
            low: T,
            high: T,
        ) -> Result<()> {
            if value >= low && value <= high {
                return Ok(());
            }
            Err(Error::invalid(format!("option {name}"))
                .expected(format!("{low} to {high}"), value))
        }
        const TIB: u64 = 1 << 40;
        if self.tiers.is_empty() || self.tiers.len() > TIERS_MAX {
            let expected = format!("1 to {TIERS_MAX}");
            return Err(Error::invalid("number of tiers").expected(expected, self.tiers.len()));
        }
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
        within("background_threads", self.background_threads, 0, 64)?;
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
        for (i, tier) in self.tiers.iter().enumerate() {
            let name = &tier.name;
            if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
                return Err(Error::invalid(format!("name of tier {i}"))
                    .expected("1 to 64 printable characters", format!("{name:?}")));
            }
            if self.tiers[..i].iter().any(|t| t.name == *name) {
                return Err(Error::invalid(format!("two tiers are called {name:?}")));
            }
            if self.tiers[..i].iter().any(|t| t.path == tier.path) {
                return Err(Error::invalid(format!(
                    "two tiers have one directory, {name:?} is the second"
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
        self.default_cuts().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            let error = options.check().expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(Options::from_toml("no_such_option = 1").is_err());
        assert!(Options::from_toml("table_bytes = \"many\"").is_err());
    }
}
