//! Events: what the background did, with its reasons in numbers.
//!
//! Every job that ends becomes an [`Event`], and so does whatever else an operator
//! should know of. The last ones are kept in memory ([`Db::events`](crate::Db::events)),
//! and all go into a record on the first tier (`record.rs`), so that they outlive the
//! process and so that another one can follow them ([`EventReader`]).
//!
//! Nothing depends on an event but which tables cool down over a restart. What cannot be written is
//! tried again and then given up, and no job learns of it.

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

/// Events kept in memory, and tables that all of them may name: beyond either the oldest go.
const EVENTS_MAX: usize = 4096;
const NAMED_MAX: usize = 16 * EVENTS_MAX;

/// Of the tables that a job read or made, so many are named in its event: as many as the record's
/// format has room for.
pub(crate) const TABLES_MAX: usize = frame::LIST_MAX;

/// What [`Event::job`] can be.
///
/// ```
/// assert!(thermocline::EVENT_JOBS.contains(&"relocate"));
/// ```
pub const EVENT_JOBS: [&str; 8] = [
    "flush", "fold", "merge", "relocate", "recut", "load", "tune", "heat",
];

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
    /// `flush`, `fold`, `merge`, `relocate` or `recut`; `load` for a bulk load, `heat` and `tune`
    /// for what is noted and is no job. [`EVENT_JOBS`] has them all.
    pub job: Cow<'static, str>,
    /// In which keyspace.
    pub keyspace: String,
    /// What it did, in words: inputs, outputs, places.
    pub what: String,
    /// Why it was planned: the rule and what it compared; and what the job was predicted to cost
    /// and to gain, which each has.
    pub reason: Reason,
    /// The tables that it read; the first 256 of them.
    pub tables_in: Vec<u64>,
    /// The tables that it made or moved; the first 256 of them.
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

impl Event {
    /// How many tables it names.
    fn named(&self) -> usize {
        self.tables_in.len() + self.tables_out.len()
    }

    /// The same, of its tables only `table`: what is said of one is not to name all others.
    pub(crate) fn of_table(&self, table: u64) -> Event {
        let placed = self.tables_out.iter().filter(|p| p.table == table);
        // Not cloned and cut: of many tables that it made, each would copy all.
        Event {
            number: self.number,
            started_us: self.started_us,
            took_us: self.took_us,
            job: self.job.clone(),
            keyspace: self.keyspace.clone(),
            what: self.what.clone(),
            reason: self.reason.clone(),
            tables_in: Vec::new(),
            tables_out: placed.cloned().collect(),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            error: self.error.clone(),
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
            // What is noted, and is no job.
            None if self.reason.predicted.is_none() && self.bytes_in + self.bytes_out == 0 => {
                Ok(())
            }
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
    keep_finite(&mut event.reason);
    record.add(&mut event);
    record.write(environment, directory);
}

/// Leaves out what the record has no numbers for.
fn keep_finite(reason: &mut Reason) {
    reason.numbers.retain(|(_, n)| n.is_finite());
    for benefit in reason.predicted.iter_mut().flat_map(|p| &mut p.benefits) {
        benefit.number = benefit.number.filter(|n| n.is_finite());
    }
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
    last: Mutex<Last>,
    pub(crate) record: Record,
}

/// The last events, and how many tables they name.
#[derive(Debug, Default)]
struct Last {
    events: VecDeque<Event>,
    named: usize,
}

impl Events {
    /// Takes note of `event`; numbers it. It reaches the record when that is next
    /// written.
    pub(crate) fn push(&self, mut event: Event) {
        event.tables_in.truncate(TABLES_MAX);
        event.tables_out.truncate(TABLES_MAX);
        // The same everywhere, whoever shows it.
        keep_finite(&mut event.reason);
        self.record.add(&mut event);
        let last = &mut *self.last.lock();
        last.named += event.named();
        last.events.push_back(event);
        while last.events.len() > EVENTS_MAX || last.named > NAMED_MAX {
            let Some(oldest) = last.events.pop_front() else {
                break;
            };
            last.named -= oldest.named();
        }
    }

    /// The last `count` of this opening, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<Event> {
        let last = self.last.lock();
        let skipped = last.events.len().saturating_sub(count);
        last.events.iter().skip(skipped).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large(tables: u64) -> Event {
        let placed = |table| PlacedTable {
            table,
            tier: 0,
            bytes: 1,
            rule: Cow::Borrowed("only-tier"),
        };
        Event {
            tables_in: (0..tables).collect(),
            tables_out: (tables..2 * tables).map(placed).collect(),
            ..Event::new("merge", "", Reason::new("level-full"), 1)
        }
    }

    // Of a job's outputs the first 16 were named, so that nobody knew what had put the others
    // there.
    #[test]
    fn an_event_names_256_tables_and_all_in_memory_no_more_than_before() {
        let events = Events::default();
        for _ in 0..EVENTS_MAX {
            events.push(large(300));
        }
        let kept = events.last(usize::MAX);
        assert!(kept.iter().all(|e| e.tables_out.len() == TABLES_MAX));
        assert!(kept.iter().map(Event::named).sum::<usize>() <= NAMED_MAX);
        assert_eq!(kept.len(), NAMED_MAX / (2 * TABLES_MAX));
        for _ in 0..EVENTS_MAX {
            events.push(large(1));
        }
        assert_eq!(events.last(usize::MAX).len(), EVENTS_MAX);
        // Whole, it fits a frame of the record.
        let text = "x".repeat(1 << 10);
        let mut event = large(TABLES_MAX as u64);
        event.tables_out.iter_mut().for_each(|placed| {
            placed.table = u64::MAX;
            placed.bytes = u64::MAX;
        });
        event.what.clone_from(&text);
        assert!(frame::seal(&frame::encode(&event)).is_some());
    }
}
