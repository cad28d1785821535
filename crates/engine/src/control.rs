//! What a process that has a store open can be asked by another.
//!
//! It is asked by a file: `TUNE` in the first tier's directory says what is wanted. The engine
//! looks for it once an epoch, takes it away, does what it says and leaves the file `TUNED` with
//! the answer. Both are swapped in whole, and a request has a number of its own, so that no answer
//! is taken for another's. Who asks waits for its turn (`control/turn.rs`), and the engine takes no
//! further request before its answer was read. A request is bounded, is judged like any call, and
//! asks for nothing but what whoever may write to the store's directory could do anyway. Both say
//! of which version they are, so that processes of two versions refuse each other and misread
//! nothing. Bytes: `docs/formats/control.md`.

mod asking;
mod turn;

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thermocline_model::forecast::Forecast;

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::explain::{Explanation, RangeExplanation};
use crate::pulse::Pulse;
use crate::stats::{Stats, TableInfo};
use crate::store::{Environment, OpenHow, read_exact_at, swap_file};
use crate::what_if::WhatIf;

pub(crate) use asking::{Heard, ask, ask_if_open};
pub(crate) use turn::sweep;

/// The files by which an open store is asked, and answers.
pub(crate) const REQUEST_FILE: &str = "TUNE";
pub(crate) const ANSWER_FILE: &str = "TUNED";
/// A request that the engine has taken and not yet read.
const TAKEN_FILE: &str = "TUNE.taken";
/// Raised with every change of what requests and answers may say. Those of the first have no
/// number.
const VERSION: u32 = 2;
/// Largest request and largest answer, in bytes: two keys as text, and all of their tables.
const REQUEST_BYTES_MAX: usize = 1 << 20;
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// How long an answer is kept for who waits for it, while others have something to ask.
const ANSWER_KEPT_MICROS: u64 = 2_000_000;

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
    fn new(number: &str, wanted: Wanted) -> Request {
        Request {
            request: number.to_string(),
            version: VERSION,
            wanted,
        }
    }

    fn written(&self) -> Result<String> {
        let text = toml::to_string(self).map_err(|e| Error::invalid(e.to_string()))?;
        match text.len() <= REQUEST_BYTES_MAX {
            true => Ok(text),
            false => {
                let expected = format!("at most {REQUEST_BYTES_MAX}");
                Err(Error::invalid("request in bytes").expected(expected, text.len()))
            }
        }
    }

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
        check_answer(text.len())?;
        Ok(text)
    }
}

/// Refuses an answer of `bytes`, or of more, if it is too large.
pub(crate) fn check_answer(bytes: usize) -> Result<()> {
    match bytes <= ANSWER_BYTES_MAX {
        true => Ok(()),
        false => {
            let expected = format!("at most {ANSWER_BYTES_MAX}; ask for less");
            Err(Error::invalid("answer in bytes").expected(expected, bytes))
        }
    }
}

/// Whom the engine has answered last.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    number: String,
    /// Until when the answer is kept, in microseconds since the Unix epoch.
    kept_us: u64,
    /// Whether it was left to somebody else's turn when it last looked.
    gave_way: bool,
}

impl Answered {
    /// Whether the answer is kept for who waits for it.
    fn is_kept(&self, environment: &Environment, directory: &Path) -> bool {
        environment.clock.now_micros() < self.kept_us
            && turn::presence(directory, &self.number)
                .is_some_and(|path| matches!(environment.file_system.metadata(&path), Ok(Some(_))))
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

/// Takes the request that lies in `directory`, and away. It is given another name before it is
/// read, so that no request that somebody puts there meanwhile goes with it.
fn take(environment: &Environment, directory: &Path) -> Option<String> {
    let file_system = &*environment.file_system;
    let (path, taken) = (directory.join(REQUEST_FILE), directory.join(TAKEN_FILE));
    file_system.rename(&path, &taken).ok()?;
    let text = read(environment, &taken, REQUEST_BYTES_MAX);
    let _ = file_system.unlink(&taken);
    text.ok().flatten()
}

impl Engine {
    /// Does what a request file asks for, if there is one. What cannot be read,
    /// taken away or answered is left: asking is not what the store is for.
    pub(crate) fn take_request(&self) {
        let Some(mut answered) = self.answered.try_lock_for(Duration::ZERO) else {
            // Another thread is about it.
            return;
        };
        let directory = self.directory();
        if answered.is_kept(&self.environment, &directory) {
            return;
        }
        let path = directory.join(REQUEST_FILE);
        if self
            .environment
            .file_system
            .open(&path, OpenHow::READ)
            .is_err()
        {
            // None, or what is no file and so no request.
            return;
        }
        let turn = turn::turn(&self.environment, &directory).ok().flatten();
        if turn.is_none() && !answered.gave_way {
            // Somebody puts a request there just now; who does so for longer has been stopped.
            answered.gave_way = true;
            return;
        }
        answered.gave_way = false;
        let Some(text) = take(&self.environment, &directory) else {
            return;
        };
        let head = Head::of(&text);
        let number = head.as_ref().map_or("", |head| &head.request);
        if turn::bury(&self.environment, &directory, number) {
            // Who asked was killed.
            return;
        }
        drop(turn);
        let wanted = Request::read(&text, head.as_ref());
        let given = wanted.and_then(|wanted| self.answer(wanted));
        let request = head.map_or_else(String::new, |head| head.request);
        let text = Answer::of(request.clone(), given).written();
        // What cannot be said is told too: nobody is to wait for it.
        let text = text.or_else(|error| Answer::of(request.clone(), Err(error)).written());
        if let Ok(text) = text {
            let _ = swap_file(&self.environment, &directory, ANSWER_FILE, text.as_bytes());
        }
        *answered = Answered {
            number: request,
            kept_us: self.environment.clock.now_micros() + ANSWER_KEPT_MICROS,
            gave_way: false,
        };
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

#[cfg(test)]
mod tests;
