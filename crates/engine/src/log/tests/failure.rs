//! Devices that fail while the log is written.

use super::faulty::FaultyFileSystem;
use super::*;

fn faulty_log(faulty: &FaultyFileSystem, directory: &Path) -> LocalLog {
    let environment = faulty.environment();
    LocalLog::create(&environment, directory, STORE, PLAIN, 1, SeqNo(0)).unwrap()
}

#[test]
fn after_a_full_device_appends_resume_and_nothing_good_is_lost() {
    // Every place where the device can become full, in the header of the
    // segment or in a frame; with the remains cut or left there.
    for room in 0..420 {
        for remains in [false, true] {
            let directory = temporary();
            let faulty = FaultyFileSystem::new();
            let mut log = faulty_log(&faulty, directory.path());
            faulty.room_bytes(room);
            faulty.cut_and_unlink_fail(remains);
            let mut good = Vec::new();
            let mut seq = 1;
            let failed = loop {
                let bytes = payload(0, seq, 40);
                match append(&mut log, seq, 1, &bytes) {
                    Ok(()) => good.push((seq, 1, bytes)),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                        break seq;
                    }
                }
                seq += 1;
            };
            // Still full: still refused, and no harm done.
            assert!(append(&mut log, failed + 1, 1, b"too much").is_err());
            faulty.room_bytes(i64::MAX);
            // The number is used again by another frame, or skipped.
            let next = failed + u64::try_from(room).unwrap() % 2;
            let bytes = payload(7, next, 33);
            append(&mut log, next, 2, &bytes).unwrap();
            good.push((next, 2, bytes));
            log.syncer().persist(SeqNo(next + 1)).unwrap();
            let bytes = payload(7, next + 2, 90);
            append(&mut log, next + 2, 1, &bytes).unwrap();
            good.push((next + 2, 1, bytes));
            drop(log);

            let (log, report, frames) = reopen(directory.path(), PLAIN);
            assert!(frames == good, "room {room} {remains}");
            assert_eq!(report.torn, None, "room {room} {remains}");
            drop(log);
            let (_, frames) = replay_all(directory.path()).unwrap();
            assert!(frames == good, "room {room} {remains}");
        }
    }
}

#[test]
fn segments_that_could_not_be_deleted_stay_in_the_books_until_they_are() {
    let directory = temporary();
    let faulty = FaultyFileSystem::new();
    let mut log = faulty_log(&faulty, directory.path());
    for seq in 1..=3 {
        append(&mut log, seq, 1, b"entry").unwrap();
        log.rotate().unwrap();
    }
    append(&mut log, 4, 1, b"entry").unwrap();
    let in_books = |log: &LocalLog| log.segments().map(|(id, _)| id).collect::<Vec<_>>();
    let bytes = log.size_bytes();

    faulty.cut_and_unlink_fail(true);
    assert_eq!(log.delete_before(3).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(
        (in_books(&log), log.size_bytes()),
        (vec![1, 2, 3, 4], bytes)
    );

    // The first goes, the second does not.
    let mut taken = log.take_before(3);
    assert_eq!(in_books(&log), [3, 4]);
    let second = taken.split_off(1);
    faulty.cut_and_unlink_fail(false);
    log.syncer().delete(&mut taken).unwrap();
    assert!(taken.is_empty());
    log.put_back(second);
    assert_eq!(in_books(&log), [2, 3, 4]);
    assert!(log.delete_before(4).unwrap() > 0);
    assert_eq!(in_books(&log), [4]);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn the_remains_of_a_failed_append_do_not_follow_a_segment_that_is_gone() {
    // Segment 1 holds a whole-looking frame that failed; segment 2, which says
    // so, is torn before its first frame. Cutting 2 must not revive the frame.
    let directory = temporary();
    let mut log = create_in(directory.path(), PLAIN, 1, 0);
    append_all(&mut log, 1..=2);
    let end = log.size_bytes();
    append_all(&mut log, 3..=3);
    drop(log);
    let first = segment_path(directory.path(), 1);
    let with_three = std::fs::read(&first).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&first)
        .unwrap()
        .set_len(end)
        .unwrap();
    let mut log = create_in(directory.path(), PLAIN, 2, 2);
    append(&mut log, 3, 1, b"another three").unwrap();
    drop(log);
    std::fs::write(&first, with_three).unwrap();
    let second = segment_path(directory.path(), 2);
    let mut bytes = std::fs::read(&second).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&second, bytes).unwrap();

    let (log, report, frames) = reopen(directory.path(), PLAIN);
    assert_eq!(assert_prefix(&frames, 1), 2);
    assert_eq!(report.torn.unwrap().segment, 2);
    drop(log);
    let (report, frames) = replay_all(directory.path()).unwrap();
    assert_eq!(assert_prefix(&frames, 1), 2);
    assert_eq!(report.torn, None);
}

#[test]
fn a_failed_sync_poisons_persist_and_append_for_good() {
    let directory = temporary();
    let faulty = FaultyFileSystem::new();
    let mut log = faulty_log(&faulty, directory.path());
    append_all(&mut log, 1..=3);
    let syncer = log.syncer();
    syncer.persist(SeqNo(2)).unwrap();
    append_all(&mut log, 4..=4);
    faulty.sync_fails(true);
    let error = syncer.persist(SeqNo(4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(error.to_string().contains("000001.log"), "{error}");
    faulty.sync_fails(false);
    for seq in 1..=4 {
        let error = syncer.persist(SeqNo(seq)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
    }
    let error = append(&mut log, 5, 1, b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert_eq!(log.rotate().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(log.close().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(syncer.durable_seq(), SeqNo(3));
}

#[test]
fn waiting_writers_learn_of_the_failed_sync() {
    let directory = temporary();
    let faulty = FaultyFileSystem::new();
    let mut log = faulty_log(&faulty, directory.path());
    append_all(&mut log, 1..=4);
    faulty.sync_fails(true);
    faulty.sync_micros(20_000);
    let syncer = log.syncer();
    std::thread::scope(|scope| {
        for seq in 1..=4 {
            let syncer = &syncer;
            scope.spawn(move || {
                let error = syncer.persist(SeqNo(seq)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Poisoned);
            });
        }
    });
}

#[test]
fn a_mapped_segment_that_fails_is_an_error_and_the_next_append_goes_on() {
    let directory = temporary();
    let mut log = create_in(directory.path(), MAPPED, 1, 0);
    append_all(&mut log, 1..=1);
    let path = segment_path(directory.path(), 1);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(0).unwrap();
    let error = append(&mut log, 2, 1, b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("000001.log"), "{error}");
    append_all(&mut log, 2..=3);
    assert_eq!(log.segment(), 2);
}

#[test]
fn a_skipped_segment_does_not_come_back_when_the_one_that_skips_it_is_dropped() {
    // Segment 2 holds a whole-looking frame whose append failed and whose file
    // could not be deleted; segment 3, which passes over it, is torn.
    let directory = temporary();
    let mut log = create_in(directory.path(), PLAIN, 1, 0);
    append_all(&mut log, 1..=2);
    log.rotate().unwrap();
    append_all(&mut log, 3..=3);
    drop(log);
    let second = segment_path(directory.path(), 2);
    let remains = std::fs::read(&second).unwrap();
    std::fs::remove_file(&second).unwrap();
    let mut log = create_in(directory.path(), PLAIN, 3, 2);
    append(&mut log, 3, 1, b"another three").unwrap();
    drop(log);
    std::fs::write(&second, remains).unwrap();
    let third = segment_path(directory.path(), 3);
    let mut bytes = std::fs::read(&third).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&third, bytes).unwrap();

    let (log, report, frames) = reopen(directory.path(), PLAIN);
    assert_eq!(assert_prefix(&frames, 1), 2);
    assert_eq!((report.torn.unwrap().segment, report.next_segment), (3, 4));
    drop(log);
    let (report, frames) = replay_all(directory.path()).unwrap();
    assert_eq!(assert_prefix(&frames, 1), 2);
    assert_eq!((report.torn, report.next_segment), (None, 2));
}
