//! A store in a directory of a file system.
//!
//! Writes are gathered into large pieces. Reads may go past the operating
//! system's cache (`direct`): then the block cache is the only cache, memory is
//! not spent twice, and a slow tier's reads are the device's own. Writes of
//! such a store still go through the cache, whose write-back is good at large
//! sequential work, and the pages are dropped once durable.
//!
//! Invariant: `used_bytes` is the sum of the sizes of the object files, by
//! counting what was written and deleted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::direct::read_direct;
use super::object::{ObjectName, ObjectReader, ObjectWriter, Store, StoreState};
use super::{
    Advice, Environment, File, FileSystem, IoBudget, OpenHow, TIER_FILE_NAME, read_exact_at,
    write_all_at,
};
use crate::{Error, ErrorKind, Result};

mod writer;
use writer::LocalWriter;
pub(crate) use writer::WRITE_BUFFER_BYTES;

/// A store in one directory.
#[derive(Debug)]
pub struct LocalStore {
    shared: Arc<Shared>,
    budget: Option<Arc<IoBudget>>,
}

/// How a [`LocalStore`] does its work.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalStoreOptions {
    /// Read past the operating system's cache where the file system can.
    pub direct: bool,
    /// Flushes, for which writers wait, write here as well: the background gives the device no more
    /// than it writes.
    pub flushed_to: bool,
}

/// What a store shares with its writers.
#[derive(Debug)]
struct Shared {
    file_system: Arc<dyn FileSystem>,
    directory: PathBuf,
    options: LocalStoreOptions,
    used_bytes: AtomicU64,
    /// Whether the file system reads past the cache, once somebody asked.
    direct_works: OnceLock<bool>,
}

impl LocalStore {
    /// The store in `directory`, which exists.
    ///
    /// # Errors
    /// `Io`, also if the directory does not exist.
    pub fn open(
        environment: &Environment,
        directory: &Path,
        options: LocalStoreOptions,
    ) -> Result<LocalStore> {
        let store = LocalStore::unlisted(environment, directory, options);
        let used = store.list()?.iter().map(|&(_, size)| size).sum();
        store.shared.used_bytes.store(used, Ordering::Relaxed);
        Ok(store)
    }

    /// The store in `directory`, which may not even exist: for reading what can
    /// be read of it. It knows no used bytes.
    pub(crate) fn unlisted(
        environment: &Environment,
        directory: &Path,
        options: LocalStoreOptions,
    ) -> LocalStore {
        LocalStore {
            shared: Arc::new(Shared {
                file_system: environment.file_system.clone(),
                directory: directory.to_path_buf(),
                options,
                used_bytes: AtomicU64::new(0),
                direct_works: OnceLock::new(),
            }),
            budget: None,
        }
    }
}

impl Store for LocalStore {
    fn create(&self, name: ObjectName) -> Result<Box<dyn ObjectWriter>> {
        let path = self.shared.path(name);
        let file = self
            .shared
            .file_system
            .open(&path, OpenHow::NEW)
            .map_err(|error| named("create object", &path, error))?;
        let (shared, budget) = (self.shared.clone(), self.budget.clone());
        Ok(Box::new(LocalWriter::new(shared, budget, path, file)))
    }

    fn open(&self, name: ObjectName) -> Result<Arc<dyn ObjectReader>> {
        let path = self.shared.path(name);
        let how = OpenHow {
            direct: self.shared.options.direct,
            ..OpenHow::READ
        };
        let file = self
            .shared
            .file_system
            .open(&path, how)
            .map_err(|error| named("open object", &path, error))?;
        let size_bytes = file
            .size_bytes()
            .map_err(|error| Error::io("read the size of object", &path, error))?;
        // Two blocks in a row are no reason to read a hundred KiB behind them: cursors know better.
        file.advise(0, 0, Advice::Random);
        Ok(Arc::new(LocalReader {
            path,
            file,
            size_bytes,
            budget: self.budget.clone(),
        }))
    }

    fn delete(&self, name: ObjectName) -> Result<()> {
        let path = self.shared.path(name);
        let fail = |error| named("delete object", &path, error);
        let metadata = self.shared.file_system.metadata(&path).map_err(fail)?;
        self.shared.file_system.unlink(&path).map_err(fail)?;
        self.shared
            .release(metadata.map_or(0, |metadata| metadata.size_bytes));
        Ok(())
    }

    fn list(&self) -> Result<Vec<(ObjectName, u64)>> {
        let directory = &self.shared.directory;
        let entries = self
            .shared
            .file_system
            .list(directory)
            .map_err(|error| Error::io("list tier directory", directory, error))?;
        let mut objects: Vec<(ObjectName, u64)> = entries
            .iter()
            .filter(|entry| !entry.is_directory)
            .filter_map(|entry| {
                let name = ObjectName::parse(entry.name.to_str()?)?;
                Some((name, entry.size_bytes))
            })
            .collect();
        objects.sort_unstable();
        Ok(objects)
    }

    fn state(&self) -> Result<StoreState> {
        let directory = &self.shared.directory;
        let space = self
            .shared
            .file_system
            .space(directory)
            .map_err(|error| Error::io("read the free space of", directory, error))?;
        Ok(StoreState {
            used_bytes: self.shared.used_bytes.load(Ordering::Relaxed),
            free_bytes: space.free_bytes,
        })
    }

    fn is_direct(&self) -> bool {
        if !self.shared.options.direct {
            return false;
        }
        let known = self.shared.direct_works.get().copied();
        // Who asks meanwhile asks the device too: nobody waits for another's answer.
        let works = known.unwrap_or_else(|| self.shared.probe());
        *self.shared.direct_works.get_or_init(|| works)
    }

    fn directory(&self) -> &Path {
        &self.shared.directory
    }

    fn with_budget(&self, budget: Arc<IoBudget>) -> Arc<dyn Store> {
        Arc::new(LocalStore {
            shared: self.shared.clone(),
            budget: Some(budget),
        })
    }

    fn link(&self, name: ObjectName, directory: &Path) -> Result<()> {
        let from = self.shared.path(name);
        let to = directory.join(name.to_string());
        match self.shared.file_system.hard_link(&from, &to) {
            Ok(()) => Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
                ) =>
            {
                Err(named("link object", &to, error))
            }
            // Another device, or a file system without links.
            Err(_) => self.copy(name, &to),
        }
    }
}

impl LocalStore {
    /// A durable copy of the object at `to`; nothing there if that fails.
    fn copy(&self, name: ObjectName, to: &Path) -> Result<()> {
        let reader = self.open(name)?;
        reader.advise(0, reader.size_bytes(), Advice::Sequential);
        let file_system = &self.shared.file_system;
        let file = file_system
            .open(to, OpenHow::NEW)
            .map_err(|error| named("create copy", to, error))?;
        let copy_all = || -> Result<()> {
            let mut buffer = vec![0; WRITE_BUFFER_BYTES];
            let mut offset = 0;
            while offset < reader.size_bytes() {
                let left = reader.size_bytes() - offset;
                let piece = &mut buffer[..left.min(WRITE_BUFFER_BYTES as u64) as usize];
                reader.read_at(offset, piece)?;
                write_all_at(&*file, piece, offset)
                    .map_err(|error| Error::io("write copy", to, error).offset(offset))?;
                offset += piece.len() as u64;
            }
            file.sync()
                .map_err(|error| Error::io("sync copy", to, error))
        };
        copy_all().inspect_err(|_| {
            // What counts is the error that led here; a file left over is in
            // the directory of a checkpoint that will never be completed.
            let _ = file_system.unlink(to);
        })
    }
}

impl Shared {
    fn path(&self, name: ObjectName) -> PathBuf {
        self.directory.join(name.to_string())
    }

    /// Whether the file that every tier has can be opened past the cache.
    fn probe(&self) -> bool {
        let how = OpenHow {
            direct: true,
            ..OpenHow::READ
        };
        let file = self
            .file_system
            .open(&self.directory.join(TIER_FILE_NAME), how);
        file.is_ok_and(|file| file.direct_alignment().is_some())
    }

    fn release(&self, bytes: u64) {
        // A file that grew behind the store's back is larger than was counted.
        let _ = self
            .used_bytes
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                Some(used.saturating_sub(bytes))
            });
    }
}

/// The error of `doing` to `path`, with the kinds that a wrong name deserves.
fn named(doing: &str, path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::new(ErrorKind::NotFound, doing).at(path),
        io::ErrorKind::AlreadyExists => Error::new(ErrorKind::AlreadyExists, doing).at(path),
        _ => Error::io(doing, path, error),
    }
}

#[derive(Debug)]
struct LocalReader {
    path: PathBuf,
    file: Arc<dyn File>,
    size_bytes: u64,
    budget: Option<Arc<IoBudget>>,
}

impl ObjectReader for LocalReader {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let wanted = buffer.len() as u64;
        if offset
            .checked_add(wanted)
            .is_none_or(|end| end > self.size_bytes)
        {
            let found = self.size_bytes.saturating_sub(offset);
            return Err(self.short(offset, wanted, found));
        }
        if let Some(budget) = &self.budget {
            budget.take(wanted);
        }
        let read = match self.file.direct_alignment() {
            None => read_exact_at(&*self.file, buffer, offset),
            Some(alignment) => read_direct(&*self.file, alignment, buffer, offset),
        };
        match read {
            Ok(read) if read == buffer.len() => Ok(()),
            Ok(read) => Err(self.short(offset, wanted, read as u64)),
            Err(error) => Err(Error::io("read object", &self.path, error).offset(offset)),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_direct(&self) -> bool {
        self.file.direct_alignment().is_some()
    }

    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        self.file.advise(offset, length, advice);
    }

    fn reopened(&self) -> Option<Arc<dyn ObjectReader>> {
        let file = self.file.reopened()?;
        file.advise(0, 0, Advice::Sequential);
        Some(Arc::new(LocalReader {
            path: self.path.clone(),
            file,
            size_bytes: self.size_bytes,
            budget: self.budget.clone(),
        }))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl LocalReader {
    #[cold]
    fn short(&self, offset: u64, wanted: u64, found: u64) -> Error {
        Error::corruption("the object ends too early")
            .at(&self.path)
            .offset(offset)
            .expected(format!("{wanted} bytes"), format!("{found} bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ObjectKind;
    use super::super::direct::READ_BYTES_MAX;
    use super::*;

    pub(super) fn data(id: u64) -> ObjectName {
        ObjectName {
            id,
            kind: ObjectKind::Data,
        }
    }

    pub(super) fn store(directory: &Path, direct: bool) -> LocalStore {
        let options = LocalStoreOptions {
            direct,
            flushed_to: true,
        };
        LocalStore::open(&Environment::real(), directory, options).unwrap()
    }

    /// A byte that depends on its place.
    pub(super) fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    /// A store with one object, which holds `content`.
    fn store_of_one(directory: &Path, content: &[u8]) -> LocalStore {
        let store = store(directory, false);
        let mut writer = store.create(data(1)).unwrap();
        writer.append(content).unwrap();
        writer.persist().unwrap();
        store
    }

    /// Whoever reads it from end to end has a file of its own.
    #[test]
    fn an_object_is_opened_once_more_whatever_has_become_of_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_of_one(directory.path(), b"content");
        let reader = store.open(data(1)).unwrap();
        store.delete(data(1)).unwrap();
        if cfg!(target_os = "linux") {
            let again = reader.reopened().unwrap();
            let mut content = [0; 7];
            again.read_at(0, &mut content).unwrap();
            assert_eq!(&content, b"content");
            let beyond = again.read_at(1, &mut content).unwrap_err();
            assert_eq!(beyond.kind(), ErrorKind::Corruption);
        }
    }

    // A misdirected write made an object longer than was written to it. When it
    // was deleted, its whole size was taken off what was counted: the sum went
    // below zero, and with it every decision about room, or the process when
    // overflow is checked.
    #[test]
    fn an_object_that_grew_by_itself_does_not_take_the_count_below_zero() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_of_one(directory.path(), b"ten bytes!");
        let path = directory.path().join(data(1).to_string());
        std::fs::write(path, [0; 1000]).unwrap();
        store.delete(data(1)).unwrap();
        assert_eq!(store.state().unwrap().used_bytes, 0);
    }

    #[test]
    fn what_is_appended_is_read_back_and_counted_exactly() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path(), false);
        let bytes = pattern(3 * WRITE_BUFFER_BYTES + 17);
        let mut writer = store.create(data(1)).unwrap();
        for piece in bytes.chunks(1000) {
            writer.append(piece).unwrap();
        }
        writer.append(&bytes).unwrap();
        assert_eq!(writer.size_bytes(), 2 * bytes.len() as u64);
        writer.persist().unwrap();
        writer.append(b"tail").unwrap();
        writer.persist().unwrap();
        let size = 2 * bytes.len() as u64 + 4;
        assert_eq!(store.state().unwrap().used_bytes, size);
        assert_eq!(store.list().unwrap(), vec![(data(1), size)]);

        let reader = store.open(data(1)).unwrap();
        assert_eq!(reader.size_bytes(), size);
        let mut buffer = vec![0; bytes.len()];
        reader.read_at(bytes.len() as u64, &mut buffer).unwrap();
        assert!(buffer == bytes);
        let error = reader.read_at(size - 3, &mut buffer[..4]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);

        store.delete(data(1)).unwrap();
        assert_eq!(store.state().unwrap().used_bytes, 0);
        reader.read_at(0, &mut buffer).unwrap();
        assert_eq!(
            store.delete(data(1)).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }

    #[test]
    fn a_writer_abandoned_or_dropped_before_persist_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path(), false);
        for abandon in [true, false] {
            let mut writer = store.create(data(1)).unwrap();
            writer.append(&pattern(2 * WRITE_BUFFER_BYTES)).unwrap();
            if abandon {
                writer.abandon();
            } else {
                drop(writer);
            }
            assert_eq!(store.list().unwrap(), vec![]);
            assert_eq!(store.state().unwrap().used_bytes, 0);
        }
    }

    #[test]
    fn direct_reads_at_odd_offsets_are_exact() {
        // Not in memory: where the cache is the device there is no way past it.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let store = store(directory.path(), true);
        let bytes = pattern(2 * READ_BYTES_MAX + 4097);
        let mut writer = store.create(data(1)).unwrap();
        writer.append(&bytes).unwrap();
        writer.persist().unwrap();
        let reader = store.open(data(1)).unwrap();
        let mut cases = vec![
            (0, bytes.len()),
            (1, bytes.len() - 1),
            (4095, 2),
            (4096, 4096),
            (bytes.len() - 1, 1),
            (bytes.len(), 0),
        ];
        let mut state = 42u64;
        for _ in 0..300 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let offset = (state >> 33) as usize % bytes.len();
            let length = (state >> 20) as usize % 20_000;
            cases.push((offset, length.min(bytes.len() - offset)));
        }
        for (offset, length) in cases {
            let mut buffer = vec![0; length];
            reader.read_at(offset as u64, &mut buffer).unwrap();
            assert!(
                buffer == bytes[offset..offset + length],
                "{offset} {length}"
            );
        }
        let mut buffer = [0; 2];
        let error = reader
            .read_at(bytes.len() as u64 - 1, &mut buffer)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }

    #[test]
    fn an_object_cut_after_opening_is_corruption_and_not_zeros() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path(), false);
        let mut writer = store.create(data(1)).unwrap();
        writer.append(&pattern(1000)).unwrap();
        writer.persist().unwrap();
        let reader = store.open(data(1)).unwrap();
        let path = directory.path().join("000001.data");
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(500).unwrap();
        let error = reader.read_at(400, &mut [0; 200]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        let message = error.to_string();
        assert!(
            message.contains("at offset 400: expected 200 bytes, found 100 bytes"),
            "{message}"
        );
    }

    #[test]
    fn list_ignores_what_is_no_object() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["TIER", "000001.log", "1.data", "000002.data.tmp"] {
            std::fs::write(directory.path().join(name), b"x").unwrap();
        }
        std::fs::create_dir(directory.path().join("000003.data")).unwrap();
        std::fs::write(directory.path().join("000004.meta"), b"1234").unwrap();
        let store = store(directory.path(), false);
        let name = ObjectName {
            id: 4,
            kind: ObjectKind::Meta,
        };
        assert_eq!(store.list().unwrap(), vec![(name, 4)]);
        assert_eq!(store.state().unwrap().used_bytes, 4);
    }

    #[test]
    fn linked_objects_outlive_the_original() {
        let directory = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let store = store(directory.path(), false);
        let mut writer = store.create(data(7)).unwrap();
        writer.append(b"kept").unwrap();
        writer.persist().unwrap();
        store.link(data(7), elsewhere.path()).unwrap();
        let error = store.link(data(7), elsewhere.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        let copy = elsewhere.path().join("copy");
        store.copy(data(7), &copy).unwrap();
        store.delete(data(7)).unwrap();
        assert_eq!(std::fs::read(copy).unwrap(), b"kept");
        let linked = elsewhere.path().join("000007.data");
        assert_eq!(std::fs::read(linked).unwrap(), b"kept");
    }

    #[test]
    fn budgeted_readers_and_writers_take_from_their_budget() {
        let directory = tempfile::tempdir().unwrap();
        let plain = store(directory.path(), false);
        let budget = Arc::new(IoBudget::unlimited(Environment::real().clock));
        let store = plain.with_budget(budget.clone());
        let mut writer = store.create(data(1)).unwrap();
        writer.append(&[1; 100]).unwrap();
        writer.persist().unwrap();
        store
            .open(data(1))
            .unwrap()
            .read_at(0, &mut [0; 60])
            .unwrap();
        plain
            .open(data(1))
            .unwrap()
            .read_at(0, &mut [0; 60])
            .unwrap();
        assert_eq!(budget.taken_bytes(), 160);
        assert_eq!(plain.state().unwrap().used_bytes, 100);
    }
}
