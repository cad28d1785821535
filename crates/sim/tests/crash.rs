//! Crash safety on a simulated disk; see `thermocline_sim::harness::crash`.
//!
//! `THERMOCLINE_SEED` sets the first seed, `THERMOCLINE_COUNT` how many.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::Path;

use thermocline::{DEFAULT_KEYSPACE, Durability, Options, Tier};
use thermocline_sim::Tally;
use thermocline_sim::disk::Down;
use thermocline_sim::draw::Place;
use thermocline_sim::harness::crash::{self, Script};
use thermocline_sim::harness::run_seeds;
use thermocline_sim::operation::Operation;
use thermocline_sim::oracle::Effect;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[test]
fn crash_survivors_are_a_prefix_with_everything_acknowledged() {
    run_seeds(0, 400, crash::run);
}

#[test]
fn crash_survivors_are_a_prefix_under_other_seeds() {
    run_seeds(1_000_000, 400, crash::run);
}

/// Two small tiers, three parts, everything as early as possible.
fn small(operations: Vec<Operation>) -> Script {
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
        .log_segment_bytes(16 << 10)
        .log_bytes_max(16 << 10)
        .reserve_bytes(0)
        .background_threads(0)
        .cuts(vec![b"k1".to_vec(), b"k2".to_vec()]);
    let place = Place {
        root: root.to_path_buf(),
        tiers: 2,
        real: false,
        preset: None,
    };
    Script {
        place,
        options,
        operations,
    }
}

fn put(space: &str, key: &str, fill: u8) -> Effect {
    // Longer than a block now and then.
    let value = vec![fill; if fill.is_multiple_of(3) { 900 } else { 90 }];
    Effect::Put(space.to_string(), key.as_bytes().into(), value.into())
}

/// The script does each of these `jobs` when nothing stops it.
fn at_every_call(script: &Script, jobs: &[&str]) {
    for down in [Down::Kill, Down::Power] {
        let mut tally = Tally::default();
        let (calls, done) = crash::at_every_call(script, down, &mut tally);
        println!("{calls} calls, {down:?}: {tally}");
        assert!(calls > 100, "the script does too little: {calls} calls");
        for job in jobs {
            assert!(done.iter().any(|d| d.job == *job), "no {job}: {done:#?}");
        }
    }
}

/// Case 1 and part of case 2: drawn but fixed workloads, each call in turn.
#[test]
fn crash_at_every_call_of_fixed_workloads_loses_nothing_promised() {
    for seed in [4, 5, 6] {
        println!("workload {seed}");
        at_every_call(&Script::draw(seed, 70), &[]);
    }
}

/// Case 13: batches over three parts and two keyspaces, of which some parts are
/// in tables and some only in the log when the machine goes down.
#[test]
fn crash_between_batch_and_flush_leaves_batches_whole_or_absent() {
    let other = "other";
    let mut operations = vec![Operation::Create(other.to_string(), vec![])];
    for round in 0..12u8 {
        let mut batch = Vec::new();
        for part in ["k0", "k1", "k2"] {
            batch.push(put(
                DEFAULT_KEYSPACE,
                &format!("{part}/{}", round % 4),
                round,
            ));
            batch.push(put(other, &format!("{part}/{}", round % 3), round));
        }
        batch.push(Effect::DeleteRange(
            other.to_string(),
            b"k1/1".as_slice().into(),
            b"k2/1".as_slice().into(),
        ));
        let durability = if round % 5 == 4 {
            Durability::Device
        } else {
            Durability::OperatingSystem
        };
        operations.push(Operation::Write(batch, durability));
        operations.push(match round % 4 {
            // Flushes one keyspace only, and merges.
            1 => Operation::Compact(other.to_string(), None, None),
            3 => Operation::Compact(
                DEFAULT_KEYSPACE.to_string(),
                None,
                Some(b"k1".as_slice().into()),
            ),
            _ => Operation::Step(1),
        });
    }
    at_every_call(&small(operations), &["flush", "merge"]);
}

/// Case 30: old versions on the slow tier, newer ones and deletes above them on
/// the fast one, and all of them on their way down or to the other tier.
#[test]
fn crash_with_a_key_on_both_tiers_lets_the_newer_one_win_deletes_too() {
    let mut operations = Vec::new();
    for round in 0..3u8 {
        // More than the fast tier takes.
        for i in 0..30u8 {
            let key = format!("k{}/{i:02}", i % 3);
            let effect = match (round + i) % 4 {
                3 => Effect::Delete(DEFAULT_KEYSPACE.to_string(), key.as_bytes().into()),
                _ => put(DEFAULT_KEYSPACE, &key, round * 3),
            };
            operations.push(Operation::Write(vec![effect], Durability::OperatingSystem));
        }
        operations.push(Operation::Flush);
        operations.push(Operation::Settle);
    }
    // Now there is room on it.
    operations.push(Operation::Write(
        vec![Effect::DeleteRange(
            DEFAULT_KEYSPACE.to_string(),
            b"k0/20".as_slice().into(),
            b"k2/10".as_slice().into(),
        )],
        Durability::OperatingSystem,
    ));
    operations.push(Operation::Flush);
    operations.push(Operation::Rest);
    at_every_call(&small(operations), &["flush", "merge", "relocate"]);
}
