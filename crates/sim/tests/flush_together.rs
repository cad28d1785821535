//! Parts that are flushed together by themselves: where flushes wait for the log, and writers for
//! flushes. Times are those of the simulated clock.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::time::Duration;

use thermocline::{Db, Durability, Options, Tier};
use thermocline_sim::disk::{Disk, Latency};

const KIB: u64 = 1 << 10;

/// A store of four parts whose users say nothing of that, and whose log lies on a slow last tier.
fn open(disk: &Disk, durability: Durability) -> Db {
    let tier = |name: &str, sync_ms| {
        let device = disk.mount(format!("/{name}"));
        device.set_latency(Latency {
            sync: Duration::from_millis(sync_ms),
            ..Latency::default()
        });
        Tier::new(name, format!("/{name}/store"))
    };
    let cuts = [64u8, 128, 192].map(|byte| vec![byte]);
    let options = Options::new()
        .tier(tier("fast", 20))
        .tier(tier("slow", 200))
        .log_tier("slow")
        .write_buffer_bytes(2048 * KIB)
        .write_buffer_grows(false)
        .memtable_bytes(64 * KIB)
        .newest_runs_merge(200)
        .newest_runs_stop(2000)
        .durability(durability)
        .cuts(cuts.to_vec())
        .background_threads(0);
    Db::open_in(options, &disk.environment()).unwrap()
}

/// Puts 32 MiB all over the parts, `put_us` after each other. Writers that never rest do what is
/// due only once there is no room. Of each flush, whether it was of all parts, and what its reason
/// says of waits.
fn write(disk: &Disk, db: &Db, put_us: u64) -> Vec<(bool, Option<(f64, f64)>)> {
    let before = db.events(1).last().map_or(0, |event| event.number);
    for n in 0..32 * KIB {
        let key = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        db.put(&key, &[1; 1000]).unwrap();
        disk.pass_time(Duration::from_micros(put_us));
        while put_us > 0 && db.step().unwrap() {}
    }
    let events = db.events(4096).into_iter();
    let flushes = events.filter(|e| e.number > before && e.job == "flush");
    let flushes = flushes.map(|event| {
        let said = |name: &str| {
            let mut numbers = event.reason.numbers.iter();
            numbers.find(|(n, _)| n == name).map(|(_, number)| *number)
        };
        let waits = said("log_wait_share").zip(said("stalled_share"));
        (event.what.contains("of 4 parts"), waits)
    });
    flushes.collect()
}

#[test]
fn parts_are_flushed_together_while_flushes_wait_for_the_log_and_writers_for_them() {
    let disk = Disk::new(1);
    let db = open(&disk, Durability::OperatingSystem);
    let flushes = write(&disk, &db, 0);
    let (first, last) = (flushes[0], flushes[flushes.len() - 1]);
    assert_eq!(first, (false, None), "nothing is known yet");
    let (together, waits) = last;
    let (log, stalled) = waits.unwrap_or_default();
    assert!(together && log >= 0.2 && stalled >= 0.1, "{flushes:?}");
    // Writers that rest for ten times as long as a flush takes a put do not wait.
    let flushes = write(&disk, &db, 2000);
    let alone = flushes[flushes.len() / 2..]
        .iter()
        .all(|(together, _)| !together);
    assert!(alone, "{flushes:?}");
}

#[test]
fn parts_are_flushed_one_by_one_where_the_log_is_durable_anyway() {
    let disk = Disk::new(1);
    let db = open(&disk, Durability::Device);
    let flushes = write(&disk, &db, 0);
    assert!(flushes.iter().all(|(together, _)| !together), "{flushes:?}");
    let nothing = |waits: &Option<(f64, f64)>| waits.is_none_or(|(log, _)| log == 0.0);
    assert!(
        flushes.iter().all(|(_, waits)| nothing(waits)),
        "{flushes:?}"
    );
}
