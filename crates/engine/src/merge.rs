//! The k-way merge of cursors: one ordered stream of entries out of memtables
//! and runs, in both directions. Scans and merge jobs both stand on it.
//!
//! Sources are kept sorted by their current entry in a small array. Advancing
//! moves the first source back to where it belongs, which costs one comparison
//! while one source stays in front, as it mostly does.

use std::cmp::Ordering;
use std::sync::Arc;

use thermocline_model::key::{Kind, SeqNo};

use crate::error::Result;
use crate::memory::MemtableCursor;
use crate::slice::Slice;
use crate::table::{ReadMode, TableCursor};
use crate::version::tree::RunTables;

/// Where a search goes.
#[derive(Clone, Copy)]
enum Target<'a> {
    AtOrAfter(&'a [u8], SeqNo),
    Before(&'a [u8], SeqNo),
    First,
    Last,
}

/// A cursor over the tables of one run, in order.
pub(crate) struct RunCursor {
    run: Arc<RunTables>,
    mode: ReadMode,
    /// The table that `cursor` is of.
    index: usize,
    cursor: Option<TableCursor>,
    /// In a merge, a cursor of the next table, which has asked for its first blocks.
    next: Option<TableCursor>,
}

impl RunCursor {
    pub(crate) fn new(run: Arc<RunTables>, mode: ReadMode) -> RunCursor {
        RunCursor {
            run,
            mode,
            index: 0,
            cursor: None,
            next: None,
        }
    }

    fn enter(&mut self, index: usize) -> Result<&mut TableCursor> {
        if self.index != index || self.cursor.is_none() {
            let next = self.next.take().filter(|_| index == self.index + 1);
            self.cursor = match next {
                Some(cursor) => Some(cursor),
                None => Some(self.run.tables[index].table()?.cursor(self.mode)),
            };
            self.index = index;
        }
        // Cannot fail: set right above.
        Ok(self.cursor.as_mut().expect("cursor was just set"))
    }

    /// As [`RunCursor::enter`], from the neighbour.
    fn enter_from_neighbour(&mut self, index: usize) -> Result<&mut TableCursor> {
        let before = self.cursor.take();
        let cursor = self.enter(index)?;
        if let Some(before) = before {
            cursor.keep_pace(&before);
        }
        Ok(cursor)
    }

    /// Asks for the block in which the coming search will look. What fails here
    /// fails there again, and is reported there.
    fn announce(&mut self, target: Target<'_>) {
        let tables = &self.run.tables;
        let last = tables.len().checked_sub(1);
        let index = match target {
            Target::AtOrAfter(key, _) => Some(self.run.first_not_before(key)),
            Target::Before(key, _) => self.run.last_from(key),
            Target::First => Some(0),
            Target::Last => last,
        };
        let Some(index) = index.filter(|&index| index < tables.len()) else {
            return;
        };
        let Ok(cursor) = self.enter(index) else {
            return;
        };
        match target {
            Target::AtOrAfter(key, seq) => cursor.announce(key, seq, false),
            Target::Before(key, seq) => cursor.announce(key, seq, true),
            Target::First => cursor.announce_end(false),
            Target::Last => cursor.announce_end(true),
        }
    }

    pub(crate) fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(TableCursor::valid)
    }

    fn skip_empty_forward(&mut self) -> Result<()> {
        while !self.valid() && self.index + 1 < self.run.tables.len() {
            let next = self.index + 1;
            self.enter_from_neighbour(next)?.seek_first()?;
        }
        Ok(())
    }

    fn skip_empty_backward(&mut self) -> Result<()> {
        while !self.valid() && self.index > 0 {
            let previous = self.index - 1;
            self.enter_from_neighbour(previous)?.seek_last()?;
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let index = self.run.first_not_before(key);
        if index == self.run.tables.len() {
            (self.cursor, self.next) = (None, None);
            self.index = index.saturating_sub(1);
            return Ok(());
        }
        self.enter(index)?.seek(key, seq)?;
        self.skip_empty_forward()
    }

    fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let Some(index) = self.run.last_from(key) else {
            (self.cursor, self.next) = (None, None);
            self.index = 0;
            return Ok(());
        };
        self.enter(index)?.seek_before(key, seq)?;
        self.skip_empty_backward()
    }

    pub(crate) fn seek_first(&mut self) -> Result<()> {
        if self.run.tables.is_empty() {
            return Ok(());
        }
        self.enter(0)?.seek_first()?;
        self.skip_empty_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        let Some(last) = self.run.tables.len().checked_sub(1) else {
            return Ok(());
        };
        self.enter(last)?.seek_last()?;
        self.skip_empty_backward()
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        if let Some(cursor) = &mut self.cursor {
            cursor.next()?;
        }
        self.arrive()
    }

    /// After a step forward: goes on to the next table, or asks for it, if it is time for that.
    #[inline]
    fn arrive(&mut self) -> Result<()> {
        match &mut self.cursor {
            Some(cursor) if cursor.valid() => {
                if cursor.takes_leave() {
                    self.announce_next();
                }
                Ok(())
            }
            _ => self.skip_empty_forward(),
        }
    }

    #[cfg(test)]
    pub(crate) fn key(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], TableCursor::key)
    }

    #[cfg(test)]
    pub(crate) fn has_asked_for_next(&self) -> bool {
        self.next.is_some()
    }

    /// Asks for the first blocks of the next table while the last ones of this one are on their
    /// way, as a merge will need them. What fails here fails there again, and is reported there.
    #[cold]
    fn announce_next(&mut self) {
        let next = self.run.tables.get(self.index + 1);
        if let Some(Ok(table)) = next.map(|next| next.table()) {
            let mut cursor = table.cursor(self.mode);
            cursor.announce_end(false);
            self.next = Some(cursor);
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if let Some(cursor) = &mut self.cursor {
            cursor.prev()?;
            if cursor.valid() {
                return Ok(());
            }
        }
        self.skip_empty_backward()
    }
}

/// One input of a merge.
#[expect(
    clippy::large_enum_variant,
    reason = "a handful of them live in one vector"
)]
pub(crate) enum Source {
    Memory(PieceCursor),
    Run(RunCursor),
}

/// A cursor over a memtable, or over what it has of an interval.
pub(crate) struct PieceCursor {
    cursor: MemtableCursor,
    /// Rare, so that all else pays no more for it than one look.
    interval: Option<Box<Interval>>,
}

/// Keys from `low` up to `high`, exclusive; `None` is without bound.
struct Interval {
    low: Option<Box<[u8]>>,
    high: Option<Box<[u8]>>,
}

impl Interval {
    fn has(&self, key: &[u8]) -> bool {
        self.low.as_deref().is_none_or(|low| low <= key)
            && self.high.as_deref().is_none_or(|high| key < high)
    }
}

impl From<MemtableCursor> for PieceCursor {
    fn from(cursor: MemtableCursor) -> PieceCursor {
        PieceCursor {
            cursor,
            interval: None,
        }
    }
}

impl PieceCursor {
    /// Over the keys from `low` up to `high`, exclusive; `None` is without bound.
    pub(crate) fn new(cursor: MemtableCursor, low: Option<&[u8]>, high: Option<&[u8]>) -> Self {
        PieceCursor {
            cursor,
            interval: Some(Box::new(Interval {
                low: low.map(Into::into),
                high: high.map(Into::into),
            })),
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        let within = |interval: &Interval| interval.has(self.cursor.key());
        self.cursor.valid() && self.interval.as_deref().is_none_or(within)
    }

    fn low(&self) -> Option<&[u8]> {
        self.interval.as_ref()?.low.as_deref()
    }

    fn high(&self) -> Option<&[u8]> {
        self.interval.as_ref()?.high.as_deref()
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) {
        match self.low().filter(|low| key < *low).map(<[u8]>::to_vec) {
            Some(low) => self.cursor.seek(&low, SeqNo::MAX),
            None => self.cursor.seek(key, seq),
        }
    }

    fn seek_before(&mut self, key: &[u8], seq: SeqNo) {
        match self.high().filter(|high| key >= *high).map(<[u8]>::to_vec) {
            Some(high) => self.cursor.seek_before(&high, SeqNo::MAX),
            None => self.cursor.seek_before(key, seq),
        }
    }

    fn seek_first(&mut self) {
        match self.low().map(<[u8]>::to_vec) {
            Some(low) => self.cursor.seek(&low, SeqNo::MAX),
            None => self.cursor.seek_first(),
        }
    }

    fn seek_last(&mut self) {
        match self.high().map(<[u8]>::to_vec) {
            Some(high) => self.cursor.seek_before(&high, SeqNo::MAX),
            None => self.cursor.seek_last(),
        }
    }
}

impl Source {
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        match self {
            Source::Memory(c) => c.valid(),
            Source::Run(c) => c.valid(),
        }
    }

    #[inline]
    pub(crate) fn disk(&self) -> Option<&TableCursor> {
        match self {
            Source::Memory(_) => None,
            Source::Run(c) => c.cursor.as_ref(),
        }
    }

    /// Requires: valid.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Source::Memory(c) => c.cursor.key(),
            other => other.disk().map_or(&[], TableCursor::key),
        }
    }

    /// Requires: valid.
    #[inline]
    pub(crate) fn seq(&self) -> SeqNo {
        match self {
            Source::Memory(c) => c.cursor.seq(),
            other => other.disk().map_or(SeqNo::ZERO, TableCursor::seq),
        }
    }

    /// Requires: valid.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Source::Memory(c) => c.cursor.kind(),
            other => other.disk().map_or(Kind::Delete, TableCursor::kind),
        }
    }

    /// Requires: valid.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Source::Memory(c) => c.cursor.value(),
            other => other.disk().map_or(&[], TableCursor::value),
        }
    }

    /// Requires: valid.
    pub(crate) fn value_slice(&self) -> Option<Slice> {
        match self {
            Source::Memory(c) => Some(Slice::memory(c.cursor.value_ref())),
            other => other.disk().map(|c| Slice::block(c.value_slice())),
        }
    }

    /// Leaves the block it stands in. Requires: valid, and on disk.
    pub(crate) fn skip_block(&mut self) -> Result<()> {
        match self {
            Source::Memory(_) => Ok(()),
            Source::Run(c) => {
                if let Some(cursor) = &mut c.cursor {
                    cursor.skip_block()?;
                }
                c.arrive()
            }
        }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        match self {
            Source::Memory(c) => {
                c.cursor.next();
                Ok(())
            }
            Source::Run(c) => c.next(),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        match self {
            Source::Memory(c) => {
                c.cursor.prev();
                Ok(())
            }
            Source::Run(c) => c.prev(),
        }
    }

    pub(crate) fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        match self {
            Source::Memory(c) => {
                c.seek(key, seq);
                Ok(())
            }
            Source::Run(c) => c.seek(key, seq),
        }
    }

    fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        match self {
            Source::Memory(c) => {
                c.seek_before(key, seq);
                Ok(())
            }
            Source::Run(c) => c.seek_before(key, seq),
        }
    }

    pub(crate) fn seek_first(&mut self) -> Result<()> {
        match self {
            Source::Memory(c) => {
                c.seek_first();
                Ok(())
            }
            Source::Run(c) => c.seek_first(),
        }
    }

    fn seek_last(&mut self) -> Result<()> {
        match self {
            Source::Memory(c) => {
                c.seek_last();
                Ok(())
            }
            Source::Run(c) => c.seek_last(),
        }
    }
}

/// The merge of several sources. Of two equal entries (the log was replayed
/// over a flush that had already happened) the earlier source's comes first.
pub(crate) struct MergeCursor {
    sources: Vec<Source>,
    /// The valid sources, the one whose turn it is first.
    order: Vec<u32>,
    forward: bool,
    /// Whether several sources may have to wait for a device, which can serve
    /// them side by side.
    announces: bool,
}

/// Whether several of `sources` may have to wait for a device.
fn announces(sources: &[Source]) -> bool {
    let slow = sources.iter().filter(|source| match source {
        Source::Memory(_) => false,
        Source::Run(run) => run.run.may_announce(),
    });
    slow.count() > 1
}

impl MergeCursor {
    pub(crate) fn new(sources: Vec<Source>) -> MergeCursor {
        MergeCursor {
            order: Vec::with_capacity(sources.len()),
            forward: true,
            announces: announces(&sources),
            sources,
        }
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        !self.order.is_empty()
    }

    /// The source whose turn it is. Requires: valid.
    #[inline]
    pub(crate) fn top(&self) -> &Source {
        &self.sources[self.order[0] as usize]
    }

    /// Which of the sources has its turn. Requires: valid.
    #[inline]
    pub(crate) fn top_index(&self) -> usize {
        self.order[0] as usize
    }

    /// See [`MergeCursor::top`].
    #[inline]
    pub(crate) fn top_mut(&mut self) -> &mut Source {
        &mut self.sources[self.order[0] as usize]
    }

    /// The source whose turn comes after the first one's.
    #[inline]
    pub(crate) fn second(&self) -> Option<&Source> {
        self.order.get(1).map(|&i| &self.sources[i as usize])
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.top().key()
    }

    #[inline]
    pub(crate) fn seq(&self) -> SeqNo {
        self.top().seq()
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.top().kind()
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.top().value()
    }

    pub(crate) fn value_slice(&self) -> Option<Slice> {
        self.top().value_slice()
    }

    pub(crate) fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.all(true, Target::AtOrAfter(key, seq), |s| s.seek(key, seq))
    }

    pub(crate) fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.all(false, Target::Before(key, seq), |s| s.seek_before(key, seq))
    }

    pub(crate) fn seek_first(&mut self) -> Result<()> {
        self.all(true, Target::First, Source::seek_first)
    }

    pub(crate) fn seek_last(&mut self) -> Result<()> {
        self.all(false, Target::Last, Source::seek_last)
    }

    /// Takes `new` in the place of the first `old` sources and brings them to the first
    /// entry at or behind `key`. Requires: all others stand there already, and the last
    /// move was forward.
    pub(crate) fn replace_forward(
        &mut self,
        old: usize,
        new: Vec<Source>,
        key: &[u8],
    ) -> Result<()> {
        debug_assert!(self.forward);
        let target = Target::AtOrAfter(key, SeqNo::MAX);
        self.replace(old, new, target, |s| s.seek(key, SeqNo::MAX))
    }

    /// As [`MergeCursor::replace_forward`], to the last entry before `key`, after a move
    /// backward.
    pub(crate) fn replace_backward(
        &mut self,
        old: usize,
        new: Vec<Source>,
        key: &[u8],
    ) -> Result<()> {
        debug_assert!(!self.forward);
        let target = Target::Before(key, SeqNo::MAX);
        self.replace(old, new, target, |s| s.seek_before(key, SeqNo::MAX))
    }

    /// Takes `new` in the place of the first `old` sources; a search must follow.
    pub(crate) fn exchange(&mut self, old: usize, new: Vec<Source>) {
        self.order.clear();
        self.sources.splice(..old, new);
        self.announces = announces(&self.sources);
    }

    fn replace(
        &mut self,
        old: usize,
        new: Vec<Source>,
        target: Target<'_>,
        mut seek: impl FnMut(&mut Source) -> Result<()>,
    ) -> Result<()> {
        let count = new.len();
        let mut order = std::mem::take(&mut self.order);
        order.retain(|&i| i as usize >= old);
        for i in &mut order {
            *i = *i - old as u32 + count as u32;
        }
        self.exchange(old, new);
        self.order = order;
        self.seek_each(count, target, &mut seek)
    }

    fn all(
        &mut self,
        forward: bool,
        target: Target<'_>,
        mut seek: impl FnMut(&mut Source) -> Result<()>,
    ) -> Result<()> {
        self.forward = forward;
        self.order.clear();
        self.seek_each(self.sources.len(), target, &mut seek)
    }

    /// Moves the first `count` sources, none of which has a place in the order, by `seek`.
    fn seek_each(
        &mut self,
        count: usize,
        target: Target<'_>,
        seek: &mut impl FnMut(&mut Source) -> Result<()>,
    ) -> Result<()> {
        if self.announces {
            // The first reads of all sources are under way together.
            for source in &mut self.sources[..count] {
                if let Source::Run(run) = source {
                    run.announce(target);
                }
            }
        }
        for i in 0..count {
            if let Err(e) = seek(&mut self.sources[i]) {
                self.order.clear();
                return Err(e);
            }
            if self.sources[i].valid() {
                self.order.push(i as u32);
                self.settle_last();
            }
        }
        Ok(())
    }

    /// Moves the last of `order` forward to where it belongs.
    fn settle_last(&mut self) {
        let mut at = self.order.len() - 1;
        while at > 0 && self.before(self.order[at], self.order[at - 1]) {
            self.order.swap(at, at - 1);
            at -= 1;
        }
    }

    #[inline]
    fn before(&self, a: u32, b: u32) -> bool {
        let (x, y) = (&self.sources[a as usize], &self.sources[b as usize]);
        let by_entry = x
            .key()
            .cmp(y.key())
            .then_with(|| y.seq().cmp(&x.seq()))
            .then_with(|| a.cmp(&b));
        by_entry
            == if self.forward {
                Ordering::Less
            } else {
                Ordering::Greater
            }
    }

    /// To the next entry. Requires: valid, and the last move was forward.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        debug_assert!(self.forward);
        let moved = self.top_mut().next();
        self.resettle(moved)
    }

    /// To the previous entry. Requires: valid, and the last move was backward.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<()> {
        debug_assert!(!self.forward);
        let moved = self.top_mut().prev();
        self.resettle(moved)
    }

    /// After the first source moved: puts it where it belongs.
    #[inline]
    pub(crate) fn resettle(&mut self, moved: Result<()>) -> Result<()> {
        if let Err(e) = moved {
            self.order.clear();
            return Err(e);
        }
        let first = self.order[0];
        if !self.sources[first as usize].valid() {
            self.order.remove(0);
            return Ok(());
        }
        let mut at = 0;
        while at + 1 < self.order.len() && self.before(self.order[at + 1], first) {
            self.order[at] = self.order[at + 1];
            at += 1;
        }
        self.order[at] = first;
        Ok(())
    }
}
