//! A background thread that panics: the store takes no more writes and says why,
//! nobody waits for ever, and nothing that was acknowledged is lost.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thermocline::store::{Clock, Environment};
use thermocline::{Db, Durability, Error, ErrorKind, Options, Tier, WriteBatch, WriteOptions};
use thermocline_sim::disk::{Disk, Down, Fault, Where};

const KEYS: u32 = 60;
/// Far more than memory and newest levels take without the background.
const WRITES_MAX: u32 = 20_000;

fn machine(seed: u64) -> Disk {
    let disk = Disk::new(seed);
    disk.mount("/fast");
    disk.mount("/slow");
    disk
}

fn options(threads: usize) -> Options {
    Options::new()
        .tier(Tier::new("fast", "/fast/store").capacity_bytes(20_000))
        .tier(Tier::new("slow", "/slow/store"))
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(4 << 10)
        .first_level_bytes(8 << 10)
        .newest_runs_merge(2)
        .newest_runs_stop(6)
        .log_segment_bytes(16 << 10)
        .log_bytes_max(64 << 10)
        .background_threads(threads)
}

fn key(i: u32) -> Vec<u8> {
    format!("k{:02}", i % KEYS).into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    [&i.to_le_bytes()[..], &[i as u8; 400]].concat()
}

/// Writes until that fails, or `enough` says so; gives how many were acknowledged
/// and the error.
fn write(db: &Db, mut enough: impl FnMut(u32) -> bool) -> (u32, Option<Error>) {
    for i in 0..WRITES_MAX {
        if enough(i) {
            return (i, None);
        }
        let mut batch = WriteBatch::new();
        batch.put(&key(i), &value(i)).unwrap();
        // Some of it is durable at once, so that a power failure can show a gap.
        let durability = match i % 3 {
            0 => Durability::Device,
            _ => Durability::OperatingSystem,
        };
        if let Err(e) = db.write_with(&batch, WriteOptions::default().durability(durability)) {
            return (i, Some(e));
        }
    }
    panic!("{WRITES_MAX} writes, and nobody says that the background is gone");
}

/// The newest value of each key is there, after `count` writes.
fn holds(db: &Db, count: u32, context: &str) {
    for i in count.saturating_sub(KEYS)..count {
        let found = db.get(&key(i)).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_eq!(
            found.as_deref(),
            Some(&value(i)[..]),
            "{context}: write {i}"
        );
    }
}

fn is_told(error: &Error, context: &str) {
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{context}: {error}");
    assert!(error.to_string().contains("panicked"), "{context}: {error}");
}

/// A background thread that panicked was gone, and nobody knew: with its job for
/// ever unfinished, writers waited for room for ever once memory was full.
#[test]
fn a_background_thread_that_panics_at_any_call_ends_all_writing_by_name_and_loses_nothing() {
    let mut met = 0;
    // Of those on manifests, some come when the edit is there that names new tables.
    let anywhere = (1..70).map(|n| (Where::default(), n));
    let in_commits = (1..20).map(|n| (Where::named("MANIFEST"), n));
    let places: Vec<(Where, u64)> = anywhere.chain(in_commits).collect();
    for threads in [1, 2] {
        for (place, n) in places.clone() {
            let context = format!("{threads} threads, panic at their call {n}, {place:?}");
            let disk = machine(n);
            let db = Db::open_in(options(threads), &disk.environment()).unwrap();
            disk.fault_at(place, n, Fault::Panic);
            let (count, error) = write(&db, |_| false);
            let error = error.unwrap_or_else(|| panic!("{context}: writing went on"));
            met += disk.faults_met();
            is_told(&error, &context);
            is_told(&db.flush().unwrap_err(), &context);
            is_told(&db.settle().unwrap_err(), &context);
            is_told(&db.compact_range(None, None).unwrap_err(), &context);
            // What cannot be written can still be read.
            holds(&db, count, &context);
            is_told(&db.close().unwrap_err(), &context);
            // The process ends, and it is opened anew.
            disk.reboot(Down::Kill);
            let db = Db::open_in(options(0), &disk.environment())
                .unwrap_or_else(|e| panic!("{context}: reopening: {e}"));
            // The write that failed may be there or not.
            let there = db.get(&key(count)).unwrap().as_deref() == Some(&value(count)[..]);
            holds(&db, count + u32::from(there), &context);
            db.put(b"more", b"1").unwrap();
            db.settle().unwrap();
        }
    }
    assert_eq!(met, 2 * 88);
}

/// A clock that panics, once it is told to, in background threads.
#[derive(Debug)]
struct Bomb {
    clock: Disk,
    armed: AtomicBool,
}

impl Clock for Bomb {
    fn now_micros(&self) -> u64 {
        let thread = std::thread::current();
        let background = thread.name().is_some_and(|n| n.starts_with("thermocline-"));
        assert!(
            !background || !self.armed.load(Ordering::SeqCst),
            "outside of any job"
        );
        self.clock.now_micros()
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

#[test]
fn a_background_thread_that_panics_while_it_plans_ends_all_writing_by_name() {
    let disk = machine(3);
    let bomb = Arc::new(Bomb {
        clock: disk.clone(),
        armed: AtomicBool::new(false),
    });
    let environment = Environment {
        clock: bomb.clone(),
        ..disk.environment()
    };
    let db = Db::open_in(options(2), &environment).unwrap();
    let (before, error) = write(&db, |i| i == 300);
    assert!(error.is_none(), "{error:?}");
    bomb.armed.store(true, Ordering::SeqCst);
    let (_, error) = write(&db, |_| false);
    is_told(&error.unwrap(), "writing");
    assert_eq!(before, 300);
    assert!(db.get(&key(0)).unwrap().is_some());
    is_told(&db.close().unwrap_err(), "closing");
}

/// A caller that panicked while it led a sync of the log left all others waiting for ever;
/// one that panicked with its place in the log, all whose place came behind it.
#[test]
fn a_caller_that_panics_in_a_write_leaves_nobody_waiting_and_loses_nothing() {
    const CALLERS: u32 = 3;
    let mut met = 0;
    for n in 1..40 {
        let disk = machine(n);
        // The panic is meant for threads whose names begin as the store's own do.
        let caller = |i: u32| std::thread::Builder::new().name(format!("thermocline-caller-{i}"));
        let db = Db::open_in(options(0), &disk.environment()).unwrap();
        disk.fault_at(Where::named(".log"), n, Fault::Panic);
        let writing = |i: u32| {
            for count in 0.. {
                let mut batch = WriteBatch::new();
                batch.put(&key(i), &value(count)).unwrap();
                let how = WriteOptions::default().durability(Durability::Device);
                if let Err(error) = db.write_with(&batch, how) {
                    return (count, error);
                }
            }
            unreachable!("numbers do not end");
        };
        let ended: Vec<_> = std::thread::scope(|scope| {
            let start = |i| {
                let spawned = caller(i).spawn_scoped(scope, move || writing(i));
                spawned.unwrap()
            };
            let threads: Vec<_> = (0..CALLERS).map(start).collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        met += disk.faults_met();
        let context = format!("panic at call {n} on the log");
        assert_eq!(ended.iter().filter(|e| e.is_err()).count(), 1, "{context}");
        for (_, error) in ended.iter().flatten() {
            is_told(error, &context);
        }
        is_told(&db.close().unwrap_err(), &context);
        disk.reboot(Down::Kill);
        let db = Db::open_in(options(0), &disk.environment())
            .unwrap_or_else(|e| panic!("{context}: reopening: {e}"));
        for (i, ended) in (0..CALLERS).zip(&ended) {
            let Ok((count, _)) = ended else { continue };
            let found = db.get(&key(i)).unwrap();
            // The write that failed may be there or not.
            let lawful = [*count, count.wrapping_sub(1)].map(value);
            let none = *count == 0 && found.is_none();
            let is_there = found.is_some_and(|found| lawful.iter().any(|v| found == v[..]));
            assert!(none || is_there, "{context}: caller {i}");
        }
        db.put(b"more", b"1").unwrap();
    }
    assert_eq!(met, 39);
}
