//! Inputs at the edge: what is lawful works, what is not gets a named error and
//! changes nothing.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::ops::Bound;

use thermocline::{
    Db, Error, ErrorKind, KEY_BYTES_MAX, KeyspaceOptions, Options, Tier, VALUE_BYTES_MAX,
    WriteBatch,
};

fn small(path: &std::path::Path) -> Options {
    Options::at(path)
        .write_buffer_bytes(256 << 10)
        .memtable_bytes(32 << 10)
        .table_bytes(16 << 10)
        .first_level_bytes(32 << 10)
        .log_segment_bytes(64 << 10)
        .background_threads(0)
        .reserve_bytes(0)
}

fn open() -> (tempfile::TempDir, Db) {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(small(directory.path())).unwrap();
    (directory, db)
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

const INVALID: Option<ErrorKind> = Some(ErrorKind::InvalidArgument);

fn all(db: &thermocline::Keyspace) -> Vec<(Vec<u8>, Vec<u8>)> {
    db.iter().unwrap().forward().map(Result::unwrap).collect()
}

#[test]
fn keys_out_of_bounds_are_refused_everywhere_and_the_longest_works() {
    let (directory, db) = open();
    let longest = vec![0xff; KEY_BYTES_MAX];
    let too_long = vec![b'k'; KEY_BYTES_MAX + 1];
    for bad in [&b""[..], &too_long] {
        assert_eq!(kind(db.put(bad, b"v")), INVALID);
        assert_eq!(kind(db.get(bad)), INVALID);
        assert_eq!(kind(db.delete(bad)), INVALID);
        assert_eq!(kind(db.multi_get(&[b"k", bad])), INVALID);
        assert_eq!(kind(db.delete_range(bad, b"z")), INVALID);
        assert_eq!(kind(db.delete_range(b"a", bad)), INVALID);
        assert_eq!(kind(db.bulk_load().unwrap().add(bad, b"v")), INVALID);
        assert_eq!(kind(db.explain(bad)), INVALID);
    }
    for key in [&longest[..], b"\0", b"\xff\xfe\xfd", &[0xff; 40]] {
        db.put(key, key).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(db.get(&longest).unwrap().as_deref(), Some(&longest[..]));
        assert_eq!(all(&db).len(), 4);
        assert_eq!(db.prefix(b"\xff\xff").unwrap().backward().count(), 2);
        assert_eq!(db.prefix(b"").unwrap().forward().count(), 4);
        let mut iter = db.iter().unwrap();
        iter.seek(&longest).unwrap();
        assert!(iter.valid());
        iter.seek(&too_long).unwrap();
        iter.seek_for_prev(b"").unwrap();
        assert!(!iter.valid());
        db.compact_range(None, None).unwrap();
    }
    drop(db);
    let db = Db::open(small(directory.path())).unwrap();
    assert_eq!(db.get(&longest).unwrap().as_deref(), Some(&longest[..]));
}

#[test]
fn the_largest_value_works_and_one_byte_more_is_refused() {
    let (directory, db) = open();
    let mut value = vec![7u8; VALUE_BYTES_MAX + 1];
    assert_eq!(kind(db.put(b"big", &value)), INVALID);
    value.pop();
    value[VALUE_BYTES_MAX - 1] = 9;
    db.put(b"big", &value).unwrap();
    db.put(b"none", b"").unwrap();
    drop(value);
    let check = |db: &Db| {
        let found = db.get(b"big").unwrap().unwrap();
        assert_eq!(found.len(), VALUE_BYTES_MAX);
        assert_eq!(&found[VALUE_BYTES_MAX - 2..], &[7, 9]);
        assert_eq!(db.get(b"none").unwrap().as_deref(), Some(&b""[..]));
    };
    check(&db);
    db.flush().unwrap();
    check(&db);
    drop(db);
    check(&Db::open(small(directory.path())).unwrap());
}

#[test]
fn ranges_that_make_no_sense_are_refused_and_empty_ones_are_empty() {
    let (_directory, db) = open();
    db.put(b"b", b"1").unwrap();
    assert_eq!(kind(db.delete_range(b"b", b"a")), INVALID);
    assert_eq!(kind(db.delete_range(b"b", b"b")), INVALID);
    let mut batch = WriteBatch::new();
    assert_eq!(kind(batch.delete_range(b"z", b"a")), INVALID);
    assert!(batch.is_empty());
    db.write(&batch).unwrap();
    assert_eq!(
        kind(db.range(Bound::Included(b"c"), Bound::Excluded(b"b"))),
        INVALID
    );
    assert_eq!(kind(db.compact_range(Some(b"c"), Some(b"b"))), INVALID);
    let empty = db
        .range(Bound::Excluded(b"b"), Bound::Excluded(b"b"))
        .map(|i| i.forward().count());
    assert!(empty.is_err() || empty.unwrap() == 0);
    assert_eq!(
        db.range(Bound::Included(b"b"), Bound::Excluded(b"b"))
            .unwrap()
            .forward()
            .count(),
        0
    );
    assert_eq!(
        db.range(Bound::Included(b"b"), Bound::Included(b"b"))
            .unwrap()
            .backward()
            .count(),
        1
    );
    db.compact_range(Some(b"x"), Some(b"y")).unwrap();
    db.compact_range(Some(b"x"), Some(b"x")).unwrap();
    db.compact_range(None, Some(b"\0")).unwrap();
    assert_eq!(db.approximate_size(b"z", b"a").ok().unwrap_or(0), 0);
    assert_eq!(all(&db).len(), 1);
}

#[test]
fn a_dropped_keyspace_is_closed_to_everyone_and_its_readers_finish() {
    let (_directory, db) = open();
    let space = db
        .create_keyspace("s", KeyspaceOptions::default().cuts(vec![b"m".to_vec()]))
        .unwrap();
    for i in 0..2000u32 {
        space.put(&i.to_be_bytes(), &[1; 40]).unwrap();
    }
    db.flush().unwrap();
    space.put(b"in memory", b"1").unwrap();
    let snapshot = db.snapshot();
    let mut iter = space.iter().unwrap();
    iter.seek_to_first().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"d", b"1").unwrap();
    batch.put_in(&space, b"k", b"1").unwrap();
    let load = space.bulk_load().unwrap();
    assert_eq!(
        kind(db.create_keyspace("s", KeyspaceOptions::default())),
        Some(ErrorKind::AlreadyExists)
    );
    db.drop_keyspace("s").unwrap();
    let closed = Some(ErrorKind::Closed);
    assert_eq!(kind(space.get(b"in memory")), closed);
    assert_eq!(kind(space.put(b"k", b"v")), closed);
    assert_eq!(kind(db.write(&batch)), closed);
    assert!(
        db.get(b"d").unwrap().is_none(),
        "a refused batch has no effect"
    );
    assert_eq!(kind(space.iter()), closed);
    assert_eq!(kind(snapshot.get_in(&space, b"k")), closed);
    assert_eq!(kind(space.compact_range(None, None)), closed);
    assert!(load.finish().is_ok_and(|n| n == 0) || kind(space.bulk_load()) == closed);
    assert_eq!(kind(db.drop_keyspace("s")), Some(ErrorKind::NotFound));
    assert_eq!(kind(db.drop_keyspace("default")), INVALID);
    let mut count = 0;
    while iter.valid() {
        count += 1;
        iter.next().unwrap();
    }
    assert_eq!(count, 2001);
    drop(iter);
    // A new one of that name is empty.
    let space = db.create_keyspace("s", KeyspaceOptions::default()).unwrap();
    assert!(all(&space).is_empty());
    for bad in ["", "a\nb", &"x".repeat(256)] {
        assert_eq!(
            kind(db.create_keyspace(bad, KeyspaceOptions::default())),
            INVALID
        );
    }
    let cuts = KeyspaceOptions::default().cuts(vec![b"b".to_vec(), b"a".to_vec()]);
    assert_eq!(kind(db.create_keyspace("cuts", cuts)), INVALID);
}

/// Keyspaces have numbers, and every store counts its own. A batch made for one
/// store and written to another went to whatever keyspace had that number
/// there; a snapshot of one store read another at a number that meant nothing.
#[test]
fn a_keyspace_of_another_store_is_refused_and_nothing_is_written() {
    let ((_one, ours), (_two, theirs)) = (open(), open());
    let options = KeyspaceOptions::default;
    let our_space = ours.create_keyspace("ours", options()).unwrap();
    let their_space = theirs.create_keyspace("theirs", options()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put_in(&our_space, b"k", b"v").unwrap();
    assert_eq!(kind(theirs.write(&batch)), INVALID);
    assert!(their_space.get(b"k").unwrap().is_none());
    assert_eq!(kind(batch.put_in(&their_space, b"k", b"v")), INVALID);
    assert_eq!(kind(batch.delete_in(&their_space, b"k")), INVALID);
    assert_eq!(
        kind(batch.delete_range_in(&their_space, b"k", b"l")),
        INVALID
    );
    assert_eq!(batch.len(), 1);
    ours.write(&batch).unwrap();
    assert!(our_space.get(b"k").unwrap().is_some());
    batch.clear();
    batch.put_in(&their_space, b"k", b"v").unwrap();
    theirs.write(&batch).unwrap();

    let snapshot = ours.snapshot();
    assert!(snapshot.get_in(&our_space, b"k").unwrap().is_some());
    assert_eq!(kind(snapshot.get_in(&their_space, b"k")), INVALID);
    let (start, end) = (Bound::Unbounded, Bound::Unbounded);
    assert_eq!(kind(snapshot.range_in(&their_space, start, end)), INVALID);
}

/// The documentation said that every call of other handles is refused once the
/// store is closed. Reads are not, and do no harm, for the directories stay
/// locked.
#[test]
fn after_close_other_handles_read_and_do_not_write() {
    let (directory, db) = open();
    db.put(b"k", b"v").unwrap();
    let other = db.clone();
    db.close().unwrap();
    assert!(other.get(b"k").unwrap().is_some());
    assert_eq!(kind(other.put(b"k", b"w")), Some(ErrorKind::Closed));
    assert_eq!(kind(other.flush()), Some(ErrorKind::Closed));
    let options = || small(directory.path());
    assert_eq!(kind(Db::open(options())), Some(ErrorKind::Locked));
    drop(other);
    let db = Db::open(options()).unwrap();
    assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// Two paths to one directory were refused as locked by somebody.
#[test]
fn two_tiers_in_one_directory_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    std::fs::create_dir(place("there")).unwrap();
    std::os::unix::fs::symlink(place("there"), place("link")).unwrap();
    for [fast, slow] in [["there", "link"], ["made", "there/../made"]] {
        let options = Options::at(place(fast)).with_tiers(vec![
            Tier::new("fast", place(fast)),
            Tier::new("slow", place(slow)),
        ]);
        let error = Db::open(options.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let words = r#"tiers "fast" and "slow" have one directory"#;
        assert!(error.to_string().contains(words), "{error}");
        assert!(!place(fast).join("CURRENT").exists());
    }
    // Nor is it the fault of whoever has the store open.
    let db = Db::open(small(&place("there"))).unwrap();
    assert_eq!(
        kind(Db::open(small(&place("link")))),
        Some(ErrorKind::Locked)
    );
    drop(db);
}

#[test]
fn a_checkpoint_needs_an_empty_place() {
    let (directory, db) = open();
    db.put(b"k", b"v").unwrap();
    let place = directory.path().join("place");
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("file"), b"").unwrap();
    assert_eq!(kind(db.checkpoint(&place)), Some(ErrorKind::AlreadyExists));
    let file = place.join("file");
    assert!(db.checkpoint(&file).is_err());
    db.checkpoint(&directory.path().join("deep/er/copy"))
        .unwrap();
    db.put(b"k", b"later").unwrap();
    let copy = Db::open(small(
        &directory
            .path()
            .join("deep/er/copy")
            .join(db.options().tier_list()[0].name()),
    ))
    .unwrap();
    assert_eq!(copy.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// The load held the commit mutex while it flushed what it overlaps, and the
/// flush took it again to trim the log: every load over data in memory hung.
/// And over several parts it gave all its runs one number, which the guard of
/// the manifest refuses.
#[test]
fn a_bulk_load_over_existing_data_and_parts_takes_effect_at_once_and_for_new_readers_only() {
    for cuts in [vec![], vec![b"k300".to_vec(), b"k600".to_vec()]] {
        let directory = tempfile::tempdir().unwrap();
        let options = small(directory.path()).cuts(cuts);
        let db = Db::open(options.clone()).unwrap();
        let key = |i: u32| format!("k{i:03}").into_bytes();
        for i in (0..1000).step_by(3) {
            db.put(&key(i), b"old").unwrap();
        }
        db.flush().unwrap();
        db.delete_range(b"k1", b"k2").unwrap();
        let snapshot = db.snapshot();
        let before = all(&db);
        let mut load = db.bulk_load().unwrap();
        for i in 0..1000 {
            load.add(&key(i), b"new").unwrap();
        }
        assert_eq!(kind(load.add(b"k5", b"out of order")), INVALID);
        assert_eq!(kind(load.add(&key(999), b"twice")), INVALID);
        assert_eq!(all(&db), before, "no effect before it is finished");
        assert_eq!(load.finish().unwrap(), 1000);
        db.persist().unwrap();
        db.put(&key(5), b"newer").unwrap();
        for _ in 0..2 {
            let now = all(&db);
            assert_eq!(now.len(), 1000);
            assert!(
                now.iter()
                    .all(|(k, v)| v == if *k == key(5) { b"newer" } else { &b"new"[..] })
            );
            let then: Vec<_> = snapshot
                .iter()
                .unwrap()
                .forward()
                .map(Result::unwrap)
                .collect();
            assert!(then == before);
            assert_eq!(snapshot.get(&key(150)).unwrap().as_deref(), None);
            db.compact_range(None, None).unwrap();
            db.settle().unwrap();
        }
        drop(snapshot);
        drop(db.bulk_load().unwrap());
        let mut void = db.bulk_load().unwrap();
        void.add(b"void", b"").unwrap();
        drop(void);
        assert_eq!(db.stats().job_errors, 0);
        drop(db);
        assert_eq!(all(&Db::open(options).unwrap()).len(), 1000);
    }
}

/// The number of a bulk load is in no log. `persist` asked the log for it, was
/// told that it was never appended, and poisoned the store; and the segment
/// begun by the next opening claimed that the one before it ended with that
/// number, so the opening after that one found the log damaged.
#[test]
fn the_log_goes_on_after_a_bulk_load() {
    let (directory, db) = open();
    let other = db
        .create_keyspace("other", KeyspaceOptions::default())
        .unwrap();
    other.put(b"in the log", b"1").unwrap();
    let mut load = db.bulk_load().unwrap();
    load.add(b"k", b"v").unwrap();
    load.finish().unwrap();
    db.persist().unwrap();
    drop((other, db));
    for i in 0..4u8 {
        let db = Db::open(small(directory.path())).unwrap();
        db.persist().unwrap();
        db.put(&[b'x', i], b"1").unwrap();
        assert_eq!(all(&db).len(), 2 + usize::from(i));
        assert_eq!(all(&db.keyspace("other").unwrap()).len(), 1);
    }
}

#[test]
fn thousands_of_range_deletes_hide_what_they_cover_and_nothing_else() {
    let (directory, db) = open();
    let key = |i: u32| format!("k{i:05}").into_bytes();
    for i in 0..6000 {
        db.put(&key(i), b"v").unwrap();
    }
    for i in (0..6000).step_by(2) {
        db.delete_range(&key(i), &key(i + 1)).unwrap();
    }
    let check = |db: &Db| {
        let found = all(db);
        assert_eq!(found.len(), 3000);
        assert!(
            found
                .iter()
                .zip((1..6000).step_by(2))
                .all(|((k, _), i)| *k == key(i))
        );
        assert!(db.get(&key(4000)).unwrap().is_none() && db.get(&key(4001)).unwrap().is_some());
    };
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.compact_range(None, None).unwrap();
    check(&db);
    drop(db);
    check(&Db::open(small(directory.path())).unwrap());
}

#[test]
fn a_hot_key_with_a_hundred_thousand_versions_keeps_the_one_that_a_snapshot_sees() {
    let (_directory, db) = open();
    let mut snapshots = Vec::new();
    for i in 0..100_000u32 {
        db.put(b"hot", &i.to_be_bytes()).unwrap();
        if i % 20_000 == 7 {
            snapshots.push((db.snapshot(), i));
        }
    }
    for _ in 0..2 {
        for (snapshot, i) in &snapshots {
            assert_eq!(
                snapshot.get(b"hot").unwrap().as_deref(),
                Some(&i.to_be_bytes()[..])
            );
        }
        assert_eq!(
            db.get(b"hot").unwrap().as_deref(),
            Some(&99_999u32.to_be_bytes()[..])
        );
        assert_eq!(all(&db).len(), 1);
        db.compact_range(None, None).unwrap();
    }
}
