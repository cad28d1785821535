//! Reverse compaction (LogStore, section V-B): a hot table of the last level, on the
//! slow tier, is merged up into L1, on the fast tier.
//!
//! The hottest table of the last level goes up, with all that it overlaps of L1's
//! oldest run, whose entries are the next newer ones; it becomes a part of that run.
//! What overlaps it in newer runs stays above it, so nothing is passed (I1). Two
//! conditions must be met, and a third where the fast levels are full:
//!
//! 1. It is read more often than the least read tenth of L1.
//! 2. What reading it has cost the slow device (equation 11) is more than the merge
//!    costs (equation 10). Counts go with their keys: of those that it took over when it
//!    was written only as many count as its temperature makes of its age.
//! 3. Where there is no room for it, the coldest settled tables of L1 go down first,
//!    so that the fast levels hold no more than they may. Then what counts in 2 is by
//!    how much it is read more often than those; and that must be more than chance
//!    makes of equals. Without this, tables read equally often would change places
//!    without end.
//!
//! Where there is room the first condition is not asked: nothing is displaced. While
//! the store is written to, the room that informed compaction has made is not taken
//! for that; it is for what is written next. A table that is hot enough takes it all the
//! same, and then the merge down of as much, which it brings forward, is part of the cost.

use std::cell::OnceCell;
use std::sync::Arc;

use thermocline_model::job::{Job, Merge, Reason};
use thermocline_model::table::TableMeta;
use thermocline_model::tier::TierId;
use thermocline_model::version::Keyspace;
use thermocline_model::view::View;

use crate::Planner;
use crate::cost::compaction::{Device, SEEKS, reads_s, reverse_s};
use crate::heat::histogram::{self, LevelBucket};
use crate::plan::coldest::Descent;
use crate::plan::fast_levels::{
    FIRST, FastLevels, FastTable, Share, WarmTable, bytes_of, is_free, merge, newest_waits,
};
use crate::plan::headroom::kept_bytes;

/// The share of L1 that a table must be read more often than.
const LEAST_SHARE: f64 = 0.1;

/// What the temperature that condition 1 compares with is called.
const LEAST_NAME: &str = "temperature_of_the_least_read_tenth_of_l1";

/// Standard deviations of a count by which two tables must differ to be called
/// different.
const DEVIATIONS: f64 = 3.0;

/// Of a table's size, the part by which more room is made than it needs.
const SLACK_DIVISOR: u64 = 8;

/// How old a table must be, in microseconds, to be raised where room is short.
const REST_US: u64 = 10_000_000;

/// The hottest tables that are looked at, should the first be busy.
const CANDIDATES_MAX: usize = 8;

/// See the module.
#[derive(Debug)]
pub struct Reverse;

impl Planner for Reverse {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let on = view.shape.staging.on;
        if !on.reverse || view.tiers.len() < 2 {
            return None;
        }
        let share = Share::of(view);
        if share.excess_bytes() > 0 {
            return None;
        }
        let all = all_rivals(view);
        let mut hottest: Vec<(&Rivals<'_>, LevelBucket<'_>)> = Vec::new();
        for rivals in &all {
            let levels = &rivals.levels;
            let Some(last) = levels.keyspace.levels.get(levels.last) else {
                continue;
            };
            if levels.has_strays() || last.runs.len() > 1 {
                continue;
            }
            let slow = last.tables().filter(|t| t.tier() > TierId(0));
            let most = histogram::hottest(view, slow, CANDIDATES_MAX);
            hottest.extend(most.into_iter().map(|bucket| (rivals, bucket)));
        }
        hottest.sort_by(|a, b| b.1.temperature().total_cmp(&a.1.temperature()));
        let devices = Device::of(view.tiers);
        hottest.truncate(CANDIDATES_MAX);
        let merge = hottest
            .into_iter()
            .find_map(|(rivals, hot)| up(view, &share, rivals, &all, &hot, &devices).ok());
        merge.map(Job::Merge)
    }
}

/// What keeps a table of the last level from being merged up, and what was compared.
#[derive(Clone, PartialEq, Debug)]
pub struct Kept {
    /// What it waits for, to be put behind "once".
    pub until: &'static str,
    /// The numbers, each with name and unit.
    pub numbers: Vec<(String, f64)>,
}

impl Kept {
    /// What it waits for.
    #[must_use]
    pub fn until(until: &'static str) -> Kept {
        let numbers = Vec::new();
        Kept { until, numbers }
    }

    fn with(self, reason: Reason) -> Kept {
        Kept {
            numbers: reason.numbers,
            ..self
        }
    }
}

/// What [`Reverse`] compares all tables with.
pub struct Raising<'a> {
    view: &'a View<'a>,
    share: Share,
    all: Vec<Rivals<'a>>,
    devices: Vec<Device>,
}

impl<'a> Raising<'a> {
    /// Of what `view` shows, where fast levels take `share`.
    ///
    /// # Errors
    /// What keeps all tables where they are.
    pub fn of(view: &'a View<'a>, share: Share) -> Result<Raising<'a>, Kept> {
        let on = view.shape.staging.on;
        if !on.reverse || view.tiers.len() < 2 {
            return Err(Kept::until("reverse compaction is switched on"));
        }
        if share.excess_bytes() > 0 {
            return Err(Kept::until("the fast levels hold no more than they may"));
        }
        Ok(Raising {
            view,
            share,
            all: all_rivals(view),
            devices: Device::of(view.tiers),
        })
    }

    /// Asks of `table`, which lies in the last level of `keyspace` on a slow tier, what [`Reverse`]
    /// asks.
    ///
    /// # Errors
    /// What keeps it where it is.
    pub fn rises(&self, keyspace: &Keyspace, table: &Arc<TableMeta>) -> Result<Merge, Kept> {
        let heat = self.view.heat.get(&table.id);
        let Some(heat) = heat.filter(|h| h.temperature.is_some()) else {
            return Err(Kept::until("it is known how much it is read"));
        };
        let mut all = self.all.iter();
        let own = all.find(|r| r.levels.keyspace.id == keyspace.id);
        let Some(rivals) = own.filter(|r| !r.levels.has_strays()) else {
            return Err(Kept::until("what lies above it has come down"));
        };
        let hot = LevelBucket { table, heat: *heat };
        let (share, all) = (&self.share, &self.all);
        up(self.view, share, rivals, all, &hot, &self.devices)
    }
}

/// The fast levels of all keyspaces of which tables may be raised now.
fn all_rivals<'a>(view: &View<'a>) -> Vec<Rivals<'a>> {
    let deferred = view.shape.staging.on.deferred;
    let keyspaces = view.version.keyspaces.values();
    let all = keyspaces.filter(|k| !newest_waits(view, k, deferred));
    all.map(|k| Rivals::of(FastLevels::of(k))).collect()
}

/// The fast levels of a keyspace, which what may be raised is compared with.
struct Rivals<'a> {
    levels: FastLevels<'a>,
    /// Its tables, coldest first; put in order when the first is compared with them.
    coldest: OnceCell<Vec<WarmTable<'a>>>,
}

impl<'a> Rivals<'a> {
    fn of(levels: FastLevels<'a>) -> Rivals<'a> {
        let coldest = OnceCell::new();
        Rivals { levels, coldest }
    }

    fn coldest(&self, view: &View<'_>) -> &[WarmTable<'a>] {
        let coldest = || self.levels.coldest_first(view);
        self.coldest.get_or_init(coldest)
    }

    /// Condition 1: the temperature that must be exceeded, if there is any.
    fn least(&self, view: &View<'_>) -> Option<f64> {
        let coldest = self.coldest(view);
        let count = (coldest.len() as f64 * LEAST_SHARE).ceil().max(1.0) as usize;
        let least = coldest.get(count - 1);
        least.map(|l| l.temperature.unwrap_or(0.0))
    }

    /// The settled tables that are colder than `hot`, coldest first.
    fn yielding(
        &self,
        view: &View<'_>,
        hot: &LevelBucket<'_>,
    ) -> impl Iterator<Item = FastTable<'a>> {
        let is_colder = |t: &&WarmTable<'_>| t.temperature.is_some_and(|t| t < hot.temperature());
        let colder = self.coldest(view).iter().take_while(is_colder);
        colder.map(|t| t.fast).filter(|t| {
            // What it goes together with comes along.
            !t.table.range.overlaps(&hot.table.range) && self.levels.is_settled(*t)
        })
    }
}

fn up(
    view: &View<'_>,
    share: &Share,
    rivals: &Rivals<'_>,
    all: &[Rivals<'_>],
    hot: &LevelBucket<'_>,
    devices: &[Device],
) -> Result<Merge, Kept> {
    let (levels, table) = (&rivals.levels, hot.table);
    let reads = hot.heat.block_reads as f64;
    let slow = devices.get(table.tier().0 as usize).or(devices.last());
    let (Some(slow), true) = (slow, reads > 0.0) else {
        return Err(Kept::until("it is read"));
    };
    let below: Vec<&Arc<TableMeta>> = levels
        .oldest_first_run()
        .map_or(&[][..], |run| run.overlapping(&table.range))
        .iter()
        .collect();
    let fast = (below.len(), bytes_of(below.iter().copied()));
    let cost = reverse_s(fast, (1, table.size_bytes()), (devices[0], *slow));
    let here = share_here(view, hot);
    let spared = |reads: f64| reads_s(reads * here, SEEKS, *slow);
    let reason = |rule: &str, spared: f64| {
        Reason::new(rule)
            .with("temperature", hot.temperature())
            .with("block_reads", reads)
            .with("from_tier", f64::from(table.tier().0))
            .with("bytes", table.size_bytes() as f64)
            .with("overlap_bytes", fast.1 as f64)
            .compared(("reads_s", spared), ("merge_s", cost))
    };
    let kept = |until| Kept::until(until).with(reason("", spared(reads)));
    if spared(reads) <= cost {
        return Err(kept("its reads here have cost more than that merge"));
    }
    // One that turned out larger than there is room for would go down again, and up, without end.
    let risen = table.rewritten_bytes_max();
    let grown = (share.fast_bytes.saturating_add(share.coming_bytes)).saturating_add(risen);
    let written = fast.1.saturating_add(risen);
    let needed = written.saturating_add(view.shape.flush_bytes);
    let here = below.iter().filter(|t| t.tier() == TierId(0));
    let replaced = bytes_of(here.copied());
    // What goes down is deleted only when its last reader has left, so that of the device nothing
    // is sure to fit afterwards that does not fit now.
    let fits = |freed: u64| view.tiers[0].room_beside(replaced.saturating_add(freed)) >= needed;
    let has_room = grown <= share.limit_bytes;
    // Where there is room, what went down may still be there.
    if !fits(u64::MAX) || (has_room && !fits(0)) {
        return Err(kept("the first tier has room for it"));
    }
    // A table may turn out larger than it was, with other blocks or uncompressed. One
    // that did not fit and went down again would come up and go down without end.
    let is_tight = grown.saturating_add(risen) > share.limit_bytes;
    if is_tight && view.now_us.saturating_sub(table.created_us) < REST_US {
        return Err(kept("it is older, as room is short"));
    }
    let rises = |reason: Reason| {
        let mut inputs = vec![table];
        inputs.extend(&below);
        match is_free(view, levels.keyspace, &inputs) {
            true => Ok(merge(view, levels.keyspace, &inputs, FIRST, reason)),
            false => Err(kept("no job has what it is merged with")),
        }
    };
    // What was made free while the store is written to is for what is written.
    let reserved = kept_bytes(view, share.limit_bytes);
    let unclaimed = share.limit_bytes.saturating_sub(reserved);
    if has_room && grown <= unclaimed {
        return rises(reason("reverse", spared(reads)));
    }
    let least = rivals.least(view);
    let reason = |rule: &str, spared: f64| match least {
        Some(least) => reason(rule, spared).with(LEAST_NAME, least),
        None => reason(rule, spared),
    };
    let kept = |until| Kept::until(until).with(reason("", spared(reads)));
    if least.is_some_and(|least| least >= hot.temperature()) {
        return Err(kept(
            "it is read more often than the least read tenth of L1",
        ));
    }
    let coldest = coldest(view, all, hot);
    let wins = |rule: &str, equal: f64, down: f64| {
        let by_more_than_chance = reads - equal > DEVIATIONS * (reads + equal).sqrt();
        let gained = spared(reads - equal);
        let reason = reason(rule, gained)
            .with("displaced_block_reads", equal)
            .with("against_descent_s", down);
        match by_more_than_chance {
            _ if gained <= cost + down => Err(Kept::until(
                "its reads beyond those of what goes down for it have cost more than both merges",
            )
            .with(reason)),
            false => Err(Kept::until(
                "it is read more often than what goes down for it by more than chance",
            )
            .with(reason)),
            true => Ok(reason),
        }
    };
    if has_room {
        let Some((coldest, reads_per_byte)) = coldest else {
            return rises(wins("reverse", 0.0, 0.0)?);
        };
        let equal = reads_per_byte * table.size_bytes() as f64;
        // The room is for what is written: as much goes down again as comes up.
        let yielding = coldest.yielding(view, hot);
        let descent = Descent::take(view, &coldest.levels, yielding, risen);
        return rises(wins("reverse", equal, descent.cost_s(devices))?);
    }
    if share.busy_bytes > 0 {
        return Err(kept("what may be making room has ended"));
    }
    let Some((coldest, _)) = coldest else {
        return Err(kept("a settled table of L1 is colder than it"));
    };
    // Sizes change a little with the tier.
    let slack = risen / SLACK_DIVISOR + 1;
    let bytes = grown.saturating_sub(share.limit_bytes) + slack;
    let yielding = coldest.yielding(view, hot);
    let descent = Descent::take(view, &coldest.levels, yielding, bytes);
    if descent.bytes() < bytes || !fits(descent.bytes()) {
        // It would not make room enough, and come up again itself.
        return Err(kept("settled tables of L1 that are colder hold as much"));
    }
    let displaced = descent.block_reads(view);
    let down = descent.cost_s(devices);
    let reason = of_the_hotter(wins("yields-to-hotter", displaced, down)?);
    let merge = descent.merge(view, &coldest.levels, reason);
    merge.ok_or_else(|| kept("no job has what goes down for it"))
}

/// The reason for which others go down: the sizes are to be theirs, so those of the table that
/// comes up are named as its own.
fn of_the_hotter(mut reason: Reason) -> Reason {
    for (name, _) in &mut reason.numbers {
        if name == "bytes" || name == "overlap_bytes" {
            name.insert_str(0, "hotter_");
        }
    }
    reason
}

/// Of the block reads of a table, the share that was made since it was written where it
/// lies, as far as its temperature tells: the counts that it took over are of keys, and
/// many of them were read on the fast tier, which is nothing that the slow one has cost.
fn share_here(view: &View<'_>, hot: &LevelBucket<'_>) -> f64 {
    let size_mib = hot.table.size_bytes().max(1) as f64 / f64::from(1 << 20);
    let reads_per_s = hot.temperature() * size_mib;
    if reads_per_s <= 0.0 {
        return 1.0;
    }
    let age_s = view.now_us.saturating_sub(hot.table.created_us) as f64 / 1e6;
    (age_s * reads_per_s / hot.heat.block_reads.max(1) as f64).min(1.0)
}

/// Of all keyspaces the one with the coldest table that yields to `hot`, and the block
/// reads of that table per byte.
fn coldest<'a, 'b>(
    view: &View<'_>,
    all: &'b [Rivals<'a>],
    hot: &LevelBucket<'_>,
) -> Option<(&'b Rivals<'a>, f64)> {
    let mut best: Option<(&Rivals<'a>, f64)> = None;
    for rivals in all {
        let Some(first) = rivals.yielding(view, hot).next() else {
            continue;
        };
        let reads = view.heat.get(&first.table.id).map_or(0, |h| h.block_reads);
        let reads_per_byte = reads as f64 / first.table.size_bytes().max(1) as f64;
        if best.is_none_or(|(_, least)| reads_per_byte < least) {
            best = Some((rivals, reads_per_byte));
        }
    }
    best
}
