//! What the store says of itself.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use thermocline_model::tier::TierId;

use crate::engine::{Engine, Space};
use crate::error::{Error, Result};
use crate::log;
use crate::seal::sealed_of;
use crate::stats::{
    CostStats, KeyspaceStats, LevelStats, MemoryStats, PartStats, StalledFor, Stats, TableInfo,
    TierStats,
};
use crate::version::pointer;

/// Bytes that prices are given for.
const GB: f64 = 1e9;

pub(crate) fn stats(engine: &Engine) -> Stats {
    let (version, tables, manifest_bytes) = {
        let versions = engine.versions.lock();
        let tables: Vec<_> = versions.tables.values().cloned().collect();
        (
            Arc::clone(&versions.current),
            tables,
            versions.manifest.as_ref().map(|m| m.size_bytes()),
        )
    };
    let is_written = engine.counters.writes.get() > 0;
    let (states, lower, cost) = {
        let mut scheduler = engine.scheduler.lock();
        let scene = engine.scene(&mut scheduler);
        let view = scene.view(&scheduler.busy, &scheduler.busy_outputs);
        let placer = &scheduler.preset.placer;
        let cost = CostStats::of(engine, &view);
        (view.tiers.to_vec(), placer.lower(&view), cost)
    };
    let is_full = engine.update_full();
    let tiers: Vec<TierStats> = engine
        .tiers
        .iter()
        .zip(&states)
        .map(|(tier, state)| {
            let here = |id: TierId| id == tier.id;
            TierStats {
                name: state.name.clone(),
                path: tier.spec.path().to_path_buf(),
                capacity_bytes: state.capacity_bytes,
                used_bytes: state.used_bytes,
                meta_bytes: tables
                    .iter()
                    .filter(|t| here(t.meta.meta.tier))
                    .map(|t| t.meta.meta.length)
                    .sum(),
                device_free_bytes: state.device_free_bytes,
                tables: tables.iter().filter(|t| here(t.meta.tier())).count() as u64,
                price_usd_gb_month: state.price_usd_gb_month,
                price_usd_month: state.price_usd_gb_month * state.used_bytes as f64 / GB,
                hits: engine.counters.tier_hits(tier.id),
                block_reads: tables
                    .iter()
                    .filter(|t| here(t.meta.tier()))
                    .map(|t| t.heat().block_reads)
                    .sum(),
                written_bytes: tier.counters.written_bytes.get(),
                relocated_in_bytes: tier.counters.relocated_in_bytes.get(),
                spills: tier.counters.spills.get(),
                spilled_bytes: tier.counters.spilled_bytes.get(),
                spilled_first_us: moment(&tier.counters.spilled_first_us),
                spilled_last_us: moment(&tier.counters.spilled_last_us),
                lower_tables: lower.tables[tier.id.0 as usize],
                lower_bytes: lower.bytes[tier.id.0 as usize],
                direct_io: tier.store.is_direct(),
            }
        })
        .collect();

    let mut keyspaces = Vec::new();
    let (mut all_bytes, mut last_bytes) = (0u64, 0u64);
    for keyspace in version.keyspaces.values() {
        let mut levels = Vec::new();
        let mut last = 0;
        for slot in keyspace.slots() {
            let Some(level) = keyspace.level(slot).filter(|l| !l.runs.is_empty()) else {
                continue;
            };
            let mut tier_bytes = vec![0; tiers.len()];
            let mut hits = 0;
            for table in level.tables() {
                for extent in &table.data {
                    if let Some(bytes) = tier_bytes.get_mut(extent.tier.0 as usize) {
                        *bytes += extent.length;
                    }
                }
                hits += tables
                    .iter()
                    .find(|t| t.meta.id == table.id)
                    .map_or(0, |t| t.heat().hits);
            }
            let bytes = level.size_bytes();
            all_bytes += bytes;
            last = bytes;
            levels.push(LevelStats {
                slot: slot.to_string(),
                runs: level.runs.len() as u64,
                tables: level.table_count() as u64,
                bytes,
                entries: level.tables().map(|t| t.entries).sum(),
                tier_bytes,
                hits,
            });
        }
        last_bytes += last;
        keyspaces.push(KeyspaceStats {
            name: keyspace.name.clone(),
            parts: keyspace.parts.len() as u64,
            part_list: engine.space(keyspace.id).map_or_else(Vec::new, |space| {
                PartStats::of(&space.view.load(), keyspace, is_written)
            }),
            levels,
        });
    }

    let (mut memtables, mut memtable_bytes, mut takers) = (0, 0, 0);
    let views = engine.views_at_once();
    for view in &views {
        for memtable in view.parts.iter().flat_map(|p| p.memtables()) {
            memtables += 1;
            memtable_bytes += memtable.size_share() as u64;
        }
        takers += view.takers() as u64;
    }
    let log = {
        let commit = engine.commit.lock();
        commit
            .log
            .as_ref()
            .map(|l| (l.segments().count() as u64, l.size_bytes()))
    };
    // Opened for reading only, the store has neither open.
    let (log_segments, log_bytes) = log.unwrap_or_else(|| log_on_disk(engine));
    let manifest_bytes = manifest_bytes.unwrap_or_else(|| manifest_on_disk(engine));
    let c = &engine.counters;
    let cache = engine.home.context.cache.stats();
    let written = c.written_bytes.get();
    let to_tables = c.flushed_bytes.get() + c.merge_out_bytes.get() + c.relocated_bytes.get();
    Stats {
        price_usd_month: tiers.iter().map(|t| t.price_usd_month).sum(),
        tiers,
        keyspaces,
        memory: MemoryStats {
            used: engine.memory_used(),
            max: engine.memory_max(takers),
        },
        memtable_bytes,
        memtables,
        active_memtables: takers,
        sealed_memtables: sealed_of(&views) as u64,
        cache_bytes: cache.used_bytes,
        cache_mapped_bytes: cache.mapped_bytes,
        cache_hits: cache.hits,
        cache_misses: cache.misses,
        pinned_meta_bytes: tables.iter().map(|t| t.pinned_bytes()).sum(),
        lookup: engine.lookup.stats(),
        range_index: engine.range_index.stats(),
        log_segments,
        log_bytes,
        manifest_bytes,
        writes: c.writes.get(),
        written_bytes: written,
        failed_writes: c.failed_writes.get(),
        memtable_hits: c.memtable_hits.get(),
        cached_hits: c.cached_hits.get(),
        misses: c.misses.get(),
        scans: c.scans.get(),
        slowdowns: c.slowdowns.get(),
        stall_us: c.stalled.writers_micros(&*engine.environment.clock),
        stalled_us: c.stalled.micros(&*engine.environment.clock),
        stalled_for: StalledFor::of(c, &*engine.environment.clock),
        brake_ns_per_byte: match c.brake.load(Ordering::Relaxed) {
            u64::MAX => u64::MAX,
            ps => ps.div_ceil(1000),
        },
        flushes: c.flushes.get(),
        flushed_bytes: c.flushed_bytes.get(),
        folds: c.folds.get(),
        folded_bytes: c.folded_bytes.get(),
        restated_bytes: c.restated_bytes.get(),
        merges: c.merges.get(),
        merges_by_edit: c.merges_by_edit.get(),
        merge_in_bytes: c.merge_in_bytes.get(),
        merge_out_bytes: c.merge_out_bytes.get(),
        tables_moved: c.tables_moved.get(),
        blocks_copied: c.blocks_copied.get(),
        relocations: c.relocations.get(),
        relocated_bytes: c.relocated_bytes.get(),
        recuts: c.recuts.get(),
        bulk_bytes: c.bulk_bytes.get(),
        write_amplification: ratio(to_tables, written),
        space_amplification: ratio(all_bytes, last_bytes),
        job_errors: c.job_errors.get(),
        last_error: c.last_error().map(|e| e.to_string()),
        recovery: engine.recovery.clone(),
        now_us: engine.environment.clock.now_micros(),
        capacity_bytes: engine.capacity_bytes(),
        is_full,
        cost,
    }
}

/// A moment that has been, if it has been.
fn moment(at_us: &AtomicU64) -> Option<u64> {
    Some(at_us.load(Ordering::Relaxed)).filter(|&at| at > 0)
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

pub(crate) fn tables(engine: &Engine) -> Vec<TableInfo> {
    let scene = engine.scene(&mut engine.scheduler.lock());
    let versions = engine.versions.lock();
    let tier = |id: TierId| {
        engine
            .tiers
            .get(id.0 as usize)
            .map_or_else(String::new, |t| t.spec.name().to_string())
    };
    let mut infos = Vec::new();
    for keyspace in versions.current.keyspaces.values() {
        for (slot, _, table) in keyspace.tables() {
            let heat = versions
                .tables
                .get(&table.id)
                .map(|t| t.heat())
                .unwrap_or_default();
            infos.push(TableInfo {
                id: table.id.0,
                keyspace: keyspace.name.clone(),
                slot: slot.to_string(),
                tier: tier(table.tier()),
                meta_tier: tier(table.meta.tier),
                range: table.range.to_string(),
                data_bytes: table.data_bytes(),
                meta_bytes: table.meta.length,
                entries: table.entries,
                deletes: table.deletes,
                range_deletes: table.range_deletes,
                probes: heat.probes,
                hits: heat.hits,
                block_reads: heat.block_reads,
                temperature: scene.temperature(table.id),
                created_us: table.created_us,
            });
        }
    }
    infos
}

pub(crate) fn approximate_size(space: &Space, start: &[u8], end: &[u8]) -> Result<u64> {
    if start > end {
        return Err(Error::invalid("approximate size: start lies behind end"));
    }
    let view = space.view.load();
    let mut bytes = 0;
    for open in view
        .tree
        .tables()
        .filter(|t| t.meta.range.overlaps_bounds(Some(start), Some(end)))
    {
        let table = open.table()?;
        bytes += table
            .approximate_offset(end)
            .saturating_sub(table.approximate_offset(start));
    }
    Ok(bytes)
}

/// Log segments and their bytes, as far as the directory can be read.
fn log_on_disk(engine: &Engine) -> (u64, u64) {
    let floor = engine.versions.lock().current.log_floor;
    let listed = log::list_segments(&*engine.environment.file_system, &engine.log_directory());
    let needed = listed.unwrap_or_default().into_iter();
    needed
        .filter(|&(segment, _)| segment >= floor)
        .fold((0, 0), |(count, bytes), (_, size)| {
            (count + 1, bytes + size)
        })
}

/// Bytes of the manifest in force, as far as its directory can be read.
fn manifest_on_disk(engine: &Engine) -> u64 {
    let pointer = pointer::current(&engine.environment, &engine.directory());
    let path = pointer.ok().flatten().map(|p| engine.options.path_of(p));
    let path = path.and_then(Result::ok);
    let metadata = path.and_then(|p| engine.environment.file_system.metadata(&p).ok());
    metadata.flatten().map_or(0, |m| m.size_bytes)
}
