//! The log under reopening, damage, crashes and failing devices.

mod crash;
mod damage;
mod failure;
mod faulty;

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use thermocline_model::{KeyspaceId, SeqNo};

use super::format::segment_path;
use super::*;
use crate::store::Environment;
use crate::{Error, ErrorKind};

const STORE: u128 = 0xfeed_0000_0000_0000_0000_0000_0000_0001;

const MAPPED: LogOptions = LogOptions {
    segment_bytes: 4096,
    mapped: true,
};
const PLAIN: LogOptions = LogOptions {
    segment_bytes: 4096,
    mapped: false,
};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Bytes that only the frame at `first_seq` of a life has.
fn payload(life: u64, first_seq: u64, length: usize) -> Vec<u8> {
    let mut random = Random(life << 48 ^ first_seq);
    (0..length).map(|_| random.next() as u8).collect()
}

fn append(log: &mut LocalLog, first_seq: u64, count: u32, payload: &[u8]) -> Result<()> {
    log.append(SeqNo(first_seq), count, payload, crc32c::crc32c(payload))
}

/// Appends frames of one entry and 40 bytes each.
fn append_all(log: &mut LocalLog, seqs: std::ops::RangeInclusive<u64>) {
    for seq in seqs {
        append(log, seq, 1, &payload(0, seq, 40)).unwrap();
    }
}

type Frames = Vec<(u64, u32, Vec<u8>)>;

fn replay_from(directory: &Path, first_segment: u64) -> Result<(ReplayReport, Frames)> {
    replay_behind(directory, first_segment, 0)
}

fn replay_behind(
    directory: &Path,
    first_segment: u64,
    base: u64,
) -> Result<(ReplayReport, Frames)> {
    let mut frames = Vec::new();
    let base = SeqNo(base);
    let report = replay(
        &quick(),
        directory,
        STORE,
        first_segment,
        base,
        &mut |frame| {
            frames.push((frame.first_seq.0, frame.count, frame.payload.to_vec()));
            Ok(())
        },
    )?;
    Ok((report, frames))
}

fn replay_all(directory: &Path) -> Result<(ReplayReport, Frames)> {
    replay_from(directory, 1)
}

/// Asserts that the frames are those of [`append_all`] from `first` on, with no
/// gap, and returns the last number.
fn assert_prefix(frames: &Frames, first: u64) -> u64 {
    for (index, (seq, count, bytes)) in frames.iter().enumerate() {
        assert_eq!((*seq, *count), (first + index as u64, 1));
        assert!(*bytes == payload(0, *seq, 40));
    }
    first + frames.len() as u64 - 1
}

fn create_in(directory: &Path, options: LogOptions, next_segment: u64, last: u64) -> LocalLog {
    let environment = quick();
    LocalLog::create(
        &environment,
        directory,
        STORE,
        options,
        next_segment,
        SeqNo(last),
    )
    .unwrap()
}

/// Replay, truncation, and a log that goes on.
fn reopen(directory: &Path, options: LogOptions) -> (LocalLog, ReplayReport, Frames) {
    let (report, frames) = replay_all(directory).unwrap();
    truncate_torn(&quick(), directory, &report).unwrap();
    let log = create_in(directory, options, report.next_segment, report.last_seq.0);
    (log, report, frames)
}

/// The real file system, except that syncs do nothing.
fn quick() -> Environment {
    faulty::FaultyFileSystem::new().environment()
}

fn temporary() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_dropped_log_loses_nothing_mapped_or_not() {
    for options in [MAPPED, PLAIN] {
        let directory = temporary();
        let mut log = create_in(directory.path(), options, 1, 0);
        append_all(&mut log, 1..=200);
        assert!(log.segment() > 2);
        drop(log);
        let (mut log, report, frames) = reopen(directory.path(), options);
        assert_eq!(report.last_seq, SeqNo(200));
        assert_eq!((report.torn, report.frames), (None, 200));
        assert_eq!(assert_prefix(&frames, 1), 200);
        append_all(&mut log, 201..=300);
        drop(log);
        let (report, frames) = replay_all(directory.path()).unwrap();
        assert_eq!(assert_prefix(&frames, 1), 300);
        assert_eq!(report.durable_seq, SeqNo(200));
    }
}

#[test]
fn frames_of_every_size_survive_with_their_counts() {
    for options in [MAPPED, PLAIN] {
        let directory = temporary();
        let mut log = create_in(directory.path(), options, 1, 0);
        let mut expected = Vec::new();
        let mut seq = 1;
        // Larger than a segment, too, and around what plain writes gather.
        let sizes = (0..40).chain([4000, 4096, 5000, 65_535, 65_536, 65_537, 200_001, 3]);
        for (index, size) in sizes.enumerate() {
            let bytes = payload(1, seq, size);
            let count = 1 + index as u32 % 5;
            append(&mut log, seq, count, &bytes).unwrap();
            expected.push((seq, count, bytes));
            seq += u64::from(count);
        }
        let (report, frames) = replay_all(directory.path()).unwrap();
        assert!(frames == expected);
        assert_eq!(report.last_seq, SeqNo(seq - 1));
        log.close().unwrap();
        assert!(replay_all(directory.path()).unwrap().1 == expected);
    }
}

#[test]
fn an_empty_log_replays_to_nothing_and_makes_no_file() {
    let directory = temporary();
    let (report, frames) = replay_from(directory.path(), 5).unwrap();
    assert_eq!((report.last_seq, report.next_segment), (SeqNo(0), 5));
    assert!(frames.is_empty());
    let mut log = create_in(directory.path(), MAPPED, 5, 77);
    log.close().unwrap();
    assert_eq!(log.segments().count(), 0);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let directory = temporary();
    let mut log = create_in(directory.path(), MAPPED, 1, 10);
    let refuse = |log: &mut LocalLog, seq, count| {
        let error = append(log, seq, count, b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    };
    refuse(&mut log, 10, 1);
    refuse(&mut log, 0, 1);
    refuse(&mut log, 11, 0);
    refuse(&mut log, u64::MAX, 2);
    refuse(&mut log, SeqNo::MAX.0, 2);
    append_all(&mut log, 11..=12);
    refuse(&mut log, 12, 1);
    refuse(&mut log, 13, 0);
    append_all(&mut log, 13..=13);
    let error = log.syncer().persist(SeqNo(14)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    drop(log);
    let (_, frames) = replay_all(directory.path()).unwrap();
    assert_eq!(assert_prefix(&frames, 11), 13);
    let again = LocalLog::create(&quick(), directory.path(), STORE, MAPPED, 1, SeqNo(13));
    assert_eq!(again.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn numbers_may_be_skipped_and_a_new_segment_says_so() {
    let directory = temporary();
    let mut log = create_in(directory.path(), MAPPED, 1, 0);
    append_all(&mut log, 1..=3);
    append_all(&mut log, 7..=9);
    assert_eq!(log.segment(), 2);
    let (report, frames) = replay_all(directory.path()).unwrap();
    let seqs: Vec<u64> = frames.iter().map(|frame| frame.0).collect();
    assert_eq!(seqs, [1, 2, 3, 7, 8, 9]);
    assert_eq!((report.torn, report.segments), (None, 2));
}

#[test]
fn rotation_divides_and_deletion_keeps_the_rest() {
    let directory = temporary();
    let mut log = create_in(directory.path(), MAPPED, 1, 0);
    append_all(&mut log, 1..=5);
    let second = log.rotate().unwrap();
    assert_eq!((second, log.rotate().unwrap(), log.segment()), (2, 2, 2));
    append_all(&mut log, 6..=10);
    let third = log.rotate().unwrap();
    append_all(&mut log, 11..=12);
    let before = log.size_bytes();
    let freed = log.delete_before(third).unwrap();
    assert_eq!(log.size_bytes(), before - freed);
    assert!(freed > 0);
    assert_eq!(log.segments().count(), 1);
    assert_eq!(log.delete_before(99).unwrap(), 0);
    log.syncer().persist(SeqNo(12)).unwrap();
    log.close().unwrap();
    let (report, frames) = replay_from(directory.path(), third).unwrap();
    assert_eq!(assert_prefix(&frames, 11), 12);
    assert_eq!(report.durable_seq, SeqNo(12));
}

#[test]
fn a_failed_earlier_deletion_is_made_up_for_after_reopening() {
    let directory = temporary();
    let mut log = create_in(directory.path(), MAPPED, 1, 0);
    append_all(&mut log, 1..=150);
    drop(log);
    let (mut log, report, _) = reopen(directory.path(), MAPPED);
    assert!(log.segments().count() >= 3);
    log.delete_before(report.next_segment).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn closing_twice_or_without_writing_adds_one_seal_at_most() {
    let directory = temporary();
    let mut log = create_in(directory.path(), MAPPED, 1, 0);
    append_all(&mut log, 1..=5);
    log.close().unwrap();
    log.close().unwrap();
    let size = log.size_bytes();
    drop(log);
    let path = segment_path(directory.path(), 1);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), size);
    for _ in 0..3 {
        let (mut log, report, frames) = reopen(directory.path(), MAPPED);
        assert_eq!(assert_prefix(&frames, 1), 5);
        assert_eq!((report.torn, report.durable_seq), (None, SeqNo(5)));
        log.close().unwrap();
        assert_eq!(log.segments().count(), 1);
    }
    // Unsealed, it is sealed by the next clean close, in a segment of its own.
    let (mut log, ..) = reopen(directory.path(), MAPPED);
    append_all(&mut log, 6..=6);
    drop(log);
    for _ in 0..3 {
        let (mut log, report, _) = reopen(directory.path(), MAPPED);
        assert_eq!(report.last_seq, SeqNo(6));
        log.close().unwrap();
        assert_eq!(log.segments().count(), 3);
    }
    let (mut log, ..) = reopen(directory.path(), MAPPED);
    append_all(&mut log, 7..=8);
    log.close().unwrap();
    append_all(&mut log, 9..=9);
    drop(log);
    let (report, frames) = replay_all(directory.path()).unwrap();
    assert_eq!(assert_prefix(&frames, 1), 9);
    assert_eq!(report.torn, None);
}

#[test]
fn concurrent_writers_share_syncs_and_every_one_is_durable() {
    let directory = temporary();
    let slow = faulty::FaultyFileSystem::new();
    slow.sync_micros(2000);
    let environment = slow.environment();
    let log = LocalLog::create(&environment, directory.path(), STORE, PLAIN, 1, SeqNo(0));
    let log = parking_lot::Mutex::new((log.unwrap(), 0));
    let syncer = log.lock().0.syncer();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let seq = {
                        let (log, last) = &mut *log.lock();
                        *last += 1;
                        append(log, *last, 1, &payload(0, *last, 40)).unwrap();
                        *last
                    };
                    syncer.persist(SeqNo(seq)).unwrap();
                    assert!(syncer.durable_seq() >= SeqNo(seq));
                }
            });
        }
    });
    assert_eq!(syncer.durable_seq(), SeqNo(160));
    assert!(syncer.syncs() < 100, "{} syncs", syncer.syncs());
    assert_eq!(slow.syncs(), syncer.syncs());
    let (_, frames) = replay_all(directory.path()).unwrap();
    assert_eq!(assert_prefix(&frames, 1), 160);
}

#[test]
fn every_older_segment_is_synced_before_a_later_frame_is_durable() {
    let directory = temporary();
    let watched = faulty::FaultyFileSystem::new();
    let environment = watched.environment();
    let log = LocalLog::create(&environment, directory.path(), STORE, PLAIN, 1, SeqNo(0));
    let mut log = log.unwrap();
    append_all(&mut log, 1..=150);
    let segments = log.segments().count();
    assert!(segments >= 3);
    log.syncer().persist(SeqNo(150)).unwrap();
    let mut names: Vec<String> = (1..=segments).map(|id| format!("{id:06}.log")).collect();
    names.push("directory".to_owned());
    assert_eq!(watched.synced(), names);
    // The complete ones are not synced again, nor is the name.
    append_all(&mut log, 151..=151);
    log.syncer().persist(SeqNo(151)).unwrap();
    assert_eq!(
        watched.synced()[names.len()..],
        names[segments - 1..segments]
    );
}

#[test]
fn the_real_device_syncs_and_replays() {
    for options in [MAPPED, PLAIN] {
        let directory = temporary();
        let real = Environment::real();
        let path = directory.path();
        let mut log = LocalLog::create(&real, path, STORE, options, 1, SeqNo(0)).unwrap();
        append_all(&mut log, 1..=100);
        log.syncer().persist(SeqNo(100)).unwrap();
        append_all(&mut log, 101..=110);
        log.close().unwrap();
        let mut frames = 0;
        let report = replay(&real, path, STORE, 1, SeqNo::ZERO, &mut |_| {
            frames += 1;
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!((frames, report.durable_seq), (110, SeqNo(110)));
        truncate_torn(&real, path, &report).unwrap();
    }
}

#[test]
fn where_nothing_can_be_mapped_the_log_is_written_plainly() {
    let directory = temporary();
    let unmapped = faulty::FaultyFileSystem::new();
    unmapped.refuse_maps();
    let environment = unmapped.environment();
    let log = LocalLog::create(&environment, directory.path(), STORE, MAPPED, 1, SeqNo(0));
    append_all(&mut log.unwrap(), 1..=100);
    let (_, frames) = replay_all(directory.path()).unwrap();
    assert_eq!(assert_prefix(&frames, 1), 100);
}

#[test]
fn the_log_is_usable_through_its_trait() {
    let directory = temporary();
    let mut log: Box<dyn LogSink> = Box::new(create_in(directory.path(), MAPPED, 1, 0));
    log.append(SeqNo(1), 1, b"x", crc32c::crc32c(b"x")).unwrap();
    let persister: Arc<dyn LogPersist> = log.persister();
    persister.persist(SeqNo(1)).unwrap();
    assert_eq!(persister.durable_seq(), SeqNo(1));
    assert_eq!(log.rotate().unwrap(), 2);
    let mut taken = log.take_before(2);
    assert_eq!((log.segment(), taken.len()), (2, 1));
    log.put_back(taken);
    taken = log.take_before(2);
    assert!(persister.delete(&mut taken).unwrap() > 0);
    assert_eq!((taken.len(), log.size_bytes()), (0, 0));
    log.close().unwrap();
}

#[test]
fn scan_finds_every_frame_and_every_damaged_stretch() {
    let directory = temporary();
    let mut log = create_in(directory.path(), MAPPED, 1, 0);
    append_all(&mut log, 1..=5);
    drop(log);
    let path = segment_path(directory.path(), 1);
    let summary = |store_id| {
        let mut found = Vec::new();
        scan_frames(&quick(), &path, store_id, &mut |item| {
            found.push(match item {
                Found::Header(header) => format!("header {}", header.first_seq),
                Found::Frame {
                    offset, first_seq, ..
                } => format!("frame {first_seq} at {offset}"),
                Found::Damaged { offset, length, .. } => format!("damage {offset}+{length}"),
                Found::Zeros { offset, length } => format!("zeros {offset}+{length}"),
            });
            Ok(())
        })?;
        Ok::<_, Error>(found.join(", "))
    };
    let rest = "frame 4 at 312, frame 5 at 384, zeros 456+3640";
    assert_eq!(
        summary(None).unwrap(),
        format!("header 1, frame 1 at 96, frame 2 at 168, frame 3 at 240, {rest}")
    );
    assert!(summary(Some(1)).is_err());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[180] ^= 1;
    bytes[270] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(
        summary(None).unwrap(),
        format!("header 1, frame 1 at 96, damage 168+144, {rest}")
    );
    bytes[0] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let damaged = summary(None).unwrap();
    assert!(damaged.starts_with("damage 0+"), "{damaged}");
    assert!(damaged.ends_with(rest), "{damaged}");
}

#[test]
fn segment_bytes_are_those_of_the_format_page() {
    let mut batch = crate::WriteBatch::new();
    batch.put(b"k", b"v").unwrap();
    let (keyspace, kind) = (KeyspaceId(300), thermocline_model::Kind::Delete);
    batch.push(keyspace, kind, b"gone", b"").unwrap();
    batch.delete_range(b"a", b"b").unwrap();
    for options in [MAPPED, PLAIN] {
        let directory = temporary();
        let mut log = create_in(directory.path(), options, 7, 20);
        append(&mut log, 21, batch.len() as u32, batch.encoded()).unwrap();
        log.close().unwrap();
        let bytes = std::fs::read(segment_path(directory.path(), 7)).unwrap();
        let hex: Vec<String> = bytes
            .chunks(8)
            .map(|word| word.iter().map(|b| format!("{b:02x}")).collect())
            .collect();
        assert_eq!(hex.join("\n"), GOLDEN);
    }
}

/// Eight bytes a line.
const GOLDEN: &str = "\
5448435f4c4f470a\n\
0100000076a99458\n\
0100000000000000\n\
000000000000edfe\n\
0700000000000000\n\
1500000000000000\n\
0000000000000000\n\
0000000000000000\n\
1400000000000000\n\
1400000000000000\n\
0000000000000000\n\
0000000000000000\n\
812f355aebded9b2\n\
1200000003000000\n\
1500000000000000\n\
1400000000000000\n\
01016b017680ac02\n\
04676f6e65020161\n\
0162000000000000\n\
a33aa33600000000\n\
0000000000000000\n\
1800000000000000\n\
1700000000000000";

/// A store that another process wrote to was said to be damaged by nearly every opening to read it:
/// what had become durable between two looks at the last segment lay behind what the first one had
/// seen.
#[test]
fn a_log_that_grows_while_it_is_read_ends_where_it_was_read() {
    for options in [MAPPED, PLAIN] {
        let directory = TempDir::new().unwrap();
        let mut log = create_in(directory.path(), options, 1, 0);
        append_all(&mut log, 1..=5);
        let mut end = 5;
        let mut read = |is_live: bool| {
            let reading = Reading {
                without: &[],
                is_live,
            };
            let environment = quick();
            let directory = directory.path();
            replay_as(
                reading,
                &environment,
                directory,
                STORE,
                1,
                SeqNo(0),
                &mut |_| {
                    // Each is durable before the next one, which says so.
                    append_all(&mut log, end + 1..=end + 1);
                    log.syncer().persist(SeqNo(end + 1)).unwrap();
                    append_all(&mut log, end + 2..=end + 2);
                    end += 2;
                    Ok(())
                },
            )
        };
        let report = read(true).unwrap();
        assert_eq!((report.last_seq, report.torn), (SeqNo(5), None));
        // Nobody else may write where the log is about to be written on.
        let error = read(false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}
