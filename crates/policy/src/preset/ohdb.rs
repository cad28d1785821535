//! The preset `ohdb`: a first level cut into parts, each merged down as a whole (Liu,
//! Wang, Zhou, "An optimized implementation for concurrent LSM-structured key-value
//! stores"). What differs from the paper is in docs/papers/ohdb.md.

use std::sync::Arc;

use crate::heat::{Counters, HeatOptions};
use crate::place::ByBucket;
use crate::plan::{Balance, Buckets, MakeRoom, MoveCuts, balance};
use crate::preset::{Preset, PresetEntry};

pub(crate) const ENTRY: PresetEntry = PresetEntry {
    name: "ohdb",
    about: "a newest level cut into parts by key, each merged down as a whole",
    keeps_cost: false,
    by_level: true,
    makes_cuts: true,
    cuts_if_asked: false,
    adapts_parts: false,
    moves_cuts: false,
    goes_deeper: false,
    flush_together_bytes_min: Some(64 << 10),
    fold_keys_max: 0,
    make,
};

fn make(_heat: &HeatOptions) -> Preset {
    Preset {
        name: ENTRY.name,
        flush: Box::new(MakeRoom::new(balance::gives_way)),
        room: None,
        recut: Box::new(MoveCuts),
        planners: vec![Box::new(Buckets), Box::new(Balance)],
        placer: Arc::new(ByBucket),
        heat: Arc::new(Counters::default()),
    }
}
