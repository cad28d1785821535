//! Tiers: where bytes can lie, what they cost there, and how fast they are.

use serde::{Deserialize, Serialize};

/// A tier's position in the order from fast (0) to cheap. Also the number of
/// its one store: a tier of several stores comes with the distributed engine.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TierId(pub u32);

impl std::fmt::Display for TierId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Most tiers a store may have.
pub const TIERS_MAX: usize = 16;

/// Whether `name` may be a tier's. A checkpoint makes a directory of that name,
/// so it must be one on every file system, and lie where it is put.
#[must_use]
pub fn is_tier_name(name: &str) -> bool {
    const RESERVED: [&str; 4] = ["con", "prn", "aux", "nul"];
    let stem = name.split('.').next().unwrap_or("").to_ascii_lowercase();
    let numbered = (stem.strip_prefix("com").or(stem.strip_prefix("lpt")))
        .is_some_and(|rest| rest.len() == 1 && rest.bytes().all(|b| b.is_ascii_digit()));
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !name.ends_with('.')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && !RESERVED.contains(&&*stem)
        && !numbered
}

/// How fast a device is, as far as placement cares.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// Random reads of one block per second.
    pub random_read_iops: f64,
    /// Sequential transfer in 10^6 bytes per second.
    pub sequential_mb_s: f64,
}

/// A tier as placement sees it now.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TierState {
    /// The tier.
    pub id: TierId,
    /// Its name.
    pub name: String,
    /// Bytes of live and dying objects on it.
    pub used_bytes: u64,
    /// Bytes it may hold: the configured capacity, or what the device has.
    pub capacity_bytes: u64,
    /// Bytes free on the device, whoever uses the rest.
    pub device_free_bytes: u64,
    /// Bytes that placement may never use: the reserve of log, flush and
    /// manifest. Zero on all tiers but the first and the log's.
    pub reserve_bytes: u64,
    /// Price in USD per 10^9 bytes and month.
    pub price_usd_gb_month: f64,
    /// How fast it is, if known.
    pub profile: Option<DeviceProfile>,
}

impl TierState {
    /// Bytes that placement may still put here.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        self.room_beside(0)
    }

    /// The same, where `replaced` bytes that are here now do not count against the
    /// capacity: what is put here takes their place. On the device both must have room.
    #[must_use]
    pub fn room_beside(&self, replaced: u64) -> u64 {
        let capacity = self.capacity_bytes.saturating_add(replaced);
        let by_capacity = capacity.saturating_sub(self.used_bytes);
        by_capacity
            .min(self.device_free_bytes)
            .saturating_sub(self.reserve_bytes)
    }
}
