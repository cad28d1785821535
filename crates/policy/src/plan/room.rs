//! Room on the first tier for what is flushed.
//!
//! A flush that finds the first tier full goes to the next one. There it is written slowly,
//! read slowly when it is merged, and read by whoever looks for what is newest meanwhile, while
//! something older keeps the place. So before such a flush a table of the last level is moved
//! down, the one that the preset chooses ([`super::balance::gives_way`],
//! [`super::migrate::gives_way`]). It is the flushes' own thread that moves it: another may be
//! in a merge for seconds, and of what that writes nothing makes room, as it takes the place of
//! what it reads.
//!
//! Where none can move, the flush goes to the next tier, as before.

use thermocline_model::job::{Job, Relocate};
use thermocline_model::view::View;

use crate::Planner;
use crate::plan::flush::{FlushSealed, has_room};

/// See the module.
#[derive(Debug)]
pub struct MakeRoom {
    /// What is flushed.
    flush: FlushSealed,
    /// The table that makes room on the first tier.
    gives_way: fn(&View<'_>) -> Option<Relocate>,
}

impl MakeRoom {
    /// Flushes for which tables give way.
    #[must_use]
    pub fn new(gives_way: fn(&View<'_>) -> Option<Relocate>) -> MakeRoom {
        MakeRoom {
            flush: FlushSealed::default(),
            gives_way,
        }
    }
}

impl Planner for MakeRoom {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let job = self.flush.plan(view)?;
        let is_short = matches!(&job, Job::Flush(flush) if !has_room(view, flush));
        let moved = match is_short && view.moves.may_begin(view.now_us) {
            true => (self.gives_way)(view),
            false => None,
        };
        Some(moved.map_or(job, Job::Relocate))
    }
}
