//! What placement costs, and what it brings.

pub mod compaction;
pub mod model;
pub mod money;

pub use money::{Budget, MoneyError};
