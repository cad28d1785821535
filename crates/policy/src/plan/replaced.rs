//! What it costs that older entries keep room of the fast tier with `logstore`: how many bytes
//! overlapping tables may have replaced, and what reads of slower tiers take longer for want of them.

use std::sync::Arc;

use thermocline_model::table::TableMeta;
use thermocline_model::tier::TierId;
use thermocline_model::view::View;

use crate::MIB;
use crate::cost::compaction::{self, Device, SEEKS};
use crate::heat::histogram;
use crate::plan::fast_levels::FastTable;
use crate::plan::overwritten::WAITED_SECONDS_MAX;
use crate::plan::staging::TABLES_MAX;

/// What of tables that are merged may replace older entries of the others.
pub(super) struct Replaced {
    /// Bytes of those that overlap older ones on the fast tier.
    pub upper_bytes: u64,
    /// Bytes that fall away at the most.
    pub won_bytes: u64,
    /// How long they have overlapped, on average.
    pub waited_s: f64,
}

impl Replaced {
    pub(super) fn of(view: &View<'_>, merged: &[FastTable<'_>]) -> Replaced {
        let (mut upper_bytes, mut all_bytes, mut waited) = (0, 0, 0.0);
        for table in merged.iter().filter(|t| t.table.tier() == TierId(0)) {
            let bytes = table.table.size_bytes();
            all_bytes += bytes;
            let below = merged
                .iter()
                .filter(|t| t.run > table.run && t.table.range.overlaps(&table.table.range));
            // Some of both is needed, if a snapshot divides them.
            let held = view.oldest_snapshot;
            let is_divided =
                |t: &FastTable<'_>| table.table.seq_max > held && t.table.seq_min <= held;
            let below = below.filter(|t| !is_divided(t)).map(|t| t.table.created_us);
            // The one cannot replace the other before both are there.
            if let Some(oldest_us) = below.min() {
                upper_bytes += bytes;
                let since_us = oldest_us.max(table.table.created_us);
                let seconds = view.now_us.saturating_sub(since_us) as f64 / 1e6;
                waited += bytes as f64 * seconds.min(WAITED_SECONDS_MAX);
            }
        }
        Replaced {
            upper_bytes,
            // No more than there is below.
            won_bytes: upper_bytes.min(all_bytes - upper_bytes),
            waited_s: waited / upper_bytes.max(1) as f64,
        }
    }
}

/// What room on the fast tier is worth.
pub(super) struct Worth {
    /// The tables of slower tiers that are read most: their MiB, and the seconds by which reads of
    /// one of these take longer in one second than they would here. The hottest first.
    waiting: Vec<(f64, f64)>,
}

impl Worth {
    /// None where nothing would come up.
    pub(super) fn of(view: &View<'_>) -> Option<Worth> {
        let tables = || {
            let keyspaces = view.version.keyspaces.values();
            keyspaces.flat_map(|k| k.tables().map(|(_, _, table)| table))
        };
        let temperature = |t: &Arc<TableMeta>| view.heat.get(&t.id).and_then(|h| h.temperature);
        let here = tables().filter(|t| t.tier() == TierId(0));
        let coldest = here.filter_map(temperature).min_by(f64::total_cmp)?;
        if coldest <= 0.0 {
            return None;
        }
        let devices = Device::of(view.tiers);
        let read_s = |tier: usize| {
            let device = devices.get(tier).or(devices.last());
            device.map_or(0.0, |d| compaction::reads_s(1.0, SEEKS, *d))
        };
        let slow = tables().filter(|t| t.tier() > TierId(0));
        let hottest = histogram::hottest(view, slow, TABLES_MAX as usize).into_iter();
        let waiting = hottest.map(|bucket| {
            let slower_s = read_s(bucket.table.tier().0 as usize) - read_s(0);
            // Nobody gains from room for what is read less than what is there.
            let reads = bucket.temperature().min(coldest);
            (bucket.table.size_bytes() as f64 / MIB, reads * slower_s)
        });
        let waiting: Vec<_> = waiting.take_while(|(_, seconds)| *seconds > 0.0).collect();
        (!waiting.is_empty()).then_some(Worth { waiting })
    }

    /// Seconds by which reads take longer in one second for want of `bytes`.
    pub(super) fn read_s(&self, bytes: u64) -> f64 {
        let mut left = bytes as f64 / MIB;
        let seconds = self.waiting.iter().map(|(mib, seconds)| {
            let taken = mib.min(left);
            left -= taken;
            taken * seconds
        });
        seconds.sum()
    }

    /// The most that `table` has cost since it was written.
    pub(super) fn most_s(&self, view: &View<'_>, table: &TableMeta) -> f64 {
        let age_us = view.now_us.saturating_sub(table.created_us);
        let seconds = (age_us as f64 / 1e6).min(WAITED_SECONDS_MAX);
        let waiting = self.waiting.iter().map(|(_, seconds)| *seconds);
        let most = waiting.fold(0.0, f64::max);
        table.size_bytes() as f64 / MIB * most * seconds
    }
}
