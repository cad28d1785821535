//! Cuts that move with the writes.

use thermocline::Durability;

use super::{Act, Room, Setting, Shape, Workload, key, put};
use crate::Dice;
use crate::contents::Effect;

/// Small ones, many in a batch, of so many keys from one on.
fn many(dice: &mut Dice, acts: &mut Vec<Act>, from: u64, keys: u64, batches: u64) {
    for _ in 0..batches {
        let batch = (0..40).map(|n| match n {
            20 => Effect::DeleteRange(
                "default".into(),
                key(from).into_bytes(),
                key(from + 2).into_bytes(),
            ),
            21 => Effect::Delete("default".into(), key(from + 3).into_bytes()),
            _ => put(key(from + dice.below(keys)), vec![dice.next() as u8; 30]),
        });
        acts.push(Act::Write(batch.collect(), Durability::OperatingSystem));
        acts.extend([Act::Step, Act::Step]);
    }
}

impl Workload {
    /// A store whose cuts move with the writes: made, moved to neighbours, made anew, and
    /// recovered with memtables older than the cuts.
    #[must_use]
    pub fn cuts(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed ^ 6);
        let setting = Setting {
            mapped,
            shape: Shape::Moving,
        };
        let mut acts = vec![Act::Open(Room::Plenty)];
        many(&mut dice, &mut acts, 0, 40, 8);
        acts.push(Act::Settle);
        many(&mut dice, &mut acts, 0, 20, 3);
        acts.push(Act::Flush);
        many(&mut dice, &mut acts, 2, 9, 4);
        acts.push(Act::Open(Room::Plenty));
        many(&mut dice, &mut acts, 33, 1, 6);
        acts.extend([Act::Settle, Act::Flush]);
        many(&mut dice, &mut acts, 0, 40, 4);
        Workload::of_a_new_store("cuts", seed, setting, acts)
    }

    /// A store of overlapping fast levels whose parts pass their newest runs on side by side, while cuts move,
    /// and which is recovered in between.
    #[must_use]
    pub fn passes(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed ^ 8);
        let setting = Setting {
            mapped,
            shape: Shape::Passing,
        };
        let mut acts = vec![Act::Open(Room::Little)];
        many(&mut dice, &mut acts, 0, 40, 6);
        acts.extend([Act::Flush, Act::Step, Act::Step]);
        many(&mut dice, &mut acts, 0, 20, 3);
        acts.push(Act::Open(Room::Plenty));
        many(&mut dice, &mut acts, 2, 9, 3);
        acts.extend([Act::Flush, Act::Settle]);
        many(&mut dice, &mut acts, 0, 40, 2);
        Workload::of_a_new_store("passes", seed, setting, acts)
    }
}
