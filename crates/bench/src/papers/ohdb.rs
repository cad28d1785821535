//! OHDB (Liu, Wang, Zhou): its tables and figures, on plain directories or a rig.
//!
//! The four systems are the preset `ohdb` with the options of `docs/papers/ohdb.md`. Of the
//! paper's two machines the low-end one has two HDDs: all on the slow tier, and logs, manifest and
//! first level of 2DC and C on the fast one, which should be as slow. The high-end one has an SSD
//! and an HDD: all on the fast tier, and these of 2DC and C on the slow one.

use super::figure::{Column, Figure, Grid, How, LINE, Line, Number, Paper, System};

/// Section IV.A: 100 million entries of 16 + 100 bytes.
const RECORDS: u64 = 100_000_000;
const RECORD_BYTES: u64 = 116;

/// A hundredth, as sizes are below.
const SCALE: u64 = 100;

/// Of the paper's sizes, memtables of 32 MB, tables of 8 MB and a first level of 10 MB, a
/// hundredth. Only the memtables are larger, by `compare`'s least memory of 8 MiB: an eighth of it
/// is write buffer, for two of them.
const FILL: Line = Line {
    workloads: &["ohdb-fillrandom"],
    warmup_seconds: 1.0,
    seconds: 3.0,
    words: MEMORY_8,
    sizes: TABLES_8,
    ..LINE
};

/// The first tier has room for all of the store.
const MEMORY_8: &[&str] = &["--memory-mib=8", "--fast-share=300"];
const MEMORY_16: &[&str] = &["--memory-mib=16", "--fast-share=300"];
const MEMORY_24: &[&str] = &["--memory-mib=24", "--fast-share=300"];
const MEMORY_32: &[&str] = &["--memory-mib=32", "--fast-share=300"];

const TABLES_4: &str = "table_bytes = 41943\nfirst_level_bytes = 104857";
const TABLES_8: &str = "table_bytes = 83886\nfirst_level_bytes = 104857";
const TABLES_16: &str = "table_bytes = 167772\nfirst_level_bytes = 104857";
const TABLES_32: &str = "table_bytes = 335544\nfirst_level_bytes = 104857";

const BOTH: &[&str] = &["ohdb-fillrandom", "ohdb-readrandom"];

/// HDB, OHDB-L0P, OHDB-2DC and OHDB-C on the low-end machine.
const LOW_END: [(&str, Line); 4] = [
    on("HDB", &["ohdb/all-slow"], "partitions = 1"),
    on("OHDB-L0P", &["ohdb/all-slow"], ""),
    on(
        "OHDB-2DC",
        &["ohdb"],
        "partitions = 1\nlog_tier = \"fast\"\nevent_tier = \"fast\"\n\
         manifest_tier = \"fast\"\nnewest_tier = \"fast\"\nlevels_tier = \"slow\"",
    ),
    on(
        "OHDB-C",
        &["ohdb"],
        "log_tier = \"fast\"\nevent_tier = \"fast\"\n\
         manifest_tier = \"fast\"\nnewest_tier = \"fast\"\nlevels_tier = \"slow\"",
    ),
];

/// The same on the high-end one.
const HIGH_END: [(&str, Line); 4] = [
    on("HDB", &["ohdb/all-fast"], "partitions = 1"),
    on("OHDB-L0P", &["ohdb/all-fast"], ""),
    on(
        "OHDB-2DC",
        &["ohdb"],
        "partitions = 1\nlog_tier = \"slow\"\nevent_tier = \"slow\"\n\
         manifest_tier = \"slow\"\nnewest_tier = \"slow\"\nlevels_tier = \"fast\"",
    ),
    on(
        "OHDB-C",
        &["ohdb"],
        "log_tier = \"slow\"\nevent_tier = \"slow\"\n\
         manifest_tier = \"slow\"\nnewest_tier = \"slow\"\nlevels_tier = \"fast\"",
    ),
];

const fn on(
    name: &'static str,
    engines: &'static [&'static str],
    options: &'static str,
) -> (&'static str, Line) {
    let line = Line {
        engines,
        options,
        ..FILL
    };
    (name, line)
}

/// A size of memtables or tables: its name in the paper, memory, tables.
type Size = (&'static str, &'static [&'static str], &'static str);

/// Tables III and IV, figures 2 and 3. The least memory stands for memtables of 16 MB.
const MEMTABLES: [Size; 4] = [
    (" 16 MB", MEMORY_8, TABLES_8),
    (" 32 MB", MEMORY_16, TABLES_8),
    (" 48 MB", MEMORY_24, TABLES_8),
    (" 64 MB", MEMORY_32, TABLES_8),
];

/// Tables V and VI, figures 4 and 5.
const TABLES: [Size; 4] = [
    (" 4 MB", MEMORY_8, TABLES_4),
    (" 8 MB", MEMORY_8, TABLES_8),
    (" 16 MB", MEMORY_8, TABLES_16),
    (" 32 MB", MEMORY_8, TABLES_32),
];

/// Where the fixed size, which the other tables have, stands among the sizes.
const FIXED: usize = 1;

/// The four systems with each of four sizes, system by system as in the paper's tables.
const fn sized(
    systems: [(&'static str, Line); 4],
    sizes: [Size; 4],
    workloads: &'static [&'static str],
) -> [System; 16] {
    let mut all = [System::ran("", FILL); 16];
    let mut at = 0;
    while at < all.len() {
        let (name, line) = systems[at / 4];
        let (size, words, sizes) = sizes[at % 4];
        let line = Line {
            words,
            sizes,
            workloads,
            ..line
        };
        all[at] = System::ran(name, line).of(size);
        at += 1;
    }
    all
}

const FILLED: &[&str] = FILL.workloads;

const LOW_BY_MEMTABLE: [System; 16] = sized(LOW_END, MEMTABLES, FILLED);
const HIGH_BY_MEMTABLE: [System; 16] = sized(HIGH_END, MEMTABLES, FILLED);
const LOW_BY_TABLE: [System; 16] = sized(LOW_END, TABLES, FILLED);
const HIGH_BY_TABLE: [System; 16] = sized(HIGH_END, TABLES, FILLED);

const LOW_BY_MEMTABLE_BOTH: [System; 16] = sized(LOW_END, MEMTABLES, BOTH);
const HIGH_BY_MEMTABLE_BOTH: [System; 16] = sized(HIGH_END, MEMTABLES, BOTH);
const LOW_BY_TABLE_BOTH: [System; 16] = sized(LOW_END, TABLES, BOTH);
const HIGH_BY_TABLE_BOTH: [System; 16] = sized(HIGH_END, TABLES, BOTH);

/// Table II: the four with the fixed sizes, and `leveled` as it is by default.
const fn fixed(
    systems: [(&'static str, Line); 4],
    leveled: &'static [&'static str],
) -> [System; 5] {
    let leveled = both(on("", leveled, "").1);
    let mut all = [System::ran("leveled as it is by default", leveled); 5];
    let mut at = 0;
    while at < systems.len() {
        all[at] = System::ran(systems[at].0, both(systems[at].1));
        at += 1;
    }
    all
}

/// `line` that fills and reads.
const fn both(line: Line) -> Line {
    Line {
        workloads: BOTH,
        ..line
    }
}

const LOW_FIXED: [System; 5] = fixed(LOW_END, &["leveled/all-slow"]);
const HIGH_FIXED: [System; 5] = fixed(HIGH_END, &["leveled/all-fast"]);

/// Table I: HyperLevelDB by size of a table, and LevelDB.
const ONE: &[System] = &[
    System::ran("HyperLevelDB", tables(TABLES_4)).of(" 4 MB"),
    System::ran("HyperLevelDB", tables(TABLES_8)).of(" 8 MB"),
    System::ran("HyperLevelDB", tables(TABLES_16)).of(" 16 MB"),
    System::not("LevelDB", TABLES_OF_LEVELDB).of(" 2 MB"),
    System::not("LevelDB", TABLES_OF_LEVELDB).of(" 4 MB"),
];

const TABLES_OF_LEVELDB: &str = "LevelDB makes no tables of a hundredth, 1 MB is its least";

/// HDB on the low-end machine, with tables of that size.
const fn tables(sizes: &'static str) -> Line {
    Line {
        sizes,
        ..both(LOW_END[0].1)
    }
}

const fn column(
    what: &'static str,
    number: Number,
    workload: usize,
    paper: &'static [f64],
    place: &'static str,
) -> Column {
    Column {
        what,
        number,
        workload,
        paper,
        otherwise: Paper::Plot,
        place,
    }
}

/// Merges of fillrandom.
const fn merges(paper: &'static [f64], place: &'static str) -> [Column; 1] {
    [column("merges", Number::Merges, 0, paper, place)]
}

/// Rates of writes and reads. The paper plots them; what it has in tables is given.
const fn rates(written: &'static [f64], read: &'static [f64], place: &'static str) -> [Column; 2] {
    [
        column("WT, MB/s", Number::WrittenMb, 0, written, place),
        column("RT, ops/s", Number::Rate, 1, read, place),
    ]
}

const fn figure(
    name: &'static str,
    says: &'static str,
    systems: &'static [System],
    columns: &'static [Column],
    base: usize,
) -> Figure {
    Figure {
        name,
        says,
        records: RECORDS,
        record_bytes: RECORD_BYTES,
        scale: SCALE,
        how: How::Grid(Grid {
            systems,
            columns,
            base,
            relative: false,
        }),
    }
}

const WRITTEN: &[&str] = &["flushed bytes", "merged bytes"];

/// Table II, in the order of its columns.
const fn performance(paper: &'static [[f64; 4]; 7]) -> [Column; 7] {
    const PLACE: &str = "table II";
    [
        column("WT, MB/s", Number::WrittenMb, 0, &paper[0], PLACE),
        column("RT, ops/s", Number::Rate, 1, &paper[1], PLACE),
        column("C, merges", Number::Merges, 0, &paper[2], PLACE),
        column("SN, tables", Number::Tables, 0, &paper[3], PLACE),
        column("TW, GB", Number::Gigabytes(WRITTEN), 0, &paper[4], PLACE),
        column(
            "CR, GB",
            Number::Gigabytes(&["merge read bytes"]),
            0,
            &paper[5],
            PLACE,
        ),
        column(
            "CW, GB",
            Number::Gigabytes(&["merged bytes"]),
            0,
            &paper[6],
            PLACE,
        ),
    ]
}

const LOW_PERFORMANCE: [Column; 7] = performance(&[
    [6.5, 6.7, 6.3, 7.5],
    [76_470.0, 85_106.0, 71_802.0, 88_683.0],
    [7_677.0, 1_611.0, 7_717.0, 1_601.0],
    [1_127.0, 906.0, 1_152.0, 909.0],
    [86.7, 79.5, 87.8, 79.5],
    [79.5, 72.6, 81.0, 72.6],
    [75.8, 68.6, 77.0, 68.6],
]);

const HIGH_PERFORMANCE: [Column; 7] = performance(&[
    [12.5, 18.8, 12.5, 11.3],
    [101_173.0, 117_467.0, 94_885.0, 123_061.0],
    [8_613.0, 923.0, 8_563.0, 1_641.0],
    [1_084.0, 911.0, 1_098.0, 907.0],
    [96.3, 66.8, 95.8, 81.1],
    [89.4, 59.9, 88.9, 74.3],
    [85.4, 55.9, 84.9, 70.2],
]);

const SIZES_OF_HDB: [Column; 3] = [
    column(
        "WT, MB/s",
        Number::WrittenMb,
        0,
        &[6.8, 6.5, 6.0, 4.9, 3.5],
        "table I",
    ),
    column(
        "RT, ops/s",
        Number::Rate,
        1,
        &[42_439.0, 76_470.0, 131_337.0, 27_837.0, 30_535.0],
        "table I",
    ),
    column(
        "C, merges",
        Number::Merges,
        0,
        &[9_800.0, 7_677.0, 4_896.0, 12_513.0, 6_341.0],
        "table I",
    ),
];

const TABLE_3: [Column; 1] = merges(
    &[
        10_099.0, 7_677.0, 6_405.0, 5_410.0, // HDB
        2_172.0, 1_547.0, 1_416.0, 1_214.0, // OHDB-L0P
        10_074.0, 7_717.0, 6_511.0, 5_480.0, // OHDB-2DC
        2_216.0, 1_554.0, 1_370.0, 1_218.0, // OHDB-C
    ],
    "table III",
);

const TABLE_4: [Column; 1] = merges(
    &[
        10_979.0, 8_613.0, 7_082.0, 6_080.0, // HDB
        1_122.0, 923.0, 754.0, 709.0, // OHDB-L0P
        11_067.0, 8_563.0, 7_227.0, 6_076.0, // OHDB-2DC
        2_247.0, 1_641.0, 1_421.0, 1_218.0, // OHDB-C
    ],
    "table IV",
);

const TABLE_5: [Column; 1] = merges(
    &[
        9_800.0, 7_677.0, 4_896.0, 3_294.0, // HDB
        2_858.0, 1_547.0, 1_036.0, 777.0, // OHDB-L0P
        9_880.0, 7_717.0, 7_656.0, 3_418.0, // OHDB-2DC
        2_729.0, 1_554.0, 1_019.0, 779.0, // OHDB-C
    ],
    "table V",
);

const TABLE_6: [Column; 1] = merges(
    &[
        10_923.0, 8_613.0, 5_934.0, 3_882.0, // HDB
        1_846.0, 923.0, 515.0, 247.0, // OHDB-L0P
        10_821.0, 8_563.0, 5_877.0, 3_812.0, // OHDB-2DC
        2_858.0, 1_641.0, 1_063.0, 813.0, // OHDB-C
    ],
    "table VI",
);

/// Of the fixed sizes figures have the numbers of table II.
const LOW_WRITTEN: &[f64] = &[
    0.0, 6.5, 0.0, 0.0, 0.0, 6.7, 0.0, 0.0, 0.0, 6.3, 0.0, 0.0, 0.0, 7.5, 0.0, 0.0,
];
const LOW_READ: &[f64] = &[
    0.0, 76_470.0, 0.0, 0.0, 0.0, 85_106.0, 0.0, 0.0, 0.0, 71_802.0, 0.0, 0.0, 0.0, 88_683.0, 0.0,
    0.0,
];
const HIGH_WRITTEN: &[f64] = &[
    0.0, 12.5, 0.0, 0.0, 0.0, 18.8, 0.0, 0.0, 0.0, 12.5, 0.0, 0.0, 0.0, 11.3, 0.0, 0.0,
];
const HIGH_READ: &[f64] = &[
    0.0, 101_173.0, 0.0, 0.0, 0.0, 117_467.0, 0.0, 0.0, 0.0, 94_885.0, 0.0, 0.0, 0.0, 123_061.0,
    0.0, 0.0,
];

/// Of HDB by size of a table also those of table I.
const LOW_WRITTEN_BY_TABLE: &[f64] = &[
    6.8, 6.5, 6.0, 0.0, 0.0, 6.7, 0.0, 0.0, 0.0, 6.3, 0.0, 0.0, 0.0, 7.5, 0.0, 0.0,
];
const LOW_READ_BY_TABLE: &[f64] = &[
    42_439.0, 76_470.0, 131_337.0, 0.0, 0.0, 85_106.0, 0.0, 0.0, 0.0, 71_802.0, 0.0, 0.0, 0.0,
    88_683.0, 0.0, 0.0,
];

const FIGURE_2: [Column; 2] = rates(LOW_WRITTEN, LOW_READ, "figure 2, table II");
const FIGURE_3: [Column; 2] = rates(HIGH_WRITTEN, HIGH_READ, "figure 3, table II");
const FIGURE_4: [Column; 2] = rates(
    LOW_WRITTEN_BY_TABLE,
    LOW_READ_BY_TABLE,
    "figure 4, tables I and II",
);
const FIGURE_5: [Column; 2] = rates(HIGH_WRITTEN, HIGH_READ, "figure 5, table II");

pub(super) const FIGURES: &[Figure] = &[
    figure(
        "ohdb-table-1",
        "HyperLevelDB by size of a table, and LevelDB; wants a slow tier `hdd`",
        ONE,
        &SIZES_OF_HDB,
        FIXED,
    ),
    figure(
        "ohdb-table-2-hdd",
        "fillrandom and readrandom, low-end machine; wants two tiers `hdd`",
        &LOW_FIXED,
        &LOW_PERFORMANCE,
        0,
    ),
    figure(
        "ohdb-table-2-ssd",
        "the same, high-end machine; wants tiers `ssd` and `hdd`",
        &HIGH_FIXED,
        &HIGH_PERFORMANCE,
        0,
    ),
    figure(
        "ohdb-table-3",
        "merges by size of the memtable, low-end machine",
        &LOW_BY_MEMTABLE,
        &TABLE_3,
        FIXED,
    ),
    figure(
        "ohdb-table-4",
        "merges by size of the memtable, high-end machine",
        &HIGH_BY_MEMTABLE,
        &TABLE_4,
        FIXED,
    ),
    figure(
        "ohdb-table-5",
        "merges by size of a table, low-end machine",
        &LOW_BY_TABLE,
        &TABLE_5,
        FIXED,
    ),
    figure(
        "ohdb-table-6",
        "merges by size of a table, high-end machine",
        &HIGH_BY_TABLE,
        &TABLE_6,
        FIXED,
    ),
    figure(
        "ohdb-fig-2",
        "writes and reads by size of the memtable, low-end machine",
        &LOW_BY_MEMTABLE_BOTH,
        &FIGURE_2,
        FIXED,
    ),
    figure(
        "ohdb-fig-3",
        "writes and reads by size of the memtable, high-end machine",
        &HIGH_BY_MEMTABLE_BOTH,
        &FIGURE_3,
        FIXED,
    ),
    figure(
        "ohdb-fig-4",
        "writes and reads by size of a table, low-end machine",
        &LOW_BY_TABLE_BOTH,
        &FIGURE_4,
        FIXED,
    ),
    figure(
        "ohdb-fig-5",
        "writes and reads by size of a table, high-end machine",
        &HIGH_BY_TABLE_BOTH,
        &FIGURE_5,
        FIXED,
    ),
];
