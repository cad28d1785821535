//! The store against a map: every operation, every view, every reopening.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ops::Bound;

use thermocline::{Db, Options, Snapshot, Tier, WriteBatch};

/// A small, fast generator, so that a seed replays a run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn key(&mut self, keys: u64) -> Vec<u8> {
        let n = self.below(keys);
        // Lengths differ, and many share prefixes.
        match n % 3 {
            0 => format!("k{n:05}").into_bytes(),
            1 => format!("k{n:05}/{}", "x".repeat((n % 17) as usize)).into_bytes(),
            _ => n.to_be_bytes()[4..].iter().copied().chain([1]).collect(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.below(20) {
            0 => 0,
            1 => 5000 + self.below(3000),
            _ => self.below(200),
        };
        let byte = self.next() as u8;
        vec![byte; length as usize]
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn small(path: &std::path::Path, tiers: usize, threads: usize, cuts: Vec<Vec<u8>>) -> Options {
    let mut options = Options::new();
    for i in 0..tiers {
        let mut tier =
            Tier::new(&format!("tier{i}"), path.join(format!("tier{i}"))).block_bytes(512);
        if i + 1 < tiers {
            tier = tier.capacity_bytes(400_000);
        }
        options = options.tier(tier);
    }
    options
        .write_buffer_bytes(256 << 10)
        .memtable_bytes(32 << 10)
        .table_bytes(32 << 10)
        .first_level_bytes(64 << 10)
        .level_ratio(4)
        .log_segment_bytes(64 << 10)
        .log_bytes_max(1 << 20)
        .block_cache_bytes(256 << 10)
        .reserve_bytes(0)
        .background_threads(threads)
        .cuts(cuts)
}

fn check_whole(db: &Db, model: &Model, dice: &mut Dice) {
    let forward: Vec<_> = db.iter().unwrap().forward().map(Result::unwrap).collect();
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(forward.len(), expected.len());
    assert!(forward == expected, "forward scan differs");
    let backward: Vec<_> = db.iter().unwrap().backward().map(Result::unwrap).collect();
    assert!(
        backward.iter().rev().eq(expected.iter()),
        "backward scan differs"
    );
    for _ in 0..50 {
        let key = dice.key(3000);
        assert_eq!(
            db.get(&key).unwrap().as_deref(),
            model.get(&key).map(|v| &**v)
        );
    }
}

fn check_seeks(db: &Db, model: &Model, dice: &mut Dice) {
    let mut iter = db.iter().unwrap();
    for _ in 0..20 {
        let key = dice.key(3000);
        iter.seek(&key).unwrap();
        let mut expected = model
            .range::<Vec<u8>, _>((Bound::Included(&key), Bound::Unbounded))
            .next();
        for _ in 0..dice.below(6) {
            assert_eq!(
                iter.valid().then(|| iter.key().to_vec()).as_ref(),
                expected.map(|e| e.0)
            );
            let Some((at, value)) = expected else { break };
            assert_eq!(iter.value(), &value[..]);
            if dice.below(2) == 0 {
                iter.next().unwrap();
                expected = model
                    .range::<Vec<u8>, _>((Bound::Excluded(at), Bound::Unbounded))
                    .next();
            } else {
                iter.prev().unwrap();
                expected = model
                    .range::<Vec<u8>, _>((Bound::Unbounded, Bound::Excluded(at)))
                    .next_back();
            }
        }
        iter.seek_for_prev(&key).unwrap();
        let expected = model
            .range::<Vec<u8>, _>((Bound::Unbounded, Bound::Included(&key)))
            .next_back();
        assert_eq!(
            iter.valid().then(|| iter.key().to_vec()).as_ref(),
            expected.map(|e| e.0)
        );
    }
    let (mut low, mut high) = (dice.key(3000), dice.key(3000));
    if low > high {
        std::mem::swap(&mut low, &mut high);
    }
    let bounds = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
    let found: Vec<_> = db
        .range(bounds.0, bounds.1)
        .unwrap()
        .backward()
        .map(|e| e.unwrap().0)
        .collect();
    let expected: Vec<_> = model
        .range::<[u8], _>(bounds)
        .rev()
        .map(|(k, _)| k.clone())
        .collect();
    assert_eq!(found, expected);
    let found: Vec<_> = db
        .prefix(b"k01")
        .unwrap()
        .forward()
        .map(|e| e.unwrap().0)
        .collect();
    let expected: Vec<_> = model
        .keys()
        .filter(|k| k.starts_with(b"k01"))
        .cloned()
        .collect();
    assert_eq!(found, expected);
}

fn run(seed: u64, tiers: usize, threads: usize, parts: bool, operations: u64) {
    println!("seed {seed}, {tiers} tiers, {threads} threads, parts {parts}");
    let directory = tempfile::tempdir().unwrap();
    let cuts = if parts {
        vec![b"k00500".to_vec(), b"k01500/x".to_vec(), b"k02000".to_vec()]
    } else {
        vec![]
    };
    let options = small(directory.path(), tiers, threads, cuts);
    let mut dice = Dice(seed);
    let mut db = Db::open(options.clone()).unwrap();
    let mut model = Model::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    for i in 0..operations {
        match dice.below(1000) {
            0..=699 => {
                let (key, value) = (dice.key(3000), dice.value());
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            700..=849 => {
                let key = dice.key(3000);
                db.delete(&key).unwrap();
                model.remove(&key);
            }
            850..=859 => {
                let (mut low, mut high) = (dice.key(3000), dice.key(3000));
                if low > high {
                    std::mem::swap(&mut low, &mut high);
                }
                if low == high {
                    continue;
                }
                // Mostly short ones, so that something is left.
                if dice.below(4) > 0 && low.starts_with(b"k") {
                    high = low.clone();
                    high[5] = high[5].saturating_add(2);
                }
                db.delete_range(&low, &high).unwrap();
                model.retain(|k, _| !(*k >= low && *k < high));
            }
            860..=919 => {
                let mut batch = WriteBatch::new();
                for _ in 0..dice.below(20) {
                    let (key, value) = (dice.key(3000), dice.value());
                    if dice.below(5) == 0 {
                        batch.delete(&key).unwrap();
                        model.remove(&key);
                    } else {
                        batch.put(&key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
                db.write(&batch).unwrap();
            }
            920..=929 => {
                if snapshots.len() > 3 {
                    let at = dice.below(snapshots.len() as u64) as usize;
                    snapshots.swap_remove(at);
                }
                snapshots.push((db.snapshot(), model.clone()));
            }
            930..=949 => {
                if let Some((snapshot, then)) = snapshots.first() {
                    for _ in 0..20 {
                        let key = dice.key(3000);
                        assert_eq!(
                            snapshot.get(&key).unwrap().as_deref(),
                            then.get(&key).map(|v| &**v),
                            "op {i}"
                        );
                    }
                    if dice.below(8) == 0 {
                        let found: Vec<_> = snapshot
                            .iter()
                            .unwrap()
                            .forward()
                            .map(Result::unwrap)
                            .collect();
                        assert!(
                            found.iter().map(|(k, v)| (k, v)).eq(then.iter()),
                            "snapshot differs at op {i}"
                        );
                    }
                }
            }
            950..=959 => check_seeks(&db, &model, &mut dice),
            960..=962 => db.flush().unwrap(),
            963 => {
                let key = dice.key(3000);
                db.compact_range(Some(&key), None).unwrap();
            }
            964..=966 => {
                snapshots.clear();
                drop(db);
                db = Db::open(options.clone()).unwrap();
            }
            _ if threads == 0 => {
                db.step().unwrap();
            }
            _ => {}
        }
        if i % 2000 == 1999 {
            check_whole(&db, &model, &mut dice);
        }
    }
    db.settle().unwrap();
    check_whole(&db, &model, &mut dice);
    for (snapshot, then) in &snapshots {
        let found: Vec<_> = snapshot
            .iter()
            .unwrap()
            .forward()
            .map(Result::unwrap)
            .collect();
        assert!(found.iter().map(|(k, v)| (k, v)).eq(then.iter()));
    }
    snapshots.clear();
    db.compact_range(None, None).unwrap();
    check_whole(&db, &model, &mut dice);
    let stats = db.stats();
    assert_eq!(stats.job_errors, 0, "{:?}", stats.last_error);
    println!("{stats}");
}

#[test]
fn one_tier_one_part_stepped_agrees_with_a_map() {
    run(1, 1, 0, false, 10_000);
}

#[test]
fn three_tiers_with_parts_stepped_agree_with_a_map() {
    run(2, 3, 0, true, 10_000);
}

#[test]
fn two_tiers_with_threads_agree_with_a_map() {
    run(3, 2, 2, false, 10_000);
}

#[test]
fn two_tiers_with_parts_and_threads_agree_with_a_map() {
    run(4, 2, 3, true, 10_000);
}
