#![no_main]

use libfuzzer_sys::fuzz_target;
use thermocline_sim::harness::decode::target;

fuzz_target!(|bytes: &[u8]| (target("events").run)(bytes));
