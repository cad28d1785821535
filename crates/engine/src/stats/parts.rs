//! The parts of a keyspace: where they are cut, what they hold, what they are
//! written.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use thermocline_model::version::Keyspace;
use thermocline_policy::plan::major::imbalance;

use super::human_bytes;
use crate::engine::ReadView;
use crate::sync::atomic::Ordering;

/// Parts that the display lists; of more it says how many there are.
const LISTED_MAX: usize = 64;

/// Bytes of an escaped cut that the display shows.
const START_SHOWN: usize = 40;

/// One part of a keyspace. See [`KeyspaceStats`](super::KeyspaceStats).
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # use thermocline::{Db, Options};
/// let db = Db::open(Options::at(directory.path()).cuts(vec![b"m".to_vec()]))?;
/// db.put(b"apple", b"red")?;
/// let parts = &db.stats().keyspaces[0].part_list;
/// assert_eq!((&*parts[0].start, &*parts[1].start), ("", "m"));
/// assert_eq!((parts[0].write_share, parts[1].write_share), (Some(1.0), Some(0.0)));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PartStats {
    /// The cut it begins at, escaped; empty for the first.
    pub start: String,
    /// Memtables, the one that takes writes included.
    pub memtables: u64,
    /// Of these, sealed ones: at most [`crate::Options::sealed_memtables_max`].
    pub sealed_memtables: u64,
    /// Bytes of all of them.
    pub memtable_bytes: u64,
    /// Memory of all of them, in bytes, whole of those that other parts have as well: at most
    /// [`crate::Options::part_memory_bytes_max`].
    #[serde(default)]
    pub memory_bytes: u64,
    /// Runs in its newest level.
    pub runs: u64,
    /// Tables in its newest level.
    pub tables: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Of what was written to the keyspace since it was opened or cut, the share
    /// that went here, by the bytes of memtables, from 0 to 1. Where cuts move: of the writes
    /// counted, among which old ones weigh less. None until something is written.
    pub write_share: Option<f64>,
    /// Memtables that take writes beside the first.
    pub duplicates: u64,
    /// Tiny ranges, each with a counter of its own; none where cuts do not move.
    pub tiny_ranges: u64,
}

impl PartStats {
    /// Of the parts of a keyspace, the standard deviation of the shares of the writes of the
    /// memtables that take them, duplicates included (Nova-LSM, section 8.2.1); none until
    /// something is written.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # use thermocline::{Db, Options, PartStats};
    /// let db = Db::open(Options::at(directory.path()).cuts(vec![b"m".to_vec()]))?;
    /// let imbalance = || PartStats::imbalance(&db.stats().keyspaces[0].part_list);
    /// assert_eq!(imbalance(), None);
    /// db.put(b"apple", b"red")?;
    /// assert_eq!(imbalance(), Some(0.5));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn imbalance(parts: &[PartStats]) -> Option<f64> {
        parts.iter().find_map(|part| part.write_share)?;
        let of = |part: &PartStats| {
            let memtables = part.duplicates as usize + 1;
            let share = part.write_share.unwrap_or(0.0);
            std::iter::repeat_n(share / memtables as f64, memtables)
        };
        let shares: Vec<f64> = parts.iter().flat_map(of).collect();
        Some(imbalance(&shares))
    }

    /// Of a keyspace, as `view` has it in memory and `keyspace` in tables. A keyspace that is cut
    /// just now may be missing parts. What memtables hold tells how much was written only where
    /// anything was (`is_written`): else it is what a recovery found.
    pub(crate) fn of(view: &ReadView, keyspace: &Keyspace, is_written: bool) -> Vec<PartStats> {
        let written: Vec<u64> = view
            .parts
            .iter()
            .map(|part| {
                if let Some(tiny) = &part.tiny {
                    return tiny.total();
                }
                let held = part.memtables().filter(|m| !m.is_empty());
                let held: usize = held.map(|m| m.size_share()).sum();
                held as u64 + part.flushed_bytes.load(Ordering::Relaxed)
            })
            .collect();
        let all: u64 = written.iter().sum();
        let counts = view.parts.iter().any(|part| part.tiny.is_some());
        let tells = all > 0 && (is_written || counts);
        let parts = view.parts.iter().zip(&keyspace.parts).zip(&written);
        parts
            .enumerate()
            .map(|(at, ((memory, part), &written))| PartStats {
                start: view
                    .cuts
                    .interval(at)
                    .0
                    .map_or_else(String::new, |cut| cut.escape_ascii().to_string()),
                memtables: memory.memtables().count() as u64,
                sealed_memtables: memory.sealed.len() as u64,
                memtable_bytes: memory.memtables().map(|m| m.size_share() as u64).sum(),
                memory_bytes: memory.memtables().map(|m| m.memory_bytes()).sum(),
                runs: part.newest.runs.len() as u64,
                tables: part.newest.table_count() as u64,
                bytes: part.newest.size_bytes(),
                write_share: tells.then(|| written as f64 / all as f64),
                duplicates: memory.twins.len() as u64,
                tiny_ranges: memory.tiny.as_ref().map_or(0, |t| t.starts().len() as u64),
            })
            .collect()
    }
}

/// A cut as far as a line has room for it. Requires: it is escaped.
fn shortened(start: &str) -> Cow<'_, str> {
    match start.get(..START_SHOWN) {
        Some(begin) if start.len() > START_SHOWN => Cow::Owned(format!("{begin}...")),
        _ => Cow::Borrowed(start),
    }
}

/// A line for each part, where there is anything to tell apart.
pub(super) fn display(parts: &[PartStats], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let is_plain = |part: &PartStats| part.duplicates == 0 && part.tiny_ranges < 2;
    if parts.len() < 2 && parts.iter().all(is_plain) {
        return Ok(());
    }
    writeln!(
        f,
        "{:<7} {:>4} {:>7} {:>10} {:>9} {:>6} {:>11} {:>10} {:>5} {:>10}  begins at",
        "part",
        "runs",
        "tables",
        "bytes",
        "memtables",
        "sealed",
        "in memory",
        "duplicates",
        "tiny",
        "of writes"
    )?;
    for (at, part) in parts.iter().enumerate().take(LISTED_MAX) {
        let of_writes = part
            .write_share
            .map_or("-".to_string(), |share| format!("{:.1}%", share * 100.0));
        writeln!(
            f,
            "{:<7} {:>4} {:>7} {:>10} {:>9} {:>6} {:>11} {:>10} {:>5} {:>10}  {}",
            at,
            part.runs,
            part.tables,
            human_bytes(part.bytes),
            part.memtables,
            part.sealed_memtables,
            human_bytes(part.memtable_bytes),
            part.duplicates,
            part.tiny_ranges,
            of_writes,
            shortened(&part.start)
        )?;
    }
    match parts.len().saturating_sub(LISTED_MAX) {
        0 => Ok(()),
        more => writeln!(f, "and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: &str, duplicates: u64, write_share: Option<f64>) -> PartStats {
        PartStats {
            start: start.to_string(),
            memtables: 1,
            sealed_memtables: 0,
            memtable_bytes: 0,
            memory_bytes: 0,
            runs: 0,
            tables: 0,
            bytes: 0,
            write_share,
            duplicates,
            tiny_ranges: 1,
        }
    }

    struct Shown(Vec<PartStats>);

    impl fmt::Display for Shown {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            display(&self.0, f)
        }
    }

    // One hot key with seven duplicates was shown as a keyspace of one part and nothing else; a cut
    // of 200 bytes made lines of 300 columns.
    #[test]
    fn what_there_is_to_tell_is_shown_within_a_line() {
        assert_eq!(Shown(vec![part("", 0, None)]).to_string(), "");
        let shown = Shown(vec![part("", 7, Some(1.0))]).to_string();
        assert!(
            shown.contains("100.0%") && shown.lines().count() == 2,
            "{shown}"
        );
        let long = "k".repeat(200);
        let shown = Shown(vec![part("", 0, None), part(&long, 0, None)]).to_string();
        assert!(shown.lines().all(|line| line.len() < 140), "{shown}");
        assert!(
            shown.contains("kkk...") && shown.contains(" -  "),
            "{shown}"
        );
    }

    #[test]
    fn a_duplicated_part_counts_as_often_as_it_has_memtables() {
        let imbalance = |parts: [(f64, u64); 2]| {
            let parts = parts.map(|(share, duplicates)| part("", duplicates, Some(share)));
            PartStats::imbalance(&parts)
        };
        // Four memtables with a quarter each.
        assert_eq!(imbalance([(0.75, 2), (0.25, 0)]), Some(0.0));
        assert_eq!(imbalance([(0.75, 0), (0.25, 0)]), Some(0.25));
    }
}
