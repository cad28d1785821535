//! Checking files by themselves, where what joins them cannot be read: tables
//! without a manifest, extents without a readable meta.

use std::collections::HashSet;
use std::sync::Arc;

use thermocline_model::table::{Extent, ObjectId, TableMeta};

use super::find::{self, Found, OnDisk};
use super::{ObjectKind, ObjectName, Verify};
use crate::error::{Error, ErrorKind, Result};
use crate::store::ObjectReader;
use crate::table::salvage::{self, Piece};
use crate::version::manifest;

/// Bytes read in one go.
const READ_BYTES: u64 = 1 << 20;

impl Verify<'_, '_> {
    /// Without a manifest: the identities against each other.
    pub(super) fn check_identities_alone(&mut self) {
        let options = self.options;
        self.report.not_checked.extend([
            "whether tables are missing, and where each belongs, for the manifest says that"
                .to_string(),
            "whether a tier is as new as the manifest".to_string(),
        ]);
        let identities = self.identities.clone();
        let first = identities.iter().flatten().next().cloned();
        let newest = identities.iter().flatten().map(|i| i.generation).max();
        let mut errors = Vec::new();
        for (index, (tier, identity)) in options.tiers.iter().zip(&identities).enumerate() {
            let wrong = |what: &str| {
                let what = format!("tier {:?}: {what}", tier.name());
                Error::new(ErrorKind::WrongTier, what).at(tier.path())
            };
            let Some(identity) = identity else {
                if !self.bad_tiers.contains(&index) {
                    errors.push(wrong("has no identity file").expected("a TIER file", "none"));
                }
                continue;
            };
            let store_id = first.as_ref().map_or(0, |f| f.store_id);
            if identity.store_id != store_id {
                errors.push(
                    wrong("belongs to another store than the first that is known").expected(
                        format!("{store_id:032x}"),
                        format!("{:032x}", identity.store_id),
                    ),
                );
            } else if identity.tier_id as usize != index {
                errors
                    .push(wrong("is another tier of this store").expected(index, identity.tier_id));
            } else if identity.tier_name != tier.name() {
                errors.push(wrong("has another name").expected(&identity.tier_name, tier.name()));
            } else if let Some(newest) = newest
                && identity.generation + 1 < newest
            {
                errors.push(wrong("is stale").expected(
                    format!("generation {} or {newest}", newest - 1),
                    identity.generation,
                ));
            }
        }
        // An opening that died half-way leaves a manifest besides the one in
        // force: each by itself.
        let directory = self.directory().to_path_buf();
        let manifests = self.files.iter();
        let manifests = manifests.filter_map(|file| Some((file.manifest()?, file.size_bytes)));
        for (pointer, size_bytes) in manifests.collect::<Vec<_>>() {
            let read = options
                .directory_of(pointer)
                .and_then(|directory| manifest::read(self.environment, directory, pointer.number));
            if let Err(error) = read {
                errors.push(error);
            }
            self.report.manifest_bytes += size_bytes;
            self.meter.add(size_bytes);
        }
        for error in errors {
            self.wrong(&error, &directory);
        }
    }

    /// Without a manifest: every table that the objects make, and every object
    /// that belongs to none.
    pub(super) fn check_tables_alone(&mut self) {
        let directory = self.directory().to_path_buf();
        let objects: Vec<OnDisk> = self
            .files
            .iter()
            .filter_map(|file| {
                Some(OnDisk {
                    tier: thermocline_model::tier::TierId(file.tier as u32),
                    name: ObjectName::parse(&file.name)?,
                    size_bytes: file.size_bytes,
                })
            })
            .collect();
        let mut used = HashSet::new();
        for meta in objects.iter().filter(|o| o.name.kind == ObjectKind::Meta) {
            match find::table(&self.home, meta, &objects, &used) {
                Ok(Found::Table(table)) => {
                    let extents = table.record.data.iter();
                    used.extend(extents.map(|e| (e.tier, e.object)));
                    self.check_table(&Arc::new(table.record));
                }
                Ok(Found::WithoutData(without)) => {
                    let what = format!("the data of table {} is on no tier", without.id);
                    let error = Error::corruption(what).at(&meta.path(&self.home)).expected(
                        format!("an object of {} bytes with its blocks", without.data_bytes),
                        "none",
                    );
                    self.wrong(&error, &directory);
                    self.meter.add(meta.size_bytes);
                }
                Ok(Found::Unreadable(error)) | Err(error) => {
                    self.wrong(&error, &meta.path(&self.home));
                    self.meter.add(meta.size_bytes);
                }
            }
        }
        for data in objects.iter().filter(|o| o.name.kind == ObjectKind::Data) {
            if used.contains(&(data.tier, ObjectId(data.name.id))) {
                continue;
            }
            let path = data.path(&self.home);
            self.report.not_checked.push(format!(
                "{}: no meta that can be read lists its blocks, so only these themselves were checked",
                path.display()
            ));
            match find::read(&self.home, data) {
                Ok(bytes) => {
                    let mut errors = Vec::new();
                    self.report.blocks += blocks_alone(&bytes, 0, &path, &mut errors);
                    self.report.bytes += bytes.len() as u64;
                    for error in errors {
                        self.wrong(&error, &path);
                    }
                }
                Err(error) => self.wrong(&error, &path),
            }
            self.meter.add(data.size_bytes);
        }
    }

    /// A table that cannot be opened: each of its extents by itself, against
    /// what the manifest says of it.
    pub(super) fn check_extents(&mut self, meta: &TableMeta, errors: &mut Vec<Error>) {
        let kinds = std::iter::once(ObjectKind::Meta).chain(std::iter::repeat(ObjectKind::Data));
        for (extent, kind) in meta.extents().zip(kinds) {
            let name = ObjectName {
                id: extent.object.0,
                kind,
            };
            let reader = self.home.store(extent).and_then(|store| store.open(name));
            let checked = reader.and_then(|reader| check_extent(&*reader, extent, kind, errors));
            if let Err(error) = checked {
                errors.push(error);
            }
            self.meter.add(extent.length);
        }
    }
}

/// Reads an extent and compares its checksum; where that is wrong, says which
/// of its bytes are no sound blocks.
fn check_extent(
    reader: &dyn ObjectReader,
    extent: &Extent,
    kind: ObjectKind,
    errors: &mut Vec<Error>,
) -> Result<()> {
    let wrong = |what: &str| {
        Error::corruption(what)
            .at(reader.path())
            .offset(extent.offset)
    };
    if extent.offset.saturating_add(extent.length) > reader.size_bytes() {
        return Err(wrong("the object is too short for an extent").expected(
            format_args!("{} bytes from {}", extent.length, extent.offset),
            format_args!("an object of {}", reader.size_bytes()),
        ));
    }
    let mut bytes = vec![0; extent.length as usize];
    for (index, piece) in bytes.chunks_mut(READ_BYTES as usize).enumerate() {
        reader.read_at(extent.offset + index as u64 * READ_BYTES, piece)?;
    }
    let found = crc32c::crc32c(&bytes);
    if found == extent.checksum {
        return Ok(());
    }
    let before = errors.len();
    if kind == ObjectKind::Data {
        blocks_alone(&bytes, extent.offset, reader.path(), errors);
    }
    if errors.len() > before {
        return Ok(());
    }
    Err(wrong("the extent is not the one recorded").expected(
        format_args!("checksum {:08x}", extent.checksum),
        format_args!("{found:08x}"),
    ))
}

/// Gives `errors` every stretch of a data extent that is no sound block, and
/// says how many blocks there are.
fn blocks_alone(bytes: &[u8], base: u64, path: &std::path::Path, errors: &mut Vec<Error>) -> u64 {
    let mut blocks = 0;
    for piece in salvage::pieces(bytes) {
        let (offset, found) = match piece {
            Piece::Block { offset, stored, .. } => match salvage::entries(stored) {
                Ok(_) => {
                    blocks += 1;
                    continue;
                }
                Err(what) => (offset, what),
            },
            Piece::Damaged { offset, length } => (offset, format!("{length} bytes of none")),
        };
        errors.push(
            Error::corruption("table data")
                .at(path)
                .offset(base + offset as u64)
                .expected("a sound block", found),
        );
    }
    blocks
}
