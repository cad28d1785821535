//! The guard of the one door: whether a version is lawful, and whether an edit
//! may lead from one to the next.
//!
//! Every change of the store passes here before it is recorded, so that a
//! foolish policy or a wrong job can waste work but cannot lose data. I1 is
//! proved in `check/moves.rs`, from ranges and positions alone: no entry is
//! read.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::edit::{Change, Edit};
use crate::key::SeqNo;
use crate::table::{Extent, TableMeta};
use crate::tier::TIERS_MAX;
use crate::version::{Keyspace, KeyspaceId, LEVELS_MAX, Level, Slot, Version};

/// Shorthand for a refusal.
macro_rules! broken {
    ($invariant:ident, $($words:tt)*) => {
        Err(Broken { invariant: Invariant::$invariant, words: format!($($words)*) })
    };
}

mod moves;
mod parts;

use moves::Moves;

/// What a version or an edit must keep.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Invariant {
    /// I1: no entry lies above a newer entry of the same key.
    Recency,
    /// I3: what the log need not keep is in tables.
    Progress,
    /// Runs are sorted and do not overlap; parts keep to their intervals.
    Shape,
    /// Numbers name one thing each, and the counters lie above them.
    Numbers,
    /// What a table says of itself makes sense.
    Table,
}

impl std::fmt::Display for Invariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Invariant::Recency => "I1 recency",
            Invariant::Progress => "I3 log before forget",
            Invariant::Shape => "shape",
            Invariant::Numbers => "numbers",
            Invariant::Table => "table",
        })
    }
}

/// An invariant that a version or an edit breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// Which.
    pub invariant: Invariant,
    /// How: keyspace, slot, tables, ranges.
    pub words: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.words)
    }
}

impl std::error::Error for Broken {}

/// Checks all of a version: what opening a store does with what its manifest
/// says.
///
/// # Errors
/// The first invariant found broken.
pub fn check_version(version: &Version) -> Result<(), Broken> {
    let (base, reach, last) = (version.log_base, version.log_reach, version.last_seq);
    if base > last {
        return broken!(
            Progress,
            "the log begins after {base}, the last entry is {last}"
        );
    }
    if reach > last {
        return broken!(
            Progress,
            "the log must reach {reach}, the last entry is {last}"
        );
    }
    let mut names = HashSet::new();
    let mut tables = HashSet::new();
    let mut runs = HashSet::new();
    let mut objects = HashMap::new();
    for (&id, keyspace) in &version.keyspaces {
        check_keyspace(version, id, keyspace)?;
        if !names.insert(&*keyspace.name) {
            return broken!(Numbers, "two keyspaces are named {:?}", keyspace.name);
        }
        for slot in keyspace.slots() {
            check_level(version, keyspace, slot)?;
            for run in runs_of(keyspace, slot) {
                if !runs.insert(run.id) {
                    return broken!(Numbers, "keyspace {id} {slot}: run {} twice", run.id.0);
                }
                for table in &run.tables {
                    check_table(version, table)?;
                    if !tables.insert(table.id) {
                        return broken!(Numbers, "keyspace {id} {slot}: table {} twice", table.id);
                    }
                    for extent in table.extents() {
                        let (id, object) = (table.id, extent.object);
                        let owner = *objects.entry(object).or_insert(id);
                        if owner != id {
                            return broken!(Numbers, "tables {owner} and {id}: object {object}");
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Checks that `edit` leads lawfully from `before` to `after`. Looks only at
/// what the edit touches.
///
/// Requires: `before` is lawful, and `after` is what `edit` makes of it.
/// Ensures, if it returns `Ok`: `after` is lawful.
///
/// An edit from a version without keyspaces is a snapshot: it is judged as the
/// version it makes.
///
/// # Errors
/// The first invariant found broken.
pub fn check_edit(before: &Version, edit: &Edit, after: &Version) -> Result<(), Broken> {
    if before.keyspaces.is_empty() {
        return check_version(after);
    }
    check_progress(before, edit, after)?;
    check_touched(before, edit, after)?;
    check_numbers(before, edit, after)?;
    let mut keyspaces: Vec<KeyspaceId> = edit
        .added()
        .map(|(keyspace, _, _)| keyspace)
        .chain(edit.removed().map(|(keyspace, _)| keyspace))
        .collect();
    keyspaces.sort_unstable();
    keyspaces.dedup();
    for id in keyspaces {
        // A keyspace that the same edit drops has nothing left to protect.
        if let Some(keyspace) = after.keyspaces.get(&id) {
            let fresh = Keyspace::new(id, &keyspace.name, keyspace.cuts.clone());
            let old = before.keyspaces.get(&id).map_or(&fresh, |k| &**k);
            Moves::new(old, edit, keyspace).check()?;
        }
    }
    Ok(())
}

fn runs_of(keyspace: &Keyspace, slot: Slot) -> &[crate::version::Run] {
    keyspace.level(slot).map_or(&[], |l: &Level| &l.runs)
}

fn check_keyspace(version: &Version, id: KeyspaceId, keyspace: &Keyspace) -> Result<(), Broken> {
    if keyspace.id != id || id.0 >= version.next_keyspace {
        let next = version.next_keyspace;
        return broken!(
            Numbers,
            "keyspace {id} is numbered {}, the next is {next}",
            keyspace.id
        );
    }
    let (parts, cut) = (keyspace.parts.len(), keyspace.cuts.parts());
    if parts != cut {
        return broken!(
            Shape,
            "keyspace {id} has {parts} parts, its cuts make {cut}"
        );
    }
    if keyspace.levels.len() > LEVELS_MAX {
        let levels = keyspace.levels.len();
        return broken!(Shape, "keyspace {id} has {levels} levels");
    }
    if keyspace.levels.last().is_some_and(|l| l.runs.is_empty()) {
        return broken!(Shape, "keyspace {id} ends in an empty level");
    }
    for (part, index) in keyspace.parts.iter().zip(0u32..) {
        if part.flushed > version.last_seq {
            let (flushed, last) = (part.flushed, version.last_seq);
            return broken!(
                Progress,
                "keyspace {id} part {index} is flushed up to {flushed}, the last entry is {last}"
            );
        }
        parts::check_part(version, keyspace, index)?;
    }
    Ok(())
}

fn check_level(version: &Version, keyspace: &Keyspace, slot: Slot) -> Result<(), Broken> {
    let id = keyspace.id;
    for run in runs_of(keyspace, slot) {
        let number = run.id.0;
        if number == 0 || number >= version.next_id {
            let next = version.next_id;
            return broken!(
                Numbers,
                "keyspace {id} {slot}: run {number}, the next number is {next}"
            );
        }
        if run.tables.is_empty() {
            return broken!(Shape, "keyspace {id} {slot}: run {number} is empty");
        }
        for pair in run.tables.windows(2) {
            if !pair[0].range.is_before(&pair[1].range) {
                return broken!(
                    Shape,
                    "keyspace {id} {slot} run {number}: table {} {} is followed by {} {}",
                    pair[0].id,
                    pair[0].range,
                    pair[1].id,
                    pair[1].range
                );
            }
        }
        if let Slot::Newest(part) = slot {
            let (start, end) = keyspace.cuts.interval(part as usize);
            for table in &run.tables {
                let inside = start.is_none_or(|s| s <= &*table.range.start)
                    && end.is_none_or(|e| table.range.ends_before(e));
                if !inside {
                    return broken!(
                        Shape,
                        "keyspace {id} {slot}: table {} {} leaves its part",
                        table.id,
                        table.range
                    );
                }
            }
        }
    }
    Ok(())
}

fn check_table(version: &Version, table: &TableMeta) -> Result<(), Broken> {
    let id = table.id;
    if !table.range.is_valid() {
        return broken!(Table, "table {id}: range {} is empty", table.range);
    }
    let (min, max, last) = (table.seq_min, table.seq_max, version.last_seq);
    if min > max || max > last || max > SeqNo::MAX {
        return broken!(
            Table,
            "table {id}: entries {min} to {max}, the last entry is {last}"
        );
    }
    let (entries, deletes) = (table.entries, table.deletes);
    if deletes > entries || (entries == 0 && table.range_deletes == 0) {
        return broken!(Table, "table {id}: {deletes} deletes in {entries} entries");
    }
    if table.data.is_empty() && entries > 0 {
        return broken!(Table, "table {id}: {entries} entries without data");
    }
    let data = table.extents().skip(1);
    let bytes = data.map(|e| u128::from(e.length)).sum::<u128>() + u128::from(table.meta.length);
    if bytes > u128::from(u64::MAX) || table.dead_bytes > table.data_bytes() {
        let dead = table.dead_bytes;
        return broken!(Table, "table {id}: {dead} dead bytes of {bytes}");
    }
    let next = version.next_id;
    if id.0 == 0 || id.0 >= next {
        return broken!(Numbers, "table {id}, the next number is {next}");
    }
    let extents: Vec<&Extent> = table.extents().collect();
    for (i, extent) in extents.iter().enumerate() {
        let object = extent.object;
        if object.0 == 0 || object.0 >= next {
            return broken!(
                Numbers,
                "table {id}: object {object}, the next number is {next}"
            );
        }
        if extent.tier.0 as usize >= TIERS_MAX {
            return broken!(Table, "table {id}: no tier is numbered {}", extent.tier);
        }
        let Some(end) = extent.offset.checked_add(extent.length) else {
            return broken!(Table, "table {id}: an extent ends beyond 2^64");
        };
        let clash = extents[..i].iter().any(|e| {
            let other_end = e.offset.saturating_add(e.length);
            e.object == object && e.offset < end && extent.offset < other_end
        });
        if clash {
            return broken!(Table, "table {id}: two extents overlap in object {object}");
        }
    }
    Ok(())
}

/// What may only grow.
fn check_progress(before: &Version, edit: &Edit, after: &Version) -> Result<(), Broken> {
    for change in &edit.changes {
        match change {
            Change::SetFlushed {
                keyspace,
                part,
                flushed,
            } => {
                let old = before.keyspaces.get(keyspace);
                let old = old.and_then(|k| k.parts.get(*part as usize));
                let old = old.map_or(SeqNo::ZERO, |p| p.flushed);
                if *flushed < old || *flushed > after.last_seq {
                    return broken!(
                        Progress,
                        "keyspace {keyspace} part {part}: flushed goes from {old} to {flushed}, \
                         the last entry is {}",
                        after.last_seq
                    );
                }
            }
            Change::SetLogFloor { segment } => {
                let old = before.log_floor;
                if *segment < old {
                    return broken!(Progress, "log floor goes from {old} to {segment}");
                }
            }
            Change::SetLogBase { seq } => {
                let (old, last) = (before.log_base, after.last_seq);
                if *seq < old || *seq > last {
                    return broken!(
                        Progress,
                        "the log's base goes from {old} to {seq}, the last entry is {last}"
                    );
                }
            }
            Change::SetLogReach { seq } => {
                let last = after.last_seq;
                if *seq > last {
                    return broken!(
                        Progress,
                        "the log must reach {seq}, the last entry is {last}"
                    );
                }
            }
            Change::SetCounters {
                next_id,
                next_keyspace,
                last_seq,
            } => {
                let new = (*next_id, *next_keyspace, *last_seq);
                let old = (before.next_id, before.next_keyspace, before.last_seq);
                if new.0 < old.0 || new.1 < old.1 || new.2 < old.2 || new.2 > SeqNo::MAX {
                    return broken!(Numbers, "counters go from {old:?} to {new:?}");
                }
            }
            Change::DropKeyspace { keyspace } if *keyspace == KeyspaceId::DEFAULT => {
                return broken!(Shape, "the default keyspace cannot be dropped");
            }
            _ => {}
        }
    }
    Ok(())
}

/// The slots, tables and keyspaces that the edit names.
fn check_touched(before: &Version, edit: &Edit, after: &Version) -> Result<(), Broken> {
    let mut slots: Vec<(KeyspaceId, Slot)> = edit.added().map(|(k, s, _)| (k, s)).collect();
    slots.sort_unstable();
    slots.dedup();
    for (id, slot) in slots {
        if let Some(keyspace) = after.keyspaces.get(&id) {
            check_level(after, keyspace, slot)?;
        }
    }
    for (_, _, table) in edit.added() {
        check_table(after, table)?;
    }
    for change in &edit.changes {
        match change {
            Change::AddKeyspace { keyspace, .. } => {
                if keyspace.0 < before.next_keyspace {
                    return broken!(Numbers, "the number of keyspace {keyspace} is used again");
                }
                if let Some(new) = after.keyspaces.get(keyspace) {
                    check_keyspace(after, *keyspace, new)?;
                }
            }
            Change::SetCuts { keyspace, .. } => {
                // What moves tables is judged by the parts that there were.
                if edit.added().any(|(k, ..)| k == *keyspace)
                    || edit.removed().any(|(k, _)| k == *keyspace)
                {
                    return broken!(Shape, "keyspace {keyspace} is cut while tables move");
                }
                let old = before.keyspaces.get(keyspace);
                if let (Some(old), Some(cut)) = (old, after.keyspaces.get(keyspace)) {
                    check_keyspace(after, *keyspace, cut)?;
                    for slot in cut.slots() {
                        check_level(after, cut, slot)?;
                    }
                    parts::check_recut(old, cut)?;
                }
            }
            Change::SetAhead { keyspace, .. } => {
                // Where parts come from other parts, the cuts say so.
                return broken!(
                    Progress,
                    "keyspace {keyspace}: some keys of a part go ahead"
                );
            }
            Change::SetTiny { keyspace, part, .. } => {
                if let Some(keyspace) = after.keyspaces.get(keyspace) {
                    parts::check_part(after, keyspace, *part)?;
                }
            }
            Change::ReplaceTable { keyspace, table } => {
                check_table(after, table)?;
                let old = before.keyspaces.get(keyspace);
                let old = old.and_then(|k| k.find(table.id)).map(|(_, _, t)| t);
                let same = old.is_some_and(|old| {
                    let mut moved = TableMeta::clone(table);
                    moved.meta = old.meta;
                    moved.data.clone_from(&old.data);
                    moved.dead_bytes = old.dead_bytes;
                    moved == **old
                });
                if !same {
                    return broken!(
                        Table,
                        "keyspace {keyspace}: table {} is replaced by one that differs in more \
                         than its extents",
                        table.id
                    );
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// That new numbers name one thing each. One pass over all tables, with the
/// few new numbers at hand, instead of a set of all. Extents of one table may
/// share an object; two tables may not.
fn check_numbers(before: &Version, edit: &Edit, after: &Version) -> Result<(), Broken> {
    let mut tables = Owners::default();
    let mut objects = Owners::default();
    let mut runs = Owners::default();
    for change in &edit.changes {
        match change {
            Change::AddTable { run, table, .. } => {
                runs.watch(run.0);
                tables.watch(table.id.0);
                table.extents().for_each(|e| objects.watch(e.object.0));
            }
            Change::ReplaceTable { table, .. } => {
                table.extents().for_each(|e| objects.watch(e.object.0));
            }
            _ => {}
        }
    }
    if objects.owners.is_empty() {
        return Ok(());
    }
    let mut place = 0;
    for (id, keyspace) in &after.keyspaces {
        for slot in keyspace.slots() {
            for run in runs_of(keyspace, slot) {
                // No run is empty, so the tables before it tell it apart.
                if runs.claim(run.id.0, place).is_some() {
                    return broken!(Numbers, "keyspace {id} {slot}: run {} twice", run.id.0);
                }
                for table in &run.tables {
                    place += 1;
                    let number = table.id;
                    if tables.claim(number.0, place).is_some() {
                        return broken!(Numbers, "keyspace {id} {slot}: table {number} twice");
                    }
                    for extent in table.extents() {
                        let object = extent.object;
                        if objects.claim(object.0, place).is_some() {
                            return broken!(Numbers, "table {number}: object {object} twice");
                        }
                    }
                }
            }
        }
    }
    // A run that was emptied and filled again must be the run it was.
    for change in &edit.changes {
        if let Change::AddTable {
            keyspace,
            slot,
            run,
            ..
        } = change
        {
            for (id, old) in &before.keyspaces {
                let used = |s: &Slot| runs_of(old, *s).iter().any(|r| r.id == *run);
                let elsewhere = old
                    .slots()
                    .filter(|&s| (*id, s) != (*keyspace, *slot))
                    .find(used);
                if let Some(other) = elsewhere {
                    return broken!(
                        Numbers,
                        "keyspace {keyspace} {slot}: run {} is the number of a run in keyspace \
                         {id} {other}",
                        run.0
                    );
                }
            }
        }
    }
    Ok(())
}

/// A few numbers, and who was seen to bear each.
#[derive(Default)]
struct Owners {
    owners: BTreeMap<u64, Option<u64>>,
}

impl Owners {
    fn watch(&mut self, number: u64) {
        self.owners.insert(number, None);
    }

    /// The other owner of `number`, if it is watched and has one.
    fn claim(&mut self, number: u64, owner: u64) -> Option<u64> {
        let known = self.owners.get_mut(&number)?;
        let other = known.filter(|&o| o != owner);
        *known = Some(owner);
        other
    }
}
