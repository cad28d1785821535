//! Planners, one a file.

pub mod balance;
pub mod flush;
pub mod knapsack;
pub mod leveled;
pub mod migrate;
pub mod targets;

pub use balance::Balance;
pub use flush::FlushSealed;
pub use leveled::Leveled;
pub use migrate::Migrate;
