//! Placers, one a file, and how tiers fill.

pub mod by_level;
pub mod fill;

pub use by_level::ByLevel;
pub use fill::Fill;
