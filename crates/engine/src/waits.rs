//! Whether there should be parts: what writers wait for, looked at several times a second.
//!
//! What follows from it is policy ([`thermocline_policy::plan::waits`]). A store that is opened
//! begins with the parts it has.

use std::sync::Arc;

use thermocline_model::version::Keyspace;
use thermocline_model::view::{Spent, Waits};
use thermocline_policy::plan::parts::are_by_writes;
use thermocline_policy::plan::waits::waits;

use crate::engine::Engine;
use crate::lend::LOOK_MICROS;
use crate::step::{Scene, Scheduler};

impl Engine {
    /// A store that was cut stays so until something speaks against it.
    pub(crate) fn begin_with_parts(&self) {
        let mut scheduler = self.scheduler.lock();
        let version = Arc::clone(&self.versions.lock().current);
        let is_cut = |keyspace: &Arc<Keyspace>| are_by_writes(keyspace);
        scheduler.waits = Waits::beginning(version.keyspaces.values().any(is_cut));
    }

    /// What writers waited for so far, and what merges did.
    pub(crate) fn spent(&self) -> Spent {
        let (counters, clock) = (&self.counters, &*self.environment.clock);
        Spent {
            stalled_us: counters.stalled_for_runs.micros(clock),
            merges_us: counters.merge_micros.get(),
            running_us: counters.merge_running_micros.get(),
        }
    }

    /// Looks whether there should be more than one part, if that is due; `scene` shows then what follows from it.
    pub(crate) fn look_what_is_waited_for(&self, scheduler: &mut Scheduler, scene: &mut Scene) {
        let is_asked = self.options.adapts_parts();
        if !is_asked || !scheduler.tended.waits_are_due(scene.now_us, LOOK_MICROS) {
            return;
        }
        let view = scene.view(&scheduler.busy, &scheduler.busy_outputs);
        scheduler.waits = waits(&view);
        scene.waits = scheduler.waits;
        scene.shape.ranges = self.ranges(scene.sharers, scene.waits.parts_pay);
    }
}
