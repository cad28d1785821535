//! What the planner of overwritten entries decides, on pictures.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use common::{KEYSPACE, M, World, mutant, numbered};
use thermocline_model::job::Job;
use thermocline_model::key::SeqNo;
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableId;
use thermocline_model::tier::DeviceProfile;
use thermocline_model::version::Slot;
use thermocline_model::view::TableHeat;
use thermocline_policy::Planner;
use thermocline_policy::plan::Overwritten;

const LARGE: u64 = 1 << 40;

/// 4 MiB of L6 above 8 MiB of L7, both fast, and 30 MiB slow, half of which is read 4 times
/// a second and MiB.
const PICTURE: &str = "L6: #8[b..c]{size=4M} | L7: #1[a..f]{size=8M,created=1000000} \
                       #3[l..p]{size=15M,tier=1} #4[q..z]{size=15M,tier=1}";

/// What 2 MiB, the half of what there is to win, cost the devices in a second: 4 reads a MiB that
/// take 10 ms in place of 10 us.
const TAKEN: f64 = 2.0 * 4.0 * (1.0 / 100.0 - 1.0 / 100_000.0);

fn world(text: &str) -> World {
    let mut world = World::of(text, &[16 * M, LARGE]);
    for (tier, (random_read_iops, sequential_mb_s)) in
        (world.tiers.iter_mut()).zip([(100_000.0, 1000.0), (100.0, 100.0)])
    {
        tier.profile = Some(DeviceProfile {
            random_read_iops,
            sequential_mb_s,
        });
    }
    for (table, temperature) in [(8, 9.0), (1, 5.0), (2, 5.0), (3, 4.0), (4, 1.0)] {
        let heat = TableHeat {
            temperature: Some(temperature),
            ..TableHeat::default()
        };
        world.heat.insert(TableId(table), heat);
    }
    world.now_us = 1_000_000;
    world
}

/// Seconds after which the merge of so many bytes is due that wins 4 MiB.
fn due_seconds(merged: u64) -> f64 {
    2.0 * merged as f64 / 1000e6 / TAKEN
}

fn after(seconds: f64, world: &World) -> String {
    let mut view = world.view();
    view.now_us = 1_000_000 + (seconds * 1e6) as u64;
    match Overwritten.plan(&view) {
        None => "rest".to_string(),
        Some(Job::Merge(merge)) => {
            let inputs: Vec<_> = merge.inputs.iter().map(|t| t.0).collect();
            format!("{} {inputs:?} to {}", merge.reason.rule, merge.output)
        }
        Some(other) => format!("{other:?}"),
    }
}

#[test]
fn it_is_merged_when_waiting_has_cost_what_the_merge_will() {
    let world = world(PICTURE);
    let due = due_seconds(12 * M);
    assert!((0.3..0.4).contains(&due), "{due}");
    assert_eq!(after(0.0, &world), "rest");
    assert_eq!(after(due * 0.99, &world), "rest");
    assert_eq!(after(due * 1.01, &world), "overwritten [8, 1] to L7");
    assert_eq!(after(1e9, &world), "overwritten [8, 1] to L7");
    // A clock that was put back.
    let mut early = world.view();
    early.now_us = 0;
    assert_eq!(Overwritten.plan(&early), None);
    let mut late = world.view();
    late.now_us = 2_000_000;
    let Some(Job::Merge(merge)) = Overwritten.plan(&late) else {
        panic!("due");
    };
    let number = |name: &str| {
        let mut numbers = merge.reason.numbers.iter();
        numbers.find(|(n, _)| n == name).unwrap().1
    };
    // A table of these pictures has a byte of metadata.
    let is_about = |name: &str, expected: f64| {
        let is = number(name);
        assert!((is / expected - 1.0).abs() < 1e-6, "{name} {is}");
    };
    is_about("bytes", (4 * M) as f64);
    is_about("overlap_bytes", (8 * M) as f64);
    is_about("boundary_temperature", 4.0);
    is_about("waited_seconds", 1.0);
    is_about("compared_waiting_device_seconds", TAKEN);
    is_about("against_merge_device_seconds", 24.0 * M as f64 / 1000e6);
}

#[test]
fn only_where_something_waits_for_the_room() {
    let due = "overwritten [8, 1] to L7";
    // All of it fast, or all of it slow.
    let all_on = |tier: u32| {
        let mut text = PICTURE.replace(",tier=1", "");
        if tier > 0 {
            text = text.replace('}', &format!(",tier={tier}}}"));
        }
        let mut world = world(&text);
        world.tiers[0].capacity_bytes = LARGE;
        world
    };
    assert_eq!(after(100.0, &world(PICTURE)), due);
    assert_eq!(after(100.0, &all_on(0)), "rest");
    assert_eq!(after(100.0, &all_on(1)), "rest");
    // Nobody reads what there is room for.
    let mut cold = world(PICTURE);
    for heat in cold.heat.values_mut() {
        heat.temperature = Some(0.0);
    }
    assert_eq!(after(1e6, &cold), "rest");
    // Nobody reads what would come up, or nobody knows whether anybody does.
    let mut cold_below = world(PICTURE);
    for table in [3, 4] {
        cold_below
            .heat
            .get_mut(&TableId(table))
            .unwrap()
            .temperature = Some(0.0);
    }
    assert_eq!(after(1e6, &cold_below), "rest");
    let mut unknown = world(PICTURE);
    unknown.heat.clear();
    assert_eq!(after(1e6, &unknown), "rest");
    // The tiers are as fast as each other.
    let mut alike = world(PICTURE);
    alike.tiers[1].profile = alike.tiers[0].profile;
    assert_eq!(after(1e6, &alike), "rest");
    // There is one.
    let one = PICTURE.replace(",tier=1", "");
    assert_eq!(after(1e6, &World::of(&one, &[LARGE])), "rest");
}

#[test]
fn only_on_the_tier_where_both_lie() {
    let upper_slow = PICTURE.replace("#8[b..c]{size=4M}", "#8[b..c]{size=4M,tier=1}");
    assert_eq!(after(100.0, &world(&upper_slow)), "rest");
    let lower_slow = PICTURE.replace("#1[a..f]{size=8M", "#1[a..f]{tier=1,size=8M");
    assert_eq!(after(100.0, &world(&lower_slow)), "rest");
    let across = PICTURE.replace("#8[b..c]", "#8[b..m]");
    assert_eq!(after(100.0, &world(&across)), "rest");
    let nothing_below = PICTURE.replace("#8[b..c]", "#8[g..h]");
    assert_eq!(after(100.0, &world(&nothing_below)), "rest");
}

#[test]
fn not_while_anything_is_in_the_way() {
    let ready = || world(PICTURE);
    for table in [8, 1] {
        let mut busy = ready();
        busy.busy.insert(TableId(table));
        assert_eq!(after(100.0, &busy), "rest", "{table} is busy");
    }
    let mut coming = ready();
    let range = KeyRange::inclusive(b"e", b"e");
    coming.busy_outputs = vec![(KEYSPACE, Slot::Level(6), range)];
    assert_eq!(after(100.0, &coming), "rest");
    let mut lent = ready();
    lent.shape.flush_bytes *= 2;
    assert_eq!(after(100.0, &lent), "rest");
    let runs = "L0.0: #21[a..z] / #22[a..z] / #23[a..z] / #24[a..z] / #25[a..z] / #26[a..z] / \
                #27[a..z] / #28[a..z]";
    let runs = format!("{runs} | {PICTURE}");
    assert_eq!(after(100.0, &world(&runs)), "rest");
}

#[test]
fn what_a_snapshot_divides_waits() {
    let numbered = PICTURE.replace("{size=4M}", "{size=4M,seq=80..90}");
    let numbered = numbered.replace("{size=8M,", "{size=8M,seq=10..20,");
    let held_at = |number: u64| {
        let mut held = world(&numbered);
        held.oldest_snapshot = SeqNo(number);
        after(100.0, &held)
    };
    assert_eq!(held_at(90), "overwritten [8, 1] to L7");
    assert_eq!(held_at(50), "rest");
    assert_eq!(held_at(9), "overwritten [8, 1] to L7");
}

/// What overlaps far more than it can win is left to the merges between levels, and what several
/// overlap is won once.
#[test]
fn what_may_be_won_bounds_what_is_rewritten() {
    let ratio = world(PICTURE).shape.level_ratio;
    let of_size = |bytes: u64| world(&PICTURE.replace("{size=4M}", &format!("{{size={bytes}}}")));
    assert_eq!(after(1e6, &of_size(8 * M / ratio - M / 8)), "rest");
    assert_eq!(
        after(1e6, &of_size(8 * M / ratio + M / 8)),
        "overwritten [8, 1] to L7"
    );

    let four = "L6: #8[b..b]{size=4M} #9[c..c]{size=4M} #10[d..d]{size=4M} #11[e..e]{size=4M} \
                | L7: #1[a..f]{size=4M,created=1000000} #3[l..p]{size=15M,tier=1} \
                #4[q..z]{size=15M,tier=1}";
    let mut four = world(four);
    four.tiers[0].capacity_bytes = 24 * M;
    // 8 MiB for 4, and not 20 for 16.
    let due = due_seconds(8 * M);
    assert_eq!(after(due * 0.99, &four), "rest");
    assert_eq!(after(due * 1.01, &four), "overwritten [11, 1] to L7");
}

/// Of neighbours those go together that share what they overlap, and none that cost more than
/// they win.
#[test]
fn neighbours_go_along_as_far_as_they_pay() {
    let two = "L6: #8[b..c]{size=2M} #9[d..e]{size=2M} #10[g..g]{size=2M} \
               | L7: #1[a..f]{size=8M,created=1000000} #2[g..k]{size=16M,created=1000000} \
                 #3[l..p]{size=15M,tier=1} #4[q..z]{size=15M,tier=1}";
    let mut world = world(two);
    world.tiers[0].capacity_bytes = 40 * M;
    let due = due_seconds(12 * M);
    assert_eq!(after(due * 0.99, &world), "rest");
    assert_eq!(after(due * 1.01, &world), "overwritten [8, 9, 1] to L7");
    // What is young below has not waited for long.
    let young = two.replace("created=1000000} #2", "created=11000000} #2");
    let young = World {
        version: World::of(&young, &[LARGE, LARGE]).version,
        ..world
    };
    assert_eq!(after(10.0, &young), "overwritten [10, 2] to L7");
}

#[test]
fn after_the_merge_there_is_nothing_left_to_do() {
    let text = "L6: #8[1..2]{size=3M} | L7: #1[0..4]{size=8M,created=1000000} \
                #3[5..6]{size=30M,tier=1} #4[7..9]{size=30M,tier=1}";
    let mut world = world(&numbered(text));
    (
        world.tiers[0].capacity_bytes,
        world.tiers[0].device_free_bytes,
    ) = (40 * M, 29 * M);
    world.by_heat = true;
    world.idle = true;
    world.now_us = 100_000_000;
    let mut preset = mutant();
    let mut rules = Vec::new();
    while let Some(job) = world.plan(&mut preset) {
        rules.push(job.reason().rule.clone());
        assert!(rules.len() < 20, "{rules:?}");
        world.start(&job);
        world.finish(&job);
    }
    assert_eq!(rules, ["overwritten"]);
    assert!(world.version.keyspaces[&KEYSPACE].levels[5].runs.is_empty());
}
