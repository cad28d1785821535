//! Histograms of accesses: a bucket a table (LogStore, section V).
//!
//! Two things. [`Histograms`] keeps the buckets of all tables between one look and
//! the next. A [`Histogram`] is the picture of one level: its buckets sorted by
//! smallest key, and in the order of their heat, so that a key's bucket, the
//! coldest and the hottest are found at once.
//!
//! A bucket counts what its table's readers did: lookups, those that found nothing
//! (and of these, those that a filter answered), scans, and blocks read from the
//! device. The counters that readers add to are atomic ones of the table itself;
//! what they gained goes into the bucket whenever a job is planned. A merge's
//! outputs take over the counts of its inputs by key interval, whichever way it
//! goes, so that no history is lost.
//!
//! Where this departs from the paper: counts fade, by the cooling coefficient each
//! epoch, so that a hot set that has moved is forgotten; the paper's only grow. And where
//! a table's share of all block reads is another than before, by a factor of two and by more
//! than chance (`shift.rs`), their count is made what it would be if it had always had the
//! share that it has since then; but not with [`HeatOptions::cooling_from_start`].
//! Levels whose tables overlap have buckets that overlap.
//!
//! *Temperature* here is the faded count of block reads, per MiB and by the seconds
//! that it stands for: a rate that does not depend on a table's size and age.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::version::Version;
use thermocline_model::view::{TableHeat, View};

use super::HeatOptions;
use super::heirs::{self, Kin, size_mib};
use super::known::Known;
use super::shards::{Shards, lock};
use super::shift::{Expected, Shift, Since};
use super::steady::Steady;
use crate::{Access, HeatMap, HeatTracker};

/// Epochs that pass at once, at most: a clock that leaps makes nothing cold.
const LEAP_EPOCHS_MAX: u64 = 60;

/// Epochs that a count stands for where counts do not fade.
const EPOCHS_UNFADED: f64 = 1000.0;

/// Lookups, hits, filter answers, block reads, scans.
type Counts = [f64; 5];

const BLOCK_READS: usize = 3;

fn counts_of(heat: &TableHeat) -> Counts {
    [
        heat.probes,
        heat.hits,
        heat.rejects,
        heat.block_reads,
        heat.scans,
    ]
    .map(|n| n as f64)
}

/// The buckets of all tables; see the module.
#[derive(Debug)]
pub struct Histograms {
    options: HeatOptions,
    counted: Shards,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    buckets: Known<Bucket>,
    /// Temperatures of before the restart, for tables not seen since.
    restored: BTreeMap<TableId, f64>,
    /// By this, and not by the machine's, are all times here.
    clock: Steady,
    /// When the present epoch began; `None` before the first sample.
    epoch_us: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    size_mib: f64,
    counts: Counts,
    /// The counts in whole numbers: most stay what they were from one look to the next.
    whole: [u64; 5],
    /// Since when it counts, in microseconds.
    since_us: u64,
    /// Of the block reads counted, those of the present epoch.
    recent: f64,
    shift: Shift,
}

impl Bucket {
    fn change(&mut self, of: impl Fn(f64, usize) -> f64) {
        for (at, (count, whole)) in self.counts.iter_mut().zip(&mut self.whole).enumerate() {
            *count = of(*count, at);
            *whole = count.round() as u64;
        }
    }
}

impl Histograms {
    /// Nothing known yet.
    #[must_use]
    pub fn new(options: HeatOptions) -> Histograms {
        Histograms {
            options,
            counted: Shards::default(),
            state: Mutex::default(),
        }
    }

    /// Takes what readers have added into the buckets.
    fn fetch(&self, state: &mut State) {
        for (table, heat) in self.counted.drain() {
            if let Some(bucket) = state.buckets.get_mut(table) {
                let gained = counts_of(&heat);
                bucket.change(|count, at| count + gained[at]);
                bucket.recent += gained[BLOCK_READS];
            }
        }
    }

    /// Lets counts fade by the epochs that have passed.
    fn fade(&self, state: &mut State, now_us: u64) {
        let epoch_us = self.options.epoch_us.max(1);
        let begun_us = state.epoch_us.unwrap_or(now_us);
        let epochs = now_us.saturating_sub(begun_us) / epoch_us;
        state.epoch_us = Some(begun_us + epochs * epoch_us);
        if epochs > 0 && !self.options.cooling_from_start {
            self.follow_shifts(state, now_us, epochs);
        }
        if epochs > 0 {
            let kept = self.options.cooling_coefficient.powf(epochs as f64);
            for bucket in state.buckets.values_mut() {
                bucket.change(|count, _| count * kept);
            }
        }
    }

    /// Judges the block reads of the epochs that have passed by those of before. A count that
    /// changes stands for as long as it did, so that it can be compared with others.
    fn follow_shifts(&self, state: &mut State, now_us: u64, epochs: u64) {
        let passed_us = epochs.saturating_mul(self.options.epoch_us.max(1));
        let mut window_s = self.windows();
        let mut rate = |bucket: &Bucket| {
            let age_us = now_us.saturating_sub(bucket.since_us);
            let before = bucket.counts[BLOCK_READS] - bucket.recent;
            before.max(0.0) / window_s(age_us.saturating_sub(passed_us))
        };
        let rates: Vec<f64> = state.buckets.values_mut().map(|b| rate(b)).collect();
        let rate_of_all: f64 = rates.iter().sum();
        let mut now = Since {
            seen: 0.0,
            all: state.buckets.values_mut().map(|b| b.recent).sum(),
            epochs: epochs as f64,
        };
        let says_something = rate_of_all > 0.0 && now.all > 0.0;
        for (bucket, rate) in state.buckets.values_mut().zip(rates) {
            now.seen = std::mem::take(&mut bucket.recent);
            let age_us = now_us.saturating_sub(bucket.since_us);
            if !says_something || age_us <= passed_us {
                continue;
            }
            let expected = Expected {
                by_share: rate / rate_of_all * now.all,
                by_rate: rate * passed_us as f64 / 1e6,
            };
            let Some(since) = bucket.shift.observe(expected, &now) else {
                continue;
            };
            let reads = since.seen / since.all * rate_of_all * self.window_s(age_us);
            bucket.change(|count, at| if at == BLOCK_READS { reads } else { count });
        }
    }

    /// Seconds that the count of a bucket of this age stands for.
    fn window_s(&self, age_us: u64) -> f64 {
        let epoch_s = self.options.epoch_us.max(1) as f64 / 1e6;
        let age_s = age_us as f64 / 1e6;
        let forgotten = 1.0 - self.options.cooling_coefficient;
        if forgotten <= 0.0 {
            return age_s.max(epoch_s);
        }
        let whole_s = epoch_s / forgotten;
        (whole_s * (1.0 - (-age_s / whole_s).exp())).max(epoch_s)
    }

    /// An age at which [`Histograms::window_s`] is nearly whole.
    fn full_age_us(&self) -> u64 {
        let forgotten = 1.0 - self.options.cooling_coefficient;
        let epochs = match forgotten > 0.0 {
            true => (10.0 / forgotten).min(EPOCHS_UNFADED * EPOCHS_UNFADED),
            false => EPOCHS_UNFADED,
        };
        (epochs * self.options.epoch_us.max(1) as f64) as u64
    }

    /// Tells what counts stand for one after another. Many tables are as old as the one before,
    /// and their counts stand for as long.
    fn windows(&self) -> impl FnMut(u64) -> f64 {
        let mut last = (0, self.window_s(0));
        move |age_us| {
            if last.0 != age_us {
                last = (age_us, self.window_s(age_us));
            }
            last.1
        }
    }

    /// Tells temperatures one after another.
    fn temperatures(&self, now_us: u64) -> impl FnMut(&Bucket) -> Option<f64> {
        let mut window_s = self.windows();
        move |bucket| {
            let age_us = now_us.saturating_sub(bucket.since_us);
            let is_known = age_us >= self.options.epoch_us;
            is_known.then(|| bucket.counts[BLOCK_READS] / bucket.size_mib / window_s(age_us))
        }
    }

    fn bucket(&self, table: &TableMeta, restored: Option<f64>, now_us: u64) -> Bucket {
        let mut bucket = Bucket {
            size_mib: size_mib(table),
            counts: Counts::default(),
            whole: [0; 5],
            since_us: now_us,
            recent: 0.0,
            shift: Shift::default(),
        };
        if let Some(temperature) = restored {
            let age_us = self.full_age_us();
            bucket.since_us = now_us.saturating_sub(age_us);
            let reads = temperature * bucket.size_mib * self.window_s(now_us - bucket.since_us);
            bucket.change(|count, at| if at == BLOCK_READS { reads } else { count });
        }
        bucket
    }
}

impl HeatTracker for Histograms {
    fn touch(&self, access: &Access<'_>) {
        self.counted.touch(access.table, &access.delta);
    }

    /// What a parent counted is shared out among the children in its key range: by
    /// their bytes there, and if it is wide by how hot it is there.
    fn inherit(
        &self,
        parents: &[Arc<TableMeta>],
        children: &[Arc<TableMeta>],
        below: &[Arc<TableMeta>],
    ) {
        let mut state = lock(&self.state);
        self.fetch(&mut state);
        let born = |child: &TableMeta, before: Bucket| Bucket {
            size_mib: size_mib(child),
            counts: Counts::default(),
            whole: [0; 5],
            since_us: before.since_us,
            recent: 0.0,
            shift: Shift::default(),
        };
        heirs::inherit(
            &mut state.buckets,
            Kin {
                parents,
                children,
                below,
            },
            |bucket| bucket.counts[BLOCK_READS],
            born,
            |heir, before, share| {
                heir.since_us = heir.since_us.min(before.since_us);
                heir.change(|count, at| count + before.counts[at] * share.of_parent);
                heir.recent += before.recent * share.of_parent;
                heir.shift.succeed(&before.shift);
            },
        );
    }

    /// Buckets are of tables, and know nothing of keys.
    fn is_hot(&self, _key: &[u8]) -> bool {
        false
    }

    fn sample(&self, version: &Version, now_us: u64) -> HeatMap {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let leap_us = LEAP_EPOCHS_MAX.saturating_mul(self.options.epoch_us.max(1));
        let now_us = state.clock.show(now_us, leap_us);
        let restored = std::mem::take(&mut state.restored);
        state.buckets.follow(version, |table| {
            self.bucket(table, restored.get(&table.id).copied(), now_us)
        });
        // What was counted before the epoch ended fades with it.
        self.fetch(state);
        self.fade(state, now_us);
        let mut temperature = self.temperatures(now_us);
        let mut window_s = self.windows();
        let age_us = |bucket: &Bucket| now_us.saturating_sub(bucket.since_us);
        let heat = state.buckets.iter().map(|(table, bucket)| {
            let [probes, hits, rejects, block_reads, scans] = bucket.whole;
            let heat = TableHeat {
                probes,
                hits,
                rejects,
                block_reads,
                scans,
                temperature: temperature(bucket),
                temperature_of_one: 1.0 / (bucket.size_mib * window_s(age_us(bucket))),
            };
            (*table, heat)
        });
        heat.collect()
    }

    fn memory_bytes(&self) -> u64 {
        let state = lock(&self.state);
        let restored = state.restored.len() * size_of::<(TableId, f64)>();
        state.buckets.memory_bytes() + restored as u64 + self.counted.memory_bytes()
    }

    fn save(&self) -> Vec<(TableId, f64)> {
        let state = lock(&self.state);
        // Nobody may have asked for them since the restart.
        let restored = state.restored.iter().map(|(&t, &value)| (t, value));
        let mut saved: BTreeMap<_, _> = restored.collect();
        let mut temperature = self.temperatures(state.epoch_us.unwrap_or(0));
        for (table, bucket) in state.buckets.iter() {
            if let Some(temperature) = temperature(bucket) {
                saved.insert(*table, temperature);
            }
        }
        saved.into_iter().collect()
    }

    fn restore(&self, temperatures: &[(TableId, f64)]) {
        let sound = temperatures
            .iter()
            .filter(|(_, t)| t.is_finite() && *t >= 0.0);
        lock(&self.state).restored = sound.copied().collect();
    }
}

/// A bucket of a level's histogram.
#[derive(Clone, Copy, Debug)]
pub struct LevelBucket<'a> {
    /// The table.
    pub table: &'a Arc<TableMeta>,
    /// What was counted.
    pub heat: TableHeat,
}

impl LevelBucket<'_> {
    /// Block reads per second and MiB; 0 of a table too young to tell.
    #[must_use]
    pub fn temperature(&self) -> f64 {
        self.heat.temperature.unwrap_or(0.0)
    }

    /// Whether too little is known of it.
    #[must_use]
    pub fn is_young(&self) -> bool {
        self.heat.temperature.is_none()
    }

    fn by_heat(&self, other: &LevelBucket<'_>) -> Ordering {
        let of = |bucket: &LevelBucket<'_>| bucket.heat.temperature;
        by_heat((of(self), self.table), (of(other), other.table))
    }
}

/// The order of tables by temperature: coldest first, what is young last; of equals
/// what is older.
#[must_use]
pub fn by_heat(one: (Option<f64>, &TableMeta), other: (Option<f64>, &TableMeta)) -> Ordering {
    let warm = match (one.0, other.0) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        (one, other) => one.is_none().cmp(&other.is_none()),
    };
    warm.then_with(|| one.1.seq_max.cmp(&other.1.seq_max))
        .then_with(|| one.1.id.cmp(&other.1.id))
}

/// The `most` hottest of `tables`, hottest first, what is young left out. The others
/// are not put in order.
#[must_use]
pub fn hottest<'a>(
    view: &View<'_>,
    tables: impl Iterator<Item = &'a Arc<TableMeta>>,
    most: usize,
) -> Vec<LevelBucket<'a>> {
    let heat = |table: &TableMeta| view.heat.get(&table.id);
    let mut known = Vec::with_capacity(view.heat.len());
    known.extend(tables.filter_map(|t| Some((heat(t)?.temperature?, t))));
    let bucket = |(_, table): (f64, &'a Arc<TableMeta>)| {
        let heat = heat(table).copied().unwrap_or_default();
        LevelBucket { table, heat }
    };
    let hottest = hottest_of(known, most).into_iter();
    hottest.map(bucket).collect()
}

/// The same of tables whose temperatures are at hand.
pub(crate) fn hottest_of<'a>(
    mut known: Vec<(f64, &'a Arc<TableMeta>)>,
    most: usize,
) -> Vec<(f64, &'a Arc<TableMeta>)> {
    let order = |one: &(f64, &'a Arc<TableMeta>), other: &(f64, &'a Arc<TableMeta>)| {
        by_heat((Some(other.0), other.1), (Some(one.0), one.1))
    };
    if most < known.len() {
        known.select_nth_unstable_by(most, order);
        known.truncate(most);
    }
    known.sort_unstable_by(order);
    known
}

/// The histogram of a level; see the module.
#[derive(Clone, Debug)]
pub struct Histogram<'a> {
    /// By smallest key.
    buckets: Vec<LevelBucket<'a>>,
    /// Positions in `buckets`, coldest first; what is young comes last.
    by_heat: Vec<usize>,
}

impl<'a> Histogram<'a> {
    /// Of these tables.
    #[must_use]
    pub fn of(view: &View<'_>, tables: impl IntoIterator<Item = &'a Arc<TableMeta>>) -> Self {
        let heat = |table: &TableMeta| view.heat.get(&table.id).copied().unwrap_or_default();
        let buckets = tables.into_iter().map(|table| LevelBucket {
            table,
            heat: heat(table),
        });
        let mut buckets: Vec<_> = buckets.collect();
        buckets.sort_by(|a, b| a.table.range.start.cmp(&b.table.range.start));
        let mut by_heat: Vec<usize> = (0..buckets.len()).collect();
        by_heat.sort_by(|&a, &b| buckets[a].by_heat(&buckets[b]));
        Histogram { buckets, by_heat }
    }

    /// The buckets by smallest key.
    #[must_use]
    pub fn buckets(&self) -> &[LevelBucket<'a>] {
        &self.buckets
    }

    /// Coldest first.
    pub fn coldest(&self) -> impl Iterator<Item = &LevelBucket<'a>> {
        self.by_heat.iter().map(|&at| &self.buckets[at])
    }

    /// The bucket that a read of `key` counts in, in a level without overlaps.
    #[must_use]
    pub fn bucket_of(&self, key: &[u8]) -> Option<&LevelBucket<'a>> {
        let behind = self
            .buckets
            .partition_point(|b| &*b.table.range.start <= key);
        let bucket = self.buckets.get(behind.checked_sub(1)?)?;
        bucket.table.range.contains(key).then_some(bucket)
    }

    /// The hottest of the least accessed `share` of all buckets, at least one.
    #[must_use]
    pub fn least(&self, share: f64) -> Option<&LevelBucket<'a>> {
        let count = (self.buckets.len() as f64 * share).ceil().max(1.0) as usize;
        let at = self.by_heat.get(count - 1)?;
        Some(&self.buckets[*at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;
    use thermocline_model::picture;

    const SECOND: u64 = 1_000_000;
    const START: u64 = 1 << 40;

    fn tracker(cooling_coefficient: f64) -> Histograms {
        Histograms::new(HeatOptions {
            epoch_us: SECOND,
            cooling_coefficient,
            ..HeatOptions::default()
        })
    }

    fn read(tracker: &Histograms, table: u64, hits: u64, failed: u64) {
        tracker.touch(&Access {
            key: b"",
            table: TableId(table),
            delta: TableHeat {
                probes: hits + failed,
                hits,
                block_reads: hits + failed,
                ..TableHeat::default()
            },
        });
    }

    fn tables(version: &Version) -> Vec<Arc<TableMeta>> {
        version.tables().cloned().collect()
    }

    /// "When an SST is added or removed from a level through compaction [...] adjusts
    /// the counts to reflect the change"; failed lookups are counted as well.
    #[test]
    fn counts_go_with_the_keys_whichever_way_they_are_merged() {
        let tracker = tracker(1.0);
        let before = picture::parse(
            "L1: #1[a..m]{size=1048575} | L7: #2[a..f]{size=1048575} #3[g..m]{size=1048575}",
        )
        .unwrap();
        tracker.sample(&before, START);
        read(&tracker, 1, 10, 2);
        read(&tracker, 2, 100, 0);
        tracker.sample(&before, START);
        // Up: all of it into L1.
        let after = picture::parse("L1: #4[a..f]{size=1048575} #5[g..m]{size=1048575}").unwrap();
        tracker.inherit(&tables(&before), &tables(&after), &[]);
        let heat = tracker.sample(&after, START + SECOND);
        let of = |t: u64| heat[&TableId(t)];
        assert_eq!(
            (of(4).probes, of(4).hits, of(4).block_reads),
            (106, 105, 106)
        );
        assert_eq!((of(5).probes, of(5).hits, of(5).block_reads), (6, 5, 6));
    }

    #[test]
    fn counts_fade_with_the_epochs_and_a_leap_of_the_clock_makes_nothing_cold() {
        let tracker = tracker(0.5);
        let version = picture::parse("L7: #1[a..f]{size=1048575}").unwrap();
        tracker.sample(&version, START);
        read(&tracker, 1, 64, 0);
        let reads = |at: u64| tracker.sample(&version, at)[&TableId(1)].block_reads;
        assert_eq!(reads(START), 64);
        assert_eq!(reads(START + SECOND), 32);
        assert_eq!(reads(START + 3 * SECOND), 8);
        assert_eq!(reads(START), 8, "nor does a clock set back");
        let tracker = self::tracker(0.999);
        tracker.sample(&version, START);
        read(&tracker, 1, 1000, 0);
        tracker.sample(&version, START);
        let ahead = tracker.sample(&version, START + 100 * 365 * 86_400 * SECOND);
        assert!(ahead[&TableId(1)].block_reads > 900);
    }

    /// Counts are judged by the seconds that they stand for, and those were told by the machine's
    /// clock: set back, it made what had been counted longest a hundred times hotter than what is
    /// read as often, and a leap what is young as much colder.
    #[test]
    fn a_clock_that_is_set_makes_no_table_hotter_than_another_that_is_read_as_often() {
        const YEAR: u64 = 365 * 86_400 * SECOND;
        for set_to in [START - START / 2, START + 1000 * SECOND, START + YEAR] {
            let tracker = tracker(0.999);
            let one = picture::parse("L7: #1[a..f]{size=1048575}").unwrap();
            let both = picture::parse("L7: #1[a..f]{size=1048575} #2[g..z]{size=1048575}").unwrap();
            for second in 0..1000 {
                tracker.sample(&one, START + second * SECOND);
                read(&tracker, 1, 20, 0);
            }
            for second in 1000..1010 {
                tracker.sample(&both, START + second * SECOND);
                read(&tracker, 1, 20, 0);
                read(&tracker, 2, 20, 0);
            }
            for second in 0..5 {
                let heat = tracker.sample(&both, set_to + second * SECOND);
                let temperatures = [1, 2].map(|t| heat[&TableId(t)].temperature.unwrap());
                let ratio = temperatures[0] / temperatures[1];
                assert!((0.1..10.0).contains(&ratio), "{temperatures:?}");
                read(&tracker, 1, 20, 0);
                read(&tracker, 2, 20, 0);
            }
        }
    }

    #[test]
    fn counts_of_a_hot_set_that_has_moved_follow_it_unless_they_fade_alone() {
        let version = picture::parse("L7: #1[a..f]{size=1048575} #2[g..z]{size=1048575}").unwrap();
        for cooling_from_start in [false, true] {
            let tracker = Histograms::new(HeatOptions {
                cooling_from_start,
                ..HeatOptions::default()
            });
            let mut heat = tracker.sample(&version, START);
            for second in 1..=1010 {
                let (hot, cold) = if second <= 1000 { (1, 2) } else { (2, 1) };
                read(&tracker, hot, 90, 10);
                read(&tracker, cold, 1, 0);
                heat = tracker.sample(&version, START + second * SECOND);
            }
            let [was, is] = [1, 2].map(|table| heat[&TableId(table)]);
            let hot = |heat: &TableHeat| heat.block_reads > 30_000;
            let cold = |heat: &TableHeat| heat.block_reads < 5_000;
            match cooling_from_start {
                false => assert!(cold(&was) && hot(&is), "{was:?}, {is:?}"),
                true => assert!(hot(&was) && cold(&is), "{was:?}, {is:?}"),
            }
        }
    }

    #[test]
    fn temperature_is_a_rate_whatever_age_and_size() {
        let tracker = tracker(0.9);
        let version = picture::parse("L7: #1[a..f]{size=1048575} #2[g..z]{size=4194303}").unwrap();
        let mut temperatures = [None; 2];
        for second in 0..200 {
            let heat = tracker.sample(&version, START + second * SECOND);
            temperatures = [1, 2].map(|t| heat[&TableId(t)].temperature);
            if second == 0 {
                assert_eq!(temperatures, [None; 2], "young");
            }
            read(&tracker, 1, 20, 0);
            read(&tracker, 2, 80, 0);
        }
        for temperature in temperatures {
            let rate = temperature.unwrap();
            assert!((17.0..=20.0).contains(&rate), "{rate} of 20 reads/s/MiB");
        }
        // They survive a restart, and unsound ones do not.
        let mut saved = tracker.save();
        saved.push((TableId(9), f64::NAN));
        let next = self::tracker(0.9);
        next.restore(&saved);
        let heat = next.sample(&version, START);
        for (table, before) in [(1, temperatures[0]), (2, temperatures[1])] {
            let after = heat[&TableId(table)].temperature.unwrap();
            assert!((after - before.unwrap()).abs() < 0.2, "{after} {before:?}");
        }
        assert_eq!(next.save().len(), 2);
    }
}
