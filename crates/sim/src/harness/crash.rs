//! Crash safety (I2, I3, I5, I9) on a simulated disk: drawn options, drawn
//! operations, a crash at a random call, recovery that crashes too, and an
//! oracle that knows every state the store went through. And fixed operations,
//! with a crash at every call in turn.

use std::path::Path;

use thermocline::{Event, Options};

use crate::disk::{Disk, Down, Fault};
use crate::draw::{self, Place};
use crate::harness::seeded;
use crate::operation::{Generator, Keys, Operation, Player, World};
use crate::{Dice, Tally};

/// Crashes of one run: a store of its own every so often, so that a seed
/// replays quickly.
const CRASHES: u64 = 10;
/// Recoveries in a row that may crash.
const CRASHES_IN_A_ROW_MAX: u64 = 3;

/// One store under drawn options and operations, which crashes at random calls
/// until it has crashed ten times and more.
///
/// # Panics
/// When the store breaks a promise; the message begins with the seed.
pub fn run(seed: u64, tally: &mut Tally) {
    seeded(("crash", "crash_survivors_are_a_prefix_with"), seed, || {
        cycles(seed, tally)
    });
}

fn cycles(seed: u64, tally: &mut Tally) {
    let mut dice = Dice(seed);
    let disk = Disk::new(dice.next());
    let keys = Keys::draw(&mut dice);
    let place = Place::draw(&mut dice, Path::new("/mount/store"), false);
    let options = draw::options(&mut dice, &place, &keys);
    let mut generator = Generator::new(Dice(dice.next()), keys.clone());
    let mut player = Player::new(World::Simulated(disk.clone()), place, keys, options, tally);
    let both = [Down::Kill, Down::Power];
    let downs = dice.one_of(&[&both[..], &both, &both[..1], &both[1..]]);
    for crash in 0..CRASHES {
        let mut worst = Down::Kill;
        let mut tries = 0;
        loop {
            if tries < CRASHES_IN_A_ROW_MAX && dice.percent(40) {
                disk.fault_in(dice.below(60) + 1, Fault::Crash);
            }
            tries += 1;
            let opened = player.open();
            if !disk.is_crashed() {
                opened.unwrap_or_else(|e| panic!("crash {crash}: refused to open: {e}"));
                break;
            }
            player.leave();
            worst = fall(&mut player, &disk, dice.one_of(downs), worst);
        }
        disk.heal();
        let found = player.read_all();
        let found = found.unwrap_or_else(|e| panic!("crash {crash}: {e}"));
        let settled = player.oracle().settle(&found, worst);
        let compared = settled.unwrap_or_else(|e| panic!("crash {crash}, {worst:?}: {e}"));
        // Each entry was shown in both directions.
        player.tally().operations += 2 * compared;
        generator.resume(player.oracle().names());

        let soon = dice.percent(30);
        disk.fault_in(dice.below(if soon { 60 } else { 600 }) + 1, Fault::Crash);
        while !disk.is_crashed() {
            let operation = generator.draw();
            let done = player.play(&operation);
            if let Err(error) = done
                && !disk.is_crashed()
            {
                panic!("crash {crash}, {operation:?}: {error}");
            }
        }
        player.leave();
        fall(&mut player, &disk, dice.one_of(downs), Down::Kill);
        player.check_checkpoint();
        if dice.percent(30) {
            player.redraw(&mut dice);
        }
    }
}

/// The machine goes down and comes back. Says what was worst so far.
fn fall(player: &mut Player<'_>, disk: &Disk, down: Down, worst: Down) -> Down {
    disk.reboot(down);
    player.tally().crashes += 1;
    if down == Down::Kill {
        return worst;
    }
    player.oracle().lose_power();
    Down::Power
}

/// Fixed operations on a store with fixed options.
#[derive(Clone, Debug)]
pub struct Script {
    /// Where the store lies.
    pub place: Place,
    /// Its options, with the tiers of that place.
    pub options: Options,
    /// What is done to it.
    pub operations: Vec<Operation>,
}

impl Script {
    /// Draws options and so many operations.
    #[must_use]
    pub fn draw(seed: u64, operations: usize) -> Script {
        let mut dice = Dice(seed);
        let keys = Keys::draw(&mut dice);
        let place = Place::draw(&mut dice, Path::new("/mount/store"), false);
        let options = draw::options(&mut dice, &place, &keys);
        let mut generator = Generator::new(dice, keys);
        Script {
            place,
            options,
            operations: (0..operations).map(|_| generator.draw()).collect(),
        }
    }
}

/// Plays the script again and again: each time the machine goes down `down` at
/// another call, from the first one of the first opening to the last one of the
/// script, and what survives is judged. Gives the number of calls, and the jobs
/// of the script played whole.
///
/// # Panics
/// When the store breaks a promise; the message names the call.
pub fn at_every_call(script: &Script, down: Down, tally: &mut Tally) -> (u64, Vec<Event>) {
    let mut call = 1;
    loop {
        if let Some(jobs) = crash_at(script, call, down, tally) {
            return (call - 1, jobs);
        }
        call += 1;
    }
}

/// Gives the jobs of the script if it has fewer calls.
fn crash_at(script: &Script, call: u64, down: Down, tally: &mut Tally) -> Option<Vec<Event>> {
    let disk = Disk::new(call);
    let world = World::Simulated(disk.clone());
    let keys = Keys::draw(&mut Dice(call));
    let Script { place, options, .. } = script;
    let mut player = Player::new(world, place.clone(), keys, options.clone(), tally);
    let failed = |what: &str, reason: &dyn std::fmt::Display| -> ! {
        panic!("{down:?} at call {call}, {what}: {reason}");
    };
    disk.fault_in(call, Fault::Crash);
    let mut said = player.open();
    for operation in &script.operations {
        if said.is_err() || disk.is_crashed() {
            break;
        }
        said = player.play(operation);
    }
    if !disk.is_crashed() {
        said.unwrap_or_else(|e| failed("before the crash", &e));
        return Some(player.db().events(usize::MAX));
    }
    player.leave();
    fall(&mut player, &disk, down, Down::Kill);
    player.check_checkpoint();
    player.open().unwrap_or_else(|e| failed("opening", &e));
    let found = player.read_all();
    let found = found.unwrap_or_else(|e| failed("reading", &e));
    let settled = player.oracle().settle(&found, down);
    let compared = settled.unwrap_or_else(|e| failed("survivors", &e));
    player.tally().operations += 2 * compared;
    // And it goes on.
    let on = player.play(&Operation::Settle);
    let on = on.and_then(|()| player.check_all());
    on.unwrap_or_else(|e| failed("going on", &e));
    None
}
