//! Thermocline: an embedded LSM key-value store over any number of storage tiers.

mod batch;
mod bulk;
pub mod cache;
mod checkpoint;
mod compact;
mod db;
mod dump;
mod engine;
mod error;
mod explain;
mod footprint;
mod job;
mod lock;
pub mod log;
pub mod memory;
mod merge;
mod open;
mod options;
mod read;
mod repair;
mod report;
mod scan;
mod slice;
mod stats;
mod step;
pub mod store;
pub mod table;
mod verify;
mod version;
mod write;

pub use batch::{BATCH_BYTES_MAX, WriteBatch};
pub use bulk::BulkLoad;
pub use db::{Db, Keyspace, KeyspaceOptions, Snapshot};
pub use dump::{DumpOptions, dump};
pub use error::{Error, ErrorKind, Result};
pub use explain::{Explanation, Place};
pub use footprint::MemoryBytes;
pub use lock::StoreLock;
pub use open::DEFAULT_KEYSPACE;
pub use options::{Durability, OPTIONS_FILE, Options, Tier};
pub use repair::{LostRange, LostTable, RepairReport, repair};
pub use scan::{Entries, Iter};
pub use slice::Slice;
pub use stats::{
    Event, KeyspaceStats, LevelStats, MemoryStats, Recovery, Stats, TableInfo, TierStats,
};
pub use thermocline_model::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use thermocline_model::table::Compression;
pub use thermocline_model::tier::DeviceProfile;
pub use verify::{Problem, VerifyReport, verify};
pub use write::WriteOptions;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
