//! `thermocline load`.

mod common;

use std::io::Write;
use std::time::Duration;

use common::{Scratch, exits, json, rows, run, run_with_input, start, text};

fn count(db: &str, keyspace: &str) -> u64 {
    let arguments = [
        "scan",
        "--db",
        db,
        "--keyspace",
        keyspace,
        "--count",
        "--json",
    ];
    json(&arguments)["entries"]
        .as_u64()
        .expect("a count is a number")
}

#[test]
fn every_format_is_loaded_plain_and_compressed() {
    let scratch = Scratch::new();
    let csv = b"id,name\n1,\"Ada, L.\"\n2,Bob\n";
    let tsv = b"id\tname\n1\tAda\n2\tBob\n";
    let jsonl = b"{\"id\":\"1\",\"n\":1}\n{\"id\":2}\n";
    let deb = b"Package: 1\nVersion: 7\n\nPackage: 2\nVersion: 8\n";
    let cases: [(&str, &[u8], &str, &str); 4] = [
        ("a.csv", csv, "id", "1,\"Ada, L.\""),
        ("a.tsv", tsv, "1", "1\\tAda"),
        ("a.jsonl", jsonl, "id", "{\"id\":\"1\",\"n\":1}"),
        ("x_Packages", deb, "package", "Package: 1\\nVersion: 7"),
    ];
    for (name, content, key, value) in cases {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(content).unwrap();
        let gzip = gzip.finish().unwrap();
        let zstandard = zstd::encode_all(content, 1).unwrap();
        for (suffix, bytes) in [("", content), (".gz", &gzip), (".zst", &zstandard)] {
            let db = scratch.path(&format!("db-{name}{suffix}"));
            let file = scratch.file(&format!("{name}{suffix}"), bytes);
            let done = json(&["load", "--db", &db, &file, "--key", key, "--json"]);
            assert_eq!(done["records"], 2, "{file}");
            assert_eq!(done["bad_records"], 0, "{file}");
            assert_eq!(exits(0, &["get", "--db", &db, "1"]).trim_end(), value);
            exits(0, &["get", "--db", &db, "2"]);
        }
    }
}

#[test]
fn the_last_of_equal_keys_wins_within_and_over_chunks() {
    for sort_memory in ["1", "200", "1MiB"] {
        let scratch = Scratch::new();
        let db = scratch.path("db");
        let mut input = String::new();
        for round in 0..5 {
            for key in 0..20 {
                input += &format!("k{key},{round}\n");
            }
        }
        let file = scratch.file("a.csv", input.as_bytes());
        let fields = ["--no-header", "--key", "1", "--value", "2"];
        let settings = ["--sort-memory", sort_memory];
        let arguments = [&["load", "--db", &db, &file][..], &fields, &settings].concat();
        exits(0, &arguments);
        let scan = exits(0, &["scan", "--db", &db]);
        assert_eq!(scan.lines().count(), 20);
        assert!(scan.lines().all(|line| line.ends_with("\t4")), "{scan}");
    }
}

#[test]
fn bad_records_are_named_by_line_and_stop_a_strict_load() {
    let scratch = Scratch::new();
    let db = scratch.path("db");
    let file = scratch.file("a.csv", b"id,v\n1,a\n,b\n\"2\"x,c\n3,d\n");
    let output = run(&["load", "--db", &db, &file, "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let errors = text(&output.stderr);
    assert!(
        errors.contains("a.csv:3:") && errors.contains("a.csv:4:"),
        "{errors}"
    );
    assert_eq!(count(&db, "default"), 2);
    let output = run(&["load", "--db", &db, &file, "--strict"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("a.csv:3:"));
}

#[test]
fn a_record_without_end_is_bounded() {
    let scratch = Scratch::new();
    let db = scratch.path("db");
    let mut input = b"1,a\n".to_vec();
    input.extend(std::iter::repeat_n(b'x', 3 << 20));
    input.extend_from_slice(b"\n2,b\n");
    let flags = [
        "--no-header",
        "--format",
        "csv",
        "--record-bytes-max",
        "64KiB",
    ];
    let arguments = [&["load", "--db", &db, "-"][..], &flags].concat();
    let output = run_with_input(&arguments, &input);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("standard input:2:"));
    assert_eq!(count(&db, "default"), 2);
}

#[test]
fn input_that_is_damaged_or_not_understood_is_an_error() {
    let scratch = Scratch::new();
    let db = scratch.path("db");
    let mut zstandard = zstd::encode_all(&rows(1000)[..], 1).unwrap();
    zstandard.truncate(zstandard.len() / 2);
    let torn = scratch.file("torn.csv.zst", &zstandard);
    exits(3, &["load", "--db", &db, &torn]);
    let xz = scratch.file("a.csv", b"\xfd7zXZ\0rest");
    exits(2, &["load", "--db", &db, &xz]);
    let header = scratch.file("b.csv", b"id,v\n1,2\n");
    exits(2, &["load", "--db", &db, &header, "--key", "nope"]);
}

#[test]
fn a_stopped_load_goes_on_behind_its_last_chunk() {
    let scratch = Scratch::new();
    let db = scratch.path("db");
    let mut input = rows(1000);
    input.extend_from_slice(b",bad\n");
    input.extend_from_slice(b"tail,1\n");
    let file = scratch.file("a.csv", &input);
    let load = [
        "load",
        "--db",
        &db,
        &file,
        "--no-header",
        "--sort-memory",
        "8KiB",
    ];
    exits(1, &[&load[..], &["--strict"]].concat());
    let kept = count(&db, "default");
    assert!((500..1000).contains(&kept), "{kept}");
    assert_eq!(count(&db, "_load"), 1);
    let done = json(&[&load[..], &["--json"]].concat());
    assert_eq!(done["resumed_at_line"], kept + 1);
    assert_eq!(count(&db, "default"), 1001);
    assert_eq!(count(&db, "_load"), 0);
    let again = json(&[&load[..], &["--json"]].concat());
    assert_eq!(again["records"], 1001, "a finished load starts over");
}

#[test]
fn a_changed_file_or_another_setting_starts_over() {
    let scratch = Scratch::new();
    let db = scratch.path("db");
    let mut input = rows(1000);
    input.extend_from_slice(b",bad\n");
    let file = scratch.file("a.csv", &input);
    let load = [
        "load",
        "--db",
        &db,
        &file,
        "--no-header",
        "--sort-memory",
        "8KiB",
    ];
    exits(1, &[&load[..], &["--strict"]].concat());
    let other = json(&[&load[..], &["--json", "--key", "2"]].concat());
    assert!(other["resumed_at_line"].is_null());
    exits(1, &[&load[..], &["--strict"]].concat());
    let over = json(&[&load[..], &["--json", "--restart"]].concat());
    assert!(over["resumed_at_line"].is_null());
    assert_eq!(over["records"], 1000);
}

#[test]
fn a_killed_load_is_completed_by_the_same_command() {
    const ROWS: u32 = 20_000;
    let scratch = Scratch::new();
    for compressed in [false, true] {
        let db = scratch.path(&format!("db{compressed}"));
        let mut input = rows(ROWS);
        if compressed {
            input = zstd::encode_all(&input[..], 1).unwrap();
        }
        let file = scratch.file(&format!("a{compressed}.csv"), &input);
        let load = [
            "load",
            "--db",
            &db,
            &file,
            "--no-header",
            "--sort-memory",
            "32KiB",
        ];
        for delay_ms in [10, 30, 60, 100] {
            let mut child = start(&load);
            std::thread::sleep(Duration::from_millis(delay_ms));
            let _ = child.kill();
            child.wait().unwrap();
        }
        exits(0, &load);
        assert_eq!(count(&db, "default"), u64::from(ROWS));
        assert_eq!(count(&db, "_load"), 0);
    }
}
