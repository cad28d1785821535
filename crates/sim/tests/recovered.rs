//! What memory holds after a recovery: never more than the options say, whatever the log has.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeMap;

use thermocline::{Db, Options};
use thermocline_sim::disk::{Disk, Down, Fault};
use thermocline_sim::harness::faults::every_call_crashes_of;
use thermocline_sim::harness::workload::Workload;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KIB: u64 = 1 << 10;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

fn value(n: u64, bytes: usize) -> Vec<u8> {
    [&n.to_be_bytes()[..], &vec![7; bytes]].concat()
}

fn contents(db: &Db) -> Model {
    let mut found = Model::new();
    for entry in db.iter().unwrap().forward() {
        let (key, value) = entry.unwrap();
        found.insert(key.to_vec(), value.to_vec());
    }
    found
}

fn assert_within_memory(db: &Db, context: &str) {
    let memory = db.stats().memory;
    let (used, max) = (memory.used.memtables, memory.max.memtables);
    assert!(used <= max, "{context}: {used} of {max} bytes");
}

/// A store that has just been opened: within its memory, with what `model` says.
fn assert_recovered(disk: &Disk, options: Options, model: &Model, context: &str) -> Db {
    let db = Db::open_in(options, &disk.environment()).unwrap();
    assert_within_memory(&db, context);
    assert_eq!(contents(&db), *model, "{context}");
    db
}

/// Two parts, one of which pins the log while all of the other is folded again and again.
fn folding() -> Options {
    Options::at("/store")
        .write_buffer_bytes(512 * KIB)
        .memtable_bytes(64 * KIB)
        .log_segment_bytes(128 * KIB)
        .log_bytes_max(64 << 20)
        .block_cache_bytes(0)
        .fold_keys_max(100)
        .background_threads(0)
        .cuts(vec![key(1000)])
}

/// With so little memory that what survives does not fit beside what a fold would have left.
fn folding_in_little() -> Options {
    folding()
        .write_buffer_bytes(64 * KIB)
        .sealed_memtables_total_max(1)
}

/// Whether the log keeps everything, or what folds have logged anew takes the place of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Log {
    Pinned,
    Trimmed,
}

/// Folds some dozen times what is written in the meantime. Some keys of each round are written in
/// no later one.
fn folded(disk: &Disk, log: Log) -> Model {
    let db = Db::open_in(folding(), &disk.environment()).unwrap();
    let mut model = Model::new();
    if log == Log::Pinned {
        db.put(&key(5000), b"pins the log").unwrap();
        model.insert(key(5000), b"pins the log".to_vec());
    }
    for n in 0..12_000u64 {
        let k = match n % 400 {
            0 => n / 400 % 40 + 50,
            _ => n % 31,
        };
        let value = value(n, 400);
        db.put(&key(k), &value).unwrap();
        model.insert(key(k), value);
        if n % 997 == 0 {
            db.delete_range(&key(3), &key(5)).unwrap();
            model.retain(|k, _| !(key(3)..key(5)).contains(k));
        }
        if n % 16 == 0 {
            while db.step().unwrap() {}
        }
        assert_within_memory(&db, "before the crash");
    }
    let stats = db.stats();
    assert!(
        stats.folds > 20 && stats.flushes == 0,
        "{} folds, {} flushes",
        stats.folds,
        stats.flushes
    );
    let is_pinned = stats.log_bytes > 4 << 20;
    assert_eq!(is_pinned, log == Log::Pinned, "{}", stats.log_bytes);
    assert_eq!(contents(&db), model);
    model
}

#[test]
fn after_many_folds_a_recovery_holds_no_more_than_memory_may_and_the_same() {
    let disk = Disk::new(3);
    disk.mount("/store");
    let model = folded(&disk, Log::Pinned);
    disk.reboot(Down::Kill);
    for round in 0..2 {
        // For reading only first, which may not flush.
        for read_only in [true, false] {
            let options = folding().read_only(read_only);
            let context = format!("round {round}, read only {read_only}");
            let stats = assert_recovered(&disk, options, &model, &context).stats();
            assert!(stats.recovery.compactions > 0 && stats.flushes == 0);
            assert!(stats.recovery.bytes > 4 << 20);
            // The latest versions are some 70 of 400 bytes.
            let (most, max) = (stats.recovery.memory_bytes, stats.memory.max.memtables);
            assert!(most <= max + 64 * KIB, "{context}: {most} of {max} bytes");
        }
        disk.reboot(Down::Kill);
    }
    // What was recovered is flushed, and what was left out does not come back.
    let db = Db::open_in(folding(), &disk.environment()).unwrap();
    db.put(&key(7), b"new").unwrap();
    db.flush().unwrap();
    drop(db);
    disk.reboot(Down::Power);
    let db = Db::open_in(folding(), &disk.environment()).unwrap();
    let mut model = model;
    model.insert(key(7), b"new".to_vec());
    assert_eq!(contents(&db), model);
}

/// The segments that had it first are gone.
#[test]
fn what_only_folds_have_logged_is_recovered_within_memory() {
    let disk = Disk::new(6);
    disk.mount("/store");
    let model = folded(&disk, Log::Trimmed);
    disk.reboot(Down::Kill);
    for (options, is_little) in [(folding(), false), (folding_in_little(), true)] {
        let disk = disk.fork(7);
        for round in 0..2 {
            let context = format!("round {round}, little {is_little}");
            let stats = assert_recovered(&disk, options.clone(), &model, &context).stats();
            let compactions = stats.recovery.compactions;
            assert_eq!(compactions > 0, is_little, "{context}: {compactions}");
            disk.reboot(Down::Kill);
        }
    }
}

#[test]
fn a_crash_at_any_call_of_a_recovery_after_many_folds_leaves_the_same() {
    let disk = Disk::new(4);
    disk.mount("/store");
    let model = folded(&disk, Log::Pinned);
    disk.reboot(Down::Kill);
    let mut sites = 0;
    for options in [folding(), folding_in_little()] {
        let disk = disk.fork(5);
        disk.record_crashes();
        drop(Db::open_in(options.clone(), &disk.environment()).unwrap());
        for (at, crashed) in disk.recorded_crashes().iter().enumerate() {
            let disk = crashed.disk(at as u64, Down::Kill);
            let context = format!("crash {at}");
            drop(assert_recovered(&disk, options.clone(), &model, &context));
            sites += 1;
        }
    }
    println!("{sites} sites");
    assert!(sites > 20);
}

/// A log of a store with much memory.
fn large(disk: &Disk, options: &Options) -> Model {
    let db = Db::open_in(options.clone(), &disk.environment()).unwrap();
    let mut model = Model::new();
    let mut put = |k: u64, n: u64| {
        db.put(&key(k), &value(n, 1000)).unwrap();
        model.insert(key(k), value(n, 1000));
    };
    for n in 0..2500 {
        put(n * 7919 % 5000, n);
        put(n % 50, n);
    }
    assert_eq!(db.stats().flushes, 0);
    model
}

fn roomy(parts: u64) -> Options {
    Options::at("/store")
        .write_buffer_bytes(16 << 20)
        .log_segment_bytes(256 * KIB)
        .log_bytes_max(64 << 20)
        .block_cache_bytes(0)
        .background_threads(0)
        .cuts((1..parts).map(|n| key(n * 5000 / parts)).collect())
}

#[test]
fn with_an_eighth_of_the_write_buffer_memory_is_within_its_bound_once_the_store_is_open() {
    for parts in [1, 4] {
        let disk = Disk::new(5);
        disk.mount("/store");
        let model = large(&disk, &roomy(parts).memtable_bytes(16 << 20));
        disk.reboot(Down::Kill);
        let small = roomy(parts).write_buffer_bytes(2 << 20);
        let few = small
            .clone()
            .sealed_memtables_max(1)
            .sealed_memtables_total_max(2);
        for options in [small.clone(), few.clone(), small.memtable_bytes(256 * KIB)] {
            let disk = disk.fork(6);
            let db = Db::open_in(options.clone().read_only(true), &disk.environment()).unwrap();
            assert_eq!(contents(&db), model);
            // A part is compacted again when it has twice what was left, so its size doubles: five
            // megabytes in all, with two of memory that are looked at 64 times.
            let compactions = db.stats().recovery.compactions;
            println!("{compactions} compactions of {parts} parts");
            assert!((1..=6 * parts).contains(&compactions), "{compactions}");
            drop(db);
            let db = Db::open_in(options, &disk.environment()).unwrap();
            assert_within_memory(&db, "reopened");
            let stats = db.stats();
            assert!(stats.flushes > 0 && stats.recovery.compactions > 0);
            let events = db.events(100);
            let recovered = events.iter().filter(|e| e.reason.rule == "recovered");
            assert_eq!(recovered.count() as u64, stats.flushes);
            assert_eq!(contents(&db), model);
            db.put(b"goes on", b"1").unwrap();
            drop(db);
            disk.reboot(Down::Power);
        }
        // The limits hold from the first moment on.
        let db = Db::open_in(few, &disk.environment()).unwrap();
        let stats = db.stats();
        assert!(stats.sealed_memtables <= 2, "{}", stats.sealed_memtables);
        let parts = &stats.keyspaces[0].part_list;
        assert!(parts.iter().all(|p| p.sealed_memtables <= 1), "{parts:?}");
        assert_eq!(contents(&db), model);
    }
}

/// A device that is full keeps nobody from opening and reading.
#[test]
fn a_store_with_less_memory_opens_where_nothing_can_be_flushed() {
    let disk = Disk::new(7);
    let device = disk.mount("/store");
    let model = large(&disk, &roomy(1).memtable_bytes(16 << 20));
    disk.reboot(Down::Kill);
    device.set_capacity_bytes(Some(device.used_bytes() + 600 * KIB));
    let small = roomy(1).write_buffer_bytes(2 << 20);
    let db = Db::open_in(small, &disk.environment()).unwrap();
    assert_eq!(contents(&db), model);
    let stats = db.stats();
    assert!(stats.job_errors > 0 && stats.flushes == 0);
    assert!(stats.memory.used.memtables > stats.memory.max.memtables);
    device.set_capacity_bytes(None);
    disk.pass_time(std::time::Duration::from_secs(1));
    db.put(b"more", &[0; 1000]).unwrap();
    assert_within_memory(&db, "once there is room");
}

#[test]
fn a_crash_at_any_call_and_at_any_of_the_recovery_with_less_memory_leaves_a_state_that_was() {
    for (down, mapped) in [(Down::Kill, true), (Down::Power, false)] {
        let workloads = [Workload::shrunk(1, mapped)];
        assert!(every_call_crashes_of(&workloads, down, 151) > 100);
    }
}

/// Not only crashes: what cannot be flushed at an opening is named, or flushed later.
#[test]
fn an_error_at_any_call_of_such_an_opening_loses_nothing() {
    let disk = Disk::new(8);
    disk.mount("/store");
    let model = large(&disk, &roomy(1).memtable_bytes(16 << 20));
    disk.reboot(Down::Kill);
    let small = || roomy(1).write_buffer_bytes(2 << 20);
    let mut sites = 0;
    for fault in [Fault::Io, Fault::Full(1), Fault::Sync] {
        for n in 1.. {
            let disk = disk.fork(n);
            disk.fault_in(n, fault);
            let opened = Db::open_in(small(), &disk.environment());
            if disk.faults_met() == 0 {
                break;
            }
            if let Ok(db) = opened {
                assert_eq!(contents(&db), model, "{fault:?} at call {n}");
            }
            disk.heal();
            let db = Db::open_in(small(), &disk.environment()).unwrap();
            assert_within_memory(&db, "opened again");
            assert_eq!(contents(&db), model, "{fault:?} at call {n}, opened again");
            sites += 1;
        }
    }
    println!("{sites} sites");
    assert!(sites > 50, "{sites}");
}

/// Found by the random option sets: what folds had logged anew was sealed and nothing more had
/// room, so it was flushed alone, though the memtable that takes writes had older entries, which
/// then counted as flushed too.
#[test]
fn what_was_logged_anew_is_never_flushed_before_older_entries_however_few_may_be_sealed() {
    let disk = Disk::new(9);
    disk.mount("/store");
    let model = folded(&disk, Log::Pinned);
    disk.reboot(Down::Kill);
    let options = folding()
        .write_buffer_bytes(64 << 20)
        .memtable_bytes(32 << 20)
        .sealed_memtables_max(1);
    for _ in 0..2 {
        let db = Db::open_in(options.clone(), &disk.environment()).unwrap();
        assert_eq!(contents(&db), model);
        db.flush().unwrap();
        assert_eq!(contents(&db), model);
        drop(db);
        disk.reboot(Down::Power);
    }
}

/// What is replayed of a duplicated part once went to one of its duplicates, which was not counted
/// when room was looked for: where what folds had logged anew was sealed behind it, there was one
/// sealed memtable too many.
#[test]
fn a_duplicated_part_is_recovered_within_the_limits_of_sealed_memtables() {
    let disk = Disk::new(10);
    disk.mount("/store");
    let nova = folding().cuts(Vec::new()).preset("nova");
    let nova = nova.partitions(4).duplicates_max(1).recut_writes(50);
    let db = Db::open_in(nova.clone(), &disk.environment()).unwrap();
    let mut model = Model::new();
    for n in 0..4000u64 {
        let k = if n % 4 == 0 { n / 4 % 40 } else { 17 };
        db.put(&key(k), &value(n, 400)).unwrap();
        model.insert(key(k), value(n, 400));
        if n % 16 == 0 {
            while db.step().unwrap() {}
        }
    }
    assert!(db.stats().folds > 5);
    drop(db);
    disk.reboot(Down::Kill);
    let mut found = Vec::new();
    for doublings in 0..40u64 {
        let options = nova.clone().write_buffer_bytes(64 << 20);
        let options = options.memtable_bytes(16 * KIB * (doublings + 1));
        let options = options.sealed_memtables_max(4).read_only(true);
        let db = Db::open_in(options, &disk.environment()).unwrap();
        let stats = db.stats();
        let parts = &stats.keyspaces[0].part_list;
        assert!(parts.iter().any(|part| part.duplicates > 0), "{parts:?}");
        found.extend(parts.iter().map(|part| part.sealed_memtables));
        assert_eq!(contents(&db), model);
    }
    assert_eq!(found.iter().max(), Some(&4), "{found:?}");
}
