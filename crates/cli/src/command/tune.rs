//! `thermocline tune`.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::Out;
use crate::engine::{Tuned, tune};
use crate::exit::{Exit, Failure};
use crate::store::StoreArgs;

/// Give a store another cost target, while it is in use or not
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline tune --db /srv/db --cost-target 0.2
  thermocline tune --db /srv/db --no-cost-target

The target is what all tables together may cost, in USD per GB and month on
average. A process that has the store open is asked by a file in the directory of
the first tier, which it looks for once an epoch, and begins to move tables at
once. Where nobody has it open, the next opening goes by the new target. A target
that no placement can meet is refused, with what the cheapest and the dearest
placement cost.")]
pub(crate) struct Tune {
    /// USD per GB and month
    #[arg(
        long,
        value_name = "USD",
        required_unless_present = "no_cost_target",
        conflicts_with = "no_cost_target"
    )]
    cost_target: Option<f64>,
    /// Price is no object
    #[arg(long)]
    no_cost_target: bool,
    #[command(flatten)]
    store: StoreArgs,
    /// Seconds to wait for the process that has the store open
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait: u64,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Tune {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let options = self.store.options()?;
        let tuned = tune(&options, self.cost_target, Duration::from_secs(self.wait))?;
        let running = tuned == Tuned::Running;
        if self.json {
            let object = json!({
                "cost_target_usd_per_gb_month": self.cost_target,
                "running": running,
            });
            writeln!(out, "{object}")?;
            return Ok(Exit::Done);
        }
        let when = if running {
            "the process that has the store open goes by it now"
        } else {
            "nobody has the store open, the next opening goes by it"
        };
        match self.cost_target {
            Some(target) => writeln!(out, "cost target {target} USD per GB and month: {when}")?,
            None => writeln!(out, "no cost target: {when}")?,
        }
        Ok(Exit::Done)
    }
}
