//! Versions on disk and in memory: the manifest that records them, the
//! pointer to that, and the tree of open tables that reads walk.

pub(crate) mod manifest;
pub(crate) mod pointer;
pub(crate) mod remains;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
