//! A store whose tables have meta extents of version 1: `version_1/` was written
//! when that was the newest.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use thermocline::{Compression, Db, Options, Tier, repair, verify};

fn options(root: &Path) -> Options {
    Options::new()
        .tier(
            Tier::new("fast", root.join("fast"))
                .capacity_bytes(60_000)
                .block_bytes(512),
        )
        .tier(
            Tier::new("cheap", root.join("cheap"))
                .compression(Compression::Zstd)
                .block_bytes(512),
        )
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(4 << 10)
        .first_level_bytes(8 << 10)
        .background_threads(0)
        .log_segment_bytes(16 << 10)
}

/// A copy of the store.
fn old() -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/version_1");
    for tier in ["fast", "cheap"] {
        fs::create_dir(copy.path().join(tier)).unwrap();
        for entry in fs::read_dir(from.join(tier)).unwrap() {
            let entry = entry.unwrap();
            let to = copy.path().join(tier).join(entry.file_name());
            fs::copy(entry.path(), to).unwrap();
        }
    }
    copy
}

type Contents = BTreeMap<String, String>;

/// What was in it: a level of old values, and above it newer ones, many versions
/// of one key that snapshots held, a delete and a range delete.
fn expected() -> Contents {
    let mut all = Contents::new();
    for i in 0..70 {
        all.insert(format!("key{i:03}"), format!("an old value of number {i}"));
    }
    for i in 0..20 {
        let key = format!("key{:03}", i * 3);
        all.insert(key, format!("a newer value of number {i}"));
    }
    let last = "version 11 of a key that has many";
    all.insert("key050".to_string(), last.to_string());
    all.retain(|key, _| !("key020".."key030").contains(&&**key));
    all
}

fn contents(root: &Path) -> Contents {
    let db = Db::open(options(root)).unwrap();
    let mut all = Contents::new();
    let mut iter = db.iter().unwrap();
    iter.seek_to_first().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    while iter.valid() {
        let found = db.get(iter.key()).unwrap();
        assert_eq!(found.as_deref(), Some(iter.value()));
        all.insert(text(iter.key()), text(iter.value()));
        iter.next().unwrap();
    }
    all
}

/// The versions of the meta extents, and how many there are of each.
fn versions(root: &Path) -> BTreeMap<u8, u32> {
    let mut versions = BTreeMap::new();
    let tiers = ["fast", "cheap"].map(|tier| fs::read_dir(root.join(tier)).unwrap());
    for entry in tiers.into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "meta") {
            *versions.entry(fs::read(path).unwrap()[8]).or_default() += 1;
        }
    }
    versions
}

#[test]
fn an_old_store_is_verified_and_read() {
    let old = old();
    assert_eq!(versions(old.path()), [(1, 2)].into());
    let report = verify(options(old.path())).unwrap();
    assert!(report.problems.is_empty(), "{report}");
    assert_eq!(report.tables, 2);
    assert_eq!(contents(old.path()), expected());
    assert_eq!(versions(old.path()), [(1, 2)].into());
    let report = repair(options(old.path())).unwrap();
    assert!(report.was_sound, "{report}");
}

#[test]
fn tables_of_an_old_store_are_merged_into_new_ones() {
    let old = old();
    let db = Db::open(options(old.path())).unwrap();
    db.put(b"key005", b"newest").unwrap();
    db.flush().unwrap();
    // Beside one another.
    assert_eq!(versions(old.path()), [(1, 2), (2, 1)].into());
    db.compact_range(None, None).unwrap();
    db.close().unwrap();
    assert_eq!(versions(old.path()).keys().collect::<Vec<_>>(), [&2]);
    let report = verify(options(old.path())).unwrap();
    assert!(report.problems.is_empty(), "{report}");
    let mut expected = expected();
    expected.insert("key005".to_string(), "newest".to_string());
    assert_eq!(contents(old.path()), expected);
}

#[test]
fn an_old_store_without_its_manifest_is_put_together_from_its_tables() {
    let old = old();
    fs::remove_file(old.path().join("fast/CURRENT")).unwrap();
    fs::remove_file(old.path().join("fast/MANIFEST-001011")).unwrap();
    repair(options(old.path())).unwrap();
    assert_eq!(contents(old.path()), expected());
}

/// A block is damaged: what the report says of it holds for all that is gone, and
/// for less than the table.
#[test]
fn of_an_old_table_with_a_damaged_block_the_rest_is_saved() {
    let mut lost = 0;
    for at in (0..1200).step_by(100) {
        let old = old();
        let data = old.path().join("cheap/000002.data");
        let mut bytes = fs::read(&data).unwrap();
        bytes[at] ^= 0x40;
        fs::write(&data, bytes).unwrap();
        let report = repair(options(old.path())).unwrap();
        assert_eq!(report.tables_rewritten, 1, "{report}");
        assert_eq!(report.key_ranges_lost.len(), 1, "{report}");
        let range = &report.key_ranges_lost[0];
        let (first, last) = (&*range.first_key, &*range.last_key);
        let said = format!("of keys from {} to {}", range.first, range.last);
        assert!(report.lost.iter().any(|l| l.contains(&said)), "{report}");
        let (found, expected) = (contents(old.path()), expected());
        for (key, value) in &expected {
            if found.get(key) != Some(value) {
                assert!((first..=last).contains(&key.as_bytes()), "{key}: {report}");
                lost += 1;
            }
        }
        assert!(found.len() >= expected.len() - 25, "{report}");
    }
    assert!(lost > 0);
}

#[test]
fn the_manifest_of_an_old_store_moves_to_another_tier_and_back() {
    let old = old();
    for (tier, lies) in [("cheap", [0, 1]), ("fast", [1, 0])] {
        let options = options(old.path()).manifest_tier(tier);
        Db::open(options.clone()).unwrap().close().unwrap();
        let count = |tier: &str| {
            let names = fs::read_dir(old.path().join(tier)).unwrap();
            let names = names.map(|entry| entry.unwrap().file_name());
            let of = names.filter(|name| name.to_string_lossy().starts_with("MANIFEST-"));
            of.count()
        };
        assert_eq!(["fast", "cheap"].map(count), lies);
        let report = verify(options).unwrap();
        assert!(report.problems.is_empty(), "{report}");
    }
    assert_eq!(contents(old.path()), expected());
}
