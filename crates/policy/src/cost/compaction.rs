//! What a merge costs, and what reads have cost that it would have spared
//! (LogStore, section V-B, equations 10 and 11).
//!
//! Both are in seconds of device time, from the devices' profiles. Equation 10 is
//! for tables of one size; [`Work`] is the same sum for tables as they are: a seek
//! to the beginning of each input, and what is read and written, each at the speed
//! of its device.
//!
//! LogStore's rules weigh by this. What an event says that a job costs is by the one model of all
//! jobs ([`super::transfers`]), which differs by the seeks, and by the devices where profiles are
//! not known.

use thermocline_model::tier::TierState;

/// Seeks that a read takes on the paper's slow device: one for the index of the
/// table and one for the block.
pub const SEEKS_PAPER: f64 = 2.0;

/// Seeks that a read takes here: metadata are in memory or on the fast tier.
pub const SEEKS: f64 = 1.0;

/// The paper's devices, for tiers without a profile (section VI-A3 and VI-B1):
/// seeks per second, and 10^6 bytes per second.
const NOMINAL: [(f64, f64); 3] = [(6000.0, 480.0), (1500.0, 240.0), (60.0, 150.0)];

/// How fast a device is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Device {
    /// Seconds that a random read takes.
    pub seek_s: f64,
    /// Bytes per second, in a row.
    pub bytes_per_s: f64,
}

impl Device {
    /// Of so many random reads per second, and 10^6 bytes per second.
    #[must_use]
    pub fn new(random_read_iops: f64, sequential_mb_s: f64) -> Device {
        Device {
            seek_s: 1.0 / random_read_iops,
            bytes_per_s: sequential_mb_s * 1e6,
        }
    }

    /// The devices of all tiers: by their profiles, or the paper's devices where
    /// one has none: the first is its NVMe, the last its HDD, what lies between its
    /// SSD.
    #[must_use]
    pub fn of(tiers: &[TierState]) -> Vec<Device> {
        let known = tiers.iter().all(|t| t.profile.is_some());
        let nominal = |at: usize| match at {
            0 => NOMINAL[0],
            _ if at + 1 == tiers.len() => NOMINAL[2],
            _ => NOMINAL[1],
        };
        let device = |(at, tier): (usize, &TierState)| {
            let profile = tier.profile.filter(|_| known);
            let profile = profile.map(|p| (p.random_read_iops, p.sequential_mb_s));
            let (iops, mb_s) = profile.unwrap_or_else(|| nominal(at));
            Device::new(iops, mb_s)
        };
        tiers.iter().enumerate().map(device).collect()
    }
}

/// What a merge does on one device.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Tables read.
    pub tables: usize,
    /// Their bytes.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Work {
    /// Seconds that it takes on `device`: its share of equation 10.
    #[must_use]
    pub fn seconds(&self, device: Device) -> f64 {
        let bytes = self.read_bytes as f64 + self.written_bytes as f64;
        self.tables as f64 * device.seek_s + bytes / device.bytes_per_s
    }
}

/// Equation 10 for a merge that reads `slow` tables and `fast` ones, given with
/// their number and bytes, and writes all of it to the fast device.
#[must_use]
pub fn reverse_s(fast: (usize, u64), slow: (usize, u64), devices: (Device, Device)) -> f64 {
    let on_fast = Work {
        tables: fast.0,
        read_bytes: fast.1,
        written_bytes: fast.1 + slow.1,
    };
    let on_slow = Work {
        tables: slow.0,
        read_bytes: slow.1,
        written_bytes: 0,
    };
    on_fast.seconds(devices.0) + on_slow.seconds(devices.1)
}

/// Equation 11: what `reads` of a table have cost on `device`, at so many seeks
/// each.
#[must_use]
pub fn reads_s(reads: f64, seeks: f64, device: Device) -> f64 {
    seeks * reads * device.seek_s
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's NVMe and HDD.
    fn devices() -> (Device, Device) {
        (Device::new(6000.0, 480.0), Device::new(60.0, 150.0))
    }

    #[test]
    fn equation_10_comes_out_for_tables_of_one_size() {
        let (fast, slow) = devices();
        for (count, size) in [(1usize, 2e6), (3, 2e6), (8, 32e6)] {
            let t = count as f64;
            let paper = (t - 1.0) * fast.seek_s
                + slow.seek_s
                + size * ((2.0 * t - 1.0) / fast.bytes_per_s + 1.0 / slow.bytes_per_s);
            let bytes = size as u64;
            let fast_tables = (count - 1, bytes * (count as u64 - 1));
            let ours = reverse_s(fast_tables, (1, bytes), devices());
            assert!((ours - paper).abs() < 1e-12, "{ours} {paper}");
        }
    }

    #[test]
    fn equation_11_counts_two_seeks_a_read_in_the_paper_and_one_here() {
        let (_, slow) = devices();
        assert!((reads_s(60.0, SEEKS_PAPER, slow) - 2.0).abs() < 1e-12);
        assert!((reads_s(60.0, SEEKS, slow) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn tiers_without_a_profile_are_taken_for_the_papers_devices() {
        let tier = |profile| TierState {
            id: thermocline_model::TierId(0),
            name: String::new(),
            used_bytes: 0,
            capacity_bytes: 0,
            device_free_bytes: 0,
            reserve_bytes: 0,
            price_usd_gb_month: 0.0,
            profile,
        };
        let devices_of = |count| Device::of(&vec![tier(None); count]);
        assert_eq!(devices_of(2), [devices().0, devices().1]);
        assert_eq!(devices_of(3)[1], Device::new(1500.0, 240.0));
        let profile = thermocline_model::DeviceProfile {
            random_read_iops: 100.0,
            sequential_mb_s: 10.0,
        };
        assert_eq!(
            Device::of(&[tier(Some(profile))]),
            [Device::new(100.0, 10.0)]
        );
        let half = Device::of(&[tier(Some(profile)), tier(None)]);
        assert_eq!(
            half,
            [devices().0, devices().1],
            "proportions must be right"
        );
    }
}
