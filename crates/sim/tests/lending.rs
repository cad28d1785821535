//! What a store that is only written to, or only read, does with the memory that memtables
//! and the block cache have together, by the disk's own clock.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::time::Duration;

use thermocline::{Db, Durability, Options};
use thermocline_sim::disk::{Disk, Down};

const KIB: u64 = 1 << 10;
const WRITE_BUFFER: u64 = 256 * KIB;
const CACHE: u64 = 1 << 20;
/// Three quarters of the cache, which is three times the write buffer.
const LENDABLE: u64 = 768 * KIB;

fn options() -> Options {
    Options::at("/store")
        .write_buffer_bytes(WRITE_BUFFER)
        .block_cache_bytes(CACHE)
        .log_segment_bytes(256 * KIB)
        .log_bytes_max(32 << 20)
        .table_bytes(64 * KIB)
        .first_level_bytes(256 * KIB)
        .durability(Durability::Device)
        .background_threads(0)
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

/// A store on a disk, and what was last put.
struct Store {
    disk: Disk,
    db: Db,
    memory_bytes_max: u64,
    puts: u64,
    last: Vec<u64>,
}

impl Store {
    fn open(options: Options) -> Store {
        let disk = Disk::new(3);
        let memory_bytes_max = options.memory_bytes_max();
        let db = Db::open_in(options, &disk.environment()).unwrap();
        Store {
            disk,
            db,
            memory_bytes_max,
            puts: 0,
            last: vec![0; 1000],
        }
    }

    fn tend(&self) {
        while self.db.step().unwrap() {}
        let memory = self.db.stats().memory;
        let (used, max) = (memory.used, memory.max);
        assert!(used.memtables <= max.memtables, "{memory:?}");
        assert!(used.block_cache <= max.block_cache, "{memory:?}");
        assert_eq!(max.total(), self.memory_bytes_max);
    }

    /// A second of puts.
    fn write(&mut self) {
        for n in 0..1000 {
            self.puts += 1;
            let at = (self.puts.wrapping_mul(0x9e37_79b9) >> 7) % 1000;
            self.last[at as usize] = self.puts;
            let value = [&self.puts.to_be_bytes()[..], &[7; 192]].concat();
            self.db.put(&key(at), &value).unwrap();
            if n % 50 == 0 {
                self.disk.pass_time(Duration::from_millis(50));
                self.tend();
            }
        }
    }

    /// A second of gets.
    fn read(&self) {
        for n in 0..1000 {
            self.check(n);
            if n % 50 == 0 {
                self.disk.pass_time(Duration::from_millis(50));
                self.tend();
            }
        }
    }

    fn check(&self, n: u64) {
        let found = self.db.get(&key(n)).unwrap();
        let put = found.map(|v| u64::from_be_bytes(v[..8].try_into().unwrap()));
        assert_eq!(put.unwrap_or(0), self.last[n as usize], "key {n}");
    }

    /// What memtables may hold beyond the write buffer.
    fn lent(&self) -> u64 {
        let most = self.db.stats().memory.max.memtables;
        most.saturating_sub(options().memory_max(1).memtables)
    }

    /// What the cache may hold.
    fn cached_most(&self) -> u64 {
        self.db.stats().memory.max.block_cache
    }
}

#[test]
fn who_only_writes_has_the_caches_memory_and_who_reads_has_it_back() {
    let mut store = Store::open(options());
    store.write();
    assert_eq!(store.lent(), 0, "a second is no habit");
    for _ in 0..3 {
        store.write();
    }
    assert_eq!(store.lent(), LENDABLE);
    // Everything is in tables, so that reads ask for blocks.
    store.db.flush().unwrap();
    store.read();
    store.read();
    let after = store.lent();
    assert!(after < LENDABLE, "{after}");
    for _ in 0..3 {
        store.read();
    }
    assert_eq!(store.lent(), 0);
    // And again, from a cache that is full.
    for _ in 0..4 {
        store.write();
    }
    assert_eq!(store.lent(), LENDABLE);
    for n in 0..1000 {
        store.check(n);
    }
}

#[test]
fn what_is_lent_makes_flushes_fewer_and_a_store_that_may_not_lend_does_not() {
    let flushes = |grows: bool| {
        let mut store = Store::open(options().write_buffer_grows(grows));
        for _ in 0..20 {
            store.write();
        }
        let stats = store.db.stats();
        println!(
            "grows {grows}: {} flushes of {} bytes, merged {}",
            stats.flushes, stats.flushed_bytes, stats.merge_in_bytes
        );
        assert_eq!(store.lent() > 0, grows);
        (stats.flushes, stats.flushed_bytes, stats.merge_in_bytes)
    };
    let (with, without) = (flushes(true), flushes(false));
    assert!(with.0 * 2 < without.0);
    assert!(with.1 < without.1 && with.2 < without.2);
}

#[test]
fn what_memtables_held_beyond_their_own_memory_is_recovered() {
    let mut store = Store::open(options());
    for _ in 0..6 {
        store.write();
    }
    assert_eq!(store.lent(), LENDABLE);
    let held = store.db.stats().memory.used.memtables;
    assert!(held > WRITE_BUFFER, "{held}");
    let Store {
        disk,
        db,
        memory_bytes_max,
        last,
        ..
    } = store;
    disk.reboot(Down::Kill);
    drop(db);
    // What is replayed is more than memtables have of their own.
    let db = Db::open_in(options(), &disk.environment()).unwrap();
    let store = Store {
        disk,
        db,
        memory_bytes_max,
        puts: 0,
        last,
    };
    assert!(store.lent() > 0);
    store.tend();
    for n in 0..1000 {
        store.check(n);
    }
    store.db.flush().unwrap();
    for _ in 0..3 {
        store.read();
    }
    assert_eq!(store.lent(), 0);
}

#[test]
fn who_only_reads_has_of_the_write_buffer_what_memtables_leave_and_who_writes_has_it_back() {
    let mut store = Store::open(options());
    for n in 0..1000 {
        store.last[n as usize] = n + 1;
        let value = [&(n + 1).to_be_bytes()[..], &[7; 192]].concat();
        store.db.put(&key(n), &value).unwrap();
    }
    store.puts = 1000;
    store.db.flush().unwrap();
    assert_eq!(store.cached_most(), CACHE);
    for _ in 0..30 {
        store.read();
    }
    // But for an empty memtable and what writers may add unseen.
    let most = store.cached_most();
    assert!(most > CACHE + WRITE_BUFFER / 2, "{most}");
    // A second of each, by turns: the cache lends nothing beyond, and memtables need all of theirs.
    for _ in 0..6 {
        store.write();
        store.read();
    }
    let most = store.cached_most();
    assert!(most < CACHE + WRITE_BUFFER / 2, "{most}");
    for n in 0..1000 {
        store.check(n);
    }
}
