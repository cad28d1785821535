//! `thermocline model`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::Out;
use crate::engine::cost_model::{self, Access, ModelTier, Shares};
use crate::exit::{Exit, Failure};
use crate::human;
use crate::model::run::{KEY_BYTES, Loaded, Order, Place, RECORDS_MAX};
use crate::model::show::{Shown, papers, papers_json};
use crate::model::tier::{TierSpec, parse_distribution, parse_read_shares, parse_tier, part};

/// Records of the paper's data set, and of a store that is measured.
const RECORDS: u64 = 100_000_000;
const RECORDS_MEASURED: u64 = 100_000;

/// Where the levels lie if nothing is said: those of the paper's LogStore, or
/// of LevelDB on one device.
const LEVELS_FIRST: u32 = 2;
const LEVELS_BELOW: u32 = 1;
const LEVELS_ALONE: u32 = 7;

/// Predict what a store on these devices can do, and which device limits it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline model
  thermocline model --tier fast,iops=90000,mbs=2500,share=16% --tier slow,iops=150,mbs=180
  thermocline model --tier nvme,device=nvme --tier hdd,device=hdd --reads 0.5 --memory 2%
  thermocline model --measure --tier fast=/nvme,share=50% --tier slow=/hdd --seconds 30
  thermocline model --paper

The cost model of LogStore (section IV). A tier is
NAME[=DIR][,device=nvme|ssd|hdd][,iops=N][,mbs=N][,share=P][,levels=N][,probes=N],
from fast to cheap: random reads a second, 10^6 bytes a second, the share of the
data, its levels, and the places that a read looks into. device has the rates
of the paper. Without tiers: the paper's NVMe and HDD.

--measure makes a store over the tiers' directories (temporary ones where none
is given), loads it, runs the workload with one client and prints what came of
it beside the prediction. Devices without iops and mbs are measured first, and levels
without a number are those that the store has. Records lie in the order of
their heat, since the model places records and the store tables. All is removed
at the end.")]
pub(crate) struct Model {
    /// One tier, repeated from fast to cheap
    #[arg(long = "tier", value_name = "SPEC", value_parser = parse_tier)]
    tiers: Vec<TierSpec>,
    /// The share of the data on the first of two tiers
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = part)]
    fast_share: f64,
    /// The share of the data that has a copy in memory
    #[arg(long, value_name = "SHARE", default_value = "8%", value_parser = part)]
    memory: f64,
    /// Records in the store [default: 100000000; with --measure 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    records: Option<u64>,
    /// Bytes of a record, key and value
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    record_bytes: u64,
    /// How much larger each level is than the one above it
    #[arg(long, value_name = "FACTOR", default_value_t = 10.0)]
    growth: f64,
    /// How reads are spread: uniform, zipf=SKEW, or hotspot=PERCENT/PERCENT (of
    /// operations, of records)
    #[arg(long, value_name = "NAME", default_value = "zipf=0.9", value_parser = parse_distribution)]
    distribution: Access,
    /// Shares of the reads that memory and each tier answer, in place of a
    /// distribution
    #[arg(long, value_name = "SHARE,SHARE...", value_parser = parse_read_shares, conflicts_with_all = ["distribution", "measure"])]
    read_shares: Option<Shares>,
    /// The share of reads among the operations
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = part)]
    reads: f64,
    /// Run it on this machine, and print predicted beside measured
    #[arg(long)]
    measure: bool,
    /// Preset of the measured store [default: the engine's]
    #[arg(long, value_name = "NAME", requires = "measure")]
    preset: Option<String>,
    /// Hot records anywhere among the keys
    #[arg(long, requires = "measure")]
    scattered: bool,
    /// Seconds before the measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    warmup: f64,
    /// Seconds of the measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Directory for tiers that have none
    #[arg(long, value_name = "DIR", requires = "measure")]
    scratch: Option<PathBuf>,
    /// Print the predictions of the paper beside those of the model
    #[arg(long, conflicts_with_all = ["measure", "tiers"])]
    paper: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text:?} is not a number of seconds up to 86400")),
    }
}

impl Model {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        if self.paper {
            if self.json {
                writeln!(out, "{}", papers_json())?;
            } else {
                papers(out)?;
            }
            return Ok(Exit::Done);
        }
        if self.measure {
            return self.measured(out);
        }
        let specs = match self.tiers.is_empty() {
            true => TierSpec::of_the_paper(),
            false => self.tiers.clone(),
        };
        let model = self.model(&specs)?;
        let prediction = model.predict().map_err(|e| refused(&e, &specs))?;
        let names: Vec<String> = specs.into_iter().map(|spec| spec.name).collect();
        let shown = Shown {
            model: &model,
            prediction: &prediction,
            names: &names,
        };
        if self.json {
            writeln!(out, "{}", shown.json())?;
        } else {
            shown.print(out)?;
        }
        Ok(Exit::Done)
    }

    /// The model of these tiers. What they do not say is filled in.
    fn model(&self, specs: &[TierSpec]) -> Result<cost_model::Model, Failure> {
        for (at, spec) in specs.iter().enumerate() {
            if specs[..at].iter().any(|other| other.name == spec.name) {
                let what = format!("two tiers are called {:?}", spec.name);
                return Err(Failure::usage(what));
            }
        }
        let data = self.data_shares(specs)?;
        let mut tiers = Vec::with_capacity(specs.len());
        for (at, (spec, data_share)) in specs.iter().zip(data).enumerate() {
            let profile = spec.profile.ok_or_else(|| {
                Failure::usage(format!(
                    "tier {}: what can its device do? Say device=, or iops= and mbs= \
                     (`thermocline calibrate` measures them)",
                    spec.name
                ))
            })?;
            let levels = match at {
                0 if specs.len() == 1 => LEVELS_ALONE,
                0 => LEVELS_FIRST,
                _ => LEVELS_BELOW,
            };
            tiers.push(ModelTier {
                profile,
                data_share,
                levels: spec.levels.unwrap_or(levels),
                probes: spec.probes.unwrap_or(1),
            });
        }
        Ok(cost_model::Model {
            tiers,
            memory_share: self.memory,
            records: self.records(),
            record_bytes: self.record_bytes as f64,
            growth: self.growth,
            access: match &self.read_shares {
                Some(shares) => Access::Given(shares.clone()),
                None => self.distribution.clone(),
            },
            reads: self.reads,
        })
    }

    fn records(&self) -> u64 {
        self.records.unwrap_or(match self.measure {
            true => RECORDS_MEASURED,
            false => RECORDS,
        })
    }

    /// The share of the data on each tier: as given, and the rest on the one that
    /// says nothing.
    fn data_shares(&self, specs: &[TierSpec]) -> Result<Vec<f64>, Failure> {
        let mut given: Vec<Option<f64>> = specs.iter().map(|spec| spec.data_share).collect();
        if let [first @ None, None] = given.as_mut_slice() {
            *first = Some(self.fast_share);
        }
        let silent = given.iter().filter(|share| share.is_none()).count();
        let said: f64 = given.iter().flatten().sum();
        if silent > 1 {
            return Err(Failure::usage(
                "of more than two tiers, say share= of all but one",
            ));
        }
        if silent == 1 && said > 1.0 {
            return Err(Failure::usage(format!(
                "the data shares of the tiers must add up to 1, found {said} without the last"
            )));
        }
        let rest = 1.0 - said;
        Ok(given
            .into_iter()
            .map(|share| share.unwrap_or(rest))
            .collect())
    }

    /// Fails in words where a store cannot be made of what the model can be
    /// asked for.
    fn check_measured(&self) -> Result<(), Failure> {
        if self.records() > RECORDS_MAX {
            return Err(Failure::usage(format!(
                "--measure takes at most {} records",
                human::count(RECORDS_MAX)
            )));
        }
        if self.record_bytes < 2 * KEY_BYTES {
            return Err(Failure::usage(format!(
                "--measure takes records of {} bytes and more, {KEY_BYTES} of them key",
                2 * KEY_BYTES
            )));
        }
        if self.seconds == 0.0 {
            return Err(Failure::usage("--seconds must be above 0"));
        }
        match self.distribution {
            Access::Zipfian { skew } if !(0.0..1.0).contains(&skew) => Err(Failure::usage(
                format!("--measure draws with a skew from 0 to below 1, found {skew}"),
            )),
            _ => Ok(()),
        }
    }

    /// Runs it, and prints what was predicted and measured.
    fn measured(&self, out: Out<'_>) -> Result<Exit, Failure> {
        self.check_measured()?;
        let mut specs = self.tiers.clone();
        if specs.is_empty() {
            // Their rates are not those of this machine.
            let unknown = |spec| TierSpec {
                profile: None,
                ..spec
            };
            specs = TierSpec::of_the_paper().into_iter().map(unknown).collect();
            for (spec, name) in specs.iter_mut().zip(["fast", "slow"]) {
                spec.name = name.into();
            }
        }
        // Whatever can be refused is refused before a device is written to.
        self.refuse_early(&specs)?;
        let mut places = Vec::with_capacity(specs.len());
        for spec in &mut specs {
            let parent = spec.directory.as_deref().or(self.scratch.as_deref());
            let place = Place::new(&spec.name, parent, spec.profile)?;
            spec.profile = Some(place.profile);
            places.push(place);
        }
        let order = Order {
            records: self.records(),
            record_bytes: self.record_bytes,
            memory_share: self.memory,
            data_shares: self.data_shares(&specs)?,
            access: self.distribution.clone(),
            reads: self.reads,
            preset: self.preset.clone(),
            scattered: self.scattered,
            warmup: Duration::from_secs_f64(self.warmup),
            time: Duration::from_secs_f64(self.seconds),
        };
        let loaded = Loaded::new(&order, &places)?;
        for (spec, levels) in specs.iter_mut().zip(loaded.levels()) {
            // A tier that holds a part of a level has one.
            spec.levels = spec.levels.or(Some(levels.max(1)));
        }
        let model = self.model(&specs)?;
        let prediction = model.predict().map_err(|e| refused(&e, &specs))?;
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        let shown = Shown {
            model: &model,
            prediction: &prediction,
            names: &names,
        };
        let measured = loaded.run()?;
        let together = specs.iter().all(|spec| spec.directory.is_none());
        let cached = places.iter().find_map(|place| place.cached_because);
        if self.json {
            let mut object = shown.json();
            object["measured"] = measured.json();
            object["calibrated_in_memory_because"] = json!(cached);
            object["tiers_share_a_device"] = json!(together);
            writeln!(out, "{object}")?;
            return Ok(Exit::Done);
        }
        shown.print(out)?;
        measured.print(out, &prediction)?;
        if together && specs.len() > 1 {
            writeln!(
                out,
                "\nThe tiers are temporary directories on one device: name directories on others \
                 to see them differ."
            )?;
        }
        if let Some(reason) = cached {
            writeln!(
                out,
                "\nThe page cache answered when the devices were measured: {reason}. The processor \
                 limits such\na store, and the model does not know it."
            )?;
        }
        Ok(Exit::Done)
    }

    /// What the model or the engine would refuse in the end.
    fn refuse_early(&self, specs: &[TierSpec]) -> Result<(), Failure> {
        let known = crate::engine::presets();
        if let Some(name) = &self.preset
            && !known.iter().any(|preset| preset.name == name)
        {
            let names: Vec<_> = known.iter().map(|preset| preset.name).collect();
            return Err(Failure::usage(format!(
                "there is no preset {name:?}; there are {}",
                names.join(", ")
            )));
        }
        let mut supposed = specs.to_vec();
        for spec in &mut supposed {
            // Any device: the real one is measured later.
            spec.profile = spec.profile.or(Some(cost_model::published::SSD));
        }
        let model = self.model(&supposed)?;
        let predicted = model.predict();
        predicted.map(|_| ()).map_err(|e| refused(&e, &supposed))
    }
}

/// The model's error, and which tier is which.
fn refused(error: &cost_model::ModelError, specs: &[TierSpec]) -> Failure {
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    Failure::usage(format!("{error} (tiers from 0: {})", names.join(", ")))
}
