//! `thermocline-bench compare`: the same workloads on every engine, on the same
//! devices, with the same means, beside the limit.
//!
//! Contenders run one after the other, each alone on the machine and in a
//! process of its own; the next repetition begins when all have had their turn.
//! Workloads that begin with the same store share it, as YCSB's do.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::contender::Contender;
use crate::drive::{RunOrder, RunOutcome};
use crate::engine::{Compression, Result};
use crate::failure::Failure;
use crate::mix;
use crate::report::compare::{Lines, Measured, tables};
use crate::report::html::page;
use crate::report::plots::sections;
use crate::usage::machine;
use crate::worker::{Task, Worker};

mod load;
mod places;

use load::{Load, loads};
pub(crate) use places::Places;

/// Workloads of `--quick`.
const QUICK_WORKLOADS: &str = "ycsb-a,ycsb-c,ycsb-e,logstore-write-only";

/// A rate counts as reached from this share of it on.
const RATE_SHARE_REACHED: f64 = 0.98;

/// A run whose halves differ by more than this is drifting.
const DRIFT_MAX: f64 = 0.1;

/// Seconds beyond which no run goes: a month.
const SECONDS_MAX: f64 = 2_678_400.0;

/// Operations beyond which no run goes.
const OPERATIONS_MAX: u64 = 1_000_000_000_000;

/// The options of the subcommand.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Workloads are names or families of names; behind a colon another distribution
takes the place of the workload's own: ycsb-c:zipf=1.2, nova:uniform,
ycsb-a:hotspot=80/20 (percent of operations, of records), ycsb-c:shift=30 (the
hot records move every 30 seconds). trace=FILE replays a trace.
Engines are ENGINE[:PRESET][@FILE][/LAYOUT]: thermocline, thermocline:leveled,
thermocline@options.toml, thermocline/all-fast, rocksdb/db-paths,
rocksdb/all-slow, leveldb/all-fast, fjall/all-fast, null.

Exit codes: 0 if every engine has a result of every workload; 1 if one has none;
2 if the options cannot be obeyed.")]
pub(crate) struct CompareArgs {
    /// Workloads to run, in this order [default: ycsb].
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,
    /// Engines to run [default: those of this build in the usual configurations].
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Records in the store [default: 2000000; quick: 50000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=1_000_000_000_000))]
    records: Option<u64>,
    /// Bytes of a value [default: the workload's own].
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=67_108_864))]
    value_bytes: Option<u32>,
    /// Keys in the order of records, so that hot ones lie side by side.
    #[arg(long)]
    clustered: bool,
    /// Threads that act at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    clients: u32,
    /// Seconds measured of each run [default: 60; quick: 3].
    #[arg(long)]
    seconds: Option<f64>,
    /// Seconds before these [default: a third of them].
    #[arg(long)]
    warmup: Option<f64>,
    /// Operations measured of each run, all clients together, instead of --seconds: the same work
    /// for all, each as fast as it can, so that time in stalls is that of equal work.
    #[arg(long, conflicts_with_all = ["seconds", "warmup", "rate", "rate_of"], value_parser = clap::value_parser!(u64).range(1..=OPERATIONS_MAX))]
    operations: Option<u64>,
    /// Operations before these [default: a third of them].
    #[arg(long, requires = "operations", value_parser = clap::value_parser!(u64).range(0..=OPERATIONS_MAX))]
    warmup_operations: Option<u64>,
    /// How often everything is run [default: 3; quick: 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Operations a second, all clients together: an open loop, whose latencies
    /// count from the intended start [default: a closed loop].
    #[arg(long)]
    rate: Option<f64>,
    /// The slowest of the engines: it is asked for all that it can do, and the others for its rate
    /// in each workload, in an open loop, so that latencies and stalls are those of equal work.
    #[arg(long, conflicts_with = "rate")]
    rate_of: Option<String>,
    /// MiB of memory for an engine: an eighth is write buffer, at most 64 MiB,
    /// and three eighths are block cache [default: the rig's cap, else 8 % of the
    /// data].
    #[arg(long, value_parser = clap::value_parser!(u64).range(8..=16_777_216))]
    memory_mib: Option<u64>,
    /// Percent of the data as loaded that may lie on each tier but the last; more than
    /// 100 for a store that grows.
    #[arg(long, value_delimiter = ',', default_value = "16")]
    fast_share: Vec<f64>,
    /// A small run of a few workloads, under five minutes.
    #[arg(long)]
    quick: bool,
    /// Also append each result to this file, as a line of JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also write a report with plots to this file, readable without a network.
    #[arg(long)]
    html: Option<PathBuf>,
    /// A directory for the fast tier; needs --slow [default: the rig that is up].
    #[arg(long, requires = "slow")]
    fast: Option<PathBuf>,
    /// A directory for the slow tier.
    #[arg(long, requires = "fast")]
    slow: Option<PathBuf>,
    /// USD per GB and month of each tier [default: the rig's, else unknown].
    #[arg(long, value_delimiter = ',')]
    prices: Vec<f64>,
    /// Read tables past the page cache, where the engine can.
    #[arg(long)]
    direct_reads: bool,
    /// Lift the rig's caps while a store is loaded and settles. What is measured
    /// afterwards is under them.
    #[arg(long)]
    load_uncapped: bool,
    /// Load each store once: a workload goes on with what the inserts of those
    /// before it have left, and need not begin with a fresh store.
    #[arg(long)]
    load_once: bool,
    /// Have every write on its device before it is acknowledged.
    #[arg(long)]
    sync: bool,
    /// Compress the blocks of tables; an engine that has no such compression is
    /// refused.
    #[arg(long, value_enum, default_value = "none")]
    compression: Compression,
    /// Percent of a value's bytes that compress away; the rest is random.
    #[arg(long, default_value_t = 0.0, value_parser = percent)]
    compressible: f64,
    /// Background threads of a store.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    background_threads: u32,
    /// Bits of Bloom filter for each key.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=30))]
    filter_bits: u32,
}

/// A share in percent.
fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("from 0 to 100".to_string()),
    }
}

impl CompareArgs {
    /// The memory asked for; 0 for the default.
    #[cfg(feature = "thermocline")]
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_mib.unwrap_or(0) << 20
    }

    fn records(&self) -> u64 {
        self.records
            .unwrap_or(if self.quick { 50_000 } else { 2_000_000 })
    }

    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { 3.0 } else { 60.0 })
    }

    fn warmup(&self) -> f64 {
        self.warmup.unwrap_or(self.seconds() / 3.0)
    }

    /// Operations of warm-up and those measured, if they are counted.
    fn operations(&self) -> Option<[u64; 2]> {
        let measured = self.operations?;
        Some([self.warmup_operations.unwrap_or(measured / 3), measured])
    }

    /// How long a run is, in words.
    fn length(&self) -> String {
        match self.operations() {
            Some([warmup, measured]) => {
                format!("{warmup} operations of warm-up, {measured} measured")
            }
            None => format!(
                "{:.1} s of warm-up, {} s measured",
                self.warmup(),
                self.seconds()
            ),
        }
    }

    fn repeat(&self) -> u32 {
        self.repeat.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// Fails in words where a number is out of range that clap does not check.
    fn check(&self) -> Result<(), String> {
        let within = |name: &str, number: f64, least: f64, most: f64| {
            let good = number >= least && number <= most;
            let words = || format!("--{name}: expected {least} to {most}, found {number}");
            if good { Ok(()) } else { Err(words()) }
        };
        within("seconds", self.seconds(), 0.1, SECONDS_MAX)?;
        within("warmup", self.warmup(), 0.0, SECONDS_MAX)?;
        if let Some(rate) = self.rate {
            within("rate", rate, 0.001, 1e9)?;
        }
        for &price in &self.prices {
            within("prices", price, 0.0, 1e9)?;
        }
        for &share in &self.fast_share {
            within("fast-share", share, 0.01, 1000.0)?;
        }
        Ok(())
    }

    /// The workloads asked for.
    fn workloads(&self) -> Result<Vec<mix::Workload>, String> {
        let asked: Vec<&str> = match (self.workloads.is_empty(), self.quick) {
            (false, _) => self.workloads.iter().map(String::as_str).collect(),
            (true, true) => QUICK_WORKLOADS.split(',').collect(),
            (true, false) => vec!["ycsb"],
        };
        let mut all = Vec::new();
        for text in asked {
            for mut workload in mix::parse(text)? {
                workload.keys.clustered |= self.clustered;
                workload.value_bytes = self.value_bytes.unwrap_or(workload.value_bytes);
                all.push(workload);
            }
        }
        Ok(all)
    }

    /// The contenders asked for, and what to say of those left out.
    fn contenders(&self) -> Result<(Vec<Contender>, Vec<&'static str>), String> {
        if self.engines.is_empty() {
            if self.rate_of.is_some() {
                return Err("--rate-of needs --engines".to_string());
            }
            return Ok(Contender::usual(self.quick));
        }
        let mut contenders = Vec::new();
        for text in &self.engines {
            let contender: Contender = text.parse()?;
            if let Some(missing) = contender.engine.missing() {
                return Err(missing.to_string());
            }
            contenders.push(contender);
        }
        if let Some(text) = &self.rate_of {
            let first: Contender = text.parse()?;
            let Some(at) = contenders.iter().position(|c| *c == first) else {
                return Err(format!("--rate-of {text}: --engines has no such engine"));
            };
            contenders[..=at].rotate_right(1);
        }
        Ok((contenders, Vec::new()))
    }
}

/// Runs the comparison and prints the report.
pub(crate) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let stage = Stage::new(args)?;
    let rules = describe(args, &stage.places, &stage.loads);
    println!("{rules}");
    let caveats = stage.contenders.iter().filter_map(|c| c.engine.caveat());
    let mut said: Vec<&str> = stage.missing.iter().copied().chain(caveats).collect();
    said.dedup();
    said.iter().for_each(|words| println!("{words}."));

    let runs = stage.runs(args)?;
    println!("\n{}", tables(&runs.results));
    if stage.places.memory_bytes_max().is_none() {
        println!(
            "Memory was not capped: an engine that reads through the page cache may exceed the \
             limit.\n"
        );
    }
    if let Some(path) = &args.html {
        let page = page("Comparison", &sections(&rules, &runs.results));
        fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    runs.judge(&stage.contenders, &stage.loads)
}

/// Runs the comparison and prints nothing; every contender has a result of every
/// workload.
#[cfg(feature = "thermocline")]
pub(crate) fn measure(args: &CompareArgs) -> Result<Vec<Measured>, Failure> {
    let stage = Stage::new(args)?;
    let runs = stage.runs(args)?;
    runs.judge(&stage.contenders, &stage.loads)?;
    Ok(runs.results)
}

/// Where a comparison takes place, and who takes part.
pub(crate) struct Stage {
    pub places: Places,
    contenders: Vec<Contender>,
    /// Why others of the usual ones do not.
    missing: Vec<&'static str>,
    loads: Vec<Load>,
}

impl Stage {
    /// What `args` ask for; nothing is written but empty directories.
    pub(crate) fn new(args: &CompareArgs) -> Result<Stage, Failure> {
        args.check().map_err(Failure::Usage)?;
        let workloads = args.workloads().map_err(Failure::Usage)?;
        let (contenders, missing) = args.contenders().map_err(Failure::Usage)?;
        let places = Places::new(args).map_err(Failure::Usage)?;
        let loads = loads(args, workloads, &places).map_err(Failure::Usage)?;
        for load in &loads {
            places
                .check_room(load, &contenders)
                .map_err(Failure::Usage)?;
        }
        Ok(Stage {
            places,
            contenders,
            missing,
            loads,
        })
    }

    /// What the first contender is told for the first workload, and the order to
    /// run that; its directories are made.
    #[cfg(feature = "thermocline")]
    pub(crate) fn first(
        &self,
        args: &CompareArgs,
    ) -> Result<(crate::drive::Setup, RunOrder), Failure> {
        let (Some(contender), Some(load)) = (self.contenders.first(), self.loads.first()) else {
            return Err(Failure::Usage("no engine or no workload".into()));
        };
        let setup = self.places.setup(args, contender, load)?;
        Ok((setup, order(args, &load.workloads[0].workload, [0, 0])))
    }

    /// Runs all, one after the other.
    fn runs<'a>(&'a self, args: &'a CompareArgs) -> Result<Runs<'a>> {
        let mut runs = Runs {
            args,
            places: &self.places,
            lines: args.json.as_deref().map(Lines::open).transpose()?,
            results: Vec::new(),
            failures: Vec::new(),
        };
        for repetition in 0..args.repeat() {
            for load in &self.loads {
                for contender in &self.contenders {
                    runs.contender(contender, load, repetition)?;
                }
            }
        }
        Ok(runs)
    }
}

/// The order to run `workload`: in which repetition, and after how many others on the
/// same store. What it draws depends on both: with the same keys in the same order as the
/// one before, caches would have seen them all.
fn order(args: &CompareArgs, workload: &mix::Workload, [repetition, others]: [u32; 2]) -> RunOrder {
    RunOrder {
        workload: workload.clone(),
        records: args.records(),
        clients: args.clients,
        warmup_seconds: args.warmup(),
        seconds: args.seconds(),
        operations: args.operations(),
        rate: args.rate,
        seed: (u64::from(repetition) << 16) + u64::from(others) + 1,
        load_only: false,
        keep_inserted: args.load_once,
        compressible: args.compressible / 100.0,
    }
}

/// The runs and what came of them.
struct Runs<'a> {
    args: &'a CompareArgs,
    places: &'a Places,
    lines: Option<Lines>,
    results: Vec<Measured>,
    failures: Vec<String>,
}

impl Runs<'_> {
    /// Runs all workloads of `load` on one contender.
    fn contender(&mut self, contender: &Contender, load: &Load, repetition: u32) -> Result<()> {
        let setup = self.places.setup(self.args, contender, load)?;
        let task = Task::Compare(setup);
        let mut worker = Worker::start(contender.engine, task, self.places.rig())?;
        for (planned, others) in load.workloads.iter().zip(0..) {
            let rate = match self.rate(contender, &planned.workload, repetition) {
                Ok(rate) => rate,
                Err(error) => {
                    self.fail(format!("{contender}, {}: {error}", planned.workload.name));
                    continue;
                }
            };
            let order = RunOrder {
                rate,
                ..order(self.args, &planned.workload, [repetition, others])
            };
            let loaded = self.load_uncapped(&mut worker, &order);
            let name = &planned.workload.name;
            let done = loaded.and_then(|seconds| {
                let outcome = worker.run::<RunOutcome>(&order)?;
                let load_seconds = outcome.load_seconds.or(seconds);
                Ok(RunOutcome {
                    load_seconds,
                    ..outcome
                })
            });
            match done {
                Ok(outcome) => {
                    let limit = planned.limit(self.places, contender, load);
                    let measured = Measured {
                        contender: contender.to_string(),
                        workload: name.clone(),
                        repetition,
                        marks: marks(&order, &outcome),
                        emulated: self.places.rig().is_some(),
                        order,
                        outcome,
                        limit,
                    };
                    eprintln!("{}", measured.line());
                    if let Some(lines) = &mut self.lines {
                        lines.write(&measured)?;
                    }
                    self.results.push(measured);
                }
                Err(error) => self.fail(format!("{contender}, {name}: {error}")),
            }
        }
        Ok(())
    }

    fn fail(&mut self, words: String) {
        eprintln!("{words}");
        self.failures.push(words);
    }

    /// Operations a second that `contender` is asked for.
    fn rate(
        &self,
        contender: &Contender,
        workload: &mix::Workload,
        repetition: u32,
    ) -> Result<Option<f64>> {
        let Some(of) = &self.args.rate_of else {
            return Ok(self.args.rate);
        };
        let of = of.parse::<Contender>()?;
        if *contender == of {
            return Ok(None);
        }
        let (of, name) = (of.to_string(), &workload.name);
        let runs = &mut self.results.iter();
        let run =
            runs.find(|m| (&m.contender, &m.workload, m.repetition) == (&of, name, repetition));
        match run.map(Measured::per_second).filter(|rate| *rate > 0.0) {
            Some(rate) => Ok(Some(rate)),
            None => Err(format!("{of} has no result of {name}, whose rate was asked for").into()),
        }
    }

    /// If it was asked for, has the store of `order` made with the caps lifted.
    /// Returns how long that took, if it was not there yet.
    fn load_uncapped(&self, worker: &mut Worker, order: &RunOrder) -> Result<Option<f64>> {
        let rig = self.places.rig().filter(|_| self.args.load_uncapped);
        // A store that is filled in the run itself is never filled uncapped.
        let Some(rig) = rig.filter(|_| order.workload.start != mix::Start::Empty) else {
            return Ok(None);
        };
        let order = RunOrder {
            load_only: true,
            ..order.clone()
        };
        rig.lift_caps()?;
        let outcome = worker.run::<RunOutcome>(&order);
        rig.set_caps()?;
        Ok(outcome?.load_seconds)
    }

    /// Fails if some contender has no result of some workload.
    fn judge(&self, contenders: &[Contender], loads: &[Load]) -> Result<(), Failure> {
        let mut lost = Vec::new();
        for planned in loads.iter().flat_map(|load| &load.workloads) {
            let name = &planned.workload.name;
            for contender in contenders.iter().map(Contender::to_string) {
                let stands =
                    |m: &Measured| m.contender == contender && m.workload == *name && m.stands();
                if !self.results.iter().any(stands) {
                    lost.push(format!("{contender} has no result of {name}"));
                }
            }
        }
        match lost.is_empty() {
            true => Ok(()),
            false => {
                lost.extend(self.failures.iter().cloned());
                Err(Failure::Run(lost.join("\n")))
            }
        }
    }
}

/// What a reader must know of a run.
fn marks(order: &RunOrder, outcome: &RunOutcome) -> Vec<String> {
    let mut marks = Vec::new();
    if outcome.operations == 0 {
        marks.push("nothing done".to_string());
    }
    let counted = order.workload.start == mix::Start::Empty;
    match outcome.drift {
        Some(drift) if drift.abs() > DRIFT_MAX && order.rate.is_none() && !counted => {
            marks.push(format!("drifting {:+.0} %", drift * 100.0));
        }
        _ => {}
    }
    if let Some(rate) = order.rate
        && (outcome.operations as f64) < RATE_SHARE_REACHED * rate * outcome.seconds
    {
        marks.push("rate not reached".to_string());
    }
    marks
}

/// The rules, the machine, the tiers and the workloads.
fn describe(args: &CompareArgs, places: &Places, loads: &[Load]) -> String {
    let clients = args.clients;
    let pace = match (args.rate, &args.rate_of) {
        (Some(rate), _) => format!(
            "open loop at {rate} operations a second over {clients} clients, latencies from the \
             intended start"
        ),
        (None, Some(of)) => format!(
            "closed loop of {clients} clients with {of}, and an open loop at its rates with the \
             others, latencies from the intended start"
        ),
        (None, None) => format!("closed loop of {clients} clients"),
    };
    let shares: Vec<String> = args.fast_share.iter().map(f64::to_string).collect();
    let mut text = format!(
        "{pace}; {}, {} repetitions.\n\
         Rules for all: {}{}, filters of {} bits a key, log written and {}, {} background \
         threads, the same write buffer and block cache; {} % of the data on each tier but the \
         last; reads of tables {}{}.\n\
         {}.\n{}",
        args.length(),
        args.repeat(),
        args.compression.words(),
        match args.compressible {
            0.0 => String::new(),
            percent => format!(", values of which {percent} % compress away"),
        },
        args.filter_bits,
        if args.sync { "synced" } else { "not synced" },
        args.background_threads,
        shares.join(" and "),
        if args.direct_reads {
            "past the page cache (thermocline and rocksdb; leveldb and fjall cannot)"
        } else {
            "through the page cache"
        },
        match (args.load_uncapped, args.load_once) {
            (true, true) => "; stores are loaded once, with the caps lifted",
            (true, false) => "; stores are loaded with the caps lifted",
            (false, true) => "; stores are loaded once",
            (false, false) => "",
        },
        machine(),
        places.describe(),
    );
    for load in loads {
        text.push_str(&load.describe());
    }
    text
}

#[cfg(test)]
mod tests;
