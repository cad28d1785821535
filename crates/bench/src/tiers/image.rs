//! Images, the loop devices on them, and the file systems in these.
//!
//! An image has all its blocks from the beginning: a tier that ran out of memory
//! in the middle of a measurement would spoil it. For the same reason nothing
//! discards. The loop device goes around the page cache to the image, so that a
//! block is not in memory twice.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::FallocateFlags;

use super::cgroup::at;
use super::mounts::mounts;
use crate::engine::Result;

/// How long a device may take to be free: the kernel lets go when the last one
/// that has it open closes it, be it a program that looks at every new device.
const WAIT: Duration = Duration::from_millis(50);
const WAITS: u32 = 20;

/// How far the system reads ahead on a loop device: what it sets a new one to. One that was used
/// before may have kept another value.
const READ_AHEAD_KIB: u64 = 128;

/// Programs that are needed, each with the Debian package that has it.
const PROGRAMS: [(&str, &str); 4] = [
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mount", "mount"),
    ("umount", "mount"),
];

/// Where programs of the administrator are, whatever the path says.
const PROGRAM_DIRECTORIES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// The programs that are missing here, in words.
pub(super) fn missing_programs() -> Vec<String> {
    let missing = PROGRAMS.iter().filter(|(name, _)| program(name).is_none());
    missing
        .map(|(name, package)| format!("the program {name} is missing (Debian: {package})"))
        .collect()
}

fn program(name: &str) -> Option<PathBuf> {
    let mut places = PROGRAM_DIRECTORIES.iter();
    places.find_map(|directory| {
        let path = Path::new(directory).join(name);
        path.is_file().then_some(path)
    })
}

/// Runs a program and returns what it printed; its complaint is the error.
fn run(name: &str, arguments: &[&str]) -> Result<String> {
    let path = program(name).ok_or_else(|| format!("the program {name} is missing"))?;
    let output = Command::new(path).args(arguments).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        false => Err(format!("{name} {}: {}", arguments.join(" "), complaint.trim()).into()),
    }
}

/// Makes an image of `bytes` that has all its blocks.
pub(super) fn make(image: &Path, bytes: u64) -> Result<()> {
    let file = File::options()
        .write(true)
        .create_new(true)
        .open(image)
        .map_err(at(image))?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)
        .map_err(|error| at(image)(error.into()))?;
    Ok(())
}

/// A loop device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Loop {
    /// Its file below `/dev`.
    pub path: PathBuf,
    /// Whether it goes around the page cache to its image.
    pub direct: bool,
}

/// Attaches `image` to a free loop device.
pub(super) fn attach(image: &Path) -> Result<Loop> {
    let path = text(image)?;
    // Some kernels refuse direct I/O on a file system in memory. The image is in
    // memory there anyway.
    let printed = match run("losetup", &["--find", "--show", "--direct-io=on", path]) {
        Ok(printed) => printed,
        Err(_) => run("losetup", &["--find", "--show", path])?,
    };
    let device = PathBuf::from(printed);
    let name = device.file_name().unwrap_or_default();
    let system = Path::new("/sys/block").join(name);
    let direct = fs::read_to_string(system.join("loop/dio"));
    let direct = direct.is_ok_and(|text| text.trim() == "1");
    let read_ahead = system.join("queue/read_ahead_kb");
    fs::write(&read_ahead, READ_AHEAD_KIB.to_string()).map_err(at(&read_ahead))?;
    Ok(Loop {
        path: device,
        direct,
    })
}

/// The loop devices on `image`, also if the image was deleted meanwhile.
pub(super) fn attached(image: &Path) -> io::Result<Vec<PathBuf>> {
    let image = image.to_string_lossy();
    let deleted = format!("{image} (deleted)");
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let backing = backing.trim_end_matches('\n');
        if backing == image || backing == deleted {
            found.push(Path::new("/dev").join(entry.file_name()));
        }
    }
    Ok(found)
}

/// Detaches every loop device of `image`; returns them.
pub(super) fn detach(image: &Path) -> Result<Vec<PathBuf>> {
    let devices = attached(image)?;
    // Detaching one that is mounted would succeed and take effect later.
    let mounts = mounts()?;
    for mount in &mounts {
        if devices
            .iter()
            .any(|device| device == Path::new(&mount.source))
        {
            return Err(format!("{} is still mounted", mount.source).into());
        }
    }
    for device in &devices {
        run("losetup", &["--detach", text(device)?])?;
    }
    for _ in 0..WAITS {
        if attached(image)?.is_empty() {
            return Ok(devices);
        }
        std::thread::sleep(WAIT);
    }
    Err(format!("{}: somebody keeps its loop device open", image.display()).into())
}

/// Makes an empty ext4 on a device of `bytes`.
pub(super) fn format(device: &Path, bytes: u64) -> Result<()> {
    // A small journal and few inodes: the tier is for tables, and what it may
    // hold should be near what was asked for.
    let journal_mib = (bytes >> 20).div_ceil(16).clamp(4, 32);
    let journal = format!("size={journal_mib}");
    let extended = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
    let device = text(device)?;
    let arguments = [
        "-q", "-F", "-b", "4096", "-m", "0", "-i", "65536", "-J", &journal, "-E", extended, device,
    ];
    run("mkfs.ext4", &arguments)?;
    Ok(())
}

/// Mounts `device` at `point`.
pub(super) fn mount(device: &Path, point: &Path) -> Result<()> {
    let (device, point) = (text(device)?, text(point)?);
    run("mount", &["-t", "ext4", "-o", "noatime", device, point])?;
    // The directory for what a file system check finds would be in the way of
    // engines that expect an empty directory.
    let lost = Path::new(point).join("lost+found");
    fs::remove_dir(&lost).map_err(at(&lost))?;
    Ok(())
}

/// Whether a file system in `image` is mounted at `point`.
pub(super) fn is_mounted(point: &Path, image: &Path) -> Result<bool> {
    let devices = attached(image)?;
    let ours = |source: &str| devices.iter().any(|device| device == Path::new(source));
    Ok(mounts()?
        .iter()
        .any(|mount| mount.point == point && ours(&mount.source)))
}

/// Unmounts what is mounted at `point` from `image`; whether there was anything.
pub(super) fn unmount(point: &Path, image: &Path) -> Result<bool> {
    let mut any = false;
    let mut waits = 0;
    while is_mounted(point, image)? {
        match run("umount", &[text(point)?]) {
            Ok(_) => any = true,
            Err(_) if waits < WAITS => {
                waits += 1;
                std::thread::sleep(WAIT);
            }
            Err(error) => {
                let holders = holders(point);
                return Err(match holders.is_empty() {
                    true => error,
                    false => format!("{error}; in use by {}", holders.join(", ")).into(),
                });
            }
        }
    }
    Ok(any)
}

/// The processes that have something below `point` open.
fn holders(point: &Path) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let below = |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(point));
    let mut found = Vec::new();
    for process in processes.flatten() {
        let number = process.file_name().to_string_lossy().into_owned();
        if number.parse::<u32>().is_err() {
            continue;
        }
        let directory = process.path();
        let files = fs::read_dir(directory.join("fd"));
        let open = files.is_ok_and(|files| files.flatten().any(|file| below(&file.path())));
        if open || below(&directory.join("cwd")) {
            let name = fs::read_to_string(directory.join("comm")).unwrap_or_default();
            found.push(format!("{number} ({})", name.trim()));
        }
    }
    found
}

/// A path for a command line. [`super::up`] refuses directories that are no text.
fn text(path: &Path) -> Result<&str> {
    Ok(path
        .to_str()
        .ok_or_else(|| format!("{}: not a path of plain text", path.display()))?)
}
