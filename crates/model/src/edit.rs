//! Edits: how one version becomes the next.
//!
//! An edit is a list of changes that take effect together. It is what the
//! manifest records, so every change has a byte encoding, described in
//! `docs/formats/manifest.md`. [`Edit::apply`] only does what the changes say
//! and refuses what makes no sense (a table removed that is not there);
//! whether the outcome is lawful is for [`crate::check`] to say.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cuts::Cuts;
use crate::key::SeqNo;
use crate::recut::recut;
use crate::table::{TableId, TableMeta};
use crate::version::{
    Ahead, Keyspace, KeyspaceId, LEVELS_MAX, Level, Part, Run, RunId, Slot, Tiny, Version,
};

mod bytes;

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
