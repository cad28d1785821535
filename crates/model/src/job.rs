//! Jobs: plain data saying what to do next, and why.

use serde::{Deserialize, Serialize};

use crate::predicted::Predicted;
use crate::range::KeyRange;
use crate::table::TableId;
use crate::tier::{TIERS_MAX, TierId};
use crate::version::{KeyspaceId, Slot, Tiny};

/// Why a job was planned: a rule and the numbers it compared; and what came of it, as far as that
/// can be predicted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// The rule's name, such as `level-full`.
    pub rule: String,
    /// What it compared, each number with its name and unit.
    pub numbers: Vec<(String, f64)>,
    /// What the job is predicted to cost and to gain. Every job that is run has that; what is noted
    /// and is no job has it not.
    #[serde(default)]
    pub predicted: Option<Predicted>,
}

impl Reason {
    /// A reason without numbers.
    #[must_use]
    pub fn new(rule: &str) -> Reason {
        Reason {
            rule: rule.to_string(),
            numbers: Vec::new(),
            predicted: None,
        }
    }

    /// Adds a number.
    #[must_use]
    pub fn with(mut self, name: &str, number: f64) -> Reason {
        self.numbers.push((name.to_string(), number));
        self
    }

    /// Adds two numbers that the rule compared by an equation of its own, and names them so: what
    /// the job costs is in [`Reason::predicted`] alone.
    #[must_use]
    pub fn compared(self, (what, number): (&str, f64), (with, other): (&str, f64)) -> Reason {
        self.with(&format!("compared_{what}"), number)
            .with(&format!("against_{with}"), other)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.rule)?;
        for (i, (name, number)) in self.numbers.iter().enumerate() {
            let open = if i == 0 { " (" } else { ", " };
            write!(f, "{open}{name} {}", rounded(*number))?;
        }
        f.write_str(if self.numbers.is_empty() { "" } else { ")" })?;
        match &self.predicted {
            Some(predicted) => write!(f, ", predicted: {predicted}"),
            None => Ok(()),
        }
    }
}

/// A number with three decimals, or three digits if it is below 1: small sums of
/// money are numbers too.
pub(crate) fn rounded(number: f64) -> f64 {
    let small = number != 0.0 && number.abs() < 1.0;
    let zeros = if small { -number.abs().log10() } else { 0.0 };
    // Beyond these there is nothing to round, or no way to.
    if !(zeros < 200.0 && number.abs() < 1e15) {
        return number;
    }
    let scale = 10f64.powi(3 + zeros.floor() as i32);
    // Nothing is nothing, whichever sign it has.
    (number * scale).round() / scale + 0.0
}

/// What to do next.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Write the sealed memtables of a part into one run of its newest level.
    Flush(Flush),
    /// Make one memtable of the sealed ones of a part, of what survives of their few
    /// keys, and log that anew.
    Fold(Fold),
    /// Merge tables into new ones. A table that overlaps nothing is moved
    /// without being rewritten.
    Merge(Merge),
    /// Copy a table's data to another tier.
    Relocate(Relocate),
    /// Give a keyspace other cuts.
    Recut(Recut),
}

/// See [`Job::Recut`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Recut {
    /// Which keyspace.
    pub keyspace: KeyspaceId,
    /// Its parts from now on, ascending; none where they are to be found from keys
    /// sampled of its memtables.
    pub parts: Vec<NewPart>,
    /// How many memtables may take its writes then, all parts and their duplicates together.
    pub slots: usize,
    /// Why.
    pub reason: Reason,
}

/// A part to be.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NewPart {
    /// Memtables that take its writes beside the first.
    pub duplicates: u32,
    /// Its tiny ranges, ascending; it begins with the first. Never empty.
    pub tiny: Vec<Tiny>,
}

impl NewPart {
    /// Its first key; empty for the first part.
    #[must_use]
    pub fn start(&self) -> &[u8] {
        self.tiny.first().map_or(&[], |t| &t.start)
    }
}

/// See [`Job::Flush`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Flush {
    /// In which keyspace.
    pub keyspace: KeyspaceId,
    /// The part.
    pub part: u32,
    /// Parts that are flushed with it, in one commit.
    pub beside: Vec<u32>,
    /// Whether the memtables that take writes are sealed and flushed too. Those of a part of which
    /// none is sealed are in any case.
    pub active: bool,
    /// Why.
    pub reason: Reason,
}

impl Flush {
    /// All parts that are flushed, in the order of their keys if `beside` is.
    pub fn parts(&self) -> impl Iterator<Item = u32> + '_ {
        let before = self.beside.iter().copied().filter(|&at| at < self.part);
        let behind = self.beside.iter().copied().filter(|&at| at > self.part);
        before.chain([self.part]).chain(behind)
    }
}

/// See [`Job::Fold`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Fold {
    /// In which keyspace.
    pub keyspace: KeyspaceId,
    /// The part.
    pub part: u32,
    /// Whether the memtable that takes writes is sealed and folded too. If none is
    /// sealed it is in any case.
    pub active: bool,
    /// Why.
    pub reason: Reason,
}

/// See [`Job::Merge`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Merge {
    /// In which keyspace.
    pub keyspace: KeyspaceId,
    /// The tables merged, in any order; their place in the version gives
    /// recency.
    pub inputs: Vec<TableId>,
    /// Where the outputs go: into the one run of this slot if it has one, else
    /// into a new run.
    pub output: Slot,
    /// Where the outputs should be cut, in bytes of data.
    pub table_bytes: u64,
    /// Rewrite even tables that overlap nothing (a manual compaction that
    /// should drop deletes).
    pub rewrite: bool,
    /// What goes on below `output` at once.
    pub deeper: Option<Deeper>,
    /// Why.
    pub reason: Reason,
}

/// The keys of a merge whose entries go to a lower slot than those of the others, so that what
/// would be merged down next is not written twice.
///
/// No table that stays between the two slots, or in the upper one below an input, may reach into
/// these intervals; and each input of the lower slot lies in one of them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Deeper {
    /// The slot, below [`Merge::output`].
    pub slot: Slot,
    /// The intervals: ascending, disjoint.
    pub ranges: Vec<KeyRange>,
    /// Bytes of the inputs above `slot` that are reckoned to lie there.
    pub bytes: u64,
}

impl Merge {
    /// The slots that it writes to.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        [self.output]
            .into_iter()
            .chain(self.deeper.iter().map(|d| d.slot))
    }

    /// Where the entries from `low` to before `high` go, where `None` is unbounded. Requires: no
    /// interval of `deeper` begins or ends in between.
    #[must_use]
    pub fn slot_of(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Slot {
        let deeper = self.deeper.iter();
        let mut deeper = deeper.filter(|d| d.ranges.iter().any(|r| r.overlaps_bounds(low, high)));
        deeper.next().map_or(self.output, |d| d.slot)
    }
}

/// See [`Job::Relocate`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Relocate {
    /// In which keyspace.
    pub keyspace: KeyspaceId,
    /// The table.
    pub table: TableId,
    /// Where its data goes.
    pub to: TierId,
    /// Why.
    pub reason: Reason,
}

impl Job {
    /// Why it was planned.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        match self {
            Job::Flush(job) => &job.reason,
            Job::Fold(job) => &job.reason,
            Job::Merge(job) => &job.reason,
            Job::Relocate(job) => &job.reason,
            Job::Recut(job) => &job.reason,
        }
    }

    /// The same, to be added to.
    pub fn reason_mut(&mut self) -> &mut Reason {
        match self {
            Job::Flush(job) => &mut job.reason,
            Job::Fold(job) => &mut job.reason,
            Job::Merge(job) => &mut job.reason,
            Job::Relocate(job) => &mut job.reason,
            Job::Recut(job) => &mut job.reason,
        }
    }

    /// In which keyspace it works.
    #[must_use]
    pub fn keyspace(&self) -> KeyspaceId {
        match self {
            Job::Flush(job) => job.keyspace,
            Job::Fold(job) => job.keyspace,
            Job::Merge(job) => job.keyspace,
            Job::Relocate(job) => job.keyspace,
            Job::Recut(job) => job.keyspace,
        }
    }

    /// A word for messages: `flush`, `fold`, `merge`, `relocate` or `recut`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Job::Flush(_) => "flush",
            Job::Fold(_) => "fold",
            Job::Merge(_) => "merge",
            Job::Relocate(_) => "relocate",
            Job::Recut(_) => "recut",
        }
    }
}

/// Where a new table's bytes should go.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Layout {
    /// The tier of the meta extent.
    pub meta: TierId,
    /// The tier of the data extents.
    pub data: TierId,
    /// The tier that the data belongs on; a faster one than `data` where that
    /// has no room.
    pub wanted: TierId,
    /// The rule that says so.
    pub rule: &'static str,
    /// Whether the data goes to another tier than what it replaces lies on
    /// because of its heat: a merge that is a migration as well.
    pub migrates: bool,
}

/// What a placer knows of a table about to be written.
#[derive(Clone, PartialEq, Debug)]
pub struct NewTable {
    /// In which keyspace.
    pub keyspace: KeyspaceId,
    /// In which slot it will lie.
    pub slot: Slot,
    /// The keys it may hold, if known.
    pub range: Option<KeyRange>,
    /// Its first key, if known.
    pub start: Option<Box<[u8]>>,
    /// About how many bytes it will have.
    pub size_bytes: u64,
    /// The tables it is made from.
    pub parents: Vec<TableId>,
    /// Bytes on each tier that the same job has written before it.
    pub written_bytes: [u64; TIERS_MAX],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_can_be_read() {
        let reason = Reason::new("rule")
            .with("bytes", 1_234_567.0)
            .with("share", 0.12345)
            .with("usd", -0.000_506_713)
            .with("score", 1.23456)
            .with("none", -0.0)
            .with("least", f64::MIN_POSITIVE)
            .with("most", f64::MAX);
        let text = reason.to_string();
        let begins = "rule (bytes 1234567, share 0.123, usd -0.000507, score 1.235, none 0, least ";
        assert!(text.starts_with(begins), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        let odd = Reason::new("odd")
            .with("n", f64::NAN)
            .with("i", f64::INFINITY);
        assert_eq!(odd.to_string(), "odd (n NaN, i inf)");
        let two = Reason::new("two").compared(("reads_s", 2.0), ("merge_s", 1.5));
        let mut told = "two (compared_reads_s 2, against_merge_s 1.5)".to_string();
        assert_eq!(two.to_string(), told);
        let predicted = Some(Predicted::default());
        told.push_str(", predicted: read_bytes 0, written_bytes 0, cost_device_seconds 0");
        assert_eq!(Reason { predicted, ..two }.to_string(), told);
    }
}
