//! Directories and mounts of the real machine that are cleaned up always: when
//! dropped, after a panic, and those of an earlier run that was killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// What every name begins with; the owner's process id follows.
const PREFIX: &str = "thermocline-sim-";

/// The directory inside a [`Scratch`] that a device is mounted on.
const MOUNT: &str = "mount";
/// The file inside a [`Scratch`] that a device is made of.
const IMAGE: &str = "image";

/// An empty directory, removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one in `parent`.
    #[must_use]
    pub fn new_in(parent: &Path) -> Scratch {
        static SWEPT: Once = Once::new();
        static NEXT: AtomicU64 = AtomicU64::new(0);
        SWEPT.call_once(|| {
            sweep(&std::env::temp_dir());
            sweep(&memory());
        });
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{}-{n}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    /// A new one where the system keeps temporary files.
    #[must_use]
    pub fn on_disk() -> Scratch {
        Scratch::new_in(&std::env::temp_dir())
    }

    /// A new one in memory where that can be had: what a killed process wrote
    /// survives there just the same, and syncs cost nothing.
    #[must_use]
    pub fn in_memory() -> Scratch {
        Scratch::new_in(&memory())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Never remove through a mount.
        unmount(&self.0.join(MOUNT));
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn memory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        shared.to_path_buf()
    } else {
        std::env::temp_dir()
    }
}

/// Removes what processes left in `parent` that are no more.
fn sweep(parent: &Path) {
    let Ok(list) = fs::read_dir(parent) else {
        return;
    };
    for entry in list.flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok())
            .and_then(rustix::process::Pid::from_raw);
        if owner.is_some_and(|pid| rustix::process::test_kill_process(pid).is_err()) {
            unmount(&entry.path().join(MOUNT));
            detach(&entry.path().join(IMAGE));
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let done = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    done.is_ok_and(|status| status.success())
}

/// Takes away every mount at `path`; lazily, if somebody still uses it.
pub fn unmount(path: &Path) {
    if !path.is_dir() {
        return;
    }
    let at = path.to_str().unwrap_or_default();
    while succeeds("mountpoint", &["-q", at]) {
        if !succeeds("umount", &[at]) && !succeeds("umount", &["-l", at]) {
            return;
        }
    }
}

/// A loop device with `image` in it.
fn attach(image: &Path) -> Option<String> {
    let mut command = Command::new("losetup");
    let done = command.args(["--find", "--show"]).arg(image);
    let done = done.stderr(Stdio::null()).output().ok()?;
    let device = String::from_utf8(done.stdout).ok()?;
    done.status.success().then(|| device.trim().to_string())
}

/// Frees the loop devices with `image` in them.
fn detach(image: &Path) {
    let mut command = Command::new("losetup");
    let Ok(done) = command.arg("-j").arg(image).stderr(Stdio::null()).output() else {
        return;
    };
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        if let Some((device, _)) = line.split_once(':') {
            succeeds("losetup", &["-d", device]);
        }
    }
}

/// Shows `what` at `path`, until [`unmount`]; false where that is not allowed.
/// `path` must be called `mount` and lie in a [`Scratch`].
#[must_use]
pub fn bind(what: &Path, path: &Path) -> bool {
    match (what.to_str(), path.to_str()) {
        (Some(what), Some(path)) => succeeds("mount", &["--bind", what, path]),
        _ => false,
    }
}

/// A file system on a device of its own: ext4 in an image file.
#[derive(Debug)]
pub struct Mount {
    directory: PathBuf,
    /// The loop device, the same for as long as this lives: a device looked for
    /// at every mount may be given to somebody else between two of its steps.
    device: String,
    scratch: Scratch,
}

impl Mount {
    /// A new one of so many bytes; `None`, said on standard output, where the
    /// system does not allow it.
    #[must_use]
    pub fn new(bytes: u64) -> Option<Mount> {
        let scratch = Scratch::in_memory();
        let directory = scratch.path().join(MOUNT);
        fs::create_dir(&directory).unwrap();
        let image = scratch.path().join(IMAGE);
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let made = image.to_str().is_some_and(|image| {
            let plain = ["-q", "-F", "-m", "0", "-E", "nodiscard", image];
            succeeds("mkfs.ext4", &plain)
        });
        if made && let Some(device) = attach(&image) {
            let mount = Mount {
                directory,
                device,
                scratch,
            };
            if mount.mount() {
                return Some(mount);
            }
        }
        println!("SKIPPED 1: no ext4 on a loop device can be mounted here (not root?)");
        None
    }

    /// Mounts it, after [`Mount::unmount`].
    #[must_use]
    pub fn mount(&self) -> bool {
        let at = self.directory.to_str().unwrap_or_default();
        succeeds("mount", &[&self.device, at])
    }

    /// Mounts it again with other options while it stays in use.
    #[must_use]
    pub fn remount(&self, options: &str) -> bool {
        let options = format!("remount,{options}");
        let at = self.directory.to_str().unwrap_or_default();
        succeeds("mount", &["-o", &options, at])
    }

    /// Takes it away.
    pub fn unmount(&self) {
        unmount(&self.directory);
    }

    /// The root of its file system.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// The directory that the mount lies in, which is not on it.
    #[must_use]
    pub fn outside(&self) -> &Path {
        self.scratch.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.unmount();
        succeeds("losetup", &["-d", &self.device]);
    }
}
