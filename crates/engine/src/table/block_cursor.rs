//! A position in a block.
//!
//! Forwards, the key is rebuilt from the one before in one buffer. Backwards,
//! the restart interval around the position is decoded once and its keys are
//! kept, so that a step back costs a copy of a key.

use std::cmp::Ordering;

use thermocline_model::SeqNo;

use super::block::Block;

/// An entry of the interval that was decoded for steps back.
struct Kept {
    key_start: usize,
    key_end: usize,
    value_start: usize,
    value_end: usize,
}

/// A position in a block, which is handed to every method. Movements yield
/// `None` when the block's bytes make no sense.
#[derive(Default)]
pub(crate) struct BlockCursor {
    key: Vec<u8>,
    index: usize,
    value_start: usize,
    value_end: usize,
    tag: u64,
    kept: Vec<Kept>,
    kept_keys: Vec<u8>,
    /// The interval that `kept` holds, if not empty.
    kept_restart: usize,
}

impl BlockCursor {
    /// Forgets the block.
    pub(crate) fn leave(&mut self) {
        self.kept.clear();
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The key, when the cursor is not needed any more.
    pub(crate) fn into_key(self) -> Vec<u8> {
        self.key
    }

    #[inline(always)]
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    #[inline(always)]
    pub(crate) fn value(&self) -> (usize, usize) {
        (self.value_start, self.value_end)
    }

    /// Decodes the entry at byte `at`, which follows the one the cursor is at
    /// or is a restart.
    #[inline(always)]
    fn load(&mut self, block: &Block, at: usize, index: usize) -> Option<()> {
        let entry = block.entry_at(at)?;
        if entry.shared > self.key.len() {
            return None;
        }
        self.key.truncate(entry.shared);
        self.key
            .extend_from_slice(&block.bytes()[entry.key_start..entry.value_start]);
        self.index = index;
        self.value_start = entry.value_start;
        self.value_end = entry.value_end;
        self.tag = block.tag(index)?;
        Some(())
    }

    /// To the entry of `restart`.
    fn enter_restart(&mut self, block: &Block, restart: usize) -> Option<()> {
        self.key.clear();
        let at = block.restart_offset(restart)?;
        self.load(block, at, restart * block.interval())
    }

    /// To the first entry.
    pub(crate) fn enter_first(&mut self, block: &Block) -> Option<()> {
        self.key.clear();
        self.load(block, 0, 0)
    }

    /// To the last entry.
    pub(crate) fn enter_last(&mut self, block: &Block) -> Option<()> {
        let last = block.len() - 1;
        self.keep_interval(block, last / block.interval())?;
        self.take_kept(block, last)
    }

    /// To the next entry. `Some(false)` when the cursor is at the last one,
    /// where it then stays.
    #[inline(always)]
    pub(crate) fn next(&mut self, block: &Block) -> Option<bool> {
        if self.index + 1 >= block.len() {
            return Some(false);
        }
        self.load(block, self.value_end, self.index + 1)?;
        Some(true)
    }

    /// To the entry before. `Some(false)` when the cursor is at the first one,
    /// where it then stays.
    pub(crate) fn prev(&mut self, block: &Block) -> Option<bool> {
        let Some(index) = self.index.checked_sub(1) else {
            return Some(false);
        };
        let restart = index / block.interval();
        if self.kept.is_empty() || self.kept_restart != restart {
            self.keep_interval(block, restart)?;
        }
        self.take_kept(block, index)?;
        Some(true)
    }

    /// Decodes the interval of `restart` into `kept`.
    fn keep_interval(&mut self, block: &Block, restart: usize) -> Option<()> {
        self.kept.clear();
        self.kept_keys.clear();
        let start = restart * block.interval();
        let end = (start + block.interval()).min(block.len());
        let mut at = block.restart_offset(restart)?;
        let mut before = 0..0;
        for _ in start..end {
            let entry = block.entry_at(at)?;
            if entry.shared > before.len() {
                return None;
            }
            let key_start = self.kept_keys.len();
            self.kept_keys
                .extend_from_within(before.start..before.start + entry.shared);
            let rest = &block.bytes()[entry.key_start..entry.value_start];
            self.kept_keys.extend_from_slice(rest);
            before = key_start..self.kept_keys.len();
            self.kept.push(Kept {
                key_start,
                key_end: before.end,
                value_start: entry.value_start,
                value_end: entry.value_end,
            });
            at = entry.value_end;
        }
        self.kept_restart = restart;
        Some(())
    }

    /// To entry `index`, which lies in the kept interval.
    fn take_kept(&mut self, block: &Block, index: usize) -> Option<()> {
        let kept = self
            .kept
            .get(index - self.kept_restart * block.interval())?;
        self.key.clear();
        self.key
            .extend_from_slice(&self.kept_keys[kept.key_start..kept.key_end]);
        self.index = index;
        self.value_start = kept.value_start;
        self.value_end = kept.value_end;
        self.tag = block.tag(index)?;
        Some(())
    }

    /// How the entry compares to `(key, seq)`.
    #[inline(always)]
    pub(crate) fn compare(&self, key: &[u8], seq: SeqNo) -> Ordering {
        self.key
            .as_slice()
            .cmp(key)
            .then_with(|| seq.0.cmp(&(self.tag >> 1)))
    }

    /// To the first entry at or after `(key, seq)`. `Some(false)` when there is
    /// none; the cursor is then at the last entry.
    pub(crate) fn seek(&mut self, block: &Block, key: &[u8], seq: SeqNo) -> Option<bool> {
        let restart = block.restart_before(key, seq)?;
        self.enter_restart(block, restart)?;
        while self.compare(key, seq) == Ordering::Less {
            if !self.next(block)? {
                return Some(false);
            }
        }
        Some(true)
    }
}
