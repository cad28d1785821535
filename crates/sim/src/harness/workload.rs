//! Fixed series of operations that together reach every kind of I/O the engine
//! does: flush, merge, relocation down and up, merges that bring what is hot to the
//! fast tier and what is cold to the slow one, manifest compaction, keyspaces made
//! and dropped, bulk load, checkpoint, close and recovery. Short, so that every
//! single call of them can be made to fail.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use thermocline::{
    Db, DeviceProfile, Durability, ErrorKind, KeyspaceOptions, LookupIndex, Options, Tier,
    WriteBatch, WriteOptions,
};

use super::history::{History, Tried};
use crate::Dice;
use crate::contents::{Contents, Effect, Step, contents, fresh};
use crate::disk::{Disk, Down};

mod cuts;
mod folds;
mod shrunk;

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
    /// Reads these keys, so often each.
    Read(Vec<String>, u32),
    /// Lets so many seconds pass.
    Pass(u64),
    /// Moves memory to tables.
    Flush,
    /// One background job, if there is one.
    Step,
    /// All background jobs.
    Settle,
    /// Sets the cost target that a room stands for.
    Tune(Room),
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

/// What the options of a workload differ in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Setting {
    /// Whether the log is written through a map.
    mapped: bool,
    shape: Shape,
}

/// Where tables lie, and what a room stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// Levels fill tiers (`leveled`); a room is the fast tier's capacity.
    Levels,
    /// By temperature and price (`mutant`); a room is a cost target.
    Priced,
    /// In overlapping fast levels and a slow one (`logstore`); a room is the share of
    /// the fast ones.
    Staged,
    /// The same, with parts whose cuts move.
    Passing,
    /// In parts that are cut by the first keys (`ohdb`), log and newest levels on the slow
    /// tier; a room is the fast tier's capacity, and on which tier the manifest lies.
    Parted,
    /// In parts whose cuts move with the writes (`nova`); a room is the fast tier's
    /// capacity.
    Moving,
    /// As `Levels`, but memtables with few keys are folded.
    Folded,
    /// As `Levels`, but a room is memory.
    Shrunk,
}

/// A store made beforehand, and what is done to it.
pub struct Workload {
    /// Its name, for messages.
    pub name: &'static str,
    seed: u64,
    setting: Setting,
    base: Disk,
    /// What the store holds before.
    before: Contents,
    /// Values and states of before, of which a lie may bring some back.
    earlier: Vec<Contents>,
    acts: Vec<Act>,
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

impl Setting {
    /// Levels fill tiers.
    fn plain(mapped: bool) -> Setting {
        Setting {
            mapped,
            shape: Shape::Levels,
        }
    }
}

impl Workload {
    /// All of them but the large one ([`Workload::shrunk`]); `seed` draws keys and values.
    #[must_use]
    pub fn all(seed: u64) -> Vec<Workload> {
        vec![
            Workload::life(seed, false),
            Workload::life(seed, true),
            Workload::moves(seed, true),
            Workload::prices(seed, false),
            Workload::stages(seed, true),
            Workload::parts(seed, true),
            Workload::cuts(seed, false),
            Workload::passes(seed, true),
            Workload::folds(seed, true),
            Workload::hot(seed, true),
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
        // Only in the log, and older than what is durable at once.
        let last = |n| Act::Write(vec![put(key(n), vec![9; 90])], Durability::OperatingSystem);
        acts.push(last(5));
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
        acts.extend([
            Act::Flush,
            Act::Step,
            last(6),
            Act::Drop("other".into()),
            Act::Step,
        ]);
        writes(&mut dice, 3, &mut acts);
        acts.extend([
            Act::Compact,
            Act::Checkpoint("/fast/backup"),
            Act::Close,
            Act::Open(Room::Little),
        ]);
        writes(&mut dice, 1, &mut acts);
        Workload::of_a_new_store("life", seed, Setting::plain(mapped), acts)
    }

    /// A store whose tables must move down, and then up again.
    #[must_use]
    pub fn moves(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed ^ 1);
        let mut making = loaded(&mut dice);
        making.extend([Act::Compact, Act::Close]);
        let setting = Setting::plain(mapped);
        let (base, before) = made(&machine(seed, mapped), &making, setting);
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
            setting,
            base,
            before,
            earlier: Vec::new(),
            acts,
        }
    }

    /// A store whose cost target is lowered and raised again, at an opening and
    /// while it is open.
    #[must_use]
    pub fn prices(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed ^ 3);
        let setting = Setting {
            mapped,
            shape: Shape::Priced,
        };
        let mut making = loaded(&mut dice);
        making.extend([Act::Compact, Act::Settle, Act::Close]);
        let (base, before) = made(&machine(seed, mapped), &making, setting);
        let mut acts = vec![Act::Open(Room::Little), Act::Settle];
        writes(&mut dice, 1, &mut acts);
        acts.extend([Act::Tune(Room::Plenty), Act::Settle, Act::Flush]);
        acts.extend([Act::Tune(Room::Little), Act::Step, Act::Compact]);
        writes(&mut dice, 1, &mut acts);
        acts.extend([Act::Close, Act::Open(Room::Plenty), Act::Settle]);
        writes(&mut dice, 1, &mut acts);
        Workload {
            name: "prices",
            seed,
            setting,
            base,
            before,
            earlier: Vec::new(),
            acts,
        }
    }

    /// A store whose hot tables come up by merges, whose cold ones go down by them,
    /// and whose fast levels are merged among themselves.
    #[must_use]
    pub fn stages(seed: u64, mapped: bool) -> Workload {
        let mut dice = Dice(seed ^ 4);
        let setting = Setting {
            mapped,
            shape: Shape::Staged,
        };
        let mut making = loaded(&mut dice);
        making.extend([Act::Compact, Act::Close]);
        let (base, before) = made(&machine(seed, mapped), &making, setting);
        let mut acts = vec![Act::Open(Room::Little)];
        for count in [2, 2, 1] {
            writes(&mut dice, count, &mut acts);
            acts.push(Act::Flush);
        }
        // The first finds room on the fast tier. The second must win it.
        for (hot, times) in [(3, 4), (21, 8)] {
            let keys = (hot..hot + 3).map(|n| format!("k{n:02}m"));
            acts.push(Act::Read(keys.collect(), times));
            acts.extend([Act::Pass(20), Act::Settle]);
        }
        writes(&mut dice, 1, &mut acts);
        Workload {
            name: "stages",
            seed,
            setting,
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
        let setting = Setting::plain(mapped);
        drop(play(&disk, &making, setting, &mut history));
        let crashed = disk.recorded_crashes();
        // In a job, or behind it.
        let at = crashed.len() * 9 / 10;
        let base = crashed[at].disk(seed, Down::Power);
        let look = base.fork(seed);
        let db = Db::open_in(options(Room::Little, setting), &look.environment()).unwrap();
        let before = contents(&db).unwrap();
        let earlier = history.all();
        let mut acts = vec![Act::Open(Room::Little)];
        writes(&mut dice, 1, &mut acts);
        Workload {
            name: "recovery",
            seed,
            setting,
            base,
            before,
            earlier,
            acts,
        }
    }

    /// What begins on an empty machine.
    fn of_a_new_store(name: &'static str, seed: u64, setting: Setting, acts: Vec<Act>) -> Workload {
        Workload {
            name,
            seed,
            setting,
            base: machine(seed, setting.mapped),
            before: fresh(),
            earlier: Vec::new(),
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
        play(disk, &self.acts, self.setting, history)
    }

    /// The options of a store with such a fast tier.
    #[must_use]
    pub fn options(&self, room: Room) -> Options {
        options(room, self.setting)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = if self.setting.mapped {
            "mapped"
        } else {
            "plain"
        };
        write!(
            f,
            "seed {}, workload {} with a {log} log",
            self.seed, self.name
        )
    }
}

/// The options of every workload.
fn options(room: Room, setting: Setting) -> Options {
    let options = plain_options(room, setting.mapped);
    match setting.shape {
        Shape::Levels => options,
        Shape::Shrunk => shrunk::options(room, options),
        Shape::Folded => options.fold_keys_max(50).lookup_index(LookupIndex::On),
        Shape::Priced => {
            let tier = |name: &str, price| {
                let tier = Tier::new(name, format!("/{name}/store"));
                tier.block_bytes(512).price_usd_gb_month(price)
            };
            options
                .with_tiers(vec![tier("fast", 0.5), tier("slow", 0.05)])
                .preset("mutant")
                .cost_target_usd_per_gb_month(target(room))
                .migration_cool_down_s(0)
        }
        Shape::Parted => options
            .preset("ohdb")
            .cuts(Vec::new())
            .partitions(4)
            .flush_together_bytes_min(1)
            .log_tier("slow")
            .event_tier("slow")
            .newest_tier("slow")
            .manifest_tier(match room {
                Room::Little => "fast",
                Room::Plenty => "slow",
            }),
        Shape::Moving => options
            .preset("nova")
            .cuts(Vec::new())
            .partitions(4)
            .tiny_ranges(4)
            .recut_writes(16)
            .lookup_index(LookupIndex::On),
        Shape::Passing => self::options(
            room,
            Setting {
                shape: Shape::Staged,
                ..setting
            },
        )
        .moving_cuts(true)
        .cuts(Vec::new())
        .partitions(4)
        .tiny_ranges(4)
        .recut_writes(16),
        Shape::Staged => {
            let tier = |name: &str, random_read_iops, sequential_mb_s| {
                let tier = Tier::new(name, format!("/{name}/store"));
                tier.block_bytes(512).profile(DeviceProfile {
                    random_read_iops,
                    sequential_mb_s,
                })
            };
            options
                .with_tiers(vec![tier("fast", 6000.0, 480.0), tier("slow", 60.0, 150.0)])
                .preset("logstore")
                .fast_share(match room {
                    Room::Little => 0.3,
                    Room::Plenty => 0.7,
                })
                // So that reads reach the tables, and heat them.
                .block_cache_bytes(0)
        }
    }
}

/// The cost target that a room stands for, in USD per GB and month.
fn target(room: Room) -> f64 {
    match room {
        Room::Little => 0.2,
        Room::Plenty => 0.45,
    }
}

fn plain_options(room: Room, mapped: bool) -> Options {
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

/// Makes a store of several tables more than little room takes.
fn loaded(dice: &mut Dice) -> Vec<Act> {
    let entry = |n: u64| (format!("k{n:02}m").into_bytes(), vec![n as u8; 800]);
    let entries = (0..30).map(entry).collect();
    let mut acts = vec![
        Act::Open(Room::Plenty),
        Act::Load("default".into(), entries),
    ];
    writes(dice, 8, &mut acts);
    acts
}

/// What `acts` make of a machine, and what its store then holds.
fn made(disk: &Disk, acts: &[Act], setting: Setting) -> (Disk, Contents) {
    let mut history = History::new(fresh());
    drop(play(disk, acts, setting, &mut history));
    assert!(history.errors.is_empty(), "{:?}", history.errors);
    (disk.fork(0), history.now())
}

/// Does `acts`, and returns the store, if it opened when it should.
fn play(disk: &Disk, acts: &[Act], setting: Setting, history: &mut History) -> Option<Db> {
    let mut db: Option<Db> = None;
    for act in acts {
        match (act, &db) {
            (Act::Open(room), _) => {
                // As dropping it does, which has nobody to tell: a sync that failed then may
                // have lost what was not durable, as a poisoned store may.
                let closed = db.take().map(Db::close);
                if history.was_poisoned() || matches!(closed, Some(Err(_))) {
                    history.reopened = history.tried.len();
                }
                history
                    .errors
                    .extend(closed.and_then(thermocline::Result::err));
                history.opened.push((disk.calls(), *room));
                let open = || Db::open_in(options(*room, setting), &disk.environment());
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
            (act, Some(db)) => self::act(history, db, act, disk),
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

fn read(db: &Db, keys: &[String], times: u32) -> thermocline::Result<()> {
    for _ in 0..times {
        for key in keys {
            db.get(key.as_bytes())?;
        }
    }
    Ok(())
}

fn load(db: &Db, space: &str, entries: &[(Vec<u8>, Vec<u8>)]) -> thermocline::Result<()> {
    let mut load = db.keyspace(space)?.bulk_load()?;
    for (key, value) in entries {
        load.add(key, value)?;
    }
    load.finish().map(drop)
}

/// Does `act` and notes what came of it.
fn act(history: &mut History, db: &Db, act: &Act, disk: &Disk) {
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
        history.tried.push(Tried {
            step,
            from_call: disk.calls(),
            acknowledged: None,
        });
    }
    let done = match act {
        Act::Write(effects, durability) => write(db, effects, *durability),
        Act::Read(keys, times) => read(db, keys, *times),
        Act::Pass(seconds) => {
            disk.pass_time(Duration::from_secs(*seconds));
            Ok(())
        }
        Act::Flush => db.flush(),
        Act::Step => db.step().map(drop),
        Act::Settle => db.settle(),
        Act::Tune(room) => match db.set_cost_target(Some(target(*room))) {
            // What is stored may be more than the fast tier can make so dear.
            Err(e) if e.kind() == ErrorKind::InvalidArgument => Ok(()),
            done => done,
        },
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
        // One that found nothing to do is none.
        let kept = match event.what.starts_with("left as it is") {
            true => "no ",
            false => "",
        };
        let together = match event.job == "flush" && event.what.contains(" parts, ") {
            true => " together",
            false => "",
        };
        let done = format!("{kept}{} {}{together}", event.job, event.reason.rule);
        history.done.insert(done);
    }
    let names = ["/fast/store", "/slow/store"].map(|tier| disk.names(Path::new(tier)));
    let manifests = names.into_iter().flatten();
    history
        .done
        .extend(manifests.filter(|n| n.starts_with("MANIFEST-")));
    match done {
        Ok(()) => {
            if tries && let Some(tried) = history.tried.last_mut() {
                tried.acknowledged = Some(disk.calls());
            }
            if durable {
                history.durable.push((disk.calls(), history.tried.len()));
            }
        }
        Err(e) => history.errors.push(e),
    }
}
