//! `stat` of a store that a process has open: this one.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::{Scratch, exits, json};
use thermocline::{Db, Options};

/// A store of three parts, in use: most was written to the first.
fn in_use(db: &str) -> Db {
    let cuts = vec![b"m".to_vec(), b"x".to_vec()];
    let db = Db::open(Options::at(db).cuts(cuts).heat_epoch_ms(10)).unwrap();
    for n in 0..90u32 {
        db.put(format!("a{n}").as_bytes(), &[7; 100]).unwrap();
    }
    for n in 0..10u32 {
        db.put(format!("n{n}").as_bytes(), &[7; 100]).unwrap();
    }
    db.flush().unwrap();
    db.put(b"a1", b"once more").unwrap();
    db.get(b"a1").unwrap();
    db.get(b"a2").unwrap();
    db
}

// It had ended with code 5; and with --read-only, which was recommended, it showed memtables that
// it had made of the log for itself, no shares and no counts.
#[test]
fn stat_shows_the_parts_and_counts_of_the_process_that_has_the_store_open() {
    let scratch = Scratch::new();
    let path = scratch.path("db");
    let db = in_use(&path);
    let printed = exits(0, &["stat", "--db", &path, "--tables"]);
    let (first, rest) = printed.split_once('\n').unwrap();
    assert_eq!(first, "from the process that has the store open");
    assert!(rest.contains("writes 101 ("), "{rest}");
    assert!(rest.contains("3 active, 0 sealed"), "{rest}");
    let found = json(&["stat", "--db", &path, "--tables", "--json"]);
    assert_eq!(
        (&found["running"], found.get("unanswered")),
        (&true.into(), None)
    );
    let (told, called) = (&found["stats"], db.stats());
    assert_eq!(told["memtable_hits"], 1);
    let parts = &told["keyspaces"][0]["part_list"];
    for (at, part) in called.keyspaces[0].part_list.iter().enumerate() {
        let share = parts[at]["write_share"].as_f64();
        assert_eq!(
            (&parts[at]["start"], share),
            (&part.start.as_str().into(), part.write_share)
        );
    }
    let hits = found["tables"].as_array().unwrap().iter();
    assert_eq!(hits.map(|t| t["hits"].as_u64().unwrap()).sum::<u64>(), 1);
    // As its files have it.
    let files = json(&["stat", "--db", &path, "--read-only", "--json"]);
    assert_eq!(
        (&files["running"], &files["stats"]["writes"]),
        (&false.into(), &0.into())
    );
    db.close().unwrap();
    let files = json(&["stat", "--db", &path, "--json"]);
    assert_eq!(
        (&files["running"], files.get("unanswered")),
        (&false.into(), None)
    );
    let printed = exits(0, &["stat", "--db", &path]);
    assert!(printed.starts_with("tier "), "{printed}");
}

#[test]
fn a_process_that_does_not_answer_is_told_of_above_what_the_files_say() {
    let scratch = Scratch::new();
    let path = scratch.path("db");
    // Nobody looks for requests.
    let db = Db::open(Options::at(&path).background_threads(0)).unwrap();
    db.put(b"key", b"value").unwrap();
    let printed = exits(0, &["stat", "--db", &path, "--wait", "0"]);
    let (first, rest) = printed.split_once('\n').unwrap();
    assert!(
        first.starts_with("from the files of the store: ") && first.contains("did not answer"),
        "{first}"
    );
    assert!(rest.contains("writes 0 ("), "{rest}");
    let found = json(&["stat", "--db", &path, "--wait", "0", "--json"]);
    assert_eq!(found["running"], false);
    assert!(
        found["unanswered"]
            .as_str()
            .unwrap()
            .contains("did not answer")
    );
}

// It waited for ten seconds, and then read the files with the excuse that it had no answer.
#[test]
fn a_process_that_closes_the_store_when_asked_is_not_waited_for() {
    let scratch = Scratch::new();
    let path = scratch.path("db");
    let asked = format!("{path}/TUNE");
    for what in [
        &["stat", "--json", "--wait", "3600"][..],
        &["stat", "--watch", "--lines", "1", "--wait", "3600"],
        &["explain", "key"],
    ] {
        // Nobody looks for requests.
        let db = Db::open(Options::at(&path).background_threads(0)).unwrap();
        db.put(b"key", b"value").unwrap();
        let closing = std::thread::spawn({
            let asked = asked.clone();
            move || {
                let is_there = |_| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    std::fs::exists(&asked).unwrap()
                };
                assert!((0..60_000).any(is_there));
                drop(db);
            }
        });
        let printed = exits(0, &[what, &["--db", &path]].concat());
        closing.join().unwrap();
        assert!(!printed.contains("did not answer"), "{printed}");
        assert!(!std::fs::exists(&asked).unwrap());
    }
}

#[test]
fn watching_shows_the_parts_of_a_store_that_has_several() {
    let scratch = Scratch::new();
    let (path, plain) = (scratch.path("db"), scratch.path("plain"));
    let db = in_use(&path);
    let printed = exits(0, &["stat", "--db", &path, "--watch", "--lines", "1"]);
    let line = printed.lines().last().unwrap();
    let parts = db.pulse().parts;
    let percent = |share: Option<f64>| format!("{:.2}%", 100.0 * share.unwrap());
    let said = format!(
        "  3 parts: 0.00% to {} of writes each, deviation {}; memtables 3 active, 0 sealed; 0 duplicates; cuts moved 0 times",
        percent(parts.write_share_max),
        percent(parts.imbalance)
    );
    assert_eq!(line, said);
    assert!(parts.write_share_max.unwrap() > 0.8);
    let watched = json(&["stat", "--db", &path, "--watch", "--lines", "1", "--json"]);
    assert_eq!(watched["pulse"]["parts"]["parts"], 3);
    exits(0, &["put", "--db", &plain, "k", "v"]);
    let printed = exits(0, &["stat", "--db", &plain, "--watch", "--lines", "1"]);
    assert!(!printed.contains("parts"), "{printed}");
}

// It ended with an I/O error where the request could not be written: on a full disk, when one
// looks.
#[test]
fn stat_reads_the_files_where_nobody_can_be_asked() {
    let scratch = Scratch::new();
    let path = scratch.path("db");
    let db = in_use(&path);
    std::fs::create_dir(format!("{path}/TUNE.new")).unwrap();
    let found = json(&["stat", "--db", &path, "--json"]);
    assert_eq!(found["running"], false);
    let why = found["unanswered"].as_str().unwrap();
    assert!(why.contains("TUNE"), "{why}");
    db.close().unwrap();
}
