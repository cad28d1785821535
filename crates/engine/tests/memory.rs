//! What the engine holds in memory never exceeds what the options promise.
//!
//! An allocator that counts stands under the whole test binary, so these tests run one after the
//! other, and each looks only at what was added since it began. Memtables do not lie in its memory
//! but in mappings of their own, nor do cached blocks and large buffers; the engine counts those by
//! the page and by the chunk. The sum is held to `Options::memory_bytes_max` after every few
//! operations, and the allocator's share of it at every allocation.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use thermocline::store::mapped_bytes;
use thermocline::{Compression, Db, Options, Tier};
use thermocline_model::picture;
use thermocline_model::view::TableHeat;
use thermocline_policy::heat::{Counters, HeatOptions, Histograms, Temperature};
use thermocline_policy::{Access, HeatTracker};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// All that was ever asked for.
static ASKED: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: hands every call on to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live + mapped_bytes(), Ordering::Relaxed);
        ASKED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test at a time: they share the counts.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The use of memory since it was made, held to a promise.
struct Watch {
    before: usize,
    /// Most of the heap and of the mapping of cached blocks.
    most_heap: usize,
    most_memtables: u64,
}

impl Watch {
    fn new() -> Watch {
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        Watch {
            before,
            most_heap: 0,
            most_memtables: 0,
        }
    }

    /// Holds all that was used since the last look, and is used now, to the
    /// promise. `more` is what the caller holds.
    fn look(&mut self, db: &Db, more: u64, doing: &str) {
        // A memtable that is on its way from a flush to the pool is counted in both
        // until the flush has the processor again: what is really held stays.
        let mut stats = db.stats();
        for _ in 0..40 {
            if stats.memory.used.memtables <= stats.memory.max.memtables {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
            stats = db.stats();
        }
        let memory = stats.memory;
        let now = LIVE.load(Ordering::Relaxed);
        let heap = PEAK.swap(now, Ordering::Relaxed).max(now) - self.before;
        let heap = heap + stats.cache_mapped_bytes as usize;
        self.most_heap = self.most_heap.max(heap);
        self.most_memtables = self.most_memtables.max(memory.used.memtables);
        let max = memory.max;
        assert!(
            memory.used.memtables <= max.memtables,
            "{doing}: memtables take {} of {}",
            memory.used.memtables,
            max.memtables
        );
        // Half of what jobs may take is for the allocator.
        assert!(
            memory.used.jobs <= max.jobs / 2,
            "{doing}: jobs may take {} of {}",
            memory.used.jobs,
            max.jobs / 2
        );
        // Nobody knows at what moment the heap was at its peak, so memtables are
        // taken at theirs.
        let heap_max = max.total() - max.memtables - max.jobs / 2 + more;
        assert!(
            heap as u64 <= heap_max,
            "{doing}: the heap holds {heap} of {heap_max}, {memory:?}"
        );
    }
}

impl Watch {
    /// Holds a store in which nothing happens to what its own statistics say.
    fn rest(&mut self, db: &Db) {
        let stats = db.stats();
        let used = stats.memory.used;
        let heap = (LIVE.load(Ordering::Relaxed) - self.before) as u64 + stats.cache_mapped_bytes;
        let said = used.block_cache + used.table_metadata;
        println!("at rest: heap {heap}, of cache and metadata {said}");
        assert!(heap <= said + REST_BYTES, "heap {heap}, {used:?}");
    }
}

/// What a small store has beside cache and metadata.
const REST_BYTES: u64 = 512 << 10;

/// What is done to a store, from a seed.
struct Load {
    entries: u64,
    key_bytes: usize,
    value_bytes: usize,
    seed: u64,
}

impl Load {
    /// The next number of a full-period generator.
    fn dice(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 11
    }

    fn key(&self, number: u64) -> Vec<u8> {
        format!("{number:0width$}", width = self.key_bytes).into_bytes()
    }

    fn put_all(&mut self, db: &Db, watch: &mut Watch, doing: &str) {
        let mut value = vec![0; self.value_bytes];
        for i in 0..self.entries {
            let number = self.dice() % self.entries;
            let (start, dice) = (i as usize % value.len(), self.dice() as u8);
            value[start..].fill(dice);
            db.put(&self.key(number), &value).unwrap();
            if i % 500 == 0 {
                watch.look(db, 0, doing);
            }
        }
        watch.look(db, 0, doing);
    }
}

/// Loads, overwrites, reads, scans and merges, all the time within the promise.
fn keep_promise(options: impl Fn(Options) -> Options, mut load: Load) -> Watch {
    let directory = tempfile::tempdir().unwrap();
    println!("seed {}", load.seed);
    let options = options(Options::at(directory.path()));
    let mut watch = Watch::new();
    let db = Db::open(options.clone()).unwrap();
    watch.look(&db, 0, "open");
    load.put_all(&db, &mut watch, "load");
    load.put_all(&db, &mut watch, "overwrite");
    for i in 0..load.entries {
        let key = load.key(load.entries / 2 + i % 7 * 100 + i / 3);
        drop(db.get(&key).unwrap());
        if i % 500 == 0 {
            watch.look(&db, 0, "read");
        }
    }
    let scan = |watch: &mut Watch, doing: &str| {
        let mut iter = db.iter().unwrap();
        iter.seek_to_first().unwrap();
        let mut count = 0;
        while iter.valid() {
            iter.next().unwrap();
            count += 1;
        }
        watch.look(&db, options.iterator_bytes_max(), doing);
        count
    };
    let found = scan(&mut watch, "scan");
    db.flush().unwrap();
    db.settle().unwrap();
    watch.look(&db, 0, "settle");
    assert_eq!(scan(&mut watch, "scan after merges"), found);
    db.compact_range(None, None).unwrap();
    watch.look(&db, 0, "compact");
    watch.rest(&db);
    let max = db.stats().memory.max;
    println!(
        "memtables {} of {}, heap {} of {}",
        watch.most_memtables,
        max.memtables,
        watch.most_heap,
        max.total() - max.memtables - max.jobs / 2
    );
    drop(db);
    watch
}

fn small(options: Options) -> Options {
    options
        .write_buffer_bytes(4 << 20)
        .block_cache_bytes(2 << 20)
        .pinned_meta_bytes(4 << 20)
        .table_bytes(1 << 20)
        .first_level_bytes(4 << 20)
        .log_segment_bytes(1 << 20)
        .log_bytes_max(64 << 20)
}

fn entries(entries: u64, key_bytes: usize, value_bytes: usize) -> Load {
    Load {
        entries,
        key_bytes,
        value_bytes,
        seed: 7,
    }
}

#[test]
fn memory_stays_within_the_promise_with_steps_in_the_callers_thread() {
    let _turn = alone();
    let watch = keep_promise(|o| small(o).background_threads(0), entries(60_000, 16, 100));
    // The bounds are near: a cache, a write buffer that were not counted right
    // would be beyond them.
    assert!(watch.most_memtables >= 2 << 20, "{}", watch.most_memtables);
    assert!(watch.most_heap >= 2 << 20, "{}", watch.most_heap);
}

#[test]
fn memory_stays_within_the_promise_with_background_threads() {
    let _turn = alone();
    keep_promise(|o| small(o).background_threads(2), entries(60_000, 16, 100));
    keep_promise(|o| small(o).background_threads(4), entries(40_000, 24, 200));
}

/// The promise grows with the threads, as merges share those that they have beside one each.
#[test]
fn memory_stays_within_the_promise_while_many_threads_merge_many_parts() {
    let _turn = alone();
    let cuts: Vec<Vec<u8>> = (1..8u32)
        .map(|i| format!("{:016}", i * 7_500).into_bytes())
        .collect();
    let many = |o| small(o).background_threads(8).cuts(cuts.clone());
    keep_promise(
        |o| many(o).merges_end_at_cuts(true),
        entries(60_000, 16, 200),
    );
    let jobs = |threads| many(Options::at("/x")).background_threads(threads);
    let jobs = |threads| jobs(threads).memory_max(8).jobs;
    assert_eq!((jobs(8), jobs(64)), (14 * jobs(1), 126 * jobs(1)));
}

#[test]
fn memory_stays_within_the_promise_when_the_cache_is_most_of_it() {
    let _turn = alone();
    let watch = keep_promise(
        |o| {
            // Nothing of it is lent: on a slow machine that takes part of it for a while.
            let small = small(o).background_threads(1).block_cache_bytes(16 << 20);
            small.write_buffer_grows(false)
        },
        entries(300_000, 16, 100),
    );
    assert!(watch.most_heap >= 14 << 20, "{}", watch.most_heap);
}

#[test]
fn memory_stays_within_the_promise_with_the_smallest_blocks() {
    let _turn = alone();
    let block = |o: Options| {
        let tier = o.tier_list()[0].clone().block_bytes(512);
        o.with_tiers(vec![tier])
    };
    keep_promise(
        |o| {
            small(block(o))
                .background_threads(1)
                .block_cache_bytes(16 << 20)
        },
        entries(200_000, 16, 100),
    );
}

/// Bytes beyond what the options give memtables that the block cache lends them now.
fn lent(db: &Db) -> u64 {
    let most = db.stats().memory.max.memtables;
    most.saturating_sub(4 << 20)
}

#[test]
fn memory_stays_within_the_promise_while_the_block_cache_lends_and_takes_back() {
    let _turn = alone();
    let directory = tempfile::tempdir().unwrap();
    let options = small(Options::at(directory.path()));
    let mut watch = Watch::new();
    let db = Db::open(options.background_threads(2).block_cache_bytes(16 << 20)).unwrap();
    let most = db.stats().memory.max.total();
    let mut load = entries(20_000, 16, 100);
    // The cache is full first.
    load.put_all(&db, &mut watch, "load");
    db.flush().unwrap();
    let read = |watch: &mut Watch| {
        for number in 0..20_000 {
            drop(db.get(&entries(0, 16, 0).key(number)).unwrap());
            if number % 500 == 0 {
                watch.look(&db, 0, "read");
            }
        }
    };
    read(&mut watch);
    while lent(&db) < 12 << 20 {
        load.put_all(&db, &mut watch, "write only");
        assert_eq!(db.stats().memory.max.total(), most);
    }
    load.put_all(&db, &mut watch, "write with what was lent");
    while lent(&db) > 0 {
        read(&mut watch);
        assert_eq!(db.stats().memory.max.total(), most);
    }
}

#[test]
fn memory_stays_within_the_promise_with_tiny_and_with_large_entries() {
    let _turn = alone();
    keep_promise(|o| small(o).background_threads(1), entries(100_000, 8, 1));
    keep_promise(
        |o| small(o).background_threads(1),
        entries(2_000, 64, 20_000),
    );
}

/// What is kept of heat in a store with a preset, and what planning takes beside that
/// for a moment, in bytes for each of its tables, which are all read.
fn heat_and_planning(preset: &str) -> (f64, f64) {
    const TABLES: u64 = 500;
    let directory = tempfile::tempdir().unwrap();
    let tier =
        |name: &str, price| Tier::new(name, directory.path().join(name)).price_usd_gb_month(price);
    let options = Options::new()
        .tier(tier("fast", 0.5))
        .tier(tier("slow", 0.05))
        .preset(preset)
        .table_bytes(64 << 10)
        .background_threads(0);
    let options = match preset {
        "mutant" => options.cost_target_usd_per_gb_month(0.5),
        _ => options,
    };
    let db = Db::open(options).unwrap();
    let mut load = db.bulk_load().unwrap();
    let keys = (0..TABLES * 64).map(|n| format!("{n:016}"));
    for key in keys.clone() {
        load.add(key.as_bytes(), &[7; 1_000]).unwrap();
    }
    load.finish().unwrap();
    let mut peak = 0;
    for _ in 0..3 {
        for key in keys.clone() {
            assert!(db.get(key.as_bytes()).unwrap().is_some());
        }
        db.settle().unwrap();
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        assert!(!db.step().unwrap(), "nothing but planning");
        peak = peak.max(PEAK.load(Ordering::Relaxed) - before);
    }
    let tables = db.tables().len() as f64;
    let kept = db.stats().memory.used.other as f64 / tables;
    let planning = peak as f64 / tables;
    println!("{preset}: {tables} tables, {kept:.0} bytes of heat each, planning {planning:.0}");
    assert!(kept >= 64.0, "all tables are known");
    (kept, planning)
}

#[test]
fn heat_and_planning_take_some_hundred_bytes_a_table() {
    let _turn = alone();
    let (least, planned) = heat_and_planning("leveled");
    for preset in ["mutant", "logstore"] {
        let (kept, planning) = heat_and_planning(preset);
        assert!(kept + planning < 1_000.0, "{preset}: {kept} and {planning}");
        // Of a table of 2 MiB, metadata alone is some 24 KiB.
        let more = kept + planning - least - planned;
        assert!(
            more < 0.017 * 24_576.0,
            "{preset}: {more} bytes a table more"
        );
    }
}

#[test]
fn what_is_said_of_heat_is_what_the_allocator_gave_for_it() {
    let _turn = alone();
    let pictures = (1..=1_000u32).map(|n| format!("#{n}[{n:04}..{n:04}]"));
    let version = picture::parse(&format!("L7: {}", pictures.collect::<Vec<_>>().join(" ")));
    let version = version.unwrap();
    let options = HeatOptions::default();
    let trackers: [&dyn Fn() -> Box<dyn HeatTracker>; 3] = [
        &|| Box::new(Counters::default()),
        &|| Box::new(Temperature::new(options)),
        &|| Box::new(Histograms::new(options)),
    ];
    for (at, tracker) in trackers.iter().enumerate() {
        let before = LIVE.load(Ordering::Relaxed);
        let tracker = tracker();
        for second in 1..5 {
            for table in version.tables().skip(second) {
                let delta = TableHeat {
                    block_reads: 5,
                    ..TableHeat::default()
                };
                tracker.touch(&Access {
                    key: &[],
                    table: table.id,
                    delta,
                });
            }
            let said = tracker.memory_bytes();
            let given = (LIVE.load(Ordering::Relaxed) - before) as u64;
            // The tracker itself, and what its lists are in; and what threads of tests that have
            // ended gave back meanwhile.
            let range = given.saturating_sub(2_048)..=given + 2_048;
            assert!(range.contains(&said), "{at}: {said} of {given}");
            drop(tracker.sample(&version, second as u64 * 10_000_000));
        }
    }
}

#[test]
fn the_tables_of_a_flush_keep_one_filter_and_that_as_large_as_their_keys_ask_for() {
    const KEYS: u64 = 1_000;
    let _turn = alone();
    let directory = tempfile::tempdir().unwrap();
    let options = small(Options::at(directory.path()))
        .background_threads(0)
        .write_buffer_bytes(8 << 20);
    let key = |n: u64| format!("{n:016}");
    let metadata = |db: &Db| {
        (0..KEYS).for_each(|n| assert!(db.get(key(n).as_bytes()).unwrap().is_some()));
        db.stats().memory.used.table_metadata
    };
    let db = Db::open(options.clone()).unwrap();
    for n in 0..3 * KEYS {
        db.put(key(n % KEYS).as_bytes(), &[7; 1_000]).unwrap();
    }
    // Several memtables, each with a filter for entries of 100 bytes.
    db.flush().unwrap();
    let stats = db.stats();
    assert_eq!((stats.flushes, db.tables().len()), (1, 1));
    let with = metadata(&db);
    drop(db);
    // Filters of flushes are not kept over a restart: the rest is what it was.
    let filter = with - metadata(&Db::open(options).unwrap());
    let asked = KEYS * 12 / 8;
    assert!(
        (asked..=2 * asked + 128).contains(&filter),
        "{filter} bytes"
    );
}

/// Every table of a range was explained by a ranking of all tables made for it alone, so that a
/// store of ten times the tables took a hundred times the memory traffic, and the time.
#[test]
fn explaining_a_range_asks_for_memory_in_proportion_to_its_tables() {
    let _turn = alone();
    for preset in ["leveled", "mutant", "logstore"] {
        let asked = |entries: u32| {
            let directory = tempfile::tempdir().unwrap();
            let tier = |name: &str| Tier::new(name, directory.path().join(name));
            let options = Options::new()
                .tier(tier("fast").price_usd_gb_month(0.5).capacity_bytes(1 << 20))
                .tier(tier("slow").price_usd_gb_month(0.05))
                .preset(preset)
                .reserve_bytes(0)
                .write_buffer_bytes(4 << 20)
                .table_bytes(16 << 10)
                .background_threads(0);
            let db = Db::open(options).unwrap();
            for n in 0..entries {
                db.put(&n.to_be_bytes(), &[7; 1000]).unwrap();
            }
            db.compact_range(None, None).unwrap();
            let before = ASKED.load(Ordering::Relaxed);
            let told = db.explain_range(None, None).unwrap();
            let asked = ASKED.load(Ordering::Relaxed) - before;
            assert_eq!(told.tables.len(), db.tables().len());
            (told.tables.len(), asked)
        };
        let ((few, of_few), (many, of_many)) = (asked(1000), asked(8000));
        assert!(few > 30 && many > 6 * few, "{preset}: {few}, {many} tables");
        let (each_of_few, each_of_many) = (of_few / few, of_many / many);
        assert!(
            each_of_many < 2 * each_of_few,
            "{preset}: {each_of_few} bytes for each of {few} tables, {each_of_many} of {many}"
        );
    }
}

#[test]
fn memory_stays_within_the_promise_with_many_parts_tiers_and_compression() {
    let _turn = alone();
    let tiers = |o: Options| {
        let directory = o.tier_list()[0].path().to_path_buf();
        let fast = Tier::new("fast", directory.join("fast")).capacity_bytes(40 << 20);
        let slow = Tier::new("slow", directory.join("slow"))
            .compression(Compression::Zstd)
            .block_bytes(16 << 10);
        o.with_tiers(vec![fast, slow])
    };
    let cuts: Vec<Vec<u8>> = (1..8u32)
        .map(|i| format!("{:016}", i * 5_000).into_bytes())
        .collect();
    keep_promise(
        |o| small(tiers(o)).background_threads(2).cuts(cuts.clone()),
        entries(40_000, 16, 200),
    );
}
