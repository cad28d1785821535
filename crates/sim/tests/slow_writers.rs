//! How much of the write buffer is full before it is flushed, by how fast writers are beside
//! flushes. Times are those of the simulated clock.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::time::Duration;

use thermocline::{Db, Options};
use thermocline_sim::disk::{Disk, Latency};

const KIB: u64 = 1 << 10;

/// Puts of 1 KiB that fill the write buffer three times, each followed by what is due and `put_us`
/// later by the next one. The bytes of the flushes, in KiB, and how long they took on average, in
/// microseconds.
fn write(disk: &Disk, db: &Db, next: &mut u64, put_us: u64) -> (Vec<u64>, u64) {
    let before = db.events(4096).len();
    for _ in 0..3 * 1024 {
        *next += 1;
        let key = next.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        db.put(&key, &[1; 1000]).unwrap();
        while db.step().unwrap() {}
        disk.pass_time(Duration::from_micros(put_us));
    }
    let events = db.events(4096);
    let flushes: Vec<_> = events[before..]
        .iter()
        .filter(|e| e.job == "flush")
        .collect();
    // The first is of what was there before, in part.
    let bytes = flushes[1..].iter().map(|e| e.bytes_in / KIB).collect();
    let took_us: u64 = flushes.iter().map(|e| e.took_us).sum();
    (bytes, took_us / flushes.len() as u64)
}

/// What is slow was said by a constant of 200 ms: beside it writers in memory, who filled a quarter
/// in 60 and had it flushed in 4, left half of the write buffer empty, and their scans looked into
/// twice as many runs.
#[test]
fn writers_much_slower_than_flushes_fill_half_of_the_write_buffer() {
    let disk = Disk::new(1);
    let device = disk.mount("/disk");
    device.set_latency(Latency {
        sync: Duration::from_millis(5),
        ..Latency::default()
    });
    let options = Options::at("/disk/store")
        .write_buffer_bytes(1024 * KIB)
        .write_buffer_grows(false)
        .memtable_bytes(64 * KIB)
        .newest_runs_merge(100)
        .newest_runs_stop(1000)
        .background_threads(0);
    let db = Db::open_in(options, &disk.environment()).unwrap();
    let mut next = 0;
    let a_quarter = |bytes: &[u64]| bytes.iter().all(|kib| (256..350).contains(kib));
    let (bytes, took_us) = write(&disk, &db, &mut next, 0);
    assert!(a_quarter(&bytes), "{bytes:?} KiB, as fast as can be");
    // A quarter has some 250 entries.
    let (bytes, _) = write(&disk, &db, &mut next, 4 * took_us / 250);
    assert!(a_quarter(&bytes), "{bytes:?} KiB in four flushes' time");
    let (bytes, _) = write(&disk, &db, &mut next, 40 * took_us / 250);
    let a_half = bytes.iter().all(|kib| (400..600).contains(kib));
    assert!(a_half, "{bytes:?} KiB in forty flushes' time");
}
