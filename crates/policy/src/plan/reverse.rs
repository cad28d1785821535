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
//! Several go up in one merge: those behind the hottest with which the conditions are met for all together, and whose own
//! reads have cost at least half of what merging them alone would. What they overlap of L1 is rewritten once, and merges
//! are few.
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

/// Block list, filter and trailers of a small table, at most.
const SMALL_PARTS_BYTES: u64 = 4 << 10;

/// How old a table must be, in microseconds, to be raised where room is short.
const REST_US: u64 = 10_000_000;

/// The hottest tables that are looked at, should the first be busy.
const CANDIDATES_MAX: usize = 8;

/// The hottest tables of which some go up together, at most.
const TOGETHER_MAX: usize = 16;

/// Of what merging a table alone would cost, the part that its reads must have cost, if it goes up with a hotter one.
const PAID_SHARE: f64 = 0.5;

/// Seconds that devices take for tables that go up together, at most: what must be merged meanwhile should not wait for
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
            let most = histogram::hottest(view, slow, TOGETHER_MAX);
            hottest.extend(most.into_iter().map(|bucket| (rivals, bucket)));
        }
        hottest.sort_by(|a, b| b.1.temperature().total_cmp(&a.1.temperature()));
        hottest.truncate(TOGETHER_MAX);
        let mut first = hottest.iter().take(CANDIDATES_MAX).enumerate();
        let (first, merge) = first.find_map(|(at, (rivals, hot))| {
            let alone = raising.up(rivals, &[*hot], 1.0);
            Some((at, alone.ok()?))
        })?;
        Some(Job::Merge(raising.together(&hottest[first..], merge)))
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
        self.up(rivals, &[hot], 1.0)
    }

    /// `merge`, or one in its place by which not only the first of `hottest` goes up, but more of them.
    fn together(&self, hottest: &[(&Rivals<'a>, LevelBucket<'a>)], mut merge: Merge) -> Merge {
        let [(rivals, hot), others @ ..] = hottest else {
            return merge;
        };
        let mut rising = vec![*hot];
        for (rivals_of_other, other) in others {
            let same_way =
                std::ptr::eq(*rivals, *rivals_of_other) && other.table.tier() == hot.table.tier();
            if !same_way || self.up(rivals, &[*other], PAID_SHARE).is_err() {
                continue;
            }
            rising.push(*other);
            let takes_s = Ascent::of(&rivals.levels, &rising, &self.devices).cost_s;
            let more = (takes_s <= TOGETHER_S).then(|| self.up(rivals, &rising, 1.0));
            match more {
                Some(Ok(more)) if more.output == merge.output => merge = more,
                _ => {
                    rising.pop();
                }
            }
        }
        merge
    }

    /// The merge by which `rising` go up, hottest first, or others down for them, if it pays: if reads have cost more than
    /// the part of what merging costs that is to be `paid`.
    fn up(
        &self,
        rivals: &Rivals<'a>,
        rising: &[LevelBucket<'_>],
        paid: f64,
    ) -> Result<Merge, Kept> {
        let (view, share, devices) = (self.view, &self.share, &self.devices[..]);
        let Some(hottest) = rising
            .first()
            .filter(|_| rising.iter().all(|hot| hot.heat.block_reads > 0))
        else {
            return Err(Kept::until("it is read"));
        };
        let levels = &rivals.levels;
        let rising = Ascent::of(levels, rising, devices);
        let (reads, cost) = (rising.block_reads(), rising.cost_s * paid);
        let here = rising.share_here(view);
        let spared = |reads: f64| reads_s(reads * here, SEEKS, rising.slow);
        let overlap_bytes = bytes_of(rising.below.iter().copied());
        let reason = |rule: &str, spared: f64| {
            Reason::new(rule)
                .with("temperature", hottest.temperature())
                .with("rising_tables", rising.tables.len() as f64)
                .with("block_reads", reads)
                .with("from_tier", f64::from(hottest.table.tier().0))
                .with("bytes", rising.bytes() as f64)
                .with("overlap_bytes", overlap_bytes as f64)
                .with("reads_cost_s", spared)
                .with("merge_cost_s", rising.cost_s)
        };
        let kept = |until| Kept::until(until).with(reason("", spared(reads)));
        if spared(reads) <= cost {
            return Err(kept("its reads here have cost more than that merge"));
        }
        let risen = rising.risen_bytes();
        let grown = (share.fast_bytes.saturating_add(share.coming_bytes)).saturating_add(risen);
        let written = overlap_bytes.saturating_add(risen);
        let needed = written.saturating_add(view.shape.flush_bytes);
        let on_fast = rising.below.iter().filter(|t| t.tier() == TierId(0));
        let replaced = bytes_of(on_fast.copied());
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
        if is_tight && view.now_us.saturating_sub(rising.created_us()) < REST_US {
            return Err(kept("it is older, as room is short"));
        }
        let rises = |reason: Reason| {
            let mut inputs: Vec<_> = rising.tables.iter().map(|hot| hot.table).collect();
            inputs.extend(&rising.below);
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
        if least.is_some_and(|least| least >= rising.temperature()) {
            return Err(kept(
                "it is read more often than the least read tenth of L1",
            ));
        }
        let coldest = coldest(view, &self.all, &rising);
        let wins = |rule: &str, equal: f64, down: f64| {
            let by_more_than_chance = reads - equal > DEVIATIONS * (reads + equal).sqrt();
            let gained = spared(reads - equal);
            let reason = reason(rule, gained)
                .with("displaced_block_reads", equal)
                .with("descent_cost_s", down);
            match by_more_than_chance {
                _ if gained <= cost + down * paid => Err(Kept::until(
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
            let equal = reads_per_byte * rising.bytes() as f64;
            // The room is for what is written: as much goes down again as comes up.
            let yielding = coldest.yielding(view, &rising);
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
        let yielding = coldest.yielding(view, &rising);
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
}

/// Tables of the last level that go up in one merge, hottest first, with what they overlap of L1's oldest run.
struct Ascent<'a, 'b> {
    tables: &'b [LevelBucket<'b>],
    below: Vec<&'a Arc<TableMeta>>,
    /// The device that they come from.
    slow: Device,
    /// Seconds that the merge takes: equation 10.
    cost_s: f64,
}

impl<'a, 'b> Ascent<'a, 'b> {
    /// Requires: `tables` are some, of one tier, and `devices` are not empty.
    fn of(
        levels: &FastLevels<'a>,
        tables: &'b [LevelBucket<'b>],
        devices: &[Device],
    ) -> Ascent<'a, 'b> {
        let oldest = levels.oldest_first_run();
        let mut below: Vec<&Arc<TableMeta>> = Vec::new();
        for hot in tables {
            let met = oldest.map_or(&[][..], |run| run.overlapping(&hot.table.range));
            let new = met.iter().filter(|t| below.iter().all(|b| b.id != t.id));
            let new: Vec<_> = new.collect();
            below.extend(new);
        }
        let from = tables.first().map_or(0, |hot| hot.table.tier().0 as usize);
        let slow = devices[from.min(devices.len() - 1)];
        let fast = (below.len(), bytes_of(below.iter().copied()));
        let bytes = bytes_of(tables.iter().map(|hot| hot.table));
        Ascent {
            cost_s: reverse_s(fast, (tables.len(), bytes), (devices[0], slow)),
            tables,
            below,
            slow,
        }
    }

    fn bytes(&self) -> u64 {
        bytes_of(self.tables.iter().map(|hot| hot.table))
    }

    /// What they may take on the fast tier.
    fn risen_bytes(&self) -> u64 {
        let risen = self.tables.iter().map(|hot| risen_bytes(hot.table));
        risen.fold(0, u64::saturating_add)
    }

    fn block_reads(&self) -> f64 {
        self.tables
            .iter()
            .map(|hot| hot.heat.block_reads as f64)
            .sum()
    }

    /// Of these, the share that was made where they lie.
    fn share_here(&self, view: &View<'_>) -> f64 {
        let here = |hot: &LevelBucket<'_>| hot.heat.block_reads as f64 * share_here(view, hot);
        self.tables.iter().map(here).sum::<f64>() / self.block_reads()
    }

    /// That of the coldest.
    fn temperature(&self) -> f64 {
        self.tables.last().map_or(0.0, LevelBucket::temperature)
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
        let is_colder =
            |t: &&WarmTable<'_>| t.temperature.is_some_and(|t| t < rising.temperature());
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

/// What `table` may take on the fast tier, where it may not be compressed. One that
/// turned out larger than there is room for would go down again, and up, without end.
fn risen_bytes(table: &TableMeta) -> u64 {
    let size = table.size_bytes();
    if size >= table.raw_bytes {
        return size;
    }
    let raw = table.raw_bytes;
    raw.saturating_add(raw / 4)
        .saturating_add(SMALL_PARTS_BYTES)
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
