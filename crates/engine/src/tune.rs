//! Tune: another cost target for a store, open or not.
//!
//! Who has the store open is asked by a file: `TUNE` in the first tier's directory
//! says what is wanted. The engine looks for it once an epoch, takes it away, does
//! what it says and leaves the file `TUNED` with the answer. Both are swapped in
//! whole, and a request has a number of its own, so that no answer is taken for
//! another's. A request is small, is judged like any call, and asks for nothing
//! but what whoever may write to the store's directory could do anyway.
//!
//! The target is kept in the options file, so that the next opening finds it.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thermocline_model::job::Reason;

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::StoreLock;
use crate::options::{OPTIONS_FILE, Options};
use crate::events::Event;
use crate::store::{Environment, OpenHow, read_exact_at, swap_file};

/// The files by which an open store is asked, and answers.
pub(crate) const REQUEST_FILE: &str = "TUNE";
pub(crate) const ANSWER_FILE: &str = "TUNED";
/// Largest request or answer that is read, in bytes.
const FILE_BYTES_MAX: usize = 4096;
/// How often the asking side looks for an answer.
const ANSWER_WAIT: Duration = Duration::from_millis(20);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    request: String,
    /// None for no target.
    cost_target_usd_per_gb_month: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    request: String,
    /// None when it was done.
    error: Option<String>,
}

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
            ask(&environment, &directory, target, patience).map(|()| Tuned::Running)
        }
        Err(e) => Err(e),
    }
}

/// Asks the process that has the store open.
fn ask(
    environment: &Environment,
    directory: &Path,
    target: Option<f64>,
    patience: Duration,
) -> Result<()> {
    let request = Request {
        request: format!("{:016x}", environment.dice.next_u64()),
        cost_target_usd_per_gb_month: target,
    };
    let text = toml::to_string(&request).map_err(|e| Error::invalid(e.to_string()))?;
    swap_file(environment, directory, REQUEST_FILE, text.as_bytes())?;
    let clock = &environment.clock;
    let begun_us = clock.now_micros();
    loop {
        let answer = read(environment, &directory.join(ANSWER_FILE))?;
        let answer = answer.and_then(|text| toml::from_str::<Answer>(&text).ok());
        if let Some(answer) = answer.filter(|a| a.request == request.request) {
            return answer.error.map_or(Ok(()), |e| Err(Error::invalid(e)));
        }
        if clock.now_micros().saturating_sub(begun_us) >= patience.as_micros() as u64 {
            // What nobody has taken by now, nobody is to take later.
            let _ = environment
                .file_system
                .unlink(&directory.join(REQUEST_FILE));
            let what = format!("who has the store open did not answer in {patience:?}");
            return Err(Error::new(ErrorKind::Locked, what).at(directory));
        }
        clock.sleep(ANSWER_WAIT);
    }
}

/// A small text file; `None` where there is none.
fn read(environment: &Environment, path: &Path) -> Result<Option<String>> {
    let fail = |e| Error::io("reading", path, e);
    let file = match environment.file_system.open(path, OpenHow::READ) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fail(e)),
    };
    let mut bytes = vec![0; FILE_BYTES_MAX];
    let length = read_exact_at(&*file, &mut bytes, 0).map_err(fail)?;
    bytes.truncate(length);
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
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

    /// Does what a request file asks for, if there is one. What cannot be read,
    /// taken away or answered is left: asking is not what the store is for.
    pub(crate) fn take_request(&self) {
        let directory = self.directory();
        let path = directory.join(REQUEST_FILE);
        let Ok(Some(text)) = read(&self.environment, &path) else {
            return;
        };
        if self.environment.file_system.unlink(&path).is_err() {
            return;
        }
        let (request, done) = match toml::from_str::<Request>(&text) {
            Ok(asked) => {
                let done = self.set_cost_target(asked.cost_target_usd_per_gb_month);
                (asked.request, done)
            }
            Err(e) => (
                String::new(),
                Err(Error::invalid(format!("request: {}", e.message()))),
            ),
        };
        let error = done.err().map(|e| e.to_string());
        let target = self.scheduler.lock().cost.target_usd_gb_month;
        let mut reason = Reason::new("asked-by-file");
        if let Some(target) = target {
            reason = reason.with("target_usd_gb_month", target);
        }
        let now_us = self.environment.clock.now_micros();
        self.events.push(Event {
            error: error.clone(),
            ..Event::new("tune", "another cost target", reason, now_us)
        });
        if let Ok(text) = toml::to_string(&Answer { request, error }) {
            let _ = swap_file(&self.environment, &directory, ANSWER_FILE, text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let error = ask(&environment, &first, Some(0.9), Duration::from_secs(60)).unwrap_err();
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
