//! What heat and planning cost the processor: a load of as many reads as writes,
//! skewed, on a store of some two hundred tables on two tiers, for valgrind to count
//! the instructions of. One thread does everything, and time is counted and not
//! waited for, so that the same is done every time.
//!
//! `valgrind --tool=callgrind --toggle-collect='*load_on*' target/release/examples/planning_cost
//! PRESET [KiB of a table]`, then `callgrind_annotate --inclusive=yes --threshold=100`: of
//! its output `Engine::plan` and `Engine::place` are all that is planned, the sampling of
//! heat included, and `HeatTracker::inherit` what merges hand on. To count an access is a
//! few additions, with every preset the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thermocline::store::{Clock, Environment};
use thermocline::{Db, DeviceProfile, Options, Result, Tier};

const TABLES: u64 = 200;
const VALUE_BYTES: usize = 1_000;
const OPERATIONS: u64 = 100_000;
const OPERATION_US: u64 = 100;
/// How often a background thread that has nothing to do looks for work.
const LOOK_US: u64 = 500_000;

/// Time that passes when it is told to.
#[derive(Debug)]
struct Counted(AtomicU64);

impl Clock for Counted {
    fn now_micros(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) {
        self.0
            .fetch_add(duration.as_micros() as u64, Ordering::Relaxed);
    }
}

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Eight in ten draws fall on a fifth of what is below `n`, five times over.
    fn skewed(&mut self, n: u64) -> u64 {
        let mut below = n;
        for _ in 0..5 {
            if self.next() % 10 >= 8 {
                break;
            }
            below = (below / 5).max(1);
        }
        self.next() % below
    }
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    let digits = n.to_string();
    key[16 - digits.len()..].copy_from_slice(digits.as_bytes());
    key
}

fn fill(value: &mut [u8], dice: &mut Dice) {
    for word in value.chunks_mut(8) {
        word.copy_from_slice(&dice.next().to_le_bytes()[..word.len()]);
    }
}

/// Everything that valgrind is to count.
#[inline(never)]
fn load_on(db: &Db, clock: &Counted, entries: u64) -> Result<u64> {
    let mut dice = Dice(7);
    let mut value = [0; VALUE_BYTES];
    let (mut looked_us, mut jobs) = (clock.now_micros(), 0);
    for n in 0..OPERATIONS {
        let key = key(dice.skewed(entries));
        if n % 2 == 0 {
            db.get(&key)?;
        } else {
            fill(&mut value, &mut dice);
            db.put(&key, &value)?;
        }
        clock.sleep(Duration::from_micros(OPERATION_US));
        if clock.now_micros() - looked_us >= LOOK_US {
            looked_us = clock.now_micros();
            while db.step()? {
                jobs += 1;
            }
        }
    }
    Ok(jobs)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let preset = arguments.next().unwrap_or_else(|| "leveled".into());
    let table_kib = arguments.next().and_then(|n| n.parse().ok());
    let table_bytes = table_kib.unwrap_or(2048) << 10;
    let bytes = TABLES * table_bytes;
    let entries = bytes / VALUE_BYTES as u64;
    let directory = tempfile::tempdir().expect("a directory can be made");
    let clock = Arc::new(Counted(AtomicU64::new(1 << 50)));
    let environment = Environment {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        ..Environment::real()
    };
    let tier = |name: &str, price, random_read_iops, sequential_mb_s| {
        Tier::new(name, directory.path().join(name))
            .price_usd_gb_month(price)
            .profile(DeviceProfile {
                random_read_iops,
                sequential_mb_s,
            })
    };
    let mut options = Options::new()
        .tier(tier("fast", 0.5, 6000.0, 480.0).capacity_bytes(bytes / 2))
        .tier(tier("slow", 0.05, 60.0, 150.0))
        .preset(preset.as_str())
        .table_bytes(table_bytes)
        .write_buffer_bytes(8 << 20)
        .first_level_bytes(8 << 20)
        .block_cache_bytes(bytes / 20)
        .background_threads(0)
        .reserve_bytes(0);
    if preset == "mutant" {
        options = options.cost_target_usd_per_gb_month(0.2);
    }
    let db = Db::open_in(options, &environment)?;
    let (mut dice, mut value) = (Dice(1), [0; VALUE_BYTES]);
    let mut load = db.bulk_load()?;
    for n in 0..entries {
        fill(&mut value, &mut dice);
        load.add(&key(n), &value)?;
    }
    load.finish()?;
    db.settle()?;
    let before = db.stats();
    let jobs = load_on(&db, &clock, entries)?;
    let after = db.stats();
    println!(
        "{preset}: {OPERATIONS} operations, {jobs} jobs, {} flushes, {} merges, {} MiB merged, \
         {} tables; memory used {:?}",
        after.flushes - before.flushes,
        after.merges - before.merges,
        (after.merge_out_bytes - before.merge_out_bytes) >> 20,
        db.tables().len(),
        after.memory.used,
    );
    Ok(())
}
