//! Why a table lies where it lies, where fast levels lie above a strict one.

use thermocline_model::table::TableId;
use thermocline_model::version::Slot;
use thermocline_model::view::View;

use super::Explanation;
use crate::heat::Histogram;
use crate::plan::fast_levels::{FastLevels, Share, is_fast};
use crate::plan::reverse::rises;

/// Explains the place of `table`; `None` when no keyspace has it.
#[must_use]
pub fn why(view: &View<'_>, table: TableId) -> Option<Explanation> {
    let mut keyspaces = view.version.keyspaces.values();
    let (keyspace, (slot, _, table)) = keyspaces.find_map(|k| Some((k, k.find(table)?)))?;
    let levels = FastLevels::of(keyspace);
    let share = Share::of(view);
    let fast = is_fast(keyspace, slot);
    let tier = table.tier();
    let heat = view.heat.get(&table.id).copied().unwrap_or_default();
    let mut numbers = vec![
        ("size_bytes".to_string(), table.size_bytes() as f64),
        ("block_reads".to_string(), heat.block_reads as f64),
        ("fast_bytes".to_string(), share.fast_bytes as f64),
        ("limit_bytes".to_string(), share.limit_bytes as f64),
    ];
    let mut add = |name: &str, number: f64| numbers.push((name.to_string(), number));
    if let Some(temperature) = heat.temperature {
        add("temperature", temperature);
    }
    let rule = match (fast, tier.0) {
        _ if view.tiers.len() < 2 => "only-tier",
        (true, 0) => "fast-level",
        (false, 0) => "faster-than-its-level",
        (true, _) => "slower-than-its-level",
        (false, _) => "last-level",
    };
    let next = if view.busy.contains(&table.id) {
        Some("a running job has it".to_string())
    } else if let Slot::Newest(_) = slot {
        let runs = keyspace.level(slot).map_or(0, |l| l.runs.len());
        let due = view.shape.newest_runs_merge;
        add("runs", runs as f64);
        Some(format!("into L1 at {due} runs, now {runs}"))
    } else if fast {
        let place = levels.tables().find(|t| t.table.id == table.id);
        let settled = place.is_some_and(|t| levels.is_settled(t));
        let histogram = Histogram::of(view, levels.tables().map(|t| t.table));
        let rank = histogram.coldest().position(|b| b.table.id == table.id);
        add("rank_from_coldest", rank.map_or(0.0, |r| r as f64 + 1.0));
        add("tables", histogram.buckets().len() as f64);
        Some(match settled {
            true => "a merge to the slow tier, when room is needed and it is among the coldest"
                .to_string(),
            false => {
                "a merge within the fast levels, when room is needed or reads suffer".to_string()
            }
        })
    } else if view.tiers.len() > 1 && tier.0 > 0 {
        match rises(view, keyspace, table) {
            Ok(_) => Some("a merge up to L1, when its turn comes".to_string()),
            Err(kept) => {
                let known: Vec<_> = numbers.iter().map(|(name, _)| name.clone()).collect();
                let new = kept.numbers.into_iter();
                numbers.extend(new.filter(|(name, _)| !known.contains(name)));
                Some(format!("a merge up to L1, once {}", kept.until))
            }
        }
    } else if view.tiers.len() > 1 {
        Some("a relocation to tier 1, where its level belongs".to_string())
    } else {
        None
    };
    Some(Explanation {
        rule: rule.to_string(),
        slot,
        tier,
        numbers,
        next,
    })
}
