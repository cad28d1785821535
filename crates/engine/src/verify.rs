//! What `verify` does: reads every byte of a store and checks all that can be
//! checked, changing nothing.
//!
//! It goes on behind what it finds, as far as the rest makes sense without it:
//! where the manifest is damaged, with the edits before the damage; where a
//! block is damaged, with the next block.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use thermocline_model::check;
use thermocline_model::key::SeqNo;
use thermocline_model::tier::TierId;
use thermocline_model::version::Version;

use crate::batch::Operations;
use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::StoreLock;
use crate::log;
use crate::open::tier_problems;
use crate::options::Options;
use crate::stats::size;
use crate::store::{
    Environment, LocalStore, LocalStoreOptions, ObjectKind, ObjectName, Store, TierIdentity,
};
use crate::table::TableContext;
use crate::version::manifest::{self, ReadBack};
use crate::version::tree::{Graveyard, OpenTable, TableHome};

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Problem {
    /// The file or directory.
    pub path: PathBuf,
    /// Where in it, in bytes.
    pub offset: Option<u64>,
    /// What is wrong, in words.
    pub what: String,
}

impl Problem {
    fn of(error: &Error, otherwise: &Path) -> Problem {
        Problem {
            path: error.path().unwrap_or(otherwise).to_path_buf(),
            offset: error.offset_at(),
            what: error.words(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at {offset}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// What [`verify`] read and found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Tiers.
    pub tiers: u64,
    /// Keyspaces.
    pub keyspaces: u64,
    /// Tables.
    pub tables: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Their entries, deletes included.
    pub entries: u64,
    /// Their bytes, metadata included.
    pub bytes: u64,
    /// Bytes of the manifest.
    pub manifest_bytes: u64,
    /// Of these, bytes of an edit that a crash cut short: it never took effect.
    pub manifest_torn_bytes: u64,
    /// Frames in the log that are still needed.
    pub log_frames: u64,
    /// Their entries.
    pub log_entries: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// Bytes behind the log's end that a crash left: never acknowledged as
    /// durable.
    pub log_torn_bytes: u64,
    /// Files that nothing names: what a crash left of unfinished work. They
    /// are deleted when the store is opened.
    pub orphans: Vec<PathBuf>,
    /// What is wrong; empty for a sound store.
    pub problems: Vec<Problem>,
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "tables   {} with {} blocks, {} entries, {} on {} {}",
            self.tables,
            self.blocks,
            self.entries,
            size(self.bytes),
            self.tiers,
            if self.tiers == 1 { "tier" } else { "tiers" }
        )?;
        write!(f, "manifest {}", size(self.manifest_bytes))?;
        if self.manifest_torn_bytes > 0 {
            write!(
                f,
                ", of which {} bytes torn by a crash",
                self.manifest_torn_bytes
            )?;
        }
        write!(
            f,
            "\nlog      {} frames, {} entries, {}",
            self.log_frames,
            self.log_entries,
            size(self.log_bytes)
        )?;
        if self.log_torn_bytes > 0 {
            write!(
                f,
                ", and {} bytes torn by a crash behind its end",
                self.log_torn_bytes
            )?;
        }
        if !self.orphans.is_empty() {
            write!(
                f,
                "\norphans  {} files of unfinished work",
                self.orphans.len()
            )?;
        }
        if self.problems.is_empty() {
            return write!(f, "\nno problems");
        }
        let s = if self.problems.len() == 1 { "" } else { "s" };
        write!(f, "\n{} problem{s}:", self.problems.len())?;
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

/// Reads everything in the store of `options` and checks every checksum and
/// every invariant. Changes nothing; the store must not be open elsewhere.
///
/// ```
/// use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::at(directory.path());
/// Db::open(options.clone())?.put(b"k", b"v")?;
/// let report = thermocline::verify(options)?;
/// assert!(report.problems.is_empty(), "{report}");
/// assert_eq!(report.log_entries, 1);
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// What is damaged is in the report and no error. [`ErrorKind::NotFound`] when
/// there is no store, [`ErrorKind::WrongTier`] when a tier's directory is
/// missing, [`ErrorKind::Locked`] when the store is open,
/// [`ErrorKind::InvalidArgument`] for an option out of range.
pub fn verify(options: Options) -> Result<VerifyReport> {
    verify_in(options, &Environment::real())
}

/// Like [`verify`], on `environment`.
///
/// # Errors
/// As [`verify`].
pub fn verify_in(options: Options, environment: &Environment) -> Result<VerifyReport> {
    options.check()?;
    check_directories(&options, environment)?;
    let _lock = StoreLock::take_in(&options, environment)?;
    Ok(examine(&options, environment)?.report)
}

/// Requires that every tier has its directory.
pub(crate) fn check_directories(options: &Options, environment: &Environment) -> Result<()> {
    for (index, tier) in options.tiers.iter().enumerate() {
        let path = tier.path();
        let metadata = environment.file_system.metadata(path);
        let metadata = metadata.map_err(|e| Error::io("looking for tier directory", path, e))?;
        if metadata.is_none_or(|m| !m.is_directory) {
            let kind = if index == 0 {
                ErrorKind::NotFound
            } else {
                ErrorKind::WrongTier
            };
            let what = format!("directory of tier {:?}", tier.name());
            return Err(Error::new(kind, what).at(path));
        }
    }
    Ok(())
}

/// A report with what `repair` wants to know besides.
pub(crate) struct Examined {
    pub(crate) report: VerifyReport,
    /// The manifest in force, if all of it can be read.
    pub(crate) manifest: Option<ReadBack>,
    /// The tables in which something is wrong.
    pub(crate) damaged: HashSet<u64>,
    /// Whether something is wrong with the log.
    pub(crate) log_is_damaged: bool,
}

/// Reads everything. Requires: the directories exist and are locked.
pub(crate) fn examine(options: &Options, environment: &Environment) -> Result<Examined> {
    let directory = options.tiers[0].path();
    let mut examined = Examined {
        report: VerifyReport {
            tiers: options.tiers.len() as u64,
            ..VerifyReport::default()
        },
        manifest: None,
        damaged: HashSet::new(),
        log_is_damaged: false,
    };
    let report = &mut examined.report;
    let mut identities = Vec::new();
    for tier in &options.tiers {
        identities.push(
            TierIdentity::read(environment, tier.path()).unwrap_or_else(|error| {
                report.problems.push(Problem::of(&error, tier.path()));
                None
            }),
        );
    }
    let (number, read) = find_manifest(options, environment, &identities, report)?;
    let version = match &read {
        Some(read) => {
            if report.problems.is_empty() {
                let problems = tier_problems(options, read, &identities);
                let problems = problems.iter().map(|e| Problem::of(e, directory));
                report.problems.extend(problems);
            }
            report.manifest_torn_bytes = read.torn_bytes;
            read.version.clone()
        }
        None => Version::empty(),
    };
    report.keyspaces = version.keyspaces.len() as u64;
    if let Some(number) = number {
        let path = directory.join(manifest::file_name(number));
        let metadata = environment.file_system.metadata(&path);
        report.manifest_bytes = metadata.ok().flatten().map_or(0, |m| m.size_bytes);
        if let Err(broken) = check::check_version(&version) {
            let error = Error::corruption(broken.to_string()).at(&path);
            report.problems.push(Problem::of(&error, &path));
        }
    }
    if let Some(read) = &read {
        read_log(environment, directory, read, &mut examined);
    }
    let report = &mut examined.report;
    let home = home(options, environment)?;
    if read.is_some() {
        list_orphans(options, environment, &home, &version, number, report)?;
    }
    for meta in version.tables() {
        let before = report.problems.len();
        let mut wrong = |error: Error| report.problems.push(Problem::of(&error, directory));
        let open = OpenTable::new(Arc::clone(meta), &home, None);
        match open.and_then(|open| open.table().cloned()) {
            Ok(table) => {
                let found = table.verify_all(&mut wrong);
                report.tables += 1;
                report.blocks += found.blocks;
                report.entries += found.entries;
                report.bytes += found.bytes;
            }
            Err(error) => wrong(error),
        }
        if report.problems.len() > before {
            examined.damaged.insert(meta.id.0);
        }
    }
    examined.manifest = read;
    Ok(examined)
}

/// The stores of the tiers, for opening tables outside of an engine.
pub(crate) fn home(options: &Options, environment: &Environment) -> Result<Arc<TableHome>> {
    const CACHE_BYTES: u64 = 1 << 20;
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for tier in &options.tiers {
        let how = LocalStoreOptions {
            direct: tier.is_direct(),
        };
        stores.push(Arc::new(LocalStore::open(environment, tier.path(), how)?));
    }
    Ok(Arc::new(TableHome {
        stores,
        context: Arc::new(TableContext::new(Arc::new(BlockCache::new(CACHE_BYTES)))),
        graveyard: Arc::new(Graveyard::default()),
    }))
}

/// The manifest in force. Where the pointer or the manifest is damaged, says so
/// and gives nothing.
fn find_manifest(
    options: &Options,
    environment: &Environment,
    identities: &[Option<TierIdentity>],
    report: &mut VerifyReport,
) -> Result<(Option<u64>, Option<ReadBack>)> {
    let directory = options.tiers[0].path();
    let number = match manifest::current(environment, directory) {
        Ok(Some(number)) => number,
        Ok(None) => {
            let known = identities.iter().any(Option::is_some) || !report.problems.is_empty();
            if !known && !is_store(options, environment)? {
                return Err(Error::new(ErrorKind::NotFound, "no store").at(directory));
            }
            report.problems.push(Problem {
                path: directory.join(manifest::CURRENT),
                offset: None,
                what: "the pointer to the manifest is missing".to_string(),
            });
            return Ok((None, None));
        }
        Err(error) => {
            report.problems.push(Problem::of(&error, directory));
            return Ok((None, None));
        }
    };
    match manifest::read(environment, directory, number) {
        Ok(read) => Ok((Some(number), Some(read))),
        Err(error) => {
            report.problems.push(Problem::of(&error, directory));
            Ok((Some(number), None))
        }
    }
}

/// Whether a tier's directory holds files of a store.
fn is_store(options: &Options, environment: &Environment) -> Result<bool> {
    for tier in &options.tiers {
        let list = environment.file_system.list(tier.path());
        let list = list.map_err(|e| Error::io("listing", tier.path(), e))?;
        let found = list.iter().any(|entry| {
            let name = entry.name.to_string_lossy();
            ObjectName::parse(&name).is_some()
                || log::parse_segment(&name).is_some()
                || manifest::number_of(&name).is_some()
        });
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_log(environment: &Environment, directory: &Path, read: &ReadBack, examined: &mut Examined) {
    let report = &mut examined.report;
    let version = &read.version;
    let before = report.problems.len();
    let mut last = version.last_seq;
    let (mut entries, mut undecoded) = (0, Vec::new());
    let store_id = read.header.store_id;
    let replayed = log::replay(
        environment,
        directory,
        store_id,
        version.log_floor,
        &mut |frame| {
            let count = Operations::new(frame.payload).filter(Result::is_ok).count() as u64;
            let is_whole = Operations::new(frame.payload).all(|o| o.is_ok());
            entries += count;
            last = last.max(SeqNo(frame.first_seq.0 + u64::from(frame.count) - 1));
            if count != u64::from(frame.count) || !is_whole {
                undecoded.push(Problem {
                    path: log::segment_path(directory, frame.segment),
                    offset: Some(frame.offset),
                    what: format!(
                        "frame has {count} of {} operations{}",
                        frame.count,
                        if is_whole {
                            ""
                        } else {
                            ", and bytes that are none"
                        }
                    ),
                });
            }
            Ok(())
        },
    );
    report.log_entries = entries;
    report.problems.append(&mut undecoded);
    match replayed {
        Ok(replayed) => {
            report.log_frames = replayed.frames;
            report.log_bytes = replayed.bytes;
            report.log_torn_bytes = replayed.torn.map_or(0, |t| t.bytes_dropped);
            if replayed.durable_seq > last {
                let missing = Error::corruption("log segments are missing").expected(
                    format!("entries up to {}, which were durable", replayed.durable_seq),
                    last,
                );
                report.problems.push(Problem::of(&missing, directory));
            }
        }
        Err(error) => report.problems.push(Problem::of(&error, directory)),
    }
    examined.log_is_damaged = report.problems.len() > before;
}

fn list_orphans(
    options: &Options,
    environment: &Environment,
    home: &TableHome,
    version: &Version,
    number: Option<u64>,
    report: &mut VerifyReport,
) -> Result<()> {
    let named = named_objects(version);
    for ((tier, store), id) in options.tiers.iter().zip(&home.stores).zip(0u32..) {
        for (name, _) in store.list()? {
            if !named.contains_key(&(TierId(id), name)) {
                report.orphans.push(tier.path().join(name.to_string()));
            }
        }
    }
    let directory = options.tiers[0].path();
    let list = environment.file_system.list(directory);
    for entry in list.map_err(|e| Error::io("listing", directory, e))? {
        let name = entry.name.to_string_lossy();
        let manifest = manifest::number_of(&name);
        let segment = log::parse_segment(&name);
        if manifest.is_some_and(|m| Some(m) != number)
            || segment.is_some_and(|s| s < version.log_floor)
        {
            report.orphans.push(directory.join(&entry.name));
        }
    }
    report.orphans.sort();
    Ok(())
}

/// Every object that a version names, with its table.
pub(crate) fn named_objects(version: &Version) -> HashMap<(TierId, ObjectName), u64> {
    let mut named = HashMap::new();
    for table in version.tables() {
        let kinds = std::iter::once(ObjectKind::Meta).chain(std::iter::repeat(ObjectKind::Data));
        for (extent, kind) in table.extents().zip(kinds) {
            let id = extent.object.0;
            named.insert((extent.tier, ObjectName { id, kind }), table.id.0);
        }
    }
    named
}
