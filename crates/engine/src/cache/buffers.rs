//! Buffers that blocks are loaded into, kept for the next ones.
//!
//! A block is read into a buffer on the heap. Once its payload is in a slot of the cache
//! (`cache/slots.rs`) the buffer is free again, and so it is when a block leaves the cache that
//! suited no slot. Allocators keep their pages by thread, and loads come from many: handed
//! straight to the next load, a buffer is not freed at all.

use crate::cache::allocation_bytes;
use crate::sync::Mutex;

/// The smallest buffer that is kept: of 512 bytes.
const SMALLEST_LOG2: u32 = 9;

/// Sizes between one power of two and the next.
const STEPS: usize = 4;

/// The sizes that are kept: up to some 64 KiB.
const SIZES: usize = 7 * STEPS;

/// Most buffers of one size. A load takes one, and an insertion gives it back.
const BUFFERS_MAX: u64 = 16;

/// Most bytes of one size, as a share of the cache: a few buffers, far less than what the
/// promise of memory has for the allocator (`footprint.rs`).
const SIZE_SHARE: u64 = 256;

pub(super) struct Buffers {
    sizes: [Mutex<Vec<Vec<u8>>>; SIZES],
    bytes_max: u64,
}

impl Buffers {
    pub(super) fn new(cache_bytes: u64) -> Buffers {
        Buffers {
            sizes: std::array::from_fn(|_| Mutex::new(Vec::new())),
            bytes_max: cache_bytes / SIZE_SHARE,
        }
    }

    /// A buffer with room for `bytes`. It holds what it held when it was last used, so that who
    /// fills as much of it need not have it filled with zeros first.
    pub(super) fn take(&self, bytes: usize) -> Vec<u8> {
        let bytes = allocation_bytes(bytes);
        let kept = place_of(bytes).and_then(|size| self.sizes[size].lock().pop());
        kept.unwrap_or_else(|| Vec::with_capacity(bytes))
    }

    /// Keeps `buffer`, if there is room for it.
    pub(super) fn put(&self, buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        // One of another size than those that are asked for would be lost here.
        let Some(size) = place_of(bytes).filter(|_| allocation_bytes(bytes) == bytes) else {
            return;
        };
        let count_max = (self.bytes_max / bytes as u64).min(BUFFERS_MAX);
        let mut kept = self.sizes[size].lock();
        if (kept.len() as u64) < count_max {
            kept.push(buffer);
        }
    }
}

/// The place of buffers of `bytes`, if such are kept.
fn place_of(bytes: usize) -> Option<usize> {
    let above = bytes.checked_sub(1)? >> SMALLEST_LOG2;
    let power = above.checked_ilog2()?;
    let step = (bytes - 1) >> (SMALLEST_LOG2 + power - STEPS.ilog2());
    let size = power as usize * STEPS + step - STEPS;
    (size < SIZES).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_that_allocators_hand_out_has_a_place_of_its_own() {
        let mut last = None;
        for bytes in 1..200_000 {
            if allocation_bytes(bytes) != bytes {
                assert_eq!(
                    place_of(bytes),
                    place_of(allocation_bytes(bytes)),
                    "{bytes}"
                );
                continue;
            }
            let size = place_of(bytes);
            assert!(size.is_none() || size != last, "{bytes}");
            last = size;
        }
        assert_eq!(place_of(0), None);
        assert_eq!(place_of(512), None);
        assert_eq!(place_of(513), Some(0));
        assert_eq!(place_of(64 << 10), Some(SIZES - 1));
        assert_eq!(place_of((64 << 10) + 1), None);
    }

    #[test]
    fn a_buffer_comes_back_for_a_block_of_its_size_and_for_no_other() {
        let buffers = Buffers::new(64 << 20);
        let mut buffer = buffers.take(3000);
        buffer.extend_from_slice(&[7; 3000]);
        let place = buffer.as_ptr();
        buffers.put(buffer);
        let other = buffers.take(5000);
        assert_ne!(other.as_ptr(), place);
        let again = buffers.take(2900);
        assert_eq!(again.as_ptr(), place);
    }

    #[test]
    fn no_more_is_kept_than_the_share_of_the_cache() {
        for (cache_bytes, most) in [(0, 0), (256 * 4096, 1), (1 << 40, BUFFERS_MAX as usize)] {
            let buffers = Buffers::new(cache_bytes);
            for _ in 0..100 {
                buffers.put(Vec::with_capacity(4096));
            }
            let kept: usize = buffers.sizes.iter().map(|kept| kept.lock().len()).sum();
            assert_eq!(kept, most);
        }
    }
}
