//! `thermocline stat`.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::Out;
use crate::columns;
use crate::engine::{Db, ErrorKind, Options, Pulse, Stats, TableInfo, pulse, stats, tables};
use crate::exit::{Exit, Failure};
use crate::human;
use crate::store::{ReadArgs, or_how_to_read};
use crate::watch::{Rows, parts_line};

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

/// How often it is asked anew who has the store open, where that changes while it is looked at.
const ATTEMPTS: usize = 3;

/// What there is to show, as `--json` has it.
#[derive(Serialize)]
struct Shown {
    /// Whether it is of the process that has the store open, else of the files.
    running: bool,
    /// Why it is not, where there is such a process.
    #[serde(skip_serializing_if = "Option::is_none")]
    unanswered: Option<String>,
    stats: Stats,
    #[serde(skip_serializing_if = "Option::is_none")]
    tables: Option<Vec<TableInfo>>,
}

/// Show tiers, levels, parts, heat, amplification and price
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline stat --db /srv/db
  thermocline stat --db /srv/db --tables
  thermocline stat --db /srv/db --json | jq '.stats.tiers[].used_bytes'
  thermocline stat --db /srv/db --watch 2

A process that has the store open is asked (by a file that it looks for once an
epoch, by default a second): the first line says so. Where it does not answer in
time, as one that only reads, and with --read-only, the files are read.
Counters begin when a store is opened, so that what is read from files shows shape,
heat and price, but no traffic and no share of writes.

With --watch that process is asked again and again; each line has what happened
since the one before: reads and writes a second, how long writers were slowed or
waited, the share that memory and each tier served, bytes moved and merged, and
price and target in USD per GB and month. A store of several parts has a second
line: the least and the largest share of the writes that one gets, the standard
deviation of the shares of memtables, memtables, duplicates, and how often cuts
were made or moved since the store was opened.")]
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
    /// Seconds to wait for the process that has the store open
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait: u64,
    /// Print a JSON object; one a line with --watch
    #[arg(long)]
    json: bool,
}

impl Stat {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        if let Some(seconds) = self.watch {
            return self.watch(out, Duration::from_secs(seconds));
        }
        let shown = self.shown()?;
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &shown)?;
            writeln!(out)?;
            return Ok(Exit::Done);
        }
        match (&shown.unanswered, shown.running) {
            (Some(why), _) => writeln!(out, "from the files of the store: {why}\n")?,
            (None, true) => writeln!(out, "from the process that has the store open\n")?,
            (None, false) => {}
        }
        writeln!(out, "{}", shown.stats.to_string().trim_end())?;
        if let Value::Array(tables) = serde_json::to_value(&shown.tables)? {
            writeln!(out)?;
            columns::objects(out, &tables, &TABLE_COLUMNS)?;
        }
        Ok(Exit::Done)
    }

    fn shown(&self) -> Result<Shown, Failure> {
        let of_files = |db: &Db, unanswered| Shown {
            running: false,
            unanswered,
            stats: db.stats(),
            tables: self.tables.then(|| db.tables()),
        };
        if self.store.is_read_only() {
            return Ok(of_files(&*self.store.open()?, None));
        }
        let options = self.store.options()?;
        let ask = || match self.ask(&options) {
            Ok(told) => Ok(told),
            // It did not answer, has more to tell than an answer holds, or cannot be asked: the
            // disk may be full or read-only, when somebody will look.
            Err(e) if can_be_read(e.kind()) => {
                let db = self.store.open_files()?;
                Ok(Some(of_files(&db, Some(e.to_string()))))
            }
            Err(e) => Err(or_how_to_read(e)),
        };
        self.asked(ask, |db| of_files(db, None))
    }

    /// What whoever has the store open says when asked, else what `read` finds in a store that
    /// nobody has open.
    fn asked<T>(
        &self,
        ask: impl Fn() -> Result<Option<T>, Failure>,
        read: impl Fn(&Db) -> T,
    ) -> Result<T, Failure> {
        for _ in 0..ATTEMPTS {
            if let Some(told) = ask()? {
                return Ok(told);
            }
            match self.store.open() {
                Ok(db) => return Ok(read(&db)),
                // Somebody has opened it since.
                Err(Failure::Error {
                    exit: Exit::Locked, ..
                }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(read(&*self.store.open()?))
    }

    fn ask(&self, options: &Options) -> crate::engine::Result<Option<Shown>> {
        let Some(stats) = stats(options, self.patience())? else {
            return Ok(None);
        };
        let tables = match self.tables {
            true => tables(options, self.patience())?,
            false => None,
        };
        // It may have closed the store in between.
        let is_whole = tables.is_some() == self.tables;
        Ok(is_whole.then_some(Shown {
            running: true,
            unanswered: None,
            stats,
            tables,
        }))
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.wait)
    }

    /// The pulse of whoever has the store open, else of the store at rest.
    fn pulse(&self) -> Result<Pulse, Failure> {
        let options = self.store.options()?;
        let ask = || pulse(&options, self.patience()).map_err(Failure::from);
        self.asked(ask, Db::pulse)
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
                let object = serde_json::json!({ "seconds": seconds, "pulse": delta });
                writeln!(out, "{object}")?;
            } else {
                let cells = vec![
                    human::moment(now.now_us),
                    human::count(rate(reads) as u64),
                    human::count(rate(delta.writes) as u64),
                    human::nanos(delta.stall_us.saturating_mul(1000)),
                ];
                rows.row(out, cells, &delta)?;
                if let Some(line) = parts_line(&now.parts) {
                    writeln!(out, "{line}")?;
                }
            }
            before = now;
        }
        Ok(Exit::Done)
    }
}

/// Whether the files tell what the process that has the store open could not be asked.
fn can_be_read(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Locked | ErrorKind::InvalidArgument | ErrorKind::Io | ErrorKind::NoSpace
    )
}
