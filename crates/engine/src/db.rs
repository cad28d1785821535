//! The public face: the handle on a store.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use thermocline_model::cuts::Cuts;
use thermocline_model::edit::{Change, Edit};
use thermocline_model::version::KeyspaceId;

use crate::batch::WriteBatch;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::keyspace::{Keyspace, KeyspaceOptions};
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::store::Environment;
use crate::write::WriteOptions;

/// Longest keyspace name, in bytes.
const NAME_BYTES_MAX: usize = 255;

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
    /// ```
    /// use thermocline::{Db, ErrorKind, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// let db = Db::open(options.clone())?;
    /// assert_eq!(Db::open(options.clone()).unwrap_err().kind(), ErrorKind::Locked);
    /// drop(db);
    /// assert!(Db::open(options).is_ok());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an option out of range;
    /// [`ErrorKind::Locked`] when it is open already, or, for reading only, when another process
    /// changes it faster than it can be opened; [`ErrorKind::WrongTier`]
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
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use thermocline::store::{Clock, Environment};
    /// # use thermocline::{Db, Options};
    ///
    /// #[derive(Debug)]
    /// struct Noon;
    /// impl Clock for Noon {
    ///     fn now_micros(&self) -> u64 {
    ///         43_200_000_000
    ///     }
    ///     fn sleep(&self, _: Duration) {}
    /// }
    /// # let directory = tempfile::tempdir().unwrap();
    /// let environment = Environment { clock: Arc::new(Noon), ..Environment::real() };
    /// let options = Options::at(directory.path()).background_threads(0);
    /// let db = Db::open_in(options, &environment)?;
    /// db.put(b"key", b"value")?;
    /// db.flush()?;
    /// assert_eq!(db.tables()[0].created_us, 43_200_000_000);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_in(options: Options, environment: &Environment) -> Result<Db> {
        let engine = Arc::new(crate::open::open(options, environment)?);
        let default = engine.space(KeyspaceId::DEFAULT);
        let space = default.ok_or_else(|| Error::corruption("the default keyspace is missing"))?;
        let mut threads = Vec::new();
        for (index, role) in engine.roles().into_iter().enumerate() {
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
    /// ```
    /// # use thermocline::WriteBatch;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"left", b"90")?;
    /// batch.put(b"right", b"110")?;
    /// db.write(&batch)?;
    /// assert!(db.get(b"left")?.is_some() && db.get(b"right")?.is_some());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] when log or memtables are full and nothing can be
    /// flushed; [`ErrorKind::Closed`] when a keyspace it names was dropped or the
    /// store is closed; [`ErrorKind::Poisoned`] after a persist failed;
    /// [`ErrorKind::InvalidArgument`] for a store open for reading only, or a
    /// batch that names a keyspace of another store;
    /// [`ErrorKind::Io`] from the device. The batch then has no effect.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.engine().write(batch, WriteOptions::default())
    }

    /// As [`Db::write`], with options of its own.
    ///
    /// ```
    /// # use thermocline::{Durability, WriteBatch, WriteOptions};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"paid", b"yes")?;
    /// // On return it survives a power failure.
    /// db.write_with(&batch, WriteOptions::default().durability(Durability::Device))?;
    /// assert!(db.get(b"paid")?.is_some());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn write_with(&self, batch: &WriteBatch, options: WriteOptions) -> Result<()> {
        self.engine().write(batch, options)
    }

    /// Makes every write acknowledged so far durable on the device.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// for i in 0..100u32 {
    ///     db.put(&i.to_be_bytes(), b"value")?;
    /// }
    /// db.persist()?; // One sync for all of them.
    /// assert_eq!(db.stats().writes, 100);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Poisoned`] when that fails: the store takes no more writes.
    pub fn persist(&self) -> Result<()> {
        self.engine().check_poisoned()?;
        self.engine().persist_log(self.engine().visible())
    }

    /// The store as it is now.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"key", b"value")?;
    /// let before = db.snapshot();
    /// db.delete(b"key")?;
    /// assert!(before.get(b"key")?.is_some() && db.get(b"key")?.is_none());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
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
    /// ```
    /// # use thermocline::{ErrorKind, KeyspaceOptions};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.create_keyspace("users", KeyspaceOptions::default())?;
    /// assert_eq!(db.keyspace("users")?.name(), "users");
    /// assert_eq!(db.keyspace("user").unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
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
    /// ```
    /// # use thermocline::{ErrorKind, KeyspaceOptions};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let users = db.create_keyspace("users", KeyspaceOptions::default())?;
    /// users.put(b"ada", b"lovelace")?;
    /// let again = db.create_keyspace("users", KeyspaceOptions::default());
    /// assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`]; [`ErrorKind::InvalidArgument`] for a bad name or bad cuts, and
    /// without room for its parts ([`Options::active_memtables_total_max`]); those of writing the
    /// manifest.
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
        let room = engine.active_room(id);
        if cuts.parts() > room {
            let what = "keyspace: parts that option active_memtables_total_max leaves room for";
            return Err(Error::invalid(what).expected(format!("at most {room}"), cuts.parts()));
        }
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
    /// ```
    /// # use thermocline::{ErrorKind, KeyspaceOptions};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let users = db.create_keyspace("users", KeyspaceOptions::default())?;
    /// db.drop_keyspace("users")?;
    /// assert_eq!(users.get(b"ada").unwrap_err().kind(), ErrorKind::Closed);
    /// assert_eq!(db.drop_keyspace("default").unwrap_err().kind(), ErrorKind::InvalidArgument);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
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
        let view = keyspace.space.view.load();
        engine.commit_edit(Edit::of(drop_it), Vec::new(), &mut |_, _| {})?;
        engine.note_dropped(&view);
        drop(_commit);
        engine.trim_log();
        engine.wake();
        Ok(())
    }

    /// The names of all keyspaces, oldest first.
    ///
    /// ```
    /// # use thermocline::KeyspaceOptions;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.create_keyspace("users", KeyspaceOptions::default())?;
    /// assert_eq!(db.keyspaces(), ["default", "users"]);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
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
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"key", b"value")?;
    /// assert!(db.tables().is_empty());
    /// db.flush()?;
    /// assert_eq!(db.tables().len(), 1);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of the flush, should it fail; [`ErrorKind::InvalidArgument`]
    /// for a store open for reading only.
    pub fn flush(&self) -> Result<()> {
        self.engine().flush_all(None)
    }

    /// Waits until no background work is wanted any more.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()).newest_runs_merge(2))?;
    /// for value in [b"1", b"2"] {
    ///     db.put(b"key", value)?;
    ///     db.flush()?;
    /// }
    /// db.settle()?; // The merge has been done.
    /// assert_eq!(db.tables().len(), 1);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a job that fails meanwhile; [`ErrorKind::InvalidArgument`]
    /// for a store open for reading only.
    pub fn settle(&self) -> Result<()> {
        self.engine().settle()
    }

    /// Plans and runs one background job in the calling thread. Says whether
    /// there was one. For stores without background threads.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).background_threads(0).newest_runs_merge(2);
    /// let db = Db::open(options)?;
    /// for value in [b"1", b"2"] {
    ///     db.put(b"key", value)?;
    ///     db.flush()?;
    /// }
    /// assert!(db.step()?, "there is a merge to do");
    /// assert!(!db.step()?, "and nothing more");
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// The job's.
    pub fn step(&self) -> Result<bool> {
        self.engine().step()
    }

    /// What all tables together may cost from now on, in USD per 10^9 bytes and
    /// month on average; `None` for no limit. Kept in the options file. The
    /// background begins to move tables at once; a power failure right after may
    /// bring the old target back.
    ///
    /// ```
    /// # use thermocline::{Db, ErrorKind, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = |name, price| Tier::new(name, directory.path().join(name)).price_usd_gb_month(price);
    /// let options = Options::new().tier(tier("ssd", 0.528)).tier(tier("hdd", 0.045));
    /// let db = Db::open(options.preset("mutant"))?;
    /// db.set_cost_target(Some(0.2))?;
    /// assert_eq!(db.stats().cost.target_usd_gb_month, Some(0.2));
    /// let error = db.set_cost_target(Some(0.01)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    /// assert!(error.to_string().contains("the cheapest placement costs 0.045, the dearest 0.528"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a target below the cheapest or above the
    /// dearest placement, naming both, for prices of tiers that are 0 or all the
    /// same, with a preset that keeps to no target, and for a store open for
    /// reading only; [`ErrorKind::Io`] and [`ErrorKind::NoSpace`] when the options
    /// file cannot be written. Nothing has changed then.
    pub fn set_cost_target(&self, target_usd_gb_month: Option<f64>) -> Result<()> {
        self.engine()
            .set_cost_target(target_usd_gb_month, "asked-by-call")
    }

    /// Makes a store of its own in `directory`, which must not exist or be
    /// empty: one subdirectory per tier, with hard links to tables where the
    /// file system allows and copies where not, and an options file. It holds
    /// exactly what is visible now.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path().join("store")))?;
    /// db.put(b"key", b"value")?;
    /// let copy = directory.path().join("copy");
    /// db.checkpoint(&copy)?;
    /// let options = Options::from_file(&copy.join(thermocline::OPTIONS_FILE))?;
    /// assert_eq!(Db::open(options)?.get(b"key")?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] when the directory is not empty,
    /// [`ErrorKind::InvalidArgument`] for a store open for reading only, those
    /// of the flush, [`ErrorKind::NoSpace`] and [`ErrorKind::Io`].
    pub fn checkpoint(&self, directory: &Path) -> Result<()> {
        crate::checkpoint::checkpoint(self.engine(), directory)
    }

    /// The options it was opened with.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()))?;
    /// assert_eq!(db.options().tier_list()[0].path(), directory.path());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.engine().options
    }

    /// Closes the store: waits for running jobs, makes the log durable. What
    /// other handles write gets [`ErrorKind::Closed`] from then on; they may
    /// go on reading. Dropping the last handle closes too but cannot report errors.
    ///
    /// ```
    /// # use thermocline::ErrorKind;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let other = db.clone();
    /// db.close()?;
    /// assert_eq!(other.put(b"key", b"value").unwrap_err().kind(), ErrorKind::Closed);
    /// let again = || thermocline::Db::open(thermocline::Options::at(directory.path()));
    /// assert_eq!(again().unwrap_err().kind(), ErrorKind::Locked);
    /// drop(other);
    /// assert!(again().is_ok());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// The directories stay locked until the last handle is dropped (clones,
    /// keyspaces, snapshots, iterators, bulk loads): these still read files of
    /// the store, which an opening elsewhere may delete. Until then, opening it
    /// again fails with [`ErrorKind::Locked`].
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
        self.engine.home.context.close_readers();
        self.engine.bury();
        self.engine.save_heat();
        self.engine.record_events();
        let mut commit = self.engine.commit.lock();
        match commit.log.take() {
            Some(mut log) => {
                self.engine.check_poisoned()?;
                self.engine.note_log_end()?;
                let versions = self.engine.versions.lock();
                let note = versions.manifest.as_ref().and_then(|m| m.closing_note());
                log.close_with(note)
            }
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
            engine.handed.notify_all();
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}
