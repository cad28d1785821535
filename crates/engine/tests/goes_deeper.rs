//! Merges of `logstore` that put the fast level in order and send cold intervals to the slow one,
//! in threads of their own.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use thermocline::{Db, Options, Tier};

const KIB: u64 = 1 << 10;

/// Half of the writes are to a tenth of the keys; some are deletes.
fn written(db: &Db, model: &mut BTreeMap<Vec<u8>, Vec<u8>>, from: u64, count: u64) {
    for n in from..from + count {
        let drawn = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let key = match n % 2 {
            0 => drawn % 400,
            _ => drawn % 4000,
        };
        let key = format!("user:{key:012}").into_bytes();
        if n % 31 == 0 {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = vec![n as u8; 300];
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

#[test]
fn what_goes_deeper_beside_what_stays_is_all_there() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new()
        .tier(Tier::new("fast", directory.path().join("fast")).capacity_bytes(2048 * KIB))
        .tier(Tier::new("slow", directory.path().join("slow")))
        .preset("logstore")
        .fast_share(0.5)
        .write_buffer_bytes(128 * KIB)
        .write_buffer_grows(false)
        .table_bytes(64 * KIB)
        .newest_runs_merge(1)
        .background_threads(2);
    let mut model = BTreeMap::new();
    let mut deeper = 0;
    let mut at = 0;
    while deeper < 3 && at < 400_000 {
        let db = Db::open(options.clone()).unwrap();
        written(&db, &mut model, at, 20_000);
        at += 20_000;
        let events = db.events(usize::MAX);
        let both = events.iter().filter(|e| {
            let is_number = |(name, _): &(String, f64)| name == "deeper_bytes";
            e.error.is_none() && e.reason.numbers.iter().any(is_number)
        });
        deeper += both.count();
        let mut found = db.iter().unwrap().forward();
        for (key, value) in &model {
            let (k, v) = found.next().unwrap().unwrap();
            assert_eq!((&k[..], &v[..]), (&key[..], &value[..]));
        }
        assert!(found.next().is_none());
    }
    assert!(deeper >= 3, "{deeper} merges in {at} writes went deeper");
}
