//! Every decoder over the committed corpus and over mutations of it; see
//! `thermocline_sim::harness::decode`. The long run is in `fuzz/README.md`.
//!
//! `THERMOCLINE_WRITE_CORPUS=1` writes the corpus anew, from real stores.
//! `THERMOCLINE_MUTATIONS=n` makes n mutations of every input.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fs;
use std::path::PathBuf;

use thermocline_sim::harness::decode::{Target, mutate, run, target};
use thermocline_sim::{Dice, Tally};

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let directory = corpus.join(target.name);
    if std::env::var_os("THERMOCLINE_WRITE_CORPUS").is_some() {
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        for (index, seed) in (target.seeds)().iter().enumerate() {
            fs::write(directory.join(format!("{index:02}")), seed).unwrap();
        }
    }
    let entries = fs::read_dir(&directory).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    let inputs: Vec<Vec<u8>> = paths.iter().map(|p| fs::read(p).unwrap()).collect();
    assert!(!inputs.is_empty(), "{}", target.name);
    inputs
}

fn decode(name: &str) {
    let mutations = std::env::var("THERMOCLINE_MUTATIONS");
    let mutations: u32 = mutations.map_or(150, |n| n.parse().unwrap());
    let target = target(name);
    for (index, input) in corpus(target).iter().enumerate() {
        (target.run)(input);
        println!("seed {index}");
        let mut dice = Dice(index as u64);
        for _ in 0..mutations {
            (target.run)(&mutate(input, &mut dice));
        }
    }
}

#[test]
fn any_file_is_dumped() {
    decode("dump");
}

#[test]
fn any_log_segment_is_replayed_or_refused() {
    decode("log");
}

#[test]
fn any_manifest_is_read_or_refused() {
    decode("manifest");
}

#[test]
fn any_table_meta_is_read_or_refused() {
    decode("meta");
}

#[test]
fn any_block_is_read_or_refused() {
    decode("block");
}

#[test]
fn any_tier_identity_is_read_or_refused() {
    decode("tier");
}

#[test]
fn any_pointer_is_read_or_refused() {
    decode("current");
}

#[test]
fn any_edit_is_applied_or_refused() {
    decode("edit");
}

#[test]
fn any_options_are_read_or_refused() {
    decode("options");
}

#[test]
fn any_heat_is_read_or_passed_over() {
    decode("heat");
}

#[test]
fn any_record_of_events_is_read_or_passed_over() {
    decode("events");
}

#[test]
fn any_request_for_a_target_is_answered_and_any_answer_is_read() {
    decode("tune");
    decode("tuned");
}

#[test]
fn any_mark_of_a_repair_is_heeded_or_passed_over() {
    decode("mark");
}

#[test]
fn any_operations_answer_as_a_map_does() {
    decode("operations");
}

#[test]
fn drawn_inputs_of_drawn_decoders_are_read_or_refused() {
    let mut tally = Tally::default();
    for seed in 0..20 {
        run(seed, &mut tally);
    }
    println!("{tally}");
}
