//! What a process that has a store open can be asked by another.
//!
//! It is asked by a file: `TUNE` in the first tier's directory says what is wanted.
//! The engine looks for it once an epoch, takes it away, does what it says and leaves
//! the file `TUNED` with the answer. Both are swapped in whole, and a request has a
//! number of its own, so that no answer is taken for another's. A request is bounded, is
//! judged like any call, and asks for nothing but what whoever may write to the
//! store's directory could do anyway. Both say of which version they are, so that processes of
//! two versions refuse each other and misread nothing. Bytes: `docs/formats/control.md`.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thermocline_model::forecast::Forecast;

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::explain::{Explanation, RangeExplanation};
use crate::lock::StoreLock;
use crate::options::Options;
use crate::pulse::Pulse;
use crate::stats::{Stats, TableInfo};
use crate::store::{Environment, OpenHow, read_exact_at, swap_file};
use crate::what_if::WhatIf;

/// The files by which an open store is asked, and answers.
pub(crate) const REQUEST_FILE: &str = "TUNE";
pub(crate) const ANSWER_FILE: &str = "TUNED";
/// Raised with every change of what requests and answers may say. Those of the first have no number.
const VERSION: u32 = 2;
/// Largest request and largest answer, in bytes: two keys as text, and all of their tables.
const REQUEST_BYTES_MAX: usize = 1 << 20;
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// How often the asking side looks for an answer.
const ANSWER_WAIT: Duration = Duration::from_millis(20);

/// What is wanted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Wanted {
    /// Another cost target; none for no target.
    Tune {
        cost_target_usd_per_gb_month: Option<f64>,
    },
    /// What would happen.
    Forecast(WhatIf),
    /// How it goes.
    Pulse {},
    /// Its statistics.
    Stats {},
    /// All of its tables.
    Tables {},
    /// Where a key is found, and why there.
    Explain { keyspace: String, key: Vec<u8> },
    /// The same of an interval.
    ExplainRange {
        keyspace: String,
        start: Option<Vec<u8>>,
        end: Option<Vec<u8>>,
    },
}

/// What comes back when it was done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Given {
    Done {},
    Forecast(Box<Forecast>),
    Pulse(Box<Pulse>),
    Stats(Box<Stats>),
    Tables(Vec<TableInfo>),
    Explanation(Box<Explanation>),
    RangeExplanation(Box<RangeExplanation>),
}

/// What every request and every answer begins with, whatever its version.
struct Head {
    /// Whose it is; empty in an answer to what had no number that could be read.
    request: String,
    /// None if it is no number.
    version: Option<i64>,
}

impl Head {
    /// Of a text; `None` if that is neither a request nor an answer.
    fn of(text: &str) -> Option<Head> {
        let table = toml::from_str::<toml::Table>(text).ok()?;
        let version = table.get("version");
        Some(Head {
            request: table.get("request")?.as_str()?.to_string(),
            version: version.map_or(Some(1), toml::Value::as_integer),
        })
    }

    /// Refuses `what` if it is of another version.
    fn check(&self, what: &str) -> Result<()> {
        if self.version == Some(i64::from(VERSION)) {
            return Ok(());
        }
        let what = format!("{what} of another version of Thermocline");
        let found = self.version.map_or("none".to_string(), |v| v.to_string());
        Err(Error::new(ErrorKind::Unsupported, what).expected(VERSION, found))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    request: String,
    version: u32,
    wanted: Wanted,
}

impl Request {
    /// What `text` asks for.
    fn read(text: &str, head: Option<&Head>) -> Result<Wanted> {
        if let Some(head) = head {
            head.check("request")?;
        }
        let request = toml::from_str::<Request>(text);
        let error = |e: toml::de::Error| Error::invalid(format!("request: {}", e.message()));
        Ok(request.map_err(error)?.wanted)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    request: String,
    version: u32,
    /// None when it was done.
    error: Option<String>,
    given: Option<Given>,
}

impl Answer {
    fn of(request: String, given: Result<Given>) -> Answer {
        Answer {
            request,
            version: VERSION,
            error: given.as_ref().err().map(ToString::to_string),
            given: given.ok(),
        }
    }

    fn written(&self) -> Result<String> {
        let text = toml::to_string(self);
        let text = text.map_err(|e| Error::invalid(format!("answer: {e}")))?;
        match text.len() <= ANSWER_BYTES_MAX {
            true => Ok(text),
            false => Err(Error::invalid("answer in bytes").expected(
                format!("at most {ANSWER_BYTES_MAX}; ask for less"),
                text.len(),
            )),
        }
    }
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
    let environment = Environment::real();
    options.check()?;
    match StoreLock::take_in(options, &environment) {
        Ok(_lock) => Ok(None),
        Err(e) if e.kind() == ErrorKind::Locked => {
            let directory = options.tiers[0].path();
            ask(&environment, directory, wanted, patience).map(Some)
        }
        Err(e) => Err(e),
    }
}

/// Asks the process that has the store in `directory` open.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] when it refuses; [`ErrorKind::Locked`] when it does
/// not answer; [`ErrorKind::Unsupported`] when it is of another version; [`ErrorKind::Io`].
pub(crate) fn ask(
    environment: &Environment,
    directory: &Path,
    wanted: Wanted,
    patience: Duration,
) -> Result<Given> {
    let request = Request {
        request: format!("{:016x}", environment.dice.next_u64()),
        version: VERSION,
        wanted,
    };
    let text = toml::to_string(&request).map_err(|e| Error::invalid(e.to_string()))?;
    if text.len() > REQUEST_BYTES_MAX {
        let expected = format!("at most {REQUEST_BYTES_MAX}");
        return Err(Error::invalid("request in bytes").expected(expected, text.len()));
    }
    let path = directory.join(ANSWER_FILE);
    let answer = || read(environment, &path, ANSWER_BYTES_MAX);
    // The first version answers what it cannot read without a number: such an answer, found later,
    // is then a new one.
    let before = answer()?.and_then(|text| Head::of(&text));
    if before.is_some_and(|head| head.request.is_empty()) {
        let _ = environment.file_system.unlink(&path);
    }
    swap_file(environment, directory, REQUEST_FILE, text.as_bytes())?;
    let clock = &environment.clock;
    let begun_us = clock.now_micros();
    let mut seen = String::new();
    loop {
        // What is another's is read once.
        if let Some(text) = answer()?.filter(|text| *text != seen) {
            match Head::of(&text) {
                Some(head) if head.request == request.request => {
                    return given(&text, &head).map_err(|e| match e.kind() {
                        ErrorKind::InvalidArgument => e,
                        _ => e.at(&path),
                    });
                }
                Some(head) if head.request.is_empty() => {
                    return Err(not_understood(&text).at(directory));
                }
                _ => seen = text,
            }
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

/// A small text file; `None` where there is none.
fn read(environment: &Environment, path: &Path, bytes_max: usize) -> Result<Option<String>> {
    let fail = |e| Error::io("reading", path, e);
    let file = match environment.file_system.open(path, OpenHow::READ) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fail(e)),
    };
    let size = file.size_bytes().map_err(fail)?;
    let mut bytes = vec![0; bytes_max.min(usize::try_from(size).unwrap_or(bytes_max))];
    let length = read_exact_at(&*file, &mut bytes, 0).map_err(fail)?;
    bytes.truncate(length);
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

impl Engine {
    /// Does what a request file asks for, if there is one. What cannot be read,
    /// taken away or answered is left: asking is not what the store is for.
    pub(crate) fn take_request(&self) {
        let directory = self.directory();
        let path = directory.join(REQUEST_FILE);
        let Ok(Some(text)) = read(&self.environment, &path, REQUEST_BYTES_MAX) else {
            return;
        };
        if self.environment.file_system.unlink(&path).is_err() {
            return;
        }
        let head = Head::of(&text);
        let wanted = Request::read(&text, head.as_ref());
        let given = wanted.and_then(|wanted| self.answer(wanted));
        let request = head.map_or_else(String::new, |head| head.request);
        let text = Answer::of(request.clone(), given).written();
        // What cannot be said is told too: nobody is to wait for it.
        let text = text.or_else(|error| Answer::of(request, Err(error)).written());
        if let Ok(text) = text {
            let _ = swap_file(&self.environment, &directory, ANSWER_FILE, text.as_bytes());
        }
    }

    fn answer(&self, wanted: Wanted) -> Result<Given> {
        match wanted {
            Wanted::Tune {
                cost_target_usd_per_gb_month: target,
            } => {
                self.set_cost_target(target, "asked-by-file")?;
                Ok(Given::Done {})
            }
            Wanted::Forecast(what_if) => {
                let forecast = self.forecast(&what_if)?;
                Ok(Given::Forecast(Box::new(forecast)))
            }
            Wanted::Pulse {} => Ok(Given::Pulse(Box::new(Pulse::of(self)))),
            Wanted::Stats {} => {
                let told = crate::report::stats(self).told()?;
                Ok(Given::Stats(Box::new(told)))
            }
            Wanted::Tables {} => self.tell_of_tables().map(Given::Tables),
            Wanted::Explain { keyspace, key } => {
                let told = self.tell_of_key(&keyspace, &key)?;
                Ok(Given::Explanation(Box::new(told)))
            }
            Wanted::ExplainRange {
                keyspace,
                start,
                end,
            } => {
                let told = self.tell_of_range(&keyspace, start.as_deref(), end.as_deref())?;
                Ok(Given::RangeExplanation(Box::new(told)))
            }
        }
    }
}
