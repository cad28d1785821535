//! Which store a command works on: `--db`, `--options` or `--tier`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::engine::{
    DEFAULT_KEYSPACE, Db, DeviceProfile, Error, ErrorKind, Keyspace, OPTIONS_FILE, Options,
    StoreLock, Tier,
};
use crate::exit::{Exit, Failure};
use crate::human;

/// The arguments that name a store.
#[derive(Args, Clone, Debug, Default)]
#[group(multiple = false)]
pub(crate) struct StoreArgs {
    /// Directory of the store. Where it holds a thermocline.toml (several
    /// tiers do), that file says where the other tiers are
    #[arg(long, value_name = "DIR", help_heading = "Store")]
    db: Option<PathBuf>,
    /// Options file; relative paths in it start from its directory
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    options: Option<PathBuf>,
    /// One tier, repeated from fast to cheap:
    /// NAME=DIR[,capacity=10GiB][,price=0.2][,iops=90000][,mbs=2500];
    /// the price is in USD per GB and month. All other options are those
    /// of the thermocline.toml in the first one, if there is one
    #[arg(long = "tier", value_name = "SPEC", value_parser = parse_tier, help_heading = "Store")]
    tiers: Vec<Tier>,
}

/// What a command wants to do with the store it opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Change an existing store.
    Change,
    /// Change a store, made first if there is none.
    Create,
}

impl StoreArgs {
    /// Whether any store was named.
    pub(crate) fn is_given(&self) -> bool {
        self.db.is_some() || self.options.is_some() || !self.tiers.is_empty()
    }

    /// The options of the named store.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        if let Some(dir) = &self.db {
            return Ok(match options_file(dir) {
                Some(file) => Options::from_file(&file)?,
                None => Options::at(dir),
            });
        }
        if let Some(file) = &self.options {
            return Ok(Options::from_file(file)?);
        }
        let Some(first) = self.tiers.first() else {
            return Err(Failure::usage(
                "which store? Name it with --db DIR, --options FILE or --tier NAME=DIR",
            ));
        };
        let kept = match options_file(first.path()) {
            Some(file) => Options::from_file(&file)?,
            None => Options::new(),
        };
        Ok(kept.with_tiers(self.tiers.clone()))
    }

    /// Opens the named store for `access`.
    pub(crate) fn open(&self, access: Access) -> Result<Db, Failure> {
        let options = self.options()?.create_if_missing(access == Access::Create);
        Ok(Db::open(options)?)
    }
}

/// The arguments that name a store of which no byte is changed.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Take no lock: read a store on a read-only medium, or one that another
    /// process has open, which may delete files while they are being read. What
    /// goes while it is opened makes it begin anew, ten times at most
    #[arg(long, help_heading = "Store")]
    read_only: bool,
}

impl ReadArgs {
    /// The options of the named store.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        self.store.options()
    }

    /// Whether whoever has the store open is left alone.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Opens the named store as its files have it, whoever has it open.
    pub(crate) fn open_files(&self) -> Result<ReadStore, Failure> {
        let options = self.store.options()?.create_if_missing(false);
        Ok(ReadStore {
            db: Db::open(options.read_only(true))?,
            _lock: None,
        })
    }

    /// Opens the named store.
    pub(crate) fn open(&self) -> Result<ReadStore, Failure> {
        let options = self.store.options()?.create_if_missing(false);
        let lock = if self.read_only {
            None
        } else {
            Some(StoreLock::take(&options).map_err(or_how_to_read)?)
        };
        Ok(ReadStore {
            db: Db::open(options.read_only(true))?,
            _lock: lock,
        })
    }
}

/// The failure of `error`; where another process has the store open, and does not say what is
/// asked, with how to read it all the same.
pub(crate) fn or_how_to_read(error: Error) -> Failure {
    let exit = match error.kind() {
        ErrorKind::Locked => Exit::Locked,
        ErrorKind::Unsupported => Exit::Failed,
        _ => return error.into(),
    };
    let how = "with --read-only it is read all the same, as its files have it";
    Failure::new(exit, format!("{error}; {how}"))
}

/// A store that no other process changes as long as this lives, unless
/// `--read-only` says that it may.
pub(crate) struct ReadStore {
    db: Db,
    _lock: Option<StoreLock>,
}

impl std::ops::Deref for ReadStore {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

/// Refuses a store that is not there, for commands that do not open it.
pub(crate) fn check_is_there(options: &Options) -> Result<(), Failure> {
    let first = options.tier_list().first();
    match first.map(Tier::path) {
        Some(path) if path.is_dir() => Ok(()),
        Some(path) => Err(Failure::new(
            Exit::Failed,
            format!("{}: there is no store", path.display()),
        )),
        None => Err(Failure::usage("the options name no tier")),
    }
}

/// The options file of the store in `dir`, if it has one.
fn options_file(dir: &Path) -> Option<PathBuf> {
    let file = dir.join(OPTIONS_FILE);
    file.is_file().then_some(file)
}

/// The argument that names a keyspace.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeyspaceArgs {
    /// Keyspace within the store
    #[arg(long, value_name = "NAME", default_value = DEFAULT_KEYSPACE)]
    keyspace: String,
}

impl KeyspaceArgs {
    /// The named keyspace, which must exist.
    pub(crate) fn existing(&self, db: &Db) -> Result<Keyspace, Failure> {
        db.keyspace(&self.keyspace).map_err(|error| {
            if error.kind() == ErrorKind::NotFound {
                Failure::usage(format!(
                    "the store has no keyspace {:?}; it has: {}",
                    self.keyspace,
                    db.keyspaces().join(", ")
                ))
            } else {
                error.into()
            }
        })
    }

    /// The named keyspace, made first if there is none.
    pub(crate) fn existing_or_new(&self, db: &Db) -> Result<Keyspace, Failure> {
        Ok(crate::engine::keyspace_or_new(db, &self.keyspace)?)
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.keyspace
    }
}

/// The shape of a temporary store of two tiers.
pub(crate) struct TwoTiers {
    /// Bytes of the data it will hold.
    pub(crate) data_bytes: u64,
    /// Bytes of data that the fast tier may hold.
    pub(crate) fast_bytes: u64,
    /// Size of the block cache.
    pub(crate) cache_bytes: u64,
}

impl TwoTiers {
    /// Price of the fast tier, in USD per GB and month.
    const FAST_PRICE: f64 = 0.20;
    /// The share of its capacity that placement fills.
    const FILL_SHARE: f64 = 0.95;
    /// Price of the cheap tier, in USD per GB and month.
    const CHEAP_PRICE: f64 = 0.02;

    /// The options of such a store below `dir`. Memtables and tables are in
    /// proportion to the data: with the sizes of a large store a small one
    /// would live in memory alone and have nothing to move.
    pub(crate) fn options(&self, dir: &Path) -> Options {
        let memtable_bytes = (self.data_bytes / 64).clamp(1 << 20, 64 << 20);
        // The log and the memtables on their way to tables lie on the fast
        // tier too; its share is meant for data.
        let reserve_bytes = 4 * memtable_bytes;
        let fast_bytes = (self.fast_bytes as f64 / Self::FILL_SHARE) as u64 + reserve_bytes;
        Options::new()
            .tier(
                Tier::new("fast", dir.join("fast"))
                    .capacity_bytes(fast_bytes)
                    .price_usd_gb_month(Self::FAST_PRICE),
            )
            .tier(Tier::new("cheap", dir.join("cheap")).price_usd_gb_month(Self::CHEAP_PRICE))
            .write_buffer_bytes(2 * memtable_bytes)
            .memtable_bytes(memtable_bytes)
            .log_segment_bytes(memtable_bytes)
            .table_bytes(memtable_bytes)
            .reserve_bytes(reserve_bytes)
            .tier_fill_share(Self::FILL_SHARE)
            .block_cache_bytes(self.cache_bytes)
    }
}

impl TwoTiers {
    /// As [`TwoTiers::options`], with a preset, its cost target, and heat that follows
    /// within seconds.
    pub(crate) fn with_preset(&self, dir: &Path, preset: &str, target: Option<f64>) -> Options {
        let options = self.options(dir).preset(preset);
        let options = options
            .heat_epoch_ms(100)
            .cooling_coefficient(0.9)
            .migration_cool_down_s(2);
        match target {
            Some(target) => options.cost_target_usd_per_gb_month(target),
            None => options,
        }
    }
}

/// Reads `NAME=DIR[,capacity=..][,price=..][,iops=..][,mbs=..]`. What does not
/// look like one of the settings belongs to the directory, commas included.
fn parse_tier(spec: &str) -> Result<Tier, String> {
    let (name, mut rest) = spec
        .split_once('=')
        .ok_or_else(|| format!("{spec:?}: a tier is written NAME=DIR"))?;
    if name.is_empty() {
        return Err(format!("{spec:?}: the tier has no name"));
    }
    let (mut capacity, mut price, mut iops, mut mbs) = (None, None, None, None);
    while let Some((before, setting)) = rest.rsplit_once(',') {
        match setting.split_once('=') {
            Some(("capacity", value)) => capacity = Some(human::parse_bytes(value)?),
            Some(("price", value)) => price = Some(positive(value, "a price")?),
            Some(("iops", value)) => iops = Some(positive(value, "a rate")?),
            Some(("mbs", value)) => mbs = Some(positive(value, "a rate")?),
            _ => break,
        }
        rest = before;
    }
    if rest.is_empty() {
        return Err(format!("{spec:?}: the tier has no directory"));
    }
    let mut tier = Tier::new(name, rest);
    if let Some(bytes) = capacity {
        tier = tier.capacity_bytes(bytes);
    }
    if let Some(price) = price {
        tier = tier.price_usd_gb_month(price);
    }
    match (iops, mbs) {
        (Some(random_read_iops), Some(sequential_mb_s)) => {
            tier = tier.profile(DeviceProfile {
                random_read_iops,
                sequential_mb_s,
            });
        }
        (None, None) => {}
        _ => return Err(format!("{spec:?}: iops and mbs are given together")),
    }
    Ok(tier)
}

fn positive(text: &str, what: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err(format!("{text:?} is not {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_a_name_a_directory_and_settings() {
        for spec in [
            "fast=/a",
            "fast=/a,b/c",
            "fast=/a,capacity=10GiB,price=0.2",
            "fast=/a,b,price=0",
            "fast=/a,iops=1000,mbs=100",
        ] {
            assert!(parse_tier(spec).is_ok(), "{spec}");
        }
        for spec in [
            "",
            "fast",
            "=/a",
            "fast=",
            "fast=,price=1",
            "fast=/a,price=x",
            "fast=/a,price=-1",
            "fast=/a,price=nan",
            "fast=/a,capacity=1QB",
            "fast=/a,iops=10",
        ] {
            assert!(parse_tier(spec).is_err(), "{spec}");
        }
    }
}
