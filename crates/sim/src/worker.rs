//! The process that is killed: opens a store, works on it with several
//! threads, and says in the expected-state file what it is about to do and
//! what was acknowledged. It compares what it reads, and panics when that is
//! wrong or the store refuses what it must not refuse.
//!
//! Started as `thermocline-sim worker ROOT SEED TASK` by the process harness.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Resource, Rlimit, Signal, getpid, getrlimit, kill_process, set_parent_process_death_signal,
    setrlimit,
};
use thermocline::{Db, Durability, ErrorKind, KeyspaceOptions, Options, WriteBatch, WriteOptions};

use crate::Dice;
use crate::expected::{
    self, Change, Expected, Field, LOADED, LOADER, Model, Phase, SECOND, WRITERS,
};

/// Where a writer stops, should nobody kill it.
const OPERATIONS_MAX: u64 = 20_000;

/// Runs a worker if the arguments of this process ask for one.
#[must_use]
pub fn intercept() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != "worker" {
        return None;
    }
    // Nobody would end it, should its parent be killed.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let root = PathBuf::from(arguments.next()?);
    let seed = arguments.next()?.to_str()?.parse().ok()?;
    let task = arguments.next()?;
    match task.to_str()? {
        "work" => work(&root, seed),
        "fill" => fill(&root, seed),
        "hold" => hold(&root, seed),
        "open" => return Some(open(&root, seed, false)),
        "open-read-only" => return Some(open(&root, seed, true)),
        "descriptors" => descriptors(&root, seed),
        "file-size" => file_size(&root, seed),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

fn work(root: &Path, seed: u64) {
    let expected = Expected::open(root).unwrap();
    expected.set(Field::Phase, Phase::Opening as u64);
    let db = Db::open(expected::options(root, seed)).unwrap();
    for name in [SECOND, LOADED] {
        if db.keyspace(name).is_err() {
            db.create_keyspace(name, KeyspaceOptions::default())
                .unwrap();
        }
    }
    let compared = AtomicU64::new(0);
    expected.set(Field::Phase, Phase::Writing as u64);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, expected, compared) = (&db, &expected, &compared);
            scope.spawn(move || {
                or_exit(|| write(db, expected, compared, seed, writer));
            });
        }
        scope.spawn(|| or_exit(|| maintain(&db, &expected, &compared, root, seed)));
    });
    // Everything is written: the parent's signal is still to come.
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

/// A thread that panics ends the process, whose exit status says so.
fn or_exit(body: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
        std::process::exit(101);
    }
}

/// Where the store says that the writer is, which must agree with the file.
fn begin(db: &Db, expected: &Expected, writer: u64) -> u64 {
    let done = expected::counter(db, writer).unwrap();
    let acknowledged = expected.get(Field::Acknowledged(writer));
    let pending = expected.get(Field::Pending(writer));
    assert!(
        (acknowledged..=pending).contains(&done),
        "writer {writer} finds operation {done}: {acknowledged} was acknowledged, {pending} begun"
    );
    done
}

fn write(db: &Db, expected: &Expected, compared: &AtomicU64, seed: u64, writer: u64) {
    let second = db.keyspace(SECOND).unwrap();
    let mut model = Model::new(seed, writer);
    model.advance(begin(db, expected, writer));
    compare(db, &model, writer, compared);
    while model.done < OPERATIONS_MAX {
        let n = model.done + 1;
        let mut batch = WriteBatch::new();
        let key = |k| expected::key(writer, k);
        for change in expected::operation(seed, writer, n) {
            match change {
                Change::Put {
                    second: true,
                    key: k,
                } => batch.put_in(&second, &key(k), &expected::value(writer, k, n)),
                Change::Put {
                    second: false,
                    key: k,
                } => batch.put(&key(k), &expected::value(writer, k, n)),
                Change::Delete {
                    second: true,
                    key: k,
                } => batch.delete_in(&second, &key(k)),
                Change::Delete {
                    second: false,
                    key: k,
                } => batch.delete(&key(k)),
                Change::DeleteRange {
                    second: true,
                    from,
                    to,
                } => batch.delete_range_in(&second, &key(from), &key(to)),
                Change::DeleteRange {
                    second: false,
                    from,
                    to,
                } => batch.delete_range(&key(from), &key(to)),
            }
            .unwrap();
        }
        batch
            .put(&expected::counter_key(writer), &n.to_le_bytes())
            .unwrap();
        let durability = if n.is_multiple_of(61) {
            Durability::Device
        } else {
            Durability::OperatingSystem
        };
        expected.set(Field::Pending(writer), n);
        db.write_with(&batch, WriteOptions::default().durability(durability))
            .unwrap();
        expected.set(Field::Acknowledged(writer), n);
        model.advance(n);
        if n.is_multiple_of(97) {
            compare(db, &model, writer, compared);
            expected.set(Field::Compared, compared.load(Ordering::Relaxed));
        }
    }
}

/// A writer's own keys, which nobody else changes.
fn compare(db: &Db, model: &Model, writer: u64, compared: &AtomicU64) {
    for (space, second) in [("default", false), (SECOND, true)] {
        let space = db.keyspace(space).unwrap();
        let prefix = format!("w{writer}/").into_bytes();
        let mut found = space.prefix(&prefix).unwrap().forward();
        let mut count = 0u64;
        for (at, (key, value)) in model.entries(second).enumerate() {
            let (k, v) = found.next().expect("an entry is missing").unwrap();
            assert!(k[..] == key[..] && v[..] == value[..], "writer {writer}");
            if at.is_multiple_of(8) {
                assert_eq!(space.get(&key).unwrap().as_deref(), Some(&value[..]));
                count += 1;
            }
            count += 1;
        }
        assert!(found.next().is_none(), "an entry too many");
        compared.fetch_add(count, Ordering::Relaxed);
    }
}

fn maintain(db: &Db, expected: &Expected, compared: &AtomicU64, root: &Path, seed: u64) {
    let mut loads = begin(db, expected, LOADER);
    let mut dice = Dice(seed ^ loads << 20 ^ expected.get(Field::Acknowledged(0)));
    let loaded = db.keyspace(LOADED).unwrap();
    let mut checkpoints = 0;
    loop {
        match dice.below(10) {
            0 | 1 => {
                expected.set(Field::Phase, Phase::BulkLoad as u64);
                loads += 1;
                expected.set(Field::Pending(LOADER), loads);
                let mut load = loaded.bulk_load().unwrap();
                for (key, value) in expected::load(loads) {
                    load.add(&key, &value).unwrap();
                }
                load.finish().unwrap();
                expected.set(Field::Acknowledged(LOADER), loads);
            }
            2 => {
                expected.set(Field::Phase, Phase::Checkpoint as u64);
                checkpoints += 1;
                expected.set(Field::Checkpoint, 0);
                let directory = root.join("checkpoint");
                let _ = std::fs::remove_dir_all(&directory);
                db.checkpoint(&directory).unwrap();
                expected.set(Field::Checkpoint, checkpoints);
            }
            3 => {
                expected.set(Field::Phase, Phase::CompactRange as u64);
                let writer = dice.below(WRITERS);
                let (from, to) = (expected::key(writer, 20), expected::key(writer, 90));
                db.compact_range(Some(&from), Some(&to)).unwrap();
            }
            4 => {
                expected.set(Field::Phase, Phase::Flush as u64);
                db.flush().unwrap();
            }
            _ => {
                // Uses, so that tables become hot and move up.
                for _ in 0..50 {
                    let key = expected::key(dice.below(2), dice.below(20));
                    db.get(&key).unwrap();
                }
                if loads > 0 {
                    let found = loaded.iter().unwrap().forward();
                    let found = found.collect::<thermocline::Result<Vec<_>>>().unwrap();
                    let wanted: Vec<_> = expected::load(loads).collect();
                    assert!(found == wanted, "bulk load {loads} is not whole");
                    compared.fetch_add(found.len() as u64, Ordering::Relaxed);
                }
            }
        }
        expected.set(Field::Phase, Phase::Writing as u64);
        let stats = db.stats();
        expected.set(Field::Flushes, stats.flushes);
        expected.set(Field::Merges, stats.merges);
        expected.set(Field::Relocations, stats.relocations);
        thread::sleep(Duration::from_micros(dice.below(3000)));
    }
}

/// One tier and one writer that tries every entry until it is taken.
#[must_use]
pub fn single_options(root: &Path, seed: u64) -> Options {
    Options::at(root.join("store"))
        .write_buffer_bytes(512 << 10)
        .memtable_bytes(128 << 10)
        .table_bytes(256 << 10)
        .first_level_bytes(1 << 20)
        .log_segment_bytes(256 << 10)
        .log_bytes_max(1 << 20)
        .log_mapped(seed.is_multiple_of(2))
        .pinned_meta_bytes(4 << 10)
        .reserve_bytes(0)
        .background_threads(2)
}

/// The value of entry `n`: nothing that can be compressed.
#[must_use]
pub fn single_value(n: u64) -> Vec<u8> {
    let mut dice = Dice(n);
    (0..250).flat_map(|_| dice.next().to_le_bytes()).collect()
}

/// One writer of entries 1, 2, 3 and so on.
struct Single {
    db: Db,
    expected: Expected,
    done: u64,
    refused: u64,
}

impl Single {
    fn new(root: &Path, expected: &Path, seed: u64) -> Single {
        let expected = Expected::open(expected).unwrap();
        Single {
            db: Db::open(single_options(root, seed)).unwrap(),
            done: expected.get(Field::Acknowledged(0)),
            expected,
            refused: 0,
        }
    }

    /// Tries the next entry.
    fn put(&mut self) -> thermocline::Result<()> {
        let n = self.done + 1;
        self.expected.set(Field::Pending(0), n);
        let mut batch = WriteBatch::new();
        batch.put(&n.to_be_bytes(), &single_value(n))?;
        let durability = if n.is_multiple_of(5) {
            Durability::Device
        } else {
            Durability::OperatingSystem
        };
        let result = self
            .db
            .write_with(&batch, WriteOptions::default().durability(durability));
        match &result {
            Ok(()) => {
                self.expected.set(Field::Acknowledged(0), n);
                self.done = n;
            }
            Err(_) => {
                self.refused += 1;
                self.expected.set(Field::Refused, self.refused);
            }
        }
        result
    }

    /// Writes until `refusals` more were met, each of the kind `kind`; returns
    /// how many were met, which is fewer if `entries` were taken first.
    fn until_refused(&mut self, refusals: u64, entries: u64, kind: ErrorKind) -> u64 {
        let (first, before) = (self.done, self.refused);
        while self.refused < before + refusals && self.done < first + entries {
            if let Err(error) = self.put() {
                assert_eq!(error.kind(), kind, "after {} entries: {error}", self.done);
                thread::sleep(Duration::from_millis(2));
            }
        }
        self.refused - before
    }

    /// Writing goes on by itself.
    fn resume(&mut self, entries: u64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let target = self.done + entries;
        while self.done < target {
            if let Err(error) = self.put() {
                assert!(Instant::now() < deadline, "does not go on: {error}");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Compares everything; a read may be refused with `kind`, never be wrong.
    fn compare(&self, allowed: Option<ErrorKind>) {
        for n in 1..=self.done {
            match self.db.get(&n.to_be_bytes()) {
                Ok(found) => assert!(
                    found.as_deref() == Some(&single_value(n)[..]),
                    "entry {n} is lost or wrong"
                ),
                Err(error) => assert_eq!(Some(error.kind()), allowed, "{error}"),
            }
        }
    }

    /// Dies as an out-of-memory killer would have it.
    fn die(self) -> ! {
        let _ = kill_process(getpid(), Signal::KILL);
        unreachable!("SIGKILL cannot be caught")
    }
}

/// Looks at what a worker of one writer left, whose store is in `root` and
/// whose expected state in `expected`: how many entries were acknowledged, and
/// how many tries refused.
///
/// # Panics
/// With the seed, when the store is damaged, or an acknowledged entry or one of
/// those before the last is not there.
#[must_use]
pub fn single_report(root: &Path, expected: &Path, seed: u64) -> (u64, u64) {
    let expected = Expected::open(expected).unwrap();
    let acknowledged = expected.get(Field::Acknowledged(0));
    let options = single_options(root, seed).read_only(true);
    let report = thermocline::verify(options.clone()).unwrap();
    assert!(
        report.problems.is_empty(),
        "seed {seed}: {:#?}",
        report.problems
    );
    let db = Db::open(options).unwrap();
    let mut last = 0;
    for (entry, n) in db.iter().unwrap().forward().zip(1u64..) {
        let (key, value) = entry.unwrap();
        assert!(
            key[..] == n.to_be_bytes() && value[..] == single_value(n)[..],
            "seed {seed}: entry {n} is lost or wrong"
        );
        last = n;
    }
    let pending = expected.get(Field::Pending(0));
    assert!(
        (acknowledged..=pending).contains(&last),
        "seed {seed}: {last} entries, {acknowledged} acknowledged, {pending} begun"
    );
    (last, expected.get(Field::Refused))
}

/// Writes until killed, however often it is refused for want of space. The
/// expected state lies beside the mount, which is `mount` in the root.
fn fill(root: &Path, seed: u64) {
    let mut single = Single::new(&root.join("mount"), root, seed);
    single.expected.set(Field::Phase, Phase::Writing as u64);
    loop {
        if let Err(error) = single.put() {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Keeps a store open until killed.
fn hold(root: &Path, seed: u64) {
    let mut single = Single::new(root, root, seed);
    single.resume(100);
    single.expected.set(Field::Phase, Phase::Writing as u64);
    loop {
        // A writer, for those who read meanwhile.
        single.resume(1);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Opens a store once, and prints the kind of the error.
fn open(root: &Path, seed: u64, read_only: bool) -> ExitCode {
    let options = single_options(root, seed).create_if_missing(false);
    match Db::open(options.read_only(read_only)) {
        Ok(db) => {
            let entries = db.iter().unwrap().forward();
            for (entry, n) in entries.zip(1u64..) {
                let (key, value) = entry.unwrap();
                assert!(key[..] == n.to_be_bytes() && value[..] == single_value(n)[..]);
            }
            println!("opened");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{}", error.kind().name());
            ExitCode::from(5)
        }
    }
}

/// Uses up all descriptors, and gives them back.
fn descriptors(root: &Path, seed: u64) {
    let mut single = Single::new(root, root, seed);
    single.resume(400);
    let before = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: Some(64),
        ..before
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut taken: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    assert!(single.until_refused(20, 10_000, ErrorKind::Io) == 20);
    single.compare(Some(ErrorKind::Io));
    // One descriptor is not enough for every job either.
    taken.pop();
    single.until_refused(5, 50, ErrorKind::Io);
    drop(taken);
    // A reader of every table holds more than those.
    setrlimit(Resource::Nofile, before).unwrap();
    single.resume(1000);
    single.compare(None);
    single.die();
}

/// Meets the limit of file sizes, and has it raised.
fn file_size(root: &Path, seed: u64) {
    let mut single = Single::new(root, root, seed);
    single.resume(400);
    let before = getrlimit(Resource::Fsize);
    let limit = |bytes| Rlimit {
        current: Some(bytes),
        ..before
    };
    for bytes in [100 << 10, 5 << 10, 0] {
        setrlimit(Resource::Fsize, limit(bytes)).unwrap();
        // The expected-state file is small enough for the first two.
        if bytes > 0 {
            single.until_refused(20, 3000, ErrorKind::NoSpace);
        } else if let Err(error) = single.db.flush() {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        }
        single.compare(None);
    }
    setrlimit(Resource::Fsize, before).unwrap();
    assert!(single.refused > 0, "the limit was never met");
    single.resume(1000);
    single.compare(None);
    single.die();
}
