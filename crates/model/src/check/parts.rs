//! What parts say of themselves, and that other cuts lose nothing.

use std::collections::BTreeMap;

use super::{Broken, Invariant, runs_of};
use crate::key::SeqNo;
use crate::table::TableId;
use crate::version::{Keyspace, Slot, TINY_MAX, Version};

/// Checks the tiny ranges of a part, and what it says of keys that are ahead.
pub(super) fn check_part(version: &Version, keyspace: &Keyspace, part: u32) -> Result<(), Broken> {
    let id = keyspace.id;
    let Some(of) = keyspace.parts.get(part as usize) else {
        return broken!(Shape, "keyspace {id} has no part {part}");
    };
    let (start, end) = keyspace.cuts.interval(part as usize);
    let start = start.unwrap_or_default();
    let tiny = &of.tiny;
    let begins = tiny.first().is_none_or(|first| *first.start == *start);
    let ascend = tiny.windows(2).all(|pair| pair[0].start < pair[1].start);
    // They ascend from its first key on: the last one tells whether all are inside.
    let ends = match (tiny.last(), end) {
        (Some(last), Some(end)) => *last.start < *end,
        _ => true,
    };
    if !(begins && ascend && ends && tiny.len() <= TINY_MAX) {
        return broken!(
            Shape,
            "keyspace {id} part {part}: its {} tiny ranges do not divide it",
            tiny.len()
        );
    }
    let mut from = start;
    for (at, ahead) in of.ahead.iter().enumerate() {
        let last = at + 1 == of.ahead.len();
        let to = ahead.end.as_deref();
        let ends = match (to, end) {
            (Some(to), _) => *ahead.start < *to && end.is_none_or(|end| to <= end),
            (None, end) => last && end.is_none(),
        };
        if *ahead.start < *from || !ends {
            return broken!(
                Shape,
                "keyspace {id} part {part}: keys from {} are ahead outside of it",
                ahead.start.escape_ascii()
            );
        }
        if ahead.flushed <= of.flushed || ahead.flushed > version.last_seq {
            let (flushed, last) = (ahead.flushed, version.last_seq);
            return broken!(
                Progress,
                "keyspace {id} part {part}: keys are flushed up to {flushed}, the part up to {}, \
                 the last entry is {last}",
                of.flushed
            );
        }
        from = to.unwrap_or_default();
    }
    Ok(())
}

/// That `after` is `before` with other cuts and nothing else: no table is lost, none
/// passes one that it overlaps (I1), and no key is taken for flushed further than
/// it was (I3). Does not go by how the parts were made. Requires: the runs of `after` are in
/// order by themselves.
pub(super) fn check_recut(before: &Keyspace, after: &Keyspace) -> Result<(), Broken> {
    let id = after.id;
    // By table: smaller is newer, as in `moves`.
    let place = |keyspace: &Keyspace| -> BTreeMap<TableId, (u32, usize)> {
        let mut places = BTreeMap::new();
        for slot in keyspace.slots() {
            let level = match slot {
                Slot::Newest(_) => 0,
                Slot::Level(level) => level + 1,
            };
            for (at, run) in runs_of(keyspace, slot).iter().enumerate() {
                places.extend(run.tables.iter().map(|t| (t.id, (level, at))));
            }
        }
        places
    };
    let (old, new) = (place(before), place(after));
    if !old.keys().eq(new.keys()) {
        return broken!(Recency, "keyspace {id}: tables come or go as it is cut");
    }
    for slot in before.slots().filter(|s| matches!(s, Slot::Newest(_))) {
        for run in runs_of(before, slot) {
            for table in &run.tables {
                let runs = after.slots().flat_map(|slot| runs_of(after, slot));
                let mut met = runs.flat_map(|run| run.overlapping(&table.range));
                let passed = met.find(|other| {
                    old[&table.id].cmp(&old[&other.id]) != new[&table.id].cmp(&new[&other.id])
                });
                if let Some(other) = passed {
                    return broken!(
                        Recency,
                        "keyspace {id}: table {} {} would pass table {} {} as it is cut",
                        table.id,
                        table.range,
                        other.id,
                        other.range
                    );
                }
            }
        }
    }
    let levels = before.levels.iter().zip(0..);
    for (level, at) in levels {
        let kept = runs_of(after, Slot::Level(at));
        if !kept.ends_with(&level.runs) || (at > 0 && kept.len() != level.runs.len()) {
            return broken!(
                Shape,
                "keyspace {id}: {} changes as it is cut",
                Slot::Level(at)
            );
        }
    }
    check_flushed(before, after)
}

/// That every key is flushed as far as it was. It is enough to look at each key at
/// which something begins.
fn check_flushed(before: &Keyspace, after: &Keyspace) -> Result<(), Broken> {
    let flushed = |keyspace: &Keyspace, key: &[u8]| -> SeqNo {
        let part = keyspace.parts.get(keyspace.cuts.part_of(key));
        part.map_or(SeqNo::ZERO, |p| p.flushed_of(key))
    };
    for keyspace in [before, after] {
        let ahead = keyspace.parts.iter().flat_map(|p| &p.ahead);
        let ahead = ahead.flat_map(|a| std::iter::once(&*a.start).chain(a.end.as_deref()));
        let bounds = keyspace.cuts.bounds().iter().map(|b| &**b);
        for key in bounds.chain(ahead).chain([&[][..]]) {
            let (was, is) = (flushed(before, key), flushed(after, key));
            if was != is {
                return broken!(
                    Progress,
                    "keyspace {}: {} was flushed up to {was}, and up to {is} as it is cut",
                    after.id,
                    key.escape_ascii()
                );
            }
        }
    }
    Ok(())
}
