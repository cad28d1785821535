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
    /// Of a table of which nothing is known. Its accesses count since `since_us`, when all tables
    /// had so many.
    fn unknown(table: &TableMeta, since_us: u64, counted_before: f64) -> Warmth {
        Warmth {
            size_mib: size_mib(table),
            is_known: false,
            reads: 0.0,
            all: 0.0,
            epochs: 0.0,
            shift: Shift::default(),
            pending: 0.0,
            since_us,
            counted_before,
        }
    }

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
    fn epoch_s(&self) -> f64 {
        self.epoch_us.max(1) as f64 / 1e6
    }

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
        if warmth.all <= 0.0 {
            // In a quiet second one read is all reads. It counts as no more than it would beside
            // as many as there usually are.
            warmth.reads = now.seen;
            warmth.all = now.all.max(per_epoch * now.epochs);
            warmth.epochs = now.epochs;
            return;
        }
        let share = warmth.share();
        let expected = Expected {
            by_share: share * now.all,
            by_rate: share * per_epoch * now.epochs,
        };
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

    /// The rate of all accesses before a restart, by the temperatures that the tables had.
    fn all_of_restored(&self, version: &Version, restored: &BTreeMap<TableId, f64>) -> All {
        let rate = |table: &Arc<TableMeta>| Some(restored.get(&table.id)? * size_mib(table));
        let per_epoch = version.tables().filter_map(rate).sum::<f64>() * self.options.epoch_s();
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
        let per_epoch = match options.cooling_from_start {
            true => 1.0,
            false => self.all.per_epoch(),
        };
        per_epoch / options.epoch_s()
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
        let born = |child: &TableMeta, before: Warmth| {
            Warmth::unknown(child, before.since_us, before.counted_before)
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
            let mut warmth = Warmth::unknown(table, now_us, counted);
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
        let epoch_s = self.options.epoch_s();
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
mod tests;
