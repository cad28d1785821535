//! Bulk loads beside ordinary writes.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use thermocline::{Db, Options};

/// The story: a load that finds entries in the memtables flushes them first,
/// with the write path held; the flush then waited for the write path to delete
/// log segments, and so both waited for ever.
#[test]
fn a_bulk_load_over_unflushed_entries_ends_and_wins() {
    for background_threads in [0, 1, 2] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::at(directory.path()).background_threads(background_threads);
        let db = Db::open(options.clone()).unwrap();
        db.put(b"b", b"written").unwrap();
        db.put(b"d", b"written").unwrap();
        let mut load = db.bulk_load().unwrap();
        load.add(b"a", b"loaded").unwrap();
        load.add(b"b", b"loaded").unwrap();
        assert_eq!(load.finish().unwrap(), 2);
        db.put(b"a", b"written later").unwrap();
        let check = |db: &Db| {
            let get = |key: &[u8]| db.get(key).unwrap().map(|v| v.to_vec());
            assert_eq!(get(b"a").unwrap(), b"written later");
            assert_eq!(get(b"b").unwrap(), b"loaded");
            assert_eq!(get(b"d").unwrap(), b"written");
        };
        check(&db);
        db.close().unwrap();
        check(&Db::open(options).unwrap());
    }
}
