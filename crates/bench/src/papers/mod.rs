//! `thermocline-bench papers`: the tables and figures of the five papers that can
//! be repeated here, each a subcommand that runs them many times smaller and prints
//! our ratio beside the paper's.
//!
//! [`figure`] says what a figure is: lines of `compare` or targets that change, and the numbers
//! made of their results. [`logstore`], [`mutant`], [`nova`], [`ohdb`] and [`hyperdb`] list them,
//! [`compared`], [`grid`], [`targets`], [`balance`] and [`predicted`] run them. What needs a preset
//! that does not exist says so; the rest of the figure runs. The paper's numbers are those of its
//! text and tables: of what stands in a plot alone there is none.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::engine::EngineKind;
use crate::failure::Failure;

mod balance;
mod compared;
mod figure;
mod grid;
mod hyperdb;
mod logstore;
mod mutant;
mod nova;
mod ohdb;
mod optimisations;
mod predicted;
mod stalled;
mod targets;
mod watched;

use figure::{Figure, How, Line, Row};

/// The options of the subcommand.
#[derive(Args, Debug)]
#[command(after_help = "\
Without a name: the list. With one: runs it on the rig that is up (`thermocline-bench
tiers up`), else on plain directories, and prints our numbers beside the paper's.
Options of `compare` go behind `--`: papers logstore-fig-6 -- --fast DIR --slow DIR.")]
pub(crate) struct PapersArgs {
    /// A table or figure of the list, or the name of a paper for all of its
    name: Option<String>,
    /// How many times smaller than the paper's the store is [default: see the list]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    scale: Option<u64>,
    /// Seconds of each measurement; warm-ups change with them [default: each
    /// figure's own]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Also append the numbers to this file, a line of JSON for each figure
    #[arg(long)]
    json: Option<PathBuf>,
    /// Options of `compare`, behind `--`
    #[arg(last = true)]
    more: Vec<String>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "{text:?} is not a number of seconds from 0.1 to 86400"
        )),
    }
}

/// How a figure is run.
struct Means<'a> {
    /// Records in the store.
    records: u64,
    /// Bytes of each.
    record_bytes: u64,
    seconds: Option<f64>,
    more: &'a [String],
}

impl Means<'_> {
    /// How many times longer than usual `line` is measured and warmed up.
    fn longer(&self, line: &Line) -> f64 {
        self.seconds.map_or(1.0, |seconds| seconds / line.seconds)
    }
}

/// What a figure gave.
#[derive(Serialize)]
struct Outcome {
    figure: &'static str,
    records: u64,
    /// Where it ran, in words.
    tiers: String,
    emulated: bool,
    rows: Vec<Row>,
}

impl Outcome {
    /// Of a figure that ran where `line` does.
    fn new(
        figure: &'static Figure,
        line: &Line,
        means: &Means<'_>,
        rows: Vec<Row>,
    ) -> Result<Outcome, Failure> {
        let (tiers, emulated) = compared::place(line, means)?;
        Ok(Outcome {
            figure: figure.name,
            records: means.records,
            tiers,
            emulated,
            rows,
        })
    }
}

/// The fewest records that a figure is run with.
const RECORDS_MIN: u64 = 200;

/// All figures, paper by paper.
fn figures() -> impl Iterator<Item = &'static Figure> {
    let papers = [
        logstore::FIGURES,
        optimisations::FIGURES,
        mutant::FIGURES,
        nova::FIGURES,
        ohdb::FIGURES,
        hyperdb::FIGURES,
    ];
    papers.into_iter().flatten()
}

/// Lists the figures, or runs them.
pub(crate) fn run(args: &PapersArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        list();
        return Ok(());
    };
    let whole = format!("{name}-");
    let chosen: Vec<&Figure> = figures()
        .filter(|figure| figure.name == name || figure.name.starts_with(&whole))
        .collect();
    if chosen.is_empty() {
        return Err(Failure::Usage(format!(
            "{name:?} is not in the list of `thermocline-bench papers`"
        )));
    }
    let alone = chosen.len() == 1;
    let mut lost = Vec::new();
    for figure in chosen {
        match show(figure, args) {
            // Of a whole paper the others are run all the same.
            Err(Failure::Run(words)) if !alone => {
                println!("{words}\n");
                lost.push(figure.name);
            }
            other => other?,
        }
    }
    match lost.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(format!("without result: {}", lost.join(", ")))),
    }
}

fn list() {
    for figure in figures() {
        let missing = figure.missing();
        let mut notes = String::new();
        if let How::Not(why) = figure.how {
            notes.push_str(&format!(" [not repeated: {why}]"));
        } else {
            notes.push_str(&format!(" (--scale {})", figure.scale));
        }
        if !missing.is_empty() {
            notes.push_str(&format!(
                " [needs {}{}]",
                missing.join(", and "),
                if figure.runs() { "; the rest runs" } else { "" }
            ));
        }
        println!("{:<18} {}{notes}", figure.name, figure.says);
        for (system, why) in figure.not_repeated() {
            println!("{:<18} [not repeated of it: {system}: {why}]", "");
        }
    }
}

/// Runs one figure and prints what came of it.
fn show(figure: &'static Figure, args: &PapersArgs) -> Result<(), Failure> {
    let name = figure.name;
    if let How::Not(why) = figure.how {
        return Err(Failure::Run(format!("{name} is not repeated here: {why}")));
    }
    if !figure.runs() {
        return Err(Failure::Run(format!(
            "{name} needs {}",
            figure.missing().join(", and ")
        )));
    }
    let scale = args.scale.unwrap_or(figure.scale);
    let means = Means {
        records: (figure.records / scale).max(RECORDS_MIN),
        record_bytes: figure.record_bytes,
        seconds: args.seconds,
        more: &args.more,
    };
    println!(
        "{name}: {}.\n{} records, {} in the paper.",
        figure.says, means.records, figure.records
    );
    let outcome = outcome(figure, &means)?;
    println!(
        "{}\n{}",
        outcome.tiers.trim_end(),
        figure::table(&outcome.rows)
    );
    for caveat in figure.peers().filter_map(EngineKind::caveat) {
        println!("{caveat}.");
    }
    if let Some(path) = &args.json {
        let failed =
            |error: &dyn std::fmt::Display| Failure::Run(format!("{}: {error}", path.display()));
        let mut line = serde_json::to_vec(&outcome).map_err(|error| failed(&error))?;
        line.push(b'\n');
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(&line))
            .map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn outcome(figure: &'static Figure, means: &Means<'_>) -> Result<Outcome, Failure> {
    match &figure.how {
        How::Compared { lines, rows } => compared::run(figure, lines, rows, means),
        How::Targets(plan) => targets::run(figure, plan, means),
        How::Grid(grid) => grid::run(figure, grid, means),
        How::Balance(plan) => balance::run(figure, plan, means),
        How::Predicted(plan) => predicted::run(figure, plan, means),
        How::Not(why) => Err(Failure::Run((*why).to_string())),
    }
}

fn exists(preset: &str) -> bool {
    let known = thermocline::presets();
    known.iter().any(|known| known.name == preset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_all_different_and_begin_with_their_paper() {
        let mut names: Vec<&str> = figures().map(|figure| figure.name).collect();
        let papers = ["logstore-", "mutant-", "ohdb-", "nova-", "hyperdb-"];
        for name in &names {
            assert!(papers.iter().any(|paper| name.starts_with(paper)), "{name}");
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn the_figures_that_were_asked_for_are_there() {
        for name in [
            "logstore-fig-6",
            "logstore-fig-8",
            "logstore-fig-9",
            "logstore-fig-10",
            "logstore-optimisations",
            "logstore-fig-12",
            "logstore-fig-14",
            "logstore-table-4",
            "logstore-table-5",
            "mutant-fig-10",
            "mutant-fig-11",
            "mutant-fig-13",
            "mutant-fig-14",
            "mutant-fig-16",
            "mutant-fig-17",
            "nova-fig-1",
            "nova-8.2.1",
            "nova-fig-12",
            "nova-table-3",
            "ohdb-table-1",
            "ohdb-table-2-hdd",
            "ohdb-table-2-ssd",
            "ohdb-table-3",
            "ohdb-table-4",
            "ohdb-table-5",
            "ohdb-table-6",
            "ohdb-fig-2",
            "ohdb-fig-3",
            "ohdb-fig-4",
            "ohdb-fig-5",
        ] {
            assert!(figures().any(|figure| figure.name == name), "{name}");
        }
    }

    #[test]
    fn an_unknown_figure_is_wrong_input() {
        let args = PapersArgs {
            name: Some("fig-99".to_string()),
            scale: None,
            seconds: None,
            json: None,
            more: Vec::new(),
        };
        assert!(matches!(run(&args), Err(Failure::Usage(_))));
    }
}
