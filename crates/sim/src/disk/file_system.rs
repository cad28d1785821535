//! The calls of the engine, each counted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use thermocline::store::{
    Access, Advice, Create, DirectoryEntry, File, FileSystem, Lock, Mapped, Metadata, OpenHow,
    Space,
};

use super::fault::{Call, Go};
use super::inode::{Inode, Junk, Pending, Survival, write_into};
use super::{Change, Disk, EBADF, EIO, ENOSPC, EXDEV, Node, State, apply_change, error};

impl Disk {
    /// The state, once the device of `path` is free and the call's time is over.
    fn at(&self, path: &Path, call: Call) -> (MutexGuard<'_, State>, usize) {
        let state = self.0.state.lock();
        let device = state.device_of(path);
        (self.wait(state, device, call), device)
    }

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        device: usize,
        call: Call,
    ) -> MutexGuard<'a, State> {
        if state.devices[device].held {
            let here = &mut state.devices[device];
            here.waiting += 1;
            here.waiting_max = here.waiting_max.max(here.waiting);
            while state.devices[device].held {
                self.0.released.wait(&mut state);
            }
            state.devices[device].waiting -= 1;
        }
        let time = state.devices[device].time(call);
        let micros = time.as_micros() as u64;
        if micros > 0 {
            self.0.now_micros.fetch_add(micros, Ordering::Relaxed);
        }
        state
    }

    /// A call on a path that either happens or does not.
    fn whole(&self, path: &Path, call: Call) -> io::Result<(MutexGuard<'_, State>, usize)> {
        let (mut state, device) = self.at(path, call);
        state.whole_call(device, path, call)?;
        Ok((state, device))
    }
}

impl FileSystem for Disk {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let exists = self.0.state.lock().live.contains_key(path);
        let creates = how.create != Create::Never && !exists;
        let call = if creates { Call::Make } else { Call::Open };
        let (mut state, device) = self.whole(path, call)?;
        let exists = state.live.contains_key(path);
        if exists && how.create == Create::New {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if creates && !exists {
            state.make(path, device)?;
        }
        let inode = state.file(path)?;
        let epoch = state.epoch;
        *state.open.entry(inode).or_default() += 1;
        Ok(Arc::new(Handle {
            disk: self.clone(),
            path: path.to_path_buf(),
            device: state.inodes[&inode].device,
            inode,
            epoch,
            writable: how.access == Access::ReadWrite,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut state, device) = self.whole(to, Call::Change)?;
        let node = Node::File(state.file(from)?);
        if state.device_of(from) != device {
            return Err(error(EXDEV));
        }
        state.change(Change::Rename(from.to_path_buf(), to.to_path_buf(), node));
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let (mut state, _) = self.whole(path, Call::Change)?;
        state.file(path)?;
        state.change(Change::Remove(path.to_path_buf()));
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let (state, _) = self.whole(directory, Call::List)?;
        state.has_directory(directory)?;
        let below = state.live.range(directory.to_path_buf()..);
        let below = below
            .take_while(|(p, _)| p.starts_with(directory))
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
        let (mut state, _) = self.whole(path, Call::Grow)?;
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
        let (mut state, _) = self.whole(path, Call::Change)?;
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
        // Names are journaled: after a failed sync they are still to come.
        let (mut guard, _) = self.whole(directory, Call::SyncDirectory)?;
        let state = &mut *guard;
        state.has_directory(directory)?;
        for change in std::mem::take(&mut state.pending) {
            if change.directory() == Some(directory) {
                apply_change(&mut state.durable, &change);
            } else {
                state.pending.push(change);
            }
        }
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut state, device) = self.whole(to, Call::Grow)?;
        let inode = state.file(from)?;
        if state.device_of(from) != device {
            return Err(error(EXDEV));
        }
        if state.live.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.change(Change::Put(to.to_path_buf(), Node::File(inode)));
        Ok(())
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let (state, _) = match self.whole(path, Call::Look) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        Ok(state.live.get(path).map(|node| match node {
            Node::Directory => Metadata {
                size_bytes: 0,
                is_directory: true,
                identity: None,
            },
            Node::File(inode) => Metadata {
                size_bytes: state.inodes[inode].live.len() as u64,
                is_directory: false,
                identity: None,
            },
        }))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let (mut state, device) = self.whole(path, Call::Lock)?;
        if !state.live.contains_key(path) {
            state.make(path, device)?;
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

    fn space(&self, directory: &Path) -> io::Result<Space> {
        let (state, device) = self.whole(directory, Call::Look)?;
        Ok(Space {
            free_bytes: state.free_bytes(device),
            total_bytes: state.devices[device].capacity_bytes.unwrap_or(1 << 41),
        })
    }
}

impl State {
    /// A new, empty file called `path`.
    fn make(&mut self, path: &Path, device: usize) -> io::Result<()> {
        self.has_directory(path.parent().unwrap_or(Path::new("/")))?;
        let inode = self.add(Inode {
            device,
            ..Inode::default()
        });
        self.change(Change::Put(path.to_path_buf(), Node::File(inode)));
        Ok(())
    }

    /// How many of the bytes that end at `end` of the file have room.
    fn room(&self, inode: u64, offset: u64, length: usize) -> io::Result<usize> {
        let file = &self.inodes[&inode];
        let size = file.live.len() as u64;
        if self.devices[file.device].capacity_bytes.is_none() {
            return Ok(length);
        }
        let growth = (offset + length as u64).saturating_sub(size);
        let lacking = growth.saturating_sub(self.free_bytes(file.device));
        match length as u64 - lacking.min(length as u64) {
            0 if length > 0 => Err(error(ENOSPC)),
            room => Ok(room as usize),
        }
    }

    /// Another file of the same device, if there is one, and a place in it: for
    /// what goes astray.
    fn elsewhere(&mut self, inode: u64, offset: u64) -> (u64, usize) {
        let device = self.inodes[&inode].device;
        let mut others: Vec<u64> = self
            .live
            .values()
            .filter_map(|node| match node {
                Node::File(other) if self.inodes[other].device == device => Some(*other),
                _ => None,
            })
            .filter(|&other| other != inode)
            .collect();
        others.sort_unstable();
        others.dedup();
        if others.is_empty() || self.dice.percent(50) {
            // The same file, some sectors away.
            let size = self.inodes[&inode].live.len() as u64;
            let at = (offset + 512 * (1 + self.dice.below(4))) % size.max(513);
            return (inode, at as usize);
        }
        let other = self.dice.one_of(&others);
        // The same place in another file is the likeliest to deceive.
        (other, offset as usize)
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
    path: PathBuf,
    device: usize,
    inode: u64,
    epoch: u64,
    writable: bool,
}

impl Handle {
    /// The state and how the call goes, unless the machine has rebooted since.
    fn enter(&self, call: Call) -> io::Result<(MutexGuard<'_, State>, io::Result<Go>)> {
        let state = self.disk.0.state.lock();
        let mut state = self.disk.wait(state, self.device, call);
        if state.epoch != self.epoch {
            return Err(error(EIO));
        }
        let go = state.call(self.device, &self.path, call);
        Ok((state, go))
    }

    fn whole(&self, call: Call) -> io::Result<MutexGuard<'_, State>> {
        let (mut state, go) = self.enter(call)?;
        if go? == Go::Part && state.dice.percent(50) {
            return Err(error(EIO));
        }
        Ok(state)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.disk.0.state.lock();
        if state.epoch == self.epoch
            && let Some(count) = state.open.get_mut(&self.inode)
        {
            *count -= 1;
            if *count == 0 {
                state.open.remove(&self.inode);
            }
        }
    }
}

impl File for Handle {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (mut state, go) = self.enter(Call::Read)?;
        let go = go?;
        let wanted = match go {
            Go::Short => buffer
                .len()
                .min(1 + state.dice.below(buffer.len() as u64) as usize),
            _ => buffer.len(),
        };
        let (inode, offset) = match go {
            Go::Misdirected => state.elsewhere(self.inode, offset),
            _ => (self.inode, offset as usize),
        };
        let bytes = state.inodes[&inode].live.get(offset..).unwrap_or_default();
        let n = bytes.len().min(wanted);
        if !state.inodes[&inode].is_readable(offset, n) {
            return Err(error(EIO));
        }
        buffer[..n].copy_from_slice(&bytes[..n]);
        if go == Go::Flipped && n > 0 {
            let bit = state.dice.below(n as u64 * 8);
            buffer[bit as usize / 8] ^= 1 << (bit % 8);
        }
        Ok(n)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if !self.writable {
            return Err(error(EBADF));
        }
        let (mut guard, go) = self.enter(Call::Write)?;
        let state = &mut *guard;
        let go = match go {
            Ok(go) => go,
            Err(failed) => {
                // In part, then the error.
                if !state.crashed
                    && state.devices[self.device].check(Call::Write).is_ok()
                    && failed.kind() != io::ErrorKind::Interrupted
                {
                    state.write_part(self.inode, bytes, offset);
                }
                return Err(failed);
            }
        };
        let room = state.room(self.inode, offset, bytes.len())?;
        let mut bytes = &bytes[..room];
        let mut flipped = Vec::new();
        match go {
            Go::Part => {
                state.write_part(self.inode, bytes, offset);
                return Err(error(EIO));
            }
            Go::Short if bytes.len() > 1 => {
                bytes = &bytes[..1 + state.dice.below(bytes.len() as u64 - 1) as usize];
            }
            Go::Flipped if !bytes.is_empty() => {
                flipped.extend_from_slice(bytes);
                let bit = state.dice.below(bytes.len() as u64 * 8);
                flipped[bit as usize / 8] ^= 1 << (bit % 8);
            }
            Go::Misdirected => {
                let (inode, at) = state.elsewhere(self.inode, offset);
                // The file grows all the same: sizes are another matter.
                let end = offset as usize + bytes.len();
                if state.inodes[&self.inode].live.len() < end {
                    state.inode(self.inode).set_size(end);
                }
                // The device does that, so no cache knows of it.
                state.inode(inode).write(at, bytes);
                return Ok(bytes.len());
            }
            _ => {}
        }
        if state.recorded.is_some() && bytes.len() > 1 {
            // A crash in the middle of this write.
            let part = state.dice.below(bytes.len() as u64 - 1) as usize + 1;
            let mut copy = state.copy();
            copy.inode(self.inode)
                .write(offset as usize, &bytes[..part]);
            let calls = state.calls - 1;
            if let Some(recorded) = &mut state.recorded {
                recorded.push((calls, copy));
            }
        }
        let put = if flipped.is_empty() { bytes } else { &flipped };
        state.inode(self.inode).write(offset as usize, put);
        Ok(bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        let (mut guard, go) = self.enter(Call::Sync)?;
        let state = &mut *guard;
        match go {
            Ok(Go::Part) => Err(error(EIO)),
            Ok(_) => {
                if !state.inodes[&self.inode].pending.is_empty() {
                    state.inode(self.inode).settle();
                }
                Ok(())
            }
            Err(failed) => {
                if !state.crashed {
                    let survival = Survival {
                        percent: 50,
                        piece: Inode::piece(&mut state.dice),
                        junk: Junk::Zeros,
                    };
                    state.inode(self.inode);
                    let State { inodes, dice, .. } = state;
                    if let Some(inode) = inodes.get_mut(&self.inode) {
                        let inode = Arc::make_mut(inode);
                        inode.lose(dice, &survival);
                        inode.lost = true;
                    }
                }
                Err(failed)
            }
        }
    }

    fn size_bytes(&self) -> io::Result<u64> {
        let state = self.whole(Call::Look)?;
        Ok(state.inodes[&self.inode].live.len() as u64)
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        let mut state = self.whole(Call::Change)?;
        state.inode(self.inode).set_size(size_bytes as usize);
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let maps = self.disk.0.state.lock().maps;
        if !maps {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut state = self.whole(Call::Grow)?;
        if state.room(self.inode, offset, length as usize)? < length as usize {
            return Err(error(ENOSPC));
        }
        let end = (offset + length) as usize;
        if state.inodes[&self.inode].live.len() < end {
            state.inode(self.inode).set_size(end);
        }
        Ok(())
    }

    fn advise(&self, _offset: u64, _length: u64, advice: Advice) {
        let mut state = self.disk.0.state.lock();
        if state.epoch != self.epoch
            || advice != Advice::DontNeed
            || !state.inodes[&self.inode].lost
        {
            return;
        }
        // Only clean pages go; those of before the failed sync are.
        let inode = state.inode(self.inode);
        let mut bytes = inode.durable.clone();
        for pending in &inode.pending {
            match pending {
                Pending::Write(offset, piece) => write_into(&mut bytes, *offset, piece),
                Pending::Size(size) => bytes.resize(*size, 0),
            }
        }
        inode.live = bytes;
    }

    fn direct_alignment(&self) -> Option<usize> {
        None
    }

    fn map(&self, length: u64) -> Option<Box<dyn Mapped>> {
        let mut state = self.disk.0.state.lock();
        if !state.maps || !self.writable || state.epoch != self.epoch {
            return None;
        }
        *state.open.entry(self.inode).or_default() += 1;
        Some(Box::new(Map {
            handle: Handle {
                disk: self.disk.clone(),
                path: self.path.clone(),
                ..*self
            },
            length,
            failed: false,
        }))
    }
}

impl State {
    fn write_part(&mut self, inode: u64, bytes: &[u8], offset: u64) {
        let part = self.dice.below(bytes.len() as u64 + 1) as usize;
        if part > 0 {
            self.inode(inode).write(offset as usize, &bytes[..part]);
        }
    }
}

/// A file mapped for writing.
struct Map {
    handle: Handle,
    length: u64,
    failed: bool,
}

impl Mapped for Map {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if end > self.length {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (mut guard, go) = self.handle.enter(Call::Map)?;
        let state = &mut *guard;
        let inode = self.handle.inode;
        let short = end > state.inodes[&inode].live.len() as u64;
        match go {
            Ok(Go::Part) => {
                state.write_part(inode, bytes, offset);
                Err(error(EIO))
            }
            Ok(_) if !self.failed && !short => {
                state.inode(inode).write(offset as usize, bytes);
                Ok(())
            }
            failed => {
                // A page that cannot be had: so it stays.
                self.failed = true;
                Err(failed.err().unwrap_or_else(|| error(EIO)))
            }
        }
    }
}
