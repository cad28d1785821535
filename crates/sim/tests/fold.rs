//! Bytes flushed under skewed writes to many parts, with fold and without. Nothing here is
//! a time; `--nocapture` prints the figures.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use thermocline::{Db, Options};
use thermocline_sim::disk::Disk;

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
    logged: u64,
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
        logged: stats.written_bytes,
        flushed: stats.flushed_bytes,
        flushes: stats.flushes,
    }
}

/// A flush drops what nobody sees any more, with fold or without. So a fold saves what
/// little is left of the parts that have few keys: much where these are most of the parts, as
/// with 800 keys, a number that was picked for that.
#[test]
fn skewed_writes_to_parts_with_few_keys_flush_half_as_many_bytes_with_fold() {
    let without = written(800, 150_000, |o| o);
    let with = written(800, 150_000, |o| o.fold_keys_max(100));
    let (with, without) = (with.flushed, without.flushed);
    assert!(with * 2 <= without, "{with} of {without}");
}

/// With more keys the cold parts have more than a fold takes.
#[test]
fn skewed_writes_to_parts_of_which_some_have_few_keys_flush_fewer_bytes_with_fold() {
    let without = written(2_000, 150_000, |o| o);
    let with = written(2_000, 150_000, |o| o.fold_keys_max(100));
    let (with, without) = (with.flushed, without.flushed);
    assert!(with * 4 <= without * 3, "{with} of {without}");
}

/// Beside a flush that writes all that it is given, as the paper's baseline does.
#[test]
fn skewed_writes_of_many_keys_flush_half_as_often_and_a_third_of_what_was_written() {
    let without = written(100_000, 150_000, |o| o);
    let with = written(100_000, 150_000, |o| o.fold_keys_max(100));
    assert!(with.flushed <= without.flushed);
    assert!(
        with.flushed * 100 <= with.logged * 40,
        "{} of {}",
        with.flushed,
        with.logged
    );
    assert!(
        with.flushes * 3 <= without.flushes * 2,
        "{} of {}",
        with.flushes,
        without.flushes
    );
}
