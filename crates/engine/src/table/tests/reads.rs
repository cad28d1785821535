//! What is read, and asked for ahead: how many requests, and how many bytes of them.

use super::super::ahead::{Chunk, Span, Way};
use super::super::block_cursor::BlockCursor;
use super::*;

fn uncached() -> TableContext {
    TableContext::new(Arc::new(BlockCache::new(0)))
}

/// 4,000 records of 1 KiB.
fn records_of_a_kib() -> (Vec<Entry>, Stored) {
    let entry = |n: u32| (n.to_be_bytes().to_vec(), SeqNo(1), Kind::Put, vec![7; 1024]);
    let entries: Vec<Entry> = (0..4000).map(entry).collect();
    let stored = write(&entries, &Cover::default(), TableWriterOptions::default());
    (entries, stored)
}

/// Notes where each read begins and its bytes, and the same of what is advised.
#[derive(Debug, Default)]
struct Noting {
    inner: Memory,
    reads: Mutex<Vec<(u64, usize)>>,
    advised: Mutex<Vec<(u64, usize)>>,
    is_direct: bool,
    /// Where nothing can be read.
    bad: std::ops::Range<u64>,
    /// What this was opened once more as.
    again: Mutex<Option<Arc<Noting>>>,
    opens_again: bool,
}

impl Noting {
    /// The one data object of `stored`, and the table read from it.
    fn open(stored: &Stored, context: TableContext) -> (Arc<Noting>, Arc<Table>) {
        Noting::default().open_in(stored, Arc::new(context))
    }

    /// The same, as this one is.
    fn open_in(self, stored: &Stored, context: Arc<TableContext>) -> (Arc<Noting>, Arc<Table>) {
        let noting = Arc::new(Noting {
            inner: stored.data[0].clone(),
            ..self
        });
        let data = vec![Arc::clone(&noting) as Arc<dyn ObjectReader>];
        let meta = Arc::new(stored.meta.clone());
        let table = Table::open(&stored.record, meta, data, context).unwrap();
        (noting, Arc::new(table))
    }

    /// Reads of what is bad since this was last asked.
    fn bad_reads(&self) -> usize {
        let reads = std::mem::take(&mut *self.reads.lock().unwrap());
        let is_bad = |&(at, bytes): &(u64, usize)| self.is_bad(at, bytes);
        reads.iter().filter(|read| is_bad(read)).count()
    }

    fn is_bad(&self, offset: u64, bytes: usize) -> bool {
        offset < self.bad.end && self.bad.start < offset + bytes as u64
    }

    /// Bytes of each read since this was last asked.
    fn read_bytes(&self) -> Vec<usize> {
        let reads = std::mem::take(&mut *self.reads.lock().unwrap());
        reads.into_iter().map(|(_, bytes)| bytes).collect()
    }

    /// Bytes advised since this was last asked.
    fn advised_bytes(&self) -> usize {
        let advised = std::mem::take(&mut *self.advised.lock().unwrap());
        advised.into_iter().map(|(_, bytes)| bytes).sum()
    }
}

impl ObjectReader for Noting {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.reads.lock().unwrap().push((offset, buffer.len()));
        if self.is_bad(offset, buffer.len()) {
            return Err(Error::new(ErrorKind::Io, "a bad sector"));
        }
        self.inner.read_at(offset, buffer)
    }
    fn size_bytes(&self) -> u64 {
        ObjectReader::size_bytes(&self.inner)
    }
    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        assert_eq!(advice, Advice::WillNeed);
        self.advised.lock().unwrap().push((offset, length as usize));
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn is_direct(&self) -> bool {
        self.is_direct
    }
    fn reopened(&self) -> Option<Arc<dyn ObjectReader>> {
        let again = self.opens_again.then(|| {
            Arc::new(Noting {
                inner: self.inner.clone(),
                ..Noting::default()
            })
        });
        *self.again.lock().unwrap() = again.clone();
        Some(again? as Arc<dyn ObjectReader>)
    }
}

/// What merges read was advised, which the system does in pages of one size: on a disk that seeks a
/// merge took nearly twice as long as where it reads ahead by itself.
#[test]
fn a_merge_reads_by_a_reader_of_its_own_and_asks_for_nothing() {
    let (entries, stored) = records_of_a_kib();
    let noting = Noting {
        opens_again: true,
        ..Noting::default()
    };
    let (noting, table) = noting.open_in(&stored, Arc::new(uncached()));
    assert_eq!(
        walk(&mut table.cursor(ReadMode::MERGE), true),
        entries.len()
    );
    assert_eq!((noting.read_bytes(), noting.advised_bytes()), (vec![], 0));
    let again = noting.again.lock().unwrap().take().unwrap();
    let bytes = again.read_bytes().iter().sum::<usize>() as u64;
    assert_eq!(bytes, stored.record.data_bytes());
    assert_eq!(again.advised_bytes(), 0);
    // Scans do not.
    assert_eq!(walk(&mut table.cursor(ReadMode::SCAN), true), entries.len());
    assert!(noting.again.lock().unwrap().is_none() && noting.advised_bytes() > 0);
}

/// Goes through all entries; gives how many there are.
fn walk(cursor: &mut TableCursor, forward: bool) -> usize {
    match forward {
        true => cursor.seek_first().unwrap(),
        false => cursor.seek_last().unwrap(),
    }
    let mut count = 0;
    while cursor.valid() {
        count += 1;
        match forward {
            true => cursor.next().unwrap(),
            false => cursor.prev().unwrap(),
        }
    }
    count
}

const LATEST: SeqNo = SeqNo(u64::MAX >> 8);

/// Ten records of 1 KiB lie in four or five blocks of 4 KiB: from a device that transfers a block
/// in the time of a request, a scan of them reads no more than eight. It began with two blocks one
/// by one and went on with 32 KiB, and the system took the two for a file read from end to end and
/// read 32 to 64 KiB more.
#[test]
fn a_short_scan_reads_little_more_than_it_returns() {
    let (_, stored) = records_of_a_kib();
    let scanned = |bytes_for_one_read: u64| {
        let context = uncached().with_bytes_for_one_read(vec![bytes_for_one_read]);
        let (noting, table) = Noting::open(&stored, context);
        let (mut bytes, mut requests) = (0, 0);
        for first in (0..3900u32).step_by(97) {
            let mut cursor = table.cursor(ReadMode::SCAN);
            cursor.seek(&first.to_be_bytes(), LATEST).unwrap();
            for n in 0..10 {
                assert_eq!(cursor.key(), (first + n).to_be_bytes());
                cursor.next().unwrap();
            }
            let reads = noting.read_bytes();
            bytes += reads.iter().sum::<usize>();
            requests += reads.len();
        }
        (bytes as f64 / 41.0 / 10_240.0, requests as f64 / 41.0)
    };
    let (times, requests) = scanned(4100);
    assert!(times < 2.2 && requests <= 3.0, "{times}, {requests}");
    // And where a request is dear, two are all: a block, and what lies behind it.
    let (times, requests) = scanned(u64::MAX);
    assert!(times < 3.8 && requests <= 2.0, "{times}, {requests}");
}

/// Short scans begin in every run and go on in the one that holds most of what there is: the first
/// read of several blocks is there alone. It was by tier, for all tables alike, and only past the
/// page cache.
#[test]
fn scans_begin_as_those_before_them_went_on_in_the_same_table() {
    let (_, stored) = records_of_a_kib();
    for is_direct in [true, false] {
        let context = Arc::new(uncached().with_readers(1));
        let open = || {
            let noting = Noting {
                is_direct,
                ..Noting::default()
            };
            noting.open_in(&stored, Arc::clone(&context))
        };
        let (most, least) = (open(), open());
        // Of the last of many scans, the bytes of the first read and how many reads there were.
        let reads = |(noting, table): &(Arc<Noting>, Arc<Table>), records: u32| {
            let mut reads = Vec::new();
            for first in (0..3900u32).step_by(39) {
                let mut cursor = table.cursor(ReadMode::SCAN);
                cursor.seek(&first.to_be_bytes(), LATEST).unwrap();
                for n in 0..records {
                    assert_eq!(cursor.key(), (first + n).to_be_bytes());
                    cursor.next().unwrap();
                }
                reads = noting.read_bytes();
            }
            (reads[0], reads.len())
        };
        let _ = reads(&most, 10);
        let of_one = reads(&least, 0);
        let of_several = reads(&most, 10);
        assert!(of_one.0 <= 5000 && of_one.1 == 1, "{of_one:?}");
        assert!(of_several.0 > 12_000, "{of_several:?}");
        assert!(is_direct || of_several.1 == 1, "{of_several:?}");
        // A new table begins as those of its tier are.
        let new = open();
        assert!(new.1.scans_go_on());
        let _ = reads(&least, 0);
        assert!(!open().1.scans_go_on() && new.1.scans_go_on());
    }
}

/// The system does not read ahead by itself, so a scan that goes on, and a merge, tell it what they
/// will read next: then nobody waits for more than the first reads.
#[test]
fn what_goes_on_is_asked_for_before_it_is_read() {
    let (entries, stored) = records_of_a_kib();
    for (mode, alone) in [(ReadMode::SCAN, 3), (ReadMode::MERGE, 0)] {
        let (noting, table) = Noting::open(&stored, uncached());
        for forward in [true, false] {
            let mut cursor = table.cursor(mode);
            assert_eq!(walk(&mut cursor, forward), entries.len());
            let reads = std::mem::take(&mut *noting.reads.lock().unwrap());
            let advised = std::mem::take(&mut *noting.advised.lock().unwrap());
            assert_eq!(reads[alone..], advised, "{mode:?}, forward: {forward}");
            assert!(reads.len() > 2 + alone);
        }
    }
}

/// Bytes of each read of a scan of all of `stored`, of which the blocks that `is_cached` says are
/// cached: from a device with this cost of a request, past the page cache or through it.
fn reads_of_a_scan(
    stored: &Stored,
    (bytes_for_one_read, is_direct): (u64, bool),
    forward: bool,
    is_cached: impl FnMut(&usize) -> bool,
) -> Vec<usize> {
    let context = TableContext::new(Arc::new(BlockCache::new(64 << 20)));
    let context = context.with_readers(usize::from(is_direct));
    let context = context.with_bytes_for_one_read(vec![bytes_for_one_read]);
    let noting = Noting {
        is_direct,
        ..Noting::default()
    };
    let (noting, table) = noting.open_in(stored, Arc::new(context));
    for block in (0..table.block_count()).filter(is_cached) {
        table.load_block(block, true).unwrap();
    }
    let _ = noting.read_bytes();
    let entries = walk(&mut table.cursor(ReadMode::SCAN), forward);
    assert_eq!(entries as u64, stored.record.entries);
    noting.read_bytes()
}

/// A block that was read along with those before it and is cached as well said that what comes is
/// cached: the scan began anew with one block, and with the next one a few. Past the page cache it
/// did so at each read that began with a cached one, and never came so far that the next read was
/// under way.
#[test]
fn a_long_scan_of_which_some_is_cached_reads_as_far_ahead_as_a_cold_one() {
    let entry = |n: u32| (n.to_be_bytes().to_vec(), SeqNo(1), Kind::Put, vec![7; 1024]);
    let entries: Vec<Entry> = (0..16_000).map(entry).collect();
    let stored = write(&entries, &Cover::default(), TableWriterOptions::default());
    let reads = |device, percent, forward| {
        let mut dice = Dice(5);
        reads_of_a_scan(&stored, device, forward, |_| dice.below(100) < percent).len()
    };
    for bytes_for_one_read in [4100, 100_000, u64::MAX] {
        for (is_direct, forward) in [(false, false), (false, true), (true, false), (true, true)] {
            let device = (bytes_for_one_read, is_direct);
            let cold = reads(device, 0, forward);
            for percent in [2, 5, 10, 20] {
                let some = reads(device, percent, forward);
                let of = format!("{device:?}, {percent} %: {some}, {cold} if cold");
                assert!(some < 2 * cold, "{of}");
            }
        }
    }
}

/// Where most is cached, what is not is read by itself: to read along what lies between would be in
/// vain.
#[test]
fn a_long_scan_of_which_most_is_cached_reads_little_of_that() {
    let (_, stored) = records_of_a_kib();
    let read = reads_of_a_scan(&stored, (u64::MAX, true), true, |block| block % 50 > 0);
    let (_, table) = Noting::open(&stored, uncached());
    assert_eq!(read.len(), table.block_count().div_ceil(50));
    assert!(read.iter().sum::<usize>() < 80 * 6000, "{read:?}");
}

/// Nor is anything asked for that is there.
#[test]
fn what_is_cached_is_not_asked_for() {
    let (entries, stored) = records_of_a_kib();
    let context = TableContext::new(Arc::new(BlockCache::new(64 << 20)));
    let (noting, table) = Noting::open(&stored, context.with_bytes_for_one_read(vec![4100]));
    let cold = 6;
    for block in cold..table.block_count() {
        table.load_block(block, true).unwrap();
    }
    let _ = noting.read_bytes();
    assert_eq!(walk(&mut table.cursor(ReadMode::SCAN), true), entries.len());
    let end = table.index().place(cold).offset;
    let advised = noting.advised.lock().unwrap();
    assert!(
        advised.iter().all(|(offset, _)| *offset < end),
        "{advised:?}"
    );
}

/// A cursor that is positioned for many short ranges took all of them for one long scan.
#[test]
fn a_cursor_used_again_reads_no_more_than_a_new_one() {
    let (_, stored) = records_of_a_kib();
    let bytes = [true, false].map(|anew| {
        let context = uncached().with_bytes_for_one_read(vec![4100]);
        let (noting, table) = Noting::open(&stored, context);
        let mut dice = Dice(5);
        let mut cursor = table.cursor(ReadMode::SCAN);
        for _ in 0..100 {
            if anew {
                cursor = table.cursor(ReadMode::SCAN);
            }
            let first = dice.below(3900) as u32;
            cursor.seek(&first.to_be_bytes(), LATEST).unwrap();
            assert_eq!(cursor.key(), first.to_be_bytes());
        }
        noting.read_bytes().iter().sum::<usize>() + noting.advised_bytes()
    });
    assert!(bytes[1] <= bytes[0], "{bytes:?}");
}

/// What lies behind what a scan returns cannot be read, and is read along with it.
#[test]
fn a_bad_block_that_nobody_wants_fails_no_scan() {
    let (_, stored) = records_of_a_kib();
    let (_, table) = Noting::open(&stored, uncached());
    let place = table.index().place(6);
    for (is_direct, threads) in [(false, 0), (true, 1)] {
        let noting = Noting {
            bad: place.offset..place.offset + u64::from(place.stored_bytes),
            is_direct,
            ..Noting::default()
        };
        let (_, table) = noting.open_in(&stored, Arc::new(uncached().with_readers(threads)));
        let mut wanted = 0;
        for round in 0..10 {
            let mut cursor = table.cursor(ReadMode::SCAN);
            cursor.seek_first().unwrap();
            wanted = 0;
            while cursor.block_index() < 6 {
                wanted += 1;
                if cursor.next().is_err() {
                    break;
                }
            }
            assert!(!cursor.valid(), "round {round}: block 6 was wanted");
        }
        assert!(wanted > 15, "{wanted}");
    }
}

/// Each good block before a bad one had the piece tried again that both lie in, and a disk may try
/// a bad sector for seconds.
#[test]
fn a_piece_that_cannot_be_read_is_tried_once() {
    let (_, stored) = records_of_a_kib();
    let (_, table) = Noting::open(&stored, uncached());
    let bad_block = table.block_count() / 2;
    let place = table.index().place(bad_block);
    for (is_direct, threads) in [(false, 0), (true, 1)] {
        let noting = Noting {
            bad: place.offset..place.offset + u64::from(place.stored_bytes),
            is_direct,
            ..Noting::default()
        };
        let context = Arc::new(uncached().with_readers(threads));
        let (noting, table) = noting.open_in(&stored, context);
        let mut cursor = table.cursor(ReadMode::SCAN);
        cursor.seek_first().unwrap();
        while cursor.next().is_ok() {
            assert!(cursor.valid());
        }
        assert_eq!(cursor.block_index(), bad_block);
        // With the pieces under way, with others, and alone.
        let tried = noting.bad_reads();
        assert!((1..=4).contains(&tried), "{tried}");
    }
}

/// Where what scans go on in is cached, a larger first read saves none.
#[test]
fn scans_that_go_on_in_cached_blocks_read_one() {
    let (_, stored) = records_of_a_kib();
    for (is_direct, threads) in [(false, 0), (true, 1)] {
        let noting = Noting {
            is_direct,
            ..Noting::default()
        };
        let context = TableContext::new(Arc::new(BlockCache::new(64 << 20)));
        let (noting, table) = noting.open_in(&stored, Arc::new(context.with_readers(threads)));
        let uncached_blocks = (0..table.block_count() - 8).step_by(8);
        let firsts: Vec<_> = uncached_blocks
            .map(|block| (block, first_key(&table, block)))
            .collect();
        for block in (0..table.block_count()).filter(|block| block % 8 != 0) {
            table.load_block(block, true).unwrap();
        }
        noting.read_bytes();
        let mut wanted = 0;
        for (block, key) in firsts {
            wanted += table.index().place(block).stored_bytes as usize;
            let mut cursor = table.cursor(ReadMode::SCAN);
            cursor.seek(&key, SeqNo::MAX).unwrap();
            for _ in 0..10 {
                cursor.next().unwrap();
            }
        }
        assert_eq!(noting.read_bytes().iter().sum::<usize>(), wanted);
    }
}

/// The first key of block `block`.
fn first_key(table: &Arc<Table>, block: usize) -> Vec<u8> {
    let block = table.load_block(block, false).unwrap();
    let mut at = BlockCursor::default();
    at.enter_first(&block).unwrap();
    at.key().to_vec()
}

/// One that came from the table before went on at that pace for ever.
#[test]
fn a_cursor_that_went_on_from_another_table_begins_anew_once_it_is_sought_again() {
    let (_, stored) = records_of_a_kib();
    let [continued, new] = [true, false].map(|is_continued| {
        let (noting, table) = Noting::open(&stored, uncached());
        for _ in 0..200 {
            table.count_scan_begun();
            table.count_scan_gone_on();
        }
        let mut cursor = table.cursor(ReadMode::SCAN);
        if is_continued {
            cursor.keep_pace(&table.cursor(ReadMode::SCAN));
        }
        cursor.seek_first().unwrap();
        let mut dice = Dice(5);
        for _ in 0..1000 {
            let key = dice.below(3900) as u32;
            cursor.seek(&key.to_be_bytes(), SeqNo::MAX).unwrap();
        }
        noting.read_bytes().iter().sum::<usize>()
    });
    assert!(continued < new + new / 10, "{continued} and {new}");
}

/// Reads past the page cache doubled, and one was under way, whatever the device: of a scan of 50
/// KiB 64 and 128 KiB came nearly all in vain, which cost an SSD more than the requests that it
/// spared.
#[test]
fn a_scan_past_the_page_cache_reads_by_what_a_request_costs() {
    let (_, stored) = records_of_a_kib();
    let scan = |bytes_for_one_read: u64, records: usize| {
        let noting = Noting {
            is_direct: true,
            ..Noting::default()
        };
        let context = uncached().with_readers(1);
        let context = context.with_bytes_for_one_read(vec![bytes_for_one_read]);
        let (noting, table) = noting.open_in(&stored, Arc::new(context));
        for _ in 0..200 {
            table.count_scan_begun();
            table.count_scan_gone_on();
        }
        let mut cursor = table.cursor(ReadMode::SCAN);
        cursor.seek_first().unwrap();
        for _ in 1..records {
            cursor.next().unwrap();
        }
        // What was asked for would be let go unread.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let reads = noting.read_bytes();
        (reads.iter().sum::<usize>() >> 10, reads.len())
    };
    let [cheap, dear] = [4 << 10, 2 << 20].map(|bytes| scan(bytes, 50));
    assert!(cheap.0 <= 60 && cheap.1 <= 6, "{cheap:?}");
    assert!(dear.0 > cheap.0 && dear.1 <= 4, "{dear:?}");
    // All of it: what is read in vain is little either way.
    let [cheap, dear] = [4 << 10, 2 << 20].map(|bytes| scan(bytes, 4000));
    assert!(cheap.1 <= 80 && dear.1 <= 16, "{cheap:?}, {dear:?}");
}

/// Of large values one was asked for that nobody may want.
#[test]
fn large_values_are_not_asked_for_ahead() {
    let entry = |n: u32| {
        (
            n.to_be_bytes().to_vec(),
            SeqNo(1),
            Kind::Put,
            vec![7; 4 << 20],
        )
    };
    let entries: Vec<Entry> = (0..8).map(entry).collect();
    let stored = write(&entries, &Cover::default(), TableWriterOptions::default());
    let (noting, table) = Noting::open(&stored, uncached());
    let mut cursor = table.cursor(ReadMode::SCAN);
    cursor.seek_first().unwrap();
    cursor.next().unwrap();
    cursor.next().unwrap();
    assert!(noting.advised_bytes() <= READ_AHEAD_BYTES_MAX);
}

/// Each block by itself was a request, unless the system had read it ahead, which it does no more.
#[test]
fn verifying_reads_a_table_in_large_pieces_whatever_its_blocks() {
    let (entries, _) = records_of_a_kib();
    for block_bytes in [512, 4096, 64 << 10] {
        let options = TableWriterOptions {
            block_bytes,
            ..TableWriterOptions::default()
        };
        let stored = write(&entries, &Cover::default(), options);
        let (noting, table) = Noting::open(&stored, uncached());
        table.verify().unwrap();
        let reads = noting.read_bytes();
        let bytes = reads.iter().sum::<usize>() as u64;
        assert_eq!(bytes, stored.record.data_bytes(), "read once");
        assert!(reads.len() <= 6, "{reads:?}");
        assert!(reads.iter().all(|&bytes| bytes <= 1 << 20), "{reads:?}");
        // What cannot be read is found, and the piece that it is in is tried once.
        let place = table.index().place(table.block_count() / 2);
        let noting = Noting {
            bad: place.offset..place.offset + 1,
            ..Noting::default()
        };
        let (noting, table) = noting.open_in(&stored, Arc::new(uncached()));
        let found = table.verify().unwrap_err();
        assert!(found.to_string().contains("a bad sector"), "{found}");
        let large = noting.read_bytes().into_iter().filter(|&b| b > 128 << 10);
        assert!(large.count() <= 13);
    }
}

/// The first half of a table is read past the page cache, the second through it.
#[test]
fn an_extent_through_the_cache_beside_a_direct_one_is_asked_for_ahead_too() {
    let (entries, sorted) = records_of_a_kib();
    let mut meta = Meta::decode(&sorted.meta.bytes(), sorted.record.id).unwrap();
    let from = sorted.data[0].bytes();
    let half = meta.blocks.len() / 2;
    let cut = meta.blocks.entries[half].offset;
    for entry in &mut meta.blocks.entries[half..] {
        entry.extent = 1;
        entry.offset -= cut;
    }
    let objects = [from[..cut as usize].to_vec(), from[cut as usize..].to_vec()];
    meta.extents = objects.iter().map(|o| o.len() as u64).collect();
    let bytes = meta.encode();
    let mut record = sorted.record.clone();
    record.meta.length = bytes.len() as u64;
    record.meta.checksum = crc32c::crc32c(&bytes);
    let extents = objects.iter().map(|object| thermocline_model::Extent {
        offset: 0,
        length: object.len() as u64,
        checksum: crc32c::crc32c(object),
        ..sorted.record.data[0]
    });
    record.data = extents.collect();
    for mode in [ReadMode::SCAN, ReadMode::MERGE] {
        let data = [true, false].map(|is_direct| {
            let object = objects[usize::from(!is_direct)].clone();
            Arc::new(Noting {
                inner: Memory::of(object),
                is_direct,
                ..Noting::default()
            })
        });
        let readers = data.iter().map(|d| Arc::clone(d) as Arc<dyn ObjectReader>);
        let meta = Arc::new(Memory::of(bytes.clone()));
        let context = Arc::new(uncached().with_readers(2));
        let table = Table::open(&record, meta, readers.collect(), context).unwrap();
        let mut cursor = Arc::new(table).cursor(mode);
        assert_eq!(walk(&mut cursor, true), entries.len());
        let read: usize = data[1].read_bytes().iter().sum();
        assert!(3 * data[1].advised_bytes() > read, "{mode:?}");
    }
}

/// A buffer that grew by doubling took twice what is promised of it.
#[test]
fn what_is_read_in_one_go_takes_no_more_memory_than_it_has() {
    let (_, stored) = records_of_a_kib();
    let (_, table) = Noting::open(&stored, uncached());
    let mut chunk = Chunk::default();
    for bytes in (8 << 10..300 << 10).step_by(3000) {
        let span = Span::of(table.index(), 0, Way::Forward, bytes);
        chunk.read(&table, &span).unwrap();
        assert!(
            chunk.bytes.memory_bytes() < bytes + (4 << 10),
            "{}",
            chunk.bytes.memory_bytes()
        );
    }
}

#[test]
fn a_merge_reads_a_table_in_as_few_pieces_as_may_be_and_all_of_one_size() {
    let entry = |n: u32| (n.to_be_bytes().to_vec(), SeqNo(1), Kind::Put, vec![7; 100]);
    let entries: Vec<Entry> = (0..4000).map(entry).collect();
    let stored = write(&entries, &Cover::default(), TableWriterOptions::default());
    let all = stored.record.data_bytes() as usize;
    // Not quite a half, a third, a fifth and a ninth of it; and more than all.
    for read_ahead_bytes in [2, 3, 5, 9]
        .map(|parts| all / parts - 4200)
        .into_iter()
        .chain([2 * all])
    {
        let (noting, table) = Noting::open(&stored, uncached());
        let mut cursor = table.cursor(ReadMode {
            read_ahead_bytes,
            ..ReadMode::MERGE
        });
        cursor.seek_first().unwrap();
        while cursor.valid() {
            cursor.next().unwrap();
        }
        let reads = noting.read_bytes();
        assert_eq!(reads.iter().sum::<usize>(), all);
        // With blocks of 4 KiB a piece may miss its size by one.
        let fewest = all.div_ceil(read_ahead_bytes - 5000);
        assert!(reads.len() <= fewest, "{reads:?}");
        let (least, most) = (reads.iter().min(), reads.iter().max());
        let (least, most) = (*least.unwrap(), *most.unwrap());
        assert!(most <= read_ahead_bytes && least * 2 > most, "{reads:?}");
    }
}

/// Of an iterator over several runs: before each search it asked for the whole piece again, and
/// each time the disk tried the bad sector for seconds.
#[test]
fn a_bad_piece_is_not_asked_for_again_by_a_search_beside_it() {
    let (_, stored) = records_of_a_kib();
    let (_, table) = Noting::open(&stored, uncached());
    let bad_block = 20;
    let place = table.index().place(bad_block);
    for announces in [false, true] {
        let noting = Noting {
            bad: place.offset..place.offset + u64::from(place.stored_bytes),
            is_direct: true,
            ..Noting::default()
        };
        let (noting, table) = noting.open_in(&stored, Arc::new(uncached().with_readers(1)));
        for _ in 0..200 {
            table.count_scan_begun();
            table.count_scan_gone_on();
        }
        let key = first_key(&table, bad_block - 2);
        let mut cursor = table.cursor(ReadMode::SCAN);
        for _ in 0..50 {
            if announces {
                cursor.announce(&key, SeqNo::MAX, false);
            }
            cursor.seek(&key, SeqNo::MAX).unwrap();
            assert_eq!(cursor.key(), key);
            cursor.seek_first().unwrap();
        }
        let tried = noting.bad_reads();
        assert!((1..=2).contains(&tried), "announces {announces}: {tried}");
    }
}

/// A piece is of one block at least, and three of them are in memory beside the block that is read.
#[test]
fn a_cursor_over_large_blocks_takes_no_more_than_an_iterator_may() {
    let block_bytes = 4 << 20;
    let entry = |n: u32| (n.to_be_bytes().to_vec(), SeqNo(1), Kind::Put, vec![7; 1000]);
    let entries: Vec<Entry> = (0..40_000).map(entry).collect();
    let options = TableWriterOptions {
        block_bytes,
        ..TableWriterOptions::default()
    };
    let stored = write(&entries, &Cover::default(), options);
    let noting = Noting {
        is_direct: true,
        ..Noting::default()
    };
    let (_, table) = noting.open_in(&stored, Arc::new(uncached().with_readers(1)));
    let mut cursor = table.cursor(ReadMode::SCAN);
    cursor.seek_first().unwrap();
    let mut most = 0;
    while cursor.valid() {
        most = most.max(cursor.held_bytes() + cursor.block().unwrap().bytes().len());
        cursor.next().unwrap();
    }
    // Of one run, as `Options::iterator_bytes_max` has it.
    assert!(most > 3 * block_bytes && most <= 5 * block_bytes, "{most}");
}
