//! What can be read of a manifest, whatever its state: for repair, and to know whether
//! one without a pointer to it was ever in force.

use std::path::Path;

use thermocline_model::edit::Edit;
use thermocline_model::version::Version;

use super::manifest::{FrameKind, Header, Part, file_name, frame_len, parts, read_file};
use crate::error::Result;
use crate::store::Environment;

/// What can be read of a manifest, whatever its state.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    pub(crate) header: Option<Header>,
    /// What the edits before the damage make; none if there is no edit.
    pub(crate) version: Option<Version>,
    /// Where damage begins that is more than a torn last edit.
    pub(crate) gap: Option<u64>,
    /// Every edit that can be read, those behind the damage included.
    pub(crate) edits: Vec<Edit>,
    /// Whether one of them is behind all damage.
    pub(crate) is_edit_last: bool,
    /// Where the last of them ends.
    pub(crate) end: u64,
}

/// Reads what can be read of manifest `number`.
///
/// # Errors
/// `Io`.
pub(crate) fn remains(environment: &Environment, directory: &Path, number: u64) -> Result<Remains> {
    let bytes = read_file(environment, &directory.join(file_name(number)))?;
    let mut remains = Remains::default();
    let mut damage = None;
    for part in parts(&bytes, number) {
        let (offset, kind, payload) = match part {
            Part::Frame {
                offset,
                kind,
                payload,
            } => (offset, kind, payload),
            Part::Damaged { offset, .. } => {
                damage.get_or_insert(offset);
                remains.is_edit_last = false;
                continue;
            }
        };
        if remains.gap.is_none() {
            remains.gap = damage;
        }
        if kind != FrameKind::Mark {
            remains.end = offset + frame_len(payload.len()) as u64;
        }
        match kind {
            FrameKind::Header => {
                remains.header = Header::decode(payload).ok().filter(|h| h.number == number)
            }
            FrameKind::Edit => {
                let Ok(edit) = Edit::decode(payload) else {
                    remains.gap.get_or_insert(offset);
                    remains.is_edit_last = false;
                    continue;
                };
                remains.is_edit_last = true;
                if remains.gap.is_none() {
                    let base = remains.version.clone().unwrap_or_else(Version::empty);
                    match edit.apply(&base) {
                        Ok(next) => remains.version = Some(next),
                        Err(_) => remains.gap = Some(offset),
                    }
                }
                remains.edits.push(edit);
            }
            FrameKind::Mark | FrameKind::Settled => {}
        }
    }
    if remains.header.is_none() || remains.version.is_none() {
        remains.gap.get_or_insert(0);
    }
    Ok(remains)
}

/// Whether manifest `number` was in force once, as far as it can be read. One that an
/// opening began and did not put in force holds one edit and is not settled.
///
/// # Errors
/// `Io`.
pub(crate) fn was_in_force(
    environment: &Environment,
    directory: &Path,
    number: u64,
) -> Result<bool> {
    let bytes = read_file(environment, &directory.join(file_name(number)))?;
    let mut edits = 0;
    for part in parts(&bytes, number) {
        match part {
            Part::Frame {
                kind: FrameKind::Settled,
                ..
            } => return Ok(true),
            Part::Frame {
                kind: FrameKind::Edit,
                ..
            } => edits += 1,
            Part::Frame { .. } | Part::Damaged { .. } => {}
        }
    }
    Ok(edits > 1)
}
