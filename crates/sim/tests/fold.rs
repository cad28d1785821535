//! What a fold leaves on a device that fails, and bytes flushed under skewed writes to many
//! parts, with fold and without. Nothing here is a time; `--nocapture` prints the figures.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::Path;

use thermocline::{Db, Durability, Options, WriteBatch, WriteOptions};
use thermocline_sim::disk::{Disk, Down, Fault};

const KIB: u64 = 1 << 10;

fn key(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[7; 192]].concat()
}

/// Numbers below `count`, small ones more often by Zipf's law with exponent 0.99, from
/// a seed.
struct Zipf {
    sums: Vec<f64>,
    state: u64,
}

impl Zipf {
    fn new(count: usize, seed: u64) -> Zipf {
        println!("seed {seed}");
        let mut sum = 0.0;
        let weight = |n: usize| 1.0 / (n as f64).powf(0.99);
        let sums = (1..=count)
            .map(|n| {
                sum += weight(n);
                sum
            })
            .collect();
        Zipf { sums, state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 11;
        let at = x as f64 / (1u64 << 53) as f64 * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|&sum| sum < at) as u64
    }
}

/// Cuts that give `parts` parts about the same weight, and each at least one key.
fn cuts(zipf: &Zipf, parts: usize) -> Vec<Vec<u8>> {
    let all = zipf.sums[zipf.sums.len() - 1];
    let mut at = 0;
    let mut cuts = Vec::new();
    for part in 1..parts {
        let wanted = all * part as f64 / parts as f64;
        at = zipf.sums.partition_point(|&sum| sum < wanted).max(at + 1);
        cuts.push(key(at as u64));
    }
    cuts
}

/// What became of puts of skewed keys in 64 parts.
struct Became {
    flushed: u64,
    flushes: u64,
}

fn written(keys: usize, puts: u64, options: impl Fn(Options) -> Options) -> Became {
    let disk = Disk::new(5);
    let mut zipf = Zipf::new(keys, 5);
    let cuts = cuts(&zipf, 64);
    let options = options(
        Options::at("/store")
            .write_buffer_bytes(8 << 20)
            .memtable_bytes(64 * KIB)
            .log_segment_bytes(4 << 20)
            .background_threads(0)
            .cuts(cuts),
    );
    let db = Db::open_in(options, &disk.environment()).unwrap();
    let mut last = vec![0; keys];
    for n in 1..=puts {
        let k = zipf.next();
        last[k as usize] = n;
        db.put(&key(k), &value(n)).unwrap();
        if n % 512 == 0 {
            while db.step().unwrap() {}
        }
    }
    for (k, &n) in last.iter().enumerate().filter(|(_, n)| **n > 0) {
        let found = db.get(&key(k as u64)).unwrap();
        assert_eq!(found.as_deref(), Some(&*value(n)), "key {k}");
    }
    let stats = db.stats();
    assert!(stats.memory.used.memtables <= stats.memory.max.memtables);
    println!(
        "{keys} keys, {puts} puts ({} KiB in the log), flushed {} KiB in {} flushes, {} folds took {} KiB and \
         logged {} KiB anew",
        stats.written_bytes >> 10,
        stats.flushed_bytes >> 10,
        stats.flushes,
        stats.folds,
        stats.folded_bytes >> 10,
        stats.restated_bytes >> 10
    );
    Became {
        flushed: stats.flushed_bytes,
        flushes: stats.flushes,
    }
}

/// With all that memtables hold, with the latest versions alone, and with these folded: section
/// 4.2 of the Nova-LSM paper in its two halves.
fn three_ways(keys: usize) -> [Became; 3] {
    [
        written(keys, 150_000, |o| o.flush_drops_versions(false)),
        written(keys, 150_000, |o| o),
        written(keys, 150_000, |o| o.fold_keys_max(100)),
    ]
}

fn at_most(percent: u64, bytes: u64, of: u64) {
    assert!(bytes * 100 <= of * percent, "{bytes} of {of}");
}

/// A flush drops what nobody sees any more, with fold or without. So a fold saves what
/// little is left of the parts that have few keys: much where these are most of the parts, as
/// with 800 keys, a number that was picked for that.
#[test]
fn skewed_writes_to_parts_with_few_keys_flush_half_as_many_bytes_with_fold() {
    let [all, latest, folded] = three_ways(800);
    at_most(10, latest.flushed, all.flushed);
    at_most(50, folded.flushed, latest.flushed);
}

/// With more keys the cold parts have more than a fold takes.
#[test]
fn skewed_writes_to_parts_of_which_some_have_few_keys_flush_fewer_bytes_with_fold() {
    let [all, latest, folded] = three_ways(2_000);
    at_most(10, latest.flushed, all.flushed);
    at_most(75, folded.flushed, latest.flushed);
}

/// As many keys as the paper's memtables hold, and many more.
#[test]
fn skewed_writes_of_many_keys_flush_half_as_often_and_a_third_of_what_memtables_hold() {
    let [all, latest, folded] = three_ways(100_000);
    at_most(40, folded.flushed, all.flushed);
    assert!(folded.flushed <= latest.flushed);
    at_most(66, folded.flushes, latest.flushes);
}

/// Keys that are durable once, and then overwritten by who waits for no device.
const DURABLE_KEYS: u64 = 8;

/// How often: memory is folded twice and the log trimmed in between.
const OVERWRITES: u64 = 100;

fn small_logs() -> Options {
    Options::at("/fast/store")
        .write_buffer_bytes(64 * KIB)
        .memtable_bytes(16 * KIB)
        .log_segment_bytes(16 * KIB)
        .log_bytes_max(32 * KIB)
        .log_mapped(true)
        .fold_keys_max(50)
        .background_threads(0)
}

/// A kilobyte that says which write it is.
fn stamped(n: u64) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[7; 1000]].concat()
}

/// Durable puts of all keys, then overwrites of the first four and steps, in which `fault` happens
/// at the `n`-th call that it can happen to. Whatever became of them, after the machine went down a
/// key has what was durable or something newer. Says whether there was such a call.
fn durable_keys_outlive(fault: Fault, n: u64, down: Down) -> bool {
    let context = format!("{fault:?} at its call {n}, then {down:?}");
    let disk = Disk::new(n);
    disk.set_maps(true);
    disk.mount("/fast");
    let db = Db::open_in(small_logs(), &disk.environment()).unwrap();
    for k in 0..DURABLE_KEYS {
        let mut batch = WriteBatch::new();
        batch.put(&key(k), &stamped(0)).unwrap();
        let options = WriteOptions::default().durability(Durability::Device);
        db.write_with(&batch, options).unwrap();
    }
    let logs = |disk: &Disk| {
        let names = disk.names(Path::new("/fast/store"));
        let logs = names.into_iter().filter(|name| name.ends_with(".log"));
        logs.min().unwrap()
    };
    let first = logs(&disk);
    disk.fault_in(n, fault);
    for n in 1..=OVERWRITES {
        // What fails here may be lost, and what is not durable.
        let _ = db.put(&key(n % 4), &stamped(n));
        let _ = db.step();
    }
    let met = disk.faults_met() > 0;
    if !met {
        assert!(db.stats().folds >= 2, "{context}");
        assert!(logs(&disk) > first, "the segment of the durable puts went");
    }
    let _ = db.close();
    disk.heal();
    disk.reboot(down);
    let db =
        Db::open_in(small_logs(), &disk.environment()).unwrap_or_else(|e| panic!("{context}: {e}"));
    for k in 0..DURABLE_KEYS {
        let found = db.get(&key(k)).unwrap();
        let found = found.unwrap_or_else(|| panic!("{context}: key {k} is gone"));
        let n = u64::from_be_bytes(found[..8].try_into().unwrap());
        assert_eq!(&*found, &*stamped(n), "{context}: key {k}");
        assert!(
            n == 0 || n <= OVERWRITES && n % 4 == k,
            "{context}: key {k} has {n}"
        );
    }
    met
}

/// The fault workload `hot` once missed a key, with the device read-only at its call 37 and gone at
/// its call 94. Had a fold let go of the log segment with the durable entry before the entry logged
/// anew was durable? It had not: the writes were those of a process that waits for no device, the
/// sync at the closing had failed, and the harness did not take that for an end of the kernel's
/// promise. But the promise that it could have been is this one.
#[test]
fn what_was_durable_before_a_fold_outlives_a_fault_at_any_call_of_it() {
    let mut sites = 0;
    for fault in [Fault::Io, Fault::Sync, Fault::ReadOnly, Fault::Vanish] {
        for down in [Down::Kill, Down::Power] {
            let mut n = 1;
            while durable_keys_outlive(fault, n, down) {
                n += 1;
                sites += 1;
            }
        }
    }
    println!("{sites} sites");
    assert!(sites > 100, "{sites}");
}
