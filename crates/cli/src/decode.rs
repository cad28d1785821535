//! What the readers of input files make of any bytes at all: the targets of the
//! fuzzer. Each takes bytes, of which the first chooses the format, and panics
//! when a promise is broken.

use crate::input::lines::{Line, Lines};
use crate::input::record::{Fields, Format, Parser};
use crate::input::trace::TraceFormat;

/// Longest record taken.
const RECORD_BYTES_MAX: usize = 512;

/// The records of `load`: CSV, TSV, JSON lines, stanzas.
pub fn records(bytes: &[u8]) {
    let Some((&head, bytes)) = bytes.split_first() else {
        return;
    };
    let formats = [Format::Csv, Format::Tsv, Format::Jsonl, Format::Stanzas];
    let format = formats[usize::from(head) % 4];
    let names = [("id", "name"), ("1", "2"), ("/a/id", "/a/0")];
    let (key, value) = names[usize::from(head >> 2) % 3];
    let fields = Fields {
        key: key.to_owned(),
        value: (head & 0x40 > 0).then(|| value.to_owned()),
        header: head & 0x80 > 0,
    };
    let mut lines = Lines::resume(bytes, RECORD_BYTES_MAX, 0, 0);
    let parser = match Parser::new(format, &fields, &mut lines) {
        Ok(Ok(parser)) => parser,
        Ok(Err(why)) => return assert!(!why.is_empty()),
        Err(error) => panic!("bytes in memory are always read: {error}"),
    };
    let mut buffer = Vec::new();
    let mut before = 0;
    while let Ok(Some((line, within))) = parser.read(&mut lines, &mut buffer) {
        assert!(line > before, "records come in order");
        before = line;
        if within.is_ok() {
            assert!(buffer.len() <= RECORD_BYTES_MAX, "{}", buffer.len());
            if let Ok((key, _)) = parser.parse(&buffer) {
                assert!(!key.is_empty());
            }
        }
    }
    assert_eq!(lines.offset(), bytes.len() as u64, "all of it is read");
}

/// The accesses of `replay`: ARC, Twitter's CSV, keys.
pub fn trace(bytes: &[u8]) {
    let Some((&head, bytes)) = bytes.split_first() else {
        return;
    };
    let formats = [TraceFormat::Arc, TraceFormat::Csv, TraceFormat::Keys];
    let format = formats[usize::from(head) % 3];
    let mut lines = Lines::resume(bytes, RECORD_BYTES_MAX, 0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.read(&mut line) {
            Ok(Line::End) => break,
            Ok(Line::TooLong) => continue,
            Ok(Line::Whole) => {}
            Err(error) => panic!("bytes in memory are always read: {error}"),
        }
        if let Ok(traced) = format.parse(&line) {
            assert!(!traced.key.is_empty());
        }
    }
}
