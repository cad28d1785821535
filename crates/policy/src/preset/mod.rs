//! Presets: named choices of planners, placer and heat tracker.

use std::sync::Arc;

use crate::heat::HeatOptions;
use crate::{HeatTracker, Placer, Planner};

pub mod leveled;
pub mod logstore;
pub mod mutant;
pub mod nova;
pub mod ohdb;

/// A choice, ready to use.
pub struct Preset {
    /// Its name, as in the options.
    pub name: &'static str,
    /// What plans flushes, and moves that make room for them: a thread of its own may ask nobody
    /// else.
    pub flush: Box<dyn Planner>,
    /// What makes room for what merges write, while they run: asked where nothing is to be flushed,
    /// and done in a thread of its own where one only flushes.
    pub room: Option<Box<dyn Planner>>,
    /// What moves cuts, or takes back those that writes have made with another preset; asked
    /// before all others, as it can only act while no flush of the parts concerned runs.
    pub recut: Box<dyn Planner>,
    /// The other planners; the first that has a job wins.
    pub planners: Vec<Box<dyn Planner>>,
    /// Where new tables lie.
    pub placer: Arc<dyn Placer>,
    /// What is known of use.
    pub heat: Arc<dyn HeatTracker>,
}

impl std::fmt::Debug for Preset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preset")
            .field("name", &self.name)
            .field("planners", &self.planners.len())
            .finish_non_exhaustive()
    }
}

/// A preset that can be chosen.
#[derive(Clone, Copy, Debug)]
pub struct PresetEntry {
    /// Its name, as in the options.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub about: &'static str,
    /// Whether it keeps to a cost target.
    pub keeps_cost: bool,
    /// Whether tables lie by level, so that levels can be given tiers to begin on.
    pub by_level: bool,
    /// Whether it cuts a keyspace that was made without cuts.
    pub makes_cuts: bool,
    /// Whether one that does not makes them where the options say that cuts move.
    pub cuts_if_asked: bool,
    /// Whether it only does so where writes gain by it, into as many parts as memory and threads
    /// suggest, unless the options say that cuts move.
    pub adapts_parts: bool,
    /// Whether cuts move with the writes if the options do not say.
    pub moves_cuts: bool,
    /// Whether its merges may send intervals on to a deeper level.
    pub goes_deeper: bool,
    /// Parts that are about as full are flushed together if an even share has so many bytes, unless
    /// the options say otherwise; 0 for never, `None` for where it pays.
    pub flush_together_bytes_min: Option<u64>,
    /// Memtables with fewer keys than this are folded, unless the options say
    /// otherwise; 0 for never.
    pub fold_keys_max: usize,
    /// Makes one.
    pub make: fn(&HeatOptions) -> Preset,
}

/// All presets, the default one first.
#[must_use]
pub fn presets() -> &'static [PresetEntry] {
    &[
        leveled::ENTRY,
        mutant::ENTRY,
        logstore::ENTRY,
        logstore::UNOPTIMISED,
        ohdb::ENTRY,
        nova::ENTRY,
    ]
}

/// The preset of that name.
#[must_use]
pub fn by_name(name: &str, heat: &HeatOptions) -> Option<Preset> {
    let entry = presets().iter().find(|p| p.name == name)?;
    Some((entry.make)(heat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_found_by_its_name() {
        for entry in presets() {
            let preset = by_name(entry.name, &HeatOptions::default()).unwrap();
            assert_eq!(preset.name, entry.name);
        }
        assert!(by_name("none", &HeatOptions::default()).is_none());
    }
}
