//! What would happen: a preset plans on a copy of the store's picture, and nothing
//! moves.
//!
//! The preset's planners see a view as they always do, and every relocation they ask
//! for is carried out in the copy alone, until they rest. So what is predicted is what
//! the same planners will do, as far as heat stays what it is. What bounds moves in time
//! (bytes a second, cool-down, merges that are urgent) is left out: it says when, not what. Merges rewrite
//! tables in ways that only their entries decide; those asked for are counted and not
//! followed any further.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thermocline_model::edit::{Change, Edit};
use thermocline_model::forecast::{Forecast, ForecastMove, ForecastState};
use thermocline_model::job::{Job, Relocate};
use thermocline_model::moves::Moves;
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::tier::TierState;
use thermocline_model::version::Version;
use thermocline_model::view::{TableHeat, View};

use crate::cost::{Budget, Devices, money};
use crate::place::fill::Fill;
use crate::plan::organisation::{Organisation, Placed};
use crate::{MIB, Preset};

/// Most relocations that are followed.
const MOVES_MAX: usize = 4096;

/// Lets the planners of `preset` plan from `view` on. Requires: it was made for
/// this, since planners may remember what they planned.
#[must_use]
pub fn forecast(view: &View<'_>, preset: &mut Preset) -> Forecast {
    let planners = &mut preset.planners;
    let mut world = World::of(view);
    let first = Arc::clone(&world.version);
    let before = world.state(view);
    let devices = Devices::of(view);
    let mut merges = BTreeSet::new();
    let mut merge_bytes = 0;
    let mut last: BTreeMap<TableId, (usize, String)> = BTreeMap::new();
    let mut order = Vec::new();
    let (mut copied_bytes, mut device_seconds, mut steps) = (0, 0.0, 0);
    let rests = loop {
        let mut merge = |inputs: Vec<TableId>, version: &Version| {
            if merges.insert(inputs.clone()) {
                let inputs: BTreeSet<_> = inputs.into_iter().collect();
                let tables = version.tables().filter(|t| inputs.contains(&t.id));
                merge_bytes += tables.map(|t| t.size_bytes()).sum::<u64>();
            }
        };
        let next = {
            let view = world.view(view);
            let mut jobs = planners.iter_mut().filter_map(|p| p.plan(&view));
            jobs.find_map(|job| match job {
                Job::Relocate(relocate) => Some(relocate),
                Job::Merge(job) => {
                    merge(job.inputs, &world.version);
                    None
                }
                Job::Flush(_) | Job::Fold(_) | Job::Recut(_) => None,
            })
        };
        let Some(relocate) = next else { break true };
        if steps == MOVES_MAX {
            break false;
        }
        steps += 1;
        // A planner that asks for what cannot be is at its end too.
        let Some((from, bytes)) = world.relocate(&relocate) else {
            break true;
        };
        let to = relocate.to.0 as usize;
        copied_bytes += bytes;
        device_seconds += devices.move_seconds(from, to, bytes);
        if !last.contains_key(&relocate.table) {
            order.push(relocate.table);
        }
        last.insert(relocate.table, (to, relocate.reason.rule));
    };
    let from: BTreeMap<TableId, &Arc<TableMeta>> = first.tables().map(|t| (t.id, t)).collect();
    let moves = order.into_iter().filter_map(|table| {
        let (meta, (to, rule)) = (from.get(&table)?, last.remove(&table)?);
        Some(ForecastMove {
            table: table.0,
            bytes: meta.data_bytes(),
            from: meta.tier().0 as usize,
            to,
            temperature: view.heat.get(&table).and_then(|h| h.temperature),
            rule,
        })
    });
    let moves: Vec<_> = moves.filter(|m| m.from != m.to).collect();
    let target_missed = target_missed(&world.view(view), rests);
    let with_data = || first.tables().filter(|t| t.data_bytes() > 0);
    let unknown = with_data().filter(|t| !is_known(world.heat.get(&t.id)));
    Forecast {
        preset: preset.name.to_string(),
        cost_target_usd_gb_month: view.cost.target_usd_gb_month,
        tiers: view.tiers.iter().map(|t| t.name.clone()).collect(),
        after: world.state(view),
        before,
        moved_tables: moves.len() as u64,
        moved_bytes: moves.iter().map(|m| m.bytes).sum(),
        copied_bytes,
        moves,
        device_seconds,
        merges: merges.len() as u64,
        merge_bytes,
        tables: with_data().count() as u64,
        unknown_tables: unknown.count() as u64,
        rests,
        target_missed,
    }
}

/// Why the price stays above the target where it does, as far as the planners' picture tells.
fn target_missed(view: &View<'_>, rests: bool) -> Option<String> {
    view.cost.target_usd_gb_month?;
    let organisation = Organisation::of(view);
    if !organisation.budget.is_exceeded() {
        return None;
    }
    let down = |t: &&Placed<'_>| t.from != t.to && organisation.is_demotion(t.from, t.to);
    Some(match organisation.tables.iter().filter(down).count() {
        _ if !rests => "it takes more moves than were followed".to_string(),
        0 => "no data may lie cheaper, and metadata stays where it lies".to_string(),
        due => format!("{due} tables belong on a cheaper tier, and are not asked to move there"),
    })
}

fn is_known(heat: Option<&TableHeat>) -> bool {
    heat.is_some_and(|h| h.temperature.is_some())
}

/// The copy that is planned on.
struct World {
    version: Arc<Version>,
    tiers: Vec<TierState>,
    heat: BTreeMap<TableId, TableHeat>,
    moves: Moves,
    nothing: BTreeSet<TableId>,
}

impl World {
    fn of(view: &View<'_>) -> World {
        World {
            version: Arc::new(view.version.clone()),
            tiers: view.tiers.to_vec(),
            heat: understood(view),
            moves: Moves::default(),
            nothing: BTreeSet::new(),
        }
    }

    fn view<'a>(&'a self, view: &View<'a>) -> View<'a> {
        View {
            version: &self.version,
            tiers: &self.tiers,
            heat: &self.heat,
            busy: &self.nothing,
            busy_outputs: &[],
            moves: &self.moves,
            idle: true,
            forecast: true,
            ..view.clone()
        }
    }

    /// Where the table came from, and its bytes that were moved; `None` if it
    /// cannot be.
    fn relocate(&mut self, relocate: &Relocate) -> Option<(usize, u64)> {
        let keyspace = self.version.keyspaces.get(&relocate.keyspace)?;
        let (_, _, table) = keyspace.find(relocate.table)?;
        let to = self.tiers.get(relocate.to.0 as usize)?.id;
        let from = table.tier().0 as usize;
        let mut meta = (**table).clone();
        let mut bytes = 0;
        for extent in meta.data.iter_mut().filter(|e| e.tier != to) {
            bytes += extent.length;
            if let Some(tier) = self.tiers.get_mut(extent.tier.0 as usize) {
                tier.used_bytes = tier.used_bytes.saturating_sub(extent.length);
                tier.device_free_bytes = tier.device_free_bytes.saturating_add(extent.length);
            }
            extent.tier = to;
        }
        if bytes == 0 {
            return None;
        }
        let tier = &mut self.tiers[to.0 as usize];
        tier.used_bytes = tier.used_bytes.saturating_add(bytes);
        tier.device_free_bytes = tier.device_free_bytes.saturating_sub(bytes);
        let edit = Edit::of(Change::ReplaceTable {
            keyspace: relocate.keyspace,
            table: Arc::new(meta),
        });
        self.version = Arc::new(edit.apply(&self.version).ok()?);
        Some((from, bytes))
    }

    fn state(&self, view: &View<'_>) -> ForecastState {
        let view = self.view(view);
        let fill = Fill::of(&view);
        let prices: Vec<f64> = view.tiers.iter().map(|t| t.price_usd_gb_month).collect();
        let budget = Budget::of(&fill.used[..fill.tiers], &prices, None);
        let devices = Devices::of(&view);
        let mut reads = vec![0.0; fill.tiers];
        for table in self.version.tables() {
            let heat = self.heat.get(&table.id);
            let temperature = heat.and_then(|h| h.temperature).unwrap_or(0.0);
            reads[fill.index(table.tier())] += temperature * table.data_bytes() as f64 / MIB;
        }
        let all: f64 = reads.iter().sum();
        let shares: Vec<f64> = if all > 0.0 {
            reads.iter().map(|r| r / all).collect()
        } else {
            Vec::new()
        };
        let tiers = fill.used.iter().zip(&prices);
        ForecastState {
            tier_bytes: fill.used[..fill.tiers].to_vec(),
            cost_usd_month: tiers.map(|(&b, &p)| money::usd_month(b, p)).sum(),
            price_usd_gb_month: budget.price_usd_gb_month(),
            read_us: (all > 0.0).then(|| {
                let each = shares.iter().enumerate();
                each.map(|(tier, share)| share * devices.read_us(tier))
                    .sum()
            }),
            read_shares: shares,
        }
    }
}

/// What is known of use, said in the way of every preset: one that counts and one
/// that keeps temperatures each find what they go by. Only proportions are right.
fn understood(view: &View<'_>) -> BTreeMap<TableId, TableHeat> {
    let mut heat = view.heat.clone();
    for table in view.version.tables() {
        let Some(heat) = heat.get_mut(&table.id) else {
            continue;
        };
        let mib = table.size_bytes().max(1) as f64 / MIB;
        let counted = heat.probes | heat.scans | heat.block_reads | heat.hits;
        match heat.temperature {
            Some(temperature) if counted == 0 => {
                heat.block_reads = (temperature * mib * 1e3) as u64;
            }
            None if heat.block_reads > 0 => {
                heat.temperature = Some(heat.block_reads as f64 / mib);
                heat.temperature_of_one = 1.0 / mib;
            }
            _ => {}
        }
    }
    heat
}
