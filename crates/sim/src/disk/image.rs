//! The files of a disk as plain data, for whoever wants to damage them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, Inode, Node};

impl Disk {
    /// Every file, with its bytes as a reader sees them.
    #[must_use]
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.0.state.lock();
        let file = |(path, node): (&PathBuf, &Node)| match node {
            Node::File(inode) => Some((path.clone(), state.inodes[inode].live.clone())),
            Node::Directory => None,
        };
        state.live.iter().filter_map(file).collect()
    }

    /// Makes the file at `path` one of these bytes, durably, in directories
    /// that are made where they are missing.
    pub fn put_file(&self, path: &Path, bytes: &[u8]) {
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        for directory in path.ancestors().skip(1) {
            for names in [&mut state.live, &mut state.durable] {
                names.insert(directory.to_path_buf(), Node::Directory);
            }
        }
        let inode = Inode {
            live: bytes.to_vec(),
            durable: bytes.to_vec(),
            ..Inode::default()
        };
        state.inodes.insert(state.next_inode, inode.into());
        let node = Node::File(state.next_inode);
        state.next_inode += 1;
        for names in [&mut state.live, &mut state.durable] {
            names.insert(path.to_path_buf(), node);
        }
    }

    /// Lets every read of these bytes of the file at `path` fail from here on. Nothing
    /// where there is no such file.
    pub fn make_unreadable(&self, path: &Path, bytes: Range<usize>) {
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        if let Some(Node::File(inode)) = state.live.get(path)
            && let Some(inode) = state.inodes.get_mut(inode)
        {
            Arc::make_mut(inode).unreadable = bytes;
        }
    }
}
