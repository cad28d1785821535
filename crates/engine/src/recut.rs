//! Cutting a keyspace into parts by the keys that it gets (OHDB's L0 partition,
//! section III-A).
//!
//! With a preset whose cuts do not move a keyspace is divided when its first memtable is full, and
//! the memtables are divided with it. Policy says whether and where (`policy/plan/first_cuts.rs`);
//! the writer whose memtable is full does it, as it holds the write path.
//!
//! Where cuts move with the writes (Nova-LSM's dynamic ranges, section 4.1), a planner says when
//! (`policy/plan/ranges.rs`), and a job does it, at any time. Nothing is copied and no table is
//! written: the memtables of the parts concerned are sealed, whole, and every new part lists those
//! that reach into it. Such a memtable is of an *older generation*. Each part reads and flushes
//! only what is its own of it, and it goes when the last part has flushed. What becomes of tables
//! is in `model/recut.rs`. Writers wait while the manifest is synced, once.
//!
//! `Ensures:` readers see the old view or the new one, which hold the same entries. A
//! crash leaves the keyspace with its old cuts or with the new ones, and recovery
//! puts what the log has into the parts that the manifest names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_model::cuts::Cuts;
use thermocline_model::edit::{Change, Edit};
use thermocline_policy::cost::estimate::of_cuts;
use thermocline_policy::plan::first_cuts::{FirstCuts, first_cuts};
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::{Commit, Engine, LiveMemtable, PartView, ReadView, Space, lowest_stamp};
use crate::events::Event;
use crate::merge::{MergeCursor, Source};
use crate::write::likely_prefix;

mod moving;
#[cfg(test)]
mod tests;

/// The keys of some memtables, ascending, one for each entry.
struct Keys(MergeCursor);

impl Keys {
    fn of(view: &ReadView) -> Keys {
        let memtables = view.parts.iter().flat_map(PartView::memtables);
        let sources = memtables.map(|m| Source::Memory(m.table.cursor().into()));
        let mut merged = MergeCursor::new(sources.collect());
        // Reading memory does not fail; if it did there would be no keys.
        let _ = merged.seek_first();
        Keys(merged)
    }
}

impl Iterator for Keys {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if !self.0.valid() {
            return None;
        }
        let key = self.0.key().to_vec();
        self.0.next().ok()?;
        Some(key)
    }
}

impl Engine {
    /// Cuts `space` if policy says so and it can be done now. What fails leaves it as it is.
    /// Requires: the commit mutex, so that no write gets numbers meanwhile.
    pub(crate) fn recut_if_due(&self, _commit: &mut Commit, space: &Space) {
        let options = &self.options;
        if !options.cuts_by_first_memtable() {
            return;
        }
        // No job begins meanwhile; one under way may be about to name part 0.
        let mut scheduler = self.scheduler.lock();
        let mut flushing = scheduler.flushing.iter();
        if flushing.any(|(id, _)| *id == space.id) || space.loads.load(Ordering::Acquire) > 0 {
            return;
        }
        let view = space.view.load_full();
        // Neither memtables of several parts nor tables are divided below.
        let [part] = &view.parts[..] else {
            return;
        };
        if view.tree.parts.iter().any(|runs| !runs.is_empty()) {
            return;
        }
        // The entries are in memory twice until the readers of the old view leave.
        let resident: usize = part.memtables().map(|m| m.table.resident_bytes()).sum();
        let bytes_max = options.memory_max(options.parts_max() as u64).memtables;
        if 2 * resident as u64 > bytes_max {
            return;
        }
        let started_us = self.environment.clock.now_micros();
        let mut scene = self.scene(&mut scheduler);
        let slots = &mut scene.shape.ranges.slots;
        *slots = (*slots).min(self.active_room(space.id));
        let keys = || {
            self.await_pending(part);
            Keys::of(&view)
        };
        let (busy, outputs) = (&scheduler.busy, &scheduler.busy_outputs);
        let seen = scene.view(busy, outputs);
        let Some(FirstCuts { cuts, mut reason }) = first_cuts(&seen, space.id, keys) else {
            return;
        };
        reason.predicted = Some(of_cuts(&seen, &reason));
        if self.check_poisoned().is_err() {
            return;
        }
        let sharing = self.sharing_takers(Some((space.id, cuts.parts())));
        let mut parts = self.divide(part, &cuts, sharing, true);
        if !self.may_list(space, &parts) {
            parts = self.divide(part, &cuts, sharing, false);
            if parts.iter().any(|part| self.is_beyond(part)) {
                return;
            }
        }
        let edit = Edit::of(Change::SetCuts {
            keyspace: space.id,
            cuts: cuts.clone(),
        });
        let committed = self.commit_edit(edit, Vec::new(), &mut |id, old| {
            if id == space.id {
                *old = std::mem::take(&mut parts);
            }
        });
        drop(scheduler);
        if let Err(e) = committed {
            self.counters.background_error(&e);
            return;
        }
        self.counters.recuts.add(1);
        let what = format!("cut into {} parts", cuts.parts());
        let now_us = self.environment.clock.now_micros();
        self.events.push(Event {
            keyspace: space.name.clone(),
            took_us: now_us.saturating_sub(started_us),
            ..Event::new("recut", what, reason, started_us)
        });
    }

    /// Waits until those that have numbers already have put their entries into the memtables of
    /// `part`, for which they need no lock, or never will.
    fn await_pending(&self, part: &PartView) {
        let pending = || {
            part.memtables()
                .any(|m| m.pending.load(Ordering::Acquire) > 0)
        };
        while pending() && self.check_poisoned().is_ok() {
            crate::sync::yield_now();
        }
    }

    /// The memtables of `old`, divided by `cuts`: each into one for every part, so that their order
    /// is still the order of recency. With `apart` false, all into the one that takes writes, where
    /// numbers order them. `sharing`: as [`Engine::sharing_takers`] will be.
    fn divide(&self, old: &PartView, cuts: &Cuts, sharing: u64, apart: bool) -> Vec<PartView> {
        let prefix = likely_prefix(&old.active);
        let new = || self.new_memtable_among(sharing, prefix.clone());
        let mut parts: Vec<PartView> = (0..cuts.parts())
            .map(|_| PartView {
                active: new(),
                twins: Vec::new(),
                sealed: Vec::new(),
                by_number: false,
                tiny: None,
                flushed_bytes: Arc::default(),
            })
            .collect();
        let active: Vec<_> = parts.iter().map(|p| Arc::clone(&p.active)).collect();
        if !apart {
            let all: Vec<_> = old.memtables().cloned().collect();
            let stamp = lowest_stamp(&all);
            all.iter().for_each(|m| copy(m, &active, cuts, stamp));
            return parts;
        }
        let stamp = |m: &LiveMemtable| m.stamp.load(Ordering::Acquire);
        copy(&old.active, &active, cuts, stamp(&old.active));
        for sealed in &old.sealed {
            let copies: Vec<_> = parts.iter().map(|_| new()).collect();
            copy(sealed, &copies, cuts, stamp(sealed));
            for (part, copy) in parts.iter_mut().zip(copies) {
                if !copy.is_empty() {
                    part.sealed.push(copy);
                }
            }
        }
        parts
    }
}

/// Copies the entries of `from` into the memtables of the parts that they lie in, which the lookup
/// index knows by `stamp`.
fn copy(from: &LiveMemtable, to: &[Arc<LiveMemtable>], cuts: &Cuts, stamp: u64) {
    let mut cursor = from.table.cursor();
    cursor.seek_first();
    while cursor.valid() {
        let (key, seq) = (cursor.key(), cursor.seq());
        let table = &to[cuts.part_of(key)].table;
        table.insert(key, xxh3_64(key), seq, cursor.kind(), cursor.value());
        cursor.next();
    }
    for (start, end, seqs) in from.table.range_deletes().fragments() {
        for (part, memtable) in to.iter().enumerate() {
            let (low, high) = cuts.interval(part);
            let start = low.map_or(start, |l| start.max(l));
            let end = high.map_or(end, |h| end.min(h));
            if start < end {
                for &seq in seqs {
                    memtable.table.insert_range_delete(start, end, seq);
                }
            }
        }
    }
    for memtable in to.iter().filter(|m| !m.table.is_empty()) {
        // Bounds as they were: what lies between them may be in another part.
        memtable.widen(from);
        memtable.stamp.store(stamp, Ordering::Release);
    }
}
