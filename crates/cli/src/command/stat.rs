//! `thermocline stat`.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::Out;
use crate::columns;
use crate::engine::{Pulse, pulse};
use crate::exit::{Exit, Failure};
use crate::human;
use crate::store::ReadArgs;
use crate::watch::Rows;

/// What `--tables` shows of a table, in this order; `--json` has all of it.
const TABLE_COLUMNS: [&str; 14] = [
    "id",
    "keyspace",
    "slot",
    "tier",
    "meta_tier",
    "entries",
    "deletes",
    "range_deletes",
    "data_bytes",
    "probes",
    "hits",
    "block_reads",
    "temperature",
    "range",
];

/// How long a process that has the store open is given to say how it goes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Show tiers, levels, heat, amplification and price
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline stat --db /srv/db
  thermocline stat --db /srv/db --tables
  thermocline stat --db /srv/db --json | jq '.stats.tiers[].used_bytes'
  thermocline stat --db /srv/db --watch 2

Counters begin when a store is opened, so that a store which is open in no other
process shows its shape, its heat and its price, but no traffic. With --watch the
process that has the store open is asked again and again (by a file that it looks
for once an epoch, by default a second); each line has what happened since the one
before: reads and writes a second, how long writers were slowed or waited, the share that memory and each tier served, bytes moved and
merged, and price and target in USD per GB and month.")]
pub(crate) struct Stat {
    #[command(flatten)]
    store: ReadArgs,
    /// List every table with its place and its heat
    #[arg(long, conflicts_with = "watch")]
    tables: bool,
    /// Print a line every so many seconds, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
    /// Stop watching after so many lines
    #[arg(long, value_name = "N", requires = "watch")]
    lines: Option<u64>,
    /// Print a JSON object; one a line with --watch
    #[arg(long)]
    json: bool,
}

impl Stat {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        if let Some(seconds) = self.watch {
            return self.watch(out, Duration::from_secs(seconds));
        }
        let db = self.store.open()?;
        let stats = db.stats();
        let tables = if self.tables {
            serde_json::to_value(db.tables())?
        } else {
            Value::Null
        };
        if self.json {
            let mut object = json!({ "stats": stats });
            if self.tables {
                object["tables"] = tables;
            }
            serde_json::to_writer_pretty(&mut *out, &object)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", stats.to_string().trim_end())?;
            if let Some(tables) = tables.as_array() {
                writeln!(out)?;
                columns::objects(out, tables, &TABLE_COLUMNS)?;
            }
        }
        Ok(Exit::Done)
    }

    /// The pulse of whoever has the store open, else of the store at rest.
    fn pulse(&self) -> Result<Pulse, Failure> {
        match pulse(&self.store.options()?, PATIENCE)? {
            Some(pulse) => Ok(pulse),
            None => Ok(self.store.open()?.pulse()),
        }
    }

    fn watch(&self, out: Out<'_>, every: Duration) -> Result<Exit, Failure> {
        let mut before = self.pulse()?;
        let titles = [
            ("time", 23),
            ("reads/s", 9),
            ("writes/s", 9),
            ("stalled", 7),
        ];
        let rows = Rows::new(&titles, &before);
        if !self.json {
            rows.header(out)?;
        }
        for _ in 0..self.lines.unwrap_or(u64::MAX) {
            out.flush()?;
            std::thread::sleep(every);
            let now = self.pulse()?;
            let delta = now.since(&before);
            let seconds = now.now_us.saturating_sub(before.now_us).max(1) as f64 / 1e6;
            let rate = |count: u64| count as f64 / seconds;
            let reads = delta.hits() + delta.misses;
            if self.json {
                let object = json!({ "seconds": seconds, "pulse": delta });
                writeln!(out, "{object}")?;
            } else {
                let cells = vec![
                    human::moment(now.now_us),
                    human::count(rate(reads) as u64),
                    human::count(rate(delta.writes) as u64),
                    human::nanos(delta.stall_us.saturating_mul(1000)),
                ];
                rows.row(out, cells, &delta)?;
            }
            before = now;
        }
        Ok(Exit::Done)
    }
}
