//! A store opens on exactly its own tiers (I7), and on nothing else.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::Path;

use thermocline::store::{FileSystem, OpenHow};
use thermocline::{Db, ErrorKind, Options, Tier};
use thermocline_sim::disk::{Disk, Down};

fn options(names: &[&str]) -> Options {
    let tier = |(at, name): (usize, &&str)| {
        let tier = Tier::new(name, format!("/{name}/store")).block_bytes(512);
        // The last one takes what is left.
        match at + 1 < names.len() {
            true => tier.capacity_bytes(20_000),
            false => tier,
        }
    };
    Options::new()
        .with_tiers(names.iter().enumerate().map(tier).collect())
        .background_threads(0)
        .table_bytes(4 << 10)
        .reserve_bytes(0)
}

/// A store on the disk with data on every tier, opened `sessions` times.
fn store(disk: &Disk, names: &[&str], sessions: u8) {
    for session in 0..sessions {
        let db = Db::open_in(options(names), &disk.environment()).unwrap();
        for i in 0..60u8 {
            db.put(&[b'k', i], &vec![session ^ i; 900]).unwrap();
        }
        db.flush().unwrap();
        db.settle().unwrap();
        db.close().unwrap();
    }
    disk.reboot(Down::Kill);
}

fn refused(disk: &Disk, options: Options, kind: ErrorKind, words: &str) {
    let fs = disk.environment().file_system;
    let there = || {
        let state = |t: &Tier| (fs.metadata(t.path()).unwrap(), disk.names(t.path()));
        options.tier_list().iter().map(state).collect::<Vec<_>>()
    };
    let before = there();
    let error = Db::open_in(options.clone(), &disk.environment()).expect_err(words);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(before, there(), "a refused opening changes nothing");
}

fn opens(disk: &Disk, names: &[&str], session: u8) {
    let db = Db::open_in(options(names), &disk.environment()).unwrap();
    for i in 0..60u8 {
        assert_eq!(
            db.get(&[b'k', i]).unwrap().as_deref(),
            Some(&vec![session ^ i; 900][..])
        );
    }
}

// case 22
#[test]
fn a_tier_whose_mount_point_is_empty_is_refused() {
    let disk = Disk::new(1);
    store(&disk, &["fast", "slow"], 1);
    disk.copy_all(Path::new("/slow"), Path::new("/away"));
    disk.remove_all(Path::new("/slow"));
    refused(
        &disk,
        options(&["fast", "slow"]),
        ErrorKind::WrongTier,
        "\"slow\": is missing",
    );
    // Nor when the mount point is there and holds nothing.
    let fs = disk.environment().file_system;
    fs.create_directory(Path::new("/slow/store")).unwrap();
    refused(
        &disk,
        options(&["fast", "slow"]),
        ErrorKind::WrongTier,
        "\"slow\": is missing",
    );
    disk.copy_all(Path::new("/away"), Path::new("/slow"));
    opens(&disk, &["fast", "slow"], 0);
}

// case 23
#[test]
fn a_first_tier_that_is_missing_is_refused() {
    let disk = Disk::new(2);
    store(&disk, &["fast", "slow"], 1);
    disk.copy_all(Path::new("/fast"), Path::new("/away"));
    disk.remove_all(Path::new("/fast"));
    refused(
        &disk,
        options(&["fast", "slow"]),
        ErrorKind::WrongTier,
        "manifest pointer is missing from tier \"fast\"",
    );
    disk.copy_all(Path::new("/away"), Path::new("/fast"));
    opens(&disk, &["fast", "slow"], 0);
}

// case 22
#[test]
fn swapped_and_foreign_tiers_are_refused() {
    let disk = Disk::new(3);
    store(&disk, &["fast", "middle", "slow"], 1);
    for (a, b) in [("/middle", "/slow"), ("/fast", "/slow")] {
        let swap = |disk: &Disk| {
            disk.copy_all(Path::new(a), Path::new("/away"));
            disk.copy_all(Path::new(b), Path::new(a));
            disk.copy_all(Path::new("/away"), Path::new(b));
        };
        swap(&disk);
        refused(
            &disk,
            options(&["fast", "middle", "slow"]),
            ErrorKind::WrongTier,
            "tier",
        );
        swap(&disk);
    }
    opens(&disk, &["fast", "middle", "slow"], 0);
    let other = Disk::new(4);
    store(&other, &["fast", "middle", "slow"], 1);
    refused(
        &disk,
        options(&["fast", "slow"]),
        ErrorKind::WrongTier,
        "another tier in this place",
    );
    refused(
        &disk,
        options(&["fast", "middle"]),
        ErrorKind::WrongTier,
        "missing from the options",
    );
    refused(
        &disk,
        options(&["slow"]),
        ErrorKind::WrongTier,
        "manifest pointer is missing",
    );
}

// case 22
#[test]
fn a_tier_of_another_store_is_refused() {
    let disk = Disk::new(5);
    store(&disk, &["fast", "slow"], 1);
    disk.copy_all(Path::new("/fast"), Path::new("/keep/fast"));
    disk.copy_all(Path::new("/slow"), Path::new("/keep/slow"));
    disk.remove_all(Path::new("/fast"));
    disk.remove_all(Path::new("/slow"));
    store(&disk, &["fast", "slow"], 1);
    disk.copy_all(Path::new("/keep/slow"), Path::new("/slow"));
    refused(
        &disk,
        options(&["fast", "slow"]),
        ErrorKind::WrongTier,
        "belongs to another store",
    );
    disk.copy_all(Path::new("/keep/fast"), Path::new("/fast"));
    opens(&disk, &["fast", "slow"], 0);
}

// cases 22 and 23
#[test]
fn a_tier_that_was_rolled_back_one_session_is_refused() {
    for (rolled, words) in [("/slow", "is stale"), ("/fast", "the first tier is stale")] {
        let disk = Disk::new(6);
        store(&disk, &["fast", "slow"], 1);
        disk.copy_all(Path::new(rolled), Path::new("/old"));
        store(&disk, &["fast", "slow"], 1);
        disk.copy_all(Path::new(rolled), Path::new("/new"));
        disk.copy_all(Path::new("/old"), Path::new(rolled));
        refused(
            &disk,
            options(&["fast", "slow"]),
            ErrorKind::WrongTier,
            words,
        );
        disk.copy_all(Path::new("/new"), Path::new(rolled));
        opens(&disk, &["fast", "slow"], 0);
    }
}

// case 35
#[test]
fn a_tier_can_be_added_at_the_end_but_not_one_that_belongs_to_somebody() {
    let disk = Disk::new(7);
    store(&disk, &["fast"], 2);
    opens(&disk, &["fast", "slow"], 1);
    refused(
        &disk,
        options(&["fast"]),
        ErrorKind::WrongTier,
        "missing from the options",
    );
    opens(&disk, &["fast", "slow"], 1);
    let mut more = options(&["fast", "slow"]).tier_list().to_vec();
    more.push(Tier::new("more", "/taken/store"));
    disk.copy_all(Path::new("/slow"), Path::new("/taken"));
    refused(
        &disk,
        options(&[]).with_tiers(more),
        ErrorKind::WrongTier,
        "its directory belongs to one",
    );
}

// case 20
#[test]
fn damage_at_the_source_is_not_carried_to_another_tier() {
    let disk = Disk::new(8);
    let roomy = |bytes| {
        let tiers = options(&["fast", "slow"]).tier_list().to_vec();
        let mut tiers = tiers.into_iter();
        let fast = tiers.next().unwrap().capacity_bytes(bytes);
        options(&[]).with_tiers(std::iter::once(fast).chain(tiers).collect())
    };
    let db = Db::open_in(roomy(500_000), &disk.environment()).unwrap();
    for i in 0..60u8 {
        db.put(&[b'k', i], &vec![i; 900]).unwrap();
    }
    db.compact_range(None, None).unwrap();
    db.close().unwrap();
    let data = |path: &str| {
        let names = disk.names(Path::new(path)).into_iter();
        names.filter(|n| n.ends_with(".data")).collect::<Vec<_>>()
    };
    for name in data("/fast/store") {
        let path = Path::new("/fast/store").join(name);
        let file = disk.open(&path, OpenHow::WRITE).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, 700).unwrap();
        file.write_at(&[byte[0] ^ 1], 700).unwrap();
    }
    let db = Db::open_in(roomy(20_000), &disk.environment()).unwrap();
    let error = db.settle().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains("/fast/store"), "{error}");
    assert_eq!(db.stats().relocations, 0);
    assert_eq!(data("/slow/store"), Vec::<String>::new());
}

// case 17
#[test]
fn one_directory_has_one_opener() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path().join("a"));
    let db = Db::open(options.clone()).unwrap();
    assert_eq!(
        Db::open(options.clone()).unwrap_err().kind(),
        ErrorKind::Locked
    );
    // As a tier of another store, neither.
    let other =
        Options::at(directory.path().join("b")).tier(Tier::new("slow", directory.path().join("a")));
    assert_eq!(Db::open(other).unwrap_err().kind(), ErrorKind::Locked);
    drop(db);
    Db::open(options).unwrap();
}

/// A refused opening used to make the directory of a tier that was not mounted,
/// with a `LOCK` file in it, before it looked at anything.
#[test]
fn a_refused_opening_leaves_no_directory_and_no_lock_file() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let two = |slow: &Path| Options::at(at("fast")).tier(Tier::new("slow", slow));
    Db::open(two(&at("slow/store"))).unwrap();
    std::fs::rename(at("slow"), at("away")).unwrap();
    let error = Db::open(two(&at("slow/store"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongTier);
    assert!(
        !at("slow").exists(),
        "the directory above is not made either"
    );
    // With its first tier away.
    std::fs::rename(at("away"), at("slow")).unwrap();
    std::fs::rename(at("fast"), at("away")).unwrap();
    let error = Db::open(two(&at("slow/store"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongTier);
    assert!(!at("fast").exists());
    // A new store of which one directory cannot be made.
    std::fs::write(at("file"), b"").unwrap();
    for bad in [at("file/below"), "/proc/thermocline".into()] {
        let options = Options::at(at("a/b/new")).tier(Tier::new("slow", &bad));
        Db::open(options).unwrap_err();
        assert!(!at("a").exists(), "{}", bad.display());
    }
    // An empty directory that is nobody's tier gets no lock file.
    std::fs::create_dir(at("fast")).unwrap();
    Db::open(two(&at("slow/store"))).unwrap_err();
    assert_eq!(std::fs::read_dir(at("fast")).unwrap().count(), 0);
    std::fs::remove_dir(at("fast")).unwrap();
    std::fs::rename(at("away"), at("fast")).unwrap();
    Db::open(two(&at("slow/store"))).unwrap();
    Db::open(Options::at(at("a/b/new")).tier(Tier::new("slow", at("c/d")))).unwrap();
}

#[test]
fn what_is_no_directory_or_cannot_be_written_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, b"not a directory").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = Db::open(Options::at(&path)).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"not a directory");
    // Read-only for everybody, root included.
    let error = Db::open(Options::at("/proc/thermocline")).unwrap_err();
    assert!(error.path().is_some(), "{error}");
    let nothing = Options::at(directory.path().join("none")).create_if_missing(false);
    assert_eq!(Db::open(nothing).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!directory.path().join("none").exists());
}
