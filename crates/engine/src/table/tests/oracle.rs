//! Tables against a sorted list.

use super::*;
use thermocline_model::key::compare_entries;

/// A key near those of `entries`.
fn some_key(entries: &[Entry], dice: &mut Dice) -> Vec<u8> {
    let mut key = entries[dice.below(entries.len() as u64) as usize].0.clone();
    match dice.below(5) {
        0 => key.push(b'0'),
        1 => key[0] = key[0].wrapping_add(1),
        2 if key.len() > 1 => {
            key.pop();
        }
        _ => {}
    }
    key
}

fn some_snapshot(dice: &mut Dice) -> SeqNo {
    match dice.below(3) {
        0 => SeqNo::MAX,
        _ => SeqNo(dice.number()),
    }
}

pub(super) fn check_gets(table: &Table, entries: &[Entry], dice: &mut Dice, rounds: u64) {
    for _ in 0..rounds {
        let key = some_key(entries, dice);
        let snapshot = some_snapshot(dice);
        let at =
            entries.partition_point(|e| compare_entries((&e.0, e.1), (&key, snapshot)).is_lt());
        let expected = entries.get(at).filter(|e| e.0 == key);
        let found = table.get(&key, key_hash(&key), snapshot).unwrap();
        assert_eq!(
            found.map(|f| (f.seq, f.kind, f.value.to_vec())),
            expected.map(|e| (e.1, e.2, e.3.clone())),
            "{} at {snapshot}",
            key.escape_ascii()
        );
    }
}

pub(super) fn check_cursor(
    table: &Arc<Table>,
    mode: ReadMode,
    entries: &[Entry],
    dice: &mut Dice,
    rounds: u64,
) {
    let mut cursor = table.cursor(mode);
    assert!(!cursor.valid());
    cursor.seek_first().unwrap();
    for entry in entries {
        assert_at(&cursor, Some(entry));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    cursor.seek_last().unwrap();
    for entry in entries.iter().rev() {
        assert_at(&cursor, Some(entry));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
    for _ in 0..rounds {
        let key = some_key(entries, dice);
        let seq = some_snapshot(dice);
        let mut at = entries.partition_point(|e| compare_entries((&e.0, e.1), (&key, seq)).is_lt());
        if dice.below(2) == 0 {
            cursor.seek(&key, seq).unwrap();
        } else {
            cursor.seek_before(&key, seq).unwrap();
            at = at.wrapping_sub(1);
        }
        assert_at(&cursor, entries.get(at));
        for _ in 0..dice.below(30) {
            if !cursor.valid() {
                break;
            }
            if dice.below(2) == 0 {
                cursor.next().unwrap();
                at += 1;
            } else {
                cursor.prev().unwrap();
                at = at.wrapping_sub(1);
            }
            assert_at(&cursor, entries.get(at));
        }
    }
}

fn assert_at(cursor: &TableCursor, expected: Option<&Entry>) {
    let found = cursor.valid().then(|| {
        assert_eq!(*cursor.value_slice(), *cursor.value());
        (
            cursor.key().to_vec(),
            cursor.seq(),
            cursor.kind(),
            cursor.value().to_vec(),
        )
    });
    assert_eq!(found.as_ref(), expected);
}

#[test]
fn random_tables_answer_as_a_sorted_list_does() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut dice = Dice(seed);
        let keys = [1, 2, 30, 300, 1000][dice.below(5) as usize];
        let entries = random_entries(&mut dice, keys);
        let options = TableWriterOptions {
            block_bytes: [64, 300, 4096, 200_000][dice.below(4) as usize],
            restart_interval: [1, 2, 4, 16, 255][dice.below(5) as usize],
            compression: [Compression::None, Compression::Lz4, Compression::Zstd]
                [dice.below(3) as usize],
            filter_bits_per_key: [0, 1, 10, 30][dice.below(4) as usize],
            created_us: seed,
        };
        let stored = write(&entries, &Cover::default(), options);
        let table = stored.open(dice.below(2) << 22).unwrap();
        assert_eq!(table.verify().unwrap().entries, entries.len() as u64);
        check_gets(&table, &entries, &mut dice, 300);
        let read_ahead_bytes = [0, 1, 1000, 1 << 20][dice.below(4) as usize];
        let mode = ReadMode {
            fill_cache: dice.below(2) == 0,
            read_ahead_bytes,
        };
        check_cursor(&table, mode, &entries, &mut dice, 60);
    }
}

#[test]
fn versions_that_straddle_blocks_are_found_at_every_snapshot() {
    let mut entries: Vec<Entry> = vec![(b"a".to_vec(), SeqNo(7), Kind::Put, b"before".to_vec())];
    entries.extend((1..400u64).rev().map(|seq| {
        (
            b"key".to_vec(),
            SeqNo(seq * 2),
            Kind::Put,
            seq.to_string().into_bytes(),
        )
    }));
    entries.push((b"z".to_vec(), SeqNo(3), Kind::Put, b"after".to_vec()));
    let options = TableWriterOptions {
        block_bytes: 200,
        ..TableWriterOptions::default()
    };
    let table = write(&entries, &Cover::default(), options)
        .open(1 << 20)
        .unwrap();
    assert!(table.block_count() > 10);
    assert!((2..table.block_count()).any(|b| table.block_info(b).continues));
    for snapshot in 0..810u64 {
        let hit = table
            .get(b"key", key_hash(b"key"), SeqNo(snapshot))
            .unwrap();
        let expected = (snapshot >= 2).then(|| (snapshot / 2).min(399).to_string().into_bytes());
        assert_eq!(
            hit.map(|h| h.value.to_vec()),
            expected,
            "snapshot {snapshot}"
        );
    }
    for key in [&b"a"[..], b"z"] {
        assert!(table.get(key, key_hash(key), SeqNo::MAX).unwrap().is_some());
    }
    table.verify().unwrap();
}
