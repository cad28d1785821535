//! A snapshot: the store as it was, read like the store.

use std::ops::Bound;
use std::sync::Arc;

use thermocline_model::key::SeqNo;

use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::scan::Iter;
use crate::slice::Slice;

/// The store as it was at one moment. What it sees is kept until it is
/// dropped.
///
/// ```
/// use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let db = Db::open(Options::at(directory.path()))?;
/// db.put(b"k", b"old")?;
/// let before = db.snapshot();
/// db.put(b"k", b"new")?;
/// assert_eq!(before.get(b"k")?.as_deref(), Some(&b"old"[..]));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) default: Keyspace,
    pub(crate) seq: SeqNo,
}

impl Snapshot {
    /// The value that `key` had in the default keyspace.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"key", b"old")?;
    /// let before = db.snapshot();
    /// db.put(b"key", b"new")?;
    /// db.compact_range(None, None)?; // Not even a merge takes it away.
    /// assert_eq!(before.get(b"key")?.as_deref(), Some(&b"old"[..]));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        self.get_in(&self.default, key)
    }

    /// The value that `key` had in `keyspace`.
    ///
    /// ```
    /// # use thermocline::KeyspaceOptions;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let users = db.create_keyspace("users", KeyspaceOptions::default())?;
    /// users.put(b"ada", b"byron")?;
    /// let before = db.snapshot();
    /// users.put(b"ada", b"lovelace")?;
    /// assert_eq!(before.get_in(&users, b"ada")?.as_deref(), Some(&b"byron"[..]));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`], and [`crate::ErrorKind::InvalidArgument`] for a
    /// keyspace of another store.
    pub fn get_in(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Slice>> {
        self.check_own(keyspace)?;
        self.default
            .engine()
            .get(&keyspace.space, key, Some(self.seq))
    }

    /// The values that many keys of the default keyspace had.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"a", b"1")?;
    /// let before = db.snapshot();
    /// db.put(b"b", b"2")?;
    /// let values = before.multi_get(&[b"a", b"b"])?;
    /// assert!(values[0].is_some() && values[1].is_none());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Slice>>> {
        self.default
            .engine()
            .multi_get(&self.default.space, keys, Some(self.seq))
    }

    /// An iterator over the default keyspace as it was.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"a", b"")?;
    /// let before = db.snapshot();
    /// db.put(b"b", b"")?;
    /// assert_eq!(before.iter()?.forward().count(), 1);
    /// assert_eq!(db.iter()?.forward().count(), 2);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn iter(&self) -> Result<Iter> {
        self.range_in(&self.default, Bound::Unbounded, Bound::Unbounded)
    }

    /// An iterator over a range of `keyspace` as it was.
    ///
    /// ```
    /// use std::ops::Bound;
    /// # use thermocline::KeyspaceOptions;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let users = db.create_keyspace("users", KeyspaceOptions::default())?;
    /// users.put(b"ada", b"")?;
    /// users.put(b"grace", b"")?;
    /// let before = db.snapshot();
    /// users.delete(b"grace")?;
    /// let iter = before.range_in(&users, Bound::Included(b"b"), Bound::Unbounded)?;
    /// assert_eq!(iter.forward().count(), 1);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::range`], and [`crate::ErrorKind::InvalidArgument`] for a
    /// keyspace of another store.
    pub fn range_in(
        &self,
        keyspace: &Keyspace,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> Result<Iter> {
        self.check_own(keyspace)?;
        Iter::over(
            self.default.engine(),
            &keyspace.space,
            Some(self.seq),
            start,
            end,
        )
    }

    /// An iterator over the keys of the default keyspace with a prefix.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"user:1", b"")?;
    /// let before = db.snapshot();
    /// db.put(b"user:2", b"")?;
    /// assert_eq!(before.prefix(b"user:")?.forward().count(), 1);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::prefix`].
    pub fn prefix(&self, prefix: &[u8]) -> Result<Iter> {
        Iter::over_prefix(
            self.default.engine(),
            &self.default.space,
            Some(self.seq),
            prefix,
        )
    }
}

impl Snapshot {
    /// Sequence numbers of one store mean nothing to another.
    fn check_own(&self, keyspace: &Keyspace) -> Result<()> {
        if Arc::ptr_eq(&self.default.handle, &keyspace.handle) {
            return Ok(());
        }
        Err(Error::invalid(
            "keyspace of another store than the snapshot's",
        ))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut snapshots = self.default.engine().snapshots.lock();
        if let Some(count) = snapshots.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                snapshots.remove(&self.seq);
            }
        }
    }
}
