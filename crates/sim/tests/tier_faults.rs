//! Tiers that fail, lie, hang, vanish or come back as they were, one scenario
//! a test. The numbers are those of the list of cases in `docs/testing.md`.
//! A fault at *every* call is in `faults.rs`, a slow tier that is only slow in `slow_tier.rs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod forty;
mod presets;

use std::path::{Path, PathBuf};
use std::time::Duration;

use forty::{
    KEYS, Room, by_tier, durably, holds_old, is_fast, key, machine, old, open, options, store,
};
use presets::for_presets;
use thermocline::store::{FileSystem, OpenHow, read_exact_at, write_all_at};
use thermocline::{Db, ErrorKind, verify_in};
use thermocline_sim::disk::{Device, Disk, Down, Fault, Gone};

fn files(disk: &Disk, tier: &str, ending: &str) -> Vec<PathBuf> {
    let names = disk.names(Path::new(tier)).into_iter();
    names
        .filter(|n| n.ends_with(ending))
        .map(|n| Path::new(tier).join(n))
        .collect()
}

fn read(disk: &Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenHow::READ).unwrap();
    let mut bytes = vec![0; file.size_bytes().unwrap() as usize];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    bytes
}

fn write(disk: &Disk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenHow::WRITE).unwrap();
    file.set_size(0).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
    file.sync().unwrap();
}

/// A store with all of its data on the fast tier, of which a preset that gives that tier little
/// relocates most.
fn all_on_the_fast_tier(disk: &Disk, preset: &str) {
    let db = open(disk, &options(preset, Room::Plenty));
    for i in 0..KEYS {
        db.put(&key(i), &old(i)).unwrap();
    }
    db.compact_range(None, None).unwrap();
    drop(db);
    if preset == "logstore" {
        // Of itself it would merge down what lies there. What it relocates is of the last level,
        // and another preset has put it there.
        let db = open(disk, &options("leveled", Room::Plenty));
        db.settle().unwrap();
        assert!(
            db.tables()
                .iter()
                .all(|t| t.slot == "L7" && t.tier == "fast")
        );
    }
}

// case 20
fn case_20_a_copy_that_went_wrong_is_caught_before_its_source_is_given_up(preset: &str) {
    let mut caught = 0;
    for n in 1..40 {
        let (disk, _, slow) = machine(n);
        all_on_the_fast_tier(&disk, preset);
        let db = open(&disk, &options(preset, Room::Little));
        // The device says that all is well.
        slow.fault_named(".data", n, Fault::FlipWrite);
        let settled = db.settle();
        if disk.faults_met() == 0 {
            assert!(n > 4, "there was something to copy");
            break;
        }
        assert_eq!(settled.unwrap_err().kind(), ErrorKind::Corruption);
        caught += 1;
        holds_old(&db, "after the copy that was caught");
        disk.pass_time(Duration::from_secs(1));
        db.settle().unwrap();
        holds_old(&db, "after the copy that was right");
        drop(db);
        disk.reboot(Down::Power);
        holds_old(&open(&disk, &options(preset, Room::Little)), "reopened");
    }
    assert!(caught >= 4, "{caught}");
}

/// The device says that all is well with what `job` of a store as `made` writes to it, of which the
/// n-th write of a file with that ending is spoiled: the job fails, nothing is lost, and it is
/// right the next time. How many were caught.
fn caught_when_read_back(
    preset: &str,
    ending: &'static str,
    tier: usize,
    made: impl Fn(&Db),
    job: impl Fn(&Db) -> thermocline::Result<()>,
) -> u64 {
    let options = options(preset, Room::Plenty).verify_outputs(true);
    for n in 1..200 {
        let (disk, fast, slow) = machine(n);
        let db = open(&disk, &options);
        made(&db);
        let before = db.tables();
        [&fast, &slow][tier].fault_named(ending, n, Fault::FlipWrite);
        let done = job(&db);
        if disk.faults_met() == 0 {
            done.unwrap();
            return n - 1;
        }
        let error = done.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        let told = error.to_string();
        assert!(told.contains(ending) && told.contains("checksum"), "{told}");
        let ids =
            |tables: &[thermocline::TableInfo]| tables.iter().map(|t| t.id).collect::<Vec<_>>();
        assert_eq!(
            ids(&db.tables()),
            ids(&before),
            "write {n}: its inputs are there"
        );
        holds_old(&db, "after what was caught");
        let named = db.tables().len();
        for ending in [".data", ".meta"] {
            let left = files(&disk, "/fast/store", ending).len()
                + files(&disk, "/slow/store", ending).len();
            assert_eq!(left, named, "write {n}: what was wrong is deleted");
        }
        disk.pass_time(Duration::from_secs(1));
        job(&db).unwrap();
        holds_old(&db, "after what was right");
        drop(db);
        disk.reboot(Down::Power);
        holds_old(&open(&disk, &options), "reopened");
        let report = verify_in(options.clone(), &disk.environment()).unwrap();
        assert!(report.problems.is_empty(), "{report}");
    }
    panic!("it never ends");
}

// case 20
fn case_20_what_a_flush_wrote_wrong_is_caught_before_its_memtables_go(preset: &str) {
    for (ending, least) in [(".data", 2), (".meta", 1)] {
        let made = |db: &Db| {
            durably(db, |batch| {
                (0..KEYS).for_each(|i| batch.put(&key(i), &old(i)).unwrap());
            })
        };
        let caught = caught_when_read_back(preset, ending, 0, made, |db| db.flush());
        assert!(caught >= least, "{ending}: {caught}");
    }
}

// case 20
fn case_20_what_a_merge_wrote_wrong_is_caught_before_its_inputs_go(preset: &str) {
    for (ending, least) in [(".data", 4), (".meta", 2)] {
        let made = |db: &Db| {
            // Two runs that overlap.
            for first in 0..2 {
                for i in (first..KEYS).step_by(2) {
                    db.put(&key(i), &old(i)).unwrap();
                }
                db.flush().unwrap();
            }
        };
        let tiers = 0..2;
        let compact = |db: &Db| db.compact_range(None, None);
        let caught = tiers.map(|tier| caught_when_read_back(preset, ending, tier, made, compact));
        let caught: u64 = caught.sum();
        assert!(caught >= least, "{ending}: {caught}");
    }
}

// case 20: without `verify_outputs` what a merge has written is not read back; see "What is not
// tested" in `docs/testing.md`.
#[test]
fn logstore_case_20_a_merge_down_that_went_wrong_is_reported_and_never_returned() {
    let mut reported = 0;
    for n in 1..40 {
        let (disk, _, slow) = machine(n);
        let db = open(&disk, &options("logstore", Room::Plenty));
        for i in 0..KEYS {
            db.put(&key(i), &old(i)).unwrap();
        }
        db.flush().unwrap();
        drop(db);
        let db = open(&disk, &options("logstore", Room::Little));
        slow.fault_named(".data", n, Fault::FlipWrite);
        db.settle().unwrap();
        if disk.faults_met() == 0 {
            break;
        }
        let wrong = (0..KEYS).filter(|&i| match db.get(&key(i)) {
            Ok(found) => {
                assert_eq!(found.as_deref(), Some(&old(i)[..]), "write {n}: k{i:02}");
                false
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Corruption, "write {n}: {e}");
                true
            }
        });
        let wrong = wrong.count();
        assert!(wrong > 0, "write {n}: the damage is met by nobody");
        reported += 1;
    }
    assert!(reported >= 4, "{reported}");
}

// case 20: what is damaged later can only be reported.
fn case_20_a_copy_damaged_after_its_source_is_gone_is_reported_and_never_returned(preset: &str) {
    let (disk, ..) = machine(1);
    drop(store(&disk, preset));
    let path = &files(&disk, "/slow/store", ".data")[0];
    let sound = read(&disk, path);
    for at in (0..sound.len()).step_by(7) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        write(&disk, path, &bytes);
        let db = open(&disk, &options(preset, Room::Little));
        for i in 0..KEYS {
            match db.get(&key(i)) {
                Ok(found) => assert_eq!(found.as_deref(), Some(&old(i)[..]), "byte {at}"),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Corruption, "byte {at}: {e}"),
            }
        }
        drop(db);
    }
}

/// The three ways in which a slow tier takes nothing any more.
fn broken(slow: &Device, way: usize) -> &'static str {
    match way {
        0 => slow.set_read_only(true),
        1 => slow.set_capacity_bytes(Some(slow.used_bytes() + 700)),
        _ => slow.vanish(Gone::Silent),
    }
    ["read-only", "full", "failing"][way]
}

// case 21
fn case_21_a_slow_tier_that_takes_nothing_costs_no_data_no_fast_read_and_heals_by_itself(
    preset: &str,
) {
    for way in 0..3 {
        let (mut all_errors, mut fast_reads) = (0, 0);
        for broken_after in 0..12 {
            let (disk, _, slow) = machine(way as u64);
            let db = store(&disk, preset);
            let mut newest: Vec<Vec<u8>> = (0..KEYS).map(old).collect();
            let mut context = "well";
            let mut errors = 0;
            for round in 0..90u8 {
                if round == broken_after * 3 {
                    context = broken(&slow, way);
                }
                let i = round % KEYS;
                let value = vec![round ^ 0x55; 600];
                match db.put(&key(i), &value) {
                    Ok(()) => newest[i as usize] = value,
                    Err(e) => {
                        // At the limit, with a name; and then it did not happen.
                        assert!(
                            matches!(e.kind(), ErrorKind::Io | ErrorKind::NoSpace),
                            "{context}: {e}"
                        );
                        errors += 1;
                    }
                }
                if round % 5 == 4
                    && let Err(e) = db.step()
                {
                    assert!(
                        matches!(e.kind(), ErrorKind::Io | ErrorKind::NoSpace),
                        "{context}: {e}"
                    );
                    errors += 1;
                    disk.pass_time(Duration::from_secs(1));
                }
                let i = round.wrapping_mul(7) % KEYS;
                if is_fast(&db, i) {
                    let found = db.get(&key(i)).unwrap();
                    assert_eq!(found.as_deref(), Some(&newest[i as usize][..]), "{context}");
                    fast_reads += u32::from(context != "well");
                }
            }
            all_errors += errors;
            slow.come_back();
            slow.set_capacity_bytes(None);
            disk.pass_time(Duration::from_secs(1));
            let context = format!("{context} after {broken_after}, {errors} errors, well again");
            db.put(b"more", b"1")
                .unwrap_or_else(|e| panic!("{context}: {e}"));
            db.settle().unwrap_or_else(|e| panic!("{context}: {e}"));
            for (i, value) in (0..KEYS).zip(&newest) {
                let found = db.get(&key(i)).unwrap();
                assert_eq!(found.as_deref(), Some(&value[..]), "{context}: k{i:02}");
            }
            drop(db);
            disk.reboot(Down::Kill);
            let db = open(&disk, &options(preset, Room::Little));
            for (i, value) in (0..KEYS).zip(&newest) {
                let found = db.get(&key(i)).unwrap();
                assert_eq!(found.as_deref(), Some(&value[..]), "{context}: k{i:02}");
            }
        }
        println!("way {way}: {all_errors} errors, {fast_reads} reads of the fast tier");
        assert!(
            all_errors > 20 && fast_reads > 50,
            "way {way} was hardly met"
        );
    }
}

// case 21, with threads: at the limit writers are told, and never wait for ever.
fn case_21_a_slow_tier_that_fails_hard_makes_no_writer_wait_for_ever_and_writing_resumes(
    preset: &str,
) {
    for way in 0..3 {
        let (disk, _, slow) = machine(20 + way as u64);
        drop(store(&disk, preset));
        let db = open(&disk, &options(preset, Room::Little).background_threads(2));
        let context = broken(&slow, way);
        let (mut newest, mut written) = (vec![None; usize::from(KEYS)], 0);
        let error = loop {
            let i = written as u8 % KEYS;
            let value = vec![written as u8; 600];
            match db.put(&key(i), &value) {
                Ok(()) => newest[usize::from(i)] = Some(value),
                Err(e) => break e,
            }
            written += 1;
            assert!(written < 20_000, "{context}: a slow tier without any limit");
        };
        let lawful = matches!(error.kind(), ErrorKind::Io | ErrorKind::NoSpace);
        assert!(lawful, "{context}: {error}");
        // What memory and the fast tier take, at the least.
        assert!(written > 40, "{context}: {written}");
        for i in (0..KEYS).filter(|&i| is_fast(&db, i)) {
            let wanted = newest[usize::from(i)].clone().unwrap_or_else(|| old(i));
            let found = db.get(&key(i)).unwrap();
            assert_eq!(found.as_deref(), Some(&wanted[..]), "{context}");
        }
        slow.come_back();
        slow.set_capacity_bytes(None);
        // Writing resumes by itself, though not at the same moment.
        while let Err(e) = db.put(b"more", b"1") {
            assert_eq!(e.kind(), error.kind(), "{context}: {e}");
            disk.pass_time(Duration::from_millis(100));
            std::thread::yield_now();
        }
        db.settle().unwrap_or_else(|e| panic!("{context}: {e}"));
        for i in 0..KEYS {
            let wanted = newest[usize::from(i)].clone().unwrap_or_else(|| old(i));
            let found = db.get(&key(i)).unwrap();
            assert_eq!(found.as_deref(), Some(&wanted[..]), "{context}: k{i:02}");
        }
        println!("{context}: {written} writes, then {error}");
    }
}

// case 22
fn case_22_a_slow_tier_that_is_unmounted_is_refused_and_comes_back_whole(preset: &str) {
    for while_open in [false, true] {
        let (disk, _, slow) = machine(3);
        let db = store(&disk, preset);
        if while_open {
            let [fast_keys, slow_keys] = by_tier(&db);
            slow.unmount();
            for &i in &fast_keys {
                assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&old(i)[..]));
            }
            for &i in &slow_keys {
                match db.get(&key(i)) {
                    Ok(found) => assert_eq!(found.as_deref(), Some(&old(i)[..])),
                    Err(e) => assert_ne!(e.kind(), ErrorKind::Corruption, "{e}"),
                }
            }
            drop(db);
        } else {
            drop(db);
            slow.unmount();
        }
        let error = Db::open_in(options(preset, Room::Little), &disk.environment()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongTier, "{error}");
        slow.come_back();
        holds_old(
            &open(&disk, &options(preset, Room::Little)),
            "mounted again",
        );
    }
}

// case 22
fn case_22_a_slow_tier_restored_from_yesterday_is_refused(preset: &str) {
    let (disk, _, slow) = machine(4);
    drop(store(&disk, preset));
    let yesterday = slow.image();
    let db = open(&disk, &options(preset, Room::Little));
    for i in 0..KEYS {
        db.delete(&key(i)).unwrap();
    }
    db.compact_range(None, None).unwrap();
    drop(db);
    let today = slow.image();
    slow.restore(&yesterday);
    let error = Db::open_in(options(preset, Room::Little), &disk.environment()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongTier, "{error}");
    slow.restore(&today);
    let db = open(&disk, &options(preset, Room::Little));
    assert_eq!(db.iter().unwrap().forward().count(), 0, "no resurrection");
}

// case 23: what repair then lists is in the engine's own tests of damage.
#[test]
fn a_fast_tier_lost_or_rolled_back_a_day_is_refused() {
    let (disk, fast, slow) = machine(5);
    drop(store(&disk, "leveled"));
    let yesterday = fast.image();
    let db = open(&disk, &options("leveled", Room::Little));
    for i in 0..KEYS {
        durably(&db, |b| b.delete(&key(i)).unwrap());
    }
    db.compact_range(None, None).unwrap();
    drop(db);
    let today = fast.image();
    fast.restore(&yesterday);
    let error = Db::open_in(options("leveled", Room::Little), &disk.environment()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongTier, "{error}");
    fast.restore(&today);
    fast.unmount();
    let error = Db::open_in(options("leveled", Room::Little), &disk.environment()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongTier, "{error}");
    // A new device in its place, empty.
    assert!(slow.used_bytes() > 0, "and the slow one was not touched");
    fast.come_back();
    let db = open(&disk, &options("leveled", Room::Little));
    assert_eq!(db.iter().unwrap().forward().count(), 0);
}

// cases 29 and 30
#[test]
fn of_a_key_on_both_tiers_the_newer_version_wins_after_any_crash_deletes_too() {
    let (disk, ..) = machine(9);
    let db = store(&disk, "leveled");
    let expected = |i: u8| match i % 4 {
        0 => Some(vec![0xee; 300]),
        1 => None,
        2 => Some(old(i)),
        // Deleted and written again.
        _ => Some(b"again".to_vec()),
    };
    durably(&db, |b| {
        for i in 0..KEYS {
            match i % 4 {
                0 => b.put(&key(i), &[0xee; 300]).unwrap(),
                1 => b.delete(&key(i)).unwrap(),
                2 => {}
                _ => {
                    let mut end = key(i);
                    end.push(b'x');
                    b.delete_range(&key(i), &end).unwrap();
                    b.put(&key(i), b"again").unwrap();
                }
            }
        }
    });
    disk.record_crashes();
    db.flush().unwrap();
    let on_both = db.tables();
    assert!(
        on_both.iter().any(|t| t.slot.starts_with("L0")),
        "{on_both:?}"
    );
    db.compact_range(None, None).unwrap();
    db.settle().unwrap();
    let crashes = disk.recorded_crashes();
    assert!(crashes.len() > 50, "{}", crashes.len());
    for (site, crashed) in crashes.iter().enumerate() {
        for down in [Down::Kill, Down::Power] {
            let disk = crashed.disk(site as u64, down);
            let db = open(&disk, &options("leveled", Room::Little));
            for i in 0..KEYS {
                assert_eq!(
                    db.get(&key(i)).unwrap().map(|v| v.to_vec()),
                    expected(i),
                    "{down:?} at site {site}: k{i:02}"
                );
            }
            let all = db.iter().unwrap().forward().count();
            let there = (0..KEYS).filter(|&i| expected(i).is_some()).count();
            assert_eq!(all, there, "{down:?} at site {site}");
        }
    }
}

// case 35: adding. A tier cannot be drained or removed yet: see `tiers.rs`,
// which shows that leaving one out is refused.
#[test]
fn a_tier_can_be_added_under_load_with_a_crash_at_any_call() {
    let (disk, ..) = machine(10);
    let both = options("leveled", Room::Little);
    let one = both.clone().with_tiers(vec![both.tier_list()[0].clone()]);
    let db = open(&disk, &one);
    for i in 0..KEYS {
        db.put(&key(i), &old(i)).unwrap();
    }
    db.compact_range(None, None).unwrap();
    drop(db);
    disk.record_crashes();
    let db = open(&disk, &both);
    for round in 0..6u8 {
        durably(&db, |b| b.put(&[b'n', round], &[round; 500]).unwrap());
        db.step().unwrap();
    }
    db.settle().unwrap();
    assert!(db.stats().tiers[1].relocated_in_bytes > 8000);
    let crashes = disk.recorded_crashes();
    let mut without = 0;
    for (site, crashed) in crashes.iter().enumerate() {
        for down in [Down::Kill, Down::Power] {
            // Without the new tier it opens as long as the store does not
            // know it, and never with a part of the data.
            let disk = crashed.disk(site as u64, down);
            match Db::open_in(one.clone(), &disk.environment()) {
                Ok(db) => {
                    holds_old(&db, &format!("{down:?} at site {site}, one tier"));
                    without += 1;
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::WrongTier, "{e}"),
            }
            let disk = crashed.disk(site as u64, down);
            let db = open(&disk, &both);
            holds_old(&db, &format!("{down:?} at site {site}"));
            db.settle().unwrap();
        }
    }
    assert!(without > 0 && without < crashes.len(), "{without}");
}

for_presets!(leveled, mutant, logstore: (
    case_20_a_copy_that_went_wrong_is_caught_before_its_source_is_given_up,
    case_20_what_a_flush_wrote_wrong_is_caught_before_its_memtables_go,
    case_20_what_a_merge_wrote_wrong_is_caught_before_its_inputs_go,
    case_20_a_copy_damaged_after_its_source_is_gone_is_reported_and_never_returned,
    case_21_a_slow_tier_that_takes_nothing_costs_no_data_no_fast_read_and_heals_by_itself,
    case_21_a_slow_tier_that_fails_hard_makes_no_writer_wait_for_ever_and_writing_resumes,
    case_22_a_slow_tier_that_is_unmounted_is_refused_and_comes_back_whole,
    case_22_a_slow_tier_restored_from_yesterday_is_refused,
));
