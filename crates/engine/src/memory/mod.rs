//! The memtable: entries in memory, sorted, until a flush makes them a table.
//!
//! Knows nothing of logs, files or tables: the verbs above put entries in and
//! take cursors out. All of it may be shared by threads without a lock.
//!
//! ```
//! use thermocline::memory::{ArenaPool, Memtable, MemtableOptions};
//! use thermocline_model::key::{Kind, Prefix, SeqNo};
//! let memtable = Memtable::new(MemtableOptions {
//!     capacity_bytes: 1 << 20,
//!     prefix: Prefix::default(),
//!     filter: true,
//!     pool: ArenaPool::new(2),
//! });
//! let hash = 7; // Any hash will do, if it is always the same one.
//! memtable.insert(b"key", hash, SeqNo(1), Kind::Put, b"old");
//! memtable.insert(b"key", hash, SeqNo(2), Kind::Put, b"new");
//! let value = |snapshot| memtable.get(b"key", hash, snapshot).map(|hit| hit.value);
//! assert_eq!(value(SeqNo(1)), Some(&b"old"[..]));
//! assert_eq!(value(SeqNo::MAX), Some(&b"new"[..]));
//! ```

mod arena;
mod filter;
mod lookup;
mod memtable;
mod narrow;
mod skiplist;
#[cfg(test)]
mod tests;
mod tiny;

pub use arena::ArenaPool;
pub use filter::Filter;
pub(crate) use filter::FilterBuilder;
pub use lookup::Lookup;
pub use memtable::{Memtable, MemtableCursor, MemtableOptions};
pub use skiplist::{Hit, MemValue};
pub use tiny::TinyCounts;
