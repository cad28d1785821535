//! The memtable: entries in memory, sorted, until a flush makes them a table.
//!
//! Knows nothing of logs, files or tables: the verbs above put entries in and
//! take cursors out. All of it may be shared by threads without a lock.

mod arena;
mod filter;
mod memtable;
mod narrow;
mod skiplist;
#[cfg(test)]
mod tests;

pub use arena::ArenaPool;
pub use filter::Filter;
pub use memtable::{Memtable, MemtableCursor, MemtableOptions};
pub use skiplist::{Hit, MemValue};
