//! `thermocline-bench memory`: a small run, in text and in JSON.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use serde_json::Value;

// Rates stood there without the time in which writers had been made to wait for them.
#[test]
fn rows_that_write_say_how_long_a_writer_waited() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("lines.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline-bench"));
    // A buffer that is full after a tenth of the entries: writers have to wait for it.
    command.args(["memory", "--engines=thermocline", "--entries=100000"]);
    command.args(["--write-buffer-mib=1", "--value-bytes=400", "--threads=2"]);
    command.args(["--rows=randomwrites,readpresent,readwhilewriting"]);
    command.args(["--reads=2000", "--json", json.to_str().unwrap()]);
    command.arg("--directory").arg(directory.path());
    let output = command.output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    let (_, table) = shown
        .split_once("## Seconds that a writer waited for the engine, of those of the row\n")
        .unwrap();
    let table = table.split("\n## ").next().unwrap();
    assert!(
        table.contains("| random writes ") && table.contains(" of "),
        "{table}"
    );
    assert!(table.contains("| reads while writing "), "{table}");
    assert!(!table.contains("random reads"), "{table}");
    let lines = std::fs::read_to_string(&json).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let of = |row: &str| lines.iter().find(|line| line["row"] == row).unwrap();
    assert!(of("randomwrites")["stalled_seconds"].is_number());
    assert!(of("readpresent")["stalled_seconds"].is_null());
    assert!(of("readwhilewriting")["stalled_seconds"].is_number());
}
