//! What of a level goes to the next one, and what that costs: a table and those beside it, or a
//! part's share.

use std::sync::Arc;

use thermocline_model::table::TableMeta;
use thermocline_model::version::Keyspace;
use thermocline_model::view::View;

use crate::plan::leveled::{bytes_of, hull, in_the_way};
use crate::plan::parts::are_by_writes;
use crate::plan::targets::Targets;

/// Largest merge of a part's share with what it overlaps, in tables of full size,
/// unless a single table overlaps more.
const SHARE_TABLES_MAX: u64 = 128;

/// The same where writes have made the cuts. There one part may hold nearly all keys, those that
/// are seldom written, and while its share is merged nothing newer of it is, nor of others where
/// one merge runs at a time.
const SHARE_BY_WRITES_TABLES_MAX: u64 = 10;

/// A level of one run, and the one that it is merged into.
pub(super) struct Between<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) keyspace: &'a Keyspace,
    /// Index of the level.
    pub(super) level: usize,
    /// Index of the next one.
    pub(super) to: usize,
    upper: &'a [Arc<TableMeta>],
    lower: &'a [Arc<TableMeta>],
    picks: Vec<Pick>,
}

/// Tables of a level that go down together.
pub(super) struct Piece {
    /// Bytes that are rewritten of the next level for each of theirs.
    pub(super) cost: f64,
    /// Indices, ends included.
    first: usize,
    last: usize,
}

/// A table of the upper level with what it overlaps of the lower one.
pub(super) struct Pick {
    /// Overlapping tables of the lower level: `from..to`.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) overlap_bytes: u64,
    pub(super) size_bytes: u64,
    /// Whether none of these tables is busy.
    pub(super) free: bool,
}

impl<'a> Between<'a> {
    /// `None` when the next level has several runs, which must be merged first, or `level` has
    /// none.
    pub(super) fn of(
        view: &'a View<'a>,
        keyspace: &'a Keyspace,
        targets: &Targets,
        level: usize,
    ) -> Option<Between<'a>> {
        let to = (level + 1..targets.base).find(|&l| targets.bytes[l] > 0);
        let to = to.unwrap_or(targets.base).max(level + 1);
        let upper = &keyspace.levels.get(level)?.runs.first()?.tables;
        let lower = match keyspace.levels.get(to).map_or(&[][..], |l| &l.runs) {
            [] => &[][..],
            [run] => &run.tables,
            _ => return None,
        };
        Some(Between {
            view,
            keyspace,
            level,
            to,
            upper,
            lower,
            picks: picks(view, upper, lower),
        })
    }

    /// The tables of `piece`, and those of the next level that they overlap.
    pub(super) fn tables_of(&self, piece: &Piece) -> (&'a [Arc<TableMeta>], &'a [Arc<TableMeta>]) {
        let (upper, lower) = (self.upper, self.lower);
        let below = self.overlapped(piece.first, piece.last);
        (&upper[piece.first..=piece.last], &lower[below])
    }

    /// What tables `a` to `b` overlap; what lies in between goes along.
    fn overlapped(&self, a: usize, b: usize) -> std::ops::Range<usize> {
        self.picks[a].from..self.picks[b].to
    }

    /// Whether another job's outputs will lie where those of tables `a` to `b` are to.
    fn is_blocked(&self, a: usize, b: usize) -> bool {
        if self.view.busy_outputs.is_empty() {
            return false;
        }
        let below = &self.lower[self.overlapped(a, b)];
        let range = hull(self.upper[a..=b].iter().chain(below));
        range.is_none_or(|range| {
            in_the_way(self.view, self.keyspace, self.level + 1, self.to, &range)
        })
    }

    /// The table that overlaps least for its size, with neighbours that add nothing to the cost. A
    /// merge stops at `bytes_max`; a move, which costs nothing but empties the level, at
    /// `excess_bytes`.
    pub(super) fn cheapest(&self, excess_bytes: u64, bytes_max: u64) -> Option<Piece> {
        let picks = &self.picks;
        let cost = |p: &Pick| p.overlap_bytes as f64 / p.size_bytes.max(1) as f64;
        let mut best: Option<usize> = None;
        for (i, pick) in picks.iter().enumerate().filter(|(_, p)| p.free) {
            let better = best.is_none_or(|best| cost(pick) < cost(&picks[best]));
            if better && !self.is_blocked(i, i) {
                best = Some(i);
            }
        }
        let best = best?;
        let (a, b) = grow(picks, best, excess_bytes, bytes_max);
        let (first, last) = match self.is_blocked(a, b) {
            true => (best, best),
            false => (a, b),
        };
        Some(Piece {
            cost: cost(&picks[best]),
            first,
            last,
        })
    }

    /// The part's share that is merged down best: of those that may be, the one that overlaps least
    /// for its size. A share that is too large ([`SHARE_TABLES_MAX`]) is divided into pieces that
    /// are not, each of at least one table, and each counts as a share.
    pub(super) fn share(&self) -> Option<Piece> {
        let (upper, picks) = (self.upper, &self.picks);
        let tables_max = match are_by_writes(self.keyspace) {
            true => SHARE_BY_WRITES_TABLES_MAX,
            false => SHARE_TABLES_MAX,
        };
        let bytes_max = tables_max * self.view.shape.table_bytes;
        let part = |at: usize| self.keyspace.cuts.part_of(&upper[at].range.start);
        let mut best: Option<Piece> = None;
        let mut first = 0;
        while first < upper.len() {
            let (mut last, mut size) = (first, picks[first].size_bytes);
            let mut below = self.overlapped(first, first);
            let mut overlap = bytes_of(&self.lower[below.clone()]);
            while last + 1 < upper.len() && part(last + 1) == part(first) {
                let next = self.overlapped(first, last + 1);
                let with_next = overlap + bytes_of(&self.lower[below.end..next.end]);
                if size + picks[last + 1].size_bytes + with_next > bytes_max {
                    break;
                }
                last += 1;
                size += picks[last].size_bytes;
                (below, overlap) = (next, with_next);
            }
            let cost = overlap as f64 / size.max(1) as f64;
            let free = picks[first..=last].iter().all(|p| p.free);
            if free && best.as_ref().is_none_or(|b| cost < b.cost) && !self.is_blocked(first, last)
            {
                best = Some(Piece { cost, first, last });
            }
            first = last + 1;
        }
        best
    }
}

/// For every upper table, what it overlaps; one walk over both levels.
pub(super) fn picks(
    view: &View<'_>,
    upper: &[Arc<TableMeta>],
    lower: &[Arc<TableMeta>],
) -> Vec<Pick> {
    let busy = |t: &TableMeta| !view.busy.is_empty() && view.busy.contains(&t.id);
    let mut from = 0;
    let mut picks = Vec::with_capacity(upper.len());
    for table in upper {
        while from < lower.len() && lower[from].range.is_before(&table.range) {
            from += 1;
        }
        let mut to = from;
        let mut free = !busy(table);
        let mut overlap_bytes = 0;
        while to < lower.len() && !table.range.is_before(&lower[to].range) {
            free &= !busy(&lower[to]);
            overlap_bytes += lower[to].size_bytes();
            to += 1;
        }
        picks.push(Pick {
            from,
            to,
            overlap_bytes,
            size_bytes: table.size_bytes(),
            free,
        });
    }
    picks
}

/// The neighbours that `best` takes along, as a range of indices, ends
/// included: as long as they overlap nothing that `best` does not overlap.
fn grow(picks: &[Pick], best: usize, excess_bytes: u64, bytes_max: u64) -> (usize, usize) {
    let pick = &picks[best];
    let limit = if pick.from == pick.to {
        excess_bytes.min(bytes_max)
    } else {
        bytes_max
    };
    let mut bytes = pick.size_bytes + pick.overlap_bytes;
    let mut fits = |p: &Pick| {
        let inside = p.free && p.from >= pick.from && p.to <= pick.to;
        let fits = inside && bytes + p.size_bytes <= limit;
        if fits {
            bytes += p.size_bytes;
        }
        fits
    };
    let (mut a, mut b) = (best, best);
    while b + 1 < picks.len() && fits(&picks[b + 1]) {
        b += 1;
    }
    while a > 0 && fits(&picks[a - 1]) {
        a -= 1;
    }
    (a, b)
}
