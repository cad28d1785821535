//! Wins back what overwritten entries keep of a fast tier.
//!
//! When a key is updated, its older entry stays in a lower level until a merge brings the two
//! together. Where keys are read the most they are often written the most, so both lie on the
//! fast tier, one of them for nothing: what could lie in its place is read from a slower one.
//! The merges that keep levels in shape ([`super::leveled`]) do not look at that. They take what
//! costs least to merge, and first what overlaps nothing at all, so that of a level that is
//! not full what is written most comes last.
//!
//! How long to wait is the question of how much to order at once. The longer it is put off, the
//! fewer bytes are rewritten for each that is won back; but all the while what lies on the slower
//! tier instead is read there. The sum of both is least if the merge is done when what waiting
//! has cost the devices is what the merge will cost them:
//!
//! ```text
//! bytes won back / 2 x time since the last such merge
//!     x reads a second and byte at the divide x what a read takes longer on the next tier
//!  >= time to read and to write all inputs
//! ```
//!
//! Half of the bytes, as they have come one by one. The time since the last such merge is the age
//! of the lower tables, since each such merge makes new ones. All of it is in the `View`: nothing
//! is to be set.
//!
//! The divide is the hottest of the tables that lie on the next tier, but no more than the coldest
//! that belongs on this one: nobody gains from room that is left to what is not read.
//!
//! What is won back is at most what the upper tables hold: whether their keys are in the lower ones
//! too nobody knows before they are merged. If they are not, then all that this costs is that what
//! they overlap was rewritten early. It is no more than `level_ratio` times as much, which is what
//! merges between levels rewrite for each table too. While the oldest snapshot needs the older
//! entries beside the newer, nothing is won.
//!
//! While memtables are lent memory, as hardly anybody reads, and while so many newest runs wait
//! that their merge is urgent, nothing is done.

use std::ops::RangeInclusive;
use std::sync::Arc;

use thermocline_model::job::{Job, Merge, Reason};
use thermocline_model::table::TableMeta;
use thermocline_model::version::Keyspace;
use thermocline_model::view::View;

use crate::cost::{Devices, Transfers};
use crate::plan::between::{Pick, picks};
use crate::plan::leveled::{bytes_of, hull, in_the_way, merge_of};
use crate::plan::organisation::Organisation;
use crate::plan::parts::are_by_writes;
use crate::plan::targets::Targets;
use crate::pressure::merges_are_urgent;
use crate::{MIB, Planner};

/// Largest such merge, in tables of full size: newest runs wait for it. What overlaps more is left
/// to the merges that keep levels in shape.
const MERGE_TABLES_MAX: u64 = 16;

/// And so many tables of the upper level, however small they are.
const UPPER_TABLES_MAX: usize = 64;

/// Nothing counts as having waited for longer, in seconds: for most of that the store was perhaps
/// not open.
pub(super) const WAITED_SECONDS_MAX: f64 = 600.0;

/// See the module.
#[derive(Debug, Default)]
pub struct Overwritten;

impl Planner for Overwritten {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let is_lent = view.shape.is_lent();
        if view.tiers.len() < 2 || is_lent || merges_are_urgent(view) {
            return None;
        }
        let keyspaces = view.version.keyspaces.values();
        let levels = keyspaces
            .filter(|k| !are_by_writes(k))
            .flat_map(|keyspace| {
                let targets = Targets::of(keyspace, view.shape);
                (targets.base..targets.bottom()).map(move |level| (keyspace, level))
            });
        let pairs: Vec<_> = levels.filter_map(|(k, l)| Pair::of(view, k, l)).collect();
        if pairs.is_empty() {
            return None;
        }
        let worth = Worth::of(view);
        let found = pairs.iter().filter_map(|pair| pair.best(view, &worth));
        let (stretch, pair) = found.max_by(|a, b| a.0.times.total_cmp(&b.0.times))?;
        pair.merge(view, &worth, &stretch).map(Job::Merge)
    }
}

/// What a byte on each tier is worth.
struct Worth {
    devices: Devices,
    /// Blocks read in a second of a MiB that would come up to the tier if there were room;
    /// 0 where nothing would.
    divides: Vec<f64>,
    /// By how many seconds each of them takes longer on the tier that it comes from.
    slower_seconds: Vec<f64>,
}

impl Worth {
    fn of(view: &View<'_>) -> Worth {
        let organisation = Organisation::of(view);
        let devices = Devices::of(view);
        let next = |tier: usize| {
            let at = organisation.position(tier)?;
            organisation.chain.get(at + 1).copied()
        };
        let tiers = || 0..view.tiers.len();
        let divides = tiers().map(|tier| {
            // By descending temperature. What nobody knows may be read by nobody.
            let mut tables = organisation.tables.iter().filter(|t| t.is_known);
            let waiting = next(tier).and_then(|below| tables.find(|t| t.from == below));
            let boundary = organisation.boundary(tier);
            let divide = waiting.zip(boundary).map(|(t, b)| b.min(t.temperature));
            divide.unwrap_or(0.0)
        });
        let slower = |tier: usize| {
            let below = next(tier).unwrap_or(tier);
            ((devices.read_us(below) - devices.read_us(tier)) / 1e6).max(0.0)
        };
        Worth {
            divides: divides.collect(),
            slower_seconds: tiers().map(slower).collect(),
            devices,
        }
    }

    /// Seconds by which reads take longer in one second because `bytes` of `tier` are taken.
    fn taken(&self, tier: usize, bytes: f64) -> f64 {
        bytes / MIB * self.divides[tier] * self.slower_seconds[tier]
    }
}

/// Two levels, one above the other, and what of the upper one overlaps tables of the lower one
/// on its own tier alone.
struct Pair<'a> {
    keyspace: &'a Arc<Keyspace>,
    level: usize,
    upper: &'a [Arc<TableMeta>],
    lower: &'a [Arc<TableMeta>],
    /// By upper table: what it overlaps, and the tier; `None` for those that cannot be merged here.
    picks: Vec<Option<(Pick, usize)>>,
}

/// Tables of the upper level that are merged into the lower one.
struct Stretch {
    upper: RangeInclusive<usize>,
    bytes: u64,
    overlap_bytes: u64,
    /// How long they have waited, on average.
    waited_seconds: f64,
    /// What that has cost the devices, and what the merge will, in seconds of them.
    waiting_seconds: f64,
    merge_seconds: f64,
    /// The one as a multiple of the other.
    times: f64,
}

impl<'a> Pair<'a> {
    fn of(view: &View<'_>, keyspace: &'a Arc<Keyspace>, level: usize) -> Option<Pair<'a>> {
        let run_of = |level: usize| match keyspace.levels.get(level)?.runs.as_slice() {
            [run] => Some(run.tables.as_slice()),
            _ => None,
        };
        let (upper, lower) = (run_of(level)?, run_of(level + 1)?);
        let last = view.tiers.len() - 1;
        let picks = picks(view, upper, lower).into_iter().zip(upper);
        let picks = picks.map(|(pick, table)| {
            let tier = (table.tier().0 as usize).min(last);
            let overlaps = lower.get(pick.from..pick.to).unwrap_or_default();
            let is_here = overlaps.iter().all(|t| t.tier() == table.tier());
            // Some of both is needed, if a snapshot divides them.
            let held = view.oldest_snapshot;
            let divides = table.seq_max > held && overlaps.iter().any(|t| t.seq_min <= held);
            let is_free = pick.free && !divides;
            (is_free && tier < last && !overlaps.is_empty() && is_here).then_some((pick, tier))
        });
        let picks: Vec<_> = picks.collect();
        picks.iter().any(Option::is_some).then_some(Pair {
            keyspace,
            level,
            upper,
            lower,
            picks,
        })
    }

    /// The stretch for which waiting has cost the most for what the merge will cost, if it has
    /// cost as much.
    fn best(&self, view: &View<'_>, worth: &Worth) -> Option<(Stretch, &Pair<'a>)> {
        let starts = 0..self.upper.len();
        let stretches = starts.flat_map(|start| self.stretches_from(view, worth, start));
        let due = stretches.filter(|stretch| stretch.times >= 1.0);
        let best = due.max_by(|a, b| a.times.total_cmp(&b.times))?;
        Some((best, self))
    }

    fn stretches_from(&self, view: &View<'_>, worth: &Worth, start: usize) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        let Some((first, tier)) = &self.picks[start] else {
            return stretches;
        };
        let bytes_max = MERGE_TABLES_MAX * view.shape.table_bytes;
        let ratio = view.shape.level_ratio.max(1);
        let (mut bytes, mut overlap_bytes, mut won_bytes) = (0u64, 0, 0);
        let (mut waited, mut waiting_seconds) = (0.0, 0.0);
        let mut from = first.from;
        for (end, pick) in self
            .picks
            .iter()
            .enumerate()
            .skip(start)
            .take(UPPER_TABLES_MAX)
        {
            let Some((pick, _)) = pick.as_ref().filter(|(_, here)| here == tier) else {
                break;
            };
            // What lies between two upper tables and overlaps neither goes along.
            let added = self.lower.get(from..pick.to).unwrap_or_default();
            let is_free = |t: &Arc<TableMeta>| !view.busy.contains(&t.id);
            let is_here = |t: &Arc<TableMeta>| t.tier() == self.upper[end].tier();
            if !added.iter().all(|t| is_free(t) && is_here(t)) {
                break;
            }
            from = from.max(pick.to);
            bytes += pick.size_bytes;
            overlap_bytes += bytes_of(added);
            if bytes + overlap_bytes > bytes_max {
                break;
            }
            // Of a table that several overlap no more than it has.
            let won = pick.size_bytes.min(pick.overlap_bytes);
            let won = won.min(overlap_bytes - won_bytes);
            won_bytes += won;
            let seconds = self.waited_seconds(view, pick).min(WAITED_SECONDS_MAX);
            waited += seconds * pick.size_bytes as f64;
            waiting_seconds += worth.taken(*tier, won as f64 / 2.0) * seconds;
            if overlap_bytes / ratio > bytes {
                continue;
            }
            let inputs = bytes + overlap_bytes;
            let merge_seconds = Transfers::of_rewrite(*tier, inputs).seconds(&worth.devices, *tier);
            stretches.push(Stretch {
                upper: start..=end,
                bytes,
                overlap_bytes,
                waited_seconds: waited / bytes.max(1) as f64,
                waiting_seconds,
                merge_seconds,
                times: waiting_seconds / merge_seconds,
            });
        }
        stretches
    }

    /// How old the tables are that `pick` overlaps, by their bytes.
    fn waited_seconds(&self, view: &View<'_>, pick: &Pick) -> f64 {
        let overlaps = self.lower.get(pick.from..pick.to).unwrap_or_default();
        let aged = overlaps.iter().map(|table| {
            let age_us = view.now_us.saturating_sub(table.created_us);
            table.size_bytes() as f64 * age_us as f64
        });
        aged.sum::<f64>() / 1e6 / pick.overlap_bytes.max(1) as f64
    }

    fn merge(&self, view: &View<'_>, worth: &Worth, stretch: &Stretch) -> Option<Merge> {
        let (start, end) = (*stretch.upper.start(), *stretch.upper.end());
        let (first, tier) = self.picks[start].as_ref()?;
        let (last, _) = self.picks[end].as_ref()?;
        let to = self.level + 1;
        let below = self.lower.get(first.from..last.to).unwrap_or_default();
        let inputs: Vec<_> = self.upper[start..=end].iter().chain(below).collect();
        let range = hull(inputs.iter().copied())?;
        if in_the_way(view, self.keyspace, to, to, &range) {
            return None;
        }
        debug_assert_eq!(stretch.overlap_bytes, bytes_of(below));
        let reason = Reason::new("overwritten")
            .with("bytes", stretch.bytes as f64)
            .with("overlap_bytes", stretch.overlap_bytes as f64)
            .with("boundary_temperature", worth.divides[*tier])
            .with("waited_seconds", stretch.waited_seconds)
            .compared(
                ("waiting_device_seconds", stretch.waiting_seconds),
                ("merge_device_seconds", stretch.merge_seconds),
            );
        merge_of(view, self.keyspace, inputs, to, reason)
    }
}
