//! `thermocline-bench memory`: small entries in a store that fits in memory,
//! the rows that the engines' own benchmark programs measure, one driver for
//! all engines.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::engine::{Compression, EngineKind, EngineOptions, Result};
use crate::failure::Failure;
use crate::report::{JsonLines, Record, markdown};
use crate::scratch::Scratch;
use crate::usage::machine;
use crate::worker::{Task, Worker};
use crate::workload::{KeyKind, Order, Outcome, Row, Settings};

/// A read row reads at most this often unless told otherwise.
const READS_MAX: u64 = 2_000_000;

/// The most entries: their key numbers are doubled and have sixteen digits.
const ENTRIES_MAX: u64 = 1_000_000_000_000_000;

/// The options of the subcommand.
#[derive(Args, Debug)]
pub(crate) struct MemoryArgs {
    /// Entries in the store.
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..=ENTRIES_MAX))]
    entries: u64,
    /// Reads of a read row, all threads together [default: the entries, at most
    /// 2000000]. Seek rows do a quarter of them.
    #[arg(long, value_parser = clap::value_parser!(u64).range(16..))]
    reads: Option<u64>,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// How keys of 16 bytes are written.
    #[arg(long, value_enum, default_value = "decimal")]
    keys: KeyKind,
    /// Numbers of threads that each row is run with.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// Engines to run [default: all of this build].
    #[arg(long, value_enum, value_delimiter = ',')]
    engines: Vec<EngineKind>,
    /// Rows to run, in the order of this list [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    rows: Vec<Row>,
    /// How often everything is run; the report gives medians, least and most.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// MiB of all write buffers of a store together.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    write_buffer_mib: u64,
    /// MiB of block cache of a store.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    block_cache_mib: u64,
    /// Background threads of a store.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    background_threads: u32,
    /// Bits of Bloom filter for each key.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    filter_bits: u32,
    /// Where the stores are made, each in a new directory that is deleted at the
    /// end, unless the run is interrupted [default: the directory for temporary files].
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Time each operation and report the median and the 99th percentile. Costs
    /// two readings of the clock for each operation.
    #[arg(long)]
    latency: bool,
    /// Also append each result to this file, as a line of JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the comparison and prints the report.
pub(crate) fn run(args: &MemoryArgs) -> Result<(), Failure> {
    let engines = choose_engines(&args.engines).map_err(Failure::Usage)?;
    let parent = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = Scratch::new(&parent)?;
    let settings = settings(args, scratch.path());
    let mut json = args.json.as_deref().map(JsonLines::open).transpose()?;

    println!("{}", describe(args, &settings, &parent));
    for engine in EngineKind::ALL {
        if let (true, Some(missing)) = (args.engines.is_empty(), engine.missing()) {
            println!("{missing}.");
        }
    }
    let mut workers = Vec::new();
    for engine in engines {
        if let Some(caveat) = engine.caveat() {
            println!("{caveat}.");
        }
        let mut settings = settings.clone();
        settings.directory = scratch.path().join(engine.name());
        fs::create_dir(&settings.directory)?;
        workers.push((engine, Worker::start(engine, Task::Memory(settings), None)?));
    }

    let mut records = Vec::new();
    let mut failures = Vec::new();
    for order in orders(args) {
        // The engines take turns row by row, so that a noisy minute of the
        // machine hits all of them.
        workers.retain_mut(|(engine, worker)| match worker.run::<Outcome>(&order) {
            Ok(outcome) => {
                let rate = outcome.per_second();
                eprintln!(
                    "{engine}: {}, {} threads, repetition {}: {rate:.0}/s",
                    order.row.title(),
                    order.threads,
                    order.repetition + 1
                );
                records.push(Record {
                    engine: *engine,
                    order,
                    outcome,
                });
                true
            }
            Err(error) => {
                failures.push(format!("{engine}, {}: {error}", order.row.title()));
                eprintln!("{engine}, {}: {error}; it is left out", order.row.title());
                false
            }
        });
        if let Some(json) = &mut json {
            json.write(&records, &settings)?;
        }
    }
    drop(workers);

    println!("\n{}", markdown(&records));
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(failures.join("\n"))),
    }
}

/// The engines asked for, or all of this build; an engine asked for that is
/// missing is an error in words.
fn choose_engines(asked: &[EngineKind]) -> Result<Vec<EngineKind>, String> {
    if let Some(missing) = asked.iter().find_map(|engine| engine.missing()) {
        return Err(missing.to_string());
    }
    let chosen = |engine: &EngineKind| match asked.is_empty() {
        true => engine.missing().is_none(),
        false => asked.contains(engine),
    };
    Ok(EngineKind::ALL.into_iter().filter(chosen).collect())
}

/// Every run of every row, in the order of execution.
fn orders(args: &MemoryArgs) -> Vec<Order> {
    let rows: Vec<Row> = Row::value_variants()
        .iter()
        .copied()
        .filter(|row| args.rows.is_empty() || args.rows.contains(row))
        .collect();
    let mut orders = Vec::new();
    for repetition in 0..args.repeat {
        for &row in &rows {
            for &threads in &args.threads {
                orders.push(Order {
                    row,
                    threads,
                    repetition,
                });
            }
        }
    }
    orders
}

fn settings(args: &MemoryArgs, directory: &Path) -> Settings {
    Settings {
        engine: EngineOptions {
            held: false,
            write_buffer_bytes: (args.write_buffer_mib << 20) as usize,
            block_cache_bytes: (args.block_cache_mib << 20) as usize,
            filter_bits_per_key: args.filter_bits,
            background_threads: args.background_threads,
            entries: args.entries,
            direct_reads: false,
            synced: false,
            compression: Compression::None,
            preset: None,
            options_file: None,
        },
        keys: args.keys,
        value_bytes: args.value_bytes,
        reads: args.reads.unwrap_or(args.entries.clamp(16, READS_MAX)),
        latency: args.latency,
        directory: directory.to_path_buf(),
    }
}

/// What was measured, where, and with which means.
fn describe(args: &MemoryArgs, settings: &Settings, parent: &Path) -> String {
    let machine = machine();
    format!(
        "{} entries, keys of 16 bytes ({:?}), values of {} bytes; {} reads a row; \
         write buffers {} MiB, block cache {} MiB, filters {} bits a key, {} background threads, \
         no compression, log written and not synced; {} repetitions.\n\
         {machine}; stores below {}.\n",
        args.entries,
        args.keys,
        args.value_bytes,
        settings.reads,
        args.write_buffer_mib,
        args.block_cache_mib,
        args.filter_bits,
        args.background_threads,
        args.repeat,
        parent.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_asked_for_but_not_built_is_named_with_its_feature() {
        let answer = choose_engines(&[EngineKind::Rocksdb]);
        match cfg!(feature = "rocksdb") {
            true => assert_eq!(answer, Ok(vec![EngineKind::Rocksdb])),
            false => assert!(answer.is_err_and(|words| words.contains("--features rocksdb"))),
        }
    }

    #[test]
    fn without_a_choice_every_engine_of_the_build_runs() {
        let engines = choose_engines(&[]).unwrap();
        assert!(engines.contains(&EngineKind::Null));
        assert!(engines.iter().all(|engine| engine.missing().is_none()));
    }
}
