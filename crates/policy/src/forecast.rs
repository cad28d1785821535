//! What would happen: a preset plans on a copy of the store's picture, and nothing
//! moves.
//!
//! The preset's planners see a view as they always do, and every relocation and merge they ask for
//! is carried out in the copy alone, in the order in which the store would, until they rest. So
//! what is predicted is what the same planners will do, as far as heat stays what it is. What
//! bounds jobs in time (bytes a second, cool-down, merges that are urgent) is left out: it says
//! when, not what. What a merge would make is reckoned from sizes and intervals, as if nothing in
//! it were overwritten.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_model::forecast::{Forecast, ForecastMove};
use thermocline_model::job::Job;
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::view::{TableHeat, View};

use crate::plan::organisation::{Organisation, Placed};
use crate::{Placer, Preset};

mod pieces;
mod world;

use world::World;

/// Most tables that are relocated or merged, counted each time.
const TABLES_MAX: usize = 8192;

/// Lets the planners of `preset` plan from `view` on. Requires: it was made for
/// this, since planners may remember what they planned.
#[must_use]
pub fn forecast(view: &View<'_>, preset: &mut Preset) -> Forecast {
    let mut world = World::of(view);
    let first = Arc::clone(&world.version);
    let before = world.state(view);
    let with_data = || first.tables().filter(|t| t.data_bytes() > 0);
    let unknown = with_data().filter(|t| !is_known(world.heat.get(&t.id)));
    let unknown_tables = unknown.count() as u64;
    let mut followed = Followed::default();
    let Preset {
        planners, placer, ..
    } = preset;
    let rests = loop {
        // One that asks for what cannot be keeps the others from nothing.
        let mut planners = planners.iter_mut();
        let went_on = planners.any(|planner| {
            let job = planner.plan(&world.view(view));
            job.is_some_and(|job| followed.follow(&mut world, view, &**placer, job))
        });
        match went_on {
            true if followed.tables >= TABLES_MAX => break false,
            true => {}
            false => break true,
        }
    };
    let Followed {
        mut last,
        order,
        copied_bytes,
        device_seconds,
        merges,
        merge_bytes,
        ..
    } = followed;
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
        merges,
        merge_bytes,
        tables: with_data().count() as u64,
        unknown_tables,
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

/// What was followed.
#[derive(Debug, Default)]
struct Followed {
    /// Of each table moved and not merged since: to where, and by which rule.
    last: BTreeMap<TableId, (usize, String)>,
    /// The tables in the order in which they were first moved.
    order: Vec<TableId>,
    /// Those and all that were merged, each time.
    tables: usize,
    copied_bytes: u64,
    merges: u64,
    merge_bytes: u64,
    device_seconds: f64,
}

impl Followed {
    /// Whether `job` could be done in `world`, which it then was.
    fn follow(
        &mut self,
        world: &mut World,
        view: &View<'_>,
        placer: &dyn Placer,
        job: Job,
    ) -> bool {
        let done = match &job {
            Job::Relocate(relocate) => world.relocate(view, relocate),
            Job::Merge(merge) => world.merge(view, placer, merge),
            Job::Flush(_) | Job::Fold(_) | Job::Recut(_) => None,
        };
        let Some(done) = done else {
            return false;
        };
        self.device_seconds += done.device_seconds;
        match job {
            Job::Relocate(relocate) => {
                self.tables += 1;
                self.copied_bytes += done.bytes;
                if !self.last.contains_key(&relocate.table) {
                    self.order.push(relocate.table);
                }
                let to = relocate.to.0 as usize;
                self.last.insert(relocate.table, (to, relocate.reason.rule));
            }
            Job::Merge(merge) => {
                self.merges += u64::from(done.bytes > 0);
                self.merge_bytes += done.bytes;
                self.tables += merge.inputs.len();
                for id in &done.gone {
                    self.last.remove(id);
                }
            }
            Job::Flush(_) | Job::Fold(_) | Job::Recut(_) => {}
        }
        true
    }
}
