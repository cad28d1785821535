//! One damaged store: opened, read, verified, repaired.

use std::ops::Range;
use std::path::{Path, PathBuf};

use thermocline::{
    DEFAULT_KEYSPACE, Db, Error, ErrorKind, Options, RepairReport, repair_in, verify_in,
};

use super::damage::Damage;
use super::store::{Small, disk_of};
use super::truth::{Allowed, Answers, Fit, Given, Image, Place, allowed, tables_gone};
use crate::Tally;
use crate::disk::Disk;

/// I/O calls that anything done to a small store takes at the most: what takes
/// more does not end.
const CALLS_MAX: u64 = 200_000;

/// What became of a damaged store, for counts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// It was not opened.
    pub refused: bool,
    /// `verify` found something.
    pub noticed: bool,
    /// How it answered, where it opened.
    pub fit: Fit,
    /// `repair` said that something was lost.
    pub lost: bool,
}

/// Does `damage` to the store and looks at it from all sides.
///
/// # Errors
/// What the store did that it must not do.
pub fn examine(store: &Small, damage: &Damage, tally: &mut Tally) -> Result<Outcome, String> {
    let mut case = Case {
        store,
        damage,
        damaged: damage.to(&store.image),
        backward: damage.what.len().is_multiple_of(2),
        allowed: Allowed::Right,
        unreadable: None,
        outcome: Outcome::default(),
        tally,
    };
    case.allowed = allowed(&store.image, &case.damaged, &store.history);
    case.tally.corruptions += 1;
    case.verify()?;
    case.open()?;
    if case.outcome.noticed {
        case.repair()?;
    }
    Ok(case.outcome)
}

/// Repairs the store with these bytes of a file unreadable for good: they count as
/// damaged.
///
/// # Errors
/// What the repair did that it must not do.
pub fn examine_unreadable(
    store: &Small,
    path: &Path,
    bytes: Range<usize>,
    tally: &mut Tally,
) -> Result<Outcome, String> {
    let mut garbled = store.image[path].to_vec();
    garbled[bytes.clone()].fill(0xff);
    let what = format!("{} unreadable in {bytes:?}", path.display());
    let damage = Damage::one(what, path, Some(garbled));
    let damaged = damage.to(&store.image);
    let mut case = Case {
        store,
        damage: &damage,
        backward: false,
        allowed: allowed(&store.image, &damaged, &store.history),
        damaged,
        unreadable: Some((path.to_path_buf(), bytes)),
        outcome: Outcome::default(),
        tally,
    };
    case.tally.corruptions += 1;
    case.repair().map_err(|e| format!("{}: {e}", damage.what))?;
    Ok(case.outcome)
}

struct Case<'a> {
    store: &'a Small,
    damage: &'a Damage,
    /// What cannot be read of a file.
    unreadable: Option<(PathBuf, Range<usize>)>,
    damaged: Image,
    backward: bool,
    allowed: Allowed,
    outcome: Outcome,
    tally: &'a mut Tally,
}

impl Case<'_> {
    fn options(&self) -> Options {
        self.store.options.clone()
    }

    fn disk(&self) -> Disk {
        let disk = disk_of(&self.damaged, &self.store.options, 1);
        if let Some((path, bytes)) = &self.unreadable {
            disk.make_unreadable(path, bytes.clone());
        }
        disk
    }

    fn verify(&mut self) -> Result<(), String> {
        let disk = self.disk();
        match verify_in(self.options(), &disk.environment()) {
            Ok(report) => {
                self.outcome.noticed = !report.problems.is_empty();
                for problem in &report.problems {
                    let inside = self.has_path(&problem.path);
                    if !inside || problem.what.is_empty() {
                        return Err(format!("verify: a problem without a place: {problem}"));
                    }
                }
            }
            Err(error) => {
                self.outcome.noticed = true;
                named(&error).map_err(|e| format!("verify: {e}"))?;
            }
        }
        self.same_files(&disk, "verify")?;
        ended(&disk, "verify")
    }

    fn has_path(&self, path: &Path) -> bool {
        let tiers = self.store.options.tier_list();
        tiers.iter().any(|tier| path.starts_with(tier.path()))
    }

    fn open(&mut self) -> Result<(), String> {
        let disk = self.disk();
        let opened = Db::open_in(self.options(), &disk.environment());
        ended(&disk, "open")?;
        let db = match opened {
            Ok(db) => db,
            Err(error) => {
                self.outcome.refused = true;
                named(&error).map_err(|e| format!("open: {e}"))?;
                if !self.outcome.noticed {
                    return Err(format!(
                        "verify finds it sound, and it does not open: {error}"
                    ));
                }
                return self.undo(&disk, &error);
            }
        };
        let answers = Answers::of(&db, &self.store.history, self.backward);
        self.tally.operations += answers.count;
        for error in &answers.errors {
            named(error).map_err(|e| format!("read: {e}"))?;
            if !self.outcome.noticed {
                return Err(format!("verify finds it sound, and a read fails: {error}"));
            }
        }
        let history = &self.store.history;
        self.outcome.fit = answers
            .check_allowed(history, self.allowed, self.backward)
            .map_err(|e| format!("{:?}: {e}", self.allowed))?;
        self.told(&db)?;
        ended(&disk, "read")
    }

    /// What is whole of the record of events is told.
    fn told(&self, db: &Db) -> Result<(), String> {
        let record = &self.store.record;
        record.check(&self.damaged, &self.store.options, db)
    }

    /// A refused store is none the worse: with the damage undone it opens.
    fn undo(&mut self, disk: &Disk, refusal: &Error) -> Result<(), String> {
        if self.same_files(disk, "open").is_ok() {
            return Ok(());
        }
        for (path, _) in &self.damage.changes {
            match self.store.image.get(path) {
                same if same == self.damaged.get(path) => {}
                Some(bytes) => disk.put_file(path, bytes),
                None => disk.remove_all(path),
            }
        }
        let context = |e| format!("refused ({refusal}), and with the damage undone: {e}");
        let db =
            Db::open_in(self.options(), &disk.environment()).map_err(|e| context(e.to_string()))?;
        let answers = Answers::of(&db, &self.store.history, self.backward);
        if let Some(error) = answers.errors.first() {
            return Err(context(error.to_string()));
        }
        answers
            .check_allowed(&self.store.history, Allowed::Right, self.backward)
            .map_err(context)
            .map(drop)
    }

    /// Locks and directories may be made; nothing else changes.
    fn same_files(&self, disk: &Disk, who: &str) -> Result<(), String> {
        let files = disk.files();
        for (path, bytes) in &self.damaged {
            if files.get(path).map(|b| &b[..]) != Some(&bytes[..]) {
                return Err(format!("{who} changed {}", path.display()));
            }
        }
        let new = files
            .keys()
            .find(|p| !self.damaged.contains_key(*p) && p.file_name().is_some_and(|n| n != "LOCK"));
        match new {
            Some(path) => Err(format!("{who} made {}", path.display())),
            None => Ok(()),
        }
    }

    fn repair(&mut self) -> Result<(), String> {
        let disk = self.disk();
        let repaired = repair_in(self.options(), &disk.environment());
        ended(&disk, "repair")?;
        let report = match repaired {
            Ok(report) => report,
            Err(error) => {
                named(&error).map_err(|e| format!("repair: {e}"))?;
                return match error.kind() {
                    ErrorKind::WrongTier | ErrorKind::NotFound => self.undo(&disk, &error),
                    _ => Err(format!("repair gives up: {error}")),
                };
            }
        };
        self.outcome.lost = !report.lost.is_empty();
        let told = |e: String| format!("repaired: {e}\n{report}");
        let sound =
            verify_in(self.options(), &disk.environment()).map_err(|e| told(e.to_string()))?;
        if !sound.problems.is_empty() {
            return Err(told(format!("not sound: {sound}")));
        }
        let db =
            Db::open_in(self.options(), &disk.environment()).map_err(|e| told(e.to_string()))?;
        let answers = Answers::of(&db, &self.store.history, self.backward);
        self.tally.operations += answers.count;
        if let Some(error) = answers.errors.first() {
            return Err(told(error.to_string()));
        }
        if self.unreadable.is_none() {
            // Of a record that cannot be read no more need be told.
            self.told(&db).map_err(told)?;
        }
        // What a crash excuses needs no report; the rest does.
        let right = answers.check_allowed(&self.store.history, self.allowed, self.backward);
        if right.is_err() {
            let excuses = Excuses::of(
                &report,
                self.allowed,
                tables_gone(&self.store.image, &self.damaged),
            );
            let must = |place: &Place, ever: &[_]| !excuses.excuses(place, ever);
            answers
                .check_kept(&self.store.history, excuses.mixed, &must)
                .map_err(told)?;
        }
        if self.damage.what.len().is_multiple_of(16) {
            self.goes_on(db, &disk).map_err(told)?;
        }
        ended(&disk, "repaired")
    }

    /// A repaired store goes on as a store.
    fn goes_on(&self, db: Db, disk: &Disk) -> Result<(), String> {
        let words = |e: Error| format!("afterwards: {e}");
        db.put(b"after", b"repair").map_err(words)?;
        db.flush().map_err(words)?;
        db.settle().map_err(words)?;
        db.put(b"after", b"all").map_err(words)?;
        db.close().map_err(words)?;
        let sound = verify_in(self.options(), &disk.environment()).map_err(words)?;
        if !sound.problems.is_empty() {
            return Err(format!("afterwards: {sound}"));
        }
        let db = Db::open_in(self.options(), &disk.environment()).map_err(words)?;
        let found = db.get(b"after").map_err(words)?;
        match found.as_deref() {
            Some(b"all") => Ok(()),
            other => Err(format!("afterwards: {other:?}")),
        }
    }
}

/// What a report says may be lost, or older than it was.
pub(super) struct Excuses {
    /// Everything: the report says so in words.
    all: bool,
    /// Keyspaces may have another name.
    names: bool,
    /// Keyspaces with nothing in them may be gone.
    empty: bool,
    /// What was of one keyspace may be in another.
    pub(super) mixed: bool,
    ranges: Vec<(String, Vec<u8>, Vec<u8>)>,
    numbers: Option<(u64, u64)>,
    /// Up to this one the log may have lost them.
    until: u64,
    /// What came after this number a crash may have taken.
    since: u64,
}

impl Excuses {
    /// `tables_gone` says whether the files of a whole table may be, see [`tables_gone`].
    pub(super) fn of(report: &RepairReport, allowed: Allowed, tables_gone: bool) -> Excuses {
        let says = |words: &str| report.lost.iter().any(|l| l.contains(words));
        let ranges = report.key_ranges_lost.iter();
        Excuses {
            all: says("the meta of a table cannot be read")
                || says("its meta is not to be found")
                || says("no manifest can be read")
                || tables_gone && says("neither an edit nor a file"),
            names: says("the name of keyspace"),
            empty: says("empty keyspaces"),
            mixed: says("no manifest can be read") || says("it is in the default one now"),
            ranges: ranges
                .map(|r| (r.keyspace.clone(), r.first_key.clone(), r.last_key.clone()))
                .collect(),
            numbers: match (report.log_numbers_lost, report.log_end_unknown) {
                (Some((first, _)), _) if report.log_numbers_lost_or_later => {
                    Some((first, u64::MAX))
                }
                (None, Some(first)) => Some((first, u64::MAX)),
                (lost, _) => lost,
            },
            until: report.log_start_unknown.unwrap_or(0),
            since: match allowed {
                Allowed::Right => u64::MAX,
                Allowed::Since(durable) => durable,
                Allowed::Ever => 0,
            },
        }
    }

    pub(super) fn excuses(&self, (keyspace, key): &Place, ever: &[Given]) -> bool {
        let inside = |(name, first, last): &(String, Vec<u8>, Vec<u8>)| {
            (name == keyspace || name.is_empty()) && (first..=last).contains(&key)
        };
        let (first, last) = self.numbers.unwrap_or((1, 0));
        let numbered = || {
            ever.iter()
                .any(|(n, _)| (first..=last).contains(n) || *n > self.since || *n <= self.until)
        };
        self.all
            || self.names && keyspace != DEFAULT_KEYSPACE
            || self.empty && keyspace != DEFAULT_KEYSPACE && key.is_empty()
            || self.ranges.iter().any(inside)
            || numbered()
    }
}

fn ended(disk: &Disk, who: &str) -> Result<(), String> {
    match disk.calls() {
        calls if calls > CALLS_MAX => Err(format!("{who} took {calls} I/O calls")),
        _ => Ok(()),
    }
}

/// Requires that the error says what is wrong and where.
pub(super) fn named(error: &Error) -> Result<(), String> {
    let lawful = matches!(
        error.kind(),
        ErrorKind::Corruption | ErrorKind::WrongTier | ErrorKind::Unsupported | ErrorKind::NotFound
    );
    let path: Option<PathBuf> = error.path().map(Path::to_path_buf);
    if !lawful || path.is_none() {
        return Err(format!("no error for damage: {:?}: {error}", error.kind()));
    }
    Ok(())
}
