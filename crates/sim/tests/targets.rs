//! What a store may have on its fast tier is changed at any moment, impossible, or follows a heat
//! that is lost, wrong or fickle, or a clock that jumps: cases 19 and 31 to 34 of the list in
//! `docs/testing.md`, each under `mutant` and under `logstore`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod by_heat;
mod presets;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use by_heat::{FAST_USD, Kind, SLOW_USD, key, largest, machine, moves, open, rest};
use presets::for_presets;
use thermocline::store::{Clock, Environment, FileSystem, OpenHow, read_exact_at, write_all_at};
use thermocline::{Db, ErrorKind, Event, Options, Stats, Tier};
use thermocline_sim::Dice;
use thermocline_sim::disk::{Crashed, Disk, Down, Fault};

const KEYS: u32 = 2000;
/// What the fast tier may have in most tests: under `mutant` it is 0.25 USD.
const SHARE: f64 = 0.424;
const HEAT: &str = "/fast/store/HEAT";

/// Of a store whose every crash is looked at.
const FEW_KEYS: u32 = 200;

/// Crashes are looked at in one change of a share in so many, then at every call.
fn crashing_changes() -> u32 {
    let set = std::env::var("THERMOCLINE_CRASH_STRIDE").ok();
    set.and_then(|s| s.parse().ok()).unwrap_or(20)
}

/// Under `logstore` a change is a close and an opening, of which one call in so many counts: what a
/// crash at each call of an opening leaves is shown in `faults.rs`.
const OPENING_STRIDE: usize = 97;

/// One in so many of the crashes of case 31 is followed until the store rests.
const RESTING_STRIDE: u64 = 12;

/// What is left by a crash, and by another one in what follows it, is whole.
fn survives_twice(
    kind: &Kind<'_>,
    crashed: &Crashed,
    options: &Options,
    dice: &mut Dice,
) -> (Disk, Db) {
    let downs = [Down::Kill, Down::Power];
    let disk = crashed.disk(dice.next(), downs[dice.below(2) as usize]);
    disk.fault_in(1 + dice.below(60), Fault::Crash);
    if let Ok(db) = Db::open_in(options.clone(), &disk.environment()) {
        disk.pass_time(Duration::from_secs(1));
        while db.step().is_ok_and(|did| did) {}
    }
    disk.reboot(downs[dice.below(2) as usize]);
    let db = open(&disk, options);
    kind.is_whole(&db);
    (disk, db)
}

fn written(stats: &Stats) -> u64 {
    stats.tiers.iter().map(|t| t.written_bytes).sum()
}

/// Left alone, a store comes to rest with `share`: it does not go past it by more than a table on
/// its way, nor write more than it holds, so that nothing is moved to and fro. Gives the bytes
/// written.
fn converges(kind: &Kind<'_>, (disk, db): (Disk, Db), share: f64) -> u64 {
    let (table, begun) = (largest(&db), db.stats());
    let stored: u64 = begun.tiers.iter().map(|t| t.used_bytes).sum();
    for _ in 0..3 {
        disk.pass_time(Duration::from_secs(1));
        let before = kind.fast_share(&db);
        let did = db.step().unwrap();
        let ways = (before, kind.fast_share(&db));
        if did && let Some(event) = db.events(1).first() {
            step_is_bounded(ways, share, table, event);
        }
    }
    rest(&db, &disk);
    kind.keeps(&db, share);
    let bytes = written(&db.stats()) - written(&begun);
    assert!(bytes <= stored, "{bytes} written of {stored}");
    bytes
}

/// What a step may do to the fast share where `share` is wanted: go towards it, and past it by a
/// table; under `logstore`, which makes room for what is written next too, by two fifths of what it
/// has.
fn step_is_bounded((before, after): (f64, f64), share: f64, table: f64, event: &Event) {
    let room = if event.job == "merge" {
        0.4 * before
    } else {
        0.0
    };
    let least = before.min(share) - room - 2.0 * table;
    let bounds = (least, before.max(share) + table);
    let lawful = after >= bounds.0 && after <= bounds.1;
    assert!(
        lawful,
        "from {before} to {after}, {share} wanted, tables of {table}: {event}"
    );
}

// case 19
fn case_19_a_crash_at_each_step_of_a_migration_both_ways_twice_in_a_row_converges(preset: &str) {
    let kind = Kind {
        preset,
        keys: FEW_KEYS,
    };
    let mut dice = Dice(19);
    let options = kind.options().migration_cool_down_s(0).heat_epoch_ms(100);
    let (mut calls, mut most) = (0, 0);
    for (from, to) in [(0.7, 0.2), (0.2, 0.7)] {
        let disk = machine(19);
        let db = kind.filled(&disk, &kind.with_share(options.clone(), from));
        kind.read_for(&db, &disk, 3, FEW_KEYS / 2, &mut dice);
        rest(&db, &disk);
        db.persist().unwrap();
        let now = kind.with_share(options.clone(), to);
        let db = kind.change(db, &disk.environment(), &options, to).unwrap();
        let begun = kind.fast_share(&db);
        disk.record_crashes();
        let mut jobs = 0;
        while jobs < 100 && db.step().unwrap() {
            jobs += 1;
            disk.pass_time(Duration::from_millis(200));
            for _ in 0..20 {
                let i = (FEW_KEYS / 2 + dice.below(20) as u32) % FEW_KEYS;
                assert!(db.get(&key(i)).unwrap().is_some());
            }
        }
        let ended = kind.fast_share(&db);
        let left = disk.recorded_crashes();
        drop(db);
        println!(
            "{preset}: {jobs} jobs, {} calls, from {begun} to {ended}",
            left.len()
        );
        assert!(left.len() > 100, "{} calls of {jobs} jobs", left.len());
        assert!(
            (ended - begun) * (to - from) > 0.0,
            "from {begun} to {ended}"
        );
        for crashed in &left {
            calls += 1;
            let survived = survives_twice(&kind, crashed, &now, &mut dice);
            most = most.max(converges(&kind, survived, to));
        }
    }
    println!("{preset}: {calls} calls, {most} bytes written at most");
}

// case 31
fn case_31_a_share_changed_a_thousand_times_with_a_crash_at_every_call_converges(preset: &str) {
    let kind = Kind {
        preset,
        keys: FEW_KEYS,
    };
    let disk = machine(3);
    let mut dice = Dice(3);
    let options = kind.options().migration_cool_down_s(0).heat_epoch_ms(100);
    let mut db = kind.filled(&disk, &kind.with_share(options.clone(), 0.5));
    db.persist().unwrap();
    let table = largest(&db);
    let (mut calls, mut crashes, mut jobs, mut bytes, mut away) = (0, 0, 0, 0, 0.0);
    let (mut rested, mut most) = (0, 0);
    for change in 0..1000 {
        let share = 0.15 + dice.below(76) as f64 / 100.0;
        let now = kind.with_share(options.clone(), share);
        let looked_at = change % crashing_changes() == 0;
        if looked_at {
            disk.record_crashes();
        }
        let environment = disk.environment();
        db = kind.change(db, &environment, &options, share).unwrap();
        let calls_of_change = disk.recorded_crashes();
        let every = if preset == "mutant" {
            1
        } else {
            OPENING_STRIDE
        };
        let first = change as usize / 20 % every;
        let mut left: Vec<Crashed> = calls_of_change
            .into_iter()
            .skip(first)
            .step_by(every)
            .collect();
        let mut bounded_step = |db: &Db| {
            if looked_at {
                disk.record_crashes();
            }
            let (before, begun) = (kind.fast_share(db), db.stats());
            db.step().unwrap();
            let (after, ended) = (kind.fast_share(db), db.stats());
            let event = &db.events(1)[0];
            step_is_bounded((before, after), share, table, event);
            let done = |s: &Stats| s.relocations + s.merges;
            if before != after {
                away += (before - share).abs();
            }
            jobs += done(&ended) - done(&begun);
            bytes += written(&ended) - written(&begun);
            left.extend(disk.recorded_crashes());
        };
        // What is read is known from the first look at the store on.
        bounded_step(&db);
        for _ in 0..100 {
            let i = (change / 20 * 20 + dice.below(20) as u32) % FEW_KEYS;
            assert!(db.get(&key(i)).unwrap().is_some());
        }
        disk.pass_time(Duration::from_secs(1));
        bounded_step(&db);
        for crashed in &left {
            calls += 1;
            crashes += 2;
            let survived = survives_twice(&kind, crashed, &now, &mut dice);
            if calls % RESTING_STRIDE == 0 {
                most = most.max(converges(&kind, survived, share));
                rested += 1;
            }
        }
    }
    println!(
        "{preset}: {jobs} jobs wrote {bytes} bytes, distance {away}; {calls} calls, {crashes} crashes, {rested} of them until it rested, {most} bytes written at most"
    );
    db = kind.change(db, &disk.environment(), &options, 0.4).unwrap();
    rest(&db, &disk);
    kind.keeps(&db, 0.4);
    kind.is_whole(&db);
}

// case 32
fn case_32_an_impossible_share_is_refused_by_name_and_changes_nothing(preset: &str) {
    let kind = Kind { preset, keys: KEYS };
    let disk = machine(5);
    let options = kind.options();
    let refused = |options: Options, words: &[&str]| {
        let error = Db::open_in(options, &disk.environment()).expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        for word in words {
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(
            disk.names(Path::new("/fast")).is_empty(),
            "nothing was made"
        );
    };
    let negative = [-1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let prices = |fast, slow| {
        let tier =
            |name: &str, price| Tier::new(name, format!("/{name}/store")).price_usd_gb_month(price);
        kind.with_share(options.clone(), 0.1)
            .with_tiers(vec![tier("fast", fast), tier("slow", slow)])
    };
    for price in negative {
        refused(prices(price, 0.1), &["price_usd_gb_month", "fast"]);
        refused(prices(0.2, price), &["price_usd_gb_month", "slow"]);
    }
    let target = |target: f64| options.clone().cost_target_usd_per_gb_month(target);
    if preset == "logstore" {
        // Its share is none of money: it has no target, and prices say nothing to it.
        for share in negative.into_iter().chain([1.01]) {
            refused(options.clone().fast_share(share), &["fast_share", "0 to 1"]);
        }
        refused(
            target(0.2),
            &["cost_target_usd_per_gb_month", "mutant", "logstore"],
        );
        for (fast, slow) in [(0.1, 0.1), (0.0, 0.0), (0.1, 0.2)] {
            drop(open(&machine(5), &prices(fast, slow)));
        }
        for share in [0.0, 1.0] {
            let disk = machine(5);
            let db = kind.filled(&disk, &options.clone().fast_share(share));
            rest(&db, &disk);
            let fast = kind.fast_share(&db);
            // Never less than `first_level_bytes`, here of 700 KB.
            assert!(fast <= 0.06 || share == 1.0, "{share}: {fast}");
            assert!(fast == 1.0 || share == 0.0, "{share}: {fast}");
            kind.is_whole(&db);
        }
        let db = open(&disk, &options.clone().fast_share(0.3));
        let error = db.set_cost_target(Some(0.2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(db.stats().cost.target_usd_gb_month, None);
        return;
    }
    let impossible = [0.0, -1.0, 0.044, 0.529, f64::INFINITY, f64::NAN];
    for wanted in impossible {
        refused(
            target(wanted),
            &["cost_target_usd_per_gb_month", "0.045", "0.528"],
        );
    }
    refused(prices(0.1, 0.1), &["different price"]);
    refused(prices(0.0, 0.0), &["price above 0", "tier 0"]);
    refused(prices(0.2, 0.0), &["price above 0", "tier 1"]);
    let leveled = options.clone().preset("leveled");
    refused(
        leveled.cost_target_usd_per_gb_month(0.1),
        &["mutant", "leveled"],
    );
    let db = open(&disk, &options.cost_target_usd_per_gb_month(0.2));
    for target in impossible {
        let error = db.set_cost_target(Some(target)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(db.stats().cost.target_usd_gb_month, Some(0.2));
    }
}

fn file_bytes(disk: &Disk, path: &str) -> Vec<u8> {
    let file = disk.open(Path::new(path), OpenHow::READ).unwrap();
    let mut bytes = vec![0; file.size_bytes().unwrap() as usize];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    bytes
}

fn put_file(disk: &Disk, path: &str, bytes: &[u8]) {
    let file = disk.open(Path::new(path), OpenHow::WRITE).unwrap();
    file.set_size(0).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
}

fn temperatures(db: &Db) -> BTreeMap<u64, Option<f64>> {
    db.tables().iter().map(|t| (t.id, t.temperature)).collect()
}

/// They may lose a bit to the division that makes shares of them.
fn are_alike(one: &BTreeMap<u64, Option<f64>>, other: &BTreeMap<u64, Option<f64>>) -> bool {
    let alike = |one: f64, other: f64| (one - other).abs() <= 1e-9 * one.max(other);
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| match (one.1, other.1) {
                (Some(a), Some(b)) => one.0 == other.0 && alike(*a, *b),
                (a, b) => one.0 == other.0 && a == b,
            })
}

fn hottest(temperatures: &BTreeMap<u64, Option<f64>>) -> u64 {
    let known = temperatures.iter().filter_map(|(&id, t)| Some((id, (*t)?)));
    known.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0
}

// case 33
fn case_33_heat_that_is_lost_or_damaged_costs_performance_only(preset: &str) {
    let kind = Kind { preset, keys: KEYS };
    let disk = machine(6);
    let mut dice = Dice(6);
    let options = kind.with_share(kind.options(), SHARE);
    let db = kind.filled(&disk, &options);
    kind.read_for(&db, &disk, 5, 300, &mut dice);
    rest(&db, &disk);
    let before = temperatures(&db);
    assert!(before.values().all(Option::is_some));
    // What `logstore` knows after a restart is not the same number, but of the same order.
    let is_known_as_before = |db: &Db| {
        let now = temperatures(db);
        assert!(now.values().all(Option::is_some));
        match preset {
            "mutant" => assert!(are_alike(&now, &before)),
            _ => assert_eq!(hottest(&now), hottest(&before)),
        }
    };
    let copy = Path::new("/fast/copy");
    db.checkpoint(copy).unwrap();
    db.close().unwrap();
    let sound = file_bytes(&disk, HEAT);
    // Whole, it survives a restart,
    let db = open(&disk, &options);
    is_known_as_before(&db);
    assert!(db.events(usize::MAX).iter().all(|e| e.job != "heat"));
    let last = db.events(1)[0].number;
    db.close().unwrap();
    // and a checkpoint.
    let tier = |name: &str, price| {
        Tier::new(name, copy.join(name))
            .block_bytes(1024)
            .price_usd_gb_month(price)
    };
    let copied = options
        .clone()
        .with_tiers(vec![tier("fast", FAST_USD), tier("slow", SLOW_USD)]);
    let db = open(&disk, &copied);
    is_known_as_before(&db);
    db.close().unwrap();
    let foreign = file_bytes(&disk, "/fast/copy/fast/HEAT");
    let mut flipped = sound.clone();
    flipped[50] ^= 4;
    let damaged: [&[u8]; 6] = [
        b"",
        b"junk",
        &sound[..60],
        &flipped,
        &foreign,
        &[0xff; 5000],
    ];
    for (at, bytes) in damaged.iter().enumerate() {
        let disk = disk.fork(at as u64);
        disk.reboot(Down::Kill);
        put_file(&disk, HEAT, bytes);
        let db = open(&disk, &options);
        let event = &db.events(1)[0];
        assert!(
            event.job == "heat" && event.error.is_some(),
            "{at}: {event}"
        );
        // It is an event as any other, and those of before are there still.
        let numbers: Vec<_> = db.events(usize::MAX).iter().map(|e| e.number).collect();
        let ascending = numbers.is_sorted_by(|a, b| a < b);
        assert!(ascending && numbers.contains(&last), "{at}: {numbers:?}");
        kind.is_whole(&db);
        assert!(temperatures(&db).values().all(Option::is_none));
        rest(&db, &disk);
        kind.keeps(&db, SHARE);
        assert_ne!(file_bytes(&disk, HEAT), *bytes, "{at}: it was written anew");
    }
    disk.unlink(Path::new(HEAT)).unwrap();
    let db = open(&disk, &options);
    kind.is_whole(&db);
    kind.read_for(&db, &disk, 3, 300, &mut dice);
    rest(&db, &disk);
    kind.keeps(&db, SHARE);
    // And what is read most is fast again.
    let fast = kind.served_fast(&db, 300);
    println!("{preset}: {fast} of the hot keys are fast once heat is known anew");
    assert!(fast > 0.9, "{fast}");
}

/// Of `mutant`, with a cool-down of a minute.
fn no_table_moves_twice_within_a_cool_down(db: &Db, begun: &Stats) {
    let after = db.stats();
    let seconds = (after.now_us - begun.now_us) / 1_000_000;
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut moves = 0;
    for event in db.events(usize::MAX) {
        if event.job != "relocate" || event.started_us < begun.now_us {
            continue;
        }
        moves += 1;
        let table = event.what.split(' ').nth(1).unwrap().to_string();
        if let Some(before) = last.insert(table, event.started_us) {
            let apart = event.started_us - before;
            assert!(apart >= 60_000_000, "{event} after {apart} us");
        }
    }
    assert!(moves > 10, "{moves} moves: nothing alternates");
    let most = db.tables().len() as u64 * (seconds / 60 + 1);
    println!("mutant: {moves} moves in {seconds} s, {most} at most");
    assert!(moves <= most);
}

/// Of `logstore`: each merge that raises a table or makes room for one has cost less than the reads
/// of the slow tier that it answers, so that no more time goes into moves than went into reads.
fn moves_cost_less_than_reads(db: &Db, begun_us: u64) {
    let (mut moves, mut cost_s, mut bytes) = (0, 0.0, 0);
    let events = db.events(usize::MAX);
    for event in events.iter().filter(|e| e.started_us >= begun_us) {
        let numbers = event.reason.numbers.iter();
        let number = |name: &str| numbers.clone().find(|(n, _)| n == name).map(|(_, n)| *n);
        let Some(won) = number("compared_reads_s") else {
            continue;
        };
        let cost = number("against_merge_s").unwrap() + number("against_descent_s").unwrap_or(0.0);
        assert!(cost < won, "{event}");
        moves += 1;
        cost_s += cost;
        bytes += event.bytes_out;
    }
    let seek_s = 1.0 / 60.0;
    let reads_s = db.stats().tiers[1].hits as f64 * seek_s;
    println!(
        "logstore: {moves} moves of {bytes} bytes for {cost_s:.1} s, slow reads {reads_s:.1} s"
    );
    assert!(moves > 10, "{moves} moves: nothing alternates");
    assert!(
        cost_s < reads_s,
        "{cost_s} s for moves, {reads_s} s for reads"
    );
}

// case 34
fn case_34_hot_and_cold_alternating_move_little(preset: &str) {
    let kind = Kind { preset, keys: KEYS };
    let disk = machine(7);
    let mut dice = Dice(7);
    let options = kind
        .with_share(kind.options(), 0.32)
        // As fickle as can be; reads of one second alone hardly ever pay for a merge.
        .cooling_coefficient(if preset == "mutant" { 0.1 } else { 0.5 })
        .migration_resistance(0.0)
        .migration_cool_down_s(60);
    let db = kind.filled(&disk, &options);
    rest(&db, &disk);
    let begun = db.stats();
    for period in 0..60 {
        kind.read_for(&db, &disk, 4, [200, 1200][period % 2], &mut dice);
    }
    if preset == "logstore" {
        moves_cost_less_than_reads(&db, begun.now_us);
    } else {
        no_table_moves_twice_within_a_cool_down(&db, &begun);
    }
    kind.is_whole(&db);
}

/// A clock that jumps to and fro by up to ten years.
#[derive(Debug)]
struct Jumping {
    inner: Arc<dyn Clock>,
    offset_us: AtomicU64,
}

impl Clock for Jumping {
    fn now_micros(&self) -> u64 {
        let offset_us = self.offset_us.load(Ordering::Relaxed);
        self.inner.now_micros().wrapping_add(offset_us)
    }

    fn sleep(&self, duration: Duration) {
        self.inner.sleep(duration);
    }
}

fn a_clock_that_jumps_loses_nothing_and_moves_little(preset: &str) {
    let kind = Kind { preset, keys: KEYS };
    let disk = machine(9);
    let mut dice = Dice(9);
    let clock = Arc::new(Jumping {
        inner: disk.environment().clock,
        offset_us: AtomicU64::new(1 << 50),
    });
    let environment = Environment {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        ..disk.environment()
    };
    let options = kind.with_share(kind.options(), SHARE);
    kind.filled(&disk, &options).close().unwrap();
    let db = Db::open_in(options, &environment).unwrap();
    kind.read_for(&db, &disk, 5, 600, &mut dice);
    rest(&db, &disk);
    kind.keeps(&db, SHARE);
    let (begun, before) = (moves(&db), kind.served_fast(&db, 600));
    for _ in 0..200 {
        let years = dice.below(10) * 365 * 86_400_000_000;
        clock.offset_us.store((1 << 50) + years, Ordering::Relaxed);
        while db.step().unwrap() {}
    }
    let moved = moves(&db) - begun;
    println!("{preset}: {moved} moves in 200 jumps of the clock");
    assert!(moved <= 4, "{moved}");
    let after = kind.served_fast(&db, 600);
    assert!(after >= before && before > 0.9, "{before} and {after}");
    rest(&db, &disk);
    kind.keeps(&db, SHARE);
    kind.is_whole(&db);
}

for_presets!(mutant, logstore: (
    a_clock_that_jumps_loses_nothing_and_moves_little,
    case_19_a_crash_at_each_step_of_a_migration_both_ways_twice_in_a_row_converges,
    case_31_a_share_changed_a_thousand_times_with_a_crash_at_every_call_converges,
    case_32_an_impossible_share_is_refused_by_name_and_changes_nothing,
    case_33_heat_that_is_lost_or_damaged_costs_performance_only,
    case_34_hot_and_cold_alternating_move_little,
));
