//! Compression of one block at a time, with contexts that are kept.

use std::cell::RefCell;

use thermocline_model::Compression;

/// The effort of Zstandard: its own default, dense at some 300 MB/s.
const ZSTD_LEVEL: i32 = 3;

/// Larger payloads are stored as they are: a large value is usually compressed
/// by whoever wrote it, and a second buffer of its size costs more than it saves.
const RAW_BYTES_MAX: usize = 16 << 20;

/// Compresses payloads for one table.
pub(crate) struct Compressor {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Compressor {
    /// A compressor; if Zstandard cannot be had (no memory), it compresses
    /// nothing.
    pub(crate) fn new(compression: Compression) -> Compressor {
        let zstd = match compression {
            Compression::Zstd => zstd::bulk::Compressor::new(ZSTD_LEVEL).ok(),
            _ => None,
        };
        Compressor { compression, zstd }
    }

    /// Fills `out` with the compressed `payload`, unless that saves less than
    /// an eighth. Returns how the payload is to be stored.
    pub(crate) fn compress(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Compression {
        out.clear();
        if payload.len() > RAW_BYTES_MAX {
            return Compression::None;
        }
        let done = match self.compression {
            Compression::None => false,
            Compression::Lz4 => {
                out.resize(lz4_flex::block::get_maximum_output_size(payload.len()), 0);
                match lz4_flex::block::compress_into(payload, out) {
                    Ok(length) => {
                        out.truncate(length);
                        true
                    }
                    Err(_) => false,
                }
            }
            Compression::Zstd => {
                out.reserve(zstd::zstd_safe::compress_bound(payload.len()));
                let zstd = self.zstd.as_mut();
                zstd.is_some_and(|z| z.compress_to_buffer(payload, out).is_ok())
            }
        };
        if done && out.len() + payload.len() / 8 < payload.len() {
            self.compression
        } else {
            Compression::None
        }
    }
}

thread_local! {
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The payload of `raw_bytes` that was compressed to `stored`.
///
/// # Errors
/// In words, when there is no such payload.
pub(crate) fn decompress(
    compression: Compression,
    stored: &[u8],
    raw_bytes: usize,
) -> Result<Vec<u8>, String> {
    let payload = match compression {
        Compression::None => stored.to_vec(),
        Compression::Lz4 => {
            let mut payload = vec![0; raw_bytes];
            let length = lz4_flex::block::decompress_into(stored, &mut payload)
                .map_err(|e| format!("does not decompress: {e}"))?;
            payload.truncate(length);
            payload
        }
        Compression::Zstd => ZSTD
            .with_borrow_mut(|kept| {
                let zstd = match kept {
                    Some(zstd) => zstd,
                    None => kept.insert(zstd::bulk::Decompressor::new()?),
                };
                zstd.decompress(stored, raw_bytes)
            })
            .map_err(|e| format!("does not decompress: {e}"))?,
    };
    if payload.len() != raw_bytes {
        return Err(format!(
            "decompresses to {} bytes instead of {raw_bytes}",
            payload.len()
        ));
    }
    Ok(payload)
}
