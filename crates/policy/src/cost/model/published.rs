//! The predictions that the LogStore paper prints, and what this model says of
//! their inputs as far as the paper states them.
//!
//! Table IV and section VI-B1 come out to the last digit, read with MB of 10^6 bytes
//! and records of 1024. One number has a history: LevelDB on NVMe allows 3,551.1 writes
//! a second by equation 7, and the paper prints 3,552. That is 3.2 times 1,110, which is
//! the rounded number of the HDD, by the speeds of the two devices; 1,776 is
//! 1.6 times 1,110 in the same way, and comes out by equation 7 too.
//! [`Published::rounded_as_there`] takes that step, [`Published::ours`] does not.
//!
//! Table V says that it uses the inputs of table IV and of VI-B1. Equation 9 gives other numbers
//! with them, and no other inputs can have been used for all its rows: see [`fits`]. So the model's
//! numbers stand beside the paper's, and differ.

use thermocline_model::tier::DeviceProfile;

use super::{Access, Model, ModelTier, Shares};

/// Bytes of a record: section VI-B1 says 1 KB.
const RECORD_BYTES: f64 = 1024.0;
/// LevelDB's factor from level to level.
const GROWTH: f64 = 10.0;
/// Levels of LevelDB (section VI-B).
const LEVELDB_LEVELS: u32 = 7;
/// Records of the paper's data set (section VI).
const RECORDS: u64 = 100_000_000;
/// Memory beside the data: 8 GB of roughly 100.
const MEMORY_SHARE: f64 = 0.08;
/// Share of the data on the fast device of a LogStore.
const FAST_SHARE: f64 = 0.5;
/// What memory answers of the reads (section VI-A3).
const MEMORY_READS: f64 = 0.7;
/// What the fast device of a LogStore answers of them (section VI-A3).
const FAST_READS: f64 = 0.227;

/// Rates of the paper's NVMe: seeks from section VI-A3, transfer from VI-B1.
pub const NVME: DeviceProfile = DeviceProfile {
    random_read_iops: 6000.0,
    sequential_mb_s: 480.0,
};
/// Rates of its SSD.
pub const SSD: DeviceProfile = DeviceProfile {
    random_read_iops: 1500.0,
    sequential_mb_s: 240.0,
};
/// Rates of its HDD.
pub const HDD: DeviceProfile = DeviceProfile {
    random_read_iops: 60.0,
    sequential_mb_s: 150.0,
};

/// Where the paper predicts writes alone.
const SECTION_VI_B1: &str = "VI-B1";

/// A prediction of the paper.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Published {
    /// Where it stands.
    pub place: &'static str,
    /// The system, by the paper's name (its table III).
    pub system: &'static str,
    /// The share of reads among the operations.
    pub reads: f64,
    /// Operations a second, as printed in the column of the model.
    pub predicted: f64,
    /// Operations a second that the paper measured, where it says them in numbers.
    pub measured: Option<f64>,
}

impl Published {
    /// What this model says of the same, in operations a second; no number for a
    /// system that is not in the paper.
    #[must_use]
    pub fn ours(&self) -> f64 {
        let model = system(self.system, self.reads).and_then(|model| model.predict().ok());
        model.map_or(f64::NAN, |prediction| prediction.operations_per_second)
    }

    /// The same, rounded where the paper rounds: LevelDB's writes a second (VI-B1) are
    /// the whole number of the HDD times the ratio of the devices' speeds. [`Published::ours`]
    /// for all others.
    #[must_use]
    pub fn rounded_as_there(&self) -> f64 {
        let device = match (self.place, self.system) {
            (SECTION_VI_B1, "LDB-SSD") => SSD,
            (SECTION_VI_B1, "LDB-NVMe") => NVME,
            _ => return self.ours(),
        };
        let on_hdd = Self {
            system: "LDB-HDD",
            ..*self
        };
        on_hdd.ours().round() * (device.sequential_mb_s / HDD.sequential_mb_s)
    }

    /// Whether [`Published::rounded_as_there`] rounds to the number that is printed.
    #[must_use]
    pub fn comes_out(&self) -> bool {
        self.rounded_as_there().round() == self.predicted
    }
}

/// The paper's system of that name, with the inputs that the paper states.
#[must_use]
pub fn system(name: &str, reads: f64) -> Option<Model> {
    let one = |profile| {
        let tier = ModelTier {
            profile,
            data_share: 1.0,
            levels: LEVELDB_LEVELS,
            probes: 1,
        };
        (vec![tier], vec![1.0 - MEMORY_READS])
    };
    let two = |fast, slow| {
        let tier = |profile, data_share, levels| ModelTier {
            profile,
            data_share,
            levels,
            probes: 1,
        };
        let tiers = vec![tier(fast, FAST_SHARE, 2), tier(slow, 1.0 - FAST_SHARE, 1)];
        (tiers, vec![FAST_READS, 1.0 - MEMORY_READS - FAST_READS])
    };
    let (tiers, answered) = match name {
        "LDB-HDD" => one(HDD),
        "LDB-SSD" => one(SSD),
        "LDB-NVMe" => one(NVME),
        "LS-NH" => two(NVME, HDD),
        "LS-NS" => two(NVME, SSD),
        "LS-SH" => two(SSD, HDD),
        _ => return None,
    };
    Some(Model {
        tiers,
        memory_share: MEMORY_SHARE,
        records: RECORDS,
        record_bytes: RECORD_BYTES,
        growth: GROWTH,
        access: Access::Given(Shares {
            memory: MEMORY_READS,
            tiers: answered,
        }),
        reads,
    })
}

/// All predictions that the paper prints as numbers.
#[must_use]
pub fn published() -> Vec<Published> {
    let row = |place, system, reads, predicted, measured| Published {
        place,
        system,
        reads,
        predicted,
        measured,
    };
    let mut rows = vec![
        row("table IV", "LDB-HDD", 1.0, 200.0, Some(196.0)),
        row("table IV", "LS-NH", 1.0, 822.0, Some(773.0)),
        row("table IV", "LDB-SSD", 1.0, 5_000.0, Some(4_785.0)),
        row("table IV", "LDB-NVMe", 1.0, 20_000.0, Some(18_029.0)),
        row(SECTION_VI_B1, "LDB-HDD", 0.0, 1_110.0, None),
        row(SECTION_VI_B1, "LDB-SSD", 0.0, 1_776.0, None),
        row(SECTION_VI_B1, "LDB-NVMe", 0.0, 3_552.0, None),
        row(SECTION_VI_B1, "LS-NH", 0.0, 6_658.0, None),
    ];
    for (place, reads, cells) in [
        (
            "table V, B-90",
            0.9,
            [
                (180.0, 181.0),
                (2_962.0, 2_507.0),
                (15_586.0, 13_641.0),
                (745.0, 656.0),
            ],
        ),
        (
            "table V, A",
            0.5,
            [
                (312.0, 342.9),
                (6_148.0, 5_575.0),
                (14_940.0, 15_764.0),
                (1_215.0, 967.0),
            ],
        ),
        (
            "table V, B-10",
            0.1,
            [
                (1_441.0, 1_809.0),
                (10_441.0, 13_591.0),
                (16_459.0, 11_412.0),
                (3_753.0, 3_095.0),
            ],
        ),
    ] {
        let systems = ["LDB-HDD", "LDB-SSD", "LDB-NVMe", "LS-NH"];
        for (system, (predicted, measured)) in systems.into_iter().zip(cells) {
            rows.push(row(place, system, reads, predicted, Some(measured)));
        }
    }
    rows
}

/// The seconds of a read and of a write that give two rates of a mix by equation 9, if each
/// is a share of reads and operations a second. One of the two comes out negative where no
/// store can have both rates.
#[must_use]
pub fn fits(one: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    let ((r, rate), (s, other_rate)) = (one, other);
    // r a + (1 - r) b = 1 / rate, and so for the other.
    let (x, y) = (1.0 / rate, 1.0 / other_rate);
    let determinant = r - s;
    let read = (x * (1.0 - s) - y * (1.0 - r)) / determinant;
    let write = (r * y - s * x) / determinant;
    (read, write)
}
