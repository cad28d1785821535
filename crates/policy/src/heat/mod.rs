//! Heat trackers, one a file.

pub mod counters;

pub use counters::Counters;
