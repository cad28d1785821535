//! `thermocline delete`.

use clap::Args;

use crate::engine::Changes;
use crate::exit::{Exit, Failure};
use crate::store::{Access, KeyspaceArgs, StoreArgs};
use crate::text::Notation;

/// Remove keys, or every key of a range
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline delete --db /srv/db user:17 user:18
  thermocline delete --db /srv/db --start 2024-01 --end 2024-07

All of it happens or nothing. A key that is not there is not an error.")]
pub(crate) struct Delete {
    /// The keys
    #[arg(required_unless_present = "start")]
    keys: Vec<String>,
    /// First key of a range to remove
    #[arg(long, value_name = "KEY", requires = "end", conflicts_with = "keys")]
    start: Option<String>,
    /// The key before which the range ends
    #[arg(long, value_name = "KEY", requires = "start")]
    end: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// Keys are given in hexadecimal
    #[arg(long)]
    hex: bool,
}

impl Delete {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let read = |text: &String| Notation::of(self.hex).read(text).map_err(Failure::usage);
        let keys = self.keys.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let range = match (&self.start, &self.end) {
            (Some(start), Some(end)) => Some((read(start)?, read(end)?)),
            _ => None,
        };
        let db = self.store.open(Access::Change)?;
        let space = self.keyspace.existing(&db)?;
        let mut changes = Changes::of(&space);
        for key in &keys {
            changes.delete(key)?;
        }
        if let Some((start, end)) = &range {
            changes.delete_range(start, end)?;
        }
        changes.write_durably(&db)?;
        drop(space);
        db.close()?;
        Ok(Exit::Done)
    }
}
