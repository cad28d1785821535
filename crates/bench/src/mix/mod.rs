//! Workloads of the comparison: which operations, in which shares, on which
//! records, over which store.
//!
//! [`Workload`] is data that crosses to the worker's process. The named ones are
//! in [`named`]; behind a colon another distribution takes the place of the
//! workload's own (`ycsb-c:zipf=1.2`). `trace=FILE` replays a trace.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::keys::text::KeyText;
use crate::keys::{Choice, weights};

mod named;
mod parse;
pub(crate) mod trace;

pub(crate) use parse::parse;

/// What a client does to the store at once.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) enum Operation {
    /// Gets a record.
    Read,
    /// Writes a whole value of a record that may exist.
    Update,
    /// Writes the next record that does not exist.
    Insert,
    /// Seeks to a record and reads some entries from there.
    Scan,
    /// Gets a record and writes it with a part changed.
    ReadModifyWrite,
    /// Deletes a record; in traces only.
    Delete,
}

/// Shares of the operations, in percent; they add up to 100.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub(crate) struct Mix {
    pub read: u32,
    pub update: u32,
    pub insert: u32,
    pub scan: u32,
    pub read_modify_write: u32,
}

impl Mix {
    /// The next operation.
    #[inline]
    pub(crate) fn draw(&self, dice: &mut Dice) -> Operation {
        let mut place = dice.below(100) as u32;
        for (share, operation) in self.shares() {
            if place < share {
                return operation;
            }
            place -= share;
        }
        Operation::Read
    }

    /// The shares with their operations.
    pub(crate) fn shares(&self) -> [(u32, Operation); 5] {
        [
            (self.read, Operation::Read),
            (self.update, Operation::Update),
            (self.insert, Operation::Insert),
            (self.scan, Operation::Scan),
            (self.read_modify_write, Operation::ReadModifyWrite),
        ]
    }

    /// Whether the store changes.
    pub(crate) fn writes(&self) -> bool {
        self.update + self.insert + self.read_modify_write > 0
    }
}

/// The store that a workload begins with.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Start {
    /// All records, each once, in the order of their numbers.
    Loaded,
    /// Nothing. The run is as many operations as there are records, however
    /// long it takes.
    Empty,
    /// As many writes as there are records, each to a record drawn uniformly:
    /// what `fillrandom` leaves. The run begins when the last of them is written, as `db_bench`
    /// has it: merges that are owed go on beside it.
    FilledAtRandom,
    /// The same once nothing is owed.
    FilledAndSettled,
}

/// A workload.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(crate) struct Workload {
    /// The name with which it was asked for.
    pub name: String,
    /// The operations.
    pub mix: Mix,
    /// The records.
    pub choice: Choice,
    /// The least and the most entries of a scan, drawn uniformly.
    pub scan_entries: [u32; 2],
    /// How keys are written.
    pub keys: KeyText,
    /// Bytes of a value. A trace's own sizes come first.
    pub value_bytes: u32,
    /// What it begins with.
    pub start: Start,
    /// The trace that takes the place of mix and choice.
    pub trace: Option<PathBuf>,
}

impl Workload {
    /// Whether the store changes.
    pub(crate) fn writes(&self) -> bool {
        // A trace may hold anything.
        self.mix.writes() || self.trace.is_some()
    }

    /// Whether what it begins with is gone once it has begun.
    pub(crate) fn uses_up_its_start(&self) -> bool {
        matches!(self.start, Start::Empty | Start::FilledAtRandom)
    }

    /// Whether a record that is chosen may be missing.
    pub(crate) fn may_miss(&self) -> bool {
        self.start != Start::Loaded || self.trace.is_some()
    }

    /// Whether two workloads begin with the same store.
    pub(crate) fn starts_as(&self, other: &Workload) -> bool {
        self.keys == other.keys
            && self.value_bytes == other.value_bytes
            && self.start == other.start
            && self.trace == other.trace
    }

    /// What it is, in a line.
    pub(crate) fn describe(&self) -> String {
        if let Some(path) = &self.trace {
            return format!("{}: the accesses of {}", self.name, path.display());
        }
        let words = |operation| match operation {
            Operation::Read => "reads".to_string(),
            Operation::Update => "updates".to_string(),
            Operation::Insert => "inserts".to_string(),
            Operation::Scan => match self.scan_entries {
                [least, most] if least == most => format!("scans of {least}"),
                [least, most] => format!("scans of {least} to {most}"),
            },
            Operation::ReadModifyWrite => "reads with a write".to_string(),
            Operation::Delete => "deletes".to_string(),
        };
        let shares: Vec<String> = self
            .mix
            .shares()
            .into_iter()
            .filter(|(share, _)| *share > 0)
            .map(|(share, operation)| format!("{share} % {}", words(operation)))
            .collect();
        let start = match self.start {
            Start::Loaded => "",
            Start::Empty => ", from an empty store",
            Start::FilledAtRandom => ", of a store that was just filled at random",
            Start::FilledAndSettled => ", of a store that was filled at random and has settled",
        };
        format!(
            "{}: {}, {}, {} keys, values of {} bytes{start}",
            self.name,
            shares.join(", "),
            self.choice,
            if self.keys.clustered {
                "clustered"
            } else {
                "hashed"
            },
            self.value_bytes,
        )
    }

    /// The probability of each of `records` records, its trace left aside;
    /// `None` where there are too many to compute.
    pub(crate) fn weights(&self, records: u64) -> Option<Vec<f64>> {
        (records <= weights::RECORDS_MAX).then(|| weights::weights(self.choice, records))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_in_their_shares() {
        let mix = Mix {
            read: 95,
            insert: 5,
            ..Mix::default()
        };
        let mut dice = Dice::new(1);
        let reads = (0..100_000)
            .filter(|_| mix.draw(&mut dice) == Operation::Read)
            .count();
        assert!((94_700..95_300).contains(&reads), "{reads}");
    }

    #[test]
    fn a_description_names_shares_distribution_and_start() {
        let workload = &parse("nova-sw50").unwrap()[0];
        let text = workload.describe();
        assert!(text.contains("50 % updates, 50 % scans of 10"), "{text}");
        assert!(text.contains("zipfian, clustered keys"), "{text}");
        let text = parse("ohdb-fillrandom").unwrap()[0].describe();
        assert!(text.contains("from an empty store"), "{text}");
    }
}
