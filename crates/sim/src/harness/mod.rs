//! The kinds of proof, one a file. Each takes a seed, runs, and panics with the
//! seed when the store breaks a promise, as a test does.

pub mod crash;
pub mod faults;
pub mod history;
pub mod workload;
