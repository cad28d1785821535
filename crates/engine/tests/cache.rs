//! What the block cache holds while merges replace tables.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use thermocline::{Db, Options};

/// The story: under YCSB A on emulated devices a cache that answered a third of the
/// reads before the first write answered one in twenty-five. Merges replaced tables
/// by the second, and the blocks of tables that had gone stayed in the cache, those
/// that were used most the longest.
#[test]
fn blocks_of_replaced_tables_leave_the_cache_and_what_took_their_place_is_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path())
        .background_threads(0)
        .block_cache_bytes(64 << 20);
    let db = Db::open(options).unwrap();
    let key = |i: u32| format!("key{i:06}").into_bytes();
    for i in 0..5000 {
        db.put(&key(i), &[b'a'; 200]).unwrap();
    }
    db.compact_range(None, None).unwrap();
    let read_all = || {
        for i in 0..5000 {
            assert!(db.get(&key(i)).unwrap().is_some());
        }
    };
    read_all();
    let whole = db.stats().cache_bytes;
    assert!(whole > 1 << 20, "{whole}");
    for round in 0..5u8 {
        for i in (0..5000).step_by(7) {
            db.put(&key(i), &[round; 200]).unwrap();
        }
        db.compact_range(None, None).unwrap();
        // Neither empty nor the old beside the new.
        let held = db.stats().cache_bytes;
        assert!(
            held > whole / 2 && held < whole + whole / 2,
            "{held} of {whole}"
        );
        let misses = db.stats().cache_misses;
        read_all();
        let misses = db.stats().cache_misses - misses;
        assert!(misses < 20, "{misses} misses");
    }
}
