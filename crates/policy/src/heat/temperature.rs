//! Temperature: how often a table is read for its size, smoothed (Mutant, section
//! 3.1.3, equation 4).
//!
//! Every epoch the accesses counted since the last one are fetched and reset. A
//! table's first temperature is what its first whole epoch shows, since tables
//! start out hot and a start at 0 would deny it; from then on it keeps a share
//! (the cooling coefficient) of its temperature and takes the rest from the
//! epoch's accesses.
//!
//! With the paper's coefficient the first second's accesses would still be two fifths of a
//! temperature a quarter of an hour later, and on a device of sixty reads a second they are
//! chance. So what is kept is at first all, which makes the temperature the mean of all
//! epochs, until these are as many as the coefficient remembers.
//!
//! Tables are known from different times, and a store is read more at some times than at
//! others. So what is kept of a table is the share that it had of all accesses while they
//! were counted, and its temperature is that share of the rate of all. Where all tables
//! are known from the same time that is the mean of their accesses.
//!
//! When a table's share is another than before, by a factor of two and by more than chance
//! (`shift.rs`), what was known of it is forgotten but for one read, and it is known from
//! when that began: a hot set that has moved is found in seconds, and not when the coefficient
//! has forgotten the old one. Where nothing at all is read nothing is forgotten.
//!
//! [`HeatOptions::cooling_from_start`] is the equation alone: rates, cooled by the
//! coefficient from the first epoch on, whatever happens.
//!
//! An *access* is a block read from the device for somebody who reads. What a
//! filter, the block cache or the memtables answer costs no device anything,
//! wherever the table lies. Rates are per second and MiB, so that the length of
//! an epoch does not change their scale.
//!
//! Beyond the paper: the outputs of a merge inherit what their inputs had, by key
//! interval; and temperatures can be saved and restored. Epochs that nobody
//! looked at are made up for at once, each with the mean of what was counted; but
//! no more than [`LEAP_EPOCHS_MAX`], so that a clock that leaps ahead, or a machine
//! that slept, does not make everything cold. A clock set back begins the epoch
//! anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::version::Version;
use thermocline_model::view::TableHeat;

use super::HeatOptions;
use super::heirs::{self, Kin, size_mib};
use super::known::Known;
use super::shards::{Shards, lock};
use super::shift::{Expected, Shift, Since};
use crate::{Access, HeatMap, HeatTracker};

/// Epochs that a table cools by at once, at most.
pub const LEAP_EPOCHS_MAX: u64 = 60;

/// Epochs that a temperature of before a restart is known from, at most: how many they were is
/// not saved.
const RESTORED_EPOCHS_MAX: f64 = 1000.0;

/// A temperature beyond this is none: no device serves as many reads.
const TEMPERATURE_MAX: f64 = 1e15;

/// See the module.
#[derive(Debug)]
pub struct Temperature {
    options: HeatOptions,
    counted: Shards,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tables: Known<Warmth>,
    /// Temperatures of before the restart, for tables not seen since.
    restored: BTreeMap<TableId, f64>,
    /// When the present epoch began; `None` before the first sample.
    epoch_us: Option<u64>,
    /// Accesses of all tables, ever.
    counted: f64,
    /// Of these, those that have gone into `all`.
    reckoned: f64,
    all: All,
}

/// All accesses, and the epochs in which there were any, both cooled.
#[derive(Clone, Copy, Debug, Default)]
struct All {
    reads: f64,
    epochs: f64,
}

impl All {
    fn per_epoch(&self) -> f64 {
        match self.epochs > 0.0 {
            true => self.reads / self.epochs,
            false => 0.0,
        }
    }
}

/// What is known of a table. With [`HeatOptions::cooling_from_start`] it is its rate alone:
/// `reads` are those of an epoch, and `all` is 1.
#[derive(Clone, Copy, Debug)]
struct Warmth {
    size_mib: f64,
    /// Whether a whole epoch has been counted.
    is_known: bool,
    /// Accesses, cooled.
    reads: f64,
    /// Accesses of all tables in the same time, cooled as these.
    all: f64,
    /// Epochs, cooled as these.
    epochs: f64,
    shift: Shift,
    /// Accesses that have not gone into it.
    pending: f64,
    /// Since when `pending` counts.
    since_us: u64,
    /// The accesses of all tables, ever, at that time.
    counted_before: f64,
}

impl Warmth {
    fn share(&self) -> f64 {
        match self.all > 0.0 {
            true => self.reads / self.all,
            false => 0.0,
        }
    }

    /// Adds a share of the accesses, of other keys, known from so many of all, and from so
    /// many epochs. Numbers that come by chance vary by as much as they are (Poisson's law),
    /// shares by that over those of all, and sums by the sum of that: what is known least
    /// decides.
    fn add(&mut self, share: f64, all: f64, epochs: f64) {
        let before = self.share();
        let known_from = |its: f64, other: f64| {
            let varies = before / its + share / other;
            match varies > 0.0 {
                true => (before + share) / varies,
                false => its.min(other),
            }
        };
        (self.all, self.epochs) = match self.all > 0.0 {
            true => (known_from(self.all, all), known_from(self.epochs, epochs)),
            false => (all, epochs),
        };
        self.reads = (before + share) * self.all;
    }
}

impl HeatOptions {
    /// Epochs that the coefficient remembers.
    fn remembered(&self) -> f64 {
        1.0 / (1.0 - self.cooling_coefficient)
    }

    fn restored_epochs(&self) -> f64 {
        self.remembered().min(RESTORED_EPOCHS_MAX)
    }

    /// What is kept of sums over so many epochs after so many more, and how much the sums
    /// of these count.
    fn kept_and_taken(&self, before: f64, epochs: f64) -> (f64, f64) {
        if before + epochs <= self.remembered() {
            return (1.0, 1.0);
        }
        let kept = self.cooling_coefficient.powf(epochs);
        (kept, (1.0 - kept) * self.remembered() / epochs)
    }
}

impl Temperature {
    /// Nothing known yet.
    #[must_use]
    pub fn new(options: HeatOptions) -> Temperature {
        Temperature {
            options,
            counted: Shards::default(),
            state: Mutex::default(),
        }
    }

    /// Fetches and resets the counts.
    fn fetch(&self, state: &mut State) {
        for (table, heat) in self.counted.drain() {
            if let Some(warmth) = state.tables.get_mut(table) {
                warmth.pending += heat.block_reads as f64;
                state.counted += heat.block_reads as f64;
            }
        }
    }

    /// The epochs that have passed go into the temperatures.
    fn reckon(&self, state: &mut State, now_us: u64) {
        let epoch_us = self.options.epoch_us.max(1);
        let begun_us = state
            .epoch_us
            .map_or(now_us, |begun_us| begun_us.min(now_us));
        let epochs = (now_us - begun_us) / epoch_us;
        let ended_us = begun_us + epochs * epoch_us;
        state.epoch_us = Some(ended_us);
        self.fetch(state);
        if epochs == 0 {
            for warmth in state.tables.values_mut() {
                warmth.since_us = warmth.since_us.min(now_us);
            }
            return;
        }
        let whole = epochs.min(LEAP_EPOCHS_MAX) as f64;
        let counted = (state.counted - state.reckoned) * whole / epochs as f64;
        state.reckoned = state.counted;
        let per_epoch = state.all.per_epoch();
        if counted > 0.0 {
            let (kept, taken) = self.options.kept_and_taken(state.all.epochs, whole);
            state.all.reads = state.all.reads * kept + counted * taken;
            state.all.epochs = state.all.epochs * kept + whole * taken;
        }
        for warmth in state.tables.values_mut() {
            warmth.since_us = warmth.since_us.min(ended_us);
            let counted_us = ended_us - warmth.since_us;
            if counted_us < epoch_us {
                continue;
            }
            let epochs = (counted_us / epoch_us).min(LEAP_EPOCHS_MAX) as f64;
            let of_counted = epochs * epoch_us as f64 / counted_us as f64;
            let now = Since {
                seen: warmth.pending * of_counted,
                all: (state.counted - warmth.counted_before) * of_counted,
                epochs,
            };
            match self.options.cooling_from_start {
                true => self.cool(warmth, &now),
                false => self.share(warmth, per_epoch, &now),
            }
            warmth.is_known = true;
            warmth.pending = 0.0;
            warmth.since_us = ended_us;
            warmth.counted_before = state.counted;
        }
    }

    /// Equation 4, of the rate.
    fn cool(&self, warmth: &mut Warmth, now: &Since) {
        let kept = match warmth.is_known {
            true => self.options.cooling_coefficient.powf(now.epochs),
            false => 0.0,
        };
        warmth.reads = kept * warmth.reads + (1.0 - kept) * now.seen / now.epochs;
        warmth.all = 1.0;
        // As many as would make as good a mean: the inverse of the sum of squared weights.
        let before = match warmth.epochs > 0.0 {
            true => kept * kept / warmth.epochs,
            false => 0.0,
        };
        let new = (1.0 - kept) * (1.0 - kept) / now.epochs;
        warmth.epochs = 1.0 / (before + new).max(f64::MIN_POSITIVE);
    }

    /// Where nothing was read the shares are what they were. `per_epoch` are all accesses, as
    /// they were before.
    fn share(&self, warmth: &mut Warmth, per_epoch: f64, now: &Since) {
        if now.all <= 0.0 {
            return;
        }
        let share = warmth.share();
        let expected = Expected {
            by_share: share * now.all,
            by_rate: share * per_epoch * now.epochs,
        };
        if warmth.all <= 0.0 {
            // In a quiet second one read is all reads. It counts as no more than it would beside
            // as many as there usually are.
            warmth.reads = now.seen;
            warmth.all = now.all.max(per_epoch * now.epochs);
            warmth.epochs = now.epochs;
            return;
        }
        if let Some(since) = warmth.shift.observe(expected, now) {
            // What was known counts as one read of all, so that none is as cold as another.
            warmth.reads = since.seen + share;
            warmth.all = since.all + 1.0;
            warmth.epochs = since.epochs;
            return;
        }
        let (kept, taken) = self.options.kept_and_taken(warmth.epochs, now.epochs);
        warmth.reads = warmth.reads * kept + now.seen * taken;
        warmth.all = warmth.all * kept + now.all * taken;
        warmth.epochs = warmth.epochs * kept + now.epochs * taken;
    }
}

impl Temperature {
    /// The rate of all accesses before a restart, by the temperatures that the tables had.
    fn all_of_restored(&self, version: &Version, restored: &BTreeMap<TableId, f64>) -> All {
        let epoch_s = self.options.epoch_us.max(1) as f64 / 1e6;
        let rate = |table: &Arc<TableMeta>| Some(restored.get(&table.id)? * size_mib(table));
        let per_epoch = version.tables().filter_map(rate).sum::<f64>() * epoch_s;
        let epochs = self.options.restored_epochs();
        match per_epoch > 0.0 {
            true => All {
                reads: per_epoch * epochs,
                epochs,
            },
            false => All::default(),
        }
    }
}

impl State {
    /// What a share of the accesses is as a rate, in accesses per second.
    fn per_share(&self, options: &HeatOptions) -> f64 {
        let epoch_s = options.epoch_us.max(1) as f64 / 1e6;
        match options.cooling_from_start {
            true => 1.0 / epoch_s,
            false => self.all.per_epoch() / epoch_s,
        }
    }
}

impl HeatTracker for Temperature {
    fn touch(&self, access: &Access<'_>) {
        self.counted.touch(access.table, &access.delta);
    }

    /// What a parent had is shared out among the children in its key range: by their
    /// bytes there, and if it is wide by how hot it is there. What a child has of wide
    /// parents counts as known from one epoch, so that it soon shows how hot it is.
    fn inherit(
        &self,
        parents: &[Arc<TableMeta>],
        children: &[Arc<TableMeta>],
        below: &[Arc<TableMeta>],
    ) {
        let mut state = lock(&self.state);
        self.fetch(&mut state);
        let born = |child: &TableMeta, before: Warmth| Warmth {
            size_mib: size_mib(child),
            is_known: false,
            reads: 0.0,
            all: 0.0,
            epochs: 0.0,
            shift: Shift::default(),
            pending: 0.0,
            since_us: before.since_us,
            counted_before: before.counted_before,
        };
        let counted = state.counted;
        let one_epoch = match self.options.cooling_from_start {
            true => 1.0,
            false => state.all.per_epoch(),
        };
        heirs::inherit(
            &mut state.tables,
            Kin {
                parents,
                children,
                below,
            },
            Warmth::share,
            born,
            |heir, before, share| {
                // Accesses of before the youngest parent are left out, as if they had come evenly.
                let from = heir.counted_before.max(before.counted_before);
                let since = |pending: f64, counted_before: f64| {
                    let all = counted - counted_before;
                    let share = if all > 0.0 {
                        (counted - from) / all
                    } else {
                        1.0
                    };
                    pending * share
                };
                heir.pending = since(heir.pending, heir.counted_before)
                    + share.of_parent * since(before.pending, before.counted_before);
                heir.counted_before = from;
                heir.since_us = heir.since_us.max(before.since_us);
                heir.shift.succeed(&before.shift);
                heir.is_known |= before.is_known;
                // What is known from no reads says nothing.
                if before.is_known && before.all > 0.0 {
                    let (all, epochs) = match share.is_guess {
                        true => (one_epoch, 1.0),
                        false => (before.all, before.epochs),
                    };
                    heir.add(share.of_parent * before.share(), all, epochs);
                }
            },
        );
    }

    /// Temperatures are of tables, and know nothing of keys.
    fn is_hot(&self, _key: &[u8]) -> bool {
        false
    }

    fn sample(&self, version: &Version, now_us: u64) -> HeatMap {
        let mut state = lock(&self.state);
        let state = &mut *state;
        self.reckon(state, now_us);
        let restored = std::mem::take(&mut state.restored);
        if !restored.is_empty() && state.all.epochs == 0.0 {
            state.all = self.all_of_restored(version, &restored);
        }
        let per_share = state.per_share(&self.options);
        let (counted, all) = (state.counted, state.all);
        state.tables.follow(version, |table| {
            let mut warmth = Warmth {
                size_mib: size_mib(table),
                is_known: false,
                reads: 0.0,
                all: 0.0,
                epochs: 0.0,
                shift: Shift::default(),
                pending: 0.0,
                since_us: now_us,
                counted_before: counted,
            };
            if let Some(temperature) = restored.get(&table.id) {
                let known_from = match self.options.cooling_from_start {
                    true => 1.0,
                    false => all.per_epoch() * self.options.restored_epochs(),
                };
                let share = match per_share > 0.0 {
                    true => temperature * warmth.size_mib / per_share,
                    false => 0.0,
                };
                warmth.is_known = true;
                warmth.add(share, known_from, self.options.restored_epochs());
            }
            warmth
        });
        let epoch_s = self.options.epoch_us.max(1) as f64 / 1e6;
        let heat = state.tables.iter().map(|(table, warmth)| {
            let per_share = per_share / warmth.size_mib;
            // Of rates all is 1, whatever they are known from.
            let of_one = match self.options.cooling_from_start {
                true => 1.0 / (warmth.size_mib * epoch_s * warmth.epochs),
                false => per_share / warmth.all,
            };
            let heat = TableHeat {
                temperature: warmth.is_known.then(|| warmth.share() * per_share),
                temperature_of_one: if of_one.is_finite() { of_one } else { 0.0 },
                ..TableHeat::default()
            };
            (*table, heat)
        });
        heat.collect()
    }

    fn memory_bytes(&self) -> u64 {
        let state = lock(&self.state);
        let restored = state.restored.len() * size_of::<(TableId, f64)>();
        state.tables.memory_bytes() + restored as u64 + self.counted.memory_bytes()
    }

    fn save(&self) -> Vec<(TableId, f64)> {
        let state = lock(&self.state);
        let per_share = state.per_share(&self.options);
        let known = state.tables.iter().filter(|(_, w)| w.is_known);
        let known = known.map(|(t, w)| (*t, w.share() * per_share / w.size_mib));
        // Nobody may have asked for them since the restart.
        let restored = state.restored.iter().map(|(&t, &value)| (t, value));
        let mut saved: BTreeMap<_, _> = restored.collect();
        saved.extend(known);
        saved.into_iter().collect()
    }

    fn restore(&self, temperatures: &[(TableId, f64)]) {
        let sound = temperatures
            .iter()
            .filter(|(_, t)| (0.0..=TEMPERATURE_MAX).contains(t));
        lock(&self.state).restored = sound.copied().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_model::picture;

    const SECOND: u64 = 1_000_000;
    const START: u64 = 1 << 40;

    fn tracker(cooling_coefficient: f64) -> Temperature {
        Temperature::new(HeatOptions {
            epoch_us: SECOND,
            cooling_coefficient,
            cooling_from_start: true,
        })
    }

    fn averaging(cooling_coefficient: f64) -> Temperature {
        Temperature::new(HeatOptions {
            epoch_us: SECOND,
            cooling_coefficient,
            cooling_from_start: false,
        })
    }

    fn read(tracker: &Temperature, table: u64, block_reads: u64) {
        tracker.touch(&Access {
            key: b"",
            table: TableId(table),
            delta: TableHeat {
                block_reads,
                ..TableHeat::default()
            },
        });
    }

    fn version(text: &str) -> Version {
        picture::parse(text).unwrap()
    }

    /// Of 1 MiB and of 4 MiB.
    fn two() -> Version {
        version("L7: #1[a..f]{size=1048575} #2[g..z]{size=4194303}")
    }

    fn temperature(heat: &HeatMap, table: u64) -> Option<f64> {
        heat[&TableId(table)].temperature
    }

    #[test]
    fn temperatures_follow_equation_4_from_the_first_whole_epoch_on() {
        let (tracker, version) = (tracker(0.75), two());
        let at = |second: u64| tracker.sample(&version, START + second * SECOND);
        assert_eq!(temperature(&at(0), 1), None);
        read(&tracker, 1, 80);
        read(&tracker, 2, 80);
        let heat = at(1);
        assert_eq!(temperature(&heat, 1), Some(80.0), "accesses / size");
        assert_eq!(temperature(&heat, 2), Some(20.0), "normalised by size");
        read(&tracker, 1, 40);
        let heat = at(2);
        assert_eq!(temperature(&heat, 1), Some(0.25 * 40.0 + 0.75 * 80.0));
        assert_eq!(temperature(&heat, 2), Some(0.75 * 20.0));
        // Within an epoch nothing changes.
        read(&tracker, 1, 1000);
        let heat = tracker.sample(&version, START + 2 * SECOND + SECOND / 2);
        assert_eq!(temperature(&heat, 1), Some(70.0));
    }

    #[test]
    fn a_temperature_is_a_mean_until_that_is_as_long_as_the_coefficient_remembers() {
        let (tracker, version) = (averaging(0.75), two());
        let at = |second: u64| tracker.sample(&version, START + second * SECOND);
        at(0);
        let mut heat = HeatMap::new();
        for (epoch, reads) in [80, 40, 0, 0].into_iter().enumerate() {
            read(&tracker, 1, reads);
            read(&tracker, 2, 80 - reads);
            heat = at(epoch as u64 + 1);
            let shown = [80.0, 60.0, 40.0, 30.0][epoch];
            assert!((temperature(&heat, 1).unwrap() - shown).abs() < 1e-9);
        }
        read(&tracker, 1, 130);
        heat.extend(at(5));
        assert_eq!(temperature(&heat, 1), Some(0.25 * 130.0 + 0.75 * 30.0));
        // Two epochs at once, of a table known from one.
        let tracker = averaging(0.75);
        tracker.sample(&version, START);
        read(&tracker, 1, 90);
        tracker.sample(&version, START + SECOND);
        read(&tracker, 2, 180);
        let heat = tracker.sample(&version, START + 3 * SECOND);
        assert!((temperature(&heat, 1).unwrap() - 90.0 / 3.0).abs() < 1e-9);
    }

    /// After a merge of flushes into a level that had nothing where the hot keys were, its
    /// hottest outputs were taken for cold, and lay on the slow tier for minutes.
    #[test]
    fn what_comes_of_a_wide_table_is_read_where_the_level_below_is_and_soon_shows_it() {
        let tracker = averaging(0.999);
        let before = version(
            "L1: #9[a..y]{size=1M} / #10[a..y] | L6: #1[u..v]{size=1M} #2[v..w]{size=1M} \
             #3[w..x]{size=1M} #4[x..y]{size=1M} | L7: #21[a..g]{size=1M} #22[g..m]{size=1M} \
             #23[m..y]{size=1M}",
        );
        tracker.sample(&before, START);
        for (table, reads) in [(9, 1000), (1, 1), (4, 1), (21, 900), (22, 90), (23, 10)] {
            read(&tracker, table, reads);
        }
        tracker.sample(&before, START + SECOND);
        let after = version(
            "L6: #5[a..g]{size=1M} #6[g..m]{size=1M} #7[m..v]{size=1M} #8[v..y]{size=1M} | L7: \
             #21[a..g]{size=1M} #22[g..m]{size=1M} #23[m..y]{size=1M}",
        );
        let level = |v: &Version, level: usize| {
            let keyspace = v.keyspaces.values().next().unwrap();
            keyspace.levels[level].tables().cloned().collect::<Vec<_>>()
        };
        let parents = [level(&before, 0), level(&before, 5)].concat();
        tracker.inherit(&parents, &level(&after, 5), &level(&after, 6));
        let heat = tracker.sample(&after, START + SECOND + 1);
        let chance = heat[&TableId(5)].temperature_of_one;
        assert!(chance > 0.5, "known from one epoch: {chance}");
        let of = |heat: &HeatMap, table| temperature(heat, table).unwrap();
        assert!(of(&heat, 5) > 800.0, "{heat:?}");
        assert!((50.0..150.0).contains(&of(&heat, 6)), "{heat:?}");
        assert!(of(&heat, 8) < 50.0, "{heat:?}");
        // The guess was wrong. Tables that are known from long before do not forget so soon.
        for second in 2..12 {
            read(&tracker, 6, 500);
            tracker.sample(&after, START + second * SECOND);
        }
        let heat = tracker.sample(&after, START + 12 * SECOND);
        assert!(of(&heat, 5) < 100.0 && of(&heat, 6) > 400.0, "{heat:?}");
    }

    #[test]
    fn what_comes_of_tables_known_to_be_cold_is_known_to_be_so() {
        let tracker = averaging(0.999);
        let before = version(
            "L6: #1[a..m]{size=1M} | L7: #2[a..f]{size=1M} #3[g..m]{size=1M} #8[n..z]{size=1M}",
        );
        for second in 0..100 {
            read(&tracker, 8, 99);
            tracker.sample(&before, START + second * SECOND);
        }
        let after = version("L7: #4[a..f]{size=1M} #5[g..m]{size=1M} #8[n..z]{size=1M}");
        let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
        tracker.inherit(&tables(&before)[..3], &tables(&after)[..2], &[]);
        read(&tracker, 4, 1);
        read(&tracker, 8, 99);
        let heat = tracker.sample(&after, START + 100 * SECOND);
        let shown = temperature(&heat, 4).unwrap();
        assert!((0.009..0.011).contains(&shown), "{shown}");
    }

    /// Both tables are of 1 MiB.
    const PAIR: &str = "L7: #1[a..f]{size=1048575} #2[g..z]{size=1048575}";

    #[test]
    fn a_hot_set_that_has_moved_is_known_in_seconds_and_by_the_equation_in_minutes() {
        let (shifting, equation, version) = (averaging(0.999), tracker(0.999), version(PAIR));
        for tracker in [&shifting, &equation] {
            let mut heat = tracker.sample(&version, START);
            for second in 1..=1010 {
                let (hot, cold) = if second <= 1000 { (1, 2) } else { (2, 1) };
                read(tracker, hot, 100);
                read(tracker, cold, 1);
                heat = tracker.sample(&version, START + second * SECOND);
            }
            let [was, is] = [1, 2].map(|table| temperature(&heat, table).unwrap());
            match std::ptr::eq(tracker, &raw const shifting) {
                true => assert!(was < 5.0 && is > 90.0, "{was}, {is}"),
                false => assert!(was > 90.0 && is < 5.0, "{was}, {is}"),
            }
        }
    }

    #[test]
    fn a_store_that_nobody_reads_for_a_night_keeps_what_it_knows() {
        let (tracker, version) = (averaging(0.999), version(PAIR));
        tracker.sample(&version, START);
        for second in 1..=100 {
            read(&tracker, 1, 90);
            read(&tracker, 2, 10);
            tracker.sample(&version, START + second * SECOND);
        }
        let night = START + 8 * 3600 * SECOND;
        for second in 0..8 * 3600 {
            tracker.sample(&version, START + (101 + second) * SECOND);
        }
        // One read tells nothing beside a hundred seconds of them.
        read(&tracker, 2, 1);
        let heat = tracker.sample(&version, night + 200 * SECOND);
        let [hot, cold] = [1, 2].map(|table| temperature(&heat, table).unwrap());
        assert!((8.5..9.5).contains(&(hot / cold)), "{hot}, {cold}");
        let chance = heat[&TableId(1)].temperature_of_one / hot;
        assert!(
            (chance * 9000.0 - 1.0).abs() < 0.01,
            "of 9,000 reads: {chance}"
        );
    }

    #[test]
    fn tables_known_from_other_times_are_compared_by_their_share_of_all_reads() {
        let (tracker, before) = (averaging(0.999), version(PAIR));
        tracker.sample(&before, START);
        for second in 1..=100 {
            read(&tracker, 1, 100);
            read(&tracker, 2, 900);
            tracker.sample(&before, START + second * SECOND);
        }
        // Then a hundredth is read, half of it of a table that was not there.
        let after = version(&format!("{PAIR} | L6: #3[a..f]{{size=1048575}}"));
        let mut heat = tracker.sample(&after, START + 100 * SECOND);
        for second in 101..=110 {
            read(&tracker, 2, 5);
            read(&tracker, 3, 5);
            heat = tracker.sample(&after, START + second * SECOND);
        }
        let [one, new] = [1, 3].map(|table| temperature(&heat, table).unwrap());
        assert!((4.5..5.5).contains(&(new / one)), "{one}, {new}");
    }

    /// After a load many tables are known from epochs in which nobody read anything.
    #[test]
    fn what_is_known_from_no_reads_takes_nothing_from_what_it_is_merged_with() {
        let tracker = averaging(0.999);
        let before = version("L6: #1[a..m]{size=1M} | L7: #2[a..f]{size=1M} #3[g..m]{size=1M}");
        let without = version("L7: #2[a..f]{size=1M} #3[g..m]{size=1M}");
        tracker.sample(&without, START);
        for second in 1..=100 {
            read(&tracker, 2, 90);
            read(&tracker, 3, 10);
            tracker.sample(&without, START + second * SECOND);
        }
        for second in 100..103 {
            tracker.sample(&before, START + second * SECOND);
        }
        let after = version("L7: #4[a..f]{size=1M} #5[g..m]{size=1M}");
        let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
        // In the order that could take something: what nobody read comes last.
        let mut parents = tables(&before);
        parents.reverse();
        tracker.inherit(&parents, &tables(&after), &[]);
        let heat = tracker.sample(&after, START + 102 * SECOND);
        let [hot, cold] = [4, 5].map(|table| temperature(&heat, table).unwrap());
        assert!((8.9..9.1).contains(&(hot / cold)), "{hot}, {cold}");
        // Nor is what comes of such tables alone taken for new, and so for hottest.
        let tracker = averaging(0.999);
        for second in 0..3 {
            tracker.sample(&before, START + second * SECOND);
        }
        tracker.inherit(&tables(&before), &tables(&after), &[]);
        let heat = tracker.sample(&after, START + 2 * SECOND);
        assert_eq!(
            [4, 5].map(|table| temperature(&heat, table)),
            [Some(0.0); 2]
        );
    }

    #[test]
    fn a_night_between_a_closing_and_an_opening_is_forgotten_and_not_what_was_before() {
        let (first, version) = (averaging(0.999), version(PAIR));
        first.sample(&version, START);
        for second in 1..=100 {
            read(&first, 1, 90);
            read(&first, 2, 10);
            first.sample(&version, START + second * SECOND);
        }
        for second in 101..30_000 {
            first.sample(&version, START + second * SECOND);
        }
        let second = averaging(0.999);
        second.restore(&first.save());
        let opened = START + 30_000 * SECOND;
        second.sample(&version, opened);
        read(&second, 2, 1);
        let heat = second.sample(&version, opened + SECOND);
        let [hot, cold] = [1, 2].map(|table| temperature(&heat, table).unwrap());
        assert!((8.5..9.5).contains(&(hot / cold)), "{hot}, {cold}");
    }

    #[test]
    fn a_backup_does_not_make_cold_what_is_read_beside_it() {
        let tracker = averaging(0.999);
        let tables: Vec<String> = (2..40)
            .map(|t| format!("#{t}[b{t}..b{t}z]{{size=1M}}"))
            .collect();
        let version = version(&format!("L7: #1[a..b]{{size=1M}} {}", tables.join(" ")));
        let mut heat = tracker.sample(&version, START);
        for second in 1..=300 {
            read(&tracker, 1, 50);
            match second {
                200..230 => read(&tracker, second - 198, 2000),
                _ => read(&tracker, 2 + second % 38, 50),
            }
            heat = tracker.sample(&version, START + second * SECOND);
            if second >= 100 {
                let hot = temperature(&heat, 1).unwrap();
                let hotter = (2..40).filter(|&t| temperature(&heat, t).unwrap() > hot);
                assert_eq!(hotter.count(), 0, "after {second} s");
            }
        }
        assert!(temperature(&heat, 1).unwrap() > 10.0);
    }

    #[test]
    fn a_table_of_half_an_epoch_has_no_temperature_yet() {
        let tracker = tracker(0.5);
        tracker.sample(&Version::empty(), START);
        let version = two();
        tracker.sample(&version, START + SECOND / 2);
        read(&tracker, 1, 30);
        let heat = tracker.sample(&version, START + SECOND);
        assert_eq!(temperature(&heat, 1), None);
        let heat = tracker.sample(&version, START + 2 * SECOND);
        assert_eq!(temperature(&heat, 1), Some(20.0), "30 in one and a half");
    }

    #[test]
    fn epochs_that_nobody_looked_at_are_made_up_for_up_to_a_bound() {
        let (tracker, version) = (tracker(0.5), two());
        tracker.sample(&version, START);
        read(&tracker, 1, 64);
        tracker.sample(&version, START + SECOND);
        read(&tracker, 1, 64);
        // Two epochs of 32 each.
        let heat = tracker.sample(&version, START + 3 * SECOND);
        assert_eq!(temperature(&heat, 1), Some(0.75 * 32.0 + 0.25 * 64.0));
    }

    #[test]
    fn a_clock_that_jumps_does_no_harm() {
        let (tracker, version) = (tracker(0.999), two());
        tracker.sample(&version, START);
        read(&tracker, 1, 100);
        tracker.sample(&version, START + SECOND);
        // A century ahead: a minute's worth of cooling.
        let ahead = START + 100 * 365 * 86_400 * SECOND;
        let heat = tracker.sample(&version, ahead);
        let value = temperature(&heat, 1).unwrap();
        assert!((94.0..95.0).contains(&value), "{value}");
        // And back to the beginning of time: nothing, and then it goes on.
        assert_eq!(temperature(&tracker.sample(&version, 5), 1), Some(value));
        let heat = tracker.sample(&version, 5 + SECOND);
        assert_eq!(temperature(&heat, 1), Some(value * 0.999));
        let heat = tracker.sample(&version, u64::MAX);
        assert!(temperature(&heat, 1).unwrap() > value * 0.9);
    }

    #[test]
    fn merge_outputs_inherit_by_key_interval() {
        let tracker = tracker(0.999);
        let before = version(
            "L6: #1[a..m]{size=1048575} | L7: #2[a..f]{size=1048575} #3[g..m]{size=1048575}",
        );
        tracker.sample(&before, START);
        read(&tracker, 1, 10);
        read(&tracker, 2, 100);
        tracker.sample(&before, START + SECOND);
        let after = version("L7: #4[a..f]{size=1048575} #5[g..m]{size=1048575}");
        let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
        tracker.inherit(&tables(&before), &tables(&after), &[]);
        let heat = tracker.sample(&after, START + SECOND + 1);
        // Half of table 1 each, and all of table 2.
        assert_eq!(temperature(&heat, 4), Some(105.0));
        assert_eq!(temperature(&heat, 5), Some(5.0));
        let sum: f64 = tracker.save().iter().map(|(_, t)| t).sum();
        assert_eq!(sum, 110.0, "the parents are forgotten");
    }

    /// On emulated devices, five reads in a hundred operations being writes: each merge of
    /// flushes into the level below made all of its outputs as hot as the flushes were on
    /// average, and they drove tables from the fast tier that were read.
    #[test]
    fn the_reads_of_a_wide_table_are_inherited_where_narrow_ones_are_read() {
        let tracker = tracker(0.999);
        let before = version(
            "L1: #9[a..y]{size=1048575} | L6: #1[a..g]{size=1048575} #2[g..m]{size=1048575} \
             #3[m..s]{size=1048575} #4[s..y]{size=1048575}",
        );
        tracker.sample(&before, START);
        for (table, reads) in [(9, 1000), (1, 80), (2, 15), (3, 5)] {
            read(&tracker, table, reads);
        }
        tracker.sample(&before, START + SECOND);
        let after = version(
            "L6: #5[a..g]{size=1048575} #6[g..m]{size=1048575} #7[m..s]{size=1048575} \
             #8[s..y]{size=1048575}",
        );
        let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
        tracker.inherit(&tables(&before), &tables(&after), &[]);
        let heat = tracker.sample(&after, START + SECOND + 1);
        let temperatures = [5, 6, 7, 8].map(|table| temperature(&heat, table).unwrap());
        for (found, wanted) in temperatures.into_iter().zip([880.0, 165.0, 55.0, 0.0]) {
            assert!((found - wanted).abs() < 1e-6, "{temperatures:?}");
        }
    }

    /// The narrow tables lay at the end of the keys, and each output there was as large as the
    /// one that had all other keys.
    #[test]
    fn a_wide_table_is_inherited_by_where_its_keys_are_not_by_how_large_the_children_are() {
        let tracker = tracker(0.999);
        let before = version(
            "L1: #9[a..y]{size=1M} / #10[a..y] / #11[a..y] / #12[a..y] / #13[a..y] | L6: #1[u..v]{size=1M} #2[v..w]{size=1M} #3[w..x]{size=1M} \
             #4[x..y]{size=1M}",
        );
        tracker.sample(&before, START);
        for (table, reads) in [(9, 1000), (1, 1), (2, 1), (3, 1), (4, 1)] {
            read(&tracker, table, reads);
        }
        tracker.sample(&before, START + SECOND);
        let after =
            version("L6: #5[a..u]{size=1M} #6[u..v]{size=1M} #7[v..w]{size=1M} #8[w..y]{size=2M}");
        let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
        tracker.inherit(&tables(&before), &tables(&after), &[]);
        let heat = tracker.sample(&after, START + SECOND + 1);
        assert!(temperature(&heat, 5).unwrap() > 800.0);
        assert!(temperature(&heat, 7).unwrap() < 50.0);
    }

    #[test]
    fn heat_is_neither_made_nor_lost_by_a_merge() {
        let tracker = tracker(0.999);
        let before = version("L6: #1[c..p] | L7: #2[a..f]{size=3M} #3[g..k] #4[l..z]{size=2M}");
        tracker.sample(&before, START);
        for table in 1..5 {
            read(&tracker, table, table * 7);
        }
        tracker.sample(&before, START + SECOND);
        let after = version("L7: #5[a..e]{size=2M} #6[f..i]{size=2M} #7[j..z]{size=3M}");
        let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
        tracker.inherit(&tables(&before), &tables(&after), &[]);
        let heat = tracker.sample(&after, START + SECOND);
        let rate = |t: &Arc<TableMeta>| temperature(&heat, t.id.0).unwrap() * size_mib(t);
        let sum: f64 = after.tables().map(rate).sum();
        assert!((sum - 70.0).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn temperatures_survive_saving_and_unsound_ones_do_not() {
        let (first, version) = (tracker(0.999), two());
        first.sample(&version, START);
        read(&first, 1, 50);
        first.sample(&version, START + SECOND);
        let mut saved = first.save();
        assert_eq!(saved, [(TableId(1), 50.0), (TableId(2), 0.0)]);
        saved.push((TableId(9), 1.0));
        saved[1].1 = f64::NAN;
        let second = tracker(0.999);
        second.restore(&saved);
        assert_eq!(second.save(), [(TableId(1), 50.0), (TableId(9), 1.0)]);
        let heat = second.sample(&version, START);
        assert_eq!(temperature(&heat, 1), Some(50.0));
        assert_eq!(temperature(&heat, 2), None);
        assert_eq!(second.save(), [(TableId(1), 50.0)]);
    }
}
