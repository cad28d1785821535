//! How fast devices are, as far as decisions care.
//!
//! Profiles count only where every tier has one: numbers measured here and guessed
//! there would compare nothing. Without them each tier is taken to be so many times
//! slower than the one before.

use thermocline_model::tier::DeviceProfile;
use thermocline_model::view::View;

use crate::cost::transfers::Transfers;

/// Random reads that the first tier is taken to serve in a second where profiles
/// are not known; every further tier serves a tenth of the one before.
const IOPS_NOMINAL: f64 = 100_000.0;

/// Megabytes that the first tier is taken to transfer in a second where profiles
/// are not known; every further tier transfers a third of the one before.
const MB_S_NOMINAL: f64 = 1000.0;

/// Microseconds of a processor that reading a block takes, whatever the device.
const READ_CPU_US: f64 = 20.0;

/// Most uses of a block that count as one: so that what is used very much gets in, however fast
/// its device is.
const USES_MAX: f64 = 64.0;

/// The devices of a view's tiers.
#[derive(Clone, PartialEq, Debug)]
pub struct Devices {
    profiles: Vec<DeviceProfile>,
    known: bool,
}

impl Devices {
    /// Of the tiers of `view`.
    #[must_use]
    pub fn of(view: &View<'_>) -> Devices {
        Devices::with(view.tiers.iter().map(|t| t.profile))
    }

    /// Of tiers with these profiles, as far as they are known.
    #[must_use]
    pub fn with(profiles: impl Iterator<Item = Option<DeviceProfile>> + Clone) -> Devices {
        let known = profiles.clone().all(|profile| profile.is_some());
        let nominal = |at: i32| DeviceProfile {
            random_read_iops: IOPS_NOMINAL / 10f64.powi(at),
            sequential_mb_s: MB_S_NOMINAL / 3f64.powi(at),
        };
        let profile = |(profile, at): (Option<DeviceProfile>, i32)| {
            profile.filter(|_| known).unwrap_or_else(|| nominal(at))
        };
        Devices {
            profiles: profiles.zip(0..).map(profile).collect(),
            known,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn tiers(&self) -> usize {
        self.profiles.len()
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

    /// Of each tier, how many uses of its blocks in the block cache count for as much as one
    /// use of a block of the slowest tier: what is worth keeping is what saves most time, not
    /// what is used most. One where profiles are not known.
    #[must_use]
    pub fn uses_for_one(&self) -> Vec<u32> {
        if !self.known {
            return vec![1; self.profiles.len()];
        }
        let costs = || (0..self.profiles.len()).map(|tier| self.read_us(tier) + READ_CPU_US);
        let dearest = costs().fold(0.0, f64::max);
        let uses = |cost: f64| (dearest / cost).round().clamp(1.0, USES_MAX);
        costs().map(|cost| uses(cost) as u32).collect()
    }

    /// Of each tier, the bytes that are transferred in the time that one random read takes: so many
    /// may be read in vain for a read less.
    #[must_use]
    pub fn bytes_for_one_read(&self) -> Vec<u64> {
        let bytes = |profile: &DeviceProfile| {
            (profile.sequential_mb_s * 1e6 / profile.random_read_iops) as u64
        };
        self.profiles.iter().map(bytes).collect()
    }

    /// Seconds that transferring `bytes` in large pieces takes.
    #[must_use]
    pub fn transfer_seconds(&self, tier: usize, bytes: u64) -> f64 {
        bytes as f64 / (self.profile(tier).sequential_mb_s * 1e6)
    }

    /// Seconds of devices that moving `bytes` from a tier to another takes.
    #[must_use]
    pub fn move_seconds(&self, from: usize, to: usize, bytes: u64) -> f64 {
        Transfers::of_move(from, to, bytes).total_seconds(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_count_by_what_the_read_would_have_cost() {
        let uses = |iops: &[Option<f64>]| {
            let profile = |iops: &Option<f64>| {
                iops.map(|random_read_iops| DeviceProfile {
                    random_read_iops,
                    sequential_mb_s: 100.0,
                })
            };
            Devices::with(iops.iter().map(profile)).uses_for_one()
        };
        assert_eq!(uses(&[]), []);
        assert_eq!(uses(&[Some(1000.0)]), [1]);
        assert_eq!(uses(&[Some(1000.0), Some(1000.0)]), [1, 1]);
        // 20 + 5 microseconds, 20 + 330, 20 + 10,000.
        assert_eq!(uses(&[Some(180_000.0), Some(3000.0)]), [14, 1]);
        assert_eq!(
            uses(&[Some(180_000.0), Some(3000.0), Some(100.0)]),
            [64, 28, 1]
        );
        assert_eq!(uses(&[Some(100.0), Some(180_000.0)]), [1, 64]);
        assert_eq!(uses(&[None, Some(3000.0)]), [1, 1]);
    }
}
