//! The lookup index and scans of parts: reads give the same answers with and without.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use common::{Dice, walk};
use thermocline::{Db, LookupIndex, Options};

const KIB: u64 = 1 << 10;

/// A store without threads, with many memtables and newest runs.
fn many(path: &Path) -> Options {
    Options::at(path)
        .write_buffer_bytes(2 << 20)
        .memtable_bytes(32 * KIB)
        .newest_runs_merge(6)
        .table_bytes(32 * KIB)
        .first_level_bytes(128 * KIB)
        .background_threads(0)
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

type Kept = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes, deletes and folds at random, and after every few compares reads with what
/// should be there.
fn compare(options: &Options, seed: u64) {
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut db = Db::open(options.clone()).unwrap();
    let mut kept = Kept::new();
    let mut held = Vec::new();
    for n in 0..12_000u64 {
        let k = dice.below(if n % 2 == 0 { 50 } else { 4_000 });
        match dice.below(200) {
            0 => {
                let end = k + 1 + dice.below(30);
                db.delete_range(&key(k), &key(end)).unwrap();
                kept.retain(|at, _| !(key(k)..key(end)).contains(at));
            }
            1..20 => {
                db.delete(&key(k)).unwrap();
                kept.remove(&key(k));
            }
            _ => {
                let value = [&n.to_be_bytes()[..], &vec![1; dice.below(200) as usize]].concat();
                db.put(&key(k), &value).unwrap();
                kept.insert(key(k), value);
            }
        }
        if n % 97 == 0 {
            db.step().unwrap();
        }
        let asked = dice.below(4_100);
        assert_eq!(
            db.get(&key(asked)).unwrap().as_deref(),
            kept.get(&key(asked)).map(Vec::as_slice),
            "key {asked} after {n}"
        );
        if n % 1_500 == 700 {
            held.push((db.snapshot(), kept.clone()));
        }
        if n == 8_000 {
            held.clear();
            drop(db);
            db = Db::open(options.clone()).unwrap();
        }
    }
    held.push((db.snapshot(), kept));
    for (snapshot, kept) in &held {
        for k in 0..4_100 {
            let found = snapshot.get(&key(k)).unwrap();
            assert_eq!(found.as_deref(), kept.get(&key(k)).map(Vec::as_slice));
        }
        let forward: Result<Vec<_>, _> = snapshot.iter().unwrap().forward().collect();
        assert!(forward.unwrap().into_iter().eq(kept.clone()));
        let backward: Result<Vec<_>, _> = snapshot.iter().unwrap().backward().collect();
        assert!(
            backward
                .unwrap()
                .into_iter()
                .eq(kept.clone().into_iter().rev())
        );
    }
}

#[test]
fn reads_with_the_index_are_those_without() {
    for seed in 1..=4 {
        for mode in [LookupIndex::On, LookupIndex::Auto] {
            let directory = tempfile::tempdir().unwrap();
            compare(&many(directory.path()).lookup_index(mode), seed);
        }
    }
}

#[test]
fn reads_of_memtables_without_filters_are_those_with() {
    for mode in [LookupIndex::Off, LookupIndex::On, LookupIndex::Auto] {
        let directory = tempfile::tempdir().unwrap();
        let options = many(directory.path()).memtable_filters(false);
        compare(&options.fold_keys_max(60).lookup_index(mode), 11);
    }
}

#[test]
fn without_filters_the_index_comes_into_use_with_two_memtables_and_with_filters_it_does_not() {
    for (filters, expected) in [(true, false), (false, true)] {
        let directory = tempfile::tempdir().unwrap();
        let options = many(directory.path());
        let db = Db::open(options.memtable_filters(filters)).unwrap();
        let mut n = 0;
        while db.stats().memtables < 6 {
            db.put(&key(n), &[0; 100]).unwrap();
            n += 1;
        }
        assert_eq!(db.stats().lookup.bytes > 0, expected, "{filters}");
    }
}

/// An index of 4 KiB, far too small: it forgets, and must not hide anything.
#[test]
fn an_index_that_is_too_small_hides_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let options = many(directory.path()).write_buffer_bytes(64 * KIB);
    let options = options
        .memtable_bytes(16 * KIB)
        .lookup_index(LookupIndex::On);
    compare(&options, 9);
}

#[test]
fn reads_with_the_index_parts_and_folds_are_those_without() {
    let directory = tempfile::tempdir().unwrap();
    let cuts = (1..9).map(|n| key(n * n * 50)).collect();
    let options = many(directory.path()).cuts(cuts).fold_keys_max(60);
    compare(&options.lookup_index(LookupIndex::On), 5);
    let directory = tempfile::tempdir().unwrap();
    // Cut while it is in use.
    let options = many(directory.path())
        .preset("ohdb")
        .memtable_bytes(64 * KIB);
    compare(&options.lookup_index(LookupIndex::On), 6);
}

#[test]
fn the_index_comes_into_use_with_many_memtables_and_says_what_it_costs() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(many(directory.path())).unwrap();
    for n in 0..100 {
        db.put(&key(n), &[0; 100]).unwrap();
    }
    assert_eq!(db.stats().lookup.bytes, 0);
    for n in 0..8_000 {
        db.put(&key(n), &[0; 100]).unwrap();
        // For who only writes it would rest.
        for absent in 0..16 {
            let absent = key(10_000 + 16 * n + absent);
            assert!(db.get(&absent).unwrap().is_none());
        }
    }
    for n in 0..8_000 {
        assert!(db.get(&key(n)).unwrap().is_some());
    }
    let stats = db.stats();
    assert_eq!(stats.lookup.bytes, 128 * KIB);
    assert_eq!(
        stats.memory.used.lookup_index,
        stats.memory.max.lookup_index
    );
    assert!(
        stats.lookup.notes > 1_000 && stats.lookup.reads > 7_000,
        "{stats}"
    );
    assert!(stats.to_string().contains("entries noted"), "{stats}");
}

/// Small values of four hundred keys, again and again.
fn write_on(db: &Db, puts: u64, mut between: impl FnMut(u64)) {
    for n in 0..puts {
        db.put(&key(n % 400), &n.to_be_bytes()).unwrap();
        between(n);
    }
}

/// It is for reads: who only writes hardly pays for it.
#[test]
fn the_index_rests_where_nobody_reads_and_comes_back_to_see() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path())
        .write_buffer_bytes(8 << 20)
        .memtable_bytes(32 * KIB)
        .newest_runs_merge(100)
        .newest_runs_stop(400)
        .background_threads(0);
    let db = Db::open(options).unwrap();
    let mut changes = vec![false];
    write_on(&db, 200_000, |n| {
        if n % 100 == 0 {
            changes.push(db.stats().lookup.is_paused);
            changes.dedup();
        }
    });
    let lookup = db.stats().lookup;
    // Each pause is twice as long as the one before.
    assert!((4_096..80_000).contains(&lookup.notes), "{lookup}");
    assert!(changes.len() >= 4, "{changes:?}");
}

#[test]
fn the_index_stays_where_reads_pass_over_many_memtables() {
    let directory = tempfile::tempdir().unwrap();
    let options = many(directory.path())
        .write_buffer_bytes(16 << 20)
        .newest_runs_merge(100)
        .newest_runs_stop(400);
    let db = Db::open(options.memtable_bytes(16 * KIB)).unwrap();
    write_on(&db, 20_000, |n| {
        for absent in 0..16 {
            assert!(db.get(&key(10_000 + 16 * n + absent)).unwrap().is_none());
        }
        assert!(!db.stats().lookup.is_paused);
    });
    let lookup = db.stats().lookup;
    assert!(lookup.answered * 2 > lookup.reads, "{lookup}");
    assert!(lookup.passed_over > 8 * lookup.answered, "{lookup}");
    assert!(
        lookup.to_string().contains("places passed over"),
        "{lookup}"
    );
}

/// From part to part, both ways, with turns and seeks at the cuts.
#[test]
fn an_iterator_crosses_parts_as_if_there_were_none() {
    let directory = tempfile::tempdir().unwrap();
    // Cuts at keys, between them, side by side, and around nothing.
    let cuts = [10, 11, 30, 500, 501, 502, 700].map(key).to_vec();
    let db = Db::open(many(directory.path()).cuts(cuts)).unwrap();
    let mut kept = Kept::new();
    let mut dice = Dice(3);
    for n in 0..600u64 {
        let k = dice.below(400) / 2 * 2;
        let k = if k > 300 { k + 400 } else { k };
        db.put(&key(k), &n.to_be_bytes()).unwrap();
        kept.insert(key(k), n.to_be_bytes().to_vec());
        match n {
            200 => db.flush().unwrap(),
            400 => db.compact_range(None, None).unwrap(),
            450 => {
                db.delete_range(&key(8), &key(32)).unwrap();
                kept.retain(|at, _| !(key(8)..key(32)).contains(at));
            }
            _ => {}
        }
    }
    let ranges = [
        (0, 2_000),
        (10, 30),
        (11, 700),
        (500, 502),
        (9, 12),
        (700, 701),
    ];
    for (low, high) in ranges {
        let within: Vec<_> = kept.range(key(low)..key(high)).collect();
        let (start, end) = (key(low), key(high));
        let bounds = (Bound::Included(&*start), Bound::Excluded(&*end));
        let mut iter = db.range(bounds.0, bounds.1).unwrap();
        for _ in 0..400 {
            let at = key(dice.below(900));
            walk(&mut iter, &within, &at, &mut dice);
        }
        iter.seek_to_last().unwrap();
        assert_eq!(iter.key(), within.last().map_or(&b""[..], |(k, _)| &**k));
        iter.seek_to_first().unwrap();
        assert_eq!(iter.key(), within.first().map_or(&b""[..], |(k, _)| &**k));
    }
}

/// Each table of the newest level was searched after an opening until merges had taken it away.
#[test]
fn an_opening_has_the_index_know_what_is_in_the_newest_tables() {
    for (mode, known) in [(LookupIndex::On, true), (LookupIndex::Off, false)] {
        let directory = tempfile::tempdir().unwrap();
        let options = many(directory.path()).newest_runs_merge(22);
        let options = options.lookup_index(mode);
        let db = Db::open(options.clone()).unwrap();
        for run in 0..20 {
            for n in 0..100 {
                db.put(&key(n * 20 + run), &[run as u8; 100]).unwrap();
            }
            db.flush().unwrap();
        }
        drop(db);
        let db = Db::open(options).unwrap();
        assert_eq!(db.stats().recovery.indexed_entries > 0, known, "{mode:?}");
        for n in 0..4_100 {
            let found = db.get(&key(n)).unwrap();
            let expected = (n < 2_000).then(|| vec![(n % 20) as u8; 100]);
            assert_eq!(found.as_deref(), expected.as_deref(), "{n}");
        }
        let lookup = db.stats().lookup;
        assert_eq!(lookup.passed_over > 20_000, known, "{mode:?}: {lookup:?}");
    }
}
