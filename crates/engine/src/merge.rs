//! The k-way merge of cursors: one ordered stream of entries out of memtables
//! and runs, in both directions. Scans and merge jobs both stand on it.
//!
//! Sources are kept sorted by their current entry in a small array. Advancing
//! moves the first source back to where it belongs, which costs one comparison
//! while one source stays in front, as it mostly does.

mod run;

use std::cmp::Ordering;

use thermocline_model::key::{Kind, SeqNo};

pub(crate) use self::run::RunCursor;
use crate::error::Result;
use crate::memory::MemtableCursor;
use crate::slice::Slice;
use crate::table::TableCursor;

/// Where a search goes.
#[derive(Clone, Copy)]
enum Target<'a> {
    AtOrAfter(&'a [u8], SeqNo),
    Before(&'a [u8], SeqNo),
    First,
    Last,
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

    /// Past the entries of the first source that come before `key` and `seq`: in a memtable at
    /// once, in a run one, as it has hardly more of a key. Requires: as [`MergeCursor::next`], and
    /// the first source stands before `key` and `seq`.
    pub(crate) fn pass(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        debug_assert!(self.forward);
        let top = self.top_mut();
        let moved = match top {
            Source::Memory(_) => top.seek(key, seq),
            Source::Run(_) => top.next(),
        };
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
