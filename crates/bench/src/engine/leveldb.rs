//! LevelDB through its C interface (1.23).
//!
//! Settings: `write_buffer_size` is the whole given total, although LevelDB may
//! hold a second, full memtable while it is flushed (generous to LevelDB by up
//! to a factor of two); the LRU cache and Bloom filter are as given; compression
//! is off; all else is the library's default (checksums not verified on reads,
//! 1000 open files, tables of 2 MiB). It has one background thread, always.
//! Gets copy into allocated memory, which is the only way its interface offers;
//! multi-gets are gets; bulk loads are batches of 1000 ascending entries.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use super::foreign::{bytes, c_path, check, opaque};
use super::{
    Compression, Counted, Cursor, Engine, EngineOptions, Home, Load, Result, SETTLE_MAX, only,
};
use crate::usage::cpu_seconds;

/// What is known of the library that Debian ships.
pub(crate) const CAVEAT: &str = "leveldb: Debian's build of 1.23 has assertions compiled in and \
     computes its checksums without the processor's CRC instruction";

/// `leveldb_no_compression` and `leveldb_snappy_compression`.
fn compression(given: Compression) -> Result<c_int> {
    match given {
        Compression::None => Ok(0),
        Compression::Snappy => Ok(1),
        other => other.refused("leveldb"),
    }
}

/// Entries of one batch of a bulk load.
const LOAD_BATCH_ENTRIES: usize = 1000;

/// LevelDB's fixed number of levels.
const LEVELS: usize = 7;

/// How long the levels must stay as they are to count as settled.
const QUIET: Duration = Duration::from_secs(1);

/// How often [`Engine::settle`] looks.
const POLL: Duration = Duration::from_millis(50);

/// The share of one processor that a settled store may use.
const QUIET_CPU_SHARE: f64 = 0.05;

opaque! { DbHandle, Options, Cache, FilterPolicy, ReadOptions, WriteOptions, Iterator, Batch }

#[link(name = "leveldb")]
unsafe extern "C" {
    fn leveldb_open(
        options: *const Options,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut DbHandle;
    fn leveldb_close(db: *mut DbHandle);
    fn leveldb_free(pointer: *mut c_void);
    fn leveldb_options_create() -> *mut Options;
    fn leveldb_options_destroy(options: *mut Options);
    fn leveldb_options_set_create_if_missing(options: *mut Options, on: u8);
    fn leveldb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
    fn leveldb_options_set_cache(options: *mut Options, cache: *mut Cache);
    fn leveldb_options_set_filter_policy(options: *mut Options, policy: *mut FilterPolicy);
    fn leveldb_options_set_compression(options: *mut Options, kind: c_int);
    fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut FilterPolicy;
    fn leveldb_filterpolicy_destroy(policy: *mut FilterPolicy);
    fn leveldb_cache_create_lru(capacity: usize) -> *mut Cache;
    fn leveldb_cache_destroy(cache: *mut Cache);
    fn leveldb_readoptions_create() -> *mut ReadOptions;
    fn leveldb_readoptions_destroy(options: *mut ReadOptions);
    fn leveldb_writeoptions_create() -> *mut WriteOptions;
    fn leveldb_writeoptions_destroy(options: *mut WriteOptions);
    fn leveldb_writeoptions_set_sync(options: *mut WriteOptions, on: u8);

    fn leveldb_put(
        db: *mut DbHandle,
        options: *const WriteOptions,
        key: *const c_char,
        key_length: usize,
        value: *const c_char,
        value_length: usize,
        error: *mut *mut c_char,
    );
    fn leveldb_delete(
        db: *mut DbHandle,
        options: *const WriteOptions,
        key: *const c_char,
        key_length: usize,
        error: *mut *mut c_char,
    );
    fn leveldb_get(
        db: *mut DbHandle,
        options: *const ReadOptions,
        key: *const c_char,
        key_length: usize,
        value_length: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    fn leveldb_property_value(db: *mut DbHandle, name: *const c_char) -> *mut c_char;
    fn leveldb_compact_range(
        db: *mut DbHandle,
        start: *const c_char,
        start_length: usize,
        limit: *const c_char,
        limit_length: usize,
    );

    fn leveldb_create_iterator(db: *mut DbHandle, options: *const ReadOptions) -> *mut Iterator;
    fn leveldb_iter_destroy(iterator: *mut Iterator);
    fn leveldb_iter_valid(iterator: *const Iterator) -> u8;
    fn leveldb_iter_seek_to_first(iterator: *mut Iterator);
    fn leveldb_iter_seek_to_last(iterator: *mut Iterator);
    fn leveldb_iter_seek(iterator: *mut Iterator, key: *const c_char, key_length: usize);
    fn leveldb_iter_next(iterator: *mut Iterator);
    fn leveldb_iter_prev(iterator: *mut Iterator);
    fn leveldb_iter_key(iterator: *const Iterator, length: *mut usize) -> *const c_char;
    fn leveldb_iter_value(iterator: *const Iterator, length: *mut usize) -> *const c_char;
    fn leveldb_iter_get_error(iterator: *const Iterator, error: *mut *mut c_char);

    fn leveldb_writebatch_create() -> *mut Batch;
    fn leveldb_writebatch_destroy(batch: *mut Batch);
    fn leveldb_writebatch_clear(batch: *mut Batch);
    fn leveldb_writebatch_put(
        batch: *mut Batch,
        key: *const c_char,
        key_length: usize,
        value: *const c_char,
        value_length: usize,
    );
    fn leveldb_write(
        db: *mut DbHandle,
        options: *const WriteOptions,
        batch: *mut Batch,
        error: *mut *mut c_char,
    );
}

/// An open LevelDB.
pub(crate) struct Leveldb {
    db: *mut DbHandle,
    cache: *mut Cache,
    policy: *mut FilterPolicy,
    read: *mut ReadOptions,
    write: *mut WriteOptions,
}

// SAFETY: the library's documentation allows every call that this file makes on
// a database to be made by many threads at once; the option objects are only
// read after `open`.
unsafe impl Sync for Leveldb {}

/// Calls with a place for the error string, and checks it.
macro_rules! checked {
    ($($name:ident)::+ ( $($argument:expr),* )) => {{
        let mut error: *mut c_char = ptr::null_mut();
        let answer = $($name)::+($($argument,)* &mut error);
        check(error, leveldb_free).map(|()| answer)
    }};
}

impl Engine for Leveldb {
    type Cursor<'a> = LeveldbCursor<'a>;
    type Load<'a> = LeveldbLoad<'a>;

    fn open(homes: &[Home], given: &EngineOptions) -> Result<Self> {
        let name = c_path(&only(homes, "leveldb")?.path)?;
        let bits = c_int::try_from(given.filter_bits_per_key)?;
        let compression = compression(given.compression)?;
        // SAFETY: every object is created here and passed as its type; cache and
        // policy are kept until the database is closed.
        unsafe {
            let options = leveldb_options_create();
            leveldb_options_set_create_if_missing(options, 1);
            leveldb_options_set_write_buffer_size(options, given.write_buffer_bytes);
            leveldb_options_set_compression(options, compression);
            let cache = leveldb_cache_create_lru(given.block_cache_bytes);
            leveldb_options_set_cache(options, cache);
            let policy = leveldb_filterpolicy_create_bloom(bits);
            leveldb_options_set_filter_policy(options, policy);
            let opened = checked!(leveldb_open(options, name.as_ptr()));
            leveldb_options_destroy(options);
            let db = opened?;
            let write = leveldb_writeoptions_create();
            leveldb_writeoptions_set_sync(write, u8::from(given.synced));
            Ok(Leveldb {
                db,
                cache,
                policy,
                read: leveldb_readoptions_create(),
                write,
            })
        }
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: database and options are open; the slices live over the call.
        unsafe {
            checked!(leveldb_put(
                self.db,
                self.write,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len()
            ))
        }
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        // SAFETY: as in `put`.
        unsafe {
            checked!(leveldb_delete(
                self.db,
                self.write,
                key.as_ptr().cast(),
                key.len()
            ))
        }
    }

    #[inline]
    fn get(&self, key: &[u8], mut see: impl FnMut(&[u8])) -> Result<bool> {
        let mut length = 0;
        // SAFETY: as in `put`; the value is ours until it is freed below.
        unsafe {
            let value = checked!(leveldb_get(
                self.db,
                self.read,
                key.as_ptr().cast(),
                key.len(),
                &mut length
            ))?;
            if value.is_null() {
                return Ok(false);
            }
            see(bytes(value, length));
            leveldb_free(value.cast());
        }
        Ok(true)
    }

    fn multi_get(&self, keys: &[&[u8]], mut see: impl FnMut(&[u8])) -> Result<usize> {
        let mut found = 0;
        for key in keys {
            found += usize::from(self.get(key, &mut see)?);
        }
        Ok(found)
    }

    fn cursor(&self) -> Result<LeveldbCursor<'_>> {
        // SAFETY: the database outlives the cursor by its lifetime.
        let iterator = unsafe { leveldb_create_iterator(self.db, self.read) };
        Ok(LeveldbCursor {
            iterator,
            _store: self,
        })
    }

    fn bulk_load(&self) -> Result<LeveldbLoad<'_>> {
        Ok(LeveldbLoad {
            store: self,
            // SAFETY: takes nothing; destroyed with the load.
            batch: unsafe { leveldb_writebatch_create() },
            entries: 0,
        })
    }

    /// LevelDB has no call that flushes and none that waits for merges. A manual
    /// compaction begins with a flush, so one of a range beyond every key is a
    /// flush alone. Merges are done when level 0 holds fewer than four tables
    /// and for a second no level has changed and the process has been idle.
    fn settle(&self) -> Result<Duration> {
        let beyond = [0xff_u8; 17];
        // SAFETY: the database is open; the slices live over the call.
        unsafe {
            leveldb_compact_range(
                self.db,
                beyond.as_ptr().cast(),
                beyond.len(),
                beyond.as_ptr().cast(),
                beyond.len(),
            );
        }
        let mut last = self.files()?;
        let began = Instant::now();
        let mut since = began;
        let mut cpu = cpu_seconds();
        loop {
            thread::sleep(POLL);
            if began.elapsed() > SETTLE_MAX {
                return Err("leveldb does not finish its merges".into());
            }
            let files = self.files()?;
            if files != last || files[0] >= 4 {
                last = files;
                since = Instant::now();
                cpu = cpu_seconds();
            } else if since.elapsed() >= QUIET {
                if cpu_seconds() - cpu < QUIET_CPU_SHARE * since.elapsed().as_secs_f64() {
                    return Ok(since.elapsed());
                }
                since = Instant::now();
                cpu = cpu_seconds();
            }
        }
    }

    fn counted(&self) -> Result<Vec<Counted>> {
        Ok(counted(&self.property("leveldb.stats")?))
    }
}

impl Leveldb {
    /// How many tables each level holds.
    fn files(&self) -> Result<[u32; LEVELS]> {
        let mut files = [0; LEVELS];
        for (level, count) in files.iter_mut().enumerate() {
            let name = format!("leveldb.num-files-at-level{level}");
            *count = self.property(&name)?.parse()?;
        }
        Ok(files)
    }

    /// The property `name` as text.
    fn property(&self, name: &str) -> Result<String> {
        let name = CString::new(name)?;
        // SAFETY: the name is a C string; the answer is null or a C string of
        // ours to free.
        unsafe {
            let value = leveldb_property_value(self.db, name.as_ptr());
            if value.is_null() {
                return Err("a property of leveldb is not known".into());
            }
            let text = std::ffi::CStr::from_ptr(value)
                .to_string_lossy()
                .into_owned();
            leveldb_free(value.cast());
            Ok(text)
        }
    }
}

/// MiB read and written by merges of all levels, from the lines `level files
/// size seconds read written` of the property `leveldb.stats`. Of the number of
/// merges it says nothing.
fn counted(stats: &str) -> Vec<Counted> {
    let mut sums = [0.0; 2];
    for line in stats.lines() {
        let numbers: Vec<f64> = line.split_whitespace().flat_map(str::parse).collect();
        if let [_, _, _, _, read, written] = numbers[..] {
            sums[0] += read;
            sums[1] += written;
        }
    }
    vec![
        Counted::new("merge read MiB", sums[0] as u64),
        Counted::new("flushed and merged MiB", sums[1] as u64),
    ]
}

impl Drop for Leveldb {
    fn drop(&mut self) {
        // SAFETY: created in `open`; cursors and loads borrow the store, so none
        // is left. Cache and policy must outlive the database.
        unsafe {
            leveldb_close(self.db);
            leveldb_cache_destroy(self.cache);
            leveldb_filterpolicy_destroy(self.policy);
            leveldb_readoptions_destroy(self.read);
            leveldb_writeoptions_destroy(self.write);
        }
    }
}

/// A cursor over a LevelDB.
pub(crate) struct LeveldbCursor<'a> {
    iterator: *mut Iterator,
    _store: &'a Leveldb,
}

impl Cursor for LeveldbCursor<'_> {
    #[inline]
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        // SAFETY: the iterator is live; the key lives over the call.
        unsafe { leveldb_iter_seek(self.iterator, key.as_ptr().cast(), key.len()) };
        Ok(())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        // SAFETY: the iterator is live.
        unsafe { leveldb_iter_seek_to_first(self.iterator) };
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        // SAFETY: the iterator is live.
        unsafe { leveldb_iter_seek_to_last(self.iterator) };
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        // SAFETY: the iterator is live, and valid by contract.
        unsafe { leveldb_iter_next(self.iterator) };
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        // SAFETY: the iterator is live, and valid by contract.
        unsafe { leveldb_iter_prev(self.iterator) };
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        // SAFETY: the iterator is live.
        unsafe { leveldb_iter_valid(self.iterator) != 0 }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: the bytes stay until the iterator moves, which takes `&mut`.
        unsafe { bytes(leveldb_iter_key(self.iterator, &mut length), length) }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: the bytes stay until the iterator moves, which takes `&mut`.
        unsafe { bytes(leveldb_iter_value(self.iterator, &mut length), length) }
    }

    fn status(&self) -> Result<()> {
        // SAFETY: the iterator is live.
        unsafe { checked!(leveldb_iter_get_error(self.iterator)) }
    }
}

impl Drop for LeveldbCursor<'_> {
    fn drop(&mut self) {
        // SAFETY: created in `cursor`, destroyed once.
        unsafe { leveldb_iter_destroy(self.iterator) };
    }
}

/// Batches of ascending entries.
pub(crate) struct LeveldbLoad<'a> {
    store: &'a Leveldb,
    batch: *mut Batch,
    entries: usize,
}

impl LeveldbLoad<'_> {
    /// Writes the batch and empties it.
    fn write(&mut self) -> Result<()> {
        // SAFETY: database, options and batch are live.
        unsafe {
            checked!(leveldb_write(self.store.db, self.store.write, self.batch))?;
            leveldb_writebatch_clear(self.batch);
        }
        self.entries = 0;
        Ok(())
    }
}

impl Load for LeveldbLoad<'_> {
    #[inline]
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: the batch is live and copies both slices.
        unsafe {
            leveldb_writebatch_put(
                self.batch,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
        self.entries += 1;
        if self.entries == LOAD_BATCH_ENTRIES {
            self.write()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.write()
    }
}

impl Drop for LeveldbLoad<'_> {
    fn drop(&mut self) {
        // SAFETY: created in `bulk_load`, destroyed once.
        unsafe { leveldb_writebatch_destroy(self.batch) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_all_levels_are_added() {
        let stats = "                               Compactions\n\
             Level  Files Size(MB) Time(sec) Read(MB) Write(MB)\n\
             --------------------------------------------------\n\
               0        1        4         0        0        13\n\
               1        5       10         1       22        21\n";
        let counts: Vec<u64> = counted(stats).iter().map(|c| c.count).collect();
        assert_eq!(counts, [22, 34]);
    }
}
