//! Nova-LSM (Huang, Ghandeharizadeh): of its section 8 what concerns one machine.
//! LevelDB is our `leveled` on the same device. Keys are not hashed, values are of
//! 1 KB, memory is 40 % of the data: 4 GB of memtables for 10 GB.

use super::figure::{Balance, Cell, Figure, How, LINE, Line, Number, Paper, number, ratio};

/// Records of section 8.2: 10 GB.
const RECORDS: u64 = 10_000_000;

/// Key and value.
const RECORD_BYTES: u64 = 1044;

const ALL: &[&str] = &["nova-rw50", "nova-sw50", "nova-w100"];

/// Memory as the paper's 4 GB of 10.
const LARGE: Line = Line {
    engines: &["nova/all-slow", "leveled/all-slow"],
    workloads: ALL,
    memory_share: 0.4,
    ..LINE
};

/// The same with one range: no part, no cut.
const ONE_RANGE: Line = Line {
    engines: &["nova/all-slow"],
    options: "partitions = 1",
    ..LARGE
};

/// The same with the part of section 4.2 that makes a memtable of few keys a new memtable
/// switched off, ...
const NOT_FOLDED: Line = Line {
    engines: &["nova/all-slow"],
    workloads: WRITTEN,
    options: "fold_keys_max = 0",
    ..LARGE
};

/// ... and with all of it: what flushes write is what memtables hold.
const ALL_VERSIONS: Line = Line {
    options: "fold_keys_max = 0\nflush_drops_versions = false",
    ..NOT_FOLDED
};

/// Writes alone, Zipfian.
const WRITES: Line = Line {
    engines: &["nova/all-slow"],
    workloads: &["nova-w100"],
    ..LARGE
};

const WRITTEN: &[&str] = &["nova-rw50", "nova-w100"];

const UNIFORM: &[&str] = &[
    "nova-rw50:uniform",
    "nova-sw50:uniform",
    "nova-w100:uniform",
];

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "nova-fig-1",
        says: "writes with little and with much memory (i and iii: one storage component)",
        records: RECORDS,
        record_bytes: RECORD_BYTES,
        scale: 20,
        how: How::Compared {
            lines: &[
                Line {
                    workloads: &["nova-w100:uniform"],
                    engines: &["nova/all-slow"],
                    memory_share: 0.016,
                    options: "partitions = 1",
                    ..LARGE
                },
                Line {
                    workloads: &["nova-w100:uniform"],
                    engines: &["nova/all-slow"],
                    ..LARGE
                },
            ],
            rows: &[
                ratio(
                    "writes, memory 40 % over 1.6 % (paper 0.3 %)",
                    Cell(1, 0, 0),
                    Cell(0, 0, 0),
                    Paper::Number(5.6),
                    "1: 50,000 / 9,000",
                ),
                number(
                    "stalled share of the time, memory 1.6 %",
                    Number::Stalled,
                    Cell(0, 0, 0),
                    None,
                    Paper::Plot,
                    "figure 1",
                ),
                number(
                    "stalled share of the time, memory 40 %",
                    Number::Stalled,
                    Cell(1, 0, 0),
                    None,
                    Paper::Plot,
                    "figure 1",
                ),
            ],
        },
    },
    Figure {
        name: "nova-8.2.1",
        says: "how evenly parts share out the writes, reorganisations and duplicates",
        records: RECORDS,
        record_bytes: RECORD_BYTES,
        scale: 20,
        how: How::Balance(Balance {
            uniform: Line {
                workloads: &["nova-w100:uniform"],
                ..WRITES
            },
            zipfian: WRITES,
            parts: &[2, 8, 64],
        }),
    },
    Figure {
        name: "nova-dranges",
        says: "with dynamic ranges and without, Zipfian (the first of section 8's main lessons)",
        records: RECORDS,
        record_bytes: RECORD_BYTES,
        scale: 20,
        how: How::Compared {
            lines: &[LARGE, ONE_RANGE],
            rows: &[
                ratio(
                    "RW50, with over without",
                    Cell(0, 0, 0),
                    Cell(1, 0, 0),
                    Paper::Between(3.0, 26.0),
                    "8: Dranges enhance throughput 3x to 26x",
                ),
                ratio(
                    "SW50, with over without",
                    Cell(0, 0, 1),
                    Cell(1, 0, 1),
                    Paper::Between(3.0, 26.0),
                    "8",
                ),
                ratio(
                    "W100, with over without",
                    Cell(0, 0, 2),
                    Cell(1, 0, 2),
                    Paper::Between(3.0, 26.0),
                    "8",
                ),
                number(
                    "RW50, bytes to tables for each byte put, with",
                    Number::Rewritten,
                    Cell(0, 0, 0),
                    None,
                    Paper::Plot,
                    "8.3.1",
                ),
                number(
                    "RW50, the same without",
                    Number::Rewritten,
                    Cell(1, 0, 0),
                    None,
                    Paper::Plot,
                    "8.3.1",
                ),
            ],
        },
    },
    Figure {
        name: "nova-fold",
        says: "bytes flushed for each byte put, with section 4.2 and without, Zipfian (8.3.1)",
        records: RECORDS,
        record_bytes: RECORD_BYTES,
        scale: 20,
        how: How::Compared {
            lines: &[
                Line {
                    engines: &["nova/all-slow"],
                    workloads: WRITTEN,
                    ..LARGE
                },
                NOT_FOLDED,
                ALL_VERSIONS,
            ],
            rows: &[
                number(
                    "RW50, flushed with 4.2 over without",
                    Number::Flushed,
                    Cell(0, 0, 0),
                    Some(Cell(2, 0, 0)),
                    Paper::Number(0.35),
                    "8.3.1: Dranges write 65 % less to disk than LevelDB",
                ),
                number(
                    "W100, the same",
                    Number::Flushed,
                    Cell(0, 0, 1),
                    Some(Cell(2, 0, 1)),
                    Paper::Number(0.35),
                    "8.3.1",
                ),
                number(
                    "RW50, with 4.2 over the latest versions alone",
                    Number::Flushed,
                    Cell(0, 0, 0),
                    Some(Cell(1, 0, 0)),
                    Paper::Plot,
                    "4.2",
                ),
                number(
                    "W100, the same",
                    Number::Flushed,
                    Cell(0, 0, 1),
                    Some(Cell(1, 0, 1)),
                    Paper::Plot,
                    "4.2",
                ),
            ],
        },
    },
    Figure {
        name: "nova-fig-12",
        says: "one node beside LevelDB, with skew and without (12a)",
        records: RECORDS,
        record_bytes: RECORD_BYTES,
        scale: 20,
        how: How::Compared {
            lines: &[
                LARGE,
                Line {
                    workloads: UNIFORM,
                    ..LARGE
                },
            ],
            rows: &[
                ratio(
                    "RW50, Nova over LevelDB",
                    Cell(0, 0, 0),
                    Cell(0, 1, 0),
                    Paper::Number(34.0),
                    "8.3.1",
                ),
                ratio(
                    "SW50, Nova over LevelDB",
                    Cell(0, 0, 1),
                    Cell(0, 1, 1),
                    Paper::Number(105.0),
                    "8.3.1",
                ),
                ratio(
                    "W100, Nova over LevelDB",
                    Cell(0, 0, 2),
                    Cell(0, 1, 2),
                    Paper::Plot,
                    "8.3.1",
                ),
                ratio(
                    "RW50 uniform, Nova over LevelDB",
                    Cell(1, 0, 0),
                    Cell(1, 1, 0),
                    Paper::Plot,
                    "8.3.1: comparable",
                ),
                ratio(
                    "SW50 uniform, Nova over LevelDB",
                    Cell(1, 0, 1),
                    Cell(1, 1, 1),
                    Paper::Plot,
                    "8.3.1: lower, for the range index",
                ),
                ratio(
                    "W100 uniform, Nova over LevelDB",
                    Cell(1, 0, 2),
                    Cell(1, 1, 2),
                    Paper::Plot,
                    "8.3.1: comparable",
                ),
            ],
        },
    },
    Figure {
        name: "nova-table-3",
        says: "response times under low load, Zipfian; means of a closed loop",
        records: RECORDS,
        record_bytes: RECORD_BYTES,
        scale: 20,
        how: How::Compared {
            lines: &[Line {
                words: &["--clients=2"],
                ..LARGE
            }],
            rows: &[
                ratio(
                    "RW50, mean, LevelDB over Nova",
                    Cell(0, 0, 0),
                    Cell(0, 1, 0),
                    Paper::Number(6.3),
                    "table 3: 57 / 9 ms, ten nodes",
                ),
                ratio(
                    "SW50, mean, LevelDB over Nova",
                    Cell(0, 0, 1),
                    Cell(0, 1, 1),
                    Paper::Number(5.4),
                    "table 3: 118 / 22 ms",
                ),
                ratio(
                    "W100, mean, LevelDB over Nova",
                    Cell(0, 0, 2),
                    Cell(0, 1, 2),
                    Paper::Number(11.1),
                    "table 3: 5.11 / 0.46 ms",
                ),
                number(
                    "RW50, p99 of reads, LevelDB over Nova",
                    Number::High("reads"),
                    Cell(0, 1, 0),
                    Some(Cell(0, 0, 0)),
                    Paper::Number(3.5),
                    "table 3: 586 / 167 ms, all operations",
                ),
                number(
                    "W100, p99, LevelDB over Nova",
                    Number::High("writes"),
                    Cell(0, 1, 2),
                    Some(Cell(0, 0, 2)),
                    Paper::Number(1.33),
                    "table 3: 0.89 / 0.67 ms",
                ),
            ],
        },
    },
];
