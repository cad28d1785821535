//! Caps on devices and on memory by control groups of version 1.
//!
//! The rules of a group hold for its own members alone, not for groups below it.
//! Buffered writes count for whoever writes them back: a thread of the kernel,
//! which belongs to the root group, or the process that syncs. So a process in a
//! group of its own would have two caps for its writes, and go beyond both
//! (measured: `docs/benchmark.md`). Therefore all rules stand in the root group
//! of `blkio`, each for a loop device by its number, and a worker joins that
//! group as well as the memory group. Reads have a bucket of their own, apart
//! from writes: a device at its cap in both does twice the work.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::mounts::Mount;
use super::profile::Profile;
use crate::engine::Result;

/// The files of the root group that hold rules for devices.
const READ_IOPS: &str = "blkio.throttle.read_iops_device";
const READ_BYTES: &str = "blkio.throttle.read_bps_device";
const WRITE_IOPS: &str = "blkio.throttle.write_iops_device";
const WRITE_BYTES: &str = "blkio.throttle.write_bps_device";

/// Where the two controllers are mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Controllers {
    /// The root group of `blkio`.
    pub blkio: PathBuf,
    /// The root group of `memory`.
    pub memory: PathBuf,
}

impl Controllers {
    /// Finds them among the mounts, or says which is missing.
    pub(super) fn find(mounts: &[Mount]) -> Result<Controllers, String> {
        let second = mounts.iter().any(|mount| mount.kind == "cgroup2");
        let find = |controller: &str| {
            let found = mounts.iter().find(|mount| {
                mount.kind == "cgroup" && mount.options.split(',').any(|word| word == controller)
            });
            found.map(|mount| mount.point.clone()).ok_or_else(|| {
                let other = match second {
                    true => "; version 2 is mounted, which this emulation does not use",
                    false => "",
                };
                format!("the controller {controller} of cgroup version 1 is not mounted{other}")
            })
        };
        match (find("blkio"), find("memory")) {
            (Ok(blkio), Ok(memory)) => Ok(Controllers { blkio, memory }),
            (blkio, memory) => {
                let missing = [blkio.err(), memory.err()];
                Err(missing.into_iter().flatten().collect::<Vec<_>>().join("; "))
            }
        }
    }
}

/// One rule: at most `value` for `device` in the group's file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct Cap {
    file: PathBuf,
    device: (u32, u32),
    value: u64,
}

/// The rules that make `device` as slow as `profile`.
pub(super) fn caps(controllers: &Controllers, device: (u32, u32), profile: &Profile) -> Vec<Cap> {
    let rules = [
        (READ_IOPS, profile.random_read_iops),
        (READ_BYTES, profile.read_bytes_per_second()),
        (WRITE_IOPS, profile.write_iops),
        (WRITE_BYTES, profile.write_bytes_per_second()),
    ];
    let cap = |(name, value): (&str, u64)| Cap {
        file: controllers.blkio.join(name),
        device,
        value,
    };
    rules.into_iter().map(cap).collect()
}

impl Cap {
    /// The numbers of the device.
    pub(super) fn device(&self) -> (u32, u32) {
        self.device
    }

    /// The rule for the device that stands there now.
    fn standing(&self) -> io::Result<Option<u64>> {
        let text = fs::read_to_string(&self.file).map_err(at(&self.file))?;
        Ok(rule(&text, self.device))
    }

    fn write(&self, value: u64) -> io::Result<()> {
        let (major, minor) = self.device;
        fs::write(&self.file, format!("{major}:{minor} {value}")).map_err(at(&self.file))
    }

    /// Refuses if somebody else has a rule for the device.
    pub(super) fn refuse_if_taken(&self) -> Result<()> {
        match self.standing()? {
            None => Ok(()),
            Some(value) => Err(format!(
                "{} has a rule for device {}:{} already ({value}), from somebody else",
                self.file.display(),
                self.device.0,
                self.device.1
            )
            .into()),
        }
    }

    /// Sets the rule.
    pub(super) fn set(&self) -> io::Result<()> {
        self.write(self.value)
    }

    /// Whether the rule stands as it was set.
    pub(super) fn holds(&self) -> io::Result<bool> {
        Ok(self.standing()? == Some(self.value))
    }

    /// Lifts the rule, if it is still ours, and says so.
    pub(super) fn lift(&self) -> io::Result<bool> {
        let ours = self.standing()? == Some(self.value);
        if ours {
            // Zero is the kernel's word for no cap.
            self.write(0)?;
        }
        Ok(ours)
    }
}

/// The value for `device` among lines such as `7:0 60`.
fn rule(text: &str, device: (u32, u32)) -> Option<u64> {
    let name = format!("{}:{}", device.0, device.1);
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

/// Makes the memory group `group`, whose members may use `bytes` altogether,
/// page cache included, swap too where the kernel counts it.
pub(super) fn make_memory_group(group: &Path, bytes: u64) -> io::Result<()> {
    fs::create_dir(group).map_err(at(group))?;
    let limit = group.join("memory.limit_in_bytes");
    fs::write(&limit, bytes.to_string()).map_err(at(&limit))?;
    let with_swap = group.join("memory.memsw.limit_in_bytes");
    if with_swap.exists() {
        fs::write(&with_swap, bytes.to_string()).map_err(at(&with_swap))?;
    }
    Ok(())
}

/// Moves a process into `group`.
pub(super) fn join(group: &Path, process: u32) -> io::Result<()> {
    let members = group.join("cgroup.procs");
    fs::write(&members, process.to_string()).map_err(at(&members))
}

/// The processes of `group`.
pub(super) fn members(group: &Path) -> io::Result<Vec<u32>> {
    let members = group.join("cgroup.procs");
    let text = fs::read_to_string(&members).map_err(at(&members))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// A number that a group's file holds.
pub(super) fn number(group: &Path, file: &str) -> Result<u64> {
    let path = group.join(file);
    let text = fs::read_to_string(&path).map_err(at(&path))?;
    let number = text.trim().parse();
    Ok(number.map_err(|_| format!("{}: {text:?} is no number", path.display()))?)
}

/// Removes the memory group. Members that are left move to the group above,
/// where no cap of ours holds; their number is returned. `None` if there is no
/// such group.
pub(super) fn remove_memory_group(group: &Path) -> io::Result<Option<usize>> {
    if !group.exists() {
        return Ok(None);
    }
    let above = group.parent().unwrap_or(group);
    let left = members(group)?;
    for &process in &left {
        // It may have ended meanwhile; what matters is that the group can go.
        drop(join(above, process));
    }
    // Page cache that is charged to the group would keep it alive in the kernel.
    drop(fs::write(group.join("memory.force_empty"), "0"));
    fs::remove_dir(group).map_err(at(group))?;
    Ok(Some(left.len()))
}

/// Names the path in an error.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(point: &str, kind: &str, options: &str) -> Mount {
        Mount {
            point: point.into(),
            kind: kind.into(),
            source: kind.into(),
            options: options.into(),
        }
    }

    #[test]
    fn the_controller_that_is_missing_is_named() {
        let blkio = mount("/c/blkio", "cgroup", "rw,blkio");
        let memory = mount("/c/memory", "cgroup", "rw,memory");
        let second = mount("/c/unified", "cgroup2", "rw");

        let found = Controllers::find(&[blkio.clone(), memory.clone(), second.clone()]).unwrap();
        assert_eq!(found.blkio, PathBuf::from("/c/blkio"));
        assert_eq!(found.memory, PathBuf::from("/c/memory"));

        let words = Controllers::find(&[blkio]).unwrap_err();
        assert!(
            words.contains("memory") && !words.contains("blkio"),
            "{words}"
        );
        let words = Controllers::find(&[memory]).unwrap_err();
        assert!(
            words.contains("blkio") && !words.contains("version 2"),
            "{words}"
        );
        let words = Controllers::find(&[second]).unwrap_err();
        assert!(words.contains("version 2 is mounted"), "{words}");
    }

    #[test]
    fn a_rule_is_found_by_the_whole_number_of_its_device() {
        let text = "7:10 5\n7:1 60\n";
        assert_eq!(rule(text, (7, 1)), Some(60));
        assert_eq!(rule(text, (7, 10)), Some(5));
        assert_eq!(rule(text, (7, 0)), None);
        assert_eq!(rule("", (7, 0)), None);
    }

    #[test]
    fn a_cap_is_lifted_only_where_it_still_is_ours() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rule");
        let cap = Cap {
            file: file.clone(),
            device: (7, 3),
            value: 60,
        };
        fs::write(&file, "").unwrap();
        cap.refuse_if_taken().unwrap();
        cap.set().unwrap();
        assert!(cap.holds().unwrap());
        assert!(cap.refuse_if_taken().is_err());
        assert!(cap.lift().unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "7:3 0");

        fs::write(&file, "7:3 61\n").unwrap();
        assert!(!cap.lift().unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "7:3 61\n");
    }
}
