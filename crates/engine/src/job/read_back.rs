//! What was written is read back from its device, before what it replaces is let go.

use thermocline_model::table::{Extent, TableMeta};

use crate::error::{Error, Result};
use crate::store::{Advice, Buffer, ObjectKind, ObjectName, ObjectReader, Store};

/// Bytes read at a time.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// Reads `extent`, of an object of that kind, back from the device of `store`, past the system's
/// cache, and compares it with its checksum. Requires: it is persisted.
///
/// # Errors
/// [`ErrorKind::Corruption`](crate::ErrorKind::Corruption) with the place, and those of reading.
pub(super) fn read_back(store: &dyn Store, kind: ObjectKind, extent: &Extent) -> Result<()> {
    let id = extent.object.0;
    let written = store.open(ObjectName { id, kind })?;
    written.advise(extent.offset, extent.length, Advice::DontNeed);
    written.advise(extent.offset, extent.length, Advice::Sequential);
    pieces(&*written, kind, extent, |_| Ok(()))
}

/// The extents of a table, and of what kind their objects are.
pub(super) fn extents(table: &TableMeta) -> impl Iterator<Item = (ObjectKind, &Extent)> {
    let data = table.data.iter().map(|extent| (ObjectKind::Data, extent));
    data.chain([(ObjectKind::Meta, &table.meta)])
}

/// Hands over the bytes of `extent` from front to back, in pieces, and compares
/// them with its checksum.
pub(super) fn pieces(
    object: &dyn ObjectReader,
    kind: ObjectKind,
    extent: &Extent,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut buffer = Buffer::default();
    buffer.resize(PIECE_BYTES.min(extent.length as usize));
    let mut checksum = 0;
    let mut done = 0;
    while done < extent.length {
        let n = buffer.len().min((extent.length - done) as usize);
        object.read_at(extent.offset + done, &mut buffer[..n])?;
        checksum = crc32c::crc32c_append(checksum, &buffer[..n]);
        take(&buffer[..n])?;
        done += n as u64;
    }
    if checksum != extent.checksum {
        let what = match kind {
            ObjectKind::Data => "data extent",
            ObjectKind::Meta => "meta extent",
        };
        return Err(Error::corruption(what)
            .at(object.path())
            .offset(extent.offset)
            .expected(
                format!("checksum {:08x}", extent.checksum),
                format!("{checksum:08x}"),
            ));
    }
    Ok(())
}
