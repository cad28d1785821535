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
use crate::stats::{Event, Stats, TableInfo};
use crate::step::Role;
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
    /// When the log could not be made durable.
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
            Some(mut log) if !self.engine.is_poisoned.load(Ordering::Acquire) => log.close(),
            _ => Ok(()),
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
