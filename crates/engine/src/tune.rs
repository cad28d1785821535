//! Tune: another cost target for a store, open or not.
//!
//! Who has the store open is asked by a file (`control.rs`). The target is kept in
//! the options file, so that the next opening finds it.

use std::time::Duration;

use thermocline_model::job::Reason;

use crate::control::{Wanted, ask};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::events::Event;
use crate::lock::StoreLock;
use crate::options::{OPTIONS_FILE, Options};
use crate::store::{Environment, swap_file};

/// Who changed the target. See [`tune`].
///
/// ```
/// # use std::time::Duration;
/// # use thermocline::{Db, Options, Tier, Tuned, tune};
/// # let directory = tempfile::tempdir().unwrap();
/// let tier = |name, price| Tier::new(name, directory.path().join(name)).price_usd_gb_month(price);
/// let options = Options::new().tier(tier("ssd", 0.5)).tier(tier("hdd", 0.05)).preset("mutant");
/// let db = Db::open(options.clone().heat_epoch_ms(10))?;
/// let patience = Duration::from_secs(60);
/// assert_eq!(tune(&options, Some(0.2), patience)?, Tuned::Running);
/// assert_eq!(db.stats().cost.target_usd_gb_month, Some(0.2));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tuned {
    /// The process that has the store open; it has begun to move tables.
    Running,
    /// This one, in the options file; the next opening goes by it.
    Closed,
}

/// Gives the store of `options` another cost target, in USD per 10^9 bytes and
/// month, or none. A process that has the store open is asked to, and given
/// `patience` to answer.
///
/// ```
/// # use std::time::Duration;
/// # use thermocline::{Db, OPTIONS_FILE, Options, Tier, Tuned, tune};
/// # let directory = tempfile::tempdir().unwrap();
/// let tier = |name, price| Tier::new(name, directory.path().join(name)).price_usd_gb_month(price);
/// let options = Options::new().tier(tier("ssd", 0.5)).tier(tier("hdd", 0.05)).preset("mutant");
/// Db::open(options.clone())?.close()?;
/// assert_eq!(tune(&options, Some(0.2), Duration::ZERO)?, Tuned::Closed);
/// let kept = Options::from_file(&directory.path().join("ssd").join(OPTIONS_FILE))?;
/// assert_eq!(Db::open(kept)?.stats().cost.target_usd_gb_month, Some(0.2));
/// let error = tune(&options, Some(0.9), Duration::ZERO).unwrap_err();
/// assert!(error.to_string().contains("the dearest 0.5"));
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a target that cannot be met, naming the
/// bounds, also from the process asked; [`ErrorKind::NotFound`] when there is no
/// store; [`ErrorKind::Locked`] when whoever has it open did not answer in time;
/// [`ErrorKind::Io`].
pub fn tune(options: &Options, target: Option<f64>, patience: Duration) -> Result<Tuned> {
    let environment = Environment::real();
    let mut options = options.clone();
    options.cost_target_usd_per_gb_month = target;
    options.check()?;
    let directory = options.tiers[0].path().to_path_buf();
    let kept = directory.join(OPTIONS_FILE);
    let found = environment.file_system.metadata(&kept);
    if found
        .map_err(|e| Error::io("looking for options", &kept, e))?
        .is_none()
    {
        return Err(Error::new(ErrorKind::NotFound, "there is no store").at(&directory));
    }
    match StoreLock::take_in(&options, &environment) {
        Ok(_lock) => {
            let text = options.to_toml_in_first_tier();
            swap_file(&environment, &directory, OPTIONS_FILE, text.as_bytes())?;
            Ok(Tuned::Closed)
        }
        Err(e) if e.kind() == ErrorKind::Locked => {
            let wanted = Wanted::Tune {
                cost_target_usd_per_gb_month: target,
            };
            ask(&environment, &directory, wanted, patience).map(|_| Tuned::Running)
        }
        Err(e) => Err(e),
    }
}

impl Engine {
    /// See [`Db::set_cost_target`](crate::Db::set_cost_target).
    pub(crate) fn set_cost_target(&self, target: Option<f64>) -> Result<()> {
        self.check_writable()?;
        if let Some(target) = target {
            self.options.check_cost_target(target)?;
        }
        let _turn = self.tuning.lock();
        let mut options = self.options.clone();
        options.cost_target_usd_per_gb_month = target;
        // First: what is in force is what the next opening finds.
        let text = options.to_toml_in_first_tier();
        let directory = self.directory();
        swap_file(&self.environment, &directory, OPTIONS_FILE, text.as_bytes())?;
        {
            let scheduler = &mut *self.scheduler.lock();
            if scheduler.cost.target_usd_gb_month != target {
                scheduler.cost.target_usd_gb_month = target;
                scheduler.moves.release();
            }
        }
        self.wake();
        Ok(())
    }

    /// Notes among the events that somebody asked for another target.
    pub(crate) fn note_tuning(&self, error: Option<&Error>) {
        let target = self.scheduler.lock().cost.target_usd_gb_month;
        let mut reason = Reason::new("asked-by-file");
        if let Some(target) = target {
            reason = reason.with("target_usd_gb_month", target);
        }
        let now_us = self.environment.clock.now_micros();
        self.events.push(Event {
            error: error.map(ToString::to_string),
            ..Event::new("tune", "another cost target", reason, now_us)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::control::{ANSWER_FILE, REQUEST_FILE};
    use crate::{Db, Tier};

    fn store(directory: &Path) -> Options {
        let tier =
            |name: &str, price| Tier::new(name, directory.join(name)).price_usd_gb_month(price);
        Options::new()
            .tier(tier("fast", 0.5))
            .tier(tier("slow", 0.05))
            .preset("mutant")
            .heat_epoch_ms(10)
    }

    #[test]
    fn an_open_store_refuses_by_file_what_it_refuses_by_call() {
        let directory = tempfile::tempdir().unwrap();
        let options = store(directory.path());
        let db = Db::open(options.clone()).unwrap();
        // Asked past the check of the asking side.
        let first = directory.path().join("fast");
        let environment = Environment::real();
        let wanted = Wanted::Tune {
            cost_target_usd_per_gb_month: Some(0.9),
        };
        let error = ask(&environment, &first, wanted, Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().contains("the dearest 0.5"), "{error}");
        assert_eq!(db.stats().cost.target_usd_gb_month, None);
        let event = db.events(usize::MAX).pop().unwrap();
        assert!(event.job == "tune" && event.error.is_some());
    }

    #[test]
    fn a_request_that_is_no_request_is_taken_away_and_does_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(store(directory.path()).background_threads(0)).unwrap();
        let file = |name: &str| directory.path().join("fast").join(name);
        for (at, junk) in [&b"\xff\xfe"[..], b"target = 1", &[b'a'; 100_000]]
            .iter()
            .enumerate()
        {
            std::fs::write(file(REQUEST_FILE), junk).unwrap();
            std::thread::sleep(Duration::from_millis(15));
            db.step().unwrap();
            assert!(!file(REQUEST_FILE).exists(), "junk {at}");
            assert!(
                std::fs::read_to_string(file(ANSWER_FILE))
                    .unwrap()
                    .contains("error")
            );
        }
        assert_eq!(db.stats().cost.target_usd_gb_month, None);
    }

    #[test]
    fn who_does_not_answer_is_named_and_finds_no_request_later() {
        let directory = tempfile::tempdir().unwrap();
        let options = store(directory.path());
        let db = Db::open(options.clone().background_threads(0)).unwrap();
        let error = tune(&options, Some(0.2), Duration::from_millis(30)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert!(error.to_string().contains("did not answer"), "{error}");
        db.step().unwrap();
        assert_eq!(db.stats().cost.target_usd_gb_month, None);
    }
}
