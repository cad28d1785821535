//! Which part to flush.
//!
//! Memory comes first: of the parts whose sealed memtables hold a flush's worth, the one with the
//! most bytes. Writers that fill the memory slowly, beside what flushes take to empty it, are let
//! go on to half of it: what is in memory costs reads no device, and larger runs cost fewer merges,
//! and are fewer to look into. Then the log: a part that writes little would keep an old segment,
//! and all after it, for ever, so once the log is too large the part that needs its oldest segment
//! is flushed, however little it holds. A part that is being flushed is left alone.
//!
//! Many parts may fill the memory together while none of them holds a flush's
//! worth: then writers would stop and nobody would make room. So at half of the
//! memory the part that holds most is flushed, sealed or not; the memtable that takes
//! writes along with the sealed ones, if it has much of what the part holds. Where that is little,
//! as there are many parts on several tiers, the next ones go with it (`next_fullest`).
//!
//! In both cases all parts are flushed together, with the memtables that take writes, where they
//! are about as full and options or preset say so, or where the log shares the device of all
//! tables, and both flushes and writers have waited for much of their time, flushes for the log:
//! that of what they hold need not be made durable then (`together`).
//!
//! Where options bound the number of sealed memtables, of a part or of all, or the memory of a
//! part's memtables, a part is flushed once the next ones would find no room: then writers are
//! about to wait for it.
//!
//! Before all of these come memtables of an older generation: when cuts move, those that
//! were there stay in memory until every part that they reach into was flushed. So all parts that
//! have some are flushed together.
//!
//! With `logstore` a flush for which the first tier has no room waits while a job reads tables of
//! it, most of which make room, or such a job is due: on the slow tier each flush would be one
//! more run to seek in, and come up again. When there is none, or it has made none for
//! `WAITS_US_MAX`, it goes where there is room, as do those after it until the first tier has some.
//!
//! Where folding the memtables does as well as flushing them, they are folded
//! ([`fold`]).

use std::collections::BTreeMap;

use thermocline_model::job::{Flush, Job, Reason};
use thermocline_model::tier::TierId;
use thermocline_model::version::KeyspaceId;
use thermocline_model::view::{PartLoad, View};

use super::fold;
use crate::Planner;
use crate::place::fill::Fill;
use crate::plan::fast_levels::{Share, is_fast};
use crate::plan::headroom::flush_room;
use crate::pressure::Room;

/// See the module.
#[derive(Default)]
pub struct FlushSealed {
    /// When the last flush was planned; 0 before the first.
    planned_us: u64,
    /// What makes room on the first tier, for which flushes wait; see the module.
    relief: Vec<Box<dyn Planner>>,
    /// Whether so much is made at once that writers can be paced by it.
    is_roomy: bool,
    /// Since when they have been waiting; 0 when they are not.
    waiting_us: u64,
}

/// How long flushes wait for room, in microseconds. If none has come by then the jobs that
/// should make it fail, or take longer than writers should wait: flushes go where there is
/// room until there is some on the first tier again.
const WAITS_US_MAX: u64 = 20_000_000;

impl FlushSealed {
    /// One whose flushes wait for room on the first tier while one of these planners makes some.
    /// `is_roomy`: with deferred compaction they make so much at once that writers can be paced by
    /// it.
    #[must_use]
    pub fn on_first_tier(relief: Vec<Box<dyn Planner>>, is_roomy: bool) -> FlushSealed {
        FlushSealed {
            relief,
            is_roomy,
            ..FlushSealed::default()
        }
    }

    /// What was planned last is not done: it is due again at once, however long ago that was.
    pub(super) fn forget(&mut self) {
        self.planned_us = 0;
    }

    /// Whether flushes have waited for so long that they go where there is room.
    fn has_given_up(&self, view: &View<'_>) -> bool {
        self.waiting_us > 0 && view.now_us.saturating_sub(self.waiting_us) >= WAITS_US_MAX
    }

    /// Whether the first tier has no room for `flush`, but a job may soon make some.
    fn waits_for_room(&mut self, view: &View<'_>, flush: &Flush) -> bool {
        if self.relief.is_empty() || has_room(view, flush) {
            self.waiting_us = 0;
            return false;
        }
        if self.waiting_us == 0 || self.waiting_us > view.now_us {
            self.waiting_us = view.now_us.max(1);
        }
        !self.has_given_up(view)
            && (is_read(view) || self.relief.iter_mut().any(|p| p.plan(view).is_some()))
    }
}

/// Whether the first of several tiers has room for `flush`.
fn has_room(view: &View<'_>, flush: &Flush) -> bool {
    short_bytes(view, flush) == 0
}

/// The bytes of room that the first of several tiers lacks for `flush`.
pub(super) fn short_bytes(view: &View<'_>, flush: &Flush) -> u64 {
    let loads = flush
        .parts()
        .filter_map(|part| view.memtables.get(&(flush.keyspace, part)));
    let bytes = loads.map(|load| match flush.active {
        true => held(load),
        false => load.sealed_bytes,
    });
    let bytes = bytes.sum::<u64>();
    // More is written by the time it begins.
    lacking_bytes(view, bytes.max(view.shape.flush_bytes))
}

/// The bytes of room that the first of several tiers lacks for what is flushed, where so many are
/// `needed`.
pub(super) fn lacking_bytes(view: &View<'_>, needed: u64) -> u64 {
    let [first, _, ..] = view.tiers else {
        return 0;
    };
    // What a merge is writing takes the place of what it reads. A tier that is too small for it
    // will never have room.
    if first.capacity_bytes < needed || first.room_bytes() >= needed {
        return 0;
    }
    needed.saturating_sub(Fill::of(view).room_for_flush(view, 0))
}

/// Whether a job reads what may make room on the first tier: a table that lies there, or
/// one that would.
fn is_read(view: &View<'_>) -> bool {
    let mut keyspaces = view.version.keyspaces.values();
    !view.busy.is_empty()
        && keyspaces.any(|keyspace| {
            let mut tables = keyspace.tables();
            tables.any(|(slot, _, table)| {
                let here = table.tier() == TierId(0) || is_fast(keyspace, slot);
                here && view.busy.contains(&table.id)
            })
        })
}

/// Writers that took as long to fill a flush's worth of memory as so many flushes of it take may
/// fill as much again before it is flushed: then a flush may take so many times as long as those
/// before it, and they do not wait.
const SLOW_WRITERS_FLUSHES: f64 = 8.0;

/// Whether writers that filled a flush's worth of memory in `took_us` are that slow.
fn are_slow(view: &View<'_>, took_us: u64) -> bool {
    view.freed_bytes_per_s.is_some_and(|freed| {
        let flush_s = view.shape.flush_bytes as f64 / freed;
        took_us as f64 / 1e6 >= SLOW_WRITERS_FLUSHES * flush_s
    })
}

impl std::fmt::Debug for FlushSealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlushSealed")
            .field("relief", &self.relief.len())
            .finish_non_exhaustive()
    }
}

impl Planner for FlushSealed {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let took_us = view.now_us.saturating_sub(self.planned_us);
        let slow = !view.idle && self.planned_us > 0 && are_slow(view, took_us);
        let sealed = if slow { None } else { sealed(view) };
        let flush = older(view)
            .or_else(|| crowded(view))
            .or(sealed)
            .or_else(|| oldest_segment(view))
            .or_else(|| largest(view));
        let Some(flush) = flush else {
            // Those that have given up wait no more before there was room.
            if !self.has_given_up(view) {
                self.waiting_us = 0;
            }
            return None;
        };
        if self.waits_for_room(view, &flush) {
            return None;
        }
        self.planned_us = view.now_us;
        Some(match fold::instead_of(view, &flush) {
            Some(fold) => Job::Fold(fold),
            None => Job::Flush(flush),
        })
    }

    fn room(&self, view: &View<'_>) -> Option<Room> {
        let paces = self.is_roomy && view.shape.staging.on.deferred && !self.has_given_up(view);
        paces.then(|| flush_room(view, &Share::of(view))).flatten()
    }
}

fn older(view: &View<'_>) -> Option<Flush> {
    let waiting = view.memtables.iter();
    let mut waiting = waiting.filter(|(_, load)| load.older && !load.flushing);
    let (&(keyspace, part), first) = waiting.next()?;
    let beside: Vec<_> = waiting.filter(|((id, _), _)| *id == keyspace).collect();
    let bytes = beside.iter().map(|(_, load)| load.sealed_bytes);
    let bytes = first.sealed_bytes + bytes.sum::<u64>();
    Some(Flush {
        keyspace,
        part,
        beside: beside.iter().map(|((_, part), _)| *part).collect(),
        active: false,
        reason: Reason::new("older-generation").with("sealed_bytes", bytes as f64),
    })
}

/// The most memtables that are sealed together.
fn takers_most(view: &View<'_>) -> usize {
    let takers = view.memtables.values().map(|load| load.takers);
    takers.max().unwrap_or(0).max(1)
}

/// What leaves no room for the next memtables of a part with this `load`, where so many are sealed
/// in all.
fn crowding(view: &View<'_>, load: &PartLoad, all: usize) -> Option<Reason> {
    let shape = view.shape;
    let reason = || Reason::new("sealed-full").with("sealed", load.sealed as f64);
    // Those that take writes are full by then, and others take their place.
    let takers_bytes = load.takers_memory_bytes_max.saturating_mul(2);
    if load.sealed.saturating_add(load.takers) > shape.sealed_max {
        Some(reason().with("sealed_memtables_max", shape.sealed_max as f64))
    } else if load.sealed_memory_bytes.saturating_add(takers_bytes) > shape.part_memory_bytes_max {
        Some(
            reason()
                .with("sealed_memory_bytes", load.sealed_memory_bytes as f64)
                .with("part_memory_bytes_max", shape.part_memory_bytes_max as f64),
        )
    } else if all.saturating_add(takers_most(view)) > shape.sealed_total_max {
        Some(
            reason()
                .with("of_all", all as f64)
                .with("sealed_memtables_total_max", shape.sealed_total_max as f64),
        )
    } else {
        None
    }
}

/// Whether a part with this `load` has no room for its next memtables, where so many are sealed in
/// all.
pub(super) fn is_crowded(view: &View<'_>, load: &PartLoad, all: usize) -> bool {
    crowding(view, load, all).is_some()
}

/// The part whose sealed memtables leave no room for its next ones, or the one with most of all
/// where those of all parts do.
fn crowded(view: &View<'_>) -> Option<Flush> {
    let waiting = view
        .memtables
        .iter()
        .filter(|(_, load)| !load.flushing && load.sealed > 0);
    let full = waiting.filter_map(|(part, load)| {
        let reason = crowding(view, load, view.sealed)?;
        Some((part, load.sealed, reason))
    });
    let (&(keyspace, part), _, reason) = full.rev().max_by_key(|(_, sealed, _)| *sealed)?;
    Some(Flush {
        keyspace,
        part,
        beside: Vec::new(),
        active: false,
        reason,
    })
}

/// Whether a flush of this part finds sealed memtables, or room to seal what takes writes.
fn has_some(view: &View<'_>, load: &PartLoad) -> bool {
    load.sealed > 0 || view.sealed.saturating_add(load.takers) <= view.shape.sealed_total_max
}

fn sealed(view: &View<'_>) -> Option<Flush> {
    let flush_bytes = view.shape.flush_bytes;
    let full = view
        .memtables
        .iter()
        .filter(|(_, load)| !load.flushing && load.sealed > 0 && load.sealed_bytes >= flush_bytes);
    // Of equals the first, so that the answer does not depend on anything else.
    let (&(keyspace, part), load) = full.rev().max_by_key(|(_, load)| load.sealed_bytes)?;
    let beside = together(view, keyspace, part);
    let reason = Reason::new("memtable-full")
        .with("sealed_bytes", load.sealed_bytes as f64)
        .with("flush_bytes", flush_bytes as f64);
    Some(Flush {
        keyspace,
        part,
        active: !beside.is_empty(),
        reason: with_log(view, reason),
        beside,
    })
}

/// Flushes' worth of memory, over all parts, at which the largest is flushed;
/// writers stop at twice as much.
const MEMORY_FLUSHES: u64 = 2;

/// Bytes of memtables that no flush under way will free.
#[must_use]
pub fn memory_bytes(memtables: &BTreeMap<(KeyspaceId, u32), PartLoad>) -> u64 {
    let held = memtables
        .values()
        .map(|load| load.active_bytes + if load.flushing { 0 } else { load.sealed_bytes });
    held.sum()
}

/// Such bytes at which the part that holds most is flushed, sealed or not.
#[must_use]
pub fn memory_bytes_max(flush_bytes: u64) -> u64 {
    MEMORY_FLUSHES * flush_bytes
}

/// Bytes of a part's memtables.
fn held(load: &PartLoad) -> u64 {
    load.active_bytes + load.sealed_bytes
}

/// How many times the even share of all memory a part may hold where all are flushed together.
const TOGETHER_SHARES_MAX: u64 = 3;

/// Where nobody says from how many bytes on parts are flushed together, and the log shares the last
/// tier with tables: from so many on the average
const TOGETHER_BYTES_MIN: u64 = 64 << 10;

/// while flushes of single parts wait for the log of the others for such a share of their time,
const LOG_WAIT_SHARE: f64 = 0.2;

/// and writers for such a share of theirs. What is flushed together is freed all at once, so that
/// writers that kept up with flushes one by one would have to wait.
const STALLED_SHARE: f64 = 0.1;

/// Bytes that parts have on the average from which those that are about as full are flushed
/// together; 0 for never.
fn together_bytes_min(view: &View<'_>) -> u64 {
    let given = view.shape.flush_together_bytes_min;
    given.unwrap_or_else(|| {
        let of_log = view.shape.pins.log.unwrap_or(TierId(0));
        let shares_device = view.tiers.last().is_some_and(|last| last.id == of_log);
        let flushes_wait = view.log_wait_share >= Some(LOG_WAIT_SHARE);
        let writers_wait = view.stalled_share >= STALLED_SHARE;
        match shares_device && flushes_wait && writers_wait {
            true => TOGETHER_BYTES_MIN,
            false => 0,
        }
    })
}

/// The parts that are flushed with `part`, which holds most, so that nothing that is older stays in
/// memory: all others that hold something, or none. What another keyspace holds is older, too.
///
/// What is flushed while something older is in memory has its log made durable first, and all of it
/// is written to the device. Where all goes, the log goes before the device has seen most of it.
/// Where all would be small, or all but a part that has far more than its share, that goes alone:
/// small runs have to be merged more often.
fn together(view: &View<'_>, keyspace: KeyspaceId, part: u32) -> Vec<u32> {
    let filled = (view.memtables.iter()).filter(|(_, load)| load.oldest_segment.is_some());
    let (mut parts, mut bytes, mut most) = (Vec::new(), 0, 0);
    for (&(id, at), load) in filled {
        if id != keyspace || load.flushing || load.older {
            return Vec::new();
        }
        bytes += held(load);
        most = most.max(held(load));
        if at != part {
            parts.push(at);
        }
    }
    let even = bytes / (parts.len() as u64 + 1);
    let least = together_bytes_min(view);
    let are_even = most <= even.saturating_mul(TOGETHER_SHARES_MAX);
    match least > 0 && even >= least && are_even {
        true => parts,
        false => Vec::new(),
    }
}

/// Full memory over the bytes that a flush for it takes at least. Of ten parts the one that holds
/// most has as many.
const FULL_SHARES: u64 = 10;

/// Parts that are flushed with `part`, which holds most of what fills the memory, because that is
/// little: the next in order of what they hold, but those of few keys, which are folded when it is
/// their turn ([`fold`]). A flush waits for its device some three times, however little it writes.
/// On one tier there are only so many parts if somebody asks for them, and they go one by one: what
/// stays for longer is overwritten more, and folded with more.
fn next_fullest(view: &View<'_>, keyspace: KeyspaceId, part: u32) -> Vec<u32> {
    if view.tiers.len() < 2 {
        return Vec::new();
    }
    let least = memory_bytes_max(view.shape.flush_bytes) / FULL_SHARES;
    let mut bytes = view.memtables.get(&(keyspace, part)).map_or(0, held);
    let others = view.memtables.iter().filter(|&(&(id, at), load)| {
        let is_free = !load.flushing && !load.older && has_some(view, load);
        let is_due = load.oldest_segment.is_some() && is_free;
        id == keyspace && at != part && is_due && !fold::has_few_keys(load)
    });
    let mut others: Vec<(u64, u32)> = others.map(|(&(_, at), load)| (held(load), at)).collect();
    others.sort_by_key(|&(bytes, at)| (std::cmp::Reverse(bytes), at));
    let taken = others.into_iter().map_while(|(held_bytes, at)| {
        let is_little = bytes < least;
        bytes += held_bytes;
        is_little.then_some(at)
    });
    taken.collect()
}

/// `reason`, and what says whether other parts are flushed too, if that is up to the log.
fn with_log(view: &View<'_>, reason: Reason) -> Reason {
    match (view.shape.flush_together_bytes_min, view.log_wait_share) {
        (None, Some(share)) => reason
            .with("log_wait_share", share)
            .with("stalled_share", view.stalled_share),
        _ => reason,
    }
}

fn largest(view: &View<'_>) -> Option<Flush> {
    let memory_bytes = memory_bytes(view.memtables);
    if memory_bytes < memory_bytes_max(view.shape.flush_bytes) {
        return None;
    }
    let filled = view
        .memtables
        .iter()
        .filter(|(_, load)| !load.flushing && load.oldest_segment.is_some())
        .filter(|(_, load)| has_some(view, load));
    let (&(keyspace, part), load) = filled.rev().max_by_key(|(_, load)| held(load))?;
    let beside = match together(view, keyspace, part) {
        all if all.is_empty() => next_fullest(view, keyspace, part),
        all => all,
    };
    let reason = Reason::new("memory-full")
        .with("memory_bytes", memory_bytes as f64)
        .with("part_bytes", held(load) as f64);
    Some(Flush {
        keyspace,
        part,
        active: !beside.is_empty() || load.active_bytes >= load.sealed_bytes / 2,
        reason: with_log(view, reason),
        beside,
    })
}

fn oldest_segment(view: &View<'_>) -> Option<Flush> {
    if view.log_bytes <= view.shape.log_bytes_max {
        return None;
    }
    let pinning = view
        .memtables
        .iter()
        .filter_map(|(part, load)| Some((load.oldest_segment?, part, load)));
    let (segment, &(keyspace, part), load) =
        pinning.min_by_key(|(segment, part, _)| (*segment, *part))?;
    // A flush under way will free the segment; and the current one stays
    // whatever is flushed.
    if load.flushing || segment >= view.log_segments.1 || !has_some(view, load) {
        return None;
    }
    Some(Flush {
        keyspace,
        part,
        beside: Vec::new(),
        active: false,
        reason: Reason::new("log-full")
            .with("log_bytes", view.log_bytes as f64)
            .with("log_bytes_max", view.shape.log_bytes_max as f64)
            .with("segment", segment as f64),
    })
}
