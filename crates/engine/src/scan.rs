//! Iterators: what is visible of a keyspace at one moment, in key order, in
//! both directions.
//!
//! An iterator holds a view, so flushes, merges and deletions that happen
//! while it lives change nothing for it. Moving forward, the cursor stands on
//! the entry shown; moving backward, it stands before all versions of the key
//! shown, which are then remembered here.
//!
//! Of memtables and newest levels it has only those of the part that it stands in
//! (Nova-LSM's range index, section 4.1.2: here the cuts are the index, and the view has
//! the lists). When it leaves the part, forward or backward, the next part's take their
//! place, opened then and not before; the levels below, which know no parts, stay where
//! they stand.

mod entries;
mod parts;

pub(crate) use parts::RangeIndex;
use parts::Visited;

use std::ops::Bound;
use std::sync::Arc;

use thermocline_model::cover::Cover;
use thermocline_model::key::{Kind, SeqNo};

use crate::engine::{Engine, ReadView, Space};
use crate::error::{Error, Result};
use crate::merge::{MergeCursor, RunCursor, Source};
use crate::slice::Slice;
use crate::table::{ReadMode, Table};

pub use entries::Entries;

/// Values up to this many bytes are copied when an iterator must remember
/// one; longer ones are pinned.
const COPIED_BYTES_MAX: usize = 1024;

/// So many versions of a key are passed one by one; more are searched past, in a memtable in which
/// a hot key may have most of the entries.
const STEPS_MAX: usize = 8;

/// Where an iterator is before its first search, and when it could not enter a part: in none. The
/// next search enters one.
const NO_PART: usize = usize::MAX;

/// Whose range deletes an iterator must heed.
enum CoverOf {
    Memtable(Arc<Cover>),
    Table(Arc<Table>),
}

impl CoverOf {
    fn newest(&self, key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        match self {
            CoverOf::Memtable(cover) => cover.newest(key, snapshot),
            CoverOf::Table(table) => table.cover().newest(key, snapshot),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not on an entry.
    Off,
    /// On an entry; the cursor stands on it.
    Forward,
    /// On an entry; the cursor stands before its key.
    Backward,
}

/// An iterator over a keyspace, or a part of it, as it was when the iterator
/// was made. A new iterator stands on nothing: seek first.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// for key in ["a", "b", "c"] {
///     db.put(key.as_bytes(), b"")?;
/// }
/// let mut iter = db.iter()?;
/// iter.seek(b"b")?;
/// assert!(iter.valid() && iter.key() == b"b");
/// iter.prev()?;
/// assert!(iter.valid() && iter.key() == b"a");
/// iter.prev()?;
/// assert!(!iter.valid());
/// # Ok::<(), thermocline::Error>(())
/// ```
pub struct Iter {
    cursor: MergeCursor,
    /// The part whose memtables and newest runs the cursor has, as its first sources.
    part: usize,
    part_sources: usize,
    /// The parts that the range crosses.
    first_part: usize,
    last_part: usize,
    visited: Visited,
    /// Of the levels below, then of the part.
    covers: Vec<CoverOf>,
    level_covers: usize,
    snapshot: SeqNo,
    lower: Option<Box<[u8]>>,
    upper: Option<Box<[u8]>>,
    /// Where to stop or to go on to the next part: the later of the part's begin and
    /// `lower`, the earlier of its end and `upper`.
    low: Option<Box<[u8]>>,
    high: Option<Box<[u8]>>,
    state: State,
    /// Forward: the last key passed, all versions of which are done with.
    /// Backward: the key shown.
    key: Vec<u8>,
    has_key: bool,
    value: Vec<u8>,
    pinned: Option<Slice>,
    engine: Arc<Engine>,
    view: Arc<ReadView>,
}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter")
            .field("snapshot", &self.snapshot)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// The smallest key that is greater than every key with this prefix; `None`
/// when there is none.
fn after_prefix(prefix: &[u8]) -> Option<Box<[u8]>> {
    let keep = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    Some(end.into())
}

/// The key right behind `key`.
fn successor(key: &[u8]) -> Box<[u8]> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

impl Iter {
    pub(crate) fn over_prefix(
        engine: &Arc<Engine>,
        space: &Space,
        snapshot: Option<SeqNo>,
        prefix: &[u8],
    ) -> Result<Iter> {
        let lower = (!prefix.is_empty()).then(|| prefix.into());
        Iter::bounded(engine, space, snapshot, lower, after_prefix(prefix))
    }

    pub(crate) fn over(
        engine: &Arc<Engine>,
        space: &Space,
        snapshot: Option<SeqNo>,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> Result<Iter> {
        let lower = match start {
            Bound::Included(key) => Some(key.into()),
            Bound::Excluded(key) => Some(successor(key)),
            Bound::Unbounded => None,
        };
        let upper = match end {
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.into()),
            Bound::Unbounded => None,
        };
        if let (Some(l), Some(u)) = (&lower, &upper)
            && l > u
        {
            return Err(Error::invalid("range: start lies behind end"));
        }
        Iter::bounded(engine, space, snapshot, lower, upper)
    }

    fn bounded(
        engine: &Arc<Engine>,
        space: &Space,
        snapshot: Option<SeqNo>,
        lower: Option<Box<[u8]>>,
        upper: Option<Box<[u8]>>,
    ) -> Result<Iter> {
        space.check_open()?;
        let (view, snapshot) = engine.consistent_view(space, snapshot);
        let (low, high) = (lower.as_deref(), upper.as_deref());
        let mut covers = Vec::new();
        let (first_part, last_part, visited) = engine.range_index.begin(&view, low, high);
        let mut sources = Vec::new();
        for run in view.tree.levels.iter().flatten() {
            sources.push(Source::Run(RunCursor::new(Arc::clone(run), ReadMode::SCAN)));
            covers.extend(run.covering(low, high)?.into_iter().map(CoverOf::Table));
        }
        engine.counters.scans.add(1);
        // The first search enters a part, mostly another than the first.
        Ok(Iter {
            cursor: MergeCursor::new(sources),
            part: NO_PART,
            part_sources: 0,
            first_part,
            last_part,
            visited,
            level_covers: covers.len(),
            covers,
            snapshot,
            lower,
            upper,
            low: None,
            high: None,
            state: State::Off,
            key: Vec::new(),
            has_key: false,
            value: Vec::new(),
            pinned: None,
            engine: Arc::clone(engine),
            view,
        })
    }

    /// Whether it stands on an entry.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"a", b"")?;
    /// let mut iter = db.iter()?;
    /// assert!(!iter.valid()); // Seek first.
    /// iter.seek_to_first()?;
    /// assert!(iter.valid());
    /// iter.next()?;
    /// assert!(!iter.valid());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.state != State::Off
    }

    /// The key it stands on; empty when it stands on none.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"a", b"1")?;
    /// let mut iter = db.iter()?;
    /// assert_eq!(iter.key(), b"");
    /// iter.seek_to_first()?;
    /// assert_eq!(iter.key(), b"a");
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self.state {
            State::Forward => self.cursor.key(),
            State::Backward => &self.key,
            State::Off => &[],
        }
    }

    /// The value it stands on; empty when it stands on none.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"a", b"1")?;
    /// let mut iter = db.iter()?;
    /// iter.seek_to_first()?;
    /// assert_eq!(iter.value(), b"1");
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        match (self.state, &self.pinned) {
            (State::Forward, _) => self.cursor.value(),
            (State::Backward, Some(pinned)) => pinned,
            (State::Backward, None) => &self.value,
            (State::Off, _) => &[],
        }
    }

    /// To the first key at or behind `key`.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"a", b"")?;
    /// db.put(b"c", b"")?;
    /// let mut iter = db.iter()?;
    /// iter.seek(b"b")?;
    /// assert_eq!(iter.key(), b"c");
    /// iter.seek(b"d")?;
    /// assert!(!iter.valid());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading a table. The iterator then stands on nothing.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.leave();
        let from = match &self.lower {
            Some(lower) if key < &**lower => lower.clone(),
            _ => return self.seek_forward(key),
        };
        self.seek_forward(&from)
    }

    fn seek_forward(&mut self, key: &[u8]) -> Result<()> {
        self.enter_for(key)?;
        self.cursor.seek(key, self.snapshot)?;
        self.find_next()
    }

    /// To the last key at or before `key`.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"a", b"")?;
    /// db.put(b"c", b"")?;
    /// let mut iter = db.iter()?;
    /// iter.seek_for_prev(b"b")?;
    /// assert_eq!(iter.key(), b"a");
    /// iter.seek_for_prev(b"c")?;
    /// assert_eq!(iter.key(), b"c");
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Iter::seek`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.leave();
        if self.upper.as_deref().is_some_and(|upper| key >= upper) {
            return self.seek_to_last();
        }
        self.enter_for(key)?;
        // Sequence numbers begin at 1, so this lies behind every version.
        self.cursor.seek_before(key, SeqNo::ZERO)?;
        self.find_prev()
    }

    /// To the first key.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// for key in [b"a1", b"b1", b"b2"] {
    ///     db.put(key, b"")?;
    /// }
    /// let mut iter = db.prefix(b"b")?;
    /// iter.seek_to_first()?;
    /// assert_eq!(iter.key(), b"b1"); // The first of its range.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Iter::seek`].
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.leave();
        match &self.lower {
            Some(lower) => {
                let lower = lower.clone();
                self.seek_forward(&lower)
            }
            None => {
                self.enter_anew(self.first_part)?;
                self.cursor.seek_first()?;
                self.find_next()
            }
        }
    }

    /// To the last key.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// for key in [b"b1", b"b2", b"c1"] {
    ///     db.put(key, b"")?;
    /// }
    /// let mut iter = db.prefix(b"b")?;
    /// iter.seek_to_last()?;
    /// assert_eq!(iter.key(), b"b2"); // The last of its range.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Iter::seek`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.leave();
        self.enter_anew(self.last_part)?;
        match &self.upper {
            Some(upper) => self.cursor.seek_before(upper, SeqNo::MAX)?,
            None => self.cursor.seek_last()?,
        }
        self.find_prev()
    }

    /// To the next key. Off the end, or standing on nothing, it stays on
    /// nothing.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"a", b"")?;
    /// db.put(b"b", b"")?;
    /// let mut iter = db.iter()?;
    /// let mut keys = Vec::new();
    /// iter.seek_to_first()?;
    /// while iter.valid() {
    ///     keys.push(iter.key().to_vec());
    ///     iter.next()?;
    /// }
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Iter::seek`].
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor that goes both ways is no Iterator; `Entries` is one"
    )]
    pub fn next(&mut self) -> Result<()> {
        match self.state {
            State::Off => return Ok(()),
            State::Forward => {
                self.key.clear();
                self.key.extend_from_slice(self.cursor.key());
                self.has_key = true;
                self.state = State::Off;
                self.cursor.next()?;
            }
            State::Backward => {
                self.state = State::Off;
                self.cursor.seek(&self.key, SeqNo::ZERO)?;
            }
        }
        self.find_next()
    }

    /// To the previous key. Off the start, or standing on nothing, it stays on
    /// nothing.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"a", b"")?;
    /// db.put(b"b", b"")?;
    /// let mut iter = db.iter()?;
    /// iter.seek(b"b")?;
    /// iter.prev()?;
    /// assert_eq!(iter.key(), b"a");
    /// iter.next()?; // It may turn at any time.
    /// assert_eq!(iter.key(), b"b");
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Iter::seek`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        match self.state {
            State::Off => return Ok(()),
            State::Backward => self.state = State::Off,
            State::Forward => {
                self.state = State::Off;
                self.key.clear();
                self.key.extend_from_slice(self.cursor.key());
                self.cursor.seek_before(&self.key, SeqNo::MAX)?;
            }
        }
        self.find_prev()
    }

    /// The rest of the entries, forward, as an ordinary iterator. Starts at the
    /// first key when it stands on nothing.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"k", b"v")?;
    /// for entry in db.iter()?.forward() {
    ///     let (key, value) = entry?;
    ///     assert_eq!((&key[..], &value[..]), (&b"k"[..], &b"v"[..]));
    /// }
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn forward(self) -> Entries {
        Entries {
            iter: self,
            forward: true,
            begun: false,
        }
    }

    /// The rest of the entries, backward. Starts at the last key when it
    /// stands on nothing.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// for i in 0..10u8 {
    ///     db.put(&[i], b"")?;
    /// }
    /// // The three newest, where keys grow with time.
    /// let newest: Result<Vec<_>, _> = db.iter()?.backward().take(3).collect();
    /// assert_eq!(newest?.last().unwrap().0, [7]);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn backward(self) -> Entries {
        Entries {
            iter: self,
            forward: false,
            begun: false,
        }
    }

    fn leave(&mut self) {
        self.state = State::Off;
        self.has_key = false;
    }

    fn covered(&self, key: &[u8], seq: SeqNo) -> bool {
        self.covers
            .iter()
            .any(|c| c.newest(key, self.snapshot).is_some_and(|s| s > seq))
    }

    /// From the cursor's entry to the first one to show.
    #[inline]
    fn find_next(&mut self) -> Result<()> {
        let mut steps = 0;
        loop {
            let ended = !self.cursor.valid()
                || (self.high.as_deref()).is_some_and(|high| self.cursor.key() >= high);
            if ended {
                if self.next_part()? {
                    continue;
                }
                return Ok(());
            }
            let top = self.cursor.top();
            let key = top.key();
            let seq = top.seq();
            let passed = self.has_key && key == self.key;
            if seq > self.snapshot || passed {
                steps += 1;
                match steps > STEPS_MAX {
                    true => self.pass_versions(passed)?,
                    false => self.cursor.next()?,
                }
                continue;
            }
            steps = 0;
            if top.kind() == Kind::Put && (self.covers.is_empty() || !self.covered(key, seq)) {
                self.state = State::Forward;
                return Ok(());
            }
            self.key.clear();
            self.key.extend_from_slice(key);
            self.has_key = true;
            self.cursor.next()?;
        }
    }

    /// Past the versions of the cursor's key that its first source has: all of a key that was
    /// `passed`, of another those that are too new.
    #[cold]
    fn pass_versions(&mut self, passed: bool) -> Result<()> {
        if passed {
            return self.cursor.pass(&self.key, SeqNo::ZERO);
        }
        let key = self.cursor.key().to_vec();
        self.cursor.pass(&key, self.snapshot)
    }

    /// From the cursor's entry backward to the first key to show.
    #[inline]
    fn find_prev(&mut self) -> Result<()> {
        loop {
            let ended = !self.cursor.valid()
                || (self.low.as_deref()).is_some_and(|low| self.cursor.key() < low);
            if ended {
                if self.previous_part()? {
                    continue;
                }
                return Ok(());
            }
            let key = self.cursor.key();
            self.key.clear();
            self.key.extend_from_slice(key);
            let (mut newest, mut steps) = (None, 0);
            // Versions come oldest first; the last visible one counts.
            while self.cursor.valid() && self.cursor.key() == self.key {
                steps += 1;
                if steps > STEPS_MAX {
                    newest = self.newest_version()?;
                    break;
                }
                let top = self.cursor.top();
                let seq = top.seq();
                if seq <= self.snapshot {
                    newest = Some((seq, top.kind()));
                    if top.kind() == Kind::Put {
                        self.remember();
                    }
                }
                self.cursor.prev()?;
            }
            if let Some((seq, Kind::Put)) = newest
                && (self.covers.is_empty() || !self.covered(&self.key, seq))
            {
                self.state = State::Backward;
                return Ok(());
            }
        }
    }

    /// Remembers the newest visible version of `key`, and goes before all of them.
    #[cold]
    fn newest_version(&mut self) -> Result<Option<(SeqNo, Kind)>> {
        self.cursor.seek(&self.key, self.snapshot)?;
        let is_there = self.cursor.valid() && self.cursor.key() == self.key;
        let newest = is_there.then(|| (self.cursor.seq(), self.cursor.kind()));
        if let Some((_, Kind::Put)) = newest {
            self.remember();
        }
        self.cursor.seek_before(&self.key, SeqNo::MAX)?;
        Ok(newest)
    }

    fn remember(&mut self) {
        if self.cursor.value().len() > COPIED_BYTES_MAX {
            self.pinned = self.cursor.value_slice();
        } else {
            self.pinned = None;
            self.value.clear();
            self.value.extend_from_slice(self.cursor.value());
        }
    }
}

impl Drop for Iter {
    fn drop(&mut self) {
        self.engine.range_index.end(&self.view, &self.visited);
        self.engine.note_reader_left();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_skips_trailing_ff() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".as_slice().into()));
        assert_eq!(after_prefix(b"a\xff\xff"), Some(b"b".as_slice().into()));
        assert_eq!(after_prefix(b"\xff\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }
}
