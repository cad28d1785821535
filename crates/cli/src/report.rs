//! What `demo` and `replay` print alike: latencies, where reads were served,
//! bytes and price of the tiers.

use std::io::{self, Write};

use crate::columns::table;
use crate::engine::Pulse;
use crate::human;
use crate::latency::Percentiles;

/// Prints one row of percentiles for each named kind of operation.
pub(crate) fn latencies(out: &mut dyn Write, kinds: &[(&str, Percentiles)]) -> io::Result<()> {
    let header = ["", "count", "p50", "p90", "p99", "p99.9", "max"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for (name, p) in kinds.iter().filter(|(_, p)| p.count > 0) {
        rows.push(vec![
            format!("  {name}"),
            human::count(p.count),
            human::nanos(p.p50_ns),
            human::nanos(p.p90_ns),
            human::nanos(p.p99_ns),
            human::nanos(p.p999_ns),
            human::nanos(p.max_ns),
        ]);
    }
    table(out, &rows, |column| column == 0)
}

/// Prints from where the reads of `delta` were served.
pub(crate) fn served(out: &mut dyn Write, delta: &Pulse) -> io::Result<()> {
    let reads = delta.hits() + delta.misses;
    let row = |name: String, count: u64| {
        vec![
            format!("  {name}"),
            human::count(count),
            human::percent(count, reads),
        ]
    };
    let mut rows = vec![
        row("memory (memtables)".into(), delta.memtable_hits),
        row("memory (block cache)".into(), delta.cached_hits),
    ];
    for tier in &delta.tiers {
        rows.push(row(format!("tier {} (block read)", tier.name), tier.hits));
    }
    if delta.misses > 0 {
        rows.push(row("nowhere (absent keys)".into(), delta.misses));
    }
    table(out, &rows, |column| column == 0)
}

/// Prints bytes and price of each tier, and what one tier alone would cost.
pub(crate) fn tiers(out: &mut dyn Write, now: &Pulse) -> io::Result<()> {
    let header = ["  tier", "used", "capacity", "USD/GB/month", "USD/month"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for tier in &now.tiers {
        rows.push(vec![
            format!("  {}", tier.name),
            human::bytes(tier.used_bytes),
            if tier.capacity_bytes >= i64::MAX as u64 {
                "the device".into()
            } else {
                human::bytes(tier.capacity_bytes)
            },
            format!("{:.3}", tier.price_usd_gb_month),
            human::dollars(tier.price_usd_month),
        ]);
    }
    table(out, &rows, |column| column == 0)?;
    if let [first, _, ..] = now.tiers.as_slice() {
        let bytes: u64 = now.tiers.iter().map(|tier| tier.used_bytes).sum();
        let alone = bytes as f64 / 1e9 * first.price_usd_gb_month;
        writeln!(
            out,
            "  together {} a month; all of it on {} would cost {}",
            human::dollars(now.price_usd_month),
            first.name,
            human::dollars(alone)
        )?;
    }
    Ok(())
}
