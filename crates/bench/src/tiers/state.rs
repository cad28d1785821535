//! What was done to the machine, on record, so that it can be undone.
//!
//! Each step is written down before it is taken, so a process that dies at any
//! point leaves a record of all that it may have done. Whether a recorded step
//! was taken is seen when it is undone. The record lies where it outlives a
//! restart of the machine, since an image on a disk does too.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cgroup::{Cap, at};
use crate::engine::Result;

/// Where records are.
const STATE_DIRECTORY: &str = "/var/lib/thermocline-bench";

/// Names the rig; set it to have two rigs at a time on one machine.
pub(super) const NAME_VARIABLE: &str = "THERMOCLINE_BENCH_RIG";

/// The name of the rig unless the environment names another.
const NAME: &str = "thermocline-bench";

/// How often and how long to wait for a lock that another command holds.
const LOCK_TRIES: u32 = 10;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// The format of the record.
const VERSION: u32 = 1;

/// Something done to the machine.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// A directory was made.
    Directory(PathBuf),
    /// A file of that many bytes was made, for a loop device.
    Image { image: PathBuf, bytes: u64 },
    /// A loop device was attached to the image.
    Attach { image: PathBuf },
    /// The file system in the image was mounted.
    Mount { point: PathBuf, image: PathBuf },
    /// Rules for the device of the image were set.
    Caps { image: PathBuf, caps: Vec<Cap> },
    /// A memory group was made.
    MemoryGroup { group: PathBuf, bytes: u64 },
}

/// What a device gave before it was capped.
#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize, Debug)]
pub(super) struct Rates {
    /// Random direct reads of 4 KiB a second.
    pub reads: f64,
    /// Random direct writes of 4 KiB a second.
    pub writes: f64,
    /// Bytes a second of sequential direct reads.
    pub read_bytes: f64,
    /// Bytes a second of sequential direct writes.
    pub written_bytes: f64,
    /// Bytes a second of buffered writes with syncs.
    pub buffered_bytes: f64,
}

/// A tier as it is recorded.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(super) struct TierRecord {
    pub name: String,
    pub profile: String,
    pub point: PathBuf,
    pub image: PathBuf,
    pub device: (u32, u32),
    pub bytes: u64,
    pub uncapped: Rates,
}

/// The whole record.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(super) struct State {
    version: u32,
    /// Whether every step was taken.
    pub complete: bool,
    /// From fast to slow, once they stand.
    pub tiers: Vec<TierRecord>,
    /// In the order in which they were taken.
    pub steps: Vec<Step>,
}

/// Where the record of one rig is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The name of the rig.
    pub name: String,
    directory: PathBuf,
}

impl Place {
    /// The place that the environment names, or the usual one.
    pub(super) fn from_environment() -> Result<Place, String> {
        let name = match std::env::var(NAME_VARIABLE) {
            Ok(name) => name,
            Err(std::env::VarError::NotPresent) => NAME.to_string(),
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(format!("{NAME_VARIABLE} is no plain text"));
            }
        };
        Place::new(&name, Path::new(STATE_DIRECTORY))
    }

    /// The place of the rig `name` in `directory`.
    pub(super) fn new(name: &str, directory: &Path) -> Result<Place, String> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > 40 || !name.chars().all(plain) {
            return Err(format!(
                "{NAME_VARIABLE} is {name:?}, but a rig's name is of small letters, digits and \
                 dashes, at most 40"
            ));
        }
        Ok(Place {
            name: name.to_string(),
            directory: directory.to_path_buf(),
        })
    }

    fn file(&self) -> PathBuf {
        self.directory.join(format!("{}.json", self.name))
    }

    fn lock_file(&self) -> PathBuf {
        self.directory.join(format!("{}.lock", self.name))
    }

    /// Keeps other commands from changing this rig until the lock is dropped.
    pub(super) fn lock(&self) -> Result<Lock> {
        // A program that was started a moment ago has the file open until it is
        // itself, so a lock that was dropped can hold that long.
        for _ in 1..LOCK_TRIES {
            if let Ok(lock) = self.try_lock() {
                return Ok(lock);
            }
            std::thread::sleep(LOCK_WAIT);
        }
        self.try_lock()
    }

    fn try_lock(&self) -> Result<Lock> {
        let busy = || {
            format!(
                "another `tiers` command is at work on the rig {}",
                self.name
            )
        };
        fs::create_dir_all(&self.directory).map_err(at(&self.directory))?;
        let path = self.lock_file();
        let file = File::create(&path).map_err(at(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(busy().into()),
            Err(fs::TryLockError::Error(error)) => return Err(at(&path)(error).into()),
        }
        // The holder before may have deleted the file that is locked now.
        let ours = file.metadata()?.ino();
        match fs::metadata(&path) {
            Ok(there) if there.ino() == ours => Ok(Lock {
                place: self.clone(),
                _file: file,
            }),
            _ => Err(busy().into()),
        }
    }

    /// The record, if there is one.
    pub(super) fn load(&self) -> Result<Option<State>> {
        let path = self.file();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&path)(error).into()),
        };
        let state: State = serde_json::from_slice(&text)
            .map_err(|error| format!("{}: not a record of a rig: {error}", path.display()))?;
        match state.version == VERSION {
            true => Ok(Some(state)),
            false => Err(format!(
                "{}: a record of version {}, this program knows {VERSION}",
                path.display(),
                state.version
            )
            .into()),
        }
    }

    /// Puts the record in place of the one before it, durably.
    fn store(&self, state: &State) -> Result<()> {
        let path = self.file();
        let new = self.directory.join(format!("{}.new", self.name));
        let mut file = File::create(&new).map_err(at(&new))?;
        file.write_all(&serde_json::to_vec_pretty(state)?)?;
        file.sync_all()?;
        fs::rename(&new, &path).map_err(at(&path))?;
        File::open(&self.directory)?.sync_all()?;
        Ok(())
    }

    /// Removes the record.
    fn remove(&self) -> Result<()> {
        let new = self.directory.join(format!("{}.new", self.name));
        drop(fs::remove_file(new));
        Ok(fs::remove_file(self.file()).map_err(at(&self.file()))?)
    }
}

/// A rig that no other command changes meanwhile.
pub(super) struct Lock {
    place: Place,
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Without a rig nothing is left of it. The directory stays if another
        // rig's record lies there.
        if !self.place.file().exists() {
            drop(fs::remove_file(self.place.lock_file()));
            drop(fs::remove_dir(&self.place.directory));
        }
    }
}

/// A record that is being written.
pub(super) struct Journal {
    place: Place,
    state: State,
    /// Lets a test die before it records step number n, or after.
    #[cfg(test)]
    pub dies: Option<(usize, bool)>,
}

impl Journal {
    /// The journal of a rig that goes up.
    pub(super) fn new(place: &Place) -> Result<Journal> {
        let state = State {
            version: VERSION,
            complete: false,
            tiers: Vec::new(),
            steps: Vec::new(),
        };
        place.store(&state)?;
        Ok(Journal {
            place: place.clone(),
            state,
            #[cfg(test)]
            dies: None,
        })
    }

    /// The journal of a rig that goes down.
    pub(super) fn resume(place: &Place, state: State) -> Journal {
        Journal {
            place: place.clone(),
            state,
            #[cfg(test)]
            dies: None,
        }
    }

    /// What is recorded.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Records a step that is about to be taken.
    pub(super) fn begin(&mut self, step: Step) -> Result<()> {
        #[cfg(test)]
        self.die_if_told(false)?;
        self.state.steps.push(step);
        self.place.store(&self.state)?;
        #[cfg(test)]
        self.die_if_told(true)?;
        Ok(())
    }

    #[cfg(test)]
    fn die_if_told(&self, recorded: bool) -> Result<()> {
        let at = self.state.steps.len() - usize::from(recorded);
        match self.dies == Some((at, recorded)) {
            true => Err("told to die".into()),
            false => Ok(()),
        }
    }

    /// Records that all is up.
    pub(super) fn complete(&mut self, tiers: Vec<TierRecord>) -> Result<()> {
        self.state.tiers = tiers;
        self.state.complete = true;
        self.place.store(&self.state)
    }

    /// Records that the rig is no longer whole, before the first step is undone.
    pub(super) fn incomplete(&mut self) -> Result<()> {
        self.state.complete = false;
        self.place.store(&self.state)
    }

    /// Forgets the steps that `undone` names.
    pub(super) fn forget(&mut self, undone: &[Step]) -> Result<()> {
        self.state.steps.retain(|step| !undone.contains(step));
        match self.state.steps.is_empty() {
            true => self.place.remove(),
            false => self.place.store(&self.state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_on_disk_before_it_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new("a-rig", directory.path()).unwrap();
        assert_eq!(place.load().unwrap(), None);
        let mut journal = Journal::new(&place).unwrap();
        let step = Step::Directory("/nowhere".into());
        journal.begin(step.clone()).unwrap();
        let state = place.load().unwrap().unwrap();
        assert_eq!(state.steps, std::slice::from_ref(&step));
        assert!(!state.complete);
        journal.forget(&[step]).unwrap();
        assert_eq!(place.load().unwrap(), None);
    }

    #[test]
    fn two_commands_on_one_rig_are_refused_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new("a-rig", directory.path()).unwrap();
        let lock = place.lock().unwrap();
        let refused = place.lock().err().unwrap().to_string();
        assert!(refused.contains("a-rig"), "{refused}");
        drop(lock);
        assert!(!place.lock_file().exists());
        place.lock().unwrap();
    }

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for name in ["", "..", "a/b", "A", "a b"] {
            assert!(Place::new(name, Path::new("/x")).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_damaged_record_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new("a-rig", directory.path()).unwrap();
        fs::write(place.file(), "{}").unwrap();
        assert!(place.load().unwrap_err().to_string().contains("a-rig.json"));
    }
}
