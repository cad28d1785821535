//! Leveled merges: one run a level, each level a fraction of the next.
//!
//! Every part's newest level and every level gets a score, runs or bytes
//! against what they should be ([`Targets`]), and the highest score that
//! allows a job gets it; but newest runs go first before writers are slowed
//! for them. What a merge costs is what it reads of the level
//! below, so of a level's tables the one goes first that overlaps least of it
//! for its own size; its neighbours come along as far as they add nothing to
//! the cost. Tables that overlap nothing go before all others: they are moved
//! without being read.
//!
//! When nothing is due and the store rests, what is left in the newest levels
//! is merged down all the same, so that reads have fewer places to look. And
//! space is won back ([`super::reclaim`]).
//!
//! Why no job passes an overlapping table (I1): the newest runs go in an
//! unbroken row from the oldest, to the first level that has anything in their
//! way; a level's tables go to the next level that is not empty. And no job is
//! planned into a place between which another job's outputs will come to lie.
//!
//! Parts that the writes themselves have made ([`super::parts`]) are merged each by itself, as
//! [`super::buckets`] says.

use std::sync::Arc;

use thermocline_model::job::{Job, Merge, Reason};
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableMeta;
use thermocline_model::version::{Keyspace, Level, Run, Slot};
use thermocline_model::view::View;

use crate::Planner;
use crate::plan::between::Between;
use crate::plan::buckets::merge_handed_down;
use crate::plan::parts::are_by_writes;
use crate::plan::reclaim::reclaim;
use crate::plan::targets::Targets;
use crate::plan::through::Through;
use crate::pressure::{RUNS_DUE_PERCENT, base_shares, counted_runs, patience};

/// Largest merge between levels, in tables of full size, unless a single table
/// overlaps more.
const MERGE_TABLES_MAX: u64 = 32;

/// A newest level with this score goes before everything below it: no other
/// merge of its keyspace is begun while it waits for busy tables, or a row of
/// such merges could keep it waiting, and writers with it, for ever.
pub const URGENT_SCORE: f64 = 2.0;

/// A merge of newest runs rewrites about all of the base. While they hold less than
/// this part of it, they wait for more of their kind,
const NEWEST_SHARE: u64 = 4;

/// and a bucket, which is one of many that are merged one by one, while it holds less
/// than all of its part's share,
const BUCKET_SHARE: u64 = 1;

/// but no longer than up to this score: each is one more place for reads to look.
pub const WAITING_SCORE: f64 = 2.0;

/// Newest runs from which on they wait no longer than where somebody reads, in percent of those at
/// which writers stop: these are about to.
const RUNS_STOP_PERCENT: u64 = 85;

/// The most times as long that they wait where hardly anybody reads.
const WAITING_TIMES_MAX: f64 = 2.0;

/// See the module.
#[derive(Debug, Default)]
pub struct Leveled;

/// What may be merged down, and how urgently.
struct Due<'a> {
    score: f64,
    /// The score, divided by how much longer than else it may wait: a level by that, newest runs
    /// by its square, so that both are at 1 when they have waited for as long as they may.
    urgency: f64,
    keyspace: &'a Keyspace,
    targets: usize,
    slot: Slot,
}

/// What a merge from one level to the next takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// A table, and neighbours that add nothing to the cost.
    Table,
    /// What the level has of a part.
    Part,
}

impl Planner for Leveled {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        plan(view, |keyspace| match are_by_writes(keyspace) {
            true => Unit::Part,
            false => Unit::Table,
        })
    }
}

pub(super) fn plan(view: &View<'_>, unit_of: fn(&Keyspace) -> Unit) -> Option<Job> {
    let keyspaces = || view.version.keyspaces.values();
    let targets_of = |keyspace: &Arc<Keyspace>| match unit_of(keyspace) {
        Unit::Table => Targets::of(keyspace, view.shape),
        Unit::Part => Targets::under_buckets(keyspace, view.shape),
    };
    let targets: Vec<Targets> = keyspaces().map(targets_of).collect();
    let patience = patience(view);
    let mut due = Vec::new();
    for (index, keyspace) in keyspaces().enumerate() {
        let unit = unit_of(keyspace);
        find_due(
            view,
            keyspace,
            index,
            &targets[index],
            unit,
            patience,
            &mut due,
        );
    }
    due.sort_by(|a, b| b.urgency.total_cmp(&a.urgency));
    // Keyspaces whose newest level, or a level of several runs, waits for tables that are busy.
    let mut waiting = Vec::new();
    let merge = due.iter().find_map(|d| {
        // A level of several runs is what a newest level may be waiting for.
        let several =
            matches!(d.slot, Slot::Level(l) if d.keyspace.levels[l as usize].runs.len() > 1);
        if waiting.contains(&d.keyspace.id) && !several {
            return None;
        }
        let targets = &targets[d.targets];
        let unit = unit_of(d.keyspace);
        let merge = match d.slot {
            Slot::Newest(part) => through(view, d, targets, &due, unit)
                .or_else(|| merge_newest(view, d.keyspace, targets, part, d.score)),
            Slot::Level(level) => {
                let level = level as usize;
                if several && level < targets.base {
                    merge_handed_down(view, d.keyspace, targets, level)
                } else if several {
                    merge_runs(view, d.keyspace, level)
                } else {
                    merge_level(view, d.keyspace, targets, level, d.score, unit)
                }
            }
        };
        let waits = match d.slot {
            Slot::Newest(_) => d.score >= URGENT_SCORE,
            // What needs all of the level; what was handed down is merged piece by piece.
            Slot::Level(level) => several && level as usize >= targets.base,
        };
        if merge.is_none() && waits {
            waiting.push(d.keyspace.id);
        }
        merge
    });
    let idle = due.is_empty() && view.memtables.values().all(|l| l.sealed == 0);
    merge
        .or_else(|| {
            let resting = || {
                keyspaces()
                    .zip(&targets)
                    .find_map(|(k, t)| merge_resting(view, k, t))
            };
            (idle && view.idle).then(resting).flatten()
        })
        .or_else(|| {
            idle.then(|| keyspaces().find_map(|k| reclaim(view, k)))
                .flatten()
        })
        .map(Job::Merge)
}

fn find_due<'a>(
    view: &View<'_>,
    keyspace: &'a Keyspace,
    targets_index: usize,
    targets: &Targets,
    unit: Unit,
    patience: f64,
    due: &mut Vec<Due<'a>>,
) {
    let deferral = deferral(view);
    let deferral_of_levels = deferral.sqrt();
    // So that what waits for as long as it may is as urgent as such a level; and where fewer runs
    // may wait before writers do, they wait for less.
    let deferral_of_newest = patience.min(WAITING_TIMES_MAX).powi(2);
    let mut add = |score: f64, may_wait: f64, slot: Slot| {
        due.push(Due {
            score,
            urgency: score / may_wait,
            keyspace,
            targets: targets_index,
            slot,
        });
    };
    let below = keyspace.levels.iter().position(|l| l.size_bytes() > 0);
    let shares_below = below.map(|level| base_shares(keyspace, level));
    let shares_of_base = match unit {
        Unit::Table => {
            let parts = keyspace.parts.len();
            vec![targets.bytes[targets.base] / parts.max(1) as u64; parts]
        }
        Unit::Part => {
            let shares = shares_below.clone().filter(|_| below == Some(targets.base));
            shares.unwrap_or_else(|| base_shares(keyspace, targets.base))
        }
    };
    let scores = level_scores(view, keyspace, targets);
    let most_of = |level: usize| match level >= targets.base {
        true => deferral_of_levels,
        false => 1.0,
    };
    for (part, index) in keyspace.parts.iter().zip(0u32..) {
        let runs = oldest_free(view, &part.newest.runs);
        let score = runs.len() as f64 / view.shape.newest_runs_merge.max(1) as f64;
        let share_of = |shares: &[u64]| shares.get(index as usize).copied().unwrap_or(0);
        let base = share_of(&shares_of_base);
        let below_bytes = shares_below.as_deref().map_or(0, share_of);
        let bytes = bytes_of(runs.iter().flat_map(|r| &r.tables));
        let counted = counted_runs(runs.len() as u64, bytes, below_bytes, patience);
        let stop = view.shape.newest_runs_stop as u64;
        let is_over = |percent: u64| counted > stop * percent / 100;
        let share = match unit {
            Unit::Table => NEWEST_SHARE,
            Unit::Part => BUCKET_SHARE,
        };
        let share = (share as f64 / deferral).max(1.0);
        // Nobody is slowed down for runs that are left to wait, however little they hold.
        let worth = bytes as f64 * share >= base as f64
            || score >= waiting_score(view)
            || is_over(RUNS_DUE_PERCENT);
        if score >= 1.0 && worth {
            let may_wait = match is_over(RUNS_STOP_PERCENT) {
                true => 1.0,
                false => deferral_of_newest,
            };
            add(score, may_wait, Slot::Newest(index));
        }
    }
    for (level, index) in keyspace.levels.iter().zip(0u32..) {
        if level.runs.len() > 1 {
            add(level.runs.len() as f64, 1.0, Slot::Level(index));
            continue;
        }
        let (score, most) = (scores[index as usize], most_of(index as usize));
        if score > most {
            add(score, most, Slot::Level(index));
        }
    }
}

/// The score of each level.
fn level_scores(view: &View<'_>, keyspace: &Keyspace, targets: &Targets) -> Vec<f64> {
    let busy_bytes = |level: &Level| match view.busy.is_empty() {
        true => 0,
        false => {
            let busy = level.tables().filter(|t| view.busy.contains(&t.id));
            busy.map(|t| t.size_bytes()).sum()
        }
    };
    let levels = keyspace.levels.iter().enumerate();
    levels
        .map(|(index, level)| targets.score(index, busy_bytes(level), view.shape))
        .collect()
}

/// The score up to which newest runs wait.
#[must_use]
pub fn waiting_score(view: &View<'_>) -> f64 {
    WAITING_SCORE * deferral(view).min(WAITING_TIMES_MAX)
}

/// The score from which on a newest level is urgent; see [`URGENT_SCORE`]. Where runs wait for
/// longer, it is what they wait for.
#[must_use]
pub fn urgent_runs(view: &View<'_>) -> usize {
    let score = URGENT_SCORE.max(waiting_score(view));
    (view.shape.newest_runs_merge as f64 * score) as usize
}

/// How many times as much may wait for its merge as else would. While hardly anybody reads,
/// memtables have so many times the memory that the options give them, and what a merge
/// rewrites costs writers alone: the more it takes at once the less that is for each byte,
/// and what is overwritten meanwhile is never merged at all. At rest nothing waits.
///
/// A level is rewritten by each merge of newest runs, which are four times as large then, so it
/// waits for the square root only.
fn deferral(view: &View<'_>) -> f64 {
    match view.idle {
        true => 1.0,
        false => view.shape.lent_times(),
    }
}

/// Whether more newest runs than else are nobody's loss while a merge takes longer, as hardly
/// anybody reads.
fn runs_may_wait(view: &View<'_>) -> bool {
    deferral(view) > 1.0
}

/// The runs behind the oldest busy one: whatever lies above a busy run must
/// wait until it has gone its way.
pub(super) fn oldest_free<'a>(view: &View<'_>, runs: &'a [Run]) -> &'a [Run] {
    if view.busy.is_empty() {
        return runs;
    }
    let busy = |r: &Run| r.tables.iter().any(|t| view.busy.contains(&t.id));
    let from = runs.iter().rposition(busy).map_or(0, |at| at + 1);
    &runs[from..]
}

/// The smallest interval that covers `tables`; `None` when there are none.
pub(crate) fn hull<'a>(tables: impl IntoIterator<Item = &'a Arc<TableMeta>>) -> Option<KeyRange> {
    let mut tables = tables.into_iter();
    let first = tables.next()?.range.clone();
    Some(tables.fold(first, |hull, t| hull.hull(&t.range)))
}

pub(super) fn bytes_of<'a>(tables: impl IntoIterator<Item = &'a Arc<TableMeta>>) -> u64 {
    tables.into_iter().map(|t| t.size_bytes()).sum()
}

/// The tables of `level` that overlap `range`; `None` when the level has
/// several runs, which must be merged first.
pub(super) fn overlapping<'a>(
    keyspace: &'a Keyspace,
    level: usize,
    range: &KeyRange,
) -> Option<&'a [Arc<TableMeta>]> {
    match keyspace.levels.get(level).map_or(&[][..], |l| &l.runs) {
        [] => Some(&[]),
        [run] => Some(run.overlapping(range)),
        _ => None,
    }
}

pub(super) fn overlaps_level(keyspace: &Keyspace, level: usize, range: &KeyRange) -> bool {
    let runs = keyspace.levels.get(level).map_or(&[][..], |l| &l.runs);
    runs.iter().any(|r| !r.overlapping(range).is_empty())
}

/// Whether a running job's outputs will lie in `range` at `to`, or on the way
/// there from the level `from` (0 for the first below the newest).
pub(super) fn in_the_way(
    view: &View<'_>,
    keyspace: &Keyspace,
    from: usize,
    to: usize,
    range: &KeyRange,
) -> bool {
    view.busy_outputs.iter().any(|(id, slot, busy)| {
        let between = matches!(slot, Slot::Level(l) if (from..=to).contains(&(*l as usize)));
        *id == keyspace.id && between && busy.overlaps(range)
    })
}

pub(super) fn slot_of(level: usize) -> Slot {
    Slot::Level(u32::try_from(level).unwrap_or(u32::MAX))
}

pub(super) fn merge_of(
    view: &View<'_>,
    keyspace: &Keyspace,
    inputs: Vec<&Arc<TableMeta>>,
    level: usize,
    reason: Reason,
) -> Option<Merge> {
    if inputs.iter().any(|t| view.busy.contains(&t.id)) {
        return None;
    }
    Some(Merge {
        keyspace: keyspace.id,
        inputs: inputs.into_iter().map(|t| t.id).collect(),
        output: slot_of(level),
        table_bytes: view.shape.table_bytes,
        rewrite: false,
        deeper: None,
        reason,
    })
}

fn merge_newest(
    view: &View<'_>,
    keyspace: &Keyspace,
    targets: &Targets,
    part: u32,
    score: f64,
) -> Option<Merge> {
    let runs = oldest_free(view, &keyspace.parts[part as usize].newest.runs);
    let mut inputs: Vec<_> = runs.iter().flat_map(|r| &r.tables).collect();
    let range = hull(inputs.iter().copied())?;
    let to = (0..targets.base).find(|&l| overlaps_level(keyspace, l, &range));
    let to = to.unwrap_or(targets.base);
    let bytes = bytes_of(inputs.iter().copied());
    let below = overlapping(keyspace, to, &range)?;
    inputs.extend(below);
    if in_the_way(view, keyspace, 0, to, &hull(inputs.iter().copied())?) {
        return None;
    }
    let reason = Reason::new("newest-runs")
        .with("score", score)
        .with("runs", runs.len() as f64)
        .with("bytes", bytes as f64)
        .with("overlap_bytes", bytes_of(below) as f64);
    merge_of(view, keyspace, inputs, to, reason)
}

/// The newest runs that `newest` is about with what the first level has there, straight into the
/// next, where that level is `due` as well and it pays ([`super::through`]).
fn through(
    view: &View<'_>,
    newest: &Due<'_>,
    targets: &Targets,
    due: &[Due<'_>],
    unit: Unit,
) -> Option<Merge> {
    let (Slot::Newest(part), keyspace) = (newest.slot, newest.keyspace) else {
        return None;
    };
    if unit == Unit::Table || keyspace.parts.len() == 1 || !runs_may_wait(view) {
        return None;
    }
    let level = keyspace.levels.iter().position(|l| l.size_bytes() > 0)?;
    let is_it = |other: &Due<'_>| other.keyspace.id == keyspace.id && other.slot == slot_of(level);
    if level < targets.base || !due.iter().any(is_it) {
        return None;
    }
    let between = Between::of(view, keyspace, targets, level)?;
    let through = Through::of(&between, part as usize)?;
    let pays = through.is_as_cheap_as(between.share().as_ref());
    pays.then(|| through.merge(newest.score))?
}

/// Merges the newest level of a part though it is not full: the store rests,
/// and every run that is left makes every read look in one more place.
fn merge_resting(view: &View<'_>, keyspace: &Keyspace, targets: &Targets) -> Option<Merge> {
    let parts = keyspace.parts.iter().zip(0u32..);
    parts
        .filter(|(p, _)| !p.newest.runs.is_empty())
        .find_map(|(_, part)| {
            let mut merge = merge_newest(view, keyspace, targets, part, 0.0)?;
            merge.reason.rule = "newest-resting".to_string();
            Some(merge)
        })
}

/// Makes one run of a level that has several, as another preset may have left
/// it; those above the level that newest runs are merged into go straight there
/// ([`merge_handed_down`]).
pub(super) fn merge_runs(view: &View<'_>, keyspace: &Keyspace, level: usize) -> Option<Merge> {
    let inputs: Vec<_> = keyspace.levels[level].tables().collect();
    if in_the_way(view, keyspace, level, level, &hull(inputs.iter().copied())?) {
        return None;
    }
    let reason = Reason::new("level-runs").with("runs", keyspace.levels[level].runs.len() as f64);
    merge_of(view, keyspace, inputs, level, reason)
}

fn merge_level(
    view: &View<'_>,
    keyspace: &Keyspace,
    targets: &Targets,
    level: usize,
    score: f64,
    unit: Unit,
) -> Option<Merge> {
    let between = Between::of(view, keyspace, targets, level)?;
    let (upper, below) = match unit {
        Unit::Part if keyspace.parts.len() > 1 => {
            let share = between.share();
            let through = runs_may_wait(view)
                .then(|| Through::cheapest(&between))
                .flatten();
            let through = through.filter(|t| t.is_as_cheap_as(share.as_ref()));
            if let Some(through) = through {
                return through.merge(score);
            }
            between.tables_of(&share?)
        }
        _ => {
            let bytes_max = MERGE_TABLES_MAX * view.shape.table_bytes;
            between.tables_of(&between.cheapest(targets.excess_bytes(level), bytes_max)?)
        }
    };
    let rule = match (level < targets.base, below.is_empty()) {
        (true, _) => "level-unused",
        (false, true) => "level-full-move",
        (false, false) => "level-full",
    };
    let reason = Reason::new(rule)
        .with("score", score)
        .with("level_bytes", targets.bytes[level] as f64)
        .with("target_bytes", targets.target_bytes[level] as f64)
        .with("bytes", bytes_of(upper) as f64)
        .with("overlap_bytes", bytes_of(below) as f64);
    let inputs = upper.iter().chain(below).collect();
    merge_of(view, keyspace, inputs, between.to, reason)
}
