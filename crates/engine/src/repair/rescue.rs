//! Saving what can be read of one damaged table, with its meta or without it.

use std::sync::Arc;

use thermocline_model::cover::Cover;
use thermocline_model::table::TableMeta;

use super::rewrite::{self, Merged, Plan};
use super::{LostRange, Repair};
use crate::error::Result;
use crate::store::{ObjectKind, ObjectName};
use crate::table::Table;
use crate::table::salvage::{self, Entry, Piece};
use crate::version::tree::OpenTable;

impl Repair<'_> {
    pub(super) fn open(&self, meta: &Arc<TableMeta>) -> Result<Arc<Table>> {
        OpenTable::new(Arc::clone(meta), &self.home, None)?
            .table()
            .cloned()
    }

    pub(super) fn is_sound(&self, meta: &Arc<TableMeta>) -> bool {
        let Ok(table) = self.open(meta) else {
            return false;
        };
        let mut sound = true;
        table.verify_all(&mut |_| sound = false, &mut |_| {});
        sound
    }

    /// Writes a damaged table anew; nothing if nothing of it can be read.
    pub(super) fn rescue(
        &mut self,
        keyspace: &str,
        meta: &Arc<TableMeta>,
    ) -> Result<Vec<Arc<TableMeta>>> {
        let (source, cover) = match self.open(meta) {
            Ok(table) => {
                let cover = table.cover().clone();
                (Merged::table(keyspace, table), cover)
            }
            Err(error) => match self.entries_without_meta(keyspace, meta)? {
                Some(entries) => (Merged::entries(entries), Cover::default()),
                None => {
                    self.lose(keyspace, meta, &error.to_string());
                    return Ok(Vec::new());
                }
            },
        };
        let plan = Plan {
            sources: vec![source],
            cover,
            meta_tier: meta.meta.tier,
            data_tier: meta.tier(),
            table_bytes: u64::MAX,
        };
        let tables = rewrite::write(self, plan)?;
        match tables.is_empty() {
            true => self.lose(keyspace, meta, "none of its blocks can be read"),
            false => self.report.tables_rewritten += 1,
        }
        Ok(tables)
    }

    /// The entries of a table whose meta cannot be read, from its blocks. None
    /// where these do not say all: where it had range deletes, which are in the
    /// meta, or dead blocks, which only the meta tells from live ones.
    pub(super) fn entries_without_meta(
        &mut self,
        keyspace: &str,
        meta: &TableMeta,
    ) -> Result<Option<Vec<Entry>>> {
        if meta.range_deletes > 0 || meta.dead_bytes > 0 {
            return Ok(None);
        }
        let is_loaded = meta.seq_min == meta.seq_max;
        let mut blocks: Vec<Vec<Entry>> = Vec::new();
        for extent in &meta.data {
            let name = ObjectName {
                id: extent.object.0,
                kind: ObjectKind::Data,
            };
            let Ok(reader) = self.home.store(extent)?.open(name) else {
                return Ok(None);
            };
            let end = reader
                .size_bytes()
                .min(extent.offset.saturating_add(extent.length));
            let mut bytes = vec![0; end.saturating_sub(extent.offset) as usize];
            if reader.read_at(extent.offset, &mut bytes).is_err() {
                return Ok(None);
            }
            for piece in salvage::pieces(&bytes) {
                if let Piece::Block { stored, .. } = piece
                    && let Ok(entries) = salvage::entries(stored)
                {
                    blocks.push(entries);
                }
            }
        }
        blocks.sort_by(|a, b| {
            a.first()
                .map(|e| (&e.0, std::cmp::Reverse(e.1)))
                .cmp(&b.first().map(|e| (&e.0, std::cmp::Reverse(e.1))))
        });
        let mut entries: Vec<Entry> = blocks.into_iter().flatten().collect();
        if is_loaded {
            entries.iter_mut().for_each(|e| e.1 = meta.seq_min);
        }
        let ascending = entries
            .windows(2)
            .all(|p| (&p[0].0, std::cmp::Reverse(p[0].1)) < (&p[1].0, std::cmp::Reverse(p[1].1)));
        let within = entries
            .iter()
            .all(|e| e.1 >= meta.seq_min && e.1 <= meta.seq_max && meta.range.contains(&e.0));
        if entries.is_empty() || !ascending || !within {
            return Ok(None);
        }
        let missing = meta.entries.saturating_sub(entries.len() as u64);
        if missing > 0 {
            // Without the meta nobody knows where they lay.
            self.report.key_ranges_lost.push(LostRange {
                keyspace: keyspace.to_string(),
                table: meta.id.0,
                first: meta.range.start.escape_ascii().to_string(),
                last: meta.range.end.escape_ascii().to_string(),
                first_key: meta.range.start.to_vec(),
                last_key: meta.range.end.to_vec(),
                why: format!("the meta and the blocks of {missing} entries cannot be read"),
            });
        }
        Ok(Some(entries))
    }
}
