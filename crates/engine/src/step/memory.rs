//! What memory holds, what the background lets go of, and how writers wait until there is room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::{Engine, PartView, Versions};
use crate::error::Result;
use crate::footprint::MemoryBytes;
use crate::version::tree::OpenTable;

/// How long a writer waits for a job before it looks again.
const WRITER_WAIT: Duration = Duration::from_millis(10);

impl Engine {
    /// Lets go of the metadata of the least used tables while more is in memory
    /// than the options allow. Readers that hold them go on undisturbed; the
    /// next read of such a table reads its metadata again.
    pub(super) fn unload_cold_tables(&self) {
        let mut versions = self.versions.lock();
        let limit = self.options.pinned_meta_bytes;
        let mut excess = self.metadata_bytes(&versions).saturating_sub(limit);
        if excess == 0 {
            return;
        }
        let mut loaded: Vec<_> = versions
            .tables
            .values()
            .filter(|t| t.pinned_bytes() > 0 || t.filter().is_some())
            .cloned()
            .collect();
        if loaded.is_empty() {
            // All of it is in the hands of readers.
            return;
        }
        // Counted once each: readers go on counting meanwhile, and an order that
        // moves under a sort is none.
        loaded.sort_by_cached_key(|t| t.heat().probes + t.heat().scans);
        for table in loaded {
            if excess == 0 {
                break;
            }
            // Cannot fail: its extents name tiers that exist, or it would not
            // be here.
            if let Ok(unloaded) = OpenTable::new(Arc::clone(&table.meta), &self.home, Some(&table))
            {
                // A filter stands for all tables of a flush: it goes with the last.
                let unloaded = unloaded.with_filter(None);
                excess = excess.saturating_sub(table.pinned_bytes());
                versions.tables.insert(table.meta.id, Arc::new(unloaded));
            }
        }
        self.rebuild_trees(&mut versions);
    }

    /// As [`Engine::step`], for a writer who has no threads to wait for. While memory is full that
    /// is after a job of others that runs now, and, if one has just failed, once the next may
    /// begin.
    pub(crate) fn step_for_writer(&self) -> Result<bool> {
        if self.step()? {
            return Ok(true);
        }
        if !self.memory_is_full() {
            return Ok(false);
        }
        let mut scheduler = self.scheduler.lock();
        if scheduler.running > 0 {
            self.done.wait_for(&mut scheduler, WRITER_WAIT);
            return Ok(true);
        }
        let wait_us = scheduler.backoff_us(self.environment.clock.now_micros());
        drop(scheduler);
        if wait_us == 0 {
            return Ok(false);
        }
        self.environment.clock.sleep(Duration::from_micros(wait_us));
        self.step()
    }

    /// Waits a moment for a job to end; fails with the reason when there is no
    /// hope of room.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        self.wake();
        {
            let mut scheduler = self.scheduler.lock();
            self.done.wait_for(&mut scheduler, WRITER_WAIT);
        }
        let failing = self.environment.clock.now_micros() < self.scheduler.lock().not_before_us;
        if failing && let Some(error) = self.counters.last_error() {
            return Err(error);
        }
        Ok(())
    }

    /// Memory of the memtables that take entries, wait for a flush, or are held by
    /// one, in bytes.
    pub(crate) fn memtable_resident_bytes(&self) -> u64 {
        let mut bytes = 0;
        for space in self.spaces.load().values() {
            let view = space.view.load();
            let memtables = view.parts.iter().flat_map(PartView::memtables);
            bytes += memtables.map(|m| m.resident_share() as u64).sum::<u64>();
        }
        // Read last: what leaves a view is counted here before, so that nothing
        // is missed; at worst it is counted twice.
        bytes + self.leaving_bytes.load(Ordering::Acquire) as u64
    }

    /// Memory held now, by kind.
    pub(crate) fn memory_used(&self) -> MemoryBytes {
        let (running, heat) = {
            let scheduler = self.scheduler.lock();
            (scheduler.running as u64, scheduler.heat_bytes())
        };
        MemoryBytes {
            memtables: self.memtable_resident_bytes() + self.arenas.idle_bytes() as u64,
            block_cache: self.home.context.cache.stats().resident_bytes,
            table_metadata: self.metadata_bytes(&self.versions.lock()),
            jobs: (running + self.spare_threads.beside() as u64) * self.options.job_bytes_max(),
            lookup_index: self.lookup.stats().bytes,
            other: heat,
        }
    }

    /// The most memory that may be held now, by kind, where so many memtables take writes.
    pub(crate) fn memory_max(&self, takers: u64) -> MemoryBytes {
        let (max, lent) = (self.options.memory_max(takers), self.lent_bytes());
        let pooled = self.options.pooled_bytes();
        MemoryBytes {
            memtables: max.memtables - pooled + lent,
            block_cache: (max.block_cache + pooled).saturating_sub(lent),
            ..max
        }
    }

    /// Block lists and filters of tables in memory, and filters of the flushes
    /// that tables were made by, in bytes.
    fn metadata_bytes(&self, versions: &Versions) -> u64 {
        let mut filters = BTreeMap::new();
        for filter in versions.tables.values().filter_map(|t| t.filter()) {
            filters.insert(Arc::as_ptr(filter), filter.bytes() as u64);
        }
        self.home.context.pinned_bytes() + filters.values().sum::<u64>()
    }
}
