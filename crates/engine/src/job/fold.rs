//! Fold: the sealed memtables of a part, which have few keys, become one small memtable
//! (Nova-LSM, section 4.2). Nothing is written but the log.
//!
//! What survives of them keeps its numbers, so snapshots see what they saw. It is logged
//! anew, in one frame, so that the segments it was in can go: each operation of that frame
//! takes a number of its own, which keeps the log's numbers without a gap, and says which
//! number the entry has ([`crate::batch`]). Replay puts such entries behind all others of
//! their part (`open/restated.rs`).
//!
//! `Ensures:` no log segment goes before the frame is durable and the manifest says that
//! the log must reach it (I3, I9): the floor follows from the memtables in the view
//! ([`Engine::log_need`]), and whoever raises it persists the log up to what folds logged.
//! A crash before that leaves the entries where they were, a second time if the frame is
//! there as well, which no read can tell from once. Cut short, or refused by the log, it
//! has changed nothing, and the memtables are flushed instead, which the event says.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_model::cover::Cover;
use thermocline_model::edit::Edit;
use thermocline_model::job::{Flush, Fold};
use thermocline_model::key::{Kind, Prefix, SeqNo};
use thermocline_model::version::KeyspaceId;
use thermocline_policy::plan::fold::LIVE_BYTES_MAX;
use xxhash_rust::xxh3::xxh3_64;

use super::flush::Leaving;
use super::survive::Survivors;
use super::{Attempt, COMMIT_WAIT, Done};
use crate::batch::{Operations, WriteBatch};
use crate::engine::{Engine, LiveMemtable, Owed, PartView, ReadView, Space, lowest_stamp};
use crate::error::{ErrorKind, Result};
use crate::merge::{MergeCursor, Source};

/// What the keys of `memtable` have in common.
fn prefix_of(memtable: &LiveMemtable) -> Prefix {
    match (memtable.table.smallest_key(), memtable.table.largest_key()) {
        (Some(first), Some(last)) => Prefix::between(first, last),
        _ => Prefix::default(),
    }
}

impl Engine {
    pub(crate) fn run_fold(&self, job: &Fold) -> Result<Done> {
        let Some(space) = self.space(job.keyspace) else {
            return Ok(Done::nothing());
        };
        let folded = {
            // Dropped after the memtables.
            let mut leaving = Leaving::new(self);
            let sealed = self.sealed_of(&space, &[job.part], job.active)?;
            let [sealed] = &sealed[..] else {
                return Ok(Done::nothing());
            };
            self.fold(job, &space, &sealed.memtables, &mut leaving)?
        };
        let why = match folded {
            Ok(done) => {
                self.raise_log_floor()?;
                return Ok(done);
            }
            Err(why) => why,
        };
        let flush = Flush {
            keyspace: job.keyspace,
            part: job.part,
            beside: Vec::new(),
            active: false,
            reason: job.reason.clone(),
        };
        let done = self.run_flush(&flush)?;
        let what = format!("{}, flushed and not folded: {why}", done.what);
        Ok(Done { what, ..done })
    }

    /// Folds `sealed`, if they need not be flushed instead.
    fn fold(
        &self,
        job: &Fold,
        space: &Space,
        sealed: &[Arc<LiveMemtable>],
        leaving: &mut Leaving<'_>,
    ) -> Attempt<Done> {
        // What is older than the cuts has entries of other parts.
        if sealed.iter().any(|m| m.older.load(Ordering::Acquire)) {
            return Ok(Err("the cuts have moved since"));
        }
        let bytes_in: usize = sealed.iter().map(|m| m.table.size_bytes()).sum();
        let bytes_max = (bytes_in / 2).min(LIVE_BYTES_MAX as usize);
        let Some(batch) = self.survivors_of(job, sealed, bytes_max) else {
            return Ok(Err("too much of it is still read, or nothing"));
        };
        // The memtable to be counts before it is there, so that writers leave it room.
        leaving.count_bytes(2 * batch.size_bytes());
        if self.memtable_resident_bytes() > self.write_buffer_bytes() {
            return Ok(Err("memory had no room for what is left"));
        }
        self.grant_memory(0);
        let folded = LiveMemtable::folded(&self.options, batch.size_bytes(), prefix_of(&sealed[0]));
        for operation in Operations::new(batch.encoded()).flatten() {
            let seq = operation.restated.unwrap_or(SeqNo::ZERO);
            match operation.kind {
                Kind::RangeDelete => {
                    let (start, end) = (operation.key, operation.value);
                    folded.table.insert_range_delete(start, end, seq);
                }
                kind => {
                    let hash = xxh3_64(operation.key);
                    let table = &folded.table;
                    table.insert(operation.key, hash, seq, kind, operation.value);
                }
            }
        }
        for memtable in sealed {
            let (last, first) = (&memtable.last_seq, &memtable.first_seq);
            let order = Ordering::AcqRel;
            folded
                .last_seq
                .fetch_max(last.load(Ordering::Acquire), order);
            folded
                .first_seq
                .fetch_min(first.load(Ordering::Acquire), order);
        }
        // The index knows each of its keys by one of these.
        folded.stamp.store(lowest_stamp(sealed), Ordering::Release);
        if let Err(why) = self.swap_folded(job, space, sealed, &folded, &batch, leaving)? {
            return Ok(Err(why));
        }
        self.counters.folds.add(1);
        self.counters.folded_bytes.add(bytes_in as u64);
        self.counters.restated_bytes.add(batch.size_bytes() as u64);
        Ok(Ok(Done {
            what: format!(
                "{} memtables of L0.{} into one of {} entries",
                sealed.len(),
                job.part,
                batch.len()
            ),
            bytes_in: bytes_in as u64,
            bytes_out: batch.size_bytes() as u64,
            ..Done::default()
        }))
    }

    /// What survives of `sealed`, as it will be logged, if that takes no more than
    /// `bytes_max`.
    fn survivors_of(
        &self,
        job: &Fold,
        sealed: &[Arc<LiveMemtable>],
        bytes_max: usize,
    ) -> Option<WriteBatch> {
        let covers: Vec<_> = sealed.iter().map(|m| m.table.range_deletes()).collect();
        let cover = Cover::merge(covers.iter().map(|c| &**c));
        let mut survivors = Survivors::new(self.held_snapshots(), &cover, None);
        let mut batch = WriteBatch::new();
        let mut restate = |seq, kind, key: &[u8], value: &[u8]| {
            batch.restate(seq, job.keyspace, kind, key, value).ok()?;
            (batch.size_bytes() <= bytes_max).then_some(())
        };
        let kept = survivors.cover_to_write(&cover);
        for (start, end, seqs) in kept.fragments() {
            for &seq in seqs {
                restate(seq, Kind::RangeDelete, start, end)?;
            }
        }
        let sources = sealed.iter();
        let sources = sources
            .map(|m| Source::Memory(m.table.cursor().into()))
            .collect();
        let mut merged = MergeCursor::new(sources);
        merged.seek_first().ok()?;
        while merged.valid() {
            let (key, seq, kind) = (merged.key(), merged.seq(), merged.kind());
            if survivors.keeps(key, seq, kind) {
                restate(seq, kind, key, merged.value())?;
            }
            merged.next().ok()?;
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// Logs `batch` and puts `folded`, which holds it, in the place of `sealed`, if it can be done.
    fn swap_folded(
        &self,
        job: &Fold,
        space: &Space,
        sealed: &[Arc<LiveMemtable>],
        folded: &Arc<LiveMemtable>,
        batch: &WriteBatch,
        leaving: &mut Leaving<'_>,
    ) -> Attempt<()> {
        let payload = batch.encoded();
        let checksum = crc32c::crc32c(payload);
        let count = batch.len() as u32;
        let Some(mut commit) = self.commit.try_lock_for(COMMIT_WAIT) else {
            return Ok(Err("the write path was held"));
        };
        self.check_poisoned()?;
        // Who holds the write path may have cut the keyspace anew or dropped it.
        let view = space.view.load_full();
        let part = view.parts.get(job.part as usize);
        let oldest = |p: &PartView| {
            let newer = p.sealed.len().checked_sub(sealed.len());
            newer.is_some_and(|n| {
                let pairs = p.sealed[n..].iter().zip(sealed);
                pairs.into_iter().all(|(a, b)| Arc::ptr_eq(a, b))
            })
        };
        if !part.is_some_and(oldest) || space.dropped.load(Ordering::Acquire) {
            return Ok(Err("the keyspace was cut or dropped"));
        }
        let first = commit.next_seq;
        let last = SeqNo(first.0 + u64::from(count) - 1);
        if last >= SeqNo::MAX {
            return Ok(Err("sequence numbers are used up"));
        }
        let Some(log) = commit.log.as_mut() else {
            return Ok(Err("the log is closed"));
        };
        let owed = Owed(self);
        if let Err(e) = log.append(first, count, payload, checksum) {
            owed.settle();
            if e.kind() == ErrorKind::Poisoned {
                self.poison(&e);
                return Err(e);
            }
            // A log without room is shortened by a flush.
            self.counters.background_error(&e);
            return Ok(Err("the log did not take it"));
        }
        let segment = log.segment();
        self.log_bytes.store(log.size_bytes(), Ordering::Relaxed);
        commit.next_seq = last.next();
        folded.oldest_segment.store(segment, Ordering::Release);
        folded.restated_upto.store(last.0, Ordering::Release);
        space.update(|view| {
            let mut parts = view.parts.clone();
            if let Some(part) = parts.get_mut(job.part as usize) {
                let bytes: usize = sealed.iter().map(|m| m.table.size_bytes()).sum();
                let gone = bytes.saturating_sub(folded.table.size_bytes()) as u64;
                part.flushed_bytes.fetch_add(gone, Ordering::Relaxed);
                let newer = part.sealed.len().saturating_sub(sealed.len());
                part.sealed.truncate(newer);
                part.sealed.push(Arc::clone(folded));
            }
            ReadView::new(Arc::clone(&view.cuts), parts, Arc::clone(&view.tree))
        });
        leaving.count(sealed.iter());
        // After the memtable knows its segment (see `log_need`).
        self.log_segment.store(segment, Ordering::Release);
        drop(commit);
        // Its numbers become visible in their turn, with nothing under them.
        let is_visible = self.published.publish(first, last);
        owed.settle();
        if !is_visible {
            self.check_poisoned()?;
        }
        Ok(Ok(()))
    }

    /// Lets go of the log segments that no memtable needs any more, if there are any.
    fn raise_log_floor(&self) -> Result<()> {
        let need = self.log_need(KeyspaceId::DEFAULT, &[]);
        if need.floor <= self.versions.lock().current.log_floor {
            return Ok(());
        }
        self.persist_log(need.restated_upto)?;
        let edit = Edit {
            changes: need.changes().collect(),
        };
        self.commit_edit(edit, Vec::new(), &mut |_, _| {})
    }
}
