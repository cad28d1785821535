//! How far a `load` has come, kept in the store itself.
//!
//! The keyspace `_load` holds one entry for each unfinished load. It is written
//! after a chunk is durable, so that it never promises more than the store has.
//! A kill between the two makes the next run load that chunk once more.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::engine::{Changes, Db, ErrorKind, Keyspace, keyspace_or_new};
use crate::exit::Failure;
use crate::input::source::Input;

/// The reserved keyspace.
pub(crate) const KEYSPACE: &str = "_load";

/// A place in an input, at the end of a chunk.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Bytes of the decompressed input that are loaded.
    pub(crate) bytes: u64,
    /// Lines that are loaded.
    pub(crate) lines: u64,
    /// Good records among them.
    pub(crate) records: u64,
    /// Bad records among them.
    pub(crate) bad: u64,
    /// What must be the same for the place to have a meaning: see
    /// [`Bookmark::new`].
    pub(crate) terms: String,
}

/// The entry of one input.
pub(crate) struct Bookmark {
    space: Keyspace,
    key: Vec<u8>,
    terms: String,
}

impl Bookmark {
    /// The bookmark of `input`; none for what cannot be read again from its
    /// middle. `settings` describes how the input is read: with other settings,
    /// or once the file has changed, an old position is not used.
    pub(crate) fn new(db: &Db, input: &Input, settings: &str) -> Result<Option<Bookmark>, Failure> {
        let Some((path, size_bytes, modified)) = identity(input) else {
            return Ok(None);
        };
        let mut key = path.into_os_string().into_encoded_bytes();
        key.extend_from_slice(format!("\0{size_bytes}").as_bytes());
        Ok(Some(Bookmark {
            space: keyspace_or_new(db, KEYSPACE)?,
            key,
            terms: format!("{modified} {settings}"),
        }))
    }

    /// The position that an earlier run left.
    pub(crate) fn position(&self) -> Result<Option<Position>, Failure> {
        let Some(value) = self.space.get(&self.key)? else {
            return Ok(None);
        };
        let position: Position = match serde_json::from_slice(&value) {
            Ok(position) => position,
            // Written by another version: starting over is always right.
            Err(_) => return Ok(None),
        };
        Ok(Some(position).filter(|p| p.terms == self.terms))
    }

    /// Makes `position` durable.
    pub(crate) fn record(&self, db: &Db, position: &Position) -> Result<(), Failure> {
        let position = Position {
            terms: self.terms.clone(),
            ..position.clone()
        };
        let mut changes = Changes::of(&self.space);
        changes.put(&self.key, &serde_json::to_vec(&position)?)?;
        Ok(changes.write_durably(db)?)
    }

    /// Forgets the position.
    pub(crate) fn clear(&self, db: &Db) -> Result<(), Failure> {
        if self.space.get(&self.key)?.is_none() {
            return Ok(());
        }
        let mut changes = Changes::of(&self.space);
        changes.delete(&self.key)?;
        match changes.write_durably(db) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// The canonical path, size and modification time of a plain file.
fn identity(input: &Input) -> Option<(PathBuf, u64, u128)> {
    let Input::File(path) = input else {
        return None;
    };
    let metadata = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some((
        path.canonicalize().ok()?,
        metadata.len(),
        modified.as_nanos(),
    ))
}
