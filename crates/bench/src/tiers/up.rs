//! `tiers up`: what is needed, what is planned, and the steps to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cgroup::{self, Controllers, at};
use super::down;
use super::image;
use super::mounts::mounts;
use super::probe::Probe;
use super::profile::Profile;
use super::state::{Journal, Place, Step, TierRecord};
use crate::device;
use crate::engine::Result;

/// The type of a file system in memory, as the kernel numbers it.
const TMPFS: u64 = 0x0102_1994;

/// Memory that stays free for everything else.
const MEMORY_RESERVE_BYTES: u64 = 256 << 20;

/// What shall stand.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Where images and mount points are made.
    pub directory: PathBuf,
    /// From fast to slow.
    pub tiers: Vec<PlannedTier>,
    /// The cap on memory.
    pub memory_bytes: Option<u64>,
    /// How long each measurement without caps lasts.
    pub uncapped_time: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct PlannedTier {
    pub name: String,
    pub profile: Profile,
    /// The size of the image.
    pub bytes: u64,
}

/// What this machine lacks for the emulation, all of it, in words; else its
/// controllers.
pub(super) fn requirements() -> Result<Controllers, String> {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push("it needs root, and this is another user".to_string());
    }
    missing.extend(image::missing_programs());
    if !Path::new("/dev/loop-control").exists() {
        missing.push("there is no /dev/loop-control, so no loop devices".to_string());
    }
    let mounts = mounts().map_err(|error| error.to_string())?;
    match Controllers::find(&mounts) {
        Ok(controllers) if missing.is_empty() => return Ok(controllers),
        Ok(_) => {}
        Err(words) => missing.push(words),
    }
    Err(format!(
        "tiers cannot be emulated here: {}. The comparison runs without, on plain directories",
        missing.join("; ")
    ))
}

/// What the plan takes, and what there is of it.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Bytes of all images.
    image_bytes: u64,
    /// The cap on memory, which the measured process will use up.
    memory_bytes: u64,
    /// Whether the images lie in memory.
    in_memory: bool,
    directory_free_bytes: u64,
    memory_free_bytes: u64,
}

impl Room {
    fn of(plan: &Plan) -> Result<Room> {
        let directory = &plan.directory;
        let system = rustix::fs::statfs(directory).map_err(|error| at(directory)(error.into()))?;
        let free = |text: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("MemAvailable:"))?;
            let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
            Some(kilobytes * 1024)
        };
        Ok(Room {
            image_bytes: plan.tiers.iter().map(|tier| tier.bytes).sum(),
            memory_bytes: plan.memory_bytes.unwrap_or(0),
            in_memory: system.f_type as u64 == TMPFS,
            directory_free_bytes: system.f_bavail.saturating_mul(system.f_bsize as u64),
            memory_free_bytes: free(&fs::read_to_string("/proc/meminfo")?)
                .ok_or("/proc/meminfo does not say what is available")?,
        })
    }

    /// What is too little, in words.
    fn shortage(&self) -> Option<String> {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        if self.image_bytes > self.directory_free_bytes {
            return Some(format!(
                "the images take {} MiB, but their directory has {} MiB free",
                mib(self.image_bytes),
                self.directory_free_bytes >> 20
            ));
        }
        let images = match self.in_memory {
            true => self.image_bytes,
            false => 0,
        };
        let needed = images + self.memory_bytes + MEMORY_RESERVE_BYTES;
        (needed > self.memory_free_bytes).then(|| {
            format!(
                "images in memory of {} MiB, a memory cap of {} MiB and {} MiB for the rest of \
                 the machine make {} MiB, but {} MiB of memory are available",
                mib(images),
                mib(self.memory_bytes),
                mib(MEMORY_RESERVE_BYTES),
                mib(needed),
                self.memory_free_bytes >> 20
            )
        })
    }
}

/// Makes the rig of `plan`. Refuses before anything is made if there is one, or
/// too little room; undoes everything if a step fails.
pub(super) fn up(place: &Place, controllers: &Controllers, plan: &Plan) -> Result<()> {
    let _lock = place.lock()?;
    refuse_if_up(place)?;
    if let Some(words) = Room::of(plan)?.shortage() {
        return Err(words.into());
    }
    let mut journal = Journal::new(place)?;
    match raise(&mut journal, place, controllers, plan) {
        Ok(()) => Ok(()),
        Err(error) => {
            let undone = down::undo(&mut journal);
            Err(match undone {
                Ok(_) => format!("{error}; what was made so far is undone").into(),
                Err(more) => format!("{error}; undoing it failed too: {more}").into(),
            })
        }
    }
}

fn refuse_if_up(place: &Place) -> Result<()> {
    match place.load()? {
        None => Ok(()),
        Some(state) if state.complete => Err(format!(
            "the rig {} is up already; `tiers check` proves it, `tiers down` removes it",
            place.name
        )
        .into()),
        Some(_) => Err(format!(
            "an earlier `tiers up` or `tiers down` of the rig {} did not finish; `tiers down` \
             cleans up after it",
            place.name
        )
        .into()),
    }
}

/// Takes all the steps, each recorded first.
pub(super) fn raise(
    journal: &mut Journal,
    place: &Place,
    controllers: &Controllers,
    plan: &Plan,
) -> Result<()> {
    let directory = fs::canonicalize(&plan.directory).map_err(at(&plan.directory))?;
    let plain = |c: char| !c.is_whitespace() && c != '\\';
    if !directory
        .to_str()
        .is_some_and(|text| text.chars().all(plain))
    {
        let words = "a directory with blanks or backslashes in its path cannot be used";
        return Err(format!("{}: {words}", directory.display()).into());
    }
    let home = directory.join(&place.name);
    if home.exists() {
        return Err(format!("{} exists, and this rig did not make it", home.display()).into());
    }
    journal.begin(Step::Directory(home.clone()))?;
    fs::create_dir(&home).map_err(at(&home))?;

    let mut tiers = Vec::new();
    for tier in &plan.tiers {
        tiers.push(raise_tier(journal, &home, tier, plan.uncapped_time)?);
    }
    for (tier, record) in plan.tiers.iter().zip(&tiers) {
        let caps = cgroup::caps(controllers, record.device, &tier.profile);
        for cap in &caps {
            cap.refuse_if_taken()?;
        }
        journal.begin(Step::Caps {
            image: record.image.clone(),
            caps: caps.clone(),
        })?;
        for cap in &caps {
            cap.set()?;
        }
    }
    if let Some(bytes) = plan.memory_bytes {
        let group = controllers.memory.join(&place.name);
        if group.exists() {
            return Err(format!("{} exists, and this rig did not make it", group.display()).into());
        }
        journal.begin(Step::MemoryGroup {
            group: group.clone(),
            bytes,
        })?;
        cgroup::make_memory_group(&group, bytes)?;
    }
    journal.complete(tiers)
}

fn raise_tier(
    journal: &mut Journal,
    home: &Path,
    tier: &PlannedTier,
    uncapped_time: Duration,
) -> Result<TierRecord> {
    let image = home.join(format!("{}.image", tier.name));
    journal.begin(Step::Image {
        image: image.clone(),
        bytes: tier.bytes,
    })?;
    image::make(&image, tier.bytes)?;

    journal.begin(Step::Attach {
        image: image.clone(),
    })?;
    let device = image::attach(&image)?;
    if !device.direct {
        eprintln!(
            "{}: no direct I/O from the loop device to its image here; blocks of the image may \
             be in the page cache too",
            tier.name
        );
    }
    image::format(&device.path, tier.bytes)?;

    let point = home.join(&tier.name);
    journal.begin(Step::Directory(point.clone()))?;
    fs::create_dir(&point).map_err(at(&point))?;
    journal.begin(Step::Mount {
        point: point.clone(),
        image: image.clone(),
    })?;
    image::mount(&device.path, &point)?;

    let system = rustix::fs::statvfs(&point).map_err(|error| at(&point)(error.into()))?;
    let bytes = system.f_bavail.saturating_mul(system.f_frsize);
    let uncapped = Probe::make(&point, bytes)?.rates(uncapped_time)?;
    Ok(TierRecord {
        name: tier.name.clone(),
        profile: tier.profile.name.to_string(),
        device: device::number(&point)?,
        point,
        image,
        bytes,
        uncapped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: Room = Room {
        image_bytes: 1 << 30,
        memory_bytes: 1 << 28,
        in_memory: true,
        directory_free_bytes: 1 << 30,
        memory_free_bytes: (1 << 30) + (1 << 28) + MEMORY_RESERVE_BYTES,
    };

    #[test]
    fn too_little_room_is_said_with_both_numbers() {
        assert_eq!(ENOUGH.shortage(), None);
        let small = Room {
            directory_free_bytes: (1 << 30) - 1,
            ..ENOUGH
        };
        let words = small.shortage().unwrap();
        assert!(
            words.contains("1024 MiB") && words.contains("1023 MiB"),
            "{words}"
        );

        let poor = Room {
            memory_free_bytes: ENOUGH.memory_free_bytes - 1,
            ..ENOUGH
        };
        let words = poor.shortage().unwrap();
        assert!(
            words.contains("1536 MiB") && words.contains("1535 MiB"),
            "{words}"
        );
    }

    #[test]
    fn images_on_a_disk_take_no_memory() {
        let disk = Room {
            in_memory: false,
            memory_free_bytes: ENOUGH.memory_free_bytes - (1 << 30),
            ..ENOUGH
        };
        assert_eq!(disk.shortage(), None);
    }
}
