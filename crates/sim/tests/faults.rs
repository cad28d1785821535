//! A fault at every call; see `thermocline_sim::harness::faults`.

use thermocline_sim::disk::{Down, Fault};
use thermocline_sim::harness::faults::{
    every_byte_is_the_last, every_call_crashes, every_call_fails,
};
use thermocline_sim::harness::workload::Workload;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[test]
fn the_workloads_reach_every_kind_of_job_and_a_rewritten_manifest() {
    let mut done = std::collections::BTreeSet::new();
    for workload in Workload::all(0) {
        let disk = workload.disk(0);
        let mut history = workload.history();
        drop(workload.play(&disk, &mut history));
        assert!(history.errors.is_empty(), "{:?}", history.errors);
        println!("{workload}: {} calls, {:?}", disk.calls(), history.done);
        if workload.name == "life" {
            let manifests = history.done.iter().filter(|d| d.starts_with("MANIFEST"));
            assert!(manifests.count() > 2, "two openings and a rewriting");
        }
        if workload.name == "parts" {
            let mut done = history.done.iter();
            assert!(done.any(|d| d.starts_with("flush") && d.ends_with("together")));
        }
        if workload.name == "hot" {
            for job in ["fold", "recut", "flush older-generation"] {
                let mut done = history.done.iter();
                assert!(done.any(|d| d.starts_with(job)), "{job}");
            }
        }
        if workload.name == "passes" {
            for job in ["recut", "flush older-generation", "merge newest-deferred"] {
                let mut done = history.done.iter();
                assert!(done.any(|d| d.starts_with(job)), "{job}");
            }
        }
        done.extend(history.done);
    }
    for job in [
        "flush",
        "merge",
        "relocate tier-over",
        "relocate tier-under",
        "relocate over-budget",
        "relocate hotter",
        "merge newest-deferred",
        "merge staging",
        "merge reverse",
        "merge coldest",
        "merge yields-to-hotter",
        "recut first-memtable",
        "recut minor",
        "recut major",
        "merge handed-down",
        "flush older-generation",
        "fold few-keys",
    ] {
        assert!(done.iter().any(|d| d.starts_with(job)), "{job}");
    }
}

// case 7
#[test]
fn an_io_error_at_any_call_is_named_and_loses_nothing() {
    assert!(every_call_fails(Fault::Io) > 250);
}

// cases 7 and 8
#[test]
fn a_device_that_is_full_for_a_moment_is_named_and_writing_resumes() {
    every_call_fails(Fault::Full(1));
}

// cases 7 and 8
#[test]
fn a_device_that_is_full_for_long_is_named_and_writing_resumes() {
    every_call_fails(Fault::Full(60));
}

// cases 7, 8 and 21
#[test]
fn a_device_whose_room_ends_at_any_byte_is_named_and_writing_resumes() {
    assert!(every_byte_is_the_last(293) > 500);
}

// case 6
#[test]
fn a_sync_that_fails_once_is_final() {
    every_call_fails(Fault::Sync);
}

// case 7
#[test]
fn a_call_that_is_interrupted_is_done_again_and_nobody_notices() {
    every_call_fails(Fault::Interrupted);
}

// case 7
#[test]
fn a_read_or_write_that_does_a_part_is_gone_on_with_and_nobody_notices() {
    every_call_fails(Fault::Short);
}

// case 21
#[test]
fn a_device_that_turns_read_only_at_any_call_is_named_and_writing_resumes() {
    every_call_fails(Fault::ReadOnly);
}

// case 15
#[test]
fn a_lack_of_descriptors_at_any_call_is_named_and_writing_resumes() {
    every_call_fails(Fault::Handles(1));
    every_call_fails(Fault::Handles(20));
}

// case 22
#[test]
fn a_device_that_vanishes_at_any_call_and_comes_back_loses_nothing() {
    every_call_fails(Fault::Vanish);
}

// cases 2, 9, 10, 13 and 19
#[test]
fn a_power_failure_at_any_call_and_again_in_the_recovery_leaves_a_prefix() {
    assert!(every_call_crashes(Down::Power) > 1000);
}

// cases 1 and 19
#[test]
fn the_death_of_the_process_at_any_call_and_again_in_the_recovery_loses_nothing() {
    assert!(every_call_crashes(Down::Kill) > 1000);
}

// cases 4, 11 and 12
#[test]
fn a_bit_flipped_on_the_way_at_any_call_is_reported_or_deceives_nobody() {
    every_call_fails(Fault::FlipRead);
    every_call_fails(Fault::FlipWrite);
}

// case 12
#[test]
fn a_misdirected_read_or_write_at_any_call_is_reported_or_deceives_nobody() {
    every_call_fails(Fault::MisdirectRead);
    every_call_fails(Fault::MisdirectWrite);
}
