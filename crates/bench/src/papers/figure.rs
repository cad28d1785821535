//! What a table or figure is made of, as data.

use serde::Serialize;

use super::exists;
use crate::engine::{EngineKind, count};
use crate::report::compare::Measured;
use crate::report::table::Table;

/// A table or figure.
pub(super) struct Figure {
    pub name: &'static str,
    pub says: &'static str,
    /// Records of the paper's store, and bytes of each.
    pub records: u64,
    pub record_bytes: u64,
    /// How many times smaller ours is, unless told otherwise.
    pub scale: u64,
    pub how: How,
}

/// How it is repeated.
pub(super) enum How {
    /// Lines of `compare`, and the numbers made of their results.
    Compared {
        lines: &'static [Line],
        rows: &'static [RowPlan],
    },
    /// Systems against what is measured of them.
    Grid(Grid),
    /// One store whose cost target changes.
    Targets(Targets),
    /// Stores whose parts share out the writes.
    Balance(Balance),
    /// Lines of `compare` beside what the cost model says of their devices.
    Predicted(&'static [PredictedPlan]),
    /// It is not, for this reason.
    Not(&'static str),
}

/// A line of `compare`.
#[derive(Clone, Copy)]
pub(super) struct Line {
    /// `PRESET[/LAYOUT]` of Thermocline, or a peer as `compare` names it.
    pub engines: &'static [&'static str],
    pub workloads: &'static [&'static str],
    /// Memory as a share of the data.
    pub memory_share: f64,
    pub warmup_seconds: f64,
    pub seconds: f64,
    /// More options of `compare`.
    pub words: &'static [&'static str],
    /// Thermocline's options beside the sizes, as TOML.
    pub options: &'static str,
    /// Sizes of tables and the first level that do not follow the data, as TOML.
    pub sizes: &'static str,
}

/// A line with the usual values, for those that name what differs.
pub(super) const LINE: Line = Line {
    engines: &[],
    workloads: &[],
    memory_share: 0.08,
    warmup_seconds: 5.0,
    seconds: 10.0,
    words: &[],
    options: "",
    sizes: "",
};

/// One run: a line, an engine of it, a workload of it.
#[derive(Clone, Copy)]
pub(super) struct Cell(pub usize, pub usize, pub usize);

/// A number of one run.
#[derive(Clone, Copy)]
pub(super) enum Number {
    /// Operations a second.
    Rate,
    /// Operations a second in the last quarter of the measured time.
    LateRate,
    /// Merges, counted until none was left.
    Merges,
    /// 10^9 bytes of these counters, until no merge was left.
    Gigabytes(&'static [&'static str]),
    /// Tables in the store when no merge was left.
    Tables,
    /// 10^6 bytes that clients wrote a second, of a run without warm-up.
    WrittenMb,
    /// Milliseconds of an operation on average, in a closed loop.
    MeanMs,
    /// Bytes written to tables for each byte that clients wrote.
    Rewritten,
    /// Of these, bytes of flushes.
    Flushed,
    /// The share of the reads that memtables, all of memory, or a tier answered.
    Memtable,
    Memory,
    Tier(&'static str),
    /// Processor seconds, and bytes of memory at the most.
    Processor,
    MemoryPeak,
    /// USD for each GB and month.
    Price,
    /// The share of the measured time that writers spent slowed or stopped by the engine.
    Stalled,
    /// The 99th percentile of all operations, in milliseconds.
    HighMs,
}

impl Number {
    /// Of one run; none where it has no such number.
    pub(super) fn of(self, run: &Measured) -> Option<f64> {
        let outcome = &run.outcome;
        let counted = |name: &str| count(&outcome.counted, name).map(|n| n as f64);
        let answered = |names: &[&str]| {
            let ours = names
                .iter()
                .map(|name| counted(name))
                .sum::<Option<f64>>()?;
            let all: f64 = outcome
                .counted
                .iter()
                .filter(|counted| counted.name.ends_with(" hits"))
                .map(|counted| counted.count as f64)
                .sum();
            (all > 0.0).then(|| ours / all)
        };
        let of_written = |names: &[&str]| {
            let all = names.iter().map(|name| counted(name));
            let all = all.sum::<Option<f64>>()?;
            (outcome.written_bytes > 0).then(|| all / outcome.written_bytes as f64)
        };
        match self {
            Number::Rate => Some(run.per_second()),
            Number::LateRate => {
                let late = &outcome.per_second[outcome.per_second.len() * 3 / 4..];
                let sum = late.iter().sum::<u64>() as f64;
                (!late.is_empty()).then(|| sum / late.len() as f64)
            }
            Number::Merges => counted("merges"),
            Number::Gigabytes(names) => {
                let all = names.iter().map(|name| counted(name));
                Some(all.sum::<Option<f64>>()? / 1e9)
            }
            Number::Tables => outcome.tables.map(|tables| tables as f64),
            Number::WrittenMb => Some(outcome.written_bytes as f64 / 1e6 / outcome.seconds),
            Number::MeanMs => Some(f64::from(run.order.clients) * 1e3 / run.per_second()),
            Number::Rewritten => of_written(&["flushed bytes", "merged bytes", "relocated bytes"]),
            Number::Flushed => of_written(&["flushed bytes"]),
            Number::Memtable => answered(&["memtable hits"]),
            Number::Memory => answered(&["memtable hits", "cached hits"]),
            Number::Tier(name) => answered(&[&format!("{name} hits")]),
            Number::Processor => Some(outcome.cpu_seconds),
            Number::MemoryPeak => Some(outcome.rss_peak_bytes as f64),
            Number::Price => {
                let bytes: u64 = outcome.homes.iter().map(|home| home.bytes).sum();
                Some(run.price()? / (bytes as f64 / 1e9))
            }
            Number::Stalled => Some(run.writer_stalled_seconds()? / outcome.seconds),
            Number::HighMs => Some(outcome.latency_all_ns?[1] as f64 / 1e6),
        }
    }
}

/// A number that is made of runs, and what the paper has.
pub(super) struct RowPlan {
    pub what: &'static str,
    pub number: Number,
    pub of: Cell,
    /// What it is divided by.
    pub over: Option<Cell>,
    pub paper: Paper,
    /// Where the paper says so.
    pub place: &'static str,
}

impl RowPlan {
    /// The runs that it is made of.
    pub(super) fn cells(&self) -> impl Iterator<Item = Cell> {
        [Some(self.of), self.over].into_iter().flatten()
    }
}

/// A row of a figure's table.
pub(super) const fn number(
    what: &'static str,
    number: Number,
    of: Cell,
    over: Option<Cell>,
    paper: Paper,
    place: &'static str,
) -> RowPlan {
    RowPlan {
        what,
        number,
        of,
        over,
        paper,
        place,
    }
}

/// A row that is a number of one run.
pub(super) const fn alone(
    what: &'static str,
    of: Number,
    cell: Cell,
    paper: Paper,
    place: &'static str,
) -> RowPlan {
    number(what, of, cell, None, paper, place)
}

/// A row that is the rate of one run over that of another.
pub(super) const fn ratio(
    what: &'static str,
    of: Cell,
    over: Cell,
    paper: Paper,
    place: &'static str,
) -> RowPlan {
    number(what, Number::Rate, of, Some(over), paper, place)
}

/// What the paper's text has.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Paper {
    Number(f64),
    Between(f64, f64),
    AtLeast(f64),
    AtMost(f64),
    /// Nothing but a plot.
    Plot,
    /// That it is as with what it has numbers of.
    Similar,
    /// Nothing: the row is ours.
    Nothing,
}

impl Paper {
    fn text(self) -> String {
        match self {
            Paper::Number(number) => digits(number),
            Paper::Between(least, most) => format!("{} to {}", digits(least), digits(most)),
            Paper::AtLeast(least) => format!("{} or more", digits(least)),
            Paper::AtMost(most) => format!("up to {}", digits(most)),
            Paper::Plot => "a plot".to_string(),
            Paper::Similar => "similar".to_string(),
            Paper::Nothing => "-".to_string(),
        }
    }
}

/// A number of ours beside the paper's.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub(super) struct Row {
    pub what: String,
    pub ours: Option<f64>,
    /// Why there is none of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacking: Option<String>,
    pub paper: Paper,
    pub place: &'static str,
}

/// Systems against what is measured of them.
pub(super) struct Grid {
    pub systems: &'static [System],
    pub columns: &'static [Column],
    /// The system that the others are put over.
    pub base: usize,
    /// Whether the paper's numbers are over it already.
    pub relative: bool,
}

/// A row of the paper's table.
#[derive(Clone, Copy)]
pub(super) struct System {
    pub name: &'static str,
    /// What else it is known by, with a space before it.
    pub size: &'static str,
    pub ran: Ran,
}

/// How a system is repeated.
#[derive(Clone, Copy)]
pub(super) enum Ran {
    /// The first engine of this line.
    Line(Line),
    /// It is not, for this reason.
    Not(&'static str),
}

/// A column of it.
pub(super) struct Column {
    pub what: &'static str,
    pub number: Number,
    /// Of the line's workloads.
    pub workload: usize,
    /// What the paper has of each of its systems, in their order; ours stand behind them.
    pub paper: &'static [f64],
    /// What it has where that is 0.
    pub otherwise: Paper,
    pub place: &'static str,
}

impl System {
    /// One that `line` stands for.
    pub(super) const fn ran(name: &'static str, line: Line) -> System {
        let ran = Ran::Line(line);
        let size = "";
        System { name, size, ran }
    }

    /// One that nothing stands for.
    pub(super) const fn not(name: &'static str, why: &'static str) -> System {
        let ran = Ran::Not(why);
        let size = "";
        System { name, size, ran }
    }

    /// The same with a size beside its name.
    pub(super) const fn of(self, size: &'static str) -> System {
        System { size, ..self }
    }
}

impl Grid {
    /// The lines that are run.
    pub(super) fn lines(&self) -> impl Iterator<Item = &'static Line> {
        self.systems.iter().filter_map(|system| match &system.ran {
            Ran::Line(line) => Some(line),
            Ran::Not(_) => None,
        })
    }
}

/// One store whose cost target changes while clients work.
pub(super) struct Targets {
    /// For each run the resistance against migration.
    pub resistances: &'static [f64],
    /// The targets in USD per GB and month, and how long each holds.
    pub phases: &'static [(f64, f64)],
    pub shown: Shown,
}

/// What is made of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Prices and moves: Mutant's figure 10.
    Adaptation,
    /// Prices that can be had: figure 13.
    Prices,
    /// Moves and prices by resistance: figure 16.
    Resistance,
    /// Moves that merges save: figure 17.
    Saved,
}

/// Stores that are written to, with uniform keys and with skewed ones.
pub(super) struct Balance {
    pub uniform: Line,
    pub zipfian: Line,
    /// How many parts they have at most.
    pub parts: &'static [u32],
}

/// A system of the cost model, measured.
pub(super) struct PredictedPlan {
    /// By the paper's name.
    pub system: &'static str,
    /// Ours: `PRESET[/LAYOUT]`.
    pub engine: &'static str,
    pub workload: &'static str,
    /// The paper's measured over its predicted rate.
    pub paper: f64,
    pub place: &'static str,
}

impl Figure {
    /// The engines that it needs.
    fn engines(&self) -> Vec<&'static str> {
        match &self.how {
            How::Compared { lines, .. } => {
                let engines = lines.iter().flat_map(|line| line.engines);
                engines.copied().collect()
            }
            How::Grid(grid) => grid.lines().map(|line| line.engines[0]).collect(),
            How::Targets(_) => vec!["mutant"],
            How::Balance(plan) => plan.uniform.engines.to_vec(),
            How::Predicted(plans) => plans.iter().map(|plan| plan.engine).collect(),
            How::Not(_) => Vec::new(),
        }
    }

    /// What of these is missing, each once.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut missing: Vec<String> = self.engines().into_iter().filter_map(missing).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// The peers that it runs beside Thermocline.
    pub(super) fn peers(&self) -> impl Iterator<Item = EngineKind> {
        let mut peers: Vec<EngineKind> = self.engines().into_iter().filter_map(peer).collect();
        peers.sort_unstable_by_key(|kind| kind.name());
        peers.dedup();
        peers.into_iter()
    }

    /// Whether anything of it can run: a row all of whose engines are there.
    pub(super) fn runs(&self) -> bool {
        match &self.how {
            How::Compared { lines, rows } => rows.iter().any(|row| {
                let there = |Cell(line, engine, _): Cell| missing(lines[line].engines[engine]);
                row.cells().all(|cell| there(cell).is_none())
            }),
            How::Not(_) => false,
            _ => self.engines().into_iter().any(|e| missing(e).is_none()),
        }
    }

    /// The systems of it that are not repeated, and why.
    pub(super) fn not_repeated(&self) -> Vec<(String, &'static str)> {
        let How::Grid(grid) = &self.how else {
            return Vec::new();
        };
        let not = |system: &System| match system.ran {
            Ran::Line(_) => None,
            Ran::Not(why) => Some((format!("{}{}", system.name, system.size), why)),
        };
        grid.systems.iter().filter_map(not).collect()
    }
}

/// What is before the layout.
fn name(engine: &'static str) -> &'static str {
    engine.split('/').next().unwrap_or(engine)
}

/// The peer that an engine of a line is; none if it is a preset of Thermocline.
pub(super) fn peer(engine: &'static str) -> Option<EngineKind> {
    let name = name(engine);
    EngineKind::ALL.into_iter().find(|kind| kind.name() == name)
}

/// The preset of `PRESET[/LAYOUT]`.
pub(super) fn preset(engine: &'static str) -> Option<&'static str> {
    match peer(engine) {
        Some(_) => None,
        None => Some(name(engine)),
    }
}

/// What an engine of a line needs that is not there, in words.
pub(super) fn missing(engine: &'static str) -> Option<String> {
    match (peer(engine), name(engine)) {
        (Some(kind), name) if kind.missing().is_some() => {
            Some(format!("{name}, which is not in this build"))
        }
        (None, name) if !exists(name) => {
            Some(format!("the preset {name}, which does not exist yet"))
        }
        _ => None,
    }
}

/// The rows as a table.
pub(super) fn table(rows: &[Row]) -> String {
    let titles = ["", "ours", "paper", "where"];
    let mut table = Table::new(titles.map(String::from).to_vec());
    for row in rows {
        let ours = match (row.ours, &row.lacking) {
            (Some(number), _) => digits(number),
            (None, Some(why)) => why.clone(),
            (None, None) => "-".to_string(),
        };
        table.push(vec![
            row.what.clone(),
            ours,
            row.paper.text(),
            row.place.to_string(),
        ]);
    }
    table.finish().unwrap_or_default()
}

/// A number with three digits that count.
fn digits(number: f64) -> String {
    let decimals = match number.abs() {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 0.1 || n == 0.0 => 2,
        n if n >= 0.01 => 3,
        n if n >= 0.001 => 5,
        _ => return format!("{number:.2e}"),
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_paper_has_is_written_as_it_has_it() {
        assert_eq!(Paper::Between(4.0, 6.0).text(), "4.00 to 6.00");
        assert_eq!(Paper::AtLeast(3.5).text(), "3.50 or more");
        assert_eq!(Paper::AtMost(6.0).text(), "up to 6.00");
        assert_eq!(Paper::Number(0.0167).text(), "0.017");
        assert_eq!(Paper::Number(1.652e-3).text(), "0.00165");
        assert_eq!(Paper::Number(2.86e-4).text(), "2.86e-4");
        assert_eq!(Paper::Plot.text(), "a plot");
    }

    #[test]
    fn a_row_without_a_number_says_why() {
        let row = Row {
            what: "x".into(),
            ours: None,
            lacking: Some("needs the preset nova".into()),
            paper: Paper::Number(34.0),
            place: "8.3",
        };
        assert!(table(&[row]).contains("needs the preset nova"));
    }
}
