//! The public interface by sequences of operations, compared with a map.

use std::collections::BTreeMap;
use std::ops::Bound;

use thermocline::{Compression, Db, Options, Snapshot, Tier, WriteBatch};

use crate::Dice;
use crate::disk::{Disk, Down};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// One of few keys, so that they meet, of which some are prefixes of others.
    fn key(&mut self) -> Option<Vec<u8>> {
        let byte = self.byte()?;
        Some(vec![b'a' + byte % 4; 1 + usize::from(byte >> 2) % 6])
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let byte = self.byte()?;
        Some(vec![byte; usize::from(byte) * usize::from(byte % 8)])
    }
}

fn options(head: u8) -> Options {
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd];
    let mut tiers = vec![Tier::new("fast", "/fast").block_bytes(512)];
    if head & 1 == 1 {
        tiers[0] = tiers[0].clone().capacity_bytes(2_000);
        let slow = Tier::new("slow", "/slow").block_bytes(512);
        tiers.push(slow.compression(compression[usize::from(head >> 1) % 3]));
    }
    let options = Options::new()
        .with_tiers(tiers)
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .block_cache_bytes(u64::from(head >> 3 & 1) << 16)
        .table_bytes(4 << 10)
        .first_level_bytes(4 << 10)
        .level_ratio(2)
        .newest_runs_merge(2)
        .log_segment_bytes(16 << 10)
        .log_bytes_max(32 << 10)
        .reserve_bytes(0)
        .background_threads(0);
    match head >> 4 & 1 {
        0 => options,
        _ => options.cuts(vec![b"b".to_vec(), b"cc".to_vec()]),
    }
}

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some(head) = input.byte() else {
        return;
    };
    let disk = Disk::new(1);
    let open = || Db::open_in(options(head), &disk.environment()).unwrap();
    let mut db = open();
    let mut map = Map::new();
    let mut held: Option<(Snapshot, Map)> = None;
    while let Some(operation) = input.byte() {
        match operation % 16 {
            14 => {
                held = None;
                db.close().unwrap();
                db = open();
            }
            15 => {
                held = None;
                disk.reboot(Down::Kill);
                drop(db);
                db = open();
            }
            _ => {
                if operate(operation, &mut input, &db, &mut map, &mut held).is_none() {
                    break;
                }
            }
        }
    }
    compare(&db, &map);
    if let Some((snapshot, then)) = held {
        compare_then(&snapshot, &then);
    }
}

/// None at the end of the input.
fn operate(
    operation: u8,
    input: &mut Input<'_>,
    db: &Db,
    map: &mut Map,
    held: &mut Option<(Snapshot, Map)>,
) -> Option<()> {
    match operation % 16 {
        0..4 => {
            let (key, value) = (input.key()?, input.value()?);
            db.put(&key, &value).unwrap();
            map.insert(key, value);
        }
        4 => {
            let key = input.key()?;
            db.delete(&key).unwrap();
            map.remove(&key);
        }
        5 => {
            let (start, end) = (input.key()?, input.key()?);
            let deleted = db.delete_range(&start, &end);
            assert_eq!(deleted.is_ok(), start < end, "{deleted:?}");
            if start < end {
                map.retain(|key, _| !(&start..&end).contains(&key));
            }
        }
        6 => {
            let (mut batch, mut next) = (WriteBatch::new(), map.clone());
            for _ in 0..operation >> 4 {
                let (key, value) = (input.key()?, input.value()?);
                if value.len() % 3 == 0 {
                    batch.delete(&key).unwrap();
                    next.remove(&key);
                } else {
                    batch.put(&key, &value).unwrap();
                    next.insert(key, value);
                }
            }
            db.write(&batch).unwrap();
            *map = next;
        }
        7 => db.flush().unwrap(),
        8 => drop(db.step().unwrap()),
        9 => db.settle().unwrap(),
        10 => {
            let key = input.key()?;
            let found = db.get(&key).unwrap();
            assert_eq!(found.as_deref(), map.get(&key).map(|v| &v[..]));
        }
        11 => {
            let (start, end) = (input.key()?, input.key()?);
            if start < end {
                let bounds = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
                let found = db.range(bounds.0, bounds.1).unwrap().backward();
                let found: Vec<_> = found.map(Result::unwrap).collect();
                let wanted = map.range(start.clone()..end.clone()).rev();
                let wanted: Vec<_> = wanted.map(|(k, v)| (k.clone(), v.clone())).collect();
                assert_eq!(found, wanted);
            }
        }
        12 => {
            if let Some((snapshot, then)) = held.take() {
                compare_then(&snapshot, &then);
            } else {
                *held = Some((db.snapshot(), map.clone()));
            }
        }
        _ => {
            let start = input.key()?;
            db.compact_range(Some(&start), None).unwrap();
        }
    }
    Some(())
}

fn compare(db: &Db, map: &Map) {
    let found: Map = db.iter().unwrap().forward().map(Result::unwrap).collect();
    assert_eq!(&found, map);
    for (key, value) in map {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

fn compare_then(snapshot: &Snapshot, then: &Map) {
    let found: Map = snapshot
        .iter()
        .unwrap()
        .forward()
        .map(Result::unwrap)
        .collect();
    assert_eq!(&found, then);
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut dice = Dice(1);
    let mut seed = |head: u8| {
        let rest = (0..300).map(|_| dice.next() as u8);
        std::iter::once(head).chain(rest).collect()
    };
    [0, 1, 3, 16, 29].map(&mut seed).into()
}
