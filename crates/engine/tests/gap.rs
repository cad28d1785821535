//! A log cut by something other than a crash must not leave a gap between what is
//! in tables and what was in the log alone (I9).
//!
//! Found by the prover's random damage: keyspaces, or parts, are flushed at
//! different times. Where one was, its newer entries were in tables; the older ones
//! of another were in the log. Cut back, the log looked like one that a crash had
//! torn before anything in it was durable: the store opened, with the newer entries
//! and without the older ones, and no error. The manifest now says how far the log
//! must reach.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use thermocline::{
    Db, Durability, ErrorKind, KeyspaceOptions, Options, WriteBatch, WriteOptions, repair, verify,
};

fn options(root: &Path) -> Options {
    Options::at(root)
        .background_threads(0)
        .cuts(vec![b"m".to_vec()])
}

/// The store as a killed process leaves it.
fn killed(root: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// The newest segment of the log.
fn log_segment(root: &Path) -> PathBuf {
    let names = fs::read_dir(root).unwrap().map(|e| e.unwrap().path());
    let logs = names.filter(|p| p.extension().is_some_and(|e| e == "log"));
    logs.max().unwrap()
}

/// The bytes before the first frame of a log segment.
const SEGMENT_HEADER_BYTES: u64 = 96;

/// Cuts the log's frames off, as a lost page would.
fn cut_log(root: &Path) {
    let path = log_segment(root);
    let length = fs::metadata(&path).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    assert!(length > SEGMENT_HEADER_BYTES, "{length}");
    file.set_len(SEGMENT_HEADER_BYTES).unwrap();
    file.set_len(length).unwrap();
}

/// A store with an entry in the log alone, and a newer one in a table.
fn with_newer_table(root: &Path) -> Db {
    let db = Db::open(options(root)).unwrap();
    let other = db
        .create_keyspace("other", KeyspaceOptions::default())
        .unwrap();
    db.put(b"older", b"in the log").unwrap();
    let mut load = other.bulk_load().unwrap();
    load.add(b"newer", b"in a table").unwrap();
    load.finish().unwrap();
    db
}

#[test]
fn a_log_cut_below_what_tables_hold_is_refused_and_repair_says_what_was_lost() {
    let root = tempfile::tempdir().unwrap();
    let db = with_newer_table(root.path());
    let whole = killed(root.path());
    drop(db);
    cut_log(whole.path());

    let error = Db::open(options(whole.path())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains("the end of the log is missing"));
    let report = verify(options(whole.path())).unwrap();
    assert_eq!(report.problems.len(), 1, "{report}");

    let report = repair(options(whole.path())).unwrap();
    assert!(report.log_numbers_lost.is_some(), "{report}");
    let db = Db::open(options(whole.path())).unwrap();
    assert!(db.get(b"older").unwrap().is_none());
    let other = db.keyspace("other").unwrap();
    let newer = other.get(b"newer").unwrap();
    assert_eq!(newer.as_deref(), Some(&b"in a table"[..]));
    drop((db, other));
    assert!(verify(options(whole.path())).unwrap().problems.is_empty());
}

#[test]
fn a_log_that_ends_behind_all_tables_is_a_crash_and_no_damage() {
    let root = tempfile::tempdir().unwrap();
    let db = with_newer_table(root.path());
    db.flush().unwrap();
    db.put(b"last", b"never durable").unwrap();
    let torn = killed(root.path());
    drop(db);
    cut_log(torn.path());
    let db = Db::open(options(torn.path())).unwrap();
    assert!(db.get(b"older").unwrap().is_some());
    assert!(db.get(b"last").unwrap().is_none());
}

#[test]
fn a_killed_store_with_a_whole_log_opens_as_often_as_one_likes() {
    let mut root = tempfile::tempdir().unwrap();
    drop(with_newer_table(root.path()));
    for round in 0..4u8 {
        let db = Db::open(options(root.path())).unwrap();
        db.put(&[b'a', round], b"one part").unwrap();
        db.put(&[b'z', round], b"the other").unwrap();
        let other = db.keyspace("other").unwrap();
        let mut load = other.bulk_load().unwrap();
        load.add(&[round], b"newer than both").unwrap();
        load.finish().unwrap();
        let copy = killed(root.path());
        drop(db);
        assert!(verify(options(copy.path())).unwrap().problems.is_empty());
        let db = Db::open(options(copy.path())).unwrap();
        for number in 0..=round {
            assert!(db.get(&[b'a', number]).unwrap().is_some(), "{number}");
            assert!(db.get(&[b'z', number]).unwrap().is_some(), "{number}");
        }
        drop(db);
        root = copy;
    }
}

/// Found by the prover's random damage: a session that wrote nothing leaves a segment
/// with a seal and no entries. Repair, which cut the log at its damage, took that one
/// away too. The next opening found a link of the chain missing, took all behind it
/// for torn off, and the entries that repair had said it kept were gone.
#[test]
fn what_repair_keeps_of_a_log_behind_an_empty_segment_is_there_afterwards() {
    let root = tempfile::tempdir().unwrap();
    let db = Db::open(options(root.path())).unwrap();
    let mut load = db.bulk_load().unwrap();
    load.add(b"loaded", b"past the log").unwrap();
    load.finish().unwrap();
    db.close().unwrap();
    let db = Db::open(options(root.path())).unwrap();
    for key in [b"1st", b"2nd", b"3rd"] {
        let mut batch = WriteBatch::new();
        batch.put(key, &[7; 40]).unwrap();
        let durably = WriteOptions::default().durability(Durability::Device);
        db.write_with(&batch, durably).unwrap();
    }
    let killed = killed(root.path());
    drop(db);
    let path = log_segment(killed.path());
    let mut bytes = fs::read(&path).unwrap();
    let second = bytes.windows(3).position(|w| w == b"2nd").unwrap();
    bytes[second] ^= 1;
    fs::write(&path, bytes).unwrap();

    assert!(Db::open(options(killed.path())).is_err());
    let report = repair(options(killed.path())).unwrap();
    assert_eq!(report.log_entries_kept, 1, "{report}");
    let db = Db::open(options(killed.path())).unwrap();
    assert!(db.get(b"1st").unwrap().is_some(), "{report}");
    assert!(db.get(b"2nd").unwrap().is_none());
}

/// Found by the prover's random damage: the edit that created a keyspace could not be
/// read, and nothing was in the keyspace yet. Repair said that nothing was lost.
#[test]
fn repair_says_that_an_empty_keyspace_may_be_lost_with_its_edit() {
    let root = tempfile::tempdir().unwrap();
    let db = Db::open(options(root.path())).unwrap();
    drop(
        db.create_keyspace("quite unused", KeyspaceOptions::default())
            .unwrap(),
    );
    drop(db);
    let names = fs::read_dir(root.path())
        .unwrap()
        .map(|e| e.unwrap().path());
    let is_manifest = |p: &PathBuf| p.to_string_lossy().contains("MANIFEST");
    let path = names.filter(is_manifest).max().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let name = bytes.windows(12).position(|w| w == b"quite unused");
    bytes[name.unwrap()] ^= 1;
    fs::write(&path, bytes).unwrap();

    assert!(Db::open(options(root.path())).is_err());
    let report = repair(options(root.path())).unwrap();
    assert!(
        report.lost.iter().any(|l| l.contains("empty keyspaces")),
        "{report}"
    );
    let db = Db::open(options(root.path())).unwrap();
    assert!(db.keyspace("quite unused").is_err());
}

/// Found by the prover's random damage (seed 20412): the manifest's last number, which
/// counts entries of the log too, was taken for what tables hold.
#[test]
fn a_log_that_lost_its_beginning_is_refused_whatever_the_manifest_counts() {
    let root = tempfile::tempdir().unwrap();
    let db = Db::open(Options::at(root.path()).background_threads(0)).unwrap();
    let durable = WriteOptions::default().durability(Durability::Device);
    let put = |key: &[u8]| {
        let mut batch = WriteBatch::new();
        batch.put(key, b"value").unwrap();
        db.write_with(&batch, durable).unwrap();
    };
    put(b"a");
    // Whatever is committed to the manifest now says that 1 was the last number.
    db.create_keyspace("other", KeyspaceOptions::default())
        .unwrap();
    put(b"b");
    let killed = killed(root.path());
    let path = log_segment(killed.path());
    let mut bytes = fs::read(&path).unwrap();
    let first_frame = 96..96 + 32 + 16;
    bytes[..first_frame.end].fill(0);
    fs::write(&path, bytes).unwrap();
    let error = Db::open(Options::at(killed.path())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(
        error
            .to_string()
            .contains("damage in the middle of the log")
    );
    repair(Options::at(killed.path())).unwrap();
    let db = Db::open(Options::at(killed.path())).unwrap();
    assert!(db.get(b"a").unwrap().is_none());
}

/// Found by the prover's faults (seed 30479): a seal written over what it sealed made the
/// log of a cleanly closed store look torn.
#[test]
fn a_log_cut_after_a_clean_close_is_refused_at_every_length() {
    let root = tempfile::tempdir().unwrap();
    let db = Db::open(Options::at(root.path()).background_threads(0)).unwrap();
    for key in [b"a", b"b", b"c"] {
        db.put(key, b"value").unwrap();
    }
    db.close().unwrap();
    let whole = fs::read(log_segment(root.path())).unwrap();
    // The last frame ends where the seal begins: 32 bytes and its note of 16.
    let seal = whole.len() - 48;
    for length in (0..seal).step_by(8) {
        let cut = killed(root.path());
        fs::write(log_segment(cut.path()), &whole[..length]).unwrap();
        let error = Db::open(Options::at(cut.path())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{length}: {error}");
    }
    let unsealed = killed(root.path());
    fs::write(log_segment(unsealed.path()), &whole[..seal]).unwrap();
    let db = Db::open(Options::at(unsealed.path())).unwrap();
    assert_eq!(db.get(b"c").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Found by the prover's random damage (seed 782): the next opening began a new store.
#[test]
fn a_manifest_that_was_in_force_and_that_nothing_points_to_is_no_empty_place() {
    let root = tempfile::tempdir().unwrap();
    let db = Db::open(options(root.path())).unwrap();
    db.create_keyspace("other", KeyspaceOptions::default())
        .unwrap();
    db.close().unwrap();
    for entry in fs::read_dir(root.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "CURRENT" || name == "TIER" || name.ends_with(".log") {
            fs::remove_file(path).unwrap();
        }
    }
    let error = Db::open(options(root.path())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains("run repair"), "{error}");
    repair(options(root.path())).unwrap();
    let db = Db::open(options(root.path())).unwrap();
    assert!(db.keyspace("other").is_ok());
}
