//! Who does which jobs; and merges beside others, by the thread that flushes.
//!
//! The devices of a store are as fast as they are however much the others have to do, so two merges that
//! work two of them end twice as soon side by side. Two that work the same one would not, and a
//! disk would seek between them. So the thread that flushes, which waits for memtables to fill
//! for most of its time, takes a merge if one is running, and one can be had that mostly works another tier
//! ([`estimate::works`]).
//!
//! Flushes come first all the same: it looks whether one is due about once a MiB of what it reads, and flushes before it
//! goes on. When it has not looked for a while, since it waits for a disk to persist what it wrote, the
//! other merges do so in its place.

use std::sync::atomic::Ordering;

use thermocline_model::job::{Job, Merge};
use thermocline_model::tier::TierId;
use thermocline_model::view::View;
use thermocline_policy::cost::estimate;
use thermocline_policy::{Planner, Preset};

use crate::engine::Engine;
use crate::error::Result;
use crate::job::{Conduct, Done};

/// Which jobs a caller of `step` takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// All, flushes first.
    Any,
    /// Flushes; if none is due, merges for devices that other jobs leave idle.
    FlushFirst,
    /// Flushes, in the middle of a merge.
    GiveWay,
    /// All but flushes.
    NoFlush,
}

impl Role {
    /// The next job, while jobs that run mostly work the tiers `working`, and perhaps some merge `gives_way`
    /// to a flush already. A second would take more memory than was promised.
    pub(super) fn choose(
        self,
        preset: &mut Preset,
        view: &View<'_>,
        working: &[TierId],
        gives_way: bool,
    ) -> Option<Job> {
        let recut = match self {
            // It can wait until the merge has ended.
            Role::GiveWay => None,
            Role::FlushFirst if gives_way => None,
            Role::Any | Role::FlushFirst | Role::NoFlush => preset.recut.plan(view),
        };
        let flush = recut.or_else(|| match self {
            Role::GiveWay | Role::FlushFirst if gives_way => None,
            Role::Any | Role::FlushFirst | Role::GiveWay => preset.flush.plan(view),
            Role::NoFlush => None,
        });
        let planners = &mut preset.planners;
        flush.or_else(|| match self {
            Role::Any | Role::NoFlush => planners.iter_mut().find_map(|p| p.plan(view)),
            Role::FlushFirst => beside(planners, view, working),
            Role::GiveWay => None,
        })
    }
}

/// A merge that mostly works none of the tiers `working`, if there are such: else nobody merges.
fn beside(planners: &mut [Box<dyn Planner>], view: &View<'_>, working: &[TierId]) -> Option<Job> {
    if working.is_empty() {
        return None;
    }
    let view = View {
        spared_tiers: working,
        ..view.clone()
    };
    let mut jobs = planners.iter_mut().filter_map(|p| p.plan(&view));
    jobs.find(|job| estimate::is_beside(&view, job))
}

/// When the thread that flushes has not looked for so long, others flush.
const LOOKS_EVERY_US: u64 = 50_000;

impl Engine {
    /// In the middle of a merge by `role`: flushes what is due, if the thread that flushes merges.
    /// Whatever becomes of that, the merge goes on.
    fn give_way(&self, role: Role) {
        let looks = || {
            let looked_us = self.flusher_looked_us.load(Ordering::Acquire);
            let now_us = self.environment.clock.now_micros();
            match role {
                Role::Any | Role::GiveWay => false,
                Role::FlushFirst => true,
                Role::NoFlush => {
                    looked_us > 0 && now_us.saturating_sub(looked_us) >= LOOKS_EVERY_US
                }
            }
        };
        while looks() && self.has_sealed() {
            let flushed = self.plan(Role::GiveWay).map(|planned| self.run(planned));
            if !matches!(flushed, Some(Ok(()))) {
                break;
            }
        }
        if role == Role::FlushFirst {
            let now_us = self.environment.clock.now_micros();
            self.flusher_looked_us
                .store(now_us.max(1), Ordering::Release);
        }
    }

    /// Runs `merge`, which gives way to flushes as `role` should.
    pub(super) fn merge_as(&self, role: Role, merge: &Merge) -> Result<Done> {
        let conduct = Conduct {
            look: &|| self.give_way(role),
            threads: match role {
                // Others have theirs.
                Role::FlushFirst => 1,
                _ => usize::MAX,
            },
        };
        self.run_merge(merge, &conduct)
    }

    fn has_sealed(&self) -> bool {
        let spaces = self.spaces.load();
        let mut views = spaces.values().map(|space| space.view.load());
        views.any(|view| view.parts.iter().any(|part| !part.sealed.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Options};

    const MIB: usize = 1 << 20;

    /// A store whose newest level is due for a merge, with so much sealed that a flush is due as well.
    fn full(directory: &std::path::Path) -> Db {
        let options = Options::at(directory)
            .background_threads(0)
            .write_buffer_bytes(8 << 20)
            .write_buffer_grows(false)
            .newest_runs_merge(2);
        let db = Db::open(options).unwrap();
        let value = vec![7; 4096];
        let fill = |bytes: usize| {
            for n in 0..bytes / value.len() {
                let key = (n as u32).wrapping_mul(2_654_435_761).to_be_bytes();
                db.put(&key, &value).unwrap();
            }
        };
        for _ in 0..4 {
            fill(2 * MIB);
            db.flush().unwrap();
        }
        fill(5 * MIB);
        db
    }

    fn jobs(db: &Db) -> Vec<String> {
        let events = db.events(1000);
        let jobs = events.iter().map(|event| event.job.to_string());
        jobs.collect()
    }

    #[test]
    fn a_merge_gives_way_to_a_flush_while_the_flusher_merges_and_does_not_look() {
        let now_us = |db: &Db| db.engine().environment.clock.now_micros();
        let looked: [fn(u64) -> u64; 3] = [|_| 0, |now_us| now_us + 10_000_000, |_| 1];
        for (looked, gives_way) in looked.into_iter().zip([false, false, true]) {
            let directory = tempfile::tempdir().unwrap();
            let db = full(directory.path());
            let engine = db.engine();
            let before = jobs(&db).len();
            let merge = engine.plan(Role::NoFlush).unwrap();
            assert!(matches!(merge.job, Job::Merge(_)));
            let looked_us = looked(now_us(&db));
            engine.flusher_looked_us.store(looked_us, Ordering::Release);
            engine.run(merge).unwrap();
            let expected: &[&str] = match gives_way {
                true => &["flush", "merge"],
                false => &["merge"],
            };
            assert_eq!(jobs(&db)[before..], *expected);
        }
    }

    #[test]
    fn what_the_caller_runs_itself_gives_way_to_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let db = full(directory.path());
        let engine = db.engine();
        let before = jobs(&db).len();
        let mut merge = engine.plan(Role::NoFlush).unwrap();
        merge.role = Role::Any;
        engine.flusher_looked_us.store(1, Ordering::Release);
        engine.run(merge).unwrap();
        assert_eq!(jobs(&db)[before..], ["merge"]);
    }

    #[test]
    fn the_flusher_gives_way_itself() {
        let directory = tempfile::tempdir().unwrap();
        let db = full(directory.path());
        let engine = db.engine();
        let before = jobs(&db).len();
        let mut merge = engine.plan(Role::NoFlush).unwrap();
        merge.role = Role::FlushFirst;
        engine.run(merge).unwrap();
        assert_eq!(jobs(&db)[before..], ["flush", "merge"]);
        assert_eq!(engine.flusher_looked_us.load(Ordering::Acquire), 0);
    }

    #[test]
    fn one_flush_at_a_time_comes_between() {
        let directory = tempfile::tempdir().unwrap();
        let db = full(directory.path());
        let engine = db.engine();
        let flush = engine.plan(Role::GiveWay).unwrap();
        assert!(matches!(flush.job, Job::Flush(_)));
        assert!(engine.plan(Role::GiveWay).is_none());
        let planned = engine.plan(Role::FlushFirst);
        assert!(
            planned.is_none(),
            "nor does the thread that flushes begin one"
        );
        engine.run(flush).unwrap();
        assert_eq!(engine.scheduler.lock().giving_way, 0);
    }

    #[test]
    fn the_flusher_merges_only_beside_another_merge_that_works_another_tier() {
        let directory = tempfile::tempdir().unwrap();
        let db = full(directory.path());
        let engine = db.engine();
        while let Some(flush) = engine.plan(Role::FlushFirst) {
            assert!(matches!(flush.job, Job::Flush(_)));
            engine.run(flush).unwrap();
        }
        // Nobody merges, then somebody does who works the only tier, and then another.
        let other = [vec![TierId(0)], vec![TierId(1)]];
        for (working, expected) in other.into_iter().zip([false, true]) {
            engine.scheduler.lock().working = working;
            let planned = engine.plan(Role::FlushFirst);
            assert_eq!(planned.is_some(), expected);
            if let Some(planned) = planned {
                assert!(matches!(planned.job, Job::Merge(_)));
                assert_eq!(engine.scheduler.lock().working, [TierId(1), TierId(0)]);
                engine.run(planned).unwrap();
                assert_eq!(engine.flusher_looked_us.load(Ordering::Acquire), 0);
            }
        }
        assert_eq!(engine.scheduler.lock().working, [TierId(1)]);
        engine.scheduler.lock().working.clear();
    }
}
