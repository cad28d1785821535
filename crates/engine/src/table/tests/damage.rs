//! What damaged bytes do: a named error, or the right answer.

use super::super::block_list::{BlockEntry, CONTINUES, HAS_DELETES, HAS_VERSIONS};
use super::*;

fn small() -> (Vec<Entry>, Stored) {
    small_with(Compression::None)
}

fn small_with(compression: Compression) -> (Vec<Entry>, Stored) {
    let entries: Vec<Entry> = (0..24u64)
        .map(|i| {
            let kind = if i % 5 == 4 { Kind::Delete } else { Kind::Put };
            let value = if kind == Kind::Put {
                vec![b'0' + (i % 10) as u8; 30]
            } else {
                Vec::new()
            };
            (format!("key{i:03}").into_bytes(), SeqNo(i + 1), kind, value)
        })
        .collect();
    let cover = Cover::new(&[range_delete("key005", "key009", 30)]);
    let options = TableWriterOptions {
        block_bytes: 200,
        compression,
        ..TableWriterOptions::default()
    };
    let stored = write(&entries, &cover, options);
    (entries, stored)
}

/// Reads everything in every way; each answer must be right or a named error.
/// Returns whether there was an error.
fn read_all(stored: &Stored, entries: &[Entry]) -> bool {
    let table = match stored.open(1 << 20) {
        Ok(table) => table,
        Err(error) => {
            assert_named(&error);
            return true;
        }
    };
    let mut failed = false;
    for (key, seq, kind, value) in entries {
        match table.get(key, key_hash(key), SeqNo::MAX) {
            Ok(hit) => {
                let hit = hit.expect("the key is there");
                assert_eq!((hit.seq, hit.kind, &*hit.value), (*seq, *kind, &**value));
            }
            Err(error) => {
                assert_named(&error);
                failed = true;
            }
        }
    }
    for mode in [ReadMode::SCAN, ReadMode::MERGE] {
        let mut cursor = table.cursor(mode);
        let mut moved = cursor.seek_first();
        for entry in entries {
            if let Err(error) = &moved {
                assert_named(error);
                assert!(!cursor.valid());
                failed = true;
                break;
            }
            assert_eq!(
                (cursor.key(), cursor.seq(), cursor.value()),
                (&*entry.0, entry.1, &*entry.3)
            );
            moved = cursor.next();
        }
    }
    let verified = table.verify();
    assert!(
        verified.is_err() || !failed,
        "what a read notices, verify does too"
    );
    verified.is_err()
}

fn assert_named(error: &Error) {
    assert!(
        matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported),
        "{error}"
    );
    assert!(error.path().is_some(), "{error}");
    assert!(
        error.to_string().contains("table") || error.to_string().contains("object"),
        "{error}"
    );
}

#[test]
fn every_flipped_byte_is_noticed() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (entries, stored) = small_with(compression);
        assert!(!read_all(&stored, &entries));
        for which in 0..2 {
            let object = if which == 0 {
                &stored.meta
            } else {
                &stored.data[0]
            };
            let length = ObjectWriter::size_bytes(object) as usize;
            for at in 0..length {
                for flip in [0x01, 0x80, 0xff] {
                    object.0.lock().unwrap()[at] ^= flip;
                    assert!(read_all(&stored, &entries), "object {which} byte {at}");
                    object.0.lock().unwrap()[at] ^= flip;
                }
            }
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    let (entries, stored) = small();
    for which in 0..2 {
        let whole = if which == 0 {
            stored.meta.bytes()
        } else {
            stored.data[0].bytes()
        };
        for length in 0..whole.len() {
            let mut cut = stored.clone();
            let object = Memory::of(whole[..length].to_vec());
            if which == 0 {
                cut.meta = object;
            } else {
                cut.data = vec![object];
            }
            assert!(read_all(&cut, &entries), "object {which} of {length} bytes");
        }
    }
}

/// As `stored`, with the meta bytes changed by `change` and every checksum made
/// right again: what a bug of the writer would leave.
fn forged(stored: &Stored, change: impl FnOnce(&mut Vec<u8>)) -> Stored {
    let mut bytes = stored.meta.bytes();
    change(&mut bytes);
    let length = bytes.len() as u64 - 32;
    bytes[24..32].copy_from_slice(&length.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..]);
    bytes[12..16].copy_from_slice(&super::super::trailer::masked(crc).to_le_bytes());
    let mut forged = stored.clone();
    forged.record.meta.checksum = crc32c::crc32c(&bytes);
    forged.record.meta.length = bytes.len() as u64;
    forged.meta = Memory::of(bytes);
    forged
}

#[test]
fn a_meta_with_right_checksums_and_any_wrong_byte_never_panics_nor_allocates_the_absurd() {
    for stored in [small().1, v1::stored()] {
        try_every_byte(&stored);
    }
}

fn try_every_byte(stored: &Stored) {
    let length = stored.meta.bytes().len();
    for at in 32..length {
        for byte in [0x00, 0x01, 0x07, 0x08, 0x10, 0x20, 0x7f, 0x80, 0xff] {
            let forged = forged(stored, |bytes| bytes[at] = byte);
            if let Ok(table) = forged.open(0) {
                let _ = table.verify();
                let mut cursor = table.cursor(ReadMode::MERGE);
                let mut moved = cursor.seek_first();
                while moved.is_ok() && cursor.valid() {
                    moved = cursor.next();
                }
            }
        }
        // An absurd length where some number stands.
        let absurd = forged(stored, |bytes| {
            bytes.splice(
                at..=at,
                [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            );
        });
        if let Ok(table) = absurd.open(0) {
            let _ = table.verify();
        }
    }
}

#[test]
fn a_block_with_right_checksums_and_any_wrong_byte_never_panics() {
    let (entries, stored) = small();
    let meta = Meta::decode(&stored.meta.bytes(), stored.record.id).unwrap();
    let entry = meta.blocks.entries[1];
    let range = entry.offset as usize..(entry.offset + u64::from(entry.stored_bytes)) as usize;
    for at in range.clone().rev().skip(4) {
        for byte in [0x00, 0x01, 0x02, 0x7f, 0x80, 0xff] {
            let mut data = stored.data[0].bytes();
            data[at] = byte;
            let checksum = super::super::trailer::checksum(&data[range.start..range.end - 4]);
            data[range.end - 4..range.end].copy_from_slice(&checksum.to_le_bytes());
            let mut forged = with_meta(&stored, |meta| {
                meta.blocks.entries[1].checksum = checksum;
            });
            forged.data = vec![Memory::of(data)];
            let table = forged.open(0).unwrap();
            let _ = table.verify();
            for (key, ..) in &entries {
                let _ = table.get(key, key_hash(key), SeqNo::MAX);
                let mut cursor = table.cursor(ReadMode::SCAN);
                for backward in [false, true] {
                    let mut moved = cursor.seek(key, SeqNo::MAX);
                    let mut steps = 0;
                    while moved.is_ok() && cursor.valid() && steps < 100 {
                        let _ = (cursor.value().len(), cursor.value_slice().len());
                        moved = if backward {
                            cursor.prev()
                        } else {
                            cursor.next()
                        };
                        steps += 1;
                    }
                }
            }
        }
    }
}

/// As `stored`, its meta changed by `change` and encoded anew.
fn with_meta(stored: &Stored, change: impl FnOnce(&mut Meta)) -> Stored {
    let mut meta = Meta::decode(&stored.meta.bytes(), stored.record.id).unwrap();
    change(&mut meta);
    let bytes = meta.encode();
    let mut changed = stored.clone();
    changed.record.range = meta.range;
    changed.record.meta.checksum = crc32c::crc32c(&bytes);
    changed.record.meta.length = bytes.len() as u64;
    changed.meta = Memory::of(bytes);
    changed
}

/// As `stored`, with other blocks in its list: `change` is given each block's
/// separator, and gives the one that is to stand there.
fn with_list(stored: &Stored, change: impl Fn(usize, &mut BlockEntry, &mut Vec<u8>)) -> Stored {
    with_meta(stored, |meta| {
        let before = std::mem::take(&mut meta.blocks);
        for (block, entry) in before.entries.iter().enumerate() {
            let (mut entry, mut separator) = (*entry, before.separator(block).to_vec());
            change(block, &mut entry, &mut separator);
            meta.blocks.filters.extend(before.filter(block));
            meta.blocks.push(entry, &separator).unwrap();
        }
    })
}

/// What `verify` says of `stored`.
fn finding(stored: &Stored) -> String {
    stored.open(0).unwrap().verify().unwrap_err().to_string()
}

/// Every mistake that the list could make of a block is told by the block itself,
/// or by the one before it.
#[test]
fn a_block_list_that_its_blocks_belie_is_noticed() {
    // Some block begins within the versions of a key.
    let entry = |key: &str, seq: u64| {
        let value = vec![seq as u8; 20];
        (key.as_bytes().to_vec(), SeqNo(seq), Kind::Put, value)
    };
    let mut entries: Vec<Entry> = (10..20).rev().map(|seq| entry("key1", seq)).collect();
    entries.insert(0, entry("key0", 1));
    entries.extend((0..20).map(|i| entry(&format!("key2{i:02}/more"), i + 30)));
    let options = TableWriterOptions {
        block_bytes: 300,
        ..TableWriterOptions::default()
    };
    let stored = write(&entries, &Cover::default(), options);
    stored.open(0).unwrap().verify().unwrap();
    let list = Meta::decode(&stored.meta.bytes(), stored.record.id).unwrap();
    let list = list.blocks;
    let continuing = list.entries.iter().position(BlockEntry::continues).unwrap();
    let last = list.len() - 1;
    let plain = last - 1;
    assert!(continuing > 0 && plain > continuing + 1);
    assert_eq!(list.separator(continuing), b"key1");
    assert!(list.separator(plain).len() < first_key(&stored, plain).len());

    type Change = fn(&mut BlockEntry, &mut Vec<u8>);
    let cases: [(usize, Change, &str); 7] = [
        // Of a block that continues it is the whole key, and the number counts.
        (continuing, |e, _| e.first_seq.0 -= 1, "does not begin"),
        (continuing, |e, _| e.first_seq.0 += 1, "does not end"),
        (continuing, |e, _| e.flags &= !CONTINUES, "does not end"),
        // No beginning of the first key, or not behind the block before.
        (plain, |_, s| s.push(b'!'), "does not begin"),
        (plain, |_, s| *s.last_mut().unwrap() -= 1, "does not end"),
        (plain, |e, _| e.flags ^= HAS_DELETES, "flags"),
        (plain, |e, _| e.flags ^= HAS_VERSIONS, "flags"),
    ];
    for (at, change, words) in cases {
        let belied = with_list(&stored, |block, entry, separator| {
            if block == at {
                change(entry, separator);
            }
        });
        let found = finding(&belied);
        assert!(found.contains(words), "{at}, {words}: {found}");
    }
    // The first block's is its whole first key.
    let wider = with_meta(&stored, |meta| meta.range.start = b"k"[..].into());
    let shorter = with_list(&wider, |block, _, separator| {
        separator.truncate(if block == 0 { 3 } else { usize::MAX });
    });
    assert!(finding(&shorter).contains("does not begin"));
    let no_filters = with_meta(&stored, |meta| meta.blocks.filters.fill(0));
    assert!(finding(&no_filters).contains("filter excludes a key"));
    let longer = with_meta(&stored, |meta| {
        meta.range = thermocline_model::KeyRange::inclusive(&meta.range.start, b"key3");
    });
    assert!(finding(&longer).contains("does not end"));
    let shorter = with_meta(&stored, |meta| {
        meta.range = thermocline_model::KeyRange::inclusive(&meta.range.start, b"key218/more");
    });
    assert!(finding(&shorter).contains("does not end"));
    for (low, high, words) in [(1, 48, "newer"), (2, 49, "older")] {
        let mut other = with_meta(&stored, |meta| {
            (meta.seq_min, meta.seq_max) = (SeqNo(low), SeqNo(high));
        });
        (other.record.seq_min, other.record.seq_max) = (SeqNo(low), SeqNo(high));
        assert!(finding(&other).contains(words));
    }
}

/// The next block goes on with the key of the damaged one, of which nobody can say
/// where it ended: that is no fault of the next.
#[test]
fn behind_a_damaged_block_the_next_is_held_against_the_list() {
    let versions = (1..200u64).rev();
    let entries: Vec<Entry> = versions
        .map(|seq| (b"key".to_vec(), SeqNo(seq), Kind::Put, vec![7; 20]))
        .collect();
    let options = TableWriterOptions {
        block_bytes: 300,
        ..TableWriterOptions::default()
    };
    let stored = write(&entries, &Cover::default(), options);
    let meta = Meta::decode(&stored.meta.bytes(), stored.record.id).unwrap();
    let damaged = meta.blocks.entries[3];
    assert!(damaged.continues() && meta.blocks.entries[4].continues());
    stored.data[0].0.lock().unwrap()[damaged.offset as usize] ^= 1;
    let mut found = Vec::new();
    let table = stored.open(0).unwrap();
    table.verify_all(&mut |error| found.push(error.to_string()), &mut |_| {});
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("block 3"), "{found:?}");
}

/// Bytes of an extent between two blocks are read, as its checksum covers them.
#[test]
fn what_lies_between_blocks_is_verified() {
    let entries: Vec<Entry> = (0..200u32)
        .map(|i| (i.to_be_bytes().to_vec(), SeqNo(1), Kind::Put, vec![7; 20]))
        .collect();
    let options = TableWriterOptions {
        block_bytes: 300,
        ..TableWriterOptions::default()
    };
    let stored = write(&entries, &Cover::default(), options);
    let mut gap = 0;
    let stored = with_meta(&stored, |meta| {
        let before = std::mem::take(&mut meta.blocks);
        gap = before.entries[3].offset;
        for (block, &entry) in before.entries.iter().enumerate() {
            if block != 3 {
                meta.blocks.filters.extend(before.filter(block));
                meta.blocks.push(entry, before.separator(block)).unwrap();
            }
        }
    });
    let extent_is_wrong = || {
        let mut found = Vec::new();
        let table = stored.open(0).unwrap();
        table.verify_all(&mut |error| found.push(error.to_string()), &mut |_| {});
        found.iter().any(|error| error.contains("data extent"))
    };
    assert!(!extent_is_wrong());
    stored.data[0].0.lock().unwrap()[gap as usize] ^= 1;
    assert!(extent_is_wrong());
}

/// The first key of block `block`.
fn first_key(stored: &Stored, block: usize) -> Vec<u8> {
    let table = stored.open(0).unwrap();
    let bytes = table.read_block_stored(block).unwrap();
    salvage::entries(&bytes).unwrap().swap_remove(0).0
}

#[test]
fn a_read_that_returns_another_intact_block_is_noticed() {
    let (_, stored) = small();
    let meta = Meta::decode(&stored.meta.bytes(), stored.record.id).unwrap();
    let largest = (0..meta.blocks.len()).max_by_key(|&i| meta.blocks.entries[i].stored_bytes);
    let largest = largest.unwrap();
    let other = usize::from(largest == 0);
    let (a, b) = (meta.blocks.entries[largest], meta.blocks.entries[other]);
    let mut data = stored.data[0].bytes();
    // The other block's bytes where the largest one's end.
    let from = data[b.offset as usize..(b.offset + u64::from(b.stored_bytes)) as usize].to_vec();
    let end = (a.offset + u64::from(a.stored_bytes)) as usize;
    data[end - from.len()..end].copy_from_slice(&from);
    let mut mixed = stored.clone();
    mixed.data = vec![Memory::of(data)];
    let table = mixed.open(0).unwrap();
    let key = &first_key(&stored, largest);
    let error = table.get(key, key_hash(key), SeqNo::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

#[test]
fn the_meta_of_another_table_or_an_older_one_of_the_same_is_refused() {
    let (_, stored) = small();
    let mut other = stored.clone();
    other.record.id = TableId(8);
    let error = other.open(0).unwrap_err();
    assert!(error.to_string().contains("table 000007"), "{error}");
    let mut older = stored.clone();
    older.record.meta.checksum ^= 1;
    assert_eq!(older.open(0).unwrap_err().kind(), ErrorKind::Corruption);
    let newer = forged(&stored, |bytes| bytes[8] = 9);
    assert_eq!(newer.open(0).unwrap_err().kind(), ErrorKind::Unsupported);
    let mut miscounted = stored;
    miscounted.record.entries += 1;
    assert_eq!(
        miscounted.open(0).unwrap_err().kind(),
        ErrorKind::Corruption
    );
}

#[test]
fn the_bytes_of_a_tiny_table_are_those_of_the_golden_file() {
    let entries = vec![
        (b"apple".to_vec(), SeqNo(5), Kind::Put, b"red".to_vec()),
        (b"apple".to_vec(), SeqNo(3), Kind::Delete, Vec::new()),
        (b"apricot".to_vec(), SeqNo(4), Kind::Put, b"orange".to_vec()),
    ];
    let cover = Cover::new(&[range_delete("b", "c", 6)]);
    let options = TableWriterOptions {
        restart_interval: 2,
        created_us: 1000,
        ..TableWriterOptions::default()
    };
    let stored = write(&entries, &cover, options);
    let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(hex(stored.data[0].bytes()), GOLDEN_DATA);
    assert_eq!(hex(stored.meta.bytes()), GOLDEN_META);
}

const GOLDEN_DATA: &str = "0005036170706c6572656405000000070661707269636f746f72616e67650500030000000000656c70000000746f63697200000e00060000000000000005000000000000001a0000000300000001000000350000000200020102000000626c6b01b96dc50f";
const GOLDEN_META: &str = "74636c6d6574610a020000006822173007000000000000003400000000000000e807008020020a03011a0306056170706c65016300016501b3006170706c65ca01b96dc50f0108009012188a0410010162016306";
