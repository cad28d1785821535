//! `thermocline demo`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::Out;
use crate::engine::{self, Changes, Db, Keyspace, Reading};
use crate::exit::{Exit, Failure};
use crate::human;
use crate::latency::Latencies;
use crate::progress;
use crate::report;
use crate::store::TwoTiers;
use crate::temporary::Temporary;
use crate::workload::{Dice, Zipf, fill, fingerprint, matches, scatter};

/// Skew of the workload: the customary one of YCSB.
const SKEW: f64 = 0.99;

/// Share of the data that the fast tier can hold.
const FAST_SHARE: f64 = 0.25;

/// Share of the data that the block cache can hold. Small, so that tiers and
/// not memory answer.
const CACHE_SHARE: f64 = 0.02;

/// One operation in so many is a write.
const WRITE_ONE_IN: u64 = 20;

/// Records written at once while loading.
const RECORDS_PER_BATCH: usize = 256;

/// Operations between two looks at clock and progress bar.
const OPERATIONS_PER_TICK: u64 = 1024;

/// The workload ends then, done or not.
const WORKLOAD_LONGEST: Duration = Duration::from_secs(25);

/// The dice are always the same, so that two runs do the same.
const SEED: u64 = 0x7468_6572_6d6f;

/// See it work: a store over two tiers, loaded, used and measured
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline demo
  thermocline demo --records 1000000 --operations 2000000
  thermocline demo --json

Makes a store of two temporary directories, a small fast tier and a large cheap
one, loads records, reads and writes them with the usual skew (few records are
used often, most rarely), checks every value read, and prints what it measured.
Takes less than a minute and leaves nothing behind. Both directories lie on one
device here, so that latencies differ less between the tiers than they would.")]
pub(crate) struct Demo {
    /// Records to load
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    records: u32,
    /// Size of a value
    #[arg(long, value_name = "BYTES", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    value_bytes: u32,
    /// Operations of the workload
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    operations: u64,
    /// Directory in which the temporary directories are made
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// What the workload measured.
struct Used {
    reads: Latencies,
    writes: Latencies,
    wrong: u64,
    took: Duration,
    delta: Reading,
}

impl Demo {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        // Declared before the store: what is declared first is dropped last.
        let scratch = Temporary::directory(self.scratch.as_deref())?;
        let data_bytes = u64::from(self.records) * (u64::from(self.value_bytes) + 16);
        let db = Db::open(
            TwoTiers {
                data_bytes,
                fast_bytes: (data_bytes as f64 * FAST_SHARE) as u64,
                cache_bytes: (data_bytes as f64 * CACHE_SHARE) as u64,
            }
            .options(scratch.path()),
        )?;
        let space = db.keyspace(engine::DEFAULT_KEYSPACE)?;
        if !self.json {
            writeln!(
                out,
                "A store over two tiers, in {}",
                scratch.path().display()
            )?;
            for tier in &Reading::of(&db).tiers {
                writeln!(
                    out,
                    "  {:<6} {}, {:.2} USD per GB and month",
                    tier.name,
                    match tier.capacity_bytes {
                        u64::MAX => "no limit of its own".into(),
                        bytes => format!("at most {}", human::bytes(bytes)),
                    },
                    tier.price_usd_gb_month
                )?;
            }
            out.flush()?;
        }
        let loaded_in = self.load(&db, &space)?;
        if !self.json {
            writeln!(
                out,
                "\nLoaded {} records ({}) in {}: {} a second",
                human::count(u64::from(self.records)),
                human::bytes(data_bytes),
                human::duration(loaded_in),
                human::count(human::rate(u64::from(self.records), loaded_in) as u64)
            )?;
            out.flush()?;
        }
        let used = self.work(&db, &space)?;
        self.print(out, loaded_in, &used)?;
        drop(space);
        db.close()?;
        if used.wrong > 0 {
            return Err(Failure::new(
                Exit::Damaged,
                format!("{} reads gave a wrong value", used.wrong),
            ));
        }
        Ok(Exit::Done)
    }

    fn load(&self, db: &Db, space: &Keyspace) -> Result<Duration, Failure> {
        let bar = progress::of_operations("loading", u64::from(self.records));
        let began = Instant::now();
        let mut changes = Changes::of(space);
        let mut value = vec![0; self.value_bytes as usize];
        for record in 0..self.records {
            let key = key(record);
            fill(&mut value, fingerprint(&key), 0);
            changes.put(&key, &value)?;
            if changes.len() == RECORDS_PER_BATCH {
                std::mem::replace(&mut changes, Changes::of(space)).write(db)?;
                bar.set_position(u64::from(record));
            }
        }
        changes.write(db)?;
        let took = began.elapsed();
        bar.set_message("settling");
        db.flush()?;
        db.settle()?;
        bar.finish_and_clear();
        Ok(took)
    }

    fn work(&self, db: &Db, space: &Keyspace) -> Result<Used, Failure> {
        let bar = progress::of_operations("working", self.operations);
        let mut dice = Dice::new(SEED);
        let zipf = Zipf::new(u64::from(self.records), SKEW);
        let mut versions = vec![0u32; self.records as usize];
        let mut value = vec![0; self.value_bytes as usize];
        let (mut reads, mut writes, mut wrong) = (Latencies::new(), Latencies::new(), 0);
        let before = Reading::of(db);
        let began = Instant::now();
        for operation in 0..self.operations {
            let rank = zipf.draw(&mut dice);
            let record = scatter(rank, u64::from(self.records)) as u32;
            let key = key(record);
            let version = &mut versions[record as usize];
            if dice.below(WRITE_ONE_IN) == 0 {
                *version += 1;
                fill(&mut value, fingerprint(&key), *version);
                let began = Instant::now();
                space.put(&key, &value)?;
                writes.record(began.elapsed());
            } else {
                let began = Instant::now();
                let found = space.get(&key)?;
                reads.record(began.elapsed());
                let right = found.is_some_and(|found| {
                    found.len() == value.len() && matches(&found, fingerprint(&key), *version)
                });
                wrong += u64::from(!right);
            }
            if operation.is_multiple_of(OPERATIONS_PER_TICK) {
                bar.set_position(operation);
                if began.elapsed() > WORKLOAD_LONGEST {
                    break;
                }
            }
        }
        let took = began.elapsed();
        bar.finish_and_clear();
        Ok(Used {
            reads,
            writes,
            wrong,
            took,
            delta: Reading::of(db).since(&before),
        })
    }

    fn print(&self, out: Out<'_>, loaded_in: Duration, used: &Used) -> Result<(), Failure> {
        let (reads, writes) = (used.reads.percentiles(), used.writes.percentiles());
        let operations = reads.count + writes.count;
        if self.json {
            let object = json!({
                "records": self.records,
                "load_seconds": loaded_in.as_secs_f64(),
                "operations": operations,
                "operations_per_second": human::rate(operations, used.took),
                "reads": reads,
                "writes": writes,
                "wrong": used.wrong,
                "store": used.delta,
                "price_usd_month": used.delta.price_usd_month(),
            });
            writeln!(out, "{object}")?;
            return Ok(());
        }
        writeln!(
            out,
            "\nUsed: {} operations in {}, {} a second, on one thread",
            human::count(operations),
            human::duration(used.took),
            human::count(human::rate(operations, used.took) as u64)
        )?;
        report::latencies(out, &[("reads", reads), ("writes", writes)])?;
        writeln!(out, "\nReads served from")?;
        report::served(out, &used.delta)?;
        writeln!(out, "\nBytes and price")?;
        report::tiers(out, &used.delta)?;
        writeln!(
            out,
            "\n{} values were read and compared; {} were wrong.",
            human::count(reads.count),
            human::count(used.wrong)
        )?;
        writeln!(
            out,
            "Next: thermocline put --db DIR KEY VALUE, or thermocline load --help"
        )?;
        Ok(())
    }
}

/// The key of record number `record`.
fn key(record: u32) -> Vec<u8> {
    format!("user{record:012}").into_bytes()
}
