//! What `verify` says.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::Error;
use crate::stats::human_bytes;

/// Something that is not as it should be.
///
/// ```
/// # use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// Db::open(Options::at(directory.path()))?.close()?;
/// let current = directory.path().join("CURRENT");
/// std::fs::write(&current, b"nonsense").unwrap();
/// let report = thermocline::verify(Options::at(directory.path()))?;
/// assert_eq!(report.problems[0].path, current);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Problem {
    /// The file or directory.
    pub path: PathBuf,
    /// Where in it, in bytes.
    pub offset: Option<u64>,
    /// What is wrong, in words.
    pub what: String,
    /// What should have been there, where that can be said.
    pub expected: Option<String>,
    /// What is there instead.
    pub found: Option<String>,
}

impl Problem {
    /// A file with places that its device cannot read.
    pub(crate) fn unreadable(path: &Path) -> Problem {
        Problem {
            path: path.to_path_buf(),
            offset: None,
            what: "there are places that the device cannot read".to_string(),
            expected: None,
            found: None,
        }
    }

    pub(super) fn of(error: &Error, otherwise: &Path) -> Problem {
        let (expected, found) = error.expected_found().unzip();
        Problem {
            path: error.path().unwrap_or(otherwise).to_path_buf(),
            offset: error.offset_at(),
            what: error.words(),
            expected: expected.map(str::to_string),
            found: found.map(str::to_string),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at {offset}")?;
        }
        write!(f, ": {}", self.what)?;
        if let Some(expected) = &self.expected {
            write!(f, ": expected {expected}")?;
        }
        if let Some(found) = &self.found {
            write!(f, ", found {found}")?;
        }
        Ok(())
    }
}

/// What [`crate::verify`] read and found.
///
/// ```
/// # use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let db = Db::open(Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// db.flush()?;
/// db.close()?;
/// let report = thermocline::verify(Options::at(directory.path()))?;
/// assert_eq!((report.tables, report.blocks, report.entries), (1, 1, 1));
/// assert!(report.to_string().ends_with("no problems"));
/// # Ok::<(), thermocline::Error>(())
/// ```
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
    /// What could not be checked, because something else cannot be read.
    pub not_checked: Vec<String>,
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
            human_bytes(self.bytes),
            self.tiers,
            if self.tiers == 1 { "tier" } else { "tiers" }
        )?;
        write!(f, "manifest {}", human_bytes(self.manifest_bytes))?;
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
            human_bytes(self.log_bytes)
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
        for what in &self.not_checked {
            write!(f, "\nnot checked: {what}")?;
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
