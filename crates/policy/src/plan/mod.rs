//! Planners, one a file.

pub mod balance;
pub mod belong;
pub mod buckets;
pub mod coldest;
mod deeper;
pub mod fast_levels;
pub mod flush;
pub mod fold;
pub mod headroom;
pub mod knapsack;
mod leaving;
pub mod leveled;
pub mod migrate;
pub mod newest;
pub mod organisation;
pub mod overwritten;
pub mod parts;
pub mod ranges;
mod replaced;
pub mod reverse;
pub mod room;
pub mod staging;
pub mod targets;

pub use balance::Balance;
pub use belong::Belong;
pub use buckets::Buckets;
pub use coldest::{Coldest, Reclaim};
pub use flush::FlushSealed;
pub use leveled::Leveled;
pub use migrate::Migrate;
pub use newest::Newest;
pub use overwritten::Overwritten;
pub use ranges::MoveCuts;
pub use reverse::Reverse;
pub use room::MakeRoom;
pub use staging::Staging;
