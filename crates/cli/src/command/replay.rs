//! `thermocline replay`.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::Out;
use crate::engine::{self, Changes, Db, Pulse};
use crate::exit::{Exit, Failure};
use crate::human;
use crate::input::source::Input;
use crate::input::trace::TraceFormat;
use crate::progress;
use crate::replay::dispatch::{Dispatch, Window};
use crate::replay::survey::{Access as Step, Survey, Trace};
use crate::replay::worker::{Measured, Worker};
use crate::report;
use crate::store::{Access, StoreArgs, TwoTiers};
use crate::temporary::Temporary;
use crate::watch::Rows;
use crate::workload::{fill, fingerprint};

/// Bytes written at once while the store is filled.
const FILL_BATCH_BYTES: usize = 256 << 10;

/// Lines of the table, where --window is not given.
const WINDOWS: u64 = 20;

/// Arguments that name a store: what is asked of the temporary one would be asked of nobody.
const OF_A_STORE: [&str; 3] = ["db", "options", "tiers"];

/// Replay an access trace and show where its reads are served
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline replay OLTP.lis.zst
  thermocline replay --fast-share 5% --window 100000 OLTP.lis.zst
  thermocline replay --preset mutant --cost-target 0.06 OLTP.lis.zst
  thermocline replay --tier fast=/nvme/t,capacity=1GiB,price=0.2 \\
                     --tier cheap=/hdd/t,price=0.02 cluster26.csv.gz
  thermocline replay --json --limit 1000000 accesses.keys.zst

First the trace is read once, to know its keys. The store is filled with a value
for every key, of the recorded size or --value-bytes, flushed and left to settle.
Then the accesses are repeated in their order, as fast as they go; with several
threads the accesses to one key keep their order. Every value read is compared
with the one written last; exit code 4 says that one was wrong.

Without --db, --options or --tier a temporary store of two tiers is made and
removed again: its fast tier holds --fast-share of the data, and beside it room
for log and flushes. It reckons with 0.20 USD per GB and month on the fast tier
and 0.02 on the other. A trace goes by much faster than it was recorded, so heat
is reckoned ten times a second there, and forgotten within seconds.

Formats: arc, `first_page pages ignored number`, one access to the first page;
csv, Twitter's `timestamp,key,key size,value size,client,operation,TTL`, in
which get reads, set, add, replace, cas, append and prepend write, incr and decr
do both; keys, one key a line.")]
pub(crate) struct Replay {
    /// The trace; gzip and Zstandard are recognised
    trace: PathBuf,
    /// Layout of the trace; else its name decides: .lis .csv .keys
    #[arg(long, value_enum)]
    format: Option<TraceFormat>,
    #[command(flatten)]
    store: StoreArgs,
    /// Fast tier of the temporary store, as a share of the data
    #[arg(long, value_name = "SHARE", default_value = "16%", value_parser = human::parse_share, conflicts_with = "fast_bytes", conflicts_with_all = OF_A_STORE)]
    fast_share: f64,
    /// Fast tier of the temporary store, in bytes
    #[arg(long, value_name = "BYTES", value_parser = human::parse_bytes, conflicts_with_all = OF_A_STORE)]
    fast_bytes: Option<u64>,
    /// Block cache of the temporary store
    #[arg(long, value_name = "BYTES", default_value = "8MiB", value_parser = human::parse_bytes, conflicts_with_all = OF_A_STORE)]
    cache: u64,
    /// Preset of the temporary store
    #[arg(long, value_name = "NAME", default_value = "leveled", conflicts_with_all = OF_A_STORE)]
    preset: String,
    /// What the temporary store may cost, in USD per GB and month, with a preset
    /// that keeps to it
    #[arg(long, value_name = "USD", conflicts_with_all = OF_A_STORE)]
    cost_target: Option<f64>,
    /// Directory in which the temporary store is made
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_A_STORE)]
    scratch: Option<PathBuf>,
    /// Size of values of which the trace records none
    #[arg(long, value_name = "BYTES", default_value = "1024", value_parser = value_bytes)]
    value_bytes: u32,
    /// Threads that access the store
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Only the first accesses of the trace
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Accesses (100000) or time (10s) per line of the table [default: a
    /// twentieth of the trace]
    #[arg(long, value_name = "N|SECONDS", value_parser = Window::parse)]
    window: Option<Window>,
    /// The store holds the fill of an earlier replay of the same trace: do not
    /// fill it again
    #[arg(long)]
    filled: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

fn value_bytes(text: &str) -> Result<u32, String> {
    const MOST: u64 = 64 << 20;
    match human::parse_bytes(text)? {
        bytes @ 1..=MOST => Ok(bytes as u32),
        _ => Err("a value has from 1 byte to 64MiB".into()),
    }
}

impl Replay {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let input = Input::of(&self.trace);
        if input == Input::Standard {
            return Err(Failure::usage(
                "a trace is read twice and cannot come from standard input",
            ));
        }
        let format = self
            .format
            .or_else(|| TraceFormat::of_name(&self.trace))
            .ok_or_else(|| {
                Failure::usage(format!(
                    "{}: its name does not tell the format; give --format",
                    input.name()
                ))
            })?;
        let limit = self.limit.unwrap_or(u64::MAX);
        let bar = progress::of_bytes("reading the trace", input.size_bytes());
        let survey = Survey::of(Trace::open(&input, format, limit)?, self.value_bytes, &bar)?;
        bar.finish_and_clear();
        if survey.accesses == 0 {
            return Err(Failure::usage(format!("{} has no accesses", input.name())));
        }
        // Declared before the store: what is declared first is dropped last.
        let scratch;
        let db = if self.store.is_given() {
            self.store.open(Access::Create)?
        } else {
            scratch = Temporary::directory(self.scratch.as_deref())?;
            let data_bytes = survey.data_bytes();
            let share = (data_bytes as f64 * self.fast_share) as u64;
            Db::open(
                TwoTiers {
                    data_bytes,
                    fast_bytes: self.fast_bytes.unwrap_or(share),
                    cache_bytes: self.cache,
                }
                .with_preset(scratch.path(), &self.preset, self.cost_target),
            )?
        };
        let filled_in = if self.filled {
            None
        } else {
            Some(self.fill(&db, &survey)?)
        };
        self.print_start(out, &input, &survey, filled_in)?;
        let trace = Trace::open(&input, format, limit)?;
        let measured = self.replay(out, &db, &survey, trace)?;
        db.close()?;
        match measured.first_wrong {
            None => Ok(Exit::Done),
            Some(first) => Err(Failure::new(
                Exit::Damaged,
                format!(
                    "{} reads gave a wrong value, the first: {first}",
                    human::count(measured.wrong)
                ),
            )),
        }
    }

    /// Puts a value for every key and lets the store settle.
    fn fill(&self, db: &Db, survey: &Survey) -> Result<Duration, Failure> {
        let began = Instant::now();
        let bar = progress::of_operations("filling the store", survey.keys.len() as u64);
        let space = db.keyspace(engine::DEFAULT_KEYSPACE)?;
        let mut changes = Changes::of(&space);
        let mut bytes = 0;
        let mut value = Vec::new();
        for (key, &size) in survey.keys.iter().zip(&survey.sizes) {
            value.resize(size as usize, 0);
            fill(&mut value, fingerprint(key), 0);
            changes.put(key, &value)?;
            bytes += key.len() + value.len();
            if bytes >= FILL_BATCH_BYTES {
                bar.inc(changes.len() as u64);
                std::mem::replace(&mut changes, Changes::of(&space)).write(db)?;
                bytes = 0;
            }
        }
        changes.write(db)?;
        bar.set_message("settling");
        db.flush()?;
        db.settle()?;
        bar.finish_and_clear();
        Ok(began.elapsed())
    }

    fn print_start(
        &self,
        out: Out<'_>,
        input: &Input,
        survey: &Survey,
        filled_in: Option<Duration>,
    ) -> Result<(), Failure> {
        if self.json {
            let object = json!({
                "type": "trace",
                "accesses": survey.accesses,
                "keys": survey.keys.len(),
                "data_bytes": survey.data_bytes(),
                "bad_lines": survey.bad,
                "fill_seconds": filled_in.map(|d| d.as_secs_f64()),
            });
            writeln!(out, "{object}")?;
        } else {
            writeln!(
                out,
                "{}: {} accesses to {} keys, {} of data{}",
                input.name(),
                human::count(survey.accesses),
                human::count(survey.keys.len() as u64),
                human::bytes(survey.data_bytes()),
                match survey.bad {
                    0 => String::new(),
                    bad => format!("; {} bad lines skipped", human::count(bad)),
                }
            )?;
            if let Some(took) = filled_in {
                let took = human::duration(took);
                writeln!(out, "store filled, flushed and settled in {took}")?;
            }
            writeln!(out)?;
        }
        out.flush()?;
        Ok(())
    }

    /// Repeats the accesses and prints the table and the summary.
    fn replay(
        &self,
        out: Out<'_>,
        db: &Db,
        survey: &Survey,
        trace: Trace<'_>,
    ) -> Result<Measured, Failure> {
        let began = Instant::now();
        let first = db.pulse();
        let total = thread::scope(|scope| {
            let mut workers = Dispatch::new();
            let mut threads = Vec::new();
            for share in 0..self.threads {
                let worker = Worker::new(db, survey, share, self.threads)?;
                let orders = workers.add();
                threads.push(scope.spawn(move || worker.run(&orders)));
            }
            let result = self.dispatch(out, db, survey, trace, &mut workers);
            // The workers end when nobody can send to them.
            drop(workers);
            for thread in threads {
                match thread.join() {
                    Ok(ended) => ended?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            result?.ok_or_else(|| Failure::new(Exit::Failed, "a worker stopped early"))
        })?;
        let delta = db.pulse().since(&first);
        self.print_summary(out, &total, &delta, began.elapsed())?;
        Ok(total)
    }

    /// Hands out the accesses, window by window. `None` if a worker is gone.
    fn dispatch(
        &self,
        out: Out<'_>,
        db: &Db,
        survey: &Survey,
        mut trace: Trace<'_>,
        workers: &mut Dispatch,
    ) -> Result<Option<Measured>, Failure> {
        let window = self
            .window
            .unwrap_or(Window::Accesses(survey.accesses.div_ceil(WINDOWS)));
        let began = Instant::now();
        let mut before = db.pulse();
        let rows = Replay::rows(&before);
        if !self.json {
            rows.header(out)?;
        }
        let bar = progress::of_operations("replaying", survey.accesses);
        let mut total = Measured::new();
        let mut done = 0;
        loop {
            let window_began = Instant::now();
            let mut accesses = 0;
            while !(accesses > 0 && window.is_over(accesses, window_began)) {
                let Some(traced) = trace.next(None)? else {
                    break;
                };
                let step = Step::of(&traced, survey).ok_or_else(|| {
                    Failure::new(Exit::Failed, "the trace was changed while it was replayed")
                })?;
                if !workers.give(step) {
                    return Ok(None);
                }
                accesses += 1;
            }
            if accesses == 0 {
                bar.finish_and_clear();
                return Ok(Some(total));
            }
            let Some(measured) = workers.report() else {
                return Ok(None);
            };
            done += accesses;
            bar.set_position(done);
            let now = db.pulse();
            let line = WindowLine {
                at: began.elapsed(),
                took: window_began.elapsed(),
                accesses,
                delta: now.since(&before),
                measured: &measured,
            };
            bar.suspend(|| self.print_window(out, &rows, &line))?;
            before = now;
            total.add(measured);
        }
    }

    fn rows(pulse: &Pulse) -> Rows {
        let titles = [
            ("time", 8),
            ("accesses", 9),
            ("ops/s", 9),
            ("p50", 7),
            ("p99", 7),
        ];
        Rows::new(&titles, pulse)
    }

    fn print_window(
        &self,
        out: Out<'_>,
        rows: &Rows,
        line: &WindowLine<'_>,
    ) -> Result<(), Failure> {
        let mut all = crate::latency::Latencies::new();
        all.add(&line.measured.reads);
        all.add(&line.measured.writes);
        let latency = all.percentiles();
        let delta = &line.delta;
        let rate = human::rate(line.accesses, line.took);
        if self.json {
            let object = json!({
                "type": "window",
                "seconds": line.at.as_secs_f64(),
                "accesses": line.accesses,
                "accesses_per_second": rate,
                "latency": latency,
                "served": served(delta),
                "relocated_bytes": delta.migrated_bytes,
                "merged_bytes": delta.merged_bytes,
                "price_usd_month": delta.price_usd_month,
                "price_usd_gb_month": delta.price_usd_gb_month,
                "target_usd_gb_month": delta.target_usd_gb_month,
                "fast_share": delta.fast_share,
                "wrong": line.measured.wrong,
            });
            writeln!(out, "{object}")?;
        } else {
            let cells = vec![
                human::duration(line.at),
                human::count(line.accesses),
                human::count(rate as u64),
                human::nanos(latency.p50_ns),
                human::nanos(latency.p99_ns),
            ];
            rows.row(out, cells, delta)?;
        }
        out.flush()?;
        Ok(())
    }

    fn print_summary(
        &self,
        out: Out<'_>,
        total: &Measured,
        delta: &Pulse,
        took: Duration,
    ) -> Result<(), Failure> {
        let (reads, writes) = (total.reads.percentiles(), total.writes.percentiles());
        let operations = reads.count + writes.count;
        if self.json {
            let object = json!({
                "type": "summary",
                "seconds": took.as_secs_f64(),
                "operations": operations,
                "operations_per_second": human::rate(operations, took),
                "reads": reads,
                "writes": writes,
                "found": total.found,
                "wrong": total.wrong,
                "served": served(delta),
                "relocated_bytes": delta.migrated_bytes,
                "merged_bytes": delta.merged_bytes,
                "tiers": delta.tiers,
                "price_usd_month": delta.price_usd_month,
            });
            writeln!(out, "{object}")?;
            return Ok(());
        }
        writeln!(
            out,
            "\n{} operations in {}, {} a second with {} thread{}",
            human::count(operations),
            human::duration(took),
            human::count(human::rate(operations, took) as u64),
            self.threads,
            if self.threads == 1 { "" } else { "s" }
        )?;
        report::latencies(out, &[("reads", reads), ("writes", writes)])?;
        writeln!(out, "\nReads served from")?;
        report::served(out, delta)?;
        writeln!(
            out,
            "\nMoved: {} from tier to tier, {} by merges",
            human::bytes(delta.migrated_bytes),
            human::bytes(delta.merged_bytes)
        )?;
        writeln!(out, "\nBytes and price now")?;
        report::tiers(out, delta)?;
        writeln!(
            out,
            "\n{} values were read and compared; {} were wrong",
            human::count(total.found),
            human::count(total.wrong)
        )?;
        Ok(())
    }
}

/// Where the reads of `delta` were served.
fn served(delta: &Pulse) -> serde_json::Value {
    let tiers: serde_json::Map<String, serde_json::Value> = delta
        .tiers
        .iter()
        .map(|tier| (tier.name.clone(), tier.hits.into()))
        .collect();
    json!({
        "memtable": delta.memtable_hits,
        "cache": delta.cached_hits,
        "tiers": tiers,
    })
}

/// What one line of the table shows.
struct WindowLine<'a> {
    at: Duration,
    took: Duration,
    accesses: u64,
    delta: Pulse,
    measured: &'a Measured,
}
