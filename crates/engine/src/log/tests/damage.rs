//! Bytes that changed, files that are cut or gone.

use super::*;

fn read_segments(directory: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut segments: Vec<(u64, Vec<u8>)> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name();
            let id = super::super::format::parse_segment(name.to_str().unwrap()).unwrap();
            (id, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    segments.sort();
    segments
}

fn write_segments(directory: &Path, segments: &[(u64, Vec<u8>)]) {
    for entry in std::fs::read_dir(directory).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for (id, bytes) in segments {
        std::fs::write(segment_path(directory, *id), bytes).unwrap();
    }
}

/// Two segments of four and five frames, none of them ever synced.
fn two_segments(directory: &Path, options: LogOptions) -> LocalLog {
    let mut log = create_in(directory, options, 1, 0);
    append_all(&mut log, 1..=4);
    log.rotate().unwrap();
    append_all(&mut log, 5..=9);
    log
}

/// Replays, and if that succeeds checks that it is a prefix, that truncation
/// keeps exactly it, and that the log goes on from there.
fn check_prefix(directory: &Path, what: &str) -> Result<u64> {
    let (report, frames) = replay_all(directory)?;
    let last = assert_prefix(&frames, 1);
    assert_eq!(report.last_seq.0, last, "{what}");
    assert!(report.durable_seq.0 <= last, "{what}");
    let (mut log, ..) = reopen(directory, PLAIN);
    let (report, frames) = replay_all(directory).unwrap();
    assert_eq!(
        (assert_prefix(&frames, 1), report.torn),
        (last, None),
        "{what}"
    );
    append_all(&mut log, last + 1..=last + 2);
    drop(log);
    let (report, frames) = replay_all(directory).unwrap();
    assert_eq!(assert_prefix(&frames, 1), last + 2, "{what}");
    assert_eq!(report.torn, None, "{what}");
    Ok(last)
}

#[test]
fn a_sealed_log_reports_every_flipped_byte_of_its_data() {
    let directory = temporary();
    let mut log = two_segments(directory.path(), MAPPED);
    log.close().unwrap();
    drop(log);
    let sound = read_segments(directory.path());
    assert_eq!(check_prefix(directory.path(), "sound").unwrap(), 9);
    let seal_offset = sound[1].1.len() - FRAME_HEADER_BYTES;
    for segment in 0..2 {
        for at in 0..sound[segment].1.len() {
            let mut damaged = sound.clone();
            damaged[segment].1[at] ^= 1 << (at % 8);
            write_segments(directory.path(), &damaged);
            let what = format!("segment {segment} byte {at}");
            let result = check_prefix(directory.path(), &what);
            if segment == 1 && at >= seal_offset {
                // Nothing but the seal itself is hurt, and nothing is lost.
                assert_eq!(result.unwrap(), 9, "{what}");
                continue;
            }
            let error = result.expect_err(&what);
            assert_eq!(error.kind(), ErrorKind::Corruption, "{what}");
            let name = format!("{:06}.log", sound[segment].0);
            assert_eq!(error.path().unwrap().file_name().unwrap(), &*name, "{what}");
        }
    }
}

#[test]
fn without_durable_marks_every_flipped_byte_leaves_a_prefix() {
    let directory = temporary();
    drop(two_segments(directory.path(), PLAIN));
    let sound = read_segments(directory.path());
    for segment in 0..2 {
        for at in 0..sound[segment].1.len() {
            let mut damaged = sound.clone();
            damaged[segment].1[at] ^= 1 << (at % 8);
            write_segments(directory.path(), &damaged);
            let what = format!("segment {segment} byte {at}");
            let last = check_prefix(directory.path(), &what).unwrap();
            let frames_before = (at.saturating_sub(SEGMENT_HEADER_BYTES) / 72) as u64;
            assert_eq!(last, 4 * segment as u64 + frames_before, "{what}");
        }
    }
}

#[test]
fn a_log_cut_anywhere_is_a_prefix_or_an_error_if_it_was_durable() {
    for sealed in [false, true] {
        let directory = temporary();
        let mut log = two_segments(directory.path(), PLAIN);
        if sealed {
            log.close().unwrap();
        }
        drop(log);
        let sound = read_segments(directory.path());
        for segment in 0..2 {
            for length in 0..sound[segment].1.len() {
                for zeros in [0, 1, 500] {
                    let mut cut = sound.clone();
                    cut[segment].1.truncate(length);
                    cut[segment].1.resize(length + zeros, 0);
                    write_segments(directory.path(), &cut);
                    let what = format!("segment {segment} length {length} zeros {zeros}");
                    let result = check_prefix(directory.path(), &what);
                    if sealed && segment == 0 {
                        let error = result.expect_err(&what);
                        assert_eq!(error.kind(), ErrorKind::Corruption);
                    } else {
                        let last = result.unwrap();
                        let most = if segment == 0 { 4 } else { 9 };
                        assert!(last <= most, "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_torn_segment_with_a_surviving_next_one_leaves_no_gap() {
    let directory = temporary();
    drop(two_segments(directory.path(), PLAIN));
    let mut segments = read_segments(directory.path());
    let length = segments[0].1.len();
    segments[0].1.truncate(length - 5);
    write_segments(directory.path(), &segments);
    let (log, report, frames) = reopen(directory.path(), PLAIN);
    assert_eq!(assert_prefix(&frames, 1), 3);
    let torn = report.torn.unwrap();
    assert_eq!((torn.segment, torn.offset), (1, (length - 72) as u64));
    assert_eq!(torn.bytes_dropped, (72 - 5 + segments[1].1.len()) as u64);
    assert_eq!(report.next_segment, 3);
    assert_eq!(log.segments().count(), 1);
}

#[test]
fn a_durable_frame_that_is_damaged_is_an_error_and_a_later_one_is_not() {
    let directory = temporary();
    let mut log = create_in(directory.path(), PLAIN, 1, 0);
    append_all(&mut log, 1..=3);
    log.syncer().persist(SeqNo(3)).unwrap();
    append_all(&mut log, 4..=6);
    drop(log);
    let sound = read_segments(directory.path());
    for frame in 1..=6u64 {
        let mut damaged = sound.clone();
        let offset = SEGMENT_HEADER_BYTES + (frame as usize - 1) * 72;
        damaged[0].1[offset + 50] ^= 1;
        write_segments(directory.path(), &damaged);
        let result = check_prefix(directory.path(), "");
        if frame <= 3 {
            let error = result.unwrap_err();
            let message = error.to_string();
            assert!(
                message.contains(&format!("at offset {offset}")),
                "{message}"
            );
            assert!(message.contains("was durable up to 3"), "{message}");
        } else {
            assert_eq!(result.unwrap(), frame - 1);
        }
    }
}

#[test]
fn a_missing_middle_segment_is_an_error_if_it_was_durable_and_a_tail_if_not() {
    for durable in [false, true] {
        let directory = temporary();
        let mut log = two_segments(directory.path(), PLAIN);
        if durable {
            log.syncer().persist(SeqNo(9)).unwrap();
        }
        log.rotate().unwrap();
        append_all(&mut log, 10..=12);
        drop(log);
        for missing in [1, 2] {
            let segments = read_segments(directory.path());
            std::fs::remove_file(segment_path(directory.path(), missing)).unwrap();
            let result = replay_all(directory.path());
            if durable {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption);
                assert!(error.to_string().contains("is missing"), "{error}");
                let name = format!("{missing:06}.log");
                assert_eq!(error.path().unwrap().file_name().unwrap(), &*name);
            } else {
                let (report, frames) = result.unwrap();
                assert_eq!(frames.len() as u64, 4 * (missing - 1));
                assert!(report.torn.is_some());
                let (log, ..) = reopen(directory.path(), PLAIN);
                assert_eq!(log.segments().count() as u64, missing - 1);
            }
            write_segments(directory.path(), &segments);
        }
    }
}

#[test]
fn a_newest_segment_that_is_empty_or_zeros_or_torn_is_a_crash_at_creation() {
    let directory = temporary();
    drop(two_segments(directory.path(), PLAIN));
    let sound = read_segments(directory.path());
    let mut random = Random(5);
    let garbage: Vec<u8> = (0..3000).map(|_| random.next() as u8).collect();
    let header = sound[1].1[..SEGMENT_HEADER_BYTES].to_vec();
    for tail in [
        Vec::new(),
        vec![0; 4096],
        header[..50].to_vec(),
        header,
        garbage,
    ] {
        let mut segments = sound.clone();
        segments[1].1 = tail;
        write_segments(directory.path(), &segments);
        assert_eq!(check_prefix(directory.path(), "").unwrap(), 4);
    }
}

#[test]
fn garbage_and_recycled_frames_behind_the_end_are_dropped() {
    let directory = temporary();
    let mut log = create_in(directory.path(), PLAIN, 1, 0);
    append_all(&mut log, 1..=3);
    drop(log);
    let sound = read_segments(directory.path());
    // The frames of another segment, of another store, and of this one at
    // another place: all sound where they come from.
    let other = temporary();
    let mut log = create_in(other.path(), PLAIN, 9, 0);
    append_all(&mut log, 1..=9);
    drop(log);
    let recycled = read_segments(other.path())[0].1.clone();
    let shifted = sound[0].1[SEGMENT_HEADER_BYTES..].to_vec();
    let mut random = Random(6);
    let garbage: Vec<u8> = (0..5000).map(|_| random.next() as u8).collect();
    for tail in [
        &recycled[SEGMENT_HEADER_BYTES + 3 * 72..],
        &shifted,
        &garbage,
    ] {
        for zeros in [0, 8, 80] {
            let mut segments = sound.clone();
            segments[0].1.resize(sound[0].1.len() + zeros, 0);
            segments[0].1.extend_from_slice(tail);
            write_segments(directory.path(), &segments);
            let (report, _) = replay_all(directory.path()).unwrap();
            assert_eq!(
                report.torn.unwrap().bytes_dropped,
                (zeros + tail.len()) as u64
            );
            assert_eq!(check_prefix(directory.path(), "").unwrap(), 3);
        }
    }
}

#[test]
fn segments_of_another_store_or_version_are_refused() {
    let directory = temporary();
    drop(two_segments(directory.path(), PLAIN));
    let visit = &mut |_: ReplayedFrame<'_>| Ok(());
    let error = replay(&quick(), directory.path(), 1, 1, SeqNo::ZERO, visit).unwrap_err();
    assert!(error.to_string().contains("another store"), "{error}");

    let sound = read_segments(directory.path());
    // Under another's name a segment counts as little as a torn one: so a crash
    // may leave a new file that was given the blocks of an older one.
    let mut renamed = sound.clone();
    renamed[1].0 = 3;
    write_segments(directory.path(), &renamed);
    let (report, _) = replay_all(directory.path()).unwrap();
    assert!(report.torn.is_some());

    let mut newer = sound.clone();
    newer[1].1[8] = 2;
    let crc = crc32c::crc32c(&newer[1].1[..12]);
    let crc = crc32c::crc32c_append(crc, &newer[1].1[16..SEGMENT_HEADER_BYTES]);
    newer[1].1[12..16].copy_from_slice(&crc.to_le_bytes());
    write_segments(directory.path(), &newer);
    let error = replay_all(directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn no_bytes_make_replay_panic() {
    let directory = temporary();
    drop(two_segments(directory.path(), PLAIN));
    let sound = read_segments(directory.path());
    let seed = 20_260_101;
    println!("seed {seed}");
    let mut random = Random(seed);
    for _ in 0..2000 {
        let mut segments = sound.clone();
        for _ in 0..1 + random.below(8) {
            let (_, bytes) = &mut segments[random.below(2) as usize];
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = random.next() as u8,
                1 => bytes.truncate(at.max(1)),
                _ => {
                    let length = (random.below(100) as usize).min(bytes.len() - at);
                    bytes[at..at + length].fill(0);
                }
            }
        }
        write_segments(directory.path(), &segments);
        assert_prefix(&replay_all(directory.path()).unwrap().1, 1);
    }
}
