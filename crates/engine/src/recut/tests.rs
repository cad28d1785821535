//! Jobs one by one, in the order that a story needs, on stores whose cuts nobody else moves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thermocline_model::edit::{Change, Edit};
use thermocline_model::job::{Flush, Fold, Job, NewPart, Reason, Recut};
use thermocline_model::key::SeqNo;
use thermocline_model::version::{KeyspaceId, Tiny};
use thermocline_model::view::KeyspaceWrites;

use crate::engine::ReadView;
use crate::{Db, LookupIndex, Options, PartTriggers, RecutTriggers};

const KIB: u64 = 1 << 10;

fn options(path: &Path) -> Options {
    Options::at(path)
        .preset("nova")
        .write_buffer_bytes(2 << 20)
        .memtable_bytes(256 * KIB)
        .log_segment_bytes(16 * KIB)
        .log_bytes_max(64 << 20)
        .lookup_index(LookupIndex::On)
        .background_threads(0)
}

fn run(db: &Db, job: Job) {
    let engine = &db.handle.engine;
    let planned = engine.begin(&mut engine.scheduler.lock(), job);
    engine.run(planned).unwrap();
}

fn recut_job(parts: &[(&str, u32)]) -> Recut {
    let parts = parts.iter().map(|(start, duplicates)| NewPart {
        duplicates: *duplicates,
        tiny: vec![Tiny {
            start: start.as_bytes().into(),
            writes: 0,
        }],
    });
    Recut {
        keyspace: KeyspaceId::DEFAULT,
        slots: parts.len(),
        parts: parts.collect(),
        reason: Reason::new("test"),
    }
}

/// Gives the store parts that begin at these keys, with so many duplicates.
fn recut(db: &Db, parts: &[(&str, u32)]) {
    run(db, Job::Recut(recut_job(parts)));
    assert_eq!(view(db).parts.len(), parts.len());
    let duplicates = view(db)
        .parts
        .iter()
        .map(|p| p.twins.len() as u32)
        .collect::<Vec<_>>();
    assert!(duplicates.iter().eq(parts.iter().map(|(_, d)| d)));
}

fn flush(db: &Db, part: u32) {
    run(
        db,
        Job::Flush(Flush {
            keyspace: KeyspaceId::DEFAULT,
            part,
            beside: Vec::new(),
            active: true,
            reason: Reason::new("test"),
        }),
    );
}

fn fold(db: &Db, part: u32) {
    run(
        db,
        Job::Fold(Fold {
            keyspace: KeyspaceId::DEFAULT,
            part,
            active: true,
            reason: Reason::new("test"),
        }),
    );
}

fn view(db: &Db) -> Arc<ReadView> {
    db.space.view.load_full()
}

/// So often that most of it does not survive.
fn put(db: &Db, key: &str, value: &str) {
    for _ in 0..20 {
        db.put(key.as_bytes(), value.as_bytes()).unwrap();
    }
}

fn get(db: &Db, key: &str) -> Option<String> {
    let found = db.get(key.as_bytes()).unwrap();
    found.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn forward(db: &Db) -> Vec<String> {
    let entries = db.iter().unwrap().forward();
    let keys = entries.map(|entry| String::from_utf8(entry.unwrap().0).unwrap());
    keys.collect()
}

fn backward(db: &Db) -> Vec<String> {
    let entries = db.iter().unwrap().backward();
    let keys = entries.map(|entry| String::from_utf8(entry.unwrap().0).unwrap());
    keys.collect()
}

/// Of a memtable that is older than the cuts one part has flushed what is its own, and the log must
/// keep what the other has not. The deliberate fault that lets it go was caught by no test.
#[test]
fn what_one_part_has_flushed_of_a_shared_memtable_is_kept_in_the_log_for_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(options(directory.path())).unwrap();
    db.put(b"a", b"1").unwrap();
    db.put(b"x", b"2").unwrap();
    recut(&db, &[("", 0), ("m", 0)]);
    // So that the log has segments that only these two need.
    for _ in 0..64 {
        db.put(b"b", &[0; 1024]).unwrap();
    }
    flush(&db, 0);
    let killed = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), killed.path().join(entry.file_name())).unwrap();
    }
    let db = Db::open(options(killed.path())).unwrap();
    assert_eq!(forward(&db), ["a", "b", "x"]);
    assert_eq!(get(&db, "x").as_deref(), Some("2"));
}

/// They were flushed part by part, and freed no memory before the last of these flushes.
#[test]
fn memtables_older_than_the_cuts_are_flushed_for_all_parts_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(options(directory.path())).unwrap();
    for key in ["a", "n", "x"] {
        db.put(key.as_bytes(), &[0; 1024]).unwrap();
    }
    recut(&db, &[("", 0), ("g", 0), ("m", 0), ("t", 0)]);
    db.put(b"b", b"").unwrap();
    assert!(db.step().unwrap());
    let event = db.events(1).pop().unwrap();
    assert_eq!(event.reason.rule, "older-generation");
    // The part that holds none of it has no table, and what it held counts once.
    assert_eq!(
        event.what,
        "1 memtables into 3 tables of 4 parts, L0.0 to L0.3"
    );
    assert!((3072..8192).contains(&event.bytes_in), "{event}");
    assert_eq!(view(&db).parts[0].sealed.len(), 0);
    assert_eq!(forward(&db), ["a", "b", "n", "x"]);
}

/// Two parts became one. The one had never been flushed, so the new part had not either, but for
/// the keys of the other. What a fold had logged anew of these was recovered by the number of the
/// part, and stood above the delete that was in a table.
#[test]
fn what_was_logged_anew_is_not_recovered_for_keys_that_were_flushed_further_than_their_part() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(options(directory.path()).cuts(vec![b"m".to_vec()])).unwrap();
    // Needs the log from its begin on.
    put(&db, "a", "1");
    put(&db, "x", "old");
    fold(&db, 1);
    assert_eq!(db.stats().folds, 1);
    db.delete(b"x").unwrap();
    flush(&db, 1);
    recut(&db, &[("", 0)]);
    let check = |db: &Db| {
        assert_eq!(get(db, "x"), None);
        assert_eq!(get(db, "a").as_deref(), Some("1"));
        assert_eq!(forward(db), ["a"]);
    };
    check(&db);
    // As after a crash.
    drop(db);
    let db = Db::open(options(directory.path())).unwrap();
    assert!(db.stats().recovery.entries > 20);
    check(&db);
}

/// The same of a delete of a range: the part that is one now was never flushed, the keys were.
#[test]
fn a_range_delete_logged_anew_is_recovered_only_where_it_is_in_no_table() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(options(directory.path()).cuts(vec![b"m".to_vec()])).unwrap();
    put(&db, "a", "1");
    put(&db, "x", "old");
    db.delete_range(b"w", b"z").unwrap();
    put(&db, "y", "1");
    fold(&db, 1);
    flush(&db, 1);
    recut(&db, &[("", 0)]);
    drop(db);
    let db = Db::open(options(directory.path())).unwrap();
    let view = view(&db);
    let mut memtables = view.parts[0].memtables();
    assert!(memtables.all(|m| !m.table.has_range_deletes()));
    assert_eq!(forward(&db), ["a", "y"]);
}

/// The same of one that nobody logged anew, over both parts: replayed whole, it was in memory where
/// it was in a table, and once the part was divided again no flush of the keys above the cut was
/// lawful any more.
#[test]
fn a_range_delete_is_replayed_only_where_it_is_in_no_table() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(options(directory.path()).cuts(vec![b"m".to_vec()])).unwrap();
    for key in ["a", "c", "n", "x"] {
        put(&db, key, "old");
    }
    db.delete_range(b"b", b"y").unwrap();
    put(&db, "x", "new");
    flush(&db, 1);
    recut(&db, &[("", 0)]);
    // As after a crash.
    drop(db);
    let db = Db::open(options(directory.path())).unwrap();
    let covered = |key: &[u8]| {
        let view = view(&db);
        let mut memtables = view.parts[0].memtables();
        memtables.any(|m| m.table.cover(key, SeqNo::MAX).is_some())
    };
    assert!(covered(b"c") && covered(b"lz"));
    assert!(!covered(b"m") && !covered(b"n") && !covered(b"x"));
    recut(&db, &[("", 0), ("m", 0)]);
    put(&db, "z", "new");
    flush(&db, 1);
    flush(&db, 0);
    assert_eq!(forward(&db), ["a", "x", "z"]);
    assert_eq!(get(&db, "x").as_deref(), Some("new"));
}

/// A memtable that reaches into two parts needs its segments until both were flushed, also one that
/// a fold made, which needs only the segment that it was logged anew in.
#[test]
fn the_log_stays_until_the_last_part_that_a_memtable_reaches_into_was_flushed() {
    for folded in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(options(directory.path())).unwrap();
        for value in ["1", "2"] {
            put(&db, "a", value);
            put(&db, "x", value);
        }
        if folded {
            fold(&db, 0);
            assert_eq!(db.stats().folds, 1);
        }
        recut(&db, &[("", 0), ("m", 0)]);
        // Other segments.
        for n in 0..50 {
            db.put(format!("b{n}").as_bytes(), &[1; 2000]).unwrap();
        }
        let before = db.stats().log_bytes;
        flush(&db, 0);
        assert!(db.stats().log_bytes + 16 * KIB > before);
        let check = |db: &Db| {
            assert_eq!(get(db, "x").as_deref(), Some("2"), "folded: {folded}");
            assert_eq!(get(db, "a").as_deref(), Some("2"));
            assert_eq!(forward(db).len(), 52);
        };
        check(&db);
        drop(db);
        let db = Db::open(options(directory.path())).unwrap();
        check(&db);
        // The last one: now it goes.
        flush(&db, 1);
        assert!(db.stats().log_bytes < before / 2, "{}", db.stats());
        drop(db);
        check(&Db::open(options(directory.path())).unwrap());
    }
}

/// What a memtable of an older generation has of another part may be out of date. Folded, it would
/// have been a memtable like any other, and back in force when the parts became one.
#[test]
fn a_memtable_that_is_older_than_the_cuts_is_flushed_and_not_folded() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(options(directory.path())).unwrap();
    put(&db, "a", "1");
    put(&db, "x", "old");
    recut(&db, &[("", 0), ("m", 0)]);
    flush(&db, 1);
    db.delete(b"x").unwrap();
    flush(&db, 1);
    fold(&db, 0);
    assert_eq!((db.stats().folds, db.stats().flushes), (0, 3));
    let event = db.events(4096).into_iter().rfind(|e| e.job == "fold");
    let what = event.unwrap().what;
    assert!(
        what.ends_with("not folded: the cuts have moved since"),
        "{what}"
    );
    recut(&db, &[("", 0)]);
    for _ in 0..2 {
        put(&db, "b", "2");
        fold(&db, 0);
        assert_eq!(get(&db, "x"), None);
        assert_eq!(forward(&db), ["a", "b"]);
    }
    assert_eq!(db.stats().folds, 2);
}

/// The memtable has "x" in its list of the first part, where it is out of date.
#[test]
fn a_scan_shows_of_an_older_memtable_what_lies_in_its_part() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(options(directory.path())).unwrap();
    for key in ["a", "b", "x", "y"] {
        put(&db, key, "old");
    }
    db.delete_range(b"w", b"x0").unwrap();
    recut(&db, &[("", 0), ("m", 0)]);
    flush(&db, 1);
    db.delete(b"y").unwrap();
    put(&db, "x", "new");
    flush(&db, 1);
    db.compact_range(Some(b"m"), None).unwrap();
    let check = |db: &Db| {
        assert_eq!(forward(db), ["a", "b", "x"]);
        assert_eq!(backward(db), ["x", "b", "a"]);
        let mut iter = db.iter().unwrap();
        for (key, after, before) in [("b", "b", "b"), ("c", "x", "b"), ("m", "x", "b")] {
            iter.seek(key.as_bytes()).unwrap();
            assert_eq!(iter.key(), after.as_bytes());
            iter.seek_for_prev(key.as_bytes()).unwrap();
            assert_eq!(iter.key(), before.as_bytes());
        }
        iter.seek(b"y").unwrap();
        assert!(!iter.valid());
        iter.seek_for_prev(b"z").unwrap();
        assert_eq!((iter.key(), iter.value()), (&b"x"[..], &b"new"[..]));
    };
    check(&db);
    drop(db);
    check(&Db::open(options(directory.path())).unwrap());
}

#[test]
fn a_duplicated_part_is_folded_by_number() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(options(directory.path())).unwrap();
    recut(&db, &[("", 0), ("m", 3)]);
    for round in 0..4 {
        for n in 0..41 {
            db.put(b"x", format!("{round} {n}").as_bytes()).unwrap();
            db.put(b"y", format!("{round} {n}").as_bytes()).unwrap();
        }
        let check = |db: &Db| {
            assert_eq!(get(db, "x"), Some(format!("{round} 40")));
            assert_eq!(get(db, "y"), Some(format!("{round} 40")));
        };
        check(&db);
        fold(&db, 1);
        check(&db);
        assert_eq!(db.stats().folds, round + 1);
        // The twins that are to come have a newer one for it.
        db.put(b"x", b"newer").unwrap();
        assert_eq!(get(&db, "x").as_deref(), Some("newer"));
    }
    recut(&db, &[("", 0)]);
    assert_eq!(get(&db, "x").as_deref(), Some("newer"));
    drop(db);
    let db = Db::open(options(directory.path())).unwrap();
    assert_eq!(get(&db, "x").as_deref(), Some("newer"));
    assert_eq!(get(&db, "y").as_deref(), Some("3 40"));
}

/// The keys of the first memtable alone were counted, so that a fold was planned of which nothing
/// came.
#[test]
fn the_keys_of_all_memtables_that_take_a_parts_writes_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path()).log_bytes_max(64 * KIB);
    let db = Db::open(options).unwrap();
    recut(&db, &[("", 0), ("m", 1)]);
    let mut twins = Vec::new();
    for n in 0..2000 {
        // Few to the first memtable and many to the other.
        let turn = db.handle.engine.commit.lock().next_seq.0 % 2;
        twins.push(turn);
        let key = if turn == 1 {
            "x".into()
        } else {
            format!("y{n}")
        };
        db.put(key.as_bytes(), &[1; 40]).unwrap();
    }
    assert!(twins.contains(&0) && twins.contains(&1));
    let engine = &db.handle.engine;
    assert!(db.stats().log_bytes > 64 * KIB);
    let scene = engine.scene(&mut engine.scheduler.lock());
    let scene = scene.view(&Default::default(), &[]).memtables[&(KeyspaceId::DEFAULT, 1)];
    assert_eq!(scene.active_few, None);
}

/// A flush of a part that kept its place could end while the cuts of others moved. What had been
/// seen of it before was then put back, with the memtables that were flushed already: they
/// would have been flushed again, which the one door refuses, and writing would have ended.
#[test]
fn a_flush_that_ends_while_the_cuts_of_other_parts_move_is_not_undone() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(options(directory.path()).cuts(vec![b"m".to_vec()])).unwrap();
    put(&db, "a", "1");
    put(&db, "x", "1");
    let engine = &db.handle.engine;
    engine.seal_all(None);
    let last = view(&db).parts[0].sealed[0]
        .last_seq
        .load(Ordering::Acquire);
    let flushed = Edit::of(Change::SetFlushed {
        keyspace: KeyspaceId::DEFAULT,
        part: 0,
        flushed: SeqNo(last),
    });
    std::thread::scope(|scope| {
        let mut moving = None;
        let commit = engine.commit_edit(flushed, Vec::new(), &mut |_, parts| {
            let job = recut_job(&[("", 0), ("m", 0), ("t", 0)]);
            moving = Some(scope.spawn(move || engine.run_recut(&job).unwrap()));
            // It looks at the view, and then waits for this edit to be done.
            std::thread::sleep(Duration::from_millis(200));
            parts[0].sealed.clear();
        });
        commit.unwrap();
        moving.unwrap().join().unwrap();
    });
    assert_eq!(view(&db).parts.len(), 3);
    assert!(view(&db).parts[0].sealed.is_empty());
    assert_eq!(view(&db).parts[1].sealed.len(), 1);
}

/// A part was "1 parts", of duplicates the event had nothing, and what could not be done just now
/// was "nothing left to do".
#[test]
fn the_event_of_a_recut_says_what_was_made_or_why_it_was_not() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(options(directory.path())).unwrap();
    let last = || db.events(4096).pop().unwrap().what;
    recut(&db, &[("", 7)]);
    assert_eq!(last(), "cut into 1 part with 7 duplicates, 1 new");
    recut(&db, &[("", 1), ("m", 0)]);
    assert_eq!(last(), "cut into 2 parts with 1 duplicate, 2 new");
    run(&db, Job::Recut(recut_job(&[("", 1), ("m", 0)])));
    assert_eq!(last(), "left as it is for now: the parts are such already");
    put(&db, "a", "1");
    recut(&db, &[("", 0), ("m", 0)]);
    run(&db, Job::Recut(recut_job(&[("", 0)])));
    let why = "memtables that are older than the cuts wait for a flush";
    assert_eq!(last(), format!("left as it is for now: {why}"));
}

#[test]
fn the_lookup_index_goes_on_right_after_the_cuts_have_moved() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(options(directory.path())).unwrap();
    for round in 0..6 {
        for n in 0..100 {
            db.put(format!("{n:03}").as_bytes(), &[round; 10]).unwrap();
        }
        db.handle.engine.seal_all(None);
    }
    recut(&db, &[("", 0), ("050", 0)]);
    for part in 0..2 {
        let view = view(&db);
        let stamps = view.stamps(part);
        assert!(stamps.len() == 7 && stamps[6] > 0, "{stamps:?}");
        assert!(stamps.is_sorted_by(|a, b| a > b), "{stamps:?}");
    }
    db.put(b"070", b"new").unwrap();
    db.delete_range(b"010", b"020").unwrap();
    for n in 0..100 {
        let expected = match n {
            70 => Some(b"new".to_vec()),
            10..20 => None,
            _ => Some(vec![5; 10]),
        };
        let found = db.get(format!("{n:03}").as_bytes()).unwrap();
        assert_eq!(found.map(|v| v.to_vec()), expected, "{n}");
    }
}

/// After `count` puts of different keys: what is counted of writes, and how many keyspaces share
/// the parts.
fn counted(db: &Db, count: u64) -> (KeyspaceWrites, usize) {
    for n in 0..count {
        db.put(&n.to_be_bytes(), b"value").unwrap();
    }
    let engine = &db.handle.engine;
    let (mut writes, sharers) = engine.count_writes(&mut engine.scheduler.lock());
    (writes.remove(&KeyspaceId::DEFAULT).unwrap(), sharers)
}

#[test]
fn how_long_counters_remember_is_a_trigger() {
    for looks_kept in [1, 4, 9] {
        let directory = tempfile::tempdir().unwrap();
        let triggers = RecutTriggers {
            looks_kept,
            ..RecutTriggers::default()
        };
        let options = options(directory.path()).recut_writes(16);
        let db = Db::open(options.recut_triggers(triggers)).unwrap();
        let all = 16 * looks_kept;
        let kept = |writes: &KeyspaceWrites| writes.parts[0].writes.iter().sum::<u64>();
        let (writes, _) = counted(&db, all - 1);
        assert_eq!((kept(&writes), writes.since), (all - 1, all - 1));
        let (writes, _) = counted(&db, 1);
        assert_eq!((kept(&writes), writes.since), (all / 2, all));
    }
}

// The manifest has shares of a million writes. They came back as so many writes, of a few hundred
// that were counted: the first looks after an opening saw next to nothing of what was written
// since.
#[test]
fn what_is_recalled_of_writes_weighs_no_more_than_one_look() {
    for recut_writes in [64, 1000] {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path()).recut_writes(recut_writes);
        let db = Db::open(options.clone()).unwrap();
        recut(&db, &[("", 0), ("m", 0)]);
        for n in 0..40u32 {
            let key = [if n < 30 { b'a' } else { b'n' }, n as u8];
            db.put(&key, b"value").unwrap();
        }
        db.close().unwrap();
        let db = Db::open(options).unwrap();
        let (writes, _) = counted(&db, 0);
        let all: u64 = writes.parts.iter().flat_map(|p| &p.writes).sum();
        let look = 2 * recut_writes;
        assert!((look / 4..=look).contains(&all), "{all} of {look}");
        assert_eq!(writes.since, 0);
        // As they were shared out.
        let share = writes.parts[0].writes[0] as f64 / all as f64;
        assert!((0.7..0.8).contains(&share), "{share}");
    }
}

#[test]
fn how_many_writes_make_a_keyspace_share_the_parts_is_a_trigger() {
    for sharer_looks in [1, 5] {
        let directory = tempfile::tempdir().unwrap();
        let triggers = PartTriggers {
            sharer_looks,
            ..PartTriggers::default()
        };
        let options = options(directory.path()).recut_writes(16);
        let db = Db::open(options.part_triggers(triggers)).unwrap();
        assert_eq!(counted(&db, 0).1, 0);
        assert_eq!(counted(&db, 16 * sharer_looks - 1).1, 0);
        assert_eq!(counted(&db, 1).1, 1);
    }
}
