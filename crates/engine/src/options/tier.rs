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
