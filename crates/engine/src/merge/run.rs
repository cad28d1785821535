//! A cursor over the tables of one run, one after the other.

use std::sync::Arc;

use thermocline_model::key::SeqNo;

use super::Target;
use crate::error::Result;
use crate::table::{ReadMode, TableCursor};
use crate::version::tree::RunTables;

/// A cursor over the tables of one run, in order.
pub(crate) struct RunCursor {
    pub(super) run: Arc<RunTables>,
    mode: ReadMode,
    /// The table that `cursor` is of.
    index: usize,
    pub(super) cursor: Option<TableCursor>,
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
    pub(super) fn announce(&mut self, target: Target<'_>) {
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

    pub(super) fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let index = self.run.first_not_before(key);
        if index == self.run.tables.len() {
            (self.cursor, self.next) = (None, None);
            self.index = index.saturating_sub(1);
            return Ok(());
        }
        self.enter(index)?.seek(key, seq)?;
        self.skip_empty_forward()
    }

    pub(super) fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
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

    pub(super) fn seek_last(&mut self) -> Result<()> {
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
    pub(super) fn arrive(&mut self) -> Result<()> {
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
    pub(super) fn prev(&mut self) -> Result<()> {
        if let Some(cursor) = &mut self.cursor {
            cursor.prev()?;
            if cursor.valid() {
                return Ok(());
            }
        }
        self.skip_empty_backward()
    }
}
