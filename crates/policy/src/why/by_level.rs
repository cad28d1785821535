//! Why a table lies where it lies, where levels fill the tiers.

use thermocline_model::table::TableId;
use thermocline_model::tier::TIERS_MAX;
use thermocline_model::version::{Keyspace, Slot};
use thermocline_model::view::{ShapeOptions, View};

use super::{Explanation, Located, TargetsBy, each};
use crate::place::fill::{ByTier, DEPTHS, Fill, depth};
use crate::plan::reclaim::{DEAD_SHARE_MAX, DELETES_SHARE_MAX, dead_share, deletes_share};
use crate::plan::targets::Targets;

/// Explains the place of each of `tables`; `None` of one that no keyspace has.
#[must_use]
pub fn why_each(view: &View<'_>, tables: &[TableId]) -> Vec<Option<Explanation>> {
    why_each_with(view, tables, Targets::by_parts)
}

/// The same, where levels have other sizes than [`Targets::by_parts`] says.
pub(crate) fn why_each_with(
    view: &View<'_>,
    tables: &[TableId],
    targets_of: fn(&Keyspace, &ShapeOptions) -> Targets,
) -> Vec<Option<Explanation>> {
    let fill = Fill::of(view);
    let quotas = fill.quotas(&[0; TIERS_MAX]);
    let mut targets = TargetsBy::new();
    each(view, tables, |place| {
        let targets = targets
            .entry(place.keyspace.id)
            .or_insert_with(|| targets_of(place.keyspace, view.shape));
        why(view, &fill, &quotas, targets, place)
    })
}

fn why(
    view: &View<'_>,
    fill: &Fill,
    quotas: &[ByTier; DEPTHS],
    targets: &Targets,
    Located {
        keyspace,
        slot,
        table,
    }: Located<'_>,
) -> Explanation {
    let tier = table.tier();
    let index = fill.index(tier);
    let quota = quotas[depth(slot)];
    let (first, last) = (
        quota.iter().position(|&b| b > 0).unwrap_or(index),
        quota.iter().rposition(|&b| b > 0).unwrap_or(index),
    );
    let rule = match index {
        _ if fill.tiers == 1 => "only-tier",
        _ if index < first => "faster-than-its-level",
        _ if index > last => "slower-than-its-level",
        _ if first == last => "level-fits",
        _ => "level-spans",
    };
    let mut numbers = vec![
        ("size_bytes".to_string(), table.size_bytes() as f64),
        (
            "level_bytes_on_tier".to_string(),
            fill.data[depth(slot)][index] as f64,
        ),
        ("level_quota_bytes_on_tier".to_string(), quota[index] as f64),
        ("tier_used_bytes".to_string(), fill.used[index] as f64),
        ("deletes_share".to_string(), deletes_share(table)),
        ("dead_share".to_string(), dead_share(table)),
    ];
    if index + 1 < fill.tiers {
        numbers.push(("tier_limit_bytes".to_string(), fill.limit[index] as f64));
    }
    let next = if view.busy.contains(&table.id) {
        Some("a running job has it".to_string())
    } else if index > last || (index < first && fill.used[index] > fill.limit[index]) {
        let to = if index > last { last } else { first };
        Some(format!(
            "a relocation to tier {to}, where its level belongs"
        ))
    } else {
        next_merge(view, keyspace, targets, slot, &mut numbers).or_else(|| {
            if dead_share(table) > DEAD_SHARE_MAX {
                Some("a rewrite when idle: most of its blocks are dead".to_string())
            } else if deletes_share(table) > DELETES_SHARE_MAX {
                Some("a merge when idle: it is full of deletes".to_string())
            } else {
                None
            }
        })
    };
    Explanation {
        rule: rule.to_string(),
        slot,
        tier,
        numbers,
        next,
    }
}

/// The merge that will take a table of `slot` along, and the numbers that call
/// for it.
pub(super) fn next_merge(
    view: &View<'_>,
    keyspace: &Keyspace,
    targets: &Targets,
    slot: Slot,
    numbers: &mut Vec<(String, f64)>,
) -> Option<String> {
    match slot {
        Slot::Newest(_) => {
            let runs = keyspace.level(slot).map_or(0, |l| l.runs.len());
            let due = view.shape.newest_runs_merge;
            numbers.push(("runs".to_string(), runs as f64));
            Some(format!(
                "a merge into L{} at {due} runs, now {runs}",
                targets.base + 1
            ))
        }
        Slot::Level(level) => {
            let level = level as usize;
            if level >= targets.bottom() {
                return None;
            }
            let (bytes, target) = (targets.bytes[level], targets.target_bytes[level]);
            numbers.push(("level_bytes".to_string(), bytes as f64));
            numbers.push(("level_target_bytes".to_string(), target as f64));
            Some(format!(
                "a merge towards L{} once {slot} exceeds {target} bytes, now {bytes}",
                level.max(targets.base.saturating_sub(1)) + 2
            ))
        }
    }
}
