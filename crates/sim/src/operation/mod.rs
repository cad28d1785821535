//! What is done to a store: operations drawn from dice, the same under every
//! option set, and the player that does them and compares every answer.

mod keys;
mod play;

use std::ops::Bound;

use thermocline::{DEFAULT_KEYSPACE, Durability};

use crate::Dice;
use crate::oracle::{Bytes, Effect};

pub use keys::Keys;
pub use play::{Player, World};

/// One operation. A `pick` names one of what is held, round and round; `at` a
/// snapshot in the same way, if one is held.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A batch.
    Write(Vec<Effect>, Durability),
    /// One key.
    Get(View, Bytes),
    /// Many keys.
    MultiGet(View, Vec<Bytes>),
    /// Entries of a range in one direction, at most so many.
    Scan(View, Range, Direction, usize),
    /// An iterator that goes to and fro.
    Walk(View, Range, Vec<Move>),
    /// An iterator is made and held.
    Hold(View, Range),
    /// One that is held goes on.
    Resume(u64, Vec<Move>),
    /// One that is held is dropped.
    Release(u64),
    /// A snapshot is taken.
    Snapshot,
    /// One that is held is dropped.
    Forget(u64),
    /// A bulk load, keys ascending.
    Load(String, Vec<(Bytes, Bytes)>),
    /// A keyspace with cuts is made.
    Create(String, Vec<Vec<u8>>),
    /// A keyspace is dropped.
    Drop(String),
    /// Everything in memory goes to tables.
    Flush,
    /// A range is merged down.
    Compact(String, Option<Bytes>, Option<Bytes>),
    /// So many background jobs.
    Step(u64),
    /// All background jobs that are wanted.
    Settle,
    /// Nothing happens for so long that the store counts as idle.
    Rest,
    /// Everything acknowledged becomes durable.
    Persist,
    /// A checkpoint is made; it holds what the store holds.
    Checkpoint,
    /// About how large a range is.
    Size(String, Bytes, Bytes),
    /// The store is closed and opened with other options, drawn from this seed.
    Reopen(u64),
}

/// What is read: a keyspace, now or as a snapshot sees it.
#[derive(Clone, Debug)]
pub struct View {
    /// The keyspace.
    pub space: String,
    /// Which snapshot.
    pub at: Option<u64>,
}

/// Which keys are read.
#[derive(Clone, Debug)]
pub enum Range {
    /// Between two bounds.
    Between(Bound<Bytes>, Bound<Bytes>),
    /// Those that begin so.
    Prefix(Bytes),
}

/// Where a scan goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Keys ascend.
    Forward,
    /// Keys descend.
    Backward,
}

/// One move of an iterator.
#[derive(Clone, Debug)]
pub enum Move {
    /// To the first key at or behind this one.
    Seek(Bytes),
    /// To the last key at or before this one.
    SeekForPrev(Bytes),
    /// To the first key.
    First,
    /// To the last key.
    Last,
    /// So many keys on.
    Next(u64),
    /// So many keys back.
    Prev(u64),
}

/// Draws operations.
#[derive(Debug)]
pub struct Generator {
    dice: Dice,
    keys: Keys,
    spaces: Vec<String>,
    /// Whether the next operation fills the store.
    fills: bool,
    /// Of a hundred operations, so many write.
    writes: u64,
    /// Of a hundred writes, so many are durable.
    durable: u64,
}

impl Generator {
    /// Operations on a store just made.
    #[must_use]
    pub fn new(mut dice: Dice, keys: Keys) -> Generator {
        Generator {
            writes: dice.one_of(&[20, 40, 60, 85]),
            durable: dice.one_of(&[0, 10, 50]),
            fills: dice.percent(60),
            dice,
            keys,
            spaces: vec![DEFAULT_KEYSPACE.to_string()],
        }
    }

    /// The store has these keyspaces now: a crash may have undone some.
    pub fn resume(&mut self, spaces: Vec<String>) {
        self.spaces = spaces;
    }

    /// The next one.
    pub fn draw(&mut self) -> Operation {
        if std::mem::take(&mut self.fills) {
            return self.load(self.keys.count());
        }
        if self.dice.percent(self.writes) {
            return self.write();
        }
        match self.dice.below(100) {
            0..=13 => Operation::Get(self.view(), self.key()),
            14..=21 => {
                let count = self.dice.below(60);
                Operation::MultiGet(self.view(), (0..count).map(|_| self.key()).collect())
            }
            22..=33 => {
                let direction = self.dice.one_of(&[Direction::Forward, Direction::Backward]);
                let most = self.dice.one_of(&[3, 30, 5000, 5000]);
                Operation::Scan(self.view(), self.range(), direction, most)
            }
            34..=39 => Operation::Walk(self.view(), self.range(), self.moves()),
            40..=42 => Operation::Hold(self.view(), self.range()),
            43..=48 => Operation::Resume(self.dice.next(), self.moves()),
            49 => Operation::Release(self.dice.next()),
            50..=52 => Operation::Snapshot,
            53 => Operation::Forget(self.dice.next()),
            54..=56 => {
                let most = self.dice.one_of(&[2, 30, 100]);
                let count = self.dice.below(most);
                self.load(count)
            }
            57..=58 => self.create_or_drop(),
            59..=63 => Operation::Flush,
            64..=65 => {
                let (start, end) = self.keys.pair(&mut self.dice);
                let start = self.dice.percent(60).then_some(start);
                let end = self.dice.percent(60).then_some(end);
                Operation::Compact(self.space(), start, end)
            }
            66..=90 => Operation::Step(self.dice.below(3) + 1),
            91 => Operation::Settle,
            92 => Operation::Rest,
            93..=94 => Operation::Persist,
            95..=97 => {
                let (start, end) = self.keys.pair(&mut self.dice);
                Operation::Size(self.space(), start, end)
            }
            98 => Operation::Checkpoint,
            _ => Operation::Reopen(self.dice.next()),
        }
    }

    fn key(&mut self) -> Bytes {
        self.keys.key(&mut self.dice)
    }

    fn space(&mut self) -> String {
        if self.dice.percent(60) {
            return DEFAULT_KEYSPACE.to_string();
        }
        let at = self.dice.below(self.spaces.len() as u64) as usize;
        self.spaces[at].clone()
    }

    fn view(&mut self) -> View {
        View {
            space: self.space(),
            at: self.dice.percent(40).then(|| self.dice.next()),
        }
    }

    fn bound(&mut self, key: Bytes) -> Bound<Bytes> {
        match self.dice.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(key),
            _ => Bound::Included(key),
        }
    }

    fn range(&mut self) -> Range {
        if self.dice.percent(25) {
            return Range::Prefix(self.keys.prefix(&mut self.dice));
        }
        if self.dice.percent(50) {
            return Range::Between(Bound::Unbounded, Bound::Unbounded);
        }
        let (start, end) = (self.key(), self.key());
        let (start, end) = if start <= end {
            (start, end)
        } else {
            (end, start)
        };
        if start == end {
            // Both bounds excluded would be refused: nothing lies between.
            return Range::Between(Bound::Included(start), self.bound(end));
        }
        Range::Between(self.bound(start), self.bound(end))
    }

    fn moves(&mut self) -> Vec<Move> {
        let count = self.dice.below(8) + 1;
        let one = |_| match self.dice.below(10) {
            0 | 1 => Move::Seek(self.key()),
            2 | 3 => Move::SeekForPrev(self.key()),
            4 => Move::First,
            5 => Move::Last,
            6 | 7 => Move::Next(self.dice.below(6) + 1),
            _ => Move::Prev(self.dice.below(6) + 1),
        };
        (0..count).map(one).collect()
    }

    fn write(&mut self) -> Operation {
        let count = match self.dice.below(20) {
            0..=13 => 1,
            14..=18 => self.dice.below(12) + 1,
            _ => self.dice.below(80),
        };
        let effects = (0..count).map(|_| self.effect()).collect();
        let durability = if self.dice.percent(self.durable) {
            Durability::Device
        } else {
            Durability::OperatingSystem
        };
        Operation::Write(effects, durability)
    }

    fn effect(&mut self) -> Effect {
        let space = self.space();
        match self.dice.below(60) {
            0..=9 => Effect::Delete(space, self.key()),
            10 => {
                let (start, end) = self.keys.pair(&mut self.dice);
                Effect::DeleteRange(space, start, end)
            }
            _ => Effect::Put(space, self.key(), self.keys.value(&mut self.dice)),
        }
    }

    fn load(&mut self, count: u64) -> Operation {
        let mut keys: Vec<_> = (0..count).map(|_| self.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        let entries = keys.into_iter();
        let entries = entries.map(|key| (key, self.keys.value(&mut self.dice)));
        let entries = entries.collect();
        Operation::Load(self.space(), entries)
    }

    fn create_or_drop(&mut self) -> Operation {
        let name = format!("space{}", self.dice.below(4));
        if let Some(at) = self.spaces.iter().position(|s| *s == name) {
            self.spaces.remove(at);
            return Operation::Drop(name);
        }
        self.spaces.push(name.clone());
        Operation::Create(name, self.keys.cuts(&mut self.dice, 4))
    }
}
