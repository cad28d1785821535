//! `thermocline verify`.

use clap::Args;

use super::Out;
use super::whole::WholeArgs;
use crate::engine;
use crate::exit::{Exit, Failure};

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
    whole: WholeArgs,
}

impl Verify {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let report = self.whole.run(out, engine::verify_with)?;
        Ok(if report.problems.is_empty() {
            Exit::Done
        } else {
            Exit::Damaged
        })
    }
}
