//! The workload of the model, on this machine: a store over the tiers, one client
//! that does one operation after the other, as the model supposes.
//!
//! Reads pass the page cache by where the file system can, so that the memory of
//! the model is the block cache. Records lie in the order of their heat unless they are to be
//! scattered: the model places records, the store tables, and only so can it do the same.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use crate::engine::cost_model::Access;
use crate::engine::{self, Changes, Db, DeviceProfile, Keyspace, Options, Pulse, Tier};
use crate::exit::{Exit, Failure};
use crate::human;
use crate::measure;
use crate::progress;
use crate::temporary::Temporary;
use crate::workload::{Dice, Zipf, fill, fingerprint, matches, scatter};

/// Bytes of a key.
pub(crate) const KEY_BYTES: u64 = 16;

/// The most records that are measured with: a version of each is kept in memory.
pub(crate) const RECORDS_MAX: u64 = 100_000_000;

/// Records written at once while loading.
const RECORDS_PER_BATCH: usize = 256;

/// Operations between two looks at the clock. One of them may take
/// milliseconds.
const OPERATIONS_PER_LOOK: u64 = 16;

/// How a device without a profile is measured.
const CALIBRATION_FILE_BYTES: u64 = 64 << 20;
const CALIBRATION_TIME: Duration = Duration::from_secs(1);

/// The share of its capacity that placement fills.
const FILL_SHARE: f64 = 0.95;

/// Bytes that a tier must have free beside twice its data: log, manifest, and
/// inputs of merges that are still there.
const ROOM_BYTES: u64 = 64 << 20;

/// The dice are always the same, so that two runs do the same.
const SEED: u64 = 0x006d_6f64_656c;

/// A tier to run on.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) directory: Temporary,
    pub(crate) profile: DeviceProfile,
    /// Why the page cache answered when the device was measured, if it did.
    pub(crate) cached_because: Option<&'static str>,
}

impl Place {
    /// A directory of its own below `parent`, and what its device can do: as
    /// given, or measured.
    pub(crate) fn new(
        name: &str,
        parent: Option<&Path>,
        given: Option<DeviceProfile>,
    ) -> Result<Place, Failure> {
        let directory = Temporary::directory(parent)?;
        let (profile, cached_because) = match given {
            Some(profile) => (profile, None),
            None => {
                let measured =
                    measure::device(directory.path(), CALIBRATION_FILE_BYTES, CALIBRATION_TIME)?;
                let profile = DeviceProfile {
                    // One client reads one block at a time.
                    random_read_iops: measured.random_read_iops_1,
                    sequential_mb_s: measured.sequential_mb_s(),
                };
                (profile, measured.cached_because)
            }
        };
        Ok(Place {
            name: name.into(),
            directory,
            profile,
            cached_because,
        })
    }
}

/// What is run.
pub(crate) struct Order {
    pub(crate) records: u64,
    pub(crate) record_bytes: u64,
    pub(crate) memory_share: f64,
    /// The share of the data on each tier.
    pub(crate) data_shares: Vec<f64>,
    pub(crate) access: Access,
    /// The share of reads among the operations.
    pub(crate) reads: f64,
    pub(crate) preset: Option<String>,
    pub(crate) scattered: bool,
    pub(crate) warmup: Duration,
    pub(crate) time: Duration,
}

/// What came of it.
pub(crate) struct Measured {
    pub(crate) operations: u64,
    pub(crate) took: Duration,
    /// The time until the merges were done that the operations had left behind.
    pub(crate) settling: Duration,
    /// Reads and where they were answered, in the time measured.
    pub(crate) delta: Pulse,
    /// The levels that lie on each tier, most of their bytes counting.
    pub(crate) levels: Vec<u32>,
}

/// A store that is loaded and at rest.
pub(crate) struct Loaded<'a> {
    order: &'a Order,
    db: Db,
    space: Keyspace,
    versions: Vec<u32>,
}

/// Fails in words unless every tier has room for its part.
fn check_room(order: &Order, places: &[Place]) -> Result<(), Failure> {
    let data_bytes = order.records.saturating_mul(order.record_bytes) as f64;
    for (place, share) in places.iter().zip(&order.data_shares) {
        let path = place.directory.path();
        let system = statvfs(path).map_err(|e| Failure::io("asking for room", path, e.into()))?;
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        let wanted = (2.0 * share * data_bytes) as u64 + ROOM_BYTES;
        if free < wanted {
            return Err(Failure::usage(format!(
                "tier {} needs {} and its device has {} free; use fewer --records",
                place.name,
                human::bytes(wanted),
                human::bytes(free)
            )));
        }
    }
    Ok(())
}

/// The options of the store: memtables and tables in proportion to the data,
/// since with the sizes of a large store a small one would live in memory.
fn options(order: &Order, places: &[Place]) -> Options {
    let data_bytes = order.records * order.record_bytes;
    let memtable_bytes = (data_bytes / 64).clamp(1 << 20, 64 << 20);
    let reserve_bytes = 4 * memtable_bytes;
    let mut options = Options::new();
    for (at, (place, share)) in places.iter().zip(&order.data_shares).enumerate() {
        let mut tier = Tier::new(&place.name, store_directory(place, at))
            .profile(place.profile)
            .direct_io(true);
        if at + 1 < places.len() {
            let held = (share * data_bytes as f64 / FILL_SHARE) as u64;
            let beside = if at == 0 { reserve_bytes } else { 0 };
            tier = tier.capacity_bytes(held + beside);
        }
        options = options.tier(tier);
    }
    if let Some(preset) = &order.preset {
        options = options.preset(preset);
    }
    options
        .write_buffer_bytes(2 * memtable_bytes)
        .memtable_bytes(memtable_bytes)
        .log_segment_bytes(memtable_bytes)
        .table_bytes(memtable_bytes)
        .reserve_bytes(reserve_bytes)
        .tier_fill_share(FILL_SHARE)
        .block_cache_bytes((order.memory_share * data_bytes as f64) as u64)
}

fn store_directory(place: &Place, at: usize) -> PathBuf {
    place.directory.path().join(format!("tier-{at}"))
}

impl<'a> Loaded<'a> {
    /// Makes the store and loads it.
    pub(crate) fn new(order: &'a Order, places: &[Place]) -> Result<Loaded<'a>, Failure> {
        check_room(order, places)?;
        let db = Db::open(options(order, places))?;
        let space = db.keyspace(engine::DEFAULT_KEYSPACE)?;
        let bar = progress::of_operations("loading", order.records);
        let mut changes = Changes::of(&space);
        let mut value = vec![0; value_bytes(order)];
        for record in 0..order.records {
            let key = key(record);
            fill(&mut value, fingerprint(&key), 0);
            changes.put(&key, &value)?;
            if changes.len() == RECORDS_PER_BATCH {
                std::mem::replace(&mut changes, Changes::of(&space)).write(&db)?;
                bar.set_position(record);
            }
        }
        changes.write(&db)?;
        bar.set_message("settling");
        db.flush()?;
        db.settle()?;
        bar.finish_and_clear();
        Ok(Loaded {
            order,
            versions: vec![0; order.records as usize],
            db,
            space,
        })
    }

    /// The levels that lie on each tier.
    pub(crate) fn levels(&self) -> Vec<u32> {
        engine::levels_by_tier(&self.db)
    }

    /// Runs the workload: first to warm up, then to measure.
    pub(crate) fn run(mut self) -> Result<Measured, Failure> {
        let mut dice = Dice::new(SEED);
        let ranks = Ranks::new(self.order);
        let bar = progress::of_unknown_length("warming up");
        self.work(&mut dice, &ranks, self.order.warmup)?;
        bar.set_message("measuring");
        let before = self.db.pulse();
        let began = Instant::now();
        let operations = self.work(&mut dice, &ranks, self.order.time)?;
        let took = began.elapsed();
        let delta = self.db.pulse().since(&before);
        bar.set_message("settling");
        let mut settling = Duration::ZERO;
        if self.order.reads < 1.0 {
            let began = Instant::now();
            self.db.flush()?;
            self.db.settle()?;
            settling = began.elapsed();
        }
        bar.finish_and_clear();
        let levels = self.levels();
        let Loaded { db, space, .. } = self;
        drop(space);
        db.close()?;
        Ok(Measured {
            operations,
            took,
            settling,
            delta,
            levels,
        })
    }

    /// Does operations for `time`; how many.
    fn work(&mut self, dice: &mut Dice, ranks: &Ranks, time: Duration) -> Result<u64, Failure> {
        let mut value = vec![0; value_bytes(self.order)];
        let began = Instant::now();
        let mut operations = 0;
        while operations % OPERATIONS_PER_LOOK != 0 || began.elapsed() < time {
            let record = ranks.draw(dice);
            let key = key(record);
            let version = &mut self.versions[record as usize];
            operations += 1;
            if dice.unit() < self.order.reads {
                let found = self.space.get(&key)?;
                let right = found.is_some_and(|found| {
                    found.len() == value.len() && matches(&found, fingerprint(&key), *version)
                });
                if !right {
                    let message = format!("a read of record {record} gave a wrong value");
                    return Err(Failure::new(Exit::Damaged, message));
                }
            } else {
                *version += 1;
                fill(&mut value, fingerprint(&key), *version);
                self.space.put(&key, &value)?;
            }
        }
        Ok(operations)
    }
}

/// Draws records.
struct Ranks {
    records: u64,
    kind: Kind,
    scattered: bool,
}

enum Kind {
    Uniform,
    Zipf(Zipf),
    Hotspot { operations: f64, hot: u64 },
}

impl Ranks {
    fn new(order: &Order) -> Ranks {
        let kind = match &order.access {
            Access::Zipfian { skew } => Kind::Zipf(Zipf::new(order.records, *skew)),
            Access::Hotspot {
                operations,
                records,
            } => Kind::Hotspot {
                operations: *operations,
                hot: ((records * order.records as f64) as u64).clamp(1, order.records),
            },
            // Shares that are given say nothing of keys; `model` refuses them.
            Access::Uniform | Access::Given(_) => Kind::Uniform,
        };
        Ranks {
            records: order.records,
            kind,
            scattered: order.scattered,
        }
    }

    fn draw(&self, dice: &mut Dice) -> u64 {
        let rank = match &self.kind {
            Kind::Uniform => dice.below(self.records),
            Kind::Zipf(zipf) => zipf.draw(dice),
            Kind::Hotspot { operations, hot } => {
                let cold = self.records - hot;
                match dice.unit() < *operations || cold == 0 {
                    true => dice.below(*hot),
                    false => hot + dice.below(cold),
                }
            }
        };
        match self.scattered {
            true => scatter(rank, self.records),
            false => rank,
        }
    }
}

fn value_bytes(order: &Order) -> usize {
    order.record_bytes.saturating_sub(KEY_BYTES) as usize
}

/// The key of record number `record`.
fn key(record: u64) -> Vec<u8> {
    format!("user{record:012}").into_bytes()
}
