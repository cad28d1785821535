//! Saving what can be read of one damaged table, with its meta or without it.

use std::collections::HashSet;
use std::sync::Arc;

use thermocline_model::cover::Cover;
use thermocline_model::table::{Extent, TableMeta};

use super::rewrite::{self, Merged, Plan};
use super::{LostRange, Repair};
use crate::error::Result;
use crate::store::{ObjectKind, ObjectName};
use crate::table::Table;
use crate::table::salvage::{self, Entry, Piece};
use crate::verify::find;
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

    /// A table as a source of entries, and its range deletes.
    pub(super) fn open_source(
        &self,
        keyspace: &str,
        meta: &Arc<TableMeta>,
    ) -> Result<(Merged, Cover)> {
        let table = self.open(meta)?;
        let cover = table.cover().clone();
        Ok((Merged::table(keyspace, table)?, cover))
    }

    /// Writes a damaged table anew; nothing if nothing of it can be read.
    pub(super) fn rescue(
        &mut self,
        keyspace: &str,
        meta: &Arc<TableMeta>,
    ) -> Result<Vec<Arc<TableMeta>>> {
        let (source, cover) = match self.open_source(keyspace, meta) {
            Ok(opened) => opened,
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
            meta_tier: self.tier_there(meta.meta.tier),
            data_tier: self.tier_there(meta.tier()),
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
        let listed = self.listed_blocks(meta);
        let mut blocks: Vec<Vec<Entry>> = Vec::new();
        for extent in &meta.data {
            let name = ObjectName {
                id: extent.object.0,
                kind: ObjectKind::Data,
            };
            let Ok(reader) = self.home.store(extent).and_then(|s| s.open(name)) else {
                return Ok(None);
            };
            let whole = extent.offset.saturating_add(extent.length);
            let end = reader.size_bytes().min(whole);
            let mut bytes = vec![0; end.saturating_sub(extent.offset) as usize];
            if reader.read_at(extent.offset, &mut bytes).is_err() {
                return Ok(None);
            }
            // A block says nothing of its table. Without the list that names
            // its checksum, it is taken for one of this table's only where the
            // object may still be the one that was written.
            if listed.is_none() && (reader.size_bytes() != whole || self.is_copy(extent, &bytes)?) {
                return Ok(None);
            }
            for piece in salvage::pieces(&bytes) {
                if let Piece::Block { stored, .. } = piece
                    && listed
                        .as_ref()
                        .is_none_or(|l| l.contains(&checksum(stored)))
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

    /// Whether `bytes`, which lie where `extent` was, are another object's.
    fn is_copy(&self, extent: &Extent, bytes: &[u8]) -> Result<bool> {
        if crc32c::crc32c(bytes) == extent.checksum {
            return Ok(false);
        }
        for other in find::objects(&self.home)? {
            let is_here = (other.tier, other.name.id) == (extent.tier, extent.object.0);
            let is_like = other.name.kind == ObjectKind::Data
                && !is_here
                && other.size_bytes == bytes.len() as u64;
            // What cannot be read is like nothing.
            if is_like && find::read(&self.home, &other).is_ok_and(|found| found == bytes) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The checksums of a table's blocks, if its meta can be read.
    fn listed_blocks(&self, meta: &TableMeta) -> Option<HashSet<u32>> {
        let name = ObjectName {
            id: meta.meta.object.0,
            kind: ObjectKind::Meta,
        };
        let reader = self.home.store(&meta.meta).ok()?.open(name).ok()?;
        if meta.meta.offset.checked_add(meta.meta.length)? > reader.size_bytes() {
            return None;
        }
        let mut bytes = vec![0; meta.meta.length as usize];
        reader.read_at(meta.meta.offset, &mut bytes).ok()?;
        let decoded = salvage::meta(&bytes).ok()?;
        let is_it = crc32c::crc32c(&bytes) == meta.meta.checksum;
        is_it.then(|| decoded.blocks.entries.iter().map(|b| b.checksum).collect())
    }
}

/// What stands at the end of a block, which its table's meta repeats.
fn checksum(stored: &[u8]) -> u32 {
    stored
        .last_chunk()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
