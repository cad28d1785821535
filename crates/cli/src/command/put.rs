//! `thermocline put`.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::engine::Changes;
use crate::exit::{Exit, Failure};
use crate::store::{Access, KeyspaceArgs, StoreArgs};
use crate::text::Notation;

/// Store a value under a key
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline put --db /srv/db user:17 'Ada Lovelace'
  thermocline put --db /srv/db photo:3 --value-file photo.jpg
  date | thermocline put --db /srv/db now -
  thermocline put --tier fast=/nvme/db,capacity=10GiB,price=0.2 \\
                  --tier cheap=/hdd/db,price=0.02 user:17 'Ada Lovelace'

The store is made if there is none. The value is on the device when the command
ends; it replaces an older one.")]
pub(crate) struct Put {
    /// The key
    key: String,
    /// The value; `-` reads standard input to its end
    #[arg(required_unless_present = "value_file", allow_hyphen_values = true)]
    value: Option<String>,
    /// Take the value from a file
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    value_file: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// Key and value are given in hexadecimal; files and standard input are
    /// taken as they are
    #[arg(long)]
    hex: bool,
}

impl Put {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let notation = Notation::of(self.hex);
        let key = notation.read(&self.key).map_err(Failure::usage)?;
        let value = self.value_bytes(notation)?;
        let db = self.store.open(Access::Create)?;
        let space = self.keyspace.existing_or_new(&db)?;
        let mut changes = Changes::of(&space);
        changes.put(&key, &value)?;
        changes.write_durably(&db)?;
        drop(space);
        db.close()?;
        Ok(Exit::Done)
    }

    fn value_bytes(&self, notation: Notation) -> Result<Vec<u8>, Failure> {
        match (&self.value, &self.value_file) {
            (_, Some(file)) => {
                std::fs::read(file).map_err(|e| Failure::io("reading the value", file, e))
            }
            (Some(value), None) if value == "-" => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).map_err(|e| {
                    Failure::io("reading the value", Path::new("standard input"), e)
                })?;
                Ok(bytes)
            }
            (Some(value), None) => notation.read(value).map_err(Failure::usage),
            (None, None) => Err(Failure::usage("no value given")),
        }
    }
}
