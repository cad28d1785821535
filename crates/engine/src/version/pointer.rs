//! The pointer to the manifest in force: the file `CURRENT`.
//!
//! A new manifest takes over in two phases: it is written and persisted under its own name, then
//! `CURRENT` is replaced by an atomic rename. Only then is the old one deleted.
//!
//! Byte layout: `docs/formats/manifest.md`.

use std::path::Path;

use super::manifest::{file_name, number_of, read_file};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Access, Create, Environment, OpenHow, write_all_at};

/// The name of the pointer file.
pub(crate) const CURRENT: &str = "CURRENT";
const CURRENT_NEW: &str = "CURRENT.new";

/// Makes manifest `number` the one in force: the second phase of the swap.
///
/// # Errors
/// [`ErrorKind::Poisoned`] when nobody knows which manifest will be in force
/// after a crash; after any other error the old one is.
pub(crate) fn install(environment: &Environment, directory: &Path, number: u64) -> Result<()> {
    let fs = &environment.file_system;
    let (new, current) = (directory.join(CURRENT_NEW), directory.join(CURRENT));
    let how = OpenHow {
        access: Access::ReadWrite,
        create: Create::IfAbsent,
        direct: false,
    };
    let file = fs
        .open(&new, how)
        .map_err(|e| Error::io("creating pointer", &new, e))?;
    let text = current_text(number);
    let io =
        |doing, path, result: std::io::Result<()>| result.map_err(|e| Error::io(doing, path, e));
    io("writing pointer", &new, file.set_size(0))?;
    io(
        "writing pointer",
        &new,
        write_all_at(&*file, text.as_bytes(), 0),
    )?;
    io("persisting pointer", &new, file.sync())?;
    fs.rename(&new, &current)
        .and_then(|()| fs.sync_directory(directory))
        .map_err(|e| {
            Error::new(
                ErrorKind::Poisoned,
                format!("swapping manifests failed: {e}"),
            )
            .at(&current)
        })
}

fn current_text(number: u64) -> String {
    let name = file_name(number);
    format!("{name} {:08x}\n", crc32c::crc32c(name.as_bytes()))
}

/// The number of the manifest in force, or `None` where no store was created.
pub(crate) fn current(environment: &Environment, directory: &Path) -> Result<Option<u64>> {
    let path = directory.join(CURRENT);
    let fs = &environment.file_system;
    let metadata = fs
        .metadata(&path)
        .map_err(|e| Error::io("looking for pointer", &path, e))?;
    let Some(metadata) = metadata else {
        return Ok(None);
    };
    let wrong = |found: String| {
        Error::corruption("pointer to the manifest")
            .at(&path)
            .expected("a manifest's name and checksum", found)
    };
    if metadata.size_bytes > 100 {
        return Err(wrong(format!("{} bytes", metadata.size_bytes)));
    }
    let bytes = read_file(environment, &path)?;
    current_number(&bytes)
        .map(Some)
        .ok_or_else(|| wrong(bytes.escape_ascii().to_string()))
}

/// The manifest that the bytes of a pointer name.
pub(crate) fn current_number(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let number = text.split(' ').next().and_then(number_of)?;
    (text == current_text(number)).then_some(number)
}
