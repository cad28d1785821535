//! Cuts that move with the writes: Nova-LSM's dynamic ranges (section 4.1).
//!
//! A part is divided into tiny ranges, and each counts its writes (definitions 4.1 and
//! 4.2). A part is too hot when each of its memtables gets more than an even share
//! of the writes and some more. Then one of two things is done:
//!
//! - a *minor* reorganisation (4.3) gives tiny ranges of the hot part to its neighbours, from its
//!   ends, as long as the neighbour has less afterwards than the hot part had before. What that
//!   makes too hot goes on giving, in the same reorganisation, and where it ends with a part that
//!   is still too hot, all tiny ranges are shared out anew. It must take a share of what the
//!   hottest has too much, or it would be done again and again for next to nothing, where tiny
//!   ranges are too coarse;
//! - a *major* one (4.4) makes all parts anew, from keys sampled of the memtables
//!   ([`super::major`]), where that does not balance the load: a single tiny range is too hot, or
//!   one key is.
//!
//! Where fewer parts are allowed than the writes have made, as another preset allowed more or as
//! they do not pay any more ([`super::parts`]), neighbours are joined.
//!
//! Whether a major reorganisation is worth it can only be known from the sample. After each look in
//! vain the next one waits twice as long.

use std::sync::Arc;

use thermocline_model::job::{Job, NewPart, Reason, Recut};
use thermocline_model::version::{Keyspace, KeyspaceId, Slot, Tiny};
use thermocline_model::view::{KeyspaceWrites, PartWrites, RangeOptions, View};

use crate::Planner;
use crate::plan::parts::have_moved;

/// See the module.
#[derive(Debug, Default)]
pub struct MoveCuts;

impl Planner for MoveCuts {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let mut writes = view.writes.iter();
        let recut = writes.find_map(|(id, writes)| {
            let keyspace = view.version.keyspaces.get(id)?;
            recut(view, keyspace, writes)
        });
        recut.map(Job::Recut)
    }
}

/// Whether the cuts of `keyspace` may move now: nothing writes to a newest level, and every
/// memtable is of the present generation.
fn may_move(view: &View<'_>, keyspace: &Keyspace) -> bool {
    let of = |id: &KeyspaceId| *id == keyspace.id;
    let mut outputs = view.busy_outputs.iter();
    let newest = outputs.any(|(id, slot, _)| of(id) && matches!(slot, Slot::Newest(_)));
    let mut loads = view.memtables.iter().filter(|((id, _), _)| of(id));
    !newest && !loads.any(|(_, load)| load.older)
}

fn is_flushing(view: &View<'_>, keyspace: &Keyspace, parts: std::ops::Range<usize>) -> bool {
    let mut loads = view.memtables.iter();
    loads.any(|((id, part), load)| {
        *id == keyspace.id && parts.contains(&(*part as usize)) && load.flushing
    })
}

fn recut(view: &View<'_>, keyspace: &Keyspace, writes: &KeyspaceWrites) -> Option<Recut> {
    let options = &view.shape.ranges;
    let triggers = &options.triggers;
    let parts = &writes.parts;
    // Parts that are about to change are not in the version yet, or not in memory.
    if parts.len() != keyspace.parts.len() || !may_move(view, keyspace) {
        return None;
    }
    let slots: usize = parts.iter().map(slots_of).sum();
    let joins = options.joins_above < usize::MAX && have_moved(keyspace);
    let duplicated = parts.iter().any(|p| p.duplicates > options.duplicates_max);
    if joins && (slots > options.joins_above || duplicated) {
        let busy = is_flushing(view, keyspace, 0..parts.len());
        return (!busy).then(|| Recut {
            keyspace: keyspace.id,
            parts: fewer(parts, options),
            slots: options.slots,
            reason: Reason::new("fewer-parts")
                .with("memtables", slots as f64)
                .with("allowed", options.slots as f64),
        });
    }
    // What an earlier move handed down is to be merged before another hands down more.
    let first_runs = keyspace.levels.first().map_or(0, |l| l.runs.len());
    if first_runs > options.first_runs_max {
        return None;
    }
    let major = |reason: Reason| {
        let busy = is_flushing(view, keyspace, 0..parts.len());
        (!busy).then(|| Recut {
            keyspace: keyspace.id,
            parts: Vec::new(),
            slots: options.slots,
            reason: reason
                .with("writes", writes.since as f64)
                .with("in_vain", f64::from(writes.in_vain)),
        })
    };
    let look = options.writes.saturating_mul(slots as u64);
    let doublings = writes.in_vain.min(triggers.wait_doublings_max).min(32);
    let wait = look.saturating_mul(1 << doublings);
    let tiny: usize = parts.iter().map(|p| p.writes.len()).sum();
    if parts.len() == 1 && slots == 1 && tiny <= 1 {
        let mut loads = view.memtables.iter();
        let sealed = loads.any(|((id, _), load)| *id == keyspace.id && load.sealed > 0);
        // Where the memory is so small that no memtable is ever full, after many writes.
        let looks = triggers.uncut_looks.saturating_mul(options.slots as u64);
        let many = look.saturating_mul(looks);
        let due = match writes.in_vain {
            0 => sealed || writes.since >= many,
            _ => writes.since >= wait,
        };
        let due = due && options.slots > 1;
        return due.then(|| major(Reason::new("first-memtable"))).flatten();
    }
    if writes.since < look {
        return None;
    }
    let loads: Vec<f64> = parts.iter().map(load_of).collect();
    let total: f64 = parts.iter().flat_map(|p| &p.writes).sum::<u64>() as f64;
    let even = total / slots as f64;
    let hottest = max(&loads);
    let numbers = |rule: &str| {
        Reason::new(rule)
            .with("share", hottest / total.max(1.0))
            .with("even_share", 1.0 / slots as f64)
            .with("excess", options.excess)
    };
    let limit = even * (1.0 + options.excess);
    let few = triggers.few_parts_share * options.slots as f64;
    if slots as f64 <= few && writes.since >= wait {
        return major(numbers("few-parts"));
    }
    if hottest <= limit {
        return None;
    }
    let given = give(parts, options, limit);
    let after = max(&given.iter().map(|p| load_of(&p.writes)).collect::<Vec<_>>());
    if after > even * (1.0 + options.major_excess) && writes.since >= wait {
        return major(numbers("major"));
    }
    // What it hands down is merged before its time, and the next look would hand down as much
    // again.
    if hottest - after < triggers.gain_share_min * (hottest - limit) {
        return None;
    }
    let mut first = 0;
    let mut changed = Vec::new();
    for (at, (part, given)) in parts.iter().zip(&given).enumerate() {
        if given.first != first || given.writes.writes.len() != part.writes.len() {
            changed.push(at);
        }
        first += part.writes.len();
    }
    let (&first, &last) = (changed.first()?, changed.last()?);
    if after >= hottest || is_flushing(view, keyspace, first..last + 1) {
        return None;
    }
    Some(Recut {
        keyspace: keyspace.id,
        parts: given
            .into_iter()
            .map(|g| g.into_part(options.tiny_max))
            .collect(),
        slots: options.slots,
        reason: numbers("minor")
            .with("share_after", after / total.max(1.0))
            .with("parts", changed.len() as f64),
    })
}

/// `parts` joined until they have no more memtables than are allowed: of neighbours the two with
/// the fewest writes, of duplicates all that are too many.
fn fewer(parts: &[PartWrites], options: &RangeOptions) -> Vec<NewPart> {
    let mut new: Vec<NewPart> = parts
        .iter()
        .map(|part| NewPart {
            duplicates: part.duplicates,
            tiny: part.tiny(),
        })
        .collect();
    let writes = |part: &NewPart| part.tiny.iter().map(|t| t.writes).sum::<u64>();
    while new.len() > options.slots.max(1) {
        let pairs = new.windows(2).enumerate();
        let least = pairs.min_by_key(|(_, pair)| writes(&pair[0]).saturating_add(writes(&pair[1])));
        let Some((at, _)) = least else { break };
        let next = new.remove(at + 1);
        let mut tiny = std::mem::take(&mut new[at].tiny);
        tiny.extend(next.tiny);
        new[at].tiny = joined(tiny, options.tiny_max);
        new[at].duplicates = 0;
    }
    let mut left = options.slots.saturating_sub(new.len());
    for part in &mut new {
        part.duplicates = part.duplicates.min(left as u32).min(options.duplicates_max);
        left -= part.duplicates as usize;
    }
    new
}

/// Of what the hottest part of the old cuts has, that of new ones may have as much where nearly all
/// parts change.
pub(super) fn worth_it(options: &RangeOptions) -> f64 {
    1.0 - options.triggers.gain_share_min
}

/// The memtables that take writes of a part.
fn slots_of(part: &PartWrites) -> usize {
    1 + part.duplicates as usize
}

/// Writes for each memtable of a part.
fn load_of(part: &PartWrites) -> f64 {
    part.writes.iter().sum::<u64>() as f64 / slots_of(part) as f64
}

pub(super) fn max(loads: &[f64]) -> f64 {
    loads.iter().copied().fold(0.0, f64::max)
}

/// A part on its way to another size.
struct Given {
    /// Of all tiny ranges of the keyspace, the first it has.
    first: usize,
    writes: PartWrites,
}

impl Given {
    fn into_part(self, tiny_max: usize) -> NewPart {
        NewPart {
            duplicates: self.writes.duplicates,
            tiny: joined(self.writes.tiny(), tiny_max),
        }
    }
}

/// Puts neighbours among `tiny` together, the least loaded first, until there are
/// no more than `most`.
pub(super) fn joined(mut tiny: Vec<Tiny>, most: usize) -> Vec<Tiny> {
    while tiny.len() > most.max(1) {
        let pairs = tiny.windows(2).enumerate();
        let least = pairs.min_by_key(|(_, pair)| pair[0].writes.saturating_add(pair[1].writes));
        let Some((at, _)) = least else { break };
        let gone = tiny.remove(at + 1);
        tiny[at].writes = tiny[at].writes.saturating_add(gone.writes);
    }
    tiny
}

/// Tiny ranges of hot parts given to their neighbours, as far as that helps. Where some stay hot
/// all the same, as no neighbour of theirs takes any more, all are shared out anew. Parts that are
/// duplicated keep what they have and get nothing. More than `limit` writes of a memtable are too
/// hot.
fn give(parts: &[PartWrites], options: &RangeOptions, limit: f64) -> Vec<Given> {
    let starts: Vec<Box<[u8]>> = parts
        .iter()
        .flat_map(|p| p.starts.iter().cloned())
        .collect();
    let counts: Vec<u64> = parts
        .iter()
        .flat_map(|p| p.writes.iter().copied())
        .collect();
    let hottest = |bounds: &[usize]| {
        let loads = bounds.windows(2).zip(parts).map(|(bounds, part)| {
            let writes: u64 = counts[bounds[0]..bounds[1]].iter().sum();
            writes as f64 / slots_of(part) as f64
        });
        loads.fold(0.0, f64::max)
    };
    let mut bounds = given_to_neighbours(parts, &counts, limit);
    if hottest(&bounds) > limit {
        let even = shared_out(parts, &counts);
        // That moves nearly all parts, so it is not done for a little.
        if hottest(&even) <= limit.max(worth_it(options) * hottest(&bounds)) {
            bounds = even;
        }
    }
    let given = |(at, part): (usize, &PartWrites)| {
        let (from, to) = (bounds[at], bounds[at + 1]);
        Given {
            first: from,
            writes: PartWrites {
                duplicates: part.duplicates,
                starts: Arc::from(&starts[from..to]),
                writes: counts[from..to].to_vec(),
            },
        }
    };
    parts.iter().enumerate().map(given).collect()
}

/// Where the tiny ranges of each part begin among all, and after the last one where they end.
fn bounds_of(parts: &[PartWrites]) -> Vec<usize> {
    let mut bounds = vec![0];
    for part in parts {
        bounds.push(bounds[bounds.len() - 1] + part.writes.len());
    }
    bounds
}

/// The bounds of `parts` once those with more writes than `limit` have given what neighbours take.
fn given_to_neighbours(parts: &[PartWrites], counts: &[u64], limit: f64) -> Vec<usize> {
    let mut bounds = bounds_of(parts);
    let fixed = |part: usize| parts[part].duplicates > 0;
    let mut loads: Vec<u64> = parts.iter().map(|p| p.writes.iter().sum()).collect();
    // Every step makes the sum of the squares of the loads smaller, so it ends; the
    // bound is for what rounding does.
    for _ in 0..counts.len().saturating_mul(4) {
        let mut hot: Vec<usize> = (0..parts.len())
            .filter(|&p| loads[p] as f64 > limit && !fixed(p))
            .collect();
        hot.sort_by_key(|&p| std::cmp::Reverse(loads[p]));
        let step = hot.into_iter().find_map(|part| {
            let (from, to) = (bounds[part], bounds[part + 1]);
            if to - from < 2 {
                return None;
            }
            let left = part.checked_sub(1).map(|other| (other, counts[from]));
            let right = (part + 1 < parts.len()).then(|| (part + 1, counts[to - 1]));
            let able = [left, right].into_iter().flatten();
            let able =
                able.filter(|&(other, moved)| !fixed(other) && loads[other] + moved < loads[part]);
            let (other, moved) = able.min_by_key(|&(other, moved)| loads[other] + moved)?;
            Some((part, other, moved))
        });
        let Some((part, other, moved)) = step else {
            break;
        };
        match other < part {
            true => bounds[part] += 1,
            false => bounds[part + 1] -= 1,
        }
        loads[part] -= moved;
        loads[other] += moved;
    }
    bounds
}

/// The bounds of `parts` if all tiny ranges between two duplicated ones are shared out as evenly as
/// they can be.
fn shared_out(parts: &[PartWrites], counts: &[u64]) -> Vec<usize> {
    let mut bounds = bounds_of(parts);
    let mut first = 0;
    for neighbours in parts.split(|part| part.duplicates > 0) {
        let end = bounds[first + neighbours.len()];
        let mut left: u64 = counts[bounds[first]..end].iter().sum();
        for (part, others) in (first..).zip((1..neighbours.len()).rev()) {
            // Each of the others has one at least.
            let able = &counts[bounds[part]..end - others];
            let writes = able.iter().map(|&writes| writes as f64);
            let len = nearest(writes, left as f64 / (others + 1) as f64);
            bounds[part + 1] = bounds[part] + len;
            left -= able[..len].iter().sum::<u64>();
        }
        first += neighbours.len() + 1;
    }
    bounds
}

/// How many of those with so many `writes` come nearest to `share`, from the first on, at least
/// one.
pub(super) fn nearest(writes: impl ExactSizeIterator<Item = f64>, share: f64) -> usize {
    let len = writes.len();
    let mut taken = 0.0;
    for (at, writes) in writes.enumerate() {
        if at > 0 && taken + writes / 2.0 > share {
            return at;
        }
        taken += writes;
    }
    len
}
