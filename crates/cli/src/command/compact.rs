//! `thermocline compact`.

use std::time::Instant;

use clap::Args;
use serde_json::json;

use super::Out;
use crate::engine::Pulse;
use crate::exit::{Exit, Failure};
use crate::human;
use crate::progress;
use crate::store::{Access, StoreArgs};
use crate::text::Notation;

/// Merge the tables of the whole store, or of a range of keys
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline compact --db /srv/db
  thermocline compact --db /srv/db --start user: --end 'user;'

A store compacts by itself while it is in use. This command does all of it now:
it gives back the space of deleted and replaced entries at once, and needs room
for one more copy of what it merges while it runs.")]
pub(crate) struct Compact {
    #[command(flatten)]
    store: StoreArgs,
    /// First key
    #[arg(long, value_name = "KEY")]
    start: Option<String>,
    /// The key at which to end
    #[arg(long, value_name = "KEY")]
    end: Option<String>,
    /// Keys are given in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Compact {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let read = |text: &Option<String>| match text {
            Some(text) => {
                let key = Notation::of(self.hex).read(text);
                key.map(Some).map_err(Failure::usage)
            }
            None => Ok(None),
        };
        let (start, end) = (read(&self.start)?, read(&self.end)?);
        let db = self.store.open(Access::Change)?;
        let before = db.pulse();
        let began = Instant::now();
        let bar = progress::of_unknown_length("compacting");
        db.compact_range(start.as_deref(), end.as_deref())?;
        db.settle()?;
        bar.finish_and_clear();
        let after = db.pulse();
        let used = |pulse: &Pulse| pulse.tiers.iter().map(|t| t.used_bytes).sum::<u64>();
        let took = began.elapsed();
        if self.json {
            let object = json!({
                "bytes_before": used(&before),
                "bytes_after": used(&after),
                "seconds": took.as_secs_f64(),
            });
            writeln!(out, "{object}")?;
        } else {
            writeln!(
                out,
                "{} before, {} after, in {}",
                human::bytes(used(&before)),
                human::bytes(used(&after)),
                human::duration(took)
            )?;
        }
        db.close()?;
        Ok(Exit::Done)
    }
}
