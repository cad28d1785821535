//! The public face: handles on a store, its keyspaces and its snapshots.

use std::ops::{Bound, Deref};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use thermocline_model::cuts::Cuts;
use thermocline_model::edit::{Change, Edit};
use thermocline_model::key::{Kind, SeqNo};
use thermocline_model::version::KeyspaceId;

use crate::batch::WriteBatch;
use crate::bulk::BulkLoad;
use crate::engine::{Engine, Space};
use crate::error::{Error, ErrorKind, Result};
use crate::explain::Explanation;
use crate::options::Options;
use crate::scan::Iter;
use crate::slice::Slice;
use crate::stats::{Event, Stats, TableInfo};
use crate::step::Role;
use crate::store::Environment;
use crate::write::WriteOptions;

/// Longest keyspace name, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Capacity of a thread's scratch batch that is kept for its next write.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Single writes are batches of one: this one is used over and over.
    static SCRATCH: std::cell::RefCell<WriteBatch> = std::cell::RefCell::default();
}

/// An open store. It can be cloned and shared between threads; the store is
/// closed when the last handle, keyspace and snapshot is gone.
///
/// It dereferences to its default [`Keyspace`], so that `db.get(..)` and
/// `db.put(..)` work on that.
///
/// ```
/// use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let db = Db::open(Options::at(directory.path().join("store")))?;
/// db.put(b"planet", b"earth")?;
/// assert_eq!(db.get(b"planet")?.as_deref(), Some(&b"earth"[..]));
/// db.delete(b"planet")?;
/// assert!(db.get(b"planet")?.is_none());
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Db {
    default: Keyspace,
}

/// Keeps the store open; dropped last, it closes it.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    threads: Mutex<Vec<JoinHandle<()>>>,
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
#[derive(Clone, Debug, Default)]
pub struct KeyspaceOptions {
    cuts: Vec<Vec<u8>>,
}

impl KeyspaceOptions {
    /// The boundaries between its parts, strictly ascending. Default: none,
    /// one part.
    #[must_use]
    pub fn cuts(mut self, cuts: Vec<Vec<u8>>) -> KeyspaceOptions {
        self.cuts = cuts;
        self
    }
}

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
    default: Keyspace,
    seq: SeqNo,
}

impl Deref for Db {
    type Target = Keyspace;

    fn deref(&self) -> &Keyspace {
        &self.default
    }
}

impl Db {
    /// Opens the store that `options` describe, creating it where there is
    /// none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an option out of range;
    /// [`ErrorKind::Locked`] when it is open already; [`ErrorKind::WrongTier`]
    /// when a tier is missing, swapped, foreign or stale;
    /// [`ErrorKind::Corruption`] when manifest or log are damaged or an object
    /// is missing; [`ErrorKind::NotFound`] when there is no store and none may
    /// be created; [`ErrorKind::NoSpace`] and [`ErrorKind::Io`] from the
    /// devices.
    pub fn open(options: Options) -> Result<Db> {
        Db::open_in(options, &Environment::real())
    }

    /// Opens a store on an environment of the caller's: file system, clock and
    /// dice. Tests simulate them.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_in(options: Options, environment: &Environment) -> Result<Db> {
        let engine = Arc::new(crate::open::open(options, environment)?);
        let default = engine.space(KeyspaceId::DEFAULT);
        let space = default.ok_or_else(|| Error::corruption("the default keyspace is missing"))?;
        let mut threads = Vec::new();
        let count = if engine.options.read_only {
            0
        } else {
            engine.options.background_threads
        };
        for index in 0..count {
            let role = match (index, count) {
                (_, 1) => Role::Any,
                (0, _) => Role::FlushOnly,
                _ => Role::NoFlush,
            };
            let worker = Arc::clone(&engine);
            let builder = std::thread::Builder::new().name(format!("thermocline-{index}"));
            let thread = builder
                .spawn(move || worker.work_until_closed(role))
                .map_err(|e| Error::io("starting a thread", Path::new("thermocline"), e));
            match thread {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    stop(&engine, threads);
                    return Err(e);
                }
            }
        }
        let handle = Arc::new(Handle {
            engine,
            threads: Mutex::new(threads),
        });
        Ok(Db {
            default: Keyspace { handle, space },
        })
    }

    /// Writes a batch: all of it or nothing, at the store's durability.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] when log or memtables are full and nothing can be
    /// flushed; [`ErrorKind::Closed`] when a keyspace it names was dropped;
    /// [`ErrorKind::Poisoned`] after a persist failed; [`ErrorKind::Io`] from
    /// the device. The batch then has no effect.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.engine().write(batch, WriteOptions::default())
    }

    /// As [`Db::write`], with options of its own.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn write_with(&self, batch: &WriteBatch, options: WriteOptions) -> Result<()> {
        self.engine().write(batch, options)
    }

    /// Makes every write acknowledged so far durable on the device.
    ///
    /// # Errors
    /// [`ErrorKind::Poisoned`] when that fails: the store takes no more writes.
    pub fn persist(&self) -> Result<()> {
        self.engine().check_poisoned()?;
        self.engine().persist_log(self.engine().visible())
    }

    /// The store as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let engine = self.engine();
        let mut snapshots = engine.snapshots.lock();
        // Under the mutex: a merge that reads the list later sees this one.
        let seq = engine.visible();
        *snapshots.entry(seq).or_insert(0) += 1;
        drop(snapshots);
        Snapshot {
            default: self.default.clone(),
            seq,
        }
    }

    /// The keyspace called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is none.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let spaces = self.engine().spaces.load();
        let space = spaces.values().find(|s| s.name == name);
        let space =
            space.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("keyspace {name:?}")))?;
        Ok(Keyspace {
            handle: Arc::clone(&self.default.handle),
            space: Arc::clone(space),
        })
    }

    /// Creates a keyspace called `name`: 1 to 255 bytes without control
    /// characters.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`]; [`ErrorKind::InvalidArgument`] for a bad
    /// name or bad cuts; those of writing the manifest.
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(Error::invalid("keyspace name").expected(
                format!("1 to {NAME_BYTES_MAX} printable bytes"),
                format!("{name:?}"),
            ));
        }
        let bounds = options.cuts.into_iter().map(Into::into).collect();
        let cuts = Cuts::new(bounds).map_err(|e| Error::invalid(format!("cuts: {e}")))?;
        let engine = self.engine();
        engine.check_writable()?;
        // Two creations at once take turns here.
        let _commit = engine.commit.lock();
        if engine.spaces.load().values().any(|s| s.name == name) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("keyspace {name:?}"),
            ));
        }
        let id = KeyspaceId(engine.versions.lock().current.next_keyspace);
        // It is durable at once; what was written before it must be too (I9).
        engine.persist_log(engine.visible())?;
        let add = Change::AddKeyspace {
            keyspace: id,
            name: name.to_string(),
            cuts,
        };
        engine.commit_edit(Edit::of(add), Vec::new(), &mut |_, _| {})?;
        drop(_commit);
        self.keyspace(name)
    }

    /// Drops the keyspace called `name` and all its keys. Its space is freed
    /// when the last reader has left.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InvalidArgument`] for the default
    /// keyspace; those of writing the manifest.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let engine = self.engine();
        engine.check_writable()?;
        // No writer may be on its way into it.
        let _commit = engine.commit.lock();
        let keyspace = self.keyspace(name)?;
        if keyspace.id() == KeyspaceId::DEFAULT {
            return Err(Error::invalid("the default keyspace cannot be dropped"));
        }
        // It is durable at once; what was written before it must be too (I9).
        engine.persist_log(engine.visible())?;
        let drop_it = Change::DropKeyspace {
            keyspace: keyspace.id(),
        };
        engine.commit_edit(Edit::of(drop_it), Vec::new(), &mut |_, _| {})?;
        drop(_commit);
        engine.trim_log();
        engine.wake();
        Ok(())
    }

    /// The names of all keyspaces.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<String> {
        self.engine()
            .spaces
            .load()
            .values()
            .map(|s| s.name.clone())
            .collect()
    }

    /// Moves everything from memory to tables and waits until it is there.
    ///
    /// # Errors
    /// The error of the flush, should it fail.
    pub fn flush(&self) -> Result<()> {
        self.engine().flush_all(None)
    }

    /// Waits until no background work is wanted any more.
    ///
    /// # Errors
    /// The error of a job that fails meanwhile.
    pub fn settle(&self) -> Result<()> {
        self.engine().settle()
    }

    /// Plans and runs one background job in the calling thread. Says whether
    /// there was one. For stores without background threads.
    ///
    /// # Errors
    /// The job's.
    pub fn step(&self) -> Result<bool> {
        self.engine().step()
    }

    /// Makes a store of its own in `directory`, which must not exist or be
    /// empty: one subdirectory per tier, with hard links to tables where the
    /// file system allows and copies where not, and an options file. It holds
    /// exactly what is visible now.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] when the directory is not empty, those of
    /// the flush, [`ErrorKind::NoSpace`] and [`ErrorKind::Io`].
    pub fn checkpoint(&self, directory: &Path) -> Result<()> {
        crate::checkpoint::checkpoint(self.engine(), directory)
    }

    /// State and history of the store since it was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        crate::report::stats(self.engine())
    }

    /// Every table.
    #[must_use]
    pub fn tables(&self) -> Vec<TableInfo> {
        crate::report::tables(self.engine())
    }

    /// The last `count` background jobs, oldest first.
    #[must_use]
    pub fn events(&self, count: usize) -> Vec<Event> {
        self.engine().counters.events(count)
    }

    /// The options it was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.engine().options
    }

    /// Closes the store: waits for running jobs, makes the log durable. Other
    /// handles get [`ErrorKind::Closed`] from then on. Dropping the last handle
    /// does the same but cannot report errors.
    ///
    /// # Errors
    /// When the log could not be made durable; [`ErrorKind::Poisoned`] when that
    /// was known before.
    pub fn close(self) -> Result<()> {
        self.default.handle.close()
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.default.handle.engine
    }
}

impl Handle {
    fn close(&self) -> Result<()> {
        let threads = std::mem::take(&mut *self.threads.lock());
        stop(&self.engine, threads);
        self.engine.bury();
        let mut commit = self.engine.commit.lock();
        match commit.log.take() {
            Some(mut log) => self.engine.check_poisoned().and_then(|()| log.close()),
            None => Ok(()),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nobody is left to tell.
        let _ = self.close();
    }
}

fn stop(engine: &Engine, threads: Vec<JoinHandle<()>>) {
    engine.closing.store(true, Ordering::Release);
    for thread in threads {
        while !thread.is_finished() {
            engine.work.notify_all();
            engine.done.notify_all();
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}

impl Keyspace {
    pub(crate) fn id(&self) -> KeyspaceId {
        self.space.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.space.name
    }

    fn engine(&self) -> &Arc<Engine> {
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
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a key or value out of bounds, else as
    /// [`Db::write`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_one(Kind::Put, key, value)
    }

    /// Deletes `key`, whether or not it exists.
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
    /// let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
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
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a key out of bounds;
    /// [`ErrorKind::Corruption`] or [`ErrorKind::Io`] from a table;
    /// [`ErrorKind::Closed`] when the keyspace was dropped.
    pub fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        self.engine().get(&self.space, key, None)
    }

    /// The values of many keys at one moment, in the order asked. Faster than
    /// one at a time: neighbours share work, and devices read side by side.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
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
    /// let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// for key in [b"a", b"b", b"c"] {
    ///     db.put(key, b"")?;
    /// }
    /// let iter = db.range(Bound::Excluded(b"a"), Bound::Included(b"c"))?;
    /// assert_eq!(iter.forward().count(), 2);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the start lies behind the end, else
    /// as [`Keyspace::iter`].
    pub fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Iter> {
        Iter::over(self.engine(), &self.space, None, start, end)
    }

    /// An iterator over the keys that begin with `prefix`.
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn prefix(&self, prefix: &[u8]) -> Result<Iter> {
        Iter::over_prefix(self.engine(), &self.space, None, prefix)
    }

    /// Merges everything between `start` and `end` (`None` is unbounded) down
    /// to one run, dropping what is deleted or overwritten, and waits for it.
    ///
    /// # Errors
    /// The error of a flush or merge, should one fail.
    pub fn compact_range(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        crate::compact::compact_range(self.engine(), &self.space, start, end)
    }

    /// About how many bytes of tables the keys from `start` to `end` take.
    /// Memtables are not counted.
    ///
    /// # Errors
    /// Those of reading a table's metadata.
    pub fn approximate_size(&self, start: &[u8], end: &[u8]) -> Result<u64> {
        crate::report::approximate_size(&self.space, start, end)
    }

    /// Begins a bulk load: keys in ascending order that become tables without
    /// passing through log and memtables.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
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
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn explain(&self, key: &[u8]) -> Result<Explanation> {
        crate::explain::explain(self.engine(), &self.space, key)
    }
}

impl Snapshot {
    /// The value that `key` had in the default keyspace.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        self.get_in(&self.default, key)
    }

    /// The value that `key` had in `keyspace`.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get_in(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Slice>> {
        self.default
            .engine()
            .get(&keyspace.space, key, Some(self.seq))
    }

    /// The values that many keys of the default keyspace had.
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
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn iter(&self) -> Result<Iter> {
        self.range_in(&self.default, Bound::Unbounded, Bound::Unbounded)
    }

    /// An iterator over a range of `keyspace` as it was.
    ///
    /// # Errors
    /// As [`Keyspace::range`].
    pub fn range_in(
        &self,
        keyspace: &Keyspace,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> Result<Iter> {
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
