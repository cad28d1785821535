//! The same answers under every preset and option set; see
//! `thermocline_sim::harness::metamorphic`.
//!
//! `THERMOCLINE_SEED` sets the first seed, `THERMOCLINE_COUNT` how many.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::ops::Bound;
use std::path::Path;

use thermocline::{DEFAULT_KEYSPACE, Durability, Options, Tier};
use thermocline_sim::disk::Disk;
use thermocline_sim::draw::Place;
use thermocline_sim::harness::{metamorphic, run_seeds, seeds};
use thermocline_sim::operation::{self, Keys, Move, Operation, Player, View, World};
use thermocline_sim::oracle::Effect;
use thermocline_sim::{Dice, Tally};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Two tables of which nothing is known changed places without end.
#[test]
fn what_once_failed_does_not_fail_again() {
    run_seeds(12_502_328, 1, metamorphic::run);
}

#[test]
fn metamorphic_answers_are_the_same_under_every_option_set() {
    run_seeds(0, 100, metamorphic::run);
}

#[test]
fn metamorphic_answers_are_the_same_for_other_operations() {
    run_seeds(1_000_000, 100, metamorphic::run);
}

#[test]
fn metamorphic_with_threads_answers_are_the_same_on_a_real_disk() {
    let mut tally = Tally::default();
    let directory = tempfile::tempdir().unwrap();
    let seeds = seeds(0, 12);
    println!("seeds {seeds:?}");
    for seed in seeds {
        metamorphic::run_with_threads(seed, directory.path(), &mut tally);
    }
    println!("{tally}");
}

/// Case 14: an iterator of now, one of a snapshot, and one over a keyspace that
/// is dropped, each in the middle of its way while everything under it is
/// flushed, merged, moved to another tier and deleted.
#[test]
fn metamorphic_readers_stand_still_over_merge_migration_and_deletion() {
    let root = Path::new("/mount/store");
    let tier = |name: &str| Tier::new(name, root.join(name)).block_bytes(512);
    let options = Options::new()
        .tier(tier("tier0").capacity_bytes(12_000))
        .tier(tier("tier1"))
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(4 << 10)
        .first_level_bytes(4 << 10)
        .level_ratio(2)
        .newest_runs_merge(1)
        .block_cache_bytes(0)
        .pinned_meta_bytes(0)
        .reserve_bytes(0)
        .background_threads(0);
    let place = Place {
        root: root.to_path_buf(),
        tiers: 2,
        real: false,
        preset: None,
    };
    let disk = Disk::new(1);
    let mut tally = Tally::default();
    let keys = Keys::draw(&mut Dice(1));
    let world = World::Simulated(disk.clone());
    let mut player = Player::new(world, place, keys, options, &mut tally);
    let key = |i: u8| [b'k', i].as_slice().into();
    let fill = |space: &str, with: u8| {
        let put = |i| Effect::Put(space.to_string(), key(i), vec![with; 400].into());
        Operation::Write((0..60).map(put).collect(), Durability::OperatingSystem)
    };
    let view = |space: &str, at| View {
        space: space.to_string(),
        at,
    };
    let all = || operation::Range::Between(Bound::Unbounded, Bound::Unbounded);
    let resume = |pick, moves: &[Move]| Operation::Resume(pick, moves.to_vec());
    let whole = [
        Move::Next(100),
        Move::Last,
        Move::Prev(100),
        Move::First,
        Move::Next(100),
    ];
    let half = [Move::First, Move::Next(30)];
    let mut operations = vec![
        Operation::Create("brief".to_string(), vec![]),
        fill("brief", 1),
        fill(DEFAULT_KEYSPACE, 2),
        Operation::Flush,
        Operation::Snapshot,
        fill(DEFAULT_KEYSPACE, 3),
        Operation::Hold(view(DEFAULT_KEYSPACE, None), all()),
        Operation::Hold(view(DEFAULT_KEYSPACE, Some(0)), all()),
        Operation::Hold(view("brief", None), all()),
        // What resumes goes to the end of the list.
        resume(0, &half),
        resume(0, &half),
        resume(0, &half),
        Operation::Drop("brief".to_string()),
    ];
    for round in 4..9 {
        operations.push(fill(DEFAULT_KEYSPACE, round));
        operations.push(Operation::Flush);
        operations.push(Operation::Step(2));
    }
    let range = Effect::DeleteRange(DEFAULT_KEYSPACE.to_string(), key(0), key(50));
    operations.push(Operation::Write(vec![range], Durability::OperatingSystem));
    operations.push(Operation::Compact(DEFAULT_KEYSPACE.to_string(), None, None));
    operations.push(Operation::Rest);
    for pick in [0, 1, 2] {
        operations.push(resume(pick, &whole));
    }
    player.open().unwrap();
    for operation in &operations {
        player.play(operation).unwrap();
    }
    let jobs = player.db().events(usize::MAX);
    for job in ["flush", "merge", "relocate"] {
        assert!(jobs.iter().any(|j| j.job == job), "no {job}: {jobs:#?}");
    }
    let objects = || ["tier0", "tier1"].map(|t| disk.names(&root.join(t)).len());
    let held = objects();
    for _ in 0..3 {
        player.play(&Operation::Release(0)).unwrap();
    }
    player.play(&Operation::Settle).unwrap();
    let free = objects();
    assert!(
        free.iter().sum::<usize>() + 10 < held.iter().sum(),
        "nothing was kept for the readers: {held:?} files, then {free:?}"
    );
    player.leave();
    assert!(tally.operations > 500);
}
