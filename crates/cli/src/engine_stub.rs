//! A stand-in for the engine: ordered maps in memory over one append-only file.
//! Deleted when the engine lands.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::all)]

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::ops::{Bound, Deref};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;

pub use ::thermocline::{Error, ErrorKind, Result};

#[derive(Clone, Copy, Debug)]
pub struct DeviceProfile {
    pub random_read_iops: f64,
    pub sequential_mb_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    OperatingSystem,
    Device,
}

#[derive(Clone, Debug)]
pub struct Tier {
    name: String,
    path: PathBuf,
    capacity_bytes: Option<u64>,
    price: f64,
}

impl Tier {
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Tier {
        Tier {
            name: name.into(),
            path: path.into(),
            capacity_bytes: None,
            price: 0.0,
        }
    }
    pub fn capacity_bytes(mut self, bytes: u64) -> Tier {
        self.capacity_bytes = Some(bytes);
        self
    }
    pub fn price_usd_gb_month(mut self, price: f64) -> Tier {
        self.price = price;
        self
    }
    pub fn profile(self, _: DeviceProfile) -> Tier {
        self
    }
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    tiers: Vec<Tier>,
    read_only: bool,
    create: bool,
}

impl Options {
    pub fn new() -> Options {
        Options {
            create: true,
            ..Options::default()
        }
    }
    pub fn at(path: impl Into<PathBuf>) -> Options {
        Options::new().tier(Tier::new("main", path))
    }
    pub fn tier(mut self, tier: Tier) -> Options {
        self.tiers.push(tier);
        self
    }
    pub fn read_only(mut self, yes: bool) -> Options {
        self.read_only = yes;
        self
    }
    pub fn create_if_missing(mut self, yes: bool) -> Options {
        self.create = yes;
        self
    }
    pub fn memtable_bytes(self, _: u64) -> Options {
        self
    }
    pub fn write_buffer_bytes(self, _: u64) -> Options {
        self
    }
    pub fn block_cache_bytes(self, _: u64) -> Options {
        self
    }
    pub fn table_bytes(self, _: u64) -> Options {
        self
    }
    pub fn log_segment_bytes(self, _: u64) -> Options {
        self
    }
    pub fn from_file(path: &Path) -> Result<Options> {
        let text = fs::read_to_string(path).map_err(|e| Error::io("reading options", path, e))?;
        let mut options = Options::from_toml(&text)?;
        let base = path.parent().unwrap_or(Path::new(""));
        for tier in &mut options.tiers {
            tier.path = base.join(&tier.path);
        }
        Ok(options)
    }
    pub fn from_toml(text: &str) -> Result<Options> {
        let mut options = Options::new();
        for line in text.lines() {
            let line = line.trim();
            if line == "[[tier]]" {
                options.tiers.push(Tier::new("", ""));
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                return Err(Error::invalid("options: not TOML"));
            };
            let Some(tier) = options.tiers.last_mut() else {
                return Err(Error::invalid("options: unknown field"));
            };
            let value = value.trim().trim_matches('"');
            match key.trim() {
                "name" => tier.name = value.into(),
                "path" => tier.path = value.into(),
                "capacity_bytes" => tier.capacity_bytes = value.parse().ok(),
                "price_usd_gb_month" => tier.price = value.parse().unwrap_or(0.0),
                _ => return Err(Error::invalid("options: unknown field")),
            }
        }
        Ok(options)
    }
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for tier in &self.tiers {
            text += &format!(
                "[[tier]]\nname = \"{}\"\npath = \"{}\"\nprice_usd_gb_month = {}\n",
                tier.name,
                tier.path.display(),
                tier.price
            );
            if let Some(bytes) = tier.capacity_bytes {
                text += &format!("capacity_bytes = {bytes}\n");
            }
        }
        text
    }
}

#[derive(Clone)]
pub struct Slice(Arc<[u8]>);

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

type Map = BTreeMap<Vec<u8>, Slice>;

struct State {
    spaces: BTreeMap<String, Map>,
    log: Option<BufWriter<File>>,
    gets: u64,
    puts: u64,
}

struct Inner {
    options: Options,
    state: Mutex<State>,
    _lock: Option<File>,
}

#[derive(Clone)]
pub struct Db(Arc<Inner>);

#[derive(Clone)]
pub struct Keyspace {
    db: Db,
    name: String,
}

#[derive(Default)]
pub struct KeyspaceOptions {}

#[derive(Default)]
pub struct WriteOptions {
    pub durability: Option<Durability>,
}

#[derive(Default)]
pub struct WriteBatch {
    ops: Vec<(String, Vec<u8>, Option<Vec<u8>>)>,
    ranges: Vec<(String, Vec<u8>, Vec<u8>)>,
}

impl WriteBatch {
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.ops
            .push(("default".into(), key.into(), Some(value.into())));
    }
    pub fn put_in(&mut self, space: &Keyspace, key: &[u8], value: &[u8]) {
        self.ops
            .push((space.name.clone(), key.into(), Some(value.into())));
    }
    pub fn delete_in(&mut self, space: &Keyspace, key: &[u8]) {
        self.ops.push((space.name.clone(), key.into(), None));
    }
    pub fn delete_range_in(&mut self, space: &Keyspace, start: &[u8], end: &[u8]) {
        self.ranges
            .push((space.name.clone(), start.into(), end.into()));
    }
    pub fn len(&self) -> usize {
        self.ops.len()
    }
    pub fn clear(&mut self) {
        self.ops.clear();
    }
}

fn stub_io(error: std::io::Error) -> Error {
    Error::io("stub log", Path::new("stub.log"), error)
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > 64 << 10 {
        return Err(Error::invalid("key is empty or too long"));
    }
    Ok(())
}

impl State {
    fn apply(&mut self, space: &str, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_key(key)?;
        if let Some(log) = &mut self.log {
            let body = value.unwrap_or_default();
            let head = [
                &[value.is_some() as u8, space.len() as u8][..],
                space.as_bytes(),
                &(key.len() as u32).to_le_bytes(),
                &(body.len() as u32).to_le_bytes(),
            ]
            .concat();
            log.write_all(&head).map_err(stub_io)?;
            log.write_all(key).map_err(stub_io)?;
            log.write_all(body).map_err(stub_io)?;
        } else {
            return Err(Error::invalid("read-only"));
        }
        self.replay(space, key, value);
        Ok(())
    }
    fn replay(&mut self, space: &str, key: &[u8], value: Option<&[u8]>) {
        self.puts += 1;
        let map = match self.spaces.get_mut(space) {
            Some(map) => map,
            None => self.spaces.entry(space.to_owned()).or_default(),
        };
        match value {
            Some(value) => {
                map.insert(key.to_vec(), Slice(value.into()));
            }
            None => {
                map.remove(key);
            }
        }
    }
    fn flush(&mut self) -> Result<()> {
        match &mut self.log {
            Some(log) => log.flush().map_err(stub_io),
            None => Ok(()),
        }
    }
    fn read_log(&mut self, bytes: &[u8], good: &mut usize) -> Option<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            *good = bytes.len() - rest.len();
            let put = *rest.first()? == 1;
            let n = *rest.get(1)? as usize;
            let space = std::str::from_utf8(rest.get(2..2 + n)?).ok()?.to_owned();
            rest = &rest[2 + n..];
            let k = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?) as usize;
            let v = u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?) as usize;
            let key = rest.get(8..8 + k)?;
            let value = rest.get(8 + k..8 + k + v)?;
            self.replay(&space, key, put.then_some(value));
            rest = &rest[8 + k + v..];
        }
        Some(())
    }
}

impl Db {
    pub fn open(options: Options) -> Result<Db> {
        let Some(first) = options.tiers.first() else {
            return Err(Error::invalid("no tier"));
        };
        let path = first.path.join("stub.log");
        if !path.exists() && (!options.create || options.read_only) {
            return Err(Error::new(ErrorKind::NotFound, "no store").at(&first.path));
        }
        let exists = path.exists();
        for tier in &options.tiers {
            if exists && !tier.path.exists() {
                return Err(Error::new(ErrorKind::WrongTier, "tier is missing").at(&tier.path));
            }
            fs::create_dir_all(&tier.path)
                .map_err(|e| Error::io("creating tier", &tier.path, e))?;
        }
        if options.tiers.len() > 1 {
            fs::write(first.path.join("thermocline.toml"), options.to_toml()).map_err(stub_io)?;
        }
        let lock = File::create(first.path.join("LOCK")).map_err(stub_io)?;
        if lock.try_lock().is_err() {
            return Err(Error::new(ErrorKind::Locked, "open elsewhere").at(&first.path));
        }
        let mut state = State {
            spaces: BTreeMap::from([("default".to_owned(), Map::new())]),
            log: None,
            gets: 0,
            puts: 0,
        };
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&path) {
            file.read_to_end(&mut bytes).map_err(stub_io)?;
        }
        let mut good = 0;
        if state.read_log(&bytes, &mut good).is_none() && !options.read_only {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .map_err(stub_io)?;
            file.set_len(good as u64).map_err(stub_io)?;
        }
        if !options.read_only {
            state.log = Some(BufWriter::new(
                fs::OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(&path)
                    .map_err(stub_io)?,
            ));
        }
        Ok(Db(Arc::new(Inner {
            options,
            state: Mutex::new(state),
            _lock: Some(lock),
        })))
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("the stub does not panic")
    }
    pub fn close(self) -> Result<()> {
        self.state().flush()
    }
    pub fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        let mut state = self.state();
        for (space, key, value) in &batch.ops {
            state.apply(space, key, value.as_deref())?;
        }
        for (space, start, end) in &batch.ranges {
            let keys: Vec<Vec<u8>> = state.spaces[space]
                .range(start.clone()..end.clone())
                .map(|(k, _)| k.clone())
                .collect();
            for key in keys {
                state.apply(space, &key, None)?;
            }
        }
        if options.durability == Some(Durability::Device) {
            state.flush()?;
        }
        Ok(())
    }
    pub fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        self.keyspace("default")?.get(key)
    }
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        if !self.state().spaces.contains_key(name) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("keyspace {name:?}"),
            ));
        }
        Ok(Keyspace {
            db: self.clone(),
            name: name.into(),
        })
    }
    pub fn create_keyspace(&self, name: &str, _: KeyspaceOptions) -> Result<Keyspace> {
        self.state().spaces.entry(name.into()).or_default();
        self.keyspace(name)
    }
    pub fn keyspaces(&self) -> Vec<String> {
        self.state().spaces.keys().cloned().collect()
    }
    pub fn flush(&self) -> Result<()> {
        self.state().flush()
    }
    pub fn settle(&self) -> Result<()> {
        Ok(())
    }
    pub fn compact_range(&self, _: Option<&[u8]>, _: Option<&[u8]>) -> Result<()> {
        self.flush()
    }
    pub fn checkpoint(&self, path: &Path) -> Result<()> {
        self.flush()?;
        if path.exists() {
            return Err(Error::new(ErrorKind::AlreadyExists, "checkpoint").at(path));
        }
        let mut options = Options::new();
        for tier in &self.0.options.tiers {
            fs::create_dir_all(path.join(&tier.name)).map_err(stub_io)?;
            let mut copy = tier.clone();
            copy.path = PathBuf::from(&tier.name);
            options = options.tier(copy);
        }
        let from = self.0.options.tiers[0].path.join("stub.log");
        let to = path.join(&self.0.options.tiers[0].name).join("stub.log");
        fs::copy(from, to).map_err(stub_io)?;
        fs::write(path.join("options.toml"), options.to_toml()).map_err(stub_io)
    }
    pub fn stats(&self) -> Stats {
        let state = self.state();
        let bytes: u64 = state
            .spaces
            .values()
            .flatten()
            .map(|(k, v)| (k.len() + v.len()) as u64)
            .sum();
        Stats {
            tiers: self
                .0
                .options
                .tiers
                .iter()
                .map(|tier| TierStats {
                    name: tier.name.clone(),
                    path: tier.path.clone(),
                    capacity_bytes: tier.capacity_bytes.unwrap_or(u64::MAX),
                    used_bytes: bytes,
                    price_usd_gb_month: tier.price,
                    price_usd_month: tier.price * bytes as f64 / 1e9,
                    block_reads: 0,
                })
                .collect(),
            gets: state.gets,
            puts: state.puts,
            hits_memtable: state.gets,
            hits_cache: 0,
            hits_tiers: vec![0; self.0.options.tiers.len()],
            merge_bytes: 0,
            relocate_bytes: 0,
        }
    }
    pub fn tables(&self) -> Vec<TableInfo> {
        vec![TableInfo {
            id: 1,
            slot: "L0".into(),
            tier: 0,
            reads: 12,
        }]
    }
    pub fn explain(&self, key: &[u8]) -> Result<Explanation> {
        Ok(Explanation {
            found: self.get(key)?.is_some(),
        })
    }
}

impl Keyspace {
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.state().apply(&self.name, key, Some(value))
    }
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.db.state().apply(&self.name, key, None)
    }
    pub fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        check_key(key)?;
        let mut state = self.db.state();
        state.gets += 1;
        Ok(state
            .spaces
            .get(&self.name)
            .and_then(|m| m.get(key).cloned()))
    }
    pub fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Iter> {
        if let (Bound::Included(s), Bound::Excluded(e)) = (start, end)
            && s >= e
        {
            return Err(Error::invalid("the range's end lies before its start"));
        }
        let state = self.db.state();
        Ok(Iter {
            entries: state.spaces[&self.name]
                .range::<[u8], _>((start, end))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
            at: usize::MAX,
        })
    }
    pub fn bulk_load(&self) -> Result<BulkLoad> {
        Ok(BulkLoad {
            space: self.clone(),
            entries: Vec::new(),
        })
    }
}

pub struct Iter {
    entries: Vec<(Vec<u8>, Slice)>,
    at: usize,
}

impl Iter {
    pub fn valid(&self) -> bool {
        self.at < self.entries.len()
    }
    pub fn key(&self) -> &[u8] {
        &self.entries[self.at].0
    }
    pub fn value(&self) -> &[u8] {
        &self.entries[self.at].1
    }
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.at = self.entries.len().wrapping_sub(1);
        Ok(())
    }
    pub fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }
    pub fn prev(&mut self) -> Result<()> {
        self.at = self.at.wrapping_sub(1);
        Ok(())
    }
}

pub struct BulkLoad {
    space: Keyspace,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

impl BulkLoad {
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        if self.entries.last().is_some_and(|(k, _)| &k[..] >= key) {
            return Err(Error::invalid("keys do not ascend"));
        }
        self.entries.push((key.into(), value.into()));
        Ok(())
    }
    pub fn finish(self) -> Result<()> {
        let mut state = self.space.db.state();
        for (key, value) in &self.entries {
            state.apply(&self.space.name, key, Some(value))?;
        }
        state.flush()
    }
}

#[derive(Serialize, Debug)]
pub struct TierStats {
    pub name: String,
    pub path: PathBuf,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub price_usd_gb_month: f64,
    pub price_usd_month: f64,
    pub block_reads: u64,
}

#[derive(Serialize, Debug)]
pub struct Stats {
    pub tiers: Vec<TierStats>,
    pub gets: u64,
    pub puts: u64,
    pub hits_memtable: u64,
    pub hits_cache: u64,
    pub hits_tiers: Vec<u64>,
    pub merge_bytes: u64,
    pub relocate_bytes: u64,
}

#[derive(Serialize, Debug)]
pub struct TableInfo {
    pub id: u64,
    pub slot: String,
    pub tier: u32,
    pub reads: u64,
}

#[derive(Serialize, Debug)]
pub struct Explanation {
    pub found: bool,
}

#[derive(Serialize, Debug)]
pub struct Problem {
    pub path: PathBuf,
    pub offset: Option<u64>,
    pub what: String,
}

#[derive(Serialize, Debug)]
pub struct VerifyReport {
    pub tables: u64,
    pub entries: u64,
    pub problems: Vec<Problem>,
}

#[derive(Serialize, Debug)]
pub struct RepairReport {
    pub lost: Vec<String>,
}

macro_rules! display_as_debug {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self:#?}")
            }
        }
    )*};
}
display_as_debug!(Stats Explanation VerifyReport RepairReport Problem);

pub fn verify(options: Options) -> Result<VerifyReport> {
    let path = options.tiers[0].path.join("stub.log");
    let problems = match Db::open(options.read_only(true)) {
        Ok(_) => Vec::new(),
        Err(e) if e.kind() == ErrorKind::Corruption => vec![Problem {
            path,
            offset: None,
            what: e.to_string(),
        }],
        Err(e) => return Err(e),
    };
    Ok(VerifyReport {
        tables: 1,
        entries: 0,
        problems,
    })
}

pub fn repair(options: Options) -> Result<RepairReport> {
    if !options.tiers[0].path.exists() {
        return Err(Error::new(ErrorKind::NotFound, "no store").at(&options.tiers[0].path));
    }
    Ok(RepairReport { lost: Vec::new() })
}

pub struct DumpOptions {
    pub entries: bool,
}

pub fn dump(path: &Path, out: &mut dyn Write, _: &DumpOptions) -> Result<()> {
    let bytes = fs::read(path).map_err(|e| Error::io("reading", path, e))?;
    for (i, line) in bytes.chunks(16).enumerate() {
        writeln!(out, "{:08x} {line:02x?}", i * 16)
            .map_err(|e| Error::io("writing the dump", Path::new("standard output"), e))?;
    }
    Ok(())
}
