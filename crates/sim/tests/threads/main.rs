//! Models of what threads can do to each other: the engine's own code, built
//! with `--cfg shuttle`, under a scheduler that tries out interleavings and
//! repeats each from its seed (see `crates/engine/src/sync`). Without that flag
//! there is nothing here.
//!
//!     RUSTFLAGS="--cfg shuttle" cargo test -p thermocline-sim --test threads \
//!         --target-dir target/shuttle
//!
//! `THERMOCLINE_SEED` and `THERMOCLINE_COUNT` choose the schedules. A thread may
//! be stopped at every call of an atomic, a lock or a file. What is remembered
//! about acknowledgements lies in plain atomics, which the scheduler does not
//! see. Batches are written by `Db::write`: the other calls keep a buffer for
//! each thread of the system, and all threads of a model share one of these.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod files;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shuttle::current::context_switches;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Mutex;
use shuttle::{Config, FailurePersistence, Runner, thread};
use thermocline::log::{LocalLog, LogOptions, LogSyncer, replay};
use thermocline::memory::{ArenaPool, Memtable, MemtableOptions};
use thermocline::{
    Compression, Db, Durability, ErrorKind, Options, Slice, Snapshot, Tier, WriteBatch,
};
use thermocline_model::key::{Kind, Prefix, SeqNo};
use thermocline_sim::disk::{Disk, Down, Fault, Where};
use thermocline_sim::harness::seeds;

use files::Watched;

/// The engine needs more than a model's threads usually have.
const STACK_BYTES: usize = 512 << 10;

/// How often the scheduler by priorities changes them within a run.
const CHANGES: usize = 4;

/// Runs `model` under `count` schedules thrown by dice, and as many in which
/// one thread runs as long as it can and another takes over at a few places.
fn explore(count: u64, model: fn()) {
    let seeds = seeds(1, count);
    let (seed, count) = (seeds.start, (seeds.end - seeds.start) as usize);
    println!("seed {seed}: {count} schedules by dice, {count} by priorities");
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let steps = Arc::new(AtomicU64::new(0));
    let counted = || {
        let steps = Arc::clone(&steps);
        move || {
            model();
            steps.fetch_add(context_switches() as u64, Ordering::Relaxed);
        }
    };
    let dice = RandomScheduler::new_from_seed(seed, count);
    Runner::new(dice, config.clone()).run(counted());
    let priorities = PctScheduler::new_from_seed(seed, CHANGES, count);
    Runner::new(priorities, config).run(counted());
    println!("{} steps", steps.load(Ordering::Relaxed));
}

fn join_all(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

// The skiplist.

const WRITERS: u64 = 3;
/// Entries put in before the threads begin: they nearly fill the first chunk.
const FIRST: u64 = 9;
const LAST: u64 = FIRST + 9;
/// Inserted by every writer, as a log is that is replayed twice.
const SHARED: u64 = LAST + 1;

/// Entry `seq`: few keys, so that most have several versions; values inside,
/// beside and outside the entry.
fn entry(seq: u64) -> (Vec<u8>, u64, Vec<u8>) {
    let number = seq * 3 % 5;
    let bytes = match seq {
        ..=FIRST => 32_000,
        _ if seq % 4 == 0 => 40_000,
        _ => 11_000 + seq as usize,
    };
    let hash = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (
        format!("key{number}").into_bytes(),
        hash,
        vec![seq as u8; bytes],
    )
}

fn insert(memtable: &Memtable, seq: u64) {
    let (key, hash, value) = entry(seq);
    memtable.insert(&key, hash, SeqNo(seq), Kind::Put, &value);
}

fn finds(memtable: &Memtable, seq: u64) {
    let (key, hash, value) = entry(seq);
    let hit = memtable.get(&key, hash, SeqNo(seq));
    let hit = hit.unwrap_or_else(|| panic!("{seq} is not found"));
    assert_eq!(hit.seq, SeqNo(seq), "another version stands before it");
    assert!(hit.value == value, "{seq} is not whole");
}

/// Walks over all entries; returns their numbers as bits.
fn walk(memtable: &Memtable, back: bool) -> u64 {
    let mut cursor = memtable.cursor();
    let mut found = 0;
    let mut last: Option<(Vec<u8>, u64)> = None;
    if back {
        cursor.seek_last();
    } else {
        cursor.seek_first();
    }
    while cursor.valid() {
        let seq = cursor.seq().0;
        let (key, _, value) = entry(seq);
        assert_eq!(cursor.key(), key);
        assert!(cursor.value() == value, "{seq} is not whole");
        // Newer versions of a key stand before older ones.
        let here = (key, u64::MAX - seq);
        if let Some(last) = &last {
            assert!(if back { here < *last } else { here > *last });
        }
        last = Some(here);
        found |= 1 << seq;
        if back {
            cursor.prev();
        } else {
            cursor.next();
        }
    }
    found
}

fn skiplist() {
    let memtable = Arc::new(Memtable::new(MemtableOptions {
        capacity_bytes: 4096,
        prefix: Prefix::default(),
        filter: true,
        pool: ArenaPool::new(1 << 20),
    }));
    let inserted = Arc::new(AtomicU64::new(0));
    for seq in 1..=FIRST {
        insert(&memtable, seq);
        inserted.fetch_or(1 << seq, Ordering::SeqCst);
    }
    let mut threads = Vec::new();
    for writer in 0..WRITERS {
        let (memtable, inserted) = (Arc::clone(&memtable), Arc::clone(&inserted));
        threads.push(thread::spawn(move || {
            let own = (FIRST + 1..=LAST).filter(|seq| seq % WRITERS == writer);
            for seq in own.chain([SHARED]) {
                insert(&memtable, seq);
                finds(&memtable, seq);
                inserted.fetch_or(1 << seq, Ordering::SeqCst);
            }
        }));
    }
    for back in [false, true] {
        let (memtable, inserted) = (Arc::clone(&memtable), Arc::clone(&inserted));
        threads.push(thread::spawn(move || {
            for _ in 0..2 {
                let before = inserted.load(Ordering::SeqCst);
                let found = walk(&memtable, back);
                assert_eq!(before & !found, 0, "a cursor passes over entries");
                for seq in (0..64).filter(|seq| before & 1 << seq != 0) {
                    finds(&memtable, seq);
                }
            }
        }));
    }
    join_all(threads);
    assert_eq!(walk(&memtable, false), (2 << SHARED) - 2);
    assert_eq!(walk(&memtable, true), (2 << SHARED) - 2);
    assert_eq!(
        memtable.entries(),
        SHARED,
        "what is there twice counts once"
    );
}

#[test]
fn entries_of_concurrent_writers_are_found_whole_and_in_order() {
    explore(1000, skiplist);
}

// Stores.

const STORE: &str = "/store";

fn options() -> Options {
    let tier = Tier::new("only", STORE).block_bytes(512);
    Options::new()
        .tier(tier.compression(Compression::None))
        .background_threads(0)
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(4 << 10)
        .first_level_bytes(4 << 10)
        .newest_runs_merge(2)
        .newest_runs_stop(20)
        .block_cache_bytes(0)
        .pinned_meta_bytes(0)
        .reserve_bytes(0)
}

fn open(disk: &Disk, options: Options) -> Arc<Db> {
    Arc::new(Db::open_in(options, &Watched::new(disk).environment()).unwrap())
}

/// Does what is to be done in the background.
fn work(db: &Db) {
    while db.step().unwrap() {}
}

fn value(count: u64) -> Vec<u8> {
    let mut value = count.to_be_bytes().to_vec();
    value.resize(200 + count as usize, count as u8);
    value
}

fn count(slice: &[u8]) -> u64 {
    let count = u64::from_be_bytes(*slice.first_chunk().unwrap());
    assert_eq!(slice, value(count), "a value is not whole");
    count
}

// The swap of versions.

const KEYS: [&[u8]; 4] = [b"a", b"k", b"m", b"z"];

/// Gives every key the value `n`.
fn write_all(db: &Db, n: u64) {
    let mut batch = WriteBatch::new();
    for key in KEYS {
        batch.put(key, &value(n)).unwrap();
    }
    db.write(&batch).unwrap();
}

/// What every key has, by getting them and by an iterator.
fn read_all(snapshot: &Snapshot) -> u64 {
    let counts = KEYS.map(|key| count(&snapshot.get(key).unwrap().unwrap()));
    let mut iterator = snapshot.iter().unwrap();
    iterator.seek_to_first().unwrap();
    for key in KEYS {
        assert_eq!(iterator.key(), key);
        assert_eq!(count(iterator.value()), counts[0]);
        iterator.next().unwrap();
    }
    assert!(!iterator.valid());
    assert_eq!(counts, [counts[0]; KEYS.len()], "half a batch");
    counts[0]
}

fn versions() {
    let disk = Disk::new(0);
    let db = open(&disk, options());
    for n in 1..=2 {
        write_all(&db, n);
        db.flush().unwrap();
    }
    let mut threads = Vec::new();
    let writer = Arc::clone(&db);
    threads.push(thread::spawn(move || {
        for n in 3..=4 {
            write_all(&writer, n);
            writer.flush().unwrap();
        }
    }));
    let worker = Arc::clone(&db);
    threads.push(thread::spawn(move || {
        for _ in 0..3 {
            worker.step().unwrap();
        }
    }));
    for _ in 0..2 {
        let db = Arc::clone(&db);
        threads.push(thread::spawn(move || {
            let mut newest = 2;
            for _ in 0..2 {
                let snapshot = db.snapshot();
                let n = read_all(&snapshot);
                assert!(n >= newest, "a reader goes back in time");
                assert_eq!(read_all(&snapshot), n, "a snapshot moves");
                newest = n;
            }
        }));
    }
    join_all(threads);
    assert_eq!(read_all(&db.snapshot()), 4);
    db.settle().unwrap();
    work(&db);
    let tables = db.tables().len();
    assert!(tables > 0);
    let names = disk.names(Path::new(STORE));
    for kind in [".data", ".meta"] {
        let objects = names.iter().filter(|name| name.ends_with(kind)).count();
        assert_eq!(
            objects, tables,
            "deleted at last, and not before: {names:?}"
        );
    }
    // Whoever wrote the record of events meanwhile, each is there once, in order.
    let last = db.events(1)[0].number;
    Arc::into_inner(db).unwrap().close().unwrap();
    let events = open(&disk, options()).events(usize::MAX);
    let numbers = events.iter().map(|e| e.number);
    assert!(numbers.eq(1..=last), "{last}: {events:?}");
}

#[test]
fn no_reader_meets_a_deleted_table_and_all_go_at_last() {
    explore(1500, versions);
}

// Group commit.

const STORE_ID: u128 = 1;

/// A log that writers append to in turn, and what was acknowledged of it.
struct Shared {
    log: Mutex<(LocalLog, u64)>,
    syncer: Arc<LogSyncer>,
    /// The highest number acknowledged as durable.
    acknowledged: AtomicU64,
    failed: AtomicBool,
}

impl Shared {
    /// Appends a frame and makes it durable, as a commit does.
    fn commit(&self) {
        let late = self.failed.load(Ordering::SeqCst);
        let appended = {
            let (log, last) = &mut *self.log.lock().unwrap();
            let seq = *last + 1;
            let bytes = payload(seq);
            let appended = log.append(SeqNo(seq), 1, &bytes, crc32c::crc32c(&bytes));
            if appended.is_ok() {
                *last = seq;
            }
            appended.map(|()| seq)
        };
        let persisted = appended.and_then(|seq| {
            self.syncer.persist(SeqNo(seq))?;
            Ok(seq)
        });
        match persisted {
            Ok(seq) => {
                assert!(!late, "acknowledged after a persist had failed");
                assert!(self.syncer.durable_seq().0 >= seq);
                self.acknowledged.fetch_max(seq, Ordering::SeqCst);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Poisoned);
                self.failed.store(true, Ordering::SeqCst);
            }
        }
    }
}

fn payload(seq: u64) -> Vec<u8> {
    vec![seq as u8; 40]
}

/// Lets one of the syncs to come fail in five runs of six.
fn fail_a_sync(disk: &Disk, run: u64) {
    if run % 6 > 0 {
        disk.fault_at(Where::named(".log"), run % 6, Fault::Sync);
    }
}

fn group_commit() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let directory = Path::new("/log");
    let disk = Disk::new(run * 2);
    let environment = Watched::new(&disk).environment();
    let files = &environment.file_system;
    files.create_directory(directory).unwrap();
    files.sync_directory(Path::new("/")).unwrap();
    // Room for some three frames.
    let options = LogOptions {
        segment_bytes: 300,
        mapped: false,
    };
    let log = LocalLog::create(&environment, directory, STORE_ID, options, 1, SeqNo(0)).unwrap();
    fail_a_sync(&disk, run);
    let shared = Arc::new(Shared {
        syncer: log.syncer(),
        log: Mutex::new((log, 0)),
        acknowledged: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    });
    let writer = |_| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || (0..3).for_each(|_| shared.commit()))
    };
    join_all((0..3).map(writer).collect());
    let appended = shared.log.lock().unwrap().1;
    let acknowledged = shared.acknowledged.load(Ordering::SeqCst);
    if !shared.failed.load(Ordering::SeqCst) {
        assert_eq!((appended, acknowledged), (9, 9));
    }
    drop(shared);

    disk.reboot(Down::Power);
    let mut last = 0;
    let replayed = replay(
        &disk.environment(),
        directory,
        STORE_ID,
        1,
        SeqNo::ZERO,
        &mut |frame| {
            last += 1;
            assert_eq!(frame.first_seq, SeqNo(last), "out of order");
            assert_eq!(frame.payload, payload(last));
            Ok(())
        },
    );
    replayed.unwrap();
    assert!(
        acknowledged <= last,
        "{acknowledged} was acknowledged, {last} survived"
    );
}

#[test]
fn what_shares_a_sync_is_durable_in_order_and_a_failed_one_is_final() {
    explore(5000, group_commit);
}

const BATCHES: u64 = 3;

fn key_of(writer: u64, n: u64) -> Vec<u8> {
    format!("{writer}/{n}").into_bytes()
}

/// Which batches a snapshot sees, as bits.
fn seen(snapshot: &Snapshot) -> u64 {
    let mut bits = 0;
    for writer in 0..WRITERS {
        for n in 0..BATCHES {
            if let Some(found) = snapshot.get(&key_of(writer, n)).unwrap() {
                assert_eq!(count(&found), n);
                bits |= 1 << (writer * BATCHES + n);
            }
        }
    }
    bits
}

fn commits() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let disk = Disk::new(run * 2);
    let options = || {
        options()
            .durability(Durability::Device)
            .log_segment_bytes(16 << 10)
    };
    let db = open(&disk, options());
    fail_a_sync(&disk, run);
    let acknowledged = Arc::new(AtomicU64::new(0));
    let failed = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for writer in 0..WRITERS {
        let db = Arc::clone(&db);
        let (acknowledged, failed) = (Arc::clone(&acknowledged), Arc::clone(&failed));
        threads.push(thread::spawn(move || {
            for n in 0..BATCHES {
                let late = failed.load(Ordering::SeqCst);
                let mut batch = WriteBatch::new();
                batch.put(&key_of(writer, n), &value(n)).unwrap();
                match db.write(&batch) {
                    Ok(()) => {
                        assert!(!late, "acknowledged after a persist had failed");
                        let bit = 1 << (writer * BATCHES + n);
                        acknowledged.fetch_or(bit, Ordering::SeqCst);
                        assert!(seen(&db.snapshot()) & bit != 0, "own write is not seen");
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Poisoned);
                        failed.store(true, Ordering::SeqCst);
                    }
                }
            }
        }));
    }
    let flusher = (Arc::clone(&db), Arc::clone(&failed));
    threads.push(thread::spawn(move || {
        let (db, failed) = flusher;
        if let Err(error) = db.flush() {
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            failed.store(true, Ordering::SeqCst);
        }
    }));
    let (reader, known) = (Arc::clone(&db), Arc::clone(&acknowledged));
    threads.push(thread::spawn(move || {
        for _ in 0..3 {
            let before = known.load(Ordering::SeqCst);
            let snapshot = reader.snapshot();
            let bits = seen(&snapshot);
            assert_eq!(before & !bits, 0, "what was acknowledged is not seen");
            assert_eq!(seen(&snapshot), bits, "a snapshot moves");
        }
    }));
    join_all(threads);
    let acknowledged = acknowledged.load(Ordering::SeqCst);
    assert_eq!(acknowledged & !seen(&db.snapshot()), 0, "a write is lost");

    // The machine goes down while the store is open.
    let after = disk.fork(run);
    after.reboot(Down::Power);
    let db = open(&after, options());
    let survived = seen(&db.snapshot());
    assert_eq!(acknowledged & !survived, 0, "a durable write is lost");
    for writer in 0..WRITERS {
        let own = survived >> (writer * BATCHES) & ((1 << BATCHES) - 1);
        assert_eq!(own & (own + 1), 0, "a later write without an earlier one");
    }
}

#[test]
fn writes_are_seen_in_order_survive_when_acknowledged_and_none_follows_a_failed_persist() {
    explore(1500, commits);
}

// Publication.

/// Entries of the batches of one writer: the writes that begin with numbers 64
/// apart share a place for their notes.
const SIZES: [[u64; 3]; 3] = [[64, 1, 1], [1, 63, 64], [1, 1, 62]];

fn publication() {
    let disk = Disk::new(0);
    let db = open(&disk, options());
    let whole = |writer: usize, snapshot: &Snapshot| {
        let mut iterator = snapshot.iter().unwrap();
        let start = format!("{writer}/");
        iterator.seek(start.as_bytes()).unwrap();
        let mut entries = 0;
        while iterator.valid() && iterator.key().starts_with(start.as_bytes()) {
            entries += 1;
            iterator.next().unwrap();
        }
        let sums = [0, 1, 2, 3].map(|n| SIZES[writer][..n].iter().sum::<u64>());
        let batches = sums.iter().position(|&sum| sum == entries);
        batches.unwrap_or_else(|| panic!("half a batch: {entries} entries of {sums:?}"))
    };
    let mut threads = Vec::new();
    for (writer, sizes) in SIZES.iter().enumerate() {
        let db = Arc::clone(&db);
        threads.push(thread::spawn(move || {
            for (n, &size) in sizes.iter().enumerate() {
                let mut batch = WriteBatch::new();
                for entry in 0..size {
                    let key = format!("{writer}/{n}/{entry}");
                    batch.put(key.as_bytes(), b"").unwrap();
                }
                db.write(&batch).unwrap();
                assert!(whole(writer, &db.snapshot()) > n, "own write is not seen");
            }
        }));
    }
    let reader = Arc::clone(&db);
    threads.push(thread::spawn(move || {
        let mut before = [0; SIZES.len()];
        for _ in 0..3 {
            let snapshot = reader.snapshot();
            for (writer, before) in before.iter_mut().enumerate() {
                let now = whole(writer, &snapshot);
                assert!(now >= *before, "a reader goes back in time");
                *before = now;
            }
        }
    }));
    join_all(threads);
    for writer in 0..SIZES.len() {
        assert_eq!(whole(writer, &db.snapshot()), 3);
    }
}

#[test]
fn batches_are_seen_whole_and_in_order_whoever_publishes_them() {
    explore(300, publication);
}

// The list of snapshots.

/// A snapshot is taken while a key is written anew and flushed: a flush drops what no
/// listed snapshot sees. Few steps, so that the schedules reach each place of it.
fn listing() {
    let disk = Disk::new(0);
    let db = open(&disk, options());
    write_all(&db, 1);
    let reader = Arc::clone(&db);
    let thread = thread::spawn(move || {
        for _ in 0..4 {
            let snapshot = reader.snapshot();
            let first = count(&snapshot.get(KEYS[0]).unwrap().unwrap());
            let again = count(&snapshot.get(KEYS[0]).unwrap().unwrap());
            assert_eq!(again, first, "a snapshot moves");
        }
    });
    write_all(&db, 2);
    db.flush().unwrap();
    thread.join().unwrap();
    assert_eq!(read_all(&db.snapshot()), 2);
}

#[test]
fn a_flush_keeps_what_a_snapshot_sees_that_is_being_taken() {
    explore(1500, listing);
}

// What readers pin.

fn pins() {
    let disk = Disk::new(0);
    // Room for some two blocks.
    let db = open(&disk, options().block_cache_bytes(1500));
    let keys: Arc<Vec<Vec<u8>>> = Arc::new((0..6).map(|n| key_of(0, n)).collect());
    let fill = |db: &Db, n: u64| {
        let mut batch = WriteBatch::new();
        for key in &*keys {
            batch.put(key, &value(n)).unwrap();
        }
        db.write(&batch).unwrap();
    };
    fill(&db, 1);
    db.flush().unwrap();
    fill(&db, 2);
    db.flush().unwrap();
    let mut threads = Vec::new();
    for reader in 0..2 {
        let (db, keys) = (Arc::clone(&db), Arc::clone(&keys));
        threads.push(thread::spawn(move || {
            let mut held: Vec<(u64, Slice)> = Vec::new();
            for at in 0..2 * keys.len() {
                let key = &keys[(at + reader * 3) % keys.len()];
                let slice = db.get(key).unwrap().unwrap();
                held.push((count(&slice), slice));
            }
            drop(db);
            for (n, slice) in &held {
                assert_eq!(count(slice), *n, "a pinned value changes");
            }
        }));
    }
    // Blocks go from the cache, tables from the disk, memtables to the pool
    // and from there to the next ones.
    for n in 3..=5 {
        fill(&db, n);
        db.flush().unwrap();
        work(&db);
    }
    drop(db);
    join_all(threads);
}

#[test]
fn a_pinned_value_stays_while_its_block_is_evicted_and_its_memtable_used_again() {
    explore(500, pins);
}
