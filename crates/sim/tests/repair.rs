//! What damage did to stores that it must not do: one test for each bug that
//! the corruption sweep and the fuzz targets found, and the cases of damage
//! that have a name.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline::{Db, ErrorKind, RepairReport, repair_in, verify_in};
use thermocline_sim::Tally;
use thermocline_sim::disk::Disk;
use thermocline_sim::harness::corruption::damage::Damage;
use thermocline_sim::harness::corruption::examine::examine;
use thermocline_sim::harness::corruption::store::{self, Small, disk_of};
use thermocline_sim::harness::corruption::truth::{Answers, Image};
use thermocline_sim::harness::decode::{crossed_formats, target};

/// A seal: a frame without operations, with its note on the manifest.
const SEAL_BYTES: usize = 32 + 16;

fn small(name: &str) -> Small {
    store::all().into_iter().find(|s| s.name == name).unwrap()
}

fn file(image: &Image, kind: &str) -> PathBuf {
    let mut paths = image.keys();
    paths
        .rfind(|p| p.to_str().unwrap().contains(kind))
        .unwrap()
        .clone()
}

fn set(image: &mut Image, path: &Path, bytes: &[u8]) {
    image.insert(path.to_path_buf(), Arc::from(bytes));
}

/// The store's files with a bit of one flipped.
fn flipped(store: &Small, path: &Path, at: usize) -> Image {
    let mut bytes = store.image[path].to_vec();
    bytes[at] ^= 1;
    let mut image = store.image.clone();
    set(&mut image, path, &bytes);
    image
}

fn kind_of_refusal(store: &Small, image: &Image) -> ErrorKind {
    let disk = disk_of(image, &store.options, 1);
    let error = Db::open_in(store.options.clone(), &disk.environment()).unwrap_err();
    println!("{error}");
    assert!(error.path().is_some(), "{error}");
    let same = |(path, bytes): (&PathBuf, &Arc<[u8]>)| disk.files()[path] == **bytes;
    assert!(image.iter().all(same), "a refused opening changes nothing");
    error.kind()
}

fn repaired(store: &Small, image: &Image) -> (RepairReport, Db) {
    let disk = disk_of(image, &store.options, 1);
    let report = repair_in(store.options.clone(), &disk.environment()).unwrap();
    println!("{report}");
    let sound = verify_in(store.options.clone(), &disk.environment()).unwrap();
    assert!(sound.problems.is_empty(), "{sound}");
    let db = Db::open_in(store.options.clone(), &disk.environment()).unwrap();
    (report, db)
}

fn damage(store: &Small, path: &Path, bytes: Vec<u8>) -> Damage {
    assert!(store.image.contains_key(path));
    Damage {
        what: path.display().to_string(),
        changes: vec![(path.to_path_buf(), Some(Arc::from(bytes)))],
    }
}

/// A manifest that had been cut read as an earlier one, whose tables were gone.
/// The opening found that out only after it had put a new manifest in force,
/// made of the earlier one, and had deleted the one that was cut: the store was
/// refused for good, even with the lost bytes put back.
#[test]
fn a_refused_opening_leaves_the_manifest_as_it_was() {
    let store = small("two tiers");
    let path = file(&store.image, "MANIFEST");
    let mut image = store.image.clone();
    set(&mut image, &path, &store.image[&path][..400]);
    assert_eq!(kind_of_refusal(&store, &image), ErrorKind::Corruption);
}

/// The same with a log that is damaged in its middle.
#[test]
fn an_opening_refused_for_its_log_changes_nothing() {
    let store = small("log of several segments");
    let path = file(&store.image, "000001.log");
    let mut bytes = store.image[&path].to_vec();
    bytes[150] ^= 1;
    let mut image = store.image.clone();
    set(&mut image, &path, &bytes);
    assert_eq!(kind_of_refusal(&store, &image), ErrorKind::Corruption);
}

/// A file that somebody had named with the largest number there is made the
/// opening add one to it: a panic, or without overflow checks the numbers began
/// again at 0.
#[test]
fn files_with_the_largest_numbers_are_not_counted_on_from() {
    let store = small("one tier");
    for name in ["18446744073709551615", "9223372036854775807", "000000"] {
        for (kind, made) in [
            (".log", ""),
            (".data", ""),
            (".meta", ""),
            ("", "MANIFEST-"),
        ] {
            let mut image = store.image.clone();
            let path = PathBuf::from(format!("/only/{made}{name}{kind}"));
            set(&mut image, &path, &[7; 100]);
            let disk = disk_of(&image, &store.options, 1);
            for _ in 0..2 {
                let db = Db::open_in(store.options.clone(), &disk.environment()).unwrap();
                let answers = Answers::of(&db, &store.history, false);
                assert!(answers.errors.is_empty(), "{:?}", answers.errors);
            }
        }
    }
}

/// A copy of a log segment under another name made repair drop the whole log,
/// of which nothing was damaged, and the store was not sound afterwards either.
#[test]
fn a_stray_log_segment_does_not_cost_the_log() {
    let store = small("log of several segments");
    let path = file(&store.image, "000002.log");
    for twin in ["000000.log", "000009.log"] {
        let mut image = store.image.clone();
        set(&mut image, &path.with_file_name(twin), &store.image[&path]);
        let (report, db) = repaired(&store, &image);
        assert!(report.lost.is_empty(), "{report}");
        let answers = Answers::of(&db, &store.history, false);
        let allowed = thermocline_sim::harness::corruption::truth::Allowed::Right;
        answers
            .check_allowed(&store.history, allowed, false)
            .unwrap();
    }
}

/// The data object of a table was replaced by another table's. It was too short
/// to be opened, so repair went by its blocks alone, which were in range, and
/// gave the keys of one keyspace the values of the other.
#[test]
fn blocks_of_another_table_are_not_taken_for_a_tables_own() {
    let store = small("parts and keyspaces");
    let data: Vec<&PathBuf> = store
        .image
        .keys()
        .filter(|p| p.extension().is_some_and(|e| e == "data"))
        .collect();
    let mut tally = Tally::default();
    for path in &data {
        for other in &data {
            let one = damage(&store, path, store.image[*other].to_vec());
            examine(&store, &one, &mut tally).unwrap();
            let meta = Damage {
                changes: one
                    .changes
                    .iter()
                    .cloned()
                    .chain([(file(&store.image, ".meta"), None)])
                    .collect(),
                ..one
            };
            examine(&store, &meta, &mut tally).unwrap();
        }
    }
}

/// The edit that made a keyspace could not be read. Repair found its tables and
/// log entries by number, gave it another name, and said that nothing was lost.
#[test]
fn a_keyspace_whose_name_is_lost_is_reported() {
    let store = small("parts and keyspaces");
    let path = file(&store.image, "MANIFEST");
    let mut bytes = store.image[&path].to_vec();
    bytes[140] ^= 4;
    let mut image = store.image.clone();
    set(&mut image, &path, &bytes);
    let (report, db) = repaired(&store, &image);
    assert!(
        report
            .lost
            .iter()
            .any(|l| l.contains("the name of keyspace 1")),
        "{report}"
    );
    let space = db.keyspace("recovered-1").unwrap();
    assert_eq!(space.get(b"a0").unwrap().as_deref(), Some(&b"late"[..]));
}

/// The manifest was cut before the edit that made a keyspace. Repair put the tables
/// of that one into the default keyspace, as it knew of no other, and did not say so.
#[test]
fn tables_that_may_be_of_a_lost_keyspace_are_reported() {
    let store = small("parts and keyspaces");
    let path = file(&store.image, "MANIFEST");
    let cut = damage(&store, &path, store.image[&path][..130].to_vec());
    examine(&store, &cut, &mut Tally::default()).unwrap();
    let (report, db) = repaired(&store, &cut.to(&store.image));
    assert!(db.get(b"a0").unwrap().is_some(), "in the default keyspace");
    let lost = |l: &&String| l.contains("it is in the default one now") && l.contains("a0");
    assert!(report.lost.iter().any(|l| lost(&l)), "{report}");
}

/// A repair that put what was in the log into tables was killed before it had
/// removed the damaged segments. Nothing needed them any more, and verify and repair
/// found nothing wrong; but the opening read the header of the last segment there was,
/// and refused the store.
#[test]
fn a_damaged_log_segment_that_nothing_needs_does_not_keep_a_store_closed() {
    let store = small("one tier");
    let (manifest, log) = (file(&store.image, "MANIFEST"), file(&store.image, ".log"));
    let image = flipped(&store, &manifest, 300);
    let disk = disk_of(&image, &store.options, 1);
    let report = repair_in(store.options.clone(), &disk.environment()).unwrap();
    assert!(!disk.files().contains_key(&log), "{report}");
    let mut bytes = store.image[&log].to_vec();
    bytes[70] ^= 1;
    disk.put_file(&log, &bytes);
    let sound = verify_in(store.options.clone(), &disk.environment()).unwrap();
    assert!(sound.problems.is_empty(), "{sound}");
    let db = Db::open_in(store.options.clone(), &disk.environment()).unwrap();
    db.put(b"after", b"repair").unwrap();
    drop(db);
    let db = Db::open_in(store.options.clone(), &disk.environment()).unwrap();
    assert_eq!(db.get(b"after").unwrap().as_deref(), Some(&b"repair"[..]));
}

/// The end of the log was damaged, its last frames too. Repair named as lost
/// only the numbers it could still read.
#[test]
fn a_log_that_ends_in_damage_may_have_lost_more_than_can_be_counted() {
    let store = small("two tiers");
    let path = file(&store.image, "000002.log");
    let mut bytes = store.image[&path].to_vec();
    // The frames, but not the seal that says that they were durable.
    let end = bytes.len() - SEAL_BYTES;
    bytes[100..end].fill(0xaa);
    let mut image = store.image.clone();
    set(&mut image, &path, &bytes);
    let (report, _) = repaired(&store, &image);
    assert!(report.log_numbers_lost.is_some(), "{report}");
}

/// Seed 601183: a manifest damaged where it said how far the log reached, and a log cut
/// at the end of a frame. The log looked whole, and repair said that nothing was lost. It
/// is whole for certain only with the seal of a clean close at its end.
#[test]
fn where_a_damaged_manifest_does_not_say_how_far_the_log_reached_its_seal_does() {
    let store = small("one tier");
    let (manifest, log) = (file(&store.image, "MANIFEST"), file(&store.image, ".log"));
    let mut image = flipped(&store, &manifest, 300);
    let (report, _) = repaired(&store, &image);
    assert_eq!(report.log_end_unknown, None, "{report}");
    let whole = store.image[&log].clone();
    set(&mut image, &log, &whole[..whole.len() - SEAL_BYTES]);
    let (report, _) = repaired(&store, &image);
    assert!(report.log_end_unknown.is_some(), "{report}");
    assert!(!report.to_string().contains("nothing was lost"), "{report}");
}

/// A frame with as many operations as it says and bytes behind them that are
/// none was sound to verify, and refused by the opening.
#[test]
fn a_frame_with_bytes_behind_its_operations_is_found_by_verify() {
    let store = small("log of several segments");
    let path = file(&store.image, ".log");
    let mut bytes = store.image[&path].to_vec();
    let length = u32::from_le_bytes(bytes[104..108].try_into().unwrap());
    bytes[104..108].copy_from_slice(&(length + 8).to_le_bytes());
    let end = 128 + length as usize;
    bytes.splice(end..end, [0xff; 8]);
    // The fourth store; odd, so that checksums are put right.
    (target("log").run)(&[&[7], &bytes[..]].concat());
}

/// A manifest that named a tier there is not made repair panic.
#[test]
fn a_table_on_a_tier_that_is_not_there_is_refused_and_repaired() {
    let store = small("one tier");
    let path = file(&store.image, "MANIFEST");
    let bytes = &store.image[&path];
    for at in 16..bytes.len() {
        let mut bytes = bytes.to_vec();
        bytes[at] = 5;
        (target("manifest").run)(&[&[1], &bytes[..]].concat());
    }
}

/// The header of a segment called durable what was not even before it: no log
/// that begins so can be sound, and repair left it so.
#[test]
fn a_segment_header_that_contradicts_itself_is_damage() {
    let store = small("log of several segments");
    let path = file(&store.image, ".log");
    for field in [40, 48, 56, 64, 72] {
        for value in [0, 1, 5, 1 << 51, u64::MAX] {
            let mut bytes = store.image[&path].to_vec();
            bytes[field..field + 8].copy_from_slice(&value.to_le_bytes());
            (target("log").run)(&[&[7], &bytes[..]].concat());
        }
    }
}

#[test]
fn a_flip_in_the_middle_of_the_log_is_reported_and_never_skipped() {
    let store = small("log of several segments");
    let path = file(&store.image, "000001.log");
    for at in 0..store.image[&path].len() {
        let mut bytes = store.image[&path].to_vec();
        bytes[at] ^= 1 << (at % 8);
        let outcome =
            examine(&store, &damage(&store, &path, bytes), &mut Tally::default()).unwrap();
        let is_seal = at + SEAL_BYTES >= store.image[&path].len();
        assert!(
            outcome.refused && outcome.noticed || is_seal,
            "byte {at}: {outcome:?}"
        );
    }
}

#[test]
fn a_log_tail_torn_zeroed_garbled_or_recycled_ends_the_log_before_it() {
    let store = small("log of several segments");
    let path = file(&store.image, "000003.log");
    let whole = store.image[&path].to_vec();
    let old = store.image[&file(&store.image, "000001.log")].to_vec();
    let garbage = |i: usize| (i as u8).wrapping_mul(151) ^ 0x5a;
    for at in 0..whole.len() {
        let tails: [Vec<u8>; 4] = [
            Vec::new(),
            vec![0; whole.len() - at],
            (at..whole.len()).map(garbage).collect(),
            old.iter().copied().skip(at).collect(),
        ];
        for tail in tails {
            let bytes = [&whole[..at], &tail[..]].concat();
            examine(&store, &damage(&store, &path, bytes), &mut Tally::default())
                .unwrap_or_else(|e| panic!("from {at}: {e}"));
        }
    }
}

#[test]
fn a_pointer_to_a_missing_or_damaged_manifest_is_refused_with_an_older_one_beside_it() {
    let store = small("large values");
    let path = file(&store.image, "MANIFEST");
    let older = path.with_file_name("MANIFEST-000001");
    for damaged in [None, Some(0), Some(20), Some(60)] {
        let mut image = store.image.clone();
        set(&mut image, &older, &store.image[&path]);
        match damaged {
            None => drop(image.remove(&path)),
            Some(at) => {
                let mut bytes = store.image[&path].to_vec();
                bytes[at] ^= 0x10;
                set(&mut image, &path, &bytes);
            }
        }
        assert_eq!(kind_of_refusal(&store, &image), ErrorKind::Corruption);
    }
}

#[test]
fn a_sound_block_in_the_wrong_place_is_refused() {
    let mut tally = Tally::default();
    for store in store::all() {
        let mut blocks = Vec::new();
        for (path, bytes) in &store.image {
            let mut start = 0;
            for end in 48..=bytes.len() {
                if path.extension().is_some_and(|e| e == "data")
                    && bytes[end - 8..end - 4] == *b"blk\x01"
                {
                    blocks.push((path, start, end));
                    start = end;
                }
            }
        }
        for &(path, start, end) in &blocks {
            for &(other, from, to) in &blocks {
                if (path, start) != (other, from) {
                    let length = (end - start).min(to - from);
                    let mut bytes = store.image[path].to_vec();
                    // Their ends, where the checksums are, in one place.
                    bytes[end - length..end].copy_from_slice(&store.image[other][to - length..to]);
                    let outcome = examine(&store, &damage(&store, path, bytes), &mut tally);
                    assert!(outcome.unwrap().noticed, "{}", store.name);
                }
            }
        }
    }
    println!("{tally}");
    assert!(tally.corruptions > 20);
}

/// The files of `image` are there, byte for byte, and no others but locks.
fn left_alone(image: &Image, disk: &Disk, context: &str) {
    let mut files = disk.files();
    let is_lock = |path: &Path| path.file_name().is_some_and(|name| name == "LOCK");
    for (path, bytes) in image.iter().filter(|(path, _)| !is_lock(path)) {
        let now = files.remove(path);
        assert_eq!(
            now.as_deref(),
            Some(&**bytes),
            "{context}: {}",
            path.display()
        );
    }
    files.retain(|path, _| !is_lock(path));
    assert!(files.is_empty(), "{context}: made {:?}", files.keys());
}

/// Case 18. A store is of another format where any of its files is, be it one table:
/// neither an opening nor a repair by a program that does not understand it may
/// change, delete or put aside anything of it.
#[test]
fn files_of_a_newer_format_are_refused_as_such_and_left_alone() {
    let (mut opened, mut refused) = (0, 0);
    for store in store::all() {
        for format in [0, 3, 200] {
            for (path, image) in crossed_formats(&store.image, format) {
                let context = format!("{}: {} of format {format}", store.name, path.display());
                let disk = disk_of(&image, &store.options, 1);
                let found = verify_in(store.options.clone(), &disk.environment()).unwrap();
                assert!(!found.problems.is_empty(), "{context}");
                left_alone(&image, &disk, &format!("{context}: verify"));
                let repaired = repair_in(store.options.clone(), &disk.environment());
                let error = repaired.map(|report| report.to_string()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{context}: {error}");
                left_alone(&image, &disk, &format!("{context}: repair"));
                let error = match Db::open_in(store.options.clone(), &disk.environment()) {
                    Err(error) => {
                        left_alone(&image, &disk, &format!("{context}: open"));
                        error
                    }
                    Ok(db) => {
                        // A table of which only a read finds out. What was there
                        // is used, and merged with others; itself it stays.
                        opened += 1;
                        let mut answers = Answers::of(&db, &store.history, false);
                        assert!(!answers.errors.is_empty(), "{context}");
                        db.put(b"key005", b"new").unwrap();
                        db.flush().unwrap();
                        // Fails where a merge would need the table.
                        let merged = db.compact_range(None, None);
                        refused += u32::from(merged.is_err());
                        drop(db);
                        let bytes = &disk.files()[&path];
                        assert_eq!(**bytes, *image[&path], "{context}");
                        answers.errors.remove(0)
                    }
                };
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{context}: {error}");
            }
        }
    }
    assert!(opened > 0 && refused > 0, "{opened}, {refused}");
}

/// The edit that added a table could not be read, its meta was gone, and so was its data or
/// the one block in it: nothing was left that could be named, and repair said nothing.
#[test]
fn a_table_of_which_nothing_can_be_read_is_said_to_be_lost() {
    let store = small("two tiers");
    let (manifest, meta) = (file(&store.image, "MANIFEST"), file(&store.image, ".meta"));
    let data = file(&store.image, ".data");
    let garbage: Arc<[u8]> = vec![7; store.image[&data].len()].into();
    let empty: Arc<[u8]> = Arc::from([]);
    let mut told = [0; 2];
    for (bytes, kind) in [(None, 0), (Some(empty), 1), (Some(garbage), 1)] {
        for at in (0..store.image[&manifest].len()).step_by(41) {
            let mut flipped = store.image[&manifest].to_vec();
            flipped[at] ^= 1;
            let damage = Damage {
                what: format!("byte {at} of the manifest, kind {kind}"),
                changes: vec![
                    (manifest.clone(), Some(flipped.into())),
                    (meta.clone(), None),
                    (data.clone(), bytes.clone()),
                ],
            };
            let examined = examine(&store, &damage, &mut Tally::default());
            examined.unwrap_or_else(|e| panic!("{}: {e}", damage.what));
            let (report, _) = repaired(&store, &damage.to(&store.image));
            let words = ["neither an edit nor a file", "of which nothing is known"][kind];
            told[kind] += u32::from(report.lost.iter().any(|l| l.contains(words)));
        }
    }
    assert!(told.iter().all(|&t| t > 0), "{told:?}");
}
