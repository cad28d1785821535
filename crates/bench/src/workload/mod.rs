//! The rows of the comparison, and the session that runs them on one engine.
//!
//! A session owns the store of its engine. The store is built by the row
//! `randomwrites`, or silently in the same way if a row needs it before; all
//! read rows use that store. Merges are settled and every block has been read
//! once, by an untimed scan, before a read row is timed. Answers are checked: a
//! row whose reads find too little or too much fails.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::engine::{Cursor, Engine, EngineOptions, Load, Result};
use crate::usage::{cpu_seconds, disk_bytes, reset_rss_peak, rss_peak_bytes};

mod data;
mod timing;

pub(crate) use data::KeyKind;
use data::{Dice, KEY_BYTES, Permutation, Values};
use timing::{Tally, Timing, run_threads, share};

/// Steps after each seek.
const NEXTS: usize = 10;

/// Keys of one multi-get.
const MULTI_GET_KEYS: usize = 16;

/// A row that seeks does this share of the reads that others do.
const SEEK_DIVISOR: u64 = 4;

/// The random writer beside readers looks this often, in writes, whether the
/// readers are done.
const WRITER_CHECKS: u64 = 16;

/// What is measured. The order is the order in which rows run.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize, Debug,
)]
#[value(rename_all = "lower")]
#[serde(rename_all = "lowercase")]
pub(crate) enum Row {
    /// All entries in ascending order into a fresh store, the fastest way.
    BulkLoad,
    /// All entries in random order into a fresh store.
    RandomWrites,
    /// Random entries of the store written again, as many as it has.
    Overwrite,
    /// Gets of random keys that exist.
    ReadPresent,
    /// Gets of random keys that lie between those that exist.
    ReadAbsent,
    /// Multi-gets of 16 random keys that exist; counted in keys.
    MultiGet,
    /// A new cursor, a seek to a random key and 10 steps forward.
    Seeks,
    /// The same with one cursor for all seeks.
    SeeksReused,
    /// All entries forward, by each thread.
    ScanForward,
    /// All entries backward, by each thread.
    ScanBackward,
    /// Gets of random keys beside one more thread that overwrites.
    ReadWhileWriting,
}

impl Row {
    /// The name in reports.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Row::BulkLoad => "bulk load, ascending",
            Row::RandomWrites => "random writes",
            Row::Overwrite => "overwrite",
            Row::ReadPresent => "random reads, present",
            Row::ReadAbsent => "random reads, absent",
            Row::MultiGet => "multi-get of 16 (keys)",
            Row::Seeks => "seek + 10 nexts, new cursor",
            Row::SeeksReused => "seek + 10 nexts, one cursor",
            Row::ScanForward => "full scan forward",
            Row::ScanBackward => "full scan backward",
            Row::ReadWhileWriting => "reads while writing",
        }
    }
}

/// All that a session is told.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Settings {
    /// What the engine is given; `engine.entries` is the size of the store.
    pub engine: EngineOptions,
    /// How keys are written.
    pub keys: KeyKind,
    /// The length of every value.
    pub value_bytes: usize,
    /// Reads of a read row, all threads together.
    pub reads: u64,
    /// Whether operations are timed one by one.
    pub latency: bool,
    /// An existing directory of this session's own.
    pub directory: PathBuf,
}

/// One run of one row.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub(crate) struct Order {
    /// What to measure.
    pub row: Row,
    /// By how many threads; a writer beside readers is not counted.
    pub threads: u32,
    /// Which repetition this is; chooses the dice.
    pub repetition: u32,
}

/// What one run of one row gave.
#[derive(Clone, Default, Serialize, Deserialize, Debug)]
pub(crate) struct Outcome {
    /// Operations done by the timed threads.
    pub operations: u64,
    /// How long they took.
    pub seconds: f64,
    /// Processor time of the whole process in that time, merges included.
    pub cpu_seconds: f64,
    /// Writes per second of the writer beside the readers.
    pub writer_per_second: Option<f64>,
    /// How long merges went on after the last write.
    pub settle_seconds: Option<f64>,
    /// Processor time of that.
    pub settle_cpu_seconds: Option<f64>,
    /// The peak of resident memory of the process during the row.
    pub rss_peak_bytes: u64,
    /// Bytes that the store takes on its device after the row.
    pub disk_bytes: u64,
    /// Median and 99th percentile of an operation, if they were timed. One
    /// operation of `multiget` is one call.
    pub latency_ns: Option<[u64; 2]>,
}

impl Outcome {
    /// Operations per second.
    pub(crate) fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// Runs rows on one engine, whichever it is.
pub(crate) trait Session {
    /// Runs one row.
    fn run(&mut self, order: Order) -> Result<Outcome>;
}

/// The session of the engine `E`.
pub(crate) struct EngineSession<E> {
    settings: Settings,
    store: Option<E>,
    /// Whether merges are settled and blocks read since the last write.
    ready: bool,
}

impl<E: Engine> EngineSession<E> {
    /// A session without a store yet.
    pub(crate) fn new(settings: Settings) -> Self {
        EngineSession {
            settings,
            store: None,
            ready: false,
        }
    }

    fn path(&self) -> PathBuf {
        self.settings.directory.join("store")
    }

    /// Closes and deletes the store, if there is one, and opens an empty one.
    fn open_fresh(&mut self) -> Result<()> {
        self.store = None;
        self.ready = false;
        let path = self.path();
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        self.store = Some(E::open(&path, &self.settings.engine)?);
        Ok(())
    }

    /// Waits until no merge is wanted and has each block read once, which also
    /// counts the entries.
    fn make_ready(&mut self) -> Result<()> {
        if self.store.is_none() {
            self.open_fresh()?;
            Runner::new(self, 0)?.random_writes(1)?;
        }
        if !self.ready {
            let runner = Runner::new(self, 0)?;
            runner.store.settle()?;
            runner.scan(1, Direction::Forward)?;
            self.ready = true;
        }
        Ok(())
    }
}

impl<E: Engine> Session for EngineSession<E> {
    fn run(&mut self, order: Order) -> Result<Outcome> {
        match order.row {
            Row::BulkLoad | Row::RandomWrites => self.open_fresh()?,
            _ => self.make_ready()?,
        }
        let threads = order.threads;
        reset_rss_peak();
        let runner = Runner::new(self, u64::from(order.repetition) + 1)?;
        let mut writer_per_second = None;
        let (timing, writes) = match order.row {
            Row::BulkLoad => (runner.bulk_load(threads)?, true),
            Row::RandomWrites => (runner.random_writes(threads)?, true),
            Row::Overwrite => (runner.overwrite(threads)?, true),
            Row::ReadPresent => (runner.read(threads, true)?, false),
            Row::ReadAbsent => (runner.read(threads, false)?, false),
            Row::MultiGet => (runner.multi_get(threads)?, false),
            Row::Seeks => (runner.seek(threads, false)?, false),
            Row::SeeksReused => (runner.seek(threads, true)?, false),
            Row::ScanForward => (runner.scan(threads, Direction::Forward)?, false),
            Row::ScanBackward => (runner.scan(threads, Direction::Backward)?, false),
            Row::ReadWhileWriting => {
                let (timing, rate) = runner.read_while_writing(threads)?;
                writer_per_second = Some(rate);
                (timing, true)
            }
        };
        let mut outcome = Outcome {
            operations: timing.operations,
            seconds: timing.seconds,
            cpu_seconds: timing.cpu_seconds,
            writer_per_second,
            latency_ns: timing.latency_ns,
            ..Outcome::default()
        };
        if writes {
            let (start, cpu) = (Instant::now(), cpu_seconds());
            let watched = runner.store.settle()?;
            let settling = start.elapsed().saturating_sub(watched);
            outcome.settle_seconds = Some(settling.as_secs_f64());
            outcome.settle_cpu_seconds = Some(cpu_seconds() - cpu);
        }
        outcome.rss_peak_bytes = rss_peak_bytes();
        outcome.disk_bytes = disk_bytes(&self.path())?;
        if writes {
            self.ready = false;
        }
        if order.row == Row::BulkLoad {
            // Count what was loaded, then leave the name to the usual store.
            self.make_ready()?;
            self.store = None;
        }
        Ok(outcome)
    }
}

impl<E> Drop for EngineSession<E> {
    fn drop(&mut self) {
        self.store = None;
        remove_quietly(&self.settings.directory);
    }
}

/// Deletes a directory of ours; if that fails there is nobody left to tell.
pub(crate) fn remove_quietly(directory: &Path) {
    drop(fs::remove_dir_all(directory));
}

#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Backward,
}

/// The loops, over an open store.
struct Runner<'a, E> {
    settings: &'a Settings,
    store: &'a E,
    seed: u64,
}

impl<'a, E: Engine> Runner<'a, E> {
    fn new(session: &'a EngineSession<E>, seed: u64) -> Result<Self> {
        Ok(Runner {
            settings: &session.settings,
            store: session.store.as_ref().ok_or("no store is open")?,
            seed,
        })
    }

    fn entries(&self) -> u64 {
        self.settings.engine.entries
    }

    fn tally(&self) -> Result<Tally> {
        Tally::new(self.settings.latency)
    }

    /// Dice for one thread of one repetition; every engine gets the same.
    fn dice(&self, number: u32) -> Dice {
        Dice::new((self.seed << 32) + u64::from(number))
    }

    fn values(&self, number: u32) -> Values {
        Values::new(self.settings.value_bytes, self.seed + u64::from(number))
    }

    /// What a reader does with a value: looks at its first byte.
    #[inline]
    fn see(&self) -> impl Fn(&[u8]) + use<E> {
        |value| {
            black_box(value.first());
        }
    }

    fn bulk_load(&self, threads: u32) -> Result<Timing> {
        run_threads(threads, |number| {
            let mut tally = self.tally()?;
            let mut values = self.values(number);
            let mut load = self.store.bulk_load()?;
            for index in share(self.entries(), number, threads) {
                let key = self.settings.keys.present(index);
                tally.step(1, || load.add(&key, values.take()))?;
            }
            load.finish()?;
            Ok(tally)
        })
    }

    fn random_writes(&self, threads: u32) -> Result<Timing> {
        let permutation = Permutation::new(self.entries(), self.seed);
        run_threads(threads, |number| {
            let mut tally = self.tally()?;
            let mut values = self.values(number);
            for index in share(self.entries(), number, threads) {
                let key = self.settings.keys.present(permutation.at(index));
                tally.step(1, || self.store.put(&key, values.take()))?;
            }
            Ok(tally)
        })
    }

    fn overwrite(&self, threads: u32) -> Result<Timing> {
        run_threads(threads, |number| {
            let mut tally = self.tally()?;
            let mut values = self.values(number);
            let mut dice = self.dice(number);
            for _ in share(self.entries(), number, threads) {
                let key = self.settings.keys.present(dice.below(self.entries()));
                tally.step(1, || self.store.put(&key, values.take()))?;
            }
            Ok(tally)
        })
    }

    fn read(&self, threads: u32, present: bool) -> Result<Timing> {
        run_threads(threads, |number| self.read_share(number, threads, present))
    }

    /// One thread's reads, all of which must be found, or none.
    fn read_share(&self, number: u32, threads: u32, present: bool) -> Result<Tally> {
        let mut tally = self.tally()?;
        let mut dice = self.dice(number);
        let mut found = 0_u64;
        for _ in share(self.settings.reads, number, threads) {
            let index = dice.below(self.entries());
            let key = match present {
                true => self.settings.keys.present(index),
                false => self.settings.keys.absent(index),
            };
            tally.step(1, || {
                found += u64::from(self.store.get(&key, self.see())?);
                Ok(())
            })?;
        }
        let expected = if present { tally.operations } else { 0 };
        self.expect("reads that found a value", expected, found)?;
        Ok(tally)
    }

    fn multi_get(&self, threads: u32) -> Result<Timing> {
        run_threads(threads, |number| {
            let mut tally = self.tally()?;
            let mut dice = self.dice(number);
            let mut found = 0;
            let mut keys = [[0; KEY_BYTES]; MULTI_GET_KEYS];
            for _ in share(self.settings.reads / MULTI_GET_KEYS as u64, number, threads) {
                for key in &mut keys {
                    *key = self.settings.keys.present(dice.below(self.entries()));
                }
                let list: [&[u8]; MULTI_GET_KEYS] = std::array::from_fn(|index| &keys[index][..]);
                tally.step(MULTI_GET_KEYS as u64, || {
                    found += self.store.multi_get(&list, self.see())? as u64;
                    Ok(())
                })?;
            }
            self.expect("keys that have a value", tally.operations, found)?;
            Ok(tally)
        })
    }

    fn seek(&self, threads: u32, reuse: bool) -> Result<Timing> {
        run_threads(threads, |number| {
            let mut tally = self.tally()?;
            let mut dice = self.dice(number);
            let mut one = self.store.cursor()?;
            // So low that ten more entries always follow.
            let limit = self.entries().saturating_sub(NEXTS as u64).max(1);
            let mut steps = 0_u64;
            for _ in share(self.settings.reads / SEEK_DIVISOR, number, threads) {
                let key = self.settings.keys.present(dice.below(limit));
                tally.step(1, || {
                    steps += match reuse {
                        true => walk(&mut one, &key)?,
                        false => walk(&mut self.store.cursor()?, &key)?,
                    };
                    Ok(())
                })?;
            }
            let expected = tally.operations * NEXTS as u64;
            if self.entries() > NEXTS as u64 {
                self.expect("entries after a seek", expected, steps)?;
            }
            Ok(tally)
        })
    }

    /// Every thread walks over all entries, which must be as many as were
    /// written.
    fn scan(&self, threads: u32, direction: Direction) -> Result<Timing> {
        run_threads(threads, |_| {
            let mut tally = Tally::new(false)?;
            let mut cursor = self.store.cursor()?;
            match direction {
                Direction::Forward => {
                    cursor.seek_to_first()?;
                    while cursor.valid() {
                        black_box((cursor.key().first(), cursor.value().first()));
                        tally.operations += 1;
                        cursor.next()?;
                    }
                }
                Direction::Backward => {
                    cursor.seek_to_last()?;
                    while cursor.valid() {
                        black_box((cursor.key().first(), cursor.value().first()));
                        tally.operations += 1;
                        cursor.prev()?;
                    }
                }
            }
            cursor.status()?;
            self.expect("entries in a scan", self.entries(), tally.operations)?;
            Ok(tally)
        })
    }

    /// The readers' timing and the writer's rate.
    fn read_while_writing(&self, threads: u32) -> Result<(Timing, f64)> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = scope.spawn(|| -> Result<f64> {
                let mut values = self.values(threads);
                let mut dice = self.dice(threads);
                let mut writes = 0_u64;
                let start = Instant::now();
                while !done.load(Ordering::Relaxed) {
                    for _ in 0..WRITER_CHECKS {
                        let key = self.settings.keys.present(dice.below(self.entries()));
                        self.store.put(&key, values.take())?;
                    }
                    writes += WRITER_CHECKS;
                }
                Ok(writes as f64 / start.elapsed().as_secs_f64())
            });
            let timing = run_threads(threads, |number| self.read_share(number, threads, true));
            done.store(true, Ordering::Relaxed);
            let rate = writer.join().map_err(|_| "the writer panicked")??;
            Ok((timing?, rate))
        })
    }

    /// Fails if an engine that is checked gave another number than expected.
    fn expect(&self, what: &str, expected: u64, found: u64) -> Result<()> {
        if E::CHECKED && expected != found {
            return Err(format!("{what}: expected {expected}, found {found}").into());
        }
        Ok(())
    }
}

/// A seek and the steps after it; says how many entries were stepped to.
#[inline]
fn walk(cursor: &mut impl Cursor, key: &[u8]) -> Result<u64> {
    cursor.seek(key)?;
    let mut steps = 0;
    while steps < NEXTS as u64 && cursor.valid() {
        black_box((cursor.key().first(), cursor.value().first()));
        cursor.next()?;
        steps += 1;
    }
    if steps < NEXTS as u64 {
        cursor.status()?;
    }
    Ok(steps)
}
