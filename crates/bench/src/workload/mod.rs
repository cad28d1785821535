//! The rows of the comparison, and the session that runs them on one engine.
//!
//! A session owns the store of its engine. The store is built by the row
//! `randomwrites`, or silently in the same way if a row needs it before; all
//! read rows use that store. Merges are settled and every block has been read
//! once, by an untimed scan, before a read row is timed. Answers are checked: a
//! row whose reads find too little or too much fails.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, EngineOptions, Home, Result, counted_since, writer_stalled_seconds};
use crate::scratch::remove_quietly;
use crate::usage::{
    Watch, anonymous_bytes, cpu_seconds, disk_bytes, reset_rss_peak, rss_peak_bytes,
};

mod data;
mod loops;
mod timing;

pub(crate) use data::KeyKind;
use loops::{Direction, Runner};
pub(crate) use timing::{Tally, run_threads};

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
    /// Seconds of the row that each of its writers was slowed or stopped on average, if it writes
    /// and the engine says so.
    pub stalled_seconds: Option<f64>,
    /// How long merges went on after the last write.
    pub settle_seconds: Option<f64>,
    /// Processor time of that.
    pub settle_cpu_seconds: Option<f64>,
    /// The peak of resident memory of the process during the row.
    pub rss_peak_bytes: u64,
    /// The peak of anonymous memory of the process during the row and its merges,
    /// less what the process had before the store was opened.
    pub anonymous_peak_bytes: u64,
    /// The most memory that the engine said it may hold.
    pub memory_bytes_max: Option<u64>,
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
    /// Anonymous memory of the process without a store.
    own_bytes: u64,
}

impl<E: Engine> EngineSession<E> {
    /// A session without a store yet.
    pub(crate) fn new(settings: Settings) -> Self {
        EngineSession {
            settings,
            store: None,
            ready: false,
            own_bytes: anonymous_bytes(),
        }
    }

    fn path(&self) -> PathBuf {
        self.settings.directory.join("store")
    }

    /// The loops over the open store; `seed` chooses the dice.
    fn runner(&self, seed: u64) -> Result<Runner<'_, E>> {
        Ok(Runner {
            settings: &self.settings,
            store: self.store.as_ref().ok_or("no store is open")?,
            seed,
        })
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
        self.store = Some(E::open(&[Home::plain(path)], &self.settings.engine)?);
        Ok(())
    }

    /// Waits until no merge is wanted and has each block read once, which also
    /// counts the entries.
    fn make_ready(&mut self) -> Result<()> {
        if self.store.is_none() {
            self.open_fresh()?;
            self.runner(0)?.random_writes(1)?;
        }
        if !self.ready {
            let runner = self.runner(0)?;
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
        let memory = Watch::of_memory();
        let runner = self.runner(u64::from(order.repetition) + 1)?;
        let counted = runner.store.counted()?;
        let mut writer_per_second = None;
        let mut writers = threads;
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
                writers = 1;
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
            let counted = counted_since(&counted, runner.store.counted()?);
            outcome.stalled_seconds = writer_stalled_seconds(&counted, writers);
            let (start, cpu) = (Instant::now(), cpu_seconds());
            let watched = runner.store.settle()?;
            let settling = start.elapsed().saturating_sub(watched);
            outcome.settle_seconds = Some(settling.as_secs_f64());
            outcome.settle_cpu_seconds = Some(cpu_seconds() - cpu);
        }
        outcome.rss_peak_bytes = rss_peak_bytes();
        outcome.anonymous_peak_bytes = memory.peak_bytes().saturating_sub(self.own_bytes);
        outcome.memory_bytes_max = runner.store.memory_bytes_max();
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
