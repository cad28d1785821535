//! The byte encoding of edits, described in `docs/formats/manifest.md`.

use std::sync::Arc;

use super::{Change, Edit};
use crate::codec::{Reader, Writer};
use crate::cuts::Cuts;
use crate::key::SeqNo;
use crate::range::KeyRange;
use crate::table::{Extent, ObjectId, TableId, TableMeta};
use crate::tier::TierId;
use crate::version::{Ahead, KeyspaceId, RunId, Slot, TINY_MAX, Tiny};

impl Edit {
    /// The byte encoding.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.length(self.changes.len());
        for change in &self.changes {
            encode_change(change, &mut w);
        }
        w.finish()
    }

    /// The edit encoded in `bytes`.
    ///
    /// # Errors
    /// In words, when the bytes are not an edit.
    pub fn decode(bytes: &[u8]) -> Result<Edit, String> {
        let mut r = Reader::new(bytes);
        let count = r.length()?;
        let mut changes = Vec::new();
        for _ in 0..count {
            changes.push(decode_change(&mut r)?);
        }
        r.end()?;
        Ok(Edit { changes })
    }
}

fn encode_change(change: &Change, w: &mut Writer) {
    match change {
        Change::AddKeyspace {
            keyspace,
            name,
            cuts,
        } => {
            w.byte(1);
            w.number(keyspace.0.into());
            w.bytes(name.as_bytes());
            encode_cuts(cuts, w);
        }
        Change::SetCuts { keyspace, cuts } => {
            w.byte(11);
            w.number(keyspace.0.into());
            encode_cuts(cuts, w);
        }
        Change::DropKeyspace { keyspace } => {
            w.byte(2);
            w.number(keyspace.0.into());
        }
        Change::AddTable {
            keyspace,
            slot,
            run,
            behind,
            table,
        } => {
            w.byte(3);
            w.number(keyspace.0.into());
            encode_slot(*slot, w);
            w.number(run.0);
            w.number(behind.map_or(0, |b| b.0));
            encode_table(table, w);
        }
        Change::RemoveTable { keyspace, table } => {
            w.byte(4);
            w.number(keyspace.0.into());
            w.number(table.0);
        }
        Change::ReplaceTable { keyspace, table } => {
            w.byte(5);
            w.number(keyspace.0.into());
            encode_table(table, w);
        }
        Change::SetFlushed {
            keyspace,
            part,
            flushed,
        } => {
            w.byte(6);
            w.number(keyspace.0.into());
            w.number((*part).into());
            w.number(flushed.0);
        }
        Change::SetAhead {
            keyspace,
            part,
            ahead,
        } => {
            w.byte(12);
            w.number(keyspace.0.into());
            w.number((*part).into());
            w.bytes(&ahead.start);
            w.byte(ahead.end.is_some().into());
            if let Some(end) = &ahead.end {
                w.bytes(end);
            }
            w.number(ahead.flushed.0);
        }
        Change::SetTiny {
            keyspace,
            part,
            duplicates,
            tiny,
        } => {
            w.byte(13);
            w.number(keyspace.0.into());
            w.number((*part).into());
            w.number((*duplicates).into());
            w.length(tiny.len());
            for tiny in tiny {
                w.bytes(&tiny.start);
                w.number(tiny.writes);
            }
        }
        Change::SetLogFloor { segment } => {
            w.byte(7);
            w.number(*segment);
        }
        Change::SetLogBase { seq } => {
            w.byte(10);
            w.number(seq.0);
        }
        Change::SetLogReach { seq } => {
            w.byte(9);
            w.number(seq.0);
        }
        Change::SetCounters {
            next_id,
            next_keyspace,
            last_seq,
        } => {
            w.byte(8);
            w.number(*next_id);
            w.number((*next_keyspace).into());
            w.number(last_seq.0);
        }
    }
}

fn decode_change(r: &mut Reader<'_>) -> Result<Change, String> {
    Ok(match r.byte()? {
        1 => {
            let keyspace = KeyspaceId(r.number32()?);
            let name = String::from_utf8(r.bytes()?.to_vec())
                .map_err(|_| "a keyspace name is not UTF-8".to_string())?;
            Change::AddKeyspace {
                keyspace,
                name,
                cuts: decode_cuts(r)?,
            }
        }
        2 => Change::DropKeyspace {
            keyspace: KeyspaceId(r.number32()?),
        },
        3 => Change::AddTable {
            keyspace: KeyspaceId(r.number32()?),
            slot: decode_slot(r)?,
            run: RunId(r.number()?),
            behind: Some(r.number()?).filter(|&b| b != 0).map(RunId),
            table: Arc::new(decode_table(r)?),
        },
        4 => Change::RemoveTable {
            keyspace: KeyspaceId(r.number32()?),
            table: TableId(r.number()?),
        },
        5 => Change::ReplaceTable {
            keyspace: KeyspaceId(r.number32()?),
            table: Arc::new(decode_table(r)?),
        },
        6 => Change::SetFlushed {
            keyspace: KeyspaceId(r.number32()?),
            part: r.number32()?,
            flushed: SeqNo(r.number()?),
        },
        7 => Change::SetLogFloor {
            segment: r.number()?,
        },
        8 => Change::SetCounters {
            next_id: r.number()?,
            next_keyspace: r.number32()?,
            last_seq: SeqNo(r.number()?),
        },
        9 => Change::SetLogReach {
            seq: SeqNo(r.number()?),
        },
        10 => Change::SetLogBase {
            seq: SeqNo(r.number()?),
        },
        11 => Change::SetCuts {
            keyspace: KeyspaceId(r.number32()?),
            cuts: decode_cuts(r)?,
        },
        12 => Change::SetAhead {
            keyspace: KeyspaceId(r.number32()?),
            part: r.number32()?,
            ahead: Ahead {
                start: r.bytes()?.into(),
                end: match r.flag()? {
                    true => Some(r.bytes()?.into()),
                    false => None,
                },
                flushed: SeqNo(r.number()?),
            },
        },
        13 => Change::SetTiny {
            keyspace: KeyspaceId(r.number32()?),
            part: r.number32()?,
            duplicates: r.number32()?,
            tiny: decode_tiny(r)?,
        },
        kind => return Err(format!("unknown kind of change {kind}")),
    })
}

fn encode_cuts(cuts: &Cuts, w: &mut Writer) {
    w.length(cuts.bounds().len());
    for bound in cuts.bounds() {
        w.bytes(bound);
    }
}

fn decode_cuts(r: &mut Reader<'_>) -> Result<Cuts, String> {
    let count = r.length()?;
    let mut bounds = Vec::new();
    for _ in 0..count {
        bounds.push(r.bytes()?.into());
    }
    Cuts::new(bounds)
}

fn decode_tiny(r: &mut Reader<'_>) -> Result<Vec<Tiny>, String> {
    let count = r.length()?;
    if count > TINY_MAX {
        return Err(format!("{count} tiny ranges, at most {TINY_MAX} allowed"));
    }
    let mut tiny = Vec::new();
    for _ in 0..count {
        tiny.push(Tiny {
            start: r.bytes()?.into(),
            writes: r.number()?,
        });
    }
    Ok(tiny)
}

fn encode_slot(slot: Slot, w: &mut Writer) {
    let (kind, index) = match slot {
        Slot::Newest(part) => (0, part),
        Slot::Level(level) => (1, level),
    };
    w.byte(kind);
    w.number(index.into());
}

fn decode_slot(r: &mut Reader<'_>) -> Result<Slot, String> {
    let kind = r.byte()?;
    let index = r.number32()?;
    match kind {
        0 => Ok(Slot::Newest(index)),
        1 => Ok(Slot::Level(index)),
        _ => Err(format!("unknown kind of slot {kind}")),
    }
}

fn encode_extent(extent: &Extent, w: &mut Writer) {
    w.number(extent.tier.0.into());
    w.number(extent.object.0);
    w.number(extent.offset);
    w.number(extent.length);
    w.number(extent.checksum.into());
}

fn decode_extent(r: &mut Reader<'_>) -> Result<Extent, String> {
    let extent = Extent {
        tier: TierId(r.number32()?),
        object: ObjectId(r.number()?),
        offset: r.number()?,
        length: r.number()?,
        checksum: r.number32()?,
    };
    match extent.offset.checked_add(extent.length) {
        Some(_) => Ok(extent),
        None => Err("an extent ends beyond 2^64".to_string()),
    }
}

fn encode_table(table: &TableMeta, w: &mut Writer) {
    w.number(table.id.0);
    w.bytes(&table.range.start);
    w.bytes(&table.range.end);
    w.byte(table.range.end_inclusive.into());
    for n in [
        table.seq_min.0,
        table.seq_max.0,
        table.entries,
        table.deletes,
        table.range_deletes,
        table.raw_bytes,
        table.dead_bytes,
        table.created_us,
    ] {
        w.number(n);
    }
    encode_extent(&table.meta, w);
    w.length(table.data.len());
    for extent in &table.data {
        encode_extent(extent, w);
    }
}

fn decode_table(r: &mut Reader<'_>) -> Result<TableMeta, String> {
    let id = TableId(r.number()?);
    let range = KeyRange {
        start: r.bytes()?.into(),
        end: r.bytes()?.into(),
        end_inclusive: r.flag()?,
    };
    if !range.is_valid() {
        return Err(format!("table {id} has the empty range {range}"));
    }
    let mut numbers = [0u64; 8];
    for n in &mut numbers {
        *n = r.number()?;
    }
    let [
        seq_min,
        seq_max,
        entries,
        deletes,
        range_deletes,
        raw_bytes,
        dead_bytes,
        created_us,
    ] = numbers;
    let meta = decode_extent(r)?;
    let count = r.length()?;
    let mut data = Vec::new();
    for _ in 0..count {
        data.push(decode_extent(r)?);
    }
    Ok(TableMeta {
        id,
        range,
        seq_min: SeqNo(seq_min),
        seq_max: SeqNo(seq_max),
        entries,
        deletes,
        range_deletes,
        raw_bytes,
        dead_bytes,
        created_us,
        meta,
        data,
    })
}
