//! Pictures: versions of one keyspace as a line of text.
//!
//! A debugging aid. Tests write small versions by hand, and failures and
//! tools print them, in one notation:
//!
//! ```text
//! cuts g p | L0.0: #9[a..c] / #8[b..f) | L0.2: #7[q..z] | L1: #3[a..m]{size=2M} #2[n..z]
//! ```
//!
//! Sections are separated by `|`. `cuts` comes first and may be missing; then
//! slots in any order, under the names that [`Slot`] displays. A slot lists
//! its tables, newest run first; `/` ends a run, and so does a table that does
//! not lie behind the one before it. A table is its number, its range (`]`
//! inclusive, `)` exclusive; keys escaped as by [`u8::escape_ascii`], without
//! blanks) and, in braces, whatever differs from the defaults:
//!
//! | name | meaning | default |
//! |---|---|---|
//! | `size` | bytes of the one data extent, suffix `K`, `M`, `G` | `1M` |
//! | `meta` | bytes of the meta extent | `1` |
//! | `seq` | smallest and largest sequence number | the table's number |
//! | `entries`, `deletes`, `ranges`, `dead`, `created` | see [`TableMeta`] | `100`, `0`, `0`, `0`, `0` |
//! | `tier`, `metatier` | where data and meta lie | `0` |
//!
//! What the picture leaves out is made up: numbers of runs and objects follow
//! the largest table number, and every part is flushed up to the largest
//! sequence number.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::cuts::Cuts;
use crate::key::SeqNo;
use crate::range::KeyRange;
use crate::table::{Extent, ObjectId, TableId, TableMeta};
use crate::tier::TierId;
use crate::version::{Keyspace, KeyspaceId, LEVELS_MAX, Level, Run, RunId, Slot, Version};

const SIZE_BYTES_DEFAULT: u64 = 1 << 20;
const META_BYTES_DEFAULT: u64 = 1;
const ENTRIES_DEFAULT: u64 = 100;

/// The version that `text` shows: one keyspace, the default one.
///
/// # Errors
/// In words, when the text is not a picture. Whether the version is lawful is
/// for [`crate::check`] to say.
pub fn parse(text: &str) -> Result<Version, String> {
    let mut sections = text.split('|').map(str::trim).peekable();
    let cuts = match sections.peek().and_then(|s| s.strip_prefix("cuts ")) {
        Some(bounds) => {
            let bounds = bounds.split_whitespace().map(|b| Ok(unescape(b)?.into()));
            let cuts = Cuts::new(bounds.collect::<Result<_, String>>()?)?;
            sections.next();
            cuts
        }
        None => Cuts::default(),
    };
    let mut keyspace = Keyspace::new(KeyspaceId::DEFAULT, "default", cuts);
    for section in sections.filter(|s| !s.is_empty()) {
        let (name, tables) = section
            .split_once(':')
            .ok_or_else(|| format!("section {section:?} has no slot"))?;
        let level = parse_level(tables)?;
        match parse_slot(name.trim())? {
            Slot::Newest(part) => {
                let part = keyspace
                    .parts
                    .get_mut(part as usize)
                    .ok_or_else(|| format!("{name} has no part"))?;
                part.newest = level;
            }
            Slot::Level(index) => {
                let index = index as usize;
                if keyspace.levels.len() <= index {
                    keyspace.levels.resize_with(index + 1, Level::default);
                }
                keyspace.levels[index] = level;
            }
        }
    }
    Ok(finish(keyspace))
}

/// The table that `text` shows, such as `#5[a..f]{size=2M}`. The numbers of
/// its objects are its own number.
///
/// # Errors
/// In words, when the text is not a table.
pub fn parse_table(text: &str) -> Result<TableMeta, String> {
    let wrong = || format!("{text:?} is not a table");
    let (number, rest) = text
        .strip_prefix('#')
        .and_then(|t| t.split_once('['))
        .ok_or_else(wrong)?;
    let close = rest.find([']', ')']).ok_or_else(wrong)?;
    let (start, end) = rest[..close].split_once("..").ok_or_else(wrong)?;
    let range = KeyRange {
        start: unescape(start)?.into(),
        end: unescape(end)?.into(),
        end_inclusive: rest[close..].starts_with(']'),
    };
    let id: u64 = number.parse().map_err(|_| wrong())?;
    let extent = Extent {
        tier: TierId(0),
        object: ObjectId(id),
        offset: 0,
        length: META_BYTES_DEFAULT,
        checksum: 0,
    };
    let mut table = TableMeta {
        id: TableId(id),
        range,
        seq_min: SeqNo(id),
        seq_max: SeqNo(id),
        entries: ENTRIES_DEFAULT,
        deletes: 0,
        range_deletes: 0,
        raw_bytes: 0,
        dead_bytes: 0,
        created_us: 0,
        meta: extent,
        data: vec![Extent {
            length: SIZE_BYTES_DEFAULT,
            ..extent
        }],
    };
    let attributes = rest[close + 1..].trim();
    if !attributes.is_empty() {
        let inner = attributes
            .strip_prefix('{')
            .and_then(|a| a.strip_suffix('}'))
            .ok_or_else(wrong)?;
        for attribute in inner.split(',') {
            let (name, value) = attribute.split_once('=').ok_or_else(wrong)?;
            set_attribute(&mut table, name.trim(), value.trim())?;
        }
    }
    table.raw_bytes = table.data_bytes();
    table.data.retain(|e| e.length > 0);
    Ok(table)
}

/// The picture of `keyspace`.
#[must_use]
pub fn print(keyspace: &Keyspace) -> String {
    let mut sections = Vec::new();
    if keyspace.cuts.parts() > 1 {
        let bounds = keyspace.cuts.bounds().iter().map(|b| escape(b));
        sections.push(format!("cuts {}", bounds.collect::<Vec<_>>().join(" ")));
    }
    for slot in keyspace.slots() {
        let runs = keyspace.level(slot).map_or(&[][..], |l| &l.runs);
        if runs.is_empty() {
            continue;
        }
        let runs = runs.iter().map(|r| {
            let tables = r.tables.iter().map(|t| print_table(t));
            tables.collect::<Vec<_>>().join(" ")
        });
        sections.push(format!("{slot}: {}", runs.collect::<Vec<_>>().join(" / ")));
    }
    sections.join(" | ")
}

/// The picture of `table`.
#[must_use]
pub fn print_table(table: &TableMeta) -> String {
    let close = if table.range.end_inclusive { ']' } else { ')' };
    let mut text = format!(
        "#{}[{}..{}{close}",
        table.id.0,
        escape(&table.range.start),
        escape(&table.range.end)
    );
    let mut attributes = Vec::new();
    if table.data_bytes() != SIZE_BYTES_DEFAULT {
        attributes.push(format!("size={}", print_bytes(table.data_bytes())));
    }
    if (table.seq_min.0, table.seq_max.0) != (table.id.0, table.id.0) {
        attributes.push(format!("seq={}..{}", table.seq_min, table.seq_max));
    }
    for (name, value, default) in [
        ("meta", table.meta.length, META_BYTES_DEFAULT),
        ("entries", table.entries, ENTRIES_DEFAULT),
        ("deletes", table.deletes, 0),
        ("ranges", table.range_deletes, 0),
        ("dead", table.dead_bytes, 0),
        ("created", table.created_us, 0),
        ("tier", table.tier().0.into(), 0),
        ("metatier", table.meta.tier.0.into(), 0),
    ] {
        if value != default {
            attributes.push(format!("{name}={value}"));
        }
    }
    if !attributes.is_empty() {
        let _ = write!(text, "{{{}}}", attributes.join(","));
    }
    text
}

fn parse_slot(name: &str) -> Result<Slot, String> {
    let wrong = || format!("{name:?} is not a slot");
    let number = name.strip_prefix('L').ok_or_else(wrong)?;
    if let Some(part) = number.strip_prefix("0.") {
        return Ok(Slot::Newest(part.parse().map_err(|_| wrong())?));
    }
    let level: u32 = number.parse().map_err(|_| wrong())?;
    match level.checked_sub(1) {
        Some(index) if (index as usize) < LEVELS_MAX => Ok(Slot::Level(index)),
        _ => Err(wrong()),
    }
}

fn parse_level(text: &str) -> Result<Level, String> {
    let mut level = Level::default();
    for run in text.split('/') {
        let mut tables: Vec<Arc<TableMeta>> = Vec::new();
        for word in run.split_whitespace() {
            let table = parse_table(word)?;
            if tables
                .last()
                .is_some_and(|t| !t.range.is_before(&table.range))
            {
                level.runs.push(new_run(std::mem::take(&mut tables)));
            }
            tables.push(Arc::new(table));
        }
        if !tables.is_empty() {
            level.runs.push(new_run(tables));
        }
    }
    Ok(level)
}

/// A run whose number is still to be given.
fn new_run(tables: Vec<Arc<TableMeta>>) -> Run {
    Run {
        id: RunId(0),
        tables,
    }
}

/// Numbers runs and objects, and sets the counters.
fn finish(mut keyspace: Keyspace) -> Version {
    let mut next_id = 1 + keyspace.tables().map(|(_, _, t)| t.id.0).max().unwrap_or(0);
    let last_seq = keyspace.tables().map(|(_, _, t)| t.seq_max).max();
    let last_seq = last_seq.unwrap_or_default();
    let mut take = || {
        next_id += 1;
        next_id - 1
    };
    let newest = keyspace.parts.iter_mut().map(|p| {
        p.flushed = last_seq;
        &mut p.newest
    });
    for level in newest.chain(&mut keyspace.levels) {
        for run in &mut level.runs {
            run.id = RunId(take());
            for table in &mut run.tables {
                let table = Arc::make_mut(table);
                table.meta.object = ObjectId(take());
                for extent in &mut table.data {
                    extent.object = ObjectId(take());
                }
            }
        }
    }
    Version {
        keyspaces: [(keyspace.id, Arc::new(keyspace))].into(),
        next_id,
        next_keyspace: 1,
        log_floor: 0,
        log_base: SeqNo::ZERO,
        log_reach: SeqNo::ZERO,
        last_seq,
    }
}

fn set_attribute(table: &mut TableMeta, name: &str, value: &str) -> Result<(), String> {
    if name == "seq" {
        let (min, max) = value.split_once("..").unwrap_or((value, value));
        table.seq_min = SeqNo(parse_bytes(min)?);
        table.seq_max = SeqNo(parse_bytes(max)?);
        return Ok(());
    }
    let number = parse_bytes(value)?;
    let tier = || u32::try_from(number).map(TierId);
    let wrong = |_| format!("tier {number} is too large");
    match name {
        "size" => table.data[0].length = number,
        "meta" => table.meta.length = number,
        "entries" => table.entries = number,
        "deletes" => table.deletes = number,
        "ranges" => table.range_deletes = number,
        "dead" => table.dead_bytes = number,
        "created" => table.created_us = number,
        "tier" => table.data[0].tier = tier().map_err(wrong)?,
        "metatier" => table.meta.tier = tier().map_err(wrong)?,
        _ => return Err(format!("{name:?} is no attribute of a table")),
    }
    Ok(())
}

/// The number that `text` shows: decimal, with a suffix `K`, `M` or `G` for
/// 2^10, 2^20 and 2^30.
///
/// # Errors
/// In words, when the text is none or exceeds 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K')) => (&text[..at], 10),
        Some((at, 'M')) => (&text[..at], 20),
        Some((at, 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| format!("{text:?} is not a number"))
}

fn print_bytes(bytes: u64) -> String {
    for (shift, suffix) in [(30, 'G'), (20, 'M'), (10, 'K')] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Bytes that the notation itself uses are escaped too.
fn escape(key: &[u8]) -> String {
    let mut text = String::new();
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-_:!".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut key = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            key.push(byte);
            continue;
        }
        let wrong = || format!("{text:?} has a wrong escape");
        let (hex, tail) = rest.split_at_checked(3).ok_or_else(wrong)?;
        let digits = hex.strip_prefix(b"x").ok_or_else(wrong)?;
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        key.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = tail;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_parsed_prints_alike() {
        for text in [
            "",
            "L0.0: #5[a..f] / #4[c..z] | L1: #3[a..m] #2[n..z]",
            "cuts g p | L0.0: #9[a..b] / #8[b..f) | L0.2: #7[q..z] | L7: #3[a..m]{size=2M} #2[n..z]",
            "L3: #3[a\\x20b..\\xff]{size=0,seq=1..9,meta=7,entries=0,ranges=2,tier=1,metatier=1}",
        ] {
            let version = parse(text).unwrap();
            let printed = print(&version.keyspaces[&KeyspaceId::DEFAULT]);
            assert_eq!(printed, text);
        }
    }

    #[test]
    fn a_table_that_does_not_lie_behind_the_one_before_starts_a_run() {
        let version = parse("L0.0: #5[a..f] #4[c..z] | L1: #3[a..m) #2[m..z]").unwrap();
        let keyspace = &version.keyspaces[&KeyspaceId::DEFAULT];
        assert_eq!(keyspace.parts[0].newest.runs.len(), 2);
        assert_eq!(keyspace.levels[0].runs.len(), 1);
    }

    #[test]
    fn what_is_no_picture_is_refused_in_words() {
        for text in [
            "L0.1: #1[a..b]",
            "L0: #1[a..b]",
            "L17: #1[a..b]",
            "#1[a..b]",
            "L1: #x[a..b]",
            "L1: #1[a,b]",
            "L1: #1[a..b]{size}",
            "L1: #1[a..b]{size=1T}",
            "L1: #1[\\q..b]",
            "cuts b a | L1: #1[a..b]",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
