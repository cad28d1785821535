//! The `TIER` file: which tier of which store a directory is.
//!
//! Without it a swapped, missing or restored directory would be opened as if
//! nothing had happened, and old versions of deleted keys would rise from the
//! dead (I7). Written by the usual dance: a temporary file, its sync, a rename,
//! a sync of the directory. Byte layout: docs/formats/tier.md.

use std::io;
use std::path::Path;

use super::{Environment, FileSystem, OpenHow, read_exact_at, write_all_at};
use crate::{Error, ErrorKind, Result};

/// The name of the identity file in a tier's directory.
pub const TIER_FILE_NAME: &str = "TIER";

const TEMPORARY_FILE_NAME: &str = "TIER.tmp";
pub(crate) const MAGIC: [u8; 8] = *b"THCTIER\n";
const FORMAT_VERSION: u32 = 1;

/// Bytes before the name: magic, version, CRC, store, generation, tier, length.
const FIXED_BYTES: usize = 48;

/// Longest tier name, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Who a tier directory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierIdentity {
    /// The store it belongs to, drawn at its creation.
    pub store_id: u128,
    /// The tier's number in that store.
    pub tier_id: u32,
    /// The tier's name, for people.
    pub tier_name: String,
    /// Counts the openings of the store; a lower one than the store remembers
    /// is an old copy of the directory.
    pub generation: u64,
}

impl TierIdentity {
    /// Writes the identity of `directory`, replacing the one there. On return
    /// it is durable; after an error the old or the new one stands, whole.
    ///
    /// # Errors
    /// `InvalidArgument` for a name over 255 bytes, `NoSpace`, `Io`.
    pub fn write(&self, environment: &Environment, directory: &Path) -> Result<()> {
        if self.tier_name.len() > NAME_BYTES_MAX {
            return Err(Error::invalid("tier name is longer than 255 bytes"));
        }
        let file_system = &*environment.file_system;
        let temporary = directory.join(TEMPORARY_FILE_NAME);
        let path = directory.join(TIER_FILE_NAME);
        replace(file_system, directory, &temporary, &path, &self.encode())
            .map_err(|error| Error::io("write tier identity", &path, error))
    }

    /// Reads the identity of `directory`; `None` if it has none.
    ///
    /// # Errors
    /// `Corruption`, `Unsupported`, `Io`.
    pub fn read(environment: &Environment, directory: &Path) -> Result<Option<TierIdentity>> {
        let path = directory.join(TIER_FILE_NAME);
        let fail = |error| Error::io("read tier identity", &path, error);
        let file = match environment.file_system.open(&path, OpenHow::READ) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        // One byte more than the largest, to see that nothing follows.
        let mut bytes = vec![0; FIXED_BYTES + NAME_BYTES_MAX + 1];
        let length = read_exact_at(&*file, &mut bytes, 0).map_err(fail)?;
        TierIdentity::decode(&bytes[..length], &path).map(Some)
    }

    /// Reads the identity of `directory` and compares it with the expected one.
    /// A higher generation than expected passes: a crash may lie between
    /// writing it here and remembering it in the store.
    ///
    /// # Errors
    /// `WrongTier` with what differs, and those of [`TierIdentity::read`].
    pub fn verify(&self, environment: &Environment, directory: &Path) -> Result<TierIdentity> {
        let wrong = |message: &str| Error::new(ErrorKind::WrongTier, message).at(directory);
        let Some(found) = TierIdentity::read(environment, directory)? else {
            let message = "the directory is no tier: it has no TIER file";
            let expected = format!("tier {} ({})", self.tier_id, self.tier_name);
            return Err(wrong(message).expected(expected, "nothing"));
        };
        if found.store_id != self.store_id {
            return Err(wrong("the directory is a tier of another store").expected(
                format_args!("store {:032x}", self.store_id),
                format_args!("store {:032x}", found.store_id),
            ));
        }
        if (found.tier_id, &found.tier_name) != (self.tier_id, &self.tier_name) {
            return Err(
                wrong("the directory is another tier of this store").expected(
                    format_args!("tier {} ({})", self.tier_id, self.tier_name),
                    format_args!("tier {} ({})", found.tier_id, found.tier_name),
                ),
            );
        }
        if found.generation < self.generation {
            return Err(wrong("the directory is an old copy of the tier").expected(
                format_args!("generation {} or later", self.generation),
                format_args!("generation {}", found.generation),
            ));
        }
        Ok(found)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.tier_name.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.store_id.to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.tier_id.to_le_bytes());
        bytes.extend_from_slice(&(self.tier_name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.tier_name.as_bytes());
        let checksum = checksum(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<TierIdentity> {
        let damaged = |what: &str| Error::corruption(what).at(path);
        let u32_at = |at: usize| {
            let word = bytes[at..at + 4].first_chunk().expect("four bytes taken");
            u32::from_le_bytes(*word)
        };
        if bytes.len() < FIXED_BYTES {
            return Err(damaged("the tier identity is too short")
                .expected(format_args!("{FIXED_BYTES} bytes or more"), bytes.len()));
        }
        if bytes[..8] != MAGIC {
            return Err(damaged("no tier identity")
                .offset(0)
                .expected(MAGIC.escape_ascii(), bytes[..8].escape_ascii()));
        }
        let (stored, computed) = (u32_at(12), checksum(bytes));
        if stored != computed {
            return Err(damaged("wrong checksum of the tier identity")
                .offset(12)
                .expected(format_args!("{stored:08x}"), format_args!("{computed:08x}")));
        }
        // After the checksum, which every version of the format has here: a
        // flipped bit is damage and not a newer version.
        let version = u32_at(8);
        if version != FORMAT_VERSION {
            return Err(Error::new(ErrorKind::Unsupported, "tier identity")
                .at(path)
                .expected(
                    format_args!("format version {FORMAT_VERSION}"),
                    format_args!("version {version}"),
                ));
        }
        let name = &bytes[FIXED_BYTES..];
        if u32_at(44) as usize != name.len() {
            return Err(damaged("wrong length of the tier name")
                .offset(44)
                .expected(u32_at(44), name.len()));
        }
        let tier_name = std::str::from_utf8(name)
            .map_err(|_| damaged("the tier name is not UTF-8").offset(FIXED_BYTES as u64))?;
        let store_id = bytes[16..32].first_chunk().expect("sixteen bytes taken");
        let generation = bytes[32..40].first_chunk().expect("eight bytes taken");
        Ok(TierIdentity {
            store_id: u128::from_le_bytes(*store_id),
            tier_id: u32_at(40),
            tier_name: tier_name.to_owned(),
            generation: u64::from_le_bytes(*generation),
        })
    }
}

/// CRC-32C of everything but the four bytes it is stored in.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

/// Puts `bytes` at `path` by way of `temporary`, durably.
pub(super) fn replace(
    file_system: &dyn FileSystem,
    directory: &Path,
    temporary: &Path,
    path: &Path,
    bytes: &[u8],
) -> io::Result<()> {
    swap(file_system, temporary, path, bytes)?;
    file_system.sync_directory(directory)
}

/// Puts `bytes` at `path` by way of `temporary`; the name may not be durable yet.
pub(super) fn swap(
    file_system: &dyn FileSystem,
    temporary: &Path,
    path: &Path,
    bytes: &[u8],
) -> io::Result<()> {
    // A file of that name is what a crash left of an earlier attempt.
    match file_system.unlink(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = file_system.open(temporary, OpenHow::NEW)?;
    write_all_at(&*file, bytes, 0)?;
    file.sync()?;
    file_system.rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> TierIdentity {
        TierIdentity {
            store_id: 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210,
            tier_id: 2,
            tier_name: "cold".to_owned(),
            generation: 7,
        }
    }

    #[test]
    fn identity_survives_the_round_trip_and_replacement() {
        let environment = Environment::real();
        let directory = tempfile::tempdir().unwrap();
        let read = || TierIdentity::read(&environment, directory.path()).unwrap();
        assert_eq!(read(), None);
        std::fs::write(directory.path().join(TEMPORARY_FILE_NAME), b"left over").unwrap();
        identity().write(&environment, directory.path()).unwrap();
        assert_eq!(read(), Some(identity()));
        let next = TierIdentity {
            generation: 8,
            ..identity()
        };
        next.write(&environment, directory.path()).unwrap();
        assert_eq!(read(), Some(next));
        identity().verify(&environment, directory.path()).unwrap();
    }

    #[test]
    fn identity_bytes_are_those_of_the_format_page() {
        let golden = "544843544945520a010000005bfd86841032547698badcfeefcdab8967452301\
                      07000000000000000200000004000000636f6c64";
        let hex: String = identity()
            .encode()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, golden);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_reported() {
        let bytes = identity().encode();
        let path = Path::new("TIER");
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = TierIdentity::decode(&bytes, path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "bit {bit}: {error}");
        }
        for length in 0..bytes.len() {
            let error = TierIdentity::decode(&bytes[..length], path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "length {length}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(TierIdentity::decode(&longer, path).is_err());
    }

    #[test]
    fn a_newer_format_is_unsupported_and_not_damage() {
        let mut bytes = identity().encode();
        bytes[8] = 2;
        let checksum = checksum(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        let error = TierIdentity::decode(&bytes, Path::new("TIER")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_directory_that_is_not_the_tier_is_refused_with_what_differs() {
        let environment = Environment::real();
        let directory = tempfile::tempdir().unwrap();
        let refuse = |expected: &TierIdentity, message: &str| {
            let error = expected.verify(&environment, directory.path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WrongTier);
            assert!(error.to_string().contains(message), "{error}");
        };
        refuse(&identity(), "no TIER file");
        identity().write(&environment, directory.path()).unwrap();
        let mut other = identity();
        other.store_id += 1;
        refuse(&other, "another store");
        let mut other = identity();
        other.tier_id = 1;
        refuse(&other, "another tier");
        let mut other = identity();
        other.generation = 8;
        refuse(&other, "generation 8 or later, found generation 7");
    }
}
