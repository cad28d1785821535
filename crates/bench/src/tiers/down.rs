//! `tiers down`: undoes what the record names, in the other order.
//!
//! Undoing a step twice, or one that was never taken, does nothing. A step that
//! cannot be undone, say as somebody works on a tier, stays on record, and the
//! rest is undone nevertheless; another `down` goes on from there.

use std::fs;
use std::io;
use std::path::Path;

use super::cgroup::{self, at};
use super::image;
use super::state::{Journal, Place, Step};
use crate::engine::Result;

/// Takes the rig down; says what was undone, one line each. No rig, no lines.
pub(super) fn down(place: &Place) -> Result<Vec<String>> {
    if place.load()?.is_none() {
        return Ok(Vec::new());
    }
    if !rustix::process::geteuid().is_root() {
        return Err(format!("the rig {} is up, and only root can undo it", place.name).into());
    }
    let _lock = place.lock()?;
    match place.load()? {
        Some(state) => undo(&mut Journal::resume(place, state)),
        None => Ok(Vec::new()),
    }
}

/// Undoes every step on record that can be undone.
pub(super) fn undo(journal: &mut Journal) -> Result<Vec<String>> {
    journal.incomplete()?;
    let mut words = Vec::new();
    let mut undone = Vec::new();
    let mut failures = Vec::new();
    for step in journal.state().steps.iter().rev() {
        match undo_step(step) {
            Ok(said) => {
                words.extend(said);
                undone.push(step.clone());
            }
            Err(error) => failures.push(error.to_string()),
        }
    }
    journal.forget(&undone)?;
    match failures.is_empty() {
        true => Ok(words),
        false => {
            words.push(format!("could not be undone: {}", failures.join("; ")));
            Err(words.join("\n").into())
        }
    }
}

/// Undoes one step; says so if it had been taken.
fn undo_step(step: &Step) -> Result<Option<String>> {
    match step {
        Step::MemoryGroup { group, .. } => {
            Ok(
                cgroup::remove_memory_group(group)?.map(|moved| match moved {
                    0 => format!("removed the memory group {}", group.display()),
                    _ => format!(
                        "removed the memory group {} and moved the {moved} processes in it to the \
                     group above",
                        group.display()
                    ),
                }),
            )
        }
        Step::Caps { caps, .. } => {
            let mut lifted = 0;
            for cap in caps {
                lifted += usize::from(cap.lift()?);
            }
            Ok((lifted > 0).then(|| {
                let (major, minor) = caps[0].device();
                format!("lifted {lifted} caps on device {major}:{minor}")
            }))
        }
        Step::Mount { point, image } => {
            let any = image::unmount(point, image)?;
            Ok(any.then(|| format!("unmounted {}", point.display())))
        }
        Step::Attach { image } => {
            let devices = image::detach(image)?;
            let names: Vec<_> = devices
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Ok((!names.is_empty()).then(|| format!("detached {}", names.join(", "))))
        }
        Step::Image { image, .. } => {
            if !image::attached(image)?.is_empty() {
                return Err(format!("{} is still in use", image.display()).into());
            }
            removed(image, fs::remove_file(image))
        }
        Step::Directory(path) => removed(path, fs::remove_dir(path)),
    }
}

/// What a removal says; that there was nothing to remove is no error.
fn removed(path: &Path, outcome: io::Result<()>) -> Result<Option<String>> {
    match outcome {
        Ok(()) => Ok(Some(format!("removed {}", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error).into()),
    }
}
