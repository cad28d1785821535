//! A position in a table.
//!
//! Blocks come from the cache, or from the device one by one, or, when the cursor runs through the
//! table, many at a time: consecutive blocks that lie side by side are read in one go and verified
//! one by one. A merge asks for that from the start and leaves the cache alone; a scan changes over
//! after its first block that was not in the cache, or, where most scans of late wanted a second
//! one, begins with several: with no more than the device transfers in the time of a request. The
//! operating system is told what comes after that, and reads nothing ahead by itself: it takes two
//! blocks in a row for a file read from end to end.
//!
//! Where the operating system does not read ahead, the store's own threads do
//! ([`crate::store::Readers`]): the span after the present one is on its way while this one is
//! consumed, and in a merge, after the last one, the first of the run's next table. An error of
//! such a read is reported, in a merge, when a block of it is needed; a scan reads the blocks of
//! that span alone. A cursor that leaves, or is dropped, lets go of it.

use std::sync::Arc;

use thermocline_model::{Kind, SeqNo};

use super::Table;
use super::ahead::{Ahead, Chunk, EndToEnd, Span, Way};
use super::block::{Block, BlockSlice, kind_of};
use super::block_cursor::BlockCursor;
use super::mode::{READ_AHEAD_BYTES_MAX, ReadMode};
use crate::error::{Error, Result};
use crate::store::Buffer;

/// Blocks in a row, not in the cache, after which a scan reads ahead, where not most begin with
/// that.
const MISSES_MAX: u32 = 1;

/// A position in a table. A new cursor is not valid; after an error it is not
/// either.
pub struct TableCursor {
    table: Arc<Table>,
    loaded_seq: Option<SeqNo>,
    mode: ReadMode,
    block_index: usize,
    /// The block the cursor is in; `None` when it is not valid.
    block: Option<Arc<Block>>,
    at: BlockCursor,
    chunk: Chunk,
    /// Blocks that were not in the cache, since it was last begun slowly.
    misses: u32,
    /// Bytes of cached blocks in a row.
    cached_bytes: usize,
    reach: Reach,
    /// Whether it goes on where another has ended, which counted.
    is_continued: bool,
    /// Whether it keeps the pace of that one when it is positioned next.
    keeps_pace: bool,
    /// Of several blocks, bytes read since it was positioned.
    passed_bytes: usize,
    /// Bytes of the next read of several blocks.
    ahead_bytes: usize,
    /// Whether spans can be asked for ahead of need.
    streams: bool,
    /// Of a merge.
    readers: EndToEnd,
    /// Blocks that could not be read together: each is read alone.
    alone: std::ops::Range<usize>,
    /// The span that will be needed next.
    ahead: Option<Ahead>,
    /// A buffer for the next one.
    spare: Buffer,
    /// Whether a merge has asked for the last span, and the next table has not been told.
    ends_soon: bool,
}

/// How far a scan has come since it was last positioned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It has read nothing.
    Nothing,
    /// It had to read the block that it is in.
    First,
    /// It has wanted more.
    Further,
}

impl Table {
    /// A cursor, not yet anywhere.
    #[must_use]
    pub fn cursor(self: &Arc<Self>, mode: ReadMode) -> TableCursor {
        // What a merge reads is no use of the table.
        if mode.fill_cache {
            self.count_cursor();
        }
        let streams = self.takes_requests();
        let readers = match mode.read_ahead_bytes {
            0 => EndToEnd::default(),
            _ => EndToEnd::of_table(self),
        };
        TableCursor {
            table: Arc::clone(self),
            loaded_seq: self.loaded_seq(),
            mode,
            block_index: 0,
            block: None,
            at: BlockCursor::default(),
            chunk: Chunk::default(),
            misses: 0,
            cached_bytes: 0,
            reach: Reach::Nothing,
            is_continued: false,
            keeps_pace: false,
            passed_bytes: 0,
            ahead_bytes: self.first_bytes(mode, streams),
            streams,
            readers,
            alone: 0..0,
            ahead: None,
            spare: Buffer::default(),
            ends_soon: false,
        }
    }
}

impl TableCursor {
    /// The table.
    #[must_use]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether the cursor is at an entry.
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.block.is_some()
    }

    /// The entry's key. Requires: the cursor is valid, as for all of the entry.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        debug_assert!(self.valid());
        self.at.key()
    }

    /// The entry's number.
    #[inline]
    #[must_use]
    pub fn seq(&self) -> SeqNo {
        self.loaded_seq.unwrap_or(SeqNo(self.at.tag() >> 1))
    }

    /// The entry's kind.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> Kind {
        kind_of(self.at.tag())
    }

    /// The entry's value; empty for a delete.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        let (start, end) = self.at.value();
        self.block
            .as_ref()
            .map_or(&[], |block| &block.bytes()[start..end])
    }

    /// The entry's value, which keeps its block in memory. Requires: the cursor
    /// is valid.
    #[must_use]
    pub fn value_slice(&self) -> BlockSlice {
        let block = self
            .block
            .as_ref()
            .expect("the caller saw that the cursor is valid");
        let (start, end) = self.at.value();
        BlockSlice::new(Arc::clone(block), start, end)
    }

    /// The block the cursor is in, decoded; `None` when it is not valid.
    pub(crate) fn block(&self) -> Option<&Block> {
        self.block.as_deref()
    }

    /// The last key of the block the cursor is in. Requires: the cursor is valid.
    pub(crate) fn block_last_key(&self) -> Result<Vec<u8>> {
        let mut at = BlockCursor::default();
        let found = self.block.as_ref().and_then(|block| at.enter_last(block));
        let broken = || {
            let what = "its entries make no sense";
            self.table.block_error(self.block_index, what)
        };
        found.ok_or_else(broken)?;
        Ok(at.into_key())
    }

    /// The number of the block the cursor is in. Requires: the cursor is valid.
    #[must_use]
    pub fn block_index(&self) -> usize {
        self.block_index
    }

    /// Whether the cursor is at the first entry of a block.
    #[must_use]
    pub fn at_block_start(&self) -> bool {
        self.valid() && self.at.index() == 0
    }

    /// To the first entry.
    ///
    /// # Errors
    /// `Corruption` and I/O errors, as for all movements.
    pub fn seek_first(&mut self) -> Result<()> {
        self.begin();
        self.enter_first(0, Way::Forward)
    }

    /// To the last entry.
    ///
    /// # Errors
    /// See [`TableCursor::seek_first`].
    pub fn seek_last(&mut self) -> Result<()> {
        self.begin();
        self.enter_last(self.table.block_count())
    }

    /// To the first entry at or after `(key, seq)`.
    ///
    /// # Errors
    /// See [`TableCursor::seek_first`].
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.begin();
        let seq = self.table.stored_seq(seq);
        let (until, _) = self.table.index().blocks_until(key, seq);
        let Some(index) = until.checked_sub(1) else {
            return self.enter_first(0, Way::Forward);
        };
        let block = self.open(index, Way::Forward)?;
        match self.at.seek(&block, key, seq) {
            Some(true) => {
                self.block = Some(block);
                Ok(())
            }
            Some(false) => self.enter_first(until, Way::Forward),
            None => Err(self.broken(index)),
        }
    }

    /// To the last entry before `(key, seq)`.
    ///
    /// # Errors
    /// See [`TableCursor::seek_first`].
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.begin();
        let seq = self.table.stored_seq(seq);
        let (until, _) = self.table.index().blocks_until(key, seq);
        let Some(index) = until.checked_sub(1) else {
            self.block = None;
            return Ok(());
        };
        let block = self.open(index, Way::Backward)?;
        match self.at.seek(&block, key, seq) {
            Some(true) => {
                self.block = Some(block);
                self.prev()
            }
            // The cursor stayed at the block's last entry.
            Some(false) => {
                self.block = Some(block);
                Ok(())
            }
            None => Err(self.broken(index)),
        }
    }

    /// About to be positioned: what it read before says nothing of how far it goes now.
    fn begin(&mut self) {
        self.reach = Reach::Nothing;
        self.is_continued = std::mem::take(&mut self.keeps_pace);
        if !self.is_continued {
            self.begin_slowly();
        }
    }

    /// The next read is of one block, or, where most scans go on, of a few.
    fn begin_slowly(&mut self) {
        self.misses = 0;
        self.cached_bytes = 0;
        self.passed_bytes = 0;
        self.ahead_bytes = self.table.first_bytes(self.mode, self.streams);
    }

    /// To the next entry. Requires: the cursor is valid.
    ///
    /// # Errors
    /// See [`TableCursor::seek_first`].
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "cursors move both ways and may fail"
    )]
    pub fn next(&mut self) -> Result<()> {
        let Some(block) = &self.block else {
            return Ok(());
        };
        match self.at.next(block) {
            Some(true) => Ok(()),
            Some(false) => self.enter_first(self.block_index + 1, Way::Forward),
            None => Err(self.broken(self.block_index)),
        }
    }

    /// To the entry before. Requires: the cursor is valid.
    ///
    /// # Errors
    /// See [`TableCursor::seek_first`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        let Some(block) = &self.block else {
            return Ok(());
        };
        match self.at.prev(block) {
            Some(true) => Ok(()),
            Some(false) => self.enter_last(self.block_index),
            None => Err(self.broken(self.block_index)),
        }
    }

    /// To the first entry of the next block: past a block that was copied
    /// undecoded. Requires: the cursor is valid.
    ///
    /// # Errors
    /// See [`TableCursor::seek_first`].
    pub fn skip_block(&mut self) -> Result<()> {
        self.enter_first(self.block_index + 1, Way::Forward)
    }

    /// The stored bytes of the block the cursor is in, verified. Taken from
    /// what was read ahead where possible. Requires: the cursor is valid.
    ///
    /// # Errors
    /// See [`TableCursor::seek_first`].
    pub fn block_stored(&self) -> Result<std::borrow::Cow<'_, [u8]>> {
        match self.in_chunk(self.block_index) {
            Some(range) => {
                let stored = &self.chunk.bytes[range];
                self.table.check_stored(self.block_index, stored)?;
                Ok(stored.into())
            }
            None => Ok(self.table.read_block_stored(self.block_index)?.into()),
        }
    }

    /// To the first entry of block `index`, if there is such a block.
    fn enter_first(&mut self, index: usize, way: Way) -> Result<()> {
        if index >= self.table.block_count() {
            self.block = None;
            return Ok(());
        }
        let block = self.open(index, way)?;
        if self.at.enter_first(&block).is_none() {
            return Err(self.broken(index));
        }
        self.block = Some(block);
        Ok(())
    }

    /// To the last entry of the block before `end`, if there is one.
    fn enter_last(&mut self, end: usize) -> Result<()> {
        let Some(index) = end.checked_sub(1) else {
            self.block = None;
            return Ok(());
        };
        let block = self.open(index, Way::Backward)?;
        if self.at.enter_last(&block).is_none() {
            return Err(self.broken(index));
        }
        self.block = Some(block);
        Ok(())
    }

    #[cold]
    fn broken(&mut self, index: usize) -> Error {
        self.block = None;
        self.table.block_error(index, "its entries make no sense")
    }

    /// Block `index`. The cursor is invalid until it has a position in it.
    fn open(&mut self, index: usize, way: Way) -> Result<Arc<Block>> {
        let left = self.block.take();
        if let Some(block) = &left
            && self.block_index == index
        {
            return Ok(Arc::clone(block));
        }
        self.at.leave();
        self.block_index = index;
        let reads_ahead = self.mode.read_ahead_bytes > 0;
        if reads_ahead {
            if self.in_chunk(index).is_none() && !self.take_ahead(index, way)? {
                self.read_chunk(index, way)?;
            }
            return self.decode_in_chunk(index, left);
        }
        let goes_on = self.reach == Reach::First;
        if goes_on {
            self.reach = Reach::Further;
        }
        if let Some(block) = self.table.cached(index) {
            // One that was read with its neighbours says nothing of what comes behind them.
            if self.in_chunk(index).is_none() {
                self.pass_cached(index);
            }
            return Ok(block);
        }
        self.cached_bytes = 0;
        // Where the next one is cached, nothing is saved by reading it along.
        if goes_on {
            self.table.count_scan_gone_on();
        }
        if self.in_chunk(index).is_none() {
            self.misses = self.misses.saturating_add(1);
            if self.reach == Reach::Nothing && !self.is_continued {
                self.reach = Reach::First;
                self.table.count_scan_begun();
            }
            if !self.take_ahead(index, way)? {
                if self.misses <= MISSES_MAX && !self.table.scans_go_on() {
                    return self.table.load_block(index, self.mode.fill_cache);
                }
                return self.open_with_neighbours(index, way, left);
            }
        }
        self.decode_in_chunk(index, left)
    }

    /// Block `index` is cached. Reading a few such along costs less than beginning anew behind each
    /// of them; where they are more than a first read takes, what comes behind is as unknown as
    /// after a search.
    fn pass_cached(&mut self, index: usize) {
        let stored_bytes = self.table.index().place(index).stored_bytes as usize;
        self.cached_bytes = self.cached_bytes.saturating_add(stored_bytes);
        if self.cached_bytes >= self.table.first_bytes(self.mode, self.streams) {
            self.begin_slowly();
        }
    }

    /// Block `index`, read with those beside it in the direction of `way`; alone, if that fails:
    /// perhaps by one that nobody wants.
    fn open_with_neighbours(
        &mut self,
        index: usize,
        way: Way,
        left: Option<Arc<Block>>,
    ) -> Result<Arc<Block>> {
        if !self.alone.contains(&index) {
            let blocks = self.span_of(index, way).blocks();
            match self.read_chunk(index, way) {
                Ok(()) => return self.decode_in_chunk(index, left),
                Err(_) => self.alone = blocks,
            }
        }
        self.table.load_block(index, self.mode.fill_cache)
    }

    /// Where block `index` lies in the chunk, if it does.
    fn in_chunk(&self, index: usize) -> Option<std::ops::Range<usize>> {
        self.chunk.range_of(self.table.index().place(index))
    }

    /// Reads block `index` and those beside it in the direction of `way`; what
    /// comes after them is asked for first where spans can be, once the cursor has come far.
    fn read_chunk(&mut self, index: usize, way: Way) -> Result<()> {
        let table = Arc::clone(&self.table);
        let span = self.span_of(index, way);
        self.grow(&span);
        self.ahead = None;
        if self.streams && self.has_come_far(&span) {
            self.ask_behind(&span, way);
        }
        let is_first = self.mode.read_ahead_bytes > 0 && self.chunk.bytes.is_empty();
        if is_first && !self.streams && !self.readers.has(&span) {
            // Nobody has asked for it: where the system reads nothing ahead, it would be read page
            // by page.
            table.advise_span(&span);
        }
        self.chunk.read_by(&table, &self.readers, &span)?;
        // A scan that has come so far goes on.
        let begun = self.misses > MISSES_MAX + 1 || self.mode.read_ahead_bytes > 0;
        if begun
            && self.ahead.is_none()
            && !self.readers.has(&span)
            && let Some(next) = span.next(table.index(), way)
            && (self.mode.read_ahead_bytes > 0 || !table.is_cached(next))
        {
            table.advise_span(&self.span_of(next, way));
        }
        Ok(())
    }

    /// Takes what was read ahead, if block `index` is in it, and asks for what
    /// comes after it in the direction of `way`.
    fn take_ahead(&mut self, index: usize, way: Way) -> Result<bool> {
        // What is on its way to elsewhere is let go.
        let Some(ahead) = self.ahead.take().filter(|ahead| ahead.holds(index)) else {
            return Ok(false);
        };
        let begun = self.misses > 1 || self.mode.read_ahead_bytes > 0;
        if begun || ahead.span().is_of_several() {
            self.grow(&ahead.span());
        }
        if self.has_come_far(&ahead.span()) {
            self.ask_behind(&ahead.span(), way);
        }
        let blocks = ahead.span().blocks();
        let chunk = match ahead.wait() {
            // Read anew, alone.
            Err(_) if self.mode.read_ahead_bytes == 0 => {
                // One of those that are known does not say that the others can be read together.
                if !self.alone.contains(&index) {
                    self.alone = blocks;
                }
                return Ok(false);
            }
            read => read?,
        };
        self.spare = std::mem::replace(&mut self.chunk, chunk).bytes;
        Ok(true)
    }

    /// Asks for the span behind `span`, unless it begins with a cached block.
    fn ask_behind(&mut self, span: &Span, way: Way) {
        let blocks = self.table.index();
        let next = span.next(blocks, way);
        let reads_cached = self.mode.read_ahead_bytes > 0;
        self.ends_soon = reads_cached && next.is_none() && way == Way::Forward;
        let Some(next) = next.filter(|&next| reads_cached || !self.table.is_cached(next)) else {
            return;
        };
        let span = self.span_of(next, way);
        self.ahead = Ahead::request(&self.table, span, std::mem::take(&mut self.spare));
    }

    /// Block `index` and those beside it in the direction of `way` that are read with it. A merge
    /// reads what is left of a table in equal pieces: else the last one may be small, and costs
    /// a seek as any other.
    fn span_of(&self, index: usize, way: Way) -> Span {
        let blocks = self.table.index();
        let most = self.ahead_bytes;
        if self.mode.read_ahead_bytes == 0 || way == Way::Backward {
            return Span::of(blocks, index, way, most);
        }
        let (from, last) = (blocks.place(index), blocks.place(blocks.len() - 1));
        let end = last.offset + u64::from(last.stored_bytes);
        if last.extent != from.extent || end <= from.offset {
            return Span::of(blocks, index, way, most);
        }
        let left = (end - from.offset) as usize;
        let pieces = left.div_ceil(most).max(1);
        // No block is cut in two, so that each piece may have up to one more.
        let even = left.div_ceil(pieces) + from.stored_bytes as usize;
        Span::of(blocks, index, way, even.min(most))
    }

    /// Whether the last span has just been asked for; true once.
    #[inline]
    pub(crate) fn takes_leave(&mut self) -> bool {
        std::mem::take(&mut self.ends_soon)
    }

    /// Whether what comes behind `span`, which is read now, is asked for before it is wanted: a
    /// merge wants it, and so does, rather than not, a scan that has read twice as much.
    fn has_come_far(&self, span: &Span) -> bool {
        let next_bytes = self.ahead_bytes.max(span.bytes());
        self.mode.read_ahead_bytes > 0 || self.passed_bytes >= next_bytes.saturating_mul(2)
    }

    /// `span` is read, and the next read of several blocks is larger.
    fn grow(&mut self, span: &Span) {
        if self.mode.read_ahead_bytes > 0 {
            return;
        }
        self.passed_bytes = self.passed_bytes.saturating_add(span.bytes());
        self.ahead_bytes = match self.streams {
            true => {
                let table = &self.table;
                table.streamed_bytes(self.passed_bytes, self.ahead_bytes)
            }
            false => (self.ahead_bytes + self.ahead_bytes / 2).min(READ_AHEAD_BYTES_MAX),
        };
    }

    /// Asks for the block in which a search for `(key, seq)` will look, before
    /// anybody waits for it.
    pub(crate) fn announce(&mut self, key: &[u8], seq: SeqNo, before: bool) {
        let seq = self.table.stored_seq(seq);
        let (until, _) = self.table.index().blocks_until(key, seq);
        let way = if before { Way::Backward } else { Way::Forward };
        match (until.checked_sub(1), before) {
            (Some(index), _) => self.announce_block(index, way),
            (None, false) => self.announce_block(0, way),
            (None, true) => {}
        }
    }

    /// Asks for the first block, or the last one.
    pub(crate) fn announce_end(&mut self, last: bool) {
        match (last, self.table.block_count().checked_sub(1)) {
            (true, Some(index)) => self.announce_block(index, Way::Backward),
            (false, Some(_)) => self.announce_block(0, Way::Forward),
            (_, None) => {}
        }
    }

    fn announce_block(&mut self, index: usize, way: Way) {
        if index >= self.table.block_count() {
            // Behind the last block, or in a table of range deletes alone.
            return;
        }
        let at_hand = self.in_chunk(index).is_some()
            || self.ahead.as_ref().is_some_and(|ahead| ahead.holds(index))
            || (self.valid() && self.block_index == index);
        let cached = self.mode.read_ahead_bytes == 0 && self.table.is_cached(index);
        if !self.streams || at_hand || cached {
            return;
        }
        // A scan may want no more than this one block.
        let span = match self.mode.read_ahead_bytes {
            0 => {
                let goes_on = self.table.scans_go_on() && !self.alone.contains(&index);
                let goes_on = usize::from(goes_on);
                let wanted = goes_on * self.table.first_bytes(self.mode, true);
                Span::of(self.table.index(), index, way, wanted)
            }
            _ => self.span_of(index, way),
        };
        self.ahead = Ahead::request(&self.table, span, std::mem::take(&mut self.spare));
    }

    /// Goes on at the pace of `before`, a cursor that ended where this one
    /// begins.
    pub(crate) fn keep_pace(&mut self, before: &TableCursor) {
        self.keeps_pace = true;
        if self.streams == before.streams {
            self.misses = before.misses;
            self.passed_bytes = before.passed_bytes;
            self.ahead_bytes = before.ahead_bytes;
        }
    }

    /// Decodes block `index` from the chunk. Takes over the buffer of `left`,
    /// the block that the cursor was in, if nobody else has it.
    fn decode_in_chunk(&mut self, index: usize, left: Option<Arc<Block>>) -> Result<Arc<Block>> {
        let range = self.in_chunk(index).unwrap_or_default();
        let stored = &self.chunk.bytes[range];
        let spare = left.and_then(Arc::into_inner).map(Block::into_buffer);
        let spare = spare.unwrap_or_else(|| self.table.cache().buffer(stored.len()));
        let decoded = Block::decode(stored, spare);
        let block = self.table.checked(index, decoded)?;
        // What a merge reads is no use of the table.
        if !self.mode.fill_cache {
            return Ok(Arc::new(block));
        }
        self.table.count_block_read();
        Ok(self.table.keep(index, block))
    }
}

#[cfg(test)]
impl TableCursor {
    /// Bytes of the buffers that it reads into.
    pub(super) fn held_bytes(&self) -> usize {
        let ahead = self.ahead.as_ref().map_or(0, |ahead| ahead.span().bytes());
        self.chunk.bytes.memory_bytes() + self.spare.memory_bytes() + ahead
    }
}

impl std::fmt::Debug for TableCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableCursor")
            .field("table", &self.table.id())
            .field("block", &self.valid().then_some(self.block_index))
            .finish_non_exhaustive()
    }
}
