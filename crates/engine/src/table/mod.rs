//! Tables: sorted sets of entries that never change.
//!
//! A table is one meta extent and any number of data extents, each in an object
//! of its own or a part of one. The data extents hold blocks and nothing else;
//! the meta extent lists the blocks in key order, with their places, checksums
//! and filters, and holds the range deletes. Blocks may lie in any order, in
//! any of the data extents, so that data can be added to and moved without
//! being rewritten. `docs/formats/table.md` has the bytes.
//!
//! While a table is open an index of its blocks and their filters are in memory
//! (pinned), so that a read costs at most one block read per table, and none where
//! the filter excludes the key.
//!
//! What keeps wrong bytes out (I8): every block carries a checksum of its bytes;
//! the block list repeats the checksum of *this* block, so that another intact
//! block read by mistake is noticed; the meta extent has a checksum over all of
//! it, its table's number included, and the manifest repeats the checksum of
//! the whole extent. None of this names the object or the offset, so an extent
//! can move to another tier, and a block into another table, byte for byte.
//!
//! ```
//! # let directory = tempfile::tempdir().unwrap();
//! use std::sync::Arc;
//! use thermocline::cache::BlockCache;
//! use thermocline::store::{Environment, LocalStore, LocalStoreOptions, Store};
//! use thermocline::store::{ObjectKind, ObjectName};
//! use thermocline::table::{Table, TableContext, TableWriter, TableWriterOptions, key_hash};
//! use thermocline_model::{Kind, ObjectId, SeqNo, TableId, TierId};
//! let options = LocalStoreOptions::default();
//! let store = LocalStore::open(&Environment::real(), directory.path(), options)?;
//! let data = ObjectName { id: 1, kind: ObjectKind::Data };
//! let meta = ObjectName { id: 2, kind: ObjectKind::Meta };
//! let mut writer =
//!     TableWriter::new(TableId(7), TableWriterOptions::default(), store.create(data)?);
//! writer.add(b"key", SeqNo(1), Kind::Put, b"value")?;
//! let written = writer.finish(store.create(meta)?)?;
//! // What the manifest would record.
//! let record = written.into_meta((TierId(0), ObjectId(2)), (TierId(0), ObjectId(1)));
//! let context = Arc::new(TableContext::new(Arc::new(BlockCache::new(1 << 20))));
//! let table = Table::open(&record, store.open(meta)?, vec![store.open(data)?], context)?;
//! let hit = table.get(b"key", key_hash(b"key"), SeqNo::MAX)?.expect("was written");
//! assert_eq!(&*hit.value, b"value");
//! # Ok::<(), thermocline::Error>(())
//! ```

mod ahead;
mod block;
mod block_build;
mod block_cursor;
mod block_list;
mod compress;
mod context;
pub(crate) mod counters;
mod cursor;
mod fetch;
mod filter;
mod index;
mod lists;
mod meta;
mod mode;
mod read;
mod read_cost;
mod recorded;
pub(crate) mod salvage;
mod share;
mod trailer;
mod verify;
mod write;

#[cfg(test)]
mod tests;

pub use block::{Block, BlockSlice};
pub(crate) use block_list::BlockList;
pub use context::TableContext;
pub use cursor::TableCursor;
pub(crate) use fetch::Fetches;
pub use filter::key_hash;
pub use mode::ReadMode;
pub(crate) use mode::{
    MERGE_READ_BYTES, MERGE_READ_SLOW_BYTES, MergeRun, READ_AHEAD_BYTES_FIRST,
    READ_AHEAD_BYTES_MAX, STREAM_BYTES_MAX,
};
pub use read::{BlockInfo, LOADED_SEQ, Table, TableAccesses, TableHit};
pub use verify::TableReport;
pub use write::{BLOCK_BYTES_MAX, TableWriter, TableWriterOptions, WrittenTable};
pub(crate) use write::{Unpersisted, persist_all};
