//! What each of LogStore's optimisations is worth: the preset `logstore` whole, without each of the
//! four by itself, and without all of them (`logstore-unoptimised`, LS-UO). The paper has the last
//! alone.

use super::figure::{Cell, Figure, How, Line, Number, Paper, RowPlan, number, ratio};
use super::logstore::{BOTH, RECORDS};

/// The preset as it is, or with options that take something away.
const EACH: Line = Line {
    engines: &["logstore"],
    workloads: &["logstore-c", "logstore-a", "logstore-write-only"],
    warmup_seconds: 20.0,
    ..BOTH
};

const OWN: &str = "ours alone";

/// The rate of a line on one of the workloads, over that of the whole preset.
const fn rate(what: &'static str, line: usize, workload: usize) -> RowPlan {
    let (of, whole) = (Cell(line, 0, workload), Cell(0, 0, workload));
    ratio(what, of, whole, Paper::Nothing, OWN)
}

/// The same of merges, where half of the operations write.
const fn merges(what: &'static str, line: usize) -> RowPlan {
    let (of, whole) = (Cell(line, 0, 1), Some(Cell(0, 0, 1)));
    number(what, Number::Merges, of, whole, Paper::Nothing, OWN)
}

pub(super) const FIGURES: &[Figure] = &[Figure {
    name: "logstore-optimisations",
    says: "what each optimisation is worth, switched off by itself (the paper: all at once)",
    records: RECORDS,
    record_bytes: 1040,
    scale: 1000,
    how: How::Compared {
        lines: &[
            EACH,
            Line {
                options: "optimisations_off = [\"informed\"]",
                ..EACH
            },
            Line {
                options: "optimisations_off = [\"reverse\"]",
                ..EACH
            },
            Line {
                options: "optimisations_off = [\"deferred\"]",
                ..EACH
            },
            Line {
                options: "optimisations_off = [\"staging\"]",
                ..EACH
            },
            Line {
                engines: &["logstore-unoptimised"],
                ..EACH
            },
        ],
        rows: &[
            rate("reads, without informed compaction", 1, 0),
            rate("reads, without reverse compaction", 2, 0),
            rate("reads, without deferred compaction", 3, 0),
            rate("reads, without staging compaction", 4, 0),
            ratio(
                "reads, without all four",
                Cell(5, 0, 0),
                Cell(0, 0, 0),
                Paper::AtLeast(1.0 / 6.0),
                "VI-A: up to 6 times with them",
            ),
            rate("half writes, without informed compaction", 1, 1),
            rate("half writes, without reverse compaction", 2, 1),
            rate("half writes, without deferred compaction", 3, 1),
            rate("half writes, without staging compaction", 4, 1),
            rate("half writes, without all four", 5, 1),
            merges("merges of it, without informed compaction", 1),
            merges("merges of it, without reverse compaction", 2),
            merges("merges of it, without deferred compaction", 3),
            merges("merges of it, without staging compaction", 4),
            merges("merges of it, without all four", 5),
            rate("writes, without informed compaction", 1, 2),
            rate("writes, without reverse compaction", 2, 2),
            rate("writes, without deferred compaction", 3, 2),
            rate("writes, without staging compaction", 4, 2),
            ratio(
                "writes, without all four",
                Cell(5, 0, 2),
                Cell(0, 0, 2),
                Paper::Number(0.02),
                "VI-B: a drop by nearly 98 %",
            ),
        ],
    },
}];
