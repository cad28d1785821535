//! What a job costs the devices: the one model of it, which every event's prediction and every rule
//! that has no equation of its own goes by.
//!
//! A job transfers bytes, in pieces so large that seeks count for little, so it takes each device
//! the time that this takes by its profile ([`Devices::transfer_seconds`]). LogStore's rules weigh
//! equation 10 instead, which counts a seek for each table ([`super::compaction`]): their events
//! name what these compared as such, beside the cost by this model.

use thermocline_model::predicted::Predicted;
use thermocline_model::tier::TIERS_MAX;

use crate::cost::device::Devices;

/// The bytes that a job transfers, by tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Transfers {
    read: [u64; TIERS_MAX],
    written: [u64; TIERS_MAX],
    /// Of what was written, that which is read back to see that it is sound.
    checked: [u64; TIERS_MAX],
}

impl Transfers {
    /// Of a table's data from one tier to another: read, written, and read back.
    #[must_use]
    pub fn of_move(from: usize, to: usize, bytes: u64) -> Transfers {
        let mut transfers = Transfers::default();
        transfers.read(from, bytes);
        transfers.write(to, bytes);
        transfers.checked[to.min(TIERS_MAX - 1)] += bytes;
        transfers
    }

    /// Of `bytes` that are read on a tier and written there anew.
    #[must_use]
    pub fn of_rewrite(tier: usize, bytes: u64) -> Transfers {
        let mut transfers = Transfers::default();
        transfers.read(tier, bytes);
        transfers.write(tier, bytes);
        transfers
    }

    /// Bytes more are read of a tier.
    pub fn read(&mut self, tier: usize, bytes: u64) {
        let read = &mut self.read[tier.min(TIERS_MAX - 1)];
        *read = read.saturating_add(bytes);
    }

    /// Bytes more are written to it.
    pub fn write(&mut self, tier: usize, bytes: u64) {
        let written = &mut self.written[tier.min(TIERS_MAX - 1)];
        *written = written.saturating_add(bytes);
    }

    /// All that is written is read back.
    pub fn read_back(&mut self) {
        self.checked = self.written;
    }

    /// Bytes written to each tier.
    #[must_use]
    pub fn written(&self) -> [u64; TIERS_MAX] {
        self.written
    }

    /// By how many bytes each tier has more afterwards, if what was read goes.
    #[must_use]
    pub fn moved(&self) -> [i64; TIERS_MAX] {
        std::array::from_fn(|tier| self.written[tier] as i64 - self.read[tier] as i64)
    }

    /// Seconds that this takes the device of a tier.
    #[must_use]
    pub fn seconds(&self, devices: &Devices, tier: usize) -> f64 {
        let bytes = self.read[tier]
            .saturating_add(self.written[tier])
            .saturating_add(self.checked[tier]);
        devices.transfer_seconds(tier, bytes).min(f64::MAX)
    }

    /// Of all devices together.
    #[must_use]
    pub fn total_seconds(&self, devices: &Devices) -> f64 {
        (0..TIERS_MAX).map(|tier| self.seconds(devices, tier)).sum()
    }

    /// The prediction of a job that does this, to which its benefits are to be added. What is
    /// read back counts in its seconds alone.
    #[must_use]
    pub fn predicted(&self, devices: &Devices) -> Predicted {
        let tiers = 0..devices.tiers().min(TIERS_MAX);
        Predicted {
            read_bytes: self.read.iter().fold(0, |sum, b| sum.saturating_add(*b)),
            written_bytes: self.written.iter().fold(0, |sum, b| sum.saturating_add(*b)),
            device_seconds: tiers.map(|tier| self.seconds(devices, tier)).collect(),
            benefits: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use thermocline_model::DeviceProfile;

    use super::*;

    #[test]
    fn each_device_takes_the_time_of_what_it_transfers() {
        let profile = |sequential_mb_s| {
            Some(DeviceProfile {
                random_read_iops: 1000.0,
                sequential_mb_s,
            })
        };
        let devices = Devices::with([profile(100.0), profile(10.0)].into_iter());
        let mut merge = Transfers::of_rewrite(0, 50_000_000);
        merge.read(1, 10_000_000);
        merge.write(1, 20_000_000);
        let predicted = merge.predicted(&devices);
        assert_eq!(predicted.device_seconds, [1.0, 3.0]);
        assert_eq!(predicted.read_bytes, 60_000_000);
        assert_eq!(predicted.written_bytes, 70_000_000);
        assert_eq!(merge.total_seconds(&devices), predicted.cost_seconds());
        assert_eq!(merge.moved()[..2], [0, 10_000_000]);
        // What is written is read back.
        merge.read_back();
        let predicted = merge.predicted(&devices);
        assert_eq!(predicted.device_seconds, [1.5, 5.0]);
        assert_eq!(predicted.read_bytes, 60_000_000);
        // Read, written, and read back, which is no byte that the job is to read.
        let moved = Transfers::of_move(0, 1, 10_000_000).predicted(&devices);
        assert_eq!(moved.device_seconds, [0.1, 2.0]);
        assert_eq!(
            (moved.read_bytes, moved.written_bytes),
            (10_000_000, 10_000_000)
        );
    }
}
