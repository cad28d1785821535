//! Where a new table goes: what the placer is shown, and how often that is made.
//!
//! A merge makes many tables. To see the whole store anew for each of them took several
//! times the instructions of all planning, so what the job was planned by serves its
//! outputs too: as long as its version is the current one, the options of placement are
//! what they were, and it is young. What the devices hold is asked every time, as the
//! outputs themselves fill them; what these have of a capacity, the job says.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use thermocline_model::job::{Job, Layout, NewTable};
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableId;
use thermocline_model::version::{KeyspaceId, Slot};
use thermocline_model::view::View;
use thermocline_policy::cost::estimate::{Places, priced};
use thermocline_policy::{Placer, Seen};

use crate::engine::Engine;
use crate::step::{Scene, Scheduler};

/// How old the scene may be, in microseconds, that a table is placed by.
const SCENE_AGE_US_MAX: u64 = 500_000;

/// What tables are placed by.
#[derive(Debug)]
pub(crate) struct Placing {
    scene: Scene,
    /// The tables that jobs were reading then,
    busy: BTreeSet<TableId>,
    /// and what they were to write: what leaves a tier makes room for what is flushed.
    busy_outputs: Vec<(KeyspaceId, Slot, KeyRange)>,
    /// What a placer sees of it, once one is asked.
    seen: OnceLock<Seen>,
}

impl Placing {
    pub(crate) fn new(scene: Scene, scheduler: &Scheduler) -> Placing {
        Placing {
            scene,
            busy: scheduler.busy.clone(),
            busy_outputs: scheduler.busy_outputs.clone(),
            seen: OnceLock::new(),
        }
    }

    /// `job` with what it is predicted to cost and to gain, if its tables are placed by this.
    pub(crate) fn price(&self, placer: &dyn Placer, job: Job) -> Job {
        let view = self.scene.view(&self.busy, &self.busy_outputs);
        let seen = Seen::of(&view);
        // Its ranking is not kept: by the time that tables are placed the tiers may hold other
        // bytes.
        self.seen.get_or_init(|| seen.unranked());
        let places = Places {
            placer,
            seen: &seen,
        };
        priced(&view, places, job)
    }
}

impl Engine {
    /// Where a new table goes.
    #[inline(never)] // So that a profile tells what it costs.
    pub(crate) fn place(&self, new: &NewTable) -> Layout {
        let (placing, placer) = {
            let mut scheduler = self.scheduler.lock();
            let placing = self.placing(&mut scheduler);
            (placing, Arc::clone(&scheduler.preset.placer))
        };
        let tiers = self.tier_states();
        let view = View {
            tiers: &tiers,
            ..placing.scene.view(&placing.busy, &placing.busy_outputs)
        };
        let seen = placing.seen.get_or_init(|| Seen::of(&view));
        placer.place_as_seen(&view, seen, new)
    }

    /// What the last job was planned by, or what there is now.
    fn placing(&self, scheduler: &mut Scheduler) -> Arc<Placing> {
        let now_us = self.environment.clock.now_micros();
        let current = Arc::clone(&self.versions.lock().current);
        let fits = |placing: &Arc<Placing>| {
            let scene = &placing.scene;
            Arc::ptr_eq(&scene.version, &current)
                && scene.cost == scheduler.cost
                && now_us.abs_diff(scene.now_us) < SCENE_AGE_US_MAX
        };
        let known = scheduler.placing.clone().filter(fits);
        let placing = known.unwrap_or_else(|| {
            let scene = self.scene(scheduler);
            Arc::new(Placing::new(scene, scheduler))
        });
        scheduler.placing = Some(Arc::clone(&placing));
        placing
    }
}
