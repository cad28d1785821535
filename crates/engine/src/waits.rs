//! What writers wait for, looked at several times a second, and how many parts there should be.
//!
//! What follows from it is policy ([`thermocline_policy::plan::waits`]). A store that is opened
//! begins with the parts it has.

use std::sync::Arc;

use thermocline_model::view::{Spent, Waits};
use thermocline_policy::plan::parts::are_by_writes;
use thermocline_policy::plan::waits::waits;

use crate::engine::Engine;
use crate::lend::LOOK_MICROS;
use crate::stats::JobTimes;
use crate::step::{Scene, Scheduler, What};

impl Engine {
    /// A store that was cut stays so until something speaks against it.
    pub(crate) fn begin_with_parts(&self) {
        let mut scheduler = self.scheduler.lock();
        let version = Arc::clone(&self.versions.lock().current);
        let cut = version.keyspaces.values().filter(|k| are_by_writes(k));
        let parts = cut.map(|keyspace| keyspace.parts.len()).max();
        let division = self.options.division_into(parts.unwrap_or(1));
        scheduler.waits = Waits::beginning(division);
    }

    /// Does `job` in this thread, and counts its time where that matters.
    pub(crate) fn timed<T>(&self, times: &JobTimes, job: impl FnOnce() -> T) -> T {
        match self.options.heeds_waits() {
            true => times.of(&*self.environment.clock, job),
            false => job(),
        }
    }

    /// What writers waited for so far, and what jobs did.
    pub(crate) fn spent(&self) -> Spent {
        let (counters, clock) = (&self.counters, &*self.environment.clock);
        let for_runs = &counters.stalled_for[What::Runs as usize];
        let for_memory = &counters.stalled_for[What::Memory as usize];
        Spent {
            stalled_us: for_runs.micros(clock),
            memory_us: for_memory.micros(clock),
            pressed_us: self.emptied.lock().pressed.micros(clock.now_micros()),
            writers_us: for_runs.writers_micros(clock),
            merges: counters.merge_times.get(),
            flushes: counters.flush_times.get(),
        }
    }

    /// Looks what writers wait for, if that is due, and so how many parts there should be; `scene`
    /// shows then what follows from it.
    pub(crate) fn look_what_is_waited_for(&self, scheduler: &mut Scheduler, scene: &mut Scene) {
        let heeds = self.options.heeds_waits();
        if !heeds || !scheduler.tended.waits_are_due(scene.now_us, LOOK_MICROS) {
            return;
        }
        let view = scene.view(&scheduler.busy, &scheduler.busy_outputs);
        scheduler.waits = waits(&view);
        scene.waits = scheduler.waits;
        scene.shape.ranges = self.ranges(scene.sharers, scene.waits.division);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::What;
    use crate::{Db, Options, Tier};

    /// What writers of a store with these options have waited, as policies see it, once two did.
    fn waited(options: Options) -> f64 {
        let db = Db::open(options.background_threads(0)).unwrap();
        let engine = &db.handle.engine;
        let (stalled, clock) = (
            &engine.counters.stalled_for[What::Runs as usize],
            &*engine.environment.clock,
        );
        let both = [stalled.begin(clock), stalled.begin(clock)];
        std::thread::sleep(Duration::from_millis(2));
        drop(both);
        let spent = engine.spent();
        assert!(spent.writers_us > spent.stalled_us && spent.stalled_us > 0);
        let mut scheduler = engine.scheduler.lock();
        let mut scene = engine.scene(&mut scheduler);
        engine.look_what_is_waited_for(&mut scheduler, &mut scene);
        assert_eq!(scheduler.waits.writers, scene.waits.writers);
        scene.waits.writers
    }

    #[test]
    fn what_writers_wait_for_is_looked_at_where_parts_or_places_depend_on_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let two = |name: &str| {
            let tier = |n: &str| Tier::new(n, at(name).join(n));
            Options::default().tier(tier("fast")).tier(tier("slow"))
        };
        assert!(waited(Options::at(at("adapts"))) > 0.0);
        assert!(waited(two("adapts-two")) > 0.0);
        assert!(waited(two("given").moving_cuts(false)) > 0.0);
        let given = Options::at(at("one")).moving_cuts(false);
        assert_eq!(waited(given), 0.0);
    }
}
