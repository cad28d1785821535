//! Heat as plain counts by table, fading with time.
//!
//! Counts halve every [`HALF_LIFE_US`], so that they tell recent use; a table
//! whose counts have faded to nothing is forgotten, which bounds the memory by
//! the tables in use. Readers sum up their uses and hand them over in bulk.
//!
//! `touch` never waits: any shard can hold any table's counts, since they are
//! added up in the end, so it takes the first one that is free. If none is,
//! the uses are not counted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, TryLockError};

use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::view::TableHeat;

use crate::{Access, HeatMap, HeatTracker};

/// Time in which counts halve, in microseconds.
pub const HALF_LIFE_US: u64 = 600_000_000;

const SHARDS: usize = 8;

type Shard = HashMap<TableId, TableHeat>;

/// See the module.
#[derive(Debug, Default)]
pub struct Counters {
    shards: [Mutex<Shard>; SHARDS],
    /// When the counts were last halved; 0 before the first sample.
    halved_us: Mutex<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Counts are whole whenever the lock is free: a panic elsewhere does not
    // spoil them.
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn add(to: &mut TableHeat, heat: &TableHeat) {
    to.probes = to.probes.saturating_add(heat.probes);
    to.hits = to.hits.saturating_add(heat.hits);
    to.block_reads = to.block_reads.saturating_add(heat.block_reads);
    to.scans = to.scans.saturating_add(heat.scans);
}

fn map(heat: &TableHeat, f: impl Fn(u64) -> u64) -> TableHeat {
    TableHeat {
        probes: f(heat.probes),
        hits: f(heat.hits),
        block_reads: f(heat.block_reads),
        scans: f(heat.scans),
    }
}

impl HeatTracker for Counters {
    fn touch(&self, access: &Access<'_>) {
        let first = access.table.0 as usize;
        for i in 0..SHARDS {
            let mut shard = match self.shards[(first + i) % SHARDS].try_lock() {
                Ok(shard) => shard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            add(shard.entry(access.table).or_default(), &access.delta);
            return;
        }
    }

    /// The mean of the parents: outputs of a merge are about as many and as
    /// large as its inputs.
    fn inherit(&self, parents: &[TableId], child: &TableMeta) {
        let mut sum = TableHeat::default();
        for shard in &self.shards {
            let shard = lock(shard);
            for heat in parents.iter().filter_map(|p| shard.get(p)) {
                add(&mut sum, heat);
            }
        }
        let mean = map(&sum, |n| n / parents.len().max(1) as u64);
        if mean != TableHeat::default() {
            let shard = &self.shards[child.id.0 as usize % SHARDS];
            add(lock(shard).entry(child.id).or_default(), &mean);
        }
    }

    /// Counts by table know nothing of keys.
    fn is_hot(&self, _key: &[u8]) -> bool {
        false
    }

    fn sample(&self, now_us: u64) -> HeatMap {
        let halvings = {
            let mut halved_us = lock(&self.halved_us);
            if *halved_us == 0 {
                *halved_us = now_us;
            }
            let halvings = now_us.saturating_sub(*halved_us) / HALF_LIFE_US;
            *halved_us += halvings * HALF_LIFE_US;
            halvings
        };
        let mut heat_map = HeatMap::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            if halvings > 0 {
                let halvings = u32::try_from(halvings).unwrap_or(u32::MAX);
                shard.retain(|_, heat| {
                    *heat = map(heat, |n| n.checked_shr(halvings).unwrap_or(0));
                    *heat != TableHeat::default()
                });
            }
            for (&table, heat) in shard.iter() {
                add(heat_map.entry(table).or_default(), heat);
            }
        }
        heat_map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_model::picture::parse_table;
    use thermocline_model::version::KeyspaceId;

    fn touch(counters: &Counters, table: u64, probes: u64) {
        counters.touch(&Access {
            keyspace: KeyspaceId::DEFAULT,
            key: b"",
            table: TableId(table),
            delta: TableHeat {
                probes,
                ..TableHeat::default()
            },
        });
    }

    #[test]
    fn counts_add_up_fade_and_are_forgotten() {
        let counters = Counters::default();
        touch(&counters, 1, 4);
        touch(&counters, 1, 6);
        assert_eq!(counters.sample(1)[&TableId(1)].probes, 10);
        assert_eq!(counters.sample(1 + HALF_LIFE_US)[&TableId(1)].probes, 5);
        assert!(counters.sample(1 + 70 * HALF_LIFE_US).is_empty());
    }

    #[test]
    fn a_child_is_as_hot_as_its_parents_on_average() {
        let counters = Counters::default();
        touch(&counters, 1, 10);
        let child = parse_table("#3[a..b]").unwrap();
        counters.inherit(&[TableId(1), TableId(2)], &child);
        assert_eq!(counters.sample(1)[&TableId(3)].probes, 5);
    }

    #[test]
    fn a_touch_does_not_wait_for_a_locked_shard() {
        let counters = Counters::default();
        let guards: Vec<_> = counters.shards.iter().skip(1).map(lock).collect();
        touch(&counters, 5, 7);
        drop(guards);
        assert_eq!(counters.sample(1)[&TableId(5)].probes, 7);
    }
}
