//! The named workloads: YCSB's six, and those of the papers.
//!
//! Departures, the same for every engine: an update writes the whole value (YCSB
//! writes one of ten fields, which a store of plain values can only do so), and
//! LogStore's read-modify-write changes eight bytes of the value it has read.

use super::{Mix, Start, Workload};
use crate::keys::Choice;
use crate::keys::text::{KeyForm, KeyText};

/// Bytes of a value where a paper says 1 KB, and of YCSB's ten fields of 100.
const YCSB_VALUE_BYTES: u32 = 1000;
const PAPER_VALUE_BYTES: u32 = 1024;

/// LogStore's skew, section VI.
const LOGSTORE_SKEW: f64 = 0.9;

/// The families of workloads and the names in each.
pub(super) const FAMILIES: [(&str, &[&str]); 5] = [
    (
        "ycsb",
        &["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-f", "ycsb-d", "ycsb-e"],
    ),
    (
        "logstore",
        &[
            "logstore-a",
            "logstore-a-rmw",
            "logstore-c",
            "logstore-b-90",
            "logstore-b-10",
            "logstore-e",
            "logstore-write-only",
        ],
    ),
    ("nova", &["nova-rw50", "nova-sw50", "nova-w100"]),
    (
        "ohdb",
        &[
            "ohdb-fillrandom",
            "ohdb-readrandom",
            "ohdb-readrandom-settled",
        ],
    ),
    (
        "hyperdb",
        &[
            "hyperdb-a",
            "hyperdb-b",
            "hyperdb-c",
            "hyperdb-d",
            "hyperdb-e",
            "hyperdb-f",
        ],
    ),
];

/// The workload called `name`.
pub(super) fn named(name: &str) -> Option<Workload> {
    let (family, rest) = name.split_once('-')?;
    let workload = match family {
        "ycsb" => ycsb(rest)?,
        "logstore" => logstore(rest)?,
        "nova" => nova(rest)?,
        "ohdb" => ohdb(rest)?,
        "hyperdb" => hyperdb(rest)?,
        _ => return None,
    };
    Some(Workload {
        name: name.to_string(),
        ..workload
    })
}

fn plain(mix: Mix, choice: Choice) -> Workload {
    Workload {
        name: String::new(),
        mix,
        choice,
        scan_entries: [1, 100],
        keys: KeyText {
            form: KeyForm::Ycsb,
            clustered: false,
        },
        value_bytes: YCSB_VALUE_BYTES,
        start: Start::Loaded,
        trace: None,
    }
}

const fn mix(read: u32, update: u32, insert: u32, scan: u32, read_modify_write: u32) -> Mix {
    Mix {
        read,
        update,
        insert,
        scan,
        read_modify_write,
    }
}

/// YCSB's core workloads, as in its `workloads/` directory.
fn ycsb(name: &str) -> Option<Workload> {
    let (mix, choice) = match name {
        "a" => (mix(50, 50, 0, 0, 0), Choice::Scrambled),
        "b" => (mix(95, 5, 0, 0, 0), Choice::Scrambled),
        "c" => (mix(100, 0, 0, 0, 0), Choice::Scrambled),
        "d" => (mix(95, 0, 5, 0, 0), Choice::Latest),
        "e" => (mix(0, 0, 5, 95, 0), Choice::Scrambled),
        "f" => (mix(50, 0, 0, 0, 50), Choice::Scrambled),
        _ => return None,
    };
    Some(plain(mix, choice))
}

/// LogStore, table I: keys of 16 bytes, values of 1024, Zipf's law with 0.9.
fn logstore(name: &str) -> Option<Workload> {
    let mix = match name {
        "a" => mix(50, 50, 0, 0, 0),
        "a-rmw" => mix(50, 0, 0, 0, 50),
        "c" => mix(100, 0, 0, 0, 0),
        "b-90" => mix(90, 10, 0, 0, 0),
        "b-10" => mix(10, 90, 0, 0, 0),
        "e" => mix(0, 0, 5, 95, 0),
        "write-only" => mix(0, 100, 0, 0, 0),
        _ => return None,
    };
    let mut workload = plain(
        mix,
        Choice::Zipf {
            exponent: LOGSTORE_SKEW,
        },
    );
    workload.keys.form = KeyForm::Hex16;
    workload.value_bytes = PAPER_VALUE_BYTES;
    Some(workload)
}

/// Nova-LSM, section 8.1. Its keys are not hashed: "key-0 is accessed the most
/// frequently", and one component gets 85 % of the requests.
fn nova(name: &str) -> Option<Workload> {
    let mix = match name {
        "rw50" => mix(50, 50, 0, 0, 0),
        "sw50" => mix(0, 50, 0, 50, 0),
        "w100" => mix(0, 100, 0, 0, 0),
        _ => return None,
    };
    let mut workload = plain(mix, Choice::Zipfian);
    workload.keys.clustered = true;
    workload.scan_entries = [10, 10];
    workload.value_bytes = PAPER_VALUE_BYTES;
    Some(workload)
}

/// OHDB, section IV.A: `db_bench`'s defaults, uniform, keys in the order of
/// their numbers.
fn ohdb(name: &str) -> Option<Workload> {
    let (mix, start) = match name {
        "fillrandom" => (mix(0, 100, 0, 0, 0), Start::Empty),
        "readrandom" => (mix(100, 0, 0, 0, 0), Start::FilledAtRandom),
        "readrandom-settled" => (mix(100, 0, 0, 0, 0), Start::FilledAndSettled),
        _ => return None,
    };
    let mut workload = plain(mix, Choice::Uniform);
    workload.keys = KeyText {
        form: KeyForm::Hex16,
        clustered: true,
    };
    workload.value_bytes = 100;
    workload.start = start;
    Some(workload)
}

/// HyperDB, section 4.1: YCSB with keys of 8 bytes, values of 128 and scans of
/// 50.
fn hyperdb(name: &str) -> Option<Workload> {
    let mut workload = ycsb(name)?;
    workload.keys.form = KeyForm::Binary8;
    workload.value_bytes = 128;
    workload.scan_entries = [50, 50];
    Some(workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_workload_whose_shares_are_whole() {
        for name in FAMILIES.iter().flat_map(|(_, names)| *names) {
            let workload = named(name).unwrap_or_else(|| panic!("{name}"));
            let sum: u32 = workload.mix.shares().iter().map(|(share, _)| share).sum();
            assert_eq!((sum, workload.name.as_str()), (100, *name));
        }
        assert!(named("ycsb-g").is_none());
    }

    #[test]
    fn ycsb_is_as_published() {
        let of = |name| named(name).unwrap();
        assert_eq!(of("ycsb-a").mix, mix(50, 50, 0, 0, 0));
        assert_eq!(of("ycsb-b").mix, mix(95, 5, 0, 0, 0));
        assert_eq!(of("ycsb-c").mix, mix(100, 0, 0, 0, 0));
        assert_eq!(of("ycsb-d").mix, mix(95, 0, 5, 0, 0));
        assert_eq!(of("ycsb-d").choice, Choice::Latest);
        assert_eq!(of("ycsb-e").mix, mix(0, 0, 5, 95, 0));
        assert_eq!(of("ycsb-e").scan_entries, [1, 100]);
        assert_eq!(of("ycsb-f").mix, mix(50, 0, 0, 0, 50));
    }
}
