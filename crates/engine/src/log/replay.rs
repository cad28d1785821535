//! Recovery: what of the log counts, and what does not.
//!
//! After a crash any subset of the unsynced bytes may be there. Replay walks
//! the chain of segments and stops at the first frame that is not sound or does
//! not follow. Whatever lies behind such a gap was either never durable, then
//! dropping it is what I9 demands; or it was, then the gap is damage and an
//! error. Every frame and every segment header says up to which number all was
//! durable when it was written, so the highest such mark found anywhere, also
//! behind the gap, decides between the two.
//!
//! Before anything is read, every segment is synced and its clean pages are
//! dropped from the cache: what is then read is what the device has, also after
//! a process that died of a failed sync, and what is replayed is durable, so
//! that the log can go on behind it (the next segment claims as much).

use std::path::Path;

use thermocline_model::SeqNo;

use super::format::{
    Damage, FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader, frame_seed,
    segment_path,
};
use super::local::list_segments;
use super::scan::{find_frame, read_whole, trimmed_length};
use crate::store::{Advice, Environment, FileSystem, OpenHow};
use crate::{Error, Result};

/// How far behind a gap a frame's number may lie for its mark to be believed
/// when its payload is damaged. A header's checksum alone passes garbage once
/// in 2^32 places looked at, which is not rarely enough.
const BELIEVABLE_DISTANCE: u64 = 1 << 40;

/// A frame of the log, in the order of appending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplayedFrame<'a> {
    /// The segment it is in.
    pub segment: u64,
    /// Where it begins there.
    pub offset: u64,
    /// The number of its first entry.
    pub first_seq: SeqNo,
    /// Its entries.
    pub count: u32,
    /// Its bytes, whose checksum is right.
    pub payload: &'a [u8],
}

/// What [`replay`] found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReplayReport {
    /// The last number in the log; if it is empty, the last one before it.
    pub last_seq: SeqNo,
    /// The highest number that anything in the log claims was durable. Never
    /// above `last_seq`.
    pub durable_seq: SeqNo,
    /// Segments with replayed frames.
    pub segments: u64,
    /// Frames replayed.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// What was dropped, if something was: never durable, never acknowledged
    /// as durable.
    pub torn: Option<Torn>,
    /// The number for the next segment.
    pub next_segment: u64,
    /// Whether the segments that were there begin with the first that was to be replayed. If not,
    /// either nothing was logged since, or the first ones were gone.
    pub(crate) is_whole: bool,
    /// The last segment that counts, and where its last sound frame ends.
    keep: Option<(u64, u64)>,
    /// Segments passed over: the remains of failed appends.
    skipped: Vec<u64>,
    /// Segments behind the end.
    dropped: Vec<u64>,
}

impl ReplayReport {
    /// Whether the log reaches as far as the manifest knows it did: `reach` is
    /// [`thermocline_model::version::Version::log_reach`].
    ///
    /// # Errors
    /// `Corruption` with both numbers, if not.
    pub(crate) fn check_reach(&self, reach: SeqNo) -> Result<()> {
        if reach <= self.last_seq {
            return Ok(());
        }
        Err(Error::corruption("the end of the log is missing").expected(
            format!("entries up to {reach}, which were durable"),
            self.last_seq,
        ))
    }
}

/// The end of a log that a crash tore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Torn {
    /// The segment where it is torn.
    pub segment: u64,
    /// Where in it.
    pub offset: u64,
    /// Bytes dropped from there on, later segments included, zeros at the end
    /// of a file not counted.
    pub bytes_dropped: u64,
}

/// Visits every frame of the log in `directory` from segment `first_segment`
/// on, in order. Earlier segments are ignored, for their entries, up to the
/// number `base`, are durable elsewhere.
///
/// After it and before the log is written again, [`truncate_torn`] must run.
///
/// # Errors
/// `Corruption` if something that had been durable is damaged or missing; some
/// frames before it have been visited then. `Unsupported`, `Io`, and what
/// `visit` returns.
pub fn replay(
    environment: &Environment,
    directory: &Path,
    store_id: u128,
    first_segment: u64,
    base: SeqNo,
    visit: &mut dyn FnMut(ReplayedFrame<'_>) -> Result<()>,
) -> Result<ReplayReport> {
    replay_as(
        Reading::default(),
        environment,
        directory,
        store_id,
        first_segment,
        base,
        visit,
    )
}

/// How a log is replayed.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Reading<'a> {
    /// Segments that count as not there.
    pub without: &'a [u64],
    /// Whether another process may be writing to it meanwhile. What it has added since a segment
    /// was read is then left out, and is no damage; a segment that it deletes meanwhile is an `Io`
    /// error.
    pub is_live: bool,
}

/// As [`replay`].
pub(crate) fn replay_as(
    reading: Reading<'_>,
    environment: &Environment,
    directory: &Path,
    store_id: u128,
    first_segment: u64,
    base: SeqNo,
    visit: &mut dyn FnMut(ReplayedFrame<'_>) -> Result<()>,
) -> Result<ReplayReport> {
    let file_system = &*environment.file_system;
    let ids = list_segments(file_system, directory)?.into_iter();
    let ids = ids
        .map(|(id, _)| id)
        .filter(|id| !reading.without.contains(id));
    let segments = read_heads(file_system, directory, store_id, first_segment, ids)?;
    let chain = Chain::of(&segments, first_segment);
    let mut replay = Replay {
        file_system,
        directory,
        store_id,
        visit,
        base,
        last_seq: None,
        bytes: Vec::new(),
        is_live: reading.is_live,
        report: ReplayReport {
            next_segment: segments
                .last()
                .map_or(0, |segment| segment.id + 1)
                .max(first_segment)
                .max(1),
            is_whole: matches!(chain.links.first(), Some(Link::Sound(_))),
            skipped: chain.skipped.clone(),
            ..ReplayReport::default()
        },
    };
    let gap = replay.walk(&chain)?;
    if let Some(gap) = &gap {
        replay.judge(gap, &segments, &chain)?;
    }
    replay.report.last_seq = replay.sound_up_to();
    Ok(replay.report)
}

/// Sees to it that nothing that [`replay`] dropped can ever come back: cuts the
/// last segment that counts behind its last frame, deletes what was passed over
/// and then what lies behind the end, from the highest segment down. A crash in
/// the middle leaves a log that replays to the same end.
///
/// # Errors
/// `Io`.
pub fn truncate_torn(
    environment: &Environment,
    directory: &Path,
    report: &ReplayReport,
) -> Result<()> {
    let file_system = &*environment.file_system;
    if report.skipped.is_empty() && report.dropped.is_empty() && report.torn.is_none() {
        return Ok(());
    }
    if let Some((segment, end)) = report.keep {
        let path = segment_path(directory, segment);
        let cut = || {
            let file = file_system.open(&path, OpenHow::WRITE)?;
            if file.size_bytes()? > end {
                file.set_size(end)?;
            }
            file.sync()
        };
        cut().map_err(|error| Error::io("cut torn log segment", &path, error))?;
    }
    let highest_first = report.dropped.iter().rev().copied().collect::<Vec<_>>();
    // The skipped ones durably first: once the segment that passes over them is
    // gone, their frames would seem to follow.
    for group in [&report.skipped, &highest_first] {
        if group.is_empty() {
            continue;
        }
        for &segment in group {
            let path = segment_path(directory, segment);
            match file_system.unlink(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("delete dropped log segment", &path, error));
                }
                _ => {}
            }
        }
        file_system
            .sync_directory(directory)
            .map_err(|error| Error::io("sync log directory", directory, error))?;
    }
    Ok(())
}

/// A segment file and what its head says.
struct Segment {
    id: u64,
    head: Result<SegmentHeader, Damage>,
}

/// Syncs every segment of `ids` from `first_segment` on and reads its header.
fn read_heads(
    file_system: &dyn FileSystem,
    directory: &Path,
    store_id: u128,
    first_segment: u64,
    ids: impl Iterator<Item = u64>,
) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for id in ids {
        if id < first_segment {
            continue;
        }
        let path = segment_path(directory, id);
        let fail = |error| Error::io("read log segment", &path, error);
        let file = file_system.open(&path, OpenHow::READ).map_err(fail)?;
        file.sync()
            .map_err(|error| Error::io("sync log segment", &path, error))?;
        file.advise(0, 0, Advice::DontNeed);
        let head = SegmentHeader::read(&*file, &path, store_id, id)?;
        segments.push(Segment { id, head });
    }
    if !segments.is_empty() {
        file_system
            .sync_directory(directory)
            .map_err(|error| Error::io("sync log directory", directory, error))?;
    }
    Ok(segments)
}

/// The segments that follow one another, by what each says of the one before.
struct Chain {
    links: Vec<Link>,
    skipped: Vec<u64>,
}

enum Link {
    Sound(SegmentHeader),
    Damaged(u64, Damage),
    /// Named by the next segment, but not there.
    Missing(u64),
}

impl Chain {
    /// Walks from the newest segment back. `segments` are in order.
    fn of(segments: &[Segment], first_segment: u64) -> Chain {
        let mut links = Vec::new();
        let mut skipped = Vec::new();
        // What the segment after says comes before it, if it can say.
        let mut wanted: Option<u64> = None;
        for segment in segments.iter().rev() {
            if let Some(id) = wanted {
                if segment.id > id {
                    skipped.push(segment.id);
                    continue;
                }
                if segment.id < id {
                    links.push(Link::Missing(id));
                }
            }
            match segment.head {
                Ok(header) => {
                    wanted = Some(header.previous_segment);
                    links.push(Link::Sound(header));
                }
                Err(damage) => {
                    wanted = None;
                    links.push(Link::Damaged(segment.id, damage));
                }
            }
        }
        if let Some(id) = wanted.filter(|&id| id != 0 && id >= first_segment) {
            let there = segments.iter().any(|segment| segment.id == id);
            if !there {
                links.push(Link::Missing(id));
            }
        }
        links.reverse();
        skipped.reverse();
        Chain { links, skipped }
    }
}

/// Where the walk stopped.
struct Gap {
    /// The place in the chain of the first link that does not count in full.
    link: usize,
    segment: u64,
    offset: u64,
    /// The number that a frame there would begin with.
    expected: u64,
    damage: Damage,
}

/// Where what is sound of a segment ends short of its limit.
struct SegmentEnd {
    offset: usize,
    expected: u64,
    damage: Damage,
}

struct Replay<'a> {
    file_system: &'a dyn FileSystem,
    directory: &'a Path,
    store_id: u128,
    visit: &'a mut dyn FnMut(ReplayedFrame<'_>) -> Result<()>,
    /// The last number before the first segment, if that cannot say it itself.
    base: SeqNo,
    /// The last number that counts; `None` before the first sound segment.
    last_seq: Option<u64>,
    /// The segment being read.
    bytes: Vec<u8>,
    /// See [`Reading::is_live`].
    is_live: bool,
    report: ReplayReport,
}

impl Replay<'_> {
    /// Visits frames until the chain ends or breaks.
    fn walk(&mut self, chain: &Chain) -> Result<Option<Gap>> {
        for (index, link) in chain.links.iter().enumerate() {
            let header = match *link {
                Link::Sound(header) => header,
                Link::Damaged(segment, damage) => {
                    return Ok(Some(Gap {
                        link: index,
                        segment,
                        offset: 0,
                        expected: self.sound_up_to().0 + 1,
                        damage,
                    }));
                }
                Link::Missing(segment) => {
                    return Ok(Some(Gap {
                        link: index,
                        segment,
                        offset: 0,
                        expected: self.sound_up_to().0 + 1,
                        damage: missing(segment),
                    }));
                }
            };
            // What a segment says of the one before was checked there, as its
            // limit; here it says where the log begins.
            self.last_seq.get_or_insert(header.previous_last_seq);
            self.mark_durable(header.durable_seq);
            let limit = match chain.links.get(index + 1) {
                Some(Link::Sound(next)) => Some(next.previous_last_seq),
                _ => None,
            };
            if let Some(end) = self.walk_segment(&header, limit)? {
                return Ok(Some(Gap {
                    link: index,
                    segment: header.segment,
                    offset: end.offset as u64,
                    expected: end.expected,
                    damage: end.damage,
                }));
            }
        }
        Ok(None)
    }

    /// Visits the frames of one segment up to its limit: the last number
    /// before the next segment. Returns where and why it did not get there;
    /// without a limit, that is always so.
    fn walk_segment(
        &mut self,
        header: &SegmentHeader,
        limit: Option<u64>,
    ) -> Result<Option<SegmentEnd>> {
        let id = header.segment;
        read_whole(
            self.file_system,
            &segment_path(self.directory, id),
            &mut self.bytes,
        )?;
        let seed = frame_seed(self.store_id, id);
        let mut offset = SEGMENT_HEADER_BYTES;
        let mut expected = header.first_seq;
        let mut counted = false;
        while limit.is_none() || limit != self.last_seq {
            let sound = |bytes: &[u8]| {
                let followed = follow(bytes, seed, offset, expected, limit);
                followed.map(|(frame, _)| frame)
            };
            let mut found = sound(&self.bytes);
            if found.is_err() && trimmed_length(self.bytes.get(offset..).unwrap_or_default()) > 0 {
                // The end of what is sound decides what is dropped. A bit that was
                // flipped on the way from the device must not, so it is asked again.
                self.read_again(id)?;
                found = sound(&self.bytes);
            }
            let frame = match found {
                Ok(frame) => frame,
                Err(damage) => {
                    return Ok(Some(SegmentEnd {
                        offset,
                        expected,
                        damage,
                    }));
                }
            };
            let payload =
                &self.bytes[offset + FRAME_HEADER_BYTES..][..frame.payload_bytes as usize];
            if frame.count > 0 {
                (self.visit)(ReplayedFrame {
                    segment: id,
                    offset: offset as u64,
                    first_seq: SeqNo(frame.first_seq),
                    count: frame.count,
                    payload,
                })?;
                self.report.frames += 1;
            }
            let end = frame.end(offset);
            self.report.bytes += (end - offset) as u64;
            self.report.segments += u64::from(!counted);
            self.report.keep = Some((id, end as u64));
            self.mark_durable(frame.durable_seq);
            self.last_seq = Some(frame.last_seq());
            counted = true;
            expected = frame.last_seq() + 1;
            offset = end;
        }
        Ok(None)
    }

    /// Reads segment `id` from the device, past what the system keeps of it.
    fn read_again(&mut self, id: u64) -> Result<()> {
        let path = segment_path(self.directory, id);
        let file = self.file_system.open(&path, OpenHow::READ);
        let file = file.map_err(|error| Error::io("read log segment", &path, error))?;
        file.advise(0, 0, Advice::DontNeed);
        read_whole(self.file_system, &path, &mut self.bytes)
    }

    /// Everything up to this number is there, or in no need of the log.
    fn sound_up_to(&self) -> SeqNo {
        self.last_seq.map_or(self.base, SeqNo)
    }

    /// Decides what the gap is: the end of the log, a torn tail, or damage.
    fn judge(&mut self, gap: &Gap, segments: &[Segment], chain: &Chain) -> Result<()> {
        let sound_up_to = self.sound_up_to();
        let mut durable_seq = 0;
        let mut bytes_dropped = 0;
        let mut rest_bytes = 0;
        for segment in segments {
            let skipped = chain.skipped.contains(&segment.id);
            if segment.id < gap.segment && !skipped {
                continue;
            }
            let path = segment_path(self.directory, segment.id);
            read_whole(self.file_system, &path, &mut self.bytes)?;
            let from = if segment.id == gap.segment {
                gap.offset as usize
            } else {
                0
            };
            let seed = frame_seed(self.store_id, segment.id);
            let from_frame = from.max(SEGMENT_HEADER_BYTES);
            durable_seq = durable_seq.max(durable_mark(&self.bytes, seed, from_frame, sound_up_to));
            if let Ok(header) = &segment.head {
                durable_seq = durable_seq.max(header.durable_seq);
            }
            if skipped {
                continue;
            }
            let rest = trimmed_length(self.bytes.get(from..).unwrap_or_default()) as u64;
            bytes_dropped += rest;
            if segment.id == gap.segment {
                rest_bytes = rest;
            }
            if self.report.keep.is_none_or(|(keep, _)| keep != segment.id) {
                self.report.dropped.push(segment.id);
            }
        }
        if durable_seq > sound_up_to.0 && self.is_live && self.goes_on(gap, chain)? {
            return Ok(());
        }
        self.mark_durable(durable_seq);
        if durable_seq > sound_up_to.0 {
            return Err(self.corruption(gap, chain, rest_bytes, durable_seq));
        }
        if bytes_dropped > 0 || gap.link + 1 < chain.links.len() {
            self.report.torn = Some(Torn {
                segment: gap.segment,
                offset: gap.offset,
                bytes_dropped,
            });
        }
        Ok(())
    }

    /// Whether what was a gap is none any more. What is said to be durable lies behind it, so the
    /// writer has filled it by now, if nothing is wrong, or has gone on in a segment that had no
    /// header yet.
    fn goes_on(&mut self, gap: &Gap, chain: &Chain) -> Result<bool> {
        self.read_again(gap.segment)?;
        let seed = frame_seed(self.store_id, gap.segment);
        if follow(&self.bytes, seed, gap.offset as usize, gap.expected, None).is_ok() {
            return Ok(true);
        }
        let Some(Link::Damaged(next, _)) = chain.links.get(gap.link + 1) else {
            return Ok(false);
        };
        self.read_again(*next)?;
        let path = segment_path(self.directory, *next);
        let head = SegmentHeader::decode(&self.bytes, &path, Some(self.store_id), *next)?;
        Ok(head.is_ok_and(|head| head.previous_last_seq == self.sound_up_to().0))
    }

    fn mark_durable(&mut self, durable_seq: u64) {
        self.report.durable_seq = self.report.durable_seq.max(SeqNo(durable_seq));
    }

    /// The error of a gap in what had been durable.
    fn corruption(&self, gap: &Gap, chain: &Chain, rest_bytes: u64, durable_seq: u64) -> Error {
        // A segment that ends with its last sound frame is not the damaged one
        // if the next is.
        let (segment, offset, damage) = match chain.links.get(gap.link + 1) {
            Some(Link::Damaged(segment, damage)) if rest_bytes == 0 => (*segment, 0, *damage),
            Some(Link::Missing(segment)) if rest_bytes == 0 => (*segment, 0, missing(*segment)),
            _ => (gap.segment, gap.offset, gap.damage),
        };
        let message = format!(
            "damage in the middle of the log: {}; it is sound up to sequence number {} and \
             was durable up to {durable_seq}",
            damage.what,
            self.sound_up_to(),
        );
        Error::corruption(message)
            .at(&segment_path(self.directory, segment))
            .offset(offset)
            .expected(damage.expected, damage.found)
    }
}

/// The highest mark of all frames in `bytes` from `offset` on, behind a gap in a
/// log that is sound up to the number `near`.
fn durable_mark(bytes: &[u8], seed: u32, mut offset: usize, near: SeqNo) -> u64 {
    let mut durable_seq = 0;
    // Frames after a torn one lie where they lay: at a multiple of eight.
    while let Some(found) = find_frame(bytes, seed, offset) {
        offset = found.next_offset();
        let header = found.header;
        if found.whole || header.first_seq.abs_diff(near.0) <= BELIEVABLE_DISTANCE {
            durable_seq = durable_seq.max(header.durable_seq);
        }
    }
    durable_seq
}

/// The sound frame at `offset` that begins with the number `expected` and does
/// not pass `limit`.
fn follow(
    bytes: &[u8],
    seed: u32,
    offset: usize,
    expected: u64,
    limit: Option<u64>,
) -> Result<(FrameHeader, &[u8]), Damage> {
    let frame = FrameHeader::decode(bytes, seed, offset)?;
    let payload = frame.payload(bytes, offset)?;
    if frame.first_seq != expected {
        return Err(Damage::new(
            "a frame out of sequence",
            expected,
            frame.first_seq,
        ));
    }
    if let Some(limit) = limit
        && frame.last_seq() > limit
    {
        let what = "a frame that passes the number where the next segment begins";
        return Err(Damage::new(what, limit, frame.last_seq()));
    }
    Ok((frame, payload))
}

fn missing(segment: u64) -> Damage {
    Damage::new("a log segment is missing", segment, 0)
}
