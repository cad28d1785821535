//! HyperDB: what its baseline does, and what waits for its preset. RocksDB is our `leveled`.

use super::figure::{Cell, Figure, How, LINE, Line, Number, Paper, number, ratio};

/// HyperDB, section 4.2: 100 GB of 8 + 128 bytes.
const RECORDS: u64 = 700_000_000;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "hyperdb-fig-8",
        says: "YCSB: rates beside RocksDB",
        records: RECORDS,
        record_bytes: 136,
        scale: 1000,
        how: How::Compared {
            lines: &[Line {
                engines: &["hyperdb", "leveled"],
                workloads: &["hyperdb-a", "hyperdb-b", "hyperdb-c"],
                words: &["--fast-share=16"],
                ..LINE
            }],
            rows: &[
                ratio(
                    "A, HyperDB over RocksDB",
                    Cell(0, 0, 0),
                    Cell(0, 1, 0),
                    Paper::Number(2.81),
                    "4.2: A and F on average",
                ),
                ratio(
                    "B, HyperDB over RocksDB",
                    Cell(0, 0, 1),
                    Cell(0, 1, 1),
                    Paper::Between(2.18, 2.27),
                    "4.2",
                ),
                ratio(
                    "C, HyperDB over RocksDB",
                    Cell(0, 0, 2),
                    Cell(0, 1, 2),
                    Paper::Between(2.18, 2.27),
                    "4.2",
                ),
            ],
        },
    },
    Figure {
        name: "hyperdb-fig-9",
        says: "YCSB A with values of 16 and of 128 bytes (9b), and by size of the fast tier (9c)",
        records: RECORDS,
        record_bytes: 136,
        scale: 1000,
        how: How::Compared {
            lines: &[
                Line {
                    engines: &["hyperdb", "leveled"],
                    workloads: &["hyperdb-a"],
                    words: &["--fast-share=16", "--value-bytes=16"],
                    ..LINE
                },
                Line {
                    engines: &["hyperdb", "leveled"],
                    workloads: &["hyperdb-a"],
                    words: &["--fast-share=16"],
                    ..LINE
                },
                Line {
                    engines: &["hyperdb", "leveled"],
                    workloads: &["hyperdb-a"],
                    words: &["--fast-share=1"],
                    ..LINE
                },
            ],
            rows: &[
                ratio(
                    "RocksDB, 16 over 128 bytes",
                    Cell(0, 1, 0),
                    Cell(1, 1, 0),
                    Paper::Number(1.271),
                    "4.2",
                ),
                ratio(
                    "HyperDB, 16 over 128 bytes",
                    Cell(0, 0, 0),
                    Cell(1, 0, 0),
                    Paper::Number(1.245),
                    "4.2",
                ),
                ratio(
                    "RocksDB, 16 % over 1 % fast",
                    Cell(1, 1, 0),
                    Cell(2, 1, 0),
                    Paper::Plot,
                    "4.2: no significant improvement",
                ),
                ratio(
                    "HyperDB, 16 % over 1 % fast",
                    Cell(1, 0, 0),
                    Cell(2, 0, 0),
                    Paper::Number(1.73),
                    "4.2",
                ),
            ],
        },
    },
    Figure {
        name: "hyperdb-fig-11",
        says: "bytes written and space used under a uniform load of 1 KB values",
        records: 100_000_000,
        record_bytes: 1032,
        scale: 1000,
        how: How::Compared {
            lines: &[Line {
                engines: &["hyperdb", "leveled"],
                workloads: &["hyperdb-a:uniform"],
                words: &["--fast-share=16", "--value-bytes=1024"],
                ..LINE
            }],
            rows: &[number(
                "bytes written to tables, HyperDB over RocksDB",
                Number::Rewritten,
                Cell(0, 0, 0),
                Some(Cell(0, 1, 0)),
                Paper::Number(0.397),
                "4.2: 60.3 % less",
            )],
        },
    },
];
