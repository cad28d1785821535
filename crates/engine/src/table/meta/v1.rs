//! The block list as version 1 of the format recorded it: with the first and the
//! last key of each block instead of what separates them.

use thermocline_model::SeqNo;
use thermocline_model::codec::Reader;

use super::super::block_list::{BLOCK_FLAGS, BlockEntry, separator_of};
use super::Meta;
use super::blocks::{add, checksum, key_after};

/// See [`super::DecodeBlocks`].
pub(super) fn decode(r: &mut Reader<'_>, meta: &mut Meta) -> Result<Vec<usize>, String> {
    let mut words = Vec::new();
    let mut last = Vec::new();
    for block in 0..r.length()? {
        let mut first = last.clone();
        key_after(&mut first, r.number()?, r.bytes()?)?;
        let before = std::mem::replace(&mut last, first.clone());
        key_after(&mut last, r.number()?, r.bytes()?)?;
        let mut entry = BlockEntry {
            extent: u16::try_from(r.number()?).map_err(|e| e.to_string())?,
            offset: r.number()?,
            stored_bytes: r.number32()?,
            ..BlockEntry::default()
        };
        let _payload_bytes = r.number()?;
        entry.checksum = checksum(r)?;
        entry.flags = r.byte()?;
        let first_seq = SeqNo(r.number()?);
        let _seq_max = r.number()?;
        words.push(r.length()?);
        if entry.continues() {
            entry.first_seq = first_seq;
        }
        let lawful = before <= first
            && (before == first) == entry.continues()
            && first <= last
            && !meta.range.ends_before(&last)
            && entry.flags & !BLOCK_FLAGS == 0;
        if !lawful {
            return Err(format!("block {block}: keys or flags are wrong"));
        }
        add(meta, entry, separator_of(&before, &first))?;
    }
    Ok(words)
}
