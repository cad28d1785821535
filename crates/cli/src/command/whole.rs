//! What `verify` and `repair` share: both read all of a closed store, show how
//! far they have come, and print one report.

use std::fmt::Display;

use clap::Args;
use serde::Serialize;

use super::Out;
use crate::engine::{self, Options, Phase, Progress};
use crate::exit::Failure;
use crate::progress;
use crate::store::StoreArgs;

/// The arguments of a command that works on all of a store.
#[derive(Args, Debug)]
pub(crate) struct WholeArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl WholeArgs {
    /// Does `work` under a progress bar, prints its report and gives it back.
    pub(crate) fn run<R: Display + Serialize>(
        &self,
        out: Out<'_>,
        work: impl FnOnce(Options, &mut dyn FnMut(Progress)) -> engine::Result<R>,
    ) -> Result<R, Failure> {
        let options = self.store.options()?.create_if_missing(false);
        let bar = if self.json {
            progress::none()
        } else {
            progress::of_bytes("", Some(0))
        };
        let report = work(options, &mut |now| {
            bar.set_message(match now.phase {
                Phase::Check => "checking",
                Phase::Save => "saving",
                Phase::CheckAgain => "checking again",
            });
            bar.set_length(now.total_bytes);
            bar.set_position(now.done_bytes);
        });
        bar.finish_and_clear();
        let report = report?;
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", report.to_string().trim_end())?;
        }
        Ok(report)
    }
}
