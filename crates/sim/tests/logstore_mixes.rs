//! The mixes of LogStore's table I under `logstore` and `leveled`, on simulated devices:
//! what is merged, by which rule, and where reads are served. Nothing here is a time.
//!
//! `--nocapture` prints the figures, with `--ignored` those of all mixes.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use thermocline::{Db, DeviceProfile, Options, Tier};
use thermocline_sim::disk::Disk;
use thermocline_sim::{Dice, Zipf};

const KEYS: u32 = 4_000;
const VALUE_BYTES: usize = 300;
/// Operations between two looks at what is to be done, and the time of them where that
/// does not depend on devices.
const TURN: u32 = 25;
const TURN_S: f64 = 0.04;
/// More than are made between two looks.
const EVENTS_MAX: usize = 50;
const DATA_BYTES: u64 = KEYS as u64 * (VALUE_BYTES as u64 + 10);

/// The paper's NVMe and HDD (sections VI-A3 and VI-B1): reads a second, bytes a second.
const DEVICES: [(f64, f64); 2] = [(6000.0, 480e6), (60.0, 150e6)];

/// Sizes as `thermocline-bench papers` has them, in proportion to the data; half of it
/// fits the fast tier.
fn options(preset: &str) -> Options {
    let tier = |name: &str, at: usize| {
        let (random_read_iops, bytes_per_s) = DEVICES[at];
        Tier::new(name, format!("/{name}/store"))
            .block_bytes(1024)
            .profile(DeviceProfile {
                random_read_iops,
                sequential_mb_s: bytes_per_s / 1e6,
            })
    };
    let memory = DATA_BYTES / 12;
    Options::new()
        .tier(tier("fast", 0).capacity_bytes(DATA_BYTES / 2))
        .tier(tier("slow", 1))
        .preset(preset)
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(DATA_BYTES / 160)
        .first_level_bytes(DATA_BYTES / 16)
        .log_segment_bytes(64 << 10)
        .log_bytes_max(256 << 10)
        .block_cache_bytes(memory * 3 / 8)
        .reserve_bytes(0)
        .background_threads(0)
}

fn key(i: u32) -> Vec<u8> {
    format!("k{i:06}").into_bytes()
}

fn value(i: u32, n: u32) -> Vec<u8> {
    let mut dice = Dice(u64::from(i) << 32 | u64::from(n));
    (0..VALUE_BYTES).map(|_| dice.next() as u8).collect()
}

/// Of a hundred operations; the rest are updates, or inserts where there are scans.
#[derive(Clone, Copy)]
struct Mix {
    name: &'static str,
    reads: u64,
    scans: u64,
}

const fn mix(name: &'static str, reads: u64, scans: u64) -> Mix {
    Mix { name, reads, scans }
}

const B_10: Mix = mix("B-10", 10, 0);
const WRITE_ONLY: Mix = mix("write-only", 0, 0);
const MIXES: [Mix; 6] = [
    mix("C", 100, 0),
    mix("B-90", 90, 0),
    mix("A", 50, 0),
    B_10,
    mix("E", 0, 95),
    WRITE_ONLY,
];

struct Run {
    db: Db,
    disk: Disk,
    /// Whether time passes as the devices would take it; else as on devices that are
    /// faster than the clients.
    slow_clock: bool,
    /// The last event that was counted.
    seen: u64,
    /// Merges that wrote something, by rule: how many, and bytes written.
    rules: BTreeMap<String, (u64, u64)>,
    /// Point reads that each tier had answered.
    hits: Vec<u64>,
    /// Keys that there are.
    keys: u32,
}

impl Run {
    fn new(options: &Options, seed: u64, slow_clock: bool) -> Run {
        let disk = Disk::new(seed);
        disk.mount("/fast");
        disk.mount("/slow");
        let db = Db::open_in(options.clone(), &disk.environment()).unwrap();
        let mut run = Run {
            db,
            disk,
            slow_clock,
            seen: 0,
            rules: BTreeMap::new(),
            hits: vec![0; DEVICES.len()],
            keys: KEYS,
        };
        let mut dice = Dice(seed);
        let mut keys: Vec<u32> = (0..KEYS).collect();
        for at in (1..keys.len()).rev() {
            keys.swap(at, dice.below(at as u64 + 1) as usize);
        }
        for i in keys {
            run.db.put(&key(i), &value(i, 0)).unwrap();
            while run.db.step().unwrap() {}
        }
        run.db.flush().unwrap();
        run.db.settle().unwrap();
        run.turn();
        run
    }

    /// Does what is to be done, and lets time pass.
    fn turn(&mut self) {
        while self.db.step().unwrap() {
            for event in self.db.events(EVENTS_MAX) {
                if event.number <= self.seen {
                    continue;
                }
                self.seen = event.number;
                if event.job == "merge" && event.bytes_out > 0 {
                    let rule = event.reason.rule.to_string();
                    let (merges, bytes) = self.rules.entry(rule).or_default();
                    *merges += 1;
                    *bytes += event.bytes_out;
                }
            }
        }
        let mut passed_s = TURN_S;
        if self.slow_clock {
            let tiers = self.db.stats().tiers;
            passed_s = TURN_S / 100.0;
            for ((tier, seen), device) in tiers.iter().zip(&mut self.hits).zip(DEVICES) {
                passed_s += (tier.hits - *seen) as f64 / device.0;
                *seen = tier.hits;
            }
        }
        self.disk.pass_time(Duration::from_secs_f64(passed_s));
    }

    fn operate(&mut self, mix: Mix, count: u32, zipf: &Zipf, dice: &mut Dice) {
        for n in 0..count {
            let i = zipf.draw(dice);
            let what = dice.below(100);
            if what < mix.reads {
                assert!(self.db.get(&key(i)).unwrap().is_some());
            } else if what < mix.reads + mix.scans {
                let length = 1 + dice.below(100) as usize;
                let mut iter = self.db.iter().unwrap();
                iter.seek(&key(i)).unwrap();
                for _ in 0..length {
                    if !iter.valid() {
                        break;
                    }
                    iter.next().unwrap();
                }
            } else if mix.scans > 0 {
                self.keys += 1;
                self.db.put(&key(self.keys), &value(i, n)).unwrap();
            } else {
                self.db.put(&key(i), &value(i, n)).unwrap();
            }
            if n % TURN == 0 {
                self.turn();
            }
        }
    }
}

/// What a preset did for a mix, once it had gone on for a while.
struct Outcome {
    /// Merges that wrote something, by rule: how many, and bytes written.
    rules: BTreeMap<String, (u64, u64)>,
    merged_bytes: u64,
}

impl Outcome {
    fn merges(&self, rule: &str) -> u64 {
        self.rules.get(rule).map_or(0, |(merges, _)| *merges)
    }
}

fn run(preset: &str, mix: Mix, slow_clock: bool, seed: u64) -> Outcome {
    let zipf = Zipf::new(KEYS);
    let mut run = Run::new(&options(preset), seed, slow_clock);
    let count = if mix.scans > 0 { KEYS } else { 2 * KEYS };
    let mut dice = Dice(4 + seed);
    run.operate(mix, count, &zipf, &mut dice);
    run.rules.clear();
    let before = run.db.stats();
    run.operate(mix, count, &zipf, &mut dice);
    let after = run.db.stats();
    let merged_bytes = after.merge_out_bytes - before.merge_out_bytes;
    let flushed_bytes = after.flushed_bytes - before.flushed_bytes;
    let hits = |at: usize| after.tiers[at].hits - before.tiers[at].hits;
    let fast = hits(0) as f64 / (hits(0) + hits(1)).max(1) as f64;
    let merges: u64 = run.rules.values().map(|(merges, _)| merges).sum();
    let written = |at: usize| after.tiers[at].written_bytes - before.tiers[at].written_bytes;
    println!(
        "{} {preset}: {merges} merges, {} KiB merged, {} flushed; written fast {}, slow {}; \
         of reads of devices {:.0} % fast",
        mix.name,
        merged_bytes >> 10,
        flushed_bytes >> 10,
        written(0) >> 10,
        written(1) >> 10,
        100.0 * fast,
    );
    for (rule, (merges, bytes)) in &run.rules {
        println!("    {rule}: {merges}, {} KiB", bytes >> 10);
    }
    Outcome {
        rules: run.rules,
        merged_bytes,
    }
}

/// Once: what merges read counted as scans, so that with no reader at all tables were
/// merged because reads suffered, which called for more of it: 124 of 181 merges. Then
/// each merge to the slow tier rewrote all of it for a twelfth as many bytes: 7 bytes
/// merged for each one flushed, more than `leveled` did.
#[test]
fn what_nobody_reads_is_merged_for_room_alone_and_less_than_leveled_does() {
    let ours = run("logstore", WRITE_ONLY, false, 1);
    let leveled = run("leveled", WRITE_ONLY, false, 1);
    assert_eq!(ours.merges("staging-reads"), 0);
    assert!(ours.merged_bytes < leveled.merged_bytes);
}

/// Once: a table that came down had at once cost more, by reads that the fast tier had
/// served, than it takes to bring it up: 657 merges up in 12,000 operations.
#[test]
fn what_goes_down_under_writes_does_not_come_up_at_once() {
    let ours = run("logstore", B_10, false, 1);
    assert!(ours.merges("reverse") < 60, "{:?}", ours.rules);
}

/// The table of docs/papers/logstore.md: that of the first seed.
#[test]
#[ignore = "prints a table, and takes minutes"]
fn every_mix_under_both_presets() {
    for (slow_clock, seed) in [false, true]
        .into_iter()
        .flat_map(|c| (1..=4).map(move |s| (c, s)))
    {
        println!("clock of the devices: {slow_clock}, seed {seed}");
        for mix in MIXES {
            run("leveled", mix, slow_clock, seed);
            run("logstore", mix, slow_clock, seed);
        }
    }
}
