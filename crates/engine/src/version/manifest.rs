//! The manifest: the file that names every table.
//!
//! A manifest is a list of frames: a header, an edit that makes the version as
//! it was when the file was begun, and one edit per change since. Which one is
//! in force, and where, says [`super::pointer`].
//!
//! Every edit is persisted before it takes effect, and once it is persisted an
//! (unsynced) mark follows it, which the next edit overwrites. So a damaged
//! frame with anything valid behind it is damage, and is reported; a damaged
//! frame with nothing behind it is an edit whose writer died before it took
//! effect, and is dropped. (A mark that stayed in place would break this: a
//! power failure may keep the edit behind it and lose the mark.)
//!
//! A failed persist is final (I5): the manifest is poisoned and takes no more
//! edits. A failed write (a full device) is not: the next edit overwrites it.
//!
//! Byte layout: `docs/formats/manifest.md`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_model::codec::{Reader, Writer};
use thermocline_model::edit::Edit;
use thermocline_model::tier::{TIERS_MAX, TierId};
use thermocline_model::version::{KeyspaceId, Version};

use crate::error::{Error, ErrorKind, Result};
use crate::log::{ClosingNote, closing_note as closing_note_of_log};
use crate::store::{
    Access, Create, Environment, File, OpenHow, parse_id, read_exact_at, write_all_at,
};

const MAGIC: &[u8; 8] = b"THERMMAN";
const FORMAT: u64 = 1;
const FRAME_HEADER: usize = 16;
/// Largest manifest that is read: far beyond any real one, and a bound on what
/// a damaged length can ask for.
const MANIFEST_BYTES_MAX: u64 = 4 << 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum FrameKind {
    Header = 0x7468_6800,
    Edit = 0x7468_6501,
    Mark = 0x7468_6d02,
    Settled = 0x7468_7303,
}

impl FrameKind {
    fn from_number(n: u32) -> Option<FrameKind> {
        [
            FrameKind::Header,
            FrameKind::Edit,
            FrameKind::Mark,
            FrameKind::Settled,
        ]
        .into_iter()
        .find(|&k| k as u32 == n)
    }
}

/// What a manifest says of its store before any edit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) store_id: u128,
    pub(crate) number: u64,
    /// How many times the store was opened: what the tiers' identities must
    /// agree with.
    pub(crate) generation: u64,
    pub(crate) tiers: Vec<(TierId, String)>,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(MAGIC);
        w.number(FORMAT);
        w.raw(&self.store_id.to_le_bytes());
        w.number(self.number);
        w.number(self.generation);
        w.length(self.tiers.len());
        for (id, name) in &self.tiers {
            w.number(id.0.into());
            w.bytes(name.as_bytes());
        }
        w.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, String> {
        let mut r = Reader::new(bytes);
        if r.raw(MAGIC.len())? != MAGIC {
            return Err("bad magic".to_string());
        }
        let format = r.number()?;
        if format != FORMAT {
            return Err(format!("{UNKNOWN_FORMAT} {format}"));
        }
        let mut store_id = [0u8; 16];
        store_id.copy_from_slice(r.raw(16)?);
        let (number, generation) = (r.number()?, r.number()?);
        let count = r.length()?;
        if count > TIERS_MAX {
            return Err(format!("{count} tiers"));
        }
        let mut tiers = Vec::new();
        for _ in 0..count {
            let id = TierId(r.number32()?);
            let name = String::from_utf8(r.bytes()?.to_vec()).map_err(|e| e.to_string())?;
            tiers.push((id, name));
        }
        r.end()?;
        Ok(Header {
            store_id: u128::from_le_bytes(store_id),
            number,
            generation,
            tiers,
        })
    }
}

const UNKNOWN_FORMAT: &str = "format version";

/// The file name of manifest `number`.
pub(crate) fn file_name(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

/// The number in a manifest's file name, which spells it as [`file_name`] does:
/// any other file is somebody else's.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    parse_id(name.strip_prefix("MANIFEST-")?)
}

/// A manifest open for appending.
#[derive(Debug)]
pub(crate) struct Manifest {
    file: Arc<dyn File>,
    path: PathBuf,
    header: Header,
    offset: u64,
    snapshot_bytes: u64,
    /// Where it ended when it had been settled: edits come behind.
    settled_bytes: u64,
    poisoned: bool,
}

impl Manifest {
    /// Writes and persists a new manifest that begins with `version`. It is not
    /// in force before [`install`]. It is `settled` from the start where every
    /// tier's identity carries its generation already.
    pub(crate) fn create(
        environment: &Environment,
        directory: &Path,
        header: Header,
        version: &Version,
        settled: bool,
    ) -> Result<Manifest> {
        let path = directory.join(file_name(header.number));
        let fs = &environment.file_system;
        let how = OpenHow {
            access: Access::ReadWrite,
            create: Create::IfAbsent,
            direct: false,
        };
        let file = fs
            .open(&path, how)
            .map_err(|e| Error::io("creating manifest", &path, e))?;
        file.set_size(0)
            .map_err(|e| Error::io("creating manifest", &path, e))?;
        let mut bytes = Vec::new();
        push_frame(
            &mut bytes,
            0,
            header.number,
            FrameKind::Header,
            &header.encode(),
        );
        push_frame(
            &mut bytes,
            0,
            header.number,
            FrameKind::Edit,
            &Edit::snapshot(version).encode(),
        );
        if settled {
            push_frame(&mut bytes, 0, header.number, FrameKind::Settled, &[]);
        }
        write_all_at(&*file, &bytes, 0).map_err(|e| Error::io("writing manifest", &path, e))?;
        file.sync()
            .map_err(|e| Error::io("persisting manifest", &path, e))?;
        fs.sync_directory(directory)
            .map_err(|e| Error::io("persisting directory", directory, e))?;
        let snapshot_bytes = bytes.len() as u64;
        let mut manifest = Manifest {
            file,
            path,
            header,
            offset: snapshot_bytes,
            snapshot_bytes,
            // One that takes over from another has that one's edits.
            settled_bytes: if settled { 0 } else { snapshot_bytes },
            poisoned: false,
        };
        manifest.mark();
        Ok(manifest)
    }

    /// Writes and persists `edit`. On an error nothing has changed, unless the
    /// error is [`ErrorKind::Poisoned`]: then nobody knows.
    pub(crate) fn append(&mut self, edit: &Edit) -> Result<()> {
        self.append_frame(FrameKind::Edit, &edit.encode())?;
        self.mark();
        Ok(())
    }

    /// Records that every tier's identity carries this generation.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.append_frame(FrameKind::Settled, &[])?;
        self.settled_bytes = self.offset;
        self.mark();
        Ok(())
    }

    fn append_frame(&mut self, kind: FrameKind, payload: &[u8]) -> Result<()> {
        if self.poisoned {
            return Err(Error::new(ErrorKind::Poisoned, "manifest").at(&self.path));
        }
        let mut bytes = Vec::with_capacity(payload.len() + FRAME_HEADER + 8);
        push_frame(&mut bytes, self.offset, self.header.number, kind, payload);
        if let Err(e) = write_all_at(&*self.file, &bytes, self.offset) {
            let _ = self.file.set_size(self.offset);
            return Err(Error::io("writing manifest", &self.path, e));
        }
        if let Err(e) = self.file.sync() {
            self.poisoned = true;
            return Err(Error::new(
                ErrorKind::Poisoned,
                format!("persisting manifest failed: {e}"),
            )
            .at(&self.path));
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Says that everything before is durable. Losing the mark costs only the
    /// distinction between damage and a torn tail, so errors are dropped.
    fn mark(&mut self) {
        let mut bytes = Vec::with_capacity(FRAME_HEADER);
        push_frame(
            &mut bytes,
            self.offset,
            self.header.number,
            FrameKind::Mark,
            &[],
        );
        if write_all_at(&*self.file, &bytes, self.offset).is_err() {
            let _ = self.file.set_size(self.offset);
        }
    }

    /// Whether so much has been appended that a new manifest would be smaller.
    pub(crate) fn wants_compaction(&self) -> bool {
        // Some hundred edits: rare enough to cost nothing, and often enough that
        // it happens in every test.
        const SLACK_BYTES: u64 = 8 << 10;
        self.offset > SLACK_BYTES + 4 * self.snapshot_bytes
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.offset
    }

    /// What a clean close has the log remember, so that edits that are cut off
    /// later are missed; none if there was no edit since the manifest was begun.
    pub(crate) fn closing_note(&self) -> Option<ClosingNote> {
        (self.offset > self.settled_bytes).then(|| closing_note(self.header.number, self.offset))
    }
}

/// See [`Manifest::closing_note`].
fn closing_note(number: u64, end: u64) -> ClosingNote {
    let mut note = ClosingNote::default();
    note[..8].copy_from_slice(&number.to_le_bytes());
    note[8..].copy_from_slice(&end.to_le_bytes());
    note
}

/// The manifest and the end of its edits that a closing note tells.
pub(crate) fn noted(note: &[u8]) -> Option<(u64, u64)> {
    let (number, end) = note.split_first_chunk()?;
    Some((
        u64::from_le_bytes(*number),
        u64::from_le_bytes(*end.first_chunk()?),
    ))
}

/// Requires that manifest `number`, whose edits end at `end`, has all the edits
/// that it had when the store of `store_id` was last closed cleanly.
///
/// # Errors
/// `Corruption`, `Io`.
pub(crate) fn check_closing_note(
    environment: &Environment,
    directory: &Path,
    log_directory: &Path,
    store_id: u128,
    number: u64,
    end: u64,
) -> Result<()> {
    let note = closing_note_of_log(environment, log_directory, store_id)?;
    let Some((of, closed_at)) = note.and_then(|note| noted(&note)) else {
        return Ok(());
    };
    // Another number is that of a manifest that was since replaced.
    if of != number || end >= closed_at {
        return Ok(());
    }
    Err(
        Error::corruption("the manifest has lost its last edits since the store was closed")
            .at(&directory.join(file_name(number)))
            .offset(end)
            .expected(
                format!("edits up to {closed_at}"),
                format!("edits up to {end}"),
            ),
    )
}

pub(crate) fn read_file(environment: &Environment, path: &Path) -> Result<Vec<u8>> {
    let file = environment
        .file_system
        .open(path, OpenHow::READ)
        .map_err(|e| Error::io("opening", path, e))?;
    let size = file
        .size_bytes()
        .map_err(|e| Error::io("reading size", path, e))?;
    if size > MANIFEST_BYTES_MAX {
        return Err(Error::corruption("file size")
            .at(path)
            .expected(format!("at most {MANIFEST_BYTES_MAX}"), size));
    }
    let mut bytes = vec![0; size as usize];
    read_exact_at(&*file, &mut bytes, 0).map_err(|e| Error::io("reading", path, e))?;
    Ok(bytes)
}

/// A manifest read back.
#[derive(Debug)]
pub(crate) struct ReadBack {
    pub(crate) header: Header,
    pub(crate) version: Version,
    /// Whether every tier's identity is known to carry the generation.
    pub(crate) settled: bool,
    /// Bytes of a torn last edit that were dropped.
    pub(crate) torn_bytes: u64,
    /// Where the last edit, or the *settled* frame behind it, ends.
    pub(crate) end: u64,
}

/// Whether a version lacks what every store has from its first edit on.
pub(crate) fn lacks_default(version: &Version) -> bool {
    !version.keyspaces.contains_key(&KeyspaceId::DEFAULT)
}

/// Reads manifest `number`.
pub(crate) fn read(environment: &Environment, directory: &Path, number: u64) -> Result<ReadBack> {
    let path = directory.join(file_name(number));
    let metadata = environment.file_system.metadata(&path);
    let metadata = metadata.map_err(|e| Error::io("looking for manifest", &path, e))?;
    if metadata.is_none_or(|m| m.is_directory) {
        return Err(Error::corruption("the manifest in force is missing").at(&path));
    }
    let bytes = read_file(environment, &path)?;
    let mut header = None;
    let mut version = Version::empty();
    let mut settled = false;
    let mut edits = 0u32;
    let mut edits_end = 0;
    let end = frames(&bytes, number, &path, &mut |offset, kind, payload| {
        if kind != FrameKind::Mark {
            edits_end = offset + frame_len(payload.len()) as u64;
        }
        let broken = |what: String| Error::corruption(what).at(&path).offset(offset);
        match kind {
            FrameKind::Header => {
                let read = Header::decode(payload).map_err(|e| {
                    let unknown = e.starts_with(UNKNOWN_FORMAT);
                    let kind = if unknown {
                        ErrorKind::Unsupported
                    } else {
                        ErrorKind::Corruption
                    };
                    Error::new(kind, format!("manifest header: {e}")).at(&path)
                })?;
                if read.number != number {
                    return Err(broken("manifest number".into()).expected(number, read.number));
                }
                header = Some(read);
            }
            FrameKind::Edit => {
                let edit = Edit::decode(payload).map_err(&broken)?;
                version = edit.apply(&version).map_err(&broken)?;
                edits += 1;
            }
            FrameKind::Mark => {}
            FrameKind::Settled => settled = true,
        }
        Ok(())
    })?;
    let header = header.filter(|_| edits > 0).ok_or_else(|| {
        Error::corruption("manifest")
            .at(&path)
            .expected("a header and an edit", format!("{} bytes", bytes.len()))
    })?;
    if lacks_default(&version) {
        return Err(Error::corruption("the default keyspace is missing").at(&path));
    }
    Ok(ReadBack {
        header,
        version,
        settled,
        torn_bytes: bytes.len() as u64 - end,
        end: edits_end,
    })
}

/// A stretch of a manifest.
pub(crate) enum Part<'a> {
    Frame {
        offset: u64,
        kind: FrameKind,
        payload: &'a [u8],
    },
    Damaged {
        offset: u64,
        length: u64,
    },
}

/// Everything in the bytes of manifest `number`, from front to back.
pub(crate) fn parts(bytes: &[u8], number: u64) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut offset = 0;
    while offset < bytes.len() {
        if let Some((kind, payload)) = frame_at(bytes, offset, number) {
            parts.push(Part::Frame {
                offset: offset as u64,
                kind,
                payload,
            });
            offset += frame_len(payload.len());
            continue;
        }
        let next = (offset..bytes.len())
            .step_by(8)
            .skip(1)
            .find(|&o| frame_at(bytes, o, number).is_some());
        let end = next.unwrap_or(bytes.len());
        parts.push(Part::Damaged {
            offset: offset as u64,
            length: (end - offset) as u64,
        });
        offset = end;
    }
    parts
}

/// The number that a manifest's own header claims, unchecked: for a file that
/// does not have its name any more.
pub(crate) fn claimed_number(bytes: &[u8]) -> Option<u64> {
    let mut r = Reader::new(bytes.get(FRAME_HEADER..)?);
    let is_header = r.raw(MAGIC.len()).ok()? == MAGIC && r.number().ok()? == FORMAT;
    r.raw(16).ok()?;
    r.number().ok().filter(|_| is_header)
}

/// Takes a frame's offset, kind and payload.
pub(crate) type FrameVisitor<'a> = dyn FnMut(u64, FrameKind, &[u8]) -> Result<()> + 'a;

/// Calls `visit` with every frame of a manifest and returns where the valid
/// ones end. A damaged frame with a valid one behind it is an error.
pub(crate) fn frames(
    bytes: &[u8],
    number: u64,
    path: &Path,
    visit: &mut FrameVisitor<'_>,
) -> Result<u64> {
    let mut offset = 0usize;
    while let Some((kind, payload)) = frame_at(bytes, offset, number) {
        visit(offset as u64, kind, payload)?;
        offset += frame_len(payload.len());
    }
    let behind = (offset..bytes.len())
        .step_by(8)
        .skip(1)
        .find(|&o| frame_at(bytes, o, number).is_some());
    if let Some(behind) = behind {
        return Err(Error::corruption("manifest frame is damaged")
            .at(path)
            .offset(offset as u64)
            .expected(
                "a valid frame",
                format!("none, though one follows at {behind}"),
            ));
    }
    Ok(offset as u64)
}

pub(super) fn frame_len(payload: usize) -> usize {
    (FRAME_HEADER + payload).next_multiple_of(8)
}

fn frame_at(bytes: &[u8], offset: usize, number: u64) -> Option<(FrameKind, &[u8])> {
    let header = bytes.get(offset..)?.first_chunk::<FRAME_HEADER>()?;
    let word =
        |i: usize| u32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
    if word(0) != header_checksum(&header[4..], offset as u64, number) {
        return None;
    }
    let kind = FrameKind::from_number(word(12))?;
    let length = word(8) as usize;
    let payload = bytes.get(offset + FRAME_HEADER..)?.get(..length)?;
    // The checksums do not cover the padding.
    let padding = bytes
        .get(offset + FRAME_HEADER + length..)?
        .get(..frame_len(length) - FRAME_HEADER - length)?;
    (crc32c::crc32c(payload) == word(4) && padding.iter().all(|&b| b == 0))
        .then_some((kind, payload))
}

fn push_frame(bytes: &mut Vec<u8>, base: u64, number: u64, kind: FrameKind, payload: &[u8]) {
    let start = bytes.len();
    let offset = base + start as u64;
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(kind as u32).to_le_bytes());
    let checksum = header_checksum(&bytes[start + 4..], offset, number);
    bytes[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes.resize(start + frame_len(payload.len()), 0);
}

/// Binds a frame to its manifest and its place in it.
fn header_checksum(rest: &[u8], offset: u64, number: u64) -> u32 {
    let crc = crc32c::crc32c(rest);
    let crc = crc32c::crc32c_append(crc, &offset.to_le_bytes());
    crc32c::crc32c_append(crc, &number.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_model::edit::Change;
    use thermocline_model::key::SeqNo;

    use crate::version::pointer::{CURRENT, Pointer, current, install};

    const NUMBER: u64 = 7;
    const POINTER: Pointer = Pointer {
        number: NUMBER,
        tier: TierId(0),
    };

    /// The manifest of a store with one empty keyspace and one edit since.
    fn tiny(directory: &Path) -> Vec<u8> {
        let environment = Environment::real();
        let mut version = Version {
            next_id: 8,
            ..Version::empty()
        };
        let add = Change::AddKeyspace {
            keyspace: KeyspaceId::DEFAULT,
            name: "default".to_string(),
            cuts: thermocline_model::Cuts::default(),
        };
        version = Edit::of(add).apply(&version).unwrap();
        let header = Header {
            store_id: 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210,
            number: NUMBER,
            generation: 3,
            tiers: vec![(TierId(0), "main".to_string())],
        };
        let mut manifest =
            Manifest::create(&environment, directory, header, &version, false).unwrap();
        manifest.settle().unwrap();
        manifest
            .append(&Edit::of(Change::SetCounters {
                next_id: 9,
                next_keyspace: 1,
                last_seq: SeqNo(300),
            }))
            .unwrap();
        install(&environment, directory, POINTER).unwrap();
        std::fs::read(directory.join(file_name(NUMBER))).unwrap()
    }

    fn put_back(directory: &Path, bytes: &[u8]) -> Result<ReadBack> {
        std::fs::write(directory.join(file_name(NUMBER)), bytes).unwrap();
        read(&Environment::real(), directory, NUMBER)
    }

    #[test]
    fn manifest_and_pointer_bytes_are_those_of_the_format_page() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = tiny(directory.path());
        let hex: Vec<String> = bytes
            .chunks(8)
            .map(|word| word.iter().map(|b| format!("{b:02x}")).collect())
            .collect();
        assert_eq!(hex.join("\n"), GOLDEN);
        let pointer = std::fs::read_to_string(directory.path().join(CURRENT)).unwrap();
        assert_eq!(pointer, "MANIFEST-000007 5872ce62\n");
        assert_eq!(
            current(&Environment::real(), directory.path()).unwrap(),
            Some(POINTER)
        );
    }

    #[test]
    fn a_manifest_reads_back() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = tiny(directory.path());
        let read = put_back(directory.path(), &bytes).unwrap();
        assert!(read.settled && read.torn_bytes == 0);
        assert_eq!(read.version.last_seq, SeqNo(300));
        assert_eq!(read.header.generation, 3);
    }

    /// The prover found it, in a manifest with a wrong edit under a right checksum: opening named
    /// no file, and a repair took the edit at its word.
    #[test]
    fn a_manifest_that_drops_the_default_keyspace_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        tiny(directory.path());
        let environment = Environment::real();
        let read = read(&environment, directory.path(), NUMBER).unwrap();
        let drop = Edit::of(Change::DropKeyspace {
            keyspace: KeyspaceId::DEFAULT,
        });
        let without = drop.apply(&read.version).unwrap();
        let header = Header {
            number: NUMBER + 1,
            ..read.header
        };
        Manifest::create(&environment, directory.path(), header, &without, false).unwrap();
        let error = super::read(&environment, directory.path(), NUMBER + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert_eq!(
            error.path(),
            Some(&*directory.path().join(file_name(NUMBER + 1))),
            "{error}"
        );
    }

    #[test]
    fn a_manifest_cut_anywhere_is_a_prefix_of_its_edits_or_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = tiny(directory.path());
        for length in 0..bytes.len() {
            match put_back(directory.path(), &bytes[..length]) {
                Ok(read) => {
                    assert!(read.version.keyspaces.len() == 1, "length {length}");
                    assert!(read.torn_bytes <= length as u64, "length {length}");
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::Corruption, "length {length}: {e}"),
            }
        }
    }

    #[test]
    fn a_flipped_bit_in_a_manifest_is_reported_or_drops_only_the_last_mark() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = tiny(directory.path());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match put_back(directory.path(), &damaged) {
                // In the last mark.
                Ok(read) => {
                    assert!(read.settled, "bit {bit}");
                    assert_eq!(read.version.last_seq, SeqNo(300), "bit {bit}");
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::Corruption, "bit {bit}: {e}"),
            }
        }
    }

    /// Eight bytes a line.
    const GOLDEN: &str = "\
81a2dbf3eadfffc0\n\
2200000000686874\n\
544845524d4d414e\n\
011032547698badc\n\
feefcdab89674523\n\
0107030100046d61\n\
696e000000000000\n\
30e232bb9fb614ea\n\
1600000001656874\n\
0408080100070001\n\
000764656661756c\n\
7400060000000000\n\
5c7e984e00000000\n\
0000000003736874\n\
8181ebfc4a8cd045\n\
0600000001656874\n\
01080901ac020000\n\
1b0910c400000000\n\
00000000026d6874";
}
