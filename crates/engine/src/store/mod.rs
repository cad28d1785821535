//! Where bytes lie: the file system seam, objects on a device directory, tier
//! identities and I/O budgets.
//!
//! Everything above reaches a device through [`FileSystem`] and time and chance
//! through [`Environment`], never directly, so that a simulation can stand in
//! for all of it and the order of syncs and renames is itself under test.
//!
//! Invariants kept here: an object is named by its caller only after
//! [`ObjectWriter::persist`] (I2); a failed persist is final (I5); a directory
//! that is not the expected tier is refused (I7).
//!
//! ```
//! # let directory = tempfile::tempdir().unwrap();
//! use thermocline::store::{Environment, LocalStore, LocalStoreOptions, Store};
//! use thermocline::store::{ObjectKind, ObjectName};
//! let options = LocalStoreOptions::default();
//! let store = LocalStore::open(&Environment::real(), directory.path(), options)?;
//! let name = ObjectName { id: 7, kind: ObjectKind::Data };
//! let mut object = store.create(name)?;
//! object.append(b"written once, from front to back")?;
//! object.persist()?; // Only now may anything name it.
//! let mut bytes = [0; 7];
//! store.open(name)?.read_at(0, &mut bytes)?;
//! assert_eq!(&bytes, b"written");
//! # Ok::<(), thermocline::Error>(())
//! ```

mod budget;
mod buffer;
mod direct;
mod environment;
mod file_system;
mod identity;
mod local;
#[cfg(target_os = "linux")]
mod mapped;
mod object;
mod readers;
mod real;
#[cfg(target_os = "linux")]
mod turns;
mod written;

pub use crate::pages::mapped_bytes;
pub use budget::IoBudget;
pub use buffer::Buffer;
pub(crate) use direct::SCRATCH_BYTES_MAX;
#[cfg(test)]
pub(crate) use environment::Sleeper;
pub use environment::{Clock, Dice, Environment};
pub use file_system::{
    Access, Advice, Create, DirectoryEntry, File, FileSystem, Lock, Mapped, Metadata, OpenHow,
    Space, read_exact_at, write_all_at,
};
pub(crate) use identity::MAGIC as TIER_MAGIC;
pub use identity::{TIER_FILE_NAME, TierIdentity};
pub(crate) use local::WRITE_BUFFER_BYTES;
pub use local::{LocalStore, LocalStoreOptions};
pub use object::{ObjectKind, ObjectName, ObjectReader, ObjectWriter, Store, StoreState};
pub(crate) use object::{is_given_id, parse_id};
pub use readers::{IN_FLIGHT_BYTES_MAX, PendingRead, Readers, WAITING_MAX};
pub use real::RealFileSystem;

use std::path::Path;

use crate::error::{Error, Result};

/// Makes `path` and the directories above it where they do not exist, and
/// makes their names durable: also those of an earlier attempt that died before
/// it could.
pub(crate) fn create_directory(environment: &Environment, path: &Path) -> Result<()> {
    let file_system = &*environment.file_system;
    let fail = |error| Error::io("creating directory", path, error);
    let mut missing = file_system.metadata(path).map_err(fail)?.is_none();
    let mut above = Vec::new();
    for directory in path.ancestors().skip(1) {
        // The directory above a relative path's first part.
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        above.push((directory, missing));
        missing = missing && file_system.metadata(directory).map_err(fail)?.is_none();
    }
    file_system.create_directory(path).map_err(fail)?;
    for (directory, must) in above.into_iter().rev() {
        let synced = file_system.sync_directory(directory);
        // What was there before may be somebody else's and closed to us.
        if must && let Err(error) = synced {
            return Err(Error::io("persisting directory", directory, error));
        }
    }
    Ok(())
}

/// Swaps the small file `name` of `directory` for one that holds `bytes`. A
/// power failure leaves the old one or the new one, whole. The directory is not
/// synced: a sync that failed would take names with it that others count on.
pub(crate) fn swap_file(
    environment: &Environment,
    directory: &Path,
    name: &str,
    bytes: &[u8],
) -> Result<()> {
    let path = directory.join(name);
    let temporary = directory.join(format!("{name}.new"));
    identity::swap(&*environment.file_system, &temporary, &path, bytes)
        .map_err(|error| Error::io("replacing file", &path, error))
}

/// Replaces the small file `name` of `directory` by one that holds `bytes`:
/// durable on return; after an error the old or the new one stands, whole. A
/// file that holds them already is left alone.
pub(crate) fn replace_file(
    environment: &Environment,
    directory: &Path,
    name: &str,
    bytes: &[u8],
) -> Result<()> {
    let file_system = &*environment.file_system;
    let path = directory.join(name);
    if let Ok(file) = file_system.open(&path, OpenHow::READ) {
        let mut found = vec![0; bytes.len() + 1];
        if let Ok(length) = read_exact_at(&*file, &mut found, 0)
            && found[..length] == *bytes
        {
            return Ok(());
        }
    }
    let temporary = directory.join(format!("{name}.new"));
    identity::replace(file_system, directory, &temporary, &path, bytes)
        .map_err(|error| Error::io("replacing file", &path, error))
}
