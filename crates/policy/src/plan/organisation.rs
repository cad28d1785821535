//! Where all tables of a store belong (Mutant, section 3.1): its tables, prices,
//! devices and cost target as a [`knapsack`](super::knapsack) problem, and what its
//! solution says of tables that are there and of tables that are to be.
//!
//! What the budget may be spent on is data: metadata lies where it lies, and what that
//! costs is taken off first, as are its bytes off the limits of tiers.
//!
//! A table that is too young to have a temperature counts as hot as the hottest:
//! tables start out hot. To what is read is added what rewriting counts as ([`Rewriting`]).

use std::sync::Arc;

use thermocline_model::table::TableMeta;
use thermocline_model::version::{KeyspaceId, Slot};
use thermocline_model::view::View;

use super::knapsack::{Item, Problem, solve};
use crate::MIB;
use crate::cost::money::{self, Bounds, Budget, TierRoom};
use crate::cost::{Devices, Rewriting};
use crate::place::fill::{Fill, depth};

/// A table and where it belongs.
#[derive(Clone, Debug)]
pub struct Placed<'a> {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// The table.
    pub table: &'a Arc<TableMeta>,
    /// Its depth: 0 is newest.
    pub depth: usize,
    /// Its temperature, in block reads per second and MiB, or what it counts as; with `rewriting`.
    pub temperature: f64,
    /// Of this, what rewriting it counts as.
    pub rewriting: f64,
    /// Whether it has one.
    pub is_known: bool,
    /// What one more read would have added to it.
    pub temperature_of_one: f64,
    /// The tier its data lies on.
    pub from: usize,
    /// The tier its data belongs on.
    pub to: usize,
}

/// Where all tables belong.
#[derive(Clone, Debug)]
pub struct Organisation<'a> {
    /// The tables that have data, hottest first.
    pub tables: Vec<Placed<'a>>,
    /// What was solved.
    pub problem: Problem,
    /// The tiers in use, dearest first.
    pub chain: Vec<usize>,
    /// See [`Solution::divides`](super::knapsack::Solution::divides).
    pub divides: Vec<f64>,
    /// What all extents cost where they lie, and what they may cost.
    pub budget: Budget,
    /// What rewriting counts as.
    pub rewriting: Rewriting,
}

/// The problem that `view` poses, what data may cost included.
fn problem(view: &View<'_>, fill: &Fill, budget: &Budget) -> Problem {
    let prices = prices(view);
    let meta: f64 = fill
        .meta
        .iter()
        .zip(&prices)
        .map(|(&b, &p)| money::usd_month(b, p))
        .sum();
    let devices = Devices::of(view);
    let limits = fill.limit.iter().zip(&fill.meta).take(view.tiers.len());
    Problem {
        latencies_us: (0..view.tiers.len()).map(|t| devices.read_us(t)).collect(),
        limits_bytes: limits
            .map(|(limit, meta)| limit.saturating_sub(*meta))
            .collect(),
        budget_usd_month: target(view).map(|_| budget.limit_usd_month - meta),
        resistance: view.cost.migration_resistance.clamp(0.0, 1.0),
        prices,
    }
}

fn prices(view: &View<'_>) -> Vec<f64> {
    view.tiers.iter().map(|t| t.price_usd_gb_month).collect()
}

/// The cost target, if there is one that can be met.
#[must_use]
pub fn target(view: &View<'_>) -> Option<f64> {
    let target = view.cost.target_usd_gb_month?;
    money::check_target(target, &prices(view))
        .ok()
        .map(|()| target)
}

/// What placements of all that `view` shows cost. What is stored tells what will be only once there
/// is a table's worth of data: up to there the prices of tiers are the bounds.
#[must_use]
pub fn bounds(view: &View<'_>) -> Bounds {
    let fill = Fill::of(view);
    let data_bytes: u64 = fill.data.iter().flatten().sum();
    let tells = data_bytes >= view.shape.table_bytes;
    let room = |(tier, price): (usize, f64)| TierRoom {
        price,
        meta_bytes: if tells { fill.meta[tier] } else { 0 },
        limit_bytes: fill.limit[tier],
    };
    let tiers: Vec<_> = prices(view).into_iter().enumerate().map(room).collect();
    Bounds::of(if tells { data_bytes } else { 0 }, &tiers)
}

/// What all extents cost, and what they may.
#[must_use]
pub fn budget(view: &View<'_>, fill: &Fill) -> Budget {
    Budget::of(&fill.used[..fill.tiers], &prices(view), target(view))
}

impl<'a> Organisation<'a> {
    /// Of what `view` shows.
    #[must_use]
    pub fn of(view: &'a View<'_>) -> Organisation<'a> {
        let fill = Fill::of(view);
        let budget = budget(view, &fill);
        let problem = problem(view, &fill, &budget);
        let hottest = view.heat.values().filter_map(|h| h.temperature);
        let hottest = hottest.fold(0.0, f64::max);
        let young = if hottest > 0.0 { hottest } else { 1.0 };
        let mut tables: Vec<_> = view
            .version
            .keyspaces
            .values()
            .flat_map(|k| k.tables().map(move |(slot, _, table)| (k.id, slot, table)))
            .filter(|(_, _, table)| table.data_bytes() > 0)
            .map(|(keyspace, slot, table)| {
                let heat = view.heat.get(&table.id);
                let temperature = heat.and_then(|h| h.temperature);
                Placed {
                    keyspace,
                    table,
                    depth: depth(slot),
                    temperature: temperature.unwrap_or(young),
                    rewriting: 0.0,
                    is_known: temperature.is_some(),
                    temperature_of_one: heat.map_or(0.0, |h| h.temperature_of_one),
                    from: fill.index(table.tier()),
                    to: 0,
                }
            })
            .collect();
        let known = tables.iter().filter(|t| t.is_known);
        let reads = known.map(|t| t.temperature * t.mib());
        let rewriting = Rewriting::of(view, &fill, reads.sum());
        for placed in &mut tables {
            placed.rewriting = rewriting.reads(placed.depth);
            placed.temperature += placed.rewriting;
        }
        // What is short is sorted, and what is long moved once.
        let order = tables.iter().map(|t| t.temperature).zip(0..);
        let mut order: Vec<(f64, usize)> = order.collect();
        order.sort_unstable_by(|(a_temperature, a), (b_temperature, b)| {
            let warm = b_temperature.total_cmp(a_temperature);
            warm.then_with(|| tables[*a].order(&tables[*b]))
        });
        let mut tables: Vec<_> = order.iter().map(|&(_, at)| tables[at].clone()).collect();
        let item = |placed: &Placed<'_>| Item {
            bytes: placed.table.data_bytes(),
            temperature: placed.temperature,
            from: placed.from,
        };
        let solution = solve(&tables.iter().map(item).collect::<Vec<_>>(), &problem);
        for (placed, to) in tables.iter_mut().zip(solution.to) {
            placed.to = to;
        }
        Organisation {
            tables,
            problem,
            chain: solution.chain,
            divides: solution.divides,
            budget,
            rewriting,
        }
    }

    /// The position of a tier from the dearest; what is not in use counts as
    /// dearer than all.
    #[must_use]
    pub fn position(&self, tier: usize) -> Option<usize> {
        self.chain.iter().position(|&t| t == tier)
    }

    /// Whether a table on `from` gets to a cheaper tier on `to`.
    #[must_use]
    pub fn is_demotion(&self, from: usize, to: usize) -> bool {
        match (self.position(from), self.position(to)) {
            (Some(from), Some(to)) => to > from,
            _ => self.problem.prices[to] <= self.problem.prices[from],
        }
    }

    /// The temperature that divides `tier` from the next cheaper one, if there is one: colder
    /// tables belong further down, but for those that lie where they are by resistance, or because
    /// they fit where a hotter one is too large.
    #[must_use]
    pub fn divide(&self, tier: usize) -> Option<f64> {
        let divide = self.divides.get(self.position(tier)?).copied();
        divide.filter(|d| d.is_finite() && *d > 0.0)
    }

    /// The lowest temperature of a table that belongs on `tier` or a dearer one.
    #[must_use]
    pub fn boundary(&self, tier: usize) -> Option<f64> {
        let position = self.position(tier)?;
        let mut above = self.tables.iter().rev();
        above
            .find(|t| self.position(t.to).is_some_and(|p| p <= position))
            .map(|t| t.temperature)
    }
}

/// Where tables that are not there yet belong, by those that are.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// Temperature, tier, depth, and position of the tier that each table belongs on,
    /// hottest first.
    tables: Vec<(f64, (usize, usize), Option<usize>)>,
    /// See [`Organisation::chain`].
    chain: Vec<usize>,
    /// How many tables on either side a new one is compared with.
    band: usize,
    rewriting: Rewriting,
}

impl Ranking {
    /// Of what `view` shows.
    #[must_use]
    pub fn of(view: &View<'_>) -> Ranking {
        let all = Organisation::of(view);
        let rank = |t: &Placed<'_>| (t.temperature, (t.from, t.depth), all.position(t.to));
        let band = (all.problem.resistance * all.tables.len() as f64) as usize;
        Ranking {
            tables: all.tables.iter().map(rank).collect(),
            band: band.max(1),
            chain: all.chain,
            rewriting: all.rewriting,
        }
    }

    /// Where a new table belongs whose like lie on `from`: where those lie that are next
    /// to it in the order of temperatures, and where it comes from if they differ.
    #[must_use]
    pub fn tier_for(&self, temperature: Option<f64>, from: usize, slot: Slot) -> usize {
        let hottest = self.tables.first().map_or(1.0, |t| t.0);
        let depth = depth(slot);
        let temperature = temperature.map_or(hottest, |t| t + self.rewriting.reads(depth));
        let key = (from, depth);
        let at = self
            .tables
            .partition_point(|t| temperature.total_cmp(&t.0).then(t.1.cmp(&key)).is_lt());
        let near = at.saturating_sub(self.band)..(at + self.band).min(self.tables.len());
        let positions = || self.tables[near.clone()].iter().filter_map(|t| t.2);
        let (Some(dear), Some(cheap)) = (positions().min(), positions().max()) else {
            return self.chain.first().copied().unwrap_or(0);
        };
        let from = self.chain.iter().position(|&t| t == from).unwrap_or(dear);
        self.chain[from.clamp(dear, cheap)]
    }
}

impl Placed<'_> {
    /// Its temperature without rewriting.
    #[must_use]
    pub fn read_temperature(&self) -> f64 {
        self.temperature - self.rewriting
    }

    /// Its data, in MiB.
    #[must_use]
    pub fn mib(&self) -> f64 {
        self.table.data_bytes() as f64 / MIB
    }

    /// Hottest first; of equals those that lie on a faster tier, then the newer.
    fn order(&self, other: &Placed<'_>) -> std::cmp::Ordering {
        let warm = other.temperature.total_cmp(&self.temperature);
        warm.then(self.from.cmp(&other.from))
            .then(self.depth.cmp(&other.depth))
            .then(other.table.created_us.cmp(&self.table.created_us))
            .then(self.table.id.cmp(&other.table.id))
    }
}
