//! What `dump` does: prints any file of a store in words.
//!
//! It needs nothing but the file, trusts nothing in it, and shows damage where
//! it lies instead of stopping there. What a file is, its name says; failing
//! that, its first bytes.

use std::io::Write;
use std::path::Path;

use thermocline_model::edit::{Change, Edit};
use thermocline_model::key::Kind;
use thermocline_model::table::{Extent, TableMeta};

use crate::batch::Operations;
use crate::error::{Error, Result};
use crate::events::{self, EVENTS_FILE, OLD_EVENTS_FILE};
use crate::heat::{self, HEAT_FILE, HeatFile};
use crate::log::{self, Found};
use crate::store::{Environment, ObjectKind, ObjectName, TIER_FILE_NAME, TIER_MAGIC, TierIdentity};
use crate::table::salvage::{self, Piece};
use crate::version::manifest::{self, FrameKind, Header, Part};
use crate::version::pointer::{CURRENT, Pointer};

/// Bytes of a value that are printed.
const VALUE_BYTES_SHOWN: usize = 64;

/// What [`dump`] prints.
///
/// ```
/// # use thermocline::{Db, DumpOptions, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// Db::open(Options::at(directory.path()))?.put(b"planet", b"earth")?;
/// let segment = directory.path().join("000001.log");
/// let lines = |entries| {
///     let mut text = Vec::new();
///     thermocline::dump(&segment, &mut text, &DumpOptions { entries })?;
///     Ok::<_, thermocline::Error>(text.iter().filter(|&&byte| byte == b'\n').count())
/// };
/// assert!(lines(true)? > lines(false)?);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct DumpOptions {
    /// Every entry, not only what the file says of itself.
    pub entries: bool,
}

/// Prints the file at `path`, which may be a log segment, a table's meta or
/// data object, a manifest, the pointer to it, a tier's identity, a heat file, or a
/// record of events.
///
/// ```
/// use thermocline::{Db, DumpOptions, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// Db::open(Options::at(directory.path()))?.put(b"planet", b"earth")?;
/// let mut text = Vec::new();
/// let segment = directory.path().join("000001.log");
/// thermocline::dump(&segment, &mut text, &DumpOptions { entries: true })?;
/// assert!(String::from_utf8_lossy(&text).contains("put planet = earth"));
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] when the file is none of these;
/// [`crate::ErrorKind::Corruption`] when damage was found, after all has been
/// printed; [`crate::ErrorKind::Io`] from the file or from `out`.
pub fn dump(path: &Path, out: &mut dyn Write, options: &DumpOptions) -> Result<()> {
    dump_in(path, out, options, &Environment::real())
}

/// As [`dump`], in an environment of the caller's, such as a simulated one.
///
/// ```
/// # use thermocline::{Db, DumpOptions, Options, store::Environment};
/// # let directory = tempfile::tempdir().unwrap();
/// Db::open(Options::at(directory.path()))?.close()?;
/// let (pointer, mut text) = (directory.path().join("CURRENT"), Vec::new());
/// thermocline::dump_in(&pointer, &mut text, &DumpOptions::default(), &Environment::real())?;
/// assert!(String::from_utf8_lossy(&text).contains("MANIFEST-"));
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// As [`dump`].
pub fn dump_in(
    path: &Path,
    out: &mut dyn Write,
    options: &DumpOptions,
    environment: &Environment,
) -> Result<()> {
    let bytes = manifest::read_file(environment, path)?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
    let mut page = Page {
        out,
        path,
        entries: options.entries,
        damage: None,
    };
    page.file(&name.unwrap_or_default(), &bytes)?;
    page.damage.map_or(Ok(()), Err)
}

/// The output, and the first damage met.
struct Page<'a> {
    out: &'a mut dyn Write,
    path: &'a Path,
    entries: bool,
    damage: Option<Error>,
}

macro_rules! line {
    ($page:expr, $($words:tt)*) => {
        writeln!($page.out, $($words)*).map_err(|e| Error::io("writing the dump", Path::new("output"), e))
    };
}

impl Page<'_> {
    fn file(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let object = ObjectName::parse(name).map(|o| o.kind);
        if name == CURRENT {
            return self.current(bytes);
        }
        if name == TIER_FILE_NAME || bytes.starts_with(&TIER_MAGIC) {
            return self.tier(bytes);
        }
        if name == HEAT_FILE || bytes.starts_with(&heat::MAGIC) {
            return self.heat(bytes);
        }
        if [EVENTS_FILE, OLD_EVENTS_FILE].contains(&name) || bytes.starts_with(&events::MAGIC) {
            return self.events(bytes);
        }
        let number = manifest::number_of(name).or_else(|| manifest::claimed_number(bytes));
        if let Some(number) = number.filter(|_| object.is_none()) {
            return self.manifest(number, bytes);
        }
        if object == Some(ObjectKind::Meta) || salvage::is_meta(bytes) {
            return self.meta(bytes);
        }
        if object == Some(ObjectKind::Data) {
            return self.data(bytes);
        }
        let segment = log::parse_segment(name).or_else(|| log::claimed_segment(bytes));
        if let Some(segment) = segment {
            return self.log(segment, bytes);
        }
        if salvage::pieces(bytes)
            .iter()
            .any(|p| matches!(p, Piece::Block { .. }))
        {
            return self.data(bytes);
        }
        Err(Error::invalid("this is no file of a store").at(self.path))
    }

    fn damaged(&mut self, offset: u64, what: &str) -> Result<()> {
        let error = Error::corruption(what).at(self.path).offset(offset);
        self.damage.get_or_insert(error);
        line!(self, "{offset:>10}  DAMAGED: {what}")
    }

    fn current(&mut self, bytes: &[u8]) -> Result<()> {
        match Pointer::parse(bytes) {
            Some(Pointer { number, tier }) => {
                let name = manifest::file_name(number);
                match tier.0 {
                    0 => line!(self, "the manifest in force is {name}"),
                    _ => line!(self, "the manifest in force is {name}, on tier {tier}"),
                }
            }
            None => self.damaged(
                0,
                &format!("no manifest's name and checksum: {}", text(bytes)),
            ),
        }
    }

    fn tier(&mut self, bytes: &[u8]) -> Result<()> {
        match TierIdentity::decode(bytes, self.path) {
            Ok(tier) => {
                line!(self, "store       {:032x}", tier.store_id)?;
                line!(self, "tier        {} {:?}", tier.tier_id, tier.tier_name)?;
                line!(self, "generation  {}", tier.generation)
            }
            Err(error) => self.damaged(error.offset_at().unwrap_or(0), &error.words()),
        }
    }

    fn events(&mut self, bytes: &[u8]) -> Result<()> {
        let (events, damaged) = events::read(bytes);
        for event in events {
            line!(
                self,
                "{:>10}  at {} us {event}",
                event.number,
                event.started_us
            )?;
        }
        if damaged > 0 {
            self.damaged(0, &format!("{damaged} stretches that are no events"))?;
        }
        Ok(())
    }

    fn heat(&mut self, bytes: &[u8]) -> Result<()> {
        match HeatFile::decode(bytes, self.path) {
            Ok(file) => {
                line!(self, "store   {:032x}", file.store_id)?;
                line!(self, "tables  {}", file.temperatures.len())?;
                for (table, temperature) in &file.temperatures {
                    line!(self, "{table}  {temperature} reads/s/MiB")?;
                }
                Ok(())
            }
            Err(error) => self.damaged(error.offset_at().unwrap_or(0), &error.words()),
        }
    }

    fn manifest(&mut self, number: u64, bytes: &[u8]) -> Result<()> {
        line!(self, "manifest {number}, {} bytes", bytes.len())?;
        for part in manifest::parts(bytes, number) {
            let (offset, kind, payload) = match part {
                Part::Frame {
                    offset,
                    kind,
                    payload,
                } => (offset, kind, payload),
                Part::Damaged { offset, length } => {
                    self.damaged(offset, &format!("{length} bytes that are no frame"))?;
                    continue;
                }
            };
            match kind {
                FrameKind::Mark => line!(self, "{offset:>10}  mark: all before is durable")?,
                FrameKind::Settled => {
                    line!(self, "{offset:>10}  settled: every tier has the generation")?
                }
                FrameKind::Header => match Header::decode(payload) {
                    Ok(header) => {
                        let (store, generation) = (header.store_id, header.generation);
                        line!(
                            self,
                            "{offset:>10}  header: store {store:032x}, generation {generation}"
                        )?;
                        for (id, name) in header.tiers {
                            line!(self, "            tier {id} {name:?}")?;
                        }
                    }
                    Err(what) => self.damaged(offset, &what)?,
                },
                FrameKind::Edit => match Edit::decode(payload) {
                    Ok(edit) => {
                        line!(self, "{offset:>10}  edit of {} changes", edit.changes.len())?;
                        for change in &edit.changes {
                            line!(self, "            {}", words(change))?;
                        }
                    }
                    Err(what) => self.damaged(offset, &what)?,
                },
            }
        }
        Ok(())
    }

    fn log(&mut self, segment: u64, bytes: &[u8]) -> Result<()> {
        let path = self.path;
        let scanned = log::scan_bytes(bytes, path, segment, None, &mut |found| self.found(found));
        if let Err(error) = scanned {
            if error.kind() == crate::ErrorKind::Io || error.kind() == crate::ErrorKind::NoSpace {
                return Err(error);
            }
            self.damaged(error.offset_at().unwrap_or(0), &error.words())?;
        }
        Ok(())
    }

    fn found(&mut self, found: Found<'_>) -> Result<()> {
        match found {
            Found::Header(h) => {
                line!(self, "segment {} of store {:032x}", h.segment, h.store_id)?;
                line!(
                    self,
                    "first entry {}, durable up to {}, after segment {} which ended with entry {}",
                    h.first_seq,
                    h.durable_seq,
                    h.previous_segment,
                    h.previous_last_seq
                )
            }
            Found::Frame {
                offset,
                count: 0,
                durable_seq,
                payload,
                ..
            } => {
                let note = match manifest::noted(payload) {
                    Some((number, end)) => format!(", edits of manifest {number} up to {end}"),
                    None => String::new(),
                };
                line!(
                    self,
                    "{offset:>10}  seal: closed, all durable up to {durable_seq}{note}"
                )
            }
            Found::Frame {
                offset,
                first_seq,
                count,
                durable_seq,
                payload,
            } => {
                let bytes = payload.len();
                line!(
                    self,
                    "{offset:>10}  frame of {count} entries from {first_seq}, {bytes} bytes, durable up to {durable_seq}"
                )?;
                if !self.entries {
                    return Ok(());
                }
                for (operation, index) in Operations::new(payload).zip(0u64..) {
                    let Ok(operation) = operation else {
                        return self.damaged(offset, &format!("operation {index} makes no sense"));
                    };
                    let seq = first_seq.0 + index;
                    let seq = match operation.restated {
                        Some(restated) => format!("{seq} ({restated} anew)"),
                        None => seq.to_string(),
                    };
                    let keyspace = operation.keyspace;
                    let key = operation.key.escape_ascii();
                    match operation.kind {
                        Kind::Put => line!(
                            self,
                            "            {seq} keyspace {keyspace}: put {key} = {}",
                            value(operation.value)
                        )?,
                        Kind::Delete => {
                            line!(self, "            {seq} keyspace {keyspace}: delete {key}")?
                        }
                        Kind::RangeDelete => line!(
                            self,
                            "            {seq} keyspace {keyspace}: delete from {key} up to {}",
                            operation.value.escape_ascii()
                        )?,
                    }
                }
                Ok(())
            }
            Found::Damaged {
                offset,
                length,
                what,
                ..
            } => self.damaged(offset, &format!("{what}, {length} bytes")),
            Found::Zeros { offset, length } => {
                line!(
                    self,
                    "{offset:>10}  {length} zeros: room reserved, or never written"
                )
            }
        }
    }

    fn meta(&mut self, bytes: &[u8]) -> Result<()> {
        let meta = match salvage::meta(bytes) {
            Ok(meta) => meta,
            Err(what) => return self.damaged(0, &what),
        };
        line!(self, "table {}, range {}", meta.id, meta.range)?;
        line!(
            self,
            "{} entries ({} deletes), {} range deletes, numbers {} to {}, {} bytes of keys and values",
            meta.entries,
            meta.deletes,
            meta.range_deletes.len(),
            meta.seq_min,
            meta.seq_max,
            meta.raw_bytes
        )?;
        line!(
            self,
            "blocks of {} bytes, {:?}, {} filter bits a key, a restart every {} entries",
            meta.block_bytes,
            meta.compression,
            meta.filter_bits_per_key,
            meta.interval
        )?;
        for (length, index) in meta.extents.iter().zip(0..) {
            line!(self, "data extent {index}: {length} bytes")?;
        }
        for (entry, block) in meta.blocks.entries.iter().zip(0..) {
            let continues = match entry.continues() {
                true => format!(" at {}, which the block before has too", entry.first_seq),
                false => String::new(),
            };
            line!(
                self,
                "block {block}: extent {} at {}, {} bytes, checksum {:08x}, from {}{continues}",
                entry.extent,
                entry.offset,
                entry.stored_bytes,
                entry.checksum,
                meta.blocks.separator(block).escape_ascii()
            )?;
        }
        for one in &meta.range_deletes {
            let (start, end) = (one.start.escape_ascii(), one.end.escape_ascii());
            line!(self, "range delete {}: from {start} up to {end}", one.seq)?;
        }
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<()> {
        for piece in salvage::pieces(bytes) {
            let (offset, stored, trailer) = match piece {
                Piece::Block {
                    offset,
                    stored,
                    trailer,
                } => (offset, stored, trailer),
                Piece::Damaged { offset, length } => {
                    self.damaged(offset as u64, &format!("{length} bytes that are no block"))?;
                    continue;
                }
            };
            let entries = match salvage::entries(stored) {
                Ok(entries) => entries,
                Err(what) => {
                    self.damaged(offset as u64, &what)?;
                    continue;
                }
            };
            line!(
                self,
                "{offset:>10}  block of {} entries ({} deletes), {} bytes ({} unpacked, {:?}), {} to {}",
                trailer.entries,
                trailer.deletes,
                stored.len(),
                trailer.payload_bytes,
                trailer.compression,
                entries.first().map_or(String::new(), |e| text(&e.0)),
                entries.last().map_or(String::new(), |e| text(&e.0))
            )?;
            if self.entries {
                for (key, seq, is_put, bytes) in &entries {
                    let key = key.escape_ascii();
                    match is_put {
                        true => line!(self, "            {seq}: put {key} = {}", value(bytes))?,
                        false => line!(self, "            {seq}: delete {key}")?,
                    }
                }
            }
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The beginning of a value, and how long it is if that is not all.
fn value(bytes: &[u8]) -> String {
    match bytes.get(..VALUE_BYTES_SHOWN) {
        Some(start) if bytes.len() > VALUE_BYTES_SHOWN => {
            format!("{}... ({} bytes)", start.escape_ascii(), bytes.len())
        }
        _ => text(bytes),
    }
}

fn extent(extent: &Extent) -> String {
    let end = extent.offset.saturating_add(extent.length);
    format!(
        "object {} on tier {} [{}, {end})",
        extent.object, extent.tier, extent.offset
    )
}

fn table_words(table: &TableMeta) -> String {
    let data: Vec<String> = table.data.iter().map(extent).collect();
    format!(
        "table {} {}, {} entries, numbers {} to {}, meta in {}, data in {}",
        table.id,
        table.range,
        table.entries,
        table.seq_min,
        table.seq_max,
        extent(&table.meta),
        data.join(" and ")
    )
}

fn words(change: &Change) -> String {
    match change {
        Change::AddKeyspace {
            keyspace,
            name,
            cuts,
        } => {
            format!("add keyspace {keyspace} {name:?} of {} parts", cuts.parts())
        }
        Change::SetCuts { keyspace, cuts } => {
            format!("cut keyspace {keyspace} into {} parts", cuts.parts())
        }
        Change::DropKeyspace { keyspace } => format!("drop keyspace {keyspace}"),
        Change::AddTable {
            keyspace,
            slot,
            run,
            table,
            ..
        } => {
            format!(
                "add to keyspace {keyspace} {slot} run {}: {}",
                run.0,
                table_words(table)
            )
        }
        Change::RemoveTable { keyspace, table } => {
            format!("remove from keyspace {keyspace}: table {table}")
        }
        Change::ReplaceTable { keyspace, table } => {
            format!("replace in keyspace {keyspace}: {}", table_words(table))
        }
        Change::SetFlushed {
            keyspace,
            part,
            flushed,
        } => {
            format!("keyspace {keyspace} part {part} is in tables up to entry {flushed}")
        }
        Change::SetAhead {
            keyspace,
            part,
            ahead,
        } => {
            let end = ahead
                .end
                .as_deref()
                .map_or_else(String::new, |end| format!(" to {}", end.escape_ascii()));
            format!(
                "keyspace {keyspace} part {part} is in tables up to entry {} from {}{end}",
                ahead.flushed,
                ahead.start.escape_ascii()
            )
        }
        Change::SetTiny {
            keyspace,
            part,
            duplicates,
            tiny,
        } => format!(
            "keyspace {keyspace} part {part} has {} tiny ranges with {} writes, and {duplicates} \
             duplicates",
            tiny.len(),
            tiny.iter()
                .fold(0u64, |sum, t| sum.saturating_add(t.writes))
        ),
        Change::SetLogBase { seq } => format!("what the log holds from there on comes after {seq}"),
        Change::SetLogReach { seq } => format!("the log must reach {seq}"),
        Change::SetLogFloor { segment } => format!("log segments are needed from {segment}"),
        Change::SetCounters {
            next_id,
            next_keyspace,
            last_seq,
        } => format!("next number {next_id}, next keyspace {next_keyspace}, last entry {last_seq}"),
    }
}
