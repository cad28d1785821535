//! Iterators over keys that were written very often: most entries of memory are versions that they
//! do not show.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::{Dice, walk};
use thermocline::{Db, Options};

fn key(n: u64) -> Vec<u8> {
    format!("k{n:02}").into_bytes()
}

/// Each version that a scan did not show was passed one by one.
#[test]
fn however_many_versions_there_are_each_snapshot_shows_its_own() {
    for cuts in [vec![], vec![key(4), key(7)]] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::at(directory.path())
            .write_buffer_bytes(4 << 20)
            .memtable_bytes(64 << 10)
            .cuts(cuts)
            .background_threads(0);
        let db = Db::open(options).unwrap();
        let mut dice = Dice(11);
        let mut model = BTreeMap::new();
        let mut seen = vec![(db.snapshot(), model.clone())];
        for n in 0..8_000_u64 {
            // Half of all writes are of one key, and of the other half again half of the next.
            let k = u64::from(dice.below(1 << 10).trailing_ones());
            let key = key(k);
            if dice.below(7) == 0 {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                // Some longer than what an iterator copies.
                let value =
                    [n.to_be_bytes(); 160][..1 + (dice.below(8) / 7 * 159) as usize].concat();
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            if n % 700 == 699 {
                seen.push((db.snapshot(), model.clone()));
            }
            if n == 3_000 {
                db.flush().unwrap();
            }
        }
        assert!(db.stats().memtables > 5, "{}", db.stats());
        for (snapshot, then) in &seen {
            let within: Vec<_> = then.iter().collect();
            let mut iter = snapshot.iter().unwrap();
            for _ in 0..200 {
                walk(&mut iter, &within, &key(dice.below(12)), &mut dice);
            }
            let entries = |forward: bool| -> BTreeMap<_, _> {
                let iter = snapshot.iter().unwrap();
                let entries = match forward {
                    true => iter.forward(),
                    false => iter.backward(),
                };
                entries.map(Result::unwrap).collect()
            };
            assert!(entries(true) == *then && entries(false) == *then);
        }
    }
}
