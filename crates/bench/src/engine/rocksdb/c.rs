//! The part of `rocksdb/c.h` (7.8) that the benchmark calls. Names and order of
//! arguments are the header's.

use std::ffi::{c_char, c_int, c_void};

use crate::engine::foreign::opaque;

opaque! {
    DbHandle, Options, TableOptions, Cache, FilterPolicy, ReadOptions, WriteOptions,
    FlushOptions, Iterator, Pinned, Family, FileWriter, EnvOptions, IngestOptions, DbPath,
}

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub(super) fn rocksdb_open_column_families(
        options: *const Options,
        name: *const c_char,
        families: c_int,
        family_names: *const *const c_char,
        family_options: *const *const Options,
        handles: *mut *mut Family,
        error: *mut *mut c_char,
    ) -> *mut DbHandle;
    pub(super) fn rocksdb_close(db: *mut DbHandle);
    pub(super) fn rocksdb_column_family_handle_destroy(family: *mut Family);
    pub(super) fn rocksdb_free(pointer: *mut c_void);

    pub(super) fn rocksdb_options_create() -> *mut Options;
    pub(super) fn rocksdb_options_destroy(options: *mut Options);
    pub(super) fn rocksdb_options_set_create_if_missing(options: *mut Options, on: u8);
    pub(super) fn rocksdb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
    pub(super) fn rocksdb_options_set_max_write_buffer_number(options: *mut Options, number: c_int);
    pub(super) fn rocksdb_options_set_max_background_jobs(options: *mut Options, number: c_int);
    pub(super) fn rocksdb_options_set_max_bytes_for_level_base(options: *mut Options, bytes: u64);
    pub(super) fn rocksdb_options_set_target_file_size_base(options: *mut Options, bytes: u64);
    pub(super) fn rocksdb_options_set_soft_pending_compaction_bytes_limit(
        options: *mut Options,
        bytes: usize,
    );
    pub(super) fn rocksdb_options_set_hard_pending_compaction_bytes_limit(
        options: *mut Options,
        bytes: usize,
    );
    pub(super) fn rocksdb_options_set_use_direct_reads(options: *mut Options, on: u8);
    pub(super) fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(
        options: *mut Options,
        on: u8,
    );
    pub(super) fn rocksdb_options_set_db_paths(
        options: *mut Options,
        paths: *const *const DbPath,
        count: usize,
    );
    pub(super) fn rocksdb_dbpath_create(path: *const c_char, target_bytes: u64) -> *mut DbPath;
    pub(super) fn rocksdb_dbpath_destroy(path: *mut DbPath);
    pub(super) fn rocksdb_options_set_compression(options: *mut Options, kind: c_int);
    pub(super) fn rocksdb_options_set_block_based_table_factory(
        options: *mut Options,
        table: *mut TableOptions,
    );
    pub(super) fn rocksdb_block_based_options_create() -> *mut TableOptions;
    pub(super) fn rocksdb_block_based_options_destroy(table: *mut TableOptions);
    pub(super) fn rocksdb_block_based_options_set_filter_policy(
        table: *mut TableOptions,
        policy: *mut FilterPolicy,
    );
    pub(super) fn rocksdb_block_based_options_set_block_cache(
        table: *mut TableOptions,
        cache: *mut Cache,
    );
    pub(super) fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> *mut FilterPolicy;
    pub(super) fn rocksdb_cache_create_lru(capacity: usize) -> *mut Cache;
    pub(super) fn rocksdb_cache_destroy(cache: *mut Cache);
    pub(super) fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub(super) fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    pub(super) fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub(super) fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    pub(super) fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, on: u8);
    pub(super) fn rocksdb_flushoptions_create() -> *mut FlushOptions;
    pub(super) fn rocksdb_flushoptions_destroy(options: *mut FlushOptions);

    pub(super) fn rocksdb_put(
        db: *mut DbHandle,
        options: *const WriteOptions,
        key: *const c_char,
        key_length: usize,
        value: *const c_char,
        value_length: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_delete(
        db: *mut DbHandle,
        options: *const WriteOptions,
        key: *const c_char,
        key_length: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_get_pinned(
        db: *mut DbHandle,
        options: *const ReadOptions,
        key: *const c_char,
        key_length: usize,
        error: *mut *mut c_char,
    ) -> *mut Pinned;
    pub(super) fn rocksdb_pinnableslice_value(
        pinned: *const Pinned,
        length: *mut usize,
    ) -> *const c_char;
    pub(super) fn rocksdb_pinnableslice_destroy(pinned: *mut Pinned);
    pub(super) fn rocksdb_batched_multi_get_cf(
        db: *mut DbHandle,
        options: *const ReadOptions,
        family: *mut Family,
        keys: usize,
        key_list: *const *const c_char,
        key_lengths: *const usize,
        values: *mut *mut Pinned,
        errors: *mut *mut c_char,
        sorted: bool,
    );
    pub(super) fn rocksdb_flush(
        db: *mut DbHandle,
        options: *const FlushOptions,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_property_value(db: *mut DbHandle, name: *const c_char) -> *mut c_char;
    pub(super) fn rocksdb_property_int(
        db: *mut DbHandle,
        name: *const c_char,
        value: *mut u64,
    ) -> c_int;

    pub(super) fn rocksdb_create_iterator(
        db: *mut DbHandle,
        options: *const ReadOptions,
    ) -> *mut Iterator;
    pub(super) fn rocksdb_iter_destroy(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_valid(iterator: *const Iterator) -> u8;
    pub(super) fn rocksdb_iter_seek_to_first(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_seek_to_last(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_seek(iterator: *mut Iterator, key: *const c_char, key_length: usize);
    pub(super) fn rocksdb_iter_next(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_prev(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_key(iterator: *const Iterator, length: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_value(
        iterator: *const Iterator,
        length: *mut usize,
    ) -> *const c_char;
    pub(super) fn rocksdb_iter_get_error(iterator: *const Iterator, error: *mut *mut c_char);

    pub(super) fn rocksdb_envoptions_create() -> *mut EnvOptions;
    pub(super) fn rocksdb_envoptions_destroy(options: *mut EnvOptions);
    pub(super) fn rocksdb_sstfilewriter_create(
        env: *const EnvOptions,
        options: *const Options,
    ) -> *mut FileWriter;
    pub(super) fn rocksdb_sstfilewriter_open(
        writer: *mut FileWriter,
        name: *const c_char,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_sstfilewriter_put(
        writer: *mut FileWriter,
        key: *const c_char,
        key_length: usize,
        value: *const c_char,
        value_length: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_sstfilewriter_finish(writer: *mut FileWriter, error: *mut *mut c_char);
    pub(super) fn rocksdb_sstfilewriter_destroy(writer: *mut FileWriter);
    pub(super) fn rocksdb_ingestexternalfileoptions_create() -> *mut IngestOptions;
    pub(super) fn rocksdb_ingestexternalfileoptions_destroy(options: *mut IngestOptions);
    pub(super) fn rocksdb_ingestexternalfileoptions_set_move_files(
        options: *mut IngestOptions,
        on: u8,
    );
    pub(super) fn rocksdb_ingest_external_file(
        db: *mut DbHandle,
        files: *const *const c_char,
        count: usize,
        options: *const IngestOptions,
        error: *mut *mut c_char,
    );
}
