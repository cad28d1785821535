//! Directories that are deleted with their owner.

use std::fs;
use std::path::{Path, PathBuf};

use crate::engine::Result;

/// A new directory of this process's own, deleted at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one in `parent`, which is made too if it is missing.
    ///
    /// # Errors
    /// Where it cannot be made, or is there already.
    pub(crate) fn new(parent: &Path) -> Result<Scratch> {
        let path = parent.join(format!("thermocline-bench-{}", std::process::id()));
        fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Scratch(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove_quietly(&self.0);
    }
}

/// Deletes a directory of ours; if that fails there is nobody left to tell.
pub(crate) fn remove_quietly(directory: &Path) {
    drop(fs::remove_dir_all(directory));
}
