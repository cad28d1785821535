//! Thermocline beside RocksDB and LevelDB: the same driver, the same machine,
//! the same run.
//!
//! `engine` has a file for each engine, `workload` the loops that are timed, `keys` and `mix` what
//! the workloads of `compare` do, `drive` runs them, `limit` what no engine can exceed, `report`
//! the tables, `worker` the process that each engine runs in, `tiers` the emulated devices,
//! `device` what the kernel counts of them, and each subcommand is a file here.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod compare;
mod contender;
mod device;
mod dice;
mod drive;
mod engine;
mod failure;
mod keys;
mod limit;
mod memory;
mod mix;
#[cfg(feature = "thermocline")]
mod papers;
mod report;
mod scratch;
mod tiers;
mod usage;
mod worker;
mod workload;

use failure::Failure;

/// One allocator for all engines; see Cargo.toml.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Thermocline beside RocksDB and LevelDB: same driver, same machine, same run.
#[derive(Parser)]
#[command(name = "thermocline-bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Small entries in a store that fits in memory.
    Memory(memory::MemoryArgs),
    /// Workloads over a fast and a slow tier, beside the limit.
    Compare(compare::CompareArgs),
    /// The tables and figures of the papers: the list, or one by name.
    #[cfg(feature = "thermocline")]
    Papers(papers::PapersArgs),
    /// Emulated devices: a fast and one or more slow file systems with caps.
    Tiers(tiers::TiersArgs),
    /// The process of one engine; started by the others.
    #[command(name = worker::SUBCOMMAND, hide = true)]
    Worker,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Memory(args) => memory::run(&args),
        Command::Compare(args) => compare::run(&args),
        #[cfg(feature = "thermocline")]
        Command::Papers(args) => papers::run(&args),
        Command::Tiers(args) => tiers::run(&args),
        Command::Worker => worker::serve().map_err(Failure::from),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(words)) => {
            eprintln!("error: {words}");
            ExitCode::from(2)
        }
        Err(Failure::Run(words)) => {
            eprintln!("error: {words}");
            ExitCode::FAILURE
        }
    }
}
