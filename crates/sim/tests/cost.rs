//! Placement by temperature and price, on simulated devices with a simulated clock: what a target
//! and a crash do to a store of the preset `mutant`; what they do under `logstore` too, and a clock
//! that jumps, is in `targets.rs`. The numbers are those of the list of cases in `docs/testing.md`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thermocline::store::{FileSystem, OpenHow, read_exact_at, write_all_at};
use thermocline::{Db, ErrorKind, Event, Options, TablePlace, Tier, WhatIf};
use thermocline_sim::Dice;
use thermocline_sim::disk::{Disk, Down, Fault};

const FAST: f64 = 0.528;
const SLOW: f64 = 0.045;
const KEYS: u32 = 2000;

fn options() -> Options {
    let tier = |name: &str, price| {
        Tier::new(name, format!("/{name}/store"))
            .block_bytes(1024)
            .price_usd_gb_month(price)
    };
    Options::new()
        .tier(tier("fast", FAST))
        .tier(tier("slow", SLOW))
        .preset("mutant")
        .write_buffer_bytes(128 << 10)
        .memtable_bytes(32 << 10)
        .table_bytes(8 << 10)
        .first_level_bytes(32 << 10)
        .newest_runs_merge(2)
        .log_segment_bytes(64 << 10)
        .log_bytes_max(256 << 10)
        .block_cache_bytes(0)
        .reserve_bytes(0)
        .background_threads(0)
}

fn key(i: u32) -> Vec<u8> {
    format!("k{i:05}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    // Not to be compressed, should anybody try.
    let mut dice = Dice(u64::from(i));
    (0..300).map(|_| dice.next() as u8).collect()
}

fn open(disk: &Disk, options: &Options) -> Db {
    Db::open_in(options.clone(), &disk.environment()).unwrap()
}

fn machine(seed: u64) -> Disk {
    let disk = Disk::new(seed);
    disk.mount("/fast");
    disk.mount("/slow");
    disk
}

/// About a hundred tables of one level.
fn filled(disk: &Disk, options: &Options) -> Db {
    let db = open(disk, options);
    for i in 0..KEYS {
        db.put(&key(i), &value(i)).unwrap();
    }
    db.compact_range(None, None).unwrap();
    db.settle().unwrap();
    assert!(db.tables().len() > 60, "{}", db.tables().len());
    db
}

/// Seconds in which keys are read, a tenth of all keys from `hot` on most often.
fn read_for(db: &Db, disk: &Disk, seconds: u64, hot: u32, dice: &mut Dice) {
    for _ in 0..seconds {
        for _ in 0..300 {
            let i = match dice.below(10) {
                0 => dice.below(u64::from(KEYS)) as u32,
                _ => (hot + dice.below(u64::from(KEYS / 10)) as u32) % KEYS,
            };
            assert!(db.get(&key(i)).unwrap().is_some());
        }
        disk.pass_time(Duration::from_secs(1));
        while db.step().unwrap() {}
    }
}

/// Lets time pass until nothing has moved for longer than a cool-down.
fn rest(db: &Db, disk: &Disk) {
    for _ in 0..50 {
        let before = db.stats().relocations;
        for _ in 0..8 {
            disk.pass_time(Duration::from_secs(10));
            db.settle().unwrap();
        }
        if db.stats().relocations == before {
            return;
        }
    }
    panic!("does not come to rest: {:#?}", db.events(20));
}

fn is_whole(db: &Db) {
    let mut found = 0;
    for entry in db.iter().unwrap().forward() {
        let (k, v) = entry.unwrap();
        assert_eq!((&*k, &*v), (&key(found)[..], &value(found)[..]));
        found += 1;
    }
    assert_eq!(found, KEYS);
}

fn keeps(db: &Db, target: f64) {
    let price = db.stats().cost.price_usd_gb_month;
    assert!(price <= target * (1.0 + 1e-9), "{price} of {target}");
    assert!(price > 0.98 * target, "{price} of {target}");
}

#[test]
fn the_price_is_within_two_percent_of_each_target_at_rest() {
    keeps_to_each_target(&options());
}

/// With `nova` tables lie by temperature, too.
#[test]
fn the_price_is_within_two_percent_of_each_target_with_parts() {
    let cuts = [1, 2, 3].map(|quarter| key(quarter * KEYS / 4));
    let db = keeps_to_each_target(&options().preset("nova").cuts(cuts.into()));
    let parts = db.stats().keyspaces[0].parts;
    assert!(parts > 1, "{parts}");
}

fn keeps_to_each_target(options: &Options) -> Db {
    let disk = machine(1);
    let mut dice = Dice(1);
    let db = filled(&disk, &options.clone().cost_target_usd_per_gb_month(0.4));
    read_for(&db, &disk, 10, 500, &mut dice);
    rest(&db, &disk);
    keeps(&db, 0.4);
    // Figure 10 of the paper: down, and up again.
    for target in [0.2, 0.3] {
        let before = db.stats();
        db.set_cost_target(Some(target)).unwrap();
        rest(&db, &disk);
        keeps(&db, target);
        let after = db.stats();
        let moved = after.cost.migrated_bytes - before.cost.migrated_bytes;
        let data: u64 = after.tiers.iter().map(|t| t.used_bytes).sum();
        let least = (before.cost.price_usd_gb_month - target).abs() / (FAST - SLOW);
        println!(
            "target {target}: {moved} bytes moved, {:.0} at least",
            least * data as f64
        );
        assert!(moved as f64 <= 1.5 * least * data as f64 + 30_000.0);
    }
    is_whole(&db);
    // What is read most is read from the fast tier.
    let before: Vec<u64> = db.stats().tiers.iter().map(|t| t.hits).collect();
    for i in 500..500 + KEYS / 10 {
        db.get(&key(i)).unwrap();
    }
    let after: Vec<u64> = db.stats().tiers.iter().map(|t| t.hits).collect();
    let fast = (after[0] - before[0]) as f64 / f64::from(KEYS / 10);
    assert!(
        fast > 0.9,
        "{fast} of the hot keys are read from the fast tier"
    );
    let events = db.events(usize::MAX);
    let moves = || events.iter().filter(|e| e.job == "relocate");
    // Those of tables that were read.
    let named = |e: &&Event| e.reason.numbers.iter().any(|(n, _)| n == "temperature");
    assert!(moves().filter(named).count() > 10);
    for event in moves() {
        let numbers = &event.reason.numbers;
        for name in ["bytes", "target_usd_gb_month"] {
            assert!(numbers.iter().any(|(n, _)| n == name), "{event}");
        }
        let predicted = event.reason.predicted.as_ref();
        let saved = predicted.and_then(|p| p.benefit("usd_month_saved"));
        assert!(saved.is_some_and(|usd| usd != 0.0), "{event}");
    }
    db
}

#[test]
fn merges_put_their_outputs_where_they_belong_and_that_is_counted() {
    let disk = machine(2);
    let mut dice = Dice(2);
    // Relocations may not: merges alone must do it.
    let options = options()
        .cost_target_usd_per_gb_month(0.25)
        .migration_bytes_per_second_max(1024)
        .cooling_coefficient(0.5);
    let db = filled(&disk, &options);
    read_for(&db, &disk, 20, 500, &mut dice);
    read_for(&db, &disk, 20, 1500, &mut dice);
    for i in (0..KEYS).step_by(3) {
        db.put(&key(i), &value(i)).unwrap();
    }
    db.flush().unwrap();
    while db.step().unwrap() {}
    db.compact_range(None, None).unwrap();
    let cost = db.stats().cost;
    println!("{cost}");
    assert!(cost.migrations_saved > 3, "{cost}");
    assert!(cost.migrations_saved_bytes > 10_000, "{cost}");
    let tables = db.tables();
    let hot = tables
        .iter()
        .filter(|t| t.temperature.is_some_and(|t| t > 100.0));
    let (fast, all) = hot.fold((0, 0), |(fast, all), t| {
        (fast + usize::from(t.tier == "fast"), all + 1)
    });
    assert!(all > 3, "the outputs have inherited: {all} are hot");
    assert!(fast * 10 >= all * 8, "{fast} of {all} hot tables are fast");
    is_whole(&db);
}

// The bound on moved bytes was a thousand times the largest table, which no thousand steps could
// exceed, and the machine never went down in between.
// case 31
#[test]
fn a_target_changed_a_thousand_times_converges_on_the_last() {
    let disk = machine(3);
    let mut dice = Dice(3);
    let rate = 32 << 10;
    let mut options = options()
        .cost_target_usd_per_gb_month(0.4)
        .migration_bytes_per_second_max(rate);
    let mut db = filled(&disk, &options);
    read_for(&db, &disk, 5, 0, &mut dice);
    let largest = db.tables().iter().map(|t| t.data_bytes).max().unwrap();
    let (mut moved, mut seconds, mut crashes) = (0, 0.0, 0);
    let mut begun = db.stats();
    let mut before = begun.clone();
    for change in 0..1000 {
        let target = 0.15 + dice.below(37) as f64 / 100.0;
        options = options.cost_target_usd_per_gb_month(target);
        if change % 100 == 50 {
            // Somewhere within the next change and what it moves.
            disk.fault_in(dice.below(40), Fault::Crash);
        }
        disk.pass_time(Duration::from_millis(50));
        let done = db.set_cost_target(Some(target)).and_then(|()| db.step());
        if disk.is_crashed() {
            crashes += 1;
            moved += before.relocated_bytes - begun.relocated_bytes;
            seconds += (before.now_us - begun.now_us) as f64 / 1e6;
            drop(db);
            disk.reboot([Down::Kill, Down::Power][crashes % 2]);
            db = open(&disk, &options);
            is_whole(&db);
            begun = db.stats();
            before = begun.clone();
            continue;
        }
        done.unwrap();
        let after = db.stats();
        if after.relocations > before.relocations {
            // What is dearer than before is within the target, but for a table at most.
            let bytes: u64 = after.tiers.iter().map(|t| t.used_bytes).sum();
            let table = largest as f64 * (FAST - SLOW) / bytes as f64;
            let most = before.cost.price_usd_gb_month.max(target + table);
            let price = after.cost.price_usd_gb_month;
            assert!(price <= most + 1e-9, "{price}, {most} at most");
        }
        before = after;
    }
    moved += before.relocated_bytes - begun.relocated_bytes;
    seconds += (before.now_us - begun.now_us) as f64 / 1e6;
    // After a crash the first move waits for none before it.
    let bound = rate as f64 * seconds + (largest * (1 + crashes as u64)) as f64;
    println!("{moved} bytes moved in {seconds:.1} s and {crashes} crashes, {bound:.0} at most");
    assert!(moved as f64 <= bound && moved as f64 > 0.2 * bound);
    assert!(crashes > 5, "{crashes}");
    db.set_cost_target(Some(0.25)).unwrap();
    rest(&db, &disk);
    keeps(&db, 0.25);
    is_whole(&db);
    // And the last one is what the next opening finds.
    drop(db);
    let text = {
        let file = disk.open(Path::new("/fast/store/thermocline.toml"), OpenHow::READ);
        let file = file.unwrap();
        let mut bytes = vec![0; file.size_bytes().unwrap() as usize];
        read_exact_at(&*file, &mut bytes, 0).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert!(
        text.contains("cost_target_usd_per_gb_month = 0.25"),
        "{text}"
    );
}

// cases 19 and 31
#[test]
fn a_crash_anywhere_in_migrations_both_ways_loses_nothing_and_converges() {
    for down in [Down::Kill, Down::Power] {
        let disk = machine(4);
        let mut dice = Dice(4);
        let options = options().cost_target_usd_per_gb_month(0.4);
        let db = filled(&disk, &options);
        read_for(&db, &disk, 3, 700, &mut dice);
        rest(&db, &disk);
        db.persist().unwrap();
        disk.record_crashes();
        // Down, up, and down again in the middle of that.
        for (target, steps) in [(0.3, 1000), (0.4, 3), (0.3, 3), (0.4, 1000)] {
            db.set_cost_target(Some(target)).unwrap();
            for _ in 0..steps {
                disk.pass_time(Duration::from_secs(1));
                if !db.step().unwrap() {
                    break;
                }
            }
        }
        let crashes = disk.recorded_crashes();
        let count = crashes.len();
        assert!(count > 200, "{count} calls");
        drop(db);
        // A prime, so that every kind of call is met.
        let every = (count / 60).max(1) | 1;
        for crashed in crashes.iter().step_by(every) {
            let disk = crashed.disk(crashed.calls, down);
            let db = open(&disk, &options);
            is_whole(&db);
            rest(&db, &disk);
            keeps(&db, 0.4);
            // And once more, in the other direction.
            db.set_cost_target(Some(0.3)).unwrap();
            for _ in 0..2 {
                db.step().unwrap();
            }
            drop(db);
            disk.reboot(down);
            let db = open(&disk, &options.clone().cost_target_usd_per_gb_month(0.3));
            is_whole(&db);
            rest(&db, &disk);
            keeps(&db, 0.3);
        }
        println!("{down:?}: {count} calls, every {every}th");
    }
}

// The cool-down of all tables ended with the process: what had just been moved could be moved back
// by whoever opened the store next.
#[test]
fn the_cool_down_outlives_a_restart() {
    let disk = machine(14);
    let mut dice = Dice(14);
    let options = options()
        .cost_target_usd_per_gb_month(0.3)
        .cooling_coefficient(0.1)
        .migration_resistance(0.0)
        .migration_cool_down_s(3600);
    let db = filled(&disk, &options);
    rest(&db, &disk);
    read_for(&db, &disk, 10, 200, &mut dice);
    let relocated = |db: &Db| -> Vec<String> {
        let events = db.events(usize::MAX).into_iter();
        let moves = events.filter(|e| e.job == "relocate");
        moves.map(|e| format!("{:?}", e.tables_in)).collect()
    };
    assert!(relocated(&db).len() > 5);
    db.close().unwrap();
    let db = open(&disk, &options);
    read_for(&db, &disk, 20, 1200, &mut dice);
    let mut tables = relocated(&db);
    let count = tables.len();
    tables.sort();
    tables.dedup();
    assert_eq!(tables.len(), count, "one was moved twice");
    // Another target lets all of them go.
    db.set_cost_target(Some(0.1)).unwrap();
    rest(&db, &disk);
    assert!(relocated(&db).len() > count);
}

#[test]
fn moved_bytes_keep_to_their_bound() {
    let disk = machine(8);
    let rate = 16 << 10;
    let options = options()
        .cost_target_usd_per_gb_month(0.5)
        .migration_bytes_per_second_max(rate);
    let db = filled(&disk, &options);
    rest(&db, &disk);
    let begun = db.stats();
    let largest = db.tables().iter().map(|t| t.data_bytes).max().unwrap();
    db.set_cost_target(Some(0.1)).unwrap();
    for _ in 0..100 {
        disk.pass_time(Duration::from_millis(100));
        while db.step().unwrap() {}
    }
    let after = db.stats();
    let seconds = (after.now_us - begun.now_us) as f64 / 1e6;
    let moved = after.relocated_bytes - begun.relocated_bytes;
    let bound = rate as f64 * seconds + largest as f64;
    println!("{moved} bytes in {seconds:.1} s, {bound:.0} at most");
    assert!(moved as f64 <= bound && moved as f64 > 0.5 * bound);
    // Which is writing, too.
    let to_tables = after.flushed_bytes + after.merge_out_bytes + after.relocated_bytes;
    let amplified = to_tables as f64 / after.written_bytes as f64;
    assert!((after.write_amplification - amplified).abs() < 1e-9);
}

fn places(db: &Db) -> BTreeMap<u64, (String, u64)> {
    let tables = db.tables().into_iter();
    tables.map(|t| (t.id, (t.tier, t.data_bytes))).collect()
}

#[test]
fn a_forecast_moves_nothing_and_agrees_with_what_then_happens() {
    let disk = machine(11);
    let mut dice = Dice(11);
    let db = filled(&disk, &options().cost_target_usd_per_gb_month(0.4));
    read_for(&db, &disk, 10, 500, &mut dice);
    rest(&db, &disk);
    for target in [0.2, 0.3, 0.5] {
        let (places_before, events) = (places(&db), db.events(usize::MAX).len());
        let change = WhatIf::nothing_changes().cost_target(Some(target));
        let forecast = db.forecast(&change).unwrap();
        assert_eq!(places(&db), places_before, "a forecast moves nothing");
        assert_eq!(db.events(usize::MAX).len(), events);
        assert_ne!(db.stats().cost.target_usd_gb_month, Some(target));

        let before = db.stats();
        db.set_cost_target(Some(target)).unwrap();
        rest(&db, &disk);
        let after = db.stats();
        let price = after.cost.price_usd_gb_month;
        let predicted = forecast.after.price_usd_gb_month;
        assert!(
            (price - predicted).abs() <= 0.01 * price,
            "{price}, {forecast}"
        );
        let moved = (after.cost.migrated_bytes - before.cost.migrated_bytes) as f64;
        let predicted = forecast.copied_bytes as f64;
        assert!(
            (moved - predicted).abs() <= 0.1 * moved,
            "{moved}, {forecast}"
        );
        // The very reads that made the heat, by where they are served now.
        let hits = |db: &Db| -> Vec<u64> { db.stats().tiers.iter().map(|t| t.hits).collect() };
        let first = hits(&db);
        for _ in 0..2000 {
            let i = match dice.below(10) {
                0 => dice.below(u64::from(KEYS)) as u32,
                _ => 500 + dice.below(u64::from(KEYS / 10)) as u32,
            };
            db.get(&key(i)).unwrap();
        }
        let now = hits(&db);
        let fast = (now[0] - first[0]) as f64 / 2000.0;
        let (_, predicted) = forecast.fast_shares().unwrap();
        println!("target {target}: {fast} served fast, {predicted} predicted");
        assert!((fast - predicted).abs() <= 0.03, "{fast}, {forecast}");
    }
    // Without a change nothing is to be done.
    let rest = db.forecast(&WhatIf::nothing_changes()).unwrap();
    assert_eq!(rest.moved_tables, 0, "{rest}");
}

#[test]
fn explanations_say_where_tables_really_are_and_what_put_them_there() {
    let disk = machine(12);
    let mut dice = Dice(12);
    let options = options().cost_target_usd_per_gb_month(0.4);
    let db = filled(&disk, &options);
    read_for(&db, &disk, 10, 500, &mut dice);
    rest(&db, &disk);
    db.set_cost_target(Some(0.2)).unwrap();
    // Some are on their way.
    db.step().unwrap();
    let check = |db: &Db, at_rest: bool| {
        let real = places(db);
        let told = db.explain_range(None, None).unwrap();
        assert_eq!(told.tables.len(), real.len());
        let (mut relocated, mut near_the_divide) = (0, 0);
        for place in &told.tables {
            let (tier, bytes) = &real[&place.table];
            assert_eq!((&place.tier, place.data_bytes), (tier, *bytes));
            let stays = place.rule == "as-hot-as-its-tier";
            if !stays {
                let to = if tier == "fast" { 1 } else { 0 };
                let next = place.next.as_deref().unwrap();
                assert!(next.contains(&format!("tier {to}")), "{next}");
                // At rest only what is not worth a change of places.
                let waits = next.contains("once their temperatures differ by more than chance");
                assert!(waits || !at_rest, "{told}");
                near_the_divide += 1;
            }
            let put_by = place.put_by.as_ref().unwrap();
            let placed = put_by.tables_out.iter().find(|p| p.table == place.table);
            let names = ["fast", "slow"];
            assert_eq!(names[placed.unwrap().tier as usize], tier, "{put_by}");
            relocated += usize::from(put_by.job == "relocate");
        }
        // What nobody has to tell apart from chance is fast, and most of the rest is sorted.
        let temperatures = told.tables.iter().filter_map(|place| place.temperature);
        let hottest = temperatures.fold(0.0, f64::max);
        let hot = |place: &&TablePlace| place.temperature.is_some_and(|t| t > hottest / 20.0);
        let mut hot = told.tables.iter().filter(hot);
        assert!(!at_rest || hot.all(|place| place.tier == "fast"), "{told}");
        let few = near_the_divide * 8 <= told.tables.len();
        assert!(!at_rest || few, "{told}");
        relocated
    };
    check(&db, false);
    rest(&db, &disk);
    assert!(check(&db, true) > 10);
    // One key is told of like the table that it is in.
    for i in (0..KEYS).step_by(97) {
        let told = db.explain(&key(i)).unwrap();
        let next = key(i + 1);
        let range = db.explain_range(Some(&key(i)), Some(&next)).unwrap();
        let place = &told.places[0];
        let same = range.tables.iter().find(|t| Some(t.table) == place.table);
        assert_eq!(Some(&same.unwrap().tier), place.tier.as_ref());
    }
    // What put them there is known after a restart too.
    db.close().unwrap();
    let db = open(&disk, &options.cost_target_usd_per_gb_month(0.2));
    assert!(check(&db, true) > 10);
    let error = db.explain_range(Some(b"b"), Some(b"a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_record_of_events_that_cannot_be_written_harms_no_job() {
    let disk = machine(13);
    let file_system = Arc::clone(&disk.environment().file_system);
    let db = filled(&disk, &options());
    db.close().unwrap();
    let record = Path::new("/fast/store/EVENTS");
    assert!(file_system.metadata(record).unwrap().is_some());
    // A directory stands where the file should be: no call on it succeeds.
    file_system.unlink(record).unwrap();
    file_system.create_directory(record).unwrap();
    let db = open(&disk, &options());
    for i in 0..KEYS {
        db.put(&key(i), &value(i)).unwrap();
    }
    db.compact_range(None, None).unwrap();
    is_whole(&db);
    assert_eq!(db.stats().job_errors, 0);
    let newest = db.events(1).remove(0);
    assert_eq!(newest.job, "merge", "in memory they are all the same");
    db.close().unwrap();
    file_system.remove_directory(record).unwrap();
    // Damage costs what it touches.
    let db = open(&disk, &options());
    db.put(&key(0), &value(0)).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let file = file_system.open(record, OpenHow::WRITE).unwrap();
    write_all_at(&*file, &[0xff; 40], 3).unwrap();
    let db = open(&disk, &options());
    db.put(&key(1), &value(1)).unwrap();
    db.flush().unwrap();
    assert!(db.events(usize::MAX).iter().any(|e| e.job == "flush"));
    is_whole(&db);
}
