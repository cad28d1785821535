//! Devices: each has room, a speed, and its own ways to fail.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::fault::{Call, Fault, Rule, Where};
use super::inode::Inode;
use super::{Disk, EIO, ENOENT, EROFS, Node, State, error};

/// How a device is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// Every call fails with an I/O error.
    Silent,
    /// Its paths do not exist; open files fail with an I/O error.
    Missing,
}

/// How long calls take, on the simulated clock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Latency {
    /// Of a read.
    pub read: Duration,
    /// Of a write, also through a map.
    pub write: Duration,
    /// Of a sync of a file or a directory.
    pub sync: Duration,
}

#[derive(Clone)]
pub(super) struct DeviceState {
    /// Where it is mounted.
    pub(super) mount: PathBuf,
    pub(super) mounted: bool,
    /// Its names while it is not mounted.
    pub(super) away: BTreeMap<PathBuf, Node>,
    pub(super) calls: u64,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) read_only: bool,
    pub(super) gone: Option<Gone>,
    pub(super) latency: Latency,
    /// What the next call takes besides.
    pub(super) hang: Duration,
    /// Calls wait until it is released.
    pub(super) held: bool,
    /// Calls that wait now.
    pub(super) waiting: usize,
    /// The most that ever waited at once.
    pub(super) waiting_max: usize,
}

impl DeviceState {
    pub(super) fn new(mount: &Path) -> DeviceState {
        DeviceState {
            mount: mount.to_path_buf(),
            mounted: true,
            away: BTreeMap::new(),
            calls: 0,
            capacity_bytes: None,
            read_only: false,
            gone: None,
            latency: Latency::default(),
            hang: Duration::ZERO,
            held: false,
            waiting: 0,
            waiting_max: 0,
        }
    }

    /// Refuses what its state does not allow.
    pub(super) fn check(&self, call: Call) -> io::Result<()> {
        let on_handle = matches!(call, Call::Read | Call::Write | Call::Sync | Call::Map);
        match self.gone {
            Some(Gone::Missing) if !on_handle => return Err(error(ENOENT)),
            Some(_) => return Err(error(EIO)),
            None if !self.mounted => return Err(error(EIO)),
            None => {}
        }
        let changes = matches!(
            call,
            Call::Make | Call::Write | Call::Grow | Call::Change | Call::Lock | Call::Sync
        );
        if self.read_only && changes {
            return Err(error(EROFS));
        }
        Ok(())
    }

    /// What a call takes.
    pub(super) fn time(&mut self, call: Call) -> Duration {
        let usual = match call {
            Call::Read | Call::List | Call::Look | Call::Open => self.latency.read,
            Call::Sync | Call::SyncDirectory => self.latency.sync,
            _ => self.latency.write,
        };
        usual + std::mem::take(&mut self.hang)
    }
}

/// What was on a device at some moment.
#[derive(Clone)]
pub struct Image(BTreeMap<PathBuf, Option<Arc<Inode>>>);

/// One device of a [`Disk`].
#[derive(Clone)]
pub struct Device {
    pub(super) disk: Disk,
    pub(super) number: usize,
}

impl Device {
    fn change<T>(&self, act: impl FnOnce(&mut DeviceState) -> T) -> T {
        act(&mut self.disk.0.state.lock().devices[self.number])
    }

    /// Calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.change(|d| d.calls)
    }

    /// Lets the `n`-th call on this device that it can happen to meet `fault`.
    pub fn fault_in(&self, n: u64, fault: Fault) {
        let place = Where {
            device: Some(self.number),
            name: None,
        };
        self.disk.fault_at(place, n, fault);
    }

    /// As [`Device::fault_in`], for files whose names contain `part`.
    pub fn fault_named(&self, part: &'static str, n: u64, fault: Fault) {
        let place = Where {
            device: Some(self.number),
            name: Some(part),
        };
        self.disk.fault_at(place, n, fault);
    }

    /// How much it holds; a write is cut at that very byte. `None` is no end.
    pub fn set_capacity_bytes(&self, bytes: Option<u64>) {
        self.change(|d| d.capacity_bytes = bytes);
    }

    /// Bytes of all files that have a name or are open.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.disk.0.state.lock().used_bytes(self.number)
    }

    /// Whether every change is refused.
    pub fn set_read_only(&self, read_only: bool) {
        self.change(|d| d.read_only = read_only);
    }

    /// How long calls take from now on.
    pub fn set_latency(&self, latency: Latency) {
        self.change(|d| d.latency = latency);
    }

    /// The next call takes this much longer.
    pub fn hang(&self, time: Duration) {
        self.change(|d| d.hang = time);
    }

    /// Every call waits from now on, until [`Device::release`].
    pub fn hold(&self) {
        self.change(|d| d.held = true);
    }

    /// Lets waiting calls go on.
    pub fn release(&self) {
        self.change(|d| d.held = false);
        self.disk.0.released.notify_all();
    }

    /// Calls that wait now, and the most that ever did at once.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        self.change(|d| (d.waiting, d.waiting_max))
    }

    /// It answers nothing any more, in the way of `gone`.
    pub fn vanish(&self, gone: Gone) {
        self.change(|d| d.gone = Some(gone));
    }

    /// It is unmounted: an empty directory stands in its place, on the device
    /// around it.
    pub fn unmount(&self) {
        let mut guard = self.disk.0.state.lock();
        let state = &mut *guard;
        let device = &mut state.devices[self.number];
        assert!(device.mounted, "it is mounted");
        device.mounted = false;
        let mount = device.mount.clone();
        // What is not durable yet has time to become so.
        for inode in state.inodes.values_mut() {
            if inode.device == self.number {
                Arc::make_mut(inode).settle();
            }
        }
        state.pending.retain(|c| !c.path().starts_with(&mount));
        let below = state.live.keys().filter(|p| below(p, &mount)).cloned();
        for path in below.collect::<Vec<_>>() {
            state.durable.remove(&path);
            if let Some(node) = state.live.remove(&path) {
                state.devices[self.number].away.insert(path, node);
            }
        }
    }

    /// It is there again, as it was, and can be written.
    pub fn come_back(&self) {
        let mut guard = self.disk.0.state.lock();
        let state = &mut *guard;
        let device = &mut state.devices[self.number];
        device.gone = None;
        device.read_only = false;
        if device.mounted {
            return;
        }
        device.mounted = true;
        let mount = device.mount.clone();
        let away = std::mem::take(&mut device.away);
        state.clear(&mount);
        for (path, node) in away {
            state.live.insert(path.clone(), node);
            state.durable.insert(path, node);
        }
    }

    /// What is on it now.
    #[must_use]
    pub fn image(&self) -> Image {
        let state = self.disk.0.state.lock();
        let mount = &state.devices[self.number].mount;
        let nodes = state.live.iter().filter(|(p, _)| below(p, mount));
        Image(
            nodes
                .map(|(path, node)| {
                    let inode = match node {
                        Node::Directory => None,
                        Node::File(inode) => state.inodes.get(inode).cloned(),
                    };
                    (path.clone(), inode)
                })
                .collect(),
        )
    }

    /// It comes back as it was: everything since is gone. Open files keep
    /// what they had.
    pub fn restore(&self, image: &Image) {
        let mut guard = self.disk.0.state.lock();
        let state = &mut *guard;
        let mount = state.devices[self.number].mount.clone();
        state.clear(&mount);
        for (path, inode) in &image.0 {
            let node = match inode {
                None => Node::Directory,
                Some(inode) => Node::File(state.add(Inode {
                    device: self.number,
                    live: inode.live.clone(),
                    durable: inode.live.clone(),
                    ..Inode::default()
                })),
            };
            state.live.insert(path.clone(), node);
            state.durable.insert(path.clone(), node);
        }
    }
}

/// Whether `path` lies under `mount`, and is not it.
fn below(path: &Path, mount: &Path) -> bool {
    path.starts_with(mount) && path != mount
}

impl State {
    /// Forgets every name under `mount`.
    fn clear(&mut self, mount: &Path) {
        self.live.retain(|p, _| !below(p, mount));
        self.durable.retain(|p, _| !below(p, mount));
        self.pending.retain(|c| !c.path().starts_with(mount));
    }
}

impl Disk {
    /// Mounts a device at `path`, which is made. What lies under it has its own
    /// room, speed and faults.
    pub fn mount(&self, path: impl AsRef<Path>) -> Device {
        let path = path.as_ref();
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        let number = state.devices.len();
        state.devices.push(DeviceState::new(path));
        for above in path.ancestors() {
            for names in [&mut state.live, &mut state.durable] {
                names.entry(above.to_path_buf()).or_insert(Node::Directory);
            }
        }
        drop(guard);
        Device {
            disk: self.clone(),
            number,
        }
    }

    /// The device that `path` lies on.
    #[must_use]
    pub fn device(&self, path: impl AsRef<Path>) -> Device {
        Device {
            number: self.0.state.lock().device_of(path.as_ref()),
            disk: self.clone(),
        }
    }

    /// Every device is well again; no fault is to come any more. Says whether
    /// one was.
    pub fn heal(&self) -> bool {
        let mut state = self.0.state.lock();
        for device in &mut state.devices {
            device.read_only = false;
            device.gone = None;
        }
        let rules: Vec<Rule> = std::mem::take(&mut state.rules);
        !rules.is_empty()
    }

    /// The clock is set back: what ran before must not depend on it.
    pub fn turn_back(&self, time: Duration) {
        self.0
            .now_micros
            .fetch_sub(time.as_micros() as u64, Ordering::Relaxed);
    }
}
