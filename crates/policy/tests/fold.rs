//! When memtables are folded instead of being flushed.

mod common;

use common::{KEYSPACE, M, World};
use thermocline_model::job::Job;
use thermocline_model::view::{FewKeys, PartLoad};
use thermocline_policy::Planner;
use thermocline_policy::plan::FlushSealed;
use thermocline_policy::plan::fold::LIVE_BYTES_MAX;

const LARGE: u64 = 1 << 40;

/// What is planned for one part with such memtables.
fn planned(load: PartLoad) -> Option<Job> {
    let mut world = World::of("L0.0:", &[LARGE]);
    world.memtables.insert((KEYSPACE, 0), load);
    FlushSealed::default().plan(&world.view())
}

fn few(keys: usize, live_bytes: u64) -> Option<FewKeys> {
    Some(FewKeys { keys, live_bytes })
}

/// Two full memtables of few keys.
fn hot() -> PartLoad {
    PartLoad {
        sealed: 2,
        sealed_bytes: 4 * M,
        sealed_few: few(60, 60_000),
        ..PartLoad::default()
    }
}

#[test]
fn memtables_with_few_keys_are_folded_and_say_why() {
    let Some(Job::Fold(fold)) = planned(hot()) else {
        panic!("no fold");
    };
    assert_eq!((fold.part, fold.active), (0, false));
    let reason = fold.reason.to_string();
    assert!(
        reason.starts_with("few-keys (keys 60, fold_keys_max 100, bytes 4194304, live_bytes 60000")
    );
}

#[test]
fn memtables_with_many_keys_are_flushed() {
    let load = PartLoad {
        sealed_few: None,
        ..hot()
    };
    assert!(matches!(planned(load), Some(Job::Flush(_))));
}

#[test]
fn what_mostly_survives_is_flushed() {
    let most = |live_bytes| PartLoad {
        sealed_bytes: 4 * M,
        sealed_few: few(60, live_bytes),
        ..hot()
    };
    assert!(matches!(planned(most(LIVE_BYTES_MAX)), Some(Job::Fold(_))));
    assert!(matches!(
        planned(most(LIVE_BYTES_MAX + 1)),
        Some(Job::Flush(_))
    ));
    let half = |live_bytes| PartLoad {
        sealed: 0,
        sealed_bytes: 0,
        sealed_few: few(0, 0),
        active_bytes: 8 * M,
        active_few: few(60, live_bytes),
        oldest_segment: Some(1),
        ..hot()
    };
    assert!(matches!(planned(half(LIVE_BYTES_MAX)), Some(Job::Fold(_))));
}

/// Else a log that is too long would be folded round and round without a write.
#[test]
fn what_a_fold_made_alone_is_not_folded_again() {
    let folded = |folded| PartLoad { folded, ..hot() };
    assert!(matches!(planned(folded(1)), Some(Job::Fold(_))));
    assert!(matches!(planned(folded(2)), Some(Job::Flush(_))));
}

#[test]
fn the_memtable_that_takes_writes_counts_where_it_goes_along() {
    let load = |active_few| PartLoad {
        active_bytes: 6 * M,
        active_few,
        oldest_segment: Some(1),
        ..hot()
    };
    // By the sealed ones alone.
    assert!(matches!(planned(load(None)), Some(Job::Fold(_))));
    let alone = |active_few| PartLoad {
        sealed: 1,
        sealed_bytes: M,
        active_bytes: 8 * M,
        ..load(active_few)
    };
    assert!(matches!(planned(alone(None)), Some(Job::Flush(_))));
    assert!(matches!(planned(alone(few(5, 500))), Some(Job::Fold(fold)) if fold.active));
}

/// A fold leaves one memtable, so with room for one it is never worth its log.
#[test]
fn memtables_are_flushed_where_what_a_fold_leaves_would_have_no_room_beside_the_next_ones() {
    let planned = |most: usize, of_all: usize| {
        let mut world = World::of("L0.0:", &[LARGE]);
        let load = PartLoad { takers: 1, ..hot() };
        world.memtables.insert((KEYSPACE, 0), load);
        world.shape.sealed_max = most;
        world.shape.sealed_total_max = of_all;
        FlushSealed::default().plan(&world.view())
    };
    let no_limit = usize::MAX;
    assert!(matches!(planned(2, no_limit), Some(Job::Fold(_))));
    assert!(matches!(planned(no_limit, 2), Some(Job::Fold(_))));
    assert!(matches!(planned(1, no_limit), Some(Job::Flush(_))));
    assert!(matches!(planned(no_limit, 1), Some(Job::Flush(_))));
}
