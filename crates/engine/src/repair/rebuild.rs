//! Putting a version together when places are lost: one run a keyspace, of the
//! tables that lie on the tiers and of what is in the log.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use thermocline_model::cover::{Cover, RangeDelete};
use thermocline_model::key::SeqNo;
use thermocline_model::table::{Extent, TableId, TableMeta};
use thermocline_model::tier::TierId;
use thermocline_model::version::{Keyspace, KeyspaceId, Level, Run, RunId, Version};

use super::known::Known;
use super::rewrite::{self, Merged, Plan};
use super::{LostRange, LostTable, Repair};
use crate::error::Result;
use crate::open::DEFAULT_KEYSPACE;
use crate::store::ObjectKind;
use crate::table::salvage::{self, Entry, Piece};
use crate::verify::find::{self, Found, WithoutData};
use crate::version::remains::Remains;

impl Repair<'_> {
    /// Places are lost: puts a version together from what lies on the tiers.
    pub(super) fn rebuild(&mut self, remains: Remains) -> Result<Version> {
        self.identify(remains.header.as_ref())?;
        let known = Known::of(&remains);
        self.next_id = self.next_id.max(known.next_id);
        self.mark()?;
        let mut version = Version::empty();
        version.next_keyspace = known.next_keyspace.max(1);
        self.last_seq = remains.version.as_ref().map_or(SeqNo::ZERO, |v| v.last_seq);
        if remains.version.is_none() {
            self.report.lost.push(
                "no manifest can be read, so all tables are in the default keyspace now: if there were \
                 others, the keys they had in common hide each other"
                    .to_string(),
            );
        }
        self.report.notes.push(
            "places were lost: a table that a merge had replaced, but that was not deleted yet, may bring \
             back keys whose deletes had been merged away"
                .to_string(),
        );
        let tables = self.find_tables(&known)?;
        let floor = self.lowest_segment(remains.version.as_ref().map_or(0, |v| v.log_floor))?;
        let mut log = self.read_log(floor, known.log_base, known.log_reach, true)?;
        self.note_log_start(floor, known.log_floor)?;
        self.note_log_end(floor, log.last.max(known.log_base))?;
        self.last_seq = self.last_seq.max(log.last);
        for (_, table) in &tables {
            self.last_seq = self.last_seq.max(table.seq_max);
        }
        let mut ids: Vec<KeyspaceId> = known.keyspaces.keys().copied().collect();
        ids.push(KeyspaceId::DEFAULT);
        // One that is not known and was not dropped.
        ids.extend(
            log.entries
                .keys()
                .chain(log.range_deletes.keys())
                .filter(|id| id.0 >= known.next_keyspace_before),
        );
        ids.extend(tables.iter().map(|(id, _)| *id));
        ids.sort_unstable();
        ids.dedup();
        for id in ids.into_iter().filter(|id| !known.dropped.contains(id)) {
            let name = match known.keyspaces.get(&id) {
                Some((name, _)) => name.clone(),
                None if id == KeyspaceId::DEFAULT => DEFAULT_KEYSPACE.to_string(),
                None => {
                    let name = format!("recovered-{id}");
                    self.report.lost.push(format!(
                        "the name of keyspace {id}, which is {name:?} now, and where it was cut"
                    ));
                    name
                }
            };
            let cuts = match known.keyspaces.get(&id) {
                Some((_, cuts)) => cuts.clone(),
                None if id == KeyspaceId::DEFAULT => self.options.default_cuts()?,
                None => Default::default(),
            };
            let of_this = tables
                .iter()
                .filter(|(k, _)| *k == id)
                .map(|(_, t)| Arc::clone(t))
                .collect();
            let entries = log.entries.remove(&id).unwrap_or_default();
            let range_deletes = log.range_deletes.remove(&id).unwrap_or_default();
            let run = self.one_run(&name, of_this, entries, &range_deletes)?;
            let mut keyspace = Keyspace::new(id, &name, cuts);
            if !run.is_empty() {
                let run = Run {
                    id: RunId(self.new_id()),
                    tables: run,
                };
                keyspace.levels.push(Level { runs: vec![run] });
            }
            version.next_keyspace = version.next_keyspace.max(id.0 + 1);
            version.keyspaces.insert(id, Arc::new(keyspace));
        }
        let nameless = (1..known.next_keyspace)
            .map(KeyspaceId)
            .any(|id| !version.keyspaces.contains_key(&id) && !known.dropped.contains(&id));
        if remains.version.is_some() && (nameless || !remains.is_edit_last) {
            self.report.lost.push(
                "empty keyspaces, if what cannot be read of the manifest created any".to_string(),
            );
        }
        if remains.version.is_some() {
            self.report.lost.push(
                "tables of which neither an edit nor a file can be read any more, if what cannot be read \
                 of the manifest added any"
                    .to_string(),
            );
        }
        // What the log held is in tables now.
        let segments = self.log_segments()?;
        version.log_floor = segments.last().map_or(0, |s| s.0 + 1).max(floor);
        self.segments = segments.iter().map(|s| s.0).collect();
        for keyspace in version.keyspaces.values_mut() {
            for part in &mut Arc::make_mut(keyspace).parts {
                part.flushed = self.last_seq;
            }
        }
        Ok(version)
    }

    /// Every table that lies on the tiers and was not removed, with its
    /// keyspace.
    fn find_tables(&mut self, known: &Known) -> Result<Vec<(KeyspaceId, Arc<TableMeta>)>> {
        let objects = find::objects(&self.home)?;
        let mut found: BTreeMap<TableId, (KeyspaceId, Arc<TableMeta>)> = BTreeMap::new();
        let mut loaded = Vec::new();
        let mut dataless = Vec::new();
        let mut taken = HashSet::new();
        for meta in objects.iter().filter(|o| o.name.kind == ObjectKind::Meta) {
            match find::table(&self.home, meta, &objects, &taken)? {
                Found::Unreadable(_) => {
                    let named = known
                        .tables
                        .values()
                        .any(|(_, t)| t.meta.object.0 == meta.name.id);
                    if !named {
                        self.report.lost.push(format!(
                            "{}: the meta of a table cannot be read",
                            meta.path(&self.home).display()
                        ));
                    }
                }
                Found::WithoutData(without) => dataless.push(without),
                Found::Table(table) => {
                    let id = table.record.id;
                    if known.removed.contains(&id) {
                        continue;
                    }
                    let record = known.tables.get(&id);
                    let keyspace = record.map_or(KeyspaceId::DEFAULT, |(k, _)| *k);
                    // Also where no other keyspace is known: it may be the edit that
                    // made one that is lost. Without any edit it is said of all.
                    if record.is_none() && known.next_keyspace > 0 {
                        self.report_stranger(&table.record);
                    }
                    let mut meta = table.record;
                    taken.extend(meta.data.iter().map(|e| (e.tier, e.object)));
                    match record {
                        // Written before its number was known.
                        Some((_, r)) if table.is_loaded => {
                            (meta.seq_min, meta.seq_max) = (r.seq_min, r.seq_max)
                        }
                        None if table.is_loaded => loaded.push(id),
                        _ => {}
                    }
                    // All of it was read, and will be again.
                    self.meter.add(meta.size_bytes() / 2);
                    found.insert(id, (keyspace, Arc::new(meta)));
                }
            }
        }
        // A second copy of a meta finds no data, and nothing is lost.
        let is_known = |id| known.tables.contains_key(&id) || known.removed.contains(&id);
        dataless.retain(|w| !is_known(w.id) && !found.contains_key(&w.id));
        for without in dataless {
            self.lose_dataless(&without);
        }
        self.number_loaded(&mut found, &loaded);
        for (id, (keyspace, record)) in &known.tables {
            if found.contains_key(id) {
                continue;
            }
            let name = known.name(*keyspace);
            let tables = match self.entries_without_meta(&name, record)? {
                Some(entries) => rewrite::write(
                    self,
                    Plan {
                        sources: vec![Merged::entries(entries)],
                        cover: Cover::default(),
                        meta_tier: self.tier_there(record.meta.tier),
                        data_tier: self.tier_there(record.tier()),
                        table_bytes: u64::MAX,
                    },
                )?,
                None => {
                    self.lose(&name, record, "an edit that cannot be read removed it, or it is gone, or its meta cannot be read");
                    Vec::new()
                }
            };
            found.extend(tables.into_iter().map(|t| (t.id, (*keyspace, t))));
        }
        let data = objects.iter().filter(|o| o.name.kind == ObjectKind::Data);
        for object in data {
            let is_here = |e: &Extent| (e.tier, e.object.0) == (object.tier, object.name.id);
            let known = known.tables.values().chain(found.values());
            if !known.flat_map(|(_, t)| &t.data).any(is_here) {
                self.report_nameless(object)?;
            }
        }
        Ok(found.into_values().collect())
    }

    /// Says that a table was lost of which nothing but the meta is there.
    fn lose_dataless(&mut self, without: &WithoutData) {
        let why = "its data is not to be found";
        self.report.tables_lost.push(LostTable {
            table: without.id.0,
            keyspace: String::new(),
            range: without.range.to_string(),
            entries: without.entries,
            why: why.to_string(),
        });
        let (first, last) = (&without.range.start, &without.range.end);
        self.lose_range(without.id.0, first, last, why);
    }

    /// Says that entries of a keyspace that is not known were lost.
    fn lose_range(&mut self, table: u64, first: &[u8], last: &[u8], why: &str) {
        self.report.key_ranges_lost.push(LostRange {
            keyspace: String::new(),
            table,
            first: first.escape_ascii().to_string(),
            last: last.escape_ascii().to_string(),
            first_key: first.to_vec(),
            last_key: last.to_vec(),
            why: why.to_string(),
        });
    }

    /// Says what is in a data object whose meta is not to be found.
    fn report_nameless(&mut self, object: &find::OnDisk) -> Result<()> {
        let bytes = find::read(&self.home, object)?;
        let mut keys = Vec::new();
        let mut is_whole = !bytes.is_empty();
        for piece in salvage::pieces(&bytes) {
            if let Piece::Block { stored, .. } = piece
                && let Ok(entries) = salvage::entries(stored)
            {
                keys.extend(entries.first().map(|e| e.0.clone()));
                keys.extend(entries.last().map(|e| e.0.clone()));
            } else {
                is_whole = false;
            }
        }
        if !is_whole {
            self.report.lost.push(format!(
                "what cannot be read of {}, of a table of which nothing is known: its meta is not to be \
                 found",
                object.name
            ));
        }
        if let (Some(first), Some(last)) = (keys.iter().min(), keys.iter().max()) {
            let why = format!("{} is of no table that is known", object.name);
            self.lose_range(object.name.id, first, last, &why);
            // Range deletes stand in the meta, and reach beyond the keys of the data.
            self.report.lost.push(format!(
                "range deletes of the table of {}, if it had any: its meta is not to be found",
                object.name
            ));
        }
        Ok(())
    }

    /// Says that a table may be in a keyspace that is not its own.
    fn report_stranger(&mut self, record: &TableMeta) {
        let why = "the edit that says in which keyspace it is cannot be read: it is in the default one now";
        let (first, last) = (&record.range.start, &record.range.end);
        self.lose_range(record.id.0, first, last, why);
    }

    /// Bulk-loaded tables whose number is not known are taken to be newer than
    /// every table written before them.
    fn number_loaded(
        &mut self,
        found: &mut BTreeMap<TableId, (KeyspaceId, Arc<TableMeta>)>,
        loaded: &[TableId],
    ) {
        for id in loaded {
            let before = found
                .range(..id)
                .filter(|(other, _)| !loaded.contains(other));
            let seq = before
                .map(|(_, (_, t))| t.seq_max)
                .max()
                .unwrap_or(SeqNo(1));
            if let Some((_, table)) = found.get_mut(id) {
                let table = Arc::make_mut(table);
                (table.seq_min, table.seq_max) = (seq, seq);
            }
        }
        if !loaded.is_empty() {
            self.report.lost.push(format!(
                "when {} tables were bulk loaded is not known: they are taken to be newer than the \
                 tables written before them and older than those written after",
                loaded.len()
            ));
        }
    }

    /// Makes one run of tables that may overlap and of log entries.
    fn one_run(
        &mut self,
        keyspace: &str,
        mut tables: Vec<Arc<TableMeta>>,
        mut log: Vec<Entry>,
        range_deletes: &[RangeDelete],
    ) -> Result<Vec<Arc<TableMeta>>> {
        if !log.is_empty() || !range_deletes.is_empty() {
            log.sort_by(|a, b| (&a.0, std::cmp::Reverse(a.1)).cmp(&(&b.0, std::cmp::Reverse(b.1))));
            let plan = Plan {
                sources: vec![Merged::entries(log)],
                cover: Cover::new(range_deletes),
                meta_tier: TierId(0),
                data_tier: TierId(0),
                table_bytes: u64::MAX,
            };
            tables.extend(rewrite::write(self, plan)?);
        }
        tables.sort_by(|a, b| a.range.start.cmp(&b.range.start));
        let mut run = Vec::new();
        let mut group: Vec<Arc<TableMeta>> = Vec::new();
        let mut hull = None;
        for table in tables {
            let apart = hull
                .as_ref()
                .is_some_and(|h: &thermocline_model::KeyRange| h.is_before(&table.range));
            if apart {
                run.extend(self.merge(keyspace, std::mem::take(&mut group))?);
                hull = None;
            }
            hull = Some(hull.map_or_else(|| table.range.clone(), |h| h.hull(&table.range)));
            group.push(table);
        }
        run.extend(self.merge(keyspace, group)?);
        Ok(run)
    }

    /// Makes of tables that overlap tables that do not.
    fn merge(&mut self, keyspace: &str, group: Vec<Arc<TableMeta>>) -> Result<Vec<Arc<TableMeta>>> {
        if let [alone] = &group[..] {
            self.meter.add(alone.size_bytes() / 2);
            if self.is_sound(alone) {
                self.report.tables_kept += 1;
                return Ok(group);
            }
            return self.rescue(keyspace, alone);
        }
        let mut sources = Vec::new();
        let mut covers = Vec::new();
        for meta in &group {
            match self.open_source(keyspace, meta) {
                Ok((source, cover)) => {
                    covers.push(cover);
                    sources.push(source);
                }
                Err(error) => self.lose(keyspace, meta, &error.to_string()),
            }
        }
        let Some(largest) = group.iter().max_by_key(|t| t.data_bytes()) else {
            return Ok(Vec::new());
        };
        let bytes: u64 = group.iter().map(|t| t.size_bytes()).sum();
        self.report.tables_rewritten += sources.len() as u64;
        let plan = Plan {
            sources,
            cover: Cover::merge(&covers),
            meta_tier: self.tier_there(largest.meta.tier),
            data_tier: self.tier_there(largest.tier()),
            table_bytes: self.options.table_size(),
        };
        let written = rewrite::write(self, plan)?;
        self.meter.add(bytes / 2);
        Ok(written)
    }
}
