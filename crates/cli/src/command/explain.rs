//! `thermocline explain`.

use clap::Args;

use super::Out;
use crate::exit::{Exit, Failure};
use crate::store::ReadArgs;
use crate::text::Notation;

/// Say where a key lies and why it lies there
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline explain --db /srv/db user:17
  thermocline explain --db /srv/db user:17 --json

Says which table holds the key, on which level and tier, how often that table is
read, which rule put it there and what would move it next. Exits with 1 where
the store does not have the key.")]
pub(crate) struct Explain {
    /// The key, of the default keyspace
    key: String,
    #[command(flatten)]
    store: ReadArgs,
    /// The key is given in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let key = Notation::of(self.hex)
            .read(&self.key)
            .map_err(Failure::usage)?;
        let db = self.store.open()?;
        // Explained before it is read: the read below is traffic of its own.
        let explanation = db.explain(&key)?;
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &explanation)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", explanation.to_string().trim_end())?;
        }
        Ok(match db.get(&key)? {
            Some(_) => Exit::Done,
            None => Exit::No,
        })
    }
}
