//! While writers wait for merges, what these rewrite counts as read.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use common::{KEYSPACE, M, World, decide_by_heat as decide, mutant};
use thermocline_model::job::NewTable;
use thermocline_model::table::TableId;
use thermocline_model::tier::{DeviceProfile, TIERS_MAX, TierId};
use thermocline_model::version::Slot;
use thermocline_model::view::TableHeat;
use thermocline_policy::Placer;
use thermocline_policy::cost::Rewriting;
use thermocline_policy::place::{ByHeat, Fill};
use thermocline_policy::plan::organisation::Organisation;

/// L6 on the slow tier, and L7 on both: of 40 MiB that the fast one takes 20 are full.
const TREE: &str = "L0.0: #1[a..z]{size=10M} | L6: #2[a..m]{size=20M,tier=1} #3[n..z]{size=20M,tier=1} | \
                    L7: #4[a..f]{size=10M} #5[g..k]{size=10M} #6[l..z]{size=100M,tier=1}";

/// Blocks that are read of it in a second, by these.
const REMEMBERED: f64 = 90.0 + 40.0 + 30.0 + 100.0;

/// Temperatures of the tree: nobody reads L6.
const WARM: [(u64, f64); 6] = [(1, 9.0), (2, 0.0), (3, 0.0), (4, 4.0), (5, 3.0), (6, 1.0)];

/// The tree, with 30 or so of 62 MiB in use on the fast tier, and 10 MiB flushed in a second. So
/// many writers wait.
fn world(writers: f64) -> World {
    let mut world = World::of(TREE, &[62 * M, 1 << 40]);
    world.by_heat = true;
    world.shape.tier_fill_share = 1.0;
    world.shape.level_ratio = 2;
    let profiles = [(100_000.0, 1000.0), (1000.0, 100.0)];
    for (tier, (random_read_iops, sequential_mb_s)) in world.tiers.iter_mut().zip(profiles) {
        tier.profile = Some(DeviceProfile {
            random_read_iops,
            sequential_mb_s,
        });
    }
    for (table, temperature) in WARM {
        let heat = TableHeat {
            temperature: Some(temperature),
            ..TableHeat::default()
        };
        world.heat.insert(TableId(table), heat);
    }
    world.flushed_bytes_per_s = 10.0 * M as f64;
    world.waits.writers = writers;
    world
}

fn reads(world: &World) -> [f64; 9] {
    let view = world.view();
    let rewriting = Rewriting::of(&view, &Fill::of(&view), REMEMBERED);
    std::array::from_fn(|depth| rewriting.reads(depth))
}

/// Where what is made of `parents` in `slot` is put.
fn placed(world: &World, slot: Slot, parents: &[u64]) -> u32 {
    let new = NewTable {
        keyspace: KEYSPACE,
        slot,
        range: None,
        start: Some((*b"b").into()),
        size_bytes: 5 * M,
        parents: parents.iter().map(|&t| TableId(t)).collect(),
        written_bytes: [0; TIERS_MAX],
    };
    ByHeat.place(&world.view(), &new).data.0
}

/// So many newest runs that their merge is urgent, and runs.
fn urgent(world: &mut World) {
    let runs: Vec<String> = (0..20)
        .map(|n| format!("#{}[a..z]{{size=512K}}", 100 + n))
        .collect();
    let text = TREE.replace("#1[a..z]{size=10M}", &runs.join(" / "));
    world.version = World::of(&text, &[62 * M, 1 << 40]).version;
    world.busy.extend((100..120).map(TableId));
    world.busy.extend([2, 3].map(TableId));
}

#[test]
fn a_level_counts_as_read_as_often_as_costs_clients_the_time_of_rewriting_it() {
    // A MiB is rewritten in 18.9 ms more on the slow tier, a block is read in 0.99 ms more there.
    let per_rewrite = (2.0 * 1.048_576e-2 * 0.9) / 0.99e-3;
    // What is flushed in a second fills the 16 MiB of newest levels in 1.6, L6 in 4.
    let (newest, level_6) = (per_rewrite / 1.6, per_rewrite / 4.0);
    let four = reads(&world(4.0));
    for depth in 0..=6 {
        assert!((four[depth] - 4.0 * newest).abs() < 1e-6, "{four:?}");
    }
    assert!((four[7] - 4.0 * level_6).abs() < 1e-6, "{four:?}");
    let one = reads(&world(1.0));
    (0..9).for_each(|depth| assert!((four[depth] - 4.0 * one[depth]).abs() < 1e-6));
    // Temperatures tell of reads that are rarer now, or more.
    for (now, times) in [(REMEMBERED, 1.0), (65.0, 4.0), (0.0, 100.0), (520.0, 0.5)] {
        let mut read = world(4.0);
        read.block_reads_per_s = now;
        let reads = reads(&read);
        assert!(
            (reads[6] - times * four[6]).abs() < 1e-6,
            "{now}: {reads:?}"
        );
    }
    // With more to bring down at a time it is done less often.
    let mut full = world(4.0);
    full.shape.newest_runs_merge = 8;
    assert!((reads(&full)[6] - 4.0 * newest / 2.0).abs() < 1e-6);
    // No level is rewritten more often than those above it.
    full.shape.newest_runs_merge = 20;
    assert_eq!(reads(&full)[7], reads(&full)[0]);
}

#[test]
fn it_counts_as_nothing_where_it_costs_nobody_anything() {
    let none = |change: fn(&mut World)| {
        let mut world = world(8.0);
        assert!(reads(&world).iter().all(|reads| *reads > 0.0));
        change(&mut world);
        assert_eq!(reads(&world), [0.0; 9]);
    };
    none(|world| world.waits.writers = 0.0);
    none(|world| world.flushed_bytes_per_s = f64::INFINITY);
    none(|world| world.flushed_bytes_per_s = 0.0);
    none(|world| world.shape.staging.on.rewritten = false);
    // A slow tier that is not slower, or of which nothing else is known.
    none(|world| world.tiers[1].profile = world.tiers[0].profile);
    none(|world| world.tiers.truncate(1));
    let unread = world(8.0);
    let view = unread.view();
    let rewriting = Rewriting::of(&view, &Fill::of(&view), 0.0);
    assert_eq!(rewriting.reads(6), 0.0, "nothing was ever read");
}

#[test]
fn what_is_merged_goes_to_the_fast_tier_while_writers_wait() {
    let to = |world: &World, level, parents| placed(world, Slot::Level(level), parents);
    for (writers, expected) in [(0.0, 1), (0.05, 1), (8.0, 0)] {
        assert_eq!(to(&world(writers), 5, &[1, 2]), expected, "{writers}");
    }
    // The last level is rewritten too, but there is more of it than of what is above.
    assert_eq!(to(&world(8.0), 6, &[2, 6]), 1);
    let mut off = world(8.0);
    off.shape.staging.on.rewritten = false;
    assert_eq!(to(&off, 5, &[1, 2]), 1);
}

#[test]
fn a_table_says_how_much_of_its_temperature_is_rewriting() {
    let number = |world: &World, table, name: &str| {
        let why = ByHeat.why(&world.view(), TableId(table)).unwrap();
        why.numbers.iter().find(|(n, _)| n == name).map(|n| n.1)
    };
    assert_eq!(number(&world(0.0), 2, "of_it_rewriting"), None);
    let waiting = world(2.0);
    let rewriting = reads(&waiting)[6];
    assert_eq!(number(&waiting, 2, "of_it_rewriting"), Some(rewriting));
    assert_eq!(number(&waiting, 2, "temperature"), Some(rewriting));
    let rewriting = reads(&waiting)[7];
    assert_eq!(number(&waiting, 4, "temperature"), Some(4.0 + rewriting));
    assert_eq!(number(&waiting, 4, "of_it_rewriting"), Some(rewriting));
}

#[test]
fn while_merges_are_urgent_the_coldest_makes_room_for_what_they_rewrite() {
    let mut waiting = world(8.0);
    urgent(&mut waiting);
    let organisation = |world: &World| {
        let view = world.view();
        let tables = Organisation::of(&view).tables;
        let find = |id| {
            tables
                .iter()
                .find(|t| t.table.id == TableId(id))
                .unwrap()
                .to
        };
        [2, 3, 4, 5].map(find)
    };
    assert_eq!(organisation(&waiting), [0, 0, 0, 1]);
    assert_eq!(decide(&waiting), "yields-to-rewritten: move 5 to 1");
    let job = waiting.plan(&mut mutant()).unwrap();
    let numbers = &job.reason().numbers;
    let number = |name: &str| numbers.iter().find(|(n, _)| n == name).unwrap().1;
    let rewriting = number("of_it_rewriting");
    assert!((number("temperature") - 3.0 - rewriting).abs() < 1e-9);
    assert!((number("reads_per_second") - 30.0).abs() < 1e-9);
    // One at a time, and no more than the bound on moved bytes allows.
    waiting.moves.begin(TableId(5), 10 * M, M, waiting.now_us);
    assert_eq!(decide(&waiting), "rest");
    waiting.moves.end(TableId(5));
    assert_eq!(decide(&waiting), "rest");
    // Nobody waits: nothing is moved while merges are urgent.
    let mut calm = world(0.0);
    urgent(&mut calm);
    assert_eq!(decide(&calm), "rest");
    // What is to rise is read, which can wait.
    let mut read = world(0.01);
    urgent(&mut read);
    for table in [2, 3] {
        read.heat.get_mut(&TableId(table)).unwrap().temperature = Some(50.0);
    }
    assert_eq!(decide(&read), "rest");
    // There is room for all of it.
    let mut roomy = world(8.0);
    urgent(&mut roomy);
    roomy.tiers[0].capacity_bytes = 90 * M;
    roomy.tiers[0].device_free_bytes = 90 * M;
    assert_eq!(decide(&roomy), "rest");
    // What is rewritten lies there.
    let mut settled = world(8.0);
    urgent(&mut settled);
    let text = TREE
        .replace("20M,tier=1", "20M")
        .replace("10M}", "10M,tier=1}");
    settled.version = World::of(&text, &[62 * M, 1 << 40]).version;
    settled.busy.clear();
    assert_eq!(
        settled
            .version
            .tables()
            .filter(|t| t.tier() == TierId(0))
            .count(),
        2
    );
    assert!(!decide(&settled).starts_with("yields-to-rewritten"));
}

#[test]
fn without_merges_that_are_urgent_what_is_rewritten_changes_places_as_what_is_read_does() {
    let mut waiting = world(8.0);
    assert_eq!(decide(&waiting), "hotter: move 2 to 0");
    waiting.tiers[0].capacity_bytes = 42 * M;
    waiting.tiers[0].device_free_bytes = 11 * M;
    assert_eq!(decide(&waiting), "yields-to-hotter: move 5 to 1");
    waiting.waits.writers = 0.0;
    assert_eq!(decide(&waiting), "rest");
}
