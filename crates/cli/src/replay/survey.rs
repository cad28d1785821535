//! The first reading of a trace: which keys there are and how large.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use indicatif::ProgressBar;

use crate::exit::Failure;
use crate::input::lines::{Line, Lines};
use crate::input::source::{Input, Source};
use crate::input::trace::{Operation, TraceFormat, Traced};
use crate::progress::note;

/// Longest line of a trace: a key and some numbers.
const LINE_BYTES_MAX: usize = 128 << 10;

/// Bad lines that are reported one by one.
const BAD_LINES_SHOWN: u64 = 10;

/// Lines between two looks at the progress bar.
const LINES_PER_TICK: u64 = 1 << 14;

/// A key's number, in the order of first appearance.
pub(crate) type KeyNumber = u32;

/// The lines of a trace, bad ones left out.
pub(crate) struct Trace<'a> {
    input: &'a Input,
    format: TraceFormat,
    lines: Lines<Source>,
    buffer: Vec<u8>,
    taken: Arc<AtomicU64>,
    left: u64,
    bad: u64,
}

impl<'a> Trace<'a> {
    /// The first `limit` accesses of `input`.
    pub(crate) fn open(
        input: &'a Input,
        format: TraceFormat,
        limit: u64,
    ) -> Result<Trace<'a>, Failure> {
        let taken = Arc::new(AtomicU64::new(0));
        Ok(Trace {
            input,
            format,
            lines: Lines::resume(input.open(0, &taken)?, LINE_BYTES_MAX, 0, 0),
            buffer: Vec::new(),
            taken,
            left: limit,
            bad: 0,
        })
    }

    /// The next access. Bad lines are skipped, and named on `bar` if given.
    pub(crate) fn next(
        &mut self,
        bar: Option<&ProgressBar>,
    ) -> Result<Option<Traced<'_>>, Failure> {
        if self.left == 0 {
            return Ok(None);
        }
        loop {
            self.buffer.clear();
            let line = self.lines.read(&mut self.buffer);
            let reason = match line.map_err(|e| self.input.failure("reading", e))? {
                Line::End => return Ok(None),
                Line::TooLong => format!("longer than {LINE_BYTES_MAX} bytes"),
                Line::Whole => match self.format.parse(&self.buffer) {
                    Ok(_) => break,
                    Err(reason) => reason,
                },
            };
            self.bad += 1;
            if let Some(bar) = bar
                && self.bad <= BAD_LINES_SHOWN
            {
                let (name, number) = (self.input.name(), self.lines.number());
                note(bar, &format!("{name}:{number}: {reason}"));
            }
        }
        self.left -= 1;
        // Parsed a second time because the borrow of the first would outlive
        // the loop; it is cheap beside the store's work.
        Ok(self.format.parse(&self.buffer).ok())
    }
}

/// What a trace asks for.
pub(crate) struct Survey {
    numbers: HashMap<Arc<[u8]>, KeyNumber>,
    /// The keys by number.
    pub(crate) keys: Vec<Arc<[u8]>>,
    /// The size of each key's value before the first access, in bytes.
    pub(crate) sizes: Vec<u32>,
    /// Number of accesses.
    pub(crate) accesses: u64,
    /// Number of lines that were no access.
    pub(crate) bad: u64,
}

impl Survey {
    /// Reads the whole trace. A key's value has the first size that the trace
    /// records for it, else `value_bytes`.
    pub(crate) fn of(
        mut trace: Trace<'_>,
        value_bytes: u32,
        bar: &ProgressBar,
    ) -> Result<Survey, Failure> {
        let mut survey = Survey {
            numbers: HashMap::new(),
            keys: Vec::new(),
            sizes: Vec::new(),
            accesses: 0,
            bad: 0,
        };
        // Zero stands for "not yet recorded".
        while let Some(traced) = trace.next(Some(bar))? {
            let number = match survey.numbers.get(&*traced.key) {
                Some(&number) => number,
                None => survey.add(&traced.key)?,
            };
            let size = &mut survey.sizes[number as usize];
            if let (0, Some(recorded)) = (*size, traced.value_bytes) {
                *size = recorded;
            }
            survey.accesses += 1;
            if survey.accesses.is_multiple_of(LINES_PER_TICK) {
                bar.set_position(trace.taken.load(std::sync::atomic::Ordering::Relaxed));
            }
        }
        survey.bad = trace.bad;
        for size in survey.sizes.iter_mut().filter(|size| **size == 0) {
            *size = value_bytes;
        }
        Ok(survey)
    }

    fn add(&mut self, key: &[u8]) -> Result<KeyNumber, Failure> {
        let number = KeyNumber::try_from(self.keys.len())
            .map_err(|_| Failure::usage("the trace has more than 2^32 keys; use --limit"))?;
        let key: Arc<[u8]> = key.into();
        self.numbers.insert(Arc::clone(&key), number);
        self.keys.push(key);
        self.sizes.push(0);
        Ok(number)
    }

    /// The number of `key`, if the survey met it.
    pub(crate) fn number(&self, key: &[u8]) -> Option<KeyNumber> {
        self.numbers.get(key).copied()
    }

    /// Bytes of all keys and their first values.
    pub(crate) fn data_bytes(&self) -> u64 {
        let keys: u64 = self.keys.iter().map(|key| key.len() as u64).sum();
        keys + self.sizes.iter().map(|&size| u64::from(size)).sum::<u64>()
    }
}

/// One access, as a worker gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    pub(crate) key: KeyNumber,
    pub(crate) operation: Operation,
    /// Size of the value to write, in bytes; 0 keeps the size of before.
    pub(crate) value_bytes: u32,
}

impl Access {
    /// The access that `traced` stands for; none where the trace has changed
    /// since the survey.
    pub(crate) fn of(traced: &Traced<'_>, survey: &Survey) -> Option<Access> {
        Some(Access {
            key: survey.number(&traced.key)?,
            operation: traced.operation,
            value_bytes: traced.value_bytes.unwrap_or(0),
        })
    }
}
