//! Room on the fast tier: when the device is the limit, and when what would make room fails.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use thermocline::store::{FileSystem, OpenHow, read_exact_at, write_all_at};
use thermocline::{Db, Durability, Options, Tier, WriteBatch, WriteOptions};
use thermocline_sim::Dice;
use thermocline_sim::disk::{Device, Disk};

fn options(preset: &str, fast_bytes: Option<u64>, reserve: u64) -> Options {
    let mut fast = Tier::new("fast", "/fast/store").block_bytes(1024);
    if let Some(bytes) = fast_bytes {
        fast = fast.capacity_bytes(bytes);
    }
    let slow = Tier::new("slow", "/slow/store").block_bytes(1024);
    Options::new()
        .tier(fast)
        .tier(slow)
        .preset(preset)
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(8 << 10)
        .first_level_bytes(16 << 10)
        .newest_runs_merge(4)
        .log_segment_bytes(64 << 10)
        .log_bytes_max(256 << 10)
        .block_cache_bytes(0)
        .reserve_bytes(reserve)
        .background_threads(0)
}

fn machine(seed: u64) -> (Disk, Device, Device) {
    let disk = Disk::new(seed);
    let (fast, slow) = (disk.mount("/fast"), disk.mount("/slow"));
    (disk, fast, slow)
}

fn key(i: u64) -> Vec<u8> {
    format!("k{i:05}").into_bytes()
}

fn value(i: u64) -> Vec<u8> {
    let mut dice = Dice(i);
    (0..300).map(|_| dice.next() as u8).collect()
}

fn files(disk: &Disk, tier: &str, ending: &str) -> Vec<PathBuf> {
    let names = disk.names(Path::new(tier)).into_iter();
    names
        .filter(|n| n.ends_with(ending))
        .map(|n| Path::new(tier).join(n))
        .collect()
}

/// A bit rots in every data object of the slow tier. Merges into it fail for good. Flushes can
/// go on: they need nothing of it.
fn rot(preset: &str) {
    let (disk, _, _) = machine(2);
    let db = Db::open_in(options(preset, Some(300 << 10), 0), &disk.environment()).unwrap();
    let mut dice = Dice(1);
    for _ in 0..6000 {
        let i = dice.below(3000);
        db.put(&key(i), &value(i)).unwrap();
        while db.step().unwrap() {}
    }
    db.flush().unwrap();
    db.settle().unwrap();
    let slow = files(&disk, "/slow/store", ".data");
    assert!(slow.len() > 3, "{slow:?}");
    for path in slow {
        let file = disk.open(&path, OpenHow::WRITE).unwrap();
        let mut byte = [0; 1];
        read_exact_at(&*file, &mut byte, 100).unwrap();
        write_all_at(&*file, &[byte[0] ^ 1], 100).unwrap();
        file.sync().unwrap();
    }
    // Twice the fast tier, new keys in the middle of all others. Flushes wait for twenty seconds at
    // most for room on the fast tier, and then no more.
    let mut waited = Vec::new();
    for n in 0..3000u64 {
        let i = dice.below(3000);
        let put = || db.put(&key(i), &value(i + n)).is_ok();
        let tries = (1..100).find(|_| {
            let done = put();
            disk.pass_time(Duration::from_millis(300));
            done
        });
        let tries = tries.unwrap_or_else(|| panic!("{preset}: writers are stuck after {n}"));
        if tries > 30 {
            waited.push((n, tries));
        }
        let memory = db.stats().memory;
        let (used, max) = (memory.used.memtables, memory.max.memtables);
        assert!(used <= max, "{preset} after {n}: {used} of {max} bytes");
        // The write buffer is 64 KiB, the log may have 256.
        assert!(used < 256 << 10, "{preset} after {n}: {used} bytes");
        let _ = db.step();
    }
    assert!(waited.len() < 2, "{preset}: {waited:?}");
}

#[test]
fn a_rotten_slow_tier_does_not_stop_writers_of_leveled() {
    rot("leveled");
}

#[test]
fn a_rotten_slow_tier_does_not_stop_writers_of_logstore() {
    rot("logstore");
}

#[test]
fn a_rotten_slow_tier_does_not_stop_writers_of_logstore_unoptimised() {
    rot("logstore-unoptimised");
}

/// The fast device is the limit, the slow one has room: puts never fail for want of space.
fn device_full(preset: &str, seed: u64, reserve: u64) -> Result<u64, String> {
    let (disk, fast, _) = machine(seed);
    fast.set_capacity_bytes(Some(1200 << 10));
    let db = Db::open_in(options(preset, None, reserve), &disk.environment()).unwrap();
    let mut dice = Dice(seed);
    let mut least = u64::MAX;
    for n in 0..12_000u64 {
        let i = dice.below(8000);
        let mut batch = WriteBatch::new();
        batch.put(&key(i), &value(i + n)).unwrap();
        let durable = WriteOptions::default().durability(Durability::Device);
        if let Err(e) = db.write_with(&batch, durable) {
            let stats = db.stats();
            let again = db.put(b"more", b"x").err().map(|e| e.to_string());
            drop(db);
            let opened = Db::open_in(options(preset, None, reserve), &disk.environment());
            let opened = opened.map(|_| ()).map_err(|e| e.to_string());
            return Err(format!(
                "{preset} seed {seed} after {n}, free {least}: {e}; the next put: {again:?}; opened again: {opened:?}\n{stats}"
            ));
        }
        least = least.min((1200 << 10) - fast.used_bytes().min(1200 << 10));
    }
    Ok(least)
}

#[test]
fn a_fast_device_that_is_full_stops_no_writer() {
    let mut wrong = Vec::new();
    for preset in ["leveled", "logstore", "logstore-unoptimised", "mutant"] {
        for seed in 1..5 {
            let found = device_full(preset, seed, 256 << 10);
            wrong.extend(found.err());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Who writes does the work, and is told that it fails; what was taken stays within what memory may
/// hold.
#[test]
fn a_writer_without_threads_stops_at_the_promise_while_flushes_fail() {
    let (disk, fast, slow) = machine(6);
    disk.mount("/log");
    // The log has a device of its own, on which there may be no tables.
    let tier = |name: &str| Tier::new(name, format!("/{name}/store")).block_bytes(1024);
    let tiers = vec![tier("fast"), tier("slow"), tier("log").capacity_bytes(1)];
    let options = options("leveled", None, 0).with_tiers(tiers);
    let options = options.log_tier("log").log_bytes_max(64 << 20);
    let db = Db::open_in(options, &disk.environment()).unwrap();
    for device in [&fast, &slow] {
        device.set_capacity_bytes(Some(device.used_bytes() + (4 << 10)));
    }
    let (mut taken, mut refused) = (Vec::new(), 0);
    for i in 0..4000u64 {
        match db.put(&key(i), &value(i)) {
            Ok(()) => taken.push(i),
            Err(e) => {
                assert!(e.to_string().contains("space"), "{e}");
                refused += 1;
            }
        }
        let memory = db.stats().memory;
        let (used, max) = (memory.used.memtables, memory.max.memtables);
        assert!(used <= max, "after {i}: {used} of {max} bytes");
        if refused > 20 {
            break;
        }
    }
    assert!(refused > 20, "{} taken", taken.len());
    for device in [&fast, &slow] {
        device.set_capacity_bytes(None);
    }
    disk.pass_time(Duration::from_millis(300));
    db.put(b"more", b"x").unwrap();
    db.flush().unwrap();
    for i in taken {
        assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&value(i)[..]));
    }
}
