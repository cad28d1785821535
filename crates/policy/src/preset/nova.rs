//! The preset `nova`: parts that are cut, and cut anew, so that each gets as many writes (Huang,
//! Ghandeharizadeh, "Nova-LSM: A Distributed, Component-based LSM-tree Key-value Store", on one
//! machine). The paper has one kind of disk; where there are several tiers tables lie on them as
//! with [`super::mutant`]. What differs from the paper is in docs/papers/nova.md.

use crate::heat::HeatOptions;
use crate::plan::{Buckets, Migrate, Overwritten};
use crate::preset::{Preset, PresetEntry, mutant};

pub(crate) const ENTRY: PresetEntry = PresetEntry {
    name: "nova",
    about: "parts whose cuts move so that all get as many writes; tables lie by temperature",
    keeps_cost: true,
    by_level: false,
    makes_cuts: true,
    cuts_if_asked: false,
    adapts_parts: false,
    moves_cuts: true,
    goes_deeper: false,
    flush_together_bytes_min: None,
    fold_keys_max: 100,
    make,
};

/// As `mutant`, but merges are by part.
fn make(heat: &HeatOptions) -> Preset {
    Preset {
        name: ENTRY.name,
        planners: vec![Box::new(Buckets), Box::new(Migrate), Box::new(Overwritten)],
        ..mutant::make(heat)
    }
}
