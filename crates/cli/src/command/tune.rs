//! `thermocline tune`.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::Out;
use crate::engine::{Tuned, WhatIf, forecast, tune};
use crate::exit::{Exit, Failure};
use crate::store::StoreArgs;

/// Give a store another cost target, while it is in use or not
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline tune --db /srv/db --cost-target 0.2
  thermocline tune --db /srv/db --no-cost-target
  thermocline tune --db /srv/db --dry-run --cost-target 0.2
  thermocline tune --db /srv/db --dry-run --preset mutant --cost-target 0.2

The target is what all tables together may cost, in USD per GB and month on
average. A process that has the store open is asked by a file in the directory of
the first tier, which it looks for once an epoch, and begins to move tables at
once. Where nobody has it open, the target is kept in thermocline.toml in that
directory. An opening that goes by that file has it, as with --db; one with other
options (--options, --tier) goes by those and overwrites the file. A target that no
placement of what is stored can meet is refused, with what the cheapest and the
dearest placement cost.

With --dry-run nothing is changed: it says what would move, what the move would
take, what the store would cost a month, and how many reads the fast tier would
serve, by what is known of heat now. The preset of a store is a line of its options
file, thermocline.toml; --dry-run says what another one would do.")]
pub(crate) struct Tune {
    /// USD per GB and month
    #[arg(
        long,
        value_name = "USD",
        required_unless_present_any = ["no_cost_target", "preset"],
        allow_negative_numbers = true,
        conflicts_with = "no_cost_target"
    )]
    cost_target: Option<f64>,
    /// Price is no object
    #[arg(long)]
    no_cost_target: bool,
    /// Another preset
    #[arg(long, value_name = "NAME", requires = "dry_run")]
    preset: Option<String>,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
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
        let patience = Duration::from_secs(self.wait);
        if self.dry_run {
            let mut what_if = WhatIf::nothing_changes();
            if let Some(preset) = &self.preset {
                what_if = what_if.preset(preset);
            }
            if self.cost_target.is_some() || self.no_cost_target {
                what_if = what_if.cost_target(self.cost_target);
            }
            let forecast = forecast(&options, &what_if, patience)?;
            if self.json {
                serde_json::to_writer_pretty(&mut *out, &forecast)?;
                writeln!(out)?;
            } else {
                write!(out, "{forecast}")?;
                writeln!(out, "nothing was changed")?;
            }
            return Ok(Exit::Done);
        }
        let tuned = tune(&options, self.cost_target, patience)?;
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
            "nobody has the store open, it is kept in its thermocline.toml for openings that go by that"
        };
        match self.cost_target {
            Some(target) => writeln!(out, "cost target {target} USD per GB and month: {when}")?,
            None => writeln!(out, "no cost target: {when}")?,
        }
        Ok(Exit::Done)
    }
}
