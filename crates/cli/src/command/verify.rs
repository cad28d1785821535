//! `thermocline verify`.

use clap::Args;

use super::Out;
use crate::engine;
use crate::exit::{Exit, Failure};
use crate::progress;
use crate::store::StoreArgs;

/// Read everything and check every checksum and invariant
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline verify --db /srv/db
  thermocline verify --db /srv/db --json | jq .problems

Changes no byte. Exits with 4 where there are problems, each named with file and
offset; `thermocline repair` saves what can be saved.")]
pub(crate) struct Verify {
    #[command(flatten)]
    store: StoreArgs,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let options = self.store.options()?.create_if_missing(false);
        let bar = progress::of_unknown_length("verifying");
        let report = engine::verify(options)?;
        bar.finish_and_clear();
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", report.to_string().trim_end())?;
        }
        Ok(if report.problems.is_empty() {
            Exit::Done
        } else {
            Exit::Damaged
        })
    }
}
