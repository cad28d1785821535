//! Bytes as text and back: keys and values on the command line, on a terminal
//! and in JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// How keys and values are written as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notation {
    /// UTF-8; what is not printable is escaped in output.
    Text,
    /// Two hexadecimal digits a byte.
    Hex,
}

impl Notation {
    /// The notation that a `--hex` flag chooses.
    pub(crate) fn of(hex: bool) -> Notation {
        if hex { Notation::Hex } else { Notation::Text }
    }

    /// The bytes that `argument` stands for.
    pub(crate) fn read(self, argument: &str) -> Result<Vec<u8>, String> {
        match self {
            Notation::Text => Ok(argument.as_bytes().to_vec()),
            Notation::Hex => from_hex(argument),
        }
    }

    /// `bytes` on one line of printable characters.
    pub(crate) fn show(self, bytes: &[u8]) -> String {
        match self {
            Notation::Text => escape(bytes),
            Notation::Hex => to_hex(bytes),
        }
    }

    /// Adds `bytes` to a JSON object: as the string `name` where they are
    /// UTF-8 and text was asked for, else as `name_hex`.
    pub(crate) fn insert(self, object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
        match (self, std::str::from_utf8(bytes)) {
            (Notation::Text, Ok(text)) => object.insert(name.into(), text.into()),
            _ => object.insert(format!("{name}_hex"), to_hex(bytes).into()),
        };
    }
}

/// `bytes` with backslash escapes for everything that is not printable UTF-8.
/// Never contains a tab or a line break.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                c if c.is_control() || is_invisible(c) => {
                    let mut buffer = [0; 4];
                    for byte in c.encode_utf8(&mut buffer).bytes() {
                        push_escaped(&mut text, byte);
                    }
                }
                c => text.push(c),
            }
        }
        for &byte in chunk.invalid() {
            push_escaped(&mut text, byte);
        }
    }
    text
}

/// Line separators and the marks that turn the direction of text: a terminal
/// would show something else than what is stored.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn push_escaped(text: &mut String, byte: u8) {
    write!(text, "\\x{byte:02x}").expect("a String takes every write");
}

/// Two lower-case digits a byte.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes every write");
    }
    text
}

/// The bytes of an even number of hexadecimal digits.
pub(crate) fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let text_bytes = text.as_bytes();
    if !text_bytes.len().is_multiple_of(2) {
        return Err(format!("{text:?} has an odd number of hexadecimal digits"));
    }
    text_bytes
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| format!("{text:?} is not hexadecimal"))
}

/// The smallest key greater than every key that begins with `prefix`; `None`
/// where there is none.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_survives_a_round_trip_and_refuses_the_rest() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&all)), Ok(all));
        assert_eq!(from_hex("DEad"), Ok(vec![0xde, 0xad]));
        for text in ["a", "zz", "+1", "é"] {
            assert!(from_hex(text).is_err(), "{text}");
        }
    }

    #[test]
    fn escaped_text_is_one_printable_line() {
        assert_eq!(escape("naïve".as_bytes()), "naïve");
        assert_eq!(escape(b"a\tb\n\\\x00\xff"), "a\\tb\\n\\\\\\x00\\xff");
        assert_eq!(escape("\u{202e}x".as_bytes()), "\\xe2\\x80\\xaex");
        let all: Vec<u8> = (0..=255).collect();
        assert!(!escape(&all).contains(|c: char| c.is_control()));
    }

    #[test]
    fn the_end_of_a_prefix_follows_all_its_keys() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
