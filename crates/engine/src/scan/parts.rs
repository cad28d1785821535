//! The range index (Nova-LSM, section 4.1.2): a scan has the memtables and newest runs of one
//! part at a time, and goes on to the next where that ends. The cuts are the index.
//!
//! Where there are several parts, what that saves and takes is counted, by samples.

use std::sync::Arc;

use super::{CoverOf, Iter, NO_PART};
use crate::engine::ReadView;
use crate::error::Result;
use crate::merge::{RunCursor, Source};
use crate::stats::RangeIndexStats;
use crate::store::Clock;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::table::ReadMode;

/// Of so many uses one is timed.
const SAMPLE: u64 = 64;

/// What is known of the range index of a store.
pub(crate) struct RangeIndex {
    clock: Arc<dyn Clock>,
    scans: AtomicU64,
    parts: AtomicU64,
    /// Of the sampled scans.
    passed_over: AtomicU64,
    /// Microseconds of the uses that were timed.
    timed_us: AtomicU64,
}

impl std::fmt::Debug for RangeIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangeIndex").finish_non_exhaustive()
    }
}

impl RangeIndex {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> RangeIndex {
        RangeIndex {
            clock,
            scans: AtomicU64::new(0),
            parts: AtomicU64::new(0),
            passed_over: AtomicU64::new(0),
            timed_us: AtomicU64::new(0),
        }
    }

    pub(crate) fn stats(&self) -> RangeIndexStats {
        RangeIndexStats {
            scans: self.scans.load(Ordering::Relaxed),
            parts: self.parts.load(Ordering::Relaxed),
            passed_over: self.passed_over.load(Ordering::Relaxed) * SAMPLE,
            cpu_us: self.timed_us.load(Ordering::Relaxed) * SAMPLE,
        }
    }

    /// The first and the last part of `view` that a scan from `low` to before `high` crosses, if it
    /// goes on to the end.
    pub(super) fn begin(
        &self,
        view: &ReadView,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
    ) -> (usize, usize, Visited) {
        let find = || {
            let first = low.map_or(0, |k| view.cuts.part_of(k));
            let last = high.map_or(view.parts.len() - 1, |k| view.cuts.part_of(k));
            (first, last)
        };
        if view.parts.len() == 1 {
            let (first, last) = find();
            return (first, last, Visited::default());
        }
        let before = self.scans.fetch_add(1, Ordering::Relaxed);
        let is_sample = before.is_multiple_of(SAMPLE);
        let (first, last) = self.timed(is_sample, find);
        let visited = Visited(is_sample.then(|| vec![false; view.parts.len()].into()));
        (first, last, visited)
    }

    /// Notes what a scan of `view` never came to.
    pub(super) fn end(&self, view: &ReadView, visited: &Visited) {
        let Visited(Some(visited)) = visited else {
            return;
        };
        let others = visited.iter().enumerate().filter(|(_, visited)| !**visited);
        let places = others.map(|(part, _)| {
            let memtables = view.parts[part].memtables();
            memtables.filter(|m| !m.is_empty()).count() + view.tree.newest(part).len()
        });
        let places = places.sum::<usize>() as u64;
        self.passed_over.fetch_add(places, Ordering::Relaxed);
    }

    /// Does the `work` of going on to another part.
    fn crossing<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.parts.fetch_add(1, Ordering::Relaxed);
        self.timed(before.is_multiple_of(SAMPLE), work)
    }

    fn timed<T>(&self, is_sample: bool, work: impl FnOnce() -> T) -> T {
        if !is_sample {
            return work();
        }
        let from = self.clock.now_micros();
        let done = work();
        let took_us = self.clock.now_micros().saturating_sub(from);
        self.timed_us.fetch_add(took_us, Ordering::Relaxed);
        done
    }
}

/// The parts that a scan came to, if that is counted.
#[derive(Default)]
pub(super) struct Visited(Option<Box<[bool]>>);

impl Iter {
    /// Makes `part` the one that bounds and range deletes are of, and returns what there
    /// is to read of it, newest first.
    pub(super) fn enter(&mut self, part: usize) -> Result<Vec<Source>> {
        let (lower, upper) = (self.lower.as_deref(), self.upper.as_deref());
        let mut sources = Vec::new();
        self.part = NO_PART;
        if let Visited(Some(visited)) = &mut self.visited {
            visited[part] = true;
        }
        self.covers.truncate(self.level_covers);
        let (part_low, part_high) = self.view.cuts.interval(part);
        for memtable in self.view.parts[part].memtables().filter(|m| !m.is_empty()) {
            sources.push(memtable.source(part_low, part_high));
            if memtable.table.has_range_deletes() {
                let cover = memtable.table.range_deletes();
                self.covers.push(CoverOf::Memtable(cover));
            }
        }
        for run in self.view.tree.newest(part) {
            sources.push(Source::Run(RunCursor::new(Arc::clone(run), ReadMode::SCAN)));
            let covering = run.covering(lower, upper)?;
            self.covers.extend(covering.into_iter().map(CoverOf::Table));
        }
        let (begin, end) = self.view.cuts.interval(part);
        let begin = begin.filter(|_| part > self.first_part);
        let end = end.filter(|_| part < self.last_part);
        self.low = begin.or(lower).map(Into::into);
        self.high = end.or(upper).map(Into::into);
        self.part = part;
        Ok(sources)
    }

    /// As [`Iter::enter`], from another part.
    fn go_to(&mut self, part: usize) -> Result<Vec<Source>> {
        let engine = Arc::clone(&self.engine);
        engine.range_index.crossing(|| self.enter(part))
    }

    /// Gets ready for a search that begins in the part of `key`.
    pub(super) fn enter_for(&mut self, key: &[u8]) -> Result<()> {
        let part = self.view.cuts.part_of(key);
        self.enter_anew(part.clamp(self.first_part, self.last_part))
    }

    pub(super) fn enter_anew(&mut self, part: usize) -> Result<()> {
        if part != self.part {
            let old = self.part_sources;
            let sources = match self.part {
                NO_PART => self.enter(part)?,
                _ => self.go_to(part)?,
            };
            self.part_sources = sources.len();
            self.cursor.exchange(old, sources);
        }
        Ok(())
    }

    /// From the end of a part to the begin of the next one. False at the last.
    #[cold]
    pub(super) fn next_part(&mut self) -> Result<bool> {
        let (true, Some(end)) = (self.part < self.last_part, self.high.clone()) else {
            return Ok(false);
        };
        let old = self.part_sources;
        let sources = self.go_to(self.part + 1)?;
        self.part_sources = sources.len();
        self.cursor.replace_forward(old, sources, &end)?;
        Ok(true)
    }

    /// From the begin of a part to the end of the one before. False at the first.
    #[cold]
    pub(super) fn previous_part(&mut self) -> Result<bool> {
        let inner = self.first_part < self.part && self.part <= self.last_part;
        let (true, Some(begin)) = (inner, self.low.clone()) else {
            return Ok(false);
        };
        let old = self.part_sources;
        let sources = self.go_to(self.part - 1)?;
        self.part_sources = sources.len();
        self.cursor.replace_backward(old, sources, &begin)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Db, Options};

    #[test]
    fn what_scans_pass_over_is_counted_where_there_are_several_parts() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| Options::at(directory.path().join(name)).background_threads(0);
        let one = Db::open(of("one")).unwrap();
        one.put(b"a", b"").unwrap();
        assert_eq!(one.iter().unwrap().forward().count(), 1);
        assert_eq!(one.stats().range_index, super::RangeIndexStats::default());
        let db =
            Db::open(of("four").cuts([b"f", b"m", b"t"].map(|cut| cut.to_vec()).to_vec())).unwrap();
        for key in [b"a", b"g", b"n", b"u"] {
            db.put(key, b"").unwrap();
        }
        // One of the newest runs, and a memtable, in the second part.
        db.flush().unwrap();
        db.put(b"h", b"").unwrap();
        assert_eq!(db.prefix(b"a").unwrap().forward().count(), 1);
        let told = db.stats().range_index;
        assert_eq!((told.scans, told.parts), (1, 0));
        // The first is a sample, and stands for all until the next.
        assert_eq!(told.passed_over, 4 * super::SAMPLE);
        assert_eq!(db.iter().unwrap().forward().count(), 5);
        let told = db.stats();
        assert_eq!((told.range_index.scans, told.range_index.parts), (2, 3));
        // It enters the part where its first search ends up, and no other.
        let mut iter = db.iter().unwrap();
        iter.seek(b"u").unwrap();
        assert_eq!(iter.key(), b"u");
        let told = db.stats();
        assert_eq!((told.range_index.scans, told.range_index.parts), (3, 3));
        let text = told.to_string();
        assert!(
            text.contains("range index 3 scans, 3 times to another part"),
            "{text}"
        );
    }
}
