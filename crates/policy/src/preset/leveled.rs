//! The preset `leveled`: a classical leveled tree whose levels fill the tiers
//! from the newest down.

use std::sync::Arc;

use crate::heat::{Counters, HeatOptions};
use crate::place::ByLevel;
use crate::plan::{Balance, Leveled, MakeRoom, MoveCuts, balance};
use crate::preset::{Preset, PresetEntry};

pub(crate) const ENTRY: PresetEntry = PresetEntry {
    name: "leveled",
    about: "leveled merges; levels fill the tiers from the newest down",
    keeps_cost: false,
    by_level: true,
    makes_cuts: true,
    cuts_if_asked: false,
    adapts_parts: true,
    moves_cuts: true,
    goes_deeper: false,
    flush_together_bytes_min: None,
    fold_keys_max: 0,
    make,
};

fn make(_heat: &HeatOptions) -> Preset {
    Preset {
        name: ENTRY.name,
        flush: Box::new(MakeRoom::new(balance::gives_way)),
        room: None,
        recut: Box::new(MoveCuts),
        planners: vec![Box::new(Leveled), Box::new(Balance)],
        placer: Arc::new(ByLevel),
        heat: Arc::new(Counters::default()),
    }
}
