//! Small stores, with everything in them that a store's files can have, and
//! with all that was ever done to them.

use std::sync::Arc;

use thermocline::{
    Compression, Db, Durability, KeyspaceOptions, Options, Tier, WriteBatch, WriteOptions,
};

use super::record::Record;
use super::truth::{History, Image, State};
use crate::Dice;
use crate::disk::{Disk, Down};

/// A store that nobody has open.
#[derive(Clone, Debug)]
pub struct Small {
    /// What is in it.
    pub name: &'static str,
    /// What it is opened with.
    pub options: Options,
    /// Its files.
    pub image: Image,
    /// Its files at some earlier time.
    pub earlier: Image,
    /// What was done to it.
    pub history: History,
    /// What it did by itself, as far as it wrote that down.
    pub record: Record,
}

/// Fills stores, and writes down how.
struct Filling {
    disk: Disk,
    options: Options,
    db: Option<Db>,
    seq: u64,
    history: History,
    earlier: Image,
}

/// A key of a keyspace, and what it was given.
type Changed<'a> = (&'a str, Vec<u8>, Option<Vec<u8>>);

const DEFAULT: &str = "default";

fn options(tiers: Vec<Tier>) -> Options {
    Options::new()
        .with_tiers(tiers)
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .block_cache_bytes(64 << 10)
        .table_bytes(4 << 10)
        .first_level_bytes(4 << 10)
        .level_ratio(2)
        .newest_runs_merge(2)
        .log_segment_bytes(16 << 10)
        .log_bytes_max(64 << 10)
        .reserve_bytes(0)
        .background_threads(0)
}

fn tier(name: &str) -> Tier {
    Tier::new(name, format!("/{name}")).block_bytes(512)
}

impl Filling {
    fn new(seed: u64, options: Options) -> Filling {
        let mut history = History::default();
        let itself = (DEFAULT.to_string(), Vec::new());
        history
            .ever
            .insert(itself.clone(), vec![(0, Some(Vec::new()))]);
        history
            .states
            .insert(0, State::from([(itself, Vec::new())]));
        // A mapped log is as long as it may get: too much for a sweep of each byte.
        let disk = Disk::new(seed);
        disk.set_maps(false);
        let mut filling = Filling {
            disk,
            options,
            db: None,
            seq: 0,
            history,
            earlier: Image::new(),
        };
        filling.open();
        filling
    }

    fn open(&mut self) {
        let environment = self.disk.environment();
        self.db = Some(Db::open_in(self.options.clone(), &environment).unwrap());
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    /// Closes and opens it: the log goes on in another segment.
    fn reopen(&mut self) {
        self.db.take().unwrap().close().unwrap();
        self.open();
    }

    /// Lets the process die, and opens it.
    fn kill(&mut self) {
        self.disk.reboot(Down::Kill);
        drop(self.db.take());
        self.open();
    }

    fn note(&mut self, changes: Vec<Changed<'_>>, numbers: u64) {
        let mut state = self.history.last().1.clone();
        self.seq += numbers;
        for (keyspace, key, value) in changes {
            let place = (keyspace.to_string(), key);
            let ever = self.history.ever.entry(place.clone()).or_default();
            ever.push((self.seq, value.clone()));
            match value {
                Some(value) => state.insert(place, value),
                None => state.remove(&place),
            };
        }
        self.history.states.insert(self.seq, state);
    }

    /// Puts, or deletes where there is no value, as one batch.
    fn write(&mut self, keyspace: &str, puts: &[(&str, Option<&str>)], durability: Durability) {
        let db = self.db();
        let space = db.keyspace(keyspace).unwrap();
        let mut batch = WriteBatch::new();
        for (key, value) in puts {
            match value {
                Some(value) => batch.put_in(&space, key.as_bytes(), value.as_bytes()),
                None => batch.delete_in(&space, key.as_bytes()),
            }
            .unwrap();
        }
        let how = WriteOptions::default().durability(durability);
        db.write_with(&batch, how).unwrap();
        let changes = puts.iter().map(|(key, value)| {
            let value = value.map(|v| v.as_bytes().to_vec());
            (keyspace, key.as_bytes().to_vec(), value)
        });
        self.note(changes.collect(), puts.len() as u64);
    }

    fn put(&mut self, key: &str, value: &str) {
        self.write(DEFAULT, &[(key, Some(value))], Durability::OperatingSystem);
    }

    fn delete(&mut self, key: &str) {
        self.write(DEFAULT, &[(key, None)], Durability::OperatingSystem);
    }

    fn delete_range(&mut self, keyspace: &str, start: &str, end: &str) {
        let space = self.db().keyspace(keyspace).unwrap();
        space
            .delete_range(start.as_bytes(), end.as_bytes())
            .unwrap();
        let inside = start.as_bytes().to_vec()..end.as_bytes().to_vec();
        let places = self.history.ever.keys();
        let gone = places.filter(|p| p.0 == keyspace && inside.contains(&p.1));
        let gone = gone.map(|p| (keyspace, p.1.clone(), None)).collect();
        self.note(gone, 1);
    }

    fn load(&mut self, keyspace: &str, count: u32) {
        let space = self.db().keyspace(keyspace).unwrap();
        let mut load = space.bulk_load().unwrap();
        let mut changes = Vec::new();
        for i in 0..count {
            let (key, value) = (format!("load{i:03}"), format!("loaded {i}"));
            load.add(key.as_bytes(), value.as_bytes()).unwrap();
            changes.push((keyspace, key.into_bytes(), Some(value.into_bytes())));
        }
        load.finish().unwrap();
        self.note(changes, 1);
        self.history.flushed = self.seq;
    }

    fn keyspace(&mut self, name: &str, cuts: &[&str]) {
        let cuts = cuts.iter().map(|c| c.as_bytes().to_vec()).collect();
        let options = KeyspaceOptions::default().cuts(cuts);
        self.db().create_keyspace(name, options).unwrap();
        // No number is given to it.
        let place = (name.to_string(), Vec::new());
        self.history
            .ever
            .insert(place.clone(), vec![(self.seq, Some(Vec::new()))]);
        for state in self.history.states.values_mut() {
            state.insert(place.clone(), Vec::new());
        }
    }

    fn flush(&mut self) {
        self.db().flush().unwrap();
        self.history.flushed = self.seq;
    }

    fn settle(&mut self) {
        self.db().settle().unwrap();
    }

    fn image(&self) -> Image {
        let files = self.disk.files().into_iter();
        files
            .map(|(path, bytes)| (path, Arc::from(bytes)))
            .collect()
    }

    fn remember(&mut self) {
        self.earlier = self.image();
    }

    fn closed(mut self, name: &'static str) -> Small {
        self.db.take().unwrap().close().unwrap();
        self.end(name)
    }

    fn killed(mut self, name: &'static str) -> Small {
        self.disk.reboot(Down::Kill);
        drop(self.db.take());
        self.end(name)
    }

    fn end(self, name: &'static str) -> Small {
        let image = self.image();
        Small {
            name,
            record: Record::of(&image, &self.options),
            image,
            options: self.options,
            earlier: self.earlier,
            history: self.history,
        }
    }
}

fn words(i: u32, round: u32) -> String {
    format!("{round}.{i} {}", "some words ".repeat((i % 5) as usize + 1))
}

/// Several versions of keys, deletes, two levels, on one tier; closed with some
/// entries in the log.
fn one_tier() -> Small {
    let mut store = Filling::new(1, options(vec![tier("only")]));
    for i in 0..30 {
        store.put(&format!("key{i:03}"), &words(i, 0));
    }
    store.flush();
    store.settle();
    let held = store.db().snapshot();
    for i in (0..30).step_by(3) {
        store.put(&format!("key{i:03}"), &words(i, 1));
        store.put(&format!("key{i:03}"), &words(i, 2));
    }
    for i in (1..30).step_by(7) {
        store.delete(&format!("key{i:03}"));
    }
    store.flush();
    store.remember();
    drop(held);
    for i in 25..35 {
        store.put(&format!("key{i:03}"), &words(i, 3));
    }
    store.delete("key000");
    store.closed("one tier")
}

/// Data with compression on the second tier, a bulk load, a merge.
fn two_tiers() -> Small {
    let tiers = vec![
        tier("fast").capacity_bytes(2_000),
        tier("slow").compression(Compression::Lz4),
    ];
    let mut store = Filling::new(2, options(tiers).manifest_tier("slow"));
    for round in 0..3 {
        for i in 0..40 {
            if (i + round) % 3 != 0 {
                store.put(&format!("key{i:03}"), &words(i, round));
            }
        }
        store.flush();
        store.settle();
    }
    store.load(DEFAULT, 30);
    store.remember();
    store.put("key000", "in the log alone");
    store.write(
        DEFAULT,
        &[
            ("key001", None),
            ("key002", Some("of a batch")),
            ("new", Some("")),
        ],
        Durability::Device,
    );
    store.closed("two tiers")
}

/// Parts, two keyspaces, range deletes, Zstandard.
fn parts() -> Small {
    let tiers = vec![
        tier("fast").capacity_bytes(3_000),
        tier("slow").compression(Compression::Zstd),
    ];
    let cuts = vec![b"key010".to_vec(), b"key020".to_vec()];
    let mut store = Filling::new(3, options(tiers).cuts(cuts));
    store.keyspace("other", &["m"]);
    for i in 0..30 {
        store.put(&format!("key{i:03}"), &words(i, 0));
    }
    for i in 0..12 {
        let key = format!("{}{i}", if i % 2 == 0 { "a" } else { "z" });
        store.write("other", &[(&key, Some(&words(i, 1)))], Durability::Device);
    }
    store.flush();
    store.settle();
    store.delete_range(DEFAULT, "key005", "key012");
    store.put("key007", "put back");
    store.delete_range("other", "a2", "a6");
    store.flush();
    store.remember();
    store.delete_range(DEFAULT, "key018", "key023");
    store.put("key021", "put back, in the log");
    store.write(
        "other",
        &[("z1", None), ("a0", Some("late"))],
        Durability::Device,
    );
    store.closed("parts and keyspaces")
}

/// Several segments of a log, nothing in tables, the process killed: the end of
/// the last segment was never made durable.
fn log() -> Small {
    let mut store = Filling::new(4, options(vec![tier("only")]));
    store.keyspace("other", &[]);
    for i in 0..12 {
        let how = if i % 4 == 3 {
            Durability::Device
        } else {
            Durability::OperatingSystem
        };
        store.write(DEFAULT, &[(&format!("key{i:03}"), Some(&words(i, 0)))], how);
    }
    store.reopen();
    store.write(
        "other",
        &[("a", Some("1")), ("b", Some("2")), ("a", Some("3"))],
        Durability::OperatingSystem,
    );
    store.delete_range(DEFAULT, "key002", "key006");
    store.remember();
    store.kill();
    for i in 0..10 {
        let how = if i == 5 {
            Durability::Device
        } else {
            Durability::OperatingSystem
        };
        store.write(DEFAULT, &[(&format!("key{i:03}"), Some(&words(i, 1)))], how);
    }
    store.killed("log of several segments")
}

/// Values of several blocks, and one whose block has wide offsets; then parts
/// that were flushed at different times, and the process killed.
fn large() -> Small {
    let tiers = vec![tier("only").compression(Compression::Zstd)];
    let mut store = Filling::new(5, options(tiers).cuts(vec![b"m".to_vec()]));
    let mut dice = Dice(5);
    let mut noise = |length: usize| -> String {
        let letters = std::iter::repeat_with(|| char::from(b'a' + dice.below(26) as u8));
        letters.take(length).collect()
    };
    store.put("b", &noise(1500));
    store.put("n", &noise(700));
    store.put("huge", &"thermocline ".repeat(6_000));
    store.put("o", &"x".repeat(3_000));
    store.flush();
    store.settle();
    store.reopen();
    store.flush();
    store.reopen();
    store.remember();
    store.put("a", "small");
    store.put("z", &noise(400));
    store.killed("large values")
}

/// The small stores of the sweep.
#[must_use]
pub fn all() -> Vec<Small> {
    vec![one_tier(), two_tiers(), parts(), log(), large()]
}

/// A store of a drawn workload.
#[must_use]
pub fn drawn(dice: &mut Dice) -> Small {
    let mut tiers = vec![tier("fast")];
    if dice.percent(60) {
        let compression = [Compression::None, Compression::Lz4, Compression::Zstd];
        tiers[0] = tier("fast").capacity_bytes(dice.one_of(&[1_000, 4_000, 10_000]));
        tiers.push(tier("slow").compression(dice.one_of(&compression)));
    }
    // With dice of its own, so that seeds mean what they did.
    let mut aside = Dice(dice.0);
    let of_manifest = &tiers[aside.below(tiers.len() as u64) as usize];
    let of_manifest = of_manifest.name().to_string();
    let mut options = options(tiers).manifest_tier(&of_manifest);
    if dice.percent(40) {
        options = options.cuts(vec![b"key010".to_vec(), b"key025".to_vec()]);
    }
    let mut store = Filling::new(dice.next(), options);
    let mut names = vec![DEFAULT];
    if dice.percent(50) {
        store.keyspace("other", &[]);
        names.push("other");
    }
    for step in 0..dice.below(120) as u32 {
        let keyspace = dice.one_of(&names);
        let key = |dice: &mut Dice| format!("key{:03}", dice.below(40));
        match dice.below(100) {
            0..55 => {
                let puts: Vec<(String, Option<String>)> = (0..1 + dice.below(3))
                    .map(|_| {
                        let value = dice.percent(80).then(|| words(dice.below(9) as u32, step));
                        (key(dice), value)
                    })
                    .collect();
                let puts: Vec<_> = puts.iter().map(|(k, v)| (&k[..], v.as_deref())).collect();
                let durability = match dice.percent(20) {
                    true => Durability::Device,
                    false => Durability::OperatingSystem,
                };
                store.write(keyspace, &puts, durability);
            }
            55..65 => {
                let (a, b) = (key(dice), key(dice));
                if a < b {
                    store.delete_range(keyspace, &a, &b);
                }
            }
            65..72 => store.flush(),
            72..84 => {
                store.db().step().unwrap();
            }
            84..88 => store.settle(),
            88..91 => store.load(keyspace, 1 + dice.below(20) as u32),
            91..94 => store.reopen(),
            94..96 => store.kill(),
            _ => store.remember(),
        }
    }
    match dice.percent(50) {
        true => store.closed("drawn"),
        false => store.killed("drawn"),
    }
}

/// A disk with the files of `image` and nothing else.
#[must_use]
pub fn disk_of(image: &Image, options: &Options, seed: u64) -> Disk {
    let disk = Disk::new(seed);
    for tier in options.tier_list() {
        // A tier's directory is there even when nothing is in it.
        disk.put_file(&tier.path().join("x"), &[]);
        disk.remove_all(&tier.path().join("x"));
    }
    for (path, bytes) in image {
        disk.put_file(path, bytes);
    }
    disk
}
