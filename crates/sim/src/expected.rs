//! What a killed process must have left behind: the work of each writer as a
//! function of the seed, and the file in which it says how far it is.
//!
//! Operation `n` of writer `w` follows from the seed alone, and ends by setting
//! the writer's counter to `n` in the same batch. So the store itself says how
//! far a writer came, its whole content follows from these counters, and any
//! batch by half, gap, loss or return of the dead makes the contents differ.
//!
//! The file lies outside the store and is written plainly, eight bytes a call,
//! which survives the death of the process. A writer notes the number that it
//! is about to try, and after the acknowledgement that it is done.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thermocline::{Compression, Db, Options, Tier};

use crate::Dice;
use crate::contents::Contents;

/// Threads that write batches.
pub(crate) const WRITERS: u64 = 3;
/// The one that bulk loads, counted behind the writers.
pub(crate) const LOADER: u64 = WRITERS;
/// Keys of a writer in each of its two keyspaces.
const KEYS: u64 = 150;
/// Keys of a bulk load.
const LOADED_KEYS: u64 = 40;
/// The keyspaces beside the default one.
pub(crate) const SECOND: &str = "second";
/// The bulk loader's.
pub(crate) const LOADED: &str = "loaded";

/// What the worker is doing, so that it can be killed in the middle of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Phase {
    Start = 0,
    Opening = 1,
    Writing = 2,
    Checkpoint = 3,
    BulkLoad = 4,
    CompactRange = 5,
    Flush = 6,
}

impl Phase {
    pub(crate) const ALL: [Phase; 7] = [
        Phase::Start,
        Phase::Opening,
        Phase::Writing,
        Phase::Checkpoint,
        Phase::BulkLoad,
        Phase::CompactRange,
        Phase::Flush,
    ];

    /// As the tally names a kill in it.
    pub(crate) fn kill_name(self) -> &'static str {
        match self {
            Phase::Start => "kill-before-opening",
            Phase::Opening => "kill-opening",
            Phase::Writing => "kill-writing",
            Phase::Checkpoint => "kill-checkpoint",
            Phase::BulkLoad => "kill-bulk-load",
            Phase::CompactRange => "kill-compact-range",
            Phase::Flush => "kill-flush",
        }
    }
}

/// A number in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    Phase,
    /// The number of the last complete checkpoint.
    Checkpoint,
    /// Answers that the worker has compared by itself.
    Compared,
    Flushes,
    Merges,
    Relocations,
    /// Errors of the store that were expected.
    Refused,
    /// The operation that a writer is about to try.
    Pending(u64),
    /// The last one that was acknowledged.
    Acknowledged(u64),
}

impl Field {
    fn offset(self) -> u64 {
        let at = match self {
            Field::Phase => 0,
            Field::Checkpoint => 1,
            Field::Compared => 2,
            Field::Flushes => 3,
            Field::Merges => 4,
            Field::Relocations => 5,
            Field::Refused => 6,
            Field::Pending(writer) => 8 + 2 * writer,
            Field::Acknowledged(writer) => 9 + 2 * writer,
        };
        8 * at
    }
}

/// The expected-state file.
#[derive(Debug)]
pub(crate) struct Expected(File);

impl Expected {
    pub(crate) fn open(root: &Path) -> io::Result<Expected> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        Ok(Expected(options.open(root.join("expected"))?))
    }

    pub(crate) fn set(&self, field: Field, number: u64) {
        let written = self.0.write_all_at(&number.to_le_bytes(), field.offset());
        written.expect("the expected-state file lies on a device that works");
    }

    /// 0 where nothing was written yet.
    pub(crate) fn get(&self, field: Field) -> u64 {
        let mut bytes = [0; 8];
        match self.0.read_exact_at(&mut bytes, field.offset()) {
            Ok(()) => u64::from_le_bytes(bytes),
            Err(_) => 0,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        let number = self.get(Field::Phase);
        let known = Phase::ALL.into_iter().find(|&p| p as u64 == number);
        known.unwrap_or(Phase::Start)
    }
}

/// Where the store of a run lies.
pub(crate) fn tier_paths(root: &Path) -> [PathBuf; 2] {
    [root.join("fast"), root.join("slow")]
}

/// A small store of two tiers, so that everything happens often.
pub(crate) fn options(root: &Path, seed: u64) -> Options {
    let mut dice = Dice(seed ^ 0x6f70_7469);
    let [fast, slow] = tier_paths(root);
    let fast = Tier::new("fast", fast)
        .capacity_bytes(150_000)
        .block_bytes(512)
        .direct_io(dice.percent(30));
    let compression = dice.one_of(&[Compression::None, Compression::Lz4, Compression::Zstd]);
    let slow = Tier::new("slow", slow)
        .block_bytes(1024)
        .compression(compression);
    let cuts = if dice.percent(50) {
        vec![b"w1".to_vec()]
    } else {
        Vec::new()
    };
    Options::new()
        .tier(fast)
        .tier(slow)
        .cuts(cuts)
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(16 << 10)
        .first_level_bytes(32 << 10)
        .level_ratio(3)
        .newest_runs_merge(2)
        .newest_runs_stop(12)
        .log_segment_bytes(dice.one_of(&[16 << 10, 64 << 10]))
        .log_bytes_max(256 << 10)
        .log_mapped(dice.percent(70))
        .block_cache_bytes(64 << 10)
        .pinned_meta_bytes(16 << 10)
        .reserve_bytes(4 << 10)
        .background_threads(dice.one_of(&[1, 2, 3]))
}

/// One change of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Put { second: bool, key: u64 },
    Delete { second: bool, key: u64 },
    DeleteRange { second: bool, from: u64, to: u64 },
}

/// Operation `n` of `writer`.
pub(crate) fn operation(seed: u64, writer: u64, n: u64) -> Vec<Change> {
    let mut dice = Dice(seed ^ (writer << 56) ^ n.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let second = dice.percent(30);
    if dice.percent(8) {
        let from = dice.below(KEYS - 1);
        let to = from + 1 + dice.below((KEYS - from - 1).min(12));
        return vec![Change::DeleteRange { second, from, to }];
    }
    let count = if dice.percent(4) {
        50
    } else {
        1 + dice.below(5)
    };
    (0..count)
        .map(|_| {
            let second = dice.percent(30);
            let key = dice.below(KEYS);
            if dice.percent(15) {
                Change::Delete { second, key }
            } else {
                Change::Put { second, key }
            }
        })
        .collect()
}

pub(crate) fn key(writer: u64, key: u64) -> Vec<u8> {
    format!("w{writer}/{key:04}").into_bytes()
}

pub(crate) fn counter_key(writer: u64) -> Vec<u8> {
    format!("w{writer}").into_bytes()
}

/// What operation `n` of `writer` puts under `key`.
pub(crate) fn value(writer: u64, key: u64, n: u64) -> Vec<u8> {
    let mut dice = Dice(writer << 48 ^ key << 32 ^ n);
    let length = if dice.percent(3) { 3000 } else { 200 };
    let length = 8 + dice.below(length) as usize;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&dice.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// What one writer's keys hold after some of its operations.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    seed: u64,
    writer: u64,
    pub(crate) done: u64,
    /// Keyspace and key, with the operation that put it.
    puts: BTreeMap<(bool, u64), u64>,
}

impl Model {
    pub(crate) fn new(seed: u64, writer: u64) -> Model {
        Model {
            seed,
            writer,
            done: 0,
            puts: BTreeMap::new(),
        }
    }

    pub(crate) fn advance(&mut self, to: u64) {
        while self.done < to {
            self.done += 1;
            if self.writer == LOADER {
                continue;
            }
            for change in operation(self.seed, self.writer, self.done) {
                match change {
                    Change::Put { second, key } => {
                        self.puts.insert((second, key), self.done);
                    }
                    Change::Delete { second, key } => {
                        self.puts.remove(&(second, key));
                    }
                    Change::DeleteRange { second, from, to } => {
                        self.puts
                            .retain(|&(s, k), _| s != second || k < from || k >= to);
                    }
                }
            }
        }
    }

    /// Its keys and values in one of its keyspaces, in order.
    pub(crate) fn entries(&self, second: bool) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let mine = self.puts.range((second, 0)..(second, u64::MAX));
        mine.map(|(&(_, k), &n)| (key(self.writer, k), value(self.writer, k, n)))
    }
}

/// The entries of bulk load `n`, in order.
pub(crate) fn load(n: u64) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let counter = (counter_key(LOADER), n.to_le_bytes().to_vec());
    let keys = (0..LOADED_KEYS).map(move |k| (key(LOADER, k), value(LOADER, k, n)));
    std::iter::once(counter).chain(keys)
}

/// Everything that a store holds when the writers are where `models` are.
/// `spaces` are the keyspaces that are there.
pub(crate) fn whole(models: &[Model], spaces: &[String]) -> Contents {
    let mut all = Contents::new();
    for name in spaces {
        let entries = all.entry(name.clone()).or_default();
        if name == LOADED {
            let loaded = &models[LOADER as usize];
            if loaded.done > 0 {
                entries.extend(load(loaded.done));
            }
            continue;
        }
        for model in &models[..WRITERS as usize] {
            entries.extend(model.entries(name == SECOND));
            if name != SECOND && model.done > 0 {
                let counter = model.done.to_le_bytes().to_vec();
                entries.insert(counter_key(model.writer), counter);
            }
        }
    }
    all
}

/// How far a writer came, by what the store holds.
pub(crate) fn counter(db: &Db, writer: u64) -> thermocline::Result<u64> {
    let space = if writer == LOADER { LOADED } else { "default" };
    let Ok(space) = db.keyspace(space) else {
        return Ok(0);
    };
    let found = space.get(&counter_key(writer))?;
    let number = found.as_deref().and_then(|v| v.first_chunk());
    Ok(number.map_or(0, |v| u64::from_le_bytes(*v)))
}
