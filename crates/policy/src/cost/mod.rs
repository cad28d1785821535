//! What placement costs.

pub mod compaction;
pub mod money;

pub use money::{Budget, MoneyError};
