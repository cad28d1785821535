//! `thermocline demo`, `replay` and `calibrate`.

mod common;

use std::io::Write;

use common::{Scratch, exits, files, json, json_lines, run, text};

/// A trace of `count` accesses to few keys, some more often than others.
fn keys(count: u32) -> Vec<u8> {
    let mut trace = Vec::new();
    for i in 0..count {
        writeln!(trace, "{}", (i * i) % 97).expect("a Vec takes it");
    }
    trace
}

#[test]
fn the_demo_tells_of_price_heat_and_moves_and_leaves_only_its_page() {
    let scratch = Scratch::new();
    let (dir, page) = (scratch.path("dir"), scratch.path("demo.html"));
    std::fs::create_dir(&dir).unwrap();
    let small = [
        "--records",
        "3000",
        "--seconds",
        "4",
        "--scratch",
        &dir,
        "--html",
        &page,
    ];
    let shown = exits(0, &[&["demo"][..], &small].concat());
    for expected in [
        "what it may cost is 0.4",
        "what it may cost is 0.2",
        "what it may cost is 0.3",
        "other records are the hot ones",
        "the dry run had said",
        "USD per GB and month",
        "Mean time of a read",
        "because:",
        "0 were wrong",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("Bytes moved"));
    assert!(!html.contains("http://") && !html.contains("<script"));
    let object = json(&[&["demo", "--json"][..], &small].concat());
    assert_eq!(object["wrong"], 0);
    assert_eq!(object["phases"].as_array().unwrap().len(), 4);
    assert!(object["phases"][1]["forecast"]["moved_tables"].is_u64());
    assert_eq!(files(dir.as_ref()).len(), 0, "nothing is left behind");
    // A page that cannot be written is said, and no more than that.
    let nowhere = scratch.path("none/demo.html");
    let small = [&["demo"][..], &small[..6], &["--html", &nowhere]].concat();
    assert!(exits(0, &small).contains("was not written"));
    exits(2, &["demo", "--seconds", "0"]);
    exits(2, &["demo", "--records", "1"]);
}

#[test]
fn a_replay_checks_every_value_and_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let trace = scratch.file("a.keys", &keys(5000));
    let dir = scratch.path("scratch");
    std::fs::create_dir(&dir).unwrap();
    for threads in ["1", "3"] {
        let settings = ["--scratch", &dir, "--threads", threads, "--window", "1000"];
        let lines = json_lines(&[&["replay", "--json", &trace][..], &settings].concat());
        assert_eq!(lines[0]["type"], "trace");
        let windows = lines.iter().filter(|line| line["type"] == "window");
        assert_eq!(windows.count(), 5);
        let summary = lines.last().unwrap();
        assert_eq!(summary["reads"]["count"], 5000);
        assert_eq!(summary["found"], 5000);
        assert_eq!(summary["wrong"], 0);
        let tiers = summary["served"]["tiers"].as_object().unwrap();
        assert_eq!(tiers.len(), 2);
    }
    assert_eq!(files(dir.as_ref()).len(), 0);
    let table = exits(0, &["replay", &trace, "--limit", "100", "--window", "10s"]);
    assert!(table.contains("100 accesses to"), "{table}");
}

#[test]
fn a_replay_keeps_to_a_target_and_shows_price_and_share() {
    let scratch = Scratch::new();
    let (dir, trace) = (scratch.path("dir"), scratch.file("t.keys", &keys(20_000)));
    std::fs::create_dir(&dir).unwrap();
    let budget = ["--preset", "mutant", "--cost-target", "0.1"];
    let replay = [&["replay", &trace, "--scratch", &dir][..], &budget].concat();
    let lines = json_lines(&[&replay[..], &["--json"]].concat());
    let windows: Vec<_> = lines.iter().filter(|l| l["type"] == "window").collect();
    for window in &windows {
        assert_eq!(window["target_usd_gb_month"], 0.1);
        assert!(window["fast_share"].is_number() && window["price_usd_gb_month"].is_number());
    }
    assert!(exits(0, &replay).contains("USD/GB"));
    exits(
        2,
        &["replay", &trace, "--scratch", &dir, "--cost-target", "0.1"],
    );
    exits(
        2,
        &["replay", &trace, "--scratch", &dir, "--preset", "best"],
    );
    assert_eq!(files(dir.as_ref()).len(), 0);
}

/// They were passed over without a word: a store that was named was taken for one of the preset
/// asked for.
#[test]
fn what_a_temporary_store_is_to_be_like_is_refused_beside_the_name_of_another() {
    let scratch = Scratch::new();
    let (dir, trace) = (scratch.path("db"), scratch.file("t.keys", &keys(10)));
    let tier = format!("fast={dir}");
    for own in [
        ["--preset", "mutant"],
        ["--cost-target", "0.1"],
        ["--fast-share", "5%"],
        ["--fast-bytes", "5MiB"],
        ["--cache", "1MiB"],
        ["--scratch", "."],
    ] {
        for named in [["--db", &dir], ["--tier", &tier], ["--options", "o.toml"]] {
            let output = run(&[&["replay", &trace][..], &named, &own].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{named:?} {own:?}: {said}");
            assert!(said.contains(own[0]) && said.contains(named[0]), "{said}");
        }
    }
    assert!(!std::path::Path::new(&dir).exists());
}

#[test]
fn the_reads_of_a_replay_are_all_accounted_for() {
    let scratch = Scratch::new();
    let trace = scratch.file("a.keys", &keys(4000));
    let lines = json_lines(&["replay", "--json", &trace]);
    let served = &lines.last().unwrap()["served"];
    let tiers = served["tiers"].as_object().unwrap().values();
    let sum = served["memtable"].as_u64().unwrap()
        + served["cache"].as_u64().unwrap()
        + tiers.map(|n| n.as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum, 4000);
}

#[test]
fn twitter_traces_read_write_and_delete() {
    let scratch = Scratch::new();
    let mut trace = Vec::new();
    for i in 0..600 {
        let operation = ["get", "set", "gets", "delete", "add", "incr"][i % 6];
        let size = i % 50;
        writeln!(trace, "{i},key{},4,{size},1,{operation},0", i % 7).unwrap();
    }
    trace.extend_from_slice(b"not a line\n");
    let trace = zstd::encode_all(&trace[..], 1).unwrap();
    let file = scratch.file("t.csv.zst", &trace);
    let output = run(&["replay", "--json", &file, "--threads", "2"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains(":601:"));
    let last = text(&output.stdout).lines().last().unwrap().to_owned();
    let summary: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(summary["reads"]["count"], 300, "an incr reads too");
    assert_eq!(summary["writes"]["count"], 400, "an incr writes too");
    assert_eq!(summary["wrong"], 0);
}

#[test]
fn arc_traces_take_one_access_a_line() {
    let scratch = Scratch::new();
    let file = scratch.file("t.lis", b"1 1 0 0\n2 4 0 1\n1 1 0 2\n");
    let lines = json_lines(&["replay", "--json", &file, "--value-bytes", "4KiB"]);
    assert_eq!(lines[0]["accesses"], 3);
    assert_eq!(lines[0]["keys"], 2);
    assert!(lines[0]["data_bytes"].as_u64().unwrap() >= 8192);
}

#[test]
fn a_wrong_value_is_found_with_4() {
    let scratch = Scratch::new();
    let trace = scratch.file("a.keys", b"a\nb\na\n");
    let db = scratch.path("db");
    exits(0, &["replay", "--db", &db, &trace]);
    exits(0, &["replay", "--db", &db, "--filled", &trace]);
    exits(0, &["put", "--db", &db, "a", "something else"]);
    exits(4, &["replay", "--db", &db, "--filled", &trace]);
}

#[test]
fn a_trace_without_accesses_or_format_is_refused() {
    let scratch = Scratch::new();
    let empty = scratch.file("a.keys", b"");
    exits(2, &["replay", &empty]);
    let unknown = scratch.file("a.bin", b"x\n");
    exits(2, &["replay", &unknown]);
    exits(3, &["replay", "absent.keys"]);
}

#[test]
fn calibrate_writes_a_profile_and_removes_its_file() {
    let scratch = Scratch::new();
    let dir = scratch.path("");
    let short = ["--file-bytes", "4MiB", "--seconds", "0.05"];
    let shown = exits(0, &[&["calibrate", &dir][..], &short].concat());
    assert!(shown.contains("[profile]"), "{shown}");
    let left = files(dir.as_ref());
    assert_eq!(left.len(), 1);
    let written = std::fs::read_to_string(&left[0]).unwrap();
    assert!(written.contains("random_read_iops = "), "{written}");
    let flags = ["--json", "--output", "-"];
    let object = json(&[&["calibrate", &dir][..], &short, &flags].concat());
    assert!(object["profile"]["sequential_mb_s"].as_f64().unwrap() > 0.0);
    assert_eq!(files(dir.as_ref()).len(), 1);
    exits(2, &["calibrate", &dir, "--file-bytes", "1"]);
    exits(3, &["calibrate", &scratch.path("absent")]);
}

#[cfg(unix)]
#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let dir = scratch.path("");
    let large = ["--records", "4000000", "--scratch", &dir];
    let mut child = common::start(&[&["demo"][..], &large].concat());
    let began = std::time::Instant::now();
    while std::fs::read_dir(&dir).unwrap().count() == 0 {
        assert!(began.elapsed().as_secs() < 30);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // The handler stands a moment after the directory does.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}
