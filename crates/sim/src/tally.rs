//! What was done: the counts that tests and the prover print.

use std::collections::BTreeMap;
use std::fmt;

/// Counts of a run. Adds up with [`Tally::add`].
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Answers of the store that were compared with the oracle's: each entry
    /// read by key, each entry of a scan, each acknowledged or refused write.
    pub operations: u64,
    /// Crashes of process or machine that were recovered from.
    pub crashes: u64,
    /// Faults injected, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Damaged stores that were opened, verified and repaired.
    pub corruptions: u64,
}

impl Tally {
    /// One fault of `kind`.
    pub fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// Adds what another run did.
    pub fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.crashes += other.crashes;
        self.corruptions += other.corruptions;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations verified, {} crashes recovered, {} corruptions tried, faults:",
            self.operations, self.crashes, self.corruptions
        )?;
        if self.faults.is_empty() {
            return f.write_str(" none");
        }
        for (kind, count) in &self.faults {
            write!(f, " {kind} {count}")?;
        }
        Ok(())
    }
}
