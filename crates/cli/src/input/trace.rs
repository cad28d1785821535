//! Access traces of `replay`.

use std::borrow::Cow;

/// Longest key taken from a trace, in bytes.
const KEY_BYTES_MAX: usize = 64 << 10;

/// Largest value a trace may ask for, in bytes. Larger sizes are taken for
/// damage of the trace: filling them would cost memory and disk by the line.
const VALUE_BYTES_MAX: u64 = 64 << 20;

/// The layout of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum TraceFormat {
    /// `first_page pages ignored number`: one access a line, to its first page
    Arc,
    /// Twitter's: timestamp, key, key size, value size, client, operation, TTL
    Csv,
    /// One key a line, each a read
    Keys,
}

impl TraceFormat {
    /// The layout that a file's name promises, compression aside.
    pub(crate) fn of_name(path: &std::path::Path) -> Option<TraceFormat> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let name = [".zst", ".gz"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(&name);
        match name.rsplit_once('.')?.1 {
            "lis" => Some(TraceFormat::Arc),
            "csv" => Some(TraceFormat::Csv),
            "keys" => Some(TraceFormat::Keys),
            _ => None,
        }
    }

    /// Reads one line.
    pub(crate) fn parse(self, line: &[u8]) -> Result<Traced<'_>, String> {
        let traced = match self {
            TraceFormat::Arc => arc(line)?,
            TraceFormat::Csv => twitter(line)?,
            TraceFormat::Keys => Traced {
                key: Cow::Borrowed(line),
                operation: Operation::Read,
                value_bytes: None,
            },
        };
        match traced.key.len() {
            0 => Err("the key is empty".into()),
            1..=KEY_BYTES_MAX => Ok(traced),
            _ => Err(format!("the key is longer than {KEY_BYTES_MAX} bytes")),
        }
    }
}

/// What a traced access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// get, gets.
    Read,
    /// set, add, replace, cas, append, prepend.
    Write,
    /// delete.
    Delete,
    /// incr, decr: a read, then a write.
    Update,
}

/// One access of a trace.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Traced<'a> {
    pub(crate) key: Cow<'a, [u8]>,
    pub(crate) operation: Operation,
    /// The recorded size of the value, where one was.
    pub(crate) value_bytes: Option<u32>,
}

fn arc(line: &[u8]) -> Result<Traced<'static>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "not text".to_owned())?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(_))) if numbers.all(|n| n.is_ok()) => Ok(Traced {
            // Zeros in front make the order of keys the order of pages.
            key: Cow::Owned(format!("page{first:012}").into_bytes()),
            operation: Operation::Read,
            value_bytes: None,
        }),
        _ => Err("expected numbers: first_page pages ignored number".into()),
    }
}

fn twitter(line: &[u8]) -> Result<Traced<'_>, String> {
    let wrong = || "expected timestamp,key,key size,value size,client,operation,TTL".to_owned();
    // A key may contain commas: the other fields are counted from both ends.
    let mut from_end = line.rsplitn(6, |&b| b == b',');
    let ttl = from_end.next().ok_or_else(wrong)?;
    let operation = from_end.next().ok_or_else(wrong)?;
    let _client = from_end.next().ok_or_else(wrong)?;
    let value_size = number(from_end.next().ok_or_else(wrong)?).ok_or_else(wrong)?;
    let key_size = from_end.next().ok_or_else(wrong)?;
    let front = from_end.next().ok_or_else(wrong)?;
    let comma = front.iter().position(|&b| b == b',').ok_or_else(wrong)?;
    for field in [ttl, key_size, &front[..comma]] {
        number(field).ok_or_else(wrong)?;
    }
    if value_size > VALUE_BYTES_MAX {
        return Err(format!("a value of {value_size} bytes is too large"));
    }
    let operation = match operation.trim_ascii() {
        b"get" | b"gets" => Operation::Read,
        b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" => Operation::Write,
        b"delete" => Operation::Delete,
        b"incr" | b"decr" => Operation::Update,
        other => {
            return Err(format!(
                "unknown operation {:?}",
                crate::text::escape(other)
            ));
        }
    };
    Ok(Traced {
        key: Cow::Borrowed(&front[comma + 1..]),
        operation,
        value_bytes: (value_size > 0).then_some(value_size as u32),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field.trim_ascii()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Dice;

    #[test]
    fn arc_lines_name_their_first_page() {
        let traced = TraceFormat::Arc.parse(b"42 1 0 7").unwrap();
        assert_eq!(&*traced.key, b"page000000000042");
        assert_eq!(traced.operation, Operation::Read);
        for bad in [&b""[..], b"1", b"a 1 0 0", b"1 1 x", b"-1 1 0 0", b"\xff 1"] {
            assert!(TraceFormat::Arc.parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn twitter_lines_may_have_commas_in_keys() {
        let traced = TraceFormat::Csv.parse(b"0,a,b,3,100,12,set,60").unwrap();
        assert_eq!(&*traced.key, b"a,b");
        assert_eq!(traced.operation, Operation::Write);
        assert_eq!(traced.value_bytes, Some(100));
        let traced = TraceFormat::Csv.parse(b"5,k,1,0,1,gets,0").unwrap();
        assert_eq!(traced.value_bytes, None);
        for bad in [
            &b"0,k,1,100,12,set"[..],
            b"0,k,1,100,12,jump,60",
            b"0,k,1,99999999999,12,set,60",
            b"0,k,1,x,12,set,60",
            b"0,,0,1,12,set,60",
            b"",
        ] {
            assert!(TraceFormat::Csv.parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keys_are_whole_lines() {
        assert_eq!(&*TraceFormat::Keys.parse(b" a b").unwrap().key, b" a b");
        assert!(TraceFormat::Keys.parse(b"").is_err());
        assert!(TraceFormat::Keys.parse(&[b'x'; KEY_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn random_bytes_never_panic() {
        let seed = 15;
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        let alphabet = b"019, getsincr\t\x00\xff-";
        for _ in 0..20_000 {
            let line: Vec<u8> = (0..dice.below(40))
                .map(|_| alphabet[dice.below(alphabet.len() as u64) as usize])
                .collect();
            for format in [TraceFormat::Arc, TraceFormat::Csv, TraceFormat::Keys] {
                let _ = format.parse(&line);
            }
        }
    }
}
