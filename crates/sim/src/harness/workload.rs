//! Fixed series of operations that together reach every kind of I/O the engine
//! does: flush, merge, relocation down and up, manifest compaction, keyspaces
//! made and dropped, bulk load, checkpoint, close and recovery. Short, so that
//! every single call of them can be made to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use thermocline::{
    Db, Durability, Error, ErrorKind, KeyspaceOptions, Options, Tier, WriteBatch, WriteOptions,
};

use crate::Dice;
use crate::disk::{Disk, Down};
use crate::oracle::{Contents, Effect, Step, contents, fresh, hash, take};

/// How much of a store fits its fast tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// A part, so that tables move down.
    Little,
    /// All of it, so that tables move up.
    Plenty,
}

/// What is done next.
#[derive(Clone, Debug)]
pub enum Act {
    /// Closes the store without a word, if it is open, and opens it.
    Open(Room),
    /// A batch.
    Write(Vec<Effect>, Durability),
    /// Moves memory to tables.
    Flush,
    /// One background job, if there is one.
    Step,
    /// All background jobs.
    Settle,
    /// Merges everything.
    Compact,
    /// Makes a keyspace with a cut of so many bytes.
    Create(String, usize),
    /// Drops a keyspace.
    Drop(String),
    /// Loads into a keyspace.
    Load(String, Vec<(Vec<u8>, Vec<u8>)>),
    /// A checkpoint in this directory.
    Checkpoint(&'static str),
    /// Closes the store properly.
    Close,
}

/// A store made beforehand, and what is done to it.
pub struct Workload {
    /// Its name, for messages.
    pub name: &'static str,
    seed: u64,
    /// Whether the log is written through a map.
    mapped: bool,
    base: Disk,
    /// What the store holds before.
    before: Contents,
    /// Values and states of before, of which a lie may bring some back.
    earlier: Vec<Contents>,
    acts: Vec<Act>,
}

/// A step that was tried, and when: in calls of the disk.
#[derive(Clone, Debug)]
pub struct Tried {
    step: Step,
    from_call: u64,
    /// When it was acknowledged.
    acknowledged: Option<u64>,
}

/// What was tried on a store, and what came of it.
pub struct History {
    before: Contents,
    earlier: Vec<Contents>,
    tried: Vec<Tried>,
    /// Moments from which on everything acknowledged so far must survive a
    /// power failure, and how many steps had been tried.
    durable: Vec<(u64, usize)>,
    /// Moments of opening.
    opened: Vec<(u64, Room)>,
    /// How many steps had been tried when a poisoned store was opened anew:
    /// of these, what was not durable may be lost.
    reopened: usize,
    /// Jobs that were done, and manifests that were begun while it was open.
    pub done: BTreeSet<String>,
    /// What the store said.
    pub errors: Vec<Error>,
}

fn put(key: impl Into<String>, value: Vec<u8>) -> Effect {
    Effect::Put("default".into(), key.into().into_bytes(), value)
}

fn key(n: u64) -> String {
    format!("k{:02}", n % 40)
}

/// Batches of puts and deletes; every fourth is durable.
fn writes(dice: &mut Dice, count: u64, acts: &mut Vec<Act>) {
    for i in 0..count {
        let mut batch = vec![put(key(dice.below(40)), vec![dice.next() as u8; 700])];
        match i % 4 {
            1 => batch.push(Effect::Delete(
                "default".into(),
                key(dice.below(40)).into_bytes(),
            )),
            2 => batch.push(Effect::DeleteRange(
                "default".into(),
                key(i).into_bytes(),
                format!("{}x", key(i)).into_bytes(),
            )),
            _ => batch.push(put(key(dice.below(40)), vec![dice.next() as u8; 90])),
        }
        let durability = if i % 4 == 0 {
            Durability::Device
        } else {
            Durability::OperatingSystem
        };
        acts.push(Act::Write(batch, durability));
        if i % 3 == 2 {
            acts.push(Act::Step);
        }
    }
}

/// An empty machine with two devices.
fn machine(seed: u64, mapped: bool) -> Disk {
    let disk = Disk::new(seed);
    disk.set_maps(mapped);
    disk.mount("/fast");
    disk.mount("/slow");
    disk
}

impl Workload {
    /// All of them; `seed` draws keys and values.
    #[must_use]
    pub fn all(seed: u64) -> Vec<Workload> {
        vec![
            Workload::life(seed, false),
            Workload::life(seed, true),
            Workload::moves(seed, true),
            Workload::recovery(seed, false),
            Workload::recovery(seed, true),
        ]
    }

    /// From nothing to a closed store, by way of everything but relocation.
    #[must_use]
    pub fn life(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed);
        let mut acts = vec![Act::Open(Room::Little)];
        writes(&mut dice, 10, &mut acts);
        acts.push(Act::Flush);
        // An edit so long that the manifest is rewritten.
        acts.push(Act::Create("other".into(), 9000));
        let loaded = |n: u8| (format!("x{n}").into_bytes(), vec![n; 1000]);
        acts.push(Act::Load("default".into(), (0..6).map(loaded).collect()));
        let crossing = vec![
            put(key(3), vec![7; 300]),
            Effect::Put("other".into(), b"a".to_vec(), vec![8; 300]),
        ];
        acts.push(Act::Write(crossing, Durability::OperatingSystem));
        writes(&mut dice, 6, &mut acts);
        acts.extend([Act::Flush, Act::Step, Act::Drop("other".into()), Act::Step]);
        writes(&mut dice, 3, &mut acts);
        acts.extend([
            Act::Compact,
            Act::Checkpoint("/fast/backup"),
            Act::Close,
            Act::Open(Room::Little),
        ]);
        writes(&mut dice, 1, &mut acts);
        Workload {
            name: "life",
            seed,
            mapped,
            base: machine(seed, mapped),
            before: fresh(),
            earlier: Vec::new(),
            acts,
        }
    }

    /// A store whose tables must move down, and then up again.
    #[must_use]
    pub fn moves(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed ^ 1);
        let mut making = vec![Act::Open(Room::Plenty)];
        // Several tables more than little room takes.
        let loaded = |n: u64| (format!("k{n:02}m").into_bytes(), vec![n as u8; 800]);
        making.push(Act::Load("default".into(), (0..30).map(loaded).collect()));
        writes(&mut dice, 8, &mut making);
        making.extend([Act::Compact, Act::Close]);
        let (base, before) = made(&machine(seed, mapped), &making, mapped);
        let mut acts = vec![Act::Open(Room::Little)];
        writes(&mut dice, 1, &mut acts);
        acts.push(Act::Settle);
        writes(&mut dice, 1, &mut acts);
        acts.push(Act::Open(Room::Plenty));
        acts.push(Act::Settle);
        writes(&mut dice, 1, &mut acts);
        Workload {
            name: "moves",
            seed,
            mapped,
            base,
            before,
            earlier: Vec::new(),
            acts,
        }
    }

    /// What a power failure left in the middle of everything, opened.
    #[must_use]
    pub fn recovery(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed ^ 2);
        let mut making = vec![Act::Open(Room::Little)];
        writes(&mut dice, 20, &mut making);
        making.push(Act::Flush);
        writes(&mut dice, 9, &mut making);
        let disk = machine(seed, mapped);
        disk.record_crashes();
        let mut history = History::new(fresh());
        drop(play(&disk, &making, mapped, &mut history));
        let crashed = disk.recorded_crashes();
        // In a job, or behind it.
        let at = crashed.len() * 9 / 10;
        let base = crashed[at].disk(seed, Down::Power);
        let look = base.fork(seed);
        let db = Db::open_in(options(Room::Little, mapped), &look.environment()).unwrap();
        let before = contents(&db).unwrap();
        let earlier = history.all();
        let mut acts = vec![Act::Open(Room::Little)];
        writes(&mut dice, 1, &mut acts);
        Workload {
            name: "recovery",
            seed,
            mapped,
            base,
            before,
            earlier,
            acts,
        }
    }

    /// Another disk to run it on.
    #[must_use]
    pub fn disk(&self, seed: u64) -> Disk {
        self.base.fork(seed)
    }

    /// An empty history of the store.
    #[must_use]
    pub fn history(&self) -> History {
        History {
            earlier: self.earlier.clone(),
            ..History::new(self.before.clone())
        }
    }

    /// Runs it on `disk`. A store that does not open is opened again, once the
    /// disk is healed; if it does not open then, nothing is returned. All errors
    /// are noted in the history.
    pub fn play(&self, disk: &Disk, history: &mut History) -> Option<Db> {
        play(disk, &self.acts, self.mapped, history)
    }

    /// The options of a store with such a fast tier.
    #[must_use]
    pub fn options(&self, room: Room) -> Options {
        options(room, self.mapped)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = if self.mapped { "mapped" } else { "plain" };
        write!(
            f,
            "seed {}, workload {} with a {log} log",
            self.seed, self.name
        )
    }
}

/// The options of every workload.
fn options(room: Room, mapped: bool) -> Options {
    let fast = Tier::new("fast", "/fast/store").block_bytes(512);
    let fast = match room {
        Room::Little => fast.capacity_bytes(12_000),
        Room::Plenty => fast.capacity_bytes(200_000),
    };
    Options::new()
        .tier(fast)
        .tier(Tier::new("slow", "/slow/store").block_bytes(512))
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(4 << 10)
        .first_level_bytes(8 << 10)
        .level_ratio(2)
        .newest_runs_merge(2)
        .log_segment_bytes(16 << 10)
        .log_bytes_max(32 << 10)
        .log_mapped(mapped)
        .block_cache_bytes(64 << 10)
        .reserve_bytes(0)
        .background_threads(0)
        .cuts(vec![b"k20".to_vec()])
}

/// What `acts` make of a machine, and what its store then holds.
fn made(disk: &Disk, acts: &[Act], mapped: bool) -> (Disk, Contents) {
    let mut history = History::new(fresh());
    drop(play(disk, acts, mapped, &mut history));
    assert!(history.errors.is_empty(), "{:?}", history.errors);
    (disk.fork(0), history.now())
}

/// Does `acts`, and returns the store, if it opened when it should.
fn play(disk: &Disk, acts: &[Act], mapped: bool, history: &mut History) -> Option<Db> {
    let mut db: Option<Db> = None;
    for act in acts {
        match (act, &db) {
            (Act::Open(room), _) => {
                if history.was_poisoned() {
                    history.reopened = history.tried.len();
                }
                drop(db.take());
                history.opened.push((disk.calls(), *room));
                let open = || Db::open_in(options(*room, mapped), &disk.environment());
                let opened = open().or_else(|e| {
                    history.errors.push(e);
                    disk.heal();
                    open()
                });
                match opened {
                    Ok(opened) => db = Some(opened),
                    Err(e) => {
                        history.errors.push(e);
                        return None;
                    }
                }
            }
            (Act::Close, Some(_)) => {
                if let Some(Err(e)) = db.take().map(Db::close) {
                    history.errors.push(e);
                }
            }
            (act, Some(db)) => history.act(db, act, disk),
            (_, None) => {}
        }
    }
    db
}

fn write(db: &Db, effects: &[Effect], durability: Durability) -> thermocline::Result<()> {
    let mut batch = WriteBatch::new();
    for effect in effects {
        match effect {
            Effect::Put(space, key, value) => batch.put_in(&db.keyspace(space)?, key, value)?,
            Effect::Delete(space, key) => batch.delete_in(&db.keyspace(space)?, key)?,
            Effect::DeleteRange(space, start, end) => {
                batch.delete_range_in(&db.keyspace(space)?, start, end)?;
            }
        }
    }
    db.write_with(&batch, WriteOptions::default().durability(durability))
}

fn load(db: &Db, space: &str, entries: &[(Vec<u8>, Vec<u8>)]) -> thermocline::Result<()> {
    let mut load = db.keyspace(space)?.bulk_load()?;
    for (key, value) in entries {
        load.add(key, value)?;
    }
    load.finish().map(drop)
}

/// Every state that one key may be in; `None` is absent.
type States = BTreeSet<Option<Vec<u8>>>;

impl History {
    fn new(before: Contents) -> History {
        History {
            before,
            earlier: Vec::new(),
            tried: Vec::new(),
            durable: Vec::new(),
            opened: Vec::new(),
            reopened: 0,
            done: BTreeSet::new(),
            errors: Vec::new(),
        }
    }

    fn act(&mut self, db: &Db, act: &Act, disk: &Disk) {
        let (step, durable) = match act {
            Act::Write(effects, durability) => (
                Some(Step::Batch(effects.clone())),
                *durability == Durability::Device,
            ),
            Act::Create(name, _) => (Some(Step::Create(name.clone())), true),
            Act::Drop(name) => (Some(Step::Drop(name.clone())), true),
            Act::Load(space, entries) => (Some(Step::Load(space.clone(), entries.clone())), true),
            Act::Flush | Act::Checkpoint(_) | Act::Compact => (None, true),
            _ => (None, false),
        };
        let tries = step.is_some();
        if let Some(step) = step {
            self.tried.push(Tried {
                step,
                from_call: disk.calls(),
                acknowledged: None,
            });
        }
        let done = match act {
            Act::Write(effects, durability) => write(db, effects, *durability),
            Act::Flush => db.flush(),
            Act::Step => db.step().map(drop),
            Act::Settle => db.settle(),
            Act::Compact => db.compact_range(None, None),
            Act::Create(name, cut) => {
                let options = KeyspaceOptions::default().cuts(vec![vec![b'm'; *cut]]);
                db.create_keyspace(name, options).map(drop)
            }
            Act::Drop(name) => db.drop_keyspace(name),
            Act::Load(space, entries) => load(db, space, entries),
            Act::Checkpoint(path) => db.checkpoint(Path::new(path)),
            Act::Open(_) | Act::Close => Ok(()),
        };
        for event in db.events(20).iter().filter(|e| e.error.is_none()) {
            let done = format!("{} {}", event.job, event.reason.rule);
            self.done.insert(done);
        }
        let names = disk.names(Path::new("/fast/store"));
        let manifests = names.into_iter().filter(|n| n.starts_with("MANIFEST-"));
        self.done.extend(manifests);
        match done {
            Ok(()) => {
                if tries && let Some(tried) = self.tried.last_mut() {
                    tried.acknowledged = Some(disk.calls());
                }
                if durable {
                    self.durable.push((disk.calls(), self.tried.len()));
                }
            }
            Err(e) => self.errors.push(e),
        }
    }

    fn was_poisoned(&self) -> bool {
        self.errors.iter().any(|e| e.kind() == ErrorKind::Poisoned)
    }

    /// What the store holds if everything tried has happened.
    fn now(&self) -> Contents {
        let mut now = self.before.clone();
        self.tried.iter().for_each(|t| take(&mut now, &t.step));
        now
    }

    /// Whether everything tried was acknowledged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.tried.iter().all(|t| t.acknowledged.is_some())
    }

    /// The room that the store had when the disk had done `calls` calls.
    #[must_use]
    pub fn room_at(&self, calls: u64) -> Room {
        let before = self.opened.iter().rev().find(|(at, _)| *at <= calls);
        before.map_or(Room::Little, |(_, room)| *room)
    }

    /// Every state that the store went through, oldest first.
    fn all(&self) -> Vec<Contents> {
        let mut state = self.before.clone();
        let mut all = vec![state.clone()];
        for tried in &self.tried {
            take(&mut state, &tried.step);
            all.push(state.clone());
        }
        all
    }

    /// The hash of every state that the store went through, oldest first.
    #[must_use]
    pub fn hashes(&self) -> Vec<u64> {
        self.all().iter().map(hash).collect()
    }

    /// Whether the store may have come to this state, if it began with any
    /// state that it had before.
    #[must_use]
    pub fn ever_was(&self, found: &Contents) -> bool {
        let mut starts = self.earlier.clone();
        starts.push(self.before.clone());
        starts.into_iter().any(|mut state| {
            state == *found
                || self.tried.iter().any(|tried| {
                    take(&mut state, &tried.step);
                    state == *found
                })
        })
    }

    /// Whether this value was ever written to that key, or was there before.
    #[must_use]
    pub fn ever(&self, space: &str, key: &[u8], value: &[u8]) -> bool {
        let mut before = self.earlier.iter().chain([&self.before]);
        before.any(|state| {
            state
                .get(space)
                .and_then(|e| e.get(key))
                .is_some_and(|v| v == value)
        }) || self.tried.iter().any(|tried| match &tried.step {
            Step::Batch(effects) => effects.iter().any(|effect| {
                matches!(effect, Effect::Put(s, k, v)
                        if s == space && k == key && v == value)
            }),
            Step::Load(s, entries) => {
                s == space && entries.iter().any(|(k, v)| k == key && v == value)
            }
            Step::Create(_) | Step::Drop(_) => false,
        })
    }

    /// The first and the last of these states that a crash at this call may
    /// leave.
    #[must_use]
    pub fn allowed_at(&self, calls: u64, down: Down) -> (usize, usize) {
        let last = self.tried.iter().filter(|t| t.from_call <= calls).count();
        let first = match down {
            Down::Kill => self
                .tried
                .iter()
                .filter(|t| t.acknowledged.is_some_and(|at| at <= calls))
                .count(),
            Down::Power => {
                let durable = self.durable.iter().filter(|(at, _)| *at <= calls);
                durable.map(|(_, steps)| *steps).max().unwrap_or(0)
            }
        };
        (first, last)
    }

    /// What a workload with errors left, key by key: what must be there, and
    /// what may be because a write of it failed. `surely` says whether
    /// everything acknowledged must be there, or only what is durable. Returns
    /// how many entries were compared.
    ///
    /// # Panics
    /// When something else is there.
    pub fn check(&self, db: &Db, surely: bool, context: &str) -> u64 {
        let found = contents(db).unwrap_or_else(|e| panic!("{context}: reading: {e}"));
        let (mut keys, mut spaces) = self.states(surely);
        let mut compared = 0;
        for (space, entries) in &found {
            let there = spaces.remove(space).unwrap_or_default();
            assert!(there.contains(&true), "{context}: keyspace {space} is back");
            for (key, value) in entries {
                let states = keys.remove(&(space.clone(), key.clone()));
                assert!(
                    states.is_some_and(|s| s.contains(&Some(value.clone()))),
                    "{context}: {space}/{} has {} bytes; errors {:?}",
                    key.escape_ascii(),
                    value.len(),
                    self.errors
                );
                compared += 1;
            }
        }
        for ((space, key), states) in keys {
            if found.contains_key(&space) {
                assert!(
                    states.contains(&None),
                    "{context}: {space}/{} is gone; errors {:?}",
                    key.escape_ascii(),
                    self.errors
                );
                compared += 1;
            }
        }
        for (space, there) in spaces {
            assert!(
                there.contains(&false),
                "{context}: keyspace {space} is gone"
            );
        }
        compared
    }

    /// The states that every key and every keyspace may be in.
    #[expect(clippy::type_complexity, reason = "two maps, taken apart at once")]
    fn states(
        &self,
        surely: bool,
    ) -> (
        BTreeMap<(String, Vec<u8>), States>,
        BTreeMap<String, BTreeSet<bool>>,
    ) {
        let mut keys = BTreeMap::new();
        let mut spaces = BTreeMap::new();
        for (space, entries) in &self.before {
            spaces.insert(space.clone(), BTreeSet::from([true]));
            for (key, value) in entries {
                let states = BTreeSet::from([Some(value.clone())]);
                keys.insert((space.clone(), key.clone()), states);
            }
        }
        // From `sure` on, steps are sure although they are not durable.
        let sure = if surely {
            self.reopened
        } else {
            self.tried.len()
        };
        let durable = self.durable.iter().map(|(_, steps)| *steps);
        let last_durable = durable.filter(|&d| d <= sure).max().unwrap_or(0);
        let mut now = self.before.clone();
        for (at, tried) in self.tried.iter().enumerate() {
            let happened = tried.acknowledged.is_some() && (at >= sure || at < last_durable);
            let before = now.clone();
            take_if_possible(&mut now, &tried.step);
            let mut note = |space: &str, key: &[u8], value: Option<Vec<u8>>| {
                let place = (space.to_string(), key.to_vec());
                let states: &mut States =
                    keys.entry(place).or_insert_with(|| BTreeSet::from([None]));
                if happened {
                    states.clear();
                }
                states.insert(value);
            };
            match &tried.step {
                Step::Batch(effects) => {
                    for effect in effects {
                        match effect {
                            Effect::Put(space, key, value) => {
                                note(space, key, Some(value.clone()));
                            }
                            Effect::Delete(space, key) => note(space, key, None),
                            Effect::DeleteRange(space, start, end) => {
                                let all = before.get(space).into_iter().flatten();
                                for (key, _) in all.filter(|(k, _)| *k >= start && *k < end) {
                                    note(space, key, None);
                                }
                            }
                        }
                    }
                }
                Step::Load(space, entries) => {
                    for (key, value) in entries {
                        note(space, key, Some(value.clone()));
                    }
                }
                Step::Create(name) | Step::Drop(name) => {
                    let made = matches!(tried.step, Step::Create(_));
                    let there = spaces
                        .entry(name.clone())
                        .or_insert_with(|| BTreeSet::from([false]));
                    if happened {
                        there.clear();
                    }
                    there.insert(made);
                }
            }
        }
        (keys, spaces)
    }
}

/// As [`take`], where a keyspace may be missing because making it failed.
fn take_if_possible(contents: &mut Contents, step: &Step) {
    let names: Vec<&String> = match step {
        Step::Batch(effects) => effects
            .iter()
            .map(|e| match e {
                Effect::Put(s, ..) | Effect::Delete(s, _) | Effect::DeleteRange(s, ..) => s,
            })
            .collect(),
        Step::Load(space, _) => vec![space],
        Step::Create(_) | Step::Drop(_) => Vec::new(),
    };
    if names.iter().all(|n| contents.contains_key(*n)) {
        take(contents, step);
    }
}
