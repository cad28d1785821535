//! The mark of a repair that is under way, so that the next one can undo what a
//! repair that was cut short left.
//!
//! A repair writes tables before the manifest that names them. Cut short between
//! the two, it would leave the next one tables that nobody can tell from the
//! store's own where the manifest is lost: they would be merged into keyspaces
//! that they are not of, and a half-written manifest would hide the last good one.
//! So the first number that a repair gives is written down, durably, before it is
//! given. What carries it or a higher one goes, if the store is still as it was
//! then, but for that: the pointer and the manifests before are the same.

use std::io;
use std::path::Path;

use super::{Repair, manifests};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::store::{Environment, ObjectName, OpenHow, is_given_id, read_exact_at, replace_file};
use crate::verify::home;
use crate::version::pointer::{self, CURRENT, Pointer};
use crate::version::remains::remains;

/// The mark's file, in the first tier.
const NAME: &str = "REPAIR";
/// More than any mark or pointer has.
const SMALL_BYTES: usize = 256;
/// How far the next repair goes beyond the numbers of one that was cut short: as
/// an opening does, since names may be lost whose blocks come up again.
pub(super) const NUMBERS_SKIPPED: u64 = 1000;

impl Repair<'_> {
    /// Says, durably, that numbers from the next one on are a repair's.
    pub(super) fn mark(&mut self) -> Result<()> {
        self.first_new_id = self.next_id;
        let state = state(self.options, self.environment, self.first_new_id)?;
        let text = text(self.first_new_id, state);
        replace_file(self.environment, self.directory(), NAME, text.as_bytes())
    }
}

/// Takes the mark away. `Requires:` what the repair wrote is in force.
pub(super) fn unmark(environment: &Environment, directory: &Path) -> Result<()> {
    let path = directory.join(NAME);
    let fs = &environment.file_system;
    let removed = match fs.unlink(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs.sync_directory(directory),
    };
    removed.map_err(|e| Error::io("removing the mark of a repair", &path, e))
}

/// Undoes what a repair that was cut short left. Gives the lowest number that may
/// be used now; 0 where there was no such repair.
pub(super) fn undo(options: &Options, environment: &Environment) -> Result<u64> {
    let directory = options.tiers[0].path();
    let Some(first) = read_mark(options, environment)? else {
        return Ok(0);
    };
    let mut highest = first;
    let mut manifests = manifests(options, environment)?;
    manifests.retain(|m| m.number >= first && is_given_id(m.number));
    // Without a pointer that is as it was, a whole manifest may be in force.
    let pointed = pointer::current(environment, directory).is_ok_and(|pointer| pointer.is_some());
    let whole = |&manifest: &Pointer| {
        let directory = options.directory_of(manifest);
        let remains = directory.and_then(|d| remains(environment, d, manifest.number));
        remains.is_ok_and(|remains| remains.version.is_some())
    };
    if !pointed && manifests.iter().any(whole) {
        unmark(environment, directory)?;
        return Ok(0);
    }
    let home = home(options, environment);
    for store in &home.stores {
        for (name, _) in store.list()? {
            let ObjectName { id, .. } = name;
            if id >= first && is_given_id(id) {
                highest = highest.max(id);
                store.delete(name)?;
            }
        }
    }
    for manifest in manifests {
        highest = highest.max(manifest.number);
        let path = options.path_of(manifest)?;
        let unlinked = environment.file_system.unlink(&path);
        unlinked.map_err(|e| Error::io("removing", &path, e))?;
    }
    for tier in &options.tiers {
        let path = tier.path();
        let synced = environment.file_system.sync_directory(path);
        synced.map_err(|e| Error::io("persisting directory", path, e))?;
    }
    Ok(highest + 1 + NUMBERS_SKIPPED)
}

/// The first number of the repair that was cut short, if there was one and the
/// store is as it left it.
fn read_mark(options: &Options, environment: &Environment) -> Result<Option<u64>> {
    let directory = options.tiers[0].path();
    let Some(bytes) = small_file(environment, &directory.join(NAME))? else {
        return Ok(None);
    };
    let mut words = str::from_utf8(&bytes).unwrap_or_default().split(' ');
    let first = words.next().and_then(|word| word.parse().ok());
    let stated = words
        .next()
        .and_then(|word| u32::from_str_radix(word, 16).ok());
    let (Some(first), Some(stated)) = (first, stated) else {
        return Ok(None);
    };
    let is_mark = is_given_id(first) && text(first, stated).as_bytes() == bytes;
    let same = is_mark && state(options, environment, first)? == stated;
    Ok(same.then_some(first))
}

fn text(first: u64, state: u32) -> String {
    let words = format!("{first} {state:08x}");
    format!("{words} {:08x}\n", crc32c::crc32c(words.as_bytes()))
}

/// A checksum of the pointer and of the numbers of the manifests below `first`, on
/// whatever tier.
fn state(options: &Options, environment: &Environment, first: u64) -> Result<u32> {
    let directory = options.tiers[0].path();
    let pointer = small_file(environment, &directory.join(CURRENT))?;
    let mut words = match pointer {
        Some(bytes) => [b"is ", &bytes[..]].concat(),
        None => b"none".to_vec(),
    };
    for manifest in manifests(options, environment)? {
        if manifest.number < first {
            words.extend_from_slice(&manifest.number.to_le_bytes());
        }
    }
    Ok(crc32c::crc32c(&words))
}

/// The first bytes of a file that should have few; none if it is not there.
fn small_file(environment: &Environment, path: &Path) -> Result<Option<Vec<u8>>> {
    let failed = |e| Error::io("reading", path, e);
    let file = match environment.file_system.open(path, OpenHow::READ) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = vec![0; SMALL_BYTES];
    let length = read_exact_at(&*file, &mut bytes, 0).map_err(failed)?;
    bytes.truncate(length);
    Ok(Some(bytes))
}
