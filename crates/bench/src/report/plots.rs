//! The plots of `compare`: throughput over time, latency curves, bytes of each
//! device, placement. One section a workload, first repetitions.

use super::compare::{CLASSES, MIB, Measured, distinct};
use super::grouped;
use super::html::{Bars, Line, Plot, Rows, Section, Series};
use crate::drive::{HomeUse, QUANTILES};

/// The sections of the page; `rules` are the words above the results.
pub(crate) fn sections(rules: &str, results: &[Measured]) -> Vec<Section> {
    let mut sections = vec![Section {
        title: "Rules".to_string(),
        text: rules.lines().map(str::to_string).collect(),
        plots: Vec::new(),
    }];
    for workload in distinct(results.iter().map(|m| m.workload.as_str())) {
        let of = results.iter().filter(|m| m.workload == workload);
        let runs: Vec<&Measured> = of.clone().filter(|m| m.repetition == 0).collect();
        let mut plots = vec![Plot::Table(rates(of)), Plot::Series(over_time(&runs))];
        for (class, name) in CLASSES.iter().enumerate() {
            let curves = latencies(&runs, class, name);
            if !curves.lines.is_empty() {
                plots.push(Plot::Series(curves));
            }
        }
        plots.push(Plot::Bars(by_tier("Placement", "MiB", &runs, |_, home| {
            Some(home.bytes as f64 / MIB)
        })));
        let counted = |home: &HomeUse| home.measured.is_some();
        if runs.iter().any(|m| m.outcome.homes.iter().any(counted)) {
            let rate = |title, number: fn(&HomeUse) -> Option<u64>| {
                let bytes = |m: &Measured, home: &HomeUse| {
                    Some(number(home)? as f64 / MIB / m.outcome.seconds)
                };
                Plot::Bars(by_tier(title, "MiB/s", &runs, bytes))
            };
            plots.push(rate("Read from devices", |home| {
                Some(home.measured?.read_bytes)
            }));
            plots.push(rate("Written to devices", |home| {
                Some(home.measured?.written_bytes)
            }));
        }
        sections.push(Section {
            title: workload.to_string(),
            text: Vec::new(),
            plots,
        });
    }
    sections
}

/// Every run in a row.
fn rates<'a>(runs: impl Iterator<Item = &'a Measured>) -> Rows {
    let row = |m: &Measured| {
        let limit = m.of_limit();
        vec![
            m.contender.clone(),
            (m.repetition + 1).to_string(),
            grouped(m.per_second()),
            limit.map_or_else(|| "-".to_string(), |share| format!("{share:.2}")),
            m.marks.join(", "),
        ]
    };
    let titles = ["engine", "repetition", "ops/s", "of limit", "marks"];
    Rows {
        titles: titles.map(String::from).to_vec(),
        rows: runs.map(row).collect(),
    }
}

fn over_time(runs: &[&Measured]) -> Series {
    let line = |m: &&Measured| Line {
        name: m.contender.clone(),
        points: (1..)
            .zip(&m.outcome.per_second)
            .map(|(second, &count)| (f64::from(second), count as f64))
            .collect(),
    };
    Series {
        title: "Operations a second".to_string(),
        unit: "ops/s".to_string(),
        across: "s".to_string(),
        logarithmic: false,
        lines: runs.iter().map(line).collect(),
    }
}

/// The latency curve of a class; across are the nines: 2 is the 99th percentile,
/// 3 the 99.9th.
fn latencies(runs: &[&Measured], class: usize, name: &str) -> Series {
    let line = |m: &&Measured| {
        let curve = &m.outcome.curves_ns[class];
        let point = |(quantile, &ns): (&f64, &u64)| {
            let nines = -(1.0 - quantile).log10();
            (nines, ns.max(1) as f64 / 1e3)
        };
        let line = Line {
            name: m.contender.clone(),
            points: QUANTILES.iter().zip(curve).map(point).collect(),
        };
        (!curve.is_empty()).then_some(line)
    };
    Series {
        title: format!("Latency of {name}"),
        unit: "us".to_string(),
        across: "nines (2 is p99, 3 is p99.9)".to_string(),
        logarithmic: true,
        lines: runs.iter().filter_map(line).collect(),
    }
}

/// A number of every tier, a group for each contender.
fn by_tier(
    title: &str,
    unit: &str,
    runs: &[&Measured],
    number: impl Fn(&Measured, &HomeUse) -> Option<f64>,
) -> Bars {
    let homes = runs.iter().flat_map(|m| m.outcome.homes.iter());
    let tiers = distinct(homes.map(|home| home.tier.as_str()));
    let group = |m: &&Measured| {
        let bar = |tier: &&str| {
            let home = m.outcome.homes.iter().find(|home| home.tier == *tier);
            home.and_then(|home| number(m, home)).unwrap_or(f64::NAN)
        };
        (m.contender.clone(), tiers.iter().map(bar).collect())
    };
    Bars {
        title: title.to_string(),
        unit: unit.to_string(),
        names: tiers.iter().map(|tier| (*tier).to_string()).collect(),
        groups: runs.iter().map(group).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::compare::tests::measured;
    use crate::report::html::page;

    #[test]
    fn every_workload_has_its_plots_with_every_contender() {
        let mut runs = vec![
            measured("thermocline", 0, 1000),
            measured("rocksdb/db-paths", 0, 500),
            measured("rocksdb/db-paths", 1, 600),
        ];
        for run in &mut runs {
            run.outcome.per_second = vec![100, 200, 300];
            run.outcome.curves_ns[0] = (1..=QUANTILES.len() as u64).collect();
        }
        let sections = sections("one rule\nanother", &runs);
        assert_eq!(sections[0].text.len(), 2);
        let titles: Vec<&str> = sections[1]
            .plots
            .iter()
            .map(|plot| match plot {
                Plot::Series(series) => series.title.as_str(),
                Plot::Bars(bars) => bars.title.as_str(),
                Plot::Table(rows) => {
                    assert_eq!(rows.rows.len(), 3, "all repetitions");
                    "table"
                }
            })
            .collect();
        let expected = [
            "table",
            "Operations a second",
            "Latency of reads",
            "Placement",
            "Read from devices",
            "Written to devices",
        ];
        assert_eq!(titles, expected);
        let text = page("Comparison", &sections);
        assert!(text.contains("rocksdb/db-paths") && text.contains("<svg"));
    }

    #[test]
    fn without_counters_no_bytes_of_devices_are_drawn() {
        let mut run = measured("thermocline", 0, 1000);
        run.outcome
            .homes
            .iter_mut()
            .for_each(|home| home.measured = None);
        let sections = sections("", &[run]);
        let bars = |plot: &&Plot| matches!(plot, Plot::Bars(_));
        assert_eq!(sections[1].plots.iter().filter(bars).count(), 1);
    }
}
