//! Why a table lies where it lies, where temperature and money decide.

use std::collections::BTreeMap;

use thermocline_model::table::TableId;
use thermocline_model::view::View;

use super::by_level::next_merge;
use super::{Explanation, Located, TargetsBy, each};
use crate::plan::organisation::{Organisation, Placed, target};
use crate::plan::targets::Targets;

/// Explains the place of each of `tables`; `None` of one that no keyspace has.
#[must_use]
pub fn why_each(view: &View<'_>, tables: &[TableId]) -> Vec<Option<Explanation>> {
    let ranked = Ranked::of(view);
    let mut targets = TargetsBy::new();
    each(view, tables, |place| {
        let targets = targets
            .entry(place.keyspace.id)
            .or_insert_with(|| Targets::by_parts(place.keyspace, view.shape));
        why(view, &ranked, targets, place)
    })
}

/// Where all tables belong, with what is asked of that for each of them.
struct Ranked<'a> {
    organisation: Organisation<'a>,
    /// The positions in it.
    at: BTreeMap<TableId, usize>,
    /// By tier, the known temperature of the coldest table that belongs on a faster one.
    coldest_faster: Vec<Option<f64>>,
    /// By tier, that of the hottest that belongs on a slower one.
    hottest_slower: Vec<Option<f64>>,
    /// Whether anything is known of any table, to compare with.
    is_known: bool,
}

impl<'a> Ranked<'a> {
    fn of(view: &'a View<'_>) -> Ranked<'a> {
        let organisation = Organisation::of(view);
        let tables = &organisation.tables;
        let at = tables.iter().map(|t| t.table.id).zip(0..).collect();
        let tiers = view.tiers.len();
        let mut coldest_faster = vec![None; tiers];
        let mut hottest_slower = vec![None; tiers];
        // Hottest first.
        for placed in tables.iter().filter(|t| t.is_known) {
            let to = placed.to.min(tiers);
            let temperature = Some(placed.temperature);
            coldest_faster[(to + 1).min(tiers)..].fill(temperature);
            for hottest in &mut hottest_slower[..to] {
                *hottest = hottest.or(temperature);
            }
        }
        Ranked {
            is_known: tables.iter().any(|t| t.is_known),
            organisation,
            at,
            coldest_faster,
            hottest_slower,
        }
    }
}

fn why(
    view: &View<'_>,
    ranked: &Ranked<'_>,
    targets: &Targets,
    Located {
        keyspace,
        slot,
        table,
    }: Located<'_>,
) -> Explanation {
    let organisation = &ranked.organisation;
    let tables = &organisation.tables;
    let tier = table.tier();
    let mut numbers = vec![("size_bytes".to_string(), table.size_bytes() as f64)];
    let mut add = |name: &str, number: f64| numbers.push((name.to_string(), number));
    let at = ranked.at.get(&table.id).copied();
    let placed = at.map(|at| &tables[at]);
    if let (Some(at), Some(placed)) = (at, placed) {
        if placed.is_known {
            add("temperature", placed.temperature);
            if placed.rewriting > 0.0 {
                add("of_it_rewriting", placed.rewriting);
            }
        }
        add("rank", at as f64 + 1.0);
        add("tables", tables.len() as f64);
        let beside = |by: &[Option<f64>]| by.get(placed.to).copied().flatten();
        if let Some(faster) = beside(&ranked.coldest_faster) {
            add("temperature_of_the_coldest_on_a_faster_tier", faster);
        }
        if let Some(slower) = beside(&ranked.hottest_slower) {
            add("temperature_of_the_hottest_on_a_slower_tier", slower);
        }
    }
    add(
        "price_usd_gb_month",
        organisation.budget.price_usd_gb_month(),
    );
    if let Some(target) = target(view) {
        add("target_usd_gb_month", target);
    }
    let rule = match placed {
        _ if view.tiers.len() < 2 => "only-tier",
        None => "no-data",
        Some(p) if p.from == p.to && !p.is_known => "new-and-so-hot",
        Some(p) if p.from == p.to => "as-hot-as-its-tier",
        Some(p) if organisation.is_demotion(p.from, p.to) => "faster-than-its-temperature",
        Some(_) => "slower-than-its-temperature",
    };
    let moves = placed.filter(|p| p.from != p.to).map(|p| p.to);
    let cooling = view
        .moves
        .is_cooling(table.id, view.now_us, view.cost.migration_cool_down_us);
    let next = match moves {
        _ if view.busy.contains(&table.id) => Some("a running job has it".to_string()),
        Some(to) if cooling => Some(format!(
            "a relocation to tier {to}, once it has cooled down from the last one"
        )),
        Some(to) => Some(format!(
            "a relocation to tier {to}, where its temperature belongs; if it changes places with \
             another table, once their temperatures differ by more than chance"
        )),
        None => next_merge(view, keyspace, targets, slot, &mut numbers).or_else(|| {
            let placed = placed.filter(|_| ranked.is_known);
            placed.and_then(|placed| next_move(organisation, placed))
        }),
    };
    Explanation {
        rule: rule.to_string(),
        slot,
        tier,
        numbers,
        next,
    }
}

/// The relocation that another temperature would call for, of a table that lies where it belongs.
fn next_move(organisation: &Organisation<'_>, placed: &Placed<'_>) -> Option<String> {
    let chain = &organisation.chain;
    let at = organisation.position(placed.from)?;
    let step = |tier: Option<&usize>, of: Option<&usize>, change: &str| {
        let divide = organisation.divide(*of?)?;
        Some(format!(
            "to tier {}, if it becomes {change} than {divide:.3}",
            tier?
        ))
    };
    let hotter = at.checked_sub(1).and_then(|dearer| {
        let dearer = chain.get(dearer);
        step(dearer, dearer, "hotter")
    });
    let colder = step(chain.get(at + 1), chain.get(at), "colder");
    let steps: Vec<_> = hotter.into_iter().chain(colder).collect();
    (!steps.is_empty()).then(|| format!("a relocation {}", steps.join(", or ")))
}
