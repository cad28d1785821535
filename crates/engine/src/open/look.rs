//! Looking before opening: what the directories hold, and whether it belongs
//! together (I7). Reads only.

use thermocline_model::check;
use thermocline_model::edit::{Change, Edit};
use thermocline_model::tier::TierId;
use thermocline_model::version::{KeyspaceId, Version};

use super::DEFAULT_KEYSPACE;
use crate::error::{Error, ErrorKind, Result};
use crate::log;
use crate::options::Options;
use crate::store::{Environment, ObjectName, TierIdentity};
use crate::version::manifest::{self, Header};
use crate::version::pointer::{self, Pointer};
use crate::version::remains::was_in_force;

/// What the directories hold before anything is changed.
pub(super) struct Found {
    pub(super) header: Header,
    pub(super) version: Version,
    pub(super) settled: bool,
    pub(super) torn_manifest_bytes: u64,
    /// Whether there was no store.
    pub(super) fresh: bool,
    /// The tier that the manifest lies on.
    pub(super) tier: TierId,
}

/// Reads manifest and identities and refuses what does not belong together.
pub(super) fn look(options: &Options, environment: &Environment) -> Result<Found> {
    let directory = options.tiers[0].path();
    let identities = options
        .tiers
        .iter()
        .map(|t| TierIdentity::read(environment, t.path()))
        .collect::<Result<Vec<_>>>()?;
    let Some(pointer) = pointer::current(environment, directory)? else {
        return look_fresh(options, environment, &identities);
    };
    let read = read_manifest(options, environment, pointer, &identities)?;
    let path = options.path_of(pointer)?;
    check::check_version(&read.version).map_err(|e| Error::corruption(e.to_string()).at(&path))?;
    if let Some(problem) = tier_problems(options, &read, &identities)
        .into_iter()
        .next()
    {
        return Err(problem);
    }
    check_log_tier(options, environment, read.version.log_floor)?;
    manifest::check_closing_note(
        environment,
        options.directory_of(pointer)?,
        options.log_directory(),
        read.header.store_id,
        pointer.number,
        read.end,
    )?;
    Ok(Found {
        header: read.header,
        version: read.version,
        settled: read.settled,
        torn_manifest_bytes: read.torn_bytes,
        fresh: false,
        tier: pointer.tier,
    })
}

/// Reads the manifest in force. Where it lies on another tier than the first, a tier that does
/// not belong to the first one, or from which it is missing, is named.
pub(crate) fn read_manifest(
    options: &Options,
    environment: &Environment,
    pointer: Pointer,
    identities: &[Option<TierIdentity>],
) -> Result<manifest::ReadBack> {
    check_manifest_tier(options, pointer, identities)?;
    if pointer.tier.0 > 0 {
        check_manifest_is_there(options, environment, pointer, identities)?;
    }
    let directory = options.directory_of(pointer)?;
    manifest::read(environment, directory, pointer.number)
}

/// An error about the tier that the manifest lies on. Requires: the options have it.
pub(crate) fn wrong_manifest_tier(options: &Options, pointer: Pointer, what: &str) -> Error {
    let tier = &options.tiers[pointer.tier.0 as usize];
    let what = format!("tier {:?}, which has the manifest, {what}", tier.name());
    Error::new(ErrorKind::WrongTier, what).at(tier.path())
}

/// Requires that the tier of the manifest is there, and of the same store as the first one and in
/// its place, as far as their identities tell.
pub(crate) fn check_manifest_tier(
    options: &Options,
    pointer: Pointer,
    identities: &[Option<TierIdentity>],
) -> Result<()> {
    options.directory_of(pointer)?;
    let wrong = |what: &str| wrong_manifest_tier(options, pointer, what);
    let at = pointer.tier.0 as usize;
    if let (Some(first), Some(own), 1..) = (&identities[0], &identities[at], at) {
        if own.store_id != first.store_id {
            return Err(wrong("belongs to another store").expected(
                format!("{:032x}", first.store_id),
                format!("{:032x}", own.store_id),
            ));
        }
        if own.tier_id != pointer.tier.0 {
            return Err(wrong("is another tier of this store: tiers are swapped")
                .expected(pointer.tier, own.tier_id));
        }
    }
    Ok(())
}

/// Where the manifest is not on its tier: requires that the identity of that does not say why.
fn check_manifest_is_there(
    options: &Options,
    environment: &Environment,
    pointer: Pointer,
    identities: &[Option<TierIdentity>],
) -> Result<()> {
    let wrong = |what: &str| wrong_manifest_tier(options, pointer, what);
    let path = options.path_of(pointer)?;
    let there = environment.file_system.metadata(&path);
    if there
        .map_err(|e| Error::io("looking for manifest", &path, e))?
        .is_some()
    {
        // It says the rest itself.
        return Ok(());
    }
    let Some(own) = &identities[pointer.tier.0 as usize] else {
        return Err(wrong("is missing: its directory has no identity file"));
    };
    let first = identities[0].as_ref().map_or(0, |i| i.generation);
    let generation = |g: u64| format!("generation {g}");
    if own.generation < first {
        return Err(wrong("is stale: it missed earlier openings of the store")
            .expected(generation(first), generation(own.generation)));
    }
    if own.generation > first && first > 0 {
        return Err(wrong("is newer than the first tier, which is stale")
            .expected(generation(first), generation(own.generation)));
    }
    Ok(())
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

/// The log must lie where the options say: what is in a segment elsewhere would be
/// missing, and no power failure explains that.
pub(crate) fn check_log_tier(
    options: &Options,
    environment: &Environment,
    floor: u64,
) -> Result<()> {
    let fs = &*environment.file_system;
    for (at, tier) in options.tiers.iter().enumerate() {
        let path = tier.path();
        let there = fs
            .metadata(path)
            .map_err(|e| Error::io("looking for tier directory", path, e));
        if at == options.log_tier_index() || there?.is_none() {
            continue;
        }
        let segments = log::list_segments(fs, path)?;
        if let Some((segment, _)) = segments.into_iter().find(|&(s, _)| s >= floor) {
            let what = format!("tier {:?} has the log", tier.name());
            let expected = format!("the tier of option log_tier, {:?}", tier.name());
            let named = &options.tiers[options.log_tier_index()];
            return Err(Error::new(ErrorKind::WrongTier, what)
                .at(&log::segment_path(path, segment))
                .expected(expected, format!("{:?}", named.name())));
        }
    }
    Ok(())
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
            .at(&options.tiers[0].path().join(pointer::CURRENT)));
        }
        let path = tier.path();
        let there = environment.file_system.metadata(path);
        if there
            .map_err(|e| Error::io("looking for tier directory", path, e))?
            .is_none()
        {
            continue;
        }
        let list = environment
            .file_system
            .list(path)
            .map_err(|e| Error::io("listing", path, e))?;
        for entry in &list {
            let name = entry.name.to_string_lossy();
            if let Some(number) = manifest::number_of(&name)
                && was_in_force(environment, path, number)?
            {
                return Err(Error::corruption(
                    "the manifest pointer is missing, but there is a manifest: run repair",
                )
                .at(&path.join(&entry.name)));
            }
        }
        let leftover = list.iter().find(|entry| {
            let name = entry.name.to_string_lossy();
            ObjectName::parse(&name).is_some() || crate::log::parse_segment(&name).is_some()
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
        tier: TierId(0),
    })
}
