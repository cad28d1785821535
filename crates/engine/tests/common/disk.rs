//! A simulated disk: a file system in memory that forgets what was not synced.
//!
//! A power failure keeps any subset of the unsynced writes, in sectors of 512
//! bytes, and any size that the file had since its last sync; of the names any
//! subset of the changes since their directory was synced (a rename is one
//! change). The death of the process keeps everything written. After a failed
//! sync the unsynced bytes are gone for good, though they can be read as long
//! as they are cached, and the next sync succeeds: as Linux does it.
//!
//! Every call is counted, so a test can let the n-th call crash or fail.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thermocline::store::{
    Access, Advice, Clock, Create, Dice as EngineDice, DirectoryEntry, Environment, File,
    FileSystem, Lock, Mapped, Metadata, OpenHow, Space,
};

use super::Dice;

const SECTOR: usize = 512;

/// What the n-th call meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The machine stops: this call happens in part, no later one at all.
    Crash,
    /// An I/O error, once.
    Io,
    /// The device is full from here on, for this many calls that need room.
    Full(u64),
    /// The first sync from here on fails.
    Sync,
}

/// How the machine went down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Down {
    /// The process died, the machine did not.
    Kill,
    /// Everything unsynced is at stake.
    Power,
}

/// See the module. Clones are the same disk.
#[derive(Clone)]
pub(crate) struct Disk(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    now_micros: AtomicU64,
}

struct State {
    inodes: HashMap<u64, Inode>,
    live: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<Change>,
    locks: HashSet<PathBuf>,
    next_inode: u64,
    /// Goes up at every reboot; handles of before are void.
    epoch: u64,
    calls: u64,
    fault: Option<(u64, Fault)>,
    crashed: bool,
    dice: Dice,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Node {
    Directory,
    File(u64),
}

#[derive(Debug)]
enum Change {
    Put(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, Node),
}

impl Change {
    fn directory(&self) -> Option<&Path> {
        match self {
            Change::Put(path, _) | Change::Remove(path) | Change::Rename(_, path, _) => {
                path.parent()
            }
        }
    }
}

#[derive(Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// A sync failed: what is cached is not what the device has.
    lost: bool,
}

enum Pending {
    Write(usize, Vec<u8>),
    Size(usize),
}

fn write_into(bytes: &mut Vec<u8>, offset: usize, piece: &[u8]) {
    if bytes.len() < offset + piece.len() {
        bytes.resize(offset + piece.len(), 0);
    }
    bytes[offset..offset + piece.len()].copy_from_slice(piece);
}

impl Inode {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        write_into(&mut self.live, offset, bytes);
        self.pending.push(Pending::Write(offset, bytes.to_vec()));
    }

    fn set_size(&mut self, size: usize) {
        self.live.resize(size, 0);
        self.pending.push(Pending::Size(size));
    }

    fn settle(&mut self) {
        if self.lost {
            // What an earlier failed sync lost stays lost.
            self.apply(&mut Dice(0), 100);
        } else {
            self.pending.clear();
            self.durable.clone_from(&self.live);
        }
    }

    /// Puts each pending sector on the device with a chance of `percent`.
    fn apply(&mut self, dice: &mut Dice, percent: u64) {
        let mut sizes = vec![self.durable.len()];
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Size(size) => {
                    if dice.percent(percent) {
                        self.durable.resize(size, 0);
                    }
                }
                Pending::Write(offset, bytes) => {
                    let mut done = 0;
                    while done < bytes.len() {
                        let at = offset + done;
                        let piece = (SECTOR - at % SECTOR).min(bytes.len() - done);
                        if dice.percent(percent) {
                            write_into(&mut self.durable, at, &bytes[done..done + piece]);
                        }
                        done += piece;
                    }
                }
            }
            sizes.push(self.durable.len());
        }
        if percent < 100 {
            let size = sizes[dice.below(sizes.len() as u64) as usize];
            if dice.percent(50) {
                self.durable.resize(size, 0);
            }
        }
    }
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// What a call does, as far as faults care.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Read,
    /// Needs room.
    Grow,
    Sync,
    Change,
}

impl State {
    /// Counts a call; `Some(true)` lets a crashing call happen in part.
    fn call(&mut self, call: Call) -> io::Result<bool> {
        if self.crashed {
            return Err(error(EIO));
        }
        self.calls += 1;
        let Some((at, fault)) = self.fault else {
            return Ok(false);
        };
        if self.calls < at {
            return Ok(false);
        }
        match fault {
            Fault::Crash => {
                self.crashed = true;
                Ok(true)
            }
            Fault::Io => {
                self.fault = None;
                Err(error(EIO))
            }
            Fault::Full(left) if call == Call::Grow => {
                self.fault = (left > 1).then_some((at, Fault::Full(left - 1)));
                Err(error(ENOSPC))
            }
            Fault::Sync if call == Call::Sync => {
                self.fault = None;
                Err(error(EIO))
            }
            Fault::Full(_) | Fault::Sync => Ok(false),
        }
    }

    /// A call that either happens or does not.
    fn whole_call(&mut self, call: Call) -> io::Result<()> {
        let crashing = self.call(call)?;
        if crashing && self.dice.percent(50) {
            return Err(error(EIO));
        }
        Ok(())
    }

    fn change(&mut self, change: Change) {
        apply_change(&mut self.live, &change);
        self.pending.push(change);
    }

    fn file(&mut self, path: &Path) -> io::Result<u64> {
        match self.live.get(path) {
            Some(Node::File(inode)) => Ok(*inode),
            Some(Node::Directory) => Err(error(21)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn inode(&mut self, inode: u64) -> &mut Inode {
        self.inodes
            .get_mut(&inode)
            .expect("names and handles name inodes that exist")
    }

    fn has_directory(&self, path: &Path) -> io::Result<()> {
        match self.live.get(path) {
            Some(Node::Directory) => Ok(()),
            Some(Node::File(_)) => Err(error(20)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn apply_change(names: &mut BTreeMap<PathBuf, Node>, change: &Change) {
    match change {
        Change::Put(path, node) => {
            names.insert(path.clone(), *node);
        }
        Change::Remove(path) => {
            names.remove(path);
        }
        // It names a file, whatever became of the name it had before.
        Change::Rename(from, to, node) => {
            names.remove(from);
            names.insert(to.clone(), *node);
        }
    }
}

impl Disk {
    pub(crate) fn new(seed: u64) -> Disk {
        let root = BTreeMap::from([(PathBuf::from("/"), Node::Directory)]);
        Disk(Arc::new(Shared {
            state: Mutex::new(State {
                inodes: HashMap::new(),
                live: root.clone(),
                durable: root,
                pending: Vec::new(),
                locks: HashSet::new(),
                next_inode: 1,
                epoch: 0,
                calls: 0,
                fault: None,
                crashed: false,
                dice: Dice(seed),
            }),
            now_micros: AtomicU64::new(1_000_000_000_000_000),
        }))
    }

    pub(crate) fn environment(&self) -> Environment {
        Environment {
            file_system: Arc::new(self.clone()),
            clock: Arc::new(self.clone()),
            dice: Arc::new(self.clone()),
        }
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.0.state.lock().calls
    }

    /// Lets the `n`-th call from now on meet `fault` (1 is the next).
    pub(crate) fn fault_in(&self, n: u64, fault: Fault) {
        let mut state = self.0.state.lock();
        state.fault = Some((state.calls + n, fault));
    }

    /// No fault any more. Says whether one was still to come.
    pub(crate) fn heal(&self) -> bool {
        self.0.state.lock().fault.take().is_some()
    }

    pub(crate) fn is_crashed(&self) -> bool {
        self.0.state.lock().crashed
    }

    pub(crate) fn pass_time(&self, time: Duration) {
        self.0
            .now_micros
            .fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// The machine comes back. Every handle of before is void.
    pub(crate) fn reboot(&self, down: Down) {
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        state.epoch += 1;
        state.crashed = false;
        state.fault = None;
        state.locks.clear();
        if down == Down::Kill {
            return;
        }
        // Nothing, everything, or a share of what is pending.
        let percent = [0, 10, 50, 90, 100][state.dice.below(5) as usize];
        let names = [0, 50, 100, percent][state.dice.below(4) as usize];
        for change in std::mem::take(&mut state.pending) {
            if state.dice.percent(names) {
                apply_change(&mut state.durable, &change);
            }
        }
        // What lies in a directory that was lost is lost.
        let names = state.durable.clone();
        state.durable.retain(|path, _| {
            path.ancestors()
                .skip(1)
                .all(|above| names.get(above) == Some(&Node::Directory))
        });
        state.live = state.durable.clone();
        let named: HashSet<u64> = state
            .live
            .values()
            .filter_map(|n| {
                if let Node::File(i) = n {
                    Some(*i)
                } else {
                    None
                }
            })
            .collect();
        state.inodes.retain(|inode, _| named.contains(inode));
        let mut order: Vec<u64> = state.inodes.keys().copied().collect();
        order.sort_unstable();
        for inode in order {
            let inode = state.inodes.get_mut(&inode).expect("listed just now");
            inode.apply(&mut state.dice, percent);
            inode.lost = false;
            inode.live.clone_from(&inode.durable);
        }
    }

    /// Removes everything below `path`, durably.
    pub(crate) fn remove_all(&self, path: &Path) {
        let mut state = self.0.state.lock();
        state.live.retain(|p, _| !p.starts_with(path));
        state.durable.retain(|p, _| !p.starts_with(path));
        state
            .pending
            .retain(|c| !c.directory().is_some_and(|d| d.starts_with(path)));
    }

    /// Everything in `path` as it is now, durably, in its own inodes at `to`.
    pub(crate) fn copy_all(&self, path: &Path, to: &Path) {
        self.remove_all(to);
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        let nodes: Vec<_> = state
            .live
            .iter()
            .filter(|(p, _)| p.starts_with(path))
            .map(|(p, n)| (p.clone(), *n))
            .collect();
        for (from, node) in nodes {
            let rest = from.strip_prefix(path).expect("filtered by it");
            let target = if rest.as_os_str().is_empty() {
                to.to_path_buf()
            } else {
                to.join(rest)
            };
            let node = match node {
                Node::Directory => node,
                Node::File(inode) => {
                    let bytes = state.inodes[&inode].live.clone();
                    let number = state.next_inode;
                    state.next_inode += 1;
                    state.inodes.insert(
                        number,
                        Inode {
                            live: bytes.clone(),
                            durable: bytes,
                            ..Inode::default()
                        },
                    );
                    Node::File(number)
                }
            };
            state.live.insert(target.clone(), node);
            state.durable.insert(target, node);
        }
    }

    /// The names below `directory`, for messages and checks.
    pub(crate) fn names(&self, directory: &Path) -> Vec<String> {
        let state = self.0.state.lock();
        let below = state.live.keys().filter(|p| p.parent() == Some(directory));
        below
            .filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned()))
            .collect()
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

impl Clock for Disk {
    fn now_micros(&self) -> u64 {
        self.0.now_micros.fetch_add(20, Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) {
        self.pass_time(duration);
    }
}

impl EngineDice for Disk {
    fn next_u64(&self) -> u64 {
        self.0.state.lock().dice.next()
    }
}

impl FileSystem for Disk {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let mut state = self.0.state.lock();
        let exists = state.live.contains_key(path);
        let creates = how.create != Create::Never && !exists;
        state.whole_call(if creates { Call::Grow } else { Call::Read })?;
        if exists && how.create == Create::New {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if creates {
            let parent = path.parent().unwrap_or(Path::new("/"));
            state.has_directory(parent)?;
            let inode = state.next_inode;
            state.next_inode += 1;
            state.inodes.insert(inode, Inode::default());
            state.change(Change::Put(path.to_path_buf(), Node::File(inode)));
        }
        let inode = state.file(path)?;
        let epoch = state.epoch;
        Ok(Arc::new(Handle {
            disk: self.clone(),
            inode,
            epoch,
            writable: how.access == Access::ReadWrite,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.whole_call(Call::Change)?;
        let node = Node::File(state.file(from)?);
        state.change(Change::Rename(from.to_path_buf(), to.to_path_buf(), node));
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.whole_call(Call::Change)?;
        state.file(path)?;
        state.change(Change::Remove(path.to_path_buf()));
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut state = self.0.state.lock();
        state.whole_call(Call::Read)?;
        state.has_directory(directory)?;
        let below = state
            .live
            .iter()
            .filter(|(p, _)| p.parent() == Some(directory));
        let entry = |(path, node): (&PathBuf, &Node)| DirectoryEntry {
            name: path.file_name().unwrap_or_default().to_os_string(),
            size_bytes: if let Node::File(inode) = node {
                state.inodes[inode].live.len() as u64
            } else {
                0
            },
            is_directory: *node == Node::Directory,
        };
        Ok(below.map(entry).collect())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.whole_call(Call::Grow)?;
        let mut missing: Vec<&Path> = path
            .ancestors()
            .take_while(|p| !state.live.contains_key(*p))
            .collect();
        if state.live.get(path).is_some_and(|n| *n != Node::Directory) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        missing.reverse();
        for directory in missing {
            state.change(Change::Put(directory.to_path_buf(), Node::Directory));
        }
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.whole_call(Call::Change)?;
        state.has_directory(path)?;
        if state
            .live
            .keys()
            .any(|inside| inside.parent() == Some(path))
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.change(Change::Remove(path.to_path_buf()));
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        let here = |c: &Change| c.directory() == Some(directory);
        // Names are journaled: after a failed sync they are still to come.
        state.whole_call(Call::Sync)?;
        state.has_directory(directory)?;
        for change in std::mem::take(&mut state.pending) {
            if !here(&change) {
                state.pending.push(change);
                continue;
            }
            apply_change(&mut state.durable, &change);
        }
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.whole_call(Call::Grow)?;
        let inode = state.file(from)?;
        if state.live.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.change(Change::Put(to.to_path_buf(), Node::File(inode)));
        Ok(())
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let mut state = self.0.state.lock();
        state.whole_call(Call::Read)?;
        Ok(state.live.get(path).map(|node| match node {
            Node::Directory => Metadata {
                size_bytes: 0,
                is_directory: true,
            },
            Node::File(inode) => Metadata {
                size_bytes: state.inodes[inode].live.len() as u64,
                is_directory: false,
            },
        }))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut state = self.0.state.lock();
        state.whole_call(Call::Grow)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        state.has_directory(parent)?;
        if !state.live.contains_key(path) {
            let inode = state.next_inode;
            state.next_inode += 1;
            state.inodes.insert(inode, Inode::default());
            state.change(Change::Put(path.to_path_buf(), Node::File(inode)));
        }
        if !state.locks.insert(path.to_path_buf()) {
            return Ok(None);
        }
        let epoch = state.epoch;
        Ok(Some(Box::new(Held {
            disk: self.clone(),
            path: path.to_path_buf(),
            epoch,
        })))
    }

    fn space(&self, _directory: &Path) -> io::Result<Space> {
        self.0.state.lock().whole_call(Call::Read)?;
        Ok(Space {
            free_bytes: 1 << 40,
            total_bytes: 1 << 41,
        })
    }
}

#[derive(Debug)]
struct Held {
    disk: Disk,
    path: PathBuf,
    epoch: u64,
}

impl Lock for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.disk.0.state.lock();
        if state.epoch == self.epoch {
            state.locks.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct Handle {
    disk: Disk,
    inode: u64,
    epoch: u64,
    writable: bool,
}

impl Handle {
    /// Runs `act` on the state unless the machine has rebooted since.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.0.state.lock();
        if state.epoch != self.epoch {
            return Err(error(EIO));
        }
        act(&mut state)
    }
}

impl File for Handle {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|state| {
            state.whole_call(Call::Read)?;
            let bytes = state
                .inode(self.inode)
                .live
                .get(offset as usize..)
                .unwrap_or_default();
            let n = bytes.len().min(buffer.len());
            buffer[..n].copy_from_slice(&bytes[..n]);
            Ok(n)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if !self.writable {
            return Err(error(9));
        }
        self.with(|state| {
            match state.call(Call::Grow) {
                Ok(false) => {
                    state.inode(self.inode).write(offset as usize, bytes);
                    Ok(bytes.len())
                }
                // In part, then the crash or the error.
                failed => {
                    if failed.is_ok() || !state.crashed {
                        let part = state.dice.below(bytes.len() as u64 + 1) as usize;
                        if part > 0 {
                            state
                                .inode(self.inode)
                                .write(offset as usize, &bytes[..part]);
                        }
                    }
                    Err(failed.err().unwrap_or_else(|| error(EIO)))
                }
            }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state| match state.call(Call::Sync) {
            Ok(false) => {
                state.inode(self.inode).settle();
                Ok(())
            }
            failed => {
                if failed.is_ok() {
                    // Crashing in the middle of a sync.
                    return Err(error(EIO));
                }
                if !state.crashed {
                    let State { inodes, dice, .. } = state;
                    if let Some(inode) = inodes.get_mut(&self.inode) {
                        inode.apply(dice, 50);
                        inode.lost = true;
                    }
                }
                Err(failed.err().unwrap_or_else(|| error(EIO)))
            }
        })
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.with(|state| {
            state.whole_call(Call::Read)?;
            Ok(state.inode(self.inode).live.len() as u64)
        })
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.with(|state| {
            state.whole_call(Call::Change)?;
            state.inode(self.inode).set_size(size_bytes as usize);
            Ok(())
        })
    }

    fn allocate(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn advise(&self, _offset: u64, _length: u64, advice: Advice) {
        let _ = self.with(|state| {
            let inode = state.inode(self.inode);
            if advice == Advice::DontNeed && inode.lost {
                // Only clean pages go; those of before the failed sync are.
                let mut bytes = inode.durable.clone();
                for pending in &inode.pending {
                    match pending {
                        Pending::Write(offset, piece) => write_into(&mut bytes, *offset, piece),
                        Pending::Size(size) => bytes.resize(*size, 0),
                    }
                }
                inode.live = bytes;
            }
            Ok(())
        });
    }

    fn direct_alignment(&self) -> Option<usize> {
        None
    }

    fn map(&self, _length: u64) -> Option<Box<dyn Mapped>> {
        None
    }
}
