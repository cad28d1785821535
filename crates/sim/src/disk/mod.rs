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

mod file_system;
mod image;
mod inode;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thermocline::store::{Clock, Dice as EngineDice, Environment};

use crate::Dice;

use inode::Inode;

/// What the n-th call meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
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
pub enum Down {
    /// The process died, the machine did not.
    Kill,
    /// Everything unsynced is at stake.
    Power,
}

/// See the module. Clones are the same disk.
#[derive(Clone)]
pub struct Disk(Arc<Shared>);

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
    /// An empty disk; `seed` decides what crashes keep.
    #[must_use]
    pub fn new(seed: u64) -> Disk {
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

    /// What the engine is opened in. Time moves only by use.
    #[must_use]
    pub fn environment(&self) -> Environment {
        Environment {
            file_system: Arc::new(self.clone()),
            clock: Arc::new(self.clone()),
            dice: Arc::new(self.clone()),
        }
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.0.state.lock().calls
    }

    /// Lets the `n`-th call from now on meet `fault` (1 is the next).
    pub fn fault_in(&self, n: u64, fault: Fault) {
        let mut state = self.0.state.lock();
        state.fault = Some((state.calls + n, fault));
    }

    /// No fault any more. Says whether one was still to come.
    pub fn heal(&self) -> bool {
        self.0.state.lock().fault.take().is_some()
    }

    /// Whether the machine is down.
    #[must_use]
    pub fn is_crashed(&self) -> bool {
        self.0.state.lock().crashed
    }

    /// Lets `time` go by.
    pub fn pass_time(&self, time: Duration) {
        self.0
            .now_micros
            .fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// The machine comes back. Every handle of before is void.
    pub fn reboot(&self, down: Down) {
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
    pub fn remove_all(&self, path: &Path) {
        let mut state = self.0.state.lock();
        state.live.retain(|p, _| !p.starts_with(path));
        state.durable.retain(|p, _| !p.starts_with(path));
        state
            .pending
            .retain(|c| !c.directory().is_some_and(|d| d.starts_with(path)));
    }

    /// Everything in `path` as it is now, durably, in its own inodes at `to`.
    pub fn copy_all(&self, path: &Path, to: &Path) {
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
    pub fn names(&self, directory: &Path) -> Vec<String> {
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
