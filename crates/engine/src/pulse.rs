//! The pulse of a store: price, places and counts at one moment, in short, so that
//! they can be watched, also from another process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control::{Given, Wanted, ask_if_open};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::stats::{PartStats, Stats};

/// A store at one moment. Counts begin when it was opened. See [`Db::pulse`](crate::Db::pulse).
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// db.get(b"key")?;
/// let pulse = db.pulse();
/// assert_eq!((pulse.writes, pulse.memtable_hits, &*pulse.preset), (1, 1, "leveled"));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Pulse {
    /// When this was, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// The preset in force.
    pub preset: String,
    /// What the tables may cost, in USD per 10^9 bytes and month.
    pub target_usd_gb_month: Option<f64>,
    /// What they cost.
    pub price_usd_gb_month: f64,
    /// What all bytes on all tiers cost, in USD a month.
    pub price_usd_month: f64,
    /// Of all bytes of tables, those that lie on the first tier, from 0 to 1.
    pub fast_share: f64,
    /// Point reads answered by memtables, by the block cache, and of absent keys.
    pub memtable_hits: u64,
    /// See `memtable_hits`.
    pub cached_hits: u64,
    /// See `memtable_hits`.
    pub misses: u64,
    /// Scans begun.
    pub scans: u64,
    /// Writes.
    pub writes: u64,
    /// Microseconds that writers were slowed or waited because the background fell
    /// behind, all writers together.
    pub stall_us: u64,
    /// Merges that read tables, and the bytes that they wrote.
    pub merges: u64,
    /// See `merges`.
    pub merged_bytes: u64,
    /// Tables relocated, and their bytes.
    pub migrations: u64,
    /// See `migrations`.
    pub migrated_bytes: u64,
    /// Bytes of tables that a merge put where they would have been relocated to.
    pub migrations_saved_bytes: u64,
    /// Jobs that failed.
    pub job_errors: u64,
    /// The tiers, fast to cheap.
    pub tiers: Vec<TierPulse>,
    /// The parts.
    pub parts: PartsPulse,
}

/// A tier's part of a [`Pulse`].
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// let tier = &db.pulse().tiers[0];
/// assert_eq!((&*tier.name, tier.hits), ("main", 0));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TierPulse {
    /// Its name.
    pub name: String,
    /// Bytes of objects on it.
    pub used_bytes: u64,
    /// Bytes that it may hold.
    pub capacity_bytes: u64,
    /// Its price, in USD per 10^9 bytes and month.
    pub price_usd_gb_month: f64,
    /// What its bytes cost, in USD a month.
    pub price_usd_month: f64,
    /// Point reads answered by a block read from it.
    pub hits: u64,
}

/// The parts' part of a [`Pulse`]: of the keyspace that has the most of them.
///
/// ```
/// # use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let db = Db::open(Options::at(directory.path()).cuts(vec![b"m".to_vec()]))?;
/// db.put(b"apple", b"red")?;
/// let parts = db.pulse().parts;
/// assert_eq!((&*parts.keyspace, parts.parts, parts.active_memtables), ("default", 2, 2));
/// assert_eq!((parts.write_share_min, parts.write_share_max), (Some(0.0), Some(1.0)));
/// assert_eq!((parts.imbalance, parts.recuts), (Some(0.5), 0));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PartsPulse {
    /// The keyspace; of several with as many parts, the first.
    pub keyspace: String,
    /// Its parts.
    pub parts: u64,
    /// The least share of its writes that a part gets, from 0 to 1; none until something is
    /// written. See [`PartStats::write_share`].
    pub write_share_min: Option<f64>,
    /// The largest.
    pub write_share_max: Option<f64>,
    /// The standard deviation of the shares of the memtables that take writes, duplicates included
    /// (Nova-LSM, section 8.2.1).
    pub imbalance: Option<f64>,
    /// Memtables that take its writes beside the first of each part.
    pub duplicates: u64,
    /// Memtables of all keyspaces that take writes.
    pub active_memtables: u64,
    /// Those of all keyspaces that wait for a flush.
    pub sealed_memtables: u64,
    /// Times that cuts were made or moved, in all keyspaces, since the store was opened.
    pub recuts: u64,
}

impl PartsPulse {
    fn of(stats: &Stats) -> PartsPulse {
        // The last of equals is what `max_by_key` finds.
        let most = stats.keyspaces.iter().rev().max_by_key(|k| k.parts);
        let parts = most.map_or(&[][..], |k| &k.part_list);
        let written = parts.iter().filter_map(|part| part.write_share);
        let written: Vec<f64> = written.collect();
        PartsPulse {
            keyspace: most.map_or_else(String::new, |k| k.name.clone()),
            parts: most.map_or(0, |k| k.parts),
            write_share_min: written.iter().copied().reduce(f64::min),
            write_share_max: written.iter().copied().reduce(f64::max),
            imbalance: PartStats::imbalance(parts),
            duplicates: parts.iter().map(|part| part.duplicates).sum(),
            active_memtables: stats.active_memtables,
            sealed_memtables: stats.sealed_memtables,
            recuts: stats.recuts,
        }
    }
}

impl Pulse {
    pub(crate) fn of(engine: &Engine) -> Pulse {
        let stats: Stats = crate::report::stats(engine);
        let parts = PartsPulse::of(&stats);
        let tiers = stats.tiers.into_iter().map(|tier| TierPulse {
            name: tier.name,
            used_bytes: tier.used_bytes,
            // What is written as text has no more bits.
            capacity_bytes: tier.capacity_bytes.min(i64::MAX as u64),
            price_usd_gb_month: tier.price_usd_gb_month,
            price_usd_month: tier.price_usd_month,
            hits: tier.hits,
        });
        Pulse {
            now_us: stats.now_us,
            preset: engine.options.preset.clone(),
            target_usd_gb_month: stats.cost.target_usd_gb_month,
            price_usd_gb_month: stats.cost.price_usd_gb_month,
            price_usd_month: stats.price_usd_month,
            fast_share: stats.cost.fast_share,
            memtable_hits: stats.memtable_hits,
            cached_hits: stats.cached_hits,
            misses: stats.misses,
            scans: stats.scans,
            writes: stats.writes,
            stall_us: stats.stall_us,
            merges: stats.merges,
            merged_bytes: stats.merge_out_bytes,
            migrations: stats.cost.migrations,
            migrated_bytes: stats.cost.migrated_bytes,
            migrations_saved_bytes: stats.cost.migrations_saved_bytes,
            job_errors: stats.job_errors,
            tiers: tiers.collect(),
            parts,
        }
    }

    /// The same with counts from `earlier` on; places and prices stay those of now.
    /// Where `earlier` is of another opening, all counts are new.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"a", b"")?;
    /// let earlier = db.pulse();
    /// db.put(b"b", b"")?;
    /// assert_eq!(db.pulse().since(&earlier).writes, 1);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Pulse) -> Pulse {
        let mut delta = self.clone();
        for (now, before) in delta.counts().into_iter().zip(earlier.clone().counts()) {
            *now = now.checked_sub(*before).unwrap_or(*now);
        }
        for (tier, before) in delta.tiers.iter_mut().zip(&earlier.tiers) {
            tier.hits = tier.hits.checked_sub(before.hits).unwrap_or(tier.hits);
        }
        delta
    }

    fn counts(&mut self) -> [&mut u64; 12] {
        [
            &mut self.memtable_hits,
            &mut self.cached_hits,
            &mut self.misses,
            &mut self.scans,
            &mut self.writes,
            &mut self.stall_us,
            &mut self.merges,
            &mut self.merged_bytes,
            &mut self.migrations,
            &mut self.migrated_bytes,
            &mut self.migrations_saved_bytes,
            &mut self.job_errors,
        ]
    }

    /// All point reads that found a value, wherever it lay.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"key", b"value")?;
    /// db.get(b"key")?;
    /// assert_eq!(db.pulse().hits(), 1);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn hits(&self) -> u64 {
        let tiers = self.tiers.iter().map(|t| t.hits).sum::<u64>();
        self.memtable_hits + self.cached_hits + tiers
    }
}

/// The pulse of the store of `options` in the process that has it open, which is given
/// `patience` to answer; `None` where nobody has it open.
///
/// ```
/// # use std::time::Duration;
/// # use thermocline::{Db, Options, pulse};
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::at(directory.path()).heat_epoch_ms(10);
/// let db = Db::open(options.clone())?;
/// db.put(b"key", b"value")?;
/// let found = pulse(&options, Duration::from_secs(60))?.unwrap();
/// assert_eq!(found.writes, 1);
/// drop(db);
/// assert_eq!(pulse(&options, Duration::ZERO)?, None);
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Locked`](crate::ErrorKind::Locked) when whoever has it open did not answer in time;
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when that is another version of
/// Thermocline; [`ErrorKind::Io`](crate::ErrorKind::Io).
pub fn pulse(options: &Options, patience: Duration) -> Result<Option<Pulse>> {
    match ask_if_open(options, Wanted::Pulse {}, patience)? {
        None => Ok(None),
        Some(Given::Pulse(pulse)) => Ok(Some(*pulse)),
        Some(_) => Err(Error::invalid("not what was asked for")),
    }
}
