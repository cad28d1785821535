//! Memtables with few keys, which are folded.

use thermocline::Durability;

use super::{Act, Room, Setting, Shape, Workload, key, put};
use crate::Dice;
use crate::contents::Effect;

/// Batches of puts and deletes of four keys in one part and one in the other; every
/// eighth is durable.
fn hot_writes(dice: &mut Dice, count: u64, acts: &mut Vec<Act>) {
    for i in 0..count {
        let hot = |dice: &mut Dice| key(dice.below(4));
        let mut batch = vec![put(hot(dice), vec![dice.next() as u8; 1000])];
        match i % 8 {
            1 => batch.push(Effect::Delete("default".into(), hot(dice).into_bytes())),
            3 => batch.push(Effect::DeleteRange(
                "default".into(),
                b"k01".to_vec(),
                b"k03".to_vec(),
            )),
            5 => batch.push(put(key(30), vec![dice.next() as u8; 300])),
            _ => {}
        }
        let durability = if i % 8 == 7 {
            Durability::Device
        } else {
            Durability::OperatingSystem
        };
        acts.push(Act::Write(batch, durability));
        if i % 4 == 3 {
            acts.push(Act::Step);
        }
    }
}

impl Workload {
    /// Few keys written often, so that memtables are folded, also folded ones and with
    /// what a recovery found; then flushed.
    #[must_use]
    pub fn folds(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed ^ 6);
        let setting = Setting {
            mapped,
            shape: Shape::Folded,
        };
        let mut acts = vec![Act::Open(Room::Plenty)];
        hot_writes(&mut dice, 64, &mut acts);
        // Only in the log, and older than what the next folds log anew.
        acts.push(Act::Open(Room::Plenty));
        hot_writes(&mut dice, 40, &mut acts);
        acts.extend([Act::Flush, Act::Settle]);
        hot_writes(&mut dice, 24, &mut acts);
        Workload::of_a_new_store("folds", seed, setting, acts)
    }

    /// Few keys written often while cuts move: memtables are folded that no move concerns,
    /// those of a duplicated part among them, and flushed where they are older than the cuts; of
    /// what was logged anew, recovery leaves out what was flushed since.
    #[must_use]
    pub fn hot(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed ^ 7);
        let setting = Setting {
            mapped,
            shape: Shape::Moving,
        };
        let mut acts = vec![Act::Open(Room::Plenty)];
        // So many keys from one on, in batches of ten.
        let mut hot = |acts: &mut Vec<Act>, from: u64, keys: u64, batches: u64| {
            for i in 0..batches {
                let mut batch: Vec<Effect> = (0..10)
                    .map(|_| put(key(from + dice.below(keys)), vec![dice.next() as u8; 250]))
                    .collect();
                if i % 4 == 1 {
                    let end = key(from + keys).into_bytes();
                    let start = key(from + keys - 1).into_bytes();
                    batch.push(Effect::DeleteRange("default".into(), start, end));
                }
                let durability = if i % 8 == 7 {
                    Durability::Device
                } else {
                    Durability::OperatingSystem
                };
                acts.push(Act::Write(batch, durability));
                acts.push(Act::Step);
            }
        };
        hot(&mut acts, 0, 20, 10);
        hot(&mut acts, 0, 6, 16);
        acts.push(Act::Open(Room::Plenty));
        hot(&mut acts, 20, 1, 16);
        acts.push(Act::Flush);
        // Opened again only once: see `Workload::parts`.
        hot(&mut acts, 14, 8, 16);
        hot(&mut acts, 2, 6, 8);
        Workload::of_a_new_store("hot", seed, setting, acts)
    }
}
