//! The log in a local directory.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_model::SeqNo;

use super::format::{
    Damage, FRAME_HEADER_BYTES, FrameHeader, PAYLOAD_BYTES_MAX, SEGMENT_HEADER_BYTES,
    SegmentHeader, frame_bytes, frame_seed, parse_segment, segment_path,
};
use super::segment::OpenSegment;
use super::{Closed, LogPersist, LogSink, LogSyncer};
use crate::store::{Environment, File, FileSystem, OpenHow, read_exact_at, write_all_at};
use crate::{Error, ErrorKind, Result};

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// When a segment has grown to this, the next one is begun. A larger frame
    /// gets a segment of its own size. Default 64 MiB.
    pub segment_bytes: u64,
    /// Write through preallocated, mapped files where the file system has
    /// them: a tenth of the time of plain writes. Default true.
    pub mapped: bool,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            segment_bytes: 64 << 20,
            mapped: true,
        }
    }
}

/// What the seal of a clean close can carry, for whoever closes the log.
pub type ClosingNote = [u8; 16];

/// A log in a local directory, open for appending.
pub struct LocalLog {
    file_system: Arc<dyn FileSystem>,
    directory: PathBuf,
    store_id: u128,
    options: LogOptions,
    syncer: Arc<LogSyncer>,
    /// Has at least one frame. Made by the append that needs it.
    current: Option<OpenSegment>,
    /// What the next segment that is made will be called.
    next_segment: u64,
    /// The last good segment before the one to be made next.
    previous: Previous,
    /// The number of the last good entry.
    last_seq: u64,
    /// Segments before the current one, oldest first.
    closed: VecDeque<Closed>,
    /// Whether everything in the log is covered by a seal.
    sealed: bool,
}

#[derive(Clone, Copy, Default)]
struct Previous {
    /// 0 if there is none.
    segment: u64,
    first_seq: u64,
}

impl LocalLog {
    /// A log in `directory`, which exists, to go on after `previous_last_seq`.
    /// Files there of earlier segments are kept until
    /// [`LocalLog::delete_before`]; no file is made before the first append.
    ///
    /// Requires: if there are earlier segments, [`replay`](super::replay) and
    /// [`truncate_torn`](super::truncate_torn) have dealt with them, and
    /// `next_segment` is at least the replay's. Everything up to
    /// `previous_last_seq` is durable, here (replay sees to that) or elsewhere.
    ///
    /// # Errors
    /// `InvalidArgument` if `next_segment` is 0 or not after every segment
    /// there is; `Corruption`, `Unsupported`, `Io`.
    pub fn create(
        environment: &Environment,
        directory: &Path,
        store_id: u128,
        options: LogOptions,
        next_segment: u64,
        previous_last_seq: SeqNo,
    ) -> Result<LocalLog> {
        let file_system = environment.file_system.clone();
        let there = list_segments(&*file_system, directory)?.into_iter();
        let closed: VecDeque<Closed> = there
            .map(|(segment, size_bytes)| Closed {
                segment,
                size_bytes,
            })
            .collect();
        let last = closed.back().copied();
        if next_segment <= last.map_or(0, |last| last.segment) {
            let message = format!("log segment {next_segment} is not after those there are");
            return Err(Error::invalid(message).at(directory));
        }
        let mut log = LocalLog {
            syncer: Arc::new(LogSyncer::new(
                file_system.clone(),
                directory,
                previous_last_seq.0,
            )),
            file_system,
            directory: directory.to_path_buf(),
            store_id,
            options,
            current: None,
            next_segment,
            previous: Previous::default(),
            last_seq: previous_last_seq.0,
            closed,
            sealed: true,
        };
        let ids: Vec<u64> = log.closed.iter().map(|closed| closed.segment).collect();
        for id in ids {
            match log.read_header(id) {
                Ok(Ok(header)) => log.syncer.note_base(id, header.previous_last_seq),
                Err(error) if error.kind() == ErrorKind::Io => return Err(error),
                // It lies before the first that counts, or `adopt` refuses it.
                _ => {}
            }
        }
        if let Some(last) = last {
            log.adopt(last)?;
        }
        Ok(log)
    }

    /// Appends a frame of `count` entries numbered from `first_seq`, whose
    /// bytes are `payload` with the CRC-32C `payload_crc`. On return it is with
    /// the operating system and survives the death of this process.
    ///
    /// Numbers may be skipped but never go back.
    ///
    /// # Errors
    /// `NoSpace` and `Io`: the frame is not in the log; its numbers may be
    /// skipped or given to another frame. A later append may succeed.
    /// `Poisoned`: a sync failed, and no append will succeed.
    /// `InvalidArgument`: no entries, a payload of 2 GiB, numbers out of order.
    #[inline]
    pub fn append(
        &mut self,
        first_seq: SeqNo,
        count: u32,
        payload: &[u8],
        payload_crc: u32,
    ) -> Result<()> {
        self.syncer.check()?;
        let header = FrameHeader {
            payload_crc,
            payload_bytes: payload.len() as u32,
            count,
            first_seq: first_seq.0,
            durable_seq: self.syncer.durable_seq().0,
        };
        match &mut self.current {
            Some(segment)
                if first_seq.0 == self.last_seq + 1
                    && count != 0
                    && payload.len() <= PAYLOAD_BYTES_MAX
                    && segment.offset + frame_bytes(payload.len()) <= segment.capacity =>
            {
                let bytes = header.encode(segment.seed, segment.offset);
                if let Err(error) = segment.write_frame(&bytes, payload) {
                    return Err(self.fail(error));
                }
            }
            _ => self.append_to_new_segment(header, payload)?,
        }
        self.last_seq = header.last_seq();
        self.syncer.publish(self.last_seq);
        Ok(())
    }

    /// The segment that the next append goes to, or an earlier one.
    #[must_use]
    pub fn segment(&self) -> u64 {
        self.current
            .as_ref()
            .map_or(self.next_segment, |segment| segment.id)
    }

    /// Sees to it that later appends go to the returned segment or later ones
    /// and that no earlier append did. The file is made by the next append.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn rotate(&mut self) -> Result<u64> {
        self.syncer.check()?;
        self.close_current();
        Ok(self.next_segment)
    }

    /// What makes appended frames durable, without this log.
    #[must_use]
    pub fn syncer(&self) -> Arc<LogSyncer> {
        self.syncer.clone()
    }

    /// Deletes the segments before `segment`, except the current one; returns
    /// the bytes freed. Requires: every entry in them is in durable tables and
    /// the manifest says so durably (I3).
    ///
    /// # Errors
    /// `Io`; what could not be deleted is tried again by the next call.
    pub fn delete_before(&mut self, segment: u64) -> Result<u64> {
        let mut segments = self.take_before(segment);
        let freed_bytes = self.syncer.delete(&mut segments);
        self.put_back(segments);
        freed_bytes
    }

    /// As [`LogSink::take_before`].
    pub fn take_before(&mut self, segment: u64) -> VecDeque<Closed> {
        let count = self.closed.partition_point(|c| c.segment < segment);
        let rest = self.closed.split_off(count);
        std::mem::replace(&mut self.closed, rest)
    }

    /// As [`LogSink::put_back`].
    pub fn put_back(&mut self, mut segments: VecDeque<Closed>) {
        segments.append(&mut self.closed);
        self.closed = segments;
    }

    /// Bytes in all segments, without room reserved ahead.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.segments().map(|(_, size_bytes)| size_bytes).sum()
    }

    /// The segments and their sizes in bytes, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = (u64, u64)> {
        let current = self.current.as_ref().map(|open| (open.id, open.offset));
        let closed = self.closed.iter().map(|c| (c.segment, c.size_bytes));
        closed.chain(current)
    }

    /// Makes everything durable and seals it: any damage to the log from here
    /// on can be told from a torn tail. A log that is dropped without is as
    /// after the death of the process, which loses nothing.
    ///
    /// # Errors
    /// `Poisoned`, `NoSpace`, `Io`.
    pub fn close(&mut self) -> Result<()> {
        self.close_with(None)
    }

    /// As [`LocalLog::close`], and has the seal carry `note` (see
    /// `closing_note`). With a note a seal is written even where there is
    /// nothing to seal.
    ///
    /// # Errors
    /// As [`LocalLog::close`].
    pub fn close_with(&mut self, note: Option<ClosingNote>) -> Result<()> {
        self.syncer.persist(SeqNo(self.last_seq))?;
        self.syncer.tidy();
        if self.sealed && note.is_none() {
            return Ok(());
        }
        let note = note.as_ref().map_or(&[][..], |note| note);
        // Where nothing is open, a segment is made to hold nothing but the seal.
        let open = match self.current.take() {
            Some(open) => open,
            None => self.create_segment(self.last_seq + 1, frame_bytes(note.len()), false)?,
        };
        let (segment, offset, seed) = (open.id, open.offset, open.seed);
        self.previous = Previous {
            segment,
            first_seq: open.first_seq,
        };
        let file = open.close();
        let seal = FrameHeader {
            payload_crc: crc32c::crc32c(note),
            payload_bytes: note.len() as u32,
            count: 0,
            first_seq: self.last_seq + 1,
            durable_seq: self.last_seq,
        };
        self.closed.push_back(Closed {
            segment,
            size_bytes: offset + frame_bytes(note.len()),
        });
        let seal = [&seal.encode(seed, offset), note].concat();
        write_all_at(&*file, &seal, offset).map_err(|error| {
            let path = segment_path(&self.directory, segment);
            Error::io("seal log segment", &path, error)
        })?;
        self.syncer.sync_with_name(segment, file)?;
        self.sealed = true;
        Ok(())
    }

    /// Makes the last segment there is the one before the first of ours.
    fn adopt(&mut self, last: Closed) -> Result<()> {
        let id = last.segment;
        let path = segment_path(&self.directory, id);
        let fail = |error| Error::io("read log segment", &path, error);
        // Recovery has read every segment that counts, so a damaged one lies before
        // them, and nothing follows it.
        let Ok(header) = self.read_header(id)? else {
            return Ok(());
        };
        let file = self.file_system.open(&path, OpenHow::READ).map_err(fail)?;
        self.previous = Previous {
            segment: id,
            first_seq: header.first_seq,
        };
        let seal = read_seal(&*file, last.size_bytes, frame_seed(self.store_id, id));
        self.sealed = seal.map_err(fail)?.is_some();
        Ok(())
    }

    fn read_header(&self, id: u64) -> Result<Result<SegmentHeader, Damage>> {
        let path = segment_path(&self.directory, id);
        let fail = |error| Error::io("read log segment", &path, error);
        let file = self.file_system.open(&path, OpenHow::READ).map_err(fail)?;
        SegmentHeader::read(&*file, &path, self.store_id, id)
    }

    /// Takes the segment out of use after a failed write, and at once cuts off
    /// what remains of it.
    #[cold]
    fn fail(&mut self, error: io::Error) -> Error {
        let path = segment_path(&self.directory, self.segment());
        if let Some(open) = self.complete_current() {
            open.close();
        }
        Error::io("append to log segment", &path, error)
    }

    /// Takes the segment out of use because it is full.
    fn close_current(&mut self) {
        if let Some(open) = self.complete_current() {
            self.syncer.retire(open);
        }
    }

    /// Makes the current segment the one before the next.
    fn complete_current(&mut self) -> Option<OpenSegment> {
        let open = self.current.take()?;
        self.previous = Previous {
            segment: open.id,
            first_seq: open.first_seq,
        };
        self.closed.push_back(Closed {
            segment: open.id,
            size_bytes: open.offset,
        });
        Some(open)
    }

    /// Appends what does not go into the current segment.
    #[cold]
    fn append_to_new_segment(&mut self, header: FrameHeader, payload: &[u8]) -> Result<()> {
        if header.count == 0 {
            return Err(Error::invalid("a log frame without entries"));
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Error::invalid("a log frame of 2 GiB or more"));
        }
        let in_order = header.first_seq > self.last_seq
            && header.first_seq <= SeqNo::MAX.0
            && header.last_seq() <= SeqNo::MAX.0;
        if !in_order {
            let message = format!(
                "sequence number {} after {}",
                header.first_seq, self.last_seq
            );
            return Err(Error::invalid(message));
        }
        self.close_current();
        let frame_bytes = frame_bytes(payload.len());
        let mut open = self.create_segment(header.first_seq, frame_bytes, self.options.mapped)?;
        let bytes = header.encode(open.seed, open.offset);
        if let Err(error) = open.write_frame(&bytes, payload) {
            return Err(self.discard(open, error));
        }
        // Listed before the number is published.
        self.syncer.add(open.id, open.file().clone());
        self.current = Some(open);
        self.sealed = false;
        Ok(())
    }

    /// A new segment with its header, for a frame of `frame_bytes`.
    fn create_segment(
        &mut self,
        first_seq: u64,
        frame_bytes: u64,
        mapped: bool,
    ) -> Result<OpenSegment> {
        let id = self.next_segment;
        let path = segment_path(&self.directory, id);
        let file = self
            .file_system
            .open(&path, OpenHow::NEW)
            .map_err(|error| Error::io("create log segment", &path, error))?;
        // Not used again even if what follows fails: a crash could bring back
        // the file of a failed attempt in place of a good one.
        self.next_segment += 1;
        let capacity = self
            .options
            .segment_bytes
            .max(SEGMENT_HEADER_BYTES as u64 + frame_bytes);
        let seed = frame_seed(self.store_id, id);
        let mut open = OpenSegment::new(id, first_seq, seed, capacity, file, mapped);
        let header = SegmentHeader {
            store_id: self.store_id,
            segment: id,
            first_seq,
            previous_segment: self.previous.segment,
            previous_first_seq: self.previous.first_seq,
            previous_last_seq: self.last_seq,
            durable_seq: self.syncer.durable_seq().0,
        };
        self.syncer.note_base(id, self.last_seq);
        match open.write_header(&header.encode()) {
            Ok(()) => Ok(open),
            Err(error) => Err(self.discard(open, error)),
        }
    }

    /// Does away with a segment that has no good frame. If its file survives,
    /// recovery passes over it, for the next segment will not name it.
    #[cold]
    fn discard(&self, open: OpenSegment, error: io::Error) -> Error {
        let path = segment_path(&self.directory, open.id);
        drop(open);
        let _ = self.file_system.unlink(&path);
        Error::io("append to log segment", &path, error)
    }
}

/// The seal that a clean close left as the last bytes of a segment's file: none,
/// or one with a note or without.
fn read_seal(
    file: &dyn File,
    size_bytes: u64,
    seed: u32,
) -> io::Result<Option<Option<ClosingNote>>> {
    const NOTE_BYTES: usize = size_of::<ClosingNote>();
    let mut tail = [0; FRAME_HEADER_BYTES + NOTE_BYTES];
    for note_bytes in [NOTE_BYTES, 0] {
        let tail = &mut tail[..FRAME_HEADER_BYTES + note_bytes];
        let offset = size_bytes.saturating_sub(tail.len() as u64);
        let read = read_exact_at(file, tail, offset)?;
        let (head, note) = tail.split_at(FRAME_HEADER_BYTES);
        let seal = FrameHeader {
            payload_crc: crc32c::crc32c(note),
            payload_bytes: note_bytes as u32,
            count: 0,
            first_seq: u64::from_le_bytes(*head[16..].first_chunk().expect("sixteen bytes left")),
            durable_seq: u64::from_le_bytes(*head.last_chunk().expect("eight bytes left")),
        };
        if read == tail.len() && seal.encode(seed, offset) == *head {
            return Ok(Some(note.first_chunk().copied()));
        }
    }
    Ok(None)
}

/// The note of the last clean close, if nothing was logged since: the last
/// segment ends with a seal that carries one.
///
/// # Errors
/// `NotFound`, `Io`.
pub(crate) fn closing_note(
    environment: &Environment,
    directory: &Path,
    store_id: u128,
) -> Result<Option<ClosingNote>> {
    let file_system = &*environment.file_system;
    let Some((segment, size_bytes)) = list_segments(file_system, directory)?.pop() else {
        return Ok(None);
    };
    let path = segment_path(directory, segment);
    let seal = file_system.open(&path, OpenHow::READ).and_then(|file| {
        let seed = frame_seed(store_id, segment);
        read_seal(&*file, size_bytes, seed)
    });
    let seal = seal.map_err(|error| Error::io("read log segment", &path, error))?;
    Ok(seal.flatten())
}

/// The segments in `directory` and their file sizes, oldest first.
pub(crate) fn list_segments(
    file_system: &dyn FileSystem,
    directory: &Path,
) -> Result<Vec<(u64, u64)>> {
    let entries = file_system.list(directory).map_err(|error| {
        let not_found = error.kind() == io::ErrorKind::NotFound;
        let error = Error::io("list log directory", directory, error);
        if not_found {
            Error::new(ErrorKind::NotFound, "log directory").at(directory)
        } else {
            error
        }
    })?;
    let mut segments: Vec<(u64, u64)> = entries
        .iter()
        .filter(|entry| !entry.is_directory)
        .filter_map(|entry| Some((parse_segment(entry.name.to_str()?)?, entry.size_bytes)))
        .collect();
    segments.sort_unstable();
    Ok(segments)
}

impl LogSink for LocalLog {
    fn append(
        &mut self,
        first_seq: SeqNo,
        count: u32,
        payload: &[u8],
        payload_crc: u32,
    ) -> Result<()> {
        LocalLog::append(self, first_seq, count, payload, payload_crc)
    }

    fn segment(&self) -> u64 {
        LocalLog::segment(self)
    }

    fn rotate(&mut self) -> Result<u64> {
        LocalLog::rotate(self)
    }

    fn persister(&self) -> Arc<dyn LogPersist> {
        self.syncer.clone()
    }

    fn take_before(&mut self, segment: u64) -> VecDeque<Closed> {
        LocalLog::take_before(self, segment)
    }

    fn put_back(&mut self, segments: VecDeque<Closed>) {
        LocalLog::put_back(self, segments);
    }

    fn size_bytes(&self) -> u64 {
        LocalLog::size_bytes(self)
    }

    fn close(&mut self) -> Result<()> {
        LocalLog::close(self)
    }
}

impl fmt::Debug for LocalLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLog")
            .field("directory", &self.directory)
            .field("segment", &self.segment())
            .field("last_seq", &self.last_seq)
            .finish_non_exhaustive()
    }
}
