//! Plain data of the Thermocline storage engine: keys, key ranges, tiers,
//! tables, versions, edits and jobs.
//!
//! Nothing here touches a file, a thread or a clock, so every type can be made
//! in a test, written to a log, shown to an operator or sent to another node.
//! The vocabulary is that of ARCHITECTURE.md: one word for one idea.

pub mod cover;
pub mod key;

pub use key::{Kind, SeqNo};
