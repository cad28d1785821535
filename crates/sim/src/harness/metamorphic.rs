//! The same operations under many option sets and every preset: the same
//! answers, and the oracle's.

use std::path::Path;

use thermocline::presets;

use crate::disk::Disk;
use crate::draw::{self, Place};
use crate::harness::seeded;
use crate::operation::{Generator, Keys, Operation, Player, World};
use crate::{Dice, Tally};

/// Operations of one run.
const OPERATIONS: usize = 400;
/// Option sets of one run. The presets share them, so that a new one costs no time.
const SETS: usize = 6;

fn operations(seed: u64) -> (Keys, Vec<Operation>) {
    let mut dice = Dice(seed);
    let keys = Keys::draw(&mut dice);
    let mut generator = Generator::new(Dice(dice.next()), keys.clone());
    let operations = (0..OPERATIONS).map(|_| generator.draw()).collect();
    (keys, operations)
}

/// The presets take turns, from set to set and from seed to seed.
fn preset(seed: u64, set: usize) -> &'static str {
    let presets = presets();
    presets[(seed % presets.len() as u64) as usize..]
        .iter()
        .chain(presets)
        .cycle()
        .nth(set)
        .map_or("leveled", |preset| preset.name)
}

/// One sequence of operations on a simulated disk, under several drawn option
/// sets, with every registered preset in its turn.
///
/// # Panics
/// When an answer is wrong; the message begins with the seed.
pub fn run(seed: u64, tally: &mut Tally) {
    seeded(
        (
            "metamorphic",
            "metamorphic_answers_are_the_same_under_every",
        ),
        seed,
        || {
            let (keys, operations) = operations(seed);
            let mut dice = Dice(!seed);
            let mut answers = None;
            for set in 0..SETS {
                let world = World::Simulated(Disk::new(dice.next()));
                let mut place = Place::draw(&mut dice, Path::new("/mount/store"), false);
                place.preset = Some(preset(seed, set));
                let now = play(&mut dice, &keys, &operations, world, place, tally);
                assert_eq!(*answers.get_or_insert(now), now, "answers differ");
            }
        },
    );
}

/// As [`run`], in a real directory, which must exist, with background threads, and
/// under one option set of one preset: the next seed has the next preset. The
/// operations replay exactly, what the threads do meanwhile does not.
///
/// # Panics
/// As [`run`].
pub fn run_with_threads(seed: u64, directory: &Path, tally: &mut Tally) {
    seeded(("metamorphic", "metamorphic_with_threads"), seed, || {
        let (keys, operations) = operations(seed);
        let mut dice = Dice(!seed);
        let preset = preset(seed, 0);
        let below = directory.join(format!("{seed}-{preset}"));
        std::fs::create_dir_all(&below).expect("the directory can be written");
        let mut place = Place::draw(&mut dice, &below.join("store"), true);
        place.preset = Some(preset);
        play(&mut dice, &keys, &operations, World::Real, place, tally);
        std::fs::remove_dir_all(&below).expect("it was made above");
    });
}

/// Gives the digest of all answers.
fn play(
    dice: &mut Dice,
    keys: &Keys,
    operations: &[Operation],
    world: World,
    place: Place,
    tally: &mut Tally,
) -> u64 {
    let options = draw::options(dice, &place, keys);
    let text = options.to_toml();
    let mut player = Player::new(world, place, keys.clone(), options, tally);
    let failed = |at: usize, e: thermocline::Error| -> ! {
        panic!("operation {at}, {:?}: {e}\n{text}", operations.get(at));
    };
    player.open().unwrap_or_else(|e| failed(0, e));
    for (at, operation) in operations.iter().enumerate() {
        player.play(operation).unwrap_or_else(|e| failed(at, e));
        player.check_checkpoint();
    }
    player
        .check_all()
        .unwrap_or_else(|e| failed(operations.len(), e));
    player.leave();
    player.answers()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_plays_the_presets_that_move_tables_between_tiers() {
        for seed in 0..20 {
            let played: Vec<_> = (0..SETS).map(|set| preset(seed, set)).collect();
            for name in ["mutant", "logstore"] {
                assert!(played.contains(&name), "{seed}: {played:?}");
            }
        }
    }
}
