//! What an open table keeps of its block list in memory: all that a read needs
//! to find the one block to look in, and no more.
//!
//! A store may be a hundred times larger than its memory, so bytes a block count.
//! Kept are a block's place and checksum, its filter, and what separates its keys
//! from those before (see [`super::block_list`]). First and last keys are in the
//! blocks themselves, which a merge reads anyway; numbers are in their trailers.
//!
//! To search fast there is one word of each separator, behind what all of them
//! begin with, and every sixteenth of these words once more. The samples of
//! 8,000 blocks take 4 KiB and stay in the nearest cache; below them a search
//! looks at two or three lines. Separators are compared only where words tie.
//!
//! A table whose data has moved to another tier has the same index: it is shared, not read again.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use thermocline_model::SeqNo;
use thermocline_model::key::{Prefix, load_be};

use super::block::word_after;
use super::block_list::{BlockEntry, BlockList, CONTINUES};
use super::filter;
use super::lists::{List, Lists};

/// Blocks a sample stands for: as many words as two cache lines hold.
const SAMPLE_BLOCKS: usize = 16;

/// Where a block lies and what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// First byte within the extent.
    pub(crate) offset: u64,
    /// Length with trailer.
    pub(crate) stored_bytes: u32,
    /// The checksum that ends the trailer.
    pub(crate) checksum: u32,
    /// Which of the table's data extents.
    pub(crate) extent: u16,
    /// See [`BlockList`].
    pub(crate) flags: u8,
}

/// A [`Place`] in sixteen bytes; the extent is kept apart, as it is mostly 0.
#[derive(Clone, Copy, Debug)]
struct Packed {
    offset_low: u32,
    stored_bytes: u32,
    checksum: u32,
    offset_high: u16,
    flags: u8,
    /// Bytes of the separator that its word does not pad, or [`LONG`].
    separator_bytes: u8,
}

/// A separator that is longer than a word.
const LONG: u8 = u8::MAX;

/// See the module. A clone shares what this has in memory, and a search follows no more pointers
/// there than if each had it for itself.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    places: List<Packed>,
    /// By block; empty when all blocks lie in the first extent.
    extents: List<u16>,
    /// Separators longer than a word, without what all begin with: by block,
    /// ascending, and where in `long_bytes` each ends.
    long: List<(u32, u32)>,
    long_bytes: List<u8>,
    /// Blocks that continue the one before, ascending, and the numbers of their
    /// first entries.
    continuing: List<(u32, SeqNo)>,
    filters: List<u64>,
    filter_ends: List<u32>,
    /// What all separators begin with.
    prefix: Prefix,
    words: List<u64>,
    samples: List<u64>,
}

impl Index {
    /// The index of `list`.
    pub(crate) fn new(list: &BlockList) -> Index {
        let blocks = list.len();
        let prefix = match blocks {
            0 => Prefix::default(),
            // What the first and the last separator share, those between them have too.
            _ => Prefix::between(list.separator(0), list.separator(blocks - 1)),
        };
        let shared = prefix.shared().len();
        let separator = |block| list.separator(block).get(shared..).unwrap_or(&[]);
        let packed = |(block, entry): (usize, &BlockEntry)| Packed {
            offset_low: entry.offset as u32,
            stored_bytes: entry.stored_bytes,
            checksum: entry.checksum,
            offset_high: (entry.offset >> 32) as u16,
            flags: entry.flags,
            separator_bytes: match separator(block).len() {
                short @ 0..=8 => short as u8,
                _ => LONG,
            },
        };
        let (mut long, mut long_bytes) = (Vec::new(), Vec::new());
        for block in 0..blocks {
            let separator = separator(block);
            if separator.len() > 8 {
                long_bytes.extend_from_slice(separator);
                // Below the bound that the block list keeps.
                long.push((block as u32, long_bytes.len() as u32));
            }
        }
        let entries = || list.entries.iter().enumerate();
        let continuing = entries().filter(|(_, entry)| entry.continues());
        let continuing = continuing.map(|(block, entry)| (block as u32, entry.first_seq));
        let continuing: Vec<(u32, SeqNo)> = continuing.collect();
        let in_others = list.entries.iter().any(|entry| entry.extent != 0);
        let extents = &list.entries[..if in_others { blocks } else { 0 }];
        let bytes = Lists::bytes_of::<Packed>(blocks)
            + Lists::bytes_of::<u16>(extents.len())
            + Lists::bytes_of::<(u32, u32)>(long.len())
            + Lists::bytes_of::<u8>(long_bytes.len())
            + Lists::bytes_of::<(u32, SeqNo)>(continuing.len())
            + Lists::bytes_of::<u64>(list.filters.len())
            + Lists::bytes_of::<u32>(list.filter_ends().len())
            + Lists::bytes_of::<u64>(blocks)
            + Lists::bytes_of::<u64>(blocks.div_ceil(SAMPLE_BLOCKS));
        let mut lists = Lists::with_bytes(bytes);
        let words = lists.list((0..blocks).map(|block| load_be(separator(block))));
        Index {
            places: lists.list(entries().map(packed)),
            extents: lists.list(extents.iter().map(|entry| entry.extent)),
            long: lists.list(long.into_iter()),
            long_bytes: lists.list(long_bytes.into_iter()),
            continuing: lists.list(continuing.into_iter()),
            filters: lists.list(list.filters.iter().copied()),
            filter_ends: lists.list(list.filter_ends().iter().copied()),
            prefix,
            samples: lists.list(words.iter().copied().step_by(SAMPLE_BLOCKS)),
            words,
        }
    }

    /// The number of blocks.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Where block `block` lies.
    #[inline]
    pub(crate) fn place(&self, block: usize) -> Place {
        let packed = self.places[block];
        Place {
            offset: u64::from(packed.offset_high) << 32 | u64::from(packed.offset_low),
            stored_bytes: packed.stored_bytes,
            checksum: packed.checksum,
            extent: self.extents.get(block).copied().unwrap_or(0),
            flags: packed.flags,
        }
    }

    /// Whether block `block` may hold a key with this hash.
    #[inline]
    pub(crate) fn may_contain(&self, block: usize, probes: u32, hash: u64) -> bool {
        filter::may_contain(self.filter(block), probes, hash)
    }

    /// The filter of block `block`.
    #[inline]
    pub(crate) fn filter(&self, block: usize) -> &[u64] {
        let start = block
            .checked_sub(1)
            .map_or(0, |before| self.filter_ends[before]);
        &self.filters[start as usize..self.filter_ends[block] as usize]
    }

    /// Whether it is a clone of `other`, or the other way round.
    #[cfg(test)]
    pub(crate) fn shares(&self, other: &Index) -> bool {
        std::ptr::eq(&*self.places, &*other.places) && std::ptr::eq(&*self.filters, &*other.filters)
    }

    /// Bytes that the index takes in memory, though others may share them.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.places.region_bytes()
    }

    /// How many blocks a search for `(key, seq)` need not look behind: their
    /// separators are at or before it. What it wants is in the last of them, or at
    /// the start of the block after them; and where the latter begins with `key`
    /// itself the answer says so. It then continues the one before it.
    #[inline]
    pub(crate) fn blocks_until(&self, key: &[u8], seq: SeqNo) -> (usize, bool) {
        let shared = self.prefix.shared();
        let word = if key.len() >= shared.len() && key[..shared.len()] == *shared {
            word_after(key, shared.len())
        } else {
            self.prefix.of(key)
        };
        let sample = below(&self.samples, word);
        let start = sample.saturating_sub(1) * SAMPLE_BLOCKS;
        let end = (start + SAMPLE_BLOCKS).min(self.words.len());
        // The samples before `sample` are smaller than the word, the one at it
        // is not; so is the first block's word at `end`.
        let first = start + below(&self.words[start..end], word);
        if self.words.get(first) != Some(&word) {
            return (first, false);
        }
        self.blocks_until_among_ties(first, word, key, seq)
    }

    #[inline(never)]
    fn blocks_until_among_ties(
        &self,
        first: usize,
        word: u64,
        key: &[u8],
        seq: SeqNo,
    ) -> (usize, bool) {
        let shared = self.prefix.shared();
        let end = first + self.words[first..].partition_point(|&w| w == word);
        let Some(rest) = key.strip_prefix(shared) else {
            // All separators lie on one side of it, whatever the words say.
            return (if key < shared { first } else { end }, false);
        };
        let mut low = first;
        let mut high = end;
        while low < high {
            let middle = low.midpoint(high);
            // Within a key, newer entries come first.
            let order = self.separator(middle, |separator| separator.cmp(rest));
            let order = order.then_with(|| match self.continues_at(middle) {
                Some(first_seq) => seq.cmp(&first_seq),
                None => Ordering::Equal,
            });
            if order.is_le() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let starts_next =
            low < end && self.continues_at(low).is_some() && self.separator(low, |s| s == rest);
        (low, starts_next)
    }

    /// What `see` says of the separator of block `block`, without what all begin
    /// with.
    fn separator<T>(&self, block: usize, see: impl FnOnce(&[u8]) -> T) -> T {
        let bytes = self.places[block].separator_bytes;
        if bytes != LONG {
            return see(&self.words[block].to_be_bytes()[..usize::from(bytes)]);
        }
        let at = self.long.partition_point(|(at, _)| (*at as usize) < block);
        let start = at.checked_sub(1).map_or(0, |before| self.long[before].1);
        let end = self.long.get(at).map_or(start, |(_, end)| *end);
        see(&self.long_bytes[start as usize..end as usize])
    }

    /// The number of the first entry of block `block`, if it continues the one
    /// before.
    fn continues_at(&self, block: usize) -> Option<SeqNo> {
        if self.places[block].flags & CONTINUES == 0 {
            return None;
        }
        let at = self
            .continuing
            .binary_search_by_key(&(block as u32), |(at, _)| *at);
        at.ok().map(|at| self.continuing[at].1)
    }
}

/// How many of the ascending `words` are below `word`.
#[inline(always)]
fn below(words: &[u64], word: u64) -> usize {
    let mut first = 0;
    let mut size = words.len();
    while size > 1 {
        let half = size / 2;
        // Where a key lies cannot be predicted: no branch.
        let is_below = words[first + half - 1] < word;
        first = select_unpredictable(is_below, first + half, first);
        size -= half;
    }
    first + usize::from(words.get(first).is_some_and(|&w| w < word))
}

#[cfg(test)]
mod tests {
    use thermocline_model::key::compare_entries;

    use super::super::block_list::{BlockEntry, separator_of};
    use super::*;

    #[test]
    fn below_agrees_with_partition_point() {
        for length in 0..40u64 {
            let words: Vec<u64> = (0..length).map(|i| i / 2 * 3).collect();
            for word in 0..70 {
                assert_eq!(below(&words, word), words.partition_point(|&w| w < word));
            }
        }
    }

    type Entries = Vec<(Vec<u8>, SeqNo)>;

    /// Blocks of a few entries each, some of which continue the one before; the
    /// list of them and their entries.
    fn blocks(key_of: impl Fn(u64) -> String) -> (BlockList, Vec<Entries>) {
        let mut list = BlockList::default();
        let mut blocks: Vec<Entries> = Vec::new();
        for block in 0..500u64 {
            // Each key in three versions; blocks of two, three or four entries.
            let entries: Vec<_> = (block * 3 + block % 2..=block * 3 + 2 + (block + 1) % 2)
                .map(|i| (key_of(i / 3).into_bytes(), SeqNo(100 - i % 3 * 10)))
                .collect();
            let first = &entries[0];
            let before = blocks.last().and_then(|b| b.last());
            let before = before.map_or(&[][..], |before| &before.0);
            let continues = *before == first.0;
            let entry = BlockEntry {
                offset: block << 33,
                stored_bytes: 7,
                checksum: block as u32,
                extent: (block % 3) as u16,
                flags: if continues { CONTINUES } else { 0 },
                first_seq: first.1,
            };
            list.push(entry, separator_of(before, &first.0)).unwrap();
            blocks.push(entries);
        }
        (list, blocks)
    }

    #[test]
    fn what_a_search_wants_is_where_the_index_says() {
        let keys: [fn(u64) -> String; 3] = [
            |i| format!("common/{:03}/{:04}", i / 90, i),
            |i| format!("{:020}", i * i),
            |i| format!("k{}{i:05}", "\0".repeat((i % 3) as usize * 9)),
        ];
        for key_of in keys {
            let mut sorted: Vec<String> = (0..600).map(key_of).collect();
            sorted.sort();
            let (list, blocks) = blocks(|i| sorted[i as usize].clone());
            let index = Index::new(&list);
            let mut wanted: Vec<Vec<u8>> = Vec::new();
            for (key, _) in blocks.iter().flatten() {
                wanted.extend([key.clone(), [key.as_slice(), b"x"].concat()]);
                wanted.push(key[..key.len() - 1].to_vec());
            }
            wanted.extend([
                b"".to_vec(),
                b"a".to_vec(),
                b"z".to_vec(),
                b"common/".to_vec(),
            ]);
            for key in wanted {
                for seq in [0, 80, 85, 90, 95, 100, 101].map(SeqNo) {
                    let at_or_after = |entry: &&(Vec<u8>, SeqNo)| {
                        compare_entries((&entry.0, entry.1), (&key, seq)).is_ge()
                    };
                    let (until, starts_next) = index.blocks_until(&key, seq);
                    // The first entry at or after the wanted one is in the last
                    // block that it need not look behind, or begins the next.
                    let found = blocks.iter().enumerate().find_map(|(at, entries)| {
                        let entry = entries.iter().find(at_or_after)?;
                        Some((at, entry == &entries[0], entry))
                    });
                    match found {
                        Some((at, true, entry)) => {
                            assert!(at == until || at + 1 == until, "{key:?}@{seq}");
                            let next = at == until && entry.0 == key && until > 0;
                            assert_eq!(starts_next, next, "{key:?}@{seq}");
                        }
                        Some((at, false, _)) => assert_eq!(at + 1, until, "{key:?}@{seq}"),
                        None => assert_eq!(until, blocks.len()),
                    }
                }
            }
        }
    }

    #[test]
    fn places_are_those_of_the_list() {
        let (list, _) = blocks(|i| format!("{i:09}"));
        let index = Index::new(&list);
        assert_eq!(index.len(), list.len());
        for (block, entry) in list.entries.iter().enumerate() {
            let place = index.place(block);
            let kept = (place.offset, place.stored_bytes, place.checksum);
            assert_eq!(kept, (entry.offset, entry.stored_bytes, entry.checksum));
            assert_eq!((place.extent, place.flags), (entry.extent, entry.flags));
        }
    }
}
