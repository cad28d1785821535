//! Every call fails once (I5): a fixed workload in which the n-th call meets an
//! I/O error, a full device or a failed sync, for every n. The store answers
//! with a named error, loses nothing that it acknowledged, goes on by itself
//! once a full device has room again, and after a failed persist takes no more
//! writes until it is opened anew.

use std::collections::BTreeMap;
use std::time::Duration;

use thermocline::{
    Db, Durability, Error, ErrorKind, KeyspaceOptions, Options, Tier, WriteBatch, WriteOptions,
};

use crate::disk::{Disk, Down, Fault};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options::new()
        .tier(
            Tier::new("fast", "/fast")
                .block_bytes(512)
                .capacity_bytes(20_000),
        )
        .tier(Tier::new("slow", "/slow").block_bytes(512))
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(4 << 10)
        .first_level_bytes(8 << 10)
        .level_ratio(2)
        .newest_runs_merge(2)
        .log_segment_bytes(16 << 10)
        .log_bytes_max(32 << 10)
        .reserve_bytes(0)
        .background_threads(0)
        .cuts(vec![b"k20".to_vec()])
}

/// What was done: the state of every key that was acknowledged, and the states
/// that keys may have because a write of them failed.
#[derive(Default)]
struct Known {
    sure: Model,
    maybe: BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>,
    /// What the last write that was acknowledged as durable left, and what was
    /// tried since.
    durable: Model,
    since: BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>,
    errors: Vec<Error>,
}

impl Known {
    fn write(&mut self, db: &Db, puts: &[(Vec<u8>, Option<Vec<u8>>)], durability: Durability) {
        let mut batch = WriteBatch::new();
        for (key, value) in puts {
            self.since
                .entry(key.clone())
                .or_default()
                .push(value.clone());
            match value {
                Some(value) => batch.put(key, value).unwrap(),
                None => batch.delete(key).unwrap(),
            }
        }
        match db.write_with(&batch, WriteOptions::default().durability(durability)) {
            Ok(()) => {
                for (key, value) in puts {
                    self.maybe.remove(key);
                    match value {
                        Some(value) => self.sure.insert(key.clone(), value.clone()),
                        None => self.sure.remove(key),
                    };
                }
                if durability == Durability::Device && self.maybe.is_empty() {
                    self.durable.clone_from(&self.sure);
                    self.since.clear();
                }
            }
            Err(e) => {
                for (key, value) in puts {
                    self.maybe
                        .entry(key.clone())
                        .or_default()
                        .push(value.clone());
                }
                self.errors.push(e);
            }
        }
    }

    fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|e| self.errors.push(e)).ok()
    }

    /// After a failed persist and a reopening.
    fn check_durable(&self, db: &Db, context: &str) {
        let found: Model = db.iter().unwrap().forward().map(Result::unwrap).collect();
        for (key, value) in &self.durable {
            let found = found.get(key);
            let since = self
                .since
                .get(key)
                .is_some_and(|m| m.iter().any(|v| v.as_ref() == found));
            assert!(
                found == Some(value) || since,
                "{context}: {} was durable; errors {:?}",
                key.escape_ascii(),
                self.errors
            );
        }
    }

    fn check(&self, db: &Db, context: &str) {
        let found: Model = db.iter().unwrap().forward().map(Result::unwrap).collect();
        for key in found
            .keys()
            .chain(self.sure.keys())
            .chain(self.maybe.keys())
        {
            let value = found.get(key);
            let allowed = value == self.sure.get(key)
                || self
                    .maybe
                    .get(key)
                    .is_some_and(|m| m.iter().any(|v| v.as_ref() == value));
            assert!(
                allowed,
                "{context}: {} has {:?} bytes; errors {:?}",
                key.escape_ascii(),
                value.map(Vec::len),
                self.errors
            );
        }
    }
}

/// Everything that changes a store, once and again.
fn work(db: &Db, known: &mut Known) {
    for round in 0..3u8 {
        for i in 0..12u8 {
            let key = |n: u8| format!("k{:02}", (n * 7 + round) % 40).into_bytes();
            let puts = vec![
                (key(i), Some(vec![round * 16 + i; 700])),
                (key(i + 1), (i % 4 > 0).then(|| vec![i; 90])),
            ];
            let durability = if i % 5 == 0 {
                Durability::Device
            } else {
                Durability::OperatingSystem
            };
            known.write(db, &puts, durability);
            if i % 3 == 2 {
                let stepped = db.step();
                known.note(stepped);
            }
        }
        let flushed = db.flush();
        known.note(flushed);
        if round == 1 {
            let created = db.create_keyspace("other", KeyspaceOptions::default());
            known.note(created);
            let loaded = load(db);
            if known.note(loaded.map_err(|(e, _)| e)).is_some() {
                known.sure.extend(loads());
            } else {
                known
                    .maybe
                    .extend(loads().into_iter().map(|(k, v)| (k, vec![Some(v), None])));
            }
        }
        if round == 2 {
            let compacted = db.compact_range(None, None);
            known.note(compacted);
            let dropped = db.drop_keyspace("other");
            known.note(dropped);
            let made = db.checkpoint(std::path::Path::new("/checkpoint"));
            known.note(made);
        }
    }
    for _ in 0..6 {
        let stepped = db.step();
        known.note(stepped);
    }
}

fn loads() -> Model {
    (0..6u8)
        .map(|i| (format!("x{i}").into_bytes(), vec![i; 1000]))
        .collect()
}

fn load(db: &Db) -> Result<(), (Error, ())> {
    let run = || -> thermocline::Result<()> {
        let mut load = db.bulk_load()?;
        for (key, value) in loads() {
            load.add(&key, &value)?;
        }
        load.finish().map(drop)
    };
    run().map_err(|e| (e, ()))
}

/// Runs the workload with `fault` at call `n`; says whether it was reached.
fn run(n: u64, fault: Fault) -> bool {
    let context = format!("{fault:?} at call {n}");
    let disk = Disk::new(n);
    let mut known = Known::default();
    disk.fault_in(n, fault);
    let db = match Db::open_in(options(), &disk.environment()) {
        Ok(db) => db,
        Err(e) => {
            named(&e, &context);
            disk.heal();
            Db::open_in(options(), &disk.environment())
                .unwrap_or_else(|e| panic!("{context}: second opening: {e}"))
        }
    };
    work(&db, &mut known);
    let reached = disk.calls() >= n;
    disk.heal();
    known.errors.iter().for_each(|e| named(e, &context));
    let poisoned = known.errors.iter().any(|e| e.kind() == ErrorKind::Poisoned);
    // What cannot be written can still be read.
    known.check(&db, &context);
    disk.pass_time(Duration::from_secs(5));
    let put = db.put(b"last", b"1");
    if poisoned {
        let refused = put.err().map(|e| e.kind());
        assert_eq!(
            refused,
            Some(ErrorKind::Poisoned),
            "{context}: after {:?}",
            known.errors
        );
    } else {
        put.unwrap_or_else(|e| {
            panic!(
                "{context}: writing does not resume: {e}, after {:?}",
                known.errors
            )
        });
        known.sure.insert(b"last".to_vec(), b"1".to_vec());
        db.flush()
            .unwrap_or_else(|e| panic!("{context}: flushing does not resume: {e}"));
        db.settle()
            .unwrap_or_else(|e| panic!("{context}: settling does not resume: {e}"));
        known.check(&db, &context);
    }
    drop(db);
    disk.reboot(Down::Kill);
    let db = Db::open_in(options(), &disk.environment())
        .unwrap_or_else(|e| panic!("{context}: reopening: {e}"));
    if !poisoned {
        known.check(&db, &context);
    }
    drop(db);
    disk.reboot(Down::Power);
    let db = Db::open_in(options(), &disk.environment())
        .unwrap_or_else(|e| panic!("{context}: reopening: {e}"));
    if poisoned {
        known.check_durable(&db, &context);
    } else {
        known.check(&db, &context);
    }
    db.put(b"again", b"1").unwrap();
    reached
}

fn named(error: &Error, context: &str) {
    let lawful = matches!(
        error.kind(),
        ErrorKind::Io
            | ErrorKind::NoSpace
            | ErrorKind::Poisoned
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
    );
    assert!(lawful, "{context}: {error}");
}

/// All calls, or one in so many of them, to keep the time short.
///
/// # Panics
/// When the store breaks a promise; the message names fault and call.
pub fn enumerate(fault: Fault, stride: u64) {
    let stride = std::env::var("THERMOCLINE_FAULT_STRIDE")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(stride);
    let mut n = 1;
    while run(n, fault) {
        n += stride;
    }
    println!("{n} calls");
    assert!(n > 300);
}
