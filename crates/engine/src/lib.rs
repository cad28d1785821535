//! Thermocline: an embedded LSM key-value store over any number of storage tiers.

mod error;
pub mod cache;
pub mod log;
pub mod memory;
pub mod store;
pub mod table;

pub mod cache;
pub mod store;
pub mod table;

pub use error::{Error, ErrorKind, Result};
