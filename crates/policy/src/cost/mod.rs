//! What things cost: money, the time of devices, and what placement brings.

pub mod compaction;
pub mod device;
pub mod estimate;
pub mod model;
pub mod money;

pub use device::Devices;
pub use money::{Budget, MoneyError};
