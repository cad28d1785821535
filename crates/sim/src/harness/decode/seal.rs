//! Makes the checksums of a file right, so that what it says is looked at.
//!
//! The formats are those of `docs/formats/`, written a second time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_model::edit::{Change, Edit};
use thermocline_model::table::{Extent, TableMeta};

use crate::harness::corruption::truth::Image;

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78);
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// CRC-32C, not the engine's.
fn crc(pieces: &[&[u8]]) -> u32 {
    const TABLE: [u32; 256] = crc_table();
    let bytes = pieces.iter().copied().flatten();
    !bytes.fold(!0u32, |crc, byte| {
        (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)]
    })
}

fn masked(crc: u32) -> u32 {
    crc.rotate_left(11).wrapping_add(0x7465_726d)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    let place = bytes.get(at..at + 4).and_then(|b| b.first_chunk());
    place.map_or(0, |b| u32::from_le_bytes(*b) as usize)
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn number(path: &Path) -> u64 {
    let digits = name(path);
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// The number of the store, from the first tier's identity.
fn store_id(image: &Image) -> [u8; 16] {
    let tier = image.iter().find(|(path, _)| name(path) == "TIER");
    let bytes = tier.and_then(|(_, bytes)| bytes.get(16..32)?.first_chunk().copied());
    bytes.unwrap_or_default()
}

fn with(image: &mut Image, path: &Path, act: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = image[path].to_vec();
    act(&mut bytes);
    image.insert(path.to_path_buf(), Arc::from(bytes));
}

pub(super) fn log(image: &mut Image, path: &Path) {
    log_as(1, image, path);
}

fn log_as(format: u8, image: &mut Image, path: &Path) {
    let store = store_id(image);
    let segment = number(path).to_le_bytes();
    with(image, path, |bytes| {
        put(bytes, 0, b"THC_LOG\n");
        put(bytes, 8, &[format, 0, 0, 0]);
        put(bytes, 16, &store);
        put(bytes, 32, &segment);
        if bytes.len() >= 96 {
            let sum = crc(&[&bytes[..12], &bytes[16..96]]);
            put(bytes, 12, &sum.to_le_bytes());
        }
        let mut at = 96;
        while at + 32 <= bytes.len() {
            let length = word(bytes, at + 8).min(bytes.len() - at - 32);
            put(bytes, at + 8, &(length as u32).to_le_bytes());
            let sum = crc(&[&bytes[at + 32..at + 32 + length]]);
            put(bytes, at + 4, &sum.to_le_bytes());
            let offset = (at as u64).to_le_bytes();
            let sum = crc(&[&store, &segment, &offset, &bytes[at + 4..at + 32]]);
            put(bytes, at, &sum.to_le_bytes());
            let end = at + 32 + length;
            at = end.next_multiple_of(8);
            let padding = end.min(bytes.len())..at.min(bytes.len());
            bytes[padding].fill(0);
        }
    });
}

fn seal_frame(bytes: &mut [u8], at: usize, end: usize, number: u64) {
    let sum = crc(&[&bytes[at + 16..end]]);
    put(bytes, at + 4, &sum.to_le_bytes());
    let (offset, number) = ((at as u64).to_le_bytes(), number.to_le_bytes());
    let sum = crc(&[&bytes[at + 4..at + 16], &offset, &number]);
    put(bytes, at, &sum.to_le_bytes());
}

pub(super) fn manifest(image: &mut Image, path: &Path) {
    let number = number(path);
    with(image, path, |bytes| {
        let mut at = 0;
        while at + 16 <= bytes.len() {
            let length = word(bytes, at + 8).min(bytes.len() - at - 16);
            put(bytes, at + 8, &(length as u32).to_le_bytes());
            seal_frame(bytes, at, at + 16 + length, number);
            let end = at + 16 + length;
            at = end.next_multiple_of(8);
            let padding = end.min(bytes.len())..at.min(bytes.len());
            bytes[padding].fill(0);
        }
    });
}

pub(super) fn tier(image: &mut Image, path: &Path) {
    tier_as(1, image, path);
}

fn tier_as(format: u8, image: &mut Image, path: &Path) {
    with(image, path, |bytes| {
        put(bytes, 0, b"THCTIER\n");
        put(bytes, 8, &[format, 0, 0, 0]);
        if bytes.len() >= 16 {
            let sum = crc(&[&bytes[..12], &bytes[16..]]);
            put(bytes, 12, &sum.to_le_bytes());
        }
    });
}

/// Every frame of a record of events; one that says that it is longer than the file
/// ends with that.
pub(super) fn events(image: &mut Image, path: &Path) {
    with(image, path, |bytes| {
        let mut at = 0;
        while at + 12 <= bytes.len() {
            let covered = match &bytes[at..at + 4] {
                b"\nTE\x01" => at + 4,
                b"\nTE\x02" => at,
                _ => {
                    at += 1;
                    continue;
                }
            };
            let length = word(bytes, at + 4).min(bytes.len() - at - 12);
            put(bytes, at + 4, &(length as u32).to_le_bytes());
            let payload = at + 12..at + 12 + length;
            let sum = crc(&[&bytes[covered..at + 8], &bytes[payload]]);
            put(bytes, at + 8, &sum.to_le_bytes());
            at += 12 + length;
        }
    });
}

pub(super) fn heat(image: &mut Image, path: &Path) {
    let store = store_id(image);
    with(image, path, |bytes| {
        put(bytes, 0, b"THCHEAT\n");
        put(bytes, 8, &[1, 0, 0, 0]);
        put(bytes, 16, &store);
        let count = bytes.len().saturating_sub(40) as u64 / 16;
        put(bytes, 32, &count.to_le_bytes());
        if bytes.len() >= 16 {
            let sum = crc(&[&bytes[..12], &bytes[16..]]);
            put(bytes, 12, &sum.to_le_bytes());
        }
    });
}

pub(super) fn current(image: &mut Image, path: &Path) {
    with(image, path, |bytes| {
        // Behind the last space is the checksum.
        let space = bytes.iter().rposition(|&b| b == b' ');
        bytes.truncate(space.unwrap_or(bytes.len()));
        let seal = format!(" {:08x}\n", crc(&[bytes]));
        bytes.extend_from_slice(seal.as_bytes());
    });
}

/// The newest format of meta extents.
const META_FORMAT: u8 = 2;

fn seal_meta(format: u8, bytes: &mut [u8], table: Option<&TableMeta>) {
    put(bytes, 0, b"tclmeta\n");
    put(bytes, 8, &[format, 0, 0, 0]);
    if let Some(table) = table {
        put(bytes, 16, &table.id.0.to_le_bytes());
    }
    if bytes.len() >= 16 {
        let sum = masked(crc(&[&bytes[..12], &bytes[16..]]));
        put(bytes, 12, &sum.to_le_bytes());
    }
}

/// What says that it is of version 1 stays that.
pub(super) fn meta(image: &mut Image, path: &Path) {
    let is_old = image
        .get(path)
        .is_some_and(|bytes| bytes.get(8) == Some(&1));
    meta_as(if is_old { 1 } else { META_FORMAT }, image, path);
}

fn meta_as(format: u8, image: &mut Image, path: &Path) {
    let tables = tables(image);
    let object = number(path);
    let table = tables.iter().find(|t| t.meta.object.0 == object);
    with(image, path, |bytes| seal_meta(format, bytes, table));
    rebind(image);
}

/// The input is the data object; its first block as the meta has it is sealed,
/// and the meta told of its checksum.
pub(super) fn block(image: &mut Image, path: &Path) {
    const TRAILER: usize = 48;
    const MAGIC: [u8; 4] = *b"blk\x01";
    let object = number(path);
    let tables = tables(image);
    let Some(table) = tables
        .iter()
        .find(|t| t.data.iter().any(|e| e.object.0 == object))
    else {
        return;
    };
    let length = table.data.first().map_or(0, |e| e.length) as usize;
    let mut sums = Vec::new();
    with(image, path, |bytes| {
        // Readers take no object that is too short.
        bytes.resize(length.max(bytes.len()), 0);
        let mut start = 0;
        let mut at = TRAILER;
        while at <= bytes.len() {
            if bytes[at - 8..at - 4] != MAGIC {
                at += 1;
                continue;
            }
            let sum = masked(crc(&[&bytes[start..at - 4]])).to_le_bytes();
            sums.push((bytes[at - 4..at].to_vec(), sum));
            put(bytes, at - 4, &sum);
            start = at;
            at += TRAILER;
        }
    });
    let meta = image
        .keys()
        .find(|p| number(p) == table.meta.object.0 && name(p).ends_with("meta"));
    if let Some(meta) = meta.cloned() {
        with(image, &meta, |bytes| {
            for (old, new) in &sums {
                let place = bytes.windows(4).position(|w| w == old);
                if let Some(at) = place {
                    put(bytes, at, new);
                }
            }
            seal_meta(META_FORMAT, bytes, Some(table));
        });
    }
    rebind(image);
}

/// The first file of each kind as one of format `format` that is sound as far
/// as it can be understood.
pub(super) fn crossed(format: u8, whole: &Image) -> Vec<(PathBuf, Image)> {
    type Seal = fn(u8, &mut Image, &Path);
    let kinds: [(&str, Seal); 4] = [
        ("TIER", tier_as),
        (".log", log_as),
        (".meta", meta_as),
        ("MANIFEST", |format, image, path| {
            // The format follows the header's magic, one byte long.
            with(image, path, |bytes| put(bytes, 24, &[format]));
            manifest(image, path);
        }),
    ];
    let mut images = Vec::new();
    for (kind, seal) in kinds {
        if let Some(path) = whole.keys().rfind(|p| name(p).contains(kind)) {
            let mut image = whole.clone();
            seal(format, &mut image, path);
            // A checksum may take a byte less in the manifest than the one before it: then that
            // ends before where the log's seal says that it does.
            if manifest_bytes(&image) == manifest_bytes(whole) {
                images.push((path.clone(), image));
            }
        }
    }
    images
}

fn manifest_bytes(image: &Image) -> Option<usize> {
    manifest_of(image).map(|path| image[&path].len())
}

fn manifest_of(image: &Image) -> Option<PathBuf> {
    image
        .keys()
        .find(|p| name(p).starts_with("MANIFEST"))
        .cloned()
}

/// The payloads of the edits of a manifest that is as it should be.
pub(super) fn edits(bytes: &[u8]) -> Vec<Vec<u8>> {
    frames(bytes)
        .into_iter()
        .filter(|(kind, _)| *kind == EDIT)
        .map(|(_, payload)| payload)
        .collect()
}

const EDIT: usize = 0x7468_6501;

fn frames(bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut at = 0;
    while let Some(payload) = bytes.get(at + 16..at + 16 + word(bytes, at + 8)) {
        frames.push((word(bytes, at + 12), payload.to_vec()));
        at = (at + 16 + payload.len()).next_multiple_of(8);
    }
    frames
}

fn tables(image: &Image) -> Vec<TableMeta> {
    let bytes = manifest_of(image).map(|path| image[&path].to_vec());
    let mut tables = BTreeMap::new();
    for edit in edits(&bytes.unwrap_or_default()) {
        for change in Edit::decode(&edit)
            .unwrap_or(Edit {
                changes: Vec::new(),
            })
            .changes
        {
            if let Change::AddTable { table, .. } | Change::ReplaceTable { table, .. } = change {
                tables.insert(table.id, (*table).clone());
            }
        }
    }
    tables.into_values().collect()
}

/// Makes the manifest say what the objects are now.
fn rebind(image: &mut Image) {
    let Some(path) = manifest_of(image) else {
        return;
    };
    let manifest_number = number(&path);
    let mut bytes = Vec::new();
    for (kind, payload) in frames(&image[&path]) {
        let decoded = Edit::decode(&payload).ok().filter(|_| kind == EDIT);
        let payload = match decoded {
            Some(mut edit) => {
                edit.changes
                    .iter_mut()
                    .for_each(|c| rebind_change(c, image));
                edit.encode()
            }
            None => payload,
        };
        let at = bytes.len();
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(kind as u32).to_le_bytes());
        bytes.extend_from_slice(&payload);
        let end = bytes.len();
        seal_frame(&mut bytes, at, end, manifest_number);
        bytes.resize(end.next_multiple_of(8), 0);
    }
    image.insert(path, Arc::from(bytes));
}

fn rebind_change(change: &mut Change, image: &Image) {
    if let Change::AddTable { table, .. } | Change::ReplaceTable { table, .. } = change {
        let table = Arc::make_mut(table);
        rebind_extent(&mut table.meta, image, ".meta");
        for extent in &mut table.data {
            rebind_extent(extent, image, ".data");
        }
    }
}

fn rebind_extent(extent: &mut Extent, image: &Image, kind: &str) {
    let object = extent.object.0;
    let mut files = image.iter();
    if let Some((_, bytes)) = files.find(|(p, _)| number(p) == object && name(p).ends_with(kind)) {
        extent.length = bytes.len() as u64 - extent.offset.min(bytes.len() as u64);
        extent.checksum = crc(&[bytes.get(extent.offset as usize..).unwrap_or_default()]);
    }
}
