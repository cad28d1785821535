//! Clients of the demo: threads that read and write with skew, check every value they
//! read, and measure how long it took.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::engine::{Db, Keyspace, Result};
use crate::latency::Latencies;
use crate::workload::{Dice, Zipf, fill, fingerprint, matches};

/// Skew of the reads. Milder than YCSB's 0.99, so that there is something to choose
/// for each size of the fast tier.
pub(crate) const SKEW: f64 = 0.8;

/// One operation in so many is a write.
const WRITE_ONE_IN: u64 = 50;

/// The dice are always the same.
const SEED: u64 = 0x7468_6572_6d6f;

/// What the clients share.
pub(crate) struct Clients {
    records: u32,
    value_bytes: usize,
    /// The record that is read most; those after it less and less.
    hottest: AtomicU64,
    over: AtomicBool,
    /// How often each record was written. A record is written by one client only.
    versions: Vec<AtomicU32>,
    measured: Mutex<Measured>,
}

/// What the clients measured since they were last asked.
pub(crate) struct Measured {
    pub(crate) reads: Latencies,
    /// Nanoseconds of all reads together.
    pub(crate) read_ns: u64,
    pub(crate) writes: u64,
    /// Reads of a value that nobody had written.
    pub(crate) wrong: u64,
}

impl Measured {
    pub(crate) fn new() -> Measured {
        Measured {
            reads: Latencies::new(),
            read_ns: 0,
            writes: 0,
            wrong: 0,
        }
    }

    pub(crate) fn add(&mut self, other: &Measured) {
        self.reads.add(&other.reads);
        self.read_ns += other.read_ns;
        self.writes += other.writes;
        self.wrong += other.wrong;
    }
}

impl Clients {
    /// Clients of a store with `records` records, all of version 0.
    pub(crate) fn new(records: u32, value_bytes: u32) -> Clients {
        Clients {
            records,
            value_bytes: value_bytes as usize,
            hottest: AtomicU64::new(0),
            over: AtomicBool::new(false),
            versions: (0..records).map(|_| AtomicU32::new(0)).collect(),
            measured: Mutex::new(Measured::new()),
        }
    }

    /// From now on `record` is read most.
    pub(crate) fn move_hot_set(&self, record: u64) {
        self.hottest.store(record, Ordering::Relaxed);
    }

    /// Ends them.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// What they measured since the last time.
    pub(crate) fn take(&self) -> Measured {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut measured, Measured::new())
    }

    /// Client number `number` of `clients`: works until they are ended.
    pub(crate) fn work(&self, db: &Db, number: u32, clients: u32) -> Result<()> {
        /// Operations between two reports.
        const STEP: u32 = 64;
        let mut dice = Dice::new(SEED ^ u64::from(number));
        let zipf = Zipf::new(u64::from(self.records), SKEW);
        let mut value = vec![0; self.value_bytes];
        while !self.over.load(Ordering::Relaxed) {
            let mut mine = Measured::new();
            for _ in 0..STEP {
                let place = zipf.draw(&mut dice) + self.hottest.load(Ordering::Relaxed);
                let record = (place % u64::from(self.records)) as u32;
                if dice.below(WRITE_ONE_IN) == 0 {
                    // The next record that is this client's to write.
                    let own = record - record % clients + number;
                    if own < self.records {
                        self.write(db, own, &mut value)?;
                        mine.writes += 1;
                    }
                    continue;
                }
                self.read(db, record, &mut mine)?;
            }
            let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
            measured.add(&mine);
        }
        Ok(())
    }

    fn write(&self, db: &Keyspace, record: u32, value: &mut [u8]) -> Result<()> {
        let key = key(record);
        let version = &self.versions[record as usize];
        let next = version.load(Ordering::Acquire).wrapping_add(1);
        fill(value, fingerprint(&key), next);
        db.put(&key, value)?;
        version.store(next, Ordering::Release);
        Ok(())
    }

    fn read(&self, db: &Keyspace, record: u32, mine: &mut Measured) -> Result<()> {
        let key = key(record);
        let version = &self.versions[record as usize];
        let before = version.load(Ordering::Acquire);
        let began = Instant::now();
        let found = db.get(&key)?;
        let took = began.elapsed();
        mine.reads.record(took);
        mine.read_ns += took.as_nanos() as u64;
        // Its writer may have been at it meanwhile, and one write ahead of its note.
        let after = version.load(Ordering::Acquire).wrapping_add(1);
        let is_one_of_these = found.is_some_and(|found| {
            found.len() == self.value_bytes
                && (before..=after).any(|v| matches(&found, fingerprint(&key), v))
        });
        mine.wrong += u64::from(!is_one_of_these);
        Ok(())
    }
}

/// The key of record number `record`.
pub(crate) fn key(record: u32) -> Vec<u8> {
    format!("user{record:012}").into_bytes()
}
