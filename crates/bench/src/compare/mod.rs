//! `thermocline-bench compare`: the same workloads on every engine, on the same
//! devices, with the same means, beside the limit.
//!
//! Contenders run one after the other, each alone on the machine and in a
//! process of its own; the next repetition begins when all have had their turn.
//! Workloads that begin with the same store share it, as YCSB's do.

use std::fs;

use crate::contender::Contender;
use crate::drive::{RunOrder, RunOutcome};
use crate::engine::Result;
use crate::failure::Failure;
use crate::mix;
use crate::report::compare::{Lines, Measured, tables};
use crate::report::html::page;
use crate::report::plots::sections;
use crate::usage::machine;
use crate::worker::{Task, Worker};

mod args;
mod load;
mod places;

pub(crate) use args::CompareArgs;
use load::{Load, loads};
pub(crate) use places::Places;

/// A rate counts as reached from this share of it on.
const RATE_SHARE_REACHED: f64 = 0.98;

/// A run whose halves differ by more than this is drifting.
const DRIFT_MAX: f64 = 0.1;

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
