//! Stores in parts: cut by their first keys, and with cuts that move with the writes.

use thermocline::Durability;

use super::{Act, Room, Setting, Shape, Workload, key, put, writes};
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
    /// A store that is cut into parts by its first keys, whose log and newest levels lie
    /// on the slow tier, and its manifest until it is opened again.
    #[must_use]
    pub fn parts(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed ^ 5);
        let setting = Setting {
            mapped,
            shape: Shape::Parted,
        };
        let mut acts = vec![Act::Open(Room::Plenty)];
        writes(&mut dice, 26, &mut acts);
        acts.push(Act::Flush);
        writes(&mut dice, 6, &mut acts);
        // So much in each part that all are flushed together, in the middle of what is written.
        for n in 0..10 {
            let effects = vec![put(key(n * 4), vec![n as u8; 3600])];
            acts.push(Act::Write(effects, Durability::OperatingSystem));
        }
        acts.push(Act::Step);
        writes(&mut dice, 2, &mut acts);
        acts.extend([Act::Flush, Act::Settle, Act::Close]);
        // Once: the history takes what was durable before a second opening that follows
        // a failed sync for durable after it.
        acts.push(Act::Open(Room::Little));
        writes(&mut dice, 2, &mut acts);
        acts.push(Act::Settle);
        Workload::of_a_new_store("parts", seed, setting, acts)
    }

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

    /// A store of overlapping fast levels whose parts pass their newest runs on side by side, while
    /// cuts move, and which is recovered in between.
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
