//! Open tables, runs and trees, over a store in a directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use thermocline_model::cover::{Cover, RangeDelete};
use thermocline_model::key::{Kind, SeqNo};
use thermocline_model::picture;
use thermocline_model::table::{ObjectId, TableId, TableMeta};
use thermocline_model::tier::TierId;
use thermocline_model::version::{Keyspace, KeyspaceId};
use thermocline_model::view::TableHeat;

use crate::cache::BlockCache;
use crate::memory::{Filter, FilterBuilder};
use crate::merge::RunCursor;
use crate::store::{Environment, LocalStore, LocalStoreOptions, ObjectKind, ObjectName};
use crate::table::{ReadMode, Table, TableContext, TableWriter, TableWriterOptions, key_hash};
use crate::version::tree::{Graveyard, Object, OpenTable, RunTables, TableHome, Tree};

/// Without a block cache: every block is read from the device.
fn home(directory: &Path, readers: usize) -> Arc<TableHome> {
    home_with(directory, readers, 0)
}

fn home_with(directory: &Path, readers: usize, cache_bytes: u64) -> Arc<TableHome> {
    home_of(
        directory,
        readers,
        cache_bytes,
        LocalStoreOptions::default(),
    )
}

fn home_of(
    directory: &Path,
    readers: usize,
    cache_bytes: u64,
    options: LocalStoreOptions,
) -> Arc<TableHome> {
    let store = LocalStore::open(&Environment::real(), directory, options).unwrap();
    let cache = Arc::new(BlockCache::new(cache_bytes));
    let context = TableContext::new(cache).with_readers(readers);
    Arc::new(TableHome {
        stores: vec![Arc::new(store)],
        context: Arc::new(context),
        graveyard: Arc::new(Graveyard::default()),
    })
}

/// A table of the keys, one of them deleted by range where that is wanted.
fn write(home: &TableHome, id: u64, keys: &[&str], with_range_delete: bool) -> Arc<TableMeta> {
    let object = |id, kind| home.stores[0].create(ObjectName { id, kind }).unwrap();
    let data = object(100 + id, ObjectKind::Data);
    let mut writer = TableWriter::new(TableId(id), TableWriterOptions::default(), data);
    for key in keys {
        let value = b"value";
        writer
            .add(key.as_bytes(), SeqNo(id), Kind::Put, value)
            .unwrap();
    }
    if with_range_delete {
        writer.add_range_deletes(&Cover::new(&[RangeDelete {
            start: keys[0].as_bytes().into(),
            end: format!("{}!", keys[0]).as_bytes().into(),
            seq: SeqNo(id + 1),
        }]));
    }
    let written = writer.finish(object(200 + id, ObjectKind::Meta)).unwrap();
    let (meta, data) = (ObjectId(200 + id), ObjectId(100 + id));
    Arc::new(written.into_meta((TierId(0), meta), (TierId(0), data)))
}

fn open(home: &Arc<TableHome>, meta: &Arc<TableMeta>, before: Option<&OpenTable>) -> OpenTable {
    OpenTable::new(Arc::clone(meta), home, before).unwrap()
}

fn keyspace(text: &str) -> Arc<Keyspace> {
    Arc::clone(&picture::parse(text).unwrap().keyspaces[&KeyspaceId::DEFAULT])
}

/// Tables that are never read.
fn run(home: &Arc<TableHome>, text: &str) -> RunTables {
    let keyspace = keyspace(&format!("L1: {text}"));
    let tables = keyspace.levels[0].tables();
    RunTables::new(tables.map(|t| Arc::new(open(home, t, None))).collect())
}

fn dead(graveyard: &Graveyard) -> Vec<u64> {
    let mut dead: Vec<_> = graveyard.take().iter().map(|(_, name)| name.id).collect();
    dead.sort_unstable();
    dead
}

#[test]
fn an_object_is_dead_once_it_is_retired_and_the_last_holder_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let home = home(directory.path(), 0);
    let graveyard = &home.graveyard;
    let object = |id| {
        let kind = ObjectKind::Data;
        let store = Arc::clone(&home.stores[0]);
        Object::new(store, ObjectName { id, kind }, Arc::clone(graveyard))
    };
    drop(object(1));
    assert!(graveyard.is_empty());
    let retired = object(2);
    let holder = Arc::clone(&retired);
    retired.retire();
    drop(retired);
    assert!(graveyard.is_empty());
    drop(holder);
    assert!(!graveyard.is_empty());
    assert_eq!(dead(graveyard), [2]);
    assert!(graveyard.is_empty());
}

#[test]
fn a_retired_table_keeps_the_objects_of_the_one_that_replaces_it() {
    let directory = tempfile::tempdir().unwrap();
    let home = home(directory.path(), 0);
    let meta = keyspace("L1: #1[a..c]").levels[0].runs[0].tables[0].clone();
    let mut moved = TableMeta::clone(&meta);
    moved.meta.object = ObjectId(77);
    let old = open(&home, &meta, None);
    let new = open(&home, &Arc::new(moved), Some(&old));
    old.retire(Some(&new));
    drop(old);
    assert_eq!(dead(&home.graveyard), [meta.meta.object.0]);
    new.retire(None);
    drop(new);
    let mut expected = [77, meta.data[0].object.0];
    expected.sort_unstable();
    assert_eq!(dead(&home.graveyard), expected);
}

fn filter_of(hashes: &[u64]) -> Arc<Filter> {
    let mut builder = FilterBuilder::new(100);
    hashes.iter().for_each(|hash| builder.add(*hash));
    Arc::new(builder.finish())
}

#[test]
fn a_key_is_surely_absent_only_where_the_filter_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let home = home(directory.path(), 0);
    let meta = keyspace("L1: #1[a..c]").levels[0].runs[0].tables[0].clone();
    let [one, other, absent] = ["one", "other", "absent"].map(|k| key_hash(k.as_bytes()));
    let filter = filter_of(&[one, other]);
    assert!(!filter.may_contain(absent));
    let without = open(&home, &meta, None);
    assert!(!without.surely_lacks(absent));
    let with = open(&home, &meta, None).with_filter(Some(Arc::clone(&filter)));
    assert!(with.filter().is_some_and(|f| Arc::ptr_eq(f, &filter)));
    assert!(without.filter().is_none());
    assert!(with.surely_lacks(absent));
    assert!(!with.surely_lacks(one) && !with.surely_lacks(other));
    // Whoever takes its place knows as much.
    assert!(open(&home, &meta, Some(&with)).surely_lacks(absent));
}

fn use_it(table: &OpenTable) {
    let table = table.table().unwrap();
    let get = |key: &[u8]| table.get(key, key_hash(key), SeqNo::MAX).unwrap();
    assert!(get(b"b").is_some() && get(b"c").is_some());
    assert!(get(b"bb").is_none());
    let mut cursor = table.cursor(ReadMode::SCAN);
    cursor.seek_first().unwrap();
    assert!(cursor.valid());
}

#[test]
fn heat_is_what_was_counted_here_and_before_it_took_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let home = home(directory.path(), 0);
    let meta = write(&home, 1, &["a", "b", "c"], false);
    let first = open(&home, &meta, None);
    assert_eq!(first.heat(), TableHeat::default());
    use_it(&first);
    let once = first.heat();
    assert_eq!((once.probes, once.hits, once.scans), (3, 2, 1));
    // Two hits and the scan; the filter answers for the absent key.
    assert_eq!((once.block_reads, once.rejects), (3, 1));
    let second = open(&home, &meta, Some(&first));
    assert_eq!(second.heat(), once);
    use_it(&second);
    let twice = TableHeat {
        probes: 2 * once.probes,
        hits: 2 * once.hits,
        rejects: 2 * once.rejects,
        block_reads: 2 * once.block_reads,
        scans: 2 * once.scans,
        ..TableHeat::default()
    };
    assert_eq!(second.heat(), twice);
}

#[test]
fn metadata_is_in_memory_from_the_first_read_on() {
    let directory = tempfile::tempdir().unwrap();
    let home = home(directory.path(), 0);
    let meta = write(&home, 1, &["a", "b"], false);
    let table = open(&home, &meta, None);
    assert_eq!(table.pinned_bytes(), 0);
    let bytes = table.table().unwrap().memory_bytes();
    assert!(bytes > 1);
    assert_eq!(table.pinned_bytes(), bytes);
}

#[test]
fn of_a_table_that_goes_the_cache_forgets_every_block_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let home = home_with(directory.path(), 0, 1 << 20);
    let tables = [1, 2].map(|id| {
        let keys: Vec<_> = (0..2000).map(|n| format!("{n:06}")).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        open(&home, &write(&home, id, &keys, false), None)
    });
    // Nothing was read, so there is nothing to forget.
    tables[0].forget_blocks();
    let cached = |table: &OpenTable| {
        let blocks = 0..table.table().unwrap().block_count() as u32;
        let cache = &home.context.cache;
        let here = blocks.filter(|&block| cache.contains(table.meta.id, block));
        here.count()
    };
    for table in &tables {
        let mut cursor = table.table().unwrap().cursor(ReadMode::SCAN);
        cursor.seek_first().unwrap();
        while cursor.valid() {
            cursor.next().unwrap();
        }
        let blocks = table.table().unwrap().block_count();
        assert!(blocks > 1);
        assert_eq!(cached(table), blocks);
    }
    tables[0].forget_blocks();
    assert_eq!(cached(&tables[0]), 0);
    assert_eq!(cached(&tables[1]), tables[1].table().unwrap().block_count());
}

/// Starts that differ in their first eight bytes behind the shared prefix, and
/// starts that tie there; ends that belong to their table and ends that do not.
const RUN: &str = "#9[kb..kc] #8[kd..kf) #7[kf..kg) #6[kmmmmmmmm1..kmmmmmmmm3] \
                   #5[kmmmmmmmm5..kmmmmmmmm6) #4[kmmmmmmmm6..kmmmmmmmm8] #3[kp..kp] #2[kq..kz]";

#[test]
fn a_run_finds_what_looking_at_every_table_finds() {
    let directory = tempfile::tempdir().unwrap();
    let home = home(directory.path(), 0);
    for text in [RUN, "#1[kd..kf)", "#1[kd..kf]"] {
        let run = run(&home, text);
        let mut keys: Vec<Vec<u8>> = vec![vec![], b"k".to_vec(), b"l".to_vec()];
        for table in &run.tables {
            for end in [&table.meta.range.start, &table.meta.range.end] {
                let key = end.to_vec();
                let mut below = key.clone();
                *below.last_mut().unwrap() -= 1;
                keys.push([&key[..], b"0"].concat());
                keys.push([&below[..], b"~"].concat());
                keys.extend([key, below]);
            }
        }
        for key in keys {
            let words = key.escape_ascii();
            let ranges = || run.tables.iter().map(|t| &t.meta.range);
            let id = |t: &Arc<OpenTable>| t.meta.id;
            let holder = ranges().position(|r| r.contains(&key));
            let found = run.find(&key).map(id);
            assert_eq!(found, holder.map(|i| id(&run.tables[i])), "{words}");
            let first = ranges().position(|r| !r.ends_before(&key));
            let first = first.unwrap_or(run.tables.len());
            assert_eq!(run.first_not_before(&key), first, "{words}");
            let last = ranges().rposition(|r| *r.start <= *key);
            assert_eq!(run.last_from(&key), last, "{words}");
        }
    }
    assert!(RunTables::default().find(b"k").is_none());
}

#[test]
fn blocks_are_announced_where_there_are_threads_that_read_ahead() {
    let directory = tempfile::tempdir().unwrap();
    let with = home(directory.path(), 1);
    assert!(run(&with, RUN).may_announce());
    assert!(!run(&home(directory.path(), 0), RUN).may_announce());
    assert!(!RunTables::default().may_announce());
    with.context.close_readers();
}

#[test]
fn a_merge_asks_for_the_next_table_while_the_last_blocks_of_one_are_on_their_way() {
    // Not in memory: where the cache is the device there is no way past it.
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let home = home_of(
        directory.path(),
        2,
        0,
        LocalStoreOptions {
            direct: true,
            ..LocalStoreOptions::default()
        },
    );
    let tables = (0..3u64).map(|id| {
        let keys: Vec<_> = (0..3000).map(|n| format!("{id}{n:06}")).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        Arc::new(open(&home, &write(&home, id + 1, &keys, false), None))
    });
    let run = Arc::new(RunTables::new(tables.collect()));
    for read_ahead_bytes in [0, 1 << 12, 1 << 14, 1 << 20] {
        let mode = ReadMode {
            read_ahead_bytes,
            ..ReadMode::MERGE
        };
        let mut cursor = RunCursor::new(Arc::clone(&run), mode);
        let mut merged = 0;
        let mut asked = 0;
        cursor.seek_first().unwrap();
        while cursor.valid() {
            let (table, row) = (merged / 3000, merged % 3000);
            assert_eq!(cursor.key(), format!("{table}{row:06}").as_bytes());
            if cursor.has_asked_for_next() {
                asked |= 1 << table;
            }
            merged += 1;
            cursor.next().unwrap();
        }
        assert_eq!(merged, 9000);
        // For the second and the third, as a scan never does.
        let is_merge = read_ahead_bytes > 0;
        assert_eq!(asked, if is_merge { 0b11 } else { 0 }, "{read_ahead_bytes}");
    }
    home.context.close_readers();
}

#[test]
fn what_covers_an_interval_is_the_tables_there_that_have_range_deletes() {
    let directory = tempfile::tempdir().unwrap();
    let home = home(directory.path(), 0);
    let metas = [
        write(&home, 1, &["a", "b"], true),
        write(&home, 2, &["c", "d"], false),
        write(&home, 3, &["e", "f"], true),
        write(&home, 4, &["g", "h"], true),
    ];
    let of = |metas: &[Arc<TableMeta>]| {
        let tables = metas.iter().map(|m| Arc::new(open(&home, m, None)));
        RunTables::new(tables.collect())
    };
    let covering = |run: &RunTables, start: &[u8], end: &[u8]| {
        let found = run.covering(Some(start), Some(end)).unwrap();
        found
            .iter()
            .map(|t: &Arc<Table>| t.id().0)
            .collect::<Vec<_>>()
    };
    let run = of(&metas);
    assert!(run.has_range_deletes);
    assert_eq!(covering(&run, b"b", b"f"), [1, 3]);
    assert_eq!(covering(&run, b"c", b"d"), [0; 0]);
    assert_eq!(run.covering(None, None).unwrap().len(), 3);
    let plain = of(&metas[1..2]);
    assert!(!plain.has_range_deletes);
    assert_eq!(plain.covering(None, None).unwrap().len(), 0);
}

#[test]
fn a_tree_takes_over_the_tables_that_stay_and_opens_those_that_changed() {
    let directory = tempfile::tempdir().unwrap();
    let home = home(directory.path(), 0);
    let before = keyspace("cuts m | L0.0: #9[a..b] / #8[a..c] | L0.1: #7[m..n] | L1: #3[a..z]");
    let mut known = BTreeMap::new();
    let tree = Tree::build(&before, &home, &mut known).unwrap();
    let ids = |tree: &Tree| tree.tables().map(|t| t.meta.id.0).collect::<Vec<_>>();
    assert_eq!(ids(&tree), [9, 8, 7, 3]);
    assert_eq!(known.len(), 4);
    // The same tables: one with its record at hand, one with a record that
    // says the same, and one that lies elsewhere now.
    let mut after = Keyspace::clone(&before);
    let part = &mut after.parts[0].newest.runs;
    part[1].tables[0] = Arc::new(TableMeta::clone(&part[1].tables[0]));
    Arc::make_mut(&mut after.levels[0].runs[0].tables[0])
        .meta
        .object = ObjectId(77);
    let next = Tree::build(&after, &home, &mut known).unwrap();
    let same: Vec<bool> = tree
        .tables()
        .zip(next.tables())
        .map(|(a, b)| Arc::ptr_eq(a, b))
        .collect();
    assert_eq!(same, [true, true, true, false]);
    let moved = next.tables().last().unwrap();
    assert_eq!(moved.meta.meta.object, ObjectId(77));
    assert!(Arc::ptr_eq(moved, &known[&TableId(3)]));
}

#[test]
fn the_runs_for_a_key_are_those_of_its_part_and_then_the_levels() {
    let directory = tempfile::tempdir().unwrap();
    let home = home(directory.path(), 0);
    let text = "cuts m | L0.0: #9[a..b] / #8[a..c] | L0.1: #7[m..n] | L1: #3[a..z] | L2: #2[a..z]";
    let tree = Tree::build(&keyspace(text), &home, &mut BTreeMap::new()).unwrap();
    let ids = |part| {
        let runs = tree.runs_for(part, 0);
        runs.map(|r| r.tables[0].meta.id.0).collect::<Vec<_>>()
    };
    assert_eq!(ids(0), [9, 8, 3, 2]);
    assert_eq!(ids(1), [7, 3, 2]);
}
