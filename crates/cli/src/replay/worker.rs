//! Workers: each repeats the accesses to its share of the keys.

use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use super::survey::{Access, Survey};
use crate::engine::{self, Db, Keyspace};
use crate::exit::Failure;
use crate::input::trace::Operation;
use crate::latency::Latencies;
use crate::text::escape;
use crate::workload::{fill, fingerprint, matches};

/// What a worker is told.
pub(crate) enum Order {
    /// Do these.
    Accesses(Vec<Access>),
    /// Send what was measured since the last report.
    Report(Sender<Measured>),
}

/// What a worker measured.
pub(crate) struct Measured {
    pub(crate) reads: Latencies,
    pub(crate) writes: Latencies,
    /// Reads that found a value.
    pub(crate) found: u64,
    /// Reads that gave another value than the one last written.
    pub(crate) wrong: u64,
    /// The first of them, in words.
    pub(crate) first_wrong: Option<String>,
}

impl Measured {
    /// Nothing yet.
    pub(crate) fn new() -> Measured {
        Measured {
            reads: Latencies::new(),
            writes: Latencies::new(),
            found: 0,
            wrong: 0,
            first_wrong: None,
        }
    }

    /// Adds what `other` measured.
    pub(crate) fn add(&mut self, other: Measured) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.found += other.found;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
    }
}

/// What a key's value must be.
#[derive(Clone, Copy)]
struct Expected {
    version: u32,
    /// `None` after a delete.
    value_bytes: Option<u32>,
    /// The size to write again after a delete.
    last_bytes: u32,
}

/// The accesses to every key whose number is `share` modulo `shares`.
pub(crate) struct Worker<'a> {
    db: &'a Db,
    space: Keyspace,
    survey: &'a Survey,
    shares: u32,
    expected: Vec<Expected>,
    buffer: Vec<u8>,
    measured: Measured,
}

impl<'a> Worker<'a> {
    /// Worker number `share` of `shares`.
    pub(crate) fn new(
        db: &'a Db,
        survey: &'a Survey,
        share: u32,
        shares: u32,
    ) -> Result<Worker<'a>, Failure> {
        let expected = survey
            .sizes
            .iter()
            .skip(share as usize)
            .step_by(shares as usize)
            .map(|&size| Expected {
                version: 0,
                value_bytes: Some(size),
                last_bytes: size,
            })
            .collect();
        Ok(Worker {
            db,
            space: db.keyspace(engine::DEFAULT_KEYSPACE)?,
            survey,
            shares,
            expected,
            buffer: Vec::new(),
            measured: Measured::new(),
        })
    }

    /// Follows `orders` until nobody can give any.
    pub(crate) fn run(mut self, orders: &Receiver<Order>) -> Result<(), Failure> {
        for order in orders {
            match order {
                Order::Accesses(accesses) => {
                    for access in accesses {
                        self.access(access)?;
                    }
                }
                Order::Report(reply) => {
                    let measured = std::mem::replace(&mut self.measured, Measured::new());
                    // Nobody waits any more where another worker has failed.
                    let _ = reply.send(measured);
                }
            }
        }
        Ok(())
    }

    fn access(&mut self, access: Access) -> Result<(), Failure> {
        match access.operation {
            Operation::Read => self.read(access),
            Operation::Write => self.write(access),
            Operation::Update => {
                self.read(access)?;
                self.write(access)
            }
            Operation::Delete => {
                let key = &*self.survey.keys[access.key as usize];
                let began = Instant::now();
                self.space.delete(key)?;
                self.measured.writes.record(began.elapsed());
                self.expected[(access.key / self.shares) as usize].value_bytes = None;
                Ok(())
            }
        }
    }

    fn read(&mut self, access: Access) -> Result<(), Failure> {
        let key = &*self.survey.keys[access.key as usize];
        let began = Instant::now();
        let value = self.db.get(key)?;
        self.measured.reads.record(began.elapsed());
        let expected = self.expected[(access.key / self.shares) as usize];
        self.measured.found += u64::from(value.is_some());
        let right = match (&value, expected.value_bytes) {
            (None, None) => true,
            (Some(value), Some(bytes)) => {
                value.len() == bytes as usize && matches(value, fingerprint(key), expected.version)
            }
            _ => false,
        };
        if !right {
            self.measured.wrong += 1;
            let size = |bytes: Option<usize>| match bytes {
                Some(bytes) => format!("{bytes} bytes"),
                None => "no value".into(),
            };
            self.measured.first_wrong.get_or_insert_with(|| {
                format!(
                    "key {}: expected {} of version {}, found {}",
                    escape(key),
                    size(expected.value_bytes.map(|n| n as usize)),
                    expected.version,
                    size(value.map(|v| v.len()))
                )
            });
        }
        Ok(())
    }

    fn write(&mut self, access: Access) -> Result<(), Failure> {
        let key = &*self.survey.keys[access.key as usize];
        let expected = &mut self.expected[(access.key / self.shares) as usize];
        if access.value_bytes > 0 {
            expected.last_bytes = access.value_bytes;
        }
        expected.version = expected.version.wrapping_add(1);
        expected.value_bytes = Some(expected.last_bytes);
        self.buffer.resize(expected.last_bytes as usize, 0);
        fill(&mut self.buffer, fingerprint(key), expected.version);
        let began = Instant::now();
        self.space.put(key, &self.buffer)?;
        self.measured.writes.record(began.elapsed());
        Ok(())
    }
}
