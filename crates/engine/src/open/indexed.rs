//! The lookup index over an opening (Nova-LSM, section 4.5).
//!
//! What the log has is noted as it is replayed. The keys of the newest runs are read from their
//! tables, newest run first, where the index is in use and as many keys as it has room for: more
//! would push each other out. What is not read, or cannot be, is searched as without it until
//! merges have taken it away.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_model::table::TableId;
use thermocline_model::version::{Keyspace, Run};
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::Engine;
use crate::error::Result;
use crate::table::ReadMode;
use crate::version::tree::OpenTable;

impl Engine {
    /// Opens the tables of newest runs of `keyspace` that the index can know, and has it know them.
    /// Takes what they need from `room`, in keys, and gives how many keys were read.
    pub(super) fn index_newest(
        &self,
        keyspace: &Keyspace,
        room: &mut u64,
        known: &mut BTreeMap<TableId, Arc<OpenTable>>,
    ) -> u64 {
        let mut read = 0;
        for part in &keyspace.parts {
            let runs = &part.newest.runs;
            if !self.lookup.is_wanted_of(runs.len()) {
                continue;
            }
            let fits = |run: &&Run| {
                let left = room.checked_sub(run.tables.iter().map(|t| t.entries).sum());
                *room = left.unwrap_or(*room);
                left.is_some()
            };
            let runs: Vec<&Run> = runs.iter().take_while(fits).collect();
            let stamps = self.lookup.stamps_of(runs.len());
            for (run, stamp) in runs.into_iter().zip(stamps.rev()) {
                let Ok((tables, keys)) = self.index_run(run, stamp) else {
                    break;
                };
                known.extend(tables.into_iter().map(|t| (t.meta.id, t)));
                read += keys;
            }
        }
        read
    }

    fn index_run(&self, run: &Run, stamp: u64) -> Result<(Vec<Arc<OpenTable>>, u64)> {
        let mut keys = 0;
        let mut tables = Vec::with_capacity(run.tables.len());
        for meta in &run.tables {
            let table = OpenTable::new(Arc::clone(meta), &self.home, None)?.with_stamp(stamp);
            let mut cursor = table.table()?.cursor(ReadMode::MERGE);
            cursor.seek_first()?;
            while cursor.valid() {
                self.lookup.enter(xxh3_64(cursor.key()), stamp);
                keys += 1;
                cursor.next()?;
            }
            if meta.range_deletes > 0 {
                self.lookup.note_cover(stamp);
            }
            tables.push(Arc::new(table));
        }
        Ok((tables, keys))
    }
}
