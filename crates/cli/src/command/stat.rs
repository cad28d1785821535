//! `thermocline stat`.

use clap::Args;
use serde_json::{Value, json};

use super::Out;
use crate::columns;
use crate::exit::{Exit, Failure};
use crate::store::ReadArgs;

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

/// Show tiers, levels, heat, amplification and price
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline stat --db /srv/db
  thermocline stat --db /srv/db --tables
  thermocline stat --db /srv/db --json | jq '.stats.tiers[].used_bytes'

Counters begin when a store is opened, so that a store which is open in no other
process shows its shape, its heat and its price, but no traffic.")]
pub(crate) struct Stat {
    #[command(flatten)]
    store: ReadArgs,
    /// List every table with its place and its heat
    #[arg(long)]
    tables: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Stat {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
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
}
