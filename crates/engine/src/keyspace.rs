//! A keyspace: what is read and written of one namespace of keys.

use std::ops::Bound;
use std::sync::Arc;

use thermocline_model::key::Kind;
use thermocline_model::version::KeyspaceId;

use crate::batch::WriteBatch;
use crate::bulk::BulkLoad;
use crate::db::Handle;
use crate::engine::{Engine, Space};
use crate::error::Result;
use crate::explain::{Explanation, RangeExplanation};
use crate::scan::Iter;
use crate::slice::Slice;
use crate::write::WriteOptions;

/// Capacity of a thread's scratch batch that is kept for its next write.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Single writes are batches of one: this one is used over and over.
    static SCRATCH: std::cell::RefCell<WriteBatch> = std::cell::RefCell::default();
}

/// A keyspace: a namespace of keys with its own tables. All keyspaces share
/// the log, so a [`WriteBatch`] over several is atomic.
///
/// ```
/// use thermocline::{Db, KeyspaceOptions, Options, WriteBatch};
/// # let directory = tempfile::tempdir().unwrap();
/// let db = Db::open(Options::at(directory.path()))?;
/// let users = db.create_keyspace("users", KeyspaceOptions::default())?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"count", b"1")?;
/// batch.put_in(&users, b"ada", b"lovelace")?;
/// db.write(&batch)?;
/// assert_eq!(users.get(b"ada")?.as_deref(), Some(&b"lovelace"[..]));
/// assert!(db.get(b"ada")?.is_none());
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Keyspace {
    pub(crate) handle: Arc<Handle>,
    pub(crate) space: Arc<Space>,
}

/// The options of a new keyspace.
///
/// ```
/// # use thermocline::KeyspaceOptions;
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// // One part, and one of three parts.
/// db.create_keyspace("names", KeyspaceOptions::default())?;
/// let cuts = vec![b"h".to_vec(), b"p".to_vec()];
/// db.create_keyspace("words", KeyspaceOptions::default().cuts(cuts))?;
/// assert_eq!(db.keyspaces().len(), 3);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct KeyspaceOptions {
    pub(crate) cuts: Vec<Vec<u8>>,
}

impl KeyspaceOptions {
    /// The boundaries between its parts, strictly ascending. Default: none,
    /// one part.
    ///
    /// ```
    /// # use thermocline::KeyspaceOptions;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let cuts = |list: &[&str]| list.iter().map(|cut| cut.as_bytes().to_vec()).collect();
    /// db.create_keyspace("words", KeyspaceOptions::default().cuts(cuts(&["h", "p"])))?;
    /// let words = db.stats().keyspaces.into_iter().find(|k| k.name == "words");
    /// assert_eq!(words.unwrap().parts, 3);
    /// let bad = KeyspaceOptions::default().cuts(cuts(&["p", "h"]));
    /// assert!(db.create_keyspace("other", bad).is_err());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn cuts(mut self, cuts: Vec<Vec<u8>>) -> KeyspaceOptions {
        self.cuts = cuts;
        self
    }
}

impl Keyspace {
    pub(crate) fn id(&self) -> KeyspaceId {
        self.space.id
    }

    /// Its name.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// assert_eq!(db.name(), thermocline::DEFAULT_KEYSPACE);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.space.name
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    fn write_one(&self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        SCRATCH.with_borrow_mut(|batch| {
            batch.clear();
            batch.push(self.space.id, kind, key, value)?;
            let result = self.engine().write(batch, WriteOptions::default());
            if batch.size_bytes() > SCRATCH_BYTES_MAX {
                *batch = WriteBatch::new();
            }
            result
        })
    }

    /// Sets `key` (1 byte to 64 KiB) to `value` (0 to 512 MiB).
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"planet", b"earth")?;
    /// db.put(b"planet", b"mars")?;
    /// assert_eq!(db.get(b"planet")?.as_deref(), Some(&b"mars"[..]));
    /// assert!(db.put(b"", b"a key has at least one byte").is_err());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] for a key or value out of bounds, else as
    /// [`crate::Db::write`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_one(Kind::Put, key, value)
    }

    /// Deletes `key`, whether or not it exists.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"planet", b"pluto")?;
    /// db.delete(b"planet")?;
    /// db.delete(b"planet")?; // It need not be there.
    /// assert!(db.get(b"planet")?.is_none());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.write_one(Kind::Delete, key, b"")
    }

    /// Deletes every key from `start` (inclusive) to `end` (exclusive), at the
    /// cost of one write.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// for key in [b"a", b"b", b"c"] {
    ///     db.put(key, b"")?;
    /// }
    /// db.delete_range(b"a", b"c")?;
    /// assert!(db.get(b"b")?.is_none() && db.get(b"c")?.is_some());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`], and when `start` is not before `end`.
    pub fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<()> {
        self.write_one(Kind::RangeDelete, start, end)
    }

    /// The value of `key`, pinned where it lies.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"planet", b"earth")?;
    /// let value = db.get(b"planet")?.expect("was just put");
    /// db.delete(b"planet")?;
    /// assert_eq!(&*value, b"earth"); // What was got stays.
    /// assert!(db.get(b"planet")?.is_none());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] for a key out of bounds;
    /// [`crate::ErrorKind::Corruption`] or [`crate::ErrorKind::Io`] from a table;
    /// [`crate::ErrorKind::Closed`] when the keyspace was dropped.
    pub fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        self.engine().get(&self.space, key, None)
    }

    /// The values of many keys at one moment, in the order asked. Faster than
    /// one at a time: neighbours share work, and devices read side by side.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"b", b"2")?;
    /// let values = db.multi_get(&[b"a", b"b"])?;
    /// assert!(values[0].is_none() && values[1].as_deref() == Some(b"2"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Slice>>> {
        self.engine().multi_get(&self.space, keys, None)
    }

    /// An iterator over the whole keyspace as it is now.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"b", b"2")?;
    /// db.put(b"a", b"1")?;
    /// let iter = db.iter()?;
    /// db.put(b"c", b"3")?; // Too late for it.
    /// let keys: Result<Vec<_>, _> = iter.forward().map(|e| e.map(|(key, _)| key)).collect();
    /// assert_eq!(keys?, [b"a", b"b"]);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading a table's metadata.
    pub fn iter(&self) -> Result<Iter> {
        Iter::over(
            self.engine(),
            &self.space,
            None,
            Bound::Unbounded,
            Bound::Unbounded,
        )
    }

    /// An iterator over the keys between `start` and `end`.
    ///
    /// ```
    /// use std::ops::Bound;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// for key in [b"a", b"b", b"c"] {
    ///     db.put(key, b"")?;
    /// }
    /// let iter = db.range(Bound::Excluded(b"a"), Bound::Included(b"c"))?;
    /// assert_eq!(iter.forward().count(), 2);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] when the start lies behind the end, else
    /// as [`Keyspace::iter`].
    pub fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Iter> {
        Iter::over(self.engine(), &self.space, None, start, end)
    }

    /// An iterator over the keys that begin with `prefix`.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// for key in ["user:1", "user:2", "visit:1"] {
    ///     db.put(key.as_bytes(), b"")?;
    /// }
    /// assert_eq!(db.prefix(b"user:")?.forward().count(), 2);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn prefix(&self, prefix: &[u8]) -> Result<Iter> {
        Iter::over_prefix(self.engine(), &self.space, None, prefix)
    }

    /// Merges everything between `start` and `end` (`None` is unbounded) down
    /// to one run, dropping what is deleted or overwritten, and waits for it.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// for value in [b"1", b"2"] {
    ///     db.put(b"key", value)?;
    ///     db.flush()?;
    /// }
    /// db.compact_range(None, None)?;
    /// assert_eq!(db.tables().len(), 1);
    /// assert_eq!(db.tables()[0].entries, 1); // The older one is gone.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] when `start` lies behind `end` or
    /// the store is open for reading only, else the error of a flush or merge,
    /// should one fail.
    pub fn compact_range(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        crate::compact::compact_range(self.engine(), &self.space, start, end)
    }

    /// About how many bytes of tables the keys from `start` to `end` take.
    /// Memtables are not counted; a dropped keyspace has none.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// for i in 0..100u8 {
    ///     db.put(&[i], &[0; 10_000])?;
    /// }
    /// assert_eq!(db.approximate_size(&[0], &[100])?, 0); // All in memory yet.
    /// db.flush()?;
    /// let half = db.approximate_size(&[0], &[50])?;
    /// assert!((400_000..600_000).contains(&half), "{half}");
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] when `start` lies behind `end`, else
    /// those of reading a table's metadata.
    pub fn approximate_size(&self, start: &[u8], end: &[u8]) -> Result<u64> {
        crate::report::approximate_size(&self.space, start, end)
    }

    /// Begins a bulk load: keys in ascending order that become tables without
    /// passing through log and memtables.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let mut load = db.bulk_load()?;
    /// for i in 0..1000u32 {
    ///     load.add(&i.to_be_bytes(), b"value")?;
    /// }
    /// load.finish()?;
    /// assert!(db.get(&7u32.to_be_bytes())?.is_some());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the store takes no writes.
    pub fn bulk_load(&self) -> Result<BulkLoad> {
        BulkLoad::new(Arc::clone(&self.handle), Arc::clone(&self.space))
    }

    /// Where `key` is found, how much that place is used, which rule put it
    /// there, and what would move it.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"planet", b"earth")?;
    /// db.flush()?;
    /// let explanation = db.explain(b"planet")?;
    /// assert_eq!(explanation.places[0].tier.as_deref(), Some("main"));
    /// println!("{explanation}"); // As `thermocline explain` shows it.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn explain(&self, key: &[u8]) -> Result<Explanation> {
        crate::explain::of_key(self.engine(), &self.space, key)
    }

    /// Where the keys from `start` up to `end`, exclusive, lie,
    /// how hot that is, and why it lies there; `None` for no bound.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"earth", b"")?;
    /// db.put(b"mars", b"")?;
    /// db.flush()?;
    /// let explanation = db.explain_range(Some(b"e"), Some(b"f"))?;
    /// assert_eq!(explanation.tables.len(), 1);
    /// println!("{explanation}"); // As `thermocline explain --range` shows it.
    /// assert!(db.explain_range(Some(b"x"), None)?.tables.is_empty());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when `start` lies behind
    /// `end`; [`Closed`](crate::ErrorKind::Closed) for a keyspace that was dropped.
    pub fn explain_range(
        &self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<RangeExplanation> {
        crate::explain::of_range(self.engine(), &self.space, start, end)
    }
}
