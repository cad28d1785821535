//! The rig that would catch Thermocline lying.
//!
//! - [`disk`]: a simulated disk, handed to the engine through its own seam,
//!   that forgets what was not synced and fails when told to.
//! - [`draw`]: options of every shape, from dice.
//! - [`operation`]: what is done to a store, from dice, and the player that
//!   does it and compares every answer.
//! - [`oracle`]: what a store must hold, kept outside it; [`contents`]: the same
//!   as plain maps, for fixed workloads.
//! - [`worker`]: the process that the process harness kills.
//! - [`scratch`]: directories and mounts that are always cleaned up.
//! - [`harness`]: the kinds of proof, made of these.
//!
//! The tests of this crate run them with fixed seeds, the program
//! `thermocline-sim` with as many as it is given minutes for.

#![allow(
    clippy::unwrap_used,
    reason = "the rig panics with the seed when a promise is broken, as tests do"
)]

pub mod contents;
mod dice;
pub mod disk;
pub mod draw;
mod expected;
pub mod harness;
pub mod operation;
pub mod oracle;
pub mod scratch;
mod tally;
pub mod worker;
mod zipf;

pub use dice::Dice;
pub use tally::Tally;
pub use zipf::Zipf;
