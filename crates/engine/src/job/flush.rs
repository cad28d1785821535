//! Flush: the sealed memtables of a part become one run of its newest level.
//!
//! `Ensures:` after the commit every entry of the part up to the newest flushed
//! one is in durable tables, and the manifest says so, so that the log segments
//! that only they needed can go (I3).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_model::cover::Cover;
use thermocline_model::edit::{Change, Edit};
use thermocline_model::job::Flush;
use thermocline_model::key::SeqNo;
use thermocline_model::version::{RunId, Slot};
use thermocline_policy::plan::parts::have_moved;

use super::output::{Host, Outputs, Target, Written, spilling};
use super::survive::Survivors;
use super::{COMMIT_WAIT, Done};
use crate::engine::{Engine, LiveMemtable, Space, lowest_stamp, recorded};
use crate::error::Result;
use crate::memory::FilterBuilder;
use crate::merge::MergeCursor;
use crate::table::key_hash;

/// Memory of memtables from when they leave the view until the flush lets go of
/// them: it must not be filled a second time meanwhile.
pub(super) struct Leaving<'a> {
    engine: &'a Engine,
    bytes: usize,
}

impl<'a> Leaving<'a> {
    pub(super) fn new(engine: &'a Engine) -> Leaving<'a> {
        Leaving { engine, bytes: 0 }
    }

    pub(super) fn count<'m>(&mut self, memtables: impl Iterator<Item = &'m Arc<LiveMemtable>>) {
        self.count_bytes(memtables.map(|m| m.table.resident_bytes()).sum());
    }

    pub(super) fn count_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.engine.leaving_bytes.fetch_add(bytes, Ordering::AcqRel);
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.engine
            .leaving_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Engine {
    pub(crate) fn run_flush(&self, job: &Flush) -> Result<Done> {
        let Some(space) = self.space(job.keyspace) else {
            return Ok(Done::nothing());
        };
        // Dropped after the memtables.
        let mut leaving = Leaving::new(self);
        let (sealed, last) = self.sealed_of(&space, job.part, job.active)?;
        if sealed.is_empty() {
            return Ok(Done::nothing());
        }
        let bytes_in = sealed.iter().map(|m| m.table.size_bytes() as u64).sum();
        let done = spilling(self, |first_tier| {
            let target = Target {
                keyspace: job.keyspace,
                slot: Slot::Newest(job.part),
                table_bytes: self.options.table_size(),
                bytes_max: bytes_in,
                parents: Vec::new(),
                first_tier,
                background: true,
                written: Written::default(),
            };
            self.flush_into(job, &space, &sealed, last, target, &mut leaving)
        })?;
        self.counters.flushes.add(1);
        self.counters.flushed_bytes.add(done.bytes_out);
        Ok(Done { bytes_in, ..done })
    }

    /// The sealed memtables of a part, all entries of which are inserted and visible,
    /// and the number of the newest; the active one is sealed first if there are none
    /// or if it is asked for. Requires: the part counts as being flushed.
    pub(super) fn sealed_of(
        &self,
        space: &Space,
        part: u32,
        active: bool,
    ) -> Result<(Vec<Arc<LiveMemtable>>, SeqNo)> {
        let part = part as usize;
        let sealed = || {
            space
                .view
                .load()
                .parts
                .get(part)
                .map_or_else(Vec::new, |p| p.sealed.clone())
        };
        let mut memtables: Vec<Arc<LiveMemtable>> = sealed();
        if memtables.is_empty() || active {
            // Called for to free the log or memory: the active one it is. Who
            // holds the mutex for long may be waiting for this very job.
            if let Some(mut commit) = self.commit.try_lock_for(COMMIT_WAIT) {
                let active = space
                    .view
                    .load()
                    .parts
                    .get(part)
                    .map(|p| Arc::clone(&p.active));
                self.seal(&mut commit, space, |_, p| {
                    active.as_ref().is_some_and(|a| Arc::ptr_eq(a, &p.active))
                });
                drop(commit);
                memtables = sealed();
            }
        }
        let last = memtables
            .iter()
            .map(|m| m.last_seq.load(Ordering::Acquire))
            .max()
            .unwrap_or(0);
        // Writers that were assigned entries are about to insert and publish
        // them; the snapshots must be read after that (see `Survivors`).
        while memtables
            .iter()
            .any(|m| m.pending.load(Ordering::Acquire) > 0)
            || self.visible().0 < last
        {
            self.check_poisoned()?;
            crate::sync::yield_now();
        }
        Ok((memtables, SeqNo(last)))
    }

    fn flush_into(
        &self,
        job: &Flush,
        space: &Space,
        sealed: &[Arc<LiveMemtable>],
        last: SeqNo,
        target: Target,
        leaving: &mut Leaving<'_>,
    ) -> Result<Done> {
        let covers: Vec<_> = sealed.iter().map(|m| m.table.range_deletes()).collect();
        let cover = Cover::merge(covers.iter().map(|c| &**c));
        // Of memtables that are older than the cuts, what is in this part.
        let view = space.view.load_full();
        let (low, high) = view.cuts.interval(job.part as usize);
        let cover = match sealed.iter().any(|m| m.older.load(Ordering::Acquire)) {
            true => cover.clip(low, high),
            false => cover,
        };
        let snapshots = self.held_snapshots();
        let mut survivors = Survivors::new(snapshots, &cover, None);
        let kept_cover = survivors.cover_to_write(&cover);
        let mut outputs = Outputs::new(Host::Job(self), target, kept_cover);
        let sources = sealed.iter().map(|m| m.source(low, high)).collect();
        let entries: u64 = sealed.iter().map(|m| m.table.entries()).sum();
        let mut filter = FilterBuilder::new(entries as usize);
        let mut merged = MergeCursor::new(sources);
        merged.seek_first()?;
        let mut last_seq = None;
        while merged.valid() {
            let key = merged.key();
            let survives = survivors.keeps(key, merged.seq(), merged.kind());
            // What a fold logged anew may have been recovered twice.
            let is_copy = !survivors.is_new_key() && last_seq == Some(merged.seq());
            last_seq = Some(merged.seq());
            if survives || !(self.options.flush_drops_versions || is_copy) {
                if survivors.is_new_key() && outputs.is_full() {
                    outputs.cut(key)?;
                }
                outputs.add(key, merged.seq(), merged.kind(), merged.value())?;
                filter.add(outputs.last_hash().unwrap_or_else(|| key_hash(key)));
            }
            merged.next()?;
        }
        let tables = outputs.finish(&|| false)?;
        let run = RunId(self.new_id());
        let mut edit = Edit::default();
        for table in &tables {
            edit.changes.push(Change::AddTable {
                keyspace: job.keyspace,
                slot: Slot::Newest(job.part),
                run,
                behind: None,
                table: Arc::clone(table),
            });
        }
        edit.changes.push(Change::SetFlushed {
            keyspace: job.keyspace,
            part: job.part,
            flushed: last,
        });
        let need = self.log_need((job.keyspace, job.part), sealed);
        edit.changes.extend(need.changes());
        // Tiny ranges in the version say that writes have made the cuts, so they are only written
        // where some are there.
        let version = Arc::clone(&self.versions.lock().current);
        let moved = version
            .keyspaces
            .get(&job.keyspace)
            .is_some_and(|k| have_moved(k));
        if moved && view.parts.iter().all(|part| part.tiny.is_some()) {
            let of_part = recorded(job.keyspace, &view.parts).nth(job.part as usize);
            edit.changes.extend(of_part);
        }
        let filter = Arc::new(filter.finish());
        let opened = self.open_flushed(&tables, Some(filter), lowest_stamp(sealed))?;
        // Entries of other memtables may be older than those that are about to
        // become durable here; a power failure must not leave a gap (I9). Where none are,
        // nobody needs what the log has of these, and it is deleted before the device ever
        // sees most of it. What folds have logged anew is needed in any case.
        let reach = self.log_reach(&version, &edit).unwrap_or(SeqNo::ZERO);
        self.persist_log(reach.max(need.restated_upto))?;
        let committed = self.commit_edit(edit, opened, &mut |keyspace, parts| {
            if keyspace == job.keyspace
                && let Some(part) = parts.get_mut(job.part as usize)
            {
                let bytes: usize = sealed.iter().map(|m| m.size_share()).sum();
                part.flushed_bytes
                    .fetch_add(bytes as u64, Ordering::Relaxed);
                part.sealed
                    .retain(|m| !sealed.iter().any(|s| Arc::ptr_eq(s, m)));
                part.by_number &= !part.twins.is_empty() || !part.sealed.is_empty();
                // Those that no other part has.
                let left = sealed.iter();
                let left = left.filter(|m| m.holders.fetch_sub(1, Ordering::AcqRel) == 1);
                leaving.count(left);
            }
        });
        if committed.is_err() && space.dropped.load(Ordering::Acquire) {
            return Ok(Done::nothing());
        }
        committed?;
        let tables_out = outputs.keep();
        let bytes_out = tables.iter().map(|t| t.size_bytes()).sum();
        let what = format!(
            "{} memtables into {} tables of L0.{}",
            sealed.len(),
            tables.len(),
            job.part
        );
        Ok(Done {
            what,
            tables_out,
            bytes_out,
            ..Done::default()
        })
    }
}
