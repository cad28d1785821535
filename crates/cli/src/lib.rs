//! The `thermocline` command.
//!
//! One subcommand a file below `command/`. Standard output carries results
//! only; messages and progress go to standard error.
//!
//! A library, so that the fuzzer reaches the readers of input files
//! ([`decode`]) and the benchmark the traces ([`accesses`]) and the pages with
//! plots ([`html`]); the program is [`run`].

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;

#[doc(hidden)]
pub mod accesses;
mod chunk;
mod clients;
mod columns;
mod command;
#[doc(hidden)]
pub mod decode;
mod engine;
mod exit;
#[doc(hidden)]
pub mod html;
mod human;
mod input;
mod latency;
mod measure;
mod model;
mod plot;
mod position;
mod progress;
mod replay;
mod report;
mod slow;
mod store;
mod story;
mod temporary;
mod text;
mod watch;
mod workload;

use exit::{Exit, Failure};

/// A key-value store that keeps what is hot on what is fast and what is cold on
/// what is cheap
#[derive(Parser, Debug)]
#[command(
    name = "thermocline",
    version,
    after_help = "\
Examples:
  thermocline demo
  thermocline load --db /srv/db users.csv --key id
  thermocline get --db /srv/db 17
  thermocline stat --db /srv/db
  thermocline help exit-codes"
)]
struct Cli {
    #[command(subcommand)]
    command: command::Command,
}

/// Size of the buffer in front of standard output.
const OUTPUT_BYTES: usize = 64 << 10;

/// The program: reads the arguments and does what they say.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let mut out = BufWriter::with_capacity(OUTPUT_BYTES, io::stdout().lock());
    let result = cli.command.run(&mut out);
    let flushed = out.flush().map_err(Failure::from);
    let exit = match result.and_then(|exit| flushed.map(|()| exit)) {
        Ok(exit) => exit,
        Err(Failure::ClosedPipe) => Exit::Done,
        Err(Failure::Error { exit, message }) => {
            // Nobody is left to tell if standard error is closed too.
            let _ = writeln!(io::stderr(), "thermocline: {message}");
            exit
        }
    };
    exit.into()
}
