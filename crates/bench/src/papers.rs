//! `thermocline-bench papers`: the tables and figures of the five papers that
//! `compare` can repeat, scaled down, as data: the workloads, and the preset that
//! stands for the paper's system.
//!
//! The paper's own ratio is beside each where its text gives one. A preset that
//! does not exist yet is said to be missing, and nothing runs.

use clap::{Args, Parser};

use crate::compare::{self, CompareArgs};
use crate::memory::Failure;

/// The options of the subcommand.
#[derive(Args, Debug)]
pub(crate) struct PapersArgs {
    /// A table or figure of the list; without one, the list.
    name: Option<String>,
    /// Records, in place of the paper's millions.
    #[arg(long, default_value_t = 200_000)]
    records: u64,
    /// Options of `compare`, behind `--`.
    #[arg(last = true)]
    more: Vec<String>,
}

/// One table or figure.
struct Figure {
    name: &'static str,
    /// The preset of the paper's system.
    preset: &'static str,
    workloads: &'static str,
    /// What it shows, and what the paper's text says came out.
    says: &'static str,
}

/// What can be repeated with workloads alone. Figures about elasticity, several
/// machines or a target cost that moves are not among them.
const FIGURES: &[Figure] = &[
    Figure {
        name: "logstore-fig-6",
        preset: "logstore",
        workloads: "logstore-c",
        says: "reads by memory size (figures 6 and 7): run it under several --memory-mib",
    },
    Figure {
        name: "logstore-fig-8",
        preset: "logstore",
        workloads: "logstore-c",
        says: "reads by size of the fast tier: run it under several --fast-share",
    },
    Figure {
        name: "logstore-fig-9",
        preset: "logstore",
        workloads: "logstore-c:shift=60/0.9",
        says: "a distribution that changes; the paper reaches more than 6 times LevelDB on HDD",
    },
    Figure {
        name: "logstore-fig-10",
        preset: "logstore",
        workloads: "logstore-write-only",
        says: "writes only (figures 10 and 11)",
    },
    Figure {
        name: "logstore-fig-12",
        preset: "logstore",
        workloads: "logstore-b-90,logstore-b-10,logstore-a,logstore-a-rmw,logstore-e",
        says: "mixed loads (figures 12 and 13); read-heavy, the paper has more than 3.5 times \
               LevelDB on HDD",
    },
    Figure {
        name: "nova-fig-12",
        preset: "nova",
        workloads: "nova,nova:uniform",
        says: "one node; with skew and RW50 the paper has 34 times one LevelDB, 7 times 64 of \
               them; with SW50, 105 and 8 times",
    },
    Figure {
        name: "hyperdb-fig-8",
        preset: "hyperdb",
        workloads: "hyperdb",
        says: "YCSB: throughput, median and 99th percentile",
    },
    Figure {
        name: "hyperdb-fig-9",
        preset: "hyperdb",
        workloads: "hyperdb-a",
        says: "by value size and by skew: run it under several --value-bytes; from 128 to 16 bytes \
               RocksDB gains 27.1 % and HyperDB 24.5 %; towards a page HyperDB has 1.88 to 2.05 \
               times RocksDB",
    },
    Figure {
        name: "hyperdb-fig-11",
        preset: "hyperdb",
        workloads: "hyperdb-a:uniform",
        says: "bytes written and space used under a uniform load",
    },
    Figure {
        name: "mutant-fig-11",
        preset: "mutant",
        workloads: "ycsb-b,ycsb-d",
        says: "latency against cost; stands in for figures 10 to 13, whose trace is not published",
    },
    Figure {
        name: "mutant-fig-15",
        preset: "mutant",
        workloads: "ycsb-c",
        says: "metadata of tables on the fast tier",
    },
    Figure {
        name: "ohdb-table-2",
        preset: "ohdb",
        workloads: "ohdb",
        says: "fillrandom and readrandom with merges counted; the paper has over 4 times fewer \
               level compactions",
    },
];

/// `compare`'s options, to be read from words.
#[derive(Parser)]
#[command(name = "compare")]
struct Line {
    #[command(flatten)]
    args: CompareArgs,
}

/// Lists the figures, or runs one.
pub(crate) fn run(args: &PapersArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        for figure in FIGURES {
            println!("{:<16} {}{}", figure.name, figure.says, lacking(figure));
        }
        return Ok(());
    };
    let unknown = || format!("{name:?} is not in the list of `thermocline-bench papers`");
    let figure = FIGURES.iter().find(|figure| figure.name == name);
    let figure = figure.ok_or_else(|| Failure::Usage(unknown()))?;
    if !exists(figure.preset) {
        return Err(Failure::Run(format!("{name}{}", lacking(figure))));
    }
    println!("{name}: {}.", figure.says);
    let line = Line::try_parse_from(words(figure, args.records, &args.more));
    let line = line.map_err(|error| Failure::Usage(error.to_string()))?;
    compare::run(&line.args)
}

/// The words of `compare` for a figure.
fn words(figure: &Figure, records: u64, more: &[String]) -> Vec<String> {
    let engines = format!(
        "thermocline:{},thermocline:leveled,rocksdb/db-paths,leveldb/all-slow,leveldb/all-fast",
        figure.preset
    );
    let records = records.to_string();
    let words = [
        "compare",
        "--workloads",
        figure.workloads,
        "--engines",
        &engines,
        "--records",
        &records,
    ];
    let words = words.into_iter().map(String::from);
    words.chain(more.iter().cloned()).collect()
}

/// What is missing for a figure, in words.
fn lacking(figure: &Figure) -> String {
    match exists(figure.preset) {
        true => String::new(),
        false => format!(
            " [needs the preset {}, which does not exist yet]",
            figure.preset
        ),
    }
}

#[cfg(feature = "thermocline")]
fn exists(preset: &str) -> bool {
    let known = thermocline::presets();
    known.iter().any(|known| known.name == preset)
}

#[cfg(not(feature = "thermocline"))]
fn exists(_: &str) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix;

    #[test]
    fn every_figure_is_a_line_of_compare() {
        for figure in FIGURES {
            let line = Line::try_parse_from(words(figure, 1000, &["--quick".to_string()]));
            assert!(line.is_ok(), "{}", figure.name);
            for text in figure.workloads.split(',') {
                mix::parse(text).unwrap();
            }
        }
    }

    #[test]
    fn a_missing_preset_is_named() {
        let figure = Figure {
            name: "x",
            preset: "no-such",
            workloads: "ycsb-a",
            says: "",
        };
        assert!(lacking(&figure).contains("preset no-such"));
    }

    #[test]
    fn an_unknown_figure_is_wrong_input() {
        let args = PapersArgs {
            name: Some("fig-99".to_string()),
            records: 10,
            more: Vec::new(),
        };
        assert!(matches!(run(&args), Err(Failure::Usage(_))));
    }
}
