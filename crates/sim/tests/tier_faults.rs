//! Tiers that fail, lie, hang, vanish or come back as they were, one scenario
//! a test. The numbers are those of the list of cases in `docs/testing.md`.
//! A fault at *every* call is in `faults.rs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use thermocline::store::{Clock, FileSystem, OpenHow, read_exact_at, write_all_at};
use thermocline::{Db, Durability, ErrorKind, Options, TableInfo, Tier, WriteBatch, WriteOptions};
use thermocline_sim::disk::{Device, Disk, Down, Fault, Gone, Latency};

/// What a device may hold before tables go to the next one.
const LITTLE: u64 = 12_000;
const PLENTY: u64 = 500_000;

thread_local! {
    /// Whether the stores of this thread place tables by price and temperature.
    static BY_PRICE: Cell<bool> = const { Cell::new(false) };
}

fn options(fast_bytes: u64) -> Options {
    let tier = |name: &str, price| {
        let tier = Tier::new(name, format!("/{name}/store")).block_bytes(512);
        tier.price_usd_gb_month(price)
    };
    let options = if BY_PRICE.get() {
        // The target stands for the room.
        let target = if fast_bytes == LITTLE { 0.2 } else { 0.45 };
        Options::new()
            .tier(tier("fast", 0.5).capacity_bytes(PLENTY))
            .tier(tier("slow", 0.05))
            .preset("mutant")
            .cost_target_usd_per_gb_month(target)
            .migration_cool_down_s(0)
    } else {
        Options::new()
            .tier(tier("fast", 0.5).capacity_bytes(fast_bytes))
            .tier(tier("slow", 0.05))
    };
    options
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(4 << 10)
        .first_level_bytes(8 << 10)
        .level_ratio(2)
        .newest_runs_merge(2)
        .log_segment_bytes(16 << 10)
        .log_bytes_max(64 << 10)
        .block_cache_bytes(0)
        .reserve_bytes(0)
        .background_threads(0)
}

fn machine(seed: u64) -> (Disk, Device, Device) {
    let disk = Disk::new(seed);
    let (fast, slow) = (disk.mount("/fast"), disk.mount("/slow"));
    (disk, fast, slow)
}

fn open(disk: &Disk, options: &Options) -> Db {
    Db::open_in(options.clone(), &disk.environment()).unwrap()
}

fn old(i: u8) -> Vec<u8> {
    vec![i; 800]
}

const KEYS: u8 = 40;

fn key(i: u8) -> Vec<u8> {
    format!("k{i:02}").into_bytes()
}

/// Forty keys, most of them on the slow tier, the last level on both.
fn store(disk: &Disk) -> Db {
    let db = open(disk, &options(LITTLE));
    for i in 0..KEYS {
        db.put(&key(i), &old(i)).unwrap();
    }
    db.compact_range(None, None).unwrap();
    db.settle().unwrap();
    let tiers = db.stats().tiers;
    assert!(tiers.iter().all(|t| t.used_bytes > 4000), "{tiers:?}");
    db
}

/// Whether the table may have the key.
fn covers(table: &TableInfo, i: u8) -> bool {
    let bounds = table.range.trim_matches(['[', ']']).split_once(", ");
    let (first, last) = bounds.unwrap();
    let key = String::from_utf8(key(i)).unwrap();
    first <= &key[..] && &key[..] <= last
}

/// Whether a read of the key needs no other tier than the fast one.
fn is_fast(db: &Db, i: u8) -> bool {
    let tables = db.tables();
    let mut tables = tables.iter().filter(|t| covers(t, i));
    tables.all(|t| t.tier == "fast" && t.meta_tier == "fast")
}

/// The keys whose values lie on each tier, of a store of one level.
fn by_tier(db: &Db) -> [Vec<u8>; 2] {
    let mut keys = [Vec::new(), Vec::new()];
    for i in 0..KEYS {
        keys[usize::from(!is_fast(db, i))].push(i);
    }
    assert!(keys.iter().all(|k| !k.is_empty()), "{keys:?}");
    keys
}

fn holds_old(db: &Db, context: &str) {
    for i in 0..KEYS {
        let found = db.get(&key(i)).unwrap();
        assert_eq!(found.as_deref(), Some(&old(i)[..]), "{context}: k{i:02}");
    }
}

fn durably(db: &Db, change: impl FnOnce(&mut WriteBatch)) {
    let mut batch = WriteBatch::new();
    change(&mut batch);
    let durable = WriteOptions::default().durability(Durability::Device);
    db.write_with(&batch, durable).unwrap();
}

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

// case 20
#[test]
fn a_copy_that_went_wrong_is_caught_before_its_source_is_given_up() {
    let mut caught = 0;
    for n in 1..40 {
        let (disk, _, slow) = machine(n);
        let db = open(&disk, &options(PLENTY));
        for i in 0..KEYS {
            db.put(&key(i), &old(i)).unwrap();
        }
        db.compact_range(None, None).unwrap();
        drop(db);
        let db = open(&disk, &options(LITTLE));
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
        holds_old(&open(&disk, &options(LITTLE)), "reopened");
    }
    assert!(caught >= 4, "{caught}");
}

// case 20: what is damaged later can only be reported.
#[test]
fn a_copy_damaged_after_its_source_is_gone_is_reported_and_never_returned() {
    let (disk, ..) = machine(1);
    drop(store(&disk));
    let path = &files(&disk, "/slow/store", ".data")[0];
    let sound = read(&disk, path);
    for at in (0..sound.len()).step_by(7) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        write(&disk, path, &bytes);
        let db = open(&disk, &options(LITTLE));
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
#[test]
fn a_slow_tier_that_takes_nothing_costs_no_data_no_fast_read_and_heals_by_itself() {
    for way in 0..3 {
        let (mut all_errors, mut fast_reads) = (0, 0);
        for broken_after in 0..12 {
            let (disk, _, slow) = machine(way as u64);
            let db = store(&disk);
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
            let db = open(&disk, &options(LITTLE));
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
#[test]
fn a_slow_tier_that_fails_hard_makes_no_writer_wait_for_ever_and_writing_resumes() {
    for way in 0..3 {
        let (disk, _, slow) = machine(20 + way as u64);
        drop(store(&disk));
        let db = open(&disk, &options(LITTLE).background_threads(2));
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
#[test]
fn a_slow_tier_that_is_unmounted_is_refused_and_comes_back_whole() {
    for while_open in [false, true] {
        let (disk, _, slow) = machine(3);
        let db = store(&disk);
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
        let error = Db::open_in(options(LITTLE), &disk.environment()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongTier, "{error}");
        slow.come_back();
        holds_old(&open(&disk, &options(LITTLE)), "mounted again");
    }
}

// case 22
#[test]
fn a_slow_tier_restored_from_yesterday_is_refused() {
    let (disk, _, slow) = machine(4);
    drop(store(&disk));
    let yesterday = slow.image();
    let db = open(&disk, &options(LITTLE));
    for i in 0..KEYS {
        db.delete(&key(i)).unwrap();
    }
    db.compact_range(None, None).unwrap();
    drop(db);
    let today = slow.image();
    slow.restore(&yesterday);
    let error = Db::open_in(options(LITTLE), &disk.environment()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongTier, "{error}");
    slow.restore(&today);
    let db = open(&disk, &options(LITTLE));
    assert_eq!(db.iter().unwrap().forward().count(), 0, "no resurrection");
}

// case 23: what repair then lists is in the engine's own tests of damage.
#[test]
fn a_fast_tier_lost_or_rolled_back_a_day_is_refused() {
    let (disk, fast, slow) = machine(5);
    drop(store(&disk));
    let yesterday = fast.image();
    let db = open(&disk, &options(LITTLE));
    for i in 0..KEYS {
        durably(&db, |b| b.delete(&key(i)).unwrap());
    }
    db.compact_range(None, None).unwrap();
    drop(db);
    let today = fast.image();
    fast.restore(&yesterday);
    let error = Db::open_in(options(LITTLE), &disk.environment()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongTier, "{error}");
    fast.restore(&today);
    fast.unmount();
    let error = Db::open_in(options(LITTLE), &disk.environment()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongTier, "{error}");
    // A new device in its place, empty.
    assert!(slow.used_bytes() > 0, "and the slow one was not touched");
    fast.come_back();
    let db = open(&disk, &options(LITTLE));
    assert_eq!(db.iter().unwrap().forward().count(), 0);
}

// case 24, on the simulated clock
#[test]
fn a_slow_tier_a_hundred_times_slower_does_not_slow_a_read_of_the_fast_one() {
    let (disk, fast, slow) = machine(6);
    let [usual, slower] = [1, 100].map(|times| Latency {
        read: Duration::from_micros(100) * times,
        write: Duration::from_micros(100) * times,
        sync: Duration::from_millis(1) * times,
    });
    fast.set_latency(usual);
    slow.set_latency(usual);
    let db = store(&disk);
    let [fast_keys, slow_keys] = by_tier(&db);
    let took = |i: u8| {
        let before = disk.now_micros();
        assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&old(i)[..]));
        disk.now_micros() - before
    };
    // Once, so that every table is open.
    (0..KEYS).for_each(|i| assert!(took(i) > 0));
    let before: Vec<u64> = fast_keys.iter().map(|&i| took(i)).collect();
    slow.set_latency(slower);
    let after: Vec<u64> = fast_keys.iter().map(|&i| took(i)).collect();
    assert_eq!(before, after);
    assert!(took(slow_keys[0]) >= 10_000, "and the slow one is slow");
    slow.hang(Duration::from_secs(60));
    let after: Vec<u64> = fast_keys.iter().map(|&i| took(i)).collect();
    assert_eq!(before, after);
    let hung = took(slow_keys[0]);
    assert!(hung >= 60_000_000, "{hung}");
    drop(db);
    holds_old(&open(&disk, &options(LITTLE)), "reopened");
}

// case 24, with threads: the slow tier answers nobody until it is released.
#[test]
fn while_a_slow_tier_hangs_fast_reads_and_writes_go_on_and_its_queue_is_bounded() {
    const SLOW_READERS: usize = 3;
    const THREADS: usize = 2;
    let (disk, _, slow) = machine(7);
    drop(store(&disk));
    // Room for what is written meanwhile, in memory and on the fast tier.
    let roomy = options(LITTLE)
        .write_buffer_bytes(4 << 20)
        .memtable_bytes(64 << 10)
        .background_threads(THREADS);
    let db = open(&disk, &roomy);
    holds_old(&db, "before");
    let [fast_keys, slow_keys] = by_tier(&db);
    slow.hold();
    let released = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..SLOW_READERS {
            let (db, slow_keys, released) = (&db, &slow_keys, &released);
            let answered = &answered;
            scope.spawn(move || {
                let i = slow_keys[reader % slow_keys.len()];
                let found = db.get(&key(i)).unwrap();
                assert!(released.load(Ordering::SeqCst), "answered while it hung");
                assert_eq!(found.as_deref(), Some(&old(i)[..]));
                answered.fetch_add(1, Ordering::SeqCst);
            });
        }
        while slow.waiting().0 < SLOW_READERS {
            std::thread::yield_now();
        }
        // These return, or the test does not.
        for round in 0..200u32 {
            let i = fast_keys[round as usize % fast_keys.len()];
            assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&old(i)[..]));
            durably(&db, |b| {
                b.put(format!("new{round:03}").as_bytes(), &[7; 500])
                    .unwrap();
            });
        }
        assert_eq!(answered.load(Ordering::SeqCst), 0);
        released.store(true, Ordering::SeqCst);
        slow.release();
    });
    let most = slow.waiting().1;
    assert!(most <= SLOW_READERS + THREADS + 1, "{most} calls waited");
    db.settle().unwrap();
    holds_old(&db, "released");
    assert_eq!(db.prefix(b"new").unwrap().forward().count(), 200);
}

// case 25: the log is not moved to another tier; its writes wait, and what was
// acknowledged as durable is.
#[test]
fn a_log_on_a_slow_device_makes_writers_wait_and_loses_nothing() {
    let (disk, fast, _) = machine(8);
    let db = store(&disk);
    fast.set_latency(Latency {
        read: Duration::from_millis(10),
        write: Duration::from_millis(10),
        sync: Duration::from_millis(100),
    });
    fast.hang(Duration::from_secs(60));
    let before = disk.now_micros();
    for i in 0..10 {
        durably(&db, |b| b.put(&key(i), b"new").unwrap());
    }
    assert!(disk.now_micros() - before >= 61_000_000);
    drop(db);
    disk.reboot(Down::Power);
    let db = open(&disk, &options(LITTLE));
    for i in 0..KEYS {
        let new = if i < 10 { b"new".to_vec() } else { old(i) };
        assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&new[..]));
    }
}

// cases 29 and 30
#[test]
fn of_a_key_on_both_tiers_the_newer_version_wins_after_any_crash_deletes_too() {
    let (disk, ..) = machine(9);
    let db = store(&disk);
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
            let db = open(&disk, &options(LITTLE));
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
    let both = options(LITTLE);
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

/// The same where tables lie by price and temperature.
mod mutant {
    fn by_price(test: fn()) {
        super::BY_PRICE.set(true);
        test();
    }

    // case 20
    #[test]
    fn a_copy_that_went_wrong_is_caught_before_its_source_is_given_up() {
        by_price(super::a_copy_that_went_wrong_is_caught_before_its_source_is_given_up);
    }

    // case 20
    #[test]
    fn a_copy_damaged_after_its_source_is_gone_is_reported_and_never_returned() {
        by_price(super::a_copy_damaged_after_its_source_is_gone_is_reported_and_never_returned);
    }

    // case 21
    #[test]
    fn a_slow_tier_that_takes_nothing_costs_no_data_no_fast_read_and_heals_by_itself() {
        by_price(
            super::a_slow_tier_that_takes_nothing_costs_no_data_no_fast_read_and_heals_by_itself,
        );
    }

    // case 21
    #[test]
    fn a_slow_tier_that_fails_hard_makes_no_writer_wait_for_ever_and_writing_resumes() {
        by_price(
            super::a_slow_tier_that_fails_hard_makes_no_writer_wait_for_ever_and_writing_resumes,
        );
    }

    // case 22
    #[test]
    fn a_slow_tier_that_is_unmounted_is_refused_and_comes_back_whole() {
        by_price(super::a_slow_tier_that_is_unmounted_is_refused_and_comes_back_whole);
    }

    // case 22
    #[test]
    fn a_slow_tier_restored_from_yesterday_is_refused() {
        by_price(super::a_slow_tier_restored_from_yesterday_is_refused);
    }

    // case 24
    #[test]
    fn a_slow_tier_a_hundred_times_slower_does_not_slow_a_read_of_the_fast_one() {
        by_price(super::a_slow_tier_a_hundred_times_slower_does_not_slow_a_read_of_the_fast_one);
    }

    // case 24
    #[test]
    fn while_a_slow_tier_hangs_fast_reads_and_writes_go_on_and_its_queue_is_bounded() {
        by_price(
            super::while_a_slow_tier_hangs_fast_reads_and_writes_go_on_and_its_queue_is_bounded,
        );
    }
}
