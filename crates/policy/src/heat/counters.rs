//! Heat as plain counts by table, fading with time.
//!
//! Counts halve every [`HALF_LIFE_US`], so that they tell recent use; a table
//! whose counts have faded to nothing is forgotten, which bounds the memory by
//! the tables in use. Readers sum up their uses and hand them over in bulk.

use std::sync::{Arc, Mutex};

use thermocline_model::table::TableMeta;
use thermocline_model::version::Version;
use thermocline_model::view::TableHeat;

use super::shards::{Shards, add, lock};
use super::steady::Steady;
use crate::{Access, HeatMap, HeatTracker};

/// Time in which counts halve, in microseconds.
pub const HALF_LIFE_US: u64 = 600_000_000;

/// The longest time that passes at once: a clock that leaps halves counts once.
const LEAP_US: u64 = HALF_LIFE_US;

/// See the module.
#[derive(Debug, Default)]
pub struct Counters {
    shards: Shards,
    halved: Mutex<Halved>,
}

#[derive(Debug, Default)]
struct Halved {
    clock: Steady,
    /// When the counts were last halved; `None` before the first sample.
    at_us: Option<u64>,
}

fn map(heat: &TableHeat, f: impl Fn(u64) -> u64) -> TableHeat {
    TableHeat {
        probes: f(heat.probes),
        hits: f(heat.hits),
        rejects: f(heat.rejects),
        block_reads: f(heat.block_reads),
        scans: f(heat.scans),
        ..TableHeat::default()
    }
}

impl HeatTracker for Counters {
    fn touch(&self, access: &Access<'_>) {
        self.shards.touch(access.table, &access.delta);
    }

    /// The mean of the parents: outputs of a merge are about as many and as
    /// large as its inputs.
    fn inherit(
        &self,
        parents: &[Arc<TableMeta>],
        children: &[Arc<TableMeta>],
        _below: &[Arc<TableMeta>],
    ) {
        let mut sum = TableHeat::default();
        for shard in self.shards.each() {
            for heat in parents.iter().filter_map(|p| shard.get(&p.id)) {
                add(&mut sum, heat);
            }
        }
        let mean = map(&sum, |n| n / parents.len().max(1) as u64);
        if mean != TableHeat::default() {
            for child in children {
                self.shards.touch(child.id, &mean);
            }
        }
    }

    /// Counts by table know nothing of keys.
    fn is_hot(&self, _key: &[u8]) -> bool {
        false
    }

    fn memory_bytes(&self) -> u64 {
        self.shards.memory_bytes()
    }

    fn sample(&self, _version: &Version, now_us: u64) -> HeatMap {
        let halvings = {
            let mut halved = lock(&self.halved);
            let now_us = halved.clock.show(now_us, LEAP_US);
            let at_us = halved.at_us.unwrap_or(now_us);
            let halvings = now_us.saturating_sub(at_us) / HALF_LIFE_US;
            halved.at_us = Some(at_us + halvings * HALF_LIFE_US);
            halvings
        };
        let mut heat_map = HeatMap::new();
        for mut shard in self.shards.each() {
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
    use thermocline_model::table::TableId;

    fn touch(counters: &Counters, table: u64, probes: u64) {
        counters.touch(&Access {
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
        let probes = |at_us: u64| {
            let heat = counters.sample(&Version::empty(), at_us);
            heat.get(&TableId(1)).map(|heat| heat.probes)
        };
        assert_eq!(probes(1), Some(10));
        assert_eq!(probes(1 + HALF_LIFE_US), Some(5));
        assert_eq!(probes(1 + 2 * HALF_LIFE_US), Some(2));
        assert_eq!(probes(1 + 3 * HALF_LIFE_US), Some(1));
        assert_eq!(probes(1 + 4 * HALF_LIFE_US), None);
    }

    /// Set ahead, it made all counts nothing, and set back, it kept them for as long as it was set
    /// back by.
    #[test]
    fn a_clock_that_is_set_halves_counts_once_at_most_and_stops_nothing() {
        let counters = Counters::default();
        touch(&counters, 1, 1000);
        let probes = |at_us: u64| counters.sample(&Version::empty(), at_us)[&TableId(1)].probes;
        assert_eq!(probes(100 * HALF_LIFE_US), 1000);
        assert_eq!(probes(900 * HALF_LIFE_US), 500);
        assert_eq!(probes(HALF_LIFE_US), 500);
        assert_eq!(probes(2 * HALF_LIFE_US), 250);
    }

    #[test]
    fn a_child_is_as_hot_as_its_parents_on_average() {
        let counters = Counters::default();
        touch(&counters, 1, 10);
        let table = |text| Arc::new(parse_table(text).unwrap());
        let parents = [table("#1[a..b]"), table("#2[a..b]")];
        counters.inherit(&parents, &[table("#3[a..b]")], &[]);
        assert_eq!(counters.sample(&Version::empty(), 1)[&TableId(3)].probes, 5);
    }
}
