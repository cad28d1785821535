//! The preset `ohdb`: cuts made of the first keys, buckets, and tiers for log and
//! levels.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thermocline::store::{Clock, Environment};
use thermocline::{Db, ErrorKind, EventReader, KeyspaceOptions, Options, Stats, Tier, WriteBatch};

const KIB: u64 = 1 << 10;

/// A store without threads, small enough to have many tables.
fn small(path: &Path) -> Options {
    Options::at(path)
        .preset("ohdb")
        .write_buffer_bytes(512 * KIB)
        .memtable_bytes(64 * KIB)
        .table_bytes(32 * KIB)
        .first_level_bytes(64 * KIB)
        .background_threads(0)
}

/// A clock that stands still: nobody is ever idle, and nothing takes long.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now_micros(&self) -> u64 {
        1
    }

    fn sleep(&self, _: Duration) {}
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:016}").into_bytes()
}

/// Numbers that look drawn, each once.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |n| n * 7919 % count)
}

fn parts(stats: &Stats) -> u64 {
    stats.keyspaces[0].parts
}

fn merges(db: &Db) -> usize {
    let events = db.events(4096);
    let merged = events.iter().filter(|e| e.job == "merge" && e.bytes_in > 0);
    merged.count()
}

fn contents(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in db.iter().unwrap().forward() {
        let (key, value) = entry.unwrap();
        found.insert(key.to_vec(), value.to_vec());
    }
    found
}

#[test]
fn a_store_is_cut_evenly_by_the_keys_of_its_first_memtable() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(small(directory.path())).unwrap();
    assert_eq!(parts(&db.stats()), 1);
    for n in scattered(10_000) {
        db.put(&key(n), &[n as u8; 100]).unwrap();
    }
    let stats = db.stats();
    assert_eq!(parts(&stats), 10);
    let list = &stats.keyspaces[0].part_list;
    assert_eq!(list[0].start, "");
    assert!(
        list.iter()
            .all(|p| (p.write_share.unwrap() - 0.1).abs() < 0.03),
        "{list:?}"
    );
    let shown = stats.to_string();
    assert!(shown.contains("of writes  begins at"), "{shown}");
    assert!(shown.contains(&list[9].start), "{shown}");
    let recut = db.events(4096).into_iter().find(|e| e.job == "recut");
    assert_eq!(recut.unwrap().reason.rule, "first-memtable");
    assert_eq!(stats.recuts, 1);
    db.settle().unwrap();
    for n in 0..10_000 {
        assert_eq!(
            db.get(&key(n)).unwrap().as_deref(),
            Some(&[n as u8; 100][..])
        );
    }
    db.close().unwrap();
    // Whoever opens it, and with whatever preset, finds the same parts.
    let options = small(directory.path()).preset("leveled");
    let db = Db::open(options).unwrap();
    assert_eq!(parts(&db.stats()), 10);
    assert_eq!(contents(&db).len(), 10_000);
}

/// Batches, deletes of ranges, snapshots and iterators over the moment of the cut.
#[test]
fn what_readers_see_is_exact_while_a_store_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(small(directory.path())).unwrap();
    let mut model = BTreeMap::new();
    let mut held = Vec::new();
    let mut dice = 1_u64;
    let mut roll = |below: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) % below
    };
    for round in 0..3000_u64 {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + roll(4) {
            let n = roll(500);
            match roll(10) {
                0 => {
                    batch.delete(&key(n)).unwrap();
                    model.remove(&key(n));
                }
                1 => {
                    let end = n + roll(60) + 1;
                    batch.delete_range(&key(n), &key(end)).unwrap();
                    let gone: Vec<_> = model
                        .range(key(n)..key(end))
                        .map(|(k, _)| k)
                        .cloned()
                        .collect();
                    gone.iter().for_each(|k| drop(model.remove(k)));
                }
                _ => {
                    let value = format!("{round}").repeat(20).into_bytes();
                    batch.put(&key(n), &value).unwrap();
                    model.insert(key(n), value);
                }
            }
        }
        db.write(&batch).unwrap();
        if round % 37 == 0 {
            held.push((db.snapshot(), db.iter().unwrap(), model.clone()));
        }
        if round % 5 == 0 {
            db.step().unwrap();
        }
        if held.len() > 12 {
            let (snapshot, iter, model) = held.remove(roll(10) as usize);
            let seen: BTreeMap<_, _> = iter
                .forward()
                .map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap())
                .collect();
            assert_eq!(seen, model);
            for n in 0..500 {
                let seen = snapshot.get(&key(n)).unwrap();
                assert_eq!(seen.as_deref(), model.get(&key(n)).map(|v| &v[..]));
            }
        }
    }
    assert_eq!(parts(&db.stats()), 10);
    assert_eq!(contents(&db), model);
    // As after a crash: what is not in tables is in the log.
    drop((held, db));
    let db = Db::open(small(directory.path())).unwrap();
    assert_eq!(parts(&db.stats()), 10);
    assert_eq!(contents(&db), model);
}

#[test]
fn many_writers_lose_nothing_when_the_store_is_cut_under_them() {
    let directory = tempfile::tempdir().unwrap();
    let options = small(directory.path()).background_threads(2);
    let db = Db::open(options.clone()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for n in scattered(2000) {
                    let n = n * 4 + writer;
                    db.put(&key(n), &[n as u8; 100]).unwrap();
                    assert!(db.get(&key(n)).unwrap().is_some());
                }
            });
        }
    });
    assert_eq!(parts(&db.stats()), 10);
    db.close().unwrap();
    let db = Db::open(options).unwrap();
    assert_eq!(contents(&db).len(), 8000);
}

#[test]
fn keys_that_cannot_be_divided_leave_one_part_and_the_store_goes_on() {
    let same = |_| b"the key".to_vec();
    let numbered = |n: u64| key(n);
    let backwards = |n: u64| key(5000 - n);
    let like =
        |n: u64| format!("all keys of this store begin with these words {n:05}").into_bytes();
    type Keys = fn(u64) -> Vec<u8>;
    let cases: [(&str, Keys, usize, u64); 6] = [
        ("one key", same, 0, 1),
        ("in order", numbered, 0, 10),
        ("in reverse", backwards, 0, 10),
        ("a common prefix", like, 0, 10),
        ("a prefix that all keys share", like, 20, 1),
        ("a prefix longer than keys", numbered, 1000, 10),
    ];
    for (what, key, prefix_bytes, expected) in cases {
        let directory = tempfile::tempdir().unwrap();
        let options = small(directory.path()).partition_prefix_bytes(prefix_bytes);
        let db = Db::open(options).unwrap();
        for n in 0..5000 {
            db.put(&key(n), &[n as u8; 100]).unwrap();
        }
        assert_eq!(parts(&db.stats()), expected, "{what}");
        db.settle().unwrap();
        let keys: std::collections::BTreeSet<_> = (0..5000).map(key).collect();
        assert_eq!(contents(&db).len(), keys.len(), "{what}");
    }
}

#[test]
fn given_cuts_and_one_partition_are_left_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let given = small(&path("given")).cuts(vec![key(300)]);
    let whole = small(&path("whole")).partitions(1);
    for (options, expected) in [(given, 2), (whole, 1)] {
        let db = Db::open(options).unwrap();
        for n in scattered(5000) {
            db.put(&key(n), &[0; 100]).unwrap();
        }
        assert_eq!(parts(&db.stats()), expected);
    }
}

#[test]
fn every_keyspace_is_cut_by_its_own_keys() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(small(directory.path()).partitions(3)).unwrap();
    let words = db
        .create_keyspace("words", KeyspaceOptions::default())
        .unwrap();
    for n in scattered(5000) {
        words
            .put(format!("word {n}").as_bytes(), &[0; 100])
            .unwrap();
    }
    let stats = db.stats();
    let find = |name: &str| stats.keyspaces.iter().find(|k| k.name == name).unwrap();
    assert_eq!((find("default").parts, find("words").parts), (1, 3));
    assert!(find("words").part_list[1].start.starts_with("word "));
}

/// A load's tables end at the cuts that there were when it began.
#[test]
fn a_store_is_not_cut_while_a_bulk_load_is_under_way() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(small(directory.path())).unwrap();
    db.put(&key(1), b"overlaps the load").unwrap();
    let mut load = db.bulk_load().unwrap();
    for n in 0..1000 {
        load.add(&key(n), &[1; 100]).unwrap();
    }
    for n in scattered(1000) {
        db.put(&key(n + 2000), &[0; 100]).unwrap();
    }
    assert_eq!(parts(&db.stats()), 1);
    load.finish().unwrap();
    db.settle().unwrap();
    for n in scattered(2000) {
        db.put(&key(n + 2000), &[0; 100]).unwrap();
    }
    assert_eq!(parts(&db.stats()), 10);
    assert_eq!(contents(&db).len(), 3000);
}

/// A flush that was asked for too early leaves a run in the one part; once that is
/// merged down the store is cut after all.
#[test]
fn a_store_flushed_before_its_first_memtable_was_full_is_cut_later() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(small(directory.path())).unwrap();
    db.put(&key(1), b"value").unwrap();
    db.flush().unwrap();
    let fill = |from: u64| {
        for n in scattered(700) {
            db.put(&key(n + from), &[0; 100]).unwrap();
        }
    };
    fill(0);
    assert_eq!(parts(&db.stats()), 1);
    db.flush().unwrap();
    db.settle().unwrap();
    fill(0);
    assert_eq!(parts(&db.stats()), 10);
    db.settle().unwrap();
    assert_eq!(contents(&db).len(), 700);
}

#[test]
fn cuts_that_are_none_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |options: Options, words: &str| {
        let error = Db::open(options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(words), "{error}");
    };
    let with =
        |cuts: &[&[u8]]| small(directory.path()).cuts(cuts.iter().map(|c| c.to_vec()).collect());
    refused(
        with(&[b"b", b"a"]),
        "option cuts: cuts are not ascending: b is followed by a",
    );
    refused(
        with(&[b"a", b"a"]),
        "option cuts: cuts are not ascending: a is followed by a",
    );
    refused(with(&[b""]), "option cuts: a cut is empty");
    // It was said that a is followed by nothing.
    refused(with(&[b"a", b""]), "option cuts: a cut is empty");
    // No key is as long, so that nothing ever came behind it.
    refused(
        with(&[&[b'a'; thermocline::KEY_BYTES_MAX + 1]]),
        "option cuts: bytes of a cut: expected at most 65536, found 65537",
    );
    let many: Vec<Vec<u8>> = (0..1024).map(key).collect();
    refused(
        small(directory.path()).cuts(many),
        "option cuts: 1024 cuts, at most 1023",
    );
    refused(
        small(directory.path()).partitions(0),
        "option partitions: expected 1 to 1024, found 0",
    );
    refused(
        small(directory.path()).partition_prefix_bytes(5000),
        "option partition_prefix_bytes: expected 0 to 1024, found 5000",
    );
    let placed = small(directory.path()).newest_tier("main");
    refused(
        placed.clone().preset("mutant"),
        "option newest_tier: the preset mutant does not",
    );
    refused(
        placed.levels_tier("tape"),
        "option levels_tier: expected main, found tape",
    );
    assert!(
        std::fs::read_dir(directory.path())
            .unwrap()
            .next()
            .is_none()
    );
}

/// With room for none of them the memtables are the smallest there are, and the
/// promise of [`Options::memory_max`] says what they take.
#[test]
fn parts_beyond_the_memory_get_the_smallest_memtables_and_writers_wait_for_flushes() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path())
        .preset("ohdb")
        .write_buffer_bytes(512 * KIB)
        .write_buffer_grows(false)
        .background_threads(0)
        .cuts((1..200).map(|n| key(n * 50)).collect());
    let max = options.memory_max(200).memtables;
    assert_eq!(max, 256 * KIB + 200 * (72 + 256) * KIB);
    let db = Db::open(options).unwrap();
    for n in scattered(10_000) {
        db.put(&key(n), &[n as u8; 100]).unwrap();
        if n % 100 == 0 {
            let stats = db.stats();
            assert!(stats.memory.used.memtables <= max);
            assert!(stats.memtable_bytes <= 512 * KIB + 16 * KIB);
        }
    }
    assert_eq!(contents(&db).len(), 10_000);
}

/// OHDB's four systems (figure 1) are four sets of options.
fn system(path: &Path, partition: bool, two_disks: bool) -> Options {
    let tier = |name: &str| Tier::new(name, path.join(name));
    let options = small(path)
        .with_tiers(vec![tier("ssd"), tier("hdd")])
        .partitions(if partition { 10 } else { 1 });
    match two_disks {
        true => options
            .newest_tier("hdd")
            .levels_tier("ssd")
            .log_tier("hdd")
            .event_tier("hdd")
            .manifest_tier("hdd"),
        false => options,
    }
}

/// What a store merges when it is idle, or when writers are slow, depends on the clock: on a loaded
/// machine, some process being stopped for a while, the counts of merges were others.
#[test]
fn the_four_systems_of_the_paper_are_four_sets_of_options() {
    let directory = tempfile::tempdir().unwrap();
    let environment = Environment {
        clock: Arc::new(Still),
        ..Environment::real()
    };
    let mut counts = BTreeMap::new();
    for (name, partition, two_disks) in [
        ("HDB", false, false),
        ("OHDB-L0P", true, false),
        ("OHDB-2DC", false, true),
        ("OHDB-C", true, true),
    ] {
        let options = system(&directory.path().join(name), partition, two_disks);
        let db = Db::open_in(options.clone(), &environment).unwrap();
        for n in scattered(20_000) {
            db.put(&key(n), &[n as u8; 100]).unwrap();
            if n % 50 == 0 {
                while db.step().unwrap() {}
            }
        }
        let stats = db.stats();
        assert_eq!(parts(&stats), if partition { 10 } else { 1 }, "{name}");
        for table in db.tables() {
            let first = table.slot.starts_with("L0.");
            let expected = if first && two_disks { "hdd" } else { "ssd" };
            assert_eq!(table.tier, expected, "{name}: {table:?}");
        }
        let path = directory.path().join(name);
        let logs = ["ssd", "hdd"].map(|tier| files(&path.join(tier), ".log") > 0);
        assert_eq!(logs, [!two_disks, two_disks], "{name}");
        let manifests = ["ssd", "hdd"].map(|tier| manifests(&path.join(tier)) > 0);
        assert_eq!(manifests, [!two_disks, two_disks], "{name}");
        counts.insert(name, merges(&db));
        let shown = contents(&db);
        assert_eq!(shown.len(), 20_000, "{name}");
        db.close().unwrap();
        let db = Db::open_in(options, &environment).unwrap();
        assert!(contents(&db) == shown, "{name}");
    }
    println!("{counts:?}");
    assert!(counts["HDB"] >= 4 * counts["OHDB-L0P"], "{counts:?}");
    assert!(counts["OHDB-2DC"] >= 4 * counts["OHDB-C"], "{counts:?}");
}

/// Two tiers, log and record of events on the second.
fn apart(path: &Path) -> Options {
    system(path, false, false).log_tier("hdd").event_tier("hdd")
}

fn manifests(path: &Path) -> usize {
    let names = std::fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().file_name());
    names
        .filter(|n| n.to_string_lossy().starts_with("MANIFEST-"))
        .count()
}

fn files(path: &Path, end: &str) -> usize {
    let names = std::fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().file_name());
    names.filter(|n| n.to_string_lossy().ends_with(end)).count()
}

#[test]
fn log_and_events_lie_on_the_tier_named_for_them_and_are_found_there() {
    let directory = tempfile::tempdir().unwrap();
    let (ssd, hdd) = (directory.path().join("ssd"), directory.path().join("hdd"));
    let options = apart(directory.path());
    let db = Db::open(options.clone()).unwrap();
    for n in 0..1000 {
        db.put(&key(n), &[n as u8; 100]).unwrap();
    }
    db.flush().unwrap();
    db.put(&key(1), b"in the log alone").unwrap();
    assert_eq!(files(&ssd, ".log"), 0);
    assert!(files(&hdd, ".log") > 0);
    assert!(db.stats().log_bytes > 0);
    db.checkpoint(&directory.path().join("copy")).unwrap();
    drop(db);
    // As it was when the process died, for readers, writers and tools.
    for options in [options.clone().read_only(true), options.clone()] {
        let db = Db::open(options).unwrap();
        assert_eq!(
            db.get(&key(1)).unwrap().as_deref(),
            Some(&b"in the log alone"[..])
        );
        assert_eq!(contents(&db).len(), 1000);
        assert!(db.stats().log_bytes > 0);
    }
    let db = Db::open(options.clone()).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let events = EventReader::new(&options).read().unwrap();
    assert!(events.iter().any(|e| e.job == "flush"), "{events:?}");
    assert_eq!(
        EventReader::new(&options.clone().event_tier("ssd"))
            .read()
            .unwrap(),
        []
    );
    let kept = Options::from_file(&ssd.join(thermocline::OPTIONS_FILE)).unwrap();
    assert_eq!(kept, options);
    let report = thermocline::verify(options.clone()).unwrap();
    assert!(
        report.problems.is_empty() && report.log_entries > 0,
        "{report}"
    );
    // Its log begins anew, so that it may lie elsewhere.
    let copy = |name: &str| Tier::new(name, directory.path().join("copy").join(name));
    let moved = options
        .with_tiers(vec![copy("ssd"), copy("hdd")])
        .log_tier("ssd");
    let db = Db::open(moved).unwrap();
    assert_eq!(contents(&db).len(), 1000);
    db.put(&key(1), b"value").unwrap();
    assert_eq!(files(&directory.path().join("copy/ssd"), ".log"), 1);
}

#[test]
fn a_log_that_lies_elsewhere_than_the_options_say_is_refused_and_nothing_changes() {
    let directory = tempfile::tempdir().unwrap();
    let options = apart(directory.path());
    let db = Db::open(options.clone()).unwrap();
    db.put(&key(1), b"in the log alone").unwrap();
    db.close().unwrap();
    let wrong = options.clone().log_tier("ssd");
    let error = Db::open(wrong.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongTier);
    assert!(error.to_string().contains("option log_tier"), "{error}");
    let report = thermocline::verify(wrong.clone()).unwrap();
    assert!(
        report
            .problems
            .iter()
            .any(|p| p.to_string().contains("option log_tier")),
        "{report}"
    );
    let error = thermocline::repair(wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongTier);
    let error = Db::open(options.clone().log_tier("tape")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("option log_tier: expected ssd or hdd, found tape")
    );
    let error = Db::open(options.clone().event_tier("tape")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("option event_tier: expected ssd or hdd, found tape")
    );
    let db = Db::open(options).unwrap();
    assert!(db.get(&key(1)).unwrap().is_some());
}

#[test]
fn repair_finds_the_log_on_its_tier() {
    let directory = tempfile::tempdir().unwrap();
    let options = apart(directory.path());
    let db = Db::open(options.clone()).unwrap();
    for n in 0..100 {
        db.put(&key(n), b"in the log alone").unwrap();
    }
    db.close().unwrap();
    std::fs::write(directory.path().join("ssd/CURRENT"), b"nonsense").unwrap();
    assert!(Db::open(options.clone()).is_err());
    let report = thermocline::repair(options.clone()).unwrap();
    assert!(report.lost.is_empty(), "{report}");
    assert_eq!(contents(&Db::open(options).unwrap()).len(), 100);
}

#[test]
fn a_store_without_the_tier_of_its_log_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let options = apart(directory.path());
    let db = Db::open(options.clone()).unwrap();
    db.put(&key(1), b"in the log alone").unwrap();
    db.close().unwrap();
    let (hdd, away) = (directory.path().join("hdd"), directory.path().join("away"));
    std::fs::rename(&hdd, &away).unwrap();
    assert_eq!(
        Db::open(options.clone()).unwrap_err().kind(),
        ErrorKind::WrongTier
    );
    std::fs::remove_dir_all(&hdd).ok();
    std::fs::rename(&away, &hdd).unwrap();
    assert!(Db::open(options).unwrap().get(&key(1)).unwrap().is_some());
}
