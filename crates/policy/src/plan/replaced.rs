//! What it costs that older entries keep room of the fast tier with `logstore`: how many bytes
//! overlapping tables may have replaced, and what reads of slower tiers take longer for want of
//! them.

use std::cell::OnceCell;
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
pub(super) struct Worth<'a> {
    /// The temperature of the coldest table of the first tier.
    coldest: f64,
    /// By tier, the seconds by which a read takes longer than on the first.
    slower_s: Vec<f64>,
    /// The tables of slower tiers, with their temperatures.
    slow: Vec<(f64, &'a Arc<TableMeta>)>,
    /// Seconds by which reads of a MiB of one of these take longer in one second than they would
    /// here, at most.
    most_s: f64,
    /// Those that are read most: their MiB, and these seconds. The hottest first; put in order when
    /// somebody asks.
    waiting: OnceCell<Vec<(f64, f64)>>,
}

impl<'a> Worth<'a> {
    /// None where nothing would come up.
    pub(super) fn of(view: &View<'a>) -> Option<Worth<'a>> {
        let mut coldest = None::<f64>;
        let mut slow = Vec::new();
        let keyspaces = view.version.keyspaces.values();
        for table in keyspaces.flat_map(|k| k.tables().map(|(_, _, table)| table)) {
            let Some(temperature) = view.heat.get(&table.id).and_then(|h| h.temperature) else {
                continue;
            };
            match table.tier() {
                TierId(0) => coldest = Some(coldest.map_or(temperature, |c| c.min(temperature))),
                _ => slow.push((temperature, table)),
            }
        }
        let coldest = coldest.filter(|coldest| *coldest > 0.0)?;
        let read_s = |device: &Device| compaction::reads_s(1.0, SEEKS, *device);
        let reads_s: Vec<f64> = Device::of(view.tiers).iter().map(read_s).collect();
        let first = reads_s.first().copied().unwrap_or(0.0);
        let mut worth = Worth {
            coldest,
            slower_s: reads_s.iter().map(|s| s - first).collect(),
            slow,
            most_s: 0.0,
            waiting: OnceCell::new(),
        };
        let seconds = worth.slow.iter().map(|(t, table)| worth.seconds(*t, table));
        worth.most_s = seconds.fold(0.0, f64::max);
        (worth.most_s > 0.0).then_some(worth)
    }

    /// Seconds by which reads of a MiB of `table` take longer in one second than they would here.
    fn seconds(&self, temperature: f64, table: &TableMeta) -> f64 {
        let slower_s = self.slower_s.get(table.tier().0 as usize);
        let slower_s = slower_s.or(self.slower_s.last()).copied().unwrap_or(0.0);
        // Nobody gains from room for what is read less than what is there.
        temperature.min(self.coldest) * slower_s
    }

    fn waiting(&self) -> &[(f64, f64)] {
        self.waiting.get_or_init(|| {
            let hottest = histogram::hottest_of(self.slow.clone(), TABLES_MAX as usize);
            let waiting = hottest.into_iter().map(|(temperature, table)| {
                let mib = table.size_bytes() as f64 / MIB;
                (mib, self.seconds(temperature, table))
            });
            waiting.take_while(|(_, seconds)| *seconds > 0.0).collect()
        })
    }

    /// Seconds by which reads take longer in one second for want of `bytes`.
    pub(super) fn read_s(&self, bytes: u64) -> f64 {
        let mut left = bytes as f64 / MIB;
        let seconds = self.waiting().iter().map(|(mib, seconds)| {
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
        table.size_bytes() as f64 / MIB * self.most_s * seconds
    }
}
