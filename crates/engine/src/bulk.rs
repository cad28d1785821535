//! Bulk load: sorted entries become tables directly.
//!
//! The tables are written with no effect on readers. [`BulkLoad::finish`] then
//! gives the whole load one sequence number and commits it: the load takes
//! effect at once, as if everything had been written at that moment. The
//! number is not in the tables, which were written before it was known, but in
//! the manifest, which says that it holds for every entry of such a table.
//!
//! Where nothing overlaps the load it goes straight to the last level;
//! otherwise it becomes the newest run, after the memtables it overlaps have
//! been flushed (I1).

use std::sync::Arc;

use thermocline_model::cover::Cover;
use thermocline_model::edit::{Change, Edit};
use thermocline_model::job::Reason;
use thermocline_model::key::{Kind, SeqNo};
use thermocline_model::table::TableMeta;
use thermocline_model::tier::TierId;
use thermocline_model::version::{RunId, Slot};
use thermocline_policy::cost::Devices;
use thermocline_policy::cost::estimate::of_load;

use crate::batch::{BATCH_BYTES_MAX, check_key};
use crate::db::Handle;
use crate::engine::{Engine, Space};
use crate::error::{Error, ErrorKind, Result};
use crate::events::Event;
use crate::job::output::{Host, Outputs, Target, Written};
use crate::step::Scheduler;
use crate::sync::atomic::Ordering;
use crate::table::LOADED_SEQ;

/// A bulk load in progress. Dropped before it is finished, it leaves nothing.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"b", b"old")?;
/// let mut load = db.bulk_load()?;
/// load.add(b"a", b"new")?;
/// load.add(b"b", b"new")?;
/// assert!(db.get(b"a")?.is_none()); // Nothing shows before the end.
/// load.finish()?;
/// assert_eq!(db.get(b"b")?.as_deref(), Some(&b"new"[..]));
/// # Ok::<(), thermocline::Error>(())
/// ```
pub struct BulkLoad {
    /// Declared before the handle, so dropped before it.
    outputs: Option<Outputs<'static>>,
    space: Arc<Space>,
    handle: Arc<Handle>,
    last: Vec<u8>,
    next_cut: usize,
    _cuts: KeepsCuts,
}

/// While it is there, the cuts of its keyspace stay as they are: a load's tables
/// are ended at them.
struct KeepsCuts(Arc<Space>);

impl KeepsCuts {
    fn new(engine: &Engine, space: &Arc<Space>) -> KeepsCuts {
        // Cuts change under this mutex.
        let _commit = engine.commit.lock();
        space.loads.fetch_add(1, Ordering::AcqRel);
        KeepsCuts(Arc::clone(space))
    }
}

impl Drop for KeepsCuts {
    fn drop(&mut self) {
        self.0.loads.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for BulkLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkLoad")
            .field("keyspace", &self.space.name)
            .finish_non_exhaustive()
    }
}

impl BulkLoad {
    pub(crate) fn new(handle: Arc<Handle>, space: Arc<Space>) -> Result<BulkLoad> {
        handle.engine.check_writable()?;
        space.check_open()?;
        let mut load = BulkLoad {
            outputs: None,
            _cuts: KeepsCuts::new(&handle.engine, &space),
            space,
            handle,
            last: Vec::new(),
            next_cut: 0,
        };
        load.begin(TierId(0));
        Ok(load)
    }

    fn begin(&mut self, first_tier: TierId) {
        let target = Target {
            keyspace: self.space.id,
            slot: self.slot(),
            table_bytes: self.handle.engine.options.table_size(),
            bytes_max: u64::MAX,
            parents: Vec::new(),
            first_tier,
            background: false,
            written: Written::default(),
        };
        self.outputs = Some(Outputs::new(
            Host::Load(Arc::clone(&self.handle.engine)),
            target,
            Cover::default(),
        ));
    }

    /// Where the tables will most likely lie: the last level.
    fn slot(&self) -> Slot {
        let engine = &self.handle.engine;
        let version = Arc::clone(&engine.versions.lock().current);
        let levels = version
            .keyspaces
            .get(&self.space.id)
            .map_or(0, |k| k.levels.len());
        Slot::Level((levels.max(1) - 1) as u32)
    }

    /// Adds an entry. Keys must ascend strictly.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let mut load = db.bulk_load()?;
    /// load.add(b"b", b"")?;
    /// assert!(load.add(b"a", b"").is_err()); // Keys ascend.
    /// load.add(b"c", b"")?; // A refused entry does no harm.
    /// assert_eq!(load.finish()?, 2);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the key is out of bounds or not
    /// behind the last one, or the value too long: it is then not added, and the
    /// load goes on. [`ErrorKind::NoSpace`] and [`ErrorKind::Io`] from the
    /// device: the load is then void, and every later call gets
    /// [`ErrorKind::Closed`].
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        if value.len() > BATCH_BYTES_MAX / 2 {
            return Err(Error::invalid("value length in bytes")
                .expected(format!("at most {}", BATCH_BYTES_MAX / 2), value.len()));
        }
        if !self.last.is_empty() && key <= &*self.last {
            return Err(
                Error::invalid("bulk load: keys must ascend strictly").expected(
                    format!("a key behind {}", self.last.escape_ascii()),
                    key.escape_ascii(),
                ),
            );
        }
        let Some(outputs) = &mut self.outputs else {
            return Err(void());
        };
        let view = self.space.view.load();
        let bounds = view.cuts.bounds();
        let crossed = bounds[self.next_cut..].partition_point(|b| &**b <= key);
        if crossed > 0 || outputs.is_full() {
            // A table of a part's newest level may not reach into another part.
            self.next_cut += crossed;
            let cut = outputs.cut(key);
            if cut.is_err() {
                self.outputs = None;
            }
            cut?;
        }
        let Some(outputs) = &mut self.outputs else {
            return Err(void());
        };
        let added = outputs.add(key, LOADED_SEQ, Kind::Put, value);
        if added.is_err() {
            self.outputs = None;
        }
        added?;
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(())
    }

    /// Makes the load take effect, durably. Gives the number of entries.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let mut load = db.bulk_load()?;
    /// for i in 0..1000u32 {
    ///     load.add(&i.to_be_bytes(), b"value")?;
    /// }
    /// assert_eq!(load.finish()?, 1000);
    /// assert_eq!(db.stats().log_bytes, 0); // None of it went through the log.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of flushing what overlaps the load, and of writing the manifest;
    /// [`ErrorKind::Closed`] when the keyspace was dropped meanwhile. The load
    /// then has no effect.
    pub fn finish(mut self) -> Result<u64> {
        let Some(mut outputs) = self.outputs.take() else {
            return Err(void());
        };
        let tables = outputs.finish(&|| false)?;
        if tables.is_empty() {
            return Ok(0);
        }
        let engine = Arc::clone(&self.handle.engine);
        let entries = tables.iter().map(|t| t.entries).sum();
        let bytes: u64 = tables.iter().map(|t| t.size_bytes()).sum();

        // No writes from here on: the load must be newer than every entry in
        // the memtables and older than every later write.
        let mut commit = engine.commit.lock();
        engine.check_writable()?;
        self.space.check_open()?;
        engine.flush_still(&mut commit, Some(self.space.id))?;
        // What other keyspaces still hold in memory is older than the load,
        // which a power failure must not show without it (I9).
        engine.persist_log(engine.visible())?;
        let seq = commit.next_seq;

        let tables: Vec<Arc<TableMeta>> = tables
            .iter()
            .map(|t| {
                Arc::new(TableMeta {
                    seq_min: seq,
                    seq_max: seq,
                    ..(**t).clone()
                })
            })
            .collect();
        let opened = engine.open_outputs(&tables)?;
        let mut tries = 0;
        loop {
            // No job begins between looking and committing; one may end, so
            // look and commit until it fits.
            let scheduler = engine.scheduler.lock();
            let edit = self.edit(&engine, &scheduler, &tables, seq);
            match engine.commit_edit(edit, opened.clone(), &mut |_, _| {}) {
                Ok(()) => break,
                Err(e) if e.kind() == ErrorKind::InvalidArgument && tries < 10 => tries += 1,
                Err(e) => return Err(e),
            }
        }
        // Only now: a snapshot that sees the number must find the tables.
        commit.next_seq = seq.next();
        if !engine.published.publish(seq, seq) {
            engine.check_poisoned()?;
        }
        drop(commit);
        let now_us = engine.environment.clock.now_micros();
        let tables_out = outputs.keep();
        let devices = Devices::with(engine.tier_states().iter().map(|t| t.profile));
        let extents = tables.iter().flat_map(|t| t.extents());
        let placed = extents.map(|e| (e.tier.0 as usize, e.length));
        let raw_bytes = tables.iter().map(|t| t.raw_bytes).sum();
        let reason = Reason {
            predicted: Some(of_load(
                &devices,
                placed,
                raw_bytes,
                engine.options.verify_outputs,
            )),
            ..Reason::new("bulk-load").with("entries", entries as f64)
        };
        let what = format!("{} tables of a bulk load", tables.len());
        engine.events.push(Event {
            keyspace: self.space.name.clone(),
            tables_out,
            bytes_out: bytes,
            ..Event::new("load", what, reason, now_us)
        });
        engine.update_full();
        engine.trim_log();
        engine.counters.bulk_bytes.add(bytes);
        engine.wake();
        Ok(entries)
    }

    /// The edit that puts `tables` where they belong now.
    fn edit(
        &self,
        engine: &Engine,
        scheduler: &Scheduler,
        tables: &[Arc<TableMeta>],
        seq: SeqNo,
    ) -> Edit {
        let version = Arc::clone(&engine.versions.lock().current);
        let mut edit = Edit::default();
        let Some(keyspace) = version.keyspaces.get(&self.space.id) else {
            return edit;
        };
        let overlaps = |t: &TableMeta| tables.iter().any(|new| new.range.overlaps(&t.range));
        // What a merge is about to write counts as there.
        let coming = scheduler
            .busy_outputs
            .iter()
            .filter(|(id, ..)| *id == self.space.id);
        let alone = !keyspace.tables().any(|(_, _, t)| overlaps(t))
            && !coming
                .clone()
                .any(|(.., hull)| tables.iter().any(|new| new.range.overlaps(hull)));
        let mut run = (None, RunId(0));
        for table in tables {
            let slot = if alone {
                self.slot()
            } else {
                Slot::Newest(keyspace.cuts.part_of(&table.range.start) as u32)
            };
            if run.0 != Some(slot) {
                let existing = keyspace
                    .level(slot)
                    .and_then(|l| l.runs.first())
                    .filter(|_| alone);
                run = (
                    Some(slot),
                    existing.map_or_else(|| RunId(engine.new_id()), |r| r.id),
                );
            }
            edit.changes.push(Change::AddTable {
                keyspace: self.space.id,
                slot,
                run: run.1,
                behind: None,
                table: Arc::clone(table),
            });
        }
        for part in 0..keyspace.parts.len() as u32 {
            // Nothing older is left in memory, and nothing newer exists.
            edit.changes.push(Change::SetFlushed {
                keyspace: self.space.id,
                part,
                flushed: seq,
            });
        }
        edit
    }
}

fn void() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the bulk load failed earlier and is void",
    )
}
