//! How long threads are at jobs of a kind, and what of that they wait for.

use thermocline_model::view::JobTime;

use super::counters::Counter;
use crate::store::Clock;

/// Counts it.
#[derive(Debug, Default)]
pub(crate) struct JobTimes {
    all_us: Counter,
    running_us: Counter,
}

impl JobTimes {
    /// Does `job` in this thread, and counts for how long.
    pub(crate) fn of<T>(&self, clock: &dyn Clock, job: impl FnOnce() -> T) -> T {
        let (begun_us, ran_us) = (clock.now_micros(), clock.running_micros());
        let done = job();
        self.all_us.add(clock.now_micros().saturating_sub(begun_us));
        self.running_us
            .add(clock.running_micros().saturating_sub(ran_us));
        done
    }

    pub(crate) fn get(&self) -> JobTime {
        JobTime {
            all_us: self.all_us.get(),
            running_us: self.running_us.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::Environment;

    #[test]
    fn a_job_that_waits_is_longer_than_it_runs() {
        let (times, clock) = (JobTimes::default(), Environment::real().clock);
        assert_eq!(times.get(), JobTime::default());
        let done = times.of(&*clock, || {
            std::thread::sleep(Duration::from_millis(3));
            7
        });
        let first = times.get();
        assert!(done == 7 && first.all_us >= 3000 && first.running_us < first.all_us);
        times.of(&*clock, || std::thread::sleep(Duration::from_millis(3)));
        assert!(times.get().all_us >= 6000);
    }
}
