//! Opening: tier identities, manifest, version, log replay, orphan sweep.
//!
//! The manifest in force and the identity files of the tiers must agree on the
//! store and on how often it was opened (its generation), or the store is
//! refused (I7). Each opening begins a new manifest with the next generation,
//! on the tier that the options name for it and so perhaps on another than the
//! last, puts it in force, writes the generation to every tier, and then
//! records that this is done. A crash in between leaves tiers at either
//! generation, which an unsettled manifest accepts; in a settled store every
//! tier must carry exactly its generation, so a tier that was missing for a
//! while or comes back from a backup is recognised.
//!
//! Objects and log are looked at before that: a store that is refused stays as
//! it was, and opens when what was wrong is put right.
//!
//! All that holds the lock of every tier meanwhile. What opens for reading only holds none: see
//! `open/live.rs`.

mod indexed;
mod live;
mod look;
mod replayed;
mod restated;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_model::key::{Kind, SeqNo};
use thermocline_model::tier::TierId;
use thermocline_model::version::{Keyspace, Version};
use thermocline_policy::cost::device::Devices;

use crate::batch::Operation;
use crate::control;
use crate::engine::{Commit, Engine, Spaces, TierInUse, Versions};
use crate::error::{Error, ErrorKind, Result};
use crate::events::Events;
use crate::job::SpareThreads;
use crate::lend::Lent;
use crate::lock::{Patience, lock, lock_if_there, who_locked};
use crate::log::{self, LocalLog, LogOptions, ReplayReport};
use crate::lookup::Indexing;
use crate::memory::ArenaPool;
use crate::options::{OPTIONS_FILE, Options, Tier};
use crate::publish::Published;
use crate::scan::RangeIndex;
use crate::stats::{Counters, Recovery};
use crate::step::{Pace, Scheduler};
use crate::store::{
    Environment, IoBudget, LocalStore, LocalStoreOptions, ObjectKind, ObjectName, Store,
    TierIdentity, create_directory, is_given_id, replace_file,
};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{ArcSwap, Condvar, Mutex};
use crate::table::TableContext;
use crate::version::manifest::{self, Header, Manifest};
use crate::version::pointer::{self, Pointer};
use crate::version::tree::{Graveyard, TableHome, Tree};

use look::{Found, look};
pub(crate) use look::{
    check_log_tier, check_manifest_tier, read_manifest, tier_problems, wrong_manifest_tier,
};

/// The name of the keyspace that every store has.
pub const DEFAULT_KEYSPACE: &str = "default";

/// Opens the store of `options` on `environment`.
pub(crate) fn open(options: Options, environment: &Environment) -> Result<Engine> {
    if options.read_only {
        let open = || open_once(options.clone(), environment);
        return live::open_while_written(&options, environment, open);
    }
    open_once(options, environment)
}

/// Opens a store that nobody changes meanwhile.
fn open_once(options: Options, environment: &Environment) -> Result<Engine> {
    options.check()?;
    let preset = options.policies()?;
    let tiers = open_tiers(&options, environment)?;
    let found = look(&options, environment)?;
    let recovery = Recovery {
        torn_manifest_bytes: found.torn_manifest_bytes,
        ..Recovery::default()
    };
    let devices = Devices::with(options.tiers.iter().map(Tier::device_profile));
    let home = Arc::new(TableHome {
        stores: tiers.iter().map(|t| Arc::clone(&t.store)).collect(),
        context: Arc::new(
            TableContext::new(Arc::new(options.block_cache()))
                .with_clock(Arc::clone(&environment.clock))
                .with_readers(options.reader_count())
                .with_uses_for_one(devices.uses_for_one())
                .with_bytes_for_one_read(devices.bytes_for_one_read()),
        ),
        graveyard: Arc::new(Graveyard::default()),
    });
    check_objects(&found.version, &tiers)?;
    let versions = Versions {
        store_id: found.header.store_id,
        manifest: None,
        current: Arc::new(found.version.clone()),
        tables: BTreeMap::new(),
    };

    let arenas = ArenaPool::new(options.write_buffer_bytes as usize);
    let next_id = versions.current.next_id;
    let last_seq = versions.current.last_seq;
    let mut engine = Engine {
        store_id: versions.store_id,
        environment: environment.clone(),
        home,
        arenas,
        lookup: Indexing::new(&options, Arc::clone(&environment.clock)),
        range_index: RangeIndex::new(Arc::clone(&environment.clock)),
        lent: Lent::default(),
        spare_threads: SpareThreads::new(options.threads()),
        leaving_bytes: AtomicUsize::new(0),
        brake_turn: Mutex::default(),
        trimming: Mutex::new(()),
        emptied: Mutex::default(),
        pace: Pace::default(),
        commit: Mutex::new(Commit {
            log: None,
            next_seq: last_seq.next(),
            grown_bytes: 0,
        }),
        syncer: None,
        published: Published::new(last_seq),
        log_segment: AtomicU64::new(0),
        log_bytes: AtomicU64::new(0),
        versions: Mutex::new(versions),
        spaces: ArcSwap::from_pointee(Spaces::new()),
        snapshots: Mutex::new(BTreeMap::new()),
        scheduler: Mutex::new(Scheduler::new(preset, options.cost())),
        work: Condvar::new(),
        done: Condvar::new(),
        handed: Condvar::new(),
        next_id: AtomicU64::new(next_id),
        counters: Counters::default(),
        events: Events::default(),
        poisoned: Mutex::new(None),
        is_poisoned: AtomicBool::new(false),
        closing: AtomicBool::new(false),
        settling: AtomicUsize::new(0),
        last_write: Mutex::new((last_seq, environment.clock.now_micros())),
        tuning: Mutex::new(()),
        answered: Mutex::default(),
        recovery,
        tiers,
        options,
    };
    engine.build_spaces()?;
    // Before the first event, which would else be numbered as the first of all.
    let (environment, directory) = (&engine.environment, engine.options.event_directory());
    engine.events.record.begin(environment, directory);
    engine.load_heat();
    let retuned = engine.recall_moves();
    engine.begin_with_parts();
    engine.begin_counting();
    let replayed = engine.replay_log()?;
    engine.lend_to_replayed();
    if !engine.options.read_only {
        engine.begin_generation(found)?;
        if let Some(event) = retuned {
            engine.events.push(event);
        }
        engine.start_log(&replayed)?;
        engine.sweep_orphans()?;
        engine.update_full();
        engine.flush_replayed()?;
    }
    Ok(engine)
}

/// Locks and opens the directory of every tier, creating it where a store may
/// be created.
///
/// A store that is refused is left as it was: nothing is made before what is
/// there has been looked at. That was without every lock, so the caller looks
/// again.
fn open_tiers(options: &Options, environment: &Environment) -> Result<Vec<TierInUse>> {
    let missing = missing_directories(options, environment)?;
    let mut locks = Vec::new();
    let patience = &mut Patience::of_a_moment();
    let whose = |error| who_locked(error, &options.tiers, environment);
    if !options.read_only {
        for tier in &options.tiers {
            locks.push(lock_if_there(environment, tier.path(), patience).map_err(whose)?);
        }
        if locks.iter().any(Option::is_none) {
            look(options, environment)?;
        }
        let made = create_all(environment, &missing)?;
        let is_new = |path: &Path| missing.contains(&path);
        // Those that were there first: one that cannot be written to is the
        // likelier failure, and a directory with a lock file in it stays.
        for new in [false, true] {
            for (held, tier) in locks.iter_mut().zip(&options.tiers) {
                if held.is_some() || is_new(tier.path()) != new {
                    continue;
                }
                *held = Some(lock(environment, tier.path(), patience).map_err(|error| {
                    let error = whose(error);
                    remove_all(environment, &made);
                    error
                })?);
            }
        }
    }
    let mut locks = locks.into_iter();
    let mut tiers = Vec::new();
    let newest = options.pins().newest.unwrap_or(TierId(0));
    for (tier, id) in options.tiers.iter().zip(0u32..) {
        let path = tier.path();
        let budget = Arc::new(IoBudget::unlimited(Arc::clone(&environment.clock)));
        budget.set_bytes_per_second(tier.io_budget());
        let store = LocalStore::open(
            environment,
            path,
            LocalStoreOptions {
                direct: tier.is_direct(),
                flushed_to: newest == TierId(id),
            },
        )?;
        tiers.push(TierInUse {
            id: TierId(id),
            spec: tier.clone(),
            background: store.with_budget(Arc::clone(&budget)),
            budget,
            store: Arc::new(store),
            counters: Default::default(),
            _lock: locks.next().flatten(),
        });
    }
    Ok(tiers)
}

/// The tiers' directories that are not there and may be created.
fn missing_directories<'a>(
    options: &'a Options,
    environment: &Environment,
) -> Result<Vec<&'a Path>> {
    let mut missing = Vec::new();
    for (index, tier) in options.tiers.iter().enumerate() {
        let path = tier.path();
        let found = environment.file_system.metadata(path);
        let found = found.map_err(|e| Error::io("looking for tier directory", path, e))?;
        match found {
            Some(metadata) if !metadata.is_directory => {
                let what = format!("tier {:?} is not a directory", tier.name());
                return Err(Error::invalid(what).at(path));
            }
            Some(_) => {}
            None if options.create_if_missing && !options.read_only => missing.push(path),
            None if index > 0 => {
                let what = format!("directory of tier {:?} is missing", tier.name());
                return Err(Error::new(ErrorKind::WrongTier, what).at(path));
            }
            None => {
                let what = format!("directory of tier {:?}", tier.name());
                return Err(Error::new(ErrorKind::NotFound, what).at(path));
            }
        }
    }
    Ok(missing)
}

/// Creates directories, and gives all that were made, those above them
/// included. After an error none of them is there.
fn create_all(environment: &Environment, missing: &[&Path]) -> Result<Vec<PathBuf>> {
    let fs = &environment.file_system;
    let mut made = Vec::new();
    for &path in missing {
        let above = path
            .ancestors()
            .take_while(|p| !p.as_os_str().is_empty() && matches!(fs.metadata(p), Ok(None)));
        let above: Vec<PathBuf> = above.map(Path::to_path_buf).collect();
        made.extend(above.into_iter().rev());
        create_directory(environment, path).inspect_err(|_| remove_all(environment, &made))?;
    }
    Ok(made)
}

/// Removes directories, the last one first, as far as they are empty.
fn remove_all(environment: &Environment, directories: &[PathBuf]) {
    for directory in directories.iter().rev() {
        let _ = environment.file_system.remove_directory(directory);
    }
}

/// How far an opening goes beyond the numbers that are known to have been used.
/// The process before may have used more, for files whose names were lost and
/// whose blocks a crash may bring up again in new files. Frames are bound to the
/// number of their file: a number that is never used twice keeps them out.
const NUMBERS_SKIPPED: u64 = 1000;

/// Begins the next generation: see the module's documentation.
fn begin_generation(
    options: &Options,
    environment: &Environment,
    tiers: &[TierInUse],
    found: Found,
) -> Result<(Manifest, Version)> {
    let directory = options.tiers[0].path();
    let mut version = found.version;
    let old = Pointer {
        number: found.header.number,
        tier: found.tier,
    };
    let old = match found.fresh {
        true => None,
        false => Some(options.path_of(old)?),
    };
    // Beyond every file that exists, so that no name is ever used twice, even
    // for files that no version names.
    let mut highest = version.next_id.saturating_sub(1).max(found.header.number);
    for tier in &options.tiers {
        let path = tier.path();
        for entry in environment
            .file_system
            .list(path)
            .map_err(|e| Error::io("listing", path, e))?
        {
            let name = entry.name.to_string_lossy();
            let number = ObjectName::parse(&name)
                .map(|o| o.id)
                .or_else(|| manifest::number_of(&name))
                .or_else(|| log::parse_segment(&name));
            highest = highest.max(number.filter(|&n| is_given_id(n)).unwrap_or(0));
        }
    }
    let known = if found.fresh {
        0
    } else {
        found.header.tiers.len()
    };
    for tier in options.tiers.iter().skip(known) {
        // Whoever made it may have died before its name was durable.
        create_directory(environment, tier.path())?;
    }
    let skipped = if found.fresh { 0 } else { NUMBERS_SKIPPED };
    let number = highest + 1 + skipped;
    version.next_id = number + 1;
    let header = Header {
        store_id: found.header.store_id,
        number,
        generation: found.header.generation + 1,
        tiers: tiers
            .iter()
            .map(|t| (t.id, t.spec.name().to_string()))
            .collect(),
    };
    if !found.settled && !found.fresh {
        // The last opening died half-way. Bring every tier to its generation
        // before going on, so that no tier ever lags by two.
        write_identities(environment, tiers, &found.header)?;
    }
    let of_manifest = options.manifest_directory();
    let mut manifest = Manifest::create(environment, of_manifest, header, &version, false)?;
    pointer::install(environment, directory, options.next_manifest(number))?;
    write_identities(environment, tiers, manifest.header())?;
    manifest.settle()?;
    if let Some(old) = old {
        let _ = environment.file_system.unlink(&old);
    }
    replace_file(
        environment,
        directory,
        OPTIONS_FILE,
        options.to_toml_in_first_tier().as_bytes(),
    )?;
    Ok((manifest, version))
}

fn write_identities(environment: &Environment, tiers: &[TierInUse], header: &Header) -> Result<()> {
    for tier in tiers {
        let identity = TierIdentity {
            store_id: header.store_id,
            tier_id: tier.id.0,
            tier_name: tier.spec.name().to_string(),
            generation: header.generation,
        };
        identity.write(environment, tier.spec.path())?;
    }
    Ok(())
}

/// Calls `visit` with the parts of `keyspace`, and the keys and ends there, where an operation
/// numbered `seq` is in no table yet.
fn each_not_flushed(
    keyspace: &Keyspace,
    operation: &Operation<'_>,
    seq: SeqNo,
    mut visit: impl FnMut(usize, &[u8], &[u8]),
) {
    let (key, value) = (operation.key, operation.value);
    if operation.kind != Kind::RangeDelete {
        let at = keyspace.cuts.part_of(key);
        if keyspace.parts[at].flushed_of(key) < seq {
            visit(at, key, value);
        }
        return;
    }
    // Not where it is in tables already: a part that is cut out of there later has been
    // flushed further than it.
    for (at, part) in keyspace.parts.iter().enumerate() {
        let (low, high) = keyspace.cuts.interval(at);
        let start = low.map_or(key, |low| key.max(low));
        let end = high.map_or(value, |high| value.min(high));
        for (from, to) in part.not_flushed(start, end, seq) {
            visit(at, from, to);
        }
    }
}

/// Every object that the version names must be there, with its size.
fn check_objects(version: &Version, tiers: &[TierInUse]) -> Result<()> {
    let mut present = Vec::new();
    for tier in tiers {
        present.push(tier.store.list()?.into_iter().collect::<HashMap<_, _>>());
    }
    for table in version.tables() {
        let kinds = std::iter::once(ObjectKind::Meta).chain(std::iter::repeat(ObjectKind::Data));
        for (extent, kind) in table.extents().zip(kinds) {
            let at = extent.tier.0 as usize;
            let Some(tier) = tiers.get(at) else {
                return Err(Error::corruption(format!(
                    "table {} names a tier that does not exist",
                    table.id
                ))
                .at(tiers[0].spec.path())
                .expected(format!("below {}", tiers.len()), extent.tier));
            };
            let name = ObjectName {
                id: extent.object.0,
                kind,
            };
            let path = tier.spec.path().join(name.to_string());
            match present[at].get(&name) {
                None => {
                    return Err(Error::corruption(format!(
                        "object of table {} is missing from tier {:?}",
                        table.id,
                        tier.spec.name()
                    ))
                    .at(&path));
                }
                Some(&size) if size < extent.offset.saturating_add(extent.length) => {
                    return Err(Error::corruption(format!(
                        "object of table {} is too short",
                        table.id
                    ))
                    .at(&path)
                    .expected(
                        format!(
                            "at least {} bytes",
                            extent.offset.saturating_add(extent.length)
                        ),
                        size,
                    ));
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

impl Engine {
    fn build_spaces(&mut self) -> Result<()> {
        let versions = &mut *self.versions.lock();
        let (mut room, mut indexed) = (self.lookup.room_keys(), 0);
        let mut spaces = Spaces::new();
        let keyspaces = versions.current.keyspaces.values();
        self.options
            .check_active(keyspaces.clone().map(|k| k.parts.len()).sum())?;
        let takers = keyspaces.map(|k| self.options.takers_of(k));
        let sharing = self.options.sharing_takers(takers.clone());
        let fits = self.options.check_active(takers.sum()).is_ok();
        for (&id, keyspace) in &versions.current.keyspaces {
            // Nobody writes who could gain by it later.
            if !self.options.read_only {
                indexed += self.index_newest(keyspace, &mut room, &mut versions.tables);
            }
            let tree = Tree::build(keyspace, &self.home, &mut versions.tables)?;
            spaces.insert(id, self.new_space(keyspace, Arc::new(tree), sharing, fits));
        }
        self.spaces.store(Arc::new(spaces));
        self.recovery.indexed_entries = indexed;
        Ok(())
    }

    /// Puts a new manifest in force.
    fn begin_generation(&mut self, found: Found) -> Result<()> {
        let (manifest, version) =
            begin_generation(&self.options, &self.environment, &self.tiers, found)?;
        let versions = self.versions.get_mut();
        self.next_id = AtomicU64::new(version.next_id);
        versions.manifest = Some(manifest);
        versions.current = Arc::new(version);
        Ok(())
    }

    /// Cuts off the log's torn tail and gets it ready for appends.
    fn start_log(&mut self, report: &ReplayReport) -> Result<()> {
        let directory = self.log_directory();
        let version = Arc::clone(&self.versions.lock().current);
        let store_id = self.store_id;
        let commit = self.commit.get_mut();
        log::truncate_torn(&self.environment, &directory, report)?;
        // The log goes on behind its own last entry, which may lie before the
        // last number: a bulk load's is in no log, and numbers that a power
        // failure took back are not given again.
        // Segments count for themselves, above all that were ever needed.
        let next = report.next_segment.max(version.log_floor).max(1);
        let options = LogOptions {
            segment_bytes: self.options.log_segment_bytes,
            mapped: self.options.log_mapped,
        };
        let log = LocalLog::create(
            &self.environment,
            &directory,
            store_id,
            options,
            next,
            report.last_seq,
        )?;
        self.log_segment.store(log.segment(), Ordering::Release);
        self.log_bytes.store(log.size_bytes(), Ordering::Relaxed);
        self.syncer = Some(log.syncer());
        commit.log = Some(log);
        self.seal_all(None);
        Ok(())
    }

    /// Deletes objects, manifests and temporary files that nothing names: what
    /// jobs left behind that were cut short.
    fn sweep_orphans(&mut self) -> Result<()> {
        let (named, manifest) = {
            let versions = self.versions.lock();
            let mut named = HashSet::new();
            for table in versions.current.tables() {
                let kinds =
                    std::iter::once(ObjectKind::Meta).chain(std::iter::repeat(ObjectKind::Data));
                named.extend(table.extents().zip(kinds).map(|(e, kind)| {
                    (
                        e.tier,
                        ObjectName {
                            id: e.object.0,
                            kind,
                        },
                    )
                }));
            }
            (
                named,
                versions.manifest.as_ref().map(|m| m.path().to_path_buf()),
            )
        };
        for tier in &self.tiers {
            for (name, _) in tier.store.list()? {
                if !named.contains(&(tier.id, name)) {
                    tier.store.delete(name)?;
                    self.recovery.orphans += 1;
                }
            }
        }
        let fs = &self.environment.file_system;
        for (at, tier) in self.tiers.iter().enumerate() {
            let directory = tier.spec.path();
            let list = fs.list(directory);
            let list = list.map_err(|e| Error::io("listing", directory, e))?;
            let names: Vec<_> = list.iter().map(|e| e.name.to_string_lossy()).collect();
            for name in &names {
                let path = directory.join(&**name);
                let number = manifest::number_of(name);
                if number.is_some() && Some(&path) != manifest.as_ref() {
                    let _ = fs.unlink(&path);
                }
            }
            if at == 0 {
                control::sweep(&self.environment, directory, names.iter().map(|n| &**n));
            }
        }
        Ok(())
    }
}
