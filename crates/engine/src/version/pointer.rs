//! The pointer to the manifest in force: the file `CURRENT`.
//!
//! It lies in the directory of the first tier, where every opening and every tool begins, and says
//! which manifest is in force and on which tier that lies. It is written only when a manifest is
//! begun, so that what every job writes goes to the tier of the manifest alone.
//!
//! A new manifest takes over in two phases: it is written and persisted under its own name, its
//! directory entry included, then `CURRENT` is replaced by an atomic rename. Only then is the old
//! one deleted, wherever that lies.
//!
//! Byte layout: `docs/formats/manifest.md`.

use std::fmt;
use std::path::Path;

use thermocline_model::tier::{TIERS_MAX, TierId};

use super::manifest::{file_name, number_of, read_file};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Access, Create, Environment, OpenHow, write_all_at};

/// The name of the pointer file.
pub(crate) const CURRENT: &str = "CURRENT";
const CURRENT_NEW: &str = "CURRENT.new";
/// More than any pointer has.
const BYTES_MAX: u64 = 100;

/// A manifest and the tier in whose directory it lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Pointer {
    pub(crate) number: u64,
    pub(crate) tier: TierId,
}

impl fmt::Display for Pointer {
    /// As in the file: the first tier goes without saying.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&file_name(self.number))?;
        match self.tier.0 {
            0 => Ok(()),
            tier => write!(f, " {tier}"),
        }
    }
}

impl Pointer {
    /// The manifest that the bytes of a pointer name.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Pointer> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.split(' ');
        let number = number_of(words.next()?)?;
        let tier = match (words.next()?, words.next()) {
            (tier, Some(_)) => tier.parse().ok()?,
            (_, None) => 0,
        };
        let pointer = Pointer {
            number,
            tier: TierId(tier),
        };
        let is_tier = (tier as usize) < TIERS_MAX;
        (is_tier && text == pointer.text()).then_some(pointer)
    }

    fn text(self) -> String {
        let words = self.to_string();
        format!("{words} {:08x}\n", crc32c::crc32c(words.as_bytes()))
    }
}

/// Makes the manifest the one in force: the second phase of the swap. `directory` is the first
/// tier's. Requires: the manifest and its name are durable.
///
/// # Errors
/// [`ErrorKind::Poisoned`] when nobody knows which manifest will be in force
/// after a crash; after any other error the old one is.
pub(crate) fn install(environment: &Environment, directory: &Path, pointer: Pointer) -> Result<()> {
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
    let text = pointer.text();
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

/// The manifest in force, or `None` where no store was created. `directory` is the first tier's.
pub(crate) fn current(environment: &Environment, directory: &Path) -> Result<Option<Pointer>> {
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
    if metadata.size_bytes > BYTES_MAX {
        return Err(wrong(format!("{} bytes", metadata.size_bytes)));
    }
    let bytes = read_file(environment, &path)?;
    Pointer::parse(&bytes)
        .map(Some)
        .ok_or_else(|| wrong(bytes.escape_ascii().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(number: u64, tier: u32) -> Pointer {
        Pointer {
            number,
            tier: TierId(tier),
        }
    }

    fn sealed(words: &str) -> String {
        format!("{words} {:08x}\n", crc32c::crc32c(words.as_bytes()))
    }

    #[test]
    fn pointer_bytes_are_those_of_the_format_page() {
        let directory = tempfile::tempdir().unwrap();
        let environment = Environment::real();
        for (pointer, golden) in [
            (pointer(7, 0), "MANIFEST-000007 5872ce62\n"),
            (pointer(7, 1), "MANIFEST-000007 1 844e8a1b\n"),
        ] {
            install(&environment, directory.path(), pointer).unwrap();
            let bytes = std::fs::read_to_string(directory.path().join(CURRENT)).unwrap();
            assert_eq!(bytes, golden);
            assert_eq!(
                current(&environment, directory.path()).unwrap(),
                Some(pointer)
            );
        }
    }

    #[test]
    fn a_pointer_names_one_of_sixteen_tiers_in_one_way() {
        for tier in [1, 2, 9, 10, 15] {
            let words = format!("MANIFEST-000007 {tier}");
            assert_eq!(
                Pointer::parse(sealed(&words).as_bytes()),
                Some(pointer(7, tier))
            );
        }
        for tier in [
            "0",
            "00",
            "01",
            "+1",
            "-1",
            "1 ",
            " 1",
            "",
            "x",
            "16",
            "4294967296",
            "1 1",
        ] {
            let words = format!("MANIFEST-000007 {tier}");
            assert_eq!(Pointer::parse(sealed(&words).as_bytes()), None, "{words:?}");
        }
        for words in ["MANIFEST-7 1", "MANIFEST-000007.1", " 1", "", "1"] {
            assert_eq!(Pointer::parse(sealed(words).as_bytes()), None, "{words:?}");
        }
    }

    #[test]
    fn a_pointer_with_any_bit_flipped_or_cut_anywhere_names_nothing() {
        for pointer in [pointer(7, 0), pointer(7, 1), pointer(1 << 56, 15)] {
            let bytes = pointer.text().into_bytes();
            assert_eq!(Pointer::parse(&bytes), Some(pointer));
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Pointer::parse(&damaged), None, "bit {bit}");
            }
            for length in 0..bytes.len() {
                assert_eq!(Pointer::parse(&bytes[..length]), None, "length {length}");
            }
            let longer = [&bytes[..], b"\n"].concat();
            assert_eq!(Pointer::parse(&longer), None);
        }
    }
}
