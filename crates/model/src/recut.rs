//! Other cuts for a keyspace that has data: what becomes of its parts.
//!
//! A part that lies within one new part takes its newest level along. A part that
//! is divided hands all of it down: its runs become the newest runs of the first level,
//! which may have several. So no table is in two parts, and none is written again.
//!
//! Why recency stays position (I1): parts do not overlap, so neither do runs of
//! different parts, and they can be laid side by side into one run in any order. All
//! runs of a part stay together, above all that levels have, and in their order.
//!
//! What was flushed is remembered to the key. Two parts that become one may have been flushed up to
//! different numbers; the new one then is flushed up to the lower, and its
//! [`Part::ahead`] says which of its keys are further. Recovery would otherwise lose
//! entries of the one, or bring entries of the other to life that merges have dropped.

use crate::cuts::Cuts;
use crate::key::SeqNo;
use crate::version::{Ahead, Keyspace, Level, Part, Run};

/// Whether `key` lies before `end`, `None` being unbounded.
fn is_below(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

/// The part of `cuts` that holds all of an interval, if one does.
#[must_use]
pub fn holder(cuts: &Cuts, start: Option<&[u8]>, end: Option<&[u8]>) -> Option<usize> {
    let part = start.map_or(0, |s| cuts.part_of(s));
    let inside = match (cuts.interval(part).1, end) {
        (None, _) => true,
        (Some(bound), Some(end)) => end <= bound,
        (Some(_), None) => false,
    };
    inside.then_some(part)
}

/// Lays `runs` beside those of `level`, newest beside newest.
/// Requires: no table of the one overlaps one of the other.
fn lay_beside(level: &mut Level, runs: Vec<Run>) {
    for (at, run) in runs.into_iter().enumerate() {
        match level.runs.get_mut(at) {
            Some(beside) => {
                beside.tables.extend(run.tables);
                beside
                    .tables
                    .sort_by(|a, b| a.range.start.cmp(&b.range.start));
            }
            None => level.runs.push(run),
        }
    }
}

/// How far the keys of a new part with the interval given were flushed.
fn flushed(old: &Keyspace, start: Option<&[u8]>, end: Option<&[u8]>) -> (SeqNo, Vec<Ahead>) {
    let mut pieces: Vec<Ahead> = Vec::new();
    let mut add = |from: &[u8], to: Option<&[u8]>, flushed: SeqNo| {
        let from = start.map_or(from, |s| s.max(from));
        let to = match (to, end) {
            (Some(to), Some(end)) => Some(to.min(end)),
            (to, end) => to.or(end),
        };
        if !is_below(from, to) {
            return;
        }
        if let Some(last) = pieces.last_mut()
            && last.flushed == flushed
        {
            last.end = to.map(Into::into);
            return;
        }
        pieces.push(Ahead {
            start: from.into(),
            end: to.map(Into::into),
            flushed,
        });
    };
    for (at, part) in old.parts.iter().enumerate() {
        let (low, high) = old.cuts.interval(at);
        let mut from = low.unwrap_or_default();
        for ahead in &part.ahead {
            add(from, Some(&ahead.start), part.flushed);
            add(&ahead.start, ahead.end.as_deref(), ahead.flushed);
            match &ahead.end {
                Some(end) => from = end,
                None => break,
            }
        }
        if part.ahead.last().is_none_or(|last| last.end.is_some()) {
            add(from, high, part.flushed);
        }
    }
    let least = pieces.iter().map(|p| p.flushed).min().unwrap_or_default();
    pieces.retain(|p| p.flushed > least);
    (least, pieces)
}

/// Gives `keyspace` other cuts. See the module.
pub(crate) fn recut(keyspace: &mut Keyspace, cuts: &Cuts) {
    let mut parts: Vec<Part> = (0..cuts.parts())
        .map(|part| {
            let (start, end) = cuts.interval(part);
            let (flushed, ahead) = flushed(keyspace, start, end);
            Part {
                flushed,
                ahead,
                ..Part::default()
            }
        })
        .collect();
    let mut handed_down = Level::default();
    let old_parts = std::mem::take(&mut keyspace.parts);
    for (at, part) in old_parts.into_iter().enumerate() {
        let (start, end) = keyspace.cuts.interval(at);
        let level = match holder(cuts, start, end) {
            Some(holder) => &mut parts[holder].newest,
            None => &mut handed_down,
        };
        lay_beside(level, part.newest.runs);
    }
    if !handed_down.runs.is_empty() {
        if keyspace.levels.is_empty() {
            keyspace.levels.push(Level::default());
        }
        let first = &mut keyspace.levels[0].runs;
        handed_down.runs.append(first);
        *first = handed_down.runs;
    }
    keyspace.parts = parts;
    keyspace.cuts = cuts.clone();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::{Change, Edit};
    use crate::picture;
    use crate::version::KeyspaceId;

    fn cuts(bounds: &[&str]) -> Cuts {
        Cuts::new(bounds.iter().map(|b| b.as_bytes().into()).collect()).unwrap()
    }

    fn cut(text: &str, bounds: &[&str]) -> String {
        let before = picture::parse(text).unwrap();
        let edit = Edit::of(Change::SetCuts {
            keyspace: KeyspaceId::DEFAULT,
            cuts: cuts(bounds),
        });
        let after = edit.apply(&before).unwrap();
        crate::check::check_version(&after).unwrap();
        crate::check::check_edit(&before, &edit, &after).unwrap();
        picture::print(&after.keyspaces[&KeyspaceId::DEFAULT])
    }

    #[test]
    fn whole_parts_keep_their_tables_and_divided_ones_hand_them_down_in_order() {
        let text = "cuts g p | L0.0: #9[a..c] / #8[b..f) | L0.1: #7[h..k] | L0.2: #6[q..z] / #5[p..r] \
                    | L1: #3[a..m]";
        let after = cut(text, &["g", "q"]);
        assert!(after.contains("L0.0: #9[a..c] / #8[b..f)"), "{after}");
        assert!(after.contains("L0.1: #7[h..k]"), "{after}");
        assert!(!after.contains("L0.2"), "{after}");
        assert!(
            after.contains("L1: #6[q..z] / #5[p..r] / #3[a..m]"),
            "{after}"
        );
        // One part again: all lie side by side.
        let after = cut(text, &[]);
        let joined = "L0.0: #9[a..c] #7[h..k] #6[q..z] / #8[b..f) #5[p..r]";
        assert!(after.contains(joined), "{after}");
    }

    #[test]
    fn how_far_each_key_was_flushed_survives_any_row_of_cuts() {
        // Against a table by key.
        let mut dice = 0x2545_f491_4f6c_dd1d_u64;
        let mut roll = |below: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % below
        };
        let keys: Vec<Vec<u8>> = (0..40u8)
            .map(|k| vec![b'a' + k / 10, b'0' + k % 10])
            .collect();
        for _ in 0..200 {
            let mut keyspace = Keyspace::new(KeyspaceId::DEFAULT, "default", Cuts::default());
            let mut truth = vec![SeqNo::ZERO; keys.len()];
            for step in 1..30 {
                if roll(3) > 0 {
                    let part = roll(keyspace.parts.len() as u64) as usize;
                    keyspace.parts[part].set_flushed(SeqNo(step));
                    for (key, truth) in keys.iter().zip(&mut truth) {
                        if keyspace.cuts.part_of(key) == part {
                            *truth = SeqNo(step);
                        }
                    }
                } else {
                    let mut bounds: Vec<Box<[u8]>> = Vec::new();
                    for key in &keys[1..] {
                        if roll(8) == 0 {
                            bounds.push((&key[..1 + roll(2) as usize]).into());
                        }
                    }
                    bounds.sort();
                    bounds.dedup();
                    recut(&mut keyspace, &Cuts::new(bounds).unwrap());
                }
                for (key, truth) in keys.iter().zip(&truth) {
                    let part = &keyspace.parts[keyspace.cuts.part_of(key)];
                    assert_eq!(part.flushed_of(key), *truth, "{}", key.escape_ascii());
                    assert!(part.ahead.iter().all(|a| a.flushed > part.flushed));
                }
            }
        }
    }
}
