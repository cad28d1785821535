//! The primitive encodings that our formats share: LEB128 numbers and
//! length-prefixed bytes. The reader never trusts a length further than the
//! bytes at hand.

/// Appends primitive values to a buffer.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// One byte.
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// A number, seven bits a byte, least significant first.
    pub fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.bytes.push((n as u8) | 0x80);
            n >>= 7;
        }
        self.bytes.push(n as u8);
    }

    /// A count or length.
    pub fn length(&mut self, n: usize) {
        self.number(n as u64);
    }

    /// A length and that many bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// What was written.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Takes primitive values off the front of a buffer. Errors are in words and
/// name the position.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, position: 0 }
    }

    /// How many bytes were read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// One byte.
    ///
    /// # Errors
    /// When there is none left.
    pub fn byte(&mut self) -> Result<u8, String> {
        let byte = self.bytes.get(self.position).copied();
        self.position += 1;
        byte.ok_or_else(|| format!("ends at byte {}", self.bytes.len()))
    }

    /// 0 or 1.
    ///
    /// # Errors
    /// When it is neither, or nothing is left.
    pub fn flag(&mut self) -> Result<bool, String> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("flag is {other} at byte {}", self.position - 1)),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// When it is longer than 64 bits, or nothing is left.
    pub fn number(&mut self) -> Result<u64, String> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7f);
            if shift == 63 && low > 1 {
                break;
            }
            n |= low << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(format!("number is too long at byte {}", self.position))
    }

    /// A number that fits 32 bits.
    ///
    /// # Errors
    /// When it does not, or nothing is left.
    pub fn number32(&mut self) -> Result<u32, String> {
        let n = self.number()?;
        u32::try_from(n)
            .map_err(|_| format!("number {n} exceeds 32 bits at byte {}", self.position))
    }

    /// A count or length: at most the bytes that are left, since everything
    /// counted takes at least one.
    ///
    /// # Errors
    /// When it exceeds that, or nothing is left.
    pub fn length(&mut self) -> Result<usize, String> {
        let n = self.number()?;
        let left = self.bytes.len().saturating_sub(self.position);
        match usize::try_from(n) {
            Ok(n) if n <= left => Ok(n),
            _ => Err(format!(
                "length {n} exceeds the {left} bytes left at byte {}",
                self.position
            )),
        }
    }

    /// A length and that many bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn bytes(&mut self) -> Result<&'a [u8], String> {
        let n = self.length()?;
        self.raw(n)
    }

    /// `n` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn raw(&mut self, n: usize) -> Result<&'a [u8], String> {
        let end = self
            .position
            .checked_add(n)
            .filter(|&e| e <= self.bytes.len());
        let end = end.ok_or_else(|| format!("{n} bytes wanted at byte {}", self.position))?;
        let bytes = &self.bytes[self.position..end];
        self.position = end;
        Ok(bytes)
    }

    /// Requires that everything was read.
    ///
    /// # Errors
    /// When something is left.
    pub fn end(&self) -> Result<(), String> {
        match self.bytes.len().saturating_sub(self.position) {
            0 => Ok(()),
            left => Err(format!("{left} bytes left over at byte {}", self.position)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut w = Writer::default();
        for n in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            w.number(n);
        }
        w.bytes(b"hello");
        w.byte(1);
        let bytes = w.finish();
        let mut r = Reader::new(&bytes);
        for n in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(r.number(), Ok(n));
        }
        assert_eq!(r.bytes(), Ok(&b"hello"[..]));
        assert_eq!(r.flag(), Ok(true));
        assert_eq!(r.end(), Ok(()));
    }

    #[test]
    fn lengths_beyond_the_bytes_at_hand_are_refused() {
        let mut w = Writer::default();
        w.number(u64::MAX);
        let bytes = w.finish();
        assert!(Reader::new(&bytes).length().is_err());
        assert!(Reader::new(&bytes).number32().is_err());
        assert!(Reader::new(&[0xff; 11]).number().is_err());
        assert!(Reader::new(&[]).byte().is_err());
    }
}
