//! What a cursor reads in one go, and what it reads ahead.
//!
//! Consecutive blocks that lie side by side make a span. A cursor holds one
//! span in memory, from which it decodes. Where the operating system does not
//! read ahead and the store has threads for it, the span after it is under way
//! meanwhile. A scan begins with one block, or, if most go further, with several.

use std::sync::Arc;

use thermocline_model::tier::{TIERS_MAX, TierId};

use super::index::{Index, Place};
use super::share::RecentShare;
use super::{READ_AHEAD_BYTES_MAX, Table};
use crate::error::Result;
use crate::store::{Buffer, ObjectReader, PendingRead};

/// Which way a cursor runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Forward,
    Backward,
}

/// Stored bytes of consecutive blocks.
#[derive(Default)]
pub(super) struct Chunk {
    pub(super) bytes: Buffer,
    extent: u16,
    offset: u64,
}

/// Blocks `first..end`, which lie side by side.
#[derive(Clone, Copy)]
pub(super) struct Span {
    extent: u16,
    offset: u64,
    bytes: usize,
    first: usize,
    end: usize,
}

/// A span on its way.
pub(super) struct Ahead {
    span: Span,
    read: PendingRead,
}

/// Of the scans of late that had to read a block, how many then had to read the next one, too: of
/// the tables of each tier together, from which a new table begins. Where most do, the first read
/// of a scan is of several blocks: the second one would cost as much as the first.
#[derive(Debug, Default)]
pub(super) struct GoingOnByTier([RecentShare; TIERS_MAX]);

impl GoingOnByTier {
    /// That of the tables of `tier`.
    pub(super) fn of(&self, tier: TierId) -> &RecentShare {
        &self.0[(tier.0 as usize).min(TIERS_MAX - 1)]
    }
}

impl Table {
    /// Counts a scan that has to read a block.
    pub(super) fn count_scan_begun(&self) {
        self.going_on.begin();
        self.of_tier().begin();
    }

    /// Counts that it has to read the next one, too.
    pub(super) fn count_scan_gone_on(&self) {
        self.going_on.add();
        self.of_tier().add();
    }

    /// Whether most of them do. Short scans that begin in ten runs go on in the one that holds most
    /// of what there is.
    pub(super) fn scans_go_on(&self) -> bool {
        self.going_on.exceeds_one_in(2)
    }

    fn of_tier(&self) -> &RecentShare {
        self.context.going_on.of(self.record.tier())
    }
}

impl Span {
    /// Block `index` and those that lie beside it in the direction of `way`, as
    /// many as `bytes_max` has room for.
    pub(super) fn of(blocks: &Index, index: usize, way: Way, bytes_max: usize) -> Span {
        let entry = blocks.place(index);
        let (mut start, mut stop) = (entry.offset, entry.offset + u64::from(entry.stored_bytes));
        let (mut first, mut end) = (index, index + 1);
        let room = |start: u64, stop: u64| stop - start <= bytes_max as u64;
        match way {
            Way::Forward => {
                for next in (index + 1..blocks.len()).map(|at| blocks.place(at)) {
                    let next_stop = stop + u64::from(next.stored_bytes);
                    if next.extent != entry.extent || next.offset != stop || !room(start, next_stop)
                    {
                        break;
                    }
                    stop = next_stop;
                    end += 1;
                }
            }
            Way::Backward => {
                for before in (0..index).rev().map(|at| blocks.place(at)) {
                    let ends_here = before.offset + u64::from(before.stored_bytes) == start;
                    if before.extent != entry.extent || !ends_here || !room(before.offset, stop) {
                        break;
                    }
                    start = before.offset;
                    first -= 1;
                }
            }
        }
        Span {
            extent: entry.extent,
            offset: start,
            bytes: (stop - start) as usize,
            first,
            end,
        }
    }

    /// Its length in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its blocks.
    pub(super) fn blocks(&self) -> std::ops::Range<usize> {
        self.first..self.end
    }

    /// Whether it is of more than one block.
    pub(super) fn is_of_several(&self) -> bool {
        self.end - self.first > 1
    }

    /// The block that comes after it in the direction of `way`.
    pub(super) fn next(&self, blocks: &Index, way: Way) -> Option<usize> {
        match way {
            Way::Forward => (self.end < blocks.len()).then_some(self.end),
            Way::Backward => self.first.checked_sub(1),
        }
    }
}

impl Table {
    /// Tells the operating system that `span` will be read; of one large block the beginning, as it
    /// may not be wanted.
    pub(super) fn advise_span(&self, span: &Span) {
        let bytes = match span.is_of_several() {
            true => span.bytes,
            false => span.bytes.min(READ_AHEAD_BYTES_MAX),
        };
        self.advise_bytes(span.extent, span.offset, bytes as u64);
    }
}

/// Readers of the extents of a table for a merge, which reads them from end to end.
#[derive(Default)]
pub(super) struct EndToEnd(Vec<Option<Arc<dyn ObjectReader>>>);

impl EndToEnd {
    pub(super) fn of_table(table: &Table) -> EndToEnd {
        let extents = table.extents().iter();
        EndToEnd(extents.map(|(reader, _)| reader.reopened()).collect())
    }

    /// The one of an extent; none where that of all others does as well.
    fn of(&self, extent: u16) -> Option<&Arc<dyn ObjectReader>> {
        self.0.get(usize::from(extent))?.as_ref()
    }

    /// Whether the operating system reads ahead of what is read of `span`.
    pub(super) fn has(&self, span: &Span) -> bool {
        self.of(span.extent).is_some()
    }
}

impl Chunk {
    /// Where the block at `entry` lies in the chunk, if it does.
    pub(super) fn range_of(&self, entry: Place) -> Option<std::ops::Range<usize>> {
        let start = entry.offset.checked_sub(self.offset)?;
        let end = start + u64::from(entry.stored_bytes);
        let inside = entry.extent == self.extent && end <= self.bytes.len() as u64;
        inside.then_some(start as usize..end as usize)
    }

    /// Reads `span` now. After an error the chunk is empty.
    pub(super) fn read(&mut self, table: &Table, span: &Span) -> Result<()> {
        self.read_by(table, &EndToEnd::default(), span)
    }

    /// The same, by `readers` where there are such.
    pub(super) fn read_by(&mut self, table: &Table, readers: &EndToEnd, span: &Span) -> Result<()> {
        self.extent = span.extent;
        self.offset = span.offset;
        self.bytes.resize(span.bytes);
        let read = match readers.of(span.extent) {
            Some(reader) => {
                let (_, place) = &table.extents()[usize::from(span.extent)];
                let offset = place.offset + span.offset;
                reader.read_at(offset, &mut self.bytes)
            }
            None => table.read_at(span.extent, span.offset, &mut self.bytes),
        };
        if read.is_err() {
            self.bytes.clear();
        }
        read
    }
}

impl Ahead {
    /// Asks for `span`. None when that is refused.
    pub(super) fn request(table: &Table, span: Span, buffer: Buffer) -> Option<Ahead> {
        let read = table.request(span.extent, span.offset, span.bytes, buffer)?;
        Some(Ahead { span, read })
    }

    /// Whether block `index` is on its way.
    pub(super) fn holds(&self, index: usize) -> bool {
        (self.span.first..self.span.end).contains(&index)
    }

    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// The chunk, once it is there.
    pub(super) fn wait(self) -> Result<Chunk> {
        Ok(Chunk {
            bytes: self.read.wait()?,
            extent: self.span.extent,
            offset: self.span.offset,
        })
    }
}
