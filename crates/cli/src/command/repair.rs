//! `thermocline repair`.

use clap::Args;

use super::Out;
use super::whole::WholeArgs;
use crate::engine;
use crate::exit::{Exit, Failure};

/// Rebuild a damaged store from its tables
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline repair --db /srv/db
  thermocline repair --db /srv/db --json

Rebuilds the manifest from the tables that are found and says exactly what could
not be saved. A last resort: make a copy of the directories first. Exits with 4
where something was lost.")]
pub(crate) struct Repair {
    #[command(flatten)]
    whole: WholeArgs,
}

impl Repair {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let report = self.whole.run(out, engine::repair_with)?;
        Ok(if engine::is_complete(&report) {
            Exit::Done
        } else {
            Exit::Damaged
        })
    }
}
