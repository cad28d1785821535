//! A store that another process writes to opens for reading only, whatever goes meanwhile.
//!
//! A reader takes no lock. Between its look at the manifest and its look at a file, the writer may
//! have replaced the one and deleted the other; that was an I/O error, or, where the log was not
//! durable yet, a store without its last entries.
//!
//! And writers go on while what they need no more is deleted.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thermocline::store::{
    DirectoryEntry, Environment, File, FileSystem, Lock, Metadata, OpenHow, RealFileSystem, Space,
};
use thermocline::{Db, ErrorKind, Options, Tier};

/// What is asked of a file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Open,
    List,
    Unlink,
}

/// The machine's file system, on which something is done ahead of some calls.
struct Meanwhile {
    /// Called ahead of each call, with the path's last name.
    act: Mutex<Act>,
}

type Act = Box<dyn FnMut(Call, &str) + Send>;

impl Meanwhile {
    fn environment(act: impl FnMut(Call, &str) + Send + 'static) -> Environment {
        let file_system = Meanwhile {
            act: Mutex::new(Box::new(act)),
        };
        Environment {
            file_system: Arc::new(file_system),
            ..Environment::real()
        }
    }

    fn ahead_of(&self, call: Call, path: &Path) {
        let name = path.file_name().and_then(|name| name.to_str());
        (self.act.lock().unwrap())(call, name.unwrap_or(""));
    }
}

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meanwhile").finish_non_exhaustive()
    }
}

impl FileSystem for Meanwhile {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        self.ahead_of(Call::Open, path);
        RealFileSystem.open(path, how)
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.ahead_of(Call::List, directory);
        RealFileSystem.list(directory)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFileSystem.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.ahead_of(Call::Unlink, path);
        RealFileSystem.unlink(path)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.create_directory(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.remove_directory(path)
    }
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        RealFileSystem.sync_directory(directory)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFileSystem.hard_link(from, to)
    }
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        RealFileSystem.metadata(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        RealFileSystem.lock(path)
    }
    fn space(&self, directory: &Path) -> io::Result<Space> {
        RealFileSystem.space(directory)
    }
}

fn options(root: &Path) -> Options {
    Options::at(root)
        .background_threads(0)
        .log_segment_bytes(16 << 10)
}

/// A store with an entry in a table and another in the log, and who has it open.
fn writer(root: &Path) -> Db {
    let db = Db::open(options(root)).unwrap();
    db.put(b"table", b"1").unwrap();
    db.flush().unwrap();
    db.put(b"log", b"2").unwrap();
    db
}

/// Opens the store for reading while `write` is done once: ahead of the first call that `when`
/// says.
fn read_while(
    root: &Path,
    when: impl FnMut(Call, &str) -> bool + Send + 'static,
    write: impl FnOnce() + Send + 'static,
) {
    read_with_while(options(root), when, write);
}

/// The same of a store with other options.
fn read_with_while(
    options: Options,
    mut when: impl FnMut(Call, &str) -> bool + Send + 'static,
    write: impl FnOnce() + Send + 'static,
) {
    let done = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&done);
    let mut write = Some(write);
    let environment = Meanwhile::environment(move |call, name| {
        if write.is_some() && when(call, name) {
            counted.fetch_add(1, Ordering::Relaxed);
            (write.take().unwrap())();
        }
    });
    let db = Db::open_in(options.read_only(true), &environment).unwrap();
    assert_eq!(
        done.load(Ordering::Relaxed),
        1,
        "nothing was done meanwhile"
    );
    for (key, value) in [(&b"table"[..], b"1"), (b"log", b"2")] {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

/// The so many-th list of a directory after the manifest was read: that of the log for the note of
/// a clean close, that of the tables, that of the log for its entries.
fn list_after_manifest(number: usize) -> impl FnMut(Call, &str) -> bool + Send {
    let (mut seen, mut lists) = (false, 0);
    move |call, name| {
        seen |= call == Call::Open && name.starts_with("MANIFEST");
        lists += usize::from(seen && call == Call::List);
        lists == number
    }
}

fn files(root: &Path, extension: &str) -> Vec<PathBuf> {
    let names = std::fs::read_dir(root).unwrap().map(|e| e.unwrap().path());
    let of = names.filter(|path| path.extension().is_some_and(|e| e == extension));
    of.collect()
}

/// Writes until nothing of what was there is left of the log or the tables.
fn write_on(db: &Db, root: &Path, extension: &str) {
    let before = files(root, extension);
    for _ in 0..4 {
        db.put(b"more", &[7; 10 << 10]).unwrap();
    }
    db.put(b"table", b"1").unwrap();
    db.flush().unwrap();
    if extension == "data" {
        db.compact_range(None, None).unwrap();
        while db.step().unwrap() {}
    }
    let left = files(root, extension);
    assert!(before.iter().all(|path| !left.contains(path)), "{left:?}");
}

#[test]
fn a_segment_trimmed_after_it_was_listed_begins_the_opening_anew() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_path_buf();
    let db = writer(&root);
    let mut opened = 0;
    // Its note of a clean close, its header, its frames.
    let third = move |call, name: &str| {
        let is_log = Path::new(name).extension().is_some_and(|e| e == "log");
        opened += usize::from(call == Call::Open && is_log);
        opened == 3
    };
    read_while(directory.path(), third, move || write_on(&db, &root, "log"));
}

#[test]
fn a_log_trimmed_before_it_was_listed_begins_the_opening_anew() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_path_buf();
    let db = writer(&root);
    read_while(directory.path(), list_after_manifest(3), move || {
        write_on(&db, &root, "log");
    });
}

#[test]
fn a_table_merged_away_before_it_was_looked_for_begins_the_opening_anew() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_path_buf();
    let db = writer(&root);
    read_while(directory.path(), list_after_manifest(2), move || {
        write_on(&db, &root, "data");
    });
}

#[test]
fn a_manifest_replaced_after_the_pointer_was_read_begins_the_opening_anew() {
    let directory = tempfile::tempdir().unwrap();
    let db = writer(directory.path());
    drop(db);
    let root = directory.path().to_path_buf();
    let mut pointers = 0;
    // The first look at the pointer and the manifest is to know them again.
    let between = move |call, name: &str| {
        pointers += usize::from(call == Call::Open && name == "CURRENT");
        pointers == 2 && call == Call::Open && name.starts_with("MANIFEST")
    };
    read_while(directory.path(), between, move || {
        Db::open(options(&root)).unwrap();
    });
}

#[test]
fn a_store_that_changes_in_every_try_is_refused_with_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_path_buf();
    let db = writer(&root);
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let mut again = list_after_manifest(2);
    let environment = Meanwhile::environment(move |call, name| {
        if again(call, name) {
            counted.fetch_add(1, Ordering::Relaxed);
            write_on(&db, &root, "data");
            again = list_after_manifest(2);
        }
    });
    let error = Db::open_in(options(directory.path()).read_only(true), &environment).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert!(error.to_string().contains("is missing"), "{error}");
    assert_eq!(tries.load(Ordering::Relaxed), 10);
}

#[test]
fn what_is_missing_from_a_store_that_nobody_changes_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    drop(writer(directory.path()));
    for path in files(directory.path(), "data") {
        std::fs::remove_file(path).unwrap();
    }
    let pointers = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&pointers);
    let environment = Meanwhile::environment(move |call, name| {
        let is_pointer = call == Call::Open && name == "CURRENT";
        counted.fetch_add(usize::from(is_pointer), Ordering::Relaxed);
    });
    let error = Db::open_in(options(directory.path()).read_only(true), &environment).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert_eq!(pointers.load(Ordering::Relaxed), 3, "before, in it, after");
}

/// Ahead of the reader's first call for the pointer, for the manifest, and for the pointer again.
#[test]
fn a_manifest_that_moves_to_another_tier_begins_the_opening_anew() {
    for (from, to) in [("one", "other"), ("other", "one")] {
        for (name, number) in [("CURRENT", 1), ("MANIFEST", 1), ("CURRENT", 2)] {
            let directory = tempfile::tempdir().unwrap();
            let tier = |name: &str| Tier::new(name, directory.path().join(name));
            let options = Options::new()
                .with_tiers(vec![tier("one"), tier("other")])
                .background_threads(0);
            let db = Db::open(options.clone().manifest_tier(from)).unwrap();
            db.put(b"table", b"1").unwrap();
            db.flush().unwrap();
            db.put(b"log", b"2").unwrap();
            let mut seen = 0;
            let when = move |call: Call, of: &str| {
                seen += usize::from(call == Call::Open && of.starts_with(name));
                seen == number
            };
            let moved = options.clone().manifest_tier(to);
            read_with_while(options, when, move || {
                drop(db);
                Db::open(moved).unwrap().close().unwrap();
            });
        }
    }
}

/// Log segments were deleted by who held the write path: a millisecond or two each, ten times a
/// second where a fast device takes all that it can, and every writer waited for it.
#[test]
fn writers_go_on_while_log_segments_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let (ask, asked) = mpsc::channel();
    let to_writer = ask.clone();
    let (done, written) = mpsc::channel();
    let count = Arc::new(AtomicUsize::new(0));
    let deleted = Arc::clone(&count);
    let environment = Meanwhile::environment(move |call, name| {
        if call == Call::Unlink && name.ends_with(".log") {
            to_writer.send(true).unwrap();
            let waited = written.recv_timeout(Duration::from_secs(20));
            waited.expect("a put ends while a log segment is being deleted");
            deleted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let db = Db::open_in(options(directory.path()), &environment).unwrap();
    let writer = std::thread::spawn({
        let db = db.clone();
        move || {
            while asked.recv().unwrap() {
                db.put(b"meanwhile", b"1").unwrap();
                done.send(()).unwrap();
            }
        }
    });
    for n in 0..64u32 {
        db.put(&n.to_be_bytes(), &[7; 1000]).unwrap();
    }
    db.flush().unwrap();
    assert!(count.load(Ordering::Relaxed) > 0, "no segment was deleted");
    ask.send(false).unwrap();
    writer.join().unwrap();
}
