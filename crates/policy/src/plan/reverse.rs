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
//! Where nothing has to go down for it, its neighbours in the last level go up with it, one by one on either side, as
//! long as reads of each have cost more than what it adds to the merge. What they overlap of L1 is rewritten
//! once so, and merges are few. Only neighbours: outputs do not lie across what stays, and other merges find their inputs free.
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

/// Seconds that devices take for tables that go up together, at most: what else is to be merged should not wait for
/// long.
const TOGETHER_S: f64 = 2.0;

/// See the module.
#[derive(Debug)]
pub struct Reverse;

impl Planner for Reverse {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let raising = Raising::of(view, Share::of(view)).ok()?;
        let mut hottest: Vec<(&Rivals<'_>, LevelBucket<'_>)> = Vec::new();
        for rivals in &raising.all {
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
        hottest.truncate(CANDIDATES_MAX);
        let merge = hottest.into_iter().find_map(|(rivals, hot)| {
            let rise = raising.up(rivals, &[hot]).ok()?;
            Some(raising.with_neighbours(rivals, hot, rise))
        });
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
    fn until(until: &'static str) -> Kept {
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

    /// Asks of `table`, which lies in the last level of `keyspace` on a slow tier, what [`Reverse`] asks.
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
        self.up(rivals, &[hot]).map(|rise| rise.merge)
    }

    /// The merge by which `rising` go up, or others down for them.
    ///
    /// # Errors
    /// What keeps them where they are.
    fn up(&self, rivals: &Rivals<'a>, rising: &[LevelBucket<'_>]) -> Result<Rise, Kept> {
        let (view, share, devices) = (self.view, &self.share, &self.devices[..]);
        let levels = &rivals.levels;
        let (Some(hot), Some(ascent)) = (rising.first(), Ascent::of(view, levels, rising, devices))
        else {
            return Err(Kept::until("it is read"));
        };
        let (reads, cost) = (ascent.block_reads, ascent.cost_s);
        let overlap_bytes = bytes_of(ascent.below.iter().copied());
        let reason = |rule: &str, spared: f64| {
            Reason::new(rule)
                .with("temperature", hot.temperature())
                .with("block_reads", reads)
                .with("from_tier", f64::from(hot.table.tier().0))
                .with("bytes", ascent.bytes() as f64)
                .with("overlap_bytes", overlap_bytes as f64)
                .with("reads_cost_s", spared)
                .with("merge_cost_s", cost)
        };
        let kept = |until| Kept::until(until).with(reason("", ascent.reads_cost_s));
        if ascent.reads_cost_s <= cost {
            return Err(kept("its reads here have cost more than that merge"));
        }
        let risen = ascent.risen_bytes();
        let grown = (share.fast_bytes.saturating_add(share.coming_bytes)).saturating_add(risen);
        let written = overlap_bytes.saturating_add(risen);
        let needed = written.saturating_add(view.shape.flush_bytes);
        let here = ascent.below.iter().filter(|t| t.tier() == TierId(0));
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
        if is_tight && view.now_us.saturating_sub(ascent.created_us()) < REST_US {
            return Err(kept("it is older, as room is short"));
        }
        let rises = |displaces: bool, reason: Reason| {
            let mut inputs: Vec<_> = rising.iter().map(|hot| hot.table).collect();
            inputs.extend(&ascent.below);
            if !is_free(view, levels.keyspace, &inputs) {
                return Err(kept("no job has what it is merged with"));
            }
            let merge = merge(view, levels.keyspace, &inputs, FIRST, reason);
            Ok(Rise { merge, displaces })
        };
        // What was made free while the store is written to is for what is written.
        let reserved = kept_bytes(view, share.limit_bytes);
        let unclaimed = share.limit_bytes.saturating_sub(reserved);
        if has_room && grown <= unclaimed {
            let reason = reason("reverse", ascent.reads_cost_s);
            return rises(false, reason.with("rising_tables", rising.len() as f64));
        }
        let least = rivals.least(view);
        let reason = |rule: &str, spared: f64| match least {
            Some(least) => reason(rule, spared).with(LEAST_NAME, least),
            None => reason(rule, spared),
        };
        let kept = |until| Kept::until(until).with(reason("", ascent.reads_cost_s));
        if least.is_some_and(|least| least >= ascent.temperature()) {
            return Err(kept(
                "it is read more often than the least read tenth of L1",
            ));
        }
        let coldest = coldest(view, &self.all, &ascent);
        let wins = |rule: &str, equal: f64, down: f64| {
            let by_more_than_chance = reads - equal > DEVIATIONS * (reads + equal).sqrt();
            let gained = ascent.cost_of_s(reads - equal);
            let reason = reason(rule, gained)
                .with("displaced_block_reads", equal)
                .with("descent_cost_s", down);
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
                return rises(true, wins("reverse", 0.0, 0.0)?);
            };
            let equal = reads_per_byte * ascent.bytes() as f64;
            // The room is for what is written: as much goes down again as comes up.
            let yielding = coldest.yielding(view, &ascent);
            let descent = Descent::take(view, &coldest.levels, yielding, risen);
            return rises(true, wins("reverse", equal, descent.cost_s(devices))?);
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
        let yielding = coldest.yielding(view, &ascent);
        let descent = Descent::take(view, &coldest.levels, yielding, bytes);
        if descent.bytes() < bytes || !fits(descent.bytes()) {
            // It would not make room enough, and come up again itself.
            return Err(kept("settled tables of L1 that are colder hold as much"));
        }
        let displaced = descent.block_reads(view);
        let down = descent.cost_s(devices);
        let reason = of_the_hotter(wins("yields-to-hotter", displaced, down)?);
        let merge = descent.merge(view, &coldest.levels, reason);
        let merge = merge.ok_or_else(|| kept("no job has what goes down for it"))?;
        Ok(Rise {
            merge,
            displaces: true,
        })
    }

    /// The merge of `rise`, by which `hot` goes up, or one in its place by which neighbours of it do so, too.
    fn with_neighbours(&self, rivals: &Rivals<'a>, hot: LevelBucket<'a>, mut rise: Rise) -> Merge {
        let levels = &rivals.levels;
        let last = levels.keyspace.levels.get(levels.last);
        let run = last.and_then(|level| level.runs.first());
        let run = run.map_or(&[][..], |run| &run.tables);
        let Some(at) = run.iter().position(|t| t.id == hot.table.id) else {
            return rise.merge;
        };
        let mut rising = vec![hot];
        let mut add = |table: &'a Arc<TableMeta>| match self.joins(rivals, &rising, table) {
            Some((bucket, more)) => {
                rising.push(bucket);
                rise = more;
                true
            }
            None => false,
        };
        let _ = run[..at].iter().rev().all(&mut add);
        let _ = run[at + 1..].iter().all(&mut add);
        rise.merge
    }

    /// How `table` goes up with those that are `rising`, if its reads have paid for what it adds.
    fn joins<'b>(
        &self,
        rivals: &Rivals<'a>,
        rising: &[LevelBucket<'b>],
        table: &'b Arc<TableMeta>,
    ) -> Option<(LevelBucket<'b>, Rise)> {
        let heat = self.view.heat.get(&table.id);
        let heat = *heat.filter(|h| h.temperature.is_some())?;
        let bucket = LevelBucket { table, heat };
        if rising.iter().any(|hot| hot.table.tier() != table.tier()) {
            return None;
        }
        let own = [bucket];
        let all = [rising, &own].concat();
        let ascent = |tables| Ascent::of(self.view, &rivals.levels, tables, &self.devices);
        let (before, after) = (ascent(rising)?, ascent(&all)?);
        let paid = ascent(&own)?.reads_cost_s > after.cost_s - before.cost_s;
        if !paid || after.cost_s > TOGETHER_S {
            return None;
        }
        let rise = self.up(rivals, &all).ok()?;
        (!rise.displaces).then_some((bucket, rise))
    }
}

/// A merge by which tables go up, or make room for that.
struct Rise {
    merge: Merge,
    /// Whether others go down for it, now or later.
    displaces: bool,
}

/// Tables of the last level that go up in one merge, with what they overlap of L1's oldest run.
struct Ascent<'a, 'b> {
    tables: &'b [LevelBucket<'b>],
    below: Vec<&'a Arc<TableMeta>>,
    /// The device that they come from.
    slow: Device,
    block_reads: f64,
    /// Of these, the part that was made since they lie where they lie.
    share_here: f64,
    /// Seconds that this part has cost: equation 11.
    reads_cost_s: f64,
    /// Seconds that the merge takes: equation 10.
    cost_s: f64,
}

impl<'a, 'b> Ascent<'a, 'b> {
    /// None of tables that nobody reads. Requires: all are of one tier.
    fn of(
        view: &View<'_>,
        levels: &FastLevels<'a>,
        tables: &'b [LevelBucket<'b>],
        devices: &[Device],
    ) -> Option<Ascent<'a, 'b>> {
        let tier = tables.first()?.table.tier().0 as usize;
        let slow = *devices.get(tier).or(devices.last())?;
        let mut below: Vec<&Arc<TableMeta>> = Vec::new();
        for hot in tables {
            let run = levels.oldest_first_run();
            let met = run.map_or(&[][..], |run| run.overlapping(&hot.table.range));
            below.extend(met);
        }
        below.sort_unstable_by_key(|t| t.id);
        below.dedup_by_key(|t| t.id);
        let fast = (below.len(), bytes_of(below.iter().copied()));
        let bytes = bytes_of(tables.iter().map(|hot| hot.table));
        let reads = |hot: &LevelBucket<'_>| hot.heat.block_reads as f64;
        let block_reads: f64 = tables.iter().map(reads).sum();
        let here = tables.iter().map(|hot| reads(hot) * share_here(view, hot));
        let here: f64 = here.sum();
        (block_reads > 0.0).then(|| Ascent {
            reads_cost_s: reads_s(here, SEEKS, slow),
            cost_s: reverse_s(fast, (tables.len(), bytes), (devices[0], slow)),
            share_here: here / block_reads,
            block_reads,
            slow,
            below,
            tables,
        })
    }

    /// What `reads` of them have cost where they lie, in seconds.
    fn cost_of_s(&self, reads: f64) -> f64 {
        reads_s(reads * self.share_here, SEEKS, self.slow)
    }

    fn bytes(&self) -> u64 {
        bytes_of(self.tables.iter().map(|hot| hot.table))
    }

    /// What they may take on the fast tier. Those that turned out larger than there is room for would go down
    /// again, and up, without end.
    fn risen_bytes(&self) -> u64 {
        let risen = self
            .tables
            .iter()
            .map(|hot| hot.table.rewritten_bytes_max());
        risen.fold(0, u64::saturating_add)
    }

    /// That of the coldest.
    fn temperature(&self) -> f64 {
        let all = self.tables.iter().map(LevelBucket::temperature);
        all.fold(f64::INFINITY, f64::min)
    }

    fn overlaps(&self, table: &TableMeta) -> bool {
        let mut tables = self.tables.iter();
        tables.any(|hot| hot.table.range.overlaps(&table.range))
    }

    /// When the last of them was made.
    fn created_us(&self) -> u64 {
        let created = self.tables.iter().map(|hot| hot.table.created_us);
        created.max().unwrap_or(0)
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

    /// The settled tables that are colder than those which rise, coldest first.
    fn yielding(
        &self,
        view: &View<'_>,
        rising: &Ascent<'_, '_>,
    ) -> impl Iterator<Item = FastTable<'a>> {
        let hotter = rising.temperature();
        let is_colder = move |t: &&WarmTable<'_>| t.temperature.is_some_and(|t| t < hotter);
        let colder = self.coldest(view).iter().take_while(is_colder);
        colder.map(|t| t.fast).filter(|t| {
            // What it goes together with comes along.
            !rising.overlaps(t.table) && self.levels.is_settled(*t)
        })
    }
}

/// The reason for which others go down: the sizes are to be theirs, so those of the table that comes up
/// are named as its own.
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

/// Of all keyspaces the one with the coldest table that yields to those which rise, and the block
/// reads of that table per byte.
fn coldest<'a, 'b>(
    view: &View<'_>,
    all: &'b [Rivals<'a>],
    rising: &Ascent<'_, '_>,
) -> Option<(&'b Rivals<'a>, f64)> {
    let mut best: Option<(&Rivals<'a>, f64)> = None;
    for rivals in all {
        let Some(first) = rivals.yielding(view, rising).next() else {
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
