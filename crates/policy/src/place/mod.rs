//! Placers, one a file, and how tiers fill.

pub mod by_heat;
pub mod by_level;
pub mod by_shape;
pub mod fill;
pub mod lower;
pub mod reads;
pub mod seen;
pub mod span;

pub use by_heat::ByHeat;
pub use by_level::{ByBucket, ByLevel};
pub use by_shape::ByShape;
pub use fill::{Fill, limit_of_all};
pub use lower::Lower;
