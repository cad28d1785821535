//! I1 for edits: no table moves past an overlapping one.
//!
//! The argument: take a key `k` and a table `X` that stays and covers `k`. An
//! entry of `k` in an output can only come from an input that covers `k`. So
//! if every such input lay above `X`, the output must lie above it; if every
//! one lay below, below; and if some lay above and some below, the edit is
//! refused. Ranges are intervals, so an input, an output and `X` that overlap
//! in pairs share a key, and it is enough to look at pairs.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::{Broken, Invariant, runs_of};
use crate::edit::Edit;
use crate::key::SeqNo;
use crate::range::KeyRange;
use crate::table::{TableId, TableMeta};
use crate::version::{Keyspace, Slot};

/// Where a table lies in the order of recency: smaller is newer. Tables of
/// different parts share their first number and never overlap.
type Place = (u32, usize);

fn place(slot: Slot, run: usize) -> Place {
    match slot {
        Slot::Newest(_) => (0, run),
        Slot::Level(level) => (level + 1, run),
    }
}

/// A table on its way: taken from, or put to, a place.
struct Moving<'a> {
    slot: Slot,
    place: Place,
    table: &'a Arc<TableMeta>,
}

/// The tables that an edit moves within one keyspace.
pub(super) struct Moves<'a> {
    before: &'a Keyspace,
    after: &'a Keyspace,
    /// Gone from where they were, by number.
    removed: BTreeMap<TableId, Moving<'a>>,
    /// New where they are, by number.
    added: BTreeMap<TableId, Moving<'a>>,
    /// Numbers of the removed tables that do not come back elsewhere: what the
    /// outputs are made from.
    inputs: Vec<TableId>,
}

impl<'a> Moves<'a> {
    /// What `edit` moves on its way from `before` to `after`.
    pub(super) fn new(before: &'a Keyspace, edit: &Edit, after: &'a Keyspace) -> Moves<'a> {
        let id = after.id;
        let removed = edit.removed().filter(|(k, _)| *k == id);
        let removed = locate(before, removed.map(|(_, t)| t).collect());
        let added = edit.added().filter(|(k, _, _)| *k == id);
        let added = locate(after, added.map(|(_, _, t)| t.id).collect());
        let inputs = removed.keys().filter(|t| !added.contains_key(t));
        Moves {
            before,
            after,
            inputs: inputs.copied().collect(),
            removed,
            added,
        }
    }

    /// Requires: runs and tables of `after` are in order by themselves.
    pub(super) fn check(&self) -> Result<(), Broken> {
        let inputs = || self.inputs.iter().map(|t| &self.removed[t].table);
        let hull = inputs().map(|t| t.range.clone());
        let hull: Option<KeyRange> = hull.reduce(|a, b| a.hull(&b));
        let newest = inputs().map(|t| t.seq_max).max().unwrap_or_default();
        let mut entries_left = inputs().fold(0u64, |sum, t| sum.saturating_add(t.entries));
        for (id, new) in &self.added {
            match (self.removed.get(id), &hull) {
                (Some(old), _) => self.check_moved(old, new)?,
                (None, Some(hull)) => {
                    self.check_output(new, hull, newest, &mut entries_left)?;
                }
                (None, None) => self.check_flushed(new)?,
            }
            self.check_passing(new)?;
        }
        Ok(())
    }

    fn check_moved(&self, old: &Moving<'_>, new: &Moving<'_>) -> Result<(), Broken> {
        if old.table == new.table {
            return Ok(());
        }
        let (id, table) = (self.after.id, new.table.id);
        broken!(Table, "keyspace {id}: table {table} changes as it moves")
    }

    fn check_output(
        &self,
        new: &Moving<'_>,
        hull: &KeyRange,
        newest: SeqNo,
        entries_left: &mut u64,
    ) -> Result<(), Broken> {
        let (id, slot, table) = (self.after.id, new.slot, new.table);
        if hull.hull(&table.range) != *hull {
            return broken!(
                Recency,
                "keyspace {id} {slot}: output {} {} leaves the range {hull} of its inputs",
                table.id,
                table.range
            );
        }
        if table.seq_max > newest {
            return broken!(
                Recency,
                "keyspace {id} {slot}: output {} has entry {}, its inputs end at {newest}",
                table.id,
                table.seq_max
            );
        }
        match entries_left.checked_sub(table.entries) {
            Some(left) => *entries_left = left,
            None => {
                return broken!(
                    Table,
                    "keyspace {id} {slot}: outputs up to {} have more entries than the inputs",
                    table.id
                );
            }
        }
        Ok(())
    }

    /// A table without inputs comes from memtables, which are newer than every
    /// table of their part.
    fn check_flushed(&self, new: &Moving<'_>) -> Result<(), Broken> {
        let (id, slot, table) = (self.after.id, new.slot, new.table);
        let Slot::Newest(part) = slot else {
            return self.check_loaded(new);
        };
        let part = part as usize;
        let old_runs = self
            .before
            .parts
            .get(part)
            .map_or(0, |p| p.newest.runs.len());
        let new_runs = self.after.parts[part].newest.runs.len();
        if new.place.1 != 0 || new_runs <= old_runs {
            return broken!(
                Recency,
                "keyspace {id} {slot}: flushed table {} {} is not the newest run",
                table.id,
                table.range
            );
        }
        let flushed = |k: &Keyspace| k.parts.get(part).map_or(SeqNo::ZERO, |p| p.flushed);
        let (from, to) = (flushed(self.before), flushed(self.after));
        if table.seq_min <= from || table.seq_max > to {
            return broken!(
                Progress,
                "keyspace {id} {slot}: table {} holds entries {} to {}, flushed goes from {from} \
                 to {to}",
                table.id,
                table.seq_min,
                table.seq_max
            );
        }
        Ok(())
    }

    /// A table without inputs below the newest levels comes from a bulk load:
    /// newer than everything, it may lie anywhere as long as nothing overlaps it.
    fn check_loaded(&self, new: &Moving<'_>) -> Result<(), Broken> {
        let (id, slot, table) = (self.after.id, new.slot, new.table);
        let other = self
            .after
            .tables()
            .find(|(_, _, t)| t.id != table.id && t.range.overlaps(&table.range));
        if let Some((at, _, other)) = other {
            return broken!(
                Recency,
                "keyspace {id} {slot}: table {} {} has no inputs, and table {} {} of {at} overlaps \
                 it",
                table.id,
                table.range,
                other.id,
                other.range
            );
        }
        for (part, before) in self.before.parts.iter().enumerate() {
            let (start, end) = self.before.cuts.interval(part);
            let to = self
                .after
                .parts
                .get(part)
                .map_or(SeqNo::ZERO, |p| p.flushed);
            let reached = table.seq_min > before.flushed && table.seq_max <= to;
            if table.range.overlaps_bounds(start, end) && !reached {
                return broken!(
                    Progress,
                    "keyspace {id} {slot}: table {} holds entries {} to {}, flushed goes from {} \
                     to {to} in part {part}",
                    table.id,
                    table.seq_min,
                    table.seq_max,
                    before.flushed
                );
            }
        }
        Ok(())
    }

    /// The tables that entries of `new` may come from.
    fn sources(&self, new: &Moving<'_>) -> impl Iterator<Item = &Moving<'a>> {
        let moved = self.removed.get(&new.table.id);
        let inputs = match moved {
            Some(_) => &[][..],
            None => &self.inputs[..],
        };
        let range = &new.table.range;
        let inputs = inputs.iter().map(|t| &self.removed[t]);
        moved
            .into_iter()
            .chain(inputs.filter(move |m| m.table.range.overlaps(range)))
    }

    /// That nothing in `new` has moved past an overlapping table.
    fn check_passing(&self, new: &Moving<'_>) -> Result<(), Broken> {
        let sources: Vec<_> = self.sources(new).collect();
        for slot in self.after.slots() {
            let old_runs = runs_of(self.before, slot);
            for (index, run) in runs_of(self.after, slot).iter().enumerate() {
                let other_place = place(slot, index);
                let old_index = old_runs.iter().position(|r| r.id == run.id);
                for other in run.overlapping(&new.table.range) {
                    if other.id == new.table.id {
                        continue;
                    }
                    let above = new.place < other_place;
                    if let Some(added) = self.added.get(&other.id) {
                        // The lower one's turn comes with the upper one's.
                        if above {
                            self.check_both(new, &sources, added)?;
                        }
                        continue;
                    }
                    let Some(old_index) = old_index else {
                        return broken!(Numbers, "{slot}: table {} came unasked", other.id);
                    };
                    let old_place = place(slot, old_index);
                    let passed = sources.iter().find(|s| {
                        s.table.range.overlaps(&other.range) && (s.place < old_place) != above
                    });
                    if let Some(source) = passed {
                        return broken!(
                            Recency,
                            "keyspace {}: table {} {} of {} would pass the {} table {} {} of \
                             {slot} as part of table {} {} in {}",
                            self.after.id,
                            source.table.id,
                            source.table.range,
                            source.slot,
                            if above { "newer" } else { "older" },
                            other.id,
                            other.range,
                            new.table.id,
                            new.table.range,
                            new.slot
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// That `new` may lie above the new table `other`, which it overlaps: they
    /// lie in the order of what they are made from. Outputs of one merge that an
    /// input reaches both must tell their entries apart by number.
    fn check_both(
        &self,
        new: &Moving<'_>,
        sources: &[&Moving<'_>],
        other: &Moving<'_>,
    ) -> Result<(), Broken> {
        let apart = new.table.seq_min > other.table.seq_max;
        let ordered = apart
            || sources.iter().all(|above| {
                self.sources(other).all(|below| {
                    let meet = above.table.range.overlaps(&below.table.range);
                    !meet || above.place < below.place
                })
            });
        if ordered {
            return Ok(());
        }
        let (a, b) = (&new.table.range, &other.table.range);
        broken!(
            Recency,
            "keyspace {}: new table {} {a} in {} would lie above new table {} {b} in {}, whose \
             entries may be newer",
            self.after.id,
            new.table.id,
            new.slot,
            other.table.id,
            other.slot
        )
    }
}

/// Where the tables numbered `wanted` lie.
fn locate(keyspace: &Keyspace, wanted: HashSet<TableId>) -> BTreeMap<TableId, Moving<'_>> {
    let mut found = BTreeMap::new();
    if wanted.is_empty() {
        return found;
    }
    for slot in keyspace.slots() {
        for (index, run) in runs_of(keyspace, slot).iter().enumerate() {
            for table in run.tables.iter().filter(|t| wanted.contains(&t.id)) {
                let place = place(slot, index);
                let moving = Moving { slot, place, table };
                found.insert(table.id, moving);
            }
        }
    }
    found
}
