//! What things cost: money, and the time of devices.

pub mod device;
pub mod estimate;
pub mod money;

pub use device::Devices;
pub use money::{Budget, MoneyError};
