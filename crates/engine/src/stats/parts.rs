//! The parts of a keyspace: where they are cut, what they hold, what they are
//! written.

use std::fmt;

use serde::Serialize;
use thermocline_model::version::Keyspace;

use super::human_bytes;
use crate::engine::ReadView;
use crate::sync::atomic::Ordering;

/// Parts that the display lists; of more it says how many there are.
const LISTED_MAX: usize = 64;

/// One part of a keyspace. See [`KeyspaceStats`](super::KeyspaceStats).
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # use thermocline::{Db, Options};
/// let db = Db::open(Options::at(directory.path()).cuts(vec![b"m".to_vec()]))?;
/// db.put(b"apple", b"red")?;
/// let parts = &db.stats().keyspaces[0].part_list;
/// assert_eq!((&*parts[0].start, &*parts[1].start), ("", "m"));
/// assert_eq!((parts[0].write_share, parts[1].write_share), (1.0, 0.0));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct PartStats {
    /// The cut it begins at, escaped; empty for the first.
    pub start: String,
    /// Memtables, the one that takes writes included.
    pub memtables: u64,
    /// Their bytes.
    pub memtable_bytes: u64,
    /// Runs in its newest level.
    pub runs: u64,
    /// Tables in its newest level.
    pub tables: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Of what was written to the keyspace since it was opened or cut, the share
    /// that went here, by the bytes of memtables, from 0 to 1. Where cuts move: of the writes
    /// counted, among which old ones weigh less.
    pub write_share: f64,
    /// Memtables that take writes beside the first.
    pub duplicates: u64,
    /// Tiny ranges, each with a counter of its own; none where cuts do not move.
    pub tiny_ranges: u64,
}

impl PartStats {
    /// Of a keyspace, as `view` has it in memory and `keyspace` in tables. A keyspace
    /// that is cut just now may be missing parts.
    pub(crate) fn of(view: &ReadView, keyspace: &Keyspace) -> Vec<PartStats> {
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
                memtable_bytes: memory.memtables().map(|m| m.size_share() as u64).sum(),
                runs: part.newest.runs.len() as u64,
                tables: part.newest.table_count() as u64,
                bytes: part.newest.size_bytes(),
                write_share: written as f64 / all.max(1) as f64,
                duplicates: memory.twins.len() as u64,
                tiny_ranges: memory.tiny.as_ref().map_or(0, |t| t.starts().len() as u64),
            })
            .collect()
    }
}

/// A line for each part, where there are several.
pub(super) fn display(parts: &[PartStats], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if parts.len() < 2 {
        return Ok(());
    }
    writeln!(
        f,
        "{:<7} {:>4} {:>7} {:>10} {:>9} {:>11} {:>10} {:>5} {:>10}  begins at",
        "part",
        "runs",
        "tables",
        "bytes",
        "memtables",
        "in memory",
        "duplicates",
        "tiny",
        "of writes"
    )?;
    for (at, part) in parts.iter().enumerate().take(LISTED_MAX) {
        writeln!(
            f,
            "{:<7} {:>4} {:>7} {:>10} {:>9} {:>11} {:>10} {:>5} {:>9.1}%  {}",
            at,
            part.runs,
            part.tables,
            human_bytes(part.bytes),
            part.memtables,
            human_bytes(part.memtable_bytes),
            part.duplicates,
            part.tiny_ranges,
            part.write_share * 100.0,
            part.start
        )?;
    }
    match parts.len().saturating_sub(LISTED_MAX) {
        0 => Ok(()),
        more => writeln!(f, "and {more} more"),
    }
}
