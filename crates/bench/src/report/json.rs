//! JSON lines: one run of one row each, with the settings it was run with.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::Record;
use crate::engine::Result;
use crate::workload::Settings;

/// A file that results are appended to as they come.
pub(crate) struct JsonLines {
    file: File,
    /// How many records are written already.
    written: usize,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    record: &'a Record,
    per_second: f64,
    settings: &'a Settings,
}

impl JsonLines {
    /// Opens `path` to append to it.
    pub(crate) fn open(path: &Path) -> Result<JsonLines> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(JsonLines { file, written: 0 })
    }

    /// Appends those of `records` that are new since the last call.
    pub(crate) fn write(&mut self, records: &[Record], settings: &Settings) -> Result<()> {
        for record in &records[self.written..] {
            let line = Line {
                record,
                per_second: record.outcome.per_second(),
                settings,
            };
            let mut text = serde_json::to_vec(&line)?;
            text.push(b'\n');
            self.file.write_all(&text)?;
        }
        self.written = records.len();
        Ok(())
    }
}
