//! `thermocline scan`.

use std::ops::Bound;

use clap::Args;
use serde_json::{Map, Value};

use super::Out;
use crate::engine;
use crate::exit::{Exit, Failure};
use crate::human;
use crate::store::{KeyspaceArgs, ReadArgs};
use crate::text::{self, Notation};

/// Print entries in the order of their keys
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline scan --db /srv/db --prefix user: --limit 10
  thermocline scan --db /srv/db --start a --end b --keys-only
  thermocline scan --db /srv/db --reverse | head
  thermocline scan --db /srv/db --count
  thermocline scan --db /srv/db --json > export.jsonl

One entry a line: the key, a tab, the value. What is not printable is escaped
with a backslash, so that tabs and line breaks are unambiguous. With --json one
object a line; bytes that are not UTF-8 come as key_hex and value_hex.")]
pub(crate) struct Scan {
    #[command(flatten)]
    store: ReadArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// First key
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    start: Option<String>,
    /// The key before which to end
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    end: Option<String>,
    /// Only keys that begin with this
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Print at most so many entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Leave the values out
    #[arg(long)]
    keys_only: bool,
    /// Print only the number of entries and their bytes
    #[arg(long)]
    count: bool,
    /// Keys and values in hexadecimal
    #[arg(long)]
    hex: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Scan {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let notation = Notation::of(self.hex);
        let read = |text: &Option<String>| match text {
            Some(text) => notation.read(text).map(Some).map_err(Failure::usage),
            None => Ok(None),
        };
        let (start, end) = match read(&self.prefix)? {
            Some(prefix) => {
                let end = text::prefix_end(&prefix);
                (Some(prefix), end)
            }
            None => (read(&self.start)?, read(&self.end)?),
        };
        let db = self.store.open()?;
        let space = self.keyspace.existing(&db)?;
        // An empty start or prefix is the beginning, not an empty key.
        let start = start.filter(|key| !key.is_empty());
        let scan = engine::Scan {
            start: start.as_deref().map_or(Bound::Unbounded, Bound::Included),
            end: end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            reverse: self.reverse,
        };
        let limit = self.limit.unwrap_or(u64::MAX);
        let (mut entries, mut bytes) = (0u64, 0u64);
        if limit > 0 {
            engine::scan(&space, &scan, |key, value| {
                entries += 1;
                bytes += (key.len() + value.len()) as u64;
                if !self.count {
                    self.print(out, notation, key, value)?;
                }
                Ok::<bool, Failure>(entries < limit)
            })?;
        }
        if self.count && self.json {
            writeln!(
                out,
                "{}",
                serde_json::json!({"entries": entries, "bytes": bytes})
            )?;
        } else if self.count {
            let (entries, bytes) = (human::count(entries), human::bytes(bytes));
            writeln!(out, "{entries} entries, {bytes} of keys and values")?;
        }
        Ok(Exit::Done)
    }

    fn print(
        &self,
        out: &mut dyn std::io::Write,
        notation: Notation,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Failure> {
        if self.json {
            let mut object = Map::new();
            notation.insert(&mut object, "key", key);
            if !self.keys_only {
                notation.insert(&mut object, "value", value);
            }
            writeln!(out, "{}", Value::Object(object))?;
        } else if self.keys_only {
            writeln!(out, "{}", notation.show(key))?;
        } else {
            writeln!(out, "{}\t{}", notation.show(key), notation.show(value))?;
        }
        Ok(())
    }
}
