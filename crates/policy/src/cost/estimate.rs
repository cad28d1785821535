//! What a job is predicted to cost and to gain, beside its reason.
//!
//! The cost is that of [`Transfers`], whichever rule planned the job. The gains are what the job is
//! for: reads that get faster, money, runs that reads need not look in, memory, what need not be
//! merged. Each has a name that says its unit, and more is better. Heat counts as far as it is
//! known; what cannot be told from a view is named and has no number. Nobody decides by this, but
//! it is by the same model as what planners decide by, and is there for whoever reads the events.

use thermocline_model::job::{Flush, Fold, Job, NewTable, Reason, Relocate};
use thermocline_model::predicted::Predicted;
use thermocline_model::table::TableMeta;
use thermocline_model::tier::TIERS_MAX;
use thermocline_model::version::{KeyspaceId, Slot};
use thermocline_model::view::{PartLoad, View};

use crate::cost::merging::{heat_of, of_merge};
use crate::cost::{Devices, Transfers, money};
use crate::plan::fold::keys_of;
use crate::{MIB, Placer, Seen};

/// What [`priced`] knows beside the view.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    /// Who says where new tables go.
    pub placer: &'a dyn Placer,
    /// What it saw of the view.
    pub seen: &'a Seen,
}

/// `job` with what it is predicted to cost and to gain, and the heat of what a merge reads.
#[must_use]
pub fn priced(view: &View<'_>, places: Places<'_>, mut job: Job) -> Job {
    let devices = Devices::of(view);
    let predicted = match &job {
        Job::Flush(flush) => of_flush(view, places, &devices, flush),
        Job::Fold(fold) => of_fold(view, &devices, fold),
        Job::Merge(merge) => of_merge(view, places, &devices, merge),
        Job::Relocate(relocate) => of_relocation(view, &devices, relocate),
        Job::Recut(recut) => of_cuts(view, &recut.reason),
    };
    let heat = match &job {
        Job::Merge(merge) => Some(heat_of(view, merge)),
        _ => None,
    };
    let reason = job.reason_mut();
    if let Some((name, number)) = heat {
        // A number that the planner gave is left as it is.
        if !reason.numbers.iter().any(|(known, _)| known == name) {
            reason.numbers.push((name.to_string(), number));
        }
    }
    reason.predicted = Some(predicted);
    job
}

/// What it costs that a bulk load has written `placed`, bytes by tier, which it may have read back,
/// and what it gains over writing the same `raw_bytes` of keys and values one by one.
#[must_use]
pub fn of_load(
    devices: &Devices,
    placed: impl Iterator<Item = (usize, u64)>,
    raw_bytes: u64,
    reads_back: bool,
) -> Predicted {
    let mut transfers = Transfers::default();
    placed.for_each(|(tier, bytes)| transfers.write(tier, bytes));
    if reads_back {
        transfers.read_back();
    }
    let predicted = transfers.predicted(devices);
    predicted.gaining("log_bytes_saved", raw_bytes as f64)
}

/// What cuts cost and gain that are made for `reason`. Nothing is copied or written for them but
/// the edit.
#[must_use]
pub fn of_cuts(view: &View<'_>, reason: &Reason) -> Predicted {
    let number = |name: &str| {
        let mut numbers = reason.numbers.iter();
        numbers.find(|(n, _)| n == name).map(|(_, n)| *n)
    };
    let predicted = Transfers::default().predicted(&Devices::of(view));
    match (number("share"), number("share_after")) {
        // The rest of it depends on which keys are written next.
        (Some(share), Some(after)) => predicted.gaining("hottest_share_less", share - after),
        _ => predicted.gaining_unknown("hottest_share_less"),
    }
}

/// Log segments that nobody needs any more if a part does without what is in its memtables: the
/// most, as what takes writes there stays and may need some.
fn log_segments_freed_max(view: &View<'_>, keyspace: KeyspaceId, parts: &[u32]) -> f64 {
    let (floor, current) = view.log_segments;
    let is_of = |(id, part): &(KeyspaceId, u32)| *id == keyspace && parts.contains(part);
    let others = view.memtables.iter().filter(|(part, _)| !is_of(part));
    let needed = others.filter_map(|(_, load)| load.oldest_segment).min();
    let needed = needed.map_or(current, |oldest| oldest.min(current));
    needed.saturating_sub(floor) as f64
}

/// The memtables that a flush or a fold of a part takes, and whether those that take writes are
/// among them. Without sealed ones they are in any case.
fn taken(view: &View<'_>, of: (KeyspaceId, u32), active: bool) -> (PartLoad, bool, u64) {
    let load = view.memtables.get(&of).copied().unwrap_or_default();
    let with_active = active || load.sealed == 0;
    let of_active = if with_active { load.active_bytes } else { 0 };
    (load, with_active, load.sealed_bytes + of_active)
}

fn of_flush(view: &View<'_>, places: Places<'_>, devices: &Devices, flush: &Flush) -> Predicted {
    let parts: Vec<u32> = flush.parts().collect();
    let mut transfers = Transfers::default();
    let mut written_bytes = [0; TIERS_MAX];
    for &part in &parts {
        let (_, _, bytes) = taken(view, (flush.keyspace, part), flush.active);
        let new = NewTable {
            keyspace: flush.keyspace,
            slot: Slot::Newest(part),
            range: None,
            start: None,
            size_bytes: bytes,
            parents: Vec::new(),
            written_bytes,
        };
        let layout = places.placer.place_as_seen(view, places.seen, &new);
        transfers.write(layout.data.0 as usize, bytes);
        written_bytes[(layout.data.0 as usize).min(TIERS_MAX - 1)] += bytes;
    }
    let bytes = written_bytes.iter().sum::<u64>();
    if view.shape.reads_back {
        transfers.read_back();
    }
    transfers
        .predicted(devices)
        .gaining("memory_freed_bytes", bytes as f64)
        .gaining(
            "log_segments_freed_max",
            log_segments_freed_max(view, flush.keyspace, &parts),
        )
}

/// What survives is logged anew; the rest of the memory is free.
fn of_fold(view: &View<'_>, devices: &Devices, fold: &Fold) -> Predicted {
    let of = (fold.keyspace, fold.part);
    let (load, with_active, bytes) = taken(view, of, fold.active);
    let few = keys_of(&load, with_active && load.active_bytes > 0);
    let mut transfers = Transfers::default();
    if let Some(few) = few {
        transfers.write(
            view.shape.pins.log.map_or(0, |t| t.0 as usize),
            few.live_bytes,
        );
    }
    let predicted = transfers.predicted(devices);
    let predicted = match few {
        Some(few) => {
            let freed = bytes.saturating_sub(few.live_bytes);
            predicted.gaining("memory_freed_bytes", freed as f64)
        }
        None => predicted.gaining_unknown("memory_freed_bytes"),
    };
    predicted.gaining(
        "log_segments_freed_max",
        log_segments_freed_max(view, fold.keyspace, &[fold.part]),
    )
}

fn of_relocation(view: &View<'_>, devices: &Devices, relocate: &Relocate) -> Predicted {
    let keyspace = view.version.keyspaces.get(&relocate.keyspace);
    let Some((_, _, table)) = keyspace.and_then(|k| k.find(relocate.table)) else {
        return Predicted::default().gaining_unknown("tier_freed_bytes");
    };
    let (from, to) = (table.tier().0 as usize, relocate.to.0 as usize);
    let bytes = table.data_bytes();
    let transfers = Transfers::of_move(from, to, bytes);
    let predicted = transfers.predicted(devices);
    let predicted = predicted
        .gaining("tier_freed_bytes", bytes as f64)
        .gaining("usd_month_saved", usd_month_saved(view, &transfers));
    let saved_us = |reads: f64| reads * (devices.read_us(from) - devices.read_us(to));
    with_reads(predicted, reads_per_second(view, table).map(saved_us))
}

/// `predicted` with the microseconds that reads of one second take less, if that is known.
pub(super) fn with_reads(predicted: Predicted, saved_us: Option<f64>) -> Predicted {
    const NAME: &str = "read_us_saved_per_second";
    match saved_us {
        Some(us) => predicted.gaining(NAME, us),
        None => predicted.gaining_unknown(NAME),
    }
}

/// What is saved if the bytes read are no more where they were, but those written are.
pub(super) fn usd_month_saved(view: &View<'_>, transfers: &Transfers) -> f64 {
    let moved = transfers.moved().into_iter().zip(view.tiers);
    let dearer = moved.map(|(bytes, tier)| {
        let usd = money::usd_month(bytes.unsigned_abs(), tier.price_usd_gb_month);
        if bytes < 0 { -usd } else { usd }
    });
    0.0 - dearer.sum::<f64>()
}

/// Blocks of `table` read in a second, if its temperature is known.
#[must_use]
pub fn reads_per_second(view: &View<'_>, table: &TableMeta) -> Option<f64> {
    let temperature = view.heat.get(&table.id)?.temperature?;
    Some(temperature * table.data_bytes() as f64 / MIB)
}
