//! OHDB and HyperDB: what their baselines do, and what waits for their
//! presets. HyperLevelDB and RocksDB are our `leveled`, OHDB-L0P our `ohdb`.

use super::figure::{Cell, Figure, How, LINE, Line, Number, Paper, RowPlan, number};

/// OHDB, section IV.A: 100 million entries of 16 + 100 bytes.
const OHDB_RECORDS: u64 = 100_000_000;

/// HyperDB, section 4.2: 100 GB of 8 + 128 bytes.
const HYPERDB_RECORDS: u64 = 700_000_000;

/// Memtables of 32 MB and tables of 8 MB for 11.6 GB of data. A flush here is a quarter of the write
/// buffer, which is an eighth of the memory: 256 KiB. Sizes are those of a hundredth.
const FILL: Line = Line {
    engines: &["ohdb/all-fast", "leveled/all-fast"],
    workloads: &["ohdb-fillrandom"],
    words: &["--memory-mib=8"],
    options: "table_bytes = 83886\nfirst_level_bytes = 104857",
    ..LINE
};

/// Merges of the baseline with the line `of` over those with the line `over`.
const fn merges(
    what: &'static str,
    of: usize,
    over: usize,
    paper: f64,
    place: &'static str,
) -> RowPlan {
    let (of, over) = (Cell(of, 1, 0), Cell(over, 1, 0));
    let paper = Paper::Number(paper);
    number(what, Number::Merges, of, Some(over), paper, place)
}

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "ohdb-table-2",
        says: "fillrandom and readrandom, merges counted",
        records: OHDB_RECORDS,
        record_bytes: 116,
        scale: 400,
        how: How::Compared {
            lines: &[
                FILL,
                Line {
                    workloads: &["ohdb-readrandom"],
                    ..FILL
                },
            ],
            rows: &[
                number(
                    "merges, HDB over OHDB",
                    Number::Merges,
                    Cell(0, 1, 0),
                    Some(Cell(0, 0, 0)),
                    Paper::Between(4.77, 9.33),
                    "table II, C: 7,677 / 1,611 and 8,613 / 923",
                ),
                number(
                    "HDB, merges, of as many fewer entries",
                    Number::Merges,
                    Cell(0, 1, 0),
                    None,
                    Paper::Between(7_677.0, 8_613.0),
                    "table II, C: of 100 million entries",
                ),
                number(
                    "HDB, bytes written to tables for each byte put",
                    Number::Rewritten,
                    Cell(0, 1, 0),
                    None,
                    Paper::Between(7.47, 8.30),
                    "table II, TW: 86.7 and 96.3 GB of 11.6",
                ),
                number(
                    "fillrandom, OHDB over HDB",
                    Number::Rate,
                    Cell(0, 0, 0),
                    Some(Cell(0, 1, 0)),
                    Paper::Between(1.03, 1.50),
                    "table II, WT: 6.7 / 6.5 and 18.8 / 12.5",
                ),
                number(
                    "readrandom, OHDB over HDB",
                    Number::Rate,
                    Cell(1, 0, 0),
                    Some(Cell(1, 1, 0)),
                    Paper::Between(1.11, 1.16),
                    "table II, RT",
                ),
            ],
        },
    },
    Figure {
        name: "ohdb-table-3",
        says: "merges by size of the memtable (tables III and IV)",
        records: OHDB_RECORDS,
        record_bytes: 116,
        scale: 400,
        how: How::Compared {
            // The smallest memory that `compare` takes, and twice, three and
            // four times as much.
            lines: &[
                Line {
                    words: &["--memory-mib=8"],
                    ..FILL
                },
                Line {
                    words: &["--memory-mib=16"],
                    ..FILL
                },
                Line {
                    words: &["--memory-mib=24"],
                    ..FILL
                },
                Line {
                    words: &["--memory-mib=32"],
                    ..FILL
                },
            ],
            rows: &[
                merges(
                    "HDB, half over whole",
                    0,
                    1,
                    1.32,
                    "table III: 10,099 / 7,677",
                ),
                merges(
                    "HDB, one and a half over whole",
                    2,
                    1,
                    0.83,
                    "table III: 6,405",
                ),
                merges("HDB, twice over whole", 3, 1, 0.70, "table III: 5,410"),
                number(
                    "OHDB, twice over whole",
                    Number::Merges,
                    Cell(3, 0, 0),
                    Some(Cell(1, 0, 0)),
                    Paper::Number(0.78),
                    "table III: 1,214 / 1,547",
                ),
            ],
        },
    },
    Figure {
        name: "ohdb-table-5",
        says: "merges by size of a table (tables V and VI)",
        records: OHDB_RECORDS,
        record_bytes: 116,
        scale: 400,
        how: How::Compared {
            // A hundredth of 4, 8, 16 and 32 MB.
            lines: &[
                Line {
                    options: "table_bytes = 41943\nfirst_level_bytes = 104857",
                    ..FILL
                },
                Line {
                    options: "table_bytes = 83886\nfirst_level_bytes = 104857",
                    ..FILL
                },
                Line {
                    options: "table_bytes = 167772\nfirst_level_bytes = 104857",
                    ..FILL
                },
                Line {
                    options: "table_bytes = 335544\nfirst_level_bytes = 104857",
                    ..FILL
                },
            ],
            rows: &[
                merges("HDB, half over whole", 0, 1, 1.28, "table V: 9,800 / 7,677"),
                merges("HDB, twice over whole", 2, 1, 0.64, "table V: 4,896"),
                merges("HDB, four times over whole", 3, 1, 0.43, "table V: 3,294"),
                number(
                    "OHDB, four times over whole",
                    Number::Merges,
                    Cell(3, 0, 0),
                    Some(Cell(1, 0, 0)),
                    Paper::Number(0.50),
                    "table V: 777 / 1,547",
                ),
            ],
        },
    },
    Figure {
        name: "hyperdb-fig-8",
        says: "YCSB: rates beside RocksDB",
        records: HYPERDB_RECORDS,
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
                number(
                    "A, HyperDB over RocksDB",
                    Number::Rate,
                    Cell(0, 0, 0),
                    Some(Cell(0, 1, 0)),
                    Paper::Number(2.81),
                    "4.2: A and F on average",
                ),
                number(
                    "B, HyperDB over RocksDB",
                    Number::Rate,
                    Cell(0, 0, 1),
                    Some(Cell(0, 1, 1)),
                    Paper::Between(2.18, 2.27),
                    "4.2",
                ),
                number(
                    "C, HyperDB over RocksDB",
                    Number::Rate,
                    Cell(0, 0, 2),
                    Some(Cell(0, 1, 2)),
                    Paper::Between(2.18, 2.27),
                    "4.2",
                ),
            ],
        },
    },
    Figure {
        name: "hyperdb-fig-9",
        says: "YCSB A with values of 16 and of 128 bytes (9b), and by size of the fast tier (9c)",
        records: HYPERDB_RECORDS,
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
                number(
                    "RocksDB, 16 over 128 bytes",
                    Number::Rate,
                    Cell(0, 1, 0),
                    Some(Cell(1, 1, 0)),
                    Paper::Number(1.271),
                    "4.2",
                ),
                number(
                    "HyperDB, 16 over 128 bytes",
                    Number::Rate,
                    Cell(0, 0, 0),
                    Some(Cell(1, 0, 0)),
                    Paper::Number(1.245),
                    "4.2",
                ),
                number(
                    "RocksDB, 16 % over 1 % fast",
                    Number::Rate,
                    Cell(1, 1, 0),
                    Some(Cell(2, 1, 0)),
                    Paper::Plot,
                    "4.2: no significant improvement",
                ),
                number(
                    "HyperDB, 16 % over 1 % fast",
                    Number::Rate,
                    Cell(1, 0, 0),
                    Some(Cell(2, 0, 0)),
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
