//! What the lookup index and cuts are worth with many memtables (Nova-LSM, sections
//! 4.1.1 and 4.1.2): gets with and without the index, scans with and without cuts. Nova-LSM's
//! memtables have no filters, ours have unless `memtable_filters` says otherwise: so there are four
//! kinds of gets.
//!
//! `lookup_speed [MEMTABLES] [VALUE_BYTES]`, 64 and 1024 by default. The store has that
//! many memtables of 1 MiB; then they are flushed, into one run. Each number is
//! the mean of one round, in nanoseconds; gets are of keys that are there, even or skewed by
//! Zipf's law with exponent 0.99, and of keys that are not.

use std::time::Instant;

use thermocline::{Db, LookupIndex, Options};

const MEMTABLE_BYTES: u64 = 1 << 20;
const READS: usize = 300_000;
const SCANS: usize = 20_000;
const SCAN_ENTRIES: usize = 10;

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 11
    }
}

/// Draws ranks; scattered over the keys by a mix of their bits.
struct Keys {
    sums: Vec<f64>,
    count: u64,
}

impl Keys {
    fn new(count: u64) -> Keys {
        let mut sum = 0.0;
        let weights = (1..=count).map(|n| (n as f64).powf(-0.99));
        let sums = weights.map(|w| {
            sum += w;
            sum
        });
        Keys {
            sums: sums.collect(),
            count,
        }
    }

    fn draw(&self, dice: &mut Dice, skewed: bool) -> u64 {
        if !skewed {
            return dice.next() % self.count;
        }
        let at = dice.next() as f64 / (1u64 << 53) as f64 * self.sums[self.sums.len() - 1];
        let rank = self.sums.partition_point(|&sum| sum < at) as u64;
        rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.count
    }
}

/// Twice the number: odd ones are in no store.
fn key(n: u64) -> Vec<u8> {
    format!("user{:012}", n * 2).into_bytes()
}

fn time(count: usize, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        work();
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

fn gets(db: &Db, keys: &Keys) -> [f64; 3] {
    let asked = |skewed: bool, odd: u64| {
        let mut dice = Dice(7);
        let all = (0..READS).map(|_| format!("user{:012}", keys.draw(&mut dice, skewed) * 2 + odd));
        let all: Vec<String> = all.collect();
        let mut at = 0;
        time(READS, || {
            std::hint::black_box(db.get(all[at].as_bytes()).expect("a read"));
            at += 1;
        })
    };
    [asked(false, 0), asked(true, 0), asked(false, 1)]
}

fn scans(db: &Db, keys: &Keys, skewed: bool) -> f64 {
    let mut dice = Dice(9);
    time(SCANS, || {
        let mut iter = db.iter().expect("an iterator");
        iter.seek(&key(keys.draw(&mut dice, skewed)))
            .expect("a seek");
        for _ in 0..SCAN_ENTRIES {
            if iter.valid() {
                std::hint::black_box(iter.value());
                iter.next().expect("a step");
            }
        }
    })
}

struct Shape {
    memtables: u64,
    value_bytes: usize,
    skewed: bool,
}

fn store(
    shape: &Shape,
    keys: &Keys,
    filters: bool,
    index: LookupIndex,
    parts: u64,
) -> (tempfile::TempDir, Db, f64) {
    let directory = tempfile::tempdir().expect("a directory");
    let cut = |part: u64| key(keys.count * part / parts);
    let options = Options::at(directory.path())
        .write_buffer_bytes(4 * shape.memtables * MEMTABLE_BYTES)
        .memtable_bytes(MEMTABLE_BYTES)
        .newest_runs_merge(100)
        .newest_runs_stop(400)
        .log_bytes_max(4 << 30)
        .background_threads(0)
        .cuts((1..parts).map(cut).collect())
        .memtable_filters(filters)
        .lookup_index(index);
    let db = Db::open(options).expect("a store");
    let mut dice = Dice(5);
    let value = vec![0; shape.value_bytes];
    let mut writes = 0;
    let start = Instant::now();
    // As many bytes whatever the parts: each has a memtable from the first on.
    let is_full = |db: &Db| match parts {
        1 => db.stats().memtables >= shape.memtables,
        _ => db.stats().memtable_bytes > shape.memtables * MEMTABLE_BYTES,
    };
    while !is_full(&db) {
        for _ in 0..200 {
            db.put(&key(keys.draw(&mut dice, shape.skewed)), &value)
                .expect("a write");
            writes += 1;
        }
    }
    let nanoseconds = start.elapsed().as_nanos() as f64 / f64::from(writes);
    (directory, db, nanoseconds)
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let memtables = arguments.next().unwrap_or(64);
    let value_bytes = arguments.next().unwrap_or(1024) as usize;
    let keys = Keys::new(memtables * MEMTABLE_BYTES / (value_bytes as u64 + 100));
    println!(
        "{memtables} memtables, values of {value_bytes} bytes, {} keys",
        keys.count
    );
    for skewed in [false, true] {
        let shape = Shape {
            memtables,
            value_bytes,
            skewed,
        };
        println!("\nwritten {}", if skewed { "skewed" } else { "evenly" });
        let kinds = [
            ("neither", false, LookupIndex::Off),
            ("index", false, LookupIndex::On),
            ("filters", true, LookupIndex::Off),
            ("both", true, LookupIndex::On),
        ];
        for (name, filters, index) in kinds {
            let (directory, db, put) = store(&shape, &keys, filters, index, 1);
            let [even, zipf, absent] = gets(&db, &keys);
            println!(
                "{name:>8}, {} memtables: put {put:6.0}, get {even:6.0}, skewed {zipf:6.0}, absent {absent:6.0}",
                db.stats().memtables
            );
            db.flush().expect("a flush");
            let [even, zipf, absent] = gets(&db, &keys);
            println!(
                "{name:>8}, flushed:      get {even:6.0}, skewed {zipf:6.0}, absent {absent:6.0}"
            );
            let lookup = db.stats().lookup;
            if lookup.bytes > 0 {
                print!("          {lookup}");
            }
            drop((db, directory));
        }
        for parts in [1, memtables] {
            let (directory, db, _) = store(&shape, &keys, true, LookupIndex::Off, parts);
            let scan = scans(&db, &keys, skewed);
            println!(
                "{parts:>3} parts, {} memtables: scan of {SCAN_ENTRIES} {scan:8.0}",
                db.stats().memtables
            );
            let ranges = db.stats().range_index;
            if ranges.scans > 0 {
                print!("          {ranges}");
            }
            drop((db, directory));
        }
    }
}
