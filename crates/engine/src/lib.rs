//! Thermocline: an embedded LSM key-value store over any number of storage tiers.

mod error;
pub mod log;
pub mod store;

pub use error::{Error, ErrorKind, Result};
