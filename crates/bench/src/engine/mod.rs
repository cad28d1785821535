//! The engines under comparison, behind one small trait.
//!
//! The trait has generic methods and associated types instead of being
//! object-safe: the loops of `workload` are compiled once for each engine, so
//! that no virtual call stands between the driver and what it measures. Each
//! engine is one file. Peers are called through a few declarations of their own
//! C interface, each under the cargo feature of its name.
//!
//! Every engine gets the same means: the same total of write buffers, the same
//! block cache, filters of the same bits, the same number of background threads
//! where it can be set, no compression unless one is asked for, a log that is written
//! and not synced.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

#[cfg(feature = "fjall")]
pub(crate) mod fjall;
#[cfg(any(feature = "rocksdb", feature = "leveldb"))]
mod foreign;
#[cfg(feature = "leveldb")]
pub(crate) mod leveldb;
pub(crate) mod null;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocksdb;
#[cfg(feature = "thermocline")]
pub(crate) mod thermocline;

/// What a call on an engine gives. The benchmark only reports errors, so their
/// kind does not matter.
pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// An engine whose merges are not done after this long has failed: LevelDB, for
/// one, stops merging for good after an I/O error that it tells nobody of.
#[cfg(any(feature = "rocksdb", feature = "leveldb", feature = "fjall"))]
const SETTLE_MAX: Duration = Duration::from_secs(1800);

/// A directory that an engine may fill.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Home {
    /// The name of its tier.
    pub name: String,
    /// An existing, empty directory.
    pub path: PathBuf,
    /// Bytes of tables that may lie there; as many as fit, if none.
    pub capacity_bytes: Option<u64>,
    /// USD per 10^9 bytes and month.
    pub price_usd_gb_month: f64,
    /// Random reads a second and MB/s of reading, where the device is known.
    pub profile: Option<[f64; 2]>,
}

impl Home {
    /// The directory `path`, of which nothing is known.
    pub(crate) fn plain(path: PathBuf) -> Home {
        Home {
            name: "main".to_string(),
            path,
            capacity_bytes: None,
            price_usd_gb_month: 0.0,
            profile: None,
        }
    }
}

/// How blocks of tables are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Compression {
    #[default]
    None,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    /// In words, for rules and errors.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Compression::None => "no compression",
            Compression::Snappy => "snappy compression",
            Compression::Lz4 => "lz4 compression",
            Compression::Zstd => "zstd compression",
        }
    }

    /// That `engine` has no such compression.
    #[cfg(any(feature = "thermocline", feature = "leveldb", feature = "fjall"))]
    fn refused<T>(self, engine: &str) -> Result<T> {
        Err(format!("{engine} has no {}", self.words()).into())
    }
}

/// What every engine is given.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct EngineOptions {
    /// Memory of all write buffers together.
    pub write_buffer_bytes: usize,
    /// Memory of the cache of uncompressed blocks.
    pub block_cache_bytes: usize,
    /// Bits of Bloom filter for each key.
    pub filter_bits_per_key: u32,
    /// Threads that flush and merge.
    pub background_threads: u32,
    /// How many entries the store will hold; only [`null`] asks.
    pub entries: u64,
    /// Whether to read tables past the page cache, where the engine can.
    pub direct_reads: bool,
    /// Whether RocksDB's writers wait while its faster paths hold more than they may;
    /// others do not ask, as they have capacities.
    #[serde(default)]
    pub held: bool,
    /// Whether each write is on its device before it is acknowledged.
    pub synced: bool,
    /// The same for tables of all levels and tiers. One that an engine does not have
    /// is an error.
    #[serde(default)]
    pub compression: Compression,
    /// Which of Thermocline's presets, if not its default; others do not ask.
    pub preset: Option<String>,
    /// Thermocline's further options, as a TOML file; others do not ask.
    pub options_file: Option<PathBuf>,
}

/// An open store of one engine.
pub(crate) trait Engine: Sync + Sized {
    /// Whether answers are real, so that the driver may check them.
    const CHECKED: bool = true;

    /// A place in the ordered entries.
    type Cursor<'a>: Cursor
    where
        Self: 'a;

    /// A load of ascending keys under way.
    type Load<'a>: Load
    where
        Self: 'a;

    /// Opens a store in `homes`, from fast to slow, at least one. An engine that
    /// fills one directory alone refuses more.
    fn open(homes: &[Home], options: &EngineOptions) -> Result<Self>;

    /// Writes one entry; logged, not synced.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes one entry; logged, not synced.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Shows the value of `key` to `see`; says whether there is one.
    fn get(&self, key: &[u8], see: impl FnMut(&[u8])) -> Result<bool>;

    /// Shows the value of each key that has one to `see`, in the fastest way
    /// that the engine offers; says how many there were.
    fn multi_get(&self, keys: &[&[u8]], see: impl FnMut(&[u8])) -> Result<usize>;

    /// A new cursor, at no entry yet.
    fn cursor(&self) -> Result<Self::Cursor<'_>>;

    /// Begins to load entries in ascending order, in the fastest way that the
    /// engine offers. Loads of disjoint ranges may run at the same time.
    fn bulk_load(&self) -> Result<Self::Load<'_>>;

    /// Writes the memtables to tables, then returns when no merge is wanted.
    /// Ensures: the answer is the last part of the wait, in which nothing was
    /// left to do and the engine was only watched.
    fn settle(&self) -> Result<Duration>;

    /// What the engine has counted since it was opened: merges by kind and the
    /// like, with the engine's own names.
    fn counted(&self) -> Result<Vec<Counted>>;

    /// How many tables the store has, if the engine says so.
    fn tables(&self) -> Option<u64> {
        None
    }

    /// The most memory that the engine says it may hold now, in bytes, if it says
    /// so.
    fn memory_bytes_max(&self) -> Option<u64> {
        None
    }
}

/// What an engine counted under `name`, if it counts that.
pub(crate) fn count(all: &[Counted], name: &str) -> Option<u64> {
    let found = all.iter().find(|counted| counted.name == name);
    found.map(|counted| counted.count)
}

/// `after` less what was counted `before` under the same name.
pub(crate) fn counted_since(before: &[Counted], mut after: Vec<Counted>) -> Vec<Counted> {
    for counted in &mut after {
        let old = count(before, &counted.name);
        counted.count = counted.count.saturating_sub(old.unwrap_or(0));
    }
    after
}

/// Seconds that each of so many writers was slowed or stopped on average, by what the engine
/// counted; none where it does not say. Thermocline's writers sleep each for itself, and their sum
/// is counted; all of RocksDB's stand behind the one that leads, whose time is counted.
pub(crate) fn writer_stalled_seconds(counted: &[Counted], writers: u32) -> Option<f64> {
    match count(counted, "stall us") {
        Some(sum) => Some(sum as f64 / 1e6 / f64::from(writers.max(1))),
        None => Some(count(counted, "stalled us")? as f64 / 1e6),
    }
}

/// A number that an engine keeps of itself.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(crate) struct Counted {
    /// Its name.
    pub name: String,
    /// Its value.
    pub count: u64,
}

impl Counted {
    #[cfg(any(
        feature = "thermocline",
        feature = "rocksdb",
        feature = "leveldb",
        feature = "fjall",
        test
    ))]
    pub(crate) fn new(name: impl Into<String>, count: u64) -> Counted {
        Counted {
            name: name.into(),
            count,
        }
    }
}

/// The only home, for an engine that fills one directory.
#[cfg(any(feature = "leveldb", feature = "fjall"))]
fn only<'a>(homes: &'a [Home], engine: &str) -> Result<&'a Home> {
    match homes {
        [home] => Ok(home),
        _ => Err(format!("{engine} fills one directory, not {}", homes.len()).into()),
    }
}

/// A place in the ordered entries of a store.
pub(crate) trait Cursor {
    /// To the first entry whose key is `key` or more.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// To the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// To the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// To the entry after this one. Requires: valid.
    fn next(&mut self) -> Result<()>;
    /// To the entry before this one. Requires: valid.
    fn prev(&mut self) -> Result<()>;
    /// Whether the cursor is at an entry.
    fn valid(&self) -> bool;
    /// The key. Requires: valid.
    fn key(&self) -> &[u8];
    /// The value. Requires: valid.
    fn value(&self) -> &[u8];
    /// The error that ended the walk, if one did.
    fn status(&self) -> Result<()>;
}

/// A load of ascending keys.
pub(crate) trait Load {
    /// Adds an entry. Requires: `key` is above every key added before.
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Makes all that was added readable.
    fn finish(self) -> Result<()>;
}

/// The engines by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EngineKind {
    /// Thermocline.
    Thermocline,
    /// RocksDB, as Debian packages it.
    Rocksdb,
    /// LevelDB, as Debian packages it.
    Leveldb,
    /// fjall, from its crate.
    Fjall,
    /// An engine that does nothing: the driver's own cost.
    Null,
}

impl EngineKind {
    /// Every engine, in the order of the report.
    pub(crate) const ALL: [EngineKind; 5] = [
        EngineKind::Thermocline,
        EngineKind::Rocksdb,
        EngineKind::Leveldb,
        EngineKind::Fjall,
        EngineKind::Null,
    ];

    /// The name used in options and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EngineKind::Thermocline => "thermocline",
            EngineKind::Rocksdb => "rocksdb",
            EngineKind::Leveldb => "leveldb",
            EngineKind::Fjall => "fjall",
            EngineKind::Null => "null",
        }
    }

    /// Why this build cannot run the engine, in words, or `None` if it can.
    pub(crate) fn missing(self) -> Option<&'static str> {
        match self {
            EngineKind::Thermocline if !cfg!(feature = "thermocline") => {
                Some("thermocline is not in this build: build with `--features thermocline`")
            }
            EngineKind::Rocksdb if !cfg!(feature = "rocksdb") => Some(
                "rocksdb is not in this build: install the library (Debian: librocksdb-dev) \
                 and build with `--features rocksdb`",
            ),
            EngineKind::Leveldb if !cfg!(feature = "leveldb") => Some(
                "leveldb is not in this build: install the library (Debian: libleveldb-dev) \
                 and build with `--features leveldb`",
            ),
            EngineKind::Fjall if !cfg!(feature = "fjall") => {
                Some("fjall is not in this build: build with `--features fjall`")
            }
            _ => None,
        }
    }

    /// What makes the engine's library slower than it could be, in words.
    pub(crate) fn caveat(self) -> Option<&'static str> {
        match self {
            #[cfg(feature = "rocksdb")]
            EngineKind::Rocksdb => rocksdb::caveat(),
            #[cfg(feature = "leveldb")]
            EngineKind::Leveldb => Some(leveldb::CAVEAT),
            _ => None,
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
