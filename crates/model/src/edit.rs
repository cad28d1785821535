//! Edits: how one version becomes the next.
//!
//! An edit is a list of changes that take effect together. It is what the
//! manifest records, so every change has a byte encoding, described in
//! `docs/formats/manifest.md`. [`Edit::apply`] only does what the changes say
//! and refuses what makes no sense (a table removed that is not there);
//! whether the outcome is lawful is for [`crate::check`] to say.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::codec::{Reader, Writer};
use crate::cuts::Cuts;
use crate::key::SeqNo;
use crate::range::KeyRange;
use crate::recut::recut;
use crate::table::{Extent, ObjectId, TableId, TableMeta};
use crate::tier::TierId;
use crate::version::{
    Ahead, Keyspace, KeyspaceId, LEVELS_MAX, Level, Part, Run, RunId, Slot, TINY_MAX, Tiny, Version,
};

/// One change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// A new keyspace.
    AddKeyspace {
        /// Its number.
        keyspace: KeyspaceId,
        /// Its name.
        name: String,
        /// Its cuts.
        cuts: Cuts,
    },
    /// A keyspace is cut anew; see [`crate::recut`] for what becomes of its parts.
    SetCuts {
        /// Which.
        keyspace: KeyspaceId,
        /// Its cuts from now on.
        cuts: Cuts,
    },
    /// A keyspace goes, with all its tables.
    DropKeyspace {
        /// Its number.
        keyspace: KeyspaceId,
    },
    /// A new table. If the run does not exist in the slot it becomes the
    /// slot's newest run, or the one just behind `behind` when that is given.
    AddTable {
        /// In which keyspace.
        keyspace: KeyspaceId,
        /// In which slot.
        slot: Slot,
        /// In which run.
        run: RunId,
        /// For a new run: the run of the same slot that is next newer.
        behind: Option<RunId>,
        /// The table.
        table: Arc<TableMeta>,
    },
    /// A table goes. A run without tables goes too.
    RemoveTable {
        /// From which keyspace.
        keyspace: KeyspaceId,
        /// The table.
        table: TableId,
    },
    /// A table stays where it is in the order, but its bytes lie elsewhere.
    ReplaceTable {
        /// In which keyspace.
        keyspace: KeyspaceId,
        /// The table with its new extents; same number, range and entries.
        table: Arc<TableMeta>,
    },
    /// Entries of a part have reached tables.
    SetFlushed {
        /// In which keyspace.
        keyspace: KeyspaceId,
        /// The part.
        part: u32,
        /// Up to this number.
        flushed: SeqNo,
    },
    /// Keys of a part have reached tables further than the rest of it.
    SetAhead {
        /// In which keyspace.
        keyspace: KeyspaceId,
        /// The part.
        part: u32,
        /// Which keys, and how far.
        ahead: Ahead,
    },
    /// A part's tiny ranges, and how often it is duplicated.
    SetTiny {
        /// In which keyspace.
        keyspace: KeyspaceId,
        /// The part.
        part: u32,
        /// See [`Part::duplicates`].
        duplicates: u32,
        /// See [`Part::tiny`].
        tiny: Vec<Tiny>,
    },
    /// Log segments below this number are not needed.
    SetLogFloor {
        /// The lowest segment needed.
        segment: u64,
    },
    /// What is logged from the floor on comes after this number.
    SetLogBase {
        /// See [`Version::log_base`].
        seq: SeqNo,
    },
    /// How far the log must reach from now on.
    SetLogReach {
        /// See [`Version::log_reach`].
        seq: SeqNo,
    },
    /// The next free numbers and the last committed sequence number.
    SetCounters {
        /// See [`Version::next_id`].
        next_id: u64,
        /// See [`Version::next_keyspace`].
        next_keyspace: u32,
        /// See [`Version::last_seq`].
        last_seq: SeqNo,
    },
}

/// Changes that take effect together.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Edit {
    /// The changes, applied in order.
    pub changes: Vec<Change>,
}

impl Edit {
    /// An edit of one change.
    #[must_use]
    pub fn of(change: Change) -> Edit {
        Edit {
            changes: vec![change],
        }
    }

    /// The edit that makes `version` out of an empty one.
    #[must_use]
    pub fn snapshot(version: &Version) -> Edit {
        let mut changes = vec![Change::SetCounters {
            next_id: version.next_id,
            next_keyspace: version.next_keyspace,
            last_seq: version.last_seq,
        }];
        changes.push(Change::SetLogFloor {
            segment: version.log_floor,
        });
        if version.log_base > SeqNo::ZERO {
            changes.push(Change::SetLogBase {
                seq: version.log_base,
            });
        }
        if version.log_reach > SeqNo::ZERO {
            changes.push(Change::SetLogReach {
                seq: version.log_reach,
            });
        }
        for (&id, keyspace) in &version.keyspaces {
            changes.push(Change::AddKeyspace {
                keyspace: id,
                name: keyspace.name.clone(),
                cuts: keyspace.cuts.clone(),
            });
            for (part, index) in keyspace.parts.iter().zip(0..) {
                changes.push(Change::SetFlushed {
                    keyspace: id,
                    part: index,
                    flushed: part.flushed,
                });
                for ahead in &part.ahead {
                    changes.push(Change::SetAhead {
                        keyspace: id,
                        part: index,
                        ahead: ahead.clone(),
                    });
                }
                if part.duplicates > 0 || !part.tiny.is_empty() {
                    changes.push(Change::SetTiny {
                        keyspace: id,
                        part: index,
                        duplicates: part.duplicates,
                        tiny: part.tiny.clone(),
                    });
                }
            }
            for slot in keyspace.slots() {
                let mut behind = None;
                for run in keyspace.level(slot).map_or(&[][..], |l| &l.runs) {
                    for table in &run.tables {
                        changes.push(Change::AddTable {
                            keyspace: id,
                            slot,
                            run: run.id,
                            behind,
                            table: Arc::clone(table),
                        });
                    }
                    behind = Some(run.id);
                }
            }
        }
        Edit { changes }
    }

    /// The version that follows `version`.
    ///
    /// # Errors
    /// In words, when a change names what is not there or adds what is.
    pub fn apply(&self, version: &Version) -> Result<Version, String> {
        let mut next = version.clone();
        for change in &self.changes {
            apply(change, &mut next)?;
        }
        for keyspace in next.keyspaces.values_mut() {
            if keyspace.levels.last().is_some_and(|l| l.runs.is_empty()) {
                let keyspace = Arc::make_mut(keyspace);
                while keyspace.levels.last().is_some_and(|l| l.runs.is_empty()) {
                    keyspace.levels.pop();
                }
            }
        }
        Ok(next)
    }

    /// Tables that the edit adds, with their keyspace and slot.
    pub fn added(&self) -> impl Iterator<Item = (KeyspaceId, Slot, &Arc<TableMeta>)> {
        self.changes.iter().filter_map(|c| match c {
            Change::AddTable {
                keyspace,
                slot,
                table,
                ..
            } => Some((*keyspace, *slot, table)),
            _ => None,
        })
    }

    /// Tables that the edit removes by number, with their keyspace.
    pub fn removed(&self) -> impl Iterator<Item = (KeyspaceId, TableId)> {
        self.changes.iter().filter_map(|c| match c {
            Change::RemoveTable { keyspace, table } => Some((*keyspace, *table)),
            _ => None,
        })
    }
}

fn apply(change: &Change, version: &mut Version) -> Result<(), String> {
    match change {
        Change::AddKeyspace {
            keyspace,
            name,
            cuts,
        } => {
            if version.keyspaces.values().any(|k| k.name == *name) {
                return Err(format!("keyspace {name:?} exists already"));
            }
            let new = Arc::new(Keyspace::new(*keyspace, name, cuts.clone()));
            if version.keyspaces.insert(*keyspace, new).is_some() {
                return Err(format!("keyspace {keyspace} exists already"));
            }
            let after = keyspace.0.checked_add(1);
            let after = after.ok_or_else(|| format!("keyspace {keyspace} is the last number"))?;
            version.next_keyspace = version.next_keyspace.max(after);
        }
        Change::SetCuts { keyspace, cuts } => {
            recut(keyspace_mut(version, *keyspace)?, cuts);
        }
        Change::DropKeyspace { keyspace } => {
            if version.keyspaces.remove(keyspace).is_none() {
                return Err(format!("keyspace {keyspace} does not exist"));
            }
        }
        Change::AddTable {
            keyspace,
            slot,
            run,
            behind,
            table,
        } => {
            let level = level_mut(version, *keyspace, *slot)?;
            let position = match level.runs.iter().position(|r| r.id == *run) {
                Some(position) => position,
                None => {
                    let position = match behind {
                        None => 0,
                        Some(newer) => {
                            let found = level.runs.iter().position(|r| r.id == *newer);
                            found.ok_or_else(|| format!("run {} is not in {slot}", newer.0))? + 1
                        }
                    };
                    level.runs.insert(
                        position,
                        Run {
                            id: *run,
                            tables: Vec::new(),
                        },
                    );
                    position
                }
            };
            let tables = &mut level.runs[position].tables;
            let at = tables.partition_point(|t| t.range.start < table.range.start);
            tables.insert(at, Arc::clone(table));
        }
        Change::RemoveTable { keyspace, table } => {
            let keyspace = keyspace_mut(version, *keyspace)?;
            let (slot, run, _) = keyspace
                .find(*table)
                .ok_or_else(|| format!("table {table} is not there"))?;
            let level = slot_mut(keyspace, slot)?;
            for r in level.runs.iter_mut().filter(|r| r.id == run) {
                r.tables.retain(|t| t.id != *table);
            }
            level.runs.retain(|r| !r.tables.is_empty());
        }
        Change::ReplaceTable { keyspace, table } => {
            let keyspace = keyspace_mut(version, *keyspace)?;
            let (slot, run, _) = keyspace
                .find(table.id)
                .ok_or_else(|| format!("table {} is not there", table.id))?;
            let level = slot_mut(keyspace, slot)?;
            for r in level.runs.iter_mut().filter(|r| r.id == run) {
                for t in r.tables.iter_mut().filter(|t| t.id == table.id) {
                    *t = Arc::clone(table);
                }
            }
        }
        Change::SetFlushed {
            keyspace,
            part,
            flushed,
        } => {
            part_mut(version, *keyspace, *part)?.set_flushed(*flushed);
        }
        Change::SetAhead {
            keyspace,
            part,
            ahead,
        } => part_mut(version, *keyspace, *part)?
            .ahead
            .push(ahead.clone()),
        Change::SetTiny {
            keyspace,
            part,
            duplicates,
            tiny,
        } => {
            let part = part_mut(version, *keyspace, *part)?;
            part.duplicates = *duplicates;
            part.tiny.clone_from(tiny);
        }
        Change::SetLogFloor { segment } => version.log_floor = version.log_floor.max(*segment),
        Change::SetLogBase { seq } => version.log_base = version.log_base.max(*seq),
        Change::SetLogReach { seq } => version.log_reach = *seq,
        Change::SetCounters {
            next_id,
            next_keyspace,
            last_seq,
        } => {
            version.next_id = version.next_id.max(*next_id);
            version.next_keyspace = version.next_keyspace.max(*next_keyspace);
            version.last_seq = version.last_seq.max(*last_seq);
        }
    }
    Ok(())
}

fn keyspace_mut(version: &mut Version, id: KeyspaceId) -> Result<&mut Keyspace, String> {
    let keyspace = version.keyspaces.get_mut(&id);
    keyspace
        .map(Arc::make_mut)
        .ok_or_else(|| format!("keyspace {id} does not exist"))
}

fn part_mut(version: &mut Version, id: KeyspaceId, part: u32) -> Result<&mut Part, String> {
    let part_of = keyspace_mut(version, id)?.parts.get_mut(part as usize);
    part_of.ok_or_else(|| format!("part {part} does not exist"))
}

fn slot_mut(keyspace: &mut Keyspace, slot: Slot) -> Result<&mut Level, String> {
    match slot {
        Slot::Newest(part) => {
            let part = keyspace.parts.get_mut(part as usize);
            part.map(|p| &mut p.newest)
                .ok_or_else(|| format!("{slot} does not exist"))
        }
        Slot::Level(level) => {
            let level = level as usize;
            if level >= LEVELS_MAX {
                return Err(format!("{slot} lies beyond the last level, L{LEVELS_MAX}"));
            }
            if keyspace.levels.len() <= level {
                keyspace.levels.resize_with(level + 1, Level::default);
            }
            Ok(&mut keyspace.levels[level])
        }
    }
}

fn level_mut(version: &mut Version, id: KeyspaceId, slot: Slot) -> Result<&mut Level, String> {
    slot_mut(keyspace_mut(version, id)?, slot)
}

impl Edit {
    /// The byte encoding.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.length(self.changes.len());
        for change in &self.changes {
            encode_change(change, &mut w);
        }
        w.finish()
    }

    /// The edit encoded in `bytes`.
    ///
    /// # Errors
    /// In words, when the bytes are not an edit.
    pub fn decode(bytes: &[u8]) -> Result<Edit, String> {
        let mut r = Reader::new(bytes);
        let count = r.length()?;
        let mut changes = Vec::new();
        for _ in 0..count {
            changes.push(decode_change(&mut r)?);
        }
        r.end()?;
        Ok(Edit { changes })
    }
}

fn encode_change(change: &Change, w: &mut Writer) {
    match change {
        Change::AddKeyspace {
            keyspace,
            name,
            cuts,
        } => {
            w.byte(1);
            w.number(keyspace.0.into());
            w.bytes(name.as_bytes());
            encode_cuts(cuts, w);
        }
        Change::SetCuts { keyspace, cuts } => {
            w.byte(11);
            w.number(keyspace.0.into());
            encode_cuts(cuts, w);
        }
        Change::DropKeyspace { keyspace } => {
            w.byte(2);
            w.number(keyspace.0.into());
        }
        Change::AddTable {
            keyspace,
            slot,
            run,
            behind,
            table,
        } => {
            w.byte(3);
            w.number(keyspace.0.into());
            encode_slot(*slot, w);
            w.number(run.0);
            w.number(behind.map_or(0, |b| b.0));
            encode_table(table, w);
        }
        Change::RemoveTable { keyspace, table } => {
            w.byte(4);
            w.number(keyspace.0.into());
            w.number(table.0);
        }
        Change::ReplaceTable { keyspace, table } => {
            w.byte(5);
            w.number(keyspace.0.into());
            encode_table(table, w);
        }
        Change::SetFlushed {
            keyspace,
            part,
            flushed,
        } => {
            w.byte(6);
            w.number(keyspace.0.into());
            w.number((*part).into());
            w.number(flushed.0);
        }
        Change::SetAhead {
            keyspace,
            part,
            ahead,
        } => {
            w.byte(12);
            w.number(keyspace.0.into());
            w.number((*part).into());
            w.bytes(&ahead.start);
            w.byte(ahead.end.is_some().into());
            if let Some(end) = &ahead.end {
                w.bytes(end);
            }
            w.number(ahead.flushed.0);
        }
        Change::SetTiny {
            keyspace,
            part,
            duplicates,
            tiny,
        } => {
            w.byte(13);
            w.number(keyspace.0.into());
            w.number((*part).into());
            w.number((*duplicates).into());
            w.length(tiny.len());
            for tiny in tiny {
                w.bytes(&tiny.start);
                w.number(tiny.writes);
            }
        }
        Change::SetLogFloor { segment } => {
            w.byte(7);
            w.number(*segment);
        }
        Change::SetLogBase { seq } => {
            w.byte(10);
            w.number(seq.0);
        }
        Change::SetLogReach { seq } => {
            w.byte(9);
            w.number(seq.0);
        }
        Change::SetCounters {
            next_id,
            next_keyspace,
            last_seq,
        } => {
            w.byte(8);
            w.number(*next_id);
            w.number((*next_keyspace).into());
            w.number(last_seq.0);
        }
    }
}

fn decode_change(r: &mut Reader<'_>) -> Result<Change, String> {
    Ok(match r.byte()? {
        1 => {
            let keyspace = KeyspaceId(r.number32()?);
            let name = String::from_utf8(r.bytes()?.to_vec())
                .map_err(|_| "a keyspace name is not UTF-8".to_string())?;
            Change::AddKeyspace {
                keyspace,
                name,
                cuts: decode_cuts(r)?,
            }
        }
        2 => Change::DropKeyspace {
            keyspace: KeyspaceId(r.number32()?),
        },
        3 => Change::AddTable {
            keyspace: KeyspaceId(r.number32()?),
            slot: decode_slot(r)?,
            run: RunId(r.number()?),
            behind: Some(r.number()?).filter(|&b| b != 0).map(RunId),
            table: Arc::new(decode_table(r)?),
        },
        4 => Change::RemoveTable {
            keyspace: KeyspaceId(r.number32()?),
            table: TableId(r.number()?),
        },
        5 => Change::ReplaceTable {
            keyspace: KeyspaceId(r.number32()?),
            table: Arc::new(decode_table(r)?),
        },
        6 => Change::SetFlushed {
            keyspace: KeyspaceId(r.number32()?),
            part: r.number32()?,
            flushed: SeqNo(r.number()?),
        },
        7 => Change::SetLogFloor {
            segment: r.number()?,
        },
        8 => Change::SetCounters {
            next_id: r.number()?,
            next_keyspace: r.number32()?,
            last_seq: SeqNo(r.number()?),
        },
        9 => Change::SetLogReach {
            seq: SeqNo(r.number()?),
        },
        10 => Change::SetLogBase {
            seq: SeqNo(r.number()?),
        },
        11 => Change::SetCuts {
            keyspace: KeyspaceId(r.number32()?),
            cuts: decode_cuts(r)?,
        },
        12 => Change::SetAhead {
            keyspace: KeyspaceId(r.number32()?),
            part: r.number32()?,
            ahead: Ahead {
                start: r.bytes()?.into(),
                end: match r.flag()? {
                    true => Some(r.bytes()?.into()),
                    false => None,
                },
                flushed: SeqNo(r.number()?),
            },
        },
        13 => Change::SetTiny {
            keyspace: KeyspaceId(r.number32()?),
            part: r.number32()?,
            duplicates: r.number32()?,
            tiny: decode_tiny(r)?,
        },
        kind => return Err(format!("unknown kind of change {kind}")),
    })
}

fn encode_cuts(cuts: &Cuts, w: &mut Writer) {
    w.length(cuts.bounds().len());
    for bound in cuts.bounds() {
        w.bytes(bound);
    }
}

fn decode_cuts(r: &mut Reader<'_>) -> Result<Cuts, String> {
    let count = r.length()?;
    let mut bounds = Vec::new();
    for _ in 0..count {
        bounds.push(r.bytes()?.into());
    }
    Cuts::new(bounds)
}

fn decode_tiny(r: &mut Reader<'_>) -> Result<Vec<Tiny>, String> {
    let count = r.length()?;
    if count > TINY_MAX {
        return Err(format!("{count} tiny ranges, at most {TINY_MAX} allowed"));
    }
    let mut tiny = Vec::new();
    for _ in 0..count {
        tiny.push(Tiny {
            start: r.bytes()?.into(),
            writes: r.number()?,
        });
    }
    Ok(tiny)
}

fn encode_slot(slot: Slot, w: &mut Writer) {
    let (kind, index) = match slot {
        Slot::Newest(part) => (0, part),
        Slot::Level(level) => (1, level),
    };
    w.byte(kind);
    w.number(index.into());
}

fn decode_slot(r: &mut Reader<'_>) -> Result<Slot, String> {
    let kind = r.byte()?;
    let index = r.number32()?;
    match kind {
        0 => Ok(Slot::Newest(index)),
        1 => Ok(Slot::Level(index)),
        _ => Err(format!("unknown kind of slot {kind}")),
    }
}

fn encode_extent(extent: &Extent, w: &mut Writer) {
    w.number(extent.tier.0.into());
    w.number(extent.object.0);
    w.number(extent.offset);
    w.number(extent.length);
    w.number(extent.checksum.into());
}

fn decode_extent(r: &mut Reader<'_>) -> Result<Extent, String> {
    let extent = Extent {
        tier: TierId(r.number32()?),
        object: ObjectId(r.number()?),
        offset: r.number()?,
        length: r.number()?,
        checksum: r.number32()?,
    };
    match extent.offset.checked_add(extent.length) {
        Some(_) => Ok(extent),
        None => Err("an extent ends beyond 2^64".to_string()),
    }
}

fn encode_table(table: &TableMeta, w: &mut Writer) {
    w.number(table.id.0);
    w.bytes(&table.range.start);
    w.bytes(&table.range.end);
    w.byte(table.range.end_inclusive.into());
    for n in [
        table.seq_min.0,
        table.seq_max.0,
        table.entries,
        table.deletes,
        table.range_deletes,
        table.raw_bytes,
        table.dead_bytes,
        table.created_us,
    ] {
        w.number(n);
    }
    encode_extent(&table.meta, w);
    w.length(table.data.len());
    for extent in &table.data {
        encode_extent(extent, w);
    }
}

fn decode_table(r: &mut Reader<'_>) -> Result<TableMeta, String> {
    let id = TableId(r.number()?);
    let range = KeyRange {
        start: r.bytes()?.into(),
        end: r.bytes()?.into(),
        end_inclusive: r.flag()?,
    };
    if !range.is_valid() {
        return Err(format!("table {id} has the empty range {range}"));
    }
    let mut numbers = [0u64; 8];
    for n in &mut numbers {
        *n = r.number()?;
    }
    let [
        seq_min,
        seq_max,
        entries,
        deletes,
        range_deletes,
        raw_bytes,
        dead_bytes,
        created_us,
    ] = numbers;
    let meta = decode_extent(r)?;
    let count = r.length()?;
    let mut data = Vec::new();
    for _ in 0..count {
        data.push(decode_extent(r)?);
    }
    Ok(TableMeta {
        id,
        range,
        seq_min: SeqNo(seq_min),
        seq_max: SeqNo(seq_max),
        entries,
        deletes,
        range_deletes,
        raw_bytes,
        dead_bytes,
        created_us,
        meta,
        data,
    })
}
