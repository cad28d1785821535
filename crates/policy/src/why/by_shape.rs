//! Why a table lies where it lies, where fast levels lie above a strict one.

use std::collections::BTreeMap;

use thermocline_model::table::TableId;
use thermocline_model::version::{Keyspace, Slot};
use thermocline_model::view::{Optimisations, View};

use super::{Explanation, Located, each};
use crate::heat::Histogram;
use crate::plan::fast_levels::{FastLevels, FastTable, Share, is_fast};
use crate::plan::headroom::wanted_bytes;
use crate::plan::reverse::{Kept, Raising};

/// Explains the place of each of `tables`; `None` of one that no keyspace has.
#[must_use]
pub fn why_each(view: &View<'_>, tables: &[TableId], optimised: bool) -> Vec<Option<Explanation>> {
    let share = Share::of(view);
    let on = match optimised {
        true => view.shape.staging.on,
        false => Optimisations::all(false),
    };
    let deferred = on.deferred;
    let shape = Shape {
        wanted_bytes: deferred.then(|| wanted_bytes(view, &share, deferred)),
        informed: on.informed,
        share,
    };
    let raising = match on.reverse {
        true => Raising::of(view, share),
        false => Err(Kept::until("reverse compaction is switched on")),
    };
    let mut ranked = BTreeMap::new();
    each(view, tables, |place| {
        let ranked = ranked
            .entry(place.keyspace.id)
            .or_insert_with(|| Ranked::of(view, place.keyspace));
        why(view, &shape, &raising, ranked, place)
    })
}

/// The tables of the fast levels of a keyspace.
struct Ranked<'a> {
    levels: FastLevels<'a>,
    tables: BTreeMap<TableId, FastTable<'a>>,
    /// Ranks, from 1, coldest first.
    ranks: BTreeMap<TableId, usize>,
}

impl<'a> Ranked<'a> {
    fn of(view: &View<'_>, keyspace: &'a Keyspace) -> Ranked<'a> {
        let levels = FastLevels::of(keyspace);
        let histogram = Histogram::of(view, levels.tables().map(|t| t.table));
        let ids = histogram.coldest().map(|bucket| bucket.table.id);
        Ranked {
            ranks: ids.zip(1..).collect(),
            tables: levels.tables().map(|t| (t.table.id, t)).collect(),
            levels,
        }
    }
}

/// What all explanations go by.
struct Shape {
    share: Share,
    /// Whether the coldest tables leave them first, or any.
    informed: bool,
    /// Bytes that are to leave the fast levels; `None` where newest runs are not passed on as they
    /// are.
    wanted_bytes: Option<u64>,
}

fn why(
    view: &View<'_>,
    Shape {
        share,
        informed,
        wanted_bytes,
    }: &Shape,
    raising: &Result<Raising<'_>, Kept>,
    ranked: &Ranked<'_>,
    Located {
        keyspace,
        slot,
        table,
    }: Located<'_>,
) -> Explanation {
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
        add("runs_due", due as f64);
        match wanted_bytes {
            None => Some(format!("a merge into L1 at {due} runs, now {runs}")),
            Some(0) => Some(format!(
                "an edit to L1, as it is, at {due} runs, now {runs}; earlier if the store rests or room is needed"
            )),
            Some(bytes) => {
                add("wanted_bytes", *bytes as f64);
                Some("an edit to L1, as it is, before a merge that makes room".to_string())
            }
        }
    } else if fast {
        let place = ranked.tables.get(&table.id);
        let settled = place.is_some_and(|&t| ranked.levels.is_settled(t));
        let rank = ranked.ranks.get(&table.id).copied();
        add("rank_from_coldest", rank.unwrap_or(0) as f64);
        add("tables", ranked.ranks.len() as f64);
        Some(match settled {
            true if !informed => {
                "a merge to the slow tier, when room is needed and it is drawn".to_string()
            }
            true => "a merge to the slow tier, when room is needed and it is among the coldest"
                .to_string(),
            false => {
                "a merge within the fast levels, when room is needed or reads suffer".to_string()
            }
        })
    } else if view.tiers.len() > 1 && tier.0 > 0 {
        let rises = match raising {
            Ok(raising) => raising.rises(keyspace, table),
            Err(kept) => Err(kept.clone()),
        };
        match rises {
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
    Explanation {
        rule: rule.to_string(),
        slot,
        tier,
        numbers,
        next,
    }
}
