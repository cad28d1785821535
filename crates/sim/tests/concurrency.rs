//! Many threads on one store with very little memory: readers never go back in
//! time, batches over keyspaces are seen whole, iterators and snapshots stand
//! still, whatever flushes and merges do meanwhile.
//!
//! `THERMOCLINE_CONCURRENCY_SECONDS` sets how long.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thermocline::{Db, ErrorKind, Keyspace, KeyspaceOptions, Options, Tier, WriteBatch};
use thermocline_sim::Dice;

const WRITERS: u64 = 4;
const KEYS: u64 = 200;

fn seconds() -> u64 {
    std::env::var("THERMOCLINE_CONCURRENCY_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(5)
}

fn open(path: &std::path::Path) -> Db {
    let options = Options::new()
        .tier(
            Tier::new("fast", path.join("fast"))
                .block_bytes(1024)
                .capacity_bytes(1 << 20),
        )
        .tier(Tier::new("slow", path.join("slow")).block_bytes(1024))
        .write_buffer_bytes(512 << 10)
        .memtable_bytes(32 << 10)
        .table_bytes(32 << 10)
        .first_level_bytes(64 << 10)
        .level_ratio(4)
        .newest_runs_merge(2)
        .newest_runs_stop(8)
        .log_segment_bytes(64 << 10)
        .log_bytes_max(512 << 10)
        .block_cache_bytes(64 << 10)
        .pinned_meta_bytes(16 << 10)
        .reserve_bytes(0)
        .background_threads(3)
        .cuts(vec![b"w1".to_vec(), b"w2/k100".to_vec()]);
    Db::open(options).unwrap()
}

fn key(writer: u64, n: u64) -> Vec<u8> {
    format!("w{writer}/k{n:03}").into_bytes()
}

fn value(count: u64) -> Vec<u8> {
    let mut value = count.to_be_bytes().to_vec();
    value.resize(8 + (count % 300) as usize, count as u8);
    value
}

fn count(value: &[u8]) -> u64 {
    let count = u64::from_be_bytes(*value.first_chunk().unwrap());
    assert_eq!(value.len() as u64, 8 + count % 300);
    assert!(value[8..].iter().all(|&b| b == count as u8));
    count
}

/// Stops everybody when one of them panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Once, two merges into an empty level ended at the same time and each began
/// a run of its own there. The job that was to join the two found nothing that
/// overlapped, did nothing, and was planned again for ever, while writers
/// waited for the newest level behind it.
#[test]
fn readers_never_go_back_in_time_and_see_batches_whole() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let mirror = db
        .create_keyspace(
            "mirror",
            KeyspaceOptions::default().cuts(vec![b"w3".to_vec()]),
        )
        .unwrap();
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let until = Instant::now() + Duration::from_secs(seconds());
    let over = || stop.load(Ordering::Relaxed) || Instant::now() > until;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, mirror, stop, over, done) = (&db, &mirror, &stop, &over, &done);
            scope.spawn(move || {
                let _stop = Stop(stop);
                let mut dice = Dice(writer);
                let mut n = 0;
                while !over() {
                    n += 1;
                    let key = key(writer, dice.below(KEYS));
                    let mut batch = WriteBatch::new();
                    // The same in both keyspaces, always, and in both parts.
                    batch.put(&key, &value(n)).unwrap();
                    batch.put_in(mirror, &key, &value(n)).unwrap();
                    batch
                        .put(format!("zz/{writer}").as_bytes(), &value(n))
                        .unwrap();
                    batch
                        .put_in(mirror, format!("a/{writer}").as_bytes(), &value(n))
                        .unwrap();
                    db.write(&batch).unwrap();
                    let mine = db.get(format!("zz/{writer}").as_bytes()).unwrap().unwrap();
                    assert_eq!(count(&mine), n, "a writer reads its own write");
                }
                done.fetch_add(1, Ordering::Relaxed);
                stop.store(true, Ordering::Relaxed);
            });
        }
        {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                // A stall must tell its story instead of hanging.
                while done.load(Ordering::Relaxed) < WRITERS {
                    if Instant::now() > until + Duration::from_secs(20) {
                        let stats = db.stats();
                        println!("{stats}\nbrake {}", stats.brake_ns_per_byte);
                        for event in db.events(40) {
                            println!("{event}");
                        }
                        std::process::exit(1);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
        for reader in 0..2 {
            let (db, mirror, stop, over, reads) = (&db, &mirror, &stop, &over, &reads);
            scope.spawn(move || {
                let _stop = Stop(stop);
                let mut dice = Dice(100 + reader);
                let mut newest: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
                while !over() {
                    let keys: Vec<_> = (0..5)
                        .map(|_| key(dice.below(WRITERS), dice.below(KEYS)))
                        .collect();
                    let space: &Keyspace = if dice.percent(50) { db } else { mirror };
                    let borrowed: Vec<&[u8]> = keys.iter().map(|k| &**k).collect();
                    let found = if dice.percent(50) {
                        space.multi_get(&borrowed).unwrap()
                    } else {
                        borrowed.iter().map(|k| space.get(k).unwrap()).collect()
                    };
                    for (key, value) in keys.into_iter().zip(found) {
                        let now = value.map_or(0, |v| count(&v));
                        let before = newest.insert(key.clone(), now).unwrap_or(0);
                        assert!(
                            now >= before,
                            "{} went from {before} to {now}",
                            key.escape_ascii()
                        );
                    }
                    reads.fetch_add(5, Ordering::Relaxed);
                }
            });
        }
        let (db, mirror, stop, over) = (&db, &mirror, &stop, &over);
        scope.spawn(move || {
            let _stop = Stop(stop);
            let all = |iter: thermocline::Iter| {
                iter.forward()
                    .map(Result::unwrap)
                    .collect::<BTreeMap<_, _>>()
            };
            while !over() {
                let snapshot = db.snapshot();
                let here = all(snapshot.iter().unwrap());
                let unbounded = std::ops::Bound::Unbounded;
                let there = all(snapshot.range_in(mirror, unbounded, unbounded).unwrap());
                for writer in 0..WRITERS {
                    let last = here.get(format!("zz/{writer}").as_bytes());
                    assert_eq!(
                        last,
                        there.get(format!("a/{writer}").as_bytes()),
                        "a batch is seen by half"
                    );
                    let mine = here.range(key(writer, 0)..key(writer, 999));
                    assert!(
                        mine.clone()
                            .eq(there.range(key(writer, 0)..key(writer, 999))),
                        "keyspaces differ"
                    );
                    assert_eq!(
                        mine.map(|(_, v)| count(v)).max(),
                        last.map(|v| count(v)),
                        "an entry is lost"
                    );
                }
                let mut backward: Vec<_> = snapshot
                    .iter()
                    .unwrap()
                    .backward()
                    .map(Result::unwrap)
                    .collect();
                backward.reverse();
                assert!(backward.into_iter().eq(here), "a snapshot moved");
            }
        });
        scope.spawn(move || {
            let _stop = Stop(stop);
            let mut dice = Dice(200);
            while !over() {
                match dice.below(4) {
                    0 => db.flush().unwrap(),
                    1 => mirror
                        .compact_range(Some(&key(dice.below(4), 50)), None)
                        .unwrap(),
                    2 => {
                        let space = db
                            .create_keyspace("brief", KeyspaceOptions::default())
                            .unwrap();
                        let mut load = space.bulk_load().unwrap();
                        for i in 0..500u32 {
                            load.add(&i.to_be_bytes(), &[1; 100]).unwrap();
                            space.put(&i.to_be_bytes(), &[2; 100]).unwrap();
                        }
                        load.finish().unwrap();
                        let mut iter = space.iter().unwrap();
                        iter.seek_to_first().unwrap();
                        db.drop_keyspace("brief").unwrap();
                        assert_eq!(space.put(b"k", b"v").unwrap_err().kind(), ErrorKind::Closed);
                        assert_eq!(
                            iter.forward()
                                .filter(|e| e.as_ref().unwrap().1 == [1; 100])
                                .count(),
                            500
                        );
                    }
                    _ => {
                        let place = tempfile::tempdir().unwrap();
                        db.checkpoint(&place.path().join("c")).unwrap();
                        let tier = |name: &str| {
                            Tier::new(name, place.path().join("c").join(name)).block_bytes(1024)
                        };
                        let copy =
                            Db::open(Options::new().tier(tier("fast")).tier(tier("slow"))).unwrap();
                        let there = copy.keyspace("mirror").unwrap();
                        for writer in 0..WRITERS {
                            let one = copy.get(format!("zz/{writer}").as_bytes()).unwrap();
                            let other = there.get(format!("a/{writer}").as_bytes()).unwrap();
                            assert_eq!(
                                one.as_deref(),
                                other.as_deref(),
                                "the checkpoint holds half a batch"
                            );
                        }
                    }
                }
            }
        });
    });
    let stats = db.stats();
    assert_eq!(stats.job_errors, 0, "{:?}", stats.last_error);
    println!("{} reads\n{stats}", reads.load(Ordering::Relaxed));
    let before: Vec<_> = db.iter().unwrap().forward().map(Result::unwrap).collect();
    drop((db, mirror));
    let db = open(directory.path());
    assert!(db.iter().unwrap().forward().map(Result::unwrap).eq(before));
}

#[test]
fn an_iterator_outlives_the_store_that_made_it() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    for i in 0..5000u64 {
        db.put(&key(i % 4, i / 4), &value(i)).unwrap();
    }
    let mut iter = db.iter().unwrap();
    iter.seek_to_first().unwrap();
    let pinned = db.get(&key(1, 1)).unwrap().unwrap();
    db.compact_range(None, None).unwrap();
    let (handle, space) = (
        db.clone(),
        db.create_keyspace("s", KeyspaceOptions::default()).unwrap(),
    );
    db.close().unwrap();
    assert_eq!(
        handle.put(b"k", b"v").unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert_eq!(space.put(b"k", b"v").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(handle.flush().unwrap_err().kind(), ErrorKind::Closed);
    drop((handle, space));
    let mut seen = 0;
    while iter.valid() {
        count(iter.value());
        seen += 1;
        iter.next().unwrap();
    }
    assert_eq!(seen, 5000);
    drop(iter);
    assert_eq!(count(&pinned), 5);
    assert_eq!(
        open(directory.path()).iter().unwrap().backward().count(),
        5000
    );
}

/// Flushes were planned only for parts that hold a quarter of the write buffer
/// in sealed memtables. Forty parts can fill the whole buffer without one that
/// does: writers then stopped for ever, and nobody made room.
#[test]
fn many_parts_that_fill_the_memory_together_do_not_stop_writers() {
    let directory = tempfile::tempdir().unwrap();
    let cuts = (1..40u8).map(|part| vec![part]).collect();
    let options = Options::at(directory.path())
        .write_buffer_bytes(256 << 10)
        .memtable_bytes(32 << 10);
    let db = Db::open(options.cuts(cuts).background_threads(2)).unwrap();
    for i in 0..4000u32 {
        db.put(
            &[&[(i % 40) as u8][..], &i.to_be_bytes()].concat(),
            &[7; 1000],
        )
        .unwrap();
    }
    assert_eq!(db.iter().unwrap().forward().count(), 4000);
}

/// The flush that was planned to free the log looked for sealed memtables, and
/// the part that pinned the log had none: it did nothing, and was planned again
/// at once, for ever, while the log grew.
#[test]
fn a_cold_keyspace_does_not_keep_the_log_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path())
        .write_buffer_bytes(256 << 10)
        .memtable_bytes(32 << 10);
    let options = options
        .log_segment_bytes(64 << 10)
        .log_bytes_max(256 << 10)
        .background_threads(0);
    let db = Db::open(options).unwrap();
    let cold = db
        .create_keyspace("cold", KeyspaceOptions::default())
        .unwrap();
    cold.put(b"once", b"1").unwrap();
    for i in 0..4000u32 {
        db.put(&i.to_be_bytes(), &[7; 1000]).unwrap();
        db.step().unwrap();
    }
    assert!(db.stats().log_bytes <= 512 << 10, "{}", db.stats());
    assert_eq!(cold.get(b"once").unwrap().as_deref(), Some(&b"1"[..]));
}
