//! On which tier the manifest lies: OHDB's "metadata files" (section III-B,
//! `docs/papers/ohdb.md`).
//!
//! The option says where the next manifest goes, and the pointer where the one in force is. Each
//! opening for writing begins one, so an opening with another option moves it.

use std::path::{Path, PathBuf};

use thermocline_model::tier::TierId;

use super::Options;
use crate::error::{Error, ErrorKind, Result};
use crate::version::manifest;
use crate::version::pointer::{CURRENT, Pointer};

impl Options {
    /// The name of the tier that has the manifest, to which every job writes some hundred bytes
    /// and persists them. The next opening that may write moves it there. The pointer to it stays
    /// on the first tier. Default: the first.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = |name| directory.path().join(name);
    /// # let has_manifest = |name| {
    /// #     let files = std::fs::read_dir(path(name)).unwrap().flatten();
    /// #     files.filter(|f| f.file_name().to_string_lossy().starts_with("MANIFEST-")).count() == 1
    /// # };
    /// let options = Options::new()
    ///     .tier(Tier::new("ssd", path("ssd")))
    ///     .tier(Tier::new("hdd", path("hdd")));
    /// Db::open(options.clone())?.put(b"key", b"value")?;
    /// assert!(has_manifest("ssd") && !has_manifest("hdd"));
    /// let db = Db::open(options.clone().manifest_tier("hdd"))?;
    /// assert!(has_manifest("hdd") && !has_manifest("ssd"));
    /// assert!(db.get(b"key")?.is_some());
    /// # drop(db);
    /// let error = Db::open(options.manifest_tier("tape")).unwrap_err();
    /// assert!(error.to_string().contains("option manifest_tier: expected ssd or hdd, found tape"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn manifest_tier(mut self, name: &str) -> Options {
        self.manifest_tier = Some(name.to_string());
        self
    }

    /// The number of the tier that the next manifest goes to.
    pub(crate) fn manifest_tier_index(&self) -> usize {
        self.tier_or_first(self.manifest_tier.as_ref())
    }

    /// Manifest `number` on the tier that manifests go to.
    pub(crate) fn next_manifest(&self, number: u64) -> Pointer {
        Pointer {
            number,
            tier: TierId(self.manifest_tier_index() as u32),
        }
    }

    /// The directory that manifests go to.
    pub(crate) fn manifest_directory(&self) -> &Path {
        self.tiers[self.manifest_tier_index()].path()
    }

    /// The directory in which the manifest of a pointer lies.
    ///
    /// # Errors
    /// `WrongTier` where there is no such tier.
    pub(crate) fn directory_of(&self, pointer: Pointer) -> Result<&Path> {
        let tier = self.tiers.get(pointer.tier.0 as usize);
        tier.map(|tier| tier.path()).ok_or_else(|| {
            let what = format!(
                "tier {}, which has the manifest, is missing from the options",
                pointer.tier
            );
            Error::new(ErrorKind::WrongTier, what)
                .at(&self.tiers[0].path().join(CURRENT))
                .expected(
                    format!("more than {} tiers", pointer.tier),
                    self.tiers.len(),
                )
        })
    }

    /// The path of the manifest of a pointer.
    ///
    /// # Errors
    /// As [`Options::directory_of`].
    pub(crate) fn path_of(&self, pointer: Pointer) -> Result<PathBuf> {
        let name = manifest::file_name(pointer.number);
        Ok(self.directory_of(pointer)?.join(name))
    }
}
