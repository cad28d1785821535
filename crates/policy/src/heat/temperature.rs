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
//! chance. So the share kept is at first that which makes the temperature the mean of all
//! epochs, until it comes to the coefficient; [`HeatOptions::cooling_from_start`] has it be the
//! coefficient from the start.
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
use crate::{Access, HeatMap, HeatTracker};

/// Epochs that a table cools by at once, at most.
pub const LEAP_EPOCHS_MAX: u64 = 60;

/// Epochs that a temperature of before a restart is known from: how many they were is not saved.
const RESTORED_EPOCHS: f64 = 1000.0;

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
}

#[derive(Clone, Copy, Debug)]
struct Warmth {
    size_mib: f64,
    /// Accesses per second and MiB; `None` in the first epoch.
    value: Option<f64>,
    /// Epochs whose accesses it is known from.
    epochs: f64,
    /// Accesses that have not gone into it.
    pending: f64,
    /// Since when `pending` counts.
    since_us: u64,
}

impl Warmth {
    /// Adds accesses of other keys, known from so many epochs. Numbers that come by chance
    /// vary by as much as they are (Poisson's law), rates by that over the time, and sums by
    /// the sum of that: what is known least decides.
    fn add(&mut self, rate: f64, epochs: f64) {
        let before = self.value.unwrap_or(0.0);
        let varies = before / self.epochs + rate / epochs;
        self.epochs = match (varies > 0.0, self.value) {
            (true, _) => (before + rate) / varies,
            (false, None) => epochs,
            (false, Some(_)) => self.epochs.min(epochs),
        };
        self.value = Some(before + rate);
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
        if epochs == 0 {
            for warmth in state.tables.values_mut() {
                warmth.since_us = warmth.since_us.min(now_us);
            }
            return;
        }
        self.fetch(state);
        let cooling = self.options.cooling_coefficient;
        let from_start = self.options.cooling_from_start;
        for warmth in state.tables.values_mut() {
            warmth.since_us = warmth.since_us.min(ended_us);
            let counted_us = ended_us - warmth.since_us;
            let rate = || warmth.pending / warmth.size_mib / (counted_us as f64 / 1e6);
            warmth.value = match warmth.value {
                _ if counted_us < epoch_us => continue,
                None => {
                    warmth.epochs = 1.0;
                    Some(rate())
                }
                Some(before) => {
                    let epochs = (counted_us / epoch_us).min(LEAP_EPOCHS_MAX);
                    let known = warmth.epochs + epochs as f64;
                    let mean = warmth.epochs / known;
                    let kept = cooling.powi(epochs as i32);
                    let kept = if from_start { kept } else { kept.min(mean) };
                    warmth.epochs = known;
                    Some((1.0 - kept) * rate() + kept * before)
                }
            };
            warmth.pending = 0.0;
            warmth.since_us = ended_us;
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
            value: None,
            epochs: 1.0,
            pending: 0.0,
            since_us: before.since_us,
        };
        heirs::inherit(
            &mut state.tables,
            Kin {
                parents,
                children,
                below,
            },
            |warmth| warmth.value.unwrap_or(0.0) * warmth.size_mib,
            born,
            |heir, before, share| {
                heir.pending += share.of_parent * before.pending;
                heir.since_us = heir.since_us.max(before.since_us);
                if let Some(value) = before.value {
                    let rate = share.of_parent * value * before.size_mib / heir.size_mib;
                    let epochs = if share.is_guess { 1.0 } else { before.epochs };
                    heir.add(rate, epochs);
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
        state.tables.follow(version, |table| Warmth {
            size_mib: size_mib(table),
            value: restored.get(&table.id).copied(),
            epochs: RESTORED_EPOCHS,
            pending: 0.0,
            since_us: now_us,
        });
        let heat = state.tables.iter().map(|(table, warmth)| {
            let heat = TableHeat {
                temperature: warmth.value,
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
        let known = state
            .tables
            .iter()
            .filter_map(|(t, w)| Some((*t, w.value?)));
        // Nobody may have asked for them since the restart.
        let restored = state.restored.iter().map(|(&t, &value)| (t, value));
        let mut saved: BTreeMap<_, _> = restored.collect();
        saved.extend(known);
        saved.into_iter().collect()
    }

    fn restore(&self, temperatures: &[(TableId, f64)]) {
        let sound = temperatures
            .iter()
            .filter(|(_, t)| t.is_finite() && *t >= 0.0);
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
        let heat = tracker.sample(&version, START + 3 * SECOND);
        assert_eq!(temperature(&heat, 1), Some(90.0 / 3.0));
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
        let before = version("L6: #1[a..m]{size=1M} | L7: #2[a..f]{size=1M} #3[g..m]{size=1M}");
        for second in 0..100 {
            tracker.sample(&before, START + second * SECOND);
        }
        let after = version("L7: #4[a..f]{size=1048575} #5[g..m]{size=1048575}");
        let tables = |v: &Version| v.tables().cloned().collect::<Vec<_>>();
        tracker.inherit(&tables(&before), &tables(&after), &[]);
        read(&tracker, 4, 100);
        let heat = tracker.sample(&after, START + 100 * SECOND);
        let shown = temperature(&heat, 4).unwrap();
        assert!((shown - 1.0).abs() < 1e-9, "{shown}");
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
