//! What a recovery holds in memory: the log's entries that are in no table.
//!
//! The log may have more of them than memtables had: what folds have left out of memory beside what
//! they kept, and what was written under options that gave more memory. So while it is replayed a
//! part is *compacted* when memory is short: all its memtables become one with the latest version
//! of each key, as a flush would keep them. Nobody reads older ones, as there are no snapshots.
//! That takes no device, which nothing may change before the log is read to its end. A part is
//! compacted again when it has twice what was left, so that all of it together costs no more than
//! replaying does.
//!
//! Before the crash memory held at least those versions, so after it there is room for them, if the
//! options are the same. If they gave more before, what is too much is flushed before anybody can
//! write, by the jobs that always do that ([`Engine::flush_replayed`]). An opening for reading only
//! has to hold it.
//!
//! What was logged anew by folds is compacted apart while entries come: what is still to come of
//! it belongs behind the memtables of the others (see [`super::restated`]), and may be newer than
//! what came of it. At the end numbers order both.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_model::cover::Cover;
use thermocline_model::job::{Flush, Job, Reason};
use thermocline_model::key::{Kind, Prefix, SeqNo};
use thermocline_model::version::{Keyspace, KeyspaceId};
use xxhash_rust::xxh3::xxh3_64;

use super::restated::Restated;
use crate::batch::{Operation, Operations};
use crate::engine::{Engine, LiveMemtable, PartView, ReadView, Space, lowest_stamp};
use crate::error::{Error, ErrorKind, Result};
use crate::job::survive::Survivors;
use crate::log::{self, ReplayReport};
use crate::merge::{MergeCursor, Source};
use crate::seal::SealedRoom;
use crate::sync::atomic::Ordering;
use crate::write::ENTRY_OVERHEAD_BYTES;

/// What is known of a replay under way, beside the memtables.
#[derive(Default)]
struct Replay {
    restated: Restated,
    /// What memtables may have grown by since memory was last looked at, in bytes.
    grown_bytes: u64,
    /// By part, the bytes that its last compaction left.
    left_bytes: BTreeMap<(KeyspaceId, usize), usize>,
    /// Parts compacted so far.
    compactions: u64,
    /// The most bytes that memtables took, as far as anybody looked.
    memory_bytes: u64,
    /// How many more memtables may be sealed, where that was asked since it last changed: all of
    /// them are looked at for it.
    room: Option<SealedRoom>,
}

impl Replay {
    /// Notes that memtables take so many bytes.
    fn holds(&mut self, bytes: u64) {
        self.memory_bytes = self.memory_bytes.max(bytes);
    }
}

impl Engine {
    /// Replays the log into memtables. Changes nothing on the devices.
    pub(super) fn replay_log(&mut self) -> Result<ReplayReport> {
        let directory = self.log_directory();
        let version = Arc::clone(&self.versions.lock().current);
        let store_id = self.store_id;
        let mut last = version.last_seq;
        let mut entries = 0;
        let mut replay = Replay::default();
        let report = log::replay_as(
            log::Reading {
                without: &[],
                // Who may write has the lock of every tier.
                is_live: self.options.read_only,
            },
            &self.environment,
            &directory,
            store_id,
            version.log_floor,
            version.log_base,
            &mut |frame| {
                let bad = |what: &str| {
                    Error::corruption(what.to_string())
                        .at(&log::segment_path(&directory, frame.segment))
                        .offset(frame.offset)
                };
                let mut seq = frame.first_seq;
                for operation in Operations::new(frame.payload) {
                    let operation = operation.map_err(bad)?;
                    // A keyspace that is not there was dropped.
                    if let Some(space) = self.space(operation.keyspace)
                        && let Some(keyspace) = version.keyspaces.get(&operation.keyspace)
                    {
                        if operation.restated.is_some() {
                            let at = (seq, frame.segment);
                            let restated = &mut replay.restated;
                            self.restate(restated, &space, keyspace, &operation, at)
                                .map_err(bad)?;
                        } else {
                            let at = (seq, frame.segment);
                            let room = &mut replay.room;
                            self.replay_into(room, &space, keyspace, &operation, at);
                        }
                        entries += 1;
                    }
                    seq = seq.next();
                }
                if seq.0 != frame.first_seq.0 + u64::from(frame.count) {
                    return Err(bad("log record").expected(
                        format!("{} operations", frame.count),
                        seq.0 - frame.first_seq.0,
                    ));
                }
                last = last.max(SeqNo(seq.0 - 1));
                replay.grown_bytes +=
                    frame.payload.len() as u64 + u64::from(frame.count) * ENTRY_OVERHEAD_BYTES;
                if replay.grown_bytes >= self.options.memory_step_bytes() {
                    replay.grown_bytes = 0;
                    self.compact_replayed(&mut replay);
                }
                Ok(())
            },
        )?;
        self.end_replay(&mut replay);
        if self.options.read_only && !report.is_whole {
            self.check_not_trimmed(version.log_floor)?;
        }
        report
            .check_reach(version.log_reach)
            .map_err(|e| e.at(&directory))?;
        self.recovery.records = report.frames;
        self.recovery.entries = entries;
        self.recovery.bytes = report.bytes;
        self.recovery.torn_bytes = report.torn.as_ref().map_or(0, |t| t.bytes_dropped);
        self.recovery.compactions = replay.compactions;
        self.recovery.memory_bytes = replay.memory_bytes;
        self.published.begin_at(last);
        self.commit.get_mut().next_seq = last.next();
        Ok(report)
    }

    /// Replays an entry, `at` a number and in a segment.
    fn replay_into(
        &self,
        room: &mut Option<SealedRoom>,
        space: &Space,
        keyspace: &Keyspace,
        operation: &Operation<'_>,
        at: (SeqNo, u64),
    ) {
        let (seq, segment) = at;
        super::each_not_flushed(keyspace, operation, seq, |at, key, value| {
            let mut view = space.view.load_full();
            // Where there are too many sealed ones it grows.
            let part = &view.parts[at];
            let has_room = |room: &mut Option<SealedRoom>| {
                room.get_or_insert_with(|| self.sealed_room()).has_for(part)
            };
            if part.is_full() && has_room(room) {
                self.seal(&mut self.commit.lock(), space, |part, _| part == at);
                *room = None;
                view = space.view.load_full();
            }
            // Never a twin: see `compact_part`.
            let memtable: &LiveMemtable = &view.parts[at].active;
            memtable.oldest_segment.fetch_min(segment, Ordering::AcqRel);
            memtable.last_seq.fetch_max(seq.0, Ordering::AcqRel);
            memtable.first_seq.fetch_min(seq.0, Ordering::AcqRel);
            let taker = |part| (part == at).then_some(memtable);
            crate::write::apply(&self.lookup, &view, seq, operation.kind, key, value, &taker);
        });
    }

    /// Bytes that memtables may have while the log is replayed: the block cache is empty, and lends
    /// what it may. What may be added before memory is looked at again counts as there.
    fn replayed_bytes_max(&self) -> u64 {
        let spaces = self.spaces.load();
        let takers = spaces.values().map(|s| s.view.load().takers() as u64);
        let all = self.options.memory_max(takers.sum()).memtables + self.options.lendable_bytes();
        all - 2 * self.options.memory_step_bytes()
    }

    /// Bytes of memory that memtables take, with what was logged anew.
    fn replayed_bytes(&self, restated: &Restated) -> u64 {
        self.memtable_resident_bytes() + restated.resident_bytes()
    }

    /// Whether memory has too little room. Gives back the pages that memtables have left.
    fn is_short_of_memory(&self, restated: &Restated) -> bool {
        let resident = self.replayed_bytes(restated);
        let most = self.replayed_bytes_max();
        self.arenas
            .shrink_to(most.saturating_sub(resident) as usize);
        resident > most
    }

    /// Compacts the parts that have grown enough for that, if memory is short.
    fn compact_replayed(&self, replay: &mut Replay) {
        let held = self.replayed_bytes(&replay.restated);
        replay.holds(held);
        if !self.is_short_of_memory(&replay.restated) {
            return;
        }
        for (&id, space) in self.spaces.load().iter() {
            for at in 0..space.view.load().parts.len() {
                let left_bytes = replay.left_bytes.entry((id, at)).or_default();
                let restated = replay.restated.of(id, at);
                let bytes = held_bytes(space, at, restated.as_deref());
                if bytes == 0 || bytes < 2 * *left_bytes {
                    continue;
                }
                self.compact_part(space, at, None);
                if let Some(restated) = restated
                    && !restated.is_empty()
                {
                    *restated = self.latest_of(std::slice::from_ref(restated));
                }
                *left_bytes = held_bytes(space, at, replay.restated.of(id, at).as_deref());
                let beside = held + *left_bytes as u64;
                replay.holds(beside);
                replay.room = None;
                replay.compactions += 1;
            }
        }
        self.is_short_of_memory(&replay.restated);
    }

    /// Puts what was logged anew where reads and flushes look, and compacts what has come since
    /// the last time if memory is still short.
    fn end_replay(&self, replay: &mut Replay) {
        let held = self.replayed_bytes(&replay.restated);
        replay.holds(held);
        let restated = std::mem::take(&mut replay.restated);
        let is_short = self.is_short_of_memory(&restated);
        for (id, at, restated) in restated.take() {
            let Some(space) = self.space(id) else {
                continue;
            };
            let view = space.view.load_full();
            let has_room = || self.sealed_room().take(&view.parts[at], Some(&restated));
            if is_short || !has_room() {
                self.compact_part(&space, at, Some(restated));
                let left = held_bytes(&space, at, None);
                replay.left_bytes.insert((id, at), left);
                replay.holds(held + left as u64);
                replay.compactions += 1;
            } else {
                // It may have newer entries than what takes writes, so no flush may take it alone.
                self.seal(&mut self.commit.lock(), &space, |part, _| part == at);
                update_part(&space, at, |part| part.sealed.push(restated));
            }
        }
        if !is_short {
            return;
        }
        for (&id, space) in self.spaces.load().iter() {
            for at in 0..space.view.load().parts.len() {
                let left_bytes = replay.left_bytes.get(&(id, at)).copied();
                if held_bytes(space, at, None) > left_bytes.unwrap_or(0) {
                    self.compact_part(space, at, None);
                    replay.holds(held + held_bytes(space, at, None) as u64);
                    replay.compactions += 1;
                }
            }
        }
    }

    /// All memtables of a part become one, with `restated` what was logged anew of it. It takes the
    /// place of the one that takes writes, which no limit of sealed ones forbids.
    fn compact_part(&self, space: &Space, at: usize, restated: Option<Arc<LiveMemtable>>) {
        let view = space.view.load_full();
        let memtables = view.parts[at].memtables().filter(|m| !m.is_empty());
        let all: Vec<_> = memtables.cloned().chain(restated).collect();
        if all.is_empty() {
            return;
        }
        let latest = self.latest_of(&all);
        // Twins have nothing: what is replayed goes to this one.
        update_part(space, at, |part| {
            part.active = latest;
            part.sealed.clear();
        });
    }

    /// A memtable with what a flush of `memtables` would write.
    fn latest_of(&self, memtables: &[Arc<LiveMemtable>]) -> Arc<LiveMemtable> {
        let covers: Vec<_> = memtables.iter().map(|m| m.table.range_deletes()).collect();
        let cover = Cover::merge(covers.iter().map(|c| &**c));
        let kept = Survivors::new(Vec::new(), &cover, None).cover_to_write(&cover);
        let mut bytes = kept.bytes();
        each_latest(memtables, &cover, |key, _, _, value| {
            bytes += key.len() + value.len() + ENTRY_OVERHEAD_BYTES as usize;
        });
        let keys = |m: &Arc<LiveMemtable>| {
            let table = &m.table;
            Some(Prefix::between(table.smallest_key()?, table.largest_key()?))
        };
        let prefix = memtables.iter().find_map(keys).unwrap_or_default();
        let latest = LiveMemtable::folded(&self.options, bytes, prefix);
        latest.table.insert_range_deletes(&kept);
        each_latest(memtables, &cover, |key, seq, kind, value| {
            latest.table.insert(key, xxh3_64(key), seq, kind, value);
        });
        memtables.iter().for_each(|m| latest.widen(m));
        // The index knows each of its keys by one of these.
        latest
            .stamp
            .store(lowest_stamp(memtables), Ordering::Release);
        latest
    }

    /// Flushes the largest parts until memory is within what the options say, of all and of each
    /// part, before anybody can write. What a device refuses stays in memory: the store opens, and
    /// writers wait for it.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Poisoned`] only.
    pub(super) fn flush_replayed(&self) -> Result<()> {
        loop {
            self.update_brake();
            let (used, max) = self.memtables_used_and_max();
            let largest = if used > max {
                self.largest_part(|_| true)
            } else {
                self.largest_part(|part| self.is_beyond(part))
            };
            let Some((keyspace, part)) = largest else {
                return Ok(());
            };
            let job = Job::Flush(Flush {
                keyspace,
                part,
                beside: Vec::new(),
                active: true,
                reason: Reason::new("recovered")
                    .with("memtable_bytes", used as f64)
                    .with("memtable_bytes_max", max as f64),
            });
            let planned = self.begin(&mut self.scheduler.lock(), job);
            match self.run(planned) {
                Err(error) if error.kind() == ErrorKind::Poisoned => return Err(error),
                Err(_) => return Ok(()),
                Ok(()) => {}
            }
        }
    }

    fn memtables_used_and_max(&self) -> (u64, u64) {
        let spaces = self.spaces.load();
        let takers = spaces.values().map(|s| s.view.load().takers() as u64);
        let used = self.memtable_resident_bytes() + self.arenas.idle_bytes() as u64;
        (used, self.memory_max(takers.sum()).memtables)
    }

    /// Of `those` parts that a flush would take something of, the one with most in memory.
    fn largest_part(&self, those: impl Fn(&PartView) -> bool) -> Option<(KeyspaceId, u32)> {
        let spaces = self.spaces.load();
        let mut largest = None;
        for (&id, space) in spaces.iter() {
            for (part, at) in space.view.load().parts.iter().zip(0u32..) {
                let held = part.memtables().filter(|m| !m.is_empty());
                let bytes: usize = held.map(|m| m.table.resident_bytes()).sum();
                let can = !part.sealed.is_empty() || self.has_room_for(part);
                if can && bytes > 0 && those(part) && largest.is_none_or(|(most, _)| bytes > most) {
                    largest = Some((bytes, (id, at)));
                }
            }
        }
        largest.map(|(_, part)| part)
    }
}

/// Bytes that the memtables of a part hold, with `restated` what was logged anew of it.
fn held_bytes(space: &Space, at: usize, restated: Option<&Arc<LiveMemtable>>) -> usize {
    let view = space.view.load();
    let memtables = view.parts[at].memtables().chain(restated);
    let filled = memtables.filter(|m| !m.is_empty());
    filled.map(|m| m.table.size_bytes()).sum()
}

/// Calls `visit` with the latest version of each key that no range delete of `cover` has deleted.
fn each_latest(
    memtables: &[Arc<LiveMemtable>],
    cover: &Cover,
    mut visit: impl FnMut(&[u8], SeqNo, Kind, &[u8]),
) {
    let mut survivors = Survivors::new(Vec::new(), cover, None);
    let sources = memtables.iter();
    let sources = sources.map(|m| Source::Memory(m.table.cursor().into()));
    let mut merged = MergeCursor::new(sources.collect());
    // Reading memory does not fail.
    let mut moved = merged.seek_first();
    while moved.is_ok() && merged.valid() {
        let (key, seq, kind) = (merged.key(), merged.seq(), merged.kind());
        if survivors.keeps(key, seq, kind) {
            visit(key, seq, kind, merged.value());
        }
        moved = merged.next();
    }
}

fn update_part(space: &Space, at: usize, change: impl FnOnce(&mut PartView)) {
    space.update(|view| {
        let mut parts = view.parts.clone();
        change(&mut parts[at]);
        ReadView::new(Arc::clone(&view.cuts), parts, Arc::clone(&view.tree))
    });
}
