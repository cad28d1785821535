//! Whose turn it is to ask, and who still waits for an answer.
//!
//! There is one place for a request. Who asks has a file `TUNE.<number>` for as long as it waits,
//! and holds its lock, which the system lets go of when the process dies: so a request that
//! somebody waits for can be told from one that was left behind. The place is filled, and emptied
//! by who asked, only with the lock `TUNE.lock`, which is held for no longer than that takes, so
//! that a process that is stopped while it waits is in nobody's way.

use std::path::{Path, PathBuf};

use super::{ANSWER_FILE, Head, REQUEST_BYTES_MAX, REQUEST_FILE, TAKEN_FILE, read};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Environment, Lock, swap_file};

/// Held by who puts a request into its place.
const TURN_FILE: &str = "TUNE.lock";
/// Digits of a number of a request, in hexadecimal.
const NUMBER_DIGITS: usize = 16;
/// How often another number is drawn, where somebody holds the file of the one before.
const NUMBERS_MAX: usize = 4;

/// Somebody who waits for an answer; no longer once this is dropped.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    environment: &'a Environment,
    directory: &'a Path,
    number: String,
    _lock: Box<dyn Lock>,
}

impl<'a> Waiting<'a> {
    /// With a number that nobody else has.
    pub(super) fn begin(environment: &'a Environment, directory: &'a Path) -> Result<Waiting<'a>> {
        let file_system = &*environment.file_system;
        for _ in 0..NUMBERS_MAX {
            let number = format!("{:016x}", environment.dice.next_u64());
            let path = directory.join(format!("{REQUEST_FILE}.{number}"));
            let fail = |e| Error::io("asking", &path, e);
            let lock = file_system.lock(&path).map_err(fail)?;
            // An opening may have swept it away before it was locked.
            let is_there = file_system.metadata(&path).map_err(fail)?.is_some();
            if let (Some(lock), true) = (lock, is_there) {
                return Ok(Waiting {
                    environment,
                    directory,
                    number,
                    _lock: lock,
                });
            }
        }
        let what = "others have all numbers that were drawn for a request";
        Err(Error::new(ErrorKind::Locked, what).at(directory))
    }

    /// By which the answer is known.
    pub(super) fn number(&self) -> &str {
        &self.number
    }

    /// Puts `text` into its place, unless a request lies there that somebody waits for, or somebody
    /// else is putting one there just now. Whether it did.
    pub(super) fn post(&self, text: &str) -> Result<bool> {
        let (environment, directory) = (self.environment, self.directory);
        let Some(_turn) = turn(environment, directory)? else {
            return Ok(false);
        };
        if is_waited_for(environment, directory) {
            return Ok(false);
        }
        for name in [REQUEST_FILE, ANSWER_FILE] {
            make_way(environment, &directory.join(name))?;
        }
        // The first version answers what it cannot read without a number: such an answer, found
        // later, is then a new one.
        let path = directory.join(ANSWER_FILE);
        let answer = read(environment, &path, super::ANSWER_BYTES_MAX)?;
        let head = answer.and_then(|text| Head::of(&text));
        if head.is_some_and(|head| head.request.is_empty()) {
            let _ = environment.file_system.unlink(&path);
        }
        swap_file(environment, directory, REQUEST_FILE, text.as_bytes())?;
        Ok(true)
    }

    /// Takes the request away again, if nobody has taken it and no other lies there.
    pub(super) fn withdraw(&self) {
        let Ok(Some(_turn)) = turn(self.environment, self.directory) else {
            // It is left behind, then: nobody waits for it.
            return;
        };
        let path = self.directory.join(REQUEST_FILE);
        if number_at(self.environment, &path).is_some_and(|number| number == self.number) {
            let _ = self.environment.file_system.unlink(&path);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(path) = presence(self.directory, &self.number) {
            let _ = self.environment.file_system.unlink(&path);
        }
    }
}

/// The lock of who puts a request into its place; `None` if somebody holds it.
pub(super) fn turn(environment: &Environment, directory: &Path) -> Result<Option<Box<dyn Lock>>> {
    let path = directory.join(TURN_FILE);
    let lock = environment.file_system.lock(&path);
    lock.map_err(|e| Error::io("locking", &path, e))
}

/// The number of the request at `path`.
fn number_at(environment: &Environment, path: &Path) -> Option<String> {
    let text = read(environment, path, REQUEST_BYTES_MAX).ok()??;
    Some(Head::of(&text)?.request)
}

/// The file of who waits for an answer to `number`; `None` for what is no such number.
pub(super) fn presence(directory: &Path, number: &str) -> Option<PathBuf> {
    let name = format!("{REQUEST_FILE}.{number}");
    number_of(&name).is_some().then(|| directory.join(&name))
}

/// The number in the name of such a file.
fn number_of(name: &str) -> Option<&str> {
    let number = name.strip_prefix(REQUEST_FILE)?.strip_prefix('.')?;
    let is_number = number.len() == NUMBER_DIGITS && number.bytes().all(|b| b.is_ascii_hexdigit());
    is_number.then_some(number)
}

/// Whether somebody waits for an answer to `number`, by the file of who asked it; `None` where
/// there is none. Requires: the turn is held, as who looks holds that file's lock for a moment.
fn waits(environment: &Environment, directory: &Path, number: &str) -> Option<bool> {
    let path = presence(directory, number)?;
    let file_system = &*environment.file_system;
    file_system.metadata(&path).ok()??;
    Some(file_system.lock(&path).ok()?.is_none())
}

/// Takes the file away of who asked `number` and was killed. Whether there was one. Requires: the
/// turn is held, and the request lies there no more, as without that file it is one of somebody who
/// never had any.
pub(super) fn bury(environment: &Environment, directory: &Path, number: &str) -> bool {
    let is_dead = waits(environment, directory, number) == Some(false);
    if is_dead && let Some(path) = presence(directory, number) {
        let _ = environment.file_system.unlink(&path);
    }
    is_dead
}

/// Whether somebody waits for an answer to the request that lies in `directory`.
fn is_waited_for(environment: &Environment, directory: &Path) -> bool {
    let number = number_at(environment, &directory.join(REQUEST_FILE));
    number.and_then(|number| waits(environment, directory, &number)) == Some(true)
}

/// Takes away what is at `path` and is no file: nobody can have put it there to ask or to answer.
///
/// # Errors
/// [`ErrorKind::Io`] where it cannot be taken away, as a directory with something in it.
fn make_way(environment: &Environment, path: &Path) -> Result<()> {
    let Err(error) = read(environment, path, 0) else {
        return Ok(());
    };
    let file_system = &*environment.file_system;
    let is_directory = file_system.metadata(path).ok().flatten();
    let gone = match is_directory.is_some_and(|found| found.is_directory) {
        true => file_system.remove_directory(path),
        false => file_system.unlink(path),
    };
    gone.map_err(|_| error)
}

/// Takes away what was asked of who had the store open before, and whatever was left by who asked
/// and does not wait any longer. `names` are those in the directory.
pub(crate) fn sweep<'a>(
    environment: &Environment,
    directory: &Path,
    names: impl Iterator<Item = &'a str>,
) {
    let file_system = &*environment.file_system;
    let names: Vec<_> = names
        .filter(|name| name.starts_with(REQUEST_FILE))
        .collect();
    let is_left = |name: &str| [REQUEST_FILE, TAKEN_FILE].contains(&name);
    if !names.iter().any(|n| is_left(n) || number_of(n).is_some()) {
        return;
    }
    // Whoever holds it puts a request there that is waited for, or has been stopped.
    let _turn = turn(environment, directory);
    for name in names.iter().filter(|name| is_left(name)) {
        if *name != REQUEST_FILE || !is_waited_for(environment, directory) {
            let _ = file_system.unlink(&directory.join(name));
        }
    }
    for number in names.iter().filter_map(|name| number_of(name)) {
        bury(environment, directory, number);
    }
}
