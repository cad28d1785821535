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
        let mount = Mount { directory, scratch };
        let image = mount.image();
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let made = image.to_str().is_some_and(|image| {
            succeeds(
                "mkfs.ext4",
                &["-q", "-F", "-m", "0", "-E", "nodiscard", image],
            )
        });
        if made && mount.mount("loop") {
            return Some(mount);
        }
        println!("SKIPPED 1: no ext4 on a loop device can be mounted here (not root?)");
        None
    }

    fn image(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    /// Mounts it, after [`Mount::unmount`].
    pub fn mount(&self, options: &str) -> bool {
        let (image, at) = (self.image(), self.directory.clone());
        match (image.to_str(), at.to_str()) {
            (Some(image), Some(at)) => succeeds("mount", &["-o", options, image, at]),
            _ => false,
        }
    }

    /// Mounts it again with other options while it stays in use.
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
    }
}
