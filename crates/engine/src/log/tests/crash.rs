//! Machine crashes: any subset of what was not synced survives.

use std::collections::BTreeMap;

use super::*;

/// Writes survive or not in pieces of this size; sizes of files on their own.
const PIECE_BYTES: usize = 24;

type Files = BTreeMap<String, Vec<u8>>;

fn read_files(directory: &Path) -> Files {
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// What a crash may leave between what was `durable` and what is `now`.
fn crashed(random: &mut Random, durable: &Files, now: &Files) -> Files {
    let mut left = Files::new();
    // How likely an unsynced piece is to survive, drawn for each crash.
    let odds = [0, 1, 5, 9, 10][random.below(5) as usize];
    let survives = |random: &mut Random| random.below(10) < odds;
    for (name, bytes) in now {
        let Some(old) = durable.get(name) else {
            if !survives(random) {
                continue;
            }
            left.insert(name.clone(), mix(random, &[], bytes, odds));
            continue;
        };
        left.insert(name.clone(), mix(random, old, bytes, odds));
    }
    // Deletions that did not get through.
    for (name, bytes) in durable {
        if !now.contains_key(name) && random.below(2) == 0 {
            left.insert(name.clone(), bytes.clone());
        }
    }
    left
}

fn mix(random: &mut Random, old: &[u8], new: &[u8], odds: u64) -> Vec<u8> {
    let size = match random.below(3) {
        0 => old.len(),
        1 => new.len(),
        _ => {
            let (low, high) = (old.len().min(new.len()), old.len().max(new.len()));
            low + random.below((high - low + 1) as u64) as usize
        }
    };
    let mut mixed = old.to_vec();
    mixed.resize(old.len().max(new.len()), 0);
    let mut newer = new.to_vec();
    newer.resize(mixed.len(), 0);
    for (old, new) in mixed.chunks_mut(PIECE_BYTES).zip(newer.chunks(PIECE_BYTES)) {
        if random.below(10) < odds {
            old.copy_from_slice(new);
        }
    }
    mixed.truncate(size);
    mixed
}

/// One store through several lives, each ended by a crash, by the death of the
/// process or by a clean close.
struct Lives {
    seed: u64,
    random: Random,
    directory: TempDir,
    /// Every frame appended and not yet lost or deleted, in order.
    expected: Frames,
    /// The segment that the manifest would name, and the last number before it.
    first_segment: u64,
    deleted_seq: u64,
    /// What is known to be durable, as numbers and as bytes.
    durable_seq: u64,
    durable_files: Files,
}

impl Lives {
    fn run(seed: u64) {
        let mut lives = Lives {
            seed,
            random: Random(seed),
            directory: temporary(),
            expected: Vec::new(),
            first_segment: 1,
            deleted_seq: 0,
            durable_seq: 0,
            durable_files: Files::new(),
        };
        for life in 0..6 {
            let log = lives.open();
            lives.write(log, life);
        }
        lives.open();
    }

    fn last_seq(&self) -> u64 {
        let last = self.expected.last();
        last.map_or(self.deleted_seq, |frame| frame.0 + u64::from(frame.1) - 1)
    }

    fn mark_durable(&mut self) {
        self.durable_seq = self.last_seq();
        self.durable_files = read_files(self.directory.path());
    }

    fn open(&mut self) -> LocalLog {
        let (seed, path) = (self.seed, self.directory.path().to_path_buf());
        let (report, frames) = replay_behind(&path, self.first_segment, self.deleted_seq)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let kept = frames.len();
        assert!(kept <= self.expected.len(), "seed {seed}");
        assert!(frames[..] == self.expected[..kept], "seed {seed}");
        self.expected.truncate(kept);
        let last = self.last_seq();
        let durable = self.durable_seq;
        assert!(last >= durable, "seed {seed}: {last} of {durable}");
        assert!(report.durable_seq.0 <= last, "seed {seed}");
        truncate_torn(&quick(), &path, &report).unwrap();
        let (again, frames) = replay_behind(&path, self.first_segment, self.deleted_seq).unwrap();
        assert!(
            frames == self.expected && again.torn.is_none(),
            "seed {seed}"
        );
        // Replay synced what it found, and truncation what it cut.
        self.mark_durable();
        let options = LogOptions {
            segment_bytes: 1 << (9 + self.random.below(3)),
            mapped: self.random.below(2) == 0,
        };
        create_in(&path, options, report.next_segment, last)
    }

    fn write(&mut self, mut log: LocalLog, life: u64) {
        for _ in 0..self.random.below(60) {
            let last = self.last_seq();
            match self.random.below(30) {
                0..=3 => {
                    log.syncer().persist(SeqNo(last)).unwrap();
                    self.mark_durable();
                }
                4..=5 => {
                    log.rotate().unwrap();
                }
                6 => {
                    // As after a flush: all entries are in durable tables.
                    self.first_segment = log.rotate().unwrap();
                    let base = log.syncer().base_of(self.first_segment);
                    assert_eq!(base, SeqNo(last), "seed {}", self.seed);
                    self.deleted_seq = last;
                    self.durable_seq = last;
                    self.expected.clear();
                    log.delete_before(self.first_segment).unwrap();
                }
                roll => {
                    // Now and then a number is skipped, as after a failure.
                    let seq = last + 1 + u64::from(roll == 7);
                    let count = 1 + self.random.below(3) as u32;
                    let length = self.random.below(120) as usize;
                    let bytes = payload(self.seed << 8 ^ life, seq, length);
                    append(&mut log, seq, count, &bytes).unwrap();
                    self.expected.push((seq, count, bytes));
                }
            }
        }
        match self.random.below(4) {
            0 => {
                log.close().unwrap();
                self.mark_durable();
            }
            // The process dies; the machine, and all that was appended, lives.
            1 => self.durable_seq = self.last_seq(),
            _ => {
                let now = read_files(self.directory.path());
                drop(log);
                let left = crashed(&mut self.random, &self.durable_files, &now);
                let path = self.directory.path();
                for name in read_files(path).keys() {
                    std::fs::remove_file(path.join(name)).unwrap();
                }
                for (name, bytes) in left {
                    std::fs::write(path.join(name), bytes).unwrap();
                }
            }
        }
    }
}

#[test]
fn what_survives_any_crash_is_a_prefix_with_everything_durable() {
    for seed in 0..200 {
        println!("seed {seed}");
        Lives::run(seed);
    }
}
