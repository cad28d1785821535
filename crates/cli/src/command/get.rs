//! `thermocline get`.

use clap::Args;
use serde_json::{Map, Value};

use super::Out;
use crate::exit::{Exit, Failure};
use crate::store::{KeyspaceArgs, ReadArgs};
use crate::text::Notation;

/// Print the value of a key
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline get --db /srv/db user:17
  thermocline get --db /srv/db --raw photo:3 > photo.jpg
  thermocline get --db /srv/db --hex 00ff17 --json

Exits with 1 where the store does not have the key.")]
pub(crate) struct Get {
    /// The key
    key: String,
    #[command(flatten)]
    store: ReadArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// The key is given, and the value printed, in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Print the value's bytes as they are, without a line break
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Get {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let notation = Notation::of(self.hex);
        let key = notation.read(&self.key).map_err(Failure::usage)?;
        let db = self.store.open()?;
        let value = self.keyspace.existing(&db)?.get(&key)?;
        if self.json {
            let mut object = Map::new();
            notation.insert(&mut object, "key", &key);
            object.insert("found".into(), value.is_some().into());
            if let Some(value) = &value {
                notation.insert(&mut object, "value", value);
            }
            writeln!(out, "{}", Value::Object(object))?;
        } else if let Some(value) = &value {
            if self.raw {
                out.write_all(value)?;
            } else {
                writeln!(out, "{}", notation.show(value))?;
            }
        }
        match value {
            Some(_) => Ok(Exit::Done),
            None if self.json => Ok(Exit::No),
            None => Err(Failure::new(
                Exit::No,
                format!("not found: {}", notation.show(&key)),
            )),
        }
    }
}
