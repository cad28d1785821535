//! The report: tables that are readable in a terminal and are Markdown too, and
//! JSON lines for programs.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::EngineKind;
use crate::workload::{Order, Outcome, Row};

pub(crate) mod compare;
pub(crate) use thermocline_cli::html;
mod json;
pub(crate) mod plots;
pub(crate) mod table;

pub(crate) use json::JsonLines;
use table::Table;

/// One run of one row on one engine.
#[derive(Serialize, Debug)]
pub(crate) struct Record {
    /// The engine.
    pub engine: EngineKind,
    /// What it was told.
    #[serde(flatten)]
    pub order: Order,
    /// What it gave.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Median, least and most over the repetitions.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
    count: usize,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[middle],
            _ => (values[middle - 1] + values[middle]) / 2.0,
        };
        Some(Spread {
            median,
            least,
            most,
            count: values.len(),
        })
    }

    /// `1,234,567`, with the least and the most if there are several.
    fn rate(&self) -> String {
        match self.count {
            1 => grouped(self.median),
            _ => format!(
                "{} ({}-{})",
                grouped(self.median),
                grouped(self.least),
                grouped(self.most)
            ),
        }
    }
}

/// All tables of the report.
pub(crate) fn markdown(records: &[Record]) -> String {
    let report = Report::new(records);
    let mut text = String::new();
    let mut section = |title: &str, table: Option<String>| {
        if let Some(table) = table {
            text.push_str(&format!("## {title}\n\n{table}\n"));
        }
    };
    section("Operations per second", report.rates());
    section("Latency in microseconds, p50 / p99", report.latencies());
    section(
        "Processor seconds of the row + of merges after it",
        report.cells(|outcome| Some(outcome.cpu_seconds), cpu_cell),
    );
    section(
        "Seconds that a writer waited for the engine, of those of the row",
        report.cells(
            |outcome| outcome.stalled_seconds,
            |report, key, engine| {
                let waited = report.spread(key, engine, |outcome| outcome.stalled_seconds)?;
                let row = report.spread(key, engine, |outcome| Some(outcome.seconds))?;
                Some(format!("{:.2} of {:.2}", waited.median, row.median))
            },
        ),
    );
    section(
        "Seconds until merges were done after the last write",
        report.cells(
            |outcome| outcome.settle_seconds,
            |report, key, engine| {
                let spread = report.spread(key, engine, |outcome| outcome.settle_seconds)?;
                Some(format!("{:.1}", spread.median))
            },
        ),
    );
    section(
        "Peak resident memory in MiB",
        report.cells(
            |outcome| Some(outcome.seconds),
            |report, key, engine| {
                let spread =
                    report.spread(key, engine, |outcome| Some(outcome.rss_peak_bytes as f64))?;
                Some(format!("{:.0}", spread.median / f64::from(1 << 20)))
            },
        ),
    );
    section(
        "Peak anonymous memory in MiB, the driver's own left out / promised by the engine",
        report.cells(
            |outcome| Some(outcome.seconds),
            |report, key, engine| {
                let mib = |spread: Spread| spread.median / f64::from(1 << 20);
                let peak = report.spread(key, engine, |o| Some(o.anonymous_peak_bytes as f64))?;
                let max = report.spread(key, engine, |o| o.memory_bytes_max.map(|b| b as f64));
                Some(match max {
                    Some(max) => format!("{:.0} / {:.0}", mib(peak), mib(max)),
                    None => format!("{:.0}", mib(peak)),
                })
            },
        ),
    );
    section(
        "MiB on disk after the row and its merges",
        report.cells(
            |outcome| outcome.settle_seconds,
            |report, key, engine| {
                let spread =
                    report.spread(key, engine, |outcome| Some(outcome.disk_bytes as f64))?;
                Some(format!("{:.0}", spread.median / f64::from(1 << 20)))
            },
        ),
    );
    text
}

fn cpu_cell(report: &Report<'_>, key: Key, engine: EngineKind) -> Option<String> {
    let row = report.spread(key, engine, |outcome| Some(outcome.cpu_seconds))?;
    Some(
        match report.spread(key, engine, |outcome| outcome.settle_cpu_seconds) {
            Some(settle) => format!("{:.1} + {:.1}", row.median, settle.median),
            None => format!("{:.1}", row.median),
        },
    )
}

/// A line of a table: a row and a number of threads.
type Key = (Row, u32);

/// The records, ready to be asked.
struct Report<'a> {
    records: &'a [Record],
    keys: BTreeSet<Key>,
    engines: Vec<EngineKind>,
}

impl<'a> Report<'a> {
    fn new(records: &'a [Record]) -> Report<'a> {
        let has = |engine: &EngineKind| records.iter().any(|record| record.engine == *engine);
        Report {
            records,
            keys: records
                .iter()
                .map(|record| (record.order.row, record.order.threads))
                .collect(),
            engines: EngineKind::ALL.into_iter().filter(has).collect(),
        }
    }

    /// The spread of one number over the repetitions.
    fn spread(
        &self,
        key: Key,
        engine: EngineKind,
        number: impl Fn(&Outcome) -> Option<f64>,
    ) -> Option<Spread> {
        let values = self
            .records
            .iter()
            .filter(|record| {
                record.engine == engine && (record.order.row, record.order.threads) == key
            })
            .filter_map(|record| number(&record.outcome))
            .collect();
        Spread::of(values)
    }

    fn peers(&self) -> impl Iterator<Item = EngineKind> + '_ {
        let real = |engine: &EngineKind| *engine != EngineKind::Null;
        self.engines.iter().copied().filter(real)
    }

    /// Rates of every engine, ratios to Thermocline, and the driver's own cost.
    fn rates(&self) -> Option<String> {
        let ours = EngineKind::Thermocline;
        let ratios: Vec<EngineKind> = match self.engines.contains(&ours) {
            true => self.peers().filter(|engine| *engine != ours).collect(),
            false => Vec::new(),
        };
        let driver = self.engines.contains(&EngineKind::Null);
        let mut titles = vec!["row".to_string(), "threads".to_string()];
        titles.extend(self.peers().map(|engine| engine.to_string()));
        titles.extend(ratios.iter().map(|peer| format!("{ours}/{peer}")));
        if driver {
            titles.push("driver ns/op".to_string());
        }
        let mut table = Table::new(titles);
        let readers = |outcome: &Outcome| Some(outcome.per_second());
        let writer = |outcome: &Outcome| outcome.writer_per_second;
        for &key in &self.keys {
            let (row, threads) = key;
            table.push(self.rate_line(row.title(), key, &ratios, driver, readers));
            if row == Row::ReadWhileWriting {
                let title = format!("the writer beside {threads} readers");
                table.push(self.rate_line(&title, (row, threads), &ratios, driver, writer));
            }
        }
        table.finish()
    }

    fn rate_line(
        &self,
        title: &str,
        key: Key,
        ratios: &[EngineKind],
        driver: bool,
        number: impl Fn(&Outcome) -> Option<f64>,
    ) -> Vec<String> {
        let rate = |engine| self.spread(key, engine, &number);
        let mut line = vec![title.to_string(), key.1.to_string()];
        line.extend(
            self.peers()
                .map(|engine| rate(engine).map_or_else(String::new, |spread| spread.rate())),
        );
        line.extend(
            ratios
                .iter()
                .map(|&peer| match (rate(EngineKind::Thermocline), rate(peer)) {
                    (Some(ours), Some(theirs)) => format!("{:.2}", ours.median / theirs.median),
                    _ => String::new(),
                }),
        );
        if driver {
            // Nanoseconds of one thread, so that it compares with latencies.
            line.push(rate(EngineKind::Null).map_or_else(String::new, |spread| {
                let threads = f64::from(key.1);
                format!("{:.1}", 1e9 * threads / spread.median)
            }));
        }
        line
    }

    fn latencies(&self) -> Option<String> {
        self.cells(
            |outcome| outcome.latency_ns.map(|latency| latency[0] as f64),
            |report, key, engine| {
                let [middle, high] = [0, 1].map(|index| {
                    report.spread(key, engine, |outcome| {
                        outcome.latency_ns.map(|latency| latency[index] as f64)
                    })
                });
                Some(format!(
                    "{:.2} / {:.2}",
                    middle?.median / 1e3,
                    high?.median / 1e3
                ))
            },
        )
    }

    /// A table with a cell for each engine, of the lines for which some outcome
    /// has the number `present`.
    fn cells(
        &self,
        present: impl Fn(&Outcome) -> Option<f64>,
        cell: impl Fn(&Report<'_>, Key, EngineKind) -> Option<String>,
    ) -> Option<String> {
        let mut titles = vec!["row".to_string(), "threads".to_string()];
        titles.extend(self.peers().map(|engine| engine.to_string()));
        let mut table = Table::new(titles);
        for &key in &self.keys {
            if self
                .peers()
                .all(|engine| self.spread(key, engine, &present).is_none())
            {
                continue;
            }
            let mut line = vec![key.0.title().to_string(), key.1.to_string()];
            line.extend(
                self.peers()
                    .map(|engine| cell(self, key, engine).unwrap_or_default()),
            );
            table.push(line);
        }
        table.finish()
    }
}

/// A whole number with its thousands set apart.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(engine: EngineKind, repetition: u32, operations: u64) -> Record {
        Record {
            engine,
            order: Order {
                row: Row::ReadPresent,
                threads: 1,
                repetition,
            },
            outcome: Outcome {
                operations,
                seconds: 1.0,
                ..Outcome::default()
            },
        }
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let groups = [0.0, 999.0, 1000.0, 1_234_567.4].map(grouped);
        assert_eq!(groups, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_spread_is_the_median_between_its_ends() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((spread.median, spread.least, spread.most), (2.5, 1.0, 10.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn ratios_compare_medians_of_thermocline_with_each_peer() {
        let text = markdown(&[
            record(EngineKind::Thermocline, 0, 3000),
            record(EngineKind::Thermocline, 1, 1000),
            record(EngineKind::Rocksdb, 0, 1000),
            record(EngineKind::Null, 0, 100_000_000),
        ]);
        assert!(text.contains("thermocline/rocksdb"), "{text}");
        assert!(text.contains("2,000 (1,000-3,000)"), "{text}");
        assert!(text.contains(" 2.00 "), "{text}");
        assert!(text.contains(" 10.0 "), "{text}");
        assert!(!text.contains("Latency"), "{text}");
    }
}
