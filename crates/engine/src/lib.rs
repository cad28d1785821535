//! Thermocline: an embedded LSM key-value store over any number of storage tiers.
//!
//! Begin at [`Db`] and [`Options`]. Every call has an example; all of them run.
//!
//! ```
//! use thermocline::{Db, Options, Tier};
//! # let directory = tempfile::tempdir().unwrap();
//! # let (fast, cheap) = (directory.path().join("fast"), directory.path().join("cheap"));
//! let db = Db::open(
//!     Options::new()
//!         .tier(Tier::new("nvme", fast).capacity_bytes(20_000_000_000))
//!         .tier(Tier::new("hdd", cheap)),
//! )?;
//! db.put(b"planet", b"earth")?;
//! assert_eq!(db.get(b"planet")?.as_deref(), Some(&b"earth"[..]));
//! # Ok::<(), thermocline::Error>(())
//! ```
//!
//! The public modules are the parts the store is made of. They are open for
//! simulation and measurement, and change with the store; [`store::Environment`]
//! is the seam through which a test replaces files, time and chance.

mod batch;
mod bulk;
pub mod cache;
mod capacity;
mod checkpoint;
mod compact;
mod control;
mod db;
mod dump;
mod engine;
mod error;
mod events;
mod explain;
mod footprint;
mod heat;
mod job;
mod keyspace;
mod lend;
mod lock;
pub mod log;
mod lookup;
pub mod memory;
mod merge;
mod open;
mod options;
mod pages;
mod place;
mod publish;
mod pulse;
mod read;
mod recut;
mod repair;
mod report;
mod scan;
mod seal;
mod slice;
mod snapshot;
mod stats;
mod step;
pub mod store;
mod sync;
pub mod table;
mod trim;
mod tune;
mod verify;
mod version;
mod waits;
mod watch;
mod what_if;
mod write;

pub use batch::{BATCH_BYTES_MAX, WriteBatch};
pub use bulk::BulkLoad;
pub use db::Db;
pub use dump::{DumpOptions, dump, dump_in};
pub use error::{Error, ErrorKind, Result};
pub use events::{EVENT_JOBS, Event, EventReader, PlacedTable};
pub use explain::{Explanation, Place, RangeExplanation, TablePlace, explain, explain_range};
pub use footprint::MemoryBytes;
pub use keyspace::{Keyspace, KeyspaceOptions};
pub use lock::StoreLock;
pub use open::DEFAULT_KEYSPACE;
pub use options::{Durability, LookupIndex, OPTIONS_FILE, Options, Tier};
pub use pulse::{PartsPulse, Pulse, TierPulse, pulse};
pub use repair::{LostRange, LostTable, RepairReport, repair, repair_in, repair_with};
pub use scan::{Entries, Iter};
pub use slice::Slice;
pub use snapshot::Snapshot;
pub use stats::{
    CostStats, KeyspaceStats, LevelStats, LookupStats, MemoryStats, PartStats, RangeIndexStats,
    Recovery, StalledFor, Stats, TableInfo, TierStats, human_bytes, stats, tables,
};
/// ```
/// # use thermocline::{Db, Forecast, Options, WhatIf};
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = Db::open(Options::at(directory.path()))?;
/// let forecast: Forecast = db.forecast(&WhatIf::nothing_changes())?;
/// assert_eq!(forecast.before, forecast.after);
/// assert_eq!(forecast.fast_shares(), None); // Nothing is read.
/// # Ok::<(), thermocline::Error>(())
/// ```
pub use thermocline_model::forecast::{Forecast, ForecastMove, ForecastState};
/// ```
/// # use thermocline::{KEY_BYTES_MAX, VALUE_BYTES_MAX, WriteBatch};
/// let mut batch = WriteBatch::new();
/// assert!(batch.put(&[0; KEY_BYTES_MAX], b"").is_ok());
/// assert!(batch.put(&[0; KEY_BYTES_MAX + 1], b"").is_err());
/// assert_eq!(VALUE_BYTES_MAX, 512 << 20);
/// ```
pub use thermocline_model::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
/// ```
/// # use thermocline::{Compression, Options};
/// // In an options file it is a word.
/// let text = "[[tier]]\nname = 'hdd'\npath = '/mnt/hdd'\ncompression = 'zstd'\n";
/// let kept = Options::from_toml(text)?.to_toml();
/// assert!(kept.contains(r#"compression = "zstd""#));
/// # Ok::<(), thermocline::Error>(())
/// ```
pub use thermocline_model::table::Compression;
/// ```
/// # use thermocline::DeviceProfile;
/// // A spinning disk, as `thermocline calibrate` may find it.
/// let disk = DeviceProfile { random_read_iops: 150.0, sequential_mb_s: 180.0 };
/// let block_mb_s = disk.random_read_iops * 4096.0 / 1e6;
/// assert!(block_mb_s < disk.sequential_mb_s / 100.0); // Seeks cost that much.
/// ```
pub use thermocline_model::tier::DeviceProfile;
/// ```
/// # use thermocline::{Options, PartTriggers};
/// // In an options file it is a table.
/// let text = "[part_triggers]\nprocessor_waits_ms = 1000\n";
/// let options = Options::from_toml(text)?;
/// let triggers = PartTriggers { processor_waits_ms: 1000, ..PartTriggers::default() };
/// assert_eq!(options, Options::new().part_triggers(triggers));
/// # Ok::<(), thermocline::Error>(())
/// ```
pub use thermocline_model::triggers::PartTriggers;
/// ```
/// # use thermocline::{Options, RecutTriggers};
/// // In an options file it is a table.
/// let text = "[recut_triggers]\nduplicate_shares = 3.0\n";
/// let options = Options::from_toml(text)?;
/// let triggers = RecutTriggers { duplicate_shares: 3.0, ..RecutTriggers::default() };
/// assert_eq!(options, Options::new().recut_triggers(triggers));
/// # Ok::<(), thermocline::Error>(())
/// ```
pub use thermocline_model::triggers::RecutTriggers;
/// The cost model: what a store can do, from what its devices can do.
///
/// ```
/// use thermocline::cost_model::published::{HDD, NVME};
/// use thermocline::cost_model::{Access, Limit, Model, ModelTier};
/// let tier = |profile, levels| ModelTier { profile, data_share: 0.5, levels, probes: 1 };
/// let prediction = Model {
///     tiers: vec![tier(NVME, 2), tier(HDD, 1)],
///     memory_share: 0.02,
///     records: 1_000_000,
///     record_bytes: 1024.0,
///     growth: 10.0,
///     access: Access::Zipfian { skew: 0.99 },
///     reads: 1.0,
/// }
/// .predict()?;
/// // Skew keeps the disk out of 19 reads of 20, and still the disk is what limits.
/// assert!(prediction.operations_per_second > 19.0 * HDD.random_read_iops);
/// assert_eq!(prediction.limit, Limit::Reads(1));
/// # Ok::<(), thermocline::cost_model::ModelError>(())
/// ```
pub use thermocline_policy::cost::model as cost_model;
/// ```
/// // Every preset can be named in the options.
/// for preset in thermocline::presets() {
///     let options = thermocline::Options::at("/x").preset(preset.name);
///     assert!(options.to_toml().contains(preset.name));
/// }
/// ```
pub use thermocline_policy::{PresetEntry, presets};
pub use tune::{Tuned, tune};
pub use verify::{Phase, Problem, Progress, VerifyReport, verify, verify_in, verify_with};
pub use what_if::{WhatIf, forecast};
pub use write::WriteOptions;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
