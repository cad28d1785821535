//! Sealing memtables, as many as the options allow to be sealed at a time.
//!
//! A memtable is sealed when it is full, or when it is to be flushed. Those of a part that take
//! writes are sealed together. Sealed ones may be bounded in number, of a part and of all
//! ([`Options::sealed_memtables_max`](crate::Options::sealed_memtables_max)), and by the memory of
//! a part ([`Options::part_memory_bytes_max`](crate::Options::part_memory_bytes_max)): lists get
//! longer only here and where cuts move, with the write path held, and all else makes them shorter.
//! So whoever holds it and finds room has it, and the bounds hold at any moment. Who finds none: a
//! writer waits until flushes have made some; a flush on demand flushes what is sealed, then the
//! rest while writers wait (`compact.rs`); a job flushes what is there; cuts are moved once the
//! memtables concerned are in tables (`recut/moving.rs`).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_model::version::KeyspaceId;

use crate::engine::{Commit, Engine, LiveMemtable, PartView, ReadView, Space, Spaces};
use crate::error::Result;
use crate::stats::Stall;
use crate::step::What;
use crate::write::likely_prefix;

/// How many more memtables may be sealed.
pub(crate) struct SealedRoom {
    /// Of a part at most.
    part_max: usize,
    /// Of all, beside those that are.
    left: usize,
    /// Memory of a part at most, in bytes.
    part_bytes_max: u64,
    /// What a new memtable comes to take of it.
    taker_bytes: u64,
}

impl SealedRoom {
    /// Whether what takes the writes of `part` may be sealed, and `beside` with it.
    fn has(&self, part: &PartView, beside: Option<&LiveMemtable>) -> bool {
        let sealed = part.sealed.len().saturating_add(more(part, beside));
        sealed <= self.part_max && more(part, beside) <= self.left && self.has_memory(part, beside)
    }

    /// A batch goes to one memtable, however large it is: one with nothing sealed beside it may
    /// always be sealed.
    fn has_memory(&self, part: &PartView, beside: Option<&LiveMemtable>) -> bool {
        if self.part_bytes_max == u64::MAX || (part.sealed.is_empty() && beside.is_none()) {
            return true;
        }
        let memtables = part.sealed.iter().chain(written(part)).map(|m| &**m);
        let held: u64 = memtables
            .chain(beside)
            .map(LiveMemtable::memory_bytes)
            .sum();
        let takers = part.takers().count() as u64;
        held.saturating_add(takers.saturating_mul(self.taker_bytes)) <= self.part_bytes_max
    }

    /// Whether what takes the writes of `part` may be sealed.
    pub(crate) fn has_for(&self, part: &PartView) -> bool {
        self.has(part, None)
    }

    /// As [`SealedRoom::has_for`], with another memtable that joins the sealed ones, and takes that
    /// room.
    pub(crate) fn take(&mut self, part: &PartView, beside: Option<&LiveMemtable>) -> bool {
        let has = self.has(part, beside);
        if has {
            self.left -= more(part, beside);
        }
        has
    }
}

/// How many are sealed when what takes the writes of `part` is, and `beside` with it.
fn more(part: &PartView, beside: Option<&LiveMemtable>) -> usize {
    written(part).count() + usize::from(beside.is_some())
}

/// The most memory that a part with these memtables comes to take before it seals some, in bytes.
fn memory_max_of(part: &PartView) -> u64 {
    let sealed: u64 = part.sealed.iter().map(|m| m.memory_bytes()).sum();
    let takers = part
        .takers()
        .map(|m| m.memory_bytes().max(m.memory_bytes_max()));
    sealed.saturating_add(takers.sum())
}

/// How often views are looked at again that changed meanwhile.
const LOOKS_MAX: usize = 100;

/// How many sealed memtables are in these views; one that several parts have counts once.
pub(crate) fn sealed_of(views: &[Arc<ReadView>]) -> usize {
    let parts = views.iter().flat_map(|view| &view.parts);
    let sealed = parts.flat_map(|part| &part.sealed).map(Arc::as_ptr);
    sealed.collect::<HashSet<_>>().len()
}

/// Those of `part` that take writes and have some.
fn written(part: &PartView) -> impl Iterator<Item = &Arc<LiveMemtable>> {
    part.takers().filter(|m| !m.is_empty())
}

impl Engine {
    /// Sealed memtables of all parts at one moment, as [`Engine::views_at_once`].
    pub(crate) fn sealed_memtables(&self) -> usize {
        sealed_of(&self.views_at_once())
    }

    /// The views of all keyspaces at one moment, unless these or their views change faster than
    /// they can be looked at.
    pub(crate) fn views_at_once(&self) -> Vec<Arc<ReadView>> {
        let mut looked = self.look_at_views();
        for _ in 1..LOOKS_MAX {
            if self.are_still(&looked) {
                break;
            }
            looked = self.look_at_views();
        }
        looked.1
    }

    /// All keyspaces, and the view of each, one after the other.
    fn look_at_views(&self) -> (Arc<Spaces>, Vec<Arc<ReadView>>) {
        let spaces = self.spaces.load_full();
        let views = spaces.values().map(|space| space.view.load_full());
        let views = views.collect();
        (spaces, views)
    }

    /// Whether these are all keyspaces and their views, so that all were when the last of them was
    /// looked at.
    fn are_still(&self, (spaces, views): &(Arc<Spaces>, Vec<Arc<ReadView>>)) -> bool {
        let mut looked = spaces.values().zip(views);
        Arc::ptr_eq(&self.spaces.load(), spaces)
            && looked.all(|(space, view)| Arc::ptr_eq(&space.view.load(), view))
    }

    /// The same without those of a keyspace. Requires: the commit mutex, so that there is at most
    /// what it says.
    fn sealed_but(&self, without: KeyspaceId) -> usize {
        let spaces = self.spaces.load();
        let others = spaces.values().filter(|space| space.id != without);
        let views: Vec<_> = others.map(|space| space.view.load_full()).collect();
        sealed_of(&views)
    }

    /// The room there is.
    pub(crate) fn sealed_room(&self) -> SealedRoom {
        let total = self.options.sealed_memtables_total_max;
        let bytes = self.options.part_memory_bytes_max;
        SealedRoom {
            part_max: self.options.sealed_memtables_max.unwrap_or(usize::MAX),
            left: total.map_or(usize::MAX, |most| {
                most.saturating_sub(self.sealed_memtables())
            }),
            part_bytes_max: bytes.unwrap_or(u64::MAX),
            taker_bytes: bytes.map_or(0, |_| {
                self.options.memtable_bytes_max(self.sharing_takers(None))
            }),
        }
    }

    /// Whether the memtables of `part` come to take more memory than a part may have.
    pub(crate) fn is_beyond(&self, part: &PartView) -> bool {
        let most = self.options.part_memory_bytes_max;
        most.is_some_and(|most| memory_max_of(part) > most)
    }

    /// Whether `space` may have these lists of sealed memtables in place of its own.
    pub(crate) fn may_list(&self, space: &Space, lists: &[PartView]) -> bool {
        let longest = lists.iter().map(|part| part.sealed.len()).max();
        let most = self.options.sealed_memtables_max;
        if most.is_some_and(|most| longest.unwrap_or(0) > most)
            || lists.iter().any(|p| self.is_beyond(p))
        {
            return false;
        }
        self.options.sealed_memtables_total_max.is_none_or(|most| {
            let sealed = lists.iter().flat_map(|part| &part.sealed);
            let here: HashSet<_> = sealed.map(Arc::as_ptr).collect();
            here.len() + self.sealed_but(space.id) <= most
        })
    }

    /// Replaces the memtables that take writes, of the parts that `which` picks, by empty ones;
    /// says whether there was room for all of them. Requires: the commit mutex, so that nobody is
    /// being assigned to them.
    pub(crate) fn seal(
        &self,
        _commit: &mut Commit,
        space: &Space,
        which: impl Fn(usize, &PartView) -> bool,
    ) -> bool {
        let mut room = self.sealed_room();
        let mut is_all = true;
        space.update(|view| {
            let parts = view.parts.iter().enumerate().map(|(at, part)| {
                if !which(at, part) || part.takers_are_empty() {
                    return part.clone();
                }
                if !room.take(part, None) {
                    is_all = false;
                    return part.clone();
                }
                // All that take writes together: a flush takes what is sealed, and
                // says that nothing older is in memory.
                let sealed = written(part).chain(&part.sealed).cloned().collect();
                let new = |old: &Arc<LiveMemtable>| self.new_memtable(likely_prefix(old));
                let active = new(&part.active);
                let stamp = self.lookup.stamp(part, view.tree.newest(at));
                active.stamp.store(stamp, Ordering::Release);
                PartView {
                    active,
                    twins: part.twins.iter().map(new).collect(),
                    sealed,
                    ..part.clone()
                }
            });
            ReadView::new(
                Arc::clone(&view.cuts),
                parts.collect(),
                Arc::clone(&view.tree),
            )
        });
        is_all
    }

    /// Seals every memtable of the store, or of one keyspace, that has entries; says whether there
    /// was room for all of them.
    pub(crate) fn seal_all(&self, only: Option<KeyspaceId>) -> bool {
        let mut commit = self.commit.lock();
        let mut is_all = true;
        for space in self.spaces.load().values() {
            if only.is_none_or(|id| id == space.id) {
                is_all &= self.seal(&mut commit, space, |_, _| true);
            }
        }
        is_all
    }

    /// Whether what takes the writes of `part` may be sealed.
    pub(crate) fn has_room_for(&self, part: &PartView) -> bool {
        self.sealed_room().has_for(part)
    }

    /// Waits until memtables may be sealed that a writer found full; `is_stuck` says whether they
    /// still may not.
    #[cold]
    pub(crate) fn wait_to_seal(&self, is_stuck: impl Fn(&SealedRoom) -> bool) -> Result<()> {
        let mut stall = Stall::of(&self.counters, &*self.environment.clock);
        self.counters.slowdowns.add(1);
        while is_stuck(&self.sealed_room()) {
            stall.stop(What::Memory);
            self.check_writable()?;
            if self.options.threads() > 0 {
                self.wait_for_room()?;
            } else if !self.step()? {
                // Nobody else will make room, and no planner does just now.
                self.flush_listed()?;
            }
        }
        Ok(())
    }

    /// Whether some of these parts of `space` are full and may not be sealed.
    pub(crate) fn is_stuck(
        room: &SealedRoom,
        view: &ReadView,
        parts: impl Iterator<Item = usize>,
    ) -> bool {
        let mut parts = parts.filter_map(|at| view.parts.get(at));
        parts.any(|part| part.is_full() && !room.has_for(part))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Db, KeyspaceOptions, Options};

    use super::*;

    /// It was looked at with every write to any other part, and a new view of all parts made, in
    /// which nothing was new.
    #[test]
    fn a_full_part_that_no_batch_reaches_is_left_as_it_is_and_costs_other_writers_no_view() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::at(directory.path())
            .write_buffer_bytes(1 << 20)
            .memtable_bytes(16 << 10)
            .background_threads(0)
            .cuts(vec![b"m".to_vec()])
            .sealed_memtables_total_max(1);
        let db = Db::open(options).unwrap();
        let space = db.engine().space(KeyspaceId::DEFAULT).unwrap();
        let is_full = || space.view.load().parts[0].is_full();
        while !is_full() {
            db.put(b"a", &[7; 100]).unwrap();
        }
        let view = space.view.load_full();
        for _ in 0..10 {
            db.put(b"z", &[7; 100]).unwrap();
        }
        assert!(Arc::ptr_eq(&view, &space.view.load()));
        db.put(b"a", &[7; 100]).unwrap();
        assert!(!is_full() && db.stats().sealed_memtables == 1);
    }

    /// A keyspace that was dropped was counted with what others had sealed since, by who had begun
    /// to look before.
    #[test]
    fn what_was_looked_at_is_not_all_there_is_once_a_keyspace_comes_or_goes_or_a_memtable_is_sealed()
     {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::at(directory.path())
            .background_threads(0)
            .sealed_memtables_total_max(1);
        let db = Db::open(options).unwrap();
        let engine = db.engine();
        let at_first = engine.look_at_views();
        assert!(engine.are_still(&at_first));
        let goes = db.create_keyspace("goes", KeyspaceOptions::default());
        assert!(!engine.are_still(&at_first));
        goes.unwrap().put(b"a", b"v").unwrap();
        assert!(engine.seal_all(None));
        let before = engine.look_at_views();
        assert!(engine.are_still(&before));
        db.drop_keyspace("goes").unwrap();
        assert!(!engine.are_still(&before));
        db.put(b"a", b"v").unwrap();
        let before = engine.look_at_views();
        assert!(engine.seal_all(None) && !engine.are_still(&before));
        assert_eq!(engine.sealed_memtables(), 1);
    }
}
