//! `thermocline-bench tiers`: emulated devices on this machine.
//!
//! A tier is an ext4 on a loop device on an image in memory, with the caps of a
//! real device set by the kernel's control groups (version 1). `up` makes a fast
//! tier and slow ones and, if asked, a group that caps memory; `check` proves the
//! caps; `down` undoes everything, also after an `up` that died half way. What
//! the emulation is good for and what not is in `docs/benchmark.md`.
//!
//! [`Rig::found`] gives the rig that is up to whoever measures on it.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

use crate::engine::Result;
use crate::failure::Failure;

mod cgroup;
mod check;
mod down;
mod image;
mod mounts;
mod picture;
mod probe;
mod profile;
mod state;
mod up;

#[cfg(test)]
mod tests;

use cgroup::{Cap, Controllers};
pub(crate) use profile::Profile;
use state::{Place, Rates, State, Step};
use up::{Plan, PlannedTier};

/// How long `up` measures a device before it is capped, each kind of I/O.
const UNCAPPED_TIME: Duration = Duration::from_millis(400);

/// The most slow tiers.
const SLOW_TIERS_MAX: usize = 8;

/// The options of the subcommand.
#[derive(Args, Debug)]
pub(crate) struct TiersArgs {
    #[command(subcommand)]
    command: TiersCommand,
}

#[derive(Subcommand, Debug)]
enum TiersCommand {
    /// Make a fast tier and slow ones, with the caps of their profiles.
    Up(UpArgs),
    /// Undo everything that `up` did, also if it did not finish.
    Down,
    /// Measure every tier and compare with its caps; prove the cap on memory.
    Check(CheckArgs),
    /// List the profiles, with the source of their numbers.
    Profiles,
    /// Take memory; started by `check`.
    #[command(name = check::OCCUPY, hide = true)]
    Occupy(check::OccupyArgs),
}

#[derive(Args, Debug)]
struct UpArgs {
    /// Profile of the fast tier.
    #[arg(long, default_value = "nvme", value_parser = PossibleValuesParser::new(Profile::names()))]
    profile_fast: String,
    /// Profiles of the slow tiers, from fast to slow.
    #[arg(long, value_delimiter = ',', default_value = "hdd",
          value_parser = PossibleValuesParser::new(Profile::names()))]
    profile_slow: Vec<String>,
    /// MiB of the fast tier's image.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(32..=1_048_576))]
    fast_mib: u64,
    /// MiB of the slow tiers' images, one for all or one for each.
    #[arg(long, value_delimiter = ',', default_value = "4096",
          value_parser = clap::value_parser!(u64).range(32..=16_777_216))]
    slow_mib: Vec<u64>,
    /// MiB of memory for a process that is measured, page cache included [default: no cap].
    #[arg(long, value_parser = clap::value_parser!(u64).range(64..=16_777_216))]
    memory_mib: Option<u64>,
    /// Where images and mount points are made. A file system in memory, unless the
    /// disk is faster than the profiles at all times.
    #[arg(long, default_value = "/dev/shm")]
    directory: PathBuf,
}

#[derive(Args, Debug)]
struct CheckArgs {
    /// Seconds for each kind of I/O on each tier.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Also draw what was measured in this file.
    #[arg(long)]
    html: Option<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &TiersArgs) -> Result<(), Failure> {
    match &args.command {
        TiersCommand::Up(args) => run_up(args),
        TiersCommand::Down => run_down(),
        TiersCommand::Check(args) => run_check(args),
        TiersCommand::Profiles => {
            print!("{}", describe_profiles());
            Ok(())
        }
        TiersCommand::Occupy(args) => Ok(check::occupy(args)?),
    }
}

fn run_up(args: &UpArgs) -> Result<(), Failure> {
    let plan = plan(args).map_err(Failure::Usage)?;
    let place = Place::from_environment().map_err(Failure::Usage)?;
    let controllers = up::requirements()?;
    up::up(&place, &controllers, &plan)?;
    let rig = Rig::found()?.ok_or("the rig is gone already")?;
    print!("{}", rig.describe());
    Ok(())
}

fn run_down() -> Result<(), Failure> {
    let place = Place::from_environment().map_err(Failure::Usage)?;
    let undone = down::down(&place)?;
    match undone.is_empty() {
        true => println!("the rig {} is not up; nothing to undo", place.name),
        false => println!("{}", undone.join("\n")),
    }
    Ok(())
}

fn run_check(args: &CheckArgs) -> Result<(), Failure> {
    let place = Place::from_environment().map_err(Failure::Usage)?;
    up::requirements()?;
    let rig = found(&place)?
        .ok_or_else(|| format!("the rig {} is not up; `tiers up` makes it", place.name))?;
    let _lock = place.lock()?;
    print!("{}", rig.describe());
    let time = Duration::from_secs(args.seconds);
    check::check(&rig, time, args.html.as_deref())?;
    Ok(())
}

/// The plan that the command line asks for.
fn plan(args: &UpArgs) -> Result<Plan, String> {
    let named =
        |name: &String| Profile::named(name).ok_or_else(|| format!("there is no profile {name}"));
    let slow = args.profile_slow.len();
    if slow > SLOW_TIERS_MAX {
        return Err(format!(
            "{slow} slow tiers, at most {SLOW_TIERS_MAX} are possible"
        ));
    }
    let sizes = args.slow_mib.len();
    if sizes != 1 && sizes != slow {
        return Err(format!("{slow} slow profiles, but {sizes} sizes for them"));
    }
    let mut tiers = vec![PlannedTier {
        name: "fast".to_string(),
        profile: named(&args.profile_fast)?,
        bytes: args.fast_mib << 20,
    }];
    for (at, name) in args.profile_slow.iter().enumerate() {
        let mib = args.slow_mib[at.min(sizes - 1)];
        tiers.push(PlannedTier {
            name: match at {
                0 => "slow".to_string(),
                _ => format!("slow{}", at + 1),
            },
            profile: named(name)?,
            bytes: mib << 20,
        });
    }
    Ok(Plan {
        directory: args.directory.clone(),
        tiers,
        memory_bytes: args.memory_mib.map(|mib| mib << 20),
        uncapped_time: UNCAPPED_TIME,
    })
}

fn describe_profiles() -> String {
    let mut text = String::new();
    for profile in profile::PROFILES {
        text.push_str(&format!(
            "{:<9} reads {:>6}/s {:>4} MB/s, writes {:>6}/s {:>4} MB/s, {:.3} USD per GB and \
             month\n          {}\n",
            profile.name,
            profile.random_read_iops,
            profile.read_mb_s,
            profile.write_iops,
            profile.write_mb_s,
            profile.price_usd_per_gb_month,
            profile.source
        ));
    }
    text
}

/// The emulated devices that are up.
#[derive(Clone, Debug)]
pub(crate) struct Rig {
    /// From fast to slow.
    pub tiers: Vec<RigTier>,
    /// The directory of the group that caps memory, if it is capped.
    pub memory_group: Option<PathBuf>,
    /// Rules of a group hold for its members: a worker must be one.
    controllers: Controllers,
}

/// One emulated device.
#[derive(Clone, Debug)]
pub(crate) struct RigTier {
    /// `fast`, `slow`, `slow2` and so on.
    pub name: String,
    /// Where it is mounted; empty when it came up.
    pub path: PathBuf,
    /// The major and minor number of its device.
    pub device: (u32, u32),
    /// Its caps.
    pub profile: Profile,
    /// Price of 10^9 bytes for a month.
    pub price_usd_per_gb_month: f64,
    /// Bytes that files may take there.
    pub bytes: u64,
    uncapped: Rates,
}

impl Rig {
    /// The rig that is up on this machine, or `None`.
    ///
    /// Errors: a rig on record that did not come up whole, or of which a part is
    /// gone, say after a restart of the machine; `tiers down` cleans up after it.
    pub(crate) fn found() -> Result<Option<Rig>> {
        found(&Place::from_environment()?)
    }

    /// Puts a process under the caps: of the devices, and of memory if it is
    /// capped. Memory that it has already is not counted, nor is page cache that
    /// another process brought in; so call it before the process does anything.
    pub(crate) fn join(&self, process: u32) -> Result<()> {
        self.join_devices(process)?;
        if let Some(group) = &self.memory_group {
            cgroup::join(group, process)?;
        }
        Ok(())
    }

    /// Lifts the caps of all devices, for what is not measured. Until
    /// [`Rig::set_caps`] the rig does not count as whole: should this process end
    /// before, the next one is told so.
    pub(crate) fn lift_caps(&self) -> Result<()> {
        for cap in self.caps() {
            cap.lift()?;
        }
        Ok(())
    }

    /// Sets the caps again.
    pub(crate) fn set_caps(&self) -> Result<()> {
        for cap in self.caps() {
            cap.set()?;
        }
        Ok(())
    }

    fn caps(&self) -> impl Iterator<Item = Cap> {
        let tiers = self.tiers.iter();
        tiers.flat_map(|tier| cgroup::caps(&self.controllers, tier.device, &tier.profile))
    }

    /// Puts a process under the caps of the devices alone.
    fn join_devices(&self, process: u32) -> Result<()> {
        Ok(cgroup::join(&self.controllers.blkio, process)?)
    }

    /// The rig in words, a line for each tier.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        for tier in &self.tiers {
            let profile = &tier.profile;
            text.push_str(&format!(
                "{:<6} {} on device {}:{}, {} MiB for files, {}: reads {}/s and {} MB/s, writes \
                 {}/s and {} MB/s, {:.3} USD per GB and month\n",
                tier.name,
                tier.path.display(),
                tier.device.0,
                tier.device.1,
                tier.bytes >> 20,
                profile.name,
                profile.random_read_iops,
                profile.read_mb_s,
                profile.write_iops,
                profile.write_mb_s,
                tier.price_usd_per_gb_month,
            ));
        }
        match &self.memory_group {
            Some(group) => text.push_str(&format!(
                "memory capped for the members of {}\n",
                group.display()
            )),
            None => text.push_str("memory not capped\n"),
        }
        text
    }
}

/// The rig on record at `place`, if it stands as recorded.
fn found(place: &Place) -> Result<Option<Rig>> {
    let Some(state) = place.load()? else {
        return Ok(None);
    };
    match stands(&state)? {
        Ok(rig) => Ok(Some(rig)),
        Err(words) => Err(format!(
            "the rig {} is not whole: {words}; `thermocline-bench tiers down` cleans up after it",
            place.name
        )
        .into()),
    }
}

/// The rig of `state`; the inner error says what of it is not there.
fn stands(state: &State) -> Result<Result<Rig, String>> {
    if !state.complete {
        return Ok(Err("`tiers up` or `tiers down` did not finish".to_string()));
    }
    let lifted = |cap: &Cap| Ok::<bool, std::io::Error>(!cap.holds()?);
    let mut memory_group = None;
    for step in &state.steps {
        match step {
            Step::Mount { point, image } if !image::is_mounted(point, image)? => {
                return Ok(Err(format!("nothing is mounted at {}", point.display())));
            }
            Step::Caps { image, caps } => {
                for cap in caps {
                    if lifted(cap)? {
                        return Ok(Err(format!("{}: a cap was lifted", image.display())));
                    }
                }
            }
            Step::MemoryGroup { group, .. } => {
                if !group.exists() {
                    return Ok(Err(format!("{} is gone", group.display())));
                }
                memory_group = Some(group.clone());
            }
            _ => {}
        }
    }
    let mut tiers = Vec::new();
    for record in &state.tiers {
        let Some(profile) = Profile::named(&record.profile) else {
            let words = format!(
                "its profile {} is not known to this program",
                record.profile
            );
            return Ok(Err(words));
        };
        tiers.push(RigTier {
            name: record.name.clone(),
            path: record.point.clone(),
            device: record.device,
            profile,
            price_usd_per_gb_month: profile.price_usd_per_gb_month,
            bytes: record.bytes,
            uncapped: record.uncapped,
        });
    }
    Ok(Ok(Rig {
        tiers,
        memory_group,
        controllers: Controllers::find(&mounts::mounts()?)?,
    }))
}
