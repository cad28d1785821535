//! Flush: the sealed memtables of a part become one run of its newest level; those of several parts
//! one of each, in one edit.
//!
//! `Ensures:` after the commit every entry of the part up to the newest flushed
//! one is in durable tables, and the manifest says so, so that the log segments
//! that only they needed can go (I3).

use std::collections::HashSet;
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
use crate::engine::{Engine, LiveMemtable, ReadView, Space, lowest_stamp, recorded};
use crate::error::Result;
use crate::memory::{Filter, FilterBuilder};
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

/// What a flush takes of a part: memtables, newest first, all entries of which are inserted and
/// visible.
pub(crate) struct Sealed {
    pub(crate) part: u32,
    pub(crate) memtables: Vec<Arc<LiveMemtable>>,
    /// The number of the newest entry.
    pub(crate) last: SeqNo,
}

impl Engine {
    pub(crate) fn run_flush(&self, job: &Flush) -> Result<Done> {
        let Some(space) = self.space(job.keyspace) else {
            return Ok(Done::nothing());
        };
        // Dropped after the memtables.
        let mut leaving = Leaving::new(self);
        let parts: Vec<u32> = job.parts().collect();
        let sealed = self.sealed_of(&space, &parts, job.active)?;
        if sealed.is_empty() {
            return Ok(Done::nothing());
        }
        let bytes_in = distinct(&sealed).map(|m| m.table.size_bytes() as u64).sum();
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
            self.flush_into(&space, &sealed, target, &mut leaving)
        })?;
        self.counters.flushes.add(1);
        self.counters.flushed_bytes.add(done.bytes_out);
        Ok(Done { bytes_in, ..done })
    }

    /// The sealed memtables of `parts`, of those that have some. What takes the writes of a part is
    /// sealed first if it has none, or if that is asked for, of all parts at one moment. Requires:
    /// the parts count as being flushed.
    pub(super) fn sealed_of(
        &self,
        space: &Space,
        parts: &[u32],
        active: bool,
    ) -> Result<Vec<Sealed>> {
        let listed = |view: &ReadView, part: u32| {
            let part = view.parts.get(part as usize);
            part.map_or_else(Vec::new, |part| part.sealed.clone())
        };
        let mut view = space.view.load_full();
        let is_due = |part: &&u32| active || listed(&view, **part).is_empty();
        let to_seal: Vec<u32> = parts.iter().filter(is_due).copied().collect();
        if !to_seal.is_empty() {
            // Called for to free the log or memory: those that take writes it is. Who
            // holds the mutex for long may be waiting for this very job.
            if let Some(mut commit) = self.commit.try_lock_for(COMMIT_WAIT) {
                self.seal(&mut commit, space, |at, _| to_seal.contains(&(at as u32)));
                view = space.view.load_full();
            }
        }
        let sealed = parts.iter().map(|&part| {
            let memtables = listed(&view, part);
            let last = memtables.iter().map(|m| m.last_seq.load(Ordering::Acquire));
            let last = SeqNo(last.max().unwrap_or(0));
            Sealed {
                part,
                memtables,
                last,
            }
        });
        let sealed: Vec<Sealed> = sealed.filter(|s| !s.memtables.is_empty()).collect();
        // Writers that were assigned entries are about to insert and publish
        // them; the snapshots must be read after that (see `Survivors`).
        let last = sealed.iter().map(|s| s.last.0).max().unwrap_or(0);
        let is_pending = |m: &Arc<LiveMemtable>| m.pending.load(Ordering::Acquire) > 0;
        while sealed.iter().any(|s| s.memtables.iter().any(is_pending)) || self.visible().0 < last {
            self.check_poisoned()?;
            crate::sync::yield_now();
        }
        Ok(sealed)
    }

    /// Writes what survives of `sealed`: where its tables begin among those of `outputs`, and the
    /// filter of its keys.
    fn write_sealed(
        &self,
        view: &ReadView,
        sealed: &Sealed,
        snapshots: Vec<SeqNo>,
        outputs: &mut Outputs<'_>,
    ) -> Result<(usize, Arc<Filter>)> {
        let (low, high) = view.cuts.interval(sealed.part as usize);
        let memtables = &sealed.memtables;
        let covers: Vec<_> = memtables.iter().map(|m| m.table.range_deletes()).collect();
        let cover = Cover::merge(covers.iter().map(|c| &**c));
        // Of memtables that are older than the cuts, what is in this part.
        let cover = match memtables.iter().any(|m| m.older.load(Ordering::Acquire)) {
            true => cover.clip(low, high),
            false => cover,
        };
        let mut survivors = Survivors::new(snapshots, &cover, None);
        let kept_cover = survivors.cover_to_write(&cover);
        let begins = outputs.turn_to(Slot::Newest(sealed.part), kept_cover)?;
        let sources = memtables.iter().map(|m| m.source(low, high)).collect();
        let entries: u64 = memtables.iter().map(|m| m.table.entries()).sum();
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
        Ok((begins, Arc::new(filter.finish())))
    }

    fn flush_into(
        &self,
        space: &Space,
        sealed: &[Sealed],
        target: Target,
        leaving: &mut Leaving<'_>,
    ) -> Result<Done> {
        let keyspace = target.keyspace;
        let clock = &self.environment.clock;
        let begun_us = clock.now_micros();
        let view = space.view.load_full();
        let snapshots = self.held_snapshots();
        let mut outputs = Outputs::new(Host::Job(self), target, Cover::default());
        let mut written = Vec::with_capacity(sealed.len());
        for of_part in sealed {
            written.push(self.write_sealed(&view, of_part, snapshots.clone(), &mut outputs)?);
        }
        let tables = outputs.finish(&|| false)?;
        let ends = written.iter().skip(1).map(|(begins, _)| *begins);
        let ends = ends.chain([tables.len()]);
        let (mut edit, mut opened) = (Edit::default(), Vec::new());
        for ((of_part, (begins, filter)), ends) in sealed.iter().zip(&written).zip(ends) {
            let run = RunId(self.new_id());
            let tables = &tables[*begins..ends];
            for table in tables {
                edit.changes.push(Change::AddTable {
                    keyspace,
                    slot: Slot::Newest(of_part.part),
                    run,
                    behind: None,
                    table: Arc::clone(table),
                });
            }
            edit.changes.push(Change::SetFlushed {
                keyspace,
                part: of_part.part,
                flushed: of_part.last,
            });
            let stamp = lowest_stamp(&of_part.memtables);
            opened.extend(self.open_flushed(tables, Some(Arc::clone(filter)), stamp)?);
        }
        let need = self.log_need(keyspace, sealed);
        edit.changes.extend(need.changes());
        // Tiny ranges in the version say that writes have made the cuts, so they are only written
        // where some are there.
        let version = Arc::clone(&self.versions.lock().current);
        let moved = version
            .keyspaces
            .get(&keyspace)
            .is_some_and(|k| have_moved(k));
        if moved && view.parts.iter().all(|part| part.tiny.is_some()) {
            let is_flushed = |at: u32| sealed.iter().any(|s| s.part == at);
            let of_parts = recorded(keyspace, &view.parts).zip(0..);
            let of_parts = of_parts.filter(|(_, at)| is_flushed(*at));
            edit.changes.extend(of_parts.map(|(change, _)| change));
        }
        // Entries of other memtables may be older than those that are about to
        // become durable here; a power failure must not leave a gap (I9). Where none are,
        // nobody needs what the log has of these, and it is deleted before the device ever
        // sees most of it. What folds have logged anew is needed in any case.
        let reach = self.log_reach(&version, &edit).unwrap_or(SeqNo::ZERO);
        let waiting_us = clock.now_micros();
        self.persist_log(reach.max(need.restated_upto))?;
        let waited_us = clock.now_micros().saturating_sub(waiting_us);
        let committed = self.commit_edit(edit, opened, &mut |id, parts| {
            for of_part in sealed.iter().filter(|_| id == keyspace) {
                if let Some(part) = parts.get_mut(of_part.part as usize) {
                    part.let_go(&of_part.memtables);
                    // Those that no other part has.
                    let left = of_part.memtables.iter();
                    let left = left.filter(|m| m.holders.fetch_sub(1, Ordering::AcqRel) == 1);
                    leaving.count(left);
                }
            }
        });
        if committed.is_err() && space.dropped.load(Ordering::Acquire) {
            return Ok(Done::nothing());
        }
        committed?;
        if reach > SeqNo::ZERO {
            let now_us = clock.now_micros();
            let took_us = now_us.saturating_sub(begun_us);
            let mut emptied = self.emptied.lock();
            emptied.log_waits.note(now_us, took_us, waited_us);
        }
        let tables_out = outputs.keep();
        let bytes_out = tables.iter().map(|t| t.size_bytes()).sum();
        let what = format!(
            "{} memtables into {} tables of {}",
            distinct(sealed).count(),
            tables.len(),
            slots(sealed)
        );
        Ok(Done {
            what,
            tables_out,
            bytes_out,
            ..Done::default()
        })
    }
}

/// The memtables of these, each once: those that are older than the cuts are in several parts.
fn distinct(sealed: &[Sealed]) -> impl Iterator<Item = &Arc<LiveMemtable>> {
    let mut seen = HashSet::new();
    let memtables = sealed.iter().flat_map(|sealed| &sealed.memtables);
    memtables.filter(move |memtable| seen.insert(Arc::as_ptr(memtable)))
}

/// The newest levels that these go to, in words.
fn slots(sealed: &[Sealed]) -> String {
    match sealed {
        [first, .., last] => format!(
            "{} parts, L0.{} to L0.{}",
            sealed.len(),
            first.part,
            last.part
        ),
        parts => parts.iter().map(|s| format!("L0.{}", s.part)).collect(),
    }
}
