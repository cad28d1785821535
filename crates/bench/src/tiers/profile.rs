//! What the emulated devices are, as data: caps and prices, each with its source.
//!
//! A cap is what the device gives at most; it says nothing of latency below it.
//! Where a paper gives requests a second but no bandwidth, the bandwidth is that
//! of the device it names, and the source says so. Prices are those of table 2
//! of the Mutant paper (AWS, February 2018), so that they fit together: local
//! SSD 0.528, remote SSD 0.100, remote magnetic 0.045.

/// The caps and the price of a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Profile {
    /// The name on the command line.
    pub name: &'static str,
    /// Read requests a second, whatever their size up to about 1 MiB.
    pub random_read_iops: u64,
    /// Bytes read a second, in units of 10^6.
    pub read_mb_s: u64,
    /// Write requests a second.
    pub write_iops: u64,
    /// Bytes written a second, in units of 10^6.
    pub write_mb_s: u64,
    /// Price of 10^9 bytes for a month.
    pub price_usd_per_gb_month: f64,
    /// Where the numbers come from.
    pub source: &'static str,
}

impl Profile {
    /// Bytes read a second.
    pub(crate) fn read_bytes_per_second(&self) -> u64 {
        self.read_mb_s * 1_000_000
    }

    /// Bytes written a second.
    pub(crate) fn write_bytes_per_second(&self) -> u64 {
        self.write_mb_s * 1_000_000
    }

    /// The profile of that name.
    pub(crate) fn named(name: &str) -> Option<Profile> {
        PROFILES
            .iter()
            .copied()
            .find(|profile| profile.name == name)
    }

    /// All names, for a command line.
    pub(crate) fn names() -> Vec<&'static str> {
        PROFILES.iter().map(|profile| profile.name).collect()
    }
}

/// Every profile, from fast to slow.
pub(crate) const PROFILES: &[Profile] = &[
    Profile {
        name: "native",
        random_read_iops: 1_000_000_000,
        read_mb_s: 1_000_000,
        write_iops: 1_000_000_000,
        write_mb_s: 1_000_000,
        price_usd_per_gb_month: 0.528,
        source: "ours: caps that nothing here reaches, so that memory alone is capped; price: \
                 Mutant, table 2, local SSD",
    },
    Profile {
        name: "nvme",
        random_read_iops: 180_000,
        read_mb_s: 738,
        write_iops: 99_900,
        write_mb_s: 410,
        price_usd_per_gb_month: 0.528,
        source: "LogStore, table II, NVMe: 180K reads or 99.9K writes a second; MB/s are these \
                 times 4 KiB, as the paper gives none; price: Mutant, table 2, local SSD",
    },
    Profile {
        name: "sata",
        random_read_iops: 96_000,
        read_mb_s: 560,
        write_iops: 51_000,
        write_mb_s: 510,
        price_usd_per_gb_month: 0.1,
        source: "HyperDB, section 4.1, names a 960 GB Intel D3-S4610; numbers of that device's data \
                 sheet; price: Mutant, table 2, remote SSD",
    },
    Profile {
        name: "ssd",
        random_read_iops: 15_000,
        read_mb_s: 240,
        write_iops: 15_000,
        write_mb_s: 240,
        price_usd_per_gb_month: 0.1,
        source: "LogStore, table II, SSD: 15K reads or writes a second; MB/s: Google's limit of a \
                 1 TB SSD persistent disk on a machine of 4 vCPU in the paper's year; price: \
                 Mutant, table 2, remote SSD",
    },
    Profile {
        name: "hdd",
        random_read_iops: 3_000,
        read_mb_s: 180,
        write_iops: 6_000,
        write_mb_s: 120,
        price_usd_per_gb_month: 0.045,
        source: "LogStore, table II, HDD: 3K reads or 6K writes a second; MB/s: Google's limit of \
                 a standard persistent disk in the paper's year; price: Mutant, table 2, remote \
                 magnetic",
    },
    Profile {
        name: "ebs-st1",
        random_read_iops: 500,
        read_mb_s: 500,
        write_iops: 500,
        write_mb_s: 500,
        price_usd_per_gb_month: 0.045,
        source: "Mutant, table 2, remote magnetic: at most 500 requests a second, which st1 counts \
                 by the MiB; MB/s: Amazon's limit of an st1 volume; price: the same table",
    },
    Profile {
        name: "hdd-seek",
        random_read_iops: 60,
        read_mb_s: 150,
        write_iops: 150,
        write_mb_s: 150,
        price_usd_per_gb_month: 0.045,
        source: "ours: one disc that seeks for each read, 60 random reads a second and 150 MB/s; \
                 150 writes a second, since a disc sorts what it has to write; price: Mutant, \
                 table 2, remote magnetic",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        let names = Profile::names();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name} twice");
            assert_eq!(Profile::named(name).unwrap().name, *name);
        }
        assert_eq!(Profile::named("tape"), None);
    }

    #[test]
    fn no_cap_is_zero_since_the_kernel_takes_zero_for_none() {
        for profile in PROFILES {
            let caps = [
                profile.random_read_iops,
                profile.read_mb_s,
                profile.write_iops,
                profile.write_mb_s,
            ];
            assert!(!caps.contains(&0), "{}", profile.name);
            assert!(profile.price_usd_per_gb_month > 0.0, "{}", profile.name);
        }
    }
}
