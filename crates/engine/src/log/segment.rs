//! The segment that is being written: a mapped, preallocated file where that
//! can be had, otherwise plain writes.

use std::io;
use std::sync::Arc;

use super::format::{FRAME_HEADER_BYTES, frame_bytes};
use crate::store::{File, Mapped, write_all_at};

/// Payloads up to this size are copied behind their header, to be one write.
const GATHER_BYTES_MAX: usize = 64 << 10;

pub(super) struct OpenSegment {
    pub(super) id: u64,
    pub(super) first_seq: u64,
    /// The part of the frame checksums that store and segment make.
    pub(super) seed: u32,
    /// Where the next frame goes; everything before it is good.
    pub(super) offset: u64,
    /// Frames that would end beyond go to another segment.
    pub(super) capacity: u64,
    file: Arc<dyn File>,
    map: Option<Box<dyn Mapped>>,
    /// Header, payload and padding of one frame, where there is no map.
    gathered: Vec<u8>,
}

impl OpenSegment {
    /// A segment in the new, empty `file`.
    pub(super) fn new(
        id: u64,
        first_seq: u64,
        seed: u32,
        capacity: u64,
        file: Arc<dyn File>,
        mapped: bool,
    ) -> OpenSegment {
        let map = if mapped {
            map_all(&*file, capacity)
        } else {
            None
        };
        OpenSegment {
            id,
            first_seq,
            seed,
            offset: 0,
            capacity,
            file,
            map,
            gathered: Vec::new(),
        }
    }

    pub(super) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Writes the segment's header. After an error the segment is of no use.
    pub(super) fn write_header(&mut self, header: &[u8]) -> io::Result<()> {
        match &mut self.map {
            Some(map) => map.write(0, header)?,
            None => write_all_at(&*self.file, header, 0)?,
        }
        self.offset = header.len() as u64;
        Ok(())
    }

    /// Writes a frame and moves on. After an error the offset stands and what
    /// lies beyond it is of no meaning.
    #[inline]
    pub(super) fn write_frame(
        &mut self,
        header: &[u8; FRAME_HEADER_BYTES],
        payload: &[u8],
    ) -> io::Result<()> {
        match &mut self.map {
            // The padding is zero already, for the file was made of zeros. The
            // header comes last: where there is one, its payload was written.
            Some(map) => {
                map.write(self.offset + FRAME_HEADER_BYTES as u64, payload)?;
                map.write(self.offset, header)?;
            }
            None => self.write_unmapped(header, payload)?,
        }
        self.offset += frame_bytes(payload.len());
        Ok(())
    }

    fn write_unmapped(&mut self, header: &[u8], payload: &[u8]) -> io::Result<()> {
        let whole_bytes = frame_bytes(payload.len()) as usize;
        self.gathered.clear();
        self.gathered.extend_from_slice(header);
        if payload.len() <= GATHER_BYTES_MAX {
            self.gathered.extend_from_slice(payload);
            self.gathered.resize(whole_bytes, 0);
            return write_all_at(&*self.file, &self.gathered, self.offset);
        }
        let payload_offset = self.offset + header.len() as u64;
        write_all_at(&*self.file, payload, payload_offset)?;
        let padding = [0; 8];
        let padding = &padding[..whole_bytes - header.len() - payload.len()];
        write_all_at(&*self.file, padding, payload_offset + payload.len() as u64)?;
        write_all_at(&*self.file, &self.gathered, self.offset)
    }

    /// Ends the segment behind its last good frame and returns its file. That
    /// it is cut there is for tidiness: recovery knows the end from the next
    /// segment, and zeros after the last frame are lawful.
    pub(super) fn close(self) -> Arc<dyn File> {
        drop(self.map);
        let _ = self.file.set_size(self.offset);
        self.file
    }
}

/// Reserves and maps the whole segment. Without room for all of it, or without
/// maps, the segment is written in the plain way as far as it goes.
fn map_all(file: &dyn File, capacity: u64) -> Option<Box<dyn Mapped>> {
    let map = match file.allocate(0, capacity) {
        Ok(()) => file.map(capacity),
        Err(_) => None,
    };
    if map.is_none() {
        // Gives back what was reserved; if that fails, the zeros do no harm.
        let _ = file.set_size(0);
    }
    map
}
