//! Measures what an append to the log costs, mapped and plain, and what group
//! commit makes of many writers.
//!
//! `cargo run --release -p thermocline --example log_speed -- [directory]`

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use thermocline::Result;
use thermocline::log::{LocalLog, LogOptions, replay, truncate_torn};
use thermocline::store::Environment;
use thermocline_model::SeqNo;

const STORE: u128 = 1;

fn main() -> Result<()> {
    let root = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join(format!("log_speed_{}", std::process::id()));
    let environment = Environment::real();
    let file_system = &environment.file_system;
    for mapped in [true, false] {
        for payload_bytes in [16, 150, 1000, 4096] {
            run(&environment, &root, mapped, |directory| {
                append(&environment, directory, mapped, payload_bytes)
            })?;
        }
        for writers in [1, 8] {
            run(&environment, &root, mapped, |directory| {
                group(&environment, directory, mapped, writers)
            })?;
        }
    }
    file_system
        .remove_directory(&root)
        .map_err(|error| thermocline::Error::io("remove", &root, error))
}

/// Runs `measure` in a fresh directory.
fn run(
    environment: &Environment,
    root: &Path,
    mapped: bool,
    measure: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let directory = root.join(if mapped { "mapped" } else { "plain" });
    let fail = |error| thermocline::Error::io("prepare", &directory, error);
    let file_system = &environment.file_system;
    file_system.create_directory(&directory).map_err(fail)?;
    let result = measure(&directory);
    for entry in file_system.list(&directory).map_err(fail)? {
        let path = directory.join(entry.name);
        file_system.unlink(&path).map_err(fail)?;
    }
    file_system.remove_directory(&directory).map_err(fail)?;
    result
}

fn open(environment: &Environment, directory: &Path, mapped: bool) -> Result<LocalLog> {
    let options = LogOptions {
        mapped,
        ..LogOptions::default()
    };
    LocalLog::create(environment, directory, STORE, options, 1, SeqNo::ZERO)
}

/// One writer, no syncs: the price of an append, and of its replay.
fn append(
    environment: &Environment,
    directory: &Path,
    mapped: bool,
    payload_bytes: usize,
) -> Result<()> {
    let frames = (256 << 20) / (payload_bytes as u64 + 40);
    let payload = vec![7u8; payload_bytes];
    let crc = crc32c::crc32c(&payload);
    let mut log = open(environment, directory, mapped)?;
    let mut slowest = Duration::ZERO;
    let mut latencies: Vec<u32> = Vec::with_capacity(frames as usize);
    let start = Instant::now();
    for seq in 1..=frames {
        log.append(SeqNo(seq), 1, &payload, crc)?;
    }
    let elapsed = start.elapsed();
    for seq in frames + 1..=2 * frames {
        let start = Instant::now();
        log.append(SeqNo(seq), 1, &payload, crc)?;
        let latency = start.elapsed();
        latencies.push(latency.as_nanos() as u32);
        slowest = slowest.max(latency);
    }
    latencies.sort_unstable();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    drop(log);
    let start = Instant::now();
    let report = replay(environment, directory, STORE, 1, SeqNo::ZERO, &mut |_| {
        Ok(())
    })?;
    truncate_torn(environment, directory, &report)?;
    let replayed = start.elapsed();
    println!(
        "mapped {mapped:5}  payload {payload_bytes:5} bytes  {:6.0} ns/append  \
         p50 {} p99 {} p99.9 {} ns, slowest {slowest:?}  sync and replay {:.0} MB/s",
        elapsed.as_nanos() as f64 / frames as f64,
        at(0.5),
        at(0.99),
        at(0.999),
        report.bytes as f64 / 1e6 / replayed.as_secs_f64(),
    );
    Ok(())
}

/// Many writers, each waiting for its own entry to be durable.
fn group(environment: &Environment, directory: &Path, mapped: bool, writers: usize) -> Result<()> {
    let payload = [7u8; 150];
    let crc = crc32c::crc32c(&payload);
    let log = open(environment, directory, mapped)?;
    let syncer = log.syncer();
    let log = Mutex::new((log, 0));
    let start = Instant::now();
    let limit = Duration::from_secs(2);
    let written = std::thread::scope(|scope| {
        let write = || -> Result<u64> {
            let mut written = 0;
            while start.elapsed() < limit {
                let seq = {
                    let (log, last) = &mut *log.lock().expect("no writer panics");
                    *last += 1;
                    log.append(SeqNo(*last), 1, &payload, crc)?;
                    *last
                };
                syncer.persist(SeqNo(seq))?;
                written += 1;
            }
            Ok(written)
        };
        let threads: Vec<_> = (0..writers).map(|_| scope.spawn(write)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no writer panics"))
            .sum::<Result<u64>>()
    })?;
    println!(
        "mapped {mapped:5}  {writers} durable writers  {:.0} writes/s, {:.0} syncs/s",
        written as f64 / start.elapsed().as_secs_f64(),
        syncer.syncs() as f64 / start.elapsed().as_secs_f64(),
    );
    Ok(())
}
