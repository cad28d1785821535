//! Lines of bounded length. A line that is too long is reported and skipped,
//! never held in memory.

use std::io::{self, BufRead, Read as _};

/// Lines of a reader, with their numbers and the bytes taken.
pub(crate) struct Lines<R> {
    reader: R,
    /// Longest line taken, in bytes, its line break not counted.
    limit: usize,
    /// Number of the last line taken; the first is 1.
    number: u64,
    /// Bytes taken, line breaks included.
    offset: u64,
}

/// What [`Lines::read`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// A line, appended to the buffer without its line break.
    Whole,
    /// A line above the limit; it was skipped and the buffer is as it was.
    TooLong,
    /// The end of the input.
    End,
}

impl<R: BufRead> Lines<R> {
    /// The lines of `reader`, which begins behind `offset` bytes and `number`
    /// lines of the input.
    pub(crate) fn resume(reader: R, limit: usize, offset: u64, number: u64) -> Lines<R> {
        Lines {
            reader,
            limit,
            number,
            offset,
        }
    }

    /// Appends the next line to `buffer`.
    pub(crate) fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<Line> {
        let start = buffer.len();
        // Two more than the limit: a carriage return and a line feed.
        let most = self.limit as u64 + 2;
        let taken = (&mut self.reader).take(most).read_until(b'\n', buffer)?;
        if taken == 0 {
            return Ok(Line::End);
        }
        self.number += 1;
        self.offset += taken as u64;
        let ended = buffer.last() == Some(&b'\n');
        if ended {
            buffer.pop();
            if buffer.len() > start && buffer.last() == Some(&b'\r') {
                buffer.pop();
            }
        }
        if buffer.len() - start <= self.limit {
            return Ok(Line::Whole);
        }
        buffer.truncate(start);
        if !ended {
            self.offset += self.reader.skip_until(b'\n')? as u64;
        }
        Ok(Line::TooLong)
    }

    /// Number of the last line taken.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of the input taken so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The longest line taken.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &[u8], limit: usize) -> (Vec<Option<Vec<u8>>>, u64) {
        let mut lines = Lines::resume(input, limit, 0, 0);
        let mut found = Vec::new();
        loop {
            let mut buffer = Vec::new();
            match lines.read(&mut buffer).unwrap() {
                Line::Whole => found.push(Some(buffer)),
                Line::TooLong => found.push(None),
                Line::End => return (found, lines.offset()),
            }
        }
    }

    #[test]
    fn lines_end_with_either_break_or_the_input() {
        let (found, offset) = all(b"a\r\n\nbc\r\r\nd", 10);
        let expected: Vec<&[u8]> = vec![b"a", b"", b"bc\r", b"d"];
        let found: Vec<Vec<u8>> = found.into_iter().map(Option::unwrap).collect();
        assert_eq!(found, expected);
        assert_eq!(offset, 10);
    }

    #[test]
    fn a_line_above_the_limit_is_skipped_whole() {
        let mut input = vec![b'x'; 100_000];
        input.extend_from_slice(b"\nabcd\nabcde\nabc\nabcd");
        let (found, offset) = all(&input, 4);
        assert_eq!(found[0], None);
        assert_eq!(found[1].as_deref(), Some(&b"abcd"[..]));
        assert_eq!(found[2], None);
        assert_eq!(found[3].as_deref(), Some(&b"abc"[..]));
        assert_eq!(found[4].as_deref(), Some(&b"abcd"[..]));
        assert_eq!(found.len(), 5);
        assert_eq!(offset, input.len() as u64);
    }

    #[test]
    fn a_line_that_ends_with_the_input_may_have_a_lone_carriage_return() {
        let (found, _) = all(b"abc\r", 4);
        assert_eq!(found, [Some(b"abc\r".to_vec())]);
    }
}
