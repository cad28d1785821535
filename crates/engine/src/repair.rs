//! What `repair` does: makes a store that can be opened out of one that cannot,
//! keeping everything that can be read.
//!
//! It never makes things worse: the tables it cannot use, the log it cannot
//! replay, and every file that nothing names afterwards are put into the
//! directory `lost` of their tier, before the new manifest takes over. Until
//! that moment the store is as it was, and a repair that was cut short can be
//! run again: it begins by undoing what that one left (`attempt`). An error that
//! passes costs nothing, as a device is asked again before its bytes count as
//! lost; one that is no fault of the bytes ends the repair (`patient`).
//!
//! Where the manifest can be read, its version stands. A table with damaged
//! blocks is written anew from its sound ones and takes the old one's place; a
//! table whose meta is damaged is written anew from its blocks, where these say
//! all there was in it. The log is kept up to where it is damaged.
//!
//! Where the manifest cannot be read, or edits in its middle cannot, places are
//! lost, and with them what said which of two overlapping tables is newer. The
//! order of sequence numbers does not say it: one table can have the newer
//! version of one key and the older version of another. So tables that overlap
//! are merged, together with what is in the log, entry by entry, by number;
//! tables that overlap nothing stay as they are. All of it becomes one run. What
//! that cannot know, the report says: a table that a merge had replaced, and
//! that was not deleted yet, can bring back a key whose delete was merged away.

mod attempt;
mod base;
mod install;
mod keep;
mod known;
mod log;
mod patient;
mod rebuild;
mod report;
mod rescue;
mod rewrite;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use thermocline_model::key::SeqNo;
use thermocline_model::tier::TierId;

use self::patient::Patient;
use crate::error::{Error, Result};
use crate::lock::{Patience, StoreLock};
use crate::log::{list_segments, parse_segment};
use crate::open::check_log_tier;
use crate::options::Options;
use crate::store::{Environment, FileSystem, ObjectName, is_given_id};
use crate::verify::{Examined, Meter, Phase, Problem, Progress, check_directories, examine, home};
use crate::version::manifest;
use crate::version::pointer::Pointer;
use crate::version::tree::TableHome;

/// A table of which nothing could be saved.
///
/// ```
/// # use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let db = Db::open(Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// db.flush()?;
/// let table = db.tables()[0].id;
/// db.close()?;
/// for file in std::fs::read_dir(directory.path()).unwrap().flatten() {
///     if file.path().extension().is_some_and(|e| e == "data" || e == "meta") {
///         std::fs::remove_file(file.path()).unwrap();
///     }
/// }
/// let report = thermocline::repair(Options::at(directory.path()))?;
/// assert_eq!(report.tables_lost[0].table, table);
/// assert_eq!(report.key_ranges_lost[0].first_key, b"key");
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LostTable {
    /// Its number.
    pub table: u64,
    /// Its keyspace, as far as that is known.
    pub keyspace: String,
    /// Its keys, escaped.
    pub range: String,
    /// Its entries.
    pub entries: u64,
    /// Why.
    pub why: String,
}

/// Keys of which entries were lost: some of those from `first_key` to `last_key`, both
/// included. Of a damaged block only what separates it from its neighbours is known,
/// so neither needs to be a key that was there: they are bounds, and no lost entry lies
/// outside of them.
///
/// ```
/// # use thermocline::LostRange;
/// /// What to ask another replica for.
/// fn ranges(report: &thermocline::RepairReport) -> impl Iterator<Item = (&[u8], &[u8])> {
///     report.key_ranges_lost.iter().map(|lost| (&*lost.first_key, &*lost.last_key))
/// }
/// let lost = LostRange {
///     keyspace: "default".into(),
///     table: 7,
///     first: "a".into(),
///     last: "c".into(),
///     first_key: b"a".into(),
///     last_key: b"c".into(),
///     why: "a block is damaged".into(),
/// };
/// let report = thermocline::RepairReport { key_ranges_lost: vec![lost], ..Default::default() };
/// assert_eq!(ranges(&report).next(), Some((&b"a"[..], &b"c"[..])));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LostRange {
    /// In which keyspace; empty where that is not known.
    pub keyspace: String,
    /// In which table.
    pub table: u64,
    /// [`LostRange::first_key`], escaped.
    pub first: String,
    /// [`LostRange::last_key`], escaped.
    pub last: String,
    /// No key before this one lost an entry here.
    #[serde(skip)]
    pub first_key: Vec<u8>,
    /// No key behind this one lost an entry here.
    #[serde(skip)]
    pub last_key: Vec<u8>,
    /// Why.
    pub why: String,
}

/// What [`repair`] did, saved and lost.
///
/// ```
/// # use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// Db::open(Options::at(directory.path()))?.put(b"key", b"value")?;
/// let report = thermocline::repair(Options::at(directory.path()))?;
/// assert!(report.was_sound && report.lost.is_empty());
/// assert_eq!(report.to_string(), "nothing is wrong, and nothing was changed");
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize)]
pub struct RepairReport {
    /// Nothing was wrong, and nothing was changed.
    pub was_sound: bool,
    /// What was wrong.
    pub problems: Vec<Problem>,
    /// Tables kept as they were.
    pub tables_kept: u64,
    /// Tables written anew, from what could be read.
    pub tables_rewritten: u64,
    /// Tables of which nothing was saved.
    pub tables_lost: Vec<LostTable>,
    /// Bounds of keys of which entries were lost: older values of them may be back.
    pub key_ranges_lost: Vec<LostRange>,
    /// Entries of the log that were saved.
    pub log_entries_kept: u64,
    /// The first and the last number of the log entries that were lost.
    pub log_numbers_lost: Option<(u64, u64)>,
    /// Whether later ones may have been lost as well: the log ends with damage
    /// in which nothing can be read.
    pub log_numbers_lost_or_later: bool,
    /// Nothing says where the log began: entries up to this number are lost, if they
    /// were not in tables.
    pub log_start_unknown: Option<u64>,
    /// Nothing says where the log ended: entries from this number on are lost, if there
    /// were any.
    pub log_end_unknown: Option<u64>,
    /// Files put into the directory `lost` of their tier.
    pub moved_aside: Vec<PathBuf>,
    /// What should be known besides.
    pub notes: Vec<String>,
    /// What was lost, or may have been, in words; empty when nothing was.
    pub lost: Vec<String>,
}

/// Repairs the store of `options`. A sound store is left alone.
///
/// ```
/// use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::at(directory.path());
/// let db = Db::open(options.clone())?;
/// db.put(b"k", b"v")?;
/// db.close()?;
/// std::fs::remove_file(directory.path().join("CURRENT")).unwrap();
/// assert!(Db::open(options.clone()).is_err());
/// let report = thermocline::repair(options.clone())?;
/// assert!(report.lost.is_empty(), "{report}");
/// assert_eq!(Db::open(options)?.get(b"k")?.as_deref(), Some(&b"v"[..]));
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// What is lost is in the report and no error. [`ErrorKind::NotFound`] when
/// there is no store; [`ErrorKind::WrongTier`] when a tier is missing, of
/// another store, or in another's place; [`ErrorKind::Locked`] when the store
/// is open; [`ErrorKind::Unsupported`] when a file is of a newer format;
/// [`ErrorKind::NoSpace`], [`ErrorKind::Io`] and [`ErrorKind::Poisoned`] from the
/// devices: what was not lost before is not lost then, and repair can be run again.
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
/// [`ErrorKind::WrongTier`]: crate::ErrorKind::WrongTier
/// [`ErrorKind::Locked`]: crate::ErrorKind::Locked
/// [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
/// [`ErrorKind::NoSpace`]: crate::ErrorKind::NoSpace
/// [`ErrorKind::Io`]: crate::ErrorKind::Io
/// [`ErrorKind::Poisoned`]: crate::ErrorKind::Poisoned
pub fn repair(options: Options) -> Result<RepairReport> {
    repair_with(options, &mut |_| {})
}

/// As [`repair`], and tells `observer` how far it has come, phase by phase; a
/// sound store has the first phase only.
///
/// # Errors
/// As [`repair`].
///
/// ```
/// # use thermocline::{Db, Options, Phase};
/// # let directory = tempfile::tempdir().unwrap();
/// Db::open(Options::at(directory.path()))?.close()?;
/// std::fs::write(directory.path().join("CURRENT"), b"nonsense").unwrap();
/// let mut phases = Vec::new();
/// thermocline::repair_with(Options::at(directory.path()), &mut |progress| {
///     phases.push(progress.phase);
/// })?;
/// phases.dedup();
/// assert_eq!(phases, [Phase::Check, Phase::Save, Phase::CheckAgain]);
/// # Ok::<(), thermocline::Error>(())
/// ```
pub fn repair_with(options: Options, observer: &mut dyn FnMut(Progress)) -> Result<RepairReport> {
    repair_on(options, &Environment::real(), observer)
}

/// As [`repair`], in an environment of the caller's, such as a simulated one.
///
/// # Errors
/// As [`repair`].
///
/// ```
/// # use thermocline::{Db, Options, store::Environment};
/// # let directory = tempfile::tempdir().unwrap();
/// Db::open(Options::at(directory.path()))?.close()?;
/// let report = thermocline::repair_in(Options::at(directory.path()), &Environment::real())?;
/// assert!(report.was_sound);
/// # Ok::<(), thermocline::Error>(())
/// ```
pub fn repair_in(options: Options, environment: &Environment) -> Result<RepairReport> {
    repair_on(options, environment, &mut |_| {})
}

fn repair_on(
    options: Options,
    environment: &Environment,
    observer: &mut dyn FnMut(Progress),
) -> Result<RepairReport> {
    options.check()?;
    check_directories(&options, environment)?;
    let _lock = StoreLock::take_in(&options, environment, &mut Patience::of_a_moment())?;
    let patient = Patient::new(environment);
    let environment = &Environment {
        file_system: Arc::clone(&patient) as Arc<dyn FileSystem>,
        ..environment.clone()
    };
    let lowest_id = attempt::undo(&options, environment)?;
    let mut meter = Meter::new(observer);
    let examined = examine(&options, environment, &mut meter);
    patient.check()?;
    let mut examined = examined?;
    let unreadable = patient.unreadable();
    // Of tables it has been said where a block is concerned.
    let unread = unreadable.iter().filter_map(|path| {
        let name = path.file_name()?.to_string_lossy();
        let is_needed = parse_segment(&name)
            .or(manifest::number_of(&name))
            .is_some();
        is_needed.then(|| Problem::unreadable(path))
    });
    examined.report.problems.extend(unread);
    if let Some(error) = &examined.unsupported {
        // It may all be sound, to a program that understands it.
        return Err(error.clone());
    }
    if examined.report.problems.is_empty() {
        return Ok(RepairReport {
            was_sound: true,
            tables_kept: examined.report.tables,
            log_entries_kept: examined.report.log_entries,
            ..RepairReport::default()
        });
    }
    base::check_manifest_tier_there(&options, environment)?;
    if list_segments(&*environment.file_system, options.log_directory())?.is_empty() {
        // Where they name a tier without the log, it would be given up as lost.
        check_log_tier(&options, environment, 0)?;
    }
    let mut repair = Repair::new(&options, environment, &examined, meter)?;
    let named = |path: &PathBuf| parse_segment(&path.file_name()?.to_string_lossy());
    repair.unreadable = unreadable.iter().filter_map(named).collect();
    repair.next_id = repair.next_id.max(lowest_id);
    let mut version = match repair.remains() {
        Some(remains) if remains.gap.is_none() => repair.keep_places(&remains, &examined)?,
        remains => repair.rebuild(remains.unwrap_or_default())?,
    };
    patient.check()?;
    repair.finish(&mut version)?;
    repair.meter.end();
    let mut meter = repair.meter;
    meter.begin(Phase::CheckAgain, 0);
    let again = examine(&options, environment, &mut meter)?;
    for problem in again.report.problems {
        let words = format!("still wrong after the repair: {problem}");
        repair.report.lost.push(words);
    }
    Ok(repair.report)
}

/// Every manifest in the directories of the tiers, by number.
fn manifests(options: &Options, environment: &Environment) -> Result<Vec<Pointer>> {
    let mut manifests = Vec::new();
    for (tier, id) in options.tiers.iter().zip(0u32..) {
        let list = environment.file_system.list(tier.path());
        for entry in list.map_err(|e| Error::io("listing", tier.path(), e))? {
            let number = manifest::number_of(&entry.name.to_string_lossy());
            manifests.extend(number.map(|number| Pointer {
                number,
                tier: TierId(id),
            }));
        }
    }
    manifests.sort_unstable();
    Ok(manifests)
}

struct Repair<'a> {
    options: &'a Options,
    environment: &'a Environment,
    home: Arc<TableHome>,
    meter: Meter<'a>,
    report: RepairReport,
    store_id: u128,
    generation: u64,
    next_id: u64,
    /// Objects from this number on were made here.
    first_new_id: u64,
    /// Numbers up to this one were given.
    last_seq: SeqNo,
    /// The log segment to cut, and where.
    cut: Option<(u64, u64)>,
    /// Log segments to put aside.
    segments: Vec<u64>,
    /// Log segments with places that their device cannot read.
    unreadable: Vec<u64>,
}

impl<'a> Repair<'a> {
    fn new(
        options: &'a Options,
        environment: &'a Environment,
        examined: &Examined,
        meter: Meter<'a>,
    ) -> Result<Repair<'a>> {
        let mut repair = Repair {
            options,
            environment,
            home: home(options, environment),
            meter,
            report: RepairReport {
                problems: examined.report.problems.clone(),
                ..RepairReport::default()
            },
            store_id: 0,
            generation: 0,
            next_id: 1,
            first_new_id: 1,
            last_seq: SeqNo::ZERO,
            cut: None,
            segments: Vec::new(),
            unreadable: Vec::new(),
        };
        let mut object_bytes = 0;
        for tier in &options.tiers {
            let list = environment.file_system.list(tier.path());
            for entry in list.map_err(|e| Error::io("listing", tier.path(), e))? {
                let name = entry.name.to_string_lossy();
                let object = ObjectName::parse(&name).map(|o| o.id);
                object_bytes += object.map_or(0, |_| entry.size_bytes);
                let number = object.or_else(|| manifest::number_of(&name));
                let number = number.filter(|&n| is_given_id(n)).unwrap_or(0);
                repair.next_id = repair.next_id.max(number + 1);
            }
        }
        repair.meter.begin(Phase::Save, object_bytes);
        Ok(repair)
    }

    /// Every manifest there is, on any tier.
    fn manifests(&self) -> Result<Vec<Pointer>> {
        manifests(self.options, self.environment)
    }

    fn directory(&self) -> &'a Path {
        self.options.tiers[0].path()
    }

    /// The tier, or the first one where what names it names none there is.
    fn tier_there(&self, tier: TierId) -> TierId {
        match self.options.tiers.get(tier.0 as usize) {
            Some(_) => tier,
            None => TierId(0),
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }
}
