//! The engine as the commands use it: the names they need and the few calls
//! whose shape is the engine's business rather than a command's.
//!
//! Every command names the engine through this file, so that a change of the
//! engine's face is answered here and nowhere else.

use std::ops::Bound;

pub(crate) use thermocline::cost_model;
pub(crate) use thermocline::{
    DEFAULT_KEYSPACE, Db, DeviceProfile, EVENT_JOBS, Error, ErrorKind, Event, EventReader,
    Forecast, Keyspace, OPTIONS_FILE, Options, PartsPulse, Phase, Progress, Pulse, Result, Stats,
    StoreLock, TableInfo, Tier, Tuned, WhatIf, explain, explain_range, forecast, human_bytes,
    presets, pulse, repair_with, stats, tables, tune, verify_with,
};
use thermocline::{DumpOptions, Durability, KeyspaceOptions, WriteBatch, WriteOptions, dump};

/// The keyspace `name`, created where the store is open for writing and does
/// not have it.
pub(crate) fn keyspace_or_new(db: &Db, name: &str) -> Result<Keyspace> {
    match db.keyspace(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            db.create_keyspace(name, KeyspaceOptions::default())
        }
        other => other,
    }
}

/// A set of changes that becomes durable as a whole.
pub(crate) struct Changes<'a> {
    space: &'a Keyspace,
    batch: WriteBatch,
}

impl<'a> Changes<'a> {
    /// No changes yet.
    pub(crate) fn of(space: &'a Keyspace) -> Changes<'a> {
        Changes {
            space,
            batch: WriteBatch::new(),
        }
    }

    /// Adds a put.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put_in(self.space, key, value)
    }

    /// Adds a delete.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.batch.delete_in(self.space, key)
    }

    /// Adds a delete of every key from `start` up to `end`, exclusive.
    pub(crate) fn delete_range(&mut self, start: &[u8], end: &[u8]) -> Result<()> {
        self.batch.delete_range_in(self.space, start, end)
    }

    /// The number of changes.
    pub(crate) fn len(&self) -> usize {
        self.batch.len()
    }

    /// Writes the changes; on return the device has them.
    pub(crate) fn write_durably(self, db: &Db) -> Result<()> {
        let options = WriteOptions::default().durability(Durability::Device);
        db.write_with(&self.batch, options)
    }

    /// Writes the changes at the store's own durability.
    pub(crate) fn write(self, db: &Db) -> Result<()> {
        db.write(&self.batch)
    }
}

/// An interval of keys and the direction in which it is read.
pub(crate) struct Scan<'a> {
    pub(crate) start: Bound<&'a [u8]>,
    pub(crate) end: Bound<&'a [u8]>,
    pub(crate) reverse: bool,
}

/// Calls `visit` with the entries of `scan` in order until it answers `false`.
pub(crate) fn scan<E: From<Error>>(
    space: &Keyspace,
    scan: &Scan<'_>,
    mut visit: impl FnMut(&[u8], &[u8]) -> std::result::Result<bool, E>,
) -> std::result::Result<(), E> {
    let mut iter = space.range(scan.start, scan.end)?;
    if scan.reverse {
        iter.seek_to_last()?;
    } else {
        iter.seek_to_first()?;
    }
    while iter.valid() && visit(iter.key(), iter.value())? {
        if scan.reverse {
            iter.prev()?;
        } else {
            iter.next()?;
        }
    }
    Ok(())
}

/// Prints the file at `path` in words.
pub(crate) fn dump_file(
    path: &std::path::Path,
    out: &mut dyn std::io::Write,
    entries: bool,
) -> Result<()> {
    dump(path, out, &DumpOptions { entries })
}

/// The number of levels on each tier; one that spans tiers counts where most of its
/// bytes lie.
pub(crate) fn levels_by_tier(db: &Db) -> Vec<u32> {
    let stats = db.stats();
    let mut levels = vec![0; stats.tiers.len()];
    for level in stats.keyspaces.iter().flat_map(|space| &space.levels) {
        let most = (0..level.tier_bytes.len()).max_by_key(|&at| level.tier_bytes[at]);
        if let Some(count) = most.and_then(|at| levels.get_mut(at)) {
            *count += 1;
        }
    }
    levels
}

/// Whether a repair saved everything.
pub(crate) fn is_complete(report: &thermocline::RepairReport) -> bool {
    report.lost.is_empty()
}
