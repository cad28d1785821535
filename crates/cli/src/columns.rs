//! Tables on a terminal: numbers to the right, text to the left.

use std::io::{self, Write};

use serde_json::Value;

/// Longest cell of a table made from JSON, in characters.
const CELL_CHARS_MAX: usize = 40;

/// Columns of fixed width, for rows that come one by one.
pub(crate) struct Columns {
    headers: Vec<String>,
    widths: Vec<usize>,
}

impl Columns {
    /// Columns as wide as their headers, and at least as given with each.
    pub(crate) fn new(columns: &[(&str, usize)]) -> Columns {
        Columns {
            headers: columns
                .iter()
                .map(|(header, _)| (*header).to_owned())
                .collect(),
            widths: columns
                .iter()
                .map(|(header, width)| header.chars().count().max(*width))
                .collect(),
        }
    }

    /// Prints the line of headers.
    pub(crate) fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        self.row(out, &self.headers)
    }

    /// Prints one row; its first cell stands to the left.
    pub(crate) fn row(&self, out: &mut dyn Write, cells: &[String]) -> io::Result<()> {
        write_row(out, &self.widths, cells, |column| column == 0)
    }
}

/// Prints rows that are all known: `left` says which columns are text.
pub(crate) fn table(
    out: &mut dyn Write,
    rows: &[Vec<String>],
    left: impl Fn(usize) -> bool,
) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; columns];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    rows.iter()
        .try_for_each(|row| write_row(out, &widths, row, &left))
}

/// Prints JSON objects as a table of the columns `names`, those left out that the
/// first object does not have.
pub(crate) fn objects(out: &mut dyn Write, objects: &[Value], names: &[&str]) -> io::Result<()> {
    let Some(first) = objects.first().and_then(Value::as_object) else {
        return Ok(());
    };
    let names: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| first.contains_key(*name))
        .collect();
    let mut rows = vec![
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>(),
    ];
    for object in objects {
        rows.push(names.iter().map(|name| cell(&object[*name])).collect());
    }
    let is_text: Vec<bool> = names.iter().map(|name| !first[*name].is_number()).collect();
    table(out, &rows, |column| is_text[column])
}

fn cell(value: &Value) -> String {
    let text = match value {
        Value::String(text) => crate::text::escape(text.as_bytes()),
        Value::Null => "-".into(),
        other => other.to_string(),
    };
    match text.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

fn write_row(
    out: &mut dyn Write,
    widths: &[usize],
    cells: &[String],
    left: impl Fn(usize) -> bool,
) -> io::Result<()> {
    let mut line = String::new();
    for (column, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        if column > 0 {
            line.push_str("  ");
        }
        if left(column) {
            line.push_str(&format!("{cell:<width$}"));
        } else {
            line.push_str(&format!("{cell:>width$}"));
        }
    }
    writeln!(out, "{}", line.trim_end())
}
