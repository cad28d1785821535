//! The report of `compare`: tables for each workload, and JSON lines.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::table::Table;
use super::{Spread, grouped};
use crate::drive::{HomeUse, RunOrder, RunOutcome};
use crate::engine::{Counted, Result, count, writer_stalled_seconds};
use crate::limit::{Bound, Limit};

pub(super) const MIB: f64 = 1_048_576.0;

/// The classes of operations, as in [`RunOutcome::counts`].
pub(crate) const CLASSES: [&str; 3] = ["reads", "writes", "scans"];

/// One run of one workload on one contender.
#[derive(Clone, Serialize, Debug)]
pub(crate) struct Measured {
    /// The contender's name.
    pub contender: String,
    /// The workload's name.
    pub workload: String,
    /// Which repetition this is.
    pub repetition: u32,
    /// Whether the devices were emulated; else they are what they are.
    pub emulated: bool,
    /// What must be known of the result: `drifting`, `rate not reached`.
    pub marks: Vec<String>,
    /// What was asked for.
    pub order: RunOrder,
    /// What it gave.
    pub outcome: RunOutcome,
    /// What no engine can exceed there.
    pub limit: Option<Limit>,
}

impl Measured {
    /// Operations a second.
    pub(crate) fn per_second(&self) -> f64 {
        self.outcome.operations as f64 / self.outcome.seconds
    }

    /// Whether the run has a result at all.
    pub(crate) fn stands(&self) -> bool {
        self.outcome.operations > 0 && !self.marks.iter().any(|mark| mark == "rate not reached")
    }

    /// The run in a line, for whoever waits.
    pub(crate) fn line(&self) -> String {
        let load = self.outcome.load_seconds;
        let load = load.map_or_else(String::new, |s| format!(", loaded in {s:.1} s"));
        let marks: String = self.marks.iter().map(|mark| format!(", {mark}")).collect();
        format!(
            "{}: {}, repetition {}: {}/s{load}, settled in {:.1} s{marks}",
            self.contender,
            self.workload,
            self.repetition + 1,
            grouped(self.per_second()),
            self.outcome.settle_seconds,
        )
    }

    /// Measured rate over the limit of records.
    pub(super) fn of_limit(&self) -> Option<f64> {
        Some(self.per_second() / self.limit.as_ref()?.by_record.per_second?)
    }

    /// Measured rate over the limit of whole tables.
    pub(super) fn of_table_limit(&self) -> Option<f64> {
        let tables = self.limit.as_ref()?.by_table.as_ref()?;
        Some(self.per_second() / tables.per_second?)
    }

    /// The same with no more in memory than the engine's caches hold.
    pub(super) fn of_cached_table_limit(&self) -> Option<f64> {
        let tables = self.limit.as_ref()?.by_table_cached.as_ref()?;
        Some(self.per_second() / tables.per_second?)
    }

    /// Bytes written to all devices, until merges were done, for each byte that
    /// clients wrote.
    pub(crate) fn write_amplification(&self) -> Option<f64> {
        let bytes = sum(&self.outcome.homes, |home| {
            Some(home.settled?.written_bytes)
        })?;
        ratio(bytes, self.outcome.written_bytes)
    }

    /// Bytes read from all devices for each byte that clients read.
    fn read_amplification(&self) -> Option<f64> {
        let bytes = sum(&self.outcome.homes, |home| Some(home.measured?.read_bytes))?;
        ratio(bytes, self.outcome.read_bytes)
    }

    /// Bytes on all tiers for each byte of live keys and values.
    fn space_amplification(&self) -> Option<f64> {
        let bytes = sum(&self.outcome.homes, |home| Some(home.bytes))?;
        ratio(bytes, self.outcome.live_bytes?)
    }

    /// Seconds of the measured time in which some writer was slowed or stopped; none where the
    /// engine does not say.
    fn stalled_seconds(&self) -> Option<f64> {
        let stalled = count(&self.outcome.counted_measured, "stalled us")?;
        Some(stalled as f64 / 1e6)
    }

    /// Seconds of the measured time that a writer waited on average.
    pub(crate) fn writer_stalled_seconds(&self) -> Option<f64> {
        writer_stalled_seconds(&self.outcome.counted_measured, self.order.clients)
    }

    /// USD a month; none where no price is known.
    pub(crate) fn price(&self) -> Option<f64> {
        let price: f64 = self.outcome.homes.iter().map(|h| h.price_usd_month).sum();
        (price > 0.0).then_some(price)
    }
}

fn sum(homes: &[HomeUse], number: impl Fn(&HomeUse) -> Option<u64>) -> Option<u64> {
    homes.iter().map(number).sum()
}

fn ratio(bytes: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| bytes as f64 / of as f64)
}

/// A line of JSON for each run: the run, and the numbers that the tables derive
/// from it.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    measured: &'a Measured,
    per_second: f64,
    of_limit: Option<f64>,
    of_table_limit: Option<f64>,
    of_cached_table_limit: Option<f64>,
    write_amplification: Option<f64>,
    read_amplification: Option<f64>,
    space_amplification: Option<f64>,
    stalled_seconds: Option<f64>,
    writer_stalled_seconds: Option<f64>,
    price_usd_month: Option<f64>,
}

/// A file that runs are appended to as they end.
pub(crate) struct Lines(File);

impl Lines {
    /// Opens `path` to append to it.
    ///
    /// # Errors
    /// With the path, if it cannot be opened.
    pub(crate) fn open(path: &Path) -> Result<Lines> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Lines(file))
    }

    /// Appends one run.
    pub(crate) fn write(&mut self, measured: &Measured) -> Result<()> {
        let line = Line {
            measured,
            per_second: measured.per_second(),
            of_limit: measured.of_limit(),
            of_table_limit: measured.of_table_limit(),
            of_cached_table_limit: measured.of_cached_table_limit(),
            write_amplification: measured.write_amplification(),
            read_amplification: measured.read_amplification(),
            space_amplification: measured.space_amplification(),
            stalled_seconds: measured.stalled_seconds(),
            writer_stalled_seconds: measured.writer_stalled_seconds(),
            price_usd_month: measured.price(),
        };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        Ok(self.0.write_all(&text)?)
    }
}

/// The tables of all workloads, in the order in which they ran.
pub(crate) fn tables(results: &[Measured]) -> String {
    let mut text = String::new();
    for workload in distinct(results.iter().map(|m| m.workload.as_str())) {
        let of: Vec<&Measured> = results.iter().filter(|m| m.workload == workload).collect();
        text.push_str(&format!("## {workload}\n\n"));
        let rows = Rows::new(&of);
        for table in [rows.rates(), rows.costs(), rows.devices()] {
            text.push_str(&table.map_or_else(String::new, |table| table + "\n"));
        }
        text.push_str(&rows.counted());
        text.push_str(&rows.limits());
        text.push('\n');
    }
    text
}

pub(super) fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// The runs of one workload, by contender.
struct Rows<'a>(Vec<(&'a str, Vec<&'a Measured>)>);

impl<'a> Rows<'a> {
    fn new(results: &[&'a Measured]) -> Rows<'a> {
        let names = distinct(results.iter().map(|m| m.contender.as_str()));
        let runs = |name: &str| {
            let of = results.iter().filter(|m| m.contender == name);
            of.copied().collect()
        };
        Rows(names.into_iter().map(|name| (name, runs(name))).collect())
    }

    /// Rates, the limit, latencies and marks.
    fn rates(&self) -> Option<String> {
        let seen = |class: usize| {
            let mut all = self.0.iter().flat_map(|(_, runs)| runs);
            all.any(|m| m.outcome.latency_ns[class].is_some())
        };
        let classes: Vec<usize> = (0..CLASSES.len()).filter(|&class| seen(class)).collect();
        let mut titles = [
            "engine",
            "ops/s",
            "of limit",
            "of tables' limit",
            "with all memory",
        ]
        .map(String::from)
        .to_vec();
        titles.extend(
            classes
                .iter()
                .map(|&class| format!("{} p50 / p99 / p99.9", CLASSES[class])),
        );
        titles.push("marks".into());
        let mut table = Table::new(titles);
        for (name, runs) in &self.0 {
            let rate = spread(runs, |m| Some(m.per_second()));
            let of = |limit: fn(&Measured) -> Option<f64>| {
                let share = spread(runs, limit);
                share.map_or_else(String::new, |share| format!("{:.2}", share.median))
            };
            let mut line = vec![
                (*name).to_string(),
                rate.map_or_else(String::new, |rate| rate.rate()),
                of(Measured::of_limit),
                of(Measured::of_cached_table_limit),
                of(Measured::of_table_limit),
            ];
            line.extend(classes.iter().map(|&class| latency(runs, class)));
            let marks = distinct(runs.iter().flat_map(|m| m.marks.iter().map(String::as_str)));
            line.push(marks.join(", "));
            table.push(line);
        }
        table.finish()
    }

    /// Processor, memory, amplification, money.
    fn costs(&self) -> Option<String> {
        let titles = [
            "engine",
            "CPU s",
            "CPU us/op",
            "peak MiB",
            "mean MiB",
            "settle s",
            "write amp",
            "read amp",
            "space amp",
            "stalled s",
            "a writer's",
            "long writes s",
            "USD/month",
        ];
        let mut table = Table::new(titles.map(String::from).to_vec());
        for (name, runs) in &self.0 {
            let cell = |digits: usize, number: &dyn Fn(&Measured) -> Option<f64>| {
                let spread = spread(runs, number);
                spread.map_or_else(|| "-".into(), |s| format!("{:.digits$}", s.median))
            };
            table.push(vec![
                (*name).to_string(),
                cell(1, &|m| Some(m.outcome.cpu_seconds)),
                cell(2, &|m| {
                    let operations = m.outcome.operations as f64;
                    (operations > 0.0).then(|| m.outcome.cpu_seconds * 1e6 / operations)
                }),
                cell(0, &|m| Some(m.outcome.rss_peak_bytes as f64 / MIB)),
                cell(1, &|m| m.outcome.rss_mean_bytes.map(|bytes| bytes / MIB)),
                cell(1, &|m| Some(m.outcome.settle_seconds)),
                cell(2, &Measured::write_amplification),
                cell(2, &Measured::read_amplification),
                cell(2, &Measured::space_amplification),
                cell(2, &Measured::stalled_seconds),
                cell(2, &Measured::writer_stalled_seconds),
                cell(2, &|m| m.outcome.long_write_seconds),
                cell(4, &Measured::price),
            ]);
        }
        table.finish()
    }

    /// Bytes on each tier, and what its device did in the measured time.
    fn devices(&self) -> Option<String> {
        let titles = [
            "engine",
            "tier",
            "MiB there",
            "at most",
            "reads/s",
            "MiB read/s",
            "writes/s",
            "MiB written/s",
        ];
        let mut table = Table::new(titles.map(String::from).to_vec());
        for (name, runs) in &self.0 {
            let tiers = runs.iter().flat_map(|m| m.outcome.homes.iter());
            for tier in distinct(tiers.map(|home| home.tier.as_str())) {
                let cell = |digits: usize, number: &dyn Fn(&Measured, &HomeUse) -> Option<f64>| {
                    let of = |m: &Measured| {
                        let home = m.outcome.homes.iter().find(|home| home.tier == tier)?;
                        number(m, home)
                    };
                    let spread = spread(runs, of);
                    spread.map_or_else(|| "-".into(), |s| format!("{:.digits$}", s.median))
                };
                table.push(vec![
                    (*name).to_string(),
                    tier.to_string(),
                    cell(0, &|_, home| Some(home.bytes as f64 / MIB)),
                    cell(0, &|_, home| Some(home.peak_bytes as f64 / MIB)),
                    cell(0, &|m, home| {
                        Some(home.measured?.reads as f64 / m.outcome.seconds)
                    }),
                    cell(1, &|m, home| {
                        Some(home.measured?.read_bytes as f64 / MIB / m.outcome.seconds)
                    }),
                    cell(0, &|m, home| {
                        Some(home.measured?.writes as f64 / m.outcome.seconds)
                    }),
                    cell(1, &|m, home| {
                        Some(home.measured?.written_bytes as f64 / MIB / m.outcome.seconds)
                    }),
                ]);
            }
        }
        table.finish()
    }

    /// What engines count of themselves in the measured time, and from the beginning of the warm-up
    /// until merges were done, a line each.
    fn counted(&self) -> String {
        let mut text = String::new();
        for (contender, runs) in &self.0 {
            let all = runs.iter().flat_map(|m| m.outcome.counted.iter());
            let names = distinct(all.map(|counted| counted.name.as_str()));
            let words: Vec<String> = names
                .iter()
                .filter_map(|name| {
                    let of = |all: &[Counted]| Some(count(all, name)? as f64);
                    let whole =
                        spread(runs, |m| of(&m.outcome.counted)).filter(|s| s.median > 0.0)?;
                    let measured = spread(runs, |m| of(&m.outcome.counted_measured));
                    let measured = measured.map_or("?".into(), |s| grouped(s.median));
                    let whole = grouped(whole.median);
                    Some(format!("{name} {measured} of {whole}"))
                })
                .collect();
            if !words.is_empty() {
                text.push_str(&format!(
                    "- {contender} counts, measured of all: {}\n",
                    words.join(", ")
                ));
            }
        }
        text
    }

    /// What the limits are, a line for those contenders that have the same.
    fn limits(&self) -> String {
        let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
        for (contender, runs) in &self.0 {
            let Some(limit) = runs.first().and_then(|m| m.limit.as_ref()) else {
                continue;
            };
            let words = limit_words(limit);
            match lines.iter_mut().find(|(known, _)| *known == words) {
                Some((_, contenders)) => contenders.push(contender),
                None => lines.push((words, vec![contender])),
            }
        }
        let line = |(words, contenders): &(String, Vec<&str>)| {
            format!("- limit of {}: {words}\n", contenders.join(", "))
        };
        lines.iter().map(line).collect()
    }
}

fn limit_words(limit: &Limit) -> String {
    let words = |what: &str, bound: &Option<Bound>| match bound {
        Some(bound) => format!("; {what}: {}", bound_words(bound)),
        None => String::new(),
    };
    format!(
        "{}{}{}",
        bound_words(&limit.by_record),
        words(
            "placing whole tables, with write buffer and block cache full of records",
            &limit.by_table_cached
        ),
        words("with all memory full of records", &limit.by_table),
    )
}

fn bound_words(bound: &Bound) -> String {
    let shares = bound.shares.iter();
    let shares: Vec<String> = shares.map(|s| format!("{:.2}", s * 100.0)).collect();
    let rate = match (bound.per_second, &bound.bound_by) {
        (Some(rate), Some(by)) => format!("{}/s, by {by}", grouped(rate)),
        _ => "unknown devices".to_string(),
    };
    format!(
        "{rate} (% of accesses to records in memory and on each tier at best: {})",
        shares.join(" / ")
    )
}

fn spread(runs: &[&Measured], number: impl Fn(&Measured) -> Option<f64>) -> Option<Spread> {
    Spread::of(runs.iter().filter_map(|m| number(m)).collect())
}

/// The medians of three percentiles of a class, of runs that have a result: where
/// the rate was not reached, operations waited ever
/// longer, and a percentile says only how long the run was.
fn latency(runs: &[&Measured], class: usize) -> String {
    let of = |index: usize| {
        let number = |m: &Measured| {
            let latency = m.outcome.latency_ns[class].filter(|_| m.stands());
            Some(latency?[index] as f64)
        };
        spread(runs, number).map(|s| duration(s.median))
    };
    match [of(0), of(1), of(2)] {
        [Some(middle), Some(high), Some(highest)] => format!("{middle} / {high} / {highest}"),
        _ => String::new(),
    }
}

/// Nanoseconds with a unit that suits.
fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.1} s", n / 1e9),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::device::Counters;
    use crate::engine::Counted;
    use crate::mix::parse;

    pub(in crate::report) fn measured(
        contender: &str,
        repetition: u32,
        operations: u64,
    ) -> Measured {
        let used = |written_bytes, read_bytes| Counters {
            read_bytes,
            written_bytes,
            reads: 30,
            writes: 10,
        };
        let home = |tier: &str, bytes| HomeUse {
            tier: tier.to_string(),
            bytes,
            peak_bytes: bytes,
            price_usd_month: 0.5,
            measured: Some(used(100, 2000)),
            settled: Some(used(3000, 0)),
        };
        Measured {
            contender: contender.to_string(),
            workload: "ycsb-a".to_string(),
            repetition,
            emulated: false,
            marks: Vec::new(),
            order: RunOrder {
                workload: parse("ycsb-a").unwrap().remove(0),
                records: 10,
                clients: 1,
                warmup_seconds: 0.0,
                seconds: 2.0,
                operations: None,
                rate: None,
                seed: 1,
                load_only: false,
                keep_inserted: false,
                compressible: 0.0,
            },
            outcome: RunOutcome {
                operations,
                seconds: 2.0,
                latency_ns: [Some([900, 1500, 2_500_000]), None, None],
                long_write_seconds: Some(1.75),
                read_bytes: 1000,
                written_bytes: 2000,
                live_bytes: Some(100),
                homes: vec![home("fast", 50), home("slow", 100)],
                counted: vec![Counted::new("stalled us", 4_250_000)],
                counted_measured: vec![Counted::new("stalled us", 1_250_000)],
                ..RunOutcome::default()
            },
            limit: Some(Limit {
                by_record: Bound {
                    shares: vec![0.5, 0.25, 0.25],
                    per_second: Some(1000.0),
                    bound_by: Some("reads of slow".to_string()),
                },
                by_table: Some(Bound {
                    shares: vec![0.4, 0.25, 0.35],
                    per_second: Some(800.0),
                    bound_by: Some("reads of slow".to_string()),
                }),
                by_table_cached: Some(Bound {
                    shares: vec![0.2, 0.25, 0.55],
                    per_second: Some(625.0),
                    bound_by: Some("reads of slow".to_string()),
                }),
            }),
        }
    }

    #[test]
    fn amplification_is_bytes_of_all_devices_over_bytes_of_clients() {
        let run = measured("thermocline", 0, 100);
        assert_eq!(run.write_amplification(), Some(3.0));
        assert_eq!(run.read_amplification(), Some(4.0));
        assert_eq!(run.space_amplification(), Some(1.5));
        assert_eq!(run.price(), Some(1.0));
        assert_eq!(run.stalled_seconds(), Some(1.25));
    }

    /// With eight writers that sleep each for itself somebody waits longer than any of them, and
    /// beside an engine whose writers wait together that looked like a longer stall.
    #[test]
    fn what_a_writer_waited_is_its_share_of_the_sum_or_all_that_the_leader_did() {
        let mut rocksdb = measured("rocksdb/db-paths", 0, 100);
        rocksdb.order.clients = 8;
        assert_eq!(rocksdb.writer_stalled_seconds(), Some(1.25));
        let mut thermocline = rocksdb.clone();
        let sum = Counted::new("stall us", 4_000_000);
        thermocline.outcome.counted_measured.push(sum);
        assert_eq!(thermocline.stalled_seconds(), Some(1.25));
        assert_eq!(thermocline.writer_stalled_seconds(), Some(0.5));
        let mut leveldb = rocksdb;
        leveldb.outcome.counted_measured.clear();
        assert_eq!(leveldb.writer_stalled_seconds(), None);
    }

    #[test]
    fn without_counters_of_a_device_there_is_no_amplification() {
        let mut run = measured("thermocline", 0, 100);
        run.outcome.homes[1].settled = None;
        run.outcome.homes[1].measured = None;
        assert_eq!(
            (run.write_amplification(), run.read_amplification()),
            (None, None)
        );
        assert!(tables(&[run]).contains(" - |"));
    }

    #[test]
    fn a_table_has_medians_with_their_range_and_the_share_of_the_limit() {
        let mut runs = vec![
            measured("thermocline", 0, 1000),
            measured("thermocline", 1, 2000),
            measured("thermocline", 2, 200),
            measured("rocksdb/db-paths", 0, 100),
        ];
        runs[1].marks.push("drifting +20 %".to_string());
        let text = tables(&runs);
        assert!(text.contains("500 (100-1,000)"), "{text}");
        assert!(text.contains(" 0.50 |"), "{text}");
        assert!(text.contains(" 0.62 |"), "{text}");
        assert!(text.contains(" 0.80 |"), "{text}");
        assert!(
            text.contains("block cache full of records: 625/s"),
            "{text}"
        );
        assert!(text.contains("900 ns / 1.5 us / 2.5 ms"), "{text}");
        assert!(text.contains("drifting +20 %"), "{text}");
        assert!(text.contains("1,000/s, by reads of slow"), "{text}");
        assert!(text.contains(" 1.25 |"), "{text}");
        assert!(text.contains(" 1.75 |"), "{text}");
        assert!(text.contains("stalled us 1,250,000 of 4,250,000"), "{text}");
        assert!(!text.contains("scans"), "{text}");
    }

    #[test]
    fn a_line_of_json_holds_the_run_and_what_is_derived() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        let mut lines = Lines::open(&path).unwrap();
        lines.write(&measured("thermocline", 0, 1000)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["per_second"], 500.0);
        assert_eq!(value["writer_stalled_seconds"], 1.25);
        assert_eq!(value["of_limit"], 0.5);
        assert_eq!(value["of_table_limit"], 0.625);
        assert_eq!(value["of_cached_table_limit"], 0.8);
        assert_eq!(value["order"]["workload"]["name"], "ycsb-a");
        assert_eq!(value["outcome"]["homes"][1]["measured"]["reads"], 30);
    }
}
