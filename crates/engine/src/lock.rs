//! Locks: one process at a time.
//!
//! Every tier directory has a file `LOCK`, locked by whoever has the store open
//! for writing. Opening for reading only takes no lock, so that a store on a
//! read-only medium can be read; who wants to read a store that stays still
//! takes a [`StoreLock`] first. Such a reader is soon done, so whoever opens a
//! store asks again for a moment before it calls it locked.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::options::{Options, Tier};
use crate::store::{Environment, Lock};

pub(crate) const LOCK_FILE: &str = "LOCK";

/// How often a lock is asked for again, and how long is slept before: half a second in all.
const ASKS: u32 = 250;
const PAUSE: Duration = Duration::from_millis(2);

/// How often a lock that somebody has may still be asked for again.
#[derive(Debug)]
pub(crate) struct Patience(u32);

impl Patience {
    /// To be told at once.
    pub(crate) fn none() -> Patience {
        Patience(0)
    }

    /// As long as somebody who only looks may take.
    pub(crate) fn of_a_moment() -> Patience {
        Patience(ASKS)
    }
}

/// Keeps every other process from opening a store for writing, and other
/// holders of such a lock from getting it, until it is dropped.
///
/// ```
/// use thermocline::{Db, ErrorKind, Options, StoreLock};
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::at(directory.path());
/// let db = Db::open(options.clone())?;
/// assert_eq!(StoreLock::take(&options).unwrap_err().kind(), ErrorKind::Locked);
/// drop(db);
/// let lock = StoreLock::take(&options)?;
/// assert_eq!(Db::open(options.clone()).unwrap_err().kind(), ErrorKind::Locked);
/// assert!(Db::open(options.read_only(true)).is_ok());
/// # drop(lock);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Debug)]
pub struct StoreLock {
    _locks: Vec<Box<dyn Lock>>,
}

impl StoreLock {
    /// Locks every tier directory that has a lock file already: one without
    /// was never opened as a tier.
    ///
    /// ```
    /// use thermocline::{Options, StoreLock, Db, ErrorKind};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// Db::open(options.clone())?.put(b"key", b"value")?;
    /// let lock = StoreLock::take(&options)?; // The files stay as they are now.
    /// assert_eq!(StoreLock::take(&options).unwrap_err().kind(), ErrorKind::Locked);
    /// drop(lock);
    /// assert!(Db::open(options).is_ok());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Locked`] when the store is open, and still is half a second later;
    /// [`ErrorKind::InvalidArgument`] when the paths of two tiers lead to one directory;
    /// [`ErrorKind::Io`].
    pub fn take(options: &Options) -> Result<StoreLock> {
        StoreLock::take_in(options, &Environment::real(), &mut Patience::of_a_moment())
    }

    pub(crate) fn take_in(
        options: &Options,
        environment: &Environment,
        patience: &mut Patience,
    ) -> Result<StoreLock> {
        let mut locks = Vec::new();
        for tier in &options.tiers {
            let lock = lock_if_there(environment, tier.path(), patience);
            locks.extend(lock.map_err(|e| who_locked(e, &options.tiers, environment))?);
        }
        Ok(StoreLock { _locks: locks })
    }
}

/// What to say of `error`, met when the directories of `tiers` were locked in turn: two paths may
/// lead to one directory, and then nobody else has it open.
pub(crate) fn who_locked(error: Error, tiers: &[Tier], environment: &Environment) -> Error {
    if error.kind() != ErrorKind::Locked {
        return error;
    }
    let mut known = Vec::new();
    for tier in tiers {
        let found = environment.file_system.metadata(tier.path());
        let Some(identity) = found.ok().flatten().and_then(|found| found.identity) else {
            continue;
        };
        if let Some((_, other)) = known.iter().find(|(known, _)| *known == identity) {
            let what = format!("tiers {other:?} and {:?} have one directory", tier.name());
            return Error::invalid(what).at(tier.path());
        }
        known.push((identity, tier.name()));
    }
    error
}

/// Locks one tier directory if it has a lock file.
pub(crate) fn lock_if_there(
    environment: &Environment,
    directory: &Path,
    patience: &mut Patience,
) -> Result<Option<Box<dyn Lock>>> {
    let path = directory.join(LOCK_FILE);
    match environment.file_system.metadata(&path) {
        Ok(Some(_)) => lock(environment, directory, patience).map(Some),
        Ok(None) => Ok(None),
        // What is no directory has no lock file.
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(e) => Err(Error::io("looking for lock file", &path, e)),
    }
}

/// Locks one tier directory, making its lock file if there is none.
pub(crate) fn lock(
    environment: &Environment,
    directory: &Path,
    patience: &mut Patience,
) -> Result<Box<dyn Lock>> {
    let path = directory.join(LOCK_FILE);
    loop {
        let lock = environment.file_system.lock(&path);
        if let Some(lock) = lock.map_err(|e| Error::io("locking", &path, e))? {
            return Ok(lock);
        }
        let Some(left) = patience.0.checked_sub(1) else {
            let what = "another process, or another handle in this one, has it open";
            return Err(Error::new(ErrorKind::Locked, what).at(&path));
        };
        patience.0 = left;
        environment.clock.sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::Db;

    #[test]
    fn an_opening_waits_for_somebody_who_looks_and_names_who_stays() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::at(directory.path());
        drop(Db::open(options.clone()).unwrap());

        let looking = StoreLock::take(&options).unwrap();
        let opened = thread::scope(|scope| {
            let opening = scope.spawn(|| Db::open(options.clone()));
            thread::sleep(10 * PAUSE);
            drop(looking);
            opening.join().unwrap()
        });
        let db = opened.unwrap();
        let refused = Db::open(options.clone()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Locked);
        drop(db);
    }
}
