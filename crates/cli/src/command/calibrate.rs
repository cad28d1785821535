//! `thermocline calibrate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::Out;
use crate::exit::{Exit, Failure};
use crate::human;
use crate::measure::{self, Measured};

/// The file that is written into the measured directory.
const PROFILE_FILE: &str = "thermocline-profile.toml";

/// Measure the device below a directory and write a device profile
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline calibrate /nvme
  thermocline calibrate /hdd --file-bytes 4GiB --seconds 10 --output hdd.toml
  thermocline calibrate /nvme --output - --json

Writes a file, reads it at random places of 4 KiB with one thread and with
eight, reads it from end to end, and appends small pieces that are made durable
one by one. The file is removed. The page cache is passed by where the file
system can (O_DIRECT); where it cannot, the output says that memory answered,
and the numbers are those of memory. The profile's [profile] section goes below
a tier in an options file.")]
pub(crate) struct Calibrate {
    /// Directory on the device
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Size of the file
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = human::parse_bytes)]
    file_bytes: u64,
    /// Length of each random-read measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Where to write the profile; `-` only prints it [default:
    /// thermocline-profile.toml in the directory]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err(format!("{text:?} is not a number of seconds up to 3600")),
    }
}

impl Calibrate {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        if self.file_bytes < measure::FILE_BYTES_MIN {
            return Err(Failure::usage("--file-bytes is at least 1MiB"));
        }
        let measured = measure::device(
            &self.directory,
            self.file_bytes,
            Duration::from_secs_f64(self.seconds),
        )?;
        let profile = profile(&self.directory, &measured);
        let file = match &self.output {
            Some(path) if path.as_os_str() == "-" => None,
            Some(path) => Some(path.clone()),
            None => Some(self.directory.join(PROFILE_FILE)),
        };
        if let Some(file) = &file {
            std::fs::write(file, &profile)
                .map_err(|e| Failure::io("writing the profile", file, e))?;
        }
        if self.json {
            let mut object = serde_json::to_value(&measured)?;
            object["profile"] = json!({
                "random_read_iops": measured.random_read_iops_8.round(),
                "sequential_mb_s": measured.sequential_mb_s().round(),
            });
            object["written_to"] = json!(file);
            writeln!(out, "{object}")?;
            return Ok(Exit::Done);
        }
        write!(out, "{profile}")?;
        if let Some(reason) = measured.cached_because {
            writeln!(
                out,
                "\nThe page cache answered: {reason}. These are numbers of memory, not of the device."
            )?;
        }
        if let Some(file) = &file {
            writeln!(out, "\nwritten to {}", file.display())?;
        }
        Ok(Exit::Done)
    }
}

/// The TOML text. What the engine does not use stands in comments.
fn profile(directory: &std::path::Path, measured: &Measured) -> String {
    let how = match measured.cached_because {
        None => "past the page cache (O_DIRECT)".to_owned(),
        Some(reason) => format!("through the page cache: {reason}"),
    };
    format!(
        "# Measured in {}, {how}.\n\
         # random 4 KiB reads a second: {:.0} one at a time, {:.0} with 8 threads\n\
         # sequential MB/s: {:.0} reading, {:.0} writing\n\
         # making 4 KiB durable: median {}, 99% within {}\n\
         [profile]\n\
         random_read_iops = {:.1}\n\
         sequential_mb_s = {:.1}\n",
        crate::text::escape(directory.as_os_str().as_encoded_bytes()),
        measured.random_read_iops_1,
        measured.random_read_iops_8,
        measured.sequential_read_mb_s,
        measured.sequential_write_mb_s,
        human::nanos(measured.persist.p50_ns),
        human::nanos(measured.persist.p99_ns),
        measured.random_read_iops_8,
        measured.sequential_mb_s(),
    )
}
