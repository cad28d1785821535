//! The preset `mutant`: a leveled tree whose tables lie where their temperature
//! belongs, within a cost target (Yoon et al., "Mutant: Balancing Storage Cost and
//! Latency in LSM-Tree Data Stores"). What differs from the paper is in
//! docs/papers/mutant.md.

use std::sync::Arc;

use crate::heat::{HeatOptions, Temperature};
use crate::place::ByHeat;
use crate::plan::{Leveled, MakeRoom, MakeRoomAhead, Migrate, MoveCuts, Overwritten, migrate};
use crate::preset::{Preset, PresetEntry};

pub(crate) const ENTRY: PresetEntry = PresetEntry {
    name: "mutant",
    about: "leveled merges; tables lie by temperature, within a cost target",
    keeps_cost: true,
    by_level: false,
    makes_cuts: true,
    cuts_if_asked: false,
    adapts_parts: true,
    moves_cuts: true,
    goes_deeper: false,
    flush_together_bytes_min: None,
    fold_keys_max: 0,
    make,
};

pub(super) fn make(heat: &HeatOptions) -> Preset {
    Preset {
        name: ENTRY.name,
        flush: Box::new(MakeRoom::new(migrate::gives_way)),
        room: Some(Box::new(MakeRoomAhead)),
        recut: Box::new(MoveCuts),
        planners: vec![Box::new(Leveled), Box::new(Migrate), Box::new(Overwritten)],
        placer: Arc::new(ByHeat),
        heat: Arc::new(Temperature::new(*heat)),
    }
}
