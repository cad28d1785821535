//! The subcommands, one a file.

use std::io::Write;

use clap::Subcommand;

use crate::exit::{Exit, Failure};

mod calibrate;
mod checkpoint;
mod compact;
mod delete;
mod demo;
mod dump;
mod events;
mod exit_codes;
mod explain;
mod get;
mod load;
mod model;
mod put;
mod repair;
mod replay;
mod scan;
mod stat;
mod tune;
mod verify;
mod whole;

/// What a command prints to.
pub(crate) type Out<'a> = &'a mut dyn Write;

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Load(load::Load),
    Replay(replay::Replay),
    Get(get::Get),
    Put(put::Put),
    Delete(delete::Delete),
    Scan(scan::Scan),
    Compact(compact::Compact),
    Checkpoint(checkpoint::Checkpoint),
    Stat(stat::Stat),
    Tune(tune::Tune),
    Explain(explain::Explain),
    Events(events::Events),
    Dump(dump::Dump),
    Verify(verify::Verify),
    Repair(repair::Repair),
    Calibrate(calibrate::Calibrate),
    Model(model::Model),
    ExitCodes(exit_codes::ExitCodes),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        match self {
            Command::Demo(command) => command.run(out),
            Command::Load(command) => command.run(out),
            Command::Replay(command) => command.run(out),
            Command::Get(command) => command.run(out),
            Command::Put(command) => command.run(),
            Command::Delete(command) => command.run(),
            Command::Scan(command) => command.run(out),
            Command::Compact(command) => command.run(out),
            Command::Checkpoint(command) => command.run(out),
            Command::Stat(command) => command.run(out),
            Command::Tune(command) => command.run(out),
            Command::Explain(command) => command.run(out),
            Command::Events(command) => command.run(out),
            Command::Dump(command) => command.run(out),
            Command::Verify(command) => command.run(out),
            Command::Repair(command) => command.run(out),
            Command::Calibrate(command) => command.run(out),
            Command::Model(command) => command.run(out),
            Command::ExitCodes(command) => command.run(out),
        }
    }
}
