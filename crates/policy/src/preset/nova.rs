//! The preset `nova`: parts that are cut, and cut anew, so that each gets as many
//! writes (Huang, Ghandeharizadeh, "Nova-LSM: A Distributed, Component-based LSM-tree
//! Key-value Store", on one machine). What differs from the paper is in
//! docs/papers/nova.md.

use std::sync::Arc;

use crate::heat::{Counters, HeatOptions};
use crate::place::ByBucket;
use crate::plan::{Balance, Buckets, MakeRoom, MoveCuts, balance};
use crate::preset::{Preset, PresetEntry};

pub(crate) const ENTRY: PresetEntry = PresetEntry {
    name: "nova",
    about: "parts whose cuts move so that all get as many writes",
    keeps_cost: false,
    by_level: true,
    makes_cuts: true,
    cuts_if_asked: false,
    adapts_parts: false,
    moves_cuts: true,
    goes_deeper: false,
    fold_keys_max: 100,
    make,
};

fn make(_heat: &HeatOptions) -> Preset {
    Preset {
        name: ENTRY.name,
        flush: Box::new(MakeRoom::new(balance::gives_way)),
        recut: Box::new(MoveCuts),
        planners: vec![Box::new(Buckets), Box::new(Balance)],
        placer: Arc::new(ByBucket),
        heat: Arc::new(Counters::default()),
    }
}
