//! What `tiers check` measured, drawn: the rates beside their caps, and single
//! reads of each tier, which show the slices in which the kernel hands them out.

use crate::device::Counters;
use crate::report::html::{Bars, Line, Plot, Rows, Section, Series, page};

/// Reads are counted in stretches of so many seconds.
const STRETCH_SECONDS: f64 = 0.01;

/// The shares of reads whose latency is drawn, in thousandths.
const SHARES: [usize; 15] = [
    10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990, 995, 999,
];

/// A tier as it is drawn.
pub(super) struct Drawn {
    pub name: String,
    /// When each random read was finished, in seconds, and how long it took, in
    /// microseconds.
    pub reads: Vec<(f64, f64)>,
    /// What the device counted during the measurement of rates.
    pub device: Counters,
}

/// The page. `rows` is the table that was printed, its titles first; `memory`
/// says what the memory group did.
pub(super) fn draw(rows: &[[String; 6]], memory: &str, tiers: &[Drawn]) -> String {
    let table = Rows {
        titles: rows.first().map_or_else(Vec::new, |row| row.to_vec()),
        rows: rows.iter().skip(1).map(|row| row.to_vec()).collect(),
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let traffic = Bars {
        title: "What each device counted".to_string(),
        unit: "MiB".to_string(),
        names: vec!["read".to_string(), "written".to_string()],
        groups: tiers
            .iter()
            .map(|tier| {
                let device = tier.device;
                let bytes = vec![mib(device.read_bytes), mib(device.written_bytes)];
                (tier.name.clone(), bytes)
            })
            .collect(),
    };
    let line = |tier: &Drawn, points| Line {
        name: tier.name.clone(),
        points,
    };
    // Each with an axis of its own, as rates differ by thousands.
    let over_time = tiers.iter().map(|tier| {
        Plot::Series(Series {
            title: format!("Random reads finished in each 10 ms on {}", tier.name),
            unit: "reads".to_string(),
            across: "seconds".to_string(),
            logarithmic: false,
            lines: vec![line(tier, finished(&tier.reads))],
        })
    });
    let latencies = Series {
        title: "Latency of random reads, 16 at a time".to_string(),
        unit: "microseconds".to_string(),
        across: "percent of reads that took at most so long".to_string(),
        logarithmic: true,
        lines: tiers
            .iter()
            .map(|tier| line(tier, percentiles(&tier.reads)))
            .collect(),
    };
    let sections = [
        Section {
            title: "Rates beside their caps".to_string(),
            text: vec![memory.to_string()],
            plots: vec![Plot::Table(table), Plot::Bars(traffic)],
        },
        Section {
            title: "Single reads".to_string(),
            text: vec![
                "A device at its cap hands out reads in slices of time. Its rate is right, and so \
                 is the mean latency; percentiles show the slices, not the device."
                    .to_string(),
            ],
            plots: over_time.chain([Plot::Series(latencies)]).collect(),
        },
    ];
    page("Emulated tiers", &sections)
}

/// How many reads were finished in each stretch of time.
fn finished(reads: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stretch = |read: &(f64, f64)| (read.0 / STRETCH_SECONDS) as usize;
    let mut counts = vec![0_u32; reads.iter().map(stretch).max().map_or(0, |last| last + 1)];
    for read in reads {
        counts[stretch(read)] += 1;
    }
    let point = |(at, count): (usize, &u32)| (at as f64 * STRETCH_SECONDS, f64::from(*count));
    counts.iter().enumerate().map(point).collect()
}

/// The latencies at [`SHARES`], by percent.
fn percentiles(reads: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut latencies: Vec<f64> = reads.iter().map(|read| read.1).collect();
    latencies.sort_by(f64::total_cmp);
    let point = |share: usize| {
        let rank = (share * latencies.len()).div_ceil(1000);
        let latency = *latencies.get(rank.saturating_sub(1))?;
        Some((share as f64 / 10.0, latency))
    };
    SHARES.into_iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_counted_by_stretches_of_time() {
        let reads = [(0.001, 1.0), (0.009, 1.0), (0.031, 1.0)];
        let counts: Vec<f64> = finished(&reads).iter().map(|point| point.1).collect();
        assert_eq!(counts, [2.0, 0.0, 0.0, 1.0]);
        assert_eq!(finished(&[]), []);
    }

    #[test]
    fn a_percentile_is_the_least_latency_that_so_many_reads_did_not_pass() {
        let reads: Vec<_> = (1..=1000).rev().map(|us| (0.0, f64::from(us))).collect();
        let found = percentiles(&reads);
        assert!(found.contains(&(50.0, 500.0)) && found.contains(&(99.9, 999.0)));
        assert_eq!(percentiles(&[]), []);
        assert_eq!(percentiles(&[(0.0, 7.0)]).len(), SHARES.len());
    }
}
