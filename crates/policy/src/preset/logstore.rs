//! The preset `logstore`: overlapping fast levels above one strict level on the slow
//! tier, merged when it pays (Menon et al., "LogStore: A Workload-aware, Adaptable
//! Key-Value Store on Hybrid Storage Systems"); and `logstore-unoptimised`, the same
//! shape without what the paper adds, its LS-UO. What differs from the paper is in
//! docs/papers/logstore.md.

use std::sync::Arc;

use crate::Planner;
use crate::heat::{HeatOptions, Histograms};
use crate::place::ByShape;
use crate::plan::{Belong, Coldest, FlushSealed, MoveCuts, Newest, Reclaim, Reverse, Staging};
use crate::preset::{Preset, PresetEntry};

pub(crate) const ENTRY: PresetEntry = PresetEntry {
    name: "logstore",
    about: "overlapping fast levels above one on the slow tier; merged when it pays",
    keeps_cost: false,
    by_level: false,
    makes_cuts: false,
    cuts_if_asked: true,
    adapts_parts: false,
    moves_cuts: false,
    goes_deeper: true,
    flush_together_bytes_min: None,
    fold_keys_max: 0,
    make: |heat| preset(ENTRY.name, heat, true),
};

pub(crate) const UNOPTIMISED: PresetEntry = PresetEntry {
    name: "logstore-unoptimised",
    about: "the shape of logstore, its tables drawn and its optimisations off",
    keeps_cost: false,
    by_level: false,
    makes_cuts: false,
    cuts_if_asked: false,
    adapts_parts: false,
    moves_cuts: false,
    goes_deeper: false,
    flush_together_bytes_min: None,
    fold_keys_max: 0,
    make: |heat| preset(UNOPTIMISED.name, heat, false),
};

fn preset(name: &'static str, heat: &HeatOptions, optimised: bool) -> Preset {
    let mut planners: Vec<Box<dyn Planner>> = vec![Box::new(Newest { optimised })];
    if optimised {
        planners.push(Box::new(Staging));
    }
    planners.push(Box::new(Coldest { optimised }));
    if optimised {
        planners.push(Box::new(Reverse));
    }
    planners.push(Box::new(Reclaim));
    planners.push(Box::new(Belong));
    let relief: Vec<Box<dyn Planner>> = match optimised {
        true => vec![Box::new(Staging), Box::new(Coldest { optimised })],
        false => vec![Box::new(Coldest { optimised })],
    };
    Preset {
        name,
        flush: Box::new(FlushSealed::on_first_tier(relief, optimised)),
        room: None,
        recut: Box::new(MoveCuts),
        planners,
        placer: Arc::new(ByShape { optimised }),
        heat: Arc::new(Histograms::new(*heat)),
    }
}
