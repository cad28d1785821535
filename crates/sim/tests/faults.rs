//! A fault at every call; see `thermocline_sim::harness::faults`.

use thermocline_sim::disk::Fault;
use thermocline_sim::harness::faults::enumerate;

#[test]
fn an_io_error_at_any_call_is_named_and_loses_nothing() {
    enumerate(Fault::Io, 1);
}

#[test]
fn a_device_that_is_full_for_a_moment_is_named_and_writing_resumes() {
    enumerate(Fault::Full(1), 1);
}

#[test]
fn a_device_that_is_full_for_long_is_named_and_writing_resumes() {
    enumerate(Fault::Full(200), 1);
}

#[test]
fn a_sync_that_fails_once_is_final() {
    enumerate(Fault::Sync, 1);
}
