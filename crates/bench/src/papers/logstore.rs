//! LogStore (Menon et al.): its section VI. LevelDB on one device is our `leveled` with one
//! part on one tier; LS-NH is the preset `logstore` over a fast and a slow one, LS-UO is
//! `logstore-unoptimised`. Keys are clustered: the paper places whole tables, and 92 % of
//! its reads found the fast half.

use super::figure::{
    Cell, Figure, How, LINE, Line, Number, Paper, PredictedPlan, alone, number, ratio,
};

/// Records of the paper: 100 million of 16 + 1024 bytes.
pub(super) const RECORDS: u64 = 100_000_000;

/// One device each, which has nothing to converge to.
const ALONE: Line = Line {
    engines: &["leveled/all-slow", "leveled/all-fast"],
    workloads: &["logstore-c"],
    warmup_seconds: 3.0,
    seconds: 6.0,
    words: CLUSTERED,
    options: "partitions = 1",
    ..LINE
};

/// Both devices, with time to move what is hot.
pub(super) const BOTH: Line = Line {
    engines: &["logstore", "logstore-unoptimised"],
    workloads: &["logstore-c"],
    warmup_seconds: 30.0,
    seconds: 10.0,
    words: HALF,
    ..LINE
};

const CLUSTERED: &[&str] = &["--clustered"];
const HALF: &[&str] = &["--clustered", "--fast-share=50"];

const fn predicted(
    system: &'static str,
    engine: &'static str,
    workload: &'static str,
    paper: f64,
    place: &'static str,
) -> PredictedPlan {
    PredictedPlan {
        system,
        engine,
        workload,
        paper,
        place,
    }
}

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "logstore-fig-6",
        says: "reads with little and with much memory (figures 6 and 7)",
        records: RECORDS,
        record_bytes: 1040,
        scale: 400,
        how: How::Compared {
            lines: &[
                Line {
                    memory_share: 0.032,
                    ..ALONE
                },
                Line {
                    memory_share: 0.032,
                    ..BOTH
                },
                ALONE,
                BOTH,
            ],
            rows: &[
                ratio(
                    "LS-NH over LDB-HDD, memory 3 % (paper 2 %)",
                    Cell(1, 0, 0),
                    Cell(0, 0, 0),
                    Paper::Between(4.0, 6.0),
                    "VI-A",
                ),
                ratio(
                    "LS-UO over LDB-HDD, memory 3 %",
                    Cell(1, 1, 0),
                    Cell(0, 0, 0),
                    Paper::AtMost(2.0),
                    "VI-A",
                ),
                ratio(
                    "LS-NH over LS-UO, memory 3 %",
                    Cell(1, 0, 0),
                    Cell(1, 1, 0),
                    Paper::AtMost(6.0),
                    "VI-A",
                ),
                alone(
                    "LS-NH, reads from the slow tier, memory 3 %",
                    Number::Tier("slow"),
                    Cell(1, 0, 0),
                    Paper::Number(0.08),
                    "VI-A: 8 % go to the HDD",
                ),
                ratio(
                    "LDB-NVMe over LDB-HDD, memory 8 %",
                    Cell(2, 1, 0),
                    Cell(2, 0, 0),
                    Paper::Number(92.0),
                    "table IV: 18,029 / 196",
                ),
                ratio(
                    "LS-NH over LDB-HDD, memory 8 %",
                    Cell(3, 0, 0),
                    Cell(2, 0, 0),
                    Paper::Number(3.94),
                    "table IV: 773 / 196",
                ),
            ],
        },
    },
    Figure {
        name: "logstore-fig-8",
        says: "reads by size of the fast tier",
        records: RECORDS,
        record_bytes: 1040,
        scale: 1000,
        how: How::Compared {
            lines: &[
                Line {
                    engines: &["leveled/all-slow"],
                    ..ALONE
                },
                Line {
                    engines: &["logstore"],
                    words: &["--clustered", "--fast-share=10"],
                    ..BOTH
                },
                Line {
                    engines: &["logstore"],
                    words: &["--clustered", "--fast-share=25"],
                    ..BOTH
                },
                Line {
                    engines: &["logstore"],
                    ..BOTH
                },
            ],
            rows: &[
                ratio(
                    "LS-NH over LDB-HDD, 10 % fast",
                    Cell(1, 0, 0),
                    Cell(0, 0, 0),
                    Paper::Plot,
                    "figure 8",
                ),
                ratio(
                    "LS-NH over LDB-HDD, 25 % fast",
                    Cell(2, 0, 0),
                    Cell(0, 0, 0),
                    Paper::Plot,
                    "figure 8",
                ),
                ratio(
                    "LS-NH over LDB-HDD, 50 % fast",
                    Cell(3, 0, 0),
                    Cell(0, 0, 0),
                    Paper::Number(6.0),
                    "VI-A1",
                ),
                alone(
                    "reads from the slow tier, 10 % fast",
                    Number::Tier("slow"),
                    Cell(1, 0, 0),
                    Paper::Plot,
                    "figure 8",
                ),
                alone(
                    "reads from the slow tier, 50 % fast",
                    Number::Tier("slow"),
                    Cell(3, 0, 0),
                    Paper::Number(0.08),
                    "VI-A",
                ),
            ],
        },
    },
    Figure {
        name: "logstore-fig-9",
        says: "reads that change from `latest` to Zipfian",
        records: RECORDS,
        record_bytes: 1040,
        scale: 1000,
        how: How::Compared {
            lines: &[
                Line {
                    engines: &["leveled/all-slow", "leveled/all-fast"],
                    workloads: &["logstore-c:latest", "logstore-c"],
                    ..ALONE
                },
                Line {
                    engines: &["logstore"],
                    workloads: &["logstore-c:latest", "logstore-c"],
                    warmup_seconds: 2.0,
                    seconds: 40.0,
                    ..BOTH
                },
            ],
            rows: &[
                number(
                    "LS-NH over LDB-HDD, at the end",
                    Number::LateRate,
                    Cell(1, 0, 1),
                    Some(Cell(0, 0, 1)),
                    Paper::AtLeast(6.0),
                    "VI-A2",
                ),
                alone(
                    "LS-NH at the end, ops/s",
                    Number::LateRate,
                    Cell(1, 0, 1),
                    Paper::Plot,
                    "figure 9",
                ),
                alone(
                    "LS-NH, all of the time, ops/s",
                    Number::Rate,
                    Cell(1, 0, 1),
                    Paper::Plot,
                    "figure 9",
                ),
                alone(
                    "LDB-HDD, ops/s",
                    Number::Rate,
                    Cell(0, 0, 1),
                    Paper::Number(208.0),
                    "VI-A2",
                ),
            ],
        },
    },
    Figure {
        name: "logstore-fig-10",
        says: "writes only (figures 10 and 11)",
        records: RECORDS,
        record_bytes: 1040,
        scale: 1000,
        how: How::Compared {
            lines: &[
                Line {
                    workloads: &["logstore-write-only"],
                    seconds: 15.0,
                    ..ALONE
                },
                Line {
                    workloads: &["logstore-write-only"],
                    warmup_seconds: 3.0,
                    seconds: 15.0,
                    ..BOTH
                },
            ],
            rows: &[
                ratio(
                    "LS-NH over LDB-NVMe",
                    Cell(1, 0, 0),
                    Cell(0, 1, 0),
                    Paper::Between(3.0, 3.8),
                    "VI-B",
                ),
                ratio(
                    "LS-NH over LDB-HDD",
                    Cell(1, 0, 0),
                    Cell(0, 0, 0),
                    Paper::Between(3.0, 3.8),
                    "VI-B",
                ),
                ratio(
                    "LS-UO over LS-NH",
                    Cell(1, 1, 0),
                    Cell(1, 0, 0),
                    Paper::Number(0.02),
                    "VI-B: a drop by nearly 98 %",
                ),
                number(
                    "merges, LS-NH over LDB-HDD",
                    Number::Merges,
                    Cell(1, 0, 0),
                    Some(Cell(0, 0, 0)),
                    Paper::Plot,
                    "VI-B: very small",
                ),
            ],
        },
    },
    Figure {
        name: "logstore-fig-12",
        says: "mixed loads (figures 12 and 13)",
        records: RECORDS,
        record_bytes: 1040,
        scale: 1000,
        how: How::Compared {
            lines: &[
                Line {
                    engines: &["leveled/all-slow"],
                    workloads: &["logstore-b-90", "logstore-a", "logstore-b-10", "logstore-e"],
                    ..ALONE
                },
                Line {
                    engines: &["logstore"],
                    workloads: &["logstore-b-90", "logstore-a", "logstore-b-10", "logstore-e"],
                    warmup_seconds: 10.0,
                    seconds: 8.0,
                    ..BOTH
                },
            ],
            rows: &[
                ratio(
                    "B-90, LS-NH over LDB-HDD",
                    Cell(1, 0, 0),
                    Cell(0, 0, 0),
                    Paper::AtLeast(3.5),
                    "VI-C1",
                ),
                number(
                    "B-90, merges, LS-NH over LDB-HDD",
                    Number::Merges,
                    Cell(1, 0, 0),
                    Some(Cell(0, 0, 0)),
                    Paper::Number(0.06),
                    "VI-C1",
                ),
                ratio(
                    "A, LS-NH over LDB-HDD",
                    Cell(1, 0, 1),
                    Cell(0, 0, 1),
                    Paper::Number(2.82),
                    "table V: 967 / 342.9",
                ),
                number(
                    "A, merges, LS-NH over LDB-HDD",
                    Number::Merges,
                    Cell(1, 0, 1),
                    Some(Cell(0, 0, 1)),
                    Paper::Number(0.17),
                    "VI-C2: 1,202 / 7,042",
                ),
                ratio(
                    "B-10, LS-NH over LDB-HDD",
                    Cell(1, 0, 2),
                    Cell(0, 0, 2),
                    Paper::Number(1.71),
                    "table V: 3,095 / 1,809",
                ),
                ratio(
                    "E, LS-NH over LDB-HDD",
                    Cell(1, 0, 3),
                    Cell(0, 0, 3),
                    Paper::Number(6.0),
                    "VI-C3: nearly 6",
                ),
            ],
        },
    },
    Figure {
        name: "logstore-fig-14",
        says: "which level answers the reads of mixed loads",
        records: RECORDS,
        record_bytes: 1040,
        scale: 1000,
        how: How::Compared {
            lines: &[Line {
                engines: &["logstore"],
                workloads: &["logstore-b-90", "logstore-a", "logstore-b-10"],
                warmup_seconds: 15.0,
                ..BOTH
            }],
            rows: &[
                alone(
                    "B-90, memtable",
                    Number::Memtable,
                    Cell(0, 0, 0),
                    Paper::Number(0.12),
                    "VI-C1",
                ),
                alone(
                    "B-90, memtable and block cache",
                    Number::Memory,
                    Cell(0, 0, 0),
                    Paper::Plot,
                    "the paper counts its cache with the levels",
                ),
                alone(
                    "B-90, fast tier",
                    Number::Tier("fast"),
                    Cell(0, 0, 0),
                    Paper::Number(0.8),
                    "VI-C1, cache included",
                ),
                alone(
                    "B-90, slow tier",
                    Number::Tier("slow"),
                    Cell(0, 0, 0),
                    Paper::Number(0.08),
                    "VI-C1",
                ),
                alone(
                    "A, slow tier",
                    Number::Tier("slow"),
                    Cell(0, 0, 1),
                    Paper::Plot,
                    "figure 14",
                ),
                alone(
                    "B-10, memtable",
                    Number::Memtable,
                    Cell(0, 0, 2),
                    Paper::Number(0.12),
                    "VI-C3",
                ),
                alone(
                    "B-10, slow tier",
                    Number::Tier("slow"),
                    Cell(0, 0, 2),
                    Paper::Number(0.08),
                    "VI-C3: 80 % NVMe, 12 % memory",
                ),
            ],
        },
    },
    Figure {
        name: "logstore-table-4",
        says: "measured over predicted rate, reads (the model of section IV)",
        records: RECORDS,
        record_bytes: 1040,
        scale: 1000,
        how: How::Predicted(&[
            predicted(
                "LDB-HDD",
                "leveled/all-slow",
                "logstore-c",
                196.0 / 200.0,
                "table IV",
            ),
            predicted(
                "LDB-NVMe",
                "leveled/all-fast",
                "logstore-c",
                18_029.0 / 20_000.0,
                "table IV",
            ),
            predicted("LS-NH", "logstore", "logstore-c", 773.0 / 822.0, "table IV"),
        ]),
    },
    Figure {
        name: "logstore-table-5",
        says: "measured over predicted rate, mixed loads",
        records: RECORDS,
        record_bytes: 1040,
        scale: 1000,
        how: How::Predicted(&[
            predicted(
                "LDB-HDD",
                "leveled/all-slow",
                "logstore-b-90",
                181.0 / 180.0,
                "table V, B-90",
            ),
            predicted(
                "LDB-HDD",
                "leveled/all-slow",
                "logstore-a",
                342.9 / 312.0,
                "table V, A",
            ),
            predicted(
                "LDB-HDD",
                "leveled/all-slow",
                "logstore-b-10",
                1_809.0 / 1_441.0,
                "table V, B-10",
            ),
            predicted(
                "LS-NH",
                "logstore",
                "logstore-b-90",
                656.0 / 745.0,
                "table V, B-90",
            ),
            predicted(
                "LS-NH",
                "logstore",
                "logstore-a",
                967.0 / 1_215.0,
                "table V, A",
            ),
            predicted(
                "LS-NH",
                "logstore",
                "logstore-b-10",
                3_095.0 / 3_753.0,
                "table V, B-10",
            ),
        ]),
    },
];
