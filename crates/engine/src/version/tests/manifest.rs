//! Manifests at their bounds, and what is told of damaged ones.

use std::path::Path;

use thermocline_model::Cuts;
use thermocline_model::edit::{Change, Edit};
use thermocline_model::key::SeqNo;
use thermocline_model::tier::{TIERS_MAX, TierId};
use thermocline_model::version::{KeyspaceId, Version};

use crate::error::{Error, ErrorKind};
use crate::log::{LocalLog, LogOptions};
use crate::store::Environment;
use crate::version::manifest::{
    Header, Manifest, Part, check_closing_note, claimed_number, file_name, noted, parts, read,
};
use crate::version::pointer::{CURRENT, current};
use crate::version::remains::{remains, was_in_force};

const NUMBER: u64 = 7;
const STORE: u128 = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;
/// A frame without payload.
const EMPTY_FRAME: u64 = 16;

fn version() -> Version {
    let add = Change::AddKeyspace {
        keyspace: KeyspaceId::DEFAULT,
        name: "default".to_string(),
        cuts: Cuts::default(),
    };
    Edit::of(add).apply(&Version::empty()).unwrap()
}

fn header(tiers: usize) -> Header {
    Header {
        store_id: STORE,
        number: NUMBER,
        generation: 3,
        tiers: (0..tiers)
            .map(|i| (TierId(i as u32), format!("tier{i}")))
            .collect(),
    }
}

fn create(directory: &Path, settled: bool) -> Manifest {
    let environment = Environment::real();
    Manifest::create(&environment, directory, header(1), &version(), settled).unwrap()
}

fn reached(last_seq: u64) -> Edit {
    Edit::of(Change::SetCounters {
        next_id: 9,
        next_keyspace: 1,
        last_seq: SeqNo(last_seq),
    })
}

fn bytes_of(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join(file_name(NUMBER))).unwrap()
}

fn put_back(directory: &Path, bytes: &[u8]) {
    std::fs::write(directory.join(file_name(NUMBER)), bytes).unwrap();
}

/// Offsets of the frames: header, snapshot, *settled*, two edits, mark.
fn tiny(directory: &Path) -> (Vec<u8>, Vec<usize>) {
    let mut manifest = create(directory, true);
    manifest.append(&reached(300)).unwrap();
    manifest.append(&reached(400)).unwrap();
    let bytes = bytes_of(directory);
    let offsets: Vec<_> = parts(&bytes, NUMBER).iter().map(place).collect();
    assert_eq!(offsets.len(), 6);
    (bytes, offsets.iter().map(|p| p.0 as usize).collect())
}

/// Offset, and length if it is damaged.
fn place(part: &Part<'_>) -> (u64, Option<u64>) {
    match part {
        Part::Frame { offset, .. } => (*offset, None),
        Part::Damaged { offset, length } => (*offset, Some(*length)),
    }
}

/// An edit whose frame has so many bytes.
fn edit_of_frame(bytes: u64) -> Edit {
    (0..bytes as usize)
        .map(|length| {
            Edit::of(Change::AddKeyspace {
                keyspace: KeyspaceId(1),
                name: "n".repeat(length),
                cuts: Cuts::default(),
            })
        })
        .find(|edit| EMPTY_FRAME + edit.encode().len() as u64 == bytes)
        .expect("every length of name was tried")
}

#[test]
fn a_manifest_wants_compaction_past_eight_kibibytes_and_four_snapshots() {
    let directory = tempfile::tempdir().unwrap();
    let mut manifest = create(directory.path(), true);
    let bound = 8192 + 4 * manifest.size_bytes();
    assert!(!manifest.wants_compaction());
    let missing = bound - manifest.size_bytes();
    manifest.append(&edit_of_frame(missing)).unwrap();
    assert_eq!(manifest.size_bytes(), bound);
    assert!(!manifest.wants_compaction());
    manifest.append(&reached(1)).unwrap();
    assert!(manifest.wants_compaction());
    manifest.append(&reached(2)).unwrap();
    assert!(manifest.wants_compaction());
}

#[test]
fn the_size_of_a_manifest_is_where_its_edits_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut manifest = create(directory.path(), false);
    for round in 0..3 {
        let on_disk = bytes_of(directory.path()).len() as u64;
        assert_eq!(manifest.size_bytes() + EMPTY_FRAME, on_disk);
        let read = read(&Environment::real(), directory.path(), NUMBER).unwrap();
        assert_eq!(read.end, manifest.size_bytes());
        match round {
            0 => manifest.append(&reached(300)).unwrap(),
            _ => manifest.settle().unwrap(),
        }
    }
}

#[test]
fn a_closing_note_is_left_only_where_an_edit_came_since_the_manifest_was_begun() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // One that takes over from another has that one's edits.
    let manifest = create(path, true);
    let expected = Some((NUMBER, manifest.size_bytes()));
    assert_eq!(noted(&manifest.closing_note().unwrap()), expected);
    let mut manifest = create(path, false);
    assert_eq!(manifest.closing_note(), None);
    manifest.settle().unwrap();
    assert_eq!(manifest.closing_note(), None);
    manifest.append(&reached(300)).unwrap();
    let expected = Some((NUMBER, manifest.size_bytes()));
    assert_eq!(noted(&manifest.closing_note().unwrap()), expected);
    assert_eq!(noted(&[0; 15]), None);
}

#[test]
fn edits_missing_since_the_note_of_the_same_manifest_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let manifest = create(path, true);
    let end = manifest.size_bytes();
    let environment = Environment::real();
    let check = |number, end| check_closing_note(&environment, path, path, STORE, number, end);
    // Nothing was noted yet.
    check(NUMBER, 0).unwrap();
    let options = LogOptions::default();
    let mut log = LocalLog::create(&environment, path, STORE, options, 1, SeqNo::ZERO).unwrap();
    log.close_with(manifest.closing_note()).unwrap();
    check(NUMBER, end).unwrap();
    check(NUMBER, end + 8).unwrap();
    let error = check(NUMBER, end - 8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(error.offset_at(), Some(end - 8));
    // A manifest that replaced the noted one.
    check(NUMBER + 1, end - 8).unwrap();
}

#[test]
fn a_header_names_sixteen_tiers_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let environment = Environment::real();
    let written = |tiers| -> Result<Header, Error> {
        let header = header(tiers);
        Manifest::create(&environment, directory.path(), header, &version(), true)?;
        Ok(read(&environment, directory.path(), NUMBER)?.header)
    };
    assert_eq!(written(TIERS_MAX).unwrap(), header(TIERS_MAX));
    for tiers in [TIERS_MAX + 1, TIERS_MAX + 2] {
        let error = written(tiers).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
}

#[test]
fn a_pointer_of_more_than_a_hundred_bytes_is_not_even_read() {
    let directory = tempfile::tempdir().unwrap();
    let found = |length: usize| {
        std::fs::write(directory.path().join(CURRENT), "x".repeat(length)).unwrap();
        let error = current(&Environment::real(), directory.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        error.expected_found().unwrap().1.to_string()
    };
    assert_eq!(found(100), "x".repeat(100));
    assert_eq!(found(101), "101 bytes");
    assert_eq!(found(4096), "4096 bytes");
}

/// Sparse: it takes no room on the device.
#[test]
fn a_manifest_of_more_than_four_gibibytes_is_refused_unread() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(file_name(NUMBER));
    let file = std::fs::File::create(path).unwrap();
    file.set_len((4 << 30) + 1).unwrap();
    let error = read(&Environment::real(), directory.path(), NUMBER).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(error.words(), "corruption: file size");
}

#[test]
fn the_stretches_of_a_damaged_manifest_lie_end_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, offsets) = tiny(directory.path());
    let as_frames = |o: &[usize]| -> Vec<_> { o.iter().map(|&o| (o as u64, None)).collect() };
    let places = |bytes: &[u8]| -> Vec<_> { parts(bytes, NUMBER).iter().map(place).collect() };
    assert_eq!(places(&bytes), as_frames(&offsets));
    // The third and the fourth frame, which lie side by side, and the end.
    let mut damaged = bytes.clone();
    damaged[offsets[2]] ^= 1;
    damaged[offsets[3] + 1] ^= 1;
    damaged.truncate(bytes.len() - 3);
    let mut expected = as_frames(&offsets[..2]);
    expected.push((offsets[2] as u64, Some((offsets[4] - offsets[2]) as u64)));
    expected.push((offsets[4] as u64, None));
    let torn = damaged.len() - offsets[5];
    expected.push((offsets[5] as u64, Some(torn as u64)));
    assert_eq!(places(&damaged), expected);
}

#[test]
fn of_a_whole_manifest_everything_remains() {
    let directory = tempfile::tempdir().unwrap();
    let (_, offsets) = tiny(directory.path());
    let found = remains(&Environment::real(), directory.path(), NUMBER).unwrap();
    assert_eq!(found.header, Some(header(1)));
    assert_eq!(found.version.unwrap().last_seq, SeqNo(400));
    assert_eq!(found.gap, None);
    assert_eq!(found.edits.len(), 3);
    assert!(found.is_edit_last);
    assert_eq!(found.end, offsets[5] as u64);
}

#[test]
fn of_a_damaged_manifest_the_edits_behind_the_gap_remain_but_make_no_version() {
    let directory = tempfile::tempdir().unwrap();
    let (mut bytes, offsets) = tiny(directory.path());
    bytes[offsets[3] + 20] ^= 1;
    put_back(directory.path(), &bytes);
    let found = remains(&Environment::real(), directory.path(), NUMBER).unwrap();
    assert_eq!(found.header, Some(header(1)));
    assert_eq!(found.version.unwrap().last_seq, SeqNo::ZERO);
    assert_eq!(found.gap, Some(offsets[3] as u64));
    assert_eq!(found.edits.len(), 2);
    assert!(found.is_edit_last);
    assert_eq!(found.end, offsets[5] as u64);
}

#[test]
fn a_manifest_of_a_header_alone_has_a_gap_from_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, offsets) = tiny(directory.path());
    put_back(directory.path(), &bytes[..offsets[1]]);
    let found = remains(&Environment::real(), directory.path(), NUMBER).unwrap();
    assert_eq!(found.header, Some(header(1)));
    assert_eq!((found.version, found.gap), (None, Some(0)));
    assert!(!found.is_edit_last);
    let error = read(&Environment::real(), directory.path(), NUMBER).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

#[test]
fn a_manifest_was_in_force_if_it_is_settled_or_has_an_edit_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let was = || was_in_force(&Environment::real(), path, NUMBER).unwrap();
    let mut manifest = create(path, false);
    assert!(!was());
    manifest.append(&reached(300)).unwrap();
    assert!(was());
    manifest.append(&reached(400)).unwrap();
    assert!(was());
    drop(create(path, true));
    assert!(was());
    // As far as it can be read: without what settles it, and with one of three edits.
    let (mut bytes, offsets) = tiny(path);
    for at in [offsets[2], offsets[3], offsets[4]] {
        assert!(was());
        bytes[at] ^= 1;
        put_back(path, &bytes);
    }
    assert!(!was());
    bytes[offsets[1]] ^= 1;
    put_back(path, &bytes);
    assert!(!was());
}

#[test]
fn a_manifest_without_its_name_claims_its_number_only_with_magic_and_format() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, _) = tiny(directory.path());
    assert_eq!(claimed_number(&bytes), Some(NUMBER));
    let changed = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 2;
        claimed_number(&bytes)
    };
    let (magic, format) = (16, 24);
    assert_eq!(changed(magic), None);
    assert_eq!(changed(format), None);
    assert_eq!(claimed_number(&bytes[..magic + 4]), None);
}
