//! `thermocline checkpoint`.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;

use super::Out;
use crate::exit::{Exit, Failure};
use crate::human;
use crate::progress;
use crate::store::{Access, StoreArgs};

/// Make a copy of the store as it is now
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline checkpoint --db /srv/db /backup/db-monday
  thermocline verify --db /backup/db-monday

The copy is a store of its own: one directory a tier, and thermocline.toml, which
names them. The directory must not exist, or be empty. Tables on the same file system are
shared by hard links and take no room of their own.")]
pub(crate) struct Checkpoint {
    /// Directory to make
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Checkpoint {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let db = self.store.open(Access::Change)?;
        let began = Instant::now();
        let bar = progress::of_unknown_length("copying");
        db.checkpoint(&self.directory)?;
        bar.finish_and_clear();
        if self.json {
            let object = json!({
                "directory": self.directory,
                "seconds": began.elapsed().as_secs_f64(),
            });
            writeln!(out, "{object}")?;
        } else {
            writeln!(
                out,
                "checkpoint in {} after {}; open it with --db {}",
                self.directory.display(),
                human::duration(began.elapsed()),
                self.directory.display()
            )?;
        }
        db.close()?;
        Ok(Exit::Done)
    }
}
