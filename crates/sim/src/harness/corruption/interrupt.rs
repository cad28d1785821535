//! A repair that is cut short at any call, or meets an error there.
//!
//! Whatever stops a repair, the store is none the worse: it opens, or is refused
//! by name, or is repaired again, and what a repair that nothing stopped would
//! have kept is kept. What a repair reports is there for good.

use thermocline::{Db, ErrorKind, RepairReport, repair_in, verify_in};

use super::damage::Damage;
use super::examine::{Excuses, named};
use super::store::{Small, disk_of};
use super::truth::{Allowed, Answers, Image, allowed, tables_gone};
use crate::disk::{Disk, Down, Fault};
use crate::{Dice, Tally};

/// A damaged store, and what a repair that nothing stops makes of it.
pub struct Case<'a> {
    store: &'a Small,
    /// In words, for messages.
    what: String,
    damaged: Image,
    allowed: Allowed,
    excuses: Excuses,
    /// The calls of that repair.
    pub calls: u64,
}

impl Case<'_> {
    /// Repairs the damaged store, with nothing in the way. Nothing where there is
    /// nothing to repair, or where that is refused.
    ///
    /// # Errors
    /// What the repair did that it must not do.
    pub fn new<'a>(store: &'a Small, damage: &Damage) -> Result<Option<Case<'a>>, String> {
        let damaged = damage.to(&store.image);
        let disk = disk_of(&damaged, &store.options, 1);
        let before = disk.calls();
        let report = match repair_in(store.options.clone(), &disk.environment()) {
            Ok(report) if !report.was_sound => report,
            _ => return Ok(None),
        };
        let calls = disk.calls() - before;
        let allowed = allowed(&store.image, &damaged, &store.history);
        let case = Case {
            store,
            what: format!("{}: {}", store.name, damage.what),
            excuses: Excuses::of(&report, allowed, tables_gone(&store.image, &damaged)),
            damaged,
            allowed,
            calls,
        };
        disk.reboot(Down::Power);
        let mut tally = Tally::default();
        case.sound(&disk, &report, &mut tally)
            .map_err(|e| case.words("a power failure after the repair", &e))?;
        Ok(Some(case))
    }

    fn words(&self, when: &str, what: &str) -> String {
        format!("{}, {when}: {what}", self.what)
    }

    fn disk(&self) -> Disk {
        disk_of(&self.damaged, &self.store.options, 1)
    }

    fn repair(&self, disk: &Disk) -> thermocline::Result<RepairReport> {
        repair_in(self.store.options.clone(), &disk.environment())
    }

    /// A crash at every call of the repair that `takes` its number, and again at a
    /// call of the second repair.
    ///
    /// # Errors
    /// What was lost, or does not go on.
    pub fn crashes(
        &self,
        mut takes: impl FnMut(usize) -> bool,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let disk = self.disk();
        disk.record_crashes();
        self.repair(&disk)
            .map_err(|e| self.words("again", &e.to_string()))?;
        for (site, crashed) in disk.recorded_crashes().iter().enumerate() {
            if !takes(site) {
                continue;
            }
            for down in [Down::Kill, Down::Power] {
                let disk = crashed.disk(site as u64, down);
                tally.fault("crash-in-repair");
                let again = (down == Down::Power).then_some(site);
                self.goes_on(&disk, again, tally)
                    .map_err(|e| self.words(&format!("{down:?} at site {site}"), &e))?;
            }
        }
        Ok(())
    }

    /// What is left opens or is refused by name, and is repaired; `crash` asks for
    /// a crash in that repair.
    fn goes_on(&self, disk: &Disk, crash: Option<usize>, tally: &mut Tally) -> Result<(), String> {
        self.opens(&disk.fork(7), tally)?;
        if let Some(site) = crash {
            let second = disk.fork(8);
            second.record_crashes();
            self.repair(&second)
                .map_err(|e| format!("the second repair gives up: {e}"))?;
            let crashes = second.recorded_crashes();
            if !crashes.is_empty() {
                let at = site * 7 % crashes.len();
                let third = crashes[at].disk(site as u64, Down::Power);
                tally.fault("crash-in-second-repair");
                self.goes_on(&third, None, tally)
                    .map_err(|e| format!("power at site {at} of the second repair: {e}"))?;
            }
        }
        if self.allowed == Allowed::Right && disk.calls().is_multiple_of(2) {
            // An opening in between, which may delete what nothing names.
            self.opens(disk, tally)?;
        }
        let report = self
            .repair(disk)
            .map_err(|e| format!("the next repair gives up: {e}"))?;
        self.sound(disk, &report, tally)
    }

    /// It opens with right answers, or an error that names the place.
    fn opens(&self, disk: &Disk, tally: &mut Tally) -> Result<(), String> {
        let words = |e: String| format!("opened unrepaired: {e}");
        match Db::open_in(self.store.options.clone(), &disk.environment()) {
            Err(error) => named(&error).map_err(words),
            Ok(db) => {
                let answers = Answers::of(&db, &self.store.history, false);
                tally.operations += answers.count;
                tally.crashes += 1;
                for error in &answers.errors {
                    named(error).map_err(words)?;
                }
                self.right(&answers).map_err(words)
            }
        }
    }

    fn right(&self, answers: &Answers) -> Result<(), String> {
        let history = &self.store.history;
        let right = answers.check_allowed(history, self.allowed, false);
        if right.is_ok() {
            return Ok(());
        }
        let must = |place: &_, ever: &[_]| !self.excuses.excuses(place, ever);
        answers.check_kept(history, self.excuses.mixed, &must)
    }

    /// It is sound, opens, and has what a repair that nothing stopped would have
    /// kept.
    fn sound(&self, disk: &Disk, report: &RepairReport, tally: &mut Tally) -> Result<(), String> {
        let told = |e: String| format!("repaired: {e}\n{report}");
        let options = || self.store.options.clone();
        let sound = verify_in(options(), &disk.environment()).map_err(|e| told(e.to_string()))?;
        if !sound.problems.is_empty() {
            return Err(told(format!("not sound: {sound}")));
        }
        let db = Db::open_in(options(), &disk.environment()).map_err(|e| told(e.to_string()))?;
        let answers = Answers::of(&db, &self.store.history, true);
        tally.operations += answers.count;
        tally.crashes += 1;
        match answers.errors.first() {
            Some(error) => Err(told(error.to_string())),
            None => self.right(&answers).map_err(told),
        }
    }

    /// The `n`-th call of the repair that `fault` can happen to fails; says whether
    /// there was one.
    ///
    /// # Errors
    /// What was lost, or does not go on.
    pub fn fails(&self, n: u64, fault: Fault, tally: &mut Tally) -> Result<bool, String> {
        let when = format!("{fault:?} at its call {n}");
        let words = |e: String| self.words(&when, &e);
        let disk = self.disk();
        disk.fault_in(n, fault);
        let repaired = self.repair(&disk);
        if disk.faults_met() == 0 {
            return Ok(false);
        }
        tally.fault(fault.name());
        disk.heal();
        match repaired {
            Ok(report) => {
                // What it says it did is there for good.
                disk.reboot(Down::Power);
                self.sound(&disk, &report, tally).map_err(words)?;
            }
            Err(error) => {
                let lawful = matches!(
                    error.kind(),
                    ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Poisoned
                );
                if !lawful || matches!(fault, Fault::Interrupted | Fault::Short) {
                    return Err(words(format!("{:?}: {error}", error.kind())));
                }
                let down = [Down::Kill, Down::Power][n as usize % 2];
                disk.reboot(down);
                self.goes_on(&disk, None, tally)
                    .map_err(|e| words(format!("{error}, then {down:?}: {e}")))?;
            }
        }
        Ok(true)
    }
}

/// A few crashes and errors in a repair of the damaged store, drawn.
///
/// # Errors
/// What was lost, or does not go on.
pub fn drawn(
    store: &Small,
    damage: &Damage,
    dice: &mut Dice,
    tally: &mut Tally,
) -> Result<(), String> {
    let Some(case) = Case::new(store, damage)? else {
        return Ok(());
    };
    let site = dice.below(case.calls) as usize;
    case.crashes(|s| s == site, tally)?;
    let fault = dice.one_of(&super::super::faults::ERRORS);
    case.fails(1 + dice.below(case.calls / 2), fault, tally)
        .map(drop)
}
