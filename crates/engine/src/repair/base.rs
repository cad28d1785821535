//! What a repair starts from: the best manifest that can be read, and whose
//! tiers these are.

use thermocline_model::check;

use super::Repair;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{self, Found};
use crate::open::{check_manifest_tier, wrong_manifest_tier};
use crate::options::Options;
use crate::store::{Environment, TIER_FILE_NAME, TierIdentity};
use crate::verify::is_read;
use crate::version::manifest::{self, Header};
use crate::version::pointer::{self, CURRENT};
use crate::version::remains::{Remains, remains};

/// Requires that the tier of the manifest is one of the options', of the same store as the first
/// one, and not an empty directory: without it every table that only the manifest places would be
/// given up.
///
/// # Errors
/// `WrongTier`, `Io`.
pub(super) fn check_manifest_tier_there(
    options: &Options,
    environment: &Environment,
) -> Result<()> {
    let Ok(Some(pointer)) = pointer::current(environment, options.tiers[0].path()) else {
        return Ok(());
    };
    let tiers = options.tiers.iter();
    let identities = tiers.map(|t| TierIdentity::read(environment, t.path()).ok().flatten());
    check_manifest_tier(options, pointer, &identities.collect::<Vec<_>>())?;
    let path = options.directory_of(pointer)?;
    let list = environment.file_system.list(path);
    let list = list.map_err(|e| Error::io("listing", path, e))?;
    let is_of_store = |name: &str| is_read(name) || name == TIER_FILE_NAME || name == CURRENT;
    match list
        .iter()
        .any(|entry| is_of_store(&entry.name.to_string_lossy()))
    {
        true => Ok(()),
        false => {
            let what = "is missing: its directory has no file of a store";
            Err(wrong_manifest_tier(options, pointer, what))
        }
    }
}

impl Repair<'_> {
    /// What can be read of the best manifest: the one in force if that is
    /// known, else the newest.
    pub(super) fn remains(&mut self) -> Option<Remains> {
        let mut manifests = self.manifests().ok()?;
        manifests.reverse();
        let in_force = pointer::current(self.environment, self.directory());
        let in_force = in_force.ok().flatten();
        manifests.sort_by_key(|&manifest| Some(manifest) != in_force);
        let newest = in_force.or(manifests.first().copied());
        let mut best: Option<Remains> = None;
        for pointer in manifests {
            let Ok(directory) = self.options.directory_of(pointer) else {
                continue;
            };
            let number = pointer.number;
            let Ok(mut remains) = remains(self.environment, directory, number) else {
                continue;
            };
            let lawful = remains
                .version
                .as_ref()
                .is_some_and(|v| check::check_version(v).is_ok() && !manifest::lacks_default(v));
            let closed = remains.header.as_ref().map_or(Ok(()), |header| {
                manifest::check_closing_note(
                    self.environment,
                    directory,
                    self.options.log_directory(),
                    header.store_id,
                    number,
                    remains.end,
                )
            });
            if closed.is_err() {
                // Edits are missing at its end.
                remains.gap.get_or_insert(remains.end);
            }
            if !lawful || Some(pointer) != newest {
                // Of an older manifest only what it knows of tables is of use.
                remains.gap.get_or_insert(0);
            }
            if remains.header.is_some() && best.is_none() {
                best = Some(remains);
            }
        }
        best
    }

    /// Requires that the tiers are those of one store, and learns which.
    pub(super) fn identify(&mut self, header: Option<&Header>) -> Result<()> {
        let mut store_id = header.map(|h| h.store_id);
        self.generation = header.map_or(0, |h| h.generation);
        for (tier, id) in self.options.tiers.iter().zip(0u32..) {
            let wrong = |what: &str| {
                Error::new(
                    ErrorKind::WrongTier,
                    format!("tier {:?} {what}", tier.name()),
                )
                .at(tier.path())
            };
            if let Some((_, name)) = header.and_then(|h| h.tiers.get(id as usize))
                && name != tier.name()
            {
                return Err(wrong("is another one of the store").expected(name, tier.name()));
            }
            let Ok(Some(identity)) = TierIdentity::read(self.environment, tier.path()) else {
                continue;
            };
            if *store_id.get_or_insert(identity.store_id) != identity.store_id {
                return Err(wrong("belongs to another store"));
            }
            if identity.tier_id != id {
                return Err(wrong("is in the place of another").expected(identity.tier_id, id));
            }
            self.generation = self.generation.max(identity.generation);
        }
        if header.is_some_and(|h| h.tiers.len() > self.options.tiers.len()) {
            let what = "the store has more tiers than the options";
            return Err(Error::new(ErrorKind::WrongTier, what).at(self.directory()));
        }
        if store_id.is_none() {
            // The segments of the log say whose they are.
            for (segment, _) in self.log_segments()? {
                let path = self.log_path(segment);
                let _ = log::scan_frames(self.environment, &path, None, &mut |found| {
                    if let Found::Header(header) = found {
                        store_id.get_or_insert(header.store_id);
                    }
                    Ok(())
                });
            }
        }
        let dice = &self.environment.dice;
        self.store_id = store_id
            .unwrap_or_else(|| u128::from(dice.next_u64()) << 64 | u128::from(dice.next_u64()));
        Ok(())
    }
}
