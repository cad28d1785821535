//! Entries that a fold had logged anew, when the log is replayed.
//!
//! They are older than entries that stand before them in the log, so they get memtables of their
//! own, behind all others of their part. Is that the order of recency (I1)? The log that is
//! replayed is the end of what was logged. If it holds an entry of a key, it holds all later ones
//! of that key that are in no table. So of a key, the newest entry that was replayed as it was
//! written is no older than the newest that was logged anew, and where both are the same entry,
//! either will do. Range deletes are compared by number wherever they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_model::key::{Prefix, SeqNo};
use thermocline_model::version::{Keyspace, KeyspaceId};

use crate::batch::Operation;
use crate::engine::{Engine, LiveMemtable, PartView, ReadView, Space};

/// By keyspace, a view like the real one whose memtables are for what was logged anew.
#[derive(Default)]
pub(super) struct Restated {
    views: BTreeMap<KeyspaceId, ReadView>,
}

impl Restated {
    /// Memory of them, in bytes.
    pub(super) fn resident_bytes(&self) -> u64 {
        let parts = self.views.values().flat_map(|view| &view.parts);
        parts
            .map(|part| part.active.table.resident_bytes() as u64)
            .sum()
    }

    /// The one of a part, if there are any of its keyspace.
    pub(super) fn of(&mut self, id: KeyspaceId, part: usize) -> Option<&mut Arc<LiveMemtable>> {
        let view = self.views.get_mut(&id)?;
        view.parts.get_mut(part).map(|part| &mut part.active)
    }

    /// Those that have entries, and whose they are.
    pub(super) fn take(self) -> impl Iterator<Item = (KeyspaceId, usize, Arc<LiveMemtable>)> {
        let views = self.views.into_iter();
        let all = views.flat_map(|(id, view)| {
            let parts = view.parts.into_iter().enumerate();
            parts.map(move |(at, part)| (id, at, part.active))
        });
        all.filter(|(.., memtable)| !memtable.is_empty())
    }
}

impl Engine {
    /// Notes an entry that was logged anew, `at` a number and in a segment.
    ///
    /// # Errors
    /// In words, if it claims to be no older than that.
    pub(super) fn restate(
        &self,
        restated: &mut Restated,
        space: &Space,
        keyspace: &Keyspace,
        operation: &Operation<'_>,
        at: (SeqNo, u64),
    ) -> Result<(), &'static str> {
        let (own, segment) = at;
        let seq = operation.restated.unwrap_or(own);
        if seq >= own {
            return Err("an entry logged anew is not older than that");
        }
        let view = restated.views.entry(space.id).or_insert_with(|| {
            let view = space.view.load();
            let part = |part: &PartView| PartView {
                active: self.new_memtable(Prefix::default()),
                twins: Vec::new(),
                sealed: Vec::new(),
                ..part.clone()
            };
            let parts = view.parts.iter().map(part).collect();
            ReadView::new(Arc::clone(&view.cuts), parts, Arc::clone(&view.tree))
        });
        let view: &ReadView = view;
        super::each_not_flushed(keyspace, operation, seq, |part, key, value| {
            let memtable: &LiveMemtable = &view.parts[part].active;
            memtable.oldest_segment.fetch_min(segment, Ordering::AcqRel);
            memtable.last_seq.fetch_max(seq.0, Ordering::AcqRel);
            memtable.first_seq.fetch_min(seq.0, Ordering::AcqRel);
            memtable.restated_upto.fetch_max(own.0, Ordering::AcqRel);
            let taker = |at| (at == part).then_some(memtable);
            crate::write::apply(&self.lookup, view, seq, operation.kind, key, value, &taker);
        });
        Ok(())
    }
}
