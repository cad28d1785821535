//! All cuts of a keyspace made anew, from keys sampled of its memtables: Nova-LSM's major
//! reorganisation (section 4.4), and its duplicated parts (section 4.1).
//!
//! The planner ([`super::ranges`]) says when to look. A view has no entries, so the job that it
//! plans takes the sample, and asks here, with the view as it is then, what follows from it
//! ([`judged`]): the older half of the sample makes cuts, and the newer half judges them
//! ([`gains`]). Keys in ascending order fail there, as whatever cuts the past has, what comes goes
//! to the last part.
//!
//! A key with enough even shares ([`RecutTriggers::duplicate_shares`]) gets a part of its own, with
//! as many memtables as it has even shares: the part is *duplicated* ([`rebuild`]).

use thermocline_model::job::{NewPart, Recut};
use thermocline_model::triggers::RecutTriggers;
use thermocline_model::version::Tiny;
use thermocline_model::view::{KeyspaceWrites, PartWrites, RangeOptions, View};

use crate::plan::ranges::{joined, max, nearest, worth_it};
use crate::plan::sample::{Sample, Weighed};

/// What a sample says of the cuts of a keyspace.
#[derive(Clone, Debug)]
pub enum Judged {
    /// Nothing, as it is too small.
    TooLittle,
    /// That others would be no better, or not by enough.
    InVain(Gain),
    /// That these parts would be.
    Better(Vec<NewPart>, Gain),
}

/// What becomes of the keyspace that `recut` is to cut anew, by `sample`. Requires: the view has
/// the writes to it, of the parts that were sampled; without them nothing can be said.
#[must_use]
pub fn judged(view: &View<'_>, recut: &Recut, sample: &Sample) -> Judged {
    let options = RangeOptions {
        slots: recut.slots,
        ..view.shape.ranges
    };
    let Some(writes) = view.writes.get(&recut.keyspace) else {
        return Judged::TooLittle;
    };
    let present = present(writes);
    match gains(&present, sample, &options) {
        None => Judged::TooLittle,
        Some(gain) if !gain.is_worth_it(&options) => Judged::InVain(gain),
        Some(gain) => {
            let all = sample.all(slots_of_all(&present), &options.triggers);
            let parts = rebuild(&all, &options);
            // Where nothing need be gained.
            match is_same(&parts, &present) {
                true => Judged::InVain(gain),
                false => Judged::Better(parts, gain),
            }
        }
    }
}

/// Whether both have the same tiny ranges and duplicates, whatever was counted there.
fn is_same(new: &[NewPart], present: &[NewPart]) -> bool {
    let starts = |part: &NewPart| {
        part.tiny
            .iter()
            .map(|t| t.start.clone())
            .collect::<Vec<_>>()
    };
    let same = |(new, present): (&NewPart, &NewPart)| {
        new.duplicates == present.duplicates && starts(new) == starts(present)
    };
    new.len() == present.len() && new.iter().zip(present).all(same)
}

/// The parts that there are, as a job would make them.
fn present(writes: &KeyspaceWrites) -> Vec<NewPart> {
    let part = |part: &PartWrites| NewPart {
        duplicates: part.duplicates,
        tiny: part.tiny(),
    };
    writes.parts.iter().map(part).collect()
}

/// Keys of a sample between which no cut falls, with the writes that they stand for.
struct Group<'a> {
    key: &'a [u8],
    writes: f64,
    /// Whether all of them are the same key.
    is_one_key: bool,
}

fn groups<'a>(keys: &[Weighed<'a>], prefix_bytes: usize) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut before: &[u8] = &[];
    for &Weighed {
        key: whole,
        writes,
        is_range,
    } in keys
    {
        let key = match prefix_bytes {
            0 => whole,
            bytes => &whole[..bytes.min(whole.len())],
        };
        match groups.last_mut() {
            Some(last) if last.key == key => {
                last.writes += writes;
                last.is_one_key &= before == whole && !is_range;
            }
            _ => groups.push(Group {
                key,
                writes,
                is_one_key: !is_range,
            }),
        }
        before = whole;
    }
    groups
}

/// Parts that share out the writes that `keys`, ascending, stand for evenly. Of no keys it makes
/// one part.
#[must_use]
pub fn rebuild(keys: &[Weighed<'_>], options: &RangeOptions) -> Vec<NewPart> {
    let groups = groups(keys, options.prefix_bytes);
    let mut left: f64 = keys.iter().map(|k| k.writes).sum();
    let RecutTriggers {
        part_keys_min,
        duplicate_shares,
        ..
    } = options.triggers;
    let mut slots = options.slots.min(keys.len() / part_keys_min.max(1)).max(1);
    let mut parts: Vec<NewPart> = Vec::new();
    let mut rest = &groups[..];
    while !rest.is_empty() {
        let even = left / slots as f64;
        let is_hot =
            |group: &Group<'_>| group.is_one_key && group.writes >= duplicate_shares * even;
        let (len, copies) = if slots == 1 {
            (rest.len(), 1)
        } else if is_hot(&rest[0]) {
            let copies = (rest[0].writes / even).round() as usize;
            let others = usize::from(rest.len() > 1);
            let most = (slots - others).min(1 + options.duplicates_max as usize);
            (1, copies.clamp(1, most.max(1)))
        } else {
            let cool = rest.iter().position(is_hot).unwrap_or(rest.len());
            // What lies in front of a hot key and is little goes with the part before it.
            (nearest(rest[..cool].iter().map(|g| g.writes), even), 1)
        };
        let (taken, others) = rest.split_at(len);
        let writes: f64 = taken.iter().map(|g| g.writes).sum();
        let tiny = divided(taken, options.tiny_max);
        let little = copies == 1 && writes < even / 4.0;
        match parts.last_mut() {
            Some(before) if little && before.duplicates == 0 => {
                before.tiny.extend(tiny);
                let tiny = std::mem::take(&mut before.tiny);
                before.tiny = joined(tiny, options.tiny_max);
            }
            _ => {
                parts.push(NewPart {
                    duplicates: copies as u32 - 1,
                    tiny,
                });
                slots = slots.saturating_sub(copies).max(1);
            }
        }
        left -= writes;
        rest = others;
    }
    if parts.is_empty() {
        parts.push(NewPart {
            duplicates: 0,
            tiny: vec![Tiny {
                start: Box::default(),
                writes: 0,
            }],
        });
    }
    // Smaller keys than any of the sample may come.
    if let Some(first) = parts.first_mut().and_then(|p| p.tiny.first_mut()) {
        first.start = Box::default();
    }
    parts
}

/// Tiny ranges with about as many writes each.
fn divided(mut groups: &[Group<'_>], most: usize) -> Vec<Tiny> {
    let mut left: f64 = groups.iter().map(|g| g.writes).sum();
    let mut pieces = most.clamp(1, groups.len().max(1));
    let mut tiny = Vec::with_capacity(pieces);
    while let Some(first) = groups.first() {
        let len = match pieces {
            1 => groups.len(),
            pieces => nearest(groups.iter().map(|g| g.writes), left / pieces as f64),
        };
        let writes: f64 = groups[..len].iter().map(|g| g.writes).sum();
        tiny.push(Tiny {
            start: first.key.into(),
            writes: writes.round() as u64,
        });
        left -= writes;
        pieces = (pieces - 1).max(1);
        groups = &groups[len..];
    }
    tiny
}

/// The share of what `keys` stand for that each memtable of `parts` gets, part by part.
#[must_use]
pub fn shares(parts: &[NewPart], keys: &[Weighed<'_>]) -> Vec<f64> {
    let mut writes = vec![0.0; parts.len()];
    let mut all = 0.0;
    for key in keys {
        let part = parts.partition_point(|p| p.start() <= key.key);
        writes[part.saturating_sub(1)] += key.writes;
        all += key.writes;
    }
    let parts = parts.iter().zip(writes);
    parts
        .flat_map(|(part, writes)| {
            let copies = 1 + part.duplicates as usize;
            let share = writes / f64::max(all, f64::MIN_POSITIVE) / copies as f64;
            std::iter::repeat_n(share, copies)
        })
        .collect()
}

/// The paper's load imbalance: the standard deviation of the shares (section 8.2.1).
#[must_use]
pub fn imbalance(shares: &[f64]) -> f64 {
    let count = shares.len().max(1) as f64;
    let mean = shares.iter().sum::<f64>() / count;
    let squares = shares.iter().map(|s| (s - mean).powi(2)).sum::<f64>();
    (squares / count).sqrt()
}

/// What new cuts would be worth.
#[derive(Clone, Copy, Debug)]
pub struct Gain {
    /// The largest share of the writes that a memtable gets with the present cuts.
    pub before: f64,
    /// The same with new ones.
    pub after: f64,
}

impl Gain {
    /// Whether that is worth cutting anew for.
    #[must_use]
    pub fn is_worth_it(&self, options: &RangeOptions) -> bool {
        self.after <= worth_it(options) * self.before
    }
}

/// What it gains if the older half of `sample` makes the cuts, as the newer half has it; none
/// where the sample is too small to say.
#[must_use]
pub fn gains(present: &[NewPart], sample: &Sample, options: &RangeOptions) -> Option<Gain> {
    let (slots, triggers) = (slots_of_all(present), &options.triggers);
    if !sample.is_enough(slots, triggers) {
        return None;
    }
    let (older, newer) = sample.halves(slots, triggers);
    Some(Gain {
        before: max(&shares(present, &newer)),
        after: max(&shares(&rebuild(&older, options), &newer)),
    })
}

/// The memtables that take writes of `parts`.
#[must_use]
pub fn slots_of_all(parts: &[NewPart]) -> usize {
    parts.iter().map(|p| 1 + p.duplicates as usize).sum()
}
