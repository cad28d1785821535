//! What happens to a point read: memtables, then runs from new to old, until
//! an entry of the key is found.
//!
//! Recency is position (I1), so the first visible entry found is the newest
//! one, and range deletes met on the way down are newer than everything below
//! them. No lock is taken. Memtables and newest runs that the lookup index knows to be newer
//! than any entry of the key are passed over ([`crate::lookup`]).

use std::sync::Arc;

use thermocline_model::key::{Kind, SeqNo};
use xxhash_rust::xxh3::xxh3_64;

use crate::batch::check_key;
use crate::engine::{Engine, LiveMemtable, PartView, ReadView, Space};
use crate::error::Result;
use crate::memory::MemValue;
use crate::slice::Slice;
use crate::table::{Fetches, Table, TableHit};

impl Engine {
    /// The newest value of `key` that `snapshot` sees; none means the newest.
    pub(crate) fn get(
        &self,
        space: &Space,
        key: &[u8],
        snapshot: Option<SeqNo>,
    ) -> Result<Option<Slice>> {
        check_key(key)?;
        space.check_open()?;
        // The view before the number: what the view lacks is newer than it,
        // and reading without that is as good as reading a moment earlier.
        let view = space.view.load();
        let snapshot = snapshot.unwrap_or_else(|| self.visible());
        self.get_in(&view, key, xxh3_64(key), snapshot)
    }

    /// The number up to which everything is visible.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        self.published.upto()
    }

    /// A view and a number that belong together: everything up to the number
    /// is in the view, and nothing that the number sees was dropped from it.
    pub(crate) fn consistent_view(
        &self,
        space: &Space,
        snapshot: Option<SeqNo>,
    ) -> (Arc<ReadView>, SeqNo) {
        loop {
            let view = space.view.load_full();
            let Some(snapshot) = snapshot else {
                let seq = self.visible();
                if Arc::ptr_eq(&view, &space.view.load()) {
                    return (view, seq);
                }
                continue;
            };
            return (view, snapshot);
        }
    }

    pub(crate) fn get_in(
        &self,
        view: &ReadView,
        key: &[u8],
        hash: u64,
        snapshot: SeqNo,
    ) -> Result<Option<Slice>> {
        let found = self.find(view, key, hash, snapshot, |table| {
            table.get(key, hash, snapshot).map(Some)
        })?;
        Ok(found.flatten())
    }

    /// The value of `key`, looking into tables by `probe`; `None` when that
    /// could not tell.
    #[inline]
    fn find(
        &self,
        view: &ReadView,
        key: &[u8],
        hash: u64,
        snapshot: SeqNo,
        mut probe: impl FnMut(&Arc<Table>) -> Result<Option<Option<TableHit>>>,
    ) -> Result<Option<Option<Slice>>> {
        let part = view.cuts.part_of(key);
        let memtables = &view.parts[part];
        let mut cover = SeqNo::ZERO;
        // After the number was taken: up to it, all is in the index. Which of a duplicated part's
        // memtables has the newest entry, it does not tell.
        let passed_over = match memtables.by_number {
            true => 0,
            false => self
                .lookup
                .passed_over(view.stamps(part), 1 + memtables.sealed.len(), hash),
        };
        let hit = match memtables.by_number {
            true => newest_by_number(memtables, key, hash, snapshot, &mut cover),
            false => newest_by_place(memtables, passed_over, key, hash, snapshot, &mut cover),
        };
        if let Some((seq, kind, value)) = hit {
            self.counters.memtable_hits.add(1);
            let live = kind == Kind::Put && seq > cover;
            return Ok(Some(live.then(|| Slice::memory(value))));
        }
        let passed_over = passed_over.saturating_sub(1 + memtables.sealed.len());
        for run in view.tree.runs_for(part, passed_over) {
            let Some(open) = run.find(key) else { continue };
            if open.meta.range_deletes == 0 && open.surely_lacks(hash) {
                continue;
            }
            let table = open.table()?;
            if open.meta.range_deletes > 0
                && let Some(seq) = table.cover().newest(key, snapshot)
            {
                cover = cover.max(seq);
            }
            if cover > open.meta.seq_max {
                // Everything in this table is deleted; so is all below, but
                // only as far as it is older, which the next table will tell.
                continue;
            }
            let Some(found) = probe(table)? else {
                return Ok(None);
            };
            if let Some(hit) = found {
                if hit.from_device {
                    self.counters.tier_hit(open.meta.tier());
                } else {
                    self.counters.cached_hits.add(1);
                }
                let live = hit.kind == Kind::Put && hit.seq > cover;
                return Ok(Some(live.then(|| Slice::block(hit.value))));
            }
        }
        self.counters.misses.add(1);
        Ok(Some(None))
    }

    /// Many point reads against one snapshot. Blocks that are not cached are
    /// asked for together: of the operating system by advice, or of the store's
    /// own threads on a tier whose reads go past its cache.
    pub(crate) fn multi_get(
        &self,
        space: &Space,
        keys: &[&[u8]],
        snapshot: Option<SeqNo>,
    ) -> Result<Vec<Option<Slice>>> {
        for key in keys {
            check_key(key)?;
        }
        space.check_open()?;
        let (view, snapshot) = self.consistent_view(space, snapshot);
        let mut order: Vec<(usize, u64)> = keys
            .iter()
            .enumerate()
            .map(|(i, key)| (i, xxh3_64(key)))
            .collect();
        // Neighbours share blocks.
        order.sort_unstable_by_key(|&(i, _)| keys[i]);
        let mut values = vec![None; keys.len()];
        // What is cached is answered at once; the devices read the rest side by
        // side meanwhile.
        let mut fetches = Fetches::default();
        loop {
            let mut later = Vec::new();
            for (i, hash) in order {
                let key = keys[i];
                let found = self.find(&view, key, hash, snapshot, |table| {
                    fetches.probe(table, key, hash, snapshot)
                })?;
                match found {
                    Some(value) => values[i] = value,
                    None => later.push((i, hash)),
                }
            }
            order = later;
            if order.is_empty() || !fetches.receive()? {
                break;
            }
        }
        // Nothing more can be asked for: these wait one by one.
        for (i, hash) in order {
            values[i] = self.get_in(&view, keys[i], hash, snapshot)?;
        }
        Ok(values)
    }
}

type MemoryHit = (SeqNo, Kind, MemValue);

/// The newest entry of `key` in a memtable. `cover` becomes the newest delete of a range that it
/// may lie in.
#[inline(always)]
fn entry_in(
    memtable: &LiveMemtable,
    key: &[u8],
    hash: u64,
    snapshot: SeqNo,
    cover: &mut SeqNo,
) -> Option<MemoryHit> {
    let memtable = &memtable.table;
    if let Some(seq) = memtable.cover(key, snapshot) {
        *cover = seq.max(*cover);
    }
    memtable.get_pinned(key, hash, snapshot)
}

/// The newest entry of `key` in the memtables of a part, without the first `passed_over`: the first
/// that is met. `cover` becomes the newest delete of a range that it may lie in.
#[inline(always)]
fn newest_by_place(
    part: &PartView,
    passed_over: usize,
    key: &[u8],
    hash: u64,
    snapshot: SeqNo,
    cover: &mut SeqNo,
) -> Option<MemoryHit> {
    debug_assert!(part.twins.is_empty());
    let sealed = passed_over.saturating_sub(1).min(part.sealed.len());
    let active = (passed_over == 0).then_some(&part.active);
    for memtable in active.into_iter().chain(&part.sealed[sealed..]) {
        let hit = entry_in(memtable, key, hash, snapshot, cover);
        if hit.is_some() {
            return hit;
        }
    }
    None
}

/// The same for a part that is duplicated, or was: of all entries met, that with the highest
/// number.
#[cold]
fn newest_by_number(
    part: &PartView,
    key: &[u8],
    hash: u64,
    snapshot: SeqNo,
    cover: &mut SeqNo,
) -> Option<MemoryHit> {
    let mut newest: Option<MemoryHit> = None;
    for memtable in part.memtables() {
        let hit = entry_in(memtable, key, hash, snapshot, cover);
        newest = hit.into_iter().chain(newest).max_by_key(|(seq, ..)| *seq);
    }
    newest
}
