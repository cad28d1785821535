//! Fields of CSV and TSV lines.
//!
//! CSV follows RFC 4180: a field may stand in quotes, in which a quote is
//! doubled and delimiters and line breaks are plain content. TSV knows no
//! quotes: a tab always ends a field, as in the IANA registration.

use std::borrow::Cow;
use std::ops::ControlFlow;

/// The kind of delimited text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// Comma-separated, with quotes.
    Csv,
    /// Tab-separated, without quotes.
    Tsv,
}

/// Whether `line` leaves a quoted field open, so that the next line belongs
/// to the same record. `open` is the state before the line.
pub(crate) fn is_quote_open(open: bool, line: &[u8]) -> bool {
    // Every quote toggles, a doubled one twice. A quote inside an unquoted
    // field toggles as well; `visit` then calls the record malformed.
    open ^ (line.iter().filter(|&&b| b == b'"').count() % 2 == 1)
}

/// The fields of a record, in order.
pub(crate) fn fields(record: &[u8], dialect: Dialect) -> Result<Vec<Cow<'_, [u8]>>, String> {
    let mut found = Vec::new();
    visit(record, dialect, |_, field| {
        found.push(field);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Calls `visitor` with the number (from 0) and content of each field until it
/// breaks.
pub(crate) fn visit<'a>(
    record: &'a [u8],
    dialect: Dialect,
    mut visitor: impl FnMut(usize, Cow<'a, [u8]>) -> ControlFlow<()>,
) -> Result<(), String> {
    let delimiter = match dialect {
        Dialect::Csv => b',',
        Dialect::Tsv => b'\t',
    };
    let mut rest = record;
    for number in 0.. {
        let (field, after) = if dialect == Dialect::Csv && rest.first() == Some(&b'"') {
            quoted(&rest[1..]).ok_or_else(|| format!("field {}: quote never closed", number + 1))?
        } else {
            let end = rest
                .iter()
                .position(|&b| b == delimiter)
                .unwrap_or(rest.len());
            let field = &rest[..end];
            if dialect == Dialect::Csv && field.contains(&b'"') {
                return Err(format!("field {}: quote inside a field", number + 1));
            }
            (Cow::Borrowed(field), &rest[end..])
        };
        if visitor(number, field).is_break() {
            return Ok(());
        }
        match after.split_first() {
            None => return Ok(()),
            Some((&byte, next)) if byte == delimiter => rest = next,
            Some(_) => return Err(format!("field {}: text behind its quote", number + 1)),
        }
    }
    Ok(())
}

/// The content of a quoted field, whose first quote is behind us, and what
/// follows its closing quote.
fn quoted(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let mut owned: Option<Vec<u8>> = None;
    let mut rest = text;
    loop {
        let quote = rest.iter().position(|&b| b == b'"')?;
        let (before, after) = (&rest[..quote], &rest[quote + 1..]);
        if after.first() == Some(&b'"') {
            let content = owned.get_or_insert_default();
            content.extend_from_slice(before);
            content.push(b'"');
            rest = &after[1..];
        } else {
            let content = match owned {
                None => Cow::Borrowed(before),
                Some(mut content) => {
                    content.extend_from_slice(before);
                    Cow::Owned(content)
                }
            };
            return Some((content, after));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Dice;

    fn split(record: &str) -> Result<Vec<String>, String> {
        Ok(fields(record.as_bytes(), Dialect::Csv)?
            .iter()
            .map(|f| String::from_utf8_lossy(f).into_owned())
            .collect())
    }

    #[test]
    fn quotes_enclose_delimiters_breaks_and_quotes() {
        assert_eq!(split("a,b,").unwrap(), ["a", "b", ""]);
        assert_eq!(split("").unwrap(), [""]);
        assert_eq!(split("\"a,\"\"b\"\"\n\",\"\"").unwrap(), ["a,\"b\"\n", ""]);
        for bad in ["\"a", "a\"b", "\"a\"b,c", "\"\"\""] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tabs_split_and_quotes_are_content() {
        let found = fields(b"\"a\tb\"\t", Dialect::Tsv).unwrap();
        assert_eq!(found, [&b"\"a"[..], b"b\"", b""]);
    }

    #[test]
    fn well_formed_records_split_as_the_csv_crate_splits_them() {
        let seed = 11;
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        for _ in 0..5_000 {
            let written: Vec<Vec<u8>> = (0..1 + dice.below(5))
                .map(|_| {
                    (0..dice.below(6))
                        .map(|_| b"ab,\"\n\xff"[dice.below(6) as usize])
                        .collect()
                })
                .collect();
            let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
            writer.write_record(&written).unwrap();
            let mut record = writer.into_inner().unwrap();
            assert_eq!(record.pop(), Some(b'\n'));
            assert!(!is_quote_open(false, &record));
            assert_eq!(fields(&record, Dialect::Csv).unwrap(), written);
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let seed = 12;
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        for _ in 0..20_000 {
            let record: Vec<u8> = (0..dice.below(20))
                .map(|_| b"a,\"\t\n\r\x00\xff"[dice.below(8) as usize])
                .collect();
            let _ = fields(&record, Dialect::Csv);
            let _ = fields(&record, Dialect::Tsv);
        }
    }
}
