//! Fold: memtables with few keys become one instead of a table.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use thermocline::{Db, Options, WriteBatch};

const KIB: u64 = 1 << 10;

/// A store without threads that folds.
fn small(path: &Path) -> Options {
    Options::at(path)
        .write_buffer_bytes(512 * KIB)
        .memtable_bytes(32 * KIB)
        .log_segment_bytes(64 * KIB)
        .log_bytes_max(256 * KIB)
        .fold_keys_max(100)
        .background_threads(0)
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[7; 192]].concat()
}

#[test]
fn a_fold_is_an_event_with_its_numbers_and_writes_no_table() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(small(directory.path())).unwrap();
    for n in 0..20_000 {
        db.put(&key(n % 20), &value(n)).unwrap();
    }
    let stats = db.stats();
    assert!(stats.folds > 10 && stats.flushes == 0, "{stats}");
    assert!(stats.restated_bytes * 10 < stats.folded_bytes, "{stats}");
    assert!(db.tables().is_empty());
    let event = db.events(4096).into_iter().find(|e| e.job == "fold");
    let event = event.unwrap();
    assert_eq!(event.reason.rule, "few-keys");
    let number = |name: &str| {
        let mut numbers = event.reason.numbers.iter();
        numbers.find(|(n, _)| n == name).unwrap().1
    };
    assert!(number("keys") >= 20.0 && number("fold_keys_max") == 100.0);
    assert!(number("live_bytes") * 2.0 <= number("bytes"));
    let words = stats.to_string();
    assert!(words.contains("folds"), "{words}");
}

#[test]
fn folds_keep_the_log_short_and_the_process_may_die_at_any_time() {
    let directory = tempfile::tempdir().unwrap();
    let options = small(directory.path());
    let mut n = 0;
    let mut last = [0u64; 50];
    for round in 0..6 {
        // Dropped without being closed.
        let db = Db::open(options.clone()).unwrap();
        for (k, &n) in last.iter().enumerate().filter(|(_, n)| **n > 0) {
            let found = db.get(&key(k as u64)).unwrap();
            assert_eq!(found.as_deref(), Some(&*value(n)), "round {round}, key {k}");
        }
        for _ in 0..7_000 + round * 331 {
            n += 1;
            let k = n * n % 50;
            last[k as usize] = n;
            db.put(&key(k), &value(n)).unwrap();
        }
        let stats = db.stats();
        assert!(stats.folds > 0 && stats.flushes == 0, "{stats}");
        assert!(stats.log_bytes < 1 << 20, "{stats}");
    }
}

#[test]
fn snapshots_see_through_folds_what_they_saw_before() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(small(directory.path())).unwrap();
    let mut held = Vec::new();
    for n in 0..6_000u64 {
        db.put(&key(n % 10), &value(n)).unwrap();
        if n % 1_500 == 700 {
            held.push((n, db.snapshot()));
        }
    }
    assert!(db.stats().folds > 0);
    for (at, snapshot) in &held {
        for k in 0..10 {
            let newest = (0..=*at).rev().find(|n| n % 10 == k).unwrap();
            let found = snapshot.get(&key(k)).unwrap();
            assert_eq!(found.as_deref(), Some(&*value(newest)), "key {k} at {at}");
        }
    }
}

#[test]
fn deletes_and_range_deletes_survive_folds_and_recovery() {
    for drops in [true, false] {
        deletes_and_range_deletes_survive(drops);
    }
}

fn deletes_and_range_deletes_survive(flush_drops_versions: bool) {
    let directory = tempfile::tempdir().unwrap();
    let options = small(directory.path()).flush_drops_versions(flush_drops_versions);
    let db = Db::open(options.clone()).unwrap();
    for k in 0..30 {
        db.put(&key(k), b"below").unwrap();
    }
    // In tables, which no fold touches.
    db.flush().unwrap();
    let mut batch = WriteBatch::new();
    batch.delete_range(&key(10), &key(20)).unwrap();
    batch.delete(&key(25)).unwrap();
    batch.put(&key(12), b"again").unwrap();
    db.write(&batch).unwrap();
    for n in 0..6_000 {
        db.put(&key(n % 3), &value(n)).unwrap();
    }
    let check = |db: &Db| {
        for k in 3..30 {
            let expected: Option<&[u8]> = match k {
                12 => Some(b"again"),
                10..20 | 25 => None,
                _ => Some(b"below"),
            };
            assert_eq!(db.get(&key(k)).unwrap().as_deref(), expected, "key {k}");
        }
        assert_eq!(db.iter().unwrap().forward().count(), 30 - 10);
    };
    assert!(db.stats().folds > 0);
    check(&db);
    drop(db);
    let db = Db::open(options.clone()).unwrap();
    check(&db);
    db.flush().unwrap();
    check(&db);
}

#[test]
fn a_part_with_many_keys_or_large_values_is_flushed() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(small(directory.path())).unwrap();
    for n in 0..20_000 {
        db.put(&key(n % 5_000), &value(n)).unwrap();
    }
    assert_eq!((db.stats().folds, db.stats().flushes > 0), (0, true));
    // Two keys, but no more than one entry of each in a memtable.
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(small(directory.path())).unwrap();
    for n in 0..200u64 {
        db.put(&key(n % 64), &[n as u8; 20_000]).unwrap();
    }
    assert_eq!((db.stats().folds, db.stats().flushes > 0), (0, true));
}

/// A fold may be asked for by the log alone: parts that are hardly written would pin
/// its oldest segment.
#[test]
fn a_quiet_part_with_few_keys_is_logged_anew_instead_of_flushed() {
    let directory = tempfile::tempdir().unwrap();
    let options = small(directory.path()).cuts(vec![key(1000)]);
    let db = Db::open(options.clone()).unwrap();
    for round in 0..5u8 {
        for _ in 0..3 {
            db.put(&key(2000), &[round; 100]).unwrap();
        }
        for n in 0..3_000 {
            db.put(&key(n % 10), &value(n)).unwrap();
            if n % 100 == 0 {
                while db.step().unwrap() {}
            }
        }
    }
    let stats = db.stats();
    assert!(stats.folds > 0, "{stats}");
    assert!(stats.log_bytes < 1 << 20, "{stats}");
    drop(db);
    let db = Db::open(options).unwrap();
    assert_eq!(db.get(&key(2000)).unwrap().as_deref(), Some(&[4; 100][..]));
}
