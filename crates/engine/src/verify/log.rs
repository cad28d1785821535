//! Checking the log: as recovery will read it, and where that ends too early,
//! every segment by itself.

use std::path::Path;

use thermocline_model::key::SeqNo;

use super::{Problem, Verify};
use crate::batch::Operations;
use crate::error::{Error, Result};
use crate::log::{self, Found};
use crate::version::manifest::ReadBack;

impl Verify<'_, '_> {
    /// Reads the log: the part that the manifest needs; all of it where there
    /// is no manifest.
    pub(super) fn check_log(&mut self, read: Option<&ReadBack>) {
        let directory = self.options.log_directory().to_path_buf();
        let tier = self.options.log_tier_index();
        let mut segments: Vec<(u64, u64)> = self
            .files
            .iter()
            .filter(|file| file.tier == tier)
            .filter_map(|file| Some((log::parse_segment(&file.name)?, file.size_bytes)))
            .collect();
        segments.sort_unstable();
        let floor = match read {
            Some(read) => read.version.log_floor,
            None => segments.first().map_or(0, |&(segment, _)| segment),
        };
        segments.retain(|&(segment, _)| segment >= floor);
        if read.is_none() {
            self.report.not_checked.push(
                "whether log segments are missing, for the manifest says which are needed"
                    .to_string(),
            );
        }
        let identity = self.identities.iter().flatten().next();
        let store_id = (read.map(|read| read.header.store_id))
            .or_else(|| identity.map(|identity| identity.store_id))
            .or_else(|| self.store_of_log(&directory, &segments));
        let before = self.report.problems.len();
        if let Some(store_id) = store_id
            && let Err(error) = self.replay(&directory, store_id, floor, read)
        {
            self.wrong(&error, &directory);
        }
        let is_damaged = self.report.problems.len() > before;
        for (index, &(segment, size_bytes)) in segments.iter().enumerate() {
            if is_damaged {
                let path = log::segment_path(&directory, segment);
                let is_last = index + 1 == segments.len();
                if let Err(error) = self.scan_segment(&path, store_id, is_last) {
                    self.wrong(&error, &path);
                }
            }
            self.meter.add(size_bytes);
        }
    }

    /// The store that the segments say they belong to.
    fn store_of_log(&self, directory: &Path, segments: &[(u64, u64)]) -> Option<u128> {
        let mut store_id = None;
        for &(segment, _) in segments {
            let path = log::segment_path(directory, segment);
            // What is wrong with it comes out when it is checked.
            let _ = log::scan_frames(self.environment, &path, None, &mut |found| {
                if let Found::Header(header) = found {
                    store_id.get_or_insert(header.store_id);
                }
                Ok(())
            });
        }
        store_id
    }

    /// Reads the log as recovery does.
    fn replay(
        &mut self,
        directory: &Path,
        store_id: u128,
        floor: u64,
        read: Option<&ReadBack>,
    ) -> Result<()> {
        let mut entries = 0;
        let mut undecoded = Vec::new();
        let base = read.map_or(SeqNo::ZERO, |read| read.version.log_base);
        let replayed = log::replay(
            self.environment,
            directory,
            store_id,
            floor,
            base,
            &mut |frame| {
                entries += u64::from(frame.count);
                let path = log::segment_path(directory, frame.segment);
                undecoded.extend(miscounted(&path, frame.offset, frame.count, frame.payload));
                Ok(())
            },
        );
        self.report.log_entries = entries;
        self.report.problems.append(&mut undecoded);
        let replayed = replayed?;
        self.report.log_frames = replayed.frames;
        self.report.log_bytes = replayed.bytes;
        self.report.log_torn_bytes = replayed.torn.as_ref().map_or(0, |t| t.bytes_dropped);
        match read {
            Some(read) => replayed.check_reach(read.version.log_reach),
            None => Ok(()),
        }
    }

    /// Reads one segment of a log in which something is wrong, from front to
    /// back. The end of the last one may be torn by a crash, which is no damage.
    fn scan_segment(&mut self, path: &Path, store_id: Option<u128>, is_last: bool) -> Result<()> {
        let mut found_here = Vec::new();
        let mut torn = None;
        log::scan_frames(self.environment, path, store_id, &mut |found| {
            match found {
                Found::Damaged {
                    offset,
                    length,
                    what,
                    expected,
                    found,
                } => {
                    let error =
                        Error::corruption(format!("{what}, {length} bytes of no sound frame"))
                            .at(path)
                            .offset(offset)
                            .expected(format_args!("{expected:#x}"), format_args!("{found:#x}"));
                    torn = Some((found_here.len(), length));
                    found_here.push(Problem::of(&error, path));
                }
                Found::Frame {
                    offset,
                    count,
                    payload,
                    ..
                } => {
                    torn = None;
                    found_here.extend(miscounted(path, offset, count, payload));
                }
                Found::Header(_) | Found::Zeros { .. } => {}
            }
            Ok(())
        })?;
        if let Some((at, length)) = torn.filter(|_| is_last) {
            let is_header = found_here[at].offset == Some(0);
            let reported = |p: &Problem| p.path == path && p.offset == found_here[at].offset;
            if !is_header && !self.report.problems.iter().any(reported) {
                found_here.remove(at);
                self.report.log_torn_bytes += length;
            }
        }
        for problem in found_here {
            let same = |p: &Problem| p.path == problem.path && p.offset == problem.offset;
            if !self.report.problems.iter().any(same) {
                self.report.problems.push(problem);
            }
        }
        Ok(())
    }
}

/// What is wrong with a sound frame whose operations are not as many as it says.
fn miscounted(path: &Path, offset: u64, count: u32, payload: &[u8]) -> Option<Problem> {
    let found = Operations::new(payload).filter(Result::is_ok).count() as u64;
    // The seal of a closed log has none, and a note of its own.
    let is_whole = count == 0 || Operations::new(payload).all(|operation| operation.is_ok());
    (found != u64::from(count) || !is_whole).then(|| {
        let rest = if is_whole {
            ""
        } else {
            ", and bytes that are none"
        };
        let error = Error::corruption("frame does not have its operations")
            .at(path)
            .offset(offset)
            .expected(count, format!("{found}{rest}"));
        Problem::of(&error, path)
    })
}
