//! Tune: another cost target for a store, open or not.
//!
//! Who has the store open is asked by a file (`control.rs`). The target is kept in the options
//! file, so that an opening that goes by that finds it; one with options of its own goes by those.
//! Each change, and each that was refused, is an event.

use std::collections::BTreeSet;
use std::time::Duration;

use thermocline_model::job::Reason;
use thermocline_policy::plan::organisation;

use crate::control::{Heard, Wanted, ask};
use crate::db::Db;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::events::{self, Event};
use crate::options::{COST_TARGET, OPTIONS_FILE, Options};
use crate::step::Scene;
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
    /// This one, in the options file of the first tier. An opening that goes by that file has the
    /// target; one with other options goes by those, and overwrites the file.
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
/// [`ErrorKind::Io`]; those of opening a store for reading only where nobody has it open, as what
/// it holds is what bounds the target.
pub fn tune(options: &Options, target: Option<f64>, patience: Duration) -> Result<Tuned> {
    let environment = Environment::real();
    let mut options = options.clone();
    options.cost_target_usd_per_gb_month = target;
    if options.tiers.is_empty() {
        options.check()?;
    }
    let directory = options.tiers[0].path().to_path_buf();
    let kept = directory.join(OPTIONS_FILE);
    let found = environment.file_system.metadata(&kept);
    if found
        .map_err(|e| Error::io("looking for options", &kept, e))?
        .is_none()
    {
        return Err(Error::new(ErrorKind::NotFound, "there is no store").at(&directory));
    }
    // Of a store that is there: what is wrong with its options says nothing of one that is not.
    options.check()?;
    let wanted = Wanted::Tune {
        cost_target_usd_per_gb_month: target,
    };
    match ask(&environment, &options, wanted, patience)? {
        Heard::Nobody(_lock) => {
            let before = Options::from_file(&kept).ok();
            let before = before.and_then(|kept| kept.cost_target_usd_per_gb_month);
            let done = tune_closed(&options, &environment);
            let now_us = environment.clock.now_micros();
            let error = done.as_ref().err();
            let event = tuning("asked-of-a-closed-store", before, target, error, now_us);
            events::note(&environment, &options, event);
            done.map(|()| Tuned::Closed)
        }
        Heard::Given(_) => Ok(Tuned::Running),
    }
}

/// Keeps the target of `options` for a store that nobody has open.
fn tune_closed(options: &Options, environment: &Environment) -> Result<()> {
    if let Some(target) = options.cost_target_usd_per_gb_month {
        let looked_at = options.clone().create_if_missing(false).read_only(true);
        let db = Db::open_in(looked_at, environment)?;
        db.engine().check_bounds(target)?;
    }
    let text = options.to_toml_in_first_tier();
    let directory = options.tiers[0].path();
    swap_file(environment, directory, OPTIONS_FILE, text.as_bytes())
}

/// The names of the numbers that [`tuning`] gives.
const WANTED: &str = "target_usd_gb_month";
const BEFORE: &str = "target_before_usd_gb_month";

/// Whether the target was another one after such an event than before.
pub(crate) fn has_changed(event: &Event) -> bool {
    let numbers = event.reason.numbers.iter();
    let of = |name: &str| numbers.clone().find(|(n, _)| n == name).map(|(_, n)| *n);
    of(WANTED) != of(BEFORE)
}

/// That somebody wanted another target, and who was asked for it.
pub(crate) fn tuning(
    asked: &str,
    before: Option<f64>,
    wanted: Option<f64>,
    error: Option<&Error>,
    now_us: u64,
) -> Event {
    let number = |target: Option<f64>| target.map_or("none".to_string(), |t| t.to_string());
    let what = format!("cost target {}, before {}", number(wanted), number(before));
    let mut reason = Reason::new(asked);
    for (name, target) in [(WANTED, wanted), (BEFORE, before)] {
        if let Some(target) = target {
            reason = reason.with(name, target);
        }
    }
    Event {
        error: error.map(ToString::to_string),
        ..Event::new("tune", what, reason, now_us)
    }
}

impl Engine {
    /// See [`Db::set_cost_target`](crate::Db::set_cost_target); `asked` says how, for the event.
    pub(crate) fn set_cost_target(&self, target: Option<f64>, asked: &str) -> Result<()> {
        self.check_writable()?;
        let _turn = self.tuning.lock();
        let before = self.scheduler.lock().cost.target_usd_gb_month;
        let done = self.change_cost_target(target);
        let now_us = self.environment.clock.now_micros();
        let event = tuning(asked, before, target, done.as_ref().err(), now_us);
        self.events.push(event);
        done
    }

    fn change_cost_target(&self, target: Option<f64>) -> Result<()> {
        if let Some(target) = target {
            self.options.check_cost_target(target)?;
            self.check_bounds(target)?;
        }
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

    /// Refuses a target that no placement of what is stored costs.
    fn check_bounds(&self, target: f64) -> Result<()> {
        let scene = self.scene(&mut self.scheduler.lock());
        scene.check_bounds(target)
    }
}

impl Scene {
    /// As [`Engine::check_bounds`].
    pub(crate) fn check_bounds(&self, target: f64) -> Result<()> {
        let nothing = BTreeSet::new();
        let bounds = organisation::bounds(&self.view(&nothing, &[]));
        bounds
            .check(target)
            .map_err(|e| Error::invalid(format!("{COST_TARGET}: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Tier;
    use crate::control::{ANSWER_FILE, REQUEST_FILE};

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
        let environment = Environment::real();
        let wanted = Wanted::Tune {
            cost_target_usd_per_gb_month: Some(0.9),
        };
        let error = ask(&environment, &options, wanted, Duration::from_secs(60)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the dearest 0.5"), "{text}");
        assert_eq!(text.matches("invalid argument").count(), 1, "{text}");
        assert_eq!(db.stats().cost.target_usd_gb_month, None);
        let event = db.events(usize::MAX).pop().unwrap();
        assert!(event.job == "tune" && event.error.is_some());
    }

    // Only a request by file left an event, without the target before; a call and a change of a
    // closed store left none.
    #[test]
    fn every_change_of_the_target_is_an_event_with_old_and_new() {
        let directory = tempfile::tempdir().unwrap();
        let options = store(directory.path());
        let db = Db::open(options.clone()).unwrap();
        db.set_cost_target(Some(0.2)).unwrap();
        db.set_cost_target(Some(7.0)).unwrap_err();
        db.set_cost_target(None).unwrap();
        db.close().unwrap();
        tune(&options, Some(0.3), Duration::ZERO).unwrap();
        let db = Db::open(options.cost_target_usd_per_gb_month(0.3)).unwrap();
        let told = db.events(usize::MAX);
        let told = told.iter().filter(|e| e.job == "tune");
        let told: Vec<_> = told.map(|e| (e.what.as_str(), e.error.is_some())).collect();
        assert_eq!(
            told,
            [
                ("cost target 0.2, before none", false),
                ("cost target 7, before 0.2", true),
                ("cost target none, before 0.2", false),
                ("cost target 0.3, before none", false),
            ]
        );
    }

    // A target was compared with the prices of tiers alone: one that a small fast tier cannot make
    // so dear, or metadata on it so cheap, was taken and never met.
    #[test]
    fn a_target_beyond_what_is_stored_is_refused_naming_both_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let tier = |name: &str, price| {
            Tier::new(name, directory.path().join(name)).price_usd_gb_month(price)
        };
        let options = Options::new()
            .tier(tier("fast", 0.5).capacity_bytes(64 << 10))
            .tier(tier("slow", 0.05))
            .preset("mutant")
            .reserve_bytes(0)
            .table_bytes(16 << 10);
        let db = Db::open(options.clone()).unwrap();
        // With next to nothing in it anything between the prices goes.
        db.set_cost_target(Some(0.05)).unwrap();
        db.set_cost_target(Some(0.5)).unwrap();
        for i in 0..2000u32 {
            let value: Vec<u8> = (0..100)
                .map(|at| (i.wrapping_mul(2_654_435_761) >> (at % 24)) as u8)
                .collect();
            db.put(&i.to_be_bytes(), &value).unwrap();
        }
        db.compact_range(None, None).unwrap();
        let refusals = |target| {
            let change = crate::WhatIf::nothing_changes().cost_target(Some(target));
            let refused = db.set_cost_target(Some(target)).unwrap_err().to_string();
            assert_eq!(db.forecast(&change).unwrap_err().to_string(), refused);
            refused
        };
        for target in [0.05, 0.5] {
            let refused = refusals(target);
            let both = refused.contains("the cheapest placement costs 0.0")
                && refused.contains("the dearest 0.");
            assert!(both, "{refused}");
        }
        db.set_cost_target(Some(0.15)).unwrap();
        db.close().unwrap();
        let refused = tune(&options, Some(0.5), Duration::ZERO).unwrap_err();
        assert!(
            refused.to_string().contains("of what is stored"),
            "{refused}"
        );
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
