//! Every job says what it was predicted to cost and to gain, whoever asked for it.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use thermocline::{Db, EVENT_JOBS, Event, Options, Tier};

const KIB: u64 = 1 << 10;

fn key(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

/// Two tiers of which the first is too dear for all, without threads.
fn two_tiers(path: &Path) -> Db {
    let tier = |name: &str, price| Tier::new(name, path.join(name)).price_usd_gb_month(price);
    let options = Options::new()
        .tier(tier("fast", 0.5))
        .tier(tier("slow", 0.05))
        .preset("mutant")
        .cost_target_usd_per_gb_month(0.2)
        .write_buffer_bytes(512 * KIB)
        .memtable_bytes(32 * KIB)
        .table_bytes(32 * KIB)
        .background_threads(0);
    Db::open(options).unwrap()
}

/// One in which few keys are written and cuts move.
fn cut_and_folded(path: &Path) -> Vec<Event> {
    let options = Options::at(path)
        .preset("nova")
        .partitions(8)
        .recut_writes(50)
        .write_buffer_bytes(512 * KIB)
        .memtable_bytes(32 * KIB)
        .log_segment_bytes(64 * KIB)
        .fold_keys_max(100)
        .background_threads(0);
    let db = Db::open(options).unwrap();
    for n in 0..20_000 {
        db.put(&key(n * n % 331), &[7; 200]).unwrap();
    }
    for n in 0..20_000 {
        db.put(&key(n % 20), &[7; 200]).unwrap();
    }
    db.events(4096)
}

#[test]
fn every_job_there_is_says_bytes_cost_and_benefit() {
    let directory = tempfile::tempdir().unwrap();
    let db = two_tiers(&directory.path().join("two"));
    let mut load = db.bulk_load().unwrap();
    for n in 0..2000 {
        load.add(&key(n), &[7; 200]).unwrap();
    }
    load.finish().unwrap();
    db.settle().unwrap();
    for n in (0..4000).step_by(3) {
        db.put(&key(n), &[8; 200]).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
    // Behind all that there is, so that it is passed down.
    db.put(b"z", b"last").unwrap();
    db.compact_range(None, None).unwrap();
    db.set_cost_target(Some(0.1)).unwrap();
    db.settle().unwrap();
    let mut events = db.events(4096);
    events.extend(cut_and_folded(&directory.path().join("nova")));
    for job in EVENT_JOBS {
        let mut of = events.iter().filter(|e| e.job == job).peekable();
        match job {
            // Noted, and no jobs.
            "tune" | "heat" => assert!(of.all(|e| e.reason.predicted.is_none())),
            "flush" | "fold" | "merge" | "relocate" | "recut" | "load" => {
                assert!(of.peek().is_some(), "there was no {job}");
                of.for_each(says_all);
            }
            new => panic!("say here whether {new} is a job, and make one"),
        }
    }
    let on_demand = |job: &str| {
        let mut events = events.iter();
        events.any(|e| e.job == job && e.reason.rule == "on-demand")
    };
    assert!(on_demand("flush") && on_demand("merge"));
    // What its event told was predicted of those tables: nothing of it is rewritten.
    let passed = events
        .iter()
        .find(|e| e.what.ends_with("nothing rewritten"));
    let passed = passed.unwrap().reason.predicted.clone().unwrap();
    assert_eq!((passed.read_bytes, passed.written_bytes), (0, 0));
    assert!(passed.benefit("merge_device_seconds_saved").unwrap() > 0.0);
    // Those of a merge, to the byte: what it read, and no less than it wrote.
    let merged = events
        .iter()
        .filter(|e| e.job == "merge" && e.error.is_none());
    for event in merged.filter(|e| e.bytes_in > 0) {
        let predicted = event.reason.predicted.as_ref().unwrap();
        assert_eq!(predicted.read_bytes, event.bytes_in, "{event}");
        assert!(
            predicted.written_bytes >= event.bytes_in * 99 / 100,
            "{event}"
        );
    }
    // All of that outlives the store.
    let told = db.events(4096);
    db.close().unwrap();
    let db = two_tiers(&directory.path().join("two"));
    assert_eq!(db.events(4096)[..told.len()], told);
}

fn says_all(event: &Event) {
    let predicted = event.reason.predicted.as_ref();
    let predicted = predicted.unwrap_or_else(|| panic!("nothing predicted: {event}"));
    assert!(!predicted.benefits.is_empty(), "{event}");
    assert!(predicted.is_finite() && !predicted.device_seconds.is_empty());
    let told = event.to_string();
    for word in [
        "read_bytes",
        "written_bytes",
        "cost_device_seconds",
        "benefit: ",
    ] {
        assert!(told.contains(word), "{told}");
    }
    assert!(event.error.is_some() || told.ends_with(" us"), "{told}");
}
