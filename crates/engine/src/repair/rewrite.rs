//! Writing tables anew from what can be read of old ones.
//!
//! Everything that can be read is kept: every version of every key, every
//! delete and every range delete, with the numbers they had. Sources are merged
//! by key and number, and not by the place they had, so that the outcome is
//! right whatever the places were.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use thermocline_model::cover::Cover;
use thermocline_model::key::{Kind, SeqNo};
use thermocline_model::table::{ObjectId, TableId, TableMeta};
use thermocline_model::tier::TierId;

use super::{LostRange, Repair};
use crate::error::Result;
use crate::store::{ObjectKind, ObjectName};
use crate::table::salvage::{self, Entry};
use crate::table::{BlockList, Table, TableWriter, TableWriterOptions};

/// Entries in order, block by block.
pub(super) enum Source {
    Table {
        keyspace: String,
        table: Arc<Table>,
        list: BlockList,
        block: usize,
    },
    /// What was read already.
    Entries,
}

pub(super) struct Merged {
    source: Source,
    ready: VecDeque<Entry>,
}

impl Merged {
    /// # Errors
    /// If the table's meta extent cannot be read any more.
    pub(super) fn table(keyspace: &str, table: Arc<Table>) -> Result<Merged> {
        let keyspace = keyspace.to_string();
        let list = table.read_list()?;
        Ok(Merged {
            source: Source::Table {
                keyspace,
                table,
                list,
                block: 0,
            },
            ready: VecDeque::new(),
        })
    }

    pub(super) fn entries(entries: impl IntoIterator<Item = Entry>) -> Merged {
        Merged {
            source: Source::Entries,
            ready: entries.into_iter().collect(),
        }
    }

    /// Reads on to the next readable block; reports what is not.
    fn fill(&mut self, lost: &mut Vec<LostRange>) {
        let Source::Table {
            keyspace,
            table,
            list,
            block,
        } = &mut self.source
        else {
            return;
        };
        while self.ready.is_empty() && *block < list.len() {
            let index = *block;
            *block += 1;
            let checked = table.verify_block(list, index).and_then(|_| {
                let stored = table.read_block_stored(index)?;
                salvage::entries(&stored).map_err(|what| table.block_error(index, &what))
            });
            match checked {
                Ok(entries) => {
                    let loaded = table.loaded_seq();
                    self.ready = entries
                        .into_iter()
                        .map(|(key, seq, is_put, value)| {
                            (key, loaded.unwrap_or(seq), is_put, value)
                        })
                        .collect();
                }
                Err(error) => {
                    let first = list.separator(index);
                    // Versions of the key that the next block begins with may have
                    // been in this one.
                    let last = match index + 1 < list.len() {
                        true => list.separator(index + 1),
                        false => &table.record().range.end,
                    };
                    lost.push(LostRange {
                        keyspace: keyspace.clone(),
                        table: table.id().0,
                        first: first.escape_ascii().to_string(),
                        last: last.escape_ascii().to_string(),
                        first_key: first.to_vec(),
                        last_key: last.to_vec(),
                        why: error.to_string(),
                    });
                }
            }
        }
    }
}

/// What is written, and where.
pub(super) struct Plan {
    pub(super) sources: Vec<Merged>,
    pub(super) cover: Cover,
    pub(super) meta_tier: TierId,
    pub(super) data_tier: TierId,
    /// Data bytes at which a table is cut; `u64::MAX` for one table.
    pub(super) table_bytes: u64,
}

/// Writes the sources of `plan` as tables in key order that do not overlap.
pub(super) fn write(repair: &mut Repair<'_>, mut plan: Plan) -> Result<Vec<Arc<TableMeta>>> {
    let mut heap = BinaryHeap::new();
    for index in 0..plan.sources.len() {
        push(repair, &mut plan.sources, index, &mut heap);
    }
    let mut tables = Vec::new();
    let mut current: Option<(TableWriter, u64)> = None;
    let mut low: Option<Vec<u8>> = None;
    let mut last: Option<(Vec<u8>, SeqNo)> = None;
    while let Some(Reverse((key, Reverse(seq), index))) = heap.pop() {
        let entry = plan.sources[index].ready.pop_front();
        push(repair, &mut plan.sources, index, &mut heap);
        let Some((_, _, is_put, value)) = entry else {
            continue;
        };
        let same_key = last.as_ref().is_some_and(|(k, _)| *k == key);
        if same_key && last.as_ref().is_some_and(|(_, s)| *s == seq) {
            // The same entry from a table and from what it was made of.
            continue;
        }
        let full = current
            .as_ref()
            .is_some_and(|(w, _)| w.data_bytes() >= plan.table_bytes);
        if full
            && !same_key
            && let Some((writer, data)) = current.take()
        {
            let cover = plan.cover.clip(low.as_deref(), Some(&key));
            tables.push(finish(repair, writer, data, &cover, &plan)?);
            low = Some(key.clone());
        }
        if current.is_none() {
            current = Some(begin(repair, &plan)?);
        }
        if let Some((writer, _)) = &mut current {
            let kind = if is_put { Kind::Put } else { Kind::Delete };
            writer.add(&key, seq, kind, &value)?;
        }
        last = Some((key, seq));
    }
    let cover = plan.cover.clip(low.as_deref(), None);
    if current.is_none() && !cover.is_empty() {
        current = Some(begin(repair, &plan)?);
    }
    if let Some((writer, data)) = current {
        tables.push(finish(repair, writer, data, &cover, &plan)?);
    }
    Ok(tables)
}

type Heap = BinaryHeap<Reverse<(Vec<u8>, Reverse<SeqNo>, usize)>>;

fn push(repair: &mut Repair<'_>, sources: &mut [Merged], index: usize, heap: &mut Heap) {
    let source = &mut sources[index];
    source.fill(&mut repair.report.key_ranges_lost);
    if let Some((key, seq, _, _)) = source.ready.front() {
        heap.push(Reverse((key.clone(), Reverse(*seq), index)));
    }
}

fn begin(repair: &mut Repair<'_>, plan: &Plan) -> Result<(TableWriter, u64)> {
    let tier = &repair.options.tiers[plan.data_tier.0 as usize];
    let options = TableWriterOptions {
        block_bytes: tier.block_size(),
        restart_interval: repair.options.restart_interval,
        compression: tier.block_compression(),
        filter_bits_per_key: repair.options.filter_bits_per_key,
        created_us: repair.environment.clock.now_micros(),
    };
    let (id, data) = (TableId(repair.new_id()), repair.new_id());
    let name = ObjectName {
        id: data,
        kind: ObjectKind::Data,
    };
    let object = repair.home.stores[plan.data_tier.0 as usize].create(name)?;
    Ok((TableWriter::new(id, options, object), data))
}

fn finish(
    repair: &mut Repair<'_>,
    mut writer: TableWriter,
    data: u64,
    cover: &Cover,
    plan: &Plan,
) -> Result<Arc<TableMeta>> {
    if !cover.is_empty() {
        writer.add_range_deletes(cover);
    }
    let meta = repair.new_id();
    let name = ObjectName {
        id: meta,
        kind: ObjectKind::Meta,
    };
    let object = repair.home.stores[plan.meta_tier.0 as usize].create(name)?;
    let written = writer.finish(object)?;
    let meta = (plan.meta_tier, ObjectId(meta));
    Ok(Arc::new(
        written.into_meta(meta, (plan.data_tier, ObjectId(data))),
    ))
}
