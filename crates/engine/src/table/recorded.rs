//! The meta extent of a table, held against what the manifest records of it.

use std::path::Path;

use thermocline_model::{Extent, SeqNo, TableId, TableMeta};

use super::meta::{Meta, MetaError};
use super::read::LOADED_SEQ;
use crate::error::{Error, ErrorKind, Result};
use crate::store::ObjectReader;

pub(super) fn corrupt(id: TableId, what: &str, path: &Path) -> Error {
    Error::corruption(format!("table {id}: {what}")).at(path)
}

/// Requires that the object holds the whole extent, before memory is taken for
/// it.
pub(super) fn check_place(reader: &dyn ObjectReader, extent: &Extent) -> Result<()> {
    let end = extent.offset.checked_add(extent.length);
    if end.is_none_or(|end| end > reader.size_bytes()) {
        return Err(Error::corruption(format!(
            "object {} is too short for an extent",
            extent.object
        ))
        .at(reader.path())
        .expected(
            format_args!("{} bytes from {}", extent.length, extent.offset),
            format_args!("an object of {}", reader.size_bytes()),
        ));
    }
    Ok(())
}

fn read_extent(reader: &dyn ObjectReader, extent: &Extent) -> Result<Vec<u8>> {
    check_place(reader, extent)?;
    let length = usize::try_from(extent.length);
    let mut bytes =
        vec![0; length.map_err(|_| Error::invalid("extent exceeds the address space"))?];
    reader.read_at(extent.offset, &mut bytes)?;
    Ok(bytes)
}

/// The meta extent, which must be the one that the manifest recorded.
pub(super) fn read_meta(record: &TableMeta, reader: &dyn ObjectReader) -> Result<Meta> {
    let bytes = read_extent(reader, &record.meta)?;
    let path = reader.path();
    let wrong = |what: String| corrupt(record.id, &what, path).offset(record.meta.offset);
    let found = crc32c::crc32c(&bytes);
    if found != record.meta.checksum {
        return Err(
            wrong("meta extent is not the one recorded".to_string()).expected(
                format_args!("checksum {:08x}", record.meta.checksum),
                format_args!("{found:08x}"),
            ),
        );
    }
    let meta = Meta::decode(&bytes, record.id).map_err(|error| match error {
        MetaError::Wrong(what) => wrong(what),
        MetaError::Version(version) => {
            let what = format!("table {}: meta has format version {version}", record.id);
            Error::new(ErrorKind::Unsupported, what).at(path)
        }
    })?;
    compare(record, &meta).map_err(wrong)?;
    Ok(meta)
}

/// The number of every entry, if the table was bulk loaded: it was written
/// before its number was known, with [`LOADED_SEQ`] in every entry, and the
/// manifest says which number holds.
pub(super) fn loaded_seq(record: &TableMeta, meta: &Meta) -> Option<SeqNo> {
    let loaded = meta.seq_min == LOADED_SEQ
        && meta.seq_max == LOADED_SEQ
        && meta.range_deletes.is_empty()
        && record.seq_min == record.seq_max;
    loaded
        .then_some(record.seq_min)
        .filter(|&seq| seq != LOADED_SEQ)
}

fn compare(record: &TableMeta, meta: &Meta) -> Result<(), String> {
    fn same<T: PartialEq + std::fmt::Display>(
        what: &str,
        recorded: T,
        found: T,
    ) -> Result<(), String> {
        if recorded == found {
            return Ok(());
        }
        Err(format!("meta has {what} {found}, recorded was {recorded}"))
    }
    same("entries", record.entries, meta.entries)?;
    same("deletes", record.deletes, meta.deletes)?;
    same(
        "range deletes",
        record.range_deletes,
        meta.range_deletes.len() as u64,
    )?;
    same("raw bytes", record.raw_bytes, meta.raw_bytes)?;
    if loaded_seq(record, meta).is_none() {
        same("lowest number", record.seq_min, meta.seq_min)?;
        same("highest number", record.seq_max, meta.seq_max)?;
    }
    same("data extents", record.data.len(), meta.extents.len())?;
    for (extent, &length) in record.data.iter().zip(&meta.extents) {
        same("data extent length", extent.length, length)?;
    }
    if record.range != meta.range {
        return Err(format!(
            "meta has range {}, recorded was {}",
            meta.range, record.range
        ));
    }
    Ok(())
}
