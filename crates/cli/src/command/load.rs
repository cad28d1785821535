//! `thermocline load`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;

use super::Out;
use crate::chunk::Chunk;
use crate::engine::{Db, Keyspace};
use crate::exit::{Exit, Failure};
use crate::human;
use crate::input::lines::Lines;
use crate::input::record::{Fields, Format, Parser};
use crate::input::source::{Input, Source};
use crate::position::{self, Bookmark, Position};
use crate::progress::{self, note};
use crate::store::{Access, KeyspaceArgs, StoreArgs};

/// Bad records that are reported one by one; the others are only counted.
const BAD_RECORDS_SHOWN: u64 = 20;

/// Records between two looks at the progress bar.
const RECORDS_PER_TICK: u64 = 4096;

/// Load records from CSV, TSV, JSON lines or stanzas
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline load --db /srv/db users.csv --key id
  thermocline load --db /srv/db pairs.tsv --no-header --key 1 --value 2
  thermocline load --db /srv/db events.jsonl.zst --key /meta/id
  thermocline load --db /srv/db /var/lib/apt/lists/*_Packages --format deb
  xz -dc dump.csv.xz | thermocline load --db /srv/db - --format csv --key id

The value of a record is the record as it stands in the input, unless --value
names a field. Records are sorted in memory, --sort-memory at a time, and each
such chunk becomes a sorted run without passing log and memtables. Of records
with the same key the last one wins, within a chunk and over chunks.

What is guaranteed:
  - A chunk is there as a whole or not at all, and chunks become durable in the
    order of the input.
  - After a kill or a crash the same command goes on behind the last durable
    chunk. It keeps its place in the store, in the keyspace _load, under path
    and size of the file; a changed file, or other settings, start over. A chunk
    whose place was not yet noted is loaded again, which changes nothing unless
    somebody else wrote to its keys in between. Standard input always starts
    over.
  - A bad record is reported with the number of its line, counted and skipped;
    --strict stops at the first, with exit code 1, and keeps the chunks before.")]
pub(crate) struct Load {
    /// The files, loaded one after another; `-` is standard input. Gzip and
    /// Zstandard are recognised
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// Format of the input; else its name decides
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Field that becomes the key: a column's name or number, a JSON member or
    /// /pointer, a stanza's field [default: column 1, or Package]
    #[arg(long, value_name = "FIELD")]
    key: Option<String>,
    /// Field that becomes the value [default: the whole record]
    #[arg(long, value_name = "FIELD")]
    value: Option<String>,
    /// The first row of CSV or TSV is a record, not the columns' names
    #[arg(long)]
    no_header: bool,
    /// Stop at the first bad record
    #[arg(long)]
    strict: bool,
    /// Memory for sorting, and with it the size of a run
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = human::parse_bytes)]
    sort_memory: u64,
    /// Longest record; longer ones are bad records
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = human::parse_bytes)]
    record_bytes_max: u64,
    /// Start over, whatever an earlier run has loaded
    #[arg(long)]
    restart: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// What was done, over all files.
#[derive(Default)]
struct Totals {
    records: u64,
    replaced: u64,
    bad: u64,
    bytes: u64,
    chunks: u64,
    resumed_at_line: Option<u64>,
}

impl Load {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        if self.keyspace.name() == position::KEYSPACE {
            return Err(Failure::usage("the keyspace _load is the loader's own"));
        }
        if self.record_bytes_max > u64::from(u32::MAX) / 2 {
            return Err(Failure::usage("--record-bytes-max is at most 2GiB"));
        }
        let inputs: Vec<Input> = self.files.iter().map(|file| Input::of(file)).collect();
        for (input, file) in inputs.iter().zip(&self.files) {
            // A wrong call leaves no new store behind.
            self.fields(self.format_of(input, file)?)?;
            input.must_exist()?;
        }
        let db = self.store.open(Access::Create)?;
        let space = self.keyspace.existing_or_new(&db)?;
        let began = Instant::now();
        let mut totals = Totals::default();
        for (input, file) in inputs.iter().zip(&self.files) {
            let format = self.format_of(input, file)?;
            self.load_one(&db, &space, input, format, &mut totals)?;
        }
        drop(space);
        db.close()?;
        self.print(out, &totals, began)?;
        Ok(Exit::Done)
    }

    fn format_of(&self, input: &Input, file: &std::path::Path) -> Result<Format, Failure> {
        self.format
            .or_else(|| Format::of_name(file))
            .ok_or_else(|| {
                Failure::usage(format!(
                    "{}: its name does not tell the format; give --format",
                    input.name()
                ))
            })
    }

    fn fields(&self, format: Format) -> Result<Fields, Failure> {
        let key = match (&self.key, format) {
            (Some(key), _) => key.clone(),
            (None, Format::Csv | Format::Tsv) => "1".into(),
            (None, Format::Stanzas) => "Package".into(),
            (None, Format::Jsonl) => {
                return Err(Failure::usage("JSON lines need --key MEMBER"));
            }
        };
        Ok(Fields {
            key,
            value: self.value.clone(),
            header: !self.no_header,
        })
    }

    fn load_one(
        &self,
        db: &Db,
        space: &Keyspace,
        input: &Input,
        format: Format,
        totals: &mut Totals,
    ) -> Result<(), Failure> {
        let fields = self.fields(format)?;
        let settings = format!("{} {format:?} {fields:?}", self.keyspace.name());
        let bookmark = Bookmark::new(db, input, &settings)?;
        if self.restart
            && let Some(bookmark) = &bookmark
        {
            bookmark.clear(db)?;
        }
        let start = match &bookmark {
            Some(bookmark) => bookmark.position()?,
            None => None,
        };
        let taken = Arc::new(AtomicU64::new(0));
        let bar = progress::of_bytes("loading", input.size_bytes());
        if *input == Input::Standard && std::io::stdin().is_terminal() {
            note(&bar, "reading standard input; Ctrl-D ends it");
        }
        let limit = self.record_bytes_max as usize;
        let mut lines = Lines::resume(input.open(0, &taken)?, limit, 0, 0);
        let parser = Parser::new(format, &fields, &mut lines)
            .map_err(|e| input.failure("reading", e))?
            .map_err(|e| Failure::usage(format!("{}: {e}", input.name())))?;
        if let Some(start) = &start {
            note(
                &bar,
                &format!(
                    "{}: going on behind line {}; --restart starts over",
                    input.name(),
                    human::count(start.lines)
                ),
            );
            totals.resumed_at_line = Some(start.lines + 1);
            taken.store(0, Ordering::Relaxed);
            lines = Lines::resume(
                input.open(start.bytes, &taken)?,
                limit,
                start.bytes,
                start.lines,
            );
        }
        let mut run = Run {
            load: self,
            db,
            space,
            input,
            bookmark: bookmark.as_ref(),
            bar: &bar,
            taken: &taken,
            chunk: Chunk::new(usize::try_from(self.sort_memory).unwrap_or(usize::MAX)),
            // Counted from the beginning of the file, for the bookmark.
            position: start.unwrap_or_default(),
            totals,
        };
        run.all(&parser, &mut lines)?;
        if let Some(bookmark) = &bookmark {
            bookmark.clear(db)?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn print(&self, out: Out<'_>, totals: &Totals, began: Instant) -> Result<(), Failure> {
        let took = began.elapsed();
        if self.json {
            let object = json!({
                "records": totals.records,
                "replaced": totals.replaced,
                "bad_records": totals.bad,
                "bytes": totals.bytes,
                "chunks": totals.chunks,
                "resumed_at_line": totals.resumed_at_line,
                "seconds": took.as_secs_f64(),
            });
            writeln!(out, "{object}")?;
            return Ok(());
        }
        writeln!(
            out,
            "{} records ({}) in {}, {} a second, in {} sorted runs",
            human::count(totals.records),
            human::bytes(totals.bytes),
            human::duration(took),
            human::count(human::rate(totals.records, took) as u64),
            human::count(totals.chunks),
        )?;
        if totals.replaced > 0 {
            writeln!(
                out,
                "{} of them gave way to a later record of the same key in the same run",
                human::count(totals.replaced)
            )?;
        }
        if totals.bad > 0 {
            writeln!(out, "{} bad records were skipped", human::count(totals.bad))?;
        }
        Ok(())
    }
}

/// The load of one input.
struct Run<'a> {
    load: &'a Load,
    db: &'a Db,
    space: &'a Keyspace,
    input: &'a Input,
    bookmark: Option<&'a Bookmark>,
    bar: &'a ProgressBar,
    taken: &'a AtomicU64,
    chunk: Chunk,
    position: Position,
    totals: &'a mut Totals,
}

impl Run<'_> {
    fn all(&mut self, parser: &Parser, lines: &mut Lines<Source>) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        let mut seen = 0u64;
        loop {
            let read = parser
                .read(lines, &mut buffer)
                .map_err(|e| self.input.failure("reading", e))?;
            let Some((line, whole)) = read else { break };
            match whole.and_then(|()| parser.parse(&buffer)) {
                Ok((key, value)) => {
                    self.chunk.push(&key, &value);
                    self.position.records += 1;
                    self.totals.records += 1;
                    self.totals.bytes += (key.len() + value.len()) as u64;
                }
                Err(reason) => self.bad(line, &reason)?,
            }
            if self.chunk.is_full() {
                self.finish_chunk(lines)?;
            }
            seen += 1;
            if seen.is_multiple_of(RECORDS_PER_TICK) {
                self.bar.set_position(self.taken.load(Ordering::Relaxed));
            }
        }
        if !self.chunk.is_empty() {
            self.finish_chunk(lines)?;
        }
        Ok(())
    }

    fn bad(&mut self, line: u64, reason: &str) -> Result<(), Failure> {
        self.position.bad += 1;
        self.totals.bad += 1;
        let message = format!("{}:{line}: {reason}", self.input.name());
        if self.load.strict {
            return Err(Failure::new(Exit::No, message));
        }
        if self.totals.bad <= BAD_RECORDS_SHOWN {
            note(self.bar, &message);
        } else if self.totals.bad == BAD_RECORDS_SHOWN + 1 {
            note(self.bar, "more bad records follow; they are only counted");
        }
        Ok(())
    }

    fn finish_chunk(&mut self, lines: &Lines<Source>) -> Result<(), Failure> {
        let loaded = self.chunk.load(self.space)?;
        self.totals.replaced += loaded.replaced;
        self.totals.chunks += 1;
        self.position.bytes = lines.offset();
        self.position.lines = lines.number();
        if let Some(bookmark) = self.bookmark {
            bookmark.record(self.db, &self.position)?;
        }
        self.bar.set_position(self.taken.load(Ordering::Relaxed));
        Ok(())
    }
}
