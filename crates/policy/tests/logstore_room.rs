//! The preset `logstore` between rest and writing: what room is kept, what goes first, and that
//! nothing goes for nothing. Each was found by a review, as a picture.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{KEYSPACE, M, World, line, logstore, numbered, read, two_tiers};
use thermocline_model::job::Job;
use thermocline_model::key::SeqNo;
use thermocline_model::table::TableId;
use thermocline_model::view::PartLoad;
use thermocline_policy::Planner;
use thermocline_policy::place::fill::Fill;
use thermocline_policy::plan::Staging;
use thermocline_policy::plan::balance::spare_for_writes;
use thermocline_policy::plan::fast_levels::Share;
use thermocline_policy::plan::headroom::{flush_room, room_bytes, wanted_bytes};

const LARGE: u64 = 1 << 40;

fn load(bytes: u64) -> PartLoad {
    PartLoad {
        sealed: 1,
        sealed_bytes: bytes,
        ..PartLoad::default()
    }
}

/// The fast levels came to rest at what they may have at rest; then a burst of writes begins.
/// Its first flushes used to have the spare.
#[test]
fn the_first_flush_after_a_rest_waits_for_no_merge() {
    let text = "L1: #1[a..c]{size=38M} #2[d..f]{size=38M} #3[g..i]{size=38M} | \
                L7: #4[a..m]{size=60M,tier=1} #5[n..z]{size=60M,tier=1}";
    // As full as at rest: 0.97 of 125, less the reserve, less one flush.
    let mut world = two_tiers(World::of(text, &[136 * M, LARGE]));
    world.shape.staging.fast_share = 1.0;
    world.shape.tier_fill_share = 0.97;
    world.tiers[0].capacity_bytes = 125 * M;
    world.tiers[0].reserve_bytes = 2 * M;
    world.tiers[0].device_free_bytes = LARGE;
    world.idle = true;
    read(&mut world, &[(1, 50), (2, 40), (3, 30), (4, 5), (5, 4)]);
    world.idle = false;
    world.memtables.insert((KEYSPACE, 0), load(8 * M));
    let job = world.plan(&mut logstore());
    assert!(matches!(job, Some(Job::Flush(_))), "{}", line(job));
}

/// A first tier so full that nothing makes room there, if tables are eight times what is flushed.
fn full_of_large_tables(idle: bool) -> World {
    let world = |tenths: u64| {
        let size = tenths * M / 30;
        let text = format!(
            "L1: #1[a..c]{{size={size}}} #2[d..f]{{size={size}}} #3[g..i]{{size={size}}} | \
             L7: #4[j..m]{{size=2M,tier=1}} #5[n..z]{{size=60M,tier=1}}"
        );
        let mut world = two_tiers(World::of(&text, &[125 * M, LARGE]));
        world.tiers[0].device_free_bytes = LARGE;
        world.shape.staging.fast_share = 1.0;
        world.shape.tier_fill_share = 1.0;
        world.shape.table_bytes = 8 * M;
        world.shape.flush_bytes = M;
        world.flushed_bytes_per_s = 0.1 * M as f64;
        world.idle = idle;
        read(&mut world, &[(1, 50), (2, 40), (3, 30), (5, 4)]);
        if !idle {
            world.memtables.insert((KEYSPACE, 0), load(M));
        }
        world
    };
    let rests = |world: &World| wanted_bytes(&world.view(), &Share::of(&world.view()), true) == 0;
    let mut worlds = (900..1250).rev().map(world);
    worlds.find(rests).unwrap()
}

/// Room was asked for a whole table. So much was kept free for it on a tier of sixteen, where
/// nothing was read from it; when it was not, flushes went to the slow tier while nothing was due
/// that would have made room.
#[test]
fn a_small_flush_asks_for_no_room_of_a_large_table() {
    let world = full_of_large_tables(false);
    let room = flush_room(&world.view(), &Share::of(&world.view()));
    assert!(room.unwrap().free_bytes > 0);
    let job = world.plan(&mut logstore());
    assert!(matches!(job, Some(Job::Flush(_))), "{}", line(job));
    assert!(Fill::of(&world.view()).has_room_for_flush(&world.view(), 0, M));
    let mut rested = full_of_large_tables(true);
    rested.idle = false;
    rested.memtables.insert((KEYSPACE, 0), load(M));
    let job = rested.plan(&mut logstore());
    assert!(matches!(job, Some(Job::Flush(_))), "{}", line(job));
}

/// Updates of five in a hundred left an eighth of the fast tier unused on average, which reads
/// missed.
#[test]
fn room_is_made_by_what_is_written() {
    let mut world = two_tiers(World::of("L1: #1[a..c]{size=38M}", &[LARGE, LARGE]));
    world.shape.table_bytes = 4 * M;
    let mut room = |flushed_bytes_per_s: f64, limit: u64| {
        world.flushed_bytes_per_s = flushed_bytes_per_s;
        room_bytes(&world.view(), limit)
    };
    assert_eq!(room(2.0 * M as f64, 1000 * M), 30 * M);
    assert_eq!(room(0.0, 1000 * M), 8 * M, "two flushes");
    assert_eq!(room(f64::INFINITY, 500 * M), 200 * M, "two fifths");
    assert_eq!(room(f64::INFINITY, 100_000 * M), 256 * M, "64 tables");
    assert_eq!(room(0.0, 15 * M), 6 * M, "no more than that");
}

/// Writers stood still for twelve seconds at a time, since a merge that made room began when there
/// was none.
#[test]
fn room_is_made_before_flushes_have_to_wait_for_it() {
    let text = "L1: #1[a..c]{size=30M} #2[d..f]{size=30M} #3[g..i]{size=30M} | \
                L7: #4[a..c]{size=150M,tier=1} #5[d..z]{size=150M,tier=1}";
    let mut world = two_tiers(World::of(text, &[110 * M, LARGE]));
    world.tiers[0].device_free_bytes = LARGE;
    world.shape.staging.fast_share = 1.0;
    world.shape.table_bytes = 4 * M;
    world.idle = false;
    read(&mut world, &[(1, 1), (2, 20), (3, 30), (4, 5), (5, 4)]);
    let share = Share::of(&world.view());
    let room = flush_room(&world.view(), &share).unwrap();
    // Beside three meta extents, and the table that the next flush asks room for.
    assert_eq!(room.free_bytes >> 20, 15);
    // 5 MiB are free of the 39 that are to be: 34 go down, and with them at least as much of the
    // last level, where that is what goes first. That is 102 MiB read and written with 150 MB/s,
    // seven tenths of a second.
    let wanted = |world: &World| wanted_bytes(&world.view(), &share, true);
    let decided = |world: &World| line(world.plan(&mut logstore()));
    world.flushed_bytes_per_s = 20.0 * M as f64;
    assert_eq!((wanted(&world), decided(&world).as_str()), (0, "rest"));
    world.flushed_bytes_per_s = 23.0 * M as f64;
    assert_eq!(decided(&world), "coldest: [5, 4, 2, 1] into L7");
    // No more than until so much is free as is made free at once.
    let most = room_bytes(&world.view(), share.limit_bytes);
    assert_eq!(wanted(&world) + share.free_bytes(), most);
    world.shape.staging.on.deferred = false;
    assert_eq!(wanted_bytes(&world.view(), &share, false), 0);
    world.shape.staging.on.deferred = true;
    world.idle = true;
    assert_eq!((wanted(&world), decided(&world).as_str()), (0, "rest"));
}

#[test]
fn there_is_no_room_to_speak_of_where_no_flush_waits() {
    let text = "L1: #1[a..c]{size=30M} | L7: #4[a..c]{size=150M,tier=1}";
    let room = |world: &World| logstore().flush.room(&world.view());
    let mut world = two_tiers(World::of(text, &[110 * M, LARGE]));
    world.tiers[0].device_free_bytes = LARGE;
    assert!(room(&world).is_some_and(|room| room.bytes > 0));
    // Flushes to a tier that no table fits into go to the next one at once.
    world.tiers[0].capacity_bytes = world.shape.table_bytes - 1;
    assert_eq!(room(&world), None);
    // A device that others have filled.
    let mut full = two_tiers(World::of(
        "L7: #4[a..c]{size=150M,tier=1}",
        &[110 * M, LARGE],
    ));
    full.tiers[0].device_free_bytes = 0;
    assert_eq!(room(&full), None);
    let mut world = two_tiers(World::of(text, &[110 * M, LARGE]));
    world.shape.staging.on.deferred = false;
    assert_eq!(room(&world), None);
    assert_eq!(room(&World::of(text, &[110 * M])), None);
}

/// Three of five settled tables are young, which come last: so the hottest of those that are known
/// would count as one of the colder third, and go before the coldest, as nobody writes to its keys.
#[test]
fn the_hottest_table_does_not_go_before_the_coldest() {
    let text = "L1: #1[a..a9]{size=10M} #2[c..c9]{size=10M} #3[e..e9]{size=10M} \
                #4[g..g9]{size=10M} #5[i..i9]{size=10M} | \
                L7: #11[a..a9]{size=10M,tier=1} #12[c..c9]{size=10M,tier=1} \
                #13[e..e9]{size=10M,tier=1} #14[g..g9]{size=10M,tier=1} #15[i..i9]{size=10M,tier=1}";
    let mut world = two_tiers(World::of(text, &[LARGE, LARGE]));
    world.idle = false;
    world.shape.staging.fast_share = 0.45;
    world.flushed_bytes_per_s = 0.0;
    read(&mut world, &[(1, 100_000), (2, 1)]);
    let now = world.now_us;
    let keyspace = world.version.keyspaces.get_mut(&KEYSPACE).unwrap();
    for run in &mut Arc::make_mut(keyspace).levels[6].runs {
        for meta in &mut run.tables {
            let age_s = if meta.id == TableId(11) { 120 } else { 60 };
            Arc::make_mut(meta).created_us = now - age_s * 1_000_000;
        }
    }
    assert_eq!(
        line(world.plan(&mut logstore())),
        "coldest: [12, 2] into L7"
    );
}

/// Bytes that are merged when a store of which all is read alike gets one put now and then, so that
/// it is at rest, then written to, then at rest, but nothing ever has to be flushed.
fn merged_by_heartbeats(beats: usize) -> Vec<u64> {
    let tables = |from: u64, count: u64, tier: u64| -> String {
        let one = |i: u64| {
            let key = 10 * i;
            format!(
                "#{}[{:010}..{:010}]{{size=4M,tier={tier}}} ",
                i + 1,
                key,
                key + 5
            )
        };
        (from..from + count).map(one).collect()
    };
    let text = format!("L1: {}| L7: {}", tables(0, 20, 0), tables(20, 40, 1));
    let mut world = two_tiers(World::of(&text, &[100 * M, LARGE]));
    world.tiers[0].device_free_bytes = LARGE;
    world.shape.staging.fast_share = 1.0;
    world.shape.first_level_bytes = 16 * M;
    world.flushed_bytes_per_s = 0.0;
    let mut preset = logstore();
    let mut merged = Vec::new();
    for _ in 0..=beats {
        let before = world.merged_bytes + world.relocated_bytes;
        for idle in [false, true] {
            world.idle = idle;
            let mut steps = 0;
            for _ in 0..6 {
                world.now_us += 5_000_000;
                loop {
                    let ids: Vec<_> = world.version.tables().cloned().collect();
                    for table in ids {
                        let age_s = (world.now_us - table.created_us.min(world.now_us)) / 1_000_000;
                        let mib = (table.size_bytes() / M).max(1);
                        let heat = world.heat.entry(table.id).or_default();
                        heat.block_reads = 4 * mib * age_s.min(600);
                        heat.probes = heat.block_reads;
                        heat.hits = heat.block_reads;
                        heat.temperature = Some(4.0);
                    }
                    let Some(job) = world.plan(&mut preset) else {
                        break;
                    };
                    world.start(&job);
                    world.finish(&job);
                    steps += 1;
                    assert!(steps < 500, "no rest");
                }
            }
        }
        merged.push(world.merged_bytes + world.relocated_bytes - before);
    }
    merged
}

#[test]
fn a_put_now_and_then_calls_for_no_merges() {
    let merged = merged_by_heartbeats(5);
    assert!(merged[2..].iter().all(|&b| b == 0), "{merged:?}");
}

/// Updates of five in a hundred left a quarter of the first level to older entries, while what
/// could lie there was read from the disk.
#[test]
fn overlapping_tables_are_merged_when_waiting_has_cost_what_the_merge_will() {
    let text = "L1: #2[a..z]{size=4M,created=1000000} / #1[a..z]{size=12M} | \
                L7: #5[a..z]{size=90M,tier=1}";
    let mut world = two_tiers(World::of(text, &[LARGE, LARGE]));
    world.shape.staging.fast_share = 0.16;
    world.idle = false;
    world.flushed_bytes_per_s = 0.0;
    read(&mut world, &[(1, 9), (2, 20), (5, 6)]);
    let after = |world: &World, seconds: f64| {
        let mut view = world.view();
        view.now_us = 1_000_000 + (seconds * 1e6) as u64;
        line(Staging.plan(&view))
    };
    // Two seeks, and 16 MiB read and written, at the paper's NVMe; six reads a second and MiB that
    // seek on its HDD, for want of 4 MiB.
    let merge = 2.0 / 6000.0 + 32.0 * (1 << 20) as f64 / 480e6;
    let due = |reads: f64| merge / (4.0 * reads * (1.0 / 60.0 - 1.0 / 6000.0));
    let merged = "staging-overwritten: [2, 1] into L1";
    assert_eq!(after(&world, due(6.0) * 0.99), "rest");
    assert_eq!(after(&world, due(6.0) * 1.01), merged);
    // What is hotter than all that is there gains no more than the coldest of these has.
    read(&mut world, &[(5, 600)]);
    assert_eq!(after(&world, due(9.0) * 0.99), "rest");
    assert_eq!(after(&world, due(9.0) * 1.01), merged);
    // Of what is divided by a snapshot both are needed.
    let divided = |snapshot: u64| {
        let mut view = world.view();
        view.now_us = 1 << 40;
        view.oldest_snapshot = SeqNo(snapshot);
        line(Staging.plan(&view))
    };
    let tables = world.version.keyspaces[&KEYSPACE].levels[0].tables();
    let upper = tables.max_by_key(|t| t.seq_max).unwrap();
    assert_eq!(divided(upper.seq_max.0 - 1), "rest");
    assert_eq!(divided(upper.seq_max.0), merged);
    // Nobody gains where there is room, or where nobody reads.
    read(&mut world, &[(5, 6)]);
    let much_later = due(6.0) * 100.0;
    world.shape.staging.fast_share = 0.5;
    assert_eq!(after(&world, much_later), "rest");
    world.shape.staging.fast_share = 0.1;
    let room = "staging-space: [5, 2, 1] into L1 and L7";
    assert_eq!(after(&world, much_later), room, "that is to be made first");
    world.shape.staging.fast_share = 0.16;
    assert_eq!(after(&world, much_later), merged);
    read(&mut world, &[(5, 0)]);
    assert_eq!(after(&world, much_later), "rest");
}

/// A spare of a tenth of the tier, however little was written; and then one of two tables.
#[test]
fn the_spare_for_writes_goes_by_what_is_written() {
    let text = "L0.0: #2[a..z]{size=4M} | L1: #1[a..z]{size=30M} | L7: #5[a..z]{size=90M,tier=1}";
    let mut world = two_tiers(World::of(text, &[1000 * M, LARGE]));
    world.tiers[0].device_free_bytes = LARGE;
    world.shape.tier_fill_share = 1.0;
    world.shape.table_bytes = 8 * M;
    world.idle = false;
    let mut spare = |flushed_bytes_per_s: f64| {
        world.flushed_bytes_per_s = flushed_bytes_per_s;
        let view = world.view();
        spare_for_writes(&view, &Fill::limits(&view))
    };
    assert_eq!(
        spare(0.0),
        8 * M,
        "two flushes, which are half a table each"
    );
    assert_eq!(spare(3.0 * M as f64), 30 * M, "ten seconds");
    assert_eq!(spare(f64::INFINITY), 100 * M, "a tenth");
}

/// Of a tier that may be filled to the last byte nothing is left for what comes up before something
/// goes down. Nothing came up, and reads of a small fast tier stayed where they were loaded.
#[test]
fn tables_change_places_on_a_tier_that_is_full_to_its_capacity() {
    let text = "L1: #1[100..199]{size=10M} #2[200..299]{size=10M} #3[300..399]{size=10M} | \
                L7: #4[400..499]{size=10M,tier=1} #5[500..999]{size=60M,tier=1}";
    let mut world = two_tiers(World::of(&numbered(text), &[43 * M, LARGE]));
    world.tiers[0].device_free_bytes = LARGE;
    world.shape.staging.fast_share = 1.0;
    world.shape.tier_fill_share = 1.0;
    world.shape.table_bytes = 10 * M;
    read(
        &mut world,
        &[(1, 500), (2, 20), (3, 500), (4, 5000), (5, 1)],
    );
    assert_eq!(
        line(world.plan(&mut logstore())),
        "yields-to-hotter: [2] into L7"
    );
    // The device has no room for both.
    world.tiers[0].device_free_bytes = 12 * M;
    assert_eq!(line(world.plan(&mut logstore())), "rest");
    world.tiers[0].device_free_bytes = LARGE;
    let down = world.plan(&mut logstore()).unwrap();
    world.start(&down);
    world.finish(&down);
    // What went down is still read by somebody.
    let used_bytes = world.tiers[0].used_bytes;
    world.tiers[0].used_bytes = used_bytes + 10 * M;
    assert_eq!(line(world.plan(&mut logstore())), "rest");
    world.tiers[0].used_bytes = used_bytes;
    assert_eq!(line(world.plan(&mut logstore())), "reverse: [4] into L1");
}
