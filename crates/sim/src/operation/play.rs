//! Does operations to a store and compares every answer with the oracle's.
//!
//! Counted as verified is an answer to a call that was compared: a value read
//! by key, a position of an iterator (key and value, or none left), the
//! acknowledgement of a write, a size within its bounds.

use std::ops::Bound;
use std::path::{Path, PathBuf};

use thermocline::store::Environment;
use thermocline::{Db, Iter, KeyspaceOptions, Options, Snapshot, WriteBatch, WriteOptions};

use crate::disk::Disk;
use crate::draw::{self, Place};
use crate::operation::{Direction, Keys, Move, Operation, Range, View};
use crate::oracle::{Bytes, Effect, Found, Oracle, SpaceId, Step, digest, show};
use crate::{Dice, Tally};

/// Most snapshots and iterators that are held at a time.
const HELD_MAX: usize = 5;
/// Steps after which versions that nobody can see are forgotten.
const FORGET_EVERY: u64 = 500;
/// Longer than the store waits until it counts as idle.
const REST: std::time::Duration = std::time::Duration::from_secs(6);
/// Jobs that follow each other without a write in between, at most: more is a
/// policy that goes round in circles.
const JOBS_MAX: u64 = 20_000;

/// Where the store lives.
#[derive(Clone, Debug)]
pub enum World {
    /// On a simulated disk, with its time.
    Simulated(Disk),
    /// On this machine.
    Real,
}

impl World {
    fn environment(&self) -> Environment {
        match self {
            World::Simulated(disk) => disk.environment(),
            World::Real => Environment::real(),
        }
    }

    fn remove(&self, path: &Path) {
        match self {
            World::Simulated(disk) => disk.remove_all(path),
            World::Real => std::fs::remove_dir_all(path).expect("the checkpoint was made there"),
        }
    }
}

struct Held {
    iter: Iter,
    space: SpaceId,
    at: u64,
    bounds: (Bound<Bytes>, Bound<Bytes>),
    /// Where the oracle says it stands.
    position: Option<Bytes>,
}

/// A store, what it must hold, and who reads it.
pub struct Player<'t> {
    world: World,
    place: Place,
    keys: Keys,
    options: Options,
    db: Option<Db>,
    oracle: Oracle,
    snapshots: Vec<(Snapshot, u64)>,
    iterators: Vec<Held>,
    /// The last checkpoint made, and the digest of what it holds.
    checkpoint: Option<(PathBuf, u64)>,
    checkpoints: u64,
    forgotten: u64,
    answers: u64,
    tally: &'t mut Tally,
}

impl std::fmt::Debug for Player<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut player = f.debug_struct("Player");
        player.field("options", &self.options);
        player
            .field("now", &self.oracle.now())
            .finish_non_exhaustive()
    }
}

fn as_slices(bounds: &(Bound<Bytes>, Bound<Bytes>)) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (
        bounds.0.as_ref().map(|b| &**b),
        bounds.1.as_ref().map(|b| &**b),
    )
}

/// The bounds of the keys that begin with `prefix`.
fn bounds_of_prefix(prefix: &[u8]) -> (Bound<Bytes>, Bound<Bytes>) {
    let start = Bound::Included(prefix.into());
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return (start, Bound::Excluded(end.into()));
        }
    }
    (start, Bound::Unbounded)
}

impl<'t> Player<'t> {
    /// A store that does not exist yet: [`Player::open`] makes it.
    #[must_use]
    pub fn new(
        world: World,
        place: Place,
        keys: Keys,
        options: Options,
        tally: &'t mut Tally,
    ) -> Player<'t> {
        Player {
            world,
            place,
            keys,
            options,
            db: None,
            oracle: Oracle::default(),
            snapshots: Vec::new(),
            iterators: Vec::new(),
            checkpoint: None,
            checkpoints: 0,
            forgotten: 0,
            answers: 0,
            tally,
        }
    }

    /// What the store must hold.
    pub fn oracle(&mut self) -> &mut Oracle {
        &mut self.oracle
    }

    /// What was done.
    pub fn tally(&mut self) -> &mut Tally {
        self.tally
    }

    /// A digest of every answer so far that all stores must give alike.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// Opens the store.
    ///
    /// # Errors
    /// Those of the store.
    pub fn open(&mut self) -> thermocline::Result<()> {
        assert!(self.db.is_none(), "it is open already");
        let opened = Db::open_in(self.options.clone(), &self.world.environment())?;
        self.db = Some(opened);
        Ok(())
    }

    /// Lets go of the store and of everything held, without asking how it went.
    pub fn leave(&mut self) {
        self.iterators.clear();
        self.snapshots.clear();
        self.db = None;
    }

    /// Reads the whole store.
    ///
    /// # Errors
    /// Those of the store.
    pub fn read_all(&self) -> thermocline::Result<Found> {
        Found::read(self.db())
    }

    /// The whole store against the oracle, when nothing was lost.
    ///
    /// # Errors
    /// Those of the store.
    pub fn check_all(&mut self) -> thermocline::Result<()> {
        let found = self.read_all()?;
        let compared = self.oracle.compare(&found);
        let compared = compared.unwrap_or_else(|e| panic!("contents differ: {e}"));
        // Each entry was shown in both directions.
        self.tally.operations += 2 * compared;
        Ok(())
    }

    /// The store.
    ///
    /// # Panics
    /// When it is not open.
    #[must_use]
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("it was opened")
    }

    fn snapshot(&self, pick: Option<u64>) -> Option<usize> {
        let count = self.snapshots.len() as u64;
        pick.filter(|_| count > 0).map(|p| (p % count) as usize)
    }

    /// The step that a view stands at.
    fn step_of(&self, view: &View) -> u64 {
        let snapshot = self.snapshot(view.at);
        snapshot.map_or(self.oracle.now(), |i| self.snapshots[i].1)
    }

    fn answer(&mut self, bytes: &[u8]) {
        self.answers = digest(self.answers, bytes);
        self.tally.operations += 1;
    }

    /// Does `operation`.
    ///
    /// # Errors
    /// What the store said.
    ///
    /// # Panics
    /// When an answer is not the oracle's.
    pub fn play(&mut self, operation: &Operation) -> thermocline::Result<()> {
        match operation {
            Operation::Write(effects, durability) => {
                let batch = self.batch(effects)?;
                self.oracle.add(&Step::Batch(effects.clone()));
                let options = WriteOptions::default().durability(*durability);
                self.db().write_with(&batch, options)?;
                let durable = *durability == thermocline::Durability::Device && !effects.is_empty();
                self.acknowledged(durable);
            }
            Operation::Get(view, key) => self.get(view, key)?,
            Operation::MultiGet(view, keys) => self.multi_get(view, keys)?,
            Operation::Scan(view, range, direction, most) => {
                let held = self.iterator(view, range)?;
                self.scan(held, *direction, *most)?;
            }
            Operation::Walk(view, range, moves) => {
                let mut held = self.iterator(view, range)?;
                self.walk(&mut held, moves)?;
            }
            Operation::Hold(view, range) => {
                let held = self.iterator(view, range)?;
                if self.iterators.len() == HELD_MAX {
                    self.iterators.remove(0);
                }
                self.iterators.push(held);
            }
            Operation::Resume(pick, moves) => {
                if let Some(at) = pick.checked_rem(self.iterators.len() as u64) {
                    let mut held = self.iterators.remove(at as usize);
                    self.walk(&mut held, moves)?;
                    self.iterators.push(held);
                }
            }
            Operation::Release(pick) => {
                if let Some(at) = pick.checked_rem(self.iterators.len() as u64) {
                    self.iterators.remove(at as usize);
                }
            }
            Operation::Snapshot => {
                if self.snapshots.len() == HELD_MAX {
                    self.snapshots.remove(1);
                }
                let snapshot = self.db().snapshot();
                self.snapshots.push((snapshot, self.oracle.now()));
            }
            Operation::Forget(pick) => {
                if let Some(at) = pick.checked_rem(self.snapshots.len() as u64) {
                    self.snapshots.swap_remove(at as usize);
                }
            }
            Operation::Load(name, entries) => self.load(name, entries)?,
            Operation::Create(name, cuts) => {
                self.oracle.add(&Step::Create(name.clone()));
                let options = KeyspaceOptions::default().cuts(cuts.clone());
                self.db().create_keyspace(name, options)?;
                self.acknowledged(true);
            }
            Operation::Drop(name) => {
                self.oracle.add(&Step::Drop(name.clone()));
                self.db().drop_keyspace(name)?;
                self.acknowledged(true);
            }
            Operation::Flush => self.db().flush()?,
            Operation::Compact(name, start, end) => {
                let space = self.db().keyspace(name)?;
                space.compact_range(start.as_deref(), end.as_deref())?;
            }
            Operation::Step(count) => self.steps(*count)?,
            Operation::Settle => self.settle()?,
            Operation::Rest => {
                if let World::Simulated(disk) = &self.world {
                    disk.pass_time(REST);
                }
                self.settle()?;
            }
            Operation::Persist => {
                self.db().persist()?;
                self.acknowledged(true);
            }
            Operation::Checkpoint => self.make_checkpoint()?,
            Operation::Size(name, start, end) => {
                let space = self.db().keyspace(name)?;
                let size = space.approximate_size(start, end)?;
                let whole: u64 = self.db().tables().iter().map(|t| t.data_bytes).sum();
                assert!(size <= whole, "{size} bytes of {whole}");
                self.tally.operations += 1;
            }
            Operation::Reopen(seed) => self.reopen(*seed)?,
        }
        if self.oracle.now() >= self.forgotten + FORGET_EVERY {
            self.forgotten = self.oracle.now();
            let snapshots = self.snapshots.iter().map(|s| s.1);
            let held = snapshots.chain(self.iterators.iter().map(|h| h.at));
            let oldest = held.min().unwrap_or(self.forgotten);
            self.oracle.forget_before(oldest);
        }
        Ok(())
    }

    fn acknowledged(&mut self, durable: bool) {
        self.oracle.acknowledge(durable);
        self.tally.operations += 1;
    }

    fn batch(&self, effects: &[Effect]) -> thermocline::Result<WriteBatch> {
        let db = self.db();
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
        Ok(batch)
    }

    fn get(&mut self, view: &View, key: &Bytes) -> thermocline::Result<()> {
        let space = self.db().keyspace(&view.space)?;
        let found = match self.snapshot(view.at) {
            Some(at) => self.snapshots[at].0.get_in(&space, key)?,
            None => space.get(key)?,
        };
        self.check_value(view, key, found.as_deref());
        Ok(())
    }

    fn check_value(&mut self, view: &View, key: &[u8], found: Option<&[u8]>) {
        let at = self.step_of(view);
        let space = self.oracle.space(&view.space);
        let wanted = self.oracle.get(space, key, at);
        assert!(
            wanted.map(|v| &**v) == found,
            "{}/{} at step {at}, now {}: expected {}, found {}",
            view.space,
            show(Some(key)),
            self.oracle.now(),
            show(wanted.map(|v| &**v)),
            show(found)
        );
        self.answer(found.unwrap_or(b"nothing"));
    }

    fn multi_get(&mut self, view: &View, keys: &[Bytes]) -> thermocline::Result<()> {
        let space = self.db().keyspace(&view.space)?;
        let borrowed: Vec<&[u8]> = keys.iter().map(|k| &**k).collect();
        let mut view = view.clone();
        let found = match self.snapshot(view.at) {
            Some(at) if view.space == thermocline::DEFAULT_KEYSPACE => {
                self.snapshots[at].0.multi_get(&borrowed)?
            }
            _ => {
                view.at = None;
                space.multi_get(&borrowed)?
            }
        };
        assert_eq!(found.len(), keys.len());
        for (key, value) in keys.iter().zip(&found) {
            self.check_value(&view, key, value.as_deref());
        }
        Ok(())
    }

    fn iterator(&self, view: &View, range: &Range) -> thermocline::Result<Held> {
        let space = self.db().keyspace(&view.space)?;
        let snapshot = self.snapshot(view.at).map(|at| &self.snapshots[at].0);
        let bounds = match range {
            Range::Between(start, end) => (start.clone(), end.clone()),
            Range::Prefix(prefix) => bounds_of_prefix(prefix),
        };
        let (start, end) = as_slices(&bounds);
        let is_default = view.space == thermocline::DEFAULT_KEYSPACE;
        let iter = match (range, snapshot) {
            (Range::Prefix(prefix), None) => space.prefix(prefix)?,
            (Range::Prefix(prefix), Some(snapshot)) if is_default => snapshot.prefix(prefix)?,
            (_, None) => space.range(start, end)?,
            (_, Some(snapshot)) => snapshot.range_in(&space, start, end)?,
        };
        Ok(Held {
            iter,
            space: self.oracle.space(&view.space),
            at: self.step_of(view),
            bounds,
            position: None,
        })
    }

    /// Reads on from one end, at most so many entries.
    fn scan(&mut self, held: Held, direction: Direction, most: usize) -> thermocline::Result<()> {
        let Held { mut iter, .. } = held;
        let mut range = self
            .oracle
            .range(held.space, as_slices(&held.bounds), held.at);
        let forward = direction == Direction::Forward;
        if forward {
            iter.seek_to_first()?;
        } else {
            iter.seek_to_last()?;
        }
        for _ in 0..most {
            let wanted = if forward {
                range.next()
            } else {
                range.next_back()
            };
            let wanted = wanted.map(|(key, value)| (&**key, &**value));
            let found = iter.valid().then(|| (iter.key(), iter.value()));
            self.tally.operations += 1;
            assert!(
                wanted == found,
                "a scan at step {}, now {}: expected {} with {}, found {} with {}",
                held.at,
                self.oracle.now(),
                show(wanted.map(|e| e.0)),
                show(wanted.map(|e| e.1)),
                show(found.map(|e| e.0)),
                show(found.map(|e| e.1))
            );
            let Some((key, value)) = found else {
                break;
            };
            self.answers = digest(digest(self.answers, key), value);
            if forward {
                iter.next()?;
            } else {
                iter.prev()?;
            }
        }
        Ok(())
    }

    /// Moves an iterator, and checks each position that it takes.
    fn walk(&mut self, held: &mut Held, moves: &[Move]) -> thermocline::Result<()> {
        for one in moves {
            match one {
                Move::Seek(key) => {
                    held.iter.seek(key)?;
                    self.check_position(held, Bound::Included(key), Bound::Unbounded);
                }
                Move::SeekForPrev(key) => {
                    held.iter.seek_for_prev(key)?;
                    self.check_position(held, Bound::Unbounded, Bound::Included(key));
                }
                Move::First => {
                    held.iter.seek_to_first()?;
                    self.check_position(held, Bound::Included(&[]), Bound::Unbounded);
                }
                Move::Last => {
                    held.iter.seek_to_last()?;
                    self.check_position(held, Bound::Unbounded, Bound::Unbounded);
                }
                Move::Next(count) => {
                    for _ in 0..*count {
                        held.iter.next()?;
                        let Some(key) = held.position.clone() else {
                            assert!(!held.iter.valid(), "it left nothing for something");
                            break;
                        };
                        self.check_position(held, Bound::Excluded(&key), Bound::Unbounded);
                    }
                }
                Move::Prev(count) => {
                    for _ in 0..*count {
                        held.iter.prev()?;
                        let Some(key) = held.position.clone() else {
                            assert!(!held.iter.valid(), "it left nothing for something");
                            break;
                        };
                        self.check_position(held, Bound::Unbounded, Bound::Excluded(&key));
                    }
                }
            }
        }
        Ok(())
    }

    /// It must stand on the entry next to `from` if that is given, else on the
    /// one before `to`, within its own bounds.
    fn check_position(&mut self, held: &mut Held, from: Bound<&[u8]>, to: Bound<&[u8]>) {
        let own = as_slices(&held.bounds);
        let forward = !matches!(from, Bound::Unbounded);
        let bounds = (later(own.0, from), earlier(own.1, to));
        let mut range = self.oracle.range(held.space, bounds, held.at);
        let wanted = if forward {
            range.next()
        } else {
            range.next_back()
        };
        let wanted = wanted.map(|(key, value)| (key.clone(), value.clone()));
        drop(range);
        let found = held.iter.valid();
        let found = found.then(|| (held.iter.key(), held.iter.value()));
        assert!(
            wanted.as_ref().map(|(k, v)| (&**k, &**v)) == found,
            "an iterator at step {}, now {}, from {from:?} to {to:?}: expected {} with {}, \
             found {} with {}",
            held.at,
            self.oracle.now(),
            show(wanted.as_ref().map(|e| &*e.0)),
            show(wanted.as_ref().map(|e| &*e.1)),
            show(found.map(|e| e.0)),
            show(found.map(|e| e.1))
        );
        let (key, value) = found.unwrap_or((b"", b"nothing"));
        self.answers = digest(self.answers, key);
        self.answer(value);
        held.position = wanted.map(|e| e.0);
    }

    fn load(&mut self, name: &str, entries: &[(Bytes, Bytes)]) -> thermocline::Result<()> {
        let space = self.db().keyspace(name)?;
        self.oracle
            .add(&Step::Load(name.to_string(), entries.to_vec()));
        let mut load = space.bulk_load()?;
        for (key, value) in entries {
            load.add(key, value)?;
        }
        let loaded = load.finish()?;
        assert_eq!(loaded, entries.len() as u64, "entries loaded");
        self.acknowledged(!entries.is_empty());
        Ok(())
    }

    fn steps(&mut self, count: u64) -> thermocline::Result<()> {
        for _ in 0..count {
            if !self.db().step()? {
                break;
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> thermocline::Result<()> {
        for _ in 0..JOBS_MAX {
            if !self.db().step()? {
                return Ok(());
            }
        }
        let last = self.db().events(4);
        panic!("{JOBS_MAX} jobs and no end; the last ones: {last:#?}");
    }

    fn make_checkpoint(&mut self) -> thermocline::Result<()> {
        self.remove_checkpoint();
        self.checkpoints += 1;
        let name = format!("checkpoint{}", self.checkpoints);
        let root = self
            .place
            .root
            .parent()
            .expect("the store lies in a directory");
        let path = root.join(name);
        self.db().checkpoint(&path)?;
        self.tally.operations += 1;
        self.checkpoint = Some((path, self.oracle.digest()));
        Ok(())
    }

    /// Opens the last checkpoint, if it was not looked at yet, and compares.
    ///
    /// # Panics
    /// When it does not open, or holds anything else than the store held.
    pub fn check_checkpoint(&mut self) {
        let Some((path, wanted)) = &self.checkpoint else {
            return;
        };
        let mut dice = Dice(*wanted);
        let options = draw::options(&mut dice, &self.place.at(path), &self.keys);
        let opened = Db::open_in(options, &self.world.environment());
        let found = opened.and_then(|db| Found::read(&db));
        let found = found.unwrap_or_else(|e| panic!("the checkpoint: {e}"));
        assert_eq!(found.digest(), *wanted, "the checkpoint differs");
        self.tally.operations += 2 * found.len();
        self.remove_checkpoint();
    }

    fn remove_checkpoint(&mut self) {
        if let Some((path, _)) = self.checkpoint.take() {
            self.world.remove(&path);
        }
    }

    /// Closes the store, and opens it with other options.
    fn reopen(&mut self, seed: u64) -> thermocline::Result<()> {
        let mut dice = Dice(seed);
        self.iterators.clear();
        self.snapshots.clear();
        let db = self.db.take().expect("it is open");
        if dice.percent(50) {
            db.close()?;
            // It says that the log is durable.
            self.acknowledged(true);
        } else {
            drop(db);
        }
        self.redraw(&mut dice);
        self.open()?;
        if dice.percent(50) {
            self.check_all()?;
        }
        Ok(())
    }

    /// Draws the options of the next opening.
    pub fn redraw(&mut self, dice: &mut Dice) {
        if dice.percent(20) {
            self.place = self.place.clone().with_one_more_tier();
        }
        self.options = draw::options(dice, &self.place, &self.keys);
    }
}

fn later<'a>(a: Bound<&'a [u8]>, b: Bound<&'a [u8]>) -> Bound<&'a [u8]> {
    match (a, b) {
        (Bound::Unbounded, other) | (other, Bound::Unbounded) => other,
        (Bound::Included(x) | Bound::Excluded(x), Bound::Included(y) | Bound::Excluded(y)) => {
            let strict = matches!(a, Bound::Excluded(_));
            if x > y || (x == y && strict) { a } else { b }
        }
    }
}

fn earlier<'a>(a: Bound<&'a [u8]>, b: Bound<&'a [u8]>) -> Bound<&'a [u8]> {
    match (a, b) {
        (Bound::Unbounded, other) | (other, Bound::Unbounded) => other,
        (Bound::Included(x) | Bound::Excluded(x), Bound::Included(y) | Bound::Excluded(y)) => {
            let strict = matches!(a, Bound::Excluded(_));
            if x < y || (x == y && strict) { a } else { b }
        }
    }
}
