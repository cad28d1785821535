//! Blocks for many point reads at once.
//!
//! The reads are gone through in rounds. In each, every read goes as far down
//! as it gets with the blocks at hand: those in the cache and those of earlier
//! rounds. What it lacks is asked for, and the next read goes on. Between two
//! rounds the blocks asked for are received. A read is answered by the first
//! run that has its key, as always, so rounds change no answer; and as a round
//! brings each read past at least one more block, there are few of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use thermocline_model::{SeqNo, TableId};

use super::Table;
use super::block::Block;
use super::read::TableHit;
use crate::error::Result;
use crate::store::PendingRead;

/// The blocks of one multi-get.
#[derive(Default)]
pub(crate) struct Fetches {
    /// Blocks that were asked for once, of their devices or of the operating
    /// system.
    asked: HashSet<(TableId, usize)>,
    pending: Vec<(Arc<Table>, usize, PendingRead)>,
    /// Kept here too, as the cache may be off or full.
    received: HashMap<(TableId, usize), Arc<Block>>,
}

impl Fetches {
    /// As [`Table::get`], but without waiting for the device: `None` when the
    /// block that may hold `key` is not at hand. It is asked for.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub(crate) fn probe(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        hash: u64,
        snapshot: SeqNo,
    ) -> Result<Option<Option<TableHit>>> {
        let Some(seq) = table.loaded_seq() else {
            return self.probe_stored(table, key, hash, snapshot);
        };
        if seq > snapshot {
            table.count_probe(false);
            return Ok(Some(None));
        }
        let found = self.probe_stored(table, key, hash, SeqNo::MAX)?;
        Ok(found.map(|hit| hit.map(|hit| TableHit { seq, ..hit })))
    }

    fn probe_stored(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        hash: u64,
        snapshot: SeqNo,
    ) -> Result<Option<Option<TableHit>>> {
        let (until, starts_next) = table.index().blocks_until(key, snapshot);
        let block = until.checked_sub(1).filter(|_| !starts_next);
        let Some(block) = block else {
            // A key whose versions fill blocks is left to the waiting read.
            return Ok((until == 0 && !starts_next).then_some(None));
        };
        let probes = table.filter_probes();
        if !table.index().may_contain(block, probes, hash) {
            table.count_probe(true);
            return Ok(Some(None));
        }
        let received = self.received.get(&(table.id(), block));
        let (content, from_device) = match received {
            Some(content) => (Some(Arc::clone(content)), true),
            None => (table.cached(block), false),
        };
        let Some(content) = content else {
            self.ask(table, block);
            return Ok(None);
        };
        table.count_probe(false);
        let hit = table.find_in(content, block, key, snapshot, from_device);
        hit.map(Some)
    }

    fn ask(&mut self, table: &Arc<Table>, block: usize) {
        let place = (table.id(), block);
        if self.asked.contains(&place) {
            return;
        }
        if !table.takes_requests() {
            self.asked.insert(place);
            table.advise(block);
            return;
        }
        let entry = table.index().place(block);
        let length = entry.stored_bytes as usize;
        let buffer = table.cache().buffer(length);
        // Refused, it may be asked for in the next round.
        if let Some(read) = table.request(entry.extent, entry.offset, length, buffer.into()) {
            self.asked.insert(place);
            self.pending.push((Arc::clone(table), block, read));
        }
    }

    /// Waits for what was asked for. Gives whether that was anything.
    ///
    /// # Errors
    /// As [`Table::get`]: those of the first block that failed.
    pub(crate) fn receive(&mut self) -> Result<bool> {
        let any = !self.pending.is_empty();
        for (table, block, read) in std::mem::take(&mut self.pending) {
            let stored = read.wait()?.into_vec();
            table.count_block_read();
            let content = table.decode_read(block, stored, true)?;
            self.received.insert((table.id(), block), content);
        }
        Ok(any)
    }
}
