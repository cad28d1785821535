//! Stores of many small tables that lie by what is read, under `mutant` or `logstore`, on two
//! simulated devices. What the fast tier may have of all bytes is their *share*: under `mutant` it
//! stands for a cost target, which can be changed at any time; under `logstore` it is the option
//! `fast_share`, which an opening sets.

use std::time::Duration;

use thermocline::store::Environment;
use thermocline::{Db, DeviceProfile, Options, Tier};
use thermocline_sim::Dice;
use thermocline_sim::disk::Disk;

pub(crate) const FAST_USD: f64 = 0.528;
pub(crate) const SLOW_USD: f64 = 0.045;

/// A store's preset and how many keys it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind<'a> {
    pub(crate) preset: &'a str,
    pub(crate) keys: u32,
}

pub(crate) fn machine(seed: u64) -> Disk {
    let disk = Disk::new(seed);
    disk.mount("/fast");
    disk.mount("/slow");
    disk
}

pub(crate) fn key(i: u32) -> Vec<u8> {
    format!("k{i:05}").into_bytes()
}

pub(crate) fn value(i: u32) -> Vec<u8> {
    // Not to be compressed, should anybody try.
    let mut dice = Dice(u64::from(i));
    (0..300).map(|_| dice.next() as u8).collect()
}

/// The cost target that stands for a share.
pub(crate) fn target_usd(share: f64) -> f64 {
    SLOW_USD + share * (FAST_USD - SLOW_USD)
}

impl Kind<'_> {
    /// Without a share.
    pub(crate) fn options(&self) -> Options {
        let tier = |name: &str, price, random_read_iops, sequential_mb_s| {
            Tier::new(name, format!("/{name}/store"))
                .block_bytes(1024)
                .price_usd_gb_month(price)
                .profile(DeviceProfile {
                    random_read_iops,
                    sequential_mb_s,
                })
        };
        let small = self.keys < 1000;
        Options::new()
            .tier(tier("fast", FAST_USD, 6000.0, 480.0))
            .tier(tier("slow", SLOW_USD, 60.0, 150.0))
            .preset(self.preset)
            .write_buffer_bytes(128 << 10)
            .memtable_bytes(32 << 10)
            .table_bytes(if small { 4 << 10 } else { 8 << 10 })
            .first_level_bytes(if small { 4 << 10 } else { 32 << 10 })
            .newest_runs_merge(2)
            .log_segment_bytes(64 << 10)
            .log_bytes_max(256 << 10)
            .block_cache_bytes(0)
            .reserve_bytes(0)
            .background_threads(0)
    }

    pub(crate) fn with_share(&self, options: Options, share: f64) -> Options {
        match self.preset {
            "mutant" => options.cost_target_usd_per_gb_month(target_usd(share)),
            _ => options.fast_share(share),
        }
    }

    /// Another share for a store that is open.
    pub(crate) fn change(
        &self,
        db: Db,
        environment: &Environment,
        options: &Options,
        share: f64,
    ) -> thermocline::Result<Db> {
        if self.preset == "mutant" {
            return db.set_cost_target(Some(target_usd(share))).map(|()| db);
        }
        // What is hot is known to the next opening after a close.
        db.close()?;
        Db::open_in(self.with_share(options.clone(), share), environment)
    }

    /// All keys once, in tables of one level, or of two under `logstore`.
    pub(crate) fn filled(&self, disk: &Disk, options: &Options) -> Db {
        let db = open(disk, options);
        for i in 0..self.keys {
            db.put(&key(i), &value(i)).unwrap();
        }
        match self.preset {
            // A whole compaction leaves nothing in its fast levels.
            "logstore" => db.flush().unwrap(),
            _ => db.compact_range(None, None).unwrap(),
        }
        db.settle().unwrap();
        let tables = db.tables().len() as u32;
        assert!(tables > self.keys / 34, "{tables}");
        db
    }

    /// Seconds in which keys are read, a tenth of all keys from `hot` on most often.
    pub(crate) fn read_for(&self, db: &Db, disk: &Disk, seconds: u64, hot: u32, dice: &mut Dice) {
        for _ in 0..seconds {
            for _ in 0..300 {
                let i = match dice.below(10) {
                    0 => dice.below(u64::from(self.keys)) as u32,
                    _ => (hot + dice.below(u64::from(self.keys / 10)) as u32) % self.keys,
                };
                assert!(db.get(&key(i)).unwrap().is_some());
            }
            disk.pass_time(Duration::from_secs(1));
            while db.step().unwrap() {}
        }
    }

    pub(crate) fn is_whole(&self, db: &Db) {
        let mut found = 0;
        for entry in db.iter().unwrap().forward() {
            let (k, v) = entry.unwrap();
            assert_eq!((&*k, &*v), (&key(found)[..], &value(found)[..]));
            found += 1;
        }
        assert_eq!(found, self.keys);
    }

    /// Of all bytes, those that are fast.
    pub(crate) fn fast_share(&self, db: &Db) -> f64 {
        if self.preset == "mutant" {
            let price = db.stats().cost.price_usd_gb_month;
            return (price - SLOW_USD) / (FAST_USD - SLOW_USD);
        }
        let (mut fast, mut all) = (0, 0);
        for table in db.tables() {
            let bytes = table.data_bytes + table.meta_bytes;
            all += bytes;
            fast += if table.slot == "L7" { 0 } else { bytes };
        }
        fast as f64 / all as f64
    }

    /// Whether it has no more than its share and, as `mutant` fills it with whatever there is, no
    /// less than that but for a table. `logstore` raises only what is read.
    pub(crate) fn keeps(&self, db: &Db, share: f64) {
        let now = self.fast_share(db);
        assert!(now <= share + 1e-9, "{now} of {share}");
        if self.preset == "mutant" {
            assert!(now > share - 1.5 * largest(db), "{now} of {share}");
        }
    }

    /// The share of one read of each of the hot keys that the fast tier answers.
    pub(crate) fn served_fast(&self, db: &Db, hot: u32) -> f64 {
        let hits = || -> u64 { db.stats().tiers[0].hits };
        let before = hits();
        for i in hot..hot + self.keys / 10 {
            db.get(&key(i)).unwrap();
        }
        (hits() - before) as f64 / f64::from(self.keys / 10)
    }
}

/// Of all bytes, those of the largest table.
pub(crate) fn largest(db: &Db) -> f64 {
    let bytes = || db.tables().into_iter().map(|t| t.data_bytes + t.meta_bytes);
    bytes().max().unwrap_or(0) as f64 / bytes().sum::<u64>() as f64
}

pub(crate) fn open(disk: &Disk, options: &Options) -> Db {
    Db::open_in(options.clone(), &disk.environment()).unwrap()
}

/// Jobs that move data so far.
pub(crate) fn moves(db: &Db) -> u64 {
    let stats = db.stats();
    stats.relocations + stats.merges + stats.merges_by_edit
}

/// Lets time pass until nothing has moved for longer than a cool-down.
pub(crate) fn rest(db: &Db, disk: &Disk) {
    for _ in 0..50 {
        let before = moves(db);
        for _ in 0..8 {
            disk.pass_time(Duration::from_secs(10));
            db.settle().unwrap();
        }
        if moves(db) == before {
            return;
        }
    }
    panic!("does not come to rest: {:#?}", db.events(20));
}
