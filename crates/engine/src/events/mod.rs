//! Events: what the background did, with its reasons in numbers.
//!
//! Every job that ends becomes an [`Event`], and so does whatever else an operator
//! should know of. The last ones are kept in memory ([`Db::events`](crate::Db::events)),
//! and all go into a record on the first tier (`record.rs`), so that they outlive the
//! process and so that another one can follow them ([`EventReader`]).
//!
//! Nothing depends on an event. What cannot be written is tried again and then given
//! up, and no job learns of it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use thermocline_model::job::Reason;

mod follow;
mod frame;
mod record;

pub use follow::EventReader;
pub(crate) use frame::MAGIC;
pub(crate) use record::{EVENTS_FILE, OLD_EVENTS_FILE, Record};

use crate::engine::Engine;
use crate::options::Options;
use crate::stats::human_bytes;
use crate::store::Environment;

/// Events kept in memory.
const EVENTS_MAX: usize = 4096;

/// Of the tables that a job read or made, so many are named in its event.
pub(crate) const TABLES_MAX: usize = 16;

/// One background job that has ended, or something else worth knowing.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// db.flush()?;
/// let event = &db.events(10)[0];
/// assert!(event.job == "flush" && event.error.is_none() && event.bytes_out > 0);
/// assert_eq!(event.tables_out[0].table, db.tables()[0].id);
/// assert!(event.to_string().contains("because")); // It says why it ran.
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Ascending, over restarts too as long as the record is not lost.
    pub number: u64,
    /// When it began, in microseconds since the Unix epoch.
    pub started_us: u64,
    /// How long it took, in microseconds.
    pub took_us: u64,
    /// `flush`, `merge` or `relocate`; `load` for a bulk load, `heat` and `tune` for
    /// what is noted and is no job.
    pub job: Cow<'static, str>,
    /// In which keyspace.
    pub keyspace: String,
    /// What it did, in words: inputs, outputs, places.
    pub what: String,
    /// Why it was planned: the rule, what it compared, and what the job was
    /// predicted to cost and to gain.
    pub reason: Reason,
    /// The tables that it read; the first 16 of them.
    pub tables_in: Vec<u64>,
    /// The tables that it made or moved; the first 16 of them.
    pub tables_out: Vec<PlacedTable>,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// The error, if it failed.
    pub error: Option<String>,
}

/// Where a job put a table.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// db.flush()?;
/// let placed = &db.events(1)[0].tables_out[0];
/// assert_eq!((placed.tier, &*placed.rule), (0, "only-tier"));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlacedTable {
    /// Its number.
    pub table: u64,
    /// The tier of its data, counted from 0.
    pub tier: u32,
    /// Its data bytes.
    pub bytes: u64,
    /// The rule that chose the tier.
    pub rule: Cow<'static, str>,
}

impl Event {
    /// Something that began and ended at `started_us`.
    pub(crate) fn new(
        job: &'static str,
        what: impl Into<String>,
        reason: Reason,
        started_us: u64,
    ) -> Event {
        Event {
            number: 0,
            started_us,
            took_us: 0,
            job: Cow::Borrowed(job),
            keyspace: String::new(),
            what: what.into(),
            reason,
            tables_in: Vec::new(),
            tables_out: Vec::new(),
            bytes_in: 0,
            bytes_out: 0,
            error: None,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.job)?;
        if !self.keyspace.is_empty() {
            write!(f, " {}", self.keyspace)?;
        }
        write!(f, ": {} because {}", self.what, self.reason)?;
        match &self.error {
            Some(error) => write!(f, ", failed: {error}"),
            None if self.bytes_in + self.bytes_out == 0 => Ok(()),
            None => write!(
                f,
                ", {} in, {} out, {} us",
                human_bytes(self.bytes_in),
                human_bytes(self.bytes_out),
                self.took_us
            ),
        }
    }
}

impl Engine {
    /// The last `count` events, oldest first.
    pub(crate) fn events(&self, count: usize) -> Vec<Event> {
        let mut last = self.events.last(count);
        if last.len() < count && last.len() < EVENTS_MAX {
            let directory = self.options.event_directory();
            let mut record = EventReader::in_directory(&self.environment, directory);
            // Without the record there are those of this opening.
            let mut before = record.read().unwrap_or_default();
            let first = last.first().map_or(u64::MAX, |e| e.number);
            before.retain(|e| e.number < first);
            let missing = count - last.len();
            before.drain(..before.len().saturating_sub(missing));
            last.splice(..0, before);
        }
        last
    }
}

/// Adds an event to the record of a store that nobody has open.
pub(crate) fn note(environment: &Environment, options: &Options, mut event: Event) {
    let (record, directory) = (Record::default(), options.event_directory());
    record.begin(environment, directory);
    event.reason.numbers.retain(|(_, n)| n.is_finite());
    record.add(&mut event);
    record.write(environment, directory);
}

/// The events in a file of the record, and how many stretches of it are none.
pub(crate) fn read(bytes: &[u8]) -> (Vec<Event>, usize) {
    let found = frame::find(bytes);
    let torn = usize::from(found.done < bytes.len());
    (found.events, found.damaged + torn)
}

/// The last events, and the record that they go into.
#[derive(Debug, Default)]
pub(crate) struct Events {
    last: Mutex<VecDeque<Event>>,
    pub(crate) record: Record,
}

impl Events {
    /// Takes note of `event`; numbers it. It reaches the record when that is next
    /// written.
    pub(crate) fn push(&self, mut event: Event) {
        event.tables_in.truncate(TABLES_MAX);
        event.tables_out.truncate(TABLES_MAX);
        // The same everywhere, whoever shows it.
        event.reason.numbers.retain(|(_, n)| n.is_finite());
        self.record.add(&mut event);
        let mut last = self.last.lock();
        if last.len() == EVENTS_MAX {
            last.pop_front();
        }
        last.push_back(event);
    }

    /// The last `count` of this opening, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<Event> {
        let last = self.last.lock();
        let skipped = last.len().saturating_sub(count);
        last.iter().skip(skipped).cloned().collect()
    }
}
