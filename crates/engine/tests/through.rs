//! Newest runs that go through a full level (docs/experiments.md, "Uniform writes on two tiers"),
//! in a store of two tiers.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thermocline::store::{Clock, Environment};
use thermocline::{Db, Options, Tier, verify};

const KIB: u64 = 1 << 10;
const KEYS: u64 = 16_000;

/// Each look takes a moment, so that a store without threads does the same every time.
#[derive(Debug, Default)]
struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn now_micros(&self) -> u64 {
        self.0.fetch_add(40, Ordering::Relaxed)
    }

    fn sleep(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.fetch_add(us, Ordering::Relaxed);
    }
}

fn options(directory: &Path) -> Options {
    Options::new()
        .tier(Tier::new("fast", directory.join("fast")).capacity_bytes(4096 * KIB))
        .tier(Tier::new("slow", directory.join("slow")))
        .preset("nova")
        .write_buffer_bytes(256 * KIB)
        .block_cache_bytes(1024 * KIB)
        .memtable_bytes(32 * KIB)
        .table_bytes(64 * KIB)
        .first_level_bytes(64 * KIB)
        .newest_runs_merge(2)
        .background_threads(0)
}

fn open(directory: &Path) -> Db {
    let environment = Environment {
        clock: Arc::new(Ticks::default()),
        ..Environment::real()
    };
    Db::open_in(options(directory), &environment).unwrap()
}

fn key(drawn: u64) -> Vec<u8> {
    format!("user:{:012}", drawn % KEYS).into_bytes()
}

#[test]
fn what_goes_through_a_level_is_all_there_and_nothing_older_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let (mut n, mut through) = (0u64, 0);
    while through < 5 && n < 200_000 {
        for _ in 0..5_000 {
            let key = key(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
            if n % 17 == 0 {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = [&n.to_be_bytes()[..], &[n as u8; 500]].concat();
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            n += 1;
            if n.is_multiple_of(50) {
                db.step().unwrap();
            }
        }
        let events = db.events(usize::MAX);
        let done = events.iter().filter(|e| e.reason.rule == "part-through");
        through = done.filter(|e| e.error.is_none()).count();
    }
    assert!(through >= 5, "{through} in {n} writes");
    let check = |db: &Db| {
        let mut found = db.iter().unwrap().forward();
        for (key, value) in &model {
            let (k, v) = found.next().unwrap().unwrap();
            assert_eq!((&k[..], &v[..]), (&key[..], &value[..]));
        }
        assert!(found.next().is_none());
        for drawn in 0..KEYS {
            let key = key(drawn);
            assert_eq!(
                db.get(&key).unwrap().as_deref(),
                model.get(&key).map(|v| &v[..])
            );
        }
    };
    check(&db);
    drop(db);
    let db = open(directory.path());
    check(&db);
    drop(db);
    assert!(
        verify(options(directory.path()))
            .unwrap()
            .problems
            .is_empty()
    );
}
