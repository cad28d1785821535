//! Files beside the data: heat, the record of events, requests and answers about the cost target,
//! and the mark of a repair. Nothing depends on them, so whatever they say, the store opens, goes
//! on and answers right.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thermocline::{Db, Error, ErrorKind, Event, EventReader, Options, Tier, repair_in, tune};

use super::seal;
use crate::disk::Disk;
use crate::harness::corruption::store::disk_of;
use crate::harness::corruption::truth::Image;
use crate::scratch::Scratch;

const KEYS: u8 = 40;
/// The prices of the two tiers, in USD per GB and month.
const PRICES: [f64; 2] = [0.5, 0.05];

fn options(directory: &Path) -> Options {
    let tier = |name: &str, price| {
        let tier = Tier::new(name, directory.join(name)).block_bytes(512);
        tier.price_usd_gb_month(price)
    };
    Options::new()
        .tier(tier("fast", PRICES[0]))
        .tier(tier("slow", PRICES[1]))
        .preset("mutant")
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .block_cache_bytes(0)
        .table_bytes(4 << 10)
        .first_level_bytes(4 << 10)
        .log_segment_bytes(16 << 10)
        .log_bytes_max(64 << 10)
        .log_mapped(false)
        .reserve_bytes(0)
        .background_threads(0)
}

fn key(i: u8) -> [u8; 2] {
    [b'k', i]
}

/// A closed store with several tables, read often enough to have temperatures.
fn made() -> (Image, Options) {
    let (disk, options) = (Disk::new(0), options(Path::new("/")));
    disk.set_maps(false);
    let db = Db::open_in(options.clone(), &disk.environment()).expect("nothing fails here");
    let fill = || -> Result<(), Error> {
        for i in 0..KEYS {
            db.put(&key(i), &[i; 300])?;
        }
        db.compact_range(None, None)?;
        db.settle()?;
        for _ in 0..30 {
            all_is_there(&db)?;
            disk.pass_time(Duration::from_secs(3));
            db.step()?;
        }
        Ok(())
    };
    fill().expect("nothing fails here");
    db.close().expect("nothing fails here");
    let files = disk.files().into_iter();
    let image = files.map(|(path, bytes)| (path, Arc::from(bytes)));
    (image.collect(), options)
}

fn with_store<T>(act: impl FnOnce(&Image, &Options) -> T) -> T {
    thread_local! {
        static STORE: OnceCell<(Image, Options)> = const { OnceCell::new() };
    }
    STORE.with(|store| {
        let (image, options) = store.get_or_init(made);
        act(image, options)
    })
}

fn all_is_there(db: &Db) -> Result<(), Error> {
    for i in 0..KEYS {
        let found = db.get(&key(i))?;
        assert_eq!(found.as_deref(), Some(&[i; 300][..]), "k{i}");
    }
    assert_eq!(db.iter()?.forward().count(), usize::from(KEYS));
    Ok(())
}

fn goes_on(db: Db, disk: &Disk) {
    let go_on = || -> Result<(), Error> {
        all_is_there(&db)?;
        disk.pass_time(Duration::from_secs(120));
        db.settle()?;
        all_is_there(&db)
    };
    go_on().unwrap_or_else(|e| panic!("a file that nothing depends on: {e}"));
    db.close()
        .unwrap_or_else(|e| panic!("a file that nothing depends on: {e}"));
}

/// The first byte says that the checksum and the store's number are put right.
pub(super) fn heat(bytes: &[u8]) {
    let Some((&head, bytes)) = bytes.split_first() else {
        return;
    };
    with_store(|image, options| {
        let mut image = image.clone();
        let path = PathBuf::from("/fast/HEAT");
        image.insert(path.clone(), Arc::from(bytes));
        if head % 2 == 1 {
            seal::heat(&mut image, &path);
        }
        super::dump_as("HEAT", &image[&path]);
        let disk = disk_of(&image, options, 0);
        let db = Db::open_in(options.clone(), &disk.environment())
            .unwrap_or_else(|e| panic!("refused for its heat: {e}"));
        goes_on(db, &disk);
    });
}

pub(super) fn heat_seeds() -> Vec<Vec<u8>> {
    with_store(|image, _| {
        let heat = &image[Path::new("/fast/HEAT")];
        let few = heat[..heat.len().min(40 + 3 * 16)].to_vec();
        [&heat[..], &few, &heat[..40]]
            .map(|bytes| [&[1], bytes].concat())
            .into()
    })
}

/// The first byte says whether checksums are put right (1) and whether it is the
/// older file of the record (2).
pub(super) fn events(bytes: &[u8]) {
    let Some((&head, bytes)) = bytes.split_first() else {
        return;
    };
    with_store(|image, options| {
        let mut image = image.clone();
        let name = if head & 2 == 0 {
            "EVENTS"
        } else {
            "EVENTS.old"
        };
        let path = Path::new("/fast").join(name);
        image.insert(path.clone(), Arc::from(bytes));
        if head & 1 == 1 {
            seal::events(&mut image, &path);
        }
        super::dump_as(name, &image[&path]);
        let disk = disk_of(&image, options, 0);
        let told = told_by(&disk, options, |db| {
            // An event of its own behind what is there.
            db.put(&key(0), &[0; 300])?;
            db.flush()
        });
        follow(name, &image[&path], &told);
        let again = told_by(&disk, options, |_| Ok(()));
        assert!(again.starts_with(&told), "{told:?}, then {again:?}");
        let mut since = again[told.len()..].iter();
        assert!(since.any(|e| e.job == "flush"), "lost: {again:?}");
    });
}

/// What the store says that it did, before `act`.
fn told_by(
    disk: &Disk,
    options: &Options,
    act: impl FnOnce(&Db) -> Result<(), Error>,
) -> Vec<Event> {
    let db = Db::open_in(options.clone(), &disk.environment())
        .unwrap_or_else(|e| panic!("refused for its events: {e}"));
    let told = db.events(usize::MAX);
    for event in &told {
        assert!(!event.to_string().is_empty());
        let mut numbers = event.reason.numbers.iter();
        assert!(numbers.all(|(_, n)| n.is_finite()), "{event}");
    }
    act(&db).unwrap_or_else(|e| panic!("a file that nothing depends on: {e}"));
    goes_on(db, disk);
    told
}

/// Another process reads `bytes` as they come, and finds nothing that the store does
/// not have.
fn follow(name: &str, bytes: &[u8], told: &[Event]) {
    thread_local! {
        static PLACE: OnceCell<Scratch> = const { OnceCell::new() };
    }
    PLACE.with(|place| {
        let directory = place.get_or_init(Scratch::in_memory).path();
        let options = Options::new().tier(Tier::new("fast", directory));
        let mut reader = EventReader::new(&options);
        let mut read = || {
            let read = reader.read();
            read.unwrap_or_else(|e| panic!("following what is damaged: {e}"))
        };
        let file = directory.join(name);
        let put = |bytes| std::fs::write(&file, bytes).expect("the directory is ours");
        put(&bytes[..bytes.len() / 2]);
        read();
        assert_eq!(read(), [], "nothing is new");
        put(bytes);
        read();
        assert_eq!(read(), [], "nothing is new");
        let fresh = EventReader::new(&options).read();
        let fresh = fresh.unwrap_or_else(|e| panic!("reading what is damaged: {e}"));
        assert!(
            fresh.iter().all(|e| told.contains(e)),
            "{fresh:?}, {told:?}"
        );
        std::fs::remove_file(&file).expect("the directory is ours");
        assert_eq!(read(), [], "nothing is there");
    });
}

pub(super) fn events_seeds() -> Vec<Vec<u8>> {
    with_store(|image, _| {
        let events = &image[Path::new("/fast/EVENTS")];
        let second = events[1..].windows(4).position(|w| w == b"\nTE\x02");
        let second = second.map_or(events.len(), |at| at + 1);
        // The whole of one event, sealed and not, and the beginning of the next one.
        let few = &events[..events.len().min(second * 2 + 40)];
        let old = version_1();
        [
            (1, &events[..second]),
            (0, few),
            (2, few),
            (3, few),
            (1, &old),
        ]
        .map(|(head, bytes)| [&[head], bytes].concat())
        .into()
    })
}

/// The frame of version 1 in docs/formats/events.md, the second example there.
fn version_1() -> Vec<u8> {
    let page = include_str!("../../../../../docs/formats/events.md");
    let example = page.split("```").nth(3).unwrap_or_default();
    let words = example.split_whitespace();
    let words = words.filter_map(|w| Some((w, u128::from_str_radix(w, 16).ok()?)));
    let bytes = words.map(|(w, word)| word.to_be_bytes()[16 - w.len() / 2..].to_vec());
    bytes.flatten().collect()
}

/// A request that lies there while the store is open.
pub(super) fn request(bytes: &[u8]) {
    with_store(|image, options| {
        let disk = disk_of(image, options, 0);
        let db = Db::open_in(options.clone(), &disk.environment())
            .unwrap_or_else(|e| panic!("opening: {e}"));
        disk.put_file(Path::new("/fast/TUNE"), bytes);
        disk.pass_time(Duration::from_secs(7200));
        db.step().unwrap_or_else(|e| panic!("asked by file: {e}"));
        let names = disk.names(Path::new("/fast"));
        let has = |name: &str| names.iter().any(|n| n == name);
        assert!(!has("TUNE") && has("TUNED"), "{names:?}");
        if let Some(target) = db.stats().cost.target_usd_gb_month {
            let [dearest, cheapest] = PRICES;
            assert!((cheapest..=dearest).contains(&target), "{target}");
        }
        goes_on(db, &disk);
        // What was asked for is in the options file.
        let kept = &disk.files()[Path::new("/fast/thermocline.toml")];
        let kept = String::from_utf8_lossy(kept);
        Options::from_toml(&kept).unwrap_or_else(|e| panic!("the options kept: {e}\n{kept}"));
    });
}

pub(super) fn request_seeds() -> Vec<Vec<u8>> {
    let request = "request = \"00ff00ff00ff00ff\"\nversion = 2\n";
    let target = "cost_target_usd_per_gb_month";
    [
        format!("{request}[wanted.tune]\n{target} = 0.2\n"),
        format!("{request}[wanted.tune]\n{target} = 7\n"),
        format!("{request}[wanted.tune]\n"),
        format!("{request}[wanted.forecast]\nkeeps_cost_target = false\n{target} = 0.1\n"),
        format!("{request}[wanted.pulse]\n"),
        format!("{request}[wanted.stats]\n"),
        format!("{request}[wanted.tables]\n"),
        format!("{request}[wanted.explain]\nkeyspace = \"default\"\nkey = [107]\n"),
        format!("{request}[wanted.explain_range]\nkeyspace = \"default\"\nstart = [107]\n"),
    ]
    .map(String::into_bytes)
    .into()
}

/// An answer that lies there when somebody asks.
pub(super) fn answer(bytes: &[u8]) {
    thread_local! {
        static OPEN: OnceCell<(Db, Scratch)> = const { OnceCell::new() };
    }
    OPEN.with(|open| {
        let (db, scratch) = open.get_or_init(|| {
            let scratch = Scratch::in_memory();
            let db = Db::open(options(scratch.path()));
            (db.expect("an empty directory that is ours"), scratch)
        });
        let place = scratch.path().join("fast/TUNED");
        std::fs::write(&place, bytes).expect("the directory is ours");
        // Nobody looks for the request, and no answer is to this one.
        let told = tune(db.options(), Some(0.2), Duration::ZERO);
        let error = told.expect_err("another's answer was taken");
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    });
}

pub(super) fn answer_seeds() -> Vec<Vec<u8>> {
    let request = "request = \"00ff00ff00ff00ff\"\n";
    [
        request.to_string(),
        format!("{request}error = \"cost target: expected at most 0.5\"\n"),
    ]
    .map(String::into_bytes)
    .into()
}

/// A mark that lies there when a store without its pointer is repaired.
pub(super) fn mark(bytes: &[u8]) {
    with_store(|image, options| {
        let mut image = image.clone();
        image.remove(Path::new("/fast/CURRENT"));
        image.insert(PathBuf::from("/fast/REPAIR"), Arc::from(bytes));
        let disk = disk_of(&image, options, 0);
        let report = repair_in(options.clone(), &disk.environment())
            .unwrap_or_else(|e| panic!("a mark of a repair: {e}"));
        assert!(report.lost.is_empty(), "{report}");
        let db = Db::open_in(options.clone(), &disk.environment())
            .unwrap_or_else(|e| panic!("repaired, and then: {e}"));
        goes_on(db, &disk);
        assert!(!disk.files().contains_key(Path::new("/fast/REPAIR")));
    });
}

pub(super) fn mark_seeds() -> Vec<Vec<u8>> {
    [&b"2005 9a1f03c4 5d20be11\n"[..], b"1 00000000 00000000\n"]
        .map(<[u8]>::to_vec)
        .into()
}
