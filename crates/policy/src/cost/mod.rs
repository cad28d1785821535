//! What things cost: money, the time of devices, and what placement brings.

pub mod compaction;
pub mod device;
pub mod estimate;
mod merging;
pub mod model;
pub mod money;
pub mod rewriting;
pub mod transfers;

pub use device::Devices;
pub use money::{Budget, MoneyError};
pub use rewriting::Rewriting;
pub use transfers::Transfers;
