//! What each decoder makes of any bytes at all: the targets of the fuzzer.
//!
//! A target takes bytes and panics when a promise is broken. `fuzz/` runs each
//! under libFuzzer, the tests of this crate run each over a small corpus and
//! over mutations of it, the prover over drawn ones. Files are decoded in a
//! real store on a simulated disk, through everything that reads them: `dump`,
//! `verify`, opening, reading, `repair`. Where the first byte of the input is
//! odd, checksums are made right first, so that what lies behind them is
//! reached.

mod beside;
mod operations;
mod seal;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline::store::Environment;
use thermocline::{
    Db, DumpOptions, Error, ErrorKind, Options, RepairReport, dump_in, repair_in, verify_in,
};
use thermocline_model::edit::Edit;
use thermocline_model::version::Version;

use super::corruption::store::{self, Small, disk_of};
use super::corruption::truth::Image;
use crate::Dice;

/// One decoder, as the fuzzer sees it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: that of the fuzz target and of the corpus directory.
    pub name: &'static str,
    /// Takes any bytes. Panics when a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs to begin with, made from real stores.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub static TARGETS: [Target; 15] = [
    Target {
        name: "dump",
        run: dump,
        seeds: || {
            of_every_file(|name, _, bytes| input(DUMPED.iter().position(|d| *d == name), bytes))
        },
    },
    Target {
        name: "log",
        run: |bytes| in_place(bytes, ".log", seal::log),
        seeds: || of_every_file(|name, store, bytes| seed(".log", name, store, bytes)),
    },
    Target {
        name: "manifest",
        run: |bytes| in_place(bytes, "MANIFEST", seal::manifest),
        seeds: || of_every_file(|name, store, bytes| seed("MANIFEST", name, store, bytes)),
    },
    Target {
        name: "meta",
        run: |bytes| in_place(bytes, ".meta", seal::meta),
        seeds: || {
            let mut seeds = of_every_file(|name, store, bytes| seed(".meta", name, store, bytes));
            seeds.push(OLD_META.to_vec());
            seeds
        },
    },
    Target {
        name: "block",
        run: |bytes| in_place(bytes, ".data", seal::block),
        seeds: || of_every_file(|name, store, bytes| seed(".data", name, store, bytes)),
    },
    Target {
        name: "tier",
        run: |bytes| in_place(bytes, "TIER", seal::tier),
        seeds: || of_every_file(|name, store, bytes| seed("TIER", name, store, bytes)),
    },
    Target {
        name: "current",
        run: |bytes| in_place(bytes, "CURRENT", seal::current),
        seeds: || of_every_file(|name, store, bytes| seed("CURRENT", name, store, bytes)),
    },
    Target {
        name: "edit",
        run: edit,
        seeds: || {
            of_every_file(|name, _, bytes| {
                name.starts_with("MANIFEST")
                    .then(|| seal::edits(bytes))
                    .and_then(|e| e.into_iter().max_by_key(Vec::len))
            })
        },
    },
    Target {
        name: "options",
        run: options,
        seeds: || {
            of_every_file(|name, _, bytes| (name == "thermocline.toml").then(|| bytes.to_vec()))
        },
    },
    Target {
        name: "heat",
        run: beside::heat,
        seeds: beside::heat_seeds,
    },
    Target {
        name: "events",
        run: beside::events,
        seeds: beside::events_seeds,
    },
    Target {
        name: "tune",
        run: beside::request,
        seeds: beside::request_seeds,
    },
    Target {
        name: "tuned",
        run: beside::answer,
        seeds: beside::answer_seeds,
    },
    Target {
        name: "mark",
        run: beside::mark,
        seeds: beside::mark_seeds,
    },
    Target {
        name: "operations",
        run: operations::run,
        seeds: operations::seeds,
    },
];

/// The target of this name.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn target(name: &str) -> &'static Target {
    let found = TARGETS.iter().find(|t| t.name == name);
    found.unwrap_or_else(|| panic!("no target {name}"))
}

/// A meta of version 1, of a table of the first small store.
const OLD_META: &[u8] = include_bytes!("decode/meta-version-1");

thread_local! {
    /// Made once: every input is decoded in one of them.
    static STORES: OnceCell<Vec<Small>> = const { OnceCell::new() };
}

fn with_stores<T>(act: impl FnOnce(&[Small]) -> T) -> T {
    STORES.with(|stores| act(stores.get_or_init(store::all)))
}

/// Names of files, each of a kind that `dump` prints in its own way.
const DUMPED: [&str; 7] = [
    "CURRENT",
    "TIER",
    "000001.log",
    "000004.meta",
    "000002.data",
    "MANIFEST-000001",
    "anything",
];

fn input(head: Option<usize>, bytes: &[u8]) -> Option<Vec<u8>> {
    let head = head? as u8;
    Some([&[head], bytes].concat())
}

/// The first byte says which store it is, and that checksums are put right.
fn seed(kind: &str, name: &str, store: usize, bytes: &[u8]) -> Option<Vec<u8>> {
    let head = name.contains(kind).then_some(store * 2 + 1);
    input(head, bytes)
}

type MakeSeed = fn(&str, usize, &[u8]) -> Option<Vec<u8>>;

/// Of every file of the small stores, what `make` makes of it; large and like
/// ones are left out.
fn of_every_file(make: MakeSeed) -> Vec<Vec<u8>> {
    const SEEDS_MAX: usize = 6;
    const SEED_BYTES_MAX: usize = 2800;
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for (index, store) in store::all().iter().enumerate() {
        for (path, bytes) in &store.image {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let small = make(&name, index, bytes).filter(|s| s.len() <= SEED_BYTES_MAX);
            seeds.extend(small);
        }
    }
    seeds.sort();
    seeds.dedup();
    let step = seeds.len().div_ceil(SEEDS_MAX).max(1);
    seeds.into_iter().step_by(step).collect()
}

/// Requires that an error is one that bad bytes may have.
fn named(error: &Error) {
    let lawful = matches!(
        error.kind(),
        ErrorKind::Corruption
            | ErrorKind::Unsupported
            | ErrorKind::WrongTier
            | ErrorKind::NotFound
            | ErrorKind::InvalidArgument
    );
    assert!(lawful && error.path().is_some(), "{error}");
}

fn dump(bytes: &[u8]) {
    let Some((&head, bytes)) = bytes.split_first() else {
        return;
    };
    dump_as(DUMPED[usize::from(head) % DUMPED.len()], bytes);
}

fn dump_as(name: &str, bytes: &[u8]) {
    let disk = crate::disk::Disk::new(1);
    let path = Path::new("/").join(name);
    disk.put_file(&path, bytes);
    let how = DumpOptions { entries: true };
    let mut text = Vec::new();
    if let Err(error) = dump_in(&path, &mut text, &how, &disk.environment()) {
        named(&error);
    }
}

/// Puts the input in the place of a file of that kind in a small store, and
/// does with the store whatever can be done.
fn in_place(bytes: &[u8], kind: &str, seal: fn(&mut Image, &Path)) {
    let Some((&head, bytes)) = bytes.split_first() else {
        return;
    };
    with_stores(|stores| {
        let with = |s: &&Small| s.image.keys().any(|p| file_of(p, kind));
        let stores: Vec<&Small> = stores.iter().filter(with).collect();
        let store = stores[usize::from(head >> 1) % stores.len()];
        let mut image = store.image.clone();
        let path: Option<PathBuf> = image.keys().rfind(|p| file_of(p, kind)).cloned();
        let Some(path) = path else {
            return;
        };
        image.insert(path.clone(), Arc::from(bytes));
        if head % 2 == 1 {
            seal(&mut image, &path);
        }
        dump_as(
            &path.file_name().unwrap_or_default().to_string_lossy(),
            &image[&path],
        );
        use_store(&image, &store.options);
    });
}

fn file_of(path: &Path, kind: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.contains(kind)
}

/// Verifies, opens, reads, and repairs.
fn use_store(image: &Image, options: &Options) {
    let disk = disk_of(image, options, 1);
    let environment = disk.environment();
    let verified = verify_in(options.clone(), &environment);
    let sound = verified.as_ref().is_ok_and(|r| r.problems.is_empty());
    if let Err(error) = &verified {
        named(error);
    }
    match Db::open_in(options.clone(), &environment) {
        Ok(db) => {
            let read = read_all(&db);
            if let Err(error) = read {
                named(&error);
                assert!(!sound, "verify finds it sound, and a read fails: {error}");
            }
        }
        Err(error) => {
            named(&error);
            assert!(
                !sound,
                "verify finds it sound, and it does not open: {error}"
            );
        }
    }
    if sound {
        return;
    }
    let disk = disk_of(image, options, 1);
    let environment = disk.environment();
    match repair_in(options.clone(), &environment) {
        Ok(report) => open_repaired(options, &environment, &report),
        Err(error) => named(&error),
    }
}

fn open_repaired(options: &Options, environment: &Environment, report: &RepairReport) {
    let opened = Db::open_in(options.clone(), environment).and_then(|db| read_all(&db));
    if let Err(error) = opened {
        panic!("repaired, and then: {error}\n{report}");
    }
}

fn read_all(db: &Db) -> Result<(), Error> {
    for name in db.keyspaces() {
        let keyspace = db.keyspace(&name)?;
        let mut keys = Vec::new();
        for entry in keyspace.iter()?.forward() {
            keys.push(entry?.0);
        }
        for entry in keyspace.iter()?.backward() {
            entry?;
        }
        for key in keys.iter().step_by(3) {
            keyspace.get(key)?;
        }
        keyspace.get(b"absent")?;
    }
    Ok(())
}

/// An edit that is read is written as it was, and can be applied or refused.
fn edit(bytes: &[u8]) {
    if let Ok(edit) = Edit::decode(bytes) {
        let again = Edit::decode(&edit.encode());
        assert_eq!(
            again.as_ref(),
            Ok(&edit),
            "an edit is not written as it was read"
        );
        if let Ok(version) = edit.apply(&Version::empty()) {
            let _ = thermocline_model::check::check_version(&version);
            let _ = edit.apply(&version);
        }
    }
}

/// Options that are read are written as they were.
fn options(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(options) = Options::from_toml(text) {
        let written = options.to_toml();
        let again = Options::from_toml(&written).map(|o| o.to_toml());
        assert_eq!(again.ok().as_ref(), Some(&written));
    }
}

/// The files of a store with one of them, which is named, written in another
/// format, and sound but for that.
#[must_use]
pub fn crossed_formats(whole: &Image, format: u8) -> Vec<(PathBuf, Image)> {
    seal::crossed(format, whole)
}

/// A drawn change of `bytes`: bits, bytes, stretches copied, cut or put in.
#[must_use]
pub fn mutate(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    const BYTES_MAX: usize = 8 << 10;
    let mut bytes = bytes.to_vec();
    for _ in 0..=dice.below(4) {
        let length = bytes.len();
        let at = dice.below(length as u64 + 1) as usize;
        let end = length.min(at + dice.below(24) as usize);
        match dice.below(7) {
            0 | 1 if at < length => bytes[at] ^= 1 << dice.below(8),
            2 if at < length => bytes[at] = dice.one_of(&[0, 1, 0x7f, 0x80, 0xff]),
            3 => {
                let piece = bytes[at..end].to_vec();
                let to = dice.below(length as u64 + 1) as usize;
                bytes.splice(to..to, piece);
            }
            4 => drop(bytes.drain(at..end)),
            5 => {
                let noise: Vec<u8> = (at..end).map(|_| dice.next() as u8).collect();
                bytes.splice(at..end, noise);
            }
            6 if dice.percent(20) => bytes.truncate(at),
            _ => {}
        }
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

/// Some mutations of some seeds of some target.
///
/// # Panics
/// When a decoder breaks a promise; the target's panic comes after a line with
/// the seed.
pub fn run(seed: u64, tally: &mut crate::Tally) {
    const INPUTS: u64 = 60;
    let mut dice = Dice(seed);
    let target = dice.one_of(&TARGETS);
    let seeds = (target.seeds)();
    for _ in 0..INPUTS {
        let from = &seeds[dice.below(seeds.len() as u64) as usize];
        let bytes = mutate(from, &mut dice);
        let ran = std::panic::catch_unwind(|| (target.run)(&bytes));
        if let Err(panic) = ran {
            let words = panic.downcast_ref::<String>().map_or("", |w| w);
            panic!("seed {seed}: {}: {words}", target.name);
        }
        tally.corruptions += 1;
    }
}
