//! Whether there should be parts: what writers wait for, looked at several times a second.
//!
//! What follows from it is policy ([`thermocline_policy::plan::parts`]). A store that is opened
//! begins with the parts it has.

use std::sync::Arc;

use thermocline_model::version::Keyspace;
use thermocline_policy::plan::parts::{Spent, Waits, are_by_writes};

use crate::engine::Engine;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct WaitedFor {
    state: Mutex<Waits>,
    parts_pay: AtomicBool,
}

impl WaitedFor {
    /// Whether there should be more than one part.
    pub(crate) fn parts_pay(&self) -> bool {
        self.parts_pay.load(Ordering::Relaxed)
    }
}

impl Engine {
    /// A store that was cut stays so until something speaks against it.
    pub(crate) fn begin_with_parts(&self) {
        let versions = self.versions.lock();
        let cut = versions
            .current
            .keyspaces
            .values()
            .any(|k| are_by_writes(k));
        *self.waits.state.lock() = Waits::beginning(cut);
        self.waits.parts_pay.store(cut, Ordering::Relaxed);
    }

    /// Looks whether there should be more than one part.
    pub(crate) fn look_what_is_waited_for(&self) {
        if !self.options.adapts_parts() {
            return;
        }
        let (counters, clock) = (&self.counters, &*self.environment.clock);
        let spent = Spent {
            stalled_us: counters.stalled_for_runs.micros(clock),
            merges_us: counters.merge_micros.get(),
            running_us: counters.merge_running_micros.get(),
        };
        let version = Arc::clone(&self.versions.lock().current);
        let several = |k: &Arc<Keyspace>| k.levels.first().is_some_and(|l| l.runs.len() > 1);
        let moving = version.keyspaces.values().any(several);
        let now_us = clock.now_micros();
        let triggers = &self.options.part_triggers;
        let mut state = self.waits.state.lock();
        let pay = state.parts_pay(spent, now_us, moving, triggers);
        drop(state);
        self.waits.parts_pay.store(pay, Ordering::Relaxed);
    }
}
