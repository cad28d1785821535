//! Nova-LSM (Huang, Ghandeharizadeh): of its section 8 what concerns one machine. LevelDB is our
//! `leveled` with one part on the same device, and the peers that the build has. Keys are not
//! hashed, values are of 1 KB, memory is 40 % of the data: 4 GB of memtables for 10 GB.

use super::figure::{
    Balance, Cell, Column, Figure, Grid, How, LINE, Line, Number, Paper, System, alone, number,
    ratio,
};

/// Records of section 8.2: 10 GB.
const RECORDS: u64 = 10_000_000;

/// Key and value.
const RECORD_BYTES: u64 = 1044;

const ALL: &[&str] = &["nova-rw50", "nova-sw50", "nova-w100"];

/// Memory as the paper's 4 GB of 10.
const LARGE: Line = Line {
    engines: &["nova/all-slow"],
    workloads: ALL,
    memory_share: 0.4,
    ..LINE
};

/// The same with one range: no part, no cut.
const ONE_RANGE: Line = Line {
    options: "partitions = 1",
    ..LARGE
};

/// The same with the part of section 4.2 that makes a memtable of few keys a new memtable
/// switched off, ...
const NOT_FOLDED: Line = Line {
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
    workloads: &["nova-w100"],
    ..LARGE
};

const WRITTEN: &[&str] = &["nova-rw50", "nova-w100"];

/// Both distributions, in the order of figure 12.
const BOTH: &[&str] = &[
    "nova-rw50",
    "nova-sw50",
    "nova-w100",
    "nova-rw50:uniform",
    "nova-sw50:uniform",
    "nova-w100:uniform",
];

/// Figure 12: many workloads, each a shorter time.
const BESIDE: Line = Line {
    workloads: BOTH,
    warmup_seconds: 3.0,
    seconds: 6.0,
    ..LARGE
};

/// Table 3: clients as few as can act at once.
const FEW: Line = Line {
    words: &["--clients=2"],
    ..LARGE
};

const MANY_STORES: &str = "64 stores on one machine, a driver has one";
const TUNED: &str = "tuned by trial, for the paper's machine";

/// `line` of what stands for LevelDB: `leveled` that makes no parts.
const fn whole(line: Line) -> Line {
    Line {
        engines: &["leveled/all-slow"],
        options: "partitions = 1",
        ..line
    }
}

const fn of(engines: &'static [&'static str], line: Line) -> Line {
    Line { engines, ..line }
}

const DEFAULT: &[&str] = &["leveled/all-slow"];
const LEVELDB: &[&str] = &["leveldb/all-slow"];
const ROCKSDB: &[&str] = &["rocksdb/all-slow"];

/// In the order of figure 12.
const BESIDE_SYSTEMS: &[System] = &[
    System::ran("LevelDB, as leveled of one part", whole(BESIDE)),
    System::ran("LevelDB, as the peer", of(LEVELDB, BESIDE)),
    System::not("LevelDB*", MANY_STORES),
    System::ran("RocksDB, as the peer", of(ROCKSDB, BESIDE)),
    System::not("RocksDB*", MANY_STORES),
    System::not("RocksDB-tuned", TUNED),
    System::ran("Nova-LSM", BESIDE),
    System::ran("leveled as it is by default", of(DEFAULT, BESIDE)),
];

/// In the order of table 3; one store stands for the 64 of LevelDB* and RocksDB*.
const FEW_SYSTEMS: &[System] = &[
    System::ran("LevelDB*, as leveled of one part", whole(FEW)),
    System::ran("LevelDB*, as one peer", of(LEVELDB, FEW)),
    System::ran("RocksDB*, as one peer", of(ROCKSDB, FEW)),
    System::not("RocksDB-tuned", TUNED),
    System::ran("Nova-LSM", FEW),
    System::ran("leveled as it is by default", of(DEFAULT, FEW)),
];

/// Of the paper's systems, LevelDB twice, a plot alone.
const PLOT: &[f64] = &[0.0; 7];

/// A column of figure 12a: rates over LevelDB's.
const fn rates(what: &'static str, workload: usize, paper: &'static [f64]) -> Column {
    Column {
        what,
        number: Number::Rate,
        workload,
        paper,
        otherwise: Paper::Plot,
        place: "figure 12a, 8.3.1",
    }
}

/// A column of table 3, in milliseconds.
const fn times(
    what: &'static str,
    number: Number,
    workload: usize,
    paper: &'static [f64],
) -> Column {
    Column {
        what,
        number,
        workload,
        paper,
        otherwise: Paper::Nothing,
        place: "table 3",
    }
}

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
                    memory_share: 0.016,
                    options: "partitions = 1",
                    ..LARGE
                },
                Line {
                    workloads: &["nova-w100:uniform"],
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
                alone(
                    "stalled share of the time, memory 1.6 %",
                    Number::Stalled,
                    Cell(0, 0, 0),
                    Paper::Plot,
                    "figure 1",
                ),
                alone(
                    "stalled share of the time, memory 40 %",
                    Number::Stalled,
                    Cell(1, 0, 0),
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
                alone(
                    "RW50, bytes to tables for each byte put, with",
                    Number::Rewritten,
                    Cell(0, 0, 0),
                    Paper::Plot,
                    "8.3.1",
                ),
                alone(
                    "RW50, the same without",
                    Number::Rewritten,
                    Cell(1, 0, 0),
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
        says: "one node beside LevelDB and RocksDB, with skew and without (12a): operations a second",
        records: RECORDS,
        record_bytes: RECORD_BYTES,
        scale: 20,
        how: How::Grid(Grid {
            systems: BESIDE_SYSTEMS,
            base: 0,
            relative: true,
            columns: &[
                // 34 times LevelDB and 7 times LevelDB*.
                rates("RW50", 0, &[1.0, 1.0, 34.0 / 7.0, 0.0, 0.0, 0.0, 34.0]),
                // 105 times LevelDB and 8 times LevelDB*.
                rates("SW50", 1, &[1.0, 1.0, 105.0 / 8.0, 0.0, 0.0, 0.0, 105.0]),
                rates("W100", 2, PLOT),
                rates("RW50 uniform", 3, PLOT),
                rates("SW50 uniform", 4, PLOT),
                rates("W100 uniform", 5, PLOT),
            ],
        }),
    },
    Figure {
        name: "nova-table-3",
        says: "response times under low load, Zipfian, in ms; the paper's of ten nodes",
        records: RECORDS,
        record_bytes: RECORD_BYTES,
        scale: 20,
        how: How::Grid(Grid {
            systems: FEW_SYSTEMS,
            base: 4,
            relative: false,
            columns: &[
                times(
                    "RW50 mean",
                    Number::MeanMs,
                    0,
                    &[57.0, 57.0, 60.0, 75.0, 9.0],
                ),
                times(
                    "RW50 p99",
                    Number::HighMs,
                    0,
                    &[586.0, 586.0, 630.0, 649.0, 167.0],
                ),
                times(
                    "SW50 mean",
                    Number::MeanMs,
                    1,
                    &[118.0, 118.0, 128.0, 139.0, 22.0],
                ),
                times(
                    "SW50 p99",
                    Number::HighMs,
                    1,
                    &[1060.0, 1060.0, 984.0, 1232.0, 386.0],
                ),
                times(
                    "W100 mean",
                    Number::MeanMs,
                    2,
                    &[5.11, 5.11, 3.97, 1.93, 0.46],
                ),
                times(
                    "W100 p99",
                    Number::HighMs,
                    2,
                    &[0.89, 0.89, 1.08, 1.02, 0.67],
                ),
            ],
        }),
    },
];
