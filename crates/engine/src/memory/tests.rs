//! The memtable against a sorted map that keeps every version.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thermocline_model::key::{KEY_BYTES_MAX, Kind, Prefix, SeqNo};
use xxhash_rust::xxh3::xxh3_64;

use super::{ArenaPool, Memtable, MemtableCursor, MemtableOptions};

struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        println!("seed {seed}");
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// Key, then number descending.
type Version = (Vec<u8>, std::cmp::Reverse<SeqNo>);

/// With kind and value.
type Oracle = BTreeMap<Version, (Kind, Vec<u8>)>;

fn memtable(capacity_bytes: usize, shared: &[u8], filter: bool) -> Arc<Memtable> {
    Arc::new(Memtable::new(MemtableOptions {
        capacity_bytes,
        prefix: Prefix::new(shared),
        filter,
        pool: ArenaPool::new(16 << 20),
    }))
}

fn insert(table: &Memtable, key: &[u8], seq: u64, value: &[u8]) {
    table.insert(key, xxh3_64(key), SeqNo(seq), Kind::Put, value);
}

fn get<'a>(table: &'a Memtable, key: &[u8], snapshot: u64) -> Option<(u64, Kind, &'a [u8])> {
    table
        .get(key, xxh3_64(key), SeqNo(snapshot))
        .map(|hit| (hit.seq.0, hit.kind, hit.value))
}

/// The number of a value written by `insert` with `numbered`.
fn numbered(seq: u64) -> Vec<u8> {
    seq.to_le_bytes().repeat(1 + (seq % 20) as usize)
}

fn assert_at(cursor: &MemtableCursor, expected: Option<(&Version, &(Kind, Vec<u8>))>) {
    assert_eq!(cursor.valid(), expected.is_some());
    if let Some(((key, seq), (kind, value))) = expected {
        assert_eq!(cursor.key(), key);
        assert_eq!(cursor.seq(), seq.0);
        assert_eq!(cursor.kind(), *kind);
        assert_eq!(cursor.value(), value);
        assert_eq!(&*cursor.value_ref(), value);
    }
}

fn check_against(table: &Arc<Memtable>, oracle: &Oracle, dice: &mut Dice, probes: &[Vec<u8>]) {
    assert_eq!(table.entries(), oracle.len() as u64);
    assert_eq!(table.smallest_key(), oracle.keys().next().map(|k| &*k.0));
    assert_eq!(
        table.largest_key(),
        oracle.keys().next_back().map(|k| &*k.0)
    );

    let mut cursor = table.cursor();
    assert!(!cursor.valid());
    cursor.seek_first();
    for entry in oracle {
        assert_at(&cursor, Some(entry));
        cursor.next();
    }
    assert_at(&cursor, None);
    cursor.seek_last();
    for entry in oracle.iter().rev() {
        assert_at(&cursor, Some(entry));
        cursor.prev();
    }
    assert_at(&cursor, None);

    for key in probes {
        let seq = SeqNo(dice.below(oracle.len() as u64 + 2));
        let at = (key.clone(), std::cmp::Reverse(seq));
        let found = oracle.range(at.clone()..).next();
        assert_eq!(
            get(table, key, seq.0),
            found
                .filter(|(k, _)| k.0 == *key)
                .map(|(k, v)| (k.1.0.0, v.0, &*v.1))
        );
        cursor.seek(key, seq);
        assert_at(&cursor, found);
        cursor.seek_before(key, seq);
        assert_at(&cursor, oracle.range(..at.clone()).next_back());
        // Turning round, and back again.
        cursor.seek(key, seq);
        cursor.prev();
        if found.is_some() {
            let mut before = oracle.range(..at.clone()).rev();
            assert_at(&cursor, before.next());
            cursor.prev();
            if oracle.range(..at.clone()).count() >= 2 {
                assert_at(&cursor, before.next());
                cursor.next();
                cursor.next();
                assert_at(&cursor, found);
            }
        }
    }
}

/// Keys of one shape: a few hundred, so that some have several versions.
fn random_keys(shape: u64, dice: &mut Dice) -> Vec<Vec<u8>> {
    (0..300)
        .map(|_| match shape {
            0 => {
                let len = 1 + dice.below(12) as usize;
                dice.bytes(len)
            }
            // All tied in their first eight bytes, some with zeros at the end.
            1 => {
                let len = dice.below(5) as usize;
                [
                    &b"sameeightbytes"[..],
                    &vec![0; len],
                    &[dice.below(3) as u8],
                ]
                .concat()
            }
            2 => format!("{:016}", dice.below(1000)).into_bytes(),
            // Digits, and keys that break off them on both sides.
            3 => {
                let odd = [b'0', b'9', b'/', b'A', 0, 255][dice.below(6) as usize];
                let mut key = format!("user{:010}", dice.below(10_000_000_000)).into_bytes();
                let at = dice.below(14) as usize;
                key[at] = odd;
                key.truncate(1 + dice.below(14) as usize);
                key
            }
            _ => vec![255; 1 + dice.below(20) as usize],
        })
        .collect()
}

#[test]
fn a_memtable_answers_as_a_sorted_map_does() {
    for seed in 1..=30u64 {
        let mut dice = Dice::new(seed);
        let shape = seed % 5;
        let keys = random_keys(shape, &mut dice);
        let shared: &[u8] = match dice.below(3) {
            0 => b"",
            1 => b"user",
            _ => b"0000000000000",
        };
        let table = memtable(1 << 20, shared, dice.below(2) == 0);
        let mut oracle = Oracle::new();
        let order: Vec<u64> = (1..=1000).collect();
        for seq in order {
            let key = &keys[dice.below(200) as usize];
            let delete = dice.below(5) == 0;
            let (kind, value) = if delete {
                (Kind::Delete, Vec::new())
            } else {
                (Kind::Put, numbered(seq))
            };
            table.insert(key, xxh3_64(key), SeqNo(seq), kind, &value);
            oracle.insert((key.clone(), std::cmp::Reverse(SeqNo(seq))), (kind, value));
        }
        check_against(&table, &oracle, &mut dice, &keys);
    }
}

#[test]
fn an_empty_memtable_has_nothing_anywhere() {
    let table = memtable(1 << 20, b"", true);
    assert!(table.is_empty());
    check_against(&table, &Oracle::new(), &mut Dice::new(1), &[b"k".to_vec()]);
}

#[test]
fn a_snapshot_sees_the_newest_version_up_to_it() {
    let table = memtable(1 << 20, b"", true);
    for seq in [30, 10, 20] {
        insert(&table, b"key", seq, &numbered(seq));
    }
    for (snapshot, seq) in [(10, 10), (19, 10), (20, 20), (29, 20), (30, 30), (99, 30)] {
        let found = get(&table, b"key", snapshot).map(|hit| hit.0);
        assert_eq!(found, Some(seq));
    }
    assert_eq!(get(&table, b"key", 9), None);
    assert_eq!(get(&table, b"ke", 99), None);
    assert_eq!(get(&table, b"key\0", 99), None);
}

#[test]
fn an_entry_inserted_twice_is_there_once() {
    let table = memtable(1 << 20, b"", true);
    for _ in 0..2 {
        insert(&table, b"key", 7, b"value");
    }
    assert_eq!(table.entries(), 1);
    let mut cursor = table.cursor();
    cursor.seek_first();
    cursor.next();
    assert!(!cursor.valid());
}

#[test]
fn keys_and_values_of_every_size_find_room_in_a_small_memtable() {
    let table = memtable(1 << 20, b"", true);
    let mut dice = Dice::new(5);
    let mut oracle = Oracle::new();
    let sizes = [
        (1, 0),
        (1, 1),
        (KEY_BYTES_MAX, 0),
        (KEY_BYTES_MAX, 100_000),
        (16, 100),
        (100, 20 << 20),
        (16, (1 << 17) - 1),
        (16, 1 << 17),
        (16, (1 << 17) + 1),
    ];
    for seq in 1..=60u64 {
        let (key_bytes, value_bytes) = sizes[seq as usize % sizes.len()];
        // The great value once.
        let value_bytes = if seq > 9 {
            value_bytes.min(50_000)
        } else {
            value_bytes
        };
        let key = dice.bytes(key_bytes);
        let value = vec![seq as u8; value_bytes];
        insert(&table, &key, seq, &value);
        oracle.insert((key, std::cmp::Reverse(SeqNo(seq))), (Kind::Put, value));
    }
    assert!(table.is_full());
    assert!(table.size_bytes() > 20 << 20);
    let keys: Vec<Vec<u8>> = oracle.keys().map(|k| k.0.clone()).collect();
    check_against(&table, &oracle, &mut dice, &keys);
}

#[test]
fn size_follows_what_is_inserted_and_a_full_memtable_goes_on() {
    let table = memtable(256 << 10, b"", false);
    let mut seq = 0u64;
    while !table.is_full() {
        seq += 1;
        insert(&table, &seq.to_be_bytes(), seq, &[1; 100]);
    }
    let each = table.size_bytes() as u64 / seq;
    assert!((124..200).contains(&each), "{each} bytes an entry");
    for seq in seq + 1..10 * seq {
        insert(&table, &seq.to_be_bytes(), seq, &[1; 100]);
    }
    for seq in 1..10 * seq {
        assert!(get(&table, &seq.to_be_bytes(), u64::MAX >> 8).is_some());
    }
}

#[test]
fn entries_inserted_by_several_threads_are_all_there_in_order() {
    for filter in [false, true] {
        // Small, so that threads also meet in overflow chunks.
        let table = memtable(300 << 10, b"", filter);
        let threads = 4u64;
        let each = 3000u64;
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let table = &table;
                scope.spawn(move || {
                    let mut dice = Dice::new(thread + 1);
                    for i in 0..each {
                        let seq = 1 + i * threads + thread;
                        // Few keys: neighbours contend, versions abound.
                        let key = format!("{:04}", dice.below(2000));
                        insert(table, key.as_bytes(), seq, &numbered(seq));
                    }
                });
            }
        });
        assert_eq!(table.entries(), threads * each);
        let mut cursor = table.cursor();
        cursor.seek_first();
        let mut last: Option<(Vec<u8>, SeqNo)> = None;
        let mut seen = vec![false; (threads * each + 1) as usize];
        while cursor.valid() {
            let seq = cursor.seq();
            assert_eq!(cursor.value(), numbered(seq.0));
            assert!(!std::mem::replace(&mut seen[seq.0 as usize], true));
            if let Some((key, before)) = &last {
                assert!(
                    (&**key, std::cmp::Reverse(*before)) < (cursor.key(), std::cmp::Reverse(seq))
                );
            }
            assert_eq!(
                get(&table, cursor.key(), seq.0).map(|hit| hit.0),
                Some(seq.0)
            );
            last = Some((cursor.key().to_vec(), seq));
            cursor.next();
        }
        assert!(seen[1..].iter().all(|&seen| seen));
    }
}

#[test]
fn the_same_entries_inserted_by_two_threads_are_there_once() {
    let table = memtable(1 << 20, b"", true);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for seq in 1..=5000u64 {
                    let key = (seq.wrapping_mul(0x9e37_79b9) % 1000).to_be_bytes();
                    insert(&table, &key, seq, &numbered(seq));
                }
            });
        }
    });
    assert_eq!(table.entries(), 5000);
    let mut cursor = table.cursor();
    cursor.seek_first();
    let mut count = 0;
    while cursor.valid() {
        count += 1;
        cursor.next();
    }
    assert_eq!(count, 5000);
}

#[test]
fn a_reader_beside_a_writer_sees_whole_entries_in_order_and_misses_none_it_was_told_of() {
    let table = memtable(1 << 20, b"key", true);
    let done = AtomicBool::new(false);
    let told = std::sync::atomic::AtomicU64::new(0);
    let key = |seq: u64| format!("key{:08}", seq.wrapping_mul(7_368_787) % 100_000_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 1..=20_000 {
                insert(&table, key(seq).as_bytes(), seq, &numbered(seq));
                told.store(seq, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let mut dice = Dice::new(3);
            let mut last = false;
            while !std::mem::replace(&mut last, done.load(Ordering::Acquire)) {
                let told = told.load(Ordering::Acquire);
                if told > 0 {
                    let seq = 1 + dice.below(told);
                    let hit = get(&table, key(seq).as_bytes(), told);
                    assert_eq!(hit, Some((seq, Kind::Put, &*numbered(seq))));
                }
                let mut cursor = table.cursor();
                let backward = dice.below(2) == 0;
                let from = key(1 + dice.below(20_000));
                cursor.seek(from.as_bytes(), SeqNo::MAX);
                let mut before: Option<Vec<u8>> = None;
                for _ in 0..100 {
                    if !cursor.valid() {
                        break;
                    }
                    assert_eq!(cursor.value(), numbered(cursor.seq().0));
                    if let Some(before) = before {
                        assert_eq!(*before < *cursor.key(), !backward);
                        assert_ne!(*before, *cursor.key());
                    }
                    before = Some(cursor.key().to_vec());
                    if backward {
                        cursor.prev();
                    } else {
                        cursor.next();
                    }
                }
            }
        });
    });
}

#[test]
fn a_value_and_a_cursor_outlive_their_memtable() {
    let table = memtable(1 << 20, b"", true);
    insert(&table, b"key", 1, &[9; 5000]);
    let (_, _, value) = table
        .get_pinned(b"key", xxh3_64(b"key"), SeqNo::MAX)
        .unwrap();
    let mut cursor = table.cursor();
    drop(table);
    cursor.seek_first();
    assert_eq!(cursor.value(), &[9; 5000]);
    drop(cursor);
    assert_eq!(*value, [9; 5000]);
}

#[test]
fn range_deletes_cover_keys_from_their_number_on() {
    let table = memtable(1 << 20, b"", true);
    assert!(!table.has_range_deletes());
    assert_eq!(table.cover(b"b", SeqNo::MAX), None);
    table.insert_range_delete(b"a", b"c", SeqNo(5));
    table.insert_range_delete(b"b", b"d", SeqNo(9));
    assert!(table.has_range_deletes() && !table.is_empty() && table.size_bytes() > 0);
    assert_eq!(table.cover(b"b", SeqNo::MAX), Some(SeqNo(9)));
    assert_eq!(table.cover(b"b", SeqNo(8)), Some(SeqNo(5)));
    assert_eq!(table.cover(b"b", SeqNo(4)), None);
    assert_eq!(table.cover(b"d", SeqNo::MAX), None);
    assert_eq!(table.range_deletes().len(), 3);
}
