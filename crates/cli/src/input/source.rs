//! Opens input: a file or standard input, plain, gzip or Zstandard. The
//! compression is recognised by the first bytes, not by the name.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::exit::{Exit, Failure};

/// Size of the read buffers.
const BUFFER_BYTES: usize = 256 << 10;

/// What an input argument names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// `-`.
    Standard,
    /// A file.
    File(PathBuf),
}

impl Input {
    /// Reads the argument.
    pub(crate) fn of(argument: &Path) -> Input {
        if argument.as_os_str() == "-" {
            Input::Standard
        } else {
            Input::File(argument.to_path_buf())
        }
    }

    /// The name for messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Input::Standard => "standard input".into(),
            Input::File(path) => path.display().to_string(),
        }
    }

    /// Fails where there is no such file.
    pub(crate) fn must_exist(&self) -> Result<(), Failure> {
        match self {
            Input::Standard => Ok(()),
            Input::File(path) => match path.metadata() {
                Ok(_) => Ok(()),
                Err(error) => Err(self.failure("opening", error)),
            },
        }
    }

    /// The size of the file as it lies on the device.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        match self {
            Input::Standard => None,
            Input::File(path) => path
                .metadata()
                .ok()
                .filter(std::fs::Metadata::is_file)
                .map(|m| m.len()),
        }
    }

    /// Opens the input, decompressed, `offset` bytes (of what is decompressed)
    /// behind its beginning. `taken` counts the bytes taken from the device.
    pub(crate) fn open(&self, offset: u64, taken: &Arc<AtomicU64>) -> Result<Source, Failure> {
        let failed = |doing| move |error| self.failure(doing, error);
        let mut reader: Box<dyn Read + Send> = match self {
            Input::Standard => Box::new(io::stdin()),
            Input::File(path) => {
                let mut file = File::open(path).map_err(failed("opening"))?;
                if offset > 0
                    && compression(&magic(&mut file).map_err(failed("reading"))?).is_none()
                {
                    file.seek(SeekFrom::Start(offset))
                        .map_err(failed("seeking"))?;
                    taken.store(offset, Ordering::Relaxed);
                    return Ok(BufReader::with_capacity(
                        BUFFER_BYTES,
                        Box::new(Counting::new(Box::new(file), taken)),
                    ));
                }
                if offset > 0 {
                    file.rewind().map_err(failed("seeking"))?;
                }
                Box::new(file)
            }
        };
        reader = Box::new(Counting::new(reader, taken));
        let mut buffered = BufReader::with_capacity(BUFFER_BYTES, reader);
        let head = buffered.fill_buf().map_err(failed("reading"))?;
        let plain: Box<dyn Read + Send> = match compression(head) {
            None => Box::new(buffered),
            Some(Compression::Gzip) => Box::new(flate2::bufread::MultiGzDecoder::new(buffered)),
            Some(Compression::Zstandard) => Box::new(
                zstd::stream::read::Decoder::with_buffer(buffered).map_err(failed("reading"))?,
            ),
            Some(Compression::Other(name)) => {
                return Err(Failure::usage(format!(
                    "{} is compressed with {name}, which is not read directly; \
                     decompress it into a pipe and load `-`",
                    self.name()
                )));
            }
        };
        let mut source = BufReader::with_capacity(BUFFER_BYTES, plain);
        let skipped = io::copy(&mut (&mut source).take(offset), &mut io::sink())
            .map_err(failed("reading"))?;
        if skipped < offset {
            return Err(Failure::new(
                Exit::Failed,
                format!("{} ends before the place to go on from", self.name()),
            ));
        }
        Ok(source)
    }

    /// The failure of reading this input.
    pub(crate) fn failure(&self, doing: &str, error: io::Error) -> Failure {
        Failure::io(doing, Path::new(&self.name()), error)
    }
}

/// A decompressed input.
pub(crate) type Source = BufReader<Box<dyn Read + Send>>;

enum Compression {
    Gzip,
    Zstandard,
    Other(&'static str),
}

fn compression(head: &[u8]) -> Option<Compression> {
    match head {
        [0x1f, 0x8b, ..] => Some(Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstandard),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some(Compression::Other("xz")),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some(Compression::Other("lz4")),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => Some(Compression::Other("bzip2")),
        _ => None,
    }
}

fn magic(file: &mut File) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(8).read_to_end(&mut head)?;
    Ok(head)
}

/// Counts the bytes that pass.
struct Counting {
    reader: Box<dyn Read + Send>,
    taken: Arc<AtomicU64>,
}

impl Counting {
    fn new(reader: Box<dyn Read + Send>, taken: &Arc<AtomicU64>) -> Counting {
        Counting {
            reader,
            taken: Arc::clone(taken),
        }
    }
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.taken.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}
