//! How fast tables are: a million entries of 16-byte keys and 100-byte values,
//! in memory. Prints nanoseconds per operation.
//!
//! `cargo run --release --example table_speed [entries] [restart interval]`

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use thermocline::Result;
use thermocline::cache::BlockCache;
use thermocline::store::{Advice, ObjectReader, ObjectWriter};
use thermocline::table::{
    ReadMode, Table, TableContext, TableWriter, TableWriterOptions, key_hash,
};
use thermocline_model::{Compression, Kind, ObjectId, SeqNo, TableId, TierId};

#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl ObjectWriter for Memory {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0
            .lock()
            .expect("no thread panics")
            .extend_from_slice(bytes);
        Ok(())
    }
    fn size_bytes(&self) -> u64 {
        self.0.lock().expect("no thread panics").len() as u64
    }
    fn persist(&mut self) -> Result<()> {
        Ok(())
    }
    fn abandon(self: Box<Self>) {}
}

impl ObjectReader for Memory {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = self.0.lock().expect("no thread panics");
        buffer.copy_from_slice(&bytes[offset as usize..][..buffer.len()]);
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

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(n)) >> 64) as u64
    }
}

/// The decimal key of `n`, without the cost of formatting.
fn key(n: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    let mut rest = n;
    for digit in key.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The processor time of this thread where the system tells it (other programs
/// then disturb less), else the time.
fn clock(origin: Instant) -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let first = statistics.and_then(|s| s.split(' ').next()?.parse().ok());
    first.map_or_else(|| origin.elapsed(), Duration::from_nanos)
}

fn measure(name: &str, operations: u64, mut run: impl FnMut() -> u64) {
    let mut best = f64::MAX;
    let mut sum = 0;
    let origin = Instant::now();
    for _ in 0..3 {
        let start = clock(origin);
        sum = run();
        best = best.min((clock(origin) - start).as_secs_f64());
    }
    let nanoseconds = best * 1e9 / operations as f64;
    println!("{name:<44} {nanoseconds:8.1} ns   (sum {sum})");
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let entries: u64 = arguments.next().unwrap_or(1_000_000);
    let interval = arguments.next().unwrap_or(4) as u8;
    let value = [b'v'; 100];
    let mut numbers: Vec<u64> = (1..=entries).collect();
    let mut dice = Dice(7);
    for i in (1..numbers.len()).rev() {
        numbers.swap(i, dice.below(i as u64 + 1) as usize);
    }
    let numbers = &numbers;
    let write = |compression| -> Result<(Memory, Memory, thermocline_model::TableMeta)> {
        let (data, meta) = (Memory::default(), Memory::default());
        data.0
            .lock()
            .expect("no thread panics")
            .reserve(entries as usize * 130);
        let options = TableWriterOptions {
            compression,
            restart_interval: interval,
            ..TableWriterOptions::default()
        };
        let mut writer = TableWriter::new(TableId(1), options, Box::new(data.clone()));
        for (n, &seq) in (0..entries).zip(numbers) {
            // Every other number: the rest is absent, but within the range.
            writer.add(&key(n * 2), SeqNo(seq), Kind::Put, &value)?;
        }
        let written = writer.finish(Box::new(meta.clone()))?;
        Ok((
            data,
            meta,
            written.into_meta((TierId(0), ObjectId(1)), (TierId(0), ObjectId(2))),
        ))
    };
    println!("{entries} entries, a restart every {interval}");
    if std::env::args().nth(3).is_some() {
        for _ in 0..5 {
            measure("build, plain", entries, || {
                write(Compression::None).map_or(0, |w| w.2.size_bytes())
            });
        }
        return Ok(());
    }
    for (name, compression) in [("lz4", Compression::Lz4), ("plain", Compression::None)] {
        measure(&format!("build, {name}"), entries, || {
            write(compression).map_or(0, |w| w.2.size_bytes())
        });
    }
    let (data, meta, record) = write(Compression::None)?;
    let open = |cache_bytes: u64| -> Result<Arc<Table>> {
        let context = Arc::new(TableContext::new(Arc::new(BlockCache::new(cache_bytes))));
        let readers: Vec<Arc<dyn ObjectReader>> = vec![Arc::new(data.clone())];
        Ok(Arc::new(Table::open(
            &record,
            Arc::new(meta.clone()),
            readers,
            context,
        )?))
    };
    let table = &open(1 << 30)?;
    let uncached = &open(0)?;
    println!(
        "{} blocks, {} data bytes, {} meta bytes, {} pinned bytes",
        table.block_count(),
        record.data_bytes(),
        record.meta.length,
        table.memory_bytes()
    );
    measure("open, per block", table.block_count() as u64, || {
        open(0).map_or(0, |t| t.memory_bytes())
    });
    let gets = entries;
    let get = |table: &Table, n: u64| {
        let key = key(n);
        let hit = table
            .get(&key, key_hash(&key), SeqNo::MAX)
            .expect("the table is sound");
        hit.map_or(0, |h| h.value.len() as u64)
    };
    measure("key and hash alone", gets, || {
        let mut dice = Dice(1);
        (0..gets)
            .map(|_| key_hash(&key(dice.below(entries) * 2)) & 1)
            .sum()
    });
    measure("index alone (approximate place)", gets, || {
        let mut dice = Dice(1);
        (0..gets)
            .map(|_| table.search_index(&key(dice.below(entries) * 2)) as u64)
            .sum()
    });
    measure("get present, in order", gets, || {
        (0..gets).map(|n| get(table, n * 2)).sum()
    });
    measure("get present, random", gets, || {
        let mut dice = Dice(1);
        (0..gets).map(|_| get(table, dice.below(entries) * 2)).sum()
    });
    measure("get present, random, 1 block of 50", gets, || {
        let mut dice = Dice(1);
        (0..gets)
            .map(|_| get(table, dice.below(entries / 50) * 2))
            .sum()
    });
    measure("get absent, random", gets, || {
        let mut dice = Dice(1);
        (0..gets)
            .map(|_| get(table, dice.below(entries) * 2 + 1))
            .sum()
    });
    measure("get present, random, no cache", gets / 10, || {
        let mut dice = Dice(1);
        (0..gets / 10)
            .map(|_| get(uncached, dice.below(entries) * 2))
            .sum()
    });
    for (name, table, mode) in [
        ("cached", table, ReadMode::SCAN),
        ("scan read-ahead", uncached, ReadMode::SCAN),
        ("merge read-ahead", uncached, ReadMode::MERGE),
    ] {
        measure(&format!("forward, {name}"), entries, || {
            let mut cursor = table.cursor(mode);
            let mut sum = 0;
            cursor.seek_first().expect("the table is sound");
            while cursor.valid() {
                sum += cursor.key().len() as u64 + cursor.seq().0 + u64::from(cursor.value()[0]);
                cursor.next().expect("the table is sound");
            }
            sum
        });
        measure(&format!("backward, {name}"), entries, || {
            let mut cursor = table.cursor(mode);
            let mut sum = 0;
            cursor.seek_last().expect("the table is sound");
            while cursor.valid() {
                sum += cursor.key().len() as u64 + cursor.seq().0 + u64::from(cursor.value()[0]);
                cursor.prev().expect("the table is sound");
            }
            sum
        });
    }
    let mut cursor = table.cursor(ReadMode::SCAN);
    measure("seek, random, cached", gets, || {
        let mut dice = Dice(1);
        let mut sum = 0;
        for _ in 0..gets {
            cursor
                .seek(&key(dice.below(entries * 2)), SeqNo::MAX)
                .expect("the table is sound");
            sum += u64::from(cursor.valid());
        }
        sum
    });
    Ok(())
}
