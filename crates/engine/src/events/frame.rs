//! Frames of the record of events. Byte layout: docs/formats/events.md.
//!
//! A frame begins with a mark that can be searched for, so that damage costs the
//! frames that it touches and no others.

use std::borrow::Cow;

use thermocline_model::codec::{Reader, Writer};
use thermocline_model::job::Reason;

use super::{Event, PlacedTable};

/// What every frame begins with; so what the file begins with.
pub(crate) const MAGIC: [u8; 4] = *b"\nTE\x01";
/// Mark, length and checksum.
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
        w.raw(&number.to_bits().to_le_bytes());
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

/// The event of a payload.
pub(super) fn decode(payload: &[u8]) -> Result<Event, String> {
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
            numbers: list(r, |r| {
                let name = text(r)?;
                let bits = r.raw(8)?.first_chunk().expect("eight bytes taken");
                Ok((name, f64::from_bits(u64::from_le_bytes(*bits))))
            })?,
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
    if event.reason.numbers.iter().any(|(_, n)| !n.is_finite()) {
        return Err("a number that is none".to_string());
    }
    Ok(event)
}

/// A frame around `payload`; `None` if that is too long.
pub(super) fn seal(payload: &[u8]) -> Option<Vec<u8>> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return None;
    }
    let mut frame = Vec::with_capacity(FRAME_BYTES + payload.len());
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(&checksum(&frame[4..8], payload).to_le_bytes());
    frame.extend_from_slice(payload);
    Some(frame)
}

fn checksum(length: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(length), payload)
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

/// The whole frame that `bytes` begin with.
fn first_payload(bytes: &[u8]) -> Option<&[u8]> {
    let head = bytes.get(..FRAME_BYTES)?;
    let word = |at: usize| {
        let word = head[at..at + 4].first_chunk().expect("four bytes taken");
        u32::from_le_bytes(*word)
    };
    let length = word(4) as usize;
    if head[..4] != MAGIC || length > PAYLOAD_BYTES_MAX {
        return None;
    }
    let payload = bytes[FRAME_BYTES..].get(..length)?;
    (word(8) == checksum(&head[4..8], payload)).then_some(payload)
}

/// Hands over the payload of every frame in `bytes`, whatever stands around them.
/// How many bytes need not be looked at again, and how many stretches are no
/// frames.
fn payloads<'a>(bytes: &'a [u8], mut take: impl FnMut(&'a [u8])) -> (usize, usize) {
    let (mut at, mut damaged) = (0, 0);
    while at < bytes.len() {
        if let Some(payload) = first_payload(&bytes[at..]) {
            take(payload);
            at += FRAME_BYTES + payload.len();
            continue;
        }
        let next = bytes[at + 1..].windows(MAGIC.len());
        match next.enumerate().find(|(_, w)| **w == MAGIC) {
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
    let (done, damaged) = payloads(bytes, |payload| match decode(payload) {
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
    payloads(bytes, |payload| {
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
                Reason::new("over-budget").with("temperature", 1.5),
                1_000_000,
            )
        }
    }

    fn frame(number: u64) -> Vec<u8> {
        seal(&encode(&event(number))).unwrap()
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let hex: String = frame(3).iter().map(|b| format!("{b:02x}")).collect();
        let document = include_str!("../../../../docs/formats/events.md");
        let example = document.split("```").nth(1).unwrap();
        assert_eq!(example.split_whitespace().collect::<String>(), hex);
        assert_eq!(find(&frame(3)).events, [event(3)]);
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
