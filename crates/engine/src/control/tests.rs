use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

use super::*;
use crate::{Db, Options, Tier, Tuned};

/// Longer than any of this takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A target that [`options`] can meet.
const TARGET: f64 = 0.2;

/// Asked by way of its first tier, whose directory is `directory`.
fn options(directory: &Path) -> Options {
    let tier = |name: &str, path: PathBuf, price| Tier::new(name, path).price_usd_gb_month(price);
    Options::new()
        .tier(tier("fast", directory.to_path_buf(), 0.5))
        .tier(tier("slow", directory.join("slow"), 0.05))
        .preset("mutant")
        .heat_epoch_ms(10)
}

/// Waits until `is_so`, but not for ever.
fn until(mut is_so: impl FnMut() -> bool) {
    let look = |_| {
        std::thread::sleep(Duration::from_millis(1));
        is_so()
    };
    assert!((0..60_000).any(look));
}

fn target(db: &Db) -> Option<f64> {
    db.stats().cost.target_usd_gb_month
}

/// A request for [`TARGET`], as somebody has left it.
fn left_behind(number: &str) -> String {
    let wanted = Wanted::Tune {
        cost_target_usd_per_gb_month: Some(TARGET),
    };
    Request::new(number, wanted).written().unwrap()
}

/// What is left of asking in `directory`.
fn left(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("TUNE")).collect();
    names.sort();
    names
}

/// A pipe, that whoever opens it waits for.
fn pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

// Two who asked at once pushed out each other's request, and overwrote each other's answer.
#[test]
fn all_who_ask_at_once_have_their_own_answers() {
    const ASKERS: usize = 8;
    const ROUNDS: usize = 3;
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let db = Db::open(options.clone()).unwrap();
    for asker in 0..ASKERS {
        db.put(format!("key {asker}").as_bytes(), b"value").unwrap();
    }
    let begin = Barrier::new(ASKERS);
    std::thread::scope(|scope| {
        for asker in 0..ASKERS {
            let (options, begin) = (&options, &begin);
            scope.spawn(move || {
                begin.wait();
                for round in 0..ROUNDS {
                    let key = format!("key {}", asker + ASKERS * (round % 2));
                    let space = crate::DEFAULT_KEYSPACE;
                    let told = crate::explain(options, space, key.as_bytes(), PATIENCE).unwrap();
                    let told = told.unwrap();
                    assert_eq!((told.key, told.found), (key, round % 2 == 0));
                }
            });
        }
    });
    assert_eq!(left(directory.path()), ["TUNE.lock", "TUNED"]);
}

// It took away whatever lay there.
#[test]
fn who_waits_no_longer_takes_away_its_own_request_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    // Nobody looks for requests but this test.
    let db = Db::open(options.clone().background_threads(0)).unwrap();
    let environment = Environment::real();
    let other = turn::Waiting::begin(&environment, directory.path()).unwrap();
    let text = left_behind(other.number());
    assert!(other.post(&text).unwrap());
    let error = crate::stats(&options, Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("no turn came"), "{error}");
    let request = directory.path().join(REQUEST_FILE);
    assert_eq!(std::fs::read_to_string(&request).unwrap(), text);
    other.withdraw();
    drop(other);
    assert_eq!(left(directory.path()), ["TUNE.lock"]);
    let error = crate::stats(&options, Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
    assert_eq!(left(directory.path()), ["TUNE.lock"]);
    drop(db);
}

// It was carried out by the next opening.
#[test]
fn a_request_from_before_the_opening_is_not_carried_out() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path()).background_threads(0);
    Db::open(options.clone()).unwrap().close().unwrap();
    let file = |name: &str| directory.path().join(name);
    // As who was killed leaves them: without and with its own file.
    for number in ["1", "00ff00ff00ff00ff"] {
        std::fs::write(file(REQUEST_FILE), left_behind(number)).unwrap();
        std::fs::write(file(TAKEN_FILE), left_behind(number)).unwrap();
        std::fs::write(file("TUNE.00ff00ff00ff00ff"), "").unwrap();
        std::fs::write(file("TUNE.00ff00ff00ff00fe"), "").unwrap();
        let db = Db::open(options.clone()).unwrap();
        assert_eq!(left(directory.path()), ["TUNE.lock"]);
        std::thread::sleep(Duration::from_millis(15));
        db.step().unwrap();
        assert_eq!(target(&db), None);
        assert!(!file(ANSWER_FILE).exists());
    }
}

#[test]
fn a_request_whose_asker_died_gives_way_to_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let db = Db::open(options.clone().background_threads(0)).unwrap();
    let request = directory.path().join(REQUEST_FILE);
    std::fs::write(&request, left_behind("00ff00ff00ff00ff")).unwrap();
    std::fs::write(directory.path().join("TUNE.00ff00ff00ff00ff"), "").unwrap();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| crate::pulse(&options, PATIENCE));
        until(|| {
            db.step().unwrap();
            asked.is_finished()
        });
        assert!(asked.join().unwrap().unwrap().is_some());
    });
    assert_eq!(target(&db), None);
    // The engine takes away what it was of, if it came first.
    assert!(!request.exists());
    drop(db);
    drop(Db::open(options).unwrap());
    assert_eq!(left(directory.path()), ["TUNE.lock", "TUNED"]);
}

// It waited for all of its patience, and said that the store is locked.
#[test]
fn who_asks_a_process_that_closes_the_store_does_itself_what_is_done_with_one_that_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let db = Db::open(options.clone().background_threads(0)).unwrap();
    let request = directory.path().join(REQUEST_FILE);
    let close_once_asked = |db: Db| {
        until(|| request.exists());
        drop(db);
    };
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| crate::stats(&options, PATIENCE));
        close_once_asked(db);
        assert!(asked.join().unwrap().unwrap().is_none());
    });
    assert!(!request.exists());
    let db = Db::open(options.clone().background_threads(0)).unwrap();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| crate::tune(&options, Some(TARGET), PATIENCE));
        close_once_asked(db);
        assert_eq!(asked.join().unwrap().unwrap(), Tuned::Closed);
    });
    let kept = Options::from_file(&directory.path().join(crate::OPTIONS_FILE)).unwrap();
    assert_eq!(target(&Db::open(kept).unwrap()), Some(TARGET));
}

#[test]
fn an_opening_answers_who_still_waits() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let environment = Environment::real();
    Db::open(options.clone()).unwrap().close().unwrap();
    let waiting = turn::Waiting::begin(&environment, directory.path()).unwrap();
    assert!(waiting.post(&left_behind(waiting.number())).unwrap());
    let db = Db::open(options).unwrap();
    until(|| target(&db).is_some());
}

// An opening of a pipe waits for who writes it; a directory of the name made every answer fail.
#[test]
fn what_is_no_file_by_the_name_of_one_stops_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let make: [fn(&Path); 3] = [
        pipe,
        |path| std::fs::create_dir(path).unwrap(),
        |path| std::os::unix::fs::symlink("/dev/null", path).unwrap(),
    ];
    let file = |name: &str| directory.path().join(name);
    for (at, make) in make.iter().enumerate() {
        let away = |path: PathBuf| {
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_dir(&path);
        };
        for name in [REQUEST_FILE, ANSWER_FILE] {
            away(file(name));
            make(&file(name));
        }
        // With that there: an opening, looks for requests, a question.
        let db = Db::open(options.clone()).unwrap();
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(15));
            db.step().unwrap();
        }
        assert!(crate::pulse(&options, PATIENCE).unwrap().is_some(), "{at}");
        db.close().unwrap();
    }
    // What cannot be taken away is named.
    for name in [REQUEST_FILE, ANSWER_FILE] {
        let _db = Db::open(options.clone()).unwrap();
        let _ = std::fs::remove_file(file(name));
        std::fs::create_dir_all(file(name).join("something")).unwrap();
        let error = crate::pulse(&options, PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains(name), "{error}");
        std::fs::remove_dir_all(file(name)).unwrap();
    }
}

#[test]
fn an_answer_is_kept_for_a_while_for_who_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let environment = Environment::real();
    let waiting = turn::Waiting::begin(&environment, directory.path()).unwrap();
    let now_us = environment.clock.now_micros();
    let answered = |number: &str, kept_us| Answered {
        number: number.to_string(),
        kept_us,
        gave_way: false,
    };
    let is_kept = |answered: &Answered| answered.is_kept(&environment, directory.path());
    let number = waiting.number().to_string();
    let long = now_us + PATIENCE.as_micros() as u64;
    assert!(is_kept(&answered(&number, long)));
    assert!(!is_kept(&answered(&number, now_us)));
    assert!(!is_kept(&answered("../TUNE", long)));
    drop(waiting);
    assert!(!is_kept(&answered(&number, long)));
}

// An answer was made whole before it was found to be too large: keys may have 64 KiB each.
#[test]
fn an_answer_that_would_be_too_large_is_refused_before_it_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path()).table_bytes(16 << 10);
    let db = Db::open(options.background_threads(0)).unwrap();
    // Each has a table.
    for key in 0..40 {
        db.put(&[key; 64 << 10], b"").unwrap();
    }
    db.compact_range(None, None).unwrap();
    let engine = db.engine();
    let refused = |error: Option<Error>| {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("ask for less"), "{error}");
    };
    refused(engine.tell_of_tables().err());
    let space = crate::DEFAULT_KEYSPACE;
    refused(engine.tell_of_range(space, None, None).err());
}
