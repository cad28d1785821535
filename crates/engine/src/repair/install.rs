//! Putting the repaired version in force, and what it does not name aside.
//!
//! What is put aside has its name in `lost` before the new manifest takes over,
//! and loses the old one only after.

use std::path::Path;

use thermocline_model::check;
use thermocline_model::tier::TierId;
use thermocline_model::version::Version;

use super::{Repair, attempt};
use crate::error::{Error, Result};
use crate::log;
use crate::store::{OpenHow, TIER_FILE_NAME, TierIdentity, swap_file, write_all_at};
use crate::verify::named_objects;
use crate::version::manifest::{self, Header, Manifest};
use crate::version::pointer::{self, CURRENT};

/// Where in a tier's directory things are put that are of no use any more.
const LOST: &str = "lost";

impl Repair<'_> {
    /// Puts the version in force, and what it does not name aside.
    pub(super) fn finish(&mut self, version: &mut Version) -> Result<()> {
        self.report_loss();
        let number = self.new_id();
        version.next_id = version.next_id.max(self.next_id);
        version.last_seq = version.last_seq.max(self.last_seq);
        let (directory, log_directory) = (self.directory(), self.options.log_directory());
        check::check_version(version)
            .map_err(|e| Error::corruption(format!("the repaired version: {e}")).at(directory))?;
        let (fs, environment) = (&self.environment.file_system, self.environment);
        // Names first, in both places, so that nothing is ever in neither.
        let mut gone = Vec::new();
        let named = named_objects(version);
        for ((tier, store), id) in self.options.tiers.iter().zip(&self.home.stores).zip(0u32..) {
            for (name, _) in store.list()? {
                if named.contains_key(&(TierId(id), name)) {
                    continue;
                }
                if name.id >= self.first_new_id {
                    // A step on the way to a table that is named.
                    store.delete(name)?;
                } else {
                    gone.push((tier.path(), name.to_string()));
                }
            }
            if TierIdentity::read(environment, tier.path()).is_err() {
                gone.push((tier.path(), TIER_FILE_NAME.to_string()));
            }
        }
        if pointer::current(environment, directory).is_err() {
            gone.push((directory, CURRENT.to_string()));
        }
        for old in self.manifests()? {
            let directory = self.options.directory_of(old)?;
            gone.push((directory, manifest::file_name(old.number)));
        }
        for &segment in &self.segments {
            let path = log::segment_path(log_directory, segment);
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
            gone.extend(name.map(|n| (log_directory, n)));
        }
        for (tier, name) in &gone {
            self.set_aside(tier, name, false)?;
        }
        let cut_name = self
            .cut
            .map(|(segment, _)| log::segment_path(log_directory, segment));
        if let Some(name) = cut_name.as_ref().and_then(|p| p.file_name()) {
            // A copy: the original is cut.
            self.set_aside(log_directory, &name.to_string_lossy(), true)?;
        }

        let tiers = self
            .options
            .tiers
            .iter()
            .zip(0u32..)
            .map(|(t, id)| (TierId(id), t.name().to_string()));
        let header = Header {
            store_id: self.store_id,
            number,
            generation: self.generation + 1,
            tiers: tiers.collect(),
        };
        let generation = header.generation;
        let of_manifest = self.options.manifest_directory();
        let mut new = Manifest::create(environment, of_manifest, header, version, false)?;
        pointer::install(environment, directory, self.options.next_manifest(number))?;
        for (tier, id) in self.options.tiers.iter().zip(0u32..) {
            let identity = TierIdentity {
                store_id: self.store_id,
                tier_id: id,
                tier_name: tier.name().to_string(),
                generation,
            };
            identity.write(environment, tier.path())?;
        }
        new.settle()?;
        attempt::unmark(environment, directory)?;

        for segment in std::mem::take(&mut self.unreadable) {
            if !self.segments.contains(&segment) {
                self.copy_readable(segment)?;
            }
        }
        if let Some((segment, end)) = self.cut {
            let path = log::segment_path(log_directory, segment);
            let cut = || {
                let file = fs.open(&path, OpenHow::WRITE)?;
                file.set_size(end)?;
                file.sync()
            };
            cut().map_err(|e| Error::io("cutting the log", &path, e))?;
        }
        // From the highest down, so that a log cut short stays one.
        gone.sort_by(|a, b| b.1.cmp(&a.1));
        for (tier, name) in gone {
            if name != TIER_FILE_NAME && name != CURRENT {
                let path = tier.join(name);
                fs.unlink(&path)
                    .map_err(|e| Error::io("moving aside", &path, e))?;
            }
        }
        for tier in &self.options.tiers {
            let path = tier.path();
            fs.sync_directory(path)
                .map_err(|e| Error::io("persisting directory", path, e))?;
        }
        Ok(())
    }

    /// Puts what can be read of a log segment in its place, as an opening would fail
    /// at the rest.
    fn copy_readable(&mut self, segment: u64) -> Result<()> {
        let directory = self.options.log_directory();
        let path = log::segment_path(directory, segment);
        let bytes = manifest::read_file(self.environment, &path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.set_aside(directory, &name, false)?;
        // Not by a comparison: read here, the old one holds the same.
        swap_file(self.environment, directory, &name, &bytes)
    }

    /// Gives the file `name` of a tier a second name in the tier's directory
    /// for lost things, or puts a copy there.
    fn set_aside(&mut self, tier: &Path, name: &str, copy: bool) -> Result<()> {
        let fs = &self.environment.file_system;
        let lost = tier.join(LOST);
        fs.create_directory(&lost)
            .map_err(|e| Error::io("creating", &lost, e))?;
        let from = tier.join(name);
        let mut to = lost.join(name);
        for attempt in 1.. {
            let there = fs
                .metadata(&to)
                .map_err(|e| Error::io("looking for", &to, e))?;
            if there.is_none() {
                break;
            }
            to = lost.join(format!("{name}.{attempt}"));
        }
        let linked = !copy && fs.hard_link(&from, &to).is_ok();
        if !linked {
            let bytes = manifest::read_file(self.environment, &from)?;
            let write = || {
                let file = fs.open(&to, OpenHow::NEW)?;
                write_all_at(&*file, &bytes, 0)?;
                file.sync()
            };
            write().map_err(|e| Error::io("moving aside", &to, e))?;
        }
        fs.sync_directory(&lost)
            .map_err(|e| Error::io("persisting directory", &lost, e))?;
        self.report.moved_aside.push(to);
        Ok(())
    }
}
