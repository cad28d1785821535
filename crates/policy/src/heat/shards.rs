//! Uses by table that many threads add to and none waits for.
//!
//! Any shard can hold any table's counts, since they are added up in the end,
//! so who adds takes the first one that is free. If none is, the uses are not
//! counted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, TryLockError};

use thermocline_model::table::TableId;
use thermocline_model::view::TableHeat;

const SHARDS: usize = 8;

type Shard = HashMap<TableId, TableHeat>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Shards {
    shards: [Mutex<Shard>; SHARDS],
}

/// The content of a mutex, which is whole even if a thread died with it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Adds the counts of `heat`; temperatures are left alone.
pub(super) fn add(to: &mut TableHeat, heat: &TableHeat) {
    to.probes = to.probes.saturating_add(heat.probes);
    to.hits = to.hits.saturating_add(heat.hits);
    to.rejects = to.rejects.saturating_add(heat.rejects);
    to.block_reads = to.block_reads.saturating_add(heat.block_reads);
    to.scans = to.scans.saturating_add(heat.scans);
}

impl Shards {
    /// Adds `delta` to the counts of `table`. Never waits.
    pub(super) fn touch(&self, table: TableId, delta: &TableHeat) {
        let first = table.0 as usize;
        for i in 0..SHARDS {
            let mut shard = match self.shards[(first + i) % SHARDS].try_lock() {
                Ok(shard) => shard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            add(shard.entry(table).or_default(), delta);
            return;
        }
    }

    /// Takes all counts out.
    pub(super) fn drain(&self) -> Vec<(TableId, TableHeat)> {
        let shards = self.shards.iter();
        shards.flat_map(|s| std::mem::take(&mut *lock(s))).collect()
    }

    /// The shards one after another.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(lock)
    }

    /// Memory of the counts, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.each().map(|shard| table_bytes(&shard)).sum()
    }
}

/// What a shard takes: places, of which an eighth is kept free, and a byte for each.
fn table_bytes(shard: &Shard) -> u64 {
    let places = match shard.capacity() {
        0 => return 0,
        capacity => (capacity * 8).div_ceil(7).next_power_of_two(),
    };
    (places * (size_of::<(TableId, TableHeat)>() + 1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touch_does_not_wait_for_a_locked_shard() {
        let shards = Shards::default();
        let guards: Vec<_> = shards.each().skip(1).collect();
        let seven = TableHeat {
            probes: 7,
            ..TableHeat::default()
        };
        shards.touch(TableId(5), &seven);
        drop(guards);
        assert_eq!(shards.drain(), [(TableId(5), seven)]);
        assert!(shards.drain().is_empty());
    }
}
