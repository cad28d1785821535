//! A table whose meta extent is of version 1 of the format.

use super::*;

/// Keys in versions of which some stand in two blocks, and deletes.
fn entries() -> Vec<Entry> {
    let entry = |key: &str, seq, value: &str| {
        let kind = match value.is_empty() {
            true => Kind::Delete,
            false => Kind::Put,
        };
        let (key, value) = (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        (key, SeqNo(seq), kind, value)
    };
    vec![
        entry("apple", 3, "red"),
        entry("apricot", 4, "orange"),
        entry("banana", 12, "yellow"),
        entry("banana", 8, "green"),
        entry("banana", 7, ""),
        entry("banana", 5, "white"),
        entry("banana", 2, "seed"),
        entry("blackberry", 6, "black"),
        entry("blueberry", 10, "blue"),
        entry("cherry", 13, "dark red"),
        entry("date", 14, "brown"),
        entry("date", 1, "dry"),
        entry("elderberry", 15, ""),
        entry("fig", 16, "violet"),
        entry("zucchini", 11, "no fruit"),
    ]
}

const OPTIONS: TableWriterOptions = TableWriterOptions {
    block_bytes: 140,
    restart_interval: 4,
    compression: Compression::None,
    filter_bits_per_key: 10,
    created_us: 1000,
};

/// What was written when version 1 was the newest: blocks in two extents, in an
/// order that is not that of their keys.
pub(super) fn stored() -> Stored {
    let cover = Cover::new(&[range_delete("cherry", "date", 9)]);
    // But for the bytes the table is what is written of the entries now.
    let mut stored = write(&entries(), &cover, OPTIONS);
    let meta = bytes(META);
    stored.record.meta.length = meta.len() as u64;
    stored.record.meta.checksum = crc32c::crc32c(&meta);
    stored.meta = Memory::of(meta);
    let extent = stored.record.data[0];
    let data = DATA.map(bytes);
    let extent_of = |bytes: &Vec<u8>| thermocline_model::Extent {
        length: bytes.len() as u64,
        checksum: crc32c::crc32c(bytes),
        ..extent
    };
    stored.record.data = data.iter().map(extent_of).collect();
    stored.data = data.into_iter().map(Memory::of).collect();
    stored
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

#[test]
fn a_table_of_version_1_is_read_and_verified() {
    let (stored, entries) = (stored(), entries());
    assert_eq!(stored.meta.bytes()[8], 1);
    let table = stored.open(1 << 20).unwrap();
    assert_eq!(table.block_count(), 5);
    assert!(table.block_info(1).continues && table.block_info(1).has_deletes);
    assert_eq!(table.verify().unwrap().entries, entries.len() as u64);
    assert_eq!(table.cover().fragments().count(), 1);
    let mut dice = Dice(1);
    oracle::check_gets(&table, &entries, &mut dice, 500);
    for mode in [ReadMode::SCAN, ReadMode::MERGE] {
        oracle::check_cursor(&table, mode, &entries, &mut dice, 100);
    }
}

#[test]
fn what_version_1_says_of_blocks_is_what_is_written_now() {
    let old = Meta::decode(&stored().meta.bytes(), TableId(7)).unwrap();
    let new = write(&entries(), &Cover::default(), OPTIONS);
    let new = Meta::decode(&new.meta.bytes(), TableId(7)).unwrap();
    let said = |meta: &Meta, block: usize| {
        let list = &meta.blocks;
        let (entry, filter) = (list.entries[block], list.filter(block).to_vec());
        let place = (entry.stored_bytes, entry.checksum, entry.flags);
        (
            place,
            entry.first_seq,
            list.separator(block).to_vec(),
            filter,
        )
    };
    for block in 0..5 {
        assert_eq!(said(&old, block), said(&new, block));
    }
}

#[test]
fn blocks_of_a_table_of_version_1_are_copied_into_one_of_today() {
    let source = stored().open(0).unwrap();
    let data = Memory::default();
    let mut writer = TableWriter::new(TableId(8), OPTIONS, Box::new(data.clone()));
    for block in 0..source.block_count() {
        let stored = source.read_block_stored(block).unwrap();
        let content = source.load_block(block, false).unwrap();
        let added = writer.add_block_raw(&source, block, &stored, &content);
        added.unwrap();
    }
    let copy = finish(writer, data);
    assert_eq!(copy.meta.bytes()[8], 2);
    let table = copy.open(1 << 20).unwrap();
    table.verify().unwrap();
    oracle::check_gets(&table, &entries(), &mut Dice(2), 500);
}

const META: &str = "\
    74636c6d6574610a01000000ec0dd1fa0700000000000000d300000000000000e807008c01040a0f02a40101\
    10056170706c65087a75636368696e690102b201ba020500056170706c65000662616e616e61004d65351212\
    34e700030c010600060001735e2e00bcdec10708080101096c61636b6265727279000663686572727901006e\
    3e8dc4213a00060d01000464617465000366696701d10169394061cf4a030e100100087a75636368696e6908\
    0000004d1dcfb71c1d000b0b018800b092188a441080002082000240106902054608055444801020992c00ac\
    d2c0100402200400000106636865727279046461746509";

const DATA: [&str; 2] = [
    "\
     0008087a75636368696e696e6f2066727569740000000000000000000017000000000000000b000000000000\
     001000000001000000000000001d0000000800040000000000626c6b01cfb71c1d0005036170706c65726564\
     0205067269636f746f72616e676500060662616e616e6179656c6c6f77000212000000656c70706100000700\
     0000000000000c00000000000000210000000300000000000000350000000000040100000000626c6b011212\
     34e7",
    "\
     000a05626c61636b6265727279626c61636b02070475656265727279626c7565000608636865727279646172\
     6b2072656400080e7265626b63616c6200000d000000000000000d000000000000002a000000030000000000\
     00003e0000000000040100000000626c6b018dc4213a000000000000060562616e616e61677265656e060000\
     0600057768697465060004736565640c09060000000000000000000000050000000000000008000000000000\
     002600000004000000010000002e0000000600040102000000626c6b0100bcdec10004056461746562726f77\
     6e040003647279000a00656c646572626572727900030666696776696f6c65741a001b1e0000000065746164\
     000003000000000000001000000000000000230000000400000001000000390000000000040102000000626c\
     6b014061cf4a",
];
