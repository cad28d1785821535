//! Mutant (Yoon et al.): its section 5. The fast database is our `leveled` on the fast
//! tier, the slow one the same on the slow tier. YCSB's "read latest" throughout.

use super::figure::{
    Cell, Figure, How, LINE, Line, Number, Paper, Shown, Targets, alone, number, ratio,
};

/// Lowering the target from 0.4 to 0.2 moved 4.5 GB (section 5.2.1), which is
/// 0.2 / (0.528 - 0.045) of all: some 11 GB, of records of 1 KiB.
const RECORDS: u64 = 10_000_000;

/// Scaled down, a store is moved through in seconds; so a table may move again after five.
const MUTANT: &str = "migration_cool_down_s = 5\n";

const LATEST: Line = Line {
    workloads: &["ycsb-d"],
    warmup_seconds: 8.0,
    seconds: 8.0,
    words: SHARE,
    ..LINE
};

/// The target says how much is fast, the capacity does not.
const SHARE: &[&str] = &["--fast-share=300"];
const ONE_CLIENT: &[&str] = &["--fast-share=300", "--clients=1"];

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "mutant-fig-10",
        says: "a cost target that goes from 0.4 to 0.2 and to 0.3 USD per GB and month",
        records: RECORDS,
        record_bytes: 1023,
        scale: 100,
        how: How::Targets(Targets {
            resistances: &[0.05],
            phases: &[(0.4, 20.0), (0.2, 20.0), (0.3, 20.0)],
            shown: Shown::Adaptation,
        }),
    },
    Figure {
        name: "mutant-fig-11",
        says: "cost against rate and latency, from all slow to all fast",
        records: RECORDS,
        record_bytes: 1023,
        scale: 250,
        how: How::Compared {
            lines: &[
                Line {
                    engines: &["leveled/all-slow", "leveled/all-fast"],
                    ..LATEST
                },
                Line {
                    engines: &["mutant"],
                    options: "migration_cool_down_s = 5\ncost_target_usd_per_gb_month = 0.1",
                    ..LATEST
                },
                Line {
                    engines: &["mutant"],
                    options: "migration_cool_down_s = 5\ncost_target_usd_per_gb_month = 0.3",
                    ..LATEST
                },
                Line {
                    engines: &["leveled/all-slow", "leveled/all-fast"],
                    words: ONE_CLIENT,
                    ..LATEST
                },
                Line {
                    engines: &["mutant"],
                    words: ONE_CLIENT,
                    options: "migration_cool_down_s = 5\ncost_target_usd_per_gb_month = 0.3",
                    ..LATEST
                },
            ],
            rows: &[
                number(
                    "price, fast over slow database",
                    Number::Price,
                    Cell(0, 1, 0),
                    Some(Cell(0, 0, 0)),
                    Paper::Number(12.0),
                    "5.2.2: about",
                ),
                ratio(
                    "rate, fast over slow database",
                    Cell(0, 1, 0),
                    Cell(0, 0, 0),
                    Paper::Number(20.0),
                    "5.2.2",
                ),
                ratio(
                    "latency, slow over fast database (one client)",
                    Cell(3, 1, 0),
                    Cell(3, 0, 0),
                    Paper::Number(10.0),
                    "5.2.2",
                ),
                ratio(
                    "rate, target 0.1 over slow database",
                    Cell(1, 0, 0),
                    Cell(0, 0, 0),
                    Paper::Plot,
                    "figure 11",
                ),
                ratio(
                    "rate, target 0.3 over slow database",
                    Cell(2, 0, 0),
                    Cell(0, 0, 0),
                    Paper::Plot,
                    "figure 11",
                ),
                ratio(
                    "latency, slow database over target 0.3 (one client)",
                    Cell(4, 0, 0),
                    Cell(3, 0, 0),
                    Paper::Plot,
                    "figure 11",
                ),
                alone(
                    "price at a target of 0.1",
                    Number::Price,
                    Cell(1, 0, 0),
                    Paper::Number(0.1),
                    "its target",
                ),
                alone(
                    "price at a target of 0.3",
                    Number::Price,
                    Cell(2, 0, 0),
                    Paper::Number(0.3),
                    "its target",
                ),
            ],
        },
    },
    Figure {
        name: "mutant-fig-12",
        says: "cost against latency of the QuizUp trace",
        records: RECORDS,
        record_bytes: 1023,
        scale: 100,
        how: How::Not("the trace is not published"),
    },
    Figure {
        name: "mutant-fig-13",
        says: "prices that can be had, beside placement by level",
        records: RECORDS,
        record_bytes: 1023,
        scale: 100,
        how: How::Targets(Targets {
            resistances: &[0.05],
            phases: &[
                (0.1, 12.0),
                (0.2, 12.0),
                (0.3, 12.0),
                (0.4, 12.0),
                (0.5, 12.0),
            ],
            shown: Shown::Prices,
        }),
    },
    Figure {
        name: "mutant-fig-14",
        says: "processor and memory for heat, on one tier: nothing is planned or moved",
        records: RECORDS,
        record_bytes: 1023,
        scale: 100,
        how: How::Compared {
            lines: &[Line {
                engines: &["leveled/all-fast", "mutant/all-fast"],
                options: "",
                // 10,000 operations a second, as in the paper.
                words: &["--fast-share=300", "--rate=10000", "--repeat=3"],
                warmup_seconds: 3.0,
                seconds: 10.0,
                ..LATEST
            }],
            rows: &[
                number(
                    "processor time, mutant over leveled",
                    Number::Processor,
                    Cell(0, 1, 0),
                    Some(Cell(0, 0, 0)),
                    Paper::Number(1.0167),
                    "5.3",
                ),
                number(
                    "memory, mutant over leveled",
                    Number::MemoryPeak,
                    Cell(0, 1, 0),
                    Some(Cell(0, 0, 0)),
                    Paper::Number(1.0161),
                    "5.3",
                ),
            ],
        },
    },
    Figure {
        name: "mutant-fig-15",
        says: "metadata in memory, beside metadata that is read again and again",
        records: RECORDS,
        record_bytes: 1023,
        scale: 500,
        how: How::Compared {
            lines: &[
                Line {
                    engines: &["leveled/all-slow"],
                    words: ONE_CLIENT,
                    ..LATEST
                },
                Line {
                    engines: &["leveled/all-slow"],
                    words: ONE_CLIENT,
                    options: "pinned_meta_bytes = 0",
                    ..LATEST
                },
            ],
            rows: &[ratio(
                "slow database, latency without over with (one client)",
                Cell(0, 0, 0),
                Cell(1, 0, 0),
                Paper::Plot,
                "figure 15",
            )],
        },
    },
    Figure {
        name: "mutant-fig-16",
        says: "resistance against migration: bytes moved, and the price for it",
        records: RECORDS,
        record_bytes: 1023,
        scale: 100,
        how: How::Targets(Targets {
            resistances: &[0.0, 0.05, 0.13, 0.2],
            phases: &[(0.2, 15.0)],
            shown: Shown::Resistance,
        }),
    },
    Figure {
        name: "mutant-fig-17",
        says: "migrations that merges save",
        records: RECORDS,
        record_bytes: 1023,
        scale: 100,
        how: How::Targets(Targets {
            resistances: &[0.0, 0.05, 0.2],
            phases: &[(0.2, 20.0)],
            shown: Shown::Saved,
        }),
    },
];

/// Options of the store whose target changes.
pub(super) const TARGETS: Line = Line {
    engines: &["mutant"],
    warmup_seconds: 10.0,
    words: &["--fast-share=300", "--rate=20000"],
    options: MUTANT,
    ..LATEST
};
