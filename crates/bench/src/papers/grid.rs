//! Figures that are systems against what is measured of them, all over one system.

use std::collections::BTreeSet;

use super::compared::{measure, median_of};
use super::figure::{Cell, Column, Figure, Grid, LINE, Line, Paper, Ran, Row, missing};
use super::{Means, Outcome, stalled};
use crate::failure::Failure;
use crate::report::compare::Measured;

/// Runs the systems that are there, and makes a row of each in each column.
pub(super) fn run(
    figure: &'static Figure,
    grid: &Grid,
    means: &Means<'_>,
) -> Result<Outcome, Failure> {
    let mut results = Vec::with_capacity(grid.systems.len());
    for system in grid.systems {
        results.push(match &system.ran {
            Ran::Line(line) => Some((line, measure(line, means)?)),
            Ran::Not(_) => None,
        });
    }
    // Where they ran is the same for all.
    let first = grid.lines().next().unwrap_or(&LINE);
    let mut rows = rows(grid, &results);
    rows.extend(stalls(grid, &results));
    Outcome::new(figure, first, means, rows)
}

/// Of each workload that writes, which share of the time a writer of each system waited.
fn stalls(grid: &Grid, results: &[Option<(&Line, Vec<Measured>)>]) -> Vec<Row> {
    let workloads: BTreeSet<usize> = grid.columns.iter().map(|c| c.workload).collect();
    let mut rows = Vec::new();
    for workload in workloads {
        for (system, result) in grid.systems.iter().zip(results) {
            let Some((line, runs)) = result else {
                continue;
            };
            let name = line.workloads[workload];
            let of = format!("{name}: {}{}", system.name, system.size);
            rows.extend(stalled::of_cell(&of, line, runs, Cell(0, 0, workload)));
        }
    }
    rows
}

/// The rows, column by column: the number of the system that all are over, then that of each
/// other over it.
fn rows(grid: &Grid, results: &[Option<(&Line, Vec<Measured>)>]) -> Vec<Row> {
    let others = (0..grid.systems.len()).filter(|at| *at != grid.base);
    let order: Vec<usize> = [grid.base].into_iter().chain(others).collect();
    let mut rows = Vec::new();
    for column in grid.columns {
        let number = |at: usize| {
            let (line, runs) = results[at].as_ref()?;
            median_of(column.number, line, runs, Cell(0, 0, column.workload))
        };
        let base = number(grid.base);
        for &at in &order {
            let system = &grid.systems[at];
            let name = format!("{}: {}{}", column.what, system.name, system.size);
            let (what, ours) = match at == grid.base {
                true => (name, base),
                false => {
                    let ours = number(at).zip(base).map(|(ours, base)| ours / base);
                    (format!("{name} over it"), ours)
                }
            };
            rows.push(Row {
                what,
                ours: ours.filter(|number| number.is_finite()),
                lacking: match &system.ran {
                    Ran::Not(why) => Some(format!("[not repeated: {why}]")),
                    Ran::Line(line) => missing(line.engines[0]).map(|what| format!("needs {what}")),
                },
                paper: paper(grid, column, at),
                place: column.place,
            });
        }
    }
    rows
}

/// What the paper has of a system in a column.
fn paper(grid: &Grid, column: &Column, at: usize) -> Paper {
    let of = |at: usize| column.paper.get(at).copied();
    match (of(at), of(grid.base)) {
        (None, _) => Paper::Nothing,
        (Some(ours), Some(base)) if ours > 0.0 && base > 0.0 => match at == grid.base {
            true if grid.relative => column.otherwise,
            true => Paper::Number(ours),
            false if grid.relative => Paper::Number(ours),
            false => Paper::Number(ours / base),
        },
        _ => column.otherwise,
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::{Number, System};
    use super::*;

    const LEVELED: Line = Line {
        engines: &["leveled"],
        ..LINE
    };

    const SYSTEMS: &[System] = &[
        System::not("other", "no reason"),
        System::ran("base", LEVELED).of(" 1 MB"),
    ];

    const GRID: Grid = Grid {
        systems: SYSTEMS,
        base: 1,
        relative: false,
        columns: &[
            Column {
                what: "merges",
                number: Number::Merges,
                workload: 0,
                paper: &[2.0, 8.0],
                otherwise: Paper::Plot,
                place: "table",
            },
            Column {
                what: "rate",
                number: Number::Rate,
                workload: 0,
                paper: &[0.0, 0.0],
                otherwise: Paper::Plot,
                place: "figure",
            },
        ],
    };

    #[test]
    fn a_system_stands_over_the_base_and_the_base_by_itself() {
        let rows = rows(&GRID, &[None, None]);
        let shown: Vec<_> = rows.iter().map(|r| (r.what.as_str(), r.paper)).collect();
        assert_eq!(
            shown,
            [
                ("merges: base 1 MB", Paper::Number(8.0)),
                ("merges: other over it", Paper::Number(0.25)),
                ("rate: base 1 MB", Paper::Plot),
                ("rate: other over it", Paper::Plot),
            ]
        );
        assert_eq!(
            rows[1].lacking.as_deref(),
            Some("[not repeated: no reason]")
        );
        let relative = Grid {
            relative: true,
            ..GRID
        };
        let of = |at| paper(&relative, &relative.columns[0], at);
        assert_eq!((of(1), of(0)), (Paper::Plot, Paper::Number(2.0)));
        assert_eq!(of(2), Paper::Nothing);
    }
}
