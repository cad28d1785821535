//! The preset `mutant`: a picture in, a job out; and without data, under a stream of
//! flushes and reads.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::{Dice, KEYS, KEYSPACE, M, World, decide_by_heat as decide, empty, key, mutant};
use thermocline_model::job::{Job, NewTable};
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableId;
use thermocline_model::tier::{DeviceProfile, TIERS_MAX};
use thermocline_model::version::Slot;
use thermocline_model::view::{PartLoad, TableHeat};
use thermocline_policy::cost::{Budget, Devices};
use thermocline_policy::place::{ByHeat, Fill};
use thermocline_policy::plan::organisation::Organisation;
use thermocline_policy::{Placer, Preset, Seen};

const LARGE: u64 = 1 << 40;
/// The paper's local SSD, remote SSD and remote magnetic disk.
const PRICES: [f64; 3] = [0.528, 0.1, 0.045];

fn priced(mut world: World, prices: &[f64], target: Option<f64>) -> World {
    for (tier, &price) in world.tiers.iter_mut().zip(prices) {
        tier.price_usd_gb_month = price;
    }
    world.cost.target_usd_gb_month = target;
    world.by_heat = true;
    world.idle = true;
    world
}

fn warm(world: &mut World, temperatures: &[(u64, f64)]) {
    for &(table, temperature) in temperatures {
        let heat = TableHeat {
            temperature: Some(temperature),
            ..TableHeat::default()
        };
        world.heat.insert(TableId(table), heat);
    }
}

/// Four tables of 10 MiB, two of them fast: that is 0.2865 USD per GB and month.
const FOUR: &str = "L7: #1[a..f]{size=10M} #2[g..k]{size=10M} \
                    #3[l..p]{size=10M,tier=1} #4[q..z]{size=10M,tier=1}";

fn four(target: f64, temperatures: [f64; 4]) -> World {
    let mut world = priced(World::of(FOUR, &[LARGE, LARGE]), &PRICES[..2], None);
    for tier in &mut world.tiers[1..] {
        tier.price_usd_gb_month = PRICES[2];
    }
    world.cost.target_usd_gb_month = Some(target);
    warm(
        &mut world,
        &[1, 2, 3, 4].map(|t| (t, temperatures[t as usize - 1])),
    );
    world
}

#[test]
fn before_a_flush_spills_the_coldest_table_of_the_last_level_gives_way() {
    let text = format!("L0.0: #9[a..z]{{size=2M}} | L6: #8[a..z]{{size=4M}} | {FOUR}");
    let mut world = World {
        version: World::of(&text, &[LARGE, LARGE]).version,
        ..four(0.29, [9.0, 8.0, 2.0, 1.0])
    };
    world.cost.target_usd_gb_month = None;
    world.tiers[0].used_bytes = 26 * M;
    world.tiers[0].capacity_bytes = 28 * M;
    let load = PartLoad {
        sealed: 1,
        sealed_bytes: 4 * M,
        ..PartLoad::default()
    };
    world.memtables.insert((KEYSPACE, 0), load);
    world.idle = false;
    assert_eq!(decide(&world), "flush-needs-room: move 2 to 1");
    warm(&mut world, &[(1, 8.0), (2, 9.0), (8, 0.0)]);
    assert_eq!(decide(&world), "flush-needs-room: move 1 to 1");
    world.busy.extend([TableId(1), TableId(2)]);
    assert_eq!(decide(&world), "flush-needs-room: move 8 to 1");
    world.busy.insert(TableId(8));
    assert_eq!(decide(&world), "memtable-full: flush");
    world.busy.clear();
    let free = std::mem::replace(&mut world.tiers[1].device_free_bytes, M);
    assert_eq!(decide(&world), "memtable-full: flush");
    world.tiers[1].device_free_bytes = free;
    world.cost.migration_cool_down_us = 1_000_000;
    world.moves.begin(TableId(1), 0, u64::MAX, world.now_us);
    world.moves.end(TableId(1));
    world.now_us += 1;
    assert_eq!(
        decide(&world),
        "flush-needs-room: move 2 to 1",
        "1 was moved"
    );
    world.tiers[0].capacity_bytes = 40 * M;
    assert_eq!(decide(&world), "memtable-full: flush");
}

/// Found on an emulated disk: flushes found no room, and writers waited for a third of a second
/// while a table was moved.
#[test]
fn room_for_flushes_is_made_before_they_lack_it() {
    let mut world = four(0.29, [9.0, 8.0, 2.0, 1.0]);
    world.cost.target_usd_gb_month = None;
    world.idle = false;
    world.shape.tier_fill_share = 1.0;
    let capacity = world.tiers[0].used_bytes + M;
    world.tiers[0].capacity_bytes = capacity;
    world.flushed_bytes_per_s = 0.0;
    assert_eq!(decide(&world), "rest", "nothing is flushed");
    // As much is left as flushes write in twice the time of a move, but a sixteenth at most.
    let move_s = Devices::of(&world.view()).move_seconds(0, 1, world.shape.table_bytes);
    world.flushed_bytes_per_s = 0.9 * M as f64 / move_s / 2.0;
    assert_eq!(decide(&world), "rest", "there is room for that");
    world.flushed_bytes_per_s = 1.1 * M as f64 / move_s / 2.0;
    let moved = "flushes-will-need-room: move 2 to 1";
    assert_eq!(decide(&world), moved);
    world.flushed_bytes_per_s = 1e15;
    assert_eq!(decide(&world), moved);
    let job = world.plan(&mut mutant()).unwrap();
    let ahead = ("ahead_bytes".to_string(), (capacity / 16) as f64);
    assert!(job.reason().numbers.contains(&ahead), "{job:?}");
    // One at a time, and not at rest.
    world.moves.begin(TableId(7), 0, u64::MAX, world.now_us);
    assert_eq!(decide(&world), "rest");
    world.moves.end(TableId(7));
    world.idle = true;
    assert_eq!(decide(&world), "rest");
    // Who flushes does not move it.
    world.idle = false;
    assert_eq!(mutant().flush.plan(&world.view()), None);
}

#[test]
fn what_is_over_budget_gives_up_its_coldest_table() {
    assert_eq!(
        decide(&four(0.2, [9.0, 5.0, 2.0, 1.0])),
        "over-budget: move 2 to 1"
    );
    assert_eq!(
        decide(&four(0.2, [5.0, 9.0, 2.0, 1.0])),
        "over-budget: move 1 to 1"
    );
    assert_eq!(decide(&four(0.29, [5.0, 9.0, 2.0, 1.0])), "rest");
}

#[test]
fn what_the_budget_allows_brings_up_the_hottest_table() {
    assert_eq!(
        decide(&four(0.45, [9.0, 5.0, 1.0, 2.0])),
        "hotter: move 4 to 0"
    );
    assert_eq!(
        decide(&four(0.528, [9.0, 5.0, 2.0, 1.0])),
        "hotter: move 3 to 0"
    );
}

#[test]
fn a_hotter_table_takes_the_place_of_a_colder_one_which_leaves_first() {
    let mut world = four(0.29, [9.0, 1.0, 2.0, 5.0]);
    assert_eq!(decide(&world), "yields-to-hotter: move 2 to 1");
    let job = world.plan(&mut mutant()).unwrap();
    world.start(&job);
    world.finish(&job);
    assert_eq!(decide(&world), "hotter: move 4 to 0");
    let job = world.plan(&mut mutant()).unwrap();
    world.start(&job);
    world.finish(&job);
    assert_eq!(decide(&world), "rest");
}

fn named(job: &Job, name: &str) -> Option<f64> {
    let found = job.reason().numbers.iter().find(|(n, _)| n == name);
    found.map(|(_, number)| *number)
}

// What was compared stood in no event: of a table that made room, not how hot the other one was;
// and a table moved down that was hotter than the boundary that was given. After heat was lost,
// tables were said to be moved by temperatures that nobody had measured.
#[test]
fn a_reason_has_what_was_compared_and_nothing_that_is_not_known() {
    let world = four(0.29, [9.0, 1.0, 2.0, 5.0]);
    let job = world.plan(&mut mutant()).unwrap();
    assert_eq!(named(&job, "temperature"), Some(1.0));
    assert_eq!(named(&job, "temperature_of_the_hotter"), Some(5.0));
    assert!(named(&job, "payback_seconds_of_both").unwrap() > 0.0);
    // By resistance 8 stays where it is, so the coldest on the fast tier is no boundary.
    for temperatures in [
        [9.0, 5.0, 2.0, 1.0],
        [9.0, 8.9, 8.8, 8.7],
        [9.0, 9.0, 9.0, 9.0],
    ] {
        let mut world = four(0.1, temperatures);
        while let Some(job) = world.plan(&mut mutant()) {
            let temperature = named(&job, "temperature").unwrap();
            if let Some(boundary) = named(&job, "boundary_temperature") {
                let down = named(&job, "from_tier") < named(&job, "to_tier");
                let agrees = if down {
                    temperature <= boundary * 1.000_001
                } else {
                    temperature >= boundary
                };
                assert!(agrees, "{temperatures:?}: {}", job.reason());
            }
            world.start(&job);
            world.finish(&job);
        }
    }
    let mut world = four(0.2, [0.0; 4]);
    world.heat.clear();
    let job = world.plan(&mut mutant()).unwrap();
    assert_eq!(job.reason().rule, "over-budget");
    for name in ["temperature", "reads_per_second", "payback_seconds"] {
        assert_eq!(named(&job, name), None, "{name}");
    }
}

#[test]
fn a_settled_table_says_which_temperature_would_move_it() {
    let world = four(0.29, [9.0, 8.0, 2.0, 1.0]);
    let next = |table| ByHeat.why(&world.view(), TableId(table)).unwrap().next;
    let hot = next(1).unwrap();
    assert!(
        hot.starts_with("a relocation to tier 1, if it becomes colder than"),
        "{hot}"
    );
    let cold = next(4).unwrap();
    assert!(
        cold.starts_with("a relocation to tier 0, if it becomes hotter than"),
        "{cold}"
    );
    // Where nothing is known of any, there is none.
    let mut world = four(0.29, [0.0; 4]);
    world.heat.clear();
    for table in 1..5 {
        let why = ByHeat.why(&world.view(), TableId(table)).unwrap();
        let next = why.next.unwrap_or_default();
        assert!(!next.contains("if it becomes"), "{next}");
    }
}

#[test]
fn a_table_hardly_hotter_stays_where_it_is() {
    assert_eq!(decide(&four(0.29, [9.0, 5.0, 5.2, 1.0])), "rest");
    assert_eq!(
        decide(&four(0.29, [9.0, 5.0, 6.0, 1.0])),
        "yields-to-hotter: move 2 to 1"
    );
}

#[test]
fn a_table_hotter_by_chance_stays_where_it_is() {
    // 50 reads a second and 60: in five seconds 250 and 300, which is three standard
    // deviations of neither; in ten and more it is.
    let known_from = |world: &mut World, seconds: f64| {
        for heat in world.heat.values_mut() {
            heat.temperature_of_one = 1.0 / (10.0 * seconds);
        }
    };
    let decided = |seconds: f64, resistance: f64| {
        let mut world = four(0.29, [9.0, 5.0, 6.0, 1.0]);
        world.cost.migration_resistance = resistance;
        known_from(&mut world, seconds);
        decide(&world)
    };
    assert_eq!(decided(5.0, 0.05), "rest");
    assert_eq!(decided(9.0, 0.05), "rest");
    assert_eq!(decided(10.0, 0.05), "yields-to-hotter: move 2 to 1");
    assert_eq!(decided(100_000.0, 0.05), "yields-to-hotter: move 2 to 1");
    // Without resistance nothing is asked.
    assert_eq!(decided(5.0, 0.0), "yields-to-hotter: move 2 to 1");
    // What takes no other's place is asked nothing either.
    let mut world = four(0.45, [9.0, 5.0, 1.0, 2.0]);
    known_from(&mut world, 1.0);
    assert_eq!(decide(&world), "hotter: move 4 to 0");
}

#[test]
fn nothing_moves_twice_within_the_cool_down_nor_beside_another() {
    let mut world = four(0.2, [9.0, 5.0, 2.0, 1.0]);
    world.cost.migration_cool_down_us = 1000;
    let now_us = world.now_us;
    world.moves.begin(TableId(2), 1, LARGE, now_us);
    assert_eq!(decide(&world), "rest");
    world.moves.end(TableId(2));
    assert_eq!(decide(&world), "rest", "it is the only one that would help");
    world.moves.release();
    assert_eq!(decide(&world), "over-budget: move 2 to 1");
}

#[test]
fn a_promotion_that_does_not_pay_in_time_is_not_made() {
    // One 10 MiB table is hotter by 4 reads a second and MiB than another. That is
    // 40 reads of 10 ms and 10 us a second; the moves take some tenths of a second.
    let mut world = four(0.29, [9.0, 1.0, 2.0, 5.0]);
    let fast = DeviceProfile {
        random_read_iops: 100_000.0,
        sequential_mb_s: 1000.0,
    };
    let slow = DeviceProfile {
        random_read_iops: 100.0,
        sequential_mb_s: 100.0,
    };
    world.tiers[0].profile = Some(fast);
    world.tiers[1].profile = Some(slow);
    let saved = 40.0 * (1.0 / 100.0 - 1.0 / 100_000.0);
    let bytes = 10.0 * M as f64 / 1e6;
    let seconds = bytes * (2.0 * (1.0 / 1000.0 + 1.0 / 100.0) + (1.0 / 100.0 + 1.0 / 1000.0));
    let payback_us = (seconds / saved * 1e6) as u64;
    assert!(payback_us > 500_000, "{payback_us}");
    for (within_us, decided) in [
        (0, "yields-to-hotter: move 2 to 1"),
        (payback_us * 12 / 10, "yields-to-hotter: move 2 to 1"),
        (payback_us * 8 / 10, "rest"),
        (1, "rest"),
        (u64::MAX, "yields-to-hotter: move 2 to 1"),
    ] {
        world.cost.migration_payback_us = within_us;
        assert_eq!(decide(&world), decided, "within {within_us} us");
    }
    // What is over budget is moved whatever it costs.
    world.cost.target_usd_gb_month = Some(0.2);
    world.cost.migration_payback_us = 1;
    assert_eq!(decide(&world), "over-budget: move 2 to 1");
}

#[test]
fn a_large_device_does_not_keep_the_budget_from_being_used() {
    // Of a store that is written to, a tenth of the device's terabyte was to be left
    // free, at most a quarter of what lies there: the price stayed a fifth below its
    // target for as long as anybody wrote.
    let mut world = four(0.42, [9.0, 5.0, 4.0, 1.0]);
    world.idle = false;
    world.shape.flush_bytes = M / 4;
    assert_eq!(decide(&world), "hotter: move 3 to 0");
    // But what the newest levels are about to grow by is left, up to three hundredths of the
    // target.
    world.shape.flush_bytes = 4 * M;
    assert_eq!(decide(&world), "hotter: move 3 to 0");
    world.cost.target_usd_gb_month = Some(0.411);
    assert_eq!(decide(&world), "rest");
    // Or what is flushed in ten seconds.
    world.flushed_bytes_per_s = 1.0;
    world.shape.flush_bytes = 64 << 10;
    assert_eq!(decide(&world), "hotter: move 3 to 0");
}

#[test]
fn a_forecast_is_what_the_planners_then_do() {
    let mut world = four(0.2, [9.0, 1.0, 2.0, 5.0]);
    let before = world.version.clone();
    let forecast = thermocline_policy::forecast(&world.view(), &mut mutant());
    assert_eq!(world.version, before, "nothing moved");
    assert!(forecast.rests && forecast.unknown_tables == 0);
    let mut moves = 0;
    while let Some(job) = world.plan(&mut mutant()) {
        world.start(&job);
        world.finish(&job);
        moves += 1;
    }
    assert_eq!(forecast.moved_tables, moves);
    let tiers: Vec<u64> = Fill::of(&world.view()).used[..2].to_vec();
    assert_eq!(forecast.after.tier_bytes, tiers);
    let prices: Vec<f64> = world.tiers.iter().map(|t| t.price_usd_gb_month).collect();
    let budget = Budget::of(&tiers, &prices, None);
    assert_eq!(forecast.after.cost_usd_month, budget.spent_usd_month);
    assert!(forecast.after.price_usd_gb_month <= 0.2);
    // 9 of 17 reads stay fast, where 10 of 17 were.
    assert_eq!(forecast.before.read_shares, [10.0 / 17.0, 7.0 / 17.0]);
    assert_eq!(forecast.after.read_shares, [9.0 / 17.0, 8.0 / 17.0]);
    assert!(forecast.device_seconds > 0.0);
    let text = forecast.to_string();
    assert!(text.contains("table 000002 tier0 -> tier1"), "{text}");
}

// While a store was written to, newest runs were urgent at one moment and not at the next: a dry
// run said that no table would move, and the next one that half of them would. Nothing said that
// the price then stayed above the target.
#[test]
fn a_forecast_is_not_put_off_by_merges_that_are_urgent_and_says_what_keeps_it_from_the_target() {
    let newest: Vec<_> = (10..30)
        .map(|t| format!("#{t}[a..z]{{size=1M,tier=1}}"))
        .collect();
    let text = format!("L0.0: {} | {FOUR}", newest.join(" / "));
    let mut world = World {
        version: World::of(&text, &[LARGE, LARGE]).version,
        ..four(0.2, [9.0, 1.0, 2.0, 5.0])
    };
    let merge = world.plan(&mut mutant()).unwrap();
    world.start(&merge);
    let next = world.plan(&mut mutant());
    assert!(!matches!(next, Some(Job::Relocate(_))), "they are urgent");
    let of = |world: &World| thermocline_policy::forecast(&world.view(), &mut mutant());
    let forecast = of(&world);
    assert!(forecast.merges > 0 && forecast.target_missed.is_none());
    assert!(forecast.after.price_usd_gb_month <= 0.2, "{forecast}");
    // What metadata costs on the fast tier nothing can save.
    world.cost.target_usd_gb_month = Some(PRICES[2]);
    let forecast = of(&world);
    let why = forecast.target_missed.as_deref().unwrap();
    assert!(why.contains("metadata stays where it lies"), "{why}");
    let text = forecast.to_string();
    assert!(
        text.contains("the target of 0.045 is not reached"),
        "{text}"
    );
}

#[test]
fn a_forecast_of_another_preset_goes_by_what_the_present_one_counts() {
    let mut world = four(0.29, [0.0; 4]);
    world.heat.clear();
    for (table, block_reads) in [(1, 10), (2, 900), (3, 800), (4, 20)] {
        let heat = TableHeat {
            block_reads,
            ..TableHeat::default()
        };
        world.heat.insert(TableId(table), heat);
    }
    let forecast = thermocline_policy::forecast(&world.view(), &mut mutant());
    let moved: Vec<_> = forecast.moves.iter().map(|m| (m.table, m.to)).collect();
    assert_eq!(moved, [(1, 1), (3, 0)]);
    let leveled = thermocline_policy::by_name("leveled", &Default::default());
    let forecast = thermocline_policy::forecast(&world.view(), &mut leveled.unwrap());
    assert!(forecast.rests && forecast.after.tier_bytes[0] > 40 * M);
}

#[test]
fn a_relocation_costs_what_its_payback_was_reckoned_by() {
    let mut world = four(0.45, [9.0, 5.0, 1.0, 2.0]);
    let job = world.plan(&mut mutant()).unwrap();
    assert_eq!(job.reason().rule, "hotter", "{}", job.reason());
    let predicted = world.predicted(&job);
    let saved = predicted.benefit("read_us_saved_per_second").unwrap();
    let payback = named(&job, "payback_seconds").unwrap();
    assert!((payback - predicted.cost_seconds() / (saved / 1e6)).abs() < 1e-9);
    // It is dearer there.
    assert!(predicted.benefit("usd_month_saved").unwrap() < 0.0);
    world.heat.clear();
    let predicted = world.predicted(&job);
    assert_eq!(predicted.benefit("read_us_saved_per_second"), None);
    assert!(
        predicted
            .to_string()
            .ends_with("read_us_saved_per_second not known")
    );
}

#[test]
fn a_young_table_counts_as_hot() {
    let mut world = four(0.2, [5.0, 0.0, 9.0, 1.0]);
    world.heat.remove(&TableId(2));
    assert_eq!(decide(&world), "over-budget: move 1 to 1");
}

#[test]
fn without_a_target_the_limit_of_the_tier_decides() {
    let text = "L7: #1[a..f]{size=40M} #2[g..k]{size=40M} #3[l..p]{size=40M,tier=1}";
    let mut world = priced(World::of(text, &[100 * M, LARGE]), &[0.0, 0.0], None);
    warm(&mut world, &[(1, 1.0), (2, 2.0), (3, 5.0)]);
    assert_eq!(decide(&world), "yields-to-hotter: move 1 to 1");
    // No number is a target that somebody might have got past the engine.
    for target in [f64::NAN, -1.0, f64::INFINITY] {
        world.cost.target_usd_gb_month = Some(target);
        assert_eq!(decide(&world), "yields-to-hotter: move 1 to 1");
    }
}

#[test]
fn a_move_says_why_in_numbers() {
    let world = four(0.2, [9.0, 5.0, 2.0, 1.0]);
    let job = world.plan(&mut mutant()).unwrap();
    let number = |name: &str| {
        let numbers = &job.reason().numbers;
        numbers.iter().find(|(n, _)| n == name).unwrap().1
    };
    assert_eq!(number("temperature"), 5.0);
    assert_eq!(number("reads_per_second"), 50.0);
    assert_eq!(number("target_usd_gb_month"), 0.2);
    assert!((number("price_usd_gb_month") - 0.2865).abs() < 1e-4);
    let predicted = world.predicted(&job);
    let saved = predicted.benefit("usd_month_saved").unwrap();
    assert!(
        (saved - 10.0 * 1.048_576e-3 * (0.528 - 0.045)).abs() < 1e-9,
        "{saved}"
    );
    assert!(predicted.benefit("read_us_saved_per_second").unwrap() < 0.0);
    for table in 1..5 {
        let why = ByHeat.why(&world.view(), TableId(table)).unwrap();
        assert!(
            why.numbers.iter().any(|(n, _)| n == "temperature"),
            "{why:?}"
        );
        let moves = why
            .next
            .is_some_and(|n| n.contains("where its temperature belongs"));
        assert_eq!(moves, table == 2, "{table}");
    }
    assert_eq!(ByHeat.why(&world.view(), TableId(9)), None);
}

#[test]
fn tables_explained_together_are_told_what_lies_next_to_them() {
    let world = four(0.29, [9.0, 8.0, 2.0, 1.0]);
    let all = [1, 9, 2, 3, 4].map(TableId);
    let together = ByHeat.why_each(&world.view(), &all);
    let told = together.iter().map(|why| {
        let why = why.as_ref()?;
        let of = |name: &str| why.numbers.iter().find(|(n, _)| n == name).map(|n| n.1);
        let faster = of("temperature_of_the_coldest_on_a_faster_tier");
        Some((
            of("rank")?,
            faster,
            of("temperature_of_the_hottest_on_a_slower_tier"),
        ))
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            Some((1.0, None, Some(2.0))),
            None,
            Some((2.0, None, Some(2.0))),
            Some((3.0, Some(8.0), None)),
            Some((4.0, Some(8.0), None)),
        ]
    );
    let alone = all.map(|table| ByHeat.why(&world.view(), table));
    assert_eq!(together, alone);
}

fn place(world: &World, slot: Slot, start: &[u8], parents: &[u64]) -> (u32, &'static str, bool) {
    let new = NewTable {
        keyspace: KEYSPACE,
        slot,
        range: None,
        start: Some(start.into()),
        size_bytes: 4 * M,
        parents: parents.iter().map(|&t| TableId(t)).collect(),
        written_bytes: [0; TIERS_MAX],
    };
    let view = world.view();
    let layout = ByHeat.place(&view, &new);
    assert_eq!(layout.meta.0, 0, "meta lies on the fastest tier");
    let seen = Seen::of(&view);
    assert_eq!(ByHeat.place_as_seen(&view, &seen, &new), layout);
    (layout.data.0, layout.rule, layout.migrates)
}

#[test]
fn what_is_flushed_lies_on_the_fast_tier_whatever_the_target() {
    let world = four(0.045, [0.0; 4]);
    assert_eq!(
        place(&world, Slot::Newest(0), b"a", &[]),
        (0, "newest-on-fast", false)
    );
}

#[test]
fn what_is_merged_goes_straight_to_where_it_belongs() {
    let mut world = four(0.29, [9.0, 8.0, 2.0, 1.0]);
    let merged =
        |world: &World, start: &str| place(world, Slot::Level(6), start.as_bytes(), &[1, 2, 3, 4]);
    assert_eq!(merged(&world, "b"), (0, "as-hot-as-its-tier", false));
    assert_eq!(merged(&world, "r"), (1, "as-hot-as-its-tier", false));
    // The right half has become hot, and nobody has moved it yet.
    warm(&mut world, &[(1, 1.0), (2, 2.0), (3, 8.0), (4, 9.0)]);
    assert_eq!(merged(&world, "b"), (1, "joined-migration", true));
    assert_eq!(merged(&world, "r"), (0, "joined-migration", true));
}

/// Measured: of equals, as all are that nobody reads, a merge that brought more down than it
/// rewrote left all of it on the fast tier, and flushes went to the slow one.
#[test]
fn what_a_merge_rewrites_of_a_level_tells_where_its_like_lie() {
    let text = "L0.0: #1[a..z]{size=40M} | L6: #2[a..m]{size=40M} | L7: #3[a..m]{size=30M,tier=1} #4[n..z]{size=30M,tier=1}";
    let world = World::of(text, &[96 * M, LARGE]);
    let to = |level, start: &[u8]| place(&world, Slot::Level(level), start, &[1, 2, 3]).0;
    assert_eq!((to(6, b"b"), to(5, b"b")), (1, 0));
    // Where it rewrites nothing there, all that it is made of does.
    assert_eq!(to(6, b"o"), 0);
}

/// Found at a target on an emulated disk: a merge of tables that were about as hot as the coldest
/// of the fast tier brought all of them up, and the price was a twelfth above its target until they
/// were moved back.
#[test]
fn a_merge_brings_up_no_more_than_the_budget_allows() {
    let mut world = four(0.29, [9.0, 8.0, 1.0, 2.0]);
    warm(&mut world, &[(1, 8.0), (2, 8.0), (3, 9.0), (4, 9.0)]);
    let mut new = NewTable {
        start: Some(b"l"[..].into()),
        parents: vec![TableId(3), TableId(4)],
        ..made_of_all()
    };
    let placed = |world: &World, new: &NewTable| {
        let layout = ByHeat.place(&world.view(), new);
        (layout.data.0, layout.rule, layout.migrates)
    };
    assert_eq!(placed(&world, &new), (1, "budget-is-spent", false));
    // With room in the budget some may rise, not all.
    world.cost.target_usd_gb_month = Some(0.36);
    let mut risen = 0;
    for start in ["l", "m", "o", "r", "u"] {
        new.start = Some(start.as_bytes().into());
        let (tier, ..) = placed(&world, &new);
        new.written_bytes[tier as usize] += new.size_bytes;
        risen += u32::from(tier == 0);
    }
    assert!((1..5).contains(&risen), "{risen}");
    // Without a target there is nothing to keep.
    world.cost.target_usd_gb_month = None;
    assert_eq!(placed(&world, &new), (0, "joined-migration", true));
}

// Mutant's sections 3.2 and 4.3.1, each without.
#[test]
fn joined_migration_and_the_place_of_metadata_can_be_switched_off() {
    let mut world = four(0.2, [9.0, 1.0, 2.0, 5.0]);
    let new = NewTable {
        start: Some(b"b"[..].into()),
        ..made_of_all()
    };
    let layout = |world: &World| {
        let layout = ByHeat.place(&world.view(), &new);
        (layout.meta.0, layout.data.0, layout.rule, layout.migrates)
    };
    world.shape.staging.on.joined = false;
    assert_eq!(layout(&world), (0, 0, "as-its-inputs", false));
    for id in [1, 2, 3, 4] {
        warm(&mut world, &[(id, f64::from(u8::try_from(id).unwrap()))]);
    }
    world.shape.staging.on.joined = true;
    assert_eq!(layout(&world), (0, 1, "joined-migration", true));
    world.shape.staging.on.organised = false;
    assert_eq!(layout(&world), (1, 1, "joined-migration", true));
}

/// A table that a merge of all four makes, of their hotter half.
fn made_of_all() -> NewTable {
    NewTable {
        keyspace: KEYSPACE,
        slot: Slot::Level(6),
        range: None,
        start: Some(b"b"[..].into()),
        size_bytes: 4 * M,
        parents: [1, 2, 3, 4].map(TableId).to_vec(),
        written_bytes: [0; TIERS_MAX],
    }
}

/// Found on an emulated disk: the hottest tables of all, merged on a full tier, were served by the
/// slow one until they were moved back.
#[test]
fn what_a_merge_makes_takes_the_place_of_what_it_read() {
    let mut world = four(0.29, [9.0, 8.0, 2.0, 1.0]);
    world.tiers[0].capacity_bytes = world.tiers[0].used_bytes;
    world.tiers[0].device_free_bytes = 1 << 40;
    let mut new = made_of_all();
    let made = |world: &World, new: &NewTable| ByHeat.place(&world.view(), new).data.0;
    assert_eq!(made(&world, &new), 0);
    // What others write counts no more: it takes the place of what they read.
    let used = std::mem::replace(&mut world.tiers[0].used_bytes, 1 << 40);
    assert_eq!(made(&world, &new), 0);
    // What it has written itself counts.
    new.written_bytes[0] = used - 4 * M;
    assert_eq!(made(&world, &new), 0);
    new.written_bytes[0] += M;
    assert_eq!(made(&world, &new), 1);
}

#[test]
fn what_a_merge_makes_beyond_what_it_read_leaves_room_for_flushes() {
    let mut world = four(0.29, [9.0, 8.0, 2.0, 1.0]);
    let used = world.tiers[0].used_bytes;
    world.tiers[0].capacity_bytes = used + 8 * M;
    world.tiers[0].device_free_bytes = 1 << 40;
    world.idle = false;
    world.flushed_bytes_per_s = 0.0;
    let mut new = made_of_all();
    new.written_bytes[0] = used + 4 * M;
    let made = |world: &World, new: &NewTable| ByHeat.place(&world.view(), new).data.0;
    assert_eq!(made(&world, &new), 0);
    world.flushed_bytes_per_s = 1e15;
    assert_eq!(made(&world, &new), 1);
    new.written_bytes[0] = used - 4 * M;
    assert_eq!(made(&world, &new), 0);
}

/// Once: all tables were ranked anew for each table that a merge made, which took five
/// times the instructions of all planning.
#[test]
fn one_look_serves_all_tables_of_a_merge_while_the_tiers_fill() {
    let mut world = four(0.29, [9.0, 8.0, 2.0, 1.0]);
    let seen = Seen::of(&world.view());
    let new = made_of_all();
    let mut rule = || {
        let layout = ByHeat.place_as_seen(&world.view(), &seen, &new);
        world.tiers[0].used_bytes = world.tiers[0].capacity_bytes;
        world.tiers[0].device_free_bytes = 0;
        (layout.data.0, layout.rule)
    };
    assert_eq!(rule(), (0, "as-hot-as-its-tier"));
    assert_eq!(rule(), (1, "tier-full"));
}

#[test]
fn what_is_merged_with_a_flush_is_no_hotter_than_its_keys_are() {
    let text = format!("L1: #5[a..z]{{size=1M}} | {FOUR}");
    let mut world = World {
        version: World::of(&text, &[LARGE, LARGE]).version,
        ..four(0.29, [9.0, 8.0, 2.0, 1.0])
    };
    warm(&mut world, &[(5, 1000.0)]);
    let merged = |start: &str| place(&world, Slot::Level(6), start.as_bytes(), &[1, 2, 3, 4, 5]);
    assert_eq!(merged("b").0, 0);
    assert_eq!(merged("r"), (1, "as-hot-as-its-tier", false));
}

/// Nothing of the level that they are merged into lies where the hot keys are: the level below
/// tells. Once, all that came of such a merge counted as cold as what lies at the end of the
/// keys.
#[test]
fn flushes_are_as_hot_as_what_lies_below_them() {
    let text = format!(
        "L1: #9[a..y]{{size=8M}} / #10[a..y]{{size=8M}} | \
         L6: #5[u..v]{{size=1M}} #6[v..w]{{size=1M}} #7[w..x]{{size=1M}} #8[x..y]{{size=1M}} | {FOUR}"
    );
    let mut world = World {
        version: World::of(&text, &[LARGE, LARGE]).version,
        ..four(0.29, [20.0, 12.0, 2.0, 1.0])
    };
    warm(&mut world, &[(5, 0.5), (6, 0.5), (7, 0.5), (8, 0.5)]);
    warm(&mut world, &[(9, 8.0), (10, 8.0)]);
    let parents = [5, 6, 7, 8, 9, 10];
    let merged = |start: &str| place(&world, Slot::Level(5), start.as_bytes(), &parents).0;
    assert_eq!(["b", "g", "m"].map(merged), [0, 0, 1]);
}

#[test]
fn a_load_keeps_to_the_budget() {
    let world = four(0.3, [0.0; 4]);
    assert_eq!(
        place(&world, Slot::Level(6), b"a", &[]),
        (1, "within-budget", false)
    );
    let world = four(0.5, [0.0; 4]);
    assert_eq!(
        place(&world, Slot::Level(6), b"a", &[]),
        (0, "within-budget", false)
    );
}

#[test]
fn a_full_tier_passes_a_new_table_on() {
    let text = "L7: #1[a..f]{size=97M} #2[g..k]{size=40M,tier=1}";
    let world = priced(World::of(text, &[100 * M, LARGE]), &[0.5, 0.1], None);
    assert_eq!(
        place(&world, Slot::Newest(0), b"a", &[]),
        (1, "tier-full", false)
    );
}

/// A world in which jobs are done at once, and key ranges are read.
struct Run {
    world: World,
    preset: Preset,
    dice: Dice,
    /// How hot keys are, by their place from 0 to 1.
    heat: Box<dyn Fn(f64) -> f64>,
    /// How often tables were moved.
    moves: BTreeMap<TableId, u32>,
}

impl Run {
    fn new(seed: u64, capacities: &[u64], target: Option<f64>) -> Run {
        println!("seed {seed}");
        let mut world = priced(empty(1, capacities), &PRICES, target);
        world.idle = false;
        let last = world.tiers.len() - 1;
        world.tiers[last].price_usd_gb_month = PRICES[2];
        for (tier, random_read_iops) in world.tiers.iter_mut().zip([90_000.0, 3000.0, 150.0]) {
            tier.profile = Some(DeviceProfile {
                random_read_iops,
                sequential_mb_s: 100.0,
            });
        }
        Run {
            world,
            preset: mutant(),
            dice: Dice(seed),
            heat: Box::new(|_| 0.0),
            moves: BTreeMap::new(),
        }
    }

    fn flush(&mut self) {
        let (start, end) = (self.dice.below(1000), KEYS - 1 - self.dice.below(1000));
        let range = KeyRange::inclusive(&key(start), &key(end));
        let bytes = 3 * M + self.dice.below(2 * M);
        self.world.flush(0, range, bytes, 0.0);
    }

    /// A second in which tables are read as hot as `heat` says of the middle of
    /// their range.
    fn second(&mut self, heat: impl Fn(f64) -> f64 + 'static) {
        self.heat = Box::new(heat);
        self.world.heat.clear();
        self.warm();
        self.world.now_us += 1_000_000;
    }

    /// Gives a temperature to tables that have none.
    fn warm(&mut self) {
        let number = |key: &[u8]| std::str::from_utf8(key).unwrap().parse::<f64>().unwrap();
        for table in self.world.version.tables() {
            let middle = (number(&table.range.start) + number(&table.range.end)) / 2.0;
            let noise = 0.98 + 0.04 * self.dice.below(1000) as f64 / 1000.0;
            let temperature = (self.heat)(middle / KEYS as f64) * noise;
            let known_s = (self.world.now_us - table.created_us).max(1_000_000) as f64 / 1e6;
            let mib = table.data_bytes() as f64 / M as f64;
            let table_heat = TableHeat {
                temperature: Some(temperature),
                temperature_of_one: 1.0 / (mib * known_s.min(1000.0)),
                ..TableHeat::default()
            };
            self.world.heat.entry(table.id).or_insert(table_heat);
        }
    }

    /// All jobs there are.
    fn settle(&mut self) {
        let mut jobs = 0;
        while let Some(job) = self.world.plan(&mut self.preset) {
            jobs += 1;
            assert!(jobs < 2000, "does not come to rest: {job:?}");
            self.world.start(&job);
            if let Job::Relocate(relocate) = &job {
                *self.moves.entry(relocate.table).or_default() += 1;
            }
            self.world.finish(&job);
            // What is new inherits.
            self.warm();
        }
    }

    fn price(&self) -> f64 {
        let fill = Fill::of(&self.world.view());
        let prices: Vec<f64> = self
            .world
            .tiers
            .iter()
            .map(|t| t.price_usd_gb_month)
            .collect();
        Budget::of(&fill.used[..fill.tiers], &prices, None).price_usd_gb_month()
    }
}

/// A fiftieth of the keys takes nearly all reads, from `at` on.
fn hot_at(at: f64) -> impl Fn(f64) -> f64 + 'static {
    move |middle| {
        if (middle - at).rem_euclid(1.0) < 0.1 {
            50.0
        } else {
            1.0 + middle
        }
    }
}

#[test]
fn the_price_follows_the_target_and_comes_to_rest_within_two_percent() {
    for tiers in [2, 3] {
        let mut run = Run::new(tiers as u64, &vec![LARGE; tiers], Some(0.4));
        for _ in 0..250 {
            run.flush();
            run.second(hot_at(0.3));
            run.settle();
        }
        run.world.idle = true;
        // As figure 10 of the paper.
        for target in [0.4, 0.2, 0.3] {
            run.world.cost.target_usd_gb_month = Some(target);
            run.moves.clear();
            run.settle();
            let price = run.price();
            println!(
                "{tiers} tiers, target {target}: price {price:.4}, {} moves",
                run.moves.len()
            );
            assert!(price <= target, "{price} of {target}");
            assert!(price > 0.98 * target, "{price} of {target}");
            assert!(
                run.moves.values().all(|&n| n == 1),
                "nothing goes to and fro"
            );
        }
    }
}

#[test]
fn a_target_changed_a_thousand_times_converges_on_the_last() {
    let mut run = Run::new(7, &[LARGE, LARGE], Some(0.4));
    for _ in 0..150 {
        run.flush();
        run.second(hot_at(0.3));
        run.settle();
    }
    run.world.idle = true;
    for change in 0..1000 {
        let target = 0.05 + 0.47 * run.dice.below(1000) as f64 / 1000.0;
        run.world.cost.target_usd_gb_month = Some(target);
        run.world.moves.release();
        // One move at most between two changes.
        if let Some(job) = run.world.plan(&mut run.preset) {
            run.world.start(&job);
            run.world.finish(&job);
        }
        assert!(run.price() < 0.53, "change {change}");
    }
    run.world.cost.target_usd_gb_month = Some(0.25);
    run.settle();
    let price = run.price();
    assert!((0.98 * 0.25..=0.25).contains(&price), "{price}");
}

#[test]
fn the_hot_keys_come_to_lie_on_the_fast_tier_and_follow_when_they_move() {
    let mut run = Run::new(11, &[LARGE, LARGE], Some(0.15));
    for _ in 0..250 {
        run.flush();
        run.second(hot_at(0.3));
        run.settle();
    }
    run.world.idle = true;
    for at in [0.3, 0.7] {
        run.second(hot_at(at));
        run.settle();
        let view = run.world.view();
        let organisation = Organisation::of(&view);
        let hot = organisation.tables.iter().filter(|t| t.temperature > 10.0);
        assert!(hot.clone().count() > 3);
        assert!(hot.clone().all(|t| t.from == 0), "at {at}");
    }
}

#[test]
fn noise_moves_nothing_once_everything_is_in_its_place() {
    let mut run = Run::new(13, &[LARGE, LARGE], Some(0.2));
    for _ in 0..250 {
        run.flush();
        run.second(|_| 1.0);
        run.settle();
    }
    run.world.idle = true;
    run.second(|_| 1.0);
    run.settle();
    run.moves.clear();
    for _ in 0..100 {
        run.second(|_| 1.0);
        run.settle();
    }
    assert_eq!(run.moves.len(), 0, "uniform reads move nothing");
}

#[test]
fn heat_that_alternates_moves_no_table_twice_within_the_cool_down() {
    let mut run = Run::new(17, &[LARGE, LARGE], Some(0.15));
    run.world.cost.migration_cool_down_us = 60_000_000;
    for _ in 0..200 {
        run.flush();
        run.second(hot_at(0.3));
        run.settle();
    }
    run.world.idle = true;
    let mut moved_us: BTreeMap<TableId, u64> = BTreeMap::new();
    for second in 0..300 {
        run.second(hot_at([0.3, 0.7][second % 2]));
        for _ in 0..20 {
            let now_us = run.world.now_us;
            let cool_down_us = run.world.cost.migration_cool_down_us;
            run.world.moves.follow(now_us, cool_down_us);
            let Some(job) = run.world.plan(&mut run.preset) else {
                break;
            };
            if let Job::Relocate(relocate) = &job {
                let before = moved_us.insert(relocate.table, now_us);
                let since_us = before.map_or(u64::MAX, |b| now_us - b);
                assert!(since_us >= cool_down_us, "{relocate:?} after {since_us} us");
                run.world.moves.begin(relocate.table, 1, LARGE, now_us);
                run.world.moves.end(relocate.table);
            }
            run.world.start(&job);
            run.world.finish(&job);
        }
    }
    assert!(moved_us.len() > 3);
}

#[test]
fn under_writes_migrations_are_few_beside_what_merges_write() {
    let mut run = Run::new(19, &[LARGE, LARGE], Some(0.2));
    for _ in 0..400 {
        run.flush();
        run.second(hot_at(0.3));
        run.settle();
    }
    let world = &run.world;
    let share = world.relocated_bytes as f64 / world.flushed_bytes as f64;
    let written = world.merged_bytes as f64 / world.flushed_bytes as f64;
    println!("relocated {share:.2} and merged {written:.2} of what was flushed");
    assert!(share < 0.1 * written, "{share}");
    let price = run.price();
    assert!(price < 0.2 * 1.05, "{price}");
}

#[test]
fn planning_is_quick_with_two_thousand_tables() {
    let mut run = Run::new(23, &[LARGE, LARGE], Some(0.2));
    let text: Vec<String> = (0..2000)
        .map(|i| format!("#{}[{:04}..{:04}a]{{size=4M,tier={}}}", i + 1, i, i, i % 2))
        .collect();
    let mut world = priced(
        World::of(&format!("L7: {}", text.join(" ")), &[LARGE, LARGE]),
        &[0.5, 0.1],
        Some(0.3),
    );
    for i in 0..2000 {
        warm(&mut world, &[(i + 1, run.dice.below(1000) as f64)]);
    }
    let view = world.view();
    let start = std::time::Instant::now();
    for _ in 0..10 {
        assert_eq!(Organisation::of(&view).tables.len(), 2000);
    }
    println!("2000 tables: {:.0} us", start.elapsed().as_secs_f64() * 1e5);
}
