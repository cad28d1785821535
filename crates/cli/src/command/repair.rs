//! `thermocline repair`.

use clap::Args;

use super::Out;
use crate::engine;
use crate::exit::{Exit, Failure};
use crate::progress;
use crate::store::StoreArgs;

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
    store: StoreArgs,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let options = self.store.options()?.create_if_missing(false);
        let bar = progress::of_unknown_length("repairing");
        let report = engine::repair(options)?;
        bar.finish_and_clear();
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", report.to_string().trim_end())?;
        }
        Ok(if engine::is_complete(&report) {
            Exit::Done
        } else {
            Exit::Damaged
        })
    }
}
