//! One tier's options: where it is, how large, how dear, how written.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thermocline_model::table::Compression;
use thermocline_model::tier::DeviceProfile;

use super::KIB;

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
    pub(super) name: String,
    pub(super) path: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) capacity_bytes: Option<u64>,
    #[serde(default)]
    pub(super) price_usd_gb_month: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) profile: Option<DeviceProfile>,
    #[serde(default)]
    compression: Compression,
    #[serde(default = "default_block_bytes")]
    pub(super) block_bytes: u64,
    #[serde(default)]
    direct_io: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) io_budget_bytes_per_second: Option<u64>,
}

fn default_block_bytes() -> u64 {
    4 * KIB
}

impl Tier {
    /// A tier called `name` in the directory `path`, created if missing. No two
    /// tiers share a name or a directory.
    ///
    /// A name has 1 to 64 ASCII letters, digits, `-`, `_` and `.`; it begins
    /// with a letter or digit and does not end with `.`. Names of devices
    /// (`con`, `nul`, `com1`, ...) are refused, as are two that differ in case
    /// alone, for a checkpoint makes a directory of each name.
    ///
    /// ```
    /// let tier = thermocline::Tier::new("nvme", "/mnt/nvme/store");
    /// assert_eq!(tier.name(), "nvme");
    /// assert_eq!(tier.path(), std::path::Path::new("/mnt/nvme/store"));
    /// ```
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

    /// Bytes of tables the store may keep here; what does not fit goes to the
    /// next tier. Default: whatever the device has. While a merge runs, what it
    /// replaces is there beside what it writes, and only one of them counts: leave
    /// as much room on the device.
    ///
    /// If every tier has a capacity and all are full, puts fail with
    /// [`crate::ErrorKind::NoSpace`]; reads, deletes and compactions go on, and
    /// writing resumes once there is room. Log and manifest are not counted.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = Tier::new("nvme", directory.path()).capacity_bytes(20_000_000_000);
    /// let db = Db::open(Options::new().tier(tier))?;
    /// assert_eq!(db.stats().tiers[0].capacity_bytes, 20_000_000_000);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: u64) -> Tier {
        self.capacity_bytes = Some(bytes);
        self
    }

    /// What it costs, in USD per 10^9 bytes and month. From 0, default 0.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = Tier::new("hdd", directory.path()).price_usd_gb_month(0.02);
    /// let db = Db::open(Options::new().tier(tier))?;
    /// db.put(b"key", &[0; 100_000])?;
    /// db.flush()?;
    /// let hdd = &db.stats().tiers[0];
    /// assert_eq!(hdd.price_usd_month, hdd.used_bytes as f64 / 1e9 * 0.02);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn price_usd_gb_month(mut self, price: f64) -> Tier {
        self.price_usd_gb_month = price;
        self
    }

    /// How fast its device is, both numbers above 0. Default: unknown.
    ///
    /// ```
    /// # use thermocline::{Options, Tier};
    /// use thermocline::DeviceProfile;
    /// let disk = DeviceProfile { random_read_iops: 150.0, sequential_mb_s: 180.0 };
    /// let options = Options::new().tier(Tier::new("hdd", "/mnt/hdd/store").profile(disk));
    /// assert!(options.to_toml().contains("random_read_iops = 150.0"));
    /// ```
    #[must_use]
    pub fn profile(mut self, profile: DeviceProfile) -> Tier {
        self.profile = Some(profile);
        self
    }

    /// How blocks written here are compressed. Default: not at all.
    ///
    /// ```
    /// # use thermocline::{Compression, Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = Tier::new("hdd", directory.path()).compression(Compression::Zstd);
    /// let db = Db::open(Options::new().tier(tier))?;
    /// db.put(b"key", &[b'a'; 100_000])?;
    /// db.flush()?;
    /// assert!(db.tables()[0].data_bytes < 1000);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Tier {
        self.compression = compression;
        self
    }

    /// Bytes of a block before compression, from 512 to 4 MiB. Larger blocks
    /// compress better and suit devices that seek slowly. Default 4 KiB.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = Tier::new("hdd", directory.path()).block_bytes(16 << 10); // 16 KiB
    /// assert!(Db::open(Options::new().tier(tier.clone())).is_ok());
    /// let error = Db::open(Options::new().tier(tier.block_bytes(100))).unwrap_err();
    /// assert!(error.to_string().contains("expected 512 to 4194304, found 100"));
    /// ```
    #[must_use]
    pub fn block_bytes(mut self, bytes: u64) -> Tier {
        self.block_bytes = bytes;
        self
    }

    /// Whether to bypass the page cache, so that what is read from this tier
    /// pushes nothing out of it. Where the file system refuses direct I/O the
    /// store reads through the page cache; [`crate::TierStats::direct_io`] tells.
    /// The system's own read-ahead is bypassed too; [`crate::Options::read_threads`]
    /// stand in for it. Default false.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = Tier::new("hdd", directory.path()).direct_io(true);
    /// let db = Db::open(Options::new().tier(tier).block_cache_bytes(512 << 20))?;
    /// // Whether the file system went along is in the statistics.
    /// let in_use: bool = db.stats().tiers[0].direct_io;
    /// # let _ = in_use;
    /// db.put(b"key", b"value")?;
    /// db.flush()?;
    /// assert!(db.get(b"key")?.is_some());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn direct_io(mut self, direct: bool) -> Tier {
        self.direct_io = direct;
        self
    }

    /// Bytes per second that background work may read and write here, at least
    /// 1 MiB. Default: no limit.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = Tier::new("hdd", directory.path());
    /// let gentle = tier.clone().io_budget_bytes_per_second(50 << 20); // 50 MiB a second
    /// assert!(Db::open(Options::new().tier(gentle)).is_ok());
    /// let error = Db::open(Options::new().tier(tier.io_budget_bytes_per_second(50))).unwrap_err();
    /// assert!(error.to_string().contains("io_budget_bytes_per_second"));
    /// ```
    #[must_use]
    pub fn io_budget_bytes_per_second(mut self, bytes: u64) -> Tier {
        self.io_budget_bytes_per_second = Some(bytes);
        self
    }

    /// The name.
    ///
    /// ```
    /// assert_eq!(thermocline::Options::at("/data").tier_list()[0].name(), "main");
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn moved_to(mut self, path: &Path) -> Tier {
        self.path = path.to_path_buf();
        self
    }

    /// The directory.
    ///
    /// ```
    /// let options = thermocline::Options::at("/data");
    /// assert_eq!(options.tier_list()[0].path(), std::path::Path::new("/data"));
    /// ```
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
