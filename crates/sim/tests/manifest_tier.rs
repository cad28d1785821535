//! The manifest on its way from one tier to another, and the machine going down at every call of
//! it; see `thermocline_sim::harness::faults` for all else that a store does meanwhile.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::{Path, PathBuf};

use thermocline::store::Environment;
use thermocline::{Db, Durability, Options, Tier, WriteBatch, WriteOptions, repair_in, verify_in};
use thermocline_sim::disk::{Disk, Down, Fault};

const TIERS: [&str; 3] = ["fast", "slow", "slowest"];
const KEYS: u8 = 30;

fn directory(tier: &str) -> PathBuf {
    Path::new("/").join(tier).join("store")
}

fn options(manifest_tier: &str) -> Options {
    let tier = |name: &&str| Tier::new(name, directory(name)).block_bytes(512);
    Options::new()
        .with_tiers(TIERS.iter().map(tier).collect())
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .log_segment_bytes(16 << 10)
        .log_bytes_max(64 << 10)
        .reserve_bytes(0)
        .background_threads(0)
        .manifest_tier(manifest_tier)
}

/// A closed store with entries in tables and in the log, and its manifest on that tier.
fn store(manifest_tier: &str) -> Disk {
    let disk = Disk::new(1);
    for tier in TIERS {
        disk.mount(format!("/{tier}"));
    }
    let db = Db::open_in(options(manifest_tier), &disk.environment()).unwrap();
    for i in 0..KEYS {
        put(&db, i).unwrap();
        if i == KEYS / 2 {
            db.flush().unwrap();
        }
    }
    db.close().unwrap();
    disk
}

fn put(db: &Db, i: u8) -> thermocline::Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(&[i], &[i; 100])?;
    let how = WriteOptions::default().durability(Durability::Device);
    db.write_with(&batch, how)
}

fn has_all(db: &Db, context: &str) {
    for i in 0..KEYS {
        let found = db.get(&[i]).unwrap();
        assert_eq!(found.as_deref(), Some(&[i; 100][..]), "{context}: {i}");
    }
}

/// Where manifests lie.
fn lie(disk: &Disk) -> Vec<&'static str> {
    let is_manifest = |name: &String| name.starts_with("MANIFEST-");
    let count = |tier: &str| {
        disk.names(&directory(tier))
            .iter()
            .filter(|n| is_manifest(n))
            .count()
    };
    let tiers = TIERS.iter();
    tiers
        .flat_map(|tier| std::iter::repeat_n(*tier, count(tier)))
        .collect()
}

/// Opens, writes and closes as far as the machine lets it.
fn work(options: Options, environment: &Environment) -> thermocline::Result<()> {
    let db = Db::open_in(options, environment)?;
    put(&db, 0)?;
    db.flush()?;
    db.close()
}

/// What is there after the machine went down is a store, and opens with the manifest on any tier.
fn opens(disk: &Disk, context: &str) {
    let report = verify_in(options("fast"), &disk.environment()).unwrap();
    assert!(report.problems.is_empty(), "{context}: {report}");
    for tier in TIERS {
        let disk = disk.fork(2);
        let context = format!("{context}, then to {tier}");
        let reading = options(tier).read_only(true);
        has_all(
            &Db::open_in(reading, &disk.environment()).unwrap(),
            &context,
        );
        let db = Db::open_in(options(tier), &disk.environment())
            .unwrap_or_else(|e| panic!("{context}: {e}"));
        has_all(&db, &context);
        assert_eq!(lie(&disk), [tier], "{context}");
        db.close().unwrap();
        let report = verify_in(options(tier), &disk.environment()).unwrap();
        assert!(report.problems.is_empty(), "{context}: {report}");
    }
}

/// Without the pointer, some manifest is found, on whatever tier it lies.
fn is_repaired(disk: &Disk, context: &str) {
    disk.remove_all(&directory("fast").join("CURRENT"));
    assert!(
        Db::open_in(options("slow"), &disk.environment()).is_err(),
        "{context}"
    );
    let report = repair_in(options("slow"), &disk.environment())
        .unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(report.tables_lost.is_empty(), "{context}: {report}");
    assert_eq!(lie(disk), ["slow"], "{context}");
    has_all(
        &Db::open_in(options("slow"), &disk.environment()).unwrap(),
        context,
    );
}

fn down_at_every_call(from: &str, to: &str) {
    let base = store(from);
    let mut calls = 0;
    for down in [Down::Kill, Down::Power] {
        for call in 1.. {
            let disk = base.fork(call);
            disk.fault_in(call, Fault::Crash);
            let done = work(options(to), &disk.environment());
            if !disk.is_crashed() {
                done.unwrap();
                assert_eq!(lie(&disk), [to]);
                break;
            }
            disk.reboot(down);
            disk.heal();
            let context = format!("{from} to {to}, {down:?} at call {call}");
            opens(&disk, &context);
            is_repaired(&disk, &context);
            calls += 1;
        }
    }
    println!("{from} to {to}: down at {calls} calls");
    assert!(calls > 100, "{calls}");
}

#[test]
fn a_machine_that_goes_down_while_the_manifest_moves_off_the_first_tier_has_a_store() {
    down_at_every_call("fast", "slow");
}

#[test]
fn a_machine_that_goes_down_while_the_manifest_moves_to_the_first_tier_has_a_store() {
    down_at_every_call("slowest", "fast");
}

#[test]
fn a_machine_that_goes_down_while_the_manifest_moves_between_later_tiers_has_a_store() {
    down_at_every_call("slow", "slowest");
}

/// Nothing is there yet: what is left is nothing, or a store.
#[test]
fn a_machine_that_goes_down_while_a_store_is_made_with_its_manifest_apart_can_make_it() {
    for down in [Down::Kill, Down::Power] {
        for call in 1.. {
            let disk = Disk::new(call);
            disk.fault_in(call, Fault::Crash);
            let done = Db::open_in(options("slow"), &disk.environment()).and_then(Db::close);
            if !disk.is_crashed() {
                done.unwrap();
                break;
            }
            disk.reboot(down);
            disk.heal();
            for tier in TIERS {
                let disk = disk.fork(call);
                let db = Db::open_in(options(tier), &disk.environment())
                    .unwrap_or_else(|e| panic!("{down:?} at call {call}, then on {tier}: {e}"));
                assert_eq!(lie(&disk), [tier], "{down:?} at call {call}");
                db.close().unwrap();
            }
        }
    }
}

/// A failing device: an opening that cannot write to the new tier leaves the store where it was.
#[test]
fn an_opening_that_fails_on_the_tier_that_the_manifest_is_to_move_to_leaves_a_store() {
    let base = store("fast");
    for fault in [Fault::Io, Fault::Full(1), Fault::Sync, Fault::ReadOnly] {
        for call in 1.. {
            let disk = base.fork(call);
            disk.fault_in(call, fault);
            let done = work(options("slow"), &disk.environment());
            let is_over = disk.faults_met() == 0;
            disk.heal();
            opens(
                &disk,
                &format!("{fault:?} at call {call}: {:?}", done.err()),
            );
            if is_over {
                break;
            }
        }
    }
}
