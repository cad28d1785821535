//! Opening: tier identities, manifest, version, log replay, orphan sweep.
//!
//! The manifest in force and the identity files of the tiers must agree on the
//! store and on how often it was opened (its generation), or the store is
//! refused (I7). Each opening begins a new manifest with the next generation,
//! puts it in force, writes the generation to every tier, and then records
//! that this is done. A crash in between leaves tiers at either generation,
//! which an unsettled manifest accepts; in a settled store every tier must
//! carry exactly its generation, so a tier that was missing for a while or
//! comes back from a backup is recognised.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};
use thermocline_model::check;
use thermocline_model::edit::{Change, Edit};
use thermocline_model::key::SeqNo;
use thermocline_model::tier::TierId;
use thermocline_model::version::{KeyspaceId, Version};

use crate::batch::Operations;
use crate::cache::BlockCache;
use crate::engine::{Commit, Engine, LiveMemtable, Spaces, TierInUse, Versions};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::log::{self, LocalLog, LogOptions};
use crate::memory::ArenaPool;
use crate::options::{OPTIONS_FILE, Options};
use crate::stats::{Counters, Recovery};
use crate::step::Scheduler;
use crate::store::{
    Environment, IoBudget, LocalStore, LocalStoreOptions, ObjectKind, ObjectName, Store,
    TierIdentity, create_directory, replace_file,
};
use crate::table::TableContext;
use crate::version::manifest::{self, Header, Manifest};
use crate::version::tree::{Graveyard, TableHome, Tree};

/// The name of the keyspace that every store has.
pub const DEFAULT_KEYSPACE: &str = "default";

/// What the directories hold before anything is changed.
pub(crate) struct Found {
    pub(crate) header: Header,
    pub(crate) version: Version,
    pub(crate) settled: bool,
    pub(crate) torn_manifest_bytes: u64,
    /// Whether there was no store.
    pub(crate) fresh: bool,
}

/// Opens the store of `options` on `environment`.
pub(crate) fn open(options: Options, environment: &Environment) -> Result<Engine> {
    options.check()?;
    let preset = thermocline_policy::by_name(&options.preset).ok_or_else(|| {
        let names: Vec<_> = thermocline_policy::presets()
            .iter()
            .map(|p| p.name)
            .collect();
        Error::invalid("option preset").expected(names.join(" or "), &options.preset)
    })?;
    let tiers = open_tiers(&options, environment)?;
    let found = look(&options, environment)?;
    let recovery = Recovery {
        torn_manifest_bytes: found.torn_manifest_bytes,
        ..Recovery::default()
    };
    let home = Arc::new(TableHome {
        stores: tiers.iter().map(|t| Arc::clone(&t.store)).collect(),
        context: Arc::new(TableContext::new(Arc::new(BlockCache::new(
            options.block_cache_bytes,
        )))),
        graveyard: Arc::new(Graveyard::default()),
    });
    let versions = if options.read_only {
        Versions {
            store_id: found.header.store_id,
            manifest: None,
            current: Arc::new(found.version),
            tables: HashMap::new(),
        }
    } else {
        begin_generation(&options, environment, &tiers, found)?
    };
    check_objects(&versions.current, &tiers)?;

    let arenas = ArenaPool::new(options.write_buffer_bytes as usize);
    let next_id = versions.current.next_id;
    let last_seq = versions.current.last_seq;
    let mut engine = Engine {
        environment: environment.clone(),
        home,
        arenas,
        leaving_bytes: AtomicUsize::new(0),
        commit: Mutex::new(Commit {
            log: None,
            next_seq: last_seq.next(),
            grown_bytes: 0,
        }),
        syncer: None,
        published: AtomicU64::new(last_seq.0),
        log_segment: AtomicU64::new(0),
        log_bytes: AtomicU64::new(0),
        versions: Mutex::new(versions),
        spaces: ArcSwap::from_pointee(Spaces::new()),
        snapshots: Mutex::new(BTreeMap::new()),
        scheduler: Mutex::new(Scheduler::new(preset)),
        work: Condvar::new(),
        done: Condvar::new(),
        next_id: AtomicU64::new(next_id),
        counters: Counters::default(),
        poisoned: Mutex::new(None),
        is_poisoned: AtomicBool::new(false),
        closing: AtomicBool::new(false),
        settling: AtomicUsize::new(0),
        last_write: Mutex::new((last_seq, environment.clock.now_micros())),
        recovery,
        tiers,
        options,
    };
    engine.build_spaces()?;
    engine.recover_log()?;
    if !engine.options.read_only {
        engine.sweep_orphans()?;
    }
    Ok(engine)
}

/// Locks and opens the directory of every tier, creating it where a store may
/// be created.
fn open_tiers(options: &Options, environment: &Environment) -> Result<Vec<TierInUse>> {
    let fs = &environment.file_system;
    let mut tiers = Vec::new();
    for (tier, id) in options.tiers.iter().zip(0u32..) {
        let path = tier.path();
        let exists = fs
            .metadata(path)
            .map_err(|e| Error::io("looking for tier directory", path, e))?;
        match exists {
            Some(metadata) if !metadata.is_directory => {
                return Err(
                    Error::invalid(format!("tier {:?} is not a directory", tier.name())).at(path),
                );
            }
            Some(_) => {}
            None if options.create_if_missing && !options.read_only => {
                create_directory(environment, path)?;
            }
            None if id > 0 => {
                return Err(Error::new(
                    ErrorKind::WrongTier,
                    format!("directory of tier {:?} is missing", tier.name()),
                )
                .at(path));
            }
            None => {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("directory of tier {:?}", tier.name()),
                )
                .at(path));
            }
        }
        let lock = if options.read_only {
            None
        } else {
            Some(lock(environment, path)?)
        };
        let budget = Arc::new(IoBudget::unlimited(Arc::clone(&environment.clock)));
        budget.set_bytes_per_second(tier.io_budget());
        let store = LocalStore::open(
            environment,
            path,
            LocalStoreOptions {
                direct: tier.is_direct(),
            },
        )?;
        tiers.push(TierInUse {
            id: TierId(id),
            spec: tier.clone(),
            background: store.with_budget(Arc::clone(&budget)),
            budget,
            store: Arc::new(store),
            counters: Default::default(),
            _lock: lock,
        });
    }
    Ok(tiers)
}

/// Reads manifest and identities and refuses what does not belong together.
pub(crate) fn look(options: &Options, environment: &Environment) -> Result<Found> {
    let directory = options.tiers[0].path();
    let identities = options
        .tiers
        .iter()
        .map(|t| TierIdentity::read(environment, t.path()))
        .collect::<Result<Vec<_>>>()?;
    let Some(number) = manifest::current(environment, directory)? else {
        return look_fresh(options, environment, &identities);
    };
    let read = manifest::read(environment, directory, number)?;
    check::check_version(&read.version).map_err(|e| {
        Error::corruption(e.to_string()).at(&directory.join(manifest::file_name(number)))
    })?;
    if let Some(problem) = tier_problems(options, &read, &identities)
        .into_iter()
        .next()
    {
        return Err(problem);
    }
    Ok(Found {
        header: read.header,
        version: read.version,
        settled: read.settled,
        torn_manifest_bytes: read.torn_bytes,
        fresh: false,
    })
}

/// Every way in which the tiers of the options and their identities disagree
/// with the manifest.
pub(crate) fn tier_problems(
    options: &Options,
    read: &manifest::ReadBack,
    identities: &[Option<TierIdentity>],
) -> Vec<Error> {
    let known = &read.header.tiers;
    let check = |at: usize, tier: &crate::options::Tier| {
        let wrong = |what: &str| {
            Error::new(
                ErrorKind::WrongTier,
                format!("tier {:?}: {what}", tier.name()),
            )
            .at(tier.path())
        };
        let Some((id, name)) = known.get(at) else {
            // A tier new to the store: its directory must be nobody's.
            if let Some(identity) = &identities[at] {
                return Err(
                    wrong("is new to this store, but its directory belongs to one")
                        .expected("no identity", format!("store {:032x}", identity.store_id)),
                );
            }
            return Ok(());
        };
        if name != tier.name() {
            return Err(wrong("the store knows another tier in this place")
                .expected(format!("{name:?}"), format!("{:?}", tier.name())));
        }
        let Some(identity) = &identities[at] else {
            // A tier that was being added when the last opening died.
            let unused = !read
                .version
                .tables()
                .any(|t| t.extents().any(|e| e.tier == *id));
            if !read.settled && unused {
                return Ok(());
            }
            return Err(wrong("is missing: its directory has no identity file"));
        };
        if identity.store_id != read.header.store_id {
            return Err(wrong("belongs to another store").expected(
                format!("{:032x}", read.header.store_id),
                format!("{:032x}", identity.store_id),
            ));
        }
        if identity.tier_id != id.0 {
            return Err(wrong("is another tier of this store: tiers are swapped")
                .expected(id, identity.tier_id));
        }
        let generation = read.header.generation;
        let lowest = if read.settled {
            generation
        } else {
            generation.saturating_sub(1)
        };
        if identity.generation < lowest {
            return Err(wrong("is stale: it missed earlier openings of the store")
                .expected(format!("generation {lowest}"), identity.generation));
        }
        if identity.generation > generation {
            return Err(
                wrong("is newer than the store's manifest: the first tier is stale")
                    .expected(format!("generation {generation}"), identity.generation),
            );
        }
        Ok(())
    };
    let mut problems: Vec<Error> = options
        .tiers
        .iter()
        .enumerate()
        .filter_map(|(at, tier)| check(at, tier).err())
        .collect();
    for (_, name) in known.iter().skip(options.tiers.len()) {
        let missing = Error::new(
            ErrorKind::WrongTier,
            format!("tier {name:?} is missing from the options"),
        );
        problems.push(missing.at(options.tiers[0].path()));
    }
    problems
}

/// There is no manifest in force: this must be a place where no store was.
fn look_fresh(
    options: &Options,
    environment: &Environment,
    identities: &[Option<TierIdentity>],
) -> Result<Found> {
    for (tier, identity) in options.tiers.iter().zip(identities) {
        if let Some(identity) = identity {
            return Err(Error::new(ErrorKind::WrongTier, format!(
                "tier {:?} belongs to store {:032x}, whose manifest pointer is missing from tier {:?} (if it was lost, run repair)",
                tier.name(), identity.store_id, options.tiers[0].name()
            ))
            .at(&options.tiers[0].path().join(manifest::CURRENT)));
        }
        let path = tier.path();
        let list = environment
            .file_system
            .list(path)
            .map_err(|e| Error::io("listing", path, e))?;
        let leftover = list.iter().find(|entry| {
            let name = entry.name.to_string_lossy();
            ObjectName::parse(&name).is_some() || name.ends_with(".log")
        });
        if let Some(leftover) = leftover {
            return Err(Error::corruption(
                "the manifest pointer is missing, but there is data: run repair",
            )
            .at(&path.join(&leftover.name)));
        }
    }
    if !options.create_if_missing || options.read_only {
        return Err(Error::new(ErrorKind::NotFound, "no store").at(options.tiers[0].path()));
    }
    let mut version = Version::empty();
    Edit::of(Change::AddKeyspace {
        keyspace: KeyspaceId::DEFAULT,
        name: DEFAULT_KEYSPACE.to_string(),
        cuts: options.default_cuts()?,
    })
    .apply(&version)
    .map(|v| version = v)
    .map_err(Error::invalid)?;
    let store_id =
        u128::from(environment.dice.next_u64()) << 64 | u128::from(environment.dice.next_u64());
    let header = Header {
        store_id,
        number: 0,
        generation: 0,
        tiers: Vec::new(),
    };
    Ok(Found {
        header,
        version,
        settled: true,
        torn_manifest_bytes: 0,
        fresh: true,
    })
}

/// Begins the next generation: see the module's documentation.
fn begin_generation(
    options: &Options,
    environment: &Environment,
    tiers: &[TierInUse],
    found: Found,
) -> Result<Versions> {
    let directory = options.tiers[0].path();
    let mut version = found.version;
    let old_number = (!found.fresh).then_some(found.header.number);
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
                .or_else(|| manifest::number_of(&name));
            highest = highest.max(number.or_else(|| log::parse_segment(&name)).unwrap_or(0));
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
    let number = highest + 1;
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
    let mut manifest = Manifest::create(environment, directory, header, &version, false)?;
    manifest::install(environment, directory, number)?;
    write_identities(environment, tiers, manifest.header())?;
    manifest.settle()?;
    if let Some(old) = old_number {
        let _ = environment
            .file_system
            .unlink(&directory.join(manifest::file_name(old)));
    }
    replace_file(
        environment,
        directory,
        OPTIONS_FILE,
        options.to_toml_in_first_tier().as_bytes(),
    )?;
    Ok(Versions {
        store_id: found.header.store_id,
        manifest: Some(manifest),
        current: Arc::new(version),
        tables: HashMap::new(),
    })
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
                Some(&size) if size < extent.offset + extent.length => {
                    return Err(Error::corruption(format!(
                        "object of table {} is too short",
                        table.id
                    ))
                    .at(&path)
                    .expected(
                        format!("at least {} bytes", extent.offset + extent.length),
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
        let versions = self.versions.get_mut();
        let mut spaces = Spaces::new();
        for (&id, keyspace) in &versions.current.keyspaces {
            let tree = Tree::build(keyspace, &self.home, &mut versions.tables)?;
            spaces.insert(
                id,
                Engine::new_space(&self.options, &self.arenas, keyspace, Arc::new(tree)),
            );
        }
        self.spaces.store(Arc::new(spaces));
        Ok(())
    }

    /// Replays the log into memtables and gets it ready for appends.
    fn recover_log(&mut self) -> Result<()> {
        let directory = self.directory();
        let version = Arc::clone(&self.versions.lock().current);
        let store_id = self.store_id();
        let mut last = version.last_seq;
        let mut entries = 0;
        let report = log::replay(
            &self.environment,
            &directory,
            store_id,
            version.log_floor,
            &mut |frame| {
                let bad = |what: &str| {
                    Error::corruption(what.to_string())
                        .at(&log::segment_path(&directory, frame.segment))
                        .offset(frame.offset)
                };
                let mut seq = frame.first_seq;
                for operation in Operations::new(frame.payload) {
                    let operation = operation.map_err(bad)?;
                    // A keyspace that is not there was dropped.
                    if let Some(space) = self.space(operation.keyspace)
                        && let Some(keyspace) = version.keyspaces.get(&operation.keyspace)
                    {
                        self.replay_into(&space, keyspace, seq, &operation, frame.segment);
                        entries += 1;
                    }
                    seq = seq.next();
                }
                if seq.0 != frame.first_seq.0 + u64::from(frame.count) {
                    return Err(bad("log record").expected(
                        format!("{} operations", frame.count),
                        seq.0 - frame.first_seq.0,
                    ));
                }
                last = last.max(SeqNo(seq.0 - 1));
                Ok(())
            },
        )?;
        if report.durable_seq > last {
            return Err(Error::corruption("log segments are missing")
                .at(&directory)
                .expected(
                    format!("entries up to {}, which were durable", report.durable_seq),
                    last,
                ));
        }
        self.recovery.records = report.frames;
        self.recovery.entries = entries;
        self.recovery.bytes = report.bytes;
        self.recovery.torn_bytes = report.torn.as_ref().map_or(0, |t| t.bytes_dropped);
        self.published.store(last.0, Ordering::Release);
        let commit = self.commit.get_mut();
        commit.next_seq = last.next();
        if self.options.read_only {
            return Ok(());
        }
        log::truncate_torn(&self.environment, &directory, &report)?;
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

    fn replay_into(
        &self,
        space: &Arc<crate::engine::Space>,
        keyspace: &thermocline_model::Keyspace,
        seq: SeqNo,
        operation: &crate::batch::Operation<'_>,
        segment: u64,
    ) {
        let mut view = space.view.load_full();
        if view.parts.iter().any(|p| p.active.is_full()) {
            self.seal(&mut self.commit_for_replay(), space, |p| p.active.is_full());
            view = space.view.load_full();
        }
        let wanted = |part: usize| keyspace.parts.get(part).is_some_and(|p| seq > p.flushed);
        crate::write::apply(
            &view,
            seq,
            operation.kind,
            operation.key,
            operation.value,
            &|part| {
                let wanted = wanted(part);
                if wanted {
                    let memtable: &LiveMemtable = &view.parts[part].active;
                    memtable.oldest_segment.fetch_min(segment, Ordering::AcqRel);
                    memtable.last_seq.fetch_max(seq.0, Ordering::AcqRel);
                }
                wanted
            },
        );
    }

    fn commit_for_replay(&self) -> parking_lot::MutexGuard<'_, Commit> {
        self.commit.lock()
    }

    /// The store's own number, from its manifest.
    pub(crate) fn store_id(&self) -> u128 {
        self.versions.lock().store_id
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
            (named, versions.manifest.as_ref().map(|m| m.header().number))
        };
        for tier in &self.tiers {
            for (name, _) in tier.store.list()? {
                if !named.contains(&(tier.id, name)) {
                    tier.store.delete(name)?;
                    self.recovery.orphans += 1;
                }
            }
        }
        let directory = self.directory();
        let fs = &self.environment.file_system;
        for entry in fs
            .list(&directory)
            .map_err(|e| Error::io("listing", &directory, e))?
        {
            let number = manifest::number_of(&entry.name.to_string_lossy());
            if number.is_some() && number != manifest {
                let _ = fs.unlink(&directory.join(&entry.name));
            }
        }
        Ok(())
    }
}
