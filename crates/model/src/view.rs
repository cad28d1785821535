//! The view: the read-only data a policy may see.

use std::collections::{BTreeMap, BTreeSet};

use crate::key::SeqNo;
use crate::moves::Moves;
use crate::table::TableId;
use crate::tier::{TierId, TierState};
use crate::triggers::{PartTriggers, RecutTriggers};
use crate::version::{KeyspaceId, Slot, Tiny, Version};

mod lookup;
mod waits;

pub use lookup::{LookupTurns, LookupUse, LookupView};
pub use waits::{Division, JobTime, Spent, Waits};

/// How often a table was used, as its heat tracker tells it: counts since the
/// table was opened, or since then and fading, whichever the tracker keeps.
/// Only their proportions mean something.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TableHeat {
    /// Point reads that looked into the table (past its key range).
    pub probes: u64,
    /// Point reads that found their key there.
    pub hits: u64,
    /// Point reads that a filter answered: that the table has not the key.
    pub rejects: u64,
    /// Blocks read from the device.
    pub block_reads: u64,
    /// Scans that passed over it.
    pub scans: u64,
    /// Block reads per second and MiB of the table, smoothed; `None` where the
    /// tracker keeps no temperatures, and for a table that is too young to
    /// have one.
    pub temperature: Option<f64>,
    /// What one more block read would have added to the temperature, about: its variance, if reads
    /// come by chance, is the temperature times this (Poisson's law). 0 where the tracker
    /// does not say.
    pub temperature_of_one: f64,
}

/// The keys of memtables that have few.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FewKeys {
    /// How many, each as often as there are memtables that have it.
    pub keys: usize,
    /// Bytes that the newest entry of each takes in memory.
    pub live_bytes: u64,
}

impl From<(usize, usize)> for FewKeys {
    fn from((keys, bytes): (usize, usize)) -> FewKeys {
        FewKeys {
            keys,
            live_bytes: bytes as u64,
        }
    }
}

/// The memtables of one part.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PartLoad {
    /// Memtables that take writes, with entries or without: they are sealed together.
    pub takers: usize,
    /// Bytes in these.
    pub active_bytes: u64,
    /// Sealed memtables that wait for a flush.
    pub sealed: usize,
    /// Bytes in these.
    pub sealed_bytes: u64,
    /// Memory of these, whole where several parts have them, in bytes.
    pub sealed_memory_bytes: u64,
    /// The most memory that those that take writes come to take before they are sealed, in bytes.
    pub takers_memory_bytes_max: u64,
    /// Whether a flush of this part is running.
    pub flushing: bool,
    /// The oldest log segment that one of its memtables needs; `None` when all
    /// are empty.
    pub oldest_segment: Option<u64>,
    /// Whether a sealed memtable is of an older generation: it was there before the
    /// cuts moved, and may have entries of other parts as well.
    pub older: bool,
    /// Of the sealed memtables, those that a fold made.
    pub folded: usize,
    /// The keys of the sealed memtables, if each has fewer than
    /// [`ShapeOptions::fold_keys_max`].
    pub sealed_few: Option<FewKeys>,
    /// The same of those that take writes; `None` also where nobody looked, because
    /// neither memory nor log is short.
    pub active_few: Option<FewKeys>,
}

/// What is known of the writes to a part.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PartWrites {
    /// Memtables that take them beside the first.
    pub duplicates: u32,
    /// Where its tiny ranges begin, ascending; the first begins with the part.
    pub starts: std::sync::Arc<[Box<[u8]>]>,
    /// Writes that each of them got; old ones weigh less.
    pub writes: Vec<u64>,
}

impl PartWrites {
    /// Its tiny ranges.
    #[must_use]
    pub fn tiny(&self) -> Vec<Tiny> {
        let tiny = self.starts.iter().zip(&self.writes);
        let tiny = tiny.map(|(start, &writes)| Tiny {
            start: start.clone(),
            writes,
        });
        tiny.collect()
    }
}

/// What is known of the writes to a keyspace.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct KeyspaceWrites {
    /// By part.
    pub parts: Vec<PartWrites>,
    /// Writes since its cuts were last moved, or were to be.
    pub since: u64,
    /// How many times since the cuts last moved it was found that other cuts would be
    /// no better.
    pub in_vain: u32,
}

/// When and how cuts move.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RangeOptions {
    /// Most memtables that take writes in a keyspace, all parts and their duplicates together.
    pub slots: usize,
    /// Memtables that take writes, of a keyspace, above which parts that writes have made are
    /// joined until there are no more than `slots`; `usize::MAX` where they never are.
    pub joins_above: usize,
    /// Whether a keyspace is cut once, by its first keys, and its cuts stay.
    pub once: bool,
    /// Most tiny ranges in a part.
    pub tiny_max: usize,
    /// A part may have so much more than its even share of the writes, as a share of
    /// that, before tiny ranges of it go to its neighbours.
    pub excess: f64,
    /// As much more may stay when they did, before all cuts are made anew.
    pub major_excess: f64,
    /// Writes for each part, on average, between two looks.
    pub writes: u64,
    /// How often a part may be duplicated.
    pub duplicates_max: u32,
    /// Cuts fall only between keys that differ in so many first bytes; 0: in any.
    pub prefix_bytes: usize,
    /// Runs of L1 beyond which cuts stay, as what is handed down makes more of them.
    pub first_runs_max: usize,
    /// What else sets a reorganisation off, and what one must gain.
    pub triggers: RecutTriggers,
    /// When parts pay, where there are only as many as writers gain by.
    pub part_triggers: PartTriggers,
}

impl Default for RangeOptions {
    fn default() -> RangeOptions {
        RangeOptions {
            slots: 1,
            joins_above: usize::MAX,
            once: false,
            tiny_max: 16,
            excess: 0.2,
            major_excess: 0.6,
            writes: 1000,
            duplicates_max: 7,
            prefix_bytes: 0,
            first_runs_max: 1,
            triggers: RecutTriggers::default(),
            part_triggers: PartTriggers::default(),
        }
    }
}

/// The shape options that planners go by. One set serves a whole store.
#[derive(Clone, PartialEq, Debug)]
pub struct ShapeOptions {
    /// Data bytes at which a merge cuts its outputs.
    pub table_bytes: u64,
    /// Runs in a part's newest level at which they are merged down.
    pub newest_runs_merge: usize,
    /// Runs there at which writes stop.
    pub newest_runs_stop: usize,
    /// Bytes of the first level below; each further one is `level_ratio` times
    /// as large.
    pub first_level_bytes: u64,
    /// See `first_level_bytes`.
    pub level_ratio: u64,
    /// Bytes of sealed memtables at which they are flushed.
    pub flush_bytes: u64,
    /// Bytes that parts have on the average at least where those that are about as full are flushed
    /// together; 0 for never, `None` for where it pays.
    pub flush_together_bytes_min: Option<u64>,
    /// The same where memtables have no more memory than the options give them: what
    /// levels are measured by, so that these do not change with what memory is lent.
    pub usual_flush_bytes: u64,
    /// Log bytes at which the part that holds the oldest segment is flushed.
    pub log_bytes_max: u64,
    /// Memtables with fewer keys than this are folded into one instead of being
    /// flushed; 0 for never.
    pub fold_keys_max: usize,
    /// Most sealed memtables of a part, `usize::MAX` where only memory bounds them.
    pub sealed_max: usize,
    /// The same of all parts together, where one that several parts have counts once.
    pub sealed_total_max: usize,
    /// Most memory of a part's memtables in bytes, `u64::MAX` where only that of all is bounded.
    pub part_memory_bytes_max: u64,
    /// Whether what flushes and merges write is read back.
    pub reads_back: bool,
    /// Of a tier's capacity, the share that placement fills, from 0 to 1.
    pub tier_fill_share: f64,
    /// How levels are shared out between fast and slow tiers, where they are.
    pub staging: StagingOptions,
    /// Where levels begin, where that is fixed.
    pub pins: TierPins,
    /// When and how cuts move.
    pub ranges: RangeOptions,
}

impl ShapeOptions {
    /// Whether memtables are lent memory beyond what the options give them, as hardly anybody
    /// reads.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.flush_bytes > self.usual_flush_bytes
    }

    /// How many times the memory that the options give them memtables have now, at least 1.
    #[must_use]
    pub fn lent_times(&self) -> f64 {
        let times = self.flush_bytes as f64 / self.usual_flush_bytes.max(1) as f64;
        times.max(1.0)
    }
}

/// Tiers on which levels begin to lie, whatever room there is above them, and that of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TierPins {
    /// The first tier of the newest levels; `None` for the fastest.
    pub newest: Option<TierId>,
    /// The first tier of the levels below them; `None` for the fastest.
    pub levels: Option<TierId>,
    /// The tier of the log; `None` for the fastest.
    pub log: Option<TierId>,
}

/// What a preset with overlapping fast levels goes by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StagingOptions {
    /// Of all bytes, the share that the fast levels may hold, from 0 to 1.
    pub fast_share: f64,
    /// Tables of the last level that one table merged into it may overlap before
    /// it is merged within the fast levels first.
    pub overlap_tables_max: usize,
    /// What is switched on.
    pub on: Optimisations,
}

/// What presets do beyond keeping their shape; each can be switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Optimisations {
    /// The coldest tables are merged to the slow tier first.
    pub informed: bool,
    /// Hot tables are merged up to the fast tier.
    pub reverse: bool,
    /// Fast levels overlap, and are merged when that pays.
    pub deferred: bool,
    /// Fast tables are merged within the fast tier before they go to the slow one.
    pub staging: bool,
    /// What a merge writes goes straight to the tier that its temperature calls for.
    pub joined: bool,
    /// Metadata of tables lies on the fastest tier, whatever tier their data lies on.
    pub organised: bool,
    /// What merges rewrite counts as read, while writers wait for them.
    pub rewritten: bool,
}

impl Optimisations {
    /// Their names in the options.
    pub const NAMES: [&str; 7] = [
        "informed",
        "reverse",
        "deferred",
        "staging",
        "joined",
        "organised",
        "rewritten",
    ];

    /// All of them, or none.
    #[must_use]
    pub fn all(on: bool) -> Optimisations {
        Optimisations {
            informed: on,
            reverse: on,
            deferred: on,
            staging: on,
            joined: on,
            organised: on,
            rewritten: on,
        }
    }

    /// Switches off those with the names given; `Err` has a name that is none.
    ///
    /// # Errors
    /// The first unknown name.
    pub fn without<'a>(off: impl IntoIterator<Item = &'a str>) -> Result<Optimisations, &'a str> {
        let mut on = Optimisations::all(true);
        for name in off {
            match name {
                "informed" => on.informed = false,
                "reverse" => on.reverse = false,
                "deferred" => on.deferred = false,
                "staging" => on.staging = false,
                "joined" => on.joined = false,
                "organised" => on.organised = false,
                "rewritten" => on.rewritten = false,
                unknown => return Err(unknown),
            }
        }
        Ok(on)
    }
}

impl Default for StagingOptions {
    /// Half of the data fast, as in most of LogStore's experiments, and all
    /// optimisations.
    fn default() -> StagingOptions {
        StagingOptions {
            fast_share: 0.5,
            overlap_tables_max: 30,
            on: Optimisations::all(true),
        }
    }
}

/// What the operator asks of placement by price.
#[derive(Clone, PartialEq, Debug)]
pub struct CostOptions {
    /// Most that all tables together may cost, in USD per 10^9 bytes and month,
    /// on average over all bytes; `None` where price is no object.
    pub target_usd_gb_month: Option<f64>,
    /// Of all tables, the share by which a table must be out of its place in the
    /// order of temperatures before it is moved; and the share by which its
    /// temperature must differ. From 0 to 1.
    pub migration_resistance: f64,
    /// Bytes that relocations may move in a second.
    pub migration_bytes_per_second_max: u64,
    /// Microseconds in which no table is moved twice.
    pub migration_cool_down_us: u64,
    /// Microseconds within which a table that is moved because it is hotter must
    /// save the devices as much time as the move takes them; 0 where that is not
    /// weighed.
    pub migration_payback_us: u64,
}

/// What a policy sees.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// What lies where.
    pub version: &'a Version,
    /// The tiers, fast to cheap.
    pub tiers: &'a [TierState],
    /// Heat by table; a table not listed was not used.
    pub heat: &'a BTreeMap<TableId, TableHeat>,
    /// The memtables of each part.
    pub memtables: &'a BTreeMap<(KeyspaceId, u32), PartLoad>,
    /// Sealed memtables of all parts; one that several parts have counts once.
    pub sealed: usize,
    /// What is known of the writes to keyspaces whose cuts may move now.
    pub writes: &'a BTreeMap<KeyspaceId, KeyspaceWrites>,
    /// What writers waited for, and what merges did meanwhile.
    pub spent: Spent,
    /// What was made of that so far.
    pub waits: Waits,
    /// Tables that a running job reads or replaces: no new job may name them.
    pub busy: &'a BTreeSet<TableId>,
    /// Slots that running merges write to, with the keyspace and the key range
    /// they cover: no new merge into the same slot may overlap.
    pub busy_outputs: &'a [(KeyspaceId, Slot, crate::range::KeyRange)],
    /// Bytes that flushes write in a second, smoothed over ten seconds or so; infinite where
    /// nobody measures it.
    pub flushed_bytes_per_s: f64,
    /// Bytes of memtables that flushes free in a second while one of them runs, or writers wait for
    /// it; `None` before there was one.
    pub freed_bytes_per_s: Option<f64>,
    /// Of the time that flushes take while something older than they flush stays in memory, the
    /// share in which they wait for the log of that to be durable, smoothed over half a minute or
    /// so; `None` where too few of them were.
    pub log_wait_share: Option<f64>,
    /// Of the time, the share in which some writer waited, or was slowed, smoothed over ten seconds
    /// or so.
    pub stalled_share: f64,
    /// Blocks that readers read from devices in a second, smoothed in the same way; infinite where
    /// nobody measures it.
    pub block_reads_per_s: f64,
    /// Bytes of log segments not yet deleted.
    pub log_bytes: u64,
    /// The lowest and the current log segment.
    pub log_segments: (u64, u64),
    /// The oldest snapshot still read, or the last committed number when there
    /// is none: a merge at the end of its keys may drop deletes up to here.
    pub oldest_snapshot: SeqNo,
    /// Whether nothing was written for a while, or somebody waits for the store
    /// to settle: the time for work that only makes reads cheaper.
    pub idle: bool,
    /// Whether this is a copy that is planned on to see where it leads, and no job will be run:
    /// what says when and not what, such as merges that are urgent, keeps nothing back then.
    pub forecast: bool,
    /// The shape options.
    pub shape: &'a ShapeOptions,
    /// The options of placement by price.
    pub cost: &'a CostOptions,
    /// What was relocated lately.
    pub moves: &'a Moves,
    /// Now, in microseconds since the Unix epoch.
    pub now_us: u64,
}
