//! Crash safety on a simulated disk; see `thermocline_sim::harness::crash`.

use thermocline_sim::disk::Down;
use thermocline_sim::harness::crash::{ALL_SHAPES, crash_cycles};

#[test]
fn power_failures_leave_a_prefix_with_everything_durable() {
    for (i, shape) in ALL_SHAPES.into_iter().enumerate() {
        crash_cycles(1000 * (i as u64 + 1), shape, 300, &[Down::Power]);
    }
}

#[test]
fn the_death_of_the_process_loses_nothing_acknowledged() {
    for (i, shape) in ALL_SHAPES.into_iter().enumerate() {
        crash_cycles(10_000 * (i as u64 + 1), shape, 150, &[Down::Kill]);
    }
}

#[test]
fn both_kinds_of_crash_in_turn_leave_a_prefix() {
    for (i, shape) in ALL_SHAPES.into_iter().enumerate() {
        crash_cycles(
            100_000 * (i as u64 + 1),
            shape,
            150,
            &[Down::Power, Down::Kill],
        );
    }
}
