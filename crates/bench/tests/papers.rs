//! `thermocline-bench papers`: the list, wrong arguments, and the smallest run of
//! each kind of figure, on plain directories.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn papers(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline-bench"));
    command.arg("papers").args(arguments);
    // A rig that is up is somebody's.
    command.env("THERMOCLINE_BENCH_RIG", "no-such-rig");
    command.output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The message of a call that ends with `code`.
fn fails(code: i32, arguments: &[&str]) -> String {
    let output = papers(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert!(!message.contains("panicked"), "{message}");
    message
}

/// Runs a figure as small as can be; what it printed, and its line of JSON.
fn tiny(name: &str) -> (String, Value) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (fast, slow, json) = (path("fast"), path("slow"), path("numbers.json"));
    let small = ["--scale", "1000000000", "--seconds", "0.3", "--json", &json];
    let places = ["--", "--fast", &fast, "--slow", &slow];
    let output = papers(&[&[name][..], &small, &places].concat());
    let message = text(&output.stderr);
    assert!(output.status.success(), "{name}: {message}");
    let line = std::fs::read_to_string(&json).unwrap();
    assert_eq!(line.lines().count(), 1);
    // Nothing is left of the stores.
    for tier in [&fast, &slow] {
        assert_eq!(std::fs::read_dir(Path::new(tier)).unwrap().count(), 0);
    }
    (text(&output.stdout), serde_json::from_str(&line).unwrap())
}

#[test]
fn the_list_names_every_figure_and_what_it_waits_for() {
    let output = papers(&[]);
    assert!(output.status.success());
    let list = text(&output.stdout);
    for name in [
        "logstore-fig-6",
        "logstore-table-5",
        "mutant-fig-10",
        "ohdb-table-1",
        "ohdb-table-2-hdd",
        "ohdb-fig-5",
        "nova-8.2.1",
    ] {
        assert!(list.contains(name), "{list}");
    }
    let line = |name: &str| {
        let mut lines = list.lines().filter(|line| line.starts_with(name));
        lines.next().unwrap().to_owned()
    };
    assert!(line("hyperdb-fig-11").contains("needs the preset hyperdb"));
    assert!(line("hyperdb-fig-9").contains("; the rest runs"));
    assert!(!line("ohdb-table-2-hdd").contains("needs"));
    assert!(list.contains("[not repeated of it: RocksDB-tuned: tuned by trial"));
    assert!(list.contains("[not repeated of it: LevelDB 2 MB: "));
    assert!(!line("mutant-fig-10").contains("needs"));
    assert!(line("mutant-fig-12").contains("not published"));
}

#[test]
fn wrong_arguments_are_said_in_words() {
    assert!(fails(2, &["fig-99"]).contains("not in the list"));
    assert!(fails(2, &["mutant-fig-10", "--scale", "0"]).contains("scale"));
    assert!(fails(2, &["mutant-fig-10", "--scale", "x"]).contains("scale"));
    assert!(fails(2, &["mutant-fig-10", "--seconds", "nan"]).contains("seconds"));
    assert!(fails(2, &["mutant-fig-15", "--", "--no-such"]).contains("--no-such"));
    let few = [
        "mutant-fig-15",
        "--scale",
        "1000000000",
        "--",
        "--clients=0",
    ];
    assert!(fails(2, &few).contains("clients"));
}

#[test]
fn a_figure_without_its_preset_says_so() {
    assert!(
        fails(1, &["hyperdb-fig-11"]).contains("needs the preset hyperdb, which does not exist")
    );
    assert!(fails(1, &["mutant-fig-12"]).contains("not published"));
}

/// So many rows say which share of the time a writer waited, the first of them of what begins like
/// `of`, and they are the last.
fn waits(object: &Value, of: &str, count: usize) {
    let rows = object["rows"].as_array().unwrap();
    let what = |row: &Value| row["what"].as_str().unwrap().to_owned();
    let begin = "share of the time a writer waited, ";
    let is_wait = |row: &&Value| what(row).starts_with(begin);
    assert_eq!(rows.iter().filter(is_wait).count(), count, "{object}");
    let waits = &rows[rows.len() - count..];
    assert!(
        what(&waits[0]).starts_with(&format!("{begin}{of}")),
        "{object}"
    );
    for row in waits {
        let ours = row["ours"].as_f64().unwrap();
        assert!(ours >= 0.0, "{object}");
    }
}

#[test]
fn lines_of_compare_give_ratios_beside_the_papers() {
    let (shown, object) = tiny("mutant-fig-15");
    assert!(shown.contains("Plain directories"), "{shown}");
    assert!(shown.contains("a plot"), "{shown}");
    assert_eq!(object["emulated"], false);
    let row = &object["rows"][0];
    assert!(row["ours"].as_f64().unwrap() > 0.0, "{object}");
    assert_eq!(row["paper"], "plot");
    waits(&object, "ycsb-d: leveled/all-slow", 2);
}

#[test]
fn what_exists_of_a_figure_runs_and_the_rest_is_named() {
    let (shown, object) = tiny("hyperdb-fig-9");
    let rows = object["rows"].as_array().unwrap();
    let lacking = rows[1]["lacking"].as_str().unwrap();
    assert!(lacking.contains("needs the preset hyperdb"), "{shown}");
    assert!(rows[1]["ours"].is_null());
    assert!(rows[0]["ours"].as_f64().unwrap() > 0.0, "{shown}");
}

#[test]
fn the_four_systems_of_ohdb_are_all_there_in_table_2() {
    for table in ["ohdb-table-2-hdd", "ohdb-table-2-ssd"] {
        let (shown, object) = tiny(table);
        let rows = object["rows"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["lacking"].is_null()), "{shown}");
        // And which share of the time a writer waited, of each system that wrote.
        assert_eq!(rows.len(), 8 * 5, "{shown}");
        for row in &rows[7 * 5..] {
            assert!(row["ours"].as_f64().unwrap() >= 0.0, "{shown}");
            assert!(
                row["what"]
                    .as_str()
                    .unwrap()
                    .starts_with("share of the time")
            );
        }
        // Rates of writes and reads.
        for row in &rows[..10] {
            assert!(row["ours"].as_f64().unwrap() > 0.0, "{shown}");
        }
        assert!(shown.contains("OHDB-2DC over it"), "{shown}");
    }
}

#[test]
fn a_peer_that_is_not_in_the_build_is_named() {
    if cfg!(all(feature = "leveldb", feature = "rocksdb")) {
        return;
    }
    let (shown, object) = tiny("nova-table-3");
    assert!(shown.contains("which is not in this build"), "{shown}");
    let rows = object["rows"].as_array().unwrap();
    assert!(rows[0]["ours"].as_f64().unwrap() > 0.0, "{shown}");
}

#[test]
fn a_target_that_changes_gives_prices_and_moves() {
    let (shown, object) = tiny("mutant-fig-10");
    assert!(shown.contains("price over target, target 0.2"), "{shown}");
    let rows = object["rows"].as_array().unwrap();
    let price = rows[0]["ours"].as_f64().unwrap();
    assert!(price > 0.0 && price < 2.0, "{object}");
    waits(&object, "resistance 0.05", 1);
    let moved = rows.iter().find(|row| row["place"] == "5.2.1").unwrap();
    assert!((moved["paper"]["number"].as_f64().unwrap() - 2.5 / 4.5).abs() < 1e-12);
}

#[test]
fn a_prediction_wants_devices_that_are_known() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (fast, slow) = (path("fast"), path("slow"));
    let message = fails(
        1,
        &["logstore-table-4", "--", "--fast", &fast, "--slow", &slow],
    );
    assert!(message.contains("tiers up"), "{message}");
}

#[test]
fn the_balance_of_parts_is_there_for_each_number_of_them() {
    let (shown, object) = tiny("nova-8.2.1");
    let rows = object["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 24 + 6, "{shown}");
    waits(&object, "2 parts, uniform", 6);
    assert!(shown.contains("64 parts, imbalance, Zipfian"), "{shown}");
    assert_eq!(rows[0]["paper"], "similar");
    assert_eq!(rows[16]["paper"]["number"], 2.86e-4);
    assert!(rows[21]["what"].as_str().unwrap().contains("major"));
}
