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
//! One table, and then the flush: it goes to the next tier if that was not enough, as it does
//! where none can move. So a table that cannot be read, a slow tier that fails, or a reader who
//! keeps what was moved, stop no flush.

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
    /// Whether the last job was a table that gave way: the next one is the flush.
    made_room: bool,
}

impl MakeRoom {
    /// Flushes for which tables give way.
    #[must_use]
    pub fn new(gives_way: fn(&View<'_>) -> Option<Relocate>) -> MakeRoom {
        MakeRoom {
            flush: FlushSealed::default(),
            gives_way,
            made_room: false,
        }
    }

    /// The table that gives way to what `job` flushes, if one is to.
    fn giving_way(&self, view: &View<'_>, job: &Job) -> Option<Relocate> {
        let Job::Flush(flush) = job else {
            return None;
        };
        let to_first = view.shape.pins.newest.is_none_or(|tier| tier.0 == 0);
        let may = to_first && !self.made_room && view.moves.may_begin(view.now_us);
        (may && !has_room(view, flush)).then(|| (self.gives_way)(view))?
    }
}

impl Planner for MakeRoom {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let job = self.flush.plan(view)?;
        let moved = self.giving_way(view, &job);
        self.made_room = moved.is_some();
        let Some(moved) = moved else {
            return Some(job);
        };
        self.flush.forget();
        Some(Job::Relocate(moved))
    }
}
