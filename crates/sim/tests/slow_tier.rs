//! Case 24 of the list of cases in `docs/testing.md`: a slow tier that is a hundred times slower,
//! and then hangs; and case 25, a fast one. Times are those of the simulated clock, which moves by
//! what devices take: a read of the fast tier that waited for the slow one would show it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod forty;
mod presets;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forty::{KEYS, Room, by_tier, durably, holds_old, key, machine, old, open, options, store};
use presets::for_presets;
use thermocline::Db;
use thermocline::store::Clock;
use thermocline_sim::disk::{Device, Disk, Down, Latency};

/// What a hang takes.
const HANG: Duration = Duration::from_secs(60);

/// What it takes to time a read, as one in sixteen is: two looks at a clock that moves on with
/// each.
const TIMED_US: u64 = 40;

/// Of a device that is so many times slower than usual.
fn latency(times: u32) -> Latency {
    Latency {
        read: Duration::from_micros(100) * times,
        write: Duration::from_micros(100) * times,
        sync: Duration::from_millis(1) * times,
    }
}

/// How long the read of a key takes, in microseconds.
fn took_us(disk: &Disk, db: &Db, i: u8, newest: &[Vec<u8>]) -> u64 {
    let before = disk.now_micros();
    let found = db.get(&key(i)).unwrap();
    let after = disk.now_micros();
    assert_eq!(found.as_deref(), Some(&newest[usize::from(i)][..]));
    after - before
}

/// Reads of keys that the fast tier answers, while others are written, jobs are done and the slow
/// tier is read too. Which those are is asked in each round before the next call of the slow tier
/// is made to take `hang` longer, whoever makes it.
fn fast_reads_us(
    (disk, fast, slow): (&Disk, &Device, &Device),
    db: &Db,
    newest: &mut [Vec<u8>],
    hang: Duration,
) -> Vec<u64> {
    let (mut reads, mut waited) = (Vec::new(), 0);
    for round in 0..100u8 {
        let (mut on_fast, mut on_slow) = (Vec::new(), Vec::new());
        for i in 0..KEYS {
            let before = (fast.calls(), slow.calls());
            took_us(disk, db, i, newest);
            match (fast.calls() > before.0, slow.calls() > before.1) {
                (true, false) => on_fast.push(i),
                (_, true) => on_slow.push(i),
                // In memory.
                _ => {}
            }
        }
        slow.hang(hang);
        reads.extend(on_fast.iter().map(|&i| took_us(disk, db, i, newest)));
        let slowest = on_slow.iter().map(|&i| took_us(disk, db, i, newest)).max();
        waited += usize::from(u128::from(slowest.unwrap_or(0)) >= hang.as_micros());
        if round % 4 == 0 {
            let i = (round / 4).wrapping_mul(7) % KEYS;
            newest[usize::from(i)] = vec![round; 600];
            db.put(&key(i), &newest[usize::from(i)]).unwrap();
            db.step().unwrap();
        }
    }
    assert!(waited > 90, "the slow tier hung in {waited} rounds of 100");
    reads
}

fn p99(mut reads: Vec<u64>) -> u64 {
    reads.sort_unstable();
    reads[reads.len() * 99 / 100]
}

fn case_24_reads_of_the_fast_tier_take_no_longer_beside_a_slow_one_that_is_slower_or_hangs(
    preset: &str,
) {
    let (disk, fast, slow) = machine(6);
    fast.set_latency(latency(1));
    slow.set_latency(latency(1));
    let db = store(&disk, preset);
    let [fast_keys, slow_keys] = by_tier(&db);
    let mut newest: Vec<Vec<u8>> = (0..KEYS).map(old).collect();
    let all = |newest: &[Vec<u8>]| -> Vec<u64> {
        let keys = fast_keys.iter();
        keys.map(|&i| took_us(&disk, &db, i, newest)).collect()
    };
    // Once, so that every table is open.
    (0..KEYS).for_each(|i| assert!(took_us(&disk, &db, i, &newest) > 0));
    // At rest a read takes what it took, to the microsecond, timed or not.
    let before = all(&newest);
    let assert_as_before = |newest: &[Vec<u8>]| {
        let now = all(newest);
        let mut both = before.iter().zip(&now);
        let same = both.all(|(before, now)| [0, TIMED_US].contains(&before.abs_diff(*now)));
        assert!(same, "{before:?} {now:?}");
    };
    slow.set_latency(latency(100));
    assert_as_before(&newest);
    let slower = took_us(&disk, &db, slow_keys[0], &newest);
    assert!(slower >= 10_000, "and the slow one is slow: {slower}");
    slow.hang(HANG);
    assert_as_before(&newest);
    let hung = took_us(&disk, &db, slow_keys[0], &newest);
    assert!(hung >= 60_000_000, "{hung}");
    // And among writes and jobs.
    let mut measured = Vec::new();
    for (times, hang) in [(1, Duration::ZERO), (100, Duration::ZERO), (100, HANG)] {
        slow.set_latency(latency(times));
        let reads = fast_reads_us((&disk, &fast, &slow), &db, &mut newest, hang);
        assert!(reads.len() >= 100, "{}", reads.len());
        measured.push((reads.len(), p99(reads)));
    }
    let [usual, slower, hung] = [0, 1, 2].map(|at| measured[at].1 as f64);
    println!(
        "{preset}: {measured:?} fast reads and p99 in us: x{:.2} slower, x{:.2} hung",
        slower / usual,
        hung / usual
    );
    assert!(slower <= 2.0 * usual && hung <= 2.0 * usual, "{measured:?}");
    drop(db);
    let db = open(&disk, &options(preset, Room::Little));
    (0..KEYS).for_each(|i| assert!(took_us(&disk, &db, i, &newest) > 0));
}

// case 24, with threads: the slow tier answers nobody until it is released.
fn case_24_while_a_slow_tier_hangs_fast_reads_and_writes_go_on_and_its_queue_is_bounded(
    preset: &str,
) {
    const SLOW_READERS: usize = 3;
    const THREADS: usize = 2;
    let (disk, _, slow) = machine(7);
    drop(store(&disk, preset));
    // Room for what is written meanwhile, in memory and on the fast tier.
    let roomy = options(preset, Room::Little)
        .write_buffer_bytes(4 << 20)
        .memtable_bytes(64 << 10)
        .background_threads(THREADS);
    let db = open(&disk, &roomy);
    holds_old(&db, "before");
    let [fast_keys, slow_keys] = by_tier(&db);
    slow.hold();
    let released = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..SLOW_READERS {
            let (db, slow_keys, released) = (&db, &slow_keys, &released);
            let answered = &answered;
            scope.spawn(move || {
                let i = slow_keys[reader % slow_keys.len()];
                let found = db.get(&key(i)).unwrap();
                assert!(released.load(Ordering::SeqCst), "answered while it hung");
                assert_eq!(found.as_deref(), Some(&old(i)[..]));
                answered.fetch_add(1, Ordering::SeqCst);
            });
        }
        while slow.waiting().0 < SLOW_READERS {
            std::thread::yield_now();
        }
        // These return, or the test does not.
        for round in 0..200u32 {
            let i = fast_keys[round as usize % fast_keys.len()];
            assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&old(i)[..]));
            durably(&db, |b| {
                b.put(format!("new{round:03}").as_bytes(), &[7; 500])
                    .unwrap();
            });
        }
        assert_eq!(answered.load(Ordering::SeqCst), 0);
        released.store(true, Ordering::SeqCst);
        slow.release();
    });
    let most = slow.waiting().1;
    assert!(most <= SLOW_READERS + THREADS + 1, "{most} calls waited");
    db.settle().unwrap();
    holds_old(&db, "released");
    assert_eq!(db.prefix(b"new").unwrap().forward().count(), 200);
}

// case 25: the log is not moved to another tier; its writes wait, and what was
// acknowledged as durable is.
#[test]
fn a_log_on_a_slow_device_makes_writers_wait_and_loses_nothing() {
    let (disk, fast, _) = machine(8);
    let db = store(&disk, "leveled");
    fast.set_latency(Latency {
        read: Duration::from_millis(10),
        write: Duration::from_millis(10),
        sync: Duration::from_millis(100),
    });
    fast.hang(Duration::from_secs(60));
    let before = disk.now_micros();
    for i in 0..10 {
        durably(&db, |b| b.put(&key(i), b"new").unwrap());
    }
    assert!(disk.now_micros() - before >= 61_000_000);
    drop(db);
    disk.reboot(Down::Power);
    let db = open(&disk, &options("leveled", Room::Little));
    for i in 0..KEYS {
        let new = if i < 10 { b"new".to_vec() } else { old(i) };
        assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&new[..]));
    }
}

for_presets!(leveled, mutant, logstore: (
    case_24_reads_of_the_fast_tier_take_no_longer_beside_a_slow_one_that_is_slower_or_hangs,
    case_24_while_a_slow_tier_hangs_fast_reads_and_writes_go_on_and_its_queue_is_bounded,
));
