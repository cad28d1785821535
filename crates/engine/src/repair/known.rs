//! What a damaged manifest still says of keyspaces and tables, though not of
//! their places.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thermocline_model::edit::Change;
use thermocline_model::key::SeqNo;
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::version::KeyspaceId;

use crate::store::is_given_id;
use crate::version::remains::Remains;

/// What the readable edits of a damaged manifest say, wherever they stand.
#[derive(Default)]
pub(super) struct Known {
    pub(super) keyspaces: BTreeMap<KeyspaceId, (String, thermocline_model::cuts::Cuts)>,
    pub(super) dropped: BTreeSet<KeyspaceId>,
    pub(super) tables: BTreeMap<TableId, (KeyspaceId, Arc<TableMeta>)>,
    pub(super) removed: BTreeSet<TableId>,
    pub(super) next_keyspace: u32,
    /// Above every number that any edit gives or names: a table of which nothing but
    /// its edit is left is known by its number still.
    pub(super) next_id: u64,
    /// Where the log begins, by the last edit that says so.
    pub(super) log_base: SeqNo,
    /// The first segment that the log needs, by any edit.
    pub(super) log_floor: u64,
    /// How far the log must reach, by the last edit that says so.
    pub(super) log_reach: SeqNo,
    /// The next number before any edit that cannot be read.
    pub(super) next_keyspace_before: u32,
}

impl Known {
    pub(super) fn of(remains: &Remains) -> Known {
        let before = remains.version.as_ref().map_or(0, |v| v.next_keyspace);
        let mut known = Known {
            next_keyspace: before,
            next_keyspace_before: before,
            next_id: remains.version.as_ref().map_or(0, |v| v.next_id),
            ..Known::default()
        };
        for change in remains.edits.iter().flat_map(|e| &e.changes) {
            match change {
                Change::AddKeyspace {
                    keyspace,
                    name,
                    cuts,
                } => {
                    known
                        .keyspaces
                        .insert(*keyspace, (name.clone(), cuts.clone()));
                }
                Change::SetCuts { keyspace, cuts } => {
                    if let Some((_, known)) = known.keyspaces.get_mut(keyspace) {
                        known.clone_from(cuts);
                    }
                }
                // No store does that.
                Change::DropKeyspace { keyspace } if *keyspace == KeyspaceId::DEFAULT => {}
                Change::DropKeyspace { keyspace } => {
                    known.keyspaces.remove(keyspace);
                    known.dropped.insert(*keyspace);
                    let (dropped, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
                        std::mem::take(&mut known.tables)
                            .into_iter()
                            .partition(|(_, (k, _))| k == keyspace);
                    known.removed.extend(dropped.into_keys());
                    known.tables = rest;
                }
                Change::AddTable {
                    keyspace, table, ..
                }
                | Change::ReplaceTable { keyspace, table } => {
                    let objects = table.data.iter().chain([&table.meta]);
                    known.note_id(table.id.0);
                    objects.for_each(|extent| known.note_id(extent.object.0));
                    known.removed.remove(&table.id);
                    known
                        .tables
                        .insert(table.id, (*keyspace, Arc::clone(table)));
                }
                Change::RemoveTable { table, .. } => {
                    known.note_id(table.0);
                    known.tables.remove(table);
                    known.removed.insert(*table);
                }
                Change::SetCounters {
                    next_id,
                    next_keyspace,
                    ..
                } => {
                    known.note_id(next_id.saturating_sub(1));
                    known.next_keyspace = known.next_keyspace.max(*next_keyspace);
                }
                Change::SetLogBase { seq } => known.log_base = known.log_base.max(*seq),
                Change::SetLogReach { seq } => known.log_reach = *seq,
                Change::SetLogFloor { segment } => known.log_floor = known.log_floor.max(*segment),
                Change::SetFlushed { .. } | Change::SetAhead { .. } | Change::SetTiny { .. } => {}
            }
        }
        known
    }

    fn note_id(&mut self, id: u64) {
        if is_given_id(id) {
            self.next_id = self.next_id.max(id + 1);
        }
    }

    pub(super) fn name(&self, keyspace: KeyspaceId) -> String {
        self.keyspaces
            .get(&keyspace)
            .map_or_else(|| keyspace.to_string(), |(name, _)| name.clone())
    }
}
