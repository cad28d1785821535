//! Scenarios over whole tables, in memory.

mod damage;
mod kept;
mod oracle;
mod reads;
mod v1;

use std::path::Path;
use std::sync::{Arc, Mutex};

use thermocline_model::cover::{Cover, RangeDelete};
use thermocline_model::{Compression, Kind, ObjectId, SeqNo, TableId, TableMeta, TierId};

use super::meta::Meta;
use super::*;
use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Advice, ObjectReader, ObjectWriter};

/// An object in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(pub(super) Arc<Mutex<Vec<u8>>>);

impl Memory {
    pub(super) fn of(bytes: Vec<u8>) -> Memory {
        Memory(Arc::new(Mutex::new(bytes)))
    }
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl ObjectWriter for Memory {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }
    fn size_bytes(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }
    fn persist(&mut self) -> Result<()> {
        Ok(())
    }
    fn abandon(self: Box<Self>) {
        self.0.lock().unwrap().clear();
    }
}

impl ObjectReader for Memory {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = self.0.lock().unwrap();
        let end = offset as usize + buffer.len();
        let found = bytes.get(offset as usize..end);
        let found = found.ok_or_else(|| Error::new(ErrorKind::Io, "read past the end"))?;
        buffer.copy_from_slice(found);
        Ok(())
    }
    fn size_bytes(&self) -> u64 {
        ObjectWriter::size_bytes(self)
    }
    fn advise(&self, _: u64, _: u64, _: Advice) {}
    fn path(&self) -> &Path {
        Path::new("memory")
    }
}

/// SplitMix64.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }
    /// A number of 4, 12 or 20 bits.
    pub(super) fn number(&mut self) -> u64 {
        let bits = 4 + 8 * self.below(3);
        self.below(1 << bits)
    }
}

/// Key, number, kind and value.
pub(super) type Entry = (Vec<u8>, SeqNo, Kind, Vec<u8>);

/// The objects of a table and its record.
#[derive(Clone)]
pub(super) struct Stored {
    pub(super) record: TableMeta,
    pub(super) meta: Memory,
    pub(super) data: Vec<Memory>,
}

impl Stored {
    pub(super) fn open(&self, cache_bytes: u64) -> Result<Arc<Table>> {
        self.open_in(TableContext::new(Arc::new(BlockCache::new(cache_bytes))))
    }

    pub(super) fn open_in(&self, context: TableContext) -> Result<Arc<Table>> {
        let context = Arc::new(context);
        let data = self
            .data
            .iter()
            .map(|d| Arc::new(d.clone()) as Arc<dyn ObjectReader>);
        let meta = Arc::new(self.meta.clone());
        Ok(Arc::new(Table::open(
            &self.record,
            meta,
            data.collect(),
            context,
        )?))
    }
}

pub(super) fn finish(writer: TableWriter, data: Memory) -> Stored {
    let meta = Memory::default();
    let written = writer.finish(Box::new(meta.clone())).unwrap();
    assert_eq!(written.data_bytes, ObjectWriter::size_bytes(&data));
    let record = written.into_meta((TierId(0), ObjectId(1)), (TierId(0), ObjectId(2)));
    let data = record.data.iter().map(|_| data.clone()).collect();
    Stored { record, meta, data }
}

pub(super) fn write(entries: &[Entry], cover: &Cover, options: TableWriterOptions) -> Stored {
    let data = Memory::default();
    let mut writer = TableWriter::new(TableId(7), options, Box::new(data.clone()));
    for (key, seq, kind, value) in entries {
        writer.add(key, *seq, *kind, value).unwrap();
    }
    writer.add_range_deletes(cover);
    finish(writer, data)
}

pub(super) fn range_delete(start: &str, end: &str, seq: u64) -> RangeDelete {
    RangeDelete {
        start: start.as_bytes().into(),
        end: end.as_bytes().into(),
        seq: SeqNo(seq),
    }
}

/// Entries in order: some keys with many versions, of several lengths.
pub(super) fn random_entries(dice: &mut Dice, keys: u64) -> Vec<Entry> {
    let mut map = std::collections::BTreeMap::new();
    for _ in 0..keys {
        let mut key = b"shared/".repeat(dice.below(2) as usize);
        key.extend((0..1 + dice.below(9)).map(|_| b'a' + dice.below(3) as u8));
        if dice.below(50) == 0 {
            key.extend(vec![b'x'; dice.below(400) as usize]);
        }
        let versions = if dice.below(20) == 0 {
            60
        } else {
            1 + dice.below(3)
        };
        for _ in 0..versions {
            let seq = 1 + dice.number();
            let kind = if dice.below(4) == 0 {
                Kind::Delete
            } else {
                Kind::Put
            };
            let length = if dice.below(100) == 0 {
                dice.below(9000)
            } else {
                dice.below(40)
            };
            let value = match kind {
                Kind::Put => (0..length).map(|i| (i / 7) as u8 ^ seq as u8).collect(),
                _ => Vec::new(),
            };
            map.insert((key.clone(), u64::MAX - seq), (SeqNo(seq), kind, value));
        }
    }
    let flat = map
        .into_iter()
        .map(|((key, _), (seq, kind, value))| (key, seq, kind, value));
    flat.collect()
}

#[test]
fn a_table_of_range_deletes_only_has_no_data() {
    let deletes = [range_delete("b", "f", 9), range_delete("d", "k", 12)];
    let cover = Cover::new(&deletes);
    let stored = write(&[], &cover, TableWriterOptions::default());
    assert!(stored.record.data.is_empty());
    assert_eq!(stored.record.range_deletes, 4);
    assert_eq!(
        (stored.record.seq_min, stored.record.seq_max),
        (SeqNo(9), SeqNo(12))
    );
    let table = stored.open(0).unwrap();
    assert_eq!(*table.cover(), cover);
    assert!(
        table
            .get(b"c", key_hash(b"c"), SeqNo::MAX)
            .unwrap()
            .is_none()
    );
    let mut cursor = table.cursor(ReadMode::SCAN);
    cursor.seek_first().unwrap();
    assert!(!cursor.valid());
    cursor.seek_last().unwrap();
    assert!(!cursor.valid());
    table.verify().unwrap();
}

#[test]
fn an_empty_table_is_refused() {
    let data = Memory::default();
    let writer = TableWriter::new(TableId(7), TableWriterOptions::default(), Box::new(data));
    assert!(writer.is_empty());
    let error = writer.finish(Box::new(Memory::default())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn entries_out_of_order_or_bounds_are_refused_and_change_nothing() {
    let data = Memory::default();
    let mut writer = TableWriter::new(
        TableId(7),
        TableWriterOptions::default(),
        Box::new(data.clone()),
    );
    writer.add(b"b", SeqNo(5), Kind::Put, b"1").unwrap();
    for (key, seq, kind) in [
        (&b"a"[..], 9, Kind::Put),
        (b"b", 5, Kind::Put),
        (b"b", 6, Kind::Delete),
        (b"", 1, Kind::Put),
        (b"c", 1 << 56, Kind::Put),
        (b"c", 1, Kind::RangeDelete),
        (&[b'c'; (64 << 10) + 1], 1, Kind::Put),
    ] {
        let error = writer.add(key, SeqNo(seq), kind, b"").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    writer.add(b"b", SeqNo(4), Kind::Put, b"2").unwrap();
    writer
        .add(&[b'c'; 64 << 10], SeqNo(1), Kind::Put, b"3")
        .unwrap();
    let table = finish(writer, data).open(0).unwrap();
    assert_eq!(table.verify().unwrap().entries, 3);
}

#[test]
fn large_values_get_blocks_of_their_own() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let mut dice = Dice(3);
        let large: Vec<u8> = (0..3 << 20).map(|_| dice.roll() as u8).collect();
        let entries: Vec<Entry> = (0..6u64)
            .map(|i| {
                let value = if i % 2 == 0 {
                    large.clone()
                } else {
                    b"small".to_vec()
                };
                (format!("k{i}").into_bytes(), SeqNo(i + 1), Kind::Put, value)
            })
            .collect();
        let options = TableWriterOptions {
            compression,
            ..TableWriterOptions::default()
        };
        let table = write(&entries, &Cover::default(), options)
            .open(1 << 20)
            .unwrap();
        assert_eq!(table.block_count(), 6);
        for (key, _, _, value) in &entries {
            let hit = table.get(key, key_hash(key), SeqNo::MAX).unwrap().unwrap();
            assert_eq!(*hit.value, **value);
        }
        table.verify().unwrap();
    }
}

/// Moves the blocks of `stored` to two extents in another order, with gaps.
fn shuffled(stored: &Stored, dice: &mut Dice) -> Stored {
    let mut meta = Meta::decode(&stored.meta.bytes(), stored.record.id).unwrap();
    let from = stored.data[0].bytes();
    let mut order: Vec<usize> = (0..meta.blocks.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, dice.below(i as u64 + 1) as usize);
    }
    // The extents begin somewhere within their objects.
    let mut objects = [vec![1; 13], vec![2; 99]];
    let starts = [13, 99];
    for block in order {
        let entry = &mut meta.blocks.entries[block];
        let bytes = &from[entry.offset as usize..][..entry.stored_bytes as usize];
        let which = dice.below(2) as usize;
        let object = &mut objects[which];
        object.extend(vec![0; dice.below(2) as usize * 5]);
        entry.extent = which as u16;
        entry.offset = (object.len() - starts[which]) as u64;
        object.extend_from_slice(bytes);
    }
    meta.extents = (0..2)
        .map(|i| (objects[i].len() - starts[i]) as u64)
        .collect();
    let bytes = meta.encode();
    let mut record = stored.record.clone();
    record.meta.length = bytes.len() as u64;
    record.meta.checksum = crc32c::crc32c(&bytes);
    record.data = (0..2)
        .map(|i| thermocline_model::Extent {
            offset: starts[i] as u64,
            length: meta.extents[i],
            checksum: crc32c::crc32c(&objects[i][starts[i]..]),
            ..stored.record.data[0]
        })
        .collect();
    let data = objects.into_iter().map(Memory::of).collect();
    Stored {
        record,
        meta: Memory::of(bytes),
        data,
    }
}

#[test]
fn blocks_may_lie_in_any_order_in_any_extent() {
    let mut dice = Dice(11);
    let entries = random_entries(&mut dice, 800);
    for compression in [Compression::None, Compression::Lz4] {
        let options = TableWriterOptions {
            block_bytes: 600,
            compression,
            ..TableWriterOptions::default()
        };
        let sorted = write(&entries, &Cover::default(), options);
        let table = shuffled(&sorted, &mut dice).open(1 << 20).unwrap();
        assert!(table.block_count() > 40);
        table.verify().unwrap();
        for mode in [ReadMode::SCAN, ReadMode::MERGE] {
            oracle::check_cursor(&table, mode, &entries, &mut dice, 200);
        }
        oracle::check_gets(&table, &entries, &mut dice, 500);
    }
}

#[test]
fn a_block_copied_raw_reads_like_one_written_anew() {
    let mut dice = Dice(5);
    let entries = random_entries(&mut dice, 600);
    for compression in [Compression::None, Compression::Zstd] {
        let options = TableWriterOptions {
            block_bytes: 500,
            compression,
            ..TableWriterOptions::default()
        };
        let source = write(&entries, &Cover::default(), options).open(0).unwrap();
        let data = Memory::default();
        let mut writer = TableWriter::new(TableId(8), options, Box::new(data.clone()));
        let mut cursor = source.cursor(ReadMode::MERGE);
        cursor.seek_first().unwrap();
        let mut copied = 0;
        while cursor.valid() {
            if cursor.at_block_start() && dice.below(2) == 0 {
                let stored = cursor.block_stored().unwrap().into_owned();
                let (block, content) = (cursor.block_index(), cursor.block().unwrap());
                writer
                    .add_block_raw(&source, block, &stored, content)
                    .unwrap();
                cursor.skip_block().unwrap();
                copied += 1;
            } else {
                writer
                    .add(cursor.key(), cursor.seq(), cursor.kind(), cursor.value())
                    .unwrap();
                cursor.next().unwrap();
            }
        }
        assert!(copied > 10);
        let table = finish(writer, data).open(1 << 20).unwrap();
        let (mut ours, mut theirs) = (table.record().clone(), source.record().clone());
        for record in [&mut ours, &mut theirs] {
            record.id = TableId(0);
            record.meta.length = 0;
            record.meta.checksum = 0;
            record.data.clear();
        }
        assert_eq!(ours, theirs);
        table.verify().unwrap();
        oracle::check_gets(&table, &entries, &mut dice, 500);
        oracle::check_cursor(&table, ReadMode::SCAN, &entries, &mut dice, 100);
    }
}

#[test]
fn a_raw_copy_out_of_order_or_of_another_block_is_refused() {
    let entries = random_entries(&mut Dice(6), 300);
    let options = TableWriterOptions {
        block_bytes: 500,
        ..TableWriterOptions::default()
    };
    let source = write(&entries, &Cover::default(), options).open(0).unwrap();
    let stored = source.read_block_stored(30).unwrap();
    let content = source.load_block(30, false).unwrap();
    let mut writer = TableWriter::new(TableId(8), options, Box::new(Memory::default()));
    let error = writer
        .add_block_raw(&source, 29, &stored, &content)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    writer
        .add_block_raw(&source, 30, &stored, &content)
        .unwrap();
    let earlier = source.read_block_stored(1).unwrap();
    let content = source.load_block(1, false).unwrap();
    let error = writer
        .add_block_raw(&source, 1, &earlier, &content)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let no_filters = TableWriterOptions {
        filter_bits_per_key: 0,
        ..options
    };
    let writer = TableWriter::new(TableId(9), no_filters, Box::new(Memory::default()));
    assert!(!writer.can_copy_from(&source));
}

#[test]
fn opening_pins_and_dropping_unpins() {
    let entries = random_entries(&mut Dice(6), 300);
    let stored = write(&entries, &Cover::default(), TableWriterOptions::default());
    let context = Arc::new(TableContext::new(Arc::new(BlockCache::new(1 << 20))));
    let data: Vec<Arc<dyn ObjectReader>> = vec![Arc::new(stored.data[0].clone())];
    let meta = Arc::new(stored.meta.clone());
    let table = Table::open(&stored.record, meta, data, Arc::clone(&context)).unwrap();
    assert_eq!(context.pinned_bytes(), table.memory_bytes());
    drop(table);
    assert_eq!(context.pinned_bytes(), 0);
}

/// The same table with its data elsewhere, as after a relocation: its metadata is not read or kept
/// again, and it goes on when the first is dropped.
#[test]
fn a_moved_table_shares_its_metadata_and_reads_its_own_data() {
    let entries = random_entries(&mut Dice(6), 300);
    let stored = write(&entries, &Cover::default(), TableWriterOptions::default());
    let context = Arc::new(TableContext::new(Arc::new(BlockCache::new(0))));
    let data: Vec<Arc<dyn ObjectReader>> = vec![Arc::new(stored.data[0].clone())];
    let meta = Arc::new(stored.meta.clone());
    let table = Table::open(&stored.record, meta, data, Arc::clone(&context)).unwrap();
    let (key, seq, kind, value) = &entries[7];
    let hash = key_hash(key);
    table.get(key, hash, *seq).unwrap();
    // The end of another object.
    let mut record = stored.record.clone();
    let elsewhere = Memory::of(stored.data[0].bytes().repeat(2));
    record.data[0].offset += stored.data[0].bytes().len() as u64;
    let moved = table
        .moved(&record, vec![Arc::new(elsewhere.clone())])
        .unwrap();
    assert!(moved.index().shares(table.index()));
    assert_eq!(moved.memory_bytes(), table.memory_bytes());
    assert_eq!(moved.accesses(), TableAccesses::default());
    assert_eq!(context.pinned_bytes(), 2 * table.memory_bytes());
    drop(table);
    assert_eq!(context.pinned_bytes(), moved.memory_bytes());
    let hit = moved.get(key, hash, *seq).unwrap().unwrap();
    assert_eq!((hit.seq, hit.kind, &*hit.value), (*seq, *kind, &value[..]));
    record.data[0].offset += 1;
    let error = moved.moved(&record, vec![Arc::new(elsewhere)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let error = moved.moved(&record, Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn counters_tell_filter_cache_and_device_apart() {
    let entries: Vec<Entry> = (0..1000u64)
        .map(|i| {
            (
                format!("{i:08}").into_bytes(),
                SeqNo(i + 1),
                Kind::Put,
                vec![0; 20],
            )
        })
        .collect();
    let table = write(&entries, &Cover::default(), TableWriterOptions::default())
        .open(1 << 20)
        .unwrap();
    let get = |key: &[u8]| table.get(key, key_hash(key), SeqNo::MAX).unwrap().is_some();
    assert!((0..2).all(|_| get(b"00000500")));
    let rejected = (0..100)
        .filter(|i| !get(format!("00000{i:03}x").as_bytes()))
        .count();
    assert_eq!(rejected, 100);
    let accesses = table.accesses();
    assert_eq!((accesses.probes, accesses.hits), (102, 2));
    assert!(accesses.filter_rejects > 90);
    assert!(accesses.block_reads <= 1 + 100 - accesses.filter_rejects);
    assert!(table.approximate_offset(b"00000500") > table.record().data_bytes() / 3);
    assert_eq!(table.approximate_offset(b"0"), 0);
}

/// Once: blocks that a merge read were counted as reads of the table. Its outputs
/// inherit its heat, so that the most merged tables would have been the hottest. Later:
/// its cursor was counted as a scan, so that `logstore` merged for the sake of reads
/// where nobody read, and each such merge called for more.
#[test]
fn what_a_merge_reads_is_no_use_of_the_table() {
    let entries: Vec<Entry> = (0..1000u64)
        .map(|i| {
            (
                i.to_be_bytes().to_vec(),
                SeqNo(i + 1),
                Kind::Put,
                vec![0; 20],
            )
        })
        .collect();
    let written = write(&entries, &Cover::default(), TableWriterOptions::default());
    let table = written.open(0).unwrap();
    let read = |mode| {
        let mut cursor = table.cursor(mode);
        cursor.seek_first().unwrap();
        while cursor.valid() {
            cursor.next().unwrap();
        }
        let accesses = table.accesses();
        (accesses.block_reads, accesses.cursors)
    };
    assert_eq!(read(ReadMode::MERGE), (0, 0));
    let (block_reads, cursors) = read(ReadMode::SCAN);
    assert!(block_reads > 3);
    assert_eq!(cursors, 1);
}
