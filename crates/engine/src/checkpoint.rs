//! Checkpoints: a store of its own that holds what is visible now.
//!
//! The memtables are flushed; then the objects of one version are linked into
//! the new directories, with a manifest that names them. The new store has its
//! own number, so that its tiers can never be taken for the old one's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_model::key::SeqNo;
use thermocline_model::version::Version;

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::options::OPTIONS_FILE;
use crate::store::{ObjectKind, ObjectName, TierIdentity, create_directory, replace_file};
use crate::version::manifest::{Header, Manifest};
use crate::version::pointer;

pub(crate) fn checkpoint(engine: &Arc<Engine>, directory: &Path) -> Result<()> {
    let environment = &engine.environment;
    let fs = &environment.file_system;
    let io = |doing: &str, path: &Path, e| Error::io(doing, path, e);
    if fs
        .metadata(directory)
        .map_err(|e| io("looking for directory", directory, e))?
        .is_some()
    {
        let list = fs
            .list(directory)
            .map_err(|e| io("listing", directory, e))?;
        if !list.is_empty() {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "checkpoint directory is not empty",
            )
            .at(directory));
        }
    }
    engine.check_writable()?;
    // Most of the flush is done while writers go on; what they write meanwhile
    // is flushed while they wait, so that no batch is in the version by half.
    engine.flush_all(None)?;
    // Holding the trees keeps every object of this version from deletion.
    let (version, _trees) = {
        let mut commit = engine.commit.lock();
        engine.flush_still(&mut commit, None)?;
        let versions = engine.versions.lock();
        let trees: Vec<_> = engine
            .spaces
            .load()
            .values()
            .map(|s| Arc::clone(&s.view.load().tree))
            .collect();
        (Arc::clone(&versions.current), trees)
    };
    create_directory(environment, directory)?;
    let mut tiers = Vec::new();
    for tier in &engine.tiers {
        let path = directory.join(tier.spec.name());
        create_directory(environment, &path)?;
        tiers.push((tier, path));
    }
    for table in version.tables() {
        let kinds = std::iter::once(ObjectKind::Meta).chain(std::iter::repeat(ObjectKind::Data));
        for (extent, kind) in table.extents().zip(kinds) {
            let (tier, path) = &tiers[extent.tier.0 as usize];
            tier.store.link(
                ObjectName {
                    id: extent.object.0,
                    kind,
                },
                path,
            )?;
        }
    }
    for (_, path) in &tiers {
        fs.sync_directory(path)
            .map_err(|e| io("persisting directory", path, e))?;
    }
    let number = version.next_id;
    let next = Version {
        next_id: number + 1,
        // Everything was flushed, and the copy has a log of its own.
        log_reach: SeqNo::ZERO,
        ..(*version).clone()
    };
    let store_id =
        u128::from(environment.dice.next_u64()) << 64 | u128::from(environment.dice.next_u64());
    let header = Header {
        store_id,
        number,
        generation: 1,
        tiers: tiers
            .iter()
            .map(|(t, _)| (t.id, t.spec.name().to_string()))
            .collect(),
    };
    for (tier, path) in &tiers {
        let identity = TierIdentity {
            store_id,
            tier_id: tier.id.0,
            tier_name: tier.spec.name().to_string(),
            generation: 1,
        };
        identity.write(environment, path)?;
    }
    let first = &tiers[0].1;
    let pointer = engine.options.next_manifest(number);
    let of_manifest = &tiers[engine.options.manifest_tier_index()].1;
    Manifest::create(environment, of_manifest, header, &next, true)?;
    // The directory can be moved as a whole: both files name its tiers relative
    // to themselves.
    let first_name = engine.tiers[0].spec.name();
    for (place, to_tier) in [(directory, ""), (first.as_path(), "../")] {
        let path_of = |name: &str| match (to_tier, name == first_name) {
            ("../", true) => PathBuf::from("."),
            _ => PathBuf::from(format!("{to_tier}{name}")),
        };
        let tiers = tiers
            .iter()
            .map(|(t, _)| t.spec.clone().moved_to(&path_of(t.spec.name())));
        let mut options = engine.options.clone().with_tiers(tiers.collect());
        options.cost_target_usd_per_gb_month = engine.scheduler.lock().cost.target_usd_gb_month;
        replace_file(
            environment,
            place,
            OPTIONS_FILE,
            options.to_toml().as_bytes(),
        )?;
    }
    // Without it the copy would only have to learn again what is hot.
    let _ = engine.write_heat(first, store_id);
    // Last: only now is it a store.
    pointer::install(environment, first, pointer).map_err(|e| {
        Error::new(
            ErrorKind::Io,
            format!("the checkpoint may be incomplete: {e}"),
        )
        .at(first)
    })
}
