//! fjall through its public interface, version 3.
//!
//! Settings: `max_memtable_size` is half the given total; cache, worker threads and Bloom filters
//! are as given; compression of tables and of the journal is off; all else is the crate's default.
//! It has no direct reads. Its iterators cannot be moved, so a seek is a new one, and a cursor
//! walks the way it began; multi-gets are gets.

use std::thread;
use std::time::{Duration, Instant};

use ::fjall::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
};
use ::fjall::{
    CompressionType, Database, Iter, Keyspace, KeyspaceCreateOptions, PersistMode, Slice,
};

use super::{
    Compression, Counted, Cursor, Engine, EngineOptions, Home, Load, Result, SETTLE_MAX, only,
};

/// How often [`Engine::settle`] looks.
const POLL: Duration = Duration::from_millis(10);

/// How long nothing must be under way to count as settled.
const QUIET: Duration = Duration::from_millis(300);

/// An open fjall.
pub(crate) struct Fjall {
    db: Database,
    space: Keyspace,
    synced: bool,
}

impl Engine for Fjall {
    type Cursor<'a> = FjallCursor<'a>;
    type Load<'a> = FjallLoad<'a>;

    fn open(homes: &[Home], given: &EngineOptions) -> Result<Self> {
        let home = only(homes, "fjall")?;
        let blocks = match given.compression {
            Compression::None => CompressionPolicy::disabled(),
            Compression::Lz4 => CompressionPolicy::all(CompressionType::Lz4),
            other => return other.refused("fjall"),
        };
        let db = Database::builder(&home.path)
            .cache_size(given.block_cache_bytes as u64)
            .worker_threads(given.background_threads as usize)
            .journal_compression(CompressionType::None)
            .open()?;
        let bits = given.filter_bits_per_key as f32;
        let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits));
        let space = db.keyspace("default", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(given.write_buffer_bytes as u64 / 2)
                .data_block_compression_policy(blocks)
                .index_block_compression_policy(CompressionPolicy::disabled())
                .filter_policy(FilterPolicy::all(filter))
        })?;
        Ok(Fjall {
            db,
            space,
            synced: given.synced,
        })
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.space.insert(key, value)?;
        if self.synced {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.space.remove(key)?;
        if self.synced {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    #[inline]
    fn get(&self, key: &[u8], mut see: impl FnMut(&[u8])) -> Result<bool> {
        let value = self.space.get(key)?;
        if let Some(value) = &value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], mut see: impl FnMut(&[u8])) -> Result<usize> {
        let mut found = 0;
        for key in keys {
            found += usize::from(self.get(key, &mut see)?);
        }
        Ok(found)
    }

    fn cursor(&self) -> Result<FjallCursor<'_>> {
        Ok(FjallCursor {
            store: self,
            iter: None,
            entry: None,
        })
    }

    fn bulk_load(&self) -> Result<FjallLoad<'_>> {
        let mut ingestion = Some(self.space.start_ingestion()?);
        Ok(FjallLoad(Box::new(move |entry| {
            match (entry, &mut ingestion) {
                (Some((key, value)), Some(ingestion)) => ingestion.write(key, value)?,
                _ => {
                    if let Some(ingestion) = ingestion.take() {
                        ingestion.finish()?;
                    }
                }
            }
            Ok(())
        })))
    }

    /// There is no call that waits for merges: what is under way is polled.
    fn settle(&self) -> Result<Duration> {
        self.space.rotate_memtable_and_wait()?;
        let began = Instant::now();
        let mut since = began;
        while since.elapsed() < QUIET {
            if self.db.outstanding_flushes() + self.db.active_compactions() > 0 {
                since = Instant::now();
            }
            if began.elapsed() > SETTLE_MAX {
                return Err("fjall does not finish its merges".into());
            }
            thread::sleep(POLL);
        }
        Ok(since.elapsed())
    }

    fn counted(&self) -> Result<Vec<Counted>> {
        let merges = self.db.compactions_completed() as u64;
        Ok(vec![Counted::new("merges", merges)])
    }
}

/// A cursor over a fjall.
pub(crate) struct FjallCursor<'a> {
    store: &'a Fjall,
    iter: Option<Iter>,
    entry: Option<(Slice, Slice)>,
}

impl FjallCursor<'_> {
    fn begin(&mut self, iter: Iter) {
        self.iter = Some(iter);
    }

    fn take(&mut self, forward: bool) -> Result<()> {
        let next = self.iter.as_mut().and_then(|iter| match forward {
            true => iter.next(),
            false => iter.next_back(),
        });
        self.entry = next.map(::fjall::Guard::into_inner).transpose()?;
        Ok(())
    }

    /// The entry. Requires: valid.
    fn entry(&self) -> (&[u8], &[u8]) {
        self.entry
            .as_ref()
            .map_or((&[], &[]), |(key, value)| (&key[..], &value[..]))
    }
}

impl Cursor for FjallCursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.begin(self.store.space.range(key..));
        self.take(true)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.begin(self.store.space.iter());
        self.take(true)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.begin(self.store.space.iter());
        self.take(false)
    }

    fn next(&mut self) -> Result<()> {
        self.take(true)
    }

    fn prev(&mut self) -> Result<()> {
        self.take(false)
    }

    fn valid(&self) -> bool {
        self.entry.is_some()
    }

    fn key(&self) -> &[u8] {
        self.entry().0
    }

    fn value(&self) -> &[u8] {
        self.entry().1
    }

    fn status(&self) -> Result<()> {
        // Every move has already returned its error.
        Ok(())
    }
}

/// What an ingestion is given: an entry, or nothing at its end.
type Entry<'e> = Option<(&'e [u8], &'e [u8])>;

/// An ingestion of a fjall. The crate does not export its type, so it lives in
/// a closure.
pub(crate) struct FjallLoad<'a>(Box<dyn FnMut(Entry<'_>) -> Result<()> + 'a>);

impl Load for FjallLoad<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        (self.0)(Some((key, value)))
    }

    fn finish(mut self) -> Result<()> {
        (self.0)(None)
    }
}
