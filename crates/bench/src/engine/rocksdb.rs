//! RocksDB through its C interface (7.8).
//!
//! Settings: `write_buffer_size` is half the given total, because
//! `max_write_buffer_number` is 2; `max_background_jobs`, the LRU block cache and
//! a full Bloom filter are as given; compression is as asked; all else is the
//! library's default (checksums verified, no memory maps, concurrent memtable
//! writes on). Gets are pinned, multi-gets are the batched kind, bulk loads are
//! table files of 64 MiB, moved in when all are written.
//!
//! Over a fast and a slow directory it uses `db_paths`, the fast one with its
//! capacity as target size. RocksDB fills a path with whole levels, and counts
//! level 0 as large as level 1. So that the levels 0 and 1 lie on the fast path,
//! `max_bytes_for_level_base` is half of that capacity where it would be more,
//! and tables are as small in proportion as Thermocline's. The log and the
//! manifest are on the fast path. With direct reads, flushes and merges are
//! direct too.
//!
//! Last-level temperature (`last_level_temperature`) is not among the
//! configurations: the C interface has no setter, its option string is accepted,
//! and the header says of it "no-op for default FileSystem"; a file system of
//! one's own cannot be made through the C interface.
//!
//! Debian builds its package without `NDEBUG`: assertions and the hooks of
//! RocksDB's own tests are in every hot path, and its `db_bench` warns of it. It
//! also builds without the processor's CRC instruction, which the log pays for.
//! [`caveat`] finds this out of whatever library is loaded. To compare with a
//! release build, put one on the linker's and the loader's path.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::foreign::{bytes, c_path, check};
use super::{Compression, Counted, Cursor, Engine, EngineOptions, Home, Load, Result, SETTLE_MAX};

mod c;
mod stats;

use c::*;

/// `rocksdb_no_compression` and those that follow it in `rocksdb/c.h`.
fn compression(given: Compression) -> c_int {
    match given {
        Compression::None => 0,
        Compression::Snappy => 1,
        Compression::Lz4 => 4,
        Compression::Zstd => 7,
    }
}

/// Bulk loads begin a new table file at this size, the default
/// `target_file_size_base`.
const LOAD_FILE_BYTES: u64 = 64 << 20;

/// The default `max_bytes_for_level_base`.
const LEVEL_BASE_BYTES: u64 = 256 << 20;

/// The least and the default `target_file_size_base`.
const TABLE_BYTES: [u64; 2] = [1 << 20, 64 << 20];

/// A table of a fast path is at most this part of it.
const TABLES_OF_FAST_PATH: u64 = 16;

/// With [`EngineOptions::held`]: bytes that RocksDB reckons it has to merge, in faster paths'
/// bytes, from which on writers are slowed and stopped. Its own defaults are 64 and 256 GiB,
/// so that the first path grows as far as writers are ahead of merges.
const PENDING_SHARES: [usize; 2] = [1, 2];

/// How often [`Engine::settle`] looks.
const POLL: Duration = Duration::from_millis(10);

/// How often in a row it must find nothing under way.
const QUIET_POLLS: u32 = 3;

/// The most keys of one multi-get.
const MULTI_GET_MAX: usize = 64;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// Says so if the loaded library was built with assertions.
pub(crate) fn caveat() -> Option<&'static str> {
    // Test hooks exist exactly in builds without NDEBUG. A null handle is
    // RTLD_DEFAULT: every library of this process is searched.
    let hook = c"_ZN7rocksdb9SyncPoint11GetInstanceEv";
    // SAFETY: both arguments are as the function wants them; the answer is only
    // compared with null.
    let found = unsafe { dlsym(ptr::null_mut(), hook.as_ptr()) };
    (!found.is_null()).then_some(
        "rocksdb: this library was built without NDEBUG, with assertions and test hooks \
         compiled in (Debian's is); a release build is faster",
    )
}

/// An open RocksDB.
pub(crate) struct Rocksdb {
    db: *mut DbHandle,
    family: *mut Family,
    options: *mut Options,
    read: *mut ReadOptions,
    write: *mut WriteOptions,
    path: PathBuf,
    loads: AtomicU64,
}

// SAFETY: the library's documentation allows every call that this file makes on
// a database to be made by many threads at once; the option objects are only
// read after `open`.
unsafe impl Sync for Rocksdb {}

/// Calls with a place for the error string, and checks it.
macro_rules! checked {
    ($($name:ident)::+ ( $($argument:expr),* )) => {{
        let mut error: *mut c_char = ptr::null_mut();
        let answer = $($name)::+($($argument,)* &mut error);
        check(error, rocksdb_free).map(|()| answer)
    }};
}

impl Engine for Rocksdb {
    type Cursor<'a> = RocksdbCursor<'a>;
    type Load<'a> = RocksdbLoad<'a>;

    fn open(homes: &[Home], given: &EngineOptions) -> Result<Self> {
        let first = homes.first().ok_or("rocksdb needs a directory")?;
        let name = c_path(&first.path)?;
        let family_name = c"default".as_ptr();
        let mut family = ptr::null_mut();
        let paths = Paths::new(homes)?;
        // SAFETY: every object is created here and passed as its type; the table
        // options take the filter policy over and share the cache, the options
        // copy the table options and the paths, the database copies the options.
        unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_write_buffer_size(options, given.write_buffer_bytes / 2);
            rocksdb_options_set_max_write_buffer_number(options, 2);
            let jobs = c_int::try_from(given.background_threads)?;
            rocksdb_options_set_max_background_jobs(options, jobs);
            rocksdb_options_set_compression(options, compression(given.compression));
            let direct = u8::from(given.direct_reads);
            rocksdb_options_set_use_direct_reads(options, direct);
            rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, direct);
            if let Some(fast_bytes) = first.capacity_bytes {
                let base = (fast_bytes / 2).min(LEVEL_BASE_BYTES);
                rocksdb_options_set_max_bytes_for_level_base(options, base);
                let [least, most] = TABLE_BYTES;
                let table = (fast_bytes / TABLES_OF_FAST_PATH).clamp(least, most);
                rocksdb_options_set_target_file_size_base(options, table);
                if given.held {
                    let [soft, hard] = PENDING_SHARES.map(|share| fast_bytes as usize * share);
                    rocksdb_options_set_soft_pending_compaction_bytes_limit(options, soft);
                    rocksdb_options_set_hard_pending_compaction_bytes_limit(options, hard);
                }
            }
            if homes.len() > 1 {
                let list: Vec<*const DbPath> = paths.0.iter().map(|p| p.cast_const()).collect();
                rocksdb_options_set_db_paths(options, list.as_ptr(), list.len());
            }
            let table = rocksdb_block_based_options_create();
            let bits = f64::from(given.filter_bits_per_key);
            let policy = rocksdb_filterpolicy_create_bloom_full(bits);
            rocksdb_block_based_options_set_filter_policy(table, policy);
            let cache = rocksdb_cache_create_lru(given.block_cache_bytes);
            rocksdb_block_based_options_set_block_cache(table, cache);
            rocksdb_cache_destroy(cache);
            rocksdb_options_set_block_based_table_factory(options, table);
            rocksdb_block_based_options_destroy(table);
            let db = checked!(rocksdb_open_column_families(
                options,
                name.as_ptr(),
                1,
                &family_name,
                &options.cast_const(),
                &mut family
            ))?;
            let write = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(write, u8::from(given.synced));
            Ok(Rocksdb {
                db,
                family,
                options,
                read: rocksdb_readoptions_create(),
                write,
                path: first.path.clone(),
                loads: AtomicU64::new(0),
            })
        }
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: database and options are open; the slices live over the call.
        unsafe {
            checked!(rocksdb_put(
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
            checked!(rocksdb_delete(
                self.db,
                self.write,
                key.as_ptr().cast(),
                key.len()
            ))
        }
    }

    #[inline]
    fn get(&self, key: &[u8], mut see: impl FnMut(&[u8])) -> Result<bool> {
        // SAFETY: as in `put`; the slice is live until it is destroyed below.
        unsafe {
            let pinned = checked!(rocksdb_get_pinned(
                self.db,
                self.read,
                key.as_ptr().cast(),
                key.len()
            ))?;
            if pinned.is_null() {
                return Ok(false);
            }
            show(pinned, &mut see);
        }
        Ok(true)
    }

    fn multi_get(&self, keys: &[&[u8]], mut see: impl FnMut(&[u8])) -> Result<usize> {
        if keys.len() > MULTI_GET_MAX {
            return Err(format!("multi-get of more than {MULTI_GET_MAX} keys").into());
        }
        let mut places = [ptr::null(); MULTI_GET_MAX];
        let mut lengths = [0; MULTI_GET_MAX];
        let mut values = [ptr::null_mut(); MULTI_GET_MAX];
        let mut errors = [ptr::null_mut(); MULTI_GET_MAX];
        for (index, key) in keys.iter().enumerate() {
            places[index] = key.as_ptr().cast();
            lengths[index] = key.len();
        }
        let mut found = 0;
        // SAFETY: the four arrays hold at least `keys.len()` elements; each answer
        // is null or an object of ours to destroy, each error null or ours to free.
        unsafe {
            rocksdb_batched_multi_get_cf(
                self.db,
                self.read,
                self.family,
                keys.len(),
                places.as_ptr(),
                lengths.as_ptr(),
                values.as_mut_ptr(),
                errors.as_mut_ptr(),
                false,
            );
            for index in 0..keys.len() {
                check(errors[index], rocksdb_free)?;
                if !values[index].is_null() {
                    show(values[index], &mut see);
                    found += 1;
                }
            }
        }
        Ok(found)
    }

    fn cursor(&self) -> Result<RocksdbCursor<'_>> {
        // SAFETY: the database outlives the cursor by its lifetime.
        let iterator = unsafe { rocksdb_create_iterator(self.db, self.read) };
        Ok(RocksdbCursor {
            iterator,
            _store: self,
        })
    }

    fn bulk_load(&self) -> Result<RocksdbLoad<'_>> {
        // SAFETY: the writer copies the environment's options; `options` lives
        // as long as the store.
        let writer = unsafe {
            let env = rocksdb_envoptions_create();
            let writer = rocksdb_sstfilewriter_create(env, self.options);
            rocksdb_envoptions_destroy(env);
            writer
        };
        Ok(RocksdbLoad {
            store: self,
            writer,
            number: self.loads.fetch_add(1, Ordering::Relaxed),
            files: Vec::new(),
            open_bytes: None,
        })
    }

    /// 7.8 has no call that waits for merges, so four properties are polled
    /// until all have been zero three times in a row.
    fn settle(&self) -> Result<Duration> {
        // SAFETY: the options are created and destroyed here. By default the
        // flush waits until it is done.
        unsafe {
            let options = rocksdb_flushoptions_create();
            let flushed = checked!(rocksdb_flush(self.db, options));
            rocksdb_flushoptions_destroy(options);
            flushed?;
        }
        let began = Instant::now();
        let mut quiet = 0;
        while quiet < QUIET_POLLS {
            let busy = self.property(c"rocksdb.mem-table-flush-pending".as_ptr())?
                + self.property(c"rocksdb.num-running-flushes".as_ptr())?
                + self.property(c"rocksdb.compaction-pending".as_ptr())?
                + self.property(c"rocksdb.num-running-compactions".as_ptr())?;
            quiet = if busy == 0 { quiet + 1 } else { 0 };
            if began.elapsed() > SETTLE_MAX {
                return Err("rocksdb does not finish its merges".into());
            }
            thread::sleep(POLL);
        }
        Ok(POLL * QUIET_POLLS)
    }

    fn counted(&self) -> Result<Vec<Counted>> {
        let mut counted = stats::counted(&self.text(c"rocksdb.cfstats-no-file-histogram")?);
        counted.extend(stats::stalled(&self.text(c"rocksdb.dbstats")?));
        Ok(counted)
    }
}

/// The directories as the library wants them.
struct Paths(Vec<*mut DbPath>);

impl Paths {
    fn new(homes: &[Home]) -> Result<Paths> {
        let mut paths = Paths(Vec::new());
        for home in homes {
            let path = c_path(&home.path)?;
            let bytes = home.capacity_bytes.unwrap_or(u64::MAX);
            // SAFETY: the path lives over the call, which copies it.
            paths
                .0
                .push(unsafe { rocksdb_dbpath_create(path.as_ptr(), bytes) });
        }
        Ok(paths)
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        for &path in &self.0 {
            // SAFETY: created in `new`, destroyed once.
            unsafe { rocksdb_dbpath_destroy(path) };
        }
    }
}

impl Rocksdb {
    /// A property that is text.
    fn text(&self, name: &CStr) -> Result<String> {
        // SAFETY: the name is a C string; the answer is null or a C string of
        // ours to free.
        unsafe {
            let value = rocksdb_property_value(self.db, name.as_ptr());
            if value.is_null() {
                return Err("the statistics of rocksdb are not known".into());
            }
            let text = CStr::from_ptr(value).to_string_lossy().into_owned();
            rocksdb_free(value.cast());
            Ok(text)
        }
    }

    /// An integer property by its C name.
    fn property(&self, name: *const c_char) -> Result<u64> {
        let mut value = 0;
        // SAFETY: `name` is a C string literal; `value` lives over the call.
        match unsafe { rocksdb_property_int(self.db, name, &mut value) } {
            0 => Ok(value),
            _ => Err("a property of rocksdb is not known".into()),
        }
    }
}

impl Drop for Rocksdb {
    fn drop(&mut self) {
        // SAFETY: created in `open`; cursors and loads borrow the store, so none
        // is left.
        unsafe {
            rocksdb_column_family_handle_destroy(self.family);
            rocksdb_close(self.db);
            rocksdb_readoptions_destroy(self.read);
            rocksdb_writeoptions_destroy(self.write);
            rocksdb_options_destroy(self.options);
        }
    }
}

/// Shows a pinned value and lets it go.
///
/// # Safety
/// `pinned` is a live pinned value that nobody else will destroy.
#[inline]
unsafe fn show(pinned: *mut Pinned, see: &mut impl FnMut(&[u8])) {
    let mut length = 0;
    // SAFETY: live by the caller's promise, until it is destroyed here.
    unsafe {
        let data = rocksdb_pinnableslice_value(pinned, &mut length);
        see(bytes(data, length));
        rocksdb_pinnableslice_destroy(pinned);
    }
}

/// A cursor over a RocksDB.
pub(crate) struct RocksdbCursor<'a> {
    iterator: *mut Iterator,
    _store: &'a Rocksdb,
}

impl Cursor for RocksdbCursor<'_> {
    #[inline]
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        // SAFETY: the iterator is live; the key lives over the call.
        unsafe { rocksdb_iter_seek(self.iterator, key.as_ptr().cast(), key.len()) };
        Ok(())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        // SAFETY: the iterator is live.
        unsafe { rocksdb_iter_seek_to_first(self.iterator) };
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        // SAFETY: the iterator is live.
        unsafe { rocksdb_iter_seek_to_last(self.iterator) };
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        // SAFETY: the iterator is live, and valid by contract.
        unsafe { rocksdb_iter_next(self.iterator) };
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        // SAFETY: the iterator is live, and valid by contract.
        unsafe { rocksdb_iter_prev(self.iterator) };
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        // SAFETY: the iterator is live.
        unsafe { rocksdb_iter_valid(self.iterator) != 0 }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: the bytes stay until the iterator moves, which takes `&mut`.
        unsafe { bytes(rocksdb_iter_key(self.iterator, &mut length), length) }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: the bytes stay until the iterator moves, which takes `&mut`.
        unsafe { bytes(rocksdb_iter_value(self.iterator, &mut length), length) }
    }

    fn status(&self) -> Result<()> {
        // SAFETY: the iterator is live.
        unsafe { checked!(rocksdb_iter_get_error(self.iterator)) }
    }
}

impl Drop for RocksdbCursor<'_> {
    fn drop(&mut self) {
        // SAFETY: created in `cursor`, destroyed once.
        unsafe { rocksdb_iter_destroy(self.iterator) };
    }
}

/// Table files that are written beside the store and moved into it.
pub(crate) struct RocksdbLoad<'a> {
    store: &'a Rocksdb,
    writer: *mut FileWriter,
    number: u64,
    files: Vec<CString>,
    /// The entry bytes in the file being written, if one is.
    open_bytes: Option<u64>,
}

impl RocksdbLoad<'_> {
    /// Begins the next file.
    fn begin_file(&mut self) -> Result<()> {
        let name = format!("load-{}-{}.sst", self.number, self.files.len());
        let file = c_path(&self.store.path.join(name))?;
        // SAFETY: the writer is live; the name lives over the call.
        unsafe { checked!(rocksdb_sstfilewriter_open(self.writer, file.as_ptr())) }?;
        self.files.push(file);
        self.open_bytes = Some(0);
        Ok(())
    }

    /// Ends the file being written, if one is.
    fn end_file(&mut self) -> Result<()> {
        if self.open_bytes.take().is_some() {
            // SAFETY: the writer is live and has a file open.
            unsafe { checked!(rocksdb_sstfilewriter_finish(self.writer)) }?;
        }
        Ok(())
    }
}

impl Load for RocksdbLoad<'_> {
    #[inline]
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.open_bytes.is_none() {
            self.begin_file()?;
        }
        // SAFETY: the writer is live and has a file open.
        unsafe {
            checked!(rocksdb_sstfilewriter_put(
                self.writer,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len()
            ))
        }?;
        let written = self.open_bytes.unwrap_or(0) + (key.len() + value.len()) as u64;
        self.open_bytes = Some(written);
        if written >= LOAD_FILE_BYTES {
            self.end_file()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.end_file()?;
        let names: Vec<*const c_char> = self.files.iter().map(|file| file.as_ptr()).collect();
        if names.is_empty() {
            return Ok(());
        }
        // SAFETY: the names live over the call; the options are made and
        // destroyed here.
        unsafe {
            let options = rocksdb_ingestexternalfileoptions_create();
            rocksdb_ingestexternalfileoptions_set_move_files(options, 1);
            let moved = checked!(rocksdb_ingest_external_file(
                self.store.db,
                names.as_ptr(),
                names.len(),
                options
            ));
            rocksdb_ingestexternalfileoptions_destroy(options);
            moved
        }
    }
}

impl Drop for RocksdbLoad<'_> {
    fn drop(&mut self) {
        // SAFETY: created in `bulk_load`, destroyed once.
        unsafe { rocksdb_sstfilewriter_destroy(self.writer) };
    }
}
