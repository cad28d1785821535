//! `thermocline explain`.

use std::time::Duration;

use clap::Args;

use super::Out;
use crate::engine::{explain, explain_range};
use crate::exit::{Exit, Failure};
use crate::store::{KeyspaceArgs, ReadArgs, or_how_to_read};
use crate::text::Notation;

/// How long a process that has the store open is given to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Say where a key, or an interval of keys, lies and why it lies there
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline explain --db /srv/db user:17
  thermocline explain --db /srv/db user:17 --json
  thermocline explain --db /srv/db --range user:1 user:2

Says which table holds the key, on which level and tier, how often that table is
read, which rule keeps it there, which job put it there, and what would move it
next; of an interval, from the first key up to the second, exclusive, the same for
every table with keys in it. Exits with 1 where the store does not have the key.

A process that has the store open is asked (by a file that it looks for once an
epoch, by default a second), as it knows how much everything is read just now.
With --read-only it is not: the files are read, with the heat that was last kept
there, once a minute.")]
pub(crate) struct Explain {
    /// The key
    #[arg(required_unless_present = "range", conflicts_with = "range")]
    key: Option<String>,
    /// Every table with keys from START up to END
    #[arg(long, num_args = 2, value_names = ["START", "END"], allow_hyphen_values = true)]
    range: Option<Vec<String>>,
    #[command(flatten)]
    store: ReadArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// The key is given in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let notation = Notation::of(self.hex);
        let read = |text: &str| notation.read(text).map_err(Failure::usage);
        if let Some([start, end]) = self.range.as_deref() {
            let (start, end) = (read(start)?, read(end)?);
            if !self.store.is_read_only() {
                let (options, name) = (self.store.options()?, self.keyspace.name());
                let told = explain_range(&options, name, Some(&start), Some(&end), PATIENCE);
                if let Some(told) = told.map_err(or_how_to_read)? {
                    return self.print(out, &told, Exit::Done);
                }
            }
            let db = self.store.open()?;
            let space = self.keyspace.existing(&db)?;
            let explanation = space.explain_range(Some(&start), Some(&end))?;
            return self.print(out, &explanation, Exit::Done);
        }
        let key = read(self.key.as_deref().unwrap_or_default())?;
        if !self.store.is_read_only() {
            let (options, name) = (self.store.options()?, self.keyspace.name());
            let told = explain(&options, name, &key, PATIENCE).map_err(or_how_to_read)?;
            if let Some(told) = told {
                let exit = if told.found { Exit::Done } else { Exit::No };
                return self.print(out, &told, exit);
            }
        }
        let db = self.store.open()?;
        let space = self.keyspace.existing(&db)?;
        // Explained before it is read: the read below is traffic of its own.
        let explanation = space.explain(&key)?;
        let exit = match space.get(&key)? {
            Some(_) => Exit::Done,
            None => Exit::No,
        };
        self.print(out, &explanation, exit)
    }

    fn print(
        &self,
        out: Out<'_>,
        explanation: &(impl serde::Serialize + std::fmt::Display),
        exit: Exit,
    ) -> Result<Exit, Failure> {
        if self.json {
            serde_json::to_writer_pretty(&mut *out, explanation)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", explanation.to_string().trim_end())?;
        }
        Ok(exit)
    }
}
