//! Which share of the time a writer waited, in every run of a figure that writes: a rate without it
//! does not say whether the engine kept up. Ours alone: few of the papers count it.

use super::compared::{median_of, runs_of};
use super::figure::{Cell, Line, Number, Paper, Row, RowPlan};
use crate::report::compare::Measured;

/// The row of what ran as `of`.
pub(super) fn row(of: &str, ours: Option<f64>) -> Row {
    Row {
        what: format!("share of the time a writer waited, {of}"),
        ours,
        lacking: ours.is_none().then(|| "not counted by it".to_string()),
        paper: Paper::Nothing,
        place: "",
    }
}

/// The row of a cell of `line`; none where nothing was written.
pub(super) fn of_cell(of: &str, line: &Line, runs: &[Measured], cell: Cell) -> Option<Row> {
    let of_cell = runs_of(line, runs, cell);
    let wrote = of_cell.iter().any(|run| run.outcome.written_bytes > 0);
    wrote.then(|| row(of, median_of(Number::Stalled, line, runs, cell)))
}

/// Those of a figure that is lines of `compare`, but for what its own `rows` have already.
pub(super) fn of_lines(lines: &[Line], rows: &[RowPlan], results: &[Vec<Measured>]) -> Vec<Row> {
    let is_there = |at: usize, engine: usize, workload: usize| {
        let mut stalled = rows
            .iter()
            .filter(|row| matches!(row.number, Number::Stalled));
        stalled.any(|row| (row.of.0, row.of.1, row.of.2) == (at, engine, workload))
    };
    let mut found = Vec::new();
    for (at, (line, runs)) in lines.iter().zip(results).enumerate() {
        for (engine, _) in line.engines.iter().enumerate() {
            for (workload, _) in line.workloads.iter().enumerate() {
                if !is_there(at, engine, workload) {
                    let cell = Cell(at, engine, workload);
                    found.extend(of_cell(&name(lines, cell), line, runs, cell));
                }
            }
        }
    }
    found
}

/// What ran in a cell, with what not all lines of the same engine and workload have.
fn name(lines: &[Line], cell: Cell) -> String {
    let line = &lines[cell.0];
    let (engine, workload) = (line.engines[cell.1], line.workloads[cell.2]);
    let twins = lines.iter().enumerate().filter(|(at, other)| {
        *at != cell.0 && other.engines.contains(&engine) && other.workloads.contains(&workload)
    });
    let twins: Vec<Vec<String>> = twins.map(|(_, other)| means(other)).collect();
    let mine = means(line);
    let is_common = |mean: &String| twins.iter().all(|twin| twin.contains(mean));
    let mut apart: Vec<String> = mine.iter().filter(|m| !is_common(m)).cloned().collect();
    if twins.contains(&mine) {
        apart.push(format!("line {}", cell.0 + 1));
    }
    match apart.is_empty() {
        true => format!("{workload}: {engine}"),
        false => format!("{workload}: {engine} ({})", apart.join(", ")),
    }
}

/// What a line runs with, one by one.
fn means(line: &Line) -> Vec<String> {
    let memory = format!("memory {} %", (line.memory_share * 1e4).round() / 100.0);
    let words = line.words.iter().map(|word| (*word).to_string());
    let options = line.options.lines().chain(line.sizes.lines());
    let options = options.map(|option| option.trim().to_string());
    let all = [memory].into_iter().chain(words).chain(options);
    all.filter(|mean| !mean.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figure::LINE;
    use super::*;

    #[test]
    fn a_run_is_named_by_what_no_other_of_its_engine_and_workload_has() {
        let line = |options, memory_share| Line {
            engines: &["mutant", "leveled"],
            workloads: &["ycsb-d"],
            options,
            memory_share,
            ..LINE
        };
        let lines = [line("", 0.08), line("a = 1\nb = 2", 0.08)];
        let named = |lines: &[Line], at| name(lines, Cell(at, 1, 0));
        assert_eq!(named(&lines[..1], 0), "ycsb-d: leveled");
        assert_eq!(named(&lines, 0), "ycsb-d: leveled");
        assert_eq!(named(&lines, 1), "ycsb-d: leveled (a = 1, b = 2)");
        let lines = [line("a = 1\nb = 2", 0.08), line("a = 1\nb = 3", 0.08)];
        assert_eq!(named(&lines, 1), "ycsb-d: leveled (b = 3)");
        let lines = [line("", 0.016), line("", 0.4), line("", 0.4)];
        assert_eq!(named(&lines, 0), "ycsb-d: leveled (memory 1.6 %)");
        let twins = [named(&lines[1..], 0), named(&lines[1..], 1)];
        assert_eq!(
            twins,
            ["ycsb-d: leveled (line 1)", "ycsb-d: leveled (line 2)"]
        );
    }
}
