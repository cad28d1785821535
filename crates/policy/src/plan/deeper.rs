//! Room that one merge makes on both sides (`logstore`): while L1 is put in order (staging
//! compaction, LogStore, section V-D) the cold stretches of it go on to the last level.
//!
//! The paper merges within the fast levels first, so that what is cold lies in tables of its own,
//! and these go down in a merge of theirs (V-A), which reads what the first has just written. Where
//! both are due here it is one: of the intervals of the last level's tables those are taken whose
//! part of L1 is to go first ([`super::leaving`]), as with [`super::coldest`]; what the merge has
//! there joins the last level, and all else stays.
//!
//! An interval begins with a table of the last level and ends where the next one does, unless keys
//! in between are as many as its own: there the last level has nothing, as it was loaded above it
//! or has gone up, and each settled table of L1 is an interval. All of L1 that reaches into an
//! interval is an input, so that nothing is passed (I1).
//!
//! What an interval has of a wide table, such as a flush, is reckoned by how much of L1's narrow
//! ones lies there: written keys are no more evenly spread than read ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use thermocline_model::job::{Deeper, Reason};
use thermocline_model::key::KEY_BYTES_MAX;
use thermocline_model::range::KeyRange;
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::version::Slot;
use thermocline_model::view::View;

use crate::place::reads::ReadsByKey;
use crate::place::span::{Span, wide};
use crate::plan::fast_levels::{FastLevels, FastTable, bytes_of, cost_s};
use crate::plan::headroom::TABLES_MAX;
use crate::plan::leaving::{self, Leaving};

/// What a merge within L1 takes along, and sends down.
#[derive(Debug)]
pub(super) struct GoingDown<'a> {
    /// Tables of L1 that nothing overlaps, which it would not have read.
    pub upper: Vec<FastTable<'a>>,
    /// Tables of the last level.
    pub below: Vec<&'a Arc<TableMeta>>,
    pub deeper: Deeper,
    /// Of what goes first, if it is known.
    temperature: Option<f64>,
}

/// Keys that go down together.
#[derive(Clone)]
struct Interval<'a> {
    /// The table of the last level, where there is one.
    below: Option<&'a Arc<TableMeta>>,
    range: KeyRange,
    upper: Vec<FastTable<'a>>,
    /// Of these, the bytes that are reckoned to lie here.
    bytes: u64,
    /// Of these, those of tables that are old enough to have a temperature.
    known_bytes: u64,
    /// Theirs, as far as it is known.
    temperature: Option<f64>,
}

impl<'a> GoingDown<'a> {
    /// With a merge of `merged`, all tables of L1 that overlap others of it: what is to go down so
    /// that `bytes` leave the fast levels, or as many as go [`leaving::at_once`]. `room_bytes` are
    /// what more tables of L1 may have. None where nothing can go.
    pub(super) fn of(
        view: &View<'_>,
        levels: &FastLevels<'a>,
        merged: &[FastTable<'a>],
        bytes: u64,
        room_bytes: u64,
    ) -> Option<GoingDown<'a>> {
        let mut intervals = intervals(view, levels)?;
        intervals.sort_by(|a, b| cold(a).total_cmp(&cold(b)));
        let all: Vec<_> = intervals.iter().map(Interval::leaving).collect();
        let first = leaving::first(view, &all, bytes);
        let fast_s = cost_s(view, merged);
        let bytes = leaving::at_once(view, first.iter().map(|&at| &all[at]), bytes, fast_s);

        let mut known: BTreeSet<TableId> = merged.iter().map(|t| t.table.id).collect();
        let (mut upper, mut chosen) = (Vec::new(), Vec::<Interval<'a>>::new());
        let (mut upper_bytes, mut below_bytes, mut going_bytes) = (0, 0, 0);
        let below_max = TABLES_MAX.saturating_mul(view.shape.table_bytes);
        for interval in first.into_iter().map(|at| &intervals[at]) {
            if going_bytes >= bytes {
                break;
            }
            let more = interval.upper.iter().copied();
            let more: Vec<_> = more.filter(|t| !known.contains(&t.table.id)).collect();
            let more_bytes = upper_bytes + bytes_of(more.iter().map(|t| t.table));
            let with_below = below_bytes + bytes_of(interval.below);
            // All that is overlapped is merged: the rest has nothing newer above it, or it came
            // since.
            let settled = more.iter().all(|t| levels.is_settled(*t));
            let nothing = interval.bytes == 0;
            if nothing || !settled || more_bytes > room_bytes || with_below > below_max {
                continue;
            }
            (upper_bytes, below_bytes) = (more_bytes, with_below);
            going_bytes += interval.bytes;
            known.extend(more.iter().map(|t| t.table.id));
            upper.extend(more);
            chosen.push(interval.clone());
        }
        // All of it is written anew, and where that has no room nothing should depend on it.
        let slower = view
            .tiers
            .iter()
            .skip(1)
            .map(|t| t.room_beside(below_bytes));
        let has_room = slower.max() > Some(below_bytes.saturating_add(going_bytes));
        let chosen = if has_room { chosen } else { Vec::new() };
        let temperature = chosen.first()?.temperature;
        let below = chosen.iter().filter_map(|i| i.below).collect();
        let deeper = Deeper {
            slot: Slot::Level(u32::try_from(levels.last).ok()?),
            ranges: joined(chosen.into_iter().map(|i| i.range)),
            bytes: going_bytes,
        };
        Some(GoingDown {
            upper,
            below,
            deeper,
            temperature,
        })
    }

    /// `reason` with what goes down.
    pub(super) fn reason(&self, reason: Reason) -> Reason {
        let overlap_bytes = bytes_of(self.below.iter().copied());
        let reason = reason
            .with("deeper_bytes", self.deeper.bytes as f64)
            .with("deeper_overlap_bytes", overlap_bytes as f64);
        match self.temperature {
            Some(temperature) => reason.with("deeper_temperature", temperature),
            None => reason,
        }
    }
}

impl Interval<'_> {
    fn leaving(&self) -> Leaving<'_> {
        Leaving {
            bytes: self.bytes,
            known_bytes: self.known_bytes,
            temperature: self.temperature,
            below: self.below.into_iter().collect(),
        }
    }
}

/// Order by temperature, what is not known last.
fn cold(interval: &Interval<'_>) -> f64 {
    interval.temperature.unwrap_or(f64::INFINITY)
}

/// The intervals into which something of L1 reaches that no job works on, if the last level is one
/// run.
fn intervals<'a>(view: &View<'_>, levels: &FastLevels<'a>) -> Option<Vec<Interval<'a>>> {
    let [run] = &levels.keyspace.levels.get(levels.last)?.runs[..] else {
        return None;
    };
    if levels.has_strays() {
        return None;
    }
    let upper: Vec<_> = levels.tables().collect();
    let reckoned = Reckoned::of(&upper, &run.tables)?;
    let next = run.tables.iter().skip(1).map(Some).chain([None]);
    let over = run.tables.iter().zip(next).map(|(below, next)| {
        let range = reach(&reckoned.span, &below.range, next.map(|n| &n.range));
        (Some(below), range)
    });
    let over: Vec<_> = over.collect();
    let alone = upper.iter().filter(|t| {
        let range = &t.table.range;
        let at = over.partition_point(|(_, other)| other.is_before(range));
        let meets = over.get(at).is_some_and(|(_, other)| other.overlaps(range));
        !meets && levels.is_settled(**t)
    });
    let alone: Vec<_> = alone.map(|t| (None, t.table.range.clone())).collect();
    let busy = |t: &Arc<TableMeta>| view.busy.contains(&t.id);
    let intervals = over.into_iter().chain(alone).filter_map(|(below, range)| {
        // What comes behind its last key could not be named.
        let ends = !range.end_inclusive || range.end.len() < KEY_BYTES_MAX;
        let upper = levels.overlapping(&range);
        if !ends
            || upper.is_empty()
            || below.is_some_and(busy)
            || upper.iter().any(|t| busy(t.table))
        {
            return None;
        }
        let (mut bytes, mut known_bytes, mut reads) = (0.0, 0.0, 0.0);
        for fast in &upper {
            let here = reckoned.bytes(fast.table, &range);
            bytes += here;
            let heat = view.heat.get(&fast.table.id);
            if let Some(temperature) = heat.and_then(|h| h.temperature) {
                known_bytes += here;
                reads += here * temperature;
            }
        }
        Some(Interval {
            below,
            range,
            upper,
            bytes: bytes as u64,
            known_bytes: known_bytes as u64,
            temperature: (known_bytes > 0.0).then(|| reads / known_bytes),
        })
    });
    Some(intervals.collect())
}

/// How many bytes tables of L1 have in an interval.
struct Reckoned {
    span: Span,
    wide: BTreeSet<TableId>,
    /// Bytes of those that are not wide.
    narrow: ReadsByKey,
}

impl Reckoned {
    fn of(upper: &[FastTable<'_>], last: &[Arc<TableMeta>]) -> Option<Reckoned> {
        let span = Span::of(upper.iter().map(|t| t.table).chain(last))?;
        let places: Vec<_> = upper.iter().map(|t| span.place(&t.table.range)).collect();
        let is_wide = wide(&places);
        let of = |is: bool| {
            let all = upper.iter().zip(&places).zip(&is_wide);
            all.filter(move |(_, wide)| **wide == is).map(|(t, _)| t)
        };
        let narrow = of(false).map(|(t, place)| (*place, t.table.size_bytes() as f64));
        let narrow = ReadsByKey::of(narrow);
        let wide = of(true).map(|(t, _)| t.table.id).collect();
        Some(Reckoned { span, wide, narrow })
    }

    fn bytes(&self, table: &TableMeta, range: &KeyRange) -> f64 {
        let bytes = table.size_bytes() as f64;
        let evenly = || self.span.shared(&table.range, range) * bytes;
        if !self.wide.contains(&table.id) {
            return evenly();
        }
        let narrow = |low: f64, high: f64| self.narrow.between(low, high);
        let (low, width) = self.span.place(&table.range);
        let (start, reach) = self.span.place(range);
        let (end, high) = (low + width, start + reach);
        let all = narrow(low, end);
        match all > 0.0 {
            true => (narrow(low.max(start), end.min(high)) / all).clamp(0.0, 1.0) * bytes,
            false => evenly(),
        }
    }
}

/// From the first key of `range` to before `next`, unless what is in between is wider than `range`.
fn reach(span: &Span, range: &KeyRange, next: Option<&KeyRange>) -> KeyRange {
    let (_, width) = span.place(range);
    match next {
        Some(next) if span.at(&next.start) - span.at(&range.end) <= width => {
            KeyRange::exclusive(&range.start, &next.start)
        }
        _ => range.clone(),
    }
}

/// The intervals in order, those that meet as one.
fn joined(ranges: impl Iterator<Item = KeyRange>) -> Vec<KeyRange> {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    let mut joined: Vec<KeyRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if !last.end_inclusive && last.end == range.start => {
                *last = last.hull(&range);
            }
            _ => joined.push(range),
        }
    }
    joined
}
