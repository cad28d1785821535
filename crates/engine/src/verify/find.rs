//! Finding tables on the tiers when no manifest names them.
//!
//! A meta object says everything of its table but where its data lies. The
//! data is the object, on any tier, that has the length of the data extent and
//! in which the listed blocks lie at their places with their checksums.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use thermocline_model::KeyRange;
use thermocline_model::table::{Extent, ObjectId, TableId, TableMeta};
use thermocline_model::tier::TierId;

use crate::error::{Error, Result};
use crate::store::{ObjectKind, ObjectName};
use crate::table::LOADED_SEQ;
use crate::table::salvage;
use crate::version::tree::TableHome;

/// Bytes read in one go.
const READ_BYTES: u64 = 1 << 20;

/// An object on a tier.
#[derive(Clone, Copy)]
pub(crate) struct OnDisk {
    pub(crate) tier: TierId,
    pub(crate) name: ObjectName,
    pub(crate) size_bytes: u64,
}

impl OnDisk {
    pub(crate) fn path(&self, home: &TableHome) -> PathBuf {
        let store = &home.stores[self.tier.0 as usize];
        store.directory().join(self.name.to_string())
    }
}

/// A table put together from what lies on the tiers.
pub(crate) struct FoundTable {
    pub(crate) record: TableMeta,
    /// Whether it was bulk loaded, so that its number is known to the manifest
    /// alone.
    pub(crate) is_loaded: bool,
}

/// What a meta object is the meta of.
pub(crate) enum Found {
    Table(FoundTable),
    /// Its data is nowhere.
    WithoutData(WithoutData),
    /// It cannot be read.
    Unreadable(Error),
}

/// A meta object whose data was not found.
pub(crate) struct WithoutData {
    pub(crate) id: TableId,
    pub(crate) range: KeyRange,
    pub(crate) entries: u64,
    /// The length of the first data extent that is nowhere.
    pub(crate) data_bytes: u64,
}

pub(crate) fn objects(home: &TableHome) -> Result<Vec<OnDisk>> {
    let mut objects = Vec::new();
    for (store, id) in home.stores.iter().zip(0u32..) {
        for (name, size_bytes) in store.list()? {
            objects.push(OnDisk {
                tier: TierId(id),
                name,
                size_bytes,
            });
        }
    }
    Ok(objects)
}

/// Puts together the table of the meta object `meta`. Data objects in `taken` are
/// other tables': equal loads make equal objects. Of equal ones it is the nearest,
/// as a table's objects are numbered one after the other.
///
/// # Errors
/// Those of the device.
pub(crate) fn table(
    home: &TableHome,
    meta: &OnDisk,
    all: &[OnDisk],
    taken: &HashSet<(TierId, ObjectId)>,
) -> Result<Found> {
    let bytes = read(home, meta)?;
    let decoded = match salvage::meta(&bytes) {
        Ok(decoded) => decoded,
        Err(what) => {
            let error = Error::corruption(what).at(&meta.path(home)).offset(0);
            return Ok(Found::Unreadable(error));
        }
    };
    let mut data = Vec::new();
    for (&length, index) in decoded.extents.iter().zip(0u16..) {
        let mut best: Option<(usize, Extent)> = None;
        let free = |o: &&OnDisk| {
            o.name.kind == ObjectKind::Data
                && o.size_bytes == length
                && !taken.contains(&(o.tier, ObjectId(o.name.id)))
        };
        let mut candidates: Vec<&OnDisk> = all.iter().filter(free).collect();
        candidates.sort_by_key(|o| o.name.id.abs_diff(meta.name.id));
        for candidate in candidates {
            let bytes = read(home, candidate)?;
            let blocks = decoded.blocks.entries.iter().filter(|b| b.extent == index);
            let sound = blocks
                .filter(|b| {
                    let end = b.offset.saturating_add(u64::from(b.stored_bytes));
                    let stored = bytes.get(b.offset as usize..end as usize);
                    stored.is_some_and(|s| salvage::is_block(s, b.checksum))
                })
                .count();
            if sound > best.map_or(0, |b| b.0) {
                let extent = Extent {
                    tier: candidate.tier,
                    object: ObjectId(candidate.name.id),
                    offset: 0,
                    length,
                    checksum: crc32c::crc32c(&bytes),
                };
                best = Some((sound, extent));
            }
        }
        let Some((_, extent)) = best else {
            return Ok(Found::WithoutData(WithoutData {
                id: decoded.id,
                range: decoded.range.clone(),
                entries: decoded.entries,
                data_bytes: length,
            }));
        };
        data.push(extent);
    }
    let used: u64 = decoded
        .blocks
        .entries
        .iter()
        .map(|b| u64::from(b.stored_bytes))
        .sum();
    let lengths: u64 = decoded.extents.iter().sum();
    let is_loaded = decoded.seq_min == LOADED_SEQ
        && decoded.seq_max == LOADED_SEQ
        && decoded.range_deletes.is_empty();
    let record = TableMeta {
        id: decoded.id,
        range: decoded.range.clone(),
        seq_min: decoded.seq_min,
        seq_max: decoded.seq_max,
        entries: decoded.entries,
        deletes: decoded.deletes,
        range_deletes: decoded.range_deletes.len() as u64,
        raw_bytes: decoded.raw_bytes,
        dead_bytes: lengths.saturating_sub(used),
        created_us: decoded.created_us,
        meta: Extent {
            tier: meta.tier,
            object: ObjectId(meta.name.id),
            offset: 0,
            length: bytes.len() as u64,
            checksum: crc32c::crc32c(&bytes),
        },
        data,
    };
    Ok(Found::Table(FoundTable { record, is_loaded }))
}

/// All of an object.
pub(crate) fn read(home: &TableHome, object: &OnDisk) -> Result<Vec<u8>> {
    let store = &home.stores[object.tier.0 as usize];
    let reader = Arc::clone(&store.open(object.name)?);
    let mut bytes = vec![0; reader.size_bytes() as usize];
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + READ_BYTES as usize);
        reader.read_at(at as u64, &mut bytes[at..end])?;
        at = end;
    }
    Ok(bytes)
}
