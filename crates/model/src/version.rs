//! A version: an immutable picture of what lies where.
//!
//! Recency, which invariant I1 protects, is position: within a keyspace, first
//! the newest level of each part (parts do not overlap), then the levels in
//! order; within a level, runs newest first; within a run, tables do not
//! overlap. Of two tables that overlap, the one that comes earlier holds the
//! newer entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cuts::Cuts;
use crate::key::SeqNo;
use crate::range::KeyRange;
use crate::table::{TableId, TableMeta};

/// A keyspace's number. Never reused within a store; 0 is the default one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct KeyspaceId(pub u32);

impl KeyspaceId {
    /// The keyspace that every store has.
    pub const DEFAULT: KeyspaceId = KeyspaceId(0);
}

impl std::fmt::Display for KeyspaceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A run's number. Never reused within a store.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct RunId(pub u64);

/// Tables in key order that do not overlap. Never empty in a version.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Its number.
    pub id: RunId,
    /// The tables, ascending.
    pub tables: Vec<Arc<TableMeta>>,
}

impl Run {
    /// The tables that may hold keys of `[start, end)`, `None` being unbounded.
    #[must_use]
    pub fn overlapping_bounds(
        &self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> &[Arc<TableMeta>] {
        let from = start.map_or(0, |s| {
            self.tables.partition_point(|t| t.range.ends_before(s))
        });
        let to = end.map_or(self.tables.len(), |e| {
            self.tables.partition_point(|t| &*t.range.start < e)
        });
        &self.tables[from..to.max(from)]
    }

    /// The tables that overlap `range`.
    #[must_use]
    pub fn overlapping(&self, range: &KeyRange) -> &[Arc<TableMeta>] {
        let from = self.tables.partition_point(|t| t.range.is_before(range));
        let to = self.tables.partition_point(|t| !range.is_before(&t.range));
        &self.tables[from..to.max(from)]
    }

    /// Bytes of all tables.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.size_bytes()).sum()
    }
}

/// Runs, newest first. A strict level has at most one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Level {
    /// The runs, newest first.
    pub runs: Vec<Run>,
}

impl Level {
    /// Bytes of all tables.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.runs.iter().map(Run::size_bytes).sum()
    }

    /// All tables, newest run first.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableMeta>> {
        self.runs.iter().flat_map(|r| &r.tables)
    }

    /// The number of tables.
    #[must_use]
    pub fn table_count(&self) -> usize {
        self.runs.iter().map(|r| r.tables.len()).sum()
    }
}

/// Keys of a part that were flushed further than the rest of it: they come from a
/// part that was, before the cuts moved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ahead {
    /// The first key.
    pub start: Box<[u8]>,
    /// The first key behind them; `None` where nothing ends them.
    pub end: Option<Box<[u8]>>,
    /// Every entry of them up to this number is in tables.
    pub flushed: SeqNo,
}

/// A tiny range: a piece of a part, with the number of writes it got.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tiny {
    /// Its first key; it ends where the next one begins. Empty for the first of a
    /// keyspace.
    pub start: Box<[u8]>,
    /// Writes counted; halved now and then, so that old ones weigh less. In a version they are
    /// shares, on a scale that all parts of a keyspace have in common.
    pub writes: u64,
}

/// Most tiny ranges in a part.
pub const TINY_MAX: usize = 256;

/// A part's own newest level and how far its memtables have reached tables.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// Every entry of this part up to this number is in tables.
    pub flushed: SeqNo,
    /// Which of its keys are further, ascending.
    pub ahead: Vec<Ahead>,
    /// What was flushed and not yet merged further down.
    pub newest: Level,
    /// Memtables that take its writes beside the first: how often it is duplicated.
    pub duplicates: u32,
    /// Its tiny ranges, ascending, the first beginning with the part; none where cuts do
    /// not move.
    pub tiny: Vec<Tiny>,
}

impl Part {
    /// Up to which number the entries of `key`, which is in this part, are in tables.
    #[must_use]
    pub fn flushed_of(&self, key: &[u8]) -> SeqNo {
        let holds = |a: &&Ahead| *a.start <= *key && a.end.as_deref().is_none_or(|end| key < end);
        let ahead = self.ahead.iter().find(holds);
        ahead.map_or(self.flushed, |a| a.flushed)
    }

    /// The stretches of `start` to `end`, exclusive, ascending, where an entry numbered `seq` is
    /// in no table yet. Both keys are in this part; `end` may be where it ends.
    #[must_use]
    pub fn not_flushed<'a>(
        &'a self,
        start: &'a [u8],
        end: &'a [u8],
        seq: SeqNo,
    ) -> Vec<(&'a [u8], &'a [u8])> {
        if seq <= self.flushed {
            return Vec::new();
        }
        let mut stretches = Vec::new();
        let mut from = start;
        for ahead in self.ahead.iter().filter(|a| seq <= a.flushed) {
            let to = end.min(&ahead.start);
            if from < to {
                stretches.push((from, to));
            }
            from = from.max(ahead.end.as_deref().unwrap_or(end));
        }
        if from < end {
            stretches.push((from, end));
        }
        stretches
    }

    /// Every entry up to `flushed` is in tables.
    pub(crate) fn set_flushed(&mut self, flushed: SeqNo) {
        self.flushed = self.flushed.max(flushed);
        self.ahead.retain(|a| a.flushed > self.flushed);
    }
}

/// One place for runs within a keyspace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Slot {
    /// The newest level of a part.
    Newest(u32),
    /// A level below the parts: 0 is the first of them.
    Level(u32),
}

impl std::fmt::Display for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Slot::Newest(part) => write!(f, "L0.{part}"),
            Slot::Level(level) => write!(f, "L{}", level + 1),
        }
    }
}

/// Most levels below the newest ones.
pub const LEVELS_MAX: usize = 16;

/// A namespace of keys with its own parts and levels.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Keyspace {
    /// Its number.
    pub id: KeyspaceId,
    /// Its name.
    pub name: String,
    /// The boundaries between its parts.
    pub cuts: Cuts,
    /// As many as the cuts make.
    pub parts: Vec<Part>,
    /// The levels below the parts, newest first.
    pub levels: Vec<Level>,
}

impl Keyspace {
    /// An empty keyspace.
    #[must_use]
    pub fn new(id: KeyspaceId, name: &str, cuts: Cuts) -> Keyspace {
        let parts = vec![Part::default(); cuts.parts()];
        Keyspace {
            id,
            name: name.to_string(),
            cuts,
            parts,
            levels: Vec::new(),
        }
    }

    /// The level at `slot`, if it exists.
    #[must_use]
    pub fn level(&self, slot: Slot) -> Option<&Level> {
        match slot {
            Slot::Newest(part) => self.parts.get(part as usize).map(|p| &p.newest),
            Slot::Level(level) => self.levels.get(level as usize),
        }
    }

    /// Every slot that exists, newest first.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        let parts = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let levels = u32::try_from(self.levels.len()).unwrap_or(u32::MAX);
        (0..parts)
            .map(Slot::Newest)
            .chain((0..levels).map(Slot::Level))
    }

    /// Every table with the slot and run it lies in, newest first.
    pub fn tables(&self) -> impl Iterator<Item = (Slot, RunId, &Arc<TableMeta>)> {
        self.slots().flat_map(move |slot| {
            let runs = self.level(slot).map_or(&[][..], |l| &l.runs);
            runs.iter()
                .flat_map(move |r| r.tables.iter().map(move |t| (slot, r.id, t)))
        })
    }

    /// Where the table lies, if it is here.
    #[must_use]
    pub fn find(&self, table: TableId) -> Option<(Slot, RunId, &Arc<TableMeta>)> {
        self.tables().find(|(_, _, t)| t.id == table)
    }

    /// Bytes of all tables.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.tables().map(|(_, _, t)| t.size_bytes()).sum()
    }
}

/// An immutable picture of the whole store.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Version {
    /// The keyspaces by number.
    pub keyspaces: BTreeMap<KeyspaceId, Arc<Keyspace>>,
    /// The next number for a table, an object, a run or a manifest: they share
    /// one counter, so that a number in a message names one thing. (Log segments
    /// have a counter of their own.)
    pub next_id: u64,
    /// The next number for a keyspace.
    pub next_keyspace: u32,
    /// Log segments below this number are not needed.
    pub log_floor: u64,
    /// The last number logged before the segment of the floor. Where that segment's
    /// header is lost, it tells what is missing: all that was durable beyond.
    pub log_base: SeqNo,
    /// The log must hold every number up to this one, from its floor on: tables hold entries up to
    /// it and memtables hold older ones, or folds have logged such entries anew up to it, or the
    /// log was closed there. Zero while none of these is so. It tells a log that was cut by
    /// something other than a crash from one that simply ends here (I9).
    pub log_reach: SeqNo,
    /// Every entry up to this number was committed before this version.
    pub last_seq: SeqNo,
}

impl Version {
    /// A version without keyspaces.
    #[must_use]
    pub fn empty() -> Version {
        Version {
            next_id: 1,
            ..Version::default()
        }
    }

    /// Every table of every keyspace.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableMeta>> {
        self.keyspaces
            .values()
            .flat_map(|k| k.tables().map(|(_, _, t)| t))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture;

    fn keyspace(text: &str) -> Arc<Keyspace> {
        Arc::clone(&picture::parse(text).unwrap().keyspaces[&KeyspaceId::DEFAULT])
    }

    #[test]
    fn the_tables_of_a_run_within_bounds_are_those_that_looking_at_each_finds() {
        let keyspace = keyspace("L1: #1[b..d] #2[f..h) #3[h..k] #4[m..m]");
        let run = &keyspace.levels[0].runs[0];
        let keys: Vec<String> = ('a'..'o').map(|c| c.to_string()).collect();
        let bounds: Vec<Option<&[u8]>> = [None]
            .into_iter()
            .chain(keys.iter().map(|k| Some(k.as_bytes())))
            .collect();
        for &start in &bounds {
            for &end in &bounds {
                if start.zip(end).is_some_and(|(start, end)| start >= end) {
                    continue;
                }
                let expected: Vec<_> = run
                    .tables
                    .iter()
                    .filter(|t| t.range.overlaps_bounds(start, end))
                    .collect();
                let found: Vec<_> = run.overlapping_bounds(start, end).iter().collect();
                assert_eq!(found, expected, "{start:?} {end:?}");
            }
        }
    }

    #[test]
    fn tables_and_their_bytes_are_counted_at_every_height() {
        let text = "L0.0: #4[a..b]{size=70} | L1: #1[a..b]{size=10} #2[c..d]{size=20} / \
                    #3[a..z]{size=40}";
        let version = picture::parse(text).unwrap();
        let keyspace = &version.keyspaces[&KeyspaceId::DEFAULT];
        let level = &keyspace.levels[0];
        // Each with one byte of metadata.
        assert_eq!(level.runs[0].size_bytes(), 32);
        assert_eq!(level.size_bytes(), 73);
        assert_eq!(keyspace.size_bytes(), 144);
        assert_eq!(level.table_count(), 3);
        let ids = |tables: Vec<&Arc<TableMeta>>| tables.iter().map(|t| t.id.0).collect::<Vec<_>>();
        assert_eq!(ids(level.tables().collect()), [1, 2, 3]);
        assert_eq!(ids(version.tables().collect()), [4, 1, 2, 3]);
    }

    #[test]
    fn stretches_not_flushed_hold_the_keys_that_are_not() {
        let ahead = |start: &str, end: Option<&str>, flushed: u64| Ahead {
            start: start.as_bytes().into(),
            end: end.map(|end| end.as_bytes().into()),
            flushed: SeqNo(flushed),
        };
        let of = |ahead: Vec<Ahead>| Part {
            flushed: SeqNo(3),
            ahead,
            ..Part::default()
        };
        let parts = [
            of(vec![]),
            of(vec![ahead("d", Some("f"), 5)]),
            of(vec![
                ahead("b", Some("d"), 7),
                ahead("d", Some("e"), 5),
                ahead("h", Some("i"), 7),
            ]),
            of(vec![ahead("c", Some("e"), 6), ahead("g", None, 5)]),
        ];
        let keys: Vec<String> = ('a'..='k').map(|c| c.to_string()).collect();
        for part in &parts {
            for (at, start) in keys.iter().enumerate() {
                for end in &keys[at..] {
                    for seq in (1..9).map(SeqNo) {
                        let found = part.not_flushed(start.as_bytes(), end.as_bytes(), seq);
                        assert!(found.iter().all(|(from, to)| from < to));
                        assert!(found.windows(2).all(|pair| pair[0].1 <= pair[1].0));
                        let held = |key: &&String| {
                            let key = key.as_bytes();
                            found.iter().any(|(from, to)| *from <= key && key < *to)
                        };
                        let held: Vec<&String> = keys.iter().filter(held).collect();
                        let behind = |key: &&String| {
                            (start..end).contains(key) && seq > part.flushed_of(key.as_bytes())
                        };
                        let behind: Vec<&String> = keys.iter().filter(behind).collect();
                        assert_eq!(held, behind, "{start} to {end}, {seq}: {part:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_empty_version_begins_to_number_at_one() {
        let empty = Version::empty();
        assert_eq!((empty.next_id, empty.next_keyspace), (1, 0));
        assert_eq!(empty.tables().count(), 0);
        assert_eq!(KeyspaceId(12).to_string(), "12");
    }
}
