//! Where stores lie: the rig's tiers, or plain directories.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use super::CompareArgs;
use super::load::Load;
use crate::contender::{Contender, Layout};
use crate::drive::Setup;
use crate::engine::{EngineOptions, Home, Result};
use crate::limit::Rates;
use crate::scratch::Scratch;
use crate::tiers::Rig;

/// A store may take this many times its data while it merges.
const ROOM_FACTOR: f64 = 2.5;

/// Beside tables: logs, and what is being written.
const ROOM_BESIDE_BYTES: u64 = 64 << 20;

/// A memory cap beyond this is none.
const MEMORY_BYTES_MAX: u64 = 1 << 46;

/// One tier.
struct Place {
    name: String,
    path: PathBuf,
    rates: Option<Rates>,
    /// Random reads a second and MB/s of reading, for Thermocline's options.
    profile: Option<[f64; 2]>,
    price_usd_gb_month: f64,
}

/// The tiers, fast to slow, at least two.
pub(crate) struct Places {
    tiers: Vec<Place>,
    rig: Option<Rig>,
    /// Deletes what is left when the comparison ends.
    _scratch: Vec<Scratch>,
}

impl Places {
    /// The tiers that `args` name, else those of the rig, else two directories
    /// in the one for temporary files.
    ///
    /// # Errors
    /// In words, if a directory cannot be made or the rig is broken.
    pub(crate) fn new(args: &CompareArgs) -> Result<Places, String> {
        let plain = |name: &str, path: PathBuf| Place {
            name: name.to_string(),
            path,
            rates: None,
            profile: None,
            price_usd_gb_month: 0.0,
        };
        let (mut tiers, rig) = match (&args.fast, &args.slow) {
            (Some(fast), Some(slow)) => {
                let tiers = vec![plain("fast", fast.clone()), plain("slow", slow.clone())];
                (tiers, None)
            }
            _ => match Rig::found().map_err(|error| error.to_string())? {
                Some(rig) => (of_rig(&rig), Some(rig)),
                None => {
                    let both = std::env::temp_dir().join("thermocline-bench");
                    let path = |name| both.join(name);
                    (
                        vec![plain("fast", path("fast")), plain("slow", path("slow"))],
                        None,
                    )
                }
            },
        };
        if tiers.len() < 2 {
            return Err("the rig has one tier; a comparison needs a fast and a slow one".into());
        }
        for (tier, price) in tiers.iter_mut().zip(&args.prices) {
            tier.price_usd_gb_month = *price;
        }
        let mut scratch = Vec::new();
        for tier in &mut tiers {
            let own = Scratch::new(&tier.path).map_err(|error| error.to_string())?;
            tier.path = own.path().to_path_buf();
            scratch.push(own);
        }
        Ok(Places {
            tiers,
            rig,
            _scratch: scratch,
        })
    }

    /// The rig, if the tiers are its.
    pub(crate) fn rig(&self) -> Option<&Rig> {
        self.rig.as_ref()
    }

    /// The rig's cap on memory.
    pub(super) fn memory_bytes_max(&self) -> Option<u64> {
        let group = self.rig.as_ref()?.memory_group.as_ref()?;
        let text = fs::read_to_string(group.join("memory.limit_in_bytes")).ok()?;
        text.trim()
            .parse()
            .ok()
            .filter(|&bytes| bytes < MEMORY_BYTES_MAX)
    }

    /// Bytes of tables on each tier but the last; where shares are missing the
    /// last one given holds.
    pub(super) fn fast_bytes(&self, percents: &[f64], data_bytes: u64) -> Vec<u64> {
        let percent = |index: usize| percents.get(index).or(percents.last()).unwrap_or(&0.0);
        (0..self.tiers.len() - 1)
            .map(|index| (data_bytes as f64 * percent(index) / 100.0) as u64)
            .collect()
    }

    /// The tiers that a layout fills.
    fn of(&self, layout: Layout) -> &[Place] {
        match layout {
            Layout::Tiers | Layout::DbPaths | Layout::DbPathsHeld => &self.tiers,
            Layout::AllFast => &self.tiers[..1],
            Layout::AllSlow => &self.tiers[self.tiers.len() - 1..],
        }
    }

    /// What the devices of a layout give.
    pub(super) fn rates(&self, layout: Layout) -> Vec<(String, Option<Rates>)> {
        let tiers = self.of(layout).iter();
        tiers.map(|tier| (tier.name.clone(), tier.rates)).collect()
    }

    /// The random reads a second and MB/s of reading of each tier, where known.
    #[cfg(feature = "thermocline")]
    pub(crate) fn profiles(&self) -> Vec<Option<[f64; 2]>> {
        self.tiers.iter().map(|tier| tier.profile).collect()
    }

    /// What a contender's worker is told. Makes its directories.
    pub(super) fn setup(
        &self,
        args: &CompareArgs,
        contender: &Contender,
        load: &Load,
    ) -> Result<Setup> {
        let mut homes = Vec::new();
        for (index, tier) in self.of(contender.layout).iter().enumerate() {
            let path = tier.path.join(contender.engine.name());
            fs::create_dir_all(&path)?;
            let capacity_bytes = load.fast_bytes.get(index).copied();
            homes.push(Home {
                name: tier.name.clone(),
                path,
                capacity_bytes: capacity_bytes.filter(|_| contender.layout.is_tiered()),
                price_usd_gb_month: tier.price_usd_gb_month,
                profile: tier.profile,
            });
        }
        let [write_buffer, cache] = load.buffers();
        Ok(Setup {
            homes,
            engine: EngineOptions {
                write_buffer_bytes: usize::try_from(write_buffer)?,
                block_cache_bytes: usize::try_from(cache)?,
                filter_bits_per_key: args.filter_bits,
                background_threads: args.background_threads,
                entries: args.records(),
                direct_reads: args.direct_reads,
                held: contender.layout == Layout::DbPathsHeld,
                synced: args.sync,
                compression: args.compression,
                preset: contender.preset.clone(),
                options_file: contender.options_file.clone(),
            },
        })
    }

    /// Fails in words where a tier has too little room for a contender's store.
    pub(super) fn check_room(&self, load: &Load, contenders: &[Contender]) -> Result<(), String> {
        let whole = (load.data_bytes as f64 * ROOM_FACTOR) as u64;
        for contender in contenders {
            let tiers = self.of(contender.layout);
            for (index, tier) in tiers.iter().enumerate() {
                let most = match index + 1 == tiers.len() {
                    true => whole,
                    false => load.fast_bytes[index] + 2 * load.buffers()[0],
                };
                let needed = most + ROOM_BESIDE_BYTES;
                let free = free_bytes(&tier.path).map_err(|error| error.to_string())?;
                if free < needed {
                    return Err(format!(
                        "{} has {} MiB free, and {contender} may need {} MiB there; take fewer \
                         --records, or a larger tier",
                        tier.name,
                        free >> 20,
                        needed >> 20,
                    ));
                }
            }
        }
        Ok(())
    }

    /// The tiers in words.
    pub(crate) fn describe(&self) -> String {
        match &self.rig {
            Some(rig) => format!(
                "Emulated tiers:\n{}Caps work in slices of 100 ms, so that latency percentiles of \
                 whatever touches a cap are artefacts; rates and means are right.\n",
                rig.describe()
            ),
            None => {
                let paths: Vec<String> = self
                    .tiers
                    .iter()
                    .map(|tier| format!("{} {}", tier.name, tier.path.display()))
                    .collect();
                format!(
                    "Plain directories ({}): nothing was emulated, memory is not capped{}.\n",
                    paths.join(", "),
                    match self.tiers.iter().all(|tier| tier.price_usd_gb_month > 0.0) {
                        true => "",
                        false => ", prices are not known",
                    }
                )
            }
        }
    }
}

fn of_rig(rig: &Rig) -> Vec<Place> {
    let tiers = rig.tiers.iter();
    tiers
        .map(|tier| Place {
            name: tier.name.clone(),
            path: tier.path.clone(),
            rates: Some(Rates {
                reads: tier.profile.random_read_iops as f64,
                read_bytes: tier.profile.read_mb_s as f64 * 1e6,
                writes: tier.profile.write_iops as f64,
                written_bytes: tier.profile.write_mb_s as f64 * 1e6,
            }),
            profile: Some([
                tier.profile.random_read_iops as f64,
                tier.profile.read_mb_s as f64,
            ]),
            price_usd_gb_month: tier.price_usd_per_gb_month,
        })
        .collect()
}

fn free_bytes(path: &Path) -> Result<u64> {
    let space = statvfs(path)?;
    Ok(space.f_bavail * space.f_frsize)
}
