//! Frames of the record of events. Byte layout: docs/formats/events.md.
//!
//! A frame begins with a mark that can be searched for, so that damage costs the
//! frames that it touches and no others.

use std::borrow::Cow;

use thermocline_model::codec::{Reader, Writer};
use thermocline_model::job::Reason;
use thermocline_model::predicted::{Benefit, Predicted};

use super::{Event, PlacedTable};

/// What every frame begins with, before the version of its format; so what the file begins with.
pub(crate) const MAGIC: [u8; 3] = *b"\nTE";
/// The version that is written. Frames of version 1 have no predictions, and are read.
const VERSION: u8 = 2;
/// Mark and version.
const MARK_BYTES: usize = MAGIC.len() + 1;
/// These, length and checksum.
pub(super) const FRAME_BYTES: usize = 12;
/// Longest payload that is written or read.
pub(super) const PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// Longest text, and longest list, within an event.
const TEXT_BYTES_MAX: usize = 4 << 10;
pub(super) const LIST_MAX: usize = 256;

/// Words that events are full of: borrowed, so that thousands of events in memory
/// do not hold thousands of copies.
const WORDS: [&str; 15] = [
    "load",
    "flush",
    "merge",
    "relocate",
    "tune",
    "heat",
    "only-tier",
    "as-hot-as-its-tier",
    "joined-migration",
    "level-fits",
    "level-spans",
    "new-to-the-fastest",
    "loaded",
    "moved",
    "relocated",
];

fn word(text: &str) -> Cow<'static, str> {
    let known = WORDS.iter().find(|w| **w == text);
    known.map_or_else(|| Cow::Owned(text.to_string()), |w| Cow::Borrowed(*w))
}

fn put_text(w: &mut Writer, text: &str) {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    w.bytes(&text.as_bytes()[..end]);
}

fn text(r: &mut Reader<'_>) -> Result<String, String> {
    let bytes = r.bytes()?;
    String::from_utf8(bytes.to_vec()).map_err(|e| e.to_string())
}

/// The payload of `event`.
pub(super) fn encode(event: &Event) -> Vec<u8> {
    let mut w = Writer::default();
    w.number(event.number);
    w.number(event.started_us);
    w.number(event.took_us);
    put_text(&mut w, &event.job);
    put_text(&mut w, &event.keyspace);
    put_text(&mut w, &event.what);
    put_text(&mut w, &event.reason.rule);
    let numbers = &event.reason.numbers[..event.reason.numbers.len().min(LIST_MAX)];
    w.length(numbers.len());
    for (name, number) in numbers {
        put_text(&mut w, name);
        put_double(&mut w, *number);
    }
    w.byte(u8::from(event.reason.predicted.is_some()));
    if let Some(predicted) = &event.reason.predicted {
        encode_predicted(&mut w, predicted);
    }
    w.length(event.tables_in.len());
    for table in &event.tables_in {
        w.number(*table);
    }
    w.length(event.tables_out.len());
    for placed in &event.tables_out {
        w.number(placed.table);
        w.number(u64::from(placed.tier));
        w.number(placed.bytes);
        put_text(&mut w, &placed.rule);
    }
    w.number(event.bytes_in);
    w.number(event.bytes_out);
    w.byte(u8::from(event.error.is_some()));
    if let Some(error) = &event.error {
        put_text(&mut w, error);
    }
    w.finish()
}

fn put_double(w: &mut Writer, number: f64) {
    w.raw(&number.to_bits().to_le_bytes());
}

fn double(r: &mut Reader<'_>) -> Result<f64, String> {
    let bits = r.raw(8)?.first_chunk().expect("eight bytes taken");
    let number = f64::from_bits(u64::from_le_bytes(*bits));
    match number.is_finite() {
        true => Ok(number),
        false => Err("a number that is none".to_string()),
    }
}

fn encode_predicted(w: &mut Writer, predicted: &Predicted) {
    w.number(predicted.read_bytes);
    w.number(predicted.written_bytes);
    w.length(predicted.device_seconds.len());
    for seconds in &predicted.device_seconds {
        put_double(w, *seconds);
    }
    w.length(predicted.benefits.len());
    for benefit in &predicted.benefits {
        put_text(w, &benefit.name);
        w.byte(u8::from(benefit.number.is_some()));
        if let Some(number) = benefit.number {
            put_double(w, number);
        }
    }
}

fn decode_predicted(r: &mut Reader<'_>) -> Result<Predicted, String> {
    Ok(Predicted {
        read_bytes: r.number()?,
        written_bytes: r.number()?,
        device_seconds: list(r, double)?,
        benefits: list(r, |r| {
            Ok(Benefit {
                name: Cow::Owned(text(r)?),
                number: if r.flag()? { Some(double(r)?) } else { None },
            })
        })?,
    })
}

fn list<T>(
    r: &mut Reader<'_>,
    mut item: impl FnMut(&mut Reader<'_>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let count = r.length()?;
    if count > LIST_MAX {
        return Err(format!("a list of {count}"));
    }
    (0..count).map(|_| item(r)).collect()
}

/// The event of a payload of a format's version.
fn decode(version: u8, payload: &[u8]) -> Result<Event, String> {
    let r = &mut Reader::new(payload);
    let event = Event {
        number: r.number()?,
        started_us: r.number()?,
        took_us: r.number()?,
        job: word(&text(r)?),
        keyspace: text(r)?,
        what: text(r)?,
        reason: Reason {
            rule: text(r)?,
            numbers: list(r, |r| Ok((text(r)?, double(r)?)))?,
            predicted: match version > 1 && r.flag()? {
                true => Some(decode_predicted(r)?),
                false => None,
            },
        },
        tables_in: list(r, |r| r.number())?,
        tables_out: list(r, |r| {
            Ok(PlacedTable {
                table: r.number()?,
                tier: r.number32()?,
                bytes: r.number()?,
                rule: word(&text(r)?),
            })
        })?,
        bytes_in: r.number()?,
        bytes_out: r.number()?,
        error: if r.flag()? { Some(text(r)?) } else { None },
    };
    r.end()?;
    Ok(event)
}

/// A frame around `payload`; `None` if that is too long.
pub(super) fn seal(payload: &[u8]) -> Option<Vec<u8>> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return None;
    }
    let mut frame = Vec::with_capacity(FRAME_BYTES + payload.len());
    frame.extend_from_slice(&MAGIC);
    frame.push(VERSION);
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(&checksum(&frame[..8], payload).to_le_bytes());
    frame.extend_from_slice(payload);
    Some(frame)
}

/// The checksum of a payload behind `head`: mark, version and length, of which version 1 does not
/// cover the first two.
fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let covered = if is_mark(&head[..4], 1) {
        &head[4..]
    } else {
        head
    };
    crc32c::crc32c_append(crc32c::crc32c(covered), payload)
}

fn is_mark(bytes: &[u8], version: u8) -> bool {
    bytes.strip_prefix(&MAGIC) == Some(&[version])
}

/// The version of the frame that `bytes` may begin with.
fn version_of(bytes: &[u8]) -> Option<u8> {
    (1..=VERSION).find(|&version| is_mark(bytes, version))
}

/// What was found in some bytes of a record.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) events: Vec<Event>,
    /// Bytes that need not be looked at again: all but a frame at the end that may
    /// not be whole yet.
    pub(super) done: usize,
    /// Stretches that are no events.
    pub(super) damaged: usize,
}

/// The whole frame that `bytes` begin with: the version of its format, and its payload.
fn first_payload(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let head = bytes.get(..FRAME_BYTES)?;
    let word = |at: usize| {
        let word = head[at..at + 4].first_chunk().expect("four bytes taken");
        u32::from_le_bytes(*word)
    };
    let version = version_of(&head[..MARK_BYTES])?;
    let length = word(4) as usize;
    if length > PAYLOAD_BYTES_MAX {
        return None;
    }
    let payload = bytes[FRAME_BYTES..].get(..length)?;
    (word(8) == checksum(&head[..8], payload)).then_some((version, payload))
}

/// Hands over the payload of every frame in `bytes`, whatever stands around them.
/// How many bytes need not be looked at again, and how many stretches are no
/// frames.
fn payloads<'a>(bytes: &'a [u8], mut take: impl FnMut(u8, &'a [u8])) -> (usize, usize) {
    let (mut at, mut damaged) = (0, 0);
    while at < bytes.len() {
        if let Some((version, payload)) = first_payload(&bytes[at..]) {
            take(version, payload);
            at += FRAME_BYTES + payload.len();
            continue;
        }
        let next = bytes[at + 1..].windows(MARK_BYTES);
        match next.enumerate().find(|(_, w)| version_of(w).is_some()) {
            Some((gap, _)) => {
                damaged += 1;
                at += 1 + gap;
            }
            // It may be on its way.
            None => break,
        }
    }
    (at, damaged)
}

/// Finds every event in `bytes`.
pub(super) fn find(bytes: &[u8]) -> Found {
    let (mut events, mut unsound) = (Vec::new(), 0);
    let (done, damaged) = payloads(bytes, |version, payload| match decode(version, payload) {
        Ok(event) => events.push(event),
        Err(_) => unsound += 1,
    });
    Found {
        events,
        done,
        damaged: damaged + unsound,
    }
}

/// The highest number of an event in `bytes`; 0 if there is none.
pub(super) fn newest(bytes: &[u8]) -> u64 {
    let mut newest = 0;
    payloads(bytes, |_, payload| {
        newest = newest.max(Reader::new(payload).number().unwrap_or(0));
    });
    newest
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn event(number: u64) -> Event {
        Event {
            number,
            took_us: 250,
            keyspace: "default".to_string(),
            tables_in: vec![7],
            tables_out: vec![PlacedTable {
                table: 7,
                tier: 1,
                bytes: 4096,
                rule: Cow::Borrowed("relocated"),
            }],
            bytes_in: 4096,
            bytes_out: 4096,
            ..Event::new(
                "relocate",
                "table 000007 from fast to slow",
                Reason {
                    predicted: Some(predicted()),
                    ..Reason::new("over-budget").with("temperature", 1.5)
                },
                1_000_000,
            )
        }
    }

    fn predicted() -> Predicted {
        let predicted = Predicted {
            read_bytes: 4096,
            written_bytes: 4096,
            device_seconds: vec![0.25, 0.5],
            benefits: Vec::new(),
        };
        predicted
            .gaining("usd_month_saved", 0.125)
            .gaining_unknown("read_us_saved_per_second")
    }

    fn frame(number: u64) -> Vec<u8> {
        seal(&encode(&event(number))).unwrap()
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let hex: String = frame(3).iter().map(|b| format!("{b:02x}")).collect();
        let document = include_str!("../../../../docs/formats/events.md");
        let example = |at: usize| -> String {
            let example = document.split("```").nth(at).unwrap();
            example.split_whitespace().collect()
        };
        assert_eq!(example(1), hex);
        assert_eq!(find(&frame(3)).events, [event(3)]);
        // Version 1, as it was written before events had predictions; and both in one file.
        let old = example(3);
        let old = (0..old.len()).step_by(2);
        let old: Vec<u8> = old
            .map(|at| u8::from_str_radix(&example(3)[at..at + 2], 16).unwrap())
            .collect();
        let mut event_of_1 = event(3);
        event_of_1.reason.predicted = None;
        let found = find(&[&old[..], &frame(4), &old].concat());
        assert_eq!(found.events, [event_of_1.clone(), event(4), event_of_1]);
        assert_eq!((found.damaged, newest(&old)), (0, 3));
    }

    #[test]
    fn a_frame_of_one_version_is_none_of_another() {
        for (version, other) in [(1, 2), (2, 1), (2, 3), (2, 0)] {
            let mut bytes = frame(1);
            bytes[3] = version;
            let sum = checksum(&bytes[..8], &bytes[FRAME_BYTES..]);
            bytes[8..12].copy_from_slice(&sum.to_le_bytes());
            bytes[3] = other;
            let found = find(&[bytes, frame(2)].concat());
            assert_eq!(found.events, [event(2)], "{version} {other}");
        }
    }

    #[test]
    fn a_flipped_bit_costs_one_event_and_makes_none_up() {
        let frames = [frame(1), frame(2), frame(3)];
        let bytes = frames.concat();
        let second = frames[0].len()..frames[0].len() + frames[1].len();
        for bit in second.start * 8..second.end * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = find(&flipped);
            assert_eq!(found.events, [event(1), event(3)], "bit {bit}");
            assert!(found.damaged > 0, "bit {bit}");
        }
    }

    #[test]
    fn a_frame_that_is_not_whole_yet_is_left_for_later() {
        let bytes = [frame(1), frame(2)].concat();
        let first = frame(1).len();
        for length in first..bytes.len() {
            let found = find(&bytes[..length]);
            assert_eq!(found.events, [event(1)], "cut at {length}");
            assert_eq!(found.done, first, "cut at {length}");
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        // Lengths and counts that lie, behind checksums that do not.
        let seed = 11;
        println!("seed {seed}");
        let mut state: u64 = seed;
        let mut dice = move |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % n
        };
        for _ in 0..2000 {
            let mut payload = encode(&event(9));
            for _ in 0..=dice(4) {
                let at = dice(payload.len());
                payload[at] = dice(256) as u8;
            }
            payload.truncate(1 + dice(payload.len()));
            let found = find(&seal(&payload).unwrap());
            assert!(found.events.len() <= 1);
        }
        assert!(find(&[b'\n'; 5000]).events.is_empty());
        let huge = [&MAGIC[..], &[0xff; 8], &frame(1)].concat();
        assert_eq!(find(&huge).events, [event(1)]);
    }

    #[test]
    fn what_is_too_long_is_cut_or_left_out() {
        let mut long = event(1);
        long.what = "é".repeat(9000);
        let found = find(&seal(&encode(&long)).unwrap());
        assert_eq!(found.events[0].what.len(), TEXT_BYTES_MAX);
        assert_eq!(seal(&vec![0; PAYLOAD_BYTES_MAX + 1]), None);
    }
}
