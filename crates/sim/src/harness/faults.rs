//! Every call fails once (I5), and a crash at every call: fixed workloads in
//! which the n-th call meets a fault, for every n and every kind of fault.
//!
//! After an error the store answers with a named error, loses nothing that it
//! acknowledged, goes on by itself once the cause is gone, and after a failed
//! persist takes no more writes until it is opened anew. What only interrupts
//! or shortens a call is not noticed at all. After a crash, and after another
//! crash at each call of the recovery, what is there is a state that the store
//! went through, with everything acknowledged (I2, I3, I9).
//!
//! When a device lies at some call, the store says so or is not deceived: what
//! it returns was written there, and all of it is a state that it went through
//! (I8).
//!
//! `THERMOCLINE_FAULT_STRIDE` takes one call in so many: by default every call for
//! crashes, and one in five for each kind of error and of lie, with kinds in
//! turn, so that each call meets a fifth of them. With 1 each call meets all.
//! `THERMOCLINE_RECOVERY_STRIDE` does so for the crashes in recoveries (one in 61), and
//! `THERMOCLINE_CAPACITY_STEP` is the distance in bytes of the places where the
//! room on a device ends.

use std::time::Duration;

use thermocline::{Db, Error, ErrorKind};

use super::history::History;
use super::workload::Workload;
use crate::contents::{contents, hash};
use crate::disk::{Crashed, Disk, Down, Fault};
use crate::{Dice, Tally};

/// The errors that every call meets once.
pub const ERRORS: [Fault; 10] = [
    Fault::Io,
    Fault::Full(1),
    Fault::Full(60),
    Fault::Sync,
    Fault::Interrupted,
    Fault::Short,
    Fault::ReadOnly,
    Fault::Handles(1),
    Fault::Handles(20),
    Fault::Vanish,
];

/// The lies that every call tells once.
pub const LIES: [Fault; 4] = [
    Fault::FlipRead,
    Fault::FlipWrite,
    Fault::MisdirectRead,
    Fault::MisdirectWrite,
];

/// One call in so many meets each kind of error, unless the environment says otherwise.
const ERRORS_STRIDE: u64 = 5;

fn stride(variable: &str, default: u64) -> u64 {
    let set = std::env::var(variable).ok().and_then(|s| s.parse().ok());
    set.unwrap_or(default).max(1)
}

/// Runs the workload with `fault` at the `n`-th call that it can happen to;
/// says whether there was one.
fn fail_at(workload: &Workload, n: u64, fault: Fault, tally: &mut Tally) -> bool {
    let context = format!("{workload}, {fault:?} at its call {n}");
    let disk = workload.disk(n);
    let mut history = workload.history();
    disk.fault_in(n, fault);
    let db = workload.play(&disk, &mut history);
    if disk.faults_met() == 0 {
        return false;
    }
    tally.fault(fault.name());
    let db = db.unwrap_or_else(|| panic!("{context}: second opening: {:?}", history.errors));
    disk.heal();
    history.errors.iter().for_each(|e| named(e, &context));
    if matches!(fault, Fault::Interrupted | Fault::Short) {
        assert!(
            history.errors.is_empty(),
            "{context}: noticed: {:?}",
            history.errors
        );
    }
    after(workload, &disk, db, &history, &context, tally);
    true
}

/// What must hold once the cause of all errors is gone.
fn after(
    workload: &Workload,
    disk: &Disk,
    db: Db,
    history: &History,
    context: &str,
    tally: &mut Tally,
) {
    let room = history.room_at(u64::MAX);
    let poisoned = db.put(b"probe", b"1").is_err_and(|e| {
        assert!(
            e.kind() == ErrorKind::Poisoned,
            "{context}: writing does not resume: {e}, after {:?}",
            history.errors
        );
        true
    });
    if poisoned {
        assert!(
            history
                .errors
                .iter()
                .any(|e| e.kind() == ErrorKind::Poisoned)
                || db.stats().job_errors > 0,
            "{context}: nobody was told; errors {:?}",
            history.errors
        );
    } else {
        db.delete(b"probe").unwrap();
        disk.pass_time(Duration::from_secs(5));
        db.flush()
            .unwrap_or_else(|e| panic!("{context}: flushing does not resume: {e}"));
        db.settle()
            .unwrap_or_else(|e| panic!("{context}: settling does not resume: {e}"));
    }
    // What cannot be written can still be read.
    tally.operations += history.check(&db, true, context);
    drop(db);
    for down in [Down::Kill, Down::Power] {
        disk.reboot(down);
        let db = Db::open_in(workload.options(room), &disk.environment())
            .unwrap_or_else(|e| panic!("{context}: reopening after {down:?}: {e}"));
        tally.operations += history.check(&db, !poisoned, context);
        tally.crashes += 1;
        if down == Down::Power {
            db.put(b"again", b"1")
                .unwrap_or_else(|e| panic!("{context}: writing after reopening: {e}"));
        }
    }
}

fn named(error: &Error, context: &str) {
    let lawful = matches!(
        error.kind(),
        ErrorKind::Io
            | ErrorKind::NoSpace
            | ErrorKind::Poisoned
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
    );
    assert!(lawful, "{context}: {error}");
}

/// Runs the workload with a lie at the `n`-th call that it can happen to; says
/// whether there was one.
fn lie_at(workload: &Workload, n: u64, lie: Fault, tally: &mut Tally) -> bool {
    let context = format!("{workload}, {lie:?} at its call {n}");
    let disk = workload.disk(n);
    let mut history = workload.history();
    disk.fault_in(n, lie);
    let db = workload.play(&disk, &mut history);
    if disk.faults_met() == 0 {
        return false;
    }
    tally.fault(lie.name());
    history.errors.iter().for_each(|e| reported(e, &context));
    if let Some(db) = db {
        tally.operations += deceived(&db, &history, &context);
    }
    for down in [Down::Kill, Down::Power] {
        disk.reboot(down);
        let options = workload.options(history.room_at(u64::MAX));
        match Db::open_in(options, &disk.environment()) {
            Ok(db) => {
                tally.operations += deceived(&db, &history, &context);
                tally.crashes += 1;
            }
            Err(e) => reported(&e, &context),
        }
    }
    true
}

/// Panics if the store returns what was never written, or a state that never
/// was; says how many entries were compared.
fn deceived(db: &Db, history: &History, context: &str) -> u64 {
    let found = match contents(db) {
        Ok(found) => found,
        Err(e) => {
            reported(&e, context);
            return 0;
        }
    };
    for (space, entries) in &found {
        for (key, value) in entries {
            assert!(
                history.ever(space, key, value),
                "{context}: {space}/{} has {} bytes that were never written there",
                key.escape_ascii(),
                value.len()
            );
        }
    }
    if history.is_whole() {
        assert!(
            history.ever_was(&found),
            "{context}: a state that never was; errors {:?}",
            history.errors
        );
    }
    found.values().map(|entries| entries.len() as u64).sum()
}

fn reported(error: &Error, context: &str) {
    let lawful = matches!(
        error.kind(),
        ErrorKind::Corruption | ErrorKind::WrongTier | ErrorKind::Poisoned
    );
    assert!(lawful, "{context}: {error}");
}

/// Lets calls of every workload fail with `fault`, one in so many (see the module),
/// prints and returns how many there were.
///
/// # Panics
/// When the store breaks a promise; the message names workload, fault and call.
pub fn every_call_fails(fault: Fault) -> u64 {
    let stride = stride("THERMOCLINE_FAULT_STRIDE", ERRORS_STRIDE);
    let turn = ERRORS.iter().chain(&LIES).position(|f| *f == fault);
    let mut tally = Tally::default();
    let mut sites = 0;
    for workload in Workload::all(0) {
        let mut n = 1 + turn.unwrap_or(0) as u64 % stride;
        while if LIES.contains(&fault) {
            lie_at(&workload, n, fault, &mut tally)
        } else {
            fail_at(&workload, n, fault, &mut tally)
        } {
            n += stride;
            sites += 1;
        }
        println!(
            "{}: {sites} sites up to workload {}",
            fault.name(),
            workload.name
        );
    }
    println!("{tally}");
    sites
}

/// Runs the workload on a device with room for so many bytes and not one more,
/// until it gets more.
fn fill(workload: &Workload, mount: &'static str, bytes: u64, tally: &mut Tally) {
    let context = format!("{workload}, {mount} holds {bytes} bytes");
    let disk = workload.disk(bytes);
    let device = disk.device(mount);
    let mut history = workload.history();
    device.set_capacity_bytes(Some(device.used_bytes() + bytes));
    // If it does not even open, that is the end of it.
    let db = workload.play(&disk, &mut history);
    history.errors.iter().for_each(|e| named(e, &context));
    tally.fault("full-device");
    device.set_capacity_bytes(None);
    let db = db.unwrap_or_else(|| {
        let room = history.room_at(u64::MAX);
        Db::open_in(workload.options(room), &disk.environment())
            .unwrap_or_else(|e| panic!("{context}: with more room: {e}"))
    });
    after(workload, &disk, db, &history, &context, tally);
}

/// Lets the room on each device end at every so many bytes: a write is cut at
/// that very byte. Prints and returns the number of sites.
///
/// # Panics
/// When the store breaks a promise; the message names workload and bytes.
pub fn every_byte_is_the_last(step: u64) -> u64 {
    let step = stride("THERMOCLINE_CAPACITY_STEP", step);
    let mut tally = Tally::default();
    let mut sites = 0;
    for workload in Workload::all(0) {
        for mount in ["/fast", "/slow"] {
            let disk = workload.disk(0);
            let before = disk.device(mount).used_bytes();
            drop(workload.play(&disk, &mut workload.history()));
            let grown = disk.device(mount).used_bytes().saturating_sub(before);
            let most = (2 * grown).max(30_000);
            for bytes in (0..most).step_by(step as usize) {
                fill(&workload, mount, bytes, &mut tally);
                sites += 1;
            }
        }
        println!("room: {sites} sites up to {workload}");
    }
    println!("{tally}");
    sites
}

/// A workload that was run once, and what a crash at each call would leave.
struct Recorded<'a> {
    workload: &'a Workload,
    history: History,
    hashes: Vec<u64>,
    crashed: Vec<Crashed>,
}

impl Recorded<'_> {
    fn new(workload: &Workload) -> Recorded<'_> {
        let disk = workload.disk(0);
        let mut history = workload.history();
        disk.record_crashes();
        drop(workload.play(&disk, &mut history));
        let errors = &history.errors;
        assert!(errors.is_empty(), "{workload}: {errors:?}");
        Recorded {
            workload,
            hashes: history.hashes(),
            crashed: disk.recorded_crashes(),
            history,
        }
    }

    /// Opens what is left of a crash at this call, the worst of several having
    /// been `down`, and compares it with the states that it may be in.
    fn recover(&self, disk: &Disk, calls: u64, down: Down, context: &str, tally: &mut Tally) -> Db {
        let options = self.workload.options(self.history.room_at(calls));
        let db = Db::open_in(options, &disk.environment())
            .unwrap_or_else(|e| panic!("{context}: refused to open: {e}"));
        let memory = db.stats().memory;
        let (used, max) = (memory.used.memtables, memory.max.memtables);
        assert!(used <= max, "{context}: memtables {used} of {max} bytes");
        let found = contents(&db).unwrap_or_else(|e| panic!("{context}: reading: {e}"));
        let (first, last) = self.history.allowed_at(calls, down);
        let wanted = hash(&found);
        assert!(
            self.hashes[first..=last].contains(&wanted),
            "{context}: states {first} to {last} are allowed, found that of {:?}",
            self.hashes.iter().position(|&h| h == wanted)
        );
        tally.crashes += 1;
        tally.operations += found
            .values()
            .map(|entries| entries.len() as u64)
            .sum::<u64>();
        db
    }

    /// The crash `site`, and if `again` a crash at one in so many calls of the
    /// recovery from it.
    fn crash(&self, site: usize, down: Down, again: Option<(u64, u64)>, tally: &mut Tally) {
        let crashed = &self.crashed[site];
        let calls = crashed.calls;
        let seed = site as u64;
        let context = format!("{}, {down:?} at site {site}, call {calls}", self.workload);
        let disk = crashed.disk(seed, down);
        tally.fault(match down {
            Down::Kill => "kill",
            Down::Power => "power",
        });
        let Some((first, stride)) = again else {
            self.recover(&disk, calls, down, &context, tally);
            return;
        };
        disk.record_crashes();
        let db = self.recover(&disk, calls, down, &context, tally);
        let recovered = hash(&contents(&db).unwrap());
        // What a recovery has shown is there for good.
        let later = disk.fork(seed);
        let recoveries = disk.recorded_crashes();
        later.reboot(Down::Power);
        let options = self.workload.options(self.history.room_at(calls));
        let reopened = Db::open_in(options, &later.environment())
            .unwrap_or_else(|e| panic!("{context}, then power after recovery: {e}"));
        assert_eq!(
            hash(&contents(&reopened).unwrap()),
            recovered,
            "{context}: what was recovered is not durable"
        );
        drop(db);
        let some = recoveries.iter().skip(first as usize);
        for (i, second) in some.step_by(stride as usize).enumerate() {
            let then = [Down::Power, Down::Kill][i % 2];
            let worst = if down == Down::Power { down } else { then };
            let context = format!("{context}, then {then:?} at call {}", second.calls);
            let disk = second.disk(seed, then);
            self.recover(&disk, calls, worst, &context, tally);
            tally.fault("crash-in-recovery");
        }
    }
}

/// A crash of either kind at every call of every workload, and another at one in so many calls of
/// each recovery, in turn a different one. After each, memory is within what the options say.
/// Prints and returns the number of sites.
///
/// # Panics
/// When the store breaks a promise; the message names workload and call.
pub fn every_call_crashes(down: Down) -> usize {
    let again = stride("THERMOCLINE_RECOVERY_STRIDE", 61);
    every_call_crashes_of(&Workload::all(0), down, again)
}

/// The same of some workloads; `again`: one in so many calls of each recovery.
///
/// # Panics
/// As [`every_call_crashes`].
pub fn every_call_crashes_of(workloads: &[Workload], down: Down, again: u64) -> usize {
    let stride = stride("THERMOCLINE_FAULT_STRIDE", 1);
    let mut tally = Tally::default();
    let mut sites = 0;
    for workload in workloads {
        let recorded = Recorded::new(workload);
        for site in (0..recorded.crashed.len()).step_by(stride as usize) {
            let first = site as u64 % again;
            recorded.crash(site, down, Some((first, again)), &mut tally);
            sites += 1;
        }
        println!("{down:?}: {sites} sites up to {workload}");
    }
    println!("{tally}");
    sites
}

/// Some faults and crashes at drawn calls of a drawn workload.
///
/// # Panics
/// When the store breaks a promise; the message begins with the seed.
pub fn run(seed: u64, tally: &mut Tally) {
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mapped = dice.percent(50);
    let workload = match dice.below(10) {
        0 => Workload::life(seed, mapped),
        1 => Workload::moves(seed, mapped),
        2 => Workload::prices(seed, mapped),
        3 => Workload::stages(seed, mapped),
        4 => Workload::parts(seed, mapped),
        5 => Workload::cuts(seed, mapped),
        6 => Workload::passes(seed, mapped),
        7 => Workload::folds(seed, mapped),
        8 => Workload::hot(seed, mapped),
        _ => Workload::recovery(seed, mapped),
    };
    for _ in 0..20 {
        let fault = dice.one_of(&ERRORS);
        // Beyond the last call nothing happens.
        fail_at(&workload, 1 + dice.below(600), fault, tally);
    }
    for _ in 0..5 {
        let mount = dice.one_of(&["/fast", "/slow"]);
        fill(&workload, mount, dice.below(60_000), tally);
    }
    for _ in 0..5 {
        lie_at(&workload, 1 + dice.below(300), dice.one_of(&LIES), tally);
    }
    let recorded = Recorded::new(&workload);
    for _ in 0..10 {
        let site = dice.below(recorded.crashed.len() as u64) as usize;
        let down = dice.one_of(&[Down::Kill, Down::Power]);
        recorded.crash(site, down, Some((dice.below(17), 17)), tally);
    }
    // Later calls of the long ones too. Last, so that seed 30479 of `tests/known.rs` meets what it
    // met.
    let calls = recorded.crashed.len() as u64;
    for _ in 0..8 {
        let (error, lie) = (dice.one_of(&ERRORS), dice.one_of(&LIES));
        fail_at(&workload, 1 + dice.below(calls), error, tally);
        lie_at(&workload, 1 + dice.below(calls), lie, tally);
    }
}
