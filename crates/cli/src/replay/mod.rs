//! The machinery of `replay`: a survey of the trace, the filling of the store,
//! and workers that repeat the accesses and check every value read.
//!
//! A worker owns a share of the keys, so that the accesses to one key keep
//! their order whatever the number of threads, and every read has exactly one
//! right answer.

pub(crate) mod dispatch;
pub(crate) mod survey;
pub(crate) mod worker;
