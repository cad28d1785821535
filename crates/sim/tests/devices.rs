//! Devices that are really full or really read-only: small ext4 file systems on
//! loop devices. They need root; without, each says that it is skipped.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use thermocline::{Db, Durability, ErrorKind, Options, Tier};
use thermocline_sim::harness::process::Worker;
use thermocline_sim::scratch::Mount;
use thermocline_sim::worker::{single_options, single_report};

const IMAGE_BYTES: u64 = 64 << 20;

fn options(tiers: &[&Path]) -> Options {
    let mut options = Options::new();
    for (i, tier) in tiers.iter().enumerate() {
        let mut tier = Tier::new(&format!("tier{i}"), tier.join("store"));
        if i + 1 < tiers.len() {
            tier = tier.capacity_bytes(2 << 20);
        }
        options = options.tier(tier);
    }
    options
        .write_buffer_bytes(2 << 20)
        .table_bytes(1 << 20)
        .first_level_bytes(4 << 20)
        .log_segment_bytes(1 << 20)
        .log_bytes_max(8 << 20)
        .reserve_bytes(0)
        .background_threads(2)
}

fn value(i: u64) -> Vec<u8> {
    // Nothing that any layer could compress.
    let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..4000).map(|_| byte()).collect()
}

fn check(db: &Db, model: &BTreeMap<[u8; 8], u64>) {
    let mut found = db.iter().unwrap().forward();
    for (key, i) in model {
        let (k, v) = found.next().unwrap().unwrap();
        assert_eq!((&k[..], v == value(*i)), (&key[..], true));
    }
    assert!(found.next().is_none());
}

fn fill_free_and_resume(mapped: bool) {
    let Some(mount) = Mount::new(IMAGE_BYTES) else {
        return;
    };
    let ballast = mount.path().join("ballast");
    std::fs::write(&ballast, vec![1u8; 24 << 20]).unwrap();
    let options = options(&[mount.path()]).log_mapped(mapped);
    let db = Db::open(options.clone()).unwrap();
    let mut model = BTreeMap::new();
    let mut i = 0u64;
    let refused = loop {
        assert!(i < 100_000, "64 MiB hold more than 400 MB");
        i += 1;
        let key = (i % 20_000).to_be_bytes();
        match db.put(&key, &value(i)) {
            Ok(()) => model.insert(key, i),
            Err(e) => break e,
        };
    };
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    check(&db, &model);
    for (key, i) in model.iter().take(50) {
        assert!(db.get(key).unwrap().as_deref() == Some(&value(*i)[..]));
    }
    // Full remains full, and named.
    for _ in 0..5 {
        if let Err(e) = db.put(b"more", &value(0)) {
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
        } else {
            db.delete(b"more").ok();
        }
    }
    std::fs::remove_file(&ballast).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut resumed = 0;
    while resumed < 1000 {
        i += 1;
        let key = (i % 2000).to_be_bytes();
        match db.put(&key, &value(i)) {
            Ok(()) => {
                resumed += 1;
                model.insert(key, i);
            }
            Err(e) => {
                assert!(Instant::now() < deadline, "writing does not resume: {e}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    db.delete(b"more").unwrap();
    check(&db, &model);
    db.flush().unwrap();
    check(&db, &model);
    drop(db);
    let db = Db::open(options).unwrap();
    check(&db, &model);
    drop(db);
}

#[test]
fn a_full_device_refuses_writes_serves_reads_and_resumes_when_freed() {
    fill_free_and_resume(true);
    fill_free_and_resume(false);
}

#[test]
fn a_process_killed_on_a_full_device_has_lost_nothing_and_its_store_resumes() {
    let (mut compared, mut refusals) = (0, 0);
    for seed in 0..4 {
        let Some(mount) = Mount::new(12 << 20) else {
            return;
        };
        let program = Path::new(env!("CARGO_BIN_EXE_thermocline-sim"));
        let ballast = mount.path().join("ballast");
        std::fs::write(&ballast, vec![1u8; 4 << 20]).unwrap();
        let worker = Worker::start(program, mount.outside(), seed, "fill");
        worker.wait_refused(mount.outside(), 20 + 20 * seed);
        worker.kill().unwrap();
        let (before, refused) = single_report(mount.path(), mount.outside(), seed);
        // Full to the last byte, so that the manifest has no room either.
        let mut last = std::fs::File::create(mount.path().join("last")).unwrap();
        for size in [1 << 20, 4096, 1] {
            while std::io::Write::write_all(&mut last, &vec![1; size]).is_ok() {}
        }
        match Db::open(single_options(mount.path(), seed)) {
            Ok(db) => drop(db),
            Err(e) => assert_eq!(e.kind(), ErrorKind::NoSpace, "seed {seed}: {e}"),
        }
        let (again, _) = single_report(mount.path(), mount.outside(), seed);
        assert!(
            again >= before,
            "seed {seed}: {before} entries, then {again}"
        );
        std::fs::remove_file(mount.path().join("last")).unwrap();
        std::fs::remove_file(&ballast).unwrap();
        let db = Db::open(single_options(mount.path(), seed)).unwrap();
        for n in 0..300u32 {
            db.put(format!("resumed {n}").as_bytes(), &[1; 1000])
                .unwrap_or_else(|e| panic!("seed {seed}: does not resume: {e}"));
        }
        db.delete_range(b"resumed", b"resumee").unwrap();
        db.close().unwrap();
        compared += single_report(mount.path(), mount.outside(), seed).0;
        refusals += refused;
    }
    println!("4 kills on a full device, {refusals} refusals, {compared} entries compared");
}

/// The first tier, with log and manifest, has not a byte left; the other one has
/// room for tables, and the log for entries.
#[test]
fn a_manifest_without_room_refuses_the_flush_and_goes_on_when_space_is_freed() {
    let (Some(fast), Some(slow)) = (Mount::new(IMAGE_BYTES), Mount::new(IMAGE_BYTES)) else {
        return;
    };
    let options = options(&[fast.path(), slow.path()])
        .log_segment_bytes(16 << 20)
        .log_bytes_max(32 << 20);
    let db = Db::open(options.clone()).unwrap();
    db.put(b"first", b"").unwrap();
    db.delete(b"first").unwrap();
    let full = fast.path().join("full");
    let mut file = std::fs::File::create(&full).unwrap();
    for size in [1 << 20, 4096, 1] {
        while std::io::Write::write_all(&mut file, &vec![1; size]).is_ok() {}
    }
    let mut model = BTreeMap::new();
    let refused = (0..500u64).find_map(|i| {
        db.put(&i.to_be_bytes(), &value(i)).unwrap();
        model.insert(i.to_be_bytes(), i);
        db.flush().err()
    });
    let refused = refused.expect("a manifest grows with every flush");
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    let name = refused.path().and_then(Path::file_name).unwrap_or_default();
    assert!(name.to_string_lossy().starts_with("MANIFEST"), "{refused}");
    check(&db, &model);
    let before = model.len();
    std::fs::remove_file(&full).unwrap();
    drop(file);
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(e) = db.flush() {
        assert!(Instant::now() < deadline, "flushing does not resume: {e}");
        std::thread::sleep(Duration::from_millis(20));
    }
    check(&db, &model);
    db.close().unwrap();
    let db = Db::open(options).unwrap();
    check(&db, &model);
    println!("{refused}; {before} entries compared");
}

/// Found by this test: `verify`, which changes nothing, was refused on a
/// read-only mount, as the lock file was opened for writing.
#[test]
fn a_store_on_a_read_only_mount_can_be_read_and_is_refused_for_writing() {
    let Some(mount) = Mount::new(IMAGE_BYTES) else {
        return;
    };
    let options = options(&[mount.path()]);
    let mut model = BTreeMap::new();
    let db = Db::open(options.clone()).unwrap();
    for i in 0..1000u64 {
        db.put(&i.to_be_bytes(), &value(i)).unwrap();
        model.insert(i.to_be_bytes(), i);
    }
    // While it is open for writing, the system does not take the mount away.
    assert!(!mount.remount("ro"));
    db.put(&1000u64.to_be_bytes(), &value(1000)).unwrap();
    model.insert(1000u64.to_be_bytes(), 1000);
    db.close().unwrap();
    assert!(mount.remount("ro"));
    let error = Db::open(options.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("Read-only"), "{error}");
    let db = Db::open(options.clone().read_only(true)).unwrap();
    check(&db, &model);
    drop(db);
    let report = thermocline::verify(options.clone()).unwrap();
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert!(mount.remount("rw"));
    let db = Db::open(options).unwrap();
    check(&db, &model);
    db.put(b"again", b"1").unwrap();
    db.close().unwrap();
}

/// As when the system meets an error of the device: with files open for
/// writing, that is the way a mount becomes read-only.
fn turns_read_only(which: usize, mapped: bool) {
    let Some(fast) = Mount::new(IMAGE_BYTES) else {
        return;
    };
    let Some(slow) = Mount::new(IMAGE_BYTES) else {
        return;
    };
    let mounts = [&fast, &slow];
    let options = options(&[fast.path(), slow.path()])
        .log_mapped(mapped)
        .durability(Durability::Device);
    let db = Db::open(options.clone()).unwrap();
    let mut model = BTreeMap::new();
    let mut put = |db: &Db, i: u64| {
        let key = (i % 5000).to_be_bytes();
        let result = db.put(&key, &value(i));
        if result.is_ok() {
            model.insert(key, i);
        }
        (key, result)
    };
    for i in 0..1500 {
        put(&db, i).1.unwrap();
    }
    let below = db.stats().tiers[1].tables;
    assert!(below > 0, "nothing lies on the slower tier");
    assert!(mounts[which].remount("abort"));
    let mut refused = None;
    let mut begun = Vec::new();
    for i in 1500..4500 {
        let (key, result) = put(&db, i);
        if let Err(e) = result {
            let named = matches!(
                e.kind(),
                ErrorKind::Io | ErrorKind::Poisoned | ErrorKind::NoSpace
            );
            assert!(named, "{e}");
            begun.push((key, i));
            refused = Some(e);
            if begun.len() == 20 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let refused = refused.unwrap_or_else(|| panic!("tier {which} is read-only, and nobody says"));
    // Reads go on. A write that was refused after its log was written may be
    // there, or not.
    let allowed = |db: &Db| {
        for (key, &i) in &model {
            let found = db.get(key).unwrap();
            let mut may = begun.iter().filter(|(k, _)| k == key).map(|&(_, i)| i);
            let is = |i: u64| found.as_deref() == Some(&value(i)[..]);
            assert!(is(i) || may.any(is), "an acknowledged entry is lost");
        }
        model.len()
    };
    let read = allowed(&db);
    let closed = db.close();
    if which == 0 {
        closed.expect_err("the log cannot be made durable");
    } else {
        closed.unwrap();
    }
    // A device that failed is repaired, and mounted again.
    mounts[which].unmount();
    assert!(mounts[which].mount());
    let report = thermocline::verify(options.clone()).unwrap();
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    let db = Db::open(options).unwrap();
    allowed(&db);
    db.put(b"again", b"1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    println!("tier {which} read-only, mapped {mapped}: {refused}; {read} entries compared");
}

/// Found by this test: closing a store whose log had failed said that all was
/// well.
#[test]
fn a_first_tier_that_turns_read_only_at_work_refuses_writes_and_loses_nothing() {
    turns_read_only(0, true);
    turns_read_only(0, false);
}

#[test]
fn a_slower_tier_that_turns_read_only_at_work_loses_nothing() {
    turns_read_only(1, true);
    turns_read_only(1, false);
}
