//! Speed of the memtable: nanoseconds per insert and get, on this machine.
//!
//! Values are 100 bytes and keys 16: random bytes, or decimal digits behind
//! zeros in random or ascending order. With two threads a number is the wall
//! time of one thread's operation. Each line is the best of several rounds.

use std::sync::Arc;
use std::time::Instant;

use thermocline::memory::{ArenaPool, Memtable, MemtableOptions};
use thermocline_model::key::{Kind, Prefix, SeqNo};
use xxhash_rust::xxh3::xxh3_64;

const ENTRY_BYTES_ABOUT: usize = 164;
const ROUNDS: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Keys {
    Random,
    Digits,
    Ascending,
}

/// `n` keys, each given by its own number alone.
fn make_keys(keys: Keys, n: usize) -> Vec<[u8; 16]> {
    (0..n as u64)
        .map(|i| {
            // A mix of `i` that gives each number once.
            let mut x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
            x ^= x >> 32;
            let mut key = [0; 16];
            match keys {
                Keys::Random => {
                    key[..8].copy_from_slice(&x.to_be_bytes());
                    key[8..].copy_from_slice(&x.rotate_left(32).to_be_bytes());
                }
                Keys::Digits => key.copy_from_slice(format!("{:016}", x % 100_000_000).as_bytes()),
                Keys::Ascending => key.copy_from_slice(format!("{i:016}").as_bytes()),
            }
            key
        })
        .collect()
}

/// Runs `work` on each thread's share of `n` numbers; nanoseconds for each.
fn time(threads: usize, n: usize, work: impl Fn(usize) + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || (thread..n).step_by(threads).for_each(work));
        }
    });
    start.elapsed().as_nanos() as f64 / (n / threads) as f64
}

fn measure(mib: usize, filter: bool, pooled: bool, threads: usize, keys: Keys) {
    let n = (mib << 20) / ENTRY_BYTES_ABOUT;
    let all = make_keys(keys, n);
    // In digits a few of these are among those inserted.
    let absent = make_keys(keys, 2 * n).split_off(n);
    let prefix = match keys {
        Keys::Random => Prefix::default(),
        _ => Prefix::between(
            all.iter().min().expect("some keys"),
            all.iter().max().expect("some keys"),
        ),
    };
    let pool = ArenaPool::new(if pooled { 1 << 30 } else { 0 });
    let value = [7u8; 100];
    let mut best = [f64::MAX; 4];
    let mut bytes_per_entry = 0;
    for _ in 0..ROUNDS {
        let table = Memtable::new(MemtableOptions {
            capacity_bytes: mib << 20,
            prefix: prefix.clone(),
            filter,
            pool: Arc::clone(&pool),
        });
        let insert = time(threads, n, |i| {
            let key = &all[i];
            table.insert(key, xxh3_64(key), SeqNo(i as u64 + 1), Kind::Put, &value);
        });
        // In an order other than that of insertion.
        let get = time(threads, n, |i| {
            let key = &all[i.wrapping_mul(7919) % n];
            assert!(table.get(key, xxh3_64(key), SeqNo::MAX).is_some());
        });
        let miss = time(threads, n, |i| {
            let key = &absent[i];
            std::hint::black_box(table.get(key, xxh3_64(key), SeqNo::MAX));
        });
        let scan = {
            let mut cursor = table.cursor();
            let start = Instant::now();
            cursor.seek_first();
            while cursor.valid() {
                std::hint::black_box(cursor.value());
                cursor.next();
            }
            start.elapsed().as_nanos() as f64 / n as f64
        };
        for (best, now) in best.iter_mut().zip([insert, get, miss, scan]) {
            *best = best.min(now);
        }
        bytes_per_entry = table.size_bytes() / n;
    }
    println!(
        "{mib:3} MiB {n:7} entries {:10} filter {:5} pooled {:5} threads {threads}: \
         insert {:4.0} get {:4.0} absent {:4.0} next {:4.0} ns, {bytes_per_entry} bytes/entry",
        format!("{keys:?}"),
        filter,
        pooled,
        best[0],
        best[1],
        best[2],
        best[3],
    );
}

fn main() {
    for mib in [4, 8, 16, 64] {
        for (filter, pooled) in [(false, false), (false, true), (true, true)] {
            measure(mib, filter, pooled, 1, Keys::Random);
        }
        measure(mib, true, true, 2, Keys::Random);
        measure(mib, true, true, 1, Keys::Digits);
        measure(mib, true, true, 1, Keys::Ascending);
    }
}
