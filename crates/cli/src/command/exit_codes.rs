//! `thermocline exit-codes`.

use clap::Args;

use super::Out;
use crate::exit::{Exit, Failure, TABLE};

/// Say what the exit codes mean
#[derive(Args, Debug)]
#[command(after_help = TABLE)]
pub(crate) struct ExitCodes {}

impl ExitCodes {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        writeln!(out, "{TABLE}")?;
        Ok(Exit::Done)
    }
}
