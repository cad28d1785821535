//! Figures that are lines of `compare`.

use std::fs;

use clap::Parser;

use super::figure::{Cell, Figure, Line, Number, Row, RowPlan, missing, peer, preset};
use super::{Means, Outcome, stalled};
use crate::compare::{self, CompareArgs, Places};
use crate::failure::Failure;
use crate::report::compare::Measured;
use crate::scratch::Scratch;

/// Prices of plain directories: Mutant's, table 2.
const PRICES: &str = "0.528,0.045";

/// The least memory that `compare` takes, in MiB.
const MEMORY_MIB_MIN: u64 = 8;

/// `compare`'s options, to be read from words.
#[derive(Parser)]
#[command(name = "compare")]
struct Words {
    #[command(flatten)]
    args: CompareArgs,
}

/// Runs those of the lines whose engines are there, and makes the rows.
pub(super) fn run(
    figure: &'static Figure,
    lines: &[Line],
    rows: &[RowPlan],
    means: &Means<'_>,
) -> Result<Outcome, Failure> {
    let mut results = Vec::with_capacity(lines.len());
    for line in lines {
        results.push(measure(line, means)?);
    }
    let number =
        |number: Number, cell: Cell| median_of(number, &lines[cell.0], &results[cell.0], cell);
    let made = rows.iter().map(|plan| {
        let ours = match plan.over {
            None => number(plan.number, plan.of),
            Some(over) => number(plan.number, plan.of)
                .zip(number(plan.number, over))
                .map(|(ours, over)| ours / over),
        };
        let mut needed = plan.cells().map(|cell| lines[cell.0].engines[cell.1]);
        Row {
            what: plan.what.to_string(),
            ours: ours.filter(|number| number.is_finite()),
            lacking: needed.find_map(missing).map(|what| format!("needs {what}")),
            paper: plan.paper,
            place: plan.place,
        }
    });
    let made = made.chain(stalled::of_lines(lines, rows, &results));
    // Where they ran is the same for all lines.
    Outcome::new(figure, &lines[0], means, made.collect())
}

/// Runs what can be run of a line.
pub(super) fn measure(line: &Line, means: &Means<'_>) -> Result<Vec<Measured>, Failure> {
    let engines = there(line);
    if engines.is_empty() {
        return Ok(Vec::new());
    }
    let scratch = Scratch::new(&std::env::temp_dir())?;
    let file = scratch.path().join("options.toml");
    let args = arguments(line, means, Some(&file))?;
    fs::write(&file, options(line, args.memory_bytes(), means))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    compare::measure(&args)
}

/// The engines of a line that are there.
fn there(line: &Line) -> Vec<&'static str> {
    let engines = line.engines.iter().copied();
    engines.filter(|engine| missing(engine).is_none()).collect()
}

/// The options of `compare` for a line.
pub(super) fn arguments(
    line: &Line,
    means: &Means<'_>,
    file: Option<&std::path::Path>,
) -> Result<CompareArgs, Failure> {
    let at = file.map_or_else(String::new, |file| format!("@{}", file.display()));
    let engines: Vec<String> = there(line)
        .into_iter()
        .map(|engine| match (peer(engine), engine.split_once('/')) {
            (Some(_), _) => engine.to_string(),
            (None, Some((preset, layout))) => format!("thermocline:{preset}{at}/{layout}"),
            (None, None) => format!("thermocline:{engine}{at}"),
        })
        .collect();
    let data_bytes = means.records * means.record_bytes;
    let memory = (line.memory_share * data_bytes as f64 / f64::from(1 << 20)) as u64;
    let longer = means.longer(line);
    let words = [
        "compare".to_string(),
        format!("--engines={}", engines.join(",")),
        format!("--workloads={}", line.workloads.join(",")),
        format!("--records={}", means.records),
        format!("--memory-mib={}", memory.max(MEMORY_MIB_MIN)),
        format!("--warmup={}", line.warmup_seconds * longer),
        format!("--seconds={}", line.seconds * longer),
        "--repeat=1".to_string(),
        format!("--prices={PRICES}"),
        "--direct-reads".to_string(),
    ];
    // What is given last counts, so that the operator has the last word.
    let more = line.words.iter().map(|word| (*word).to_string());
    let words: Vec<String> = words
        .into_iter()
        .chain(more)
        .chain(means.more.iter().cloned())
        .collect();
    let parsed = Words::try_parse_from(last_of_each(words));
    let parsed = parsed.map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(parsed.args)
}

/// Of words that begin with the same `--name=` the last.
fn last_of_each(words: Vec<String>) -> Vec<String> {
    let name = |word: &str| match word.strip_prefix("--") {
        Some(rest) => rest.split('=').next().map(str::to_string),
        None => None,
    };
    let mut kept: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        if let Some(mine) = name(&word) {
            kept.retain(|old| name(old).as_ref() != Some(&mine));
        }
        kept.push(word);
    }
    kept
}

/// Where the lines of a figure run, in words, and whether that is emulated.
pub(super) fn place(line: &Line, means: &Means<'_>) -> Result<(String, bool), Failure> {
    let places = Places::new(&arguments(line, means, None)?).map_err(Failure::Usage)?;
    Ok((places.describe(), places.rig().is_some()))
}

/// Thermocline's options: its sizes in proportion to the data.
pub(super) fn options(line: &Line, memory_bytes: u64, means: &Means<'_>) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    let data_bytes = means.records * means.record_bytes;
    let table_bytes = (data_bytes / 160).clamp(64 * KIB, 32 * MIB);
    let first_level_bytes = (data_bytes / 16).clamp(256 * KIB, 64 * MIB);
    let log_segment_bytes = (memory_bytes / 8).clamp(MIB, 32 * MIB);
    let sizes = [
        ("table_bytes", table_bytes),
        ("first_level_bytes", first_level_bytes),
        ("log_segment_bytes", log_segment_bytes),
    ];
    let mut text = format!("{}\n{}\n", line.options, line.sizes);
    for (name, bytes) in sizes {
        // What a line says itself stands.
        if !line.sizes.contains(name) {
            text.push_str(&format!("{name} = {bytes}\n"));
        }
    }
    text
}

/// A number of the runs of a cell.
pub(super) fn median_of(number: Number, line: &Line, runs: &[Measured], cell: Cell) -> Option<f64> {
    let of = runs_of(line, runs, cell);
    median(of.into_iter().map(|run| number.of(run)))
}

/// The runs of a cell.
pub(super) fn runs_of<'a>(line: &Line, runs: &'a [Measured], cell: Cell) -> Vec<&'a Measured> {
    let Cell(_, engine, workload) = cell;
    let engine = line.engines[engine];
    let layout = match engine.split_once('/') {
        Some((_, layout)) => format!("/{layout}"),
        None => "/tiers".to_string(),
    };
    let is = |run: &&Measured| {
        let same = match preset(engine) {
            Some(_) => {
                let named = run.contender.split(['@', '/', ':']).nth(1);
                named == preset(engine) && ends_as(&run.contender, &layout)
            }
            None => run.contender == engine,
        };
        same && run.workload == line.workloads[workload]
    };
    runs.iter().filter(is).collect()
}

/// Whether a contender's name ends with a layout; the usual one is left out of it.
fn ends_as(contender: &str, layout: &str) -> bool {
    let named = ["/all-fast", "/all-slow"];
    match named.contains(&layout) {
        true => contender.ends_with(layout),
        false => !named.iter().any(|other| contender.ends_with(other)),
    }
}

/// The middle one; none if one is missing, or there is none.
fn median(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::super::figure::{How, Ran};
    use super::super::figures;
    use super::*;
    use crate::mix;

    #[test]
    fn every_line_is_a_line_of_compare_and_every_cell_is_there() {
        let means = Means {
            records: 1000,
            record_bytes: 100,
            seconds: Some(1.0),
            more: &[],
        };
        let check = |line: &Line, name: &str| {
            assert!(arguments(line, &means, None).is_ok(), "{name}");
            for workload in line.workloads {
                assert_eq!(mix::parse(workload).unwrap().len(), 1, "{workload}");
            }
        };
        for figure in figures() {
            let (lines, rows) = match &figure.how {
                How::Compared { lines, rows } => (lines, rows),
                How::Grid(grid) => {
                    grid.lines().for_each(|line| check(line, figure.name));
                    let workloads = grid.lines().map(|line| line.workloads.len());
                    let least = workloads.min().unwrap();
                    for column in grid.columns {
                        assert!(column.workload < least, "{}", figure.name);
                        let numbers = column.paper.len();
                        assert!(numbers <= grid.systems.len(), "{}", figure.name);
                    }
                    assert!(grid.base < grid.systems.len(), "{}", figure.name);
                    continue;
                }
                _ => continue,
            };
            lines.iter().for_each(|line| check(line, figure.name));
            for cell in rows.iter().flat_map(RowPlan::cells) {
                let line = &lines[cell.0];
                assert!(cell.1 < line.engines.len(), "{}", figure.name);
                assert!(cell.2 < line.workloads.len(), "{}", figure.name);
            }
        }
    }

    /// `leveled` cuts itself into parts since it was made to; what stood for a LevelDB then had
    /// them, and the sizes of a hundredth stood beside a four-hundredth of the entries.
    #[test]
    fn what_stands_for_leveldb_has_one_part_and_ohdb_is_of_the_size_that_its_sizes_are() {
        for figure in figures() {
            let How::Grid(grid) = &figure.how else {
                continue;
            };
            for system in grid.systems {
                let Ran::Line(line) = system.ran else {
                    continue;
                };
                let ours = peer(line.engines[0]).is_none();
                let is_baseline = ["HDB", "HyperLevelDB"].contains(&system.name)
                    || system.name.starts_with("LevelDB");
                assert_eq!(
                    line.options.contains("partitions = 1"),
                    ours && (is_baseline || system.name == "OHDB-2DC"),
                    "{}",
                    system.name
                );
                if line.sizes.contains("table_bytes = 83886\n") {
                    assert_eq!((8 << 20) / 83_886, figure.scale, "{}", figure.name);
                }
            }
        }
    }

    #[test]
    fn the_last_word_counts() {
        let words = ["compare", "--seconds=1", "--clustered", "--seconds=2"];
        let kept = last_of_each(words.map(String::from).to_vec());
        assert_eq!(kept, ["compare", "--clustered", "--seconds=2"]);
    }

    #[test]
    fn a_wrong_option_behind_the_dashes_is_wrong_input() {
        let more = ["--no-such-option".to_string()];
        let means = Means {
            records: 1000,
            record_bytes: 100,
            seconds: None,
            more: &more,
        };
        let line = Line {
            engines: &["leveled"],
            workloads: &["ycsb-c"],
            ..super::super::figure::LINE
        };
        assert!(matches!(
            arguments(&line, &means, None),
            Err(Failure::Usage(_))
        ));
    }
}
