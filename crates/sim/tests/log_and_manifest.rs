//! The log and the manifest: torn, cut, damaged, full, out of order. The
//! numbers are those of the list of cases in `docs/testing.md`. A fault at
//! *every* call is in `faults.rs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use thermocline::store::{FileSystem, OpenHow, read_exact_at, write_all_at};
use thermocline::{Db, Durability, Error, ErrorKind, Options, WriteBatch, WriteOptions};
use thermocline_sim::Dice;
use thermocline_sim::disk::{Disk, Down, Fault, Where};

const DIRECTORY: &str = "/store";

fn options(mapped: bool) -> Options {
    Options::at(DIRECTORY)
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(4 << 10)
        .first_level_bytes(8 << 10)
        .newest_runs_merge(2)
        .log_segment_bytes(16 << 10)
        .log_bytes_max(64 << 10)
        .log_mapped(mapped)
        .reserve_bytes(0)
        .background_threads(0)
}

fn open(disk: &Disk) -> Result<Db, Error> {
    Db::open_in(options(false), &disk.environment())
}

fn put(db: &Db, i: u8, durability: Durability) -> Result<(), Error> {
    let mut batch = WriteBatch::new();
    // Two entries, so that half a batch would be seen.
    batch.put(&[b'a', i], &[i; 100]).unwrap();
    batch.put(&[b'b', i], &[i; 100]).unwrap();
    db.write_with(&batch, WriteOptions::default().durability(durability))
}

/// How many of the batches 0, 1, 2, ... are there; no others may be.
fn prefix(db: &Db, context: &str) -> u8 {
    let all: Vec<_> = db.iter().unwrap().forward().map(Result::unwrap).collect();
    assert_eq!(all.len() % 2, 0, "{context}: half a batch");
    let count = (all.len() / 2) as u8;
    for i in 0..count {
        for first in [b'a', b'b'] {
            let found = db.get(&[first, i]).unwrap();
            assert_eq!(found.as_deref(), Some(&[i; 100][..]), "{context}: {i}");
        }
    }
    count
}

fn paths(disk: &Disk, part: &str) -> Vec<PathBuf> {
    let names = disk.names(Path::new(DIRECTORY)).into_iter();
    names
        .filter(|n| n.contains(part))
        .map(|n| Path::new(DIRECTORY).join(n))
        .collect()
}

fn read(disk: &Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenHow::READ).unwrap();
    let mut bytes = vec![0; file.size_bytes().unwrap() as usize];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    bytes
}

/// Another disk on which the file holds these bytes.
fn with(disk: &Disk, path: &Path, bytes: &[u8]) -> Disk {
    let disk = disk.fork(1);
    let file = disk.open(path, OpenHow::WRITE).unwrap();
    file.set_size(0).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
    file.sync().unwrap();
    disk
}

/// Six batches in one segment, the first three durable, and where the third
/// ends; as the death of the process leaves it.
fn six(mapped: bool) -> (Disk, PathBuf, Vec<u8>, usize) {
    six_of(1, mapped)
}

fn six_of(seed: u64, mapped: bool) -> (Disk, PathBuf, Vec<u8>, usize) {
    let disk = Disk::new(seed);
    disk.set_maps(mapped);
    let db = Db::open_in(options(mapped), &disk.environment()).unwrap();
    let mut durable_end = 0;
    for i in 0..6 {
        put(&db, i, Durability::OperatingSystem).unwrap();
        if i == 2 {
            db.persist().unwrap();
            durable_end = end_of(&read(&disk, &paths(&disk, ".log")[0]));
        }
    }
    let disk = disk.fork(1);
    drop(db);
    let path = paths(&disk, ".log").pop().unwrap();
    let bytes = read(&disk, &path);
    (disk, path, bytes, durable_end)
}

/// Where the zeros of the end begin, at a multiple of eight.
fn end_of(bytes: &[u8]) -> usize {
    let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
    end.next_multiple_of(8).min(bytes.len())
}

// case 3
#[test]
fn a_log_tail_torn_zeroed_overwritten_or_recycled_at_any_byte_leaves_a_prefix() {
    for mapped in [false, true] {
        let (disk, path, bytes, durable_end) = six(mapped);
        let end = end_of(&bytes);
        // The log of another store, which had the same blocks before.
        let recycled = six_of(2, mapped).2;
        let mut dice = Dice(7);
        let mut counts = [0; 7];
        for at in durable_end..end {
            for kind in 0..4 {
                let mut torn = bytes.clone();
                match kind {
                    0 => torn.truncate(at),
                    1 => torn[at..].fill(0),
                    2 => torn[at..].fill_with(|| dice.next() as u8),
                    _ => {
                        let at = at.min(recycled.len());
                        torn.truncate(at);
                        torn.extend_from_slice(&recycled[at..]);
                    }
                }
                let context = format!("mapped {mapped}, tail {kind} from byte {at}");
                let disk = with(&disk, &path, &torn);
                let db = open(&disk).unwrap_or_else(|e| panic!("{context}: {e}"));
                let count = prefix(&db, &context);
                assert!((3..=6).contains(&count), "{context}: {count}");
                counts[usize::from(count)] += 1;
                // What was dropped is gone for good.
                put(&db, count, Durability::Device).unwrap();
                drop(db);
                disk.reboot(Down::Power);
                assert_eq!(prefix(&open(&disk).unwrap(), &context), count + 1);
            }
        }
        assert!(counts[3] > 100 && counts[4] > 100 && counts[5] > 100);
    }
}

// case 4
#[test]
fn a_bit_flipped_in_what_was_durable_in_the_log_is_reported_never_skipped() {
    let (disk, path, bytes, durable_end) = six(false);
    let mut reported = 0;
    for at in 0..durable_end {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        match open(&with(&disk, &path, &damaged)) {
            Ok(db) => assert_eq!(prefix(&db, "a byte of no meaning"), 6, "byte {at}"),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Corruption, "byte {at}: {e}");
                reported += 1;
            }
        }
    }
    assert!(
        reported * 10 > durable_end * 9,
        "{reported} of {durable_end}"
    );
}

/// Batches over several log segments, and the segments.
fn segments(durable: bool) -> (Disk, Vec<PathBuf>, u8) {
    let disk = Disk::new(2);
    let db = open(&disk).unwrap();
    let durability = if durable {
        Durability::Device
    } else {
        Durability::OperatingSystem
    };
    let mut count = 0;
    while paths(&disk, ".log").len() < 3 {
        put(&db, count, durability).unwrap();
        count += 1;
    }
    put(&db, count, Durability::OperatingSystem).unwrap();
    put(&db, count + 1, Durability::OperatingSystem).unwrap();
    let disk = disk.fork(2);
    drop(db);
    let paths = paths(&disk, ".log");
    (disk, paths, count + 2)
}

// case 5
#[test]
fn a_later_log_segment_does_not_count_without_the_tail_of_the_one_before() {
    for durable in [false, true] {
        let (disk, paths, count) = segments(durable);
        assert_eq!(prefix(&open(&disk.fork(1)).unwrap(), "whole"), count);
        for path in &paths[..2] {
            let bytes = read(&disk, path);
            for length in (0..bytes.len()).step_by(61) {
                let context = format!("durable {durable}, {} cut to {length}", path.display());
                match open(&with(&disk, path, &bytes[..length])) {
                    // Nothing behind the cut, be it in another segment.
                    Ok(db) => {
                        assert!(!durable, "{context}: silently");
                        assert!(prefix(&db, &context) < count, "{context}");
                    }
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Corruption, "{context}: {e}");
                        assert!(durable, "{context}: {e}");
                    }
                }
            }
        }
    }
}

// case 3. A power failure kept the size of a new log segment and none of its
// content, and the blocks it had been given were those of an older segment. Its
// sound header, under another name, was taken for a misplaced file, and the
// store refused to open.
#[test]
fn a_new_log_segment_with_the_blocks_of_an_older_one_is_a_torn_tail() {
    let (disk, paths, count) = segments(false);
    let older = read(&disk, &paths[0]);
    let disk = with(&disk, &paths[2], &older);
    let found = prefix(&open(&disk).unwrap(), "recycled");
    assert!(found > 0 && found < count, "{found} of {count}");
    // What was durable is missed all the same.
    let (disk, paths, _) = segments(true);
    let older = read(&disk, &paths[0]);
    let error = open(&with(&disk, &paths[1], &older)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
}

// case 8
#[test]
fn no_room_for_the_manifest_alone_or_the_log_alone_is_named_and_passes() {
    for (part, mapped) in [("MANIFEST", false), (".log", false), (".log", true)] {
        for n in 1..12 {
            let context = format!("{part}, mapped {mapped}, from call {n}");
            let disk = Disk::new(3);
            disk.set_maps(mapped);
            let db = Db::open_in(options(mapped), &disk.environment()).unwrap();
            disk.fault_at(Where::named(part), n, Fault::Full(u64::MAX));
            let mut written = Vec::new();
            let mut errors = 0;
            for i in 0..100 {
                match put(&db, i, Durability::OperatingSystem) {
                    Ok(()) => written.push(i),
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::NoSpace, "{context}: {e}");
                        errors += 1;
                    }
                }
                if i % 9 == 8
                    && let Err(e) = db.flush()
                {
                    assert_eq!(e.kind(), ErrorKind::NoSpace, "{context}: {e}");
                    errors += 1;
                }
            }
            assert!(disk.heal(), "{context}: it was full to the end");
            assert!(errors > 0 || mapped, "{context}");
            let check = |db: &Db| {
                for i in &written {
                    assert!(db.get(&[b'a', *i]).unwrap().is_some(), "{context}: {i}");
                }
                assert_eq!(db.prefix(b"b").unwrap().forward().count(), written.len());
            };
            check(&db);
            disk.pass_time(Duration::from_secs(1));
            db.flush().unwrap_or_else(|e| panic!("{context}: {e}"));
            db.put(b"more", b"1").unwrap();
            drop(db);
            disk.reboot(Down::Kill);
            check(&open(&disk).unwrap());
        }
    }
}

/// A store whose last change of the manifest was a flush, the manifest before
/// and after it, and the batches in it; the log has them too.
fn flushed() -> (Disk, PathBuf, usize, Vec<u8>, u8) {
    let disk = Disk::new(4);
    let db = open(&disk).unwrap();
    for i in 0..8 {
        put(&db, i, Durability::Device).unwrap();
    }
    let path = paths(&disk, "MANIFEST-").pop().unwrap();
    let before = read(&disk, &path).len();
    db.flush().unwrap();
    let disk = disk.fork(4);
    drop(db);
    let bytes = read(&disk, &path);
    (disk, path, before, bytes, 8)
}

// case 9
#[test]
fn a_manifest_torn_in_its_last_edit_at_any_byte_is_as_before_the_edit() {
    let (disk, path, before, bytes, count) = flushed();
    // At the end lies a mark of 16 bytes, as one lay before.
    for at in before..bytes.len() {
        let disk = with(&disk, &path, &bytes[..at]);
        let db = open(&disk).unwrap_or_else(|e| panic!("cut to {at}: {e}"));
        assert_eq!(prefix(&db, "cut"), count);
    }
    // Cut anywhere before, durable edits are missing: said, or seen by what
    // the other files say.
    for at in 0..before - 16 {
        match open(&with(&disk, &path, &bytes[..at])) {
            Ok(db) => assert_eq!(prefix(&db, "cut early"), count, "cut to {at}"),
            Err(e) => assert!(
                matches!(e.kind(), ErrorKind::Corruption | ErrorKind::WrongTier),
                "cut to {at}: {e}"
            ),
        }
    }
}

// case 9
#[test]
fn a_pointer_to_a_manifest_that_is_missing_is_no_new_store() {
    let (disk, path, _, bytes, _) = flushed();
    disk.unlink(&path).unwrap();
    disk.sync_directory(Path::new(DIRECTORY)).unwrap();
    let error = open(&disk.fork(1)).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::Io
        ),
        "{error}"
    );
    assert!(error.to_string().contains("MANIFEST"), "{error}");
    // Put back, all is well.
    disk.open(&path, OpenHow::NEW).unwrap();
    assert_eq!(
        prefix(&open(&with(&disk, &path, &bytes)).unwrap(), "back"),
        8
    );
}

// case 9
#[test]
fn an_older_valid_manifest_does_not_stand_in_for_a_damaged_one() {
    let disk = Disk::new(5);
    let db = open(&disk).unwrap();
    put(&db, 0, Durability::Device).unwrap();
    db.flush().unwrap();
    let older = paths(&disk, "MANIFEST-").pop().unwrap();
    let older_bytes = read(&disk, &older);
    drop(db);
    let db = open(&disk).unwrap();
    put(&db, 1, Durability::Device).unwrap();
    db.flush().unwrap();
    drop(db);
    let newest = paths(&disk, "MANIFEST-").pop().unwrap();
    assert_ne!(older, newest);
    disk.open(&older, OpenHow::NEW).unwrap();
    let disk = with(&disk, &older, &older_bytes);
    let bytes = read(&disk, &newest);
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        match open(&with(&disk, &newest, &damaged)) {
            Ok(db) => assert_eq!(prefix(&db, "a byte of no meaning"), 2, "byte {at}"),
            Err(e) => {
                assert!(
                    matches!(e.kind(), ErrorKind::Corruption | ErrorKind::WrongTier),
                    "byte {at}: {e}"
                );
                refused += 1;
            }
        }
    }
    assert!(
        refused * 10 > bytes.len() * 8,
        "{refused} of {}",
        bytes.len()
    );
}

// case 12
#[test]
fn a_sound_table_in_the_place_of_another_is_reported() {
    let disk = Disk::new(6);
    let db = open(&disk).unwrap();
    for i in 0..60 {
        put(&db, i, Durability::OperatingSystem).unwrap();
        db.put(&[b'c', i], &[i; 400]).unwrap();
    }
    db.compact_range(None, None).unwrap();
    drop(db);
    for ending in [".data", ".meta"] {
        let all = paths(&disk, ending);
        assert!(all.len() > 2);
        for pair in all.windows(2) {
            let (a, b) = (read(&disk, &pair[0]), read(&disk, &pair[1]));
            // The lengths stay as they were: only the content is another's.
            let fit = |bytes: &[u8], length: usize| {
                let mut bytes = bytes.to_vec();
                bytes.resize(length, 0);
                bytes
            };
            let disk = with(&disk, &pair[0], &fit(&b, a.len()));
            let disk = with(&disk, &pair[1], &fit(&a, b.len()));
            let mut reported = 0;
            match open(&disk) {
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Corruption, "{e}");
                    reported += 1;
                }
                Ok(db) => {
                    for n in 0..180 {
                        let (first, i) = (b"abc"[n / 60], (n % 60) as u8);
                        let value = vec![i; if first == b'c' { 400 } else { 100 }];
                        match db.get(&[first, i]) {
                            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..])),
                            Err(e) => {
                                assert_eq!(e.kind(), ErrorKind::Corruption, "{e}");
                                reported += 1;
                            }
                        }
                    }
                    let read: Result<Vec<_>, _> = db.iter().unwrap().forward().collect();
                    assert_eq!(read.unwrap_err().kind(), ErrorKind::Corruption);
                }
            }
            assert!(reported > 0, "{pair:?}");
        }
    }
}

// case 16
#[test]
fn a_clock_set_back_and_a_long_suspension_change_no_answer_and_stop_no_work() {
    let disk = Disk::new(7);
    let mut count = 0;
    for session in 0..6 {
        let db = open(&disk).unwrap();
        for round in 0..4 {
            // Within one run the engine's clock never goes back, whatever the
            // wall clock does; it may stand still, or jump ahead.
            if round == 1 {
                disk.pass_time(Duration::from_secs(86_400 * 30));
            }
            for _ in 0..5 {
                put(&db, count, Durability::OperatingSystem).unwrap();
                count += 1;
                db.step().unwrap();
            }
        }
        db.flush().unwrap();
        db.settle().unwrap();
        assert_eq!(prefix(&db, "session"), count);
        drop(db);
        // The next run begins before this one, and before the store was made.
        disk.turn_back(Duration::from_secs(86_400 * (31 + 10 * session)));
    }
    assert_eq!(prefix(&open(&disk).unwrap(), "at last"), count);
}

// case 16. After a job has failed, nothing is planned for 200 ms. That moment was
// compared with the clock, so a clock set back by an hour (which the engine's own
// never is, while the store is open) stopped all background work for an hour.
#[test]
fn a_failed_job_is_tried_again_although_the_clock_went_back() {
    let disk = Disk::new(8);
    let db = open(&disk).unwrap();
    put(&db, 0, Durability::OperatingSystem).unwrap();
    disk.fault_at(Where::named(".data"), 1, Fault::Io);
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Io);
    disk.turn_back(Duration::from_secs(3600));
    disk.pass_time(Duration::from_secs(1));
    for i in 1..120 {
        put(&db, i, Durability::OperatingSystem).unwrap();
    }
    let mut steps = 0;
    while db.step().unwrap() {
        steps += 1;
    }
    assert!(steps > 0, "work goes on");
    assert_eq!(prefix(&db, "after"), 120);
}
