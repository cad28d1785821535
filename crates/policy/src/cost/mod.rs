//! What placement costs.

pub mod money;

pub use money::{Budget, MoneyError};
