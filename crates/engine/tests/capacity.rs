//! Tiers whose `capacity_bytes` is reached, on a device with room: the next tier
//! down, a warning, and in the end a named error, until space comes back.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::Path;

use thermocline::{Db, ErrorKind, Options, Tier};

fn options(root: &Path, fast_bytes: u64, slow_bytes: Option<u64>) -> Options {
    let mut slow = Tier::new("slow", root.join("slow")).block_bytes(512);
    if let Some(bytes) = slow_bytes {
        slow = slow.capacity_bytes(bytes);
    }
    Options::new()
        .tier(
            Tier::new("fast", root.join("fast"))
                .capacity_bytes(fast_bytes)
                .block_bytes(512),
        )
        .tier(slow)
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(16 << 10)
        .first_level_bytes(64 << 10)
        .log_segment_bytes(64 << 10)
        .log_bytes_max(256 << 10)
        .reserve_bytes(0)
        .block_cache_bytes(0)
        .background_threads(0)
}

fn value(i: u32) -> Vec<u8> {
    let mut x = u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..400).map(|_| byte()).collect()
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// Puts until the store refuses; says how many were taken.
fn fill(db: &Db, from: u32) -> u32 {
    for i in from..100_000 {
        match db.put(&key(i), &value(i)) {
            Ok(()) => {}
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                assert!(e.to_string().contains("capacity_bytes"), "{e}");
                return i;
            }
        }
    }
    panic!("never full");
}

fn check(db: &Db, range: std::ops::Range<u32>) {
    let mut found = db.iter().unwrap().forward();
    for i in range.clone() {
        let (k, v) = found.next().unwrap().unwrap();
        assert_eq!((&k[..], &v[..]), (&key(i)[..], &value(i)[..]));
    }
    assert!(found.next().is_none());
    let last = range.end - 1;
    assert_eq!(
        db.get(&key(last)).unwrap().as_deref(),
        Some(&value(last)[..])
    );
}

/// Used to go on for ever: nothing held the last tier to its capacity.
#[test]
fn when_all_tiers_are_full_puts_are_refused_by_name_until_space_returns() {
    let root = tempfile::tempdir().unwrap();
    let capacity = 900 << 10;
    let db = Db::open(options(root.path(), 300 << 10, Some(600 << 10))).unwrap();
    let end = fill(&db, 0);
    let stats = db.stats();
    assert!(stats.is_full && stats.failed_writes > 0);
    assert!(stats.to_string().contains("all tiers are full"), "{stats}");
    // About as much as the capacity, and no more than memory holds besides.
    let taken = u64::from(end) * 400;
    assert!(
        taken > capacity / 2 && taken < capacity + (128 << 10),
        "{taken}"
    );
    check(&db, 0..end);
    // Full remains full, and reads and deletes go on.
    for _ in 0..3 {
        let error = db.put(b"more", b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        let mut load = db.bulk_load().unwrap();
        assert_eq!(
            load.add(b"more", b"x").unwrap_err().kind(),
            ErrorKind::NoSpace
        );
    }
    db.settle().unwrap();
    assert_eq!(
        db.put(b"more", b"x").unwrap_err().kind(),
        ErrorKind::NoSpace
    );
    check(&db, 0..end);
    // Deletes and what compacts them make room, and nobody reopens anything.
    for i in 0..end / 2 {
        db.delete(&key(i)).unwrap();
    }
    db.compact_range(None, None).unwrap();
    db.put(&key(end), &value(end)).unwrap();
    let first = end / 2;
    let end = fill(&db, end + 1);
    assert!(db.stats().is_full);
    check(&db, first..end);
}

#[test]
fn more_capacity_is_space_too() {
    let root = tempfile::tempdir().unwrap();
    let db = Db::open(options(root.path(), 100 << 10, Some(200 << 10))).unwrap();
    let end = fill(&db, 0);
    drop(db);
    let db = Db::open(options(root.path(), 100 << 10, Some(200 << 10))).unwrap();
    assert_eq!(fill(&db, end), end, "still full when it is opened again");
    drop(db);
    let db = Db::open(options(root.path(), 100 << 10, Some(400 << 10))).unwrap();
    let more = fill(&db, end);
    assert!(more > end + 100, "{more} {end}");
    check(&db, 0..more);
}

/// A tier filled in order is no spill, however little of the store it holds.
#[test]
fn levels_that_a_tier_does_not_hold_go_to_the_next_without_a_warning() {
    let root = tempfile::tempdir().unwrap();
    let db = Db::open(options(root.path(), 512 << 10, None)).unwrap();
    for i in 0..6000 {
        db.put(&key(i), &value(i)).unwrap();
    }
    db.flush().unwrap();
    db.settle().unwrap();
    let stats = db.stats();
    assert!(stats.tiers[1].used_bytes > 2 * stats.tiers[0].used_bytes);
    assert_eq!(stats.tiers[0].lower_tables, 0, "{stats}");
    assert!(!stats.to_string().contains("is full"), "{stats}");
    assert!(stats.capacity_bytes.is_none() && !stats.is_full);
}

/// The counter used to be raised by a full device alone.
#[test]
fn a_tier_whose_capacity_is_reached_spills_with_a_warning_that_names_it() {
    let root = tempfile::tempdir().unwrap();
    // Full of old data: what makes room, a relocation, never runs, for the
    // flushes come first.
    let wide = options(root.path(), 300 << 10, None)
        .newest_runs_merge(1000)
        .newest_runs_stop(2000);
    let db = Db::open(wide).unwrap();
    for i in 0..300 {
        db.put(&key(i), &value(i)).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
    assert_eq!(db.stats().tiers[0].spills, 0);
    for i in 300..900 {
        db.put(&key(i), &value(i)).unwrap();
        if i % 50 == 0 {
            db.flush().unwrap();
        }
    }
    let stats = db.stats();

    let fast = &stats.tiers[0];
    assert!(fast.spills > 0, "{stats}");
    assert!(fast.spilled_bytes > 0 && fast.spilled_first_us <= fast.spilled_last_us);
    assert!(
        fast.spilled_first_us.is_some() && fast.lower_tables > 0,
        "{stats}"
    );
    assert_eq!(stats.tiers[1].spills, 0);
    let text = stats.to_string();
    assert!(
        text.contains("fast was full") && text.contains("fast is full"),
        "{text}"
    );
    check(&db, 0..900);
    // What lies lower is seen by who opens the store later, too.
    let lower = fast.lower_tables;
    drop(db);
    let later = options(root.path(), 300 << 10, None).read_only(true);
    assert_eq!(
        Db::open(later).unwrap().stats().tiers[0].lower_tables,
        lower
    );
}

/// Each output asked for room of a whole table: small flushes went to the slow tier while the fast
/// one had room for many more of them.
#[test]
fn a_small_flush_asks_for_no_room_of_a_large_table() {
    let root = tempfile::tempdir().unwrap();
    let options = options(root.path(), 512 << 10, None).table_bytes(400 << 10);
    for preset in ["leveled", "mutant", "logstore"] {
        let dir = root.path().join(preset);
        let options = options.clone().preset(preset).with_tiers(vec![
            Tier::new("fast", dir.join("fast")).capacity_bytes(512 << 10),
            Tier::new("slow", dir.join("slow")),
        ]);
        let db = Db::open(options).unwrap();
        for flush in 0..6u32 {
            for n in 0..60 {
                db.put(&key(60 * flush + n), &value(n)).unwrap();
            }
            db.flush().unwrap();
        }
        let stats = db.stats();
        let (fast, slow) = (stats.tiers[0].used_bytes, stats.tiers[1].used_bytes);
        assert!(fast > 140 << 10, "{preset}: {fast} bytes on the fast tier");
        assert_eq!(slow, 0, "{preset}");
        assert_eq!(stats.merges, 0, "{preset}");
    }
}

#[test]
fn the_tier_of_the_manifest_keeps_a_reserve_for_it_as_the_first_does() {
    let directory = tempfile::tempdir().unwrap();
    let limit = |name: &str| {
        let root = directory.path().join(name);
        let tier = |name: &str| {
            let tier = Tier::new(name, root.join(name)).block_bytes(512);
            tier.capacity_bytes(200_000)
        };
        let options = options(&root, 0, None)
            .with_tiers(vec![tier("first"), tier("second"), tier("third")])
            .reserve_bytes(50_000)
            .manifest_tier(name);
        let db = Db::open(options).unwrap();
        fill(&db, 0);
        let error = db.put(b"more", b"value").unwrap_err();
        error.expected_found().unwrap().0.to_string()
    };
    assert_eq!(limit("first"), "less than 538000 bytes in tables");
    assert_eq!(limit("second"), "less than 488000 bytes in tables");
}
