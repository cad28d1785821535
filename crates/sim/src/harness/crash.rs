//! Crash safety (I2, I3, I5, I9) on a simulated disk: random operations, a
//! crash at a random call, recovery that crashes too, and an oracle that knows
//! every state the store went through.
//!
//! `THERMOCLINE_CRASH_CYCLES` sets the number of crashes per configuration,
//! `THERMOCLINE_CRASH_SEED` the first seed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;

use thermocline::{Db, Durability, KeyspaceOptions, Options, Tier, WriteBatch, WriteOptions};

use crate::Dice;
use crate::disk::{Disk, Down, Fault};
use crate::oracle::{Contents, Effect, Oracle, Step, contents, fresh, hash, take};

/// What kind of store.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many tiers.
    pub tiers: usize,
    /// Whether it has parts.
    pub parts: bool,
}

fn options(shape: Shape) -> Options {
    let mut options = Options::new();
    for i in 0..shape.tiers {
        let mut tier =
            Tier::new(&format!("tier{i}"), format!("/mount/tier{i}/store")).block_bytes(512);
        if i + 1 < shape.tiers {
            tier = tier.capacity_bytes(30_000);
        }
        options = options.tier(tier);
    }
    let cuts = if shape.parts {
        vec![b"k010".to_vec(), b"k025".to_vec()]
    } else {
        vec![]
    };
    options
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(4 << 10)
        .first_level_bytes(8 << 10)
        .level_ratio(2)
        .newest_runs_merge(2)
        .newest_runs_stop(12)
        .log_segment_bytes(16 << 10)
        .log_bytes_max(64 << 10)
        .block_cache_bytes(64 << 10)
        .reserve_bytes(0)
        .background_threads(0)
        .cuts(cuts)
}

fn key(dice: &mut Dice) -> Vec<u8> {
    format!("k{:03}", dice.below(40)).into_bytes()
}

fn value(dice: &mut Dice) -> Vec<u8> {
    let length = match dice.below(30) {
        0 => 0,
        1 => 3000 + dice.below(9000),
        n => 30 * n,
    };
    vec![dice.next() as u8; length as usize]
}

fn bounds(dice: &mut Dice) -> (Vec<u8>, Vec<u8>) {
    let mut start = key(dice);
    let mut end = key(dice);
    if start == end {
        end.push(b'x');
    }
    if start > end {
        std::mem::swap(&mut start, &mut end);
    }
    if dice.percent(80) {
        end.clone_from(&start);
        end.push(b'x');
    }
    (start, end)
}

fn spaces(contents: &Contents, dice: &mut Dice) -> String {
    let names: Vec<_> = contents.keys().cloned().collect();
    if dice.percent(60) {
        "default".to_string()
    } else {
        names[dice.below(names.len() as u64) as usize].clone()
    }
}

fn batch(contents: &Contents, dice: &mut Dice) -> Vec<Effect> {
    let count = if dice.percent(70) {
        1
    } else {
        dice.below(12) + 1
    };
    let effect = |_| {
        let space = spaces(contents, dice);
        match dice.below(20) {
            0..=3 => Effect::Delete(space, key(dice)),
            4 => {
                let (start, end) = bounds(dice);
                Effect::DeleteRange(space, start, end)
            }
            _ => Effect::Put(space, key(dice), value(dice)),
        }
    };
    (0..count).map(effect).collect()
}

fn write(db: &Db, effects: &[Effect], durability: Durability) -> thermocline::Result<()> {
    let mut batch = WriteBatch::new();
    for effect in effects {
        match effect {
            Effect::Put(space, key, value) => batch.put_in(&db.keyspace(space)?, key, value)?,
            Effect::Delete(space, key) => batch.delete_in(&db.keyspace(space)?, key)?,
            Effect::DeleteRange(space, start, end) => {
                batch.delete_range_in(&db.keyspace(space)?, start, end)?
            }
        }
    }
    db.write_with(&batch, WriteOptions::default().durability(durability))
}

/// A checkpoint that was acknowledged, and what it must hold.
type Kept = Option<(PathBuf, u64)>;

/// One random operation. `Err` is what the store said.
fn operate(
    db: &Db,
    oracle: &mut Oracle,
    dice: &mut Dice,
    kept: &mut Kept,
    disk: &Disk,
) -> thermocline::Result<()> {
    match dice.below(100) {
        0..=59 => {
            let effects = batch(&oracle.now, dice);
            let durable = dice.percent(20);
            oracle.add(Step::Batch(effects.clone()));
            write(
                db,
                &effects,
                if durable {
                    Durability::Device
                } else {
                    Durability::OperatingSystem
                },
            )?;
            oracle.acknowledge(durable);
        }
        60..=79 => {
            db.step()?;
        }
        80..=84 => db.flush()?,
        85..=86 => {
            db.persist()?;
            oracle.acknowledge(true);
        }
        87 => {
            let (start, end) = bounds(dice);
            let name = spaces(&oracle.now, dice);
            db.keyspace(&name)?
                .compact_range(Some(&start), dice.percent(50).then_some(&end[..]))?;
        }
        88..=89 => {
            let name = format!("space{}", dice.below(3));
            if oracle.now.contains_key(&name) {
                oracle.add(Step::Drop(name.clone()));
                db.drop_keyspace(&name)?;
            } else {
                oracle.add(Step::Create(name.clone()));
                let cuts = if dice.percent(50) {
                    vec![key(dice)]
                } else {
                    vec![]
                };
                db.create_keyspace(&name, KeyspaceOptions::default().cuts(cuts))?;
            }
            oracle.acknowledge(true);
        }
        90..=92 => {
            let name = spaces(&oracle.now, dice);
            let entries: BTreeMap<_, _> = (0..dice.below(20))
                .map(|_| (key(dice), value(dice)))
                .collect();
            let entries: Vec<_> = entries.into_iter().collect();
            oracle.add(Step::Load(name.clone(), entries.clone()));
            let before = db.snapshot();
            let space = db.keyspace(&name)?;
            let mut load = space.bulk_load()?;
            for (key, value) in &entries {
                load.add(key, value)?;
            }
            load.finish()?;
            oracle.acknowledge(!entries.is_empty());
            for (key, _) in &entries {
                let then = oracle_before(oracle, &name, key);
                assert_eq!(
                    before.get_in(&space, key)?.as_deref(),
                    then.as_deref(),
                    "an older snapshot sees the load"
                );
            }
        }
        93 => {
            if let Some((path, _)) = kept.take() {
                disk.remove_all(&path);
            }
            let path = PathBuf::from(format!("/mount/checkpoint{}", disk.calls()));
            db.checkpoint(&path)?;
            *kept = Some((path, hash(&oracle.now)));
        }
        94 => {
            let snapshot = db.snapshot();
            let before = hash(&oracle.now);
            for _ in 0..dice.below(6) {
                let effects = batch(&oracle.now, dice);
                oracle.add(Step::Batch(effects.clone()));
                write(db, &effects, Durability::OperatingSystem)?;
                oracle.acknowledge(false);
                db.step()?;
            }
            db.flush()?;
            let mut seen = Contents::new();
            for name in db.keyspaces() {
                let space = db.keyspace(&name)?;
                let all = snapshot.range_in(&space, Bound::Unbounded, Bound::Unbounded)?;
                seen.insert(name, all.forward().collect::<thermocline::Result<_>>()?);
            }
            assert_eq!(hash(&seen), before, "the snapshot moved");
        }
        _ => {
            let name = spaces(&oracle.now, dice);
            let key = key(dice);
            let found = db.keyspace(&name)?.get(&key)?;
            assert_eq!(
                found.as_deref(),
                oracle.now[&name].get(&key).map(|v| &**v),
                "{name}/{}",
                key.escape_ascii()
            );
        }
    }
    Ok(())
}

/// The value before the last step.
fn oracle_before(oracle: &Oracle, space: &str, key: &[u8]) -> Option<Vec<u8>> {
    let mut state = oracle.base.clone();
    oracle.steps[..oracle.steps.len() - 1]
        .iter()
        .for_each(|s| take(&mut state, s));
    state[space].get(key).cloned()
}

/// Runs until `cycles` crashes have been survived. `downs` says how it falls.
///
/// # Panics
/// When the store breaks a promise; the message begins with the seed.
pub fn crash_cycles(seed: u64, shape: Shape, cycles: u64, downs: &[Down]) {
    let environment_seed = std::env::var("THERMOCLINE_CRASH_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let seed = environment_seed.unwrap_or(seed);
    let cycles = std::env::var("THERMOCLINE_CRASH_CYCLES")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(cycles);
    // A store of its own every so often, so that one seed replays quickly.
    const CYCLES_PER_STORE: u64 = 10;
    for store in 0..cycles.div_ceil(CYCLES_PER_STORE) {
        crash_one_store(seed.wrapping_add(store), shape, CYCLES_PER_STORE, downs);
    }
}

fn crash_one_store(seed: u64, shape: Shape, cycles: u64, downs: &[Down]) {
    let context = format!("seed {seed}, {shape:?}");
    println!("{context}");
    let disk = Disk::new(seed);
    let mut dice = Dice(seed ^ 0x5eed);
    let options = options(shape);
    let mut oracle = Oracle::new(fresh());
    let mut kept: Kept = None;
    for cycle in 0..cycles {
        let mut worst = Down::Kill;
        // Recovery may crash, up to three times in a row.
        let mut tries = 0;
        let db = loop {
            if tries < 3 && dice.percent(40) {
                disk.fault_in(dice.below(60) + 1, Fault::Crash);
            }
            tries += 1;
            match Db::open_in(options.clone(), &disk.environment()) {
                Ok(db) if !disk.is_crashed() => break db,
                Ok(db) => drop(db),
                Err(error) => assert!(
                    disk.is_crashed(),
                    "{context}, cycle {cycle}: refused to open: {error}"
                ),
            }
            let down = downs[dice.below(downs.len() as u64) as usize];
            if down == Down::Power {
                worst = Down::Power;
            }
            disk.reboot(down);
        };
        disk.heal();
        let found = contents(&db).unwrap_or_else(|e| panic!("{context}, cycle {cycle}: {e}"));
        oracle
            .settle(&found, worst)
            .unwrap_or_else(|e| panic!("{context}, cycle {cycle}, {worst:?}: {e}"));

        let soon = dice.percent(30);
        disk.fault_in(dice.below(if soon { 60 } else { 600 }) + 1, Fault::Crash);
        while !disk.is_crashed() {
            if let Err(error) = operate(&db, &mut oracle, &mut dice, &mut kept, &disk) {
                assert!(disk.is_crashed(), "{context}, cycle {cycle}: {error}");
            }
        }
        drop(db);
        let down = downs[dice.below(downs.len() as u64) as usize];
        disk.reboot(down);
        if down == Down::Power {
            // Holds until the next recovery is complete.
            oracle.acknowledged = oracle.durable;
        }
        check_checkpoint(&disk, &mut kept, shape, &context);
    }
}

fn check_checkpoint(disk: &Disk, kept: &mut Kept, shape: Shape, context: &str) {
    let Some((path, wanted)) = kept.take() else {
        return;
    };
    let tiers: Vec<Tier> = (0..shape.tiers)
        .map(|i| Tier::new(&format!("tier{i}"), path.join(format!("tier{i}"))).block_bytes(512))
        .collect();
    let db = Db::open_in(options(shape).with_tiers(tiers), &disk.environment())
        .unwrap_or_else(|e| panic!("{context}: checkpoint refused: {e}"));
    assert_eq!(
        hash(&contents(&db).unwrap()),
        wanted,
        "{context}: the checkpoint differs"
    );
    drop(db);
    disk.remove_all(&path);
}

/// The shapes that are always run.
pub const ALL_SHAPES: [Shape; 3] = [
    Shape {
        tiers: 1,
        parts: false,
    },
    Shape {
        tiers: 2,
        parts: true,
    },
    Shape {
        tiers: 3,
        parts: false,
    },
];

/// One store of a drawn shape, ten crashes of either kind.
///
/// # Panics
/// When the store breaks a promise; the message begins with the seed.
pub fn run(seed: u64, tally: &mut crate::Tally) {
    let shape = Dice(seed).one_of(&ALL_SHAPES);
    crash_one_store(seed, shape, 10, &[Down::Power, Down::Kill]);
    tally.crashes += 10;
}
