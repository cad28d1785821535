//! Records of `load`: a key and a value from each line, row or stanza.
//!
//! The value is the record as it stands in the input, unless a field is
//! chosen. Every record is bounded; a bad one costs no more than itself.

use std::borrow::Cow;
use std::io::{self, BufRead};
use std::ops::ControlFlow;
use std::path::Path;

use super::delimited::{self, Dialect};
use super::json::{self, Member};
use super::lines::{Line, Lines};
use super::stanza;

/// Longest key that a store takes, in bytes.
const KEY_BYTES_MAX: usize = 64 << 10;

/// How the input is divided into records and fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Comma-separated, quoted as in RFC 4180
    Csv,
    /// Tab-separated, without quotes
    Tsv,
    /// One JSON object a line
    #[value(alias = "json", alias = "ndjson")]
    Jsonl,
    /// Stanzas of `Name: content` lines, as in Debian's Packages files
    #[value(alias = "deb")]
    Stanzas,
}

impl Format {
    /// The format that a file's name promises, compression aside.
    pub(crate) fn of_name(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let name = [".zst", ".gz"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(&name);
        let suffixes = [
            (".csv", Format::Csv),
            (".tsv", Format::Tsv),
            (".tab", Format::Tsv),
            (".jsonl", Format::Jsonl),
            (".ndjson", Format::Jsonl),
            (".json", Format::Jsonl),
            ("packages", Format::Stanzas),
            ("sources", Format::Stanzas),
        ];
        suffixes
            .iter()
            .find(|(suffix, _)| name.ends_with(suffix))
            .map(|(_, format)| *format)
    }
}

/// Which fields become key and value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fields {
    /// The key's field: a name, or from 1 on the number of a column.
    pub(crate) key: String,
    /// The value's field; the whole record if none.
    pub(crate) value: Option<String>,
    /// Whether the first row of CSV and TSV names the columns.
    pub(crate) header: bool,
}

/// Reads records of one format.
#[derive(Debug)]
pub(crate) struct Parser {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Delimited {
        dialect: Dialect,
        key: usize,
        value: Option<usize>,
    },
    Json {
        key: Member,
        value: Option<Member>,
    },
    Stanzas {
        key: String,
        value: Option<String>,
    },
}

/// The chosen fields of a record; no value stands for the whole record.
type Chosen<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);

/// A key and a value of the input.
pub(crate) type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

impl Parser {
    /// A parser for `format`, which takes the header from `lines` where one is
    /// expected. The inner error is about the header or the chosen fields.
    pub(crate) fn new<R: BufRead>(
        format: Format,
        fields: &Fields,
        lines: &mut Lines<R>,
    ) -> io::Result<Result<Parser, String>> {
        let dialect = match format {
            Format::Csv => Dialect::Csv,
            Format::Tsv => Dialect::Tsv,
            Format::Jsonl => {
                let kind = Kind::Json {
                    key: Member::of(&fields.key),
                    value: fields.value.as_deref().map(Member::of),
                };
                return Ok(Ok(Parser { kind }));
            }
            Format::Stanzas => {
                let kind = Kind::Stanzas {
                    key: fields.key.clone(),
                    value: fields.value.clone(),
                };
                return Ok(Ok(Parser { kind }));
            }
        };
        let mut header = Vec::new();
        if fields.header {
            match read_rows(dialect, lines, &mut header)? {
                Line::Whole => {}
                Line::End => header.clear(),
                Line::TooLong => return Ok(Err("the header is too long".into())),
            }
        }
        let names = match delimited::fields(&header, dialect) {
            Ok(names) if fields.header => names,
            Ok(_) => Vec::new(),
            Err(error) => return Ok(Err(format!("header: {error}"))),
        };
        Ok((|| {
            Ok(Parser {
                kind: Kind::Delimited {
                    dialect,
                    key: column(&fields.key, &names)?,
                    value: fields
                        .value
                        .as_deref()
                        .map(|name| column(name, &names))
                        .transpose()?,
                },
            })
        })())
    }

    /// Reads the next record into `buffer`, which it clears first. `None` at
    /// the end; else the number of the record's first line, and whether it is
    /// within the limit.
    pub(crate) fn read<R: BufRead>(
        &self,
        lines: &mut Lines<R>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<(u64, Result<(), String>)>> {
        loop {
            buffer.clear();
            let first = lines.number() + 1;
            let line = match &self.kind {
                Kind::Delimited { dialect, .. } => read_rows(*dialect, lines, buffer)?,
                Kind::Json { .. } => lines.read(buffer)?,
                Kind::Stanzas { .. } => read_stanza(lines, buffer)?,
            };
            match line {
                Line::End => return Ok(None),
                Line::TooLong => {
                    let limit = lines.limit();
                    let reason = format!("record longer than {limit} bytes");
                    return Ok(Some((first, Err(reason))));
                }
                // Blank lines are no records in any of the formats.
                Line::Whole if stanza::is_separator(buffer) => {}
                Line::Whole => return Ok(Some((first, Ok(())))),
            }
        }
    }

    /// The key and the value of a record.
    pub(crate) fn parse<'a>(&self, record: &'a [u8]) -> Result<Pair<'a>, String> {
        let (key, value): Chosen<'_> = match &self.kind {
            Kind::Delimited {
                dialect,
                key,
                value,
            } => delimited_pair(record, *dialect, *key, *value)?,
            Kind::Json { key, value } => {
                let object = json::parse(record)?;
                let value = match value {
                    Some(member) => Some(Cow::Owned(member.bytes(&object)?)),
                    None => None,
                };
                (Cow::Owned(key.key(&object)?), value)
            }
            Kind::Stanzas { key, value } => {
                let find = |name: &str| {
                    let found = stanza::field(record, name);
                    found.ok_or_else(|| format!("no field {name:?}"))
                };
                let value = match value {
                    Some(name) => Some(Cow::Borrowed(find(name)?)),
                    None => None,
                };
                (Cow::Borrowed(find(key)?), value)
            }
        };
        if key.is_empty() {
            return Err("the key is empty".into());
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("the key is longer than {KEY_BYTES_MAX} bytes"));
        }
        Ok((key, value.unwrap_or(Cow::Borrowed(record))))
    }
}

fn delimited_pair(
    record: &[u8],
    dialect: Dialect,
    key: usize,
    value: Option<usize>,
) -> Result<Chosen<'_>, String> {
    let (mut key_field, mut value_field) = (None, None);
    let mut columns = 0;
    delimited::visit(record, dialect, |number, field| {
        columns = number + 1;
        if Some(number) == value {
            value_field = Some(field.clone());
        }
        if number == key {
            key_field = Some(field);
        }
        // The whole row is read: a malformed quote behind the wanted fields
        // makes a bad record too.
        ControlFlow::Continue(())
    })?;
    let missing = |column: usize| format!("no column {}: the row has {columns}", column + 1);
    let key_field = key_field.ok_or_else(|| missing(key))?;
    if let Some(column) = value
        && value_field.is_none()
    {
        return Err(missing(column));
    }
    Ok((key_field, value_field))
}

/// The number, from 0, of the column that `name` chooses.
fn column(name: &str, names: &[Cow<'_, [u8]>]) -> Result<usize, String> {
    if let Some(number) = names.iter().position(|n| **n == *name.as_bytes()) {
        return Ok(number);
    }
    match name.parse::<usize>() {
        Ok(number) if number >= 1 => Ok(number - 1),
        _ if names.is_empty() => Err(format!(
            "{name:?} is no column: without a header columns are chosen by number, from 1 on"
        )),
        _ => Err(format!(
            "no column {name:?}; the header has: {}",
            names
                .iter()
                .map(|n| crate::text::escape(n))
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}

/// Reads one row, over line breaks in quotes.
fn read_rows<R: BufRead>(
    dialect: Dialect,
    lines: &mut Lines<R>,
    buffer: &mut Vec<u8>,
) -> io::Result<Line> {
    let mut open = false;
    loop {
        let start = buffer.len();
        match lines.read(buffer)? {
            // The quote stays open to the end: `parse` says so.
            Line::End if start > 0 => return Ok(Line::Whole),
            Line::Whole => {}
            other => return Ok(other),
        }
        if dialect == Dialect::Tsv {
            return Ok(Line::Whole);
        }
        open = delimited::is_quote_open(open, &buffer[start..]);
        if buffer.len() > lines.limit() {
            // Whether a quote is really open is anyone's guess by now; the
            // next line starts afresh, so that a stray quote costs a bounded
            // stretch of the input.
            return Ok(Line::TooLong);
        }
        if !open {
            return Ok(Line::Whole);
        }
        buffer.push(b'\n');
    }
}

/// Reads lines up to a blank one or the end.
fn read_stanza<R: BufRead>(lines: &mut Lines<R>, buffer: &mut Vec<u8>) -> io::Result<Line> {
    let mut too_long = false;
    let mut any = false;
    loop {
        let start = buffer.len();
        match lines.read(buffer)? {
            Line::End if !any => return Ok(Line::End),
            Line::End => break,
            Line::TooLong => too_long = true,
            Line::Whole if stanza::is_separator(&buffer[start..]) => {
                buffer.truncate(start);
                break;
            }
            Line::Whole => {}
        }
        any = true;
        if too_long || buffer.len() > lines.limit() {
            too_long = true;
            buffer.clear();
        } else {
            buffer.push(b'\n');
        }
    }
    if too_long {
        return Ok(Line::TooLong);
    }
    if buffer.last() == Some(&b'\n') {
        buffer.pop();
    }
    Ok(Line::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Dice;

    type Loaded = Vec<(u64, Result<(String, String), String>)>;

    fn load(format: Format, fields: &Fields, input: &[u8], limit: usize) -> Result<Loaded, String> {
        let mut lines = Lines::resume(input, limit, 0, 0);
        let parser = Parser::new(format, fields, &mut lines).unwrap()?;
        let mut buffer = Vec::new();
        let mut loaded = Vec::new();
        while let Some((line, read)) = parser.read(&mut lines, &mut buffer).unwrap() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let pair = read.and_then(|()| {
                let (key, value) = parser.parse(&buffer)?;
                Ok((text(&key), text(&value)))
            });
            loaded.push((line, pair));
        }
        assert_eq!(lines.offset(), input.len() as u64, "all input is consumed");
        Ok(loaded)
    }

    fn fields(key: &str, value: Option<&str>, header: bool) -> Fields {
        Fields {
            key: key.into(),
            value: value.map(Into::into),
            header,
        }
    }

    fn good(line: u64, key: &str, value: &str) -> (u64, Result<(String, String), String>) {
        (line, Ok((key.into(), value.into())))
    }

    #[test]
    fn csv_chooses_columns_by_header_name_or_number() {
        let input = b"id,name\n1,\"a\nb\"\n\n2,c\r\n";
        assert_eq!(
            load(Format::Csv, &fields("id", Some("name"), true), input, 99).unwrap(),
            [good(2, "1", "a\nb"), good(5, "2", "c")]
        );
        assert_eq!(
            load(Format::Csv, &fields("2", None, true), input, 99).unwrap(),
            [good(2, "a\nb", "1,\"a\nb\""), good(5, "c", "2,c")]
        );
        assert!(load(Format::Csv, &fields("zz", None, true), input, 99).is_err());
        assert!(load(Format::Csv, &fields("id", None, false), input, 99).is_err());
        assert!(load(Format::Csv, &fields("0", None, false), input, 99).is_err());
    }

    #[test]
    fn bad_rows_carry_their_line_and_cost_only_themselves() {
        let input = b"1,a\nb\n,c\n\"x\"y,z\n2,d\n";
        let loaded = load(Format::Csv, &fields("1", Some("2"), false), input, 99).unwrap();
        let bad: Vec<u64> = loaded
            .iter()
            .filter(|(_, pair)| pair.is_err())
            .map(|(line, _)| *line)
            .collect();
        assert_eq!(bad, [2, 3, 4]);
        assert_eq!(loaded.len(), 5);
    }

    #[test]
    fn a_quote_never_closed_costs_a_bounded_stretch() {
        let mut input = b"1,\"a\n".to_vec();
        input.extend_from_slice(&b"7,xxxxxxx\n".repeat(20));
        let loaded = load(Format::Csv, &fields("1", None, false), &input, 50).unwrap();
        assert!(loaded[0].1.is_err());
        assert!(loaded.iter().filter(|(_, pair)| pair.is_ok()).count() > 10);
    }

    #[test]
    fn stanzas_are_keyed_by_a_field() {
        let input = b"\n\nPackage: a\nX: 1\n\n \nPackage: b\n more\n\nX: 2\n";
        let loaded = load(Format::Stanzas, &fields("Package", None, false), input, 99).unwrap();
        let starts: Vec<&str> = loaded
            .iter()
            .filter_map(|(_, pair)| pair.as_ref().ok().map(|(key, _)| key.as_str()))
            .collect();
        assert_eq!(starts, ["a", "b\n more"]);
        assert_eq!(
            loaded.last().unwrap(),
            &(10, Err("no field \"Package\"".into()))
        );
    }

    #[test]
    fn a_stanza_above_the_limit_is_one_bad_record() {
        let mut input = b"Package: a\n".to_vec();
        input.extend_from_slice(&b"X: yyyyyyyyy\n".repeat(100));
        input.extend_from_slice(b"\nPackage: b\n");
        let loaded = load(Format::Stanzas, &fields("Package", None, false), &input, 64).unwrap();
        assert_eq!(loaded.len(), 2);
        assert!(loaded[0].1.is_err());
        assert_eq!(loaded[1], good(103, "b", "Package: b"));
    }

    #[test]
    fn json_lines_keep_the_line_as_value() {
        let input = b"{\"k\":\"a\"}\n{\"k\":[]}\nnot\n{\"k\":1}";
        let loaded = load(Format::Jsonl, &fields("k", None, false), input, 99).unwrap();
        assert_eq!(loaded[0], good(1, "a", "{\"k\":\"a\"}"));
        assert!(loaded[1].1.is_err() && loaded[2].1.is_err());
        assert_eq!(loaded[3], good(4, "1", "{\"k\":1}"));
    }

    #[test]
    fn random_bytes_never_panic_in_any_format() {
        let seed = 14;
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        let alphabet = b"ak:,\"\t\n\r {}1\\\x00\xff";
        for _ in 0..5_000 {
            let input: Vec<u8> = (0..dice.below(80))
                .map(|_| alphabet[dice.below(alphabet.len() as u64) as usize])
                .collect();
            for format in [Format::Csv, Format::Tsv, Format::Jsonl, Format::Stanzas] {
                for header in [false, true] {
                    let _ = load(format, &fields("1", Some("2"), header), &input, 16);
                }
            }
        }
    }

    #[test]
    fn names_promise_formats() {
        for (name, format) in [
            ("a.csv.gz", Some(Format::Csv)),
            ("b.TSV", Some(Format::Tsv)),
            ("c.ndjson.zst", Some(Format::Jsonl)),
            (
                "deb.debian.org_binary-amd64_Packages",
                Some(Format::Stanzas),
            ),
            ("Packages.gz", Some(Format::Stanzas)),
            ("x.txt", None),
        ] {
            assert_eq!(Format::of_name(Path::new(name)), format, "{name}");
        }
    }
}
