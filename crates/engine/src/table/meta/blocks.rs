//! The block list as a meta extent records it. Of what an open table keeps of a
//! block nothing is left out, and nothing else is there. What most blocks have in
//! common with the one before takes no room: a block begins where that one ends,
//! and has as long a filter.

use thermocline_model::SeqNo;
use thermocline_model::codec::{Reader, Writer};
use thermocline_model::key::{KEY_BYTES_MAX, common_prefix_len};

use super::super::block_list::{BLOCK_FLAGS, BlockEntry, BlockList};
use super::super::trailer::TRAILER_BYTES;
use super::Meta;

/// The block lies elsewhere than right behind the one before.
const ELSEWHERE: u8 = 8;
/// Its filter has another length than that of the one before.
const OTHER_FILTER: u8 = 16;
/// From this bit on the first byte has the length of the rest of the separator,
/// if that is from 1 to [`REST_MAX`].
const REST_SHIFT: u32 = 5;
const REST_MAX: usize = 7;

/// What a block is told apart from: the one before, or none.
#[derive(Default)]
struct Before {
    extent: u16,
    /// Where the block ends.
    end: u64,
    stored_bytes: u32,
    filter_words: usize,
}

impl Before {
    fn of(entry: &BlockEntry, filter_words: usize) -> Before {
        Before {
            extent: entry.extent,
            end: entry.offset.saturating_add(u64::from(entry.stored_bytes)),
            stored_bytes: entry.stored_bytes,
            filter_words,
        }
    }
}

/// Writes `list`, but for the filters.
pub(super) fn encode(list: &BlockList, w: &mut Writer) {
    w.length(list.len());
    let mut before = Before::default();
    let mut separator_before: &[u8] = &[];
    for (block, entry) in list.entries.iter().enumerate() {
        let separator = list.separator(block);
        let filter_words = list.filter_words(block);
        let shared = common_prefix_len(separator_before, separator);
        let rest = &separator[shared..];
        let is_short = (1..=REST_MAX).contains(&rest.len());
        let is_elsewhere = (entry.extent, entry.offset) != (before.extent, before.end);
        let has_other_filter = filter_words != before.filter_words;
        let mut head = entry.flags;
        if is_elsewhere {
            head |= ELSEWHERE;
        }
        if has_other_filter {
            head |= OTHER_FILTER;
        }
        if is_short {
            head |= (rest.len() as u8) << REST_SHIFT;
        }
        w.byte(head);
        w.length(shared);
        if !is_short {
            w.length(rest.len());
        }
        w.raw(rest);
        if is_elsewhere {
            w.number(u64::from(entry.extent));
            w.number(entry.offset);
        }
        w.number(difference(before.stored_bytes, entry.stored_bytes));
        w.raw(&entry.checksum.to_le_bytes());
        if has_other_filter {
            w.length(filter_words);
        }
        if entry.continues() {
            w.number(entry.first_seq.0);
        }
        before = Before::of(entry, filter_words);
        separator_before = separator;
    }
}

/// See [`super::DecodeBlocks`].
pub(super) fn decode(r: &mut Reader<'_>, meta: &mut Meta) -> Result<Vec<usize>, String> {
    // No more than there are bytes left.
    let blocks = r.length()?;
    meta.blocks.reserve(blocks);
    let mut words = Vec::with_capacity(blocks);
    let mut before = Before::default();
    let mut separator = Vec::new();
    for block in 0..blocks {
        let (entry, filter_words) = decode_block(r, &before, &mut separator)
            .map_err(|what| format!("block {block}: {what}"))?;
        add(meta, entry, &separator)?;
        words.push(filter_words);
        before = Before::of(&entry, filter_words);
    }
    Ok(words)
}

/// Reads a block and the number of its filter's words. `separator` is that of the
/// block before, and becomes that of the block.
fn decode_block(
    r: &mut Reader<'_>,
    before: &Before,
    separator: &mut Vec<u8>,
) -> Result<(BlockEntry, usize), String> {
    let head = r.byte()?;
    let shared = r.number()?;
    let rest = match head >> REST_SHIFT {
        0 => r.bytes()?,
        short => r.raw(usize::from(short))?,
    };
    key_after(separator, shared, rest)?;
    let mut entry = BlockEntry {
        extent: before.extent,
        offset: before.end,
        flags: head & BLOCK_FLAGS,
        ..BlockEntry::default()
    };
    if head & ELSEWHERE != 0 {
        entry.extent = u16::try_from(r.number()?).map_err(|e| e.to_string())?;
        entry.offset = r.number()?;
    }
    let stored_bytes = differing(before.stored_bytes, r.number()?);
    entry.stored_bytes = stored_bytes.ok_or("length exceeds 32 bits")?;
    entry.checksum = checksum(r)?;
    let filter_words = match head & OTHER_FILTER != 0 {
        true => r.length()?,
        false => before.filter_words,
    };
    if entry.continues() {
        entry.first_seq = SeqNo(r.number()?);
    }
    Ok((entry, filter_words))
}

/// A block's checksum.
pub(super) fn checksum(r: &mut Reader<'_>) -> Result<u32, String> {
    match r.raw(4)? {
        &[a, b, c, d] => Ok(u32::from_le_bytes([a, b, c, d])),
        _ => Err("checksum is missing".to_string()),
    }
}

/// Makes of `key` the key that has `shared` bytes of it and then `rest`.
pub(super) fn key_after(key: &mut Vec<u8>, shared: u64, rest: &[u8]) -> Result<(), String> {
    if shared > key.len() as u64 {
        return Err(format!(
            "key shares {shared} bytes with one of {}",
            key.len()
        ));
    }
    key.truncate(shared as usize);
    key.extend_from_slice(rest);
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(format!("key of {} bytes", key.len()));
    }
    Ok(())
}

/// How `b` differs from `a`, as a number that is small if the difference is.
fn difference(a: u32, b: u32) -> u64 {
    let difference = i64::from(b) - i64::from(a);
    (difference << 1 ^ difference >> 63) as u64
}

/// The number of which [`difference`] from `a` gave `difference`; none if that has
/// more than 32 bits.
fn differing(a: u32, difference: u64) -> Option<u32> {
    let difference = (difference >> 1) as i64 ^ -((difference & 1) as i64);
    let b = i64::from(a).checked_add(difference)?;
    u32::try_from(b).ok()
}

/// Adds a block to the list of `meta`. Ensures: it lies within its extent, and its
/// separator within the table, behind that of the block before.
pub(super) fn add(meta: &mut Meta, entry: BlockEntry, separator: &[u8]) -> Result<(), String> {
    let block = meta.blocks.len();
    let wrong = |what: String| Err(format!("block {block}: {what}"));
    let before = block.checked_sub(1);
    let follows = match before.map(|at| (&meta.blocks.entries[at], meta.blocks.separator(at))) {
        None => !entry.continues(),
        Some((_, before)) if before < separator => true,
        // Of a key that fills a whole block.
        Some((first, before)) => {
            let is_older = !first.continues() || entry.first_seq < first.first_seq;
            entry.continues() && before == separator && is_older
        }
    };
    if !follows || *separator < *meta.range.start || meta.range.ends_before(separator) {
        return wrong("keys are out of order or out of the table's range".to_string());
    }
    if entry.continues() && !(meta.seq_min..=meta.seq_max).contains(&entry.first_seq) {
        return wrong("sequence number is out of the table's".to_string());
    }
    let Some(&extent) = meta.extents.get(usize::from(entry.extent)) else {
        return wrong(format!("extent {} does not exist", entry.extent));
    };
    let end = entry.offset.checked_add(u64::from(entry.stored_bytes));
    if end.is_none_or(|end| end > extent) || (entry.stored_bytes as usize) < TRAILER_BYTES {
        return wrong(format!(
            "{} bytes at {} do not lie in an extent of {extent} bytes",
            entry.stored_bytes, entry.offset
        ));
    }
    meta.blocks.push(entry, separator)
}

#[cfg(test)]
mod tests {
    use thermocline_model::{Compression, KeyRange, TableId};

    use super::super::super::block_list::{CONTINUES, HAS_DELETES, HAS_VERSIONS};
    use super::super::MetaError;
    use super::*;

    /// A meta whose blocks lie in extents of these lengths.
    fn meta_of(extents: &[u64], blocks: &[(BlockEntry, &[u8], usize)]) -> Meta {
        let mut list = BlockList::default();
        for (entry, separator, words) in blocks {
            list.filters
                .extend((0..*words as u64).map(|word| word << 7));
            list.push(*entry, separator).unwrap();
        }
        Meta {
            id: TableId(7),
            created_us: 0,
            compression: Compression::None,
            block_bytes: 4096,
            interval: 4,
            filter_bits_per_key: 10,
            entries: 100,
            deletes: 0,
            raw_bytes: 0,
            seq_min: SeqNo(2),
            seq_max: SeqNo(90),
            range: KeyRange::inclusive(b"b", b"x"),
            extents: extents.to_vec(),
            blocks: list,
            range_deletes: Vec::new(),
        }
    }

    fn entry(extent: u16, offset: u64, stored_bytes: u32, flags: u8, first_seq: u64) -> BlockEntry {
        BlockEntry {
            offset,
            first_seq: SeqNo(first_seq),
            stored_bytes,
            checksum: stored_bytes.wrapping_mul(0x9e37_79b9),
            extent,
            flags,
        }
    }

    fn decoded(meta: &Meta) -> Result<Meta, String> {
        Meta::decode(&meta.encode(), TableId(7)).map_err(|error| match error {
            MetaError::Wrong(what) => what,
            MetaError::Version(version) => panic!("version {version}"),
        })
    }

    const EXTENTS: [u64; 3] = [1 << 40, 5000, 100_000];

    #[test]
    fn what_is_written_of_blocks_is_read() {
        let long = [b"n".as_slice(), &[b'n'; 300]].concat();
        let blocks: [(BlockEntry, &[u8], usize); 10] = [
            (entry(0, 0, 4000, 0, 0), b"ba", 1),
            // Right behind it, and as long.
            (entry(0, 4000, 4000, HAS_DELETES, 0), b"bac", 1),
            // Much shorter, then much longer.
            (entry(0, 8000, 48, HAS_VERSIONS, 0), b"c", 0),
            (entry(0, 8048, u32::MAX, 0, 0), b"cccccccc", 16),
            (entry(2, 0, 99, 0, 0), b"cd", 16),
            // Somewhere, and then at the start of the first extent.
            (entry(0, 1 << 39, 99, CONTINUES, 90), b"key", 16),
            (entry(0, 0, 99, CONTINUES | HAS_VERSIONS, 89), b"key", 16),
            (entry(1, 7, 4993, CONTINUES | HAS_DELETES, 2), b"key", 8),
            (entry(1, 0, 4993, 0, 0), &long, 8),
            (entry(2, 99, 4993, 0, 0), b"x", 8),
        ];
        let meta = meta_of(&EXTENTS, &blocks);
        let read = decoded(&meta).unwrap();
        assert_eq!(read.blocks.entries, meta.blocks.entries);
        assert_eq!(read.blocks.filters, meta.blocks.filters);
        for (block, (_, separator, words)) in blocks.iter().enumerate() {
            assert_eq!(read.blocks.separator(block), *separator);
            assert_eq!(read.blocks.filter(block).len(), *words);
        }
    }

    #[test]
    fn a_block_like_the_one_before_takes_ten_bytes_and_its_filter() {
        let keys: Vec<String> = (0..1000).map(|i| format!("key{i:04}")).collect();
        let blocks: Vec<(BlockEntry, &[u8], usize)> = keys
            .iter()
            .zip(0..)
            .map(|(key, i)| (entry(0, i * 4000, 4000, 0, 0), key.as_bytes(), 1))
            .collect();
        let bytes = meta_of(&EXTENTS, &blocks).encode().len();
        let fewer = meta_of(&EXTENTS, &blocks[..1]).encode().len();
        let a_block = (bytes - fewer) as f64 / 999.0;
        // Flags, shared, the rest, length, checksum, and a filter of one word.
        assert!(a_block < 1.0 + 1.0 + 1.2 + 1.0 + 4.0 + 8.0, "{a_block}");
    }

    #[test]
    fn blocks_that_make_no_table_are_refused() {
        let good = entry(0, 0, 100, 0, 0);
        let goes_on = |first_seq| entry(0, 100, 100, CONTINUES, first_seq);
        let out_of_order = "keys are out of order or out of the table's range";
        type Blocks<'a> = Vec<(BlockEntry, &'a [u8], usize)>;
        let cases: Vec<(Blocks<'_>, &str)> = vec![
            (vec![(good, b"d", 1), (good, b"c", 1)], out_of_order),
            (vec![(good, b"d", 1), (good, b"d", 1)], out_of_order),
            (vec![(good, b"a", 1)], out_of_order),
            (vec![(good, b"c", 1), (good, b"xx", 1)], out_of_order),
            // The first continues nothing, and of a key older versions come later.
            (vec![(goes_on(5), b"c", 1)], out_of_order),
            (
                vec![
                    (good, b"c", 1),
                    (goes_on(5), b"c", 1),
                    (goes_on(5), b"c", 1),
                ],
                out_of_order,
            ),
            (
                vec![(good, b"c", 1), (goes_on(1), b"c", 1)],
                "sequence number",
            ),
            (
                vec![(good, b"c", 1), (goes_on(91), b"c", 1)],
                "sequence number",
            ),
            (vec![(good, b"", 1)], "key of 0 bytes"),
            (vec![(good, &[b'c'; KEY_BYTES_MAX + 1], 1)], "key of 65537"),
            (vec![(entry(3, 0, 100, 0, 0), b"c", 1)], "does not exist"),
            (vec![(entry(0, 0, 47, 0, 0), b"c", 1)], "do not lie"),
            (vec![(entry(1, 4901, 100, 0, 0), b"c", 1)], "do not lie"),
            (vec![(entry(1, u64::MAX, 100, 0, 0), b"c", 1)], "do not lie"),
            (
                vec![
                    (entry(1, 4900, 100, 0, 0), b"c", 1),
                    (entry(1, 5000, 100, 0, 0), b"d", 1),
                ],
                "do not lie",
            ),
            (vec![(good, b"c", 9)], "filter of 9 words"),
        ];
        for (blocks, words) in cases {
            let found = decoded(&meta_of(&EXTENTS, &blocks)).unwrap_err();
            assert!(found.contains(words), "{words}: {found}");
        }
        // As many versions of a key as there are.
        let versions = [
            (good, &b"c"[..], 1),
            (goes_on(5), b"c", 1),
            (goes_on(4), b"c", 1),
        ];
        decoded(&meta_of(&EXTENTS, &versions)).unwrap();
    }

    #[test]
    fn bytes_that_no_list_has_are_refused() {
        let read = |bytes: &[u8]| {
            let mut meta = meta_of(&EXTENTS, &[]);
            let all = [bytes, &[0; 30]].concat();
            decode(&mut Reader::new(&all), &mut meta).map_err(|what| (what, meta.blocks.len()))
        };
        // A block, and one right behind it; then what may not be there.
        let checksum = [1, 2, 3, 4];
        let one = [&[0x20 | OTHER_FILTER, 0, b'c', 200, 1][..], &checksum, &[1]].concat();
        let with = |second: &[u8]| [&[2][..], &one, second].concat();
        let second = [&[0x20, 0, b'd', 1][..], &checksum].concat();
        assert_eq!(read(&with(&second)), Ok(vec![1, 1]));
        let found = read(&with(&[0x20, 2, b'd', 1])).unwrap_err();
        assert_eq!(
            found,
            ("block 1: key shares 2 bytes with one of 1".into(), 1)
        );
        // 201 below 100, and 2^32 above it.
        for length in [&[0xc9, 0x01][..], &[0x80, 0x80, 0x80, 0x80, 0x20]] {
            let found = read(&with(&[&[0x20, 0, b'd'][..], length].concat())).unwrap_err();
            assert_eq!(found, ("block 1: length exceeds 32 bits".into(), 1));
        }
        assert!(read(&[0xff, 0x7f]).unwrap_err().0.contains("exceeds the"));
        let long = with(&[0, 0, 0xff, 0x7f]);
        assert!(read(&long).unwrap_err().0.contains("exceeds the"));
    }

    #[test]
    fn differences_go_both_ways_and_no_further_than_32_bits() {
        let ends = [0, 1, 4000, 4001, u32::MAX / 2, u32::MAX - 1, u32::MAX];
        for a in ends {
            for b in ends {
                assert_eq!(differing(a, difference(a, b)), Some(b), "{a} to {b}");
            }
        }
        assert!(difference(4000, 3937) < 0x80 && difference(4000, 4063) < 0x80);
        assert_eq!(differing(0, 1), None);
        assert_eq!(differing(u32::MAX, 2), None);
        assert_eq!(differing(5, u64::MAX), None);
        assert_eq!(differing(5, u64::MAX - 1), None);
    }
}
