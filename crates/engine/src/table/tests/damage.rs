//! What damaged bytes do: a named error, or the right answer.

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
    let (_, stored) = small();
    let length = stored.meta.bytes().len();
    for at in 32..length {
        for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let forged = forged(&stored, |bytes| bytes[at] = byte);
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
        let absurd = forged(&stored, |bytes| {
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
            let mut meta = Meta::decode(&stored.meta.bytes(), stored.record.id).unwrap();
            meta.blocks.entries[1].checksum = checksum;
            let bytes = meta.encode();
            let mut forged = stored.clone();
            forged.record.meta.checksum = crc32c::crc32c(&bytes);
            forged.record.meta.length = bytes.len() as u64;
            forged.meta = Memory::of(bytes);
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
    let key = meta.blocks.first_key(largest);
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
const GOLDEN_META: &str = "74636c6d6574610a010000007a60cea207000000000000004000000000000000e807008020020a03011a0306056170706c6501630001650100056170706c6502057269636f7400006535b96dc50f0305050108009012188a0410010162016306";
