//! Moves tables to where they belong by temperature and money, one at a time
//! (Mutant, sections 4.1 and 4.2).
//!
//! [`Organisation`] says where every table belongs. While more is spent than the
//! target allows, or a tier holds more than it may, the coldest table that belongs
//! lower is moved. Else the hottest that belongs higher, if it fits now; if it does
//! not, the coldest that belongs lower makes room first. So neither the budget nor
//! a tier is exceeded by a move.
//!
//! A promotion may be asked to pay: within so long it must save the devices as much
//! time as it takes them, together with the demotion that makes room for it. The paper
//! weighs no such thing, so by default nothing is asked.
//!
//! A temperature is a rate estimated from so many reads, and rates that are alike differ by
//! chance. So no table makes room for one that is not hotter by three standard
//! deviations: on a device of sixty reads a second, under uniform reads, tables would
//! change places for ever, and the moves take the device from its readers. Not asked
//! where the resistance is 0.
//!
//! While merges are urgent nothing is moved but for flushes and what they rewrite
//! ([`MakeRoomAhead`]), and nothing while a move is under way, sooner than the bound on moved bytes
//! allows, or twice within the cool-down. While the store is written to, moves to the first tier
//! leave a spare there for what the newest levels grow by until they are merged, as far as flushes
//! of late tell; or each flush would push a table out that the next merge calls back. Of what the
//! target allows that is little, as the price is to be near it.

use thermocline_model::job::{Job, Reason, Relocate};
use thermocline_model::tier::TierId;
use thermocline_model::view::View;

use crate::Planner;
use crate::cost::{Devices, Rewriting, money};
use crate::place::fill::Fill;
use crate::plan::balance::SPARE_S;
use crate::plan::flush::lacking_bytes;
use crate::plan::organisation::{Organisation, Placed};
use crate::plan::room::{ahead_bytes, covering};
use crate::pressure::merges_are_urgent;

/// Of what may lie on the first tier, the largest share that is kept spare.
const SPARE_SHARE_MAX: f64 = 0.25;

/// The same of what the cost target allows to be spent: less than the price may be off.
const SPARE_OF_TARGET: f64 = 0.03;

/// Standard deviations by which a table must be hotter than the one that makes room for it.
const DEVIATIONS: f64 = 3.0;

/// See the module.
#[derive(Debug, Default)]
pub struct Migrate;

impl Planner for Migrate {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        if view.tiers.len() < 2 || !view.moves.may_begin(view.now_us) || merges_are_urgent(view) {
            return None;
        }
        let organisation = Organisation::of(view);
        let migration = Migration::new(view, &organisation);
        migration.next().map(Job::Relocate)
    }
}

/// The coldest table on the first tier of the deepest level that can make room there, for what is
/// flushed; see [`super::room`].
#[must_use]
pub fn gives_way(view: &View<'_>, bytes: u64) -> Option<Relocate> {
    let organisation = Organisation::of(view);
    let migration = Migration::new(view, &organisation);
    let cool_down_us = view.cost.migration_cool_down_us;
    let is_free = |t: &&Placed<'_>| {
        let id = t.table.id;
        let busy = view.busy.contains(&id);
        !busy && !view.moves.is_cooling(id, view.now_us, cool_down_us)
    };
    let coldest = organisation.tables.iter().rev();
    let mut movable: Vec<&Placed<'_>> = coldest
        .filter(|t| t.from == 0 && t.depth > 0 && is_free(t))
        .collect();
    movable.sort_by_key(|t| std::cmp::Reverse(t.depth));
    let found = covering(movable.into_iter(), bytes, |t| t.table.data_bytes())?;
    let cheaper = organisation.position(0).map_or(0, |at| at + 1);
    let chain = organisation.chain.get(cheaper..).unwrap_or_default();
    chain.iter().find_map(|&to| {
        let down = Placed {
            to,
            ..found.clone()
        };
        // Of the last tier, too: what fails there makes no room here.
        let may = to != 0 && view.tiers[to].room_bytes() >= found.table.data_bytes();
        may.then(|| migration.relocate(&down, "flush-needs-room"))
    })
}

/// Makes room on the first tier before flushes need it, and for what urgent merges rewrite. See
/// [`super::room`].
#[derive(Debug, Default)]
pub struct MakeRoomAhead;

impl Planner for MakeRoomAhead {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        if view.tiers.len() < 2 || !view.moves.may_begin(view.now_us) {
            return None;
        }
        let moved = for_flushes(view).or_else(|| for_merges(view));
        moved.map(Job::Relocate)
    }
}

/// The table that gives way to what is flushed before the first tier lacks room for it.
fn for_flushes(view: &View<'_>) -> Option<Relocate> {
    let ahead_bytes = ahead_bytes(view);
    let lacking = lacking_bytes(view, ahead_bytes);
    let moved = (lacking > 0).then(|| gives_way(view, lacking))??;
    let mut reason = moved.reason.with("ahead_bytes", ahead_bytes as f64);
    reason.rule = "flushes-will-need-room".into();
    Some(Relocate { reason, ..moved })
}

/// The coldest table that belongs lower and makes room for what merges rewrite, while these are
/// urgent: what they write goes there as soon as it has room, and they leave nobody time to move
/// anything.
fn for_merges(view: &View<'_>) -> Option<Relocate> {
    if !merges_are_urgent(view) || !Rewriting::may_count(view) {
        return None;
    }
    let organisation = Organisation::of(view);
    let migration = Migration::new(view, &organisation);
    // What is mostly read can wait.
    let is_rewritten = |t: &Placed<'_>| t.rewriting > t.read_temperature();
    let rises = |t: &&Placed<'_>| t.from > 0 && t.to == 0 && is_rewritten(t);
    let rising = organisation.tables.iter().filter(rises);
    let bytes: u64 = rising.map(|t| t.table.data_bytes()).sum();
    // Merges leave the room for flushes where it is.
    let needed = bytes.saturating_add(ahead_bytes(view));
    if bytes == 0 || migration.fill.fits(0, needed) {
        return None;
    }
    let mut demotions = migration.demotions();
    let demotion = demotions.find(|d| d.from == 0 && d.depth > 0)?;
    Some(migration.relocate(demotion, "yields-to-rewritten"))
}

struct Migration<'a> {
    view: &'a View<'a>,
    fill: Fill,
    organisation: &'a Organisation<'a>,
    spare_bytes: u64,
    devices: Devices,
}

/// Blocks of a table read in a second.
fn reads_per_second(placed: &Placed<'_>) -> f64 {
    placed.read_temperature() * placed.mib()
}

/// Bytes of the first tier to be left for the newest levels: what they grow by until
/// they are merged. The size of the device has no part in it, which may be a
/// thousand times that of the store.
fn spare(view: &View<'_>, fill: &Fill, organisation: &Organisation<'_>) -> u64 {
    if view.idle {
        return 0;
    }
    let shape = view.shape;
    let parts: usize = view.version.keyspaces.values().map(|k| k.parts.len()).sum();
    let grow = (parts * shape.newest_runs_merge) as u64;
    let grow = grow.saturating_mul(shape.flush_bytes);
    let newest = fill.data[0][0];
    let belongs = organisation.tables.iter().filter(|t| t.to == 0);
    let held: u64 = belongs.map(|t| t.table.data_bytes()).sum();
    let most = (held as f64 * SPARE_SHARE_MAX) as u64;
    let coming = (view.flushed_bytes_per_s * SPARE_S) as u64;
    let coming = coming.max(shape.flush_bytes);
    let prices = &organisation.problem.prices;
    let dearer = prices[0] - prices.iter().copied().fold(f64::INFINITY, f64::min);
    let limit = organisation.budget.limit_usd_month;
    // No bound where there is no target, or nothing is dearer.
    let of_target = (limit * SPARE_OF_TARGET / dearer * money::GB) as u64;
    grow.saturating_sub(newest)
        .max(ahead_bytes(view))
        .min(most)
        .min(coming)
        .min(of_target)
}

impl<'a> Migration<'a> {
    fn new(view: &'a View<'a>, organisation: &'a Organisation<'a>) -> Migration<'a> {
        let fill = Fill::of(view);
        Migration {
            spare_bytes: spare(view, &fill, organisation),
            devices: Devices::of(view),
            view,
            fill,
            organisation,
        }
    }

    fn next(&self) -> Option<Relocate> {
        if self.is_over_budget() {
            let demotion = self.demotions().next();
            return demotion.map(|d| self.relocate(d, "over-budget"));
        }
        if let Some(tier) = self.tier_over() {
            let demotion = self.demotions().find(|d| d.from == tier);
            return demotion.map(|d| self.relocate(d, "tier-over"));
        }
        let promotion = self.promotions().next()?;
        if self.fits(promotion) {
            let pays = self.pays_back(promotion, None);
            return pays.then(|| self.relocate(promotion, "hotter"));
        }
        let demotion = self.demotions().next()?;
        // Of equals, as all are that nothing is known of, none yields: it would be next to come up.
        let moves = promotion.temperature > demotion.temperature
            && self.is_hotter_beyond_chance(promotion, demotion)
            && self.pays_back(promotion, Some(demotion));
        moves.then(|| {
            let mut relocate = self.relocate(demotion, "yields-to-hotter");
            let numbers = &mut relocate.reason.numbers;
            let mut add = |name: &str, number: f64| numbers.push((name.to_string(), number));
            if promotion.is_known {
                add("temperature_of_the_hotter", promotion.temperature);
            }
            if promotion.is_known && demotion.is_known {
                let (seconds, saved) = self.taken_and_saved_s(promotion, Some(demotion));
                add("device_seconds_of_both", seconds);
                if saved > 0.0 {
                    add("payback_seconds_of_both", seconds / saved);
                }
            }
            relocate
        })
    }

    /// Whether a promotion, with the demotion that makes room for it, saves as much
    /// time of devices as it takes before too long. Time taken and time saved both go
    /// by bytes, so where the hottest table does not pay none does.
    fn pays_back(&self, promotion: &Placed<'_>, demotion: Option<&Placed<'_>>) -> bool {
        let within_us = self.view.cost.migration_payback_us;
        if within_us == 0 {
            return true;
        }
        let (seconds, saved) = self.taken_and_saved_s(promotion, demotion);
        saved * (within_us as f64 / 1e6) >= seconds
    }

    /// Seconds of devices that both moves take, and that they save readers in every second.
    fn taken_and_saved_s(
        &self,
        promotion: &Placed<'_>,
        demotion: Option<&Placed<'_>>,
    ) -> (f64, f64) {
        let moved = [Some(promotion), demotion].into_iter().flatten();
        let (mut seconds, mut saved) = (0.0, 0.0);
        for placed in moved {
            let bytes = placed.table.data_bytes();
            seconds += self.devices.move_seconds(placed.from, placed.to, bytes);
            saved -= self.latency_change_us(placed) / 1e6;
        }
        (seconds, saved)
    }

    /// Whether `hot` is hotter than `cold` by more than chance makes of rates that are alike.
    fn is_hotter_beyond_chance(&self, hot: &Placed<'_>, cold: &Placed<'_>) -> bool {
        let asked = self.organisation.problem.resistance > 0.0;
        // What nothing is known of belongs where new tables do, by rule and not by count.
        if !asked || !hot.is_known || !cold.is_known {
            return true;
        }
        let by = hot.temperature - cold.temperature;
        // If reads come by chance (Poisson's law).
        let variance = |placed: &Placed<'_>| placed.read_temperature() * placed.temperature_of_one;
        by * by > DEVIATIONS * DEVIATIONS * (variance(hot) + variance(cold))
    }

    /// Microseconds by which all reads of a second get slower, and what counts as reads.
    fn latency_change_us(&self, placed: &Placed<'_>) -> f64 {
        let latencies = &self.organisation.problem.latencies_us;
        placed.temperature * placed.mib() * (latencies[placed.to] - latencies[placed.from])
    }

    fn is_free(&self, placed: &Placed<'_>) -> bool {
        let view = self.view;
        let id = placed.table.id;
        placed.from != placed.to
            && !view.busy.contains(&id)
            && !(view.moves).is_cooling(id, view.now_us, view.cost.migration_cool_down_us)
    }

    fn is_demotion(&self, placed: &Placed<'_>) -> bool {
        self.organisation.is_demotion(placed.from, placed.to)
    }

    /// Coldest first.
    fn demotions(&self) -> impl Iterator<Item = &Placed<'a>> {
        let coldest = self.organisation.tables.iter().rev();
        coldest.filter(|t| self.is_free(t) && self.is_demotion(t) && self.has_room(t))
    }

    /// Hottest first.
    fn promotions(&self) -> impl Iterator<Item = &Placed<'a>> {
        let hottest = self.organisation.tables.iter();
        hottest.filter(|t| self.is_free(t) && !self.is_demotion(t))
    }

    /// Whether the device has room for the copy.
    fn has_room(&self, placed: &Placed<'_>) -> bool {
        let bytes = placed.table.data_bytes();
        let (view, to) = (self.view, placed.to);
        to + 1 == self.fill.tiers || self.fill.has_room(view, to, bytes, false)
    }

    fn price(&self, tier: usize) -> f64 {
        self.organisation.problem.prices[tier]
    }

    fn cost_change(&self, placed: &Placed<'_>) -> f64 {
        let dearer = self.price(placed.to) - self.price(placed.from);
        money::usd_month(placed.table.data_bytes(), dearer)
    }

    /// Whether more is spent than may be, what busy tables are about to save
    /// left out.
    fn is_over_budget(&self) -> bool {
        let budget = &self.organisation.budget;
        let busy = self.organisation.tables.iter();
        let busy = busy.filter(|t| self.view.busy.contains(&t.table.id));
        let saved: f64 = busy.map(|t| self.cost_change(t).min(0.0)).sum();
        budget.spent_usd_month + saved > budget.limit_usd_month * (1.0 + money::ROUNDING)
    }

    fn tier_over(&self) -> Option<usize> {
        let fill = &self.fill;
        (0..fill.tiers - 1).find(|&t| fill.used[t].saturating_sub(fill.busy[t]) > fill.limit[t])
    }

    fn fits(&self, placed: &Placed<'_>) -> bool {
        let budget = &self.organisation.budget;
        let spare = if placed.to == 0 { self.spare_bytes } else { 0 };
        let bytes = placed.table.data_bytes().saturating_add(spare);
        let cheapest = self.organisation.problem.prices.iter();
        let cheapest = cheapest.copied().fold(f64::INFINITY, f64::min);
        let spare_cost = money::usd_month(spare, self.price(placed.to) - cheapest);
        let cost = budget.spent_usd_month + self.cost_change(placed) + spare_cost;
        let unlimited = placed.to + 1 == self.fill.tiers;
        self.has_room(placed)
            && (unlimited || self.fill.fits(placed.to, bytes))
            && cost <= budget.limit_usd_month * (1.0 + money::ROUNDING)
    }

    fn relocate(&self, placed: &Placed<'_>, rule: &str) -> Relocate {
        let budget = &self.organisation.budget;
        let bytes = placed.table.data_bytes();
        let seconds = self.devices.move_seconds(placed.from, placed.to, bytes);
        let mut reason = Reason::new(rule)
            .with("from_tier", placed.from as f64)
            .with("to_tier", placed.to as f64)
            .with("bytes", bytes as f64);
        // What a table counts as that nothing is known of is no number to show.
        if placed.is_known {
            let change_us = self.latency_change_us(placed);
            reason = reason
                .with("temperature", placed.temperature)
                .with("reads_per_second", reads_per_second(placed));
            if placed.rewriting > 0.0 {
                reason = reason.with("of_it_rewriting", placed.rewriting);
            }
            if change_us < 0.0 {
                reason = reason.with("payback_seconds", seconds / (-change_us / 1e6));
            }
            if let Some(divide) = self.organisation.divide(placed.from.min(placed.to)) {
                reason = reason.with("boundary_temperature", divide);
            }
        }
        if budget.limit_usd_month.is_finite() {
            let target = self.view.cost.target_usd_gb_month.unwrap_or(0.0);
            reason = reason
                .with("price_usd_gb_month", budget.price_usd_gb_month())
                .with("target_usd_gb_month", target);
        }
        Relocate {
            keyspace: placed.keyspace,
            table: placed.table.id,
            to: TierId(u32::try_from(placed.to).unwrap_or(u32::MAX)),
            reason,
        }
    }
}
