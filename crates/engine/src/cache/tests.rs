use std::sync::Arc;

use thermocline_model::TableId;

use super::BlockCache;
use crate::table::Block;

fn dice(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x >> 31
}

/// What block `number` holds, in `bytes` bytes.
fn content(number: u32, bytes: usize) -> Vec<u8> {
    number
        .to_le_bytes()
        .into_iter()
        .cycle()
        .take(bytes)
        .collect()
}

fn is_of(block: &Block, number: u32) -> bool {
    let bytes = block.bytes();
    bytes
        .iter()
        .zip(number.to_le_bytes().iter().cycle())
        .all(|(a, b)| a == b)
}

const TABLE: TableId = TableId(7);

fn put(cache: &BlockCache, number: u32, bytes: usize) -> Arc<Block> {
    cache.insert(TABLE, number, Block::of_bytes(content(number, bytes)))
}

/// As `put`; and used, as what is not leaves first.
fn put_and_use(cache: &BlockCache, number: u32, bytes: usize) {
    drop(put(cache, number, bytes));
    drop(cache.get(TABLE, number));
}

/// How many of the last `count` blocks before `end` are there. All must be as they were.
fn present(cache: &BlockCache, end: u32, count: u32) -> u32 {
    let found = |number: &u32| match cache.get(TABLE, *number) {
        Some(block) => {
            assert!(is_of(&block, *number), "block {number}");
            true
        }
        None => false,
    };
    (end - count..end).filter(found).count() as u32
}

#[test]
fn the_cache_keeps_its_bound_whatever_sizes_come_after_each_other() {
    for capacity_bytes in [1 << 20, 8 << 20, 40 << 20] {
        let cache = BlockCache::new(capacity_bytes);
        let (mut seed, mut next) = (3, 0);
        for bytes in [4200, 9000, 700, 33_000, 4100, 100, 16_600] {
            let blocks = (capacity_bytes / bytes * 2) as u32;
            for _ in 0..blocks {
                let around = bytes * 3 / 4 + dice(&mut seed) % (bytes / 2);
                put_and_use(&cache, next, around as usize);
                next += 1;
                let stats = cache.stats();
                assert!(stats.resident_bytes <= capacity_bytes, "{bytes}: {stats:?}");
            }
            // What came last is there: the cache serves the new size with all of
            // its memory, not with what the old one left.
            let many = blocks / 5;
            let there = present(&cache, next, many);
            assert!(
                there >= many / 9,
                "{there} of {many} of {bytes} in {capacity_bytes}"
            );
            let used_bytes = cache.stats().resident_bytes;
            assert!(
                used_bytes >= capacity_bytes / 4 * 3,
                "{used_bytes} of {capacity_bytes}"
            );
        }
    }
}

#[test]
fn blocks_that_readers_hold_stay_as_they_are_and_within_the_bound() {
    let capacity_bytes = 4 << 20;
    let cache = BlockCache::new(capacity_bytes);
    let held: Vec<Arc<Block>> = (0..4000).map(|n| put(&cache, n, 4000)).collect();
    for number in 4000..9000 {
        put(&cache, number, 2500 + number as usize % 3000);
        assert!(cache.stats().resident_bytes <= capacity_bytes);
    }
    for (number, block) in held.iter().enumerate() {
        assert!(is_of(block, number as u32));
    }
    drop(held);
    let last = 20_000;
    for number in 9000..last {
        put_and_use(&cache, number, 4000);
    }
    assert!(present(&cache, last, 200) >= 100);
}

#[test]
fn what_is_lent_is_not_there_until_it_is_given_back() {
    for (capacity_bytes, bytes) in [(1 << 20, 700), (8 << 20, 4000), (140 << 20, 16_000)] {
        let cache = BlockCache::new(capacity_bytes);
        let mut next = 0;
        let mut fill = || {
            for _ in 0..capacity_bytes / bytes * 2 {
                put_and_use(&cache, next, bytes as usize);
                next += 1;
                let stats = cache.stats();
                assert!(stats.resident_bytes <= stats.capacity_bytes, "{stats:?}");
            }
            cache.stats().resident_bytes
        };
        let full = fill();
        for part in [3, 6, 1, 0, 7] {
            let asked = capacity_bytes / 8 * part;
            let mut lent = cache.lend(asked);
            for _ in 0..64 {
                lent = cache.lend(asked);
            }
            // Never more than three quarters.
            assert_eq!(lent, asked.min(capacity_bytes / 4 * 3));
            let stats = cache.stats();
            assert_eq!(stats.capacity_bytes, capacity_bytes - lent);
            assert!(stats.resident_bytes <= stats.capacity_bytes, "{stats:?}");
            let used = fill();
            assert!(used >= (full - lent) / 3, "{used} of {full} less {lent}");
        }
    }
    assert_eq!(BlockCache::new(0).lend(1 << 20), 0);
    let keeping = BlockCache::keeping(1 << 20, 8 << 20);
    assert_eq!(keeping.lend(8 << 20), 7 << 20);
    assert_eq!(BlockCache::keeping(2 << 20, 1 << 20).lend(1 << 20), 0);
}

#[test]
fn what_the_books_keep_for_blocks_that_go_is_not_lent() {
    let capacity_bytes = 8 << 20;
    let cache = BlockCache::new(capacity_bytes);
    // Something is lent all the time, first of a cache without blocks.
    assert_eq!(cache.lend(capacity_bytes / 4 * 3), capacity_bytes / 4 * 3);
    cache.lend(capacity_bytes / 8);
    for number in 0..20_000 {
        put_and_use(&cache, number, 700);
    }
    cache.forget(TABLE, 1);
    cache.lend(capacity_bytes / 4 * 3);
    let stats = cache.stats();
    assert!(
        stats.blocks > 0 && stats.resident_bytes <= stats.capacity_bytes,
        "{stats:?}"
    );
}

#[test]
fn what_readers_hold_is_not_lent() {
    let capacity_bytes = 4 << 20;
    let cache = BlockCache::new(capacity_bytes);
    let held: Vec<Arc<Block>> = (0..4000).map(|n| put(&cache, n, 4000)).collect();
    let most = capacity_bytes / 4 * 3;
    let lent = cache.lend(most);
    assert!(lent < most, "{lent}");
    assert!(cache.stats().resident_bytes <= capacity_bytes - lent);
    for (number, block) in held.iter().enumerate() {
        assert!(is_of(block, number as u32));
    }
    drop(held);
    assert_eq!(cache.lend(most), most);
    assert!(cache.stats().resident_bytes <= capacity_bytes - most);
}

#[test]
fn a_block_too_large_for_the_cache_is_given_back_and_not_kept() {
    let cache = BlockCache::new(4 << 20);
    let small = put(&cache, 1, 4000);
    let large = put(&cache, 2, 3 << 20);
    assert!(is_of(&large, 2) && is_of(&small, 1));
    assert!(cache.get(TABLE, 2).is_none());
    assert!(cache.get(TABLE, 1).is_some());
    // Without capacity, nothing is kept at all.
    let none = BlockCache::new(0);
    assert!(is_of(&put(&none, 1, 4000), 1));
    assert!(none.get(TABLE, 1).is_none());
}

#[test]
fn threads_read_what_they_put_while_others_evict_it() {
    let cache = BlockCache::new(2 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let cache = &cache;
            scope.spawn(move || {
                let mut seed = thread;
                let mut held = Vec::new();
                for turn in 0..30_000 {
                    let number = (dice(&mut seed) % 2000) as u32;
                    let found = cache.get(TABLE, number);
                    let bytes = 300 + dice(&mut seed) as usize % 6000;
                    let block = found.unwrap_or_else(|| put(cache, number, bytes));
                    assert!(is_of(&block, number));
                    held.push((number, block));
                    if held.len() > 20 {
                        let (number, block) = held.swap_remove(turn % held.len());
                        assert!(is_of(&block, number));
                    }
                }
            });
        }
    });
    assert!(cache.stats().resident_bytes <= 2 << 20);
}

/// Blocks of a fast table are asked for four times as often as those of a slow one, which cost
/// sixteen times as much to read: the slow one's are worth more, all of them.
#[test]
fn uses_count_for_what_they_save() {
    let (fast, slow) = (TableId(1), TableId(2));
    // Of 4000 blocks about 1800 have room.
    let run = |uses: u32| {
        let (cache, mut seed) = (BlockCache::new(8 << 20), 11);
        let mut misses = [0; 2];
        for round in 0..200_000 {
            // At first only the fast one is read, and fills the cache.
            let is_slow = round > 40_000 && dice(&mut seed).is_multiple_of(5);
            let number = (dice(&mut seed) % 2000) as u32;
            let content = || Block::of_bytes(content(number, 4000));
            let (table, uses) = if is_slow { (slow, 1) } else { (fast, uses) };
            if let Some(found) = cache.get_one_in(uses, table, number) {
                assert!(is_of(&found, number));
                continue;
            }
            misses[usize::from(is_slow)] += 1;
            if is_slow {
                drop(cache.insert_used(table, number, content()));
            } else {
                drop(cache.insert_one_in(uses, table, number, content()));
            }
        }
        misses
    };
    let (by_cost, alike) = (run(16), run(1));
    let few = by_cost[1] < 12_000 && by_cost[0] > 100_000;
    assert!(few && alike[1] > 20_000, "{by_cost:?} {alike:?}");
}

/// What is asked for very often is kept all the same, and an empty cache takes all.
#[test]
fn few_uses_of_many_are_still_uses() {
    let cache = BlockCache::new(1 << 20);
    for number in 0..100 {
        drop(cache.insert_one_in(64, TABLE, number, Block::of_bytes(content(number, 4000))));
    }
    assert_eq!(present(&cache, 100, 100), 100);
    let mut found = 0;
    for round in 0..30_000u32 {
        let other = 1000 + round;
        // So that there is something to be discounted for.
        drop(cache.insert_one_in(64, TABLE, 1000 + round, Block::of_bytes(content(0, 4000))));
        drop(cache.insert_used(TableId(1), other, Block::of_bytes(content(other, 4000))));
        match cache.get_one_in(64, TABLE, 500) {
            Some(_) => found += 1,
            None => drop(cache.insert_one_in(64, TABLE, 500, Block::of_bytes(content(500, 4000)))),
        }
    }
    assert!(found > 1000, "{found}");
}

/// How many of many uses of 4 KiB blocks found theirs: most go to few blocks, and one in three to
/// one that comes once and not again.
fn hits_of(cache: &BlockCache) -> u64 {
    let (mut seed, mut hits) = (5, 0);
    for n in 0..120_000u32 {
        let share = dice(&mut seed) as f64 / (1u64 << 33) as f64;
        let number = match n % 3 {
            0 => 1_000_000 + n,
            _ => (20_000f64).powf(share) as u32,
        };
        match cache.get(TABLE, number) {
            Some(_) if n > 40_000 => hits += 1,
            Some(_) => {}
            None => drop(put(cache, number, 4000)),
        }
    }
    hits
}

/// Where less memory was left than the books knew of, chunks that were used least went and not the
/// blocks that the books would have let go of: a cache of 14 MB found less in a trace than one of
/// 8 MB.
#[test]
fn a_cache_that_has_lent_finds_as_much_as_one_that_is_as_small() {
    let plain = hits_of(&BlockCache::new(4 << 20));
    let cache = BlockCache::keeping(2 << 20, 8 << 20);
    assert_eq!(cache.lend(4 << 20), 4 << 20);
    let lent = hits_of(&cache);
    assert!(lent * 100 > plain * 97, "{lent} of {plain}");
    // By turns, as memtables fill and empty.
    let cache = BlockCache::keeping(2 << 20, 8 << 20);
    let mut seed = 9;
    for _ in 0..30_000 {
        cache.lend(dice(&mut seed) % (4 << 20));
    }
    cache.lend(4 << 20);
    let again = hits_of(&cache);
    assert!(again * 100 > plain * 97, "{again} of {plain}");
    println!("{plain} hits, lent {lent}, lent again and again {again}");
}
