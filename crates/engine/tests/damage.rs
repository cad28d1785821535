//! Damage of every kind to every file: `verify` finds it, `repair` saves what
//! can be saved, and what the store then answers is right.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use thermocline::{
    Compression, Db, DumpOptions, ErrorKind, KeyspaceOptions, Options, Phase, Progress,
    RepairReport, Tier, VerifyReport, dump, repair, repair_with, verify, verify_with,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every value that a key ever had, and what it has now.
#[derive(Default, Clone)]
struct History {
    now: Model,
    ever: BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>,
}

impl History {
    fn put(&mut self, db: &Db, key: &str, value: String) {
        db.put(key.as_bytes(), value.as_bytes()).unwrap();
        self.set(key.as_bytes(), Some(value.into_bytes()));
    }

    fn delete(&mut self, db: &Db, key: &str) {
        db.delete(key.as_bytes()).unwrap();
        self.set(key.as_bytes(), None);
    }

    fn set(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.ever
            .entry(key.to_vec())
            .or_default()
            .push(value.clone());
        match value {
            Some(value) => self.now.insert(key.to_vec(), value),
            None => self.now.remove(key),
        };
    }
}

fn options(root: &Path) -> Options {
    Options::new()
        .tier(
            Tier::new("fast", root.join("fast"))
                .capacity_bytes(60_000)
                .block_bytes(512),
        )
        .tier(
            Tier::new("cheap", root.join("cheap"))
                .compression(Compression::Lz4)
                .block_bytes(512),
        )
        .write_buffer_bytes(256 << 10)
        .memtable_bytes(32 << 10)
        .table_bytes(16 << 10)
        .first_level_bytes(32 << 10)
        .background_threads(0)
        .log_segment_bytes(16 << 10)
}

/// A small store of two tiers with tables on three levels, a second keyspace, a
/// bulk load, deletes, range deletes, and entries that are in the log alone.
fn store(root: &Path) -> History {
    let mut history = History::default();
    let db = Db::open(options(root)).unwrap();
    for round in 0..4 {
        for i in 0..150 {
            let i = (i * 7 + round * 13) % 300;
            history.put(
                &db,
                &format!("key{i:04}"),
                format!("{round} {} {i}", "v".repeat(40)),
            );
        }
        for i in 0..10 {
            history.delete(&db, &format!("key{:04}", i * 23 + round));
        }
        if round == 1 {
            db.delete_range(b"key0100", b"key0110").unwrap();
            let gone: Vec<_> = history
                .now
                .range(b"key0100".to_vec()..b"key0110".to_vec())
                .map(|(k, _)| k.clone())
                .collect();
            for key in gone {
                history.set(&key, None);
            }
        }
        db.flush().unwrap();
        if round < 3 {
            db.settle().unwrap();
        }
    }
    let mut load = db.bulk_load().unwrap();
    for i in 0..100 {
        let (key, value) = (format!("load{i:04}"), format!("loaded {i}"));
        load.add(key.as_bytes(), value.as_bytes()).unwrap();
        history.set(key.as_bytes(), Some(value.into_bytes()));
    }
    load.finish().unwrap();
    let other = db
        .create_keyspace("other", KeyspaceOptions::default())
        .unwrap();
    for i in 0..50 {
        other.put(format!("o{i}").as_bytes(), b"theirs").unwrap();
    }
    db.flush().unwrap();
    for i in 0..40 {
        history.put(&db, &format!("key{:04}", i * 5), format!("last {i}"));
    }
    drop(other);
    db.close().unwrap();
    history
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for tier in ["fast", "cheap"] {
        for entry in fs::read_dir(root.join(tier)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                all.push(path.strip_prefix(root).unwrap().to_path_buf());
            }
        }
    }
    all.sort();
    all
}

fn contents(db: &Db) -> Model {
    let mut iter = db.iter().unwrap();
    iter.seek_to_first().unwrap();
    let mut all = Model::new();
    while iter.valid() {
        all.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.next().unwrap();
    }
    all
}

/// Requires that the repaired store answers rightly: outside of what the report
/// says is lost, as before; inside, at worst with an earlier state of the key.
fn check_answers(root: &Path, history: &History, report: &RepairReport, context: &str) {
    let db = Db::open(options(root)).unwrap_or_else(|e| panic!("{context}: {e}\n{report}"));
    let found = contents(&db);
    for (key, value) in &found {
        assert_eq!(
            db.get(key).unwrap().as_deref(),
            Some(&value[..]),
            "{context}: get and scan differ"
        );
    }
    let everything = report.log_numbers_lost.is_some()
        || report.lost.iter().any(|l| l.contains("meta of a table"));
    for (key, states) in &history.ever {
        let before = history.now.get(key);
        let after = found.get(key);
        if before == after {
            continue;
        }
        let excused = everything
            || report
                .key_ranges_lost
                .iter()
                .any(|r| r.first_key <= *key && *key <= r.last_key);
        let words = key.escape_ascii();
        assert!(
            excused,
            "{context}: {words} changed outside of what was reported lost\n{report}"
        );
        let earlier = after.is_none() || states.iter().any(|s| s.as_ref() == after);
        assert!(
            earlier,
            "{context}: {words} has a value that was never written\n{report}"
        );
    }
    for key in found.keys() {
        assert!(
            history.ever.contains_key(key) || key.starts_with(b"o"),
            "{context}: a key from nowhere"
        );
    }
    // It goes on as a store, a second crash included.
    db.put(b"after", b"repair").unwrap();
    // What a killed process leaves behind.
    let killed = tempfile::tempdir().unwrap();
    for tier in ["fast", "cheap"] {
        copy(&root.join(tier), &killed.path().join(tier));
    }
    let left = verify(options(killed.path())).unwrap();
    assert!(
        left.problems.is_empty(),
        "{context}: killed: {left}\n{report}"
    );
    let survivor = Db::open(options(killed.path())).unwrap();
    assert_eq!(
        survivor.get(b"after").unwrap().as_deref(),
        Some(&b"repair"[..]),
        "{context}"
    );
    drop(survivor);
    drop(db);
    let db =
        Db::open(options(root)).unwrap_or_else(|e| panic!("{context}: reopened: {e}\n{report}"));
    assert_eq!(db.get(b"after").unwrap().as_deref(), Some(&b"repair"[..]));
    db.flush().unwrap();
    db.settle().unwrap();
    db.close().unwrap();
    let sound = verify(options(root)).unwrap();
    assert!(
        sound.problems.is_empty(),
        "{context}: after more work: {sound}"
    );
}

fn repair_and_check(root: &Path, history: &History, context: &str) -> RepairReport {
    let report = repair(options(root)).unwrap_or_else(|e| panic!("{context}: {e}"));
    let sound = verify(options(root)).unwrap();
    assert!(sound.problems.is_empty(), "{context}: {sound}\n{report}");
    let again = repair(options(root)).unwrap();
    assert!(again.was_sound, "{context}: {again}");
    check_answers(root, history, &report, context);
    report
}

#[test]
fn a_sound_store_is_verified_and_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let history = store(root.path());
    let before: Vec<_> = files(root.path())
        .iter()
        .map(|f| fs::read(root.path().join(f)).unwrap())
        .collect();
    let report = verify(options(root.path())).unwrap();
    assert!(report.problems.is_empty(), "{report}");
    assert!(report.tables >= 4 && report.log_entries >= 40, "{report}");
    assert!(repair(options(root.path())).unwrap().was_sound);
    let after: Vec<_> = files(root.path())
        .iter()
        .map(|f| fs::read(root.path().join(f)).unwrap())
        .collect();
    assert_eq!(before, after);
    let db = Db::open(options(root.path())).unwrap();
    assert_eq!(
        verify(options(root.path())).unwrap_err().kind(),
        ErrorKind::Locked
    );
    assert_eq!(
        repair(options(root.path())).unwrap_err().kind(),
        ErrorKind::Locked
    );
    assert_eq!(contents(&db), history.now);
}

/// Flips a byte in `files`, every `step` bytes, and gives every damaged copy
/// that verify reports to `check`.
fn flip(kind: &str, step: usize, mut check: impl FnMut(&Path, &History, &str)) {
    let root = tempfile::tempdir().unwrap();
    let history = store(root.path());
    let damaged = tempfile::tempdir().unwrap();
    let (mut flips, mut unseen) = (0, Vec::new());
    for file in files(root.path()) {
        let name = file.file_name().unwrap().to_str().unwrap().to_string();
        if !name.contains(kind) || name == "LOCK" || name == "thermocline.toml" {
            continue;
        }
        let size = fs::metadata(root.path().join(&file)).unwrap().len() as usize;
        for at in (0..size).step_by(step) {
            let copy_root = damaged.path().join(format!("{flips}"));
            copy(root.path(), &copy_root);
            let path = copy_root.join(&file);
            let mut bytes = fs::read(&path).unwrap();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, &bytes).unwrap();
            flips += 1;
            let context = format!("{} at {at} of {size}", file.display());
            let report = verify(options(&copy_root)).unwrap_or_else(|e| panic!("{context}: {e}"));
            let mut text = Vec::new();
            let dumped = dump(&path, &mut text, &DumpOptions { entries: true });
            if let Err(error) = dumped {
                assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::Corruption | ErrorKind::InvalidArgument | ErrorKind::Unsupported
                    ),
                    "{error}"
                );
            }
            if report.problems.is_empty() {
                let torn = report.log_torn_bytes + report.manifest_torn_bytes > 0;
                assert!(torn, "{context}: not noticed");
                unseen.push(at);
            } else {
                check(&copy_root, &history, &context);
            }
            fs::remove_dir_all(&copy_root).unwrap();
        }
    }
    assert!(flips > 0);
    // The seal of the log and the last mark of the manifest may be lost in a
    // crash, and nothing with them.
    assert!(unseen.len() * step <= 64, "{unseen:?}");
}

#[test]
fn a_flip_in_table_data_loses_one_block() {
    flip(".data", 397, |root, history, context| {
        let report = repair_and_check(root, history, context);
        assert!(report.key_ranges_lost.len() <= 1, "{context}: {report}");
    });
}

#[test]
fn a_flip_in_table_meta_loses_nothing_that_the_blocks_say() {
    let mut whole = 0;
    flip(".meta", 149, |root, history, context| {
        let report = repair_and_check(root, history, context);
        whole += usize::from(report.lost.is_empty());
    });
    assert!(whole > 0);
}

#[test]
fn a_flip_in_the_manifest_loses_nothing() {
    flip("MANIFEST", 31, |root, history, context| {
        let report = repair(options(root)).unwrap_or_else(|e| panic!("{context}: {e}"));
        // A table that the damaged edit removed cannot be told from a lost one.
        let told = report
            .tables_lost
            .iter()
            .all(|t| t.why.contains("an edit that cannot be read"));
        assert!(
            told && report.log_numbers_lost.is_none(),
            "{context}: {report}"
        );
        assert!(
            repair(options(root)).unwrap().was_sound,
            "{context}: {report}"
        );
        let db = Db::open(options(root)).unwrap();
        let mut found = contents(&db);
        found.retain(|key, _| !key.starts_with(b"o"));
        assert_eq!(found, history.now, "{context}: {report}");
    });
}

#[test]
fn a_flip_in_pointer_or_identity_loses_nothing() {
    for kind in ["CURRENT", "TIER"] {
        flip(kind, 3, |root, history, context| {
            let report = repair_and_check(root, history, context);
            assert!(report.lost.is_empty(), "{context}: {report}");
        });
    }
}

#[test]
fn a_flip_in_the_log_keeps_what_comes_before() {
    flip(".log", 101, |root, history, context| {
        let report = repair_and_check(root, history, context);
        assert!(report.log_numbers_lost.is_some(), "{context}: {report}");
    });
}

#[test]
fn without_any_manifest_a_store_is_put_together_from_its_tables() {
    let root = tempfile::tempdir().unwrap();
    let history = store(root.path());
    for file in files(root.path()) {
        let name = file.to_string_lossy().into_owned();
        if name.contains("MANIFEST") || name.ends_with("CURRENT") || name.ends_with("TIER") {
            fs::remove_file(root.path().join(&file)).unwrap();
        }
    }
    assert_eq!(
        Db::open(options(root.path())).unwrap_err().kind(),
        ErrorKind::Corruption
    );
    assert!(!verify(options(root.path())).unwrap().problems.is_empty());
    let report = repair_and_check(root.path(), &history, "no manifest");
    assert!(report.tables_lost.is_empty(), "{report}");
    assert!(report.key_ranges_lost.is_empty(), "{report}");
    let told = report.lost.iter().any(|l| l.contains("default keyspace"));
    assert!(told, "{report}");
}

#[test]
fn a_missing_object_is_found_and_reported() {
    let root = tempfile::tempdir().unwrap();
    let history = store(root.path());
    let data = files(root.path())
        .into_iter()
        .find(|f| f.extension().is_some_and(|e| e == "data"))
        .unwrap();
    fs::remove_file(root.path().join(&data)).unwrap();
    assert!(!verify(options(root.path())).unwrap().problems.is_empty());
    let report = repair_and_check(root.path(), &history, "missing object");
    assert_eq!(report.tables_lost.len(), 1, "{report}");
}

/// Every file of the store with its content, and when it was last changed.
fn snapshot(root: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let read = |f: PathBuf| {
        let path = root.join(&f);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        (f, fs::read(path).unwrap(), modified)
    };
    files(root).into_iter().map(read).collect()
}

/// Flips a bit in the middle of a file.
fn break_file(path: &Path) -> u64 {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x10;
    fs::write(path, &bytes).unwrap();
    at as u64
}

/// Verifies and requires that nothing is changed.
fn verify_unchanged(root: &Path) -> VerifyReport {
    let before = snapshot(root);
    let report = verify(options(root)).unwrap();
    assert_eq!(before, snapshot(root), "verify changed the store");
    report
}

/// Used to stop at the first thing it could not read: behind a damaged manifest
/// no table and no log segment was looked at.
#[test]
fn behind_an_unreadable_manifest_every_file_is_still_read() {
    let whole = tempfile::tempdir().unwrap();
    store(whole.path());
    let sound = verify_unchanged(whole.path());
    assert!(sound.not_checked.is_empty(), "{sound}");
    let manifest = files(whole.path())
        .into_iter()
        .find(|f| f.to_string_lossy().contains("MANIFEST"))
        .unwrap();
    let current = PathBuf::from("fast/CURRENT");
    type Break = fn(&Path);
    let ways: [(&Path, Break); 5] = [
        (&manifest, |path| _ = break_file(path)),
        (&manifest, |path| fs::write(path, b"").unwrap()),
        (&manifest, |path| fs::remove_file(path).unwrap()),
        (&current, |path| fs::write(path, b"nonsense").unwrap()),
        (&current, |path| fs::remove_file(path).unwrap()),
    ];
    for (way, (file, damage)) in ways.into_iter().enumerate() {
        let root = tempfile::tempdir().unwrap();
        copy(whole.path(), root.path());
        damage(&root.path().join(file));
        let report = verify_unchanged(root.path());
        let named = |report: &VerifyReport, file: &Path| {
            let path = root.path().join(file);
            report.problems.iter().any(|p| p.path == path)
        };
        assert!(named(&report, file), "way {way}: {report}");
        assert_eq!(report.problems.len(), 1, "way {way}: {report}");
        assert!(!report.not_checked.is_empty(), "way {way}: {report}");
        assert_eq!(report.tables, sound.tables, "way {way}: {report}");
        assert_eq!(report.entries, sound.entries, "way {way}: {report}");
        assert_eq!(report.bytes, sound.bytes, "way {way}: {report}");
        assert!(report.log_entries >= 40, "way {way}: {report}");
        // And now one more thing is wrong in every kind of file.
        let mut broken = Vec::new();
        for extension in ["data", "meta", "log"] {
            let with = |f: &&PathBuf| f.extension().is_some_and(|e| e == extension);
            let all = files(root.path());
            let file = all.iter().rfind(with).unwrap();
            let size = fs::metadata(root.path().join(file)).unwrap().len();
            let at = break_file(&root.path().join(file));
            broken.push((file.clone(), at, size));
        }
        let slow = root.path().join("cheap/TIER");
        fs::remove_file(&slow).unwrap();
        let report = verify_unchanged(root.path());
        for (file, at, size) in &broken {
            assert!(
                named(&report, file),
                "way {way}: {}: {report}",
                file.display()
            );
            let path = root.path().join(file);
            for problem in report.problems.iter().filter(|p| p.path == path) {
                let offset = problem.offset.unwrap_or_else(|| panic!("{problem}"));
                assert!(offset <= *at && offset < *size, "way {way}: {problem}");
            }
        }
        assert!(named(&report, Path::new("cheap")), "way {way}: {report}");
        assert_eq!(report.tables, sound.tables - 1, "way {way}: {report}");
    }
}

#[test]
fn a_missing_tier_or_unreadable_table_keeps_nothing_else_from_being_read() {
    let whole = tempfile::tempdir().unwrap();
    store(whole.path());
    let sound = verify_unchanged(whole.path());
    // A tier is away: the other one is read.
    for (away, other) in [("cheap", "fast"), ("fast", "cheap")] {
        let root = tempfile::tempdir().unwrap();
        copy(&whole.path().join(other), &root.path().join(other));
        let report = verify(options(root.path())).unwrap();
        let gone = root.path().join(away);
        let told = report.problems.iter().find(|p| p.path == gone).unwrap();
        assert!(told.expected.is_some() && told.found.is_some(), "{told:?}");
        assert!(
            report.not_checked.iter().any(|n| n.contains(away)),
            "{report}"
        );
        let damaged = fs::read_dir(root.path().join(other)).unwrap();
        let object = damaged
            .map(|e| e.unwrap().path())
            .find(|p| p.extension().is_some_and(|e| e == "data" || e == "log"))
            .unwrap();
        break_file(&object);
        let report = verify(options(root.path())).unwrap();
        assert!(report.problems.iter().any(|p| p.path == object), "{report}");
        assert!(!gone.exists());
    }
    // A table cannot be opened: its data is read all the same.
    let root = tempfile::tempdir().unwrap();
    copy(whole.path(), root.path());
    let of_table = |extension: &str, from: &Path| {
        let mut all = files(from);
        all.retain(|f| f.extension().is_some_and(|e| e == extension));
        all
    };
    for meta in of_table("meta", root.path()) {
        break_file(&root.path().join(meta));
    }
    for data in of_table("data", root.path()) {
        break_file(&root.path().join(data));
    }
    let report = verify_unchanged(root.path());
    for file in [of_table("meta", root.path()), of_table("data", root.path())].concat() {
        let path = root.path().join(&file);
        let about = report.problems.iter().find(|p| p.path == path);
        let problem = about.unwrap_or_else(|| panic!("{}: {report}", file.display()));
        assert!(problem.offset.is_some(), "{problem}");
    }
    assert_eq!(report.log_entries, sound.log_entries);
}

#[test]
fn every_damaged_log_segment_is_named_and_not_the_first_alone() {
    let root = tempfile::tempdir().unwrap();
    let small = || options(root.path()).log_segment_bytes(16 << 10);
    let db = Db::open(small()).unwrap();
    for i in 0..1000u32 {
        db.put(&i.to_be_bytes(), &[7; 100]).unwrap();
    }
    db.close().unwrap();
    let mut segments = files(root.path());
    segments.retain(|f| f.extension().is_some_and(|e| e == "log"));
    assert!(segments.len() >= 4, "{segments:?}");
    for segment in [&segments[0], &segments[2]] {
        break_file(&root.path().join(segment));
    }
    let report = verify(small()).unwrap();
    let paths: Vec<_> = report.problems.iter().map(|p| p.path.clone()).collect();
    for (index, segment) in segments.iter().enumerate() {
        let named = paths.contains(&root.path().join(segment));
        assert_eq!(named, index == 0 || index == 2, "{report}");
    }
    for problem in &report.problems {
        assert!(problem.offset.is_some(), "{problem}");
        assert!(
            problem.expected.is_some() && problem.found.is_some(),
            "{problem}"
        );
    }
}

/// Where the frames of a manifest end, the last mark left out.
fn frame_ends(bytes: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while at + 16 <= bytes.len() {
        let word = |i: usize| u32::from_le_bytes(bytes[at + i..at + i + 4].try_into().unwrap());
        let end = (at + 16 + word(8) as usize).next_multiple_of(8);
        if word(12) != 0x7468_6d02 {
            ends.push(end);
        }
        at = end;
    }
    ends
}

/// Cut off at the end of an edit, a manifest used to read as an earlier one: a
/// bulk load, which is in no log, was gone, and its tables were deleted.
#[test]
fn a_manifest_that_lost_its_last_edits_after_a_clean_close_is_refused() {
    let whole = tempfile::tempdir().unwrap();
    let history = store(whole.path());
    // Sessions that write to no log: one that does nothing, one that loads.
    Db::open(options(whole.path())).unwrap().close().unwrap();
    let db = Db::open(options(whole.path())).unwrap();
    let mut load = db.bulk_load().unwrap();
    load.add(b"x", b"loaded").unwrap();
    load.finish().unwrap();
    db.close().unwrap();
    assert!(verify(options(whole.path())).unwrap().problems.is_empty());
    let manifest = files(whole.path())
        .into_iter()
        .find(|f| f.to_string_lossy().contains("MANIFEST"))
        .unwrap();
    let bytes = fs::read(whole.path().join(&manifest)).unwrap();
    let ends = frame_ends(&bytes);
    assert!(ends.len() >= 4, "{ends:?}");
    for (index, &end) in ends.iter().enumerate() {
        let root = tempfile::tempdir().unwrap();
        copy(whole.path(), root.path());
        let path = root.path().join(&manifest);
        fs::write(&path, &bytes[..end]).unwrap();
        if index + 1 == ends.len() {
            // The mark alone is gone.
            Db::open(options(root.path())).unwrap();
            continue;
        }
        let before = snapshot(root.path());
        let error = Db::open(options(root.path())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert_eq!(
            before,
            snapshot(root.path()),
            "a refused opening changes nothing"
        );
        let report = verify_unchanged(root.path());
        assert!(report.problems.iter().any(|p| p.path == path), "{report}");
        let report = repair(options(root.path())).unwrap();
        let db = Db::open(options(root.path())).unwrap_or_else(|e| panic!("{end}: {e}\n{report}"));
        assert_eq!(
            db.get(b"x").unwrap().as_deref(),
            Some(&b"loaded"[..]),
            "{report}"
        );
        for (key, value) in &history.now {
            assert_eq!(
                db.get(key).unwrap().as_ref().map(|v| v.to_vec()),
                Some(value.clone())
            );
        }
    }
}

#[test]
fn a_store_that_was_not_closed_is_not_taken_for_a_damaged_one() {
    let root = tempfile::tempdir().unwrap();
    store(root.path());
    for round in 0..3u8 {
        let db = Db::open(options(root.path())).unwrap();
        let mut load = db.bulk_load().unwrap();
        load.add(&[b'x', round], b"loaded").unwrap();
        load.finish().unwrap();
        let killed = tempfile::tempdir().unwrap();
        copy(root.path(), killed.path());
        let report = verify(options(killed.path())).unwrap();
        assert!(report.problems.is_empty(), "{report}");
        let survivor = Db::open(options(killed.path())).unwrap();
        assert!(survivor.get(&[b'x', round]).unwrap().is_some());
    }
}

#[test]
fn progress_rises_to_all_bytes_and_repair_goes_through_its_phases() {
    let root = tempfile::tempdir().unwrap();
    store(root.path());
    let record = |seen: &mut Vec<Progress>, now: Progress| {
        if let Some(last) = seen.last().filter(|last| last.phase == now.phase) {
            assert!(now.done_bytes >= last.done_bytes && now.total_bytes >= last.total_bytes);
        }
        assert!(now.done_bytes <= now.total_bytes);
        seen.push(now);
    };
    let mut seen = Vec::new();
    let report = verify_with(options(root.path()), &mut |now| record(&mut seen, now)).unwrap();
    let last = seen.last().unwrap();
    assert!(last.total_bytes >= report.bytes && last.done_bytes == last.total_bytes);
    assert!(seen.len() as u64 > report.tables, "{}", seen.len());
    // It was counted and not made up at the end.
    let before_end = seen[seen.len() - 2];
    assert!(
        before_end.done_bytes * 10 >= last.total_bytes * 9,
        "{before_end:?} of {last:?}"
    );
    let data = files(root.path())
        .into_iter()
        .find(|f| f.extension().is_some_and(|e| e == "data"))
        .unwrap();
    break_file(&root.path().join(data));
    let mut seen = Vec::new();
    repair_with(options(root.path()), &mut |now| record(&mut seen, now)).unwrap();
    let mut phases: Vec<Phase> = seen.iter().map(|p| p.phase).collect();
    phases.dedup();
    assert_eq!(phases, [Phase::Check, Phase::Save, Phase::CheckAgain]);
    for phase in phases {
        let last = seen.iter().rfind(|p| p.phase == phase).unwrap();
        assert_eq!(last.done_bytes, last.total_bytes, "{phase:?}");
    }
}

#[test]
fn tiers_of_other_stores_are_not_repaired_into_this_one() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    store(root.path());
    store(other.path());
    fs::remove_dir_all(root.path().join("cheap")).unwrap();
    assert_eq!(
        repair(options(root.path())).unwrap_err().kind(),
        ErrorKind::WrongTier
    );
    copy(&other.path().join("cheap"), &root.path().join("cheap"));
    assert!(!verify(options(root.path())).unwrap().problems.is_empty());
    assert_eq!(
        repair(options(root.path())).unwrap_err().kind(),
        ErrorKind::WrongTier
    );
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let root = tempfile::tempdir().unwrap();
    for options in [
        Options::at(root.path()),
        Options::at(root.path().join("absent")),
    ] {
        assert_eq!(
            verify(options.clone()).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert_eq!(repair(options).unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn every_file_is_dumped_by_name_and_by_content() {
    let root = tempfile::tempdir().unwrap();
    store(root.path());
    for file in files(root.path()) {
        let name = file.file_name().unwrap().to_str().unwrap();
        if name == "LOCK" || name == "thermocline.toml" {
            continue;
        }
        let path = root.path().join(&file);
        let mut text = Vec::new();
        dump(&path, &mut text, &DumpOptions { entries: true })
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        if name == "CURRENT" {
            continue;
        }
        let renamed = root.path().join("renamed");
        fs::copy(&path, &renamed).unwrap();
        let mut again = Vec::new();
        dump(&renamed, &mut again, &DumpOptions { entries: true })
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(text, again, "{name}");
    }
}

#[test]
fn garbage_of_any_name_is_dumped_without_a_panic() {
    let root = tempfile::tempdir().unwrap();
    let mut state = 0x5eed_u64;
    for round in 0..300 {
        let length = round * 3 % 700;
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        for name in [
            "CURRENT",
            "TIER",
            "000001.log",
            "000001.meta",
            "000001.data",
            "MANIFEST-000001",
            "x",
        ] {
            let path = root.path().join(name);
            fs::write(&path, &bytes).unwrap();
            let _ = dump(&path, &mut Vec::new(), &DumpOptions { entries: true });
        }
    }
}
