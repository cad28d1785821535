//! The tables of a keyspace as reads see them: levels, runs, open tables.
//!
//! The tree mirrors `model::Keyspace` position by position. It is immutable;
//! a commit builds the next one, taking over the tables that stay. A table
//! lives as long as some tree or job holds it, and its objects are deleted
//! when the last holder is gone and a commit has said that they are obsolete
//! (I4).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use thermocline_model::key::Prefix;
use thermocline_model::table::{Extent, TableId, TableMeta};
use thermocline_model::version::{Keyspace, Level, Run};
use thermocline_model::view::TableHeat;
use thermocline_policy::pressure::base_shares;

use crate::error::Result;
use crate::memory::Filter;
use crate::store::{ObjectKind, ObjectName, ObjectReader, Store};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::table::{Table, TableContext};

/// Objects that nobody names any more, waiting to be deleted.
#[derive(Debug, Default)]
pub(crate) struct Graveyard {
    dead: Mutex<VecDeque<(Arc<dyn Store>, ObjectName)>>,
}

impl Graveyard {
    /// Takes everything that waits.
    pub(crate) fn take(&self) -> VecDeque<(Arc<dyn Store>, ObjectName)> {
        std::mem::take(&mut *self.dead.lock())
    }

    /// Takes what has waited longest.
    pub(crate) fn take_one(&self) -> Option<(Arc<dyn Store>, ObjectName)> {
        self.dead.lock().pop_front()
    }

    /// Adds what nobody names any more, or what could not be deleted.
    pub(crate) fn put(&self, store: Arc<dyn Store>, name: ObjectName) {
        self.dead.lock().push_back((store, name));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many objects wait.
    pub(crate) fn len(&self) -> usize {
        self.dead.lock().len()
    }
}

/// One object, shared by the open tables that use it.
#[derive(Debug)]
pub(crate) struct Object {
    store: Arc<dyn Store>,
    name: ObjectName,
    obsolete: AtomicBool,
    graveyard: Arc<Graveyard>,
}

impl Object {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        name: ObjectName,
        graveyard: Arc<Graveyard>,
    ) -> Arc<Object> {
        Arc::new(Object {
            store,
            name,
            obsolete: AtomicBool::new(false),
            graveyard,
        })
    }

    /// Says that no committed version names it any more.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.graveyard.put(Arc::clone(&self.store), self.name);
        }
    }
}

/// What opening a table needs from its surroundings.
#[derive(Debug)]
pub(crate) struct TableHome {
    /// By tier number.
    pub(crate) stores: Vec<Arc<dyn Store>>,
    pub(crate) context: Arc<TableContext>,
    pub(crate) graveyard: Arc<Graveyard>,
}

impl TableHome {
    pub(crate) fn store(&self, extent: &Extent) -> Result<&Arc<dyn Store>> {
        self.stores.get(extent.tier.0 as usize).ok_or_else(|| {
            let error = crate::Error::corruption("extent names a tier that does not exist")
                .expected(format!("below {}", self.stores.len()), extent.tier);
            // It is the manifest that says so.
            match self.stores.first() {
                Some(first) => error.at(first.directory()),
                None => error,
            }
        })
    }
}

/// A table of a version: what the manifest knows of it, and the table itself
/// once somebody has read from it.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) meta: Arc<TableMeta>,
    /// What was counted before this object stood for the table.
    past: TableHeat,
    /// The filter of the flush it was made by, over the keys of all its tables: asking
    /// that is cheaper than searching the table's block list.
    filter: Option<Arc<Filter>>,
    /// The lowest stamp of the memtables of that flush; 0 if the lookup index does not know them.
    stamp: u64,
    home: Arc<TableHome>,
    objects: Vec<Arc<Object>>,
    loaded: OnceLock<Arc<Table>>,
}

impl OpenTable {
    pub(crate) fn new(
        meta: Arc<TableMeta>,
        home: &Arc<TableHome>,
        previous: Option<&OpenTable>,
    ) -> Result<OpenTable> {
        let mut objects = Vec::with_capacity(1 + meta.data.len());
        let kinds = std::iter::once(ObjectKind::Meta).chain(std::iter::repeat(ObjectKind::Data));
        for (extent, kind) in meta.extents().zip(kinds) {
            let name = ObjectName {
                id: extent.object.0,
                kind,
            };
            let shared = previous.and_then(|p| p.objects.iter().find(|o| o.name == name));
            objects.push(match shared {
                Some(object) => Arc::clone(object),
                None => {
                    let store = Arc::clone(home.store(extent)?);
                    Object::new(store, name, Arc::clone(&home.graveyard))
                }
            });
        }
        let past = previous.map_or_else(TableHeat::default, OpenTable::heat);
        Ok(OpenTable {
            meta,
            past,
            filter: previous.and_then(|p| p.filter.clone()),
            stamp: previous.map_or(0, |p| p.stamp),
            home: Arc::clone(home),
            objects,
            loaded: OnceLock::new(),
        })
    }

    /// Remembers the filter of the flush that it was made by, or forgets it.
    pub(crate) fn with_filter(mut self, filter: Option<Arc<Filter>>) -> OpenTable {
        self.filter = filter;
        self
    }

    /// Remembers the lowest stamp of the memtables that were flushed.
    pub(crate) fn with_stamp(mut self, stamp: u64) -> OpenTable {
        self.stamp = stamp;
        self
    }

    /// See [`OpenTable::with_filter`].
    pub(crate) fn filter(&self) -> Option<&Arc<Filter>> {
        self.filter.as_ref()
    }

    /// Whether a key with this hash is surely not in the table. May say no
    /// either way.
    #[inline]
    pub(crate) fn surely_lacks(&self, hash: u64) -> bool {
        self.filter.as_ref().is_some_and(|f| !f.may_contain(hash))
    }

    /// The table, opened and its metadata read on first use.
    #[inline]
    pub(crate) fn table(&self) -> Result<&Arc<Table>> {
        match self.loaded.get() {
            Some(table) => Ok(table),
            None => self.load(),
        }
    }

    #[cold]
    fn load(&self) -> Result<&Arc<Table>> {
        let meta_reader = self.open(&self.meta.meta, ObjectKind::Meta)?;
        let data = self.open_data()?;
        let context = Arc::clone(&self.home.context);
        let table = Table::open(&self.meta, meta_reader, data, context)?;
        // Two readers may have opened it at once: the first one stays.
        Ok(self.loaded.get_or_init(|| Arc::new(table)))
    }

    /// As [`OpenTable::table`]; what `previous`, the same table in another place, has of its
    /// metadata in memory is shared.
    pub(crate) fn table_moved_from(&self, previous: &OpenTable) -> Result<&Arc<Table>> {
        let known = previous.loaded.get();
        match known.filter(|_| previous.meta.meta == self.meta.meta) {
            Some(known) => {
                let table = known.moved(&self.meta, self.open_data()?)?;
                Ok(self.loaded.get_or_init(|| Arc::new(table)))
            }
            None => self.table(),
        }
    }

    fn open_data(&self) -> Result<Vec<Arc<dyn ObjectReader>>> {
        let data = self.meta.data.iter();
        data.map(|extent| self.open(extent, ObjectKind::Data))
            .collect()
    }

    fn open(&self, extent: &Extent, kind: ObjectKind) -> Result<Arc<dyn ObjectReader>> {
        self.home.store(extent)?.open(ObjectName {
            id: extent.object.0,
            kind,
        })
    }

    /// How often it was used since the store was opened.
    pub(crate) fn heat(&self) -> TableHeat {
        let mut heat = self.past;
        if let Some(table) = self.loaded.get() {
            let accesses = table.accesses();
            heat.probes += accesses.probes;
            heat.hits += accesses.hits;
            heat.rejects += accesses.filter_rejects;
            heat.block_reads += accesses.block_reads;
            heat.scans += accesses.cursors;
        }
        heat
    }

    /// Bytes of metadata held in memory.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.loaded.get().map_or(0, |t| t.memory_bytes())
    }

    /// Lets the cache forget its blocks: it is in no version any more.
    pub(crate) fn forget_blocks(&self) {
        if let Some(table) = self.loaded.get() {
            let cache = &self.home.context.cache;
            cache.forget(self.meta.id, table.block_count());
        }
    }

    /// Retires every object that `keep` does not use as well.
    pub(crate) fn retire(&self, keep: Option<&OpenTable>) {
        for object in &self.objects {
            if !keep.is_some_and(|k| k.objects.iter().any(|o| Arc::ptr_eq(o, object))) {
                object.retire();
            }
        }
    }
}

/// Tables in key order that do not overlap.
#[derive(Debug, Default)]
pub(crate) struct RunTables {
    pub(crate) tables: Vec<Arc<OpenTable>>,
    starts: Vec<u64>,
    prefix: Prefix,
    pub(crate) has_range_deletes: bool,
    /// The lowest stamp of its tables: all its keys are in the lookup index with one no
    /// lower. 0 if the index does not know them.
    pub(crate) stamp: u64,
}

impl RunTables {
    pub(crate) fn new(tables: Vec<Arc<OpenTable>>) -> RunTables {
        let prefix = match (tables.first(), tables.last()) {
            (Some(first), Some(last)) => {
                Prefix::between(&first.meta.range.start, &last.meta.range.end)
            }
            _ => Prefix::default(),
        };
        let starts = tables
            .iter()
            .map(|t| prefix.of(&t.meta.range.start))
            .collect();
        let stamp = tables.iter().map(|t| t.stamp).min();
        let has_range_deletes = tables.iter().any(|t| t.meta.range_deletes > 0);
        RunTables {
            tables,
            starts,
            prefix,
            has_range_deletes,
            stamp: stamp.unwrap_or(0),
        }
    }

    /// The one table that may hold `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Arc<OpenTable>> {
        let word = self.prefix.of(key);
        let mut above = self.starts.partition_point(|&s| s <= word);
        while above > 0 {
            let table = &self.tables[above - 1];
            // Only tables whose start ties with the key in its first word can
            // turn out to start behind it.
            if self.starts[above - 1] == word && &*table.meta.range.start > key {
                above -= 1;
                continue;
            }
            return (!table.meta.range.ends_before(key)).then_some(table);
        }
        None
    }

    /// The index of the first table that does not end before `key`.
    pub(crate) fn first_not_before(&self, key: &[u8]) -> usize {
        self.tables
            .partition_point(|t| t.meta.range.ends_before(key))
    }

    /// The index of the last table that does not begin behind `key`.
    pub(crate) fn last_from(&self, key: &[u8]) -> Option<usize> {
        let after = self.tables.partition_point(|t| &*t.meta.range.start <= key);
        after.checked_sub(1)
    }

    /// Whether blocks of it may be asked for ahead of need.
    pub(crate) fn may_announce(&self) -> bool {
        let home = self.tables.first().map(|t| &t.home);
        home.is_some_and(|home| home.context.readers().is_some())
    }

    /// Every table that overlaps `[start, end)` and has range deletes.
    pub(crate) fn covering(
        &self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<Vec<Arc<Table>>> {
        if !self.has_range_deletes {
            return Ok(Vec::new());
        }
        let tables = self.tables.iter().filter(|t| t.meta.range_deletes > 0);
        let tables = tables.filter(|t| t.meta.range.overlaps_bounds(start, end));
        tables.map(|t| t.table().cloned()).collect()
    }
}

/// Runs, newest first.
pub(crate) type LevelTables = Vec<Arc<RunTables>>;

/// All tables of a keyspace.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) parts: Vec<LevelTables>,
    pub(crate) levels: Vec<LevelTables>,
    /// What merges of the parts' newest runs rewrite of the first level that has any tables, by
    /// part.
    pub(crate) base_shares: Vec<u64>,
}

impl Tree {
    /// The tree of `keyspace`, taking tables from `known` where they are, and
    /// whole runs from `previous` where nothing changed.
    pub(crate) fn build(
        keyspace: &Keyspace,
        home: &Arc<TableHome>,
        known: &mut BTreeMap<TableId, Arc<OpenTable>>,
    ) -> Result<Tree> {
        let mut run = |run: &Run| -> Result<Arc<RunTables>> {
            let mut tables = Vec::with_capacity(run.tables.len());
            for meta in &run.tables {
                let open = match known.get(&meta.id) {
                    Some(open) if Arc::ptr_eq(&open.meta, meta) || *open.meta == **meta => {
                        Arc::clone(open)
                    }
                    previous => {
                        let previous = previous.map(|p| &**p);
                        let open = Arc::new(OpenTable::new(Arc::clone(meta), home, previous)?);
                        known.insert(meta.id, Arc::clone(&open));
                        open
                    }
                };
                tables.push(open);
            }
            Ok(Arc::new(RunTables::new(tables)))
        };
        let mut level = |level: &Level| {
            level
                .runs
                .iter()
                .map(&mut run)
                .collect::<Result<LevelTables>>()
        };
        let base = keyspace.levels.iter().position(|l| !l.runs.is_empty());
        Ok(Tree {
            base_shares: base_shares(keyspace, base.unwrap_or(0)),
            parts: keyspace
                .parts
                .iter()
                .map(|p| level(&p.newest))
                .collect::<Result<_>>()?,
            levels: keyspace
                .levels
                .iter()
                .map(&mut level)
                .collect::<Result<_>>()?,
        })
    }

    /// Every table.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<OpenTable>> {
        self.parts
            .iter()
            .chain(&self.levels)
            .flatten()
            .flat_map(|run| &run.tables)
    }

    /// The runs of a part's newest level, newest first.
    #[inline]
    pub(crate) fn newest(&self, part: usize) -> &[Arc<RunTables>] {
        self.parts.get(part).map_or(&[][..], |l| l)
    }

    /// The runs that may hold a key of `part`, newest first, without the first
    /// `passed_over` of its newest level.
    #[inline]
    pub(crate) fn runs_for(
        &self,
        part: usize,
        passed_over: usize,
    ) -> impl Iterator<Item = &Arc<RunTables>> {
        let newest = self.newest(part).iter().skip(passed_over);
        newest.chain(self.levels.iter().flatten())
    }
}
