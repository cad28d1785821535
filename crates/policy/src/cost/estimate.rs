//! What a job is predicted to cost and to gain, in numbers that go into its reason.
//!
//! The costs are seconds of devices and bytes; the gains what the job is for: reads
//! that get faster, money, runs that reads need not look in, memory. Heat counts as
//! far as it is known. These are predictions of the kind that planners decide by, and
//! are there for whoever reads the events; no planner asks for them after the fact.

use std::collections::BTreeSet;

use thermocline_model::job::{Flush, Fold, Job, Merge, Reason, Relocate};
use thermocline_model::table::TableMeta;
use thermocline_model::view::View;

use crate::MIB;
use crate::cost::device::Devices;
use crate::cost::money;

/// `job` with what it is predicted to cost and to gain among its reasons. Numbers
/// that its planner gave are left as they are.
#[must_use]
pub fn priced(view: &View<'_>, mut job: Job) -> Job {
    let numbers = match &job {
        Job::Flush(flush) => of_flush(view, flush),
        Job::Fold(fold) => of_fold(fold),
        Job::Merge(merge) => of_merge(view, merge),
        Job::Relocate(relocate) => of_relocation(view, relocate),
        // Cuts move without a byte being copied or written but for the edit.
        Job::Recut(_) => vec![("bytes", 0.0), ("device_seconds", 0.0)],
    };
    let reason: &mut Reason = match &mut job {
        Job::Flush(flush) => &mut flush.reason,
        Job::Fold(fold) => &mut fold.reason,
        Job::Merge(merge) => &mut merge.reason,
        Job::Relocate(relocate) => &mut relocate.reason,
        Job::Recut(recut) => &mut recut.reason,
    };
    for (name, number) in numbers {
        if !reason.numbers.iter().any(|(known, _)| known == name) {
            reason.numbers.push((name.to_string(), number));
        }
    }
    job
}

type Numbers = Vec<(&'static str, f64)>;

fn of_flush(view: &View<'_>, flush: &Flush) -> Numbers {
    let load = view.memtables.get(&(flush.keyspace, flush.part)).copied();
    let load = load.unwrap_or_default();
    let bytes = match load.sealed_bytes {
        0 => load.active_bytes,
        sealed => sealed,
    };
    let devices = Devices::of(view);
    vec![
        ("bytes", bytes as f64),
        ("device_seconds", devices.transfer_seconds(0, bytes)),
        ("memory_freed_bytes", bytes as f64),
    ]
}

/// What survives is logged anew, on whichever tier has the log; the rest of the memory is free.
fn of_fold(fold: &Fold) -> Numbers {
    let number = |name: &str| {
        let numbers = &fold.reason.numbers;
        numbers.iter().find(|(n, _)| n == name).map(|(_, n)| *n)
    };
    let (Some(bytes), Some(live_bytes)) = (number("bytes"), number("live_bytes")) else {
        return Numbers::new();
    };
    vec![
        ("logged_bytes", live_bytes),
        ("memory_freed_bytes", (bytes - live_bytes).max(0.0)),
    ]
}

fn of_merge(view: &View<'_>, merge: &Merge) -> Numbers {
    let inputs: BTreeSet<_> = merge.inputs.iter().copied().collect();
    let devices = Devices::of(view);
    let (mut bytes, mut seconds, mut runs) = (0u64, 0.0, 0u32);
    let (mut reads, mut known_bytes, mut probes) = (0.0, 0u64, 0u64);
    let keyspace = view.version.keyspaces.get(&merge.keyspace);
    for slot in keyspace.into_iter().flat_map(|k| k.slots()) {
        let level = keyspace.and_then(|k| k.level(slot));
        for run in level.into_iter().flat_map(|l| &l.runs) {
            let here = run.tables.iter().filter(|t| inputs.contains(&t.id));
            let mut any = false;
            for table in here {
                any = true;
                let size = table.size_bytes();
                bytes += size;
                // Each byte is read, and one like it written about there.
                seconds += 2.0 * devices.transfer_seconds(table.tier().0 as usize, size);
                let heat = view.heat.get(&table.id).copied().unwrap_or_default();
                probes += heat.probes;
                if let Some(temperature) = heat.temperature {
                    known_bytes += size;
                    reads += temperature * size as f64;
                }
            }
            runs += u32::from(any);
        }
    }
    let mut numbers = vec![
        ("input_bytes", bytes as f64),
        ("device_seconds", seconds),
        ("runs_fewer", f64::from(runs.saturating_sub(1))),
    ];
    if known_bytes > 0 {
        numbers.push(("temperature", reads / known_bytes as f64));
    } else {
        numbers.push(("probes", probes as f64));
    }
    numbers
}

fn of_relocation(view: &View<'_>, relocate: &Relocate) -> Numbers {
    let keyspace = view.version.keyspaces.get(&relocate.keyspace);
    let Some((_, _, table)) = keyspace.and_then(|k| k.find(relocate.table)) else {
        return Vec::new();
    };
    let (from, to) = (table.tier().0 as usize, relocate.to.0 as usize);
    let devices = Devices::of(view);
    let bytes = table.data_bytes();
    let price = |tier: usize| view.tiers.get(tier).map_or(0.0, |t| t.price_usd_gb_month);
    let seconds = devices.move_seconds(from, to, bytes);
    let mut numbers = vec![
        ("bytes", bytes as f64),
        ("device_seconds", seconds),
        (
            "cost_change_usd_month",
            money::usd_month(bytes, price(to) - price(from)),
        ),
    ];
    if let Some(reads) = reads_per_second(view, table) {
        let change_us = reads * (devices.read_us(to) - devices.read_us(from));
        numbers.push(("latency_change_us_per_second", change_us));
        if change_us < 0.0 {
            numbers.push(("payback_seconds", seconds / (-change_us / 1e6)));
        }
    }
    numbers
}

/// Blocks of `table` read in a second, if its temperature is known.
#[must_use]
pub fn reads_per_second(view: &View<'_>, table: &TableMeta) -> Option<f64> {
    let temperature = view.heat.get(&table.id)?.temperature?;
    Some(temperature * table.data_bytes() as f64 / MIB)
}
