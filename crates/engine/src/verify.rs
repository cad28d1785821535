//! What `verify` does: reads every byte of a store and checks all that can be
//! checked, changing nothing.
//!
//! It goes on behind what it finds. Where the manifest or the pointer to it
//! cannot be read, or a tier is not there, every file that is there is checked
//! by itself, and the report says what could not be checked without the rest:
//! see `verify/alone.rs`. Where a block is damaged, the next block is read;
//! where the log is, every later segment.

mod alone;
pub(crate) mod find;
mod log;
mod progress;
mod report;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use thermocline_model::check;
use thermocline_model::table::TableMeta;
use thermocline_model::tier::TierId;
use thermocline_model::version::Version;

use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::{Patience, StoreLock};
use crate::log::parse_segment;
use crate::open::{check_log_tier, read_manifest, tier_problems};
use crate::options::Options;
use crate::store::{
    Environment, LocalStore, LocalStoreOptions, ObjectKind, ObjectName, Store, TIER_FILE_NAME,
    TierIdentity,
};
use crate::table::TableContext;
use crate::version::manifest::{self, ReadBack};
use crate::version::pointer::{self, Pointer};
use crate::version::tree::{Graveyard, OpenTable, TableHome};

pub(crate) use progress::Meter;
pub use progress::{Phase, Progress};
pub use report::{Problem, VerifyReport};

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
/// What is damaged or missing is in the report and no error, a tier's directory
/// included. [`ErrorKind::NotFound`] when there is no store at all,
/// [`ErrorKind::Locked`] when the store is open, [`ErrorKind::InvalidArgument`]
/// for an option out of range.
pub fn verify(options: Options) -> Result<VerifyReport> {
    verify_with(options, &mut |_| {})
}

/// As [`verify`], and tells `observer` how far it has come: at the beginning,
/// and after every piece of some KiB to MiB.
///
/// # Errors
/// As [`verify`].
///
/// ```
/// # use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// Db::open(Options::at(directory.path()))?.close()?;
/// let mut last = None;
/// thermocline::verify_with(Options::at(directory.path()), &mut |progress| last = Some(progress))?;
/// let last = last.unwrap();
/// assert_eq!(last.done_bytes, last.total_bytes);
/// # Ok::<(), thermocline::Error>(())
/// ```
pub fn verify_with(options: Options, observer: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
    verify_on(options, &Environment::real(), observer)
}

/// As [`verify`], in an environment of the caller's, such as a simulated one.
///
/// # Errors
/// As [`verify`].
///
/// ```
/// # use thermocline::{Db, Options, store::Environment};
/// # let directory = tempfile::tempdir().unwrap();
/// Db::open(Options::at(directory.path()))?.close()?;
/// let report = thermocline::verify_in(Options::at(directory.path()), &Environment::real())?;
/// assert!(report.problems.is_empty());
/// # Ok::<(), thermocline::Error>(())
/// ```
pub fn verify_in(options: Options, environment: &Environment) -> Result<VerifyReport> {
    verify_on(options, environment, &mut |_| {})
}

fn verify_on(
    options: Options,
    environment: &Environment,
    observer: &mut dyn FnMut(Progress),
) -> Result<VerifyReport> {
    options.check()?;
    let _lock = StoreLock::take_in(&options, environment, &mut Patience::of_a_moment())?;
    let mut meter = Meter::new(observer);
    Ok(examine(&options, environment, &mut meter)?.report)
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
    /// What is of a format that this program does not understand.
    pub(crate) unsupported: Option<Error>,
}

/// A file of the store, or what has the name of one.
struct Listed {
    tier: usize,
    name: String,
    size_bytes: u64,
}

impl Listed {
    /// Which manifest it is, if it has the name of one.
    fn manifest(&self) -> Option<Pointer> {
        let tier = TierId(self.tier as u32);
        manifest::number_of(&self.name).map(|number| Pointer { number, tier })
    }
}

/// What a verification works with.
struct Verify<'a, 'm> {
    options: &'a Options,
    environment: &'a Environment,
    home: Arc<TableHome>,
    meter: &'a mut Meter<'m>,
    report: VerifyReport,
    /// Every file in the tiers' directories.
    files: Vec<Listed>,
    /// The identities that can be read.
    identities: Vec<Option<TierIdentity>>,
    /// Tiers of whose directory or identity a problem was found.
    bad_tiers: HashSet<usize>,
    unsupported: Option<Error>,
}

/// Reads everything. Requires: the directories that exist are locked.
pub(crate) fn examine(
    options: &Options,
    environment: &Environment,
    meter: &mut Meter<'_>,
) -> Result<Examined> {
    let mut verify = Verify {
        options,
        environment,
        home: home(options, environment),
        meter,
        report: VerifyReport {
            tiers: options.tiers.len() as u64,
            ..VerifyReport::default()
        },
        files: Vec::new(),
        identities: Vec::new(),
        bad_tiers: HashSet::new(),
        unsupported: None,
    };
    verify.list();
    verify.read_identities();
    let total = verify.files.iter().map(|f| f.size_bytes).sum();
    let phase = verify.meter.phase();
    verify.meter.begin(phase, total);
    let read = verify.read_manifest()?;
    let mut damaged = HashSet::new();
    match &read {
        Some((pointer, read)) => {
            verify.check_version(*pointer, read);
            verify.check_log(Some(read));
            verify.list_orphans(&read.version, *pointer);
            for meta in read.version.tables() {
                if !verify.check_table(meta) {
                    damaged.insert(meta.id.0);
                }
            }
        }
        None => {
            verify.check_identities_alone();
            verify.check_log(None);
            verify.check_tables_alone();
        }
    }
    verify.meter.end();
    Ok(Examined {
        report: verify.report,
        manifest: read.map(|(_, read)| read),
        damaged,
        unsupported: verify.unsupported,
    })
}

/// The stores of the tiers, for opening tables outside of an engine. The
/// directories need not exist.
pub(crate) fn home(options: &Options, environment: &Environment) -> Arc<TableHome> {
    const CACHE_BYTES: u64 = 1 << 20;
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for tier in &options.tiers {
        let how = LocalStoreOptions {
            direct: tier.is_direct(),
            ..LocalStoreOptions::default()
        };
        stores.push(Arc::new(LocalStore::unlisted(
            environment,
            tier.path(),
            how,
        )));
    }
    Arc::new(TableHome {
        stores,
        context: Arc::new(TableContext::new(Arc::new(BlockCache::new(CACHE_BYTES)))),
        graveyard: Arc::new(Graveyard::default()),
    })
}

impl Verify<'_, '_> {
    fn directory(&self) -> &Path {
        self.options.tiers[0].path()
    }

    /// Notes what `error` says, found in or about `otherwise` if it does not
    /// say that itself.
    fn wrong(&mut self, error: &Error, otherwise: &Path) {
        if error.kind() == ErrorKind::Unsupported {
            self.unsupported.get_or_insert_with(|| error.clone());
        }
        let problem = Problem::of(error, otherwise);
        if !self.report.problems.contains(&problem) {
            self.report.problems.push(problem);
        }
    }

    /// Lists every directory.
    fn list(&mut self) {
        let options = self.options;
        for (index, tier) in options.tiers.iter().enumerate() {
            let path = tier.path();
            let fs = &self.environment.file_system;
            let error = match fs.metadata(path) {
                Ok(Some(metadata)) if metadata.is_directory => match fs.list(path) {
                    Ok(list) => {
                        let files = list.iter().filter(|entry| !entry.is_directory);
                        self.files.extend(files.map(|entry| Listed {
                            tier: index,
                            name: entry.name.to_string_lossy().into_owned(),
                            size_bytes: if is_read(&entry.name.to_string_lossy()) {
                                entry.size_bytes
                            } else {
                                0
                            },
                        }));
                        continue;
                    }
                    Err(error) => Error::io("listing tier directory", path, error),
                },
                Ok(found) => {
                    let found = found.map_or("nothing", |_| "a file");
                    let what = format!("directory of tier {:?}", tier.name());
                    Error::new(ErrorKind::WrongTier, what)
                        .at(path)
                        .expected("a directory", found)
                }
                Err(error) => Error::io("looking for tier directory", path, error),
            };
            self.wrong(&error, path);
            self.bad_tiers.insert(index);
            let what = format!("what lies on tier {:?}: its directory", tier.name());
            self.report
                .not_checked
                .push(format!("{what} cannot be read"));
        }
    }

    fn read_identities(&mut self) {
        let options = self.options;
        for (index, tier) in options.tiers.iter().enumerate() {
            let identity = match TierIdentity::read(self.environment, tier.path()) {
                Ok(identity) => identity,
                Err(_) if self.bad_tiers.contains(&index) => None,
                Err(error) => {
                    self.wrong(&error, tier.path());
                    self.bad_tiers.insert(index);
                    None
                }
            };
            self.identities.push(identity);
        }
    }

    /// The manifest in force. Where the pointer or the manifest is damaged, says
    /// so and gives no manifest.
    fn read_manifest(&mut self) -> Result<Option<(Pointer, ReadBack)>> {
        let directory = self.options.tiers[0].path();
        let pointer = match pointer::current(self.environment, directory) {
            Ok(Some(pointer)) => pointer,
            Ok(None) => {
                let known = self.identities.iter().any(Option::is_some)
                    || self.files.iter().any(|f| is_read(&f.name))
                    || self.files.iter().any(|f| f.name == TIER_FILE_NAME);
                if !known {
                    return Err(Error::new(ErrorKind::NotFound, "no store").at(directory));
                }
                let path = directory.join(pointer::CURRENT);
                let missing = Error::corruption("the pointer to the manifest is missing").at(&path);
                let missing = missing.expected("a manifest's name and checksum", "no file");
                self.wrong(&missing, &path);
                return Ok(None);
            }
            Err(error) => {
                self.wrong(&error, directory);
                return Ok(None);
            }
        };
        match read_manifest(self.options, self.environment, pointer, &self.identities) {
            Ok(read) => {
                self.meter.add(self.size_of(pointer));
                Ok(Some((pointer, read)))
            }
            Err(error) => {
                let is_known = error.kind() == ErrorKind::WrongTier
                    && self.bad_tiers.contains(&(pointer.tier.0 as usize));
                if !is_known {
                    self.wrong(&error, directory);
                }
                Ok(None)
            }
        }
    }

    /// The size of a manifest; 0 if it is not there.
    fn size_of(&self, pointer: Pointer) -> u64 {
        let file = self.files.iter().find(|f| f.manifest() == Some(pointer));
        file.map_or(0, |f| f.size_bytes)
    }

    /// Checks the version by itself and against the tiers.
    fn check_version(&mut self, pointer: Pointer, read: &ReadBack) {
        let options = self.options;
        let directory = options.directory_of(pointer).unwrap_or(self.directory());
        let directory = directory.to_path_buf();
        for error in tier_problems(self.options, read, &self.identities) {
            let about = |tier: &usize| error.path() == Some(self.options.tiers[*tier].path());
            // That the tier is not there, or cannot say who it is, is known.
            if !self.bad_tiers.iter().any(about) {
                self.wrong(&error, &directory);
            }
        }
        self.report.manifest_torn_bytes = read.torn_bytes;
        self.report.keyspaces = read.version.keyspaces.len() as u64;
        let store_id = read.header.store_id;
        let (environment, end) = (self.environment, read.end);
        let log = self.options.log_directory();
        let floor = read.version.log_floor;
        // A tier that cannot be listed has been reported.
        let placed = match self.bad_tiers.is_empty() {
            true => check_log_tier(self.options, environment, floor),
            false => Ok(()),
        };
        let closed = placed.and_then(|()| {
            let number = pointer.number;
            manifest::check_closing_note(environment, &directory, log, store_id, number, end)
        });
        if let Err(error) = closed {
            self.wrong(&error, &directory);
        }
        self.report.manifest_bytes = self.size_of(pointer);
        if let Err(broken) = check::check_version(&read.version) {
            let path = directory.join(manifest::file_name(pointer.number));
            self.wrong(&Error::corruption(broken.to_string()).at(&path), &path);
        }
    }

    /// Reads a table. Says whether all is well with it.
    fn check_table(&mut self, meta: &Arc<TableMeta>) -> bool {
        let directory = self.directory().to_path_buf();
        let before = self.report.problems.len();
        let mut errors = Vec::new();
        let open = OpenTable::new(Arc::clone(meta), &self.home, None);
        match open.and_then(|open| open.table().cloned()) {
            Ok(table) => {
                let meter = &mut *self.meter;
                let found = table.verify_all(&mut |error| errors.push(error), &mut |bytes| {
                    meter.add(bytes);
                });
                // Blocks that are dead, and what an extent leaves free.
                self.meter.add(meta.dead_bytes);
                self.report.tables += 1;
                self.report.blocks += found.blocks;
                self.report.entries += found.entries;
                self.report.bytes += found.bytes;
            }
            Err(error) => {
                errors.push(error);
                self.check_extents(meta, &mut errors);
            }
        }
        for error in errors {
            self.wrong(&error, &directory);
        }
        self.report.problems.len() == before
    }

    /// Files that nothing names.
    fn list_orphans(&mut self, version: &Version, in_force: Pointer) {
        let named = named_objects(version);
        let mut bytes = 0;
        for file in &self.files {
            let orphan = match ObjectName::parse(&file.name) {
                Some(name) => !named.contains_key(&(TierId(file.tier as u32), name)),
                None => match file.manifest() {
                    Some(manifest) => manifest != in_force,
                    None if file.tier > 0 => false,
                    None => parse_segment(&file.name).is_some_and(|s| s < version.log_floor),
                },
            };
            if orphan {
                let tier = &self.options.tiers[file.tier];
                self.report.orphans.push(tier.path().join(&file.name));
                bytes += file.size_bytes;
            }
        }
        self.report.orphans.sort();
        self.meter.add(bytes);
    }
}

/// Whether a file of this name is one that is read.
pub(crate) fn is_read(name: &str) -> bool {
    ObjectName::parse(name).is_some()
        || parse_segment(name).is_some()
        || manifest::number_of(name).is_some()
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
