//! The side that asks.

use std::path::Path;
use std::time::Duration;

use super::turn::Waiting;
use super::{ANSWER_BYTES_MAX, ANSWER_FILE, Answer, Given, Head, Request, VERSION, Wanted, read};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::{Patience, StoreLock};
use crate::options::Options;
use crate::store::Environment;

/// How often it is looked for an answer.
const ANSWER_WAIT: Duration = Duration::from_millis(20);
/// How often it is looked whether the store is still open.
const LOCK_LOOK: Duration = Duration::from_millis(200);

/// What came of asking.
#[derive(Debug)]
pub(crate) enum Heard {
    /// What the process gives that has the store open.
    Given(Given),
    /// Nobody has it open, or has any longer, nor has anybody as long as the lock is held.
    Nobody(StoreLock),
}

/// Asks the process that has the store of `options` open; `None` where nobody has.
///
/// # Errors
/// Those of [`ask`].
pub(crate) fn ask_if_open(
    options: &Options,
    wanted: Wanted,
    patience: Duration,
) -> Result<Option<Given>> {
    options.check()?;
    match ask(&Environment::real(), options, wanted, patience)? {
        Heard::Given(given) => Ok(Some(given)),
        Heard::Nobody(_lock) => Ok(None),
    }
}

/// Asks the process that has the store of `options` open, once it is this one's turn. Both, the
/// turn and the answer, must come within `patience`.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] when it refuses; [`ErrorKind::Locked`] when it does
/// not answer; [`ErrorKind::Unsupported`] when it is of another version; [`ErrorKind::Io`].
pub(crate) fn ask(
    environment: &Environment,
    options: &Options,
    wanted: Wanted,
    patience: Duration,
) -> Result<Heard> {
    if let Some(lock) = lock_of_closed(environment, options)? {
        return Ok(Heard::Nobody(lock));
    }
    let directory = options.tiers[0].path();
    let waiting = Waiting::begin(environment, directory)?;
    let asked = Asked {
        environment,
        options,
        directory,
        text: Request::new(waiting.number(), wanted).written()?,
        waiting,
    };
    let heard = asked.wait(patience);
    if !matches!(heard, Ok(Heard::Given(_))) {
        // What nobody has taken by now, nobody is to take later.
        asked.waiting.withdraw();
    }
    heard
}

/// The lock of a store that nobody has open.
fn lock_of_closed(environment: &Environment, options: &Options) -> Result<Option<StoreLock>> {
    match StoreLock::take_in(options, environment, &mut Patience::none()) {
        Ok(lock) => Ok(Some(lock)),
        Err(e) if e.kind() == ErrorKind::Locked => Ok(None),
        Err(e) => Err(e),
    }
}

/// A request that is to be put into its place, or lies there.
struct Asked<'a> {
    environment: &'a Environment,
    options: &'a Options,
    directory: &'a Path,
    text: String,
    waiting: Waiting<'a>,
}

impl Asked<'_> {
    fn wait(&self, patience: Duration) -> Result<Heard> {
        let clock = &self.environment.clock;
        let begun_us = clock.now_micros();
        let mut looked_us = begun_us;
        let mut posted = false;
        let mut seen = String::new();
        loop {
            posted = posted || self.waiting.post(&self.text)?;
            if posted && let Some(given) = self.answer(&mut seen)? {
                return Ok(Heard::Given(given));
            }
            let now_us = clock.now_micros();
            if now_us.saturating_sub(looked_us) >= LOCK_LOOK.as_micros() as u64 {
                looked_us = now_us;
                if let Some(lock) = lock_of_closed(self.environment, self.options)? {
                    // It may have answered before it closed.
                    let last = self.answer(&mut seen)?;
                    return Ok(last.map_or(Heard::Nobody(lock), Heard::Given));
                }
            }
            if now_us.saturating_sub(begun_us) >= patience.as_micros() as u64 {
                let what = match posted {
                    true => "who has the store open did not answer in",
                    false => "others ask who has the store open: no turn came in",
                };
                let what = format!("{what} {patience:?}");
                return Err(Error::new(ErrorKind::Locked, what).at(self.directory));
            }
            clock.sleep(ANSWER_WAIT);
        }
    }

    /// The answer to this request, if it is there. What is another's, kept in `seen`, is read once.
    fn answer(&self, seen: &mut String) -> Result<Option<Given>> {
        let path = self.directory.join(ANSWER_FILE);
        let text = read(self.environment, &path, ANSWER_BYTES_MAX)?;
        let Some(text) = text.filter(|text| text != seen) else {
            return Ok(None);
        };
        match Head::of(&text) {
            Some(head) if head.request == self.waiting.number() => {
                given(&text, &head).map(Some).map_err(|e| match e.kind() {
                    ErrorKind::InvalidArgument => e,
                    _ => e.at(&path),
                })
            }
            Some(head) if head.request.is_empty() => Err(not_understood(&text).at(self.directory)),
            _ => {
                *seen = text;
                Ok(None)
            }
        }
    }
}

/// Of an answer to nobody in particular.
fn not_understood(text: &str) -> Error {
    let answer = toml::from_str::<toml::Table>(text).unwrap_or_default();
    let said = answer.get("error").and_then(toml::Value::as_str);
    let what = format!(
        "who has the store open does not understand requests of version {VERSION} ({})",
        said.unwrap_or("it does not say why")
    );
    Error::new(ErrorKind::Unsupported, what)
}

/// What the answer `text` gives.
fn given(text: &str, head: &Head) -> Result<Given> {
    head.check("answer")?;
    let unread = |e: toml::de::Error| {
        let what = format!("the answer cannot be read: {}", e.message());
        Error::new(ErrorKind::Unsupported, what)
    };
    let answer = toml::from_str::<Answer>(text).map_err(unread)?;
    match (answer.error, answer.given) {
        (Some(error), _) => {
            // That it is one of the argument is said again here.
            let kind = format!("{}: ", ErrorKind::InvalidArgument.name());
            Err(Error::invalid(error.strip_prefix(&kind).unwrap_or(&error)))
        }
        (None, Some(given)) => Ok(given),
        (None, None) => Err(Error::new(
            ErrorKind::Unsupported,
            "the answer says nothing",
        )),
    }
}
