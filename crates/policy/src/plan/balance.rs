//! Which table should lie on another tier.
//!
//! [`Fill`] says how many bytes of each level each tier should hold. Two rules
//! move tables towards that, the fewest that do:
//!
//! - *tier over*: a tier beyond its limit gives up the least used table of the
//!   oldest level that it holds.
//! - *tier under*: a level with too few bytes on a fast tier gets its most
//!   used table there. If older levels fill the tier, one of theirs leaves
//!   first.
//!
//! Nothing goes to and fro: a tier is emptied down to its limit but filled only up to a *spare*
//! below it. The spare exceeds what the newest levels grow and shrink by, so that neither a burst
//! of flushes nor the merge that follows it calls for a move. Heat chooses among the tables of a
//! level, and never calls for a move by itself. And while memtables are lent memory, as hardly
//! anybody reads, nothing of the last level is moved up before the store rests: it would make way
//! for the next flushes at once ([`gives_way`]).

use thermocline_model::job::{Job, Reason, Relocate};
use thermocline_model::table::TableMeta;
use thermocline_model::tier::{TIERS_MAX, TierId};
use thermocline_model::version::KeyspaceId;
use thermocline_model::view::{PartLoad, View};

use crate::Planner;
use crate::place::fill::{ByTier, DEPTHS, Fill, depth};
use crate::plan::leveled::WAITING_SCORE;
use crate::plan::room::covering;
use crate::pressure::merges_are_urgent;

/// Of a tier's limit, the least and the largest share that promotion leaves
/// free.
const SPARE_SHARES: (f64, f64) = (0.1, 0.25);

/// Seconds of flushes that are kept room for while the store is written to. A merge that makes
/// some takes up to ten on a slow disk.
pub(super) const SPARE_S: f64 = 10.0;

/// Tables by which a level may miss its quota before it is corrected.
const MARGIN_TABLES: u64 = 1;

/// See the module.
#[derive(Debug, Default)]
pub struct Balance;

impl Planner for Balance {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        if view.tiers.len() < 2 || merges_are_urgent(view) {
            return None;
        }
        let fill = Fill::of(view);
        let relocate = tier_over(view, &fill).or_else(|| tier_under(view, &fill));
        relocate.map(Job::Relocate)
    }
}

/// Bytes of every tier's limit that promotion leaves free.
#[must_use]
pub fn spare_bytes(view: &View<'_>, fill: &Fill) -> ByTier {
    let shape = view.shape;
    let parts: usize = view.version.keyspaces.values().map(|k| k.parts.len()).sum();
    let runs = (parts * shape.newest_runs_merge) as f64 * WAITING_SCORE;
    let newest = runs * shape.flush_bytes as f64;
    let mut spare = [0; TIERS_MAX];
    for (spare, &limit) in spare.iter_mut().zip(&fill.limit).take(fill.tiers - 1) {
        let limit = limit as f64;
        let swing = newest.max((MARGIN_TABLES * shape.table_bytes) as f64);
        *spare = swing.clamp(limit * SPARE_SHARES.0, limit * SPARE_SHARES.1) as u64;
    }
    spare
}

/// The same of the first tier for what is about to be written: what some seconds of flushes
/// take, as far as flushes of late tell, and one flush while hardly anything is written. That
/// nothing was written for a moment, or one key now and then, is not what tables should come
/// and go for; and what is kept free is not read from.
#[must_use]
pub fn spare_for_writes(view: &View<'_>, fill: &Fill) -> u64 {
    let shape = view.shape;
    let held = |load: &PartLoad| load.sealed_bytes.saturating_add(load.active_bytes);
    let in_memory: u64 = view.memtables.values().map(held).sum();
    let mut parts = view.version.keyspaces.values().flat_map(|k| &k.parts);
    let is_written = in_memory >= shape.flush_bytes / 2 || parts.any(|p| !p.newest.runs.is_empty());
    let bytes = match is_written && !view.idle {
        true => {
            let coming = (view.flushed_bytes_per_s * SPARE_S) as u64;
            coming.max(shape.flush_bytes.saturating_mul(2))
        }
        false => shape.flush_bytes,
    };
    bytes.min(spare_bytes(view, fill)[0])
}

struct Found<'a> {
    keyspace: KeyspaceId,
    table: &'a TableMeta,
    tier: usize,
}

fn relocate(view: &View<'_>, found: &Found<'_>, to: usize, reason: Reason) -> Relocate {
    Relocate {
        keyspace: found.keyspace,
        table: found.table.id,
        to: TierId(u32::try_from(to).unwrap_or(u32::MAX)),
        reason: reason
            .with("from_tier", found.tier as f64)
            .with("to_tier", to as f64)
            .with("bytes", found.table.data_bytes() as f64)
            .with(
                "uses_per_mib",
                warmth(view, found.table) * f64::from(1 << 20),
            ),
    }
}

fn tier_over(view: &View<'_>, fill: &Fill) -> Option<Relocate> {
    for tier in 0..fill.tiers - 1 {
        // What busy tables hold is about to leave, as far as we know.
        let used = fill.used[tier].saturating_sub(fill.busy[tier]);
        if used <= fill.limit[tier] {
            continue;
        }
        let depths = (0..DEPTHS).rev().filter(|&d| fill.data[d][tier] > 0);
        for at in depths {
            if let Some(found) = coldest(view, fill, at, tier) {
                let to = next_with_room(view, fill, tier, found.table.data_bytes());
                let reason = Reason::new("tier-over")
                    .with("used_bytes", used as f64)
                    .with("limit_bytes", fill.limit[tier] as f64);
                return Some(relocate(view, &found, to, reason));
            }
        }
    }
    None
}

/// The least used table on the first tier of the deepest level that can make room there, for what
/// is flushed; see [`super::room`].
#[must_use]
pub fn gives_way(view: &View<'_>, bytes: u64) -> Option<Relocate> {
    let fill = Fill::of(view);
    let last = fill.last_depth()?;
    let cool_down_us = view.cost.migration_cool_down_us;
    let by_level = (1..=last).rev().flat_map(|at| {
        let movable = candidates(view, &fill, at).filter(|f| {
            let cools = (view.moves).is_cooling(f.table.id, view.now_us, cool_down_us);
            f.tier == 0 && !cools
        });
        let mut movable: Vec<Found<'_>> = movable.collect();
        movable.sort_by(|a, b| by_use(view, a, b));
        movable
    });
    let found = covering(by_level, bytes, |f| f.table.data_bytes())?;
    let bytes = found.table.data_bytes();
    let to = next_with_room(view, &fill, 0, bytes);
    let has_room = view.tiers.get(to).is_some_and(|t| t.room_bytes() >= bytes);
    let reason = Reason::new("flush-needs-room").with("used_bytes", fill.used[0] as f64);
    has_room.then(|| relocate(view, &found, to, reason))
}

fn tier_under(view: &View<'_>, fill: &Fill) -> Option<Relocate> {
    let quotas = fill.quotas(&spare_bytes(view, fill));
    let margin = MARGIN_TABLES * view.shape.table_bytes;
    let depths = match view.shape.is_lent() && !view.idle {
        true => fill.last_depth().unwrap_or(0),
        false => DEPTHS,
    };
    for at in 0..depths {
        let (mut quota, mut there) = (0, 0);
        let pairs = quotas[at].iter().zip(&fill.data[at]);
        for (tier, (wanted, data)) in pairs.enumerate().take(fill.tiers - 1) {
            quota += wanted;
            there += data;
            let deficit = u64::saturating_sub(quota, there);
            // A whole level that is smaller than the margin still belongs
            // where it belongs.
            let level: u64 = fill.data[at].iter().sum();
            if deficit == 0 || deficit < margin.min(level) {
                continue;
            }
            // What is under way from below may be coming here.
            let coming: u64 = fill.busy[tier + 1..].iter().sum();
            let Some(found) = hottest(view, fill, at, tier, deficit) else {
                continue;
            };
            let bytes = found.table.data_bytes();
            let reason = Reason::new("tier-under")
                .with("quota_bytes", quota as f64)
                .with("level_bytes_there", there as f64);
            if fill.fits(tier, bytes.saturating_add(coming)) {
                return Some(relocate(view, &found, tier, reason));
            }
            let mut older = (at + 1..DEPTHS).rev();
            let leaving = older.find_map(|d| {
                // Of this tier and all faster ones, as a deficit is: a table larger than its
                // level's quota of one of them would come back at once.
                let there: u64 = fill.data[d][..=tier].iter().sum();
                let surplus = there > quotas[d][..=tier].iter().sum();
                surplus.then(|| coldest(view, fill, d, tier)).flatten()
            });
            if fill.busy[tier] == 0
                && let Some(leaving) = leaving
            {
                let to = next_with_room(view, fill, tier, leaving.table.data_bytes());
                return Some(relocate(view, &leaving, to, Reason::new("tier-yield")));
            }
        }
    }
    None
}

/// The tier just below `tier`, beyond its limit if need be: it then gives up
/// an older table, which moves fewer tables than passing it by. Only where the
/// device has no room is it passed by.
fn next_with_room(view: &View<'_>, fill: &Fill, tier: usize, bytes: u64) -> usize {
    if view
        .tiers
        .get(tier + 1)
        .is_some_and(|t| t.room_bytes() >= bytes)
    {
        tier + 1
    } else {
        fill.first_that_fits(tier + 1, bytes)
    }
}

/// Uses per byte.
fn warmth(view: &View<'_>, table: &TableMeta) -> f64 {
    let heat = view.heat.get(&table.id).copied().unwrap_or_default();
    let uses = heat
        .probes
        .saturating_add(heat.scans)
        .saturating_add(heat.block_reads);
    uses as f64 / table.data_bytes().max(1) as f64
}

/// The movable tables of one depth.
fn candidates<'a>(
    view: &'a View<'_>,
    fill: &'a Fill,
    at: usize,
) -> impl Iterator<Item = Found<'a>> {
    let keyspaces = view.version.keyspaces.values();
    let slots = keyspaces.flat_map(|k| k.slots().map(move |s| (k, s)));
    let levels = slots.filter(move |(_, s)| depth(*s) == at);
    levels
        .flat_map(|(k, s)| {
            let tables = k.level(s).into_iter().flat_map(|l| l.tables());
            tables.map(move |t| (k.id, t))
        })
        .filter(|(_, t)| t.data_bytes() > 0 && !view.busy.contains(&t.id))
        .map(|(keyspace, table)| Found {
            keyspace,
            table,
            tier: fill.index(table.tier()),
        })
}

fn coldest<'a>(view: &'a View<'_>, fill: &'a Fill, at: usize, tier: usize) -> Option<Found<'a>> {
    least_used(view, candidates(view, fill, at).filter(|f| f.tier == tier))
}

fn least_used<'a>(view: &View<'_>, tables: impl Iterator<Item = Found<'a>>) -> Option<Found<'a>> {
    tables.min_by(|a, b| by_use(view, a, b))
}

fn by_use(view: &View<'_>, a: &Found<'_>, b: &Found<'_>) -> std::cmp::Ordering {
    let warmth = warmth(view, a.table).total_cmp(&warmth(view, b.table));
    warmth.then(a.table.id.cmp(&b.table.id))
}

/// The most used table below `tier` that is no larger than `bytes_max`.
fn hottest<'a>(
    view: &'a View<'_>,
    fill: &'a Fill,
    at: usize,
    tier: usize,
    bytes_max: u64,
) -> Option<Found<'a>> {
    candidates(view, fill, at)
        .filter(|f| f.tier > tier && f.table.data_bytes() <= bytes_max)
        .max_by(|a, b| {
            let warmth = warmth(view, a.table).total_cmp(&warmth(view, b.table));
            warmth.then(b.table.id.cmp(&a.table.id))
        })
}
