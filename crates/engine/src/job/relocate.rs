//! Relocate: a table's data goes to another tier.
//!
//! Copy, check, persist, persist the directory, one edit of the manifest; the
//! old object goes when the last reader has left. A crash at any step leaves
//! either the old place in force and an orphan that the next open sweeps, or
//! the new place in force and the old object as the orphan. The copy is
//! compared with the extent's checksum on the way, so damage at the source is
//! reported and never carried along; and it is read back from its device before
//! the commit, so that what was damaged on the way never replaces what is sound.

use std::sync::Arc;

use thermocline_model::edit::{Change, Edit};
use thermocline_model::job::Relocate;
use thermocline_model::table::{Extent, ObjectId, TableMeta};
use thermocline_model::tier::TierId;

use super::Done;
use super::output::store_of;
use super::read_back::{pieces, read_back};
use crate::engine::Engine;
use crate::error::Result;
use crate::events::PlacedTable;
use crate::store::{Advice, ObjectKind, ObjectName};
use crate::version::tree::OpenTable;

impl Engine {
    pub(crate) fn run_relocate(&self, job: &Relocate) -> Result<Done> {
        let table = self.versions.lock().tables.get(&job.table).cloned();
        let Some(table) = table else {
            return Ok(Done::nothing());
        };
        if table.meta.data.iter().all(|e| e.tier == job.to) {
            return Ok(Done::nothing());
        }
        let mut copied = Copied {
            engine: self,
            objects: Vec::new(),
            keep: false,
        };
        let mut data = Vec::with_capacity(table.meta.data.len());
        for extent in &table.meta.data {
            data.push(if extent.tier == job.to {
                *extent
            } else {
                copied.copy(extent, job.to)?
            });
        }
        let bytes = data.iter().map(|e| e.length).sum();
        let meta = Arc::new(TableMeta {
            data,
            ..(*table.meta).clone()
        });
        let open = OpenTable::new(Arc::clone(&meta), &self.home, Some(&table))?;
        open.table_moved_from(&table)?;
        let edit = Edit::of(Change::ReplaceTable {
            keyspace: job.keyspace,
            table: meta,
        });
        let committed = self.commit_edit(edit, vec![Arc::new(open)], &mut |_, _| {});
        if committed.is_err() && self.space(job.keyspace).is_none() {
            // The keyspace was dropped meanwhile.
            return Ok(Done::nothing());
        }
        committed?;
        copied.keep = true;
        self.counters.relocations.add(1);
        self.counters.relocated_bytes.add(bytes);
        let to = &self.tiers[job.to.0 as usize];
        to.counters.relocated_in_bytes.add(bytes);
        to.counters.written_bytes.add(bytes);
        let from = self
            .tiers
            .get(table.meta.tier().0 as usize)
            .map_or("?", |t| t.spec.name());
        let what = format!("table {} from {from} to {}", job.table, to.spec.name());
        let placed = PlacedTable {
            table: job.table.0,
            tier: job.to.0,
            bytes,
            rule: job.reason.rule.clone().into(),
        };
        Ok(Done {
            what,
            tables_in: vec![job.table.0],
            tables_out: vec![placed],
            bytes_in: bytes,
            bytes_out: bytes,
            ..Done::default()
        })
    }
}

/// Copies that no version names yet: deleted unless kept.
struct Copied<'a> {
    engine: &'a Engine,
    objects: Vec<(TierId, u64)>,
    keep: bool,
}

impl Copied<'_> {
    fn copy(&mut self, extent: &Extent, to: TierId) -> Result<Extent> {
        let engine = self.engine;
        let name = ObjectName {
            id: extent.object.0,
            kind: ObjectKind::Data,
        };
        let source = store_of(engine, extent.tier)?.open(name)?;
        let object = engine.new_id();
        let mut writer = store_of(engine, to)?.create(ObjectName {
            id: object,
            kind: ObjectKind::Data,
        })?;
        self.objects.push((to, object));
        source.advise(extent.offset, extent.length, Advice::Sequential);
        pieces(&*source, ObjectKind::Data, extent, |piece| {
            writer.append(piece)
        })?;
        writer.persist()?;
        let copy = Extent {
            tier: to,
            object: ObjectId(object),
            offset: 0,
            ..*extent
        };
        // What the device says it has written is read back, past the cache,
        // before the only other copy is given up.
        read_back(&**store_of(engine, to)?, ObjectKind::Data, &copy)?;
        Ok(copy)
    }
}

impl Drop for Copied<'_> {
    fn drop(&mut self) {
        if !self.keep {
            for &(tier, object) in &self.objects {
                self.engine.discard(tier, object, ObjectKind::Data);
            }
        }
    }
}
