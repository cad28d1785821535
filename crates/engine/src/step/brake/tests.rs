//! Of how hard writers brake.

use thermocline_model::job::{Deeper, Flush, Reason};
use thermocline_model::table::TableId;
use thermocline_policy::pressure::patience_max;

use super::*;
use crate::job::WentDeeper;
use crate::store::{Clock, Environment};
use crate::{Db, Error, ErrorKind, Options, Tier};

#[test]
fn the_brake_rises_from_nothing_to_stop() {
    let mut memory = Emptying::default();
    let steps = |memory: &mut Emptying, now_us: u64| {
        let values = [0, 50, 60, 61, 70, 80, 90, 99, 100, 200];
        values.map(|value| memory.brake(now_us, value, 100, 60))
    };
    // As long as nobody knows how fast it is emptied, by 100 MB/s.
    let unknown = steps(&mut memory, 0);
    assert_eq!(&unknown[..3], &[0, 0, 0]);
    assert_eq!(unknown[5], 1_000_000 / 200);
    assert_eq!(&unknown[8..], &[u64::MAX, u64::MAX]);
    // Jobs of 50 ms, and then of 500.
    for _ in 0..20 {
        memory.drain.note(200_000, 50_000);
    }
    let short = steps(&mut memory, 1_000);
    assert_eq!(&short[..3], &[0, 0, 0]);
    assert!(short[2..8].is_sorted_by(|a, b| a < b), "{short:?}");
    assert_eq!(&short[8..], &[u64::MAX, u64::MAX]);
    // At half, twice what is emptied.
    assert_eq!(short[5], 1_000_000 / 8);
    for _ in 0..20 {
        memory.drain.note(2_000_000, 500_000);
    }
    // It was in need a moment ago, so the brake begins with the first byte.
    let lasting = steps(&mut memory, 2_000);
    assert!(lasting[0] == 0 && lasting[..8].is_sorted_by(|a, b| a < b));
    assert_eq!(lasting[1], 1_000_000 / 8);
    assert_eq!(memory.brake(1_400_000, 50, 100, 60), 1_000_000 / 8);
    assert_eq!(memory.brake(1_600_000, 50, 100, 60), 0);
    // Nor by a clock that went back.
    assert_eq!(memory.brake(1_000, 50, 100, 60), 0);
}

#[test]
fn writers_are_slowed_as_room_fills_that_flushes_wait_for_and_stop_for_memory_alone() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(Options::at(directory.path()).background_threads(0)).unwrap();
    let engine = db.engine();
    let with = |free_bytes| {
        let room = Room {
            free_bytes,
            bytes: 100 << 20,
        };
        engine.emptied.lock().flush_room = Some(room);
        engine.update_brake()
    };
    let steps = [60 << 20, 50 << 20, 40 << 20, 10 << 20, 1 << 20, 0].map(with);
    assert_eq!(steps[..2], [0, 0]);
    assert!(steps[1..].is_sorted_by(|a, b| a <= b) && steps[2] > 0);
    assert!(steps[5] < u64::MAX && steps[5] > 10 * steps[2], "{steps:?}");
    // Whatever a planner says.
    engine.emptied.lock().flush_room = Some(Room {
        free_bytes: 0,
        bytes: 0,
    });
    assert_eq!(engine.update_brake(), steps[5]);
    engine.emptied.lock().flush_room = None;
    assert_eq!(engine.update_brake(), 0);
}

/// Where three of four bytes are overwritten in memory, writers write four times as much before a
/// byte of room is gone. They were slowed as if each byte took one.
#[test]
fn what_is_overwritten_in_memory_takes_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path()).background_threads(0);
    let db = Db::open(options).unwrap();
    let engine = db.engine();
    let brake = |engine: &Engine| {
        engine.emptied.lock().flush_room = Some(Room {
            free_bytes: 25 << 20,
            bytes: 100 << 20,
        });
        engine.update_brake()
    };
    let before = brake(engine);
    assert!(before > 1000, "{before}");
    for round in 0..3u64 {
        for _ in 0..4 {
            for key in 0..200u64 {
                db.put(&key.to_be_bytes(), &[round as u8; 1000]).unwrap();
            }
        }
        db.flush().unwrap();
    }
    let after = brake(engine) as f64 / before as f64;
    assert!((0.2..0.3).contains(&after), "{after}");
}

#[test]
fn room_is_made_of_the_fast_levels() {
    let directory = tempfile::tempdir().unwrap();
    let (fast, slow) = (directory.path().join("f"), directory.path().join("s"));
    let options = Options::new()
        .tier(Tier::new("fast", fast))
        .tier(Tier::new("slow", slow))
        .preset("logstore")
        .newest_runs_merge(1)
        .background_threads(0);
    let db = Db::open(options).unwrap();
    for n in 0..1000u32 {
        db.put(&n.to_be_bytes(), &[7; 100]).unwrap();
    }
    db.flush().unwrap();
    while db.step().unwrap() {}
    let engine = db.engine();
    let space = engine.space(KeyspaceId::DEFAULT).unwrap();
    let tables: Vec<_> = {
        let view = space.view.load();
        let tables = view.tree.levels[0].iter().flat_map(|run| &run.tables);
        tables.map(|t| (t.meta.id, t.meta.size_bytes())).collect()
    };
    let bytes: u64 = tables.iter().map(|(_, bytes)| bytes).sum();
    assert!(bytes > 100_000);
    let job = |level| {
        let merge = Merge {
            keyspace: KeyspaceId::DEFAULT,
            inputs: tables.iter().map(|(id, _)| *id).collect(),
            output: Slot::Level(level),
            table_bytes: 1 << 20,
            rewrite: false,
            deeper: None,
            reason: Reason::new("test"),
        };
        Job::Merge(merge)
    };
    let to = |level| engine.begin_emptying(&job(level), &Arc::default(), 0);
    assert_eq!(to(6), Some((What::Room, bytes)));
    assert_eq!(engine.emptied.lock().room.running_jobs.len(), 1);
    // Within the fast levels it is what is left out.
    let ends = |level, bytes_out| {
        let done = Done {
            tables_in: tables.iter().map(|(id, _)| id.0).collect(),
            bytes_out,
            ..Done::default()
        };
        engine.emptied.lock().room = Emptying::default();
        let job = job(level);
        let progress = Arc::default();
        let begun = engine.begin_emptying(&job, &progress, 0);
        engine.end_emptying(&job, &progress, begun, &Ok(done));
        engine.emptied.lock().room.drain != Drain::default()
    };
    let free_bytes = || engine.emptied.lock().flush_room.unwrap().free_bytes;
    let free = 1 << 20;
    let bytes_max = free + 8 * bytes;
    engine.emptied.lock().flush_room = Some(Room {
        free_bytes: free,
        bytes: bytes_max,
    });
    assert!(ends(6, bytes) && ends(0, 0) && ends(0, bytes / 4));
    // It is free at once, before anybody plans.
    let gone = 2 * bytes + bytes - bytes / 4;
    assert_eq!(free_bytes(), free + gone);
    assert!(!ends(0, bytes - 100) && !ends(0, bytes) && !ends(0, 2 * bytes));
    assert_eq!(free_bytes(), free + gone);
    // What each of them has left out the next is expected to: 1, 0.75, and three times nothing.
    assert_eq!(to(0), Some((What::Room, bytes)));
    let expected = engine.emptied.lock().room.running_jobs[0].bytes / bytes as f64;
    assert!((expected - 0.625 / 8.0).abs() < 0.001, "{expected}");
    // What goes deeper at once leaves, too, and the rest is what such merges leave out.
    let Job::Merge(mut both) = job(0) else {
        unreachable!()
    };
    both.deeper = Some(Deeper {
        slot: Slot::Level(6),
        ranges: Vec::new(),
        bytes: bytes / 2,
    });
    both.inputs.push(TableId(u64::MAX));
    let (both, progress) = (Job::Merge(both), Arc::default());
    let share = engine.emptied.lock().left_out_share;
    engine.emptied.lock().room.running_jobs.clear();
    let begun = engine.begin_emptying(&both, &progress, 0);
    assert_eq!(begun, Some((What::Room, bytes)));
    let expected = engine.emptied.lock().room.running_jobs[0].bytes / bytes as f64;
    assert!(
        (expected - f64::midpoint(share, 1.0)).abs() < 0.001,
        "{expected}"
    );
    let done = Done {
        tables_in: vec![1],
        bytes_out: bytes / 4 + 10 * bytes,
        deeper: WentDeeper {
            bytes_in: bytes / 2,
            bytes_out: 10 * bytes,
        },
        ..Done::default()
    };
    engine.emptied.lock().flush_room = Some(Room {
        free_bytes: 0,
        bytes: bytes_max,
    });
    engine.end_emptying(&both, &progress, begun, &Ok(done));
    assert_eq!(free_bytes(), bytes - bytes / 4);
    let left_out = engine.emptied.lock().left_out_share;
    assert!(
        (left_out - f64::midpoint(share, 0.5)).abs() < 0.001,
        "{left_out}"
    );
    // What fails leaves nothing behind.
    engine.emptied.lock().flush_room = Some(Room {
        free_bytes: free + gone,
        bytes: bytes_max,
    });
    engine.emptied.lock().room.running_jobs.push(Running {
        progress: Arc::default(),
        bytes: 0.0,
    });
    let (failing, progress) = (job(6), Arc::default());
    let begun = engine.begin_emptying(&failing, &progress, 0);
    assert_eq!(engine.emptied.lock().room.running_jobs.len(), 2);
    let failed = Err(crate::Error::new(crate::ErrorKind::Closed, "test"));
    engine.end_emptying(&failing, &progress, begun, &failed);
    assert_eq!(engine.emptied.lock().room.running_jobs.len(), 1);
    assert_eq!(free_bytes(), free + gone);
    // What comes up makes no room.
    let Job::Merge(mut up) = job(0) else {
        unreachable!()
    };
    up.inputs.push(TableId(u64::MAX));
    let up = engine.begin_emptying(&Job::Merge(up), &Arc::default(), 0);
    assert_eq!(up, None);
    engine.emptied.lock().flush_room = None;
    assert_eq!(to(6), None, "nothing waits for it");
}

#[test]
fn what_a_job_has_done_of_making_room_counts_while_it_runs() {
    let mut room = Emptied::default().room;
    for _ in 0..20 {
        room.drain.note(1_000_000, 500_000);
    }
    let (limit, slow) = (3_000_000, 50);
    // More is taken than where writers begin to slow, which jobs of half a second remember.
    let alone = room.brake(1_000_000, 2_400_000, limit, slow);
    assert!(room.is_lasting(1_000_000));
    let progress = Arc::new(Progress::default());
    room.running_jobs.push(Running {
        progress: Arc::clone(&progress),
        bytes: 1_000_000.0,
    });
    assert_eq!(room.brake(1_000_000, 2_400_000, limit, slow), alone);
    progress.begin(900_000, 100);
    progress.add(50);
    let beside = room.brake(1_000_000, 2_400_000, limit, slow);
    assert!(beside < alone, "{beside} {alone}");
    // Were it slower, room would be gone before it ends.
    let slower = room.brake(1_900_000, 2_400_000, limit, slow);
    assert!(slower > beside, "{slower} {beside}");
    assert_eq!(room.brake(1_900_000, limit, limit, slow), u64::MAX);
}

#[test]
fn jobs_that_run_side_by_side_empty_in_one_time() {
    let mut emptying = Emptying::default();
    emptying.begin(100);
    emptying.begin(150);
    emptying.end(200, Some(1_000));
    // 100 us for the first, 100 more for the other, none between them and the next.
    emptying.end(300, Some(500));
    emptying.begin(9_000);
    emptying.end(9_100, None);
    // Nor does one that did nothing take anything from those that still run.
    emptying.begin(9_100);
    emptying.begin(9_150);
    emptying.end(9_190, None);
    emptying.end(9_200, Some(700));
    let mut expected = Drain::default();
    for bytes in [1_000, 500, 700] {
        expected.note(bytes, 100);
    }
    assert_eq!(emptying.drain, expected);
    // While writers are slowed it counts from then on, whatever runs.
    emptying.want(10_000, true);
    emptying.want(10_050, true);
    emptying.begin(10_200);
    emptying.end(10_300, Some(70));
    emptying.begin(10_900);
    emptying.want(10_950, false);
    emptying.end(11_000, Some(80));
    emptying.begin(20_000);
    emptying.end(20_100, Some(90));
    for (bytes, micros) in [(70, 300), (80, 700), (90, 100)] {
        expected.note(bytes, micros);
    }
    assert_eq!(emptying.drain, expected);
}

/// A store that rested for an hour with its room half taken makes it as fast as before.
#[test]
fn where_only_jobs_count_the_time_between_them_does_not() {
    let mut room = Emptied::default().room;
    room.want(100, true);
    room.begin(3_600_000_000);
    room.end(3_600_000_500, Some(1_000));
    let mut expected = Drain::default();
    expected.note(1_000, 500);
    assert_eq!(room.drain, expected);
}

/// Each writer used to sleep for what it owed by itself, so that eight of them kept to
/// eight times the pace.
#[test]
fn writers_keep_one_pace_together() {
    let pace = Pace::default();
    // Ten microseconds each: nobody sleeps for less than a millisecond.
    let owed: Vec<_> = (0..300).map(|_| pace.take(1_000_000, 10_000)).collect();
    assert!(owed[..100].iter().all(Option::is_none));
    let owed = owed[100..].iter().map(|o| o.unwrap().as_micros());
    assert!(owed.eq((100..300).map(|n| n * 10)));
    // Who comes later owes less, and what was not taken is not kept.
    assert_eq!(pace.take(1_001_000, 0), Some(Duration::from_millis(2)));
    assert_eq!(pace.take(5_000_000, 10_000), None);
    assert_eq!(pace.take(5_000_000, 10_000), None);
    // A long write holds up those behind it for a while, and not for all of it.
    assert_eq!(pace.take(6_000_000, 60_000_000_000), None);
    assert_eq!(pace.take(6_000_000, u64::MAX), Some(Duration::from_secs(1)));
    assert_eq!(pace.take(6_000_000, 1), Some(Duration::from_secs(1)));
    assert_eq!(pace.take(u64::MAX, 1), None);
}

#[test]
fn a_pace_is_taken_once_whoever_takes_it() {
    let pace = Pace::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    let _ = pace.take(7, 100);
                }
            });
        }
    });
    assert_eq!(pace.taken_upto_ns.load(Ordering::Relaxed), 7_000 + 400_000);
}

/// A clock that counts who gave way.
#[derive(Debug, Default)]
struct GivenWay(AtomicU64);

impl Clock for GivenWay {
    fn now_micros(&self) -> u64 {
        // Each look a millisecond after the last: to wait would show.
        (self.0.fetch_add(1 << 32, Ordering::Relaxed) >> 32) * 1000
    }

    fn sleep(&self, _: Duration) {}

    fn give_way(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Eight clients on two processors filled the memory while a flush waited for one of these.
#[test]
fn who_is_slowed_and_need_not_sleep_gives_way_and_that_is_no_stall() {
    let ways = |threads: usize| {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(GivenWay::default());
        let environment = Environment {
            clock: Arc::clone(&clock) as _,
            ..Environment::real()
        };
        let options = Options::at(directory.path()).background_threads(threads);
        let db = Db::open_in(options, &environment).unwrap();
        let engine = &db.handle.engine;
        let ways = || clock.0.load(Ordering::Relaxed) as u32;
        // Nobody else says how hard to brake.
        let turn = engine.brake_turn.lock();
        engine.counters.brake.store(0, Ordering::Relaxed);
        db.put(b"a", b"1").unwrap();
        let free = ways();
        engine.counters.brake.store(1, Ordering::Relaxed);
        for _ in 0..20 {
            db.put(b"a", &[2; 100]).unwrap();
        }
        let small = ways();
        db.put(b"a", &[3; 1 << 10]).unwrap();
        let slowed = (small, ways() - small);
        drop(turn);
        let stats = db.stats();
        assert_eq!((stats.stall_us, stats.stalled_us), (0, 0));
        (free, slowed, stats.slowdowns)
    };
    // 20 of less than 120 bytes, and one of 1 KiB and more.
    assert_eq!(ways(1), (0, (2, 1), 21));
    // Without threads there is nobody to give way to.
    assert_eq!(ways(0), (0, (0, 0), 0));
}

/// A store with a part of so many runs, at eight of which writers stop.
fn with_runs(directory: &std::path::Path, runs: usize) -> Db {
    let options = Options::at(directory)
        .preset("ohdb")
        .cuts(vec![b"m".to_vec()])
        .newest_runs_stop(8)
        .background_threads(0);
    let db = Db::open(options).unwrap();
    add_runs(&db, runs);
    db
}

fn add_runs(db: &Db, runs: usize) {
    for run in 0..runs {
        db.put(b"a", &run.to_be_bytes()).unwrap();
        db.flush().unwrap();
    }
}

/// The least patience that an engine has with so many times the memory for memtables.
fn lend(engine: &Engine, times: f64) -> f64 {
    let own = engine.options.write_buffer_bytes as f64;
    let lent = (own * (times - 1.0)) as u64;
    engine.lent.allowed.store(lent, Ordering::Release);
    engine.emptied.lock().patience = patience_max(times);
    engine.update_brake();
    engine.brake_turn.lock().times()
}

#[test]
fn while_hardly_anybody_reads_more_runs_wait_before_writers_do() {
    let directory = tempfile::tempdir().unwrap();
    let db = with_runs(directory.path(), 0);
    let engine = db.engine();
    let times = [1.0, 1.5, 3.0, 4.0].map(|times| lend(engine, times));
    assert_eq!(times, [1.0, 1.5, 3.0, 3.0]);
    add_runs(&db, 18);
    // Of 24 that there may be, as many as where writers begin to slow.
    assert_eq!(engine.update_brake(), 0);
    add_runs(&db, 2);
    let slowed = engine.update_brake();
    assert!(slowed > 0 && slowed < u64::MAX, "{slowed}");
    add_runs(&db, 3);
    assert_eq!(engine.update_brake(), u64::MAX);
}

#[test]
fn writers_of_one_part_are_slowed_early_unless_parts_may_be_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path()).background_threads(0);
    let db = Db::open(options).unwrap();
    let engine = db.engine();
    let pressed_us = || engine.spent().pressed_us;
    let brake = |parts_may_pay| {
        engine.emptied.lock().parts_may_pay = parts_may_pay;
        engine.update_brake()
    };
    // Writers stop at 24; each run has all that there is below.
    add_runs(&db, 9);
    assert_eq!([false, true].map(brake), [0; 2]);
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(pressed_us(), 0);
    add_runs(&db, 1);
    assert!(brake(false) > 0);
    assert_eq!(brake(true), 0);
    std::thread::sleep(Duration::from_millis(2));
    let pressed = pressed_us();
    assert!(pressed >= 2000);
    assert!(brake(false) > 0);
    let stands = pressed_us();
    std::thread::sleep(Duration::from_millis(2));
    assert!(pressed_us() == stands && stands >= pressed);
    // At three quarters it is no remedy any more.
    add_runs(&db, 8);
    assert_eq!(brake(true), 0);
    add_runs(&db, 1);
    let slowed = brake(true);
    assert!(slowed > 0 && slowed < u64::MAX, "{slowed}");
    add_runs(&db, 5);
    assert_eq!(brake(true), u64::MAX);
}

/// Writers would wait for merges of all parts that have more than eight runs, one after the other.
#[test]
fn who_reads_again_does_not_stop_writers_for_runs_that_were_nobodys_loss() {
    let directory = tempfile::tempdir().unwrap();
    let db = with_runs(directory.path(), 0);
    let engine = db.engine();
    assert_eq!(lend(engine, 4.0), 3.0);
    add_runs(&db, 12);
    // Now as many as when writers begin to slow, of which there are six else.
    assert_eq!(lend(engine, 1.0), 2.0);
    assert_eq!(engine.update_brake(), 0);
    // More are too many, though there are not as many as there were allowed.
    add_runs(&db, 2);
    let slowed = engine.update_brake();
    assert!(slowed > 0 && slowed < u64::MAX, "{slowed}");
    assert_eq!(engine.brake_turn.lock().times(), 2.0);
    // So for who opens it.
    drop(db);
    let db = with_runs(directory.path(), 0);
    let engine = db.engine();
    assert_eq!(engine.update_brake(), 0);
    assert_eq!(engine.brake_turn.lock().times(), 14.0 / 6.0);
    // With fewer runs there is less of it, and none in the end.
    while db.step().unwrap() {}
    assert_eq!(engine.update_brake(), 0);
    assert_eq!(engine.brake_turn.lock().times(), 1.0);
    add_runs(&db, 8);
    assert_eq!(engine.update_brake(), u64::MAX);
}

/// So many incompressible bytes.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Every key is new, so that each byte takes room; and there is much in memory before the first
/// flush.
#[test]
fn what_is_still_in_memory_is_not_taken_for_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let cuts = (1..16u8).map(|n| vec![n * 16]).collect();
    let options = Options::at(directory.path())
        .background_threads(0)
        .write_buffer_bytes(16 << 20)
        .write_buffer_grows(false)
        .cuts(cuts);
    let db = Db::open(options).unwrap();
    let engine = db.engine();
    let mut least = 1f64;
    for n in 0..30_000u64 {
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        db.put(&key, &noise(n, 1000)).unwrap();
        if n % 50 == 0 {
            while db.step().unwrap() {}
            least = least.min(engine.emptied.lock().flushed.share());
        }
    }
    assert!(engine.counters.flushes.get() > 10);
    assert!(least > 0.8, "{least}");
}

#[test]
fn a_flush_that_fails_says_nothing_of_what_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(Options::at(directory.path()).background_threads(0)).unwrap();
    let engine = db.engine();
    for key in 0..400u64 {
        db.put(&key.to_be_bytes(), &noise(key, 1000)).unwrap();
    }
    db.flush().unwrap();
    let before = engine.emptied.lock().flushed.share();
    let job = Job::Flush(Flush {
        keyspace: KeyspaceId(0),
        part: 0,
        beside: Vec::new(),
        active: false,
        reason: Reason::new("test"),
    });
    for key in 0..60u64 {
        db.put(&key.to_be_bytes(), &[1; 1000]).unwrap();
        let failed = Err(Error::new(ErrorKind::Io, "no space"));
        engine.end_emptying(
            &job,
            &Arc::new(Progress::default()),
            Some((What::Memory, 1)),
            &failed,
        );
    }
    assert_eq!(engine.emptied.lock().flushed.share(), before);
}

#[test]
fn what_was_dropped_with_its_keyspace_is_not_taken_for_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(Options::at(directory.path()).background_threads(0)).unwrap();
    let engine = db.engine();
    let other = db.create_keyspace("other", crate::KeyspaceOptions::default());
    let other = other.unwrap();
    for key in 0..20_000u64 {
        other.put(&key.to_be_bytes(), &noise(key, 1000)).unwrap();
    }
    db.drop_keyspace("other").unwrap();
    for key in 0..1000u64 {
        db.put(&key.to_be_bytes(), &noise(key, 1000)).unwrap();
    }
    db.flush().unwrap();
    let share = engine.emptied.lock().flushed.share();
    assert!(share > 0.8, "{share}");
}
