//! The sorted list of a memtable: lock-free to read, concurrent to insert into,
//! and never removed from.
//!
//! A skiplist is slow because each comparison fetches a node, and the node that
//! stops a level is fetched only to be turned down. Here a link carries, beside
//! the 32-bit place of the next node, 32 order-preserving bits of that node's
//! key, both in one atomic word: most steps are decided before the node is
//! touched, and a node is fetched only to stand on it or on a tie. With
//! downward steps this cheap, every second node rises a level (not the usual
//! every fourth): it makes for a third fewer nodes stood on.
//!
//! What a search does touch lies together: a node is one word and its links, 24
//! bytes on average, in memory of its own; the word leads to the entry (header,
//! key, value), which is fetched only on a tie and at the end. So the nodes of
//! a memtable of tens of MiB stay in the processor's caches.
//!
//! Invariants: a node is whole before the first link to it is stored (release),
//! and links are read with acquire; a node is linked bottom up, so one met at a
//! level is linked at all below; nodes are never moved or freed before the list.
//! A second insert of the same key and sequence number (log replay) is ignored.

use std::cmp::Ordering as Order;
use std::ptr::NonNull;
use std::sync::Arc;

use thermocline_model::key::{Kind, Prefix, SeqNo};

use super::arena::{Arena, ArenaPool, Place, prefetch};
use super::narrow;
use crate::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// Enough for 2^20 entries at the best speed, and for any number at a lower one.
const HEIGHT_MAX: usize = 20;

/// The link after the last node: sorts after every key, and place 0 is the
/// head's, to which no link leads.
const END: u64 = (u32::MAX as u64) << 32;

/// Marks a header's `key_bytes`: the value lies in an allocation of its own.
const LARGE: u32 = 1 << 31;

#[repr(C)]
struct Header {
    /// Sequence number above, kind in the lowest byte.
    tag: u64,
    /// With `LARGE`.
    key_bytes: u32,
    value_bytes: u32,
}

/// Bytes of a header; the key follows.
const HEADER_BYTES: usize = size_of::<Header>();

/// The address of a node: one word on its entry, then its links.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Node(NonNull<u64>);

impl Node {
    /// The place of the entry below, the second half of the key's number above.
    ///
    /// Requires: the node is of a living list, and not its head.
    #[inline(always)]
    unsafe fn word(self) -> u64 {
        // SAFETY: written before the node could be found, and not since.
        unsafe { self.0.read() }
    }

    /// Requires: the node is of a living list and `level` is below its height.
    #[inline(always)]
    unsafe fn link<'a>(self, level: usize) -> &'a AtomicU64 {
        // SAFETY: the links follow the word.
        unsafe { self.0.add(1 + level).cast::<AtomicU64>().as_ref() }
    }
}

/// The address of an entry: header, key, value.
#[derive(Clone, Copy)]
struct Entry(NonNull<u8>);

impl Entry {
    /// Requires: the entry is of a node of a living list.
    #[inline(always)]
    unsafe fn header<'a>(self) -> &'a Header {
        // SAFETY: written before the node could be found, and not since.
        unsafe { self.0.cast::<Header>().as_ref() }
    }

    /// Requires: as `header`.
    #[inline(always)]
    unsafe fn key<'a>(self) -> &'a [u8] {
        // SAFETY: the key follows the header.
        unsafe {
            let len = (self.header().key_bytes & !LARGE) as usize;
            std::slice::from_raw_parts(self.0.add(HEADER_BYTES).as_ptr(), len)
        }
    }

    /// Requires: as `header`.
    #[inline(always)]
    unsafe fn value<'a>(self) -> &'a [u8] {
        // SAFETY: the value, or the address of it, follows the key.
        unsafe {
            let header = self.header();
            let len = header.value_bytes as usize;
            let key_bytes = (header.key_bytes & !LARGE) as usize;
            let after = self.0.add(HEADER_BYTES + key_bytes);
            if header.key_bytes & LARGE == 0 {
                std::slice::from_raw_parts(after.as_ptr(), len)
            } else {
                let large = after.cast::<NonNull<u8>>().read_unaligned();
                std::slice::from_raw_parts(large.as_ptr(), len)
            }
        }
    }

    /// Requires: as `header`, of a list that lives as long as `'a`.
    #[inline(always)]
    unsafe fn hit<'a>(self) -> Hit<'a> {
        // SAFETY: as required.
        unsafe {
            let tag = self.header().tag;
            Hit {
                seq: SeqNo(tag >> 8),
                kind: Kind::from_byte(tag as u8)
                    .expect("a header's kind was written from a `Kind`"),
                value: self.value(),
            }
        }
    }
}

/// What a search looks for: the first entry at or after `key` and `seq`.
struct Target<'k> {
    /// The 32 bits of the key, where a link holds those of its node.
    floor: u64,
    /// What the word of its node would hold above.
    second: u32,
    key: &'k [u8],
    seq: u64,
}

impl<'k> Target<'k> {
    #[inline(always)]
    fn new(mode: u8, prefix: u64, key: &'k [u8], seq: u64) -> Target<'k> {
        let (first, second) = narrow::split(mode, prefix);
        Target {
            floor: u64::from(first) << 32,
            second,
            key,
            seq,
        }
    }
}

/// Where a node lies at each level: the last node before it and the link there.
struct Splice {
    before: [Node; HEIGHT_MAX],
    links: [u64; HEIGHT_MAX],
}

/// An entry as found in the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit<'a> {
    /// Its sequence number.
    pub seq: SeqNo,
    /// Put or delete.
    pub kind: Kind,
    /// Its value; empty for a delete.
    pub value: &'a [u8],
}

pub(super) struct SkipList {
    /// Nodes, without their entries: all that most steps of a search touch.
    nodes: Arena,
    entries: Arena,
    head: Node,
    prefix: Prefix,
    /// How numbers of keys are narrowed: a mode of the module of that name.
    narrow: AtomicU8,
    /// Levels in use.
    height: AtomicUsize,
    /// Larger values get an allocation of their own.
    inline_bytes_max: usize,
}

// SAFETY: nodes live in the arena, which the list owns; they are shared only
// through atomic links and never written after the first link to them.
unsafe impl Send for SkipList {}
// SAFETY: as above.
unsafe impl Sync for SkipList {}

impl SkipList {
    /// A list with room for `bytes` before it needs further mappings.
    pub(super) fn new(bytes: usize, prefix: Prefix, pool: Arc<ArenaPool>) -> SkipList {
        let nodes = Arena::new(bytes / 2, Arc::clone(&pool));
        let entries = Arena::new(bytes, pool);
        let place = nodes.allocate(8 + HEIGHT_MAX * 8);
        debug_assert_eq!(place.0, 0, "the head lies where links never lead");
        let head = Node(nodes.address(place).cast());
        for i in 0..=HEIGHT_MAX {
            // SAFETY: inside the allocation, aligned, and not shared yet.
            unsafe { head.0.add(i).write(END) };
        }
        SkipList {
            nodes,
            entries,
            head,
            prefix,
            narrow: AtomicU8::new(narrow::UNKNOWN),
            height: AtomicUsize::new(1),
            inline_bytes_max: (bytes / 8).min(1 << 20),
        }
    }

    /// Inserts an entry, calling `before_visible` once before anyone can find
    /// it. An entry of the same key and number is left as it is.
    #[inline]
    pub(super) fn insert(
        &self,
        key: &[u8],
        seq: SeqNo,
        kind: Kind,
        value: &[u8],
        before_visible: impl FnOnce(),
    ) {
        let prefix = self.prefix.of(key);
        let mode = self.narrow_for_insert(key, prefix);
        let target = Target::new(mode, prefix, key, seq.0);
        let height = height_of(seq);
        // Written before the search, so that the writes reach memory meanwhile.
        let (node, place) = self.make_node(&target, kind, value, height);
        let mut splice = Splice {
            before: [self.head; HEIGHT_MAX],
            links: [END; HEIGHT_MAX],
        };
        let mut levels = self.height.load(Ordering::Relaxed);
        if height > levels {
            self.height.fetch_max(height, Ordering::Relaxed);
            levels = height;
        }
        if self.find(&target, levels, &mut splice) {
            self.entries.uncount_entry();
            return;
        }
        before_visible();
        let word = target.floor | u64::from(place.0);
        for level in 0..height {
            loop {
                let next = splice.links[level];
                // SAFETY: the node is ours, and `height` links high; the one
                // before it was met at `level`.
                let linked = unsafe {
                    node.link(level).store(next, Ordering::Relaxed);
                    splice.before[level].link(level).compare_exchange(
                        next,
                        word,
                        Ordering::Release,
                        Ordering::Relaxed,
                    )
                };
                if linked.is_ok() {
                    break;
                }
                // Another thread inserted here: look on from where we stood.
                let same = self.find_at(&target, level, &mut splice);
                if same && level == 0 {
                    self.entries.uncount_entry();
                    return;
                }
            }
        }
    }

    /// The first entry of `key` with a sequence number up to `seq`.
    #[inline]
    pub(super) fn get(&self, key: &[u8], seq: SeqNo) -> Option<Hit<'_>> {
        let node = self.node_of(self.seek_link(key, seq))?;
        let entry = self.entry(node);
        // SAFETY: the node was reached by links of this list.
        unsafe { (entry.key() == key).then(|| entry.hit()) }
    }

    /// As `get`, with a value that keeps the list alive.
    pub(super) fn get_pinned(
        self: &Arc<Self>,
        key: &[u8],
        seq: SeqNo,
    ) -> Option<(SeqNo, Kind, MemValue)> {
        let hit = self.get(key, seq)?;
        let value = MemValue {
            bytes: NonNull::from(hit.value),
            _list: Arc::clone(self),
        };
        Some((hit.seq, hit.kind, value))
    }

    /// The key of the first entry.
    pub(super) fn first_key(&self) -> Option<&[u8]> {
        let node = self.first()?;
        // SAFETY: the node was reached by links of this list.
        Some(unsafe { self.entry(node).key() })
    }

    /// The key of the last entry.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        let node = self.last()?;
        // SAFETY: the node was reached by links of this list.
        Some(unsafe { self.entry(node).key() })
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.bytes() + self.entries.bytes()
    }

    /// See [`Arena::resident_bytes`].
    pub(super) fn resident_bytes(&self) -> usize {
        self.nodes.resident_bytes() + self.entries.resident_bytes()
    }

    /// Entries inserted. An insert under way may be counted already.
    pub(super) fn entries(&self) -> u64 {
        self.entries.entries()
    }

    fn make_node(
        &self,
        target: &Target<'_>,
        kind: Kind,
        value: &[u8],
        height: usize,
    ) -> (Node, Place) {
        let key = target.key;
        let large = value.len() > self.inline_bytes_max;
        let inline_bytes = if large {
            size_of::<NonNull<u8>>()
        } else {
            value.len()
        };
        let node_bytes = 8 + height * 8;
        let node_place = self.nodes.allocate(node_bytes);
        self.nodes.prefetch_after(node_place, node_bytes, 1);
        let bytes = HEADER_BYTES + key.len() + inline_bytes;
        let entry_place = self.entries.allocate(bytes);
        self.entries.prefetch_after(entry_place, bytes, 3);
        let node = Node(self.nodes.address(node_place).cast());
        // SAFETY: one allocation holds the word and the links, the other the
        // header, the key and the inline value; nobody else knows of them.
        unsafe {
            node.0
                .write(u64::from(target.second) << 32 | u64::from(entry_place.0));
            let base = self.entries.address(entry_place);
            base.cast::<Header>().write(Header {
                tag: target.seq << 8 | kind as u64,
                key_bytes: key.len() as u32 | if large { LARGE } else { 0 },
                value_bytes: value.len() as u32,
            });
            let after = base.add(HEADER_BYTES);
            after.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            let after = after.add(key.len());
            if large {
                after
                    .cast::<NonNull<u8>>()
                    .write_unaligned(self.entries.store_large(value));
            } else {
                after.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
            }
            for level in 0..height {
                node.0.add(1 + level).write(END);
            }
        }
        (node, node_place)
    }

    /// The node a link leads to.
    #[inline(always)]
    fn node_of(&self, link: u64) -> Option<Node> {
        let place = Place(link as u32);
        (place.0 != 0).then(|| Node(self.nodes.address(place).cast()))
    }

    /// The entry of a node of this list that is not its head.
    #[inline(always)]
    fn entry(&self, node: Node) -> Entry {
        // SAFETY: nodes come only from links of this list.
        Entry(self.entries.address(Place(unsafe { node.word() } as u32)))
    }

    /// How the node of `link` compares with the target when their 32 bits tie.
    ///
    /// Out of line: a tie is rare, and the search should stay small.
    #[inline(never)]
    fn compare_tied(&self, link: u64, target: &Target<'_>) -> Order {
        let Some(node) = self.node_of(link) else {
            return Order::Greater;
        };
        // SAFETY: the node was reached by a link of this list.
        unsafe {
            let second = (node.word() >> 32) as u32;
            if second != target.second {
                return second.cmp(&target.second);
            }
            let entry = self.entry(node);
            entry
                .key()
                .cmp(target.key)
                .then_with(|| target.seq.cmp(&(entry.header().tag >> 8)))
        }
    }

    /// Fills `splice` for `levels` levels from the head down. True when the
    /// target itself is in the list.
    #[inline(always)]
    fn find(&self, target: &Target<'_>, levels: usize, splice: &mut Splice) -> bool {
        let mut same = false;
        let mut node = self.head;
        for level in (0..levels).rev() {
            splice.before[level] = node;
            same = self.find_at(target, level, splice);
            node = splice.before[level];
        }
        same
    }

    /// Moves `splice` right at `level` as far as the target allows. True when
    /// the next node is the target itself.
    #[inline(always)]
    fn find_at(&self, target: &Target<'_>, level: usize, splice: &mut Splice) -> bool {
        let mut node = splice.before[level];
        loop {
            // SAFETY: the node was met at `level` or above.
            let link = unsafe { node.link(level) }.load(Ordering::Acquire);
            let order = if link < target.floor {
                Order::Less
            } else if (link ^ target.floor) >> 32 == 0 {
                self.compare_tied(link, target)
            } else {
                Order::Greater
            };
            if order != Order::Less {
                splice.before[level] = node;
                splice.links[level] = link;
                return order == Order::Equal;
            }
            node = Node(self.nodes.address(Place(link as u32)).cast());
        }
    }

    /// The link to the first entry at or after `key` and `seq`.
    #[inline]
    fn seek_link(&self, key: &[u8], seq: SeqNo) -> u64 {
        let Some(target) = self.target(key, seq) else {
            return END;
        };
        let mut node = self.head;
        let mut level = self.height.load(Ordering::Relaxed);
        let mut link = END;
        while level > 0 {
            level -= 1;
            loop {
                // SAFETY: the node was met at `level` or above.
                link = unsafe { node.link(level) }.load(Ordering::Acquire);
                let less = link < target.floor
                    || ((link ^ target.floor) >> 32 == 0
                        && self.compare_tied(link, &target) == Order::Less);
                if !less {
                    break;
                }
                node = Node(self.nodes.address(Place(link as u32)).cast());
            }
        }
        link
    }

    /// None when the list is empty.
    #[inline]
    fn target<'k>(&self, key: &'k [u8], seq: SeqNo) -> Option<Target<'k>> {
        let mode = self.narrow.load(Ordering::Acquire);
        if mode == narrow::UNKNOWN {
            return None;
        }
        Some(Target::new(mode, self.prefix.of(key), key, seq.0))
    }

    /// How this list narrows prefixes; the first key inserted decides.
    #[inline(always)]
    fn narrow_for_insert(&self, key: &[u8], prefix: u64) -> u8 {
        match self.narrow.load(Ordering::Acquire) {
            narrow::UNKNOWN => self.choose_narrow(key, prefix),
            mode => mode,
        }
    }

    #[cold]
    fn choose_narrow(&self, key: &[u8], prefix: u64) -> u8 {
        let bytes = key.len().saturating_sub(self.prefix.shared().len());
        let mode = narrow::choose(prefix, bytes);
        match self.narrow.compare_exchange(
            narrow::UNKNOWN,
            mode,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => mode,
            Err(chosen) => chosen,
        }
    }

    fn first(&self) -> Option<Node> {
        // SAFETY: the head has every link.
        self.node_of(unsafe { self.head.link(0) }.load(Ordering::Acquire))
    }

    fn last(&self) -> Option<Node> {
        let mut node = self.head;
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            // SAFETY: the node was met at `level` or above.
            while let Some(next) = self.node_of(unsafe { node.link(level) }.load(Ordering::Acquire))
            {
                node = next;
            }
        }
        (node != self.head).then_some(node)
    }
}

/// How many levels the entry `seq` has: dice thrown by its number, so that the
/// same commits make the same list.
#[inline]
fn height_of(seq: SeqNo) -> usize {
    let mut x = seq.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    1 + (x.trailing_zeros() as usize).min(HEIGHT_MAX - 1)
}

/// A position in a list, which it keeps alive.
pub(super) struct ListCursor {
    list: Arc<SkipList>,
    at: Option<Node>,
    /// The last node before `at` at each level, as of the last step back: most
    /// of the next step back is already walked. Nodes are only ever added, so
    /// what lies before a node stays before it.
    before: Option<Box<[Node; HEIGHT_MAX]>>,
}

// SAFETY: nodes are addresses in the list, which the cursor keeps alive.
unsafe impl Send for ListCursor {}
// SAFETY: as above; a shared cursor does not move.
unsafe impl Sync for ListCursor {}

impl ListCursor {
    pub(super) fn new(list: Arc<SkipList>) -> ListCursor {
        ListCursor {
            list,
            at: None,
            before: None,
        }
    }

    #[inline]
    pub(super) fn valid(&self) -> bool {
        self.at.is_some()
    }

    pub(super) fn seek_first(&mut self) {
        self.before = None;
        self.at = self.list.first();
    }

    pub(super) fn seek_last(&mut self) {
        self.before = None;
        self.at = self.list.last();
    }

    pub(super) fn seek(&mut self, key: &[u8], seq: SeqNo) {
        self.before = None;
        self.at = self.list.node_of(self.list.seek_link(key, seq));
    }

    pub(super) fn seek_before(&mut self, key: &[u8], seq: SeqNo) {
        self.before = None;
        self.at = None;
        if let Some(target) = self.list.target(key, seq) {
            self.step_before(&target);
        }
    }

    #[inline]
    pub(super) fn next(&mut self) {
        self.before = None;
        let Some(node) = self.at else { return };
        // SAFETY: the node is of this list, and every node has a lowest link.
        self.at = self
            .list
            .node_of(unsafe { node.link(0) }.load(Ordering::Acquire));
        if let Some(next) = self.at {
            // SAFETY: as above.
            let after = unsafe { next.link(0) }.load(Ordering::Acquire);
            if let Some(after) = self.list.node_of(after) {
                prefetch(self.list.entry(after).0.as_ptr());
            }
        }
    }

    pub(super) fn prev(&mut self) {
        let Some(node) = self.at else { return };
        let list = Arc::clone(&self.list);
        let entry = list.entry(node);
        // SAFETY: the entry is of this list, which outlives the target.
        let (key, tag) = unsafe { (entry.key(), entry.header().tag) };
        if let Some(target) = list.target(key, SeqNo(tag >> 8)) {
            self.step_before(&target);
        }
    }

    /// Moves to the last node before the target, which is the current node or
    /// any when `before` is none.
    fn step_before(&mut self, target: &Target<'_>) {
        let list = &*self.list;
        let mut splice = Splice {
            before: [list.head; HEIGHT_MAX],
            links: [END; HEIGHT_MAX],
        };
        let mut levels = list.height.load(Ordering::Relaxed);
        let mut node = list.head;
        if let (Some(before), Some(at)) = (&self.before, self.at) {
            // Levels from the first whose node is not the current one stand.
            splice.before = **before;
            if let Some(stand) = (0..HEIGHT_MAX).find(|&level| before[level] != at) {
                levels = stand + 1;
                node = before[stand];
            }
        }
        for level in (0..levels).rev() {
            splice.before[level] = node;
            list.find_at(target, level, &mut splice);
            node = splice.before[level];
        }
        self.at = (node != list.head).then_some(node);
        match &mut self.before {
            Some(before) => **before = splice.before,
            none => *none = Some(Box::new(splice.before)),
        }
    }

    /// Requires: the cursor is valid.
    #[inline]
    fn at_entry(&self) -> Entry {
        let node = self.at.expect("only a valid cursor is asked for its entry");
        self.list.entry(node)
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        // SAFETY: the node is of this list, which the cursor keeps alive.
        unsafe { self.at_entry().key() }
    }

    #[inline]
    pub(super) fn entry(&self) -> Hit<'_> {
        // SAFETY: as in `key`.
        unsafe { self.at_entry().hit() }
    }

    pub(super) fn value_ref(&self) -> MemValue {
        MemValue {
            bytes: NonNull::from(self.entry().value),
            _list: Arc::clone(&self.list),
        }
    }
}

/// A value in a memtable, kept alive without a copy.
#[derive(Clone)]
pub struct MemValue {
    bytes: NonNull<[u8]>,
    _list: Arc<SkipList>,
}

// SAFETY: the bytes are never written after the entry became visible, and the
// list that holds them may be shared and sent.
unsafe impl Send for MemValue {}
// SAFETY: as above.
unsafe impl Sync for MemValue {}

impl std::ops::Deref for MemValue {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the list is alive, and values in it never move.
        unsafe { self.bytes.as_ref() }
    }
}
