//! Sealed memtables, and the memory of a part's memtables, are never more than the options allow,
//! of a part and of all, whoever seals.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::Dice;
use thermocline::{Db, KeyspaceOptions, Options, WriteBatch};

const KIB: u64 = 1 << 10;

fn small(path: &Path) -> Options {
    Options::at(path)
        .write_buffer_bytes(1024 * KIB)
        .memtable_bytes(16 * KIB)
        .table_bytes(64 * KIB)
        .first_level_bytes(128 * KIB)
        .log_segment_bytes(64 * KIB)
        .background_threads(0)
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

/// The most limits that were found to be used up.
#[derive(Default)]
struct Seen {
    part: AtomicU64,
    total: AtomicU64,
    memory: AtomicU64,
    looks: AtomicU64,
    /// Most memory of a part that there may be, if that is bounded.
    memory_max: Option<u64>,
}

impl Seen {
    fn within(memory_max: Option<u64>) -> Seen {
        Seen {
            memory_max,
            ..Seen::default()
        }
    }

    fn look(&self, db: &Db, part_max: u64, total_max: u64) {
        let stats = db.stats();
        assert!(
            stats.sealed_memtables <= total_max,
            "{} of {total_max}",
            stats.sealed_memtables
        );
        for part in stats.keyspaces.iter().flat_map(|k| &k.part_list) {
            assert!(part.sealed_memtables <= part_max, "{part:?}");
            assert!(
                part.memory_bytes <= self.memory_max.unwrap_or(u64::MAX),
                "{part:?}"
            );
            self.part
                .fetch_max(part.sealed_memtables, Ordering::Relaxed);
            self.memory.fetch_max(part.memory_bytes, Ordering::Relaxed);
        }
        self.total
            .fetch_max(stats.sealed_memtables, Ordering::Relaxed);
        self.looks.fetch_add(1, Ordering::Relaxed);
    }
}

/// A keyspace that fills memtables of its own and goes.
fn written_and_dropped(db: &Db) {
    let options = KeyspaceOptions::default();
    let third = db.create_keyspace("third", options).unwrap();
    for n in 0..400 {
        third.put(&key(n), &[7; 120]).unwrap();
    }
    db.drop_keyspace("third").unwrap();
}

/// Many writers, whatever else may seal memtables or wait for those who do, and a watcher. What a
/// writer wrote last is there at the end, and nobody waits for ever.
fn written_by_many(
    options: Options,
    part_max: u64,
    total_max: u64,
    memory_max: Option<u64>,
) -> Seen {
    let directory = tempfile::tempdir().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let options = options.with_tiers(small(directory.path()).tier_list().to_vec());
    let db = Db::open(options).unwrap();
    let second = db
        .create_keyspace("second", KeyspaceOptions::default())
        .unwrap();
    let (done, seen) = (AtomicBool::new(false), Seen::within(memory_max));
    let (db, second, done_, seen_) = (&db, &second, &done, &seen);
    let lasts = std::thread::scope(|scope| {
        scope.spawn(move || {
            while !done_.load(Ordering::Relaxed) {
                seen_.look(db, part_max, total_max);
            }
        });
        scope.spawn(move || {
            for n in 0.. {
                if done_.load(Ordering::Relaxed) {
                    break;
                }
                db.flush().unwrap();
                db.checkpoint(&copies.path().join(n.to_string())).unwrap();
            }
        });
        scope.spawn(move || {
            for n in 0.. {
                if done_.load(Ordering::Relaxed) {
                    break;
                }
                match n % 3 {
                    0 => db.compact_range(None, None).unwrap(),
                    1 => written_and_dropped(db),
                    _ => db.settle().unwrap(),
                }
            }
        });
        let writers: Vec<_> = (0..4u64)
            .map(|writer| {
                scope.spawn(move || {
                    let (mut dice, mut last) = (Dice(writer), BTreeMap::new());
                    for n in 0..3000u64 {
                        let mut batch = WriteBatch::new();
                        for _ in 0..3 {
                            let k = dice.below(500) * 4 + writer;
                            let value = [&n.to_be_bytes()[..], &[7; 120]].concat();
                            batch.put(&key(k), &value).unwrap();
                            batch.put_in(second, &key(k), &value).unwrap();
                            last.insert(k, n);
                        }
                        db.write(&batch).unwrap();
                    }
                    last
                })
            })
            .collect();
        let lasts: Vec<_> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        done_.store(true, Ordering::Relaxed);
        lasts
    });
    for (k, n) in lasts.into_iter().flatten() {
        for found in [db.get(&key(k)), second.get(&key(k))] {
            assert_eq!(found.unwrap().unwrap()[..8], n.to_be_bytes(), "key {k}");
        }
    }
    db.flush().unwrap();
    assert_eq!(db.stats().sealed_memtables, 0);
    seen
}

#[test]
fn with_one_sealed_memtable_a_part_many_writers_never_make_two() {
    let options = small(Path::new("/x"))
        .background_threads(2)
        .cuts((1..8).map(|n| key(n * 250)).collect())
        .sealed_memtables_max(1);
    let seen = written_by_many(options, 1, u64::MAX, None);
    assert_eq!(seen.part.into_inner(), 1);
    assert!(seen.total.into_inner() > 1 && seen.looks.into_inner() > 10);
}

#[test]
fn with_two_sealed_memtables_in_all_many_writers_to_many_parts_never_make_three() {
    let options = small(Path::new("/x"))
        .background_threads(2)
        .cuts((1..8).map(|n| key(n * 250)).collect())
        .sealed_memtables_total_max(2);
    let seen = written_by_many(options, 2, 2, None);
    assert_eq!(seen.total.into_inner(), 2);
}

#[test]
fn with_one_in_all_cuts_move_and_memtables_are_folded_while_many_write() {
    let options = small(Path::new("/x"))
        .preset("nova")
        .partitions(4)
        .duplicates_max(0)
        .recut_writes(200)
        .background_threads(3)
        .sealed_memtables_total_max(1);
    written_by_many(options, 1, 1, None);
}

#[test]
fn many_writers_never_take_more_memory_for_a_part_than_the_options_allow() {
    // Memory of all is no bound.
    let cut = small(Path::new("/x"))
        .write_buffer_bytes(16 << 20)
        .background_threads(2)
        .cuts((1..4).map(|n| key(n * 500)).collect());
    let least = cut.part_memory_bytes_least();
    let cut = cut.part_memory_bytes_max(least);
    let seen = written_by_many(cut, u64::MAX, u64::MAX, Some(least));
    // Several fit, as most take less than they may come to.
    assert!(seen.part.into_inner() > 2 && seen.memory.into_inner() > least / 3);
    let nova = small(Path::new("/x"))
        .preset("nova")
        .partitions(4)
        .duplicates_max(1)
        .recut_writes(200)
        .background_threads(3);
    let least = nova.part_memory_bytes_least();
    let nova = nova.part_memory_bytes_max(least);
    let seen = written_by_many(nova, u64::MAX, u64::MAX, Some(least));
    assert!(seen.part.into_inner() > 1);
}

/// What a recovery finds of a part is flushed before anybody writes, as far as it is too much; a
/// batch that is larger than all of it is taken, and flushed like any other.
#[test]
fn a_part_that_has_more_than_its_memory_is_flushed_as_the_store_opens() {
    let directory = tempfile::tempdir().unwrap();
    let options = small(directory.path()).cuts(vec![key(1000)]);
    let least = options.part_memory_bytes_least();
    let value = |n: u64| [&n.to_be_bytes()[..], &[7; 1000]].concat();
    let db = Db::open(options.clone().write_buffer_bytes(8 << 20)).unwrap();
    for n in 0..900 {
        db.put(&key(n), &value(n)).unwrap();
        db.put(&key(n % 20 + 1000), &value(n)).unwrap();
    }
    let memory = |db: &Db| -> Vec<u64> {
        let stats = db.stats();
        let parts = stats.keyspaces[0].part_list.iter();
        parts.map(|p| p.memory_bytes).collect()
    };
    assert!(memory(&db)[0] > least, "{:?}", memory(&db));
    drop(db);
    let limited = options
        .write_buffer_bytes(8 << 20)
        .part_memory_bytes_max(least);
    let db = Db::open(limited).unwrap();
    let seen = Seen::within(Some(least));
    seen.look(&db, u64::MAX, u64::MAX);
    let mut batch = WriteBatch::new();
    for n in 0..900 {
        batch.put(&key(n), &value(n + 1)).unwrap();
    }
    db.write(&batch).unwrap();
    assert!(memory(&db)[0] > least);
    for n in 0..200 {
        db.put(&key(n), &value(n + 2)).unwrap();
        db.step().unwrap();
    }
    seen.look(&db, u64::MAX, u64::MAX);
    for n in 0..900 {
        let expected = if n < 200 { n + 2 } else { n + 1 };
        assert_eq!(
            db.get(&key(n)).unwrap().unwrap()[..8],
            expected.to_be_bytes()
        );
    }
}

/// One after the other, by whoever writes or flushes.
#[test]
fn without_threads_writers_and_flushes_keep_to_the_limits_by_themselves() {
    for (part_max, total_max) in [(1, 100), (100, 1), (2, 3)] {
        let directory = tempfile::tempdir().unwrap();
        let options = small(directory.path())
            .cuts((1..8).map(|n| key(n * 100)).collect())
            .sealed_memtables_max(part_max)
            .sealed_memtables_total_max(total_max);
        let db = Db::open(options.clone()).unwrap();
        let mut dice = Dice(part_max as u64);
        let (mut model, seen) = (BTreeMap::new(), Seen::default());
        let look = |db: &Db| seen.look(db, part_max as u64, total_max as u64);
        for n in 0..8000u64 {
            let k = dice.below(800);
            db.put(&key(k), &[&n.to_be_bytes()[..], &[7; 120]].concat())
                .unwrap();
            model.insert(k, n);
            look(&db);
            match n % 4000 {
                3000 => db.flush().unwrap(),
                3500 => db.compact_range(Some(&key(100)), Some(&key(200))).unwrap(),
                _ => {}
            }
            look(&db);
        }
        assert_eq!(
            seen.part.load(Ordering::Relaxed),
            part_max.min(total_max) as u64
        );
        let events = db.events(4096);
        let rules: BTreeSet<&str> = events.iter().map(|e| &*e.reason.rule).collect();
        assert!(
            rules.contains("sealed-full"),
            "{part_max} {total_max}: {rules:?}"
        );
        // Memtables that are not sealed are recovered as well, within the limits: from what a crash
        // leaves.
        let copied = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(directory.path()).unwrap().flatten() {
            std::fs::copy(entry.path(), copied.path().join(entry.file_name())).unwrap();
        }
        drop(db);
        let options = options.with_tiers(small(copied.path()).tier_list().to_vec());
        let db = Db::open(options).unwrap();
        assert!(db.stats().recovery.entries > 100);
        look(&db);
        for (k, n) in model {
            let found = db.get(&key(k)).unwrap().unwrap();
            assert_eq!(found[..8], n.to_be_bytes(), "key {k}");
        }
    }
}

fn recuts(db: &Db) -> usize {
    let events = db.events(4096);
    let found = events
        .iter()
        .filter(|e| e.job == "recut" && e.what.starts_with("cut"));
    found.count()
}

/// A move of cuts lists what is in memory in all parts that it reaches into, sealed: with a limit
/// of one there would never be room under load.
#[test]
fn cuts_move_as_often_with_one_sealed_memtable_a_part_as_without_a_limit() {
    let moved = |limit: bool| {
        let directory = tempfile::tempdir().unwrap();
        let options = small(directory.path())
            .preset("nova")
            .partitions(8)
            .duplicates_max(0)
            .recut_writes(50);
        let options = match limit {
            true => options
                .sealed_memtables_max(1)
                .sealed_memtables_total_max(3),
            false => options,
        };
        let db = Db::open(options).unwrap();
        let (mut dice, mut model, seen) = (Dice(5), BTreeMap::new(), Seen::default());
        let start = |n: u64| n / 4000 * 3000;
        for n in 0..20_000u64 {
            let k = start(n) + dice.below(4000).min(dice.below(4000));
            db.put(&key(k), &[&n.to_be_bytes()[..], &[7; 60]].concat())
                .unwrap();
            model.insert(k, n);
            if n % 40 == 0 {
                db.step().unwrap();
                if limit {
                    seen.look(&db, 1, 3);
                }
            }
        }
        for (k, n) in model {
            let found = db.get(&key(k)).unwrap().unwrap();
            assert_eq!(found[..8], n.to_be_bytes(), "key {k}");
        }
        let left = db
            .events(4096)
            .iter()
            .filter(|e| e.what.contains("too many"))
            .count();
        assert_eq!(left, 0);
        recuts(&db)
    };
    let (with, without) = (moved(true), moved(false));
    println!("{with} with the limit, {without} without");
    assert!(without > 5 && with * 2 >= without, "{with} of {without}");
}

/// All memtables of a part that take writes are sealed together.
#[test]
fn a_duplicated_part_seals_all_it_has_at_once_within_the_limits() {
    let directory = tempfile::tempdir().unwrap();
    let nova = |most: usize| {
        small(directory.path())
            .preset("nova")
            .partitions(8)
            .duplicates_max(3)
            .recut_writes(50)
            .sealed_memtables_max(most)
            .sealed_memtables_total_max(most)
    };
    let write = |db: &Db, most: u64, seen: &Seen| {
        for n in 0..6000u64 {
            let hot = if n % 4 == 0 { n % 100 } else { 50 };
            db.put(&key(hot), &[&n.to_be_bytes()[..], &[7; 120]].concat())
                .unwrap();
            if n % 40 == 0 {
                db.step().unwrap();
                seen.look(db, most, most);
            }
        }
    };
    let seen = Seen::default();
    let db = Db::open(nova(4)).unwrap();
    write(&db, 4, &seen);
    let duplicates = |db: &Db| {
        let stats = db.stats();
        let parts = &stats.keyspaces[0].part_list;
        parts.iter().map(|p| p.duplicates).max().unwrap()
    };
    assert!(duplicates(&db) > 1);
    drop(db);
    // The manifest has more duplicates than may be sealed together.
    let db = Db::open(nova(2).duplicates_max(1)).unwrap();
    assert_eq!(duplicates(&db), 1);
    let seen = Seen::default();
    write(&db, 2, &seen);
    assert!(seen.total.into_inner() > 0);
    assert_eq!(
        db.get(&key(50)).unwrap().unwrap()[..8],
        5999u64.to_be_bytes()
    );
}

/// `ohdb` cuts a keyspace by its first memtables, each of which becomes one for every part.
#[test]
fn a_keyspace_is_cut_by_its_first_keys_within_the_limits() {
    let directory = tempfile::tempdir().unwrap();
    let ohdb = |cut: bool| {
        let options = small(directory.path()).partitions(4);
        let options = match cut {
            true => options.preset("ohdb"),
            false => options,
        };
        options.sealed_memtables_total_max(2)
    };
    let db = Db::open(ohdb(false)).unwrap();
    for n in 0..100 {
        db.put(&key(n), &[1; 100]).unwrap();
    }
    drop(db);
    // What a recovery finds is sealed.
    let db = Db::open(ohdb(true)).unwrap();
    assert_eq!(db.stats().sealed_memtables, 1);
    let seen = Seen::default();
    for n in 0..2000 {
        db.put(&key(n % 100), &n.to_be_bytes().repeat(12)).unwrap();
        seen.look(&db, 2, 2);
    }
    assert_eq!(db.stats().keyspaces[0].parts, 4);
    for n in 1900..2000 {
        assert_eq!(
            db.get(&key(n % 100)).unwrap().unwrap()[..8],
            n.to_be_bytes()
        );
    }
}

/// The memtables that were sealed before become one for every part, which the limit has room for
/// only as long as nobody else has any.
#[test]
fn what_other_keyspaces_have_sealed_counts_when_a_keyspace_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let of = |preset: &str| {
        let options = small(directory.path()).preset(preset).partitions(4);
        options.sealed_memtables_total_max(4)
    };
    let db = Db::open(small(directory.path())).unwrap();
    let second = KeyspaceOptions::default().cuts(vec![key(50)]);
    let second = db.create_keyspace("second", second).unwrap();
    for n in 0..100 {
        db.put(&key(n), &[1; 100]).unwrap();
        second.put(&key(n), &[1; 20]).unwrap();
    }
    drop((second, db));
    // What a recovery finds is sealed.
    let db = Db::open(of("ohdb")).unwrap();
    let before = db.stats();
    let sealed = |name: &str| {
        let keyspace = before.keyspaces.iter().find(|k| k.name == name).unwrap();
        let parts = keyspace.part_list.iter();
        parts.map(|p| p.sealed_memtables).sum::<u64>()
    };
    assert!(sealed("default") == 1 && sealed("second") > 0, "{before}");
    let seen = Seen::default();
    for n in 0..2000 {
        db.put(&key(n % 100), &n.to_be_bytes().repeat(12)).unwrap();
        seen.look(&db, 4, 4);
    }
    assert_eq!(db.stats().keyspaces[0].parts, 4);
}

#[test]
fn memtables_that_take_writes_are_no_more_than_the_options_allow_in_all_keyspaces() {
    let directory = tempfile::tempdir().unwrap();
    let options = small(directory.path())
        .preset("nova")
        .partitions(8)
        .duplicates_max(7)
        .recut_writes(50)
        .active_memtables_total_max(6);
    let db = Db::open(options.clone()).unwrap();
    let spaces: Vec<_> = ["a", "b"]
        .into_iter()
        .map(|name| {
            db.create_keyspace(name, KeyspaceOptions::default())
                .unwrap()
        })
        .collect();
    let write = |db: &Db, rounds: u64| {
        let mut dice = Dice(rounds);
        for n in 0..rounds {
            for space in &spaces {
                space.put(&key(dice.below(2000)), &[7; 60]).unwrap();
            }
            db.put(&key(if n % 3 == 0 { dice.below(100) } else { 7 }), &[7; 60])
                .unwrap();
            if n % 20 == 0 {
                db.step().unwrap();
                let active = db.stats().active_memtables;
                assert!(active <= 6, "{active}");
            }
        }
    };
    write(&db, 12_000);
    assert_eq!(db.stats().active_memtables, 6, "all are in use");
    let full = db
        .create_keyspace("c", KeyspaceOptions::default())
        .unwrap_err();
    assert!(
        full.to_string().contains("active_memtables_total_max"),
        "{full}"
    );
    let parts: u64 = db.stats().keyspaces.iter().map(|k| k.parts).sum();
    drop(spaces);
    drop(db);
    let error = Db::open(
        options
            .clone()
            .active_memtables_total_max(parts as usize - 1),
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("the parts of the store")
    );
    let db = Db::open(options.active_memtables_total_max(parts as usize)).unwrap();
    assert_eq!(
        db.stats().active_memtables,
        parts,
        "duplicates are left out"
    );
}
