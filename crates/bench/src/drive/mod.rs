//! Runs workloads on one engine: loads the store, drives the clients, watches
//! what it costs.
//!
//! A run is a warm-up, then the time that is measured, then the wait for the
//! merges that it has left behind. Rates, latencies, processor time, reads of
//! devices and time in stalls are of the measured time. Write amplification is of all three: bytes
//! that went to the devices from the beginning of the warm-up until nothing was
//! left to merge, over bytes that clients wrote, so that no debt is hidden.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::device::Counters;
use crate::engine::{Counted, Engine, EngineOptions, Home, Result, counted_since};
use crate::keys::Chooser;
use crate::mix::trace::Trace;
use crate::mix::{Start, Workload};
use crate::scratch::remove_quietly;
use crate::usage::{Watch, cpu_seconds, disk_bytes, reset_rss_peak, rss_peak_bytes};

mod client;
mod clock;
mod content;
mod inserted;
mod load;
mod plan;
mod tally;

use client::Shared;
use inserted::Inserted;
use plan::Keys;
pub(crate) use tally::QUANTILES;

/// All that a session is told.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Setup {
    /// The directories, fast to slow; each this session's own.
    pub homes: Vec<Home>,
    /// The means.
    pub engine: EngineOptions,
}

/// One run of one workload.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct RunOrder {
    /// What to do.
    pub workload: Workload,
    /// Records at the beginning; of a trace, its own keys.
    pub records: u64,
    /// Threads that act at once.
    pub clients: u32,
    /// Seconds before anything is measured.
    pub warmup_seconds: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Operations of warm-up and those measured, all clients together, instead of seconds.
    #[serde(default)]
    pub operations: Option<[u64; 2]>,
    /// Operations a second of an open loop, all clients together.
    pub rate: Option<f64>,
    /// Chooses the dice.
    pub seed: u64,
    /// The share of a value that compresses away.
    #[serde(default)]
    pub compressible: f64,
    /// Only make the store that the workload begins with, unless it is there.
    #[serde(default)]
    pub load_only: bool,
    /// Go on with the store as inserts have left it, if it is one that the workload
    /// could begin with.
    #[serde(default)]
    pub keep_inserted: bool,
}

impl RunOrder {
    /// Operations of warm-up and those measured, if they are counted; seconds end the run if not.
    /// A run that fills an empty store is measured from its first operation to its last.
    fn counted(&self) -> Option<[u64; 2]> {
        match self.workload.start {
            Start::Empty => Some([0, self.records]),
            _ => self.operations,
        }
    }
}

/// What the device of one home did.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct HomeUse {
    /// The name of its tier.
    pub tier: String,
    /// Bytes that the store takes there at the end.
    pub bytes: u64,
    /// The most that it took there from the beginning of the warm-up until merges were done.
    #[serde(default)]
    pub peak_bytes: u64,
    /// USD per month for these.
    pub price_usd_month: f64,
    /// The device's counters over the measured time; none where there is no
    /// block device.
    pub measured: Option<Counters>,
    /// The same from the beginning of the warm-up until merges were done.
    pub settled: Option<Counters>,
}

/// What one run gave.
#[derive(Clone, Default, Serialize, Deserialize, Debug)]
pub(crate) struct RunOutcome {
    /// How long the store took to load and settle, if it was loaded for this
    /// run.
    pub load_seconds: Option<f64>,
    /// Operations in the measured time.
    pub operations: u64,
    /// How long that was.
    pub seconds: f64,
    /// Operations in each whole second of it.
    pub per_second: Vec<u64>,
    /// Measured operations that read, wrote and scanned.
    pub counts: [u64; tally::CLASSES],
    /// 50th, 99th and 99.9th percentile of those, in nanoseconds.
    pub latency_ns: [Option<[u64; 3]>; tally::CLASSES],
    /// The same percentiles of all of them together.
    #[serde(default)]
    pub latency_all_ns: Option<[u64; 3]>,
    /// The latency curves of those, at [`QUANTILES`], in nanoseconds.
    pub curves_ns: [Vec<u64>; tally::CLASSES],
    /// Seconds that a client spent on average in writes of 1 ms and more, whatever they waited for;
    /// none where there were no writes, or operations began at fixed moments, from which their
    /// times count.
    #[serde(default)]
    pub long_write_seconds: Option<f64>,
    /// Reads that found nothing.
    pub missing: u64,
    /// Processor seconds of the process in the measured time.
    pub cpu_seconds: f64,
    /// Peak of resident memory of the process in the run, warm-up included.
    pub rss_peak_bytes: u64,
    /// Its mean over the measured time, in bytes.
    #[serde(default)]
    pub rss_mean_bytes: Option<f64>,
    /// Bytes that clients read in the measured time.
    pub read_bytes: u64,
    /// Bytes that clients wrote in the warm-up and the measured time.
    pub written_bytes: u64,
    /// Bytes of keys and values in the store at the end, where they are known.
    pub live_bytes: Option<u64>,
    /// How long merges went on afterwards.
    pub settle_seconds: f64,
    /// Tables in the store then, where the engine says so.
    #[serde(default)]
    pub tables: Option<u64>,
    /// The devices.
    pub homes: Vec<HomeUse>,
    /// What the engine counted from the beginning of the warm-up until merges
    /// were done.
    pub counted: Vec<Counted>,
    /// Of that, what it counted in the measured time.
    #[serde(default)]
    pub counted_measured: Vec<Counted>,
    /// Whether the rate still changed: the second half of the measured time
    /// against the first, as a share of their mean.
    pub drift: Option<f64>,
}

/// Runs workloads on one engine, whichever it is.
pub(crate) trait Driver {
    /// Runs one.
    fn run(&mut self, order: &RunOrder) -> Result<RunOutcome>;
}

/// What the open store holds.
struct Held {
    workload: Workload,
    records: u64,
    /// Records that were inserted beside these.
    inserted: u64,
    /// Whether a run has begun with it.
    has_run: bool,
    keys: Keys,
    trace: Option<Arc<Trace>>,
    /// Bytes of keys and values of one record on average, or of all of a trace.
    record_bytes: f64,
}

/// The driver of the engine `E`.
pub(crate) struct EngineDriver<E> {
    setup: Setup,
    store: Option<E>,
    held: Option<Held>,
}

impl<E: Engine> EngineDriver<E> {
    /// A driver without a store yet.
    pub(crate) fn new(setup: Setup) -> Self {
        EngineDriver {
            setup,
            store: None,
            held: None,
        }
    }

    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.setup.homes.iter().map(|home| home.path.join("store"))
    }

    /// Closes and deletes the store, if there is one, and opens an empty one.
    fn open_fresh(&mut self) -> Result<()> {
        self.store = None;
        self.held = None;
        let mut homes = self.setup.homes.clone();
        for (home, path) in homes.iter_mut().zip(self.paths()) {
            if path.exists() {
                fs::remove_dir_all(&path)?;
            }
            fs::create_dir_all(&path)?;
            home.path = path;
        }
        self.store = Some(E::open(&homes, &self.setup.engine)?);
        Ok(())
    }

    /// Makes the store that the workload begins with, unless it is there.
    /// Returns how long it took to load and settle.
    fn make_ready(&mut self, order: &RunOrder) -> Result<Option<f64>> {
        let same = |held: &Held| {
            held.workload.starts_as(&order.workload)
                && held.records == order.records
                && !(held.has_run && order.workload.uses_up_its_start())
        };
        if self.held.as_ref().is_some_and(same) {
            return Ok(None);
        }
        let began = Instant::now();
        self.open_fresh()?;
        let trace = match &order.workload.trace {
            Some(path) => {
                let trace = Trace::read(path, order.workload.value_bytes)?;
                Some(Arc::new(trace))
            }
            None => None,
        };
        let (keys, record_bytes) = match &trace {
            Some(trace) => (Keys::Listed(Arc::clone(trace)), trace.data_bytes() as f64),
            None => {
                let text = order.workload.keys;
                let bytes = text.mean_bytes() + f64::from(order.workload.value_bytes);
                (Keys::Made(text), bytes)
            }
        };
        let store = self.store.as_ref().ok_or("no store is open")?;
        load::load(store, order, &keys, trace.as_deref())?;
        if order.workload.start != Start::FilledAtRandom {
            store.settle()?;
        }
        self.held = Some(Held {
            workload: order.workload.clone(),
            records: order.records,
            inserted: 0,
            has_run: false,
            keys,
            trace,
            record_bytes,
        });
        let took = began.elapsed().as_secs_f64();
        Ok(Some(took).filter(|_| order.workload.start != Start::Empty))
    }

    /// The device counters of every home.
    fn counters(&self) -> Vec<Option<Counters>> {
        let homes = self.setup.homes.iter();
        homes.map(|home| Counters::of(&home.path).ok()).collect()
    }

    fn home_uses(
        &self,
        peaks: Vec<u64>,
        measured: [&[Option<Counters>]; 2],
        settled: [&[Option<Counters>]; 2],
    ) -> Result<Vec<HomeUse>> {
        let between = |[before, after]: [&[Option<Counters>]; 2], index: usize| {
            Some(after[index]? - before[index]?)
        };
        let mut uses = Vec::new();
        let homes = self.setup.homes.iter().zip(self.paths()).zip(peaks);
        for (index, ((home, path), peak_bytes)) in homes.enumerate() {
            let bytes = disk_bytes(&path)?;
            uses.push(HomeUse {
                tier: home.name.clone(),
                bytes,
                peak_bytes: peak_bytes.max(bytes),
                price_usd_month: bytes as f64 / 1e9 * home.price_usd_gb_month,
                measured: between(measured, index),
                settled: between(settled, index),
            });
        }
        Ok(uses)
    }
}

impl<E: Engine> Driver for EngineDriver<E> {
    fn run(&mut self, order: &RunOrder) -> Result<RunOutcome> {
        if order.load_only {
            return Ok(RunOutcome {
                load_seconds: self.make_ready(order)?,
                ..RunOutcome::default()
            });
        }
        self.run_beside(order, |_| Ok(()))
            .map(|(outcome, ())| outcome)
    }
}

impl<E: Engine> EngineDriver<E> {
    /// Runs one, with `beside` on a thread of its own from the beginning of the warm-up on.
    /// Requires: `beside` ends by itself.
    pub(crate) fn run_beside<T: Send>(
        &mut self,
        order: &RunOrder,
        beside: impl FnOnce(&E) -> Result<T> + Send,
    ) -> Result<(RunOutcome, T)> {
        let load_seconds = self.make_ready(order)?;
        let store = self.store.as_ref().ok_or("no store is open")?;
        if let Some(held) = &mut self.held {
            held.has_run = true;
        }
        let held = self.held.as_ref().ok_or("no store is loaded")?;
        let records = match &held.trace {
            Some(trace) => trace.keys().len() as u64,
            None => order.records + held.inserted,
        };
        let inserted = Inserted::new(records);
        let shared = Shared::new(order, &inserted, &held.keys, E::CHECKED);
        let chooser = Chooser::new(order.workload.choice, records);
        let counted_before = store.counted()?;
        reset_rss_peak();
        let devices_before = self.counters();
        let watches: Vec<Watch> = self.paths().map(|p| Watch::of_directory(&p)).collect();
        let memory = Watch::of_resident_memory();

        let (timed, seen) = thread::scope(|scope| -> Result<_> {
            let beside = scope.spawn(|| beside(store));
            let timed = clock::run(store, order, &shared, &chooser, held.trace.as_ref(), || {
                let counted = store.counted()?;
                Ok((self.counters(), cpu_seconds(), counted, memory.looks()))
            });
            let seen = beside
                .join()
                .map_err(|_| "a thread beside the run panicked")?;
            Ok((timed?, seen?))
        })?;

        let settling = Instant::now();
        let mut settle_seconds = 0.0;
        if order.workload.writes() {
            let watched = store.settle()?;
            settle_seconds = settling.elapsed().saturating_sub(watched).as_secs_f64();
        }
        let devices_after = self.counters();
        let [from, to] = timed.marks;
        let (measured_from, cpu_from, counted_from, looks_from) = from;
        let (measured_to, cpu_to, counted_to, looks_to) = to;
        let peaks = watches.into_iter().map(Watch::peak_bytes).collect();
        let homes = self.home_uses(
            peaks,
            [&measured_from, &measured_to],
            [&devices_before, &devices_after],
        )?;
        let live_bytes = match (&held.trace, order.workload.start) {
            (Some(_), _) => Some(held.record_bytes as u64),
            (None, Start::Loaded) => Some((held.record_bytes * inserted.readable() as f64) as u64),
            // How many records were hit is not known.
            (None, _) => None,
        };
        let counts = timed.tally.counts();
        let are_timed = order.rate.is_none() && counts[tally::Class::Write as usize] > 0;
        let clients = f64::from(order.clients.max(1));
        let long_write_seconds = are_timed.then(|| timed.tally.long_write_seconds() / clients);
        let outcome = RunOutcome {
            load_seconds,
            operations: timed.operations,
            seconds: timed.seconds,
            drift: clock::drift(&timed.per_second),
            per_second: timed.per_second,
            counts,
            latency_ns: timed.tally.percentiles(),
            latency_all_ns: timed.tally.percentiles_of_all()?,
            curves_ns: timed.tally.curves(),
            long_write_seconds,
            missing: timed.tally.missing,
            cpu_seconds: cpu_to - cpu_from,
            rss_peak_bytes: rss_peak_bytes(),
            rss_mean_bytes: looks_to.mean_since(looks_from),
            read_bytes: timed.tally.read_bytes,
            written_bytes: timed.tally.written_bytes,
            live_bytes,
            settle_seconds,
            tables: store.tables(),
            homes,
            counted: counted_since(&counted_before, store.counted()?),
            counted_measured: counted_since(&counted_from, counted_to),
        };
        let more = inserted.readable() - records;
        match &mut self.held {
            Some(held) if order.keep_inserted => held.inserted += more,
            // It is no longer the store that the next one begins with.
            held if more > 0 || order.workload.start == Start::Empty => *held = None,
            _ => {}
        }
        Ok((outcome, seen))
    }
}

impl<E> Drop for EngineDriver<E> {
    fn drop(&mut self) {
        self.store = None;
        for home in &self.setup.homes {
            remove_quietly(&home.path);
        }
    }
}

#[cfg(test)]
mod tests;
