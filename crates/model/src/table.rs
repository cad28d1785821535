//! Tables and the extents they lie in.

use serde::{Deserialize, Serialize};

use crate::key::SeqNo;
use crate::range::KeyRange;
use crate::tier::TierId;

/// Block list, filter and trailers of a small table, at most.
const SMALL_PARTS_BYTES: u64 = 4 << 10;

/// A table's number. Never reused within a store.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TableId(pub u64);

impl std::fmt::Display for TableId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

/// An object's number: the number in its file name. Never reused within a
/// store. Tables and objects are numbered apart because a relocated extent
/// is a new object of an old table.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ObjectId(pub u64);

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

/// The unit of placement: some bytes of one object on one tier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Extent {
    /// The tier that holds the object.
    pub tier: TierId,
    /// The object.
    pub object: ObjectId,
    /// First byte within the object.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// CRC-32C of the bytes. For a data extent, whose blocks carry their own
    /// checksums, it covers the whole extent and is checked by `verify` and by
    /// every copy to another tier.
    pub checksum: u32,
}

/// How the blocks of a table are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    #[default]
    None = 0,
    /// LZ4: fast, light.
    Lz4 = 1,
    /// Zstandard: slower, denser.
    Zstd = 2,
}

impl Compression {
    /// The compression stored as `byte`, if there is one.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Compression> {
        match byte {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }
}

/// What the store knows of a table without opening it: what the manifest
/// records. Everything needed to read the table is in its meta extent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableMeta {
    /// Its number.
    pub id: TableId,
    /// Every key of every entry and of every range delete lies in here.
    pub range: KeyRange,
    /// The smallest sequence number inside.
    pub seq_min: SeqNo,
    /// The largest sequence number inside.
    pub seq_max: SeqNo,
    /// Puts and deletes inside.
    pub entries: u64,
    /// Of these, deletes.
    pub deletes: u64,
    /// Range deletes inside (fragments).
    pub range_deletes: u64,
    /// Key and value bytes of all entries before compression.
    pub raw_bytes: u64,
    /// Bytes of the data extents that no block uses any more.
    pub dead_bytes: u64,
    /// When it was written, in microseconds since the Unix epoch.
    pub created_us: u64,
    /// Block list, filters, range deletes and statistics.
    pub meta: Extent,
    /// The blocks. Empty when the table holds range deletes only.
    pub data: Vec<Extent>,
}

impl TableMeta {
    /// Bytes of its data extents.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data.iter().map(|e| e.length).sum()
    }

    /// Bytes of all its extents.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.meta.length + self.data_bytes()
    }

    /// Bytes that a table of its entries may have where it may not be compressed, about.
    #[must_use]
    pub fn rewritten_bytes_max(&self) -> u64 {
        let size = self.size_bytes();
        if size >= self.raw_bytes {
            return size;
        }
        let raw = self.raw_bytes;
        raw.saturating_add(raw / 4)
            .saturating_add(SMALL_PARTS_BYTES)
    }

    /// The tier of its data: the tier of the first data extent, or of the meta
    /// extent when there is no data.
    #[must_use]
    pub fn tier(&self) -> TierId {
        self.data.first().map_or(self.meta.tier, |e| e.tier)
    }

    /// All its extents.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        std::iter::once(&self.meta).chain(&self.data)
    }
}
