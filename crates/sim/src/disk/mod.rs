//! Simulated devices: file systems in memory that forget what was not synced.
//!
//! A [`Disk`] is the machine's storage: one device at `/`, and one for every
//! mount point made with [`Disk::mount`]. Each [`Device`] has its own room,
//! latency and faults, and can vanish or come back as it was.
//!
//! A power failure keeps any subset of the unsynced writes, mostly in sectors of
//! 512 bytes and sometimes in single bytes, and any size that the file had since
//! its last sync; where the size survives and the content does not, zeros,
//! noise or bytes of another file are read. Of the names it keeps any subset of
//! the changes since their directory was synced (a rename is one change). The
//! death of the process keeps everything written. After a failed sync the
//! unsynced bytes are gone for good, though they can be read as long as they
//! are cached, and the next sync succeeds: as Linux does it. A write through a
//! map is an unsynced write like any other, and no call that could be refused.
//!
//! Every call is counted, so a test can let the n-th call crash or fail
//! ([`Fault`]), or record what a crash at each call would have left
//! ([`Disk::record_crashes`]). Disks are copied in little time ([`Disk::fork`]):
//! files are shared until one of the two changes them.

mod device;
mod fault;
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

use parking_lot::{Condvar, Mutex};
use thermocline::store::{Clock, Dice as EngineDice, Environment};

use crate::Dice;

pub use device::{Device, Gone, Image, Latency};
pub use fault::{Fault, Where};

use device::DeviceState;
use fault::Rule;
use inode::{Inode, Junk, Survival};

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
    /// A device that was held is released.
    released: Condvar,
    now_micros: AtomicU64,
}

/// What a crash just before some call would have left.
pub struct Crashed {
    /// Calls before it.
    pub calls: u64,
    disk: State,
    now_micros: u64,
}

#[derive(Clone)]
struct State {
    inodes: HashMap<u64, Arc<Inode>>,
    live: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<Change>,
    locks: HashSet<PathBuf>,
    next_inode: u64,
    /// Goes up at every reboot; handles of before are void.
    epoch: u64,
    calls: u64,
    rules: Vec<Rule>,
    faults_met: u64,
    crashed: bool,
    devices: Vec<DeviceState>,
    /// How many handles each file has.
    open: HashMap<u64, usize>,
    /// Whether files can be mapped.
    maps: bool,
    /// What crashes would have left, while they are recorded.
    recorded: Option<Vec<(u64, State)>>,
    dice: Dice,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Node {
    Directory,
    File(u64),
}

#[derive(Clone, Debug)]
enum Change {
    Put(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, Node),
}

impl Change {
    fn path(&self) -> &Path {
        match self {
            Change::Put(path, _) | Change::Remove(path) | Change::Rename(_, path, _) => path,
        }
    }

    fn directory(&self) -> Option<&Path> {
        self.path().parent()
    }
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EBADF: i32 = 9;
const EXDEV: i32 = 18;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

impl State {
    fn device_of(&self, path: &Path) -> usize {
        let mounts = self.devices.iter().enumerate();
        mounts
            .filter(|(_, d)| d.mounted && path.starts_with(&d.mount))
            .max_by_key(|(_, d)| d.mount.as_os_str().len())
            .map_or(0, |(number, _)| number)
    }

    fn used_bytes(&self, device: usize) -> u64 {
        let named = self.live.values().filter_map(|node| match node {
            Node::File(inode) => Some(*inode),
            Node::Directory => None,
        });
        let used: HashSet<u64> = named.chain(self.open.keys().copied()).collect();
        let inodes = used.iter().filter_map(|n| self.inodes.get(n));
        inodes
            .filter(|i| i.device == device)
            .map(|i| i.live.len() as u64)
            .sum()
    }

    /// Bytes that a device still has room for.
    fn free_bytes(&self, device: usize) -> u64 {
        match self.devices[device].capacity_bytes {
            Some(capacity) => capacity.saturating_sub(self.used_bytes(device)),
            None => 1 << 40,
        }
    }

    fn add(&mut self, inode: Inode) -> u64 {
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, Arc::new(inode));
        number
    }

    /// A copy to go on with elsewhere: no handle, no fault, nothing recorded.
    fn copy(&self) -> State {
        State {
            inodes: self.inodes.clone(),
            live: self.live.clone(),
            durable: self.durable.clone(),
            pending: self.pending.clone(),
            locks: HashSet::new(),
            next_inode: self.next_inode,
            epoch: self.epoch + 1,
            calls: self.calls,
            rules: Vec::new(),
            faults_met: 0,
            crashed: false,
            devices: self.devices.clone(),
            open: HashMap::new(),
            maps: self.maps,
            recorded: None,
            dice: Dice(self.dice.0 ^ self.calls),
        }
    }

    /// Keeps what a crash now would leave.
    fn record(&mut self) {
        let now = (self.calls, self.copy());
        if let Some(recorded) = &mut self.recorded {
            recorded.push(now);
        }
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
        let inode = self.inodes.get_mut(&inode);
        Arc::make_mut(inode.expect("names and handles name inodes that exist"))
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
    /// An empty disk; `seed` decides what crashes keep, and whether files can
    /// be mapped (those of odd seeds can).
    #[must_use]
    pub fn new(seed: u64) -> Disk {
        let root = BTreeMap::from([(PathBuf::from("/"), Node::Directory)]);
        let state = State {
            inodes: HashMap::new(),
            live: root.clone(),
            durable: root,
            pending: Vec::new(),
            locks: HashSet::new(),
            next_inode: 1,
            epoch: 0,
            calls: 0,
            rules: Vec::new(),
            faults_met: 0,
            crashed: false,
            devices: vec![DeviceState::new(Path::new("/"))],
            open: HashMap::new(),
            maps: seed % 2 == 1,
            recorded: None,
            dice: Dice(seed),
        };
        Disk::of(state, 1_000_000_000_000_000)
    }

    fn of(state: State, now_micros: u64) -> Disk {
        Disk(Arc::new(Shared {
            state: Mutex::new(state),
            released: Condvar::new(),
            now_micros: AtomicU64::new(now_micros),
        }))
    }

    /// Another disk with the same content, as if the process had died here;
    /// `seed` decides what becomes of it.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Disk {
        let mut state = self.0.state.lock().copy();
        state.dice = Dice(seed);
        Disk::of(state, self.0.now_micros.load(Ordering::Relaxed))
    }

    /// Whether files can be mapped from now on.
    pub fn set_maps(&self, maps: bool) {
        self.0.state.lock().maps = maps;
    }

    /// From now on keeps what a crash at each call would leave: just before the
    /// call, and for writes in the middle of it.
    pub fn record_crashes(&self) {
        self.0.state.lock().recorded = Some(Vec::new());
    }

    /// What was recorded; records no more.
    #[must_use]
    pub fn recorded_crashes(&self) -> Vec<Crashed> {
        let now_micros = self.0.now_micros.load(Ordering::Relaxed);
        let recorded = self.0.state.lock().recorded.take().unwrap_or_default();
        let crashed = recorded.into_iter().map(|(calls, disk)| Crashed {
            calls,
            disk,
            now_micros,
        });
        crashed.collect()
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

    /// Lets the `n`-th call from now on that it can happen to meet `fault` (1
    /// is the next).
    pub fn fault_in(&self, n: u64, fault: Fault) {
        self.fault_at(Where::default(), n, fault);
    }

    /// As [`Disk::fault_in`], of the calls in some place.
    pub fn fault_at(&self, place: Where, n: u64, fault: Fault) {
        let rule = Rule {
            place,
            left: n.max(1),
            fault,
        };
        self.0.state.lock().rules.push(rule);
    }

    /// How many faults have happened.
    #[must_use]
    pub fn faults_met(&self) -> u64 {
        self.0.state.lock().faults_met
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
        state.rules.clear();
        state.locks.clear();
        state.open.clear();
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
        let named: HashSet<u64> = state
            .devices
            .iter()
            .flat_map(|d| d.away.values())
            .filter_map(|n| match n {
                Node::File(inode) => Some(*inode),
                Node::Directory => None,
            })
            .chain(named)
            .collect();
        // Files without a name: their blocks are what new ones are made of.
        let stale = state.a_block_of_old();
        let mut order: Vec<u64> = named.iter().copied().collect();
        state.inodes.retain(|inode, _| named.contains(inode));
        order.sort_unstable();
        let piece = Inode::piece(&mut state.dice);
        for inode in order {
            let State { inodes, dice, .. } = &mut *state;
            let inode = inodes.get_mut(&inode).expect("named and kept");
            if inode.pending.is_empty() && !inode.lost {
                continue;
            }
            let inode = Arc::make_mut(inode);
            let junk = match dice.below(3) {
                0 => Junk::Zeros,
                1 => Junk::Noise(dice.next()),
                _ => Junk::Stale(&stale),
            };
            let survival = Survival {
                percent,
                piece,
                junk,
            };
            inode.lose(dice, &survival);
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
                    let device = state.device_of(&target);
                    Node::File(state.add(Inode {
                        device,
                        live: bytes.clone(),
                        durable: bytes,
                        ..Inode::default()
                    }))
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

impl State {
    /// The bytes of some file, kept or not.
    fn a_block_of_old(&mut self) -> Vec<u8> {
        let mut order: Vec<u64> = self.inodes.keys().copied().collect();
        order.sort_unstable();
        let at = self.dice.below(order.len() as u64) as usize;
        let inode = order.get(at).and_then(|n| self.inodes.get(n));
        inode.map_or_else(Vec::new, |i| i.live.clone())
    }
}

impl Crashed {
    /// The disk as the crash left it, the machine going down in this way.
    #[must_use]
    pub fn disk(&self, seed: u64, down: Down) -> Disk {
        let mut state = self.disk.clone();
        state.dice = Dice(seed);
        let disk = Disk::of(state, self.now_micros);
        disk.reboot(down);
        disk
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
