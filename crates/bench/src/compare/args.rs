//! The options of `compare`.

use std::path::PathBuf;

use clap::Args;

use crate::contender::Contender;
use crate::engine::{Compression, Result};
use crate::mix;

/// Workloads of `--quick`.
const QUICK_WORKLOADS: &str = "ycsb-a,ycsb-c,ycsb-e,logstore-write-only";

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
    pub(super) clients: u32,
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
    pub(super) rate: Option<f64>,
    /// The slowest of the engines: it is asked for all that it can do, and the others for its rate
    /// in each workload, in an open loop, so that latencies and stalls are those of equal work.
    #[arg(long, conflicts_with = "rate")]
    pub(super) rate_of: Option<String>,
    /// MiB of memory for an engine: an eighth is write buffer, at most 64 MiB,
    /// and three eighths are block cache [default: the rig's cap, else 8 % of the
    /// data].
    #[arg(long, value_parser = clap::value_parser!(u64).range(8..=16_777_216))]
    pub(super) memory_mib: Option<u64>,
    /// Percent of the data as loaded that may lie on each tier but the last; more than
    /// 100 for a store that grows.
    #[arg(long, value_delimiter = ',', default_value = "16")]
    pub(super) fast_share: Vec<f64>,
    /// A small run of a few workloads, under five minutes.
    #[arg(long)]
    quick: bool,
    /// Also append each result to this file, as a line of JSON.
    #[arg(long)]
    pub(super) json: Option<PathBuf>,
    /// Also write a report with plots to this file, readable without a network.
    #[arg(long)]
    pub(super) html: Option<PathBuf>,
    /// A directory for the fast tier; needs --slow [default: the rig that is up].
    #[arg(long, requires = "slow")]
    pub(super) fast: Option<PathBuf>,
    /// A directory for the slow tier.
    #[arg(long, requires = "fast")]
    pub(super) slow: Option<PathBuf>,
    /// USD per GB and month of each tier [default: the rig's, else unknown].
    #[arg(long, value_delimiter = ',')]
    pub(super) prices: Vec<f64>,
    /// Read tables past the page cache, where the engine can.
    #[arg(long)]
    pub(super) direct_reads: bool,
    /// Lift the rig's caps while a store is loaded and settles. What is measured
    /// afterwards is under them.
    #[arg(long)]
    pub(super) load_uncapped: bool,
    /// Load each store once: a workload goes on with what the inserts of those
    /// before it have left, and need not begin with a fresh store.
    #[arg(long)]
    pub(super) load_once: bool,
    /// Have every write on its device before it is acknowledged.
    #[arg(long)]
    pub(super) sync: bool,
    /// Compress the blocks of tables; an engine that has no such compression is
    /// refused.
    #[arg(long, value_enum, default_value = "none")]
    pub(super) compression: Compression,
    /// Percent of a value's bytes that compress away; the rest is random.
    #[arg(long, default_value_t = 0.0, value_parser = percent)]
    pub(super) compressible: f64,
    /// Background threads of a store.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) background_threads: u32,
    /// Bits of Bloom filter for each key.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=30))]
    pub(super) filter_bits: u32,
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

    pub(super) fn records(&self) -> u64 {
        self.records
            .unwrap_or(if self.quick { 50_000 } else { 2_000_000 })
    }

    pub(super) fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { 3.0 } else { 60.0 })
    }

    pub(super) fn warmup(&self) -> f64 {
        self.warmup.unwrap_or(self.seconds() / 3.0)
    }

    /// Operations of warm-up and those measured, if they are counted.
    pub(super) fn operations(&self) -> Option<[u64; 2]> {
        let measured = self.operations?;
        Some([self.warmup_operations.unwrap_or(measured / 3), measured])
    }

    /// How long a run is, in words.
    pub(super) fn length(&self) -> String {
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

    pub(super) fn repeat(&self) -> u32 {
        self.repeat.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// Fails in words where a number is out of range that clap does not check.
    pub(super) fn check(&self) -> Result<(), String> {
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
    pub(super) fn workloads(&self) -> Result<Vec<mix::Workload>, String> {
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
    pub(super) fn contenders(&self) -> Result<(Vec<Contender>, Vec<&'static str>), String> {
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
