//! Reading the log as far as it is sound, and planning where to cut it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use thermocline_model::cover::RangeDelete;
use thermocline_model::key::{Kind, SeqNo};
use thermocline_model::version::KeyspaceId;

use super::Repair;
use crate::batch::Operations;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{self, FRAME_HEADER_BYTES, Found};
use crate::table::salvage::Entry;

/// Log entries that count, and what does not.
#[derive(Default)]
pub(super) struct LogRemains {
    pub(super) entries: BTreeMap<KeyspaceId, Vec<Entry>>,
    pub(super) range_deletes: BTreeMap<KeyspaceId, Vec<RangeDelete>>,
    /// The last frame: its segment, and where it ends.
    end: Option<(u64, u64)>,
    pub(super) last: SeqNo,
    pub(super) is_damaged: bool,
}

impl Repair<'_> {
    /// The segments of the log and their sizes, oldest first.
    pub(super) fn log_segments(&self) -> Result<Vec<(u64, u64)>> {
        log::list_segments(&*self.environment.file_system, self.options.log_directory())
    }

    pub(super) fn log_path(&self, segment: u64) -> PathBuf {
        log::segment_path(self.options.log_directory(), segment)
    }

    /// Reads the log as far as it is sound, from segment `floor` on, which begins
    /// after the number `base`; it was to reach the number `reach`. Entries are kept if `wanted`.
    pub(super) fn read_log(
        &mut self,
        floor: u64,
        base: SeqNo,
        reach: SeqNo,
        wanted: bool,
    ) -> Result<LogRemains> {
        let mut log = LogRemains::default();
        let directory = self.options.log_directory();
        let strangers = self.strangers(floor)?;
        let replayed = log::replay_as(
            log::Reading {
                without: &strangers,
                is_live: false,
            },
            self.environment,
            directory,
            self.store_id,
            floor,
            base,
            &mut |frame| {
                let count = Operations::new(frame.payload).filter(Result::is_ok).count();
                let is_whole = Operations::new(frame.payload).all(|o| o.is_ok());
                if count as u64 != u64::from(frame.count) || !is_whole {
                    return Err(Error::corruption("log record"));
                }
                let mut next = frame.first_seq;
                for operation in Operations::new(frame.payload).flatten().filter(|_| wanted) {
                    let (key, value) = (operation.key, operation.value);
                    let space = operation.keyspace;
                    let own = next;
                    let seq = operation.restated.unwrap_or(own);
                    match operation.kind {
                        Kind::RangeDelete => {
                            log.range_deletes
                                .entry(space)
                                .or_default()
                                .push(RangeDelete {
                                    start: key.into(),
                                    end: value.into(),
                                    seq,
                                })
                        }
                        kind => log.entries.entry(space).or_default().push((
                            key.to_vec(),
                            seq,
                            kind == Kind::Put,
                            value.to_vec(),
                        )),
                    }
                    next = own.next();
                }
                self.report.log_entries_kept += u64::from(frame.count);
                let end = frame.offset as usize + FRAME_HEADER_BYTES + frame.payload.len();
                log.end = Some((frame.segment, end.next_multiple_of(8) as u64));
                log.last = SeqNo(frame.first_seq.0 + u64::from(frame.count) - 1);
                Ok(())
            },
        );
        match replayed {
            Ok(report) => log.is_damaged = report.check_reach(reach).is_err(),
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(_) => log.is_damaged = true,
        }
        if log.is_damaged {
            self.report_log_loss(floor, reach, log.last)?;
        }
        self.segments = strangers;
        Ok(log)
    }

    /// Segments that are another's by name, or another store's. Nobody knows
    /// how they came here; the log may well be whole without them.
    fn strangers(&self, floor: u64) -> Result<Vec<u64>> {
        let mut strangers = Vec::new();
        for (segment, _) in self.log_segments()? {
            let path = self.log_path(segment);
            let scan = |_: Found<'_>| Ok(());
            let scanned =
                log::scan_frames(self.environment, &path, Some(self.store_id), &mut { scan });
            match scanned {
                Err(error) if error.kind() == ErrorKind::Corruption && segment >= floor => {
                    strangers.push(segment);
                }
                Err(error) if error.kind() == ErrorKind::Io => return Err(error),
                _ => {}
            }
        }
        Ok(strangers)
    }

    /// Says which numbers behind `last` the log had.
    fn report_log_loss(&mut self, floor: u64, reach: SeqNo, last: SeqNo) -> Result<()> {
        let mut highest = last.max(reach);
        let mut is_open_ended = false;
        for (segment, _) in self.log_segments()? {
            if segment < floor {
                continue;
            }
            let path = self.log_path(segment);
            // What cannot be read has been reported.
            let _ = log::scan_frames(self.environment, &path, Some(self.store_id), &mut |found| {
                match found {
                    Found::Frame {
                        first_seq,
                        count,
                        durable_seq,
                        ..
                    } => {
                        let end = (first_seq.0 + u64::from(count)).saturating_sub(1);
                        highest = highest.max(SeqNo(end)).max(durable_seq);
                        is_open_ended = false;
                    }
                    Found::Damaged { .. } => is_open_ended = true,
                    Found::Header(header) => highest = highest.max(SeqNo(header.durable_seq)),
                    Found::Zeros { .. } => {}
                }
                Ok(())
            });
        }
        self.last_seq = self.last_seq.max(highest);
        if highest > last || is_open_ended {
            let first = last.0 + 1;
            self.report.log_numbers_lost = Some((first, highest.0.max(first)));
            self.report.log_numbers_lost_or_later = is_open_ended;
        }
        Ok(())
    }

    /// Where the manifest may have lost from where on the log is needed, at least from
    /// `known_floor`: unless what stood before segment `floor`, the first there is, is not
    /// needed for certain, it may have been lost.
    pub(super) fn note_log_start(&mut self, floor: u64, known_floor: u64) -> Result<()> {
        let mut segments = self.log_segments()?;
        segments.retain(|&(s, _)| s >= floor && !self.segments.contains(&s));
        let Some(&(first, _)) = segments.first() else {
            return Ok(());
        };
        let (mut before, mut start) = (0, None);
        let path = self.log_path(first);
        // What cannot be read has been reported.
        let _ = log::scan_frames(self.environment, &path, Some(self.store_id), &mut |found| {
            match found {
                Found::Header(header) => before = header.previous_segment,
                Found::Frame { first_seq, .. } => start = start.or(Some(first_seq)),
                Found::Damaged { .. } | Found::Zeros { .. } => {}
            }
            Ok(())
        });
        if before > 0 && before >= known_floor {
            let last = start.map_or(self.last_seq, |s| SeqNo(s.0.saturating_sub(1)));
            self.report.log_start_unknown = Some(last.0);
        }
        Ok(())
    }

    /// Where the manifest may have lost how far the log must reach: unless the seal of
    /// a clean close stands at its end, there may have been more behind `last`.
    pub(super) fn note_log_end(&mut self, floor: u64, last: SeqNo) -> Result<()> {
        let mut is_sealed = false;
        for (segment, _) in self.log_segments()? {
            if segment < floor || self.segments.contains(&segment) {
                continue;
            }
            let path = self.log_path(segment);
            is_sealed = false;
            // What cannot be read has been reported.
            let _ = log::scan_frames(self.environment, &path, Some(self.store_id), &mut |found| {
                match found {
                    Found::Frame { count, .. } => is_sealed = count == 0,
                    Found::Damaged { .. } => is_sealed = false,
                    Found::Header(_) | Found::Zeros { .. } => {}
                }
                Ok(())
            });
        }
        match self.report.log_numbers_lost {
            _ if is_sealed => {}
            Some(_) => self.report.log_numbers_lost_or_later = true,
            None => self.report.log_end_unknown = Some(last.0 + 1),
        }
        Ok(())
    }

    /// Plans to keep the log up to its damage.
    pub(super) fn cut_log(&mut self, floor: u64, log: &LogRemains) -> Result<()> {
        let segments = self.log_segments()?;
        // A link of the chain stays even if it has no frames: without it, what
        // follows would count as torn off. All others go: what they claim would
        // make the rest look damaged again.
        let kept = self.chain(log.end.map_or(0, |(segment, _)| segment));
        let others = segments.iter().map(|s| s.0);
        self.segments
            .extend(others.filter(|&s| s >= floor && !kept.contains(&s)));
        self.segments.sort_unstable();
        self.segments.dedup();
        self.cut = log.end;
        Ok(())
    }

    /// Segment `last` and those that it follows, by what each says of the one before.
    fn chain(&self, last: u64) -> BTreeSet<u64> {
        let mut chain = BTreeSet::new();
        let mut next = Some(last).filter(|&last| last > 0);
        while let Some(segment) = next.take() {
            chain.insert(segment);
            let path = self.log_path(segment);
            // One that cannot be read says of none before it.
            let _ = log::scan_frames(self.environment, &path, Some(self.store_id), &mut |found| {
                if let Found::Header(header) = found {
                    let before = header.previous_segment;
                    next = Some(before).filter(|&before| 0 < before && before < segment);
                }
                Ok(())
            });
        }
        chain
    }

    /// The lowest log segment there is, from `floor` on.
    pub(super) fn lowest_segment(&self, floor: u64) -> Result<u64> {
        let segments = self.log_segments()?;
        Ok(segments
            .iter()
            .map(|s| s.0)
            .find(|&s| s >= floor)
            .unwrap_or(floor))
    }
}
