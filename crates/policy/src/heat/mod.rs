//! Heat trackers, one a file.

pub mod counters;
pub(crate) mod heirs;
pub mod histogram;
pub(crate) mod known;
mod shards;
mod shift;
mod steady;
pub mod temperature;

pub use counters::Counters;
pub use histogram::{Histogram, Histograms};
pub use temperature::Temperature;

/// The options of heat trackers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeatOptions {
    /// How often temperatures are reckoned, in microseconds; above 0.
    pub epoch_us: u64,
    /// How much of its temperature a table keeps from one epoch to the next:
    /// above 0, at most 1.
    pub cooling_coefficient: f64,
    /// Whether it does so from its first epoch on (Mutant's equation 4), and is not first the
    /// mean of what it has shown.
    pub cooling_from_start: bool,
}

impl Default for HeatOptions {
    /// The paper's: a second, and 0.999.
    fn default() -> HeatOptions {
        HeatOptions {
            epoch_us: 1_000_000,
            cooling_coefficient: 0.999,
            cooling_from_start: false,
        }
    }
}
