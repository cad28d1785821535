//! The block cache: blocks of all tables, by table and position.
//!
//! The map and the eviction (S3-FIFO-like, scan-resistant) are `quick_cache`'s. What is decided
//! here: the number of shards, because an item heavier than a shard's hot part is evicted at once,
//! so a small cache must not be split into small shards; the hash, because keys are two counters
//! that one multiplication spreads well enough; and what a block weighs: all that it really takes,
//! so that the capacity bounds the memory and not only the content. Table numbers are never reused,
//! so blocks of a table that has gone do no harm but one: those that were used often leave last,
//! and where merges replace tables by the second they would fill the cache. So they are forgotten
//! with their table, and what a merge makes of used blocks counts as used. A use counts for what it
//! saves: of blocks that lie on a fast device only one use in several does, and only one block in
//! several is let in ([`BlockCache::get_one_in`]). So the cache fills with what is read often of
//! slow devices, and what is hot and on fast ones anyway does not lie in memory as well unless it
//! is very hot. And what costs next to nothing to read, as the system has it in memory, is let in
//! the second time that it is missed (`cache/missed.rs`). Payloads lie in a mapping of the cache's
//! own (`cache/slots.rs`), and the buffers that they were read into serve the next ones
//! (`cache/buffers.rs`).
//!
//! ```
//! use thermocline::cache::BlockCache;
//! use thermocline_model::TableId;
//! let cache = BlockCache::new(64 << 20); // 64 MiB
//! assert!(cache.get(TableId(7), 0).is_none());
//! assert_eq!(cache.stats().misses, 1);
//! ```

mod buffers;
mod ladder;
mod missed;
mod slots;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

// Not the lock of `crate::sync`: the shards' are taken under it, which are the platform's too.
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use thermocline_model::TableId;

use self::buffers::Buffers;
use self::ladder::{Ladder, RUNGS};
use self::missed::Missed;
pub(crate) use self::slots::Payload;
use self::slots::{BESIDE_BYTES, Budget, Slots};
use crate::table::Block;
use crate::table::counters::Counters;

/// Least bytes a shard has, if the cache has more than one.
const SHARD_BYTES_MIN: u64 = 4 << 20;

/// Most shards.
const SHARDS_MAX: u64 = 64;

/// What a block weighs in the books of the cache itself, in bytes: a node of 48
/// and a slot of 5 in a map that is at least seven sixteenths full, both in arrays
/// that may be twice as large as needed.
const OVERHEAD_BYTES: usize = 112;

/// The share of the capacity that is kept for the memory of blocks that were
/// evicted: one for every two blocks that the cache was planned for, each with
/// the overhead of a block.
const GHOST_SHARE: u64 = 2 * BLOCK_BYTES_GUESS / OVERHEAD_BYTES as u64;

/// The share of the capacity that is left free, so that there mostly is a slot of the
/// size that is asked for.
const SPARE_SHARE: u64 = 32;

/// The least bytes of a part of the slots that has a lock of its own, if there are
/// several.
const SLOTS_BYTES_MIN: u64 = 64 << 20;

/// Most parts of the slots.
const SLOTS_PARTS_MAX: u64 = 8;

/// Blocks of a table in a row that go to the same part of the slots.
const STRETCH_BLOCKS: u32 = 256;

/// The share of the capacity that blocks on the heap may take while slots are wanted:
/// those of sizes that no slots have.
const HEAP_SHARE: u64 = 8;

/// How often room is made for one block before it stays outside.
const ROUNDS_MAX: usize = 4;

/// After so many blocks that are cheap to read it is decided anew whether uses of them are
/// discounted: if no fewer than [`DEAR_MIN`] others came meanwhile.
const OFFERS: u64 = 1024;

/// See [`OFFERS`].
const DEAR_MIN: u64 = 8;

/// A block, roughly, to guess how many there will be.
const BLOCK_BYTES_GUESS: u64 = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    table: u64,
    block: u32,
}

impl Key {
    fn of(table: TableId, block: u32) -> Key {
        let table = table.0;
        Key { table, block }
    }
}

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.table.rotate_left(32) ^ u64::from(self.block));
    }
}

#[derive(Clone, Copy, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        // Folded multiplication: every bit of the word reaches every bit.
        let product = u128::from(word ^ self.0 ^ 0x2545_f491_4f6c_dd1d) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

#[derive(Clone, Copy, Default)]
struct KeyHash;

impl BuildHasher for KeyHash {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher::default()
    }
}

#[derive(Clone, Copy)]
struct BlockWeight;

impl Weighter<Key, Arc<Block>> for BlockWeight {
    fn weight(&self, _: &Key, block: &Arc<Block>) -> u64 {
        (block.payload().memory_bytes() + BESIDE_BYTES) as u64
    }
}

/// Takes the buffers of evicted blocks that nobody reads.
#[derive(Clone)]
struct Reuse(Arc<Buffers>);

impl Lifecycle<Key, Arc<Block>> for Reuse {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: Key, block: Arc<Block>) {
        if let Some(block) = Arc::into_inner(block) {
            self.0.put(block.into_buffer());
        }
    }
}

/// Of a capacity, the bytes for blocks that are inside.
fn content_of(capacity_bytes: u64) -> u64 {
    let missed_bytes = Missed::bytes(missed_of(capacity_bytes));
    capacity_bytes - capacity_bytes / GHOST_SHARE - missed_bytes
}

/// Of a capacity, how many missed blocks are remembered: one for every two that there may be
/// inside.
fn missed_of(capacity_bytes: u64) -> u64 {
    capacity_bytes / BLOCK_BYTES_GUESS / 2
}

/// What the books may weigh where blocks may take so many bytes.
fn weight_of(content_bytes: u64) -> u64 {
    content_bytes - content_bytes / SPARE_SHARE
}

/// What an allocator hands out where `bytes` are asked for: most have four sizes
/// between one power of two and the next.
pub(crate) fn allocation_bytes(bytes: usize) -> usize {
    match bytes {
        0..=64 => bytes.next_multiple_of(8),
        _ => bytes.next_multiple_of(bytes.next_power_of_two() / 8),
    }
}

/// How the cache did since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Blocks found.
    pub hits: u64,
    /// Blocks not found.
    pub misses: u64,
    /// Blocks inside.
    pub blocks: u64,
    /// Bytes of the blocks inside, overhead included.
    pub used_bytes: u64,
    /// Bytes of memory that the cache takes: as above, and for places that wait for blocks.
    pub resident_bytes: u64,
    /// Of these, bytes of memory that the cache has of the system itself.
    pub mapped_bytes: u64,
    /// Bytes it may hold.
    pub capacity_bytes: u64,
}

type Blocks = Cache<Key, Arc<Block>, BlockWeight, KeyHash, Reuse>;

/// Decoded blocks of all tables.
pub struct BlockCache {
    blocks: Option<Blocks>,
    buffers: Arc<Buffers>,
    budget: Arc<Budget>,
    /// Parts of the memory; none where the system gave no mapping, and everything lies
    /// on the heap.
    slots: Vec<Arc<Slots>>,
    /// The largest block that is kept.
    block_bytes_max: u64,
    capacity_bytes: u64,
    /// Of these, bytes that are never lent.
    kept_bytes: u64,
    /// Of these, bytes that are lent; see [`BlockCache::lend`].
    lent_bytes: AtomicU64,
    ladder: Mutex<Ladder>,
    counters: Counters<3>,
    /// Whether uses of blocks that are cheap to read are discounted.
    discounts: AtomicBool,
    /// Blocks that came from devices so fast that not all are kept.
    offered: AtomicU64,
    /// Others, since it was last decided whether to discount.
    dear: AtomicU64,
    /// The most blocks that were inside when some were forgotten: the books keep
    /// the places of all of them.
    blocks_most: AtomicU64,
    missed: Missed,
}

const HITS: usize = 0;
const MISSES: usize = 1;
/// Hits that do not all count as uses.
const DISCOUNTED: usize = 2;

impl BlockCache {
    /// A cache of at most `capacity_bytes`, of which a quarter is never lent; 0 switches it off.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> BlockCache {
        BlockCache::keeping(capacity_bytes - capacity_bytes / 4 * 3, capacity_bytes)
    }

    /// A cache of at most `capacity_bytes`, of which `kept_bytes` are never lent; 0 switches it
    /// off.
    #[must_use]
    pub fn keeping(kept_bytes: u64, capacity_bytes: u64) -> BlockCache {
        let shards = (capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        // Rounded down: the cache rounds up, which would make shards too small.
        let shards = 1usize << shards.ilog2();
        let content_bytes = content_of(capacity_bytes);
        let shard = |of_all: u64| of_all / shards as u64;
        let blocks = capacity_bytes / BLOCK_BYTES_GUESS;
        // One evicted block is remembered for every two that there may be.
        let ladder = Ladder::new(shard(weight_of(content_bytes)), shard(blocks / 2));
        let (weight, remembered) = ladder.whole();
        let all = |of_shard: u64| of_shard * shards as u64;
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(usize::try_from(all(2 * remembered)).unwrap_or(usize::MAX))
            .ghost_allocation(0.5)
            .weight_capacity(all(weight))
            .build();
        let buffers = Arc::new(Buffers::new(capacity_bytes));
        let blocks = match options {
            Ok(options) if capacity_bytes > 0 => Some(Cache::with_options(
                options,
                BlockWeight,
                KeyHash,
                Reuse(Arc::clone(&buffers)),
            )),
            _ => None,
        };
        let budget = Arc::new(Budget::new(content_bytes));
        let parts = (content_bytes / SLOTS_BYTES_MIN).clamp(1, SLOTS_PARTS_MAX);
        let part = |_| Slots::new(content_bytes / parts, &budget);
        BlockCache {
            blocks,
            buffers,
            slots: (0..parts).map_while(part).collect(),
            budget,
            block_bytes_max: content_bytes / shards as u64 / 2,
            capacity_bytes,
            kept_bytes,
            lent_bytes: AtomicU64::new(0),
            ladder: Mutex::new(ladder),
            counters: Counters::default(),
            discounts: AtomicBool::new(false),
            offered: AtomicU64::new(0),
            dear: AtomicU64::new(0),
            blocks_most: AtomicU64::new(0),
            missed: Missed::new(usize::try_from(missed_of(capacity_bytes)).unwrap_or(0)),
        }
    }

    /// Block `block` of `table`, if it is here.
    #[inline]
    #[must_use]
    pub fn get(&self, table: TableId, block: u32) -> Option<Arc<Block>> {
        self.get_one_in(1, table, block)
    }

    /// The same, where so many uses count as one.
    #[inline]
    #[must_use]
    pub fn get_one_in(&self, uses: u32, table: TableId, block: u32) -> Option<Arc<Block>> {
        let key = Key::of(table, block);
        let blocks = self.blocks.as_ref()?;
        if uses <= 1 || !self.discounts.load(Ordering::Relaxed) {
            let found = blocks.get(&key);
            self.counters
                .add(if found.is_some() { HITS } else { MISSES });
            return found;
        }
        let found = blocks.peek(&key);
        if found.is_none() {
            self.counters.add(MISSES);
        } else if self
            .counters
            .add(DISCOUNTED)
            .is_multiple_of(u64::from(uses))
        {
            drop(blocks.get(&key));
        }
        found
    }

    /// Whether block `block` of `table` is here. Does not count as a use.
    #[must_use]
    pub fn contains(&self, table: TableId, block: u32) -> bool {
        let key = Key::of(table, block);
        self.blocks.as_ref().is_some_and(|b| b.peek(&key).is_some())
    }

    /// Keeps `content`, block `block` of `table`, at the cost of others; unless it is too
    /// large, or readers hold so many that there is no room.
    pub fn insert(&self, table: TableId, block: u32, content: Block) -> Arc<Block> {
        self.insert_one_in(1, table, block, content)
    }

    /// As [`BlockCache::insert`], where so many uses count as one: others make room for one
    /// block in so many.
    pub fn insert_one_in(
        &self,
        uses: u32,
        table: TableId,
        block: u32,
        mut content: Block,
    ) -> Arc<Block> {
        let key = Key::of(table, block);
        let Some(blocks) = &self.blocks else {
            return Arc::new(content);
        };
        if !self.lets_in(uses, blocks) {
            return Arc::new(content);
        }
        let kept = self.house(blocks, key, &mut content);
        let content = Arc::new(content);
        if kept {
            blocks.insert(key, Arc::clone(&content));
        }
        content
    }

    /// Whether a block of which so many uses count as one is let in. Sees to it that uses are
    /// only discounted while others are asked for that are dearer to read.
    fn lets_in(&self, uses: u32, blocks: &Blocks) -> bool {
        if uses <= 1 {
            self.dear.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let before = self.offered.fetch_add(1, Ordering::Relaxed);
        if (before + 1).is_multiple_of(OFFERS) {
            let dear = self.dear.swap(0, Ordering::Relaxed);
            self.discounts.store(dear >= DEAR_MIN, Ordering::Relaxed);
        }
        before.is_multiple_of(u64::from(uses))
            || !self.discounts.load(Ordering::Relaxed)
            || self.has_room(blocks)
    }

    /// Whether a block is let in without another leaving.
    fn has_room(&self, blocks: &Blocks) -> bool {
        let capacity = self.capacity_bytes - self.lent_bytes.load(Ordering::Relaxed);
        let used_bytes = match self.slots.is_empty() {
            true => blocks.weight(),
            // Without a look at each shard.
            false => self.budget.used_bytes(),
        };
        used_bytes < capacity - capacity / 8
    }

    /// Notes that block `block` of `table` was missed. Whether it was of late, or there is room for
    /// it anyway.
    pub(crate) fn is_missed_again(&self, table: TableId, block: u32) -> bool {
        let key = Key::of(table, block);
        let is_again = self.missed.again(KeyHash.hash_one(key));
        is_again || self.blocks.as_ref().is_some_and(|b| self.has_room(b))
    }

    /// As [`BlockCache::insert`], for a block that counts as used once already: as it takes
    /// the place of one that is here, or costs more to read than others.
    pub fn insert_used(&self, table: TableId, block: u32, content: Block) -> Arc<Block> {
        let content = self.insert(table, block, content);
        if let Some(blocks) = &self.blocks {
            let key = Key::of(table, block);
            drop(blocks.get(&key));
        }
        content
    }

    /// Lets go of half as many blocks on the heap as there may be while slots are wanted.
    fn forget_heap(&self, blocks: &Blocks) {
        let until = self.capacity_bytes / HEAP_SHARE / 2;
        for (key, block) in blocks.iter().filter(|(_, b)| b.payload().is_charged()) {
            drop(block);
            drop(blocks.remove(&key));
            if self.budget.heap_bytes() <= until {
                break;
            }
        }
    }

    /// Moves the payload of `content` into memory of the cache. Whether there was room.
    fn house(&self, blocks: &Blocks, key: Key, content: &mut Block) -> bool {
        let payload = content.payload_mut();
        if payload.memory_bytes() as u64 > self.block_bytes_max {
            return false;
        }
        // Blocks that follow each other lie beside each other, as far as they are loaded so:
        // a scan then runs as fast as the processor fetches ahead.
        let stretch = Key {
            block: key.block / STRETCH_BLOCKS,
            ..key
        };
        let hash = KeyHash.hash_one(stretch) as usize;
        let Some(slots) = self.slots.get(hash % self.slots.len().max(1)) else {
            return true;
        };
        let suits = slots.suit(payload.len());
        for _ in 0..ROUNDS_MAX {
            if !suits && slots.charge(payload) {
                return true;
            }
            if suits && let Some(moved) = slots.put(key, payload) {
                let left = std::mem::replace(payload, moved);
                self.buffers.put(left.into_vec());
                return true;
            }
            if suits && self.budget.heap_bytes() > self.capacity_bytes / HEAP_SHARE {
                self.forget_heap(blocks);
                continue;
            }
            for key in slots.most_idle() {
                // A newer copy of that block may lie elsewhere; it goes too, which is
                // rare and costs a read.
                drop(blocks.remove(&key));
            }
        }
        false
    }

    /// Lets go of the first `count` blocks of `table`, which nobody will ask for any
    /// more.
    pub fn forget(&self, table: TableId, count: usize) {
        if let Some(blocks) = &self.blocks {
            self.blocks_most
                .fetch_max(blocks.len() as u64, Ordering::Relaxed);
            for block in 0..u32::try_from(count).unwrap_or(u32::MAX) {
                let key = Key::of(table, block);
                drop(blocks.remove(&key));
            }
        }
    }

    /// A buffer for a block of `bytes`: that of an evicted one, with what it held, if there is one.
    pub(crate) fn buffer(&self, bytes: usize) -> Vec<u8> {
        self.buffers.take(bytes)
    }

    /// How it did.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let blocks = self.blocks.as_ref().map_or(0, |b| b.len() as u64);
        let places = self.blocks_most.load(Ordering::Relaxed);
        let empty_places_bytes = places.saturating_sub(blocks) * OVERHEAD_BYTES as u64;
        let used_bytes = self.blocks.as_ref().map_or(0, Cache::weight) + empty_places_bytes;
        CacheStats {
            hits: self.counters.sum(HITS) + self.counters.sum(DISCOUNTED),
            misses: self.counters.sum(MISSES),
            blocks,
            used_bytes,
            resident_bytes: match self.slots.is_empty() {
                true => used_bytes,
                false => self.budget.used_bytes() + empty_places_bytes,
            },
            mapped_bytes: self.slots.iter().map(|s| s.resident_bytes()).sum(),
            capacity_bytes: self.capacity_bytes - self.lent_bytes.load(Ordering::Relaxed),
        }
    }

    /// Does with `bytes` less than its capacity from now on, and lets go of blocks until it does; 0
    /// gives it all back. Says how many bytes it really does without: fewer where readers hold
    /// blocks. Never more than [`BlockCache::keeping`] lets it. Requires: one call at a time.
    pub fn lend(&self, bytes: u64) -> u64 {
        let Some(blocks) = &self.blocks else {
            return 0;
        };
        let bytes = bytes.min(self.capacity_bytes.saturating_sub(self.kept_bytes));
        let before = self.lent_bytes.load(Ordering::Relaxed);
        // The books keep the places of blocks that go: so many of those that were there.
        let places = self.blocks_most.load(Ordering::Relaxed);
        let places = places.max(blocks.len() as u64);
        self.blocks_most.store(places, Ordering::Relaxed);
        let gone = bytes as f64 / self.capacity_bytes as f64;
        let places_bytes = (places as f64 * gone) as u64 * OVERHEAD_BYTES as u64;
        let content_bytes = content_of(self.capacity_bytes).saturating_sub(bytes + places_bytes);
        self.budget.allow(content_bytes);
        self.tell_books(blocks, content_bytes);
        let short = self.make_room(blocks, content_bytes);
        let lent = bytes.saturating_sub(short).max(before.min(bytes));
        self.lent_bytes.store(lent, Ordering::Relaxed);
        lent
    }

    /// Has the books go by so many bytes, so that what leaves is what they would let go of.
    fn tell_books(&self, blocks: &Blocks, content_bytes: u64) {
        let wanted = content_bytes.saturating_mul(RUNGS) / content_of(self.capacity_bytes).max(1);
        let wanted = wanted.clamp(1, RUNGS);
        let mut ladder = self.ladder.lock();
        for weight in ladder.go_to(wanted) {
            blocks.set_capacity(weight * blocks.num_shards() as u64);
        }
    }

    /// Lets go of blocks until what slots and heap take is no more than `content_bytes`. Says
    /// by how many bytes it is.
    fn make_room(&self, blocks: &Blocks, content_bytes: u64) -> u64 {
        let over = || self.budget.used_bytes().saturating_sub(content_bytes);
        // A chunk that is given up is given back by the next look at its part.
        let mut idle_looks = 0;
        for slots in self.slots.iter().cycle() {
            let before = over();
            if before == 0 || idle_looks > 2 * self.slots.len() {
                break;
            }
            for key in slots.most_idle() {
                drop(blocks.remove(&key));
            }
            idle_looks = if over() < before { 0 } else { idle_looks + 1 };
        }
        over()
    }

    /// Lets go of every block.
    pub fn empty(&self) {
        if let Some(blocks) = &self.blocks {
            blocks.clear();
        }
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stats().fmt(f)
    }
}

#[cfg(test)]
mod tests;
