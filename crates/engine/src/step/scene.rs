//! What planners see, put together: the owned data behind a view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_model::key::SeqNo;
use thermocline_model::moves::Moves;
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableId;
use thermocline_model::tier::TierState;
use thermocline_model::version::{KeyspaceId, Slot, Version};
use thermocline_model::view::{
    CostOptions, FewKeys, KeyspaceWrites, PartLoad, ShapeOptions, Spent, TableHeat, View, Waits,
};
use thermocline_policy::plan::flush::{memory_bytes, memory_bytes_max};

use super::Scheduler;
use crate::engine::{Engine, LiveMemtable};

/// How long nothing must be written before the store counts as idle.
const IDLE_MICROS: u64 = 5_000_000;

/// Owned data behind a [`View`].
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) version: Arc<Version>,
    tiers: Vec<TierState>,
    heat: BTreeMap<TableId, TableHeat>,
    memtables: BTreeMap<(KeyspaceId, u32), PartLoad>,
    sealed: usize,
    pub(crate) writes: BTreeMap<KeyspaceId, KeyspaceWrites>,
    /// Keyspaces that share the parts.
    pub(crate) sharers: usize,
    spent: Spent,
    pub(crate) waits: Waits,
    flushed_bytes_per_s: f64,
    freed_bytes_per_s: Option<f64>,
    log_wait_share: Option<f64>,
    stalled_share: f64,
    block_reads_per_s: f64,
    log_bytes: u64,
    log_segments: (u64, u64),
    oldest_snapshot: SeqNo,
    idle: bool,
    pub(crate) shape: ShapeOptions,
    pub(crate) cost: CostOptions,
    moves: Moves,
    pub(crate) now_us: u64,
}

impl Scene {
    /// The temperature of a table, if it has one.
    pub(crate) fn temperature(&self, table: TableId) -> Option<f64> {
        self.heat.get(&table)?.temperature
    }

    pub(crate) fn view<'a>(
        &'a self,
        busy: &'a BTreeSet<TableId>,
        busy_outputs: &'a [(KeyspaceId, Slot, KeyRange)],
    ) -> View<'a> {
        View {
            version: &self.version,
            tiers: &self.tiers,
            heat: &self.heat,
            memtables: &self.memtables,
            sealed: self.sealed,
            writes: &self.writes,
            spent: self.spent,
            waits: self.waits,
            busy,
            busy_outputs,
            flushed_bytes_per_s: self.flushed_bytes_per_s,
            freed_bytes_per_s: self.freed_bytes_per_s,
            log_wait_share: self.log_wait_share,
            stalled_share: self.stalled_share,
            block_reads_per_s: self.block_reads_per_s,
            log_bytes: self.log_bytes,
            log_segments: self.log_segments,
            oldest_snapshot: self.oldest_snapshot,
            idle: self.idle,
            forecast: false,
            shape: &self.shape,
            cost: &self.cost,
            moves: &self.moves,
            now_us: self.now_us,
        }
    }
}

impl Engine {
    /// What policies may see now.
    pub(crate) fn scene(&self, scheduler: &mut Scheduler) -> Scene {
        let (version, heat) = self.sample_heat(scheduler);
        let now_us = self.environment.clock.now_micros();
        let cool_down_us = scheduler.cost.migration_cool_down_us;
        scheduler.moves.follow(now_us, cool_down_us);
        let (flushing, recutting) = (&scheduler.flushing, &scheduler.recutting);
        let mut memtables = BTreeMap::new();
        for (&id, space) in &**self.spaces.load() {
            for (part, index) in space.view.load().parts.iter().zip(0u32..) {
                let oldest = part
                    .memtables()
                    .map(|m| m.oldest_segment.load(Ordering::Acquire))
                    .min();
                memtables.insert(
                    (id, index),
                    PartLoad {
                        takers: part.takers().count(),
                        active_bytes: part.takers().map(|m| m.table.size_bytes() as u64).sum(),
                        sealed: part.sealed.len(),
                        sealed_bytes: part.sealed.iter().map(|m| m.size_share() as u64).sum(),
                        sealed_memory_bytes: part.sealed.iter().map(|m| m.memory_bytes()).sum(),
                        takers_memory_bytes_max: part.takers().map(|m| m.memory_bytes_max()).sum(),
                        older: part.sealed.iter().any(|m| m.older.load(Ordering::Acquire)),
                        // The cuts can only move between flushes.
                        flushing: flushing.contains(&(id, index)) || recutting.contains(&id),
                        oldest_segment: oldest.filter(|&s| s != u64::MAX),
                        folded: part.sealed.iter().filter(|m| m.is_folded()).count(),
                        sealed_few: self.few_keys(part.sealed.iter(), true),
                        active_few: None,
                    },
                );
            }
        }
        let (writes, sharers) = self.count_writes(scheduler);
        self.look_at_active(&mut memtables);
        let flushed_bytes = self.counters.flushed_bytes.get();
        let block_reads = self.home.context.cache.stats().misses;
        let stalled_us = self.counters.stalled.micros(&*self.environment.clock);
        // Not held while tiers are asked, one of which may hang.
        let (freed_bytes_per_s, log_wait_share) = {
            let emptied = self.emptied.lock();
            (emptied.freed_bytes_per_s(), emptied.log_waits.share(now_us))
        };
        Scene {
            writes,
            sharers,
            spent: self.spent(),
            waits: scheduler.waits,
            flushed_bytes_per_s: scheduler.flushed.per_second(now_us, flushed_bytes),
            freed_bytes_per_s,
            log_wait_share,
            stalled_share: scheduler.stalled.per_second(now_us, stalled_us) / 1e6,
            block_reads_per_s: scheduler.block_reads.per_second(now_us, block_reads),
            log_segments: (version.log_floor, self.log_segment.load(Ordering::Acquire)),
            version,
            oldest_snapshot: self
                .snapshots
                .lock()
                .keys()
                .next()
                .copied()
                .unwrap_or_else(|| self.visible()),
            idle: self.is_idle(),
            tiers: self.tier_states(),
            heat,
            memtables,
            sealed: self.sealed_memtables(),
            log_bytes: self.log_bytes.load(Ordering::Relaxed),
            shape: ShapeOptions {
                ranges: self.ranges(sharers, scheduler.waits.division),
                ..self.shape()
            },
            cost: scheduler.cost.clone(),
            moves: scheduler.moves.clone(),
            now_us,
        }
    }

    /// The keys of `memtables`, if each of them has few.
    fn few_keys<'a>(
        &self,
        memtables: impl Iterator<Item = &'a Arc<LiveMemtable>>,
        are_sealed: bool,
    ) -> Option<FewKeys> {
        let keys_max = self.options.folds_below();
        let mut all = FewKeys::default();
        if keys_max == 0 {
            return None;
        }
        for memtable in memtables {
            let few = memtable.few_keys(keys_max, are_sealed)?;
            all.keys += few.keys;
            all.live_bytes += few.live_bytes;
        }
        Some(all)
    }

    /// Counts the keys of the memtables that take writes, if these may have to be
    /// flushed soon: when memory or log are short.
    fn look_at_active(&self, memtables: &mut BTreeMap<(KeyspaceId, u32), PartLoad>) {
        let (options, shape) = (&self.options, self.shape());
        let is_short = memory_bytes(memtables) >= memory_bytes_max(shape.flush_bytes)
            || self.log_bytes.load(Ordering::Relaxed) > options.log_bytes_max;
        if options.folds_below() == 0 || !is_short {
            return;
        }
        for (&(id, index), load) in memtables {
            let space = self.space(id);
            let view = space.map(|space| space.view.load_full());
            let part = view.as_ref().and_then(|v| v.parts.get(index as usize));
            if let Some(part) = part {
                load.active_few = self.few_keys(part.takers(), false);
            }
        }
    }

    /// Whether nothing was written for a while, or somebody waits for the store
    /// to settle.
    fn is_idle(&self) -> bool {
        let (now_us, newest) = (self.environment.clock.now_micros(), self.visible());
        let mut last = self.last_write.lock();
        if last.0 != newest {
            *last = (newest, now_us);
        }
        self.settling.load(Ordering::Relaxed) > 0 || now_us.saturating_sub(last.1) > IDLE_MICROS
    }
}
