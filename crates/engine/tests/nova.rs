//! The preset `nova`: cuts that move with the writes.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::Dice;
use thermocline::{Db, Options, Tier, WriteBatch};

const KIB: u64 = 1 << 10;

/// A store without threads, small enough to be cut often.
fn small(path: &Path) -> Options {
    Options::at(path)
        .preset("nova")
        .partitions(8)
        .recut_writes(50)
        .write_buffer_bytes(512 * KIB)
        .memtable_bytes(64 * KIB)
        .table_bytes(32 * KIB)
        .first_level_bytes(64 * KIB)
        .log_segment_bytes(32 * KIB)
        .background_threads(0)
}

/// The same of a store whose newest levels are passed on as they are, above a slow tier.
fn passing_on(path: &Path) -> Options {
    let tiers = ["fast", "slow"].map(|name| Tier::new(name, path.join(name)));
    small(path)
        .with_tiers(tiers.into())
        .preset("logstore")
        .moving_cuts(true)
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:016}").into_bytes()
}

fn recuts(db: &Db, rule: &str) -> usize {
    let events = db.events(4096);
    let found = events
        .iter()
        .filter(|e| e.job == "recut" && e.reason.rule == rule && e.what.starts_with("cut"));
    found.count()
}

fn contents(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in db.iter().unwrap().forward() {
        let (key, value) = entry.unwrap();
        found.insert(key.to_vec(), value.to_vec());
    }
    found
}

/// Some batch over keys of a stretch that wanders, and what it makes of `model`.
fn batch(dice: &mut Dice, round: u64, model: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> WriteBatch {
    let mut batch = WriteBatch::new();
    // Wide, then narrow in one place, then in another, then one key.
    let (from, width) = match round / 700 % 4 {
        0 => (0, 600),
        1 => (40, 60),
        2 => (400, 90),
        _ => (200, 1),
    };
    for _ in 0..1 + dice.below(4) {
        let n = from + dice.below(width);
        match dice.below(10) {
            0 => {
                batch.delete(&key(n)).unwrap();
                model.remove(&key(n));
            }
            1 => {
                let end = n + dice.below(60) + 1;
                batch.delete_range(&key(n), &key(end)).unwrap();
                model.retain(|k, _| !(key(n)..key(end)).contains(k));
            }
            _ => {
                let value = format!("{round}").repeat(20).into_bytes();
                batch.put(&key(n), &value).unwrap();
                model.insert(key(n), value);
            }
        }
    }
    batch
}

/// Batches, deletes of ranges, snapshots and iterators both ways, over cuts made, moved, made anew,
/// and parts that are duplicated.
#[test]
fn what_readers_see_is_exact_while_cuts_move() {
    let directory = tempfile::tempdir().unwrap();
    readers_see_what_was_written(&small(directory.path()));
}

/// On two tiers, where tables go to and fro by temperature, within a cost target.
#[test]
fn what_readers_see_is_exact_while_cuts_and_tables_move() {
    let directory = tempfile::tempdir().unwrap();
    let tier =
        |(name, price)| Tier::new(name, directory.path().join(name)).price_usd_gb_month(price);
    let options = small(directory.path())
        .with_tiers([("fast", 0.5), ("slow", 0.05)].map(tier).into())
        .cost_target_usd_per_gb_month(0.2)
        .heat_epoch_ms(10)
        .migration_cool_down_s(0);
    readers_see_what_was_written(&options);
    let db = Db::open(options).unwrap();
    let moves = db.events(4096);
    let moves = moves.iter().filter(|e| e.job == "relocate");
    assert!(moves.count() > 4);
}

/// With `logstore`, whose parts pass their newest runs on side by side.
#[test]
fn what_readers_see_is_exact_while_cuts_move_above_runs_that_are_passed_on() {
    let directory = tempfile::tempdir().unwrap();
    let by_edit = readers_see_what_was_written(&passing_on(directory.path()));
    assert!(by_edit > 4, "{by_edit}");
}

/// The merges that were done by an edit alone.
fn readers_see_what_was_written(options: &Options) -> u64 {
    let mut db = Db::open(options.clone()).unwrap();
    let mut model = BTreeMap::new();
    let mut held = Vec::new();
    let mut dice = Dice(1);
    let (mut minor, mut major, mut duplicates, mut by_edit) = (0, 0, 0, 0);
    for round in 0..6000_u64 {
        let batch = batch(&mut dice, round, &mut model);
        db.write(&batch).unwrap();
        if round % 37 == 0 {
            held.push((db.snapshot(), db.iter().unwrap(), model.clone()));
        }
        if round % 3 == 0 {
            db.step().unwrap();
        }
        let n = dice.below(600);
        let seen = db.get(&key(n)).unwrap();
        assert_eq!(
            seen.as_deref(),
            model.get(&key(n)).map(|v| &v[..]),
            "{round}: {n}"
        );
        if held.len() > 12 {
            let (snapshot, mut iter, model) = held.remove(dice.below(10) as usize);
            let mut seen = BTreeMap::new();
            iter.seek_to_last().unwrap();
            while iter.valid() {
                seen.insert(iter.key().to_vec(), iter.value().to_vec());
                iter.prev().unwrap();
            }
            assert_eq!(seen, model, "{round}");
            let seen: BTreeMap<_, _> = iter
                .forward()
                .map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap())
                .collect();
            assert_eq!(seen, model, "{round}");
            for n in 0..600 {
                let seen = snapshot.get(&key(n)).unwrap();
                assert_eq!(
                    seen.as_deref(),
                    model.get(&key(n)).map(|v| &v[..]),
                    "{round}: {n}"
                );
            }
        }
        let parts = &db.stats().keyspaces[0].part_list;
        duplicates = parts
            .iter()
            .map(|p| p.duplicates)
            .sum::<u64>()
            .max(duplicates);
        if round % 1500 == 1499 {
            (minor, major) = (minor + recuts(&db, "minor"), major + recuts(&db, "major"));
            by_edit += db.stats().merges_by_edit;
            // As after a crash: what is not in tables is in the log.
            held.clear();
            drop(db);
            db = Db::open(options.clone()).unwrap();
            assert_eq!(contents(&db), model, "{round}");
        }
    }
    assert!(
        minor > 3 && major > 1 && duplicates > 0,
        "{minor} {major} {duplicates}"
    );
    db.settle().unwrap();
    assert_eq!(contents(&db), model);
    by_edit
}

#[test]
fn many_writers_lose_nothing_while_cuts_move_under_them() {
    for options in [small, passing_on] {
        let directory = tempfile::tempdir().unwrap();
        many_writers_lose_nothing(options(directory.path()).background_threads(2));
    }
}

fn many_writers_lose_nothing(options: Options) {
    let db = Db::open(options.clone()).unwrap();
    let writers = 4_u64;
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let db = &db;
            scope.spawn(move || {
                let mut dice = Dice(writer);
                for n in 0..20_000_u64 {
                    // The stretch that is written wanders; each key has one writer.
                    let at = n / 5 + dice.below(300);
                    let key = format!("{at:08}-{writer}");
                    db.put(key.as_bytes(), &n.to_be_bytes()).unwrap();
                    if n % 7 == 0 {
                        let seen = db.get(key.as_bytes()).unwrap().unwrap();
                        assert_eq!(&seen[..], n.to_be_bytes());
                    }
                }
            });
        }
    });
    assert!(db.stats().keyspaces[0].parts > 1);
    assert!(recuts(&db, "minor") + recuts(&db, "major") > 0);
    db.settle().unwrap();
    let cut = || {
        let events = db.events(4096).into_iter();
        let cut = events.filter(|e| e.job == "recut" && e.what.starts_with("cut"));
        cut.count() as u64
    };
    // A job is done before its event is there.
    for _ in 0..1000 {
        if db.pulse().parts.recuts == cut() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(db.pulse().parts.recuts, cut());
    let mut expected = BTreeMap::new();
    for writer in 0..writers {
        let mut dice = Dice(writer);
        for n in 0..20_000_u64 {
            let at = n / 5 + dice.below(300);
            expected.insert(
                format!("{at:08}-{writer}").into_bytes(),
                n.to_be_bytes().to_vec(),
            );
        }
    }
    assert!(contents(&db) == expected);
    drop(db);
    assert!(contents(&Db::open(options).unwrap()) == expected);
}

/// Numbers from 0 on, small ones the popular: Zipf's law, exponent 0.99.
struct Zipf(Vec<f64>);

impl Zipf {
    fn below(count: u32) -> Zipf {
        let sums = (1..=count).scan(0.0, |sum, rank| {
            *sum += f64::from(rank).powf(-0.99);
            Some(*sum)
        });
        Zipf(sums.collect())
    }

    fn roll(&self, dice: &mut Dice) -> u64 {
        let at = dice.below(1 << 30) as f64 / f64::from(1 << 30) * self.0[self.0.len() - 1];
        self.0.partition_point(|s| *s <= at) as u64
    }
}

/// The paper's load imbalance (section 8.2.1) of a store as it is, and how many memtables that is
/// of.
fn imbalance(db: &Db) -> (f64, usize) {
    let parts = &db.stats().keyspaces[0].part_list;
    let shares = parts.iter().flat_map(|part| {
        let copies = 1 + part.duplicates as usize;
        std::iter::repeat_n(part.write_share.unwrap() / copies as f64, copies)
    });
    let shares: Vec<f64> = shares.collect();
    let imbalance = thermocline_policy::plan::major::imbalance(&shares);
    (imbalance, shares.len())
}

/// A store that got so many writes to keys that are all alike, and then so many that are skewed.
fn imbalance_after(recut_writes: u64, uniform: u64, skewed: u64) -> (f64, usize) {
    let directory = tempfile::tempdir().unwrap();
    let options = small(directory.path()).recut_writes(recut_writes);
    let options = options.write_buffer_bytes(4096 * KIB);
    let db = Db::open(options.memtable_bytes(256 * KIB)).unwrap();
    let (mut dice, zipf) = (Dice(5), Zipf::below(20_000));
    for round in 0..uniform + skewed {
        let n = match round < uniform {
            true => dice.below(20_000),
            false => zipf.roll(&mut dice),
        };
        db.put(&key(n), &[0; 60]).unwrap();
        if round % 64 == 0 {
            db.step().unwrap();
        }
    }
    let found = imbalance(&db);
    println!("{uniform} uniform, {skewed} zipfian: {found:?}");
    assert!(found.1 > 4);
    found
}

/// Shares of writes that differ by so much are as good as even.
const EVEN: f64 = 0.02 / 8.0;

#[test]
fn skewed_writes_are_shared_out_about_as_evenly_as_uniform_ones() {
    let uniform = imbalance_after(500, 120_000, 0);
    let skewed = imbalance_after(500, 0, 120_000);
    assert!(
        skewed.0 <= 6.0 * uniform.0.max(EVEN),
        "{uniform:?} {skewed:?}"
    );
}

/// After a load the sample had hardly any writes of the hot part in its older half, as that was
/// flushed sooner than the others: seven times new cuts were held to be no better, and the wait
/// doubled each time.
#[test]
fn skewed_writes_after_a_load_are_shared_out_as_evenly_as_in_a_fresh_store() {
    let uniform = imbalance_after(1000, 100_000, 0);
    let skewed = imbalance_after(1000, 100_000, 400_000);
    assert!(
        skewed.0 <= 6.0 * uniform.0.max(EVEN),
        "{uniform:?} {skewed:?}"
    );
}

/// Looks at a load in order are in vain, and each made the next wait for as many writes as there
/// had been in all.
#[test]
fn skewed_writes_after_a_load_in_order_are_cut_long_before_there_are_as_many() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(small(directory.path()).recut_writes(16)).unwrap();
    let (mut dice, zipf) = (Dice(5), Zipf::below(20_000));
    let put = |n: u64, round: u64| {
        db.put(&key(n), &[0; 60]).unwrap();
        if round.is_multiple_of(64) {
            db.step().unwrap();
        }
    };
    let parts = || db.stats().keyspaces[0].part_list.len();
    let loaded = 70_000;
    for round in 0..loaded {
        put(20_000 + round, round);
    }
    assert_eq!(parts(), 1, "keys in order stay in one part");
    for round in 0..loaded / 2 {
        put(zipf.roll(&mut dice), round);
    }
    assert!(parts() > 1);
}

/// What memtables hold. A look counts twice what leaves a part at that moment, so one above `max`
/// is taken again.
fn memtable_bytes(db: &Db, max: u64) -> u64 {
    let mut looks = (0..5).map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        db.stats().memory.used.memtables
    });
    let first = db.stats().memory.used.memtables;
    match first > max {
        true => looks.find(|used| *used <= max).unwrap_or(first),
        false => first,
    }
}

/// The memtables of a duplicated part were as large as that of a single one, eight at a time. So
/// what was sealed and what followed it took more than the write buffer, and each fold was a flush.
#[test]
fn one_hot_key_is_folded_and_never_flushed_once_its_part_is_duplicated() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path())
        .preset("nova")
        .write_buffer_bytes(8192 * KIB)
        .write_buffer_grows(false)
        .background_threads(2);
    let max = options.memory_max(8).memtables;
    let db = Db::open(options).unwrap();
    let mut flushes = None;
    for n in 0..300_000_u64 {
        db.put(b"key", &[n as u8; 100]).unwrap();
        if n % 500 != 0 {
            continue;
        }
        let used = memtable_bytes(&db, max);
        assert!(used <= max, "{used} of {max}");
        let stats = db.stats();
        if stats.keyspaces[0].part_list[0].duplicates > 0 && stats.folds > 0 {
            flushes.get_or_insert(stats.flushes);
        }
    }
    let stats = db.stats();
    assert_eq!(stats.keyspaces[0].part_list[0].duplicates, 7);
    let words: Vec<_> = db.events(4096).into_iter().map(|e| e.what).collect();
    // A fold does not wait for writers that a busy machine keeps from going on, and is a flush
    // then.
    let held = words.iter().filter(|w| w.contains("write path was held"));
    let others = stats.flushes - flushes.unwrap();
    assert!(others <= held.count() as u64, "{words:?}");
    assert!(stats.folds > 5, "{words:?}");
}

/// Room was asked for after the memtables were made, each as large as that of a single part: so
/// many duplicates never found any, and where they did they took more than the options say.
#[test]
fn a_key_is_duplicated_as_often_as_may_be_within_the_memory() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path())
        .preset("nova")
        .partitions(64)
        .duplicates_max(63)
        .write_buffer_bytes(64 << 20)
        .write_buffer_grows(false)
        .background_threads(2);
    let max = options.memory_max(64).memtables;
    assert_eq!(max, 64 << 20);
    let db = Db::open(options).unwrap();
    for n in 0..100_000_u64 {
        db.put(b"key", &[n as u8; 300]).unwrap();
        if n % 500 == 0 {
            let used = memtable_bytes(&db, max);
            assert!(used <= max, "{used} of {max}");
        }
    }
    assert_eq!(db.stats().keyspaces[0].part_list[0].duplicates, 63);
    let events = db.events(4096);
    let found = events.iter().find(|e| e.what.contains("no room"));
    assert!(found.is_none(), "{found:?}");
}

/// Recovery counted what it replayed, though the counters that each part had written with its last
/// flush held most of it already, and were halved in between for others: of eight parts with an
/// eighth of the writes each, four had a fifth afterwards and four a twentieth, and cuts were made
/// anew for that.
#[test]
fn the_shares_of_the_writes_are_the_same_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let options = || {
        let options = small(directory.path()).recut_writes(1000);
        options.write_buffer_bytes(4096 * KIB)
    };
    let db = Db::open(options()).unwrap();
    let mut dice = Dice(6);
    let write = |db: &Db, dice: &mut Dice, count: u64| {
        for n in 0..count {
            db.put(&key(dice.below(20_000)), &[0; 60]).unwrap();
            if n % 64 == 0 {
                db.step().unwrap();
            }
        }
    };
    let shares = |db: &Db| -> Vec<f64> {
        let parts = &db.stats().keyspaces[0].part_list;
        parts.iter().map(|p| p.write_share.unwrap()).collect()
    };
    write(&db, &mut dice, 150_000);
    let before = shares(&db);
    assert_eq!(before.len(), 8);
    let close = |after: &[f64], by: f64| {
        let mut pairs = before.iter().zip(after);
        pairs.all(|(before, after)| (before - after).abs() <= by)
    };
    let killed = tempfile::tempdir().unwrap();
    copy(directory.path(), killed.path());
    let mut after_crash = small(killed.path()).recut_writes(1000);
    after_crash = after_crash.write_buffer_bytes(4096 * KIB);
    let crashed = Db::open(after_crash).unwrap();
    assert!(crashed.stats().recovery.entries > 1000);
    let after = shares(&crashed);
    assert!(close(&after, 0.02), "{before:?} {after:?}");
    write(&crashed, &mut dice, 50_000);
    assert_eq!(recuts(&crashed, "major") + recuts(&crashed, "minor"), 0);
    db.close().unwrap();
    let after = shares(&Db::open(options()).unwrap());
    assert!(close(&after, 0.001), "{before:?} {after:?}");
}

#[test]
fn cuts_counters_and_duplicates_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let options = small(directory.path());
    let db = Db::open(options.clone()).unwrap();
    let mut dice = Dice(3);
    for n in 0..20_000_u64 {
        let n = if n % 3 == 0 { 100 } else { dice.below(500) };
        db.put(&key(n), &[0; 80]).unwrap();
        if n % 8 == 0 {
            db.step().unwrap();
        }
    }
    let part_list = |db: &Db| db.stats().keyspaces[0].part_list.clone();
    let before = part_list(&db);
    assert!(before.iter().any(|p| p.duplicates > 0), "{before:?}");
    db.close().unwrap();
    let db = Db::open(options.clone()).unwrap();
    let after = part_list(&db);
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.start, after.start);
        assert_eq!(before.duplicates, after.duplicates);
        assert_eq!(before.tiny_ranges, after.tiny_ranges);
        assert!(
            (before.write_share.unwrap() - after.write_share.unwrap()).abs() < 0.02,
            "{before:?} {after:?}"
        );
    }
    let hottest = |list: &[thermocline::PartStats]| {
        let all = list.iter().enumerate();
        all.max_by(|(_, a), (_, b)| a.write_share.unwrap().total_cmp(&b.write_share.unwrap()))
            .unwrap()
            .0
    };
    assert_eq!(hottest(&before), hottest(&after));
    // With fewer parts and duplicates allowed, there are no more of them after a while.
    drop(db);
    let fewer = options.clone().partitions(3).duplicates_max(1);
    let db = Db::open(fewer.fold_keys_max(0)).unwrap();
    assert!(part_list(&db).iter().all(|p| p.duplicates <= 1));
    for n in 0..2000 {
        db.put(&key(n % 500), &[0; 80]).unwrap();
        db.step().unwrap();
        assert!(n < 100 || db.stats().active_memtables <= 3, "{n}");
    }
    assert_eq!(recuts(&db, "fewer-parts"), 1);
    let everything = contents(&db);
    drop(db);
    // Another preset opens it as well, and this one again.
    for preset in ["leveled", "logstore", "ohdb", "nova"] {
        let db = Db::open(options.clone().preset(preset)).unwrap();
        assert_eq!(contents(&db), everything, "{preset}");
        db.put(&key(9999), b"").unwrap();
        db.delete(&key(9999)).unwrap();
        db.compact_range(None, None).unwrap();
        db.settle().unwrap();
        assert_eq!(contents(&db), everything, "{preset}");
    }
}

/// Memtables as small as may be, more parts than the memory holds full ones of, and all of it
/// divided again and again.
#[test]
fn parts_beyond_the_memory_are_cut_all_the_same_and_writers_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path())
        .preset("nova")
        .partitions(20)
        .recut_writes(16)
        .write_buffer_bytes(64 * KIB)
        .background_threads(2);
    let db = Db::open(options.clone()).unwrap();
    let max = options.memory_max(20).memtables;
    let mut dice = Dice(8);
    for n in 0..8000_u64 {
        let at = n / 100 + dice.below(5000);
        db.put(&key(at), &[n as u8; 100]).unwrap();
        if n % 500 == 0 {
            let used = memtable_bytes(&db, max);
            assert!(used <= max, "{used} of {max}");
        }
    }
    assert!(db.stats().keyspaces[0].parts > 4);
}

#[test]
fn a_bulk_load_and_a_checkpoint_among_moving_cuts_keep_everything() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let db = Db::open(small(&directory.path().join("store"))).unwrap();
    let mut model = BTreeMap::new();
    let mut dice = Dice(21);
    for round in 0..3000 {
        db.write(&batch(&mut dice, round, &mut model)).unwrap();
        db.step().unwrap();
        if round % 1000 == 500 {
            let mut load = db.bulk_load().unwrap();
            for n in (0..600).step_by(3) {
                load.add(&key(n), b"loaded").unwrap();
                model.insert(key(n), b"loaded".to_vec());
            }
            load.finish().unwrap();
        }
        if round % 1000 == 900 {
            let path = copy.path().join(round.to_string());
            db.checkpoint(&path).unwrap();
            let copied = Db::open(small(&path.join("main"))).unwrap();
            assert_eq!(contents(&copied), model, "{round}");
        }
    }
    assert_eq!(contents(&db), model);
    drop(db);
    let db = Db::open(small(&directory.path().join("store"))).unwrap();
    assert_eq!(contents(&db), model);
}

/// The files of a store as they are, in another directory: what a killed process leaves.
fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
