//! Which tables were relocated lately, over a restart: told by the record of events, so that the
//! cool-down is not cut short by an opening. What the record has lost may move again.

use thermocline_model::table::TableId;

use crate::engine::Engine;
use crate::events::EventReader;

impl Engine {
    /// Has the tables cool down that a former opening has relocated.
    pub(crate) fn recall_moves(&self) {
        if !self.options.keeps_cost() {
            return;
        }
        let directory = self.options.event_directory();
        let mut record = EventReader::in_directory(&self.environment, directory);
        let scheduler = &mut *self.scheduler.lock();
        let now_us = self.environment.clock.now_micros();
        for event in record.read().unwrap_or_default() {
            if event.job == "tune" && event.error.is_none() {
                // As it was then: another target lets every table move at once.
                scheduler.moves.release();
            } else if event.job == "relocate" {
                for &table in &event.tables_in {
                    scheduler.moves.recall(TableId(table), event.started_us);
                }
            }
        }
        let cool_down_us = scheduler.cost.migration_cool_down_us;
        scheduler.moves.follow(now_us, cool_down_us);
    }
}
