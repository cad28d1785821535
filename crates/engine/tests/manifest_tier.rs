//! The manifest on a tier of its own: where it lies, how it moves, and what is said where its tier
//! is not what it should be.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use thermocline::{Db, ErrorKind, Options, Tier, repair, verify};

const TIERS: [&str; 3] = ["ssd", "hdd", "tape"];

fn options(path: &Path, tiers: usize) -> Options {
    let tier = |name: &&str| Tier::new(name, path.join(name));
    Options::new()
        .with_tiers(TIERS[..tiers].iter().map(tier).collect())
        .background_threads(0)
}

fn manifests(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).unwrap().map(|f| f.unwrap().path());
    let is_manifest = |p: &PathBuf| p.to_string_lossy().contains("MANIFEST-");
    files.filter(is_manifest).collect()
}

/// Manifests on each of the tiers.
fn lie(path: &Path, tiers: usize) -> Vec<usize> {
    let count = |name: &&str| manifests(&path.join(name)).len();
    TIERS[..tiers].iter().map(count).collect()
}

fn pointer(path: &Path) -> String {
    fs::read_to_string(path.join("ssd/CURRENT")).unwrap()
}

/// Writes, flushes and closes, so that the manifest has edits.
fn fill(options: &Options, key: &[u8]) {
    let db = Db::open(options.clone()).unwrap();
    db.put(key, b"in a table").unwrap();
    db.flush().unwrap();
    db.put(b"last", key).unwrap();
    db.close().unwrap();
}

fn sound(options: &Options) {
    let report = verify(options.clone()).unwrap();
    assert!(
        report.problems.is_empty() && report.manifest_bytes > 0 && report.orphans.is_empty(),
        "{report}"
    );
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap().flatten() {
        if file.file_name() != "LOCK" {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

fn swap(one: &Path, other: &Path) {
    let aside = one.with_file_name("aside");
    fs::rename(one, &aside).unwrap();
    fs::rename(other, one).unwrap();
    fs::rename(&aside, other).unwrap();
}

/// Opening, for writing and for reading, and verifying say the same; nothing is changed.
fn refused(options: &Options, kind: ErrorKind, words: &str) {
    for options in [options.clone(), options.clone().read_only(true)] {
        let error = Db::open(options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let report = verify(options.clone()).unwrap();
    assert!(!report.problems.is_empty(), "{report}");
}

#[test]
fn the_manifest_lies_on_the_tier_named_for_it_and_every_job_writes_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let named = options(path, 2).manifest_tier("hdd");
    let db = Db::open(named.clone()).unwrap();
    assert_eq!(lie(path, 2), [0, 1]);
    let size = || {
        fs::metadata(&manifests(&path.join("hdd"))[0])
            .unwrap()
            .len()
    };
    let before = (size(), pointer(path));
    db.put(b"key", b"value").unwrap();
    db.flush().unwrap();
    assert!(size() > before.0);
    assert_eq!(pointer(path), before.1);
    assert!(db.stats().manifest_bytes > 0);
    drop(db);
    let kept = Options::from_file(&path.join("ssd").join(thermocline::OPTIONS_FILE)).unwrap();
    assert_eq!(kept, named);
    for options in [named.clone().read_only(true), named.clone()] {
        let db = Db::open(options).unwrap();
        assert!(db.get(b"key").unwrap().is_some());
        assert!(db.stats().manifest_bytes > 0);
    }
    sound(&named);
}

#[test]
fn a_manifest_that_is_rewritten_while_the_store_is_open_stays_on_its_tier() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let db = Db::open(options(path, 2).manifest_tier("hdd")).unwrap();
    let first = manifests(&path.join("hdd"));
    let name = |n: u32| format!("keyspace-{n}-{}", "x".repeat(100));
    for n in 0..200 {
        db.create_keyspace(&name(n), Default::default()).unwrap();
        db.drop_keyspace(&name(n)).unwrap();
    }
    assert_eq!(lie(path, 2), [0, 1]);
    assert_ne!(manifests(&path.join("hdd")), first);
}

#[test]
fn without_the_option_the_pointer_names_no_tier() {
    let directory = tempfile::tempdir().unwrap();
    fill(&options(directory.path(), 2), b"key");
    assert_eq!(lie(directory.path(), 2), [1, 0]);
    let words = pointer(directory.path());
    assert_eq!(words.split(' ').count(), 2, "{words}");
}

#[test]
fn an_opening_with_another_tier_moves_the_manifest_and_one_for_reading_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let at = |tier: &str| options(path, 3).manifest_tier(tier);
    fill(&options(path, 3), b"ssd");
    for (tier, lies) in [
        ("hdd", [0, 1, 0]),
        ("tape", [0, 0, 1]),
        ("ssd", [1, 0, 0]),
        ("tape", [0, 0, 1]),
        ("hdd", [0, 1, 0]),
    ] {
        let before = lie(path, 3);
        let db = Db::open(at(tier).read_only(true)).unwrap();
        assert!(db.get(b"ssd").unwrap().is_some());
        assert!(db.stats().manifest_bytes > 0);
        assert_eq!(lie(path, 3), before);
        // Where it lies and not where it is to go.
        sound(&at(tier));
        fill(&at(tier), tier.as_bytes());
        assert_eq!(lie(path, 3), lies);
        sound(&at(tier));
    }
    let db = Db::open(options(path, 3)).unwrap();
    for tier in TIERS {
        assert!(db.get(tier.as_bytes()).unwrap().is_some());
    }
    assert_eq!(lie(path, 3), [1, 0, 0]);
}

#[test]
fn a_tier_may_be_added_and_take_the_manifest_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fill(&options(path, 1), b"key");
    let options = options(path, 2).manifest_tier("hdd");
    fill(&options, b"other");
    assert_eq!(lie(path, 2), [0, 1]);
    assert!(Db::open(options).unwrap().get(b"key").unwrap().is_some());
}

#[test]
fn manifests_that_nothing_names_are_swept_from_every_tier() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let options = options(path, 3).manifest_tier("hdd");
    fill(&options, b"key");
    let manifest = &manifests(&path.join("hdd"))[0];
    for tier in TIERS {
        fs::copy(manifest, path.join(tier).join("MANIFEST-000003")).unwrap();
    }
    // The same number, on a tier that the pointer does not name.
    fs::copy(
        manifest,
        path.join("tape").join(manifest.file_name().unwrap()),
    )
    .unwrap();
    assert_eq!(verify(options.clone()).unwrap().orphans.len(), 4);
    assert!(Db::open(options).unwrap().get(b"key").unwrap().is_some());
    assert_eq!(lie(path, 3), [0, 1, 0]);
}

#[test]
fn a_tier_that_there_is_not_is_refused_by_name_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let error = Db::open(options(directory.path(), 2).manifest_tier("disk")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error
            .to_string()
            .contains("option manifest_tier: expected ssd or hdd, found disk"),
        "{error}"
    );
    assert!(!directory.path().join("ssd").exists());
}

#[test]
fn the_tier_with_the_manifest_cannot_be_left_out_of_the_options() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fill(&options(path, 2).manifest_tier("hdd"), b"key");
    let without = options(path, 1);
    refused(
        &without,
        ErrorKind::WrongTier,
        "tier 1, which has the manifest, is missing from the options",
    );
    assert_eq!(repair(without).unwrap_err().kind(), ErrorKind::WrongTier);
    let db = Db::open(options(path, 2)).unwrap();
    assert!(db.get(b"key").unwrap().is_some());
}

#[test]
fn a_missing_tier_with_the_manifest_is_named_and_the_store_never_looks_new() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let options = options(path, 2).manifest_tier("hdd");
    fill(&options, b"key");
    let (hdd, away) = (path.join("hdd"), path.join("away"));
    fs::rename(&hdd, &away).unwrap();
    for empty in [false, true] {
        if empty {
            // A device that is not mounted.
            fs::create_dir(&hdd).unwrap();
        }
        for options in [options.clone(), options.clone().manifest_tier("ssd")] {
            refused(&options, ErrorKind::WrongTier, "\"hdd\"");
            assert_eq!(repair(options).unwrap_err().kind(), ErrorKind::WrongTier);
        }
    }
    fs::remove_dir_all(&hdd).unwrap();
    fs::rename(&away, &hdd).unwrap();
    assert!(Db::open(options).unwrap().get(b"key").unwrap().is_some());
}

#[test]
fn the_first_tier_missing_is_named_where_another_has_the_manifest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let options = options(path, 2).manifest_tier("hdd");
    fill(&options, b"key");
    let (ssd, away) = (path.join("ssd"), path.join("away"));
    fs::rename(&ssd, &away).unwrap();
    for empty in [false, true] {
        if empty {
            fs::create_dir(&ssd).unwrap();
        }
        let error = Db::open(options.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongTier, "{error}");
    }
    fs::remove_dir_all(&ssd).unwrap();
    fs::rename(&away, &ssd).unwrap();
    assert!(Db::open(options).unwrap().get(b"key").unwrap().is_some());
}

#[test]
fn a_swapped_foreign_or_stale_tier_with_the_manifest_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let of = |store: &str| options(&path.join(store), 3).manifest_tier("hdd");
    for store in ["a", "b"] {
        fill(&of(store), b"key");
    }
    let (hdd, tape) = (path.join("a/hdd"), path.join("a/tape"));
    swap(&hdd, &tape);
    refused(&of("a"), ErrorKind::WrongTier, "tiers are swapped");
    assert_eq!(repair(of("a")).unwrap_err().kind(), ErrorKind::WrongTier);
    swap(&hdd, &tape);

    let foreign = path.join("b/hdd");
    swap(&hdd, &foreign);
    let words = "tier \"hdd\", which has the manifest, belongs to another store";
    refused(&of("a"), ErrorKind::WrongTier, words);
    assert_eq!(repair(of("a")).unwrap_err().kind(), ErrorKind::WrongTier);
    swap(&hdd, &foreign);

    let earlier = path.join("earlier");
    copy(&hdd, &earlier);
    fill(&of("a"), b"other");
    swap(&hdd, &earlier);
    let words = "tier \"hdd\", which has the manifest, is stale";
    refused(&of("a"), ErrorKind::WrongTier, words);
    swap(&hdd, &earlier);
    let db = Db::open(of("a")).unwrap();
    assert!(db.get(b"other").unwrap().is_some());
}

#[test]
fn a_stale_first_tier_is_named_whether_or_not_its_manifest_is_still_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (ssd, earlier) = (path.join("ssd"), path.join("earlier"));
    let named = options(path, 2).manifest_tier("hdd");
    // With the pointer to a manifest on the second tier, and with one to its own.
    for before in [named.clone(), options(path, 2)] {
        fill(&before, b"key");
        let _ = fs::remove_dir_all(&earlier);
        copy(&ssd, &earlier);
        fill(&named, b"other");
        swap(&ssd, &earlier);
        refused(&named, ErrorKind::WrongTier, "first tier");
        swap(&ssd, &earlier);
    }
    assert!(Db::open(named).unwrap().get(b"other").unwrap().is_some());
}

#[test]
fn a_manifest_that_is_gone_from_its_tier_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let options = options(path, 2).manifest_tier("hdd");
    fill(&options, b"key");
    fs::remove_file(&manifests(&path.join("hdd"))[0]).unwrap();
    let words = "the manifest in force is missing";
    refused(&options, ErrorKind::Corruption, words);
    let report = repair(options.clone()).unwrap();
    assert!(report.tables_lost.is_empty(), "{report}");
    assert_eq!(lie(path, 2), [0, 1]);
    let db = Db::open(options).unwrap();
    assert!(db.get(b"key").unwrap().is_some() && db.get(b"last").unwrap().is_some());
}

#[test]
fn repair_finds_the_manifest_on_its_tier_without_the_pointer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let at = |tier: &str| options(path, 3).manifest_tier(tier);
    fill(&at("hdd"), b"key");
    // What is asked for is where the repaired one goes.
    for (tier, lies) in [("hdd", [0, 1, 0]), ("tape", [0, 0, 1]), ("ssd", [1, 0, 0])] {
        fs::remove_file(path.join("ssd/CURRENT")).unwrap();
        let error = Db::open(at(tier)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongTier, "{error}");
        let report = repair(at(tier)).unwrap();
        assert!(report.lost.is_empty(), "{report}");
        // By the manifest, and not by the tables alone.
        assert_eq!(report.tables_kept, 1, "{report}");
        assert!(
            !report.notes.iter().any(|n| n.contains("no manifest")),
            "{report}"
        );
        assert_eq!(lie(path, 3), lies);
        sound(&at(tier));
        let db = Db::open(at(tier).read_only(true)).unwrap();
        assert!(db.get(b"key").unwrap().is_some() && db.get(b"last").unwrap().is_some());
    }
}

#[test]
fn a_repair_does_not_take_an_older_manifest_at_its_word() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let options = options(path, 2).manifest_tier("hdd");
    fill(&options, b"key");
    let older = manifests(&path.join("hdd"))[0].clone();
    let bytes = fs::read(&older).unwrap();
    fill(&options, b"other");
    fs::remove_file(&manifests(&path.join("hdd"))[0]).unwrap();
    fs::write(&older, bytes).unwrap();
    let report = repair(options.clone()).unwrap();
    assert!(report.tables_lost.is_empty(), "{report}");
    let db = Db::open(options).unwrap();
    assert!(db.get(b"key").unwrap().is_some() && db.get(b"other").unwrap().is_some());
}

#[test]
fn a_checkpoint_has_its_manifest_where_the_options_say() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let db = Db::open(options(path, 2).manifest_tier("hdd")).unwrap();
    db.put(b"key", b"value").unwrap();
    let copy = path.join("copy");
    db.checkpoint(&copy).unwrap();
    assert_eq!(lie(&copy, 2), [0, 1]);
    let kept = Options::from_file(&copy.join(thermocline::OPTIONS_FILE)).unwrap();
    sound(&kept);
    assert!(Db::open(kept).unwrap().get(b"key").unwrap().is_some());
    // And moves like any other.
    let moved = options(&copy, 2);
    assert!(Db::open(moved).unwrap().get(b"key").unwrap().is_some());
    assert_eq!(lie(&copy, 2), [1, 0]);
}

#[test]
fn dump_says_on_which_tier_the_manifest_lies() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let dumped = || {
        let mut text = Vec::new();
        thermocline::dump(&path.join("ssd/CURRENT"), &mut text, &Default::default()).unwrap();
        String::from_utf8(text).unwrap()
    };
    fill(&options(path, 2), b"key");
    assert!(!dumped().contains("tier"), "{}", dumped());
    fill(&options(path, 2).manifest_tier("hdd"), b"key");
    assert!(dumped().ends_with(", on tier 1\n"), "{}", dumped());
}
