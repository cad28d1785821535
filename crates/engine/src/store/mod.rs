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

mod budget;
mod environment;
mod file_system;
mod identity;
mod local;
#[cfg(target_os = "linux")]
mod mapped;
mod object;
mod real;

pub use budget::IoBudget;
pub use environment::{Clock, Dice, Environment};
pub use file_system::{
    Access, Advice, Create, DirectoryEntry, File, FileSystem, Lock, Mapped, Metadata, OpenHow,
    Space, read_exact_at, write_all_at,
};
pub use identity::{TIER_FILE_NAME, TierIdentity};
pub use local::{LocalStore, LocalStoreOptions};
pub(crate) use object::parse_id;
pub use object::{ObjectKind, ObjectName, ObjectReader, ObjectWriter, Store, StoreState};
pub use real::RealFileSystem;
