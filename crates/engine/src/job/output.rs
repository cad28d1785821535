//! What flush, merge and bulk load share: writing a stream of entries into
//! tables on the tiers that the placer names.
//!
//! What is written is persisted some tables at a time: a file system records their sizes
//! and names together, which on a disk that seeks takes as long as for one.
//!
//! A table is cut only between two user keys, so the tables of a run never
//! share one. Range deletes are cut along with the tables. If a tier turns out
//! to be full the caller starts again with a cheaper one ([`spilling`]).

use std::sync::Arc;

use thermocline_model::cover::Cover;
use thermocline_model::job::NewTable;
use thermocline_model::key::{Kind, SeqNo};
use thermocline_model::table::{ObjectId, TableId, TableMeta};
use thermocline_model::tier::{TIERS_MAX, TierId};
use thermocline_model::version::{KeyspaceId, Slot};

use super::read_back::{extents, read_back};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::events::PlacedTable;
use crate::store::{ObjectKind, ObjectName, ObjectWriter, Store};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::table::{Table, TableCursor, TableWriter, TableWriterOptions, Unpersisted, persist_all};

/// Where and how a job writes its tables.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) slot: Slot,
    /// Data bytes at which a table is cut.
    pub(crate) table_bytes: u64,
    /// Bytes that all outputs with this target have together, at most and about.
    pub(crate) bytes_max: u64,
    pub(crate) parents: Vec<TableId>,
    /// No data on tiers before this one: they are full.
    pub(crate) first_tier: TierId,
    /// Whether table writing is paid from the tiers' background budgets.
    pub(crate) background: bool,
    /// Bytes on each tier of the tables that are finished, of all outputs with this target.
    pub(crate) written: Written,
}

/// Bytes by tier, shared by what writes side by side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(Arc<[AtomicU64; TIERS_MAX]>);

impl Written {
    fn add(&self, table: &TableMeta) {
        for extent in table.data.iter().chain([&table.meta]) {
            let tier = (extent.tier.0 as usize).min(TIERS_MAX - 1);
            self.0[tier].fetch_add(extent.length, Ordering::Relaxed);
        }
    }

    fn bytes(&self) -> [u64; TIERS_MAX] {
        std::array::from_fn(|tier| self.0[tier].load(Ordering::Relaxed))
    }
}

/// Runs `job` with ever cheaper tiers until its output fits somewhere.
pub(crate) fn spilling<T>(engine: &Engine, mut job: impl FnMut(TierId) -> Result<T>) -> Result<T> {
    let mut first_tier = TierId(0);
    loop {
        match job(first_tier) {
            Err(e)
                if e.kind() == ErrorKind::NoSpace
                    && (first_tier.0 as usize) + 1 < engine.tiers.len() =>
            {
                first_tier = TierId(first_tier.0 + 1);
            }
            other => return other,
        }
    }
}

/// Tables that may be written and not yet persisted: twice as many files are open.
const UNPERSISTED_MAX: usize = 16;

/// Bytes of their meta extents, which are kept in memory meanwhile.
const UNPERSISTED_BYTES_MAX: usize = 256 << 10;

struct Current {
    writer: TableWriter,
    data_object: u64,
    meta_object: u64,
    data_tier: TierId,
    /// Where the data belongs.
    wanted_tier: TierId,
    /// The rule that put it there.
    rule: &'static str,
    /// See [`Layout::migrates`](thermocline_model::job::Layout::migrates).
    migrates: bool,
    meta_tier: TierId,
    /// Range deletes from here on belong to this table; none means from the
    /// beginning.
    low: Option<Box<[u8]>>,
}

/// The engine, borrowed by a job or shared with a bulk load.
#[derive(Clone)]
pub(crate) enum Host<'a> {
    Job(&'a Engine),
    Load(Arc<Engine>),
}

impl std::ops::Deref for Host<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        match self {
            Host::Job(engine) => engine,
            Host::Load(engine) => engine,
        }
    }
}

/// Tables being written. Dropped before they are kept, it deletes them.
pub(crate) struct Outputs<'a> {
    engine: Host<'a>,
    target: Target,
    cover: Cover,
    current: Option<Current>,
    /// Where the next table's range deletes begin.
    low: Option<Box<[u8]>>,
    finished: Vec<Arc<TableMeta>>,
    /// What the last of these lack to be durable.
    unpersisted: Vec<Unpersisted>,
    /// Of all tables, the ones that lie lower than they belong: the tier that was
    /// full, and bytes.
    spilled: Vec<(TierId, u64)>,
    /// Bytes of those that need not be migrated any more.
    migrated: Vec<u64>,
    /// Where they were put.
    placed: Vec<PlacedTable>,
    disarmed: bool,
}

impl<'a> Outputs<'a> {
    /// `cover` holds the range deletes to be written along with the entries.
    pub(crate) fn new(engine: Host<'a>, target: Target, cover: Cover) -> Outputs<'a> {
        Outputs {
            engine,
            target,
            cover,
            current: None,
            low: None,
            finished: Vec::new(),
            unpersisted: Vec::new(),
            spilled: Vec::new(),
            migrated: Vec::new(),
            placed: Vec::new(),
            disarmed: false,
        }
    }

    /// Ends what goes to the slot so far, and goes on with another one, and the range deletes to be
    /// written along there. How many tables there are by then.
    pub(crate) fn turn_to(&mut self, slot: Slot, cover: Cover) -> Result<usize> {
        self.end(None)?;
        (self.target.slot, self.cover, self.low) = (slot, cover, None);
        Ok(self.finished.len())
    }

    /// Whether the table being written has reached its size: the next user key
    /// should begin a new one.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|c| c.writer.data_bytes() >= self.target.table_bytes)
    }

    /// Ends the current table; `next` is the first key of the next one.
    pub(crate) fn cut(&mut self, next: &[u8]) -> Result<()> {
        self.end(Some(next))
    }

    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8]) -> Result<()> {
        if self.current.is_none() {
            self.begin(Some(key))?;
        }
        match &mut self.current {
            Some(current) => current.writer.add(key, seq, kind, value),
            None => Ok(()),
        }
    }

    /// See [`TableWriter::last_hash`].
    #[inline]
    pub(crate) fn last_hash(&self) -> Option<u64> {
        self.current.as_ref().and_then(|c| c.writer.last_hash())
    }

    /// See [`TableWriter::keep_warm`]. For the entry added last.
    #[inline]
    pub(crate) fn keep_warm(&mut self) {
        if let Some(current) = &mut self.current {
            current.writer.keep_warm();
        }
    }

    /// Whether blocks of `from` can be copied without decoding them.
    pub(crate) fn takes_blocks_of(&self, from: &Table) -> bool {
        self.current
            .as_ref()
            .is_some_and(|c| c.writer.can_copy_from(from))
    }

    /// Copies the block that `from` is in, at its first entry, as it is.
    pub(crate) fn add_block(&mut self, from: &TableCursor) -> Result<u64> {
        if self.current.is_none() {
            self.begin(Some(from.key()))?;
        }
        let stored = from.block_stored()?;
        if let (Some(current), Some(content)) = (&mut self.current, from.block()) {
            let (table, block) = (from.table(), from.block_index());
            current
                .writer
                .add_block_raw(table, block, &stored, content)?;
        }
        Ok(stored.len() as u64)
    }

    /// The tier that the next bytes go to, of which `first` is the first key.
    pub(crate) fn tier(&mut self, first: &[u8]) -> Result<TierId> {
        if self.current.is_none() {
            self.begin(Some(first))?;
        }
        Ok(self
            .current
            .as_ref()
            .map_or(self.target.first_tier, |c| c.data_tier))
    }

    /// Begins a table; `first` is its first key, unless it has range deletes only.
    fn begin(&mut self, first: Option<&[u8]>) -> Result<()> {
        let engine = self.engine.clone();
        if let Host::Load(engine) = &engine {
            let bytes = self.finished.iter().map(|t| t.size_bytes()).sum();
            engine.check_capacity(bytes)?;
        }
        // The last table of a job is smaller than others, and a small flush has no other.
        let written_bytes = self.target.written.bytes();
        let left_bytes = (self.target.bytes_max).saturating_sub(written_bytes.iter().sum());
        let layout = engine.place(&NewTable {
            keyspace: self.target.keyspace,
            slot: self.target.slot,
            range: None,
            start: first.or(self.low.as_deref()).map(Into::into),
            size_bytes: self.target.table_bytes.min(left_bytes),
            parents: self.target.parents.clone(),
            written_bytes,
        });
        let last_tier = TierId(engine.tiers.len() as u32 - 1);
        let data_tier = layout.data.max(self.target.first_tier).min(last_tier);
        let meta_tier = layout.meta.max(self.target.first_tier.min(data_tier));
        let tier = &engine.tiers[data_tier.0 as usize];
        let data_object = engine.new_id();
        let id = TableId(engine.new_id());
        let data = self.create(data_tier, data_object, ObjectKind::Data)?;
        let options = TableWriterOptions {
            block_bytes: tier.spec.block_size(),
            restart_interval: engine.options.restart_interval,
            compression: tier.spec.block_compression(),
            filter_bits_per_key: engine.options.filter_bits_per_key,
            created_us: engine.environment.clock.now_micros(),
        };
        self.current = Some(Current {
            writer: TableWriter::new(id, options, data)
                .with_cache(Arc::clone(&engine.home.context.cache)),
            data_object,
            meta_object: engine.new_id(),
            data_tier,
            wanted_tier: layout.wanted.min(last_tier),
            rule: if data_tier == layout.data {
                layout.rule
            } else {
                "tier-full"
            },
            migrates: layout.migrates && data_tier == layout.data,
            meta_tier,
            low: self.low.take(),
        });
        Ok(())
    }

    fn create(&self, tier: TierId, id: u64, kind: ObjectKind) -> Result<Box<dyn ObjectWriter>> {
        self.store(tier)?.create(ObjectName { id, kind })
    }

    /// The store of `tier` as these are written to it.
    fn store(&self, tier: TierId) -> Result<&Arc<dyn Store>> {
        match self.target.background {
            true => store_of(&self.engine, tier),
            false => Ok(&self.engine.tiers[tier.0 as usize].store),
        }
    }

    fn end(&mut self, next: Option<&[u8]>) -> Result<()> {
        if self.current.is_none() {
            // Range deletes without an entry still need a table.
            if self.cover.clip(self.low.as_deref(), next).is_empty() {
                return Ok(());
            }
            self.begin(None)?;
        }
        let Some(mut current) = self.current.take() else {
            return Ok(());
        };
        let cover = self.cover.clip(current.low.as_deref(), next);
        self.low = next.map(Into::into);
        if !cover.is_empty() {
            current.writer.add_range_deletes(&cover);
        }
        let discard = |engine: &Engine| {
            engine.discard(current.data_tier, current.data_object, ObjectKind::Data);
            engine.discard(current.meta_tier, current.meta_object, ObjectKind::Meta);
        };
        if current.writer.is_empty() {
            discard(&self.engine);
            return Ok(());
        }
        let written = self
            .create(current.meta_tier, current.meta_object, ObjectKind::Meta)
            .and_then(|meta| current.writer.end(meta));
        let (written, unpersisted) = match written {
            Ok(written) => written,
            Err(e) => {
                discard(&self.engine);
                return Err(e);
            }
        };
        self.engine.tiers[current.data_tier.0 as usize]
            .counters
            .written_bytes
            .add(written.data_bytes);
        self.engine.tiers[current.meta_tier.0 as usize]
            .counters
            .written_bytes
            .add(written.meta_bytes);
        let meta_place = (current.meta_tier, ObjectId(current.meta_object));
        let data_place = (current.data_tier, ObjectId(current.data_object));
        // A load's tables are not yet counted in their level when the next one
        // is placed, so that where that belongs is not known.
        if current.data_tier > current.wanted_tier && self.target.background {
            self.spilled.push((current.wanted_tier, written.data_bytes));
        }
        if current.migrates {
            self.migrated.push(written.data_bytes);
        }
        let table = written.into_meta(meta_place, data_place);
        self.placed.push(PlacedTable {
            table: table.id.0,
            tier: current.data_tier.0,
            bytes: table.data_bytes(),
            rule: current.rule.into(),
        });
        self.target.written.add(&table);
        self.finished.push(Arc::new(table));
        self.unpersisted.push(unpersisted);
        let memory = self.unpersisted.iter().map(Unpersisted::memory_bytes);
        if self.unpersisted.len() >= UNPERSISTED_MAX
            || memory.sum::<usize>() >= UNPERSISTED_BYTES_MAX
        {
            self.persist()?;
        }
        Ok(())
    }

    fn persist(&mut self) -> Result<()> {
        persist_all(std::mem::take(&mut self.unpersisted))
    }

    /// Ends the last table and gives all of them. They are durable, and read back where the options
    /// say so, but no version names them yet: [`Outputs::keep`] after the commit, or they are
    /// deleted. Reading back ends early, with [`ErrorKind::Closed`], once `stop` says so.
    pub(crate) fn finish(&mut self, stop: &dyn Fn() -> bool) -> Result<Vec<Arc<TableMeta>>> {
        self.end(None)?;
        self.persist()?;
        if self.engine.options.verify_outputs {
            self.read_back(stop)?;
        }
        Ok(self.finished.clone())
    }

    fn read_back(&self, stop: &dyn Fn() -> bool) -> Result<()> {
        for table in &self.finished {
            if stop() {
                return Err(is_closing());
            }
            for (kind, extent) in extents(table) {
                read_back(&**self.store(extent.tier)?, kind, extent)?;
                let counters = &self.engine.tiers[extent.tier.0 as usize].counters;
                counters.job_read_bytes.add(extent.length);
            }
        }
        Ok(())
    }

    /// A commit names the tables now. Where each was put.
    pub(crate) fn keep(mut self) -> Vec<PlacedTable> {
        self.disarmed = true;
        let now_us = self.engine.environment.clock.now_micros();
        for (tier, bytes) in self.spilled.drain(..) {
            let counters = &self.engine.tiers[tier.0 as usize].counters;
            counters.spilled(bytes, now_us);
        }
        for bytes in self.migrated.drain(..) {
            self.engine.counters.migrations_saved.add(1);
            self.engine.counters.migrations_saved_bytes.add(bytes);
        }
        std::mem::take(&mut self.placed)
    }
}

impl Drop for Outputs<'_> {
    fn drop(&mut self) {
        if self.disarmed {
            return;
        }
        drop(std::mem::take(&mut self.unpersisted));
        if let Some(current) = self.current.take() {
            drop(current.writer);
            self.engine
                .discard(current.data_tier, current.data_object, ObjectKind::Data);
        }
        for table in &self.finished {
            self.engine
                .discard(table.meta.tier, table.meta.object.0, ObjectKind::Meta);
            for extent in &table.data {
                self.engine
                    .discard(extent.tier, extent.object.0, ObjectKind::Data);
            }
        }
    }
}

/// Why a job ends that has been told to stop.
pub(crate) fn is_closing() -> Error {
    Error::new(ErrorKind::Closed, "the store is closing")
}

/// The store of `tier` as background work uses it.
pub(crate) fn store_of(engine: &Engine, tier: TierId) -> Result<&Arc<dyn Store>> {
    let tier = engine.tiers.get(tier.0 as usize);
    tier.map(|t| &t.background)
        .ok_or_else(|| Error::invalid("tier does not exist"))
}
