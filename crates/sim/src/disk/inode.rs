//! The content of one file: what is seen, what is on the device, and what lies
//! between.

use crate::Dice;

const SECTOR: usize = 512;

#[derive(Default)]
pub(super) struct Inode {
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<Pending>,
    /// A sync failed: what is cached is not what the device has.
    pub(super) lost: bool,
}

pub(super) enum Pending {
    Write(usize, Vec<u8>),
    Size(usize),
}

pub(super) fn write_into(bytes: &mut Vec<u8>, offset: usize, piece: &[u8]) {
    if bytes.len() < offset + piece.len() {
        bytes.resize(offset + piece.len(), 0);
    }
    bytes[offset..offset + piece.len()].copy_from_slice(piece);
}

impl Inode {
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        write_into(&mut self.live, offset, bytes);
        self.pending.push(Pending::Write(offset, bytes.to_vec()));
    }

    pub(super) fn set_size(&mut self, size: usize) {
        self.live.resize(size, 0);
        self.pending.push(Pending::Size(size));
    }

    pub(super) fn settle(&mut self) {
        if self.lost {
            // What an earlier failed sync lost stays lost.
            self.apply(&mut Dice(0), 100);
        } else {
            self.pending.clear();
            self.durable.clone_from(&self.live);
        }
    }

    /// Puts each pending sector on the device with a chance of `percent`.
    pub(super) fn apply(&mut self, dice: &mut Dice, percent: u64) {
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
