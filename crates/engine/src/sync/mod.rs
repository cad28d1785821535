//! Locks, atomics and the waiting of threads: those of the platform, or those
//! of a model that tries out interleavings.
//!
//! In every ordinary build this module only gives other names to the types of
//! the standard library, `parking_lot` and `arc_swap`. Built with `--cfg
//! shuttle` the same names are stand-ins, each call of which is a place where
//! the model's scheduler may let another thread go on. So the models of
//! `crates/sim/tests/threads` run the engine's own code, and no copy of it.
//!
//! Modules whose threads meet import from here. What stays with the platform
//! is invisible to the scheduler and happens at one blow, which is sound as long
//! as nothing from here is called in the midst of it: counters, the locks that
//! guard nothing but them, the shards and the slots of the block cache, `OnceLock`, `Arc`.

#[cfg(shuttle)]
mod model;

#[cfg(shuttle)]
pub(crate) use model::{ArcSwap, Condvar, Mutex, MutexGuard, atomic, spin_loop, yield_now};

#[cfg(not(shuttle))]
pub(crate) use {
    arc_swap::ArcSwap,
    parking_lot::{Condvar, Mutex, MutexGuard},
    std::{hint::spin_loop, sync::atomic, thread::yield_now},
};
