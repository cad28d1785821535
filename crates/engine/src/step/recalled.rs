//! Which tables were relocated lately, over a restart: told by the record of events, so that the
//! cool-down is not cut short by an opening. What the record has lost may move again.
//!
//! Another cost target lets every table move at once, and only another one: the record has what
//! each `tune` found and what it wanted, and the options file has the target that the store had
//! when it was last open.

use thermocline_model::table::TableId;

use crate::engine::Engine;
use crate::events::{Event, EventReader};
use crate::options::{OPTIONS_FILE, Options};
use crate::tune;
use crate::version::manifest::read_file;

impl Engine {
    /// Has the tables cool down that a former opening has relocated. Gives the event that this
    /// opening has another cost target than the store had, if it has: none, where the preset keeps
    /// none.
    pub(crate) fn recall_moves(&self) -> Option<Event> {
        if !self.options.keeps_cost() {
            let before = self.target_before().filter(Option::is_some)?;
            let rule = "opened-with-a-preset-that-keeps-none";
            let now_us = self.environment.clock.now_micros();
            return Some(tune::tuning(rule, before, None, None, now_us));
        }
        let directory = self.options.event_directory();
        let mut record = EventReader::in_directory(&self.environment, directory);
        let scheduler = &mut *self.scheduler.lock();
        let now_us = self.environment.clock.now_micros();
        for event in record.read().unwrap_or_default() {
            if event.job == "tune" && event.error.is_none() {
                // As it was then.
                if tune::has_changed(&event) {
                    scheduler.moves.release();
                }
            } else if event.job == "relocate" {
                for &table in &event.tables_in {
                    scheduler.moves.recall(TableId(table), event.started_us);
                }
            }
        }
        let target = scheduler.cost.target_usd_gb_month;
        let retuned = self.target_before().filter(|before| *before != target);
        if retuned.is_some() {
            scheduler.moves.release();
        }
        let cool_down_us = scheduler.cost.migration_cool_down_us;
        scheduler.moves.follow(now_us, cool_down_us);
        retuned
            .map(|before| tune::tuning("opened-with-another-target", before, target, None, now_us))
    }

    /// The cost target that the store had before this opening; `None` where its options file does
    /// not tell.
    fn target_before(&self) -> Option<Option<f64>> {
        let file = self.directory().join(OPTIONS_FILE);
        let bytes = read_file(&self.environment, &file).ok()?;
        let kept = Options::from_toml(std::str::from_utf8(&bytes).ok()?).ok()?;
        Some(kept.cost_target_usd_per_gb_month)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use thermocline_model::job::Reason;

    use super::*;
    use crate::{Db, Tier};

    fn options(directory: &Path) -> Options {
        let tier =
            |name: &str, price| Tier::new(name, directory.join(name)).price_usd_gb_month(price);
        Options::new()
            .tier(tier("fast", 0.5))
            .tier(tier("slow", 0.05))
            .preset("mutant")
            .migration_cool_down_s(3600)
            .background_threads(0)
    }

    fn open(directory: &Path, target: f64) -> Db {
        Db::open(options(directory).cost_target_usd_per_gb_month(target)).unwrap()
    }

    /// A store with this target that has just relocated table 7.
    fn relocated(directory: &Path, target: f64) -> Db {
        let db = open(directory, target);
        let now_us = db.engine().environment.clock.now_micros();
        db.engine().events.push(Event {
            tables_in: vec![7],
            ..Event::new("relocate", "table 7", Reason::new("test"), now_us)
        });
        db
    }

    fn is_cooling(db: &Db) -> bool {
        let scheduler = db.engine().scheduler.lock();
        let now_us = db.engine().environment.clock.now_micros();
        let cool_down_us = scheduler.cost.migration_cool_down_us;
        scheduler.moves.is_cooling(TableId(7), now_us, cool_down_us)
    }

    // Whoever set the target to what it was let every table move at the next opening.
    #[test]
    fn a_target_set_to_what_it_was_ends_no_cool_down_over_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let db = relocated(directory.path(), 0.2);
        db.set_cost_target(Some(0.2)).unwrap();
        db.set_cost_target(Some(7.0)).unwrap_err();
        db.close().unwrap();
        let db = open(directory.path(), 0.2);
        assert!(is_cooling(&db));
        db.set_cost_target(Some(0.3)).unwrap();
        assert!(!is_cooling(&db));
        db.close().unwrap();
        assert!(!is_cooling(&open(directory.path(), 0.3)));
    }

    // The target was gone, and nothing told of it.
    #[test]
    fn an_opening_with_a_preset_that_keeps_no_target_says_that_it_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path(), 0.2).close().unwrap();
        let leveled = || Db::open(options(directory.path()).preset("leveled")).unwrap();
        let db = leveled();
        let told = db.events(1).pop().unwrap();
        assert_eq!(
            (&*told.what, &*told.reason.rule),
            (
                "cost target none, before 0.2",
                "opened-with-a-preset-that-keeps-none"
            )
        );
        db.close().unwrap();
        let told = leveled().events(usize::MAX);
        assert_eq!(told.iter().filter(|e| e.job == "tune").count(), 1);
    }

    // An opening with options of its own kept tables back that the new target wanted elsewhere.
    #[test]
    fn an_opening_with_another_target_ends_the_cool_down_for_good_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        relocated(directory.path(), 0.2).close().unwrap();
        let db = open(directory.path(), 0.3);
        assert!(!is_cooling(&db));
        let told = db.events(1).pop().unwrap();
        assert_eq!(
            (&*told.job, &*told.what),
            ("tune", "cost target 0.3, before 0.2")
        );
        db.close().unwrap();
        let db = open(directory.path(), 0.3);
        assert!(!is_cooling(&db));
        let told = db.events(usize::MAX);
        assert_eq!(told.iter().filter(|e| e.job == "tune").count(), 1);
    }
}
