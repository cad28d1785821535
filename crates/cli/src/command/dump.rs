//! `thermocline dump`.

use std::path::PathBuf;

use clap::Args;

use super::Out;
use crate::engine;
use crate::exit::{Exit, Failure};

/// Print a table, log or manifest file in words
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline dump /srv/db/CURRENT
  thermocline dump /srv/db/MANIFEST-000001 | less
  thermocline dump --entries /srv/db/000017.log

Takes any file of a store but its options, which are text, and the marks LOCK and
REPAIR. It needs nothing but the file; the store may be open elsewhere. Damage is shown where it lies, and the exit code is then 4.")]
pub(crate) struct Dump {
    /// The file
    file: PathBuf,
    /// Print every entry, not only what the file says of itself
    #[arg(long)]
    entries: bool,
}

impl Dump {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        engine::dump_file(&self.file, out, self.entries)?;
        Ok(Exit::Done)
    }
}
