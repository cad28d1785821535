//! Which blocks get a place in the cache.

use super::*;
use crate::store::{Clock, Sleeper};

/// Of the blocks of a table that is four times as large as a full cache, the shares that have a
/// place after they were read once, and after they were read twice.
fn let_in(clock: Option<Arc<dyn Clock>>, uses_for_one: &[u32]) -> [f64; 2] {
    let entry = |n: u32| (n.to_be_bytes().to_vec(), SeqNo(1), Kind::Put, vec![7; 1024]);
    let entries: Vec<Entry> = (0..4000).map(entry).collect();
    let stored = write(&entries, &Cover::default(), TableWriterOptions::default());
    let context = TableContext::new(Arc::new(BlockCache::new(1 << 20)));
    let context = context.with_uses_for_one(uses_for_one.to_vec());
    let context = match clock {
        Some(clock) => context.with_clock(clock),
        None => context,
    };
    let table = stored.open_in(context).unwrap();
    let read = |block| {
        drop(table.load_block(block, true).unwrap());
        table.is_cached(block)
    };
    let blocks = table.block_count();
    // Until the cache is full, and it is known what reads take.
    for n in 0..5000 {
        let _ = read(n % blocks);
    }
    let share = |times: usize| {
        let missed: Vec<_> = (0..blocks).filter(|&b| !table.is_cached(b)).collect();
        let has_place = missed.iter().filter(|&&b| {
            let reads = (0..times).map(|_| read(b));
            reads.fold(false, |_, has_place| has_place)
        });
        has_place.count() as f64 / missed.len() as f64
    };
    [share(1), share(2)]
}

/// Of blocks that are read once nearly each took the place of another, for as long as it takes to
/// read one of them.
#[test]
fn what_costs_next_to_nothing_to_read_is_let_in_the_second_time() {
    // Reads take no time: all is in memory. Alone, and as the slower of two tiers.
    for uses_for_one in [&[][..], &[1, 14]] {
        let [once, twice] = let_in(Some(Arc::new(Sleeper::default())), uses_for_one);
        assert!(once < 0.3 && twice > 0.95, "{once} {twice}");
        let [once, twice] = let_in(None, uses_for_one);
        assert!(once > 0.95 && twice > 0.95, "{once} {twice}");
    }
}
