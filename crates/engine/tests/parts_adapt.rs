//! Parts of a store whose user names no number: made while writers wait for merges that wait for
//! processors, taken back while these wait for devices, and on several tiers many of them then.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use thermocline::store::{Clock, Environment};
use thermocline::{Db, KeyspaceOptions, Options, Tier};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A clock by which every look at it takes 20 microseconds and every stretch of a merge a second,
/// of a machine that lacks processors or whose devices are slow.
#[derive(Debug, Default)]
struct Slow {
    now_us: AtomicU64,
    processors: AtomicBool,
    ran_us: AtomicU64,
}

impl Clock for Slow {
    fn now_micros(&self) -> u64 {
        self.now_us.fetch_add(20, Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) {
        let slept = duration.as_micros() as u64;
        self.now_us.fetch_add(slept, Ordering::Relaxed);
    }

    /// Asked for before and after each stretch.
    fn running_micros(&self) -> u64 {
        self.now_us.fetch_add(500_000, Ordering::Relaxed);
        if self.processors.load(Ordering::Relaxed) {
            self.ran_us.fetch_add(500_000, Ordering::Relaxed);
        }
        self.ran_us.load(Ordering::Relaxed)
    }
}

fn open(directory: &Path, write_buffer_bytes: u64, clock: &Arc<Slow>) -> Db {
    let options = busy(Options::at(directory), write_buffer_bytes);
    open_at(options.memtable_bytes(256 * KIB), clock)
}

/// Options with which there is much to merge.
fn busy(options: Options, write_buffer_bytes: u64) -> Options {
    options
        .write_buffer_bytes(write_buffer_bytes)
        .write_buffer_grows(false)
        .newest_runs_merge(2)
        .newest_runs_stop(4)
        .table_bytes(256 * KIB)
        .first_level_bytes(MIB)
        .background_threads(0)
}

fn open_at(options: Options, clock: &Arc<Slow>) -> Db {
    let environment = Environment {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        ..Environment::real()
    };
    Db::open_in(options, &environment).unwrap()
}

fn parts(db: &Db) -> u64 {
    db.stats().keyspaces[0].parts
}

fn contents(db: &Db) -> BTreeMap<String, Vec<u8>> {
    let entries = db.iter().unwrap().forward();
    let entries = entries.map(|entry| {
        let (key, value) = entry.unwrap();
        (String::from_utf8(key.to_vec()).unwrap(), value.to_vec())
    });
    entries.collect()
}

#[test]
fn parts_come_with_writers_who_wait_for_processors_and_go_with_those_who_wait_for_devices() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(Slow::default());
    let mut db = open(directory.path(), 4 * MIB, &clock);
    let mut wanted = BTreeMap::new();
    let mut next = 0u64;
    // Writes until the parts are as many as asked for, or for so long.
    let mut write = |db: &Db, most: u64, until: &dyn Fn(u64) -> bool| {
        for _ in 0..most {
            next += 1;
            let key = format!("{:08}", next * 7919 % 20_011);
            let value = vec![next as u8; 512];
            db.put(key.as_bytes(), &value).unwrap();
            wanted.insert(key, value);
            if next.is_multiple_of(64) && until(parts(db)) {
                return true;
            }
        }
        false
    };
    assert!(!write(&db, 60_000, &|parts| parts > 1), "devices are slow");
    clock.processors.store(true, Ordering::Relaxed);
    assert!(write(&db, 200_000, &|parts| parts > 1), "{}", db.stats());
    assert_eq!(parts(&db), 2);
    // A store that is opened goes on with what it has.
    drop(db);
    db = open(directory.path(), 4 * MIB, &clock);
    assert!(parts(&db) > 1);
    assert!(!write(&db, 2_000, &|parts| parts == 1));
    clock.processors.store(false, Ordering::Relaxed);
    assert!(write(&db, 400_000, &|parts| parts == 1), "{}", db.stats());
    let events = db.events(4096);
    let rules: Vec<&str> = events
        .iter()
        .filter(|e| e.job == "recut")
        .map(|e| e.reason.rule.as_str())
        .collect();
    assert!(rules.contains(&"fewer-parts"), "{rules:?}");
    db.settle().unwrap();
    let found = contents(&db);
    assert!(found == wanted);
}

#[test]
fn on_two_tiers_there_are_many_parts_while_writers_wait_for_devices() {
    for (preset, few) in [("leveled", 2), ("mutant", 2), ("nova", 10)] {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(Slow::default());
        let options = || {
            let tier = |name| Tier::new(name, directory.path().join(name));
            let two = Options::new().tier(tier("fast").capacity_bytes(8 * MIB));
            busy(two.tier(tier("slow")).preset(preset), 4 * MIB)
        };
        let mut db = open_at(options(), &clock);
        let mut wanted = BTreeMap::new();
        let mut next = 0u64;
        let mut write = |db: &Db, until: &dyn Fn(u64) -> bool| {
            (0..400_000).any(|_| {
                next += 1;
                let key = format!("{:08}", next * 7919 % 20_011);
                let value = vec![next as u8; 512];
                db.put(key.as_bytes(), &value).unwrap();
                wanted.insert(key, value);
                next.is_multiple_of(64) && until(parts(db))
            })
        };
        assert!(write(&db, &|parts| parts > few), "{preset}: {}", db.stats());
        let many = parts(&db);
        assert!(many <= 21, "one for each 192 KiB: {many}");
        drop(db);
        db = open_at(options(), &clock);
        assert_eq!(parts(&db), many, "{preset}");
        let memory = db.stats().memory;
        assert!(memory.used.memtables <= memory.max.memtables, "{preset}");
        // Nobody waits for a flush of a few puts.
        let calm = (0..2000).any(|_| {
            assert!(write(&db, &|_| true));
            db.flush().unwrap();
            parts(&db) <= few
        });
        assert!(calm && parts(&db) > 1, "{preset}: {}", db.stats());
        db.settle().unwrap();
        assert!(contents(&db) == wanted, "{preset}");
    }
}

fn small(directory: &Path) -> Options {
    Options::at(directory)
        .write_buffer_bytes(16 * MIB)
        .write_buffer_grows(false)
        .memtable_bytes(256 * KIB)
        .table_bytes(256 * KIB)
        .first_level_bytes(MIB)
        .background_threads(0)
}

/// Uniform puts, `count` of them.
fn put(db: &Db, count: u64) {
    for n in 0..count {
        let key = format!("{:08}", n * 7919 % 20_011);
        db.put(key.as_bytes(), &[n as u8; 256]).unwrap();
    }
}

/// A store with parts that its writes have made.
fn cut(directory: &Path) -> u64 {
    let db = Db::open(small(directory).moving_cuts(true).partitions(6)).unwrap();
    put(&db, 40_000);
    db.settle().unwrap();
    assert!(parts(&db) >= 5, "{}", db.stats());
    let parts = parts(&db);
    db.close().unwrap();
    parts
}

#[test]
fn parts_go_where_options_or_the_preset_allow_fewer() {
    type With = fn(Options) -> Options;
    let allowed: [(&str, With, u64); 6] = [
        ("one part", |o| o.partitions(1), 1),
        ("three parts", |o| o.partitions(3), 3),
        ("little memory", |o| o.write_buffer_bytes(2 * MIB), 1),
        ("mutant", |o| o.preset("mutant"), 6),
        ("logstore", |o| o.preset("logstore"), 1),
        ("cuts that stay", |o| o.moving_cuts(false), 6),
    ];
    for (what, allow, most) in allowed {
        let directory = tempfile::tempdir().unwrap();
        let before = cut(directory.path());
        let db = Db::open(allow(small(directory.path()))).unwrap();
        assert_eq!(parts(&db), before, "{what}");
        let wanted = contents(&db);
        db.settle().unwrap();
        assert_eq!(parts(&db), before.min(most), "{what}: {}", db.stats());
        assert!(contents(&db) == wanted, "{what}");
        put(&db, 10_000);
        let memory = db.stats().memory;
        assert!(memory.used.memtables <= memory.max.memtables, "{what}");
        assert!(parts(&db) <= most, "{what}");
    }
}

/// Files of options of before this was so name ten parts and seven duplicates, as all did.
#[test]
fn a_number_of_parts_is_the_most_that_there_may_be() {
    let directory = tempfile::tempdir().unwrap();
    let options = small(directory.path()).partitions(10).duplicates_max(7);
    let db = Db::open(options).unwrap();
    put(&db, 40_000);
    db.settle().unwrap();
    assert_eq!(parts(&db), 1);
}

#[test]
fn cuts_that_were_given_stay() {
    let directory = tempfile::tempdir().unwrap();
    let cuts = (1..20).map(|n| format!("{:08}", n * 1000).into_bytes());
    let options = small(directory.path());
    let db = Db::open(options.clone().cuts(cuts.collect())).unwrap();
    put(&db, 40_000);
    db.settle().unwrap();
    assert_eq!(parts(&db), 20);
    drop(db);
    // Nor are they joined by whoever counts writes, or allows fewer.
    let others: [fn(Options) -> Options; 6] = [
        |o| o.preset("nova"),
        |o| o.moving_cuts(true),
        |o| o.partitions(10),
        |o| o.preset("mutant"),
        |o| o.preset("ohdb").moving_cuts(true),
        |o| o,
    ];
    for with in others {
        let db = Db::open(with(options.clone())).unwrap();
        put(&db, 4000);
        db.flush().unwrap();
        db.settle().unwrap();
        assert_eq!(parts(&db), 20);
        let events = db.events(4096);
        assert!(events.iter().all(|e| e.job != "recut"));
    }
}

#[test]
fn a_keyspace_that_begins_takes_no_parts_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let before = cut(directory.path());
    let options = small(directory.path()).partitions(6);
    let db = Db::open(options.clone()).unwrap();
    for n in 0..8 {
        let name = format!("other{n}");
        let options = KeyspaceOptions::default();
        let other = db.create_keyspace(&name, options).unwrap();
        other.put(b"key", &[7; 1000]).unwrap();
    }
    put(&db, 20_000);
    db.settle().unwrap();
    assert_eq!(parts(&db), before);
    let memory = db.stats().memory;
    assert!(memory.used.memtables <= memory.max.memtables);
    // Memtables are as large when all keyspaces are opened again.
    db.close().unwrap();
    let db = Db::open(options).unwrap();
    assert_eq!(parts(&db), before);
    put(&db, 20_000);
    let memory = db.stats().memory;
    assert!(memory.used.memtables <= memory.max.memtables);
}

/// Each has its share however many it has now, whoever began.
#[test]
fn keyspaces_that_share_parts_keep_their_shares() {
    for count in [2usize, 3] {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(Slow::default());
        clock.processors.store(true, Ordering::Relaxed);
        let db = open(directory.path(), 16 * MIB, &clock);
        let spaces: Vec<_> = (0..count)
            .map(|n| db.create_keyspace(&format!("{n}"), KeyspaceOptions::default()))
            .collect::<Result<_, _>>()
            .unwrap();
        for n in 0..150_000u64 {
            let key = format!("{:08}", n * 7919 % 20_011);
            for space in &spaces {
                space.put(key.as_bytes(), &[n as u8; 256]).unwrap();
            }
        }
        let stats = db.stats();
        let have = |name: &str| {
            stats
                .keyspaces
                .iter()
                .find(|k| k.name == name)
                .unwrap()
                .parts
        };
        for n in 0..count {
            let parts = have(&format!("{n}"));
            assert!(
                parts > 1 && parts <= 10 / count as u64,
                "{n} of {count}: {stats}"
            );
        }
        let events = db.events(100_000);
        let joins = events.iter().filter(|e| e.reason.rule == "fewer-parts");
        assert!(joins.count() <= 2 * count, "{count}");
        let cuts = events
            .iter()
            .filter(|e| e.reason.rule == "few-parts" || e.reason.rule == "first-memtable");
        assert!(cuts.count() <= 4 * count, "{count}");
    }
}
