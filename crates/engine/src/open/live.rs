//! Opening for reading only, which takes no lock: another process may be writing.
//!
//! Whoever writes deletes only what the manifest has ceased to name. So whatever an opening misses
//! tells nothing before the manifest has been looked at again. Where it is as it was, the files are
//! to blame. Where it has changed, so may the files have, and all of it is tried anew.

use std::path::Path;

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::store::Environment;
use crate::version::manifest;
use crate::version::pointer::{self, Pointer};

/// Openings that are tried of a store that changes in each of them. One takes as long as the log's
/// entries take to be read, in which a flush or two may end; that each of so many loses the race is
/// a store that has no moment to be read.
const TRIES_MAX: usize = 10;

/// The manifest in force and its size in bytes: what every change of a store changes. None where
/// there is no manifest, or where it was replaced just now.
fn in_force(environment: &Environment, options: &Options) -> Option<(Pointer, u64)> {
    // The caller has not checked them yet.
    let directory = options.tiers.first()?.path();
    let pointer = pointer::current(environment, directory).ok().flatten()?;
    let path = options.path_of(pointer).ok()?;
    let metadata = environment.file_system.metadata(&path).ok().flatten()?;
    Some((pointer, metadata.size_bytes))
}

/// Whether what another process does meanwhile may be the reason of such an error.
fn may_be_of_changes(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound | ErrorKind::Io | ErrorKind::Corruption | ErrorKind::WrongTier
    )
}

/// Calls `open` until it succeeds, or fails while the manifest stays what it was.
///
/// # Errors
/// Those of `open`; [`ErrorKind::Locked`] if the store was changed in each of [`TRIES_MAX`]
/// failures.
pub(super) fn open_while_written<T>(
    options: &Options,
    environment: &Environment,
    mut open: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut found = in_force(environment, options);
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match open() {
            Err(error) if may_be_of_changes(error.kind()) => error,
            done => return done,
        };
        let now = in_force(environment, options);
        if now == found {
            return Err(error);
        }
        if tries == TRIES_MAX {
            let what = format!(
                "another process changed the store in each of {TRIES_MAX} tries to open it for reading; the last one found: {error}"
            );
            let directory = options.tiers.first().map(|tier| tier.path());
            return Err(Error::new(ErrorKind::Locked, what).at(directory.unwrap_or(Path::new(""))));
        }
        found = now;
    }
}

impl Engine {
    /// Requires that the log's floor is still `floor`, after segments from there on were found
    /// missing: else they were deleted once their entries were in tables, which this opening knows
    /// nothing of.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; those of reading the manifest.
    pub(super) fn check_not_trimmed(&self, floor: u64) -> Result<()> {
        let current = pointer::current(&self.environment, &self.directory())?;
        let found = match current {
            Some(pointer) => {
                let directory = self.options.directory_of(pointer)?;
                let read = manifest::read(&self.environment, directory, pointer.number)?;
                read.version.log_floor
            }
            None => 0,
        };
        if found == floor {
            return Ok(());
        }
        let what = "log segments that another process has deleted meanwhile";
        Err(Error::new(ErrorKind::NotFound, what)
            .at(&self.log_directory())
            .expected(format!("a log from segment {floor} on"), found))
    }
}
