//! The content of one file: what is seen, what is on the device, and what lies
//! between.

use std::ops::Range;
use std::sync::Arc;

use crate::Dice;

const SECTOR: usize = 512;

#[derive(Clone, Default)]
pub(super) struct Inode {
    /// The device it lies on, by number.
    pub(super) device: usize,
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<Pending>,
    /// A sync failed: what is cached is not what the device has.
    pub(super) lost: bool,
    /// Bytes that the device cannot read, however often it is asked.
    pub(super) unreadable: Range<usize>,
}

#[derive(Clone)]
pub(super) enum Pending {
    Write(usize, Arc<[u8]>),
    Size(usize),
}

/// What survives of unsynced writes.
pub(super) struct Survival<'a> {
    /// The chance of each piece.
    pub(super) percent: u64,
    /// Pieces end at multiples of this: a sector, or less where the device
    /// tears sectors.
    pub(super) piece: usize,
    /// What is read where the size survived and the content did not.
    pub(super) junk: Junk<'a>,
}

/// What a block holds that was given to a file and never written.
pub(super) enum Junk<'a> {
    Zeros,
    Noise(u64),
    /// What another file had at the same place.
    Stale(&'a [u8]),
}

impl Junk<'_> {
    fn grow(&self, bytes: &mut Vec<u8>, size: usize) {
        let old = bytes.len();
        bytes.resize(size.max(old), 0);
        match self {
            Junk::Zeros => {}
            Junk::Noise(seed) => {
                let mut dice = Dice(seed ^ old as u64);
                bytes[old..].fill_with(|| dice.next() as u8);
            }
            Junk::Stale(other) => {
                let there = other.get(old..).unwrap_or_default();
                let n = there.len().min(bytes.len() - old);
                bytes[old..old + n].copy_from_slice(&there[..n]);
            }
        }
    }
}

pub(super) fn write_into(bytes: &mut Vec<u8>, offset: usize, piece: &[u8]) {
    if bytes.len() < offset + piece.len() {
        bytes.resize(offset + piece.len(), 0);
    }
    bytes[offset..offset + piece.len()].copy_from_slice(piece);
}

impl Inode {
    /// Whether all of `length` bytes at `offset` can be read.
    pub(super) fn is_readable(&self, offset: usize, length: usize) -> bool {
        let Range { start, end } = self.unreadable;
        end <= offset || offset.saturating_add(length) <= start
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        write_into(&mut self.live, offset, bytes);
        self.pending.push(Pending::Write(offset, bytes.into()));
    }

    pub(super) fn set_size(&mut self, size: usize) {
        self.live.resize(size, 0);
        self.pending.push(Pending::Size(size));
    }

    /// Puts everything pending on the device. What an earlier failed sync lost
    /// stays lost. The cost is that of what is pending.
    pub(super) fn settle(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Size(size) => self.durable.resize(size, 0),
                Pending::Write(offset, bytes) => write_into(&mut self.durable, offset, &bytes),
            }
        }
    }

    /// Puts on the device what survives of what is pending: any subset of the
    /// bytes, and any size the file had since its last sync.
    pub(super) fn lose(&mut self, dice: &mut Dice, survival: &Survival<'_>) {
        let Survival {
            percent,
            piece,
            junk,
        } = survival;
        if self.pending.is_empty() {
            return;
        }
        let mut sizes = vec![self.durable.len()];
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Size(size) => {
                    if dice.percent(*percent) {
                        self.durable.resize(size, 0);
                    }
                }
                Pending::Write(offset, bytes) => {
                    let mut done = 0;
                    while done < bytes.len() {
                        let at = offset + done;
                        let length = (piece - at % piece).min(bytes.len() - done);
                        if dice.percent(*percent) {
                            if self.durable.len() < at {
                                junk.grow(&mut self.durable, at);
                            }
                            write_into(&mut self.durable, at, &bytes[done..done + length]);
                        }
                        done += length;
                    }
                }
            }
            sizes.push(self.durable.len());
        }
        // The size of the newest write may survive without any of its bytes.
        sizes.push(self.live.len());
        if *percent < 100 && dice.percent(50) {
            let size = sizes[dice.below(sizes.len() as u64) as usize];
            if size > self.durable.len() {
                junk.grow(&mut self.durable, size);
            } else {
                self.durable.truncate(size);
            }
        }
    }

    /// The size of a piece in which unsynced writes survive: mostly a sector.
    pub(super) fn piece(dice: &mut Dice) -> usize {
        [SECTOR, SECTOR, SECTOR, SECTOR, 64, 1][dice.below(6) as usize]
    }
}
