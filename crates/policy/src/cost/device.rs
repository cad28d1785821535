//! How fast devices are, as far as decisions care.
//!
//! Profiles count only where every tier has one: numbers measured here and guessed
//! there would compare nothing. Without them each tier is taken to be so many times
//! slower than the one before.

use thermocline_model::tier::DeviceProfile;
use thermocline_model::view::View;

/// Random reads that the first tier is taken to serve in a second where profiles
/// are not known; every further tier serves a tenth of the one before.
const IOPS_NOMINAL: f64 = 100_000.0;

/// Megabytes that the first tier is taken to transfer in a second where profiles
/// are not known; every further tier transfers a third of the one before.
const MB_S_NOMINAL: f64 = 1000.0;

/// The devices of a view's tiers.
#[derive(Clone, PartialEq, Debug)]
pub struct Devices {
    profiles: Vec<DeviceProfile>,
}

impl Devices {
    /// Of the tiers of `view`.
    #[must_use]
    pub fn of(view: &View<'_>) -> Devices {
        let known = view.tiers.iter().all(|t| t.profile.is_some());
        let nominal = |at: i32| DeviceProfile {
            random_read_iops: IOPS_NOMINAL / 10f64.powi(at),
            sequential_mb_s: MB_S_NOMINAL / 3f64.powi(at),
        };
        let tiers = view.tiers.iter().zip(0..);
        let profile = |(tier, at): (&thermocline_model::TierState, i32)| {
            tier.profile
                .filter(|_| known)
                .unwrap_or_else(|| nominal(at))
        };
        Devices {
            profiles: tiers.map(profile).collect(),
        }
    }

    fn profile(&self, tier: usize) -> DeviceProfile {
        let last = self.profiles.len().saturating_sub(1);
        let found = self.profiles.get(tier.min(last)).copied();
        found.unwrap_or(DeviceProfile {
            random_read_iops: IOPS_NOMINAL,
            sequential_mb_s: MB_S_NOMINAL,
        })
    }

    /// Microseconds that reading a block takes.
    #[must_use]
    pub fn read_us(&self, tier: usize) -> f64 {
        1e6 / self.profile(tier).random_read_iops
    }

    /// Seconds that transferring `bytes` in large pieces takes.
    #[must_use]
    pub fn transfer_seconds(&self, tier: usize, bytes: u64) -> f64 {
        bytes as f64 / (self.profile(tier).sequential_mb_s * 1e6)
    }

    /// Seconds of devices that moving `bytes` from a tier to another takes: read,
    /// written, and read back.
    #[must_use]
    pub fn move_seconds(&self, from: usize, to: usize, bytes: u64) -> f64 {
        self.transfer_seconds(from, bytes) + 2.0 * self.transfer_seconds(to, bytes)
    }
}
