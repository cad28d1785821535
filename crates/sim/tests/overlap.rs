//! Reads of scans, merges and multi-gets overlap where the operating system
//! does not make them: on a tier with direct I/O. That they do is shown by
//! counting the reads under way, never by a clock.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod slow;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use slow::Slow;
use thermocline::store::Environment;
use thermocline::{Db, ErrorKind, Options, Tier};
use thermocline_sim::Dice;

const KEYS: u64 = 12_000;

/// Long enough for a thread to begin the next read meanwhile.
const READ_MICROS: u64 = 1500;

fn options(path: &Path, background: usize, readers: usize) -> Options {
    Options::new()
        .tier(Tier::new("slow", path).direct_io(true))
        .write_buffer_bytes(8 << 20)
        .table_bytes(512 << 10)
        .newest_runs_merge(100)
        .newest_runs_stop(200)
        .reserve_bytes(0)
        .background_threads(background)
        .read_threads(readers)
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

fn value(n: u64, round: u64) -> Vec<u8> {
    let mut value = (n * 1000 + round).to_be_bytes().to_vec();
    value.resize(100, n as u8);
    value
}

/// A store of several overlapping runs, closed: the first flush has all keys,
/// each of the three after it another quarter of them.
fn fill(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let db = Db::open(options(path, 0, 0)).unwrap();
    let mut expected = BTreeMap::new();
    for round in 0..4 {
        for n in (0..KEYS).filter(|n| round == 0 || n % 4 == round) {
            db.put(&key(n), &value(n, round)).unwrap();
            expected.insert(key(n), value(n, round));
        }
        db.flush().unwrap();
    }
    db.close().unwrap();
    expected
}

fn open(path: &Path, slow: &Slow, background: usize, readers: usize) -> Db {
    slow.set_read_micros(0);
    let db = Db::open_in(options(path, background, readers), &slow.environment()).unwrap();
    slow.take_counts();
    slow.set_read_micros(READ_MICROS);
    db
}

fn forward(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    db.iter().unwrap().forward().map(Result::unwrap).collect()
}

fn multi_get(db: &Db, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let values = db.multi_get(&keys).unwrap();
    values.into_iter().map(|v| v.map(|v| v.to_vec())).collect()
}

/// Keys far apart, and as many that do not exist.
fn scattered() -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = (0..60).map(|n| key(n * 197 % KEYS)).collect();
    keys.extend((0..60).map(|n| [key(n * 193 % KEYS), b"x".to_vec()].concat()));
    keys
}

#[test]
fn multi_get_of_cold_keys_on_a_direct_tier_reads_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let expected = fill(directory.path());
    let slow = Slow::default();
    let db = open(directory.path(), &slow, 1, 4);
    let keys = scattered();
    let values = multi_get(&db, &keys);
    for (key, value) in keys.iter().zip(&values) {
        assert_eq!(value.as_ref(), expected.get(key));
    }
    let (reads, at_once) = slow.take_counts();
    assert!(reads > 30, "{reads} reads");
    // Four threads and the one that waits.
    assert!((2..=5).contains(&at_once), "{at_once} reads at once");
    assert_eq!(multi_get(&db, &keys), values);
    assert_eq!(slow.take_counts().0, 0, "now they are cached");
}

#[test]
fn a_scan_of_a_direct_tier_reads_ahead_in_both_directions() {
    let directory = tempfile::tempdir().unwrap();
    let expected = fill(directory.path());
    let slow = Slow::default();
    let db = open(directory.path(), &slow, 1, 4);
    let forward = forward(&db);
    assert!(forward.iter().map(|(k, v)| (k, v)).eq(&expected));
    let (reads, at_once) = slow.take_counts();
    assert!(at_once > 1, "{at_once} of {reads} reads at once, forward");
    drop(db);

    let db = open(directory.path(), &slow, 1, 4);
    let backward: Vec<_> = db.iter().unwrap().backward().map(Result::unwrap).collect();
    assert!(
        backward
            .iter()
            .map(|(k, v)| (k, v))
            .eq(expected.iter().rev())
    );
    let (reads, at_once) = slow.take_counts();
    assert!(at_once > 1, "{at_once} of {reads} reads at once, backward");
}

#[test]
fn the_first_blocks_of_all_runs_are_read_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let slow = Slow::default();
    let db = open(directory.path(), &slow, 1, 4);
    assert!(db.tables().len() >= 4);
    let mut iter = db.iter().unwrap();
    iter.seek(&key(KEYS / 2)).unwrap();
    assert_eq!(iter.key(), key(KEYS / 2));
    let (reads, at_once) = slow.take_counts();
    assert!(at_once > 1, "{at_once} of {reads} reads at once");
    assert!(reads <= 5, "{reads} reads for a seek of four runs");
}

#[test]
fn one_run_is_read_ahead_too() {
    let directory = tempfile::tempdir().unwrap();
    let expected = fill(directory.path());
    let slow = Slow::default();
    let db = open(directory.path(), &slow, 0, 0);
    db.compact_range(None, None).unwrap();
    drop(db);
    let db = open(directory.path(), &slow, 1, 2);
    assert!(forward(&db).into_iter().eq(expected));
    let (reads, at_once) = slow.take_counts();
    assert!(at_once > 1, "{at_once} of {reads} reads at once");
}

/// Once each short scan waited twice: for its first block, and for the ones behind it.
#[test]
fn scans_that_mostly_go_on_read_several_blocks_at_once() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let slow = Slow::default();
    let db = open(directory.path(), &slow, 0, 0);
    db.compact_range(None, None).unwrap();
    drop(db);
    // Each anew: what one scan has read the next would find in the cache.
    let reads = |before: &[u64], entries: usize| {
        slow.set_read_micros(0);
        let options = options(directory.path(), 1, 2).block_cache_bytes(0);
        let db = Db::open_in(options, &slow.environment()).unwrap();
        let scan = |at: u64, entries: usize| {
            let mut iter = db.iter().unwrap();
            iter.seek(&key(at * 37 % KEYS)).unwrap();
            for _ in 0..entries {
                assert!(iter.valid());
                iter.next().unwrap();
            }
        };
        for &entries in before {
            for at in 0..100 {
                scan(at, entries as usize);
            }
        }
        slow.take_counts();
        for at in 100..150 {
            scan(at, entries);
        }
        slow.take_counts().0
    };
    // Of three blocks; the second read is of as many as are wanted.
    let alone = reads(&[], 80);
    assert!((80..110).contains(&alone), "{alone} reads of 50 scans");
    let usual = reads(&[80], 80);
    assert!((50..60).contains(&usual), "{usual} reads of 50 scans");
    // Those of few entries read one block, and then that is usual.
    assert!((50..65).contains(&reads(&[2], 2)));
    assert!(reads(&[80, 2], 80) > 80);
}

#[test]
fn a_merge_reads_its_inputs_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let expected = fill(directory.path());
    let slow = Slow::default();
    let db = open(directory.path(), &slow, 1, 4);
    db.compact_range(None, None).unwrap();
    let (reads, at_once) = slow.take_counts();
    assert!(at_once > 1, "{at_once} of {reads} reads at once");
    slow.set_read_micros(0);
    assert!(forward(&db).into_iter().eq(expected));
}

#[test]
fn without_background_or_read_threads_one_read_is_under_way_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let expected = fill(directory.path());
    let slow = Slow::default();
    for (background, readers) in [(0, 8), (1, 0)] {
        let db = open(directory.path(), &slow, background, readers);
        let keys = scattered();
        for (key, value) in keys.iter().zip(multi_get(&db, &keys)) {
            assert_eq!(value.as_ref(), expected.get(key));
        }
        assert!(forward(&db).iter().map(|(k, v)| (k, v)).eq(&expected));
        let (reads, at_once) = slow.take_counts();
        assert!(reads > 30 && at_once == 1, "{at_once} of {reads} at once");
    }
    let db = open(directory.path(), &slow, 0, 8);
    db.compact_range(None, None).unwrap();
    assert_eq!(slow.take_counts().1, 1);
}

#[test]
fn a_read_ahead_that_fails_is_reported_where_its_block_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    let expected = fill(directory.path());
    let slow = Slow::default();
    let db = open(directory.path(), &slow, 0, 0);
    db.compact_range(None, None).unwrap();
    drop(db);
    let db = open(directory.path(), &slow, 1, 4);
    slow.set_read_micros(0);
    slow.fail_from(300 << 10);
    let mut entries = db.iter().unwrap().forward();
    let mut expected_entries = expected.iter();
    let error = loop {
        match entries.next().unwrap() {
            Ok((key, value)) => assert_eq!((&key, &value), expected_entries.next().unwrap()),
            Err(error) => break error,
        }
    };
    // The first table's part before the fault was not withheld, and what an
    // error says of the place is as without threads.
    assert!(expected_entries.len() < expected.len() - 500);
    assert_eq!(error.kind(), ErrorKind::Io);
    let message = error.to_string();
    assert!(message.contains("read object"), "{message}");
    assert!(message.contains(".data"), "{message}");
    assert!(message.contains("offset"), "{message}");
    let keys = scattered();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let error = db.multi_get(&keys).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains(".data"));
    drop(entries);

    slow.fail_from(0);
    assert!(forward(&db).into_iter().eq(expected));
}

#[test]
fn wrong_bytes_read_ahead_are_reported_and_not_returned() {
    let directory = tempfile::tempdir().unwrap();
    let expected = fill(directory.path());
    let objects = std::fs::read_dir(directory.path()).unwrap();
    let paths = objects.map(|entry| entry.unwrap().path());
    let data = paths.filter(|path| path.extension().is_some_and(|e| e == "data"));
    let largest = data.max_by_key(|path| path.metadata().unwrap().len());
    let path = largest.unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let slow = Slow::default();
    let db = open(directory.path(), &slow, 1, 4);
    slow.set_read_micros(0);
    let mut good = 0;
    let error = db
        .iter()
        .unwrap()
        .forward()
        .find_map(|entry| match entry {
            Ok((key, value)) => {
                assert_eq!(expected.get(&key), Some(&value));
                good += 1;
                None
            }
            Err(error) => Some(error),
        })
        .unwrap();
    assert!(good > 1000, "{good}");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let error = db.multi_get(&keys).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

#[test]
fn an_iterator_dropped_in_the_middle_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let slow = Slow::default();
    let db = open(directory.path(), &slow, 1, 4);
    for steps in 0..60 {
        let mut iter = db.iter().unwrap();
        iter.seek(&key(steps * 150)).unwrap();
        for _ in 0..steps * 20 {
            iter.next().unwrap();
        }
    }
    let kept = db.iter().unwrap();
    db.delete_range(&key(0), &key(KEYS)).unwrap();
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
    drop(kept);
    db.settle().unwrap();
    let data_objects = || {
        let objects = std::fs::read_dir(directory.path()).unwrap();
        let names = objects.map(|entry| entry.unwrap().file_name());
        let data = names.filter(|name| name.to_string_lossy().ends_with(".data"));
        data.count()
    };
    // Only a read that is under way may hold an object, until it ends; then the
    // background deletes it.
    let patience = Instant::now();
    while slow.open_and_deleted() > 0
        || slow.open_objects() > db.tables().len()
        || data_objects() > db.tables().len()
    {
        assert!(patience.elapsed() < Duration::from_secs(20), "still open");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(data_objects(), db.tables().len());
    db.close().unwrap();
    assert_eq!(slow.open_objects(), 0);
}

#[test]
fn an_iterator_that_outlives_the_store_goes_on_without_the_threads() {
    let directory = tempfile::tempdir().unwrap();
    let expected = fill(directory.path());
    let slow = Slow::default();
    let db = open(directory.path(), &slow, 1, 4);
    let mut iter = db.iter().unwrap();
    iter.seek_to_first().unwrap();
    for _ in 0..2000 {
        iter.next().unwrap();
    }
    db.close().unwrap();
    slow.set_read_micros(0);
    slow.take_counts();
    let rest: Vec<_> = iter.forward().map(Result::unwrap).collect();
    assert!(
        rest.iter()
            .map(|(k, v)| (k, v))
            .eq(expected.iter().skip(2000))
    );
    assert_eq!(slow.open_objects(), 0);
}

#[test]
fn reads_ahead_see_the_same_under_writes_and_merges() {
    const SEED: u64 = 17;
    println!("seed {SEED}");
    let directory = tempfile::tempdir().unwrap();
    let slow = Slow::default();
    let options = options(directory.path(), 3, 3)
        .write_buffer_bytes(256 << 10)
        .table_bytes(64 << 10)
        .block_cache_bytes(64 << 10)
        .newest_runs_merge(2)
        .newest_runs_stop(12);
    let db = Db::open_in(options, &slow.environment()).unwrap();
    slow.set_read_micros(50);
    let keys = 3000;
    for n in 0..keys {
        db.put(&key(n), &value(n, 0)).unwrap();
    }
    let stop = AtomicBool::new(false);
    let round_of = |n: u64, value: &[u8]| {
        let number = u64::from_be_bytes(value[..8].try_into().unwrap());
        assert_eq!(number / 1000, n, "the value of another key");
        number % 1000
    };
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                let mut dice = Dice(SEED + reader);
                let mut newest = vec![0; keys as usize];
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = db.snapshot();
                    let from = dice.below(keys);
                    let to = (from + 1 + dice.below(800)).min(keys);
                    let (low, high) = (key(from), key(to));
                    let range = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
                    let entries = snapshot.range_in(db, range.0, range.1).unwrap();
                    let wanted: Vec<_> = (from..to).map(key).collect();
                    let wanted: Vec<&[u8]> = wanted.iter().map(Vec::as_slice).collect();
                    let got = snapshot.multi_get(&wanted).unwrap();
                    let scanned: Vec<_> = if dice.percent(50) {
                        entries.forward().map(Result::unwrap).collect()
                    } else {
                        let backward = entries.backward().map(Result::unwrap);
                        let mut all: Vec<_> = backward.collect();
                        all.reverse();
                        all
                    };
                    assert_eq!(scanned.len() as u64, to - from);
                    for ((n, (_, scanned)), got) in (from..to).zip(&scanned).zip(&got) {
                        assert_eq!(got.as_deref(), Some(&scanned[..]));
                        let round = round_of(n, scanned);
                        let before = std::mem::replace(&mut newest[n as usize], round);
                        assert!(round >= before, "key {n} went back in time");
                    }
                }
            });
        }
        let mut dice = Dice(SEED * 31);
        for round in 1..60 {
            for _ in 0..300 {
                let n = dice.below(keys);
                db.put(&key(n), &value(n, round)).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    db.settle().unwrap();
    assert_eq!(forward(&db).len() as u64, keys);
}

#[test]
fn statistics_tell_whether_direct_io_is_really_in_use() {
    // The option was shown, whatever the file system did with it.
    for refused in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let slow = Slow::default();
        if refused {
            slow.refuse_direct();
        }
        let db = open(directory.path(), &slow, 1, 2);
        assert_eq!(db.stats().tiers[0].direct_io, !refused);
        drop(db);
        let buffered = Options::at(directory.path().join("buffered")).background_threads(2);
        let db = Db::open_in(buffered, &slow.environment()).unwrap();
        assert!(!db.stats().tiers[0].direct_io);
    }
}

#[test]
fn a_real_direct_tier_is_read_ahead_exactly() {
    // Not in memory: where the cache is the device there is no way past it.
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let expected = fill(directory.path());
    let db = Db::open_in(options(directory.path(), 2, 8), &Environment::real()).unwrap();
    println!("direct I/O in use: {}", db.stats().tiers[0].direct_io);
    let keys = scattered();
    for (key, value) in keys.iter().zip(multi_get(&db, &keys)) {
        assert_eq!(value.as_ref(), expected.get(key));
    }
    assert!(forward(&db).iter().map(|(k, v)| (k, v)).eq(&expected));
    db.compact_range(None, None).unwrap();
    drop(db);
    let db = Db::open(options(directory.path(), 2, 8)).unwrap();
    let backward: Vec<_> = db.iter().unwrap().backward().map(Result::unwrap).collect();
    assert!(
        backward
            .iter()
            .map(|(k, v)| (k, v))
            .eq(expected.iter().rev())
    );
}

/// Times, and so no claim: `cargo test --release -p thermocline-sim --test overlap
/// -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn measure_a_device_with_latency() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let db = Db::open(options(path, 0, 0).table_bytes(8 << 20)).unwrap();
    for round in 0..4 {
        for n in (0..200_000).filter(|n| n % 4 == round) {
            db.put(&key(n), &value(n, 0)).unwrap();
        }
        db.flush().unwrap();
    }
    db.close().unwrap();
    let slow = Slow::default();
    let run = |what: &str, readers: usize, work: &dyn Fn(&Db)| {
        let db = open(path, &slow, 1, readers);
        let begin = Instant::now();
        work(&db);
        let millis = begin.elapsed().as_secs_f64() * 1e3;
        let (reads, at_once) = slow.take_counts();
        println!(
            "{what}, {readers} read threads: {millis:.0} ms, {reads} reads, {at_once} at once"
        );
    };
    let keys: Vec<_> = (0..512).map(|n| key(n * 389 % 200_000)).collect();
    for readers in [0, 8] {
        run("multi-get of 512 keys", readers, &|db| {
            assert!(multi_get(db, &keys).iter().all(Option::is_some));
        });
        run("scan of 4 runs, 22 MB", readers, &|db| {
            assert_eq!(forward(db).len(), 200_000);
        });
        run("100 seeks of 4 runs", readers, &|db| {
            for n in 0..100 {
                let mut iter = db.iter().unwrap();
                iter.seek(&key(n * 1999)).unwrap();
                assert!(iter.valid());
            }
        });
    }
    for readers in [0, 8] {
        let copy = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let db = open(copy.path(), &slow, 1, readers);
        let begin = Instant::now();
        db.compact_range(None, None).unwrap();
        let millis = begin.elapsed().as_secs_f64() * 1e3;
        println!("merge of 4 runs, {readers} read threads: {millis:.0} ms");
    }
}
