//! New tables go where their temperature belongs (Mutant, sections 3.2 and 4.3.1).
//!
//! - What is flushed goes to the fast tier: new tables are the most read.
//! - What is merged goes straight to the tier that its temperature calls for, so that nobody need
//!   move it there afterwards. Its temperature is what it will inherit, by key interval, and it
//!   goes where tables as hot as that belong. If it comes from another tier, that is a migration
//!   saved. To a dearer one it goes if the budget holds with it, what the merge is yet to write
//!   reckoned to lie as what it is made of: a merge of many tables that are about as hot would else
//!   bring all of them up at once.
//! - What is loaded in bulk goes to the fastest tier where budget and limit hold:
//!   nothing is known of it, and it may be everything there is.
//! - Meta extents go to the fastest tier with room.
//!
//! The second and the last can be switched off ([`thermocline_model::view::Optimisations`]).
//!
//! Whatever has no room where it belongs goes to the next tier with room. Of the capacity, what a
//! merge reads does not count, as what it writes takes its place, nor what other jobs are writing;
//! or the hottest tables, merged on a tier that is full, would be served by a slower one until they
//! were moved back. What it writes beyond that leaves the room that flushes are to find, before
//! which runs out a table gives way ([`crate::plan::room`]).

use std::sync::Arc;

use thermocline_model::job::{Layout, NewTable};
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::tier::{TIERS_MAX, TierId};
use thermocline_model::version::Slot;
use thermocline_model::view::View;

use crate::Placer;
use crate::cost::money::{Budget, ROUNDING};
use crate::place::fill::{Fill, depth, parents, replaced};
use crate::place::reads::ReadsByKey;
use crate::place::seen::Seen;
use crate::place::span::{Span, wide};
use crate::plan::leveled::hull;
use crate::plan::organisation::target;
use crate::plan::room::ahead_bytes;
use crate::why::{Explanation, by_heat};

/// About how much of a table its meta extent is.
const META_DIVISOR: u64 = 20;

/// See the module.
#[derive(Debug, Default)]
pub struct ByHeat;

/// Where the data should go, and where that comes from.
struct Wanted {
    tier: usize,
    rule: &'static str,
    migrates: bool,
}

impl Wanted {
    fn new(tier: usize, rule: &'static str) -> Wanted {
        Wanted {
            tier,
            rule,
            migrates: false,
        }
    }
}

impl Placer for ByHeat {
    fn place_as_seen(&self, view: &View<'_>, seen: &Seen, new: &NewTable) -> Layout {
        let tiers = view.tiers.len().clamp(1, TIERS_MAX);
        let parents = parents(view, new);
        let replaced = replaced(view, &parents);
        let fill = seen.fill(view);
        let first_with_room = |from: usize, bytes: u64, kept_bytes: u64| {
            let has_room = |t: &usize| match (new.parents.is_empty(), new.slot) {
                (false, _) => {
                    let fits = |bytes| fill.has_room_for_output(view, *t, bytes, new, &replaced);
                    let replaces = new.written_bytes[*t].saturating_add(bytes) <= replaced[*t];
                    let left = || fits(bytes.saturating_add(kept_bytes));
                    fits(bytes) && (*t > 0 || replaces || left())
                }
                (true, Slot::Newest(_)) => {
                    fill.has_room_for_flush(view, *t, bytes + new.written_bytes[*t])
                }
                // A load's tables are in no version yet, but on their devices.
                (true, _) => view.tiers[*t].room_bytes() >= bytes,
            };
            (from..tiers - 1).find(has_room).unwrap_or(tiers - 1)
        };
        let wanted = if tiers == 1 {
            Wanted::new(0, "only-tier")
        } else if !new.parents.is_empty() {
            merged(view, &fill, seen, new, &parents)
        } else if matches!(new.slot, Slot::Newest(_)) {
            Wanted::new(0, "newest-on-fast")
        } else {
            Wanted::new(loaded(view, &fill, new), "within-budget")
        };
        let data = first_with_room(wanted.tier, new.size_bytes, ahead_bytes(view));
        let here = data == wanted.tier;
        let meta_from = match view.shape.staging.on.organised {
            true => 0,
            false => data,
        };
        Layout {
            meta: tier_id(first_with_room(meta_from, new.size_bytes / META_DIVISOR, 0)),
            data: tier_id(data),
            wanted: tier_id(wanted.tier),
            rule: if here { wanted.rule } else { "tier-full" },
            migrates: here && wanted.migrates,
        }
    }

    fn why_each(&self, view: &View<'_>, tables: &[TableId]) -> Vec<Option<Explanation>> {
        by_heat::why_each(view, tables)
    }
}

fn tier_id(index: usize) -> TierId {
    TierId(u32::try_from(index).unwrap_or(u32::MAX))
}

/// What a table made of `parents` will be like.
struct Likeness {
    /// `None` when no parent has one.
    temperature: Option<f64>,
    /// The tier that most of what it replaces in its level lies on, or of all that it is made of
    /// where it replaces nothing there.
    from: usize,
}

fn merged(
    view: &View<'_>,
    fill: &Fill,
    seen: &Seen,
    new: &NewTable,
    parents: &[&Arc<TableMeta>],
) -> Wanted {
    let Some(span) = Span::of(parents.iter().copied()) else {
        return Wanted::new(0, "newest-on-fast");
    };
    let like = likeness(view, fill, &span, parents, new);
    if !view.shape.staging.on.joined {
        return Wanted::new(like.from, "as-its-inputs");
    }
    let ranking = seen.ranking(view);
    let tier = ranking.tier_for(like.temperature, like.from, new.slot);
    let price = |tier: usize| view.tiers[tier].price_usd_gb_month;
    let rises = price(tier) > price(like.from);
    if rises && !is_within_budget(view, fill, &span, parents, new, (like.from, tier)) {
        return Wanted::new(like.from, "budget-is-spent");
    }
    Wanted {
        tier,
        rule: if tier == like.from {
            "as-hot-as-its-tier"
        } else {
            "joined-migration"
        },
        migrates: tier != like.from,
    }
}

/// Whether the budget holds with `new` on the second of two tiers, while what lies on the first
/// would lie there again. Of its parents, what lies before it is replaced by what the merge has
/// written, the rest is yet to be.
fn is_within_budget(
    view: &View<'_>,
    fill: &Fill,
    span: &Span,
    parents: &[&Arc<TableMeta>],
    new: &NewTable,
    (from, to): (usize, usize),
) -> bool {
    let Some(target) = target(view) else {
        return true;
    };
    let at = start_of(span, new);
    let mut bytes = fill.used.map(|used| used as f64);
    for table in parents {
        let (start, width) = span.place(&table.range);
        let replaced = ((at - start) / width).clamp(0.0, 1.0);
        for extent in table.extents() {
            bytes[fill.index(extent.tier)] -= extent.length as f64 * replaced;
        }
    }
    for (bytes, written) in bytes.iter_mut().zip(new.written_bytes) {
        *bytes += written as f64;
    }
    bytes[from] -= new.size_bytes as f64;
    bytes[to] += new.size_bytes as f64;
    let bytes = bytes.map(|bytes| bytes.max(0.0) as u64);
    let prices: Vec<f64> = view.tiers.iter().map(|t| t.price_usd_gb_month).collect();
    let budget = Budget::of(&bytes[..fill.tiers], &prices, Some(target));
    budget.spent_usd_month <= budget.limit_usd_month * (1.0 + ROUNDING)
}

/// Where the new table begins.
fn start_of(span: &Span, new: &NewTable) -> f64 {
    match (&new.start, &new.range) {
        (Some(start), _) => span.at(start),
        (None, Some(range)) => span.at(&range.start),
        (None, None) => f64::NEG_INFINITY,
    }
}

/// Walks from the new table's first key over what its parents hold there, until
/// that makes a table of its size. As in what it will inherit, a wide parent is
/// read where other tables are, those beside it and those below: by as much more or
/// less than on average as these.
fn likeness(
    view: &View<'_>,
    fill: &Fill,
    span: &Span,
    parents: &[&Arc<TableMeta>],
    new: &NewTable,
) -> Likeness {
    let heat = |t: &TableMeta| view.heat.get(&t.id).and_then(|h| h.temperature);
    let start = start_of(span, new);
    let places: Vec<(f64, f64)> = parents.iter().map(|t| span.place(&t.range)).collect();
    let wide = wide_parents(view, parents, &places, new);
    let by_key = match wide.contains(&true) {
        true => {
            let narrow = parents.iter().zip(&wide).filter(|(_, wide)| !**wide);
            let narrow = narrow.map(|(parent, _)| *parent);
            let read = |t: &Arc<TableMeta>| {
                let reads = heat(t)? * t.data_bytes() as f64;
                Some((span.place(&t.range), reads))
            };
            ReadsByKey::of(narrow.chain(below(view, parents, new)).filter_map(read))
        }
        false => ReadsByKey::default(),
    };
    let ends = places.iter().flat_map(|&(at, width)| [at, at + width]);
    let mut ends: Vec<f64> = ends.chain(by_key.ends().iter().copied()).collect();
    ends.sort_by(f64::total_cmp);
    ends.dedup();
    let means = places
        .iter()
        .map(|&(at, width)| by_key.density(at, at + width));
    let means: Vec<f64> = means.map(|mean| mean.unwrap_or(0.0)).collect();
    let (mut bytes, mut known, mut reads) = (0.0, 0.0, 0.0);
    // Of all of them, and of those in the new table's level.
    let mut by_tier = [[0.0; TIERS_MAX]; 2];
    let joined = in_its_level(view, parents, new);
    let first = ends.partition_point(|end| *end <= start).saturating_sub(1);
    for pair in ends[first..].windows(2) {
        let (low, high) = (pair[0].max(start), pair[1]);
        if bytes >= new.size_bytes as f64 {
            break;
        }
        let here = by_key.density(low, high);
        for (at, table) in parents.iter().enumerate() {
            let (begin, width) = places[at];
            if begin >= high || begin + width <= low {
                continue;
            }
            let share = table.data_bytes() as f64 * ((high - low) / width).min(1.0);
            bytes += share;
            let tier = fill.index(table.tier());
            by_tier[0][tier] += share;
            if joined[at] {
                by_tier[1][tier] += share;
            }
            if let Some(temperature) = heat(table) {
                known += share;
                let hotter = here.map_or(1.0, |here| here / means[at]);
                let hotter = if wide[at] && hotter.is_finite() {
                    hotter
                } else {
                    1.0
                };
                reads += share * temperature * hotter;
            }
        }
    }
    let [all, of_level] = by_tier;
    let by_tier = match of_level.iter().any(|bytes| *bytes > 0.0) {
        true => of_level,
        false => all,
    };
    let most = (0..fill.tiers)
        .rev()
        .max_by(|&a, &b| by_tier[a].total_cmp(&by_tier[b]));
    Likeness {
        // Entries that fall away in the merge leave the reads of their keys.
        temperature: (known > 0.0).then(|| reads / known),
        from: most.unwrap_or(0),
    }
}

/// Which parents lie in the level that the new table joins.
fn in_its_level(view: &View<'_>, parents: &[&Arc<TableMeta>], new: &NewTable) -> Vec<bool> {
    let keyspace = view.version.keyspaces.get(&new.keyspace);
    let level = match new.slot {
        Slot::Newest(_) => None,
        Slot::Level(level) => keyspace.and_then(|k| k.levels.get(level as usize)),
    };
    let runs = level.map_or(&[][..], |level| &level.runs);
    let is_in = |parent: &&Arc<TableMeta>| {
        let mut near = runs.iter().flat_map(|run| run.overlapping(&parent.range));
        near.any(|table| table.id == parent.id)
    };
    parents.iter().map(is_in).collect()
}

/// Which parents are wide: those of the newest levels, and what is wide among its like.
fn wide_parents(
    view: &View<'_>,
    parents: &[&Arc<TableMeta>],
    places: &[(f64, f64)],
    new: &NewTable,
) -> Vec<bool> {
    let mut wide = wide(places);
    let keyspace = view.version.keyspaces.get(&new.keyspace);
    let parts = keyspace.map_or(&[][..], |k| &k.parts);
    let newest = parts.iter().flat_map(|part| part.newest.tables());
    for table in newest {
        if let Some(at) = parents.iter().position(|p| p.id == table.id) {
            wide[at] = true;
        }
    }
    wide
}

/// Tables of the levels below the new one that overlap its parents.
fn below<'a>(
    view: &'a View<'_>,
    parents: &[&Arc<TableMeta>],
    new: &NewTable,
) -> impl Iterator<Item = &'a Arc<TableMeta>> {
    let hull = hull(parents.iter().copied());
    let keyspace = view.version.keyspaces.get(&new.keyspace);
    let levels = keyspace.map_or(&[][..], |k| &k.levels);
    let from = depth(new.slot).min(levels.len());
    let runs = levels[from..].iter().flat_map(|level| &level.runs);
    runs.flat_map(move |run| {
        let of_hull = hull.as_ref().map(|hull| run.overlapping(hull));
        of_hull.unwrap_or_default()
    })
}

/// The fastest tier that takes a table of a bulk load.
fn loaded(view: &View<'_>, fill: &Fill, new: &NewTable) -> usize {
    // A load's tables are in no version yet, but on their devices.
    let used: Vec<u64> = view.tiers.iter().map(|t| t.used_bytes).collect();
    let prices: Vec<f64> = view.tiers.iter().map(|t| t.price_usd_gb_month).collect();
    let holds = |tier: &usize| {
        let mut grown = used.clone();
        grown[*tier] = grown[*tier].saturating_add(new.size_bytes);
        let budget = Budget::of(&grown, &prices, target(view));
        grown[*tier] <= fill.limit[*tier] && budget.spent_usd_month <= budget.limit_usd_month
    };
    let mut tiers = 0..view.tiers.len();
    tiers.find(holds).unwrap_or(view.tiers.len() - 1)
}
