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
fn lives(seed: u64) {
    let mut random = Random(seed);
    let directory = temporary();
    // Every frame appended and not yet lost, in order.
    let mut expected: Frames = Vec::new();
    let mut durable_seq = 0;
    let mut durable_files = Files::new();
    for life in 0..6 {
        let (report, frames) = replay_all(directory.path())
            .unwrap_or_else(|error| panic!("seed {seed} life {life}: {error}"));
        let kept = frames.len();
        assert!(kept <= expected.len(), "seed {seed} life {life}");
        assert!(frames[..] == expected[..kept], "seed {seed} life {life}");
        let last = frames
            .last()
            .map_or(0, |frame| frame.0 + u64::from(frame.1) - 1);
        assert!(
            last >= durable_seq,
            "seed {seed} life {life}: {last} of {durable_seq}"
        );
        assert_eq!(report.last_seq.0, last);
        expected.truncate(kept);
        truncate_torn(&Environment::real(), directory.path(), &report).unwrap();
        // Replay synced what it found, truncation what it cut.
        durable_files = read_files(directory.path());
        let (report, frames) = replay_all(directory.path()).unwrap();
        assert!(frames == expected && report.torn.is_none(), "seed {seed}");
        durable_seq = last;

        let options = LogOptions {
            segment_bytes: 1 << (9 + random.below(3)),
            mapped: random.below(2) == 0,
        };
        let mut log = create_in(directory.path(), options, report.next_segment, last);
        let mut seq = last + 1;
        for _ in 0..random.below(60) {
            match random.below(12) {
                0 | 1 => {
                    log.syncer().persist(SeqNo(seq - 1)).unwrap();
                    durable_seq = seq - 1;
                    durable_files = read_files(directory.path());
                }
                2 => {
                    log.rotate().unwrap();
                }
                3 if random.below(4) == 0 => seq += random.below(3),
                _ => {
                    let count = 1 + random.below(3) as u32;
                    let length = random.below(120) as usize;
                    let bytes = payload(seed << 8 ^ life, seq, length);
                    append(&mut log, seq, count, &bytes).unwrap();
                    expected.push((seq, count, bytes));
                    seq += u64::from(count);
                }
            }
            // A number that was skipped is none that can be persisted.
            seq = expected
                .last()
                .map_or(seq, |frame| frame.0 + u64::from(frame.1));
        }
        match random.below(4) {
            0 => {
                log.close().unwrap();
                durable_seq = seq - 1;
                durable_files = read_files(directory.path());
                drop(log);
            }
            1 => {
                // The process dies; the machine, and all that was appended, lives.
                durable_seq = seq - 1;
                drop(log);
            }
            _ => {
                let now = read_files(directory.path());
                drop(log);
                let left = crashed(&mut random, &durable_files, &now);
                for name in read_files(directory.path()).keys() {
                    std::fs::remove_file(directory.path().join(name)).unwrap();
                }
                for (name, bytes) in left {
                    std::fs::write(directory.path().join(name), bytes).unwrap();
                }
            }
        }
    }
}

#[test]
fn what_survives_any_crash_is_a_prefix_with_everything_durable() {
    for seed in 0..150 {
        println!("seed {seed}");
        lives(seed);
    }
}
