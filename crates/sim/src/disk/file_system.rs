//! The calls of the engine, each counted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline::store::{
    Access, Advice, Create, DirectoryEntry, File, FileSystem, Lock, Mapped, Metadata, OpenHow,
    Space,
};

use super::inode::{Inode, Pending, write_into};
use super::{Call, Change, Disk, EIO, Node, State, apply_change, error};

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
