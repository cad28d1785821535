//! What the heat tracker is told, and what it costs to know.

use std::sync::Arc;

use thermocline_model::table::TableId;
use thermocline_model::version::Version;
use thermocline_model::view::TableHeat;
use thermocline_policy::{Access, HeatMap};

use super::Scheduler;
use crate::engine::Engine;

impl Scheduler {
    /// Memory of what is known of heat, in bytes.
    pub(super) fn heat_bytes(&self) -> u64 {
        let fed = self.fed.capacity() * size_of::<(TableId, TableHeat)>();
        fed as u64 + self.preset.heat.memory_bytes()
    }
}

impl Engine {
    /// The version in force, and its heat: hands the uses counted since the last time to
    /// the heat tracker, and asks it what is hot.
    pub(super) fn sample_heat(&self, scheduler: &mut Scheduler) -> (Arc<Version>, HeatMap) {
        let tracker = Arc::clone(&scheduler.preset.heat);
        let versions = self.versions.lock();
        let version = Arc::clone(&versions.current);
        let mut fed = Vec::with_capacity(versions.tables.len());
        let mut told = std::mem::take(&mut scheduler.fed).into_iter().peekable();
        for (&table, open) in &versions.tables {
            while told.next_if(|(id, _)| *id < table).is_some() {}
            let before = told.next_if(|(id, _)| *id == table);
            let before = before.map_or_else(TableHeat::default, |(_, heat)| heat);
            let now = open.heat();
            let delta = TableHeat {
                probes: now.probes.saturating_sub(before.probes),
                hits: now.hits.saturating_sub(before.hits),
                rejects: now.rejects.saturating_sub(before.rejects),
                block_reads: now.block_reads.saturating_sub(before.block_reads),
                scans: now.scans.saturating_sub(before.scans),
                ..TableHeat::default()
            };
            if delta != TableHeat::default() {
                tracker.touch(&Access {
                    key: &[],
                    table,
                    delta,
                });
            }
            fed.push((table, now));
        }
        drop(versions);
        scheduler.fed = fed;
        let heat = tracker.sample(&version, self.environment.clock.now_micros());
        (version, heat)
    }
}
