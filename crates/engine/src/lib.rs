//! Thermocline: an embedded LSM key-value store over any number of storage tiers.

mod error;
pub mod memory;

pub use error::{Error, ErrorKind, Result};
